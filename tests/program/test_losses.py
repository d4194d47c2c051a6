"""Targets and last layers that do not fit the loss are named, with their place. ctest-labels: unit"""
import h5py
import numpy as np

import program
from program import DATA

CONFIG = """
dataset: {path: rows.csv}
sampler: {batch_size: 4}
model:
  layers:
    - linear: {out: %d}
%s
loss: %s
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


class Losses(program.Case):
    def config(self, outputs, layers, loss):
        return self.write("test.yaml", CONFIG % (outputs, "\n".join("    - " + layer for layer in layers), loss))

    def rows(self, targets, name="rows.csv"):
        self.write(name, "a,b,y\n" + "".join(f"{i},{-i},{t}\n" for i, t in enumerate(targets)))

    def test_targets_outside_0_to_1(self):
        self.config(1, [], "bce_with_logits")
        for targets, message in (([0, 1, 2, 1], "rows.csv:line 4: column 'y': 2 is not a probability; the loss needs targets from 0 to 1"),
                                 ([0.5, -0.25], "rows.csv:line 3: column 'y': -0.25 is not a probability"),
                                 ([1.5, 2], "rows.csv:line 2: column 'y': 1.5 is not a probability")):
            self.rows(targets)
            for arguments in (["test.yaml"], ["test.yaml", "--nproc", 2], ["check", "test.yaml"]):
                self.assertIn(message, self.run_program(*arguments, code=DATA)[1])
        self.rows([0, 1, 0.25, 1])
        self.run_program("test.yaml")
        self.rows([0, 1, 1.5], "validation.csv")
        message = "validation.csv:line 4: column 'y': 1.5 is not a probability"
        self.assertIn(message, self.run_program("test.yaml", "dataset.validation=validation.csv", "--fresh", code=DATA)[1])
        self.rows([0, 3])
        self.assertIn("rows.csv:line 3", self.run_program("eval", "test.yaml", code=DATA)[1])
        self.run_program("predict", "test.yaml", "--out", "out.csv")  # which reads no targets
        self.run_program("test.yaml", "loss=mse", "--fresh")

    def test_targets_of_a_file_that_is_not_kept_in_memory(self):
        self.config(2, [], "bce_with_logits")
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"] = np.zeros((9, 3))
            f["y"] = np.eye(9)[:, :2] * [1, 4]
        _, err = self.run_program("test.yaml", "dataset.path=rows.h5", "dataset.cache_mb=0", code=DATA)
        self.assertIn("rows.h5: dataset 'y', row 1, column 1: 4 is not a probability", err)
        with h5py.File(self.path("rows.h5"), "r+") as f:
            f["y"][0, 0] = -2
        _, err = self.run_program("test.yaml", "dataset.path=rows.h5", "dataset.cache_mb=0", code=DATA)
        self.assertIn("rows.h5: dataset 'y', row 0, column 0: -2 is not a probability", err)

    def test_an_activation_that_the_loss_has_itself(self):
        self.rows([0, 1, 1, 0])
        for outputs, layers, loss, sentence in (
                (2, ["softmax"], "cross_entropy", "test.yaml:7:7: model.layers.1.softmax: it is before the loss cross_entropy, which applies softmax itself"),
                (2, ["sigmoid"], "cross_entropy", "model.layers.1.sigmoid: it is before the loss cross_entropy, which"),
                (1, ["sigmoid"], "bce_with_logits", "test.yaml:7:7: model.layers.1.sigmoid: it is before the loss bce_with_logits, which applies sigmoid itself"),
                (2, ["relu", "sequential: [{linear: 2}, softmax]", "flatten"], "cross_entropy", "test.yaml:8:"),
                (2, ["softmax", "linear: 2"], "cross_entropy", None),
                (2, ["softmax", "relu"], "cross_entropy", None),
                (1, ["sigmoid"], "mse", None)):
            self.config(outputs, layers, loss)
            for text in (self.run_program("check", "test.yaml")[0], "".join(self.run_program("test.yaml", "--fresh"))):
                self.assertEqual(text.count("applies"), 1 if sentence else 0, (layers, loss, text))
                self.assertIn(sentence or "", text)


if __name__ == "__main__":
    program.main()
