"""Scaled inputs as the model sees them, in training and afterwards: an identity layer shows them. ctest-labels: unit"""
import json

import h5py
import numpy as np

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


if __name__ == "__main__":
    program.main()
