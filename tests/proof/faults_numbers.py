#!/usr/bin/env python3
"""Tests, many times, the guarantees of docs/resume-and-faults.md about numbers, memory and rows.

    tests/proof/faults_numbers.py                         all but guards, a hundred trials each
    tests/proof/faults_numbers.py flips --trials 10000    a bit of one rank's parameters flips: found, named, never saved
    tests/proof/faults_numbers.py nonfinite --seed 7 --trials 1
    tests/proof/faults_numbers.py rows                    each row exactly once: every world, every stop (about ten minutes)
    tests/proof/faults_numbers.py compute                 bits that are wrong in a checked step, and a million steps without one
    tests/proof/faults_numbers.py guards                  what all guards cost; on a machine that does nothing else

Prints a table; each failure comes with its seed, and `--seed` repeats it. Needs a built program (--binary).
"""
import argparse, glob, json, os, random, re, shutil, statistics, subprocess, sys, tempfile, time

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # train.device: auto is the CPU, where bits are the same everywhere
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIVERGED, NOT_FINITE = 71, 76
WEIGHTS = [("0.weight", 64 * 13), ("0.bias", 64), ("2.weight", 3 * 64), ("2.bias", 3)]
WINE = """
dataset: {path: datasets/wine.h5, inputs: x, targets: y, scale: standard, split: {test: 0.2, seed: 42}}
sampler: {batch_size: 16, shuffle: true}
model: {layers: [{linear: {out: 64}}, relu, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {epochs: 70, evaluate_every: 0}
checkpoint: {save_every: {steps: 37}, keep: 0}
"""
ROWS = """
dataset: {path: data.csv, inputs: [a, b, c], targets: y}
sampler: {global_batch_size: 12, shuffle: true}
model: {layers: [{linear: {out: 24}}, relu, {linear: {out: 1}}]}
loss: mse
optimizer: {type: adam, lr: 0.01}
train: {epochs: 4}
checkpoint: {save_every: {steps: 3}, keep: 0}
"""
# A step of about a millisecond on two ranks: small, so that guards show.
GUARDED = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 20000, inputs: 100, classes: 4, seed: 3}}
sampler: {batch_size: 64, shuffle: true}
model: {layers: [{linear: {out: 512}}, relu, {linear: {out: 512}}, relu, {linear: {out: 4}}]}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.001}
train: {epochs: 4}
"""
# Hashes of the state are due every 100 steps; with one in each step they cost a hundred times as much and can be told from noise.
GUARDS = {True: ("train.on_nonfinite=skip", "train.check_state_every=1"),
          False: ("train.on_nonfinite=stop", "train.check_state_every=0", "dist.hang_timeout=0")}
OFTEN = 100
WATCHES = ("heartbeat", "store")  # threads that beat and listen: there is no run of several ranks without them


class Failed(Exception):
    """A guarantee does not hold."""


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(str(w) for w in what))


class Place:
    absorbed = 0  # flips that were rounded away before a comparison

    def __init__(self, binary):
        self.binary = binary
        self.folder = tempfile.mkdtemp(prefix="ddptrain-numbers-")
        os.symlink(os.path.join(ROOT, "datasets"), self.path("datasets"))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)

    def run(self, config, *arguments, env=None):
        self.write("test.yaml", config)
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        e = {k: v for k, v in os.environ.items() if not k.startswith(("DDPTRAIN_", "SLURM_", "OMPI_", "PMI_"))}
        done = subprocess.run([self.binary, "test.yaml", "--no-progress", *map(str, arguments)], cwd=self.folder, env={**e, **(env or {})},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def events(self, event):
        with open(self.path("runs/test/metrics.jsonl")) as f:
            return [m for m in map(json.loads, f) if m["event"] == event]

    def must_be_finite(self):
        for path in glob.glob(self.path("runs/test/checkpoints/*.h5")):
            text = subprocess.run([self.binary, "inspect", path], capture_output=True, text=True, check=True).stdout
            check("not finite" not in text, path, "holds numbers that are not finite")


def flips(place, draw):
    """A flipped bit in one rank's parameters is detected within 100 steps and before any save, and the rank is reported"""
    world, steps = draw.choice((3, 4, 5)), 70 * 2
    rank, step = draw.randrange(world), draw.randrange(steps)
    tensor = draw.choices(range(4), [count for _, count in WEIGHTS])[0]
    bit = 32 * (sum(count for _, count in WEIGHTS[:tensor]) + draw.randrange(WEIGHTS[tensor][1])) + draw.randrange(32)
    fault = {"DDPTRAIN_FAULT_FLIP": f"{rank}:{step}:{bit}"}
    code, text = place.run(WINE, "--nproc", world, env=fault)
    if code == 0 and bit % 32 < 4:  # the last bits: the next updates may have rounded it away, so that all ranks agree again
        code, text = place.run(WINE, "--nproc", world, "train.check_state_every=1", env=fault)
        place.absorbed += 1
    check(code == DIVERGED, f"exit code {code} with a flip of bit {bit} on rank {rank} of {world} at step {step}:", text)
    found = re.search(r"differ after epoch \d+, step (\d+): rank (\d+) ", text)
    check(found and int(found.group(2)) == rank and WEIGHTS[tensor][0] in text, "the wrong rank or tensor is named:", text)
    check(int(found.group(1)) - step <= 100, "found after", int(found.group(1)) - step, "steps")
    check(all(m["step"] <= step for m in place.events("checkpoint")), "a save after the flip")


