#!/usr/bin/python3
"""Changes runs in ways that `ddptrain audit` has to find, many times, each at a random place:

    tests/proof/tampering.py                    200 trials, of each kind as many
    tests/proof/tampering.py --seed 7 --trials 1

A trial copies the folder of a run of random config, changes something, and audits all of it; the exit code must be 71, or 65
where the data or a file are not what the checkpoints say, and the message name what was changed and the first step or line that it concerns.
Prints a table; each failure comes with its seed. Needs a built program (--binary), h5py and numpy.
"""
import argparse, hashlib, json, os, random, re, shutil, subprocess, sys, tempfile

import h5py
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "program"))
os.environ.setdefault("DDPTRAIN", "")
os.environ.setdefault("DDPTRAIN_SOURCE", ROOT)
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import program
from program import seal_ledger as seal

CONFIG = """
name: test
seed: {seed}
dataset: {{path: wine.h5, inputs: [x], targets: [y], scale: standard, split: 0.2}}
sampler: {{batch_size: {batch}}}
model: {{layers: [{{linear: {width}}}, relu, {{linear: 3}}]}}
loss: cross_entropy
optimizer: {{type: {optimizer}, lr: 0.01}}
train: {{epochs: 6, ledger: {{every: {every}}}}}
checkpoint: {{save_every: {{steps: {save}}}, keep: 0}}
"""


