"""The baseline at the end of a run: what the validation rows give without a model, computed here from the same rows.
ctest-labels: unit"""
import json, statistics

import program

# The last rows are the validation rows.
CONFIG = """
dataset: {{path: rows.csv, inputs: [x], targets: [y], split: {{test: 0.25, shuffle: false}}{dataset}}}
model: {{layers: [{{linear: {{out: {out}}}}}]}}
loss: {loss}
optimizer: {{type: sgd, lr: {lr}}}
train: {{epochs: {epochs}}}
"""


class Baseline(program.Case):
    def train(self, targets, *, loss="mse", out=1, lr=0, epochs=1, dataset="", header="x,y", row="{i},{y}"):
        self.write("rows.csv", header + "\n" + "".join(row.format(i=i % 3, y=y) + "\n" for i, y in enumerate(targets)))
        self.write("test.yaml", CONFIG.format(loss=loss, out=out, lr=lr, epochs=epochs, dataset=dataset))
        _, err = self.run_program("test.yaml", "--fresh")
        return err, self.events("end")[-1]

    def test_the_most_frequent_class(self):
        """Of the training rows, also where another one is the most frequent of the validation rows."""
        targets = [0, 1, 1, 2, 1, 0, 1, 1, 0, 0, 0, 1]
        err, end = self.train(targets, loss="cross_entropy", out=3)
        self.assertEqual((end["baseline"], end["baseline_accuracy"]), ("always the most frequent class", 1 / 3))
        self.assertIn("\nbaseline: accuracy 33.33 % (always the most frequent class)", err)
        _, end = self.train([-100] * 8 + targets[:8] + [-100, 0, 0, 1], loss="{type: cross_entropy, ignore_index: -100}", out=3)
        self.assertEqual(end["baseline_accuracy"], 2 / 4)  # 1, 0, 0, 1 beside one that is ignored

    def test_the_mean(self):
        targets = [3.5, 1, -2, 0.5, 4, 6, 1, 8]
        mean, last = statistics.fmean(targets[:6]), targets[6:]
        for loss, expected in (("mse", statistics.fmean((y - mean) ** 2 for y in last)), ("l1", statistics.fmean(abs(y - mean) for y in last))):
            err, end = self.train(targets, loss=loss, lr=0.01, epochs=50)
            self.assertEqual(end["baseline"], "always the mean of the training rows")
            self.assertAlmostEqual(end["baseline_loss"], expected, places=5)
            self.assertIn(f"\nbaseline: loss {expected:.4f} (always the mean of the training rows)", err)
        deviation = statistics.pstdev(targets[:6])
        _, end = self.train(targets, dataset=", target_scale: standard")  # that of the loss
        self.assertAlmostEqual(end["baseline_loss"], statistics.fmean(((y - mean) / deviation) ** 2 for y in last), places=5)

    def test_the_last_value(self):
        """Of windows: the target in the last row of the inputs, here two rows before the first of two targets."""
        targets = [float(i * i % 7) for i in range(40)]
        self.write("rows.csv", "x,y\n" + "".join(f"{i},{y}\n" for i, y in enumerate(targets)))
        self.write("test.yaml", CONFIG.format(loss="mse", out=2, lr=0, epochs=1, dataset=", window: {steps: 3, horizon: 2, predict_steps: 2}")
                   .replace("[{linear", "[flatten, {linear"))
        self.run_program("test.yaml")
        end, rows = self.events("end")[-1], targets[30:]
        errors = [(rows[i + 2 + ahead] - rows[i]) ** 2 for i in range(2, len(rows) - 3) for ahead in (0, 1)]
        self.assertEqual(end["baseline"], "always the last value")
        self.assertAlmostEqual(end["baseline_loss"], statistics.fmean(errors), places=5)

    def test_a_model_that_is_worse_is_called_so(self):
        """Neither its newest nor its best epoch is better; the report's headline says it, too."""
        targets = [5.0, 5.1, 4.9, 5.0, 5.1, 4.9, 5.0, 5.2]
        sentence = "baseline: loss 0.0200 (always the mean of the training rows)"
        err, end = self.train(targets)
        self.assertIn(f"\n{sentence}, which is better than the model\n", err)
        self.run_program("report", "runs/test", "--out", "page.html")
        page = self.read("page.html")
        self.assertRegex(page, r'"headline">Best result: val_loss [\d.]+ in epoch 1, worse than always the mean of the training rows: 0.02</p>')
        self.assertIn("<dt>Baseline</dt><dd>val_loss 0.02, always the mean of the training rows</dd>", page)
        err, end = self.train([2.0 * (i % 3) for i in range(16)], lr=0.1, epochs=50)
        self.assertNotIn("better than the model", err)
        self.assertIn("\nbaseline: loss", err)
        self.run_program("report", "runs/test", "--out", "page.html")
        self.assertRegex(self.read("page.html"), r'"headline">Best result: val_loss [\d.e-]+ in epoch \d+ \(always the mean of the training rows: [\d.]+\)</p>')

    def test_where_there_is_none(self):
        """Weights of rows, other losses, no validation rows."""
        weighted = {"dataset": ", weights: w", "header": "x,y,w", "row": "{i},{y},1"}
        for options in (weighted, {"loss": "huber"}):
            err, end = self.train([1.0, 2, 3, 4, 5, 6, 7, 8], **options)
            self.assertNotIn("baseline", err + json.dumps(end))
        self.write("test.yaml", self.read("test.yaml").replace(", split: {test: 0.25, shuffle: false}", ""))
        _, err = self.run_program("test.yaml", "--fresh")
        self.assertNotIn("baseline", err + json.dumps(self.events("end")[-1]))
