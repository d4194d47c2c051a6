"""float16 on the (emulated) GPU: the loss scale backs off and grows by GradScaler's rules, is kept in checkpoints, and leaves real faults to
train.on_nonfinite; every precision learns the same. ctest-labels: unit gpu-emulated"""
import os, unittest

import program
from program import NOT_FINITE

EMULATION = os.path.join(os.path.dirname(os.path.dirname(program.BINARY)), "emulation")
ENVIRONMENT = {"DDPTRAIN_MODULE_DIR": EMULATION, "LD_LIBRARY_PATH": os.path.join(EMULATION, "driver")}
CONFIG = """
dataset: {path: datasets/wine.h5, inputs: x, targets: y, scale: standard, split: {test: 0.2, seed: 42}}
sampler: {batch_size: 71}
model: {layers: [{linear: {out: 16}}, relu, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
train: {steps: 12, device: cuda, precision: float16, grad_scaler: {growth_interval: 4}}
checkpoint: {save_every: {steps: 5}}
"""


@unittest.skipUnless(os.path.exists(EMULATION), "this build has no emulated GPU")
class Float16(program.Case):
    given_files = {"test.yaml": CONFIG}

    def run_gpu(self, *settings, run="runs/test", code=program.OK):
        return self.run_program("test.yaml", *settings, "--run-dir", run, env=ENVIRONMENT, code=code, timeout=300)

    def scales(self, run="runs/test"):
        return [e["loss_scale"] for e in self.events("step", run)]

    def test_grows_and_resumes(self):
        """12 good steps, doubled after each 4; the same when the run was cut in between."""
        self.run_gpu()
        self.assertEqual(self.scales(), [65536] * 4 + [131072] * 4 + [262144] * 4)
        self.assertEqual(self.events("skipped"), [])
        self.run_gpu("train.steps=6", run="runs/part")
        self.run_gpu(run="runs/part")
        self.assertEqual(self.scales("runs/part"), self.scales())
        self.assertEqual(self.sha("runs/part"), self.sha())
        self.assertIn("float16)", self.events("start")[0]["device"])

    def test_backs_off(self):
        """From 2^26 gradients overflow until the scale is small enough; those steps are skipped, and the policy has no say."""
        self.run_gpu("train.grad_scaler={init_scale: 67108864}", "train.on_nonfinite.max=1", "train.steps=6")
        skipped, scales = self.events("skipped"), self.scales()
        self.assertGreater(len(skipped), 2)
        self.assertEqual(skipped[0]["reason"], "gradients overflowed float16: the loss scale is reduced from 67108864 to 33554432")
        self.assertEqual(scales, [2.0 ** (26 - len(skipped))] * 6)
        self.assertEqual(self.events("end")[0]["skipped"], len(skipped))
        self.run_gpu("train.precision=float32", "train.steps=6", run="runs/plain")  # norms are those of the real gradients
        for scaled, plain in zip(self.events("step"), self.events("step", "runs/plain")):
            self.assertLess(abs(scaled["grad_norm"] - plain["grad_norm"]), 0.5 * plain["grad_norm"])

    def test_other_factors(self):
        self.run_gpu("train.grad_scaler={init_scale: 100, growth_factor: 3, growth_interval: 5}")
        self.assertEqual(self.scales(), [100] * 5 + [300] * 5 + [900] * 2)

    def test_clipping_sees_real_gradients(self):
        """The same steps whatever the scale: powers of two round alike."""
        for clip in ("clip_grad_norm=0.1", "clip_grad_value=0.01"):
            losses = []
            for scale in (256, 4096):
                run = f"runs/{clip}-{scale}"
                self.run_gpu(f"train.{clip}", f"train.grad_scaler.init_scale={scale}", "train.grad_scaler.growth_interval=2000", run=run)
                losses.append(self.losses(run))
            self.assert_close(losses[0], losses[1], 1e-5, clip)

    def test_a_loss_scaler_without_effect_is_reported(self):
        for words, line in ((("train.precision=bfloat16",), "train.grad_scaler is for precision: float16; the loss is not scaled"),
                            (("train.float32_matmul_precision=high",), "train.float32_matmul_precision: high is for precision: float32")):
            self.run_program("check", "test.yaml", *words, env=ENVIRONMENT, timeout=300, out=f"ignored        {line}\n")
        out, _ = self.run_program("check", "test.yaml", "train.cuda_graph=true", env=ENVIRONMENT, timeout=300)
        self.assertNotIn("ignored", out)

    def test_a_real_fault_is_one(self):
        self.write("data.csv", "a,b,y\n" + "".join(f"{3e38 if i == 40 else i % 7},{i % 5},{i % 3}\n" for i in range(71)))
        _, err = self.run_gpu("train.steps=2", "dataset={path: data.csv}", code=NOT_FINITE, run="runs/inf")
        self.assertIn("the loss is not finite", err)

    def test_learns_the_same(self):
        losses = {}
        for precision in ("float32", "bfloat16", "float16"):
            self.run_gpu(f"train.precision={precision}", run=f"runs/{precision}")
            losses[precision] = self.losses(f"runs/{precision}")
        self.run_gpu("train.precision=float32", "train.float32_matmul_precision=high", run="runs/tf32")
        self.assertIn("tf32)", self.events("start", "runs/tf32")[0]["device"])
        losses["tf32"] = self.losses("runs/tf32")
        for name in ("bfloat16", "float16", "tf32"):
            self.assertNotEqual(losses[name], losses["float32"], name)
            self.assert_close(losses[name], losses["float32"], 0.01 if name == "bfloat16" else 0.002, name)
        self.assertNotIn("loss_scale", self.events("step", "runs/bfloat16")[0])
