"""NCCL on this machine's GPUs, or where there is one only, two processes on it: every collective, and the same bits as through the
host. Skipped without a GPU; tests/program/test_gpu_ranks.py does more on emulated ones. ctest-labels: gpu"""
import unittest

import program
from test_gpu import has_driver


@unittest.skipUnless(has_driver(), "this machine has no NVIDIA driver")
class Nccl(program.Case):
    sees_gpus = True
    SHARED = {"DDPTRAIN_SHARE_GPUS": "1"}  # changes nothing where each process has its own

    given_files = {"test.yaml": program.WINE}

    def test_collectives(self):
        self.run_program("comm", "--backend", "nccl", "--nproc", 2, "--sizes", "1K,1M", env=self.SHARED, timeout=300,
                         out=["2 processes, nccl\n", "all correct"])

    def test_trains_as_through_the_host(self):
        for backend in ("nccl", "gloo"):
            self.run_program("test.yaml", "train.device=cuda", "--nproc", 2, f"dist.backend={backend}", "--run-dir", f"runs/{backend}",
                             env=self.SHARED, timeout=300)
        self.assertEqual(self.sha("runs/nccl"), self.sha("runs/gloo"))
