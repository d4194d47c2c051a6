"""The program on the emulated GPU (tests/emulation): what it refuses and how it fails; training, checkpoints, resume, eval, predict
and generate against the CPU's numbers; the same bits whatever the order of a block's threads and of the streams.
ctest-labels: unit gpu-emulated"""
import csv, json, os, re, shutil, subprocess, unittest

import program
from program import USAGE

BUG = 70
FOLDER = os.path.join(os.path.dirname(os.path.dirname(program.BINARY)), "emulation")

GPT = """
dataset: {path: datasets/tinyshakespeare.txt, text: {block_size: 12, stride: 12, truncate: 0.002}, split: {test: 0.25, shuffle: false}}
sampler: {batch_size: 8}
model:
  layers:
    - embedding: {embedding_dim: 16, name: wte}
    - positional_embedding: {name: wpe}
    - repeat:
        name: h
        times: 2
        layers:
          - residual: {layers: [layer_norm, {linear: {out: 48}}, {scaled_dot_product_attention: {heads: 2, causal: true}}, {linear: {out: 16}}]}
          - residual: {layers: [rms_norm, {linear: {out: 32}}, gelu, {dropout: 0.1}, {linear: {out: 16}}]}
    - layer_norm: {name: ln_f}
    - linear: {out: 53, bias: false, name: lm_head}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.003, decay: matrices}
train: {steps: 6, clip_grad_norm: 1.0}
checkpoint: {save_every: {steps: 3}}
"""

CNN = """
dataset: {path: datasets/mnist/t10k-images-idx3-ubyte.gz, divide: 255, split: {test: 0.005, seed: 42}}
sampler: {batch_size: 8, shuffle: true}
model:
  layers:
    - conv2d: {out: 4, kernel_size: 5, stride: 2}
    - batch_norm
    - relu
    - max_pool2d: 2
    - flatten
    - linear: {out: 10}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.05, momentum: 0.9}
train: {steps: 6}
checkpoint: {save_every: {steps: 3}}
"""

PADDED = """
dataset: {path: datasets/reviews.npz, split: {test: 0.02, seed: 42, stratify: true}}
sampler: {batch_size: 8}
model:
  layers:
    - embedding: {embedding_dim: 16, num_embeddings: 45, padding_idx: 0, name: memory}
    - positional_embedding
    - residual: [{attention: {heads: 2, dropout: 0.2}}]
    - residual: [{gru: 16}]
    - cross_attention: {heads: 2, dropout: 0.1, from: memory}
    - mean: 1
    - linear: {out: 2}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.003}
train: {steps: 6}
checkpoint: {save_every: {steps: 3}}
"""


@unittest.skipUnless(os.path.exists(FOLDER), "this build has no emulated GPU")
class Emulated(program.Case):
    config = program.WINE

    def setUp(self):
        super().setUp()
        self.write("test.yaml", self.config)

    def on_gpu(self, *words, code=program.OK, **emulated):
        env = {"DDPTRAIN_MODULE_DIR": FOLDER, "LD_LIBRARY_PATH": os.path.join(FOLDER, "driver"),
               **{name if name.isupper() else "DDPTRAIN_EMULATED_" + name.upper(): str(v) for name, v in emulated.items()}}
        return self.run_program(*words, code=code, env=env, timeout=300)

    def train(self, *words, run="runs/test", **more):
        return self.on_gpu("test.yaml", "train.device=cuda", *words, "--run-dir", run, **more)


