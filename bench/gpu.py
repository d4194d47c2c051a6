#!/usr/bin/env python3
"""Measures the figures of docs/gpu.md on a machine with a GPU: ddptrain and PyTorch in interleaved rounds, medians, as a table.

    bench/gpu.py [--only gpt2_124m,wine] [--rounds N] [--python python3] [--mode MODE] [--set KEY=VALUE] [--ours]
    bench/gpu.py --smoke-test           the same with tiny sizes on the CPU, to check that everything works

Without a GPU that ddptrain can use it says so and ends with 77; without a PyTorch that sees the GPU it takes ddptrain's figures alone.
Needs a build with tests in build/release. PyTorch is at its best
(bench/pytorch/gpu.py): flash attention, fused optimizers, channels-last images, data on the GPU, no wait within the timed steps, and
the fastest of eager, torch.compile and torch.compile with CUDA graphs (reduce-overhead), which the first round determines. Of
ddptrain's steps the median counts, each with its batch from the host, its loss and its line of metrics.jsonl."""
import argparse, array, json, os, random, shutil, statistics, subprocess, sys, tempfile, time
from dataclasses import dataclass, field

from models import gpt, images, layers_of, show
from run import SOURCE

MODES = ["default", "reduce-overhead", "eager"]  # of PyTorch
PYTORCH = os.path.join(SOURCE, "bench", "pytorch", "gpu.py")
SKIPPED = 77
SETTINGS = ["checkpoint.save_every={steps: 1000000}", "train.log_every=1", "train.evaluate_every=0"]


@dataclass
class Workload:
    title: str
    unit: str
    rows: int            # of a batch
    per_row: int         # tokens, or 1
    steps: int           # of a run
    config: str          # a file of configs/, or text
    settings: list = field(default_factory=list)
    peer: list = field(default_factory=list)  # arguments of bench/pytorch/gpu.py


def layer(path):
    return "model.layers." + path


def workloads(is_small):
    gpt2 = ["dataset.path=FOLDER/tokens.bin", "dataset.validation=FOLDER/few.bin", "train.accumulate=1"]
    small = ["dataset.tokens.block_size=16", "dataset.tokens.vocabulary=512", layer("4.linear.out=512"), layer("2.repeat.times=1")]
    characters = gpt(*((1, 2, 16, 8, 4) if is_small else (6, 6, 384, 256, 64)))
    resnet = images([3, 32, 32], 64 if is_small else 4096) + "sampler: {batch_size: BATCH}\n" + layers_of("cifar_resnet18.yaml") + """
loss: cross_entropy
optimizer: {type: sgd, lr: 0.05, momentum: 0.9, weight_decay: 5.0e-4}
train: {steps: STEPS}
"""
    batch, tokens = (2, 16) if is_small else (64, 1024)
    rows = 8 if is_small else 256
    return {
        "gpt2_124m": Workload(f"GPT-2 124M (`configs/gpt2_124m.yaml`), bfloat16, {batch} x {tokens}", "tokens/s", batch, tokens, 4 if is_small else 30, "gpt2_124m.yaml",
                              gpt2 + (small if is_small else []) + [f"sampler.batch_size={batch}", "train.steps=STEPS"],
                              ["--layers", "1", "--tokens", "16", "--vocabulary", "512", "--batch", "2"] if is_small else []),
        "char_gpt": Workload("character GPT 6 x 384, bfloat16, 64 x 256", "tokens/s", 4 if is_small else 64, 8 if is_small else 256, 4 if is_small else 200,
                             characters, [], ["--layers", "1", "--tokens", "8", "--batch", "4"] if is_small else []),
        "resnet18": Workload("CIFAR ResNet-18, bfloat16, batch 256", "images/s", rows, 1, 3 if is_small else 100, resnet.replace("BATCH", str(rows)), [],
                             ["--batch", str(rows)]),
        "wine": Workload("wine MLP, float32, batch 32", "steps/s", 1, 1, 20 if is_small else 2000, "wine_mlp.yaml",
                         ["train.epochs=null", "train.steps=STEPS", "train.precision=float32"]),
    }


