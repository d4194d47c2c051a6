"""--checkpoint initial: the weights that a new run starts with, before any training. ctest-labels: unit"""
import json, os, shutil

import numpy as np

import program
from program import DATA, USAGE
from test_pretrained import FOLDER, GPT2, TOKENS, read_file
from test_weights import read_safetensors, write_safetensors

INITIAL = ("--checkpoint", "initial")
LABELS = """
name: test
dataset: {path: train.csv, scale: standard, split: {test: 0.25}}
model: {layers: [{linear: {out: 4}}, relu, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0}
sampler: {batch_size: 8}
train: {epochs: 1, metrics: [f1]}
"""


class Initial(program.Case):
    def eval(self, *words):
        out, err = self.run_program("eval", *words)
        return json.loads(out), err

    def table(self, name, rows, seed):
        r = np.random.default_rng(seed)
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write("a,color,b,kind\n")
            for i in range(rows):
                f.write(f"{seed + r.normal():.6g},{'red green blue'.split()[r.integers(3)]},{10 * r.normal():.6g},{'x y z'.split()[i % 3]}\n")

    def labels(self):
        self.table("train.csv", 40, 0)
        self.table("new.csv", 7, 5)
        self.write("test.yaml", LABELS)

    def test_equals_a_run_without_learning(self):
        """Scaler, categories and labels are those of the training rows, also for a file of its own; any number of processes."""
        self.labels()
        commands = (["eval", "test.yaml"], ["eval", "test.yaml", "--part", "train"], ["predict", "test.yaml", "--outputs"],
                    ["eval", "test.yaml", "new.csv"], ["predict", "test.yaml", "new.csv", "--probabilities"])
        before = [self.run_program(*words, *INITIAL) for words in commands]
        two, _ = self.eval("test.yaml", "--nproc", "2", *INITIAL)
        self.assertFalse(os.path.exists(self.path("runs")))
        self.run_program("test.yaml")
        for words, (out, err) in zip(commands, before):
            self.assertEqual(out, self.run_program(*words)[0], words)
            self.assertIn("the weights that a new run starts with; initialized with seed 42\n", err)
        self.assertAlmostEqual(two["loss"], json.loads(before[0][0])["loss"])

    def test_the_start_of_a_run(self):
        """A run folder in place of the config: where the run began, not where it is."""
        self.labels()
        first, _ = self.eval("test.yaml", *INITIAL)
        self.run_program("test.yaml", "optimizer.lr=0.1", "train.epochs=3")
        self.assertEqual(first, self.eval("runs/test", *INITIAL)[0])
        self.assertNotEqual(first, self.eval("runs/test")[0])
        self.assertNotEqual(first, self.eval("runs/test", "seed=1", *INITIAL)[0])

    def test_pretrained(self):
        """GPT-2 by its map: the logits of transformers, before a run exists; the message about a missing run names the option."""
        with open(os.path.join(FOLDER, "pretrained.json"), encoding="utf-8") as f:
            expected = json.load(f)["gpt2"]
        with open(self.path("t.bin"), "wb") as f:
            f.write(np.array(expected["inputs"], "<u2").tobytes() + np.array([0], "<u2").tobytes())
        write_safetensors(self.path("gpt2.safetensors"), read_file("gpt2.safetensors"))
        self.write("test.yaml", TOKENS + GPT2)
        _, err = self.run_program("eval", "test.yaml", code=DATA)
        self.assertIn("train first, or give --checkpoint FILE, or --checkpoint initial for the weights of model.init_from\n", err)
        first, err = self.eval("test.yaml", *INITIAL)
        self.assertIn("new run starts with; model.init_from: gpt2.safetensors: 28 of 29 tensors used, for 28 of 28 parameters\n", err)
        out, _ = self.run_program("predict", "test.yaml", "--outputs", "--out", "p.h5", *INITIAL)
        import h5py
        with h5py.File(self.path("p.h5")) as f:
            np.testing.assert_allclose(f["outputs"][:].reshape(-1), expected["logits"], atol=1e-4 * np.abs(expected["logits"]).max())
        self.run_program("export", "test.yaml", "--out", "first.safetensors", *INITIAL)
        self.assertFalse(os.path.exists(self.path("runs")))
        self.run_program("test.yaml")
        self.assertEqual(first, self.eval("test.yaml")[0])
        self.run_program("export", "runs/test", "--out", "last.safetensors")
        first, last = read_safetensors(self.path("first.safetensors")), read_safetensors(self.path("last.safetensors"))
        self.assertEqual(set(first), set(last))
        for name, values in last.items():
            np.testing.assert_array_equal(first[name], values, name)

    def test_generate(self):
        """Text from weights of another run, with the vocabulary of the config's text."""
        self.write("t.txt", "the quick brown fox jumps over the lazy dog. " * 20)
        self.write("test.yaml", "name: test\ndataset: {path: t.txt, text: {block_size: 8}}\n"
                                "model: {layers: [{embedding: {embedding_dim: 8}}, {linear: {out: 28}}]}\nloss: cross_entropy\n"
                                "optimizer: {type: adam, lr: 0.01}\nsampler: {batch_size: 8}\ntrain: {epochs: 1}\n")
        prompt = ("--prompt", "the ", "--characters", "20", "--seed", "3")
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "w.safetensors")
        trained, _ = self.run_program("generate", "test.yaml", *prompt)
        shutil.rmtree(self.path("runs"))
        started, err = self.run_program("generate", "test.yaml", "model.init_from=w.safetensors", *prompt, *INITIAL)
        self.assertEqual(trained, started)
        self.assertIn("model.init_from: w.safetensors\n", err)
        self.assertNotEqual(trained, self.run_program("generate", "test.yaml", *prompt, *INITIAL)[0])
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_exported_program(self):
        """An export has what a checkpoint has: the scaler and the labels."""
        self.labels()
        self.run_program("export", "test.yaml", "--out", "first.c", *INITIAL)
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "last.c")
        self.run_program("export", "runs/test", "--out", "again.c", *INITIAL)
        for name in ("first.c", "again.c"):
            self.assertEqual(self.numbers(name), self.numbers("last.c"))

    def numbers(self, name):
        """The lines without those that name the checkpoint and its header."""
        stem = name[:-2]
        return [line for line in self.read(name).split("\n") if stem not in line and "epoch" not in line]

    def test_rejected(self):
        self.labels()
        _, err = self.run_program("eval", "test.yaml", "--weights", "average", *INITIAL, code=USAGE)
        self.assertIn("--weights average: --checkpoint initial has no moving average of the weights", err)
        _, err = self.run_program("eval", "test.yaml", "checkpoint.resume=a.h5", *INITIAL, code=USAGE)
        self.assertIn("a new run continues from checkpoint.resume: a.h5; give --checkpoint a.h5\n", err)
        self.run_program("eval", "test.yaml", "model.init_from=w.safetensors", *INITIAL, code=DATA, err="w.safetensors")
        self.run_program("eval", "test.yaml", code=DATA, err="train first, or give --checkpoint FILE\n")
