"""eval and predict: exact, the same on any number of ranks, the scaler and the weights of the checkpoint. ctest-labels: dist"""
import csv, json, os, shutil

import numpy as np

import program
from program import DATA, OK, USAGE


class Inference(program.Case):
    def setUp(self):
        super().setUp()
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml")

    def evaluate(self, *arguments, code=0):
        out, err = self.run_program("eval", "test.yaml", *arguments, code=code)
        return json.loads(out) if code == 0 else err

    def predict(self, *arguments, out="p.csv"):
        self.run_program("predict", "test.yaml", "--outputs", "--out", out, *arguments)
        with open(self.path(out)) as f:
            rows = list(csv.reader(f))
        return rows[0], np.array([[float(v) for v in row] for row in rows[1:]])

    def test_eval_agrees_with_training_on_any_number_of_ranks(self):
        last = self.events("epoch")[-1]
        for world in (1, 2, 3):
            result = self.evaluate("--nproc", world)
            self.assertEqual((result["part"], result["rows"]), ("validation", 36))
            self.assertAlmostEqual(result["loss"], last["val_loss"], places=12)
            self.assertEqual(result["accuracy"], last["val_accuracy"])
        self.assertEqual(self.evaluate("--part", "train")["rows"], 142)
        self.assertEqual(self.evaluate("--checkpoint", self.checkpoints()[0])["rows"], 36)
        self.assertNotEqual(self.evaluate("--checkpoint", self.checkpoints()[0])["loss"], self.evaluate()["loss"])

    def test_a_loss_that_is_not_finite_is_null(self):
        """Inputs so large that the outputs of the model are not finite."""
        import h5py
        with (h5py.File(self.path("datasets/wine.h5")) as d, h5py.File(self.path("large.h5"), "w") as f,
              h5py.File(self.checkpoints()[-1]) as c):
            f["x"], f["y"] = d["x"][:5].astype("f8"), d["y"][:5]
            f["x"][2] = 3e38 * c["scaler/scale"][:]
        result = self.evaluate("dataset.path=large.h5", "--part", "all")
        self.assertEqual((result["rows"], result["loss"]), (5, None))

    def test_predict_keeps_the_order_of_rows(self):
        import h5py
        for world in (1, 2, 5):
            names, table = self.predict("--nproc", world)
            self.assertEqual(names, ["row", "prediction", "output_0", "output_1", "output_2"])
            np.testing.assert_array_equal(table[:, 0], program.vectors("split")["n178_test0.2_seed42"]["test"])
            table = table[:, 1:]
            with h5py.File(self.checkpoints()[-1]) as f, h5py.File(self.path("datasets/wine.h5")) as d:
                x = (d["x"][:][program.vectors("split")["n178_test0.2_seed42"]["test"]] - f["scaler/mean"][:]) / f["scaler/scale"][:]
                hidden = np.maximum(x @ f["model/0.weight"][:].T + f["model/0.bias"][:], 0)
                expected = hidden @ f["model/2.weight"][:].T + f["model/2.bias"][:]
            np.testing.assert_allclose(table[:, 1:], expected, atol=2e-6)
            np.testing.assert_array_equal(table[:, 0], expected.argmax(1))
            self.run_program("predict", "test.yaml", "--out", "p.h5", "--nproc", world)
            with h5py.File(self.path("p.h5")) as f:
                np.testing.assert_array_equal(f["outputs"][:], table[:, 1:].astype("<f4"))
                np.testing.assert_array_equal(f["prediction"][:], table[:, 0])
                np.testing.assert_array_equal(f["row"][:], program.vectors("split")["n178_test0.2_seed42"]["test"])

    def test_new_rows_use_the_old_scaler(self):
        """The first five rows as a file of their own: the scaler must not be fitted to them."""
        import h5py
        with h5py.File(self.path("datasets/wine.h5")) as d, h5py.File(self.path("five.h5"), "w") as f:
            f["x"], f["y"] = d["x"][:5], d["y"][:5]
        _, few = self.predict("dataset.path=five.h5", "dataset.split.test=0")
        _, all_ = self.predict("dataset.split.test=0")
        self.assertEqual((len(few), len(all_)), (5, 178))
        np.testing.assert_array_equal(few, all_[:5])

    def test_all_rows_of_another_file(self):
        """Whatever the config says about validation; with or without a target."""
        import h5py
        _, all_ = self.predict("--part", "all", "--nproc", 2)
        np.testing.assert_array_equal(all_[:, 0], np.arange(178))
        with h5py.File(self.path("datasets/wine.h5")) as d, h5py.File(self.path("new.h5"), "w") as f:
            f["x"] = d["x"][10:30]
        self.run_program("predict", "test.yaml", "dataset.path=new.h5", "--part", "all", "--out", "p.csv", err="new.h5: all 20 rows")
        _, new = self.predict("dataset.path=new.h5", "--part", "all")
        np.testing.assert_array_equal(new[:, 1:], all_[10:30, 1:])
        _, err = self.run_program("predict", "test.yaml", "dataset.path=new.h5", "--out", "p.csv")
        self.assertIn("new.h5: 4 of 20 rows, those for validation (--part all uses all)", err)
        for rows, more, what in ((slice(1), [], "split.test 0.2 of 1 row leaves no training row; --part all uses every row\n"),
                                 (slice(1), ["dataset.split.stratify=true"], None),  # the classes are missing
                                 (slice(0), [], "one.h5: there are no rows\n"),
                                 (slice(0), ["--part", "all"], "one.h5: there are no rows\n")):
            with self.subTest(rows=rows, more=more):
                with h5py.File(self.path("datasets/wine.h5")) as d, h5py.File(self.path("one.h5"), "w") as f:
                    f["x"] = d["x"][rows]
                self.run_program("predict", "test.yaml", "dataset.path=one.h5", "--out", "p.csv", *more, code=DATA, err=what or "; --part all uses every row\n")
        _, err = self.run_program("predict", "test.yaml", "dataset.path=none.h5", "--out", "p.csv", code=None)
        self.assertNotIn("--part all", err)
        self.assertIn("there is no dataset 'y'", self.evaluate("dataset.path=new.h5", "--part", "all", code=DATA))

        self.write("own.yaml", program.WINE.replace("split: {test: 0.2, seed: 42}", "validation: five.h5"))
        with h5py.File(self.path("datasets/wine.h5")) as d, h5py.File(self.path("five.h5"), "w") as f:
            f["x"], f["y"] = d["x"][:5], d["y"][:5]
        whole = self.evaluate("--part", "all")
        self.assertEqual((whole["part"], whole["rows"]), ("all", 178))
        self.run_program("eval", "own.yaml", "--run-dir", "runs/test", err="five.h5: all 5 rows")
        os.remove(self.path("five.h5"))
        out, _ = self.run_program("eval", "own.yaml", "--run-dir", "runs/test", "--part", "all")
        self.assertEqual(json.loads(out), whole)

    def test_another_model_is_refused(self):
        """Layers of the same shapes would take the weights."""
        other, first = ["model.layers.1=tanh"], self.checkpoints()[0]
        for verb in ("eval", "predict"):
            for arguments in (other, other + ["--checkpoint", first], other + ["--nproc", "2"]):
                _, err = self.run_program(verb, "test.yaml", *arguments, code=USAGE)
                self.assertEqual(err.count("1 key that predictions depend on differs (training -> now):\n  model.layers.1: relu -> tanh\n"
                                           "leave such keys out on the command line, and give the run folder in place of another config\n"), 1, err)
            for arguments in (["runs/test"], ["test.yaml", "model.freeze=['0.*']", f"model.init_from={first}"]):
                _, err = self.run_program(verb, *arguments)
                self.assertNotIn("warning", err)

    def test_another_split_is_a_warning(self):
        import h5py
        warning = "the model may have been trained on rows for validation"
        shutil.copy(os.path.join(program.SOURCE, "datasets/wine.h5"), self.path("more.h5"))
        with h5py.File(self.path("more.h5"), "a") as f:
            x, y = (np.concatenate([f[name][:], f[name][:40]]) for name in "xy")
            del f["x"], f["y"]
            f["x"], f["y"] = x, y
        data = "warning: more.h5: the data are not those of the training, so the split is another one: " + warning
        split = "wine.h5: dataset.split is not that of the training: " + warning
        for verb, arguments, message in (("eval", ["dataset.path=more.h5"], data), ("eval", ["dataset.path=more.h5", "--part", "train"], data),
                                         ("eval", ["dataset.split.seed=9"], split), ("predict", ["dataset.split.test=0.3"], split)):
            for ranks in (1, 2):
                _, err = self.run_program(verb, "test.yaml", *arguments, "--nproc", ranks)
                self.assertEqual(err.count(message), 1, err)
        for arguments in ([], ["dataset.path=more.h5", "--part", "all"], ["dataset.split.seed=9", "--part", "all"]):
            for verb in ("eval", "predict"):
                _, err = self.run_program(verb, "test.yaml", *arguments)
                self.assertNotIn("warning", err)

    def test_folds_of_a_time_series(self):
        """The rows of TimeSeriesSplit: a fold is validated by a model of the rows before it; rows after it are not used."""
        self.write("t.csv", "day,v,y\n" + "".join(f"2024-01-{i + 1:02},{i % 5},{i}\n" for i in range(23)))
        self.write("series.yaml", """
dataset: {path: t.csv, columns: {day: ignore}, split: {folds: 4, fold: 0, time_series: true}}
model: {layers: [{linear: 1}]}
loss: mse
train: {epochs: 1}
""")
        for fold, first in enumerate((7, 11, 15, 19)):
            words = [f"dataset.split.fold={fold}", "--run-dir", f"fold-{fold}"]
            self.run_program("series.yaml", *words, err=f"{first} training rows, 4 validation rows")
            for part, rows in (("validation", range(first, first + 4)), ("train", range(first)), ("all", range(23))):
                out, err = self.run_program("predict", "series.yaml", *words, "--part", part, "--with-inputs")
                self.assertEqual([line.split(",")[:4] for line in out.splitlines()[1:]],
                                 [[f"2024-01-{i + 1:02}", str(i % 5), str(i), str(i)] for i in rows])
            self.run_program("predict", "series.yaml", *words, err="t.csv: 4 of 23 rows, those for validation")
        self.write("sweep.yaml", "config: series.yaml\nmethod: grid\nrepeat: {folds: 4}\nparameters: {optimizer.lr: [0.001]}\nmetric: val_loss\n")
        self.run_program("sweep", "sweep.yaml", "keep=all")
        for fold in range(4):
            self.assertIn("time_series: true", self.read(f"sweeps/sweep/runs/0000/fold-{fold}/config.yaml"))
            self.assertEqual(self.events("epoch", f"sweeps/sweep/runs/0000/fold-{fold}")[-1]["val_rows"], 4)
        for split, sentence in (("{test: 0.2, time_series: true}", "time_series needs folds; for the last rows as validation rows write test and shuffle: false"),
                                ("{folds: 3, fold: 1, stratify: true, time_series: true}", "time_series and stratify exclude each other")):
            self.run_program("check", "series.yaml", f"dataset.split={split}", code=program.USAGE, err=sentence)
        _, err = self.run_program("check", "series.yaml", "dataset.split={folds: 23, fold: 1, time_series: true}", code=DATA)
        self.assertIn("t.csv: dataset.split.folds: 23 rows cannot be divided into 23 folds, each after training rows", err)

    def test_tables_without_targets(self):
        """A CSV file without the class column, with an empty one, with other labels; images of IDX without labels."""
        import h5py
        lines = ["a,kind,b"] + [f"{i % 7},{'xyz'[i % 3]},{i % 5}" for i in range(40)]
        self.write("t.csv", "\n".join(lines))
        config = """
dataset: {path: t.csv, targets: kind, split: {test: 0.25, stratify: true}}
model: {layers: [{linear: 3}]}
loss: cross_entropy
train: {epochs: 1}
"""
        self.write("csv.yaml", config)
        self.run_program("csv.yaml")
        expected = None
        for kind in (lambda k: [k], lambda k: [], lambda k: [""], lambda k: ["new"]):
            rows = [line.split(",") for line in lines]
            self.write("n.csv", "\n".join(",".join([a, *(["kind"] if i == 0 and kind(k) else [] if i == 0 else kind(k)), b])
                                          for i, (a, k, b) in enumerate(rows)))
            self.run_program("predict", "csv.yaml", "dataset.path=n.csv", "--part", "all", "--out", "p.csv")
            with open(self.path("p.csv")) as f:
                found = f.read()
            self.assertEqual(found.count("\n"), 41)
            expected = expected or found
            self.assertEqual(found, expected)
        self.run_program("predict", "csv.yaml", "--out", "p.csv")  # stratify reads the classes
        _, err = self.run_program("predict", "csv.yaml", "dataset.path=n.csv", "--out", "p.csv", code=DATA)
        self.assertIn("class 'new' is not in the data that the model was trained with", err)

        images = np.random.default_rng(0).integers(0, 256, (6, 4, 4), dtype="u1")
        for name, array in (("t-images-idx3-ubyte", images), ("t-labels-idx1-ubyte", np.arange(6, dtype="u1") % 2), ("n-images-idx3-ubyte", images)):
            with open(self.path(name), "wb") as f:
                f.write(bytes([0, 0, 8, array.ndim]) + b"".join(int(s).to_bytes(4, "big") for s in array.shape) + array.tobytes())
        self.write("idx.yaml", "dataset: {path: t-images-idx3-ubyte}\nmodel: {layers: [flatten, {linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        self.run_program("idx.yaml")
        self.run_program("predict", "idx.yaml", "dataset.path=n-images-idx3-ubyte", "--out", "n.csv")
        self.run_program("predict", "idx.yaml", "--out", "t.csv")
        with open(self.path("n.csv")) as n, open(self.path("t.csv")) as t:
            self.assertEqual(n.read(), t.read())

    def test_any_number_of_ranks_for_any_sampler(self):
        """What training refuses: a batch that the ranks do not divide, the order of a single process."""
        whole = self.evaluate()
        for sampler in ("sampler.global_batch_size=4", "sampler.type=dataloader"):
            arguments = [sampler, "--nproc", 3] + (["sampler.batch_size=null"] if "global" in sampler else [])
            found = self.evaluate(*arguments)
            self.assertEqual((found["rows"], found["accuracy"]), (36, whole["accuracy"]))
            self.assertAlmostEqual(found["loss"], whole["loss"], places=12)
            self.predict(*arguments)

    def test_weights_are_those_of_the_runs_own_evaluations(self):
        """The run's config says whether its evaluations use the moving average, not the one that is named."""
        for number, (ema, used) in enumerate((("{decay: 0.9}", "average"), ("{decay: 0.9, evaluate: false}", "trained"))):
            run = f"runs/ema{number}"
            self.run_program("test.yaml", f"train.ema={ema}", "--run-dir", run)
            asked = self.evaluate("--run-dir", run, "--weights", used)
            other = self.evaluate("--run-dir", run, "--weights", {"average": "trained", "trained": "average"}[used])
            self.assertNotEqual(asked["loss"], other["loss"])
            for arguments in ([], ["train.ema=0.5"]):
                self.assertEqual(self.evaluate("--run-dir", run, *arguments), asked)
        self.assertEqual(self.evaluate("train.ema=0.5"), self.evaluate())  # the run has none

    def test_nothing_in_the_run_folder_changes(self):
        def state():
            return {p: os.stat(os.path.join(r, p)).st_mtime_ns for r, _, files in os.walk(self.path("runs")) for p in files}
        before = state()
        self.evaluate()
        self.predict()
        self.assertEqual(before, state())

    def test_the_config_of_a_run_folder_means_that_run(self):
        """runs/test has other weights than the folder whose config.yaml is named."""
        self.run_program("test.yaml", "train.epochs=1", "--run-dir", "kept/one")
        for config in ("kept/one/config.yaml", self.path("kept/one/config.yaml")):
            self.run_program("eval", config, err="kept/one/checkpoints/epoch-0001.h5: epoch 1, step 5")
        self.run_program("predict", "kept/one/config.yaml", "--run-dir", "runs/test", "--out", "p.csv", err="runs/test/checkpoints/")
        self.run_program("eval", "test.yaml", "--checkpoint", "kept/one", err="kept/one/checkpoints/epoch-0001.h5: epoch 1, step 5")

    def test_refused(self):
        for arguments, code, sentence in (
                (["--part", "tests"], USAGE, "--part: expected validation, test, train or all, got 'tests'"),
                (["--part", "test"], USAGE, "--part test: the config has no test rows"),
                (["--part", "validation", "dataset.split.test=0"], USAGE, "neither dataset.split nor dataset.validation"),
                (["--run-dir", "runs/none"], DATA, "runs/none has no checkpoint"),
                (["loss=mse"], USAGE, "loss: the model's output is 3, but a target row has 1 value"),
                (["--checkpoint", "none.h5"], DATA, "there is no such checkpoint"),
                (["model.layers.0.linear.out=8"], USAGE, "(training -> now):\n  model.layers.0.linear.out: 64 -> 8\n")):
            with self.subTest(arguments):
                self.assertIn(sentence, self.evaluate(*arguments, code=code))
        for arguments, sentence in ((["predict", "test.yaml", "--out", "p.npz"], "the formats are .csv and .h5"),
                                    (["predict", "test.yaml", "--with-inputs"], "--with-inputs copies the columns of a CSV file or an SQLite table, or the names of images, and datasets/wine.h5 has none")):
            self.run_program(*arguments, code=USAGE, err=sentence)
        for words in (["dataset.path=none.h5"], ["--nproc", 2]):  # before anything is read; of two ranks the other one may read already
            self.run_program("predict", "test.yaml", "--out", "none/p.csv", *words, code=program.IO, err="cannot create 'none/p.csv.tmp-")
        os.mkdir(self.path("folder.csv"))
        _, err = self.run_program("predict", "test.yaml", "--out", "folder.csv", "dataset.path=none.h5", code=USAGE)
        self.assertIn("--out folder.csv: it exists and is not a regular file; choose another name", err)
        self.run_program("predict", "test.yaml", "--out", "/proc/none/p.csv", code=program.IO)


class Generate(program.Case):
    """After each letter of the text comes the next one of the alphabet: a model of one character learns that exactly."""

    def setUp(self):
        super().setUp()
        self.write("text.txt", "abcdefghij" * 60)
        self.write("text.yaml", "name: test\ndataset: {format: text, path: text.txt, text: {block_size: 4}}\nsampler: {batch_size: 16}\n"
                   "model: {layers: [{embedding: {embedding_dim: 16}}, {linear: 10}]}\n"
                   "loss: cross_entropy\noptimizer: {type: adam, lr: 0.1}\ntrain: {epochs: 3}\n")
        self.run_program("text.yaml")

    def generate(self, *arguments, code=0):
        out, err = self.run_program("generate", "text.yaml", *arguments, code=code)
        return out if code == 0 else err

    def test_the_text_goes_on(self):
        for prompt in ("d", "abcd", "cdefghijabcd"):  # shorter than the block, the block, longer
            for arguments in (["--temperature", 0], ["--top-k", 1], ["--temperature", 0.01]):
                self.assertEqual(self.generate("--prompt", prompt, "--characters", 13, *arguments), prompt + "efghijabcdefg\n")

    def test_stop(self):
        """The text before the first one in what is new; what only begins like it is written."""
        fixed = ["--prompt", "defg", "--characters", 13, "--temperature", 0]
        whole = "hijabcdefghij"
        for stop, text in (("e", "hijabcd"), ("jab", "hi"), ("hij", ""), ("ghij", "hijabcdef"), ("ijk", whole), ("j" * 40, whole), ("defg", "hijabc")):
            self.assertEqual(self.generate(*fixed, "--stop", stop), "defg" + text + "\n", stop)
        self.assertIn("--stop needs a value, got an empty value", self.generate(*fixed, "--stop", "", code=USAGE))

    def test_a_lost_output_ends_the_text(self):
        """A text of this length would take hours."""
        long = ["generate", "text.yaml", "--prompt", "a", "--characters", 2**31 - 1]
        with open("/dev/full", "w") as full:
            p = self.start(*long, stdout=full)
            _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, program.IO, err)
        p = self.start(*long)
        self.assertEqual(p.stdout.read(5), "abcde")
        p.stdout.close()
        self.assertEqual(p.wait(timeout=300 * program.SLOW), 0)
        p.stderr.close()

    def test_draws(self):
        draws = ["--prompt", "a", "--characters", 400, "--temperature", 50]
        text = self.generate(*draws, "--seed", 1)
        self.assertEqual(len(text), 402)
        self.assertEqual(set(text[:-1]), set("abcdefghij"))  # nearly uniform
        self.assertEqual(self.generate(*draws, "--seed", 1), text)
        self.assertNotEqual(self.generate(*draws, "--seed", 2), text)
        pairs = {}
        for a, b in zip(*(lambda t: (t, t[1:]))(self.generate(*draws, "--top-k", 2)[:-1])):
            pairs.setdefault(a, set()).add(b)
        self.assertLessEqual(max(len(p) for p in pairs.values()), 2)
        self.assertGreater(max(len(p) for p in pairs.values()), 1)
        self.assertEqual(self.generate("--prompt", "ab", "--characters", 0), "ab\n")

    def test_top_p(self):
        """The most likely tokens whose probabilities sum to p, after temperature and top_k, as transformers' TopPLogitsWarper."""
        letters = "abcdefghij"
        self.run_program("predict", "text.yaml", "--part", "all", "--outputs", "--out", "p.csv")
        with open(self.path("p.csv")) as file:
            rows = list(csv.DictReader(file))[:10]
        after = {letter: np.array([float(row[f"output_{c}"]) for c in range(10)]) / 3 for letter, row in zip(letters, rows)}
        for k, p in ((10, 0.3), (10, 0.7), (10, 0.95), (4, 0.8), (10, 0.0)):
            text = self.generate("--prompt", "a", "--characters", 3000, "--temperature", 3, "--top-k", k, "--top-p", p)[:-1]
            for letter, logits in after.items():
                order = np.argsort(-logits)
                probabilities = np.exp(logits[order][:k])
                count = 1 + int((np.cumsum(probabilities) / probabilities.sum() < p).sum())
                drawn = {second for first, second in zip(text, text[1:]) if first == letter}
                with self.subTest(k=k, p=p, count=count, letter=letter):
                    self.assertLessEqual(drawn, {letters[c] for c in order[:count]})
                    self.assertEqual(min(len(drawn), 3), min(count, 3))
        self.assertIn("--top-p: expected a number from 0 to 1, got 1.5", self.generate("--prompt", "a", "--top-p", 1.5, code=USAGE))

    def test_prompt_file(self):
        self.write("prompt.txt", "abcd")
        self.write("newline.txt", "abcd\n")
        self.write("zero.txt", "ab\0cd")
        self.write("empty.txt", "")
        arguments = ["--max-new-tokens", 3, "--temperature", 0]
        self.assertEqual(self.generate("--prompt-file", "prompt.txt", *arguments), "abcdefg\n")
        with open(self.path("prompt.txt")) as file:
            process = self.start("generate", "text.yaml", "--prompt-file", "-", *arguments, stdin=file)
        self.assertEqual(process.communicate(timeout=180 * program.SLOW)[0], "abcdefg\n")
        for name, sentence in (("newline.txt", "newline.txt: "), ("zero.txt", "zero.txt: a byte of the file is 0"),
                               ("empty.txt", "empty.txt: at least one character is needed")):
            self.assertIn(sentence, self.generate("--prompt-file", name, code=USAGE))
        self.assertIn("none.txt", self.generate("--prompt-file", "none.txt", code=program.IO))
        os.mkfifo(self.path("pipe"))
        for name in ("pipe", "."):
            self.assertIn(f"'{name}' is not a regular file; - reads", self.generate("--prompt-file", name, code=USAGE))
        self.assertIn("needs --prompt TEXT or --prompt-file FILE", self.generate(code=USAGE))
        self.assertIn("and not both", self.generate("--prompt", "a", "--prompt-file", "prompt.txt", code=USAGE))

    def test_stored_keys_and_values(self):
        """Position by position the text is that of whole blocks, also when it becomes longer than a block."""
        layers = {
            "grouped": "{embedding: {embedding_dim: 24, name: e}}, {residual: {name: r, layers: [{rms_norm: {name: n}}, {linear: {out: 48, name: qkv}}, "
                       "{rotary_embedding: {head_size: 6, heads: 6, interleaved: true}}, {scaled_dot_product_attention: {heads: 4, num_kv_heads: 2, causal: true}}]}}",
            "joined": "{embedding: {embedding_dim: 24, name: e}}, {positional_embedding: {name: p}}, {layer_norm: {name: n}}, "
                      "{attention: {heads: 3, causal: true, name: a}}, relu, {linear: {out: 24, name: b}}, {gelu: {name: g}}, {linear: {out: 24, name: c, from: b}}, {multiply: {from: [g, c]}}",
            "all": "{embedding: {embedding_dim: 24, name: e}}, {positional_embedding: {name: p}}, {attention: {heads: 3, name: a}}"}
        text = "".join("abcdefghij"[i * i * 7919 % 97 % 10] for i in range(600))
        self.write("text.txt", text)
        for name, before in layers.items():
            config = (f"name: {name}\ndataset: {{format: text, path: text.txt, text: {{block_size: 16}}}}\nsampler: {{batch_size: 16}}\n"
                      f"model: {{layers: [{before}, {{linear: {{out: 10, name: o}}}}IDENTITY]}}\n"
                      "loss: cross_entropy\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 2}\n")
            self.write("one.yaml", config.replace("IDENTITY", ""))
            self.write("whole.yaml", config.replace("IDENTITY", ", {slice: {dim: 1, start: 0, end: 16}}"))  # needs all positions at once
            self.run_program("one.yaml", "--fresh")
            self.run_program("whole.yaml", "--run-dir", "runs/whole", "--fresh")
            for prompt, characters in ((text[:1], 15), (text[50:57], 30), (text[:16], 3), (text[:20], 3)):
                for draws in (["--temperature", 0], ["--seed", 5]):
                    with self.subTest(name=name, prompt=prompt, draws=draws):
                        one, whole = (self.run_program("generate", run, "--prompt", prompt, "--characters", characters, *draws)[0]
                                      for run in (f"runs/{name}", "runs/whole"))
                        self.assertEqual(one, whole)
                        self.assertEqual(len(one), len(prompt) + characters + 1)

    def test_refused(self):
        self.assertIn("--prompt", self.generate("--prompt", "abx", code=USAGE))
        other = self.generate("--prompt", "ab", "model.layers.1.linear=1", "dataset.text.block_size=5", code=USAGE)
        self.assertIn("(training -> now):\n  dataset.text.block_size: 4 -> 5\n  model.layers.1.linear.out: 10 -> 1\n", other)


