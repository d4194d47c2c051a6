"""optimizer.in_backward: the bits of a run that keeps its gradients, in less memory; what it cannot go with is refused, and a
gradient that is not finite ends the run before anything of that step is saved. ctest-labels: dist"""
import os

import program, test_nonfinite
from program import NOT_FINITE, USAGE

ON = "optimizer.in_backward=true"
# the gradient of 2.weight is larger than the place for one, so it is made in two parts
WIDE = """
name: test
dataset: {format: synthetic, synthetic: {kind: linear, rows: 24, inputs: 64, targets: 3}, split: {test: 0.25}}
sampler: {batch_size: 5}
model: {layers: [{linear: 2048}, relu, {linear: 1100}, relu, {linear: {out: 64, bias: false}}, layer_norm, relu, {linear: 3}]}
loss: mse
train: {epochs: 2}
"""
IMAGES = """
name: test
dataset: {format: synthetic, synthetic: {kind: classes, rows: 24, classes: 3, inputs: [2, 8, 8]}}
sampler: {batch_size: 8}
model: {layers: [{conv2d: {out: 8, kernel_size: 3, bias: false}}, batch_norm, relu, {residual: [{conv2d: {out: 8, kernel_size: 3, padding: 1}}, relu]}, flatten, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 3}
"""
OPTIMIZERS = ["{type: sgd, lr: 0.01}", "{type: sgd, lr: 0.01, momentum: 0.9, nesterov: true, weight_decay: 0.1}", "{type: adam, lr: 0.01, amsgrad: true}",
              "{type: adamw, lr: 0.01, decay: matrices, groups: [{match: ['7.*'], lr_factor: 0.1}]}", "{type: adagrad, lr: 0.01}",
              "{type: rmsprop, lr: 0.01, centered: true, momentum: 0.5}", "{type: lion, lr: 0.01}",
              "{type: nadam, lr: 0.01, weight_decay: 0.1}", "{type: radam, lr: 0.01}", "{type: adamax, lr: 0.01}", "{type: adadelta, rho: 0.8}",
              "{type: rprop}", "{type: asgd, lambd: 0.1, t0: 1}", "{type: sgd, lr: 0.001, maximize: true}"]
GPT = ["train.epochs=null", "train.steps=6", "train.clip_grad_norm=0", "dataset.text.truncate=0.01", "schedule.t_max=12", "schedule.warmup=5",
       "model.layers.2.repeat.times=1", "checkpoint.save_every={steps: 4}"]


class InBackward(program.Case):
    def both(self, *arguments):
        """Runs without and with; the states must have the same bits."""
        self.run_program(*arguments, "--run-dir", "runs/kept", "--fresh")
        self.run_program(*arguments, ON, "--run-dir", "runs/test", "--fresh")
        self.assertEqual(self.sha(), self.sha("runs/kept"), arguments)
        self.assertEqual(self.losses(), self.losses("runs/kept"))
        for one, other in zip(self.events("step"), self.events("step", "runs/kept")):
            self.assertAlmostEqual(one["grad_norm"], other["grad_norm"], delta=1e-5 * other["grad_norm"])

    def gradient_bytes(self, run):
        return self.events("start", run)[0]["gradient_bytes"]

    def test_every_optimizer_ends_with_the_same_bits(self):
        self.write("test.yaml", WIDE)
        for optimizer in OPTIMIZERS:
            self.both("test.yaml", "optimizer=" + optimizer)
        self.assertEqual(self.gradient_bytes("runs/test"), 4 * (1008 * 2048 + 1104))
        self.assertGreater(self.gradient_bytes("runs/kept"), 4 * 1100 * 2048)

    def test_models(self):
        self.write("test.yaml", WIDE)
        self.both("test.yaml", "model.freeze=['4.*']", "schedule={type: one_cycle}", "optimizer={type: sgd, momentum: 0.9}")
        self.both("test.yaml", "model.freeze=['2.*']", "train.ema={decay: 0.9}")
        self.both("test.yaml", "train.clip_grad_value=0.001", "train.log_every=1")
        with open("/proc/cpuinfo") as f:
            if "avx512_bf16" in f.read():
                self.both("test.yaml", "train.precision=bfloat16")
        self.write("test.yaml", IMAGES)
        self.both("test.yaml")

    def test_a_tied_weight_waits_for_both_layers(self):
        """One that would go in parts if it were not tied."""
        for bias in ("true", "false"):
            self.write("test.yaml", WIDE)
            self.both("test.yaml", "model.layers=[{linear: 1500}, {linear: {out: 1500, name: a}}, relu, "
                      f"{{linear: {{out: 1500, tie: a.weight, bias: {bias}}}}}, {{linear: 3}}]")

    def test_a_gpt_and_its_resume_are_bit_equal(self):
        config = os.path.join(program.SOURCE, "configs", "char_gpt_small.yaml")
        self.both(config, *GPT)
        self.run_program(config, *GPT, ON, "train.steps=4", "--run-dir", "runs/part")
        self.run_program(config, *GPT, "--run-dir", "runs/part")  # without it: the option only says how
        self.assertEqual(self.sha("runs/part"), self.sha())

    def test_processes_average_each_part(self):
        self.write("test.yaml", WIDE)
        self.both("test.yaml", "--nproc", 2, "optimizer={type: adam, lr: 0.01}")
        self.assertEqual(self.gradient_bytes("runs/test"), 4 * (1008 * 2048 + 1104))
        self.both("test.yaml", "--nproc", 3, "model.freeze=['0.*', '4.*', '5.*', '7.*']", "train.ema={decay: 0.9}", "train.check_state_every=2")
        self.write("test.yaml", IMAGES.replace("batch_norm", "{batch_norm: {sync: true}}"))
        self.both("test.yaml", "--nproc", 2, "sampler.batch_size=4")

    def test_threads_of_processes(self):
        """Parts are larger then."""
        self.write("test.yaml", WIDE)
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/kept")
        self.run_program("test.yaml", "--nproc", 2, ON, env=dict(os.environ, OMP_NUM_THREADS="2"))
        self.assertEqual(self.sha(), self.sha("runs/kept"))

    def test_processes_that_keep_their_gradients(self):
        """They say why."""
        self.write("test.yaml", WIDE)
        for more, why in ((["dist.backend=gloo"], "dist.backend is not shared memory"),
                          (["dist.gradient_compression=bfloat16"], "dist.gradient_compression rounds gradients that are kept"),
                          (["sampler.uneven=true"], "with sampler.uneven a process may have no rows")):
            sums = []
            for switch in ([], [ON]):
                out, err = self.run_program("test.yaml", *more, *switch, "--nproc", 2, "--run-dir", "runs/two", "--fresh")
                self.assertEqual("optimizer.in_backward has no effect: " + why in out + err, bool(switch), out + err)
                sums.append(self.sha("runs/two"))
            self.assertEqual(*sums)

    def test_check_reports_it(self):
        self.write("test.yaml", WIDE)
        self.assertIn("gradients      7.88 MiB at a time; each is applied during backward (optimizer.in_backward)",
                      self.run_program("check", "test.yaml", ON)[0])
        self.assertIn("7.88 MiB at a time", self.run_program("check", "test.yaml", ON, "--nproc", 2)[0])
        out = self.run_program("check", "test.yaml", ON, "--nproc", 2, "--nnodes", 2)[0]
        self.assertIn("in_backward    no effect: the processes are not all started on one host by --nproc", out)
        self.assertRegex(out, "gradients .* in [0-9]+ bucket")

    def test_refusals(self):
        self.write("test.yaml", WIDE + "optimizer:\n  type: adam\n  in_backward: true\n")
        for override, sentence in (("train.clip_grad_norm=1", "train.clip_grad_norm: the norm is known only when all gradients are"),
                                   ("train.accumulate=2", "train.accumulate: gradients of micro-batches are summed before an update"),
                                   ("train.on_nonfinite=skip", "train.on_nonfinite: skip or rollback"),
                                   ("train.on_nonfinite=rollback", "train.on_nonfinite: skip or rollback"),
                                   ("train.device=cuda", "train.device: cuda: it is for the CPU only"),
                                   ("dist.backend=nccl", "dist.backend: nccl: it is for the CPU only"),
                                   ("dist.zero_stage=1", "dist.zero_stage: the shards of the optimizer are updated after gradients are averaged")):
            self.run_program("test.yaml", override, code=USAGE, err="test.yaml:10:16: optimizer.in_backward: cannot be combined with " + sentence)
        _, err = self.run_program("test.yaml", "determinism={mode: elastic, shards: 2}", "sampler={global_batch_size: 8}", code=USAGE)
        self.assertIn("cannot be combined with determinism.mode: elastic", err)


