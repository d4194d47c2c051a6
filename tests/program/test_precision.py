"""train.precision: bfloat16 learns what float32 learns, resumes bit for bit and serves every command; where the processor cannot, it is refused."""
import os

import program

SMALL = ["train.epochs=null", "train.steps=12", "dataset.text.truncate=0.01", "schedule.t_max=12", "schedule.warmup=5",
         "model.layers.2.repeat.times=1", "checkpoint.save_every={steps: 5}"]
BF16 = "train.precision=bfloat16"
MLP = """
dataset: {format: synthetic, synthetic: {kind: linear, rows: 128, inputs: 40, targets: 3}, split: {test: 0.25}}
sampler: {batch_size: 32}
model: {layers: [{linear: 101}, relu, {linear: {out: 64, bias: false}}, relu, {linear: 3}]}
loss: mse
optimizer: {type: adam, lr: 0.003}
train: {epochs: 20}
"""


class Precision(program.Case):
    def setUp(self):
        super().setUp()
        with open(self.path("mlp.yaml"), "w") as f:
            f.write("name: mlp\n" + MLP)
        with open("/proc/cpuinfo") as f:
            flags = f.read()
        self.can = "avx512_bf16" in flags
        self.has_amx = "amx_bf16" in flags
        self.gpt = os.path.join(program.SOURCE, "configs", "char_gpt_small.yaml")

    def test_refused_where_the_processor_cannot(self):
        out, err = self.run_program("check", "mlp.yaml", BF16, code=0 if self.can else program.USAGE)
        if not self.can:
            self.assertIn("bfloat16 needs a processor with the instructions AVX-512 BF16", err)
            self.run_program("mlp.yaml", BF16, code=program.USAGE, err="use float32")

    def test_settings_without_effect_are_reported(self):
        """Once for each key, by `check` and at the start of a run; a resolved config says nothing new."""
        lines = {"train.grad_scaler={init_scale: 1024}": "train.grad_scaler is for precision: float16; the loss is not scaled",
                 "train.cuda_graph=true": "train.cuda_graph is for GPUs",
                 "train.early_stop={min_delta: 0.1}": "train.early_stop needs metric or patience; no run ends early",
                 "dataset.columns={x: {missing: mean}}": "dataset.columns, which format synthetic does not use (for netcdf, parquet, csv, sqlite)",
                 "dataset.missing=['?']": "dataset.missing, which format synthetic does not use (for netcdf, parquet, csv, sqlite)",
                 "dataset.csv={delimiter: ';'}": "dataset.csv, which format synthetic does not use (for csv, images)",
                 "dataset.image={size: [8, 8]}": "dataset.image, which format synthetic does not use (for images)",
                 "dataset.text={block_size: 8}": "dataset.text, which format synthetic does not use (for text)",
                 "dataset.tokens={block_size: 8}": "dataset.tokens, which format synthetic does not use (for tokens)",
                 "dataset.inputs=x": "dataset.inputs, which format synthetic does not use (for hdf5, netcdf, parquet, csv, sqlite, npy, npz)"}
        if not self.has_amx:
            lines["train.float32_matmul_precision=high"] = ("train.float32_matmul_precision: high is for GPUs and for CPUs with AMX, which "
                                                            "this one does not have")
        for i, words in enumerate([[], *[[key] for key in lines], list(lines)]):
            expected = [lines[key] for key in words]
            out, _ = self.run_program("check", "mlp.yaml", *words)
            self.run_program("mlp.yaml", "train.epochs=1", *words, "--run-dir", f"runs/{i}")
            with open(self.path(f"runs/{i}/log.txt")) as f:
                log = f.read()
            self.assertEqual(out.count("\nignored  "), len(expected), out)
            self.assertEqual(log.count("ignored: "), len(expected), log)
            for line in expected:
                self.assertIn(f"ignored        {line}\n", out)
                self.assertIn(f"ignored: {line}\n", log)
        out, _ = self.run_program("check", "runs/0/config.yaml", "train.metrics=[mae]")
        self.assertNotIn("ignored", out)
        out, _ = self.run_program("check", "mlp.yaml", "train.metrics=[mae]", "dataset.split.test=0")
        self.assertIn("ignored        train.metrics are measured on validation rows, and there are none (dataset.split or "
                      "dataset.validation)\n", out)

    def test_mlp_learns_the_same(self):
        if not self.can:
            return
        self.run_program("mlp.yaml", "--run-dir", "runs/f32")
        self.run_program("mlp.yaml", BF16, "--run-dir", "runs/bf16")
        with open(self.path("runs/bf16/log.txt")) as f:
            self.assertRegex(f.read(), r"cpu \((amx|avx512), bfloat16\)")
        one, other = self.losses("runs/f32"), self.losses("runs/bf16")
        self.assertNotEqual(one, other)
        for a, b in zip(one, other):
            self.assertAlmostEqual(a, b, delta=0.02 * one[0])
        self.assertLess(other[-1], 0.3 * other[0])
        f32, bf16 = (self.run_program("eval", "mlp.yaml", *more)[0] for more in (["--run-dir", "runs/f32"], [BF16, "--run-dir", "runs/bf16"]))
        self.assertTrue(f32 and bf16)
        self.run_program("predict", "mlp.yaml", BF16, "--run-dir", "runs/bf16", "--out", "out.csv")
        with open(self.path("out.csv")) as f:
            self.assertGreaterEqual(len(f.readlines()), 32)
        _, err = self.run_program("mlp.yaml", "train.epochs=21", "--run-dir", "runs/bf16", code=program.USAGE)
        self.assertIn("precision", err)  # a run keeps its precision

    def test_products_of_two_bfloat16(self):
        """With AMX train.float32_matmul_precision: high differs from float32 by little more than float32 from exact numbers."""
        if not self.has_amx:
            print("skipped: this CPU does not have AMX")
            return
        high = "train.float32_matmul_precision=high"
        out, _ = self.run_program("check", "mlp.yaml", high)
        self.assertIn("float32, factors of products as two bfloat16", out)
        self.assertNotIn("ignored", out)
        self.run_program("check", "mlp.yaml", high, BF16, out="ignored        train.float32_matmul_precision: high is for precision: float32")
        self.run_program("mlp.yaml", "--run-dir", "runs/f32")
        self.run_program("mlp.yaml", high, "--run-dir", "runs/high")
        for run, words in ("f32", "cpu (avx512, amx)"), ("high", "cpu (avx512, factors of two bfloat16 with amx)"):
            with open(self.path(f"runs/{run}/log.txt")) as f:
                self.assertIn(words, f.read())
        one, other = self.losses("runs/f32"), self.losses("runs/high")
        self.assertNotEqual(one, other)
        for a, b in zip(one, other):
            self.assertAlmostEqual(a, b, delta=1e-4 * one[0])
        self.run_program("mlp.yaml", high, "train.epochs=10", "--run-dir", "runs/part")
        self.run_program("mlp.yaml", high, "--run-dir", "runs/part")
        self.assertEqual(self.sha("runs/part"), self.sha("runs/high"))

    def test_predictions_do_not_depend_on_the_rows_beside_them(self):
        """Training in float32 may multiply many rows with AMX; `predict` has the same bits with any size of a batch."""
        words = ["dataset.synthetic={kind: linear, rows: 512, inputs: 128, targets: 3}", "model={layers: [{linear: 256}, relu, {linear: 3}]}"]
        self.run_program("mlp.yaml", *words, "train.epochs=1", "--run-dir", "runs/wide")
        outputs = []
        for size in 10, 128:
            self.run_program("predict", "runs/wide", f"sampler.batch_size={size}", "--out", f"{size}.csv")
            with open(self.path(f"{size}.csv")) as f:
                outputs.append(f.read())
        self.assertGreater(len(outputs[0].splitlines()), 100)
        self.assertEqual(*outputs)

    def test_gpt_learns_resumes_and_writes(self):
        if not self.can:
            return
        self.run_program(self.gpt, *SMALL, "--run-dir", "runs/f32")
        self.run_program(self.gpt, *SMALL, BF16, "--run-dir", "runs/whole")
        self.run_program(self.gpt, *SMALL, BF16, "train.steps=7", "--run-dir", "runs/part")
        self.run_program(self.gpt, *SMALL, BF16, "--run-dir", "runs/part")
        self.assertEqual(self.sha("runs/part"), self.sha("runs/whole"))
        one, other = self.losses("runs/f32"), self.losses("runs/whole")
        self.assertNotEqual(one, other)
        for a, b in zip(one, other):
            self.assertAlmostEqual(a, b, delta=0.01)
        generate = ["generate", self.gpt, *SMALL, BF16, "--run-dir", "runs/whole", "--prompt", "First ", "--characters", 20]
        text, _ = self.run_program(*generate)
        self.assertTrue(text.startswith("First "))
        self.assertEqual(len(text), len("First ") + 20 + 1)
