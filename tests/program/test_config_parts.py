"""Configs that share parts: base files and variables. ctest-labels: unit"""
import os, re, shutil

import program
from program import OK, USAGE

COMMON = """variables: {width: 8, file: wine}
seed: 3
dataset: {path: "${file}.h5", inputs: [x], targets: [y], split: 0.2}
sampler: {batch_size: 16}
loss: cross_entropy
optimizer: adam
train: {epochs: 2}
"""
OWN = """base: parts/common.yaml
variables: {width: 12}
model:
  layers:
    - linear: ${width}
    - relu
    - linear: 3
optimizer: {lr: 0.02}
"""


class ConfigParts(program.Case):
    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(program.SOURCE, "datasets/wine.h5"), self.path("wine.h5"))
        os.mkdir(self.path("parts"))
        self.write("parts/common.yaml", COMMON)
        self.write("c.yaml", OWN)

    def state(self, config, *arguments):
        out, err = self.run_program(config, "--fresh", *arguments)
        return re.findall(r"state sha256 (\w+)", out + err)[-1]

    def failure(self, text, name="c.yaml", *arguments):
        self.write(name, text)
        return self.run_program("check", name, *arguments, code=USAGE)[1]

    def test_same_as_one_file(self):
        self.write("one.yaml", "name: c\nseed: 3\ndataset: {path: wine.h5, inputs: [x], targets: [y], split: 0.2}\nsampler: {batch_size: 16}\nloss: cross_entropy\n"
                   "optimizer: {type: adam, lr: 0.02}\nmodel: {layers: [{linear: 12}, relu, {linear: 3}]}\ntrain: {epochs: 2}\n")
        expected = self.state("one.yaml")
        one = self.read("runs/c/config.yaml")
        self.assertEqual(self.state("c.yaml"), expected)
        self.assertEqual(self.read("runs/c/config.yaml"), one)
        self.assertNotIn("variables", one)
        self.assertNotEqual(self.state("c.yaml", "variables.width=13"), expected)
        self.assertIn("linear: {out: 13,", self.read("runs/c/config.yaml"))
        self.run_program("c.yaml", "--fresh", "--nproc", "2", "optimizer.lr=${rate}", "variables.rate=0.5")
        self.assertIn("lr: 0.5", self.read("runs/c/config.yaml"))

    def test_merging(self):
        for own, path, expected in [
                ("optimizer: {type: sgd, momentum: 0.9}", "optimizer", {"optimizer.type: sgd": "c.yaml:2", "optimizer.momentum: 0.9": "c.yaml:2"}),
                ("optimizer: sgd", "optimizer", {"optimizer: sgd": "c.yaml:2"}),
                ("optimizer: {lr: 0.1}", "optimizer", {"optimizer.type: adam": "parts/common.yaml:6", "optimizer.lr: 0.1": "c.yaml:2"}),
                ("train: {steps: 5}", "train", {"train.steps: 5": "c.yaml:2"}),
                ("train: {log_every: 2}", "train", {"train.epochs: 2": "parts/common.yaml:7", "train.log_every: 2": "c.yaml:2"}),
                ("sampler: {global_batch_size: 8, seed: 1}", "sampler", {"sampler.global_batch_size: 8": "c.yaml:2", "sampler.seed: 1": "c.yaml:2"}),
                ("dataset: {inputs: [x, x2]}", "dataset.inputs", {"dataset.inputs: [x, x2]": "c.yaml:2"}),
                ("losses: [mse]", "loss", {"losses: [mse]": "c.yaml:2"})]:
            self.write("c.yaml", "base: parts/common.yaml\n" + own + "\nmodel: {layers: [{linear: 3}]}\n")
            out, _ = self.run_program("check", "c.yaml", "--sources", code=None)
            if self.code == OK:
                found = dict(re.split(r" +# ", line) for line in out.splitlines() if line.startswith(path))
                self.assertEqual(found, expected)
            else:
                self.assertIn("mse", own)

    def test_null_removes_what_a_base_gives(self):
        """A section or a list, at any depth, and a value of the top level; their defaults then hold."""
        self.write("parts/more.yaml", "base: common.yaml\nschedule: {type: cosine}\ntrain: {metrics: [f1], early_stop: {metric: val_loss, patience: 2}}\n"
                   "checkpoint: {best: val_loss}\n")
        text = OWN.replace("common", "more")
        for own, path, gone in [("schedule: null\n", "schedule", "schedule.type"), ("optimizer: ~\n", "optimizer", "optimizer"), ("checkpoint: null\n", "checkpoint", "checkpoint"),
                                ("train: {metrics: null}\n", "train", "train.metrics"), ("train: {early_stop: null}\n", "train", "train.early_stop"), ("seed: null\n", "seed", "seed")]:
            with self.subTest(own):
                self.write("c.yaml", text.replace("optimizer: {lr: 0.02}\n", "") + own)
                out, _ = self.run_program("check", "c.yaml", "--sources")
                self.assertNotRegex(out, rf"(?m)^{gone}[.:]")
                self.assertEqual("train.epochs: 2" in out, True)
        self.write("parts/more.yaml", "base: common.yaml\nschedule: {type: step, step_size: 3}\ntrain: {accumulate: 2, clip_grad_norm: 1.0}\ndataset: {scale: standard}\nsampler: {batch_size: 4}\n")
        self.write("parts/plain.yaml", COMMON.replace("batch_size: 16", "batch_size: null, global_batch_size: 16"))
        nothing = "train: {accumulate: null, clip_grad_norm: ~}\ndataset: {scale: null}\nschedule: null\n"
        self.write("c.yaml", text + nothing + "sampler: {batch_size: null, global_batch_size: 16}\n")
        self.write("d.yaml", OWN.replace("common", "plain"))
        self.assertEqual(self.state("c.yaml"), self.state("d.yaml"))
        self.assertIn("optimizer.lr: null is not allowed", self.failure(OWN.replace("lr: 0.02", "lr: null")))  # no base gives it
        self.assertIn("train.accumulate: null is not allowed", self.failure(OWN + "train: {accumulate: null}\n"))
        self.assertIn("needs epochs or steps", self.failure(OWN + "train: {epochs: null}\n"))
        self.assertRegex(self.failure(text.replace("optimizer: {lr: 0.02}", "sampler: {batch_size: 8, seed: null}")), "c.yaml:8:.*sampler.seed: null is not allowed")
        self.assertIn("optimizer: null is not allowed", self.failure(self.read("parts/common.yaml").replace("adam", "null") + "model: {layers: [{linear: 3}]}\n", "parts/one.yaml"))

    def test_several_bases(self):
        self.write("parts/fast.yaml", "base: deep/more.yaml\ntrain: {epochs: 1}\n")
        os.mkdir(self.path("parts/deep"))
        self.write("parts/deep/more.yaml", "train: {epochs: 9, log_every: 3}\nseed: 5\n")
        self.write("c.yaml", OWN.replace("base: parts/common.yaml", "base: [parts/common.yaml, parts/fast.yaml]"))
        out, _ = self.run_program("check", "c.yaml", "--sources", "train.log_every=4")
        self.assertRegex(out, r"train.epochs: 1 +# parts/fast.yaml:2\n")
        self.assertRegex(out, r"seed: 5 +# parts/deep/more.yaml:2\n")
        self.assertRegex(out, r"train.log_every: 4 +# argument 'train.log_every=4'\n")
        os.symlink("common.yaml", self.path("parts/link.yaml"))  # twice the same file is no circle
        self.write("c.yaml", OWN.replace("base: parts/common.yaml", "base: [parts/common.yaml, parts/link.yaml]"))
        self.run_program("check", "c.yaml")

    def test_variables(self):
        self.write("c.yaml", OWN.replace("{width: 12}", "{width: \"${half}\", half: 6, hidden: [{linear: \"${width}\"}, relu], word: nothing}").replace("    - relu\n", "    - sequential: ${hidden}\n")
                   + "name: \"a-${half}-$${half}-$x-${\"\n")
        self.run_program("c.yaml")
        text = self.read("runs/a-6-${half}-$x-${/config.yaml")
        self.assertEqual(len(re.findall(r"linear:\s*\{?\s*out: 6\b", text)), 2)
        self.run_program("runs/a-6-${half}-$x-${/config.yaml", "train.epochs=3")  # what it says is no reference
        self.write("s.yaml", "config: c.yaml\nmethod: grid\nparameters: {variables.half: {values: [4, 5]}}\noverrides: [name=x]\n")
        self.run_program("sweep", "s.yaml", code=OK)
        self.assertIn("variables.half", self.read("sweeps/s/trials.csv"))

    def test_bad_bases(self):
        for base, message in [("none.yaml", "c.yaml:1:7: base: cannot read config 'none.yaml'"), ("c.yaml", "c.yaml:1:7: base: 'c.yaml' is based on itself"),
                              ("[]", "model"), ("[[a]]", "c.yaml:1:8: base: expected the name of a file"), ("''", "c.yaml:1:7: base: expected the name of a file"),
                              ("{a: 1}", "expected the name of a file"), ("wine.h5", "an HDF5 file, not a config"), (".", "c.yaml:1:7: base: cannot read config '.'")]:
            err = self.failure(f"base: {base}\ntrain: {{epochs: 1}}\n")
            self.assertIn(message, err)
        self.write("parts/a.yaml", "base: b.yaml\n")
        self.write("parts/b.yaml", "base: ../parts/a.yaml\n")
        self.assertIn("parts/b.yaml:1:7: base: 'parts/b.yaml' is based on itself: it names parts/../parts/a.yaml", self.failure("base: parts/a.yaml\n"))
        self.write("parts/b.yaml", "optimizer: {lr: x}\nwidht: 3\n")
        err = self.failure(OWN.replace("optimizer: {lr: 0.02}", "").replace("base: parts/common.yaml", "base: [parts/common.yaml, parts/b.yaml]"))
        self.assertIn("parts/b.yaml:1:17: optimizer.lr: expected a number", err)
        self.assertIn("parts/b.yaml:2:1: widht: unknown key", err)
        self.write("parts/b.yaml", "a: [\n")
        self.assertRegex(self.failure("base: parts/b.yaml\n"), r"parts/b.yaml:2:1: expected")
        for i in range(40):
            self.write(f"parts/n{i}.yaml", f"base: n{i + 1}.yaml\n")
        self.assertIn("more than 32 files", self.failure("base: parts/n0.yaml\n"))

    def test_bad_arguments(self):
        for words, message in (["variables.widht=5"], "no value of the config uses the variable 'widht'"), (["base=parts/common.yaml"], "base: is a key of files"):
            self.assertIn(message, self.run_program("check", "c.yaml", *words, code=USAGE)[1])
        self.write("c.yaml", OWN + "loss: {expression: \"mean((y - t) ^ 2)\"}\n")
        self.assertIn("loss.expression: mean((y - t) ^ 2)", self.run_program("check", "c.yaml", "--sources")[0])
        for i in range(20):
            self.write(f"parts/d{i}.yaml", f"base: [d{i + 1}.yaml, d{i + 1}.yaml]\n")
        self.assertIn("more than 32 files", self.failure("base: parts/d0.yaml\n"))

    def test_bad_variables(self):
        for variables, layer, message in [("{a: 1}", "${b}", "there is no variable 'b'; variables: has width, file, a"), ("{a: \"${b}\", b: \"${a}\"}", "${a}", "is its own value"),
                                          ("[1]", "${a}", "variables: expected a mapping"), ("{a: [1]}", "x${a}", "is a list or a mapping"), ("3", "3", "variables: expected a mapping"),
                                          ("{a: x}", "${a}", "c.yaml:3:28: model.layers.0.linear")]:
            err = self.failure(f"base: parts/common.yaml\nvariables: {variables}\nmodel: {{layers: [{{linear: \"{layer}\"}}]}}\n")
            self.assertIn(message, err.replace("c.yaml:2:16", "c.yaml:3:28"))
        names = [f"v{i}" for i in range(30)]
        for grow in "[\"${%s}\", \"${%s}\"]", "\"${%s}${%s}\"":  # 2^30 values
            variables = ", ".join(f"{a}: " + grow % (b, b) for a, b in zip(names, names[1:] + ["end"]))
            err = self.failure(f"base: parts/common.yaml\nvariables: {{{variables}, end: 1}}\nname: \"${{v0}}\"\nmodel: {{layers: [{{linear: 3}}]}}\n")
            self.assertIn("larger than 1 MiB", err)
