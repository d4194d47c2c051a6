"""Masks of cross_attention from the dataset: three ways to write one give the same bits, hidden keys do not change an output, also in
blocks of 64 keys of which all are hidden, and what is refused. ctest-labels: dist"""
import h5py
import numpy as np

import program
from program import DATA, USAGE

CONFIG = """
dataset: {path: data.h5, inputs: {series: x, mask: m}, targets: y}
sampler: {global_batch_size: 4}
model:
  layers:
    - linear: {out: 6, from: series, name: s}
    - cross_attention: {heads: 2, from: [s, s, mask]}
    - mean: 1
    - linear: 2
loss: mse
optimizer: {type: adam, lr: 0.01}
train: {epochs: 3, log_every: 1}
"""


class Masks(program.Case):
    POSITIONS = 150

    def setUp(self):
        super().setUp()
        r = np.random.default_rng(3)
        self.x, self.y = r.normal(size=(12, self.POSITIONS, 3)), r.normal(size=(12, 2))
        self.mask = r.random((12, self.POSITIONS, self.POSITIONS)) < 0.7
        self.mask[:, :, :70] |= r.random((12, self.POSITIONS, 1)) < 0.5  # the first block has no key for some queries
        self.mask[:, :, 149] = False
        self.write("test.yaml", CONFIG)
        self.data(self.mask)

    def data(self, mask, x=None):
        with h5py.File(self.path("data.h5"), "w") as f:
            f["q"] = self.x[:, :4].astype("f4")
            f["x"], f["y"], f["m"] = (self.x if x is None else x).astype("f4"), self.y.astype("f4"), np.asarray(mask).astype("f4")

    def train(self, run, *words):
        self.run_program("test.yaml", "--run-dir", run, "--fresh", *words)
        return self.sha(run), self.losses(run)

    def test_kinds(self):
        key = "model.layers.1.cross_attention.mask="
        expected = self.train("ignore")
        self.assertEqual(self.train("two", "--nproc", 2, "determinism={mode: elastic, shards: 4}"), self.train("one", "determinism={mode: elastic, shards: 4}"))
        self.data(~self.mask)
        self.assertEqual(self.train("keep", key + "keep")[1], expected[1])
        self.assertNotEqual(self.train("other")[1], expected[1])
        for low in -1e30, -3e38:
            self.data(np.where(self.mask, low, 0))
            self.assertEqual(self.train("add", key + "add")[1], expected[1])
        self.data(np.zeros_like(self.mask))
        self.run_program("test.yaml", "--run-dir", "plain", "dataset.inputs={series: x}", "model.layers.1.cross_attention.from=[s, s]")
        self.assertEqual(self.train("zero")[1], self.losses("plain"))

    def test_hidden_keys_have_no_effect(self):
        """A mask of keys: numbers that it hides may be any, as the keys and values of an encoder."""
        r = np.random.default_rng(4)
        hidden = r.random((12, self.POSITIONS)) < 0.5
        hidden[:, :80], hidden[:, 100] = True, False
        words = ("dataset.inputs={queries: q, other: x, mask: m}", "model.layers=[{linear: {out: 6, from: queries, name: q}}, {linear: {out: 6, from: other, name: kv}}, "
                 "{cross_attention: {heads: 2, from: [q, kv, mask]}}, {mean: 1}, {linear: 2}]")
        outputs = []
        for change in 0, 1:
            self.data(hidden, self.x + change * 100 * hidden[:, :, None])
            outputs.append(self.train(f"run{change}", *words))
        self.assertEqual(*outputs)

    def test_refused(self):
        def fails(code, message, *words):
            self.run_program("test.yaml", "--run-dir", "refused", *words, code=code, err=message)
        self.data(~self.mask)
        for words in (["dataset.scale=standard"], ["dataset.scale=minmax"], ["dataset.divide=2"]):
            fails(USAGE, "test.yaml:7:7: model.layers.1.cross_attention: dataset.scale or divide would change its mask, which must be as in the file", "model.layers.1.cross_attention.mask=keep", *words)
        self.mask[5, 7] = True
        self.data(self.mask)
        fails(DATA, "the mask of model.layers.1.cross_attention leaves query 7 no key to attend to")
        self.data(self.mask[:, :20])
        fails(USAGE, "model.layers.1.cross_attention: its mask must be values of the dataset in each row, (150 keys) or (150 queries, 150 keys), but is (20, 150)")
        fails(USAGE, "but is (150, 6), which a layer computes", "model.layers.1.cross_attention.from=[s, s, s]")
        fails(USAGE, "and a mask or none, got 4", "model.layers.1.cross_attention.from=[s, s, mask, mask]")
        fails(USAGE, "mask: expected one of ignore, keep, add, got 'hide'", "model.layers.1.cross_attention.mask=hide")
        fails(USAGE, "a mask of the dataset is the third input of cross_attention, `from: [x, x, mask]`", "model.layers.1={attention: {heads: 2, attn_mask: m}}")
