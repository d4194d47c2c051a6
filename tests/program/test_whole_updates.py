"""The optimizers adafactor and muon in runs, whose updates read whole parameters: they converge, resume with the same bits, on any
number of threads and of elastic processes, and what they refuse. ctest-labels: dist"""
import program
from program import USAGE

CONFIG = """
seed: 1
dataset: {format: synthetic, synthetic: {kind: linear, rows: 96, inputs: 6, targets: 2, seed: 5}, split: {test: 0.25, seed: 1}}
sampler: {global_batch_size: 24}
model: {layers: [{linear: 9}, tanh, {linear: 2}]}
loss: mse
optimizer: {type: muon, lr: 0.05, adamw: {lr: 0.02}, groups: [{match: '0.*', lr_factor: 0.5}]}
schedule: {type: one_cycle, interval: step}
train: {epochs: 6, log_every: 1}
checkpoint: {save_every: {steps: 1}, keep: 0}
"""
KINDS = {"muon": [], "adafactor": ["optimizer={type: adafactor, lr: 0.3, weight_decay: 0.01}", "schedule={type: cosine}"]}


class WholeUpdates(program.Case):
    given_files = {"test.yaml": CONFIG}

    def train(self, run, *words, **options):
        self.run_program("test.yaml", "--run-dir", run, *words, **options)
        return self.sha(run)

    def test_resume_threads_and_ranks(self):
        for kind, words in KINDS.items():
            with self.subTest(kind):
                whole = self.train(f"whole-{kind}", *words)
                self.run_program("test.yaml", "--run-dir", f"parts-{kind}", *words, "--stop-after", 7, code=None)
                self.assertEqual(self.train(f"parts-{kind}", *words), whole)
                self.assertEqual(self.train(f"again-{kind}", *words, env={"OMP_NUM_THREADS": "1"}), whole)
                self.train(f"two-{kind}", *words, "--nproc", 2, "train.check_state_every=1")
                losses = self.losses(f"whole-{kind}")
                self.assertLess(losses[-1], losses[0] * 0.75)
                self.assert_close(self.losses(f"two-{kind}"), losses, 2e-3, "the same batch on two processes")
                elastic = "determinism={mode: elastic, shards: 4}"
                self.assertEqual(self.train(f"elastic-{kind}", *words, elastic), self.train(f"elastic2-{kind}", *words, elastic, "--nproc", 2))

    def test_refused(self):
        for kind, key in (("muon", "optimizer.type: muon"), ("adafactor", "optimizer.type: adafactor")):
            for words, message in (
                    ("dist.zero_stage=1", "dist.zero_stage: an update needs whole parameters, and a shard has parts of them"),
                    ("optimizer.in_backward=true", "optimizer.in_backward: an update needs whole parameters"),
                    ("train.device=cuda", "train.device: cuda: it is for the CPU only")):
                with self.subTest(message):
                    _, err = self.run_program("check", "test.yaml", f"optimizer={{type: {kind}}}", words, code=USAGE)
                    self.assertIn(f"{key} cannot be combined with {message}", err)
