#!/usr/bin/python3
"""all_reduce by size, ddptrain's against torch.distributed's over Gloo, on this machine, in turn; medians of the rounds.

    bench/allreduce.py [--nproc 2] [--rounds 3] [--binary build/release/bin/ddptrain] [--python PATH] [--without-debian]

Three ways of ddptrain: shared memory with buffers of comm_alloc, as training uses it; shared memory with any buffer; Gloo.

    bench/allreduce.py --mpi openmpi mpich [--nproc 8] [--hosts 4 [--rate 10gbit]] [--sizes 1K,64K,1M]

Started by these MPIs: ddptrain's over Gloo and over MPI against MPI_Allreduce; with --hosts on network namespaces (root)."""
import argparse, contextlib, os, statistics, subprocess, sys

import hosts, peers
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
    return table_of(text)


def table_of(text):
    table, name = {}, None
    for line in text.splitlines():
        words = line.split()
        if ", float32" in line:
            name = line.split(", float32")[0]
        elif name and len(words) == 5 and words[1] in ("B", "KiB", "MiB"):
            size = int(words[0]) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[words[1]]
            table.setdefault(name, {})[size] = float(words[2])
    return table


def by_mpirun(options, place, mpi, backend):
    """{collective: {bytes: microseconds}}; ends mpirun when all that is compared has been printed."""
    words, env = place.mpirun(mpi, options.nproc) if place else ([f"mpirun.{mpi}", *(["--oversubscribe", "--bind-to", "none"] if mpi == "openmpi" else []),
                                                                   "-n", str(options.nproc)], hosts.AS_ROOT)
    command = [*words, options.binary, "comm", "--backend", backend, "--no-progress", "--sizes", options.sizes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=SOURCE,
                          env={**os.environ, **env, "OMP_NUM_THREADS": "1", "DDPTRAIN_SECRET": "of the benchmark all_reduce"}) as started:
        lines = []
        for line in started.stdout:
            lines.append(line)
            if line.startswith("reduce_scatter"):
                break
        else:
            sys.exit(f"failed: {command}\n{''.join(lines)}")
        started.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(10)
        started.kill()
    return table_of("".join(lines))


def compare_with_mpi(options):
    """Rounds in turn: Gloo, and each MPI's messages and all-reduce."""
    rounds = []
    with hosts.Hosts(options.hosts, options.rate) if options.hosts else contextlib.nullcontext() as place:
        for r in range(options.rounds):
            row = {"Gloo": by_mpirun(options, place, options.mpi[0], "gloo")["all_reduce"]}
            for mpi in options.mpi:
                tables = by_mpirun(options, place, mpi, "mpi")
                row.update({f"ddptrain, {mpi}": tables["all_reduce"], f"MPI_Allreduce, {mpi}": tables["MPI_Allreduce"]})
            rounds.append(row)
            print(f"round {r + 1} of {options.rounds}", file=sys.stderr)
    at = f" on {options.hosts} namespaces{' at ' + options.rate if options.rate else ''}" if options.hosts else ""
    print(f"all_reduce, float32, {options.nproc} processes{at}, microseconds, medians of {options.rounds} rounds\n")
    print("| bytes | " + " | ".join(rounds[0]) + " |\n" + "|---" * (len(rounds[0]) + 1) + "|")
    for size in rounds[0]["Gloo"]:
        print(f"| {size} | " + " | ".join(f"{statistics.median(r[way][size] for r in rounds):.4g}" for way in rounds[0]) + " |")


def theirs(options, peer):
    out = peer.run(os.path.join(SOURCE, "bench", "pytorch", "allreduce.py"), "--nproc", options.nproc, "--sizes", ",".join(map(str, SIZES)))
    return {int(size): us for size, us in out.items()}


def main():
    hide_gpus()
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    parser.add_argument("--mpi", nargs="+", choices=("openmpi", "mpich"))
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--rate", help="of each link between the hosts, as 10gbit")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="with --mpi")
    peers.add_options(parser)
    options = parser.parse_args()
    if options.mpi:
        return compare_with_mpi(options)
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