class GenerateTokens(program.Case):
    """With a tokenizer whose tokens are bytes, a model of one token learns the next byte of a text whose bytes are all different."""

    TEXT = "aé😀b"

    def setUp(self):
        super().setUp()
        # bytes as GPT-2's bytes_to_unicode writes them, in the order of the text
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        self.bytes = list(self.TEXT.encode())
        letters = [chr(byte if byte in printable else 256 + others.index(byte)) for byte in self.bytes]
        tokenizer = {"model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}, "decoder": {"type": "ByteLevel"},
                     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                     "added_tokens": [{"id": 8, "content": "<end>", "special": True}]}
        self.write("tokenizer.json", json.dumps(tokenizer))
        self.write("text.txt", self.TEXT * 60)
        with open(os.path.join(self.folder, "ids.bin"), "wb") as file:
            file.write(b"".join(i.to_bytes(2, "little") for i in list(range(8)) * 60))
        for name in ("text.txt", "ids.bin"):
            self.write(name + ".yaml", f"name: {name}\ndataset: {{path: {name}, tokens: {{tokenizer: tokenizer.json, block_size: 4, stride: 1}}}}\n"
                       "sampler: {batch_size: 16}\nmodel: {layers: [{embedding: {embedding_dim: 16}}, {linear: 9}]}\n"
                       "loss: cross_entropy\noptimizer: {type: adam, lr: 0.1}\ntrain: {epochs: 3}\n")

    def test_the_text_goes_on(self):
        """From the run folder alone; pieces of characters are joined, and one that is not complete is replaced."""
        for name in ("text.txt", "ids.bin"):
            self.run_program(name + ".yaml")
        os.remove(os.path.join(self.folder, "text.txt"))
        os.remove(os.path.join(self.folder, "tokenizer.json"))
        for name in ("text.txt", "ids.bin"):
            for tokens in range(17):
                out, _ = self.run_program("generate", f"runs/{name}", "--prompt", "<end>b", "--characters", tokens, "--temperature", 0)
                whole = bytes(self.bytes * 3)[:tokens]
                expected = whole.decode(errors="replace")
                self.assertEqual(out, "<end>b" + expected + "\n", (name, tokens))

    def test_evaluation_uses_the_tokenizer_of_the_model(self):
        self.run_program("text.txt.yaml")
        os.remove(os.path.join(self.folder, "tokenizer.json"))
        out, _ = self.run_program("eval", "runs/text.txt", "--part", "all")
        self.assertGreater(json.loads(out)["accuracy"], 0.99)
        _, err = self.run_program("text.txt.yaml", "--fresh", code=DATA)
        self.assertIn("cannot read the tokenizer 'tokenizer.json' (dataset.tokens.tokenizer): No such file or directory", err)

    def test_refused(self):
        self.run_program("text.txt.yaml")
        self.run_program("generate", "runs/text.txt", "--prompt", "abc", code=DATA, err="--prompt: the tokenizer has no token for the byte 0x63")
        self.run_program("ids.bin.yaml", "dataset.tokens.tokenizer=null", "dataset.tokens.vocabulary=9", "--run-dir", "runs/ids")
        arguments = ("generate", "runs/ids", "--prompt", "aé", "--characters", 5, "--temperature", 0)
        self.assertIn("give their tokenizer: dataset.tokens.tokenizer=tokenizer.json", self.run_program(*arguments, code=USAGE)[1])
        self.assertEqual(self.run_program(*arguments, "dataset.tokens.tokenizer=tokenizer.json")[0], "aé😀b\n")
        tokenizer = json.loads(self.read("tokenizer.json"))
        for added, code in ((0, OK), (3, USAGE)):  # a run whose vocabulary is larger than the tokenizer's, or smaller
            tokenizer["added_tokens"] += [{"id": 100 + i, "content": f"<{i}>"} for i in range(added)]
            self.write("other.json", json.dumps(tokenizer))
            size = 12 if code == OK else 9
            self.run_program("ids.bin.yaml", "dataset.tokens.tokenizer=null", f"dataset.tokens.vocabulary={size}", f"model.layers.1.linear={size}",
                             "--run-dir", "runs/ids", "--fresh")
            out, err = self.run_program(*arguments, "dataset.tokens.tokenizer=other.json", code=code)
            self.assertIn("aé😀b\n" if code == OK else "the model was trained with 9 tokens, and the tokenizer has 103; train with it", out + err)
        self.write("tokenizer.json", '{"model": {"type": "Char"}}')
        _, err = self.run_program("text.txt.yaml", "--fresh", code=DATA)
        self.assertIn("tokenizer.json: the model 'Char' is not supported; byte-level BPE (as of GPT-2 and Llama 3), WordPiece (as of BERT), Unigram (as of T5) and WordLevel are", err)
