"""The messages of a run with device: cuda where something is missing: the module, one of its libraries, the driver. ctest-labels: unit"""
import ctypes, os, shutil, subprocess, unittest

import program
from program import USAGE

MODULE = os.path.join(os.path.dirname(program.BINARY), "ddptrain_cuda.so")
NCCL = os.path.join(os.path.dirname(program.BINARY), "ddptrain_nccl.so")


def has_driver():
    try:
        return bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


class Missing(program.Case):
    given_files = {"test.yaml": program.WINE}

    def refused(self, binary, *sentences):
        """As a run and as a check, which prints the rest of its output as well: the same message, nothing started."""
        for words in (["test.yaml"], ["check", "test.yaml"]):
            with self.subTest(words):
                p = subprocess.run([binary, *words, "train.device=cuda"], cwd=self.folder, env=self.environment(),
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300 * program.SLOW)
                self.assertEqual(p.returncode, USAGE, p.stdout + p.stderr)
                for sentence in (*sentences, "use device: cpu"):
                    self.assertIn(sentence, p.stderr)
                self.assertRegex(p.stderr, r"train\.device: cuda needs \w")
                if words[0] == "check":  # all other output of check is complete
                    self.assertRegex(p.stdout, r"(?s)parameters in \d+ tensors.*GPU memory +[\d.]+ MiB, and the workspace of operators: .* optimizer.*"
                                               r"optimizer +\w+: lr.*not here +train\.device: cuda needs")
                self.assertFalse(os.path.exists(self.path("runs")))

    def copy(self):
        """The program in another folder, without its modules."""
        os.mkdir(self.path("bin"))
        return shutil.copy2(program.BINARY, self.path("bin", "ddptrain"))

    def test_module(self):
        self.refused(self.copy(), "a build with CUDA", "the module ddptrain_cuda.so is not installed", "docs/gpu.md")

    def refused_words(self, binary, words, *sentences):
        p = subprocess.run([binary, *words], cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=300 * program.SLOW)
        self.assertEqual(p.returncode, USAGE, p.stdout + p.stderr)
        for sentence in sentences:
            self.assertIn(sentence, p.stderr)

    def test_processes_by_gpus(self):
        self.refused_words(self.copy(), ["test.yaml", "--nproc", "gpu"], "--nproc gpu needs a build with CUDA")

    def test_nccl(self):
        self.refused_words(self.copy(), ["comm", "--backend", "nccl", "--nproc", "2"], "dist.backend: nccl needs a build with "
                           "NCCL and its library: the module ddptrain_nccl.so is not installed", "docs/gpu.md")

    @unittest.skipUnless(os.path.exists(NCCL), "this build has no module for NCCL")
    def test_library_of_nccl(self):
        binary = self.copy()
        with open(NCCL, "rb") as file:
            module = file.read()
        self.assertIn(b"libnccl.so.", module)
        with open(self.path("bin", "ddptrain_nccl.so"), "wb") as file:
            file.write(module.replace(b"libnccl.so.", b"libnxxl.so."))
        self.refused_words(binary, ["comm", "--backend", "nccl", "--nproc", "2"], "NCCL and its library", "libnxxl.so.")

    @unittest.skipUnless(os.path.exists(MODULE), "this build has no module for GPUs")
    def test_library(self):
        binary = self.copy()
        with open(MODULE, "rb") as file:
            module = file.read()
        self.assertIn(b"libcublasLt.so.", module)
        with open(self.path("bin", "ddptrain_cuda.so"), "wb") as file:
            file.write(module.replace(b"libcublasLt.so.", b"libcublasXx.so."))
        self.refused(binary, "a build with CUDA and its libraries", "libcublasXx.so.")

    @unittest.skipUnless(os.path.exists(MODULE), "this build has no module for GPUs")
    @unittest.skipIf(has_driver(), "this machine has NVIDIA's driver")
    def test_driver(self):
        self.refused(program.BINARY, "NVIDIA's driver, which is not installed (libcuda.so.1")

    @unittest.skipIf(has_driver(), "this machine has NVIDIA's driver")
    def test_auto_selects_the_cpu_and_prints_why(self):
        line = "train.device: auto is the CPU: there is no NVIDIA driver\n"
        out, _ = self.run_program("check", "test.yaml")
        self.assertEqual(out.count(line), 1, out)
        self.run_program("test.yaml", "train.epochs=1", "--nproc", "2", err="2 processes on cpu")
        self.assertIn("cpu", self.events("start")[0]["device"])
        out, _ = self.run_program("check", "test.yaml", "train.device=cpu")
        self.assertNotIn("train.device", out)
