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
    def test_merged_dimensions(self):
        """Neighbouring dimensions that are merged have the same order in memory."""
        x = self.values(20)
        self.run_rows("[{linear: 20}, {reshape: [5, 4]}]", "mse", x=x, y=self.values(5, 2, 2))
        self.run_rows("[{linear: 20}, {reshape: [5, 2, 2]}]", "mse", x=x, y=self.values(5, 4))
        self.run_rows("[{linear: 24}, {reshape: [6, 4]}]", "mse", x=x, y=self.values(2, 3, 1, 2, 2))
        self.refused("is (5, 4), but a target is (2, 5, 2)", "[{linear: 20}, {reshape: [5, 4]}]", "mse", x=x, y=self.values(2, 5, 2))
        self.refused("is (6, 4), but a target is (4, 6)", "[{linear: 24}, {reshape: [6, 4]}]", "mse", x=x, y=self.values(4, 6))

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

    def test_parts(self):
        """Means and variances of positions are not one after the other, unless they were flattened before."""
        x, y = self.values(7, 4), self.values(7, 2)
        advice = "needs its 2 parts one after the other; insert '- flatten' after each part, before concat joins them"
        for targets in (y, y.reshape(ROWS, 14)):
            self.refused("the model's output is (7, 4): gaussian_nll " + advice, "[{linear: 4}, softplus]", "gaussian_nll", x=x, y=targets)
        self.refused("is (2, 2): gaussian_nll " + advice, "[{linear: 2}, softplus]", "gaussian_nll", x=self.values(2, 3), y=self.values(2, 1))
        self.refused("is (7, 4): cosine_embedding " + advice, "[{linear: 4}]", "cosine_embedding", x=x, y=np.ones(ROWS))
        self.run_rows("[{linear: 2}, {flatten: {name: mean}}, {linear: {out: 2, from: input}}, softplus, {flatten: {name: variance}}, "
                      "{concat: {from: [mean, variance]}}]", "gaussian_nll", x=x, y=y)
        self.run_rows("[{conv1d: {out: 4, kernel_size: 1}}, softplus]", "gaussian_nll", x=self.values(2, 7), y=self.values(2, 7))
        self.run_rows("[{conv1d: {out: 2, kernel_size: 1}}, softplus]", "gaussian_nll", x=self.values(2, 7), y=self.values(7))
        self.run_rows("[{linear: 4}]", "cosine_embedding", x=self.values(2, 4), y=np.ones(ROWS))
        self.write("test.yaml", """
dataset: {path: rows.h5}
model: {layers: [{linear: {out: 4, name: codes}}]}
losses: [{type: contrastive, output: codes}, {type: mse, output: codes, target: target, name: other}]
train: {epochs: 1}
""")
        self.write_rows(x=x, y=self.values(7, 4))
        self.run_program("test.yaml", "--fresh", code=program.USAGE, err="losses: codes: the model's output is (7, 4): contrastive " + advice)

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
        self.run_program("test.yaml", code=program.USAGE, err="test.yaml:5:5: losses: scores: the model's output is (3, 4, 5), but a target is (5, 4)")
        self.write_rows(x=self.values(2, 4, 5), mask=self.classes(3, 4, 5), image=self.values(5, 4))
        self.run_program("test.yaml", code=program.USAGE, err="test.yaml:6:5: losses: grey: the model's output is (1, 4, 5), but a target is (5, 4)")
        self.write_rows(x=self.values(2, 4, 5), mask=self.classes(3, 4, 5), image=self.values(4, 5))
        self.run_program("test.yaml")
        self.write("test.yaml", text.replace("target: image", "target: input").replace(", image: image", ""))
        _, err = self.run_program("test.yaml", "model.layers=[{conv2d: {out: 3, kernel_size: 1, name: scores}}, flatten, {linear: 40}, "
                                  "{reshape: {shape: [2, 5, 4], name: grey}}]", "--fresh", code=program.USAGE)
        self.assertIn("losses: grey: the model's output is (2, 5, 4), but a target is (2, 4, 5)", err)

    def test_names_of_a_validation_file(self):
        """As many values in all, but not of each name."""
        x, y = self.values(2, 3), self.values(4)
        self.write_rows(a=x, b=y, c=self.values(2, 3), d=self.values(2))
        config = """
dataset: {path: rows.h5, validation: other.h5, inputs: {a: a, b: b}, targets: {c: c, d: d}}
model: {layers: [{flatten: {from: a, name: flat}}, {concat: {from: [flat, b]}}, {linear: {out: 6, name: first}}, {linear: {out: 2, name: second}}]}
losses: [{type: mse, output: first, target: c}, {type: mse, output: second, target: d}]
train: {epochs: 1}
"""
        self.write("test.yaml", config)
        good = {"a": x, "b": y, "c": self.values(2, 3), "d": self.values(2)}
        for name, shape, sentence in (("a", (3, 2), "'a' have shape 2x3, but in the validation file 3x2"), ("c", (3, 2), "'c' have shape 2x3, but in the validation file 3x2"),
                                      ("a", (6,), "'a' have shape 2x3, but in the validation file 6")):
            self.write_rows("other.h5", **{**good, name: self.values(*shape)})
            self.run_program("test.yaml", "--fresh", code=program.DATA, err="dataset.validation: rows of " + sentence)
        for shape in ((2, 3), (1, 2, 3), (6,)):  # of targets, dimensions of 1 may be missing, and a list fits any shape
            self.write_rows("other.h5", **{**good, "c": self.values(*shape)})
            self.run_program("test.yaml", "--fresh")

    def test_names_of_several_files(self):
        """Inputs and targets with names are those of one file; each has the same shape in all of them."""
        x, b, c, d = self.values(2, 3), self.values(4), self.values(2, 3), self.values(2)
        config = """
dataset: {path: rows.h5, split: {test: 0.25, shuffle: false}, inputs: {a: a, b: b}, targets: {c: c, d: d}}
model: {layers: [{flatten: {from: a, name: flat}}, {concat: {from: [flat, b]}}, {linear: {out: 6, name: first}}, {linear: {out: 2, name: second}}]}
losses: [{type: mse, output: first, target: c}, {type: mse, output: second, target: d}]
train: {epochs: 1}
"""
        self.write("test.yaml", config)
        self.write_rows(a=x, b=b, c=c, d=d)
        half = len(x) // 2
        self.write_rows("1.h5", a=x[:half], b=b[:half], c=c[:half], d=d[:half])
        self.write_rows("2.h5", a=x[half:], b=b[half:], c=c[half:], d=d[half:])
        self.run_program("test.yaml", "--run-dir", "runs/one")
        self.run_program("test.yaml", "dataset.path=[1.h5, 2.h5]", "--run-dir", "runs/two")
        self.assertEqual(self.sha("runs/two"), self.sha("runs/one"))
        self.write_rows("2.h5", a=self.values(4), b=self.values(2, 3), c=c, d=d)
        _, err = self.run_program("test.yaml", "dataset.path=[1.h5, 2.h5]", "--run-dir", "runs/bad", code=program.DATA)
        self.assertIn("2.h5: rows of 'a' have shape 4, but in the first file 2x3", err)
        self.write_rows("1.h5", u=self.values(2), v=self.values(1), y=self.values(1))
        self.write_rows("2.h5", u=self.values(1), v=self.values(2), y=self.values(1))
        self.write("list.yaml", "dataset: {path: [1.h5, 2.h5], inputs: [u, v]}\nmodel: {layers: [linear: 1]}\nloss: mse\ntrain: {epochs: 1}\n")
        self.run_program("list.yaml", code=program.DATA, err="2.h5: rows of 'u' have shape 1, but in the first file 2")

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
            self.run_program("test.yaml", f"dataset.path={path}", "--fresh", code=program.USAGE, err="is (2, 3), but a target is (3, 2)")
        self.run_program("eval", "test.yaml", "b.npz", code=program.USAGE, err="is (2, 3), but a target is (3, 2)")
        _, err = self.run_program("test.yaml", "dataset.validation=b.npz", "--fresh", code=program.DATA)
        self.assertIn("rows of 'a.npz' have shape 4 and 6 target values of shape 2x3, those of 'b.npz' 4 and 6 of shape 3x2", err)
        _, err = self.run_program("test.yaml", "dataset.path=x_?.npy", "--fresh", code=program.DATA)
        self.assertIn("x_b.npy: rows have 4 inputs and 6 target values of shape 3x2; those of the first file have 4 inputs and 6 "
                      "target values of shape 2x3", err)


