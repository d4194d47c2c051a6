"""Metrics of extensions: the same value on any number of ranks, as other metrics in checkpoint.best, early_stop and eval; what they do
wrong is one sentence. ctest-labels: dist"""
import json
import os
import shutil

import numpy as np

import program
from program import DATA, USAGE

CONFIG = """
name: test
extensions: [concordance.c]
dataset: {path: rows.csv, split: {test: 0.4, seed: 1}}
sampler: {global_batch_size: 12}
model: {layers: [{linear: 8}, tanh, {linear: 1}]}
loss: mse
optimizer: {type: adam, lr: 0.05}
train: {epochs: 12, metrics: [mae, concordance]}
checkpoint: {best: val_concordance}
"""
BAD = """#include "extension.h"
static const struct metric_type bad;
static void add(const struct metric_rows *rows, struct metric_state *state) { state->sums[0] += rows->rows; if (bad.record_size) metric_record(state, rows->outputs, 4); }
static status value(const struct metric_state *state, double *out) { (void)state; RETURN; }
static const struct metric_type bad = {.name = "NAME", .sums = 1, .record_size = 8 * RECORDS, .add = add, .value = value};
DDPTRAIN_EXTENSION(.metric = &bad);
"""


class OwnMetrics(program.Case):
    def setUp(self):
        super().setUp()
        self.env = {"XDG_CACHE_HOME": self.path("cache")}
        shutil.copy(os.path.join(program.SOURCE, "examples/extensions/concordance.c"), self.path("concordance.c"))
        random = np.random.default_rng(5)
        x = random.normal(size=(90, 3))
        self.t = (x @ [1, -2, 0.5] + random.normal(size=90) / 2).round(1)
        self.write("rows.csv", "a,b,c,t\n" + "\n".join(",".join(f"{v:.4f}" for v in row) + f",{t}" for row, t in zip(x, self.t)) + "\n")
        self.write("test.yaml", CONFIG)

    def run_own(self, *arguments, code=program.OK):
        return self.run_program(*arguments, code=code, env=self.env)

    def epochs(self, run="runs/test"):
        with open(self.path(f"{run}/metrics.jsonl")) as f:
            return [e for e in map(json.loads, f) if e["event"] == "epoch"]

    def test_value_and_best(self):
        self.run_own("test.yaml")
        values = [e["val_concordance"] for e in self.epochs()]
        self.assertGreater(values[-1], 0.85)
        out = json.loads(self.run_own("eval", "runs/test")[0])
        self.assertEqual(out["concordance"], max(values))  # of the best epoch
        lines = self.run_own("predict", "runs/test")[0].splitlines()[1:]
        rows, y = zip(*((int(r), float(v)) for r, v in (line.split(",") for line in lines)))
        t, right, pairs = self.t[list(rows)], 0, 0
        for i in range(len(rows)):
            for k in range(len(rows)):
                if t[i] > t[k]:
                    right, pairs = right + (y[i] > y[k]) + 0.5 * (y[i] == y[k]), pairs + 1
        self.assertAlmostEqual(out["concordance"], right / pairs, places=12)

    def test_the_same_on_any_number_of_ranks(self):
        self.run_own("test.yaml")
        for nproc in 2, 3:
            self.assertEqual(self.run_own("eval", "runs/test", "--nproc", nproc)[0], self.run_own("eval", "runs/test")[0])
            self.run_own("test.yaml", "--nproc", nproc, "--run-dir", f"runs/{nproc}", "train.early_stop={metric: val_concordance, patience: 3}")
            self.assertIn("val_concordance", self.epochs(f"runs/{nproc}")[0])

    def test_wrong(self):
        for name, records, result, code, sentence in (
                ("bad", "0", "return *out = comm_rank(state->ranks), OK", DATA, "the metric 'bad' is 0 on rank 0, but 1 on rank 1"),
                ("bad", "1", "return *out = 1, OK", DATA, "the metric 'bad': a record has another size than .record_size, 8 bytes"),
                ("bad", "0, .sums = 0", "return *out = 1, OK", DATA, "the metric 'bad': sum 0 was written, but .sums is 0"),
                ("loss", "0", "return *out = 1, OK", USAGE, "bad.c: 'loss' is a field of the results already"),
                ("rows", "0", "return *out = 1, OK", USAGE, "bad.c: 'rows' is a field of the results already"),
                ("a\\nb", "0", "return *out = 1, OK", USAGE, "bad.c: the name of a metric has letters, digits and _, at most 100, got 'a\\x0ab'"),
                ("bad", "0", 'return status_new(STATUS_DATA, "no such thing")', DATA, "the metric 'bad': no such thing"),
                ("bad", "0", "return *(volatile int *)0 = 1, OK", None, "the extension bad.c"),
                ("mae", "0", "return *out = 1, OK", USAGE, "there is a type 'mae' already")):
            if program.SANITIZER and "extension" in sentence:
                continue  # it reports a crash itself
            with self.subTest(sentence=sentence):
                self.write("bad.c", BAD.replace("NAME", name).replace("RECORDS", records).replace("RETURN", result))
                _, err = self.run_own("test.yaml", "extensions=[bad.c]", f"train.metrics=[{name}]", "checkpoint.best=val_loss", "--nproc", 2, "--fresh", code=code)
                self.assertIn(sentence, err)
        for keys, sentence in ((["model.layers=[{linear: 2}]", "dataset.targets=[c, t]"], "the metric 'concordance': it needs one output and one target, not 2 and 2"),
                               (["train.metrics=[concordances]"], "unknown metric 'concordances'"),
                               (["train.metrics={concordance: mean(y)}", "checkpoint.best=val_loss"], "is a metric of the program"),
                               (["train.metrics={rows: mean(y)}", "checkpoint.best=val_loss"], "'rows' is a field of the results already")):
            _, err = self.run_own("check", "test.yaml", *keys, code=USAGE)
            self.assertIn(sentence, err)

    def test_new_and_test(self):
        self.run_own("extension", "new", "metric", "tail")
        self.assertIn("merged of 3 parts", self.run_own("extension", "test", "tail.c", "tail.yaml")[0])
        self.run_own("tail.yaml")
        self.assertIn("val_tail", self.epochs("runs/tail")[0])
        self.write("bad.c", BAD.replace("NAME", "worse").replace("RECORDS", "0").replace("RETURN", "return *out = state->sums[0], OK").replace("rows->rows;", "(double)rows->rows * rows->rows;"))
        _, err = self.run_own("extension", "test", "bad.c", "tail.yaml", code=None)
        self.assertIn("the metric 'worse' depends on how the rows are divided over processes", err)
