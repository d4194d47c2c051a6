"""A class for each pixel: the loss of an output (classes, height, width) and its gradient in NumPy, predictions, metrics, several
losses, exports, any number of ranks, wrong shapes. ctest-labels: dist"""
import json
import os
import runpy
import shutil

import numpy as np

import program
from program import DATA, USAGE

CLASSES, HIGH, WIDE, ROWS = 3, 4, 5, 12
CONFIG = """
dataset: {path: pixels.npz}
sampler: {batch_size: 12, shuffle: false}
model: {layers: [{conv2d: {out: 3, kernel_size: 1}}]}
loss: {type: cross_entropy, weight: [1, 2, 0.5], ignore_index: -100}
optimizer: {type: sgd, lr: 0.5}
train: {epochs: 2, log_every: 1}
"""


class Pixels(program.Case):
    def setUp(self):
        super().setUp()
        draw = np.random.default_rng(3)
        self.x = draw.normal(size=(ROWS, 2, HIGH, WIDE)).astype("f4")
        self.y = draw.integers(0, CLASSES, (ROWS, HIGH, WIDE))
        np.savez(self.path("pixels.npz"), x=self.x, y=self.y)
        self.write("test.yaml", CONFIG)

    def twin(self, weight, bias, factors):
        """(loss, gradients of weight and bias) of a 1 x 1 convolution in float64."""
        z = np.einsum("oi,nihw->nhwo", weight, self.x.astype(float)) + bias
        p = np.exp(z - z.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        hot = np.eye(CLASSES)[self.y]
        share = (hot @ factors)[..., None] / (hot @ factors).sum()
        dz = (p - hot) * share
        return -(np.log((p * hot).sum(-1)) * share[..., 0]).sum(), np.einsum("nhwo,nihw->oi", dz, self.x), dz.sum((0, 1, 2))

    def test_loss_and_gradient(self):
        import h5py
        self.run_program("test.yaml", "train.epochs=1", "--run-dir", "first")
        self.run_program("test.yaml", "--run-dir", "second")
        with h5py.File(sorted(self.checkpoints("first"))[-1]) as f:
            w, b = f["model/0.weight"][:].reshape(CLASSES, 2).astype(float), f["model/0.bias"][:].astype(float)
        loss, dw, db = self.twin(w, b, np.array([1, 2, 0.5]))
        steps = [e for e in self.events("step", "second")]
        self.assertAlmostEqual(steps[1]["loss"], loss, places=5)
        with h5py.File(sorted(self.checkpoints("second"))[-1]) as f:
            np.testing.assert_allclose(f["model/0.weight"][:].reshape(CLASSES, 2), w - 0.5 * dw, atol=1e-6)
            np.testing.assert_allclose(f["model/0.bias"][:], b - 0.5 * db, atol=1e-6)

    def test_predictions_and_metrics(self):
        import h5py
        self.run_program("test.yaml", "dataset.split.test=0.5", "dataset.split.shuffle=false", "train.metrics=[mean_iou, confusion_matrix]")
        self.run_program("predict", "runs/test", "--part", "all", "--outputs", "--out", "p.h5")
        with h5py.File(self.path("p.h5")) as f:
            outputs = f["outputs"][:]
        predicted = outputs.reshape(ROWS, HIGH, WIDE, CLASSES).argmax(-1)
        known, guess = self.y[6:].ravel(), predicted[6:].ravel()
        matrix = [[int(((known == a) & (guess == b)).sum()) for b in range(CLASSES)] for a in range(CLASSES)]
        event = self.events("epoch")[-1]
        self.assertEqual(event["val_confusion_matrix"], matrix)
        self.assertAlmostEqual(event["val_accuracy"], (known == guess).mean(), places=12)
        iou = [((known == c) & (guess == c)).sum() / ((known == c) | (guess == c)).sum() for c in range(CLASSES)]
        self.assertAlmostEqual(event["val_mean_iou"], np.mean(iou), places=12)
        np.savez(self.path("new.npz"), x=self.x)  # without targets
        self.run_program("predict", "runs/test", "dataset.path=new.npz", "--part", "all", "--outputs", "--out", "q.h5")
        with h5py.File(self.path("q.h5")) as f:
            np.testing.assert_array_equal(f["outputs"][:], outputs)

    def test_several_losses(self):
        """One of them is of pixels; its output keeps its name and its other readers."""
        one = CONFIG.replace("loss: {type: cross_entropy, weight: [1, 2, 0.5], ignore_index: -100}", "loss: cross_entropy")
        self.write("one.yaml", one)
        import h5py
        with h5py.File(self.path("pixels.h5"), "w") as f:
            f["x"], f["y"] = self.x, self.y
        self.write("both.yaml", one.replace("loss: cross_entropy", "losses: [{type: cross_entropy, output: pixels, target: y}, "
                                            "{type: mse, output: again, target: input, loss_weight: 0}]")
                   .replace("{conv2d: {out: 3, kernel_size: 1}}", "{conv2d: {out: 3, kernel_size: 1, name: pixels}}, "
                            "{conv2d: {out: 2, kernel_size: 1, name: again}}")
                   .replace("pixels.npz}", "pixels.h5, inputs: x, targets: {y: y}}"))
        self.run_program("one.yaml")
        self.run_program("both.yaml", "--run-dir", "both")
        losses = [e["loss"] for e in self.events("step", "both")]
        self.assertAlmostEqual(losses[0], self.events("step", "runs/one")[0]["loss"], places=5)

    def test_ignored_pixels(self):
        """255, as in Pascal VOC, and PyTorch's -100 are no classes; the loss and the metrics do not count them."""
        import h5py
        known = np.random.default_rng(1).random(self.y.shape) < 0.7
        found = []
        for ignored in 255, -100:
            np.savez(self.path("pixels.npz"), x=self.x, y=np.where(known, self.y, ignored))
            self.run_program("test.yaml", f"loss={{type: cross_entropy, ignore_index: {ignored}}}", "dataset.split.test=0.5", "dataset.split.shuffle=false",
                             "train.metrics=[mean_iou]", "--fresh")
            found.append(self.sha())
        self.assertEqual(*found)
        self.run_program("predict", "runs/test", "--part", "all", "--outputs", "--out", "p.h5")
        with h5py.File(self.path("p.h5")) as f:
            guess = f["outputs"][:].reshape(ROWS, HIGH, WIDE, CLASSES).argmax(-1)[6:][known[6:]]
        self.assertAlmostEqual(self.events("epoch")[-1]["val_accuracy"], (guess == self.y[6:][known[6:]]).mean(), places=12)
        np.savez(self.path("pixels.npz"), x=self.x, y=np.where(known, self.y, 255))
        self.run_program("test.yaml", "--fresh", code=USAGE, err="the targets have 256 classes (0 to 255)")
        np.savez(self.path("pixels.npz"), x=self.x, y=np.where(known, self.y, -1))
        _, err = self.run_program("test.yaml", "--fresh", code=DATA)
        self.assertIn("-1 is not a class; classes are integers from 0, and targets that do not count, such as those of padding, are -100 "
                      "(ignore_index of the loss)", err)

    def test_each_loss_ignores_its_own_class(self):
        """Of several losses each has its ignore_index, also for the pixels that a crop adds."""
        import h5py
        known = np.random.default_rng(1).random(self.y.shape) < 0.7
        kinds = np.arange(ROWS) % 4
        with h5py.File(self.path("pixels.h5"), "w") as f:
            f["x"], f["kind"], f["unknown"] = self.x, kinds, np.where(kinds == 3, -1, kinds)
            f["void"], f["minus"] = np.where(known, self.y, 255), np.where(known, self.y, -100)
        layers = ("{conv2d: {out: 3, kernel_size: 1, name: mask}}, {mean: {dim: [2, 3], from: input, name: means}}, "
                  "{linear: {out: 4, name: kind}}")
        base = (CONFIG.split("loss:")[0] + "train: {epochs: 2}\n").replace("{conv2d: {out: 3, kernel_size: 1}}", layers)
        states = {}
        for crop in "{}", "{random_crop: 3}":
            for mask, ignored in ("void", 255), ("minus", -100):
                for kind in "kind", "unknown":
                    config = base.replace("pixels.npz", f"pixels.h5, inputs: x, targets: {{mask: {mask}, kind: {kind}}}, augment: {crop}")
                    first = f"{{type: cross_entropy, output: kind, target: kind{', ignore_index: -1' if kind == 'unknown' else ''}}}"
                    self.write("both.yaml", config + f"losses: [{first}, {{type: cross_entropy, output: mask, target: mask, "
                               f"ignore_index: {ignored}}}]\n")
                    self.run_program("both.yaml", "--fresh")
                    states.setdefault((crop, kind), set()).add(self.events("step", "runs/both")[-1]["loss"])
        self.assertEqual([len(losses) for losses in states.values()], [1] * 4)
        self.write("both.yaml", config + "losses: [{type: cross_entropy, output: kind, target: kind, ignore_index: -1}, "
                   "{type: cross_entropy, output: mask, target: mask}, {type: cross_entropy, output: kind, target: kind, name: again}]\n")
        self.run_program("both.yaml", "--fresh", code=DATA, err="-1 is not a class; classes are integers from 0")

    def test_no_target_counts(self):
        """The steps of the epoch are done, but have no loss."""
        np.savez(self.path("pixels.npz"), x=self.x, y=np.full_like(self.y, -100))
        _, err = self.run_program("test.yaml")
        self.assertRegex(err, r"epoch 2/2  no training target counts  lr 0\.5 ")
        self.assertRegex(err, r"done: 2 epochs, 2 steps in ")
        self.assertEqual([e["train_loss"] for e in self.events("epoch")], [None, None])

    def test_sequences(self):
        """A class for each step of a series."""
        np.savez(self.path("pixels.npz"), x=self.x.reshape(ROWS, 2 * HIGH, WIDE), y=self.y.reshape(ROWS, -1)[:, :2 * HIGH])
        self.run_program("test.yaml", "model.layers=[{lstm: 6}, {linear: 3}]")
        self.assertEqual(len(self.events("step")), 2)

    def test_ranks_and_elastic_shards(self):
        for words in (), ("determinism={mode: elastic, shards: 2}", "sampler.batch_size=null", "sampler.global_batch_size=12"):
            found = []
            for world in "1", "2":
                self.run_program("test.yaml", "--nproc", world, "--run-dir", f"{world}{len(words)}", "sampler.batch_size=" + str(12 // int(world)),
                                 "loss=cross_entropy", *words)
                found.append([e["loss"] for e in self.events("step", f"{world}{len(words)}")])
            np.testing.assert_allclose(*found, rtol=0 if words else 1e-6)

    def test_an_unpooled_decoder(self):
        """SegNet in small: values go where the maxima were, in images that the windows do not divide; resumes, shards and exports have its numbers."""
        import h5py
        decoder = "[{conv2d: {out: 4, kernel_size: 1}}, {relu: {name: a}}, {max_pool2d: 2}, {conv2d: {out: 4, kernel_size: 1}}, {max_unpool2d: {kernel_size: 2, from: a}}, {conv2d: {out: 3, kernel_size: 1}}]"
        self.write("test.yaml", CONFIG.replace("[{conv2d: {out: 3, kernel_size: 1}}]", decoder))
        self.run_program("test.yaml", "train.epochs=6")
        self.assertLess(self.losses()[-1], self.losses()[0])
        self.run_program("test.yaml", "train.epochs=3", "--run-dir", "half")
        self.run_program("test.yaml", "train.epochs=6", "--run-dir", "half")
        self.assertEqual(self.sha("half"), self.sha())
        shards = [self.run_program("test.yaml", "determinism={mode: elastic, shards: 4}", "sampler={global_batch_size: 12, shuffle: false}", "--nproc", n, "--run-dir", f"ranks{n}") and self.sha(f"ranks{n}") for n in (1, 2)]
        self.assertEqual(*shards)
        self.run_program("predict", "runs/test", "--part", "all", "--outputs", "--out", "p.h5")
        with h5py.File(self.path("p.h5")) as f:
            outputs = f["outputs"][:].reshape(ROWS, HIGH, WIDE, CLASSES)
        with h5py.File(self.checkpoints()[-1]) as f:
            conv = lambda x, i: np.einsum("oi,nhwi->nhwo", f[f"model/{i}.weight"][:, :, 0, 0].astype(float), x) + f[f"model/{i}.bias"][:]
            before = np.maximum(conv(self.x.transpose(0, 2, 3, 1).astype(float), 0), 0)
            windows = before[:, :, :4].reshape(ROWS, 2, 2, 2, 2, 4).transpose(0, 1, 3, 5, 2, 4).reshape(ROWS, 2, 2, 4, 4)
            deep, first = conv(windows.max(-1), 3), windows.argmax(-1)  # the first of equal ones: most zeros of the relu are such
            unpooled = np.zeros_like(before)
            unpooled[:, :, :4] = np.where(np.arange(4) == first[..., None], deep[..., None], 0).reshape(ROWS, 2, 2, 4, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(ROWS, 4, 4, 4)
            np.testing.assert_allclose(outputs, conv(unpooled, 5), atol=1e-5)

    def test_wrong_shapes(self):
        for layers, message in (
                ("[{conv2d: {out: 2, kernel_size: 1}}]", "the model's output is (20, 2), but the targets have 3 classes (0 to 2)"),
                ("[{conv2d: {out: 3, kernel_size: 2}}]", "the model's output is (3, 3, 4), but a target row has 20 classes: cross_entropy needs an "
                 "output (20, 3), or (3, height, width) with 20 pixels"),
                ("[flatten, {linear: 3}]", "the model's output is 3, but a target row has 20 classes")):
            self.write("wrong.yaml", CONFIG.replace("[{conv2d: {out: 3, kernel_size: 1}}]", layers))
            for verb in "check", "train":
                self.run_program(verb, "wrong.yaml", code=USAGE, err=message)

    def test_the_shipped_scenes(self):
        """They are what their script writes, and the U-Net learns."""
        for name in "make_series.py", "make_scenes.py":
            shutil.copy(os.path.join(program.SOURCE, "datasets", name), self.path(name))
        import sys
        sys.path.insert(0, self.folder)
        try:
            runpy.run_path(self.path("make_scenes.py"), run_name="__main__")
        finally:
            sys.path.remove(self.folder)
        made, shipped = np.load(self.path("scenes.npz")), np.load(os.path.join(program.SOURCE, "datasets", "scenes.npz"))
        for name in "x", "y":
            np.testing.assert_array_equal(made[name], shipped[name])
        if program.SANITIZER:
            return
        config = os.path.join(program.SOURCE, "configs", "unet.yaml")
        self.run_program(config, "--run-dir", "scenes", "train.epochs=6")
        self.assertGreater(json.loads(self.run_program("eval", "scenes")[0])["mean_iou"], 0.6)
