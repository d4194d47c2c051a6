"""Sweeps: which trials there are, what the table says of each, and that every trial is an ordinary run; comparisons.
ctest-labels: dist"""
import csv, itertools, json, math, os, random, re, shutil, statistics, subprocess, tempfile, time

import program
from program import DATA, NOT_FINITE, USAGE

CONFIG = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 120, inputs: 6, classes: 3, seed: 5}, split: {test: 0.25, seed: 1}}
sampler: {batch_size: 16}
model: {layers: [{linear: {out: 8}}, relu, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 3}
"""
SWEEP = """config: base.yaml
method: random
trials: 12
seed: 3
parameters:
  optimizer.lr: {distribution: log_uniform, min: 1.0e-3, max: 1.0e-1}
  sampler.batch_size: {values: [8, 16]}
  model.layers.0.linear.out: {distribution: int_uniform, min: 4, max: 12}
"""
GRID = """config: base.yaml
method: grid
parameters:
  optimizer.lr: {values: [0.1, 0.01]}
  optimizer.type: {values: [sgd, adam, adamw]}
keep: all
"""


class SweepCase(program.Case):
    given_files = {"base.yaml": CONFIG}

    def sweep(self, text, *words, name="test", **options):
        self.write(f"{name}.yaml", text)
        return self.run_program("sweep", f"{name}.yaml", *words, **options)

    def rows(self, name="test", table="trials.csv"):
        with open(self.path("sweeps", name, table), newline="") as f:
            return list(csv.DictReader(f))

    def history(self, name="test", event="run"):
        with open(self.path("sweeps", name, "history.jsonl")) as f:
            return [e for e in map(json.loads, f) if e["event"] == event]

    def kept(self, name="test"):
        return sorted(os.listdir(self.path("sweeps", name, "runs")))

    def assert_every_trial_once(self, count, name="test"):
        keys = [(e["trial"], e["repeat"]) for e in self.history(name)]
        self.assertEqual(len(keys), len(set(keys)), "a run is twice in the history")
        self.assertEqual(len(keys), count)
        self.assertEqual(len(self.rows(name)), count)


class TestRows(SweepCase):
    """A sweep over a config with three parts."""

    def setUp(self):
        super().setUp()
        self.write("base.yaml", CONFIG.replace("{test: 0.25,", "{test: 0.25, validation: 0.25,"))

    def test_each_trial_has_a_value(self):
        """That of its run; the best trials are chosen without it, and the table does not depend on what is kept."""
        text = SWEEP.replace("seed: 3", "seed: 9")
        self.sweep(text + "keep: all\n", "--nproc", 2)
        rows, table = self.rows(), self.read("sweeps/test/trials.csv")
        self.assertEqual(list(rows[0])[-6:], ["val_loss", "test_loss", "best_epoch", "epochs", "state_sha256", "message"])
        for row in rows:
            with open(self.path("sweeps/test/runs/%04d/metrics.jsonl" % int(row["trial"]))) as f:
                end = json.loads(f.readlines()[-1])
            self.assertEqual((float(row["test_loss"]), "best"), (end["test_loss"], end["test_checkpoint"]))
        best = [min(range(12), key=lambda i: float(rows[i][name])) for name in ("val_loss", "test_loss")]
        self.assertNotEqual(*best)
        self.sweep(text + "keep: best 1\n", "--nproc", 1, name="few")
        self.assertEqual(self.read("sweeps/few/trials.csv"), table)
        self.assertEqual(self.kept("few"), ["%04d" % best[0]])

    def test_a_history_without_values(self):
        """Of a version that had none, in part or all of it; what is done anew has its value."""
        self.sweep(SWEEP, "--nproc", 1)
        history, table, values = self.read("sweeps/test/history.jsonl"), self.read("sweeps/test/trials.csv"), [r["test_loss"] for r in self.rows()]
        old = re.sub(r',"test":[^,]+', "", history)
        lines, new = old.splitlines(keepends=True), history.splitlines(keepends=True)
        self.write("sweeps/test/history.jsonl", "".join(lines[:5] + new[5:]))
        self.sweep(SWEEP, "--nproc", 1)
        self.assertEqual([r["test_loss"] for r in self.rows()], [""] * 5 + values[5:])
        self.write("sweeps/test/history.jsonl", old)
        self.sweep(SWEEP, "--nproc", 1)
        self.assertNotIn("test_loss", self.rows()[0])
        self.write("sweeps/test/history.jsonl", "".join(new[:-4]))  # the folders of some of the others are there, complete
        self.sweep(SWEEP, "--nproc", 1)
        self.assertEqual(self.read("sweeps/test/trials.csv"), table)

    def test_repeats_and_processes(self):
        text = GRID.replace("sgd, adam, adamw", "adam") + "repeat: {folds: 3}\nmetric: {name: val_accuracy, goal: maximize}\n"
        self.sweep(text)
        self.sweep(text + "nproc_per_trial: 2\n", "--nproc", 1, name="two")
        for name in ("test", "two"):
            rows, means = self.rows(name), self.rows(name, "summary.csv")
            self.assertEqual(list(means[0])[-4:], ["val_accuracy", "standard_error", "test_accuracy", "runs"])
            for trial, mean in enumerate(means):
                values = [float(r["test_accuracy"]) for r in rows if int(r["trial"]) == trial]
                self.assertEqual(len(values), 3)
                self.assertAlmostEqual(float(mean["test_accuracy"]), statistics.mean(values))

    def test_no_value(self):
        """Pruned runs are not evaluated, nor is there a test of the training loss."""
        self.sweep(SWEEP + "early_terminate: {type: asha, min_epochs: 1, reduction_factor: 2}\n", "--nproc", 1)
        self.assertEqual({r["state"]: r["test_loss"] != "" for r in self.rows()}, {"complete": True, "pruned": False})
        self.sweep(SWEEP + "metric: {name: train_loss, goal: minimize}\n", "--nproc", 1, name="loss")
        self.assertFalse([name for name in self.rows("loss")[0] if name.startswith("test_")])


class Spaces(SweepCase):
    """Parameters that depend on each other."""
    TEXT = """config: base.yaml
method: random
trials: 40
parameters:
  optimizer.type: [sgd, adam]
  optimizer.momentum: {distribution: uniform, min: 0.5, max: 0.9, when: {optimizer.type: sgd}}
  optimizer.nesterov: {values: [true, false], when: {optimizer.type: [sgd]}}
  parts: {values: [1, 2, 3], keys: [train.accumulate]}
  model.layers.0.linear.out: {distribution: int_uniform, min: 4, max: 9}
constraints: ["model.layers.0.linear.out % parts == 0", "optimizer.momentum < 0.8"]
"""

    def check_rows(self, name="test"):
        rows = self.rows(name)
        for row in rows:
            self.assertEqual(row["state"], "complete", row)
            is_sgd = row["optimizer.type"] == "sgd"
            self.assertEqual((row["optimizer.momentum"] != "", row["optimizer.nesterov"] != ""), (is_sgd, is_sgd))
            self.assertEqual(int(row["model.layers.0.linear.out"]) % int(row["parts"]), 0)
            self.assertLess(float(row["optimizer.momentum"] or 0), 0.8)
        self.assertEqual({r["optimizer.type"] for r in rows}, {"sgd", "adam"})
        return rows

    def test_random_and_tpe(self):
        """The table is that of a second start, which reads the empty values; each trial is the run of its row."""
        for name, words in (("test", ()), ("tpe", ("method=tpe",))):
            self.sweep(self.TEXT, *words, "--nproc", 1, name=name)
            self.check_rows(name)
            table = self.read(f"sweeps/{name}/trials.csv")
            self.sweep(self.TEXT, *words, "--nproc", 1, name=name)
            self.assertEqual(self.read(f"sweeps/{name}/trials.csv"), table)
        row = next(r for r in self.rows() if r["parts"] == "3")
        words = [f"{k}={row[k]}" for k in ("optimizer.type", "optimizer.momentum", "optimizer.nesterov", "model.layers.0.linear.out") if row[k]]
        self.run_program("base.yaml", *words, "train.accumulate=3", "--run-dir", "alone", "checkpoint.best=val_loss")
        with open(self.path("alone/metrics.jsonl")) as f:
            self.assertEqual(json.loads(f.readlines()[-1])["state_sha256"], row["state_sha256"])
        self.sweep(self.TEXT, "--share", "--run-dir", "many")
        self.assertEqual(self.read("many/trials.csv"), self.read("sweeps/test/trials.csv"))

    def test_grid(self):
        """Every allowed combination once; without a parameter that a trial does not have."""
        text = self.TEXT.replace("random\ntrials: 40", "grid").replace("{distribution: uniform, min: 0.5, max: 0.9,", "{values: [0.5, 0.7, 0.85],")
        self.sweep(text, "--nproc", 1)
        names = ("optimizer.type", "optimizer.momentum", "optimizer.nesterov", "parts", "model.layers.0.linear.out")
        wanted = [(t, m, n, str(p), str(w)) for t in ("sgd", "adam") for m in (("0.5", "0.7") if t == "sgd" else ("",))
                  for n in (("true", "false") if t == "sgd" else ("",)) for p in (1, 2, 3) for w in range(4, 10) if w % p == 0]
        self.assertEqual([tuple(r[n] for n in names) for r in self.check_rows()], wanted)

    def test_confirm(self):
        """The best trial and another config with seeds that no trial had; a second start trains nothing again."""
        text = SWEEP + "repeat: {seeds: 2}\n"
        for against, name in (("base", "base"), ("second", None)):
            out, _ = self.sweep(text, f"confirm={{seeds: 5, against: {against}}}", "--nproc", 1)
            means = {r["trial"]: float(r["val_loss"]) for r in self.rows(table="summary.csv")}
            best, second = sorted(means, key=means.get)[:2]
            a, b = f"sweeps/test/confirm/{best:>04}.yaml", f"sweeps/test/confirm/{name or second.zfill(4)}.yaml"
            self.assertIn("val_loss over 5 seeds", out)
            other, _ = self.run_program("compare", a, b, "seed=44", "sampler.seed=2", "--seeds", 5, "--run-dir", "own-" + against)
            self.assertEqual(re.findall("p-values.*", out), re.findall("p-values.*", other))
            folder = f"{a[:-5]}-or-{name or second.zfill(4)}"
            for key in ("seed: 44", "  seed: 2"):
                self.assertIn(key, self.read(f"{folder}/base_config.yaml"))
            history = self.read(f"{folder}/history.jsonl")
            again, _ = self.sweep(text, f"confirm={{seeds: 5, against: {against}}}", "--nproc", 1)
            self.assertEqual((again, self.read(f"{folder}/history.jsonl")), (out, history))
        self.sweep(text, "confirm=2", "nproc_per_trial=2", "keep.runs=all", "--nproc", 1, name="pairs")
        folder, = (self.path("sweeps/pairs/confirm", n) for n in os.listdir(self.path("sweeps/pairs/confirm")) if n.endswith("-or-base"))
        with open(f"{folder}/trials.csv") as f:
            trained = list(csv.DictReader(f))[0]["state_sha256"]
        self.run_program(f"{folder}/base_config.yaml", "--nproc", 2, "--run-dir", "two")
        self.assertEqual(self.sha("two"), trained)
        out, _ = self.sweep(text, "confirm=5", "budget=0.0001", "--nproc", 1, name="over")
        self.assertEqual(out.count("p-values"), 0)
        for words, message in ((("confirm=1",), ">= 2"), (("confirm=5", "metric={name: val_loss, goal: maximize}"), "knows only the usual goal of val_loss"),
                               (("confirm=5", "--share", "--run-dir", "many"), "--share: confirm is for one process")):
            _, err = self.sweep(text, *words, name="bad", code=USAGE)
            self.assertIn(message, err)
        _, err = self.sweep("config: base.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.1}, {optimizer: {type: sgd, lr: 1.0e+30}}]\nconfirm: {seeds: 3, against: second}\n",
                            name="few", code=DATA)
        self.assertIn("confirm: fewer than 2 trials are complete", err)

    def test_parameters_of_a_key_that_no_trial_has_together(self):
        self.sweep("config: base.yaml\nmethod: grid\nparameters:\n  optimizer.type: [sgd, adam]\n"
                   "  optimizer.momentum: {values: [0.5, 0.9], when: {optimizer.type: sgd}}\n"
                   "  high: {values: [0.1], keys: [optimizer.lr], when: {optimizer.momentum: 0.5}}\n"
                   "  low: {values: [0.01], keys: [optimizer.lr], when: {optimizer.type: adam}}\n")
        self.assertEqual([(r["optimizer.type"], r["high"], r["low"]) for r in self.rows()], [("sgd", "0.1", ""), ("sgd", "", ""), ("adam", "", "0.01")])

    def test_what_is_refused(self):
        for words, message in ((('constraints=["parts > 9"]',), "none of 10000 random trials satisfies 'parts > 9'"),
                               (('constraints=["parts > 2", "parts < 2"]',), "none of 10000 random trials satisfies all constraints"),
                               (('constraints=["optimizer.type > 2"]',), "values of optimizer.type are no numbers"),
                               (('constraints=["part > 2"]',), "unknown name 'part'; did you mean 'parts'?"),
                               (("parameters.optimizer.lr={values: [0.1], when: {optimizer.type: rms}}",), "when: 'optimizer.type' never is rms"),
                               (("parameters.optimizer.lr={values: [0.1], when: {train.epochs: 3}}",), "when: 'train.epochs' is not one of the parameters before this one"),
                               (("parameters.optimizer.lr={values: [0.1], when: {optimizer.type: []}}",), "when: the list of values of 'optimizer.type' is empty"),
                               (("parameters.optimizer.lr={values: [0.1], when: {optimizer.momentum: 0.6}}",), "when: 'optimizer.momentum' is any real number of its range"),
                               (("parameters.width={distribution: int_uniform, min: 16, max: 64, step: 16, keys: [sampler.batch_size]}", "parameters.optimizer.lr={values: [0.1], when: {width: 30}}"), "when: 'width' never is 30"),
                               (("parameters.optimizer.lr={values: [0.1], when: sgd}",), "when must be a mapping such as"),
                               (("parameters.twice={values: [1, 2], keys: [train.accumulate]}",), "parameters.twice sets train.accumulate, which parameters.parts before it sets in the same trials"),
                               (("parameters.optimizer={values: [{type: sgd}]}",), "parameters.optimizer sets optimizer.type, which parameters.optimizer.type before it sets"),
                               (("parameters.other={values: [0.1], keys: [optimizer.momentum], when: {optimizer.type: [sgd]}}",), "parameters.other sets optimizer.momentum"),
                               (("parameters.val_loss={values: [0.1], keys: [optimizer.lr]}",), "parameters.val_loss: the tables have another column of this name"),
                               (("parameters.val_accuracy={values: [0.1], keys: [optimizer.lr]}", "other_metrics={val_accuracy: auto}"), "parameters.val_accuracy: the tables have another column"),
                               (("parameters.seed={values: [1, 2]}", "confirm=3"), "seed: confirm sets it; leave one of the two out"),
                               (("parameters.both={values: [0.1], keys: 3}",), "keys must be a list of keys"),
                               (("parameters.both={values: [0.1], keys: [optimizer.lrr]}",), "optimizer.lrr"),
                               (("parameters.optimizer.momentum={values: [-1], when: {optimizer.type: sgd}}",), "-1")):
            _, err = self.sweep(self.TEXT, *words, code=USAGE)
            self.assertIn(message, err)
            self.assertEqual(err.count("\n"), 1, err)
        _, err = self.sweep(self.TEXT.replace("random\ntrials: 40", "grid").replace("distribution: uniform, min: 0.5, max: 0.9", "value: 0.5"), 'constraints=["parts > 9"]', code=USAGE)
        self.assertIn("constraints: no point of the grid satisfies the constraints", err)


class Sweep(SweepCase):
    def test_the_time_that_is_left(self):
        """It does not grow while a long trial runs. It is shown ten times a second until the time of the short trial has passed again."""
        left, epochs = [], 9000
        while len(left) < 2:
            self.assertLess(epochs, 10**7, "a rest is never shown")
            left = self.rests_of_a_long_trial(epochs)
            epochs *= 4
        self.assertEqual(left, sorted(left, reverse=True))

    def rests_of_a_long_trial(self, epochs):
        self.write("test.yaml", f"config: base.yaml\nmethod: grid\nparameters: {{train.epochs: {{values: [{epochs}, {4 * epochs}]}}}}\n")
        text = self.run_on_terminal("sweep", "test.yaml", "--fresh", columns=160)
        found = re.findall(r"1 of 2 trials.*?(?:(\d+) min )?([\d.]+) (ms|s) left", text)
        return [60 * int(minutes or 0) + float(number) * {"ms": 1e-3, "s": 1}[unit] for minutes, number, unit in found]

    def test_kept_trials_are_written_at_the_same_time(self):
        """Also by a single worker's sweep, where the first one shows that a short trial waits for the disk."""
        saves = "checkpoint.save_every={steps: 1}"  # so that a loaded machine starts the last worker before the first one has ended
        for _ in range(20):  # a trial that a loaded machine interrupts for 0.1 s is not short
            self.sweep(SWEEP, "trials=60", "train.epochs=1", saves, "keep=best 4", "--nproc", 1, "--fresh", env={"DDPTRAIN_FAULT": "1:slow:ever", "DDPTRAIN_FAULT_FILTER": "/checkpoints"})
            folders = [f"sweeps/test/runs/{trial}" for trial in self.kept()]
            self.assertEqual(len(folders), 4)
            first, *times = sorted(tuple(os.path.getmtime(self.path(folder, name)) for name in ("config.yaml", "metrics.jsonl")) for folder in folders)
            if max(begun for begun, _ in times) < min(ended for _, ended in times):
                break
        self.assertLessEqual(first[1], times[0][0])  # by the clock of the file system
        self.assertLess(max(begun for begun, _ in times), min(ended for _, ended in times))

    def test_a_run_that_is_longer_than_its_folder_is_trained_once(self):
        """All but a worker's first one, also where the run is short. A busy machine may need more than one try, and a slow one has no such runs."""
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            epochs = 5
            for attempt in range(20):
                words = ("trials=10", f"train.epochs={epochs}", "dataset.synthetic.rows=20000", "keep=best 10", "--nproc", 1, "--run-dir", f"{folder}/{attempt}")
                self.sweep(SWEEP, *words)
                with open(f"{folder}/{attempt}/history.jsonl") as f:
                    seconds = {e["trial"]: e["seconds"] for e in map(json.loads, f) if e["event"] == "run"}
                again = [t for t, s in seconds.items() if self.events("end", f"{folder}/{attempt}/runs/{t:04d}")[0]["seconds"] != s]
                length = statistics.median(seconds.values())
                if length < 0.04 and len(again) <= 1:
                    return
                epochs = max(1, round(epochs * 0.03 / length))
            start = time.monotonic()
            self.sweep(SWEEP, *words[:-1], f"{folder}/all", "keep=all")
            self.assertGreater(time.monotonic() - start, 10 * (length + 0.02), f"trained twice: {again}")

    def test_a_folder_of_the_same_start_is_not_read_again(self):
        """A trial of two processes is started by a config file: a worker that writes it a second time makes a call beyond those of the first."""

        def is_killed(keep, n):
            _, err = self.sweep(SWEEP, "trials=1", "nproc_per_trial=2", f"keep={keep}", "--nproc", 1, "--fresh", env={"DDPTRAIN_FAULT": f"{n}:kill", "DDPTRAIN_FAULT_FILTER": "runs/0000.yaml"}, code=None)
            return "was ended by signal 9" in err

        low, high = 1, 32
        self.assertTrue(is_killed("all", low))
        self.assertFalse(is_killed("all", high))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_killed("all", middle) else (low, middle)
        self.assertFalse(is_killed("best 1", high))

    def test_a_trial_is_the_run_of_its_config(self):
        """With and without a run folder in the sweep, the state is that of the run alone."""
        _, err = self.sweep(SWEEP, "keep=best 3", "--nproc", 2)
        rows = self.rows()
        self.assertEqual([int(r["trial"]) for r in rows], list(range(12)))
        self.assertEqual({r["state"] for r in rows}, {"complete"})
        best = sorted(rows, key=lambda r: float(r["val_loss"]))[:3]
        self.assertEqual(self.kept(), sorted(f"{int(r['trial']):04d}" for r in best))
        self.assertIn(f"trial {int(best[0]['trial']):04d}", err)
        for row in rows:
            words = [f"{k}={row[k]}" for k in ("optimizer.lr", "sampler.batch_size", "model.layers.0.linear.out")]
            self.run_program("base.yaml", *words, "--run-dir", f"runs/{row['trial']}", "checkpoint.best={metric: val_loss, mode: min}")
            self.assertEqual(self.sha(f"runs/{row['trial']}"), row["state_sha256"])
            losses = [e["val_loss"] for e in self.events("epoch", f"runs/{row['trial']}")]
            self.assertEqual(min(losses), float(row["val_loss"]))
            self.assertEqual(losses.index(min(losses)) + 1, int(row["best_epoch"]))
            self.assertEqual(len(losses), int(row["epochs"]))
        for trial in self.kept():  # an ordinary run folder
            self.assertEqual(self.sha(f"sweeps/test/runs/{trial}"), rows[int(trial)]["state_sha256"])
            self.run_program(f"sweeps/test/runs/{trial}/config.yaml", "--run-dir", f"alone/{trial}")
            self.assertEqual(self.sha(f"alone/{trial}"), rows[int(trial)]["state_sha256"])
            self.run_program("eval", f"sweeps/test/runs/{trial}/config.yaml", "--checkpoint", "best")
        self.assert_no_leftovers()

    def test_trials_that_differ_in_the_optimizer_and_the_seeds_alone(self):
        """They use the memory of the trial before, of which nothing may be left; a trial that fails does not change the next ones."""
        sweep = """{config: base.yaml, method: grid, keep: none, parameters: {own_seed: {values: [42, 7], keys: [seed, sampler.seed]}, optimizer: {values: [{type: sgd, lr: 0.1, momentum: 0.9}, adam, {type: sgd, lr: 1.0e+30, weight_decay: 1.0e+30},
            {type: adam, lr: 0.01}, {type: lbfgs, lr: 0.1}, {type: adamw, lr: 0.01, in_backward: true}, {type: muon, lr: 0.01}, {type: rmsprop, lr: 0.01, groups: [{match: "*.bias", lr: 0.1}]}]}}}"""
        head = ", flatten, {linear: {out: 3}}]"
        for name, layers in (("norm", "[{linear: {out: 8}}, batch_norm, relu, {dropout: 0.3}, {linear: {out: 3}}]"),
                             ("lstm", "[{reshape: [3, 2]}, {lstm: {hidden_size: 4}}" + head),
                             ("conv", "[{reshape: [2, 3]}, {conv1d: {out: 4, kernel_size: 2}}, relu" + head)):
            self.write("base.yaml", re.sub(r"model: .*", f"model: {{layers: {layers}}}", CONFIG) + "checkpoint: {best: val_loss}\n")
            self.sweep(sweep, "train.ema.decay=0.9", "--nproc", 1, name=name)
            rows = self.rows(name)
            self.assertEqual({r["state"] for r in rows}, {"complete", "failed"}, name)
            for row in rows:
                run = f"runs/{name}{row['trial']}"
                code = program.OK if row["state"] == "complete" else NOT_FINITE
                self.run_program("base.yaml", "train.ema.decay=0.9", f"optimizer={row['optimizer']}", f"seed={row['own_seed']}", f"sampler.seed={row['own_seed']}", "--run-dir", run, code=code)
                if not code:
                    self.assertEqual(self.sha(run), row["state_sha256"], (name, row))

    def test_trials_that_are_trained_at_once(self):
        """Short trials that differ in the optimizer and the seeds alone are trained together unless they are kept; every number and every failure is that of the trial alone."""
        train = re.sub("split: {test: 0.25, seed: 1}", "split: {validation: 0.25, seed: 1}", CONFIG)
        rates = "{optimizer.lr: {distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}}"
        types = "{optimizer: {values: [sgd, {type: sgd, lr: 1.0e+30}, {type: sgd, lr: 0.1, momentum: 0.9, nesterov: true}, {type: sgd, lr: 0.2}, adam, {type: adam, amsgrad: true}, {type: adam, lr: 0.1}, rmsprop]}}"
        cases = [("method: random, seed: 4, trials: %d, parameters: %s" % (count, rates), "") for count in (1, 2, 17, 40)]
        cases += [("method: grid, parameters: " + types, ""), ("method: grid, parameters: " + types, "\nmodel: {layers: [{linear: {out: 8}}, tanh, {linear: {out: 6}}, relu, {linear: {out: 3}}]}"),
                  ("method: random, seed: 4, trials: 20, parameters: " + rates, "\ntrain: {epochs: 3, early_stop: {patience: 1}}"),
                  ("method: random, seed: 4, trials: 3, repeat: {seeds: 11}, parameters: " + rates, ""), ("method: grid, repeat: {seeds: 17}, parameters: {optimizer.type: [adam]}", ""),
                  ("method: grid, repeat: {seeds: 3, folds: 2}, parameters: {optimizer.type: [adam, adamw]}", "\ndataset: {format: synthetic, synthetic: {kind: linear, rows: 75, inputs: 5, seed: 5}}\nloss: mse\nmodel: {layers: [{linear: {out: 8}}, relu, {linear: {out: 1}}]}"),
                  ("method: grid, parameters: {seed: {values: [1, 2, 3, 4]}, sampler: {values: [{batch_size: 32, seed: 5}, {batch_size: 32}, {batch_size: 16, shuffle: false}]}, optimizer.lr: {values: [0.1, 0.01]}}", ""),
                  ("method: grid, parameters: {seed: {values: [1, 2, 3, 4, 5, 6]}, sampler.seed: {values: [1, 2, 3]}}", "\nsampler: {batch_size: 32, type: weighted}"),
                  ("method: random, seed: 4, trials: 20, early_terminate: {type: asha, min_epochs: 1, reduction_factor: 2}, parameters: " + rates, "")]
        for i, (sweep, config) in enumerate(cases):
            text = train
            for key in re.findall(r"^(\w+):", config, re.M):
                text = re.sub(rf"^{key}: .*\n", "", text, flags=re.M)
            self.write("base.yaml", text + config + "\n")
            for name, keep in (("alone", "all"), ("group", "none")):
                self.sweep("{config: base.yaml, keep: %s, %s}" % (keep, sweep), "--nproc", 1, name=f"{name}{i}")
            alone, group = ([{k: v for k, v in e.items() if k in ("trial", "repeat", "state", "value", "best_epoch", "epochs", "state_sha256", "message")} for e in sorted(self.history(f"{n}{i}"), key=lambda e: (e["trial"], e["repeat"]))]
                            for n in ("alone", "group"))
            self.assertEqual(group, alone, (sweep, config))
            self.assertEqual([{k: v for k, v in r.items() if k != "seconds"} for r in self.rows(f"group{i}")], [{k: v for k, v in r.items() if k != "seconds"} for r in self.rows(f"alone{i}")])

    def test_the_data_is_read_once(self):
        """Also by trials that cannot use the memory of the trial before: the file may go away after the first one."""
        self.write("data.csv", "a,b,y\n" + "".join(f"{i % 7},{i % 5},{i % 3}\n" for i in range(60)))
        self.write("base.yaml", re.sub(r"dataset: .*", "dataset: {path: data.csv, targets: y, split: {test: 0.25, seed: 1}}", CONFIG))
        trials = "".join(f"  - {{optimizer: {{type: adam, lr: 0.01, in_backward: {str(i % 2 > 0).lower()}}}}}\n" for i in range(400))
        self.write("test.yaml", f"config: base.yaml\nmethod: list\nkeep: none\ntrials:\n{trials}")
        p = self.start("sweep", "test.yaml", "--nproc", 1)
        history = self.path("sweeps/test/history.jsonl")
        self.wait_for(lambda: p.poll() is not None or (os.path.exists(history) and '"event":"run"' in self.read(history)))
        os.remove(self.path("data.csv"))
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, program.OK, err)
        self.assertEqual({r["state"] for r in self.rows()}, {"complete"})

    def test_random_draws_are_within_their_limits_and_depend_on_the_seed_alone(self):
        self.sweep(SWEEP, "trials=40", "--nproc", 2)
        rows = self.rows()
        for row in rows:
            self.assertTrue(1e-3 <= float(row["optimizer.lr"]) <= 1e-1)
            self.assertIn(row["sampler.batch_size"], ("8", "16"))
            self.assertIn(int(row["model.layers.0.linear.out"]), range(4, 13))
        self.assertEqual(len({row["optimizer.lr"] for row in rows}), 40)
        self.assertEqual({row["sampler.batch_size"] for row in rows}, {"8", "16"})
        self.assertEqual({int(row["model.layers.0.linear.out"]) for row in rows}, set(range(4, 13)))
        self.sweep(SWEEP, "trials=40", "--nproc", 3, name="again")
        self.assertEqual(self.rows("again"), rows)
        self.sweep(SWEEP, "trials=40", "seed=4", name="other")
        self.assertNotEqual([r["optimizer.lr"] for r in self.rows("other")], [r["optimizer.lr"] for r in rows])

    def test_overrides_are_part_of_the_sweep(self):
        self.sweep(GRID + "overrides: [train.epochs=2, sampler.batch_size=8]\n", "sampler.batch_size=10", "model.layers.0.linear.out=5")
        self.assertEqual({r["epochs"] for r in self.rows()}, {"2"})
        self.assertIn('overrides: ["train.epochs=2", "sampler.batch_size=8", "sampler.batch_size=10", "model.layers.0.linear.out=5"]\n', self.read("sweeps/test/sweep.yaml"))
        self.assertIn("batch_size: 10\n", self.read("sweeps/test/runs/0000/config.yaml"))
        _, err = self.sweep(GRID + "overrides: [train.epoch=2]\n", name="wrong", code=USAGE)
        self.assertIn("argument 'train.epoch=2': train.epoch: unknown key", err)

    def test_overrides_of_parameters(self):
        """Their keys have dots: an existing one is changed, a new one is what follows `parameters`."""
        self.sweep(SWEEP, "parameters.optimizer.lr.min=0.25", "parameters.optimizer.lr.max=0.5", "parameters.sampler.batch_size.values.1=12",
                   "parameters.model.layers.0.linear.out={value: 5}", "parameters.optimizer.weight_decay={values: [0.125]}")
        for row in self.rows():
            self.assertTrue(0.25 <= float(row["optimizer.lr"]) <= 0.5, row)
            self.assertIn(row["sampler.batch_size"], ("8", "12"))
            self.assertEqual((row["model.layers.0.linear.out"], row["optimizer.weight_decay"]), ("5", "0.125"))
        self.sweep("config: base.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.1}]\n", "trials.0.optimizer.lr=0.2", "trials.0.optimizer.weight_decay=0.5", name="list")
        self.assertIn("trials:\n  - {optimizer.lr: 0.2, optimizer.weight_decay: 0.5}\n", self.read("sweeps/list/sweep.yaml"))
        _, err = self.sweep(SWEEP, "parameters.optimizer.lr.mix=1", name="wrong", code=USAGE)
        self.assertIn("argument 'parameters.optimizer.lr.mix=1': parameters.optimizer.lr.mix: unknown key; did you mean 'min'?", err)
        _, err = self.sweep(SWEEP, "parameters.optimizer.momentun={values: [0.5]}", name="wrong", code=USAGE)
        self.assertIn("argument 'parameters.optimizer.momentun={values: [0.5]}': optimizer.momentun: unknown key", err)
        self.assertEqual(len(err.splitlines()), 1, err)

    def test_a_grid_has_every_combination(self):
        self.sweep(GRID)
        rows = self.rows()
        self.assertEqual([(r["optimizer.lr"], r["optimizer.type"]) for r in rows],
                         list(itertools.product(("0.1", "0.01"), ("sgd", "adam", "adamw"))))
        self.assertEqual(self.kept(), [f"{i:04d}" for i in range(6)])
        self.assertEqual(len({r["state_sha256"] for r in rows}), 6)

    def test_a_parameter_whose_path_has_a_quote_or_a_backslash(self):
        """The lines of the history have escapes in its name; the same command reads them and trains what is left."""
        self.write("pipes.csv", '"5"" pipe",a\\b,y\n' + "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(60)))
        self.write("pipes.yaml", "dataset: {path: pipes.csv, targets: y, split: {test: 0.2, seed: 1}}\nsampler: {batch_size: 16}\n"
                   "model: {layers: [{linear: 2}]}\nloss: cross_entropy\noptimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 2}\n")
        text = """config: pipes.yaml
method: random
trials: %d
parameters:
  'dataset.columns.5" pipe.scale': {values: [standard, none, minmax]}
  'dataset.columns.a\\b.scale': {values: [standard, none]}
"""
        self.sweep(text % 3)
        before = self.rows()
        self.sweep(text % 5)
        self.assertEqual(self.rows()[:3], before)
        self.assert_every_trial_once(5)
        self.run_program("report", "sweeps/test")

    def test_a_list_has_the_trials_that_are_written_down(self):
        self.sweep("config: base.yaml\nmethod: list\nmetric: {name: val_accuracy, goal: maximize}\ntrials:\n"
                   "  - {optimizer: {type: sgd, lr: 0.5, momentum: 0.9}}\n  - {optimizer.lr: 0.02, train.epochs: 2}\n")
        rows = self.rows()
        self.assertEqual([r["optimizer"] for r in rows], ["{type: sgd, lr: 0.5, momentum: 0.9}", ""])
        self.assertEqual([r["optimizer.lr"] for r in rows], ["", "0.02"])
        self.assertEqual([r["epochs"] for r in rows], ["3", "2"])
        values = [e["val_accuracy"] for e in self.events("epoch", "sweeps/test/runs/0001")]
        self.assertEqual(float(rows[1]["val_accuracy"]), max(values))

    def test_the_goal_is_that_of_the_metric_unless_one_is_given(self):
        text = GRID.replace("[0.1, 0.01]", "[0.1, 0.00001]").replace("[sgd, adam, adamw]", "[adam]") + "metric: val_accuracy\n"
        _, err = self.sweep(text, "keep=best 1")
        good, bad = (float(r["val_accuracy"]) for r in self.rows())
        self.assertGreater(good, bad)
        self.assertEqual(self.kept(), ["0000"])
        self.assertIn("  goal: maximize\n", self.read("sweeps/test/sweep.yaml"))
        self.assertNotIn("metric.goal", err)
        _, err = self.sweep(text, "keep=best 1", "metric={name: val_accuracy, goal: minimize}", name="other")
        self.assertEqual(self.kept("other"), ["0001"])
        self.assertIn("metric.goal is minimize, although the usual goal of val_accuracy is maximize; leave goal out to maximize it", err)
        self.sweep(text, "keep=best 1", "metric={name: val_accuracy, goal: minimize}", name="other")  # as a sweep of an earlier version has it
        _, err = self.sweep(text, "keep=best 1", name="other", code=USAGE)
        self.assertIn("folder:   goal: minimize\n  now:      goal: maximize", err)
        self.assertIn("to continue it, give its metric the goal of the folder", err)
        self.sweep(text, "metric={name: val_loss, goal: auto}", name="loss")
        self.assertIn("  goal: minimize\n", self.read("sweeps/loss/sweep.yaml"))

    def test_parameters_that_change_what_the_metric_means(self):
        """A warning, and a notice in the report: the smallest loss may only be another measure."""
        loss = "val_loss is not comparable between trials that differ in {}, which changes what the loss is; choose another metric"
        split = "{} may not be comparable between trials that differ in dataset.split.seed, it may be of other rows or targets"
        smooth = "{type: cross_entropy, label_smoothing: 0.1}"
        self.write("terms.yaml", CONFIG.replace("loss: cross_entropy", "losses: [{type: cross_entropy, name: kind}]"))
        for name, metric, method, sentence in (
                ("a", "val_loss", f"grid\nparameters: {{loss: [cross_entropy, {smooth}]}}", loss.format("loss")),
                ("b", "val_accuracy", f"grid\nparameters: {{loss: [cross_entropy, {smooth}]}}", None),
                ("c", "val_loss", "random\ntrials: 2\nparameters: {loss.label_smoothing: {distribution: uniform, min: 0, max: 0.5}}", loss.format("loss.label_smoothing")),
                ("d", "val_loss", "grid\nparameters: {optimizer.lr: [0.1, 0.01], loss: {value: cross_entropy}}", None),
                ("e", "val_accuracy", "grid\nparameters: {dataset.split.seed: [1, 2]}", split.format("val_accuracy")),
                ("f", "val_loss", f"list\ntrials: [{{optimizer.lr: 0.1}}, {{loss: {smooth}}}]", loss.format("loss")),
                ("g", "val_loss", "list\ntrials: [{optimizer.lr: 0.1}, {optimizer.lr: 0.2}]", None),
                ("h", "val_kind_loss", "grid\nparameters: {losses.0.loss_weight: [1, 2]}", None),  # the loss is without its weight
                ("i", "val_loss", "grid\nparameters: {losses.0.loss_weight: [1, 2]}", loss.format("losses.0.loss_weight"))):
            with self.subTest(name=name):
                base = "terms" if "losses" in method else "base"
                _, err = self.sweep(f"config: {base}.yaml\nmetric: {metric}\nmethod: {method}\n", name=name)
                self.run_program("report", f"sweeps/{name}", "--out", "page.html")
                for text in (err, self.read("page.html")):
                    self.assertEqual(" comparable" in text, sentence is not None)
                    self.assertIn(sentence or "", text)

    def test_words_without_effect(self):
        text = "config: base.yaml\nmethod: grid\nparameters: {optimizer: [sgd, adam]}\n"
        _, err = self.sweep(text, "optimizer.lr=0.3", "sampler.seed=3")
        self.assertIn("warning: optimizer.lr=0.3 has no effect on the trials: parameters.optimizer sets it in each of them\n", err)
        self.assertEqual(err.count("has no effect"), 1)

    def test_repeats_are_seeds_and_folds_and_a_trial_is_their_mean(self):
        self.sweep(GRID + "repeat: {seeds: 2, folds: 3}\n", "keep=best 1", "dataset.split.seed=7")
        rows, summary = self.rows(), self.rows(table="summary.csv")
        self.assertEqual(len(rows), 36)
        self.assertEqual([(r["seed"], r["fold"]) for r in rows[:6]], [(str(s), str(f)) for s in range(2) for f in range(3)])
        for trial, line in enumerate(summary):
            values = [float(r["val_loss"]) for r in rows if int(r["trial"]) == trial]
            self.assertAlmostEqual(float(line["val_loss"]), statistics.fmean(values), delta=1e-12)
            self.assertAlmostEqual(float(line["standard_error"]), statistics.stdev(values) / math.sqrt(6), delta=1e-12)
        best = min(summary, key=lambda r: float(r["val_loss"]))["trial"]
        self.assertEqual(self.kept(), [f"{int(best):04d}"])
        row = next(r for r in rows if r["trial"] == best and (r["seed"], r["fold"]) == ("1", "2"))
        self.run_program("base.yaml", f"optimizer.lr={row['optimizer.lr']}", f"optimizer.type={row['optimizer.type']}", "seed=43", "sampler.seed=1",
                         "dataset.split={seed: 7, folds: 3, fold: 2}", "--run-dir", "alone", "checkpoint.best={metric: val_loss, mode: min}")
        self.assertEqual(self.sha("alone"), row["state_sha256"])
        self.assertEqual(self.sha(f"sweeps/test/runs/{int(best):04d}/seed-1-fold-2"), row["state_sha256"])

    def test_tpe_draws_no_point_that_is_running(self):
        text = """config: base.yaml
method: tpe
trials: 40
seed: 3
parameters:
  optimizer.lr: {values: [0.001, 0.01, 0.1]}
  sampler.batch_size: {values: [8, 16, 32]}
  model.layers.0.linear.out: {distribution: int_uniform, min: 1, max: 6}
"""
        self.sweep(text, "--nproc", 4)
        rows = self.rows("test")
        points = {tuple(v for k, v in row.items() if k.startswith(("optimizer", "sampler", "model"))) for row in rows}
        self.assertEqual((len(rows), len(points)), (40, 40))

    def test_tpe_finds_better_values_than_its_first_draws(self):
        self.sweep(SWEEP.replace("random", "tpe"), "trials=40", "train.epochs=1", "--nproc", 1)
        values = [float(r["val_loss"]) for r in self.rows()]
        self.assertLess(statistics.median(values[20:]), statistics.median(values[:10]))
        again = self.rows()
        self.sweep(SWEEP.replace("random", "tpe"), "trials=40", "train.epochs=1", "--nproc", 1, name="again")
        self.assertEqual(self.rows("again"), again)

    def test_failed_trials_are_rows_and_the_sweep_goes_on(self):
        _, err = self.sweep("config: base.yaml\nmethod: list\ntrials:\n  - {optimizer.lr: 0.01}\n  - {optimizer: {type: sgd, lr: 1.0e+30}}\n"
                            "  - {sampler.batch_size: 4000, sampler.drop_last_batch: true}\n  - {optimizer.lr: 0.02}\n")
        rows = self.rows()
        self.assertEqual([r["state"] for r in rows], ["complete", "failed", "failed", "complete"])
        self.assertIn("not finite", rows[1]["message"])
        self.assertIn("4000", rows[2]["message"])
        self.assertEqual(rows[1]["val_loss"], "")
        self.assertEqual(self.kept(), ["0000", "0003"])
        self.assertIn("trial 1 failed", err)
        _, err = self.sweep("config: base.yaml\nmethod: list\ntrials: [{optimizer: {type: sgd, lr: 1.0e+30}}]\n", name="bad", code=NOT_FINITE)
        self.assertIn("every trial failed; the first: ", err)

    def test_a_budget_ends_the_sweep_and_the_same_command_continues_it(self):
        for epochs, budget in ((60, 0.5), (60, 2), (60, 8), (60, 32), (600, 0.5), (6000, 0.5)):  # until it ends a slow or fast machine's sweep
            words = ("trials=1000", f"train.epochs={epochs}", "keep=best 1", "--nproc", 2)
            out, err = self.sweep(SWEEP, *words, f"budget={budget}", "--fresh")
            done = len(self.rows())
            if 0 < done < 1000:
                break
        self.assertTrue(0 < done < 1000, done)
        self.assertIn(f"the budget of {budget} s is over; run the same command again to continue", err)
        for path in re.findall("ddptrain eval (.*) --checkpoint", out + err):  # of a run that is still to be written nothing is said
            self.assertTrue(os.path.exists(os.path.join(self.folder, path)), path)
        out, err = self.sweep(SWEEP, *words)
        self.assertRegex(out + err, "ddptrain eval .* --checkpoint")
        self.assert_every_trial_once(1000)

    def test_more_trials_and_other_runs_to_keep_continue_a_sweep(self):
        self.sweep(SWEEP, "keep=all")
        rows = self.rows()
        self.sweep(SWEEP, "trials=20", "keep=best 2")
        self.assertEqual(self.rows()[:12], rows)
        self.assert_every_trial_once(20)
        self.assertEqual(len(self.kept()), 2)
        self.sweep(SWEEP, "keep=none", "trials=20")
        self.assertEqual(self.kept(), [])
        self.sweep(SWEEP, "trials=5", "keep=none")
        self.assertEqual(len(self.rows()), 5)


class Folders(SweepCase):
    """Run folders of trials that have become the user's."""
    def extend(self, trial):
        self.run_program(f"sweeps/test/runs/{trial:04d}/config.yaml", "train.epochs=6", "--run-dir", f"sweeps/test/runs/{trial:04d}")
        return self.sha(f"sweeps/test/runs/{trial:04d}")

    def best(self):
        return [int(r["trial"]) for r in sorted(self.rows(), key=lambda r: float(r["val_loss"]))]

    def test_a_run_that_was_trained_further_is_not_removed(self):
        self.sweep(SWEEP, "keep=all")
        best = self.best()
        states = {trial: self.extend(trial) for trial in (best[0], best[-1])}
        rows = self.rows()
        _, err = self.sweep(SWEEP, "keep=best 2")
        self.assertEqual(self.kept(), sorted(f"{t:04d}" for t in (*best[:2], best[-1])))
        self.assertIn(f"sweeps/test/runs/{best[0]:04d}: its run was trained further than the sweep's; the folder is left as it is", err)
        self.assertIn(f"sweeps/test/runs/{best[-1]:04d} is not among the trials to keep, but its run was trained further than the sweep's; the folder is left as it is", err)
        self.assertEqual({trial: self.sha(f"sweeps/test/runs/{trial:04d}") for trial in states}, states)
        self.assertEqual(self.rows(), rows)
        self.sweep(SWEEP, "keep=best 2", "trials=20")
        self.assertEqual({trial: self.sha(f"sweeps/test/runs/{trial:04d}") for trial in states}, states)

    def test_a_run_that_is_being_trained_further_is_not_removed(self):
        """Its metrics.jsonl has later epochs, but no end yet."""
        self.sweep(SWEEP, "keep=all", "trials=3")
        self.extend(1)
        lines = self.read("sweeps/test/runs/0001/metrics.jsonl").splitlines()
        self.assertIn('"event":"end"', lines[-1])
        self.write("sweeps/test/runs/0001/metrics.jsonl", "\n".join(lines[:-1]) + "\n")
        _, err = self.sweep(SWEEP, "keep=none", "trials=3")
        self.assertEqual(self.kept(), ["0001"])
        self.assertIn("runs/0001 is not among the trials to keep, but its run was trained further", err)

    def test_a_run_that_stopped_within_its_first_further_epoch_is_not_removed(self):
        """Its metrics.jsonl ends with the start, a step or the stop of the longer run."""
        self.sweep(SWEEP, "keep=all", "trials=4")
        self.extend(0)
        lines = self.read("sweeps/test/runs/0000/metrics.jsonl").splitlines(True)
        at = max(i for i, line in enumerate(lines) if '"event":"resume"' in line or '"event":"start"' in line)
        step = next(line for line in lines[at:] if '"event":"step"' in line)
        stop = lines[-1].replace('"event":"end","epoch":6', '"event":"stopped","epoch":3')
        for ending in ([], [step], [step, stop], [stop]):
            for trial in ("0000", "0001"):
                self.write(f"sweeps/test/runs/{trial}/metrics.jsonl", "".join(lines[:at + 1] + ending))
            _, err = self.sweep(SWEEP, "keep=best 1", "trials=4")
            for trial in ("0000", "0001"):
                self.assertIn(trial, self.kept(), ending)
                self.assertRegex(err, f"runs/{trial}(:| is not among the trials to keep, but) its run was trained further")

    def test_a_run_in_progress_is_not_removed(self):
        self.sweep(SWEEP, "keep=all", "trials=3")
        path = "sweeps/test/runs/0002"
        p = self.start(f"{path}/config.yaml", "train.epochs=100000000", "train.log_every=0", "--run-dir", path)
        self.wait_for(lambda: "running" in self.run_program("runs", "sweeps/test/runs")[0], what="the run")
        _, err = self.sweep(SWEEP, "keep=none", "trials=3")
        self.assertEqual(self.kept(), ["0002"])
        self.assertIn("runs/0002 is not among the trials to keep, but its run was trained further", err)
        p.terminate()
        p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, program.STOPPED)

    def test_another_state_is_no_longer_run(self):
        """As trained on another machine: kept trials are trained again, and each start says so."""
        self.sweep(SWEEP, "keep=none", "trials=3")
        history = self.read("sweeps/test/history.jsonl")
        self.write("sweeps/test/history.jsonl", re.sub('"state_sha256":"....', '"state_sha256":"abcd', history))
        for _ in range(2):
            _, err = self.sweep(SWEEP, "keep=all", "trials=3", code=70)
            self.assertIn("gave another state when it was trained again", err)
            self.assertNotIn("trained further", err)

    def test_a_last_epoch_that_is_a_part(self):
        """The line of the epoch that train.steps ends in the middle is not further training."""
        steps = "overrides=[train.epochs=null, train.steps=7]"
        _, err = self.sweep(SWEEP, steps, "keep=best 2")
        self.assertNotIn("trained further", err)
        best = f"sweeps/test/runs/{self.best()[0]:04d}"
        self.run_program(f"{best}/config.yaml", "train.steps=8", "--run-dir", best)
        _, err = self.sweep(SWEEP, steps, "keep=best 3")
        self.assertIn(f"{best}: its run was trained further than the sweep's", err)

    def test_all_files_of_runs_are_removed(self):
        for words in (("train.tensorboard=true",), ("nproc_per_trial=2", "--nproc", 2), ("repeat.seeds=2",), ("checkpoint.keep=0",)):
            with self.subTest(words=words):
                self.sweep(SWEEP, "keep=all", "trials=3", *words)
                self.assertEqual(len(self.kept()), 3)
                self.sweep(SWEEP, "keep=none", "trials=3", *words)
                self.assertEqual(self.kept(), [])
                os.rename(self.path("sweeps/test"), self.path(words[0]))

    def test_files_of_the_user_are_not_removed(self):
        self.sweep(SWEEP, "keep=all", "trials=5")
        self.run_program("report", "sweeps/test/runs/0004")
        self.write("sweeps/test/runs/0004/.DS_Store", "of a file manager")
        for i, name in enumerate(("notes.txt", "checkpoints/mine.h5", "logs/a", "plots/a.png")):
            path = f"sweeps/test/runs/{i:04d}/{name}"
            os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
            self.write(path, "mine")
        _, err = self.sweep(SWEEP, "keep=none", "trials=5")
        self.assertEqual(self.kept(), [f"{i:04d}" for i in range(4)])
        for i, name in enumerate(("notes.txt", "checkpoints/mine.h5", "logs/a", "plots")):
            self.assertIn(f"runs/{i:04d} is not among the trials to keep, but it contains {name}, which no run writes; the folder is left as it is", err)
            self.run_program("eval", f"sweeps/test/runs/{i:04d}/config.yaml")

    def test_fewer_trials_remove_no_folder_of_the_others(self):
        self.sweep(SWEEP, "keep=all")
        _, err = self.sweep(SWEEP, "keep=best 2", "trials=4")
        self.assertEqual(self.kept()[2:], [f"{i:04d}" for i in range(4, 12)])
        self.assertEqual(len(self.kept()), 10)
        self.assertIn("sweeps/test/runs has 8 folders of trials from number 4 on, which trials: 4 leaves out; nothing is removed there", err)

    def test_the_values_of_a_longer_run_are_not_those_of_a_trial(self):
        self.sweep(SWEEP, "keep=all")
        self.extend(11)
        self.write("sweeps/test/history.jsonl", "".join(line + "\n" for line in self.read("sweeps/test/history.jsonl").splitlines() if '"trial":11,' not in line))
        _, err = self.sweep(SWEEP, "keep=all", code=program.IO)
        self.assertIn("trial 11: the run in sweeps/test/runs/0011 was trained for 6 epochs, the trial has 3; move the folder elsewhere and run the same command again", err)
        os.rename(self.path("sweeps/test/runs/0011"), self.path("mine"))
        self.sweep(SWEEP, "keep=all")
        self.assert_every_trial_once(12)


