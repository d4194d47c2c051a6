"""Scaled inputs as the model sees them, in training and afterwards: an identity layer shows them. ctest-labels: unit"""
import json

import h5py
import numpy as np

import onnx_graph
import program
from test_weights import write_safetensors

COLUMNS = 5
CONFIG = f"""
dataset: {{path: rows.h5, scale: %s, split: {{test: 0.5, shuffle: false}}}}
sampler: {{batch_size: 16}}
model: {{init_from: identity.safetensors, layers: [{{linear: {{out: {COLUMNS}, bias: false}}}}]}}
loss: mse
optimizer: {{type: sgd, lr: 0}}
train: {{epochs: 1}}
"""


class Scaling(program.Case):
    def run_on(self, inputs, scale):
        """The inputs of all rows as predict scales them; the losses of the validation rows, in training and by eval."""
        self.write("test.yaml", CONFIG % scale)
        write_safetensors(self.path("identity.safetensors"), {"0.weight": ("F32", np.eye(COLUMNS, dtype="<f4"))})
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = inputs, np.zeros((len(inputs), COLUMNS))
        self.run_program("test.yaml", "--fresh")
        out, _ = self.run_program("eval", "test.yaml")
        self.run_program("predict", "test.yaml", "--part", "all", "--out", "out.h5")
        with h5py.File(self.path("out.h5")) as f:
            return f["outputs"][:], self.events("epoch")[-1]["val_loss"], json.loads(out)["loss"]

    def test_fitted_numbers_are_applied_in_double(self):
        """Whatever the type in the file: scikit-learn's numbers for these values as float64, rounded once. Sums of 64 such values
        are exact, so numpy's order of additions is ours."""
        r = np.random.default_rng(1)
        values = r.integers(0, 256, (128, COLUMNS))
        for inputs in (values.astype("u1"), (values / 256).astype("f4"), (values / 256).astype("f8"), values.astype("i4")):
            exact = inputs.astype("f8")
            train = exact[:64]
            mean = train.mean(0)
            for scale, low, width in (("standard", mean, np.sqrt(((train - mean) ** 2).mean(0))),
                                      ("minmax", train.min(0), train.max(0) - train.min(0))):
                seen, trained, evaluated = self.run_on(inputs, scale)
                np.testing.assert_array_equal(seen, ((exact - low) / width).astype("f4"), f"{inputs.dtype} {scale}")
                self.assertEqual(trained, evaluated)

    def test_given_numbers_for_bytes_are_applied_in_float32(self):
        """As torchvision's Normalize does, in training and afterwards."""
        inputs = np.random.default_rng(2).integers(0, 256, (128, COLUMNS)).astype("u1")
        seen, trained, evaluated = self.run_on(inputs, "{mean: 33.1, std: 77.7}")
        np.testing.assert_array_equal(seen, (inputs.astype("f4") - np.float32(33.1)) / np.float32(77.7))
        self.assertEqual(trained, evaluated)

    def windows(self, scale, *words, code=program.OK, dtype="f8"):
        """Windows (rows, 4 steps, 3 features) of features of different size, and what the model sees of them."""
        x = np.random.default_rng(3).integers(0, 200, (64, 4, 3)).astype(dtype) + np.array([0, 50, 3]).astype(dtype)
        np.savez(self.path("windows.npz"), x=x, y=np.zeros((64, 12), "f4"))
        write_safetensors(self.path("identity.safetensors"), {"1.weight": ("F32", np.eye(12, dtype="<f4"))})
        self.write("test.yaml", CONFIG.replace("rows.h5", "windows.npz").replace("[{linear: {out: 5,", "[flatten, {linear: {out: 12,") % scale)
        _, err = self.run_program("test.yaml", "--fresh", *words, code=code)
        if code != program.OK:
            return x, err
        self.run_program("predict", "test.yaml", "--part", "all", "--out", "out.h5", *words)
        self.assertEqual(json.loads(self.run_program("eval", "test.yaml", *words)[0])["loss"], self.events("epoch")[-1]["val_loss"])
        with h5py.File(self.path("out.h5")) as f:
            return x.astype("f8"), f["outputs"][:].reshape(64, 4, 3)

    def test_features_of_windows(self):
        """per_feature: the numbers of a scaler that was fitted to the steps of all training rows as rows."""
        for dtype in ("f8", "u1"):
            for words in ((), ("dataset.cache_mb=0",), ("--nproc", 2)):
                x, seen = self.windows("{type: standard, per_feature: true}", *words, dtype=dtype)
                steps = x[:32].reshape(-1, 3)
                np.testing.assert_allclose(seen, (x - steps.mean(0)) / steps.std(0), rtol=1e-6, atol=1e-6)
                x, seen = self.windows("{type: minmax, per_feature: true}", *words, dtype=dtype)
                low, high = x[:32].min((0, 1)), x[:32].max((0, 1))
                np.testing.assert_array_equal(seen, ((x - low) / (high - low)).astype("f4"))
        x, seen = self.windows("{mean: [1, 2, 3], std: [4, 5, 6], per_feature: true}")
        np.testing.assert_array_equal(seen, ((x - [1, 2, 3]) / [4, 5, 6]).astype("f4"))

    def test_exported_features_of_windows(self):
        x, seen = self.windows("{type: standard, per_feature: true}")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        graph = onnx_graph.Graph(self.path("m.onnx"))
        np.testing.assert_allclose(graph.run(x.astype("f4")), seen.reshape(64, 12), rtol=1e-6, atol=1e-6)
        self.run_program("export", "runs/test", "--out", "m.c")
        self.assertIn("input_mean[i]", self.read("m.c"))

    def test_per_feature_of_other_rows(self):
        _, err = self.windows("{mean: [1, 2], std: [4, 5], per_feature: true}", code=program.USAGE)
        self.assertIn("dataset.scale.mean has 2 numbers; rows with 3 features need 1 or 3", err)
        np.savez(self.path("images.npz"), x=np.zeros((8, 1, 4, 3)), y=np.zeros((8, 12)))
        _, err = self.windows("{type: standard, per_feature: true}", "dataset.path=images.npz", code=program.USAGE)
        self.assertIn("dataset.scale.per_feature: is for rows (steps, features), but a row has 3 dimensions", err)
