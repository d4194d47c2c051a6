#!/usr/bin/env python3
"""Compares the sampler of `method: tpe` with Optuna's TPESampler, on the functions of bench/tpe_functions.c:

    ninja -C build/release tpe_functions && bench/tpe.py [--trials N] [--seeds N] [--only sphere,levy] [--univariate]

A table of the medians, over the seeds, of the best value after the trials; all minima are 0. Of functions of two metrics it is the
hypervolume that the front leaves to be had, in parts of the reference, which is the smaller the better, too. ranks: mean rank of this sampler's results
over that of Optuna's, among the results of both; 1: equal, 0.34: each one is better than all of Optuna's. Optuna
(pip install optuna) has its defaults, or with --univariate `multivariate=False`, the default before 5.0."""
import argparse, json, os, platform, statistics, subprocess, sys

import optuna

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def suggest(trial, index, parameter):
    name, kind, low, high, step = f"x{index}", parameter["kind"], parameter["min"], parameter["max"], parameter["step"]
    if kind == "values":
        return trial.suggest_categorical(name, list(range(parameter["values"])))
    if kind.startswith("int"):
        return trial.suggest_int(name, int(low), int(high), step=int(step) or 1, log="log" in kind)
    return trial.suggest_float(name, low, high, step=step or None, log="log" in kind)


class Bench:
    def __init__(self, options):
        self.options = options

    def run(self, *arguments):
        return subprocess.run([self.options.binary, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    def ours(self, function):
        rows = [list(map(float, line.split())) for line in self.run("minimise", function["name"], self.options.trials, self.options.seeds)]
        return [result(function, list(zip(row[::2], row[1::2])) if "reference" in function else [row]) for row in rows]

    def optuna(self, function):
        """The same functions, computed by the same program."""
        best = []
        with subprocess.Popen([self.options.binary, "evaluate", function["name"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, bufsize=1) as program:
            def objective(trial):
                point = [suggest(trial, i, p) for i, p in enumerate(function["parameters"])]
                program.stdin.write(" ".join(map(repr, point)) + "\n")
                return tuple(map(float, program.stdout.readline().split()))
            for seed in range(self.options.seeds):
                settings = {"multivariate": False} if self.options.univariate else {}
                study = optuna.create_study(directions=["minimize"] * (1 + ("reference" in function)), sampler=optuna.samplers.TPESampler(seed=seed, **settings))
                study.optimize(objective, n_trials=self.options.trials)
                best.append(result(function, [trial.values for trial in study.trials]))
            program.stdin.close()
        return best


def result(function, values):
    """The best value, or what is not dominated of the rectangle from (0, 0) to the reference."""
    if "reference" not in function:
        return min(value for value, in values)
    width, height = function["reference"]
    area, low = 0, height
    for x, y in sorted(values):
        if x < width and y < low:
            area, low = area + (width - x) * (low - max(y, 0)), max(y, 0)
    return 1 - area / width / height


def rank_ratio(ours, theirs):
    ordered = sorted(ours + theirs)
    ranks = {value: (ordered.index(value) + len(ordered) - 1 - ordered[::-1].index(value)) / 2 + 1 for value in ordered}
    return statistics.mean(map(ranks.get, ours)) / statistics.mean(map(ranks.get, theirs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "tpe_functions"))
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--only", help="functions, separated by commas")
    parser.add_argument("--univariate", action="store_true")
    bench = Bench(parser.parse_args())
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(f"{bench.options.trials} trials, {bench.options.seeds} seeds; Optuna {optuna.__version__}, Python {platform.python_version()}")
    print(f"{'function':16} {'ours':>10} {'Optuna':>10} {'ratio':>8} {'ranks':>8}")
    worse = []
    for function in map(json.loads, bench.run("list")):
        if bench.options.only and function["name"] not in bench.options.only.split(","):
            continue
        ours, theirs = bench.ours(function), bench.optuna(function)
        medians = statistics.median(ours), statistics.median(theirs)
        if medians[0] > medians[1]:
            worse.append(function["name"])
        print(f"{function['name']:16} {medians[0]:10.4g} {medians[1]:10.4g} {medians[0] / medians[1]:8.3f} {rank_ratio(ours, theirs):8.3f}",
              flush=True)
    print("worse: " + (", ".join(worse) or "none"))
    return len(worse) > 0


if __name__ == "__main__":
    sys.exit(main())