class Expressions(Emulated):
    config = program.WINE.replace("loss: cross_entropy", "loss: {expression: 'logsumexp(y) - sum(where(index == t, y, 0)) + 0.01 * norm(y) ^ 1.5'}")

    def test_the_losses_are_those_of_the_cpu(self):
        layers = ("model.layers=[{linear: {out: 8, name: a}}, {expression: 'x * sigmoid(x) + 0.1 * mean(x)'}, {linear: {out: 8, name: b}}, "
                  "{expression: {from: [a, b], value: 'a * tanh(b) + softmax(b)'}}, {linear: 3}]")
        losses = {}
        for device in ("cpu", "cuda"):
            self.on_gpu("test.yaml", f"train.device={device}", layers, "--run-dir", device)
            losses[device] = [e["loss"] for e in self.events("step", device)]
        self.assert_close(losses["cuda"], losses["cpu"], 1e-6)
        _, err = self.train("loss={expression: 'sum(log(y))'}", run="nan", code=None)
        self.assertIn("first the loss in 'log' (character 5 of the expression) for rows ", err)


class Refusals(Emulated):
    def refused(self, *sentences, words=(), **emulated):
        for verb in ((), ("check",)):
            _, err = self.on_gpu(*verb, "test.yaml", "train.device=cuda", *words, code=USAGE, **emulated)
            for sentence in sentences:
                self.assertIn(sentence, err)
            self.assertFalse(os.path.exists(self.path("runs")))

    def test_no_gpu(self):
        self.refused("train.device: cuda needs a GPU, but the driver finds none", "use device: cpu", gpus=0)
        self.refused("CUDA_VISIBLE_DEVICES='' selects none", "unset it or select one", CUDA_VISIBLE_DEVICES="")

    def test_an_old_driver(self):
        self.refused("a driver for CUDA 13.0 or later, but the installed one is for 12.2: update it", driver=12020)

    def test_an_old_gpu(self):
        _, err = self.train(code=USAGE, capability=75)
        self.assertIn("needs compute capability 8.0 or higher, but cuda:0 (Emulated GPU) has 7.5", err)
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_more_processes_than_gpus(self):
        _, err = self.train("--nproc", 3, code=USAGE, gpus=2)
        self.assertIn("a GPU for each process: 3 processes on this host, 2 GPUs", err)
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_heads_that_are_too_large(self):
        self.write("test.yaml", GPT)
        self.refused("scaled_dot_product_attention: on cuda:0 (Emulated GPU): a head has at most 256 features, got 257", "train.device: cpu",
                     words=("model.layers=[{embedding: {embedding_dim: 771}}, {scaled_dot_product_attention: {heads: 1}}, {linear: {out: 53}}]",))

    def test_too_little_memory(self):
        _, err = self.train("model.layers.0.linear.out=300000", code=USAGE, mib=70)
        self.assertRegex(err, r"\d+ MiB of memory are needed, and cuda:0 \(Emulated GPU\) has \d+ MiB of 70 MiB free")
        self.assertFalse(os.path.exists(self.path("runs")))
        for device in ("cuda", "auto"):
            _, same = self.on_gpu("check", "test.yaml", f"train.device={device}", "model.layers.0.linear.out=300000", code=USAGE, mib=70)
            self.assertEqual(same, err)

    def test_too_little_memory_for_operators(self):
        """What the state and the batches leave is too little for a product's factors: check finds out."""
        for mib in range(36, 45):
            self.on_gpu("check", "test.yaml", mib=mib, code=None)
            self.assertIn(self.code, (USAGE, program.OK), mib)

    def test_memory_of_a_run_is_printed(self):
        """A wider layer is seen in it, and what is free is the GPU's."""
        def told(*words):
            out, _ = self.on_gpu("check", "test.yaml", "train.device=cuda", *words, mib=300)
            return re.search(r"GPU memory +([\d.]+) MiB of (\d+) MiB free on cuda:0 \(Emulated GPU\)", out).groups()
        small, large = told(), told("model.layers.0.linear.out=100000")
        self.assertEqual(small[1], large[1])
        self.assertTrue(200 < int(small[1]) <= 300, small)
        values = 100000 * (13 + 1 + 3) * 4 / 2**20  # twice for parameters and gradients, twice for Adam
        self.assertGreater(float(large[0]) - float(small[0]), 4 * values * 0.98)


    def test_operators_that_do_not_fit(self):
        """Arrays do, but not what operators work in: that is known before the run folder is made."""
        self.refused("the run does not fit in memory", "scratch memory: out of memory; use a smaller sampler.batch_size",
                     words=["model.layers.0.linear.out=40000", "train.precision=bfloat16"], mib=50)


