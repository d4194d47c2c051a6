"""A path that names several files: the run of one file with the same rows has the same state; messages name the file.
ctest-labels: unit"""
import json
import os
import random
import resource
import sqlite3

import h5py
import numpy as np

import program
from test_image_targets import RGB, write_png

CONFIG = """
dataset: {path: all.csv, targets: y, split: 0.2}
model: {layers: [{linear: 8}, relu, {linear: 3}]}
loss: cross_entropy
train: {epochs: 2}
"""


class Patterns(program.Case):
    def setUp(self):
        super().setUp()
        generator = random.Random(1)
        self.rows = [(generator.random(), generator.choice(["red", "blue", "green"]), generator.choice("abc")) for _ in range(90)]
        self.table("all.csv", self.rows)
        self.write("test.yaml", CONFIG)

    def table(self, name, rows, order=(0, 1, 2)):
        lines = [("x", "colour", "y"), *rows]
        self.write(name, "".join(",".join(str(line[i]) for i in order) + "\n" for line in lines))

    def state(self, *arguments):
        run = "runs/" + str(self.count)
        self.count += 1
        self.run_program("test.yaml", "--run-dir", run, *arguments)
        return self.sha(run)

    count = 0
    IMAGES = ("dataset.format=images", "dataset.targets=[]", "dataset.image.size=8")

    def error(self, *arguments, code=program.DATA):
        return self.run_program("test.yaml", "--run-dir", "runs/error", *arguments, code=code)[1]

    def test_csv(self):
        """Categories and labels are those of all files; the columns of each are found by name."""
        self.table("part-1.csv", self.rows[:30])
        self.table("part-10.csv", self.rows[30:60], (2, 0, 1))
        self.table("part-2.csv", self.rows[60:])
        self.table("part-3.csv", [])
        self.assertEqual(self.state("dataset.path=part-*.csv"), self.state())
        self.table("one.csv", self.rows[:60])
        self.assertEqual(self.state("dataset.path=part-1*.csv", "dataset.split=0", "dataset.validation=part-[23].csv"),
                         self.state("dataset.path=one.csv", "dataset.split=0", "dataset.validation=part-2.csv"))
        self.table("part-3.csv", [(1, "red", "a")], (0, 1))
        self.assertIn("ddptrain: part-3.csv: there is no column 'y', which 'part-1.csv' has", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "colour,x,y\nred,1,a\nred,much,b\n")
        self.assertIn("part-3.csv:line 3: column 'x': 'much' is not a number", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "colour,x,y\nred,1,a\nred,1\n")
        self.assertIn("part-3.csv:line 3: there are 2 fields, but the header has 3", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "x,colour,y,y\nred,1,a,a\n")
        self.assertIn("part-3.csv:line 1: duplicate column 'y'", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "")
        self.assertIn("part-3.csv: the file is empty", self.error("dataset.path=part-*.csv"))
        self.write("part-3.csv", "x,colour,y\n1,red,z\n")
        error = self.error("dataset.path=part-1.csv", "dataset.split=0", "dataset.validation=part-[23].csv")
        self.assertIn("part-3.csv:line 2: column 'y': class 'z' is not in 'part-1.csv'", error)

    def test_lists(self):
        """Files in the order of the list, each a name or a pattern; relative names also beside the config."""
        self.table("b.csv", self.rows[:30])
        self.table("a-1.csv", self.rows[30:40], (2, 0, 1))
        self.table("a-2.csv", self.rows[40:60])
        os.mkdir(self.path("parts"))
        self.table("parts/c.csv", self.rows[60:])
        expected = self.state()
        self.assertEqual(self.state("dataset.path=[b.csv, a-*.csv, parts/c.csv]"), expected)
        self.assertEqual(self.state("dataset.path=[all.csv]"), expected)
        self.assertNotEqual(self.state("dataset.path=[a-*.csv, b.csv, parts/c.csv]"), expected)
        self.write("parts/list.yaml", CONFIG.replace("all.csv", "[b.csv, '../a-*.csv', c.csv]"))
        self.run_program("parts/list.yaml", "--run-dir", "runs/beside")
        self.assertEqual(self.sha("runs/beside"), expected)
        self.assertRegex(self.read("runs/beside/config.yaml"), r"path: \[b.csv, \S*parts/../a-\*.csv\S*, \S*parts/c.csv\S*\]")
        self.assertIn("resuming from", "".join(self.run_program("parts/list.yaml", "--run-dir", "runs/beside", "train.epochs=3")))
        self.table("one.csv", self.rows[:40])
        self.table("two.csv", self.rows[40:])
        self.assertEqual(self.state("dataset.path=[b.csv, a-1.csv]", "dataset.split=0", "dataset.validation=[a-2.csv, parts/c.csv]"),
                         self.state("dataset.path=one.csv", "dataset.split=0", "dataset.validation=two.csv"))
        self.assertIn("'a-1.csv': the list of files has this file twice", self.error("dataset.path=[a-1.csv, a-*.csv]", code=program.USAGE))
        self.assertIn("dataset 'none.csv'", self.error("dataset.path=[b.csv, none.csv]"))
        self.assertIn("'none-*.csv': no file matches this pattern", self.error("dataset.path=[b.csv, none-*.csv]"))
        self.assertIn("'b.csv' has format csv, but 'c.npy' has format npy; all must have the same",
                      self.error("dataset.path=[b.csv, c.npy]", code=program.USAGE))
        os.symlink("a-1.csv", self.path("link.csv"))
        for other in ("./a-1.csv", "parts/../a-1.csv", "link.csv"):
            names = sorted(["a-1.csv", other])
            self.assertIn(f"'{names[1]}': the list of files has this file twice, also as '{names[0]}'",
                          self.error(f"dataset.path=[b.csv, a-1.csv, {other}]", code=program.USAGE))
        os.mkdir(self.path("photos"))
        self.assertIn("'photos' and 1 more: format images reads one file",
                      self.error("dataset.path=[photos, b.txt]", *self.IMAGES, code=program.USAGE))

    def test_braces(self):
        """Each alternative must be there, and no file may be named twice."""
        self.table("a-1.csv", self.rows[:30])
        self.table("a-2.csv", self.rows[30:40])
        self.table("b.csv", self.rows[40:])
        expected = self.state()
        for pattern in ("{a-1,a-2,b}.csv", "{a-{1,2},b}.csv", "{b,a-?}.csv", "{a-[12].csv,b.csv}"):
            self.assertEqual(self.state("dataset.format=csv", f"dataset.path='{pattern}'"), expected, pattern)
        self.assertIn("cannot read the dataset 'c.csv'", self.error("dataset.path='{a-1,b,c}.csv'"))
        self.assertIn("'c*.csv': no file matches this pattern", self.error("dataset.path='{a-1,c*}.csv'"))
        self.assertIn("'a-1.csv': the list of files has this file twice", self.error("dataset.path='{a-1,a-*}.csv'", code=program.USAGE))
        self.table("{b}.csv", self.rows)
        self.table("d{.csv", self.rows)
        self.assertEqual(self.state("dataset.path='{b}.csv'"), expected)
        self.assertEqual(self.state("dataset.path='d{*.csv'"), expected)

    def test_predict_lists(self):
        self.table("one.csv", self.rows[:50])
        self.table("two.csv", self.rows[50:], (1, 2, 0))
        self.state()
        arguments = ("predict", "test.yaml", "--run-dir", "runs/0", "--part", "all", "--with-inputs", "--out")
        self.run_program(*arguments, "all-p.csv")
        log = "".join(self.run_program(*arguments, "p.csv", "dataset.path=[one.csv, two.csv]"))
        self.assertIn("one.csv and 1 more: all 90 rows", log)
        self.assertEqual(self.read("p.csv"), self.read("all-p.csv"))
        self.run_program(*arguments, "two.csv", "dataset.path=[one.csv, two.csv]", code=program.USAGE, err="--out two.csv: this is the input dataset")

    def test_with_inputs(self):
        self.table("part-1.csv", self.rows)
        self.state()
        arguments = ("predict", "test.yaml", "--run-dir", "runs/0", "dataset.path=part-*.csv", "--part", "all", "--out", "p.csv")
        self.run_program(*arguments)
        self.run_program(*arguments, "--with-inputs")
        self.assertEqual(len(self.read("p.csv").splitlines()), 1 + len(self.rows))

    def test_arrays(self):
        generator = np.random.default_rng(0)
        x, y = generator.normal(size=(100, 4)).astype("f4"), np.arange(100) % 3
        for i, part in enumerate(np.split(np.arange(100), [30, 31])):
            np.save(self.path(f"x-{i}.npy"), x[part])
            np.save(self.path(f"y-{i}.npy"), y[part])
            np.savez_compressed(self.path(f"{i}.npz"), x=x[part], y=y[part])
            with h5py.File(self.path(f"{i}.h5"), "w") as f:
                f["x"], f["y"] = x[part], y[part]
        np.savez(self.path("all.npz"), x=x, y=y)
        expected = self.state("dataset.path=all.npz", "dataset.targets=[]")
        for pattern in ("x-*.npy", "?.npz", "'[0-2].h5'", "'{0,1,2}.h5'"):
            for cache in (0, 100):
                self.assertEqual(self.state("dataset.path=" + pattern, "dataset.targets=[]", f"dataset.cache_mb={cache}"), expected, pattern)
        self.assertEqual(self.state("dataset.path=x-*.npy", "dataset.targets=[y-0.npy, y-1.npy, y-2.npy]"), expected)
        for names in ("[x-0.npy, x-1.npy, x-2.npy]", "[0.npz, '[12].npz']", "[0.h5, 1.h5, 2.h5]"):
            for cache in (0, 100):
                self.assertEqual(self.state("dataset.path=" + names, "dataset.targets=[]", f"dataset.cache_mb={cache}"), expected, names)
        error = self.error("dataset.path=x-*.npy", "dataset.targets=y-0.npy", code=program.USAGE)
        self.assertIn("dataset.targets: there are 3 files of inputs, but 1 of targets", error)
        np.save(self.path("x-3.npy"), x[:5, :3])
        np.save(self.path("y-3.npy"), y[:5])
        self.assertIn("x-3.npy: rows have 3 inputs and 1 target value; those of the first file have 4 inputs and 1 target value, 'x-0.npy'",
                      self.error("dataset.path=x-*.npy", "dataset.targets=[]"))
        x[99, 2] = np.nan
        np.save(self.path("x-2.npy"), x[31:])
        self.assertIn("x-2.npy: row 68, column 2: NaN is not a finite number", self.error("dataset.path=x-[0-2].npy", "dataset.targets=[]"))

    def test_bytes_and_other_values(self):
        """IDX images of bytes are divided by 255, those of floats are not."""
        generator = np.random.default_rng(0)
        for name, kind, dtype in (("1", 8, "u1"), ("2", 13, ">f4"), ("3", 8, "u1")):
            with open(self.path(f"images{name}.idx"), "wb") as f:
                f.write(bytes([0, 0, kind, 3]) + np.array([30, 4, 4], ">u4").tobytes() + generator.integers(0, 256, (30, 4, 4)).astype(dtype).tobytes())
            with open(self.path(f"labels{name}.idx"), "wb") as f:
                f.write(bytes([0, 0, 8, 1]) + np.array([30], ">u4").tobytes() + (np.arange(30) % 3).astype("u1").tobytes())
        layers = ("dataset.targets=[]", "model.layers=[flatten, {linear: 3}]")
        self.assertIn("images2.idx: its values are not bytes, but those of the first file, 'images1.idx', are bytes; write dataset.divide",
                      self.error("dataset.path=images?.idx", *layers))
        self.assertIn("images1.idx: its values are bytes, but those of the first file, 'images2.idx', are not bytes",
                      self.error("dataset.path=[images2.idx, images1.idx]", *layers))
        for paths in ("'images[13].idx'", "'images?.idx', divide: 255"):
            self.state("dataset={path: %s, split: 0.2}" % paths, *layers[1:])

    def test_more_files_than_the_limit(self):
        """The limit of open files is raised as far as the system allows it."""
        for i in range(100):
            np.save(self.path(f"x-{i}.npy"), np.full((2, 4), i, "f4"))
            np.save(self.path(f"y-{i}.npy"), np.arange(2))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
            self.state("dataset.path=x-*.npy", "dataset.targets=[]")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_files_that_are_not_joined(self):
        os.mkdir(self.path("photos"))
        os.mkdir(self.path("pictures"))
        self.assertIn("'p*s' matches 2 files, but format images reads one",
                      self.error("dataset.path=p*s", *self.IMAGES, code=program.USAGE))
        self.assertIn("'none-*.csv': no file matches this pattern", self.error("dataset.path=none-*.csv"))
        self.table("b[1].csv", self.rows)
        self.assertEqual(self.state("dataset.path=b[1].csv"), self.state())


