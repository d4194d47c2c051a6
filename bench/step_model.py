#!/usr/bin/python3
"""A model of the time of a training step on 1 to 512 hosts, and its check against steps on network namespaces.

    bench/step_model.py [--ranks 1] [--compute SHARE]                 the tables of docs/growth.md
    bench/step_model.py --check [--links 100mbit:1,1gbit] [--hosts 2,4,8] [--backends gloo,openmpi]      (root)

A step: compute; each bucket of gradients is averaged from the moment when backward has computed it, one after the other, the last one when
backward ends, beside those that are left; then the sums of the step (240 bytes). An all-reduce goes the way that src/dist/comm/collectives.c
(and comm_gloo.cc for small data) takes: all_reduce() has its rounds and bytes. It costs

    rounds x delay of the link + bytes that a host sends x (1 / rate + seconds of the processor for a byte) + messages x seconds of a message

where a round of Gloo counts twice if its receive is not posted before (its sender waits for the receiver), and a large message of MPI three
times. With several ranks on a host the data pass through shared memory before and after.

--check trains small models whose communication takes longer than their computation, on namespaces with that rate (tc's tbf) and delay
(bench/slow_links.c), and prints predicted and measured steps. The step of one host is the computation of the prediction."""
import argparse, json, math, os, shutil, statistics, subprocess, sys, tempfile, uuid
from dataclasses import dataclass, replace

import hosts
from run import SOURCE, hide_gpus

KIB, MIB = 1 << 10, 1 << 20
CONTROL_BYTES = 240  # summed in every step


@dataclass(frozen=True)
class Network:
    rate: float             # bytes/s of a host, in each direction
    delay: float            # seconds, one way
    message: float = 15e-6  # seconds of the processors for a message: system calls and a switch of threads
    byte: float = 4e-10     # seconds of the processors for a byte: copies of the kernel, the sum
    is_mpi: bool = False

    def seconds(self, rounds, sent, messages):
        return rounds * self.delay + sent * (1 / self.rate + self.byte) + messages * self.message


# ---- all-reduce: the ways of collectives.c ----

FEW = 8                          # ranks that send small data to each other in one round
QUICK, PIECE = 32 * KIB, 32 * KIB  # comm_gloo.cc
EAGER = 64 * KIB                 # larger messages of MPI wait for an answer of the receiver


def rounds_of(hosts):
    return math.ceil(math.log2(hosts))


def waits(network, size, rounds):
    """The delays of [rounds] rounds of messages of [size], whose receives are posted one round ahead."""
    if network.is_mpi:
        return rounds * (3 if size > EAGER else 1)
    return rounds + 1


def quick(network, size, n):
    """Gloo's small messages, on the thread that computes."""
    if n <= FEW:
        return network.seconds(1, (n - 1) * size, n - 1)
    return network.seconds(rounds_of(n), (n - 1) * size, rounds_of(n))


def pair(network, size):
    """All data to each other, two chunks on their way."""
    chunk = 32 * KIB if size <= 128 * KIB else 512 * KIB
    wait, chunks = waits(network, min(size, chunk), 1), math.ceil(size / chunk)
    transfer = chunk * (1 / network.rate + network.byte)
    slowed = max(0, chunks / 2 * (wait * network.delay + transfer) - chunks * transfer)  # the two chunks arrive before the next are posted
    return network.seconds(wait, size, chunks) + slowed


def small(network, size, n):
    """Everything to everyone."""
    if n <= FEW:
        return network.seconds(waits(network, size, 1), (n - 1) * size, n - 1)
    return network.seconds(waits(network, n * size / 2, rounds_of(n)), (n - 1) * size, rounds_of(n))


def in_rounds(network, size, n):
    """Slices, moved to their ranks and back in log2(n) rounds each, 4 MiB at a time."""
    total, piece = 0, 4 * MIB
    for at in range(0, size, piece):
        part, rounds = min(piece, size - at), rounds_of(n)
        total += network.seconds(2 * waits(network, part / 2, rounds), part * (rounds / 2 + 1), 2 * rounds)
    return total


def direct(network, size, n):
    """Slices, from all to all and back."""
    part = min(size / n, 256 * KIB)
    chunks = math.ceil(size / n / (256 * KIB))
    wait = 6 if network.is_mpi and part > EAGER else 2 if network.is_mpi else 3
    return network.seconds(wait, 2 * size * (n - 1) / n, 2 * (n - 1) * chunks)


def chain(network, size, n):
    """From rank to rank and around, 128 KiB at a time, two chunks on their way."""
    chunk, hop = 128 * KIB, waits(network, 128 * KIB, 1) if network.is_mpi else 1
    transfer = network.seconds(0, chunk, 1)
    step = max(2 * transfer, (hop + 1) * network.delay / 2 + transfer)
    return (2 * n - 1) * (hop * network.delay + transfer) + (math.ceil(size / chunk) - 1) * step


