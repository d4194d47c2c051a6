"""inspect says what is in data files and how far a run folder is. ctest-labels: unit"""
import os
import re
import shutil

import h5py

import program
from program import DATA


class Inspect(program.Case):
    def inspect(self, path, code=program.OK):
        out, err = self.run_program("inspect", path, code=code)
        return out if code == program.OK else err

    def test_csv(self):
        out = self.inspect("datasets/iris.csv")
        self.assertIn("format  csv, 150 rows, 5 columns, with a header\n", out)
        self.assertRegex(out, r"1  sepal_length +number +4\.3 to 7\.9\n")
        self.assertRegex(out, r"5  species +category +setosa, versicolor, virginica\n")

    def test_names_of_more_bytes_than_characters(self):
        self.write("a.csv", "Größe,size,Ort\n" + "".join(f"{i},{i},{'Ö' if i % 2 else 'O'}\n" for i in range(8)))
        lines = self.inspect("a.csv").splitlines()[3:]
        self.assertEqual({line.index("integer") for line in lines[:2]} | {lines[2].index("category")}, {37})
        self.write("a.yaml", "dataset: {path: a.csv, inputs: [Größe, size], targets: Ort, columns: {size: category}}\nmodel: {layers: [{linear: 2}]}\n"
                             "loss: cross_entropy\ntrain: {epochs: 1}\n")
        lines = [line for line in self.run_program("check", "a.yaml")[0].splitlines() if line.startswith(("Größe", "size", "column "))]
        self.assertEqual([line[19:23] for line in lines], ["type", "numb", "cate"])
        for name in ("Ünï", "plain"):
            shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes/square"), self.path("photos", name))
        lines = [line for line in self.inspect("photos").splitlines() if "the first" in line]
        self.assertEqual([line.index("40 images") for line in lines], [31, 31])

    def test_a_pattern(self):
        for name in ("part-1.csv", "part-2.csv", "part-10.csv"):
            self.write(name, "a,b\n1,2\n")
        out = self.inspect("part-*.csv")
        self.assertTrue(out.startswith("files   3 of the pattern part-*.csv; the first is part-1.csv\n"), out)
        self.assertIn("format  csv, 1 row, 2 columns", out)
        self.assertIn("'other-*.csv': no file matches this pattern", self.inspect("other-*.csv", code=DATA))
        for verb in ("inspect", "init"):
            _, err = self.run_program(verb, "part-1.csv", "part-2.csv", "part-10.csv", code=program.USAGE)
            self.assertIn("unexpected argument 'part-2.csv' after 'part-1.csv'; give several files as one pattern in quotes, "
                          "which the shell does not expand: 'part-*.csv'\n", err)
            self.run_program(verb, "part-1.csv", "part-10.csv", code=program.USAGE, err=": 'part-1*.csv'\n")

    def test_csv_of_all_kinds(self):
        self.write("a.csv", "id,score,,note\n1,0.5,,x\n2,,,\"y\x1b[31m\"\n3,1.5,,x\n")
        out = self.inspect("a.csv")
        self.assertIn("3 rows, 4 columns, with a header", out)
        self.assertRegex(out, r"1  id +integer +1 to 3\n")
        self.assertRegex(out, r"2  score +number +0\.5 to 1\.5  \(1 missing\)\n")
        self.assertRegex(out, r"3 +empty\n")
        self.assertRegex(out, r"4  note +text +x, y")
        self.assertNotIn("\x1b", out)
        self.write("b.csv", "1,2,red\n3,4,blue\n")
        self.assertIn("2 rows, 3 columns, without a header", self.inspect("b.csv"))
        self.write("c.csv", "1,5;2,5;red\n3;4;blue\n")
        self.assertIn("2 rows, 3 columns, without a header, separated by ';'", self.inspect("c.csv"))
        self.write("types.csv", "when;member;port;price\n" + "".join(f"2024-01-0{i};{'yes' if i % 2 else 'no'};{'AB'[i % 2]};1,{i}\n" for i in range(1, 9)) + ";NA;;\n")
        out = self.inspect("types.csv")
        self.assertIn("format  csv, 9 rows, 4 columns, with a header, separated by ';'\n", out)
        self.assertRegex(out, r"1  when +date +2024-01-01, .*  \(1 missing\)\n")
        self.assertRegex(out, r"2  member +boolean +yes, no  \(1 missing\)\n")
        self.assertRegex(out, r"3  port +category +B, A  \(1 missing\)\n")
        self.assertRegex(out, r"4  price +number +1\.1 to 1\.8  \(1 missing\)\n")
        with open(self.path("latin.csv"), "wb") as f:
            f.write(b"a,b\n1,Z\xfcrich\n2,Z\xfcrich\n")
        self.assertRegex(self.inspect("latin.csv"), r"note    it is not UTF-8 and is read as Windows-1252(.|\n)*b +category +Zürich\n")
        self.write("many.csv", "word\n" + "".join(f"w{i}\n" for i in range(50)))
        self.assertRegex(self.inspect("many.csv"), r"w0, w1, .*, \.\.\.\n")
        self.write("header.csv", "a,b\n")
        self.assertIn("0 rows, 2 columns", self.inspect("header.csv"))
        self.write("short.csv", "a,b\n1,2\n3\n")
        self.assertIn("short.csv:line 3: 1 values, but the first line has 2", self.inspect("short.csv", DATA))
        self.write("empty.csv", "")
        self.assertIn("empty.csv: the file is empty", self.inspect("empty.csv", DATA))

    def test_other_data(self):
        self.assertIn("format  idx, 10000 rows of (1, 28, 28)\n", self.inspect("datasets/mnist/t10k-images-idx3-ubyte.gz"))
        self.assertIn("vocabulary 65", self.inspect("datasets/tinyshakespeare.txt"))
        self.assertIn("float64 (178, 13)", self.inspect("datasets/wine.h5"))

    def test_many_groups(self):
        """In a time that grows with their number, not with its square (33 s for 30,000)."""
        with h5py.File(self.path("groups.h5"), "w") as f:
            for i in range(30000):
                f.create_group(f"g{i}")
            f["g7/x"] = 1.0
        self.run_program("inspect", "groups.h5", timeout=300, out="1 dataset, 1 value")

    def test_run_folder(self):
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml")
        out = self.inspect("runs/test")
        self.assertIn("run     runs/test\nevent   {\"event\":\"end\"", out)
        self.assertIn("newest  runs/test/checkpoints/epoch-0010.h5\n", out)
        self.assertIn("file    runs/test/checkpoints/epoch-0010.h5\nseal    good", out)
        self.assertRegex(out, r"epoch +int64 scalar +10\n")
        best = self.events("end")[-1]["best_value"]
        self.assertRegex(out, rf"best_value +float64 scalar +{best:.17g}\n")
        with h5py.File(self.checkpoints()[-1]) as f:
            for name, values in f["model"].items():
                low, high, mean = (re.escape(f"{v:.6g}") for v in (values[()].min(), values[()].max(), values[()].mean(dtype="f8")))
                self.assertRegex(out, rf"{re.escape(name)} +float32 \([\d, ]+\) +min {low}  max {high}  mean {mean}\n")
            datasets = []
            f.visititems(lambda _, item: datasets.append(item) if isinstance(item, h5py.Dataset) else None)
            values = sum(d.size for d in datasets)
        self.assertIn(f"\n{len(datasets)} datasets, {values} values\n", out)
        for checkpoint in self.checkpoints():
            program.os.remove(checkpoint)
        self.assertIn("newest  no checkpoint yet", self.inspect("runs/test/"))
