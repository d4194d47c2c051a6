#!/usr/bin/env python3
"""Trains a config in ddptrain and, by the script of `ddptrain export --format pytorch`, in PyTorch, and compares the losses.

    scripts/compare_pytorch.py configs/wine_mlp.yaml
    scripts/compare_pytorch.py configs/mnist_cnn.yaml --nproc 2 train.steps=20 train.epochs=null
    scripts/compare_pytorch.py --shipped [NAME ...]      20 steps of every shipped config, made small as by
                                                         tests/program/test_configs.py, on one and two ranks
    scripts/compare_pytorch.py --random 30 [SEED]        the same for random models, optimizers, schedules and samplers
    scripts/compare_pytorch.py --table [NAME ...]        a few steps of a table of layers, losses, optimizers, schedules and data, and of some
                                                         shipped configs: a test of CI

The losses of all steps and evaluations are compared with those of the same script in float64. Beside the largest difference
stands PyTorch's own: the largest of two runs in float32, with and without oneDNN, and of two in float64 whose initial weights are
changed by half a unit in the last place of float32, which shows what a relu on the other side changes. Good is a difference of at
most four times that one, or of two units in the last place of float32 (2.4e-7). A row of the table runs in fewer of these ways
where they show that it is good. Exit code 1 when a config is not good, 2 when it has no script. Needs PyTorch, h5py and numpy, and
for some configs pandas and Pillow. With PyTorch 1.13, Debian's, a row of the table whose script calls what this version lacks is
listed with its name.
"""
import argparse
import concurrent.futures
import contextlib
import glob
import json
import os
import random
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import traceback
import warnings

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
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.save = lambda *_: None
    with open(output, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        exec(compile(code, "train.py", "exec"), {"__name__": "__main__"})


def execute_ranks(code, output, nproc):
    """The same as [nproc] ranks, in processes that need not load PyTorch again."""
    import torch.distributed  # before the processes are started
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


def is_good(own, torch):
    return own <= max(FACTOR * torch, FLOOR)


def compare(config, nproc, overrides, folder, is_quick=False):
    """(difference, PyTorch's own) of steps and of evaluations; quick: only until PyTorch's own, which grows, makes both good."""
    got = train(config, os.path.join(folder, "run"), nproc, overrides)
    script = os.path.join(folder, "train.py")
    run([BINARY, "export", os.path.join(folder, "run"), "--format", "pytorch", "--out", script, "--quiet"])
    exact = losses(script, nproc, "float64")
    own, torch = [difference(got[i], exact[i]) for i in range(2)], [0, 0]
    for way in ("float32",), ("float32", False), ("float64", True, 0), ("float64", True, 1):
        one = losses(script, nproc, *way)
        torch = [max(torch[i], difference(one[i], exact[i])) for i in range(2)]
        if is_quick and all(map(is_good, own, torch)):
            break
    return list(zip(own, torch)), got


def report(config, nproc, overrides, folder, is_quick=False):
    """Prints a line for each kind of loss; 0: all are good."""
    name = os.path.basename(config)
    try:
        results, values = compare(config, nproc, overrides, folder, is_quick)
    except (Trouble, AttributeError, TypeError, ImportError) as trouble:  # what this version of PyTorch or this machine lacks
        print(f"{name:<24} {nproc} ranks: {type(trouble).__name__}: {trouble}", flush=True)
        return 2
    failed = 0
    for what, losses_of, (own, torch) in zip(("steps", "evaluations"), values, results):
        failed |= not is_good(own, torch)
        if losses_of:
            print(f"{name:<24} {nproc} ranks {len(losses_of):>5} {what:<12} {own:.1e}  PyTorch {torch:.1e}  "
                  f"{'good' if is_good(own, torch) else 'DIFFERENT'}, {losses_of[0]:.4f} to {losses_of[-1]:.4f}", flush=True)
    return failed


def shipped(folder, names=(), steps=20):
    """(file, overrides) of the shipped configs, made small."""
    sys.path.insert(0, os.path.join(HERE, "..", "tests", "program"))
    import test_configs
    test_configs.write_data(folder)
    for file in sorted(glob.glob(os.path.join(HERE, "..", "configs", "*.yaml"))):
        name = os.path.splitext(os.path.basename(file))[0]
        if test_configs.is_sweep(file) or (names and name not in names):
            continue
        overrides = [value.replace("images.h5", os.path.join(folder, "images.h5")).replace("tokens.bin", os.path.join(folder, "tokens.bin"))
                     for value in test_configs.OVERRIDES.get(name, [])]
        if not any(value.startswith("train.steps=") for value in overrides):  # more steps magnify every rounding in some models
            overrides += ["train.epochs=null", f"train.steps={steps}"]
        yield file, overrides + ["optimizer.lr=0.001"] * (name == "resnet50")  # 0.1 without warm-up: it diverges in its only step


def report_shipped(names, folder):
    failed = 0
    for file, overrides in shipped(folder, names):
        for nproc in (1, 2):
            with tempfile.TemporaryDirectory(dir=folder) as own:
                failed |= report(file, nproc, overrides, own)
    return failed


# ---- the table ----

# What PyTorch 1.13 lacks: the row of the table, and a word of its error; and what it computes in another way than 2.0 and later.
LACKS = {"optimizer_adafactor": "Adafactor", "optimizer_muon": "Muon", "layers_layer_norm.bias": "bias", "optimizer_nadam_decoupled": "decoupled_weight_decay", "optimizer_radam_decoupled": "decoupled_weight_decay"}
DIFFERS = {"optimizer_nadam": "its NAdam multiplies by mu twice"}

CHEAP = ["char_gpt_small", "image_folder", "iris_csv", "lstm_series", "series_forecast", "siamese", "titanic", "toy_linear", "two_heads", "wide_and_deep", "wide_mlp", "wine_mlp"]

LOSSES = [
    ("cross_entropy, label_smoothing: 0.1, weight: [1, 2, 3]", "classes"), ("cross_entropy, weight: balanced", "classes"), ("cross_entropy, ignore_index: 1", "classes"),
    ("mse", "uniform"), ("l1", "uniform"), ("smooth_l1, beta: 0.5", "uniform"), ("huber, delta: 0.1", "uniform"), ("quantile, quantile: 0.9", "uniform"),
    ("bce_with_logits, pos_weight: [1, 2, 3]", "uniform"), ("kl_div, reduction: batchmean", "uniform"), ("poisson_nll", "uniform"), ("focal", "uniform"), ("dice", "uniform"),
    ("soft_cross_entropy, label_smoothing: 0.1, weight: [1, 2, 3]", "uniform"), ("nll", "classes"), ("multi_margin, p: 2, weight: balanced", "classes"), ("expression, expression: 'mean((y - t) ^ 2) * mean(2) + 010'", "uniform")]
SIGNS = ["hinge_embedding, margin: 2", "soft_margin", "margin_ranking, margin: 0.1"]  # of targets -1 and 1
OF_OUTPUTS = "{type: gaussian_nll, target: number}, {type: contrastive, output: pairs}, {type: triplet_margin, output: triples}, {type: kl_normal, output: pairs, name: kl}"
# what no script has, and where tests/program/test_export_pytorch.py finds the sentence that refuses it
REFUSED = {"lbfgs"}
OPTIMIZERS = {
    "sgd": "", "sgd_momentum": "momentum: 0.9, nesterov: true, weight_decay: 0.01", "adam": "betas: [0.8, 0.9], eps: 0.001", "adam_amsgrad": "amsgrad: true, weight_decay: 0.1",
    "adamw": "weight_decay: 0.1, decay: matrices", "adagrad": "", "rmsprop": "momentum: 0.9, centered: true", "lion": "", "nadam": "", "nadam_decoupled": "weight_decay: 0.1, decoupled_weight_decay: true",
    "radam": "", "radam_decoupled": "weight_decay: 0.1, decoupled_weight_decay: true", "adamax": "", "adadelta": "", "rprop": "etas: [0.4, 1.3]", "asgd": "lambd: 0.1, t0: 3, weight_decay: 0.1", "adafactor": "weight_decay: 0.1, d: 1.5", "muon": "adjust_lr: match_rms_adamw, adamw_match: '2.*', adamw: {lr: 0.01}", "sgd_maximize": "maximize: true", "lion_maximize": "maximize: true",
    "groups_adam": "groups: [{match: '0.*', lr_factor: 0.5}]"}
SCHEDULES = ["constant, warmup: 2", "step, step_size: 2", "multistep, milestones: [1, 3]", "exponential, gamma: 0.5", "linear, interval: step", "polynomial, power: 2", "cosine, warmup: 1",
             "cosine_restarts, t_0: 2, interval: step", "one_cycle, interval: step", "cyclic, max_lr: 0.03, interval: step, step_size_up: 3", "piecewise, points: {0: 1, 3: 0.2}",
             "reduce_on_plateau, patience: 0, threshold: 0.5"]
TRAINS = {"early_stop": "epochs: 30, early_stop: {patience: 1, min_delta: 0.2}", "accumulate": "epochs: 2, accumulate: 3, clip_grad_norm: 0.5", "ema": "epochs: 3, ema: 0.9, clip_grad_value: 0.01",
          "bfloat16": "epochs: 3, precision: bfloat16, device: cpu"}
SAMPLERS = {"weighted": "type: weighted, batch_size: 8", "dataloader": "type: dataloader, batch_size: 8", "dataloader_to_one_row": "type: dataloader, batch_size: 47", "drop_last": "batch_size: 12, drop_last: true, drop_last_batch: true", "uneven": "batch_size: 8, uneven: true"}
SPLITS = ["test: 0.2, validation: 0.25, seed: 1", "train: 0.8, seed: 3", "folds: 5, fold: 1, seed: 2", "folds: 4, fold: 3, stratify: true", "test: 0.3, shuffle: false", "test: 0.2, stratify: true"]
WINE = os.path.join(HERE, "..", "datasets", "wine.h5")
AUGMENTATIONS = ["random_crop: 3, horizontal_flip: 0.5, rotation: 30", "random_resized_crop: [0.2, 1], vertical_flip: 0.5, rotation: {degrees: [10, 80], interpolation: bilinear}",
                 "color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.2}, erasing: 0.7"]


def wine(loss="cross_entropy", optimizer="{type: adam, lr: 0.01}", schedule="constant", train="{epochs: 4}", sampler="{batch_size: 32}", split="{test: 0.2, seed: 42}"):
    return (f"dataset: {{path: {WINE}, scale: standard, split: {split}}}\nsampler: {sampler}\nmodel: {{layers: [{{linear: 8}}, tanh, {{linear: 3}}]}}\n"
            f"loss: {loss}\noptimizer: {optimizer}\nschedule: {schedule}\ntrain: {train}\n")


def layer_rows(folder):
    """Of tests/vectors/layers.json as many models as have each layer, with random rows."""
    import h5py
    import numpy as np
    random_rows, seen = np.random.default_rng(0), set()
    with open(os.path.join(HERE, "..", "tests", "vectors", "layers.json"), encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    for number, case in enumerate(cases):
        new = {key for key in case["keys"] if "." not in key or key == "layer_norm.bias"} - seen
        if not new or case["vocabulary"] or "sync: true" in case["layers"]:
            continue
        seen |= new
        path, has_lengths = os.path.join(folder, f"layers_{number}.h5"), "sequence_lengths" in case["layers"]
        with h5py.File(path, "w") as file:
            file["x"] = random_rows.standard_normal((12, *case["shape"]))
            file["n"] = random_rows.integers(1, 6, (12, 1))
            file["y"] = random_rows.standard_normal((12, len(case["outputs"]) // case["rows"]))
        inputs = "{series: [x], steps: [n]}" if has_lengths else "[x]"
        name = "layer_norm.bias" if "layer_norm.bias" in new else min(new)
        yield f"layers_{name}", (f"dataset: {{path: {path}, inputs: {inputs}, targets: [y]}}\nsampler: {{batch_size: 5}}\nmodel: {{layers: {case['layers']}, freeze: {case['freeze']}}}\n"
                                 "loss: mse\noptimizer: {type: sgd, lr: 0.05}\ntrain: {epochs: 2}\n"), 1


def written_rows(folder):
    """Data of its own: a CSV file with semicolons, decimal commas, groups and missing values, a series with lengths."""
    import h5py
    import numpy as np
    source = np.random.default_rng(1)
    path = os.path.join(folder, "table.csv")
    with open(path, "w", encoding="latin-1") as file:
        file.write("# made by hand\na;b;gr\u00f6\u00dfe;person;y\n")
        for i in range(48):
            numbers = [f"{value:.3f}".replace(".", ",") for value in source.random(3)]
            file.write(f"{numbers[0]};{numbers[1]};{i % 5};p{source.integers(9)};{numbers[2] if i % 9 else '?'}\n")
    end = "sampler: {batch_size: 8}\nmodel: {layers: [{linear: 4}, tanh, {linear: 1}]}\nloss: mse\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 2}\n"
    start = f"dataset: {{path: {path}, csv: {{encoding: latin-1}}, missing: ['?'], targets: [y], scale: standard"
    yield "csv", f"{start}, drop_missing_targets: true, inputs: [a, gr\u00f6\u00dfe], split: {{test: 0.25}}}}\n{end}", 1
    for split in ("test: 0.3", "folds: 3, fold: 1"):
        yield "csv_group_" + split.split(":")[0], f"{start}, inputs: [a, b], targets: [gr\u00f6\u00dfe], split: {{{split}, group: person}}}}\n{end}".replace("targets: [y], ", ""), 1
    path = os.path.join(folder, "series.h5")
    targets = source.integers(1, 5, (20, 4))
    targets[np.arange(4) >= source.integers(1, 5, (20, 1))] = -100
    with h5py.File(path, "w") as file:
        file["x"], file["n"], file["y"] = source.standard_normal((20, 9, 3)), source.integers(5, 10, (20, 1)), targets
    yield "ctc_dropout", (
        f"dataset: {{path: {path}, inputs: {{series: [x], steps: [n]}}, targets: [y], split: {{test: 0.25}}}}\nsampler: {{batch_size: 8}}\n"
        "model: {layers: [{sequence_lengths: {from: [series, steps]}}, {lstm: {hidden_size: 4, num_layers: 3, dropout: 0.3, bidirectional: true}}, {linear: 5}, log_softmax]}\n"
        "loss: {type: ctc, zero_infinity: true}\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 2}\n"), 2
    for kind, states in (("lstm", "[h, c]"), ("gru", "h"), ("rnn", "h")):
        yield f"states_{kind}", (
            f"dataset: {{path: {path}, inputs: {{series: [x], steps: [n]}}, targets: [y], split: {{test: 0.25}}}}\nsampler: {{batch_size: 8}}\n"
            f"model: {{layers: [{{sequence_lengths: {{from: [series, steps], name: x}}}}, {{{kind}: {{hidden_size: 4, num_layers: 2, dropout: 0.3, bidirectional: true, "
            f"initial_state: learned, last_state: {states}, name: e}}}}, {{{kind}: {{hidden_size: 4, num_layers: 2, bidirectional: true, from: x, initial_state: {states}}}}}, "
            "{add: {from: e}}, {linear: 5}, log_softmax]}\n"
            "loss: {type: ctc, zero_infinity: true}\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 2}\n"), 2


    with contextlib.closing(sqlite3.connect(os.path.join(folder, "rows.db"))) as database:
        database.execute("create table people (a real, n integer, ok text, kind text, y text)")
        database.executemany("insert into people values (?, ?, ?, ?, ?)", [
            (None if i % 8 == 0 else source.random(), int(source.integers(5)), ("yes", "no")[i % 2], ("red", "green")[source.integers(2)], ("u", "v")[source.integers(2)])
            for i in range(40)])
        database.commit()
    yield "sqlite", (f"dataset: {{path: {folder}/rows.db, columns: {{a: {{missing: mean}}, ok: boolean, kind: category}}, targets: [y], scale: standard, split: {{test: 0.25}}}}\n"
                     + end.replace("linear: 1", "linear: 2").replace("mse", "cross_entropy")), 1
    for part in range(2):
        with open(os.path.join(folder, f"part-{part}.csv"), "w", encoding="utf-8") as file:
            file.write("a,b,city,y\n" + "".join(f"{source.random()},{9 * source.random()},{('DE', 'FR')[source.integers(2)]},{source.random()}\n" for _ in range(30)))
    yield "csv_parts", f"dataset: {{path: {folder}/part-*.csv, filter: \"b > 1.5 and city == 'DE'\", columns: {{city: category}}, targets: [y], split: {{test: 0.25}}}}\n{end}", 1
    yield "csv_expression", (f"dataset: {{path: {folder}/part-*.csv, columns: {{city: category, ratio: {{expression: \"where(b > 3, a / b, 2 * a)\"}}, "
                             f"goal: {{expression: \"log1p(b) + y\"}}}}, targets: [goal], scale: standard, split: {{test: 0.25}}}}\n{end}"), 1
    with open(os.path.join(folder, "blanks.csv"), "w", encoding="utf-8") as file:
        file.write(" a , b,kind , y\n" + "".join(f" {source.random()} ,{source.random()},{('p', 'q ')[source.integers(2)]}, {('u', 'v ')[source.integers(2)]}\n" for _ in range(40)))
    for columns in "{}", "{kind: category}":
        inputs = "" if "kind" in columns else ", inputs: [a, b]"
        yield f"csv_blanks_{'category' if 'kind' in columns else 'numbers'}", (f"dataset: {{path: {folder}/blanks.csv, columns: {columns}{inputs}, targets: [y], split: {{test: 0.25}}}}\n"
                                                                              + end.replace("linear: 1", "linear: 2").replace("mse", "cross_entropy")), 1
    with h5py.File(os.path.join(folder, "tokens.h5"), "w") as file:
        file["x"], file["y"] = source.integers(0, 30, (20, 3)), source.random((20, 2))
    for name, after in (("embedding", ", flatten"), ("embedding_bag", "")):
        yield f"layers_{name}", (f"dataset: {{path: {folder}/tokens.h5, split: {{test: 0.25}}}}\nsampler: {{batch_size: 5}}\nmodel: {{layers: [{{{name}: {{num_embeddings: 30, embedding_dim: 4}}}}"
                                 f"{after}, {{linear: 2}}]}}\nloss: mse\noptimizer: {{type: sgd, lr: 0.05}}\ntrain: {{epochs: 2}}\n"), 1
    with open(os.path.join(folder, "signs.csv"), "w", encoding="utf-8") as file:
        file.write("a,b,sign,number\n" + "".join(f"{source.random()},{source.random()},{source.choice([-1, 1])},{source.random()}\n" for _ in range(40)))
    signs = f"dataset: {{path: {folder}/signs.csv, inputs: [a, b], targets: {{sign: sign, number: number}}, split: {{test: 0.25}}}}\n"
    for loss in SIGNS:
        yield "loss_" + loss.split(",")[0], (signs.replace("{sign: sign, number: number}", "sign") + end.replace("loss: mse", f"loss: {{type: {loss}}}")
                                             .replace("linear: 1", f"linear: {2 if 'ranking' in loss else 1}")), 1
    with open(os.path.join(folder, "lists.csv"), "w", encoding="utf-8") as file:
        file.write("a,b,first,second\n" + "".join(f"{source.random()},{source.random()},{source.integers(3)},{source.integers(-1, 3)}\n" for _ in range(40)))
    for name, loss in ("", "loss: multilabel_margin"), ("_of_several", "losses: [{type: multilabel_margin}]"):
        yield "loss_multilabel_margin" + name, (f"dataset: {{path: {folder}/lists.csv, targets: [first, second], split: {{test: 0.25}}}}\n"
                                                + end.replace("loss: mse", loss).replace("linear: 1", "linear: 3")), 1
    with h5py.File(os.path.join(folder, "lists.h5"), "w") as file:
        file["x"], file["n"], file["y"] = source.random((20, 4, 3)), source.integers(1, 5, (20, 1)), source.integers(-1, 3, (20, 4, 2))
    yield "loss_multilabel_margin_of_lengths", (f"dataset: {{path: {folder}/lists.h5, inputs: {{x: x, n: n}}, targets: y, split: {{test: 0.25}}}}\nsampler: {{batch_size: 5}}\n"
                                                "model: {layers: [{sequence_lengths: {from: [x, n]}}, {linear: 3}]}\nloss: multilabel_margin\noptimizer: {type: sgd, lr: 0.05}\n"
                                                "train: {epochs: 2}\n"), 2
    yield "loss_several", signs.replace("{sign: sign, number: number}", "{number: number}") + (
        "sampler: {batch_size: 8}\nmodel: {layers: [{linear: {out: 6, name: pairs}}, {linear: {from: pairs, out: 6, name: triples}}, {linear: 2}, {softplus: {name: both}}]}\n"
        f"losses: [{OF_OUTPUTS}]\noptimizer: {{type: sgd, lr: 0.01}}\ntrain: {{epochs: 2}}\n"), 1
    yield "batch_norm_sync", wine().replace("{linear: 8}", "{linear: {out: 8, bias: false}}, {batch_norm: {sync: true}}").replace("adam", "sgd"), 2


def signs_of(folder):
    """A table with a target of 0 and 1, which are numbers for a loss such as focal."""
    with open(os.path.join(folder, "zeros.csv"), "w", encoding="utf-8") as file:
        file.write("a,b,y\n" + "".join(f"{i * 7 % 11},{i * i % 5},{int(i % 3 == 0)}\n" for i in range(40)))
    return f"dataset: {{path: {folder}/zeros.csv, targets: y, scale: standard, split: {{test: 0.25}}}}\n"


def table_rows(folder):
    """(name, config, ranks)"""
    yield from layer_rows(folder)
    for loss, kind in LOSSES:
        end = ", log_softmax" if loss.startswith("kl_div") else ""
        yield "loss_" + loss.split(",")[0], (
            f"dataset: {{format: synthetic, synthetic: {{kind: {kind}, rows: 40, inputs: 5, targets: 3, classes: 3}}, split: {{test: 0.2}}}}\nsampler: {{batch_size: 8}}\n"
            f"model: {{layers: [{{linear: 6}}, tanh, {{linear: 3}}{end}]}}\nloss: {{type: {loss}}}\noptimizer: {{type: sgd, lr: 0.05}}\ntrain: {{epochs: 2}}\n"), 2 if "balanced" in loss or loss == "mse" else 1
    for name, options in OPTIMIZERS.items():
        kind = name.split("_")[-1] if name.startswith("groups") else name.split("_")[0]
        yield f"optimizer_{name}", wine(optimizer=f"{{type: {kind}, lr: {1 if kind == 'adadelta' else 0.001 if kind == 'lion' else 0.02}{', ' + options if options else ''}}}", train="{epochs: 2}"), 1
    yield "sampler_weighted_focal", (signs_of(folder) + "sampler: {type: weighted, batch_size: 8}\nmodel: {layers: [{linear: 1}]}\nloss: {type: focal}\n"
                                     "optimizer: {type: sgd, lr: 0.05}\ntrain: {epochs: 2}\n"), 1
    yield "optimizer_lion_frozen", wine(optimizer="{type: lion, lr: 0.001, maximize: true}", train="{epochs: 1}").replace("]}\nloss", "], freeze: ['0.bias']}\nloss"), 1
    for schedule in "cosine, interval: step", "reduce_on_plateau, patience: 0, threshold: 0.5":
        yield f"asgd_{schedule.split(',')[0]}", wine(optimizer="{type: asgd, lr: 0.05, t0: 3}", schedule=f"{{type: {schedule}}}"), 1
    for schedule in SCHEDULES:
        yield "schedule_" + schedule.split(",")[0], wine(schedule=f"{{type: {schedule}}}"), 2 if "plateau" in schedule else 1
    for name, train in TRAINS.items():
        yield f"train_{name}", wine(train=f"{{{train}}}"), 1 if name == "ema" else 2
    for name, sampler in SAMPLERS.items():
        yield f"sampler_{name}", wine(sampler=f"{{{sampler}}}", train="{epochs: 2}"), 1 if name.startswith(("dataloader", "uneven")) else 2
    for split in SPLITS:
        yield f"split_{split.split(':')[0]}", wine(split=f"{{{split}}}", train="{epochs: 1}"), 1
    shapes = os.path.join(HERE, "..", "datasets", "shapes")
    for augment in AUGMENTATIONS:
        yield "augment_" + augment.split(":")[0], (
            f"dataset: {{path: {shapes}, image: {{size: [20, 24], resize: 26}}, augment: {{{augment}}}, scale: standard, split: {{test: 0.2, stratify: true}}}}\nsampler: {{batch_size: 24}}\n"
            "model: {layers: [{conv2d: {out: 4, kernel_size: 3}}, tanh, {max_pool2d: 4}, flatten, {linear: 3}]}\nloss: cross_entropy\noptimizer: {type: sgd, lr: 0.05}\ntrain: {epochs: 1}\n"), 1
    # random numbers of images, whose elements the run has in another order
    yield "draws_of_images", (
        "dataset: {format: synthetic, synthetic: {kind: classes, rows: 40, inputs: 48, classes: 3}, split: {test: 0.2}}\nsampler: {batch_size: 8}\n"
        "model: {layers: [{dropout: 0.1}, {reshape: [3, 4, 4]}, {conv2d: {out: 4, kernel_size: 2, name: a}}, {dropout: 0.2}, {conv2d: {out: 4, kernel_size: 1}}, rrelu, {alpha_dropout: 0.2}, "
        "{conv2d: {out: 4, kernel_size: 1, name: m}}, {conv2d: {out: 4, kernel_size: 1, from: a, name: v}}, {sample_normal: {from: [m, v]}}, flatten, {linear: 3}]}\n"
        "loss: cross_entropy\noptimizer: {type: sgd, lr: 0.05}\ntrain: {epochs: 2}\n"), 1
    # modes for which F.pad needs numbers for every dimension behind the channels
    yield "pad_of_width", (
        "dataset: {format: synthetic, synthetic: {kind: classes, rows: 40, inputs: [2, 3, 4], classes: 3}, split: {test: 0.2}}\nsampler: {batch_size: 8}\n"
        "model: {layers: [{conv2d: {out: 2, kernel_size: 1}}, {pad: {padding: [2, 1], mode: reflect}}, tanh, {reshape: [2, 3, 7, 1]}, {pad: {padding: [0, 0, 1, 2], mode: circular}}, "
        "{pad: {padding: [1, 1], mode: replicate}}, flatten, {linear: 3}]}\nloss: cross_entropy\noptimizer: {type: sgd, lr: 0.05}\ntrain: {epochs: 2}\n"), 1
    yield from written_rows(folder)
    twice = "[{sequential: {name: one, from: first, layers: [LAYERS]}}, {sequential: {name: other, from: second, share: one}}, {concat: {from: [one, other]}}LAST]"
    end = "sampler: {batch_size: 8}\nmodel: {layers: MODEL}\nloss: LOSS\noptimizer: {type: sgd, lr: 0.05}\ntrain: {epochs: 2}\n".replace("MODEL", twice)
    yield "draw_signs", (f"dataset: {{path: {folder}/rows.db, columns: {{a: {{missing: mean}}, ok: boolean, kind: category}}, targets: [y], scale: standard, draw: {{type: pairs, seed: 3}}, "
                         "split: {test: 0.25}}\n" + end.replace("LAYERS", "linear: 4").replace("LAST", "").replace("LOSS", "cosine_embedding")), 2
    yield "draw_augment", (f"dataset: {{path: {shapes}, image: {{size: [20, 24], resize: 26}}, augment: {{horizontal_flip: 0.5, erasing: {{p: 0.5}}}}, scale: standard, draw: pairs, "
                           "split: {validation: 0.2, test: 0.2}}\n" + end.replace("LAYERS", "{conv2d: {out: 4, kernel_size: 3}}, tanh, {max_pool2d: 4}, flatten, {linear: 3}")
                           .replace("LAST", ", {linear: 2}").replace("LOSS", "cross_entropy")), 1
    yield "draw_triplets", wine(split="{test: 0.2}").replace("split:", "draw: triplets, split:").split("model:")[0] + (
        "model: {layers: [{linear: {out: 4, from: anchor, name: a}}, {linear: {out: 4, from: positive, name: p, share: a}}, {linear: {out: 4, from: negative, name: n, share: a}}, "
        "{concat: {from: [a, p, n], name: three}}]}\nlosses: [{type: triplet_margin, output: three, margin: 4}]\noptimizer: {type: sgd, lr: 0.01}\ntrain: {epochs: 2}\n"), 2
    yield "draw_targets", wine(split="{test: 0.2}").replace("split:", "draw: triplets, split:").split("model:")[0] + (
        "model: {layers: [{linear: {out: 4, from: anchor, name: a}}, {linear: {out: 4, from: positive, name: p, share: a}}, {linear: {out: 4, from: negative, name: n, share: a}}, "
        "{linear: {out: 13, from: p, name: same}}, {concat: {from: [a, p, n], name: three}}]}\nlosses: [{type: mse, output: same, target: anchor}, {type: triplet_margin, output: three, margin: 4}]\n"
        "optimizer: {type: sgd, lr: 0.01}\ntrain: {epochs: 2}\n"), 2
    yield "draw_files", (f"dataset: {{path: {shapes}, image: {{size: [20, 24], resize: 26}}, cache_mb: 0, scale: standard, draw: pairs, split: {{test: 0.2}}}}\n"
                         + end.replace("LAYERS", "{conv2d: {out: 4, kernel_size: 3}}, tanh, {max_pool2d: 4}, flatten, {linear: 3}").replace("LAST", "").replace("LOSS", "cosine_embedding")), 1
    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
        file.write("the quick brown fox jumps over the lazy dog " * 10)
    yield "text_gpt", GPT.replace("PATH", os.path.join(folder, "text.txt")), 2


GPT = """dataset: {path: PATH, text: {block_size: 12, stride: 12}, split: {test: 0.2, shuffle: false}}
sampler: {batch_size: 4}
model:
  freeze: '*.ln_1.bias'
  init: [gpt2]
  layers:
    - embedding: {embedding_dim: 16, name: wte}
    - positional_embedding: {name: wpe}
    - repeat:
        name: h
        times: 2
        layers:
          - residual: {name: '', layers: [{layer_norm: {name: ln_1}}, {attention: {heads: 2, causal: true, dropout: 0.1, name: attn}}, {dropout: {p: 0.2, name: drop}}]}
          - residual: {name: '', layers: [{rms_norm: {name: ln_2}}, {linear: {out: 32, name: fc}}, {gelu: {approximate: tanh}}, {linear: {out: 16, name: c_proj}}]}
    - linear: {out: 27, bias: false, tie: wte.weight, name: lm_head}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.003, weight_decay: 0.1, decay: matrices, groups: [{match: ['h.*'], min_dims: 2, lr_factor: 0.5}]}
schedule: {type: cosine, interval: step, warmup: 3}
train: {steps: 6, clip_grad_norm: 1.0, accumulate: 2, ema: 0.9}
"""


def report_row(row, folder):
    """The lines of a row of the table, and its result as of report; what this version of PyTorch lacks is good, and listed."""
    import torch
    name, config, nproc, overrides = row
    is_old = int(torch.__version__.split(".")[0]) < 2
    with tempfile.TemporaryDirectory(dir=folder) as own, open(os.path.join(own, "lines"), "w+", encoding="utf-8") as lines:
        if overrides is None:
            path, overrides = os.path.join(own, name), []
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"name: {name}\n{config}")
        else:
            path = config
        with contextlib.redirect_stdout(lines):
            result = report(path, nproc, overrides, own, is_quick=True)
        lines.seek(0)
        text = lines.read()
    if result == 2 and is_old and LACKS.get(name, "\0") in text:
        return f"{name:<24} {nproc} ranks: needs PyTorch 2, this version lacks {LACKS[name]}\n", 0
    if is_old and name in DIFFERS:
        return f"{name:<24} {nproc} ranks: needs PyTorch 2, {DIFFERS[name]}\n{'' if result == 1 else 'but agrees: ' + text}", int(result != 1)
    if result == 2 and "bfloat16" in name and "AVX-512 BF16" in text:
        return f"{name:<24} {nproc} ranks: needs a CPU with AVX-512 BF16\n", 0
    return text, result


def missing_types(rows):
    """The layers, losses, optimizers and schedules that no row has."""
    with open(os.path.join(HERE, "..", "docs", "config.md"), encoding="utf-8") as file:
        manual = file.read()
    configs = "".join(config if overrides is None else open(config, encoding="utf-8").read() for _, config, _, overrides in rows)
    types = re.findall(r'<a id="(model\.layers|losses|optimizer|schedule)\.(\w+)"></a>', manual)
    return [f"{kind}.{name}" for kind, name in types if name not in REFUSED and not re.search(rf"\b{name}\b", configs)]


def report_table(names, folder, workers=2):
    rows = [(name, config, nproc, None) for name, config, nproc in table_rows(folder)]
    rows += [(os.path.splitext(os.path.basename(file))[0], file, 1 + number % 2, overrides)
             for number, (file, overrides) in enumerate(shipped(folder, CHEAP, steps=4))]
    missing = missing_types(rows)
    rows = [row for row in rows if not names or row[0] in names]
    failed = int(bool(missing))
    if missing:
        print("no row has " + ", ".join(missing))
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        for text, result in pool.map(report_row, rows, [folder] * len(rows)):
            print(text, end="", flush=True)
            failed |= result
    print(f"{len(rows)} rows: {'all are good' if not failed else 'FAILED'}")
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
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("words", nargs="*", help="CONFIG [KEY=VALUE ...], or with --shipped names of configs")
    parser.add_argument("--nproc", type=int, default=1)
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(prefix="ddptrain-compare-") as folder:
        if options.random:
            return report_random(options.random, int((options.words or [0])[0]), folder)
        if options.shipped:
            return report_shipped(options.words, folder)
        if options.table:
            return report_table(options.words, folder)
        return report(options.words[0], options.nproc, options.words[1:], folder)


if __name__ == "__main__":
    sys.exit(main())
