"""Classes that are text in a CSV file keep the numbers that training gave them. ctest-labels: unit"""
import csv
import json

import h5py
import numpy as np

import program
from program import DATA

CONFIG = """
dataset: {path: train.csv}
sampler: {batch_size: 8}
model: {layers: [{linear: 16}, tanh, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.05}
train: {epochs: 40}
"""
NAMES = ["b\nlue", "green", "red"]  # a quoted field may contain a line end


class Labels(program.Case):
    def rows(self, name, labels, seed):
        r = np.random.default_rng(seed)
        with open(self.path(name), "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["u", "v", "kind"])
            for label in labels:
                at = NAMES.index(label) if label in NAMES else 0
                writer.writerow([r.normal(3 * at, 0.3), r.normal(-2 * at, 0.3), label])
        return name

    def setUp(self):
        super().setUp()
        self.write("test.yaml", CONFIG)
        self.rows("train.csv", NAMES * 16, 1)
        self.run_program("test.yaml")

    def test_long_identifiers_are_texts(self):
        """Two of them may be the same double."""
        labels = [12345678901234567, 12345678901234568] * 20
        self.write("ids.csv", "a,y\n" + "".join(f"{i % 7},{label}\n" for i, label in enumerate(labels)))
        self.write("ids.yaml", "dataset: {path: ids.csv, columns: {y: category}}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        self.assertIn("2 classes", self.run_program("check", "ids.yaml")[0])

    def test_other_files(self):
        for nproc in (1, 2):
            for labels in (["red"] * 9, ["green", "red"] * 5, NAMES * 3):
                self.rows("other.csv", labels, 2)
                out, _ = self.run_program("eval", "test.yaml", "dataset.path=other.csv", "--nproc", nproc)
                self.assertEqual(json.loads(out)["accuracy"], 1.0, labels)
        self.run_program("predict", "test.yaml", "dataset.path=other.csv", "--out", "out.csv")
        with open(self.path("out.csv"), newline="") as f:
            self.assertEqual([row["prediction"] for row in csv.DictReader(f)], NAMES * 3)

    def test_classes_without_training_rows(self):
        """A warning names them, of a split and of a file of validation rows; none where every class has one."""
        lines = [f"{i % 7},{'abcdefgh'[i // 10]}\n" for i in range(80)]
        self.write("sorted.csv", "x,kind\n" + "".join(lines))
        self.write("first.csv", "x,kind\n" + "".join(lines[:70]))
        self.write("last.csv", "x,kind\n" + "".join(lines[5::20] + lines[75:]))
        config = "name: t\ndataset: {path: %s}\nmodel: {layers: [{linear: 8}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n"
        warning = "warning: 2 classes have no training row, so that the model cannot learn them: 'g', 'h' (dataset.split: stratify divides"
        self.write("t.yaml", config % "sorted.csv, split: {test: 0.25, shuffle: false}")
        self.assertEqual(self.run_program("t.yaml", "--fresh")[1].count(warning), 1)
        self.assertIn(warning[len("warning: "):], self.run_program("check", "t.yaml")[0])
        for words in ("dataset.split.shuffle=true",), ("dataset.split={test: 0.25, stratify: true}",), ("dataset.split=null",):
            self.assertNotIn("no training row", "".join(self.run_program("check", "t.yaml", *words)))
        self.write("t.yaml", config % "sorted.csv, split: {test: 0.9, shuffle: false}")
        self.assertIn("7 classes have no training row, so that the model cannot learn them: 'b', 'c', 'd', 'e', 'f' and 2 more (",
                      self.run_program("check", "t.yaml")[0])
        self.assertNotIn("no training row", "".join(self.run_program("eval", "t.yaml", "--checkpoint", "initial")))
        # rows that stay in the file are not read for a warning
        np.savez(self.path("sorted.npz"), x=np.zeros((80, 1), np.float32), y=np.arange(80) // 10)
        self.write("t.yaml", config % "sorted.npz, split: {test: 0.25, shuffle: false}")
        for megabytes in (1, 0):
            self.assertEqual("2 classes have no training row, so that the model cannot learn them: 6, 7 (" in self.run_program("check", "t.yaml", f"dataset.cache_mb={megabytes}")[0], megabytes == 1)

    def test_numbers_as_labels(self):
        """`category` for the target: the model is that of texts, in the order of the texts, and predictions are the numbers."""
        import sqlite3
        texts = self.read("train.csv")
        names = {'"b\nlue"': "-1", "green": "10", "red": "7"}
        for old, new in names.items():
            texts = texts.replace(old, new)
        self.write("numbers.csv", texts)
        with sqlite3.connect(self.path("numbers.db")) as db:
            db.execute("CREATE TABLE t (u REAL, v REAL, kind INTEGER)")
            db.executemany("INSERT INTO t VALUES (?, ?, ?)", [line.split(",") for line in texts.splitlines()[1:]])
        rule = "dataset.columns={kind: category}"
        losses = [e["train_loss"] for e in self.events("epoch")]
        for path in ("numbers.csv", "numbers.db"):
            self.run_program("test.yaml", f"dataset.path={path}", rule, "--run-dir", "runs/n", "--fresh")
            np.testing.assert_allclose([e["train_loss"] for e in self.events("epoch", "runs/n")], losses, rtol=1e-5)
            out, _ = self.run_program("predict", "runs/n", "numbers.csv")
            predictions = [line.split(",")[1] for line in out.splitlines()[1:]]
            self.assertEqual(predictions, [line.split(",")[2] for line in texts.splitlines()[1:]])
            self.assertIn("\nclasses        0: -1, 1: 10, 2: 7\n", self.run_program("check", "test.yaml", f"dataset.path={path}", rule)[0])
            self.write("other.csv", "u,v,kind\n1,1,0\n")
            self.assertIn("class '0' is not in the data that the model was trained with", self.run_program("eval", "runs/n", "other.csv", code=DATA)[1])
        for words, sentence in ((["loss=mse", rule], "dataset.columns: `category` is for a target that is one class, and this loss takes numbers"),
                                (["loss=mse", rule, "dataset.targets=[v, kind]"], "`category` is for a target that is one class, and this loss takes several targets"),
                                (["dataset.columns={kind: {type: category, missing: most_frequent}}"], "'kind' is a target, whose only rule is `category`: its values, "
                                                                                                      "also numbers, are the labels of classes; the others are for inputs"),
                                (["dataset.columns={kind: number}"], "'kind' is a target, whose only rule is `category`")):
            self.assertIn(sentence, self.run_program("check", "test.yaml", "dataset.path=numbers.csv", *words, code=program.USAGE)[1])

    def test_booleans_of_several_targets(self):
        """They are 1 and 0, in files that are CSV or a database, in those of eval and where the other file has numbers."""
        import sqlite3
        def rows(no, yes):
            return [(i % 5 / 5, i % 7 / 9, yes if i % 3 else no, yes if i % 4 == 0 else no) for i in range(60)]
        def write(name, no, yes, end=""):
            self.write(name, "a,b,s,t\n" + "".join(",".join(map(str, row)) + "\n" for row in rows(no, yes)) + end)
        for name, values in (("numbers.csv", (0, 1)), ("pandas.csv", ("False", "True")), ("words.csv", ("NO", "yes")), ("quoted.csv", ('"false"', "true"))):
            write(name, *values)
        with sqlite3.connect(self.path("table.db")) as db:
            db.execute("CREATE TABLE t (a REAL, b REAL, s TEXT, t TEXT)")
            db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows("false", "true"))
        words = ["loss=bce_with_logits", "model.layers=[{linear: 2}]", "train.epochs=2", "dataset.targets=[s, t]", "dataset.inputs=[a, b]"]
        names = ("numbers.csv", "pandas.csv", "words.csv", "quoted.csv", "table.db")
        for name in names:
            self.run_program("test.yaml", f"dataset.path={name}", *words, "--run-dir", "runs/" + name)
            self.assertEqual(self.sha("runs/" + name), self.sha("runs/numbers.csv"), name)
        for run in ("numbers.csv", "pandas.csv"):
            self.assertEqual(len({self.run_program("eval", "runs/" + run, name)[0] for name in names}), 1)
        self.run_program("predict", "runs/pandas.csv", "words.csv")
        self.run_program("check", "test.yaml", "dataset.path=pandas.csv", *words[1:], "loss=mse", "dataset.targets=[t]", "model.layers=[{linear: 1}]")
        for end, sentence in (("1,2,True,1\n", "line 62: column 't': '1' is not false or true, as the values before"),
                              ("1,2,yes,True\n", "line 62: column 's': 'yes' is not false or true, as the values before"),
                              ("1,2,,True\n", "line 62: column 's': missing value")):
            write("mixed.csv", "False", "True", end)
            self.assertIn("mixed.csv:" + sentence, self.run_program("check", "test.yaml", "dataset.path=mixed.csv", *words, code=DATA)[1])
        write("mixed.csv", 0, 1, "1,2,True,1\n")
        self.assertIn("line 62: column 's': 'True' is not a number", self.run_program("check", "test.yaml", "dataset.path=mixed.csv", *words, code=DATA)[1])

    def test_equal_numbers_are_one_label(self):
        """1 and 1.0, as pandas writes a column with missing values, in one file and in another."""
        def write(name, *labels):
            self.write(name, "u,v,kind\n" + "".join(f"{i % 3},{i % 7 / 9},{labels[i % len(labels)]}\n" for i in range(60)))
        words = ["model.layers=[{linear: 3}]", "train.epochs=1", "dataset.columns={kind: category}"]
        write("whole.csv", 1, 2, 10)
        write("real.csv", "1.0", "2.0", "10.0")
        write("both.csv", 1, "2.0", 10, "1.0", 2, "1e1")
        for name in ("whole.csv", "both.csv"):
            self.run_program("test.yaml", f"dataset.path={name}", *words, "--run-dir", "runs/n", "--fresh")
            evaluated = {other: self.run_program("eval", "runs/n", other)[0] for other in ("whole.csv", "real.csv", "both.csv")}
            self.assertEqual(len(set(evaluated.values())), 1, evaluated)
            out, _ = self.run_program("predict", "runs/n", "real.csv", "--probabilities")
            self.assertEqual(out.splitlines()[0], "row,prediction,1,10,2")
            self.run_program("test.yaml", f"dataset.path={name}", "dataset.split=0", "dataset.validation=real.csv", *words, "--run-dir", "runs/v", "--fresh")
        write("codes.csv", "01", "1", "2")
        self.run_program("check", "test.yaml", "dataset.path=codes.csv", *words, out="3 classes")
        write("new.csv", "1.5")
        self.assertIn("class '1.5' is not in the data that the model was trained with", self.run_program("eval", "runs/n", "new.csv", code=DATA)[1])

    def test_binary_losses(self):
        """Two texts are 0 and 1 in the order of the alphabet: the model is that of the numbers, predictions are the texts."""
        words = ["dataset.split=0.25", "train.epochs=10", "train.metrics=[auc]", "model.layers=[{linear: 8}, tanh, {linear: 1}]"]
        def write(name, labels):
            rows = [(i % 5 / 5 + i % 2, -i % 7 / 9) for i in range(48)]
            self.write(name, "u,v,kind\n" + "".join(f"{u},{v},{labels[i % 2]}\n" for i, (u, v) in enumerate(rows)))
        write("numbers.csv", [1, 0])
        write("train.csv", ["yes", "no"])
        for loss in ("bce_with_logits", "focal"):
            self.run_program("test.yaml", f"loss={loss}", *words, "--run-dir", "runs/texts", "--fresh")
            self.run_program("test.yaml", f"loss={loss}", *words, "dataset.path=numbers.csv", "--run-dir", "runs/numbers", "--fresh")
            self.assertEqual([e["train_loss"] for e in self.events("epoch", "runs/texts")], [e["train_loss"] for e in self.events("epoch", "runs/numbers")])
            texts, numbers = (list(csv.reader(self.run_program("predict", run, "train.csv", "--probabilities")[0].splitlines())) for run in ("runs/texts", "runs/numbers"))
            self.assertEqual((texts[0], numbers[0]), (["row", "prediction", "no", "yes"], ["row", "prediction", "0", "1"]))
            self.assertEqual([[r[0], {"no": "0", "yes": "1"}[r[1]], *r[2:]] for r in texts[1:]], numbers[1:])
        self.write("some.csv", "u,v,kind\n1,2,yes\n0,1,yes\n")
        self.assertEqual(json.loads(self.run_program("eval", "runs/texts", "some.csv")[0])["rows"], 2)
        self.run_program("export", "runs/texts", "--out", "model.c")
        self.write("train.csv", "u,v,kind\n" + "1,2,a\n2,3,b\n3,1,c\n" * 4)
        _, err = self.run_program("test.yaml", "loss=bce_with_logits", *words, "--fresh", code=DATA)
        self.assertIn("train.csv: the target has 3 labels ('a', 'b', 'c'), and the loss takes two, or numbers from 0 to 1; for more classes write loss: cross_entropy", err)
        self.write("train.csv", "u,v,kind\n" + "1,2,a\n2,3,a\n" * 4)
        self.assertIn("train.csv: the target has 1 label ('a')", self.run_program("test.yaml", "loss=bce_with_logits", *words, "--fresh", code=DATA)[1])

    def test_a_stratified_split_of_a_binary_loss(self):
        """The rows, and the draws of the weighted sampler, are those of the same labels as classes."""
        self.rows("two.csv", (["green"] * 5 + ["red"]) * 10, 3)
        self.write("numbers.csv", self.read("two.csv").replace("green", "0").replace("red", "1"))
        binary = ["loss=bce_with_logits", "model.layers=[{linear: 1}]", "train.epochs=1"]
        classes = ["model.layers=[{linear: 2}]", "train.epochs=1"]
        for split in ("{test: 0.2, seed: 5, stratify: true}", "{folds: 3, fold: 1, seed: 5, stratify: true}"):
            rows = {}
            for run, words in (("classes", ["dataset.path=two.csv", *classes]), ("texts", ["dataset.path=two.csv", *binary]),
                               ("numbers", ["dataset.path=numbers.csv", *binary]),
                               ("file", ["dataset.path=numbers.csv", "dataset.cache_mb=0", *binary])):
                words += [f"dataset.split={split}", "sampler.type=weighted", "--run-dir", run]
                self.run_program("test.yaml", "--fresh", *words)
                out, _ = self.run_program("predict", "test.yaml", "--run-dir", run, *words[:-2])
                rows[run] = [line.split(",")[0] for line in out.splitlines()]
                self.assertEqual(rows[run], rows["classes"], run)
            losses = [[e["loss"] for e in self.events("step", run)] for run in ("texts", "numbers", "file")]
            self.assertEqual(losses[0], losses[1])
            self.assertEqual(losses[0], losses[2])
        self.write("soft.csv", self.read("numbers.csv").replace(",1\n", ",0.9\n").replace(",1\r\n", ",0.9\r\n"))
        _, err = self.run_program("test.yaml", "--fresh", "dataset.path=soft.csv", *binary, "dataset.split={test: 0.2, stratify: true}", code=DATA)
        self.assertIn("dataset.split.stratify: soft.csv:line 7: column 'kind': 0.9 is not one of the two classes 0 and 1", err)
        _, err = self.run_program("test.yaml", "--fresh", "dataset.path=soft.csv", *binary, "sampler.type=weighted", code=DATA)
        self.assertIn("sampler.type weighted: row 5: the target 0.9 is not one of the two classes 0 and 1", err)

    def test_resume_needs_the_same_labels(self):
        """The same numbers of classes with other labels are another dataset."""
        self.rows("train.csv", ["green", "red"] * 24, 1)
        self.run_program("test.yaml", "--fresh", "train.epochs=2")
        text = self.read("train.csv")
        self.write("train.csv", text.replace("green", "blue"))
        _, err = self.run_program("test.yaml", code=DATA)
        self.assertRegex(err, r"runs/test/checkpoints/\S+: class 0 was 'green' in the training and is 'blue' in the dataset now; "
                              "use the same labels, or --fresh to start over")
        for fresh in ((), ("--fresh",)):
            _, err = self.run_program("test.yaml", "--run-dir", "runs/other", "checkpoint.resume=" + self.checkpoints()[-1], *fresh, code=DATA)
            self.assertIn("; use the same labels, or leave out checkpoint.resume to start over\n", err)
        self.write("train.csv", text)
        self.run_program("test.yaml")

    def test_unknown_label(self):
        self.rows("other.csv", ["red", "violet"], 2)
        _, err = self.run_program("eval", "test.yaml", "dataset.path=other.csv", code=DATA)
        self.assertIn("other.csv:line 3: column 'kind': class 'violet' is not in the data that the model was trained with", err)

    def test_unknown_number(self):
        """The file and the row are named, not the config, which is that of the training."""
        for name, rows in (("numbers", [i % 3 for i in range(24)]), ("other", [0, 1, 5, 2])):
            self.write(name + ".csv", "u,v,kind\n" + "".join(f"{i},{-i},{k}\n" for i, k in enumerate(rows)))
            np.savez(self.path(name + ".npz"), x=np.zeros((len(rows), 2)), y=rows)
        for kind in ("csv", "npz"):
            self.run_program("test.yaml", f"dataset.path=numbers.{kind}", "--fresh")
            for nproc in (1, 2):
                _, err = self.run_program("eval", "runs/test", f"other.{kind}", "--nproc", nproc, code=DATA)
                self.assertEqual(err.count(f"other.{kind}: row 2 (the first is 0): class 5 is none of the model, which has 3 (0 to 2)\n"), 1, err)
                self.assertNotIn("loss:", err)

    def test_trained_with_numbers(self):
        self.write("numbers.csv", "u,v,kind\n" + "".join(f"{i},{-i},{i % 3}\n" for i in range(24)))
        self.run_program("test.yaml", "dataset.path=numbers.csv", "--fresh")
        self.run_program("eval", "test.yaml", "dataset.path=train.csv", code=DATA, err="but the model was trained with numbers")

    def test_numbers_of_another_format(self):
        """A file without labels has the numbers that the labels are, not those of the classes; 0 and 1 are no and yes."""
        r = np.random.default_rng(0)
        y = np.arange(60) % 4 + 3
        x = np.stack([y % 2 + r.normal(size=60) / 50, y // 5 + r.normal(size=60) / 50], 1)
        for name, label, model, loss in (("four", lambda k: k, "{linear: 16}, relu, {linear: 4}", "cross_entropy"),
                                         ("two", lambda k: k % 2 + 1, "{linear: 1}", "bce_with_logits"),
                                         ("yes", lambda k: "Yes" if k % 2 else "no", "{linear: 2}", "cross_entropy")):
            with self.subTest(name):
                numbers = np.array([k % 2 if name == "yes" else label(k) for k in y])
                self.write("rows.csv", "u,v,y\n" + "".join(f"{a},{b},{label(k)}\n" for (a, b), k in zip(x, y)))
                self.write("rows.yaml", f"dataset: {{path: rows.csv, targets: y, columns: {{y: category}}}}\nmodel: {{layers: [{model}]}}\nloss: {loss}\n"
                                        "optimizer: {type: adam, lr: 0.05}\nsampler: {batch_size: 10}\ntrain: {epochs: 40}\n")
                self.run_program("rows.yaml", "--run-dir", f"runs/{name}")
                expected = json.loads(self.run_program("eval", f"runs/{name}", "rows.csv")[0])
                self.assertLess(expected["loss"], 0.3)
                with h5py.File(self.path("rows.h5"), "w") as f:
                    f["x"], f["y"] = x, numbers
                np.savez(self.path("rows.npz"), x=x, y=numbers)
                np.save(self.path("x.npy"), x)
                np.save(self.path("y.npy"), numbers)
                for path in ("rows.h5", "rows.npz", "x.npy"):
                    for words in ([], ["dataset.cache_mb=0", "--nproc", 2]):
                        out, err = self.run_program("eval", f"runs/{name}", path, "dataset.inputs=[]", "dataset.targets=[]", *words)
                        self.assertAlmostEqual(json.loads(out)["loss"], expected["loss"], places=6)
                        self.assertNotIn("the targets are numbers", err)
                numbers[7] = 9
                np.savez(self.path("rows.npz"), x=x, y=numbers)
                _, err = self.run_program("eval", f"runs/{name}", "rows.npz", "dataset.inputs=[]", "dataset.targets=[]", code=DATA)
                self.assertIn("rows.npz", err)
                self.assertIn("9 is no class of the data that the model was trained with", err)

    def test_numbers_of_texts(self):
        """The sorted labels are the classes 0, 1, 2, ..., and the log says so."""
        np.savez(self.path("rows.npz"), x=np.zeros((3, 2)), y=np.arange(3))
        _, err = self.run_program("eval", "test.yaml", "rows.npz", "dataset.inputs=[]", "dataset.targets=[]")
        self.assertIn("rows.npz: the targets are numbers, and the model was trained with labels: 0 is 'b\nlue', 2 is 'red'", err)

    def test_labels_that_look_like_numbers(self):
        """The first label of another file is no number because it looks like one."""
        self.write("train.csv", "u,v,kind\n" + "".join(f"{i % 3},{-(i % 3)},{['a', '1', '2'][i % 3]}\n" for i in range(48)))
        self.run_program("test.yaml", "--fresh")
        self.write("other.csv", "u,v,kind\n2,-2,2\n1,-1,1\n0,0,a\n")
        out, _ = self.run_program("eval", "test.yaml", "dataset.path=other.csv")
        self.assertEqual(json.loads(out)["accuracy"], 1.0)

    def test_a_note_about_texts_that_are_equal_as_numbers(self):
        for column, value in (("c", "category"), ("y", "category")):
            rows = "".join(f"{i % 7},{['1e5', '100000', '2'][i % 3]}\n" for i in range(30))
            self.write("equal.csv", f"a,{column}\n{rows}" if column == "y" else "a,c,y\n" + "".join(f"{line},{i % 2}\n" for i, line in enumerate(rows.split())))
            self.write("equal.yaml", f"dataset: {{path: equal.csv, columns: {{{column}: {value}}}}}\nmodel: {{layers: [{{linear: {{out: 2}}}}]}}\n"
                                     "loss: cross_entropy\ntrain: {epochs: 1}\n")
            self.run_program("check", "equal.yaml", out=f"equal.csv: column '{column}': '1e5' and '100000' are equal as numbers and one value")
