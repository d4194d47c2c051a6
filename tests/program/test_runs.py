"""`ddptrain runs`: a row for each run folder, with its state and its numbers. ctest-labels: unit fault"""
import json, os, shutil, signal

import program
from program import DATA, IO, LONG, STOPPED, USAGE, WINE


class Runs(program.Case):
    def rows(self, *arguments):
        """{name: words of its row}"""
        out, _ = self.run_program("runs", *arguments)
        lines = out.splitlines()
        self.assertEqual(lines[0].split(), ["run", "state", "epochs", "steps", "train_loss", "val_loss", "best", "time", "size"])
        return {line.split()[0]: line.split()[1:] for line in lines[1:]}

    def test_states_and_numbers(self):
        self.write("test.yaml", WINE)
        self.write("long.yaml", LONG)
        self.run_program("test.yaml")
        end, epoch = self.events("end")[-1], self.events("epoch")[-1]
        for name, signals in (("stopped", [signal.SIGTERM]), ("killed", [signal.SIGKILL])):
            p = self.start("long.yaml", "train.epochs=1000000", "--run-dir", f"runs/{name}")
            self.wait_for(lambda: os.path.exists(self.path("runs", name, "metrics.jsonl")) and self.events("step", f"runs/{name}"), what="a step")
            if name == "stopped":
                self.assertEqual(self.rows()["stopped"][0], "running")
            for number in signals:
                p.send_signal(number)
            p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, STOPPED if name == "stopped" else -signal.SIGKILL)
        os.mkdir(self.path("runs", "no-run"))
        rows = self.rows()
        self.assertEqual({name: row[0] for name, row in rows.items()}, {"killed": "failed", "stopped": "stopped", "test": "complete"})
        row = rows["test"]
        self.assertEqual(row[1:11], ["10", "50", f"{epoch['train_loss']:.4g}", f"{epoch['val_loss']:.4g}", "val_accuracy", f"{100 * end['best_value']:.2f}", "%", "in",
                                    "epoch", str(end["best_epoch"])])
        self.assertGreater(float(row[-2]), 0)
        for words, metric in ((["dataset.split=0"], "train_loss"), (["checkpoint.best=val_loss"], "val_loss"), (["checkpoint.best=train_loss"], "train_loss")):
            self.run_program("test.yaml", "train.epochs=1", *words, "--run-dir", "runs/metric", "--fresh")
            self.assertEqual(self.rows()["metric"][5], metric)
            shutil.rmtree(self.path("runs/metric"))
        self.assertEqual(self.rows("runs"), rows)

    def test_a_part_of_an_epoch(self):
        """Of a run whose length is in steps: as the log has it, in every command."""
        self.write("test.yaml", WINE)
        for steps, epochs in ((3, "0.6"), (12, "2.4"), (10, "2")):
            said = self.run_program("test.yaml", "train.epochs=null", f"train.steps={steps}", "--fresh")[1]
            self.assertRegex(said, rf"done: {epochs}0? epochs, {steps} steps")
            self.assertEqual(self.rows()["test"][:3], ["complete", epochs, str(steps)])
            self.assertIn(f"epoch {epochs}  step {steps} of {steps}\n", self.run_program("watch", "runs/test")[0])
            self.run_program("report", "runs/test")
            self.assertIn(f"<dt>Epochs</dt><dd>{epochs}</dd>", self.read("runs/test/report.html"))

    def test_the_newest_run_is_last(self):
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train.epochs=1")
        for name, age in (("c", 300), ("a", 200), ("d", 100), ("b", 100)):
            shutil.copytree(self.path("runs/test"), self.path("runs", name))
            os.utime(self.path("runs", name, "metrics.jsonl"), (1e9 - age,) * 2)
        self.assertEqual(list(self.rows()), ["c", "a", "b", "d", "test"])

    def test_continued_run_is_not_complete_until_its_end(self):
        """The event `end` of before does not count any more."""
        self.write("test.yaml", WINE)
        self.run_program("test.yaml")
        with open(self.path("runs/test/metrics.jsonl"), "a") as f:
            f.write('{"event":"start","epoch":10}\n{"event":"step","epoch":10,"step":51}\n{"event":"st')
        self.assertEqual(self.rows()["test"][:3], ["failed", "10", "51"])
        with open(self.path("runs/test/metrics.jsonl"), "a") as f:
            f.write('\n{"event":"epoch","epoch":11,"train_loss":0.5}\n')
        self.assertEqual(self.rows()["test"][:4], ["failed", "12", "51", "0.5"])

    def test_an_incomplete_last_line(self):
        """As a killed run leaves it: the newest complete lines count."""
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train.epochs=3")
        lines = self.read("runs/test/metrics.jsonl").splitlines(True)[:-1]
        complete = [next(line for line in reversed(lines) if f'"event":"{event}"' in line) for event in ("epoch", "step")]
        for line in complete:
            self.write("runs/test/metrics.jsonl", "".join(lines) + line[:-20])
            row = self.rows()["test"]
            self.assertEqual(row[:4], ["failed", "3", "15", f"{json.loads(complete[0])['train_loss']:.4g}"])
            self.run_program("inspect", "runs/test", out=f"event   {lines[-1]}")

    def test_progress_without_steps_in_the_metrics(self):
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train.log_every=0", "train.epochs=3")
        lines = self.read("runs/test/metrics.jsonl").splitlines(True)
        self.write("runs/test/metrics.jsonl", "".join(lines[:-1]))  # as if killed after the last epoch
        self.assertEqual(self.rows()["test"][:3], ["failed", "3", "-"])
        self.write("runs/test/metrics.jsonl", lines[0])
        self.assertEqual(self.rows()["test"][:3], ["failed", "-", "-"])

    def test_times_and_sizes(self):
        """The size is that of the files of the run folder and of its checkpoints."""
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train.epochs=1")
        for name, megabytes in (("notes", 20), ("checkpoints/a", 3), ("checkpoints/b", 4)):
            with open(self.path("runs/test", name), "wb") as f:
                f.truncate(megabytes * 10**6)
        self.assertEqual(self.rows()["test"][-2:], ["27.0", "MB"])
        with open(self.path("runs/test/metrics.jsonl"), "a") as f:
            f.write('{"event":"end","epoch":1,"step":5,"seconds":125}\n')
        self.assertEqual(self.rows()["test"][5:-2], ["-", "2", "min", "5", "s"])

    def test_a_run_that_cannot_be_read(self):
        """Its row has the reason, and the others are listed."""
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train.epochs=1")
        os.symlink("loop", self.path("runs/loop"))
        rows = self.rows()
        self.assertEqual(rows["test"][0], "complete")
        self.assertIn("Too many levels of symbolic links", " ".join(rows["loop"]))
        shutil.rmtree(self.path("runs/test"))
        self.assertEqual(list(self.rows()), ["loop"])

    def test_every_command_recognizes_the_same_folders(self):
        """A copy that has only the metrics, and a run that has just begun, are runs; another folder with a config is not."""
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train.epochs=1")
        for name, files in (("metrics", ["metrics.jsonl"]), ("begun", [".lock"]), ("other", ["config.yaml"])):
            os.mkdir(self.path("runs", name))
            for file in files:
                shutil.copy(self.path("runs/test", file), self.path("runs", name, file))
        self.assertEqual({name: row[0] for name, row in self.rows().items()}, {"test": "complete", "metrics": "complete", "begun": "failed"})
        for name in ("metrics", "begun"):
            self.assertIn("no checkpoint yet", self.run_program("inspect", f"runs/{name}")[0])
            self.run_program("report", f"runs/{name}", "--out", "page.html")
        self.assertIn("runs/other: neither the folder of a run nor a folder of images", self.run_program("inspect", "runs/other", code=DATA)[1])
        self.assertIn("runs/other: not the folder of a run", self.run_program("report", "runs/other", "--out", "page.html", code=DATA)[1])

    def test_folder_that_cannot_be_made(self):
        self.write("test.yaml", WINE)
        self.write("sweep.yaml", "config: test.yaml\nmethod: grid\nmetric: {name: val_loss, goal: minimize}\nparameters: {optimizer.lr: {values: [0.001, 0.01]}}\n")
        for command, what in ((["test.yaml"], "the run folder"), (["sweep", "sweep.yaml"], "the folder of the sweep")):
            _, err = self.run_program(*command, "--run-dir", "/proc/none", code=IO)
            self.assertIn(f"ddptrain: {what} (--run-dir names another): cannot make the folder '/proc/none", err)

    def test_runs_in_folders_of_trials(self):
        self.write("test.yaml", WINE)
        self.write("sweep.yaml", "config: test.yaml\nmethod: grid\nmetric: {name: val_loss, goal: minimize}\n"
                                 "parameters: {optimizer.lr: {values: [0.001, 0.01]}}\nrepeat: {folds: 2}\n")
        self.run_program("sweep", "sweep.yaml", "train.epochs=1")
        rows = self.rows("sweeps/sweep/runs")
        self.assertEqual(sorted(rows), ["0000/fold-0", "0000/fold-1", "0001/fold-0", "0001/fold-1"])
        self.assertEqual({row[0] for row in rows.values()}, {"complete"})
        for folder, prefix in (("sweeps/sweep", "runs/"), ("sweeps", "sweep/runs/"), (".", None)):  # in a folder that is no sweep one level down
            if prefix:
                self.assertEqual(self.rows(folder), {prefix + name: row for name, row in rows.items()})
            else:
                self.run_program("runs", folder, code=DATA)
        _, err = self.run_program("inspect", "sweeps/sweep", code=DATA)
        self.assertEqual(err, "ddptrain: sweeps/sweep: the folder of a sweep; ddptrain runs, report and watch read it, and inspect one of its runs\n")
        for folder, run in (("sweeps/sweep", "a sweep, whose trials.csv has the value of each trial"), ("sweeps/sweep/runs", "not a run, but has runs")):
            _, err = self.run_program("predict", folder, "datasets/wine.csv", code=USAGE)
            self.assertEqual(err, f"ddptrain: {folder}: this folder is {run}; give one of its runs, such as sweeps/sweep/runs/0000/fold-0\n")
        shutil.rmtree(self.path("sweeps/sweep/runs"))
        self.run_program("runs", "sweeps/sweep", code=DATA, err="sweeps/sweep: the folder of a sweep that has kept no run")
        os.mkdir(self.path("empty"))
        self.assertIn("empty: this folder is not a run, because it has no config.yaml", self.run_program("predict", "empty", code=USAGE)[1])

    def test_what_is_no_run(self):
        self.run_program("runs", code=DATA, err="runs: there is no such folder")
        os.mkdir(self.path("runs"))
        _, err = self.run_program("runs", code=DATA)
        self.assertIn("runs: there is no run folder in it, nor in its folders; those of a sweep are listed by: ddptrain runs sweeps/NAME", err)
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train.epochs=1", "--run-dir", "runs/a\x1b[31mb")
        shutil.copytree(self.path("runs/a\x1b[31mb"), self.path("runs/copy"))
        out, _ = self.run_program("runs")
        self.assertNotIn("\x1b", out)
        self.assertIn("a\\x1b[31mb", out)
        self.assertIn("copy ", out)
