"""Shapes of rows: an output is compared with a target only where they have the same shape. ctest-labels: unit"""
import h5py
import numpy as np

import program

CONFIG = """
dataset: {path: rows.h5%s}
model: {layers: %s}
loss: %s
sampler: {batch_size: 8}
train: {epochs: 1}
"""
ROWS = 24


class Shapes(program.Case):
    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(0)

    def write_rows(self, name="rows.h5", **arrays):
        with h5py.File(self.path(name), "w") as f:
            for key, value in arrays.items():
                f[key] = value

    def values(self, *shape):
        return self.random.normal(size=(ROWS, *shape)).astype("f4")

    def classes(self, count, *shape):
        return self.random.integers(0, count, (ROWS, *shape))

    def run_rows(self, layers, loss, dataset="", code=program.OK, **arrays):
        """The messages of check and, where it accepts the rows, of a training."""
        if arrays:
            self.write_rows(**arrays)
        self.write("test.yaml", CONFIG % (dataset, layers, loss))
        out, err = self.run_program("check", "test.yaml", code=code)
        if code == program.OK:
            self.run_program("test.yaml", "--fresh")
        return out + err

    def refused(self, sentence, *arguments, **arrays):
        self.assertIn(sentence, self.run_rows(*arguments, code=program.USAGE, **arrays))


class Losses(Shapes):
    def test_values(self):
        x = self.values(4)
        layers = "[{linear: 6}, {reshape: [2, 3]}]"
        self.refused("test.yaml:4:7: loss: the model's output is (2, 3), but a target is (3, 2)", layers, "mse", x=x, y=self.values(3, 2))
        self.refused("is (2, 3), but a target is (3, 2)", layers, "bce_with_logits", x=x, y=self.classes(2, 3, 2))
        for shape in ((2, 3), (2, 1, 3), (1, 2, 3), (6,), (1, 6)):
            out = self.run_rows(layers, "mse", x=x, y=self.values(*shape))
            self.assertIn(f"6 target values a row, targets ({', '.join(map(str, shape))})\n" if len(shape) > 1 else "6 target values a row\n", out)
        self.run_rows("[{linear: 6}]", "mse", x=x, y=self.values(3, 2))
        images = self.values(2, 4, 5)
        conv = "[{conv2d: {out: %d, kernel_size: 1}}]"
        self.refused("is (1, 4, 5), but a target is (1, 5, 4)", conv % 1, "l1", x=images, y=self.values(1, 5, 4))
        self.refused("is (2, 4, 5), but a target is (4, 5, 2)", conv % 2, "mse", x=images, y=self.values(4, 5, 2))
        self.run_rows(conv % 1, "l1", x=images, y=self.values(4, 5))
        self.run_rows(conv % 4, "gaussian_nll", x=images, y=self.values(2, 4, 5))
        self.refused("is (4, 4, 5), but a target is (2, 5, 4)", conv % 4, "gaussian_nll", x=images, y=self.values(2, 5, 4))

    def test_classes(self):
        images, conv = self.values(2, 4, 5), "[{conv2d: {out: 3, kernel_size: 1}}]"
        self.refused("is (3, 4, 5), but a target is (5, 4)", conv, "cross_entropy", x=images, y=self.classes(3, 5, 4))
        for shape in ((4, 5), (1, 4, 5), (20,)):
            self.run_rows(conv, "cross_entropy", x=images, y=self.classes(3, *shape))
        series = self.values(2, 7)
        conv = "{conv1d: {out: 3, kernel_size: 1}}"
        y = self.classes(3, 7)
        self.refused("insert '- permute: [0, 2, 1]' after the last layer", f"[{conv}]", "cross_entropy", x=series, y=y)
        self.run_rows(f"[{conv}, {{permute: [0, 2, 1]}}]", "cross_entropy", x=series, y=y)

    def test_several_losses(self):
        self.write_rows(x=self.values(2, 4, 5), mask=self.classes(3, 5, 4), image=self.values(4, 5))
        text = """
dataset: {path: rows.h5, targets: {mask: mask, image: image}}
model: {layers: [{conv2d: {out: 3, kernel_size: 1, name: scores}}, {conv2d: {out: 1, kernel_size: 1, name: grey}}]}
losses:
  - {type: cross_entropy, output: scores, target: mask}
  - {type: mse, output: grey, target: image}
train: {epochs: 1}
"""
        self.write("test.yaml", text)
        _, err = self.run_program("test.yaml", code=program.USAGE)
        self.assertIn("test.yaml:5:5: losses: scores: the model's output is (3, 4, 5), but a target is (5, 4)", err)
        self.write_rows(x=self.values(2, 4, 5), mask=self.classes(3, 4, 5), image=self.values(5, 4))
        _, err = self.run_program("test.yaml", code=program.USAGE)
        self.assertIn("test.yaml:6:5: losses: grey: the model's output is (1, 4, 5), but a target is (5, 4)", err)
        self.write_rows(x=self.values(2, 4, 5), mask=self.classes(3, 4, 5), image=self.values(4, 5))
        self.run_program("test.yaml")
        self.write("test.yaml", text.replace("target: image", "target: input").replace(", image: image", ""))
        _, err = self.run_program("test.yaml", "model.layers=[{conv2d: {out: 3, kernel_size: 1, name: scores}}, flatten, {linear: 40}, "
                                  "{reshape: {shape: [2, 5, 4], name: grey}}]", "--fresh", code=program.USAGE)
        self.assertIn("losses: grey: the model's output is (2, 5, 4), but a target is (2, 4, 5)", err)

    def test_other_files(self):
        """Files of NumPy have shapes, too; those of a dataset agree."""
        x, layers = self.values(4), "[{linear: 6}, {reshape: [2, 3]}]"
        for name, shape in (("a", (2, 3)), ("b", (3, 2))):
            np.savez(self.path(name + ".npz"), x=x, y=self.values(*shape))
            np.save(self.path(f"x_{name}.npy"), x)
            np.save(self.path(f"y_{name}.npy"), self.values(*shape))
        self.write("test.yaml", CONFIG.replace("rows.h5", "a.npz") % ("", layers, "mse"))
        self.run_program("test.yaml")
        for path in ("b.npz", "x_b.npy"):
            _, err = self.run_program("test.yaml", f"dataset.path={path}", "--fresh", code=program.USAGE)
            self.assertIn("is (2, 3), but a target is (3, 2)", err)
        _, err = self.run_program("eval", "test.yaml", "b.npz", code=program.USAGE)
        self.assertIn("is (2, 3), but a target is (3, 2)", err)
        _, err = self.run_program("test.yaml", "dataset.validation=b.npz", "--fresh", code=program.DATA)
        self.assertIn("rows of 'a.npz' have shape 4 and 6 target values of shape 2x3, those of 'b.npz' 4 and 6 of shape 3x2", err)
        _, err = self.run_program("test.yaml", "dataset.path=x_?.npy", "--fresh", code=program.DATA)
        self.assertIn("x_b.npy: rows have 4 inputs and 6 target values of shape 3x2; those of the first file have 4 inputs and 6 "
                      "target values of shape 2x3", err)


if __name__ == "__main__":
    program.main()
