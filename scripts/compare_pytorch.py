#!/usr/bin/env python3
"""Trains a config in ddptrain and, by the script of `ddptrain export --format pytorch`, in PyTorch, and compares the losses.

    scripts/compare_pytorch.py configs/wine_mlp.yaml
    scripts/compare_pytorch.py configs/mnist_cnn.yaml --nproc 2 train.steps=20 train.epochs=null
    scripts/compare_pytorch.py --shipped [NAME ...]      20 steps of every shipped config, made small as by
                                                         tests/program/test_configs.py, on one and two ranks
    scripts/compare_pytorch.py --random 30 [SEED]        the same for random models, optimizers, schedules and samplers

The losses of all steps and evaluations are compared with those of the same script in float64. Beside the largest difference
stands PyTorch's own: the largest of two runs in float32, with and without oneDNN, and of two in float64 whose initial weights are
changed by half a unit in the last place of float32, which shows what a relu on the other side changes. Good is a difference of at
most four times that one, or of two units in the last place of float32 (2.4e-7). Exit code 1 when a config is not good, 2 when it
has no script. Needs PyTorch 2, h5py, numpy and pandas.
"""
import argparse
import contextlib
import glob
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import traceback

os.environ["OMP_NUM_THREADS"] = "1"  # before PyTorch is loaded, so that a copy of the process has no threads

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("DDPTRAIN_SOURCE", os.path.join(HERE, ".."))  # for tests/program
BINARY = os.environ.setdefault("DDPTRAIN", os.path.join(HERE, "..", "build/release/bin/ddptrain"))
NUMBER = r"(nan|-?inf|-?[\d.]+(?:e[-+]?\d+)?)"
FACTOR, FLOOR = 4, 2.4e-7


class Trouble(Exception):
    pass


