"""dataset.draw: pairs and triplets of rows by their classes. The same on any number of ranks and after a resume; predicted and exported.
ctest-labels: dist"""
import csv
import ctypes
import io
import json
import os
import subprocess

import numpy as np

import program
from program import DATA, STOPPED, USAGE

CONFIG = """
name: test
dataset: {path: rows.csv, draw: pairs, split: {test: 0.25, seed: 1}}
sampler: {global_batch_size: 12}
model:
  layers:
    - linear: {out: 6, from: first, name: code}
    - linear: {out: 6, from: second, name: other, share: code}
    - expression: {from: [code, other], value: "abs(code - other)"}
    - linear: 1
loss: bce_with_logits
optimizer: {type: adam, lr: 0.01}
train: {epochs: 25}
"""
TRIPLETS = CONFIG.replace("draw: pairs", "draw: triplets").split("model:")[0] + """
model:
  layers:
    - linear: {out: 4, from: anchor, name: a}
    - linear: {out: 4, from: positive, name: p, share: a}
    - linear: {out: 4, from: negative, name: n, share: a}
    - concat: {from: [a, p, n], name: three}
losses: [{type: triplet_margin, output: three}]
optimizer: {type: adam, lr: 0.01}
train: {epochs: 25}
"""


class Draw(program.Case):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(3)
        self.y = random.integers(0, 4, 120)
        self.x = random.normal(size=(120, 5)) + 5 * np.eye(5)[self.y]
        self.write("rows.csv", "\n".join(["a,b,c,d,e,y"] + [",".join([*(f"{v:.3f}" for v in x), f"k{y}"]) for x, y in zip(self.x, self.y)]) + "\n")
        self.write("test.yaml", CONFIG)

    def losses(self, key="val_loss", run="runs/test"):
        with open(self.path(f"{run}/metrics.jsonl")) as f:
            return [e[key] for e in map(json.loads, f) if e["event"] == "epoch"]

    def test_learns_the_same_on_any_number_of_ranks(self):
        self.run_program("test.yaml")
        expected = self.losses()
        self.assertLess(expected[-1], 0.6 * expected[0])
        for nproc in 2, 3:
            self.run_program("test.yaml", "--nproc", nproc, "--run-dir", f"runs/{nproc}")
            np.testing.assert_allclose(self.losses(run=f"runs/{nproc}"), expected, rtol=1e-4)
        self.run_program("check", "test.yaml", out="input/first")

    def test_resume(self):
        """In the middle of an epoch of 8 steps."""
        for nproc in 1, 2:
            self.run_program("test.yaml", "--nproc", nproc, "--fresh")
            whole = self.sha()
            self.run_program("test.yaml", "--fresh", "--stop-after", 13, "--nproc", nproc, code=STOPPED)
            self.run_program("test.yaml", "--nproc", nproc)
            self.assertEqual(self.sha(), whole)
        self.assertIn("all equal", self.run_program("audit", "runs/test", "--all")[0])
        self.run_program("test.yaml", "dataset.draw.seed=1", "--run-dir", "runs/other", "--nproc", 2)
        self.assertNotEqual(self.sha("runs/other"), whole)

    def table(self, *arguments):
        return list(csv.DictReader(io.StringIO(self.run_program("predict", *arguments)[0])))

    def test_predict_and_eval(self):
        self.run_program("test.yaml")
        evaluated = json.loads(self.run_program("eval", "runs/test")[0])
        self.assertEqual(evaluated["loss"], self.losses()[-1])
        rows = self.table("runs/test", "--probabilities")
        self.assertEqual((len(rows), list(rows[0])), (30, ["first_row", "second_row", "prediction", "0", "1"]))
        loss = 0
        for i, row in enumerate(rows):
            is_same = self.y[int(row["first_row"])] == self.y[int(row["second_row"])]
            self.assertEqual(is_same, i % 2 == 0)
            loss -= np.log(float(row["1" if is_same else "0"])) / 30
        self.assertAlmostEqual(loss, evaluated["loss"], places=5)
        self.assertEqual(self.table("runs/test", "--nproc", 2, "--probabilities"), rows)
        drawn = {(r["first_row"], r["second_row"]): r["1"] for r in rows}
        names = ["a,b,c,d,e"] + [",".join(f"{v:.3f}" for v in self.x[int(row)]) for pair in drawn for row in pair]
        self.write("new.csv", "\n".join(names) + "\n")  # without a class: the rows one after another
        new = self.table("runs/test", "new.csv", "--probabilities")
        self.assertEqual([r["1"] for r in new], list(drawn.values()))
        self.assertEqual([(r["first_row"], r["second_row"]) for r in new[:2]], [("0", "1"), ("2", "3")])
        self.write("odd.csv", "\n".join(names[:4]) + "\n")
        _, err = self.run_program("predict", "runs/test", "odd.csv", code=DATA)
        self.assertIn("odd.csv: 3 rows cannot be divided into pairs: 2 rows, one after another, are a sample (dataset.draw)", err)
        self.write("one.csv", "\n".join(names[:2]) + "\n")
        self.run_program("predict", "runs/test", "one.csv", code=DATA, err="one.csv: 1 row cannot be divided into pairs: 2 rows")
        self.write("two.csv", "\n".join(names[:3]) + "\n")
        self.run_program("predict", "runs/test", "two.csv", err="two.csv: 1 sample of 2 rows")
        self.run_program("predict", "runs/test", "new.csv", "--with-inputs", code=USAGE, err="a prediction is of several (dataset.draw)")

    def test_export(self):
        """The C file computes what predict does."""
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "model.c")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", self.path("model.so"), self.path("model.c"), "-lm"], check=True)
        model = ctypes.CDLL(self.path("model.so")).model_predict
        numbers = np.round(self.x, 3).astype("f4").reshape(60, 10)
        out = np.zeros(60, "f4")
        for i in range(60):
            model(numbers[i].ctypes.data_as(ctypes.c_void_p), out[i:].ctypes.data_as(ctypes.c_void_p))
        table = self.table("runs/test", "--part", "all", "--outputs")
        np.testing.assert_allclose(out, [float(r["output_0"]) for r in table], rtol=2e-4, atol=1e-5)
        self.run_program("export", "runs/test", "--out", "model.onnx")

    def test_export_to_pytorch(self):
        """The losses of the scripts are compared by scripts/compare_pytorch.py --table."""
        self.run_program("export", "test.yaml", "--out", "train.py")
        with open(self.path("train.py")) as f:
            script = f.read()
        self.assertIn("drawn = Drawn(2, y, [train, validation], seed=0, different=0)\n", script)
        self.assertIn("loss = loss_of(parallel(x[drawn(rows)].flatten(1)), y[rows])\n", script)
        self.write("test.yaml", TRIPLETS.replace("triplet_margin, output: three}", "triplet_margin, output: three}, {type: mse, output: a, target: anchor}").replace("out: 4", "out: 5"))
        self.run_program("export", "test.yaml", "--out", "train.py")
        script = self.read("train.py")
        self.assertIn("    inputs = x[drawn(rows)].flatten(1)\n    return torch.cat([inputs[:, 0:5]], 1)\n", script)
        self.assertIn("loss = loss_of(parallel(x[drawn(rows)].flatten(1)), targets_of(rows))\n", script)

    def test_replay_names_all_rows(self):
        import h5py
        self.run_program("test.yaml", "train.epochs=2")
        self.run_program("replay", "runs/test", "--step", 11, "--out", "step.h5")
        with h5py.File(self.path("step.h5")) as f:
            rows, inputs, targets = f["rows/number"][()], f["rows/inputs"][()], f["rows/targets"][()].ravel()
        self.assertEqual(rows.shape, (12, 2))
        np.testing.assert_array_equal(inputs.reshape(12, 2, 5), np.round(self.x, 3).astype("f4")[rows])
        np.testing.assert_array_equal(targets == 1, self.y[rows[:, 0]] == self.y[rows[:, 1]])

    def test_augment(self):
        """Each image of a sample is changed in its own way, the same on any number of ranks."""
        import h5py
        random = np.random.default_rng(5)
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = random.random((40, 1, 8, 8)).astype("f4"), np.arange(40) % 3
        self.write("test.yaml", CONFIG.replace("rows.csv,", "rows.h5, augment: {erasing: {p: 1}, horizontal_flip: 0.5},").replace("epochs: 25", "epochs: 2")
                   .replace("    - linear: {out: 6, from: first, name: code}", "    - sequential: {from: first, name: code, layers: [flatten, {linear: 6}]}")
                   .replace("    - linear: {out: 6, from: second, name: other, share: code}", "    - sequential: {from: second, name: other, share: code}"))
        self.run_program("test.yaml")
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/two")
        np.testing.assert_allclose(self.losses("train_loss", "runs/two"), self.losses("train_loss"), rtol=1e-5)
        self.run_program("test.yaml", "dataset.augment=null", "--run-dir", "runs/same")
        self.assertNotEqual(self.losses("train_loss", "runs/same"), self.losses("train_loss"))

    def test_triplets(self):
        self.write("test.yaml", TRIPLETS)
        self.run_program("test.yaml")
        losses = self.losses()
        self.assertLess(losses[-1], 0.7 * losses[0])
        rows = self.table("runs/test")
        for row in rows:
            anchor, positive, negative = (self.y[int(row[f"{name}_row"])] for name in ("anchor", "positive", "negative"))
            self.assertTrue(anchor == positive != negative)
            self.assertNotEqual(row["anchor_row"], row["positive_row"])
        self.assertEqual(json.loads(self.run_program("eval", "runs/test", "--nproc", 2)[0])["rows"], len(rows))

    def test_signs_and_classes(self):
        """Losses that take 1 and -1, and those of two classes."""
        signs = CONFIG[:CONFIG.index("    - expression")] + "    - concat: {from: [code, other]}\nloss: cosine_embedding\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 25}\n"
        self.write("test.yaml", signs)
        self.run_program("test.yaml")
        self.assertLess(self.losses()[-1], self.losses()[0])
        self.write("test.yaml", CONFIG.replace("- linear: 1", "- linear: 2").replace("bce_with_logits", "{type: cross_entropy, weight: balanced}"))
        self.run_program("test.yaml", "--fresh")
        self.assertGreater(self.losses("val_accuracy")[-1], 0.75)

    def test_wrong(self):
        for keys, sentence in ((["dataset.weights=a"], "weights and draw exclude each other"),
                               (["dataset.target_scale=standard"], "target_scale and draw exclude each other"),
                               (["dataset.draw=triplets", "model.layers=[{linear: {out: 1, from: anchor}}]"], "triplets have no target; write `losses:"),
                               (["dataset.draw=pair"], "expected one of")):
            with self.subTest(sentence=sentence):
                self.run_program("check", "test.yaml", *keys, code=USAGE, err=sentence)
