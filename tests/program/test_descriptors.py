"""A job of two processes under every limit of open files: it runs, or ends at once with 74 and what to do.
ctest-labels: dist fault"""
import resource, subprocess

from program import BEFORE_TIMEOUT, BINARY, IO, OK, SLOW, Case

CONFIG = """name: test
seed: 1
dataset: {path: datasets/wine.h5, inputs: x, targets: y, split: {test: 0.2, seed: 1}}
sampler: {batch_size: 32}
model: {layers: [linear: {out: 3}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.01}
train: {epochs: 1}
checkpoint: {save_every: {epochs: 1}, keep: 1}
"""
ENOUGH = 40


class Descriptors(Case):
    def run_with(self, limit, backend):
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        p = subprocess.run([BINARY, "c.yaml", f"dist.backend={backend}", "--nproc", "2", "--fresh", "--no-progress"], cwd=self.folder,
                           env=self.environment(), capture_output=True, text=True, timeout=BEFORE_TIMEOUT, preexec_fn=lower)
        return p

    def sweep(self, backend):
        self.write("c.yaml", CONFIG)
        codes = {}
        for limit in range(3, ENOUGH + 1):
            with self.subTest(limit=limit):
                p = self.run_with(limit, backend)
                codes[limit] = p.returncode
                if "error while loading shared libraries" in p.stderr:  # the loader's own end
                    continue
                self.assertIn(p.returncode, (OK, IO), p.stderr)
                if p.returncode == IO:
                    self.assertIn("too many open files", p.stderr.lower())
                    self.assertIn("ulimit -n", p.stderr)
        self.assertEqual(codes[ENOUGH], OK)
        first = min(limit for limit in codes if codes[limit] == OK)
        self.assertEqual([limit for limit in codes if limit >= first and codes[limit] != OK], [])

    def test_the_soft_limit_is_raised(self):
        """A launcher of 12 ranks needs 48 descriptors for them, rank 0 22 for its connections."""
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (32, 256))
        self.write("c.yaml", CONFIG)
        p = subprocess.run([BINARY, "c.yaml", "--nproc", "12", "sampler.batch_size=8", "--no-progress"], cwd=self.folder,
                           env=self.environment(), capture_output=True, text=True, timeout=300 * SLOW, preexec_fn=lower)
        self.assertEqual(p.returncode, OK, p.stderr)

    def test_many_processes_under_a_hard_limit(self):
        """A launcher of 48 ranks needs 200 descriptors for them; one of 80 ranks 328."""
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        self.write("c.yaml", CONFIG)
        for count, code in ((48, OK), (80, IO)):
            p = subprocess.run([BINARY, "c.yaml", "--nproc", str(count), "sampler.batch_size=1", "--no-progress", "--fresh"], cwd=self.folder,
                               env=self.environment(), capture_output=True, text=True, timeout=300 * SLOW, preexec_fn=lower)
            self.assertEqual(p.returncode, code, p.stderr)
        self.assertIn("too many open files: the limit of this process is 256, and it needs 328 more than are open; raise the limit, for "
                      "example with 'ulimit -n 368'", p.stderr)

    def test_shared_memory(self):
        self.sweep("auto")

    def test_gloo(self):
        self.sweep("gloo")
