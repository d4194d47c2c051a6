"""The layers of docs/pytorch.md that compute a class of PyTorch, against NumPy. ctest-labels: unit"""
import json
import os
import re

import h5py
import numpy as np

import program

ROWS = 7


def pools(x, size):
    """(rows, channels, height / size, width / size, size * size)"""
    r, c, h, w = x.shape
    parts = x[:, :, :h // size * size, :w // size * size].reshape(r, c, h // size, size, w // size, size)
    return parts.transpose(0, 1, 2, 4, 3, 5).reshape(r, c, h // size, w // size, -1)


def local_response_norm(x):
    squares = np.pad(x ** 2, ((0, 0), (2, 2), (0, 0), (0, 0)))
    return x / (2 + 0.1 / 5 * sum(squares[:, i:i + x.shape[1]] for i in range(5))) ** 0.75


def softmin(x):
    e = np.exp(-x)
    return e / e.sum(-1, keepdims=True)


def cosine(a, b, _):
    return ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))[:, None]


def log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def adaptive_log_softmax(x, *weights):
    """Of the weights in the order of their names: head, both matrices of each cluster."""
    head, first, *second = [log_softmax(x @ weights[i].T if i == 0 else x @ weights[i].T @ weights[i + 1].T) for i in (0, 1, 3)]
    return np.concatenate([head[:, :2], first + head[:, 2:3], second[0] + head[:, 3:]], 1)


# class: shapes of its inputs, function of them and of the weight
CLASSES = {
    "Softmin": ([(5,)], lambda x, _: softmin(x)),
    "LPPool2d": ([(2, 6, 7)], lambda x, _: np.sqrt((pools(x, 3) ** 2).sum(-1))),
    "LocalResponseNorm": ([(6, 4, 4)], lambda x, _: local_response_norm(x)),
    "Bilinear": ([(5,), (4,)], lambda a, b, w: np.einsum("ri,oij,rj->ro", a, w.reshape(3, 5, 4), b)),
    "CosineSimilarity": ([(5,), (5,)], cosine),
    "TripletMarginWithDistanceLoss": ([(5,), (5,), (5,)], lambda a, b, c, _: np.maximum(0, 1 + np.abs(a - b).sum(1) - np.abs(a - c).sum(1))[:, None]),
    "AdaptiveLogSoftmaxWithLoss": ([(5,)], adaptive_log_softmax),
    "PairwiseDistance": ([(5,), (5,)], lambda a, b, _: np.linalg.norm(a - b + 1e-6, axis=1)[:, None]),
}


class SeveralLayers(program.Case):
    def recipes(self):
        with open(os.path.join(program.SOURCE, "docs", "pytorch.md"), encoding="utf-8") as f:
            section = f.read().split("### Classes that are several layers\n")[1].split("\n## ")[0]
        return re.findall(r"^\| `(\w+)\(.*?\)`.*? \| `(.*)` \|$", section, re.M)

    def test_layers(self):
        recipes = dict(self.recipes())
        self.assertEqual(set(recipes), set(CLASSES))
        for name, (shapes, function) in CLASSES.items():
            with self.subTest(name):
                r = np.random.default_rng(1)
                inputs = [r.normal(size=(ROWS, *shape)).astype("f4") for shape in shapes]
                named = {name: name for name in "abc"[:len(shapes)]}
                with h5py.File(self.path("data.h5"), "w") as f:
                    f.update(dict(zip("abc", inputs)))
                    f["y"] = np.zeros((ROWS, 1), "f4")
                self.write("test.yaml", f"dataset: {{path: data.h5, inputs: {json.dumps(named)}, targets: y}}\nsampler: {{batch_size: {ROWS}}}\n"
                           f"model:\n  layers: [{recipes[name][1:-1]}, {{flatten: {{name: end}}}}, {{linear: {{out: 1, name: last}}}}]\n"
                           "loss: mse\noptimizer: {type: sgd, lr: 0}\ntrain: {epochs: 1}\n")
                self.run_program("test.yaml", "--fresh")
                self.run_program("predict", "test.yaml", "--part", "all", "--out", "p.h5")
                with h5py.File(self.path("p.h5")) as p, h5py.File(self.checkpoints()[-1]) as checkpoint:
                    got, model = p["outputs"][:], checkpoint["model"]
                    weights = [model[key][:] for key in model if not key.startswith("last")]
                    last = model["last.weight"][:], model["last.bias"][:]
                values = function(*(x.astype("f8") for x in inputs), *(weights or [None])).reshape(ROWS, -1)
                np.testing.assert_allclose(got.reshape(ROWS, 1), values @ last[0].T + last[1], rtol=1e-5, atol=1e-6)
