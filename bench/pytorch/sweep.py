"""The peer of bench/sweep.py, one JSON line.

    sweep.py TRIALS SEED     a study of Optuna's random sampler in memory, wine trials of 10 epochs trained in this process
"""
import json, sys, time

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


def wine():
    return nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 3))


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
    print(json.dumps(optuna_study(int(sys.argv[1]), int(sys.argv[2]))))
