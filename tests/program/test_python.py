"""The Python package: the program's runs, predictions and failures from Python, and the wheel. ctest-labels: unit"""
import base64, contextlib, csv, hashlib, io, os, signal, subprocess, sys, threading, unittest, unittest.mock, zipfile

import h5py
import numpy as np

import program
from program import BINARY, DATA, SANITIZER, SOURCE, USAGE

PACKAGE = os.path.join(SOURCE, "packaging", "python")
sys.path.insert(0, PACKAGE)
os.environ["DDPTRAIN_PROGRAM"] = BINARY
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import ddptrain  # noqa: E402: from the path above

try:
    import pandas
except ImportError:
    pandas = None

WINE = {"seed": 42, "dataset": {"path": "datasets/wine.h5", "inputs": "x", "targets": "y", "scale": "standard", "split": {"test": 0.2, "seed": 42}},
        "sampler": {"batch_size": 32, "seed": 42}, "model": {"layers": [{"linear": {"out": 64}}, "relu", {"linear": {"out": 3}}]},
        "loss": "cross_entropy", "optimizer": {"type": "adam", "lr": 0.001}, "train": {"epochs": 10}, "checkpoint": {"save_every": 5}}
FLOWERS = {"dataset": {"path": "flowers.csv", "targets": "kind", "columns": {"colour": {"type": "category", "missing": "constant"}, "length": {"missing": "mean"}},
                       "split": 0.2}, "model": {"layers": [{"linear": {"out": 2}}]}, "loss": "cross_entropy", "optimizer": {"type": "adam", "lr": 0.1},
           "train": {"epochs": 20}, "sampler": {"batch_size": 8}}
# gcc's AddressSanitizer must be the first library of a process, which Python's is not
without_sanitizer = unittest.skipIf(SANITIZER, "a library with a sanitizer cannot be opened by Python")


