#!/usr/bin/env python3
"""Measures sweeps (docs/performance.md), ddptrain and its peers on the same processors in interleaved rounds.

    bench/sweep.py [--rounds N] [--workers 2] [--python PYTHON] [--binary build/release/bin/ddptrain]

PYTHON has torch 2.x, optuna and scikit-learn (from PyPI); without them only ddptrain's own figures are measured."""
import argparse, concurrent.futures, json, os, shutil, statistics, subprocess, sys, tempfile, time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = os.path.join(SOURCE, "bench", "pytorch", "sweep.py")
SWEEP = """config: {source}/configs/wine_mlp.yaml
method: random
trials: 10000
parameters: {{optimizer.lr: {{distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}}}}
keep: {{runs: best 10}}
"""
MNIST = """config: {source}/configs/mnist_cnn.yaml
method: grid
parameters: {{optimizer.lr: {{values: [0.01, 0.02, 0.03, 0.04]}}}}
keep: all
"""
VMAP_MODELS = (256, 1024, 4096)


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="ddptrain-sweep-")
        for name, text in (("wine.yaml", SWEEP), ("mnist.yaml", MNIST)):
            with open(os.path.join(self.folder, name), "w") as f:
                f.write(text.format(source=SOURCE))

    def program(self, *words):
        """(wall seconds, peak MiB of the largest process)"""
        start = time.perf_counter()
        p = subprocess.Popen([self.options.binary, *map(str, words), "--quiet", "--no-progress"], cwd=self.folder)
        _, code, usage = os.wait4(p.pid, 0)
        p.returncode = code
        if code:
            sys.exit(f"failed: {words}")
        return time.perf_counter() - start, usage.ru_maxrss / 1024

    def sweep(self, name, *words):
        shutil.rmtree(os.path.join(self.folder, "sweeps"), ignore_errors=True)
        return self.program("sweep", f"{name}.yaml", "--nproc", self.options.workers, *words)

    def solo(self, rate):
        run = os.path.join(self.folder, "runs", str(rate))
        shutil.rmtree(run, ignore_errors=True)
        os.environ["OMP_NUM_THREADS"] = "1"
        self.program(os.path.join(SOURCE, "configs", "mnist_cnn.yaml"), f"optimizer.lr={rate}", "train.epochs=1", "checkpoint.best=val_loss",
                     "--run-dir", run)

    def solos(self):
        """The trials of MNIST as runs, as many at once as there are workers."""
        start = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(self.options.workers) as pool:
            list(pool.map(self.solo, (0.01, 0.02, 0.03, 0.04)))
        return time.perf_counter() - start

    def peers(self, *words):
        """The sum over as many processes as there are workers."""
        started = [subprocess.Popen([self.options.python, PEER, *map(str, words), *([str(i)] if words[0] == "optuna" else [])], stdout=subprocess.PIPE,
                                    text=True) for i in range(self.options.workers)]
        found = [json.loads(p.communicate()[0]) for p in started]
        return sum(next(iter(f.values())) for f in found)

    def has_peers(self):
        return subprocess.run([self.options.python, "-c", "import torch, torch.func, optuna, sklearn"], capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    bench, rounds = Bench(options), []
    has_peers = bench.has_peers()
    if not has_peers:
        print(f"{options.python} has no torch 2.x, optuna or scikit-learn: peers are left out", file=sys.stderr)
    models = max(VMAP_MODELS, key=lambda n: bench.peers("vmap", n)) if has_peers else 0
    for _ in range(options.rounds):
        r = {}
        r["wine"], r["memory"] = bench.sweep("wine", "train.epochs=10")
        _, r["memory_of_10"] = bench.sweep("wine", "train.epochs=10", "trials=10")
        if has_peers:
            r["vmap"] = bench.peers("vmap", models)
            r["optuna"] = bench.peers("optuna", 150)
        r["tensorboard"] = bench.sweep("wine", "train.epochs=10", "trials=1000", "--tensorboard")[0] / bench.sweep("wine", "train.epochs=10", "trials=1000")[0]
        r["mnist"], r["mnist_solo"] = bench.sweep("mnist", "train.epochs=1")[0], bench.solos()
        rounds.append(r)
    m = {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}
    print("| figure | measured |\n|---|---|")
    print(f"| 10,000 wine trials of 10 epochs, {options.workers} workers | {m['wine']:.2f} s, {10000 / m['wine']:.0f} trials/s, {500000 / m['wine'] / 1000:.0f}k model-steps/s |")
    print(f"| memory of the largest process: 10,000 trials, 10 trials | {m['memory']:.1f} MiB, {m['memory_of_10']:.1f} MiB |")
    if has_peers:
        print(f"| model-steps per second, against torch.func.vmap with {models} models a process | {500000 / m['wine'] / m['vmap']:.2f} ({m['vmap'] / 1000:.0f}k) |")
        print(f"| trials per second, against Optuna's random sampler with PyTorch in its processes | {10000 / m['wine'] / m['optuna']:.1f} ({m['optuna']:.1f}) |")
    print(f"| four MNIST trials of one epoch: the sweep over as many solo runs at once | {m['mnist'] / m['mnist_solo']:.3f} ({m['mnist']:.2f} s) |")
    print(f"| 1,000 wine trials with TensorBoard files over without | {m['tensorboard']:.3f} |")
    shutil.rmtree(bench.folder)


if __name__ == "__main__":
    main()
