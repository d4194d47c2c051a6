"""determinism elastic: the same bits on any number of ranks, also when it changes in the middle of an epoch. ctest-labels: dist"""
import program
from program import NOT_FINITE, USAGE

WINE = program.WINE.replace("batch_size: 32", "global_batch_size: 30").replace("epochs: 10", "epochs: 4") \
    + "determinism: {mode: elastic, shards: 8}\n"
# everything whose numbers could depend on who computes them
ALL = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 203, inputs: 12, classes: 3, seed: 5}, split: {test: 0.2, seed: 1}}
sampler: {global_batch_size: 24, shuffle: true}
model: {layers: [{linear: {out: 32}}, batch_norm, tanh, {dropout: {p: 0.25}}, {residual: [{linear: 32}, {drop_path: {p: 0.2, mode: batch}}, {drop_path: 0.2}]}, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.01}
schedule: {type: reduce_on_plateau, monitor: val_loss, patience: 0}
train: {epochs: 4, clip_grad_norm: 0.5, ema: 0.9, metrics: [auc, f1]}
checkpoint: {save_every: {steps: 2}, keep: 0}
determinism: {mode: elastic, shards: 8}
"""

VAE = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 203, inputs: 12, classes: 3, seed: 5}, scale: minmax, split: {test: 0.2, seed: 1}}
sampler: {global_batch_size: 24, shuffle: true}
model:
  layers:
    - linear: 16
    - tanh: {name: hidden}
    - linear: {out: 5, name: mean, from: hidden}
    - linear: {out: 5, name: log_variance, from: hidden}
    - concat: {from: [mean, log_variance], name: code}
    - sample_normal: {from: [mean, log_variance]}
    - linear: {out: 12, name: drawn}
losses:
  - {type: bce_with_logits, output: drawn, target: input, reduction: batchmean}
  - {type: kl_normal, output: code}
optimizer: {type: adam, lr: 0.01}
train: {epochs: 3}
determinism: {mode: elastic, shards: 8}
"""

# large products of matrices and convolutions: those for which AMX and oneDNN are used, if they are there
LARGE = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 128, inputs: [3, 16, 16], classes: 4, seed: 5}, split: {test: 0.25, seed: 1}}
sampler: {batch_size: 32}
model: {layers: [{conv2d: {out: 64, kernel_size: 5, padding: 2}}, relu, {conv2d: {out: 64, kernel_size: 3, stride: 2, padding: 1}}, relu, flatten, {linear: 96}, relu, {linear: 4}]}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.001}
train: {epochs: 1}
"""


class Portable(program.Case):
    def test_the_same_bits_on_any_number_of_threads(self):
        self.write("test.yaml", LARGE + "determinism: {portable: true}\n")
        values = []
        for threads in (1, 2, 3):
            self.run_program("test.yaml", "--run-dir", f"runs/{threads}", env={"OMP_NUM_THREADS": str(threads)})
            out, _ = self.run_program("eval", f"runs/{threads}", env={"OMP_NUM_THREADS": str(4 - threads)})
            values.append((self.sha(f"runs/{threads}"), self.losses(f"runs/{threads}"), [line for line in out.splitlines() if "loss" in line]))
        self.assertEqual(values, values[:1] * 3)
        self.assertIn("float32, without AMX and oneDNN", self.run_program("check", "test.yaml")[0])
        self.run_program("test.yaml", "--run-dir", "runs/default", "determinism.portable=false")
        self.assert_close(self.losses("runs/1"), self.losses("runs/default"), 2e-5, "the same formulas")

    def test_a_change_of_processes(self):
        """Elastic: no thread less for a model with convolutions."""
        self.write("test.yaml", LARGE.replace("batch_size", "global_batch_size") + "determinism: {mode: elastic, shards: 2, portable: true}\n")
        for world, threads in ((1, 2), (2, 1), (1, 3)):
            self.run_program("test.yaml", "--run-dir", f"runs/{world}{threads}", "--nproc", world, env={"OMP_NUM_THREADS": str(threads)})
            self.assertEqual(self.sha(f"runs/{world}{threads}"), self.sha("runs/12"))


class Elastic(program.Case):
    def numbers(self, run):
        keys = ("step", "epoch", "train_loss", "val_loss", "val_auc", "val_f1", "loss", "grad_norm", "lr", "samples")
        return [[m.get(k) for k in keys] for m in self.metrics(run) if m["event"] in ("step", "epoch")]

    def assert_same(self, run, other):
        self.assertEqual(self.sha(run), self.sha(other), run)
        self.assertEqual(self.numbers(run), self.numbers(other), run)

    def test_wine_on_1_2_3_4_8(self):
        self.write("test.yaml", WINE)
        for world in (1, 2, 3, 4, 8):
            self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{world}")
            self.assert_same(f"runs/{world}", "runs/1")
        self.run_program("test.yaml", "--run-dir", "runs/torch", "determinism=torch")
        self.assert_close(self.losses("runs/8"), self.losses("runs/torch"), 2e-6, "the mean over the same rows")

    def test_everything(self):
        """Dropout, batch norm, a schedule that watches the validation loss, clipping, an average, metrics; 5 shards on 2, 3
        and 8 ranks: uneven shares, and ranks without any."""
        self.write("test.yaml", ALL)
        for shards, worlds in ((8, (1, 3, 8)), (5, (1, 2, 8))):
            for world in worlds:
                self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{shards}-{world}", f"determinism.shards={shards}")
                self.assert_same(f"runs/{shards}-{world}", f"runs/{shards}-1")
        self.assertNotEqual(self.sha("runs/5-1"), self.sha("runs/8-1"))

    def test_samples_of_a_distribution(self):
        """The noise of a VAE belongs to the rows of the global batch, and outside of training the mean is taken."""
        self.write("test.yaml", VAE)
        for world in (1, 3):
            self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{world}")
        self.assert_same("runs/3", "runs/1")
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/parts", "train.epochs=1")
        self.run_program("test.yaml", "--run-dir", "runs/parts")
        self.assertEqual(self.sha("runs/parts"), self.sha("runs/1"))
        losses = self.events("epoch", "runs/1")
        self.assertAlmostEqual(losses[-1]["val_loss"], losses[-1]["val_drawn_loss"] + losses[-1]["val_code_loss"], 5)
        self.run_program("test.yaml", "--run-dir", "runs/torch", "determinism=torch")
        self.assert_close(self.losses("runs/torch"), self.losses("runs/1"), 2e-5, "the same noise without shards")
        self.run_program("test.yaml", "--run-dir", "runs/other", "seed=1")
        self.assertNotEqual(self.sha("runs/other"), self.sha("runs/1"))

    def test_one_shard_is_one_process(self):
        self.write("test.yaml", ALL)
        self.run_program("test.yaml", "determinism.shards=1", "--nproc", 2, "--run-dir", "runs/elastic")
        self.run_program("test.yaml", "determinism=torch", "--run-dir", "runs/torch")
        self.assert_same("runs/elastic", "runs/torch")

    def test_running_statistics(self):
        """Each shard adds its mean by its rows: together the running mean is that of training without shards."""
        import h5py
        self.write("test.yaml", ALL.replace("{linear: {out: 32}}, batch_norm, tanh", "batch_norm, {linear: {out: 32}}, tanh"))
        means = {}
        for mode in ("{mode: elastic, shards: 5}", "torch"):
            self.run_program("test.yaml", f"determinism={mode}", "--run-dir", f"runs/{mode[:5]}")
            with h5py.File(self.checkpoints(f"runs/{mode[:5]}")[-1]) as f:
                means[mode] = f["model/0.running_mean"][:].astype("f8")
        first, second = means.values()
        self.assertGreater(abs(first).max(), 0.01)
        self.assertLess(abs(first - second).max(), 1e-6)

    def test_convolutions(self):
        self.write("test.yaml", """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 30, inputs: [3, 8, 8], classes: 3, seed: 5}}
