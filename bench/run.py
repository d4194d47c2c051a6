#!/usr/bin/python3
"""Measures the figures of docs/performance.md: ddptrain and PyTorch on this machine, in interleaved rounds, as ratios of medians.

    bench/run.py [--rounds N] [--binary build/release/bin/ddptrain]

PyTorch is Debian's python3-torch (apt-get install python3-torch python3-sklearn), at its best: settings that hold OpenBLAS back are
removed, it may use AVX-512, and freed memory stays mapped."""
import argparse, json, os, platform, shutil, statistics, subprocess, sys, tempfile, time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTORCH = os.path.join(SOURCE, "bench", "pytorch", "wine.py")
CONFIG = os.path.join(SOURCE, "configs", "wine_mlp.yaml")


def hide_gpus():
    """For figures of the CPU, also where train.device: auto would take a GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def strong_environment():
    e = dict(os.environ, OPENBLAS_CORETYPE="SkylakeX", ATEN_CPU_CAPABILITY="avx512", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1",
             MALLOC_MMAP_THRESHOLD_="4294967296", MALLOC_TRIM_THRESHOLD_="17179869184", MALLOC_TOP_PAD_="268435456")
    e.pop("OPENBLAS_L2_SIZE", None)
    if "avx512f" not in open("/proc/cpuinfo").read():
        e.pop("OPENBLAS_CORETYPE")
        e["ATEN_CPU_CAPABILITY"] = "avx2"
    return e


def timed(command, env=None):
    """(wall seconds, peak MiB of the process itself, stdout)"""
    start = time.perf_counter()
    p = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=SOURCE)
    out, err = p.communicate()
    seconds = time.perf_counter() - start
    if p.returncode:
        sys.exit(f"failed: {command}\n{out}{err}")
    return seconds, out


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

    def theirs(self, *arguments):
        seconds, out = timed(["/usr/bin/python3", PYTORCH, *arguments], strong_environment())
        return seconds, json.loads([line for line in out.splitlines() if line.startswith("{")][-1])


def main():
    hide_gpus()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    options = parser.parse_args()
    b, rows = Bench(options), {}

    def note(name, ours, theirs):
        rows.setdefault(name, ([], []))
        rows[name][0].append(ours)
        rows[name][1].append(theirs)

    memory, first_step, help_ms = [], [], []
    for r in range(options.rounds):
        for nproc in (1, 2):
            label = f"{nproc} process{'es' if nproc > 1 else ''}"
            seconds, mb = b.ours("--nproc", str(nproc))
            wall, peer = b.theirs("--nproc", str(nproc))
            note(f"whole program, 100 epochs, 2 checkpoints, {label}: seconds", seconds, wall)
            if nproc == 1:
                memory.append((mb, peer["rss_mb"]))
            _, indexed = b.theirs("--nproc", str(nproc), "--indexed", "--save-every", "0")
            rate = b.loop(nproc)
            note(f"loop with DataLoader, {label}: steps/s", rate, peer["steps"] / peer["loop_seconds"])
            note(f"loop, rows indexed in memory, {label}: steps/s", rate, indexed["steps"] / indexed["loop_seconds"])
        first_step.append(b.ours("train.epochs=null", "train.steps=1")[0])
        help_ms.append(timed([b.binary, "--help"])[0])
        print(f"round {r + 1} of {options.rounds}", file=sys.stderr)
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    print(f"{model}, {os.cpu_count()} cores; medians of {options.rounds} interleaved rounds [min - max]\n")
    print("| wine | ddptrain | PyTorch | ratio |\n|---|---|---|---|")
    show = lambda v: f"{statistics.median(v):.4g} [{min(v):.4g} - {max(v):.4g}]"
    for name, (ours, theirs) in rows.items():
        a, c = statistics.median(ours), statistics.median(theirs)
        print(f"| {name} | {show(ours)} | {show(theirs)} | {(c / a if 'seconds' in name else a / c):.1f}x |")
    print(f"| peak resident memory, 1 process: MiB | {show([m for m, _ in memory])} | {show([m for _, m in memory])} | "
          f"{statistics.median([p / m for m, p in memory]):.1f}x |")
    print(f"| start, first step, checkpoint, exit: ms | {show([1000 * s for s in first_step])} | | |")
    print(f"| `ddptrain --help`: ms | {show([1000 * s for s in help_ms])} | | |")
    shutil.rmtree(b.folder)


if __name__ == "__main__":
    main()
