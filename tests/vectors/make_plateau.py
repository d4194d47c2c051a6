"""Writes plateau.json: torch.optim.lr_scheduler.ReduceLROnPlateau on made-up losses and metrics."""
import json, math, os, random

import torch

CASES = [
    ("{type: reduce_on_plateau, patience: 2}", dict(patience=2)),
    ("{type: reduce_on_plateau, patience: 0, factor: 0.5, cooldown: 3}", dict(patience=0, factor=0.5, cooldown=3)),
    ("{type: reduce_on_plateau, patience: 1, mode: max, threshold: 0.05, threshold_mode: abs}",
     dict(patience=1, mode="max", threshold=0.05, threshold_mode="abs")),
    ("{type: reduce_on_plateau, patience: 1, factor: 0.3, min_lr: 0.002, threshold: 0.1}",
     dict(patience=1, factor=0.3, min_lr=0.002, threshold=0.1)),
    ("{type: reduce_on_plateau, patience: 0, mode: max, eps: 0.004}", dict(patience=0, mode="max", eps=0.004)),
    *((f"{{type: reduce_on_plateau, patience: {patience}, cooldown: {patience}, factor: 0.7, mode: {mode}, threshold: {threshold}, threshold_mode: {kind}}}",
       dict(patience=patience, cooldown=patience, factor=0.7, mode=mode, threshold=threshold, threshold_mode=kind))
      for mode in ("min", "max") for kind in ("rel", "abs") for threshold in (0, 0.3, 1, 2.5) for patience in (0, 2)),
]

runs = []
for seed, (config, arguments) in enumerate(CASES):
    generator = random.Random(seed)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **arguments)
    values = [1 / (1 + 0.2 * t) + 0.2 * generator.random() for t in range(40)]
    if seed >= 5:  # also metrics below 0, and one that is not defined for some epochs, which are null
        values = [value - 0.4 * (seed % 3) for value in values]
        values[0] = values[17] = math.nan
    rates = []
    for value in values:
        scheduler.step(value)
        rates.append(optimizer.param_groups[0]["lr"])
    runs.append({"config": config, "values": [None if math.isnan(value) else value for value in values], "lr": rates})
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "plateau.json"), "w") as f:
    json.dump(runs, f, indent=None, separators=(",", ":"))
    f.write("\n")