sampler: {global_batch_size: 14}
model: {layers: [{conv2d: {out: 32, kernel_size: 3, padding: 1}}, batch_norm, relu, {conv2d: {out: 32, kernel_size: 3, padding: 1}}, {max_pool2d: 2}, flatten, {linear: {out: 3}}]}
loss: cross_entropy
train: {epochs: 1}
determinism: {mode: elastic, shards: 4}
""")
        for world in (1, 3):
            self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{world}")
        self.assert_same("runs/3", "runs/1")

    def test_killed_and_resumed_on_another_world(self):
        self.write("test.yaml", ALL)
        self.run_program("test.yaml", "--run-dir", "runs/whole")
        worlds = [1, 3, 2, 4, 1]
        for i, world in enumerate(worlds):  # killed within a save, in the middle of epochs, four times
            fault = {"DDPTRAIN_FAULT": f"{50 + 9 * i}:kill", "DDPTRAIN_FAULT_FILTER": "runs/"} if i + 1 < len(worlds) else {}
            self.run_program("test.yaml", "--nproc", world, code=None, env=fault)
            self.assertEqual(self.code == 0, not fault)
        self.assertNotEqual({m["epoch"] for m in self.events("resume")}, set())
        self.assert_same("runs/test", "runs/whole")

    def test_not_finite(self):
        """A bad row: the same steps are skipped on any number of ranks, and its shard names it."""
        rows = "\n".join(f"{i % 7},{3e38 if i == 17 else i % 5},{i % 3}" for i in range(50))
        self.write("data.csv", "a,b,y\n" + rows + "\n")
        self.write("test.yaml", "dataset: {path: data.csv, inputs: [a, b], targets: y}\nsampler: {global_batch_size: 10}\n"
                   "model: {layers: [{linear: {out: 64}}, relu, {linear: {out: 1}}]}\nloss: mse\ntrain: {epochs: 3}\n"
                   "determinism: {mode: elastic, shards: 4}\n")
        for world in (1, 3):
            self.run_program("test.yaml", "--nproc", world, "--fresh", code=NOT_FINITE, err="row 17 of the training data")
            self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{world}", "train.on_nonfinite=skip")
        self.assertEqual(len(self.events("skipped", "runs/3")), 3)
        self.assert_same("runs/3", "runs/1")

    def test_accumulation(self):
        """Several batches for an update, fewer and a short one at the end of an epoch: the same bits on any number of ranks, also when
        it changes in the middle of an epoch, and the numbers of a run without shards."""
        config = ALL.replace("epochs: 4", "epochs: 4, accumulate: 3")
        for weighting in ("torch", "samples"):
            self.write("test.yaml", config.replace("accumulate: 3", f"accumulate: 3, accumulate_weighting: {weighting}"))
            one = f"runs/{weighting}-1"
            for world in (1, 2, 3, 8):
                run = f"runs/{weighting}-{world}"
                self.run_program("test.yaml", "--nproc", world, "--run-dir", run)
                self.assert_same(run, one)
            self.assertEqual([e["samples"] for e in self.events("step", one)][:3], [72, 72, 18])
        self.assertNotEqual(self.sha("runs/samples-1"), self.sha("runs/torch-1"))
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/moved", code=None, env={"DDPTRAIN_FAULT": "60:kill", "DDPTRAIN_FAULT_FILTER": "runs/"})
        self.assertNotEqual(self.code, 0)
        self.run_program("test.yaml", "--nproc", 3, "--run-dir", "runs/moved")
        self.assert_same("runs/moved", "runs/samples-1")
        self.write("test.yaml", WINE.replace("epochs: 4", "epochs: 4, accumulate: 3"))  # the last batches of an epoch have 30 and 22 rows
        for weighting in ("torch", "samples"):
            for run, *words in (("two", "--nproc", 2), ("plain", "determinism=torch")):
                self.run_program("test.yaml", *words, f"train.accumulate_weighting={weighting}", "--run-dir", f"runs/{run}", "--fresh")
            self.assert_close(self.losses("runs/two"), self.losses("runs/plain"), 2e-6, "the weighted mean over the same rows")

    def test_wrong_configs(self):
        for old, new, sentence in (
                (", shards: 8", "", "determinism: elastic needs shards"),
                ("mode: elastic", "mode: torch", "determinism: shards is for mode elastic"),
                ("global_batch_size: 30", "batch_size: 30", "determinism: elastic needs sampler.global_batch_size"),
                ("shards: 8", "shards: 31", "determinism.shards: must be at most sampler.global_batch_size, 30"),
                ("relu", "{batch_norm: {sync: true}}", "cannot be combined with determinism.mode: elastic")):
            with self.subTest(new):
                self.write("test.yaml", WINE.replace(old, new))
                self.assertIn(sentence, self.run_program("test.yaml", code=USAGE)[1])

    def test_a_shard_may_be_one_row(self):
        self.write("test.yaml", WINE.replace("shards: 8", "shards: 30"))
        self.run_program("check", "test.yaml")

    def test_other_shards_are_another_run(self):
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train.epochs=1")
        self.assertIn("determinism.shards: 8 -> 4", self.run_program("test.yaml", "determinism.shards=4", code=USAGE)[1])