class Overlap(program.Case):
    """A warning, in a run and in check, where validation rows are also training rows."""

    def setUp(self):
        super().setUp()
        generator = np.random.default_rng(0)
        self.x, self.y = generator.normal(size=(30, 4)), np.arange(30) % 3
        lines = [",".join(map(str, [*x, y])) for x, y in zip(self.x, self.y)]
        for i in range(3):
            self.write(f"part-{i}.csv", "\n".join(["a,b,c,d,y", *lines[i::3], ""]))

    def check(self, dataset, file):
        """[file]: the one that is named; None: no warning."""
        self.write("test.yaml", CONFIG.replace("path: all.csv, targets: y, split: 0.2", dataset).replace("[{linear: 8}", "[flatten, {linear: 8}"))
        for out, err in (self.run_program("check", "test.yaml"), self.run_program("test.yaml", "--fresh", "train.epochs=1")):
            self.assertEqual(file is not None, "trained on validation rows" in out + err, dataset)
            self.assertIn(f"{file} in dataset.path and in dataset.validation" if file else "", out + err)
        return self.run_program("eval", "runs/test")

    def test_patterns_and_lists(self):
        os.symlink("part-1.csv", self.path("link.csv"))
        self.check("path: part-*.csv, validation: {path: part-1.csv}", "part-1.csv is")
        self.check("path: part-*.csv, validation: {path: link.csv}", "link.csv is")
        self.check("path: [part-0.csv, part-1.csv], validation: {path: 'part-[12].csv'}", "part-1.csv is")
        self.check("path: 'part-[01].csv', validation: {path: part-2.csv}", None)
        self.check("path: part-*.csv, validation: {path: part-*.csv}", "part-0.csv and 2 more are")
        self.check("path: part-0.csv, split: 0.2", None)
        self.assertNotIn("trained on", "".join(self.run_program("eval", "runs/test", "part-0.csv")))

    def test_what_a_validation_file_is_of(self):
        """Other arrays of a file, or rows of another query, are other rows."""
        np.savez(self.path("split.npz"), x_train=self.x, y_train=self.y, x_test=self.x, y_test=self.y)
        self.check("path: split.npz, validation: {path: split.npz}", None)
        np.savez(self.path("one.npz"), x=self.x, y=self.y)
        self.check("path: one.npz, validation: {path: one.npz}", "one.npz is")
        np.savez(self.path("two.npz"), x=self.x, y=self.y)
        self.check("path: '{one,two}.npz', validation: {path: two.npz}", "two.npz is")
        with sqlite3.connect(self.path("t.db")) as database:
            database.execute("create table t (a, b, c, d, y)")
            database.executemany("insert into t values (?, ?, ?, ?, ?)", [(*x.tolist(), int(y)) for x, y in zip(self.x, self.y)])
        rows = "path: t.db, query: select * from t where a < 0, validation: {path: t.db"
        self.check(rows + ", query: select * from t where a >= 0}", None)
        self.check(rows + ", query: select * from t where a < 0}", "t.db is")
        self.check(rows + "}", "t.db is")

    def test_images(self):
        for i in range(3):
            os.makedirs(self.path(f"photos/{'abc'[i]}"))
            write_png(self.path(f"photos/{'abc'[i]}/1.png"), np.full((8, 8, 3), 80 * i, "u1"), RGB)
        self.check("path: photos, image: {size: 8}, validation: {path: photos}", "photos is")
        self.write("train.csv", "file,y\na/1,0\nb/1,1\nb/1,2\n")
        self.write("val.csv", "file,y\nc/1,1\n")
        labels = "path: photos, image: {size: 8, labels: train.csv}, validation: {path: photos, targets: "
        self.check(labels + "val.csv}", None)
        self.check(labels + "train.csv}", "train.csv is")


