#!/usr/bin/python3
"""Measures the figures of docs/performance.md: ddptrain and PyTorch on this machine, in interleaved rounds, as ratios of medians.

    bench/run.py [--rounds N] [--binary build/release/bin/ddptrain] [--python PATH] [--without-debian]

PyTorch is Debian's python3-torch (apt-get install python3-torch python3-sklearn libopenblas0-openmp) and, with --python, the one of that
interpreter, eager or compiled, whichever is faster, both at their best (bench/peers.py). The whole program is eager: compiling takes
longer than it."""
import argparse, os, platform, shutil, statistics, subprocess, sys, tempfile, time

import peers

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTORCH = os.path.join(SOURCE, "bench", "pytorch", "wine.py")
CONFIG = os.path.join(SOURCE, "configs", "wine_mlp.yaml")


def hide_gpus():
    """For figures of the CPU, also where train.device: auto would take a GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def timed(command):
    """Wall seconds."""
    start = time.perf_counter()
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=SOURCE)
    seconds = time.perf_counter() - start
    if p.returncode:
        sys.exit(f"failed: {command}\n{p.stdout}{p.stderr}")
    return seconds


class Bench:
    def __init__(self, options):
        self.binary, self.rounds = options.binary, options.rounds
        self.folder = tempfile.mkdtemp(prefix="ddptrain-bench-")

    def ours(self, *arguments):
        """Wall seconds and peak resident MiB of one run of the wine config."""
        run = os.path.join(self.folder, "run")
        shutil.rmtree(run, ignore_errors=True)
        start = time.perf_counter()
        p = subprocess.Popen([self.binary, CONFIG, "--run-dir", run, "--quiet", *arguments], cwd=SOURCE)
        _, code, usage = os.wait4(p.pid, 0)
        seconds = time.perf_counter() - start
        p.returncode = code
        if code:
            sys.exit(f"failed: {arguments}")
        return seconds, usage.ru_maxrss / 1024

    def loop(self, nproc):
        """Steps per second: two lengths of one run, so that start and end cancel out. Metrics are written for every step."""
        steps_per_epoch = 5 if nproc == 1 else 3
        more = 4000 if nproc == 1 else 1000
        extra = ["--nproc", str(nproc), "checkpoint.save_every=1000000", "train.evaluate_every=0"]
        short, _ = self.ours(*extra, "train.epochs=100")
        long, _ = self.ours(*extra, f"train.epochs={100 + more}")
        return more * steps_per_epoch / (long - short)


def program_seconds(peer, *arguments):
    """(wall seconds of the whole program, its JSON line)"""
    start = time.perf_counter()
    out = peer.run(PYTORCH, *arguments)
    return time.perf_counter() - start, out


def show(values):
    return f"{statistics.median(values):.4g} [{min(values):.4g} - {max(values):.4g}]"


def measure_round(b, found, rows, memory):
    for nproc in (1, 2):
        label = f"{nproc} process{'es' if nproc > 1 else ''}"
        figures = [f"whole program, 100 epochs, 2 checkpoints, {label}: seconds", f"loop with DataLoader, {label}: steps/s",
                   f"loop, rows indexed in memory, {label}: steps/s"]
        whole, loop, indexed = (rows.setdefault(figure, peers.Times(found)) for figure in figures)
        seconds, mb = b.ours("--nproc", str(nproc))
        rate = b.loop(nproc)
        whole.ours.append(seconds), loop.ours.append(rate), indexed.ours.append(rate)
        if nproc == 1:
            memory.ours.append(mb)
        for peer in found:
            seconds, out = program_seconds(peer, "--nproc", nproc)
            whole.theirs[peer, 0].append(seconds)
            loop.theirs[peer, 0].append(out["steps"] / out["loop_seconds"])
            if nproc == 1:
                memory.theirs[peer, 0].append(out["rss_mb"])
            for mode, flags in enumerate(peer.modes):
                out = peer.run(PYTORCH, "--nproc", nproc, "--indexed", "--save-every", 0, *flags)
                indexed.theirs[peer, mode].append(out["steps"] / out["loop_seconds"])


def main():
    hide_gpus()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    peers.add_options(parser)
    options = parser.parse_args()
    found = peers.find(options)
    b, rows, memory, first_step, help_ms = Bench(options), {}, peers.Times(found), [], []
    for r in range(options.rounds):
        measure_round(b, found, rows, memory)
        first_step.append(b.ours("train.epochs=null", "train.steps=1")[0])
        help_ms.append(timed([b.binary, "--help"]))
        print(f"round {r + 1} of {options.rounds}", file=sys.stderr)
    rows["peak resident memory, 1 process: MiB"] = memory
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    print(f"{model}, {os.cpu_count()} cores; medians of {options.rounds} interleaved rounds [min - max]\n")
    print("| wine | ddptrain |" + "".join(f" {peer.name} | ratio |" for peer in found) + "\n|---|---|" + "---|---|" * len(found))
    for figure, times in rows.items():
        is_rate, cells = "steps/s" in figure, ""
        for peer in found:
            theirs, mode = times.best(peer, is_rate)
            ratio = statistics.median(theirs) / statistics.median(times.ours)
            cells += f" {show(theirs)}{mode} | {1 / ratio if is_rate else ratio:.1f}x |"
        print(f"| {figure} | {show(times.ours)} |{cells}")
    print(f"| start, first step, checkpoint, exit: ms | {show([1000 * s for s in first_step])} |" + " | |" * len(found))
    print(f"| `ddptrain --help`: ms | {show([1000 * s for s in help_ms])} |" + " | |" * len(found))
    shutil.rmtree(b.folder)


if __name__ == "__main__":
    main()
