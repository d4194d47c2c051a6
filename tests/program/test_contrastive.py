"""The loss contrastive: on any number of ranks, with uneven rows, the numbers of a gradient descent over the rows of all ranks in
numpy; evaluation, accumulation, lost ranks, and wrong configs. ctest-labels: dist"""
import json
import signal

import h5py
import numpy as np

import program
from program import PEER, USAGE

CONFIG = """
dataset: {path: rows.csv, inputs: {left: [a0, a1, a2], right: [b0, b1, b2]}, targets: t, split: {test: 0.25, shuffle: false}}
sampler: {global_batch_size: 12, shuffle: false, uneven: true}
model:
  layers:
    - sequential: {name: one, from: left, layers: [{linear: {out: 4, name: fc}}, tanh]}
    - sequential: {name: other, from: right, share: one}
    - concat: {from: [one, other], name: pair}
    - linear: {out: 1, name: value, from: one}
losses:
  - {type: contrastive, output: pair, temperature: 0.5}
  - {type: mse, output: value, loss_weight: 0.25}
optimizer: {type: sgd, lr: 0.2}
train: {epochs: 3, log_every: 1}
"""
TRAIN, VALIDATION, BATCH = 38, 13, 12  # 38 rows: on three ranks the last batch has 1, 1 and 0 rows


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def info_nce(a, b, temperature, symmetric):
    """The mean loss of rows a and b, and its derivatives: those of torch.nn.functional.cross_entropy(a_n @ b_n.T / temperature)."""
    n, own = len(a), np.arange(len(a))
    norms = [np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b)]
    y, w = [a / norms[0], b / norms[1]], [0.5, 0.5] if symmetric else [1, 0]
    logits = y[0] @ y[1].T / temperature
    p, q = softmax(logits), softmax(logits.T).T
    loss = -(w[0] * np.log(p[own, own]) + w[1] * np.log(q[own, own])).mean()
    dlogits = (w[0] * (p - np.eye(n)) + w[1] * (q - np.eye(n))) / n / temperature
    dy = dlogits @ y[1], dlogits.T @ y[0]
    return loss, [(d - u * (d * u).sum(1, keepdims=True)) / norm for d, u, norm in zip(dy, y, norms)]


class Twin:
    """The model of CONFIG in float64."""

    def __init__(self, weights, temperature=0.5, symmetric=True):
        self.p = {name: value.astype(np.float64) for name, value in weights.items()}
        self.temperature, self.symmetric = temperature, symmetric

    def loss(self, left, right, target):
        """Both losses of a batch, and the derivatives of their weighted sum."""
        p, n = self.p, len(left)
        codes = [np.tanh(x @ p["one.fc.weight"].T + p["one.fc.bias"]) for x in (left, right)]
        value = codes[0] @ p["value.weight"].T + p["value.bias"]
        loss, dcodes = info_nce(*codes, self.temperature, self.symmetric)
        dvalue = 0.25 * 2 * (value - target[:, None]) / n
        dcodes[0] = dcodes[0] + dvalue @ p["value.weight"]
        gradient = {"value.weight": dvalue.T @ codes[0], "value.bias": dvalue.sum(0), "one.fc.weight": 0, "one.fc.bias": 0}
        for x, code, d in zip((left, right), codes, dcodes):
            d = d * (1 - code ** 2)
            gradient["one.fc.weight"] = gradient["one.fc.weight"] + d.T @ x
            gradient["one.fc.bias"] = gradient["one.fc.bias"] + d.sum(0)
        return (loss, ((value[:, 0] - target) ** 2).mean()), gradient

    def train(self, rows, batches, accumulate):
        """The weighted losses of the steps; [batches]: slices."""
        losses = []
        for i in range(0, len(batches), accumulate):
            group = batches[i:i + accumulate]
            results = [self.loss(*(values[part] for values in rows)) for part in group]
            sizes = np.array([len(rows[0][part]) for part in group])
            losses.append(np.average([first + 0.25 * second for (first, second), _ in results], weights=sizes))
            for name in self.p:
                self.p[name] = self.p[name] - 0.2 * sum(gradient[name] for _, gradient in results) / accumulate
        return losses

    def evaluate(self, rows, batch=BATCH):
        """The mean of both losses over batches of rows."""
        parts = [slice(i, i + batch) for i in range(0, len(rows[0]), batch)]
        return np.average([self.loss(*(values[part] for values in rows))[0] for part in parts], axis=0,
                          weights=[len(rows[0][part]) for part in parts])


