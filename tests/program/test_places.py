"""Where files of a config are looked up. ctest-labels: unit"""
import os
import shutil
import subprocess

import program
from program import BINARY, DATA, SOURCE, USAGE

ROWS = "a,b,label\n" + "".join(f"{i % 5},{i % 7},{i % 3}\n" for i in range(60))
OTHER = "a,b,label\n" + "".join(f"{i % 5},{i % 7},{i % 3}\n" for i in range(90))
CONFIG = """
dataset: {path: rows.csv}
model: {layers: [{linear: {out: 3}}]}
loss: cross_entropy
train: {epochs: 2}
"""


class Lookup(program.Case):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("project/configs"))
        os.makedirs(self.path("elsewhere"))
        self.write("project/configs/test.yaml", CONFIG)

    def recorded(self):
        line, = [line for line in self.read("runs/test/config.yaml").splitlines() if "path:" in line and "rows" in line]
        return line.split("path:")[1].split(",")[0].strip(" {}")

    def test_working_directory_first_then_beside_then_above(self):
        config = "project/configs/test.yaml"
        self.run_program(config, code=DATA, err=("cannot read the dataset 'rows.csv'", "it is also not beside the config or in the parent folder"))
        self.write("project/rows.csv", ROWS)
        self.run_program(config)
        self.assertEqual(self.recorded(), os.path.realpath(self.path("project/rows.csv")))
        self.write("project/configs/rows.csv", ROWS)
        self.run_program(config, "--fresh")
        self.assertEqual(self.recorded(), os.path.realpath(self.path("project/configs/rows.csv")))
        self.write("rows.csv", OTHER)
        out, err = self.run_program(config, "--fresh")
        self.assertEqual(self.recorded(), "rows.csv")
        self.assertIn("90 training rows", out + err)

    def test_a_resume_from_another_folder_agrees(self):
        self.write("project/rows.csv", ROWS)
        config, run = self.path("project/configs/test.yaml"), self.path("runs/test")
        self.run_program(config, "--run-dir", run, "--nproc", 2)
        for folder in (self.path("elsewhere"), self.path("project")):
            p = subprocess.run([BINARY, config, "train.epochs=4", "--run-dir", run], cwd=folder,
                               env=self.environment(), capture_output=True, text=True)
            self.assertEqual(p.returncode, 0, folder + p.stderr)
        p = subprocess.run([BINARY, "eval", os.path.join(run, "config.yaml")], cwd=self.path("elsewhere"),
                           env=self.environment(), capture_output=True, text=True)
        self.assertEqual(p.returncode, 0, p.stderr)

    def test_names_that_are_not_utf8(self):
        """A config file has none of them: a path with one is rejected, and the name of a run is repaired."""
        folder = self.path("\udcff")
        os.mkdir(folder)
        for name in ("rows.csv", "test.yaml", "a\udcfe.yaml"):
            with open(os.path.join(folder, name), "w") as f:
                f.write(ROWS if name == "rows.csv" else CONFIG)
        for words in ([], ["check"], ["--nproc", 2]):
            _, err = self.run_program(*words, "\udcff/test.yaml", code=USAGE)
            self.assertRegex(err, r'^ddptrain: (rank . .*: )?a name is not valid UTF-8 \(\\ufffd\), so the config in the run folder, with .*path: ".*/\\ufffd/rows.csv".*, '
                                  "could not be read again; rename the file or folder, or start ddptrain in the folder of the config\n")
        self.assertFalse(os.path.exists(self.path("runs")))
        self.folder = folder
        for epochs in (2, 3):
            self.run_program("a\udcfe.yaml", f"train.epochs={epochs}")
        self.assertEqual(len(self.events("epoch", "runs/a\ufffd")), 3)
        self.run_program("eval", "runs/a\ufffd")

    def test_a_config_whose_written_form_is_too_large(self):
        self.write("rows.csv", ",".join(f"c{i}" for i in range(32000)) + "\n" + 2 * (32000 * "1," + "\n").replace(",\n", "\n"))
        rules = "".join(f"    c{i}: number\n" for i in range(31999))
        self.write("test.yaml", f"dataset:\n  path: rows.csv\n  columns:\n{rules}model: {{layers: [{{linear: 1}}]}}\nloss: mse\ntrain: {{epochs: 1}}\n")
        for words in ([], ["check"]):
            _, err = self.run_program(*words, "test.yaml", code=USAGE)
            self.assertEqual(err, "ddptrain: the config of the run, which has every default, could not be read again; shorten the config: "
                                  "config.yaml: larger than 1 MiB, the maximum for a config\n")

    def test_a_config_that_is_a_symbolic_link(self):
        """The folders of the link come first, then those of the file."""
        os.makedirs(self.path("linked/configs"))
        os.symlink("../../project/configs/test.yaml", self.path("linked/configs/test.yaml"))
        self.run_program("linked/configs/test.yaml", code=DATA, err="it is also not beside the config or in the parent folder")
        for place in ("project/rows.csv", "project/configs/rows.csv", "linked/rows.csv"):
            self.write(place, ROWS)
            self.run_program("linked/configs/test.yaml", "--fresh")
            self.assertEqual(self.recorded(), os.path.realpath(self.path(place)))

    def test_every_file_of_a_config(self):
        self.write("project/rows.csv", ROWS)
        self.write("project/validation.csv", ROWS)
        config = self.path("project/configs/test.yaml")
        self.run_program(config, "dataset.validation=validation.csv", "--run-dir", "first")
        shutil.copy(self.path("first/checkpoints", os.listdir(self.path("first/checkpoints"))[0]), self.path("project/start.h5"))
        self.run_program(config, "model.init_from=start.h5", "--run-dir", "second")
        self.run_program(config, "dataset.validation=validation.csv", "checkpoint.resume=start.h5", "train.epochs=3", "--run-dir", "third")
        start = os.path.realpath(self.path("project/start.h5"))
        self.assertIn(f"init_from:\n    file: {start}\n", self.read("second/config.yaml"))
        self.assertIn(f"resume: {start}", self.read("third/config.yaml"))

    def test_labels_of_images(self):
        for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
            found = [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(SOURCE, "datasets")) if name in names]
            self.assertTrue(found, name)
            shutil.copy(found[0], self.path("project", name))
        os.rename(self.path("project/t10k-labels-idx1-ubyte.gz"), self.path("project/labels.idx.gz"))
        self.write("project/configs/test.yaml", CONFIG.replace("path: rows.csv", "path: t10k-images-idx3-ubyte.gz, targets: labels.idx.gz")
                   .replace("[{linear: {out: 3}}]", "[flatten, {linear: {out: 10}}]"))
        self.run_program("check", "project/configs/test.yaml")
        self.run_program("check", "project/configs/test.yaml", "dataset.validation={path: t10k-images-idx3-ubyte.gz, targets: labels.idx.gz}")


