"""A command does not overwrite its inputs or files of others, and reports files that it cannot read or write."""
import os, resource, shutil, subprocess, sys

import program
from program import DATA, IO, OK, USAGE

TEXT = """
name: text
dataset: {path: text.txt, text: {block_size: 4}}
model: {layers: [{embedding: {embedding_dim: 4}}, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
train: {steps: 1}
"""


class OwnFiles(program.Case):
    def setUp(self):
        super().setUp()
        self.write("wine.yaml", program.WINE)
        os.mkdir(self.path("mine"))

    def listing(self, folder):
        return sorted(os.listdir(self.path(folder)))

    def assert_files_are_kept(self, *others):
        """Of a folder [mine] with these, that is no run's: what a run would write is refused, and nothing is touched."""
        for name, config in (("config.yaml", "mine/config.yaml"), ("metrics.jsonl", "wine.yaml"), ("log.txt", "wine.yaml")):
            text = program.WINE if name == "config.yaml" else "hi\n"
            for more in ([], ["--fresh"]):
                with self.subTest(name=name, more=more):
                    self.write(f"mine/{name}", text)
                    _, err = self.run_program(config, "--run-dir", "mine", *more, code=USAGE)
                    self.assertIn(f"mine/{name}: a run here would overwrite this file, which does not belong to a run", err)
                    self.assertEqual(self.read(f"mine/{name}"), text)
                    self.assertEqual(self.listing("mine"), sorted([*others, name]))
                    self.assertFalse(os.path.exists(self.path("mine.1")))
            os.remove(self.path("mine", name))

    def test_the_memory_is_not_that_of_the_program_that_starts_it(self):
        """The kernel keeps the largest resident set over exec."""
        code = "import os, sys; large = b'x' * (1 << 29); os.execv(sys.argv[1], sys.argv[1:])"
        subprocess.run([sys.executable, "-c", code, program.BINARY, "wine.yaml", "train.epochs=1", "--run-dir", "run"], cwd=self.folder,
                       env=self.environment(None), check=True, capture_output=True)
        peak = self.events("end", "run")[0]["peak_memory_bytes"]
        self.assertTrue(1 << 20 < peak < 1 << 29 or program.SANITIZER, peak)

    def test_no_file_of_a_run_or_sweep_may_be_a_fifo(self):
        """Opening one would wait for a reader for ever."""
        self.run_program("wine.yaml", "train.epochs=1", "--run-dir", "run")
        self.write("sweep.yaml", "config: wine.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.01}]\nmetric: {name: val_loss}\n")
        for name, *words in (("run/metrics.jsonl", "wine.yaml", "train.epochs=2"), ("run/log.txt", "wine.yaml", "train.epochs=2"),
                             ("run/.lock", "wine.yaml", "train.epochs=2"), ("sweep/history.jsonl", "sweep", "sweep.yaml"),
                             ("sweep/.lock", "sweep", "sweep.yaml")):
            folder = name.split("/")[0]
            with self.subTest(name=name):
                os.makedirs(self.path(folder), exist_ok=True)
                if folder == "sweep":
                    self.write("sweep/.lock", "The lock of a sweep of ddptrain.\n")
                if os.path.exists(self.path(name)):
                    os.rename(self.path(name), self.path("kept"))
                os.mkfifo(self.path(name))
                self.run_program(*words, "--run-dir", folder, code=IO, err=f"cannot write '{name}': it is not a regular file, but a FIFO; remove it")
                os.remove(self.path(name))
                if os.path.exists(self.path("kept")):
                    os.rename(self.path("kept"), self.path(name))

    def test_a_folder_that_is_no_runs_keeps_its_files(self):
        self.assert_files_are_kept()

    def test_a_folder_of_checkpoints_is_no_proof_of_a_run(self):
        os.mkdir(self.path("mine/checkpoints"))
        self.write("mine/checkpoints/foo.pt", "mine\n")
        self.assert_files_are_kept("checkpoints")
        self.assertEqual(self.listing("mine/checkpoints"), ["foo.pt"])
        # nothing of it is in the way, and nothing is moved aside
        self.run_program("wine.yaml", "--run-dir", "mine", "train.epochs=1", "--fresh")
        self.assertFalse(os.path.exists(self.path("mine.1")))
        self.assertEqual(self.read("mine/checkpoints/foo.pt"), "mine\n")
        # a run whose lock was deleted is one still
        os.remove(self.path("mine/.lock"))
        self.run_program("wine.yaml", "--run-dir", "mine", "train.epochs=1", "--fresh")
        self.assertEqual(self.read("mine.1/checkpoints/foo.pt"), "mine\n")

    def test_files_named_as_those_of_a_run_are_kept(self):
        """Files of a user that have the names of a run's files."""
        os.mkdir(self.path("mine/checkpoints"))
        for name in ("checkpoints/epoch-01.h5", "checkpoints/epoch-0001.h5", "checkpoints/model.h5", ".lock"):
            for more in ([], ["--fresh"]):
                with self.subTest(name=name, more=more):
                    self.write(f"mine/{name}", "keras\n")
                    _, err = self.run_program("wine.yaml", "--run-dir", "mine", "train.epochs=1", *more, code=USAGE)
                    self.assertIn(f"mine/{name}: a run here would overwrite this file, which does not belong to a run", err)
                    self.assertEqual(self.read(f"mine/{name}"), "keras\n")
                    self.assertFalse(os.path.exists(self.path("mine.1")))
            os.remove(self.path("mine", name))

    def test_a_lock_that_a_power_failure_has_emptied(self):
        """Its text is not on disk before the config is, so a run with a config and no checkpoint continues."""
        self.run_program("wine.yaml", "--run-dir", "run", "train.epochs=1")
        sha = self.sha("run")
        for content in ("", "\0" * len(self.read("run/.lock")), "a run of"):
            for name in os.listdir(self.path("run/checkpoints")):
                os.remove(self.path("run/checkpoints", name))
            self.write("run/.lock", content)
            self.run_program("wine.yaml", "--run-dir", "run", "train.epochs=1")
            self.assertEqual((self.sha("run"), self.read("run/.lock"), len(self.events("start", "run"))), (sha, "a run of ddptrain\n", 1))
        for name in os.listdir(self.path("run/checkpoints")):
            os.remove(self.path("run/checkpoints", name))
        self.write("run/.lock", "")
        self.write("run/config.yaml", "model: of another program\n")
        _, err = self.run_program("wine.yaml", "--run-dir", "run", "train.epochs=1", code=USAGE)
        self.assertIn("run/config.yaml: a run here would overwrite this file, which does not belong to a run", err)

    def test_a_copy_without_lock_and_checkpoints(self):
        """It is neither overwritten nor taken for another run of the same name."""
        self.run_program("wine.yaml", "--run-dir", "run", "train.epochs=1")
        self.run_program("wine.yaml", "train.epochs=2")
        os.remove(self.path("run/.lock"))
        shutil.rmtree(self.path("run/checkpoints"))
        before = {name: self.read(f"run/{name}") for name in self.listing("run")}
        for words in (["wine.yaml", "--run-dir", "run", "train.epochs=1"], ["run/config.yaml"]):
            self.run_program(*words, code=USAGE, err="run: its files are of a run, but .lock and the checkpoints are missing; a run here would overwrite them: choose another --run-dir, "
                             "or --fresh, which renames the folder")
        self.run_program("eval", "run", err="run has no checkpoint", code=None)
        self.assertEqual({name: self.read(f"run/{name}") for name in self.listing("run")}, before)
        self.assertIn("would overwrite", self.run_program("doctor", "wine.yaml", "--run-dir", "run", code=None)[0])
        self.assertNotIn("would overwrite", self.run_program("doctor", "wine.yaml", "--run-dir", "run", "--fresh", code=None)[0])
        self.run_program("wine.yaml", "--run-dir", "run", "train.epochs=1", "--fresh")
        self.assertEqual({name: self.read(f"run.1/{name}") for name in before}, before)
        self.assertIn("epoch-0001.h5", self.listing("run/checkpoints"))

    def test_what_was_there_before_a_start_that_fails_is_kept(self):
        self.write("mine/.lock", "")
        os.mkdir(self.path("mine/checkpoints"))
        self.run_program("wine.yaml", "--run-dir", "mine", "checkpoint.resume=none.h5", code=None)
        self.assertNotEqual(self.code, 0)
        self.assertEqual(self.listing("mine"), [".lock", "checkpoints"])

    def test_a_copy_of_a_checkpoint_is_not_pruned(self):
        self.run_program("wine.yaml", "--run-dir", "mine", "train.epochs=1", "checkpoint.save_every=1")
        copies = ["epoch-0001 (copy).h5", "epoch-0001-copy.h5", "epoch-00001.h5", "epoch-1.h5", "epoch-1.h5.tmp-5", "keep.h5", "step-0001.h5"]
        for name in copies:
            shutil.copy(self.path("mine/checkpoints/epoch-0001.h5"), self.path("mine/checkpoints", name))
        out, err = self.run_program("wine.yaml", "--run-dir", "mine", "train.epochs=4", "checkpoint.save_every=1", "checkpoint.keep=1")
        self.assertIn("resuming from mine/checkpoints/epoch-0001.h5", out + err)
        self.assertEqual(self.listing("mine/checkpoints"), sorted(copies + ["epoch-0004.h5"]))

    def test_a_folder_with_other_files_can_become_a_runs(self):
        self.write("mine/wine.yaml", program.WINE)
        # a start that fails removes what it made, and nothing else
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
        for arguments, what in (([*predict, "mine/wine.h5"], "this is the input dataset"),
                                ([*predict, "mine/same.h5"], "this is the input dataset"),
                                (["predict", "two.yaml", "--out", "mine/wine.h5"], "this is the input dataset"),
                                ([*predict, checkpoint], "this is a checkpoint"),
                                ([*predict, checkpoint, "--nproc", 2], "this is a checkpoint"),
                                (["export", "runs/test", "--out", "mine/link.safetensors"], "this is a checkpoint")):
            with self.subTest(arguments=arguments):
                before = {p: os.stat(p).st_mtime_ns for p in (self.path("mine/wine.h5"), checkpoint)}
                self.run_program(*arguments, code=USAGE, err=what)
                self.assertEqual({p: os.stat(p).st_mtime_ns for p in before}, before)
        self.run_program(*predict, "mine/out.h5")
        self.run_program(*predict, "mine/out.h5")  # what it wrote itself it may write again