class Python(program.Case):
    def setUp(self):
        super().setUp()
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)

    def train(self, config=WINE, **words):
        return ddptrain.train(config, **{"quiet": True, "run_dir": "runs/test", **words})

    def fails(self, code, sentence, function, *words, **named):
        with self.assertRaises(ddptrain.Error) as caught:
            function(*words, **named)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertRegex(str(caught.exception), sentence)

    def test_train_writes_what_the_program_writes(self):
        self.write("wine.yaml", program.WINE)
        self.run_program("wine.yaml", "optimizer.lr=0.01", "--run-dir", "runs/shell")
        run = ddptrain.train("wine.yaml", optimizer__lr=0.01, quiet=True)
        self.assertEqual(str(run.folder), "runs/wine")
        self.assertEqual(run.state, self.sha("runs/shell"))
        self.assertEqual(run.metrics()["val_loss"].tolist(), [e["val_loss"] for e in self.events("epoch", "runs/shell")])
        self.assertEqual(ddptrain.version(), "0.1.0")

    def test_a_mapping_is_a_config(self):
        run = ddptrain.train({**WINE, "name": "mapped"}, quiet=True)
        self.assertEqual(str(run.folder), "runs/mapped")
        two = self.train(nproc=2, **{"sampler.batch_size": np.int64(16), "optimizer": {"type": "adam", "lr": np.float32(0.001)}})
        self.assertEqual(two.events("start")[0]["world_size"], 2)
        np.testing.assert_allclose(two.metrics()["train_loss"], run.metrics()["train_loss"], rtol=1e-4)

    def test_names_of_runs(self):
        for name in ("x # y", "it's", "'quoted'", "7", "n" * 100):
            run = ddptrain.train({**WINE, "name": name, "train": {"epochs": 1}}, quiet=True)
            self.assertEqual(str(run.folder), f"runs/{name}")
        self.fails(USAGE, "name: must be a file name without '/', got 'a/b'", ddptrain.train, {**WINE, "name": "a/b"}, quiet=True)
        self.assertEqual(len(run.metrics("start")["world_size"]), 1)

    def test_what_it_prints(self):
        for quiet in (False, True):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.train(quiet=quiet, fresh=True)
            self.assertEqual("epoch 10/10" in out.getvalue(), not quiet)

    def test_a_stopped_run_continues(self):
        whole = self.train(run_dir="runs/whole")
        stopped = self.train(stop_after=12)
        self.assertEqual(stopped.events("stopped")[-1]["step"], 12)
        continued = self.train()
        self.assertEqual(continued.state, whole.state)
        self.assertEqual(continued.metrics()["epoch"].tolist(), whole.metrics()["epoch"].tolist())
        self.assertEqual(continued.metrics("step")["loss"].tolist(), whole.metrics("step")["loss"].tolist())

    def test_an_interrupt_saves(self):
        self.write("long.yaml", program.WINE.replace("epochs: 10", "epochs: 1000000"))
        def interrupt():
            self.wait_for(lambda: os.path.exists("runs/test/metrics.jsonl") and self.events("epoch"))
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            self.train("long.yaml")
        thread.join()
        self.assertEqual(len(self.events("stopped")), 1)
        self.assert_no_leftovers_but_this()

    def assert_no_leftovers_but_this(self):
        self.assertEqual([p for p in self.leftovers() if p != os.getpid()], [])

    def test_failures(self):
        self.fails(USAGE, r"^argument 'optimzer.lr=1': optimzer: unknown key; did you mean 'optimizer'", self.train, optimzer__lr=1)
        self.write("bad.yaml", program.WINE.replace("cross_entropy", "cross"))
        self.fails(USAGE, r"^bad.yaml:\d+:\d+: loss: unknown loss 'cross'", self.train, "bad.yaml")
        self.fails(program.NOT_FINITE, r"^the loss is not finite in epoch 1", self.train, optimizer__lr=1e30)
        self.fails(USAGE, "'runs/none' is not a run folder", ddptrain.Run, "runs/none")
        with unittest.mock.patch.dict(os.environ, {"DDPTRAIN_PROGRAM": "", "PATH": self.folder}):
            self.fails(USAGE, "is not installed: neither in this package nor in PATH", ddptrain.program)

    def test_what_is_not_there_or_damaged(self):
        """One sentence each, never a failure of Python's functions."""
        self.write("text.sh", "no program")
        os.chmod("text.sh", 0o755)
        for path, sentence in (("/nonexistent", "^DDPTRAIN_PROGRAM: '/nonexistent' is no executable file$"), (self.folder, "is no executable file$"),
                               (self.path("text.sh"), "^the program '.*text.sh' cannot be started: Exec format error$")):
            with unittest.mock.patch.dict(os.environ, {"DDPTRAIN_PROGRAM": path}):
                self.fails(USAGE, sentence, self.train)
                with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit) as ended:
                    ddptrain.main()
                self.assertEqual(ended.exception.code, USAGE)
                self.assertRegex(err.getvalue(), "^ddptrain: .*" + sentence.lstrip("^"))
        run = self.train()
        good = self.read("runs/test/metrics.jsonl")
        for text, sentence in (("{not\n", "^line 1 of 'runs/test/metrics.jsonl' is damaged: Expecting property name"), (good + "[1]\n", r"^line \d+ of .* is damaged: it is no event$"),
                               ("{}\n", "^line 1 of .* is damaged: there is no 'event'$"), ('{"event":"epoch","epoch":[1]}\n', "^line 1 of .*: it is no event$"),
                               ("[" * 100000 + "\n", "^line 1 of .* is damaged: "), ("\0" * 9 + "\n", "^line 1 of .* is damaged: Expecting value$")):
            self.write("runs/test/metrics.jsonl", text)
            self.fails(DATA, sentence, run.metrics)
            if "epoch" not in text:
                self.fails(DATA, sentence, lambda: run.state)
        self.write("runs/test/metrics.jsonl", good[:good.index('{"event":"epoch"') + 9])  # the first epoch is being written
        self.fails(USAGE, "^the run 'runs/test' has no event 'epoch' yet$", run.metrics)
        self.fails(USAGE, "^the run 'runs/test' has not ended$", lambda: run.state)
        self.assertEqual(run.events("epoch"), [])
        os.remove("runs/test/metrics.jsonl")
        self.fails(DATA, "^'runs/test/metrics.jsonl' cannot be read: No such file or directory$", run.metrics)
        for config, sentence in ((None, "^a config is a mapping or the path of a file, not NoneType$"), ({**WINE, "seed": object()}, "^a config has numbers, texts, lists and mappings: ")):
            self.fails(USAGE, sentence, self.train, config)
        self.fails(USAGE, "^run_dir is a path, not int$", self.train, run_dir=5)
        for config, sentence in (({"method": "grid"}, "^a sweep is the path of a file, not dict$"), ("none.yaml", "^cannot read config 'none.yaml': No such file or directory$")):
            self.fails(USAGE, sentence, ddptrain.sweep, config, quiet=True)
        self.fails(USAGE, "^a run is the path of its folder, not int$", ddptrain.Run, 5)
        os.mkdir("sweep")
        for text, sentence in ((None, "No such file or directory$"), ("", "its rows have not the same number of values$"), ("a,b\n1\n", "its rows have not the same number of values$"), ('"a', "unexpected end of data$")):
            if text is not None:
                self.write("sweep/trials.csv", text)
            self.fails(DATA, "^'sweep/trials.csv' cannot be read: " + sentence, ddptrain.Sweep("sweep").trials)

    @without_sanitizer
    def test_rows_that_are_no_rows(self):
        run = self.train()
        self.fails(USAGE, "^rows are an array of numbers or a table of columns by name: ", run.predict, [[1, 2], [1]])
        for kind in (complex, object, str, "M8[s]"):
            self.fails(USAGE, "^rows are an array of numbers or a table of columns by name, not ndarray of ", run.predict, np.zeros((1, 13)).astype(kind))
        self.fails(USAGE, "^a column is a list of values: ", run.predict, {"a": [[1], [1, 2]]})
        self.fails(DATA, "row 0, value 1: it is not a finite number", run.predict, np.ma.masked_equal(np.arange(13.0).reshape(1, 13), 1))
        with unittest.mock.patch.dict(os.environ, {"DDPTRAIN_LIBRARY": "libc.so.6"}), unittest.mock.patch.object(ddptrain, "_library", None):
            self.fails(USAGE, r"^the library for predictions, 'libc.so.6', cannot be opened \(DDPTRAIN_LIBRARY names it\): .*undefined symbol", ddptrain.Run("runs/test").predict, np.zeros((1, 13)))

    def test_weights(self):
        run = self.train()
        self.assertEqual(len(run.weights()), 4)
        with h5py.File(self.checkpoints()[-1]) as f:
            self.assertEqual(sorted(run.weights()), sorted(f["model"]))
            for name, value in run.weights().items():
                np.testing.assert_array_equal(value, f["model"][name][:])

    def test_sweep(self):
        self.write("wine.yaml", program.WINE)
        self.write("lr.yaml", "config: wine.yaml\nmethod: grid\nparameters: {optimizer.lr: {values: [0.0001, 0.01]}}\n")
        for sweep in (ddptrain.sweep("lr.yaml", quiet=True, train__epochs=5), ddptrain.sweep("lr.yaml", quiet=True, train__epochs=5)):
            self.assertEqual(str(sweep.folder), "sweeps/lr")
            trials = sweep.trials()
            self.assertEqual(trials["optimizer.lr"].tolist(), [0.0001, 0.01])
            self.assertEqual(sweep.best.state, trials["state_sha256"][np.argmin(trials["val_loss"])])

    # ---- predictions ----

    @without_sanitizer
    def test_predictions_are_those_of_the_program(self):
        run = self.train()
        out, _ = self.run_program("predict", "runs/test", "datasets/wine.h5", "--probabilities", "--outputs")
        rows = list(csv.DictReader(io.StringIO(out)))
        with h5py.File("datasets/wine.h5") as f:
            x = f["x"][:]
        self.assertEqual(run.predict(x).tolist(), [int(row["prediction"]) for row in rows])
        self.assertEqual(run.classes, ["0", "1", "2"])
        np.testing.assert_array_equal(run.predict_proba(x), np.array([[row[c] for c in run.classes] for row in rows], np.float32))
        np.testing.assert_array_equal(run.outputs(x), np.array([[row[f"output_{i}"] for i in range(3)] for row in rows], np.float32))
        np.testing.assert_array_equal(run.outputs(np.asfortranarray(x)), run.outputs(x))
        self.assertEqual(run.predict(x[:0]).shape, (0,))
        self.fails(USAGE, r"an array of the shape \(178, 3\) has no rows of \(13,\)", run.predict, x[:, :3])
        self.fails(USAGE, "rows are an array of numbers or a table", run.predict, ["a"])
        self.fails(DATA, "row 1, value 0: it is not a finite number", run.predict, np.where(np.arange(178)[:, None] == 1, np.nan, x))

    def write_flowers(self):
        rows = [("red", 1.5, "rose"), ("white", 3, "lily"), ("", 1, "rose"), ("white", 4, "lily")] * 10
        self.write("flowers.csv", "colour,length,kind\n" + "".join(f"{c},{n},{k}\n" for c, n, k in rows))
        return rows

    @without_sanitizer
    def test_tables(self):
        rows = self.write_flowers()
        run = self.train(FLOWERS)
        columns = {"colour": [c or None for c, _, _ in rows], "length": [n for _, n, _ in rows]}
        self.assertEqual(run.predict(columns).tolist(), [k for _, _, k in rows])
        self.assertEqual(sorted(run.classes), ["lily", "rose"])
        missing = {"colour": ["red"], "length": [float("nan")]}
        np.testing.assert_allclose(run.predict_proba(missing).sum(1), 1, rtol=1e-6)
        self.fails(USAGE, r"the column 'length' has the shape \(1,\), and the first one has 2 values", run.predict, {"colour": ["red", "red"], "length": [1.0]})
        self.fails(USAGE, r"the column 'length' has the shape \(\)", run.predict, {"colour": ["red"], "length": 1.0})
        self.fails(DATA, "there is no column .length.", run.predict, {"colour": ["red"]})
        read = {**columns, "colour": np.array([c.encode() for c, _, _ in rows])}  # as h5py reads texts
        self.assertEqual(run.predict(read).tolist(), run.predict(columns).tolist())
        for text in ("re\0d", "\udc80", b"\xff"):
            self.fails(DATA, "row 1 of the column 'colour' is no UTF-8 text without zero bytes", run.predict, {"colour": np.array(["red", text], dtype=object), "length": [1, 2]})
        if pandas:
            frame = pandas.DataFrame(columns)
            self.assertEqual(run.predict(frame).tolist(), run.predict(columns).tolist())
            frame["colour"] = frame["colour"].astype("category")
            self.assertEqual(run.predict(frame).tolist(), run.predict(columns).tolist())
            self.assertEqual(run.predict(frame[::-1]).tolist(), run.predict(columns).tolist()[::-1])
            self.assertEqual(len(pandas.DataFrame(run.metrics())), 20)

    @without_sanitizer
    def test_large_integers_are_categories(self):
        for numbers in (2**60 + np.arange(40) % 4, 2**53 + np.arange(40) % 2):
            self.write("large.csv", "number,kind\n" + "".join(f"{n},{'odd' if n % 2 else 'even'}\n" for n in numbers))
            run = self.train({**FLOWERS, "dataset": {"path": "large.csv", "targets": "kind", "columns": {"number": {"type": "category", "missing": "most_frequent"}}}}, fresh=True)
            for given in (numbers, numbers.astype(np.uint64), [str(n) for n in numbers], np.ma.masked_array(numbers, np.arange(40) == 3)):
                found, expected = run.predict({"number": given}).tolist(), ["odd" if n % 2 else "even" for n in numbers]
                self.assertEqual(found[:3] + found[4:], expected[:3] + expected[4:])

    @without_sanitizer
    def test_images_have_the_shape_of_those_in_the_file(self):
        x = np.random.default_rng(0).random((24, 3, 4, 4)).astype(np.float32)
        np.savez("images.npz", x=x, y=np.arange(24) % 2)
        run = self.train({**FLOWERS, "dataset": {"path": "images.npz", "inputs": "x", "targets": "y"}, "model": {"layers": ["flatten", {"linear": {"out": 2}}]}})
        np.testing.assert_array_equal(run.outputs(x.reshape(24, 48)), run.outputs(x))
        self.fails(USAGE, r"an array of the shape \(24, 4, 4, 3\) has no rows of \(3, 4, 4\)", run.predict, x.transpose(0, 2, 3, 1))

    @without_sanitizer
    def test_tokens(self):
        self.write("text.txt", "to be or not to be " * 40)
        run = self.train({"dataset": {"path": "text.txt", "format": "text", "text": {"block_size": 8}}, "model": {"layers": [{"embedding": {"num_embeddings": 8, "embedding_dim": 8}}, {"linear": {"out": 8}}]},
                          "loss": "cross_entropy", "optimizer": "adam", "train": {"epochs": 1}, "sampler": {"batch_size": 16}})
        tokens = np.arange(16).reshape(2, 8) % 7
        np.testing.assert_array_equal(run.outputs(tokens.astype(np.int8)), run.outputs(tokens))
        self.fails(USAGE, "takes tokens, which are integers, not float64", run.predict, tokens * 1.0)
        self.fails(DATA, "token", run.predict, tokens + 100)
        self.fails(DATA, "a token of the rows does not fit 32 bits", run.predict, tokens + 2**32)

    @without_sanitizer
    def test_a_regression_in_threads(self):
        self.write("line.csv", "a,b,y,z\n" + "".join(f"{i},{i % 7},{2 * i},{-i}\n" for i in range(100)))
        run = self.train({**FLOWERS, "dataset": {"path": "line.csv", "targets": ["y", "z"]}, "loss": "mse"})
        rows = np.arange(20, dtype=np.float32).reshape(10, 2)
        want = run.predict(rows)
        self.assertEqual((want.shape, want.dtype), ((10, 2), np.float64))
        self.fails(USAGE, "this model gives no probabilities", run.predict_proba, rows)
        got = [None] * 4
        threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, run.predict(rows))) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for values in got:
            np.testing.assert_array_equal(values, want)

    # ---- the wheel ----

    def test_wheel(self):
        for name in ("bin/ddptrain", "lib/libddptrain_predict.so.0.1.0", "share/ddptrain/configs/wine_mlp.yaml", "share/man/man1/ddptrain.1"):
            os.makedirs(os.path.dirname(self.path("tree", name)), exist_ok=True)
            self.write(f"tree/{name}", name)
        os.symlink("libddptrain_predict.so.0.1.0", self.path("tree/lib/libddptrain_predict.so.0"))
        os.mkdir(self.path("out"))
        subprocess.run([os.path.join(PACKAGE, "wheel.py"), self.path("tree"), "0.1.0", self.path("out")], check=True)
        with zipfile.ZipFile(self.path("out/ddptrain-0.1.0-py3-none-manylinux_2_28_x86_64.whl")) as wheel:
            names = set(wheel.namelist())
            self.assertIn("ddptrain/native/lib/libddptrain_predict.so.0", names)
            self.assertNotIn("ddptrain/native/share/man/man1/ddptrain.1", names)
            self.assertEqual(wheel.getinfo("ddptrain/native/bin/ddptrain").external_attr >> 16, 0o100755)
            record = list(csv.reader(io.StringIO(wheel.read("ddptrain-0.1.0.dist-info/RECORD").decode())))
            self.assertEqual({row[0] for row in record}, names)
            for name, digest, size in record:
                if not name.endswith("/RECORD"):
                    data = wheel.read(name)
                    wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, int(size)), (f"sha256={wanted}", len(data)), name)

    def test_the_command(self):
        done = subprocess.run([sys.executable, "-m", "ddptrain", "--version"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": PACKAGE})
        self.assertEqual((done.returncode, done.stdout), (0, self.run_program("--version")[0]), done.stderr)
