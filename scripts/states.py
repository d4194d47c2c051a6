#!/usr/bin/env python3
"""Compares what this build computes with what tests/states.txt recorded of an earlier one, bit by bit.

    scripts/states.py [--ddptrain build/release/bin/ddptrain] [--only SECTION] [--write] [NAME ...]

For changes that are to keep every bit: a test that compares two runs of one build cannot see what changes in both. Sections:

    configs   the shipped configs, made small as by tests/program/test_configs.py, in each of CONFIG_WAYS
    pins      the configs of tests/states: `#: WAYS | LABEL ARGUMENTS` are their runs, one for each way
    plans     what `check` prints of the shipped configs: sizes, memory, buckets
    exports   predictions, the ONNX file and what the compiled C file computes, of the shipped configs and of the models of
              tests/program/test_export_c.py, which have every layer
    gradients loss and gradients of every layer and loss, the cases of tests/model/gradient_cases.h

A row is the name, the run, the hash of the state and that of the losses, rates, norms and metrics on the way to it; of an export
those of predictions, ONNX file and outputs of the C file ("none": not allowed, or so long that compiling it takes minutes).

Runs on the CPU in float32 have portable arithmetic, whose bits are the same with every processor; those in bfloat16 need one with
AVX-512 BF16 and without AMX, those on a GPU a build with -DDDPTRAIN_EMULATION=ON; else they are left out. Builds by gcc and by clang
have the same bits. --write records what was found, after a change that is to change it; the commit says which rows and why. Prints
a line for each row that differs, and a summary; exit 1 when one did.
"""
import argparse
import concurrent.futures
import ctypes
import hashlib
import json
import os
import re
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
    "gpu_zero2": [*GPU, "--nproc", "2", "dist.zero_stage=2"],
    "gpu_zero3": [*GPU, "--nproc", "2", "dist.zero_stage=3"],
    "gpu_bfloat16": [*GPU, "train.precision=bfloat16"],
    "float16": [*GPU, "--nproc", "2", "train.precision=float16", "dist.zero_stage=1", "train.clip_grad_norm=0.5"],
}
PLANS = {
    "plan": ["--nproc", "1", "sampler.batch_size=512"],
    "plan_zero": ["--nproc", "2", "sampler.batch_size=512", "dist.zero_stage=1", "train.ema=0.9", STORED],
    "plan_gpu": ["--nproc", "1", "sampler.batch_size=16", *GPU],  # the emulated one fills new memory, which takes time
    "plan_gpu_bfloat16": ["--nproc", "1", "sampler.batch_size=16", *GPU, "train.precision=bfloat16"],
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


def digits(data, count):
    return hashlib.sha256(data).hexdigest()[:count]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def failure(done):
    return done.returncode and f"error {done.returncode}: {done.stderr.strip().splitlines()[-1]}"


def of_metrics(run):
    """The first digits of the hash of the final state, and of those of all numbers on the way that are the same each time."""
    with open(os.path.join(run, "metrics.jsonl")) as f:
        events = [event for event in map(json.loads, f) if event["event"] != "checkpoint"]  # whose time decides when there is one
    numbers = hashlib.sha256()
    for event in events:
        kept = {key: value for key, value in event.items() if not key.endswith(OTHER_EACH_TIME)}
        if event["event"] == "epoch":
            kept.pop("step", None)  # that of the last step's line, which older builds did not write again
        numbers.update(json.dumps(kept, sort_keys=True).encode())
    return f"{events[-1]['state_sha256'][:20]} {numbers.hexdigest()[:12]}"


def shipped():
    """Names, paths and overrides of the shipped configs."""
    import test_configs
    configs = os.path.join(ROOT, "configs")
    for file in sorted(os.listdir(configs)):
        path, name = os.path.join(configs, file), file[:-5]
        if file.endswith(".yaml") and not test_configs.is_sweep(path):
            yield name, path, test_configs.OVERRIDES.get(name, [])


def rows_of_configs(build):
    for name, path, overrides in shipped():
        for way in CONFIG_WAYS:
            yield name, way, WAYS[way], lambda n=name, p=path, w=[*overrides, *WAYS[way]], r=f"runs/{name}-{way}": of_config(build, r, p, w)


def of_config(build, run, path, words):
    found = build.train(run, path, words)
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
                    sections = [w for w in words if "={" in w]  # before their keys; else the later of two wins
                    words_of_run = [*sections, *WAYS[way], *(w for w in words if w not in sections)]
                    yield name, title, words_of_run, lambda p=path, w=words_of_run, r=f"runs/{name}-{title}": build.train(r, p, w)
        with open(path) as f:
            if "\nmethod: " in f.read():
                yield name, "trials", [], lambda p=path, n=name: trials(build, p, n)


def trials(build, path, name):
    done = build.run("sweep", path, *PORTABLE, "train.device=cpu", "train.evaluate_every=1", "--quiet", "--run-dir", f"sweeps/{name}")
    if done.returncode:
        return failure(done)
    return digits(read(os.path.join(build.folder, "sweeps", name, "trials.csv")), 20)


def rows_of_plans(build):
    for name, path, overrides in shipped():
        is_batchify = "type: batchify" in read(path).decode()
        for plan, words in PLANS.items():
            words = [word.replace("batch_size", "global_batch_size") if is_batchify else word for word in words]
            yield name, plan, words, lambda p=path, w=[*overrides, *words]: of_check(build, p, w)


def of_check(build, path, words):
    """The memory, and a hash of all that does not tell about this machine."""
    is_gpu = "train.device=cuda" in words
    done = build.run("check", path, *words, *([] if is_gpu else ["train.device=cpu"]), gpu=is_gpu)
    if done.returncode:
        return "rejected" if done.returncode == 64 else failure(done)
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("device ", "not here ", "GPU code ")) and not line.endswith("memory are free here")]
    memory = "/".join(re.findall(r"[0-9.]+(?= [a-z])|[0-9.]+(?= MiB)", next(line for line in lines if re.match("(GPU )?memory ", line))))
    text = chr(10).join(lines).replace(ROOT, "")  # a warning names a folder
    return f"{digits(text.encode(), 12)} {memory}"


