"""The program and its modules are built with the compiler's and the linker's protections, read back with readelf; and a stack or a
memory too small is refused with a sentence instead of a crash. ctest-labels: unit"""
import glob, os, resource, signal, sqlite3, subprocess, unittest
import numpy as np
from program import BINARY, Case, OK, SANITIZER, USAGE


def readelf(option, file):
    return subprocess.run(["readelf", "--wide", option, file], stdout=subprocess.PIPE, check=True, text=True).stdout


class Built(Case):
    def test_every_file(self):
        modules = glob.glob(os.path.join(os.path.dirname(BINARY), "ddptrain_*.so"))
        for file in [BINARY, *modules]:
            with self.subTest(os.path.basename(file)):
                segments, dynamic = readelf("--segments", file), readelf("--dynamic", file)
                self.assertIn("DYN ", readelf("--file-header", file))  # position-independent
                self.assertIn("GNU_RELRO", segments)
                self.assertRegex(dynamic, r"BIND_NOW|FLAGS.*NOW")
                stack = [line for line in segments.splitlines() if "GNU_STACK" in line]
                self.assertEqual(len(stack), 1)
                self.assertNotIn("E", stack[0].split()[-2], "the stack is executable")
        self.assertIn("PIE", readelf("--dynamic", BINARY))

    def test_checked_calls(self):
        """A sanitizer build has its own checks instead of these."""
        symbols = readelf("--symbols", BINARY)
        expected = "__asan|__ubsan|__tsan" if SANITIZER else r"__stack_chk_fail"
        self.assertRegex(symbols, expected)
        if not SANITIZER:
            self.assertRegex(symbols, r"__(snprintf|vsnprintf|memcpy|fprintf)_chk")
            for module in glob.glob(os.path.join(os.path.dirname(BINARY), "ddptrain_*.so")):  # those of CUDA and NCCL are compiled by nvcc
                self.assertRegex(readelf("--symbols", module), "__stack_chk_fail", module)


class Limits(Case):
    def limited(self, what, kib, *arguments):
        p = self.start(*arguments, env={"OMP_NUM_THREADS": "1"}, preexec_fn=lambda: resource.setrlimit(what, (kib << 10, kib << 10)))
        out, err = p.communicate(timeout=300)
        return p.returncode, out + err

    def setUp(self):
        super().setUp()
        self.write("c.yaml", """\
dataset: {path: datasets/wine.h5, split: {test: 0.2, seed: 42}}
model: {layers: [{linear: {out: 1024}}, {linear: {out: 1024}}, {linear: {out: 3}}]}
loss: cross_entropy
train: {epochs: 1}
""")

    def test_small_stacks(self):
        """From what the kernel needs for the arguments to what the program needs."""
        for kib in (300, 448, 1024):
            code, said = self.limited(resource.RLIMIT_STACK, kib, "c.yaml", "--fresh")
            self.assertEqual(code, USAGE, said)
            self.assertIn(f"the stack limit is {kib} KiB", said)
        code, said = self.limited(resource.RLIMIT_STACK, 1600, "c.yaml", "--fresh")
        self.assertEqual(code, OK, said)

    @unittest.skipIf(SANITIZER, "a sanitizer needs terabytes of addresses")
    def test_little_memory(self):
        """A limit that the loader survives ends with 0 or a sentence; 127: the loader itself had too little. 64: what the
        config needs is more; 74: the system gave none. None of them is a bug of the program, 70, or the data's fault."""
        codes = {}

        def check(kib):
            codes[kib], said = self.limited(resource.RLIMIT_AS, kib, "c.yaml", "--fresh")
            self.assertIn(codes[kib], (OK, USAGE, 74, 127), f"{kib} KiB: {said}")
            if codes[kib] == USAGE:
                self.assertRegex(said, "the run does not fit in memory: no memory for")
            self.assertTrue(codes[kib] == OK or said.strip(), kib)

        limits = range(12000, 60000, 2000)  # from where the kernel can map the program
        start = next(kib for kib in limits if self.limited(resource.RLIMIT_AS, kib, "--version")[0] != -signal.SIGSEGV)
        for kib in range(start, 60000, 2000):
            check(kib)
        enough = min(kib for kib in codes if codes[kib] == OK)
        for kib in range(max(start, enough - 4000), enough, 100):  # enough to train, but not to save: libhdf5 must not crash there
            check(kib)
        self.assertIn(USAGE, codes.values())

    @unittest.skipIf(SANITIZER, "a sanitizer needs terabytes of addresses")
    def test_many_rows_in_little_memory(self):
        """That rows do not fit is not an error of the config: 74 at every limit below what the run needs, 0 above, and the sentence has
        the bytes and what to do."""
        rows = 400000
        connection = sqlite3.connect(self.path("t.db"))
        connection.execute("create table t (a real, b integer, c text, y text)")
        connection.executemany("insert into t values (?, ?, ?, ?)", ((i / 7, i // 9, "uvw"[i % 3], "nm"[i % 2]) for i in range(rows)))
        connection.commit()
        with open(self.path("t.csv"), "w") as f:
            f.write("a,b,c,y\n" + "".join(f"{i / 7:.3f},{i // 9},{'uvw'[i % 3]},{'nm'[i % 2]}\n" for i in range(rows)))
        np.save(self.path("x.npy"), np.zeros((rows, 12), "f4"))
        np.save(self.path("y.npy"), np.arange(rows) % 2)
        rest = "\nmodel: {layers: [{linear: 8}, relu, {linear: 2}]}\nloss: cross_entropy\ntrain: {steps: 2}\n"
        for name, dataset in (("csv", "path: t.csv, columns: {b: ignore}, split: {test: 0.2}"), ("groups", "path: t.csv, inputs: [a, c], split: {test: 0.2, group: b}"),
                              ("file", "path: t.csv, columns: {b: ignore}, cache_mb: 4, split: {test: 0.2, stratify: true}"),
                              ("folds", "path: t.db, columns: {b: ignore}, split: {folds: 5, fold: 1}"), ("npy", "path: x.npy, scale: standard, split: {test: 0.2}")):
            self.write("c.yaml", f"dataset: {{{dataset}}}{rest}")
            ends = []
            for mib in [*range(20, 100, 8), 300]:
                code, said = self.limited(resource.RLIMIT_AS, mib << 10, "c.yaml", "--fresh")
                self.assertIn(code, (OK, 74), f"{name}, {mib} MiB: {said}")
                ends.append((code, said))
            self.assertEqual(ends[-1][0], OK, ends[-1][1])
            reasons = [said for code, said in ends if code]
            self.assertRegex("".join(reasons), r"the rows of the dataset do not fit in memory: no memory for .*: \d+ MiB are needed, but the system "
                             r"cannot allocate them; \d+ MiB of memory are free here, ulimit -v allows a process \d+ MiB; use a smaller dataset.cache_mb, "
                             "fewer processes on a host or fewer rows")
