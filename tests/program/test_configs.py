"""Every shipped config runs, from the project's folder layout, on one and two processes; check and the resolved config agree.
ctest-labels: dist"""
import glob, os, platform, subprocess, sys, unittest

import program

IS_SLOW = program.SANITIZER == "thread"  # twenty times: fewer rows, and the largest model is not evaluated
SHAPES = os.path.join(program.SOURCE, "datasets", "shapes")
IMAGES = 8 if IS_SLOW else 32

# What makes the long ones short and stands in for data that is not shipped.
OVERRIDES = {
    "series_forecast": ["train.epochs=2"],
    "char_gpt": ["train.epochs=null", "train.steps=1", "sampler.batch_size=1", "dataset.text.truncate=0.001", "model.layers.3.repeat.times=1",
                 "model.layers.5.linear.out=65", *(["train.evaluate_every=0"] if IS_SLOW else [])],
    "char_gpt_small": ["train.epochs=null", "train.steps=4", "dataset.text.truncate=0.01"],
    "llama_15m": ["train.epochs=null", "train.steps=1", "sampler.batch_size=1", "dataset.text.truncate=0.001", "model.layers.1.repeat.times=1",
                  "model.layers.3.linear.out=65", "schedule.warmup=0", *(["train.evaluate_every=0"] if IS_SLOW else [])],
    "wide_mlp": ["train.epochs=1", "dataset.synthetic.rows=512", "dataset.synthetic.inputs=64", "model.layers.0.linear.out=96",
                 "model.layers.2.linear.out=96"],
    "word_language_model": ["train.epochs=null", "train.steps=2", "model.layers.0.embedding.embedding_dim=8", "model.layers.2.lstm.hidden_size=8", "dataset.split.test=0.003"],
    "time_sequence_prediction": ["train.epochs=1", "optimizer.max_iter=2", "model.layers.0.lstm.hidden_size=3", "model.layers.1.lstm.hidden_size=3"],
    "bert_mini": ["train.epochs=1"],
    "image_folder": ["train.epochs=2"],
    "unet": ["train.epochs=2"],
    "mnist_inception": ["train.epochs=null", "train.steps=3", "dataset.split.test=0.02"],
    "autoencoder": ["train.epochs=null", "train.steps=3", "dataset.split.test=0.02"],
    **{name: ["train.epochs=null", "train.steps=3", "dataset.split.test=0.02"] for name in ("mnist", "mnist_rnn", "siamese_mnist", "vae")},
    "mnist_cnn": ["train.epochs=null", "train.steps=3", "dataset.split.test=0.02"],
    "cifar_resnet18": ["train.epochs=1", f"sampler.batch_size={IMAGES // 4}", "dataset.path=images.h5", "dataset.validation=images.h5"],
    "cifar_densenet": ["train.epochs=1", f"sampler.batch_size={IMAGES // 4}", "dataset.path=images.h5", "dataset.validation=images.h5",
                       *(f"model.layers.{i}.repeat.times=2" for i in (1, 3, 5)), "model.layers.2.sequential.layers.2.conv2d.out=24"],
    "mobilenet_v2": ["train.epochs=null", "train.steps=2", f"sampler.batch_size={IMAGES // 4}", "dataset.path=images.h5", "dataset.validation=images.h5", "schedule.warmup=0",
                     *(f"model.layers.0.sequential.layers.{i}.repeat.times=1" for i in (5, 7, 9, 11))],
    "resnet50": ["train.epochs=null", "train.steps=1", "train.evaluate_every=0", "sampler.batch_size=4", f"dataset.path={SHAPES}", f"dataset.validation={SHAPES}", "schedule.warmup=0",
                 "dataset.image.size=32", "dataset.image.resize=36", *(f"model.layers.{i}.sequential.layers.2.repeat.times=1" for i in (4, 5, 6, 7))],
    "vit_tiny": ["train.epochs=1", f"sampler.batch_size={IMAGES // 4}", "schedule.warmup=0", "dataset.path=images.h5", "dataset.validation=images.h5",
                 "model.layers.3.repeat.times=1"],
    "gpt2_124m": ["train.device=cpu", "train.precision=float32", "train.epochs=null", "train.steps=3", "train.accumulate=2", "schedule.warmup=1", "sampler.batch_size=2",
                  "dataset.path=tokens.bin", "dataset.validation=tokens.bin", "dataset.tokens.block_size=16", "dataset.tokens.vocabulary=65",
                  "model.layers.2.repeat.times=1", "model.layers.4.linear.out=65"],
}


