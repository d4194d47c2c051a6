#!/usr/bin/env python3
"""Measures how fast data is read (docs/performance.md), ddptrain and its peers in interleaved rounds; medians.

    bench/data.py [--rounds 3] [--csv-mb 1024] [--large-mb 2048] [--limit-mb 200] [--python PYTHON] [--folder /tmp]
    bench/data.py --only rows [--rows 1000000,10000000]    (docs/growth.md: peak memory; without peers)
    bench/data.py --only categories --only sqlite          (docs/growth.md: processor time, one thread each)
    bench/data.py --only parquet                           (the same; --binary of a build with Arrow)

PYTHON has pandas, pyarrow, scikit-learn, h5py, torch, torchvision and polars (from PyPI); a peer that is missing is skipped."""
import argparse, json, os, resource, shutil, statistics, subprocess, sys, tempfile, time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLUMNS, SIDE = 20, 96
RULES = ", ".join(f"n{i}: {{missing: median, scale: standard}}" for i in range(8)) + ", c0: {type: category}, c1: {type: category, missing: most_frequent}"
CONFIG = """dataset: {path: %s, cache_mb: %d%s}
sampler: {batch_size: 64}
model: {layers: [%s]}
loss: %s
optimizer: {type: sgd, lr: 1.0e-9}
train: {%s}
"""
TIMED = "import time\nstart = time.perf_counter()\n%s\nprint(time.perf_counter() - start)"  # without the imports
PEERS = {
    "pandas, C engine": "import pandas as pd\n" + TIMED % "pd.read_csv('numbers.csv', engine='c').to_numpy('float32')",
    "pyarrow, all threads": "import pyarrow.csv as c\n" + TIMED % "c.read_csv('numbers.csv')",
    "pandas + ColumnTransformer": "\n".join((
        "import pandas as pd", "from sklearn.compose import ColumnTransformer", "from sklearn.pipeline import make_pipeline",
        "from sklearn.impute import SimpleImputer", "from sklearn.preprocessing import OneHotEncoder, StandardScaler",
        "import time", "start = time.perf_counter()", "t = pd.read_csv('mixed.csv')",
        "n = make_pipeline(SimpleImputer(strategy='median'), StandardScaler())",
        "c = make_pipeline(SimpleImputer(strategy='most_frequent'), OneHotEncoder(handle_unknown='ignore', sparse_output=False))",
        "ColumnTransformer([('n', n, [f'n{i}' for i in range(8)]), ('c', c, ['c0', 'c1'])]).fit_transform(t).astype('float32')",
        "print(time.perf_counter() - start)")),
    "ImageFolder + DataLoader": "\n".join((
        "import time, torch", "from torchvision import datasets, transforms as T",
        f"s = datasets.ImageFolder('images', T.Compose([T.Resize(({SIDE}, {SIDE})), T.ToTensor()]))",
        "l = torch.utils.data.DataLoader(s, 64, shuffle=True, num_workers=2, persistent_workers=True)",
        "for _ in range(2):", "    start = time.perf_counter()", "    for x, y in l: pass", "print(time.perf_counter() - start)")),
}
PROCESSOR_TIMED = TIMED.replace("perf_counter", "process_time")
PARQUET = PEERS["pandas + ColumnTransformer"].replace("import time", "import pyarrow.parquet as pq\nimport time").replace(
    "pd.read_csv('mixed.csv')", "pq.read_table('mixed.parquet', use_threads=False).to_pandas()").replace("perf_counter", "process_time")
POLARS = "import polars as pl\n" + PROCESSOR_TIMED % "pl.read_csv('categories.csv')['c'].cast(pl.Categorical).to_physical()"
FETCH = """import sqlite3
import numpy as np
def numbers(rows, known):
    columns = list(zip(*rows))
    for i, texts in known.items():
        columns[i] = [texts.setdefault(t, len(texts)) for t in columns[i]]
    return np.array(columns, np.float64).T.astype(np.float32)
"""
SQLITE = {
    "sqlite3, fetchall, numpy": FETCH + PROCESSOR_TIMED % "numbers(sqlite3.connect('t.db').execute('select * from t').fetchall(), {8: {}, 9: {}})",
    "sqlite3, fetchmany, numpy": FETCH + PROCESSOR_TIMED % "\n".join((
        "cursor, known, parts = sqlite3.connect('t.db').execute('select * from t'), {8: {}, 9: {}}, []",
        "while rows := cursor.fetchmany(10000): parts.append(numbers(rows, known))", "np.concatenate(parts)")),
    "pandas.read_sql": "import sqlite3\nimport pandas as pd\n" + PROCESSOR_TIMED % "\n".join((
        "t = pd.read_sql('select * from t', sqlite3.connect('t.db'))",
        "for c in ('c0', 'c1'): t[c] = t[c].astype('category').cat.codes", "t.to_numpy('float32')")),
}
PEERS |= SQLITE | {"polars, read_csv + Categorical": POLARS, "pyarrow + ColumnTransformer": PARQUET}
MODULES = {"pandas, C engine": "pandas", "pyarrow, all threads": "pyarrow", "pandas + ColumnTransformer": "pandas, sklearn",
           "ImageFolder + DataLoader": "torchvision", "polars, read_csv + Categorical": "polars", "pyarrow + ColumnTransformer": "pyarrow, sklearn", **{name: "numpy, pandas" for name in SQLITE}}
