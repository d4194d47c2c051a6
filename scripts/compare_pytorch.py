#!/usr/bin/env python3
"""Trains the model of a config in ddptrain and in PyTorch on the same rows and compares the results.

    scripts/compare_pytorch.py runs/wine_mlp                                  the run's config and newest checkpoint
    scripts/compare_pytorch.py configs/mnist_cnn.yaml                         new weights
    scripts/compare_pytorch.py configs/mnist_cnn.yaml --weights w.safetensors

Both start from the same weights and see the same random rows (of the shape of the config's data, in one batch). Compared are:
the outputs in evaluation after one training pass (predict), the gradients (the momentum buffers of one step of SGD with a
learning rate of 0), and the losses and weights of 20 steps with the config's optimizer, groups and clipping, at a constant
learning rate. The reference is PyTorch in float64, so what is left is the rounding of ddptrain. Some models magnify rounding (a
relu whose input is nearly 0 takes the other side; many steps at a high rate), so beside the difference stands PyTorch's own:
the larger one of float32 against float64, and of initial weights that differ by 1e-6. Good is a difference within its tolerance,
or of at most ten times PyTorch's own. Dropout is switched off in both: its masks are each program's own. Exit code 1 when
something is not good. Needs python3-torch, python3-h5py and python3-yaml.
"""
import argparse
import copy
import fnmatch
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch
import yaml

from pytorch_model import WITHOUT_TARGET, Model, load_config, loss_function, parse_layer, read_safetensors, real_positions, weighted_sum

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # train.device: auto is the CPU, where bits are the same everywhere
HERE = os.path.dirname(os.path.abspath(__file__))
# Largest difference, relative to the largest value of the tensor (losses: to the loss, at least to a thousandth of the
# largest loss, since one that has come near 0 is all rounding; gradients: at least to a hundredth of the largest gradient).
TOLERANCES = {"outputs": 2e-5, "gradients": 1e-4, "losses": 2e-5, "weights": 1e-3}
# A gradient below this share of the largest one is a sum that cancels to 0 (a bias before batch_norm, a bias of attention's
# keys). Adam divides by its size and so walks by rounding alone: such weights have no right value after a step.
NOISE = 1e-9


class Trouble(Exception):
    pass


