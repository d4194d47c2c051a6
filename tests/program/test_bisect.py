"""ddptrain bisect: the first step at which two runs part, and what parts first there. ctest-labels: dist"""
import glob, json, os, re, shutil

import numpy as np

import program
from program import DATA, DIVERGED, OK, STOPPED, USAGE

CONFIG = """
name: test
seed: 1
dataset: {path: wine.h5, inputs: [x], targets: [y], scale: none, split: 0.2}
sampler: {batch_size: 16}
model: {layers: [{linear: 24}, batch_norm, relu, {dropout: 0.1}, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.01}
schedule: {type: cosine}
train: {epochs: 6, ledger: {every: 6}}
checkpoint: {save_every: {epochs: 1}, keep: 0}
"""


def flip_bit(name):
    """Changes the lowest bit of element [2, 5] of a tensor of a checkpoint."""
    def change(f):
        value = f[name][:]
        value.view(np.uint32)[2, 5] ^= 1
        f[name][:] = value
    return change


class Bisect(program.Case):
    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(program.SOURCE, "datasets/wine.h5"), self.path("wine.h5"))
        self.write("c.yaml", CONFIG)

    def train(self, run, *arguments, code=OK, **options):
        self.run_program("c.yaml", "--quiet", "--run-dir", run, *arguments, code=code, **options)

    def bisect(self, a, b, *arguments, code=DIVERGED, **options):
        """What it printed and, where the runs part, the sentence of the result."""
        out, err = self.run_program("bisect", a, b, *arguments, code=code, **options)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("ddptrain-")], [])
        return out if code == OK else out + "\n" + err

    def first_step(self, a, b):
        """The first step whose line differs between the ledgers of two runs with a line for each step."""
        lines = [[json.loads(line) for line in self.read(f"{run}/ledger.jsonl").splitlines()] for run in (a, b)]
        steps = [{line["step"]: [line[k] for k in ("rows", "loss", "grad_norm", "parameters")] for line in run if line["event"] == "step"}
                 for run in lines]
        return min(step for step in steps[0] if steps[0][step] != steps[1].get(step))

    def every_step(self, run, *arguments):
        self.train(run, *arguments, "train.ledger={every: 1}")

    # ---- runs that part ----

    def test_keys(self):
        """A key of each kind: what it changes first is named, with both values."""
        self.train("a")
        for key, old, new, step, what in (
                ("optimizer.lr", "0.01", "0.02", 1, r"its learning rate is 0.01 in a and 0.02 in b"),
                ("optimizer.weight_decay", "0.01", "0.1", 1, r"its update: model/0.bias\[0\] is \S+ in a and \S+ in b \(24 of its 24 values differ, by at most \S+\); 5 of 20 tensors differ"),
                ("seed", "1", "2", 1, r"the states before it differ: model/0.bias\[0\] is \S+ in a and \S+ in b"),
                ("sampler.seed", "0", "3", 1, r"its rows: rows/number\[0\] is \d+ in a and \d+ in b \(\d+ of its 16 values differ\)"),
                ("sampler.batch_size", "16", "32", 1, r"its rows: rows/number has 16 values in a and 32 in b"),
                ("model.layers.3.dropout.p", "0.1", "0.2", 1, r"its activations: activations/3\[0, \d+\] is \S+ in a and \S+ in b"),
                ("train.clip_grad_norm", "0", "0.5", 1, r"its update: model/0.bias"),
                ("loss.label_smoothing", "0", "0.1", 1, r"its loss is \S+ in a and \S+ in b"),
                ("optimizer.eps", "1e-08", "1e-07", 1, r"its update: model/"),
                ("dataset.divide", "null", "10", 1, r"its inputs: rows/inputs\[0, 0\] is"),
                ("train.epochs", "6", "7", 10, r"its learning rate is")):
            with self.subTest(key):
                self.train("b", f"{key}={new}", "--fresh")
                found = self.bisect("a", "b")
                self.assertIn(f"  {key}: {old} -> {new}\n", found)
                self.assertRegex(found, rf"a and b part at step {step}: {what}")

    def test_a_cell(self):
        """The row and the column; the step at which that row is used first."""
        import h5py
        self.every_step("a")
        seen = set()
        for row, column in ((17, 3), (40, 0), (62, 12)):
            shutil.copy(self.path("wine.h5"), self.path("cell.h5"))
            with h5py.File(self.path("cell.h5"), "r+") as f:
                old = float(f["x"][row, column])
                f["x"][row, column] = old + 0.5
            self.every_step("b", "dataset.path=cell.h5", "--fresh")
            self.train("coarse", "dataset.path=cell.h5", "--fresh")
            step = self.first_step("a", "b")
            seen.add(step)
            found = self.bisect("a", "coarse")
            self.assertRegex(found, rf"the data differ: wine.h5: dataset 'x', row {row}, column {column} is \S+, cell.h5: dataset 'x', row {row}, column {column} is ")
            self.assertIn("the configs have the same values", found)
            self.assertRegex(found, rf"a and coarse part at step {step}: its inputs: rows/inputs\[\d+, {column}\] is \S+ in a and \S+ in coarse \(1 of its 208 values differ")
        self.assertGreater(len(seen), 1)
        with h5py.File(self.path("cell.h5"), "r+") as f:
            f["x"][62, 12] -= 0.5
            f["x"][61, 12] += 0.5
        self.train("coarse", "dataset.path=cell.h5", "--fresh")
        found = self.bisect("a", "coarse")  # a validation row
        self.assertIn("row 61, column 12 is", found)
        self.assertRegex(found, r"a and coarse part after step 9: val_loss of epoch 1 is \S+ in a and \S+ in coarse\n")

    def test_data_of_other_formats(self):
        """Texts of a table; other numbers of rows."""
        rows = [f"{i},{'red' if i % 3 else 'blue'},{i % 2}" for i in range(60)]
        self.write("a.csv", "x,colour,y\n" + "\n".join(rows) + "\n")
        config = CONFIG.replace("wine.h5, inputs: [x], targets: [y], scale: none", "a.csv, targets: y").replace("linear: 3", "linear: 2")
        self.write("c.yaml", config)
        self.train("a")
        rows[7] = "7,green,1"
        self.write("b.csv", "x,colour,y\n" + "\n".join(rows) + "\n")
        self.train("b", "dataset.path=b.csv")
        self.assertRegex(self.bisect("a", "b"), r"a.csv:line 9: column 'colour' is 'red', b.csv:line 9: column 'colour' is 'green'")
        self.write("b.csv", "x,colour,y\n" + "\n".join(rows[:7]) + "\n")
        self.train("b", "dataset.path=b.csv", "--fresh")
        self.assertIn("'a.csv' has 60 rows, 'b.csv' has 7, of which the first 7 are equal", self.bisect("a", "b"))

    def test_data_of_texts(self):
        """The character that differs, also where all others have another number: the second file has one more."""
        text = "the quick brown fox jumps over the lazy dog\n" * 40
        self.write("a.txt", text)
        self.write("b.txt", text[:700] + "A" + text[701:])
        for name in "ab":
            self.write(f"{name}.yaml", f"""
name: {name}
dataset: {{path: {name}.txt, text: {{block_size: 8}}}}
sampler: {{batch_size: 32}}
model: {{layers: [{{embedding: {{num_embeddings: 40, embedding_dim: 8}}}}, {{linear: 40}}]}}
loss: cross_entropy
train: {{steps: 3}}
""")
        found = self.bisect("a.yaml", "b.yaml")
        self.assertIn(f"the data differ: 'a.txt': character 700 is '{text[700]}', 'b.txt': character 700 is 'A'\n", found)
        self.assertRegex(found, r"part at step 1: its inputs: rows/inputs\[\d+\] is \d+ in a.yaml and \d+ in b.yaml")

    def test_a_bit_before_the_first_step(self):
        """Of a weight, and of the optimizer, whose effect is gone at the end."""
        self.train("a")
        for name, ledger in (("model/0.weight", "auto"), ("optimizer/exp_avg/0.weight", "auto"), ("optimizer/exp_avg/0.weight", "off")):
            shutil.copy(self.path("a/checkpoints/epoch-0003.h5"), self.path("from.h5"))
            program.change_checkpoint(self.path("from.h5"), flip_bit(name))
            self.train("b", "checkpoint.resume=from.h5", f"train.ledger={ledger}", "--fresh")
            found = self.bisect("a", "b")
            self.assertRegex(found, rf"a and b part at step 28: the states before it differ: {re.escape(name)}\[2, 5\] is \S+ in a and \S+ in b \(1 of its 312")
            self.assertIn("checkpoint.resume: auto -> from.h5", found)
        for i in (1, 2, 3):  # the first run is then repeated from the beginning
            os.remove(self.path(f"a/checkpoints/epoch-000{i}.h5"))
        self.assertRegex(self.bisect("a", "b"), r"a and b part at step 28: the states before it differ: ")

    def test_two_ranks_and_zero(self):
        for n, run, lr in ((2, "a", 0.01), (2, "b", 0.011), (1, "c", 0.01)):
            self.train(run, "--nproc", n, "dist.zero_stage=1", f"optimizer.lr={lr}")
        self.assertIn("part at step 1: its learning rate is 0.01 in a and 0.011 in b", self.bisect("a", "b"))
        found = self.bisect("a", "c")
        self.assertIn("  processes: 2 -> 1\n", found)
        self.assertIn("part at step 1: its rows: rows/number", found)

    def test_without_ledgers(self):
        """What metrics.jsonl and the checkpoints have, or nothing but the end, is enough."""
        self.train("a", "train.ledger=off")
        self.train("b", "train.ledger=off", "optimizer.eps=1e-7")
        self.assertRegex(self.bisect("a", "b"), r"a and b part at step 1: its update: model/")
        self.train("c", "train.ledger=off", "train.log_every=0", "checkpoint.keep=1", "optimizer.eps=1e-7")
        self.assertRegex(self.bisect("a", "c"), r"a and c part at step 1: its update: model/")
        little = ("train.ledger=off", "train.log_every=0", "checkpoint.keep=1")  # the end of one is not the end of the other
        self.train("d", *little)
        self.train("e", *little, "train.epochs=7")
        self.assertIn("d and e part at step 10: its learning rate is", self.bisect("d", "e"))

    def test_configs(self):
        self.train("a")
        self.write("d.yaml", CONFIG.replace("lr: 0.01", "lr: 0.03"))
        self.assertIn("a and d.yaml part at step 1: its learning rate is 0.01 in a and 0.03 in d.yaml", self.bisect("a", "d.yaml"))
        self.assertIn("d.yaml and c.yaml part at step 1: its learning rate is 0.03", self.bisect("d.yaml", "c.yaml"))
        self.assertIn("no difference up to step 54", self.bisect("a", "c.yaml", code=OK))
        self.assertIn("no difference up to step 54", self.bisect("c.yaml", "c.yaml", code=OK))

    def test_what_only_one_has(self):
        """Another optimizer has other state, which is no difference of its own; a moving average changes nothing else."""
        self.train("a", "train.epochs=2")
        self.train("b", "train.epochs=2", "optimizer.type=sgd")
        self.assertIn("a and b part at step 1: its update: model/0.bias[0] is", self.bisect("a", "b"))
        self.train("c", "train.epochs=2", "train.ema.decay=0.9")
        found = self.bisect("a", "c")
        self.assertIn("  train.ema.decay: 0 -> 0.9\n", found)
        self.assertRegex(found, r"a and c part after step 9: val_loss of epoch 1 is \S+ in a and \S+ in c\n")
        self.train("c2", "train.epochs=2", "train.ema={decay: 0.9, evaluate: false}")
        found = self.bisect("a", "c2", code=OK)
        self.assertIn("only c2 has a moving average of the weights, with which nothing is compared\nno difference up to step 18", found)
        self.train("d", "train.epochs=2", "train.ema.decay=0.91")
        self.assertIn("c and d part at step 2: its update: ema/0.bias[0] is", self.bisect("c", "d"))
        self.train("e", "train.epochs=2", "optimizer.in_backward=true")
        self.assertIn("no difference up to step 18", self.bisect("a", "e", code=OK))
        self.train("f", "train.epochs=2", "model.layers.0.linear.out=32")
        self.assertIn("part at step 1: the states before it differ: model/0.bias (24) of a is model/0.bias (32) in f", self.bisect("a", "f"))

    # ---- evaluations and ends ----

    def test_another_validation_file(self):
        import h5py
        with h5py.File(self.path("wine.h5")) as f:
            x, y = f["x"][:], f["y"][:]
        for name, first in (("v1", 0), ("v2", 3)):
            with h5py.File(self.path(name + ".h5"), "w") as f:
                f["x"], f["y"] = x[first:first + 40], y[first:first + 40]
        for log_every in (1, 0):  # metrics.jsonl has no steps, so that it does not say after which one an epoch ends
            for run in ("v1", "v2"):
                self.train(run, "--fresh", "dataset.split=null", f"dataset.validation.path={run}.h5", "train.epochs=3", f"train.log_every={log_every}")
            found = self.bisect("v1", "v2")
            self.assertIn("  dataset.validation.path: v1.h5 -> v2.h5\n", found)
            self.assertRegex(found, r"the data differ: v1.h5: dataset 'x', row 0, column 0 is \S+, v2.h5: ")
            self.assertRegex(found, r"v1 and v2 part after step 12: val_loss of epoch 1 is \S+ in v1 and \S+ in v2\n")
        self.write("v2.yaml", self.read("v1/config.yaml").replace("v1.h5", "v2.h5"))
        self.assertRegex(self.bisect("v1", "v2.yaml"), r"v1 and v2.yaml part after step 12: val_loss of epoch 1 is")

    def test_metrics(self):
        """Those of only one run are no difference; those of both may be, also by what they decide."""
        self.train("a")
        self.train("f1", "train.metrics=[f1]", "checkpoint.best=val_f1")
        self.assertIn("  train.metrics: [] -> [f1]\n", self.bisect("a", "f1", code=OK))
        for run, factor in (("w1", 1), ("w2", 2)):
            self.train(run, f"train.metrics={{w: 'mean(y) * {factor}'}}")
        self.assertRegex(self.bisect("w1", "w2"), r"w1 and w2 part after step 9: val_w of epoch 1 is \S+ in w1 and \S+ in w2\n")
        self.train("least", "checkpoint.best={metric: val_loss, mode: max}")
        found = self.bisect("a", "least")
        self.assertRegex(found, r"  checkpoint.best.metric: null -> val_loss\n")
        self.assertRegex(found, r"a and least part after step 54: best_epoch is \d+ in a and \d+ in least\n")

    def test_early_stop(self):
        """What decides it is read from an evaluation; the repetition of a config is not continued within."""
        stop = "train.early_stop={{metric: val_loss, patience: {}}}"
        common = ("optimizer.lr=0.1", "schedule=constant", "train.epochs=20")
        self.train("one", *common, stop.format(1))
        self.train("three", *common, stop.format(3))
        ends = [self.metrics(run)[-1]["step"] for run in ("one", "three")]
        self.assertLess(ends[0], ends[1])
        words = rf"part after step {ends[0]}: \S+ ends there, and \S+ goes on\n"
        found = self.bisect("one", "three")
        self.assertIn("  train.early_stop.patience: 1 -> 3\n", found)
        self.assertRegex(found, "one and three " + words)
        for run in ("one", "three"):
            self.write(run + ".yaml", self.read(run + "/config.yaml"))
            self.assertIn(f"no difference up to step {self.metrics(run)[-1]['step']}", self.bisect(run, run + ".yaml", code=OK))
        for pair in (("one", "three.yaml"), ("three", "one.yaml"), ("one.yaml", "three.yaml"), ("three.yaml", "one.yaml")):
            self.assertRegex(self.bisect(*pair), words)
        self.train("longer", "train.epochs=7", "schedule=constant")
        self.train("shorter", "schedule=constant")
        self.assertIn("no difference up to step 54, the last of shorter\n", self.bisect("longer", "shorter", code=OK))

    # ---- runs that are not what their config gives ----

    def test_a_changed_config(self):
        """The runs are those of the configs that they had."""
        self.train("a")
        shutil.copytree(self.path("a"), self.path("b"))
        self.write("b/config.yaml", self.read("b/config.yaml").replace("  lr: 0.01", "  lr: 0.02"))
        changed = "b/config.yaml is not the config that the run had: optimizer.lr: 0.01 -> 0.02 (recorded -> now)\n"
        found = self.bisect("a", "b")
        self.assertIn("the configs have the same values\n", found)
        self.assertTrue(found.endswith("ddptrain: " + changed), found)
        self.train("c", "optimizer.eps=1e-7")
        found = self.bisect("b", "c")
        self.assertRegex(found, r"b and c part at step 1: its update: model/.*; b/config.yaml is not the config")
        os.remove(self.path("b/ledger.jsonl"))
        self.assertIn("optimizer.lr", self.bisect("a", "b", code=None))
        self.assertNotEqual(self.code, OK)

    def test_a_changed_evaluation(self):
        self.train("a")
        shutil.copytree(self.path("a"), self.path("b"))
        lines = self.read("b/metrics.jsonl").replace('"val_loss":0.', '"val_loss":1.', 1)
        self.write("b/metrics.jsonl", lines)
        self.assertRegex(self.bisect("a", "b"), r"\nddptrain: b is not what its config gives after step 9: b/metrics.jsonl:\d+: val_loss of epoch 1 is 1\.\d+ in the file and 0\.\d+ in its repetition")
        os.remove(self.path("b/metrics.jsonl"))
        self.assertIn("b has no metrics.jsonl, so its evaluations are not compared\nno difference up to step 54", self.bisect("a", "b", code=OK))

    def test_an_epoch_that_was_not_ended(self):
        """Its mean loss is not that of the whole epoch."""
        for steps in (20, 25):
            self.train(f"s{steps}", "train.epochs=null", f"train.steps={steps}", "schedule=constant")
        self.assertEqual(self.bisect("s20", "s25", code=OK), "the configs differ (s20 -> s25):\n  train.steps: 20 -> 25\nno difference up to step 20, the last of s20\n")

    def test_a_bit_that_flipped(self):
        self.every_step("a")
        self.train("coarse")
        for step in (20, 37):
            self.train("b", "--fresh", "train.ledger={every: 1}", env={"DDPTRAIN_FAULT_FLIP": f"0:{step}:55"})
            for other in ("a", "coarse", "c.yaml"):
                found = self.bisect(other, "b")
                self.assertRegex(found, rf"\nddptrain: b is not what its config gives in step {step + 1}: b/ledger.jsonl:\d+: step {step + 1}: \w+ is \S+, and \S+ when it is repeated")
        self.train("b", "--fresh", env={"DDPTRAIN_FAULT_FLIP": "0:37:55"})
        self.assertRegex(self.bisect("b", "a"), r"\nddptrain: b is not what its config gives in steps 37 to (38|39|42): b/")

    def test_a_step_that_was_left_out(self):
        self.every_step("a")
        self.train("b", "--stop-after", 31, "train.ledger={every: 1}", code=STOPPED)

        def skip(f):
            for counter, more in (("step", 1), ("batch", 1), ("samples", 16)):
                f["state/" + counter][...] = f["state/" + counter][()] + more
        program.change_checkpoint(glob.glob(self.path("b/checkpoints/step-*.h5"))[0], skip)
        self.train("b", "train.ledger={every: 1}")
        self.assertRegex(self.bisect("a", "b"), r"\nddptrain: b is not what its config gives in step 32: b/")

    def test_a_changed_checkpoint(self):
        """With its seal: it is not the state that the ledger has, nor, without a ledger, the one that is repeated."""
        self.train("a")
        shutil.copytree(self.path("a"), self.path("b"))
        program.change_checkpoint(self.path("b/checkpoints/epoch-0005.h5"), flip_bit("model/0.weight"))
        for ending in ("after step 45", "in steps 37 to 45"):
            found = self.bisect("a", "b")
            self.assertRegex(found, rf"\nddptrain: b is not what its config gives {ending}: b/checkpoints/epoch-0005.h5: model/0.weight\[2, 5\] is \S+ in the file and \S+ in its repetition \(1 of its 312")
            if os.path.exists(self.path("b/ledger.jsonl")):
                os.remove(self.path("b/ledger.jsonl"))
        self.assertIn("b is not what its config gives in steps 37 to 45", self.bisect("b", "c.yaml"))

    def test_another_run_under_this_config(self):
        self.train("a")
        self.train("b", "seed=2")
        shutil.copy(self.path("a/config.yaml"), self.path("b/config.yaml"))
        os.remove(self.path("b/ledger.jsonl"))
        self.assertRegex(self.bisect("a", "b"), r"\nddptrain: b is not what its config gives in step 1: b/metrics.jsonl:\d+: step 1: loss is")

    # ---- equal runs ----

    def test_equal(self):
        self.train("a")
        self.train("b", "train.ledger={every: 4}")
        self.assertEqual(self.bisect("a", "b", code=OK), "the configs have the same values\nno difference up to step 54, the last of both\n")
        self.train("e1", "--nproc", 1, "determinism={mode: elastic, shards: 4}", "sampler.batch_size=null", "sampler.global_batch_size=16")
        self.train("e2", "--nproc", 2, "determinism={mode: elastic, shards: 4}", "sampler.batch_size=null", "sampler.global_batch_size=16")
        self.assertIn("no difference up to step 54", self.bisect("e1", "e2", code=OK))

    def test_a_checkpoint_under_the_name_of_another(self):
        self.train("a")
        shutil.copytree(self.path("a"), self.path("b"))
        shutil.copy(self.path("b/checkpoints/epoch-0004.h5"), self.path("b/checkpoints/epoch-0003.h5"))
        self.assertIn("what a and b have recorded at step 27 differs, but both compute the same there: a file of one of them was changed",
                      self.bisect("a", "b"))

    def test_files_that_have_moved(self):
        """Those of both runs, or of one."""
        self.train("before", "train.epochs=2")
        shutil.copy(self.path("before/checkpoints/epoch-0001.h5"), self.path("start.h5"))
        self.train("a", "model.init_from=start.h5")
        self.train("b", "model.init_from=start.h5", "optimizer.eps=1e-7")
        os.rename(self.path("start.h5"), self.path("moved.h5"))
        self.bisect("a", "b", code=DATA)
        moved = f"model.init_from={self.path('moved.h5')}"
        self.assertRegex(self.bisect("a", "b", moved), r"a and b part at step 1: its update: model/")
        self.bisect("a", "b", "A." + moved, code=DATA)
        self.assertRegex(self.bisect("a", "b", "A." + moved, "B." + moved), r"a and b part at step 1: its update: model/")
        os.rename(self.path("wine.h5"), self.path("data.h5"))
        self.assertIn("part at step 1", self.bisect("a", "b", moved, f"dataset.path={self.path('data.h5')}"))
        self.bisect("a", "b", "A.optimizer.lr=1", code=USAGE)

    def test_other_files(self):
        """What is named for a run must be what it had, also where nothing that is recorded differs."""
        import h5py
        self.train("a")
        shutil.copy(self.path("wine.h5"), self.path("other.h5"))
        self.assertIn("no difference up to step 54", self.bisect("a", "a", "B.dataset.path=other.h5", code=OK))
        with h5py.File(self.path("other.h5"), "r+") as f:
            f["x"][3, 4] += 1
        self.assertIn("it was trained on other data", self.bisect("a", "a", "B.dataset.path=other.h5", code=DATA))
        for name in glob.glob(self.path("a/checkpoints/*")):
            os.remove(name)
        self.assertRegex(self.bisect("a", "a", "B.dataset.path=other.h5"), r"a is not what its config gives .*dataset_fingerprint is")

    def test_a_run_that_was_extended(self):
        """Each part has the config that it was trained with: the schedule is longer after it."""
        self.train("a")
        shutil.copytree(self.path("a"), self.path("b"))
        self.train("b", "train.epochs=9")
        self.train("long", "train.epochs=9")
        self.assertIn("no difference up to step 54", self.bisect("a", "b", code=OK))
        self.assertIn("b and long part at step 10: its learning rate", self.bisect("b", "long"))

    def test_a_stopped_run(self):
        self.train("a")
        self.train("b", "--stop-after", 31, code=STOPPED)
        self.assertIn("no difference up to step 31", self.bisect("a", "b", code=OK))
        self.train("b")
        self.assertIn("no difference up to step 54", self.bisect("a", "b", code=OK))

    # ---- what cannot be compared ----

    def test_mistakes(self):
        self.train("a")
        self.assertIn("expected two run folders, or a run folder and a config", self.run_program("bisect", "a", code=USAGE)[1])
        self.assertIn("cannot read config 'nothing'", self.bisect("a", "nothing", code=USAGE))
        self.train("b", "optimizer.lr=0.02")
        self.assertIn("--nproc 2: this run had 1 process", self.bisect("a", "b", "--nproc", 2, code=USAGE))
        with open(self.path("b/ledger.jsonl"), "r+") as f:
            lines = f.read().replace('"processor":"', '"processor":"Another ', 1)
            f.seek(0)
            f.write(lines)
        self.assertIn("b/ledger.jsonl:1: the chain is broken", self.bisect("a", "b"))
        os.remove(self.path("b/ledger.jsonl"))
        os.remove(self.path("b/metrics.jsonl"))
        self.assertIn("b: its config.yaml, or both ledger.jsonl and metrics.jsonl, are missing", self.bisect("a", "b", code=DATA))
        self.train("c", "dataset.path=gone.h5", code=None)
        shutil.copy(self.path("wine.h5"), self.path("gone.h5"))
        self.train("c", "dataset.path=gone.h5", "optimizer.lr=0.02")
        os.remove(self.path("gone.h5"))
        self.assertRegex(self.bisect("a", "c", code=DATA), r"steps 1 to \d+ of c cannot be repeated: .*gone.h5")
