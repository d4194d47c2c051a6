"""`ddptrain check` of a config that is right: its numbers against those that follow from the definitions. ctest-labels: unit"""
import re

import program
from program import USAGE, WINE

MIB = 2**20
WIDE = WINE.replace("[{linear: {out: 64}}, relu, {linear: {out: 3}}]", "[{linear: {out: 1000}}, relu, {linear: {out: 1000}}, batch_norm, {linear: {out: 3}}]")
LAYERS = (13 * 1000 + 1000, 1000 * 1000 + 1000, 2 * 1000, 3 * 1000 + 3)  # parameters
PRODUCTS = 13 * 1000 + 1000 * 1000 + 1000 * 3  # multiply-adds of a row


class Check(program.Case):
    def test_a_word_replaces_the_key_that_it_excludes(self):
        """Of the file; two words still exclude each other."""
        self.assertEqual(self.lines("train.steps=6")["run"], "6 steps")
        self.assertEqual(self.lines("train.epochs=2", config=WIDE.replace("epochs: 10", "steps: 10"))["run"], "2 epochs, 10 steps")
        self.assertEqual(self.lines("sampler.global_batch_size=64", "--nproc", 2)["processes"].split(" rows")[0], "2, 32")
        for split in ("{test: 0.2, seed: 42}", "0.2"):
            config = WIDE.replace("split: {test: 0.2, seed: 42}", f"split: {split}")
            self.assertEqual(self.lines("dataset.split.folds=2", "dataset.split.fold=0", config=config)["epoch"], "3 batches, 3 steps")
            self.assertEqual(self.lines("dataset.split.train=0.5", config=config)["epoch"], "3 batches, 3 steps")
        self.run_program("check", "test.yaml", "train.steps=6", "train.epochs=2", code=USAGE, err="train: give epochs or steps, not both")
        self.assertEqual(self.lines("train.steps=null")["run"], "10 epochs, 50 steps")

    def test_a_sweep(self):
        """Where a config is expected it is named as one, and check verifies it and the config of its trials."""
        self.write("test.yaml", WIDE)
        self.write("sweep.yaml", "config: test.yaml\nmethod: grid\nparameters: {optimizer.lr: {values: [0.1, 0.01]}}\n")
        for words in ([], ["check"], ["eval"], ["predict"]):
            out, err = self.run_program(*words, "sweep.yaml", code=0 if words == ["check"] else USAGE)
            if words != ["check"]:
                self.assertEqual(err, "ddptrain: sweep.yaml: this is a sweep of a config; ddptrain sweep sweep.yaml trains it, and ddptrain check "
                                      "sweep.yaml checks it\n")
                continue
            self.assertIn("sweep.yaml: a sweep of 2 trials, 1 run each; its keys:\n", out)
            self.assertIn("\nthe config of its trials, test.yaml:\ntest: 142 training rows", out)
        self.assertIn("run            3 epochs", self.run_program("check", "sweep.yaml", "train.epochs=3")[0])
        for text, message in (("[0.1, x]", "sweep.yaml:3:"), ("[0.1], colour: 3", "sweep.yaml:3:")):
            self.write("sweep.yaml", f"config: test.yaml\nmethod: grid\nparameters: {{optimizer.lr: {{values: {text}}}}}\n")
            self.assertIn(message, self.run_program("check", "sweep.yaml", code=USAGE)[1])

    def lines(self, *arguments, config=WIDE):
        """{first word: the rest}"""
        self.write("test.yaml", config)
        out, _ = self.run_program("check", "test.yaml", *arguments)
        return {line.split()[0]: line[15:] for line in out.splitlines() if re.match(r"[a-z]+ +\S", line)}

    def assert_numbers(self, line, *numbers):
        """Of two decimals."""
        found = [float(n) for n in re.findall(r"\d+\.\d\d", line)]
        self.assertEqual(len(found), len(numbers), line)
        for got, expected in zip(found, numbers):
            self.assertAlmostEqual(got, expected, delta=0.006, msg=line)

    def test_one_process(self):
        lines = self.lines()
        self.assertEqual(lines["processes"], "1, 32 rows per batch and process")
        self.assertEqual((lines["epoch"], lines["run"]), ("5 batches, 5 steps", "10 epochs, 50 steps"))
        self.assertEqual(lines["checkpoints"], "every 5 epochs, at the end and on a stop request")
        self.assertEqual(lines["optimizer"], f"adam: lr 0.001, weight_decay 0 for {sum(LAYERS)} parameters in 8 tensors")
        memory = re.match(r"([\d.]+) MiB parameters and gradients, ([\d.]+) MiB optimizer, [\d.]+ MiB activations$", lines["memory"])
        for got, expected in zip(memory.groups(), (8 * (sum(LAYERS) + 1000), 8 * sum(LAYERS))):  # the statistics have no gradients
            self.assertAlmostEqual(float(got), expected / MIB, delta=0.01)
        self.assertTrue(lines["step"].startswith(f"{6e-9 * 32 * PRODUCTS:.3f} GFLOP per process"), lines["step"])
        self.assertEqual(lines["gradients"], f"{4 * sum(LAYERS) / MIB:.2f} MiB in 2 buckets")  # as DistributedDataParallel: the first holds 1 MiB
        self.assertNotIn("frozen", lines)
        self.assertEqual(self.lines("train={steps: 7, accumulate: 2}")["run"], "7 steps")

    def test_null_removes_a_key(self):
        """One that cannot be null."""
        self.assertIn("sgd: lr 0.5,", self.lines("optimizer={type: sgd, lr: 0.5}")["optimizer"])
        self.assertIn("sgd: lr 0.001,", self.lines("optimizer={type: sgd, lr: 0.5}", "optimizer.lr=null")["optimizer"])
        self.assertIn("adam: lr 0.001,", self.lines("optimizer={type: sgd, lr: 0.5}", "optimizer=null")["optimizer"])
        self.run_program("check", "test.yaml", "model=null", code=USAGE, err="model.layers: missing")
        self.assertIn("sgd: lr 0.5,", self.lines("optimizer=sgd", "optimizer.lr=0.5")["optimizer"])
        self.run_program("check", "test.yaml", "optimizer.lr=0.5", "optimizer=sgd", code=USAGE,
                         err="argument 'optimizer=sgd': it replaces what 'optimizer.lr=0.5' before it has set; give it first")

    def test_several_processes(self):
        lines = self.lines("--nproc", 3, "model.freeze=['0.*', 4.bias]", "dist.gradient_compression=bfloat16")
        frozen = LAYERS[0] + 3
        self.assertEqual(lines["frozen"], f"{frozen} parameters in 3 tensors")
        bytes_ = 4 * (sum(LAYERS) - frozen)
        self.assertRegex(lines["gradients"], r"in 1 bucket, about [\d.]+ MiB sent by each of 3 processes in a step, as bfloat16")
        self.assert_numbers(lines["gradients"], bytes_ / MIB, bytes_ * 2 / 3 / MIB)
        self.assertTrue(lines["step"].startswith(f"{6e-9 * 32 * PRODUCTS:.3f} GFLOP per process"), lines["step"])

    def test_elastic(self):
        """The sums have the running statistics, too; what is frozen has none."""
        lines = self.lines("--nproc", 4, "determinism={mode: elastic, shards: 6}", "sampler.batch_size=null", "sampler.global_batch_size=48",
                           "model.freeze=['0.*']")
        shard = 4 * (sum(LAYERS[1:]) + 2 * 1000) / MIB
        self.assertEqual(lines["processes"], "4, 8 rows per shard")
        self.assertRegex(lines["gradients"], r"^[\d.]+ MiB for each of 6 shards, up to 2 of a batch on a process$")
        self.assert_numbers(lines["gradients"], shard)
        self.assertTrue(lines["step"].startswith(f"{6e-9 * 12 * PRODUCTS:.3f} GFLOP per process"), lines["step"])

    def test_a_schedule_with_the_length_of_the_run(self):
        """check and the log say before the first step that an extension changes the rate; both rates are those of the metrics."""
        for schedule, key in (("one_cycle", "schedule.total_iters"), ("cosine", "schedule.t_max")):
            self.write("test.yaml", WINE + f"schedule: {{type: {schedule}}}\n")
            words = ["test.yaml", "--run-dir", f"runs/{schedule}", "optimizer.lr=0.01"]
            length = ["train.epochs=20"]
            self.assertNotIn("warning", self.run_program(*words)[1])
            self.assertNotIn("warning", self.run_program("check", *words)[0])
            for own in ("schedule.total_iters=10", "schedule.t_max=10"):
                if key in own:
                    self.assertNotIn("warning", self.run_program("check", *words, *length, own)[0])
            warning = "warning +the schedule takes its length from the run.*: after step 50 the learning rate changes from (\\S+) to (\\S+); .* " + key
            checked = re.search(warning, self.run_program("check", *words, *length)[0])
            self.assertTrue(checked)
            logged = re.search(warning.replace("warning +", "warning: ", 1), self.run_program(*words, *length)[1])
            self.assertEqual(logged.groups(), checked.groups())
            rates = [e["lr"] for e in self.events("step", f"runs/{schedule}")]
            self.assertEqual(checked.groups(), ("%.3g" % rates[49], "%.3g" % rates[50]))

    def test_a_one_cycle_of_one_interval(self):
        self.write("test.yaml", WINE + "schedule: {type: one_cycle}\n")
        words = ["test.yaml", "train.epochs=1", "optimizer.lr=0.01"]
        warning = "one_cycle has a single interval, which is its end, so the learning rate is 4e-08; give it more intervals"
        self.assertIn(warning, self.run_program("check", *words)[0])
        self.assertIn(warning, self.run_program(*words)[1])
        self.assertNotIn("one_cycle has", self.run_program("check", *words, "schedule.interval=step")[0])

    def test_attention(self):
        text = """
dataset: {path: datasets/tinyshakespeare.txt, text: {block_size: 8, stride: 64, truncate: 0.01}}
sampler: {batch_size: 32}
model: {layers: [{embedding: {embedding_dim: 256}}, {attention: {heads: 2}}, {linear: {out: 58}}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {steps: 1}
"""
        products = 4 * 8 * 256 * 256 + 2 * 8 * 8 * 256 + 8 * 256 * 58  # four matrices, scores and their sums, the last layer
        self.assertTrue(self.lines(config=text)["step"].startswith(f"{6e-9 * 32 * products:.3f} GFLOP per process"))


