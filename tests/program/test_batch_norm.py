"""Whose rows the statistics of batch_norm are, on one and on several ranks. ctest-labels: dist"""
import h5py
import numpy as np

import program

IMAGES = """
dataset: {path: images.h5}
sampler: {global_batch_size: 24, shuffle: true}
model:
  layers:
    - conv2d: {out: 5, kernel_size: 3, bias: false}
    - batch_norm: {sync: true}
    - relu
    - conv2d: {out: 4, kernel_size: 2}
    - batch_norm: {sync: true, affine: false}
    - flatten
    - linear: 3
loss: cross_entropy
optimizer: {type: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: 3, accumulate: 2}
"""
VALUES = """
dataset: {path: values.h5}
sampler: {global_batch_size: 8, shuffle: false}
model: {layers: [{batch_norm: {momentum: 0.3}}, {linear: 2}]}
loss: mse
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


class BatchNorm(program.Case):
    def setUp(self):
        super().setUp()
        r = np.random.default_rng(3)
        with h5py.File(self.path("images.h5"), "w") as f:
            f["x"] = (r.normal(size=(96, 2, 5, 6)) + np.linspace(0, 3, 96)[:, None, None, None]).astype("<f4")
            f["y"] = r.integers(0, 3, 96)
        self.values = (r.normal(size=(24, 3)) + np.arange(24)[:, None]).astype("<f4")
        with h5py.File(self.path("values.h5"), "w") as f:
            f["x"] = self.values
            f["y"] = r.normal(size=(24, 2)).astype("<f4")

    def state(self, run):
        with h5py.File(self.checkpoints(run)[-1]) as f:
            return {name: f["model"][name][()] for name in f["model"]}

    def test_sync_is_one_process(self):
        """1 x 24, 2 x 12 and 4 x 6 rows normalise by the same statistics: the same losses, weights and running ones."""
        self.write("test.yaml", IMAGES)
        for world in (1, 2, 4):
            self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{world}")
            self.assert_close(self.losses(f"runs/{world}"), self.losses("runs/1"), 5e-6, f"{world} ranks")
            for name, values in self.state(f"runs/{world}").items():
                np.testing.assert_allclose(values, self.state("runs/1")[name], rtol=1e-4, atol=2e-5, err_msg=name)
        self.write("alone.yaml", IMAGES.replace("sync: true", "sync: false"))
        self.run_program("alone.yaml", "--nproc", 2, "--run-dir", "runs/alone")
        self.assertGreater(abs(self.losses("runs/alone")[-1] - self.losses("runs/1")[-1]), 1e-3, "sync makes no difference")

    def running(self, batches):
        mean, var = np.zeros(3), np.ones(3)
        for rows in batches:
            mean = 0.7 * mean + 0.3 * rows.mean(0)
            var = 0.7 * var + 0.3 * rows.var(0, ddof=1)
        return mean, var

    def check_running(self, run, batches):
        mean, var = self.running(batches)
        state = self.state(run)
        np.testing.assert_allclose(state["0.running_mean"], mean, rtol=1e-6)
        np.testing.assert_allclose(state["0.running_var"], var, rtol=1e-6)

    def test_running_statistics(self):
        """Without sync those of rank 0's rows (DDP's broadcast_buffers), with it those of all."""
        self.write("test.yaml", VALUES)
        self.write("sync.yaml", VALUES.replace("momentum: 0.3", "momentum: 0.3, sync: true"))
        whole = self.values.astype(float).reshape(3, 8, 3)
        for world in (2, 4):
            self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{world}")
            self.check_running(f"runs/{world}", whole[:, ::world])
            self.run_program("sync.yaml", "--nproc", world, "--run-dir", f"runs/sync{world}")
            self.check_running(f"runs/sync{world}", whole)


    def test_one_value_per_channel(self):
        """Refused before the first step, by check as well, wherever a pass of training would be a single row."""
        short = "the last batch of an epoch has a single row"
        for nproc, changes, sentence in (
                (1, ["sampler.global_batch_size=1"], "a batch is a single row; increase sampler.batch_size"),
                (2, ["sampler.global_batch_size=2"], "a batch of a process is a single row; increase sampler.batch_size, or set sync: true"),
                (1, ["sampler.global_batch_size=23"], short + " (24 training rows); set sampler.drop_last_batch: true"),
                (2, ["sampler.global_batch_size=22"], short + " on a process (24 training rows)"),
                (3, ["sampler.global_batch_size=21"], short),
                (5, ["sampler.global_batch_size=20"], short),  # 24 rows are padded to 25: 4 + 1 each
                (5, ["sampler.global_batch_size=20", "sampler.uneven=true"], short),
                (5, ["sampler.global_batch_size=15", "sampler.uneven=true"], short),  # 3 + 1 of rank 4 only
                (1, ["determinism={mode: elastic, shards: 5}"], "5 shards of a batch of 8 rows have a single row; use fewer determinism.shards"),
                (2, ["determinism={mode: elastic, shards: 2}", "sampler.global_batch_size=21"], "in the last batch of an epoch, of 3 rows, a shard has a single row"),
                (1, ["sampler.global_batch_size=23", "train={steps: 2}"], short)):
            for verb in ("check", "train"):
                with self.subTest(nproc=nproc, changes=changes, verb=verb):
                    self.write("test.yaml", VALUES)
                    _, err = self.run_program(verb, "test.yaml", *changes, "--nproc", nproc, code=program.USAGE)
                    self.assertIn("test.yaml:4:18: model.layers.0.batch_norm: training needs more than one value per channel", err)
                    self.assertIn(sentence, err)
        for nproc, changes in ((1, ["sampler.global_batch_size=23", "sampler.drop_last_batch=true"]),
                               (1, ["sampler.global_batch_size=23", "train={steps: 1}"]),
                               (2, ["sampler.global_batch_size=2", "model.layers.0.batch_norm.sync=true"]),
                               (2, ["sampler.global_batch_size=20", "sampler.uneven=true"]),
                               (2, ["determinism={mode: elastic, shards: 4}"])):
            with self.subTest(nproc=nproc, changes=changes):
                self.run_program("test.yaml", *changes, "--nproc", nproc, "--fresh")
        self.write("images.yaml", IMAGES.replace("sync: true", "sync: false"))  # each row has a value per position
        self.run_program("images.yaml", "sampler.global_batch_size=1", "train.epochs=1")
