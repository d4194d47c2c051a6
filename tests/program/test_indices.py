"""`sampler: {type: indices}`: the rows of a file are those that are trained on, on any number of ranks, after a resume, and in
the exported script; wrong files are one sentence. The examples of docs/split.md run. ctest-labels: dist"""
import ast
import os
import re
import types

import h5py
import numpy as np

import program

CONFIG = """
name: test
dataset: {path: rows.h5}
sampler: {batch_size: 8, type: indices, path: order.npy}
model: {layers: [{linear: {out: 8}}, relu, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 2}
"""
ROWS = 45


class Indices(program.Case):
    def setUp(self):
        super().setUp()
        self.write("config.yaml", CONFIG)
        random = np.random.default_rng(7)
        self.x, self.y = random.normal(size=(ROWS, 5)).astype("f4"), random.integers(0, 3, ROWS)
        self.y[:3] = [0, 1, 2]
        self.write_rows("rows.h5", range(ROWS))

    def write_rows(self, name, rows):
        with h5py.File(self.path(name), "w") as f:
            f["x"], f["y"] = self.x[list(rows)], self.y[list(rows)]

    def save(self, order, dtype="i8", name="order.npy"):
        np.save(self.path(name), np.asarray(order, dtype))

    def train(self, *overrides, run="runs/test", nproc=1, code=program.OK):
        """The state at the end of a new run."""
        self.run_program("config.yaml", "--run-dir", run, "--nproc", nproc, *overrides, code=code)
        return self.sha(run) if code == program.OK else None

    def test_rows_are_those_of_the_file(self):
        """An order, also one that repeats and leaves out rows, trains as a file whose rows have that order."""
        orders = {"permuted": np.random.default_rng(1).permutation(ROWS), "fewer": np.random.default_rng(2).permutation(ROWS)[:29],
                  "repeated": np.r_[np.random.default_rng(3).integers(0, ROWS, 70), 0, 1, 2]}
        for name, order in orders.items():
            self.save(order, "u1")
            self.write_rows("sorted.h5", order)
            for nproc, keys in ((1, ()), (2, ()), (2, ("sampler.uneven=true",)), (2, ("sampler.drop_last=true",)), (3, ())):
                with self.subTest(name, nproc=nproc, keys=keys):
                    run, other = f"runs/a-{name}-{nproc}{len(''.join(keys))}", f"runs/b-{name}-{nproc}{len(''.join(keys))}"
                    expected = self.train("dataset.path=sorted.h5", "sampler.type=distributed", "sampler.path=null", "sampler.shuffle=false", *keys,
                                          run=other, nproc=nproc)
                    self.assertEqual(self.train(*keys, run=run, nproc=nproc), expected)

    def test_epochs_and_forms_of_the_array(self):
        a, b = np.random.default_rng(4).permutation(ROWS), np.random.default_rng(5).permutation(ROWS)
        self.save([a, b, a])
        three = self.train("train.epochs=3", run="runs/three")
        self.save([a, b])
        self.assertEqual(self.train("train.epochs=3", run="runs/two"), three)
        self.save(np.asfortranarray([a, b]), ">i2")
        self.assertTrue(np.load(self.path("order.npy")).flags.f_contiguous)
        self.assertEqual(self.train("train.epochs=3", run="runs/fortran"), three)
        self.save(a)
        one = self.train("train.epochs=3", run="runs/one")
        self.assertNotEqual(one, three)

    def test_orders_of_the_ranks(self):
        """(ranks, rows) is the order in which the ranks take turns."""
        orders = np.random.default_rng(6).integers(0, ROWS, (2, 2, 21))
        self.save(orders)
        own = self.train("sampler.per_rank=true", run="runs/own", nproc=2)
        self.save(orders.transpose(0, 2, 1).reshape(2, -1))
        self.assertEqual(self.train(run="runs/shared", nproc=2), own)
        self.save(np.asfortranarray(orders))
        self.assertEqual(self.train("sampler.per_rank=true", run="runs/fortran", nproc=2), own)
        self.save(orders)
        _, err = self.run_program("config.yaml", "--nproc", 3, "sampler.per_rank=true", "--run-dir", "runs/wrong", code=64)
        self.assertIn("order.npy: shape (2, 2, 21) has the orders of 2 ranks, but there are 3", err)

    def test_elastic_on_any_number_of_ranks(self):
        self.save(np.random.default_rng(8).integers(0, ROWS, (2, 50)))
        keys = ("determinism={mode: elastic, shards: 4}", "sampler.batch_size=null", "sampler.global_batch_size=12")
        states = {self.train(*keys, run=f"runs/{n}", nproc=n) for n in (1, 2, 3)}
        self.assertEqual(len(states), 1)
        self.run_program("config.yaml", *keys, "sampler.per_rank=true", "--run-dir", "runs/wrong", code=64, err="sampler.per_rank has orders for a certain one")

    def test_resume_compares_the_rows(self):
        """In the middle of an epoch; the file may move, but not change."""
        orders = np.random.default_rng(9).integers(0, ROWS, (2, 50))
        self.save(orders)
        keys = ("checkpoint.save_every={steps: 3}", "train.epochs=3")
        expected = self.train(*keys, run="runs/whole")
        self.save(orders, "i4", "moved.npy")
        resumed = set()
        for n in (3, 6, 9, 12):
            run = f"runs/cut{n}"
            self.run_program("config.yaml", *keys, "--run-dir", run, code=None, env={"DDPTRAIN_FAULT": f"{n}:kill", "DDPTRAIN_FAULT_FILTER": "checkpoints/"})
            self.assertNotEqual(self.code, 0)
            self.run_program("config.yaml", *keys, "sampler.path=moved.npy", "--run-dir", run)
            self.assertEqual(self.sha(run), expected)
            resumed.update(e["first_step"] for e in self.events("resume", run))
        self.assertTrue({n - 1 for n in resumed} - {0, 7, 14}, resumed)  # within an epoch of 7 steps
        orders[0, 0] += 1
        self.save(orders)
        _, err = self.run_program("config.yaml", *keys, "--run-dir", "runs/whole", "train.epochs=4", code=65)
        self.assertRegex(err, r"its sampler.path had other rows \(SHA-256 [0-9a-f]{12}\.\.\., now [0-9a-f]{12}\.\.\.\); use the same file")
        self.assertEqual(err.count("\n"), 1, err)

    def test_a_file_that_moved_after_the_run(self):
        """audit, bisect and replay get its place as a key; other rows are not accepted."""
        order = np.random.default_rng(10).permutation(ROWS)
        self.save(order)
        self.train("checkpoint.save_every=1", "checkpoint.keep=0")
        self.train("checkpoint.save_every=1", "checkpoint.keep=0", "optimizer.lr=0.03", run="runs/other")
        os.rename(self.path("order.npy"), self.path("moved.npy"))
        for words in (("audit", "runs/test", "--all"), ("bisect", "runs/test", "runs/other"), ("replay", "runs/test", "--step", 3)):
            with self.subTest(words[0]):
                self.assertIn("order.npy", self.run_program(*words, code=None)[1])
                self.assertIn(self.code, (65, 74))
                out, err = self.run_program(*words, "sampler.path=moved.npy", code=71 if words[0] == "bisect" else 0)
                self.assertRegex(out + err, "the run is as recorded|part at step 1: its learning rate is|equal to what runs/test has recorded")
        self.assertIn("part at step 1", self.run_program("bisect", "runs/test", "runs/other", "A.sampler.path=moved.npy", "B.sampler.path=moved.npy", code=71)[1])
        self.save(order[::-1], name="moved.npy")
        self.assertIn("sampler_sha256 is", self.run_program("audit", "runs/test", "--all", "sampler.path=moved.npy", code=71)[1])

    def test_audit_and_eval(self):
        """An audit repeats the rows; without the file a run can be evaluated, but not repeated."""
        order = np.random.default_rng(10).permutation(ROWS)
        self.save(order)
        self.train("dataset.split=0.2", "checkpoint.save_every=1", "checkpoint.keep=0", code=65)  # numbers of all rows, not of the training rows
        self.save(order[order < 36])
        self.train("dataset.split=0.2", "checkpoint.save_every=1", "checkpoint.keep=0")
        self.assertIn("all equal", self.run_program("audit", "runs/test", "--all")[0])
        order[:] = order[::-1]
        self.save(order[order < 36])
        _, err = self.run_program("audit", "runs/test", "--all", code=None)
        self.assertEqual(self.code, program.DIVERGED)
        self.assertRegex(err, r"ledger.jsonl:1: .*sampler_sha256 is \"[0-9a-f]{64}\" as recorded and \"[0-9a-f]{64}\" when it is repeated")
        self.save(order[order < 36], name="reversed.npy")
        self.train("dataset.split=0.2", "sampler.path=reversed.npy", run="runs/other")
        self.assertIn("sampler_sha256 is", self.run_program("bisect", "runs/test", "runs/other", code=program.DIVERGED)[1])
        self.save(order[::-1][order[::-1] < 36])
        self.run_program("bisect", "runs/test", "runs/other", code=program.DIVERGED, err="part at step 1: its rows: rows/number")
        os.remove(self.path("order.npy"))
        self.run_program("eval", "runs/test")

    def test_log_and_check(self):
        self.save([np.r_[0:ROWS], np.r_[0:ROWS - 2, 0, 0], np.r_[0:ROWS - 2, 0, 1]])
        out, _ = self.run_program("check", "config.yaml")
        line = f"order.npy: 3 epochs of {ROWS} rows; epoch 2 repeats 2 and leaves out 2 training rows, and 1 other epoch has not each row once"
        self.assertIn(f"\nsampler        {line}\n", out)
        self.assertIn("6 batches, 6 steps", out)
        self.train()
        self.assertEqual(self.read("runs/test/log.txt").count(f"sampler: {line}\n"), 1)
        self.save(np.arange(ROWS - 5))
        self.run_program("check", "config.yaml",
                         out=[f"order.npy: 1 epoch of {ROWS - 5} rows; epoch 1 repeats 0 and leaves out 5 training rows; 5 rows are in no epoch\n", "5 batches, 5 steps"])

    def test_bad_files(self):
        cases = [
            (np.arange(ROWS + 1), 65, r"order.npy: value \[45\] is 45, but the 45 training rows are numbered 0 to 44"),
            (np.array([[0, 1], [2, -1]]), 65, r"value \[1, 1\] is -1, but"),
            (np.asfortranarray([[0, 1, 2], [2, 99, 1]]), 65, r"value \[1, 1\] is 99, but"),
            (np.array([2**64 - 1], "u8"), 65, r"value \[0\] is 18446744073709551616, but"),
            (np.arange(3.0), 65, "its values are float64, but sampler.path needs integers"),
            (np.ones(3, bool), 65, "its values are bool, but"),
            (np.zeros((1, 2, 3), int), 65, r"shape \(1, 2, 3\), but sampler.path needs \(rows\) or \(epochs, rows\)"),
            (np.zeros(0, int), 65, r"shape \(0\) has no rows"),
            (np.zeros((0, 4), int), 65, r"shape \(0, 4\) has no rows"),
            (np.zeros((2, 0), int), 65, "its rows have 0 values"),
            (np.array(3), 65, "it is a single number"),
            (np.array(["a"]), 65, "texts; save numbers"),
        ]
        for array, code, message in cases:
            with self.subTest(message):
                np.save(self.path("order.npy"), array)
                for command in ((), ("check",)):
                    _, err = self.run_program(*command, "config.yaml", code=code)
                    self.assertRegex(err, message)
                    self.assertEqual(err.count("\n"), 1, err)
        self.assertFalse(os.path.exists(self.path("runs/test/metrics.jsonl")))
        self.save(np.arange(ROWS))
        with open(self.path("order.npy"), "r+b") as f:
            f.truncate(200)
        _, err = self.run_program("config.yaml", code=65)
        self.assertRegex(err, "it has 200 bytes, but its header says [0-9]+; copy the file again")
        with open(self.path("order.npy"), "wb") as f:
            np.savez(f, np.arange(3))
        self.assertIn("order.npy: this is an archive of arrays; sampler.path needs one array of numpy.save", self.run_program("config.yaml", code=65)[1])
        self.write("order.npy", "0 1 2\n")
        self.assertIn("order.npy: this is not an array as numpy.save writes it", self.run_program("config.yaml", code=65)[1])
        os.remove(self.path("order.npy"))
        self.assertRegex(self.run_program("config.yaml", code=None)[1], "sampler.path.*order.npy.*No such file")
        self.assertIn(self.code, (64, 65, 74))

    def test_bad_configs(self):
        for keys, message in ((["sampler.path=null"], "type indices needs path"), (["sampler.type=distributed"], "path is for type indices, not distributed"),
                              (["sampler.type=weighted", "sampler.path=null", "sampler.per_rank=true"], "per_rank is for type indices, not weighted")):
            with self.subTest(message):
                self.assertIn(message, self.run_program("check", "config.yaml", *keys, code=64)[1])

    def test_exported_script(self):
        """Its class gives each rank the same rows."""
        self.save([np.arange(10), np.arange(10)[::-1]])
        self.write_rows("rows.h5", range(10))
        for keys, expected in (((), [[9, 6, 3, 0], [8, 5, 2, 9], [7, 4, 1, 8]]), (("sampler.drop_last=true",), [[9, 6, 3], [8, 5, 2], [7, 4, 1]])):
            self.run_program("export", "config.yaml", "--format", "pytorch", "--out", "train.py", *keys)
            code = self.read("train.py")
            compile(code, "train.py", "exec")
            self.assertIn('sampler = IndexSampler("order.npy", world, rank' + (", drop_last=True)" if keys else ")"), code)
            self.assertEqual(self.rows_of(code, 3, 3, drop_last=bool(keys)), expected)
        _, err = self.run_program("export", "config.yaml", "--format", "pytorch", "--out", "refused.py", "sampler.per_rank=true", code=64)
        self.assertIn("sampler.per_rank cannot be expressed in a PyTorch script", err)

    def rows_of(self, code, world, epoch, **keys):
        sampler = [n for n in ast.parse(code).body if isinstance(n, ast.ClassDef) and n.name == "IndexSampler"]
        data = types.SimpleNamespace(Sampler=object)
        space = {"np": np, "torch": types.SimpleNamespace(utils=types.SimpleNamespace(data=data))}
        exec(compile(ast.Module(sampler, []), "sampler", "exec"), space)
        out = []
        for rank in range(world):
            own = space["IndexSampler"](self.path("order.npy"), world, rank, **keys)
            own.set_epoch(epoch)
            out.append(list(own))
            self.assertEqual(len(own), len(out[-1]))
        return out

    def test_examples_of_the_docs(self):
        with open(os.path.join(program.SOURCE, "docs", "split.md"), encoding="utf-8") as f:
            section = f.read().split("### A sampler of your own")[1].split("\n## ")[0]
        examples = re.findall(r"```python\n(.*?)```", section, re.S)
        self.assertEqual(len(examples), 3)
        config = program.WINE.replace("split: {test: 0.2, seed: 42}", "split: {test: 0.2, shuffle: false}")
        self.write("wine.yaml", config.replace("shuffle: true, seed: 42", "type: indices, path: x.npy"))
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        for example in examples:
            exec(example, {})
            name = re.search(r'np\.save\("(.*?)"', example)[1]
            self.run_program("wine.yaml", f"sampler.path={name}", "--run-dir", f"runs/{name}")
            self.assertEqual(np.load(name).shape[0], 10)
        with h5py.File("datasets/wine.h5") as f:
            y = f["y"][:142]
        for batch in np.load("by_class.npy")[0][: 32 * 5].reshape(5, 32):
            self.assertLessEqual(np.ptp(np.bincount(y[batch], minlength=len(np.unique(y)))), 1)
        lengths = np.random.default_rng(1).integers(1, 100, 142)
        spans = [np.ptp(lengths[batch]) for batch in np.load("buckets.npy")[:, :128].reshape(-1, 32)]
        self.assertLess(max(spans), 40)
        self.assertEqual([sorted(epoch) for epoch in np.load("buckets.npy").tolist()], [list(range(142))] * 10)