class Memory(Emulated):
    def test_check_prints_the_peak(self):
        """What a run takes, within 5 %, operators and libraries included, of large and of small models."""
        small = ("WINE", program.WINE, ()), ("CNN", CNN, ()), ("GPT", GPT, ())
        wide = (("wide MLP", program.WINE, ["model.layers.0.linear.out=40000", "train.epochs=1"]), ("bfloat16", program.WINE, ["model.layers.0.linear.out=40000", "train.epochs=1", "train.precision=bfloat16"]),
                ("wide CNN", CNN, ["model.layers.0.conv2d.out=32", "sampler.batch_size=64", "train.steps=1"]))

        shared = (("elastic", program.WINE, ["determinism={mode: elastic, shards: 4}", "sampler={global_batch_size: 24}", "model.layers.0.linear.out=40000", "train.epochs=1"]),
                  *((f"ZeRO {stage}", program.WINE, [f"dist.zero_stage={stage}", "--nproc", "2", "model.layers.0.linear.out=40000", "train.epochs=1"])
                    for stage in (1, 3)))

        for name, config, words in (*small, *((*wide, *shared) if not program.SANITIZER else ())):
            with self.subTest(name):
                self.write("test.yaml", config)
                out, _ = self.on_gpu("check", "test.yaml", "train.device=cuda", *words, gpus=2)
                told = float(re.search(r"GPU memory +([\d.]+) MiB of ", out)[1])
                more = [] if "--nproc" in words else ["--nproc", "1"]
                self.train(*words, *more, run="runs/" + name.replace(" ", "-"), counts=self.path("counts.json"), gpus=2)
                with open(self.path("counts.json")) as file:
                    peak = json.load(file)["peak_bytes"] / 2**20
                self.assertLess(abs(told - peak), 0.05 * peak, (told, peak))


    def counted(self, *words, **more):
        self.on_gpu(*words, counts=self.path("counts.json"), **more)
        with open(self.path("counts.json")) as file:
            return json.load(file)

    def test_nothing_is_allocated_after_the_first_kernel(self):
        """With evaluations, saves, short last batches, each precision, accumulated and in shards, recorded or not; averages of the weights.
        Nor in eval, predict and generate."""
        wine = program.WINE.replace("batch_size: 32", "batch_size: 24")
        elastic = ["determinism={mode: elastic, shards: 4}", "sampler={global_batch_size: 24}"]
        for name, config, *words in (("mlp", wine, "train.epochs=3", "train.ema.decay=0.9"), ("recorded-not", wine, "train.epochs=3", "train.cuda_graph=false"),
                                     ("accumulated", wine, "train.epochs=3", "train.accumulate=2", "train.precision=bfloat16", "train.clip_grad_norm=1.0"),
                                     ("elastic", wine, "train.epochs=2", *elastic), ("gpt", GPT), ("gpt-16", GPT, "train.precision=bfloat16"),
                                     ("cnn", CNN), ("cnn-16", CNN, "train.precision=float16")):
            with self.subTest(name):
                self.write("test.yaml", config)
                counts = self.counted("test.yaml", "train.device=cuda", *words, "--run-dir", "runs/" + name)
                self.assertGreater(counts["allocations"], 10)
                self.assertEqual(counts["late_allocations"], 0)
        for verb, config, *words in (("eval", wine, "train.device=cuda", "--run-dir", "runs/mlp"),
                                     ("predict", CNN, "train.device=cuda", "--run-dir", "runs/cnn", "--out", "predictions.csv"),
                                     ("generate", GPT, "--run-dir", "runs/gpt", "--prompt", "the", "--characters", "3", "train.device=cuda")):
            with self.subTest(verb):
                self.write("test.yaml", config)
                counts = self.counted(verb, "test.yaml", *words)
                self.assertEqual(counts["late_allocations"], 0)

    def test_pinned_memory_is_bounded(self):
        """The state has 28 MiB, and goes through 16 MiB to its hash, to a checkpoint and back."""
        self.write("test.yaml", "seed: 1\ndataset: {path: datasets/wine.h5, inputs: x, targets: y, split: {test: 0.2, seed: 1}}\n"
                   "sampler: {batch_size: 4}\nmodel: {layers: [{linear: 800}, {linear: 3000}, {linear: 3}]}\nloss: cross_entropy\n"
                   "optimizer: {type: adam, lr: 0.001}\ntrain: {steps: 1, evaluate_every: 0}\n")
        counts = self.counted("test.yaml", "train.device=cuda", "--run-dir", "runs/wide")
        self.assertGreater(counts["peak_bytes"], 4 * 3000 * 800 * 4)
        self.assertLess(counts["pinned_bytes"], 17 << 20)
        self.on_gpu("test.yaml", "train.device=cuda", "train.steps=2", "--run-dir", "runs/wide")
        self.on_gpu("test.yaml", "train.device=cuda", "train.steps=2", "--run-dir", "runs/whole")
        self.assertEqual(self.sha("runs/wide"), self.sha("runs/whole"))

    def test_code_for_the_gpu(self):
        """Machine code of the same major version, or PTX; else it is refused before anything is written."""
        self.write("test.yaml", program.WINE)
        for capability, codes, expected in ((90, "80,90", "sm_90"), (89, "80,90", "sm_80"), (120, "80,90", "PTX of compute_90, compiled by the driver for sm_120"),
                                            (120, "80,90,100,120", "sm_120")):
            with self.subTest(capability=capability):
                more = {"DDPTRAIN_EMULATED_CAPABILITY": str(capability), "DDPTRAIN_EMULATED_CODE": codes}
                _, err = self.on_gpu("test.yaml", "train.device=cuda", "train.epochs=1", "--fresh", **more)
                self.assertIn(f"GPU code: {expected}\n", err)
                out, _ = self.on_gpu("check", "test.yaml", "train.device=cuda", **more)
                self.assertIn(f"GPU code       {expected}\n", out)
        for more, why in (({"DDPTRAIN_EMULATED_CAPABILITY": "80", "DDPTRAIN_EMULATED_CODE": "90"}, "no kernel image is available"),
                          ({"DDPTRAIN_EMULATED_FAIL": "code:1"}, "PTX was compiled with an unsupported toolchain")):
            with self.subTest(why):
                _, err = self.on_gpu("test.yaml", "train.device=cuda", "--run-dir", "runs/none", code=USAGE, **more)
                self.assertRegex(err, r"train.device: cuda needs code for compute capability \d.\d of cuda:0 \(Emulated GPU\): .*" + why)
                self.assertFalse(os.path.exists(self.path("runs/none")))

    def test_nor_with_two_processes(self):
        for name, *words in (("zero", "dist.zero_stage=1"), ("zero-host", "dist.zero_stage=1", "dist.backend=shm"),
                             ("elastic", "determinism={mode: elastic, shards: 4}", "sampler={global_batch_size: 24}")):
            with self.subTest(name):
                counts = self.counted("test.yaml", "train.device=cuda", "train.epochs=2", *words, "--nproc", "2", "--run-dir", "runs/" + name, gpus=2)
                self.assertGreater(counts["allocations"], 10)
                self.assertEqual(counts["late_allocations"], 0)