def nonfinite(place, draw):
    """A row with non-finite results: all ranks do the same in the same step, and the row is reported"""
    bad, world = draw.randrange(48), draw.choice((1, 2, 3, 4))
    policy, huge = draw.choice(("stop", "skip", "rollback")), draw.choice((3e38, -3e38))
    lines = [",".join(f"{huge if row == bad and column < 3 else draw.uniform(-1, 1):.9g}" for column in range(4)) for row in range(48)]
    place.write("data.csv", "a,b,c,y\n" + "\n".join(lines) + "\n")
    code, text = place.run(ROWS, "--nproc", world, f"train.on_nonfinite={policy}")
    check(code == (NOT_FINITE if policy == "stop" else 0), "exit code", code, text)
    check(f"row {bad} of the training data" in text, "the row is not named:", text)
    if policy == "skip":
        check(len(place.events("skipped")) == 4 and len(place.events("step")) == 12, "one step an epoch is skipped")
    place.must_be_finite()


def rows(place, _):
    """Each row exactly once an epoch: sizes 1 to 10,000, worlds 1 to 8, every stop, on every other world with shards"""
    test = os.path.join(os.path.dirname(place.binary), "data_exactly_once")
    done = subprocess.run([test], env={**os.environ, "DDPTRAIN_EXHAUSTIVE": "1", "CK_DEFAULT_TIMEOUT": "7200", "CK_TIMEOUT_MULTIPLIER": "60"},
                          capture_output=True, text=True)
    check(done.returncode == 0, done.stdout, done.stderr)


def compute(place, _):
    """Checked steps: 1,000 bits that are wrong in one computation are found; 10^6 steps without one are not reported"""
    done = subprocess.run([sys.executable, "-m", "unittest", "-v", "test_check_compute"], cwd=os.path.join(ROOT, "tests/program"),
                          env={**os.environ, "DDPTRAIN_EXHAUSTIVE": "1", "DDPTRAIN": place.binary, "DDPTRAIN_SOURCE": ROOT}, capture_output=True, text=True)
    check(done.returncode == 0, done.stdout, done.stderr)
    print(done.stdout, end="")


def watch_share(launcher):
    """The processor time that the monitoring threads of the ranks have used so far."""
    seconds = {True: 0, False: 0}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) != launcher:
                    continue
            for task in glob.glob(f"/proc/{pid}/task/*"):
                with open(f"{task}/comm") as name, open(f"{task}/schedstat") as times:
                    seconds[name.read().strip() in WATCHES] += int(times.read().split()[0]) * 1e-9
        except OSError:
            pass
    return seconds[True] / (sum(seconds.values()) or 1)


def guarded_run(place, has_guards):
    """(seconds of training, share of the monitoring threads)"""
    place.write("test.yaml", GUARDED)
    shutil.rmtree(place.path("runs"), ignore_errors=True)
    p = subprocess.Popen([place.binary, "test.yaml", "--quiet", "--nproc", "2", *GUARDS[has_guards]], cwd=place.folder, stdin=subprocess.DEVNULL)
    share = 0
    while p.poll() is None:
        share = watch_share(p.pid) or share
        time.sleep(0.2)
    check(p.returncode == 0, "exit code", p.returncode)
    return place.events("end")[-1]["seconds"], share


def guards(place, _):
    """State hashes every 100 steps, skipping, hangs, beats: at most 3 % of the time of a step"""
    seconds, shares = {False: [], True: []}, []
    for turn in range(12):
        for has_guards in (turn % 2 == 0, turn % 2 == 1):
            took, share = guarded_run(place, has_guards)
            seconds[has_guards].append(took)
            shares.append(share)
    off, beats = statistics.median(seconds[False]), statistics.median(shares)
    each = statistics.median(seconds[True]) / off - 1
    print(f"guards: a state hash in every step {each * 100:+.1f} %, so every {OFTEN} steps {each * 100 / OFTEN:+.2f} %; beats {beats * 100:.2f} % of the "
          f"processor time; medians of 12 runs of {off:.2f} s each")
    check(max(each, 0) / OFTEN + beats <= 0.03, "more than 3 %")


def main():
    guarantees = {"flips": flips, "nonfinite": nonfinite, "rows": rows, "compute": compute, "guards": guards}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="|".join(guarantees), help="default: all but guards")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build/release/bin/ddptrain"))
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(guarantees)
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    place, total = Place(os.path.abspath(arguments.binary)), 0
    try:
        for name in arguments.names or ("flips", "nonfinite", "rows", "compute"):
            trials = 1 if name in ("rows", "compute", "guards") else arguments.trials
            failed, begin = 0, time.monotonic()
            for seed in range(arguments.seed, arguments.seed + trials):
                try:
                    guarantees[name](place, random.Random(f"{name} {seed}"))
                except (Failed, subprocess.SubprocessError, OSError) as e:
                    failed += 1
                    print(f"FAILED {name} --seed {seed} --trials 1: {e}", file=sys.stderr)
            total += failed
            print(f"{name:10} {trials:6} trials {failed:4} failed {time.monotonic() - begin:7.1f} s  {guarantees[name].__doc__}"
                  + (f" ({place.absorbed} rounded away before)" if name == "flips" and place.absorbed else ""), flush=True)
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
    return total != 0


if __name__ == "__main__":
    sys.exit(main())
