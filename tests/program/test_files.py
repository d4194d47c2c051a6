"""What a command reads, and what is somebody else's, it does not overwrite; what it cannot write or read it says."""
import os, shutil

import program
from program import USAGE


class OwnFiles(program.Case):
    def setUp(self):
        super().setUp()
        self.write("wine.yaml", program.WINE)
        os.mkdir(self.path("mine"))

    def listing(self, folder):
        return sorted(os.listdir(self.path(folder)))

    def test_a_folder_that_is_no_runs_keeps_its_files(self):
        for name, config in (("config.yaml", "mine/config.yaml"), ("metrics.jsonl", "wine.yaml"), ("log.txt", "wine.yaml")):
            text = program.WINE if name == "config.yaml" else "hi\n"
            for more in ([], ["--fresh"]):
                with self.subTest(name=name, more=more):
                    self.write(f"mine/{name}", text)
                    _, err = self.run_program(config, "--run-dir", "mine", *more, code=USAGE)
                    self.assertIn(f"mine/{name}: a run here would overwrite this file, which is no run's", err)
                    self.assertEqual(self.read(f"mine/{name}"), text)
                    self.assertEqual(self.listing("mine"), [name])
                    self.assertFalse(os.path.exists(self.path("mine.1")))
            os.remove(self.path("mine", name))

    def test_a_folder_with_other_files_can_become_a_runs(self):
        self.write("mine/wine.yaml", program.WINE)
        # a start that fails takes back what it made, and nothing else
        self.run_program("mine/wine.yaml", "--run-dir", "mine", "checkpoint.resume=none.h5", code=None)
        self.assertNotEqual(self.code, 0)
        self.assertEqual(self.listing("mine"), ["wine.yaml"])
        self.run_program("mine/wine.yaml", "--run-dir", "mine", "train.epochs=1", "--fresh")  # nothing to move aside
        self.assertIn("checkpoints", self.listing("mine"))
        self.run_program("mine/config.yaml", "--run-dir", "mine", "train.epochs=2")  # its own config may be written
        self.assertEqual(len(self.events("epoch", "mine")), 2)

    def test_an_input_is_not_an_output(self):
        self.run_program("wine.yaml", "train.epochs=1", "name=test")
        shutil.copy(self.path("datasets/wine.h5"), self.path("mine/wine.h5"))
        os.link(self.path("mine/wine.h5"), self.path("mine/same.h5"))
        checkpoint = self.checkpoints()[0]
        os.symlink(checkpoint, self.path("mine/link.safetensors"))
        self.write("two.yaml", program.WINE.replace("split: {test: 0.2, seed: 42}", "validation: mine/wine.h5"))
        predict = ["predict", "wine.yaml", "name=test", "dataset.path=mine/wine.h5", "--out"]
        for arguments, what in (([*predict, "mine/wine.h5"], "it is the dataset"),
                                ([*predict, "mine/same.h5"], "it is the dataset"),
                                (["predict", "two.yaml", "--out", "mine/wine.h5"], "it is the dataset"),
                                ([*predict, checkpoint], "it is a checkpoint"),
                                ([*predict, checkpoint, "--nproc", 2], "it is a checkpoint"),
                                (["export", "runs/test", "--out", "mine/link.safetensors"], "it is a checkpoint")):
            with self.subTest(arguments=arguments):
                before = {p: os.stat(p).st_mtime_ns for p in (self.path("mine/wine.h5"), checkpoint)}
                _, err = self.run_program(*arguments, code=USAGE)
                self.assertIn(what, err)
                self.assertEqual({p: os.stat(p).st_mtime_ns for p in before}, before)
        self.run_program(*predict, "mine/out.h5")
        self.run_program(*predict, "mine/out.h5")  # what it wrote itself it may write again


if __name__ == "__main__":
    program.main()
