"""Rows with weights; the losses and the weights of models that PyTorch trains with a weighted loss, and scikit-learn's metrics with
sample_weight. Batches are the rows in order. Writes weights.json. Needs PyTorch and scikit-learn."""
import json
import os

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import metrics as m

ROWS, TRAIN, BATCH, EPOCHS, LR = 60, 45, 9, 3, 0.3
rng = np.random.default_rng(8)
x = rng.normal(size=(ROWS, 3)).round(4)
weight = rng.exponential(size=ROWS).round(3)
weight[::11] = 0
kind = np.argmax(x @ rng.normal(size=(3, 3)) + rng.normal(size=(ROWS, 3)) / 2, axis=1)
price = (x @ rng.normal(size=(3, 2)) + rng.normal(size=(ROWS, 2)) / 3).round(4)
yes = (price[:, :1] > 0).astype(int)


def classes(o, t, w):
    p = o.argmax(1)
    probabilities = torch.softmax(torch.tensor(o), 1).numpy()
    return {"accuracy": m.accuracy_score(t, p, sample_weight=w), "f1": m.f1_score(t, p, average="macro", sample_weight=w),
            "confusion_matrix": m.confusion_matrix(t, p, labels=range(3), sample_weight=w).tolist(),
            "precision": m.precision_score(t, p, average="macro", sample_weight=w, zero_division=0),
            "recall": m.recall_score(t, p, average="macro", sample_weight=w),
            "balanced_accuracy": m.balanced_accuracy_score(t, p, sample_weight=w),
            "specificity": np.mean([m.recall_score(t == c, p == c, pos_label=False, sample_weight=w) for c in range(3)]),
            "mcc": m.matthews_corrcoef(t, p, sample_weight=w), "cohen_kappa": m.cohen_kappa_score(t, p, sample_weight=w),
            "average_precision": m.average_precision_score(t, probabilities, sample_weight=w),
            "auc": np.mean([m.roc_auc_score(t == c, probabilities[:, c], sample_weight=w) for c in range(3)])}


def values(o, t, w):
    return {"mae": m.mean_absolute_error(t, o, sample_weight=w), "rmse": m.root_mean_squared_error(t, o, sample_weight=w),
            "mape": m.mean_absolute_percentage_error(t, o, sample_weight=w), "r2": m.r2_score(t, o, sample_weight=w),
            "explained_variance": m.explained_variance_score(t, o, sample_weight=w),
            "max_error": max(m.max_error(t[w > 0, i], o[w > 0, i]) for i in range(o.shape[1]))}


def decisions(o, t, w):
    p = (o > 0).astype(int)
    return {"accuracy": m.accuracy_score(t, p, sample_weight=w), "f1": m.f1_score(t, p, sample_weight=w),
            "balanced_accuracy": m.balanced_accuracy_score(t, p, sample_weight=w),
            "specificity": m.recall_score(t, p, pos_label=0, sample_weight=w),
            "mcc": m.matthews_corrcoef(t, p, sample_weight=w), "cohen_kappa": m.cohen_kappa_score(t, p, sample_weight=w),
            "average_precision": m.average_precision_score(t, o, sample_weight=w),
            "auc": m.roc_auc_score(t, o, sample_weight=w)}


class_weight = torch.tensor([1, 2.5, 0.5])
CASES = {
    "cross_entropy": ("kind", kind, lambda o, t: F.cross_entropy(o, t[:, 0].long(), reduction="none"), classes),
    "{type: cross_entropy, weight: [1, 2.5, 0.5], label_smoothing: 0.1}": (
        "kind", kind, lambda o, t: F.cross_entropy(o, t[:, 0].long(), weight=class_weight, label_smoothing=0.1, reduction="none"),
        classes),
    "mse": ("price", price, lambda o, t: F.mse_loss(o, t, reduction="none").mean(1), values),
    "smooth_l1": ("price", price, lambda o, t: F.smooth_l1_loss(o, t, reduction="none").mean(1), values),
    "bce_with_logits": ("yes", yes, lambda o, t: F.binary_cross_entropy_with_logits(o, t, reduction="none").mean(1), decisions),
}


def run(loss, target, row_losses, metrics):
    y = np.asarray(target, dtype=np.float64).reshape(ROWS, -1)
    outputs = 3 if target is kind else y.shape[1]
    start = {"weight": rng.normal(size=(outputs, 3)).round(3), "bias": rng.normal(size=outputs).round(3)}
    model = torch.nn.Linear(3, outputs)
    model.load_state_dict({k: torch.tensor(v, dtype=torch.float32) for k, v in start.items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    xs, ys = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    scaled = torch.tensor(weight / weight[:TRAIN].mean(), dtype=torch.float32)
    classes_of = class_weight[ys[:, 0].long()] if "weight:" in loss else torch.ones(ROWS)
    losses = []
    for _ in range(EPOCHS):
        for first in range(0, TRAIN, BATCH):
            part = slice(first, first + BATCH)
            mean = (scaled[part] * row_losses(model(xs[part]), ys[part])).sum() / classes_of[part].sum()
            optimizer.zero_grad()
            mean.backward()
            optimizer.step()
            losses.append(mean.item())
    with torch.no_grad():
        out, w = model(xs[TRAIN:]), torch.tensor(weight[TRAIN:])
        validation = (w * row_losses(out, ys[TRAIN:])).sum() / (w * classes_of[TRAIN:]).sum()
    measured = metrics(out.numpy().astype(np.float64), np.asarray(target)[TRAIN:], weight[TRAIN:])
    return {"start": {k: v.tolist() for k, v in start.items()}, "losses": losses, "validation": validation.item(),
            "metrics": {k: v if isinstance(v, list) else float(v) for k, v in measured.items()},
            "end": {k: v.tolist() for k, v in model.state_dict().items()}}


cases = {loss: {"target": case[0], **run(loss, *case[1:])} for loss, case in CASES.items()}
with open(os.path.join(os.path.dirname(__file__), "weights.json"), "w") as f:
    json.dump({"x": x.tolist(), "weight": weight.tolist(), "kind": kind.tolist(), "price": price.tolist(), "yes": yes[:, 0].tolist(),
               "cases": cases}, f)
    f.write("\n")
