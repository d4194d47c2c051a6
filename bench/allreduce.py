#!/usr/bin/python3
"""all_reduce by size, ddptrain's against torch.distributed's over Gloo, on this machine, in turn; medians of the rounds.

    bench/allreduce.py [--nproc 2] [--rounds 3] [--binary build/release/bin/ddptrain]

Three ways of ddptrain: shared memory with buffers of comm_alloc, as training uses it; shared memory with any buffer; Gloo."""
import argparse, json, os, statistics, subprocess, sys

from run import SOURCE, hide_gpus, strong_environment

SIZES = [1 << k for k in range(10, 27, 2)]
WAYS = {"shared memory": ("shm", "all_reduce"), "shared memory, any buffer": ("shm", "all_reduce, any memory"),
        "Gloo": ("gloo", "all_reduce")}


def output(command, env=None):
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=SOURCE)
    if done.returncode:
        sys.exit(f"failed: {command}\n{done.stdout}{done.stderr}")
    return done.stdout


def ours(options, backend):
    """{collective: {bytes: microseconds}} of `ddptrain comm`."""
    text = output([options.binary, "comm", "--nproc", str(options.nproc), "--backend", backend, "--no-progress",
                   "--sizes", ",".join(map(str, SIZES))])
    table, name = {}, None
    for line in text.splitlines():
        words = line.split()
        if ", float32" in line:
            name = line.split(", float32")[0]
        elif name and len(words) == 5 and words[1] in ("B", "KiB", "MiB"):
            size = int(words[0]) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[words[1]]
            table.setdefault(name, {})[size] = float(words[2])
    return table


def theirs(options):
    text = output(["/usr/bin/python3", os.path.join(SOURCE, "bench", "pytorch", "allreduce.py"), "--nproc", str(options.nproc),
                   "--sizes", ",".join(map(str, SIZES))], strong_environment())
    return {int(size): us for size, us in json.loads(text.splitlines()[-1]).items()}


def main():
    hide_gpus()
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    options = parser.parse_args()
    rounds = []
    for r in range(options.rounds):
        tables = {backend: ours(options, backend) for backend in ("shm", "gloo")}
        rounds.append((theirs(options), {way: tables[backend][name] for way, (backend, name) in WAYS.items()}))
        print(f"round {r + 1} of {options.rounds}", file=sys.stderr)
    print(f"all_reduce, float32, {options.nproc} processes, microseconds (times as fast as torch)\n")
    print("| bytes | torch, Gloo | " + " | ".join(WAYS) + " |\n" + "|---" * (len(WAYS) + 2) + "|")
    for size in SIZES:
        peer = statistics.median(t[size] for t, _ in rounds)
        cells = [statistics.median(o[way][size] for _, o in rounds) for way in WAYS]
        print(f"| {size} | {peer:.1f} | " + " | ".join(f"{us:.4g} ({peer / us:.1f}x)" for us in cells) + " |")


if __name__ == "__main__":
    main()
