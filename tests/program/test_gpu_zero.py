"""dist.zero_stage on emulated GPUs with NCCL (tests/emulation): the shards of gradients (2) and parameters (3) are in the memory of
GPUs. ctest-labels: dist gpu-emulated"""
import json, os, shutil, signal, unittest

import program
import test_gpu_ranks, test_zero
from program import PEER, USAGE
from test_gpu_emulated import CNN, GPT

RANDOM = {"DDPTRAIN_EMULATED_STREAMS": "random"}
FEW = ("train.epochs=null", "train.steps=6")
SMALL = ("dist.first_bucket_mb=0.0005", "dist.bucket_cap_mb=0.002")


class Zero(test_gpu_ranks.Ranks):
    def setUp(self):
        super().setUp()
        self.write("test.yaml", test_zero.CONFIG)

    def on(self, stage, *words, gpus=2, run=None, **more):
        run = run or f"runs/{stage}"
        return self.train("--nproc", gpus, f"dist.zero_stage={stage}", *words, "--fresh", gpus=gpus, run=run, **more)

    def assert_same(self, run, other):
        self.assertEqual(self.losses(run), self.losses(other), run)
        self.assertEqual(self.sha(run), self.sha(other), run)
        norms = [[s["grad_norm"] for s in self.events("step", of)] for of in (run, other)]
        self.assert_close(*norms, 1e-6 * max(norms[0]), "norms")


@unittest.skipIf(program.SANITIZER, "slow; the class Parts runs the same code")
class Bits(Zero):
    def test_same_numbers(self):
        """With any order of streams: of frozen parameters, running statistics, groups, an average, a clipped norm."""
        for gpus, optimizer in ((2, None), (3, "{type: sgd, lr: 0.1, momentum: 0.9}"), (2, "{type: adagrad, lr: 0.1, initial_accumulator_value: 0.3}")):
            words = [f"optimizer={optimizer}"] if optimizer else []
            for stage in (0, 1, 2, 3):
                _, err = self.on(stage, *words, gpus=gpus, **RANDOM)
                self.assertIn("NCCL", err)
            for stage in (1, 2, 3):
                self.assert_same(f"runs/{stage}", "runs/0")

    def test_sizes_of_buckets(self):
        """One bucket, and one for each parameter; a share of nothing."""
        for words in (("dist.bucket_cap_mb=25", "dist.first_bucket_mb=1"), ("dist.bucket_cap_mb=0.000001", "dist.first_bucket_mb=0.000001"),
                      ("model.layers=[{linear: 2}, {linear: 5}]", "model.freeze=[]")):
            for stage in (0, 2, 3):
                self.on(stage, *words, "train.epochs=1", **RANDOM)
            for stage in (2, 3):
                self.assert_same(f"runs/{stage}", "runs/0")

    def test_micro_batches(self):
        """Each is averaged, as on CPUs; a recording is one of the first, or of a later one."""
        words = ["train.accumulate=3", "train.epochs=2"]
        for run, stage, *more in (("2", 2), ("3", 3), ("plain2", 2, "train.cuda_graph=false"), ("plain3", 3, "train.cuda_graph=false"), ("1", 1)):
            self.on(stage, *words, *more, run=f"runs/{run}", **RANDOM)
        for run in ("3", "plain2", "plain3"):
            self.assert_same(f"runs/{run}", "runs/2")
        self.run_program("test.yaml", "train.device=cpu", "--nproc", 2, *words, "dist.zero_stage=2", "--run-dir", "runs/cpu")
        for other in ("runs/1", "runs/cpu"):
            self.assert_close(self.losses("runs/2"), self.losses(other), 1e-5, other)

    def test_compressed(self):
        """Rounded to bfloat16 before they are sent, also where averages are added up."""
        for words in ((), ("train.accumulate=2",)):
            for stage in (1, 2, 3):
                self.on(stage, "dist.gradient_compression=bfloat16", "train.epochs=1", *words)
            self.assert_same("runs/3", "runs/2")
            if not words:
                self.assert_same("runs/2", "runs/1")

    def test_16_bits(self):
        """Weights are rounded when they are gathered: products, fused GELU, convolutions; scaled losses that overflow."""
        overflow = "train.grad_scaler={init_scale: 1.0e+12, growth_interval: 5}"
        gelu = GPT.replace("rms_norm, {linear: {out: 32}}, gelu,", "rms_norm, {linear: {out: 32}}, {gelu: {approximate: tanh}},")
        for name, text, *words in (("gpt", gelu, "train.precision=bfloat16", *FEW), ("recomputed", gelu, "train.precision=bfloat16", "model.layers.2.repeat.recompute=true", *FEW),
                                   ("cnn", CNN, "train.precision=bfloat16", *FEW), ("float16", test_zero.CONFIG, "train.precision=float16", overflow)):
            with self.subTest(name):
                self.write("test.yaml", text)
                for stage in (0, 2, 3):
                    self.on(stage, *words, *SMALL)
                for stage in (2, 3):
                    self.assert_same(f"runs/{stage}", "runs/0")

    def test_shared_parameters(self):
        """A tied weight, and a layer that is used three times."""
        self.write("test.yaml", test_zero.TIED)
        for stage in (0, 2, 3):
            self.on(stage, *FEW, "dataset.split.test=0.02", gpus=3, **RANDOM)
        for stage in (2, 3):
            self.assert_same(f"runs/{stage}", "runs/0")

    def test_ranks_without_rows(self):
        """In the last batch of an epoch, and of an evaluation."""
        words = ("sampler={batch_size: 59, uneven: true}", "model.layers.3=tanh", "train.epochs=2")
        for stage in (0, 2, 3):
            self.on(stage, *words, gpus=3, **RANDOM)
        for stage in (2, 3):
            self.assert_same(f"runs/{stage}", "runs/0")

    def test_not_finite(self):
        """Skipped, rolled back and explained as with the other stages."""
        self.write("bad.csv", "a,b,y\n" + "".join(f"{i % 7},{3e38 if i == 17 else i % 5},{i % 3}\n" for i in range(50)))
        self.write("test.yaml", "dataset: {path: bad.csv, inputs: [a, b], targets: y}\nsampler: {batch_size: 5}\n"
                   "model: {layers: [{linear: {out: 64}}, relu, {linear: {out: 1}}]}\nloss: mse\ntrain: {epochs: 3}\n")
        for policy in ("skip", "rollback"):
            for stage in (1, 2, 3):
                self.assertIn("not finite", self.on(stage, f"train.on_nonfinite={policy}")[1])
            for stage in (2, 3):
                self.assert_same(f"runs/{stage}", "runs/1")


