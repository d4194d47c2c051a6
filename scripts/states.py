#!/usr/bin/env python3
"""Compares what this build computes with what tests/states.txt recorded of an earlier one, bit by bit.

    scripts/states.py [--ddptrain build/release/bin/ddptrain] [--only SECTION] [--write] [NAME ...]

For changes that are to keep every bit: a test that compares two runs of one build cannot see what changes in both. Sections:

    configs   the shipped configs, made small as by tests/program/test_configs.py, in each of CONFIG_WAYS
    pins      the configs of tests/states: `#: WAYS | LABEL ARGUMENTS` are their runs, one for each way

A row is the name, the run, the hash of the state and that of the losses, rates, norms and metrics on the way to it. Runs on the
CPU in float32 have portable arithmetic, whose bits are the same with every processor; those in bfloat16 need one with AVX-512
BF16 and without AMX, those on a GPU a build with -DDDPTRAIN_EMULATION=ON, and are left out elsewhere. The table is of gcc: with clang the states
of four models with convolutions differ. --write records what was found, after a change that is to change it; the commit says
which rows and why. Prints a line for each row that differs, and a summary; exit 1 when one did.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(ROOT, "tests", "states.txt")
PINS = os.path.join(ROOT, "tests", "states")
STORED = "optimizer.in_backward=false"
GPU = ["train.device=cuda", STORED]
WAYS = {
    "one": [],
    "two": ["--nproc", "2"],
    "three": ["--nproc", "3"],
    "elastic": ["--nproc", "2", "determinism.mode=elastic", "determinism.shards=4", "sampler.batch_size=null", "sampler.global_batch_size=4"],
    "zero": ["--nproc", "2", "dist.zero_stage=1", STORED],
    "accumulate": ["train.accumulate=2", "train.clip_grad_norm=0.5", STORED],
    "in_backward": ["optimizer.in_backward=true"],
    "bfloat16": ["train.precision=bfloat16"],
    "bfloat16_zero": ["--nproc", "2", "train.precision=bfloat16", "dist.zero_stage=1", "train.clip_grad_norm=0.5", STORED],
    "gpu": [*GPU],
    "gpu_two": [*GPU, "--nproc", "2"],
    "gpu_zero": [*GPU, "--nproc", "2", "dist.zero_stage=1"],
    "gpu_bfloat16": [*GPU, "train.precision=bfloat16"],
    "float16": [*GPU, "--nproc", "2", "train.precision=float16", "dist.zero_stage=1", "train.clip_grad_norm=0.5"],
}
CONFIG_WAYS = ["one", "two", "elastic", "zero", "accumulate", "bfloat16", "bfloat16_zero"]
PORTABLE = ["determinism.portable=true", "train.precision=float32"]
OTHER_EACH_TIME = ("seconds", "per_second", "memory_bytes", "path", "device", "fingerprint")


class Build:
    """The program to compare, in a folder with the data, and what this machine can run."""
    def __init__(self, ddptrain, folder):
        self.ddptrain, self.folder = ddptrain, folder
        self.emulation = os.path.join(os.path.dirname(os.path.dirname(ddptrain)), "emulation")
        with open("/proc/cpuinfo") as f:
            flags = f.read().split()
        self.lacks = set() if os.path.exists(self.emulation) else {"train.device=cuda"}
        if "avx512_bf16" not in flags or "amx_bf16" in flags:
            self.lacks.add("train.precision=bfloat16")

    def can(self, words):
        return not any(word in self.lacks for word in words)

    def run(self, *words, gpu=False):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        if gpu:
            env.update(DDPTRAIN_MODULE_DIR=self.emulation, LD_LIBRARY_PATH=os.path.join(self.emulation, "driver"),
                       DDPTRAIN_EMULATED_GPUS="2", CUDA_VISIBLE_DEVICES="0,1")
        return subprocess.run([self.ddptrain, *words], cwd=self.folder, env=env, capture_output=True, text=True, timeout=600)

    def train(self, run, config, words):
        """The row of a run, or the error."""
        words = list(words)
        if not any(word.startswith(("train.device", "train.precision")) for word in words):
            words += PORTABLE
        is_gpu = "train.device=cuda" in words
        if not is_gpu:
            words.append("train.device=cpu")
        if "--nproc" not in words:
            words += ["--nproc", "1"]
        done = self.run(config, *words, "--quiet", "--run-dir", run, gpu=is_gpu)
        return failure(done) or of_metrics(os.path.join(self.folder, run))


def failure(done):
    return done.returncode and f"error {done.returncode}: {done.stderr.strip().splitlines()[-1]}"


def of_metrics(run):
    """The first digits of the hash of the final state, and of those of all numbers on the way that are the same each time."""
    with open(os.path.join(run, "metrics.jsonl")) as f:
        events = [event for event in map(json.loads, f) if event["event"] != "checkpoint"]  # whose time decides when there is one
    numbers = hashlib.sha256()
    for event in events:
        kept = {key: value for key, value in event.items() if not key.endswith(OTHER_EACH_TIME)}
        numbers.update(json.dumps(kept, sort_keys=True).encode())
    return f"{events[-1]['state_sha256'][:20]} {numbers.hexdigest()[:12]}"


def rows_of_configs(build):
    import test_configs
    configs = os.path.join(ROOT, "configs")
    for file in sorted(os.listdir(configs)):
        path, name = os.path.join(configs, file), file[:-5]
        if file.endswith(".yaml") and not test_configs.is_sweep(path):
            for way in CONFIG_WAYS:
                yield name, way, WAYS[way], lambda n=name, p=path, w=way: of_config(build, n, p, w)


def of_config(build, name, path, way):
    import test_configs
    found = build.train(f"runs/{name}-{way}", path, [*test_configs.OVERRIDES.get(name, []), *WAYS[way]])
    return "rejected" if found.startswith("error 64") else found  # this config does not allow this way


def rows_of_pins(build):
    for file in sorted(os.listdir(PINS)):
        path, name = os.path.join(PINS, file), file[:-5]
        with open(path) as f:
            for line in f:
                if not line.startswith("#: "):
                    continue
                ways, _, rest = line[3:].partition("|")
                label, *words = shlex.split(rest) or [""]
                for way in ways.split():
                    title = f"{label}-{way}" if label else way
                    words_of_run = [*WAYS[way], *words]  # the later of two wins
                    yield name, title, words_of_run, lambda p=path, w=words_of_run, r=f"runs/{name}-{title}": build.train(r, p, w)
        with open(path) as f:
            if "\nmethod: " in f.read():
                yield name, "trials", [], lambda p=path, n=name: trials(build, p, n)


def trials(build, path, name):
    done = build.run("sweep", path, *PORTABLE, "train.device=cpu", "train.evaluate_every=1", "--quiet", "--run-dir", f"sweeps/{name}")
    if done.returncode:
        return failure(done)
    with open(os.path.join(build.folder, "sweeps", name, "trials.csv"), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:20]


SECTIONS = {"configs": rows_of_configs, "pins": rows_of_pins}


def read_table():
    if not os.path.exists(TABLE):
        return {}
    with open(TABLE) as f:
        return {tuple(line.split()[:2]): line.split(None, 2)[2].strip() for line in f if line.strip()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ddptrain", default=os.path.join(ROOT, "build", "release", "bin", "ddptrain"))
    parser.add_argument("--only", choices=SECTIONS, action="append", help="this section; default: all")
    parser.add_argument("--write", action="store_true", help="record what was found in place of comparing it")
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of configs, without .yaml; default: all")
    options = parser.parse_args()
    ddptrain = os.path.abspath(options.ddptrain)
    os.environ.update(DDPTRAIN=ddptrain, DDPTRAIN_SOURCE=ROOT)
    sys.path.insert(0, os.path.join(ROOT, "tests", "program"))
    import test_configs
    recorded, wrong, counts = read_table(), 0, {"compared": 0, "left out": 0}
    with tempfile.TemporaryDirectory(prefix="ddptrain-states-") as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        os.symlink(os.path.join(ROOT, "datasets"), os.path.join(folder, "datasets"))
        test_configs.write_data(folder)
        build, jobs = Build(ddptrain, folder), []
        for section in options.only or SECTIONS:
            for name, run, words, compute in SECTIONS[section](build):
                if options.names and name not in options.names:
                    continue
                is_possible = build.can(words)
                counts["compared" if is_possible else "left out"] += 1
                if is_possible:
                    jobs.append(((name, run), pool.submit(compute)))
        for key, job in jobs:
            found = job.result()
            if options.write and not found.startswith("error"):
                recorded[key] = found
            elif found != recorded.get(key):
                wrong += 1
                print(f"{' '.join(key)}: {found}, recorded: {recorded.get(key)}", flush=True)
    if options.write:
        with open(TABLE, "w") as f:
            f.writelines(f"{name} {run} {found}\n" for (name, run), found in sorted(recorded.items()))
    print(f"{counts['compared']} rows, {wrong} wrong; {counts['left out']} that this machine or build cannot compute")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
