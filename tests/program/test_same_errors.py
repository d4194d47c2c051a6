"""A wrong config gets the same sentence and exit code from every command that takes a config: all of them make their plan with
plan_create. Compared over the tables of the other tests and the one below. ctest-labels: unit"""
import os
import shutil
import unittest

import program
import test_bad_configs
import test_mistakes
from program import DATA, OK, USAGE

LAYERS = "[{linear: {out: 64}}, relu, {linear: {out: 3}}]"

# (replacements in the wine config, exit code)
WRONG = [
    ([(LAYERS, "[relu]")], USAGE),
    ([(LAYERS, "[{linear: {out: 64}}, relu, {linear: {out: 3}}, {residual: {layers: [{linear: {out: 4}}]}}]")], USAGE),
    ([(LAYERS, "[{linear: {out: 3}}, flatten, {conv2d: {out: 3, kernel_size: 3}}]")], USAGE),
    ([("{type: adam, lr: 0.001}", "{type: adam, groups: [{match: ['nothing'], lr: 1}]}")], USAGE),
    ([("model: {", "model: {freeze: ['*'], ")], USAGE),
    ([("model: {", "model: {freeze: ['nothing'], ")], USAGE),
    ([("model: {", "model: {init: [{zeros: {match: ['x']}}], ")], USAGE),
    ([("train: {epochs: 10}", "train: {epochs: 10, metrics: [confusion_matrix]}"), ("{linear: {out: 3}}", "{linear: {out: 3000}}")], USAGE),
    ([("train: {epochs: 10}", "train: {epochs: 10, metrics: [mae]}")], USAGE),
    ([("split: {test: 0.2, seed: 42}", "validation: nowhere.h5")], DATA),
    ([("test: 0.2", "test: 0.2, stratify: true, shuffle: false")], USAGE),
    ([("train: {epochs: 10}", "train: {epochs: 10, device: cuda}")], USAGE),
    ([(LAYERS, "[{linear: {out: 64}}, {batch_norm: {sync: true}}, {linear: {out: 3}}]"),
      ("train: {epochs: 10}", "determinism: {mode: elastic, shards: 4}\ntrain: {epochs: 10}")], USAGE),
]

# What concerns training alone: eval and predict take other rows, and weights that are trained already.
TRAINING = [
    ([("batch_size: 32", "batch_size: 1000, drop_last_batch: true")], USAGE),
    ([("batch_size: 32", "batch_size: 32, type: weighted"), ("loss: cross_entropy", "loss: mse"), ("{linear: {out: 3}}", "{linear: {out: 1}}")], USAGE),
    ([("model: {", "model: {init_from: none.h5, ")], DATA),
    ([("model: {", "model: {init_from: datasets, ")], DATA),
    ([("model: {", "model: {init_from: none.safetensors, ")], DATA),
    ([("checkpoint: {save_every: 5}", "checkpoint: {resume: none.h5}")], DATA),
    ([("checkpoint: {save_every: 5}", "checkpoint: {resume: test.yaml}")], DATA),
]

TEXT = """
dataset: {path: datasets/tinyshakespeare.txt, text: {block_size: 8, stride: 64, truncate: 0.01}}
sampler: {batch_size: 32}
model: {layers: [{embedding: {embedding_dim: 4}}, {linear: {out: 58}}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {steps: 1}
"""
TEXT_LAYERS = "[{embedding: {embedding_dim: 4}}, {linear: {out: 58}}]"
WRONG_TEXT = [
    (TEXT_LAYERS, "[relu]"),
    (TEXT_LAYERS, "[{linear: {out: 58}}]"),
    ("{linear: {out: 58}}", "{linear: {out: 5}}"),
    ("{embedding_dim: 4}", "{embedding_dim: 4, num_embeddings: 3}"),
    ("{linear: {out: 58}}", "{linear: {out: 58, name: a}}, {linear: {out: 58, name: a}}"),
    ("model: {", "model: {freeze: ['*'], "),
    ("{type: adam, lr: 0.001}", "{type: adam, groups: [{match: ['nothing'], lr: 1}]}"),
    ("{type: adam, lr: 0.001}", "{type: adam, learning_rate: 1}"),
    ("loss: cross_entropy", "loss: {type: cross_entropy, weight: [0, 0]}"),
]


