"""The wine tutorial in PyTorch, written for speed: the same model, data, split, scaler, order of rows and checkpoints as
configs/wine_mlp.yaml. Prints one JSON line. --indexed replaces the DataLoader by indexing tensors in memory, which is faster."""
import time

START = time.perf_counter()
import argparse, json, os, resource, socket, tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def load():
    from sklearn.datasets import load_wine
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler
    x, y = load_wine(return_X_y=True)
    a, b, c, d = train_test_split(x, y, test_size=0.2, random_state=42)
    scaler = StandardScaler().fit(a)
    rows = lambda v: torch.tensor(scaler.transform(v), dtype=torch.float32)
    return rows(a), torch.tensor(c), rows(b), torch.tensor(d)


def batches(options, x, y, rank, world):
    """A function of the epoch that yields its batches."""
    if options.indexed:
        def indexed(epoch):
            g = torch.Generator()
            g.manual_seed(42 + epoch)
            order = torch.randperm(len(y), generator=g)
            order = torch.cat([order, order[:-len(order) % world]])[rank::world]
            for index in order.split(32):
                yield x[index], y[index]
        return indexed
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=42)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    def loaded(epoch):
        sampler.set_epoch(epoch)
        return loader
    return loaded


def train(rank, world, options, folder):
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(42)
    x, y, xt, yt = load()
    module = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 3))
    model = nn.parallel.DistributedDataParallel(module) if world > 1 else module
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_function, epochs, steps = nn.CrossEntropyLoss(), batches(options, x, y, rank, world), 0
    if options.compile:
        model = torch.compile(model)
        for rows in (32, len(y) // world % 32 or 32):  # compiled before the loop is timed
            loss_function(model(x[:rows]), y[:rows]).backward()
    begin = time.perf_counter()
    for epoch in range(options.epochs):
        for xb, yb in epochs(epoch):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_function(model(xb), yb)
            loss.backward()
            optimizer.step()
            steps += 1
        if rank == 0 and options.save_every and (epoch + 1) % options.save_every == 0:
            torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
                       os.path.join(folder, f"epoch-{epoch + 1}.pt"))
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        accuracy = (module(xt).argmax(1) == yt).float().mean().item()
    if rank == 0:
        print(json.dumps({"loop_seconds": seconds, "steps": steps, "accuracy": accuracy, "loss": loss.item(),
                          "ready_seconds": begin - START, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


def spawned(rank, world, options, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    train(rank, world, options, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--nproc", type=int, default=1)
    parser.add_argument("--indexed", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.nproc == 1:
            train(0, 1, options, folder)
        else:
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                port = s.getsockname()[1]
            torch.multiprocessing.spawn(spawned, (options.nproc, options, folder, port), nprocs=options.nproc)
