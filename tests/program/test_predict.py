"""predict: labels, probabilities, the rows' own columns, rows from the standard input. ctest-labels: dist"""
import csv, gzip, io, json, math, struct, subprocess

import h5py
import numpy as np

import program
from program import BINARY, DATA, IO, USAGE

LABELS = ['a,"b"', "=cmd()", "row", "x\x1b[31my\ny"]  # a comma and quotes, a formula, the name of a column, control characters
CLASSES = """
name: test
dataset: {path: train.csv, inputs: [u, v], targets: kind, split: 0.2}
model: {layers: [{linear: 4}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.3}
train: {epochs: 20}
"""


class Predict(program.Case):
    def rows(self, name, header, rows):
        with open(self.path(name), "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerows([header, *rows])
        return name

    def train(self, header, rows, config=CLASSES):
        self.rows("train.csv", header, rows)
        self.write("test.yaml", config)
        self.run_program("test.yaml", "--fresh")

    def predict(self, *arguments, rows=None, code=0):
        """The lines as dictionaries; [rows]: the standard input."""
        p = subprocess.run([BINARY, "predict", *map(str, arguments)], cwd=self.folder, env=self.environment(), capture_output=True,
                           input=b"" if rows is None else rows, timeout=300 * program.SLOW)
        self.err = p.stderr.decode()
        self.assertEqual(p.returncode, code, self.err)
        return list(csv.DictReader(io.StringIO(p.stdout.decode(), newline="")))

    def train_labels(self):
        corner = [(2, 2), (2, -2), (-2, 2), (-2, -2)]
        self.train(["u", "note", "kind", "v"], [[corner[i % 4][0] + i / 100, f' "{i}", ', LABELS[i % 4], corner[i % 4][1]] for i in range(40)])

    def test_labels_and_probabilities(self):
        self.train_labels()
        rows = self.predict("runs/test", "train.csv", "--probabilities", "--outputs")
        self.assertEqual([r["prediction"] for r in rows], LABELS * 10)
        self.assertEqual(list(rows[0]), ["row", "prediction", *LABELS[1::-1], "probability_row", LABELS[3]] + [f"output_{i}" for i in range(4)])
        outputs = np.array([[float(r[f"output_{i}"]) for i in range(4)] for r in rows])
        found = np.array([[float(r[name]) for name in list(r)[2:6]] for r in rows])
        np.testing.assert_allclose(found, program.softmax(outputs), rtol=1e-6)
        self.assertEqual(list(self.predict("runs/test", "train.csv")[0]), ["row", "prediction"])

    def test_inputs_are_copied(self):
        self.train_labels()
        with open(self.path("train.csv"), newline="") as f:
            original = list(csv.DictReader(f))
        for arguments in (["train.csv"], ["train.csv", "--nproc", 3], ["--nproc", 2]):
            rows = self.predict("test.yaml", *arguments, "--with-inputs")
            self.assertEqual(list(rows[0]), ["u", "note", "kind", "v", "row", "prediction"])
            for r in rows:
                self.assertEqual({k: r[k] for k in original[0]}, original[int(r["row"])])
        self.assertEqual(len(rows), 8)  # those for validation
        self.rows("own.csv", ["v", "prediction", "row", "u"], [[1, "x", "", 1]])
        self.assertEqual(list(self.predict("test.yaml", "own.csv", "--with-inputs")[0]),
                         ["v", "prediction", "row", "u", "dataset_row", "predicted_prediction"])
        self.write("bare.csv", "1,2\n2,1\n")
        self.assertEqual(list(self.predict("test.yaml", "bare.csv", "--with-inputs")[1].values())[:3], ["2", "1", "1"])

    def test_inputs_of_several_files_and_another_dialect(self):
        self.train_labels()
        with open(self.path("train.csv"), newline="") as f:
            header, *rows = csv.reader(f)
        order = [3, 2, 0]  # another order, and a column that is absent
        self.rows("part-1.csv", header, rows[:7])
        self.rows("part-2.csv", [header[i] for i in order], [[row[i] for i in order] for row in rows[7:]])
        found = self.predict("test.yaml", "part-*.csv", "--with-inputs")
        self.assertEqual([r["prediction"] for r in found], LABELS * 10)
        for r, row in zip(found, rows):
            self.assertEqual([r["u"], r["note"], r["kind"], r["v"]], [row[0], row[1] if int(r["row"]) < 7 else "", row[2], row[3]])
        with gzip.open(self.path("new.csv.gz"), "wt", encoding="latin-1") as f:
            f.write("u;v;stra\u00dfe\n" + "".join(f"{row[0].replace('.', ',')};{row[3].replace('.', ',')};\u00fc{i};\n".replace(";\n", "\n") for i, row in enumerate(rows)))
        found = self.predict("test.yaml", "new.csv.gz", "--with-inputs")
        self.assertEqual([r["prediction"] for r in found], LABELS * 10)
        self.assertEqual([r["stra\u00dfe"] for r in found], [f"\u00fc{i}" for i in range(40)])
        self.assertEqual(found[0]["u"], rows[0][0].replace(".", ","))

    def test_standard_input(self):
        self.train_labels()
        with open(self.path("train.csv"), "rb") as f:
            text = f.read()
        wanted = self.predict("test.yaml", "train.csv", "--probabilities", "--with-inputs")
        for arguments in ([], ["--nproc", 3], ["--max-restarts", 1]):
            self.assertEqual(self.predict("test.yaml", "-", "--probabilities", "--with-inputs", *arguments, rows=text), wanted)
        big = text + text[text.index(b"\n") + 1:] * 2000  # more than a pipe holds
        self.assertEqual(len(self.predict("test.yaml", "-", rows=big)), 40 * 2001)
        with open(self.path("train.csv"), "rb") as f:
            p = subprocess.run([BINARY, "predict", "test.yaml", "-"], cwd=self.folder, env=self.environment(), stdin=f, capture_output=True)
        self.assertEqual((p.returncode, p.stdout.count(b"=cmd()\n")), (0, 10))
        for rows, sentence in ((b"", "/dev/stdin: the file is empty"), (b"u,v\n", "/dev/stdin: there are no rows"),
                               (b"u,v\n1,2\n1", "/dev/stdin:line 3: there are 1 fields, but the header has 2"),
                               (b'u,v\n1,"2', "/dev/stdin:line 2: a quoted field is not closed"),
                               (b"\x89HDF\0\0", "/dev/stdin:line 1: this is not UTF-8 text"), (b"u,w\n1,2\n", "/dev/stdin: there is no column 'v'")):
            for nproc in (1, 2):
                self.predict("test.yaml", "-", "--nproc", nproc, rows=rows, code=DATA)
                self.assertIn(sentence, self.err)
        self.predict("test.yaml", "-", "--nnodes", 2, "--master-addr", "localhost", "--master-port", 1, rows=text, code=USAGE)
        self.assertIn("not every process has the standard input; write the rows to a file", self.err)
        self.predict("test.yaml", "train.csv", "dataset.path=train.csv", code=USAGE)
        self.assertIn("the data file is given twice: 'train.csv' and dataset.path", self.err)

    def test_eval_takes_a_file_and_a_run(self):
        self.train_labels()
        whole, _ = self.run_program("eval", "test.yaml", "dataset.path=train.csv", "--part", "all")
        self.assertEqual(self.run_program("eval", "runs/test", "train.csv")[0], whole)
        self.assertEqual(self.run_program("eval", "runs/test/", "train.csv", "--nproc", 2)[0], whole)

    def test_standard_output(self):
        self.train_labels()
        self.run_program("predict", "test.yaml", "--out", "p.csv")
        self.assertEqual(self.run_program("predict", "test.yaml")[0], self.read("p.csv"))
        self.assertEqual(self.run_program("predict", "test.yaml", "--out", "-")[0], self.read("p.csv"))
        self.rows("big.csv", ["u", "v"], [[i, i] for i in range(50000)])
        p = self.start("predict", "test.yaml", "big.csv", "--quiet")
        p.stdout.readline()
        p.stdout.close()  # as `head` does
        self.assertEqual((p.stderr.read(), p.wait(60)), ("", 0))
        p.stderr.close()
        with open("/dev/full", "w") as full:
            p = self.start("predict", "test.yaml", "big.csv", "--quiet", stdout=full)
            self.assertIn("cannot write to standard output", p.communicate()[1])
            self.assertEqual(p.returncode, IO)

    def test_values_have_the_names_of_the_targets(self):
        config = CLASSES.replace("targets: kind", "targets: [price, size]").replace("linear: 4", "linear: 2").replace("cross_entropy", "mse")
        self.train(["u", "v", "price", "size"], [[i % 5, i % 3, i % 5 + i % 3, i % 5] for i in range(40)], config)
        self.assertEqual(list(self.predict("test.yaml")[0]), ["row", "price", "size"])
        self.assertEqual(list(self.predict("test.yaml", "--with-inputs")[0]),
                         ["u", "v", "price", "size", "row", "predicted_price", "predicted_size"])
        self.predict("test.yaml", "--probabilities", code=USAGE)
        self.assertIn("--probabilities: loss mse predicts values, not classes", self.err)

    def test_binary_targets(self):
        config = CLASSES.replace("targets: kind", "targets: hot").replace("linear: 4", "linear: 1").replace("cross_entropy", "bce_with_logits")
        self.train(["u", "v", "hot", "wet"], [[i % 5, i % 3, int(i % 5 > 2), int(i % 3 > 1)] for i in range(40)], config)
        for r in self.predict("test.yaml", "--probabilities", "--outputs"):
            z = float(r["output_0"])
            self.assertEqual(list(r), ["row", "prediction", "0", "1", "output_0"])
            self.assertEqual(r["prediction"], str(int(z > 0)))
            self.assertAlmostEqual(float(r["1"]), 1 / (1 + math.exp(-z)), places=6)
            self.assertAlmostEqual(float(r["0"]) + float(r["1"]), 1, places=6)
        self.write("test.yaml", config.replace("targets: hot", "targets: [hot, wet]").replace("linear: 1", "linear: 2"))
        self.run_program("test.yaml", "--fresh")
        for r in self.predict("test.yaml", "--probabilities", "--outputs"):
            self.assertEqual(list(r), ["row", "hot", "wet", "probability_hot", "probability_wet", "output_0", "output_1"])
            self.assertEqual(r["wet"], str(int(float(r["output_1"]) > 0)))
            self.assertEqual(r["wet"], str(int(float(r["probability_wet"]) > 0.5)))

    def test_a_missing_value_in_a_column_without_one_in_training(self):
        """The message has its place, and does not name dataset.divide, which the model sets itself (1 without the key)."""
        for divide in ("", ", divide: 2"):
            config = CLASSES.replace("targets: kind", "targets: kind" + divide)
            self.train(["u", "v", "kind"], [[i % 2, i / 7, "ab"[i % 2]] for i in range(20)], config)
            self.rows("new.csv", ["u", "v", "kind"], [[1, 2, "a"], [2, "", "b"]])
            for verb in ("predict", "eval"):
                _, err = self.run_program(verb, "runs/test", "new.csv", code=DATA)
                self.assertIn("new.csv:line 3: column 'v': missing value; the model was trained without a rule for missing values", err)
            self.rows("new.csv", ["u", "v", "kind"], [[1, "", "a"]])
            self.run_program("predict", "runs/test", "new.csv", code=DATA, err="new.csv:line 2: column 'v': missing value")

    def test_hdf5(self):
        import h5py
        self.train_labels()
        rows = self.predict("test.yaml", "train.csv", "--probabilities", "--outputs")
        self.run_program("predict", "test.yaml", "train.csv", "--probabilities", "--with-inputs", "--out", "p.h5", "--nproc", 2)
        with h5py.File(self.path("p.h5")) as f, open(self.path("train.csv"), newline="") as original:
            labels = [label.decode() for label in f["labels"][:]]
            self.assertEqual([labels[i] for i in f["prediction"][:]], [r["prediction"] for r in rows])
            np.testing.assert_array_equal(f["probabilities"][:], [[np.float32(v) for v in list(r.values())[2:6]] for r in rows])
            np.testing.assert_array_equal(f["outputs"][:], [[np.float32(r[f"output_{i}"]) for i in range(4)] for r in rows])
            texts = [[v.decode() for v in row] for row in [f["columns"][:], *f["inputs"][:]]]
            self.assertEqual(texts, list(csv.reader(original)))
            self.assertEqual(list(f["row"][:]), list(range(40)))

    def test_a_model_that_was_trained_with_another_format(self):
        """wine.h5 has no names of columns, so those of the CSV file are given."""
        import h5py
        self.write("test.yaml", program.WINE.replace("dataset: {", "dataset: {format: hdf5, "))
        self.run_program("test.yaml")
        with h5py.File(self.path("datasets/wine.h5")) as f:
            x = f["x"][:]
        self.rows("new.csv", [f"x{i}" for i in range(13)], [[repr(float(v)) for v in row] for row in x])
        wanted = self.predict("test.yaml", "datasets/wine.h5", "--probabilities")
        found = self.predict("test.yaml", "new.csv", f"dataset.inputs=[{','.join(f'x{i}' for i in range(13))}]", "--probabilities")
        self.assertEqual(found, wanted)
        self.assertEqual(list(found[0]), ["row", "prediction", "0", "1", "2"])
        columns = f"dataset.inputs=[{','.join(f'x{i}' for i in range(13))}]"
        for values, sentence in (([1, "", 3], "new.csv:line 3: column 'x5': missing value; the model was trained without a rule"),
                                 (["red"] * 3, "new.csv:line 2: column 'x5': 'red' is not a number")):
            self.rows("new.csv", [f"x{i}" for i in range(13)], [[value if i == 5 else i for i in range(13)] for value in values])
            self.run_program("predict", "test.yaml", "new.csv", columns, code=DATA, err=sentence)

    def test_another_file_where_a_monitor_needs_validation_rows(self):
        """Also one of another format than the validation file."""
        import sqlite3
        rows = [(i / 10, i % 7, i / 5) for i in range(60)]
        for name, part in ("train.csv", rows[:40]), ("val.csv", rows[40:]), ("new.csv", rows):
            self.write(name, "u,v,w\n" + "".join(f"{a},{b},{c}\n" for a, b, c in part))
        with sqlite3.connect(self.path("new.db")) as db:
            db.execute("create table t (u real, v real, w real)")
            db.executemany("insert into t values (?, ?, ?)", rows)
        db.close()
        self.write("test.yaml", """dataset: {path: train.csv, validation: val.csv, targets: [w]}
model: {layers: [{linear: 1}]}
loss: mse
sampler: {batch_size: 8}
train: {epochs: 3, early_stop: {metric: val_loss, patience: 9}}
checkpoint: {best: val_loss}
""")
        self.run_program("test.yaml")
        wanted = self.run_program("predict", "runs/test", "new.csv")[0]
        self.assertEqual(len(wanted.splitlines()), 61)
        self.assertEqual(self.run_program("predict", "runs/test", "new.db")[0], wanted)
        self.assertEqual(json.loads(self.run_program("eval", "runs/test", "new.csv")[0])["rows"], 60)
        self.assertEqual(json.loads(self.run_program("eval", "runs/test")[0])["rows"], 20)

    def test_another_text(self):
        """Characters have the tokens of the training text, and so have the tokens of a .bin file. All of the text is used."""
        import h5py
        self.write("train.txt", "the quick brown fox jumps over the lazy dog. " * 9)
        self.write("other.txt", "the dog and the fox, " .replace(",", ".") * 4)
        self.write("foreign.txt", "the dog! " * 9)
        model = "model: {layers: [{embedding: {embedding_dim: 4}}, {linear: SIZE}]}\nloss: cross_entropy\nsampler: {batch_size: 4}\ntrain: {steps: 9}\n"
        self.write("test.yaml", "dataset: {path: train.txt, text: {block_size: 8, truncate: 0.5}}\n" + model.replace("SIZE", "28"))
        self.run_program("test.yaml")
        known = sorted(set(self.read("train.txt")))
        with h5py.File(self.path("runs/test/checkpoints/step-00000009.h5")) as f:
            logits = f["model/0.weight"][:] @ f["model/1.weight"][:].T + f["model/1.bias"][:]
        rows = [[known.index(c) for c in self.read("other.txt")[i:i + 9]] for i in range(76)]
        loss = np.mean([np.log(np.exp(logits[a]).sum()) - logits[a][b] for row in rows for a, b in zip(row, row[1:])])
        out, _ = self.run_program("eval", "test.yaml", "other.txt")
        self.assertAlmostEqual(json.loads(out)["loss"], loss, places=5)
        _, err = self.run_program("eval", "test.yaml", "foreign.txt", code=DATA)
        self.assertIn("foreign.txt: line 1: the character '!' is not in the text that the model was trained with", err)
        np.arange(90, dtype="<u2").tofile(self.path("train.bin"))
        np.arange(30, dtype="<u2").tofile(self.path("other.bin"))
        self.write("tokens.yaml", "name: tokens\ndataset: {path: train.bin, tokens: {block_size: 8}}\n" + model.replace("SIZE", "90"))
        self.run_program("tokens.yaml")
        self.run_program("eval", "tokens.yaml", "other.bin")
        known = model.replace("SIZE", "90").replace("{embedding_dim", "{num_embeddings: 90, embedding_dim")
        self.write("tokens.yaml", "name: tokens\ndataset: {path: train.bin, tokens: {block_size: 8}}\n" + known)
        self.run_program("tokens.yaml", "--fresh")
        _, err = self.run_program("eval", "tokens.yaml", "other.txt", code=DATA)
        self.assertIn("other.txt: the model was not trained with characters, so it has no tokens for those of a text", err)

    def test_bytes_in_a_file_of_another_format(self):
        """IDX divides bytes by 255, npy does not: a model of either takes the bytes of both."""
        r = np.random.default_rng(0)
        images, labels = r.integers(0, 256, (40, 6, 6), dtype=np.uint8), (np.arange(40) % 3).astype(np.uint8)
        for name, values in (("t-images-idx3-ubyte", images), ("t-labels-idx1-ubyte", labels)):
            with open(self.path(name), "wb") as f:
                f.write(struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes())
        np.save(self.path("x.npy"), images[:, None])
        np.save(self.path("y.npy"), labels)
        for trained, others in (("t-images-idx3-ubyte", ["x.npy"]), ("x.npy", ["t-images-idx3-ubyte"])):
            self.write("test.yaml", f"dataset: {{path: {trained}}}\nmodel: {{layers: [flatten, {{linear: 3}}]}}\nloss: cross_entropy\ntrain: {{epochs: 1}}\n")
            self.run_program("test.yaml", "--fresh")
            wanted = self.predict("test.yaml", trained, "--outputs")
            for other in others:
                self.assertEqual(self.predict("test.yaml", other, "--outputs"), wanted)
                self.predict("test.yaml", other, "dataset.divide=7", "--outputs", code=USAGE)
                self.assertIn("\n  dataset.divide: null -> 7\n", self.err)
            self.assertEqual(self.run_program("eval", "test.yaml", others[0])[0], self.run_program("eval", "test.yaml", trained)[0])

    SERIES = """name: test
dataset: {path: series.npz, split: {test: 0.25, shuffle: false}}
sampler: {batch_size: 3}
model: {layers: [{rnn: {hidden_size: 6, name: a}}, {lstm: {hidden_size: 5, name: b}}, {linear: {out: 2, name: c}}]}
loss: mse
optimizer: {type: adam, lr: 0.02}
train: {epochs: 4}
"""

    def write_series(self, targets=2):
        rng = np.random.default_rng(4)
        x = np.cumsum(rng.normal(size=(20, 13, 2)), 1).astype("f4") * 0.3
        np.savez(self.path("series.npz"), x=x[:, :-1], y=x[:, 1:, :targets])
        self.write("test.yaml", self.SERIES)
        return x[:, :-1]

    def test_ahead(self):
        """The outputs of a step are the inputs of the next one, as a computation in float64 with the same weights has them."""
        x = self.write_series()
        self.run_program("test.yaml")
        self.run_program("predict", "test.yaml", "--ahead", 9, "--part", "all", "--out", "ahead.csv")
        ahead = self.read("ahead.csv")
        rows = list(csv.reader(io.StringIO(ahead)))
        self.assertEqual(rows[0], ["row"] + [f"prediction_{i}" for i in range(18)])
        got = np.array([r[1:] for r in rows[1:]], float).reshape(20, 9, 2)
        self.run_program("predict", "test.yaml", "--part", "all", "--out", "plain.csv")
        plain = [r[-2:] for r in csv.reader(io.StringIO(self.read("plain.csv")))]
        self.assertEqual([r[1:3] for r in rows[1:]], plain[1:])  # the first step ahead is the last output of the row
        with h5py.File(self.path("runs/test/checkpoints/epoch-0004.h5")) as f:
            w = {name[6:]: f["model/" + name[6:]][:].astype(float) for name in ("model/" + n for n in f["model"])}
        sigmoid = lambda v: 1 / (1 + np.exp(-v))
        h, s, c, step = np.zeros((20, 6)), np.zeros((20, 5)), np.zeros((20, 5)), None
        for p in range(12 + 8):
            step = x[:, p] if p < 12 else step
            h = np.tanh(step @ w["a.weight_ih_l0"].T + w["a.bias_ih_l0"] + h @ w["a.weight_hh_l0"].T + w["a.bias_hh_l0"])
            i, f, g, o = np.split(h @ w["b.weight_ih_l0"].T + w["b.bias_ih_l0"] + s @ w["b.weight_hh_l0"].T + w["b.bias_hh_l0"], 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            s = sigmoid(o) * np.tanh(c)
            step = s @ w["c.weight"].T + w["c.bias"]
            if p >= 11:
                np.testing.assert_allclose(got[:, p - 11], step, rtol=1e-4, atol=1e-5)
        for nproc in 2, 3:
            self.run_program("predict", "test.yaml", "--ahead", 9, "--part", "all", "--out", "ahead.csv", "--nproc", nproc, "sampler.batch_size=2")
            self.assertEqual(self.read("ahead.csv"), ahead)
        self.run_program("predict", "test.yaml", "--ahead", 3, "--out", "ahead.h5")
        with h5py.File(self.path("ahead.h5")) as f:
            np.testing.assert_allclose(f["prediction"][:], got[15:, :3].reshape(5, 6), rtol=1e-6)

    def test_ahead_by_position(self):
        """Learned positions, softmax and prelu, each of one position."""
        x = self.write_series()
        layers = "model.layers=[{positional_embedding: {num_embeddings: 24, name: e}}, {linear: {out: 4, name: a}}, softmax, {linear: {out: 3, name: b}}, {prelu: {name: p}}, {linear: {out: 2, name: c}}]"
        self.run_program("test.yaml", layers)
        self.run_program("predict", "runs/test", "--ahead", 9, "--part", "all", "--out", "ahead.csv")
        got = np.array([r[1:] for r in list(csv.reader(io.StringIO(self.read("ahead.csv"))))[1:]], float).reshape(20, 9, 2)
        with h5py.File(self.path("runs/test/checkpoints/epoch-0004.h5")) as f:
            w = {name: f["model/" + name][:].astype(float) for name in f["model"]}
        step = x[:, 11]
        for p in range(11, 20):
            scores = np.exp((step + w["e.weight"][p]) @ w["a.weight"].T + w["a.bias"])
            hidden = (scores / scores.sum(1, keepdims=True)) @ w["b.weight"].T + w["b.bias"]
            step = np.where(hidden > 0, hidden, hidden * w["p.weight"]) @ w["c.weight"].T + w["c.bias"]
            np.testing.assert_allclose(got[:, p - 11], step, rtol=1e-4, atol=1e-5)
        self.run_program("test.yaml", "--fresh", layers.replace("num_embeddings: 24, ", ""))
        _, err = self.run_program("predict", "runs/test", "--ahead", 9, code=USAGE)
        self.assertIn("--ahead: e.weight is of 12 positions, those of a row, and 9 steps ahead need 21; train with num_embeddings: 21 or more", err)

    def test_ahead_is_not_for_all_models(self):
        self.write_series()
        for keys, message in ((["dataset.scale=standard"], "outputs have another unit than inputs"), (["dataset.target_scale=standard"], "outputs have another unit than inputs"),
                              (["loss=poisson_nll"], "it needs one loss of values, such as mse"),
                              (["model.layers.1={prelu: {num_parameters: 12}}"], "the model is computed one step after the other: .*num_parameters 12 is a slope for each position: it needs all"),
                              (["model.layers.0={rnn: {hidden_size: 6, bidirectional: true}}"], "the model is computed one step after the other: .*model.layers.0.rnn: it needs all positions at once"),
                              (["model.layers.1={conv1d: {out: 12, kernel_size: 1}}", "model.layers.2={linear: 2}"], "the model is computed one step after the other: ")):
            with self.subTest(keys):
                self.run_program("test.yaml", "--fresh", *keys)
                _, err = self.run_program("predict", "runs/test", "--ahead", 3, code=USAGE)
                self.assertRegex(err, "--ahead: " + message)
                self.assertEqual(err.count("\n"), 2, err)
        self.write_series(1)
        self.run_program("test.yaml", "--fresh", "model.layers.2.linear.out=1")
        self.assertIn("--ahead: the model needs an output for each input of each step", self.run_program("predict", "runs/test", "--ahead", 3, code=USAGE)[1])
        self.rows("train.csv", ["u", "v", "y"], [(1, 2, 3), (2, 3, 4), (5, 1, 2), (3, 3, 1)])
        self.write("table.yaml", "name: test\ndataset: {path: train.csv, targets: y}\nmodel: {layers: [{linear: 1}]}\nloss: mse\ntrain: {epochs: 1}\n")
        self.run_program("table.yaml", "--fresh")
        self.assertIn("--ahead: it needs rows of steps, of the shape (steps, values)", self.run_program("predict", "runs/test", "--ahead", 3, code=USAGE)[1])
        self.assertIn("--ahead", self.run_program("eval", "runs/test", "--ahead", 3, code=USAGE)[1])