def rows_of_exports(build):
    import test_export_c
    for name, path, overrides in shipped():
        yield name, "export", [], lambda p=path, o=overrides, r=f"runs/{name}-export": of_export(build, r, p, o)
    for name in [*test_export_c.LAYERS, *test_export_c.PADDED]:
        yield name, "export", [], lambda n=name: of_layers(build, n)


def of_layers(build, name):
    """Of a model of the tests, with the rows of its dataset."""
    import test_export_c
    folder = os.path.join(build.folder, "export-" + name)
    os.mkdir(folder)
    own = Build(build.ddptrain, folder)
    if name in test_export_c.PADDED:
        config, rows = test_export_c.write_padded(folder, name)
    else:
        config, rows = test_export_c.write_layers(folder, *test_export_c.LAYERS[name])
    with open(os.path.join(folder, "test.yaml"), "w") as f:
        f.write(config)
    return of_export(own, "runs/test", "test.yaml", ["dataset.prefetch=0"], rows)


def of_export(build, run, path, overrides, rows=None):
    trained = build.train(run, path, overrides)
    if trained.startswith("error"):
        return trained
    predicted = build.run("predict", path, *overrides, *PORTABLE, "train.device=cpu", "--run-dir", run, "--outputs", "--out", run + ".csv")
    found = [digits(read(os.path.join(build.folder, run + ".csv")), 12) if predicted.returncode == 0 else "none"]
    for extension in "onnx", "c":
        file = os.path.join(build.folder, f"{run}.{extension}")
        done = build.run("export", run, "--out", file)
        if done.returncode not in (0, 64):
            return failure(done)
        if done.returncode or (extension == "c" and os.path.getsize(file) > 4e6):  # takes a compiler minutes
            found.append("none")
        else:
            found.append(digits(read(file) if extension == "onnx" else outputs_of_c(file, rows), 12))
    return " ".join(found)


def outputs_of_c(file, rows):
    """What the functions of an exported file give for [rows], or for rows of small integers, which are tokens as well."""
    import numpy as np
    library, header = file[:-1] + "so", read(file[:-1] + "h").decode()
    subprocess.run(["cc", "-O2", "-std=c99", "-fPIC", "-shared", file, "-o", library, "-lm"], check=True)
    predict = ctypes.CDLL(library).model_predict
    sizes = dict(re.findall(r"#define MODEL_(\w+) (\d+)", header))
    columns = re.findall(r"^    (double|const char \*) ?(\w+); /\* .*?: ([^,;*\n]+)", header, re.M)  # of a row of a table, and what is in them
    if rows is None:
        size = int(sizes.get("INPUTS", len(columns)))
        rows = (np.arange(3 * size) * 7 % 5).reshape(3, size)
    results, codes = np.zeros((len(rows), int(sizes["OUTPUTS"])), "f4"), []
    for row, result in zip(np.ascontiguousarray(rows.reshape(len(rows), -1), "f4"), results):
        argument = row.ctypes.data_as(ctypes.c_void_p)
        if columns:
            table = type("Row", (ctypes.Structure,), {"_fields_": [(c, ctypes.c_double if t == "double" else ctypes.c_char_p) for t, c, _ in columns]})
            argument = ctypes.byref(table(*[1 + int(v) % 3 if t == "double" else b"2001-02-03" if "a date" in known else known.split(" ")[0].encode()
                                            for (t, _, known), v in zip(columns, row)]))
        codes.append(predict(argument, result.ctypes.data_as(ctypes.c_void_p)))
    return results.tobytes() + bytes(codes)


def rows_of_gradients(build):
    """Loss and gradients of the cases of tests/model/gradient_cases.h."""
    path, test = os.path.join(build.folder, "gradients.txt"), os.path.join(os.path.dirname(build.ddptrain), "model_gradients")
    done = subprocess.run([test], env={**os.environ, "DDPTRAIN_RECORD": path, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    lines = [failure(done)] if done.returncode else read(path).decode().splitlines()
    names = [digits(line.split(" ", 1)[-1].encode(), 8) for line in lines]
    for number, line in enumerate(lines):  # a case has a row for each loss
        name = f"case_{names[number]}.{names[:number].count(names[number])}"
        yield "gradients", name, [], lambda line=line: line


SECTIONS = {"configs": rows_of_configs, "pins": rows_of_pins, "plans": rows_of_plans, "exports": rows_of_exports, "gradients": rows_of_gradients}


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
