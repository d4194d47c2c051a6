"""NumPy's files: the run of the same numbers in HDF5 has the same state; validation, predictions, inspect. ctest-labels: unit"""
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

    def test_inspect(self):
        np.save(self.path("x.npy"), np.asfortranarray(self.x))
        np.savez_compressed(self.path("b.npz"), x=self.x, names=np.array(["a", "b"]))
        self.assertIn("format  npy, float32 (50, 5), Fortran order\n", self.run_program("inspect", "x.npy")[0])
        out, _ = self.run_program("inspect", "b.npz")
        self.assertIn("format  npz, 2 arrays\n", out)
        self.assertRegex(out, r"x +float32 \(50, 5\), compressed\n")
        self.assertRegex(out, r"names +not read: the type of its values, '<U1', is texts")


if __name__ == "__main__":
    program.main()
