"""Updates on the emulated GPU: one kernel however many groups, no other pass over the gradients or the weights, and 16-bit weights that are
as a run has them that rounds them at every start. ctest-labels: unit gpu-emulated"""
import json, os, unittest

import program

FOLDER = os.path.join(os.path.dirname(os.path.dirname(program.BINARY)), "emulation")
CONFIG = """
dataset: {path: datasets/wine.h5, inputs: x, targets: y, scale: standard, split: {test: 0.2, seed: 42}}
sampler: {batch_size: 16}
model: {layers: [{linear: {out: 16}}, relu, {linear: {out: 8}}, {layer_norm: {}}, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.01, weight_decay: 0.1}
train: {steps: 24, accumulate: 2, clip_grad_norm: 1.0, precision: bfloat16, log_every: 1}
checkpoint: {save_every: {steps: 100}}
"""


@unittest.skipUnless(os.path.exists(FOLDER), "this build has no emulated GPU")
class Update(program.Case):
    given_files = {"test.yaml": CONFIG}

    def run_gpu(self, *words, gpus=1, **more):
        env = {"DDPTRAIN_MODULE_DIR": FOLDER, "LD_LIBRARY_PATH": os.path.join(FOLDER, "driver"), "DDPTRAIN_EMULATED_GPUS": str(gpus), **more}
        return self.run_program(*words, env=env, timeout=300)

    def train(self, *words, run="runs/test", **more):
        return self.run_gpu("test.yaml", "train.device=cuda", *words, "--run-dir", run, **more)

    def counts(self, *words, **more):
        path = os.path.join(self.folder, "counts.json")
        self.train(*words, DDPTRAIN_EMULATED_COUNTS=path, **more)
        with open(path) as file:
            return json.load(file)

    def launches(self, counts, word):
        return sum(count for name, count in counts["kernels"].items() if word in name)

    def test_one_kernel_whatever_the_groups(self):
        groups = "groups: [{match: '0.*', lr_factor: 3}, {match: '*.bias', weight_decay: 0.5}]"
        for graph in ("true", "false"):
            for name, words in (("adamw", "type: adamw, decay: matrices"), ("sgd", f"type: sgd, momentum: 0.9, {groups}"), ("adam", f"type: adam, {groups}"),
                                ("adagrad", f"type: adagrad, {groups}"), ("rmsprop", f"type: rmsprop, {groups}"), ("lion", f"type: lion, {groups}"), ("nadam", f"type: nadam, {groups}"),
                                ("radam", f"type: radam, {groups}"), ("adamax", f"type: adamax, {groups}"), ("adadelta", f"type: adadelta, {groups}"),
                                ("asgd", f"type: asgd, {groups}")):
                with self.subTest(name, graph=graph):
                    counts = self.counts(f"optimizer={{{words}, lr: 0.001, weight_decay: 0.1}}", "model.freeze=['2.bias']", f"train.cuda_graph={graph}", "train.steps=6", run=f"runs/{name}-{graph}")
                    self.assertEqual(self.launches(counts, "_update"), 6)

    def test_no_other_pass(self):
        """Weights are rounded and gradients zeroed where a run begins; not again in each step, or in each micro-batch."""
        for graph in ("true", "false"):
            few, many = (self.counts(f"train.steps={steps}", "train.evaluate_every=0", f"train.cuda_graph={graph}", run=f"runs/{graph}-{steps}") for steps in (8, 24))
            self.assertEqual(self.launches(many, "_update") - self.launches(few, "_update"), 16)
            self.assertEqual(self.launches(many, "rounding"), self.launches(few, "rounding"))
            self.assertEqual(many["memsets"], few["memsets"])
            self.assertGreaterEqual(self.launches(few, "rounding"), 1)

    def test_operations_of_a_small_step(self):
        """Kernels, products and copies of a step of the wine MLP (docs/gpu-internals.md), with and without a norm."""
        self.write("test.yaml", program.WINE.replace("epochs: 10", "steps: 20, evaluate_every: 0, log_every: 50").replace("save_every: 5", "save_every: {steps: 1000}"))
        for clip, kernels in (("0", 8), ("1", 9)):
            few, many = (self.counts(f"train.steps={steps}", f"train.clip_grad_norm={clip}", run=f"runs/{clip}-{steps}") for steps in (20, 40))
            self.assertEqual(self.launches(many, "") - self.launches(few, ""), kernels * 20)
            self.assertEqual([many[key] - few[key] for key in ("products", "copies", "memsets", "graphs")], [5 * 20, 2 * 20, 0, 20])

    def test_copies_of_branches(self):
        """Three layers read the output of a norm, which stays float32, with other operators between them, and share
        the gradient of their sum. Norms write the 16-bit copies of both. What is left to be rounded in each step: the
        inputs, the gradients of the last layer and of the relu, and values for the gradients of the weights (the
        inputs, three times the output of the first norm, once that of the second)."""
        layers = ["{linear: 16}", "{layer_norm: {name: n}}", "{residual: {layers: [{linear: 16}], name: r}}",
                  "{linear: {out: 16, name: a, from: n}}", "{linear: {out: 16, name: b, from: n}}",
                  "{add: {from: [a, b, r, n]}}", "layer_norm", "{residual: [{linear: 16}, relu]}", "layer_norm",
                  "{linear: 3}"]
        words = [f"model.layers=[{', '.join(layers)}]", "train.accumulate=1", "train.evaluate_every=0"]
        for graph in ("true", "false"):
            more = (*words, f"train.cuda_graph={graph}")
            few, many = (self.counts(*more, f"train.steps={n}", run=f"runs/{graph}-{n}") for n in (10, 20))
            self.assertEqual(self.launches(many, "columns_job") - self.launches(few, "columns_job"), 10 * 8)
        self.train(*words, "train.steps=20", "train.device=cpu", "train.precision=float32", run="runs/cpu")
        found, expected = (self.events("step", run)[-1]["loss"] for run in ("runs/true-20", "runs/cpu"))
        self.assertAlmostEqual(found, expected, delta=0.02)

    def test_recorded_or_not(self):
        """Checkpoints, evaluations of averaged weights and resumes: the 16-bit copy is created in different ways."""
        words = ["optimizer.decay=matrices", "model.freeze=['2.bias']", "checkpoint.save_every={steps: 5}", "train.ema=0.9", "train.evaluate_every=1"]
        self.train(*words)
        self.train(*words, "train.cuda_graph=false", run="runs/plain")
        self.assertEqual(self.sha(), self.sha("runs/plain"))
        self.train(*words, "train.steps=11", run="runs/parts")
        self.train(*words, run="runs/parts")
        self.assertEqual(self.sha("runs/parts"), self.sha())

    def test_evaluations_of_averages(self):
        """Evaluations use the averaged weights, and training continues with the weights."""
        words = ["train.ema=0.9", "train.accumulate=1"]
        self.train(*words, "train.evaluate_every=1")
        self.train(*words, "train.evaluate_every=0", run="runs/once")
        self.assertEqual(*([e["loss"] for e in self.events("step", run)] for run in ("runs/test", "runs/once")))
        self.assertEqual(*(self.events("epoch", run)[-1]["val_loss"] for run in ("runs/test", "runs/once")))
        found = json.loads(self.run_gpu("eval", "test.yaml", "train.device=cuda", *words, "--run-dir", "runs/test")[0])
        self.assertEqual(found["loss"], self.events("epoch")[-1]["val_loss"])

    def test_shared_optimizer(self):
        """What other ranks have updated comes by NCCL or through the host, and is rounded then."""
        for nproc, backend in ((2, "auto"), (2, "gloo"), (3, "gloo")):
            words = ["--nproc", str(nproc), f"dist.backend={backend}"]
            runs = [f"runs/{kind}-{backend}-{nproc}" for kind in ("whole", "shared")]
            self.train(*words, gpus=nproc, run=runs[0])
            self.train(*words, "dist.zero_stage=1", gpus=nproc, run=runs[1])
            self.assertEqual(*([e["loss"] for e in self.events("step", run)] for run in runs))
            self.assertEqual(*(self.sha(run) for run in runs))

    def test_steps_that_are_not_applied(self):
        """float16 that overflows, and rows that no float can take the loss of: what comes after begins with gradients of zero."""
        rows = [f"{i % 7},{i % 5},{'3e38' if i == 17 else i % 3 / 4}" for i in range(40)]
        self.write("bad.csv", "\n".join(["a,b,y", *rows]) + "\n")
        bad = ["dataset={path: bad.csv, inputs: [a, b], targets: y}", "sampler={batch_size: 4, shuffle: false}", "loss=mse", "train.accumulate=1",
               "model.layers=[{linear: {out: 8}}, {linear: {out: 1}}]", "train.on_nonfinite=skip"]
        for name, words in (("bfloat16", bad), ("float16", ["train.precision=float16", "train.grad_scaler={init_scale: 1.0e+12, growth_interval: 5}"])):
            self.train(*words, run=f"runs/{name}")
            self.train(*words, "train.cuda_graph=false", run=f"runs/{name}-waits")
            self.assertGreater(len(self.events("skipped", f"runs/{name}")), 1)
            self.assertEqual(self.sha(f"runs/{name}"), self.sha(f"runs/{name}-waits"))
