"""dataset.window: windows of a table are those of a file of prepared windows, and stay in their part and their series. ctest-labels: dist"""
import ctypes, datetime, json, shutil, sqlite3, subprocess

import numpy as np

import program
from program import DATA, USAGE

ROWS, NAMES = 120, ["a", "b", "y"]
CONFIG = """
name: test
seed: 1
dataset: {path: rows.csv, %s}
sampler: {batch_size: 8}
model: {layers: [%s, {linear: %d}]}
loss: mse
optimizer: {type: sgd, lr: 0.01}
train: {epochs: 2}
checkpoint: {save_every: {epochs: 1}, keep: 0}
"""
MEAN, STD = [0.5, -0.25, 1.5], [2.0, 0.5, 4.0]


def series(rows=ROWS, seed=0):
    """(rows, 3): float32, so that every format has the same values."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows)
    return np.round(np.column_stack([np.sin(t / 5), rng.normal(size=rows), np.cos(t / 7) + rng.normal(size=rows) / 4]), 3).astype(np.float32)


def windows(rows, steps, horizon=1, predict_steps=1, stride=1, columns=slice(None)):
    """What Keras' timeseries_dataset_from_array gives: inputs (windows, steps, features), targets (windows, predict_steps)."""
    starts = range(0, len(rows) - steps - horizon - predict_steps + 2, stride)
    return (np.array([rows[s:s + steps, columns] for s in starts]),
            np.array([rows[s + steps + horizon - 1:s + steps + horizon - 1 + predict_steps, 2] for s in starts]))


