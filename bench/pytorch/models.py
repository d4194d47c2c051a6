"""The models of bench/models.py in PyTorch, written for speed: channels-last images where that is faster, rows indexed in memory, no
DataLoader, gradients as views of DDP's buckets. Prints one JSON line: milliseconds of each step, peak memory. --peak: the machine's own
limit instead, a matrix product of 2048."""
import argparse, json, math, os, resource, socket, statistics, time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCABULARY = 65

def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


def resnet18():
    layers, inputs = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)], 64
    for outputs, stride in (64, 1), (128, 2), (256, 2), (512, 2):
        layers += [ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads, tokens, gelu="none", causal=True):
        super().__init__()
        self.gelu, self.causal = gelu, causal
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.full((tokens, tokens), float("-inf")).triu(1))

    def forward(self, x):
        rows, tokens, width = x.shape
        split = lambda t: t.view(rows, tokens, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = map(split, self.qkv(self.norm1(x)).split(width, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
            y = F.softmax(scores + self.mask if self.causal else scores, -1) @ v
        x = x + self.projection(y.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x)), approximate=self.gelu))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, tokens, vocabulary=VOCABULARY, gelu="none"):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*[TransformerBlock(width, heads, tokens, gelu) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.dim() == 2:
                nn.init.normal_(p, 0, 0.02 / (math.sqrt(2 * layers) if "projection" in name or "narrow" in name else 1))
        self.register_buffer("positions", torch.arange(tokens))

    def forward(self, tokens):
        x = self.blocks(self.wte(tokens) + self.wpe(self.positions))
        return self.head(self.norm(x)).view(-1, self.wte.num_embeddings)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers, self.head = kind(256, 256, 2, batch_first=True), nn.Linear(256, 16)

    def forward(self, x):
        state = self.layers(x)[1]
        return self.head((state[0] if isinstance(state, tuple) else state)[-1])


def convolutions(inputs, outputs, count=2):
    layers = []
    for _ in range(count):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        inputs = outputs
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """configs/unet.yaml, for pictures of three channels"""

    def __init__(self):
        super().__init__()
        self.fine, self.middle, self.coarse = convolutions(3, 16), convolutions(16, 32), convolutions(32, 64)
        self.up_middle, self.up_fine = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.join_middle, self.join_fine, self.head = convolutions(64, 32, 1), convolutions(32, 16, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        fine = self.fine(x)
        middle = self.middle(F.max_pool2d(fine, 2))
        y = self.up_middle(self.coarse(F.max_pool2d(middle, 2)))
        y = self.up_fine(self.join_middle(torch.cat([middle, y], 1)))
        return self.head(self.join_fine(torch.cat([fine, y], 1)))


class DenseLayer(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 48, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(48), nn.Conv2d(48, 12, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv1(F.relu(self.norm1(x), inplace=True))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y), inplace=True))], 1)


def densenet():
    """configs/cifar_densenet.yaml"""
    layers, width = [nn.Conv2d(3, 24, 3, padding=1, bias=False)], 24
    for outputs in 60, 78, None:
        layers += [DenseLayer(width + 12 * i) for i in range(8)]
        width += 96
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        if outputs:
            layers += [nn.Conv2d(width, outputs, 1, bias=False), nn.AvgPool2d(2)]
            width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class ViT(nn.Module):
    """configs/vit_tiny.yaml"""

    def __init__(self):
        super().__init__()
        self.patches, self.token, self.positions = nn.Conv2d(3, 192, 4, 4), nn.Parameter(torch.zeros(192)), nn.Parameter(torch.zeros(65, 192))
        self.blocks = nn.Sequential(*[TransformerBlock(192, 3, 65, causal=False) for _ in range(6)])
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), 1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class LlamaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(384, 1e-5), nn.RMSNorm(384, 1e-5)
        self.wqkv, self.wo = nn.Linear(384, 640, bias=False), nn.Linear(384, 384, bias=False)
        self.w13, self.w2 = nn.Linear(384, 2 * 1088, bias=False), nn.Linear(1088, 384, bias=False)

    def forward(self, x, cosines, sines):
        rows, tokens, width = x.shape
        heads = self.wqkv(self.norm1(x)).view(rows, tokens, 20, 32).transpose(1, 2)
        rotated, v = heads[:, :16], heads[:, 16:]
        half = torch.cat([-rotated[..., 16:], rotated[..., :16]], -1)
        rotated = rotated * cosines + half * sines
        y = F.scaled_dot_product_attention(rotated[:, :12], rotated[:, 12:], v, is_causal=True, enable_gqa=True)
        x = x + self.wo(y.transpose(1, 2).reshape(rows, tokens, width))
        gate, value = self.w13(self.norm2(x)).chunk(2, -1)
        return x + self.w2(F.silu(gate) * value)


class Llama(nn.Module):
    """configs/llama_15m.yaml"""

    def __init__(self):
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(VOCABULARY, 384), nn.ModuleList([LlamaBlock() for _ in range(9)])
        self.norm, self.output = nn.RMSNorm(384, 1e-5), nn.Linear(384, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(128.0), 10000 ** (-torch.arange(0, 32, 2) / 32)).repeat(1, 2)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        return self.output(self.norm(x)).view(-1, VOCABULARY)


