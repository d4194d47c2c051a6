"""The loss curves of PyTorch, step by step, at world 1, 2 and 4. ctest-labels: dist"""
import csv, struct

import numpy as np

import program

TOLERANCE = 1e-6


class Wine(program.Case):
    def curve(self, vector, config, *arguments):
        run = vector["name"]
        self.write("test.yaml", config)
        self.run_program("test.yaml", *arguments)
        self.assert_close(self.losses(), vector["loss"], TOLERANCE, run)

    def runs(self):
        return {r["name"]: r for r in program.vectors("loss_wine")["runs"]}

    def test_optimizers(self):
        config = program.WINE.replace("epochs: 10", "epochs: 10")
        for name, optimizer in (("Adam lr=1e-2", "{type: adam, lr: 0.01}"),
                                ("SGD lr=.1 mom=.9", "{type: sgd, lr: 0.1, momentum: 0.9}"),
                                ("AdamW lr=1e-2 wd=.01", "{type: adamw, lr: 0.01, weight_decay: 0.01}")):
            with self.subTest(name):
                vector = self.runs()["wine MLP 13-64-3 world1 batch32 10 epochs " + name]
                self.curve(vector, config.replace("{type: adam, lr: 0.001}", optimizer), "--fresh")
                self.assertAlmostEqual(self.events("epoch")[-1]["val_accuracy"], vector["test_acc"], places=6)

    def test_dataloader_order(self):
        """DataLoader(shuffle=True) with the default generator, seeded before the model was built."""
        vector = next(r for n, r in self.runs().items() if "DataLoader" in n)
        self.curve(vector, program.WINE.replace("shuffle: true, seed: 42", "type: dataloader")
                   .replace("lr: 0.001", "lr: 0.01").replace("epochs: 10", "epochs: 5"))

    def test_regression(self):
        """12-16-1 with tanh and mse on the 64 first training rows, full batch."""
        vector = next(r for n, r in self.runs().items() if "regression" in n)
        with open(self.path("datasets", "wine.csv")) as f:
            rows = [row for row in csv.reader(f)][1:]
        x = np.array([[float(v) for v in row[:13]] for row in rows])
        order = program.vectors("split")["n178_test0.2_seed42"]["train"]
        train = x[order]
        scaled = ((train - train.mean(0)) / train.std(0)).astype(np.float32)[:64]
        with open(self.path("regression.csv"), "w") as f:
            f.write(",".join(f"c{i}" for i in range(13)) + "\n")
            for row in scaled:
                f.write(",".join(repr(float(v)) for v in row) + "\n")
        self.curve(vector, """
dataset: {path: regression.csv, targets: c12}
sampler: {batch_size: 64, shuffle: false}
model: {layers: [{linear: {out: 16}}, tanh, {linear: {out: 1}}]}
loss: mse
optimizer: {type: sgd, lr: 0.05}
train: {epochs: 12}
""")


class DistributedDataParallel(program.Case):
    def expected(self, vector, batch_rows):
        """Mean over all ranks and rows of each optimizer step: the vectors hold each rank's mean of each micro-batch."""
        per_rank, gas, out = vector["loss_per_rank"], vector["gas"], []
        per_epoch = len(batch_rows)
        for epoch in range(len(per_rank[0]) // per_epoch):
            for first in range(0, per_epoch, gas):
                group = range(first, min(first + gas, per_epoch))
                total = sum(batch_rows[i] * r[epoch * per_epoch + i] for i in group for r in per_rank)
                out.append(total / sum(batch_rows[i] * len(per_rank) for i in group))
        return out

    def test_worlds(self):
        rows = {2: [16, 16, 16, 16, 7], 4: [16, 16, 4]}  # 142 rows, padded to a multiple of the world
        for vector in program.vectors("loss_ddp")["runs"]:
            with self.subTest(vector["name"]):
                self.write("test.yaml", program.WINE.replace("batch_size: 32", "batch_size: 16")
                           .replace("lr: 0.001", "lr: 0.01")
                           .replace("epochs: 10", f"epochs: 4, accumulate: {vector['gas']}"))
                self.run_program("test.yaml", "--nproc", vector["world"], "--fresh")
                self.assert_close(self.losses(), self.expected(vector, rows[vector["world"]]), TOLERANCE, vector["name"])
                import h5py
                with h5py.File(self.checkpoints()[-1]) as f:
                    bias = f["model/2.bias"][:]
                wanted = [struct.unpack(">f", bytes.fromhex(h))[0] for h in vector["final_fc2_bias"]]
                self.assert_close([float(v) for v in bias], wanted, 2e-5, "final bias")
