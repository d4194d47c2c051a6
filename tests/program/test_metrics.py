"""Metrics of the validation rows against their definitions, computed here from the outputs of `predict`, and the same on
any number of ranks; the moving average of the weights. ctest-labels: dist"""
import csv, json, math, os, random, re

import program
from program import USAGE


def ratio(a, b):
    return a / b if b else 0.0


def area(scores, labels):
    """The share of pairs (positive, negative) in the right order, equal ones counted half."""
    positive = [s for s, l in zip(scores, labels) if l]
    negative = [s for s, l in zip(scores, labels) if not l]
    return sum((p > n) + 0.5 * (p == n) for p in positive for n in negative) / (len(positive) * len(negative))


def average_precision(scores, labels):
    """The mean over positives of the precision of the scores that are not smaller."""
    at = lambda limit: [l for s, l in zip(scores, labels) if s >= limit]
    precisions = [sum(at(s)) / len(at(s)) for s, l in zip(scores, labels) if l]
    return sum(precisions) / len(precisions)


def of_classes(outputs, targets, classes):
    predicted = [row.index(max(row)) for row in outputs]
    matrix = [[sum(t == i and p == j for t, p in zip(targets, predicted)) for j in range(classes)] for i in range(classes)]
    present = [c for c in range(classes) if c in targets or c in predicted]
    right = {c: matrix[c][c] for c in present}
    says = {c: predicted.count(c) for c in present}
    is_ = {c: targets.count(c) for c in present}
    probabilities = [[math.exp(v) / sum(map(math.exp, row)) for v in row] for row in outputs]
    mean = lambda values: sum(values) / len(present)
    n = len(targets)
    by_chance = sum(predicted.count(c) * targets.count(c) for c in present) / n ** 2
    spread = lambda values: 1 - sum((values.count(c) / n) ** 2 for c in present)
    hits = sum(right.values()) / n
    positive = [1] if classes == 2 else set(targets)
    return {
        "confusion_matrix": matrix,
        **{f"top{k}": sum(sum(v > row[t] for v in row) < k for row, t in zip(outputs, targets)) / len(targets) for k in (1, 2, 5, 12)},
        "precision": mean([ratio(right[c], says[c]) for c in present]),
        "recall": mean([ratio(right[c], is_[c]) for c in present]),
        "balanced_accuracy": sum(right[c] / is_[c] for c in set(targets)) / len(set(targets)),
        "specificity": mean([sum(p != c for t, p in zip(targets, predicted) if t != c) / (n - is_[c]) for c in present]),
        "mcc": (hits - by_chance) / math.sqrt(spread(targets) * spread(predicted)), "cohen_kappa": (hits - by_chance) / (1 - by_chance),
        "f1": mean([ratio(2 * right[c], says[c] + is_[c]) for c in present]),
        "mean_iou": mean([ratio(right[c], says[c] + is_[c] - right[c]) for c in present]),
        "auc": mean([area([p[c] for p in probabilities], [t == c for t in targets]) for c in range(classes)]),
        "average_precision": sum(average_precision([p[c] for p in probabilities], [t == c for t in targets])
                                 for c in positive) / len(positive),
    }


def variance(values):
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values) / len(values)


def of_probabilities(outputs, targets):
    """Errors of yes-or-no questions are those of the probabilities, not of the logits."""
    errors = [1 / (1 + math.exp(-row[0])) - t for row, t in zip(outputs, targets)]
    mean = sum(targets) / len(targets)
    return {"mae": sum(map(abs, errors)) / len(errors),
            "r2": 1 - sum(e * e for e in errors) / sum((t - mean) ** 2 for t in targets),
            "explained_variance": 1 - variance(errors) / variance(targets)}


