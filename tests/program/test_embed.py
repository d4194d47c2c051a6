"""libddptrain_predict: programs in C, C++, Fortran and Python predict with the bits of `ddptrain predict`. ctest-labels: unit"""
import csv, ctypes, json, os, re, shutil, subprocess, unittest

import h5py
import numpy as np

import program
from program import BINARY, DATA, SANITIZER, SOURCE, USAGE

BUILD = os.path.dirname(os.path.dirname(BINARY))
LIBRARY = os.path.join(BUILD, "bin", "libddptrain_predict.so")
THREADS = 8
NULL = "\1"


def compiler(language="C"):
    """The one that the sanitizer of the build belongs to."""
    with open(os.path.join(BUILD, "CMakeCache.txt")) as f:
        found = re.search(r"^CMAKE_C%s_COMPILER:\w+=(.*)$" % ("" if language == "C" else "XX"), f.read(), re.M).group(1)
    return found if SANITIZER else {"C": "gcc", "C++": "g++"}[language]


class Embed(program.Case):
    def setUp(self):
        super().setUp()
        self.builds = {}

    def build(self, source, name, language="C", words=()):
        """Compiles a program against the header and the library."""
        flags = {"C": ["-std=c99", "-pedantic"], "C++": ["-x", "c++", "-std=c++11", "-pedantic"]}[language]
        sanitizer = [f"-fsanitize={SANITIZER}"] if SANITIZER else []
        command = [compiler(language), *flags, "-Wall", "-Wextra", "-Werror", "-g", "-O1", *sanitizer, "-I", os.path.join(SOURCE, "src/predict"), source,
                   "-x", "none", LIBRARY, f"-Wl,-rpath,{os.path.dirname(LIBRARY)}", "-lpthread", "-lm", "-o", self.path(name), *words]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.path(name)

    def driver(self):
        if "embed" not in self.builds:
            self.builds["embed"] = self.build(os.path.join(SOURCE, "tests/program/embed.c"), "embed")
        return self.builds["embed"]

    def embed(self, model, kind, rows, count, threads=1, repeats=2, code=0, env=None):
        """What the C program printed; with a failure its message."""
        done = subprocess.run([self.driver(), model, kind, str(count), str(threads), str(repeats)], input=rows, capture_output=True, cwd=self.folder,
                              env=self.environment(env), timeout=300 * program.SLOW)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        if code == 0:
            self.assertEqual(done.stderr, b"")
        return done.stdout if code == 0 else done.stderr.decode()

    def table(self, columns):
        names, rows = list(columns), len(next(iter(columns.values())))
        cells = [str(len(names)), *names, *(columns[name][i] for i in range(rows) for name in names)]
        return "".join(c + "\0" for c in cells).encode(), rows

    def predicted(self, config, *words):
        """Outputs, predictions and probabilities of `predict` for all rows."""
        self.run_program("predict", config, *words, "--out", "p.h5", "--probabilities")
        with h5py.File(self.path("p.h5")) as f:
            return f["outputs"][:], f["prediction"][:].astype("f8"), f["probabilities"][:]

    def predicted_values(self, config, *words):
        self.run_program("predict", config, *words, "--out", "p.h5")
        with h5py.File(self.path("p.h5")) as f:
            return f["outputs"][:], f["prediction"][:].astype("f8")

    def check(self, got, *expected):
        self.assertEqual(got, b"".join(np.ascontiguousarray(e).tobytes() for e in expected))

    # ---- models ----

    def train_wine(self):
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml")
        with h5py.File(self.path("datasets/wine.h5")) as f:
            return f["x"][:]

    def train_titanic(self):
        shutil.copy(os.path.join(SOURCE, "configs/titanic.yaml"), self.path("titanic.yaml"))
        self.run_program("titanic.yaml", "train.epochs=2", "checkpoint.save_every=1")
        with open(self.path("datasets/titanic.csv")) as f:
            rows = list(csv.DictReader(f))
        return {name: [row[name] for row in rows] for name in rows[0]}


