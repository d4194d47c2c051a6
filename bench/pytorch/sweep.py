"""Peers of bench/sweep.py, one JSON line each.

    sweep.py vmap N                 N wine models trained at once by torch.func.vmap, one thread a process: model-steps per second
    sweep.py optuna TRIALS SEED     a study of Optuna's random sampler in memory, wine trials of 10 epochs trained in this process
"""
import copy, json, sys, time

import torch, torch.nn as nn, torch.nn.functional as F
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

torch.set_num_threads(1)
features, classes = load_wine(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(features, classes, test_size=0.2, random_state=42)
scaler = StandardScaler().fit(train_x)
train_x, test_x = (torch.tensor(scaler.transform(t), dtype=torch.float32) for t in (train_x, test_x))
train_y, test_y = torch.tensor(train_y), torch.tensor(test_y)


def wine(width=64):
    return nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, 3))


def vmap(count):
    from torch.func import functional_call, grad, stack_module_state, vmap as over_models
    parameters, _ = stack_module_state([wine() for _ in range(count)])
    parameters = {k: v.detach().requires_grad_() for k, v in parameters.items()}
    base = copy.deepcopy(wine()).to("meta")
    gradients = over_models(grad(lambda p, a, b: F.cross_entropy(functional_call(base, p, (a,)), b)))
    optimizer = torch.optim.Adam(list(parameters.values()), lr=1e-3, fused=True)

    def step():
        rows = torch.randint(0, len(train_x), (count, 32))
        for k, g in gradients(parameters, train_x[rows], train_y[rows]).items():
            parameters[k].grad = g
        optimizer.step()

    for _ in range(10):
        step()
    start, steps = time.perf_counter(), max(20, 100000 // count)
    for _ in range(steps):
        step()
    return {"model_steps_per_s": steps * count / (time.perf_counter() - start)}


def train(lr):
    """Ten epochs of five batches, with an evaluation after each, as the wine config has them."""
    model, best = wine(), float("inf")
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    for _ in range(10):
        order = torch.randperm(len(train_x))
        for i in range(0, len(order), 32):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(train_x[order[i:i + 32]]), train_y[order[i:i + 32]]).backward()
            optimizer.step()
        with torch.inference_mode():
            best = min(best, F.cross_entropy(model(test_x), test_y).item())
    return best


def optuna_study(trials, seed):
    import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    train(1e-3)
    start = time.perf_counter()
    study.optimize(lambda trial: train(trial.suggest_float("lr", 1e-4, 1e-1, log=True)), n_trials=trials)
    return {"trials_per_s": trials / (time.perf_counter() - start)}


if __name__ == "__main__":
    print(json.dumps(vmap(int(sys.argv[2])) if sys.argv[1] == "vmap" else optuna_study(int(sys.argv[2]), int(sys.argv[3]))))
