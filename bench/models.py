#!/usr/bin/python3
"""Times training steps of larger models, ddptrain and PyTorch on this machine in interleaved rounds, and prints tables of medians for
docs/performance.md:

    bench/models.py [--only cnn,resnet18] [--rounds N] [--threads 1,2] [--nproc 1,2] [--bfloat16] [--high] [--ours]
                    [--isa avx2] [--set KEY=VALUE] [--python PATH] [--without-debian]

--threads: one process with that many threads; --nproc: processes of one thread each (1 adds nothing to --threads). A round runs both
programs for a few seconds; of a run's steps the median without the first ones counts, of the rounds the median again. Data are made up
(noise with labels, random text), lie in memory, and are the same for both in size and kind. PyTorch is Debian's and, with --python, the
one of that interpreter, eager or compiled, whichever is faster, both at their best (bench/peers.py); its memory is that of an eager run
without those settings, since they keep freed memory. --bfloat16: train.precision against PyTorch's autocast. --high: train.float32_matmul_precision
against PyTorch's. --isa avx2: both programs and their libraries without AVX-512. --ours leaves PyTorch out."""
import argparse, json, math, os, platform, random, shutil, statistics, subprocess, sys, tempfile
from dataclasses import dataclass

import numpy
import peers
from run import SOURCE, hide_gpus, show

PYTORCH = os.path.join(SOURCE, "bench", "pytorch", "models.py")
VOCABULARY = 65


@dataclass
class Workload:
    title: str
    config: str
    gflop: float        # of a step: 2 x multiply-adds, x 3 for training, without the gradient of the inputs
    steps: int          # in a run
    text_tokens: int = 0


def layers_of(path):
    """The model of a config that comes with ddptrain, as text."""
    lines = open(os.path.join(SOURCE, "configs", path)).read().split("\n")
    first = lines.index(next(l for l in lines if l.startswith("model:")))
    last = next(i for i in range(first + 1, len(lines)) if lines[i] and not lines[i].startswith((" ", "#")))
    return "\n".join(lines[first:last]) + "\n"


def images(shape, rows):
    return f"dataset: {{format: synthetic, synthetic: {{kind: classes, rows: {rows}, classes: 10, inputs: {shape}}}}}\n"


def gpt(layers, heads, width, tokens, batch):
    return f"""dataset: {{path: FOLDER/text.txt, text: {{block_size: {tokens}}}}}
sampler: {{batch_size: {batch}}}
model:
  init: [gpt2]
  layers:
    - embedding: {{embedding_dim: {width}, name: wte}}
    - positional_embedding: {{name: wpe}}
    - repeat:
        times: {layers}
        name: h
        layers:
          - residual: [layer_norm, {{linear: {3 * width}}}, {{scaled_dot_product_attention: {{heads: {heads}, causal: true}}}}, {{linear: {{out: {width}, name: c_proj}}}}]
          - residual: [layer_norm, {{linear: {4 * width}}}, gelu, {{linear: {{out: {width}, name: c_proj}}}}]
    - layer_norm: {{name: ln_f}}
    - linear: {{out: {VOCABULARY}, bias: false, tie: wte.weight}}
loss: cross_entropy
optimizer: {{type: adamw, lr: 1.0e-3, betas: [0.9, 0.99], weight_decay: 0.1, decay: matrices}}
train: {{steps: STEPS, clip_grad_norm: 1.0}}
"""


def gpt_gflop(layers, width, tokens, batch):
    return batch * tokens * (6 * (layers * 12 * width**2 + VOCABULARY * width) + 12 * layers * tokens * width) * 1e-9


