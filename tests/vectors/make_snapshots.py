"""Snapshots of the training scripts of PyTorch's DDP tutorials, for small models: snapshot.pt of pytorch/examples'
distributed/ddp-tutorial-series/multigpu_torchrun.py (MODEL_STATE, EPOCHS_RUN) with the losses of the script that continues from it,
and that of distributed/minGPT-ddp (model_state, optimizer_state, finished_epoch). Writes the folder snapshots. Needs PyTorch."""
import json
import os
from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import Any, Dict

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ROWS, EPOCHS, BATCH = 24, 4, 6
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "snapshots")
os.makedirs(folder, exist_ok=True)


@dataclass
class Snapshot:
    model_state: "OrderedDict[str, torch.Tensor]"
    optimizer_state: Dict[str, Any]
    finished_epoch: int


torch.manual_seed(1)
x, y = torch.rand(ROWS, 4).round(decimals=3), torch.rand(ROWS, 1).round(decimals=3)


def train(model, optimizer, first, epochs, after=lambda epoch: None):
    """The losses of the steps of one process."""
    losses = []
    sampler = DistributedSampler(range(ROWS), 1, 0)
    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)
        for rows in DataLoader(list(range(ROWS)), BATCH, sampler=sampler):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        after(epoch)
    return losses


model = torch.nn.Linear(4, 1)
path = os.path.join(folder, "multigpu_torchrun.pt")
train(model, torch.optim.SGD(model.parameters(), 0.1), 0, 2, lambda epoch: torch.save({"MODEL_STATE": model.state_dict(), "EPOCHS_RUN": epoch}, path))
snapshot = torch.load(path)
model.load_state_dict(snapshot["MODEL_STATE"])
sgd = train(model, torch.optim.SGD(model.parameters(), 0.1), snapshot["EPOCHS_RUN"], EPOCHS)

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU(), torch.nn.Linear(3, 1))
optimizer = torch.optim.AdamW(model.parameters(), 0.01, betas=(0.9, 0.95), weight_decay=0.1)
train(model, optimizer, 0, 2)
torch.save(asdict(Snapshot(model.state_dict(), optimizer.state_dict(), 2)), os.path.join(folder, "mingpt_ddp.pt"))
weights = {name: value.tolist() for name, value in model.state_dict().items()}
adamw = train(model, optimizer, 2, EPOCHS)

# the same with the state of each class of torch.optim, of one group or of several; "lists": how a script lists the parameters of its groups
def network():
    return torch.nn.Sequential(OrderedDict(b=torch.nn.Linear(4, 3), c=torch.nn.BatchNorm1d(3), a=torch.nn.Linear(3, 3), n=torch.nn.LayerNorm(3), d=torch.nn.Linear(3, 1)))


def groups(model, lists):
    if lists == "trained":
        model.b.requires_grad_(False)
        return filter(lambda p: p.requires_grad, model.parameters())
    named = dict(model.named_parameters())
    if not lists:
        return model.parameters()
    if lists == "each":
        return [{"params": [p], "weight_decay": 0.1 if p.dim() > 1 else 0.0} for p in named.values()]
    divided = [[name for name in (sorted(named) if "sorted" in lists else named) if (named[name].dim() > 1) == is_matrix] for is_matrix in (True, False)]
    return [{"params": [(name, named[name]) if "named" in lists else named[name] for name in names], "weight_decay": decay} for names, decay in zip(divided, (0.1, 0.0))]


states = {}
for name, lists, keys in (("SGD", "", dict(lr=0.05, momentum=0.9, nesterov=True)), ("SGD", "in order", dict(lr=0.05, momentum=0.9, dampening=0.5)),
                          ("Adam", "", dict(lr=0.01, amsgrad=True)), ("AdamW", "sorted", dict(lr=0.01, betas=(0.9, 0.95))), ("AdamW", "sorted named", dict(lr=0.01)), ("AdamW", "each", dict(lr=0.01)),
                          ("RMSprop", "", dict(lr=0.005, momentum=0.5, centered=True)), ("Adagrad", "", dict(lr=0.05)), ("NAdam", "", dict(lr=0.01)), ("RAdam", "", dict(lr=0.01)),
                          ("Adamax", "", dict(lr=0.01)), ("Adadelta", "", dict(lr=1.0)), ("Rprop", "", dict(lr=0.01)), ("ASGD", "", dict(lr=0.05, t0=3)), ("Adam", "trained", dict(lr=0.001, maximize=True))):
    model = network()
    make = getattr(torch.optim, name)
    file = "_".join([name.lower(), *lists.split()])
    path = os.path.join(folder, file + ".pt")
    optimizer = make(groups(model, lists), **keys)
    train(model, optimizer, 0, 2, lambda epoch: torch.save({"MODEL_STATE": model.state_dict(), "OPTIMIZER_STATE": optimizer.state_dict(), "EPOCHS_RUN": epoch}, path))
    snapshot = torch.load(path)
    model, optimizer = network(), None
    model.load_state_dict(snapshot["MODEL_STATE"])
    optimizer = make(groups(model, lists), **keys)
    optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
    states[file] = {"type": name.lower(), "keys": {**keys, **({"weight_decay": 0.1, "decay": "matrices"} if lists not in ("", "trained") else {})}, "freeze": ["b.*"] * (lists == "trained"), "losses": train(model, optimizer, 1, EPOCHS)}

model = torch.nn.Sequential(OrderedDict(b=torch.nn.Linear(4, 4), a=torch.nn.Linear(4, 4), c=torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(groups(model, "in order"), lr=0.001, momentum=0.9)
train(model, optimizer, 0, 1)
torch.save({"MODEL_STATE": model.state_dict(), "OPTIMIZER_STATE": optimizer.state_dict(), "EPOCHS_RUN": 1}, os.path.join(folder, "two_orders.pt"))

with open(os.path.join(folder, "snapshots.json"), "w") as f:
    json.dump({"x": x.tolist(), "y": y.tolist(), "sgd": sgd, "adamw": adamw, "weights": weights, "states": states}, f)