class Predictions(Embed):
    def test_wine(self):
        x = self.train_wine()
        expected = self.predicted("test.yaml", "--part", "all")
        kind = "floats" if x.dtype == np.float32 else "doubles"
        for model in ("runs/test", "runs/test/checkpoints", "runs/test/checkpoints/epoch-0010.h5", "test.yaml"):
            with self.subTest(model=model):
                self.check(self.embed(model, kind, x.tobytes(), len(x)), *expected)
        self.write("test.yaml", program.WINE.replace("scale: standard", "scale: none"))
        self.assertIn("(training -> now):\n  dataset.scale.type: standard -> none\n", self.embed("test.yaml", kind, x.tobytes(), len(x), code=USAGE))

    def test_many_threads(self):
        x = self.train_wine()
        kind = "floats" if x.dtype == np.float32 else "doubles"
        self.check(self.embed("runs/test", kind, x.tobytes(), len(x), threads=THREADS, repeats=20), *self.predicted("test.yaml", "--part", "all"))

    def test_titanic(self):
        columns = self.train_titanic()
        expected = self.predicted("titanic.yaml", "--part", "all")
        del columns["Survived"]
        rows, count = self.table(columns)
        self.check(self.embed("runs/titanic", "table", rows, count), *expected)
        rows, count = self.table({name: [c or NULL for c in cells] for name, cells in reversed(columns.items())})
        self.check(self.embed("runs/titanic", "table", rows, count, threads=THREADS, repeats=3), *expected)

    def test_column_of_texts(self):
        from test_texts import CONFIG, reviews, tokenizer
        self.write("tokenizer.json", json.dumps(tokenizer()))
        self.write("test.yaml", CONFIG)
        self.write("train.csv", "review,stars\n" + "".join(f"{text},{stars}\n" for text, stars in reviews(80)))
        self.run_program("test.yaml")
        expected = self.predicted("test.yaml", "--part", "all")
        os.remove(self.path("tokenizer.json"))
        rows, count = self.table({"review": [text for text, _ in reviews(80)]})
        self.check(self.embed("runs/test", "table", rows, count), *expected)
    def test_unknown_categories_and_missing_values(self):
        self.train_titanic()
        columns = {"Pclass": ["4", "3.0", "1.0"], "Sex": ["male", "x", "female"], "Age": ["", "nan", "1e1"], "SibSp": ["0", "1", "2"],
                   "Fare": ["1", "2.5", "3"], "Embarked": ["", "Z", "C"], "Booked": ["1911-03-28", "", "1912-01-01"]}
        self.write("new.csv", ",".join(columns) + "\n" + "".join(",".join(row) + "\n" for row in zip(*columns.values())))
        rows, count = self.table(columns)
        self.check(self.embed("runs/titanic", "table", rows, count), *self.predicted("titanic.yaml", "new.csv"))
        for name, cell, message in (("Fare", "x", "table:row 1: column 'Fare': 'x' is not a number"),
                                    ("SibSp", "", "table:row 1: column 'SibSp': missing value; the model was trained without a rule"),
                                    ("Fare", "inf", "column 'Fare': 'inf' is not a number"),
                                    ("Booked", "soon", "column 'Booked': ")):
            with self.subTest(name=name, cell=cell):
                changed = dict(columns, **{name: [columns[name][0], cell, columns[name][2]]})
                self.assertIn(message, self.embed("runs/titanic", "table", *self.table(changed), code=DATA))
        first = {name: cells for name, cells in columns.items() if name != "Pclass"}
        self.assertIn("there is no column 'Pclass', which the model was trained with",
                      self.embed("runs/titanic", "table", *self.table(first), code=DATA))
        del columns["Fare"]
        self.assertIn("there is no column 'Fare'", self.embed("runs/titanic", "table", *self.table(columns), code=DATA))
        self.assertIn("pass them by name", self.embed("runs/titanic", "floats", bytes(4000), 1, code=USAGE))

    def test_convolution(self):
        """Large ones are those of oneDNN, whose module the library finds; batches have the sizes of predict's."""
        r = np.random.default_rng(3)
        x = r.integers(0, 256, (70, 3, 12, 12)).astype("f4")
        with h5py.File(self.path("data.h5"), "w") as f:
            f["x"], f["y"] = x, r.integers(0, 3, 70)
        self.write("conv.yaml", "dataset: {path: data.h5, divide: 255, scale: {mean: [0.4, 0.5, 0.6], std: [0.2, 0.3, 0.25]}}\nsampler: {batch_size: 32}\n"
                                "model: {layers: [{conv2d: {out: 40, kernel_size: 5}}, batch_norm, relu, {conv2d: {out: 8, kernel_size: 3}}, flatten, {linear: 3}]}\n"
                                "loss: cross_entropy\noptimizer: {type: sgd, lr: 0.01}\ntrain: {epochs: 1}\n")
        self.run_program("conv.yaml")
        expected = self.predicted("conv.yaml", "--part", "all")
        self.check(self.embed("runs/conv", "floats", x.tobytes(), len(x), repeats=1), *expected)
        os.remove(self.path("data.h5"))  # only the checkpoint is needed
        self.check(self.embed("runs/conv", "floats", x.tobytes(), len(x), repeats=1, threads=4), *expected)

    def test_images_of_bytes(self):
        shutil.copy(os.path.join(SOURCE, "configs/mnist_cnn.yaml"), self.path("mnist.yaml"))
        words = ("model.layers=[{conv2d: {out: 2, kernel_size: 5, stride: 3}}, relu, flatten, {linear: 10}]", "name=mnist", "sampler.batch_size=2000")
        self.run_program("mnist.yaml", "train.epochs=1", *words, timeout=300)
        import gzip
        with gzip.open(self.path("datasets/mnist/t10k-images-idx3-ubyte.gz")) as f:
            x = np.frombuffer(f.read(), "u1", offset=16).reshape(-1, 784)[:200].astype("f4")
        outputs, classes, probabilities = self.predicted("mnist.yaml", *words, "--part", "all")
        self.check(self.embed("runs/mnist", "floats", x.tobytes(), 200), outputs[:200], classes[:200], probabilities[:200])
        x[1, 5] = 0.5
        self.assertIn("row 1, value 5: the model was trained with bytes", self.embed("runs/mnist", "floats", x.tobytes(), 200, code=DATA))

    def test_regression_in_the_unit_of_the_file(self):
        r = np.random.default_rng(4)
        rows = [(f"{a:.3f}", ["red", "green"][int(a > 0)], f"{1000 * a + 30:.4f}", f"{a * a:.5f}") for a in r.normal(size=60)]
        self.write("data.csv", "a,colour,size,weight\n" + "".join(",".join(row) + "\n" for row in rows))
        self.write("reg.yaml", "dataset: {path: data.csv, targets: [size, weight], target_scale: standard, scale: standard}\nsampler: {batch_size: 16}\n"
                               "model: {layers: [{linear: 8}, tanh, {linear: 2}]}\nloss: mse\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 2}\n")
        self.run_program("reg.yaml")
        rows, count = self.table({"a": [row[0] for row in rows], "colour": [row[1] for row in rows]})
        self.check(self.embed("runs/reg", "table", rows, count), *self.predicted_values("reg.yaml", "--part", "all"))

    def test_columns_that_are_expressions(self):
        """The program passes the columns that the expression reads, also the ignored ones."""
        r = np.random.default_rng(4)
        rows = [(f"{a:.3f}", f"{b:.3f}", f"{a * b:.4f}") for a, b in r.uniform(1, 2, size=(60, 2))]
        self.write("data.csv", "weight,height,y\n" + "".join(",".join(row) + "\n" for row in rows))
        self.write("reg.yaml", "dataset: {path: data.csv, targets: y, columns: {bmi: {expression: weight / height ^ 2}, weight: ignore}}\n"
                               "model: {layers: [{linear: 1}]}\nloss: mse\ntrain: {epochs: 2}\n")
        self.run_program("reg.yaml")
        columns = {"height": [row[1] for row in rows], "weight": [row[0] for row in rows]}
        self.check(self.embed("runs/reg", "table", *self.table(columns)), *self.predicted_values("reg.yaml", "--part", "all"))
        columns["height"][3] = "0"
        self.assertIn("column 'bmi': weight / height ^ 2 is infinite", self.embed("runs/reg", "table", *self.table(columns), code=DATA))
        del columns["weight"]
        self.assertIn("there is no column 'weight'", self.embed("runs/reg", "table", *self.table(columns), code=DATA))

    def test_numbers_as_the_texts_of_a_file(self):
        """A number is the category that a file writes as 0.1, and the missing value that it writes as -99.9."""
        r = np.random.default_rng(5)
        rows = [("-99.9" if i % 7 == 0 else f"{a:.3f}", ["0.1", "2.5", "red"][i % 3], f"{a * a:.5f}") for i, a in enumerate(r.normal(size=60))]
        self.write("data.csv", "a,code,y\n" + "".join(",".join(row) + "\n" for row in rows))
        self.write("reg.yaml", "dataset: {path: data.csv, missing: ['', -99.9], columns: {a: {missing: median}, code: category}}\n"
                               "model: {layers: [{linear: 8}, tanh, {linear: 1}]}\nloss: mse\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 2}\n")
        self.run_program("reg.yaml")
        rows = [row for row in rows if row[1] != "red"]
        self.write("new.csv", "a,code\n" + "".join(",".join(row[:2]) + "\n" for row in rows))
        cells, count = self.table({"\2a": [row[0] for row in rows], "\2code": [row[1] for row in rows]})
        self.check(self.embed("runs/reg", "table", cells, count), *self.predicted_values("reg.yaml", "dataset.path=new.csv"))

    def test_windows(self):
        """The rows of each window, of a table of numbers; not of columns that are prepared."""
        rows = np.column_stack([np.sin(np.arange(60) / 4), np.arange(60) % 7])
        self.write("rows.csv", "kind,a,y\n" + "".join(f"{'xy'[i % 2]},{a!r},{y!r}\n" for i, (a, y) in enumerate(rows.tolist())))
        self.write("reg.yaml", "name: reg\ndataset: {path: rows.csv, columns: {kind: ignore}, scale: standard, window: 5}\n"
                   "model: {layers: [flatten, {linear: 1}]}\nloss: mse\noptimizer: {type: sgd, lr: 0.01}\ntrain: {epochs: 1}\n")
        self.run_program("reg.yaml")
        x = np.array([rows[i:i + 5] for i in range(56)])
        self.check(self.embed("runs/reg", "doubles", x.tobytes(), len(x)), *self.predicted_values("reg.yaml"))
        self.assertIn("not trained with the columns of a table", self.embed("runs/reg", "table", *self.table({"a": ["1"] * 6, "y": ["2"] * 6}), code=USAGE))
        self.run_program("reg.yaml", "dataset.columns={kind: category}", "--run-dir", "runs/prepared")
        self.assertIn("the model reads windows of rows (dataset.window) with columns that are prepared",
                      self.embed("runs/prepared", "doubles", bytes(160), 1, code=USAGE))

    def test_text(self):
        text = "to be or not to be, that is the question. " * 8
        self.write("text.txt", text)
        self.write("text.yaml", "dataset: {path: text.txt, text: {block_size: 8, stride: 8}}\nsampler: {batch_size: 4}\n"
                                "model: {layers: [{embedding: 8}, {gru: 8}, {linear: 18}]}\nloss: cross_entropy\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 1}\n")
        classes = len(set(text))
        self.run_program("text.yaml", f"model.layers=[{{embedding: 8}}, {{gru: 8}}, {{linear: {classes}}}]")
        outputs, predictions = self.predicted_values("text.yaml", f"model.layers=[{{embedding: 8}}, {{gru: 8}}, {{linear: {classes}}}]", "--part", "all")
        ids = {c: i for i, c in enumerate(sorted(set(text)))}
        tokens = np.array([[ids[c] for c in text[i * 8:i * 8 + 8]] for i in range(len(outputs))], "i4")
        self.check(self.embed("runs/text", "tokens", tokens.tobytes(), len(tokens), threads=3), outputs, predictions)
        tokens[2, 3] = classes
        self.assertIn(f"row 2, token 3: {classes} is not a token", self.embed("runs/text", "tokens", tokens.tobytes(), len(tokens), code=DATA))

    def test_several_losses(self):
        r = np.random.default_rng(5)
        with h5py.File(self.path("data.h5"), "w") as f:
            f["x"], f["kind"], f["box"] = r.normal(size=(40, 6)).astype("f4"), r.integers(0, 3, 40), r.normal(size=(40, 2)).astype("f4")
        with h5py.File(self.path("data.h5")) as f:
            x = f["x"][:]
        self.write("heads.yaml", """
dataset: {path: data.h5, inputs: x, targets: {kind: kind, box: box}}
sampler: {batch_size: 16}
model: {layers: [{linear: 8}, {relu: {name: shared}}, {linear: {out: 3, name: class, from: shared}}, {linear: {out: 2, name: place, from: shared}}]}
losses:
  - {type: cross_entropy, output: class, target: kind}
  - {type: mse, output: place, target: box}
optimizer: {type: adam, lr: 0.01}
train: {epochs: 1}
""")
        self.run_program("heads.yaml")
        self.run_program("predict", "heads.yaml", "--part", "all", "--out", "p.h5", "--probabilities")
        with h5py.File(self.path("p.h5")) as f:
            parts = [f["predictions"][name] for name in f["predictions"]]
            kind = next(p for p in parts if "probabilities" in p)
            box = next(p for p in parts if "probabilities" not in p)
            predictions = np.column_stack([kind["prediction"][:].astype("f8"), box["prediction"][:].astype("f8")])
            self.check(self.embed("runs/heads", "floats", x.tobytes(), len(x)), f["outputs"][:], predictions, kind["probabilities"][:])