class NoCuDNN(Emulated):
    """A model with convolutions needs it, and no other."""
    config = CNN

    def refused(self, *sentences, binary=None, folder=FOLDER, words=(), code=USAGE, **environment):
        env = self.environment({"DDPTRAIN_MODULE_DIR": folder, "LD_LIBRARY_PATH": os.path.join(FOLDER, "driver"), **environment})
        p = subprocess.run([binary or program.BINARY, "test.yaml", "train.device=cuda", *words, "--run-dir", "runs/test"], cwd=self.folder,
                           env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300 * program.SLOW)
        self.assertEqual(p.returncode, code, p.stdout + p.stderr)
        for sentence in sentences:
            self.assertIn(sentence, p.stderr)
        self.assertEqual(os.path.exists(self.path("runs")), code == program.OK)

    def test_a_library_that_cannot_be_used(self):
        self.refused("train.device: cuda needs cuDNN for conv1d and conv2d: cuDNN: it cannot be used", "use device: cpu",
                     DDPTRAIN_EMULATED_FAIL="cudnn:1")

    def test_no_module(self):
        os.mkdir(self.path("bin"))
        binary = shutil.copy2(program.BINARY, self.path("bin", "ddptrain"))
        for name in ("ddptrain_cuda.so", "libemulation.so"):
            shutil.copy2(os.path.join(FOLDER, name), self.path("bin", name))
        self.refused("needs cuDNN for conv1d and conv2d: the module ddptrain_cudnn.so is not installed", "docs/gpu.md",
                     binary=binary, folder=self.path("bin"))
        self.write("test.yaml", program.WINE)
        self.refused(binary=binary, folder=self.path("bin"), words=("train.epochs=1",), code=program.OK)


