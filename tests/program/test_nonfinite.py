"""Numbers that are not finite: stop, skip and roll back, on one rank and on two; the layer and the rows are named, and
nothing that is not finite is ever saved. ctest-labels: dist"""
import json, random

import program
from program import DATA, NOT_FINITE

BAD_ROW = 17
CONFIG = """
dataset: {path: data.csv, inputs: [a, b, c, d], targets: y, split: {test: 0.11, shuffle: false}}
sampler: {global_batch_size: 8, shuffle: true}
model: {layers: [{linear: {out: 24}}, batch_norm, {dropout: {p: 0.2}}, relu, {linear: {out: 1}}]}
loss: mse
optimizer: {type: adam, lr: 0.01}
train: {epochs: 5}
checkpoint: {save_every: {steps: 3}, keep: 0}
"""


class NotFinite(program.Case):
    def setUp(self):
        super().setUp()
        self.write("test.yaml", CONFIG)
        self.write_rows({BAD_ROW: 3e38})

    def write_rows(self, bad):
        """72 rows of numbers, the last 8 for validation; in the rows [bad] every input is that number."""
        draw = random.Random(1).uniform
        lines = ["a,b,c,d,y"]
        for row in range(72):
            inputs = [bad.get(row, draw(-1, 1)) for _ in range(4)]
            lines.append(",".join(f"{v:.9g}" for v in [*inputs, draw(-1, 1)]))
        self.write("data.csv", "\n".join(lines) + "\n")

    def assert_checkpoints_are_finite(self, run):
        self.assertTrue(self.checkpoints(run))
        for path in self.checkpoints(run):
            self.assertNotIn("not finite", self.run_program("inspect", path)[0])

    def test_stop_names_layer_and_row(self):
        for nproc in (1, 2):
            _, err = self.run_program("test.yaml", "--nproc", nproc, "--run-dir", f"runs/{nproc}", code=NOT_FINITE)
            self.assertRegex(err, r"the loss is not finite in epoch 1, step \d+ \(first " +
                             (r"on rank [01] \(host [^)]+\): " if nproc > 1 else "") +
                             rf"the output of layer 0 \(linear\) for row {BAD_ROW} of the training data\)")
            self.assertEqual(err.count("not finite"), 1, err)
            self.assert_no_leftovers()

    def test_skip(self):
        """8 steps an epoch, one of them skipped; the running statistics and all that is saved stay finite."""
        for nproc in (1, 2):
            run = f"runs/{nproc}"
            self.run_program("test.yaml", "--nproc", nproc, "--run-dir", run, "train.on_nonfinite=skip")
            skipped = self.events("skipped", run)
            self.assertEqual(len(skipped), 5)
            for event in skipped:
                self.assertRegex(event["reason"], rf"for rows? .*\b{BAD_ROW}\b.* of the training data|the running statistics 1.running_var")
            self.assertEqual(len(self.losses(run)), 5 * 7)
            self.assertIsNotNone(self.events("epoch", run)[-1]["val_loss"])
            self.assert_checkpoints_are_finite(run)

    def test_nothing_but_skipped_steps(self):
        """An epoch without an applied step has no loss, and a hundred warnings say no more than a few."""
        self.write_rows({row: 3e38 for row in range(64)})
        self.write("test.yaml", CONFIG.replace("batch_norm, ", "").replace("split: {test: 0.11, shuffle: false}", "validation: {path: good.csv}"))
        self.write("good.csv", "a,b,c,d,y\n1,0,1,0,1\n0,1,1,0,0\n")
        _, err = self.run_program("test.yaml", "train.epochs=2", "train.on_nonfinite={policy: skip, max: 1000}")
        self.assertNotIn("nan ", err)
        self.assertRegex(err, r"epoch 2/2  every step was skipped  validation loss \d")
        self.assertRegex(err, r"done: 2 epochs, 0 steps \(18 more skipped\) in ")
        self.assertEqual(err.count("warning: the loss is not finite"), 4)
        self.assertIn("(number 10 since the start)", err)
        self.assertEqual(self.events("end")[0]["skipped"], 18)
        self.assertEqual(len(self.events("skipped")), 18)
        self.assertRegex(self.events("skipped")[0]["reason"], r" for rows \d+(, \d+){4} and [1-3] more of the training data")

    def test_average_before_the_first_applied_step(self):
        """Until a step is applied the average of the weights is the weights, also after a resume."""
        self.write_rows({row: 3e38 for row in range(64)})
        self.write("test.yaml", CONFIG.replace("split: {test: 0.11, shuffle: false}", "validation: {path: good.csv}"))
        self.write("good.csv", "a,b,c,d,y\n1,0,1,0,1\n0,1,1,0,0\n")
        skip = "train.on_nonfinite={policy: skip, max: 1000}"
        self.run_program("test.yaml", "--run-dir", "runs/plain", "train.epochs=2", skip)
        for nproc in (1, 2):
            run = f"runs/{nproc}"
            average = ("test.yaml", "--nproc", nproc, "--run-dir", run, skip, "train.ema=0.9")
            for epochs in (1, 2):
                self.run_program(*average, f"train.epochs={epochs}")
            for epoch in self.events("epoch", run):
                self.assertEqual(epoch["val_loss"], self.events("epoch", "runs/plain")[0]["val_loss"])

    def test_validation_without_a_target_that_counts(self):
        """Another learning rate does not help, so the message is about the data."""
        rows = "a,b,c,y\n" + "".join(f"{k % 5},{k % 3},{k % 2},%d\n" for k in range(16))
        self.write("good.csv", rows % tuple(k % 2 for k in range(16)))
        self.write("ignored.csv", rows % (16 * (-100,)))
        self.write("test.yaml", CONFIG.replace("data.csv, inputs: [a, b, c, d]", "good.csv, inputs: [a, b, c]")
                   .replace("split: {test: 0.11, shuffle: false}", "validation: {path: ignored.csv}")
                   .replace("linear: {out: 1}", "linear: {out: 2}").replace("loss: mse", "loss: cross_entropy"))
        for nproc in (1, 2):
            _, err = self.run_program("test.yaml", "--nproc", nproc, "--run-dir", f"runs/{nproc}", code=DATA)
            self.assertIn("the validation loss is not defined: no target of the 16 validation rows counts", err)
        self.write("test.yaml", self.read("test.yaml").replace("loss: cross_entropy", "losses: [{type: cross_entropy, name: kind}]"))
        _, err = self.run_program("test.yaml", "--run-dir", "runs/named", code=DATA)
        self.assertIn("the validation loss 'kind' is not defined: no target of the 16 validation rows counts", err)
        out, _ = self.run_program("eval", "test.yaml", "--checkpoint", "initial")
        self.assertIsNone(json.loads(out)["loss"])

    def test_rollback_ends_where_skip_does(self):
        """Going back to the newest checkpoint and leaving the batch out is the same run as not applying its step."""
        self.write("test.yaml", CONFIG.replace("batch_norm, ", ""))
        for nproc in (1, 2):
            for policy in ("skip", "rollback"):
                self.run_program("test.yaml", "--nproc", nproc, "--run-dir", f"runs/{policy}", "--fresh", f"train.on_nonfinite={policy}")
            self.assertGreaterEqual(len(self.events("rollback", "runs/rollback")), 1)
            self.assertEqual(self.losses("runs/rollback"), self.losses("runs/skip"))
            self.assertEqual(self.sha("runs/rollback"), self.sha("runs/skip"))
            self.assert_checkpoints_are_finite("runs/rollback")

    def test_killed_and_resumed(self):
        """A run that is killed at any save and resumed ends with the bits of an uninterrupted one."""
        for policy in ("skip", "rollback"):
            self.run_program("test.yaml", "--run-dir", "runs/whole", "--fresh", f"train.on_nonfinite={policy}")
            for at in (30, 61, 94):
                run = f"runs/{policy}{at}"
                self.run_program("test.yaml", "--run-dir", run, f"train.on_nonfinite={policy}", code=None,
                                 env={"DDPTRAIN_FAULT": f"{at}:kill", "DDPTRAIN_FAULT_FILTER": "runs/"})
                self.assertEqual(self.code, -9)
                self.run_program("test.yaml", "--run-dir", run, f"train.on_nonfinite={policy}")
                self.assertEqual(self.sha(run), self.sha("runs/whole"), run)
                self.assertEqual(self.losses(run), self.losses("runs/whole"))

    def test_most_in_a_row(self):
        """Rows without shuffling: three batches of 8 in a row are bad."""
        self.write_rows({8: 3e38, 20: -3e38, 30: 3e38})
        self.write("test.yaml", CONFIG.replace("batch_norm, ", ""))
        for policy, sentence in (("skip", "2 steps in a row were skipped before"),
                                 ("rollback", "2 roll-backs to the newest checkpoint did not help")):
            for nproc in (1, 2):
                arguments = ["test.yaml", "--nproc", nproc, "--fresh", "sampler.shuffle=false", "checkpoint.save_every={epochs: 1}"]
                self.run_program(*arguments, f"train.on_nonfinite={{policy: {policy}, max: 2}}", code=NOT_FINITE, err=sentence)
                _, err = self.run_program(*arguments, f"train.on_nonfinite={{policy: {policy}, max: 3}}")
                self.assertIn("From now on only the 10th", err)
                self.assertEqual("all are in metrics.jsonl" in err, policy == "skip")  # going back takes lines back

    def test_rollback_on_a_full_disk(self):
        """A save that fails is a warning also when the run goes back; what was skipped since the newest checkpoint on disk stays so."""
        self.write_rows({row: 3e38 for row in (20, 30, 40, 50)})  # four steps of an epoch
        self.write("test.yaml", CONFIG.replace("batch_norm, ", ""))
        full = {"DDPTRAIN_FAULT": "1:enospc:ever", "DDPTRAIN_FAULT_FILTER": "/step-"}  # the save before the first step is the only good one
        for nproc in (1, 2):
            arguments = ["test.yaml", "--nproc", nproc, "--fresh", "sampler.shuffle=false", "train.epochs=1", "checkpoint.save_every.steps=1"]
            _, err = self.run_program(*arguments, "train.on_nonfinite={policy: rollback, max: 2}", env=full, code=NOT_FINITE)
            self.assertIn("2 roll-backs to the newest checkpoint did not help", err)
            self.assertIn("back to epoch 1, step 0; its batches are skipped", err)
            self.assertIn("a checkpoint could not be saved; the run continues", err)
            self.run_program(*arguments, "train.on_nonfinite={policy: rollback, max: 2}")  # a save between them makes the count begin again

    def test_gradients_alone(self):
        """The loss is finite, but 0.125 x 100 x 1e38 is too much for a gradient."""
        self.write_rows({BAD_ROW: 1e38})
        self.write("test.yaml", CONFIG.replace("batch_norm, {dropout: {p: 0.2}}, relu, ", "")
                   .replace("{linear: {out: 1}}]", "{linear: {out: 1}}], init: [{constant: {value: 1.0e-10, match: 0.*}}, {constant: {value: 100, match: 1.*}}]")
                   .replace("loss: mse", "loss: l1").replace("lr: 0.01", "lr: 1.0e-14"))
        for nproc in (1, 2):
            for log_every in (0, 1):
                _, err = self.run_program("test.yaml", "--nproc", nproc, "--fresh", f"train.log_every={log_every}", code=NOT_FINITE)
                self.assertRegex(err, rf"gradients are not finite in epoch 1, step \d+ \(first .*the gradient of 0\.weight for row {BAD_ROW} ")

    def test_trials_without_folders(self):
        """Nothing needs the norm of their gradients, which are checked all the same."""
        self.write_rows({BAD_ROW: 1e38})
        self.write("test.yaml", CONFIG.replace("batch_norm, {dropout: {p: 0.2}}, relu, ", "")
                   .replace("{linear: {out: 1}}]", "{linear: {out: 1}}], init: [{constant: {value: 1.0e-10, match: 0.*}}, {constant: {value: 100, match: 1.*}}]")
                   .replace("loss: mse", "loss: l1").replace("lr: 0.01", "lr: 1.0e-14").replace("epochs: 5", "epochs: 2, on_nonfinite: skip"))
        for nproc in (1, 2):
            self.write("sweep.yaml", f"config: test.yaml\nmethod: list\ntrials: [{{seed: 1}}, {{seed: 2}}, {{seed: 3}}, {{seed: 4}}, {{seed: 5}}, {{seed: 6}}]\nkeep: none\nnproc_per_trial: {nproc}\n")
            _, err = self.run_program("sweep", "sweep.yaml", "--run-dir", f"sweeps/{nproc}")
            self.assertNotIn("failed", err)
            self.assertEqual(self.read(f"sweeps/{nproc}/trials.csv").count("complete"), 6)

    def test_exploding(self):
        """Every step after the first is bad: no policy can help, and all end with 76 and only finite checkpoints."""
        self.write_rows({})
        for policy in ("stop", "skip", "rollback"):
            for nproc in (1, 2):
                _, err = self.run_program("test.yaml", "--nproc", nproc, "--fresh", "optimizer={type: sgd, lr: 1.0e+38}",
                                          "checkpoint.save_every.steps=1", f"train.on_nonfinite={{policy: {policy}, max: 3}}", code=NOT_FINITE)
                self.assertEqual(err.count("ddptrain:"), 1, err)
                for path in self.checkpoints():
                    self.assertNotIn("not finite", self.run_program("inspect", path)[0])

    def test_the_last_step_explodes(self):
        """A parameter that is not finite where a save is due ends the run, or leads back: after an epoch's end, before its evaluation, as
        the best one, at the end."""
        self.write("test.yaml", CONFIG.replace("batch_norm, ", ""))
        self.write_rows({row: 1e4 for row in range(72)})
        huge = ["test.yaml", "--fresh", "optimizer={type: sgd, lr: 1.0e+38}", "train={steps: 1}", "dataset.split.test=0"]
        for more in ([], ["checkpoint.save_every.steps=1"], ["checkpoint.best={metric: train_loss}"]):
            for policy in ("stop", "skip", "rollback"):
                _, err = self.run_program(*huge, *more, f"train.on_nonfinite={{policy: {policy}, max: 1}}", code=NOT_FINITE)
                self.assertRegex(err, r"the parameter 0\.weight is not finite after epoch 0, step 1")
                self.assertEqual("back to epoch 1, step 0; its batches are skipped" in err, policy == "rollback", err)

    def test_another_policy_may_take_over(self):
        """After a stop the same run goes on with skip: the policy only extends a run."""
        self.write_rows({60: 3e38})
        self.write("test.yaml", CONFIG.replace("batch_norm, ", ""))
        self.run_program("test.yaml", "sampler.shuffle=false", code=NOT_FINITE)
        self.run_program("test.yaml", "sampler.shuffle=false", "train.on_nonfinite=skip")
        self.assertEqual(len(self.events("skipped")), 5)
