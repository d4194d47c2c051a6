"""Expressions in a config: what they train agrees with the built-in losses and layers, with any number of ranks and threads, and
wrong ones are rejected with their place. ctest-labels: unit"""
import json

import numpy as np

import program
from program import USAGE

CONFIG = """name: test
dataset: {path: rows.csv, targets: [v, w], split: {test: 0.25, seed: 3}%s}
sampler: {batch_size: 12}
model: {layers: [{linear: {out: 6, name: a}}, %s, {linear: 2}]}
loss: %s
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 4, log_every: 1}
"""
# a loss or layer, the expression that is the same
LOSSES = [("mse", "mean((y - t) ^ 2)"), ("l1", "mean(abs(y - t))"), ("{type: huber, delta: 0.5}", "mean(where(abs(y - t) <= 0.5, 0.5 * (y - t) ^ 2, 0.5 * (abs(y - t) - 0.25)))"),
          ("focal", "mean((softplus(-y) * t + softplus(y) * (1 - t)) * (sigmoid(-y) * t + sigmoid(y) * (1 - t)) ^ 2 * (0.25 * t + 0.75 * (1 - t)))")]
LAYERS = [("silu", "x * sigmoid(x)"), ("gelu", "gelu(x)"), ("softmax", "softmax(x)"), ("{elu: 0.5}", "where(x > 0, x, 0.5 * expm1(min(x, 0)))")]
WRONG = [
    ("loss: mse", "loss: {expression: mean(y - u)}", "test.yaml:5:29: loss.expression: unknown name 'u'"),
    ("loss: mse", 'loss: {expression: "mean(abs(y - t) ^ 1.5"}', "test.yaml:5:42: loss.expression: expected ',' or ')' in the call of 'mean' (character 22 of the expression)"),
    ("loss: mse", "loss: {expression: mean(abs(t))}", "loss.expression: the loss does not depend on y, the output of the model"),
    ("loss: mse", "loss: {expression: (y - t) ^ 2}", "it is as many numbers as y, which is 2, and the loss of a row is one; write mean(...) or sum(...)"),
    ("loss: mse", "loss: {expression: ''}", "loss.expression: the expression is empty"),
    ("loss: mse", "loss: {expression: null}", "loss.expression"),
    ("loss: mse", "loss: expression", "loss.expression: missing"),
    ("{linear: 2}", "{linear: 3}", "y is 3, but t has 2 values", "mean((y - t) ^ 2)"),
    ("relu", "{expression: x * b}", "test.yaml:4:64: model.layers.1.expression.value: unknown name 'b' (known: x) (character 5 of the expression)"),
    ("relu", "{expression: {from: a, value: a + 1}}", "model.layers.1.expression: 'a + 1' does not have 'x', which it takes"),
    ("relu", "{linear: {out: 3, name: b}}, {expression: {from: [a, b], value: a + b}}", "the inputs have different shapes: input 1 has 6, input 2 has 3; only the last dimension may be 1"),
    ("relu", "{reshape: [1, 2, 3]}, {expression: x - mean(x)}, flatten", "reductions and inputs of different sizes are for (features) and (positions, features)"),
    ("relu", "{expression: {value: [x]}}", "model.layers.1.expression.value"),
    ("relu", "expression", "model.layers.1.value: missing"),
]