class Failures(Emulated):
    def test_an_operator_that_fails_ends_the_run(self):
        """Before its step counts, with the operator's name; what was saved before stays and is continued."""
        self.train("train.epochs=5")
        saved = self.checkpoints()
        for fails, reason in (("kernel:30", "unspecified launch failure"), ("product:3", "CUBLAS_STATUS_EXECUTION_FAILED")):
            with self.subTest(fails):
                _, err = self.train(code=BUG, fail=fails)
                self.assertRegex(err, r"cuda:0 \(Emulated GPU\) failed in \w.*: " + reason)
                self.assertEqual(self.checkpoints(), saved)
        self.train()
        self.train(run="runs/whole")
        self.assertEqual(self.sha(), self.sha("runs/whole"))

    def test_a_device_that_cannot_be_opened(self):
        for fails in ("stream:1", "malloc:1", "blas:1"):
            with self.subTest(fails):
                self.assertIn("cuda", self.train(code=USAGE, fail=fails)[1])


class Wine(Emulated):
    tolerance = 1e-5

    def test_trains_like_the_cpu(self):
        out, err = self.train()
        self.assertIn("Emulated GPU", out + err)
        self.run_program("test.yaml", "train.device=cpu", "--run-dir", "runs/cpu")
        self.assert_close(self.losses(), self.losses("runs/cpu"), self.tolerance, "losses")
        for key in ("val_loss", "val_accuracy", "train_loss") if "contrastive" not in self.config else ("val_loss", "train_loss"):
            values = [[e[key] for e in self.events("epoch", run) if key in e] for run in ("runs/test", "runs/cpu")]
            self.assert_close(*values, self.tolerance, key)
        self.infers_like_the_cpu()

    def infers_like_the_cpu(self):
        """From the GPU's checkpoint, on both."""
        words = ("test.yaml", "--run-dir", "runs/test")
        gpu = json.loads(self.on_gpu("eval", *words, "train.device=cuda")[0])
        cpu = json.loads(self.run_program("eval", *words, "train.device=cpu")[0])
        self.assertEqual(gpu["rows"], cpu["rows"])
        self.assertAlmostEqual(gpu["loss"], cpu["loss"], delta=self.tolerance)
        self.on_gpu("predict", *words, "train.device=cuda", "--outputs", "--out", "gpu.csv")
        self.run_program("predict", *words, "train.device=cpu", "--outputs", "--out", "cpu.csv")
        tables = []
        for name in ("gpu.csv", "cpu.csv"):
            with open(self.path(name)) as f:
                tables.append([float(v) for row in list(csv.reader(f))[1:] for v in row])
        self.assertGreater(len(tables[0]), 50)
        self.assert_close(*tables, 100 * self.tolerance, "outputs")

    @unittest.skipIf(program.SANITIZER, "slow, and nothing new for a sanitizer")
    def test_resumes_to_the_same_bits(self):
        """Cut at a checkpoint or not, and in any order of threads and streams that a GPU may choose."""
        self.train()
        half = "train.steps=3" if "steps: 6" in self.config else "train.epochs=5"
        self.train(half, run="runs/part", threads="reverse")
        self.train(run="runs/part", threads="shuffled", streams="random")
        self.assertEqual(self.sha("runs/part"), self.sha())
        self.assertEqual(self.losses("runs/part"), self.losses())


