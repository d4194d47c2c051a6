"""Dates as people write them: found by init, read by a run with the format that it wrote. ctest-labels: unit"""
import datetime

import program
from program import DATA, USAGE

# The name of a format, its features, and how a date is written in it.
DATE = "month day weekday"
FORMATS = (("%d.%m.%Y", f"4 year {DATE}", lambda d: f"{d.day}.{d.month}.{d.year}"), ("%m/%d/%Y", f"4 year {DATE}", lambda d: f"{d.month}/{d.day}/{d.year}"),
           ("%m/%d/%y", f"4 year {DATE}", lambda d: f"{d.month}/{d.day}/{d.year % 100:02}"), ("%d-%b-%Y", f"4 year {DATE}", lambda d: d.strftime("%d-%b-%Y")),
           ("%d-%b-%y", f"4 year {DATE}", lambda d: d.strftime("%d-%b-%y")), ("%d %b %Y", f"4 year {DATE}", lambda d: d.strftime("%d %b %Y")),
           ("%d %b %Y", f"4 year {DATE}", lambda d: d.strftime("%d %B %Y")), ("%b %d, %Y", f"4 year {DATE}", lambda d: d.strftime("%b %d, %Y")),
           ("%d%b%Y", f"4 year {DATE}", lambda d: d.strftime("%d%b%Y").upper()), ("%Y-%m-%d", f"4 year {DATE}", lambda d: f"{d.year}-{d.month}-{d.day}"),
           ("%m/%d/%Y %I:%M %p", f"5 year {DATE} hour", lambda d: d.strftime("%m/%d/%Y %I:%M %p")), ("%b %d, %Y %H:%M:%S", f"5 year {DATE} hour", lambda d: d.strftime("%b %d, %Y %H:%M:%S")),
           ("%Y-%m", "2 year month", lambda d: d.strftime("%Y-%m")), ("%m/%Y", "2 year month", lambda d: d.strftime("%m/%Y")), ("%Y %b", "2 year month", lambda d: d.strftime("%Y %b")),
           ("%b-%y", "2 year month", lambda d: d.strftime("%b-%y")), ("%YM%m", "2 year month", lambda d: d.strftime("%YM%m")),
           ("%Y Q%q", "2 year quarter", lambda d: f"{d.year} Q{(d.month + 2) // 3}"), ("%YQ%q", "2 year quarter", lambda d: f"{d.year}Q{(d.month + 2) // 3}"),
           ("%H:%M", "2 hour minute", lambda d: d.strftime("%H:%M")), ("%H:%M:%S", "2 hour minute", lambda d: d.strftime("%H:%M:%S")))