class Output(program.Case):
    """Standard output that does not arrive is a failure; a reader that has left is none."""

    given_files = {"wine.yaml": program.WINE + "name: test\n"}

    def test_what_is_printed_arrives_or_the_code_is_74(self):
        self.run_program("wine.yaml", "train.epochs=1")
        self.write("text.yaml", TEXT)
        self.write("text.txt", "abc" * 20)
        self.run_program("text.yaml")
        commands = (["--help"], ["--version"], ["--help-config"], ["--schema"], ["check", "wine.yaml"], ["eval", "wine.yaml"],
                    ["eval", "wine.yaml", "--nproc", 2], ["inspect", "datasets/wine.h5"], ["comm", "--nproc", 1],
                    ["generate", "text.yaml", "--prompt", "ab", "--characters", 3])
        for arguments in commands:
            with self.subTest(arguments=arguments):
                with open("/dev/full", "w") as full:
                    p = self.start(*arguments, stdout=full)
                    _, err = p.communicate(timeout=180 * program.SLOW)
                self.assertEqual(p.returncode, IO, err)
                self.assertIn("cannot write to standard output", err)
        p = self.start("check", "wine.yaml", stdout=None, preexec_fn=lambda: os.close(1))  # closed
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, IO, err)

    def test_a_reader_may_leave(self):
        for arguments in (["--help-config"], ["check", "wine.yaml"], ["comm", "--nproc", 1]):
            with self.subTest(arguments=arguments):
                read, write = os.pipe()
                os.close(read)
                p = self.start(*arguments, stdout=write)
                os.close(write)
                _, err = p.communicate(timeout=180 * program.SLOW)
                self.assertEqual((p.returncode, err), (OK, ""))

    def limited(self, *arguments, code, blocks):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (blocks * 1024, blocks * 1024))

        p = self.start(*arguments, preexec_fn=limit)
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, code, err)
        return err

    def test_a_file_size_limit_is_reported(self):
        big = ["model.layers.0.linear.out=20000", "train.epochs=1"]
        err = self.limited("wine.yaml", *big, code=IO, blocks=20)
        self.assertIn("File too large", err)
        self.run_program("wine.yaml", *big, "--fresh")
        for arguments in (["predict", "wine.yaml", *big, "dataset.split.test=0", "--outputs", "--out", "big.csv"],
                          ["export", "runs/test", "--out", "big.safetensors"]):
            with self.subTest(arguments=arguments):
                self.assertIn("File too large", self.limited(*arguments, code=IO, blocks=1))
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("big")], [])

    def test_a_lost_last_state_is_reported(self):
        full = {"DDPTRAIN_FAULT": "1:enospc:ever", "DDPTRAIN_FAULT_FILTER": ".h5.tmp-"}
        self.run_program("wine.yaml", "train.epochs=6", env=full, code=IO, err="the last state is not saved; when that is fixed, run the same command again")
        self.assertEqual(self.checkpoints(), [])
        _, err = self.run_program("wine.yaml", "train.epochs=6")

    def test_a_data_file_that_is_not_there(self):
        """It is reported before everything else that a format needs, such as a module."""
        self.write("wine.yaml", program.WINE)
        for extension in ("h5", "nc", "parquet", "arrow", "feather", "csv", "tsv.gz", "db", "idx", "npy", "npz", "txt", "bin"):
            with self.subTest(extension=extension):
                for words in (("init", f"no.{extension}"), ("check", "wine.yaml", f"dataset.path=no.{extension}")):
                    _, err = self.run_program(*words, code=DATA)
                    self.assertIn(f"ddptrain: cannot read the dataset 'no.{extension}' (working directory ", err)
                    self.assertIn("): No such file or directory", err)

    def test_a_fifo_is_no_file(self):
        for name in ("f.h5", "f.safetensors"):
            os.mkfifo(self.path(name))
        for arguments in (["inspect", "f.h5"], ["inspect", "f.safetensors"], ["export", "f.h5", "--out", "o.safetensors"],
                          ["eval", "wine.yaml", "--checkpoint", "f.h5"], ["wine.yaml", "checkpoint.resume=f.h5"],
                          ["wine.yaml", "model.init_from=f.safetensors"], ["wine.yaml", "model.init_from=f.h5"]):
            with self.subTest(arguments=arguments):
                _, err = self.run_program(*arguments, code=DATA)
                self.assertRegex(err, r"f\.\w+: not a regular file")
        self.run_program("wine.yaml", "train.epochs=1")
        os.rename(self.path("runs/test/metrics.jsonl"), self.path("metrics.jsonl"))
        os.mkfifo(self.path("runs/test/metrics.jsonl"))
        self.run_program("inspect", "runs/test", code=DATA, err="metrics.jsonl: not a regular file")
        self.assertIn("metrics.jsonl: not a regular file", self.run_program("runs")[0])
        os.rename(self.path("metrics.jsonl"), self.path("runs/test/metrics.jsonl"))
        os.mkfifo(self.path("runs/test/checkpoints/epoch-0009.h5"))  # neither the newest nor worth keeping a run from going on
        self.run_program("wine.yaml", "train.epochs=2", err="epoch-0009.h5: not a regular file")
        self.assertEqual(self.events("resume")[0]["epoch"], 1)
