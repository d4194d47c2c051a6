"""The loss curves of PyTorch for two small CNNs on scikit-learn's digits, and batch norm's running statistics in
checkpoints, resumes and on two ranks. ctest-labels: dist"""
import gzip, json, os, shutil, struct

import h5py
import numpy as np

import program

CNN = """
dataset: {path: digits.h5}
sampler: {batch_size: 64, shuffle: false}
model:
  layers:
    - conv2d: {out: 8, kernel_size: 3, padding: 1}
    - batch_norm
    - relu
    - max_pool2d: 2
    - conv2d: {out: 16, kernel_size: 3, padding: 1}
    - relu
    - flatten
    - linear: {out: 10}
optimizer: {type: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.0005}
loss: cross_entropy
seed: 42
train: {epochs: 1}
"""
CNN2 = """
dataset: {path: digits.h5}
sampler: {batch_size: 64, shuffle: false}
model:
  layers:
    - conv2d: {out: 8, kernel_size: 3, stride: 2, padding: 1, bias: false}
    - batch_norm
    - relu
    - conv2d: {out: 16, kernel_size: 3, padding: 1, bias: false}
    - batch_norm
    - relu
    - adaptive_avg_pool2d: 1
    - flatten
    - linear: {out: 10}
optimizer: {type: adamw, lr: 0.003}
loss: {type: cross_entropy, label_smoothing: 0.1}
seed: 42
train: {epochs: 1}
"""
EVALUATED = CNN.replace("path: digits.h5", "path: digits.h5, split: {test: 0.3, seed: 1}").replace(
    "shuffle: false", "shuffle: true").replace("epochs: 1", "epochs: 4")


def digits():
    with gzip.open(os.path.join(program.VECTORS, "digits.csv.gz"), "rt") as f:
        rows = np.array([[int(v) for v in line.split(",")] for line in f])
    return (rows[:, :64] / 16.0).astype(np.float32).reshape(-1, 1, 8, 8), rows[:, 64]


def floats(words):
    return [struct.unpack(">f", bytes.fromhex(w))[0] for w in words]


class Digits(program.Case):
    def write_digits(self, rows):
        x, y = digits()
        with h5py.File(self.path("digits.h5"), "w") as f:
            f["x"] = x[rows]
            f["y"] = y[rows].astype("int64")


class Parity(Digits):
    def vectors_order(self):
        """torch.randperm(1797) of a generator seeded 42, the first 20 batches of 64."""
        n = 1797
        words = np.random.RandomState(42).randint(0, 2**32, n - 1, dtype=np.uint32)  # raw words of the same generator
        order = list(range(n))
        for i, word in enumerate(words):
            j = i + int(word) % (n - i)
            order[i], order[j] = order[j], order[i]
        return order[:20 * 64]

    def check_run(self, vector, config, tolerance):
        self.write_digits(self.vectors_order())
        self.write("test.yaml", config)
        self.run_program("test.yaml")
        self.assert_close(self.losses(), vector["loss"], tolerance, vector["name"])
        with h5py.File(self.checkpoints()[-1]) as f:
            for name, tensor in vector["final"].items():
                if "num_batches" in name:
                    continue
                ours = f["model/" + name][:].astype(np.float64)
                self.assertEqual(list(ours.shape), tensor["shape"], name)
                self.assert_close([float(v) for v in ours.reshape(-1)[:4]], floats(tensor["first"]), 1e-4, name)

    def test_conv_bn_pool_sgd(self):
        self.check_run(program.vectors("loss_cnn")["runs"][0], CNN, 5e-6)

    def test_two_batch_norms_adamw(self):
        self.check_run(program.vectors("loss_cnn")["runs"][1], CNN2, 3e-6)


class RunningStatistics(Digits):
    def setUp(self):
        super().setUp()
        self.write_digits(range(600))
        self.write("test.yaml", EVALUATED)

    def test_resume_is_uninterrupted(self):
        for nproc in (1, 2):
            with self.subTest(nproc=nproc):
                self.run_program("test.yaml", "--nproc", nproc, "--run-dir", "runs/whole")
                self.run_program("test.yaml", "--nproc", nproc, "--run-dir", "runs/parts", "train.epochs=2")
                self.run_program("test.yaml", "--nproc", nproc, "--run-dir", "runs/parts")
                self.assertEqual(self.sha("runs/parts"), self.sha("runs/whole"))
                self.assertEqual(self.losses("runs/parts"), self.losses("runs/whole"))
                whole, parts = (self.events("epoch", r) for r in ("runs/whole", "runs/parts"))
                self.assertEqual([e["val_loss"] for e in parts], [e["val_loss"] for e in whole])
                shutil.rmtree(self.path("runs"))

    def test_evaluation_uses_the_saved_statistics(self):
        """What two ranks report after an epoch is what eval finds in the checkpoint on one and on two."""
        self.run_program("test.yaml", "--nproc", 2)
        wanted = self.events("epoch")[-1]
        self.assertGreater(wanted["val_accuracy"], 0.8)
        for nproc in (1, 2):
            out, err = self.run_program("eval", "test.yaml", "--nproc", nproc)
            result = json.loads([line for line in (out + err).splitlines() if line.startswith("{")][-1])
            self.assertAlmostEqual(result["loss"], wanted["val_loss"], places=6)
            self.assertAlmostEqual(result["accuracy"], wanted["val_accuracy"], places=6)
