#!/usr/bin/env python3
"""Compares every metric of ddptrain with scikit-learn's, on the same outputs and targets.

    tests/proof/compare_metrics.py build/release/bin/ddptrain

Cases: classes, binary decisions and values; with and without weights of rows; rows of one length and padded ones (the
positions of the mask are scikit-learn's samples); one row, one class, equal targets, targets of 0. A line with both numbers
and exit code 1 where they differ by more than 1e-5; where docs/metrics.md documents a difference, its value is required.
Needs python3-sklearn and python3-numpy.
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
from sklearn import metrics as sk

UNDEFINED = float("nan")
LENGTH, TOKENS = 6, 9
CONFIG = """
name: compare
seed: 3
dataset: {path: train.npz, validation: {path: test.npz}%s}
sampler: {batch_size: 8}
model: {layers: [%s]}
loss: %s
optimizer: {type: adam, lr: 0.05}
train: {epochs: 2, metrics: [%s]}
"""


def or_undefined(compute, *words, **options):
    """scikit-learn's number; NaN for one that it refuses to compute."""
    try:
        return compute(*words, **options)
    except ValueError:
        return UNDEFINED


def softmax(outputs):
    shares = np.exp(outputs - outputs.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def of_classes(outputs, targets, weights):
    """(n, classes), (n), (n)"""
    classes, shares, predicted = outputs.shape[1], softmax(outputs.astype("f8")), outputs.argmax(1)
    macro = dict(average="macro", zero_division=0, sample_weight=weights)
    present, occurring = np.union1d(targets, predicted), np.unique(targets)
    one_vs_rest = [or_undefined(sk.roc_auc_score, targets == c, shares[:, c], sample_weight=weights) for c in range(classes)]
    precisions = [sk.average_precision_score(targets == c, shares[:, c], sample_weight=weights) for c in range(classes) if c in targets]
    if classes == 2:
        precisions = precisions[-1:] if 1 in targets else [UNDEFINED]  # documented: scikit-learn's 0 for no positive target is null
    return {
        "accuracy": sk.accuracy_score(targets, predicted, sample_weight=weights),
        "balanced_accuracy": sk.balanced_accuracy_score(targets, predicted, sample_weight=weights),
        "precision": sk.precision_score(targets, predicted, **macro), "recall": sk.recall_score(targets, predicted, **macro),
        "f1": sk.f1_score(targets, predicted, **macro), "mean_iou": sk.jaccard_score(targets, predicted, **macro),
        "specificity": np.mean([sk.recall_score(targets != c, predicted != c, zero_division=0, sample_weight=weights) for c in present]),
        "mcc": sk.matthews_corrcoef(targets, predicted, sample_weight=weights),
        "cohen_kappa": sk.cohen_kappa_score(targets, predicted, sample_weight=weights),
        "auc": np.nanmean(one_vs_rest), "average_precision": np.mean(precisions),
        "top2": sk.top_k_accuracy_score(targets, outputs, k=2, labels=range(classes), sample_weight=weights) if classes > 2 else 1,
        "confusion_matrix": sk.confusion_matrix(targets, predicted, labels=range(classes), sample_weight=weights),
    } | ({"top5": sk.top_k_accuracy_score(targets, outputs, k=5, labels=range(classes), sample_weight=weights)} if classes > 5 else {})


def of_values(outputs, targets, weights):
    """(n, outputs), the same, (n)"""
    options, element = dict(sample_weight=weights), dict(sample_weight=np.repeat(weights, outputs.shape[1]))
    return {
        "mae": sk.mean_absolute_error(targets, outputs, **options), "rmse": sk.root_mean_squared_error(targets, outputs, **options),
        "mape": sk.mean_absolute_percentage_error(targets.ravel(), outputs.ravel(), **element),
        "max_error": sk.max_error(targets.ravel(), outputs.ravel()), "r2": sk.r2_score(targets, outputs, **options),
        "explained_variance": sk.explained_variance_score(targets, outputs, **options),
    }


def of_decisions(outputs, targets, weights):
    """(n, outputs) of logits, the same of 0 and 1, (n)"""
    columns, element = range(outputs.shape[1]), np.repeat(weights, outputs.shape[1])
    values = of_values(1 / (1 + np.exp(-outputs.astype("f8"))), targets, weights)
    mean = lambda compute: np.nanmean([or_undefined(compute, targets[:, c], outputs[:, c], sample_weight=weights) if targets[:, c].any() else UNDEFINED
                                       for c in columns])
    areas = {"auc": mean(sk.roc_auc_score), "average_precision": mean(sk.average_precision_score)}
    targets, predicted = targets.ravel().astype(int), (outputs.ravel() > 0).astype(int)
    options, positive = dict(sample_weight=element), dict(sample_weight=element, zero_division=0)
    matrix = sk.confusion_matrix(targets, predicted, labels=[0, 1], **options)
    recalls = [matrix[c, c] / matrix[c].sum() for c in (0, 1) if matrix[c].sum()]
    return {
        "accuracy": sk.accuracy_score(targets, predicted, **options), "balanced_accuracy": np.mean(recalls),
        "precision": sk.precision_score(targets, predicted, **positive), "recall": sk.recall_score(targets, predicted, **positive),
        "f1": sk.f1_score(targets, predicted, **positive), "mean_iou": sk.jaccard_score(targets, predicted, **positive),
        "specificity": sk.recall_score(targets, predicted, pos_label=0, **positive), "mcc": sk.matthews_corrcoef(targets, predicted, **options),
        "cohen_kappa": sk.cohen_kappa_score(targets, predicted, **options), "confusion_matrix": matrix,
    } | areas | {name: values[name] for name in ("mae", "rmse", "r2", "explained_variance")}


KINDS = {"cross_entropy": of_classes, "mse": of_values, "bce_with_logits": of_decisions}


CLASSES = "accuracy balanced_accuracy precision recall f1 mean_iou specificity mcc cohen_kappa auc average_precision confusion_matrix".split()
VALUES = "mae rmse r2 explained_variance".split()
METRICS = {"cross_entropy": CLASSES, "bce_with_logits": CLASSES + VALUES, "mse": VALUES + ["mape", "max_error"]}


class Comparison:
    def __init__(self, program):
        self.program, self.compared, self.different = os.path.abspath(program), 0, 0

    def run(self, *words):
        return subprocess.run([self.program, *words], check=True, capture_output=True, text=True).stdout

    def compare(self, name, loss, outputs, draw, rows, is_weighted, is_padded):
        """draw(random, shape): targets, (rows, positions or nothing, outputs or nothing)"""
        random = np.random.default_rng(rows)
        for part, count in (("train", 40), ("test", rows)):
            lengths = random.integers(1, LENGTH + 1, count)
            real = np.arange(LENGTH) < lengths[:, None]
            x = np.where(real, random.integers(1, TOKENS, real.shape), 0).astype("u1") if is_padded else random.normal(size=(count, 3)).astype("f4")
            shape = (count, LENGTH) if is_padded else (count,)
            y = draw(random, shape)
            weights = random.integers(1, 9, count) / 4 if is_weighted else np.ones(count)
            np.savez(part + ".npz", x=x, y=y, **({"w": weights.astype("f4")} if is_weighted else {}))
        layers = f"{{embedding: {{embedding_dim: 4, num_embeddings: {TOKENS}, padding_idx: 0}}}}, {{linear: {outputs}}}" if is_padded else f"{{linear: {outputs}}}"
        wanted = KINDS[loss]
        names = METRICS[loss] + ["top2"] * (loss == "cross_entropy") + ["top5"] * (loss == "cross_entropy" and outputs > 5)
        with open("compare.yaml", "w") as f:
            f.write(CONFIG % (", weights: w" if is_weighted else "", layers, loss, ", ".join(names)))
        self.run("compare.yaml", "--fresh")
        result = json.loads(self.run("eval", "compare.yaml"))
        self.run("predict", "compare.yaml", "--outputs", "--out", "p.csv")
        table = np.genfromtxt("p.csv", delimiter=",", names=True)
        z = np.atleast_2d(np.stack([table[n] for n in table.dtype.names if n.startswith("output")], -1)).reshape(rows, -1, outputs).astype("f4")
        t = y.reshape(rows, z.shape[1], -1)
        w = np.repeat(weights, z.shape[1])
        mask = real.ravel() if is_padded else np.ones(rows, bool)
        z, t, w = z.reshape(len(w), -1)[mask], t.reshape(len(w), -1)[mask], w[mask]
        expected = wanted(z, t[:, 0] if loss == "cross_entropy" else t, w)
        for metric, value in expected.items():
            got = np.array(result[metric], float)  # null: NaN
            self.compared += 1
            if not np.allclose(got, value, rtol=1e-5, atol=1e-6, equal_nan=True):
                self.different += 1
                print(f"{name}: {metric} is {result[metric]}, scikit-learn's {value}")

    def all(self):
        draws = [("classes", "cross_entropy", k, lambda r, s, k=k: r.integers(0, k, s)) for k in (2, 3, 7)]
        draws += [("one class", "cross_entropy", k, lambda r, s, c=c: np.full(s, c)) for k, c in ((2, 0), (2, 1), (3, 1))]
        draws += [("decisions", "bce_with_logits", k, lambda r, s, k=k: r.integers(0, 2, s + ((k,) if k > 1 else ())).astype("f4")) for k in (1, 3)]
        draws += [("one decision", "bce_with_logits", 1, lambda r, s, c=c: np.full(s, c, "f4")) for c in (0, 1)]
        draws += [("values", "mse", k, lambda r, s, k=k: r.normal(size=s + ((k,) if k > 1 else ())).astype("f4")) for k in (1, 2)]
        draws += [("equal values", "mse", 1, lambda r, s: np.full(s, 0.25, "f4")), ("values with 0", "mse", 1, lambda r, s: r.integers(0, 3, s).astype("f4"))]
        for name, loss, outputs, draw in draws:
            for rows in (1, 2, 33):
                for is_weighted in (False, True):
                    for is_padded in (False, True):
                        label = f"{name}, {outputs} outputs, {rows} rows{', weighted' * is_weighted}{', padded' * is_padded}"
                        self.compare(label, loss, outputs, draw, rows, is_weighted, is_padded)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of scikit-learn, about metrics that are not defined
    comparison = Comparison(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        comparison.all()
    print(f"{comparison.compared} values compared, {comparison.different} different")
    sys.exit(comparison.different > 0)
