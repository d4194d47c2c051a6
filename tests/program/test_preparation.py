"""Tables with text, missing values, categories and dates: training, evaluation, prediction, resume. ctest-labels: unit"""
import csv
import io
import json
import os
import runpy
import shutil

import h5py
import numpy as np

import program
from program import DATA, USAGE

CONFIG = """
dataset:
  path: train.csv
  targets: alive
  scale: standard
  split: {test: 0.25, seed: 1}
  columns:
    name: ignore
    age: {missing: median}
    port: {missing: most_frequent}
    when: {type: date, parts: [month, weekday]}
sampler: {batch_size: 8}
model: {layers: [{linear: 8}, tanh, {linear: 2}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.05}
train: {epochs: 20}
"""
NAMES = ["name", "age", "port", "when", "member", "alive"]


def make_rows(count, seed):
    r = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        age, port, member = round(float(r.uniform(1, 80)), 1), "CQS"[r.integers(3)], bool(r.integers(2))
        alive = age < 20 or (member and port != "S")
        rows.append({"name": f"Person, {i} \"x\"", "age": "" if r.random() < 0.1 else age, "port": "" if r.random() < 0.1 else port,
                     "when": f"2024-{r.integers(1, 13):02}-{r.integers(1, 29):02}", "member": "yes" if member else "no",
                     "alive": "yes" if alive else "no"})
    return rows