def wine_with(layers, loss):
    """The targets are not among the columns of a loss without any."""
    text = program.WINE.replace("[{linear: {out: 64}}, relu, {linear: {out: 3}}]", layers).replace("loss: cross_entropy", loss)
    return text.replace("inputs: x, targets: y, ", "") if "contrastive" in loss else text


class Ctc(Wine):
    config = wine_with("[{linear: {out: 24}}, {reshape: [6, 4]}, log_softmax]", "loss: {type: ctc, blank: 3}")


class Contrastive(Wine):
    config = wine_with("[{linear: {out: 8}}]", "losses: [{type: contrastive, temperature: 0.5}]")


class Gpt(Wine):
    config = GPT
    tolerance = 1e-4

    def infers_like_the_cpu(self):
        words = ("generate", "test.yaml", "--run-dir", "runs/test", "--prompt", "the", "--characters", 30)
        for bold in (0, 1):
            gpu = self.on_gpu(*words, "--temperature", bold, "train.device=cuda")[0]
            self.assertEqual(gpu, self.run_program(*words, "--temperature", bold, "train.device=cpu")[0])
            self.assertGreater(len(gpu), 30)


class Padded(Wine):
    """Rows of different lengths, and dropout of attention."""
    config = PADDED
    tolerance = 1e-4


@unittest.skipUnless(os.path.exists(os.path.join(FOLDER, "ddptrain_cudnn.so")), "no convolutions yet")
class Cnn(Wine):
    config = CNN
    tolerance = 1e-4


@unittest.skipUnless(os.path.exists(os.path.join(FOLDER, "ddptrain_cudnn.so")), "no convolutions yet")
class Narrow(Emulated):
    """Convolutions in 16 bits, recorded or not; where cuDNN has none, in TF32. Activations between layers are float32 with 4 channels."""
    config = CNN.replace("    - flatten", "    - residual: [{conv2d: {out: 4, kernel_size: 3, padding: 1, bias: false}}, batch_norm, relu, "
                         "{conv2d: {out: 4, kernel_size: 3, padding: 1}}]\n    - relu\n    - flatten")

    def test_learns_the_same(self):
        self.train(run="runs/float32")
        wide = self.losses("runs/float32")
        for precision in ("bfloat16", "float16"):
            shas = []
            for name, words, emulated in ((precision, (), {}), (precision + "-plain", ("train.cuda_graph=false",), {}), (precision + "-tf32", (), {"half": 0})):
                run = f"runs/{name}"
                self.train(f"train.precision={precision}", *words, run=run, **emulated)
                shas.append(self.sha(run))
                for a, b in zip(self.losses(run), wide):
                    self.assertAlmostEqual(a, b, delta=0.03 * wide[0], msg=run)
            self.assertEqual(shas[0], shas[1])
            self.assertNotEqual(shas[0], shas[2])


