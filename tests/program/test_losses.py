"""Models with several inputs, outputs and losses: the numbers of a gradient descent in numpy, with any number of ranks, and
predictions, resume, and wrong configs. ctest-labels: unit"""
import json

import numpy as np

import program
from program import DATA, USAGE

CONFIG = """
dataset:
  path: rows.csv
  inputs: {wide: [a1, a2, a3], deep: [b1, b2]}
  targets: {kind: kind, values: [v, w]}
  split: {test: 0.25, shuffle: false}
sampler: {batch_size: 12, shuffle: false}
model:
  layers:
    - linear: {out: 4, from: deep}
    - tanh
    - concat: {from: wide, dim: 1}
    - linear: {out: 5}
    - tanh: {name: trunk}
    - linear: {out: 3, name: head, from: trunk}
    - linear: {out: 2, name: box, from: trunk}
losses:
  - {type: cross_entropy, output: head, target: kind}
  - {type: mse, output: box, target: values, loss_weight: 0.5}
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 3, log_every: 1, metrics: [f1, r2]}
"""
AUTOENCODER = """
dataset: {path: rows.csv, inputs: [a1, a2, a3, b1, b2], scale: standard, split: {test: 0.25, shuffle: false}}
sampler: {batch_size: 12}
model: {layers: [linear: 2, tanh: {name: code}, linear: {out: 5, name: copy}]}
losses: [{type: mse, output: copy, target: input}]
train: {epochs: 2}
"""


