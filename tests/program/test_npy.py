"""NumPy's files: the run of the same numbers in HDF5 has the same state; validation, predictions, inspect. ctest-labels: unit"""
import struct, zipfile, zlib

import h5py
import numpy as np

import program

CONFIG = """
dataset: {path: %s, split: {test: 0.2, seed: 1}}
model: {layers: [{linear: 4}, relu, {linear: 3}]}
loss: cross_entropy
train: {epochs: 2}
"""


class Npy(program.Case):
    def setUp(self):
        super().setUp()
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=(50, 5)).astype("f4")
        self.y = generator.integers(0, 3, 50)

    def state(self, path, *arguments):
        """The state after training on a file."""
        run = "-".join(("runs/" + path,) + arguments)
        self.write("test.yaml", CONFIG % path)
        self.run_program("test.yaml", "--run-dir", run, *arguments)
        return self.sha(run)

    def test_targets_of_another_file(self):
        """Never those of the training: another file has its own by its name, or needs dataset.targets."""
        for name, rows in (("train", self.x), ("answers", self.y), ("new_x", self.x), ("new_y", (self.y + 1) % 3), ("other", self.x)):
            np.save(self.path(name + ".npy"), rows)
        self.write("test.yaml", CONFIG % "train.npy, targets: answers.npy")
        self.run_program("test.yaml")
        losses = [self.run_program("eval", "runs/test", *words)[0] for words in
                  (["new_x.npy"], ["other.npy", "dataset.targets=new_y.npy"], ["train.npy", "dataset.targets=answers.npy"])]
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])
        _, err = self.run_program("eval", "runs/test", "other.npy", code=program.USAGE)
        self.assertIn("dataset.targets is missing: give the .npy file of the targets of 'other.npy'", err)
        self.run_program("predict", "runs/test", "other.npy")

    def test_targets_of_another_idx_file(self):
        import struct
        for name, values in (("train", self.x > 0), ("answers", self.y), ("new", self.x > 0)):
            values = np.ascontiguousarray(values, "u1")
            with open(self.path(name + ".idx"), "wb") as f:
                f.write(bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes())
        self.write("test.yaml", CONFIG % "train.idx, targets: answers.idx")
        self.run_program("test.yaml")
        self.run_program("eval", "runs/test", "new.idx", code=program.USAGE, err=("targets", "new.idx"))
        self.run_program("eval", "runs/test", "new.idx", "dataset.targets=answers.idx")

    def test_same_state_as_hdf5(self):
        with h5py.File(self.path("a.h5"), "w") as f:
            f["x"], f["y"] = self.x, self.y
        np.save(self.path("x.npy"), self.x)
        np.save(self.path("y.npy"), self.y)
        np.save(self.path("fortran.npy"), np.asfortranarray(self.x.astype(">f4")))
        np.savez(self.path("a.npz"), x=self.x, y=self.y)
        np.savez_compressed(self.path("b.npz"), inputs=self.x.astype("f8"), targets=self.y.astype("u1"))
        expected = self.state("a.h5")
        self.assertEqual(self.state("x.npy"), expected)
        self.assertEqual(self.state("x.npy", "dataset.cache_mb=0"), expected)
        self.assertEqual(self.state("fortran.npy", "dataset.targets=y.npy"), expected)
        self.assertEqual(self.state("a.npz"), expected)

    def test_long_rows_are_read_without_conversion(self):
        """Float32 in the file, not scaled: the same bits as from memory and through doubles; other types are converted."""
        x = np.random.default_rng(1).normal(size=(50, 2000)).astype("f4")
        with h5py.File(self.path("a.h5"), "w") as f, h5py.File(self.path("b.h5"), "w") as g:
            f["x"], f["y"], g["x"], g["y"] = x, self.y, x.astype("f8"), self.y
        for name, values in (("x", x), ("x_swapped", x.astype(">f4")), ("x_image", x.reshape(50, 20, 25, 4))):
            np.save(self.path(name + ".npy"), values)
        np.save(self.path("y.npy"), self.y)
        expected = self.state("a.h5")
        for path in ("a.h5", "b.h5", "x.npy", "x_swapped.npy"):
            self.assertEqual(self.state(path, "dataset.cache_mb=0", *(["dataset.targets=y.npy"] if ".npy" in path else [])), expected, path)
        image = ["dataset.layout=nhwc", "dataset.targets=y.npy", "model.layers=[flatten, {linear: 3}]"]
        self.assertEqual(self.state("x_image.npy", *image), self.state("x_image.npy", "dataset.cache_mb=0", *image))
        x[7, 1999] = np.inf
        np.save(self.path("x.npy"), x)
        self.write("test.yaml", CONFIG % "x.npy")
        self.run_program("test.yaml", "--fresh", "dataset.cache_mb=0", code=program.DATA, err="x.npy: row 7, column 1999: Inf is not a finite number")

    def test_other_files(self):
        """eval and predict take other files; predict needs no targets."""
        np.savez_compressed(self.path("b.npz"), x_train=self.x, y_train=self.y, x_test=self.x[:7], y_test=self.y[:7])
        np.savez(self.path("new.npz"), x_train=self.x[:4])
        self.write("test.yaml", (CONFIG % "b.npz").replace("split: {test: 0.2, seed: 1}", "validation: b.npz"))
        self.run_program("test.yaml")
        self.run_program("eval", "test.yaml")
        self.run_program("predict", "test.yaml", "--out", "test.csv")
        self.assertEqual(len(self.read("test.csv").splitlines()), 8)
        self.run_program("predict", "test.yaml", "dataset.path=new.npz", "--part", "all", "--out", "new.csv")
        self.assertEqual(len(self.read("new.csv").splitlines()), 5)

    def test_a_member_longer_than_its_size(self):
        """Its size and its checksum are those of its first bytes."""
        np.savez_compressed(self.path("a.npz"), x=self.x, y=self.y)
        with zipfile.ZipFile(self.path("a.npz")) as z:
            contents, targets = z.read("x.npy"), z.read("y.npy")
        with zipfile.ZipFile(self.path("b.npz"), "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("x.npy", contents + b"more")
            z.writestr("y.npy", targets)
        with open(self.path("b.npz"), "rb") as f:
            data = f.read()
        size, crc = struct.pack("<I", len(contents)), struct.pack("<I", zlib.crc32(contents))
        wrong, wrong_crc = struct.pack("<I", len(contents) + 4), struct.pack("<I", zlib.crc32(contents + b"more"))
        self.assertEqual((data.count(wrong_crc), data.count(wrong)), (2, 2))
        with open(self.path("b.npz"), "wb") as f:
            f.write(data.replace(wrong_crc, crc).replace(wrong, size))
        self.write("test.yaml", CONFIG % "b.npz, inputs: x, targets: y")
        self.run_program("test.yaml", code=program.DATA, err="b.npz: 'x.npy': the file is longer than its header says")

    def test_inspect(self):
        np.save(self.path("x.npy"), np.asfortranarray(self.x))
        np.savez_compressed(self.path("b.npz"), x=self.x, names=np.array(["a", "b"]))
        self.assertIn("format  npy, float32 (50, 5), Fortran order\n", self.run_program("inspect", "x.npy")[0])
        out, _ = self.run_program("inspect", "b.npz")
        self.assertIn("format  npz, 2 arrays\n", out)
        self.assertRegex(out, r"x +float32 \(50, 5\), compressed\n")
        self.assertRegex(out, r"names +not read: the type of its values, '<U1', is texts")