@unittest.skipUnless(os.path.exists(os.path.join(FOLDER, "ddptrain_cudnn.so")), "no convolutions yet")
class Shapes(Emulated):
    """Layers that change shapes, products of matrices and volumes: the losses are the CPU's, also with 16-bit convolutions."""
    config = CNN[:CNN.index("    - conv2d")] + """
    - reshape: [1, 7, 8, 14]
    - conv3d: {out: 8, kernel_size: 3, padding: [1, 0, 0], stride: [2, 1, 1]}
    - relu
    - max_pool3d: {kernel_size: 2, ceil_mode: true}
    - conv3d: {out: 8, kernel_size: [2, 1, 1]}
    - mean: {dim: 2}
    - upsample: {scale_factor: 2, mode: bilinear}
    - pad: {padding: [1, 1, 0, 2], mode: reflect}
    - pixel_unshuffle: 2
    - conv2d: {out: 16, kernel_size: 1}
    - pixel_shuffle: 2
    - reshape: [4, 112]
    - linear: {out: 12, name: a}
    - chunk: {chunks: 2, dim: 2, names: [q, k]}
    - permute: {from: k, dims: [0, 2, 1], name: b}
    - matmul: {from: [q, b]}
    - max: 1
    - linear: {out: 10}
""" + CNN[CNN.index("loss:"):]

    def test_learns_the_same(self):
        self.run_program("test.yaml", "train.device=cpu", "--run-dir", "runs/cpu")
        self.train(run="runs/gpu")
        self.train("train.precision=bfloat16", run="runs/bfloat16")
        for a, b, c in zip(*(self.losses(run) for run in ("runs/cpu", "runs/gpu", "runs/bfloat16")), strict=True):
            self.assertAlmostEqual(a, b, delta=1e-4)
            self.assertAlmostEqual(a, c, delta=0.03 * a)


class NarrowImages(Narrow):
    """The same with 8 channels, whose activations between layers are 16 bits."""
    config = CNN.replace("out: 4", "out: 8").replace(
        "    - flatten", "    - residual: [{conv2d: {out: 8, kernel_size: 3, padding: 1, bias: false}}, batch_norm, relu, {conv2d: {out: 8, kernel_size: 3, padding: 1}}]\n"
        "    - relu\n    - conv2d: {out: 16, kernel_size: 3, padding: 1}\n    - relu\n    - group_norm: 4\n    - adaptive_avg_pool2d: 1\n    - flatten")

    def test_resumes_to_the_same_bits(self):
        words = ("train.precision=bfloat16",)
        self.train(*words)
        self.train(*words, "train.steps=3", run="runs/part", threads="reverse")
        self.train(*words, run="runs/part", threads="shuffled", streams="random")
        self.assertEqual(self.sha("runs/part"), self.sha())
        self.assertEqual(self.losses("runs/part"), self.losses())

    def test_evaluates_the_same(self):
        """In float16 and in float32, from one checkpoint."""
        self.train("train.precision=float16")
        words = ("eval", "test.yaml", "train.device=cuda", "--run-dir", "runs/test")
        narrow, wide = (json.loads(self.on_gpu(*words, f"train.precision={p}")[0])["loss"] for p in ("float16", "float32"))
        self.assertAlmostEqual(narrow, wide, delta=0.01 * wide)
        self.assertNotEqual(narrow, wide)

    def test_the_layer_that_is_not_finite_is_found(self):
        """Its output is 16 bits, in which a number of more than 65504 is not finite."""
        config = self.config.replace("    - group_norm: 4\n", "    - conv2d: {out: 16, kernel_size: 3, name: large}\n    - group_norm: 4\n")
        self.write("test.yaml", config.replace("model:\n", "model:\n  init: [{constant: {value: 1.0e+4, match: ['large.weight']}}]\n"))
        _, err = self.train("train.precision=float16", code=program.NOT_FINITE)
        self.assertRegex(err, r"the loss is not finite in epoch 1, step 1 \(first the output of layer large \(conv2d\) for rows")