class NotFiniteInBackward(program.Case):
    write_rows = test_nonfinite.NotFinite.write_rows
    assert_checkpoints_are_finite = test_nonfinite.NotFinite.assert_checkpoints_are_finite

    def test_a_bad_loss_is_detected_before_any_update(self):
        self.write_rows({17: 3e38})
        self.write("test.yaml", test_nonfinite.CONFIG.replace("batch_norm, ", ""))
        for nproc in (1, 2):
            errors = [self.run_program("test.yaml", "--nproc", nproc, *more, "--fresh", code=NOT_FINITE)[1] for more in ([], [ON])]
            self.assertIn("the output of layer 0 (linear) for row 17 of the training data", errors[1])
            self.assertEqual(*(error.split("the loss is")[1].splitlines()[0] for error in errors))

    def test_a_gradient_ends_the_run_and_the_last_checkpoint_stays(self):
        """The loss is finite, but 0.125 x 100 x 1e38 is too much for a gradient; the following layer is already updated."""
        self.write_rows({17: 1e38})
        self.write("test.yaml", test_nonfinite.CONFIG.replace("batch_norm, {dropout: {p: 0.2}}, relu, ", "")
                   .replace("{linear: {out: 1}}]", "{linear: {out: 1}}], init: [{constant: {value: 1.0e-10, match: 0.*}}, {constant: {value: 100, match: 1.*}}]")
                   .replace("loss: mse", "loss: l1").replace("lr: 0.01", "lr: 1.0e-14").replace("steps: 3", "steps: 1"))
        for nproc, log_every in ((2, 0), (2, 1), (1, 0), (1, 1)):
            arguments = ["test.yaml", ON, "--nproc", nproc, "--fresh", "sampler.shuffle=false", f"train.log_every={log_every}"]
            _, err = self.run_program(*arguments, code=NOT_FINITE)
            self.assertRegex(err, r"gradients are not finite in epoch 1, step \d+ \(first the gradient of 0\.weight\); nothing was saved after it")
            step = int(err.split("step ")[1].split()[0])
            self.assert_checkpoints_are_finite("runs/test")
            self.assertEqual(len(self.checkpoints()), step - 1)
        self.run_program("test.yaml", "sampler.shuffle=false", "train.epochs=null", f"train.steps={step - 1}", "--run-dir", "runs/kept")
        stopped, kept = (self.run_program("inspect", self.checkpoints(run)[-1])[0].splitlines() for run in ("runs/test", "runs/kept"))
        numbers = [line for line in stopped if "float32" in line]
        self.assertEqual(len(numbers), 12)  # 4 parameters, 2 buffers of Adam
        self.assertEqual(numbers, [line for line in kept if "float32" in line])
