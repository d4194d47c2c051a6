"""`replay` repeats a step of a run: its file has the numbers of that step, which NumPy computes again here, and nothing in the run
folder changes. ctest-labels: dist"""
import glob, hashlib, json, os

import h5py
import numpy as np

import program
from program import DATA, DIVERGED, USAGE

WINE = program.WINE.replace("epochs: 10", "epochs: 6, ledger: {every: 4}").replace("save_every: 5", "save_every: {steps: 5}, keep: 0")
CONV = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 30, inputs: 75, classes: 4, seed: 3}}
sampler: {batch_size: 6}
model:
  layers:
    - reshape: [3, 5, 5]
    - conv2d: {out: 6, kernel_size: 3, padding: 1, name: first}
    - relu
    - residual: {name: block, layers: [{conv2d: {out: 6, kernel_size: 3, padding: 1, name: second}}]}
    - relu
    - flatten
    - dropout: 0.3
    - linear: {out: 4, name: last}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 3}
"""


class Replay(program.Case):
    def setUp(self):
        super().setUp()
        with open(os.path.join(program.SOURCE, "configs", "wine_views.yaml")) as f:
            self.write("wine_views.yaml", f.read().replace("name: wine_views", "name: test"))

    def train(self, *arguments, config=WINE, code=program.OK):
        self.write("test.yaml", config)
        self.run_program("test.yaml", "--fresh", "--quiet", *arguments, code=code)

    def hashes(self, run="runs/test"):
        found = {}
        for folder, _, files in os.walk(self.path(run)):
            for name in files:
                with open(os.path.join(folder, name), "rb") as f:
                    found[name] = hashlib.sha256(f.read()).hexdigest()
        return found

    def replay(self, step, *arguments, code=program.OK):
        """(what it prints, the open file); the run is as before, and no folder is left."""
        before = self.hashes()
        out, err = self.run_program("replay", "runs/test", "--step", step, *arguments, code=code)
        self.assertEqual(self.hashes(), before)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("ddptrain-")], [])
        return out, err if code else h5py.File(self.path(f"test-step-{step}.h5"))

    def model_of_step(self, f):
        """The wine MLP of NumPy in float64 against the file."""
        p = {name: f["parameters/before/" + name][()].astype(float) for name in ("0.weight", "0.bias", "2.weight", "2.bias")}
        x, y = f["rows/inputs"][()].astype(float), f["rows/targets"][()]
        hidden = np.maximum(x @ p["0.weight"].T + p["0.bias"], 0)
        output = hidden @ p["2.weight"].T + p["2.bias"]
        probabilities, rows = program.softmax(output), np.arange(len(y))
        np.testing.assert_allclose(f["activations/1"], hidden, atol=2e-6)
        np.testing.assert_allclose(f["activations/2"], output, atol=2e-6)
        self.assertAlmostEqual(f["loss"][()], -np.log(probabilities[rows, y]).mean(), places=6)
        d = probabilities
        d[rows, y] -= 1
        d /= len(y)
        dhidden = d @ p["2.weight"] * (hidden > 0)
        expected = {"0.weight": dhidden.T @ x, "0.bias": dhidden.sum(0), "2.weight": d.T @ hidden, "2.bias": d.sum(0)}
        for name, gradient in expected.items():
            np.testing.assert_allclose(f["gradients/" + name], gradient, atol=3e-7, err_msg=name)
            np.testing.assert_array_equal(f["update/" + name], f["parameters/after/" + name][()] - f["parameters/before/" + name][()])
        norm = np.sqrt(sum((f["gradients/" + name][()].astype(float) ** 2).sum() for name in expected))
        self.assertAlmostEqual(f["gradient_norm"][()], norm, places=5)

    def assert_is_checkpoint(self, f, name):
        with h5py.File(self.path("runs/test/checkpoints", name)) as c:
            for parameter in c["model"]:
                np.testing.assert_array_equal(f["parameters/after/" + parameter], c["model"][parameter], parameter)

    def test_numbers_of_the_step(self):
        self.train()
        out, f = self.replay(20)
        self.assertIn("from runs/test/checkpoints/", out)
        self.assertIn("equal to what runs/test has recorded of it: loss, lr, samples, grad_norm, rows, parameters, state", out)
        self.assertEqual((f["step"][()], f["epoch"][()]), (20, 4))
        self.assertIn("linear", f["config"][()].decode())
        self.assertNotIn("0", f["activations"])  # computed together with its relu
        self.model_of_step(f)
        self.assert_is_checkpoint(f, "epoch-0004.h5")
        with h5py.File(self.path("datasets/wine.h5")) as data, h5py.File(self.path("runs/test/checkpoints/epoch-0004.h5")) as c:
            x, y, rows = data["x"][()], data["y"][()], f["rows/number"][()]
            scaled = (x[rows] - c["scaler/mean"][()]) / c["scaler/scale"][()]
            np.testing.assert_allclose(f["rows/inputs"], scaled, atol=1e-5)
            np.testing.assert_array_equal(f["rows/targets"][()].ravel(), y[rows].ravel())
        # Adam from the checkpoint before: bias-corrected moments of the gradients since
        moments = [np.zeros((64, 13)), np.zeros((64, 13))]
        for step in range(1, 4):
            _, g = self.replay(step)
            gradient = g["gradients/0.weight"][()].astype(float)
            moments = [0.9 * moments[0] + 0.1 * gradient, 0.999 * moments[1] + 0.001 * gradient ** 2]
            expected = -0.001 * (moments[0] / (1 - 0.9 ** step)) / (np.sqrt(moments[1] / (1 - 0.999 ** step)) + 1e-8)
            np.testing.assert_allclose(g["update/0.weight"], expected, atol=2e-6)

    def test_every_way_of_averaging(self):
        elastic = ("sampler.batch_size=null", "sampler.global_batch_size=32", "determinism={mode: elastic, shards: 4}")
        for way, rows, again in ((("--nproc", 2), 64, ()), (("--nproc", 3, "dist.zero_stage=1"), 96, ()), (("--nproc", 2, "train.accumulate=2"), 128, ()),
                                 (("--nproc", 2, "train.accumulate=2", "dist.zero_stage=2"), 128, ()), (("--nproc", 3, "train.accumulate=2", "dist.zero_stage=3", "sampler.batch_size=12"), 72, ()),
                                 (("optimizer.in_backward=true",), 14, ()), (("--nproc", 2, *elastic), 14, ("--nproc", 3)), (("--nproc", 3, *elastic), 14, ())):
            with self.subTest(way=way):
                self.train("checkpoint.save_every={steps: 5}", "train.ledger={every: 1}", *way)
                out, f = self.replay(5, *again)
                self.assertIn("parameters", out)
                self.model_of_step(f)
                self.assert_is_checkpoint(f, "step-00000005.h5" if os.path.exists(self.path("runs/test/checkpoints/step-00000005.h5")) else "epoch-0001.h5")
                self.assertEqual(f["rows/number"].shape, (rows,))
                self.assertEqual(len(set(f["rows/number"][()])), rows)
                if "train.accumulate=2" in way:
                    self.assertEqual(set(zip(f["rows/rank"], f["rows/micro_batch"])), {(r, m) for r in range(way[1]) for m in (0, 1)})

    def test_states_of_a_recurrent_layer(self):
        """Its last states beside its output."""
        self.train("checkpoint.save_every={epochs: 1}", "model.layers=[{reshape: [13, 1]}, {lstm: {hidden_size: 2, last_state: [h, c], name: e}}, {gru: {hidden_size: 2, initial_state: h, output: last, name: g}}, "
                   "{flatten: {from: c, name: cell}}, {concat: {from: g}}, {linear: 3}]")
        _, f = self.replay(2)
        rows = len(f["rows/number"])
        self.assertEqual({name: f["activations"][name].shape[1:] for name in f["activations"] if name[0] == "e"}, {"e": (30,), "e.output": (13, 2), "e.h": (1, 2), "e.c": (1, 2)})
        np.testing.assert_array_equal(f["activations/e.h"][()], f["activations/e.output"][()][:, -1:])
        np.testing.assert_array_equal(f["activations/e"][()], np.concatenate([f["activations/" + name][()].reshape(rows, -1) for name in ("e.output", "e.h", "e.c")], 1))

    def test_layers_of_an_image(self):
        """Channels first, whatever the order in memory; the names of what is computed together."""
        self.train("checkpoint.save_every={epochs: 1}", config=CONV)
        _, f = self.replay(8)
        self.assertEqual(set(f["activations"]), {"0", "2", "block.second", "4", "5", "6", "last"})
        w, b = f["parameters/before/first.weight"][()].astype(float), f["parameters/before/first.bias"][()]
        image = np.pad(f["activations/0"][()].astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
        first = np.maximum(np.einsum("nchwij,ocij->nohw", windows, w) + b[:, None, None], 0)
        np.testing.assert_allclose(f["activations/2"], first, atol=1e-5)
        summed = np.maximum(first + f["activations/block.second"][()], 0)
        np.testing.assert_allclose(f["activations/4"], summed, atol=1e-5)
        np.testing.assert_allclose(f["activations/5"], summed.reshape(6, -1), atol=1e-5)
        last = f["activations/6"][()] @ f["parameters/before/last.weight"][()].T + f["parameters/before/last.bias"][()]
        np.testing.assert_allclose(f["activations/last"], last, atol=1e-5)
        share = (f["activations/6"][()] == 0).sum() / (summed == 0).sum()
        self.assertGreater(share, 1.01, "dropout of a training pass")

    def test_texts(self):
        self.write("text.txt", "the cat sat on the mat. " * 40)
        self.train("checkpoint.save_every={steps: 3}", config="""
