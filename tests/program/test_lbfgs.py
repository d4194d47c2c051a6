"""The optimizer lbfgs in runs: it converges, resumes with the same bits, sums over ranks, and what it refuses. ctest-labels: dist"""
import program
from program import USAGE

CONFIG = """
seed: 1
dataset: {format: synthetic, synthetic: {kind: linear, rows: 96, inputs: 6, targets: 2, seed: 5}, split: {test: 0.25, seed: 1}}
sampler: {global_batch_size: 72}
model: {layers: [{linear: 9}, tanh, {linear: 2}]}
loss: mse
optimizer: {type: lbfgs, lr: 0.7, history_size: 5, max_iter: 6}
schedule: {type: step, step_size: 3, gamma: 0.5}
train: {epochs: 6, log_every: 1}
checkpoint: {save_every: {steps: 1}, keep: 0}
"""


class Lbfgs(program.Case):
    given_files = {"test.yaml": CONFIG}

    def train(self, run, *words, **options):
        self.run_program("test.yaml", "--run-dir", run, *words, **options)
        return self.sha(run)

    def test_resume_threads_and_ranks(self):
        for search in "none", "strong_wolfe":
            with self.subTest(search):
                word = f"optimizer.line_search={search}"
                whole = self.train(f"whole-{search}", word)
                self.run_program("test.yaml", "--run-dir", f"parts-{search}", word, "--stop-after", 2, code=None)
                self.assertEqual(self.train(f"parts-{search}", word), whole)
                self.assertEqual(self.train(f"again-{search}", word, env={"OMP_NUM_THREADS": "1"}), whole)
                self.train(f"two-{search}", word, "--nproc", 2, "train.check_state_every=1")
                losses = self.losses(f"whole-{search}")
                self.assertLess(losses[-1], losses[0] / 100)
                self.assert_close(self.losses(f"two-{search}"), losses, 2e-4, "the same batch on two processes")
        self.run_program("test.yaml", "--run-dir", "parts-three", "--nproc", 2, "--stop-after", 2, code=None)
        self.train("parts-three", "--nproc", 3)
        self.assert_close(self.losses("parts-three"), self.losses("whole-none"), 2e-4, "a resume on other processes")

    def test_dropout_is_that_of_the_step(self):
        """All evaluations of a step have one mask, so that their losses can be compared."""
        self.train("run", "optimizer.line_search=strong_wolfe", "model.layers=[{linear: 9}, tanh, {dropout: 0.2}, {linear: 2}]", "schedule=null")
        losses = self.losses("run")
        self.assertLess(losses[-1], losses[0])

    def test_refused(self):
        for words, message in (
                (["train.clip_grad_norm=1"], "lbfgs cannot be combined with train.clip_grad_norm"),
                (["train.accumulate=2"], "lbfgs cannot be combined with train.accumulate: a step evaluates one batch several times"),
                (["dist.zero_stage=1"], "lbfgs cannot be combined with dist.zero_stage"),
                (["optimizer.maximize=true"], "lbfgs cannot be combined with optimizer.maximize"),
                (["optimizer.in_backward=true"], "lbfgs cannot be combined with optimizer.in_backward"),
                (["determinism={mode: elastic, shards: 2}"], "lbfgs cannot be combined with determinism.mode: elastic"),
                (["train.on_nonfinite=skip"], "lbfgs cannot be combined with train.on_nonfinite: skip or rollback"),
                (["train.precision=bfloat16"], "lbfgs cannot be combined with train.precision"),
                (["train.device=cuda"], "lbfgs cannot be combined with train.device: cuda"),
                (["optimizer.groups=[{match: '*', lr: 1}]"], "optimizer.groups: lbfgs has the same settings for all parameters"),
                (["optimizer.line_search=wolfe"], "optimizer.line_search: expected one of none, strong_wolfe, got 'wolfe'")):
            with self.subTest(message):
                self.run_program("check", "test.yaml", *words, code=USAGE, err=message)
        self.run_program("export", "test.yaml", "--out", "x.py", code=USAGE, err="the optimizer lbfgs")