class Overflow(Emulated):
    """An overflow of float16 between two layers is located, also in the output that only the loss reads."""
    config = GPT.replace("{out: 53, bias: false, name: lm_head}", "{out: 56, name: lm_head}").replace("{linear: {out: 48}}", "{linear: {out: 48, name: qkv}}")

    def test_the_layer_is_named(self):
        for i, (bias, layer) in enumerate((("lm_head.bias", "lm_head (linear)"), ("h.1.*.qkv.bias", "qkv (linear)"))):
            _, err = self.train("train.precision=float16", "model.init=[{constant: {value: 7.0e+4, match: '%s'}}]" % bias, run=f"runs/{i}", code=program.NOT_FINITE)
            self.assertRegex(err, r"the output of layer \S*" + re.escape(layer) + " for rows")


class Gelu(Emulated):
    """GELU by tanh between two linear layers: part of their products in 16 bits, and only there."""
    config = GPT.replace("gelu, {dropout: 0.1}", "{gelu: {approximate: tanh}}")

    def test_learns_the_same(self):
        self.train("train.precision=float32", run="runs/float32", fail="gelu:1")
        wide = self.losses("runs/float32")
        for precision in ("bfloat16", "float16"):
            for name, words, emulated in ((precision, (), {}), (precision + "-apart", (), {"epilogues": 0})):
                run = f"runs/{name}"
                self.train(f"train.precision={precision}", *words, run=run, **emulated)
                self.assert_close(self.losses(run), wide, 0.01, run)
            self.assert_close(self.losses(f"runs/{precision}-apart"), self.losses(f"runs/{precision}"), 2e-3, precision)
            self.train(f"train.precision={precision}", "train.cuda_graph=false", run="runs/plain-" + precision)
            self.assertEqual(self.sha("runs/plain-" + precision), self.sha("runs/" + precision))
        words = ("eval", "test.yaml", "train.device=cuda", "train.precision=bfloat16", "--run-dir", "runs/bfloat16")
        self.assertEqual(self.on_gpu(*words)[0], self.on_gpu(*words)[0])
        _, err = self.on_gpu(*words, fail="gelu:1", code=BUG)
        self.assertIn("a product of cuBLASLt: CUBLAS_STATUS_EXECUTION_FAILED", err)

    def test_where_it_is(self):
        bf16 = "train.precision=bfloat16"
        _, err = self.train(bf16, run="runs/one", fail="gelu:1", code=BUG)
        self.assertIn("a product of cuBLASLt: CUBLAS_STATUS_EXECUTION_FAILED", err)
        mlp = "[{linear: {out: %d}}, %s, {linear: {out: 16}}]"
        for i, (hidden, between) in enumerate(((32, "gelu"), (20, "{gelu: {approximate: tanh}}"), (32, "{gelu: {approximate: tanh}}, {dropout: 0}"))):
            self.write("test.yaml", self.config.replace("[rms_norm, {linear: {out: 32}}, {gelu: {approximate: tanh}}, {linear: {out: 16}}]", mlp % (hidden, between)))
            self.train(bf16, "train.steps=2", run=f"runs/none{i}", fail="gelu:1")


@unittest.skipUnless(os.path.exists(os.path.join(FOLDER, "ddptrain_nccl.so")), "no NCCL yet")
class TwoGpus(Emulated):
    def test_two_gpus_train_like_two_processes_on_the_cpu(self):
        out, err = self.train("--nproc", 2, gpus=2)
        self.assertIn("NCCL", out + err)
        self.run_program("test.yaml", "train.device=cpu", "--nproc", 2, "--run-dir", "runs/cpu")
        self.assert_close(self.losses(), self.losses("runs/cpu"), 1e-5, "losses")
        self.train("--nproc", 2, run="runs/again", gpus=2, streams="random", threads="reverse")
        self.assertEqual(self.sha("runs/again"), self.sha())

    def test_all_collectives(self):
        out, _ = self.on_gpu("comm", "--nproc", 2, "--backend", "nccl", "--sizes", "1K", gpus=2)
        self.assertIn("all correct", out)
