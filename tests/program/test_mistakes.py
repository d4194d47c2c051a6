"""Each mistake of mistakes.txt gets exactly the message below it. ctest-labels: unit"""
import os, re

import program
from program import USAGE

TABLE = os.path.join(program.SOURCE, "tests", "program", "mistakes.txt")


def known_names():
    """{word: names} of the words of the table that stand for all types of a kind, from the reference page."""
    with open(os.path.join(program.SOURCE, "docs", "config.md")) as f:
        page = f.read()
    kinds = {"LAYERS": r"model\.layers", "LOSSES": "loss", "OPTIMIZERS": "optimizer"}
    return {word: ", ".join(re.findall(rf"^- \[`\w+`\]\(#{kind}\.(\w+)\)$", page, re.M)) for word, kind in kinds.items()}


def mistakes():
    """(old, new, message) of each entry."""
    known = known_names()
    with open(TABLE) as f:
        lines = [line.rstrip("\n") for line in f if line.strip() and not line.startswith("#")]
    found = []
    for line in lines:
        if line.startswith("    "):
            found[-1][2].append(re.sub(r"\(known: ([A-Z]+)\)", lambda m: f"(known: {known[m[1]]})", line[4:]))
        else:
            old, new = line.split(" -> ", 1)
            found.append((old, new.replace("\\n", "\n"), []))
    return found