def run(binary, folder, *arguments):
    p = subprocess.run([binary, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=600)
    return p.returncode, p.stdout + p.stderr


class Trial:
    def __init__(self, binary, folder, rng):
        self.binary, self.folder, self.rng = binary, folder, rng
        shutil.copy(os.path.join(ROOT, "datasets", "wine.h5"), os.path.join(folder, "wine.h5"))
        with open(os.path.join(folder, "c.yaml"), "w") as f:
            f.write(CONFIG.format(seed=rng.randrange(1000), batch=rng.choice([8, 16, 32]), width=rng.choice([8, 24]), every=rng.choice([1, 3, 7]),
                                  optimizer=rng.choice(["adam", "sgd", "rmsprop"]), save=rng.choice([5, 9, 16])))
        code, out = run(binary, folder, "c.yaml", "--quiet")
        assert code == 0, out
        with open(self.path("ledger.jsonl")) as f:
            self.lines = f.read().splitlines(True)
        self.bodies = [line.rpartition(',"chain":"')[0] for line in self.lines]

    def path(self, name):
        return os.path.join(self.folder, "runs", "test", name)

    def write_ledger(self, text):
        with open(self.path("ledger.jsonl"), "w") as f:
            f.write(text)

    def events(self, event):
        return [i for i, body in enumerate(self.bodies) if f'"event":"{event}"' in body]

    def step(self, i):
        return json.loads(self.bodies[i] + "}")["step"]

    # Each changes the run and returns what the message must match.

    def row_changed(self):
        with h5py.File(os.path.join(self.folder, "wine.h5"), "r+") as f:
            f["x"][self.rng.randrange(178), self.rng.randrange(13)] += 1e-3
        return r"dataset_fingerprint is|trained on other data"

    def rows_swapped(self):
        with h5py.File(os.path.join(self.folder, "wine.h5"), "r+") as f:
            a, b = sorted(self.rng.sample(range(178), 2))
            x = f["x"][:]
            x[[a, b]] = x[[b, a]]
            f["x"][:] = x
        return r"dataset_fingerprint is|trained on other data"

    def rate_edited(self):
        with open(self.path("config.yaml")) as f:
            text = f.read()
        with open(self.path("config.yaml"), "w") as f:
            f.write(text.replace("lr: 0.01", "lr: 0.011", 1))
        return r"config.yaml: not the config of the run"

    def checkpoint(self):
        return self.rng.choice(self.events("checkpoint"))

    def bit_flipped(self):
        i = self.checkpoint()
        name = json.loads(self.bodies[i] + "}")["name"]
        with open(self.path(f"checkpoints/{name}.h5"), "r+b") as f:
            at = self.rng.randrange(os.path.getsize(f.name))
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1 << self.rng.randrange(8)]))
        return rf"{name}\.h5"

    def bit_flipped_and_sealed(self):
        i = self.checkpoint()
        name = json.loads(self.bodies[i] + "}")["name"]

        def change(f):
            tensors = []
            f.visititems(lambda path, item: tensors.append(path) if isinstance(item, h5py.Dataset) and item.dtype == np.float32 else None)
            path = self.rng.choice(tensors)
            value = f[path][:]
            value.reshape(-1).view(np.uint32)[self.rng.randrange(value.size)] ^= 1 << self.rng.randrange(23)
            f[path][:] = value
        program.change_checkpoint(self.path(f"checkpoints/{name}.h5"), change)
        return rf"ledger.jsonl:{i + 1}: step {self.step(i)} differs: state is|{name}.h5: not what the run gives"

    def line_removed(self):
        i = self.rng.randrange(len(self.lines) - 1)
        self.write_ledger("".join(self.lines[:i] + self.lines[i + 1:]))
        return rf"ledger.jsonl:{i + 1}: the chain is broken"

    def line_edited(self):
        i = self.rng.randrange(len(self.lines))
        digits = [m.start() for m in re.finditer(r"\d", self.bodies[i])]
        at = self.rng.choice(digits)
        new = self.rng.choice([d for d in "123456789" if d != self.lines[i][at]])
        self.write_ledger("".join(self.lines[:i] + [self.lines[i][:at] + new + self.lines[i][at + 1:]] + self.lines[i + 1:]))
        return rf"ledger.jsonl:{i + 1}: the chain is broken"

    def line_edited_and_sealed(self):
        i = self.rng.choice(self.events("step"))
        field = self.rng.choice(["rows", "parameters", "loss"])
        at = self.bodies[i].index(f'"{field}":') + len(field) + 6
        new = self.rng.choice([d for d in "123456789" if d != self.bodies[i][at]])
        self.write_ledger(seal(self.bodies[:i] + [self.bodies[i][:at] + new + self.bodies[i][at + 1:]] + self.bodies[i + 1:]))
        return rf"ledger.jsonl:{i + 1}: step {self.step(i)} differs: {field} is|{field} is \S+, and \S+ in runs/test/ledger.jsonl:{i + 1}"

    def line_removed_and_sealed(self):
        i = self.rng.choice(self.events("step"))
        self.write_ledger(seal(self.bodies[:i] + self.bodies[i + 1:]))
        return rf"ledger.jsonl:{i + 1}: no line of step {self.step(i)} above it"

    def end_removed(self):
        i = self.rng.randrange(1, len(self.lines))
        self.write_ledger("".join(self.lines[:i]))
        return r"lines were removed|missing"

    def another_seed(self):
        """The ledger, the checkpoints and the metrics of a run with another seed, and the config of this one."""
        mine = open(self.path("config.yaml")).read()
        code, out = run(self.binary, self.folder, "c.yaml", "--quiet", "--fresh", "seed=4321")
        assert code == 0, out
        other = open(self.path("config.yaml")).read()
        with open(self.path("ledger.jsonl")) as f:
            bodies = [line.rpartition(',"chain":"')[0] for line in f]
        hashes = [hashlib.sha256(text.encode()).hexdigest() for text in (other, mine)]
        self.write_ledger(seal([body.replace(*hashes) for body in bodies]))
        with open(self.path("config.yaml"), "w") as f:
            f.write(mine)
        return r"ledger.jsonl:1: its config is not the one of its config_sha256"


KINDS = ["row_changed", "rows_swapped", "rate_edited", "bit_flipped", "bit_flipped_and_sealed", "line_removed", "line_edited",
         "line_edited_and_sealed", "line_removed_and_sealed", "end_removed", "another_seed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "release", "bin", "ddptrain"))
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    binary, counts, wrong = os.path.abspath(options.binary), {kind: [0, 0] for kind in KINDS}, 0
    for seed in range(options.seed, options.seed + options.trials):
        kind = KINDS[seed % len(KINDS)]
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(binary, folder, random.Random(seed))
            expected = getattr(trial, kind)()
            code, out = run(binary, folder, "audit", "runs/test", "--all")
        is_right = code in (71, 65) and re.search(expected, out) is not None
        counts[kind][0] += 1
        counts[kind][1] += is_right
        if not is_right:
            wrong += 1
            print(f"seed {seed}: {kind}: exit code {code}, expected {expected!r}:\n{out}", flush=True)
    for kind, (trials, right) in counts.items():
        print(f"{kind:28} {right} of {trials} found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