class Texts(program.Case):
    """Several files of text or tokens are one: the files one after another, also where a row or a token is in two of them."""

    CONFIG = ("dataset: {split: {test: 0.2, shuffle: false}, ROWS}\n"
              "model: {layers: [{embedding: {embedding_dim: 4}}, {linear: 400}]}\nloss: cross_entropy\ntrain: {epochs: 2}\n")
    PARTS = ("one aé", "", "\n\r\nb two th", "ree " * 40, "x")

    def state(self, name, *arguments):
        self.run_program("test.yaml", "--fresh", "--run-dir", "runs/" + name, *arguments)
        return self.sha("runs/" + name)

    def compare(self, ending, unknown, parts):
        """[parts]: bytes of the files; [unknown]: those of a character or token that the training does not have."""
        files = {f"part-{i}{ending}": part for i, part in enumerate(parts)}
        files |= {"all" + ending: b"".join(parts), "rest" + ending: parts[3] + b"".join(parts[:2]),
                  "unknown" + ending: unknown}
        for name, content in files.items():
            with open(self.path(name), "wb") as file:
                file.write(content)
        state = self.state("one", f"dataset.path=all{ending}")
        self.assertEqual(self.state("pattern", f"dataset.path=part-*{ending}"), state)
        self.assertEqual(self.state("list", "dataset.path=[" + ", ".join(f"part-{i}{ending}" for i in range(len(parts))) + "]"), state)
        self.assertIn("runs/list", self.run_program("eval", "runs/list")[1])
        rows = [self.run_program("eval", "runs/list", name)[0] for name in (f"all{ending}", f"part-*{ending}")]
        self.assertEqual(rows[0], rows[1])
        self.state("v", f"dataset.path=part-*{ending}", "dataset.split=null", f"dataset.validation=rest{ending}")
        whole = self.events("epoch", "runs/v")[-1]["val_loss"]
        self.state("v", f"dataset.path=all{ending}", "dataset.split=null", f"dataset.validation=[part-3{ending}, part-0{ending}, part-1{ending}]")
        self.assertEqual(self.events("epoch", "runs/v")[-1]["val_loss"], whole)
        return self.run_program("test.yaml", "--run-dir", "runs/bad", f"dataset.path=all{ending}", "dataset.split=null",
                                f"dataset.validation=[part-3{ending}, part-2{ending}, unknown{ending}]", code=program.DATA)[1]

    def test_text(self):
        self.write("test.yaml", self.CONFIG.replace("ROWS", "text: {block_size: 5}"))
        parts = [part.encode() for part in self.PARTS]
        self.assertIn("unknown.txt: line 2: the character 'ß' is not in 'all.txt'", self.compare(".txt", "one\nß".encode(), parts))
        self.write("bad.txt", "")
        with open(self.path("bad.txt"), "wb") as file:
            file.write(b"a\nb\xff")
        self.assertIn("bad.txt: line 2: byte 4 of the file is not valid UTF-8",
                      self.run_program("test.yaml", "dataset.path=[part-2.txt, bad.txt]", code=program.DATA)[1])
        self.assertIn("part-0.txt and 1 more file: 7 characters are used, but a row and its targets need block_size + 1 = 8",
                      self.run_program("test.yaml", "dataset.path=[part-0.txt, part-4.txt]", "dataset.text.block_size=7", code=program.DATA)[1])

    def test_tokenizer(self):
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        letters = {chr(byte if byte in printable else 256 + others.index(byte)): byte for byte in range(256)}
        self.write("tokenizer.json", json.dumps({"model": {"type": "BPE", "vocab": {**letters, "th": 256, "thr": 257}, "merges": ["t h", "th r"]},
                                                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}))
        self.write("test.yaml", self.CONFIG.replace("ROWS", "tokens: {block_size: 5, tokenizer: tokenizer.json}"))
        self.assertIn("unknown.txt: line 1: byte 3 of the file is 0", self.compare(".txt", b"ab\0", [part.encode() for part in self.PARTS]))

    def test_tokens(self):
        self.write("test.yaml", self.CONFIG.replace("ROWS", "tokens: {block_size: 5, dtype: uint16, stride: 2}"))
        parts = [np.frombuffer(part.encode(), "u1").astype("<u2").tobytes() for part in self.PARTS]
        self.assertIn("unknown.bin: token number 2 is 300, but the vocabulary has",
                      self.compare(".bin", np.array([97, 98, 300] * 9, "<u2").tobytes(), parts))
        with open(self.path("odd.bin"), "wb") as file:
            file.write(b"abc")
        self.assertIn("odd.bin: its size, 3 bytes, is not a multiple of 2",
                      self.run_program("test.yaml", "dataset.path=[part-2.bin, odd.bin]", code=program.DATA)[1])
