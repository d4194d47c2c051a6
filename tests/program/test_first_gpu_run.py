"""tests/proof/first-gpu-run.sh without a GPU, and on emulated ones with programs of the same names as NVIDIA's. ctest-labels: gpu-emulated"""
import os, subprocess, tarfile, unittest

import program
from test_gpu_ranks import FOLDER

SCRIPT = os.path.join(program.SOURCE, "tests", "proof", "first-gpu-run.sh")


class FirstGpuRun(program.Case):
    def programs(self, **texts):
        """Shell scripts that the script finds before those of the system."""
        os.makedirs(self.path("bin"), exist_ok=True)
        for name, text in texts.items():
            path = self.path(self.write("bin/" + name.replace("_", "-"), f"#!/bin/sh\n{text}\n"))
            os.chmod(path, 0o755)

    def run_script(self, *steps, code, **more):
        env = self.environment({**more, "PATH": self.path("bin") + ":" + os.environ["PATH"]})
        p = subprocess.run([SCRIPT, "--build", os.path.dirname(os.path.dirname(program.BINARY)), "--out", self.path("out"), *steps],
                           env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300 * program.SLOW)
        self.assertEqual(p.returncode, code, p.stdout + p.stderr)
        return p.stdout

    def test_without_a_gpu(self):
        self.programs(nvidia_smi="exit 9")
        out = self.run_script(code=77)
        for step in "machine tests cublaslt nccl repeat trace bench sanitizer".split():
            self.assertRegex(out, rf"(?m)^{step} +skipped: no GPU: nvidia-smi finds none$")
        with tarfile.open(self.path("out.tar.gz")) as archive:
            self.assertIn("out/summary.md", archive.getnames())
        self.assertIn("unknown step 'trance'", subprocess.run([SCRIPT, "trance"], capture_output=True, text=True).stderr)

    @unittest.skipUnless(os.path.exists(os.path.join(FOLDER, "ddptrain_nccl.so")) and not program.SANITIZER, "this build has no emulated GPU")
    def test_on_emulated_gpus(self):
        self.programs(nvidia_smi='[ "$1" != -L ] || printf "GPU 0: x\\nGPU 1: x\\n"', nsys='while [ "${1##*/}" != ddptrain ]; do shift; done; exec "$@"',
                      ctest="echo no tests; exit 77")
        gpus = {"DDPTRAIN_MODULE_DIR": FOLDER, "LD_LIBRARY_PATH": os.path.join(FOLDER, "driver"), "DDPTRAIN_EMULATED_GPUS": "2"}
        out = self.run_script("tests", "cublaslt", "repeat", "trace", code=0, **gpus)
        self.assertRegex(out, r"(?m)^tests +skipped: no tests$")
        for step in ("cublaslt", "repeat", "repeat-bfloat16", "trace"):
            self.assertRegex(out, rf"(?m)^{step} +passed, \d+ s$")
        self.programs(nsys="exit 3")
        out = self.run_script("trace", code=0, **gpus)
        self.assertRegex(out, r"(?m)^trace +passed, \d+ s \(earlier\)$")
        out = self.run_script("--again", "trace", code=1, **gpus)
        self.assertRegex(out, r"(?m)^trace +FAILED with 3: trace.log$")
        with open(self.path("out/summary.md")) as file:
            summary = file.read()
        for row in ("| repeat | passed, ", "| tests | skipped: no tests |", "| trace | FAILED with 3: trace.log |"):
            self.assertIn(row, summary)

    def test_the_limit(self):
        """A step that takes too long is ended with its children, the others are left for the next run."""
        self.programs(nvidia_smi='[ "$1" != -L ] || printf "GPU 0: x\\n"', ctest=f"echo $$ >{self.path('pid')}; sleep 100", nsys="exit 0")
        out = self.run_script("--limit", "6", "tests", "trace", code=75)
        self.assertRegex(out, r"(?m)^tests +stopped by the limit after \d s: tests.log$")
        self.assertRegex(out, r"(?m)^trace +not started: the limit of 6 s$")
        self.assertIn("steps left: 1; run the same command again", out)
        with open(self.path("pid")) as file:
            self.assertFalse(os.path.exists("/proc/" + file.read().strip()))
        out = self.run_script("--limit", "60", "tests", "trace", code=0)
        self.assertRegex(out, r"(?m)^tests +stopped by the limit after \d s: tests.log \(earlier\)$")
        self.assertRegex(out, r"(?m)^trace +passed, \d+ s$")
