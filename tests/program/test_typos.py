"""A typo in any key of the config is refused at its place with the right suggestion: a sample of tests/proof/typos.py.
ctest-labels: unit"""
import os
import subprocess
import sys
import unittest

import program


class Typos(unittest.TestCase):
    def test_sample(self):
        script = os.path.join(program.SOURCE, "tests", "proof", "typos.py")
        p = subprocess.run([sys.executable, script, "--ddptrain", program.BINARY, "--sample", "2"], capture_output=True, text=True)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        self.assertIn(" 0 failures", p.stdout)