class Case(program.Case):
    def setUp(self):
        super().setUp()
        r = np.random.default_rng(1)
        n = TRAIN + VALIDATION
        left = r.normal(size=(n, 3)).round(4)
        self.rows = [left, (left + 0.5 * r.normal(size=(n, 3))).round(4), left.sum(1).round(4)]
        lines = [",".join(map(str, (*a, *b, t, 1))) for a, b, t in zip(*self.rows)]
        self.write("rows.csv", "\n".join(["a0,a1,a2,b0,b1,b2,t,w", *lines]) + "\n")

    def part(self, first, last):
        return [values[first:last] for values in self.rows]

    def train(self, text, *words, name="test", **options):
        self.write(f"{name}.yaml", text)
        return self.run_program(f"{name}.yaml", "--run-dir", name, "--fresh", *words, **options)

    def weights(self, run):
        with h5py.File(self.checkpoints(run)[-1]) as f:
            return {name: f["model"][name][()] for name in f["model"]}

    def initial(self, text):
        """The weights after a step with a learning rate of 0."""
        self.train(text.replace("lr: 0.2", "lr: 0").replace("epochs: 3", "steps: 1"), name="initial")
        return self.weights("initial")

    def evaluate(self, name, nproc, *words):
        out, err = self.run_program("eval", f"{name}.yaml", "--run-dir", name, "--nproc", nproc, *words)
        self.assertRegex(err, r"the loss compares the rows of a batch, here of \d+ rows of all processes")
        return json.loads(out)


