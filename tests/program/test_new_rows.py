"""Rows of new data that a trained model cannot read: one error that counts them, or --skip-bad-rows. ctest-labels: dist"""
import csv, io, json, random, sqlite3

import h5py
import numpy as np

import program
from program import DATA, USAGE

CONFIG = """
name: test
dataset: {path: train.csv, split: 0.2, scale: standard, columns: {region: {type: category, unknown: error}}}
model: {layers: [{linear: 2}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""
HEADER = ["age", "smoker", "region", "seen", "y"]
BAD = {3: ["31", "maybe", "n", "2024-01-01", "a"], 7: ["", "yes", "n", "2024-01-01", "a"], 8: ["inf", "yes", "n", "2024-01-01", "a"],
       11: ["old", "yes", "n", "2024-01-01", "a"], 12: ["4", "yes", "n", "never", "a"], 15: ["4", "yes", "q", "2024-01-01", "a"],
       16: ["4", "perhaps", "s", "2024-01-01", "a"]}
COUNTS = ("1 without a value of column 'age' (line 9), 2 with a wrong value of column 'age' (first: line 10 'inf'), "
          "2 with a wrong value of column 'smoker' (first: line 5 'maybe'), 1 with a wrong value of column 'region' (line 17 'q'), "
          "1 with a wrong value of column 'seen' (line 14 'never')")


class NewRows(program.Case):
    def setUp(self):
        super().setUp()
        draw = random.Random(1)
        self.rows = [[str(draw.randint(20, 60)), draw.choice(["yes", "no"]), draw.choice("nsw"), f"2024-0{draw.randint(1, 9)}-11",
                      draw.choice("ab")] for _ in range(60)]
        self.table("train.csv", self.rows)
        self.write("test.yaml", CONFIG)
        self.run_program("test.yaml")

    def table(self, name, rows):
        with open(self.path(name), "w", newline="") as f:
            csv.writer(f).writerows([HEADER, *rows])

    def new(self, changed=BAD):
        self.table("new.csv", [changed.get(i, row) for i, row in enumerate(self.rows[:20])])

    def test_an_error_counts_every_kind(self):
        self.new()
        for command in ("predict", "eval"):
            err = self.run_program(command, "runs/test", "new.csv", code=DATA)[1]
            self.assertIn("new.csv:line 5: column 'smoker': 'maybe' is not true, false, yes, no, 1 or 0; 7 rows of 20 cannot be read: "
                          + COUNTS + ". Correct them, or leave them out with --skip-bad-rows\n", err)
        self.new({7: BAD[7]})
        err = self.run_program("predict", "runs/test", "new.csv", code=DATA)[1]
        self.assertIn("new.csv:line 9: column 'age': missing value; the model was trained without a rule for missing values of this column "
                      "(dataset.columns); 1 row of 20 cannot be read. Correct it, or leave it out with --skip-bad-rows\n", err)

    def test_lines_of_rows_that_are_left_out_are_empty(self):
        self.new({})
        every = self.run_program("predict", "runs/test", "new.csv", "--probabilities", "--outputs", "--with-inputs")[0].splitlines()
        self.new()
        wanted = [every[0]] + [",".join([*BAD[i], str(i)]) + "," * 5 if i in BAD else line for i, line in enumerate(every[1:])]
        for nproc in (1, 3):
            out, err = self.run_program("predict", "runs/test", "new.csv", "--probabilities", "--outputs", "--with-inputs", "--skip-bad-rows",
                                        "--nproc", nproc)
            self.assertEqual(out.splitlines(), wanted)
        self.assertIn("new.csv: 7 of 20 rows are left out (--skip-bad-rows): " + COUNTS + "\n", err)
        self.assertIn("new.csv: the 13 rows that are left\n", err)
        _, err = self.run_program("predict", "runs/test", "new.csv", "--skip-bad-rows", "--probabilities", "--out", "out.h5")
        self.assertIn("out.h5: 20 rows, 7 without predictions\n", err)
        with h5py.File(self.path("out.h5")) as f:
            self.assertEqual([i for i, p in enumerate(f["prediction"]) if p == -1], sorted(BAD))
            self.assertEqual(list(np.isnan(f["probabilities"][:, 0]).nonzero()[0]), sorted(BAD))
            self.assertEqual(list(f["row"]), list(range(20)))

    def test_eval_counts_rows_that_the_filter_cannot_compare(self):
        self.run_program("test.yaml", "--run-dir", "runs/f", "dataset.filter='age >= 10'")
        self.new({4: ["old", *self.rows[4][1:]], 19: ["1", *self.rows[19][1:]]})
        self.table("good.csv", [row for i, row in enumerate(self.rows[:19]) if i != 4])
        wanted = json.loads(self.run_program("eval", "runs/f", "good.csv")[0])
        out, err = self.run_program("eval", "runs/f", "new.csv", "--skip-bad-rows")
        self.assertEqual(json.loads(out), wanted)
        self.assertIn("1 of 20 rows is left out (--skip-bad-rows): 1 with a wrong value of column 'age' (line 6 'old')", err)
        self.assertIn("dataset.filter keeps 18 of 20 rows", err)
        self.assertIn("new.csv:line 6: column 'age': 'old' is not a number, and dataset.filter compares it with one; 1 row of 20 cannot be read. "
                      "Correct it, or leave it out with --skip-bad-rows\n", self.run_program("eval", "runs/f", "new.csv", code=DATA)[1])

    def test_eval_counts_the_other_rows(self):
        self.table("good.csv", [row for i, row in enumerate(self.rows[:20]) if i not in BAD and i != 2])
        self.new({**BAD, 2: [*self.rows[2][:4], "c"]})
        wanted = json.loads(self.run_program("eval", "runs/test", "good.csv")[0])
        out, err = self.run_program("eval", "runs/test", "new.csv", "--skip-bad-rows")
        self.assertEqual(json.loads(out), wanted)
        self.assertIn("8 of 20 rows are left out", err)
        self.assertIn("1 with a wrong value of column 'y' (line 4 'c')", err)
        self.assertIn("new.csv:line 4: column 'y': class 'c' is not in the data that the model was trained with; 8 rows of 20",
                      self.run_program("eval", "runs/test", "new.csv", code=DATA)[1])

    def test_records_with_another_number_of_fields(self):
        lines = [",".join(row) for row in [HEADER, *self.rows[:5]]]
        lines[2], lines[4] = "30,yes,n", lines[4] + ",1"
        self.write("new.csv", "\n".join(lines) + "\n")
        self.assertIn("new.csv:line 3: there are 3 fields, but the header has 5; 2 rows of 5 cannot be read: "
                      "2 with another number of fields (first: line 3). ", self.run_program("predict", "runs/test", "new.csv", code=DATA)[1])
        rows = list(csv.DictReader(io.StringIO(self.run_program("predict", "runs/test", "new.csv", "--skip-bad-rows", "--with-inputs")[0])))
        self.assertEqual([r["row"] for r in rows if r["prediction"] == ""], ["1", "3"])
        self.assertEqual((rows[1]["region"], rows[1]["seen"]), ("n", ""))
        limit = min(int(self.rows[i][0]) for i in (0, 2, 4))  # a filter does not test those records, and leaves out another row
        kept = sum(int(self.rows[i][0]) > limit for i in (0, 2, 4))
        _, err = self.run_program("eval", "runs/test", "new.csv", "--skip-bad-rows", f"dataset.filter='age > {limit}'")
        self.assertIn(f"; dataset.filter keeps {kept} of 5 rows\nnew.csv: the {kept} rows that are left\n", err)

    def test_no_row_is_left(self):
        self.table("new.csv", [BAD[3], BAD[7]])
        self.assertIn("no row can be read: 1 without a value of column 'age' (line 3), 1 with a wrong value of column 'smoker'",
                      self.run_program("predict", "runs/test", "new.csv", "--skip-bad-rows", code=DATA)[1])

    def test_a_database(self):
        rows = [BAD.get(i, row) for i, row in enumerate(self.rows[:20])]
        with sqlite3.connect(self.path("new.db")) as db:
            db.execute("create table t (age, smoker text, region text, seen text)")
            db.executemany("insert into t values (?, ?, ?, ?)", [[row[0] or None, *row[1:4]] for row in rows])
        self.assertIn("7 rows of 20 cannot be read: 1 without a value of column 'age' (row 7)",
                      self.run_program("predict", "runs/test", "new.db", code=DATA)[1])
        lines = self.run_program("predict", "runs/test", "new.db", "--skip-bad-rows")[0].splitlines()[1:]
        self.assertEqual([i for i, line in enumerate(lines) if line == f"{i},"], sorted(BAD))

    def test_rows_of_a_split(self):
        """They belong to no part; the others keep the numbers that they have in the file."""
        self.new()
        out = self.run_program("predict", "runs/test", "dataset.path=new.csv", "--part", "validation", "--skip-bad-rows", "--with-inputs")[0]
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual(len(rows), 3)  # a fifth of 13
        for row in rows:
            self.assertNotIn(int(row["row"]), BAD)
            self.assertEqual([row[name] for name in HEADER], self.rows[int(row["row"])])

    def test_what_it_is_not_for(self):
        np.save(self.path("x.npy"), np.zeros((4, 3), np.float32))
        self.assertIn("--skip-bad-rows is for rows of CSV files and SQLite tables",
                      self.run_program("predict", "runs/test", "x.npy", "--skip-bad-rows", code=USAGE)[1])
        self.write("series.yaml", CONFIG.replace("split: 0.2", "window: {steps: 3}, targets: age, inputs: [age]").replace("cross_entropy", "mse")
                   .replace("name: test", "name: series").replace(", columns: {region: {type: category, unknown: error}}", "").replace(
                       "{linear: 2}", "flatten, {linear: 1}"))
        self.run_program("series.yaml")
        self.new({3: BAD[11], 4: BAD[11]})
        self.assertIn("2 rows of 20 cannot be read: 2 with a wrong value of column 'age' (first: line 5 'old'). Correct them; "
                      "rows of windows are adjacent", self.run_program("predict", "runs/series", "new.csv", code=DATA)[1])
        self.assertIn("not for those of windows", self.run_program("predict", "runs/series", "new.csv", "--skip-bad-rows", code=USAGE)[1])

    def test_a_long_file_counts_quickly_and_in_parts(self):
        """The fast reader of plain rows and the pattern of files find the same rows."""
        many = [BAD[3] if i % 10 == 3 else BAD[7] if i % 10 == 7 else self.rows[i % 60] for i in range(5000)]
        self.table("part-1.csv", many[:2500])
        self.table("part-2.csv", many[2500:])
        err = self.run_program("predict", "runs/test", "part-*.csv", code=DATA)[1]
        self.assertIn("1000 rows of 5000 cannot be read: 500 without a value of column 'age' (first: part-1.csv line 9), "
                      "500 with a wrong value of column 'smoker' (first: part-1.csv line 5 'maybe')", err)
        lines = self.run_program("predict", "runs/test", "part-*.csv", "--skip-bad-rows")[0].splitlines()[1:]
        self.assertEqual([i for i, line in enumerate(lines) if line == f"{i},"], [i for i in range(5000) if i % 10 in (3, 7)])
