"""dataset.split.group: the rows of scikit-learn's GroupShuffleSplit and GroupKFold. ctest-labels: unit"""
import json, sqlite3

import numpy as np

import program
from program import DATA, USAGE

CONFIG = """
name: test
dataset: {path: %s, split: {%s, group: patient}}
model: {layers: [{linear: 1}]}
loss: mse
optimizer: {type: sgd, lr: 0.01}
train: {epochs: 2}
"""


class Groups(program.Case):
    def rows(self, groups, name="rows.csv"):
        """The group in the middle, an input on each side."""
        lines = ["a,patient,b,y"] + [f"{i % 7},{group},{i % 5},{i}" for i, group in enumerate(groups)]
        self.write(name, "\n".join(lines) + "\n")

    def validation_rows(self, *arguments):
        out, err = self.run_program("predict", "test.yaml", *arguments)
        return [int(line.split(",")[0]) for line in out.splitlines()[1:]], err

    def other_files(self, groups):
        import h5py
        i = np.arange(len(groups))
        arrays = {"x": np.column_stack([i % 7, i % 5]).astype(np.float32), "y": i.astype(np.float32),
                  "patient": np.asarray(groups, np.int32)}
        np.savez(self.path("rows.npz"), **arrays)
        with h5py.File(self.path("rows.h5"), "w") as f:
            for key, values in arrays.items():
                f[key] = values
        for k in range(2):
            with h5py.File(self.path(f"part-{k}.h5"), "w") as f:
                for key, values in arrays.items():
                    f[key] = np.array_split(values, 2)[k]
        with sqlite3.connect(self.path("rows.db")) as db:
            db.execute("drop table if exists t")
            db.execute("create table t (a real, patient text, b real, y real)")
            db.executemany("insert into t values (?, ?, ?, ?)", [(k % 7, f"p{g:03}", k % 5, k) for k, g in enumerate(groups)])

    def test_equals_scikit_learn(self):
        """Of texts, numbers whose order is not that of the texts, all kinds of files."""
        for k, case in enumerate(program.vectors("groups")["cases"]):
            groups, parts = case["groups"], case["parts"]
            self.rows([f"p{group:03}" for group in groups], "texts.csv")
            self.rows([["%d", "%d.0"][i % 2] % (group * 4 - 9) for i, group in enumerate(groups)], "numbers.csv")
            self.rows([f'"a, ""{group:03}"""' for group in groups], "quoted.csv")
            files = ["texts.csv", "numbers.csv", "quoted.csv"]
            if k in (0, 5):
                self.other_files(groups)
                files += ["rows.h5", "rows.npz", "rows.db", '"part-*.h5"']
            for file in files:
                for fold in range(len(parts))[:: 1 if file == "texts.csv" else 2]:
                    split = f"test: {case['test']}, seed: {case['seed']}" if case["test"] else f"folds: {len(parts)}, fold: {fold}"
                    with self.subTest(file=file, split=split):
                        self.write("test.yaml", CONFIG % (file, split))
                        self.run_program("test.yaml", "--fresh", err=f"{len(groups) - len(parts[fold])} training rows, {len(parts[fold])} validation rows")
                        rows, err = self.validation_rows()
                        self.assertEqual(rows, parts[fold])
                        self.assertNotIn("warning", err)
                        rows, _ = self.validation_rows("--part", "train")
                        self.assertEqual(rows, sorted(set(range(len(groups))) - set(parts[fold])))

    def test_check_and_inputs(self):
        self.rows([f"p{i % 10}" for i in range(40)])
        self.write("test.yaml", CONFIG % ("rows.csv", "test: 0.2"))
        out, err = self.run_program("check", "test.yaml")
        self.assertIn("groups         patient: 8 for training, 2 for validation\n", out + err)
        self.assertIn("32 training rows, 8 validation rows", out + err)
        self.assertIn("linear 2 1 3", " ".join((out + err).split()))
        out, _ = self.run_program("check", "test.yaml", "dataset.split.validation=0.25")  # and 2 for the test
        self.assertIn("groups         patient: 6 for training, 2 for validation\n", out)
        self.run_program("test.yaml")
        _, err = self.run_program("predict", "runs/test", "rows.csv")  # every row, without groups and a note about the column
        self.assertNotIn("patient", err)
        self.write("new.csv", "a,b\n1,2\n3,4\n")
        out, _ = self.run_program("predict", "runs/test", "new.csv")
        self.assertEqual(len(out.splitlines()), 3)
        out, _ = self.run_program("check", "test.yaml", "dataset.columns={patient: ignore}")
        _, err = self.run_program("check", "test.yaml", "dataset.columns={patient: category}", code=USAGE)
        self.assertIn("dataset.columns: 'patient' is the column of dataset.split.group, and the rules are for inputs", err)

    def test_ranks_evaluation_and_resume(self):
        self.rows([f"p{i * i % 11}" for i in range(60)])
        self.write("test.yaml", CONFIG % ("rows.csv", "folds: 3, fold: 1"))
        rows = {}
        for ranks in (1, 2):
            self.run_program("test.yaml", "--fresh", "--nproc", ranks, "sampler.batch_size=%d" % (8 // ranks))
            rows[ranks], err = self.validation_rows("--nproc", ranks)
            _, err = self.run_program("eval", "test.yaml", "--nproc", ranks)
            self.assertNotIn("warning", err)
        self.assertEqual(rows[1], rows[2])
        self.run_program("test.yaml", "--nproc", 2, "sampler.batch_size=4", "train.epochs=3")
        self.assertEqual(self.events("epoch")[-1]["epoch"], self.events("epoch")[0]["epoch"] + 2)
        self.rows([f"p{i * i % 13}" for i in range(60)])  # the same inputs and targets in other groups
        self.run_program("test.yaml", "--nproc", 2, "sampler.batch_size=4", "train.epochs=4", code=DATA, err="data")
        self.run_program("eval", "test.yaml", err="warning: rows.csv: the data are not those of the training")

    def test_sweep(self):
        name = 'the "patient": #1'
        self.rows([f"p{i % 10}" for i in range(40)])
        self.write("rows.csv", self.read("rows.csv").replace("patient", '"the ""patient"": #1"'))
        self.write("base.yaml", (CONFIG % ("rows.csv", "test: 0.2")).replace("group: patient", f"group: {json.dumps(name)}"))
        self.write("sweep.yaml", "config: base.yaml\nmethod: grid\nrepeat: {folds: 4}\nparameters: {optimizer.lr: [0.001]}\nmetric: val_loss\n")
        self.run_program("sweep", "sweep.yaml", "keep=all")
        counts = [self.events("epoch", f"sweeps/sweep/runs/0000/fold-{fold}")[-1]["val_rows"] for fold in range(4)]
        self.assertEqual(counts, [12, 12, 8, 8])

    def test_large_numbers(self):
        """Numbers that are one as doubles are two groups, as pandas reads them."""
        self.rows([2**53 + i % 2 for i in range(20)])
        self.write("test.yaml", CONFIG % ("rows.csv", "test: 0.5"))
        self.assertIn("\ngroups         patient: 1 for training, 1 for validation\n", self.run_program("check", "test.yaml")[0])

    def test_errors(self):
        self.rows([f"p{i % 5}" for i in range(20)])
        self.write("test.yaml", CONFIG % ("rows.csv", "test: 0.2"))
        for split, sentence, code in (
                ("{group: patient}", "dataset.split: group needs test (as GroupShuffleSplit) or folds (as GroupKFold)", USAGE),
                ("{train: 0.8, group: patient}", "group needs test", USAGE),
                ("{test: 0.2, stratify: true, group: patient}", "group and stratify exclude each other", USAGE),
                ("{folds: 3, fold: 0, time_series: true, group: patient}", "group and time_series exclude each other", USAGE),
                ("{test: 0.2, shuffle: false, group: patient}", "group with test needs shuffle", USAGE),
                ("{test: 0.2, group: patent}", "dataset.split.group: rows.csv: there is no column 'patent'; did you mean 'patient'", DATA),
                ("{test: 0.2, group: y}", "rows.csv: column 'y' is used twice, as target and by dataset.split.group", DATA),
                ("{test: 0.9, group: patient}", "rows.csv: dataset.split.group: test 0.9 of 5 groups leaves no group to train", DATA),
                ("{folds: 6, fold: 0, group: patient}", "rows.csv: dataset.split.group: 5 groups cannot be divided into 6 folds", DATA)):
            self.run_program("check", "test.yaml", f"dataset.split={split}", code=code, err=sentence)
        self.run_program("test.yaml", "dataset.split={folds: 5, fold: 0, group: patient}")
        self.write("few.csv", "\n".join(self.read("rows.csv").splitlines()[:4]) + "\n")  # three rows, each of its own group
        self.run_program("eval", "runs/test", "dataset.path=few.csv", code=DATA, err="3 groups cannot be divided into 5 folds; --part all uses every row")
        _, err = self.run_program("check", "test.yaml", "dataset.inputs=[a, patient]", code=DATA)
        self.assertIn("column 'patient' is used twice, as input and by dataset.split.group", err)
        _, err = self.run_program("check", "test.yaml", "dataset.weights=patient", code=DATA)
        self.assertIn("column 'patient' is used twice, by dataset.weights and by dataset.split.group", err)
        self.rows(["p1"] * 20)
        _, err = self.run_program("check", "test.yaml", code=DATA)
        self.assertIn("rows.csv: dataset.split.group: all rows have the same 'patient'; a split needs two groups", err)
        for at in (0, 7):
            self.rows(["" if i == at else "NA" if i == 9 else f"p{i % 4}" for i in range(20)])
            _, err = self.run_program("check", "test.yaml", code=DATA)
            self.assertIn(f"rows.csv:line {at + 2}: column 'patient': missing value, and dataset.split.group names this column", err)
        self.other_files(range(20))
        with sqlite3.connect(self.path("rows.db")) as db:
            db.execute("update t set patient = null where y = 3")
        self.run_program("check", "test.yaml", "dataset.path=rows.db", code=DATA, err="rows.db:row 3: column 'patient': missing value")
        np.savez(self.path("bad.npz"), x=np.zeros((4, 2), "f4"), y=np.zeros(4, "f4"), patient=np.array([1, 2, np.nan, 3]),
                 wide=np.zeros((4, 2)), large=np.array([1, 2, 3, 2**53 + 1]))
        for group, sentence in (("patient", "row 2: the group is missing (dataset.split.group)"), ("none", "dataset.split.group: bad.npz"),
                                ("wide", "dataset.split.group: bad.npz: array 'wide' has 2 values a row instead of one"),
                                ("large", "row 3: the group is not a number between -2^53 and 2^53")):
            self.run_program("check", "test.yaml", "dataset.path=bad.npz", f"dataset.split.group={group}", code=DATA, err=sentence)
        _, err = self.run_program("check", "test.yaml", "dataset.path=rows.h5", "dataset.split.group=x", code=DATA)
        self.assertIn("dataset.split.group: rows.h5: dataset 'x' has 2 values a row instead of one", err)
        np.save(self.path("x.npy"), np.zeros((4, 2), "f4"))
        _, err = self.run_program("check", "test.yaml", "dataset.path=x.npy", code=USAGE)
        self.assertIn("split.group: format npy has no names for groups; hdf5, csv, sqlite and npz have", err)
