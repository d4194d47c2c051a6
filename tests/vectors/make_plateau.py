"""Writes plateau.json: torch.optim.lr_scheduler.ReduceLROnPlateau on made-up losses."""
import json, os, random

import torch

CASES = [
    ("{type: reduce_on_plateau, patience: 2}", dict(patience=2)),
    ("{type: reduce_on_plateau, patience: 0, factor: 0.5, cooldown: 3}", dict(patience=0, factor=0.5, cooldown=3)),
    ("{type: reduce_on_plateau, patience: 1, mode: max, threshold: 0.05, threshold_mode: abs}",
     dict(patience=1, mode="max", threshold=0.05, threshold_mode="abs")),
    ("{type: reduce_on_plateau, patience: 1, factor: 0.3, min_lr: 0.002, threshold: 0.1}",
     dict(patience=1, factor=0.3, min_lr=0.002, threshold=0.1)),
    ("{type: reduce_on_plateau, patience: 0, mode: max, eps: 0.004}", dict(patience=0, mode="max", eps=0.004)),
]

runs = []
for seed, (config, arguments) in enumerate(CASES):
    generator = random.Random(seed)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **arguments)
    values = [1 / (1 + 0.2 * t) + 0.2 * generator.random() for t in range(40)]
    rates = []
    for value in values:
        scheduler.step(value)
        rates.append(optimizer.param_groups[0]["lr"])
    runs.append({"config": config, "values": values, "lr": rates})
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "plateau.json"), "w") as f:
    json.dump(runs, f, indent=None, separators=(",", ":"))
    f.write("\n")
