#!/usr/bin/python3
"""Measures the cost of the guards of a run, against a program without them; prints a table for docs/reliability.md:

    bench/guards.py [--rounds N] [--only wine,cnn,gpt_medium] [--nproc 1,2] [--keep FOLDER]

The guards cannot be switched off, so a copy of the sources is changed (CUTS) and built: no check whether gradients and running
statistics are finite, no heartbeats, no record of what a rank is doing, no check for lost ranks. Both programs run in turn without
lines of steps and without clipping, whose norms would show numbers that are not finite at no further cost. The state's hash is timed
as a run that takes it in every step, and counts a hundredth. Milliseconds of a step: the fastest run and the median of each program."""
import argparse, json, os, random, shutil, statistics, subprocess, sys, tempfile

from models import VOCABULARY, WORKLOADS, Workload
from run import SOURCE, hide_gpus

CUTS = {
    "src/device/cpu/sets/elementwise.c": (("static void check_finite(struct device *device, const float *x, size_t count, double *nonfinite) {",
                              "    if (device) return;"),),
    "src/dist/process/activity.c": (("void activity_phase(struct activity *p, enum activity_phase phase) {", "    if (p) return;"),
                         ("void activity_step(struct activity *p, int64_t step, double seconds) {", "    if (p) return;"),
                         ("void activity_enter(struct activity *p, int lane, const char *call) {", "    if (p) return;"),
                         ("void activity_leave(struct activity *p, int lane) {", "    if (p) return;")),
    "src/dist/store/store.c": (("static void send_heartbeat(struct heartbeat *h, double now) {",
                                          "    h->send_at = now + 1e6;\n    if (h) return;"),
                                         ("static void check_rank_0(struct heartbeat *h, double now) {",
                                          "    if (h->broken_at == 0) return;")),
    "src/dist/store/store_server.c": (("static void check_ranks(struct store_server *s, double now) {",
                                       "    if (members_cause(s->members, now) < 0) {\n        s->heartbeat_at = now + 1e6;\n        return;\n    }"),),
}
WINE = Workload("wine MLP 13-64-3, batch 32", """dataset: {path: datasets/wine.h5, scale: standard, split: {test: 0.2, seed: 42}}
sampler: {batch_size: 32, shuffle: true}
model: {layers: [{linear: 64}, relu, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {steps: STEPS, evaluate_every: 0}
""", 0, 100_000)
STEPS = {"wine": 100_000, "cnn": 100, "gpt_medium": 4}


def build_bare(folder):
    """The program without guards."""
    source = os.path.join(folder, "source")
    if not os.path.isdir(source):
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("build", ".git"))
    for name, cuts in CUTS.items():
        with open(os.path.join(SOURCE, name)) as f:
            text = f.read()
        for where, line in cuts:
            if text.count(where) != 1:
                sys.exit(f"{name} has no '{where}'")
            text = text.replace(where, f"{where}\n{line}")
        with open(os.path.join(source, name), "w") as f:
            f.write(text)
    subprocess.run(["cmake", "--preset", "release", "-DDDPTRAIN_CUDA=OFF"], cwd=source, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "build/release", "-j2", "--target", "ddptrain"], cwd=source, check=True, stdout=subprocess.DEVNULL)
    return os.path.join(source, "build", "release", "bin", "ddptrain")


def step(binary, folder, config, nproc, check_state_every):
    """Milliseconds."""
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    subprocess.run([binary, config, "--run-dir", run, "--quiet", "--nproc", str(nproc), "train.log_every=0", "checkpoint.save_every=1000000",
                    f"train.check_state_every={check_state_every}"], cwd=SOURCE, env=dict(os.environ, OMP_NUM_THREADS="1"), check=True)
    with open(os.path.join(run, "metrics.jsonl")) as f:
        end = json.loads(f.readlines()[-1])
    return 1e3 * end["seconds"] / end["step"]


def main():
    hide_gpus()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--nproc", default="1,2")
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build/release/bin/ddptrain"))
    parser.add_argument("--keep", help="a folder for the program without guards, for the next time")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ddptrain-guards-")
    bare = build_bare(options.keep or folder)
    with open(os.path.join(folder, "text.txt"), "w") as f:
        letters = [chr(c) for c in range(33, 33 + VOCABULARY)]
        f.write("".join(letters) + "".join(random.Random(1).choices(letters, k=1_000_000 - VOCABULARY)))
    for name in options.only.split(","):
        workload, config = WINE if name == "wine" else WORKLOADS[name], os.path.join(folder, f"{name}.yaml")
        with open(config, "w") as f:
            f.write(workload.config.replace("STEPS", str(STEPS[name])).replace("FOLDER", folder).replace(", clip_grad_norm: 1.0", ""))
        for nproc in map(int, options.nproc.split(",")):
            # the program, and how often the state is hashed (only with several processes)
            ways = {"without": (bare, 0), "with": (options.binary, 0), "hash": (options.binary, 1)}
            if nproc == 1:
                del ways["hash"]
            times = {way: [] for way in ways}
            for turn in range(options.rounds):
                for way in list(ways) if turn % 2 else list(ways)[::-1]:
                    times[way].append(step(ways[way][0], folder, config, nproc, ways[way][1]))
            minimum = {way: min(t) for way, t in times.items()}
            middle = {way: statistics.median(t) for way, t in times.items()}
            cost = [100 * ((b["with"] + (max(b["hash"] - b["with"], 0) / 100 if nproc > 1 else 0)) / b["without"] - 1) for b in (minimum, middle)]
            show = [" / ".join(f"{b[way]:.4g}" for b in (minimum, middle)) if way in ways else "" for way in ("without", "with", "hash")]
            print(f"| {workload.title} | {nproc} | {' | '.join(show)} | {cost[0]:+.2f} % / {cost[1]:+.2f} % |", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