class Twin:
    """The model of CONFIG in float64."""

    def __init__(self, weights):
        self.p = {name: value.astype(np.float64) for name, value in weights.items()}

    def loss(self, wide, deep, kind, values, learn):
        p, n = self.p, len(wide)
        hidden = np.tanh(deep @ p["0.weight"].T + p["0.bias"])
        joined = np.concatenate([wide, hidden] if self.is_wide_first else [hidden, wide], 1)
        trunk = np.tanh(joined @ p["3.weight"].T + p["3.bias"])
        z, box = trunk @ p["head.weight"].T + p["head.bias"], trunk @ p["box.weight"].T + p["box.bias"]
        shares = np.exp(z - z.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        losses = -np.log(shares[np.arange(n), kind]).mean(), ((box - values) ** 2).mean()
        if learn:
            dz, dbox = shares.copy(), 0.5 * 2 * (box - values) / box.size
            dz[np.arange(n), kind] -= 1
            dz /= n
            dtrunk = (dz @ p["head.weight"] + dbox @ p["box.weight"]) * (1 - trunk ** 2)
            djoined = dtrunk @ p["3.weight"]
            dhidden = djoined[:, 3:] if self.is_wide_first else djoined[:, :4]
            dhidden = dhidden * (1 - hidden ** 2)
            for name, dy, x in (("0", dhidden, deep), ("3", dtrunk, joined), ("head", dz, trunk), ("box", dbox, trunk)):
                p[name + ".weight"] -= 0.1 * dy.T @ x
                p[name + ".bias"] -= 0.1 * dy.sum(0)
        return losses, z, box

    is_wide_first = False  # a single name in `from` comes after the layer before


class Case(program.Case):
    def setUp(self):
        super().setUp()
        r = np.random.default_rng(1)
        self.a, self.b = r.normal(size=(48, 3)).round(4), r.normal(size=(48, 2)).round(4)
        self.kind = ((self.a[:, 0] + self.b[:, 1] > 0).astype(int) + (self.a[:, 1] > 1)).astype(int)
        self.kind[5] = 2
        self.values = np.stack([self.a @ [1, 2, 3], self.a[:, 0] * self.b[:, 0]], 1).round(4)
        self.rows = ["a1,a2,a3,b1,b2,kind,v,w"] + [",".join(str(x) for x in (*self.a[i], *self.b[i], self.kind[i], *self.values[i]))
                                                   for i in range(48)]
        self.write("rows.csv", "\n".join(self.rows) + "\n")

    def events(self, run, kind):
        with open(self.path(f"{run}/metrics.jsonl"), encoding="utf-8") as f:
            return [e for e in map(json.loads, f) if e["event"] == kind]

    def train(self, text, *words, name="test", **options):
        self.write(f"{name}.yaml", text)
        return self.run_program(f"{name}.yaml", "--run-dir", name, "--fresh", *words, **options)


class Numbers(Case):
    def initial(self):
        """The weights after a step with a learning rate of 0."""
        self.train(CONFIG.replace("lr: 0.1", "lr: 0").replace("epochs: 3", "steps: 1"), name="initial")
        return self.weights("initial")

    def weights(self, run):
        import h5py
        import glob
        with h5py.File(sorted(glob.glob(self.path(f"{run}/checkpoints/*.h5")))[-1]) as f:
            return {name: f["model"][name][()] for name in f["model"]}

    def test_losses_metrics_and_weights(self):
        twin = Twin(self.initial())
        self.train(CONFIG)
        steps = [e["loss"] for e in self.events("test", "step")]
        expected = []
        for _ in range(3):
            for i in range(0, 36, 12):
                rows = slice(i, i + 12)
                (first, second), _, _ = twin.loss(self.a[rows], self.b[rows], self.kind[rows], self.values[rows], True)
                expected.append(first + 0.5 * second)
            (first, second), z, box = twin.loss(self.a[36:], self.b[36:], self.kind[36:], self.values[36:], False)
        np.testing.assert_allclose(steps, expected, rtol=2e-6)
        epoch = self.events("test", "epoch")[-1]
        self.assertAlmostEqual(epoch["val_loss"], first + 0.5 * second, 5)
        self.assertAlmostEqual(epoch["val_head_loss"], first, 5)
        self.assertAlmostEqual(epoch["val_box_loss"], second, 5)
        self.assertAlmostEqual(epoch["val_head_accuracy"], (z.argmax(1) == self.kind[36:]).mean(), 9)
        self.assertIn("val_head_f1", epoch)
        y = self.values[36:]
        self.assertAlmostEqual(epoch["val_box_r2"], (1 - ((y - box) ** 2).sum(0) / ((y - y.mean(0)) ** 2).sum(0)).mean(), 4)
        for name, value in self.weights("test").items():
            np.testing.assert_allclose(value, twin.p[name], rtol=1e-4, atol=1e-6)

    def test_two_processes_and_elastic_shards(self):
        text = CONFIG.replace("batch_size: 12", "global_batch_size: 12")
        self.train(text)
        self.train(text, "--nproc", 2, name="two")
        for one, other in zip(self.events("test", "epoch"), self.events("two", "epoch")):
            self.assertAlmostEqual(one["val_loss"], other["val_loss"], 5)
        text += "determinism: {mode: elastic, shards: 4}\n"
        states = []
        for n in (1, 2, 3):
            self.train(text, "--nproc", n, name=f"elastic{n}")
            states.append(self.events(f"elastic{n}", "end")[-1]["state_sha256"])
        self.assertEqual(len(set(states)), 1)

    def test_accumulated_batches_and_resume(self):
        self.train(CONFIG)
        state = self.events("test", "end")[-1]["state_sha256"]
        self.train(CONFIG, "train.epochs=2", name="half")
        self.run_program("half.yaml", "--run-dir", "half", "train.epochs=3")
        self.assertEqual(self.events("half", "end")[-1]["state_sha256"], state)
        self.train(CONFIG.replace("batch_size: 12", "batch_size: 6") + "", "train.accumulate=2", name="parts")
        for one, other in zip(self.events("test", "epoch"), self.events("parts", "epoch")):
            self.assertAlmostEqual(one["val_loss"], other["val_loss"], 5)

    def test_an_autoencoder(self):
        self.train(AUTOENCODER)
        epoch = self.events("test", "epoch")[-1]
        self.assertEqual(epoch["val_loss"], epoch["val_copy_loss"])
        outputs = np.array([line.split(",")[1:] for line in self.predict("test")[1:]], float)
        x = np.concatenate([self.a, self.b], 1)
        x = (x - x[:36].mean(0)) / x[:36].std(0)
        self.assertAlmostEqual(((outputs - x[36:]) ** 2).mean(), epoch["val_loss"], 5)

    def test_an_input_that_is_the_target_is_augmented_with_it(self):
        """The model is the identity, so its loss is 0 if the target is the image that it got."""
        import h5py
        with h5py.File(self.path("images.h5"), "w") as f:
            f["x"] = np.random.default_rng(1).integers(0, 256, (24, 1, 6, 6), dtype=np.uint8)
        self.train("""
dataset: {path: images.h5, augment: {horizontal_flip: 0.5, random_crop: {padding: 2}, rotation: 20, color_jitter: {contrast: 0.5}, erasing: 1}}
sampler: {batch_size: 12}
model:
  layers: [conv2d: {out: 1, kernel_size: 1, bias: false, name: copy}]
  init: [{constant: {value: 1}}]
losses: [{type: mse, output: copy, target: input}]
optimizer: {type: sgd, lr: 0}
train: {epochs: 2, log_every: 1}
""")
        self.assertEqual([e["loss"] for e in self.events("test", "step")], [0] * 4)

    def test_an_output_before_a_relu(self):
        """A relu is fused into the layer before it, unless that layer's output is one of the model."""
        self.train(AUTOENCODER.replace("linear: {out: 5, name: copy}", "linear: {out: 5, name: copy}, relu: {name: after}").replace(
            "target: input}]", "target: input}, {type: mse, output: after, target: input}]"))
        values = np.array([line.split(",")[1:] for line in self.predict("test")[1:]], float)
        self.assertLess(values[:, :5].min(), 0)
        np.testing.assert_array_equal(values[:, 5:], np.maximum(values[:, :5], 0))

    def test_trials_with_other_losses_do_not_share_checks_of_targets(self):
        self.write("base.yaml", """
dataset: {path: rows.csv, inputs: [a1, a2, a3, b1, b2], targets: v}
sampler: {batch_size: 12}
model: {layers: [linear: {out: 1, name: one}]}
losses: [{type: mse, output: one}]
train: {epochs: 1}
""")
        self.write("sweep.yaml", """
config: base.yaml
method: list
metric: {name: train_loss, goal: minimize}
trials:
  - {train.epochs: 1}
  - {losses: [{type: bce_with_logits, output: one}]}
  - {losses: [{type: cross_entropy, output: one}]}
""")
        self.run_program("sweep", "sweep.yaml", "--nproc", 1)
        table = self.read("sweeps/sweep/trials.csv")
        self.assertIn("is not a probability", table)
        self.assertIn("is not a class", table)

    def predict(self, name, *words):
        out, _ = self.run_program("predict", f"{name}.yaml", "--run-dir", name, *words)
        return out.splitlines()

    def test_predictions(self):
        self.train(CONFIG)
        header, *rows = self.predict("test", "--probabilities", "--outputs")
        self.assertEqual(header, "row,head,head_probability_0,head_probability_1,head_probability_2,box_0,box_1,"
                                 "output_0,output_1,output_2,output_3,output_4")
        values = np.array([row.split(",") for row in rows], float)
        self.assertEqual(values[:, 0].tolist(), list(range(36, 48)))
        np.testing.assert_array_equal(values[:, 1], values[:, 7:10].argmax(1))
        np.testing.assert_allclose(values[:, 2:5].sum(1), 1, rtol=1e-6)
        np.testing.assert_array_equal(values[:, 5:7], values[:, 10:12])
        new = [",".join(line.split(",")[:5]) for line in self.rows]  # without targets, and in another order of columns
        self.write("new.csv", "\n".join(",".join(reversed(line.split(","))) for line in new) + "\n")
        again = self.predict("test", "--part", "all", "dataset.path=new.csv")
        self.assertEqual([line.split(",")[1:] for line in again[37:]],
                         [[line.split(",")[i] for i in (1, 5, 6)] for line in rows])
        import h5py
        self.run_program("predict", "test.yaml", "--run-dir", "test", "--out", "out.h5", "--probabilities")
        with h5py.File(self.path("out.h5")) as f:
            np.testing.assert_array_equal(f["predictions/head/prediction"][()], values[:, 1])
            np.testing.assert_allclose(f["predictions/head/probabilities"][()], values[:, 2:5], rtol=1e-6)
            np.testing.assert_allclose(f["predictions/box/prediction"][()], values[:, 5:7], rtol=1e-6)

    def test_exports(self):
        """test_export_c.py compares the outputs of such files."""
        self.train(CONFIG)
        self.run_program("export", "test", "--out", "m.safetensors")
        self.run_program("export", "test", "--out", "m.c")
        self.assertIn(" * outputs 3 to 4: box\n", self.read("m.h"))
        self.train(AUTOENCODER.replace("losses: [", "losses: [{type: l1, output: copy, target: input, name: other}, "))
        self.run_program("export", "test", "--out", "m.onnx")

    def test_the_best_epoch_by_the_metric_of_a_loss(self):
        self.train(CONFIG + "checkpoint: {best: val_box_loss}\n")
        losses = [e["val_box_loss"] for e in self.events("test", "epoch")]
        self.assertEqual(self.events("test", "end")[-1]["best_epoch"], 1 + losses.index(min(losses)))


SIAMESE = """
dataset: {path: rows.csv, inputs: {left: [a1, a2], right: [b1, b2]}, targets: kind, split: {test: 0.25, shuffle: false}}
sampler: {batch_size: 12, shuffle: false}
model:
  layers:
    - sequential: {name: one, from: left, layers: [{linear: {out: 4, name: fc}}, tanh]}
    - sequential: {name: other, from: right, share: one}
    - concat: {from: [one, other]}
    - linear: {out: 3, name: head}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 2, log_every: 1}
"""


class Shared(Case):
    def test_a_siamese_network(self):
        import glob
        import h5py

        def weights(run):
            with h5py.File(sorted(glob.glob(self.path(f"{run}/checkpoints/*.h5")))[-1]) as f:
                return {name: f["model"][name][()].astype(float) for name in f["model"]}
        self.train(SIAMESE.replace("lr: 0.1", "lr: 0").replace("epochs: 2", "steps: 1"), name="initial")
        p = weights("initial")
        self.assertEqual(sorted(p), ["head.bias", "head.weight", "one.fc.bias", "one.fc.weight"])
        expected = []
        for i in 2 * list(range(0, 36, 12)):
            left, right, kind = self.a[i:i + 12, :2], self.b[i:i + 12], self.kind[i:i + 12]
            codes = [np.tanh(x @ p["one.fc.weight"].T + p["one.fc.bias"]) for x in (left, right)]
            joined = np.concatenate(codes, 1)
            z = joined @ p["head.weight"].T + p["head.bias"]
            dz = np.exp(z - z.max(1, keepdims=True))
            dz /= dz.sum(1, keepdims=True)
            expected.append(-np.log(dz[np.arange(12), kind]).mean())
            dz[np.arange(12), kind] -= 1
            dz /= 12
            djoined = dz @ p["head.weight"]
            p["head.weight"] -= 0.1 * dz.T @ joined
            p["head.bias"] -= 0.1 * dz.sum(0)
            for x, code, dcode in zip((left, right), codes, (djoined[:, :4], djoined[:, 4:])):
                dcode = dcode * (1 - code ** 2)
                p["one.fc.weight"] -= 0.1 * dcode.T @ x
                p["one.fc.bias"] -= 0.1 * dcode.sum(0)
        for words in ((), ("optimizer.in_backward=true",), ("--nproc", 2, "sampler.batch_size=6")):
            self.train(SIAMESE, *words)
            losses = [e["loss"] for e in self.events("test", "step")]
            np.testing.assert_allclose(losses, expected, rtol=2e-6)
            for name, value in weights("test").items():
                np.testing.assert_allclose(value, p[name], rtol=1e-4, atol=1e-6)
        self.run_program("check", "test.yaml", out="39 parameters in 4 tensors")

    def test_the_siamese_config(self):
        config = program.SOURCE + "/configs/siamese.yaml"
        self.run_program(config, f"dataset.path={program.SOURCE}/datasets/pairs.h5", "--run-dir", "runs/siamese")
        self.assertLess(self.events("runs/siamese", "epoch")[-1]["val_loss"], 0.15)  # 0.5 without learning

    def test_initial_weights_are_drawn_once(self):
        text = SIAMESE.split("  layers:")[0] + """  layers:
    - linear: {out: 2, from: left, name: a}
    - linear: {out: 2, name: again, share: a}
    - concat: {from: right}
    - linear: {out: 3, name: head}
loss: cross_entropy
optimizer: {type: sgd, lr: 0}
train: {steps: 1}
"""
        self.train(text)
        self.train(text.replace("    - linear: {out: 2, name: again, share: a}\n", ""), name="once")
        states = [self.events(run, "end")[-1]["state_sha256"] for run in ("test", "once")]
        self.assertEqual(states[0], states[1])

    def test_wrong(self):
        for what, by, sentence in (
                ("share: one", "share: two", "model.layers.1.sequential: share: no layer before this one has the name 'two'"),
                ("share: one", "share: left", "share: 'left' is an input, which has no parameters"),
                ("right: [b1, b2]", "right: [b1, b2, a3]", "share: its parameters have other shapes than those of model.layers.0.sequential"),
                ("linear: {out: 3, name: head}", "linear: {out: 3, name: head, share: one}",
                 "share: 'one' is of the type sequential, and this layer of the type linear"),
                ("share: one", "name: again", "duplicate key 'name'"),
                (", share: one", "", "model.layers.1.sequential.layers: missing; the layers in order")):
            with self.subTest(sentence):
                self.write("test.yaml", SIAMESE.replace(what, by, 1))
                self.run_program("check", "test.yaml", code=USAGE, err=sentence)


class LastLayer(program.Case):
    def test_warnings(self):
        """Of a function that the loss applies itself, and of outputs that are not the logarithms that it takes."""
        text = ("dataset: {format: synthetic, synthetic: {kind: KIND, inputs: 4, rows: 8, CLASSES}}\nsampler: {batch_size: 8}\n"
                "model: {layers: [{linear: 4}LAST]}\nloss: LOSS\noptimizer: sgd\ntrain: {steps: 1}\n")
        takes = "takes log-probabilities, which it does not compute; "
        for loss, last, sentence in (("nll", "", takes + "add the layer log_softmax"), ("nll", ", softmax", takes + "replace it by the layer log_softmax"),
                                     ("nll", ", log_softmax", None), ("kl_div", "", takes), ("kl_div", ", log_softmax", None),
                                     ("cross_entropy", ", softmax", "which applies softmax itself; remove the layer"), ("cross_entropy", "", None),
                                     ("bce_with_logits", ", sigmoid", "which applies sigmoid itself; remove the layer"), ("mse", ", softmax", None)):
            is_class = loss in ("nll", "cross_entropy")
            self.write("test.yaml", text.replace("KIND", "classes" if is_class else "uniform").replace("CLASSES", "classes: 4" if is_class else "targets: 4")
                       .replace("LAST", last).replace("LOSS", loss))
            out, _ = self.run_program("check", "test.yaml")
            _, err = self.run_program("test.yaml", "--fresh")
            place = "test.yaml:3:" + ("31: model.layers.1." if last else "18: model.layers.0.")
            for text_of in (out, err):
                with self.subTest(loss=loss, last=last):
                    self.assertEqual("warning" in text_of, sentence is not None, text_of)
                    if sentence:
                        self.assertRegex(text_of, f"{place}.*{sentence}")

    def test_a_warning_of_an_argument(self):
        """Which has no line and no column."""
        self.write("test.yaml", "dataset: {format: synthetic, synthetic: {kind: classes, inputs: 4, rows: 8, classes: 4}}\nsampler: {batch_size: 8}\n"
                                "model: {layers: [{linear: 4}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {steps: 1}\n")
        argument = "model={layers: [{linear: 4}, softmax]}"
        self.run_program("check", "test.yaml", argument, out=f"argument '{argument}': model.layers.1.softmax: it is before the loss cross_entropy")


class Wrong(Case):
    def test_configs(self):
        for what, by, sentence in (
                ("losses:", "loss: mse\nlosses:", "losses: is instead of `loss`; give one of them"),
                ("target: kind}", "target: kinds}", "losses: there is no target 'kinds'; dataset.targets and dataset.inputs have: kind, "
                                                    "values, wide, deep"),
                ("target: kind}", "target: wide}", "losses: the target 'wide' is an input, and cross_entropy needs classes"),
                ("target: kind}", "}", "losses: 'cross_entropy' needs target: with one of: kind, values, wide, deep"),
                ("  - {type: mse, output: box, target: values, loss_weight: 0.5}\n", "", "losses: no loss uses the target 'values'"),
                ("output: box", "output: head, name: head", "losses: two losses have the name 'head'; give one of them another with name:"),
                ("output: box", "output: box, name: a/b", "losses: a name must not be empty or contain '.' or '/', got 'a/b'"),
                *(("output: box", f"output: box, name: {name}", "losses: a name is a part of names in metrics.jsonl and must not contain "
                   "'\"', '\\' or a control character, got 'a") for name in ("'a\"b'", "'a\\b'", '"a\\x01"')),
                ("output: box", "output: boxes", ": losses: output: no layer before this one has the name 'boxes'; did you mean 'box'?"),
                ("from: deep}", "}", "the model has several inputs, so this layer needs `from:` with one of them: wide, deep"),
                ("    - concat: {from: wide, dim: 1}\n", "", "dataset.inputs: no layer takes the input 'wide'"),
                ("from: deep}", "from: input}", "from: no layer before this one has the name 'input'"),
                ("{out: 2, name: box", "{out: 4, name: box", "losses: box: the model's output is 4, but a target row has 2 values"),
                ("{out: 3, name: head", "{out: 2, name: head", "losses: head: the model's output is 2, but the targets have 3 classes"),
                ("metrics: [f1, r2]", "metrics: [f1, top_6]", "train.metrics: unknown metric 'top_6'"),
                ("metrics: [f1, r2]", f"metrics: [{', '.join(f'top{k}' for k in range(1, 10))}]", "train.metrics: at most 8 metrics top<k>, got 9"),
                ("metrics: [f1, r2]", "metrics: [confusion_matrix]", "train.metrics: the metric 'confusion_matrix' is for one loss"),
                ("metrics: [f1, r2]", "early_stop: {metric: val_accuracy}", "epochs have no metric 'val_accuracy'; they have train_loss, "
                 "val_loss, val_head_loss, val_head_accuracy, val_box_loss"),
                ("  split:", "  target_scale: standard\n  split:", "losses: cannot be combined with dataset.target_scale"),
                ("inputs: {wide: [a1, a2, a3], deep: [b1, b2]}", "inputs: {wide: [], deep: [b1]}", "dataset.inputs.wide: the list is empty"),
                ("inputs: {wide: [a1, a2, a3], deep: [b1, b2]}", "inputs: {}", "dataset.inputs: expected at least one name")):
            with self.subTest(sentence):
                self.assertIn(what, CONFIG)
                self.write("test.yaml", CONFIG.replace(what, by, 1))
                self.run_program("check", "test.yaml", code=USAGE, err=sentence)

    def test_the_metrics_of_all_losses_have_a_limit(self):
        """Six metrics, a loss and an accuracy of each classification; a loss and its weighted part of the values."""
        for count, words in ((7, None), (8, "at most 64 metrics of all losses, got 66")):
            losses = "".join(f"  - {{type: cross_entropy, name: c{i}, output: head, target: kind}}\n" for i in range(count))
            self.write("test.yaml", CONFIG.replace("  - {type: cross_entropy, output: head, target: kind}\n", losses)
                       .replace("metrics: [f1, r2]", "metrics: [f1, precision, recall, mean_iou, top2, perplexity]"))
            self.run_program("check", "test.yaml", code=USAGE if words else 0, err=words or "")

    def test_values_that_are_no_classes(self):
        self.rows[4] = self.rows[4].replace(f",{self.kind[3]},", ",1.5,", 1)
        self.write("rows.csv", "\n".join(self.rows) + "\n")
        self.write("test.yaml", CONFIG)
        self.run_program("test.yaml", code=DATA, err="column 'kind': 1.5 is not a class; classes are integers from 0")
        self.write("test.yaml", CONFIG.replace("type: cross_entropy, output: head, target: kind",
                                               "type: bce_with_logits, output: one, target: kind").replace(
                                                   "losses:", "    - linear: {out: 1, name: one, from: trunk}\nlosses:").replace(
                                                       "    - linear: {out: 3, name: head, from: trunk}\n", ""))
        self.run_program("test.yaml", code=DATA, err="is not a probability; the loss needs targets from 0 to 1")


VECTORS = """
dataset:
  path: rows.csv
  inputs: {x: [a1, a2], y: [b1, b2], z: [a3, w]}
  targets: {pair: same, value: v}
  split: {test: 0.25, shuffle: false}
sampler: {batch_size: 12, shuffle: false}
model:
  layers:
    - linear: {out: 3, from: x, name: f}
    - linear: {out: 3, from: y, name: g, share: f}
    - linear: {out: 3, from: z, name: h, share: f}
    - concat: {from: [f, g], name: two}
    - concat: {from: [f, g, h], name: three}
    - linear: {out: 1, from: f, name: mean}
    - sequential: {name: variance, from: g, layers: [{linear: {out: 1, name: fc}}, softplus]}
    - concat: {from: [mean, variance], name: normal}
losses:
  - {type: cosine_embedding, output: two, target: pair, margin: 0.1}
  - {type: triplet_margin, output: three, loss_weight: 0.5}
  - {type: gaussian_nll, output: normal, target: value, loss_weight: 0.25}
optimizer: {type: sgd, lr: 0}
train: {epochs: 1}
"""


class Untrained(Case):
    """An output without parameters before it counts in the loss while another one is trained; one of them must have some."""
    CONFIG = """
dataset: {path: two.csv, inputs: {x: [a], y: [b]}, targets: {u: u, v: v}}
sampler: {batch_size: 4, shuffle: false}
model: {layers: [tanh: {from: y, name: plain}, linear: {out: 1, from: x, name: f}]}
losses: [{type: mse, output: f, target: u}, {type: mse, output: plain, target: v}]
train: {epochs: 1}
"""

    def test_counts_and_needs_another(self):
        self.write("two.csv", "a,b,u,v\n" + "0,0,0,1000\n" * 4)
        self.train(self.CONFIG)  # f is a bias, of at most 1
        self.assertAlmostEqual(self.events("test", "epoch")[0]["train_loss"], 1000**2, delta=1.5)
        self.write("test.yaml", self.CONFIG.replace("output: f", "output: plain, name: other"))
        self.run_program("check", "test.yaml", code=program.USAGE, err="losses: no output has trainable parameters before it")


class Counts(Case):
    """poisson_nll: predictions and metrics are of expected counts, also where the outputs are their logarithms."""
    CONFIG = """
dataset: {path: counts.csv, scale: standard, split: {test: 0.25, shuffle: false}}
model: {layers: [{linear: {out: 1, name: rate}}]}
loss: poisson_nll
optimizer: {type: adam, lr: 0.05}
train: {epochs: 40, metrics: [mae, rmse, r2]}
"""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(2)
        x = rng.normal(size=200)
        self.counts = rng.poisson(np.exp(1 + 0.8 * x))
        self.write("counts.csv", "x,count\n" + "".join(f"{a:.4f},{b}\n" for a, b in zip(x, self.counts)))

    def predicted(self, *args):
        out, _ = self.run_program("predict", "test.yaml", "--outputs", *args)
        return np.array([[float(v) for v in line.split(",")[1:]] for line in out.splitlines()[1:]]).T

    def check(self, predicted, epoch):
        error, deviation = predicted - self.counts[150:], self.counts[150:] - self.counts[150:].mean()
        np.testing.assert_allclose(epoch["val_mae"], abs(error).mean(), rtol=1e-6)
        np.testing.assert_allclose(epoch["val_rmse"], (error ** 2).mean() ** 0.5, rtol=1e-6)
        np.testing.assert_allclose(epoch["val_r2"], 1 - (error ** 2).sum() / (deviation ** 2).sum(), rtol=1e-6)

    def test_logarithms(self):
        self.write("test.yaml", self.CONFIG)
        self.run_program("test.yaml")
        predicted, outputs = self.predicted()
        np.testing.assert_allclose(predicted, np.exp(outputs), rtol=1e-6)
        self.check(predicted, self.events("runs/test", "epoch")[-1])
        self.assertGreater(self.events("runs/test", "epoch")[-1]["val_r2"], 0.3)
        self.assertAlmostEqual(json.loads(self.run_program("eval", "test.yaml")[0])["mae"], abs(predicted - self.counts[150:]).mean(), 5)

    def test_counts(self):
        self.write("test.yaml", self.CONFIG.replace("name: rate}}", "name: rate}}, softplus").replace("loss: poisson_nll", "loss: {type: poisson_nll, log_input: false}"))
        self.run_program("test.yaml")
        predicted, outputs = self.predicted()
        np.testing.assert_array_equal(predicted, outputs)
        self.check(predicted, self.events("runs/test", "epoch")[-1])

    def test_one_of_several_losses(self):
        self.write("test.yaml", self.CONFIG.replace("[{linear: {out: 1, name: rate}}]", "[{linear: {out: 1, name: rate}}, {linear: {out: 1, from: input, name: value}}]").replace(
            "loss: poisson_nll", "losses: [{type: poisson_nll, output: rate}, {type: mse, output: value}]"))
        self.run_program("test.yaml")
        rate, value, *outputs = self.predicted()
        np.testing.assert_allclose(rate, np.exp(outputs[0]), rtol=1e-6)
        np.testing.assert_array_equal(value, outputs[1])
        error = rate - self.counts[150:]
        np.testing.assert_allclose(self.events("runs/test", "epoch")[-1]["val_rate_mae"], abs(error).mean(), rtol=1e-6)


class Quantiles(Case):
    """quantile: the losses of scikit-learn's mean_pinball_loss, and outputs that so many targets lie below."""
    CONFIG = """
dataset: {path: noise.csv, split: {test: 0.25, shuffle: false}}
sampler: {batch_size: 500}
model: {layers: [{linear: {out: 1, name: low}}, {linear: {out: 1, from: input, name: high}}]}
losses: [{type: quantile, output: low, quantile: 0.1}, {type: quantile, output: high, quantile: 0.9}]
optimizer: {type: adam, lr: 0.02}
train: {epochs: 300, log_every: 0}
"""

    def test_an_interval(self):
        rng = np.random.default_rng(3)
        y = rng.exponential(1, 2000)
        self.write("noise.csv", "x,y\n" + "".join(f"{x:.4f},{v:.4f}\n" for x, v in zip(rng.normal(size=2000) * 0.01, y)))
        self.train(self.CONFIG)
        out, _ = self.run_program("predict", "test.yaml", "--run-dir", "test", "--part", "train")
        predicted = np.array([[float(v) for v in line.split(",")[1:]] for line in out.splitlines()[1:]])
        self.assertAlmostEqual((y[:1500] < predicted[:, 0]).mean(), 0.1, delta=0.02)
        self.assertAlmostEqual((y[:1500] < predicted[:, 1]).mean(), 0.9, delta=0.02)


class Vectors(Case):
    """Losses of an output with several vectors."""
    def setUp(self):
        super().setUp()
        self.same = np.where(self.kind == 0, 1, -1)
        self.write("rows.csv", "\n".join(f"{row},{same}" for row, same in zip(self.rows, ["same", *self.same])) + "\n")

    def expected(self, p, rows):
        f, g, h = (x @ p["f.weight"].T + p["f.bias"] for x in (self.a[rows, :2], self.b[rows], np.stack([self.a[rows, 2], self.values[rows, 1]], 1)))
        cosine = (f * g).sum(1) / np.sqrt((f * f).sum(1) * (g * g).sum(1))
        pair = np.where(self.same[rows] == 1, 1 - cosine, np.maximum(0, cosine - 0.1)).mean()
        triplet = np.maximum(0, 1 + np.sqrt(((f - g + 1e-6) ** 2).sum(1)) - np.sqrt(((f - h + 1e-6) ** 2).sum(1))).mean()
        mean = f @ p["mean.weight"].T + p["mean.bias"]
        variance = np.log1p(np.exp(g @ p["variance.fc.weight"].T + p["variance.fc.bias"]))
        normal = 0.5 * (np.log(variance) + (mean - self.values[rows, :1]) ** 2 / variance).mean()
        return pair, triplet, normal

    def test_numbers(self):
        import glob
        import h5py
        self.train(VECTORS)
        with h5py.File(sorted(glob.glob(self.path("test/checkpoints/*.h5")))[-1]) as f:
            p = {name: f["model"][name][()].astype(float) for name in f["model"]}
        epoch = self.events("test", "epoch")[-1]
        expected = self.expected(p, slice(36, None))
        for name, value in zip(("two", "three", "normal"), expected):
            self.assertAlmostEqual(epoch[f"val_{name}_loss"], value, 5)
        self.assertAlmostEqual(epoch["val_loss"], expected[0] + 0.5 * expected[1] + 0.25 * expected[2], 5)
        for event, first in zip(self.events("test", "step"), range(0, 36, 12)):
            a, b, c = self.expected(p, slice(first, first + 12))
            self.assertAlmostEqual(event["loss"], a + 0.5 * b + 0.25 * c, 5)

    def test_training_resume_and_ranks(self):
        text = VECTORS.replace("lr: 0}", "lr: 0.05}").replace("epochs: 1", "epochs: 4")
        self.train(text)
        losses = [e["loss"] for e in self.events("test", "step")]
        self.assertLess(np.mean(losses[-3:]), np.mean(losses[:3]))
        self.train(text, "train.epochs=2", name="parts")
        self.run_program("parts.yaml", "--run-dir", "parts", "train.epochs=4")
        self.train(text, "--nproc", 2, "sampler.batch_size=6", name="ranks")
        states = [self.events(run, "end")[-1]["state_sha256"] for run in ("test", "parts")]
        self.assertEqual(states[0], states[1])
        np.testing.assert_allclose([e["loss"] for e in self.events("ranks", "step")], losses, rtol=1e-4)
        out, _ = self.run_program("predict", "test.yaml", "--run-dir", "test")
        self.assertEqual(out.splitlines()[0], "row," + ",".join(
            f"{name}_{i}" for name, size in (("two", 6), ("three", 9), ("normal", 2)) for i in range(size)))

    def test_one_loss(self):
        """Without `losses`, with an output that holds means and variances."""
        self.train("""
dataset: {path: rows.csv, inputs: [a1, a2, a3, b1, b2], targets: v}
model: {layers: [linear: 2, softplus]}
loss: {type: gaussian_nll, full: true}
train: {epochs: 2}
""")
        losses = [e["train_loss"] for e in self.events("test", "epoch")]
        self.assertLess(losses[1], losses[0])

    def test_wrong(self):
        for what, by, code, sentence in (
                ("output: three,", "output: three, target: value,", USAGE, "losses: 'triplet_margin' has no target; remove target:"),
                ("from: [f, g, h]", "from: [f, g, h, x]", USAGE, "losses: three: the model's output is 11: triplet_margin needs a multiple of 3 values"),
                ("[mean, variance]", "[mean, variance, x]", USAGE, "normal: the model's output is 4: gaussian_nll needs 2 values for 1 target"),
                ("target: pair", "target: value", USAGE, "losses: no loss uses the target 'pair'"),
                ("pair: same", "pair: kind", program.DATA, "is neither 1 nor -1, which the loss needs"),
                ("train: {", "train: {metrics: [mae], ", USAGE, "the metric 'mae' does not fit the loss 'gaussian_nll', which is one of several vectors")):
            with self.subTest(sentence):
                self.write("test.yaml", VECTORS.replace(what, by, 1))
                self.run_program("check", "test.yaml", code=code, err=sentence)
        self.write("test.yaml", VECTORS.split("losses:")[0] + "loss: triplet_margin\ntrain: {epochs: 1}\n")
        _, err = self.run_program("check", "test.yaml", code=USAGE)
        self.assertIn("loss: 'triplet_margin' has no target, so it must be in a list: losses: [{type: triplet_margin, output: NAME}]", err)


LISTS = """
dataset: {path: lists.csv, inputs: [a1, a2, a3, b1, b2], targets: [first, second], split: {test: 0.25, shuffle: false}}
sampler: {batch_size: 12, shuffle: false}
model: {layers: [{linear: {out: 4, name: head}}]}
loss: multilabel_margin
optimizer: {type: sgd, lr: 0}
train: {epochs: 1}
"""


class Lists(Case):
    """Targets that are lists of classes."""
    def setUp(self):
        super().setUp()
        self.first, self.second = np.where(self.kind == 2, -1, self.kind), np.where(self.a[:, 2] > 0, 3, -5)
        self.write_rows(self.second)

    def write_rows(self, second, name="lists.csv"):
        self.write(name, "\n".join(f"{row},{one},{two}" for row, one, two in zip(self.rows, ["first", *self.first], ["second", *second])) + "\n")

    def expected(self, p, rows):
        y, losses = np.concatenate([self.a[rows], self.b[rows]], 1) @ p["head.weight"].T + p["head.bias"], []
        for scores, one, two in zip(y, self.first[rows], self.second[rows]):
            listed = [] if one < 0 else [one] if two < 0 else [one, two]
            losses.append(sum(max(0, 1 - scores[t] + scores[c]) for t in listed for c in range(4) if c not in listed) / 4)
        return np.mean(losses)

    def weights(self, run):
        import glob
        import h5py
        with h5py.File(sorted(glob.glob(self.path(f"{run}/checkpoints/*.h5")))[-1]) as f:
            return {name: f["model"][name][()].astype(float) for name in f["model"]}

    def test_numbers(self):
        """Of one loss and of several, on one rank and on two."""
        several = LISTS.replace("loss: multilabel_margin", "losses: [{type: multilabel_margin, loss_weight: 2}]")
        for text, words, factor in (LISTS, (), 1), (LISTS, ("--nproc", 2, "sampler.batch_size=6"), 1), (several, (), 2):
            self.train(text, *words)
            p = self.weights("test")
            epoch = self.events("test", "epoch")[-1]
            self.assertAlmostEqual(epoch["val_loss"], factor * self.expected(p, slice(36, None)), 5)
            for event, first in zip(self.events("test", "step"), range(0, 36, 12)):
                self.assertAlmostEqual(event["loss"], factor * self.expected(p, slice(first, first + 12)), 5)

    def test_predictions(self):
        self.train(LISTS.replace("lr: 0", "lr: 0.1"))
        out, _ = self.run_program("predict", "test")
        self.assertEqual(out.splitlines()[0], "row,prediction_0,prediction_1,prediction_2,prediction_3")
        self.write_rows(np.where(np.arange(48) == 7, 4, self.second), "other.csv")
        self.run_program("eval", "test", "other.csv", code=DATA, err="other.csv: row 7 (the first is 0): class 4 is none of the model, which has 4 (0 to 3)")

    def test_wrong(self):
        for second, code, sentence in ((4, USAGE, "the model's output is 4, but the targets have 5 classes (0 to 4): multilabel_margin needs one output per class"),
                                       (0.5, DATA, "lists.csv:line 9: column 'second': 0.5 is not a class; classes are integers from 0, and a negative one ends those of a row")):
            self.write_rows([second if row == 7 else value for row, value in enumerate(self.second)])
            self.write("test.yaml", LISTS)
            self.assertIn(sentence, self.run_program("check", "test.yaml", code=code)[1])
        self.write_rows(self.second)
        for what, by, sentence in (("train: {", "train: {metrics: [f1], ", "the metric 'f1' does not fit the loss 'multilabel_margin', which is one of lists of classes"),
                                   ("loss: multilabel_margin", "losses: [{type: multilabel_margin, target: input}]", "losses: the target 'input' is an input, and multilabel_margin needs classes")):
            self.write("test.yaml", LISTS.replace(what, by))
            self.assertIn(sentence, self.run_program("check", "test.yaml", code=USAGE)[1])