class SameErrors(program.Case):
    base = program.WINE

    def setUp(self):
        super().setUp()
        self.write("test.yaml", self.base)
        self.run_program("test.yaml", "--run-dir", "good", "train.log_every=0")

    def result(self, command, *words):
        """(exit code, lines of the message)"""
        rest = {"check": [], "train": ["--run-dir", "new", "--quiet"], "eval": ["--run-dir", "good", "--quiet"],
                "predict": ["--run-dir", "good", "--quiet", "--out", "out.csv"],
                "generate": ["--run-dir", "good", "--quiet", "--prompt", "A", "--characters", "1"]}[command]
        _, err = self.run_program(command, "test.yaml", *rest, *words, code=None)
        self.assertFalse(os.path.exists(self.path("new")) and self.code != OK, "a failed start made a run folder")
        shutil.rmtree(self.path("new"), ignore_errors=True)
        return self.code, err.splitlines()

    def replaced(self, *replacements):
        text = self.base
        for old, new in replacements:
            self.assertIn(old, text)
            text = text.replace(old, new, 1)
        self.write("test.yaml", text)

    def assert_same(self, commands, code=None):
        first = self.result(commands[0])
        self.assertNotEqual(first[0], OK, "the config is not wrong")
        self.assertIn(code, (None, first[0]), first)
        for command in commands[1:]:
            self.assertEqual(self.result(command), first, f"{commands[0]} and {command} differ")

    def test_configs_that_cannot_be_read(self):
        step = 8 if program.SANITIZER else 1
        of_training = [new for replacements, _ in TRAINING for _, new in replacements]
        wrong = [row for row in test_bad_configs.WRONG if row[1] not in of_training]
        self.assertEqual(len(wrong), len(test_bad_configs.WRONG) - 1)
        for old, new, _ in wrong[::step] + test_mistakes.mistakes()[::4 * step]:
            with self.subTest(new):
                self.replaced((old, new))
                self.assert_same(("train", "check", "eval", "predict", "generate"))

    def test_data_and_models(self):
        for old, new, _ in test_bad_configs.SHAPES + test_bad_configs.FILES:
            with self.subTest(new):
                self.replaced((old, new))
                self.assert_same(("train", "check", "eval"))
        for replacements, code in WRONG:
            with self.subTest(replacements):
                self.replaced(*replacements)
                self.assert_same(("train", "check", "eval"), code)

    def test_predict_reads_no_targets(self):
        """So it has the same result where these do not matter."""
        for replacements, code in WRONG:
            if "confusion_matrix" not in replacements[0][1]:
                with self.subTest(replacements):
                    self.replaced(*replacements)
                    self.assert_same(("train", "predict"), code)

    def test_what_concerns_training_alone(self):
        for replacements, code in TRAINING:
            with self.subTest(replacements):
                self.replaced(*replacements)
                self.assert_same(("train", "check"), code)
                if "weighted" not in replacements[0][1]:  # which has another model here
                    for command in "eval", "predict":
                        self.assertEqual(self.result(command)[0], OK, command)

    def test_weights_that_do_not_fit(self):
        """check compares the file that a run starts from, as the run does."""
        self.run_program("export", "good", "--out", "good.safetensors")
        for path in "good", "good/checkpoints/epoch-0010.h5", "good.safetensors":
            with self.subTest(path):
                self.replaced(("model: {", f"model: {{init_from: {path}, "), ("out: 64", "out: 65"))
                self.assert_same(("train", "check"), DATA)
                self.replaced(("model: {", f"model: {{init_from: {path}, "))
                self.assertEqual(self.result("check")[0], OK)

    @unittest.skipIf(program.SANITIZER, "a sanitizer has other limits")
    def test_too_large_for_this_machine(self):
        """check prints everything else, and why a run cannot start here."""
        def take(part):  # of the machine's memory, by the parameters
            size = int((part * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 4) ** 0.5)
            self.replaced(("{linear: {out: 64}}", f"{{linear: {{out: {size}}}}}, {{linear: {{out: {size}}}}}"), ("type: adam", "type: sgd"))
        take(0.1)
        self.assertEqual(self.result("check")[0], OK)
        take(1.2)
        self.assert_same(("train", "check"), USAGE)
        out, err = self.run_program("check", "test.yaml", code=USAGE)
        self.assertIn("the run does not fit in memory: no memory for the parameters: ", err)
        self.assertRegex(out, r"not here +the run does not fit in memory: no memory for the parameters")
        self.assertIn("layer", out)
        self.assertEqual(self.result("eval"), (USAGE, err.splitlines()))

    def test_a_machine_without_a_device(self):
        """check continues without it and reports the other errors."""
        self.replaced(("train: {epochs: 10}", "train: {epochs: 10, device: cuda}"), (LAYERS, "[relu]"))
        code, lines = self.result("check")
        self.assertEqual(code, USAGE)
        self.assertIn("no layer has parameters", lines[0])


class Text(SameErrors):
    """generate opens no dataset: its rows would be those of the vocabulary in the checkpoint."""
    base = TEXT

    def test_generate(self):
        for replacement in WRONG_TEXT:
            with self.subTest(replacement):
                self.replaced(replacement)
                self.assert_same(("train", "check", "eval", "predict", "generate"), USAGE)


for name in [name for name in vars(SameErrors) if name.startswith("test_")]:
    setattr(Text, name, None)  # theirs is the other config
