"""`weight: balanced` of losses of classes: scikit-learn's class_weight="balanced" of the training rows. ctest-labels: unit"""
import json

import numpy as np

import program
from program import USAGE

CONFIG = """
name: test
dataset: {path: t.csv, targets: kind, split: {test: 0.25, seed: 3}}
sampler: {batch_size: 8}
model: {layers: [{linear: 4}]}
loss: {type: cross_entropy, weight: balanced}
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 3, log_every: 1}
"""


class BalancedClasses(program.Case):
    def setUp(self):
        super().setUp()
        r = np.random.default_rng(0)
        self.kinds = np.repeat([0, 1, 2], [30, 8, 4])[r.permutation(42)]
        self.write("t.csv", "a,b,kind\n" + "".join(f"{r.normal(k):.3f},{r.normal(-k):.3f},{k}\n" for k in self.kinds))
        self.write("test.yaml", CONFIG)
        self.run_program("test.yaml", "train.epochs=1", "--run-dir", "first")
        out, _ = self.run_program("predict", "test.yaml", "--part", "train", "--run-dir", "first")
        kinds = self.kinds[[int(line.split(",")[0]) for line in out.splitlines()[1:]]]
        self.weights = [len(kinds) / (3 * (kinds == k).sum()) for k in range(3)] + [1]  # an output without a class: 1

    def test_equals_numbers(self):
        """Training and validation losses, evaluation of another file, a resume and two ranks are those of the numbers."""
        numbers = f"loss.weight={json.dumps(self.weights)}"
        self.write("few.csv", "\n".join(self.read("t.csv").split("\n")[:9]) + "\n")
        for loss in ("cross_entropy", "nll", "multi_margin"):
            for ranks in (1, 2):
                words = ["--nproc", ranks, f"loss.type={loss}", "--fresh"]
                if loss == "nll":
                    words.append("model.layers=[{linear: 4}, log_softmax]")
                self.run_program("test.yaml", *words, numbers, "--run-dir", "numbers")
                self.run_program("test.yaml", *words, "--run-dir", "balanced")
                self.assertEqual(self.losses("balanced"), self.losses("numbers"))
                self.assertEqual(self.sha("balanced"), self.sha("numbers"))
                self.assertEqual([e["val_loss"] for e in self.events("epoch", "balanced")], [e["val_loss"] for e in self.events("epoch", "numbers")])
                words = ["dataset.path=few.csv", "--part", "all"]
                self.assertEqual(*(json.loads(self.run_program("eval", run, *words)[0])["loss"] for run in ("balanced", "numbers")))
        words = ["test.yaml", "--run-dir", "resumed"]
        self.run_program(*words, "train.epochs=1")
        self.run_program(*words)
        self.run_program(*words[:1], "--run-dir", "whole")
        self.assertEqual(self.sha("resumed"), self.sha("whole"))

    def test_reported(self):
        text = ", ".join("%g" % w for w in self.weights[:3]) + " (balanced)"
        out, err = self.run_program("check", "test.yaml")
        self.assertIn(f"class weights  {text}\n", out + err)
        self.run_program("test.yaml", "--fresh", err=f"class weights: {text}")
        self.assertIn("weight: balanced", self.read("runs/test/config.yaml"))

    def test_a_gap_in_the_classes(self):
        """scikit-learn divides by the number of classes that occur; a class without rows has the weight 1."""
        lines = self.read("t.csv").splitlines()
        self.write("t.csv", "\n".join([lines[0], *(line[:-1] + "013"[int(line[-1])] for line in lines[1:])]) + "\n")
        weights = [*self.weights[:2], 1, self.weights[2]]
        self.assertEqual(len(set(weights)), 4)
        out, err = self.run_program("check", "test.yaml")
        self.assertIn(f"class weights  {', '.join('%g' % w for w in weights)} (balanced)\n", out + err)
        self.run_program("test.yaml", "--run-dir", "balanced")
        self.run_program("test.yaml", f"loss.weight={json.dumps(weights)}", "--run-dir", "numbers")
        self.assertEqual(self.sha("balanced"), self.sha("numbers"))

    def test_errors(self):
        self.write("t.csv", self.read("t.csv") + "1,2,1999999999\n")  # a weight for each class would need 16 GB
        self.assertIn("loss.weight: balanced: the largest class is 1999999999; at most 16777216 classes are counted",
                      self.run_program("test.yaml", "--fresh", code=program.DATA)[1])
        self.write("t.csv", self.read("t.csv").replace("1,2,1999999999\n", ""))
        self.run_program("check", "test.yaml", "loss.weight=balance", code=USAGE, err=("loss.weight", "balanced"))
        self.write("text.txt", "hello world, " * 40)
        _, err = self.run_program("check", "test.yaml", "dataset={path: text.txt, text: {block_size: 8}}", "model.layers=[{embedding: 4}, {linear: 20}]", code=USAGE)
        self.assertIn("loss.weight: balanced needs one class per row; give a list of numbers", err)
        for loss in ("mse", "bce_with_logits"):
            self.run_program("check", "test.yaml", f"loss={{type: {loss}, weight: balanced}}", code=USAGE)
        _, err = self.run_program("check", "test.yaml", "loss=null", "losses=[{type: cross_entropy, weight: balanced}]", code=USAGE)
        self.assertIn("losses: weight: balanced is for `loss`; give a list of numbers", err)
