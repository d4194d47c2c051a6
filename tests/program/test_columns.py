"""A CSV file is read by the names of the columns that the model was trained with, or refused. ctest-labels: unit"""
import contextlib
import csv
import json
import os
import re
import shutil
import sqlite3
import struct

import h5py
import numpy as np

import program
from program import DATA, USAGE

CONFIG = """
dataset: {path: train.csv, scale: standard}
sampler: {batch_size: 8}
model: {layers: [{linear: 16}, tanh, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.05}
train: {epochs: 30}
"""
NAMES = ["u", "v", "height"]
CLOUDS = np.array([[0, 30, -1], [4, 10, 0], [8, 20, 1]])


def make_rows(count, seed):
    r = np.random.default_rng(seed)
    classes = np.arange(count) % 3
    inputs = CLOUDS[classes] + r.normal(0, [0.5, 2, 0.1], (count, 3))
    return {"u": inputs[:, 0], "v": inputs[:, 1], "height": inputs[:, 2], "kind": classes}


def remove_column_names(path):
    program.without_datasets(path, "data/columns")


class LargeNumbers(program.Case):
    """Whole numbers of which a double holds the first two as one: apart where they are compared, a note where they are numbers."""
    IDS = [9007199254740992, 9007199254740993, 9007199254740994, 9007199254740996]

    def setUp(self):
        super().setUp()
        rows = [(self.IDS[i % 4], i % 7 / 7, i % 2) for i in range(40)]
        self.write("t.csv", "id,x,y\n" + "".join(f"{i},{x},{y}\n" for i, x, y in rows))
        with contextlib.closing(sqlite3.connect(self.path("t.sqlite"))) as db, db:
            db.execute("create table t (id integer, x real, y integer)")
            db.executemany("insert into t values (?, ?, ?)", rows)
        shutil.copy(os.path.join(program.VECTORS, "parquet", "wide.parquet"), self.path("t.parquet"))
        with h5py.File(self.path("t.nc"), "w", track_order=True) as file:
            for name, values in zip(("id", "x", "y"), zip(*rows)):
                file[name] = np.array(values)
        self.files = ["t.csv", "t.sqlite", "t.nc"] + ["t.parquet"] * os.path.exists(os.path.join(os.path.dirname(program.BINARY), "ddptrain_parquet.so"))

    def check(self, file, keys):
        self.write("t.yaml", f"dataset: {{path: {file}, targets: y, {keys}}}\nsampler: {{batch_size: 4}}\nmodel: {{layers: [{{linear: 2}}]}}\n"
                   "loss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        return self.run_program("t.yaml", "--fresh")[1]

    def test_compared(self):
        for file in self.files:
            err = self.check(file, "inputs: [x, id], columns: {id: category}")
            self.assertIn("12 parameters", err)  # x and four categories
            self.assertNotIn("2^53", err)
            self.assertIn(" 20 training rows, 20 validation rows", self.check(file, "inputs: [x], split: {test: 0.5, group: id}"))
            for number, operator, rows in ((1, "==", 10), (1, "!=", 30), (0, ">", 30), (2, "<", 20), (1, "<=", 20), (2, ">=", 20)):
                self.assertIn(f" {rows} training rows", self.check(file, f"inputs: [x], filter: 'id {operator} {self.IDS[number]}'"))
            self.assertIn(" 20 training rows", self.check(file, f"inputs: [x], filter: 'id in [{self.IDS[3]}, {self.IDS[1]}, {self.IDS[1] + 6}]'"))
            out, _ = self.run_program("predict", "t.yaml", "--run-dir", "runs/t", "--part", "all", "--with-inputs", f"dataset.path={file}", "dataset.filter=null")
            self.assertEqual([int(line.split(",")[0]) for line in out.splitlines()[1:]], self.IDS * 10)

    def test_as_numbers(self):
        for file in self.files:
            place = f"{file}: column 'id': 9007199254740992 of {'line 2' if file == 't.csv' else 'row 0'}: whole numbers from 2^53 on lose their last digits"
            err = self.check(file, "inputs: [x, id]")
            self.assertIn(f"{place}; if they are identifiers, write dataset.columns: {{id: ignore}}, or category\n", err)
            self.assertEqual(err.count("2^53"), 1)
            self.assertNotIn("2^53", self.check(file, "inputs: [x]"))

    def test_a_target(self):
        for file in self.files:
            self.write("t.yaml", f"dataset: {{path: {file}, inputs: [x], targets: id, target_scale: standard}}\nmodel: {{layers: [{{linear: 1}}]}}\nloss: mse\noptimizer: sgd\n"
                       "train: {epochs: 1}\n")
            self.assertRegex(self.run_program("t.yaml", "--fresh")[1], r"column 'id': 9007199254740992 of .*: whole numbers from 2\^53 on lose their last digits\n")

    def test_reals_of_a_database(self):
        """They are doubles in the file, so no digits are lost; whole numbers beside them are named."""
        with contextlib.closing(sqlite3.connect(self.path("t.sqlite"))) as db, db:
            db.execute("create table r (a real, b, y integer)")
            db.executemany("insert into r values (?, ?, ?)", [(1e16 * (i + 1), self.IDS[1] if i == 9 else 2e16, i % 2) for i in range(40)])
        for keys in ("inputs: [a], targets: y", "inputs: [y], targets: a", "inputs: [a, b], targets: y", "inputs: [a, b], targets: y, missing: [-999]"):
            self.write("t.yaml", f"dataset: {{path: t.sqlite, table: r, {keys}}}\nmodel: {{layers: [{{linear: 1}}]}}\nloss: mse\noptimizer: sgd\n")
            out, _ = self.run_program("check", "t.yaml", "--data", "train.epochs=1")
            self.assertEqual((out.count("2^53"), "column 'b': 9007199254740993 of row 9: " in out), (1, True) if "b" in keys else (0, False), keys)

    def test_an_identifier_is_named(self):
        self.write("t.csv", "user_id,x,y\n" + "".join(f"{1234567890123456789 + 1000003 * i},{i % 7},{i % 2}\n" for i in range(40)))
        self.write("t.yaml", "dataset: {path: t.csv}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        self.assertIn("column 'user_id' looks like an identifier of the rows", self.run_program("t.yaml")[1])


class MissingNumbers(program.Case):
    def test_a_number_stands_for_its_value(self):
        """As in pandas, also where the file has real numbers."""
        config = "dataset: {{path: {}, targets: y, missing: {}}}\nmodel: {{layers: [{{linear: 2}}]}}\nloss: cross_entropy\noptimizer: sgd\ntrain: {{epochs: 1}}\n"
        for marks in ("[999]", "[999.0]", "['', '9.99e2']"):
            for text, is_missing in (("999", True), ("999.0", True), ("999.00", True), ("+999", True), ("9.99e2", True), (" 999 ", True), ("998.9", False), ("-999", False),
                                     ("0999", False), ("9990", False)):
                self.write("t.csv", f"a,y\n1,0\n2.5,1\n{text},0\n3,1\n")
                self.write("t.yaml", config.format("t.csv", marks))
                _, err = self.run_program("check", "t.yaml", "--data", code=DATA if is_missing else 0)
                self.assertEqual("t.csv:line 4: column 'a': missing value" in err, is_missing, (marks, text))
            with contextlib.closing(sqlite3.connect(self.path("t.sqlite"))) as db, db:
                db.execute("drop table if exists t")
                db.execute("create table t (a real, y integer)")
                db.executemany("insert into t values (?, ?)", [(1, 0), (999, 1), (2, 1)])
            self.write("t.yaml", config.format("t.sqlite", marks))
            self.assertIn("t.sqlite:row 1: column 'a': missing value", self.run_program("check", "t.yaml", "--data", code=DATA)[1])
        for text, code in (("-999.00", DATA), ("-0999", 0), ("+0999", 0)):
            self.write("t.csv", f"a,y\n1,0\n2.5,1\n{text},0\n3,1\n")
            self.write("t.yaml", config.format("t.csv", "[-999, 999]"))
            self.run_program("check", "t.yaml", "--data", code=code)
        self.write("t.csv", "a,y\n1,0\n2.5,1\n9007199254740993,0\n3,1\n")
        self.write("t.yaml", config.format("t.csv", "[9007199254740992]"))
        self.run_program("check", "t.yaml", "--data")

    def test_categories_and_filters(self):
        self.write("t.csv", "a,k,y\n" + "1,999.0,0\n2,7,1\n3,8,0\n4,p,1\n" * 5)
        keys = "columns: {k: {type: category, missing: most_frequent}}, missing: [999], filter: k is not missing"
        self.write("t.yaml", f"dataset: {{path: t.csv, targets: y, {keys}}}\nmodel: {{layers: [{{linear: 2}}]}}\nloss: cross_entropy\noptimizer: sgd\ntrain: {{epochs: 1}}\n")
        self.assertIn("10 parameters, 15 training rows", self.run_program("t.yaml")[1])


class Columns(program.Case):
    def csv(self, name, columns, rows=None, header=None):
        """Writes [columns] of [rows] in this order, under the names of [header] where it is given ([]: no header)."""
        rows = rows or self.other
        header = columns if header is None else header
        lines = [",".join(header)] if header else []
        lines += [",".join(repr(v.item()) for v in row) for row in zip(*(rows[c] for c in columns))]
        return self.write(name, "\n".join(lines) + "\n")

    def setUp(self):
        super().setUp()
        self.other = make_rows(30, 2)
        self.other["extra"] = np.arange(30) * 7.5
        self.write("test.yaml", CONFIG)
        self.csv("train.csv", NAMES + ["kind"], make_rows(60, 1))
        self.run_program("test.yaml")
        self.csv("same.csv", NAMES + ["kind"])
        self.expected = self.evaluate("same.csv")[0]
        self.assertEqual(json.loads(self.expected)["accuracy"], 1.0)

    def evaluate(self, path, *arguments, code=program.OK):
        return self.run_program("eval", "test.yaml", f"dataset.path={path}", *arguments, code=code)

    def predict(self, path, *arguments, code=program.OK):
        out, err = self.run_program("predict", "test.yaml", f"dataset.path={path}", "--out", "out.csv", *arguments, code=code)
        return (self.read("out.csv") if code == program.OK else None), out + err

    def test_another_order(self):
        for columns in (["kind", "height", "u", "v"], ["v", "u", "kind", "height"]):
            self.csv("other.csv", columns)
            for nproc in (1, 2):
                out, err = self.evaluate("other.csv", "--nproc", nproc)
                self.assertEqual(out, self.expected, columns)
                self.assertEqual(err.count("other.csv: the columns have another order than in training and are read by name"), 1, err)
            self.assertEqual(self.predict("other.csv")[0], self.predict("same.csv")[0])
        self.assertNotIn("another order", self.evaluate("same.csv")[1])

    def test_more_columns(self):
        self.csv("other.csv", ["extra"] + NAMES + ["kind"])
        out, err = self.evaluate("other.csv")
        self.assertEqual(out, self.expected)
        self.assertIn("other.csv: columns that were not used in training are ignored: extra", err)

    def test_renamed_and_missing(self):
        self.csv("renamed.csv", NAMES + ["kind"], header=["u", "v", "heigth", "kind"])
        self.csv("less.csv", ["u", "height", "kind"])
        for code, run in ((self.evaluate("renamed.csv", code=DATA)[1], 0), (self.predict("renamed.csv", code=DATA)[1], 1)):
            self.assertIn("renamed.csv: there is no column 'height', which is in the data that the model was trained with; "
                          "did you mean 'heigth'; the columns are: u, v, heigth, kind", code)
        self.assertIn("less.csv: there is no column 'v'", self.evaluate("less.csv", code=DATA)[1])
        self.csv("no_target.csv", NAMES)
        self.assertIn("no_target.csv: there is no column 'kind'", self.evaluate("no_target.csv", code=DATA)[1])

    def test_names_in_the_config(self):
        """The config may list the columns of the training, in any order, and no others."""
        self.assertEqual(self.evaluate("same.csv", "dataset.inputs=[height, u, v]")[0], self.expected)
        _, err = self.evaluate("same.csv", "dataset.inputs=[u, v, weight]", code=USAGE)
        self.assertIn("dataset.inputs: unknown column 'weight'; the model was trained with the inputs: u, v, height", err)
        _, err = self.evaluate("same.csv", "dataset.inputs=[u, v]", code=USAGE)
        self.assertIn("dataset.inputs: missing column 'height'", err)
        _, err = self.evaluate("same.csv", "dataset.inputs=[u, v, height, u]", code=USAGE)
        self.assertIn("dataset.inputs: repeated column 'u'", err)
        _, err = self.evaluate("same.csv", "dataset.targets=[u]", code=USAGE)
        self.assertIn("dataset.targets: unknown column 'u'; the model was trained with the targets: kind", err)

    def test_predict_without_targets(self):
        expected = self.predict("same.csv")[0]
        self.csv("rows.csv", NAMES)
        self.assertEqual(self.predict("rows.csv")[0], expected)
        self.csv("rows.csv", ["height", "u", "v"])
        self.assertEqual(self.predict("rows.csv")[0], expected)
        self.assertNotIn("ignored", self.predict("same.csv")[1])  # the targets were used in training

    def test_predict_without_header(self):
        expected = self.predict("same.csv")[0]
        self.csv("rows.csv", NAMES, header=[])
        predicted, err = self.predict("rows.csv")
        self.assertEqual(predicted, expected)
        self.assertIn("rows.csv: there is no header; the columns must have the order of training: u, v, height", err)
        with open(self.path("commas.csv"), "w") as f:
            f.write(self.read("rows.csv").replace(",", ";").replace(".", ","))
        self.assertEqual(self.predict("commas.csv")[0], expected)
        self.write("rows.csv", self.read("rows.csv").replace("\n", "\n1,x,2\n", 1))
        self.assertIn("rows.csv:line 2: column 'v': 'x' is not a number", self.predict("rows.csv", code=DATA)[1])
        self.csv("rows.csv", NAMES + ["kind"], header=[])  # no header: nothing shows the position of the target
        self.assertIn("rows.csv:line 1: expected a header with column names", self.predict("rows.csv", code=DATA)[1])
        self.evaluate("rows.csv", code=DATA)

    def test_columns_whose_names_are_numbers(self):
        """A first line of these names is no row."""
        self.csv("train.csv", NAMES + ["kind"], make_rows(60, 1), header=["1", "2", "3", "kind"])
        self.run_program("test.yaml", "--fresh")
        self.csv("rows.csv", NAMES, header=["1", "2", "3"])
        predicted, err = self.predict("rows.csv")
        self.assertEqual(len(predicted.splitlines()), 1 + 30)
        self.assertNotIn("there is no header", err)

    def test_messages_about_a_missing_header(self):
        rows = "rows.csv:line 1: expected a header with column names, but this is a row of numbers ("
        self.csv("rows.csv", NAMES + ["kind"], header=[])
        for err in (self.predict("rows.csv", code=DATA)[1], self.evaluate("rows.csv", code=DATA)[1]):
            self.assertIn(rows, err)
            self.assertIn("; insert a line with names before it; with the columns of the training in their order it would be: u, v, height, kind\n", err)
        self.csv("rows.csv", NAMES[:2], header=[])
        self.assertIn("; insert a line with names before it; the row has 2 fields, and the model was trained with the inputs u, v, height and "
                      "the target kind, which 'predict' does not need\n", self.predict("rows.csv", code=DATA)[1])
        self.csv("rows.csv", NAMES, header=[])
        self.assertIn("; the row has 3 fields, and the model was trained with the inputs u, v, height and the target kind\n",
                      self.evaluate("rows.csv", code=DATA)[1])
        _, err = self.run_program("test.yaml", "dataset.path=rows.csv", "--run-dir", "runs/new", code=DATA)
        self.assertIn("; insert a line with names before it, or write dataset.csv: {no_header: true}", err)

    def test_predict_by_a_checkpoint_without_names(self):
        """The number of the inputs says that the last column is one."""
        expected = self.predict("same.csv")[0]
        self.csv("rows.csv", NAMES)
        remove_column_names(self.checkpoints()[-1])
        self.assertEqual(self.predict("rows.csv")[0], expected)
        self.assertEqual(self.predict("rows.csv", "dataset.inputs=[u, v, height]")[0], expected)
        self.csv("rows.csv", NAMES[:2])
        self.assertIn("this file needs exactly 3 columns in that order", self.predict("rows.csv", code=DATA)[1])

    def test_validation_file(self):
        self.csv("val.csv", ["kind", "height", "extra", "u", "v"])
        out, err = self.run_program("test.yaml", "dataset.validation=val.csv", "--fresh")
        self.assertIn("val.csv: the columns have another order than in training and are read by name; "
                      "columns that were not used in training are ignored: extra", out + err)
        self.assertEqual(self.events("epoch")[-1]["val_loss"], json.loads(self.evaluate("same.csv", "--part", "all")[0])["loss"])
        self.csv("val.csv", NAMES + ["kind"], header=["u", "v", "heigth", "kind"])
        _, err = self.run_program("test.yaml", "dataset.validation=val.csv", "--fresh", code=DATA)
        self.assertIn("val.csv: there is no column 'height', which is in 'train.csv'; did you mean 'heigth'", err)

    def test_repeated_columns(self):
        """A changed checkpoint that repeats a column has more columns than the dataset, whose names all are known."""
        columns = [{"name": n, "role": "input"} for n in NAMES] + [{"name": "kind", "role": "target"}]
        for repeated in (columns * 2000, columns + columns[-1:]):
            text = json.dumps({"format": "csv", "columns": repeated}).encode()

            def change(f):
                del f["data/columns"]
                f["data/columns"] = np.bytes_(text)
            program.change_checkpoint(self.checkpoints()[-1], change)
            for err in (self.run_program("test.yaml", "train.epochs=40", code=DATA)[1], self.evaluate("same.csv", code=DATA)[1]):
                self.assertIn("the checkpoint's columns (data/columns) contain a column twice in the same role", err)

    def test_resume(self):
        rows = make_rows(60, 1)
        more = "train.epochs=40"
        self.csv("train.csv", ["height", "u", "v", "kind"], rows)
        _, err = self.run_program("test.yaml", more, code=DATA)
        self.assertIn("the input columns of the dataset have another order than in training, and a resume needs the same order: "
                      "u, v, height; use the same file", err)
        self.csv("train.csv", NAMES + ["kind"], rows, header=["u", "v", "heigth", "kind"])
        _, err = self.run_program("test.yaml", "train.epochs=50", code=DATA)
        self.assertIn("it was trained with the column 'height' as input, which the dataset now does not have (there is 'heigth')", err)
        self.csv("train.csv", NAMES + ["extra", "kind"], {**rows, "extra": rows["u"]})
        self.run_program("test.yaml", "train.epochs=50", code=DATA, err="it was trained without the column 'extra', which the dataset now has as input")
        self.csv("train.csv", NAMES + ["kind"], rows)
        self.run_program("test.yaml", more)

    def test_checkpoint_without_names(self):
        with h5py.File(self.checkpoints()[-1], "r") as f:
            self.assertEqual(json.loads(f["data/columns"].asstr()[()]),
                             {"format": "csv", "columns": [{"name": n, "role": "input"} for n in NAMES] + [{"name": "kind", "role": "target"}]})
        remove_column_names(self.checkpoints()[-1])
        out, err = self.evaluate("same.csv")
        self.assertEqual(out, self.expected)
        self.assertEqual(err.count("same.csv: the columns could not be compared with those of the training, because the "
                                   "checkpoint does not have their names"), 1, err)
        self.run_program("test.yaml", "train.epochs=31")
        self.assertNotIn("could not be compared", self.evaluate("same.csv")[1])

    def test_export(self):
        """The names travel with the weights, as texts of JSON in the file's metadata."""
        def metadata():
            with open(self.path("w.safetensors"), "rb") as f:
                return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))["__metadata__"]
        self.run_program("export", "runs/test", "--out", "w.safetensors")
        columns = json.loads(metadata()["columns"])
        self.assertEqual([(c["name"], c["role"]) for c in columns["columns"]],
                         [("u", "input"), ("v", "input"), ("height", "input"), ("kind", "target")])
        self.assertNotIn("labels", metadata())
        self.run_program("test.yaml", "--fresh", "model.init_from=w.safetensors", "--run-dir", "runs/b")
        names = np.array(["low", "mi\"d", "high"])
        with open(self.path("named.csv"), "w") as f:
            writer = csv.writer(f)
            writer.writerow(["u", "kind"])
            writer.writerows((i % 3, names[i % 3]) for i in range(12))
        self.run_program("test.yaml", "dataset.path=named.csv", "--run-dir", "runs/named")
        self.run_program("export", "runs/named", "--out", "w.safetensors")
        self.assertEqual(json.loads(metadata()["labels"]), sorted(names))
        remove_column_names(self.checkpoints()[-1])
        self.run_program("export", "runs/test", "--out", "w.safetensors")
        self.assertEqual(metadata(), {"format": "pt"})

    def test_hdf5(self):
        """Several datasets that are joined are read in the order of the training; one alone may have any name."""
        def write(name, rows, **names):
            with h5py.File(self.path(name), "w") as f:
                for to, of in names.items():
                    f[to] = rows[of] if isinstance(of, str) else np.stack([rows[c] for c in of], 1)
        rows = make_rows(60, 1)
        write("train.h5", rows, u="u", rest=["v", "height"], y="kind")
        write("other.h5", self.other, u="u", rest=["v", "height"], x=NAMES, y="kind")
        arguments = ("test.yaml", "dataset.path=train.h5", "dataset.inputs=[u, rest]", "--run-dir", "runs/h5")
        self.run_program(*arguments)
        expected, err = self.run_program("eval", *arguments, "dataset.path=other.h5")
        self.assertNotIn("could not be compared", err)
        self.assertEqual(self.run_program("eval", *arguments, "dataset.path=other.h5", "dataset.inputs=[rest, u]")[0], expected)
        _, err = self.run_program("eval", *arguments, "dataset.path=other.h5", "dataset.inputs=[u, reste]", code=USAGE)
        self.assertIn("dataset.inputs: unknown column 'reste'; the model was trained with the inputs: u, rest", err)
        out, err = self.run_program("eval", *arguments, "dataset.path=other.h5", "dataset.inputs=x")
        self.assertEqual(out, expected)
        self.assertIn("other.h5: the columns could not be compared with those of the training (hdf5 file, inputs u, rest)", err)
        self.assertEqual(self.run_program("eval", *arguments, "dataset.path=same.csv", "dataset.inputs=[]")[0], expected)


