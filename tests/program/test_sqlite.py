"""SQLite databases: the run of the same rows in CSV has the same state; what may be queried; damaged files. ctest-labels: unit"""
import csv
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

import program

CONFIG = """
dataset: {path: %s, targets: y, split: 0.2}
model: {layers: [{linear: 8}, relu, {linear: 3}]}
loss: cross_entropy
train: {epochs: 2}
"""


class Sqlite(program.Case):
    def setUp(self):
        super().setUp()
        generator = random.Random(1)
        self.rows = [(i, generator.random(), generator.choice(["red", "blue", "green", None]), generator.choice("abc")) for i in range(90)]
        self.write("a.csv", "n,x,colour,y\n" + "".join(",".join("" if v is None else str(v) for v in row) + "\n" for row in self.rows))
        self.rules = "dataset.columns={colour: {type: category, missing: most_frequent}}"
        self.write("test.yaml", CONFIG % "a.db")
        self.database("a.db", self.rows)

    def database(self, name, rows, more=()):
        connection = sqlite3.connect(self.path(name))
        connection.execute("create table flowers (n integer, x real, colour text, y text)")
        connection.executemany("insert into flowers values (?, ?, ?, ?)", rows)
        for statement in more:
            connection.execute(statement)
        connection.commit()
        connection.close()

    def error(self, *arguments, code=program.DATA):
        return self.run_program("test.yaml", "--run-dir", "runs/error", self.rules, *arguments, code=code)[1]

    def state(self, run, *arguments):
        self.run_program("test.yaml", "--run-dir", "runs/" + run, self.rules, *arguments)
        return self.sha("runs/" + run)

    def test_same_state_as_csv(self):
        expected = self.state("csv", "dataset.path=a.csv")
        self.assertEqual(self.state("only-table"), expected)
        self.database("b.sqlite3", self.rows, ["create table \"other \"\"one\"\"\" (a)", "create view half as select * from flowers where n < 45"])
        self.assertEqual(self.state("table", "dataset.path=b.sqlite3", "dataset.table=flowers"), expected)
        query = "dataset.query=select y, colour, n, x from flowers order by n"
        self.assertEqual(self.state("query", "dataset.path=b.sqlite3", query, "dataset.inputs=[n, x, colour]"), expected)
        self.run_program("check", "test.yaml", self.rules, "dataset.path=b.sqlite3", "dataset.table=half", out="36 training rows, 9 validation rows")
        out = self.run_program("check", "test.yaml", self.rules, "dataset.path=b.sqlite3", "dataset.split=0", "dataset.table=half",
                               "dataset.validation={path: b.sqlite3, query: select * from flowers where n >= 45}")[0]
        self.assertIn("45 training rows, 45 validation rows", out)

    def test_numbers_for_two_labels(self):
        """A database has 0 and 1 for what a CSV file calls False and True, or no and yes."""
        for false, true in (("False", "True"), ("yes", "NO")[::-1], ("false", "TRUE")):
            rows = [(i, x, colour, i % 3 == 0) for i, x, colour, _ in self.rows]
            self.write("b.csv", "n,x,colour,y\n" + "".join(f"{n},{x},{colour or ''},{true if y else false}\n" for n, x, colour, y in rows))
            connection = sqlite3.connect(self.path("b.db"))
            connection.execute("drop table if exists flowers")
            connection.execute("create table flowers (n integer, x real, colour text, y boolean)")
            connection.executemany("insert into flowers values (?, ?, ?, ?)", rows)
            connection.commit()
            connection.close()
            self.run_program("test.yaml", "dataset.path=b.csv", self.rules, "--run-dir", "runs/labels", "--fresh")
            self.assertEqual(self.run_program("eval", "runs/labels", "b.db")[0], self.run_program("eval", "runs/labels", "b.csv")[0])
        self.write("c.csv", "n,x,colour,y\n1,2,red,2\n")
        self.assertIn("class '2' is not in the data that the model was trained with", self.run_program("eval", "runs/labels", "c.csv", code=program.DATA)[1])

    def test_predictions_of_either_kind(self):
        self.state("run")
        for path, out in (("a.csv", "csv.csv"), ("a.db", "db.csv")):
            self.run_program("predict", "runs/run", "dataset.path=" + path, "--part", "all", "--out", out)
            self.run_program("predict", "runs/run", "dataset.path=" + path, "--part", "all", "--with-inputs", "--out", "inputs-" + out)
        self.assertEqual(self.read("csv.csv"), self.read("db.csv"))
        self.assertEqual(self.read("inputs-csv.csv"), self.read("inputs-db.csv"))

    def test_with_inputs_of_a_query(self):
        self.state("run")
        text = 'quotes ", commas,\nlines'
        self.database("b.db", [(1, 0.1, text, "b"), (2, None, " red", None)], ["create table names (n integer, name text, image blob)",
                      "insert into names values (1, 'one', x'00'), (2, '', null)"])
        query = "dataset.query=select name, image, x, flowers.n as n, 'red' as colour, colour as \"own, \"\"colour\"\"\" from flowers join names using (n) where x > 0"
        self.run_program("predict", "runs/run", "dataset.path=b.db", query, "--part", "all", "--with-inputs", "--out", "out.csv")
        with open(self.path("out.csv"), newline="") as f:
            names, row = list(csv.reader(f))
        self.assertEqual(names[:6], ["name", "image", "x", "n", "colour", 'own, "colour"'])
        self.assertEqual(row[:6], ["one", "", "0.1", "1", "red", text])

    def test_queries(self):
        usage = program.USAGE
        self.assertIn("dataset.query may only read", self.error("dataset.query=delete from flowers"))
        self.assertIn("dataset.query may only read", self.error("dataset.query=attach 'x.db' as x"))
        self.assertIn("dataset.query may only read", self.error("dataset.query=select load_extension('x') as x, 1 as y"))
        self.assertIn("dataset.query must be one statement", self.error("dataset.query=select 1 as x, 2 as y; select 3", code=usage))
        self.assertIn("dataset.query must be a query that gives rows", self.error("dataset.query=-- nothing", code=usage))
        self.assertIn('a.db: SQLite: near "selec": syntax error', self.error("dataset.query=selec"))
        self.assertIn("a.db: SQLite: no such table: none", self.error("dataset.table=none"))
        self.assertIn("query and table exclude each other", self.error("dataset.table=a", "dataset.query=select 1", code=usage))
        self.assertIn("query and table need a database (format sqlite), not csv", self.error("dataset.path=a.csv", "dataset.table=a", code=usage))
        self.database("b.db", self.rows, ["create table second (a)"])
        self.assertIn("b.db: give dataset.table or dataset.query; the database has the tables: flowers, second",
                      self.error("dataset.path=b.db", code=usage))
        self.assertIn("'?.db' matches 2 files, but format sqlite reads one", self.error("dataset.path=?.db", code=usage))

    def test_values(self):
        self.database("b.db", self.rows + [(90, b"\x01\x02", "red", "a")])
        self.assertIn("b.db:row 90: column 'x': a blob is not a number or text", self.error("dataset.path=b.db"))
        self.database("c.db", self.rows + [(90, "much", "red", "a")])
        self.assertIn("c.db:row 90: column 'x': 'much' is not a number", self.error("dataset.path=c.db"))
        self.database("d.db", self.rows + [(90, 1, "re\0d", "a")])
        self.assertIn("d.db:row 90: column 'colour': the text contains a NUL character", self.error("dataset.path=d.db"))

    def test_null_is_missing(self):
        """Also where dataset.missing lists other texts."""
        self.write("b.csv", self.read("a.csv").replace(",,", ",?,"))
        missing = "dataset.missing=['?']"
        self.assertEqual(self.state("null", missing), self.state("mark", missing, "dataset.path=b.csv"))
        self.database("b.db", self.rows + [(90, 1, "red", None)])
        self.assertIn("b.db:row 90: column 'y': missing value", self.error("dataset.path=b.db", missing))

    def test_reals_are_texts(self):
        """Labels and categories that are numbers are written as in a CSV file."""
        rows = [(i, x, [0.1, 2.5, 1e6, "other", 0.1 + 0.2][i % 5], [0.1, 1e-7 / 3, 2][i % 3]) for i, x, _, _ in self.rows]
        self.write("b.csv", "n,x,colour,y\n" + "".join(",".join("1000000" if v == 1e6 else str(v) for v in row) + "\n" for row in rows))
        self.run_program("test.yaml", "dataset.path=b.csv", "dataset.columns={colour: category, y: category}", "--run-dir", "runs/csv")
        connection = sqlite3.connect(self.path("b.db"))
        connection.execute("create table flowers (n, x, colour, y)")
        connection.executemany("insert into flowers values (?, ?, ?, ?)", rows)
        connection.commit()
        connection.close()
        self.assertEqual(self.run_program("eval", "runs/csv", "b.db")[0], self.run_program("eval", "runs/csv", "b.csv")[0])

    def test_numbers_are_the_same_doubles(self):
        """As those of a CSV file, in inputs, targets and weights; of a target that is no number in the first row, too."""
        special = [1 / 3, -0.0, 2**53 + 1, 2**58 + 1, 1e12, 1e-320, -7, 0.1 + 0.2]
        for first in (special[0], "yes"):
            rows = [(special[i % 8], float(i), first if i % 2 == 0 else 0.5 if first != "yes" else "no", i % 3 + 0.1) for i in range(40)]
            self.write("n.csv", "a,b,y,w\n" + "".join(",".join(v if isinstance(v, str) else repr(v) for v in row) + "\n" for row in rows))
            connection = sqlite3.connect(self.path("n.db"))
            connection.executescript("drop table if exists t; create table t (a, b, y, w)")
            connection.executemany("insert into t values (?, ?, ?, ?)", rows)
            connection.commit()
            connection.close()
            self.write("n.yaml", "dataset: {path: n.csv, inputs: [a, b], targets: y, weights: w, scale: standard}\nmodel: {layers: [{linear: 1}]}\n"
                       f"loss: {'bce_with_logits' if first == 'yes' else 'mse'}\noptimizer: {{type: sgd, lr: 0.001}}\ntrain: {{epochs: 1}}\n")
            found = []
            for path in ("n.csv", "n.db"):
                self.run_program("n.yaml", f"dataset.path={path}", "--run-dir", f"runs/{first}{path}")
                found.append((self.sha(f"runs/{first}{path}"), self.events("start", f"runs/{first}{path}")[0]["dataset_fingerprint"]))
            self.assertEqual(found[0], found[1])
        self.database("e.db", self.rows + [(90, 9e999, "red", "a")])
        self.assertIn("e.db:row 90: column 'x': ", self.error("dataset.path=e.db"))

    def test_reals_that_mean_missing_values(self):
        rows = [(n, -99.9 if n % 7 == 0 else x, colour, y) for n, x, colour, y in self.rows]
        self.write("b.csv", "n,x,colour,y\n" + "".join(",".join("" if v is None else str(v) for v in row) + "\n" for row in rows))
        self.database("b.db", rows)
        rules = ["dataset.missing=['', -99.9]", "dataset.columns={colour: {type: category, missing: most_frequent}, x: {missing: median}}"]
        self.assertEqual(self.state("real", "dataset.path=b.db", *rules), self.state("text", "dataset.path=b.csv", *rules))

    def test_one_column_of_empty_texts(self):
        """A row whose only value is an empty text is a row."""
        self.write("k.csv", "k,y\n" + "".join(f"{'ab'[i % 2]},{i % 3}\n" for i in range(30)))
        self.run_program("test.yaml", "dataset.path=k.csv", "dataset.columns={k: {type: category, missing: most_frequent}}", "--run-dir", "runs/k")
        connection = sqlite3.connect(self.path("k.db"))
        connection.execute("create table t (k)")
        connection.executemany("insert into t values (?)", [("a",), ("",), (None,)])
        connection.commit()
        connection.close()
        out = self.run_program("predict", "runs/k", "k.db", "--with-inputs")[0]
        self.assertEqual([line.split(",")[:2] for line in out.splitlines()], [["k", "row"], ["a", "0"], ["", "1"], ["", "2"]])

    def test_unfinished_change(self):
        """The rows of a transaction whose program was killed are in the file, and those before it in the journal."""
        kill = ("import os, sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\nc.execute('pragma cache_size = 2')\n"
                "c.execute('insert into flowers select * from flowers, (with recursive n(i) as (select 1 union all select i + 1 from n where i < 200) select i from n)"
                "'.replace('*', 'n, x, colour, y'))\nc.execute('begin')\nc.execute('update flowers set x = x + 1000')\nos._exit(0)\n")
        subprocess.run([sys.executable, "-c", kill, self.path("a.db")], check=True)
        self.assertTrue(os.path.getsize(self.path("a.db-journal")))
        self.assertIn("a.db: a change of the database was not finished (a.db-journal); close the program", self.error())
        self.assertIn("a change of the database was not finished", self.run_program("inspect", "a.db", code=program.DATA)[1])
        connection = sqlite3.connect(self.path("a.db"))
        self.assertLess(connection.execute("select max(x) from flowers").fetchone()[0], 1000)
        connection.execute("pragma journal_mode = persist")
        connection.execute("delete from flowers where n > 80")
        connection.commit()
        connection.close()
        self.assertTrue(os.path.getsize(self.path("a.db-journal")))  # begins with zeros
        self.run_program("test.yaml", self.rules)

    def test_files(self):
        self.assertIn("90 rows", self.run_program("inspect", "/" + self.path("a.db"))[0])
        self.write("junk.db", "this is no database " * 100)
        self.assertIn("junk.db: SQLite: file is not a database", self.error("dataset.path=junk.db"))
        connection = sqlite3.connect(self.path("wal.db"))
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table t (a, y)")
        connection.commit()
        self.assertIn("wal.db: the newest rows are still in wal.db-wal", self.error("dataset.path=wal.db"))
        os.symlink("wal.db", self.path("link.db"))
        self.assertRegex(self.error("dataset.path=link.db"), r"link\.db: the newest rows are still in \S*/wal\.db-wal")
        connection.close()
        os.rename(self.path("a.db"), self.path("a ?#%41.db"))
        self.assertIn("90 rows", self.run_program("inspect", "a ?#%41.db")[0])
        with open(self.path("a ?#%41.db"), "rb") as f:
            content = f.read()
        with open(self.path("short.db"), "wb") as f:
            f.write(content[:5000])
        self.assertIn(f"short.db: the file has 5000 bytes, but its header says {len(content)}; copy the file again", self.error("dataset.path=short.db"))

    def test_inspect(self):
        out, _ = self.run_program("inspect", "a.db")
        self.assertIn("format  sqlite, 1 table\n\n  flowers: 90 rows\n", out)
        self.assertRegex(out, r"colour +TEXT\n")

    def view(self, name, *statements):
        connection = sqlite3.connect(self.path(name))
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    def test_views_without_an_end(self):
        """Such a view ends inspect in seconds, and a run or init with an error: one that gives no row, also in a sort,
        and one that gives rows for ever."""
        endless = "with recursive r(x) as (select 1 union all select x + 1 from r) select x, x % 2 as y from r"
        self.view("none.db", f"create view t as {endless} where x < 0")
        self.view("sorted.db", f"create view t as {endless} order by -x")
        self.view("rows.db", f"create view t as select x, y, printf('%.200000c', 'a') as z from ({endless})")
        for name in ("none.db", "sorted.db", "rows.db"):
            out = self.run_program("inspect", name, timeout=300)[0]
            self.assertRegex(out, r"  t: its rows were not counted, which takes more than 2\.5 s\n    x +\n    y")
        if program.SANITIZER:
            return  # what follows is the time of SQLite, which is not instrumented
        for words, message in ((("test.yaml", "dataset.path=none.db", "dataset.split=0"),
                                "none.db: the query gives no row: it was stopped after 1e\\+09 instructions of SQLite; does a view have no end?"),
                               (("init", "rows.db"), "rows.db: the query gives more than 10.. MiB of rows, too many for this file; does a view have no end?")):
            self.assertRegex(self.run_program(*words, code=program.DATA, timeout=300)[1], message)

    def test_tables_after_a_view_without_an_end(self):
        """They are counted, also those whose rows take some work, and init chooses among them."""
        numbers = "with recursive r(x) as (select 1 union all select x + 1 from r where x < {}) select x, x % 2 as y from r"
        self.view("some.db", "create view a as with recursive r(x) as (select 1 union all select x + 1 from r) select x, 1 as y from r where x < 0",
                  "create view b as " + numbers.format(300), "create view c as " + numbers.format(20000), "create table d as " + numbers.format(200))
        out = self.run_program("inspect", "some.db", timeout=300)[0]
        self.assertRegex(out, r"  a: its rows were not counted, which takes more than 2\.5 s\n(.*\n)*  b: 300 rows\n(.*\n)*  c: 20000 rows\n(.*\n)*  d: 200 rows\n")
        self.assertIn("table: c", self.run_program("init", "some.db", timeout=300)[0])

    def test_stop_in_a_query(self):
        self.view("none.db", "create view t as with recursive r(x) as (select 1 union all select x + 1 from r) select x, 1 as y from r where x < 0")
        for arguments, code in ((("inspect", "none.db"), program.STOPPED), (("test.yaml", "dataset.path=none.db"), program.STOPPED)):
            p = self.start(*arguments)
            self.wait_for(lambda: self.catches(p.pid, signal.SIGTERM), what="the handlers of stop requests")
            time.sleep(0.5)
            p.send_signal(signal.SIGTERM)
            err = p.communicate(timeout=180 * program.SLOW)[1]
            self.assertIn("stopped on request", err)
            self.assertEqual(p.returncode, code)

    def test_views_of_views(self):
        """A view that is expanded to 2^20 tables: others are listed, and it is not prepared for ever."""
        connection = sqlite3.connect(self.path("b.db"))
        connection.execute("create table v0 (x, y)")
        for i in range(20):
            connection.execute(f"create view v{i + 1} as select x, y from v{i} union all select x, y from v{i}")
        connection.commit()
        connection.close()
        self.run_program("inspect", "b.db", timeout=300, out=["  v3: 0 rows\n", "  v15: cannot be read: its views refer to too many others\n"])
        self.assertIn("b.db: a query with its views refers to more than 100000 columns and tables", self.error("dataset.path=b.db", "dataset.table=v15"))