class Edges(SweepCase):
    """What only some runs, some starts or some configs meet."""
    DIVERGES = """
dataset: {path: rows.csv, split: {test: 0.25, seed: 1}}
sampler: {batch_size: 16}
model: {layers: [{linear: {out: 8}}, relu, {linear: {out: 1}}]}
loss: mse
optimizer: {type: sgd, lr: 0.2}
train: {epochs: 10}
"""  # with about one seed of six

    def write_rows(self):
        rng = random.Random(0)
        rows = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(80)]
        self.write("rows.csv", "a,b,c,y\n" + "".join(f"{a},{b},{c},{a + 2 * b + 3 * c}\n" for a, b, c in rows))

    def test_a_failed_run_does_not_decide_which_others_are_done(self):
        self.write_rows()
        self.write("base.yaml", self.DIVERGES)
        text = "config: base.yaml\nmethod: grid\nrepeat: {seeds: 20}\nkeep: none\nparameters: {optimizer.lr: [0.2, 0.01]}\n"
        for workers in (1, 2, 3):
            self.sweep(text, "--nproc", workers, name=f"on{workers}")
            rows = self.rows(f"on{workers}")
            self.assertEqual(len(rows), 40)
            self.assertTrue(0 < sum(r["state"] == "failed" for r in rows[:20]) < 20)
            self.assertEqual(rows, self.rows("on1"))
        self.write("other.yaml", self.DIVERGES.replace("lr: 0.2", "lr: 0.01"))
        out, _ = self.run_program("compare", "base.yaml", "other.yaml", "--seeds", 20)
        complete = sum(r["state"] == "complete" for r in self.rows("on1")[:20])
        self.assertIn(f"val_loss over {complete} seeds\n{20 - complete} pair", out)

    def test_trials_of_some_tenths_of_a_second_are_not_trained_twice(self):
        """All are kept: each has its run folder from the start, and the end of the sweep writes none of them again."""
        self.sweep("config: base.yaml\nmethod: grid\nparameters: {optimizer.lr: [0.01, 0.02, 0.03]}\n", "train.epochs=30000", "--nproc", 1)
        history = os.stat(self.path("sweeps/test/history.jsonl")).st_mtime_ns
        self.assertEqual(len(self.kept()), 3)
        for trial in self.kept():
            self.assertLessEqual(os.stat(self.path("sweeps/test/runs", trial, "metrics.jsonl")).st_mtime_ns, history, trial)

    def test_slow_saves_of_a_trial_give_the_next_ones_no_folder(self):
        """The first trial of a worker gets a folder after 0.1 s; whether the next ones have one depends on its training, which must
        take 1 s, not on its saves."""
        slow, epochs, found = {"DDPTRAIN_FAULT": "1:slow:ever", "DDPTRAIN_FAULT_FILTER": "checkpoints/"}, 1500, set()
        for name in map(str, range(60)):  # again where the training took less than 0.1 s, or as long as is too long
            words = ("keep=none", f"train.epochs={epochs}", f"checkpoint.save_every={max(epochs // 10, 1)}", "--nproc", 1)
            self.sweep(SWEEP, "trials=1", *words, name=name)
            if self.history(name)[0]["seconds"] < 0.12:
                epochs += epochs // 2
                continue
            for trial in range(1, 5):  # a folder with a user's file is not removed, so it shows whether a run was there
                os.mkdir(self.path(f"sweeps/{name}/runs/{trial:04d}"))
                self.write(f"sweeps/{name}/runs/{trial:04d}/notes.txt", "mine")
            self.sweep(SWEEP, "trials=5", *words, name=name, env=slow)
            found = {trial for trial in range(1, 5) if os.path.exists(self.path(f"sweeps/{name}/runs/{trial:04d}/metrics.jsonl"))}
            if 1 in found and max(e["seconds"] for e in self.history(name)) < 0.5:
                break
            epochs = epochs * 3 // 4 if 1 in found else epochs * 3 // 2
        self.assertEqual(found, {1})

    def test_a_repeated_trial_keeps_its_folders_while_one_of_its_runs_goes_on(self):
        """Also when another run of it has failed: the folder of a run in progress is never removed."""
        self.write_rows()
        self.write("base.yaml", self.DIVERGES)
        for _ in range(4):
            self.sweep("config: base.yaml\nmethod: grid\nrepeat: {seeds: 6}\nkeep: best 1\nparameters: {optimizer.lr: [0.2, 0.01]}\n", "train.epochs=2000", "--nproc", 3, "--fresh")
            self.assertEqual(len(self.rows()), 12)

    def test_all_runs_of_a_sweep_that_kept_fewer(self):
        self.sweep(GRID, "keep=best 2")
        rows = self.rows()
        self.sweep(GRID, "keep=all")
        self.assertEqual(self.kept(), [f"{i:04d}" for i in range(6)])
        for row in rows:
            self.assertEqual(self.sha(f"sweeps/test/runs/{int(row['trial']):04d}"), row["state_sha256"])
        self.assertEqual(self.rows(), rows)

    def test_more_runs_to_keep_than_trials(self):
        self.sweep(GRID, "keep=best 999999999999999999")
        self.assertEqual(self.kept(), [f"{i:04d}" for i in range(6)])
        self.assert_every_trial_once(6)

    def test_folds_of_a_config_with_a_split_in_one_word(self):
        text = "config: base.yaml\nmethod: grid\nrepeat: {folds: 3}\nparameters: {optimizer.lr: [0.01]}\n"
        self.sweep(text)
        self.write("base.yaml", CONFIG.replace("{test: 0.25, seed: 1}", "0.25"))
        self.sweep(text, name="short")
        self.run_program("base.yaml", "dataset.split={folds: 3, fold: 2}", "--run-dir", "alone")
        self.assertEqual(self.rows("short")[2]["state_sha256"], self.sha("alone"))
        self.assertNotEqual(self.rows("short"), self.rows())  # of another seed

    def test_folds_of_a_config_without_a_split(self):
        self.write("base.yaml", CONFIG.replace(", split: {test: 0.25, seed: 1}", ""))
        self.sweep("config: base.yaml\nmethod: grid\nrepeat: {seeds: 2, folds: 3}\nparameters: {optimizer.lr: [0.01]}\n")
        self.assertEqual({r["state"] for r in self.rows()}, {"complete"})
        self.run_program("base.yaml", "dataset.split={folds: 3, fold: 2}", "seed=43", "sampler.seed=1", "--run-dir", "alone")
        self.assertEqual(self.rows()[5]["state_sha256"], self.sha("alone"))
        _, err = self.sweep("config: base.yaml\nmethod: grid\nrepeat: {seeds: 2}\nparameters: {optimizer.lr: [0.01]}\n", name="seeds", code=USAGE)
        self.assertIn("val_loss needs validation rows", err)

    def test_a_sweep_that_gets_seeds_or_loses_them(self):
        """The runs of the first seed are moved, with what the user has added, and are not trained again."""
        for folds, before, after in (("", "", "/seed-0"), ("folds: 2, ", "/fold-1", "/seed-0-fold-1")):
            with self.subTest(folds):
                text = f"config: base.yaml\nmethod: grid\ntensorboard: true\nrepeat: {{{folds}seeds: %s}}\nparameters: {{optimizer.lr: [0.1, 0.01]}}\n"
                words = ["dataset.split={seed: 7}"] if folds else []
                self.sweep(text % "null", *words, "--fresh")
                runs = self.path("sweeps/test/runs/0001")
                self.write("sweeps/test/runs/0001/notes.txt", "of the user")
                first = os.stat(runs + before + "/metrics.jsonl").st_ino
                _, err = self.sweep(text % 2, *words)
                self.assertIn(f"moved {4 if folds else 2} runs of the first seed, since repeat.seeds has changed", err)
                self.assertEqual(os.stat(runs + after + "/metrics.jsonl").st_ino, first)
                repeats = [f"seed-{s}{fold}" for s in range(2) for fold in (("-fold-0", "-fold-1") if folds else ("",))]
                self.assertEqual(sorted(os.listdir(runs)), (["notes.txt"] if folds else []) + repeats)
                self.assertEqual(self.read(f"sweeps/test/runs/0001{'' if folds else '/seed-0'}/notes.txt"), "of the user")
                self.assertEqual(len(os.listdir(self.path("sweeps/test/tensorboard"))), 8 if folds else 4)
                out, _ = self.run_program("runs", "sweeps/test/runs")
                self.assertEqual(len(out.splitlines()), 9 if folds else 5)
                row = [r for r in self.rows() if r["trial"] == "1"][1 if folds else 0]
                self.assertEqual(self.sha("sweeps/test/runs/0001" + after), row["state_sha256"])
                self.sweep(text % "null", *words)
                self.assertEqual(os.stat(runs + before + "/metrics.jsonl").st_ino, first)
                self.assertFalse(os.path.exists(runs + after))

    def test_seeds_after_a_kill_between_two_files_of_a_run(self):
        text = "config: base.yaml\nmethod: grid\nparameters: {optimizer.lr: [0.1]}\n"
        self.sweep(text)
        os.mkdir(self.path("sweeps/test/runs/0000/seed-0"))
        os.rename(self.path("sweeps/test/runs/0000/checkpoints"), self.path("sweeps/test/runs/0000/seed-0/checkpoints"))
        self.sweep(text, "repeat.seeds=2")
        self.assertEqual(sorted(os.listdir(self.path("sweeps/test/runs/0000"))), ["seed-0", "seed-1"])
        self.assertEqual(self.sha("sweeps/test/runs/0000/seed-0"), self.rows()[0]["state_sha256"])

    def test_a_seed_that_has_no_next_one(self):
        self.sweep("config: base.yaml\nmethod: grid\nrepeat: {seeds: 2}\nparameters: {start: {keys: [seed], values: [9223372036854775807]}}\n")
        rows = self.rows()
        self.assertEqual([r["state"] for r in rows], ["complete", "failed"])
        self.assertEqual(rows[1]["message"], "repeat.seeds: seed 9223372036854775807 or sampler.seed 0 plus 1 is above the largest seed; choose a smaller one")

    def test_a_metric_that_is_infinite(self):
        self.write("base.yaml", CONFIG.replace("epochs: 3", "epochs: 3, metrics: [perplexity]").replace("adam", "sgd"))
        text = "config: base.yaml\nmethod: grid\nmetric: val_perplexity\nparameters: {optimizer.lr: [1000000, 0.1]}\n"
        self.sweep(text)
        rows = self.rows()
        self.assertEqual((rows[0]["state"], rows[0]["val_perplexity"], self.kept()), ("complete", "", ["0001"]))
        self.sweep(text)
        self.assertEqual((self.rows(), self.kept()), (rows, ["0001"]))

    def test_a_metric_that_is_not_defined(self):
        """The validation rows are all of one class."""
        self.write("t.csv", "a,y\n" + "".join(f"{i % 7},{int(i % 3 == 0 and i < 40)}\n" for i in range(60)))
        self.write("base.yaml", "dataset: {path: t.csv, targets: y, split: {test: 0.2, shuffle: false}}\nsampler: {batch_size: 16}\n"
                   "model: {layers: [{linear: 2}]}\nloss: cross_entropy\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 2, metrics: [auc]}\n")
        sentence = ("val_auc is not a finite number in %s complete runs; it may not be defined for their validation rows (auc needs rows of two classes, "
                    "r2 targets that differ), or the training has diverged")
        _, err = self.sweep(GRID + "metric: val_auc\n")
        self.assertIn("warning: " + sentence % "6 of 6", err)
        self.assertNotIn("best of", err)
        _, err = self.sweep(GRID + "other_metrics: {val_auc: auto}\n", name="others")
        self.assertIn("warning: " + sentence % "6 of 6" + ", and such trials are not on the Pareto front", err)
        self.write("other.yaml", self.read("base.yaml").replace("0.01", "0.02"))
        _, err = self.run_program("compare", "base.yaml", "other.yaml", "--metric", "val_auc", "--seeds", 3, code=DATA)
        self.assertIn("fewer than two pairs of runs have values: " + sentence % "6 of 6" + ": see sweeps/base-or-other-val_auc/trials.csv", err)

    def test_a_message_that_is_cut(self):
        """Not within a character, also where the name before has an even or odd length."""
        for start in ("x", "xy"):
            folder = os.path.join(start + "\u00e9" * 100, *["\u00e9" * 100] * 5)
            os.makedirs(self.path(folder))
            self.write(folder + "/a.csv", "a,b\n1,2\n3\n")
            text = f"config: base.yaml\nmethod: grid\nparameters: {{dataset: [{{path: {folder}/a.csv}}, {{synthetic: {{kind: classes}}, format: synthetic}}]}}\n"
            self.sweep(text, "dataset.split.test=0", "metric=train_loss", name=start)
            rows = self.rows(start)
            self.assertEqual((rows[0]["state"], rows[0]["message"][-1]), ("failed", "\u00e9"))
            self.sweep(text, "dataset.split.test=0", "metric=train_loss", name=start)
            self.assertEqual(self.rows(start), rows)

    def test_a_kill_at_each_of_the_first_system_calls(self):
        self.sweep(GRID, "keep=best 2")
        self.write("killed.yaml", GRID)
        for number in range(1, 25, 4 if program.SANITIZER else 1):
            with self.subTest(number=number):
                fault = {"DDPTRAIN_FAULT": f"{number}:kill", "DDPTRAIN_FAULT_FILTER": "sweeps/killed"}
                self.start("sweep", "killed.yaml", "keep=best 2", "--nproc", "1", env=fault).communicate()
                self.sweep(GRID, "keep=best 2", name="killed")
                self.assertEqual((self.rows("killed"), self.kept("killed")), (self.rows(), self.kept()))
                subprocess.run(["rm", "-r", self.path("sweeps", "killed")], check=True)


