"""Recurrent layers in runs: the shipped series, resume, threads, ranks. ctest-labels: dist"""
import json, os, runpy, shutil

import program

CONFIG = """name: waves
seed: 3
dataset: {path: SOURCE/datasets/series.npz, scale: standard, split: {test: 0.2, seed: 1}}
sampler: {batch_size: 40}
model:
  layers:
    - {lstm: {hidden_size: 24, num_layers: 2, dropout: 0.2, bidirectional: true}}
    - {gru: {hidden_size: 12, output: last}}
    - {linear: 4}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 3}
"""


class Recurrent(program.Case):
    def setUp(self):
        super().setUp()
        self.write("waves.yaml", CONFIG.replace("SOURCE", program.SOURCE))

    def hash_of(self, run, *words, **options):
        out, err = self.run_program("waves.yaml", "--run-dir", run, *words, **options)
        return (out + err).split("state sha256 ")[1].split()[0]

    def test_the_shipped_series(self):
        """They are what their script writes, and the config learns."""
        shutil.copy(os.path.join(program.SOURCE, "datasets", "make_series.py"), self.path("make_series.py"))
        runpy.run_path(self.path("make_series.py"), run_name="__main__")
        import numpy as np
        made, shipped = np.load(self.path("series.npz")), np.load(os.path.join(program.SOURCE, "datasets", "series.npz"))
        for name in "x", "y":
            self.assertTrue((made[name] == shipped[name]).all())
        config = os.path.join(program.SOURCE, "configs", "lstm_series.yaml")
        self.run_program(config, "--run-dir", "series")
        self.assertGreater(json.loads(self.run_program("eval", "series")[0])["accuracy"], 0.9)

    def test_the_same_bits_with_threads_and_after_a_resume(self):
        one = self.hash_of("one", env={"OMP_NUM_THREADS": "1"})
        self.assertEqual(one, self.hash_of("two", env={"OMP_NUM_THREADS": "2"}))
        self.run_program("waves.yaml", "--run-dir", "parts", "train.epochs=1")
        self.assertEqual(one, self.hash_of("parts"))

    def test_elastic_ranks_have_the_same_bits(self):
        words = ("determinism={mode: elastic, shards: 2}", "sampler.batch_size=null", "sampler.global_batch_size=40")
        self.assertEqual(self.hash_of("two", "--nproc", "2", *words), self.hash_of("one", *words))


if __name__ == "__main__":
    program.main()
