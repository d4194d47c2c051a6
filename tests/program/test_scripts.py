# ctest-labels: unit
"""scripts/test.sh with programs in the place of cmake and ctest: a stage passes if all its tests did, and not because tests that
failed in an earlier run pass now."""

import os
import shutil
import stat
import subprocess
import tempfile
import unittest

SOURCE = os.environ.get("DDPTRAIN_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOG = "build/release/Testing/Temporary/LastTestsFailed.log"

# As ctest, whose log of failed tests stays where later runs have none: FAILS are the names of the tests that fail, and
# ENDS is its exit code.
CTEST = f"""#!/bin/sh
echo "$*" >>calls.txt
case "$*" in *--tests-regex*) exit "$AGAIN" ;; esac
n=0
for name in $FAILS; do
    n=$((n + 1))
    [ $n -gt 1 ] || : >{LOG}
    echo "$n:$name" >>{LOG}
done
exit "$ENDS"
"""


class TestScript(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.makedirs(os.path.join(self.folder, os.path.dirname(LOG)))
        os.makedirs(os.path.join(self.folder, "scripts"))
        shutil.copy(os.path.join(SOURCE, "scripts/test.sh"), os.path.join(self.folder, "scripts"))
        for name, text in (("cmake", "#!/bin/sh\n"), ("ctest", CTEST)):
            path = os.path.join(self.folder, name)
            with open(path, "w") as f:
                f.write(text)
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def check_stage(self, fails, ends, again, passes, runs):
        calls = os.path.join(self.folder, "calls.txt")
        if os.path.exists(calls):
            os.remove(calls)
        env = dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}", FAILS=fails, ENDS=str(ends), AGAIN=str(again))
        done = subprocess.run(["bash", "scripts/test.sh", "--only", "release"], cwd=self.folder, env=env, capture_output=True, text=True)
        self.assertEqual(done.returncode == 0, passes, done.stdout + done.stderr)
        with open(calls) as f:
            lines = f.read().splitlines()
        self.assertEqual(len(lines), runs)
        if runs == 2:  # by their names: numbers depend on which tests are excluded
            self.assertEqual(lines[1], f"--preset release --no-tests=error --tests-regex ^({'|'.join(fails.split())})$")

    def test_failed_tests_run_once_more(self):
        self.check_stage("", 0, 0, passes=True, runs=1)
        self.check_stage("a b c", 8, 0, passes=True, runs=2)
        with open(os.path.join(self.folder, "build/unstable.txt")) as f:
            self.assertEqual(f.read(), "release: a, b, c\n")
        self.check_stage("a", 8, 8, passes=False, runs=2)
        self.check_stage("a b c d", 8, 0, passes=False, runs=1)

    def test_failed_tests_of_an_earlier_run(self):
        self.check_stage("a", 8, 0, passes=True, runs=2)
        self.check_stage("", 8, 0, passes=False, runs=1)  # ctest found no tests
        self.check_stage("a", 8, 0, passes=True, runs=2)
        self.check_stage("", 137, 0, passes=False, runs=1)  # it was killed