ADAMW = "optimizer: {type: adamw, lr: 1.0e-3, betas: [0.9, 0.99], weight_decay: 0.1, decay: matrices}\n"
UNET = "dataset: {path: FOLDER/pixels.npz}\nsampler: {batch_size: 8}\n" + layers_of("unet.yaml") + ADAMW + """
loss: cross_entropy
train: {steps: STEPS}
"""
DENSENET = images([3, 32, 32], 512) + "sampler: {batch_size: 64}\n" + layers_of("cifar_densenet.yaml") + """
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 1.0e-4}
train: {steps: STEPS}
"""
VIT = images([3, 32, 32], 512) + "sampler: {batch_size: 32}\n" + layers_of("vit_tiny.yaml") + ADAMW + """
loss: cross_entropy
train: {steps: STEPS, clip_grad_norm: 1.0}
"""
LLAMA = ("dataset: {path: FOLDER/text.txt, text: {block_size: 128}}\nsampler: {batch_size: 8}\n" +
         layers_of("llama_15m.yaml").replace("out: 59", f"out: {VOCABULARY}") + ADAMW + """
loss: cross_entropy
train: {steps: STEPS, clip_grad_norm: 1.0}
""")
CNN = images([1, 28, 28], 4096) + "sampler: {batch_size: 64}\n" + layers_of("mnist_cnn.yaml") + """
loss: cross_entropy
optimizer: {type: sgd, lr: 0.01, momentum: 0.9}
train: {steps: STEPS}
"""
RESNET = images([3, 32, 32], 512) + "sampler: {batch_size: 32}\n" + layers_of("cifar_resnet18.yaml") + """
loss: cross_entropy
optimizer: {type: sgd, lr: 0.05, momentum: 0.9, weight_decay: 5.0e-4}
train: {steps: STEPS}
"""
MLP = """dataset: {format: synthetic, synthetic: {kind: uniform, rows: 1024, inputs: [1024], targets: 1024}}
sampler: {batch_size: 256}
model: {layers: [{linear: 4096}, relu, {linear: 4096}, relu, {linear: 1024}]}
loss: mse
optimizer: {type: sgd, lr: 0.01, momentum: 0.9, in_backward: true}
train: {steps: STEPS}
"""


def recurrent(kind, gates):
    config = f"""dataset: {{format: synthetic, synthetic: {{kind: uniform, rows: 1024, inputs: [64, 256], targets: 16}}}}
sampler: {{batch_size: 32}}
model: {{layers: [{{{kind}: {{hidden_size: 256, num_layers: 2, output: last}}}}, {{linear: 16}}]}}
loss: mse
optimizer: {{type: sgd, lr: 0.01, momentum: 0.9}}
train: {{steps: STEPS}}
"""
    return Workload(f"{kind.upper()} 2 x 256, 64 steps, batch 32", config, 32 * 64 * 2e-9 * gates * 256 * (3 * 4 * 256 - 256), 15)


def densenet_multiply_adds():
    """Of a row in training."""
    total, width = 2 / 3 * 1024 * 27 * 24, 24
    for pixels, outputs in (1024, 60), (256, 78), (64, 0):
        total += pixels * sum((width + 12 * i) * 48 + 9 * 48 * 12 for i in range(8)) + pixels * (width + 96) * outputs
        width = outputs
    return 3 * total


WORKLOADS = {
    "lstm": recurrent("lstm", 4),
    "gru": recurrent("gru", 3),
    "cnn": Workload("MNIST CNN, batch 64", CNN, 64 * 2e-9 * (2 * 26 * 26 * 32 * 9 + 3 * (24 * 24 * 64 * 288 + 9216 * 128 + 1280)), 40),
    "resnet18": Workload("CIFAR ResNet-18, batch 32", RESNET, 32 * 6e-9 * 555.4e6, 6),
    "gpt_baby": Workload("baby GPT 4 x 128, block 64, batch 12", gpt(4, 4, 128, 64, 12), gpt_gflop(4, 128, 64, 12), 60, 64),
    "gpt_medium": Workload("medium GPT 6 x 384, block 256, batch 8", gpt(6, 6, 384, 256, 8), gpt_gflop(6, 384, 256, 8), 5, 256),
    "unet": Workload("U-Net, 3 x 128 x 128, batch 8", UNET, 8 * 2e-9 * (3 * 128**2 * (2304 + 4608 + 64) + 3 * 64**2 * (4608 + 9216 + 18432 + 2048)
                     + 3 * 32**2 * (18432 + 36864 + 8192) + 2 * 128**2 * 432), 8),
    "densenet": Workload("DenseNet 3 x 8 x 12 on CIFAR, batch 64", DENSENET, 64 * 2e-9 * densenet_multiply_adds(), 5),
    "vit": Workload("ViT 6 x 192, 65 tokens, batch 32", VIT, 32 * 65 * (6 * 6 * 12 * 192**2 + 12 * 6 * 65 * 192) * 1e-9, 10),
    "llama": Workload("Llama 9 x 384, block 128, batch 8", LLAMA,
                      8 * 128 * (6 * (9 * (640 + 384 + 3 * 1088) * 384 + VOCABULARY * 384) + 12 * 9 * 128 * 384) * 1e-9, 6),
    "wide_mlp": Workload("wide MLP 1024-4096-4096-1024, batch 256", MLP, 256 * 2e-9 * (2 * 1024 * 4096 + 3 * (4096 * 4096 + 4096 * 1024)), 10),
}