# The same for sweeps.
SWEEPS = {
    "iris_folds": ["repeat={folds: 2}", "train.epochs=2"],
    "mnist_sweep": ["trials=2", "train.epochs=null", "train.steps=2", "dataset.split.test=0.02"],
    "wine_sweep": ["trials=4", "train.epochs=2"],
}


def is_sweep(file):
    with open(file) as f:
        return "\nmethod: " in f.read()


def write_data(folder):
    """What stands in for the images and the tokens that are not shipped."""
    import h5py
    import numpy as np
    rng = np.random.default_rng(0)
    with h5py.File(os.path.join(folder, "images.h5"), "w") as f:
        f["x"] = rng.integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)
        f["y"] = np.arange(IMAGES) % 10
    rng.integers(0, 65, 16 * 33, dtype=np.uint16).tofile(os.path.join(folder, "tokens.bin"))


class Shipped(program.Case):
    def setUp(self):
        super().setUp()
        write_data(self.folder)

    @unittest.skipIf(program.SANITIZER or platform.machine() != "x86_64", "recorded of other builds")
    def test_plans_are_those_that_are_recorded(self):
        """What check prints of each config; other rows of tests/states.txt take long (scripts/states.py)."""
        script = os.path.join(program.SOURCE, "scripts/states.py")
        p = subprocess.run([sys.executable, script, "--ddptrain", program.BINARY, "--only", "plans"], capture_output=True, text=True)
        self.assertEqual(p.returncode, 0, f"{p.stdout}{p.stderr}where a change is meant: scripts/states.py --only plans --write")

    def test_every_config(self):
        files = [f for f in sorted(glob.glob(os.path.join(program.SOURCE, "configs", "*.yaml"))) if not is_sweep(f)]
        self.assertGreaterEqual(len(files), 4)
        for file in files:
            name = os.path.splitext(os.path.basename(file))[0]
            for nproc in (1, 2):
                with self.subTest(name, nproc=nproc):
                    run = f"runs/{name}-{nproc}"
                    overrides = OVERRIDES.get(name, [])
                    self.run_program("check", file, *overrides, out="parameters in")
                    self.run_program(file, *overrides, "--nproc", nproc, "--run-dir", run)
                    if "train.epochs=null" not in overrides:
                        end = self.events("end", run)[-1]
                        self.assertEqual(end["epoch"], self.events("epoch", run)[-1]["epoch"] + 1)
                    self.assertTrue(self.checkpoints(run))
                    with open(self.path(run, "log.txt")) as f:
                        self.assertIn("done: ", f.read())
                    # the resolved config is a config, and means the same run
                    self.run_program(os.path.join(run, "config.yaml"), "--nproc", nproc, "--run-dir", run, err="complete")

    def test_every_sweep(self):
        files = [f for f in sorted(glob.glob(os.path.join(program.SOURCE, "configs", "*.yaml"))) if is_sweep(f)]
        self.assertEqual({os.path.splitext(os.path.basename(f))[0] for f in files}, set(SWEEPS))
        for file in files:
            name = os.path.splitext(os.path.basename(file))[0]
            with self.subTest(name):
                self.run_program("sweep", file, *SWEEPS[name], err="done: ")
                with open(self.path("sweeps", name, "trials.csv")) as f:
                    states = [line.split(",")[1] for line in f.readlines()[1:]]
                self.assertTrue(states)
                self.assertLessEqual(set(states), {"complete", "pruned"})
                self.run_program(file, code=program.USAGE, err=": this is a sweep of a config; ddptrain sweep ")

    def test_counts(self):
        """A noun after a count of 1 is singular."""
        config = os.path.join(program.SOURCE, "configs", "linear_regression.yaml")
        self.run_program("check", config, "train.epochs=1", "sampler.batch_size=800", out="epoch          1 batch, 1 step\nrun            1 epoch, 1 step\n")
        self.run_program(config, "train.epochs=null", "train.steps=1", "sampler.batch_size=1", "dataset.synthetic.rows=2", "dataset.split.test=0.5",
                         err=["1 training row, 1 validation row\n", "1 row per batch and process, 1 batch per epoch\n", "done: 1 epoch, 1 step in "])

    def test_gpt2_is_gpt2(self):
        """The parameters of GPT-2 124M, with its vocabulary padded to 50304, decayed where they are matrices; 524,288 tokens an update."""
        import numpy as np
        np.zeros(65 * 1024, dtype=np.uint16).tofile(self.path("tokens.bin"))
        out, _ = self.run_program("check", os.path.join(program.SOURCE, "configs", "gpt2_124m.yaml"), "train.device=cpu", "train.precision=float32",
                                  "dataset.path=tokens.bin", "dataset.validation=tokens.bin", code=None)
        if self.code != program.OK:  # 64 rows need a GPU, or 63 GiB of the host's memory
            self.assertEqual(self.code, program.USAGE)
            self.assertRegex(out, "not here +the run does not fit in memory: no memory for the activations")
        self.assertIn("124475904 parameters in 148 tensors", out)
        self.assertIn("lr 0.0006, weight_decay 0.1 for 124354560 parameters in 50 tensors", out)
        self.assertIn("64 rows per batch and process, 8 batches per step", out)

    def test_threads_agree(self):
        config = os.path.join(program.SOURCE, "configs", "mnist_cnn.yaml")
        losses = []
        for threads in ("1", "2", "3"):
            run = f"runs/threads-{threads}"
            self.run_program(config, "train.epochs=null", "train.steps=4", "dataset.split.test=0.02", "--run-dir", run,
                             env={"OMP_NUM_THREADS": threads})
            losses.append(self.losses(run))
        self.assert_close(losses[1], losses[0], 1e-4, "two threads")
        self.assert_close(losses[2], losses[0], 1e-4, "three threads")

    def test_wine_learns(self):
        self.run_program(os.path.join(program.SOURCE, "configs", "wine_mlp.yaml"))
        last = self.events("epoch", "runs/wine_mlp")[-1]
        self.assertEqual(last["val_accuracy"], 1.0)
        self.assertEqual(last["val_rows"], 36)
        self.assertEqual([os.path.basename(c) for c in self.checkpoints("runs/wine_mlp")], ["epoch-0050.h5", "epoch-0100.h5"])

    def test_a_small_gpt_learns_resumes_and_writes(self):
        config = os.path.join(program.SOURCE, "configs", "char_gpt_small.yaml")
        few = ["train.epochs=null", "dataset.text.truncate=0.01", "schedule.t_max=30", "schedule.warmup=5", "model.layers.2.repeat.times=1"]
        self.run_program(config, *few, "train.steps=30", "--run-dir", "runs/whole")
        self.run_program(config, *few, "train.steps=11", "--run-dir", "runs/part")
        self.run_program(config, *few, "train.steps=30", "--run-dir", "runs/part")
        self.assertEqual(self.sha("runs/part"), self.sha("runs/whole"))
        losses = self.losses("runs/whole")
        self.assertAlmostEqual(losses[0], 4.17, delta=0.15)  # about log of the vocabulary
        self.assertLess(losses[-1], losses[0] - 0.5)
        generate = ["generate", config, *few, "train.steps=30", "--run-dir", "runs/whole", "--prompt", "First "]
        text, _ = self.run_program(*generate, "--characters", 90, "--seed", 3)
        self.assertTrue(text.startswith("First "))
        self.assertEqual(len(text), len("First ") + 90 + 1)  # more than a block
        self.assertEqual(self.run_program(*generate, "--characters", 90, "--seed", 3)[0], text)
        self.assertNotEqual(self.run_program(*generate, "--characters", 90, "--seed", 4)[0], text)
        likeliest = self.run_program(*generate, "--characters", 20, "--temperature", 0)[0]
        self.assertEqual(self.run_program(*generate, "--characters", 20, "--top-k", 1, "--seed", 9)[0], likeliest)
        for arguments, sentence in ((["--prompt", ""], "--prompt needs a value"), (["--prompt", "\u20ac"], "--prompt: ")):
            self.run_program(*generate[:-2], *arguments, code=program.USAGE, err=sentence)
        wine = os.path.join(program.SOURCE, "configs", "wine_mlp.yaml")
        self.run_program(wine, "train.epochs=1", "--run-dir", "runs/wine")
        self.run_program("generate", wine, "--run-dir", "runs/wine", "--prompt", "x", code=program.USAGE, err="this checkpoint has no vocabulary")

    def test_toy_is_two_ranks_of_32(self):
        self.run_program(os.path.join(program.SOURCE, "configs", "toy_linear.yaml"), "--nproc", 2)
        steps = self.events("step", "runs/toy_linear")
        self.assertEqual(len(steps), 320)
        self.assertEqual({s["samples"] for s in steps}, {64})
