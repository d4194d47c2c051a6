"""dataset.weights against a weighted loss of PyTorch and scikit-learn's metrics with sample_weight. ctest-labels: unit"""
import json, sqlite3

import numpy as np

import program
from program import DATA, USAGE

CONFIG = """
name: test
dataset: {path: %s, targets: %s, weights: weight%s, split: {test: 0.25, shuffle: false}}
sampler: {%s, shuffle: false}
model: {layers: [{linear: %d}], init_from: start.safetensors}
loss: %s
optimizer: {type: sgd, lr: 0.3}
train: {epochs: 3, log_every: 1, metrics: [%s]}
"""
LOSSES = {"kind": "cross_entropy", "price": "mse", "yes": "bce_with_logits"}


class SampleWeights(program.Case):
    def setUp(self):
        super().setUp()
        self.vector = program.vectors("weights")
        v = self.vector
        self.table = np.column_stack([v["weight"], v["x"], v["kind"], v["yes"], v["price"]])
        self.names = ["weight", "a", "b", "c", "kind", "yes", "p", "q"]
        self.write_csv("rows.csv", self.table)

    def write_csv(self, name, rows, columns=slice(None)):
        lines = [",".join(self.names[columns])] + [",".join(map(repr, row[columns])) for row in np.asarray(rows).tolist()]
        self.write(name, "\n".join(lines) + "\n")

    def config(self, case, path="rows.csv", sampler="batch_size: 9", metrics=(), loss=None):
        target = case["target"]
        columns = {"price": "[p, q]"}.get(target, target) if not path.endswith((".h5", ".npz")) else target
        inputs = ", inputs: [a, b, c]" if not path.endswith((".h5", ".npz")) else ""
        weights = {f"0.{k}": np.array(value, dtype=np.float32) for k, value in case["start"].items()}
        header, data = {}, b""
        for key, value in weights.items():
            header[key] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
            data += value.tobytes()
        text = json.dumps(header).encode()
        with open(self.path("start.safetensors"), "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text + data)
        self.write("test.yaml", CONFIG % (path, columns, inputs, sampler, len(case["start"]["bias"]), loss or LOSSES[target],
                                          ", ".join(metrics)))

    def other_files(self):
        import h5py
        v = self.vector
        arrays = {"x": np.array(v["x"]), "weight": np.array(v["weight"]), "kind": np.array(v["kind"]),
                  "price": np.array(v["price"]), "yes": np.array(v["yes"], dtype=np.float64)}
        with h5py.File(self.path("rows.h5"), "w") as f:
            for name, values in arrays.items():
                f[name] = values
        np.savez(self.path("rows.npz"), **arrays)
        with sqlite3.connect(self.path("rows.db")) as db:
            db.execute(f"create table t ({', '.join(n + ' real' for n in self.names)})")
            db.executemany(f"insert into t values ({', '.join('?' * len(self.names))})", self.table.tolist())
        for i, rows in enumerate(np.array_split(self.table, 3)):
            self.write_csv(f"part-{i}.csv", rows)
            with h5py.File(self.path(f"part-{i}.h5"), "w") as f:
                for name, values in arrays.items():
                    f[name] = np.array_split(values, 3)[i]

    def test_equals_pytorch_and_scikit_learn(self):
        for loss, case in self.vector["cases"].items():
            with self.subTest(loss):
                self.config(case, metrics=case["metrics"], loss=loss)
                self.run_program("test.yaml", "--fresh")
                np.testing.assert_allclose(self.losses(), case["losses"], rtol=2e-6)
                self.run_program("export", "runs/test", "--out", "w.safetensors")
                with open(self.path("w.safetensors"), "rb") as f:
                    header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
                    data = f.read()
                for key, expected in case["end"].items():
                    first, last = header["0." + key]["data_offsets"]
                    np.testing.assert_allclose(np.frombuffer(data[first:last], np.float32), np.ravel(expected), atol=2e-6)
                event = self.events("epoch")[-1]
                self.assertAlmostEqual(event["val_loss"], case["validation"], delta=1e-6)
                for world in (1, 2, 3):
                    result = json.loads(self.run_program("eval", "test.yaml", "--nproc", world)[0])
                    self.assertAlmostEqual(result["loss"], case["validation"], delta=1e-6)
                    for name, expected in case["metrics"].items():
                        if name == "confusion_matrix":
                            np.testing.assert_allclose(result[name], expected, atol=1e-6)
                            np.testing.assert_allclose(event["val_" + name], expected, atol=1e-6)
                            continue
                        self.assertAlmostEqual(result[name], expected, delta=2e-6, msg=f"{name} on {world} ranks")
                        self.assertAlmostEqual(event["val_" + name], result[name], places=12)

    def test_formats_agree(self):
        self.other_files()
        for loss in ("cross_entropy", "mse", "bce_with_logits"):
            case, runs = self.vector["cases"][loss], set()
            for path in ("rows.csv", "rows.h5", "rows.npz", "rows.db", "part-*.csv", "part-*.h5"):
                self.config(case, path)
                self.run_program("test.yaml", "--fresh")
                runs.add(self.sha())
                np.testing.assert_allclose(self.losses(), case["losses"], rtol=2e-6)
            self.run_program("test.yaml", "--fresh", "dataset.cache_mb=0", "dataset.path=rows.h5",
                             "dataset.inputs=[x]", f"dataset.targets=[{case['target']}]")
            runs.add(self.sha())
            self.assertEqual(len(runs), 1)

    def test_ranks_shards_accumulation_and_resume(self):
        case = self.vector["cases"]["cross_entropy"]
        self.config(case, sampler="global_batch_size: 9")
        for words in (["--nproc", 3], ["train.accumulate=3", "sampler.global_batch_size=3"]):
            out, _ = self.run_program("test.yaml", "--fresh", *words)
            np.testing.assert_allclose(self.losses(), case["losses"], rtol=3e-6)
        shas = set()
        for nproc in (1, 2, 3):
            self.run_program("test.yaml", "--fresh", "determinism.mode=elastic", "determinism.shards=6", "--nproc", nproc)
            np.testing.assert_allclose(self.losses(), case["losses"], rtol=3e-6)
            shas.add(self.sha())
        self.assertEqual(len(shas), 1)
        self.config(case)
        self.run_program("test.yaml", "--fresh")
        whole = self.sha()
        self.run_program("test.yaml", "--run-dir", "runs/b", "train.epochs=1")
        self.run_program("test.yaml", "--run-dir", "runs/b")
        self.assertEqual(self.sha("runs/b"), whole)
        self.run_program("test.yaml", "--run-dir", "runs/b", "dataset.weights=null", code=USAGE, err="dataset.weights")
        self.table[0, 0] += 1
        self.write_csv("rows.csv", self.table)
        _, err = self.run_program("test.yaml", "--run-dir", "runs/b", "train.epochs=4", code=DATA)

    def test_weights_of_one_are_no_weights(self):
        case = self.vector["cases"]["mse"]
        self.table[:, 0] = 7
        self.write_csv("rows.csv", self.table)
        self.config(case, metrics=["mae", "r2"])
        self.run_program("test.yaml")
        with_weights = [(e["train_loss"], e["val_loss"], e["val_mae"], e["val_r2"]) for e in self.events("epoch")]
        self.run_program("test.yaml", "--run-dir", "runs/b", "dataset.weights=null")
        self.assertEqual([(e["train_loss"], e["val_loss"], e["val_mae"], e["val_r2"]) for e in self.events("epoch", "runs/b")],
                         with_weights)
        self.assertEqual(self.sha(), self.sha("runs/b"))

    def test_several_losses(self):
        """Each of them is weighted."""
        case = self.vector["cases"]["mse"]
        self.config(case)
        text = self.read("test.yaml")
        self.write("test.yaml", text.replace("loss: mse", "losses: [{type: mse}]").replace("targets: [p, q]", "targets: {price: [p, q]}"))
        self.run_program("test.yaml")
        np.testing.assert_allclose(self.losses(), case["losses"], rtol=2e-6)
        self.assertAlmostEqual(self.events("epoch")[-1]["val_loss"], case["validation"], delta=1e-6)

    def test_folds_and_the_weighted_sampler(self):
        case = self.vector["cases"]["cross_entropy"]
        self.config(case)
        text = self.read("test.yaml").replace("{test: 0.25, shuffle: false}", "{folds: 3, fold: 1, stratify: true}")
        self.write("test.yaml", text.replace(", shuffle: false", ", type: weighted"))
        self.run_program("test.yaml", "--nproc", 2)
        result = json.loads(self.run_program("eval", "test.yaml")[0])
        self.assertAlmostEqual(result["loss"], self.events("epoch")[-1]["val_loss"], places=9)

    def test_predict_needs_no_weights_and_eval_does(self):
        case = self.vector["cases"]["cross_entropy"]
        self.config(case)
        self.run_program("test.yaml")
        all_rows, _ = self.run_program("predict", "test.yaml", "rows.csv")
        self.write_csv("new.csv", self.table, slice(1, 4))
        self.assertEqual(self.run_program("predict", "test.yaml", "new.csv")[0], all_rows)
        self.write_csv("new.csv", self.table, slice(1, 5))
        self.run_program("eval", "test.yaml", "new.csv", code=DATA, err="dataset.weights: new.csv: there is no column 'weight'")
        self.write_csv("new.csv", self.table[45:])
        result = json.loads(self.run_program("eval", "test.yaml", "new.csv")[0])
        self.assertAlmostEqual(result["loss"], case["validation"], delta=1e-6)

    def test_check_prints_them(self):
        self.config(self.vector["cases"]["mse"])
        out, _ = self.run_program("check", "test.yaml")
        train = np.array(self.vector["weight"])[:45]
        self.assertIn(f"weights        'weight', {train.min():g} to {train.max():g}, divided by their mean {train.mean():g}", out)

    def test_wrong_weights(self):
        case = self.vector["cases"]["mse"]
        for value, why in (("-1", "the weight -1 is negative"), ("inf", "is not a number"), ("", "missing value"), ("x", "'x' is not a number"),
                           ("1e39", "the weight 1e+39 is too large for float32")):
            self.config(case)
            self.write_csv("rows.csv", self.table)
            lines = self.read("rows.csv").split("\n")
            lines[4] = value + lines[4][lines[4].index(","):]
            self.write("rows.csv", "\n".join(lines))
            self.run_program("test.yaml", "--fresh", code=DATA, err=("rows.csv:line 5: column 'weight'", why if value != "inf" else "weight"))
        for row in (0, 70000):  # more rows than are read at once
            weight = np.ones(70001)
            weight[row] = -1
            np.savez(self.path("rows.npz"), x=np.ones((70001, 3)), weight=weight, price=np.ones((70001, 2)))
            self.config(case, "rows.npz")
            self.run_program("test.yaml", "--fresh", code=DATA, err=f"rows.npz: array 'weight': row {row}: the weight -1 is negative")
        self.config(case)
        for rows, name in ((slice(0, 45), "training"), (slice(45, 60), "validation")):
            table = self.table.copy()
            table[rows, 0] = 0
            self.write_csv("rows.csv", table)
            self.run_program("test.yaml", "--fresh", code=DATA, err=f"the weights ('weight') of the {name} rows are all 0")
        self.write_csv("rows.csv", self.table)
        for words, why in ((["dataset.weights=wieght"], "there is no column 'wieght'; did you mean 'weight'"),
                           (["dataset.weights=p"], "column 'p' is used twice, as target and by dataset.weights"),
                           (["dataset.weights=a"], "column 'a' is used twice, as input and by dataset.weights")):
            self.run_program("test.yaml", "--fresh", *words, code=DATA, err=why)
        self.other_files()
        self.config(case, "rows.h5")
        for words, why in ((["dataset.weights=x"], "dataset 'x' is used"), (["dataset.weights=price"], "has 2 values a row instead of one weight"),
                           (["dataset.weights=none"], "there is no dataset 'none'")):
            _, err = self.run_program("test.yaml", "--fresh", *words, code=DATA)
            if words != ["dataset.weights=x"]:
                self.assertIn(why, err)
        np.save(self.path("x.npy"), self.table[:, 1:4])
        np.save(self.path("y.npy"), self.table[:, 6:8])
        np.save(self.path("z.npy"), self.table[:, 1:4])
        for paths, targets in (("x.npy", "[]"), ("[x.npy, z.npy]", "[y.npy, y.npy]")):
            _, err = self.run_program("test.yaml", "--fresh", f"dataset.path={paths}", f"dataset.targets={targets}", code=USAGE)
            self.assertIn("format npy has no names for weights; hdf5, csv, sqlite and npz have", err)
