"""The test rows of dataset.split: evaluated once, at the end, and without any other effect.
ctest-labels: dist"""
import json
import random

import program

CONFIG = """
dataset: {path: t.csv, targets: y, scale: standard, split: {test: 0.2, validation: 0.25, shuffle: false}}
sampler: {batch_size: 8}
model: {layers: [{linear: {out: 16}}, relu, {linear: {out: 3}}]}
loss: {type: cross_entropy, weight: balanced}
optimizer: {type: adam, lr: 0.02}
train: {epochs: 12, metrics: [f1], early_stop: {metric: val_loss, patience: 9}}
checkpoint: {best: val_loss}
"""


class TestPart(program.Case):
    def setUp(self):
        super().setUp()
        draw = random.Random(4)
        self.rows = [f"{draw.random()},{draw.random()},{draw.randrange(3)}" for _ in range(80)] + [f"{draw.random()},5.5,{i % 3}" for i in range(20)]
        self.write("t.csv", "a,b,y\n" + "\n".join(self.rows) + "\n")
        self.write("test.yaml", CONFIG)

    def test_validation_alone_is_test_alone(self):
        """Also with the keys that go with test, and on a resume."""
        for more in ("seed: 3", "stratify: true", "group: b", "shuffle: false"):
            self.run_program("test.yaml", "--fresh", "dataset.split={test: 0.2, %s}" % more)
            self.assertIn("complete", self.run_program("test.yaml", "dataset.split={validation: 0.2, %s}" % more)[1])
        self.run_program("test.yaml", "dataset.split={validation: 0.3, shuffle: false}", code=program.USAGE, err="  dataset.split.test: 0.2 -> 0.3\n")

    def end(self, run="runs/test"):
        return self.events("end", run)[-1]

    def evaluated(self, *words):
        return json.loads(self.run_program("eval", "test.yaml", "--part", "test", *words)[0])

    def test_it_is_evaluated_at_the_end_with_the_best_checkpoint(self):
        _, err = self.run_program("test.yaml")
        end, best = self.end(), self.evaluated("--checkpoint", "best")
        self.assertIn("60 training rows, 20 validation rows, 20 test rows", err)
        self.assertEqual((end["test_rows"], end["test_checkpoint"]), (20, "best"))
        self.assertEqual((end["test_loss"], end["test_accuracy"], end["test_f1"]), (best["loss"], best["accuracy"], best["f1"]))
        self.assertNotEqual(end["test_loss"], self.evaluated("--checkpoint", "newest")["loss"], "the test shows nothing")
        self.assertIn(f"on 20 rows; best checkpoint, epoch {end['best_epoch']}", err)
        self.assertFalse([e for e in self.metrics("runs/test") if e["event"] != "end" and "test_loss" in e])
        _, err = self.run_program("report", "runs/test")
        self.assertIn(f"loss {end['test_loss']:.6g}, accuracy {100 * end['test_accuracy']:.2f} % on 20 rows", self.read("runs/test/report.html"))

    def test_without_a_best_checkpoint_it_is_the_newest(self):
        self.run_program("test.yaml", "checkpoint.best=null", "train.ema.decay=0.5")
        self.assertEqual(self.end()["test_checkpoint"], "newest")
        self.assertEqual(self.end()["test_loss"], self.evaluated()["loss"])

    def test_its_rows_have_no_effect(self):
        """Other inputs and classes of the test rows: the same bits of training and validation."""
        self.run_program("test.yaml")
        self.write("t.csv", "a,b,y\n" + "\n".join(self.rows[:80] + ["-1e6,1e5,1"] * 20) + "\n")
        self.run_program("test.yaml", "--run-dir", "runs/other")
        self.run_program("test.yaml", "--run-dir", "runs/two", "--nproc", 2, "sampler={batch_size: 4}")
        self.assertEqual(self.sha(), self.sha("runs/other"))
        for name in ("train_loss", "val_loss"):
            self.assertEqual(*([e[name] for e in self.events("epoch", run)] for run in ("runs/test", "runs/other")))
        self.assertNotEqual(self.end()["test_loss"], self.end("runs/other")["test_loss"])
        alone = self.evaluated("--run-dir", "runs/two", "--checkpoint", "best", "sampler={batch_size: 4}")
        self.assertAlmostEqual(self.end("runs/two")["test_loss"] / alone["loss"], 1, 6)

    def test_a_longer_run_is_evaluated_again(self):
        newest = ("checkpoint.best=null", "train.early_stop=null")
        self.run_program("test.yaml", "train.epochs=20", *newest, "--run-dir", "runs/whole")
        self.run_program("test.yaml", "train.epochs=3", *newest)
        first = self.end()["test_loss"]
        self.run_program("test.yaml", "train.epochs=20", *newest)
        self.assertEqual(self.sha(), self.sha("runs/whole"))
        self.assertEqual(self.end()["test_loss"], self.end("runs/whole")["test_loss"])
        self.assertNotEqual(self.end()["test_loss"], first)

    def test_an_end_that_was_lost(self):
        """The last checkpoint is complete, but the process ended before the line."""
        self.run_program("test.yaml")
        expected, lines = self.end(), self.read("runs/test/metrics.jsonl").splitlines(True)
        self.write("runs/test/metrics.jsonl", "".join(lines[:-1]))
        self.run_program("test.yaml")
        self.assertEqual(self.end()["test_loss"], expected["test_loss"])

    def test_windows_and_folds(self):
        windows = "dataset.window={steps: 4, horizon: 1}"
        out, _ = self.run_program("check", "test.yaml", windows, "model.layers=[flatten, {linear: {out: 3}}]")
        self.assertIn("56 training windows, 16 validation windows, 16 test windows", out)
        folds = "dataset.split={test: 0.2, folds: 4, fold: 1, seed: 3}"
        self.run_program("check", "test.yaml", folds, out="60 training rows, 20 validation rows, 20 test rows")

    def test_words_and_bases_keep_the_test_rows(self):
        """What replaces the validation rows does not move the test rows into the training."""
        self.write("folds.yaml", "base: test.yaml\ndataset: {split: {folds: 4, fold: 1}}\n")
        self.write("more.yaml", "base: folds.yaml\ndataset: {split: {folds: 8}}\n")
        folds = ["dataset.split.folds=8", "dataset.split.fold=2"]
        for config, words, train, validation in (("test.yaml", folds, 70, 10), ("folds.yaml", [], 60, 20), ("folds.yaml", folds[:1], 70, 10),
                                                 ("more.yaml", [], 70, 10), ("more.yaml", ["dataset.split.validation=0.25"], 60, 20)):
            with self.subTest(config, words=words):
                self.run_program("check", config, *words, out=f"{train} training rows, {validation} validation rows, 20 test rows")
        self.run_program("check", "more.yaml", "dataset.split.test=0.5", out="43 training rows, 7 validation rows, 50 test rows")
        for words in (["dataset.split.train=0.7"], ["dataset.split={test: 0.3}"]):
            self.assertNotIn("test rows", self.run_program("check", "more.yaml", *words, out="70 training rows, 30 validation rows")[0])
        self.write("two.yaml", CONFIG.replace(", validation: 0.25", ""))
        self.run_program("two.yaml", "--run-dir", "runs/two", "train.epochs=1")
        for config in ("two.yaml", "runs/two/config.yaml"):  # a test alone is for validation, and is replaced, also where the file has validation: 0
            out, _ = self.run_program("check", config, *folds, out="87 training rows, 13 validation rows")
            self.assertNotIn("test rows", out)
