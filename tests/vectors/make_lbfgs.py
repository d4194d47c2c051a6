"""Writes lbfgs.json: torch.optim.LBFGS in float64 on a function of tests/optim/test_lbfgs.c, the losses at the start of each step and the
numbers of evaluations after it, and the values at the end."""
import json
import os

import torch

SIZE = 24
CASES = [{"lr": 1.0}, {"lr": 0.5, "history_size": 3}, {"lr": 1.0, "line_search_fn": "strong_wolfe"},
         {"lr": 1.0, "line_search_fn": "strong_wolfe", "history_size": 2, "max_iter": 4}, {"lr": 8.0, "line_search_fn": "strong_wolfe", "max_iter": 3},
         {"lr": 0.2, "line_search_fn": "strong_wolfe", "max_iter": 5, "max_eval": 9}, {"lr": 0.3, "max_iter": 2}]


def loss_of(x):
    """sum of (i + 1) / 8 (x_i - sin i)^2 + (x_i x_i+1)^2 / 4"""
    i = torch.arange(SIZE, dtype=x.dtype)
    return ((i + 1) / 8 * (x - torch.sin(i)) ** 2).sum() + ((x[:-1] * x[1:]) ** 2 / 4).sum()


def case(options):
    x = torch.cos(torch.arange(SIZE, dtype=torch.float64)).requires_grad_()
    optimizer = torch.optim.LBFGS([x], **options)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        return loss

    losses, evaluations = [], []
    for _ in range(4):
        losses.append(float(optimizer.step(closure)))
        evaluations.append(optimizer.state[x]["func_evals"])
    return {"options": options, "losses": losses, "evaluations": evaluations, "values": x.tolist(), "end": float(loss_of(x))}


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lbfgs.json"), "w", encoding="utf-8") as f:
    json.dump([case(c) for c in CASES], f, separators=(",", ":"))
    f.write("\n")