class Windows(program.Case):
    def table(self, rows, name="rows.csv", names=None, extra=()):
        names = names or NAMES
        columns = [*extra, *([f"{float(v):.17g}" for v in rows[:, i]] for i in range(rows.shape[1]))]
        self.write(name, "\n".join([",".join(names)] + [",".join(map(str, row)) for row in zip(*columns)]) + "\n")

    def other_files(self, rows):
        import h5py
        with h5py.File(self.path("rows.h5"), "w") as f:
            for i, name in enumerate(NAMES):
                f[name] = rows[:, i]
            f["x"], f["target"] = rows, rows[:, 2]
        np.savez(self.path("rows.npz"), x=rows, y=rows[:, 2])
        with sqlite3.connect(self.path("rows.db")) as db:
            db.execute("create table t (a real, b real, y real)")
            db.executemany("insert into t values (?, ?, ?)", [tuple(map(float, row)) for row in rows])

    def config(self, window, more="", layer="{lstm: {hidden_size: 5, output: last}}", outputs=1):
        self.write("test.yaml", CONFIG % (f"window: {{{window}}}, {more}", layer, outputs))

    def train(self, run, *arguments):
        self.run_program("test.yaml", "--run-dir", f"runs/{run}", *arguments)
        return self.losses(f"runs/{run}"), [e["val_loss"] for e in self.events("epoch", f"runs/{run}")]

    def check_line(self, *arguments):
        return self.run_program("check", "test.yaml", *arguments)[0].splitlines()

    def test_equal_prepared_windows(self):
        """The same losses as with windows in a file, from every format, in memory and from the file."""
        rows = series()
        self.table(rows)
        self.other_files(rows)
        scale = f"scale: {{mean: {MEAN}, std: {STD}}}, split: 0.25"
        for steps, horizon, predict_steps, stride in ((6, 1, 1, 1), (1, 3, 1, 1), (7, 2, 4, 3)):
            keys = f"steps: {steps}, horizon: {horizon}, predict_steps: {predict_steps}, stride: {stride}"
            parts = [windows(part, steps, horizon, predict_steps, stride) for part in (rows[:90], rows[90:])]
            for name, (x, y) in zip(("train", "validation"), parts):
                np.savez(self.path(name + ".npz"), x=x, y=y)
            self.config("steps: 0", f"scale: {{mean: {MEAN}, std: {STD}, per_feature: true}}", outputs=predict_steps)
            expected = self.train(f"prepared{steps}", "dataset.path=train.npz", "dataset.validation=validation.npz")
            self.config(keys, scale, outputs=predict_steps)
            self.assertTrue(self.check_line()[0].startswith(f"test: {len(parts[0][0])} training windows, {len(parts[1][0])} validation windows, "))
            for file, more in (("rows.csv", ""), ("rows.db", ""), ("rows.npz", ""), ("rows.h5", "dataset.inputs=x dataset.targets=target"),
                               ("rows.h5", "dataset.inputs=[a,b,y] dataset.targets=y")):
                for cache in (1024, 0):
                    run = f"{steps}-{file}-{len(more)}-{cache}"
                    got = self.train(run, f"dataset.path={file}", f"dataset.cache_mb={cache}", *more.split())
                    self.assertEqual(got, expected, run)

    def test_inputs_and_targets(self):
        """The target is an input unless dataset.inputs leaves it out; one column has the shape (steps, 1)."""
        rows = series()
        self.table(rows)
        for inputs, shape in (("[]", "(5, 3)"), ("[b, a]", "(5, 2)"), ("[y, a]", "(5, 2)"), ("y", "(5, 1)")):
            self.config("steps: 5", f"inputs: {inputs}, split: 0.2")
            self.assertIn(f"inputs: {shape}, adjacent rows and their features; targets: of row 1 after the last; in 120 rows", "\n".join(self.check_line()))
        self.config("steps: 5", "inputs: [y, a], targets: y")
        x, y = windows(rows, 5, columns=[2, 0])
        np.savez(self.path("train.npz"), x=x, y=y)
        got, _ = self.run_program("test.yaml")[1], self.losses()
        self.config("steps: 0")
        self.run_program("test.yaml", "dataset.path=train.npz", "--run-dir", "runs/prepared")
        self.assertEqual(self.losses(), self.losses("runs/prepared"))
        np.savez(self.path("bytes.npz"), x=(rows * 20 + 100).astype(np.uint8), y=rows[:, 2])
        x, y = windows(rows, 5)
        np.savez(self.path("train.npz"), x=windows((rows * 20 + 100).astype(np.uint8), 5)[0], y=y)
        for cache in (1024, 0):
            self.config("steps: 5", "scale: standard")
            self.run_program("test.yaml", "dataset.path=bytes.npz", f"dataset.cache_mb={cache}", "--run-dir", f"runs/bytes{cache}")
        self.assertEqual(self.losses("runs/bytes0"), self.losses("runs/bytes1024"))
        self.config("steps: 0", "divide: 255")
        self.run_program("test.yaml", "dataset.path=train.npz", "--run-dir", "runs/bytes")
        self.config("steps: 5", "divide: 255")
        self.run_program("test.yaml", "dataset.path=bytes.npz", "--run-dir", "runs/windows")
        self.assertEqual(self.losses("runs/windows"), self.losses("runs/bytes"))
        self.write("one.csv", "y\n" + "\n".join(map(str, range(30))) + "\n")
        self.config("steps: 4")
        self.assertIn("inputs: (4, 1), ", "\n".join(self.check_line("dataset.path=one.csv")))

    def test_scales_are_those_of_the_training_rows(self):
        import h5py
        rows = series()
        rows[96:] *= 100
        self.table(rows)
        self.config("steps: 6, predict_steps: 2", "scale: standard, target_scale: standard, split: 0.2", outputs=2)
        self.run_program("test.yaml")
        with h5py.File(self.checkpoints()[-1]) as f:
            mean, scale = f["scaler/mean"][:], f["scaler/scale"][:]
        exact = rows[:96].astype(np.float64)
        self.assert_close(mean, np.tile(exact.mean(0), 6), 1e-6)
        self.assert_close(scale, np.tile(exact.std(0), 6), 1e-6)
        line = next(line for line in self.check_line() if line.startswith("target_scale"))
        self.assertEqual(line.count(f"(y - {exact[:, 2].mean():g}) / {exact[:, 2].std():g}"), 2)

    def test_ranks_resume_and_elastic(self):
        self.table(series())
        self.config("steps: 5, stride: 2", "scale: standard, split: 0.2")
        self.write("test.yaml", self.read("test.yaml").replace("batch_size: 8", "global_batch_size: 8"))
        self.run_program("test.yaml", "--run-dir", "runs/one")
        self.run_program("test.yaml", "--run-dir", "runs/two", "--nproc", 2)
        self.assert_close(self.losses("runs/two"), self.losses("runs/one"), 1e-6)
        self.run_program("test.yaml", "--run-dir", "runs/one", "train.epochs=3")
        self.run_program("test.yaml", "--run-dir", "runs/whole", "train.epochs=3")
        self.assertEqual(self.sha("runs/one"), self.sha("runs/whole"))
        for nproc in (1, 3):
            self.run_program("test.yaml", "--run-dir", f"runs/e{nproc}", "--nproc", nproc, "determinism={mode: elastic, shards: 4}")
        self.assertEqual(self.sha("runs/e1"), self.sha("runs/e3"))
        self.run_program("test.yaml", "--run-dir", "runs/one", "train.epochs=4", "dataset.window.horizon=2", code=None, err="dataset.window.horizon: 1 -> 2")
        evaluated = self.run_program("eval", "runs/one")[0]
        self.assertEqual(evaluated, self.run_program("eval", "runs/one", "--nproc", 2)[0])

    def order_warning(self, dates, more, *arguments, columns=("time",), file="rows.csv", extra=()):
        """The warnings of `check` about the order of the rows that have these dates."""
        rows = series(len(dates))
        self.table(rows, names=[*columns, *NAMES], extra=(dates, *extra))
        self.config("steps: 5", more)
        out, err = self.run_program("check", "test.yaml", *arguments)
        return [line for line in (out + err).splitlines() if "takes rows in the order of" in line]

    def test_order_of_time(self):
        days = [f"2024-{1 + d // 28:02}-{1 + d % 28:02}" for d in range(60)]
        hours = [f"2024-10-{25 + h // 24} {h % 24:02}:00" for h in range(60)]
        ignored, used = "columns: {time: ignore}", "columns: {time: {type: date, parts: [month]}}"
        for more in ignored, used:
            self.assertEqual(self.order_warning(days, more), [])
            for dates in days[::-1], [f'"{day}"' for day in days[::-1]]:
                warning, = self.order_warning(dates, more)
                self.assertTrue(warning.endswith("rows.csv:line 3: column 'time': '2024-03-03' is before '2024-03-04' of the row above, and 58 more rows are "
                                                 "like it; dataset.window takes rows in the order of the file: sort them by time"), warning)
                self.assertRegex(warning, "^warning +rows.csv:")
        # one row, a missing date before it, and values that end the dates
        late = days[:30] + ["", days[10]] + days[30:58]
        self.assertIn("line 33: column 'time': '2024-01-11' is before '2024-02-02' of the row above; ", self.order_warning(late, ignored)[0])
        self.assertEqual(self.order_warning(["", ""] + days[:50] + [""] * 5, ignored), [])
        self.assertEqual(self.order_warning(days[::-1][:40] + ["today"] + days[:19], ignored), [])
        self.assertEqual(self.order_warning([f"{20240000 - i}" for i in range(60)], ignored), [])
        # clocks go back by an hour once; hours that always descend
        self.assertEqual(self.order_warning(hours[:30] + hours[29:59], ignored), [])
        self.assertEqual(self.order_warning(hours[:30] + hours[28:58], ignored), [])
        self.assertEqual(len(self.order_warning(hours[:30] + hours[27:57], ignored)), 1)
        self.assertEqual(len(self.order_warning(hours[::-1], ignored)), 1)
        # other dates, a format, rows without windows
        two = "columns: {time: ignore, born: ignore}"
        self.assertEqual(self.order_warning(days[::-1], two, columns=("born", "time"), extra=(days,)), [])
        self.assertEqual(len(self.order_warning(days[::-1], two, columns=("born", "time"), extra=(days[::-1],))), 1)
        self.assertEqual(len(self.order_warning(days[::-1], two, columns=("time", "born"), extra=(60 * ["2024-06-01"],))), 1)
        european = [f"{day[8:]}.{day[5:7]}.{day[:4]}" for day in days]
        written = 'columns: {time: {type: date, format: "%d.%m.%Y", parts: [month]}}'
        self.assertEqual(self.order_warning(european, written), [])
        self.assertIn("'03.03.2024' is before '04.03.2024'", self.order_warning(european[::-1], written)[0])
        self.table(series(60), names=["time", *NAMES], extra=(days[::-1],))
        self.config("steps: 0", ignored, layer="relu")
        self.assertNotIn("order of the file", "".join(self.run_program("check", "test.yaml")))

    def steps_warning(self, times, *arguments, columns=("time",), extra=()):
        """The warnings of `check` about unequal steps between these times."""
        self.table(series(len(times)), names=[*columns, *NAMES], extra=(times, *extra))
        self.config("steps: 5", "columns: {%s}" % ", ".join(f"{name}: ignore" for name in columns))
        out, err = self.run_program("check", "test.yaml", *arguments)
        return [line for line in (out + err).splitlines() if "equal steps of time" in line]

    def test_steps_of_time(self):
        start = datetime.datetime(2024, 3, 1)
        spaced = lambda count, seconds: [start + datetime.timedelta(seconds=seconds * i) for i in range(count)]
        hours, days = spaced(1440, 3600), [str(time.date()) for time in spaced(60, 86400)]
        workdays = [str(time.date()) for time in spaced(60, 86400) if time.weekday() < 5]
        months = [f"{2000 + i // 12}-{i % 12 + 1:02}-01" for i in range(60)]
        spring = [time for time in hours if str(time) != "2024-03-31 02:00:00"]
        autumn = datetime.datetime(2024, 10, 27, 2)
        autumn = [autumn + datetime.timedelta(hours=i) for i in [*range(-40, 1), *range(60)]]
        shaking = [time + datetime.timedelta(seconds=i * 7 % 10 / 10) for i, time in enumerate(spaced(60, 10))]
        for times in (hours[:60], days, workdays, months, months[::3], months[::6], spring, autumn, shaking, sorted(2 * hours[:30]), ["", *days[:20], "", *days[21:40]]):
            self.assertEqual(self.steps_warning(times), [])
        warning, = self.steps_warning(hours[:20] + hours[25:40] + hours[41:60])
        self.assertRegex(warning, r"^warning +rows.csv:line 22: column 'time': '2024-03-02 01:00:00' is 6 h after '2024-03-01 19:00:00' of the row above and "
                                  "the usual step is 1 h, so 2 of 53 steps differ; dataset.window takes rows as equal steps of time: add the missing rows, "
                                  "or number the parts without gaps in a column for dataset.window.group$")
        for times, line in ((days[:9] + days[10:], "line 11: column 'time': '2024-03-11' is 2 days after '2024-03-09' of the row above and the usual step is 1 day, so 1 of 58"),
                            (workdays[:8] + workdays[9:], "line 10: column 'time': '2024-03-14' is 2 days after '2024-03-12' of the row above and the usual step is 1 day, so 1 of 40"),
                            (months[:17] + months[18:], "line 19: column 'time': '2001-07-01' is 61 days after '2001-05-01' of the row above and the usual step is 31 days, so 1 of 58"),
                            ([hours[i * (i + 1) // 2] for i in range(20)], "line 4: column 'time': '2024-03-01 03:00:00' is 2 h after '2024-03-01 01:00:00' of the row above "
                                                                           "and the first step is 1 h, so 18 of 19"),
                            (["2024-03-01 00:00", "2024-03-01 00:01", "2024-03-01 00:01:01.5", *(f"2024-03-01 00:{i:02}" for i in range(2, 30))],
                             "line 4: column 'time': '2024-03-01 00:01:01.5' is 1.5 s after '2024-03-01 00:01' of the row above and the usual step is 1 min, so 1 of 30")):
            warning, = self.steps_warning(times)
            self.assertIn(line, warning)
        # within a series; another column with equal steps
        shops, parts = ["b"] * 30 + ["a"] * 30, [*days[:30], *days[:20], *days[25:35]]
        self.table(series(60), names=["time", "shop", *NAMES], extra=(parts, shops))
        self.config("steps: 5, group: shop", "columns: {time: ignore}")
        self.assertIn("rows.csv:line 52: column 'time': '2024-03-26' is 6 days after '2024-03-20'", "".join(self.run_program("check", "test.yaml")))
        self.assertEqual(self.steps_warning(days[:30] + days[31:], columns=("time", "other"), extra=(days[:59],)), [])
        self.assertEqual(len(self.steps_warning(days[:30] + days[31:], columns=("time", "other"), extra=(days[:58:-1] + days[:58],))), 1)

    def test_order_of_time_in_series_files_and_databases(self):
        days = [f"2024-{1 + d // 28:02}-{1 + d % 28:02}" for d in range(60)]
        ignored, shops = "columns: {time: ignore}", ["b"] * 30 + ["a"] * 30
        columns, words = ("time", "shop"), "dataset.window.group=shop"
        self.assertEqual(self.order_warning(days[30:] + days[:30], ignored, words, columns=columns, extra=(shops,)), [])
        warning, = self.order_warning(days[30:] + days[:30][::-1], ignored, words, columns=columns, extra=(shops,))
        self.assertIn("rows.csv:line 33: column 'time': '2024-02-01' is before '2024-02-02' of the row above, and 28 more rows", warning)
        self.assertIn("sort those of each series by time", warning)
        # several files, the later ones with the columns in another order, or without the dates
        path = "dataset.path=[rows.csv, late.csv]"
        self.write("late.csv", "\n".join(["y,time,a,b"] + [f"{i},{days[i]},{i},{i}" for i in range(30)]) + "\n")
        warning, = self.order_warning(days[30:], ignored, path)
        self.assertIn("late.csv:line 2: column 'time': '2024-01-01' is before '2024-03-04' of the row above; ", warning)
        self.write("late.csv", "\n".join(["y,a,b"] + [f"{i},{i},{i}" for i in range(30)]) + "\n")
        self.assertEqual(self.order_warning(days[30:], ignored, path), [])
        missing = "dataset.missing=['?']"
        for dates, count in (days, 0), (days[::-1], 1), (days[:29:-1] + [None] + days[29:0:-1], 1), ([b"x"] * 60, 0):
            with sqlite3.connect(self.path("rows.db")) as db:
                db.execute("drop table if exists t")
                db.execute("create table t (time, a real, b real, y real)")
                db.executemany("insert into t values (?, ?, ?, ?)", [(day, *map(float, row)) for day, row in zip(dates, series(60))])
            found = self.order_warning(days, ignored, "dataset.path=rows.db", missing)
            self.assertEqual(len(found), count)
            self.assertTrue(all(line.endswith("in the order of dataset.query: write one with `order by`") for line in found), found)
        self.assertEqual(self.order_warning(days, ignored, "dataset.path=rows.db"), [])
        self.run_program("test.yaml", "--run-dir", "runs/time")
        self.table(series(60), "new.csv", names=["time", *NAMES], extra=(days[::-1],))
        self.assertIn("new.csv:line 3: column 'time'", self.run_program("predict", "runs/time", "new.csv", "--out", "p.csv")[1])

    def test_predict(self):
        """One value for each window, at the last row of its inputs; those at the end are forecasts."""
        rows = series()
        self.table(rows)
        self.config("steps: 6, horizon: 2, stride: 5", "scale: standard, target_scale: standard, split: 0.2")
        self.run_program("test.yaml")

        def predict(*arguments):
            out, err = self.run_program("predict", *arguments)
            return {int(row): float(value) for row, value in (line.split(",") for line in out.splitlines()[1:])}, err
        own, err = predict("runs/test")
        self.assertEqual(list(own), list(range(96 + 5, 120)))
        self.assertIn("rows.csv: 19 windows of 6 rows for validation (--part all uses all)", err)
        every, _ = predict("runs/test", "--part", "all")
        self.assertEqual(list(every), list(range(5, 120)))
        self.assertEqual(own, {row: every[row] for row in own})
        self.table(rows[50:56], "new.csv")
        new, err = predict("runs/test", "new.csv")
        self.assertEqual(new, {5: every[55]})
        self.assertIn("new.csv: 1 window of 6 rows", err)
        self.table(rows[50:60], "new.csv")
        out, _ = self.run_program("predict", "runs/test", "new.csv", "--with-inputs")
        self.assertEqual(out.splitlines()[0], "a,b,y,row,predicted_y")
        self.assertEqual([float(line.split(",")[0]) for line in out.splitlines()[1:]], rows[55:60, 0].tolist())
        out, _ = self.run_program("predict", "runs/test", "--with-inputs", "--part", "train")
        self.assertEqual([float(line.split(",")[0]) for line in out.splitlines()[1:]], rows[5:96, 0].tolist())
        self.table(rows[:40], "later.csv")
        self.run_program("test.yaml", "dataset.split=null", "dataset.validation=later.csv", "--run-dir", "runs/later")
        out, _ = self.run_program("predict", "runs/later", "--with-inputs")
        self.assertEqual([float(line.split(",")[0]) for line in out.splitlines()[1:]], rows[5:40, 0].tolist())
        self.table(rows[50:55], "new.csv")
        _, err = self.run_program("predict", "runs/test", "new.csv", code=DATA)
        self.assertIn("new.csv: dataset.window: no 6 adjacent rows are among the 5 rows: a window has 6 steps", err)
        _, err = self.run_program("eval", "runs/test", "new.csv", code=DATA)
        self.assertIn("no 8 adjacent rows are among the 5 rows: a window has 6 steps and 2 up to the last target", err)

    def test_series(self):
        """No window has rows of two series; a split takes the last rows of each."""
        lengths = {"north": 30, "east": 8, "west": 20}
        rows = series(sum(lengths.values()))
        ids = [name for name, count in lengths.items() for _ in range(count)]
        self.table(rows, names=["id", *NAMES], extra=[ids])
        self.config("steps: 6, group: id", "scale: standard")
        expected = sum(count - 6 for count in lengths.values())
        self.assertTrue(self.check_line()[0].startswith(f"test: {expected} training windows, 0 validation windows"))
        self.assertIn("in 58 rows of 3 series", "\n".join(self.check_line()))
        first = [f"test: {sum(max(n - m - 6, 0) for n, m in zip(lengths.values(), last))} training windows, {sum(max(m - 6, 0) for m in last)} validation windows"
                 for last in ([12, 4, 8],)]
        self.assertTrue(self.check_line("dataset.split=0.4")[0].startswith(first[0]), self.check_line("dataset.split=0.4")[0])
        self.run_program("test.yaml", "dataset.split=0.4")
        out, _ = self.run_program("predict", "runs/test")
        self.assertEqual([int(line.split(",")[0]) for line in out.splitlines()[1:]], [*range(18 + 5, 30), *range(38 + 12 + 5, 58)])
        self.assertIn("warning        1 of the series has too few validation rows for a window and is not used (dataset.window); it is at rows.csv:line 36: column 'id'",
                      self.check_line("dataset.split=0.4"))
        # of rows to predict, which have no part
        self.table(rows[:40], names=["id", *NAMES], extra=[["a"] * 15 + ["b"] * 5 + ["c"] * 15 + ["d"] * 5], name="new.csv")
        self.assertIn("warning: 2 of the series have too few rows for a window and are not used (dataset.window); the first is at new.csv:line 17: column 'id'",
                      self.run_program("predict", "runs/test", "new.csv")[1])
        # of a validation file
        self.table(rows, names=["id", *NAMES], extra=[["south"] * 29 + ["north"] * 29], name="later.csv")
        self.assertTrue(self.check_line("dataset.validation=later.csv")[0].startswith(f"test: {expected} training windows, 46 validation windows"))
        # codes that differ only in leading zeros are two series, equal numbers are one
        for second, count in (("007", 29 - 6 + 29 - 6), ("7.0", 58 - 6)):
            self.table(rows, names=["id", *NAMES], extra=[["7"] * 29 + [second] * 29], name="codes.csv")
            self.assertTrue(self.check_line("dataset.path=codes.csv")[0].startswith(f"test: {count} training windows, "), second)
        # whole series
        self.config("steps: 6", "scale: standard, split: {test: 0.3, group: id, seed: 3}")
        self.run_program("test.yaml", "--run-dir", "runs/whole")
        out, _ = self.run_program("predict", "runs/whole", "--part", "all")
        self.assertEqual(len(out.splitlines()) - 1, sum(count - 5 for count in lengths.values()))
        # the rows of a series are adjacent
        self.table(rows, names=["id", *NAMES], extra=[ids[:50] + ["north"] * 8])
        _, err = self.run_program("check", "test.yaml", code=DATA)
        self.assertIn("rows.csv:line 52: column 'id': the rows of a series are not adjacent; sort the rows by 'id', then by time", err)

    def test_series_of_other_formats(self):
        import h5py
        rows, ids = series(58), np.repeat([7, 3, 5], [30, 8, 20])
        self.table(rows, names=["id", *NAMES], extra=[ids])
        np.savez(self.path("rows.npz"), x=rows, y=rows[:, 2], id=ids)
        for k, part in enumerate((slice(0, 34), slice(34, 58))):  # a series continues in the next file
            self.table(rows[part], names=["id", *NAMES], extra=[ids[part]], name=f"part-{k}.csv")
            np.savez(self.path(f"part-{k}.npz"), x=rows[part], y=rows[part, 2], id=ids[part])
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"], f["id"] = rows, rows[:, 2], ids
        with sqlite3.connect(self.path("rows.db")) as db:
            db.execute("create table t (id integer, a real, b real, y real)")
            db.executemany("insert into t values (?, ?, ?, ?)", [(int(i), *map(float, row)) for i, row in zip(ids, rows)])
        self.config("steps: 6, group: id", "scale: standard, split: 0.4")
        expected = self.train("csv")
        for file in ("rows.db", "rows.npz", "rows.h5", '"part-*.csv"', "[part-0.csv, part-1.csv]", '"part-*.npz"'):
            self.assertEqual(self.train(file.strip('"'), f"dataset.path={file}"), expected, file)
        np.savez(self.path("rows.npz"), x=rows, y=rows[:, 2], id=np.roll(ids, 3))
        _, err = self.run_program("test.yaml", "dataset.path=rows.npz", "--fresh", code=DATA)
        self.assertIn("the rows of a series are not adjacent; sort the rows by 'id', then by time (dataset.window.group)", err)

    def test_evaluations_of_a_checkpoint(self):
        """eval has the scales of the rows, also given ones, and computes what training did."""
        rows = np.abs(series())
        self.table(rows)
        for scale in ("scale: standard, target_scale: log1p", f"scale: {{mean: {MEAN}, std: {STD}}}, target_scale: minmax", "scale: none"):
            self.config("steps: 6, horizon: 3, predict_steps: 2, stride: 2", f"{scale}, split: 0.25", outputs=2)
            self.run_program("test.yaml", "--fresh", "train.metrics=[mae]")
            end = self.events("epoch")[-1]
            got = json.loads(self.run_program("eval", "runs/test")[0])
            self.assertEqual((got["loss"], got["mae"]), (end["val_loss"], end["val_mae"]), scale)
            out, _ = self.run_program("predict", "runs/test")
            values = [list(map(float, line.split(","))) for line in out.splitlines()[1:]]
            errors = [abs(y - rows[int(row) + 3 + k, 2]) for row, *predicted in values[:25:2] for k, y in enumerate(predicted) if row + 4 < ROWS]
            self.assert_close([sum(errors) / len(errors)], [end["val_mae"]], 1e-5)

    def test_another_window_is_refused(self):
        """What a sample is decides what a model computes, and an lstm takes any number of steps; the stride does not."""
        self.table(series(40), names=["id", *NAMES], extra=[[i // 20 for i in range(40)]])
        self.config("steps: 6, horizon: 2, group: id", "split: 0.5")
        self.run_program("test.yaml")
        for verb in ("eval", "predict"):
            for key, value, before in (("steps", 5, 6), ("horizon", 1, 2), ("group", "null", "id"), ("predict_steps", 2, 1)):
                for ranks in (1, 2):
                    _, err = self.run_program(verb, "runs/test", f"dataset.window.{key}={value}", "--nproc", ranks, code=USAGE)
                    self.assertEqual(err.count(f" (training -> now):\n  dataset.window.{key}: {before} -> {value}\n"), 1, err)
            for arguments in (["runs/test"], ["test.yaml", "dataset.window.stride=2"], ["runs/test", "rows.csv"]):
                self.assertNotIn("warning", self.run_program(verb, *arguments)[1])

    def test_no_window_has_rows_of_both_parts(self):
        """Of the folds, whose training rows are on both sides of the validation rows."""
        self.table(series())
        for split, train, validation in (("folds: 4, fold: 1", (30 - 6) + (60 - 6), 30 - 6), ("folds: 5, fold: 2, time_series: true", 60 - 6, 20 - 6),
                                         ("train: 0.75", 90 - 6, 30 - 6), ("test: 0.25, shuffle: false", 90 - 6, 30 - 6)):
            self.config("steps: 6", f"split: {{{split}}}")
            self.assertTrue(self.check_line()[0].startswith(f"test: {train} training windows, {validation} validation windows"), split)
        self.run_program("test.yaml")
        self.assertIn("shuffle: false", self.read("runs/test/config.yaml"))

    def test_history(self):
        """Inputs of validation and test windows may be earlier rows of their series; the other windows do not change."""
        rows = [[s, t, s + t / 100] for s in range(3) for t in range(12)]
        with open(self.path("panel.csv"), "w") as f:
            f.write("s,a,y\n" + "".join(",".join(map(str, r)) + "\n" for r in rows))
        self.config("steps: 4, group: s", "targets: y, inputs: [a], split: {test: 0.17}, scale: none")
        self.write("test.yaml", self.read("test.yaml").replace("rows.csv", "panel.csv"))
        self.assertIn("no 5 adjacent rows of one series are among the 9 validation rows: a window has 4 steps and 1 up to the last target; "
                      "with history: true its inputs may be of the rows before them", self.run_program("check", "test.yaml", code=DATA)[1])
        with_history = ("dataset.window.history=true",)
        self.assertIn("15 training windows, 9 validation windows", self.run_program("check", "test.yaml", *with_history)[0])
        self.run_program("test.yaml", *with_history, "--fresh")
        self.assertEqual(json.loads(self.run_program("eval", "runs/test")[0])["rows"], 9)
        lines = self.run_program("predict", "runs/test", "--with-inputs")[0].splitlines()[1:]
        self.assertEqual([line.split(",")[:2] for line in lines], [[str(s), str(t)] for s in range(3) for t in (8, 9, 10, 11)])
        three = (*with_history, "dataset.split={test: 0.1, validation: 0.1}")
        self.assertIn("15 training windows, 3 validation windows, 6 test windows", self.run_program("check", "test.yaml", *three)[0])
        folds = (*with_history, "dataset.window.group=null", "dataset.inputs=[s, a]", "dataset.split={folds: 3, fold: 1, shuffle: false}")
        self.assertIn("16 training windows, 12 validation windows", self.run_program("check", "test.yaml", *folds)[0])

    def test_columns(self):
        """Categories and missing values are prepared row by row; an ignored column leaves the windows plain."""
        rows = series()
        kinds = ["red", "blue", "green"] * 40
        days = [f"2024-01-{1 + i % 28:02}" for i in range(ROWS)]
        text = ["day,kind,a,b,y"] + [f"{days[i]},{kinds[i]},{'' if i == 7 else rows[i, 0]},{rows[i, 1]},{rows[i, 2]}" for i in range(ROWS)]
        self.write("rows.csv", "\n".join(text) + "\n")
        self.config("steps: 6", "columns: {a: {missing: mean}, day: ignore}, scale: standard, split: 0.25")
        self.assertIn("inputs: (6, 6), ", "\n".join(self.check_line()))
        self.run_program("test.yaml")
        filled = rows.astype(np.float64)
        filled[7, 0] = np.delete(filled[:90, 0], 7).mean()
        scaled = (filled - filled[:90].mean(0)) / filled[:90].std(0)
        onehot = np.array([[kind == c for c in ("blue", "green", "red")] for kind in kinds], float)
        both = np.column_stack([onehot, scaled])
        for name, first, last in (("train", 0, 90), ("validation", 90, ROWS)):
            x, _ = windows(np.column_stack([both[first:last], rows[first:last, 2]]), 6, columns=slice(0, 6))
            np.savez(self.path(name + ".npz"), x=x.astype(np.float32), y=windows(rows[first:last], 6)[1])
        self.config("steps: 0")
        self.run_program("test.yaml", "--run-dir", "runs/prepared", "dataset.path=train.npz", "dataset.validation=validation.npz")
        self.assert_close(self.losses(), self.losses("runs/prepared"), 1e-5)
        self.run_program("eval", "runs/test")
        for out in ("m.onnx", "m.c"):
            _, err = self.run_program("export", "runs/test", "--out", out, code=USAGE)
            self.assertIn("reads windows of rows (dataset.window) with columns that are prepared", err)
        for rule in ("", "y: {missing: mean}"):
            self.config("steps: 6", f"columns: {{day: ignore, {rule}}}")
            self.write("gap.csv", "\n".join([*text[:8], f"{days[7]},red,0,0,", *text[9:]]).replace(",,", ",0,") + "\n")
            _, err = self.run_program("check", "test.yaml", "dataset.path=gap.csv", code=DATA)
            self.assertIn("gap.csv:line 9: column 'y': missing value, and the column is a target, too; fill it in the file", err)
        self.config("steps: 6", "columns: {kind: {encoding: embedding}, day: ignore, a: {missing: mean}}")
        self.assertIn("'kind' becomes tokens, which a window of numbers cannot have; write encoding: one_hot", self.run_program("check", "test.yaml", code=USAGE)[1])
        self.write("rows.csv", "\n".join(text).replace(",,", ",0,") + "\n")
        self.config("steps: 6", "columns: {kind: ignore, day: ignore}, scale: standard")
        self.run_program("test.yaml", "--run-dir", "runs/plain")
        self.run_program("export", "runs/plain", "--out", "m.onnx")

    def test_exported_c_file(self):
        rows = series()
        self.table(rows)
        for name, inputs, columns in (("m", "", [0, 1, 2]), ("n", "inputs: [y, a], ", [2, 0])):
            self.config("steps: 6, predict_steps: 2", inputs + "scale: standard, target_scale: standard, split: 0.25", outputs=2)
            self.run_program("test.yaml", "--fresh")
            self.run_program("export", "runs/test", "--out", f"{name}.c")
            self.assertIn(f"#define MODEL_INPUTS {6 * len(columns)}\n", self.read(f"{name}.h"))
            self.assertIn(f"#define MODEL_STEPS 6\n#define MODEL_FEATURES {len(columns)}\nextern const char *const model_columns[MODEL_FEATURES];\n",
                          self.read(f"{name}.h"))
            if not shutil.which("gcc"):
                self.skipTest("gcc is not installed")
            library = self.path(f"{name}.so")
            subprocess.run(["gcc", "-O1", "-fPIC", "-shared", self.path(f"{name}.c"), "-o", library, "-lm"], check=True)
            model = ctypes.CDLL(library)
            out, _ = self.run_program("predict", "runs/test")
            for line in out.splitlines()[1:]:
                row, *expected = map(float, line.split(","))
                x = np.ascontiguousarray(rows[int(row) - 5:int(row) + 1, columns])
                got = np.zeros(2, np.float32)
                self.assertEqual(model.model_predict(x.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p)), 0)
                self.assert_close(got, expected, 1e-5)
            names = (ctypes.c_char_p * len(columns)).in_dll(model, "model_columns")
            self.assertEqual([one.decode() for one in names], [NAMES[column] for column in columns])

    def test_exports_have_the_names_of_columns(self):
        """Where each is a feature: of HDF5 datasets with a number for each row, not of one with several."""
        rows = series()
        self.table(rows)
        self.other_files(rows)
        for arguments, names in ((["dataset.inputs=[y, a]"], ["y", "a"]), (["dataset.path=rows.db"], NAMES),
                                 (["dataset.path=rows.h5", "dataset.inputs=[b, y]", "dataset.targets=y"], ["b", "y"]),
                                 (["dataset.path=rows.h5", "dataset.inputs=x", "dataset.targets=target"], None), (["dataset.path=rows.npz"], None)):
            with self.subTest(arguments):
                self.config("steps: 6")
                self.run_program("test.yaml", "--fresh", *arguments)
                self.run_program("export", "runs/test", "--out", "m.onnx")
                self.run_program("export", "runs/test", "--out", "m.c")
                with open(self.path("m.onnx"), "rb") as f:
                    text = f.read()
                self.assertEqual(json.dumps(names).encode() in text, names is not None)
                self.assertEqual("model_columns[MODEL_FEATURES]" in self.read("m.h"), names is not None)
                self.assertEqual(b"columns" in text, names is not None)

    def test_classes(self):
        """Classes are no inputs unless they are named; their weights are those of the targets of windows."""
        rows = series()
        labels = ["low" if i < 60 else "high" for i in range(ROWS)]
        self.write("rows.csv", "a,b,state\n" + "".join(f"{r[0]},{r[1]},{s}\n" for r, s in zip(rows, labels)))
        self.config("steps: 6", "scale: standard", outputs=2)
        self.write("test.yaml", self.read("test.yaml").replace("loss: mse", "loss: {type: cross_entropy, weight: balanced}"))
        lines = "\n".join(self.check_line())
        self.assertIn("inputs: (6, 2), ", lines)
        self.assertIn(f"class weights  {114 / 2 / 60:g}, {114 / 2 / 54:g} (balanced)", lines)
        self.run_program("test.yaml", "sampler.type=weighted")
        out, _ = self.run_program("predict", "runs/test")
        self.assertIn(out.splitlines()[1].split(",")[1], ("low", "high"))
        self.write("numbers.csv", self.read("rows.csv").replace("low", "1").replace("high", "0"))
        self.run_program("test.yaml", "dataset.path=numbers.csv", "dataset.inputs=[a,state]", "--run-dir", "runs/numbers")
        self.assertTrue(self.check_line("dataset.path=numbers.csv", "dataset.inputs=[a,state]")[0].endswith(" 2 classes"))
        _, err = self.run_program("check", "test.yaml", "dataset.inputs=[a,state]", code=DATA)
        self.assertIn("rows.csv:line 2: column 'state': 'low' is not a number, and the column is a target and an input. ", err)
        self.assertIn("a target that is a class needs a loss for classes and must not be in dataset.inputs", err)

    def test_long_windows(self):
        """Longer than what is read from a file at once; and their memory is that of the rows."""
        rng = np.random.default_rng(0)
        np.savez(self.path("wide.npz"), x=rng.normal(size=(306, 2000)).astype(np.float32), y=rng.normal(size=306))
        self.config("steps: 300, horizon: 2", layer="{mean: 1}")
        for cache in (0, 1024):
            self.run_program("test.yaml", "dataset.path=wide.npz", f"dataset.cache_mb={cache}", "sampler.batch_size=2", "--run-dir", f"runs/{cache}")
        self.assertEqual(self.losses("runs/0"), self.losses("runs/1024"))
        self.write("long.csv", "y\n" + "1\n2\n" * 200000)
        self.config("steps: 200000", "cache_mb: 1000000000", layer="flatten")
        self.assertNotIn("of memory are free here", "\n".join(self.check_line("dataset.path=long.csv", "sampler.batch_size=1")))

    def test_targets_with_a_shape(self):
        """Of one row they keep it, of several they are a list."""
        np.savez(self.path("rows.npz"), x=series(), y=np.zeros((ROWS, 2, 2)))
        for predict_steps, expected in ((1, "4 target values a window, targets (2, 2)"), (3, "12 target values a window")):
            self.config(f"steps: 5, predict_steps: {predict_steps}", layer="flatten", outputs=4 * predict_steps)
            self.assertTrue(self.check_line("dataset.path=rows.npz", *["model.layers=[flatten, {linear: 4}, {reshape: [2, 2]}]"][:predict_steps == 1])[0].endswith(expected))

    def test_names_of_other_programs(self):
        self.table(series())
        for window, meant in (("input_chunk_length: 5", "steps"), ("steps: 5, output_chunk_length: 2", "predict_steps"), ("steps: 5, sequence_stride: 2", "stride")):
            self.config(window)
            self.run_program("check", "test.yaml", code=USAGE, err=f"did you mean '{meant}'")

    def test_errors(self):
        self.table(series(20))
        for window, more, code, message in (
                ("steps: 20", "", DATA, "rows.csv: dataset.window: no 21 adjacent rows are among the 20 rows: a window has 20 steps and 1 up to the last target"),
                ("steps: 6", "split: 0.3", DATA, "no 7 adjacent rows are among the 6 validation rows"),
                ("horizon: 2", "", USAGE, "test.yaml:4:35: dataset.window: steps is missing: give the number of rows of a window"),
                ("steps: 6", "split: {test: 0.3, shuffle: true}", USAGE, "windows overlap, so a random split would train on rows of the validation; remove shuffle"),
                ("steps: 6", "split: {test: 0.3, stratify: true}", USAGE, "windows are split in the order of time, not by class; remove stratify"),
                ("steps: 6", "weights: a", USAGE, "weights are of rows, and with dataset.window a sample has several; remove it"),
                ("steps: 6", "inputs: {p: a, q: b}", USAGE, "a window has one input (steps, features); give a list of columns instead of named inputs"),
                ("steps: 6", "targets: z", DATA, "rows.csv: there is no column 'z'"),
                ("steps: 6, group: z", "", DATA, "dataset.window.group: rows.csv: there is no column 'z'"),
                ("steps: 6, group: a", "split: {test: 0.3, group: b}", USAGE, "group is 'a', but split.group is 'b'; both must be the same"),
                ("steps: 6, group: a", "split: {folds: 3, fold: 0}", USAGE, "folds of several series need split.group: a, which keeps each series in one part"),
                ("steps: 6", "format: text", USAGE, "needs a table of numbers for each time, not format text; see its block_size")):
            self.config(window, more)
            self.run_program("check", "test.yaml", code=code, err=message)
            self.run_program("test.yaml", code=code, err=message)
        advice = "Correct the value, or name another column in dataset.targets; a target that is a class needs a loss for classes and must not be in dataset.inputs"
        for texts, keys, code, message in (
                ("12x4567", "", DATA, "rows.csv:line 4: column 'y': 'x' is not a number; the column is a target and an input, and its values before are numbers. " + advice),
                ("xxx4567", "", DATA, "rows.csv:line 2: column 'y': 'x' is not a number, and the column is a target and an input. " + advice),
                ("xbcdefg", "", DATA, "rows.csv:line 2: column 'y': 'x' is not a number, and the column is a target and an input. " + advice),
                ("1212121", "columns: {y: category}", DATA, "rows.csv: column 'y': it is a target and an input, whose values are numbers; "
                 "remove its rule from dataset.columns, or for a class name the other columns in dataset.inputs"),
                ("1212121", "columns: {y: ignore}", USAGE, "the others are for inputs. To use it as a target only, remove the rule and name the inputs in dataset.inputs"),
                ("12x4567", "targets: a, columns: {y: ignore}", program.OK, ""), ("1234567", "inputs: [a]", program.OK, "")):
            self.write("rows.csv", "a,y\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts)))
            self.config("steps: 2", keys)
            self.assertIn(message, self.run_program("test.yaml", "--fresh", code=code)[1], keys)
        np.savez(self.path("images.npz"), x=np.zeros((20, 3, 4), np.float32), y=np.zeros(20))
        self.config("steps: 6")
        _, err = self.run_program("check", "test.yaml", "dataset.path=images.npz", code=USAGE)
        self.assertIn("dataset.window: the rows must be lists of numbers, one row for each time", err)
