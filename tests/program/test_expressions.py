"""Expressions in a config: what they train agrees with the built-in losses and layers, with any number of ranks and threads, and
wrong ones are rejected with their place. ctest-labels: unit"""
import json

import numpy as np

import program
from program import USAGE

CONFIG = """name: test
dataset: {path: rows.csv, targets: [v, w], split: {test: 0.25, seed: 3}%s}
sampler: {batch_size: 12}
model: {layers: [{linear: {out: 6, name: a}}, %s, {linear: 2}]}
loss: %s
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 4, log_every: 1}
"""
# a loss or layer, the expression that is the same
LOSSES = [("mse", "mean((y - t) ^ 2)"), ("l1", "mean(abs(y - t))"), ("{type: huber, delta: 0.5}", "mean(where(abs(y - t) <= 0.5, 0.5 * (y - t) ^ 2, 0.5 * (abs(y - t) - 0.25)))"),
          ("focal", "mean((softplus(-y) * t + softplus(y) * (1 - t)) * (sigmoid(-y) * t + sigmoid(y) * (1 - t)) ^ 2 * (0.25 * t + 0.75 * (1 - t)))")]
LAYERS = [("silu", "x * sigmoid(x)"), ("gelu", "gelu(x)"), ("softmax", "softmax(x)"), ("{elu: 0.5}", "where(x > 0, x, 0.5 * expm1(min(x, 0)))")]
WRONG = [
    ("loss: mse", "loss: {expression: mean(y - u)}", "test.yaml:5:29: loss.expression: unknown name 'u'"),
    ("loss: mse", 'loss: {expression: "mean(abs(y - t) ^ 1.5"}', "test.yaml:5:42: loss.expression: expected ',' or ')' in the call of 'mean' (character 22 of the expression)"),
    ("loss: mse", "loss: {expression: mean(abs(t))}", "loss.expression: the loss does not depend on y, the output of the model"),
    ("loss: mse", "loss: {expression: (y - t) ^ 2}", "it is as many numbers as y, which is 2, and the loss of a row is one; write mean(...) or sum(...)"),
    ("loss: mse", "loss: {expression: ''}", "loss.expression: the expression is empty"),
    ("loss: mse", "loss: {expression: null}", "loss.expression"),
    ("loss: mse", "loss: expression", "loss.expression: missing"),
    ("{linear: 2}", "{linear: 3}", "y is 3, but t has 2 values", "mean((y - t) ^ 2)"),
    ("relu", "{expression: x * b}", "test.yaml:4:64: model.layers.1.expression.value: unknown name 'b' (known: x) (character 5 of the expression)"),
    ("relu", "{expression: {from: a, value: a + 1}}", "model.layers.1.expression: 'a + 1' does not have 'x', which it takes"),
    ("relu", "{linear: {out: 3, name: b}}, {expression: {from: [a, b], value: a + b}}", "the inputs have different shapes: input 1 has 6, input 2 has 3; only the last dimension may be 1"),
    ("relu", "{reshape: [1, 2, 3]}, {expression: x - mean(x)}, flatten", "reductions and inputs of different sizes are for (features) and (positions, features)"),
    ("relu", "{expression: {value: [x]}}", "model.layers.1.expression.value"),
    ("relu", "expression", "model.layers.1.value: missing"),
]


class Expressions(program.Case):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(7)
        rows = np.hstack([random.normal(size=(60, 4)), random.uniform(size=(60, 2))])
        self.write("rows.csv", "p,q,r,s,v,w\n" + "".join(",".join(f"{x:.4f}" for x in row) + "\n" for row in rows))

    def losses(self, layer, loss, *options, data=""):
        self.write("test.yaml", CONFIG % (data, layer, loss))
        self.run_program("test.yaml", "--fresh", *options)
        return [line["loss"] for line in self.metrics() if line["event"] == "step"] + [line["val_loss"] for line in self.metrics() if line["event"] == "epoch"]

    def test_losses_are_those_of_the_program(self):
        for built_in, formula in LOSSES:
            with self.subTest(built_in):
                expected = self.losses("relu", built_in)
                np.testing.assert_allclose(self.losses("relu", f'{{expression: "{formula}"}}'), expected, rtol=2e-6)
                np.testing.assert_allclose(self.losses("relu", f'{{type: expression, expression: "{formula}"}}', "--nproc", 2), self.losses("relu", built_in, "--nproc", 2), rtol=2e-6)

    def test_layers_are_those_of_the_program(self):
        for built_in, formula in LAYERS:
            with self.subTest(built_in):
                np.testing.assert_allclose(self.losses(f'{{expression: "{formula}"}}', "mse"), self.losses(built_in, "mse"), rtol=2e-6)

    def test_several_losses(self):
        self.write("test.yaml", CONFIG.replace("loss: %s", "losses: [{expression: mean((y - t) ^ 2), loss_weight: 0.5, name: square}, {type: l1}]") % ("", "relu"))
        self.run_program("test.yaml")
        epoch = [line for line in self.metrics() if line["event"] == "epoch"][-1]
        self.assertAlmostEqual(epoch["val_loss"], 0.5 * epoch["val_square_loss"] + epoch["val_l1_loss"], places=6)

    def test_weights_of_rows(self):
        """They multiply the loss of a row, unless the expression has w."""
        text = self.read("rows.csv").splitlines()
        self.write("rows.csv", "\n".join([text[0] + ",n", *(f"{line},{i % 3 + 0.5}" for i, line in enumerate(text[1:]))]) + "\n")
        weights = ", weights: n, inputs: [p, q, r, s]"
        expected = self.losses("relu", "mse", data=weights)
        np.testing.assert_allclose(self.losses("relu", "{expression: mean((y - t) ^ 2)}", data=weights), expected, rtol=2e-6)
        np.testing.assert_allclose(self.losses("relu", "{expression: w * mean((y - t) ^ 2)}", data=weights), expected, rtol=2e-6)
        other = self.losses("relu", "{expression: mean((y - t) ^ 2) + 0 * w}", data=weights)
        self.assertFalse(np.allclose(other, expected, rtol=1e-3))

    def test_threads_and_resume_have_the_same_bits(self):
        states = set()
        for threads in (1, 2):
            self.write("test.yaml", CONFIG % ("", "{expression: x * sigmoid(x)}", "{expression: mean(abs(y - t) ^ 1.5)}"))
            self.run_program("test.yaml", "--fresh", env={"OMP_NUM_THREADS": str(threads)})
            states.add(self.sha())
        self.run_program("test.yaml", "--fresh", "train.epochs=2")
        self.run_program("test.yaml")
        states.add(self.sha())
        self.assertEqual(len(states), 1)

    def test_wrong_expressions(self):
        for old, new, message, *loss in WRONG:
            with self.subTest(new):
                config = CONFIG % ("", "relu", "mse")
                if loss:
                    config = config.replace("loss: mse", f'loss: {{expression: "{loss[0]}"}}')
                self.assertEqual(config.count(old), 1)
                self.write("test.yaml", config.replace(old, new))
                _, err = self.run_program("test.yaml", code=USAGE)
                self.assertIn(message, err)

    def test_overrides_and_written_configs(self):
        """The resolved config of a run is read again; an override may be an expression, too."""
        self.write("test.yaml", CONFIG % ("", "relu", "mse"))
        self.run_program("test.yaml", "loss={expression: mean((y - t) ^ 2)}")
        self.run_program("eval", "runs/test")
        _, err = self.run_program("test.yaml", "--fresh", "loss={expression: mean(y - }", code=USAGE)
        self.assertIn("loss", err)


if __name__ == "__main__":
    program.main()
