#!/usr/bin/env python3
"""Compares the states that shipped configs reach in a few steps with those of tests/states.txt.

    scripts/states.py [--ddptrain build/release/bin/ddptrain] [--write] [NAME ...]

For changes that are to keep every bit: a test that compares two runs of one build cannot see what changes in both. Each config
is made small as by tests/program/test_configs.py and trained in each of WAYS with portable arithmetic, whose bits are the same
with every processor. The table is of gcc: with clang the states of four models with convolutions differ. --write records the
states instead, after a change that is to change them; the commit says which and why. Prints a line for each state that differs,
and a summary; exit 1 when one did.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(ROOT, "tests", "states.txt")
WAYS = {
    "one": ["--nproc", "1"],
    "two": ["--nproc", "2"],
    "elastic": ["--nproc", "2", "determinism.mode=elastic", "determinism.shards=4", "sampler.batch_size=null", "sampler.global_batch_size=4"],
    "zero": ["--nproc", "2", "dist.zero_stage=1", "optimizer.in_backward=false"],
    "accumulate": ["--nproc", "1", "train.accumulate=2", "train.clip_grad_norm=0.5", "optimizer.in_backward=false"],
}
PORTABLE = ["determinism.portable=true", "train.device=cpu", "train.precision=float32"]


def state(ddptrain, folder, name, way, overrides):
    """The state's SHA-256, "rejected" where the config does not allow the way, or the error."""
    run = os.path.join("runs", f"{name}-{way}")
    words = [ddptrain, os.path.join(ROOT, "configs", name + ".yaml"), *overrides, *PORTABLE, *WAYS[way], "--quiet", "--run-dir", run]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
    if done.returncode == 64:
        return "rejected"
    if done.returncode != 0:
        return f"error {done.returncode}: {done.stderr.strip().splitlines()[-1]}"
    with open(os.path.join(folder, run, "metrics.jsonl")) as f:
        return json.loads(f.readlines()[-1])["state_sha256"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ddptrain", default=os.path.join(ROOT, "build", "release", "bin", "ddptrain"))
    parser.add_argument("--write", action="store_true", help="record the states in place of comparing them")
    parser.add_argument("names", nargs="*", metavar="NAME", help="configs without .yaml; default: all")
    options = parser.parse_args()
    ddptrain = os.path.abspath(options.ddptrain)
    os.environ.update(DDPTRAIN=ddptrain, DDPTRAIN_SOURCE=ROOT)
    sys.path.insert(0, os.path.join(ROOT, "tests", "program"))
    import test_configs
    recorded = {}
    if os.path.exists(TABLE):
        with open(TABLE) as f:
            recorded = {tuple(line.split()[:2]): line.split()[2] for line in f if line.strip()}
    files = sorted(os.listdir(os.path.join(ROOT, "configs")))
    names = options.names or [f[:-5] for f in files if f.endswith(".yaml") and not test_configs.is_sweep(os.path.join(ROOT, "configs", f))]
    wrong = []
    with tempfile.TemporaryDirectory(prefix="ddptrain-states-") as folder:
        os.symlink(os.path.join(ROOT, "datasets"), os.path.join(folder, "datasets"))
        test_configs.write_data(folder)
        for name in names:
            for way in WAYS:
                found = state(ddptrain, folder, name, way, test_configs.OVERRIDES.get(name, []))
                if options.write and not found.startswith("error"):
                    recorded[name, way] = found
                elif found != recorded.get((name, way)):
                    wrong.append(f"{name} {way}: {found}, recorded: {recorded.get((name, way))}")
                    print(wrong[-1], flush=True)
    if options.write:
        with open(TABLE, "w") as f:
            f.writelines(f"{name} {way} {found}\n" for (name, way), found in sorted(recorded.items()))
    print(f"{len(names) * len(WAYS)} states, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