class Data(SweepCase):
    """A sweep or comparison is not continued with other rows."""
    OTHER = "trained on other data (fingerprint "

    def setUp(self):
        super().setUp()
        self.write_rows("t.csv", 0)
        self.write("base.yaml", CONFIG[:1] + "dataset: {path: t.csv, targets: y, split: {test: 0.25, seed: 1}}\n" + CONFIG[CONFIG.index("sampler"):])

    def write_rows(self, name, seed):
        draw = random.Random(seed)
        self.write(name, "a,b,y\n" + "".join(f"{draw.gauss(0, 1):.3f},{draw.gauss(0, 1):.3f},{i % 3}\n" for i in range(60)))

    def assert_only_the_same_rows_continue(self, *words, file="t.csv", text=SWEEP):
        self.sweep(text, "trials=4", *words)
        rows, whole = self.rows(), self.read(f"{file}")
        self.write_rows(file, 7)
        _, err = self.sweep(text, "trials=8", *words, code=DATA)
        self.assertIn(self.OTHER, err)
        self.assertIn("use the same dataset, or --fresh to start over", err)
        self.write(file, whole)
        self.sweep(text, "trials=8", *words)
        self.assertEqual(self.rows()[:len(rows)], rows)
        self.assertEqual(len(self.rows()), 2 * len(rows))

    def test_rows_that_have_changed(self):
        self.assert_only_the_same_rows_continue()
        rows = self.rows()
        self.write_rows("t.csv", 7)
        _, err = self.sweep(SWEEP, "trials=8", code=DATA)
        self.assertIn(self.OTHER, err)
        self.sweep(SWEEP, "trials=4", code=DATA)
        self.assertEqual(self.rows("test")[:4], rows[:4])
        self.sweep(SWEEP, "trials=4", "--fresh")

    def test_rows_of_trials_of_several_processes(self):
        self.write_rows("t.csv", 0)
        self.sweep(SWEEP, "trials=1", "nproc_per_trial=2", "--nproc", 2)
        self.write_rows("t.csv", 7)
        _, err = self.sweep(SWEEP, "trials=2", "nproc_per_trial=2", "--nproc", 2, code=DATA)
        self.assertIn(self.OTHER, err)

    def test_rows_of_folds(self):
        self.assert_only_the_same_rows_continue("repeat.folds=3")

    def test_rows_of_a_parameter(self):
        self.write_rows("u.csv", 1)
        self.assert_only_the_same_rows_continue(file="u.csv", text="config: base.yaml\nmethod: random\ntrials: 4\nparameters: {dataset.path: [u.csv], optimizer.lr: [0.1, 0.2, 0.3]}\n")

    def test_a_history_without_fingerprints(self):
        self.sweep(SWEEP, "trials=4", "keep=none")
        history = self.read("sweeps/test/history.jsonl")
        before, count = re.subn(',"data":{"[0-9a-f]{16}":"[0-9a-f]{64}"}', "", history)
        self.assertEqual((count, before.count("data")), (1, 0))
        self.write("sweeps/test/history.jsonl", before)
        self.write_rows("t.csv", 7)
        self.sweep(SWEEP, "trials=5", "keep=none")

    def test_a_comparison(self):
        self.write("other.yaml", self.read("base.yaml").replace("t.csv", "u.csv"))
        self.write_rows("u.csv", 0)
        self.run_program("compare", "base.yaml", "other.yaml", "--seeds", 2)
        for name in ("t.csv", "u.csv"):
            self.write_rows(name, 7)
            self.run_program("compare", "base.yaml", "other.yaml", "--seeds", 4, code=DATA, err=self.OTHER)
            self.write_rows(name, 0)
        self.run_program("compare", "base.yaml", "other.yaml", "--seeds", 4)


