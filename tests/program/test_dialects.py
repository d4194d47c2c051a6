"""How tables are written: numbers with signs around them, comments, blanks between columns. What init writes for a file, the run,
eval and predict read the same. ctest-labels: unit"""
import csv

import program
from program import DATA, USAGE

CONFIG = """name: t
dataset: {{path: {path}, targets: y, {more}}}
model: {{layers: [{{linear: 1}}]}}
loss: mse
optimizer: sgd
train: {{epochs: 1}}
"""


class Dialects(program.Case):
    def rows(self, name, header, rows):
        with open(self.path(name), "w", newline="") as f:
            csv.writer(f).writerows([header, *rows])

    def train(self, file):
        text, _ = self.run_program("init", file)
        self.write("first.yaml", text)
        self.run_program("first.yaml", "name=test", "train.epochs=2", "--fresh")
        return text

    def state(self, path, more=""):
        """Of a run with the table: the same numbers give the same."""
        self.write("t.yaml", CONFIG.format(path=path, more=more))
        self.run_program("t.yaml", "--fresh", "--run-dir", "runs/t")
        return self.sha("runs/t")

    def test_numbers_between_signs(self):
        """The same model as from plain numbers."""
        numbers = [[i * 7 % 60 / 4 - 3, (i * 31 % 50 - 20) * 100.5, i * 17 % 23 - 9, i * 3 % 40 / 8] for i in range(60)]
        def rows(writers):
            return [[write(v) for write, v in zip(writers, row)] for row in numbers]
        self.rows("plain.csv", ["a", "b", "c", "y"], rows([str] * 4))
        expected = self.state("plain.csv")
        percent, dollar = (lambda v: f"{v}%"), (lambda v: f"${v}" if v >= 0 else f"-${-v}")
        forms = (([percent, dollar, str, str], "%$"), ([lambda v: f"{v} %", lambda v: f"$ {v}", str, lambda v: f"{v} %"], "%$"), ([percent, lambda v: f"{v} €", str, str], "%€"),
                 ([percent, lambda v: f"({-v})" if v < 0 else str(v), str, str], "%()"), ([str, lambda v: f"(£{-v})" if v < 0 else f"£{v}", str, str], "£()"),
                 ([str, lambda v: f"$({-v:,.1f})" if v < 0 else f"${v:,.1f}", str, str], "$()"), ([lambda v: f"{v} kg", str, str, str], " kg"))
        for writers, strip in forms:
            with self.subTest(strip):
                thousands = ", thousands: \",\"" if "," in writers[1](-1234.5) else ""
                self.rows("marked.csv", ["a", "b", "c", "y"], rows(writers))
                self.assertEqual(self.state("marked.csv", f'csv: {{strip: "{strip}"{thousands}}}'), expected)
                text = self.train("marked.csv")
                if strip == " kg":
                    self.assertIn("a: ignore   # numbers with units", text)
                    continue
                self.assertIn(f'  csv: {{strip: "{strip}"{thousands}}}   # numbers such as \'', text)
                self.assertNotIn("columns:", text)
                out, _ = self.run_program("predict", "runs/test", "marked.csv")
                self.assertEqual(len(out.splitlines()), 61)
        self.run_program("check", "t.yaml", "dataset.csv.strip=null", code=DATA, err="marked.csv: column 'a': ")

    def test_numbers_that_are_unclear(self):
        """With a sign in some rows only, or of two currencies, they stay texts."""
        for values in (lambda i: f"{i}%" if i % 3 else str(i), lambda i: f"${i}" if i % 3 else f"€{i}", lambda i: f"({i})", lambda i: f"${i}%"):
            self.rows("t.csv", ["a", "v", "y"], [[values(i), i % 7, i % 2] for i in range(60)])
            text = self.train("t.csv")
            self.assertNotIn("strip:", text)
            self.assertIn("    a: ignore   # ", text)
        self.write("t.csv", "a,y\n5,1\n$6,2\n")
        self.write("t.yaml", CONFIG.format(path="t.csv", more=""))
        self.assertIn("t.csv:line 3: column 'a': '$6' is not a number; to read it as a number, name the other characters, such as dataset.csv: {strip: \"%$\"}",
                      self.run_program("check", "t.yaml", code=DATA)[1])
        for key, sentence in (("strip: '5'", "strip must not have digits"), ("comment: ab", "comment must be one character"), ("comment: ','", "t.csv: dataset.csv.comment ',' is the delimiter of the file"), ("delimiter: ' '", "delimiter must be")):
            self.write("t.yaml", CONFIG.format(path="t.csv", more=f"csv: {{{key}}}"))
            self.assertIn(sentence, self.run_program("check", "t.yaml", code=USAGE)[1])
        self.write("tabs.csv", "a\ty\n1\t2\n\t3\n3\t4\n")
        self.write("blanks.csv", "a y\n1 2\n3\t4\n")
        for name in ("tabs.csv", "blanks.csv"):
            self.write("t.yaml", CONFIG.format(path=name, more="csv: {comment: tab}"))
            self.assertIn(f"{name}: dataset.csv.comment 'tab' is the delimiter of the file; name it with dataset.csv.delimiter if it is another, or choose another comment",
                          self.run_program("check", "t.yaml", code=USAGE)[1])

    def test_parentheses(self):
        """Negative only as a pair around the number."""
        for value, number in (("(5)", -5), ("($5)", -5), ("$(5)", -5), ("( 5 )", -5), ("$5", 5), ("-5", -5), ("(5", None), ("5)", None), ("-(5)", None), ("(-5)", None), ("((5))", None),
                              (")5(", None), ("5()", None), ("()5", None), ("(5))", None)):
            with self.subTest(value):
                self.write("t.csv", f"a,y\n1,2\n{value},1\n3,4\n")
                if number is None:
                    self.write("t.yaml", CONFIG.format(path="t.csv", more='csv: {strip: "$()"}'))
                    self.assertIn(f"t.csv:line 3: column 'a': '{value}' is not a number", self.run_program("check", "t.yaml", code=DATA)[1])
                    continue
                self.write("plain.csv", f"a,y\n1,2\n{number},1\n3,4\n")
                self.assertEqual(self.state("t.csv", 'csv: {strip: "$()"}'), self.state("plain.csv"))

    def test_comments(self):
        """Above the header they are recognised; elsewhere the key says which lines they are."""
        body = "".join(f"{i % 7},{i * 5 % 11},{i % 3}.5\n" for i in range(40))
        self.write("plain.csv", "a,b,y\n" + body)
        expected = self.state("plain.csv")
        for start in ("# made by a device, on Monday\n", "#\n# a, b, c: \"units\n\n# x\r\n", "# don't\n" * 300):
            self.write("noted.csv", start + "a,b,y\n" + body)
            self.assertEqual(self.state("noted.csv"), expected)
            self.assertIn("init for noted.csv: csv, 40 rows.", self.train("noted.csv"))
            self.assertIn("csv, 40 rows, 3 columns, with a header", self.run_program("inspect", "noted.csv")[0])
            self.assertEqual(self.run_program("predict", "runs/test", "noted.csv")[0], self.run_program("predict", "runs/test", "plain.csv")[0])
        self.write("noted.csv", "# x\na,b,y\n" + body.replace("\n", "\n# \"a\n", 3) + "# end")
        self.assertEqual(self.state("noted.csv", "csv: {comment: '#'}"), expected)
        self.write("big.csv", "a,b,y\n" + "".join(f"{i % 7},{i * 5 % 11},{i % 3}.5\n% \"it's, line {i}\n" for i in range(60000)))
        self.write("bare.csv", "a,b,y\n" + "".join(f"{i % 7},{i * 5 % 11},{i % 3}.5\n" for i in range(60000)))
        self.assertEqual(self.state("big.csv", "csv: {comment: '%'}"), self.state("bare.csv"))
        # a header
        for header in ("#a,b,y\n", "# by numpy\n#a,b,y\n"):
            self.write("noted.csv", header + body)
            self.assertEqual(self.state("noted.csv"), expected)
            self.assertIn("#a  ", self.run_program("check", "t.yaml", "dataset.columns={'#a': number}")[0])

        # as numpy's savetxt(header=...) writes it
        body = body.replace(",", " ")
        self.write("noted.data", "# by numpy\n# a b y\n" + body)
        self.assertEqual(self.state("noted.data"), expected)
        self.assertIn("1  a    ", self.run_program("inspect", "noted.data")[0])
        self.write("noted.data", "# rows 40\n" + body)
        self.assertIn("csv, 40 rows, 3 columns, without a header", self.run_program("inspect", "noted.data")[0])

    def test_blanks(self):
        """Any number of blanks and tabs, as in the tables of UCI."""
        rows = [[i % 7, i * 5 % 11 / 4, f"{i % 3}.5"] for i in range(40)]
        self.rows("plain.csv", ["a", "b", "y"], rows)
        expected = self.state("plain.csv")
        for write in ("{} {} {}", "  {:>6}  {:>8}   {}  ", "{}\t {}\t\t{}", '"{}" {}  {}\t'):
            self.write("blanks.data", "".join(write.format(*row) + "\n" for row in [["a", "b", "y"], *rows]))
            self.assertEqual(self.state("blanks.data"), expected)
            self.assertEqual(self.state("blanks.data", "csv: {delimiter: blanks}"), expected)
            self.assertIn("targets: \"y\"   # ", self.train("blanks.data"))
            self.assertIn("separated by blanks", self.run_program("inspect", "blanks.data")[0])
        cars = "".join(f"{18 + i % 9}.0   8   {307 + i % 7}.0      {130 + i}.0      3504.      12.0   {70 + i % 3}  {1 + i % 3}\t\"car, \"\"no\"\" {i % 4}\"\n" for i in range(60))
        self.write("auto-mpg.data", cars)
        self.assertIn("csv, 60 rows, 9 columns, without a header, separated by blanks", self.run_program("inspect", "auto-mpg.data")[0])
        text, err = self.run_program("init", "auto-mpg.data", "--target", "0")
        self.assertIn("csv: {no_header: true}", text)
        self.write("first.yaml", text)
        self.run_program("first.yaml", "name=test", "train.epochs=1", "--fresh")
        out, _ = self.run_program("predict", "runs/test", "auto-mpg.data", "--with-inputs")
        self.assertEqual(len(out.splitlines()), 61)
        # a comment, or blanks, without a line end at the end
        self.write("short.csv", "a,b,y\n1,2,3\n3,4,5\n5,6,7\n")
        for end in ("# end of it", "  ", "# end of it\n  "):
            self.write("short.data", "a b y\n1 2 3\n3 4 5\n5 6 7\n" + end)
            self.assertEqual(self.state("short.data", "csv: {comment: '#'}"), self.state("short.csv"))
        # texts with blanks between tabs or commas
        for delimiter in "\t,":
            self.write("towns.csv", "".join(delimiter.join(row) + "\n" for row in [["big town", "v", "y"], *([f"New York{i % 4}", str(i), str(i % 2)] for i in range(60))]))
            self.assertIn("csv, 60 rows, 3 columns, with a header", self.run_program("inspect", "towns.csv")[0])