class Numbers(Case):
    def compare(self, text, accumulate=1, worlds=(1, 2, 3), **keys):
        twin = Twin(self.initial(text), **keys)
        batches = [slice(i, min(i + BATCH, TRAIN)) for i in range(0, TRAIN, BATCH)]
        expected = sum((twin.train(self.part(0, TRAIN), batches, accumulate) for _ in range(3)), [])
        first, second = twin.evaluate(self.part(TRAIN, None))
        of_train = twin.evaluate(self.part(0, TRAIN))
        for world in worlds:
            with self.subTest(world=world):
                self.train(text, "--nproc", world)
                np.testing.assert_allclose(self.losses("test"), expected, rtol=5e-6)
                for name, value in self.weights("test").items():
                    np.testing.assert_allclose(value, twin.p[name], rtol=1e-4, atol=2e-6, err_msg=name)
                epoch = self.events("epoch", "test")[-1]
                self.assertAlmostEqual(epoch["val_pair_loss"], first, 5)
                self.assertAlmostEqual(epoch["val_value_loss"], second, 5)
                self.assertAlmostEqual(epoch["val_loss"], first + 0.25 * second, 5)
                self.assertEqual(epoch["val_rows"], VALIDATION)
                for nproc in (1, 2, 3):  # on three ranks the last batch is a single row of rank 0
                    self.assertAlmostEqual(self.evaluate("test", nproc)["pair_loss"], first, 5)
                    self.assertAlmostEqual(self.evaluate("test", nproc, "--part", "train")["pair_loss"], of_train[0], 5)

    def test_uneven_rows(self):
        self.compare(CONFIG)

    def test_shared_statistics(self):
        """A batch norm that both towers share has one set of statistics, updated by each tower in the order of the layers."""
        text = CONFIG.replace("tanh]", "{batch_norm: {name: bn}}, tanh]").replace(", uneven: true", "")
        weights = self.initial(text)
        self.assertEqual({name for name in weights if "running" in name}, {"one.bn.running_mean", "one.bn.running_var"})
        mean, variance = np.zeros(4), np.ones(4)
        for x in self.part(0, BATCH)[:2]:
            codes = x @ weights["one.fc.weight"].T + weights["one.fc.bias"]
            mean, variance = 0.9 * mean + 0.1 * codes.mean(0), 0.9 * variance + 0.1 * codes.var(0, ddof=1)
        np.testing.assert_allclose(weights["one.bn.running_mean"], mean, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(weights["one.bn.running_var"], variance, rtol=1e-5)

    def test_one_direction(self):
        self.compare(CONFIG.replace("temperature: 0.5", "temperature: 0.1, symmetric: false"), temperature=0.1, symmetric=False)

    def test_accumulated_batches(self):
        """Each micro-batch is compared by itself; the last update has a batch of 12 and one of 2 rows, which DDP's no_sync
        weights equally."""
        self.compare(CONFIG.replace("epochs: 3,", "epochs: 3, accumulate: 2,"), accumulate=2)

    def test_other_ways_to_average(self):
        self.compare(CONFIG + "dist: {zero_stage: 1}\n", worlds=(2, 3))
        self.compare(CONFIG + "dist: {backend: gloo}\n", worlds=(3,))
        self.compare(CONFIG.replace("lr: 0.2", "lr: 0.2, in_backward: true"), worlds=(1,))

    def test_more_ranks_than_rows_of_a_batch(self):
        """7 ranks of 5 to 6 rows, with 2 rows of a batch each: other batches, in the order of the ranks' rows."""
        text = CONFIG.replace("global_batch_size: 12", "batch_size: 4")
        twin = Twin(self.initial(text))
        batches = [slice(0, 28), slice(28, 38)]
        expected = sum((twin.train(self.part(0, TRAIN), batches, 1) for _ in range(3)), [])
        self.train(text, "--nproc", 7)
        np.testing.assert_allclose(self.losses("test"), expected, rtol=5e-6)
        self.assertAlmostEqual(self.events("epoch", "test")[-1]["val_pair_loss"], twin.evaluate(self.part(TRAIN, None), 28)[0], 5)

    def test_repeated_rows(self):
        """Without uneven the last batches of three ranks are filled up with the first row, as in DistributedSampler."""
        text = CONFIG.replace(", uneven: true", "")
        twin = Twin(self.initial(text))
        rows = [np.concatenate([values[:TRAIN], values[:1]]) for values in self.rows]
        batches = [slice(i, min(i + BATCH, TRAIN + 1)) for i in range(0, TRAIN + 1, BATCH)]
        expected = sum((twin.train(rows, batches, 1) for _ in range(3)), [])
        self.train(text, "--nproc", 3)
        np.testing.assert_allclose(self.losses("test"), expected, rtol=5e-6)

    def test_a_rank_without_rows_and_a_loss_of_padded_rows(self):
        """On three ranks the last batch has 1, 1 and 0 rows; the other loss leaves out padding."""
        r = np.random.default_rng(2)
        tokens = np.where(np.arange(4) < r.integers(1, 5, (TRAIN, 1)), r.integers(1, 6, (TRAIN, 4)), 0)
        with h5py.File(self.path("tokens.h5"), "w") as f:
            f["x"], f["y"] = tokens, r.normal(size=(TRAIN, 4)).astype("<f4")
        self.write("test.yaml", """
dataset: {path: tokens.h5}
sampler: {global_batch_size: 12, uneven: true}
model:
  layers:
    - embedding: {num_embeddings: 6, embedding_dim: 4, padding_idx: 0, name: words}
    - linear: {out: 1, name: steps}
    - mean: {dim: 1, from: words}
    - linear: {out: 6, name: codes}
losses: [{type: contrastive, output: codes, temperature: 0.3}, {type: mse, output: steps, target: target}]
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 2, log_every: 1}
""")
        self.run_program("test.yaml", "--nproc", 3, "--run-dir", "test")
        self.assertTrue(np.isfinite(self.losses("test")).all())

    def test_resume_has_the_same_bits(self):
        for world in (1, 3):
            self.train(CONFIG, "train={steps: 12}", "--nproc", world)
            self.train(CONFIG, "train={steps: 6}", "--nproc", world, name="half")  # in the middle of an epoch
            self.run_program("half.yaml", "train={steps: 12}", "--run-dir", "half", "--nproc", world)
            self.assertEqual(self.sha("half"), self.sha("test"))


class Example(program.Case):
    def test_the_shipped_config(self):
        losses = []
        for world in (1, 3):
            self.run_program(program.SOURCE + "/configs/wine_views.yaml", f"dataset.path={program.SOURCE}/datasets/wine.csv", "--nproc", world,
                             "--run-dir", f"ranks{world}")
            losses.append(self.events("epoch", f"ranks{world}")[-1]["val_loss"])
        self.assertLess(losses[0], 3.1)  # chance is ln(36) = 3.58
        self.assertAlmostEqual(losses[0], losses[1], 4)


class LostRanks(Case):
    LONG = CONFIG.replace("epochs: 3, log_every: 1", "epochs: 1000000, log_every: 0") + "dist: {timeout: 20}\n"

    def lose(self, number):
        """Sends a signal to rank 1 during the run."""
        self.write("test.yaml", self.LONG)
        p = self.start("test.yaml", "--run-dir", "test", "--nproc", 3)
        self.wait_for(lambda: self.checkpoints("test"), what="a checkpoint")
        program.os.kill(self.ranks(p)[1], number)
        _, err = p.communicate(timeout=180 * program.SLOW)
        return p.returncode, err

    def test_killed(self):
        code, err = self.lose(signal.SIGKILL)
        self.assertEqual(code, PEER, err)
        self.assertRegex(err, "rank 1")

    def test_stopped(self):
        code, err = self.lose(signal.SIGTERM)
        self.assertEqual(code, program.STOPPED, err)


class Wrong(Case):
    def test_configs(self):
        for what, by, sentence in (
                ("from: [one, other]", "from: [one, other, left]", "test.yaml:11:5: losses: pair: the model's output is 11: contrastive needs a multiple of 2 "
                 "values (an embedding, then the one that belongs to it)"),
                ("temperature: 0.5", "temperature: 0", "test.yaml:11:52: losses.0.temperature: must be >= 0.001 and <= 1000, got 0"),
                ("temperature: 0.5", "temprature: 0.5", "did you mean 'temperature'"),
                ("output: pair,", "output: pair, target: t,", "test.yaml:11:5: losses: 'contrastive' has no target; remove target:"),
                ("targets: t,", "targets: t, weights: w,", "test.yaml:11:5: losses: 'contrastive' compares the rows of a batch with each other, so they "
                 "cannot have weights; remove dataset.weights"),
                ("optimizer:", "determinism: {mode: elastic, shards: 4}\noptimizer:", "test.yaml:11:5: losses: 'contrastive' compares the rows of a "
                 "batch with each other, which determinism: elastic computes in separate shards; use determinism: torch"),
                ("global_batch_size: 12", "batch_size: 1", "test.yaml:11:5: losses: pair: compares the rows of a batch, and a batch is a single row; "
                 "increase sampler.batch_size"),
                ("log_every: 1", "metrics: [accuracy]", "the metric 'accuracy' does not fit the loss")):
            with self.subTest(sentence):
                self.assertIn(what, CONFIG)
                self.write("test.yaml", CONFIG.replace(what, by, 1))
                self.run_program("check", "test.yaml", code=USAGE, err=sentence)
        self.train(CONFIG.replace("global_batch_size: 12", "batch_size: 1"), "--nproc", 2)  # two rows are enough
        self.write("test.yaml", CONFIG.split("losses:")[0] + "loss: contrastive\ntrain: {epochs: 1}\n")
        _, err = self.run_program("check", "test.yaml", code=USAGE)
        self.assertIn("loss: 'contrastive' has no target, so it must be in a list: losses: [{type: contrastive, output: NAME}]", err)

    def test_padded_positions(self):
        self.write("tokens.csv", "\n".join(["x0,x1,x2,y", *(f"{i % 4 + 1},{i % 3},0,0" for i in range(24))]) + "\n")
        self.write("test.yaml", """
dataset: {path: tokens.csv, inputs: [x0, x1, x2], targets: y}
model: {layers: [{embedding: {num_embeddings: 5, embedding_dim: 4, padding_idx: 0}}, {linear: {out: 4, name: codes}}]}
losses: [{type: contrastive, output: codes}, {type: mse, output: codes, target: input, name: other}]
train: {epochs: 1}
""")
        _, err = self.run_program("check", "test.yaml", code=USAGE)
        self.assertIn("contrastive compares each row with all others, which the positions of rows of different lengths are not", err)
