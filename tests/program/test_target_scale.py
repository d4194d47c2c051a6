"""dataset.target_scale against the numbers of scikit-learn's TransformedTargetRegressor. ctest-labels: unit"""
import csv, json

import numpy as np

import program
from program import DATA, USAGE

CONFIG = """
name: test
dataset: {path: train.csv, targets: [price, same], split: {test: 0.25, seed: 3}, target_scale: %s}
sampler: {batch_size: 8}
model: {layers: [{linear: 2}]}
loss: mse
optimizer: {type: sgd, lr: %g}
train: {epochs: 3, metrics: [mae, rmse, r2]}
"""


class TargetScale(program.Case):
    def setUp(self):
        super().setUp()
        self.vector = program.vectors("target_scale")
        self.write_rows("train.csv", np.hstack([self.vector["x"], self.vector["y"]]).tolist())

    def write_rows(self, name, rows):
        self.write(name, "u,v,price,same\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows))

    def test_equals_scikit_learn(self):
        """Its weights in the model give its outputs and its predictions; losses are of scaled targets, metrics of those of the file."""
        import h5py
        y, rows = np.array(self.vector["y"]), self.vector["validation"]
        for name, case in self.vector["cases"].items():
            with self.subTest(name):
                self.write("test.yaml", CONFIG % (name, 1e-30))  # which changes no weight
                self.run_program("test.yaml", "--fresh")

                def change(f):
                    f["model/0.weight"][:], f["model/0.bias"][:] = case["weight"], case["bias"]
                    stored = json.loads(f["data/target_scale"][()])
                    self.assertEqual(stored["type"], name)
                    np.testing.assert_allclose(stored["mean"], case.get("mean", [0, 0]), rtol=1e-15)
                    np.testing.assert_allclose(stored["scale"], case.get("scale", [1, 1]), rtol=1e-15)
                program.change_checkpoint(self.checkpoints()[-1], change)
                for nproc in (1, 2):
                    out, _ = self.run_program("predict", "test.yaml", "train.csv", "--outputs", "--nproc", nproc)
                    table = [{k: float(v) for k, v in r.items()} for r in csv.DictReader(out.splitlines())]
                    np.testing.assert_allclose([[r["output_0"], r["output_1"]] for r in table], case["outputs"], rtol=1e-5, atol=1e-6)
                    np.testing.assert_allclose([[r["price"], r["same"]] for r in table], case["predictions"], rtol=1e-5)
                    result = json.loads(self.run_program("eval", "test.yaml", "--nproc", nproc)[0])
                    scaled, predicted = np.array(case["scaled"])[rows], np.array(case["predictions"])[rows]
                    error = predicted - y[rows]
                    self.assertAlmostEqual(result["loss"], ((np.array(case["outputs"])[rows] - scaled) ** 2).mean(), delta=1e-5)
                    self.assertAlmostEqual(result["mae"] / abs(error).mean(), 1, delta=1e-4)
                    self.assertAlmostEqual(result["rmse"] / np.sqrt((error ** 2).mean(0)).mean(), 1, delta=1e-4)
                self.run_program("predict", "test.yaml", "train.csv", "--out", "p.h5")
                with h5py.File(self.path("p.h5")) as f:
                    np.testing.assert_allclose(f["prediction"][:], case["predictions"], rtol=1e-5)
                self.run_program("export", "runs/test", "--out", "w.safetensors")
                with open(self.path("w.safetensors"), "rb") as f:
                    header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
                self.assertEqual(json.loads(header["__metadata__"]["target_scale"])["type"], name)
                self.run_program("export", "runs/test", "--out", "m.c")  # test_export_c.py compares its outputs

    def test_predictions_have_all_digits(self):
        """Of targets that differ after their twelfth digit, a CSV file has the same predictions as an HDF5 file."""
        import h5py
        r = np.random.default_rng(0)
        x = r.normal(size=(40, 2))
        self.write_rows("train.csv", [[a, b, 1.7e13 + 10 * a, -a / 7] for a, b in x.tolist()])
        self.write("test.yaml", CONFIG % ("standard", 0.1))
        self.run_program("test.yaml")
        for out in ("p.csv", "p.h5"):
            self.run_program("predict", "test.yaml", "--out", out)
        with open(self.path("p.csv")) as f:
            rows = list(csv.DictReader(f))
        with h5py.File(self.path("p.h5")) as f:
            values = f["prediction"][:]
        names = [name for name in rows[0] if name != "row"]
        self.assertEqual([[float(row[name]) for name in names] for row in rows], values.tolist())
        self.assertEqual(len(set(values[:, 0])), len(rows))

    def test_errors_of_small_targets(self):
        """mape divides by the target of the file, not by a number that its scaled value in float32 stands for: also 0, in rows that are
        in memory or read on demand, in windows, and of two processes."""
        draw = np.random.default_rng(0)
        a = draw.normal(size=120)
        self.write("small.csv", "a,y\n" + "".join(f"{p:.5f},{q:.4f}\n" for p, q in zip(a, np.exp(4 * a) + 0.0001)))
        self.write("zeros.csv", "a,y\n" + "".join(f"{p:.5f},{q:.4f}\n" for p, q in zip(a, np.where(np.arange(120) % 9, a * 1000, 0))))
        for name in ("small.csv", "zeros.csv"):
            for scale in ("standard", "minmax"):
                self.write("test.yaml", CONFIG.replace("[price, same]", "y").replace("train.csv", name).replace("linear: 2", "linear: 1").replace("rmse", "mape")
                           % (scale, 0.01))
                self.run_program("test.yaml", "--fresh")
                self.run_program("predict", "test.yaml", "--out", "out.csv")
                targets = [float(line.split(",")[1]) for line in self.read(name).splitlines()[1:]]
                rows = [(targets[int(r["row"])], float(r["y"])) for r in csv.DictReader(self.read("out.csv").splitlines())]
                expected = np.mean([abs(x - y) / max(abs(y), np.finfo(float).eps) for y, x in rows])
                np.testing.assert_allclose(self.events("epoch")[-1]["val_mape"], expected, rtol=1e-5)
                evaluated = json.loads(self.run_program("eval", "test.yaml")[0])["mape"]
                np.testing.assert_allclose(evaluated, expected, rtol=1e-5)
                for words in (["dataset.cache_mb=0"], ["--nproc", 2]):
                    np.testing.assert_allclose(json.loads(self.run_program("eval", "test.yaml", *words)[0])["mape"], expected, rtol=1e-5)
        np.savez(self.path("rows.npz"), x=a[:, None], y=np.where(np.arange(120) % 9, a * 1000, 0))
        for words in ([], ["dataset.cache_mb=0"]):
            self.run_program("test.yaml", "--fresh", "dataset.path=rows.npz", "dataset.targets=null", *words)
            self.assertGreater(self.events("epoch")[-1]["val_mape"], 1e12)
        window = ["dataset.path=zeros.csv", "dataset.window={steps: 3, predict_steps: 2}", "dataset.split={test: 0.25, shuffle: false}", "model.layers=[flatten, {linear: 2}]", "optimizer.lr=1e-9"]
        for words in ([], ["dataset.cache_mb=0"]):
            self.run_program("test.yaml", "--fresh", *window, *words)
            self.run_program("predict", "test.yaml", *window, "--out", "out.csv")
            rows = [[float(v) for v in line.split(",")] for line in self.read("out.csv").splitlines()[1:]]
            errors = [abs(r[1 + k] - targets[int(r[0]) + 1 + k]) for r in rows if r[0] + 2 < len(targets) for k in range(2)]
            np.testing.assert_allclose(self.events("epoch")[-1]["val_mae"], np.mean(errors), rtol=1e-5)
            self.assertGreater(self.events("epoch")[-1]["val_mape"], 1e12)

    def test_resume_and_files_that_are_read_in_parts(self):
        import h5py
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = self.vector["x"], self.vector["y"]
        self.write("test.yaml", (CONFIG % ("standard", 0.05)).replace("train.csv, targets: [price, same]", "rows.h5"))
        self.run_program("test.yaml")
        for words in (["dataset.cache_mb=0"], ["train.epochs=1"]):
            self.run_program("test.yaml", *words, "--run-dir", "runs/other")
            self.run_program("test.yaml", "--run-dir", "runs/other")
            self.assertEqual(self.sha("runs/other"), self.sha())
            self.run_program("test.yaml", "--run-dir", "runs/other", "--fresh", "train.epochs=1")
        self.run_program("test.yaml", "--run-dir", "runs/other", "dataset.target_scale=minmax", code=USAGE)
        out, _ = self.run_program("predict", "test.yaml", "rows.h5")
        self.assertEqual(out.splitlines()[0], "row,prediction_0,prediction_1")

    def test_refused(self):
        self.write("test.yaml", CONFIG % ("log1p", 0.1))
        self.write_rows("train.csv", [[1.0, 2.0, 3.0, 4.0]] * 5 + [[1.0, 2.0, 3.0, -1.0]])
        for verb in (["test.yaml"], ["check", "test.yaml"]):
            self.run_program(*verb, code=DATA, err="train.csv:line 7: column 'same': -1 has no log1p; dataset.target_scale: log1p needs targets above -1")
        _, err = self.run_program("test.yaml", "loss=bce_with_logits", code=USAGE)
        self.assertIn("test.yaml:3:", err)
        self.assertIn("dataset.target_scale: is for the losses mse, l1, smooth_l1, huber, quantile and expression, but the loss is bce_with_logits, whose targets are "
                      "probabilities\n", err)
        _, err = self.run_program("test.yaml", "loss=gaussian_nll", "model.layers=[{linear: 4}]", code=USAGE)
        self.assertIn("dataset.target_scale: is for the losses mse, l1, smooth_l1, huber, quantile and expression, but the loss is gaussian_nll\n", err)
        self.write("test.yaml", CONFIG % ("standard", 0.1))
        self.run_program("test.yaml")
        for text, sentence in (('{"type": "standard", "mean": [1], "scale": [1]}', "the model has 2 outputs, but its checkpoint has the scale of 1 target"),
                               ('{"type": "standard", "mean": [1, 2], "scale": [1, 0]}', "(data/target_scale) is damaged"),
                               ('{"type": "cube", "mean": [1, 2], "scale": [1, 1]}', "(data/target_scale) is damaged"),
                               ('{"type": "minmax", "mean": [1, 2], "scale": [1]}', "(data/target_scale) is damaged"), ("[", "(data/target_scale) is damaged")):
            with self.subTest(text):
                def change(f):
                    del f["data/target_scale"]
                    f["data/target_scale"] = np.bytes_(text.encode())
                program.change_checkpoint(self.checkpoints()[-1], change)
                self.run_program("predict", "test.yaml", code=DATA, err=sentence)
