"""A path that names several files: the run of one file with the same rows has the same state; messages name the file.
ctest-labels: unit"""
import os
import random

import h5py
import numpy as np

import program

CONFIG = """
dataset: {path: all.csv, targets: y, split: 0.2}
model: {layers: [{linear: 8}, relu, {linear: 3}]}
loss: cross_entropy
train: {epochs: 2}
"""


class Patterns(program.Case):
    def setUp(self):
        super().setUp()
        generator = random.Random(1)
        self.rows = [(generator.random(), generator.choice(["red", "blue", "green"]), generator.choice("abc")) for _ in range(90)]
        self.table("all.csv", self.rows)
        self.write("test.yaml", CONFIG)

    def table(self, name, rows, order=(0, 1, 2)):
        lines = [("x", "colour", "y"), *rows]
        self.write(name, "".join(",".join(str(line[i]) for i in order) + "\n" for line in lines))

    def state(self, *arguments):
        run = "runs/" + str(self.count)
        self.count += 1
        self.run_program("test.yaml", "--run-dir", run, *arguments)
        return self.sha(run)

    count = 0

    def error(self, *arguments, code=program.DATA):
        return self.run_program("test.yaml", "--run-dir", "runs/error", *arguments, code=code)[1]

    def test_csv(self):
        """Categories and labels are those of all files; the columns of each are found by name."""
        self.table("part-1.csv", self.rows[:30])
        self.table("part-10.csv", self.rows[30:60], (2, 0, 1))
        self.table("part-2.csv", self.rows[60:])
        self.table("part-3.csv", [])
        self.assertEqual(self.state("dataset.path=part-*.csv"), self.state())
        self.table("one.csv", self.rows[:60])
        self.assertEqual(self.state("dataset.path=part-1*.csv", "dataset.split=0", "dataset.validation=part-[23].csv"),
                         self.state("dataset.path=one.csv", "dataset.split=0", "dataset.validation=part-2.csv"))
        self.table("part-3.csv", [(1, "red", "a")], (0, 1))
        self.assertIn("ddptrain: part-3.csv: there is no column 'y', which 'part-1.csv' has", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "colour,x,y\nred,1,a\nred,much,b\n")
        self.assertIn("part-3.csv:line 3: column 'x': 'much' is not a number", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "colour,x,y\nred,1,a\nred,1\n")
        self.assertIn("part-3.csv:line 3: there are 2 fields, but the header has 3", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "x,colour,y,y\nred,1,a,a\n")
        self.assertIn("part-3.csv:line 1: duplicate column 'y'", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "")
        self.assertIn("part-3.csv: the file is empty", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "x,colour,y\n1,red,z\n")
        error = self.error("dataset.path=part-1.csv", "dataset.split=0", "dataset.validation=part-[23].csv")
        self.assertIn("part-3.csv:line 2: column 'y': class 'z' is not in 'part-1.csv'", error)

    def test_lists(self):
        """Files in the order of the list, each a name or a pattern; relative names also beside the config."""
        self.table("b.csv", self.rows[:30])
        self.table("a-1.csv", self.rows[30:40], (2, 0, 1))
        self.table("a-2.csv", self.rows[40:60])
        os.mkdir(self.path("parts"))
        self.table("parts/c.csv", self.rows[60:])
        expected = self.state()
        self.assertEqual(self.state("dataset.path=[b.csv, a-*.csv, parts/c.csv]"), expected)
        self.assertEqual(self.state("dataset.path=[all.csv]"), expected)
        self.assertNotEqual(self.state("dataset.path=[a-*.csv, b.csv, parts/c.csv]"), expected)
        self.write("parts/list.yaml", CONFIG.replace("all.csv", "[b.csv, '../a-*.csv', c.csv]"))
        self.run_program("parts/list.yaml", "--run-dir", "runs/beside")
        self.assertEqual(self.sha("runs/beside"), expected)
        self.assertRegex(self.read("runs/beside/config.yaml"), r"path: \[b.csv, \S*parts/../a-\*.csv\S*, \S*parts/c.csv\S*\]")
        self.assertIn("resuming from", "".join(self.run_program("parts/list.yaml", "--run-dir", "runs/beside", "train.epochs=3")))
        self.table("one.csv", self.rows[:40])
        self.table("two.csv", self.rows[40:])
        self.assertEqual(self.state("dataset.path=[b.csv, a-1.csv]", "dataset.split=0", "dataset.validation=[a-2.csv, parts/c.csv]"),
                         self.state("dataset.path=one.csv", "dataset.split=0", "dataset.validation=two.csv"))
        self.assertIn("'a-1.csv': the list of files has this file twice", self.error("dataset.path=[a-1.csv, a-*.csv]", code=program.USAGE))
        self.assertIn("dataset 'none.csv'", self.error("dataset.path=[b.csv, none.csv]"))
        self.assertIn("'none-*.csv': no file matches this pattern", self.error("dataset.path=[b.csv, none-*.csv]"))
        self.assertIn("'b.csv' has format csv, but 'c.npy' has format npy; all must have the same",
                      self.error("dataset.path=[b.csv, c.npy]", code=program.USAGE))
        self.write("a.txt", "text " * 100)
        self.assertIn("'a.txt' and 1 more: format text reads one file",
                      self.error("dataset.path=[a.txt, b.txt]", "dataset.targets=[]", code=program.USAGE))

    def test_predict_lists(self):
        self.table("one.csv", self.rows[:50])
        self.table("two.csv", self.rows[50:], (1, 2, 0))
        self.state()
        arguments = ("predict", "test.yaml", "--run-dir", "runs/0", "--part", "all", "--with-inputs", "--out")
        self.run_program(*arguments, "all-p.csv")
        log = "".join(self.run_program(*arguments, "p.csv", "dataset.path=[one.csv, two.csv]"))
        self.assertIn("one.csv and 1 more: all 90 rows", log)
        self.assertEqual(self.read("p.csv"), self.read("all-p.csv"))
        error = self.run_program(*arguments, "two.csv", "dataset.path=[one.csv, two.csv]", code=program.USAGE)[1]
        self.assertIn("--out two.csv: this is the input dataset", error)

    def test_with_inputs(self):
        self.table("part-1.csv", self.rows)
        self.state()
        arguments = ("predict", "test.yaml", "--run-dir", "runs/0", "dataset.path=part-*.csv", "--part", "all", "--out", "p.csv")
        self.run_program(*arguments)
        self.run_program(*arguments, "--with-inputs")
        self.assertEqual(len(self.read("p.csv").splitlines()), 1 + len(self.rows))

    def test_arrays(self):
        generator = np.random.default_rng(0)
        x, y = generator.normal(size=(100, 4)).astype("f4"), np.arange(100) % 3
        for i, part in enumerate(np.split(np.arange(100), [30, 31])):
            np.save(self.path(f"x-{i}.npy"), x[part])
            np.save(self.path(f"y-{i}.npy"), y[part])
            np.savez_compressed(self.path(f"{i}.npz"), x=x[part], y=y[part])
            with h5py.File(self.path(f"{i}.h5"), "w") as f:
                f["x"], f["y"] = x[part], y[part]
        np.savez(self.path("all.npz"), x=x, y=y)
        expected = self.state("dataset.path=all.npz", "dataset.targets=[]")
        for pattern in ("x-*.npy", "?.npz", "'[0-2].h5'", "'{0,1,2}.h5'"):
            for cache in (0, 100):
                self.assertEqual(self.state("dataset.path=" + pattern, "dataset.targets=[]", f"dataset.cache_mb={cache}"), expected, pattern)
        self.assertEqual(self.state("dataset.path=x-*.npy", "dataset.targets=[y-0.npy, y-1.npy, y-2.npy]"), expected)
        for names in ("[x-0.npy, x-1.npy, x-2.npy]", "[0.npz, '[12].npz']", "[0.h5, 1.h5, 2.h5]"):
            for cache in (0, 100):
                self.assertEqual(self.state("dataset.path=" + names, "dataset.targets=[]", f"dataset.cache_mb={cache}"), expected, names)
        error = self.error("dataset.path=x-*.npy", "dataset.targets=y-0.npy", code=program.USAGE)
        self.assertIn("dataset.targets: there are 3 files of inputs, but 1 of targets", error)
        np.save(self.path("x-3.npy"), x[:5, :3])
        np.save(self.path("y-3.npy"), y[:5])
        self.assertIn("x-3.npy: rows have 3 inputs and 1 target value; those of the first file have 4 inputs and 1 target value, 'x-0.npy'",
                      self.error("dataset.path=x-*.npy", "dataset.targets=[]"))
        x[99, 2] = np.nan
        np.save(self.path("x-2.npy"), x[31:])
        self.assertIn("x-2.npy: row 68, column 2: NaN is not a finite number", self.error("dataset.path=x-[0-2].npy", "dataset.targets=[]"))

    def test_files_that_are_not_joined(self):
        self.write("a.txt", "text " * 100)
        self.write("b.txt", "text " * 100)
        self.assertIn("'?.txt' matches 2 files, but format text reads one",
                      self.error("dataset.path=?.txt", "dataset.targets=[]", code=program.USAGE))
        self.assertIn("'none-*.csv': no file matches this pattern", self.error("dataset.path=none-*.csv"))
        self.table("b[1].csv", self.rows)
        self.assertEqual(self.state("dataset.path=b[1].csv"), self.state())


if __name__ == "__main__":
    program.main()