MAKE = '''
import os, sys
import numpy as np
what, megabytes = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
if what == "numbers":
    block = "".join(",".join(map(repr, r)) + "\\n" for r in rng.normal(size=(20000, %d)).round(6).tolist())
    with open("numbers.csv", "w") as f:
        f.write(",".join(f"n{i}" for i in range(%d)) + "\\n")
        for _ in range(max(1, (megabytes << 20) // len(block))): f.write(block)
elif what == "mixed":
    rows = []
    for r in rng.normal(size=(20000, 8)).round(4).tolist():
        cells = ["" if rng.random() < 0.02 else repr(v) for v in r]
        rows.append(",".join(cells + [f"kind {rng.integers(12)}", "" if rng.random() < 0.02 else f"town {rng.integers(40)}", repr(round(rng.random(), 4))]))
    block = "\\n".join(rows) + "\\n"
    with open("mixed.csv", "w") as f:
        f.write(",".join(f"n{i}" for i in range(8)) + ",c0,c1,y\\n")
        for _ in range(max(1, (megabytes << 20) // 8 // len(block))): f.write(block)
elif what == "categories":
    texts = [f"{v:x}" for v in rng.integers(1 << 32, 1 << 63, 10 ** 6)]
    with open("categories.csv", "w") as f:
        f.write("c,x,y\\n")
        for _ in range(megabytes):
            rng.shuffle(texts)
            f.writelines(f"{t},{i %% 97},{i %% 13}\\n" for i, t in enumerate(texts))
elif what == "sqlite":
    import sqlite3
    db = sqlite3.connect("t.db")
    db.execute("create table t (n0, n1, n2, n3, n4, n5, i0, i1, c0, c1, y)")
    rows = zip(*rng.normal(size=(6, 10 ** 6)).tolist(), *rng.integers(1000, size=(4, 10 ** 6)).tolist(), rng.random(10 ** 6).tolist())
    db.executemany(f"insert into t values ({', '.join(11 * '?')})", ((*r[:8], f"kind {r[8] %% 12}", f"town {r[9] %% 40}", r[10]) for r in rows))
    db.commit()
elif what == "images":
    from PIL import Image
    for k in range(1500):
        os.makedirs(f"images/{k %% 3}", exist_ok=True)
        small = rng.integers(0, 256, size=(16, 16, 3), dtype=np.uint8)
        Image.fromarray(small).resize((320, 240), Image.BICUBIC).save(f"images/{k %% 3}/{k}.jpg", quality=90)
else:
    rows = megabytes << 20 >> 16
    x = np.lib.format.open_memmap("x.npy", "w+", np.float32, (rows, 16384))
    import h5py
    with h5py.File("x.h5", "w") as f:
        f["y"] = np.zeros(rows, np.float32)
        d = f.create_dataset("x", (rows, 16384), np.float32)
        for i in range(0, rows, 256):
            x[i:i + 256] = d[i:i + 256] = rng.random((min(256, rows - i), 16384), dtype=np.float32)
    x.flush()
    np.save("y.npy", np.zeros(rows, np.float32))
    os.sync()
''' % (COLUMNS, COLUMNS)


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="ddptrain-data-", dir=options.folder)

    def call(self, *words, limit=None):
        """(seconds, output)"""
        words = ["prlimit", f"--data={limit << 20}", *words] if limit else list(words)
        start = time.perf_counter()
        p = subprocess.run(list(map(str, words)), cwd=self.folder, capture_output=True, text=True)
        if p.returncode:
            sys.exit(f"failed: {words}\n{p.stdout}{p.stderr}")
        return time.perf_counter() - start, p.stdout

    def python(self, name):
        """The seconds that a peer prints."""
        return float(self.call(self.options.python, "-c", PEERS[name])[1])

    def make(self, what, megabytes):
        self.call(self.options.python, "-c", MAKE, what, megabytes)

    def check(self, path, keys):
        """Processor seconds of `check`, one thread: the program reads the table, prepares it and plans the run."""
        with open(os.path.join(self.folder, "bench.yaml"), "w") as f:
            f.write(CONFIG % (path, 1 << 20, keys, "{linear: 1}", "mse", "steps: 1"))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.call(self.options.binary, "check", "bench.yaml")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def peer(self, name):
        found = subprocess.run([self.options.python, "-c", f"import {MODULES[name]}"], capture_output=True).returncode == 0
        if not found:
            print(f"{name}: skipped, because {self.options.python} has no {MODULES[name]}")
        return found

    def program(self, path, layers, loss="mse", cache=1 << 20, keys="", train="steps: 1", limit=None):
        """(seconds of the program, seconds of the last epoch)"""
        with open(os.path.join(self.folder, "bench.yaml"), "w") as f:
            f.write(CONFIG % (path, cache, keys, layers, loss, train))
        shutil.rmtree(os.path.join(self.folder, "runs"), ignore_errors=True)
        seconds, _ = self.call(self.options.binary, "bench.yaml", "--quiet", limit=limit)
        with open(os.path.join(self.folder, "runs", "bench", "metrics.jsonl")) as f:
            epochs = [e for e in map(json.loads, f) if e["event"] == "epoch"]
        return seconds, epochs[-1] if epochs else None

    def forget(self, name):
        """Removes a file from the page cache."""
        fd = os.open(os.path.join(self.folder, name), os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def disk(self, name):
        """Seconds to read the file from start to end."""
        self.forget(name)
        start = time.perf_counter()
        with open(os.path.join(self.folder, name), "rb", buffering=0) as f:
            while f.read(4 << 20):
                pass
        return time.perf_counter() - start

    def table(self, title, cases):
        print(f"\n{title}\n", flush=True)
        times = {name: [] for name in cases}
        for _ in range(self.options.rounds):
            for name, measure in cases.items():
                times[name].append(measure())
        own = statistics.median(next(iter(times.values())))
        print("| | seconds | ratio |\n|---|---|---|")
        for name, values in times.items():
            print(f"| {name} | {statistics.median(values):.3g} [{min(values):.3g} - {max(values):.3g}] | {statistics.median(values) / own:.2f}x |", flush=True)

    def numbers(self):
        self.make("numbers", self.options.csv_mb)
        cases = {"ddptrain: read, fingerprint, first step": lambda: self.program("numbers.csv", "{linear: 1}")[0]}
        cases |= {n: (lambda n=n: self.python(n)) for n in list(PEERS)[:2] if self.peer(n)}
        self.table(f"CSV of {self.options.csv_mb} MiB, {COLUMNS} columns of numbers", cases)
        os.remove(os.path.join(self.folder, "numbers.csv"))

    def mixed(self):
        self.make("mixed", self.options.csv_mb)
        name = "pandas + ColumnTransformer"
        cases = {"ddptrain: read, prepare, first step": lambda: self.program("mixed.csv", "{linear: 1}", keys=f", columns: {{{RULES}}}")[0]}
        if self.peer(name):
            cases[name] = lambda: self.python(name)
        self.table(f"CSV of {self.options.csv_mb // 8} MiB, 8 columns of numbers, 2 of categories, missing values", cases)

    def parquet(self):
        self.make("mixed", self.options.csv_mb)
        self.call(self.options.python, "-c", "import pandas as pd; pd.read_csv('mixed.csv').to_parquet('mixed.parquet', row_group_size=100000)")
        name = "pyarrow + ColumnTransformer"
        cases = {"ddptrain check: read, prepare, plan": lambda: self.check("mixed.parquet", f", columns: {{{RULES}}}")}
        if self.peer(name):
            cases[name] = lambda: self.python(name)
        self.table(f"Parquet file of {os.path.getsize(os.path.join(self.folder, 'mixed.parquet')) >> 20} MiB, the columns of mixed: processor time", cases)

    def categories(self):
        """One column of texts, all different, and the same ones several times in other orders."""
        name = "polars, read_csv + Categorical"
        for rows in (1, 4):
            self.make("categories", rows)
            cases = {"ddptrain check: read, sorted categories, table": lambda: self.check("categories.csv", ", targets: y, columns: {c: {type: category, encoding: ordinal}}")}
            if self.peer(name):
                cases[name] = lambda: self.python(name)
            self.table(f"CSV of {rows} x 10^6 rows, 10^6 different texts in a column of three: processor time", cases)

    def sqlite(self):
        self.make("sqlite", 0)
        rules = "{c0: {type: category, encoding: ordinal}, c1: {type: category, encoding: ordinal}}"
        cases = {"ddptrain check: read, categories, table": lambda: self.check("t.db", f", targets: y, columns: {rules}")}
        cases |= {n: (lambda n=n: self.python(n)) for n in SQLITE if self.peer(n)}
        self.table("SQLite, 10^6 rows of 9 numbers and 2 texts into float32: processor time", cases)

    def images(self):
        name = "ImageFolder + DataLoader"
        if not self.peer(name):
            return
        self.make("images", 0)
        keys = f", image: {{size: [{SIDE}, {SIDE}]}}"

        def own():
            epoch = self.program("images", f"{{avg_pool2d: {{kernel_size: {SIDE}}}}}, flatten, {{linear: 3}}", "cross_entropy", 0, keys, "epochs: 2")[1]
            return 1500 / epoch["samples_per_second"]
        self.table(f"1500 JPEG files of 320x240 resized to {SIDE}x{SIDE}, an epoch",
                   {"ddptrain, with a step of a small model": own, name + ", 2 workers, no model": lambda: self.python(name)})

    def rows(self):
        """Peak memory and training rows a second of 14 inputs and a target: the runs in memory and from a file."""
        print("| rows | numbers | the table | from memory | ratio | cache_mb: 32 | rows/s from memory | from the file |\n|---|---|---|---|---|---|---|---|")
        for rows in map(int, self.options.rows.split(",")):
            for name, number in (("5 decimals", "{:.5f}".format), ("all digits", repr)):
                values = ((k * 0.6180339887498949) % 1 - 0.5 for k in range(1, 15 * 20000 + 1))
                block = "".join(",".join(number(next(values)) for _ in range(15)) + "\n" for _ in range(20000))
                with open(os.path.join(self.folder, "rows.csv"), "w") as f:
                    f.write(",".join(f"n{i}" for i in range(14)) + ",y\n")
                    for _ in range(rows // 20000):
                        f.write(block)
                peaks, rates = [], []
                for cache in (1 << 20, 32):
                    epoch = self.program("rows.csv", "{linear: 1}", cache=cache, keys=", scale: standard, split: 0.2", train="epochs: 1")[1]
                    rates.append(epoch["samples_per_second"])
                    with open(os.path.join(self.folder, "runs", "bench", "metrics.jsonl")) as f:
                        peaks.append([e for e in map(json.loads, f) if e["event"] == "end"][-1]["peak_memory_bytes"])
                print(f"| {rows:,} | {name} | {rows * 60 >> 20} MiB | {peaks[0] >> 20} MiB | {peaks[0] / (rows * 60):.2f} | {peaks[1] >> 20} MiB | {rates[0]:.2g} | {rates[1]:.2g} |", flush=True)

    def large(self):
        self.make("large", self.options.large_mb)
        limit = self.options.limit_mb
        for name, path in (("x.npy", "x.npy"), ("x.h5", "x.h5")):
            def own():
                self.forget(name)
                epoch = self.program(path, "{linear: 1}", cache=0, train="epochs: 1", limit=limit)[1]
                return (self.options.large_mb << 20 >> 16) / epoch["samples_per_second"]
            self.table(f"{name} of {self.options.large_mb} MiB, rows of 64 KiB, a shuffled epoch with at most {limit} MiB of own memory (RLIMIT_DATA)",
                       {"ddptrain": own, "reading the file from start to end": lambda: self.disk(name)})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv-mb", type=int, default=1024)
    parser.add_argument("--large-mb", type=int, default=2048)
    parser.add_argument("--rows", default="1000000,10000000")
    parser.add_argument("--limit-mb", type=int, default=200)
    parser.add_argument("--python", default="python3")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--only", choices=["numbers", "mixed", "images", "large", "rows", "categories", "sqlite", "parquet"], action="append")
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build", "release", "bin", "ddptrain"))
    options = parser.parse_args()
    options.binary = os.path.abspath(options.binary)
    if set(options.only or ()) <= {"categories", "sqlite", "parquet"} and options.only:
        os.environ |= {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    bench = Bench(options)
    try:
        for part in options.only or ["numbers", "mixed", "images", "large"]:
            getattr(bench, part)()
    finally:
        shutil.rmtree(bench.folder)


if __name__ == "__main__":
    main()