def run_program(binary, *arguments, cwd=None):
    p = subprocess.run([binary, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    if p.returncode:
        raise Trouble(f"{' '.join([binary, *arguments])}: exit code {p.returncode}\n{p.stderr}")
    return p.stdout


def input_shape(table):
    """Shape of a row, from the first line of the layers that `check` prints: "0     conv2d       (3, 32, 32) ..."."""
    line = re.split(r"^layer +type", table, maxsplit=1, flags=re.MULTILINE)[1].splitlines()[1]
    found = re.search(r"[a-z]\w*\s+(\([\d, ]+\)|\d+)\s", line)
    return tuple(int(size) for size in re.findall(r"\d+", found.group(1)))


def named_inputs(config, table, shape):
    """{name: shape} of dataset.inputs, from the lines "input/image  input  4  (1, 2, 2)"; None: they have no names."""
    names = (config.get("dataset") or {}).get("inputs")
    if not isinstance(names, dict):
        return None
    if len(names) == 1:
        return {name: shape for name in names}
    found = [re.search(r"^input/(\S+)\s+input\s+\d+\s+(\([\d, ]+\)|\d+)\s", line) for line in table.splitlines()]
    return {m.group(1): tuple(int(size) for size in re.findall(r"\d+", m.group(2))) for m in found if m}


def without_dropout(layers):
    for i, entry in enumerate(layers):
        kind, keys = parse_layer(entry)
        if kind in ("dropout", "dropout1d", "dropout2d", "drop_path"):
            layers[i] = {kind: dict(keys, p=0)}
        elif "dropout" in keys:
            layers[i] = {kind: dict(keys, dropout=0)}
        for inner in ("layers", "shortcut"):
            if inner in keys:
                without_dropout(keys[inner])


def first_leaf(layers, before=""):
    """(type, keys, name) of the first layer that is not a composite."""
    kind, keys = parse_layer(layers[0])
    name = before + (keys["name"] if keys.get("name") is not None else "0")
    if "layers" in keys:
        return first_leaf(keys["layers"], (name + "." if name else "") + ("0." if kind == "repeat" else ""))
    return kind, keys, name


class Comparison:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.random = np.random.default_rng(options.seed)
        torch.manual_seed(options.seed)
        self.failed = False
        source = options.source
        if os.path.isdir(source):
            self.config = load_config(os.path.join(source, "config.yaml"))
            self.config_file = os.path.join(source, "config.yaml")
        else:
            self.config, self.config_file = load_config(source), source
        self.table = run_program(options.binary, "check", self.config_file)
        self.shape = input_shape(self.table)
        self.initial = self.weights()
        self.inputs = named_inputs(self.config, self.table, self.shape)
        self.losses = self.config.get("losses") or []
        if self.inputs and not self.losses:  # rows as for several losses
            loss = self.config["loss"]
            self.losses = [{"type": loss} if isinstance(loss, str) else loss]
        kind, keys, name = first_leaf(self.config["model"]["layers"])
        # tokens of a dataset of whole numbers: padding is None if all positions are real
        takes_tokens = kind in ("embedding", "embedding_bag")
        self.has_values = takes_tokens and not self.is_text()
        self.padding = keys.get("padding_idx") if self.has_values and kind == "embedding" else None
        self.vocabulary = self.initial[name + ".weight"].shape[0] if takes_tokens else None

    def is_text(self):
        dataset = self.config["dataset"]
        return dataset.get("format") in ("text", "tokens") or str(dataset.get("path")).endswith((".txt", ".bin"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def weights(self):
        """The safetensors file, the newest checkpoint of a run, or new weights: those after a step with a learning rate of 0."""
        file = self.options.weights
        if not file and os.path.isdir(self.options.source):
            file = self.path("run.safetensors")
            run_program(self.options.binary, "export", self.options.source, "--out", file)
        if not file:
            config = copy.deepcopy(self.config)
            self.use_optimizer(config, {"type": "sgd", "lr": 0})
            config["train"] = {"steps": 1}
            config["sampler"] = {"batch_size": 2}
            for key in ("split", "validation"):
                config["dataset"].pop(key, None)
            config["checkpoint"] = {"save_every": {"steps": 1}}
            file = self.path("new.safetensors")
            with open(self.path("new.yaml"), "w", encoding="utf-8") as f:
                yaml.safe_dump(config, f)
            run_program(self.options.binary, self.path("new.yaml"), "--run-dir", self.path("new"), "--quiet", "--nproc", "1")
            run_program(self.options.binary, "export", self.path("new"), "--out", file)
        self.weights_file = os.path.abspath(file)
        return read_safetensors(file)

    @staticmethod
    def use_optimizer(config, optimizer):
        config["optimizer"] = optimizer
        config["schedule"] = {"type": "constant"}

    def make_rows(self, model):
        """Random inputs and targets for both, and the `dataset:` that gives ddptrain the same."""
        if self.losses:
            return self.make_named_rows(model)
        rows, loss = self.options.rows, self.config["loss"]
        loss = loss if isinstance(loss, str) else loss["type"]
        out = model.out_shape
        if self.vocabulary and not self.has_values:
            positions = self.shape[0]
            tokens = self.random.integers(0, self.vocabulary, rows * positions + 1).astype("<u2")
            tokens.tofile(self.path("rows.bin"))
            inputs = torch.tensor(tokens[:-1].astype(int)).reshape(rows, positions)
            targets = torch.tensor(tokens[1:].astype(int)).reshape(rows, positions)
            return inputs, targets, {"path": self.path("rows.bin"), "format": "tokens", "tokens":
                                     {"vocabulary": self.vocabulary, "block_size": positions, "stride": positions}}
        x = self.random.normal(size=(rows, *self.shape)).astype("<f4")
        if self.has_values:
            x = self.make_tokens(self.shape, self.vocabulary, self.padding).astype("<f4")
        if loss in ("cross_entropy", "nll") and len(out) > 1:  # of each pixel, or of each step of a series
            classes, positions = (out[0], out[1:]) if len(out) == 3 else (out[1], out[:1])
            y = self.random.integers(0, classes, (rows, *positions)).astype("<i8")
            y[-1] = classes - 1
        elif loss in ("cross_entropy", "nll"):
            y = np.concatenate([np.arange(out[-1]), self.random.integers(0, out[-1], rows)])[:rows].astype("<i8")
            if rows < out[-1]:
                y[-1] = out[-1] - 1
        elif loss in ("bce_with_logits", "focal", "dice"):
            y = self.random.integers(0, 2, (rows, *out)).astype("<f4")
        else:
            y = np.abs(self.random.normal(size=(rows, *out))).astype("<f4")
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = x, y
        targets = torch.tensor(y) if loss in ("cross_entropy", "nll") else torch.tensor(y).double()
        return torch.tensor(x).double(), targets, {"path": self.path("rows.h5")}

    def make_lengths(self, positions):
        """Random ones, the first of them full."""
        lengths = self.random.integers(1, positions + 1, self.options.rows)
        lengths[0] = positions
        return lengths

    def make_tokens(self, shape, vocabulary, padding):
        tokens = self.random.integers(0, vocabulary, (self.options.rows, *shape))
        if padding is None:
            return tokens
        real = np.arange(shape[0]) < self.make_lengths(shape[0])[:, None]
        return np.where(real, np.where(tokens == padding, (padding + 1) % vocabulary, tokens), padding)

    def make_input(self, model, name, shape):
        if name in model.tokens:
            return self.make_tokens(shape, *model.tokens[name]).astype("<f4")
        if name in model.lengths:
            return self.make_lengths(model.lengths[name]).reshape(-1, *shape).astype("<f4")
        return self.random.normal(size=(self.options.rows, *shape)).astype("<f4")

    def make_named_rows(self, model):
        """The same for `losses`; targets (rows, all of them), and self.columns, those of each loss."""
        rows, dataset = self.options.rows, {"path": self.path("rows.h5")}
        inputs = {name: self.make_input(model, name, shape) for name, shape in model.inputs.items()}
        targets, self.columns, at = {}, [], 0
        with h5py.File(self.path("rows.h5"), "w") as f:
            for name, values in inputs.items():
                f["x_" + name] = values
            for keys, shape in zip(self.losses, model.out_shapes):
                if keys["type"] in WITHOUT_TARGET:
                    self.columns.append(slice(0, 0))
                    continue
                names = self.config["dataset"].get("targets")
                target = keys.get("target") or (next(iter(names)) if isinstance(names, dict) else "target")
                if target in inputs:
                    values = inputs[target].reshape(rows, -1)
                elif keys["type"] == "cross_entropy":
                    values = self.random.integers(0, shape[-1], (rows, *shape[:-1])).reshape(rows, -1)
                    values[-1, :] = shape[-1] - 1
                elif keys["type"] == "bce_with_logits":
                    values = self.random.integers(0, 2, (rows, *shape)).reshape(rows, -1)
                elif keys["type"] == "cosine_embedding":
                    values = 2 * self.random.integers(0, 2, (rows, 1)) - 1
                else:
                    values = np.abs(self.random.normal(size=(rows, *shape))).astype("<f4").reshape(rows, -1)
                if target not in targets:
                    targets[target] = (slice(at, at + values.shape[1]), values)
                    at += values.shape[1]
                    if target not in inputs:
                        f["t_" + target] = values
                self.columns.append(targets[target][0])
        if model.inputs != {"input": self.shape}:
            dataset["inputs"] = {name: ["x_" + name] for name in inputs}
        else:
            dataset["inputs"] = ["x_input"]
        own = {name: ["t_" + name] for name in targets if name not in inputs}
        if own:
            dataset["targets"] = own if list(own) != ["target"] else own["target"]
        x = torch.tensor(np.concatenate([values.reshape(rows, -1) for values in inputs.values()], 1)).double()
        if len(inputs) == 1:
            x = x.reshape(rows, *self.shape)
        return x, torch.tensor(np.concatenate([np.zeros((rows, 0)), *(values for _, values in targets.values())], 1)).double(), dataset

    def train(self, name, optimizer, steps, clip):
        """Trains in ddptrain; returns the losses and the folder."""
        config = {"name": name, "seed": 1, "dataset": self.dataset, "model": copy.deepcopy(self.config["model"]),
                  "sampler": {"batch_size": self.options.rows, "shuffle": False},
                  **{key: self.config[key] for key in ("loss", "losses") if key in self.config},
                  "train": dict({"steps": steps, "device": "cpu"}, **clip), "checkpoint": {"save_every": {"steps": steps}}}
        self.use_optimizer(config, optimizer)
        without_dropout(config["model"]["layers"])
        config["model"]["init"], config["model"]["init_from"] = [], self.weights_file
        with open(self.path(name + ".yaml"), "w", encoding="utf-8") as f:
            yaml.safe_dump(config, f)
        run = self.path(name)
        run_program(self.options.binary, self.path(name + ".yaml"), "--run-dir", run, "--quiet", "--nproc", "1")
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        return [line["loss"] for line in lines if line["event"] == "step"], run

    @staticmethod
    def checkpoint(run, group):
        with h5py.File(sorted(glob.glob(os.path.join(run, "checkpoints", "*.h5")))[-1]) as f:
            return {name: np.asarray(f[group][name][()], dtype=np.float64) for name in f[group]}

    def line(self, what, kind, difference, own, note=""):
        """[own]: the difference between two runs of PyTorch."""
        is_good = difference <= max(TOLERANCES[kind], 10 * own)
        self.failed |= not is_good
        print(f"{what:<44} {difference:>10.1e} {own:>16.1e} {TOLERANCES[kind]:>10.0e}  {'good' if is_good else 'DIFFERENT'}{note}")

    def compare_tensors(self, kind, got, exact, others, floor=0.0, noise=None):
        """One line for the worst of all tensors. [others]: PyTorch's own that differ from [exact]."""
        missing = sorted(set(exact) - set(got))
        if missing:
            raise Trouble(f"ddptrain has no tensor {', '.join(missing)}")
        noise = {name: mask for name, mask in (noise or {}).items() if mask.any()}

        def distance(name, values):
            differences = np.where(noise.get(name, False), 0, np.abs(values - exact[name]))
            return differences.max() / max(np.abs(exact[name]).max(), floor, 1e-30)

        worst = max(exact, key=lambda name: distance(name, got[name]))
        skipped = sum(mask.sum() for mask in noise.values())
        note = f", worst {worst}" + (f"; {skipped} values without a gradient not compared" if skipped else "")
        self.line(f"{kind} ({len(exact)} tensors)", kind, distance(worst, got[worst]),
                  max(distance(name, other[name]) for name in exact for other in others), note)

    def run(self):
        config = copy.deepcopy(self.config["model"])
        without_dropout(config["layers"])
        outputs = [keys.get("output") for keys in self.losses]
        models = [Model(config, self.shape, self.vocabulary, self.inputs, outputs).to(dtype) for dtype in (torch.float64, torch.float32, torch.float64)]
        for model in models:
            counters = [n for n in model.state_dict() if n.endswith("num_batches_tracked")]
            missing, unexpected = model.load_state_dict(self.initial, strict=False)
            missing = set(missing) - set(counters) - tied_names(model)
            if missing or unexpected:
                raise Trouble(f"names differ: only PyTorch has {sorted(missing)}, only ddptrain {unexpected}")
        with torch.no_grad():
            for p in models[-1].parameters():
                p *= 1 + 1e-6 * (2 * torch.rand(p.shape, dtype=p.dtype) - 1)
        self.inputs, self.targets, self.dataset = self.make_rows(models[0])
        if self.losses:
            self.loss = weighted_sum(self.losses, models[0].out_shapes, self.columns)
        else:
            self.loss = loss_function(self.config["loss"])
        start = [copy.deepcopy(model.state_dict()) for model in models]
        print(f"{'':<44} {'difference':>10} {'PyTorch itself':>16} {'tolerance':>10}")
        self.compare_first(*models)
        for model, state in zip(models, start):
            model.load_state_dict(state)
        self.compare_steps(*models)
        return self.failed

    def torch_loss(self, model):
        dtype = next(model.parameters()).dtype
        inputs, targets = (t.to(dtype) if t.is_floating_point() else t for t in (self.inputs, self.targets))
        return self.loss(*real_positions(model(inputs), targets))

    def torch_first(self, model):
        """Loss, gradients, and the outputs in evaluation afterwards."""
        value = self.torch_loss(model.train())
        value.backward()
        gradients = {n: p.grad.double().numpy() for n, p in model.named_parameters() if p.requires_grad}
        dtype = next(model.parameters()).dtype
        with torch.no_grad():
            outputs = model.eval()(self.inputs.to(dtype) if self.inputs.is_floating_point() else self.inputs)
        if outputs.dim() == 4 and self.targets.dim() == 3:  # a class for each pixel: ddptrain's outputs are (pixels, classes)
            outputs = outputs.permute(0, 2, 3, 1)
        return value.item(), gradients, outputs.double().numpy().reshape(-1)

    def compare_first(self, *models):
        losses, run = self.train("first", {"type": "sgd", "lr": 0, "momentum": 0.9}, 1, {})
        (loss, gradients, outputs), *others = (self.torch_first(model) for model in models)
        file = self.path("out.h5")
        run_program(self.options.binary, "predict", self.path("first.yaml"), "--run-dir", run, "--out", file, "--quiet",
                    "--nproc", "1")
        with h5py.File(file) as f:
            got = f["outputs"][()].astype(np.float64).reshape(-1)
        scale = np.abs(outputs).max()
        self.line(f"outputs {tuple(models[0].out_shape)} of {self.options.rows} rows", "outputs",
                  np.abs(got - outputs).max() / scale, max(np.abs(other[2] - outputs).max() for other in others) / scale)
        self.line("loss", "losses", abs(losses[0] - loss) / abs(loss), max(abs(other[0] - loss) for other in others) / abs(loss))
        largest = max(np.abs(g).max() for g in gradients.values())
        self.noise = {n: np.abs(g) < NOISE * largest for n, g in gradients.items()}
        self.compare_tensors("gradients", self.checkpoint(run, "optimizer/momentum_buffer"), gradients,
                             [other[1] for other in others], 0.01 * largest)

    def torch_steps(self, model, keys, clip):
        """The losses, and the final parameters of the model."""
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        optimizer, losses = torch_optimizer(keys, named), []
        model.train()
        for _ in range(self.options.steps):
            model.zero_grad()
            value = self.torch_loss(model)
            value.backward()
            if "clip_grad_value" in clip:
                torch.nn.utils.clip_grad_value_([p for _, p in named], clip["clip_grad_value"])
            if "clip_grad_norm" in clip:
                torch.nn.utils.clip_grad_norm_([p for _, p in named], clip["clip_grad_norm"])
            optimizer.step()
            losses.append(value.item())
        skipped = tied_names(model)
        return np.array(losses), {n: t.double().numpy() for n, t in model.state_dict().items()
                                  if not n.endswith("num_batches_tracked") and n not in skipped}

    def compare_steps(self, *models):
        wanted = self.config.get("train") or {}
        clip = {k: wanted[k] for k in ("clip_grad_norm", "clip_grad_value") if wanted.get(k)}
        losses, run = self.train("steps", self.config.get("optimizer", "adam"), self.options.steps, clip)
        keys = load_config(os.path.join(run, "config.yaml"))["optimizer"]  # with every default
        (exact, weights), *others = (self.torch_steps(model, keys, clip) for model in models)
        scale = np.maximum(np.abs(exact), max(1e-3 * np.abs(exact).max(), 1e-30))
        self.line(f"losses of {self.options.steps} steps of {keys['type']}", "losses", np.max(np.abs(losses - exact) / scale),
                  max(np.max(np.abs(other[0] - exact) / scale) for other in others), f", {losses[0]:.4f} to {losses[-1]:.4f}")
        self.compare_tensors("weights", self.checkpoint(run, "model"), weights, [other[1] for other in others],
                             noise=self.noise)


def tied_names(model):
    """Aliases of parameters."""
    first = {id(p) for _, p in model.named_parameters()}
    names = {n for n, _ in model.named_parameters()}
    return {n for n, t in model.state_dict(keep_vars=True).items() if id(t) in first and n not in names}


class Lion(torch.optim.Optimizer):
    """Chen et al., Symbolic Discovery of Optimization Algorithms, 2023; PyTorch has none."""

    def __init__(self, groups, betas, **defaults):
        super().__init__(groups, dict(defaults, betas=betas))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            a, b = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * (a * m + (1 - a) * p.grad).sign())
                m.mul_(b).add_(p.grad, alpha=1 - b)


def is_in_group(group, name, parameter):
    min_dims, max_dims, patterns = group.get("min_dims"), group.get("max_dims"), group.get("match")
    return ((min_dims is None or parameter.dim() >= min_dims) and (max_dims is None or parameter.dim() <= max_dims) and
            (patterns is None or any(fnmatch.fnmatchcase(name, p) for p in patterns)))


def torch_optimizer(keys, named):
    """torch.optim's for the resolved keys of `optimizer:`; the first group that matches a parameter wins."""
    groups = []
    for name, p in named:
        group = next((g for g in keys["groups"] if is_in_group(g, name, p)), {})
        lr, decay = group.get("lr"), group.get("weight_decay")
        if lr is None:
            lr = keys["lr"] * (1 if group.get("lr_factor") is None else group["lr_factor"])
        if decay is None:
            decay = keys["weight_decay"] if keys["decay"] == "all" or p.dim() > 1 else 0
        replaced = {key: group[key] for key in ("betas", "momentum", "eps") if group.get(key) is not None}
        groups.append({"params": [p], "lr": lr, "weight_decay": decay, **replaced})
    own = ("type", "lr", "weight_decay", "decay", "groups", "arithmetic", "in_backward")
    given = {k: v for k, v in keys.items() if k not in own}
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad,
             "rmsprop": torch.optim.RMSprop, "lion": Lion, "nadam": torch.optim.NAdam, "radam": torch.optim.RAdam,
             "adamax": torch.optim.Adamax, "adadelta": torch.optim.Adadelta}
    return kinds[keys["type"]](groups, lr=keys["lr"], **given)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("source", help="a run folder, or a config")
    parser.add_argument("--weights", help="a safetensors file to start from")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the random rows")
    parser.add_argument("--binary", default=os.environ.get("DDPTRAIN", os.path.join(HERE, "..", "build/release/bin/ddptrain")))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ddptrain-compare-") as folder:
        try:
            return 1 if Comparison(options, folder).run() else 0
        except Trouble as trouble:
            print(f"compare_pytorch: {trouble}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
