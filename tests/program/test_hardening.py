"""The program and its modules are built with the compiler's and the linker's protections, read back with readelf; and a stack or a
memory too small is refused with a sentence instead of a crash. ctest-labels: unit"""
import glob, os, resource, subprocess, unittest
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
        out, err = p.communicate(timeout=60)
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
        for kib in range(12000, 60000, 2000):
            codes[kib], said = self.limited(resource.RLIMIT_AS, kib, "c.yaml", "--fresh")
            self.assertIn(codes[kib], (OK, USAGE, 74, 127), f"{kib} KiB: {said}")
            if codes[kib] == USAGE:
                self.assertRegex(said, "the run does not fit in memory: no memory for|the stack")
            self.assertTrue(codes[kib] == OK or said.strip(), kib)
        self.assertIn(USAGE, codes.values())


if __name__ == "__main__":
    unittest.main()
