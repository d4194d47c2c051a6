"""Writes schedules.json: rates and momenta of torch.optim.lr_scheduler's CyclicLR and OneCycleLR, also after LinearLR, and of
LambdaLR for tables of points."""
import json, os, warnings

import torch

warnings.simplefilter("ignore")


def between(points, is_step):
    """The factor of a table of points, as numpy.interp computes it between two."""
    at = sorted(points)

    def factor(t):
        if t <= at[0]:
            return points[at[0]]
        if t >= at[-1]:
            return points[at[-1]]
        low = max(a for a in at if a <= t)
        high = min(a for a in at if a > t)
        return points[low] if is_step else points[low] + (points[high] - points[low]) * ((t - low) / (high - low))
    return factor


POINTS = {0: 1.0, 4: 0.5, 10: 0.8, 11: 0.1}
LATER = {3: 0.2, 9: 1.0}
CASES = [
    ("{type: cyclic, base_lr: 0.01, max_lr: 0.3, step_size_up: 5}", "CyclicLR", dict(base_lr=0.01, max_lr=0.3, step_size_up=5)),
    ("{type: cyclic, base_lr: 0.01, max_lr: 0.3, step_size_up: 4, step_size_down: 7, mode: triangular2, base_momentum: 0.7, max_momentum: 0.95}", "CyclicLR",
     dict(base_lr=0.01, max_lr=0.3, step_size_up=4, step_size_down=7, mode="triangular2", base_momentum=0.7, max_momentum=0.95)),
    ("{type: cyclic, max_lr: 0.3, step_size_up: 3, step_size_down: 2, mode: exp_range, gamma: 0.97}", "CyclicLR",
     dict(base_lr=0.1, max_lr=0.3, step_size_up=3, step_size_down=2, mode="exp_range", gamma=0.97)),
    ("{type: cyclic, base_lr: 0.01, max_lr: 0.3, step_size_up: 3, cycle_momentum: false}", "CyclicLR",
     dict(base_lr=0.01, max_lr=0.3, step_size_up=3, cycle_momentum=False)),
    ("{type: one_cycle, total_iters: 36, warmup: 4}", "OneCycleLR", dict(max_lr=0.1, total_steps=36)),
    ("{type: one_cycle, total_iters: 3, warmup: 4}", "OneCycleLR", dict(max_lr=0.1, total_steps=3)),
    ("{type: cyclic, max_lr: 0.3, step_size_up: 3, warmup: 5}", "CyclicLR", dict(base_lr=0.1, max_lr=0.3, step_size_up=3)),
    ("{type: piecewise, points: {0: 1.0, 4: 0.5, 10: 0.8, 11: 0.1}}", "LambdaLR", dict(lr_lambda=between(POINTS, False))),
    ("{type: piecewise, points: {0: 1.0, 4: 0.5, 10: 0.8, 11: 0.1}, interpolation: step}", "LambdaLR", dict(lr_lambda=between(POINTS, True))),
    ("{type: piecewise, points: {3: 0.2, 9: {factor: 1.0}}}", "LambdaLR", dict(lr_lambda=between(LATER, False))),
]

runs = []
for config, kind, arguments in CASES:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    linear = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1, int(config.split("warmup: ")[1][:-1])) if "warmup" in config else None
    scheduler = getattr(torch.optim.lr_scheduler, kind)(optimizer, **arguments)
    if linear:
        scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [linear, scheduler], [linear.total_iters])
    run = {"config": config, "lr": [], "momentum": []}
    count = min(40, arguments.get("total_steps", 40) + 4)
    for i in range(count):
        group = optimizer.param_groups[0]
        run["lr"].append(group["lr"])
        run["momentum"].append(group["momentum"])
        optimizer.step()
        if i < count - 1:
            scheduler.step()
    if kind == "LambdaLR" or not arguments.get("cycle_momentum", True):
        del run["momentum"]
    runs.append(run)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "schedules.json"), "w") as f:
    json.dump(runs, f, separators=(",", ":"))
    f.write("\n")
