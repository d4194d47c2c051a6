"""Writes optim_torch2.json: updates of torch.optim's NAdam, RAdam, Adamax, Adadelta, Rprop and ASGD,
and of Adafactor and Muon, whose parameters have a shape. Square roots are
rounded correctly, as builds of PyTorch without MKL round them (docs/determinism.md). Cases that the file has already are kept; --all
writes all anew, and `torch`, the version that wrote most of them."""
import json, os, struct, sys

import torch

STEPS, COUNT = 12, 33
CASES = [
    ("NAdam", {}, "{type: nadam}"),
    ("NAdam", dict(lr=0.01, betas=(0.8, 0.99), weight_decay=0.1, momentum_decay=0.02), "{type: nadam, lr: 0.01, betas: [0.8, 0.99], weight_decay: 0.1, momentum_decay: 0.02}"),
    ("NAdam", dict(weight_decay=0.1, decoupled_weight_decay=True), "{type: nadam, weight_decay: 0.1, decoupled_weight_decay: true}"),
    ("RAdam", {}, "{type: radam}"),
    ("RAdam", dict(lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1), "{type: radam, lr: 0.01, betas: [0.8, 0.9], eps: 1.0e-6, weight_decay: 0.1}"),
    ("RAdam", dict(weight_decay=0.1, decoupled_weight_decay=True), "{type: radam, weight_decay: 0.1, decoupled_weight_decay: true}"),
    ("Adamax", {}, "{type: adamax}"),
    ("Adamax", dict(lr=0.01, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1), "{type: adamax, lr: 0.01, betas: [0.8, 0.9], eps: 1.0e-3, weight_decay: 0.1}"),
    ("Adadelta", {}, "{type: adadelta}"),
    ("Adadelta", dict(lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1), "{type: adadelta, lr: 0.5, rho: 0.8, eps: 1.0e-4, weight_decay: 0.1}"),
    ("Rprop", {}, "{type: rprop}"),
    ("Rprop", dict(lr=0.2, etas=(0.3, 1.5), step_sizes=(0.1, 0.4)), "{type: rprop, lr: 0.2, etas: [0.3, 1.5], step_sizes: [0.1, 0.4]}"),
    ("ASGD", {}, "{type: asgd}"),
    ("ASGD", dict(lr=0.1, lambd=0.1, alpha=0.5, t0=4, weight_decay=0.1), "{type: asgd, lr: 0.1, lambd: 0.1, alpha: 0.5, t0: 4, weight_decay: 0.1}"),
    ("Adafactor", {}, "{type: adafactor}", (33,)),
    ("Adafactor", dict(lr=0.05), "{type: adafactor, lr: 0.05}", (5, 7)),
    ("Adafactor", dict(lr=0.05, beta2_decay=-0.5, eps=(1e-3, 0.1), d=2.0, weight_decay=0.1), "{type: adafactor, lr: 0.05, beta2_decay: -0.5, eps1: 0.001, eps2: 0.1, d: 2, weight_decay: 0.1}", (2, 3, 4, 5)),
    ("Muon", dict(lr=0.02), "{type: muon, lr: 0.02}", (5, 7)),
    ("Muon", dict(lr=0.02, weight_decay=0, momentum=0.3, nesterov=False, adjust_lr_fn="match_rms_adamw"), "{type: muon, lr: 0.02, weight_decay: 0, momentum: 0.3, nesterov: false, adjust_lr: match_rms_adamw}", (6, 6)),
    ("Muon", dict(lr=0.02, ns_coefficients=(2, -1.5, 0.5), ns_steps=3, eps=1e-3), "{type: muon, lr: 0.02, ns_coefficients: [2, -1.5, 0.5], ns_steps: 3, eps: 0.001}", (9, 4)),
]

# The root of a double, rounded to float, is the correctly rounded root of the float.
root, in_place = torch.Tensor.sqrt, torch.Tensor.sqrt_
torch.Tensor.sqrt = lambda self: root(self.double()).float()
torch.Tensor.sqrt_ = lambda self: self.copy_(root(self.double()))


def bits(tensor):
    return [struct.pack(">f", x).hex() for x in tensor.flatten().tolist()]


path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optim_torch2.json")
recorded = {"torch": torch.__version__, "cases": []}
if "--all" not in sys.argv[1:]:
    with open(path) as f:
        recorded = json.load(f)
known = {case["config"]: case for case in recorded["cases"]}
cases = []
for seed, (kind, arguments, config, *shape) in enumerate(CASES):
    if config in known:
        cases.append(known[config])
        continue
    generator = torch.Generator().manual_seed(seed)
    p = torch.nn.Parameter(torch.randn(*shape or (COUNT,), generator=generator))
    if kind != "Muon":
        arguments["foreach"] = False
    optimizer = getattr(torch.optim, kind)([p], **arguments)
    case = {"config": config} | ({"shape": shape[0]} if shape else {}) | {"p0": bits(p.data), "grads": [], "p": []}
    for _ in range(STEPS):
        p.grad = torch.randn(p.shape, generator=generator)
        case["grads"].append(bits(p.grad))
        optimizer.step()
        case["p"].append(bits(p.data))
    cases.append(case)
with open(path, "w") as f:
    json.dump({"torch": recorded["torch"], "cases": cases}, f, separators=(",", ":"))
    f.write("\n")