class OwnConfig(program.Case):
    """The config.yaml of a run folder means that run, to every command."""
    def setUp(self):
        super().setUp()
        self.write("rows.csv", ROWS)
        self.write("test.yaml", CONFIG)
        self.run_program("test.yaml", "--run-dir", "kept/one")

    def test_continues_the_run(self):
        for nproc, epochs in ((1, 3), (2, 4)):
            self.run_program("kept/one/config.yaml", "--nproc", nproc, f"train.epochs={epochs}", err="resuming from kept/one/checkpoints/")
        self.assertEqual([e["epoch"] for e in self.events("epoch", "kept/one")], [0, 1, 2, 3])
        self.assertFalse(os.path.exists(self.path("runs")))
        self.run_program("eval", "kept/one/config.yaml", out='"rows":60')

    def test_another_folder(self):
        for place, arguments in (("kept/two", ("--run-dir", "kept/two")), ("runs/three", ("name=three",))):
            self.run_program("kept/one/config.yaml", "optimizer.lr=0.1", *arguments)
            self.assertEqual(len(self.events("epoch", place)), 2)
            self.run_program("eval", "kept/one/config.yaml", *arguments)
        self.assertEqual(len(self.events("epoch", "kept/one")), 2)

    def test_fresh_would_rename_the_config(self):
        for arguments in ((), ("--nproc", 2), ("--run-dir", "kept/../kept/one")):
            _, err = self.run_program("kept/one/config.yaml", "--fresh", *arguments, code=USAGE)
            self.assertIn("kept/one/config.yaml: --fresh renames the run folder, and this config is in it; copy the config", err)
        self.assertEqual(sorted(os.listdir(self.path("kept"))), ["one"])
        self.run_program("kept/one/config.yaml", "--fresh", "--run-dir", "kept/two")

    def test_a_folder_that_is_no_run(self):
        """Of a project with a config.yaml, and a lock of another program."""
        os.makedirs(self.path("project"))
        self.write("project/config.yaml", CONFIG)
        self.write("project/.lock", "of something else\n")
        self.run_program("project/config.yaml")
        self.assertEqual(len(self.events("epoch", "runs/config")), 2)
        self.run_program("eval", "project/config.yaml")
