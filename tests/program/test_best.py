"""The best checkpoint and early stopping: decided by the numbers of the epochs, the same after a resume and on any number of ranks.
ctest-labels: dist"""
import os, re, shutil, signal

import h5py
import numpy

import program
from program import DATA, USAGE

CONFIG = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 300, inputs: 1, classes: 8, seed: 5}, split: {test: 0.3, seed: 1}}
sampler: {batch_size: 16, shuffle: true}
model: {layers: [{linear: {out: 32}}, relu, {linear: {out: 8}}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.02}
train: {epochs: 60, metrics: [f1]}
checkpoint: {save_every: 1, keep: 0}
"""


def best_of(values, is_max):
    """Position of the first of the best."""
    return values.index(max(values) if is_max else min(values))


def stops_after(values, patience, min_delta=0, is_max=False):
    """Number of epochs, as Keras and Lightning count them."""
    best, wait = None, 0
    for epoch, value in enumerate(values, 1):
        if best is None or (value > best + min_delta if is_max else value < best - min_delta):
            best, wait = value, 0
        else:
            wait += 1
        if wait == patience:
            return epoch
    return len(values)


class Best(program.Case):
    given_files = {"test.yaml": CONFIG}

    def values(self, metric, run):
        return [e[metric] for e in self.events("epoch", run)]

    def state(self, path):
        arrays = {}
        with h5py.File(path, "r") as f:
            f.visititems(lambda name, item: arrays.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
        return {k: v for k, v in arrays.items() if k.split("/")[0] in ("model", "optimizer", "ema") or k == "state/epoch"}

    def test_the_checkpoint_of_the_best_epoch_is_kept(self):
        for metric, best, is_max, nproc in (("val_loss", "val_loss", False, 1), ("val_f1", "val_f1", True, 2), ("train_loss", "train_loss", False, 1),
                                                ("val_f1", "{metric: val_f1, mode: min}", False, 1)):
            with self.subTest(best=best):
                run = f"runs/{len(best)}"
                _, err = self.run_program("test.yaml", "--run-dir", run, "--nproc", nproc, "train.epochs=20", f"checkpoint.best={best}")
                values = self.values(metric, run)
                self.assertGreater(len(set(values)), 5, "too few values: the test shows nothing")
                best = best_of(values, is_max)
                self.assertIn(f"best epoch {best + 1}: {metric} ", err)
                self.assertEqual(self.events("end", run)[-1]["best_value"], values[best])
                kept, regular = (self.state(self.path(run, "checkpoints", name)) for name in ("best.h5", f"epoch-{best + 1:04}.h5"))
                self.assertEqual(kept.keys(), regular.keys())
                for name in kept:
                    numpy.testing.assert_array_equal(kept[name], regular[name], name)
                by_name = self.run_program("eval", "test.yaml", "--run-dir", run, "--checkpoint", "best")[0]
                self.assertEqual(by_name, self.run_program("eval", "test.yaml", "--checkpoint", self.path(run, "checkpoints", f"epoch-{best + 1:04}.h5"))[0])

    def test_an_evaluation_because_the_run_ends(self):
        """It does not count for early_stop, so that a run that is made longer stops where one of that length does."""
        stop = "train={epochs: %d, evaluate_every: 4, early_stop: {metric: val_loss, mode: max, patience: 2}}"
        self.run_program("test.yaml", stop % 20, "--run-dir", "runs/whole")
        for epochs in (6, 20):
            self.run_program("test.yaml", stop % epochs)
        self.assertEqual(self.events("end", "runs/whole")[-1]["epoch"], 12)
        self.assertEqual(self.sha(), self.sha("runs/whole"))

    def test_epochs_without_an_end(self):
        """The number of all steps is more than an integer has; the schedule is at the start of its curve."""
        self.run_program("test.yaml", "train.epochs=9223372036854775807", "train.early_stop=2", "schedule={type: cosine, interval: step}")
        steps = self.events("step")
        self.assertGreater(len(steps), 10)
        self.assertEqual({e["lr"] for e in steps}, {steps[0]["lr"]})
        self.assertGreater(steps[0]["lr"], 0)
        self.run_program("check", "test.yaml", "train.epochs=9223372036854775807", out="9223372036854775807 epochs, 9223372036854775807 steps\n")

    def test_only_evaluated_epochs_count(self):
        """Also for a number of the training rows; and no other epoch is taken for the best one because the one before it was."""
        for metric, mode, find in (("val_loss", "max", max), ("train_loss", "auto", min)):
            run = f"runs/{metric}"
            self.run_program("test.yaml", "--run-dir", run, "train={epochs: 9, evaluate_every: 2}", f"checkpoint.best={{metric: {metric}, mode: {mode}}}")
            values = {e["epoch"] + 1: e[metric] for e in self.events("epoch", run) if "val_loss" in e}
            self.assertEqual(list(values), [2, 4, 6, 8, 9])
            best = find(values, key=values.get)
            self.assertEqual(self.events("end", run)[-1]["best_epoch"], best)
            self.assertEqual(self.state(self.path(run, "checkpoints/best.h5"))["state/epoch"], best)

    def test_the_end_of_a_run_within_an_epoch(self):
        """It is evaluated and may be the best state; but early_stop counts whole epochs, so that a longer run is the same."""
        self.run_program("test.yaml", "train={steps: 7}", "checkpoint.best=val_loss")
        self.assertEqual([os.path.basename(c) for c in self.checkpoints()], ["best.h5", "step-00000007.h5"])
        stop = "early_stop: {metric: val_f1, patience: 2}, metrics: [f1]"
        self.run_program("test.yaml", f"train={{steps: 840, {stop}}}", "--run-dir", "runs/reference")
        last = self.events("end", "runs/reference")[-1]["step"]
        self.assertLess(last, 840)
        for steps in (last - 9, 840):
            self.run_program("test.yaml", f"train={{steps: {steps}, {stop}}}", "--run-dir", "runs/parts")
        self.assertEqual(self.sha("runs/parts"), self.sha("runs/reference"))

    def test_without_the_key(self):
        """The best epoch is that of the accuracy, of the loss where there is none, of the training loss without validation rows."""
        reals = "dataset={format: synthetic, synthetic: {kind: uniform, rows: 60, inputs: 2, seed: 5}, split: {test: 0.3}}"
        linear = ["model={layers: [{linear: {out: 1}}]}", "loss=mse"]
        for number, (metric, find, arguments) in enumerate((("val_accuracy", max, ()), ("val_loss", min, (reals, *linear)),
                                                            ("train_loss", min, (reals.replace(", split: {test: 0.3}", ""), *linear)))):
            run = f"runs/{number}"
            _, err = self.run_program("test.yaml", "--run-dir", run, "train={epochs: 20}", *arguments)
            values = self.values(metric, run)
            end = self.events("end", run)[-1]
            best = best_of(values, find is max) + 1
            self.assertEqual((end["best_value"], end["best_epoch"], end["best_epoch_index"]), (find(values), best, best - 1))
            last = self.events("epoch", run)[-1]
            self.assertEqual(re.findall(r"validation: (.*)", err), {
                "val_accuracy": [f"loss {last['val_loss']:.4f}, accuracy {100 * last['val_accuracy']:.2f} % on {last['val_rows']} rows; best epoch {best}: "
                                 f"accuracy {100 * find(values):.2f} %"] if metric == "val_accuracy" else None,
                "val_loss": [f"loss {last.get('val_loss', 0):.4f} on 18 rows; best epoch {best}: loss {find(values):.4f}"], "train_loss": []}[metric])

    def test_other_commands_take_it(self):
        self.run_program("test.yaml", "train.epochs=8", "checkpoint={save_every: 1, keep: 1, best: val_loss}")
        self.assertEqual([os.path.basename(c) for c in self.checkpoints()], ["best.h5", "epoch-0008.h5"])  # pruning leaves it alone
        best = self.events("end")[-1]["best_epoch"]
        _, err = self.run_program("predict", "test.yaml", "--checkpoint", "best", "--out", "p.csv")
        self.assertRegex(err, f"best.h5: epoch {best}, step \\d+\\n")
        for words in (["predict", "test.yaml", "--out", "p.csv"], ["predict", "runs/test", "--out", "p.csv"], ["eval", "test.yaml"], ["eval", "test.yaml", "--checkpoint", "runs/test"],
                      ["export", "runs/test", "--out", "x.pt"], ["export", "runs/test/checkpoints", "--out", "x.pt"]):
            self.assertRegex(self.run_program(*words)[1], f"best.h5: epoch {best}, step \\d+, the best epoch; --checkpoint newest takes the newest\n")
            if "--checkpoint" not in words and "runs/test/checkpoints" not in words:
                self.assertRegex(self.run_program(*words, "--checkpoint", "newest")[1], r"epoch-0008.h5: epoch 8, step \d+\n")
        self.assertNotIn("newest", self.run_program("predict", "test.yaml", "--checkpoint", self.checkpoints()[-1], "--out", "p.csv")[1])
        self.assertIn("unknown option '--best'; did you mean '--checkpoint best'?", self.run_program("predict", "runs/test", "--best", code=USAGE)[1])
        self.run_program("export", "runs/test", "--checkpoint", "best", "--out", "best.safetensors")
        self.run_program("export", self.path("runs/test/checkpoints/best.h5"), "--out", "file.safetensors")
        with open(self.path("best.safetensors"), "rb") as a, open(self.path("file.safetensors"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        with open(self.path("runs/test/checkpoints/best.h5"), "r+b") as f:
            f.write(b"damaged")
        self.run_program("eval", "test.yaml", code=DATA, err="; --checkpoint newest takes the newest checkpoint\n")
        self.run_program("eval", "test.yaml", "--checkpoint", "newest")
        _, err = self.run_program("export", "runs/test", "--checkpoint", "x.h5", "--out", "x.safetensors", code=USAGE)
        self.assertIn("--checkpoint: export accepts only best, newest and initial", err)

    def test_it_is_deleted_or_damaged(self):
        """An extended run keeps the best of its own epochs, which the warning says; a complete one only warns."""
        words = ["test.yaml", "checkpoint={save_every: 1, keep: 0, best: {metric: train_loss, mode: max}}"]  # the first epoch is the best one
        best = self.path("runs/test/checkpoints/best.h5")

        def delete():
            os.remove(best)

        def damage():
            with open(best, "r+b") as f:
                f.seek(3000)
                byte = f.read(1)[0]
                f.seek(3000)
                f.write(bytes([byte ^ 1]))

        def cut():
            os.truncate(best, os.path.getsize(best) - 200)
        for hurt, reason in ((delete, " is missing"), (damage, ": damaged: .*"), (cut, ": .*")):
            for nproc in (1, 2):
                _, err = self.run_program(*words, "train.epochs=4", "--fresh", "--nproc", nproc)
                before = self.events("end")[-1]
                hurt()
                said = rf"warning: runs/test/checkpoints/best.h5{reason}; the state of the best epoch, {before['best_epoch']} \(train_loss {before['best_value']:.6g}\), is lost"
                _, err = self.run_program(*words, "train.epochs=4", "--nproc", nproc)
                self.assertRegex(err, said + "\n")
                _, err = self.run_program(*words, "train.epochs=8", "--nproc", nproc)
                self.assertRegex(err, said + ", so the best of the epochs from now on is kept, also if it is worse\n")
                values, end = self.values("train_loss", "runs/test"), self.events("end")[-1]
                self.assertEqual((end["best_value"], end["best_epoch"]), (max(values[4:]), 5 + best_of(values[4:], True)))
                self.assertLess(end["best_value"], before["best_value"])
                self.assertEqual(self.state(best)["state/epoch"], end["best_epoch"])
                self.assertNotIn("is lost", self.run_program(*words, "train.epochs=9", "--nproc", nproc)[1])

    def test_a_run_without_one(self):
        self.run_program("test.yaml", "train.epochs=1")
        self.assertNotIn("newest", self.run_program("eval", "test.yaml")[1])
        _, err = self.run_program("eval", "test.yaml", "--checkpoint", "best", code=DATA)
        self.assertIn("runs/test/checkpoints/best.h5 does not exist; a run saves it with checkpoint.best", err)

    def test_the_newest_checkpoint_may_be_the_best_one(self):
        """A run that was killed between its save as the best and the save that was due."""
        self.run_program("test.yaml", "train.epochs=12", "checkpoint.best=train_loss", "--run-dir", "runs/reference")
        self.run_program("test.yaml", "train.epochs=12", "checkpoint.best=train_loss")
        best = self.events("end")[-1]["best_epoch"]
        for path in self.checkpoints():
            name = os.path.basename(path)
            if name.startswith("epoch-") and int(name[6:10]) >= best:
                os.remove(path)
        _, err = self.run_program("test.yaml", "train.epochs=12", "checkpoint.best=train_loss")
        if best < 12:
            self.assertIn("best.h5", err)
        self.assertEqual(self.sha(), self.sha("runs/reference"))

    def saved_as_best(self, run="runs/test"):
        return [e["step"] for e in self.events("checkpoint", run) if e["path"].endswith("/best.h5")]

    def test_it_is_written_with_other_saves_and_as_seldom_as_automatic_ones(self):
        """Epochs of well below a millisecond, each better than the one before: the file is not written for each of them."""
        slow = ["optimizer.lr=0.00001", "train.epochs=300", "checkpoint.best=train_loss"]
        self.run_program("test.yaml", *slow, "checkpoint.save_every=100", env={"DDPTRAIN_FAULT_CLOCK": "0.001"})
        improved = [i + 1 for i, loss in enumerate(self.values("train_loss", "runs/test")) if loss == min(self.values("train_loss", "runs/test")[:i + 1])]
        self.assertGreater(len(improved), 100, "too few improvements: the test shows nothing")
        steps = max(e["step"] for e in self.events("checkpoint")) // 300
        self.assertEqual(self.saved_as_best(), [steps * max(i for i in improved if i <= end) for end in (100, 200, 300)])
        self.run_program("test.yaml", *slow, "checkpoint.save_every=100", "--run-dir", "runs/often", env={"DDPTRAIN_FAULT_CLOCK": "1e9"})
        self.assertEqual(self.saved_as_best("runs/often"), [steps * i for i in improved])
        self.assertEqual(self.sha("runs/often"), self.sha())

    def test_killed_at_every_io_call_in_the_folder_of_checkpoints(self):
        """A checkpoint never names a best epoch whose state is not in best.h5, and the run that continues ends with the same best.h5."""
        arguments = ["train.epochs=8", "checkpoint={save_every: 3, keep: 0, best: val_loss}"]
        self.run_program("test.yaml", *arguments, "--run-dir", "runs/reference")
        self.assertGreater(self.events("end", "runs/reference")[-1]["best_epoch"], 6)
        best = self.state(self.path("runs/reference/checkpoints/best.h5"))
        for clock, first in (("0.001", 1), ("1e9", 100)):  # with the other saves only; after each better epoch
            killed = 0
            for n in range(first, 1000, 7):
                shutil.rmtree(self.path("runs/test"), ignore_errors=True)
                self.run_program("test.yaml", *arguments, code=None,
                                 env={"DDPTRAIN_FAULT": f"{n}:kill", "DDPTRAIN_FAULT_FILTER": "checkpoints", "DDPTRAIN_FAULT_CLOCK": clock})
                if self.code == program.OK:
                    break
                self.assertEqual(self.code, -signal.SIGKILL)
                killed += 1
                for path in self.checkpoints():
                    with h5py.File(path, "r") as f:
                        named = f["state/best_epoch"][()]
                    self.assertLessEqual(named, self.state(self.path("runs/test/checkpoints/best.h5"))["state/epoch"], path)
                self.run_program("test.yaml", *arguments)
                self.assertEqual(self.sha(), self.sha("runs/reference"))
                again = self.state(self.path("runs/test/checkpoints/best.h5"))
                for name in best:
                    numpy.testing.assert_array_equal(again[name], best[name], f"{n}: {name}")
            self.assertGreater(killed, 5)

    def test_a_stop_and_a_failure_write_it(self):
        """Both before any other save."""
        clock = {"DDPTRAIN_FAULT_CLOCK": "0.001"}
        never = ["train.epochs=1000000", "checkpoint={save_every: 1000000, best: train_loss}", "optimizer.lr=0.000001"]
        p = self.start("test.yaml", *never, env=clock)
        self.wait_for(lambda: os.path.exists(self.path("runs/test/metrics.jsonl")) and self.events("epoch"), what="an epoch")
        self.assertEqual(self.checkpoints(), [])
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, program.STOPPED)
        stopped = self.events("stopped")[-1]
        self.assertEqual(self.state(self.path("runs/test/checkpoints/best.h5"))["state/epoch"], stopped["best_epoch"])
        self.run_program("test.yaml", "--run-dir", "runs/fails", "optimizer={type: sgd, lr: 0.001}", "schedule={type: exponential, gamma: 10}",
                         "model={layers: [{linear: {out: 8}}, {linear: {out: 8}}, {linear: {out: 8}}]}", "train={epochs: 400, on_nonfinite: {policy: stop}}", *never[1:2], code=program.NOT_FINITE, env=clock)
        best = best_of(self.values("train_loss", "runs/fails"), False) + 1
        self.assertEqual([os.path.basename(c) for c in self.checkpoints("runs/fails")], ["best.h5"])
        self.assertEqual(self.state(self.path("runs/fails/checkpoints/best.h5"))["state/epoch"], best)

    def test_a_full_disk_is_reported_and_retried(self):
        """The copy remains until it is written, and no later checkpoint is written without it."""
        arguments = ["train.epochs=8", "checkpoint={save_every: 3, keep: 0, best: val_loss}"]
        self.run_program("test.yaml", *arguments, "--run-dir", "runs/reference")
        _, err = self.run_program("test.yaml", *arguments, env={"DDPTRAIN_FAULT": "4:enospc", "DDPTRAIN_FAULT_FILTER": "best.h5", "DDPTRAIN_FAULT_CLOCK": "0.001"})
        self.assertIn("a checkpoint could not be saved; the run continues: cannot write 'runs/test/checkpoints/best.h5", err)
        self.assertEqual(len(self.events("checkpoint_failed")), 1)
        self.assertEqual([os.path.basename(c) for c in self.checkpoints()], ["best.h5", "epoch-0006.h5", "epoch-0008.h5"])
        both = [self.state(self.path(run, "checkpoints/best.h5")) for run in ("runs/test", "runs/reference")]
        for name in both[0]:
            numpy.testing.assert_array_equal(both[0][name], both[1][name], name)
        _, err = self.run_program("test.yaml", *arguments, "--fresh", "--quiet", code=program.IO, env={"DDPTRAIN_FAULT": "1:enospc:ever", "DDPTRAIN_FAULT_FILTER": "best.h5", "DDPTRAIN_FAULT_CLOCK": "0.001"})
        self.assertRegex(err, r"^ddptrain: cannot create 'runs/test/checkpoints/best\.h5\S*': No space left on device\nthe last state is not saved; ")

    def test_a_kill_after_a_best_state_that_was_not_written(self):
        """The lines of both states were written before; what continues has each step once, whether a checkpoint is there or none."""
        save = ["checkpoint={save_every: 3, keep: 0, best: val_loss}", "train.ledger.every=1"]
        self.run_program("test.yaml", *save, "train.epochs=8", "--run-dir", "runs/reference")
        for first in (0, 3):
            shutil.rmtree(self.path("runs/test"), ignore_errors=True)
            if first:
                self.run_program("test.yaml", *save, f"train.epochs={first}")
            p = self.start("test.yaml", *save, "train.epochs=1000000", env={"DDPTRAIN_FAULT": "1:enospc:ever", "DDPTRAIN_FAULT_FILTER": "best.h5", "DDPTRAIN_FAULT_CLOCK": "0.001"})
            self.wait_for(lambda: os.path.exists(self.path("runs/test/metrics.jsonl")) and self.events("checkpoint_failed"), what="a save that failed")
            p.kill()
            p.communicate()
            self.run_program("test.yaml", *save, "train.epochs=8")
            self.assertEqual(self.sha(), self.sha("runs/reference"))
            for event in ("step", "epoch"):
                self.assertEqual([e.get("step") for e in self.events(event)], [e.get("step") for e in self.events(event, "runs/reference")])
            self.run_program("audit", "runs/test", "--all")

    def test_a_run_from_a_file_of_another_folder_counts_anew(self):
        """Its best state is not in this folder, and its metric may be another."""
        self.run_program("test.yaml", "train.epochs=6", "checkpoint.best=val_loss")
        more = ["train.epochs=12", "checkpoint={save_every: 1, keep: 0, best: val_f1, resume: runs/test/checkpoints/epoch-0004.h5}", "--run-dir", "runs/more"]
        self.run_program("test.yaml", *more, "train.early_stop={metric: val_f1, patience: 50}")
        values, end = self.values("val_f1", "runs/more"), self.events("end", "runs/more")[-1]
        self.assertEqual(len(values), 8)
        self.assertEqual((end["best_epoch"], end["best_value"]), (5 + best_of(values, True), max(values)))
        self.assertEqual(self.state(self.path("runs/more/checkpoints/best.h5"))["state/epoch"], end["best_epoch"])

    def test_early_stop_of_another_metric_counts_anew(self):
        """In a run from a file of another folder: a loss above 1 would be a score that none reaches."""
        self.run_program("test.yaml", "train.epochs=1", "train.early_stop={metric: val_loss, patience: 50}")
        self.assertGreater(min(self.values("val_loss", "runs/test")), 1)
        more = ["checkpoint={save_every: 1, keep: 0, resume: runs/test/checkpoints/epoch-0001.h5}", "--run-dir"]
        self.run_program("test.yaml", *more, "runs/whole", "train.early_stop={metric: val_f1, patience: 1000}")
        values = self.values("val_f1", "runs/whole")
        self.assertGreater(stops_after(values, 3, is_max=True), 3, "it stops as early without an improvement: the test shows nothing")
        self.run_program("test.yaml", *more, "runs/more", "train.early_stop={metric: val_f1, patience: 3}")
        self.assertEqual(len(self.values("val_f1", "runs/more")), stops_after(values, 3, is_max=True))

    def test_early_stop_counts_no_evaluation_of_a_named_file(self):
        """Its run had waited for longer than this one has patience: the first epochs count, also one that is no improvement because it is no number."""
        self.run_program("test.yaml", "train.epochs=6", "train.early_stop={metric: val_loss, mode: max, patience: 50}")
        values = self.values("val_loss", "runs/test")
        self.assertLess(max(values[1:]), values[0], "an epoch is better than the first one: nothing has waited")
        more = ["checkpoint={save_every: 1, keep: 0, resume: runs/test/checkpoints/epoch-0006.h5}", "--run-dir"]
        self.run_program("test.yaml", *more, "runs/all")
        expected = stops_after(self.values("val_f1", "runs/all"), 4, is_max=True)
        self.run_program("test.yaml", *more, "runs/more", "train.early_stop={metric: val_f1, patience: 4}")
        self.assertEqual(len(self.values("val_f1", "runs/more")), expected)
        rows = "".join(f"{i % 7},{i % 2 if i < 32 else 0}\n" for i in range(40))
        self.write("rows.csv", "a,y\n" + rows)
        self.write("test.yaml", "dataset: {path: rows.csv, split: {test: 0.2, shuffle: false}}\nsampler: {batch_size: 8}\nmodel: {layers: [{linear: 2}]}\n"
                                "loss: cross_entropy\noptimizer: sgd\ncheckpoint: {save_every: 1}\n"
                                "train: {epochs: 9, metrics: [auc], early_stop: {metric: val_auc, patience: 3}}\n")
        self.run_program("test.yaml", "train.epochs=2", "--run-dir", "runs/waits")
        self.run_program("test.yaml", "checkpoint.resume=runs/waits/checkpoints/epoch-0002.h5", "--run-dir", "runs/anew")
        self.assertEqual([e["epoch"] for e in self.events("epoch", "runs/anew")], [2, 3, 4])

    def test_a_metric_that_is_never_a_number(self):
        """auc, where all validation rows are of one class."""
        rows = "".join(f"{i % 7},{i % 2 if i < 32 else 0}\n" for i in range(40))
        self.write("rows.csv", "a,y\n" + rows)
        self.write("test.yaml", "dataset: {path: rows.csv, split: {test: 0.2, shuffle: false}}\nsampler: {batch_size: 8}\nmodel: {layers: [{linear: 2}]}\n"
                                "loss: cross_entropy\noptimizer: sgd\ncheckpoint: {best: val_auc}\n"
                                "train: {epochs: 9, metrics: [auc], early_stop: {metric: val_auc, patience: 3}}\n")
        _, err = self.run_program("test.yaml")
        self.assertIn("stopped early: val_auc has not been a number in 3 evaluations\n", err)
        self.assertIn("warning: checkpoint.best: val_auc was not a number in any epoch, so no checkpoint is the best one", err)
        _, err = self.run_program("test.yaml", "--fresh", "train.metrics=[f1]", "train.early_stop=null", "checkpoint.best=val_f1")
        self.assertNotIn("warning", err)

    def test_early_stop(self):
        self.run_program("test.yaml", "--run-dir", "runs/all")
        values, f1 = self.values("val_loss", "runs/all"), self.values("val_f1", "runs/all")
        cases = (("train.early_stop={patience: 3, min_delta: 0.01}", stops_after(values, 3, 0.01), "val_loss"),
                 ("train.early_stop={patience: 4, min_delta: 0.05}", stops_after(values, 4, 0.05), "val_loss"),
                 ("train.early_stop={metric: val_f1, patience: 2}", stops_after(f1, 2, is_max=True), "val_f1"),
                 ("train.early_stop={metric: val_f1, min_delta: 0.01}", stops_after(f1, 10, 0.01, is_max=True), "val_f1"),
                 ("train.early_stop={metric: val_f1, mode: min, patience: 3}", stops_after(f1, 3), "val_f1"),
                 ("train={epochs: 60, evaluate_every: 2, early_stop: {metric: val_f1, patience: 2}, metrics: [f1]}",
                  2 * stops_after(f1[1::2], 2, is_max=True), "val_f1"))
        for number, (argument, epochs, metric) in enumerate(cases):
            with self.subTest(argument=argument):
                self.assertLess(epochs, 60, "the run does not stop early: the test shows nothing")
                run = f"runs/{number}"
                self.run_program("test.yaml", argument, "--run-dir", run, err=f"stopped early: {metric} has not improved in ")
                self.assertEqual(len(self.events("epoch", run)), epochs)
                self.assertEqual(self.losses(run), self.losses("runs/all")[:len(self.losses(run))])
                _, err = self.run_program("test.yaml", argument, "--run-dir", run)
                self.assertIn(f"complete (stopped early, epoch {epochs}, ", err)
                self.assertIn("increase train.early_stop.patience", err)

    def test_the_same_epoch_after_a_resume_and_with_more_patience(self):
        stop = "train.early_stop={metric: val_f1, patience: 4}"
        self.run_program("test.yaml", stop, "--run-dir", "runs/reference", "--nproc", 2)
        last = self.events("end", "runs/reference")[-1]["epoch"]
        self.assertLess(last, 60)
        for epochs in (1, last - 2, last - 1, 60):  # interrupted while it waits for an improvement
            self.run_program("test.yaml", stop, "--nproc", 2, f"train.epochs={epochs}")
        self.assertEqual(self.sha(), self.sha("runs/reference"))
        self.assertEqual(len(self.events("epoch")), last)
        self.run_program("test.yaml", "train.early_stop={metric: val_f1, patience: 5}", "--nproc", 2)
        self.assertGreater(self.events("end")[-1]["epoch"], last)

    def test_goes_on_without_the_key(self):
        """What counted for it ends nothing any more."""
        self.run_program("test.yaml", "train.early_stop={patience: 10, min_delta: 10}")
        self.assertEqual(self.events("end")[-1]["epoch"], 11)
        self.run_program("test.yaml", "train.epochs=13")
        self.assertEqual(self.events("end")[-1]["epoch"], 13)

    def test_wrong_metrics(self):
        cases = (("checkpoint.best=val_f2", "checkpoint.best: epochs have no metric 'val_f2'; they have train_loss, val_loss, train_accuracy, val_accuracy, val_f1"),
                 ("checkpoint.best={mode: max}", "checkpoint.best: mode needs metric; give the metric"),
                 ("train.early_stop={metric: confusion_matrix}", "train.early_stop: epochs have no metric 'confusion_matrix'"),
                 ("train.early_stop={patience: 0}", "train.early_stop.patience: "),
                 ("train={epochs: 3, early_stop: 2, evaluate_every: 0}", "nothing is evaluated before the last epoch"))
        for argument, expected in cases:
            self.run_program("check", "test.yaml", argument, code=USAGE, err=expected)
        _, err = self.run_program("check", "test.yaml", "train.early_stop=2", "dataset.split.test=0", code=USAGE)
        self.assertIn("train.early_stop: val_loss needs validation rows (dataset.split or dataset.validation); without them use train_loss", err)

    def test_folds_have_validation_rows(self):
        folds = ["dataset.split={folds: 3, fold: 1}", "train.epochs=3"]
        self.run_program("test.yaml", *folds, "checkpoint.best=val_loss", "schedule={type: reduce_on_plateau, monitor: val_loss}")
        self.assertEqual(self.events("epoch")[0]["val_rows"], 100)

    def test_another_metric_is_another_run(self):
        self.run_program("test.yaml", "train.epochs=1", "checkpoint.best=val_loss")
        _, err = self.run_program("test.yaml", "train.epochs=2", "checkpoint.best=val_f1", code=None)
        self.assertNotEqual(self.code, 0)
        self.assertIn("checkpoint.best.metric", err)