class Preparation(program.Case):
    def csv(self, name, rows, columns=NAMES):
        out = io.StringIO()
        writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return self.write(name, out.getvalue())

    def setUp(self):
        super().setUp()
        self.write("test.yaml", CONFIG)
        self.csv("train.csv", make_rows(200, 1))
        self.run_program("test.yaml")

    def predict(self, path, *arguments, code=program.OK):
        _, err = self.run_program("predict", "test.yaml", f"dataset.path={path}", "--part", "all", "--out", "out.csv", *arguments, code=code)
        return (self.read("out.csv") if code == program.OK else None), err

    def test_learns(self):
        out, _ = self.run_program("eval", "test.yaml")
        self.assertGreater(json.loads(out)["accuracy"], 0.8)

    def test_overrides_of_columns_with_dots(self):
        self.write("dots.csv", "price.usd,size,y\n" + "".join(f"n/a {i},{i},{i % 2}\n" for i in range(40)))
        self.write("dots.yaml", "dataset: {path: dots.csv, targets: y, columns: {size: {scale: standard}}}\n"
                                "model: {layers: [{linear: 2}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        for words in ("dataset.columns.price.usd=ignore",), ("dataset.columns.price.usd.type=ignore",), \
                     ("dataset.columns={price.usd: {type: text}}", "dataset.columns.price.usd.type=ignore"):
            out, err = self.run_program("check", "dots.yaml", *words)
            self.assertRegex(out + err, r"price\.usd +.*ignore")

    def test_embeddings_of_folds(self):
        """The number that check prints is that of the whole file: it is right for every fold, though each has other categories."""
        self.write("folds.csv", "port,y\n" + "".join(f"{'abcdefgh'[i // 3]},{i % 2}\n" for i in range(24)))
        self.write("folds.yaml", "dataset: {path: folds.csv, inputs: [port], targets: y, columns: {port: {type: category, encoding: embedding}}, "
                                 "split: {folds: 3, fold: 0, shuffle: false}}\nmodel: {layers: [{embedding: {num_embeddings: 9, embedding_dim: 2}}, "
                                 "flatten, {linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        for fold, categories in enumerate((6, 6, 6)):
            self.run_program("check", "folds.yaml", f"dataset.split.fold={fold}", out=f"embedding of {categories} categories, num_embeddings: 9\n")
            self.run_program("folds.yaml", f"dataset.split.fold={fold}", "--fresh")

    def test_embeddings_follow_from_the_data(self):
        """Without num_embeddings it is what check prints, in every fold, and for new rows that of the training."""
        self.write("folds.csv", "port,kind,y\n" + "".join(f"{'abcdefgh'[i // 3]},{'' if i == 0 else 'xy'[i % 2]},{i % 2}\n" for i in range(24)))
        self.write("new.csv", "port,kind\n" + "".join(f"{port},x\n" for port in "abcdefghijklm"))
        config = ("name: folds\ndataset: {path: folds.csv, inputs: INPUTS, targets: y, columns: {port: {type: category, encoding: embedding}, "
                  "kind: {encoding: embedding, missing: constant}}, split: {folds: 3, fold: 0, shuffle: false}}\nmodel: {layers: [LAYERS, "
                  "{linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        named = "[{embedding: {embedding_dim: 2, from: a, name: a}}, {flatten: {name: x}}, {embedding_bag: {embedding_dim: 2, from: b, name: b}}, {concat: {from: x}}]"
        for inputs, layers, sizes in (("[port, kind]", "{embedding: {embedding_dim: 2, name: a}}, flatten", {"a": 9}),
                                      ("[kind]", "{embedding_bag: {embedding_dim: 2, name: a}}", {"a": 4}),
                                      ("{a: port, b: kind}", named[1:-1], {"a": 9, "b": 4})):
            text = config.replace("INPUTS", inputs).replace("LAYERS", layers)
            self.write("folds.yaml", text if "port" in inputs else text.replace("port: {type: category, encoding: embedding}, ", ""))
            for fold in range(3):
                words = ["folds.yaml", f"dataset.split.fold={fold}"]
                self.run_program(*words, "--fresh")
                with h5py.File(self.checkpoints("runs/folds")[-1]) as f:
                    self.assertEqual({name: f["model"][name + ".weight"].shape[0] for name in sizes}, sizes)
                self.run_program("eval", "runs/folds")
                self.assertEqual(len(self.run_program("predict", "runs/folds", "new.csv")[0].splitlines()), 14)
            self.run_program(*words, "train.epochs=2")
            self.run_program("export", "runs/folds", "--out", "folds.onnx")
        self.write("folds.csv", "port,y2,y\n" + "".join(f"{'abcdefgh'[i // 3]},{i % 4},{i % 2}\n" for i in range(24)))
        self.write("folds.yaml", text.replace("kind: {encoding: embedding, missing: constant}", "").replace("{a: port, b: kind}", "{a: [port, y2]}")
                   .replace(layers, "{embedding: {embedding_dim: 2, from: a}}, flatten"))
        self.assertIn("so num_embeddings is needed", self.run_program("check", "folds.yaml", code=program.USAGE)[1])

    def test_embedding(self):
        """A column as tokens for an embedding layer; a category that no training row has is token 0."""
        self.write("embedding.yaml", CONFIG.replace("name: test", "name: embedding").replace("port: {missing: most_frequent}", "port: {encoding: embedding, missing: most_frequent}")
                   .replace("  split:", "  inputs: {port: [port], rest: [age, member]}\n  split:").replace("    name: ignore\n", "").replace("    when: {type: date, parts: [month, weekday]}\n", "")
                   .replace("{linear: 8}, tanh,", "{embedding: {embedding_dim: 3, num_embeddings: 4, from: port}}, flatten, {concat: {from: rest}}, {linear: 8}, tanh,"))
        out, _ = self.run_program("check", "embedding.yaml")
        self.assertRegex(out, r"port +category .* 1 embedding of 3 categories, num_embeddings: 4\n")
        self.run_program("embedding.yaml")
        self.assertGreater(json.loads(self.run_program("eval", "embedding.yaml")[0])["accuracy"], 0.8)
        rows = make_rows(6, 5)
        for row, port in zip(rows, ["C", "Q", "S", "new", "other", "C"]):
            row.update(port=port, age=30, member="yes")
        self.csv("new.csv", rows)
        out, err = self.run_program("predict", "runs/embedding", "new.csv", "--outputs")
        self.assertIn("column 'port': 2 values are no category of the training rows, such as 'new'", err)
        logits = [line.split(",")[2:] for line in out.splitlines()[1:]]
        self.assertEqual(logits[3], logits[4])
        self.assertEqual(logits[0], logits[5])
        self.assertEqual(len({tuple(x) for x in logits}), 4)
        text = self.read("embedding.yaml")
        self.write("embedding.yaml", text.replace("encoding: embedding,", "encoding: ordinal, scale: none,"))
        self.run_program("embedding.yaml", "--fresh")
        self.assertIn("; an unknown category of a column with encoding: ordinal is -1, with encoding: embedding 0",
                      self.run_program("predict", "runs/embedding", "new.csv", code=DATA)[1])
        self.write("embedding.yaml", text.replace("encoding: embedding,", "encoding: embedding, unknown: error,"))
        self.run_program("embedding.yaml", "--fresh")
        self.assertIn("column 'port': 'new' is not a category of the training rows, and the column has unknown: error",
                      self.run_program("predict", "runs/embedding", "new.csv", code=DATA)[1])

    def test_checkpoint(self):
        """The preparation is that of the training rows."""
        with h5py.File(self.path("runs/test/checkpoints/epoch-0020.h5")) as f:
            columns = json.loads(f["data/preparation"][()])["columns"]
            self.assertEqual(f["scaler/mean"].shape, (1 + 3 + 2 + 1,))
        self.assertEqual([c["name"] for c in columns], NAMES[1:5])
        self.assertEqual([c["type"] for c in columns], ["number", "category", "date", "boolean"])
        self.assertEqual(columns[1]["categories"], ["C", "Q", "S"])
        self.assertEqual(columns[2]["parts"], ["month", "weekday"])

    def test_predictions_do_not_depend_on_other_rows(self):
        rows = make_rows(40, 2)
        self.csv("new.csv", rows)
        whole = self.predict("new.csv")[0].splitlines()
        self.csv("one.csv", rows[7:8], ["member", "port", "age", "when"])  # other columns, no target
        one = self.predict("one.csv")[0].splitlines()
        self.assertEqual(one[1].split(",")[1:], whole[8].split(",")[1:])

    def test_unknown_and_missing(self):
        row = {"name": "x", "age": 30, "port": "Z", "when": "2024-05-05", "member": "no"}
        self.csv("new.csv", [row, dict(row, port=""), dict(row, age="", port="Y")], NAMES[:5])
        _, err = self.predict("new.csv")
        self.assertIn("new.csv: column 'port': 2 values are no category of the training rows, such as 'Z'\n", err)
        self.csv("new.csv", [row, dict(row, when="")], NAMES[:5])
        self.assertIn("new.csv:line 3: column 'when': missing value; the model was trained without a rule for missing values",
                      self.predict("new.csv", code=DATA)[1])
        self.csv("new.csv", [row, dict(row, age="old")], NAMES[:5])
        self.assertIn("new.csv:line 3: column 'age': 'old' is not a number", self.predict("new.csv", code=DATA)[1])
        self.csv("new.csv", [row, dict(row, member="perhaps")], NAMES[:5])
        self.assertIn("new.csv:line 3: column 'member': 'perhaps' is not true, false", self.predict("new.csv", code=DATA)[1])
        self.csv("new.csv", [dict(row, alive="yes"), dict(row, alive="unclear")])
        _, err = self.run_program("eval", "test.yaml", "dataset.path=new.csv", "--part", "all", code=DATA)
        self.assertIn("new.csv:line 3: column 'alive': class 'unclear' is not in the data that the model was trained with", err)

    def test_codes_with_leading_zeros(self):
        """Categories are compared as the checkpoint says: with such codes in the training file as texts, else as numbers."""
        for name, second in (("texts", "007"), ("numbers", "7")):
            self.write("codes.csv", "c,y\n" + f"12,1\n{second},0\n" * 8)
            self.write("codes.yaml", """
dataset: {path: codes.csv, columns: {c: category}}
model: {layers: [{linear: 2}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.1}
train: {epochs: 20}
""")
            self.run_program("codes.yaml", "--run-dir", f"runs/{name}")
            with h5py.File(self.path(f"runs/{name}/checkpoints/epoch-0020.h5")) as f:
                column = json.loads(f["data/preparation"][()])["columns"][0]
            self.assertEqual((column["numeric"], column["categories"]), (name == "numbers", sorted([second, "12"], key=float)))
            values = ["007", "7", "7.0", "12", "012"]
            self.write("new.csv", "c\n" + "".join(value + "\n" for value in values))
            out, err = self.run_program("predict", f"runs/{name}", "new.csv", "--outputs")
            rows = [line.split(",")[2:] for line in out.splitlines()[1:]]
            same_as_second = [value for value, row in zip(values, rows) if row == rows[0]]
            self.assertEqual(same_as_second, ["007"] if name == "texts" else ["007", "7", "7.0"])
            self.assertEqual(rows[3] == rows[4], name == "numbers")
            if name == "texts":
                self.assertIn("column 'c': 3 values are no category of the training rows, such as '7'", err)

    def test_numbers_that_begin_with_a_text(self):
        """A wrong first value makes a category of a column of numbers, which check and the log say."""
        def write(*first):
            self.write("t.csv", "a,b,c,kind,y\n" + "".join(",".join([*(first[k] if i == 0 and k < len(first) else str(i % (5 + k)) for k in range(3)),
                                                                      "xyz"[i % 3], "pq"[i % 2]]) + "\n" for i in range(60)))
        self.write("t.yaml", "name: t\ndataset: {path: t.csv}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        note = ("t.csv: column 'a' is a category, because its first value is a text, though most are numbers%s; if they are numbers, correct "
                "texts such as 'inf' or list them in dataset.missing, else write dataset.columns: {a: category}\n")
        for first, others in ((["inf"], ""), (["inf", "abc"], "; so is 1 more"), (["inf", "abc", "?"], "; so are 2 more")):
            write(*first)
            self.assertIn("note           " + note % others, self.run_program("check", "t.yaml")[0])
            self.run_program("t.yaml", "--fresh")
            self.assertIn(note % others, self.read("runs/t/log.txt"))
        for words in (["dataset.columns={a: category, b: category, c: ignore}"], ["dataset.columns={a: {missing: mean}, b: {missing: mean}, c: {missing: mean}}",
                                                                                   "dataset.missing=[inf, abc, '?']"]):
            self.assertNotIn("is a category, because", self.run_program("check", "t.yaml", *words)[0])
        self.assertNotIn("is a category, because", "".join(self.run_program("eval", "runs/t", "t.csv")))

    def test_categories_with_decimal_commas(self):
        self.write("t.tsv", "a\tkind\ty\n" + "".join(f"{i % 5},5\t{'xyz'[i % 3]},5\t{'pq'[i % 2]}\n" for i in range(60)))
        self.write("t.yaml", "name: t\ndataset: {path: t.tsv}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        note = "column 'a' is a category of numbers with decimal commas, such as '0,5'; if they are numbers, set dataset.csv.decimal: ','\n"
        self.run_program("check", "t.yaml", out="note           t.tsv: " + note)
        for words in ("dataset.columns={a: category}", "dataset.csv.decimal=','"):
            self.assertNotIn("decimal commas,", self.run_program("check", "t.yaml", words)[0])

    def test_check(self):
        out, _ = self.run_program("check", "test.yaml")
        self.assertIn("\ncolumn             type      missing                  features\n", out)
        self.assertRegex(out, r"age +number +\d+, median 37\.5 +1, standard\n")
        self.assertRegex(out, r"port +category +\d+, most_frequent S +3 one_hot of 3 categories\n")
        self.assertRegex(out, r"when +date +0, error +2 month weekday, standard\n")
        self.assertRegex(out, r"member +boolean +0, error +1, standard\n")
        self.assertRegex(out, r"name +ignored *\n")
        out, _ = self.run_program("check", "test.yaml", "dataset.path=datasets/iris.csv", "dataset.targets=[species]",
                                  "model.layers=[{linear: 3}]", "dataset.columns={}")
        self.assertNotIn("missing", out)

    def test_titanic(self):
        """The shipped table is what its script writes, and its config learns."""
        shutil.copy(os.path.join(program.SOURCE, "datasets", "make_titanic.py"), self.path("make_titanic.py"))
        runpy.run_path(self.path("make_titanic.py"))
        self.assertEqual(self.read("titanic.csv"), self.read("datasets/titanic.csv"))
        config = os.path.join(program.SOURCE, "configs", "titanic.yaml")
        self.run_program(config)
        self.assertGreater(json.loads(self.run_program("eval", config)[0])["accuracy"], 0.75)

    def test_resume(self):
        self.run_program("test.yaml", "train.epochs=25")
        rows = make_rows(200, 1)
        for row in rows[:100]:
            row["age"] = 75
        self.csv("train.csv", rows)
        self.run_program("test.yaml", "train.epochs=30", code=DATA, err="the column 'age' was prepared in another way")
        self.csv("train.csv", make_rows(200, 1))
        self.run_program("test.yaml", "train.epochs=30", "dataset.columns.age.missing=mean", code=USAGE, err="dataset.columns.age.missing: median -> mean")

    def test_damaged_preparation(self):
        path = self.path("runs/test/checkpoints/epoch-0020.h5")
        with h5py.File(path) as f:
            text = f["data/preparation"][()].decode()
        sentence = "the checkpoint's preparation of the columns (data/preparation) is damaged"
        for old, new in (('"fill": [', '"fill": [1e999, '), ('"type": "number"', '"type": "auto"'), ('"C", "Q"', '"Q", "C"'),
                         ('"C", "Q"', '"C", 7'), ('"categories": ["C", "Q", "S"]', '"categories": []'), ('"fill": [2]', '"fill": [3]'),
                         ('"fill": [2]', '"fill": [0.5]'), ('"month"', '"moon"'), ('"parts": [', '"parts": [[], '),
                         ('"indicator": false', '"indicator": 0'), ('"scale": "standard"', '"scale": "x"'), ('"columns"', '"colums"'),
                         ('"median"', '"middle"'), ('"one_hot"', '"bedding"'), ('"numeric": false', '"numeric": null'), ("{", "[")):
            self.assertIn(old, text)
            damaged = text.replace(old, new, 1)

            def change(f):
                del f["data/preparation"]
                f["data/preparation"] = np.bytes_(damaged)
            program.change_checkpoint(path, change)
            self.assertIn(sentence, self.predict("train.csv", code=DATA)[1], new)
        program.change_checkpoint(path, lambda f: (f.__delitem__("data/preparation"), f.__setitem__("data/preparation", np.bytes_(text.replace('"age"', '"agee"')))))
        self.assertIn("has other columns than its data/columns", self.predict("train.csv", code=DATA)[1])