class Mistakes(program.Case):
    def test_each_gets_its_message(self):
        table = mistakes()
        self.assertGreaterEqual(len(table), 300)
        for old, new, message in table[::8 if program.SANITIZER else 1]:
            with self.subTest(new):
                self.assertIn(old, program.WINE)
                self.write("test.yaml", program.WINE.replace(old, new, 1))
                out, err = self.run_program("check", "test.yaml", code=USAGE)
                self.assertEqual((out, err.splitlines()), ("", message))

    def test_overrides_get_the_same_suggestions(self):
        self.write("test.yaml", program.WINE)
        for override, sentence in (("lr=0.1", "argument 'lr=0.1': lr: unknown key; did you mean 'optimizer.lr' (optimizer.lr: line 6, column 25)?"),
                                   ("train.device=gpu", "got 'gpu'; did you mean 'cuda'?"),
                                   ("optimizer={type: sgd, lr: 1, lr: 2}", "argument 'optimizer={type: sgd, lr: 1, lr: 2}': duplicate key 'lr'\n"),
                                   ("loss=MSELoss", "unknown loss 'MSELoss'; did you mean 'mse'?"),
                                   ("model.layers.1=Dropout(0.5)", "did you mean 'dropout: {p: 0.5}'?")):
            with self.subTest(override):
                self.run_program("check", "test.yaml", override, code=USAGE, err=sentence)

    def test_options_that_are_keys_or_of_other_programs(self):
        self.write("test.yaml", program.WINE)
        for arguments, said in (
                ("--epochs 5", "did you mean 'train.epochs=5'?"),
                ("--lr=0.1", "did you mean 'optimizer.lr=0.1'?"),
                ("--optimizer.lr 0.1", "did you mean 'optimizer.lr=0.1'?"),
                ("--batch-size 64", "did you mean 'sampler.batch_size=64'?"),
                ("--per_device_train_batch_size 64", "did you mean 'sampler.batch_size=64'?"),
                ("--optimizer adam", "did you mean 'optimizer=adam'?"),
                ("--momentum --quiet", "did you mean 'optimizer.momentum=VALUE' (for sgd, rmsprop, muon)?"),
                ("--patience 3", "did you mean 'train.early_stop.patience=3'? schedule.patience is that of reduce_on_plateau"),
                ("--fp16", "did you mean 'train.precision=VALUE'? One of float32, bfloat16, float16"),
                ("--seed 3", "--seed is for generate, audit; 'train' does not accept it; did you mean 'seed=3'?"),
                ("--backend gloo", "--backend is for comm; 'train' does not accept it; did you mean 'dist.backend=gloo'?"),
                ("--dataset x.csv", "did you mean 'dataset.path=x.csv'?"),
                ("--checkpoint x.h5", "did you mean 'checkpoint.resume=x.h5'?"),
                ("--resume", "a run continues by itself when the same command runs again"),
                ("--model mlp", "'model' is a section of the config: ddptrain --help-config model"),
                ("--layers 3", "'model.layers' is a list of the config: ddptrain --help-config model.layers"),
                ("--wandb", "each run writes metrics.jsonl"),
                ("--config x.yaml", "the config is an argument: ddptrain CONFIG"),
                ("-np 2", "did you mean '--nproc'?"),
                ("--npoc 2", "did you mean '--nproc'?"),
                ("--run_dir x", "did you mean '--run-dir'?"),
                ("--output_dir x", "did you mean '--run-dir'?"),
                ("--chekpoint x", "did you mean '--checkpoint'?"),
                ("--frehs", "did you mean '--fresh'?"),
                ("--overwrite", "did you mean '--fresh'?"),
                ("--xyz", "unknown option '--xyz' (see ddptrain --help)")):
            with self.subTest(arguments):
                _, err = self.run_program("test.yaml", *arguments.split(), code=USAGE)
                self.assertIn(said, err)
                self.assertEqual(len(err.splitlines()), 1)
        self.assertFalse(os.path.exists(self.path("runs")))
        for arguments, said in (("predict test.yaml --output x.csv", "did you mean '--out'?"),
                                ("predict test.yaml --input x.csv", "the data file follows the config: ddptrain predict CONFIG DATA"),
                                ("predict test.yaml --proba", "did you mean '--probabilities'?"),
                                ("eval test.yaml --chekpoint x", "did you mean '--checkpoint'?"),
                                ("inspect test.yaml --lr 3", "unknown option '--lr' (see ddptrain --help)")):
            self.run_program(*arguments.split(), code=USAGE, err=said)

    def test_other_things_than_a_config(self):
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml", "train.epochs=1")
        checkpoint = os.path.relpath(self.checkpoints()[0], self.folder)
        for arguments, said in (
                ("check runs/test", "cannot read config 'runs/test': Is a directory; did you mean 'runs/test/config.yaml'?"),
                ("eval runs", "runs: this folder is not a run, but has runs; give one of its runs, such as runs/test\n"),
                ("./runs", "cannot read config './runs': Is a directory\n"),
                ("test.yml", "cannot read config 'test.yml': No such file or directory; did you mean 'test.yaml'?"),
                ("./test", "cannot read config './test': No such file or directory; did you mean './test.yaml'?"),
                ("other.yaml", "cannot read config 'other.yaml': No such file or directory\n"),
                (f"eval {checkpoint}", f"{checkpoint}: an HDF5 file, not a config; the config comes first, a checkpoint is given by --checkpoint FILE"),
                ("test.yaml optimizer.lr 0.1", "overrides are KEY=VALUE; did you mean 'optimizer.lr=0.1'?"),
                ("test.yaml lr = 0.1", "overrides are KEY=VALUE; did you mean 'optimizer.lr=0.1'?"),
                ("test.yaml train.epochs", "overrides are KEY=VALUE; did you mean 'train.epochs=VALUE'?"),
                ("check test.yaml datasets/wine.h5", "overrides are KEY=VALUE; did you mean 'dataset.path=datasets/wine.h5'?"),
                ("test.yaml other", "unexpected argument 'other' after 'test.yaml'; overrides are KEY=VALUE\n")):
            with self.subTest(arguments):
                self.run_program(*arguments.split(), code=USAGE, err=said)

    def test_block_style(self):
        for old, new, sentence in (
                ("optimizer: {type: adam, lr: 0.001}", "optimizer:\n  lr: 0,001", "test.yaml:7:7: optimizer.lr: expected a number, got '0,001'; write a decimal point instead of the comma"),
                ("optimizer: {type: adam, lr: 0.001}", "optimizer:\n  betas: (0.9, 0.999)", "test.yaml:7:10: optimizer.betas: expected a number, got '(0.9, 0.999)'; write a list in brackets, such as [1, 2]"),
                ("train: {epochs: 10}", "train:\n  epochs:10", "got 'epochs:10'; a space is missing after the ':'"),
                ("{layers: [{linear: {out: 64}}, relu, {linear: {out: 3}}]}", "\n  layers:\n    - nn.Linear(13, 64)\n    - relu", "test.yaml:6:7: model.layers.0: unknown layer 'nn.Linear(13, 64)'; did you mean 'linear: {out: 64}'?")):
            with self.subTest(new):
                self.write("test.yaml", program.WINE.replace(old, new, 1))
                self.run_program("check", "test.yaml", code=USAGE, err=sentence)