def run(command, expected=0):
    p = subprocess.run(command, capture_output=True, text=True, check=False,
                       env=dict(os.environ, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", PYTHONWARNINGS="ignore"))
    if p.returncode != expected:
        raise Trouble(f"{' '.join(command)}: exit code {p.returncode}\n{(p.stdout + p.stderr)[-1500:]}")
    return p.stdout


def train(config, folder, nproc, overrides):
    """The losses of steps and evaluations of ddptrain."""
    run([BINARY, config, *overrides, "train.log_every=1", "train.device=cpu", "--run-dir", folder, "--quiet", "--nproc", str(nproc)])
    steps, evaluations = [], []
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["event"] == "step":
                steps.append(line["loss"])
            if line["event"] == "epoch" and line.get("val_loss") is not None:
                evaluations.append(line["val_loss"])
    return steps, evaluations


def execute(code, output):
    """Runs a script in this process; what it prints goes to the file."""
    import torch
    torch.set_num_threads(1)
    torch.save = lambda *_: None
    with open(output, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        exec(compile(code, "train.py", "exec"), {"__name__": "__main__"})


def execute_ranks(code, output, nproc):
    """The same as [nproc] ranks, in processes that need not load PyTorch again."""
    import torch.distributed
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    sys.stdout.flush()
    for rank in range(nproc):
        child = os.fork()
        if child:
            children.append(child)
            continue
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where Gloo prints
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(nproc), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        try:
            execute(code, output if rank == 0 else os.devnull)
            torch.distributed.destroy_process_group()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if any([os.waitpid(child, 0)[1] for child in children]):
        raise Trouble("a rank of the script failed")


CHANGED = """model.to(device, dtype)
with torch.no_grad(), torch.random.fork_rng():
    torch.manual_seed({seed})
    for p in model.parameters():
        p.mul_(1 + 6e-8 * (2 * torch.rand(p.shape, dtype=dtype) - 1))
"""


def losses(script, nproc, dtype, uses_onednn=True, seed=None):
    """[seed]: of a change of the initial weights by at most half a unit in the last place of float32; None: none."""
    with open(script, encoding="utf-8") as file:
        code = file.read().replace("dtype = torch.float32", f"torch.backends.mkldnn.enabled = {uses_onednn}\ndtype = torch.{dtype}")
    if seed is not None:
        code = code.replace("model.to(device, dtype)\n", CHANGED.format(seed=seed))
    output = f"{script}.{dtype}.txt"
    if nproc == 1:
        execute(code, output)
    else:
        execute_ranks(code, output, nproc)
    with open(output, encoding="utf-8") as file:
        out = file.read()
    return ([float(v) for v in re.findall(rf"^step \d+  loss {NUMBER}", out, re.M)],
            [float(v) for v in re.findall(rf"^validation loss {NUMBER}", out, re.M)])


def difference(a, b):
    if len(a) != len(b):
        raise Trouble(f"{len(a)} losses, but {len(b)} of PyTorch")
    scale = 1e-3 * max(map(abs, b), default=0)
    return max((abs(x - y) / max(abs(y), scale, 1e-30) for x, y in zip(a, b)), default=0)


def compare(config, nproc, overrides, folder):
    """(difference, PyTorch's own) of steps and of evaluations."""
    got = train(config, os.path.join(folder, "run"), nproc, overrides)
    script = os.path.join(folder, "train.py")
    run([BINARY, "export", os.path.join(folder, "run"), "--format", "pytorch", "--out", script, "--quiet"])
    exact, *single = (losses(script, nproc, *way) for way in (
        ("float64",), ("float32",), ("float32", False), ("float64", True, 0), ("float64", True, 1)))
    return [(difference(got[i], exact[i]), max(difference(one[i], exact[i]) for one in single)) for i in range(2)], got


def report(config, nproc, overrides, folder):
    """Prints a line for each kind of loss; 0: all are good."""
    name = os.path.basename(config)
    try:
        results, values = compare(config, nproc, overrides, folder)
    except Trouble as trouble:
        print(f"{name:<24} {nproc} ranks: {trouble}", flush=True)
        return 2
    failed = 0
    for what, losses_of, (own, torch) in zip(("steps", "evaluations"), values, results):
        is_good = own <= max(FACTOR * torch, FLOOR)
        failed |= not is_good
        if losses_of:
            print(f"{name:<24} {nproc} ranks {len(losses_of):>5} {what:<12} {own:.1e}  PyTorch {torch:.1e}  "
                  f"{'good' if is_good else 'DIFFERENT'}, {losses_of[0]:.4f} to {losses_of[-1]:.4f}", flush=True)
    return failed


def report_shipped(names, folder):
    sys.path.insert(0, os.path.join(HERE, "..", "tests", "program"))
    import test_configs
    failed = 0
    test_configs.write_data(folder)
    for file in sorted(glob.glob(os.path.join(HERE, "..", "configs", "*.yaml"))):
        name = os.path.splitext(os.path.basename(file))[0]
        if test_configs.is_sweep(file) or (names and name not in names):
            continue
        overrides = [value.replace("images.h5", os.path.join(folder, "images.h5")).replace("tokens.bin", os.path.join(folder, "tokens.bin"))
                     for value in test_configs.OVERRIDES.get(name, [])]
        if not any(value.startswith("train.steps=") for value in overrides):  # more steps magnify every rounding in some models
            overrides += ["train.epochs=null", "train.steps=20"]
        for nproc in (1, 2):
            with tempfile.TemporaryDirectory(dir=folder) as own:
                failed |= report(file, nproc, overrides, own)
    return failed


def random_config(source):
    """A small model of one of four kinds, with everything around it drawn, too."""
    one = source.choice
    activation = one(["relu", "tanh", "gelu", "silu", {"leaky_relu": 0.2}, {"elu": 0.5}, "mish"])
    kind = one(["mlp", "cnn", "series", "text"])
    norm = one(["batch_norm", {"group_norm": 2}, "instance_norm"])
    hidden = [{"dropout": one([0.1, 0.4])}] if source.random() < 0.5 else []
    layers = {
        "mlp": [{"linear": one([8, 16])}, activation, {"linear": 16}, {"residual": {"layers": ["layer_norm", {"linear": 16}, activation, *hidden]}}, {"linear": 3}],
        "cnn": [{"conv2d": {"out": 6, "kernel_size": 3, "padding": one([0, 1]), "bias": one([True, False])}}, norm, activation,
                one([{"max_pool2d": 2}, {"avg_pool2d": 2}, {"dropout2d": 0.2}]), {"adaptive_avg_pool2d": 2}, "flatten", *hidden, {"linear": 3}],
        "series": [{one(["lstm", "gru", "rnn"]): {"hidden_size": 6, "bidirectional": one([True, False]), "output": "last"}}, {"linear": 3}],
        "text": [{"embedding": 16}, "positional_embedding", {"repeat": {"times": 2, "name": "h", "layers": [
            {"residual": {"name": "", "layers": [{"rms_norm": {"name": "a"}}, {"attention": {"heads": 2, "causal": True, "dropout": one([0, 0.2]), "name": "b"}}]}},
            {"residual": {"name": "", "layers": [{"layer_norm": {"name": "c"}}, {"linear": {"out": 32, "name": "d"}}, activation, {"linear": {"out": 16, "name": "e"}}, *hidden]}}]}},
            {"linear": 27}]}[kind]
    inputs = {"mlp": [9], "cnn": [3, 8, 8], "series": [7, 4], "text": None}[kind]
    has_classes = kind == "text" or source.random() < 0.6
    dataset = {"split": one([{"test": 0.2, "seed": 3}, {"train": 0.8, "seed": 3}, {"test": 0.25, "shuffle": False}, {"test": 0.2, "validation": 0.25, "seed": 1}])}
    if kind == "text":
        dataset = {"path": "text.txt", "text": {"block_size": 8, "stride": 8}, "split": {"test": 0.2, "shuffle": False}}
    else:
        dataset |= {"format": "synthetic", "synthetic": {"kind": "classes" if has_classes else one(["linear", "uniform"]), "rows": one([61, 90]), "inputs": inputs,
                                                         "targets": 3, "classes": 3, "noise": 0.5}, "scale": one(["none", "standard", "minmax"])}
    loss = one([{"type": "cross_entropy", "label_smoothing": one([0, 0.1])}]) if has_classes else {"type": one(["mse", "l1", "smooth_l1", "huber"])}
    name = one(["sgd", "adam", "adamw", "adagrad", "rmsprop", "lion", "nadam", "radam", "adamax", "adadelta"])
    optimizer = {"type": name, "lr": {"sgd": 0.05, "adadelta": 1, "lion": 0.001}.get(name, 0.005), "weight_decay": one([0, 0.01]), "decay": one(["all", "matrices"])}
    if name == "sgd":
        optimizer |= one([{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
    if source.random() < 0.4:
        optimizer["groups"] = [{"min_dims": 2, "lr_factor": 0.5}]
    schedule = one([{"type": "constant"}, {"type": "cosine", "interval": "step", "warmup": 2}, {"type": "step", "step_size": 1}, {"type": "exponential", "gamma": 0.9},
                    {"type": "linear"}, {"type": "polynomial", "power": 2}, {"type": "cosine_restarts", "t_0": 3, "interval": "step"}, {"type": "one_cycle", "interval": "step",
                     "cycle_momentum": name in ("sgd", "adam", "adamw") and optimizer.get("momentum", 1) != 1 or name in ("adam", "adamw")}])
    sampler = {"batch_size": one([8, 12]), "shuffle": one([True, True, False]), "seed": one([0, 5]), "drop_last": one([True, False]), "drop_last_batch": one([True, False])}
    train = {"epochs": 3, "accumulate": one([1, 1, 2, 3]), **one([{}, {"clip_grad_norm": 1.0}, {"clip_grad_value": 0.2}]), "ema": one([0, 0.9]), "evaluate_every": one([1, 2])}
    return {"name": f"random_{kind}_{name}", "seed": source.randrange(1000), "dataset": dataset, "sampler": sampler, "model": {"layers": layers}, "loss": loss,
            "optimizer": optimizer, "schedule": schedule, "train": train}


def report_random(count, seed, folder):
    failed, source = 0, random.Random(seed)
    os.chdir(folder)
    with open("text.txt", "w", encoding="utf-8") as file:
        file.write("the quick brown fox jumps over the lazy dog " * 30)
    for number in range(count):
        config = random_config(source)
        path = f"{number:02}_{config['name']}.yaml"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        for nproc in (1, 2):
            with tempfile.TemporaryDirectory(dir=folder) as own:
                result = report(path, nproc, [], own)
                if result:
                    print(json.dumps(config))
                failed |= result
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("words", nargs="*", help="CONFIG [KEY=VALUE ...], or with --shipped names of configs")
    parser.add_argument("--nproc", type=int, default=1)
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(prefix="ddptrain-compare-") as folder:
        if options.random:
            return report_random(options.random, int((options.words or [0])[0]), folder)
        if options.shipped:
            return report_shipped(options.words, folder)
        return report(options.words[0], options.nproc, options.words[1:], folder)


if __name__ == "__main__":
    sys.exit(main())