class Graph(program.Case):
    def test_a_graph_for_graphviz(self):
        """Nodes for what computes, edges for what they pass on; views and changes of order are not drawn."""
        import numpy as np
        np.savez(self.path("rows.npz"), x=np.zeros((8, 3, 4, 4), "f4"), y=np.zeros(8))
        self.write("test.yaml", """
name: a "graph"
dataset: {path: rows.npz}
model:
  layers:
    - {conv2d: {out: 3, kernel_size: 1, name: first}}
    - relu
    - residual: [{conv2d: {out: 3, kernel_size: 3, padding: 1}}]
    - {concat: {from: first}}
    - flatten
    - linear: 1
loss: mse
train: {epochs: 1}
""")
        out, _ = self.run_program("check", "test.yaml", "--dot")
        self.assertTrue(out.startswith('digraph "a \\"graph\\"" {\n'), out)
        labels = dict(re.findall(r'^    (t\d+) \[label="(.*?)"', out, re.M))
        self.assertEqual(sorted(labels.values()), sorted([
            "inputs\\n(3, 4, 4)", "first\\nconv2d\\n(3, 4, 4)\\n12 parameters", "1\\nrelu\\n(3, 4, 4)", "2.0\\nconv2d\\n(3, 4, 4)\\n84 parameters",
            "+\\n(3, 4, 4)", "3\\nconcat\\n(6, 4, 4)", "5\\nlinear\\n1\\n97 parameters"]))
        named = {key: label.split("\\n")[0] for key, label in labels.items()}
        edges = [(named[a], named.get(b, b)) for a, b in re.findall(r"^    (t\d+) -> (\w+);", out, re.M)]
        self.assertEqual(sorted(edges), sorted([("inputs", "first"), ("first", "1"), ("1", "2.0"), ("2.0", "+"), ("1", "+"), ("+", "3"), ("first", "3"),
                                                ("3", "5"), ("5", "output")]))
        self.assertEqual(out.count("{"), out.count("}"))
        self.run_program("train", "test.yaml", "--dot", code=program.USAGE, err="--dot is for check; 'train' does not accept it")