def wide_mlp():
    return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024))


def fused(optimizer, parameters, **keys):
    """With one loop over memory for a step, where this PyTorch has it for CPUs: since 2.4."""
    try:
        return optimizer(parameters, fused=True, **keys)
    except (RuntimeError, TypeError):
        return optimizer(parameters, **keys)


def sgd(model, lr, weight_decay=0.0, nesterov=False):
    return fused(torch.optim.SGD, model.parameters(), lr=lr, momentum=0.9, weight_decay=weight_decay, nesterov=nesterov)


def adamw(model):
    matrices, rest = [p for p in model.parameters() if p.dim() >= 2], [p for p in model.parameters() if p.dim() < 2]
    return fused(torch.optim.AdamW, [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.99))


def images(shape, rows, batch, generator, targets=(), classes=10):
    x, y = torch.randn(rows, *shape, generator=generator), torch.randint(0, classes, (rows, *targets), generator=generator)
    x = x.to(memory_format=torch.channels_last)

    def draw():
        index = torch.randint(0, rows, (batch,), generator=generator)
        return x[index], y[index]
    return draw


def text(tokens, batch, generator):
    data, offsets = torch.randint(0, VOCABULARY, (1_000_000,), generator=generator), torch.arange(tokens + 1)

    def draw():
        rows = data[torch.randint(0, len(data) - tokens, (batch, 1), generator=generator) + offsets]
        return rows[:, :-1], rows[:, 1:].reshape(-1)
    return draw


def vectors(batch, generator, inputs=(1024,), targets=1024):
    x, y = torch.rand(1024, *inputs, generator=generator), torch.rand(1024, targets, generator=generator)

    def draw():
        index = torch.randint(0, 1024, (batch,), generator=generator)
        return x[index], y[index]
    return draw


# model, optimizer, loss, draw of a batch, largest norm of the gradient
MODELS = {
    "cnn": (cnn, lambda m: sgd(m, 0.01), F.cross_entropy, lambda g: images((1, 28, 28), 4096, 64, g), None),
    "resnet18": (resnet18, lambda m: sgd(m, 0.05, 5e-4), F.cross_entropy, lambda g: images((3, 32, 32), 512, 32, g), None),
    "gpt_baby": (lambda: GPT(4, 4, 128, 64), adamw, F.cross_entropy, lambda g: text(64, 12, g), 1.0),
    "gpt_medium": (lambda: GPT(6, 6, 384, 256), adamw, F.cross_entropy, lambda g: text(256, 8, g), 1.0),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda m: sgd(m, 0.01), F.mse_loss, lambda g: vectors(32, g, (64, 256), 16), None),
    "gru": (lambda: Recurrent(nn.GRU), lambda m: sgd(m, 0.01), F.mse_loss, lambda g: vectors(32, g, (64, 256), 16), None),
    "unet": (UNet, adamw, F.cross_entropy, lambda g: images((3, 128, 128), 64, 8, g, (128, 128), 4), None),
    "densenet": (densenet, lambda m: sgd(m, 0.1, 1e-4, True), F.cross_entropy, lambda g: images((3, 32, 32), 512, 64, g), None),
    "vit": (ViT, adamw, F.cross_entropy, lambda g: images((3, 32, 32), 512, 32, g), 1.0),
    "llama": (Llama, adamw, F.cross_entropy, lambda g: text(128, 8, g), 1.0),
    "wide_mlp": (wide_mlp, lambda m: sgd(m, 0.01), F.mse_loss, lambda g: vectors(256, g), None),
}
IMAGES = {"cnn", "resnet18", "unet", "densenet"}


def train(rank, world, options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(42)
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    build, make_optimizer, loss_function, data, clip = MODELS[options.model]
    module = build()
    if options.model in IMAGES:
        module = module.to(memory_format=torch.channels_last)
    model = nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True) if world > 1 else module
    if options.high:
        torch.set_float32_matmul_precision("high")
    if options.compile:
        model = torch.compile(model)
    optimizer, draw, seconds = make_optimizer(module), data(torch.Generator().manual_seed(rank)), []
    for _ in range(options.steps):
        start = time.perf_counter()
        inputs, targets = draw()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bfloat16):
            loss = loss_function(model(inputs), targets)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"milliseconds": [1e3 * s for s in seconds], "loss": loss.item(),
                          "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


def spawned(rank, world, options, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    train(rank, world, options)


def peak(threads):
    """GFLOP/s of the best library call there is for a float32 product."""
    torch.set_num_threads(threads)
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    seconds = []
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"gflops": 2 * 2048**3 / statistics.median(seconds[2:]) * 1e-9}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS, nargs="?")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--nproc", type=int, default=1)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--high", action="store_true")
    parser.add_argument("--peak", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    if options.peak:
        peak(options.threads)
    elif options.nproc == 1:
        train(0, 1, options)
    else:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        torch.multiprocessing.spawn(spawned, (options.nproc, options, port), nprocs=options.nproc)