class Failures(Embed):
    def test_damaged_checkpoints(self):
        self.train_wine()
        with open(self.checkpoints()[-1], "rb") as f:
            whole = f.read()
        r = np.random.default_rng(6)
        for i in range(6):
            damaged = bytearray(whole[:int(r.integers(1, len(whole)))] if i % 2 else whole)
            damaged[int(r.integers(len(damaged)))] ^= 0x5a
            with open(self.path("damaged.h5"), "wb") as f:
                f.write(damaged)
            self.assertIn("damaged.h5", self.embed("damaged.h5", "floats", bytes(52), 1, code=DATA))

    def test_changed_checkpoints(self):
        """With a valid seal: what was changed is described, and nothing crashes."""
        self.train_wine()
        first = self.checkpoints()[-1]
        def texts(name, text):
            def change(f):
                del f[name]
                f[name] = np.bytes_(text)
            return change
        def shrink(f):
            values = f["model/0.weight"][:3]
            del f["model/0.weight"]
            f["model/0.weight"] = values
        for change, message, code in ((texts("data/inputs", '{"kind": "values", "shape": [99999999999, 99999999999], "divide": 1}'), "(data/inputs) is damaged", DATA),
                                      (texts("data/inputs", "[]"), "(data/inputs) is damaged", DATA),
                                      (texts("data/inputs", '{"kind": "values", "shape": [14], "divide": 1}'), "", None),
                                      (texts("config", "model: 3"), "model", None),
                                      (shrink, "0.weight", DATA)):
            shutil.copy(first, self.path("changed.h5"))
            program.change_checkpoint(self.path("changed.h5"), change)
            done = subprocess.run([self.driver(), "changed.h5", "floats", "1", "1", "1"], input=bytes(56), capture_output=True, cwd=self.folder, env=self.environment())
            self.assertIn(done.returncode, (USAGE, DATA) if code is None else (code,), done.stderr)
            self.assertIn(message, done.stderr.decode())

    def test_other_files(self):
        self.write("text.h5", "no checkpoint")
        os.makedirs(self.path("empty"))
        for path, code in (("text.h5", DATA), ("empty", DATA), ("nothing", DATA), ("datasets/wine.h5", DATA), ("none.yaml", USAGE)):
            with self.subTest(path=path):
                self.assertIn(os.path.basename(path), self.embed(path, "floats", bytes(52), 1, code=code))

    def test_wrong_rows(self):
        x = self.train_wine().astype("f4")
        x[3, 2] = np.inf
        self.assertIn("row 3, value 2: it is not a finite number", self.embed("runs/test", "floats", x.tobytes(), len(x), code=DATA))
        self.assertIn("not tokens", self.embed("runs/test", "tokens", x.tobytes(), len(x), code=USAGE))

    def test_columns_without_an_array(self):
        """Also where no row needs them."""
        self.train_wine()
        self.write("use.c", '#include <stdio.h>\n#include "ddptrain.h"\nint main(void) { ddptrain_options o = DDPTRAIN_OPTIONS; ddptrain_model *m;\n'
                            'ddptrain_results r = {0}; char text[200]; int code = ddptrain_model_open("runs/test", &o, &m, text, sizeof text);\n'
                            'if (code) return code;\ncode = ddptrain_predict_table(m, NULL, 2, 0, &r, text, sizeof text);\n'
                            'puts(text); ddptrain_model_close(m); return code == DDPTRAIN_USAGE ? 0 : 1; }\n')
        use = self.build(self.path("use.c"), "use")
        done = subprocess.run([use], cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=300 * program.SLOW)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "columns must not be NULL\n", ""))

    def test_checkpoint_of_an_earlier_version(self):
        """Without data/inputs the shape is that of the columns or the dataset."""
        x = self.train_wine()
        expected = self.predicted("test.yaml", "--part", "all")
        program.without_datasets(self.checkpoints()[-1], "data/inputs")
        kind = "floats" if x.dtype == np.float32 else "doubles"
        self.check(self.embed("runs/test", kind, x.tobytes(), len(x)), *expected)
        columns = self.train_titanic()
        expected = self.predicted("titanic.yaml", "--part", "all")
        program.without_datasets(self.checkpoints("runs/titanic")[-1], "data/inputs")
        self.check(self.embed("runs/titanic", "table", *self.table(columns)), *expected)

    @unittest.skipIf(SANITIZER, "the sanitizer has allocations of its own")
    def test_missing_memory(self):
        """A prediction without memory says so, and the next one works."""
        self.train_wine()
        tries = self.build(os.path.join(SOURCE, "tests/program/embed_memory.c"), "tries")
        done = subprocess.run([tries, "runs/test", "13", "60"], cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreaterEqual(int(done.stdout), 3)


class Languages(Embed):
    def test_cpp(self):
        self.write("use.cpp", '#include "ddptrain.h"\nint main() { ddptrain_options o = DDPTRAIN_OPTIONS; ddptrain_model *m; char text[200];\n'
                              'return ddptrain_model_open("none", &o, &m, text, sizeof text) == DDPTRAIN_DATA && !m && ddptrain_version()[0] ? 0 : 1; }\n')
        self.assertEqual(subprocess.run([self.build(self.path("use.cpp"), "use", "C++")], env=self.environment(), cwd=self.folder).returncode, 0)

    def example(self, name):
        return os.path.join(SOURCE, "examples/embed", name)

    def train_examples(self):
        self.train_wine()
        os.rename(self.path("runs/test"), self.path("runs/wine_mlp"))

    def run_example(self, *command):
        done = subprocess.run(command, cwd=self.folder, env=self.environment(), capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        return done.stdout

    def test_c_example(self):
        self.train_examples()
        example = self.build(self.example("wine.c"), "wine")
        lines = self.run_example(example).splitlines()
        self.assertEqual([line.split(",")[0] for line in lines], ["class 0", "class 1"])
        self.assertIn("no-run", subprocess.run([example, "no-run"], cwd=self.folder, capture_output=True, text=True).stderr)

    @unittest.skipIf(SANITIZER, "gfortran has no sanitizer of the library's compiler")
    def test_fortran_example(self):
        if not shutil.which("gfortran"):
            self.skipTest("gfortran is not installed: the Fortran example is not tested")
        self.train_examples()
        done = subprocess.run(["gfortran", "-Wall", "-Werror", self.example("wine.f90"), LIBRARY, f"-Wl,-rpath,{os.path.dirname(LIBRARY)}", "-o", "wine"],
                              cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        got = np.array(self.run_example("./wine").split(), "f8")
        row = np.array([[14.23, 1.71, 2.43, 15.6, 127, 2.8, 3.06, 0.28, 2.29, 5.64, 1.04, 3.92, 1065]], "f4")
        expected = np.frombuffer(self.embed("runs/wine_mlp", "floats", row.tobytes(), 1)[:12], "f4")
        np.testing.assert_array_equal(got.astype("f4"), expected)

    @unittest.skipIf(SANITIZER, "Python is not built with the sanitizer of the library")
    def test_python_example(self):
        self.train_titanic()
        got = self.run_example("/usr/bin/python3", self.example("titanic.py"), "runs/titanic", LIBRARY)
        self.write("new.csv", "Pclass,Sex,Age,SibSp,Fare,Embarked,Booked\n3,male,22,1,7.25,S,1912-03-14\n1,female,,0,80,,1912-04-01\n")
        _, classes, probabilities = self.predicted("titanic.yaml", "new.csv")
        numbers = np.array([line.split() for line in got.splitlines()], "f8")
        np.testing.assert_array_equal(numbers[:, 0], classes)
        np.testing.assert_array_equal(numbers[:, 1:].astype("f4"), probabilities)

    @unittest.skipIf(SANITIZER, "Python is not built with the sanitizer of the library")
    def test_only_the_header_is_visible_and_nothing_is_left_open(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout.split("\n")
        names = {line.split()[-1].split("@")[0] for line in symbols if " T " in line or " B " in line or " D " in line}
        with open(os.path.join(SOURCE, "src/predict/ddptrain.h")) as f:
            declared = set(re.findall(r"^[\w ]+\*?(ddptrain_\w+)\(", f.read(), re.M))
        self.assertEqual(names, declared)
        self.train_wine()
        library, model, message = ctypes.CDLL(LIBRARY), ctypes.c_void_p(), ctypes.create_string_buffer(300)
        before = os.listdir("/proc/self/fd")
        for _ in range(3):
            self.assertEqual(library.ddptrain_model_open(self.path("runs/test").encode(), None, ctypes.byref(model), message, ctypes.c_size_t(300)), 0, message.value)
            library.ddptrain_model_close(model)
        self.assertEqual(os.listdir("/proc/self/fd"), before)