class ChannelsLast(Shapes):
    """dataset.layout: nhwc reads what is in another file as (channels, height, width)."""
    CONV = "[{conv2d: {out: 2, kernel_size: 1}}]"

    def outputs(self, config, path):
        self.write("test.yaml", config)
        self.run_program("test.yaml", "--fresh", f"dataset.path={path}")
        self.run_program("predict", "test.yaml", f"dataset.path={path}", "--part", "all", "--out", "out.h5", "--outputs")
        with h5py.File(self.path("out.h5")) as f:
            return f["outputs"][()], self.losses("runs/test")

    def assert_same(self, config, *paths):
        expected = self.outputs(config, paths[0])
        for path in paths[1:]:
            outputs, losses = self.outputs(config.replace("rows.h5", "rows.h5, layout: nhwc"), path)
            np.testing.assert_array_equal(outputs, expected[0], path)
            self.assertEqual(losses, expected[1], path)

    def test_images_as_targets(self):
        x = self.values(3, 4, 5)
        y = x[:, :2] * 2
        self.write_rows("first.h5", x=x, y=y)
        last = {"x": x.transpose(0, 2, 3, 1), "y": y.transpose(0, 2, 3, 1)}
        self.write_rows("last.h5", **last)
        np.savez(self.path("last.npz"), **last)
        for name, value in last.items():
            np.save(self.path(name + "_last.npy"), value)
        self.assert_same(CONFIG % ("", self.CONV, "mse"), "first.h5", "last.h5", "last.npz", "x_last.npy")
        _, err = self.run_program("predict", "runs/test", "first.h5", code=program.DATA)  # of the other layout
        self.assertIn("\na row of the inputs is (5, 3, 4), and was (3, 4, 5) in the training; for images see dataset.layout\n", err)
        self.assertIn("targets (2, 4, 5)", self.run_program("check", "test.yaml", "dataset.path=last.npz")[0])
        last["y"][7, 3, 1, 0] = np.nan
        np.savez(self.path("last.npz"), **last)
        self.write_rows("last.h5", **last)
        for path in ("last.h5", "last.npz"):
            self.run_program("test.yaml", "--fresh", f"dataset.path={path}", code=program.DATA, err="row 7, element [3, 1, 0]: NaN")

    def test_masks_stay(self):
        x, y = self.values(3, 4, 5), self.classes(2, 4, 5)
        self.write_rows("first.h5", x=x, y=y)
        self.write_rows("last.h5", x=x.transpose(0, 2, 3, 1), y=y)
        self.assert_same(CONFIG % ("", self.CONV, "cross_entropy"), "first.h5", "last.h5")

    def test_several_inputs(self):
        a, b, c, y = self.values(3, 4, 5), self.values(2, 6, 5), self.values(4), self.values(3, 4, 5)
        self.write_rows("first.h5", a=a, b=b, c=c, y=y)
        self.write_rows("last.h5", a=a.transpose(0, 2, 3, 1), b=b.transpose(0, 2, 3, 1), c=c, y=y.transpose(0, 2, 3, 1))
        layers = ("[{conv2d: {out: 2, kernel_size: 3, from: a}}, {flatten: {name: fa}}, {conv2d: {out: 2, kernel_size: 3, from: b}}, {flatten: {name: fb}}, "
                  "{concat: {from: [fa, fb, c]}}, {linear: 60}, {reshape: [3, 4, 5]}]")
        self.assert_same(CONFIG % (", inputs: {a: a, b: b, c: c}", layers, "mse"), "first.h5", "last.h5")
        self.write("test.yaml", CONFIG % (", inputs: {c: c}, targets: c, layout: nhwc", "[{linear: {out: 4, from: c}}]", "mse"))
        _, err = self.run_program("test.yaml", "dataset.path=first.h5", "--fresh", code=program.USAGE)
        self.assertIn("dataset.layout: nhwc needs images, (rows, height, width, channels), but dataset 'c' of first.h5 has 2 dimensions", err)