class Pruning(SweepCase):
    LONG = SWEEP + "early_terminate: {type: %s, min_epochs: 2, reduction_factor: 2}\n"

    def reports(self, name="test"):
        """(trial, epoch) -> value, and the order in which they came."""
        return [(e["trial"], e["epoch"], e["value"]) for e in self.history(name, "epoch")]

    def test_asha_stops_what_is_not_among_the_best_of_a_rung(self):
        self.sweep(self.LONG % "asha", "trials=30", "train.epochs=9", "--nproc", 2)
        rungs, stopped = {}, {}
        for trial, epoch, value in self.reports():  # Optuna's SuccessiveHalvingPruner
            if epoch in (2, 4, 8):
                rung = rungs.setdefault(epoch, [])
                rung.append(value)
                if value > sorted(rung)[max(len(rung) // 2, 1) - 1]:
                    stopped[trial] = epoch
        rows = self.rows()
        self.assertTrue(5 < len(stopped) < 30)
        for row in rows:
            trial = int(row["trial"])
            self.assertEqual(row["state"], "pruned" if trial in stopped else "complete", row)
            self.assertEqual(int(row["epochs"]), stopped.get(trial, 9))

    def test_hyperband_is_an_asha_in_each_bracket(self):
        """Li et al. 2018; the rungs and the shares of the brackets are computed here."""
        first, factor, epochs = 1, 2, 9
        self.sweep(SWEEP + "early_terminate: {type: hyperband, reduction_factor: 2}\n", "trials=40", f"train.epochs={epochs}", "--nproc", 2)
        self.assertRegex(self.read("sweeps/test/sweep.yaml"), "\n  max_epochs: 9\n")
        last = 3  # floor(log2(9)): brackets 0 to 3
        shares = [factor ** (last - b) / (last - b + 1) for b in range(last + 1)]
        ends = [sum(shares[:b + 1]) / sum(shares) for b in range(last + 1)]

        def bracket(trial):
            part = trial * 0x9e3779b97f4a7c15 % 2 ** 64 / 2 ** 64
            return next(b for b in range(last + 1) if part < ends[b] or b == last)

        rungs, stopped = {}, {}
        for trial, epoch, value in self.reports():
            if epoch in [first * factor ** k for k in range(bracket(trial), last)]:
                rung = rungs.setdefault((bracket(trial), epoch), [])
                rung.append(value)
                if value > sorted(rung)[max(len(rung) // factor, 1) - 1]:
                    stopped[trial] = epoch
        self.assertEqual({b for b, _ in rungs}, {0, 1, 2})
        self.assertTrue({bracket(t) for t in stopped} >= {0, 1})
        for row in self.rows():
            trial = int(row["trial"])
            self.assertEqual(row["state"], "pruned" if trial in stopped else "complete", row)
            self.assertEqual(int(row["epochs"]), stopped.get(trial, epochs))

    def test_hyperband_without_brackets(self):
        for rule, words, message in (
                ("hyperband", ("train.epochs=2",), "max_epochs: hyperband needs at least min_epochs times reduction_factor, 3 epochs, got 2"),
                ("hyperband", ("train.steps=9",), "max_epochs: missing: hyperband needs it, since the config has no train.epochs"),
                ("{type: hyperband, max_epochs: 20, min_epochs: 8}", (), "max_epochs: hyperband needs at least min_epochs times reduction_factor, 24 epochs, got 20"),
                ("{type: hyperband, max_epochs: 9, reduction_factor: 1.01}", (), "reduction_factor: hyperband would have 221 brackets, more than 100; choose a larger one")):
            _, err = self.sweep(GRID + f"early_terminate: {rule}\n", *words, name="bad", code=USAGE)
            self.assertEqual(err, f"bad.yaml:7:18: early_terminate.{message}\n")

    def test_the_median_rule_stops_what_is_worse_than_the_complete_runs(self):
        self.sweep(self.LONG % "median", "trials=30", "train.epochs=6", "--nproc", 1)
        reports, complete, values, stopped = self.reports(), set(), {}, {}
        for trial in sorted({t for t, _, _ in reports}):
            mine = {e: v for t, e, v in reports if t == trial}
            for epoch in sorted(mine):
                others = [values[t][epoch] for t in complete]
                best = min(v for e, v in mine.items() if e <= epoch)
                if epoch >= 2 and len(others) >= 5 and best > statistics.median(others):
                    stopped[trial] = epoch
                    break
            values[trial] = mine
            if trial not in stopped:
                complete.add(trial)
        self.assertTrue(3 < len(stopped) < 25)
        self.assertEqual({int(r["trial"]) for r in self.rows() if r["state"] == "pruned"}, set(stopped))

    def test_a_sweep_that_was_killed_prunes_as_if_it_had_not_been(self):
        """One worker: the order of the runs is the same."""
        text = self.LONG % "asha"
        words = ("trials=60", "train.epochs=9", "--nproc", "1")
        self.sweep(text, *words)
        self.write("killed.yaml", text)
        rng = random.Random(1)
        for _ in range(4):
            p = self.start("sweep", "killed.yaml", *words)
            time.sleep(rng.uniform(0.02, 0.15) * program.SLOW)
            p.kill()
            p.communicate()
        self.sweep(text, *words, name="killed")
        self.assertEqual(self.rows("killed"), self.rows())

    def test_a_kill_between_a_decision_and_its_result(self):
        """The worker has saved the epoch at which it was told to stop, and would not ask again."""
        for rule, metric, method in (("asha", "val_loss", ()), ("median", "val_accuracy", ()), ("hyperband", "val_loss", ()), ("asha", "val_loss", ("method=tpe",))):
            text = self.LONG % f"{rule}, startup_trials: 2" + f"metric: {metric}\nkeep: all\n"
            words = ("trials=16", "train.epochs=9", *method, "--nproc", "1")
            self.sweep(text, *words, "--fresh", name=rule)
            lines, table = self.read(f"sweeps/{rule}/history.jsonl").splitlines(keepends=True), self.read(f"sweeps/{rule}/trials.csv")
            pruned = [r for r in self.history(rule) if r["state"] == "pruned"]
            self.assertTrue(1 < len(pruned) < 15, pruned)
            for run in (pruned[-1], pruned[0]):
                end = next(i for i, line in enumerate(lines) if line.startswith('{"event":"run","trial":%d,' % run["trial"]))
                self.write(f"sweeps/{rule}/history.jsonl", "".join(lines[:end]))
                for trial in self.kept(rule):
                    if int(trial) > run["trial"]:
                        shutil.rmtree(self.path("sweeps", rule, "runs", trial))
                self.sweep(text, *words, name=rule)
                self.assertEqual(self.read(f"sweeps/{rule}/trials.csv"), table)
                self.assertEqual(run["epochs"], max(e["epoch"] for e in self.history(rule, "epoch") if e["trial"] == run["trial"]))

    def test_a_worker_that_is_lost_after_a_decision(self):
        """It was told to stop, and is killed while it writes to the run folder."""
        text = "config: base.yaml\nmethod: list\nearly_terminate: asha\nkeep: all\ntrials: [{optimizer.lr: 0.1}, {optimizer.lr: 1.0e-5}]\n"
        self.sweep(text, "--nproc", "1")
        self.assertEqual(self.history()[1]["state"], "pruned")
        was_lost = False
        for call in (36, 44, 52, 60):
            name = f"lost{call}"
            self.sweep(text, "--nproc", "1", name=name, env={"DDPTRAIN_FAULT": f"{call}:kill", "DDPTRAIN_FAULT_FILTER": "runs/0001"})
            self.assertEqual(self.read(f"sweeps/{name}/trials.csv"), self.read("sweeps/test/trials.csv"))
            was_lost = was_lost or self.history(name)[1]["seconds"] == 0
        self.assertTrue(was_lost)

    def test_runs_that_are_evaluated_at_their_end(self):
        self.sweep(GRID, "train.evaluate_every=0")
        for row in self.rows():
            self.assertEqual((row["state"], row["best_epoch"], row["epochs"]), ("complete", "3", "3"))
            self.assertEqual([e["val_loss"] for e in self.events("epoch", f"sweeps/test/runs/{int(row['trial']):04d}") if "val_loss" in e],
                             [float(row["val_loss"])])
        _, err = self.sweep(GRID + "early_terminate: median\n", "train.evaluate_every=0", name="pruned", code=USAGE)
        self.assertEqual(err, "pruned.yaml:7:18: early_terminate: nothing is evaluated before the last epoch (train.evaluate_every: 0)\n")

    def test_a_rung_at_the_end_stops_no_run(self):
        self.sweep(self.LONG % "asha", "trials=8", "train.epochs=4", "--nproc", "1")
        self.assertIn("must_stop", self.read("sweeps/test/history.jsonl"))
        self.assertTrue(all(e["epoch"] < 4 for e in self.history("test", "epoch") if e.get("must_stop")))
        self.assertEqual({(r["state"], r["epochs"]) for r in self.rows()}, {("complete", "4"), ("pruned", "2")})


class OtherMetrics(SweepCase):
    """Several metrics: the Pareto front."""
    TEXT = SWEEP.replace("trials: 12", "trials: 40").replace("max: 1.0e-1", "max: 1.0e-2") + "other_metrics: {parameters: minimize, val_accuracy: auto}\n"

    def front(self, rows, signs):
        """By definition."""
        values = {r["trial"]: [sign * float(r[name]) for name, sign in signs.items()] for r in rows}
        return {t for t, v in values.items()
                if not any(all(a <= b for a, b in zip(w, v)) and w != v for w in values.values())}

    def test_the_front_is_in_the_table_and_at_the_end(self):
        out, err = self.sweep(self.TEXT, "keep=all", "--nproc", 2)
        rows = self.rows()
        self.assertEqual(list(rows[0])[-8:], ["val_loss", "parameters", "val_accuracy", "pareto_front", "best_epoch", "epochs", "state_sha256", "message"])
        for row in rows:
            path = f"sweeps/test/runs/{int(row['trial']):04d}"
            best = next(e for e in self.events("epoch", path) if e["epoch"] == int(row["best_epoch"]) - 1)
            self.assertEqual(float(row["val_accuracy"]), best["val_accuracy"])
            self.assertEqual(int(row["parameters"]), self.events("start", path)[0]["parameters"])
            width = int(row["model.layers.0.linear.out"])
            self.assertEqual(int(row["parameters"]), 7 * width + 3 * (width + 1))
        front = self.front(rows, {"val_loss": 1, "parameters": 1, "val_accuracy": -1})
        self.assertTrue(3 < len(front) < 30, front)
        self.assertEqual({r["trial"] for r in rows if r["pareto_front"] == "1"}, front)
        self.assertEqual({r["pareto_front"] for r in rows}, {"0", "1"})
        log = out + err
        self.assertIn(f"Pareto front of val_loss (minimize), parameters (minimize), val_accuracy (maximize): {len(front)} trials:\n", log)
        shown = re.findall(r"^  trial (\d+) ", log, re.M)
        by_loss = sorted((r for r in rows if r["trial"] in front), key=lambda r: float(r["val_loss"]))
        self.assertEqual([int(t) for t in shown], [int(r["trial"]) for r in by_loss])

    def test_a_long_front(self):
        out, err = self.sweep(self.TEXT, "other_metrics={train_loss: maximize}")
        front = self.front(self.rows(), {"val_loss": 1, "train_loss": -1})
        self.assertTrue(20 < len(front), front)
        self.assertIn(f"Pareto front of val_loss (minimize), train_loss (maximize): {len(front)} trials, the first of them:\n", out + err)
        self.assertEqual(len(re.findall(r"^  trial \d+ ", out + err, re.M)), 20)
        self.assertEqual({r["trial"] for r in self.rows() if r["pareto_front"] == "1"}, front)

    def test_the_front_is_kept_first(self):
        """`keep: best N`: the front by the metric, then the others; runs that lost their folders meanwhile are trained again."""
        self.sweep(self.TEXT, "--nproc", 2)
        rows, table = self.rows(), self.read("sweeps/test/trials.csv")
        order = sorted(rows, key=lambda r: (r["pareto_front"] == "0", float(r["val_loss"]), int(r["trial"])))
        self.assertEqual([int(t) for t in self.kept()], sorted(int(r["trial"]) for r in order[:10]))
        self.sweep(self.TEXT, "keep=best 3")
        self.assertEqual([int(t) for t in self.kept()], sorted(int(r["trial"]) for r in order[:3]))
        self.sweep(self.TEXT, "keep=best 17")
        self.assertEqual([int(t) for t in self.kept()], sorted(int(r["trial"]) for r in order[:17]))
        self.assertEqual(self.read("sweeps/test/trials.csv"), table)

    def test_repeats_and_kills_and_seconds(self):
        text = self.TEXT.replace("trials: 40", "trials: 16") + "repeat: {seeds: 2}\n"
        self.sweep(text, "--nproc", 2)
        rows, summary = self.rows(), self.rows(table="summary.csv")
        for s in summary:
            for name in ("parameters", "val_accuracy"):
                values = [float(r[name]) for r in rows if r["trial"] == s["trial"]]
                self.assertAlmostEqual(float(s[name]), sum(values) / 2, delta=1e-12)
        front = self.front(summary, {"val_loss": 1, "parameters": 1, "val_accuracy": -1})
        for table in (rows, summary):
            self.assertEqual({r["trial"] for r in table if r["pareto_front"] == "1"}, front)
        self.write("killed.yaml", text)
        for _ in range(3):
            p = self.start("sweep", "killed.yaml", "--nproc", 2)
            time.sleep(0.1 * program.SLOW)
            p.kill()
            p.communicate()
        self.sweep(text, "--nproc", 2, name="killed")
        self.assertEqual(self.read("sweeps/killed/trials.csv"), self.read("sweeps/test/trials.csv"))
        self.assertEqual(self.read("sweeps/killed/summary.csv"), self.read("sweeps/test/summary.csv"))
        self.sweep(GRID + "other_metrics: {seconds: auto}\n", name="clock")
        seconds = {e["trial"]: e["seconds"] for e in self.history("clock")}
        self.assertEqual({int(r["trial"]): float(r["seconds"]) for r in self.rows("clock")}, seconds)

    def test_tpe_continues_a_trial_with_the_values_that_it_began_with(self):
        """Trials of a killed start would be drawn from more results than before. One of other values starts again."""
        text = SWEEP.replace("random", "tpe") + "keep: all\n"
        self.sweep(text, "trials=16", "--nproc", 1)
        rows = self.rows()
        for change, state in ((None, rows[12]["state_sha256"]), ("lr: 7", None)):
            lines = self.read("sweeps/test/history.jsonl").splitlines(keepends=True)
            self.write("sweeps/test/history.jsonl", "".join(line for line in lines if '"trial":12,' not in line))
            if change:
                config = self.read("sweeps/test/runs/0012/config.yaml")
                self.write("sweeps/test/runs/0012/config.yaml", config.replace(f"lr: {float(rows[12]['optimizer.lr'])}", change))
            _, err = self.sweep(text, "trials=16", "--nproc", 1)
            self.assertEqual("0012: was begun with values that cannot be read; the run starts again" in err, bool(change), err)
            self.assertEqual({row["state"] for row in self.rows()}, {"complete"})
            self.assertEqual(self.rows()[12]["state_sha256"] == state, not change)
            self.assertEqual(self.rows()[12] == rows[12], not change)

    def test_tpe_continues_with_lists_and_mappings(self):
        """The config of the run has them with all their defaults."""
        text = SWEEP.replace("random", "tpe") + """  optimizer.betas: {values: [[0.9, 0.99], [0.8, 0.99], [0.7, 0.99]]}
  model.layers.1: {values: [relu, {elu: {alpha: 0.5}}, {elu: {alpha: 2.0}}]}
keep: all
"""
        self.sweep(text, "trials=16", "--nproc", 1)
        rows = self.rows()
        for trial in (11, 12, 13):
            lines = self.read("sweeps/test/history.jsonl").splitlines(keepends=True)
            self.write("sweeps/test/history.jsonl", "".join(line for line in lines if f'"trial":{trial},' not in line))
            _, err = self.sweep(text, "trials=16", "--nproc", 1)
            self.assertNotIn("the run starts again", err)
            self.assertEqual(self.rows(), rows)

    def test_tpe_draws_near_the_front(self):
        """More trials of tpe are on the common front than random ones; an interrupted sweep has the same table."""
        words = ("trials=60", "other_metrics={parameters: minimize}", "--nproc", 1)
        self.sweep(self.TEXT, *words, "method=random", name="random")
        self.sweep(self.TEXT, *words, "method=tpe")
        rows = [{**row, "trial": (name, row["trial"])} for name in ("random", "test") for row in self.rows(name)]
        front = [name for name, _ in self.front(rows, {"val_loss": 1, "parameters": 1})]
        self.assertGreater(front.count("test"), front.count("random"))
        first = [row["optimizer.lr"] for row in rows]
        self.assertEqual(first[60:70], first[:10])  # drawn at random
        self.sweep(self.TEXT, *words, "method=tpe", "trials=30", name="parts")
        self.sweep(self.TEXT, *words, "method=tpe", name="parts")
        self.assertEqual(self.read("sweeps/parts/trials.csv"), self.read("sweeps/test/trials.csv"))

    def test_processes_of_a_trial_and_of_a_sweep(self):
        self.sweep(self.TEXT, "trials=16", "--nproc", 1)
        table = self.read("sweeps/test/trials.csv")
        self.sweep(self.TEXT, "trials=16", "--share", name="many")
        self.assertEqual(self.read("sweeps/many/trials.csv"), table)
        self.sweep(GRID + "other_metrics: {val_accuracy: auto}\n", "nproc_per_trial=2", "--nproc", 1, name="ranks")
        for row in self.rows("ranks"):
            best = next(e for e in self.events("epoch", f"sweeps/ranks/runs/{int(row['trial']):04d}") if e["epoch"] == int(row["best_epoch"]) - 1)
            self.assertEqual(float(row["val_accuracy"]), best["val_accuracy"])

    def test_what_is_refused(self):
        for words, message in (
                (("other_metrics={val_f2: auto}",), "epochs have no metric 'val_f2'; they have train_loss, val_loss, train_accuracy, val_accuracy (train.metrics adds others)"),
                (("other_metrics={val_loss: auto}",), "other_metrics: val_loss is the metric already; name others"),
                (("other_metrics={seconds: auto, seconds: maximize}",), "duplicate key 'seconds'"),
                (("other_metrics={seconds: fast}",), "other_metrics.seconds.goal: expected one of auto, minimize, maximize, got 'fast'"),
                (("other_metrics={seconds: auto, a: auto, b: auto, c: auto}",), "other_metrics: at most 3, got 4"),
                (("early_terminate=asha",), "early_terminate: runs are stopped early by one metric; leave it or other_metrics out"),
                (("confirm=3",), "confirm: the best trial is tested by one metric; leave it or other_metrics out")):
            _, err = self.sweep(self.TEXT, *words, code=USAGE)
            self.assertIn(message, err)
            self.assertEqual(err.count("\n"), 1, err)
        self.sweep(self.TEXT)
        _, err = self.sweep(SWEEP, "trials=40", code=USAGE)
        self.assertIn("sweep.yaml differs first in\n  folder: other_metrics:\n", err)


class ShortForms(SweepCase):
    def test_parameters_in_short_forms(self):
        """`linear: 8` is {out: 8}."""
        self.write("base.yaml", CONFIG.replace("linear: {out: 8}", "linear: 8").replace("split: {test: 0.25, seed: 1}", "split: 0.25"))
        self.sweep("config: base.yaml\nmethod: grid\nparameters: {model.layers.0.linear.out: [4, 8], dataset.split.test: [0.25, 0.5]}\n", "dataset.split.seed=1")
        losses = [row["val_loss"] for row in self.rows()]
        self.write("base.yaml", CONFIG)
        self.sweep("config: base.yaml\nmethod: grid\nparameters: {model.layers.0.linear.out: [4, 8], dataset.split.test: [0.25, 0.5]}\n", name="long")
        self.assertEqual([row["val_loss"] for row in self.rows("long")], losses)
        self.assertEqual(len(set(losses)), 4)


class Wrong(SweepCase):
    def test_wrong_sweeps(self):
        grid = "config: base.yaml\nmethod: grid\nparameters: {%s}\n"
        cases = [
            (grid % "optimizer.lrr: {values: [1]}", "test.yaml:3:29: optimizer.lrr: unknown key; did you mean 'lr'?"),
            (grid % "optimizer.lr: {values: [0.1, fast]}", "test.yaml:3:28: optimizer.lr: expected a number"),
            (grid % "sampler.batch_size: {values: [0]}", "test.yaml:3:34: sampler.batch_size: must be"),
            (grid % "model.layers.9.linear.out: {values: [4]}", "test.yaml:3:41: 'model.layers' is a list with the entries 0 to 2; '9' is none of them"),
            (grid % "optimizer.lr: {values: []}", "test.yaml:3:37: parameters.optimizer.lr: the list of values is empty"),
            (grid % "optimizer.lr: 3", "test.yaml:3:28: parameters.optimizer.lr: expected {values: [...]} or {distribution: uniform, min: 0, max: 1}"),
            (grid % "optimizer.lr: {distribution: uniform, min: 2, max: 1}", "the range is empty: min 2 is above max 1"),
            (grid % "optimizer.lr: {distribution: log_uniform, min: 0, max: 1}", "a logarithmic distribution needs min > 0, got 0"),
            (grid % "sampler.batch_size: {distribution: int_uniform, min: 1.5, max: 3}", "int_uniform needs whole numbers"),
            (grid % "optimizer.lr: {distribution: normal, min: 0, max: 1}", "parameters.optimizer.lr.distribution: expected one of"),
            (grid % "optimizer.lr: {distribution: uniform, min: 0.1, max: 1}", "a grid needs a list of values"),
            (grid % "optimizer.lr: {distribution: uniform, min: 0.1}", "parameters.optimizer.lr.max: missing; the largest value"),
            ("config: base.yaml\nmethod: random\nparameters: {optimizer.lr: {values: [1]}}\n", "trials: method random needs the number of trials"),
            ("config: base.yaml\nmethod: grid\n", "parameters: missing"),
            ("config: base.yaml\nmethod: list\n", "trials: method list needs a list of mappings"),
            ("config: base.yaml\nmethod: list\ntrials: [{optimizer.lrr: 1}]\n", "test.yaml:3:10: optimizer.lrr: unknown key"),
            ("config: base.yaml\nmethod: bayes\n", "test.yaml:2:9: method: expected one of grid, random, tpe, list, got 'bayes'"),
            ("config: base.yaml\nmetod: grid\n", "unknown key; did you mean 'method'"),
            (grid % "checkpoint.best.metric: [val_loss, train_loss]", "test.yaml:3:38: checkpoint.best.metric: the sweep sets it to its metric; use the key metric"),
            (grid % "dataset.split.fold: [0, 1]" + "repeat: {folds: 3}\n", "test.yaml:3:34: dataset.split.fold: repeat.folds sets it; leave one of the two out"),
            ("config: base.yaml\nmethod: list\nrepeat: {folds: 3}\ntrials: [{dataset.split.folds: 4}]\n", "dataset.split.folds: repeat.folds sets it"),
            *((grid % f"dataset.split.{key}: [0.2, 0.4]" + "repeat: {folds: 3}\n", f"dataset.split.{key}: repeat.folds sets it") for key in ("test", "train", "validation")),
            (grid % "seed: [1, 2]" + "repeat: {seeds: 3}\n", "parameters.seed: with repeat.seeds the tables have another column of this name; write it under another one, with keys: [seed]"),
            (GRID + "metric: val_f1\n", "test.yaml:7:9: metric: epochs have no metric 'val_f1'; they have"),
            (GRID + "metric: {name: val_los}\n", "test.yaml:7:9: metric: epochs have no metric 'val_los'"),
            (GRID.replace("keep: all", "keep: best"), "keep.runs: expected all, none or best N (best 10), got 'best'"),
            ("config: nowhere.yaml\nmethod: grid\nparameters: {optimizer.lr: {values: [1]}}\n", "cannot read config 'nowhere.yaml'"),
            ("config: base.yaml\nmethod: [\n", "test.yaml:"),
            ("", "config: missing; The config of the trials"),
        ]
        for text, sentence in cases:
            with self.subTest(text=text):
                _, err = self.sweep(text, code=USAGE)
                self.assertIn(sentence, err)
                self.assertFalse(os.path.exists(self.path("sweeps")), "something was written")

    def test_one_parameter_that_is_never_taken(self):
        """The others are no reason for it."""
        _, err = self.sweep("config: base.yaml\nmethod: grid\nparameters:\n  optimizer.lr: [0.1, 0.2]\n  train.epochs.x: [1, 2]\n  optimizer.type: [sgd]\n", code=USAGE)
        self.assertEqual(err, "test.yaml:5:19: 'train.epochs' is the value '3', which has no keys; write train.epochs={x: ...}\n")

    def test_a_folder_of_another_sweep(self):
        self.sweep(GRID)
        _, err = self.sweep(GRID.replace("0.01", "0.02"), code=USAGE)
        self.assertIn("this sweep folder belongs to another sweep; sweep.yaml differs first in\n"
                      "  folder:   optimizer.lr: {values: [0.1, 0.01]}\n  now:      optimizer.lr: {values: [0.1, 0.02]}", err)
        _, err = self.sweep(GRID, "train.epochs=4", code=USAGE)
        self.assertIn("base_config.yaml differs in 1 key (folder -> now):\n  train.epochs: 3 -> 4\nuse --fresh", err)
        self.write("base.yaml", CONFIG.replace("epochs: 3", "epochs: 4"))
        _, err = self.sweep(GRID, code=USAGE)
        self.assertIn("base_config.yaml differs in 1 key (folder -> now):\n  train.epochs: 3 -> 4\nuse --fresh", err)
        self.write("base.yaml", CONFIG)
        rows = self.rows()
        for text in (GRID.replace("0.01", "1e-2"), GRID.replace("0.1,", "1.0e-1,")):  # the same values
            self.sweep(text, "dataset.csv.decimal=null", "train.accumulate=1", "optimizer.lr=1e-2")
            self.assertEqual([r["state_sha256"] for r in self.rows()], [r["state_sha256"] for r in rows])
        _, err = self.sweep(GRID.replace("0.01", "1e-3"), code=USAGE)
        self.assertIn("sweep.yaml differs first in\n", err)
        _, err = self.sweep(GRID, "train.epochs=4", "--fresh")
        self.assertIn("renamed the folder of the earlier sweep: sweeps/test.1", err)
        self.assertEqual({r["epochs"] for r in self.rows()}, {"4"})
        self.assertEqual([r["state_sha256"] for r in self.rows("test.1")], [r["state_sha256"] for r in rows])

    def test_a_damaged_config_of_a_sweep_loses_nothing(self):
        self.sweep(GRID)
        rows, config = self.rows(), self.read("sweeps/test/base_config.yaml")
        for text in ("", "name: [", "something: else\n"):
            self.write("sweeps/test/base_config.yaml", text)
            _, err = self.sweep(GRID, code=USAGE)
            self.assertIn("sweeps/test: base_config.yaml of the sweep folder cannot be read by this version; if only that file is damaged, delete it to continue", err)
            self.assertEqual(self.read("sweeps/test/base_config.yaml"), text)
        os.remove(self.path("sweeps/test/base_config.yaml"))
        self.sweep(GRID)
        self.assertEqual((self.rows(), self.read("sweeps/test/base_config.yaml")), (rows, config))

    def test_a_folder_that_is_no_sweep(self):
        os.makedirs(self.path("mine"))
        self.write("mine/notes.txt", "mine")
        _, err = self.sweep(GRID, "--run-dir", "mine", code=USAGE)
        self.assertIn("mine: this folder is not a sweep's, and has files (notes.txt); choose another --run-dir", err)
        self.write("file", "mine")
        _, err = self.sweep(GRID, "--run-dir", "file", code=USAGE)
        self.assertIn("file: not a folder", err)

    def test_a_damaged_history(self):
        self.sweep(GRID)
        path, rows = self.path("sweeps/test/history.jsonl"), self.rows()
        with open(path) as f:
            whole = f.read()
        lines = whole.splitlines()
        wrong = ["{}", "[]", "nonsense", lines[0].replace('"trial":', '"trial":-1'), lines[0].replace("complete", "finished"),
                 lines[0].replace('"optimizer.lr":"', '"optimizer.lr":"7'), lines[0].replace('"repeat":0', '"repeat":"1"'),
                 lines[0].replace('"epochs":3', '"epochs":-3'), lines[0].replace('"state_sha256":"', '"state_sha256":"00'), "\0"]
        for line in wrong:
            with self.subTest(line=line):
                with open(path, "w") as f:
                    f.write("\n".join([lines[1], line, *lines[2:]]) + "\n")
                _, err = self.sweep(GRID, code=DATA)
                self.assertIn("sweeps/test/history.jsonl:2: not a line of this sweep; it was changed or damaged", err)
                self.assertEqual("(it has zero bytes, as a crash of the machine may leave)" in err, line == "\0")
        cure = err[err.index("(sed -i") + 1:err.index("), or use")]
        self.assertEqual(cure, "sed -i 2d sweeps/test/history.jsonl")
        subprocess.run(cure.split(), cwd=self.folder, check=True)
        self.sweep(GRID)
        self.assertEqual(self.rows(), rows)
        self.assert_every_trial_once(6)
        with open(path, "w") as f:  # a line that was not written in full is done again
            f.write(whole[:-20])
        self.sweep(GRID)
        self.assertEqual(self.rows(), rows)
        self.assert_every_trial_once(6)
        with open(path, "w") as f:  # zero bytes in its place, as a file system may leave after a crash of the machine
            f.write(whole[:-20] + 300 * "\0")
        _, err = self.sweep(GRID)
        self.assertIn("history.jsonl: dropped 300 zero bytes at its end", err)
        self.assertEqual(self.rows(), rows)
        self.assert_every_trial_once(6)

    def test_on_several_nodes(self):
        self.write("test.yaml", GRID)
        _, err = self.run_program("sweep", "test.yaml", "--nnodes", 2, "--master-addr", "localhost", "--master-port", 1234, code=USAGE)
        self.assertIn("sweep on several machines: start it with srun, mpirun or torchrun", err)


class Compare(SweepCase):
    """The seeds are those of the runs alone, and the numbers those of the pairs."""

    def values(self, config, seeds):
        found = []
        for seed in range(seeds):
            run = f"runs/{config}-{seed}"
            self.run_program(config, f"seed={42 + seed}", f"sampler.seed={seed}", "--run-dir", run)
            found.append(min(e["val_loss"] for e in self.events("epoch", run)))
        return found

    def test_slashes_after_the_folder(self):
        """--fresh renames the folder, for `compare` as for a sweep."""
        self.write("a.yaml", CONFIG)
        self.write("b.yaml", CONFIG)
        for run_dir in (["--run-dir", "c//"], ["--run-dir=c/"]):
            self.run_program("compare", "a.yaml", "b.yaml", "train.epochs=1", "--seeds", 2, *run_dir, "--fresh")
        self.assertTrue(os.path.exists(self.path("c.1/trials.csv")), os.listdir(self.folder))
        self.assertTrue(os.path.exists(self.path("c/trials.csv")))

    def test_the_difference_of_two_configs(self):
        self.write("a.yaml", CONFIG)
        self.write("b.yaml", CONFIG.replace("lr: 0.01", "lr: 0.012"))
        a, b = self.values("a.yaml", 8), self.values("b.yaml", 8)
        differences = [x - y for x, y in zip(a, b)]
        mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(8)
        out, _ = self.run_program("compare", "a.yaml", "b.yaml", "--seeds", 8)
        self.assertIn(f"A - B: {mean:.6g}, 95 % confidence interval {mean - 2.364624251592785 * error:.6g} to {mean + 2.364624251592785 * error:.6g}", out)
        self.assertIn(f"A: a.yaml{' ' * 35}mean {statistics.fmean(a):.6g}, standard error {statistics.stdev(a) / math.sqrt(8):.2g}", out)
        ranks = {d: rank for rank, d in enumerate(sorted(differences, key=abs), 1)}
        below = sum(rank for d, rank in ranks.items() if d > 0)
        sums = [sum(c) for c in itertools.product(*[(0, r) for r in ranks.values()])]
        p = min(1, 2 * min(sum(s <= below for s in sums), sum(s >= below for s in sums)) / len(sums))
        self.assertIn(f"Wilcoxon signed-rank test {p:.3g}", out)
        density = lambda x: math.gamma(4) / (math.sqrt(7 * math.pi) * math.gamma(3.5)) * (1 + x * x / 7) ** -4
        t, steps = abs(mean / error), 20000
        area = sum((1 if i in (0, steps) else 4 if i % 2 else 2) * density(t * i / steps) for i in range(steps + 1)) * t / steps / 3
        self.assertIn(f"paired t-test {1 - 2 * area:.3g}", out)
        better = "B" if mean > 0 else "A"
        self.assertIn(f"{better} is better: its val_loss is lower by {abs(mean):.3g}", out)
        self.assertEqual(self.run_program("compare", "a.yaml", "b.yaml", "--seeds", 8)[0], out)
        out, _ = self.run_program("compare", "a.yaml", "b.yaml", "--seeds", 10)  # two more of each
        self.assertIn("val_loss over 10 seeds", out)
        with open(self.path("sweeps/a-or-b/history.jsonl")) as f:
            self.assertEqual(len(f.readlines()), 20)
        self.run_program("compare", "a.yaml", "b.yaml", "--seeds", 17, "--nproc", 1, "--run-dir", "one")  # several at once
        with open(self.path("one/history.jsonl")) as f:
            states = {(e["trial"], e["repeat"]): e["state_sha256"] for e in map(json.loads, f) if e["event"] == "run"}
        self.assertEqual([states[trial, seed] for trial in (0, 1) for seed in range(8)], [self.sha(f"runs/{config}-{seed}") for config in ("a.yaml", "b.yaml") for seed in range(8)])

    def test_no_difference(self):
        self.write("a.yaml", CONFIG)
        self.write("b.yaml", CONFIG + "\nseed: 42\n")
        out, _ = self.run_program("compare", "a.yaml", "b.yaml", "--seeds", 3, "--metric", "val_accuracy")
        self.assertIn("The two are the same: val_accuracy is equal in every pair.", out)
        self.assertRegex(out, r"A: a.yaml +mean \d+\.\d\d %, standard error \d+\.\d\d %\n")
        self.assertIn("A - B: 0.00 percentage points, 95 % confidence interval 0.00 to 0.00\n", out)
        self.write("c.yaml", CONFIG + "\nseed: 900\n")
        out, _ = self.run_program("compare", "a.yaml", "c.yaml", "--seeds", 4)
        self.assertRegex(out, "No difference is shown: with 4 pairs|Undecided: one test")

    def test_a_metric_that_means_something_else(self):
        """A warning, and a notice in the report."""
        smooth = "val_loss is not comparable, the losses are defined differently (loss.label_smoothing: 0 in A, 0.1 in B); --metric names another metric"
        split = "may not be comparable, it may be of other rows or targets (dataset.split.test: 0.25 in A, 0.5 in B)"
        self.write("a.yaml", CONFIG)
        self.write("smooth.yaml", CONFIG.replace("loss: cross_entropy", "loss: {type: cross_entropy, label_smoothing: 0.1}"))
        self.write("split.yaml", CONFIG.replace("0.25", "0.5"))
        self.write("slow.yaml", CONFIG.replace("lr: 0.01", "lr: 0.001"))
        for other, metric, sentence in (("smooth", "val_loss", smooth), ("smooth", "train_loss", smooth.replace("val", "train")), ("smooth", "val_accuracy", None),
                                        ("split", "val_loss", "val_loss " + split), ("split", "val_accuracy", "val_accuracy " + split), ("slow", "val_loss", None)):
            with self.subTest(other=other, metric=metric):
                folder = f"sweeps/{other}-{metric}"
                out, err = self.run_program("compare", "a.yaml", f"{other}.yaml", "--seeds", 2, "--metric", metric, "--run-dir", folder)
                self.assertIn("A - B: ", out)
                self.run_program("report", folder, "--out", "page.html")
                for text in (out, err, self.read("page.html")):
                    self.assertEqual(" comparable" in text, sentence is not None)
                    self.assertIn(sentence or "", text)

    def test_wrong_comparisons(self):
        self.write("a.yaml", CONFIG)
        self.write("b.yaml", CONFIG.replace("lr: 0.01", "lr: 1e30").replace("adam", "sgd"))
        for words, sentence, code in ((("a.yaml",), "compare needs two configs", USAGE), (("a.yaml", "nowhere.yaml"), "nowhere.yaml", USAGE),
                                      (("a.yaml", "a.yaml", "a.yaml"), "unexpected argument 'a.yaml'", USAGE),
                                      (("a.yaml", "a.yaml", "--metric", "val_f1"), "epochs have no metric 'val_f1'", USAGE),
                                      (("a.yaml", "a.yaml", "optimizer.lrr=1"), "unknown key; did you mean 'lr'", USAGE),
                                      (("a.yaml", "a.yaml", "--seeds", 0), "--seeds: expected at least 2 pairs of runs, got 0", USAGE),
                                      (("a.yaml", "a.yaml", "--seeds=1"), "--seeds: expected at least 2 pairs of runs, got 1", USAGE),
                                      (("a.yaml", "b.yaml", "--seeds", 2), "fewer than two pairs of runs are complete", DATA)):
            with self.subTest(words=words):
                self.run_program("compare", *words, code=code, err=sentence)