class Expressions(program.Case):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(7)
        rows = np.hstack([random.normal(size=(60, 4)), random.uniform(size=(60, 2))])
        self.write("rows.csv", "p,q,r,s,v,w\n" + "".join(",".join(f"{x:.4f}" for x in row) + "\n" for row in rows))

    def losses(self, layer, loss, *options, data=""):
        self.write("test.yaml", CONFIG % (data, layer, loss))
        self.run_program("test.yaml", "--fresh", *options)
        return [line["loss"] for line in self.metrics() if line["event"] == "step"] + [line["val_loss"] for line in self.metrics() if line["event"] == "epoch"]

    def test_losses_are_those_of_the_program(self):
        for built_in, formula in LOSSES:
            with self.subTest(built_in):
                expected = self.losses("relu", built_in)
                np.testing.assert_allclose(self.losses("relu", f'{{expression: "{formula}"}}'), expected, rtol=2e-6)
                np.testing.assert_allclose(self.losses("relu", f'{{type: expression, expression: "{formula}"}}', "--nproc", 2), self.losses("relu", built_in, "--nproc", 2), rtol=2e-6)

    def test_layers_are_those_of_the_program(self):
        for built_in, formula in LAYERS:
            with self.subTest(built_in):
                np.testing.assert_allclose(self.losses(f'{{expression: "{formula}"}}', "mse"), self.losses(built_in, "mse"), rtol=2e-6)

    def test_corners_have_finite_derivatives(self):
        """As in PyTorch: of relu where the derivative around it is infinite, and of a power of 0."""
        for formula in "mean(sqrt(relu(y - 100)))", "mean(relu(y - 100) ^ 0.5)", "mean((0 * y) ^ 0)", "mean((0 * y) ^ (t - t))":
            with self.subTest(formula):
                self.assertTrue(np.isfinite(self.losses("relu", f'{{expression: "{formula}"}}')).all())

    def test_several_losses(self):
        self.write("test.yaml", CONFIG.replace("loss: %s", "losses: [{expression: mean((y - t) ^ 2), loss_weight: 0.5, name: square}, {type: l1}]") % ("", "relu"))
        self.run_program("test.yaml")
        epoch = [line for line in self.metrics() if line["event"] == "epoch"][-1]
        self.assertAlmostEqual(epoch["val_loss"], 0.5 * epoch["val_square_loss"] + epoch["val_l1_loss"], places=6)

    def test_weights_of_rows(self):
        """They multiply the loss of a row, unless the expression has w."""
        text = self.read("rows.csv").splitlines()
        self.write("rows.csv", "\n".join([text[0] + ",n", *(f"{line},{i % 3 + 0.5}" for i, line in enumerate(text[1:]))]) + "\n")
        weights = ", weights: n, inputs: [p, q, r, s]"
        expected = self.losses("relu", "mse", data=weights)
        np.testing.assert_allclose(self.losses("relu", "{expression: mean((y - t) ^ 2)}", data=weights), expected, rtol=2e-6)
        np.testing.assert_allclose(self.losses("relu", "{expression: w * mean((y - t) ^ 2)}", data=weights), expected, rtol=2e-6)
        other = self.losses("relu", "{expression: mean((y - t) ^ 2) + 0 * w}", data=weights)
        self.assertFalse(np.allclose(other, expected, rtol=1e-3))

    def test_threads_and_resume_have_the_same_bits(self):
        states = set()
        for threads in (1, 2):
            self.write("test.yaml", CONFIG % ("", "{expression: x * sigmoid(x)}", "{expression: mean(abs(y - t) ^ 1.5)}"))
            self.run_program("test.yaml", "--fresh", env={"OMP_NUM_THREADS": str(threads)})
            states.add(self.sha())
        self.run_program("test.yaml", "--fresh", "train.epochs=2")
        self.run_program("test.yaml")
        states.add(self.sha())
        self.assertEqual(len(states), 1)

    def test_metrics(self):
        """Those of the program, as expressions; of classes, with weights, with scaled targets, on two ranks, watched by early_stop."""
        metrics = 'metrics: {error: "mean(abs(y - t))", mae: mae, within: "mean(abs(y - t) <= 0.3)", above: "sum(y > t) / 2"}, early_stop: {metric: val_within, mode: max, patience: 9}'
        for data in ("", ", target_scale: standard"):
            for nproc in (1, 2):
                self.write("test.yaml", CONFIG.replace("log_every: 1", metrics) % (data, "relu", "mse"))
                self.run_program("test.yaml", "--fresh", "--nproc", nproc)
                epochs = [line for line in self.metrics() if line["event"] == "epoch"]
                self.assertTrue(epochs)
                for line in epochs:
                    self.assertAlmostEqual(line["val_error"], line["val_mae"], delta=1e-6 * line["val_mae"] + 1e-9)
                    self.assertTrue(0 <= line["val_within"] <= 1)
                    self.assertAlmostEqual(line["val_above"] * 30, round(line["val_above"] * 30), places=6)
        again = json.loads(self.run_program("eval", "test.yaml")[0])
        self.assertAlmostEqual(again["within"], epochs[-1]["val_within"], places=6)
        self.write("rows.csv", "p,q,kind\n" + "".join(f"{i % 7},{i % 5},{'abc'[i % 3]}\n" for i in range(60)))
        self.write("test.yaml", "name: test\ndataset: {path: rows.csv, split: {test: 0.25}}\nmodel: {layers: [{linear: 3}]}\nloss: cross_entropy\n"
                   "train: {epochs: 2, metrics: {mine: 'logsumexp(y) - sum(where(index == t, y, 0))', f1: f1}}\n")
        self.run_program("test.yaml", "--fresh")
        for line in self.metrics():
            if line["event"] == "epoch":
                self.assertAlmostEqual(line["val_mine"], line["val_loss"], places=5)
                self.assertIn("val_f1", line)

    def test_a_resume_with_another_expression(self):
        """One whose earlier values are compared with: of checkpoint.best, of early_stop, of the schedule. Others may change."""
        first = "{error: mean(abs(y - t)), other: mean(y)}"
        for watch, value in (("checkpoint", "{best: {metric: val_error, mode: min}}"), ("train.early_stop", "{metric: val_error, mode: min, patience: 9}"),
                             ("schedule", "{type: reduce_on_plateau, monitor: val_error, mode: max}")):
            with self.subTest(watch):
                self.write("test.yaml", CONFIG % ("", "relu", "mse"))
                words = (f"{watch}={value}", "--no-progress")
                self.run_program("test.yaml", "--fresh", f"train.metrics={first}", *words)
                err = self.run_program("test.yaml", "train.metrics={error: mean((y - t) ^ 2), other: mean(y)}", "train.epochs=6", *words, code=USAGE)[1]
                self.assertIn("it differs in 1 key (run folder -> now):\n  train.metrics.error: mean(abs(y - t)) -> mean((y - t) ^ 2)\n", err)
                self.run_program("test.yaml", "train.metrics={error: mean(abs(y - t)), other: mean(t), more: mean(y)}", "train.epochs=6", *words)
                self.assertEqual(self.events("end")[-1]["epoch"], 6)

    def test_wrong_metrics(self):
        for metrics, message in (
                ("{a: mean(y - u)}", "test.yaml:7:42: train.metrics.a: unknown name 'u' (known: y, t, w)"), ("{mae: mean(y)}", "'mae' is a metric of the program: write mae: mae"),
                ("{loss: mean(y)}", "'loss' is a field of the results already"), ("{'a b': mean(y)}", "the name of a metric has letters, digits and _, at most 100, got 'a b'"),
                ("{a: y - t}", "train.metrics.a: it is as many numbers as y or t"), ("{a: [mean(y), mean(t)]}", "the metric 'a' is given twice"), ("[mean(y)]", "unknown metric 'mean(y)'")):
            with self.subTest(metrics):
                self.write("test.yaml", CONFIG.replace("log_every: 1", f"metrics: {metrics}") % ("", "relu", "mse"))
                self.assertIn(message, self.run_program("test.yaml", code=USAGE)[1])

    # ---- columns ----

    COLUMNS = ("name: test\ndataset: {path: %s, targets: y, split: {test: 0.25, shuffle: false}, columns: {bmi: {expression: \"weight / height ^ 2\"}, "
               "log_fare: {expression: \"log1p(`Fare (old)`)\", missing: mean}, weight: ignore, Fare (old): ignore}, scale: standard}\nmodel: {layers: [{linear: 1}]}\nloss: mse\n"
               "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 3}\ncheckpoint: {save_every: 3}\n")

    def people(self, count=40):
        random = np.random.default_rng(5)
        return [(round(float(random.uniform(50, 90)), 2), round(float(random.uniform(1.5, 2)), 3), "" if i == 3 else round(float(random.uniform(0, 99)), 2), round(float(random.normal()), 3))
                for i in range(count)]

    def write_people(self, name, rows, computed=False):
        lines = ["weight,height,Fare (old),y" if not computed else "height,y,bmi,log_fare"]
        for weight, height, fare, y in rows:
            lines.append(f"{weight},{height},{fare},{y}" if not computed else f"{height},{y},{weight / (height * height)!r},{'' if fare == '' else repr(float(np.log1p(fare)))}")
        self.write(name, "\n".join(lines) + "\n")

    def test_columns(self):
        """As if the file had them: the same state; predictions of new rows, also of the library's table."""
        rows = self.people()
        self.write_people("people.csv", rows)
        self.write("test.yaml", self.COLUMNS % "people.csv")
        self.run_program("test.yaml")
        states = [self.sha()]
        predictions = self.run_program("predict", "runs/test", "people.csv", "--outputs")[0]
        self.write_people("plain.csv", rows, computed=True)
        self.write("test.yaml", "name: test\ndataset: {path: plain.csv, targets: y, split: {test: 0.25, shuffle: false}, columns: {log_fare: {missing: mean}}, scale: standard}\n"
                   + self.COLUMNS.split("\n", 2)[2])
        self.run_program("test.yaml", "--fresh")
        states.append(self.sha())
        self.assertEqual(len(set(states)), 1)
        plain = self.run_program("predict", "runs/test", "plain.csv", "--outputs")[0]
        column = lambda text, name: [line.split(",")[text.splitlines()[0].split(",").index(name)] for line in text.splitlines()[1:]]
        name = [n for n in plain.splitlines()[0].split(",") if n not in ("height", "y", "bmi", "log_fare", "row")][-1]
        self.assertEqual(column(predictions, name), column(plain, name))

    def test_columns_of_databases(self):
        import sqlite3
        rows = self.people()
        base = sqlite3.connect(self.path("people.db"))
        base.execute('create table people (weight real, height real, "Fare (old)" real, y real)')
        base.executemany("insert into people values (?, ?, ?, ?)", [[None if v == "" else v for v in row] for row in rows])
        base.commit()
        base.close()
        self.write_people("people.csv", rows)
        states = set()
        for name in ("people.csv", "people.db"):
            self.write("test.yaml", self.COLUMNS % name)
            self.run_program("test.yaml", "--fresh")
            states.add(self.sha())
        self.assertEqual(len(states), 1)

    def test_a_column_is_a_target(self):
        rows = self.people()
        self.write_people("people.csv", rows)
        self.write("test.yaml", "name: test\ndataset: {path: people.csv, targets: heavy, inputs: [height, y], columns: {heavy: {expression: weight > 70}}, split: {test: 0.25}}\n"
                   "model: {layers: [{linear: 1}]}\nloss: bce_with_logits\ntrain: {epochs: 1, metrics: [accuracy]}\n")
        self.run_program("test.yaml")

    def test_wrong_columns(self):
        rows = self.people()
        self.write_people("people.csv", rows)
        self.write_people("zero.csv", rows[:5] + [(70, 0, 1, 1)] + rows[5:])
        self.write("text.csv", self.read("people.csv").replace(f"\n{rows[6][0]},", "\nheavy,"))
        config = self.COLUMNS % "people.csv"
        for old, new, message, code in (
                ("people.csv", "zero.csv", "zero.csv:line 7: column 'bmi': weight / height ^ 2 is infinite (weight is 70, height is 0)", program.DATA),
                ("people.csv", "text.csv", "text.csv:line 8: column 'weight': 'heavy' is not a number, and dataset.columns.bmi computes with it", program.DATA),
                ("height ^", "hight ^", "there is no column 'hight', which is in dataset.columns.bmi; did you mean 'height'", program.DATA),
                ("weight / height", "weight /", "dataset.columns.bmi.expression: expected a number, a name or '(', got '^' (character 10 of the expression)", USAGE),
                ("weight / height ^ 2", "log_fare", "test.yaml:2:93: dataset.columns.bmi: 'log_fare' is an expression, too; write its formula instead", USAGE),
                ("weight / height ^ 2", "2 * 3", "dataset.columns.bmi.expression: the expression has no column", USAGE),
                ("weight / height ^ 2", "mean(weight)", "'mean' is over the features of a row, and here each name is one number", USAGE),
                ("bmi: {", "bmi: {type: date, ", "the column of an expression is a number", USAGE),
                ("bmi:", "height:", "people.csv: it has a column 'height', which dataset.columns computes; rename one of them", program.DATA),
                (", missing: mean", "", "log_fare", program.DATA)):
            with self.subTest(new):
                self.assertIn(old, config)
                self.write("test.yaml", config.replace(old, new))
                self.assertIn(message, self.run_program("test.yaml", "--fresh", code=code)[1])
        self.write("test.yaml", config)
        self.run_program("test.yaml", "--fresh")
        self.run_program("predict", "runs/test", "zero.csv", code=program.DATA, err="bmi")
        self.run_program("predict", "runs/test", "zero.csv", "--skip-bad-rows")
        self.run_program("export", "test.yaml", "--out", "train.py")
        with open(self.path("train.py")) as f:
            self.assertIn('table["bmi"] = computed(table, ["weight", "height"], lambda x0, x1: x0 / x1 ** 2)\n', f.read())
        for name in ("m.c", "m.onnx"):
            _, err = self.run_program("export", "runs/test", "--out", name, code=USAGE)
            self.assertIn("is an expression of others, which an exported model cannot compute", err)

    def test_not_finite(self):
        for formula, message in (("mean(log(y - 1e6) + t)", "the loss in 'log' (character 6 of the expression)"),
                                 ("mean(t) + mean(sqrt(y * 0))", "the gradient of 2.bias in the derivative of 'sqrt' (character 16 of the expression)")):
            self.write("test.yaml", CONFIG % ("", "relu", f'{{expression: "{formula}"}}'))
            self.run_program("test.yaml", "--fresh", code=program.NOT_FINITE, err=(message, "row"))

    def test_wrong_expressions(self):
        for old, new, message, *loss in WRONG:
            with self.subTest(new):
                config = CONFIG % ("", "relu", "mse")
                if loss:
                    config = config.replace("loss: mse", f'loss: {{expression: "{loss[0]}"}}')
                self.assertEqual(config.count(old), 1)
                self.write("test.yaml", config.replace(old, new))
                self.run_program("test.yaml", code=USAGE, err=message)

    def test_overrides_and_written_configs(self):
        """The resolved config of a run is read again; an override may be an expression, too."""
        self.write("test.yaml", CONFIG % ("", "relu", "mse"))
        self.run_program("test.yaml", "loss={expression: mean((y - t) ^ 2)}")
        self.run_program("eval", "runs/test")
        self.run_program("test.yaml", "--fresh", "loss={expression: mean(y - }", code=USAGE, err="loss")
