"""init: a config for a data file that passes check and trains. ctest-labels: unit"""
import csv, datetime, fcntl, os, random, re, resource, shutil, struct, zlib

import h5py
import numpy as np

import program
from program import DATA, USAGE


def write_png(path, lines, width, kind):
    """[kind]: 0 grey, 2 RGB."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, len(lines), 8, kind, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(b"".join(b"\0" + line.tobytes() for line in lines))) + chunk(b"IEND", b""))


class Init(program.Case):
    def init(self, *arguments, code=0):
        out, err = self.run_program("init", *arguments, code=code)
        return out if code == 0 else err

    def train(self, *arguments, words=("train.epochs=2",)):
        """The config of init; it passes check, trains and predicts."""
        text = self.init(*arguments)
        self.write("first.yaml", text)
        self.run_program("check", "first.yaml")
        self.run_program("first.yaml", "name=test", *words, "--fresh", timeout=300)
        return text

    def rows(self, name, header, rows):
        with open(self.path(name), "w", newline="") as f:
            csv.writer(f).writerows([header, *rows])
        return name

    def test_shipped_datasets(self):
        for name, metric, minimum in (("iris.csv", "val_accuracy", 0.8), ("wine.csv", "val_accuracy", 0.9), ("wine.h5", "val_accuracy", 0.9),
                                      ("titanic.csv", "val_accuracy", 0.6)):
            with self.subTest(name):
                text = self.train(f"datasets/{name}", words=())
                self.assertIn("name: " + name.split(".")[0], text)
                self.assertIn("stratify: true", text)
                for line in ("  epochs: 300\n", "  early_stop: {metric: val_loss, patience: 15}   # ", "  best: val_loss "):
                    self.assertIn(line, text)
                self.assertLess(len(self.events("epoch")), 300)
                self.assertIn("best.h5: epoch ", self.run_program("predict", "first.yaml", "--run-dir", "runs/test", "--out", "p.csv")[1])
                self.assertNotIn("conv2d", text)
                self.assertGreaterEqual(self.events("epoch")[-1][metric], minimum)
        for name, layer, words in (("mnist/t10k-images-idx3-ubyte.gz", "conv2d", ["train.epochs=null", "train.steps=3", "dataset.split.test=0.1"]),
                                   ("shapes", "conv2d", ["train.epochs=1"]),
                                   ("tinyshakespeare.txt", "attention", ["train.epochs=null", "train.steps=2", "dataset.text.truncate=0.002"])):
            with self.subTest(name):
                self.assertIn(layer, self.train(f"datasets/{name}", words=words))

    def test_images_that_are_divided(self):
        """The folders train, val and test are parts, not classes."""
        shapes = os.path.join(program.SOURCE, "datasets/shapes")
        for parts, validation in ((("train", "val", "test"), "val"), (("Training", "valid"), "valid"), (("train", "test"), "test")):
            folder = "photos of " + validation
            for part in parts:
                shutil.copytree(shapes, self.path(f"{folder}/{part}"))
            self.write(folder + "/README.txt", "shapes")
            text = self.train(folder + "/", words=["train.epochs=1"])
            self.assertIn(f'path: "{folder}/{parts[0]}"', text)
            self.assertIn(f'validation: "{folder}/{validation}"\n', text)
            self.assertNotIn("split:", text)
            self.assertEqual(f"# after the training: ddptrain eval CONFIG {folder}/test\n" in text, len(parts) == 3)
            self.assertIn("val_accuracy", self.events("epoch")[-1])
        self.assertIn("name: photos_of_val\n", self.init("photos of val"))

    def add_text(self, name):
        """Of 100,000 bytes, between the size of a PNG file and its pixels."""
        with open(self.path(name), "r+b") as file:
            data, text = file.read(), b"tEXtComment\0" + 100000 * b"x"
            file.seek(33)
            file.write(struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text)) + data[33:])

    def test_sizes_of_images(self):
        """Size and channels of the files; of several sizes the median, if it is small."""
        generator = np.random.default_rng(0)
        for sizes, mode, line in (([(8, 8)], "L", "size: [8, 8], channels: 1}  # the size of the images"), ([(24, 16)], "RGB", "size: [16, 24]}  # the size"),
                                          ([(20, 20), (30, 20), (20, 40)], "RGB", "size: [24, 24]}  # each image is"),
                                          ([(300, 80), (90, 310)], "RGB", "size: [64, 64]}  # each image is resized")):
            shutil.rmtree(self.path("pixels"), ignore_errors=True)
            for i in range(30):
                os.makedirs(self.path(f"pixels/{i % 2}"), exist_ok=True)
                width, height = sizes[i % len(sizes)]
                lines = generator.integers(0, 256, (height, width * (1 if mode == "L" else 3)), dtype=np.uint8)
                write_png(self.path(f"pixels/{i % 2}/{i}.png"), lines, width, 0 if mode == "L" else 2)
                if mode == "L":
                    self.add_text(f"pixels/{i % 2}/{i}.png")
            self.assertIn("  image: {" + line, self.train("pixels", words=["train.epochs=1"]))

    def test_names_of_runs(self):
        """Two targets of a file, and two files with a common name, have runs of their own."""
        os.makedirs(self.path("cats/train/a"))
        for file, arguments, name in (("houses.csv", [], "houses"), ("houses.csv", ["--target", "u v"], "houses_u_v"), ("cats/train.csv", [], "cats_train"), ("train.csv", [], "train"),
                                      ("./data.csv", [], "data")):
            self.rows(file, ["u v", "w"], [[i % 7, i / 4] for i in range(40)])
            self.assertIn(f"\nname: {name}\n", self.init(file, *arguments))

    def test_labels_of_images(self):
        """A CSV file whose first column names images in a folder beside it."""
        shapes = os.path.join(program.SOURCE, "datasets/shapes/circle")
        shutil.copytree(shapes, self.path("data/photos"))
        os.mkdir(self.path("data/a"))
        names = sorted(os.listdir(shapes))
        for file, cut, folder in (("data/labels.csv", 4, "data/photos"), ("data/photos/all.csv", 0, "data/photos")):
            self.rows(file, ["id", "label", "size"], [[name[:len(name) - cut], "ab"[i % 2], i / 4] for i, name in enumerate(names)])
            text = self.train(file, words=["train.epochs=1"])
            for line in (f"path: {folder}\n", f"image: {{size: [40, 40], labels: {file}}}", "targets: label   # 2 classes: a, b\n", "conv2d",
                         "# the images are those that column 'id' names; its other columns may be targets\n"):
                self.assertIn(line, text)
            self.assertIn("targets: size   # a number is predicted\n", self.train(file, "--target", "size", words=["train.epochs=1"]))
        self.rows("data/long.csv", ["text", "y"], [["x" * 300 + str(i), i % 2] for i in range(20)])  # no name of a file
        self.assertIn("data/long.csv: no column is left for the inputs", self.init("data/long.csv", code=USAGE))
        os.remove(self.path("data/photos/" + names[3]))
        self.assertIn(f"path: data/labels.csv\n", self.init("data/labels.csv", "--target", "label"))

    def test_a_short_text_is_read_several_times(self):
        """One epoch of it is a few updates, after which the model writes letters at random."""
        for lines, epochs in ((60, 20), (3000, 5), (30000, 1)):
            self.write("poem.txt", "Es war, als haett der Himmel\n" * lines)
            text = self.init("poem.txt")
            self.assertIn(f"train:\n  epochs: {epochs}\n", text)
            self.assertIn(f"init for poem.txt: text, {(lines * 29 - 65) // 32 + 1} rows.", text)

    def test_a_table_as_users_have_it(self):
        r = random.Random(1)
        rows = []
        for i in range(60):
            rows.append([i + 1, f"Name, the {i}.", ["male", "female"][i % 2], r.choice([22, 35, ""]) , r.choice(["S", "C", "NA"]), f"2024-01-{i % 28 + 1:02}",
                         "", r.choice(["3", "x", "7"]), ["no", "yes"][(i // 2) % 2]])
        self.rows("people.csv", ["id", "name", "sex", "age", "port", "when", "empty", "mixed: #", "Outcome"], rows)
        text = self.train("people.csv")
        for line in ("id: ignore   # it counts the rows", "name: ignore   # 60 different texts in 60 rows", "empty: ignore   # it is empty",
                     "port: {missing: indicator}   # ", "age: {missing: indicator}   # ", '"mixed: #": category   # ', "targets: Outcome   # 2 classes: no, yes"):
            self.assertIn(line, text)
        self.assertNotIn("when:", text)
        out, _ = self.run_program("predict", "first.yaml", "people.csv", "--run-dir", "runs/test", "--probabilities")
        self.assertEqual(out.splitlines()[0], "row,prediction,no,yes")
        text = self.train("people.csv", "--target", "sex")
        self.assertIn("targets: sex   # 2 classes: female, male", text)

    def test_the_target_of_arrays_is_named(self):
        x, y = np.arange(24, dtype=np.float32).reshape(12, 2), np.arange(12) % 3
        with h5py.File(self.path("a.h5"), "w") as f:
            f["x"], f["y"], f["kind"] = x, y, y
        np.savez(self.path("b.npz"), images=x, labels=y, kind=y)
        np.save(self.path("x.npy"), x)
        np.save(self.path("y.npy"), y)
        np.save(self.path("kind.npy"), y)
        self.write("bare.yaml", "name: bare\nmodel: {layers: [{linear: 3}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        for data, default, other in (("a.h5", "y", "kind"), ("b.npz", "labels", "kind"), ("x.npy", "y.npy", "kind.npy")):
            for target, why in ((default, ", the default; dataset.targets names another"), (other, "")):
                words = ["bare.yaml", f"dataset.path={data}", *([f"dataset.targets={other}"] if not why else [])]
                self.assertIn(f"\ntarget         {target}{why}\n", self.run_program("check", *words)[0])
                self.assertIn(f"\ntarget: {target}{why}\n", self.run_program(*words, "--fresh")[1])

    def test_the_target_is_named(self):
        """init, and a run without dataset.targets, choose the same column, and say which and why."""
        for header, target, why in ((["a", "Label", "c"], "Label", "by its name"), (["y", "label", "c"], "label", "by its name"), (["a", "b", "c"], "c", "the last column"),
                                    (["a", "b", ""], "b", "the last column")):
            self.rows("t.csv", header, [[i % 7, i % 2, i % 3] for i in range(60)])
            _, err = self.run_program("init", "t.csv")
            self.assertRegex(err, f"^t.csv: the target is '{target}', {why}: [23] classes; --target COLUMN takes another\n  look at dataset.columns")
            self.write("bare.yaml", "name: bare\ndataset: {path: t.csv}\nmodel: {layers: [{linear: 3}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
            self.assertIn(f"\ntarget         {target}, {why}; dataset.targets names another\n", self.run_program("check", "bare.yaml")[0])
            self.assertIn(f"\ntarget: {target}, {why}; dataset.targets names another\n", self.run_program("bare.yaml", "--fresh")[1])
            self.assertIn(f"\ntarget: {header[0]}\n", self.run_program("bare.yaml", f"dataset.targets={header[0]}", "model.layers=[{linear: 7}]", "--fresh")[1])
        self.rows("t.csv", ["id", "b", "c"], [[i, i % 5, i % 2] for i in range(60)])
        self.assertIn("t.csv: the target is 'b', by --target: 5 classes; --target COLUMN takes another\n  ignored: 'id', it counts the rows\n",
                      self.run_program("init", "t.csv", "--target", "b")[1])

    def test_identifiers(self):
        """Columns that say which row it is; columns of true features with values that are as different stay."""
        r = random.Random(3)
        n = 1200  # more than the texts that are counted
        order = r.sample(range(n), n)
        columns = {"PassengerId": [f"{892 + i}" for i in range(n)], "customer_id": [100 + 7 * order[i] for i in range(n)], "shuffled": [5001 + order[i] for i in range(n)],
                   "UUID": [f"{order[i]:05x}-e" for i in range(n)], "code": [f"K{order[i] * 3}" for i in range(n)], "case no": [order[i] * 2 for i in range(n)],
                   "year": [800 + order[i] for i in range(n)], "income": [order[i] * 5 for i in range(n)], "weight": [order[i] / 7 for i in range(n)], "paid": [order[i] * 3 for i in range(n)],
                   "store_id": [i % 6 for i in range(n)], "number": [i % 12 for i in range(n)], "y": [i % 2 for i in range(n)]}
        self.rows("t.csv", columns, zip(*columns.values()))
        text = self.train("t.csv", words=["train.epochs=1"])
        different = "ignore   # looks like an identifier: 1200 different values in 1200 rows\n"
        for line in ("PassengerId: ignore   # looks like an identifier: each number from 892 to 2091 once\n", f"customer_id: {different}", f"UUID: {different}", f"code: {different}",
                     "shuffled: ignore   # looks like an identifier: each number from 5001 to 6200 once\n", f"case no: {different}"):
            self.assertIn(line.replace("case no", '"case no"'), text)
        for name in ("year", "income", "weight", "paid", "store_id", "number"):
            self.assertNotIn(f"    {name}: ", text)
        self.rows("t.csv", ["id", "y"], [[2 * i, i % 2] for i in range(50)])  # all that there is
        self.assertNotIn("ignore", self.train("t.csv"))
        self.rows("t.csv", ["id", "y"], [[order[i], i % 2] for i in range(50)])
        self.assertNotIn("ignore", self.train("t.csv"))

    def test_regular_identifiers(self):
        """Those of rows that were selected, sorted or counted in another way; whole numbers that lose their last digits."""
        regular = {"even": (lambda i: 2 * i, 0, 398, 2), "falling": (lambda i: 1000 - 3 * i, 1000, 403, 3), "tens": (lambda i: f"{10 * i + 5}.0", 5, 1995, 10),
                   "padded": (lambda i: f"{4 * i:06}", 0, 796, 4), "negative": (lambda i: -50 + 7 * i, -50, 1343, 7)}
        others = {"half": lambda i: i / 2, "late": lambda i: 2 * i + (i > 150), "timestamp": lambda i: 1600000000 + 60 * i, "constant": lambda i: 4, "v": lambda i: i * i % 37}
        columns = {**{name: value[0] for name, value in regular.items()}, "down": lambda i: 200 - i, "hex": lambda i: f"{i * 7919 % 65536:04x}", "wide": lambda i: 2**60 + 1000003 * i,
                   "kind": lambda i: 2**60 + i % 3, **others, "y": lambda i: i % 2}
        self.rows("t.csv", columns, [[value(i) for value in columns.values()] for i in range(200)])
        text = self.train("t.csv", words=["train.epochs=1"])
        start = "ignore   # looks like an identifier"
        for name, (_, first, last, step) in regular.items():
            self.assertIn(f"    {name}: {start}: the numbers from {first} to {last} in steps of {step}\n", text)
        lost = f"such as {2**60}: whole numbers from 2^53 on lose their last digits\n"
        for line in (f"down: {start}: each number from 1 to 200 once\n", "hex: ignore   # 200 different texts in 200 rows\n", f"wide: {start}, {lost}", f"kind: category   # codes, {lost}"):
            self.assertIn("    " + line, text)
        for name in others:
            self.assertNotIn(f"    {name}: ", text)
        self.write("all.yaml", "dataset: {path: t.csv, columns: {hex: ignore, kind: category}}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        self.assertIn("columns 'even', 'falling', 'tens', 'padded', 'negative', 'down' look like identifiers of the rows", self.run_program("check", "all.yaml", "--data")[0])

    def test_rows_that_belong_together(self):
        """An identifier with a few rows each: all of them are in the same part."""
        for name, rows, values in (("Subject", 10, 18), ("visit.patient", 4, 60), ("customerId", 3, 500), ("order_id", 30, 10), ("region", 10, 18)):
            self.rows("t.csv", ["v", name, "y"], [[i * 7 % 60 / 7, f"s{i // rows * 37 % 1009}", i % 2] for i in range(rows * values)])
            text = self.train("t.csv", words=["train.epochs=1"])
            is_group = name not in ("order_id", "region")
            self.assertEqual(f"split: {{test: 0.2, seed: 42, group: {name}}}   # rows with the same value stay together" in text, is_group)
            self.assertEqual(f"{name}: ignore   # looks like an identifier: {values} different values in {rows * values} rows; a split by rows would" in text, is_group)
            self.assertNotEqual("stratify" in text, is_group)

    def test_a_column_that_is_nearly_empty(self):
        """Its few values may all be in validation rows; then nothing can replace those of the training rows."""
        for values, rule in ((1, "ignore   # 1 value in 60 rows"), (4, "ignore   # 4 values in 60 rows"), (5, "{missing: indicator}   # 55 values are missing")):
            for first in range(0, 60 - values, 10):
                self.rows("sparse.csv", ["a", "b", "y"], [[i % 7, i / 4 if first <= i < first + values else "", i % 2] for i in range(60)])
                self.assertIn(f"b: {rule}\n", self.train("sparse.csv"))
        self.rows("short.csv", ["a", "b", "y"], [[i, 7 * i % 5 if i % 2 else "", i % 2] for i in range(8)])
        self.assertIn("b: {missing: indicator}   # 4 values are missing\n", self.init("short.csv"))

    def test_codes_with_leading_zeros(self):
        """As numbers, codes of shops or places lose their zeros and have an order that means nothing."""
        def rows(shops, codes):
            return [["shop", "place", "part", "y"]] + [[f"{shops(i):03}", f"{codes(i):05}", f"0.{i % 7}", i % 2] for i in range(60)]
        for shops, codes, lines in ((lambda i: i % 12, lambda i: 100 * i + 7 + i % 2,
                                     ["shop: category   # codes with leading zeros, such as '000'; number if they are numbers",
                                      "place: number   # some have leading zeros, such as '00007'; ignore or category if they are codes"]),
                                    (lambda i: 100 + i % 3, lambda i: i + 1, ["place: ignore   # it counts the rows"])):
            names, *values = rows(shops, codes)
            self.rows("codes.csv", names, values)
            text = self.train("codes.csv")
            for line in lines:
                self.assertIn(line + "\n", text)
            self.assertNotIn("part:", text)  # 0.5 is a number
        values[5][0] = ""
        self.rows("codes.csv", names, [["0" + v[0] if v[0] else "", *v[1:]] for v in values])
        self.assertIn("shop: {type: category, missing: most_frequent}   # codes with leading zeros, such as '0100'", self.train("codes.csv"))

    def test_a_table_of_a_spreadsheet(self):
        """Semicolons, decimal commas and Latin-1 are recognised, by init as by a run."""
        with open(self.path("prices.csv"), "wb") as f:
            f.write(b"price;town;sold\n" + b"".join(b"%d,5;%s;%d\n" % (i * i % 37, [b"Z\xfcrich", b"Ulm"][i % 2], i % 2) for i in range(40)))
        text = self.train("prices.csv")
        self.assertIn("targets: sold   # 2 classes", text)
        self.assertNotIn("columns:", text)

    def test_dialects_and_patterns(self):
        """Semicolons and decimal commas; the first of several files is typical."""
        for part in range(3):
            self.write(f"part-{part}.csv", "u;v;price\n" + "".join(f"{i},5;{i % 3},25;{i * 2},125\n" for i in range(40)))
        text = self.train("part-*.csv")
        self.assertIn("csv, 120 rows", text)
        self.assertIn("targets: price   # a number is predicted", text)
        self.assertNotIn("columns:", text)

    def test_marks_of_missing_numbers(self):
        """In a column of numbers or dates such a text means a missing value, for all columns; pandas' own texts stay."""
        self.rows("t.csv", ["q", "dash", "na", "when", "kind", "y"], [["?" if i % 9 == 4 else i * 0.7, "-" if i % 7 == 0 else i % 13 / 2, "#N/A" if i % 8 == 0 else i * 3 % 17,
                                                                     "n.a." if i == 3 else f"2024-01-{i % 28 + 1:02}", "?ab"[i % 3], i % 2] for i in range(60)])
        text = self.train("t.csv")
        for line in ("missing: [\"\", \"#N/A\", N/A, NA, NaN, None, \"null\", \"?\", \"-\", n.a.]   # texts that mean a missing value, such as '?' in column 'q'\n",
                     "q: {missing: indicator}   # 7 values are missing", "dash: {missing: indicator}   # 9 values are missing", "na: {missing: indicator}   # 8 values are missing",
                     "when: {missing: median}   # 1 value is missing", "kind: {missing: indicator}   # 20 values are missing"):
            self.assertIn(line, text)
        self.rows("t.csv", ["kind", "v", "y"], [["?ab"[i % 3], i * 0.7, i % 2] for i in range(60)])
        text = self.train("t.csv")  # a category like the others
        self.assertNotIn("missing", text)
        self.rows("t.csv", ["v", "w", "kind"], [["-" if i == 5 else i * 0.7, i % 7, "-ab"[i % 3]] for i in range(60)])
        self.assertIn("targets: kind   # 3 classes: -, a, b", self.train("t.csv"))  # labels are never missing

    def test_numbers_in_other_writing(self):
        rows = [[f"{i * 7 % 60}.{i}%" if i else "3", f"${1000 + i * 371:,}" if i % 2 else f"€{i}", f"{1000 + i * 3371:,}", f"{i * 40 % 59 + 0.5} kg", "-inf" if i == 5 else i * 0.7, "x" if i == 11 else i * 0.3,
                 "5%" if i % 2 else "10%", i % 7, i % 2] for i in range(60)]
        self.rows("t.csv", ["percent", "price", "people", "mass", "infinite", "typo", "few", "v", "y"], rows)
        text = self.train("t.csv")
        plain = "only plain numbers are read as numbers, see dataset.csv.strip\n"
        for line in (f"percent: ignore   # numbers with percent signs, such as '7.1%' in line 3; {plain}",
                     f"price: ignore   # numbers with currency signs and thousands separators, such as '€0' in line 2; {plain}",
                     "csv: {thousands: \",\"}   # numbers such as '1,000'\n",
                     f"mass: ignore   # numbers with units, such as '0.5 kg' in line 2; {plain}",
                     "infinite: {missing: median}   # 1 value is missing\n", "\"-inf\"]   # texts that mean a missing value, such as '-inf' in column 'infinite'\n",
                     "typo: ignore   # 59 numbers and 1 text, such as 'x' in line 13; list texts that mean missing values in dataset.missing\n",
                     f"few: category   # numbers with percent signs, such as '10%' in line 2; {plain}"):
            self.assertIn(line, text)
        self.assertIn(f"the target 'price' has numbers with currency signs and thousands separators, such as '€0' in line 2; {plain.strip()}; write plain numbers",
                      self.init("t.csv", "--target", "price", code=USAGE))
        self.assertIn("the target 'typo' has numbers and texts, such as 'x' in line 13; remove these rows", self.init("t.csv", "--target", "typo", code=USAGE))
        self.rows("t.csv", ["mass", "y"], [["1 kg", 1], ["2 kg", 2], ["3 kg", 1]])
        self.assertIn("t.csv: no column is left for the inputs: 'mass': numbers with units, such as '1 kg' in line 2", self.init("t.csv", code=USAGE))

    def test_numbers_that_mean_missing(self):
        """A comment counts them; with the two keys that it names they are missing values."""
        n = 60
        columns = {"far": [-999 if i % 10 == 3 else i * 0.7 for i in range(n)], "top": ["9999.0" if i in (5, 40) else i % 13 for i in range(n)], "minus": [-1 if i % 7 == 2 else i * 3 % 40 for i in range(n)],
                   "codes": [99 if i % 6 == 1 else i % 5 for i in range(n)], "gaps": ["" if i % 9 == 4 else -99 if i % 8 == 1 else i * 7 % 50 for i in range(n)],
                   "near": [99 if i % 6 == 1 else 40 + i for i in range(n)], "once": [-999 if i == 3 else i * 0.3 for i in range(n)], "sign": [i % 3 - 1 for i in range(n)],
                   "cold": [-1 if i % 7 == 2 else i % 40 - 20 for i in range(n)], "all": [-999] * n, "y": [i % 2 for i in range(n)]}
        self.rows("t.csv", columns, zip(*columns.values()))
        text = self.train("t.csv", words=["train.epochs=1"])
        for name, rule, value, count in (("far", "number", "-999", 6), ("top", "number", "9999.0", 2), ("minus", "number", "-1", 9), ("codes", "number", "99", 10),
                                         ("gaps", "{missing: indicator}", "-99", 7)):
            start = "" if name != "gaps" else "7 values are missing; "
            self.assertIn(f"    {name}: {rule}   # {start}{value} in {count} rows may mean a missing value; then list it, dataset.missing: [\"\", NA, \"{value}\"], and write {{missing: median}}\n", text)
        for name in ("near", "once", "sign", "cold", "all"):
            self.assertNotIn(f"    {name}: ", text)
        self.write("first.yaml", text.replace("  columns:", '  missing: ["", NA, "-999"]\n  columns:').replace("far: number", "far: {missing: median}").replace("  scale:", "    once: {missing: median}\n    all: ignore\n  scale:"))
        self.assertRegex(self.run_program("check", "first.yaml")[0], r"\n *far +number +6, median")

    def test_numbers_that_are_too_large(self):
        """1e400 is read as infinity."""
        self.rows("t.csv", ["a", "b", "c", "y"], [[i * 0.7, "1e400" if i == 9 else i * 0.3, "-1e400" if i < 30 else 2, i % 2] for i in range(60)])
        text = self.train("t.csv")
        self.assertIn("b: ignore   # numbers with infinite values, such as '1e400' in line 11; remove these rows, or list the text in dataset.missing\n", text)
        self.assertIn("c: category   # numbers with infinite values, such as '-1e400' in line 2", text)
        self.assertIn("the target 'b' has numbers with infinite values, such as '1e400' in line 11", self.init("t.csv", "--target", "b", code=USAGE))

    def test_one_class(self):
        warning = "  # warning: all rows have the same target, so that there is nothing to learn; "
        for same in ("1", "1.5", "yes", 0):
            self.rows("t.csv", ["a", "b", "y"], [[i % 7, i / 4, same] for i in range(60)])
            self.assertIn(warning + "name another one by --target NAME\n", self.train("t.csv"), same)
            self.assertNotIn("warning", self.init("t.csv", "--target", "a"))
        np.savez(self.path("t.npz"), x=np.random.default_rng(0).random((40, 4)), y=np.ones(40, int))
        self.assertIn(warning, self.init("t.npz"))
        shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes/circle"), self.path("photos/one"))
        self.assertIn(warning + "each class needs a folder of its own\n", self.train("photos", words=["train.epochs=1"]))
        self.assertNotIn("warning", self.init("datasets/shapes"))

    def test_images_beside_the_folders(self):
        shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes/circle"), self.path("photos"))
        shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes/circle"), self.path("photos/sub"))
        self.assertRegex(self.init("photos"), r"  # warning: 40 images beside the folders of the classes, such as photos/\S+, are not used; "
                                              r"move them into the folder of a class\n")

    def test_the_kind_of_target(self):
        r = random.Random(2)
        for values, kind in (([i % 3 for i in range(60)], "cross_entropy"), ([i % 2 for i in range(60)], "cross_entropy"), ([i * 0.5 for i in range(60)], "mse"),
                             ([r.randrange(10 ** 6) for _ in range(60)], "mse"), ([-1, 1] * 30, "cross_entropy"), ([-1, 5000] * 30, "mse"), (["1", "1.0", "3"] * 20, "cross_entropy"), (["a", "true"] * 30, "cross_entropy"),
                             ([1.5] * 60, "mse"), (list(range(60)), "mse"), (["a", "b"] * 29 + ["c", "b"], "cross_entropy")):
            with self.subTest(values[:4]):
                self.rows("t.csv", ["u", "v", "what"], [[r.random(), r.random(), v] for v in values])
                text = self.train("t.csv")
                self.assertIn(f"loss: {kind}\n", text)
                self.assertEqual("target_scale: standard" in text, kind == "mse")
        self.assertNotIn("stratify", text)  # a class of one row
        for values, rule, outputs in (([10, 20, 30] * 20, True, 3), ([1, 2] * 30, True, 2), ([-1, 1] * 30, True, 2), ([0, 1, 3] * 20, True, 3), ([2, 1, 0] * 20, False, 3)):
            self.rows("t.csv", ["u", "v", "what"], [[r.random(), r.random(), v] for v in values])
            text = self.train("t.csv")
            self.assertEqual("    what: category   # its numbers are the names of classes\n" in text, rule, values[:3])
            self.assertIn(f"- linear: {{out: {outputs}}}   # one for each class", text)
        self.rows("t.csv", ["label", "v", "w"], [["xy"[i % 2], i / 7, r.random()] for i in range(60)])
        self.assertIn("targets: label", self.train("t.csv"))
        self.rows("t.csv", ["u", "y"], [[i, i * 0.7] for i in range(60)])
        self.assertNotIn("ignore", self.train("t.csv"))  # the only input, though it counts the rows
        self.rows("t.csv", ["u", "y"], [[1, 2.5], [3.5, 4]])
        self.assertIn("# split: 0.2", self.train("t.csv"))

    def test_the_width_of_the_model(self):
        """Two layers of 128 or more for numbers, one of 32 or more for classes of few rows."""
        def widths(name):
            return [int(out) for out in re.findall(r"linear: \{out: (\d+)\}", self.init(name))]
        for inputs, rows, values, classes in ((2, 40, [128, 128, 1], [32, 2]), (200, 40, [256, 256, 1], [256, 2]), (2, 600, [128, 128, 1], [32, 32, 2])):
            header = [f"a{i}" for i in range(inputs)] + ["y"]
            numbers = [[(i * 7 + j * 13) % 101 / 10 for j in range(inputs)] for i in range(rows)]
            with self.subTest(inputs=inputs, rows=rows):
                self.assertEqual(widths(self.rows("v.csv", header, [[*row, sum(row[:2]) + i / 1000] for i, row in enumerate(numbers)])), values)
                self.assertEqual(widths(self.rows("c.csv", header, [[*row, "no" if i % 3 else "yes"] for i, row in enumerate(numbers)])), classes)

    def test_hdf5(self):
        import h5py
        with h5py.File(self.path("t.h5"), "w") as f:
            f["x"], f["y"], f["price"] = np.random.default_rng(0).random((40, 1, 4, 5)), np.arange(40) % 4, np.random.default_rng(1).random((40, 2))
        self.assertIn("linear: {out: 4}", self.train("t.h5"))
        text = self.train("t.h5", "--target", "price")
        self.assertIn("targets: price   # a number is predicted", text)
        self.assertIn("linear: {out: 2}   # one for each target", text)
        self.assertIn("there is no dataset 'z'", self.init("t.h5", "--target", "z", code=DATA))

    def test_several_classes_of_a_row(self):
        draw = np.random.default_rng(0)
        np.savez(self.path("t.npz"), x=draw.random((300, 4)), y=draw.integers(0, 2, (300, 10)))
        self.assertIn("linear: {out: 2}   # one for each class", self.init("t.npz"))

    def test_images_with_channels_last(self):
        """Keras' and OpenCV's order: init writes the layout; a config without it is warned of."""
        x = np.random.default_rng(0).integers(0, 255, (40, 10, 12, 3)).astype("u1")
        np.savez(self.path("t.npz"), x=x, y=np.arange(40) % 2)
        text = self.train("t.npz")
        self.assertIn("layout: nhwc", text)
        self.assertIn("# images are (3, 10, 12)", text)
        warning = "the rows (10, 12, 3) are used as 10 channels of 12 x 3 pixels; if they are images (height, width, channels), write dataset.layout: nhwc"
        self.assertNotIn(warning, self.read("runs/test/log.txt"))
        out, err = self.run_program("first.yaml", "name=test", "dataset.layout=nchw", "model.layers=[flatten, {linear: 2}]", "train.epochs=1", "--fresh")
        self.assertIn(warning, out + err)
        np.savez(self.path("c.npz"), x=x.transpose(0, 3, 1, 2), y=np.arange(40) % 2)
        self.assertNotIn("layout", self.init("c.npz"))

    def test_hdf5_with_other_names(self):
        """Targets by a usual name, those with the most rows first, or the smaller one of two datasets; --target otherwise."""
        import h5py
        x, y = np.random.default_rng(0).random((40, 6)), np.arange(40) % 3

        def write(**datasets):
            with h5py.File(self.path("t.h5"), "w") as f:
                for name, values in datasets.items():
                    f[name.replace("__", "/")] = values
        write(features=x, price=x[:, 0])
        text = self.train("t.h5")
        self.assertIn("inputs: features\n  targets: price   # a number is predicted", text)
        write(a__test__data=x[:9], a__test__labels=y[:9], a__train__data=x, a__train__labels=y, a__train__words=np.array([b"a"] * 40))
        self.assertIn("inputs: a/train/data\n  targets: a/train/labels   # 3 classes", self.train("t.h5"))
        write(image=x.reshape(40, 2, 3), table=x[:, :2], age=x[:, 0], y=y, other=x[:9])
        self.assertIn("inputs: image\n  targets: \"y\"   # 3 classes\n  # not used, though with as many rows: age, table; a mapping in inputs takes several", self.train("t.h5"))
        write(x=x, y=y, z=x)
        self.assertIn("# not used, though with as many rows: z; ", self.train("t.h5"))
        write(a=x, b=x)
        self.assertIn("t.h5: it is not clear which datasets are the inputs and the targets; the file has: a, b (--target", self.init("t.h5", code=DATA))
        self.assertIn("inputs: a\n  targets: b", self.train("t.h5", "--target", "b"))
        with open(self.path("t.h5"), "rb") as f:  # a program that writes the file has a lock
            fcntl.flock(f, fcntl.LOCK_EX)
            self.assertIn("inputs: a\n  targets: b", self.init("t.h5", "--target", "b"))
        write(words=np.array([b"a"] * 40))
        self.assertIn("the file has: no dataset of numbers", self.init("t.h5", code=DATA))
        self.write("t.h5", "text")
        self.assertIn("t.h5: this is not an HDF5 file", self.init("t.h5", code=DATA))

    def test_sqlite(self):
        """Rules for identifiers, NULL, blobs and dates, as for CSV; of several tables the one with the most rows, or with the target."""
        import sqlite3
        with sqlite3.connect(self.path("t.db")) as db:
            db.execute("create table people(id integer primary key, age real, town text, photo blob, born, sold integer)")
            db.executemany("insert into people values(?,?,?,?,?,?)", ((i + 1, None if i % 7 == 0 else i * 0.5, "uv"[i % 2] if i % 9 else None, b"\0\1", f"{i % 28 + 1}.3.2001",
                                                                      i % 2) for i in range(60)))
            db.execute("create table codes(k real, class text, bytes blob)")
            db.executemany("insert into codes values(?,?,?)", ((i, "xy"[i % 2], b"ab") for i in range(20)))
            db.execute("create table unused(a real, b real)")
            db.execute("create table places(p real, place text)")
            db.executemany("insert into places values(?,?)", ((i / 3, "abcdefg"[i % 7] * (1 + i % 7)) for i in range(15)))
        text = self.train("t.db")
        for line in ("table: people   # the others are: codes, places, unused", "targets: sold   # 2 classes", "id: ignore   # it counts the rows",
                     "age: {missing: indicator}   # 9 values are missing", "town: {missing: indicator}   # 7 values are missing", "photo: ignore   # it has blobs",
                     'born: {type: date, format: "%d.%m.%Y"}   # dates'):
            self.assertIn(line, text)
        out, _ = self.run_program("predict", "first.yaml", "t.db", "dataset.table=people", "--run-dir", "runs/test", "--probabilities")
        self.assertEqual(out.splitlines()[0], "row,prediction,0,1")
        with sqlite3.connect(self.path("t.db")) as db:
            people = db.execute("select * from people").fetchall()
        self.rows("new.csv", ["id", "age", "town", "photo", "born", "sold"], [[v if isinstance(v, (int, str, float)) else "" for v in row] for row in people])
        self.assertEqual(self.run_program("predict", "first.yaml", "new.csv", "--run-dir", "runs/test", "--probabilities")[0], out)
        text = self.train("t.db", "--target", "class")
        self.assertIn("table: codes   # the others are: people, places, unused", text)
        self.assertIn("targets: class   # 2 classes: x, y", text)
        self.assertIn("targets: place   # 7 classes: a, bb, ccc, dddd, eeeee, ...", self.init("t.db", "--target", "place"))
        self.assertIn("the target 'bytes' has blobs", self.init("t.db", "--target", "bytes", code=USAGE))
        self.assertIn("--target: no table of t.db has a column 'z'", self.init("t.db", "--target", "z", code=USAGE))
        with sqlite3.connect(self.path("t.db")) as db:
            db.execute("create table old(sold)")
            db.execute("create view aged as select sold from old")
            db.execute("drop table old")
        self.assertIn("table: people   # the others are: aged, codes, places, unused", self.init("t.db", "--target", "sold"))
        self.assertIn("aged: cannot be read: no such table: main.old\n  codes: 20 rows", self.run_program("inspect", "t.db")[0])
        with sqlite3.connect(self.path("t.db")) as db:
            db.execute("drop view aged")
            db.execute("drop table people")
            db.execute("drop table codes")
            db.execute("drop table places")
        self.assertIn("t.db: there are no rows", self.init("t.db", code=DATA))
        with sqlite3.connect(self.path("t.db")) as db:
            db.execute("drop table unused")
        self.assertIn("the database has no table", self.init("t.db", code=USAGE))

    def test_dates_and_unnamed_columns(self):
        """A format that fits all dates of a column; where days and months could be either, a comment says so."""
        dates = [f"{i % 12 + 1:02}/{i % 28 + 1:02}/2024" for i in range(60)]
        self.rows("t.csv", ["", "when", "short", "v", "y"], [[i, dates[i] if i % 9 else "", "05/06/2023" if i % 2 else f"07/{i % 12 + 1:02}/2022", i % 7, i % 2] for i in range(60)])
        text = self.train("t.csv")
        self.assertIn('when: {type: date, format: "%m/%d/%Y", missing: indicator}   # dates; 7 missing', text)
        self.assertIn('short: ignore   # dates, either {type: date, format: "%m/%d/%Y"} or {type: date, format: "%d/%m/%Y"}', text)
        self.assertNotIn("Unnamed", text)

    def test_missing_dates(self):
        """The rule is that of numbers, in every format."""
        for pattern, rule in (("%Y-%m-%d", ""), ("%d.%m.%Y", 'type: date, format: "%d.%m.%Y", ')):
            when = [(datetime.date(2024, 1, 1) + datetime.timedelta(i)).strftime(pattern) for i in range(60)]
            for gaps, missing in ((2, "median"), (3, "indicator")):
                self.rows("t.csv", ["v", "when", "y"], [[i % 7, when[i] if i >= gaps else "", i % 2] for i in reversed(range(60))])
                self.assertIn(f"when: {{{rule}missing: {missing}}}", self.train("t.csv"))

    def test_a_series_of_one_value(self):
        """It is forecast from its own past, whatever the time is written as."""
        def value(i):
            return round(100 + i / 3 + 20 * np.sin(i / 2), 3)
        clocks = {"date": lambda i: f"{2000 + i // 336}-{i // 28 % 12 + 1:02}-{i % 28 + 1:02}", "Month": lambda i: f"{1949 + i // 12}-{i % 12 + 1:02}",
                  "time": lambda i: 1949 + i / 12, "year": lambda i: 1800 + i, "period": lambda i: f"P{i}"}
        for name, clock in clocks.items():
            for header, row in (([name, "value"], lambda i: [clock(i), value(i)]), (["value", name], lambda i: [value(i), clock(i)]), (["rownames", name, "n"], lambda i: [i + 1, clock(i), i * 7 % 45])):
                self.rows("s.csv", header, [row(i) for i in range(144)])
                text, target = self.init("s.csv"), [h for h in header if h in ("value", "n")][0]
                for line in (f"  targets: {target if target == 'value' else chr(34) + 'n' + chr(34)}   # a number is predicted\n", f"    {name}: ignore   # it gives the order of the rows\n", "  window: {steps: 12, history: true}  ", "  split: {test: 0.2}  ", "loss: mse"):
                    self.assertIn(line, text)
                self.assertIn(f"  a series in the order of '{name}': forecasts from windows of 12 rows\n", self.run_program("init", "s.csv")[1])
            text = self.train("s.csv")
        self.rows("s.csv", ["date", "value", "other"], [[clocks["date"](i), value(i), i % 7] for i in range(144)])
        self.assertNotIn("window:", self.train("s.csv"))
        self.rows("s.csv", ["", "x"], [[i + 1, value(i)] for i in range(144)])
        self.assertIn("  window: {steps: 12, history: true}  ", self.train("s.csv"))
        self.rows("one.csv", ["x"], [[value(i)] for i in range(144)])
        self.assertIn("  window: {steps: 12, history: true}  ", self.train("one.csv"))
        self.assertIn("one.csv: the target is 'x', the only column: a number is predicted", self.run_program("init", "one.csv")[1])
        self.rows("one.csv", ["x"], [[f"{i}^{i % 7}"] for i in range(144)])
        self.assertIn("one.csv:line 1: expected two columns or more, separated by", self.init("one.csv", code=DATA))
        self.assertIn("s.csv: the target is 'x', the only column besides those that count or date the rows: a number is predicted; --target COLUMN takes another\n"
                      "  a series in the order of the file: forecasts from windows of 12 rows\n", self.run_program("init", "s.csv")[1])
        for header, row in ((["weight", "height"], lambda i: [i, value(i)]), (["date", "sold"], lambda i: [clocks["date"](i), i % 2])):
            self.rows("s.csv", header, [row(i) for i in range(144)])
            self.assertNotIn("window:", self.train("s.csv"))

    def test_windows_of_a_series(self):
        np.savez(self.path("w.npz"), x=np.random.default_rng(0).random((40, 6, 3)), y=np.arange(40) / 7)
        text = self.train("w.npz")
        self.assertIn("scale: standard", text)
        self.assertIn("# scale: {type: standard, per_feature: true}", text)

    def test_dates_with_times_and_offsets(self):
        import datetime
        start = datetime.datetime(2024, 3, 30, 22, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
        times = [start + datetime.timedelta(hours=i) for i in range(60)]
        self.rows("t.csv", ["iso", "german", "american", "y"], [[t, t.strftime("%d.%m.%Y %H:%M"), t.strftime("%m/%d/%Y %H:%M:%S"), i % 2] for i, t in enumerate(times)])
        text = self.train("t.csv")
        self.assertIn('german: {type: date, format: "%d.%m.%Y %H:%M"}   # dates', text)
        self.assertIn('american: {type: date, format: "%m/%d/%Y %H:%M:%S"}   # dates', text)
        self.assertIn("the dates in column 'iso' rise", text)
        out, _ = self.run_program("check", "first.yaml")
        self.assertEqual(out.count("5 year month day weekday hour"), 3)

    def test_rows_in_the_order_of_time(self):
        """A comment offers a split by order where the dates of a column never fall."""
        def text(dates):
            self.rows("t.csv", ["v", "when", "y"], [[i * 7 % 60 / 7, date, i % 2] for i, date in enumerate(dates)])
            return self.init("t.csv")
        hint = "  # the dates in column 'when' rise: to predict later rows from earlier ones, take split: {test: 0.2, shuffle: false}, whose\n"
        rising = [f"2024-{1 + i // 28:02}-{1 + i % 28:02}" for i in range(60)]
        german = [f"{1 + i % 28:02}.{1 + i // 28:02}.2024" for i in range(60)]
        for dates in (rising, [rising[i // 2] for i in range(60)], german, ["-" if i == 30 else date for i, date in enumerate(rising)]):
            self.assertIn(hint, text(dates))
        self.assertIn("shuffle: false", text(rising))
        self.assertIn("see\n  # dataset.window in docs/windows.md\n", text(rising))
        for dates in (rising[::-1], rising[:30] + rising[:30], [rising[0]] * 60, german[:30] + german[:30]):
            self.assertNotIn("rise", text(dates))
        self.train("t.csv")

    def test_names_that_yaml_would_read_as_something_else(self):
        os.mkdir(self.path("a b"))
        names = ["true", "1", "a: b", "#c", '"q"', "\u00e9t\u00e9", "- x", "x\ty", "~"]
        self.rows("a b/x: 'y'.csv", [*names, "null"], [[""] * len(names) + ["ab"[i % 2]] if i == 7 else
                                                       [str((i * 7 + k) % 13) for k in range(len(names))] + ["ab"[i % 2]] for i in range(40)])
        text = self.train("a b/x: 'y'.csv")
        self.assertIn('targets: "null"', text)
        self.assertIn("name: x___y_", text)
        self.assertEqual(text.count("{missing: median}"), len(names))

    def test_large_whole_numbers(self):
        """Targets that are no classes are not counted as so many classes."""
        generator = np.random.default_rng(0)
        used = []
        for most in (2000, 2_000_000_000):
            np.savez(self.path("t.npz"), x=generator.random((40, 6)), y=generator.integers(0, most, 40))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.assertIn("loss: mse", self.init("t.npz"))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        self.assertLess(used[1], 5 * used[0] + 0.5)

    def test_without_a_header(self):
        """The first line is a row if its values have the types of those below."""
        kinds = ["setosa", "virginica"]
        rows = [[f"{5 + i % 7 / 10:.1f}", f"{i % 5 / 10}", kinds[i % 2]] for i in range(30)]
        for file, values in (("flowers.csv", rows), ("texts.csv", [["pe"[i % 2], "xsn"[i % 3], "ab"[i // 2 % 2]] for i in range(30)]),
                             ("twice.csv", [[i % 2, i % 2, i // 3 % 2] for i in range(1, 31)])):
            self.rows(file, values[0], values[1:])
            text = self.train(file)
            self.assertIn("csv: {no_header: true}   # the first line is a row, and the columns are named 0, 1, 2, ...\n", text)
            self.assertIn('targets: "2"   # ', text)
            self.assertIn(f"{file}: the first line seems to be a row", self.run_program("init", file)[1])
            self.assertIn("30 rows, 3 columns, without a header", self.run_program("inspect", file)[0])
            self.write("bare.yaml", f"dataset: {{path: {file}}}\nmodel: {{layers: [{{linear: {{out: 2}}}}]}}\nloss: cross_entropy\ntrain: {{epochs: 1}}\n")
            err = self.run_program("check", "bare.yaml", code=DATA)[1]
            self.assertIn(f"{file}:line 1: expected a header with column names", err)
            self.assertIn("or write dataset.csv: {no_header: true}", err)
        self.assertNotIn("no_header: true", self.init("flowers.csv", "dataset.csv.no_header=false"))
        self.assertIn('csv: {no_header: true, delimiter: ","}\n', self.init("flowers.csv", "dataset.csv.no_header=true", 'dataset.csv.delimiter=","'))

    def test_thousands(self):
        """A separator of thousands is recognised where nothing else is possible."""
        for file, delimiter, separator in (("us.csv", ",", ","), ("ch.csv", ";", "'"), ("fr.csv", "\t", "\u202f")):
            with open(self.path(file), "w") as f:
                csv.writer(f, delimiter=delimiter).writerows([["a", "y"], *([f"{900 + 37 * i:,}".replace(",", separator), i % 7 / 2] for i in range(30))])
            text = self.train(file)
            shown = "1,011".replace(",", separator)
            self.assertIn(f"  csv: {{thousands: \"{' ' if separator > '~' else separator}\"}}   # numbers such as '{shown}'\n", text)
            self.assertNotIn("columns:  ", text)
        for sign, strip in (("", ""), (" €", 'strip: "€", '), ("%", 'strip: "%", ')):  # as a column with a point in all numbers and a comma in some
            self.write("de.csv", "b;a;y\n" + "".join(f"{i},5;{1 + i * 7 % 9}.{100 + i}{',25' if i % 3 else ''}{sign};{i % 7 / 2}\n".replace(f"{i % 7 / 2}", f"{i % 7 / 2}".replace(".", ",")) for i in range(30)))
            self.write("us.csv", "b,a,y\n" + "".join(f"{i}.5,{1 + i * 7 % 9}{100 + i}{'.25' if i % 3 else ''},{i % 7 / 2}\n" for i in range(30)))
            state = [self.train(file) and self.losses() for file in ("us.csv", "de.csv")]
            self.assertEqual(*state)
            self.assertIn(f'  csv: {{{strip}thousands: "."}}   # numbers such as', self.init("de.csv"))
        self.write("comma.csv", "b;a;y\n" + "".join(f"{i},5;{i * 7 % 30},{i % 10} €;{i % 7 // 2}\n" for i in range(30)))
        self.assertIn("  csv: {strip: \"€\"}   # numbers such as '0,0 €'\n", self.train("comma.csv"))
        self.write("point.csv", "a;b;y\n" + "".join(f"{2 + i}.{100 + i};{i},5;{i % 3}\n" for i in range(30)))
        self.assertIn("    b: ignore   # numbers with decimal commas, such as '0,5' in line 2; if decimals have a comma, set dataset.csv.decimal: ','\n", self.train("point.csv"))
        self.assertIn("  csv: {thousands: \".\", decimal: ','}   # numbers such as '2.100'\n", self.train("point.csv", "dataset.csv.decimal=','"))
        self.write("unclear.csv", "a;y\n" + "".join(f"{i + 1},{100 + i};{i % 3}\n" for i in range(30)))
        err = self.init("unclear.csv", code=DATA)
        self.assertIn("unclear.csv:line 2: '1,100' has a decimal comma or a separator of thousands, and no other number shows which", err)
        self.assertIn("note    commas of numbers may be decimal commas", self.run_program("inspect", "unclear.csv")[0])
        self.assertIn("csv: {thousands: ','}\n", self.train("unclear.csv", "dataset.csv.thousands=','"))

    def test_targets_that_are_missing(self):
        """Their rows are left out, and the config and the log say how many."""
        for values in (["", "1.5", "NA", "2.5", "3", "4.25", "5"], ["a", "b", "", "NA", "b", "a", "b"], ["", "0", "1", "0", "1", "NaN", "1"]):
            self.rows("gaps.csv", ["u", "when", "y"], [[i % 13 / 3, "ab"[i % 2], values[i % 7]] for i in range(70)])
            text = self.train("gaps.csv")
            self.assertIn("  drop_missing_targets: true   # 20 rows without a target\n", text)
            self.write("first.yaml", text)
            out, err = self.run_program("check", "first.yaml")
            self.assertIn("gaps.csv: 20 rows without a target are left out (drop_missing_targets)", out + err)
            self.assertIn("40 training rows, 10 validation rows", out)
            parts = {part: list(csv.DictReader(self.run_program("predict", "runs/test", "--with-inputs", "--part", part)[0].splitlines())) for part in ("train", "validation")}
            self.assertEqual([len(rows) for rows in parts.values()], [40, 10])
            rows = [int(row["row"]) for part in parts.values() for row in part]
            self.assertEqual(sorted(rows), [i for i in range(70) if values[i % 7] not in ("", "NA", "NaN")])
            self.assertEqual([row["y"] for part in parts.values() for row in part], [values[i % 7] for i in rows])
        self.write("first.yaml", text.replace("  drop_missing_targets: true", "  #"))
        self.assertIn("gaps.csv:line 2: column 'y': missing value; write dataset.drop_missing_targets: true", self.run_program("check", "first.yaml", code=DATA)[1])

        self.rows("gaps.csv", ["u", "note", "y"], [[i % 13 / 3, "ab"[i // 2 % 2] if i % 30 else f"rare {i // 60}", i / 4 if i % 30 < 2 else ""] for i in range(180)])
        self.assertIn("    note: category   # texts of a few kinds\n", self.train("gaps.csv"))  # 12 rows, in which not each text occurs twice

    def test_the_end_of_a_file_of_dos(self):
        with open(self.path("dos.csv"), "wb") as f:
            f.write(b"a,y\r\n" + b"".join(b"%d,%d\r\n" % (i * 7 % 31, i % 2) for i in range(30)) + b"\x1a")
        self.assertIn("csv, 30 rows", self.train("dos.csv"))
        for end in (b"5,0.5\x1a", b"5,0.5\x1a\r\n", b'5,"0.5\x1a"\r\n\x1a'):  # behind the last value
            with open(self.path("dos.csv"), "wb") as f:
                f.write(b"a,y\r\n" + b"".join(b"%d,%d.5\r\n" % (i * 7 % 31, i % 9) for i in range(30)) + end)
            text = self.train("dos.csv")
            self.assertIn("csv, 31 rows", text)
            self.assertIn("a number is predicted", text)

    def test_many_missing_values(self):
        """From 5 % on, that a value is missing is a feature, or a category of its own."""
        for missing, number, category in ((3, "median", "most_frequent"), (4, "indicator", "indicator")):
            self.rows("some.csv", ["v", "c", "y"], [["" if i < missing else i % 11, "" if i < missing else "ab"[i % 2], i % 2] for i in range(70)])
            text = self.train("some.csv")
            for line in (f"v: {{missing: {number}}}   # ", f"c: {{missing: {category}}}   # "):
                self.assertIn(line, text)

    def test_headers_of_numbers(self):
        for header in (["", "0", "1", "2"], ["1990", "1991", "1992", "y"], ["2012", "2011", "2010", "2009"], ["400.5", "401", "402", "403", "404.5"]):
            self.rows("numbers.csv", header, [[i * 7 % 5 + k / 2 for k in range(len(header))] for i in range(30)])
            self.assertNotIn("no_header", self.train("numbers.csv"))
            self.assertIn(f"30 rows, {len(header)} columns, with a header", self.run_program("inspect", "numbers.csv")[0])

    def test_more_ignored_columns_than_a_config_can_name(self):
        names = [f"a_name_of_{i:020}" for i in range(16000)]
        self.rows("t.csv", [*names, "u", "v"], [[f"text {row}"] * len(names) + [row * row % 7, row % 2] for row in range(20)])
        out, err = self.run_program("init", "t.csv", code=USAGE)
        self.assertRegex(err, r"t.csv: a config that names its ignored columns has 1\.\d MiB, and the maximum is 1 MiB; .*; no config was written\n$")
        self.assertEqual(out, "")

    def test_refused(self):
        self.rows("t.csv", ["u", "v"], [[i, f"text {i}"] for i in range(30)])
        for arguments, code, sentence in (
                (["t.csv"], USAGE, "t.csv: the target 'v' has too many different texts (30 or more in 30 rows) for classes; name another column by --target"),
                (["t.csv", "--target", "w"], USAGE, "--target: t.csv has no column 'w'"),
                (["t.csv", "--target", "u"], USAGE, "t.csv: no column is left for the inputs"),
                (["twice.csv"], DATA, "twice.csv:line 1: duplicate column 'u'"),
                (["none.csv"], DATA, "cannot read the dataset 'none.csv'"),
                (["empty.csv"], DATA, "empty.csv: the file is empty"), (["header.csv"], DATA, "header.csv: there are no rows"),
                (["header.csv", "dataset.csv.no_heade=true"], USAGE, "unknown key; did you mean 'no_header'?"),
                (["one.csv"], DATA, "one.csv:line 1: expected two columns or more"),
                (["short.csv"], DATA, "short.csv:line 3: there are 1 fields, but the header has 2"),
                (["gap.csv"], USAGE, "gap.csv: the target 'v' has no values; name another column by --target COLUMN"),
                (["mixed.csv"], USAGE, "mixed.csv: the target 'v' has numbers and texts"),
                (["what.dat"], USAGE, "'what.dat': unknown file extension; the formats are"),
                (["what.csv.xz"], USAGE, "'what.csv.xz': unknown file extension; decompress it first: unxz --keep FILE; the formats are"), ([], USAGE, "no data given")):
            for name, text in (("empty.csv", ""), ("header.csv", "a,b\n"), ("one.csv", "a\n1\n"), ("short.csv", "a,b\n1,2\n3\n"),
                               ("gap.csv", "u,v\n1,\n2,NA\n"), ("twice.csv", "u,v,u\n1,2,3\n"), ("mixed.csv", "u,v\n" + "1,2\n2,x\n" * 9), ("what.dat", "x"), ("what.csv.xz", "x")):
                self.write(name, text)
            with self.subTest(arguments):
                out, err = self.run_program("init", *arguments, code=code)
                self.assertIn(sentence, err)
                self.assertEqual(out, "")  # the shell has created the file behind > already
                if arguments:
                    self.assertTrue(err.endswith("; no config was written\n"), err)
