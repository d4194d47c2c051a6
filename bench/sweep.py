#!/usr/bin/env python3
"""Measures sweeps (docs/performance.md), ddptrain and its peers on the same processors in interleaved rounds.

    bench/sweep.py [--rounds N] [--workers 2] [--python PYTHON] [--binary build/release/bin/ddptrain]

PYTHON has torch 2.x, optuna, scikit-learn and, at will, jax (from PyPI); without torch or scikit-learn only ddptrain's own figures are measured.

    bench/sweep.py --many ...    only the table of many small models: model-steps per second and processor of trials of ten
                                 epochs, beside PyTorch (vmap; batched products, compiled or not) and JAX (jit(vmap(scan)))"""
import argparse, concurrent.futures, json, os, shutil, statistics, subprocess, sys, tempfile, time

import peers

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = os.path.join(SOURCE, "bench", "pytorch", "sweep.py")
MANY_PEER = os.path.join(SOURCE, "bench", "pytorch", "many.py")
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
# (shape of bench/pytorch/many.py, layers, loss, trials, models of a peer: the best of them counts)
MANY = (
    ("13-64-3", "[{linear: {out: 64}}, relu, {linear: {out: 3}}]", "cross_entropy", 2000, (64, 128, 512)),
    ("30-128-64-2+bn", "[{linear: {out: 128}}, batch_norm, relu, {linear: {out: 64}}, batch_norm, relu, {linear: {out: 2}}]", "cross_entropy", 400, (16, 64, 256)),
    ("8-256-256-1+dropout", "[{linear: {out: 256}}, relu, {dropout: 0.1}, {linear: {out: 256}}, relu, {dropout: 0.1}, {linear: {out: 1}}]", "mse", 16, (4, 16)),
)
MANY_CONFIG = """dataset: {{path: {data}, validation: {data}}}
sampler: {{batch_size: 32}}
model: {{layers: {layers}}}
loss: {loss}
optimizer: {{type: adam, lr: 0.001}}
train: {{epochs: 10}}
"""
MANY_SWEEP = """config: {config}
method: random
trials: {trials}
parameters: {{optimizer.lr: {{distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}}}}
keep: {{runs: best 10}}
"""
WAYS = ("vmap", "bmm", "compiled", "jax")


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder, self.sweeps = tempfile.mkdtemp(prefix="ddptrain-sweep-"), 0
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
        """In a new folder: after a deletion some file systems search longer for free inodes."""
        self.sweeps += 1
        return self.program("sweep", f"{name}.yaml", "--nproc", self.options.workers, *words, "--run-dir", f"sweeps/{self.sweeps}")

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

    def optuna(self, trials):
        """Trials per second: the sum over as many processes as there are workers."""
        started = [subprocess.Popen([self.options.python, PEER, str(trials), str(i)], stdout=subprocess.PIPE, text=True, env=peers.strong_environment())
                   for i in range(self.options.workers)]
        return sum(json.loads(p.communicate()[0])["trials_per_s"] for p in started)

    def has_peers(self, names="torch, torch.func, optuna, sklearn"):
        return subprocess.run([self.options.python, "-c", f"import {names}"], capture_output=True).returncode == 0

    def many_peer(self, way, shape, models, data):
        p = subprocess.run([self.options.python, MANY_PEER, way, shape, str(models), data], capture_output=True, text=True, env=peers.strong_environment())
        if p.returncode:
            sys.exit(f"bench: the peer failed: {way} {shape} {models}\n{p.stderr[-2000:]}")
        return json.loads(p.stdout.splitlines()[-1])["model_steps_per_s"]

    def many(self):
        """One process on one processor each; a peer counts with the best of its numbers of models."""
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        ways = [w for w in WAYS if self.has_peers("jax" if w == "jax" else "torch.func, sklearn")]
        head = ["model-steps/s of one processor", "ddptrain", *ways, "ratio to the best"]
        print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
        for shape, layers, loss, trials, models in MANY:
            data, config, sweep = (os.path.join(self.folder, f"{shape}.{end}") for end in ("npz", "yaml", "sweep.yaml"))
            subprocess.run([self.options.python if ways else sys.executable, MANY_PEER, "data", shape, data], check=True)
            with open(config, "w") as c, open(sweep, "w") as s:
                c.write(MANY_CONFIG.format(data=data, layers=layers, loss=loss))
                s.write(MANY_SWEEP.format(config=config, trials=trials))
            rows = {13: 142, 30: 455, 8: 1638}[int(shape.split("-")[0])]
            best = {w: max(models, key=lambda n: self.many_peer(w, shape, n, data)) for w in ways}
            ours, theirs = [], {w: [] for w in ways}
            for i in range(self.options.rounds):  # new folders, as of sweep
                ours.append(trials * 10 * -(-rows // 32) / self.program("sweep", sweep, "--nproc", 1, "--run-dir", f"sweeps/{shape}-{i}")[0])
                for w in ways:
                    theirs[w].append(self.many_peer(w, shape, best[w], data))
            m = {w: statistics.median(theirs[w]) for w in ways}
            ratio = f"{statistics.median(ours) / max(m.values()):.2f}" if ways else "-"
            cells = [shape, f"{statistics.median(ours):.0f}", *(f"{m[w]:.0f} ({best[w]} models)" for w in ways), ratio]
            print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--many", action="store_true", help="only the table of many small models")
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    bench, rounds = Bench(options), []
    if options.many:
        bench.many()
        shutil.rmtree(bench.folder)
        return
    has_peers = bench.has_peers()
    if not has_peers:
        print(f"{options.python} has no torch 2.x, optuna or scikit-learn: peers are left out", file=sys.stderr)
    for _ in range(options.rounds):
        r = {}
        r["wine"], r["memory"] = bench.sweep("wine", "train.epochs=10")
        _, r["memory_of_10"] = bench.sweep("wine", "train.epochs=10", "trials=10")
        if has_peers:
            r["optuna"] = bench.optuna(150)
        r["tensorboard"] = bench.sweep("wine", "train.epochs=10", "trials=1000", "--tensorboard")[0] / bench.sweep("wine", "train.epochs=10", "trials=1000")[0]
        r["mnist"], r["mnist_solo"] = bench.sweep("mnist", "train.epochs=1")[0], bench.solos()
        rounds.append(r)
    m = {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}
    print("| figure | measured |\n|---|---|")
    print(f"| 10,000 wine trials of 10 epochs, {options.workers} workers | {m['wine']:.2f} s, {10000 / m['wine']:.0f} trials/s, {500000 / m['wine'] / 1000:.0f}k model-steps/s |")
    print(f"| memory of the largest process: 10,000 trials, 10 trials | {m['memory']:.1f} MiB, {m['memory_of_10']:.1f} MiB |")
    if has_peers:
        print(f"| trials per second, against Optuna's random sampler with PyTorch in its processes | {10000 / m['wine'] / m['optuna']:.1f} ({m['optuna']:.1f}) |")
    print(f"| four MNIST trials of one epoch: the sweep over as many solo runs at once | {m['mnist'] / m['mnist_solo']:.3f} ({m['mnist']:.2f} s) |")
    print(f"| 1,000 wine trials with TensorBoard files over without | {m['tensorboard']:.3f} |")
    shutil.rmtree(bench.folder)


if __name__ == "__main__":
    main()
