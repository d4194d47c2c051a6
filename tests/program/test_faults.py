"""A sample of tests/proof/faults.py with fixed seeds; the full figures are in docs/reliability.md. ctest-labels: dist fault"""
import concurrent.futures, io, os, subprocess, sys, unittest, unittest.mock

import program

os.environ["FAULTS_SLOW"] = str(10 * program.SLOW)
sys.path.insert(0, os.path.join(program.SOURCE, "tests", "proof"))
import faults, faults_cluster as cluster

faults.load_more()

# Tests that mostly wait run concurrently.
QUICK = {"kill": 2, "orphans": 2, "death": 2, "restart": 1, "stale": 1, "give_up": 1, "pairs": 1, "untrusted": 1}
PATIENT = {"stop": 1, "request": 8, "hang": 1, "slow": 1, "missing": 1, "link": 1, "nodes": 1, "lossy": 1, "hosts": 1, "launchers": 1, "endings": 2, "three": 2, "memory": 1, "openmpi": 1, "mpich": 1, "slurm": 1,
           "torchrun": 1}
SEED = 1


def sample(names):
    lines = []

    def run(name, trials):
        return faults.run(program.BINARY, [name], trials, SEED, lines.append)[1] if name in faults.GUARANTEES else 0
    if len(names) == 1:
        return run(*names[0]), lines
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return sum(pool.map(lambda pair: run(*pair), names)), lines


class Faults(unittest.TestCase):
    def check(self, names):
        failures, lines = sample(names)
        self.assertEqual(failures, 0, "\n".join(lines))

    def test_patient(self):
        chosen = [pair for pair in PATIENT.items() if not (program.SANITIZER and pair[0] in ("hang", "torchrun", "slurm"))]
        self.check(chosen)


class Hosts(unittest.TestCase):
    def test_a_set_up_that_fails_leaves_nothing(self):
        """Neither namespaces nor the relay, whichever call fails."""
        for make in (lambda: cluster.Hosts(), lambda: cluster.BadLink(unittest.mock.Mock(binary="bin/ddptrain"), 1, 0, 1)):
            for last in range(9):
                hosts, said, deleted = make(), [], []
                relay = unittest.mock.Mock(stdout=io.StringIO("up\n"))

                def run(words, **_):
                    is_end = words[1:3] == ["netns", "del"]
                    (deleted if is_end else said).append(words[-1])
                    if len(said) > last and not is_end:
                        raise subprocess.CalledProcessError(1, words)
                with unittest.mock.patch.object(cluster.subprocess, "run", run), unittest.mock.patch.object(cluster.subprocess, "Popen", lambda *_, **__: relay):
                    try:
                        with hosts:
                            self.assertEqual((deleted, len(said)), ([], last))
                    except subprocess.CalledProcessError:
                        self.assertEqual(len(said), last + 1)
                self.assertEqual(sorted(deleted), sorted(hosts.names))
                self.assertEqual(relay.kill.called, getattr(hosts, "relay", None) is not None)


for quick in QUICK.items():
    setattr(Faults, "test_" + quick[0], lambda self, pair=quick: self.check([pair]))