class Identifiers(program.Case):
    """A line at the start names inputs that say which row it is, by the rule of init."""

    def write_table(self, columns):
        columns = {**columns, "kind": [i % 3 for i in range(60)]}
        self.write("train.csv", "\n".join(",".join(map(str, row)) for row in [tuple(columns), *zip(*columns.values())]) + "\n")
        if os.path.exists(self.path("train.db")):
            os.remove(self.path("train.db"))
        with contextlib.closing(sqlite3.connect(self.path("train.db"))) as db:
            db.execute(f"create table t ({', '.join(columns)})")
            db.executemany(f"insert into t values ({', '.join('?' * len(columns))})", zip(*columns.values()))
            db.commit()

    def notes(self, *arguments):
        _, err = self.run_program("test.yaml", "train.epochs=1", "--fresh", *arguments)
        return [line for line in err.splitlines() if "look" in line]

    def test_a_note_names_them(self):
        self.write("test.yaml", CONFIG)
        mixed = [7 * i % 60 + 5 for i in range(60)]  # each of 5 .. 64 once
        once = {"number": mixed, "patient": [f"p{i % 12}" for i in range(60)], "user_id": [1000 * i for i in mixed]}
        other = {"x": [i / 7 for i in mixed], "year": mixed, "twice": [mixed[0], *mixed[:59]], "count": [i % 50 for i in range(60)],
                 "letter": ["ab"[i % 2] for i in range(60)]}
        line = ("columns 'number', 'patient', 'user_id' look like identifiers of the rows; to train without them, write "
                "dataset.columns: {number: ignore, patient: ignore, user_id: ignore}")
        self.write_table({**once, **other})
        for path in ("train.csv", "train.db"):
            self.assertEqual(self.notes(f"dataset.path={path}"), [line])
            out, _ = self.run_program("check", "test.yaml", f"dataset.path={path}")
            self.assertRegex(out, rf"(?m)^note +{re.escape(line)}$")
            self.assertEqual(self.notes(f"dataset.path={path}", "dataset.columns={number: number, patient: category}"),
                             ["column 'user_id' looks like an identifier of the rows; to train without it, write dataset.columns: {user_id: ignore}"])
        self.assertEqual(self.notes("dataset.inputs=[number, x]"), [])
        self.assertEqual(self.run_program("test.yaml", "--fresh", "--quiet")[1], "")
        self.assertNotIn("look", "".join(self.run_program("eval", "test.yaml")))
        for table in (other, {"number": mixed}):  # none, or nothing else to train with
            self.write_table(table)
            self.assertEqual(self.notes(), [])