class Metrics(program.Case):
    def data(self, rows, inputs, target):
        """train.csv and validation.csv with made-up inputs and target(x, noise) in the last columns."""
        generator = random.Random(3)
        for name, count in (("train", 200), ("validation", rows)):
            with open(self.path(name + ".csv"), "w") as f:
                table = [[generator.gauss(0, 1) for _ in range(inputs)] for _ in range(count)]
                full = [x + target(x, generator) for x in table]
                f.write(",".join([f"x{i}" for i in range(inputs)] + [f"y{i}" for i in range(len(full[0]) - inputs)]) + "\n")
                f.writelines(",".join(map(repr, row)) + "\n" for row in full)
        return [row[inputs:] for row in full]

    def check(self, config, metrics, expected):
        """Trains, evaluates on 1, 2 and 3 ranks and compares with [expected](outputs)."""
        self.write("test.yaml", config % ", ".join(metrics))
        _, log = self.run_program("test.yaml")
        self.run_program("predict", "test.yaml", "--outputs", "--out", "p.csv")
        with open(self.path("p.csv")) as f:
            rows = list(csv.reader(f))
        first = rows[0].index("output_0")
        wanted = expected([[float(v) for v in row[first:]] for row in rows[1:]])
        last = self.events("epoch")[-1]
        values = [f"{name} {100 * last['val_' + name]:.2f} %" if name.endswith("accuracy") else f"{name} {last['val_' + name]:.4f}" for name in metrics
                  if name != "confusion_matrix" and not (name == "accuracy" and "cross_entropy" in config)]  # has it beside the loss
        self.assertIn(f"\nmetrics: {', '.join(values)}\n", log)
        if "confusion_matrix" in metrics:
            rows = "".join("".join(f" {count:7g}" for count in row) + "\n" for row in last["val_confusion_matrix"])
            self.assertIn(f"\nconfusion matrix (rows: targets, columns: predictions):\n{rows}", log)
        for world in (1, 2, 3):
            out, _ = self.run_program("eval", "test.yaml", "--nproc", world)
            result = json.loads(out)
            for name in metrics:
                with self.subTest(name, world=world):
                    if name == "perplexity":
                        self.assertAlmostEqual(result[name], math.exp(result["loss"]), places=12)
                    elif name == "confusion_matrix":
                        self.assertEqual(result[name], wanted[name])
                    elif name in wanted:
                        self.assertAlmostEqual(result[name], wanted[name], places=6)
                    if name == "confusion_matrix":
                        self.assertEqual(result[name], last["val_" + name])
                        self.check_classes(result, log)
                    else:
                        self.assertAlmostEqual(result[name], last["val_" + name], places=12)
        return last

    def check_classes(self, result, log):
        """The scores of each class follow from the matrix; the log has them as a table."""
        matrix = result["confusion_matrix"]
        names = result.get("labels", range(len(matrix)))
        for c, name in enumerate(names):
            right, is_, says = matrix[c][c], sum(matrix[c]), sum(row[c] for row in matrix)
            wanted = ratio(right, says), ratio(right, is_), ratio(2 * right, is_ + says), ratio(right, is_ + says - right)
            for key, value in zip(("precision", "recall", "f1", "iou"), wanted):
                self.assertAlmostEqual(result["class_" + key][c], value, places=12)
            self.assertIn(f"\n{name!s:20}" + "".join(f" {value:9.4f}" for value in wanted) + f" {is_:9g}\n", log)

    CLASSES = """
dataset: {path: train.csv, targets: y0, validation: {path: validation.csv}}
sampler: {batch_size: 16}
model: {layers: [{linear: {out: 7}}]}
loss: cross_entropy
optimizer: {type: adagrad, lr: 0.05}
train: {epochs: 3, metrics: [%s]}
"""
    ALL = ["accuracy", "top2", "top5", "top1", "top12", "perplexity", "confusion_matrix", "precision", "recall", "f1", "mean_iou", "auc",
           "balanced_accuracy", "average_precision", "specificity", "mcc", "cohen_kappa"]

    def test_classes(self):
        targets = self.data(61, 4, lambda x, g: [max(0, min(6, round(3 + x[0] + x[1] + g.gauss(0, 0.7))))])
        targets = [int(row[0]) for row in targets]
        self.assertEqual(len(set(targets)), 7)
        self.check(self.CLASSES, self.ALL, lambda outputs: of_classes(outputs, targets, 7))

    def test_training_rows(self):
        """With weights that hardly change, the accuracy of an epoch is that of an evaluation of the same rows."""
        self.data(61, 4, lambda x, g: [max(0, min(6, round(3 + x[0] + x[1] + g.gauss(0, 0.7))))])
        config = self.CLASSES.replace("lr: 0.05", "lr: 1.0e-12").replace("path: validation.csv", "path: train.csv")
        self.write("test.yaml", config % "accuracy")
        for world in (1, 2):
            self.run_program("test.yaml", "--nproc", world, "--fresh")
            for epoch in self.events("epoch"):
                self.assertGreater(epoch["val_accuracy"], 0)
                self.assertAlmostEqual(epoch["train_accuracy"], epoch["val_accuracy"], places=12)
            self.assertEqual(set(re.findall(r"\((\d+) rows\)", self.read("runs/test/log.txt"))), {"200"})

    def test_two_classes(self):
        targets = [int(row[0]) for row in self.data(40, 3, lambda x, g: [int(x[0] + g.gauss(0, 1) > 0)])]
        self.check(self.CLASSES.replace("out: 7", "out: 2"), self.ALL, lambda outputs: of_classes(outputs, targets, 2))

    def test_binary(self):
        targets = [int(row[0]) for row in self.data(37, 3, lambda x, g: [int(x[0] + g.gauss(0, 1) > 0.5)])]

        def expected(outputs):
            pairs = [(t, int(row[0] > 0)) for row, t in zip(outputs, targets)]
            tn, fp, fn, tp = (pairs.count(p) for p in ((0, 0), (0, 1), (1, 0), (1, 1)))
            return {"confusion_matrix": [[tn, fp], [fn, tp]], "accuracy": (tp + tn) / 37, "precision": ratio(tp, tp + fp),
                    "recall": ratio(tp, tp + fn), "f1": ratio(2 * tp, 2 * tp + fp + fn), "mean_iou": ratio(tp, tp + fp + fn),
                    "auc": area([row[0] for row in outputs], targets), "balanced_accuracy": (tp / (tp + fn) + tn / (tn + fp)) / 2,
                    "specificity": tn / (tn + fp), "cohen_kappa": 2 * (tp * tn - fp * fn) / ((tp + fp) * (fp + tn) + (tp + fn) * (fn + tn)),
                    "mcc": (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)),
                    "average_precision": average_precision([row[0] for row in outputs], targets), **of_probabilities(outputs, targets)}

        self.check(self.CLASSES.replace("out: 7", "out: 1").replace("cross_entropy", "bce_with_logits"),
                   ["accuracy", "confusion_matrix", "precision", "recall", "f1", "mean_iou", "auc", "mae", "r2", "balanced_accuracy",
                    "average_precision", "specificity", "mcc", "cohen_kappa", "explained_variance"], expected)

    def test_scores_of_classes_with_labels(self):
        targets = [row[0] for row in self.data(40, 3, lambda x, g: ["cat, big" if x[0] + g.gauss(0, 1) > 0 else "dog"])]
        for name in ("train", "validation"):
            self.write(name + ".csv", self.read(name + ".csv").replace("'cat, big'", '"cat, big"').replace("'", ""))
        self.write("test.yaml", self.CLASSES.replace("out: 7", "out: 2") % "confusion_matrix")
        _, log = self.run_program("test.yaml")
        result = json.loads(self.run_program("eval", "test.yaml")[0])
        self.assertEqual(result["labels"], ["cat, big", "dog"])
        self.assertEqual([sum(row) for row in result["confusion_matrix"]], [targets.count("cat, big"), targets.count("dog")])
        self.check_classes(result, log)

    def test_equal_scores(self):
        """Rows of both classes with the same inputs have the same score; each such pair counts half."""
        generator = random.Random(4)
        for name, count in (("train", 200), ("validation", 60)):
            rows = [(generator.randint(0, 2), generator.randint(0, 1)) for _ in range(count)]
            rows = [(a, b, int(a + generator.random() * 2 > 2)) for a, b in rows]
            self.write(name + ".csv", "x0,x1,y0\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))
        targets = [y for _, _, y in rows]

        def expected(outputs):
            scores = [row[0] for row in outputs]
            self.assertLess(len(set(scores)), 7)
            return {"auc": area(scores, targets), "average_precision": average_precision(scores, targets)}

        self.check(self.CLASSES.replace("out: 7", "out: 1").replace("cross_entropy", "bce_with_logits"), ["auc", "average_precision"], expected)

    def test_values(self):
        targets = self.data(29, 3, lambda x, g: [3 + x[0] + g.gauss(0, 0.2), x[1] - x[2]])

        def expected(outputs):
            columns = list(zip(zip(*outputs), zip(*targets)))
            r2 = []
            for xs, ts in columns:
                mean = sum(ts) / len(ts)
                r2.append(1 - sum((x - t) ** 2 for x, t in zip(xs, ts)) / sum((t - mean) ** 2 for t in ts))
            errors = [abs(x - t) for xs, ts in columns for x, t in zip(xs, ts)]
            relative = [abs(x - t) / abs(t) for xs, ts in columns for x, t in zip(xs, ts)]
            explained = [1 - variance([x - t for x, t in zip(xs, ts)]) / variance(ts) for xs, ts in columns]
            return {"mae": sum(errors) / len(errors), "r2": sum(r2) / 2, "mape": sum(relative) / len(relative),
                    "explained_variance": sum(explained) / 2, "max_error": max(errors)}

        config = self.CLASSES.replace("out: 7", "out: 2").replace("targets: y0", "targets: [y0, y1]")
        config = config.replace("cross_entropy", "{type: smooth_l1, beta: 0.5}").replace("lr: 0.05", "lr: 0.5")
        last = self.check(config, ["mae", "r2", "mape", "max_error", "explained_variance"], expected)
        self.assertGreater(last["val_r2"], 0.5)
        self.assertNotAlmostEqual(last["val_r2"], last["val_explained_variance"], places=4)

    def test_targets_and_predictions_of_one_class(self):
        """scikit-learn's values where a denominator is 0, exactly, with weights whose sums are rounded."""
        names = ("specificity", "mcc", "cohen_kappa")
        for loss, outputs, target, wanted in (
                ("cross_entropy", 7, 0, [0, 0, None]), ("cross_entropy", 7, 1, [0.5, 0, 0]),
                ("bce_with_logits", 1, 0, [1, 0, None]), ("bce_with_logits", 1, 1, [1, 0, 0])):
            for name, targets in (("train", [0] * 50), ("validation", [0] * 7 + [target] * 3)):
                self.write(name + ".csv", "x,y0,w\n" + "".join(f"1,{y},0.{i % 7 + 1}\n" for i, y in enumerate(targets)))
            config = self.CLASSES.replace("targets: y0", "targets: y0, weights: w").replace("out: 7", f"out: {outputs}")
            self.write("test.yaml", config.replace("cross_entropy", loss).replace("lr: 0.05", "lr: 1") % ", ".join(names))
            self.run_program("test.yaml", "--fresh")
            for world in (1, 3):
                with self.subTest(loss, target=target, world=world):
                    result = json.loads(self.run_program("eval", "test.yaml", "--nproc", world)[0])
                    self.assertEqual([result[name] for name in names], wanted)

    def test_targets_of_one_class_and_predictions_of_two(self):
        for name, of_class in (("train", lambda x: int(x > 0)), ("validation", lambda x: 0)):
            self.write(name + ".csv", "x,y0\n" + "".join(f"{x},{of_class(x)}\n" for x in range(-4, 4)))
        self.write("test.yaml", self.CLASSES.replace("out: 7", "out: 2").replace("lr: 0.05", "lr: 1") % "mcc, cohen_kappa, confusion_matrix")
        self.run_program("test.yaml")
        result = json.loads(self.run_program("eval", "test.yaml")[0])
        (hits, misses), none = result["confusion_matrix"]
        self.assertEqual((hits > 0, misses > 0, none), (True, True, [0, 0]))
        self.assertEqual((result["mcc"], result["cohen_kappa"]), (0, 0))

    def test_an_error_that_is_no_number_is_the_largest(self):
        rows = ["3e38,1"] + ["1,1"] * 4
        for name, lines in (("train", rows[1:]), ("validation", rows[1:]), ("first", rows), ("last", rows[::-1])):
            self.write(name + ".csv", "x,y0\n" + "\n".join(lines) + "\n")
        self.write("test.yaml", self.CLASSES.replace("{linear: {out: 7}}", "{linear: {out: 64}}, {linear: {out: 64}}, {linear: {out: 1}}")
                   .replace("cross_entropy", "l1") % "max_error")
        self.run_program("test.yaml", "train.epochs=1")
        for name in ("first", "last"):
            for world in (1, 2):
                out, _ = self.run_program("eval", "test.yaml", f"dataset.validation.path={name}.csv", "--nproc", world)
                self.assertIsNone(json.loads(out)["max_error"])

    def test_equal_targets(self):
        """The error is the same for all rows, or not, and has all digits of a double, also in sums over weights."""
        config = self.CLASSES.replace("out: 7", "out: 1").replace("cross_entropy", "poisson_nll").replace("targets: y0", "targets: y0, weights: w")
        for slope, wanted in ((0, 1), (1, 0)):
            for name in ("train", "validation"):
                self.write(name + ".csv", "x,y0,w\n" + "".join(f"{slope * i},0.3,0.{i + 1}\n" for i in range(7)))
            self.write("test.yaml", config % "r2, explained_variance")
            self.run_program("test.yaml", "--fresh")
            for world in (1, 2, 3):
                result = json.loads(self.run_program("eval", "test.yaml", "--nproc", world)[0])
                self.assertEqual((result["r2"], result["explained_variance"]), (0, wanted))

    def test_r2_of_one_row_is_not_defined(self):
        """Neither is it the best, nor does it stop waiting for a better one; explained_variance is scikit-learn's 1."""
        rows = "".join(f"{i},{i + 0.5}\n" for i in range(20))
        self.write("train.csv", "x,y0\n" + rows)
        config = self.CLASSES.replace("out: 7", "out: 1").replace("cross_entropy", "mse").replace("epochs: 3", "epochs: 9, early_stop: {metric: val_r2, patience: 2}")
        config = config.replace("validation: {path: validation.csv}", "split: {validation: 0.05, test: 0.05}") + "checkpoint: {best: val_r2}\n"
        self.write("test.yaml", config % "r2, explained_variance")
        for world in (1, 2):
            out, err = self.run_program("test.yaml", "--fresh", "--nproc", world)
            self.assertEqual([(e["val_r2"], e["val_explained_variance"]) for e in self.events("epoch")], [(None, 1), (None, 1)])
            end = self.events("end")[-1]
            self.assertEqual([end[name] for name in ("test_r2", "best_epoch", "best_value", "early_stop_wait")], [None, 0, None, 2])
            log = out + err
            self.assertIn("on 1 row; no epoch is the best\n", log)
            self.assertIn("metrics: r2 -, explained_variance 1.0000\n", log)
            self.assertIn(", r2 -, explained_variance 1 on 1 row;", log)
            self.assertIn("checkpoint.best: val_r2 was not a number in any epoch", log)
            self.assertIsNone(json.loads(self.run_program("eval", "test.yaml", "--nproc", world)[0])["r2"])
        self.assertNotIn("best.h5", [os.path.basename(path) for path in self.checkpoints()])

    def test_no_metric_is_defined_without_a_target_that_counts(self):
        """Neither is it 0, which would be a number to compare with."""
        for name, column in (("train", "0123"), ("validation", "3333")):
            self.write(name + ".csv", "x,y0\n" + "".join(f"{i},{y}\n" for i, y in enumerate(column)))
        names = ["accuracy", "f1", "precision", "recall", "mcc", "cohen_kappa", "specificity", "balanced_accuracy", "top2", "auc"]
        config = self.CLASSES.replace("cross_entropy", "{type: cross_entropy, ignore_index: 3}").replace("validation.csv", "train.csv")
        self.write("test.yaml", config % ", ".join(names))
        self.run_program("test.yaml")
        for world in (1, 2):
            out, _ = self.run_program("eval", "test.yaml", "dataset.validation.path=validation.csv", "--nproc", world)
            self.assertEqual([json.loads(out)[name] for name in names + ["loss"]], [None] * 11)

    def test_the_norm_of_the_logged_steps(self):
        """It is computed for these steps only: the same numbers as with one line for each step."""
        self.write("test.yaml", program.WINE)
        norms = {}
        for every in (1, 3):
            self.run_program("test.yaml", "--fresh", "train.epochs=2", f"train.log_every={every}")
            norms[every] = {e["step"]: e["grad_norm"] for e in self.events("step")}
        self.assertEqual(list(norms[3]), [3, 6, 9])
        self.assertEqual(norms[3], {step: norms[1][step] for step in norms[3]})
        self.assertGreater(min(norms[3].values()), 0)

    def test_mistakes(self):
        self.data(5, 3, lambda x, g: [0])
        for metrics, loss, sentence in (
                ("f2", "cross_entropy", "unknown metric 'f2'; did you mean 'f1'? (known: accuracy, top5,"),
                ("r2", "cross_entropy", "the metric 'r2' does not fit the loss 'cross_entropy', which is one of classes"),
                ("auc", "mse", "the metric 'auc' does not fit the loss 'mse', which is one of values"),
                ("f1, f1", "cross_entropy", "the metric 'f1' is given twice"),
                ("top3, f1, top3", "cross_entropy", "the metric 'top3' is given twice"),
                ("max_error", "bce_with_logits", "the metric 'max_error' does not fit the loss 'bce_with_logits', which is one of binary decisions"),
                ("mcc", "mse", "the metric 'mcc' does not fit the loss 'mse', which is one of values"),
                ("top3", "mse", "the metric 'top3' does not fit the loss 'mse', which is one of values"),
                ("mape", "bce_with_logits", "the metric 'mape' does not fit the loss 'bce_with_logits', which is one of binary decisions"),
                ("average_precision", "mse", "the metric 'average_precision' does not fit the loss 'mse', which is one of values"),
                ("top0", "cross_entropy", "unknown metric 'top0'"), ("top03", "cross_entropy", "unknown metric 'top03'"),
                ("top", "cross_entropy", "unknown metric 'top'"), ("top12345678", "cross_entropy", "unknown metric 'top12345678'"),
                (", ".join(f"top{k}" for k in range(1, 10)), "cross_entropy", "at most 8 metrics top<k>, got 9")):
            self.write("test.yaml", self.CLASSES.replace("cross_entropy", loss) % metrics)
            self.run_program("test.yaml", code=USAGE, err=(sentence, "test.yaml:7:29: train.metrics:"))


class Average(program.Case):
    CONFIG = program.WINE.replace("{epochs: 10}", "{epochs: 4, ema: %s}").replace("save_every: 5", "save_every: 2, keep: 0")

    def test_is_the_average_of_all_updates(self):
        """Against the weights saved after every step."""
        import h5py
        self.write("test.yaml", self.CONFIG.replace("save_every: 2", "save_every: {steps: 1}") % "0.9")
        self.run_program("test.yaml", "train.epochs=2")
        average = None
        states = {}
        for path in self.checkpoints():
            with h5py.File(path) as f:
                states[int(f["state/step"][()])] = f["model/0.weight"][:].astype("f8"), f["ema/0.weight"][:].astype("f8")
        self.assertEqual(sorted(states), list(range(1, 11)))
        for step in range(1, 11):
            weights, kept = states[step]
            average = weights if step == 1 else average + 0.1 * (weights - average)
            self.assertLess(abs(average - kept).max(), 1e-6)
        self.assertGreater(abs(average - weights).max(), 1e-4)

    def test_evaluations_use_it(self):
        for evaluate, ranks in (("true", 1), ("true", 2), ("false", 1)):
            self.write("test.yaml", self.CONFIG % ("{decay: 0.95, evaluate: %s}" % evaluate))
            self.run_program("test.yaml", "--fresh", "--nproc", ranks)
            last = self.events("epoch")[-1]
            own = json.loads(self.run_program("eval", "test.yaml")[0])["loss"]
            other = json.loads(self.run_program("eval", "test.yaml", "--weights",
                                                "trained" if evaluate == "true" else "average")[0])["loss"]
            self.assertAlmostEqual(own, last["val_loss"], places=12)
            self.assertGreater(abs(own - other), 1e-3)

    def test_choice(self):
        """A message names the weights that are used; --weights or else the run's evaluations select them, also for an export."""
        import h5py
        from test_weights import read_safetensors
        said = {"average": "; the moving average of the weights (--weights trained", "trained": "; the weights as trained (--weights average"}
        for evaluate, default in (("true", "average"), ("false", "trained")):
            self.write("test.yaml", self.CONFIG % ("{decay: 0.95, evaluate: %s}" % evaluate))
            self.run_program("test.yaml", "--fresh")
            with h5py.File(self.checkpoints()[-1]) as f:
                weights = {"average": f["ema/0.weight"][:], "trained": f["model/0.weight"][:]}
            losses = {}
            for which in (None, "average", "trained"):
                words = ["--weights", which] if which else []
                out, err = self.run_program("eval", "test.yaml", *words)
                self.assertIn(said[which or default], err)
                losses[which] = json.loads(out)["loss"]
                self.run_program("export", "runs/test", "--out", "w.safetensors", *words, err=said[which or default])
                self.assertTrue((read_safetensors(self.path("w.safetensors"))["0.weight"] == weights[which or default]).all())
            self.assertEqual(losses[None], losses[default])
            self.assertNotEqual(losses["average"], losses["trained"])
        self.run_program("eval", "test.yaml", "--weights", "both", code=USAGE, err="--weights: expected trained or average, got 'both'")
        self.write("plain.yaml", program.WINE)
        self.run_program("plain.yaml", "train.epochs=1")
        for words in (["eval", "plain.yaml"], ["export", "runs/plain", "--out", "w.safetensors"]):
            _, err = self.run_program(*words, "--weights", "average", code=USAGE)
            self.assertIn("it has no moving average of the weights (it was trained without train.ema)", err)

    def test_state_has_it(self):
        """Runs that differ in nothing but the average have different states."""
        states = []
        for decay in ("0.9", "0.95"):
            self.write("test.yaml", self.CONFIG % ("{decay: %s, evaluate: false}" % decay))
            self.run_program("test.yaml", "--fresh", "train.epochs=1")
            states.append((self.losses(), self.sha()))
        self.assertEqual(states[0][0], states[1][0])
        self.assertNotEqual(states[0][1], states[1][1])

    def test_resume_is_exact(self):
        self.write("test.yaml", self.CONFIG % "0.95")
        self.run_program("test.yaml", "--run-dir", "a")
        self.run_program("test.yaml", "--run-dir", "b", "train.epochs=2", "--nproc", 1)
        self.run_program("test.yaml", "--run-dir", "b")
        self.assertEqual(self.sha("a"), self.sha("b"))


class Best(program.Case):
    def test_the_first_of_equals(self):
        """Epochs that are equally good: the first of them is the best, whatever decides."""
        frozen = program.WINE.replace("lr: 0.001", "lr: 0").replace("epochs: 10", "epochs: 4")
        unsplit = frozen.replace(", split: {test: 0.2, seed: 42}", "").replace("shuffle: true", "shuffle: false")
        regression = frozen.replace("loss: cross_entropy", "loss: mse").replace("{out: 3}", "{out: 1}")
        for config in (frozen, unsplit, regression):
            self.write("test.yaml", config)
            self.run_program("test.yaml", "--fresh")
            self.assertEqual(self.events("end")[-1]["best_epoch"], 1)

    def test_no_number_is_no_best(self):
        """Where every step was skipped there is no loss to compare."""
        self.write("data.csv", "a,y\n" + "3e38,1\n" * 4)
        self.write("test.yaml", "dataset: {path: data.csv}\nsampler: {batch_size: 2}\nmodel: {layers: [{linear: {out: 8}}, {linear: {out: 1}}]}\n"
                   "loss: mse\ntrain: {epochs: 2, on_nonfinite: skip}\n")
        self.run_program("test.yaml")
        end = self.events("end")[-1]
        self.assertEqual((end["step"], end["best_epoch"], end["best_value"]), (0, 0, None))


class Optimizers(program.Case):
    def test_eps_may_be_0(self):
        """Where a gradient was always 0, as between the parameters in memory, 0 / 0 is no update."""
        for name in ("adam", "adamw", "nadam", "radam", "adamax", "adagrad", "rmsprop", "adadelta"):
            self.write("test.yaml", program.WINE.replace("{type: adam, lr: 0.001}", f"{{type: {name}, lr: 0.001, eps: 0}}"))
            for options in ((), ("--nproc", 2, "dist.zero_stage=1")):
                self.run_program("test.yaml", "--fresh", *options)
                self.assertLess(self.losses()[-1], 1.3, name)

    def test_a_plateau_counts_whole_epochs(self):
        """A run of 7 steps ends in its second epoch; continued, the schedule has seen what an uninterrupted run has."""
        config = program.WINE.replace("{epochs: 10}", "{steps: 40}").replace("lr: 0.001", "lr: 0.05")
        self.write("test.yaml", config + "schedule: {type: reduce_on_plateau, monitor: train_loss, factor: 0.5, patience: 0, threshold: 0.5}\n")
        self.run_program("test.yaml", "--run-dir", "runs/whole")
        for steps in (7, 13, 21, 34, 40):
            self.run_program("test.yaml", f"train.steps={steps}")
        self.assertGreater(len({s["lr"] for s in self.events("step", "runs/whole")}), 3)
        self.assertEqual([s["lr"] for s in self.events("step")], [s["lr"] for s in self.events("step", "runs/whole")])

    def test_a_plateau_of_any_metric(self):
        """A rise is progress for what should be large; metrics of the training count after each epoch."""
        config = program.WINE.replace("lr: 0.001", "lr: 0.02").replace("{epochs: 10}", "{epochs: 60, metrics: [f1], evaluate_every: 3}")
        self.write("test.yaml", config + "schedule: {type: reduce_on_plateau, monitor: val_f1, mode: auto, factor: 0.5, patience: 0, eps: 0}\n")
        for metric, options in (("val_f1", ()), ("val_accuracy", ()), ("val_loss", ()), ("train_accuracy", ("train.evaluate_every=0",))):
            self.run_program("test.yaml", f"schedule.monitor={metric}", "--run-dir", metric, *options)
            epochs, best, rate = self.events("epoch", metric), None, 0.02
            sign = -1 if metric.endswith("loss") else 1
            for epoch, following in zip(epochs, epochs[1:]):
                value = epoch.get(metric)
                is_better = value is not None and (best is None or sign * value > sign * best * (1 + sign * 1e-4))
                if is_better:
                    best = value
                elif value is not None:
                    rate /= 2
                self.assertAlmostEqual(following["lr"], rate, delta=1e-9 * rate, msg=f"{metric}, epoch {following['epoch']}")
            self.assertLess(rate, 0.02)

    def test_resume_with_a_plateau_groups_and_frozen_parameters(self):
        """A learning rate that was reduced, and is due to be reduced, is reduced at the same steps after a resume."""
        config = program.WINE.replace("{epochs: 10}", "{epochs: 12}").replace("save_every: 5", "save_every: 1, keep: 0")
        config = config.replace("model: {", "model: {freeze: 0.bias, ").replace("{type: adam, lr: 0.001}", (
            "{type: adamw, amsgrad: true, lr: 0.01, decay: matrices, groups: [{match: '2.*', lr_factor: 0.5}]}"))
        config += "schedule: {type: reduce_on_plateau, mode: max, factor: 0.7, patience: 1, cooldown: 1}\n"
        self.write("test.yaml", config)
        for ranks in (1, 2):
            self.run_program("test.yaml", "--run-dir", f"a{ranks}", "--nproc", ranks)
            rates = [e["lr"] for e in self.events("epoch", f"a{ranks}")]
            self.assertGreater(len(set(rates)), 2)
            for epochs in (3, 4, 5):
                folder = f"b{ranks}{epochs}"
                self.run_program("test.yaml", "--run-dir", folder, f"train.epochs={epochs}", "--nproc", ranks)
                self.run_program("test.yaml", "--run-dir", folder, "--nproc", ranks)
                self.assertEqual(self.sha(folder), self.sha(f"a{ranks}"))
                self.assertEqual([e["lr"] for e in self.events("epoch", folder)], rates)
        import h5py
        with h5py.File(self.checkpoints("a1")[0]) as first, h5py.File(self.checkpoints("a1")[-1]) as last:
            self.assertTrue((first["model/0.bias"][:] == last["model/0.bias"][:]).all())
            self.assertFalse((first["model/2.bias"][:] == last["model/2.bias"][:]).all())
            self.assertNotIn("0.bias", first["optimizer/exp_avg"])
            self.assertIn("max_exp_avg_sq", last["optimizer"])

    def test_frozen_later(self):
        """A checkpoint's state of what is frozen now is left; what was frozen has none to go on with."""
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml", "train.epochs=1", "--run-dir", "all")
        self.run_program("test.yaml", "train.epochs=2", "--run-dir", "some", "model.freeze=0.*", f"checkpoint.resume={self.checkpoints('all')[0]}")
        import h5py
        with h5py.File(self.checkpoints("all")[0]) as before, h5py.File(self.checkpoints("some")[-1]) as after:
            self.assertTrue((before["model/0.weight"][:] == after["model/0.weight"][:]).all())
            self.assertFalse((before["model/2.weight"][:] == after["model/2.weight"][:]).all())
            self.assertEqual(sorted(after["optimizer/exp_avg"]), ["2.bias", "2.weight"])
        err = self.run_program("test.yaml", "--run-dir", "again", f"checkpoint.resume={self.checkpoints('some')[-1]}", code=program.DATA)[1]
        self.assertIn("optimizer/exp_avg/0.weight: float32 (64, 13) in the config, not in the file", err)

    def test_clip_grad_value(self):
        """One step of plain SGD moves no weight by more than lr * limit."""
        import h5py
        config = program.WINE.replace("{epochs: 10}", "{steps: 2, clip_grad_value: 0.003}").replace("save_every: 5", (
            "save_every: {steps: 1}")).replace("{type: adam, lr: 0.001}", "{type: sgd, lr: 1}")
        self.write("test.yaml", config)
        self.run_program("test.yaml", "--nproc", 2)
        a, b = self.checkpoints()
        with h5py.File(a) as first, h5py.File(b) as last:
            moved = abs(first["model/0.weight"][:].astype("f8") - last["model/0.weight"][:])
        self.assertLess(moved.max(), 0.0030001)
        self.assertGreater((moved > 0.00299).sum(), 10)

    def test_the_logged_norm_is_that_before_clip_grad_value(self):
        """The first step's gradients are the same with any limit."""
        elastic = ["determinism={mode: elastic, shards: 4}", "sampler.batch_size=null", "sampler.global_batch_size=32"]
        for name, arguments in (("one process", []), ("two", ["--nproc", 2]), ("zero", ["--nproc", 2, "dist.zero_stage=1"]),
                                ("elastic", ["--nproc", 2, *elastic]), ("in backward", ["optimizer.in_backward=true"])):
            norms = []
            for limit in (0, 1e-4):
                self.write("test.yaml", program.WINE)
                self.run_program("test.yaml", "--fresh", "train.epochs=1", "train.log_every=1", f"train.clip_grad_value={limit}", *arguments)
                norms.append(self.events("step")[0]["grad_norm"])
            self.assertGreater(norms[0], 0.1, name)
            self.assertEqual(*norms, name)

    def test_mistakes(self):
        for change, sentence in (
                ("schedule={type: one_cycle}", None),
                ("optimizer={type: adagrad}", "one_cycle changes the momentum, and this optimizer has none"),
                ("model.freeze=nothing", "model.freeze: no parameter matches 'nothing'"),
                ("optimizer.groups=[{match: 9.*, lr: 1}]", "optimizer.groups.0: no parameter matches '9.*'"),
                ("train.clip_grad_norm=1", "give clip_grad_norm or clip_grad_value, not both")):
            self.write("test.yaml", program.WINE.replace("{epochs: 10}", "{epochs: 1, clip_grad_value: 1}")
                       + "schedule: {type: one_cycle}\n")
            _, err = self.run_program("check", "test.yaml", change, code=None if sentence is None else USAGE)
            if sentence:
                self.assertIn(sentence, err)
