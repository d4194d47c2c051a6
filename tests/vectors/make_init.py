"""Writes init_torch2.json: draws of torch.nn.init's trunc_normal_ and orthogonal_ into the weight of a layer, and the next draw."""
import json, os, struct

import torch
from torch.nn import init

CASES = [  # rule of model.init, shape, function
    ("trunc_normal", (12, 9), lambda w: init.trunc_normal_(w)),
    ("{trunc_normal: {std: 0.5, mean: 0.1, a: -0.25, b: 0.6}}", (40, 64), lambda w: init.trunc_normal_(w, 0.1, 0.5, -0.25, 0.6)),
    ("{trunc_normal: {a: 0, b: 1}}", (7, 2), lambda w: init.trunc_normal_(w, a=0, b=1)),
    ("{trunc_normal: {std: 0.02, a: -0.02, b: 0.02}}", (50, 41), lambda w: init.trunc_normal_(w, std=0.02, a=-0.02, b=0.02)),
    ("{trunc_normal: {a: 2, b: 4}}", (50, 41), lambda w: init.trunc_normal_(w, a=2, b=4)),
    ("{trunc_normal: {mean: 1, std: 3, a: -0.5, b: 0.5}}", (3, 4), lambda w: init.trunc_normal_(w, 1, 3, -0.5, 0.5)),
    ("orthogonal", (8, 8), lambda w: init.orthogonal_(w)),
    ("{orthogonal: {gain: 1.5}}", (5, 40), lambda w: init.orthogonal_(w, 1.5)),
    ("orthogonal: 0.5", (37, 6), lambda w: init.orthogonal_(w, 0.5)),
]

cases = []
for rule, shape, draw in CASES:
    torch.manual_seed(42)
    weight = torch.empty(shape)
    draw(weight)
    cases.append({"rule": rule, "shape": shape, "h32": [struct.pack(">f", x).hex() for x in weight.flatten().tolist()],
                  "next": torch.empty((), dtype=torch.int64).random_().item()})
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "init_torch2.json"), "w") as f:
    json.dump({"torch": torch.__version__, "cases": cases}, f, separators=(",", ":"))
    f.write("\n")
