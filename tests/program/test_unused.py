"""Layers whose output no layer takes: an error that names their parameters, or with dist.find_unused_parameters a branch whose
parameters keep their values while the others train as without it, in PyTorch's DDP alike. ctest-labels: dist"""
import json
import struct

import h5py
import numpy as np

import program

DATA = """
name: test
dataset: {path: datasets/wine.h5, scale: standard, split: {test: 0.2, seed: 42}}
loss: cross_entropy
train: {epochs: 2}
model:
"""
BRANCHES = """
  layers:
    - linear: {out: 8, name: h}
    - relu: {name: r}
    - linear: {out: 5, name: aux}
    - batch_norm: {name: aux_norm}
    - relu
    - linear: {out: 2, name: aux_end}
    - linear: {out: 6, from: r, name: middle}
    - flatten: {name: aux_view}
    - linear: {out: 8, from: middle, name: shared}
    - linear: {out: 6, name: aux_before}
    - linear: {out: 8, share: shared, name: aux_shared}
    - linear: {out: 3, from: shared, name: head}
"""
ALONE = """
  init_from: {file: initial.safetensors, skip: ["aux**"]}
  layers:
    - linear: {out: 8, name: h}
    - relu: {name: r}
    - linear: {out: 6, name: middle}
    - linear: {out: 8, name: shared}
    - linear: {out: 3, name: head}
"""
UNUSED = ["aux.weight", "aux.bias", "aux_norm.weight", "aux_norm.bias", "aux_end.weight", "aux_end.bias", "aux_before.weight", "aux_before.bias"]


class Unused(program.Case):
    def setUp(self):
        super().setUp()
        self.write("test.yaml", "dist: {find_unused_parameters: true}" + DATA + BRANCHES)
        self.write("alone.yaml", DATA + ALONE)
        self.run_program("export", "test.yaml", "--checkpoint", "initial", "--out", "initial.safetensors")

    def weights(self, run):
        """The parameters and statistics of the newest checkpoint, and the names of its optimizer state."""
        with h5py.File(self.checkpoints(run)[-1]) as f:
            states = []
            f["optimizer"].visititems(lambda name, item: states.append(name) if isinstance(item, h5py.Dataset) else None)
            return {name: f["model"][name][()] for name in f["model"]}, sorted(states)

    def test_an_error_that_names_them(self):
        for command in ((), ("check",)):
            _, err = self.run_program(*command, "test.yaml", "dist.find_unused_parameters=false", code=64)
            self.assertRegex(err, r"test.yaml:14:7: model.layers.5.linear: no layer takes its output, so these parameters are not trained: " + ", ".join(UNUSED) +
                             "; dist.find_unused_parameters: true accepts this\n")
            self.assertEqual(err.count("\n"), 1, err)
        self.run_program("check", "alone.yaml")

    def test_the_others_train_as_alone(self):
        cases = [("adamw", (), ()), ("sgd", ("optimizer={type: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.5}",), ()), ("clip", ("train.clip_grad_norm=0.1", "train.ema.decay=0.9"), ()),
                 ("ranks", (), ("--nproc", 2)), ("zero", ("dist.zero_stage=1",), ("--nproc", 2)), ("zero2", ("dist.zero_stage=2",), ("--nproc", 2)), ("backward", ("optimizer.in_backward=true",), ()),
                 ("elastic", ("determinism={mode: elastic, shards: 4}", "sampler.global_batch_size=20", "sampler.batch_size=null", "sampler.drop_last_batch=true"), ("--nproc", 3))]
        for name, keys, options in cases:
            keys = (*([] if name == "sgd" else ["optimizer={type: adamw, lr: 0.01, weight_decay: 0.5}"]), *keys)
            with self.subTest(name):
                self.run_program("test.yaml", *keys, *options, "--run-dir", f"runs/{name}")
                self.run_program("alone.yaml", *keys, *options, "--run-dir", f"runs/{name}-alone")
                self.assertEqual(self.losses(f"runs/{name}"), self.losses(f"runs/{name}-alone"))
                (trained, states), (alone, alone_states) = self.weights(f"runs/{name}"), self.weights(f"runs/{name}-alone")
                for parameter, value in alone.items():
                    np.testing.assert_array_equal(trained[parameter], value)
                self.assertEqual(states, alone_states)
                initial = self.tensors("initial.safetensors")
                for parameter in UNUSED:
                    np.testing.assert_array_equal(trained[parameter], initial[parameter])

    def tensors(self, file):
        with open(self.path(file), "rb") as f:
            size = struct.unpack("<Q", f.read(8))[0]
            header, data = json.loads(f.read(size)), f.read()
        return {n: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], "<f4").reshape(t["shape"]) for n, t in header.items() if n != "__metadata__"}

    def test_log_check_and_exports(self):
        self.run_program("check", "test.yaml", out=f"\nunused         {', '.join(UNUSED)} keep their values\n")
        self.run_program("test.yaml")
        self.assertEqual(self.read("runs/test/log.txt").count(f"unused, so they keep their values: {', '.join(UNUSED)}\n"), 1)
        self.assertIn("all equal", self.run_program("audit", "runs/test", "--all")[0])
        for kind in ("onnx", "c", "pytorch"):
            self.run_program("export", "runs/test", "--format", kind, "--out", f"model.{kind}")
        self.assertIn("DistributedDataParallel(model, find_unused_parameters=True)", self.read("model.pytorch"))
        self.run_program("predict", "runs/test", "--out", "out.csv")

    def test_nothing_to_train(self):
        self.write("none.yaml", "dist: {find_unused_parameters: true}" + DATA + "  freeze: ['b.*']\n  layers: [{linear: {out: 3, name: a}}, {linear: {out: 3, from: input, name: b}}]\n")
        self.run_program("none.yaml", code=64, err="every parameter is frozen or not used, so there is nothing to train")
