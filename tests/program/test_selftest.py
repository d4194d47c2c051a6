"""ddptrain selftest: its checks are right here, it finds a state that is not the known one, and says what fails. ctest-labels: dist"""
import os, re, signal, time

import program
from program import DIVERGED, IO, OK, STOPPED, USAGE


class Selftest(program.Case):
    def folders(self):
        return [name for name in os.listdir(self.path()) if name.startswith("ddptrain-selftest")]

    def test_all_is_right(self):
        out, _ = self.run_program("selftest", code=OK, timeout=300)
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^ddptrain \S+, \d+ processors?$")
        for what, count in (("models, with the bits of every processor", 20), ("checkpoints, saved and resumed", 2),
                            ("processes, with the bits of one", 3), ("collectives of two processes", 2)):
            self.assertRegex(out, rf"(?m)^{what} +{count} of +{count} right +\d+\.\d\d s$")
        self.assertRegex(out, r"(?m)^products of matrices +\d+ GFLOP/s in float32 on \d+ threads?, cpu")
        limit = re.search(r"(?m)^its limit, multiply-adds of registers alone +(\d+) GFLOP/s: products reach (\d+) %$", out)
        self.assertGreater(int(limit[1]), 0)
        self.assertLessEqual(int(limit[2]), 150)  # other programs may run in one of the two times
        self.assertRegex(lines[-1], r"^selftest: \d+ checks, all right, \d+\.\d s$")
        self.assertEqual(self.folders(), [])

    def test_a_flipped_bit_is_found(self):
        """One bit of the state changes before the third step, in each of the runs."""
        out, err = self.run_program("selftest", "--quick", code=DIVERGED, env={"DDPTRAIN_FAULT_FLIP": "0:2:100"}, timeout=300)
        self.assertRegex(out, r"(?m)^models, with the bits of every processor +0 of +5 right")
        self.assertRegex(err, r"^ddptrain: selftest: \d+ of \d+ checks are wrong:\n")
        self.assertRegex(err, r"(?m)^perceptron: its state is [0-9a-f]{16}, but [0-9a-f]{16} on other processors$")
        self.assertEqual(self.folders(), [])

    def test_what_fails_is_said(self):
        """A disk without space: the reason of the run's failure."""
        _, err = self.run_program("selftest", "--quick", code=IO,
                                  env={"DDPTRAIN_FAULT": "1:enospc:ever", "DDPTRAIN_FAULT_FILTER": "checkpoints/"}, timeout=300)
        self.assertRegex(err, r"(?m)^perceptron: exit code 74: .*[Nn]o space left on (the )?device")

    def test_mistakes(self):
        self.run_program("selftest", "--run-dir", "missing", code=IO, err="cannot make a folder for the runs in 'missing': No such file or directory")
        self.run_program("selftest", "wine.yaml", code=USAGE, err="selftest takes no config, got 'wine.yaml'")
        self.run_program("comm", "--quick", code=USAGE, err="--quick")

    def test_under_a_launcher(self):
        """Variables of a launcher do not make the runs ranks of its job."""
        variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
                     "FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "1"}
        out, _ = self.run_program("selftest", "--quick", code=OK, env=variables, timeout=300)
        self.assertRegex(out, r"selftest: \d+ checks, all right")

    def test_a_stop(self):
        """A stop removes the folder and ends the run that is going on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            p = self.start("selftest")
            while not self.folders():
                time.sleep(0.01)
            time.sleep(0.3)
            p.send_signal(number)
            _, err = p.communicate(timeout=300)
            self.assertEqual(p.returncode, STOPPED, err)
            self.assertIn("stopped on request", err)
            self.assertEqual(self.folders(), [])
        self.assert_no_leftovers()
