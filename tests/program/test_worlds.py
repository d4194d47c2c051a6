"""The same rows give the same numbers on any number of ranks, and no evaluation counts a row twice. ctest-labels: dist"""
import re

import program
from program import USAGE


class Worlds(program.Case):
    CONFIG = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 480, inputs: 12, classes: 3, seed: 5}, split: {test: 97, seed: 1}}
sampler: {global_batch_size: 24, shuffle: true, drop_last: true}
model: {layers: [{linear: {out: 32}}, tanh, {dropout: {p: 0.25}}, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: 3}
"""

    def test_ranks_times_batch(self):
        """1 x 24, 2 x 12, 3 x 8, 4 x 6 rows: the same global batches, so the same losses, also with dropout."""
        # 383 rows would be padded or cut differently by each world: take a split that all worlds divide
        self.write("test.yaml", self.CONFIG.replace("test: 97", "test: 0.2"))
        for world in (1, 2, 3, 4):
            _, err = self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{world}")
            self.assertNotIn("is reached at", err)  # a line for several hosts
            self.assert_close(self.losses(f"runs/{world}"), self.losses("runs/1"), 2e-6, f"world {world}")
            self.assertEqual({s["samples"] for s in self.events("step", f"runs/{world}")}, {24})

    def test_other_masks(self):
        """Masks of channels and of rows; drop_path with one draw for a step is the same on all ranks."""
        layers = "[{linear: 32}, {reshape: [4, 8]}, {dropout1d: 0.2}, {residual: [{linear: 8}, tanh, {layer_scale: 0.5}, {drop_path: 0.3}]}, " \
                 "{residual: [{linear: 8}, {drop_path: {p: 0.3, mode: batch}}]}, {reshape: [4, 4, 2]}, {dropout2d: 0.2}, flatten, {linear: 3}]"
        config = self.CONFIG.replace("test: 97", "test: 0.2")
        self.write("test.yaml", config[:config.index("model:")] + f"model: {{layers: {layers}}}" + config[config.index("\nloss:"):])
        for world in (1, 2, 3):
            self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{world}")
            self.assert_close(self.losses(f"runs/{world}"), self.losses("runs/1"), 2e-6, f"world {world}")

    def test_dropout_masks(self):
        """Each step of each epoch and each layer draws its own mask: with fixed weights and rows all losses differ, and two layers
        of 0.5 keep about a quarter."""
        config = self.CONFIG.replace("rows: 480, inputs: 12", "rows: 48, inputs: 12").replace(", split: {test: 97, seed: 1}", "") \
            .replace("shuffle: true, drop_last: true", "shuffle: false").replace("lr: 0.05, momentum: 0.9", "lr: 0")
        self.write("test.yaml", config)
        self.run_program("test.yaml")
        losses = self.losses()
        self.assertEqual(len(losses), 6)
        self.assertEqual(len(set(losses[0::2])), 3, "the first batch of each epoch")
        self.assertEqual(len(set(losses[1::2])), 3, "the second batch of each epoch")
        rows = "\n".join(["1,1,1,1,0"] * 250)
        self.write("ones.csv", f"a,b,c,d,y\n{rows}\n")
        self.write("test.yaml", "dataset: {path: ones.csv}\nsampler: {batch_size: 250, shuffle: false}\nloss: mse\ntrain: {epochs: 1}\n"
                   "model:\n  init: [{ones: {match: '*'}}]\n  layers: [{dropout: 0.5}, {dropout: 0.5}, {linear: {out: 1, bias: false}}]\n"
                   "optimizer: {type: sgd, lr: 0}\n")
        self.run_program("test.yaml", "--fresh")
        # (4 k)^2 is 28 on average where k of 4 inputs pass two masks, 80 where they pass the same one twice
        self.assertAlmostEqual(self.losses()[0], 28, delta=10)

    def test_evaluation_counts_each_row_once(self):
        """97 validation rows divide by none of the worlds but 1; with the weights frozen (lr 0) the sums must agree."""
        self.write("test.yaml", self.CONFIG.replace("test: 97", "test: 0.202").replace("lr: 0.05, momentum: 0.9", "lr: 0.0")
                   .replace("global_batch_size: 24", "batch_size: 8"))
        results = []
        for world in (1, 2, 3, 4):
            self.run_program("test.yaml", "train.epochs=1", "--nproc", world, "--run-dir", f"runs/{world}")
            epoch = self.events("epoch", f"runs/{world}")[-1]
            self.assertEqual(epoch["val_rows"], 97)
            results.append((epoch["val_loss"], epoch["val_accuracy"]))
        for loss, accuracy in results:
            self.assertAlmostEqual(loss, results[0][0], places=6)
            self.assertEqual(accuracy, results[0][1])

    def test_equal_again(self):
        self.write("test.yaml", self.CONFIG.replace("test: 97", "test: 0.2"))
        for run in ("a", "b"):
            self.run_program("test.yaml", "--nproc", 3, "--run-dir", f"runs/{run}")
        self.assertEqual(self.sha("runs/a"), self.sha("runs/b"))

    def test_buckets_change_nothing(self):
        """Many small buckets, reduced during backward, give the bits of one bucket on two ranks."""
        wide = self.CONFIG.replace("test: 97", "test: 0.2").replace("out: 32", "out: 700")
        self.write("test.yaml", wide)
        err = self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/one")[1]
        self.assertRegex(err, r"samples/s  comm hidden 0 %\n")  # nothing runs during the reduction of the only bucket
        self.assertEqual([e["comm_hidden"] for e in self.events("epoch", "runs/one")], [0, 0, 0])
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/many", "dist.first_bucket_mb=0.001", "dist.bucket_cap_mb=0.001")
        self.assertEqual(self.losses("runs/one"), self.losses("runs/many"))
        for e in self.events("epoch", "runs/many"):
            self.assertTrue(0 <= e["comm_hidden"] < 1, e)

    def test_nothing_to_hide(self):
        """One process has no communication; elastic determinism has none during backward."""
        self.write("test.yaml", self.CONFIG.replace("test: 97", "test: 0.2"))
        for run, *arguments in (("runs/alone",), ("runs/elastic", "--nproc", 2, "determinism={mode: elastic, shards: 4}")):
            err = self.run_program("test.yaml", "train.epochs=1", "--run-dir", run, *arguments)[1]
            self.assertIn("samples/s", err)
            self.assertNotIn("comm hidden", err)
            self.assertNotIn("comm_hidden", self.events("epoch", run)[0])

    def test_compression(self):
        """Gradients travel as bfloat16: other numbers, about the same; the same ones with the optimizer's state shared."""
        self.write("test.yaml", self.CONFIG.replace("test: 97", "test: 0.2"))
        half = "dist.gradient_compression=bfloat16"
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/whole")
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/half", half, err="gradients averaged by shared memory as bfloat16,")
        self.assert_close(self.losses("runs/half"), self.losses("runs/whole"), 2e-2)
        self.assertNotEqual(self.losses("runs/half")[1:], self.losses("runs/whole")[1:])
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/zero", half, "dist.zero_stage=1", "dist.first_bucket_mb=0.001")
        self.assertEqual(self.sha("runs/zero"), self.sha("runs/half"))
        sent = [float(re.search(r"about ([\d.]+) MiB sent", self.run_program("check", "test.yaml", "--nproc", 2,
                                                                               "model.layers.0.linear.out=9000", *extra)[0])[1]) for extra in ([], [half])]
        self.assertAlmostEqual(sent[1], sent[0] / 2, delta=0.011)

    def test_accumulation(self):
        """4 micro-batches of 6 are one batch of 24 (mean of equal means)."""
        self.write("test.yaml", self.CONFIG.replace("test: 97", "test: 0.2").replace(", {dropout: {p: 0.25}}", ""))
        self.run_program("test.yaml", "--run-dir", "runs/whole")
        for weighting in ("torch", "samples"):
            for world in (1, 2):
                run = f"runs/{weighting}{world}"
                self.run_program("test.yaml", "--nproc", world, "--run-dir", run, "sampler.global_batch_size=6",
                                 "train.accumulate=4", f"train.accumulate_weighting={weighting}")
                self.assert_close(self.losses(run), self.losses("runs/whole"), 2e-6, run)

    def test_short_group_is_weighted_by_rows(self):
        """20 rows in batches of 6 and groups of 2: rows 12 and 6 + 2. `samples` equals batches of 12 and 8."""
        config = self.CONFIG.replace("rows: 480", "rows: 20").replace(", split: {test: 97, seed: 1}", "") \
            .replace(", {dropout: {p: 0.25}}", "").replace("global_batch_size: 24", "batch_size: 6")
        self.write("test.yaml", config)
        self.run_program("test.yaml", "sampler.batch_size=12", "--run-dir", "runs/whole")
        self.run_program("test.yaml", "train.accumulate=2", "train.accumulate_weighting=samples", "--run-dir", "runs/samples")
        self.run_program("test.yaml", "train.accumulate=2", "--run-dir", "runs/torch")
        self.assert_close(self.losses("runs/samples"), self.losses("runs/whole"), 2e-6)
        self.assertGreater(max(abs(a - b) for a, b in zip(self.losses("runs/torch"), self.losses("runs/whole"))), 1e-4)

    def test_uneven_inputs(self):
        """45 rows: each once an epoch, also in batches that some ranks have no row of; the losses of one process."""
        config = self.CONFIG.replace("rows: 480", "rows: 45").replace(", split: {test: 97, seed: 1}", "") \
            .replace("global_batch_size: 24, shuffle: true, drop_last: true", "batch_size: 1, shuffle: true, uneven: true")
        self.write("test.yaml", config)
        for world, batch, accumulate in ((2, 4, 1), (4, 2, 1), (3, 3, 1), (4, 1, 1), (7, 6, 1), (4, 2, 2)):
            group = world * batch * accumulate
            self.run_program("test.yaml", f"sampler.batch_size={group}", "--run-dir", f"runs/one{group}", "--fresh",
                             *(["model.layers.2.dropout.p=0"] if accumulate > 1 else []))
            run = f"runs/{world}-{batch}-{accumulate}"
            self.run_program("test.yaml", f"sampler.batch_size={batch}", "--nproc", world, "--run-dir", run, f"train.accumulate={accumulate}",
                             *(["model.layers.2.dropout.p=0", "train.accumulate_weighting=samples"] if accumulate > 1 else []))
            self.assert_close(self.losses(run), self.losses(f"runs/one{group}"), 3e-6, run)
            self.assertEqual([s["samples"] for s in self.events("step", run)],
                             [s["samples"] for s in self.events("step", f"runs/one{group}")])
            self.assertEqual(self.events("end", run)[-1]["samples"], 3 * 45)

    def test_more_ranks_than_rows(self):
        """3 rows on 5 ranks: two of them only take part."""
        self.write("test.yaml", self.CONFIG.replace("rows: 480", "rows: 3").replace(", split: {test: 97, seed: 1}", "")
                   .replace("global_batch_size: 24, shuffle: true, drop_last: true", "batch_size: 4, uneven: true"))
        self.run_program("test.yaml", "--run-dir", "runs/1")
        self.run_program("test.yaml", "--nproc", 5, "--run-dir", "runs/5")
        self.assert_close(self.losses("runs/5"), self.losses("runs/1"), 2e-6)

    def test_indivisible_global_batch(self):
        self.write("test.yaml", self.CONFIG.replace("test: 97", "test: 0.2"))
        self.run_program("test.yaml", "--nproc", 5, code=USAGE, err="sampler.global_batch_size 24 is not a multiple of the 5 ranks")
