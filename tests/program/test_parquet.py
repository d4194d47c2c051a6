"""Parquet and Arrow files: the rows of the same table as CSV where the module is built, else a sentence that says what to do.
The files of tests/vectors/parquet were written by pyarrow 26, in row groups of 25 rows and batches of 16; in the second f
is float16, and t has a time zone. ctest-labels: dist"""
import os
import shutil
import unittest

import program

CONFIG = """
name: test
dataset: {path: table.csv, inputs: [x, i, b, cat, s, t, f], targets: y, columns: {x: {missing: median}, s: {missing: most_frequent}}, split: {test: 0.2, seed: 1}}
sampler: {batch_size: 16}
model: {layers: [{linear: 4}, relu, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 2}
"""
HAS_MODULE = os.path.exists(os.path.join(os.path.dirname(program.BINARY), "ddptrain_parquet.so"))


class Parquet(program.Case):
    def setUp(self):
        super().setUp()
        for name in ("table.csv", "table.parquet", "table.feather"):
            shutil.copy(os.path.join(program.VECTORS, "parquet", name), self.path(name))
        self.write("test.yaml", CONFIG)

    @unittest.skipIf(HAS_MODULE, "the module is built")
    def test_without_the_module(self):
        for words in (("check", "test.yaml", "dataset.path=table.parquet"), ("inspect", "table.feather"), ("init", "table.parquet")):
            _, err = self.run_program(*words, code=program.USAGE)
            self.assertIn("files of Parquet and Arrow need Arrow's module: the module ddptrain_parquet.so is not installed (looked for ", err)
            self.assertIn("); install it, or convert the file: pandas.read_parquet(FILE).to_csv('new.csv', index=False)", err)

    @unittest.skipUnless(HAS_MODULE, "Arrow's C++ library was not found; cmake -DDDPTRAIN_PYARROW=FOLDER names that of PyPI's pyarrow")
    def test_rows_are_those_of_a_table(self):
        self.run_program("test.yaml")
        for name in ("table.parquet", "table.feather"):
            self.run_program("test.yaml", f"dataset.path={name}", "--run-dir", f"runs/{name}")
            self.assertEqual(self.sha(f"runs/{name}"), self.sha())
            out, _ = self.run_program("inspect", name)
            self.assertIn("format  parquet, 60 rows, 11 columns\n", out)
            for reason in ("(not read: it is nested; make columns of its parts)", "(not read: values of this type are not read; ", "(not read: it is the index of pandas)"):
                self.assertIn(reason, out)
            _, err = self.run_program("check", "test.yaml", f"dataset.path={name}", "dataset.inputs=[list]", code=program.DATA)
            self.assertIn(f"{name}: column 'list' cannot be read: it is nested; make columns of its parts", err)
            out, _ = self.run_program("check", "test.yaml", f"dataset.path={name}", "dataset.inputs=[]")
            self.assertIn(f"{name}: column 'list' is not used: it is nested; make columns of its parts; column 'blob' is not used: values of this type", out)
            self.assertNotIn("__index", out)
            out, _ = self.run_program("check", "test.yaml", f"dataset.path={name}", "dataset.inputs=[]", "dataset.columns.blob=ignore")
            self.assertNotIn("'blob'", out)
            note = f"{name}: the times of column 't' are those of UTC, not of its zone Europe/Berlin"
            self.assertEqual(note in self.run_program("check", "test.yaml", f"dataset.path={name}")[0], name == "table.feather")
            self.write("new.yaml", self.run_program("init", name)[0])
            self.run_program("check", "new.yaml", "--data")
            os.truncate(self.path(name), 1000)
            self.run_program("check", "test.yaml", f"dataset.path={name}", code=program.DATA, err=f"{name}: ")
