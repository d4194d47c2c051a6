"""The workloads of bench/gpu.py in PyTorch, written for speed. Prints one JSON line: seconds of a step, and when the first one ended
(time.time()). `memory`: GB/s of a copy and of fused AdamW instead. --mode: eager, or a mode of torch.compile; reduce-overhead uses
CUDA graphs. --cpu runs the same code on the CPU, in float32 and eager."""
import argparse, json, time

import torch
import torch.nn.functional as F
from torch import nn

from models import GPT, resnet18

WARM_UP = 10


def gpt2(o):
    return GPT(o.layers or 12, 12, 768, o.tokens or 1024, o.vocabulary or 50304, gelu="tanh")


def wine(o):
    return nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 3))


def fused(o, kind, groups, **settings):
    """Fused where this PyTorch has it."""
    if not o.cpu:
        try:
            return kind(groups, fused=True, **settings)
        except (RuntimeError, TypeError):
            pass
    return kind(groups, **settings)


def adamw(o, model, betas):
    matrices, rest = [p for p in model.parameters() if p.dim() >= 2], [p for p in model.parameters() if p.dim() < 2]
    return fused(o, torch.optim.AdamW, [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=6e-4, betas=betas)


def tokens(o, count, batch, vocabulary):
    """Rows of a long text that lies on the GPU."""
    data = torch.randint(0, vocabulary, (1_000_000,), device=o.device)
    offsets = torch.arange(count + 1, device=o.device)

    def draw():
        rows = data[torch.randint(0, len(data) - count, (batch, 1), device=o.device) + offsets]
        return rows[:, :-1], rows[:, 1:].reshape(-1)
    return draw


def images(o, batch):
    x = torch.randn(16 * batch, 3, 32, 32, device=o.device).to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (16 * batch,), device=o.device)

    def draw():
        index = torch.randint(0, 16 * batch, (batch,), device=o.device)
        return x[index], y[index]
    return draw


def table(o):
    x, y = torch.randn(142, 13, device=o.device), torch.randint(0, 3, (142,), device=o.device)

    def draw():
        index = torch.randint(0, 142, (32,), device=o.device)
        return x[index], y[index]
    return draw


# model, optimizer, draw of a batch, largest norm of the gradient, whether products are bfloat16
MODELS = {
    "gpt2_124m": (gpt2, lambda o, m: adamw(o, m, (0.9, 0.95)), lambda o: tokens(o, o.tokens or 1024, o.batch or 64, o.vocabulary or 50257), 1.0, True),
    "char_gpt": (lambda o: GPT(o.layers or 6, 6, 384, o.tokens or 256), lambda o, m: adamw(o, m, (0.9, 0.99)),
                 lambda o: tokens(o, o.tokens or 256, o.batch or 64, 65), 1.0, True),
    "resnet18": (lambda o: resnet18().to(memory_format=torch.channels_last),
                 lambda o, m: fused(o, torch.optim.SGD, m.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4),
                 lambda o: images(o, o.batch or 256), None, True),
    "wine": (wine, lambda o, m: fused(o, torch.optim.Adam, m.parameters(), lr=1e-3), table, None, False),
}


def wait(o):
    if not o.cpu:
        torch.cuda.synchronize()


def train(o):
    build, make_optimizer, data, clip, is_half = MODELS[o.model]
    torch.manual_seed(42)
    module = build(o).to(o.device)

    def loss_of(inputs, targets):
        return F.cross_entropy(module(inputs), targets)
    if not o.cpu and o.mode != "eager":
        loss_of = torch.compile(loss_of, mode=o.mode)  # with the loss: otherwise its logits are converted and copied
    optimizer, draw = make_optimizer(o, module), data(o)

    def step():
        inputs, targets = draw()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(o.device, dtype=torch.bfloat16, enabled=is_half and not o.cpu):
            loss = loss_of(inputs, targets)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        return loss

    step()
    wait(o)
    first = time.time()
    for _ in range(min(WARM_UP, o.steps)):
        step()
    wait(o)
    start = time.perf_counter()
    for _ in range(o.steps):
        loss = step()
    wait(o)
    seconds = (time.perf_counter() - start) / o.steps
    print(json.dumps({"seconds": seconds, "first_step_at": first, "loss": loss.item()}), flush=True)


def bandwidth(o, run, bytes_moved):
    for _ in range(3):
        run()
    wait(o)
    start, times = time.perf_counter(), 20
    for _ in range(times):
        run()
    wait(o)
    return bytes_moved * times / (time.perf_counter() - start) * 1e-9


def memory(o):
    count = o.batch or 124_475_904
    w = nn.Parameter(torch.randn(count, device=o.device))
    w.grad, other = torch.randn(count, device=o.device), torch.empty(count, device=o.device)
    optimizer = fused(o, torch.optim.AdamW, [w], lr=1e-6, weight_decay=0.1)
    copy = bandwidth(o, lambda: other.copy_(w.grad), 8 * count)
    print(json.dumps({"copy": copy, "adamw": bandwidth(o, optimizer.step, 28 * count)}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=[*MODELS, "memory"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--batch", type=int, help="rows; of memory: elements")
    parser.add_argument("--mode", default="default", choices=["eager", "default", "reduce-overhead"])
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    options.device = "cpu" if options.cpu else "cuda"
    memory(options) if options.model == "memory" else train(options)
