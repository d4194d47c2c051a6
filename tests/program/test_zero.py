"""dist.zero_stage: 1: each rank keeps its share of the optimizer's state, with the numbers and the files of a run that does
not. ctest-labels: dist"""
import program
from program import DIVERGED, OK

# several buckets, tensors that do not divide, frozen ones in between, groups, a value that accumulators start with
CONFIG = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 300, inputs: 37, classes: 5, seed: 3}, split: {test: 0.2, seed: 1}}
sampler: {global_batch_size: 24, shuffle: true}
model:
  layers: [{linear: {out: 53, name: a}}, relu, {linear: {out: 41, name: b}}, batch_norm, {linear: {out: 29, name: c}}, {dropout: {p: 0.1}}, {linear: {out: 5, name: d}}]
  freeze: [b.weight]
loss: cross_entropy
optimizer: {type: adamw, lr: 0.01, amsgrad: true, groups: [{match: "*.bias", weight_decay: 0, lr: 0.02}]}
schedule: {type: cosine, interval: step}
train: {epochs: 3, clip_grad_norm: 0.7, ema: 0.9}
checkpoint: {save_every: {steps: 4}, keep: 0}
dist: {first_bucket_mb: 0.002, bucket_cap_mb: 0.004}
"""


class Zero(program.Case):
    def setUp(self):
        super().setUp()
        self.write("test.yaml", CONFIG)

    def assert_same(self, run, other):
        self.assertEqual(self.sha(run), self.sha(other), run)
        self.assertEqual(self.losses(run), self.losses(other), run)
        self.assertEqual([s["grad_norm"] for s in self.events("step", run)], [s["grad_norm"] for s in self.events("step", other)])

    def test_same_numbers(self):
        """Bit for bit: an element is summed in order of rank, whoever owns it."""
        optimizers = ("adamw", "{type: sgd, lr: 0.1, momentum: 0.9}", "{type: adagrad, lr: 0.1, initial_accumulator_value: 0.3}")
        for world, optimizer in ((2, None), (3, None), (4, optimizers[2]), (2, optimizers[1])):
            extra = [f"optimizer={optimizer}"] if optimizer else []
            for stage in (0, 1):
                self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{stage}", "--fresh", f"dist.zero_stage={stage}", *extra)
            self.assert_same("runs/1", "runs/0")

    def test_small_model(self):
        """Shares of nothing, and all in what is left over."""
        self.write("test.yaml", program.WINE.replace("out: 64", "out: 2"))
        for stage in (0, 1):
            self.run_program("test.yaml", "--nproc", 3, "--run-dir", f"runs/{stage}", f"dist.zero_stage={stage}", "train.clip_grad_value=0.5")
        self.assert_same("runs/1", "runs/0")

    def test_files_are_whole(self):
        """A checkpoint contains the whole state: the same bytes for every stage, and any world and either stage can resume from it."""
        for stage in (0, 1):
            self.run_program("test.yaml", "--nproc", 3, "--run-dir", f"runs/{stage}", f"dist.zero_stage={stage}")
        kept = [self.run_program("inspect", f"runs/{stage}/checkpoints/epoch-0002.h5")[0] for stage in (0, 1)]
        tensors = [[line for line in text.splitlines() if "optimizer/" in line or "model/" in line] for text in kept]
        self.assertTrue(tensors[0])
        self.assertEqual(tensors[0], tensors[1])
        for world, stage in ((1, 1), (2, 1), (4, 0)):
            for source in (0, 1):
                self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/from{source}", "--fresh", f"dist.zero_stage={stage}",
                                 f"checkpoint.resume=runs/{source}/checkpoints/epoch-0002.h5")
            self.assertEqual(self.sha("runs/from1"), self.sha("runs/from0"), (world, stage))

    def test_killed_and_resumed(self):
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/whole")
        for at in (40, 90):
            self.run_program("test.yaml", "--nproc", 2, "dist.zero_stage=1", code=None,
                             env={"DDPTRAIN_FAULT": f"{at}:kill", "DDPTRAIN_FAULT_FILTER": "runs/"})
            self.assertNotEqual(self.code, OK)
        self.run_program("test.yaml", "--nproc", 2, "dist.zero_stage=1")
        self.assertEqual(self.sha(), self.sha("runs/whole"))
        self.run_program("test.yaml", "--nproc", 2, "dist.zero_stage=1")  # complete: says so

    def test_last_save_fails_once(self):
        """The background save of the last state fails; all ranks write it again together."""
        for call in (2, 4):  # the file cannot be created, or not be written
            _, err = self.run_program("test.yaml", "--nproc", 2, "checkpoint.save_every={epochs: 3}", "dist.zero_stage=1", "--fresh",
                                      env={"DDPTRAIN_FAULT": f"{call}:enospc", "DDPTRAIN_FAULT_FILTER": "epoch-0003.h5.tmp"})
            self.assertIn("a checkpoint could not be saved; the run continues", err)
            self.assertIn("seal    good", self.run_program("inspect", *self.checkpoints())[0])

    def test_with_guards_and_elastic(self):
        err = self.run_program("test.yaml", "--nproc", 3, "dist.zero_stage=1", "train.check_state_every=1", code=DIVERGED,
                               env={"DDPTRAIN_FAULT_FLIP": "1:3:77"})[1]
        self.assertIn("differs in a.weight", err)
        for world, stage in ((1, 0), (3, 1), (2, 1)):
            run = f"runs/{world}{stage}"
            self.run_program("test.yaml", "--nproc", world, "--run-dir", run, f"dist.zero_stage={stage}", "determinism={mode: elastic, shards: 4}")
            self.assert_same(run, "runs/10")
        for policy in ("skip", "rollback"):
            self.write("bad.csv", "a,b,y\n" + "".join(f"{i % 7},{3e38 if i == 17 else i % 5},{i % 3}\n" for i in range(50)))
            self.write("bad.yaml", "dataset: {path: bad.csv, inputs: [a, b], targets: y}\nsampler: {batch_size: 5}\n"
                       "model: {layers: [{linear: {out: 64}}, relu, {linear: {out: 1}}]}\nloss: mse\ntrain: {epochs: 3}\n")
            self.run_program("bad.yaml", "--nproc", 2, "--run-dir", f"runs/{policy}", "dist.zero_stage=1", f"train.on_nonfinite={policy}")
        self.assertEqual(self.sha("runs/skip"), self.sha("runs/rollback"))

    def test_check_shows_the_saving(self):
        out = self.run_program("check", "test.yaml", "--nproc", 4, "dist.zero_stage=1")[0]
        self.assertRegex(out, r"shared +0\.0\d MiB of optimizer state over 4 processes: 0\.0\d MiB less on each")


if __name__ == "__main__":
    program.main()
