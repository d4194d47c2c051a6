#!/usr/bin/python3
"""How the cost of a step grows with batch, depth, width, tokens and ranks, beside the limits of this machine; prints tables for
docs/performance.md:

    bench/growth.py [--rounds N] [--only batch,depth,width,tokens,ranks,trials,layers,attention]

Each row changes one number of the baby GPT of bench/models.py (4 layers of 128, 64 tokens, batch 12), one process of one thread unless
the rows are about ranks; with those the batch is each rank's. The limits are those of bench/limits.c: multiply-adds from registers, and
STREAM's triad. "of the limit" counts the multiplications of the model only, all ranks together.

The rows of trials (docs/growth.md; only if asked for) are of a sweep folder with so many trials that have ended: its lines are those of a
sweep of 200 trials, repeated. The same command again reads the history and writes the table; then the report is made.

Those of layers (only if asked for) are of a model of so many: `check`, a run of one step, and its memory; those of attention of one head, forward
and backward, beside scaled_dot_product_attention of the PyTorch of --python, one thread each, processor time."""
import argparse, json, os, re, resource, statistics, subprocess, tempfile, time, types

from models import Bench, Setting, Workload, gpt, gpt_gflop, show
from run import SOURCE, hide_gpus

BASE = {"depth": 4, "width": 128, "tokens": 64, "batch": 12, "ranks": 1}
ROWS = {"batch": (1, 4, 16, 64), "depth": (1, 2, 4, 8, 16), "width": (64, 128, 256, 512, 1024), "tokens": (32, 64, 128, 256, 512),
        "ranks": (1, 2, 4, 8)}
TRIALS = (1000, 10000, 100000, 1000000)
SWEEP = """config: {source}/configs/wine_mlp.yaml
overrides: [train.epochs=1]
method: random
trials: 200
parameters: {{optimizer.lr: {{distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}}}}
keep: none
"""
LAYERS = (1000, 2000, 5000, 10000)
DEEP = """dataset: {{path: {source}/datasets/wine.h5, inputs: x, targets: y}}
sampler: {{batch_size: 8}}
model: {{layers: [{{repeat: {{times: {times}, layers: [{{linear: 8}}, relu]}}}}, {{linear: 3}}]}}
loss: cross_entropy
optimizer: {{type: sgd, lr: 1.0e-9}}
train: {{steps: 1}}
"""
ATTENTION = [(tokens, is_causal) for tokens in (256, 1024, 4096, 16384) for is_causal in (0, 1)]
TORCH = """import json, sys, time, torch
torch.set_num_threads(1)
tokens, size, is_causal, times = map(int, sys.argv[1:])
q, k, v = (torch.randn(1, 1, tokens, size, requires_grad=True) for _ in range(3))
dy, found = torch.randn(1, 1, tokens, size), [[], []]
for _ in range(times):
    start = time.process_time()
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(is_causal))
    middle = time.process_time()
    y.backward(dy)
    found[0].append(middle - start)
    found[1].append(time.process_time() - middle)
forward, backward = (sorted(f)[times // 2] for f in found)
print(json.dumps({"forward": forward, "backward": backward}))
"""
GFLOP_OF_A_RUN = 60  # so that a run takes about a second


