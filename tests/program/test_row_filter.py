"""dataset.filter: which rows of a table are used. pandas' query() on the same rows is computed here by Python. ctest-labels: unit"""
import csv, sqlite3

import program
from program import DATA, USAGE

CONFIG = """name: t
dataset: {path: FILE, targets: y, split: 0.25, scale: standard, inputs: [a, b]FILTER}
model: {layers: [{linear: 1}]}
loss: mse
optimizer: sgd
train: {epochs: 1}
"""
HEADER = ["a", "b", "year", "land use", "note", "y"]
ROWS = [[i * 7 % 60 / 4, i % 11, 2000 + i % 17, ["DE", "FR", "Côte d'Or"][i % 3], ["", "x", "3", "NA", "7 %"][i % 5], i * 3 % 40 / 8] for i in range(120)]


class RowFilter(program.Case):
    def rows(self, name, rows, header=HEADER):
        with open(self.path(name), "w", newline="") as f:
            csv.writer(f).writerows([header, *rows])

    def config(self, file, text=None):
        quoted = "" if text is None else ", filter: \"" + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        self.write("t.yaml", CONFIG.replace("FILE", file).replace("FILTER", quoted))

    def state(self, file, text=None):
        self.config(file, text)
        _, err = self.run_program("t.yaml", "--fresh", "--run-dir", "runs/t")
        return self.sha("runs/t"), err

    def test_expressions(self):
        """The run is that of a file with the rows that Python keeps."""
        self.rows("all.csv", ROWS)
        missing = lambda row: row[4] in ("", "NA")
        number = lambda row: {"3": 3}.get(row[4])
        for text, keep in (("year >= 2010", lambda r: r[2] >= 2010), ("year<2005 or year>2014", lambda r: r[2] < 2005 or r[2] > 2014),
                           ("`land use` == 'DE'", lambda r: r[3] == "DE"), ('`land use` != "DE" and year <= 2007', lambda r: r[3] != "DE" and r[2] <= 2007),
                           ("`land use` in ['DE', 'Côte d''Or'] and not (year == 2003 or year == 2004)", lambda r: r[3] != "FR" and r[2] not in (2003, 2004)),
                           ("year not in [2001, 2.002e3, 2003] and a > 1.5", lambda r: r[2] not in (2001, 2002, 2003) and r[0] > 1.5), ("note is missing", missing), ("note in [7, 'z', 3.0, '7 %', 'a']", lambda r: r[4] in ("3", "7 %")), ("note in ['x', '3', 2]", lambda r: r[4] in ("x", "3")),
                           ("note not in ['x', '3.0', 2]", lambda r: r[4] != "x"), ("year in [" + ", ".join(str(i * 7919 % 3001) for i in range(3000) if i * 7919 % 3001 % 3) + "]", lambda r: r[2] % 3),
                           
                           ("note is not missing", lambda r: not missing(r)), ("note == 3", lambda r: number(r) == 3), ("note != 3", lambda r: number(r) != 3),
                           ("note == '3'", lambda r: r[4] == "3"), ("not note == 3 and a > b", lambda r: r[4] != "3" and r[0] > r[1]), ("b < a", lambda r: r[1] < r[0]), ("2010 <= year", lambda r: r[2] >= 2010),
                           ("year == 2001 or year == 2002 and b > 5", lambda r: r[2] == 2001 or (r[2] == 2002 and r[1] > 5)), ("y > 1 and y < 4", lambda r: 1 < r[5] < 4),
                           ("not not year > 2010", lambda r: r[2] > 2010), ("`land use` > 'DE'", lambda r: r[3] > "DE" and r[3] != "Côte d'Or"), ("b >= -1e1", lambda r: True), ("note != note", missing)):
            with self.subTest(text):
                kept = [row for row in ROWS if keep(row)]
                self.assertTrue(0 < len(kept))
                self.rows("kept.csv", kept)
                expected, _ = self.state("kept.csv")
                state, log = self.state("all.csv", text)
                self.assertEqual(state, expected)
                self.assertIn(f"all.csv: dataset.filter keeps {len(kept)} of 120 rows\n", log)
                self.assertIn(f"dataset.filter keeps {len(kept)} of 120 rows", "".join(self.run_program("check", "t.yaml")))

    def test_a_database(self):
        self.rows("kept.csv", [row for row in ROWS if row[2] >= 2010 and row[3] == "FR" and row[4] not in ("", "NA")])
        expected, _ = self.state("kept.csv")
        with sqlite3.connect(self.path("all.db")) as db:
            db.execute("create table t (a real, b int, year int, [land use] text, note text, y real)")
            db.executemany("insert into t values (?, ?, ?, ?, ?, ?)", [[value if value != "" else None for value in row] for row in ROWS])
        self.assertEqual(self.state("all.db", "year >= 2010 and `land use` == 'FR' and note is not missing")[0], expected)

    def test_several_files(self):
        """The columns of the filter are found by name in each."""
        self.rows("p-1.csv", ROWS[:50])
        self.rows("p-2.csv", [row[::-1] for row in ROWS[50:]], HEADER[::-1])
        self.rows("kept.csv", [row for row in ROWS if row[2] >= 2010])
        self.assertEqual(self.state('"p-*.csv"', "year >= 2010")[0], self.state("kept.csv")[0])

    def test_other_files(self):
        """eval uses the rows of the filter; predict those of the split of the run, and of another file every row."""
        self.rows("all.csv", ROWS)
        self.state("all.csv", "year >= 2010")
        kept = [i for i, row in enumerate(ROWS) if row[2] >= 2010]
        out, _ = self.run_program("predict", "runs/t", "--with-inputs")
        rows = list(csv.reader(out.splitlines()))[1:]
        self.assertEqual(len(rows), -(-len(kept) // 4))
        for row in rows:
            self.assertGreaterEqual(int(row[2]), 2010)
            self.assertEqual([str(v) for v in ROWS[int(row[6])][1:4]], row[1:4])  # the number of the row in the file
        for arguments in (["runs/t", "all.csv"], ["runs/t", "--part", "all"]):
            out, _ = self.run_program("predict", *arguments)
            self.assertEqual(len(out.splitlines()), 121)
        self.rows("new.csv", [row[:2] for row in ROWS[:7]], ["a", "b"])
        self.assertEqual(len(self.run_program("predict", "runs/t", "new.csv")[0].splitlines()), 8)
        self.rows("kept.csv", [row for row in ROWS if row[2] >= 2010])
        evaluated = [self.run_program("eval", "runs/t", file) for file in ("all.csv", "kept.csv")]
        self.assertEqual(evaluated[0][0].replace("all.csv", "kept.csv"), evaluated[1][0])
        self.assertIn(f"keeps {len(kept)} of 120 rows", evaluated[0][1] + evaluated[0][0])
        kept = sum(row[2] < 2004 for row in ROWS)
        self.run_program("eval", "runs/t", "all.csv", "dataset.filter='year < 2004'",
                         err=[f"all.csv: dataset.filter keeps {kept} of 120 rows\n", f"all.csv: the {kept} rows that are left\n"])
        self.run_program("t.yaml", "--run-dir", "runs/t", "train.epochs=2", "dataset.filter='year >= 2009'", code=USAGE, err="dataset.filter")

    def test_errors(self):
        self.rows("all.csv", ROWS)
        for text, sentence in (("year = 3", "character 6: expected == to compare, not '='"), ("year >", "character 7: expected a column, a number or a text in quotes, but this is the end"),
                               ("", "character 1: expected a column"), ("year > 3 &", "character 10: expected and, not '&'"), ("year", "character 5: expected == != < <= > >=, in or is, but this is the end"),
                               ("(year > 3", "character 10: expected and, or, or ), but this is the end"), ("year > 3)", "character 9: expected and, or, or the end, not ')'"),
                               ("`é` == 'x", "character 8: the closing ' is missing"), ("a in 3", "character 6: expected [, not '3'"), ("a in [3 4]", "character 9: expected , or ], not '4'"),
                               ("a in [b]", "character 7: expected a number or a text in quotes, not 'b'"), ("a not 3", "character 7: expected in, not '3'"), ("a is 3", "character 6: expected missing or not missing, not '3'"),
                               ("a > 1e", "character 5: expected a number, not '1e'"), ("a > 3 > 1", "character 7: expected and, or, or the end, not '>'"), ("~(a > 3)", "character 1: expected not, not '~'"),
                               ("(" * 65 + "a > 3" + ")" * 65, "more than 64 parentheses and `not` inside each other"), ("not " * 65 + "a > 3", "more than 64"),
                               (" or ".join(["a > 3"] * 2000), "there are more than 4096 comparisons and values"), ("a > $b", "character 5: expected a column, a number")):
            with self.subTest(text[:40]):
                self.config("all.csv", text)
                self.run_program("check", "t.yaml", code=USAGE, err=(f"t.yaml:2:", "dataset.filter: ", sentence))
        for text, sentence in (("yaer > 3", "all.csv: there is no column 'yaer', which is in dataset.filter; did you mean 'year'"), ("year > 3000", "all.csv: dataset.filter leaves out all 120 rows"),
                               ("note > 3", "all.csv:line 3: column 'note': 'x' is not a number, and dataset.filter compares it with one")):
            self.config("all.csv", text)
            self.assertIn(sentence, self.run_program("check", "t.yaml", code=DATA)[1])
        self.write("n.yaml", "dataset: {path: x.npy, filter: 'a > 3'}\nmodel: {layers: [{linear: 1}]}\nloss: mse\noptimizer: sgd\ntrain: {epochs: 1}\n")
        self.assertIn("dataset.filter: it is for formats csv and sqlite, not npy", self.run_program("check", "n.yaml", code=USAGE)[1])
