"""Rows of different lengths: padded tokens and series with lengths, in runs, metrics, predictions. ctest-labels: dist"""
import json, os, re, runpy, shutil

import numpy as np

import program

LENGTH, TOKENS = 12, 9
HEAD = """name: rows
seed: 3
dataset: {path: DATA, split: {test: 0.25, seed: 1}}
sampler: {batch_size: 16}
optimizer: {type: adam, lr: 0.01}
train: {epochs: 2METRICS}
"""
# a class for each position: that of the token before it
TAGS = HEAD + """model:
  layers:
    - embedding: {embedding_dim: 8, num_embeddings: 9, padding_idx: 0}
    - attention: {heads: 2, dropout: 0.2}
    - gru: {hidden_size: 6, bidirectional: true}
    - linear: OUT
loss: LOSS
"""
SERIES = HEAD.replace("path: DATA,", "path: DATA, inputs: {series: x, steps: n},") + """model:
  layers:
    - sequence_lengths: {from: [series, steps]}
    - lstm: {hidden_size: 6, bidirectional: true, output: OUT}
    - REST
    - linear: 3
loss: cross_entropy
"""


# the source, token by token, of what was said so far
TRANSLATE = HEAD.replace("path: DATA,", "path: DATA, inputs: {source: s, shifted: t}, targets: y,") + """model:
  layers:
    - embedding: {embedding_dim: 16, num_embeddings: 9, padding_idx: 0, from: source}
    - positional_embedding
    - residual: [{attention: {heads: 4, dropout: 0.1}}]
    - layer_norm: {name: memory}
    - embedding: {embedding_dim: 16, num_embeddings: 9, padding_idx: 0, from: shifted}
    - positional_embedding
    - residual: [{attention: {heads: 4, causal: true}}]
    - layer_norm: {name: queries}
    - cross_attention: {heads: 4, dropout: 0.1, from: memory}
    - add: {from: queries}
    - linear: 9
loss: cross_entropy
"""