def workload(sizes):
    gflop = gpt_gflop(sizes["depth"], sizes["width"], sizes["tokens"], sizes["batch"])
    steps = max(6, min(400, int(GFLOP_OF_A_RUN / gflop)))
    config = gpt(sizes["depth"], max(1, sizes["width"] // 32), sizes["width"], sizes["tokens"], sizes["batch"])
    return Workload("", config, gflop, steps)


def limits(folder, threads):
    line = subprocess.run([os.path.join(folder, "limits"), str(threads)], capture_output=True, text=True, check=True).stdout
    return json.loads(line)


def timed(*words, cwd):
    """(wall seconds, processor seconds)"""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def trials(binary, rounds):
    print("| trials | start and end of a complete sweep: s, processor s | report: s, processor s |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="ddptrain-growth-") as folder:
        with open(os.path.join(folder, "s.yaml"), "w") as f:
            f.write(SWEEP.format(source=SOURCE))
        sweep = (binary, "sweep", "s.yaml", "--nproc", "1", "--quiet", "--no-progress")
        timed(*sweep, cwd=folder)
        history = os.path.join(folder, "sweeps", "s", "history.jsonl")
        with open(history) as f:
            lines = [line for line in f if '"event":"run"' in line]
        for n in TRIALS:
            with open(history, "w") as f:
                for i in range(n):
                    f.write(re.sub(r'"trial":\d+', f'"trial":{i}', lines[i % len(lines)], count=1))
            ends = [timed(*sweep, f"trials={n}", cwd=folder) for _ in range(rounds)]
            reports = [timed(binary, "report", "sweeps/s", "--out", "s.html", cwd=folder) for _ in range(rounds)]
            cells = [f"{statistics.median(t[0] for t in found):.2f}, {statistics.median(t[1] for t in found):.2f}" for found in (ends, reports)]
            print(f"| {n:,} | {' | '.join(cells)} |", flush=True)


def layers(binary, rounds):
    print("| layers | check: processor s | run of one step: processor s | start: s | memory: MiB |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="ddptrain-growth-") as folder:
        for n in LAYERS:
            with open(os.path.join(folder, "deep.yaml"), "w") as f:
                f.write(DEEP.format(source=SOURCE, times=n // 2 - 1))
            checks = [timed(binary, "check", "deep.yaml", cwd=folder)[1] for _ in range(rounds)]
            runs, starts, peaks = [], [], []
            for _ in range(rounds):
                runs.append(timed(binary, "deep.yaml", "--fresh", "--quiet", cwd=folder)[1])
                with open(os.path.join(folder, "runs", "deep", "metrics.jsonl")) as f:
                    events = [json.loads(line) for line in f]
                starts.append(events[0]["startup_seconds"])
                peaks.append(events[-1]["peak_memory_bytes"] / 2 ** 20)
            print(f"| {n:,} | " + " | ".join(f"{statistics.median(v):.3g}" for v in (checks, runs, starts, peaks)) + " |", flush=True)


def attention(folder, python, rounds):
    print("| positions | | forward, backward: ms | PyTorch | ratio |\n|---|---|---|---|---|")
    for tokens, is_causal in ATTENTION:
        words = ("64", str(is_causal), str(max(3, min(200, 4096 * 4096 // tokens ** 2))))
        found = {"ours": [], "torch": []}
        for _ in range(rounds):
            for name, command in (("ours", [os.path.join(folder, "attention")]), ("torch", [python, "-c", TORCH])):
                found[name].append(json.loads(subprocess.check_output([*command, str(tokens), *words], text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})))
        cells, sums = [], []
        for times in found.values():
            forward, backward = (statistics.median(t[k] for t in times) * 1e3 for k in ("forward", "backward"))
            cells.append(f"{forward:.3g}, {backward:.3g}")
            sums.append(forward + backward)
        print(f"| {tokens:,} | {'causal' if is_causal else ''} | {' | '.join(cells)} | {sums[1] / sums[0]:.2f} |", flush=True)


def build_tool(build, name):
    """The folder of a program of bench/."""
    subprocess.run(["cmake", "--build", build, "--target", name], check=True, stdout=subprocess.DEVNULL)
    return next(f for f in (build, os.path.join(build, "bin")) if os.path.exists(os.path.join(f, name)))


def main():
    hide_gpus()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    parser.add_argument("--python", default="python3", help="has torch, for attention")
    options = parser.parse_args()
    names = options.only.split(",")
    build = os.path.dirname(os.path.dirname(options.binary))
    others = {"trials": lambda: trials(options.binary, options.rounds), "layers": lambda: layers(options.binary, options.rounds),
              "attention": lambda: attention(build_tool(build, "attention"), options.python, options.rounds)}
    if unknown := set(names) - set(ROWS) - set(others):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join([*ROWS, *others])}")
    for name in [n for n in names if n in others]:
        others[name]()
        names.remove(name)
    if not names:
        return
    folder = build_tool(build, "limits")
    b = Bench(types.SimpleNamespace(binary=options.binary, bfloat16=False, high=False, set=["checkpoint.resume=never"]))
    cores, times = os.cpu_count(), {}
    machine = {n: [] for n in {1, min(2, cores)}}
    for _ in range(options.rounds):
        for n in machine:
            machine[n].append(limits(folder, n))
        for name in names:
            for value in ROWS[name]:
                sizes = {**BASE, name: value}
                times.setdefault((name, value), []).append(b.ours(workload(sizes), Setting(sizes["ranks"], 1))[0])
    best = {n: {k: max(l[k] for l in found) for k in ("gflops", "gigabytes_per_second")} for n, found in machine.items()}
    for n, limit in best.items():
        print(f"{n} thread{'s' if n > 1 else ''}: {limit['gflops']:.0f} GFLOP/s, {limit['gigabytes_per_second']:.0f} GB/s")
    for name in names:
        print(f"\n| {name} | ms a step | times the row above | GFLOP/s | of the limit |\n|---|---|---|---|---|")
        before = None
        for value in ROWS[name]:
            found, ranks = times[name, value], value if name == "ranks" else 1
            median = statistics.median(found)
            speed = ranks * workload({**BASE, name: value}).gflop / median * 1e3
            growth = f"{median / before:.2f}" if before else ""
            print(f"| {value} | {show(found)} | {growth} | {speed:.0f} | {100 * speed / best[min(ranks, max(best))]['gflops']:.0f} % |")
            before = median


if __name__ == "__main__":
    main()
