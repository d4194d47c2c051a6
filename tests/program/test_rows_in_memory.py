"""Bits of the rows in the memory of a run flip, as by a fault of the memory: its parent process writes there."""
import os, re, shutil, signal

import numpy as np

import program
from program import DIVERGED

ROWS, VALUES = 3000, 16  # more than a block of 64 KiB
CONFIG = """name: test
dataset: {path: train.npz, validation: validation.npz}
sampler: {batch_size: 30}
model: {layers: [flatten, {linear: {out: 8}}, relu, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.0001}
train: {epochs: 100000000, log_every: 0}
checkpoint: {save_every: {steps: 500}, keep: 3}
"""


class RowsInMemory(program.Case):
    def setUp(self):
        super().setUp()
        self.write("test.yaml", CONFIG)
        rng = np.random.default_rng(5)
        self.floats, self.bytes = {}, {}
        for part, rows in (("train", ROWS), ("validation", ROWS)):
            targets = rng.integers(0, 3, rows)
            self.floats[part] = rng.standard_normal((rows, VALUES)).astype(np.float32)
            self.bytes[part] = rng.integers(0, 256, (rows, 1, 4, 16), dtype=np.uint8)
            np.savez(self.path(f"{part}.npz"), x=self.floats[part], y=targets)
            np.savez(self.path(f"{part}_bytes.npz"), x=self.bytes[part], y=targets)

    def flip(self, pid, rows, bit=3):
        """Changes a bit of the first of two adjacent [rows], which lie so only where all rows are."""
        pattern, found = rows[:2].tobytes(), 0
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for line in maps:
                begin, end, access, name = re.match(r"(\w+)-(\w+) (\S+) \S+ \S+ \S+ *(.*)", line).groups()
                size = int(end, 16) - int(begin, 16)
                if not access.startswith("rw") or name.startswith("[v") or size > 1 << 28:  # the shadow memory of sanitizers
                    continue
                memory.seek(int(begin, 16))
                content = memory.read(size)
                at = content.find(pattern)
                while at >= 0:
                    memory.seek(int(begin, 16) + at)
                    memory.write(bytes([content[at] ^ 1 << bit]))
                    found += 1
                    at = content.find(pattern, at + 1)
        self.assertGreater(found, 0, "the rows were not found in the memory of the process")

    def run_until_flip(self, rows, first, nproc, *words):
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        p = self.start("test.yaml", "--nproc", nproc, *words)
        self.addCleanup(p.kill)
        self.wait_for(self.checkpoints, what="a checkpoint")
        rank = nproc - 1
        pid = p.pid if nproc == 1 else self.ranks(p)[rank]
        os.kill(pid, signal.SIGSTOP)
        self.flip(pid, rows[first:])
        os.kill(pid, signal.SIGCONT)
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, DIVERGED, err)
        return rank, err

    def test_a_flipped_bit_ends_the_run(self):
        cases = ((self.floats["train"], 1500, 1, "train.npz", ()), (self.floats["train"], 2990, 2, "train.npz", ()), (self.floats["validation"], 0, 1, "validation.npz", ()),
                 (self.bytes["train"], 1234, 1, "train_bytes.npz", ("dataset={path: train_bytes.npz, validation: validation_bytes.npz}",)),
                 (self.floats["train"], 700, 1, "train.npz", ("checkpoint.best=train_loss", "checkpoint.save_every=1000000")))
        for rows, first, nproc, name, words in cases:
            with self.subTest(name=name, first=first, nproc=nproc):
                rank, err = self.run_until_flip(rows, first, nproc, *words)
                found = re.search(rf"rank {rank} \(host \S+\): rows (\d+) to (\d+) of {name} \(counted from 0\) have changed in memory between step (\d+) and step (\d+)\. "
                                  r"Memory or the program failed; nothing is saved now; (remove the checkpoints after step \d+, then )?"
                                  "the same command continues from the newest checkpoint", err)
                self.assertTrue(found, err)
                low, high, before, after = map(int, found.groups()[:4])
                self.assertLessEqual(low, first)
                self.assertGreaterEqual(high, first)
                self.assertLess(high - low, 2000)
                self.assertLess(before, after)
                saved = [e["step"] for e in self.events("checkpoint")]
                self.assertLess(max(saved), after)
                self.assertEqual(max(saved) > before, found.group(5) is not None, (saved[-3:], before))

    def test_rows_of_a_filter(self):
        """The message names rows of the file, of which most are left out."""
        rng = np.random.default_rng(6)
        values = rng.integers(-1000, 1000, (18000, VALUES))
        lines = [",".join(map(str, row)) + f",{i % 6 == 5:d},{i % 3}\n" for i, row in enumerate(values)]
        header = ",".join(f"v{i}" for i in range(VALUES)) + ",kept,y\n"
        self.write("all.csv", header + "".join(lines))
        self.write("part-1.csv", header + "".join(lines[:9000]))
        self.write("part-2.csv", header + "".join(lines[9000:]))
        inputs = ", ".join(f"v{i}" for i in range(VALUES))
        for path, name in (("all.csv", r"all\.csv \(counted from 0\)"), ("part-*.csv", r"part-\*\.csv \(counted from 0 through all files\)"),
                           ("[part-1.csv, part-2.csv]", r"part-1\.csv and the files after it \(counted from 0 through all files\)")):
            with self.subTest(path):
                dataset = f'dataset={{path: {path if path[0] == "[" else repr(path)}, inputs: [{inputs}], targets: y, filter: "kept == 1"}}'
                _, err = self.run_until_flip(values[5::6].astype(np.float32), 2990, 1, dataset, "model={layers: [{linear: {out: 8}}, relu, {linear: {out: 3}}]}")
                found = re.search(rf"rows (\d+) to (\d+) of {name} have changed in memory", err)
                self.assertTrue(found, err)
                low, high = map(int, found.groups())
                self.assertLessEqual(low, 2990 * 6 + 5)
                self.assertEqual(high, 17999)
                self.assertEqual(low % 6, 5)

    def test_rows_that_stay_end_no_run(self):
        """Nor does the scaling of the rows, their augmentation or their weights."""
        words = ["train.epochs=3", "checkpoint={save_every: {steps: 20}}"]
        self.run_program("test.yaml", *words, "dataset.scale=standard")
        self.run_program("test.yaml", *words, "--run-dir", "runs/b", "dataset={path: train_bytes.npz, validation: validation_bytes.npz, scale: standard, augment: {horizontal_flip: 0.5}}")
        self.run_program("test.yaml", *words, "--run-dir", "runs/c", "dataset.cache_mb=0")