# What keeps ddptrain, oneDNN, PyTorch and MKL to an instruction set.
INSTRUCTIONS = {"avx2": {"DDPTRAIN_CPU": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
                         "MKL_ENABLE_INSTRUCTIONS": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}}


@dataclass(frozen=True)
class Setting:
    nproc: int
    threads: int

    def __str__(self):
        return f"{self.nproc} processes" if self.nproc > 1 else f"1 process, {self.threads} thread{'s' if self.threads > 1 else ''}"


def steady(milliseconds):
    """The median without the first steps, in which memory is touched and DDP finds its buckets."""
    return statistics.median(milliseconds[max(2, len(milliseconds) // 5):])


class Bench:
    def __init__(self, options):
        self.options, self.instructions = options, dict(INSTRUCTIONS.get(options.isa, {}))
        self.folder = tempfile.mkdtemp(prefix="ddptrain-bench-")
        if options.isa:  # code that torch.compile kept for another instruction set crashes
            self.instructions["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(self.folder, "inductor")
        draw, letters = random.Random(1), [chr(c) for c in range(33, 33 + VOCABULARY)]
        with open(os.path.join(self.folder, "text.txt"), "w") as f:
            f.write("".join(letters) + "".join(draw.choices(letters, k=1_000_000 - VOCABULARY)))
        noise = numpy.random.default_rng(1)
        numpy.savez(os.path.join(self.folder, "pixels.npz"), x=noise.standard_normal((64, 3, 128, 128), numpy.float32),
                    y=noise.integers(0, 4, (64, 128, 128), numpy.uint8))

    def ours(self, workload, setting):
        """(ms of a step, peak MiB of a process)"""
        run, config = os.path.join(self.folder, "run"), os.path.join(self.folder, "config.yaml")
        shutil.rmtree(run, ignore_errors=True)
        with open(config, "w") as f:
            f.write("name: bench\n" + workload.config.replace("STEPS", str(workload.steps)).replace("FOLDER", self.folder))
        command = [self.options.binary, config, "--run-dir", run, "--quiet", "--nproc", str(setting.nproc), "checkpoint.save_every=1000000",
                   *(["train.precision=bfloat16"] if self.options.bfloat16 else []),
                   *(["train.float32_matmul_precision=high"] if self.options.high else []), *self.options.set]
        p = subprocess.Popen(command, cwd=SOURCE, env=dict(os.environ, OMP_NUM_THREADS=str(setting.threads), **self.instructions))
        _, code, usage = os.wait4(p.pid, 0)
        p.returncode = code
        if code:
            sys.exit(f"failed: {command}")
        lines = map(json.loads, open(os.path.join(run, "metrics.jsonl")))
        return steady([1e3 * l["seconds"] for l in lines if l["event"] == "step"]), usage.ru_maxrss / 1024

    def theirs(self, peer, *arguments, threads, environment=None):
        environment = dict(environment or peers.strong_environment(), OMP_NUM_THREADS=str(threads)) | self.instructions
        precision = [f"--{name}" for name in ("bfloat16", "high") if getattr(self.options, name)]
        return peer.run(PYTORCH, *arguments, "--threads", threads, *precision, environment=environment)

    def theirs_steps(self, peer, flags, name, setting):
        steps = WORKLOADS[name].steps
        out = self.theirs(peer, name, "--steps", steps, "--nproc", setting.nproc, *flags, threads=setting.threads)
        if len(out["milliseconds"]) != steps or not math.isfinite(out["loss"]):
            sys.exit(f"bench: {peer.name} {' '.join(flags)} did not train {name}: loss {out['loss']} after {len(out['milliseconds'])} steps")
        return steady(out["milliseconds"])

    def theirs_memory(self, peer, name):
        plain = {k: v for k, v in peers.strong_environment().items() if not k.startswith("MALLOC_")}
        return self.theirs(peer, name, "--steps", "3", threads=1, environment=plain)["rss_mb"]


def main():
    hide_gpus()
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--nproc", default="1,2")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--high", action="store_true")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--isa", choices=INSTRUCTIONS)
    peers.add_options(parser)
    parser.add_argument("--set", action="append", default=[], help="a key of the config for ddptrain")
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    options = parser.parse_args()
    numbers = lambda text: [int(n) for n in text.split(",") if n]
    names, b = options.only.split(","), Bench(options)
    if unknown := set(names) - set(WORKLOADS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(WORKLOADS)}")
    settings = [Setting(1, t) for t in numbers(options.threads)] + [Setting(n, 1) for n in numbers(options.nproc) if n > 1]
    found, peaks, rows, memory = [] if options.ours else peers.find(options), {}, {}, {}
    for r in range(options.rounds):
        for setting in settings:
            for peer in found if setting.nproc == 1 else []:
                peaks.setdefault((peer, setting), []).append(b.theirs(peer, "--peak", threads=setting.threads)["gflops"])
            for name in names:
                times = rows.setdefault((name, setting), peers.Times(found))
                milliseconds, mb = b.ours(WORKLOADS[name], setting)
                times.ours.append(milliseconds)
                if setting == settings[0]:
                    memory.setdefault(name, []).append(mb)
                for peer in found:
                    for mode, flags in enumerate(peer.modes):
                        times.theirs[peer, mode].append(b.theirs_steps(peer, flags, name, setting))
        print(f"round {r + 1} of {options.rounds}", file=sys.stderr)
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    print(f"{model}, {os.cpu_count()} cores, {'bfloat16' if options.bfloat16 else 'float32'}{', high' if options.high else ''}{f', {options.isa}' if options.isa else ''}; medians of {options.rounds} interleaved rounds [min - max]\n")
    if peaks:
        print("float32 product of 2048: " + "; ".join(f"{peer.name}, {s} {show(v)} GFLOP/s" for (peer, s), v in peaks.items()) + "\n")
    heads, lines = [f" {peer.name}, ms a step | ratio |" for peer in found], "---|---|" * len(found)
    print("| model | | ddptrain, ms a step |" + "".join(heads) + " GFLOP/s a process |\n|---|---|---|" + lines + "---|")
    for (name, setting), times in rows.items():
        ours, cells = statistics.median(times.ours), ""
        for peer in found:
            theirs, mode = times.best(peer)
            cells += f" {show(theirs)}{mode} | {statistics.median(theirs) / ours:.2f}x |"
        print(f"| {WORKLOADS[name].title} | {setting} | {show(times.ours)} |{cells} {WORKLOADS[name].gflop / ours * 1e3:.0f} |")
    print(f"\n| peak resident memory of a process, {settings[0]}: MiB | ddptrain |" + "".join(f" {peer.name} | share |" for peer in found) +
          "\n|---|---|" + lines)
    for name, values in memory.items():
        ours, cells = statistics.median(values), ""
        for peer in found:
            theirs = b.theirs_memory(peer, name)
            cells += f" {theirs:.0f} | {100 * ours / theirs:.0f} % |"
        print(f"| {WORKLOADS[name].title} | {ours:.0f} |{cells}")
    shutil.rmtree(b.folder)


if __name__ == "__main__":
    main()