class Augmentation(Shapes):
    def test_masks_move_with_images(self):
        """A class for each pixel that is visible in the pixel is learnt, whatever moves; with one or several losses."""
        x = self.random.random((ROWS, 1, 8, 8)).astype("f4")
        self.write_rows(x=x, y=(x[:, 0] > 0.5).astype("i8"))
        for changes in ("horizontal_flip: 1", "random_crop: 2, horizontal_flip: 0.5", "rotation: 60"):
            for loss in ("loss: cross_entropy", "losses: [{type: cross_entropy, output: scores}]"):
                self.write("test.yaml", f"""
dataset: {{path: rows.h5, augment: {{{changes}}}}}
model: {{layers: [{{conv2d: {{out: 2, kernel_size: 1, name: scores}}}}]}}
{loss}
optimizer: {{type: adam, lr: 0.1}}
sampler: {{batch_size: 8}}
train: {{epochs: 60}}
""")
                self.run_program("test.yaml", "--fresh")
                self.assertLess(self.losses()[-1], 0.2, (changes, loss))

    def test_targets_that_cannot_move(self):
        x = self.values(1, 8, 8)
        flip = ", augment: {horizontal_flip: 0.5}"
        layers = "[{conv2d: {out: 2, kernel_size: 3, stride: 2, padding: 1}}]"
        self.refused("dataset.augment moves the pixels of the inputs, but cannot move those of the targets (4x4); remove dataset.augment",
                     layers, "cross_entropy", flip, x=x, y=self.classes(2, 4, 4))
        self.run_rows("[flatten, linear: 5]", "bce_with_logits", flip, x=x, y=self.classes(2, 5))
        self.run_rows("[flatten, linear: 64]", "bce_with_logits", flip, x=x, y=self.classes(2, 64))  # may be labels
        self.refused("cannot move targets that are lists of as many values (256); store them as (rows, 1, 16, 16)",
                     "[flatten, linear: 256]", "bce_with_logits", flip, x=self.values(1, 16, 16), y=self.classes(2, 256))