class Padding(program.Case):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(1)
        self.lengths = random.integers(1, LENGTH + 1, 80)
        self.real = np.arange(LENGTH) < self.lengths[:, None]
        self.tokens = np.where(self.real, random.integers(1, TOKENS, (80, LENGTH)), 0)
        self.random = random

    def metrics(self, run):
        lines = [json.loads(line) for line in self.read(os.path.join(run, "metrics.jsonl")).splitlines()]
        return [{k: v for k, v in line.items() if "loss" in k or "accuracy" in k or k in ("f1", "mean_iou", "auc", "rmse", "mae", "val_f1")
                 or k.startswith("val_")} for line in lines if line["event"] in ("step", "epoch")]

    def hash_of(self, run, config, *words, **options):
        out, err = self.run_program(config, "--run-dir", run, *words, **options)
        return (out + err).split("state sha256 ")[1].split()[0]

    def tags(self, name, targets, loss="cross_entropy", out=TOKENS, metrics="f1, mean_iou"):
        np.savez(self.path(name + ".npz"), x=self.tokens.astype("u1"), y=targets)
        text = TAGS.replace("DATA", name + ".npz").replace("LOSS", loss).replace("OUT", str(out))
        self.write(name + ".yaml", text.replace("METRICS", f", metrics: [{metrics}]"))
        return name + ".yaml"

    def test_targets_of_padding_do_not_count(self):
        before = np.roll(self.tokens, 1, 1)
        values = self.random.normal(size=(80, LENGTH, 2)).astype("f4")
        decisions, signs = (values > 0).astype("f4"), np.where(values[..., 0] > 0, 1, -1).astype("f4")
        for name, targets, options in (("classes", before, {}), ("values", values, {"loss": "mse", "out": 2, "metrics": "rmse, mae, r2"}),
                                       ("decisions", decisions, {"loss": "bce_with_logits", "out": 2, "metrics": "f1, accuracy"}),
                                       ("masks", decisions, {"loss": "dice", "out": 2, "metrics": "mean_iou"}),
                                       ("shares", np.abs(values), {"loss": "kl_div", "out": "2\n    - log_softmax", "metrics": "mae"}),
                                       ("classes_of_all", np.abs(values), {"loss": "soft_cross_entropy", "out": 2, "metrics": "mae"}),
                                       ("distances", np.where(values > 0, 1, -1), {"loss": "hinge_embedding", "out": 2, "metrics": ""}),
                                       ("lists", np.floor(3 * values).clip(-1, 3), {"loss": "multilabel_margin", "out": 4, "metrics": ""}),
                                       ("ranks", signs[..., None], {"loss": "margin_ranking", "out": 2, "metrics": ""}),
                                       ("normal", values, {"loss": "gaussian_nll", "out": "4\n    - softplus", "metrics": ""}),
                                       ("pairs", signs, {"loss": "cosine_embedding", "out": 4, "metrics": ""})):
            other = np.where(self.real.reshape(self.real.shape + (1,) * (targets.ndim - 2)), targets, 1)
            one, two = self.tags(name, targets, **options), self.tags(name + "2", other, **options)
            self.run_program(one, "--run-dir", name)
            self.run_program(two, "--run-dir", name + "2")
            with self.subTest(name):
                self.assertEqual(self.metrics(name), self.metrics(name + "2"))
            self.assertEqual(self.run_program("eval", name)[0], self.run_program("eval", name + "2")[0])

    def test_metrics_are_of_all_real_positions(self):
        """scikit-learn's of the positions of the mask: not means over the numbers of the positions."""
        values = self.random.normal(size=(80, LENGTH, 1)).astype("f4") + np.arange(LENGTH)[:, None]
        config = self.tags("one", values, "mse", 1, "rmse, r2")
        self.run_program(config, "--run-dir", "one", "--fresh")
        last = [line for line in self.metrics("one") if "val_rmse" in line][-1]
        self.assertAlmostEqual(last["val_rmse"], last["val_loss"] ** 0.5, places=6)

    def test_layers_that_keep_the_lengths(self):
        values = self.random.normal(size=(80, LENGTH, 2)).astype("f4")
        other = np.where(self.real[..., None], values, 1)
        for layer in "leaky_relu", "elu", "softmax", "log_softmax", "prelu", f"prelu: {LENGTH}", "dropout1d", "hardtanh", "linear: 4\n    - glu":
            losses = []
            for name, targets in ("one", values), ("other", other):
                config = self.tags(name, targets, "mse", 2, "rmse")
                self.write(config, self.read(config).replace("linear: 2\n", f"linear: 2\n    - {layer}\n"))
                self.run_program(config, "--run-dir", name, "--fresh")
                losses.append(self.metrics(name))
            with self.subTest(layer):
                self.assertEqual(*losses)

    def test_ctc_ends_before_the_padding(self):
        """What the steps behind the end of a row predict has no effect on its loss."""
        import h5py
        targets = self.random.integers(1, 4, (80, 2))
        series, losses = self.random.normal(size=(80, LENGTH, 2)).astype("f4"), []
        for i, behind in enumerate((0, 7)):
            with h5py.File(self.path(f"ctc{i}.h5"), "w") as f:
                f["x"], f["y"] = np.where(self.real[..., None], series, behind), targets
                f["n"] = self.lengths
            head = HEAD.replace("path: DATA,", f"path: ctc{i}.h5, inputs: {{series: x, steps: n}},").replace("METRICS", "")
            self.write(f"ctc{i}.yaml", head + """model:
  layers:
    - sequence_lengths: {from: [series, steps]}
    - linear: 4
    - log_softmax
loss: {type: ctc, zero_infinity: true}
""")
            self.run_program(f"ctc{i}.yaml", "--run-dir", f"ctc{i}")
            losses.append(self.metrics(f"ctc{i}"))
        self.assertEqual(*losses)

    def test_triplets_of_positions(self):
        """Each position has an anchor, a positive and a negative; its loss does not count behind the end of a row."""
        import h5py
        series, losses = self.random.normal(size=(80, LENGTH, 2)).astype("f4"), []
        for i, behind in enumerate((0, 7)):
            with h5py.File(self.path(f"triplets{i}.h5"), "w") as f:
                f["x"], f["n"] = np.where(self.real[..., None], series, behind), self.lengths
            head = HEAD.replace("path: DATA,", f"path: triplets{i}.h5, inputs: {{series: x, steps: n}},").replace("METRICS", "")
            self.write(f"triplets{i}.yaml", head + """model:
  layers:
    - sequence_lengths: {from: [series, steps]}
    - linear: 6
losses: [{type: triplet_margin, margin: 2}]
""")
            self.run_program(f"triplets{i}.yaml", "--run-dir", f"triplets{i}")
            losses.append(self.metrics(f"triplets{i}"))
        self.assertEqual(*losses)

    def test_several_losses_and_weights_of_rows(self):
        """Each loss has the lengths of its own output."""
        import h5py
        before, values = np.roll(self.tokens, 1, 1), self.random.normal(size=(80, LENGTH)).astype("f4")
        weights = self.random.random(80).astype("f4")
        for name, behind in ("zeros", 0), ("others", 5):
            with h5py.File(self.path(name + ".h5"), "w") as f:
                f["x"], f["w"], f["kind"] = self.tokens, weights, np.where(self.real, before, behind)
                f["value"] = np.where(self.real, values, behind)
            head = HEAD.replace("path: DATA,", f"path: {name}.h5, targets: {{kind: kind, value: value}}, weights: w,").replace("METRICS", ", metrics: [f1, rmse]")
            self.write(name + ".yaml", head + """model:
  layers:
    - embedding: {embedding_dim: 8, num_embeddings: 9, padding_idx: 0}
    - lstm: {hidden_size: 6, name: state}
    - linear: {out: 9, name: kind}
    - linear: {out: 1, name: value, from: state}
losses:
  - {type: cross_entropy, output: kind, target: kind}
  - {type: mse, output: value, target: value}
""")
            self.run_program(name + ".yaml", "--run-dir", name)
        self.assertEqual(self.metrics("zeros"), self.metrics("others"))
        self.assertIn("val_value_rmse", self.metrics("zeros")[-1])

    def test_accuracy_is_that_of_real_positions(self):
        targets = np.roll(self.tokens, 1, 1)
        config = self.tags("all", targets)
        self.run_program(config, "--run-dir", "all")
        result = json.loads(self.run_program("eval", "all", "--part", "all")[0])
        self.run_program("predict", "all", "--part", "all", "--out", "all.h5")
        import h5py
        with h5py.File(self.path("all.h5")) as f:
            found, rows = f["prediction"][()].reshape(80, LENGTH), f["row"][()]
        real = self.real[rows]
        self.assertAlmostEqual(result["accuracy"], (found == targets[rows])[real].mean(), places=6)

    def areas(self, scores, labels):
        """scikit-learn's roc_auc_score and average_precision_score, means over the columns."""
        values = []
        for score, label in zip(scores.T, labels.T):
            larger = (score[:, None] > score) + (score[:, None] == score) / 2
            chosen = score[:, None] >= score[label == 1]  # at the threshold of each positive label
            values.append((larger[label == 1][:, label == 0].mean(), ((label[:, None] * chosen).sum(0) / chosen.sum(0)).mean()))
        return np.mean(values, 0)

    def test_areas_are_those_of_real_positions(self):
        """Of all positions of the same output together."""
        import h5py
        targets = (self.random.normal(size=(80, LENGTH, 2)) > 0.5).astype("f4")
        config = self.tags("areas", targets, "bce_with_logits", 2, "auc, average_precision")
        self.write("several.yaml", re.sub("(?m)^loss: .*$", "losses: [{type: bce_with_logits, name: yes}]", self.read(config)))
        self.run_program(config, "--run-dir", "areas", "--nproc", "2", "sampler.batch_size=8")
        self.run_program("predict", "areas", "--part", "all", "--out", "areas.h5", "--outputs")
        with h5py.File(self.path("areas.h5")) as f:
            outputs, rows = f["outputs"][()].reshape(80, LENGTH, 2), f["row"][()]
        real = self.real[rows]
        expected = self.areas(outputs[real], targets[rows][real])
        result = json.loads(self.run_program("eval", "areas", "--part", "all", "--nproc", "2")[0])
        np.testing.assert_allclose([result["auc"], result["average_precision"]], expected, atol=1e-6)
        self.run_program("several.yaml", "--run-dir", "several", "--nproc", "2", "sampler.batch_size=8")
        result = json.loads(self.run_program("eval", "several", "--part", "all")[0])
        np.testing.assert_allclose([result["yes_auc"], result["yes_average_precision"]], expected, atol=1e-6)
        weights = self.random.integers(1, 4, 80)  # scikit-learn's sample_weight: as if rows were repeated
        with h5py.File(self.path("weights.h5"), "w") as f:
            f["x"], f["y"], f["w"] = self.tokens, targets, weights.astype("f4")
        self.write("weights.yaml", self.read(config).replace("path: areas.npz,", "path: weights.h5, weights: w,"))
        result = json.loads(self.run_program("eval", "weights.yaml", "--run-dir", "areas", "--part", "all")[0])
        often = np.repeat(np.arange(80), weights[rows])
        expected = self.areas(outputs[often][self.real[rows][often]], targets[rows][often][self.real[rows][often]])
        np.testing.assert_allclose([result["auc"], result["average_precision"]], expected, atol=1e-6)

    def test_the_same_bits_with_threads_after_a_resume_and_on_elastic_ranks(self):
        config = self.tags("tags", np.roll(self.tokens, 1, 1))
        one = self.hash_of("one", config, env={"OMP_NUM_THREADS": "1"})
        self.assertEqual(one, self.hash_of("two", config, env={"OMP_NUM_THREADS": "2"}))
        self.run_program(config, "--run-dir", "parts", "train.epochs=1")
        self.assertEqual(one, self.hash_of("parts", config))
        words = ("determinism={mode: elastic, shards: 2}", "sampler.batch_size=null", "sampler.global_batch_size=16")
        self.assertEqual(self.hash_of("ranks", config, "--nproc", "2", *words), self.hash_of("rank", config, *words))

    def test_series_with_lengths(self):
        """What stands behind the end of a series has no effect, on the last state, a mean or a maximum."""
        series = self.random.normal(size=(80, LENGTH, 2)).astype("f4")
        y = self.random.integers(0, 3, 80)
        for out, rest in ("last", "tanh"), ("all", "mean: 1"), ("all", "max: 1"):
            hashes = []
            for i, behind in enumerate((0, 7)):
                name = f"{out}-{rest[:3]}{i}"
                self.series(name, np.where(self.real[..., None], series, behind), y, self.lengths, out, rest)
                self.run_program(name + ".yaml", "--run-dir", name)
                hashes.append(self.run_program("predict", name, name + ".h5")[0])
            self.assertEqual(*hashes)

    def test_means_over_several_dimensions(self):
        series, y = self.random.normal(size=(80, LENGTH, 2)).astype("f4"), self.random.integers(0, 3, 80)
        for n, mean in enumerate(("mean: 1", "mean: {dim: [1, 2], keepdim: true}", "mean: {dim: [-1, -2], keepdim: true}")):
            hashes = []
            for i, behind in enumerate((0, 7)):
                name = f"mean{n}{i}"
                self.series(name, np.where(self.real[..., None], series, behind), y, self.lengths)
                lstm = "lstm: {hidden_size: 6, bidirectional: true, output: last}"
                self.write(name + ".yaml", self.read(name + ".yaml").replace(lstm, mean).replace("    - tanh", "    - flatten"))
                hashes.append(self.hash_of(name, name + ".yaml"))
            with self.subTest(mean):
                self.assertEqual(*hashes)

    def series(self, name, x, y, lengths, out="last", rest="tanh"):
        import h5py
        with h5py.File(self.path(name + ".h5"), "w") as f:
            f["x"], f["y"], f["n"] = x, y, lengths
        config = SERIES.replace("DATA", name + ".h5").replace("OUT", out).replace("REST", rest).replace("METRICS", "")
        return self.write(name + ".yaml", config)

    def test_encoder_and_decoder(self):
        """It learns, with the same bits after a resume and on elastic ranks; padding of the source has no effect."""
        import h5py
        for name, behind in ("one", 0), ("two", 3):
            with h5py.File(self.path(name + ".h5"), "w") as f:
                f["s"] = np.pad(self.tokens, ((0, 0), (0, behind))).astype("u1")
                f["t"] = np.pad(self.tokens, ((0, 0), (1, 0)), constant_values=8)[:, :-1].astype("u1")
                f["y"] = self.tokens.astype("i8")
            text = TRANSLATE.replace("DATA", name + ".h5").replace("METRICS", "").replace("epochs: 2", "epochs: 20")
            self.write(name + ".yaml", text.replace("    - positional_embedding\n", "    - positional_embedding: {num_embeddings: 16}\n"))
        one = self.hash_of("one", "one.yaml")
        losses = [json.loads(line)["loss"] for line in self.read("one/metrics.jsonl").splitlines() if json.loads(line)["event"] == "step"]
        self.assertLess(losses[-1], 0.6 * losses[0])
        self.run_program("one.yaml", "--run-dir", "parts", "train.epochs=7")
        self.assertEqual(one, self.hash_of("parts", "one.yaml"))
        words = ("determinism={mode: elastic, shards: 2}", "sampler.batch_size=null", "sampler.global_batch_size=16", "train.epochs=2")
        self.assertEqual(self.hash_of("ranks", "one.yaml", "--nproc", "2", *words), self.hash_of("rank", "one.yaml", *words))
        # 15 positions of the source in place of 12, the last ones padding; without dropout, whose masks have other numbers
        plain = ("train.epochs=2", "model.layers.2.residual.0.attention.dropout=0", "model.layers.8.cross_attention.dropout=0")
        self.assertEqual(self.hash_of("short", "one.yaml", *plain), self.hash_of("long", "two.yaml", *plain))

    def refused(self, config, code, *messages):
        out, err = self.run_program(config, "--run-dir", "refused", code=code)
        for message in messages:
            self.assertIn(message, err)

    def test_bad_rows(self):
        config = self.tags("bad", np.roll(self.tokens, 1, 1))
        for row, column, value, message in ((5, 2, 9, "value 2 is 9, but model.layers.0.embedding takes tokens, whole numbers from 0 to 8"),
                                            (7, 1, 1.5, "value 1 is 1.5"), (3, slice(None), 0, "all tokens of model.layers.0.embedding are padding")):
            tokens = self.tokens.astype("f4")
            tokens[row, column] = value
            np.savez(self.path("bad.npz"), x=tokens, y=np.roll(self.tokens, 1, 1))
            self.refused(config, program.DATA, f"bad.npz: row {row}: {message}")
            out, _ = self.run_program("check", config)
            self.assertNotIn("all rows were read", out)
            self.run_program("check", config, "--data", code=program.DATA, err=f"bad.npz: row {row}: {message}")
        np.savez(self.path("bad.npz"), x=self.tokens, y=np.roll(self.tokens, 1, 1))
        self.run_program("check", config, "--data", out="\ndata           all rows were read, their values are valid\n")
        series = self.random.normal(size=(80, LENGTH, 2)).astype("f4")
        lengths = self.lengths.copy()
        lengths[4] = LENGTH + 1
        self.refused(self.series("long", series, self.random.integers(0, 3, 80), lengths), program.DATA, "long.h5: row 4: ", "takes the length of a row, a whole number from 1 to 12")

    def test_losses_that_cannot(self):
        values = np.abs(self.random.normal(size=(80, LENGTH, 2))).astype("f4")
        one = self.tags("contrastive", values, "mse", 3, "")
        self.write("contrastive.yaml", re.sub("(?m)^loss: .*$", "losses: [{type: contrastive}]", self.read(one)))
        self.refused("contrastive.yaml", program.USAGE, "contrastive.yaml:", "contrastive compares each row with all others, which the "
                     "positions of rows of different lengths are not; insert '- mean: 1' or '- max: 1' after each embedding")
        self.refused(self.tags("dice", (values[..., 0] > 1).astype("f4"), "dice", 1, ""), program.USAGE,
                     "dice compares the values of each position of rows of different lengths, of which the model has only one")
        self.refused(self.tags("odd", values, "gaussian_nll", 3, ""), program.USAGE,
                     "gaussian_nll needs (positions, features) with a multiple of 2 features, of rows of different lengths")

    def test_the_shipped_reviews(self):
        """They are what their script writes, and the config learns."""
        shutil.copy(os.path.join(program.SOURCE, "datasets", "make_reviews.py"), self.path("make_reviews.py"))
        runpy.run_path(self.path("make_reviews.py"), run_name="__main__")
        made, shipped = np.load(self.path("reviews.npz")), np.load(os.path.join(program.SOURCE, "datasets", "reviews.npz"))
        for name in "x", "y":
            self.assertTrue((made[name] == shipped[name]).all())
