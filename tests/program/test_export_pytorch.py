"""`ddptrain export --format pytorch`: scripts of the shipped configs and of every layer, loss, optimizer and schedule are Python, or
are refused by a sentence that names the key. scripts/compare_pytorch.py, by hand, compares the losses. ctest-labels: unit"""
import ast
import glob
import json
import os
import unittest

import program
import test_configs

# The shipped configs without a script, and what each message names.
REFUSED = {"image_folder": "dataset.augment", "resnet50": "dataset.augment.random_resized_crop"}
WINE = """
name: wine
dataset: {path: %s, scale: standard, split: {test: 0.2, seed: 42}}
model: {layers: [{linear: 8}, relu, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 2}
""" % os.path.join(program.SOURCE, "datasets", "wine.h5")


class ExportPyTorch(program.Case):
    def setUp(self):
        super().setUp()
        test_configs.write_data(self.folder)
        self.write("wine.yaml", WINE)

    def export(self, source, *overrides):
        """The script, which is Python."""
        self.run_program("export", source, "--format", "pytorch", "--out", "train.py", *overrides)
        with open(self.path("train.py"), encoding="utf-8") as f:
            code = f.read()
        compile(code, "train.py", "exec")
        return code

    def refuse(self, source, *overrides, what):
        """Exit code 64, one sentence, and nothing is written."""
        _, err = self.run_program("export", source, "--format", "pytorch", "--out", "refused.py", *overrides, code=64)
        self.assertRegex(err, rf"{what}.* cannot be expressed in a PyTorch script\n")
        self.assertEqual(err.count("\n"), 1, err)
        self.assertFalse(os.path.exists(self.path("refused.py")))

    def test_shipped_configs(self):
        for file in sorted(glob.glob(os.path.join(program.SOURCE, "configs", "*.yaml"))):
            name = os.path.splitext(os.path.basename(file))[0]
            if test_configs.is_sweep(file):
                continue
            with self.subTest(name):
                overrides = test_configs.OVERRIDES.get(name, [])
                if name in REFUSED:
                    self.refuse(file, *overrides, what=REFUSED[name])
                else:
                    self.assertNotIn("ddptrain", self.export(file, *overrides).split('"""', 2)[2])

    def test_wine_is_a_page(self):
        code = self.export(os.path.join(program.SOURCE, "configs", "wine_mlp.yaml"))
        self.assertLess(code.count("\n"), 110)
        modules = {name.name.split(".")[0] for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import) for name in node.names}
        self.assertEqual(modules, {"h5py", "math", "numpy", "os", "torch"})

    def test_of_a_run(self):
        """The script of a run is that of its config, with the keys that were changed."""
        self.run_program("wine.yaml", "optimizer.lr=0.125", "--run-dir", "run", "--quiet")
        self.assertIn("lr=0.125", self.export("run"))
        self.assertEqual(self.export("run").split('"""', 2)[2], self.export("wine.yaml", "optimizer.lr=0.125").split('"""', 2)[2])

    def test_optimizers_and_schedules(self):
        for kind in ("sgd", "adam", "adamw", "adagrad", "rmsprop", "lion", "nadam", "radam", "adamax", "adadelta"):
            with self.subTest(kind):
                code = self.export("wine.yaml", f"optimizer={{type: {kind}, lr: 0.5, groups: [{{match: '0.*', min_dims: 2, lr_factor: 0.5}}]}}")
                self.assertRegex(code, rf"(?i)(torch\.optim\.)?{kind}\(\[.*lr=0\.5")
                self.assertIn('p.dim() >= 2 and any(fnmatch.fnmatchcase(name, pattern) for pattern in ["0.*"])', code)
                self.assertIn('{"lr": 0.25, ', code)
        for schedule in ("step, step_size: 2", "multistep, milestones: [1]", "exponential, gamma: 0.5", "linear", "polynomial", "cosine",
                         "cosine_restarts, t_0: 2", "one_cycle", "cyclic, max_lr: 0.1, interval: step, warmup: 2"):
            with self.subTest(schedule):
                space = {"math": __import__("math")}
                code = self.export("wine.yaml", f"schedule={{type: {schedule}}}")
                functions = [n for n in ast.parse(code).body if isinstance(n, ast.FunctionDef) and n.name in ("learning_rate", "one_cycle", "cyclic", "cosine_restarts")]
                exec(compile(ast.Module(functions, []), "rates", "exec"), space)
                self.assertGreaterEqual(space["learning_rate"](0.1, 1, 10), 0)

    def test_refusals(self):
        for override, what in (("train.precision=bfloat16", "train.precision"), ("sampler.type=weighted", "sampler.type weighted"),
                               ("schedule={type: reduce_on_plateau}", "schedule.type reduce_on_plateau"),
                               ("model.layers=[{linear: 4}, {batch_norm: {sync: true}}, {linear: 3}]", "model.layers.batch_norm.sync"),
                               ("dataset.split={folds: 3, fold: 0}", "dataset.split.folds"), ("train.early_stop={patience: 2}", "train.early_stop")):
            with self.subTest(override):
                self.refuse("wine.yaml", override, what=what)

    def test_wrong_options(self):
        for words in (("wine.yaml", "--weights", "trained"), ("wine.yaml", "--checkpoint", "best")):
            _, err = self.run_program("export", *words, "--format", "pytorch", "--out", "train.py", code=64)
            self.assertIn("a PyTorch script has no weights", err)
        _, err = self.run_program("export", "wine.yaml", "--out", "wine.safetensors", "train.epochs=3", code=64)
        self.assertIn("only a PyTorch script", err)


if __name__ == "__main__":
    program.main()