dataset: {path: text.txt, text: {block_size: 8}}
sampler: {batch_size: 4}
model: {layers: [{embedding: {embedding_dim: 6, name: wte}}, {residual: {layers: [layer_norm, {linear: 6}]}}, {linear: {out: 13, name: head}}]}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.01}
train: {steps: 10}
""")
        _, f = self.replay(5)
        np.testing.assert_array_equal(f["activations/wte"], f["parameters/before/wte.weight"][()][f["rows/inputs"][()]])
        total = f["activations/wte"][()] + f["activations/1.1"][()]
        np.testing.assert_array_equal(f["activations/1.1.sum"], total)
        self.assertEqual(f["rows/targets"].shape, (4, 8))

    def test_ranks_without_rows_and_losses_without_targets(self):
        self.train("sampler.uneven=true", "sampler.batch_size=47", "--nproc", 3)
        _, f = self.replay(4)  # the 142nd row
        self.assertEqual((f["rows/number"].shape, f["rows/rank"][()].tolist(), f["activations/1"].shape), ((1,), [0], (1, 64)))
        self.train("sampler.uneven=true", "sampler.batch_size=47", "--nproc", 3, "train.accumulate=2", "dist.zero_stage=2", "train.ledger={every: 1}")
        out, f = self.replay(2)
        self.assertIn("equal to what runs/test has recorded of it: loss, lr, samples, grad_norm, rows, parameters", out)
        self.assertEqual((len(f["rows/number"]), f["rows/rank"][f["rows/micro_batch"][()] == 1].tolist()), (142, [0]))
        self.train("train.log_every=1", "--nproc", 2, config=self.read("wine_views.yaml"))
        out, f = self.replay(5)
        self.assertIn("equal to what runs/test has recorded of it: loss, lr", out)
        self.assertNotIn("targets", f["rows"])
        np.testing.assert_array_equal(f["activations/codes"], np.hstack([f["activations/tannins_code.2"], f["activations/others_code.2"]]))
        np.testing.assert_array_equal(f["rows/inputs"], np.hstack([f["activations/input/tannins"], f["activations/input/others"]]))

    def test_a_stop_leaves_nothing(self):
        self.train()
        p = self.start("replay", "runs/test", "--step", 29, env={"DDPTRAIN_FAULT_LATE": "0:30"})
        self.wait_for(lambda: glob.glob(self.path("ddptrain-replay-*", "run", "config.yaml")))
        p.terminate()
        err = p.communicate(timeout=180 * program.SLOW)[1]
        self.assertEqual(p.returncode, program.STOPPED, err)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("ddptrain-")], [])
        self.assert_no_leftovers()

    def test_what_it_starts_from(self):
        self.train("train.ledger=off")
        self.assertIn("from the beginning", self.replay(5)[0])  # a checkpoint of step 5 is after it
        self.assertIn("from runs/test/checkpoints/epoch-0001.h5", self.replay(6)[0])
        with open(self.path("runs/test/checkpoints/epoch-0001.h5"), "r+b") as f:
            f.seek(3000)
            f.write(b"damage")
        with open(self.path("runs/test/checkpoints/step-00000009.h5"), "w") as f:
            f.write("not a checkpoint")
        self.assertIn("deep/er/own.h5", self.run_program("replay", "runs/test", "--step", 6, "--out", "deep/er/own.h5", code=program.IO)[1])
        self.assertFalse(os.path.exists(self.path("deep")))
        os.makedirs(self.path("deep/er"))
        out = self.run_program("replay", "runs/test", "--step", 6, "--out", "deep/er/own.h5")
        self.assertIn("from the beginning", out[0])
        self.assertIn("skipped a checkpoint", out[1])
        self.assertIn("loss, lr, samples, grad_norm", out[0])
        self.assertTrue(os.path.exists(self.path("deep/er/own.h5")))
        self.folder = self.path("runs/test")  # here "." has no name
        os.symlink(self.path("../../datasets"), self.path("datasets"))
        self.run_program("replay", "./", "--step", 11)
        self.assertTrue(os.path.exists(self.path("test-step-11.h5")))
        self.folder = os.path.dirname(os.path.dirname(self.folder))
        self.train("train.ledger=off", "train.log_every=0")
        self.assertIn("has recorded nothing of it", self.replay(7)[0])

    def test_lines_of_a_run_that_was_killed(self):
        """The steps so far are those of any line; a line of NULs, as a full disk leaves it, is left out."""
        self.train("train.ledger=off", "train.log_every=0")
        lines = self.read("runs/test/metrics.jsonl").splitlines()
        last = max(i for i, line in enumerate(lines) if line.startswith('{"event":"epoch"'))
        skipped = json.dumps({"event": "skipped", "step": 29}, separators=(",", ":"))
        kept = [line for line in lines[:last] if '"event":"checkpoint"' not in line]
        for case in ([*kept, lines[last]], [*kept, skipped], [kept[0], "\0" * 40, *kept[1:], lines[last]]):
            with self.subTest(end=case[-1], count=len(case)):
                self.write("runs/test/metrics.jsonl", "\n".join(case) + "\n")
                self.assertIn("has recorded nothing of it", self.replay(29)[0])

    def test_a_run_that_was_extended(self):
        """A step has the config of its time, here the length of a schedule; a run may begin after the step."""
        self.train(config=WINE + "schedule: {type: cosine}\n")
        self.run_program("test.yaml", "--quiet", "train.epochs=9")
        for step in (13, 28, 40):
            self.run_program("replay", "runs/test", "--step", step, out="equal to what runs/test has recorded of it")
        self.run_program("test.yaml", "--quiet", "--run-dir", "late", f"checkpoint.resume={self.checkpoints()[1]}")
        self.run_program("replay", "late", "--step", 3, code=USAGE, err="--step 3: late begins after it")
        self.run_program("replay", "runs/test", "--step", 13, "--out", self.checkpoints()[0], code=USAGE, err="it exists; name a new file")
        for path in self.checkpoints():
            os.remove(path)
        self.run_program("replay", "runs/test", "--step", 13)
        self.write("runs/test/ledger.jsonl", program.without_configs(self.read("runs/test/ledger.jsonl")))
        self.run_program("replay", "runs/test", "--step", 13, code=DATA, err="with another config than its config.yaml, which no checkpoint has")

    def test_a_file_that_has_moved(self):
        self.train("train.epochs=2")
        self.run_program("test.yaml", "--quiet", "--run-dir", "late", f"checkpoint.resume={self.checkpoints()[0]}")
        step = self.metrics("late")[0]["first_step"]
        for path in self.checkpoints("late"):
            os.remove(path)
        os.rename(self.checkpoints()[0], self.path("moved.h5"))
        self.run_program("replay", "late", "--step", step, code=DATA)
        self.run_program("replay", "late", "--step", step, f"checkpoint.resume={self.path('moved.h5')}", out="equal to what late has recorded of it")

    def test_a_step_that_differs(self):
        """The file is written in any case; the exit code says that it is another step."""
        self.train("train.ledger=off")
        lines = self.read("runs/test/metrics.jsonl").splitlines()
        changed = [line.replace('"step":7,"loss":', '"step":7,"loss":1') for line in lines]
        self.assertNotEqual(lines, changed)
        self.write("runs/test/metrics.jsonl", "\n".join(changed) + "\n")
        err = self.replay(7, code=DIVERGED)[1]
        self.assertRegex(err, r"step 7 is not the one of runs/test: loss is 11\.\d+ as recorded and 1\.\d+ when it is repeated; equal: lr, samples, grad_norm")
        self.assertTrue(os.path.exists(self.path("test-step-7.h5")))

    def test_errors(self):
        self.train()
        for arguments, message, code in (
                (("runs/test",), "replay needs --step N", USAGE), (("runs/test", "--step", 31), "--step 31: runs/test has 30 steps", USAGE),
                (("runs/test", "--step", 3, "--out", "x.txt"), "give it a name that ends with .h5", USAGE),
                (("runs/test", "--step", 3, "--out", "deep/.h5"), "give it a name that ends with .h5", USAGE),
                (("datasets", "--step", 3), "datasets: not the folder of a run", USAGE),
                (("runs/test", "--step", 3, "--nproc", 2), "only runs with determinism.mode: elastic", USAGE),
                (("runs/test", "--step", 9, "dataset.path=datasets/missing.h5"), "cannot be repeated: cannot read the dataset", DATA),
                (("runs/test", "--step", 9, "optimizer.lr=1"), "", USAGE)):
            with self.subTest(arguments=arguments):
                out, err = self.run_program("replay", *arguments, code=code)
                self.assertIn(message, err)
                self.assertEqual(out, "")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("ddptrain-") or name.endswith(".h5")], [])

    def test_the_option_of_its_run(self):
        """What it needs is said before data is read."""
        self.write("test.yaml", WINE)
        for words, message in (((), "--trace needs --stop-after STEP"), (("--stop-after", 2, "optimizer.in_backward=true"), "add optimizer.in_backward=false"),
                               (("--stop-after", 2, "--nproc", 2, "dist.zero_stage=3"), "add dist.zero_stage=2")):
            self.assertIn(message, self.run_program("test.yaml", "--fresh", "--quiet", "--trace", "own.h5", "dataset.path=missing.h5", *words, code=USAGE)[1])

    def test_other_data(self):
        self.train()
        with h5py.File(self.path("datasets/wine.h5")) as data, h5py.File(self.path("other.h5"), "w") as other:
            x = data["x"][()]
            x[3, 4] += 1
            other["x"], other["y"] = x, data["y"][()]
        self.assertIn("other data", self.run_program("replay", "runs/test", "--step", 9, "dataset.path=other.h5", code=DATA)[1])