def steady(seconds):
    """The median without the first steps, in which products are planned and the step becomes a graph."""
    return statistics.median(seconds[min(10, len(seconds) // 3):])


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="ddptrain-bench-")
        self.device = None
        self.modes = {}  # the fastest one of PyTorch, by workload
        self.first_steps = {}  # the shortest time of PyTorch to its first step in any mode, by workload
        draw, letters = random.Random(1), [chr(c) for c in range(33, 33 + 65)]
        with open(os.path.join(self.folder, "text.txt"), "w") as f:
            f.write("".join(letters) + "".join(draw.choices(letters, k=1_000_000 - 65)))
        for name, count in ("tokens.bin", 20_000 if options.smoke_test else 4_000_000), ("few.bin", 2050):
            with open(os.path.join(self.folder, name), "wb") as f:
                array.array("H", (draw.randrange(512 if options.smoke_test else 50257) for _ in range(count))).tofile(f)

    def close(self):
        shutil.rmtree(self.folder)

    def place(self, workload, text):
        return text.replace("STEPS", str(workload.steps)).replace("FOLDER", self.folder)

    def ours(self, workload):
        """(seconds of a step, seconds from the start of the process to the end of the first step)"""
        run, config = os.path.join(self.folder, "run"), workload.config
        shutil.rmtree(run, ignore_errors=True)
        if config.endswith(".yaml"):
            config = os.path.join(SOURCE, "configs", config)
        else:
            with open(os.path.join(self.folder, "config.yaml"), "w") as f:
                f.write("name: bench\n" + self.place(workload, config))
            config = f.name
        where = ["train.device=cpu", "train.precision=float32"] if self.options.smoke_test else ["train.device=cuda", "train.precision=bfloat16"]
        settings = [self.place(workload, s) for s in workload.settings]
        command = [self.options.binary, config, "--run-dir", run, "--quiet", *SETTINGS, *where, *settings, *self.options.set]
        p = subprocess.run(command, cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if p.returncode:
            sys.exit(f"failed: {' '.join(command)}\n{p.stdout}")
        events = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
        seconds, start = [e["seconds"] for e in events if e["event"] == "step"], events[0]
        self.device = start["device"]
        return steady(seconds), start["startup_seconds"] + seconds[0]

    def python(self, *arguments):
        start = time.time()
        p = subprocess.run([self.options.python, PYTORCH, *arguments, *(["--cpu"] if self.options.smoke_test else [])], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
        if p.returncode:
            raise RuntimeError(f"failed: {PYTORCH} {' '.join(arguments)}\n{p.stdout}{p.stderr}")
        return start, json.loads([line for line in p.stdout.splitlines() if line.startswith("{")][-1])

    def theirs(self, name, workload):
        """(seconds of a step of the fastest mode, the shortest time to a first step in any mode so far)"""
        results, failure = {}, None
        for mode in [self.modes[name]] if name in self.modes else self.options.mode:
            try:
                start, out = self.python(name, "--steps", str(workload.steps), "--mode", mode, *workload.peer)
            except RuntimeError as e:
                failure = e
                print(e, file=sys.stderr)
                continue
            results[mode] = out["seconds"], out["first_step_at"] - start
            print(f"{name}, PyTorch {mode}: {1e3 * out['seconds']:.3f} ms", file=sys.stderr)
        if not results:
            raise failure
        self.modes[name] = min(results, key=results.get)
        self.first_steps[name] = min([start for _, start in results.values()] + [self.first_steps.get(name, float("inf"))])
        return results[self.modes[name]][0], self.first_steps[name]

    def memory(self):
        """(GB/s of a copy, of AdamW), ours."""
        program = os.path.join(os.path.dirname(self.options.binary), "gpu_memory")
        if not os.path.exists(program):
            return None
        p = subprocess.run([program, *(["cpu", "1000000"] if self.options.smoke_test else [])], stdout=subprocess.PIPE, text=True)
        if p.returncode:
            sys.exit(f"failed: {program}")
        out = json.loads(p.stdout)
        return out["copy"], out["adamw"]


def skip(options):
    """The reason why nothing can be measured, or None."""
    if not os.path.exists(options.binary):
        return f"{options.binary} is not there: cmake --preset release && cmake --build --preset release"
    if options.smoke_test:
        return None
    p = subprocess.run([options.binary, "check", os.path.join(SOURCE, "configs", "wine_mlp.yaml"), "train.device=cuda"], cwd=SOURCE,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return p.stdout.strip() if p.returncode else None


def why_no_torch(options):
    """The reason why PyTorch is not measured, or None."""
    if options.ours:
        return "--ours"
    probe = "import torch; print(torch.__version__, torch.cuda.is_available())"
    p = subprocess.run([options.python, "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        return f"{options.python} has no torch"
    return None if options.smoke_test or p.stdout.split()[1] == "True" else f"the torch of {options.python} sees no GPU"


def version(options):
    probe = "import torch; print('PyTorch', torch.__version__, 'CUDA', torch.version.cuda)"
    return subprocess.run([options.python, "-c", probe], stdout=subprocess.PIPE, text=True).stdout.strip()


def row(title, ours, theirs, is_rate=True):
    ratio = ""
    if ours and theirs:
        a, b = statistics.median(ours), statistics.median(theirs)
        ratio = f"{a / b if is_rate else b / a:.2f}x"
    print(f"| {title} | {show(ours) if ours else ''} | {show(theirs) if theirs else ''} | {ratio} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", help="names of workloads, or memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default="python3", help="one that has torch")
    parser.add_argument("--ours", action="store_true", help="leave PyTorch out")
    parser.add_argument("--mode", action="append", choices=MODES, help="of PyTorch, again for another one (default: all; the fastest counts)")
    parser.add_argument("--set", action="append", default=[], help="a key of the config for ddptrain")
    parser.add_argument("--smoke-test", "--rehearse", action="store_true", dest="smoke_test")
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    options = parser.parse_args()
    options.mode = ["eager"] if options.smoke_test else options.mode or MODES
    all_of_them = workloads(options.smoke_test)
    names = options.only.split(",") if options.only else [*all_of_them, "memory"]
    if unknown := set(names) - {*all_of_them, "memory"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(all_of_them)}, memory")
    if reason := skip(options):
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    if alone := why_no_torch(options):
        print(f"without PyTorch: {alone}", file=sys.stderr)
    b = Bench(options)
    try:
        measure(options, b, all_of_them, names, alone)
    except RuntimeError as e:
        sys.exit(str(e))
    finally:
        b.close()


def measure(options, b, all_of_them, names, alone):
    rates, starts, memory = {}, ([], []), ([], [])
    for r in range(options.rounds):
        for name in names:
            if name == "memory":
                if found := b.memory():
                    memory[0].append(found)
                if not alone:
                    out = b.python("memory", *(["--batch", "1000000"] if options.smoke_test else []))[1]
                    memory[1].append((out["copy"], out["adamw"]))
                continue
            workload = all_of_them[name]
            results = [b.ours(workload), *([] if alone else [b.theirs(name, workload)])]
            for i, (seconds, start) in enumerate(results):
                rates.setdefault(name, ([], []))[i].append(workload.rows * workload.per_row / seconds)
                if name == "gpt2_124m":
                    starts[i].append(start)
        print(f"round {r + 1} of {options.rounds}", file=sys.stderr)
    if b.modes:
        print(f"PyTorch's modes: {', '.join(f'{name} {mode}' for name, mode in b.modes.items())}", file=sys.stderr)
    print(f"{b.device or ''}; {'PyTorch left out' if alone else version(options)}; medians of {options.rounds} interleaved rounds [min - max]\n")
    print("| | ddptrain | PyTorch | ratio |\n|---|---|---|---|")
    for name, (ours, theirs) in rates.items():
        row(f"{all_of_them[name].title}: {all_of_them[name].unit}", ours, theirs)
    if starts[0]:
        row("GPT-2 124M, start of the program to the end of the first step: seconds", *starts, is_rate=False)
    if memory[0] or memory[1]:
        best = max(statistics.median(c for c, _ in side) for side in memory if side)
        row("copy of 124M floats: GB/s", *([c for c, _ in side] for side in memory))
        row("AdamW of 124M parameters: % of the best copy's bandwidth", *([100 * a / best for _, a in side] for side in memory))


if __name__ == "__main__":
    main()
