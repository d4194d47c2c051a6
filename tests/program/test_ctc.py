"""The loss ctc: labels of any number are found in the steps of a series, on any number of ranks. ctest-labels: unit"""
import json

import h5py
import numpy as np

import program
from program import USAGE

CONFIG = """
name: test
dataset: {path: series.h5, split: {test: 0.25, seed: 1}}
sampler: {batch_size: BATCH}
model: {layers: [{linear: {out: 8}}, tanh, {linear: {out: 4}}, log_softmax: {name: labels}]}
loss: {type: ctc, padding: -1}
optimizer: {type: adam, lr: 0.05}
train: {epochs: 12}
"""


class Ctc(program.Case):
    def setUp(self):
        super().setUp()
        draw = np.random.default_rng(3)
        self.targets = np.full((96, 3), -1)
        inputs = draw.normal(0, 0.1, (96, 12, 3))
        for row in range(96):
            count = draw.integers(0, 4)
            self.targets[row, :count] = draw.integers(1, 4, count)
            for i in range(count):  # each label in one to three steps, none in the next
                inputs[row, 4 * i:4 * i + draw.integers(1, 4), self.targets[row, i] - 1] += 1
        with h5py.File(self.path("series.h5"), "w") as f:
            f["x"], f["y"] = inputs.astype(np.float32), self.targets

    def train(self, batch, world, config=CONFIG):
        self.write("test.yaml", config.replace("BATCH", str(batch)))
        self.run_program("test.yaml", "--nproc", world, "--fresh")
        return self.events("epoch")

    def test_finds_the_labels(self):
        one, two = self.train(12, 1), self.train(6, 2)
        self.assertEqual(one[-1]["val_accuracy"], 1)  # of whole rows
        self.assertLess(one[-1]["val_loss"], one[0]["val_loss"] / 4)
        for a, b in zip(one, two):
            self.assertAlmostEqual(a["val_loss"], b["val_loss"], places=4)
        result = json.loads(self.run_program("eval", "test.yaml", "--part", "all", "--nproc", 3)[0])
        self.assertEqual(result["accuracy"], 1)
        lines = self.run_program("predict", "test.yaml", "--part", "all")[0].splitlines()
        self.assertEqual(len(lines), 97)
        for line, target in zip(lines[1:], self.targets):  # a class for each step
            steps = [int(v) for v in line.split(",")[1:]]
            found = [c for c, before in zip(steps, [0] + steps) if c not in (0, before)]
            self.assertEqual(found, [t for t in target if t >= 0])

    def test_as_one_of_several_losses(self):
        several = CONFIG.replace("loss: {type: ctc, padding: -1}", "losses: [{type: ctc, padding: -1, output: labels, name: text}]")
        one, other = self.train(12, 1), self.train(12, 1, several)
        for a, b in zip(one, other):
            self.assertAlmostEqual(a["val_loss"], b["val_text_loss"], places=6)
            self.assertEqual(a["val_accuracy"], b["val_text_accuracy"])

    def test_more_targets_than_steps(self):
        short = CONFIG.replace("layers: [", "layers: [{slice: {dim: 1, start: 0, end: 2}}, ")
        self.write("test.yaml", short.replace("BATCH", "12"))
        self.run_program("test.yaml", code=program.NOT_FINITE, err="loss")
        self.train(12, 1, short.replace("padding: -1", "padding: -1, zero_infinity: true"))

    def test_mistakes(self):
        for before, after, sentence in (
                ("padding: -1", "padding: -1, blank: 4", "loss: the blank is class 4, but the model has 4 classes (0 to 3)"),
                ("padding: -1", "padding: -2", "series.h5: dataset 'y', row"),
                ("{linear: {out: 4}}", "{linear: {out: 3}}",
                 "loss: the model's output is (12, 3), but the targets have 4 classes (0 to 3): ctc needs an output (steps, classes) of log-probabilities"),
                ("log_softmax", "flatten, log_softmax", "loss: the model's output is 48, but the targets have 4 classes"),
                ("epochs: 12", "epochs: 12, metrics: [f1]", "the metric 'f1' does not fit the loss 'ctc', which is one of aligned classes")):
            with self.subTest(after):
                self.write("test.yaml", CONFIG.replace("BATCH", "12").replace(before, after))
                self.run_program("check", "test.yaml", code=program.DATA if "row" in sentence else USAGE, err=sentence)
