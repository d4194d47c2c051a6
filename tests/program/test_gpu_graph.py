"""Passes recorded as CUDA graphs, on the emulated GPU: the same bits as without, a device that cannot record continues without, and state
that crosses between host and GPU: faults, roll-backs, sharing of the optimizer, elastic shards.
ctest-labels: unit gpu-emulated"""
import json, os, random, shutil, unittest

import program

FOLDER = os.path.join(os.path.dirname(os.path.dirname(program.BINARY)), "emulation")
CONFIG = """
dataset: {path: datasets/wine.h5, inputs: x, targets: y, scale: standard, split: {test: 0.2, seed: 42}}
sampler: {batch_size: 32, global_batch_size: 64}
model: {layers: [{linear: {out: 16}}, relu, {dropout: 0.2}, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 4, accumulate: 2, clip_grad_norm: 1.0, ema: 0.9, log_every: 1}
checkpoint: {save_every: 2}
"""


@unittest.skipUnless(os.path.exists(FOLDER), "this build has no emulated GPU")
class Graph(program.Case):
    def train(self, *words, run="runs/test", fail="", code=program.OK, **more):
        env = {"DDPTRAIN_MODULE_DIR": FOLDER, "LD_LIBRARY_PATH": os.path.join(FOLDER, "driver"), "DDPTRAIN_EMULATED_GPUS": "2" if "--nproc" in words else "1"}
        env.update({"DDPTRAIN_EMULATED_FAIL": fail} if fail else {}, **more)
        return self.run_program("test.yaml", "train.device=cuda", *words, "--run-dir", run, env=env, code=code, timeout=300)

    given_files = {"test.yaml": CONFIG.replace(", global_batch_size: 64", "")}

    def test_the_same_bits(self):
        """Whole and short batches, within a group and at its end: each is a recording; dropout draws other numbers in each step."""
        self.train("train.cuda_graph=false", run="runs/plain")
        self.assertNotIn("not recorded", "".join(self.train()))
        self.assertEqual(self.sha(), self.sha("runs/plain"))
        self.assertEqual([e["loss"] for e in self.events("step")], [e["loss"] for e in self.events("step", "runs/plain")])
        self.assertEqual([e["val_loss"] for e in self.events("epoch")], [e["val_loss"] for e in self.events("epoch", "runs/plain")])

    def test_steps_that_are_logged(self):
        """Without clipping only these have a norm, so they are another recording than the steps between them."""
        self.write("test.yaml", self.read("test.yaml").replace("clip_grad_norm: 1.0, ", "").replace("log_every: 1", "log_every: 3").replace("epochs: 4", "epochs: 8"))
        for ranks in ("1", "2"):
            self.train("--nproc", ranks, "train.cuda_graph=false", run="runs/plain" + ranks)
            self.assertNotIn("not recorded", "".join(self.train("--nproc", ranks, run="runs/graph" + ranks)))
            plain, graph = ([(e["step"], e["loss"], e["grad_norm"]) for e in self.events("step", run + ranks)] for run in ("runs/plain", "runs/graph"))
            self.assertEqual([step for step, _, _ in graph], [3 * (i + 1) for i in range(len(graph))])
            self.assertGreater(len(graph), 2, "too few steps for a replay")
            self.assertEqual(graph, plain)
            self.assertEqual(self.sha("runs/graph" + ranks), self.sha("runs/plain" + ranks))

    def test_steps_that_are_computed_twice(self):
        """Between recorded steps, with their bits; a bit that is wrong in the memory of the GPU is found."""
        for more in ([], ["--nproc", "2"], ["train.precision=bfloat16"]):
            self.train(*more, run="runs/plain")
            for every in (1, 3):
                self.train(*more, f"train.check_compute={every}", "--fresh")
                self.assertEqual(self.sha(), self.sha("runs/plain"), (more, every))
            for part, value in (("weights", 0), ("activations", 32 * (16 + 16 + 3) - 1), ("gradients", 0)):  # the last one of the output
                flip = f"0:4:{32 * value + 29}:{part}"
                err = self.train(*more, "train.check_compute=1", "--fresh", DDPTRAIN_FAULT_FLIP=flip, code=program.DIVERGED)[1]
                self.assertRegex(err, r"differ on rank 0 \(host [^,]+, cuda:0 .*\): .* agrees with the second, so the first was wrong")
            shutil.rmtree(self.path("runs/plain"))

    def test_trace_of_a_step(self):
        """Everything of a step between recorded ones comes to the host."""
        import h5py
        for more in ([], ["--nproc", "2"], ["train.precision=bfloat16"]):
            self.train(*more, "--fresh", "checkpoint.keep=0", "checkpoint.save_every={steps: 2}")
            env = {"DDPTRAIN_MODULE_DIR": FOLDER, "LD_LIBRARY_PATH": os.path.join(FOLDER, "driver"), "DDPTRAIN_EMULATED_GPUS": "2"}
            out = self.run_program("replay", "runs/test", "--step", "4", env=env, timeout=300)[0]
            self.assertIn("equal to what runs/test has recorded of it: loss, lr, samples, grad_norm, state", out)
            with h5py.File(self.path("test-step-4.h5")) as f:
                hidden = f["activations/2"][()] @ f["parameters/before/3.weight"][()].T + f["parameters/before/3.bias"][()]
                self.assertLess(abs(hidden - f["activations/3"][()]).max(), 0.05 if "train.precision=bfloat16" in more else 1e-5)
                self.assertEqual(((f["activations/1"][()] > 0) * (f["activations/2"][()] == 0)).mean() > 0.02, True)

    def test_a_device_that_cannot_record(self):
        """That it is tried shows that graphs are used otherwise."""
        self.train(run="runs/good")
        for fault in ("capture:1", "graph:2"):
            said = "".join(self.train(fail=fault, run="runs/" + fault[:5]))
            self.assertIn("steps are not recorded as a CUDA graph", said)
            self.assertEqual(self.sha("runs/" + fault[:5]), self.sha("runs/good"))
        said = "".join(self.train("train.cuda_graph=false", fail="capture:1", run="runs/off"))
        self.assertNotIn("not recorded", said)

    def test_processes(self):
        self.train("--nproc", "2", "train.cuda_graph=false", run="runs/plain")
        self.train("--nproc", "2")
        self.assertEqual(self.sha(), self.sha("runs/plain"))
        self.train("--nproc", "2", "dist.zero_stage=1", run="runs/zero")
        self.assertEqual(self.losses("runs/zero"), self.losses())

    def losses(self, run="runs/test"):
        return [round(loss, 4) for loss in super().losses(run)]

    def test_shared_memory_averages_too(self):
        self.train("--nproc", "2", "dist.backend=gloo", run="runs/host")
        self.train("--nproc", "2")
        self.assertEqual(self.losses("runs/host"), self.losses())

    def test_a_flipped_bit_is_found(self):
        """The state crosses to the host and back for the fault, and for the hash that finds it."""
        _, err = self.train("--nproc", "2", "train.check_state_every=1", DDPTRAIN_FAULT_FLIP="1:3:70", code=program.DIVERGED)
        self.assertIn("the states of the ranks differ", err)

    def test_elastic(self):
        self.write("test.yaml", CONFIG.replace("batch_size: 32, ", "").replace("accumulate: 2, ", "") + "determinism: {mode: elastic, shards: 4}\n")
        self.train()
        self.train("--nproc", "2", run="runs/two")
        self.assertEqual(self.sha("runs/two"), self.sha())
        self.run_program("test.yaml", "--run-dir", "runs/cpu")
        self.assertEqual(self.losses("runs/cpu"), self.losses())

    def test_steps_that_are_not_finite(self):
        """Skipped, and rolled back to the newest checkpoint, as on the CPU."""
        self.write("test.yaml", CONFIG.replace(", global_batch_size: 64", "").replace("accumulate: 2, clip_grad_norm: 1.0, ", "") )
        for policy in ("skip", "rollback"):
            words = ["optimizer={type: sgd, lr: 1.0e+38}", "train.on_nonfinite=" + policy]
            _, own = self.train(*words, run="runs/" + policy, code=program.NOT_FINITE)
            _, cpu = self.run_program("test.yaml", *words, "--run-dir", "runs/cpu-" + policy, code=program.NOT_FINITE)
            self.assertEqual(self.reasons("runs/" + policy), self.reasons("runs/cpu-" + policy))
            self.assertIn("not finite", own)
            self.assertEqual(own.split("(first")[1:], cpu.split("(first")[1:])

    def counts(self, *words, **more):
        path = os.path.join(self.folder, "counts.json")
        self.train(*words, DDPTRAIN_EMULATED_COUNTS=path, **more)
        with open(path) as file:
            return json.load(file)

    def test_the_host_is_a_step_ahead(self):
        """More steps, with nothing due between them, are no more waits that leave the GPU idle, and no more memory."""
        config = CONFIG.replace("batch_size: 32, global_batch_size: 64", "batch_size: 2").replace("epochs: 4, accumulate: 2", "steps: 8")
        self.write("test.yaml", config.replace("save_every: 2", "save_every: {steps: 100}"))
        for attempt in range(20):  # on a loaded machine the host may be delayed while the GPU goes on
            few, many = (self.counts(f"train.steps={steps}", run=f"runs/{attempt}-{steps}") for steps in (8, 24))
            if many["idle_waits"] < few["idle_waits"] + 8:
                break
        waiting = self.counts("train.steps=24", "train.cuda_graph=false", run="runs/waiting")
        self.assertLess(many["idle_waits"], few["idle_waits"] + 8)
        self.assertGreaterEqual(waiting["idle_waits"], 24)
        self.assertEqual(many["allocations"], few["allocations"])

    def test_evaluations_are_recorded(self):
        """From the second one on; they give the same numbers (compared in test_the_same_bits)."""
        often, once = (self.counts(f"train.evaluate_every={every}", run=f"runs/{every}") for every in (1, 0))
        self.assertEqual(often["graphs"] - once["graphs"], 3 * 2)  # epochs, batches

    BAD = """
dataset: {path: bad.csv, inputs: [a, b], targets: y}
sampler: {batch_size: 4, shuffle: false}
model: {layers: [{linear: {out: 4}}, batch_norm, {linear: {out: 1}}]}
loss: LOSS
optimizer: {type: adam, lr: 0.001}
train: {epochs: 3, on_nonfinite: {policy: skip, max: 3}, log_every: 1, ema: 0.9}
"""

    def write_bad(self, loss, value):
        """Row 17 is what no float can take the loss of; its batch is number 4 of 10, and with two ranks the second's."""
        rows = [f"{i % 7},{i % 5},{value if i == 17 else i % 3 / 4}" for i in range(40)]
        self.write("bad.csv", "\n".join(["a,b,y", *rows]) + "\n")
        self.write("test.yaml", self.BAD.replace("LOSS", loss))

    def test_a_step_is_taken_back(self):
        """The loss is not finite while the next step is running; the run continues as if the host had waited, including running statistics."""
        for loss, value in (("mse", "3e38"), ("kl_div", "3e38")):
            self.write_bad(loss, value)
            for nproc in ("1", "2"):
                with self.subTest(loss, nproc=nproc):
                    words = ["--nproc", nproc] if nproc != "1" else []
                    ahead, waits = f"runs/ahead-{loss}-{nproc}", f"runs/waits-{loss}-{nproc}"
                    self.train(*words, run=ahead)
                    self.train(*words, "train.cuda_graph=false", run=waits)
                    self.assertEqual(len(self.reasons(ahead)), 3)
                    self.assertIn("17", self.reasons(ahead)[0])
                    self.assertEqual(self.reasons(ahead), self.reasons(waits))
                    self.assertEqual(self.sha(ahead), self.sha(waits))
                    self.assertEqual([(e["step"], e["loss"]) for e in self.events("step", ahead)], [(e["step"], e["loss"]) for e in self.events("step", waits)])

    def test_overflows_of_float16(self):
        """The first steps overflow, until the scale fits: running statistics stay as each of them leaves them."""
        self.write_bad("mse", "1")
        words = ["train.precision=float16", "train.grad_scaler={init_scale: 1.0e+12, growth_interval: 5}"]
        self.train(*words)
        self.train(*words, "train.cuda_graph=false", run="runs/waits")
        self.assertGreater(len(self.reasons("runs/test")), 2)
        self.assertEqual(self.reasons("runs/test"), self.reasons("runs/waits"))
        self.assertEqual(self.sha(), self.sha("runs/waits"))

    def write_rows(self, count, bad=-1):
        """Of small numbers; the inputs of one are too large."""
        draw = random.Random(3).gauss
        rows = [",".join("3e38" if i == bad and j < 2 else f"{draw(0, 1):.4f}" for j in range(3)) for i in range(count)]
        self.write("rows.csv", "\n".join(["a,b,y", *rows]) + "\n")

    def test_a_short_group_at_another_scale(self):
        """Half the scale with twice the weight is the same pass, and another update."""
        self.write_rows(20)
        self.write("test.yaml", """
dataset: {path: rows.csv, inputs: [a, b], targets: y}
sampler: {batch_size: 2, shuffle: false}
model: {layers: [{linear: {out: 4}}, relu, {linear: {out: 1}}]}
loss: mse
optimizer: {type: sgd, lr: 0.01}
train: {epochs: 8, precision: float16, grad_scaler: {init_scale: 64, growth_interval: 5}, accumulate: 4, accumulate_weighting: samples,
        clip_grad_norm: 1.0, log_every: 1}
""")
        self.train()
        self.train("train.cuda_graph=false", run="runs/plain")
        self.assertEqual([e["grad_norm"] for e in self.events("step")], [e["grad_norm"] for e in self.events("step", "runs/plain")])
        self.assertEqual(self.sha(), self.sha("runs/plain"))

    def test_ranks_that_search_apart(self):
        """To locate a value that is not finite the processes run passes that allocate memory: all record again, or none."""
        self.write_rows(64, bad=22)
        self.write("test.yaml", """
dataset: {path: rows.csv, inputs: [a, b], targets: y}
sampler: {batch_size: 4, shuffle: false}
model: {layers: [{linear: {out: 64}}, {gelu: {approximate: tanh}}, {linear: {out: 8}}, {linear: {out: 1}}]}
loss: mse
optimizer: {type: sgd, lr: 0.001}
train: {epochs: 4, precision: bfloat16, log_every: 1, on_nonfinite: skip}
dist: {timeout: 60}
""")
        self.train("--nproc", "2")
        self.train("--nproc", "2", "train.cuda_graph=false", run="runs/plain")
        self.assertEqual(len(self.reasons("runs/test")), 4)
        self.assertEqual(self.sha(), self.sha("runs/plain"))

    def test_a_layer_without_bias_and_without_an_algorithm(self):
        self.write("test.yaml", CONFIG.replace(", global_batch_size: 64", "").replace("[{linear: {out: 16}}, relu, {dropout: 0.2}",
                   "[{linear: {out: 16, bias: false}}, {gelu: {approximate: tanh}}, {linear: {out: 8, bias: false}}"))
        self.train("train.precision=bfloat16")
        self.train("train.precision=bfloat16", DDPTRAIN_EMULATED_EPILOGUES="0", run="runs/plain")
        for plan in range(1, 12):  # another one of the products in each run
            self.train("train.precision=bfloat16", "train.epochs=1", fail=f"heuristic:{plan}", run=f"runs/{plan}", code=None)
            self.assertIn(self.code, (program.OK, 70), plan)

    def reasons(self, run):
        return [e["reason"] for kind in ("skipped", "rollback") for e in self.events(kind, run)]
