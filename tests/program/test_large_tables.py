"""Tables that are larger than the memory. ctest-labels: dist"""
import os
import resource
import unittest

import program
from program import OK, SANITIZER

CONFIG = """
dataset: {path: table.csv, split: {test: 0.1, seed: 1}%s}
sampler: {batch_size: 1024}
model: {layers: [{linear: 1}]}
loss: mse
optimizer: {type: sgd, lr: 0.00001}
train: {epochs: 1}
"""
COLUMNS = ", columns: {c0: {missing: median}, c1: {missing: mean}, c2: {type: category, missing: most_frequent}, c3: {type: category}}"
TOKENS = """
dataset: {path: tokens.bin, tokens: {vocabulary: 16, block_size: 8, stride: 1}}
sampler: {batch_size: 4}
model: {layers: [{embedding: {num_embeddings: 16, embedding_dim: 2}}, {linear: 16}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
train: {epochs: null, steps: 3}
"""
LIMIT, ROWS = 52 << 20, 260000


def write_table(path, rows, names=4):
    """Rows of 4 special columns and 60 numbers; with 0 the special ones are numbers, too."""
    lines = []
    for i in range(500):
        numbers = [str((i * 37 + k * 11) % 101 / 8) for k in range(64)]
        if names:
            numbers[:4] = ["" if i % 9 == 4 else numbers[0], "" if i % 7 == 3 else numbers[1], ["red", "blue", ""][i % 3], f"kind {i % 5}"]
        lines.append(",".join(numbers) + f",{i % 10}\n")
    block = "".join(lines)
    with open(path, "w") as f:
        f.write(",".join(f"c{k}" for k in range(64)) + ",y\n")
        for _ in range(rows // 500):
            f.write(block)


class LargeTables(program.Case):
    def table(self, rows, names):
        write_table(os.path.join(self.folder, "table.csv"), rows, names)
        return COLUMNS if names else ""

    def train(self, keys, run, *arguments):
        self.write("test.yaml", CONFIG % keys)
        self.run_program("test.yaml", "--quiet", "--run-dir", run, *arguments)

    def limited(self, what, size, *arguments):
        """(exit code, stderr) of a run with a limit of the system."""
        p = self.start("test.yaml", "--quiet", *arguments, preexec_fn=lambda: resource.setrlimit(what, (size, size)))
        _, err = p.communicate(timeout=300)
        return p.returncode, err

    def test_the_same_numbers_from_memory_and_file(self):
        for names in (0, 4):
            keys = self.table(20000, names)
            self.train(keys, f"memory{names}")
            self.train(keys + ", cache_mb: 1", f"file{names}")
            self.train(keys + ", cache_mb: 1", f"two{names}", "--nproc", 2)
            self.assertEqual(self.sha(f"memory{names}"), self.sha(f"file{names}"))
            fingerprints = [self.events("start", run)[0]["dataset_fingerprint"] for run in (f"memory{names}", f"file{names}", f"two{names}")]
            self.assertEqual(len(set(fingerprints)), 1)

    @unittest.skipIf(SANITIZER, "a sanitizer needs more memory")
    def test_a_table_larger_than_the_memory(self):
        keys = self.table(ROWS, 4)
        self.assertGreater(ROWS * 65 * 8, 2.4 * LIMIT)
        self.write("test.yaml", CONFIG % (keys + ", cache_mb: 2"))
        code, err = self.limited(resource.RLIMIT_DATA, LIMIT)
        self.assertEqual(code, OK, err)
        self.assertEqual(self.events("end")[-1]["samples"], ROWS * 9 // 10)

    def peak(self, rows, number, keys):
        """Bytes of memory that a run needs at most, of 14 inputs and a target."""
        block = "".join(",".join(number((i * 16 + k) * 0.6180339887498949 % 1 - 0.5) for k in range(15)) + "\n" for i in range(1000))
        with open(self.path("rows.csv"), "w") as f:
            f.write(",".join(f"c{k}" for k in range(14)) + ",y\n" + block * (rows // 1000))
        self.write("test.yaml", (CONFIG % keys).replace("table.csv", "rows.csv"))
        self.run_program("test.yaml", "--quiet", "--fresh")
        return self.events("end")[-1]["peak_memory_bytes"]

    def assert_slope(self, limit, number, keys, what):
        """The bytes that each row adds, in one of some tries: what the threads hold at once differs by some hundred KiB."""
        for _ in range(5):
            slope = (self.peak(800000, number, keys) - self.peak(200000, number, keys)) / 600000
            if slope < limit:
                break
        self.assertLess(slope, limit, f"{what}: {slope:.1f} bytes a row")

    @unittest.skipIf(SANITIZER, "a sanitizer needs more memory")
    def test_memory_of_a_table_in_memory(self):
        """Each row that is added needs little more than its 14 inputs and its target as float32, whether its numbers have few digits or
        all of a double."""
        final = 15 * 4
        for name, number in (("short", "{:.5f}".format), ("full", repr)):
            for keys in (", scale: standard", ""):
                self.assert_slope(1.3 * final, number, keys, f"{name}{keys}")

    @unittest.skipIf(SANITIZER, "a sanitizer needs more memory")
    def test_memory_of_a_table_in_a_file(self):
        """Each row that is added needs its place in two orders, of 4 bytes each."""
        self.assert_slope(2.2 * 4, "{:.5f}".format, ", scale: standard, cache_mb: 4", "in a file")

    def write_categories(self, rows, categories):
        with open(self.path("table.csv"), "w") as f:
            f.write("c,d,x,y\n" + "".join(f"{'' if i % 11 == 5 else f'k{i * 7919 % categories}'},{'uv'[i % 2]},{i % 97 / 8},{i % 3}\n" for i in range(rows)))

    RULES = ", scale: standard, columns: {c: {type: category, missing: indicator}, d: category}"

    def test_categories_in_memory_are_those_of_the_file(self):
        """One-hot features are kept as an index in memory, and not where rows are read for each batch; windows of rows, too."""
        self.write_categories(3000, 40)
        for name, keys in (("rows", self.RULES), ("windows", ", window: {steps: 3, horizon: 1}" + self.RULES)):
            for cache in (1024, 0):
                config = (CONFIG % (keys + f", cache_mb: {cache}")).replace("[{linear: 1}]", "[{linear: 1}]" if name == "rows" else "[flatten, {linear: 1}]")
                self.write("test.yaml", config.replace("split: {test: 0.1, seed: 1}", "split: {test: 0.1, shuffle: false}"))
                self.run_program("test.yaml", "--quiet", "--run-dir", f"{name}{cache}")
            self.assertEqual(self.sha(f"{name}1024"), self.sha(f"{name}0"), name)

    @unittest.skipIf(SANITIZER, "a sanitizer needs more memory")
    def test_memory_of_one_hot_categories(self):
        """That of a row does not grow with the categories: with 500 of them its features are 2,000 bytes."""
        peaks = []
        for rows in (20000, 120000):
            self.write_categories(rows, 500)
            self.write("test.yaml", CONFIG % self.RULES)
            self.run_program("test.yaml", "--quiet", "--fresh")
            peaks.append(self.events("end")[-1]["peak_memory_bytes"])
        self.assertLess((peaks[1] - peaks[0]) / 100000, 100)

    @unittest.skipIf(SANITIZER, "a sanitizer needs more memory")
    def test_more_rows_than_an_order_of_them_fits_in_memory(self):
        """From 2^32 rows on an epoch needs no memory for its order; a shuffled split does, and says so."""
        with open(self.path("tokens.bin"), "wb") as f:
            f.truncate(2 * (1 << 32) + 1000)
        self.write("test.yaml", TOKENS)
        code, err = self.limited(resource.RLIMIT_DATA, LIMIT)
        self.assertEqual(code, OK, err)
        self.assertEqual(self.events("start")[-1]["train_rows"], (1 << 32) + 500 - 8)
        code, err = self.limited(resource.RLIMIT_DATA, LIMIT, "dataset.split=0.1")
        self.assertEqual(code, 74)
        self.assertRegex(err, r"no memory for the split, which dataset.split.shuffle: false does not need: 3\d{4} MiB are needed")

    def test_no_folder_for_the_rows(self):
        self.table(20000, 0)
        self.write("test.yaml", CONFIG % ", cache_mb: 1")
        _, err = self.run_program("test.yaml", code=74, env={"TMPDIR": "/nowhere"})
        self.assertRegex(err, "table.csv: its rows need more than dataset.cache_mb and are kept in a temporary file in /nowhere "
                                   ".*: cannot create a file in '/nowhere': No such file")

    def test_no_space_for_the_rows(self):
        self.table(20000, 0)
        self.write("test.yaml", CONFIG % ", cache_mb: 1")
        code, err = self.limited(resource.RLIMIT_FSIZE, 1 << 20)
        self.assertEqual(code, 74)
        self.assertRegex(err, "table.csv: its rows need more than dataset.cache_mb .*: File too large")