class Dates(program.Case):
    def rows(self, name, header, rows):
        self.write(name, ",".join(header) + "\n" + "".join(",".join(f'"{v}"' for v in row) + "\n" for row in rows))

    def train(self, file):
        text, _ = self.run_program("init", file)
        self.write("first.yaml", text)
        self.run_program("first.yaml", "name=test", "train.epochs=1", "--fresh")
        return text

    def test_every_format(self):
        """One is found for each, with the parts that it has, and new rows are read by it."""
        start = datetime.datetime(2015, 3, 1, 9, 30, 7)
        days = [start + datetime.timedelta(days=i * 37 % 1201, minutes=i * 11 % 700) for i in range(60)]
        for form, features, write in FORMATS:
            with self.subTest(form):
                self.rows("t.csv", ["v", "when", "y"], [[i % 7 / 3, write(d), i % 2] for i, d in enumerate(days)])
                self.assertIn(f'    when: {{type: date, format: "{form}"}}   # dates\n', self.train("t.csv"))
                self.assertRegex(self.run_program("check", "first.yaml")[0], rf"\n *when +date +0, error +{features}, standard\n")
                self.rows("new.csv", ["v", "when"], [[1, write(d)] for d in days[:5]])
                out, _ = self.run_program("predict", "runs/test", "new.csv")
                self.assertEqual(len(out.splitlines()), 6)

    def test_unclear_order(self):
        """Every day and month at most 12: no form is taken, and the comment lists all that fit."""
        for write, forms in ((lambda d, m, y: f"{d:02}/{m:02}/20{y}", ("%m/%d/%Y", "%d/%m/%Y")), (lambda d, m, y: f"{d:02}-{m:02}-{y:02}", ("%d-%m-%y", "%m-%d-%y", "%y-%m-%d"))):
            self.rows("t.csv", ["v", "when", "y"], [[i % 7, write(1 + i % 12, 1 + i * 5 % 11, 10 + i % 3), i % 2] for i in range(60)])
            either = " or ".join(f'{{type: date, format: "{form}"}}' for form in forms)
            text = self.train("t.csv")
            self.assertIn(f"    when: ignore   # dates, either {either}\n", text)
            self.write("first.yaml", text.replace("when: ignore", f"when: {either.split(' or ')[-1]}"))
            self.assertIn("4 year month day weekday", self.run_program("check", "first.yaml")[0])

    def test_an_error_names_the_format(self):
        """Of a column without a rule: a run takes only ISO 8601 for dates."""
        self.rows("t.csv", ["when", "y"], [[f"{1 + i // 28}/{1 + i % 28}/2015", i % 2] for i in range(60)])
        self.write("a.yaml", "dataset: {path: t.csv}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        _, err = self.run_program("check", "a.yaml", code=DATA)
        self.assertIn("t.csv: column 'when': it has 60 different texts in 60 rows, such as names or identifiers; write {type: date, format: \"%m/%d/%Y\"} (or another format) if they are "
                      "dates, or dataset.columns: {when: ignore}", err)

    def test_no_dates(self):
        """Texts that are nearly dates."""
        for texts in (["1999-00", "2000-01", "2001-02"], ["12:30", "25:10"], ["14-Mar", "15-Mar"], ["1.2.3", "1.10.2"], ["31/12/2015", "12/31/2015"], ["2015 Foo", "2015 Mar"]):
            self.rows("t.csv", ["v", "when", "y"], [[i % 7, texts[i % len(texts)], i % 2] for i in range(60)])
            self.assertNotIn("type: date", self.train("t.csv"))

    def test_wrong_formats(self):
        for form, sentence in (("%d", "it needs the year"), ("%b", "it needs the year"), ("%Y %d", "with the day %d the month"), ("%I:%M", "%I and %p"), ("%H:%M %p", "%I and %p"), ("%A", "it may contain")):
            self.write("a.csv", "when,y\n1,0\n")
            self.write("a.yaml", f"dataset: {{path: a.csv, columns: {{when: {{type: date, format: '{form}'}}}}}}\nmodel: {{layers: [{{linear: 2}}]}}\nloss: cross_entropy\noptimizer: sgd\ntrain: {{epochs: 1}}\n")
            self.run_program("check", "a.yaml", code=USAGE, err=sentence)

    def test_air_passengers(self):
        """The months of a series, in two commands."""
        for header in (["Month", "#Passengers"], ["Month", "Passengers"], ["date", "value"], ["TravelDate", "Passengers"]):
            for write in (lambda d: d.strftime("%Y-%m"), lambda d: d.strftime("%b-%y"), lambda d: d.strftime("%Y %b"), lambda d: f"{d.month}/1/{d.year}"):
                months = [datetime.date(1969 + i // 12, 1 + i % 12, 1) for i in range(144)]
                self.rows("AirPassengers.csv", header, [[write(d), 100 + i + i * 7 % 12] for i, d in enumerate(months)])
                text = self.train("AirPassengers.csv")
                self.assertIn("  window: {steps: 12, history: true}  ", text)
                self.assertIn(f"    {header[0]}: ignore   # it gives the order of the rows\n", text)