class Parts(Zero):
    def test_recorded(self):
        """Nothing is allocated after the first kernel, and the bits are those of a run without recordings."""
        path = self.path("counts.json")
        for stage in (2, 3):
            for recorded in ("true", "false"):
                self.on(stage, f"train.cuda_graph={recorded}", "train.epochs=2", run=f"runs/{recorded}", DDPTRAIN_EMULATED_COUNTS=path)
                with open(path) as file:
                    counts = json.load(file)
                self.assertEqual(counts["late_allocations"], 0)
                self.assertEqual(counts["graphs"] > 4, recorded == "true")
            self.assert_same("runs/true", "runs/false")

    def test_files(self):
        """From and for other stages, numbers of ranks and the CPU."""
        words = ("checkpoint.save_every={epochs: 1}", "checkpoint.best=val_loss", "train.ema=0.8")
        for stage in (0, 3):
            self.on(stage, *words, "train.epochs=2", "checkpoint.keep=0")
        self.run_program("test.yaml", *words, "train.epochs=1", "train.device=cpu", "--run-dir", "runs/cpu")
        for source in ("0", "3"):
            self.run_program("test.yaml", *words, "train.epochs=2", "train.device=cpu", "--run-dir", f"runs/from{source}",
                             f"checkpoint.resume=runs/{source}/checkpoints/epoch-0001.h5")
        self.assertEqual(self.sha("runs/from3"), self.sha("runs/from0"))
        for stage in (0, 2, 3):
            self.on(stage, *words, "train.epochs=2", "checkpoint.resume=runs/cpu/checkpoints/epoch-0001.h5", run=f"runs/cpu{stage}")
        self.assertEqual(self.sha("runs/cpu2"), self.sha("runs/cpu0"))
        self.assertEqual(self.sha("runs/cpu3"), self.sha("runs/cpu0"))
        for name in ("0", "3"):
            self.on(3, *words, "train.epochs=1", f"model.init_from=runs/{name}/checkpoints/epoch-0001.h5", run=f"runs/weights{name}")
        self.assertEqual(self.sha("runs/weights3"), self.sha("runs/weights0"))

    def test_parts_of_a_run(self):
        """Comparisons of the ranks, lines of the ledger, a step that is repeated with a trace, the test rows."""
        words = ("train.check_state_every=1", "train.ledger={every: 1}", "train.epochs=1", "checkpoint.best=train_loss", "checkpoint.save_every={steps: 4}",
                 "dataset.split={validation: 0.2, test: 0.2, seed: 1}")
        for stage in (0, 2, 3):
            self.on(stage, *words)
        lines = [[json.loads(line) for line in self.read(f"runs/{stage}/ledger.jsonl").splitlines()] for stage in (0, 2, 3)]
        kept = [[{k: v for k, v in line.items() if k not in ("chain", "grad_norm")} for line in ledger if line["event"] in ("step", "checkpoint")]
                for ledger in lines]
        self.assertGreater(len(kept[0]), 7)
        for stage, own in zip((2, 3), kept[1:]):
            self.assertEqual(own, kept[0])
            self.assert_same(f"runs/{stage}", "runs/0")
        for stage in (2, 3):
            out, err = self.run_program("replay", f"runs/{stage}", "--step", "5", "--out", f"{stage}.h5", env=self.emulated(2), timeout=300)
            self.assertIn("equal to what", out + err)

    def test_memory(self):
        """Of a rank: its shares of parameters, gradients and state, two buckets of the first two, and what every stage needs."""
        width, layers, world = 128, 12, 4
        self.write("test.yaml", test_zero.equal_layers(width, layers) + "dist: {bucket_cap_mb: 0.0625, first_bucket_mb: 0.0625}\n")
        path, peaks = self.path("counts.json"), {}
        for stage in (0, 1, 2, 3):
            self.on(stage, "train.epochs=1", gpus=world, DDPTRAIN_EMULATED_COUNTS=path)
            with open(path) as file:
                peaks[stage] = json.load(file)["peak_bytes"]
            self.assertEqual(self.sha(f"runs/{stage}"), self.sha("runs/0"))
        bucket = (width * width + width) * 4
        whole = layers * bucket + (16 * width + width + 4 * width + 4) * 4
        rest = peaks[0] - 3 * whole  # activations, workspace
        slack = 16 << 10
        self.assertLess(peaks[1], rest + 2 * whole + whole / world + slack, peaks)
        self.assertLess(peaks[2], rest + whole + 2 * whole / world + 2 * bucket + slack, peaks)
        self.assertLess(peaks[3], rest + 3 * whole / world + 4 * bucket + slack, peaks)

    def test_a_killed_rank(self):
        """Also while the other gathers in an evaluation: it does not wait for dist.timeout."""
        for words, event in (((), "step"), (("train.evaluate_every=1", "dataset.split={test: 0.9, seed: 1}", "dataset.synthetic.rows=4000"), "epoch")):
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            p = self.start("test.yaml", "train.device=cuda", "dist.zero_stage=3", "train.epochs=100000", "--nproc", 2, *words, env=self.emulated(2))
            self.wait_for(lambda: os.path.exists(self.path("runs/test/metrics.jsonl")) and len(self.events(event)) > 1, what=event)
            ranks = self.children(p)
            os.kill(ranks[1], signal.SIGKILL)
            _, err = p.communicate(timeout=program.BEFORE_TIMEOUT)
            self.assertEqual(p.returncode, PEER, err)
            self.assertRegex(err, rf"rank 1 \(host .*, pid {ranks[1]}\) was killed by SIGKILL")

    def test_without_nccl(self):
        """It is refused before a run folder exists."""
        for stage in (2, 3):
            for backend in ("shm", "gloo"):
                err = self.on(stage, f"dist.backend={backend}", code=USAGE)[1]
                self.assertIn(f"dist.zero_stage: {stage} cannot be combined with dist.backend: {backend}: on GPUs it needs NCCL", err)
                err = self.run_program("test.yaml", f"dist.zero_stage={stage}", f"dist.backend={backend}", "--nproc", 2, code=USAGE, env=self.emulated(2))[1]
                self.assertIn("train.device: auto, which is the GPU here: on GPUs it needs NCCL", err)
                self.assertTrue(err.startswith(f"ddptrain: argument 'dist.zero_stage={stage}': dist.zero_stage: "), err)
        folder = self.path("modules")
        os.mkdir(folder)
        for name in ("ddptrain_cuda.so", "libemulation.so"):
            os.symlink(os.path.join(test_gpu_ranks.FOLDER, name), os.path.join(folder, name))
        os.mkdir(self.path("bin"))  # so that the program's own folder has none either
        copied = shutil.copy2(program.BINARY, self.path("bin", "ddptrain"))
        p = self.start("test.yaml", "train.device=cuda", "dist.zero_stage=3", "--nproc", 2, env={**self.emulated(2), "DDPTRAIN_MODULE_DIR": folder}, binary=copied)
        err = p.communicate(timeout=300 * program.SLOW)[1]
        self.assertEqual(p.returncode, USAGE, err)
        self.assertIn("dist.zero_stage: 3 needs NCCL on GPUs, to average and gather in their memory: ", err)
        self.assertFalse(os.path.exists(self.path("runs")))
