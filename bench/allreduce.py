#!/usr/bin/python3
"""all_reduce by size, ddptrain's against torch.distributed's over Gloo, on this machine, in turn; medians of the rounds.

    bench/allreduce.py [--nproc 2] [--rounds 3] [--binary build/release/bin/ddptrain] [--python PATH] [--without-debian]

Three ways of ddptrain: shared memory with buffers of comm_alloc, as training uses it; shared memory with any buffer; Gloo."""
import argparse, os, statistics, subprocess, sys

import peers
from run import SOURCE, hide_gpus

SIZES = [1 << k for k in range(10, 27, 2)]
WAYS = {"shared memory": ("shm", "all_reduce"), "shared memory, any buffer": ("shm", "all_reduce, any memory"),
        "Gloo": ("gloo", "all_reduce")}


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=SOURCE)
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


def theirs(options, peer):
    out = peer.run(os.path.join(SOURCE, "bench", "pytorch", "allreduce.py"), "--nproc", options.nproc, "--sizes", ",".join(map(str, SIZES)))
    return {int(size): us for size, us in out.items()}


def main():
    hide_gpus()
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    peers.add_options(parser)
    options = parser.parse_args()
    found, rounds = peers.find(options), []
    for r in range(options.rounds):
        tables = {backend: ours(options, backend) for backend in ("shm", "gloo")}
        rounds.append(([theirs(options, peer) for peer in found], {way: tables[backend][name] for way, (backend, name) in WAYS.items()}))
        print(f"round {r + 1} of {options.rounds}", file=sys.stderr)
    print(f"all_reduce, float32, {options.nproc} processes, microseconds (times as fast as the fastest torch)\n")
    print("| bytes | " + " | ".join([f"{peer.name}, Gloo" for peer in found] + list(WAYS)) + " |\n" + "|---" * (len(WAYS) + len(found) + 1) + "|")
    for size in SIZES:
        theirs_us = [statistics.median(t[i][size] for t, _ in rounds) for i in range(len(found))]
        cells = [statistics.median(o[way][size] for _, o in rounds) for way in WAYS]
        print(f"| {size} | " + " | ".join([f"{us:.1f}" for us in theirs_us] + [f"{us:.4g} ({min(theirs_us) / us:.1f}x)" for us in cells]) + " |")


if __name__ == "__main__":
    main()