def all_reduce(network, size, n, is_main_lane=True):
    """Seconds for [size] bytes of each of [n] hosts."""
    if n == 1:
        return 0
    if not network.is_mpi and is_main_lane:
        capacity = max(1024, min(QUICK, 256 * KIB / (n - 1))) if n <= 8 else QUICK
        if (size if n <= 8 else n * size) <= capacity:
            return quick(network, size, n)
        if n == 2 and size <= 128 * KIB:
            return network.seconds(math.ceil(size / PIECE), size, math.ceil(size / PIECE))
    if n == 2:
        return pair(network, size)
    if n * size <= 128 * KIB or (n <= FEW and size <= 64 * KIB and n * size <= 256 * KIB):
        return small(network, size, n)
    if n > FEW and size / n < (16 * KIB if n <= 16 else 256 * KIB):
        return in_rounds(network, size, n)
    return direct(network, size, n) if n <= 16 else chain(network, size, n)


# ---- a step ----

ON_HOST = 2.5e-10  # seconds for a byte of each rank of a host: the sum and its copy in shared memory


@dataclass
class Model:
    title: str
    compute: float  # seconds of a step on one rank
    layers: list    # (bytes of parameters, multiply-adds of backward) in order of forward
    config: str = ""

    def buckets(self):
        """(bytes, share of backward after which it is complete), in the order of reducer_plan."""
        found, filled, done, total = [], 0, 0, sum(work for _, work in self.layers)
        for size, work in reversed(self.layers):
            filled, done = filled + size, done + work
            if filled >= (MIB if not found else 25 * MIB):
                found.append((filled, done / total))
                filled = 0
        return found + [(filled, 1.0)] if filled else found

    def step(self, network, n, ranks=1):
        on_host = lambda size: ON_HOST * size * ranks if ranks > 1 else 0
        backward, now = self.compute * 2 / 3, 0
        begin = self.compute - backward
        *early, (last, _) = self.buckets()
        for size, share in early:
            now = max(now, begin + share * backward) + all_reduce(network, size, n, False) + on_host(size)
        end = self.compute + all_reduce(network, last, n) + on_host(last)
        if now > self.compute:  # both use the link
            end = max(end, now + all_reduce(replace(network, delay=0, message=0), last, n, False))
        return end + all_reduce(network, CONTROL_BYTES, n)


def linear(inputs, outputs, rows, is_first=False):
    return 4 * (inputs * outputs + outputs), rows * inputs * outputs * (1 if is_first else 2)


def gpt_layers(layers, width, tokens, batch, vocabulary=65):
    positions, found = batch * tokens, [(4 * (vocabulary + tokens) * width, 0)]
    for _ in range(layers):
        for inputs, outputs in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
            found.append(linear(inputs, outputs, positions))
    return found


# Steps of one thread: docs/performance.md, float32 with AVX-512
MODELS = [
    Model("MNIST CNN, batch 64, 4.8 MB", 24.7e-3,
          [(4 * 320, 64 * 26 * 26 * 288), (4 * 18496, 128 * 24 * 24 * 64 * 288), linear(9216, 128, 64), linear(128, 10, 64)]),
    Model("medium GPT 6 x 384, batch 8 x 256, 43 MB", 786.8e-3, gpt_layers(6, 384, 256, 8)),
    Model("wide MLP 1024-4096-4096-1024, batch 256, 101 MB", 201.8e-3,
          [linear(1024, 4096, 256, True), linear(4096, 4096, 256), linear(4096, 1024, 256)]),
]
NETWORKS = {"1 Gbit/s, 0.1 ms": (1e9 / 8, 1e-4), "10 Gbit/s, 0.05 ms": (10e9 / 8, 5e-5), "100 Gbit/s, 0.02 ms": (100e9 / 8, 2e-5)}
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def predict(options):
    print("| model | network | | " + " | ".join(map(str, COUNTS)) + " |\n" + "|---" * (3 + len(COUNTS)) + "|")
    for model in MODELS:
        for name, (rate, delay) in NETWORKS.items():
            for way in "Gloo", "MPI":
                network = Network(rate, delay, is_mpi=way == "MPI")
                used = replace(model, compute=model.compute * options.compute)
                alone = used.step(network, 1, options.ranks)
                shares = (f"{100 * alone / used.step(network, n, options.ranks):.0f} %" for n in COUNTS)
                print(f"| {model.title} | {name} | {way} | " + " | ".join(shares) + " |")


# ---- check ----

SMALL = {"204 B": (16, 3, 0), "65 KiB": (128, 128, 0), "257 KiB": (256, 256, 0), "1 MiB": (512, 512, 0), "4 MiB in two": (512, 1024, 512)}


def small_model(sizes):
    inputs, middle, outputs = sizes
    layers = [linear(inputs, middle, 1, True)] + ([linear(middle, outputs, 1)] if outputs else [])
    list_of = f"[{{linear: {middle}}}" + (f", {{linear: {outputs}}}]" if outputs else "]")
    config = f"""name: step
dataset: {{format: synthetic, synthetic: {{kind: uniform, rows: 4096, inputs: [{inputs}], targets: {outputs or middle}}}}}
sampler: {{batch_size: 1}}
model: {{layers: {list_of}}}
loss: mse
optimizer: {{type: sgd, lr: 0.001}}
train: {{steps: STEPS, log_every: 1, evaluate_every: 0}}
checkpoint: {{save_every: 1000000}}
"""
    return Model("", 0, layers, config)


class Runs:
    def __init__(self, options):
        self.options, self.folder = options, tempfile.mkdtemp(prefix="ddptrain-bench-")
        self.secret = uuid.uuid4().hex

    def step(self, model, place, n, backend, steps):
        """Median seconds of a step on [n] hosts."""
        run, config = os.path.join(self.folder, "run"), os.path.join(self.folder, "c.yaml")
        shutil.rmtree(run, ignore_errors=True)
        with open(config, "w") as f:
            f.write(model.config.replace("STEPS", str(steps)))
        words = [self.options.binary, config, "--run-dir", run, "--quiet", "--no-progress"]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "DDPTRAIN_SECRET": self.secret}
        if n == 1:
            started = [subprocess.Popen(words, env=env)]
        elif backend == "gloo":
            env.update(WORLD_SIZE=str(n), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR=hosts.address(0), MASTER_PORT="29517")
            started = [subprocess.Popen(place.enter(h, *words, "dist.backend=gloo"), env={**env, "RANK": str(h)}) for h in range(n)]
        else:
            before, more = place.mpirun(backend, n)
            started = [subprocess.Popen([*before, *words, "dist.backend=mpi"], env={**env, **more})]
        codes = [p.wait() for p in started]
        if any(codes):
            sys.exit(f"failed: {codes}, {n} hosts, {backend}")
        with open(os.path.join(run, "metrics.jsonl")) as f:
            seconds = [e["seconds"] for e in map(json.loads, f) if e["event"] == "step"]
        return statistics.median(seconds[len(seconds) // 4:])


def parse_link(text):
    """"100mbit:1" -> (bytes/s, seconds, "100mbit", 1)"""
    rate, _, delay = text.partition(":")
    return hosts.bytes_of(rate), float(delay or 0) * 1e-3, rate, float(delay or 0)


def check(options):
    runs, errors = Runs(options), []
    models = {name: small_model(sizes) for name, sizes in SMALL.items()}
    alone = {name: runs.step(model, None, 1, "", 200) for name, model in models.items()}
    print("| link | hosts | | gradients | predicted, ms | measured, ms | error |\n|---|---|---|---|---|---|---|", flush=True)
    for link in options.links.split(","):
        rate, delay, rate_text, milliseconds = parse_link(link)
        for n in map(int, options.hosts.split(",")):
            with hosts.Hosts(n, rate_text, milliseconds, options.binary) as place:
                for backend in options.backends.split(","):
                    network = Network(rate, delay + options.base_delay, message=options.message, is_mpi=backend != "gloo")
                    for name, model in models.items():
                        predicted = replace(model, compute=alone[name]).step(network, n)
                        steps = max(12, min(200, int(options.seconds / predicted)))
                        measured = runs.step(model, place, n, backend, steps)
                        errors.append(predicted / measured - 1)
                        print(f"| {link} | {n} | {backend} | {name} | {1e3 * predicted:.2f} | {1e3 * measured:.2f} | {100 * errors[-1]:+.0f} % |", flush=True)
    sizes = sorted(map(abs, errors))
    print(f"\n{len(sizes)} steps: the prediction is off by {100 * statistics.median(sizes):.0f} % (median), {100 * sizes[-1]:.0f} % at most")
    shutil.rmtree(runs.folder)


def main():
    hide_gpus()
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1, help="ranks of a host")
    parser.add_argument("--compute", type=float, default=1, help="of the measured time of computation, as 0.25 for a faster processor")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--links", default="100mbit,1gbit,100mbit:1,1gbit:1,100mbit:5", help="rate, and the delay of one way in ms")
    parser.add_argument("--hosts", default="2,4,8")
    parser.add_argument("--backends", default="gloo,openmpi")
    parser.add_argument("--seconds", type=float, default=3, help="of a run")
    parser.add_argument("--base-delay", type=float, default=5e-5, help="seconds that a packet needs between two processes of this machine")
    parser.add_argument("--message", type=float, default=Network.message)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    options = parser.parse_args()
    check(options) if options.check else predict(options)


if __name__ == "__main__":
    main()
