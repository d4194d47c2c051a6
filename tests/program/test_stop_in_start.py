"""A rank that gets SIGTERM before it has joined the others: no rank waits for it, and the job ends with 75 at once.
ctest-labels: dist fault"""
import contextlib, os, random, shutil, signal, subprocess, time

from program import BEFORE_TIMEOUT, SANITIZER, STOPPED, Case, free_port

CONFIG = """name: test
seed: 1
dataset: {path: datasets/wine.h5, inputs: x, targets: y, split: {test: 0.2, seed: 1}}
sampler: {batch_size: 8}
model: {layers: [linear: {out: 4}, relu, linear: {out: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {epochs: 100000}
checkpoint: {save_every: {steps: 1000}, keep: 1}
"""


def has_begun(pid):
    """Whether the program of a rank runs in the process: until its exec it is the launcher's, which takes the request for its own."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as f:
        return b"\0RANK=" in b"\0" + f.read()
    return False


class StopInStart(Case):
    def halt(self, local_rank, *arguments, **options):
        """A launcher with a rank that is frozen as soon as it exists, before it has joined: again where it was too late for that."""
        for _ in range(500):  # a rank joins within a millisecond of its exec
            launcher, begun, end = self.start(*arguments, **options), [], time.monotonic() + BEFORE_TIMEOUT
            while not any(map(has_begun, begun)):  # without a pause, which would be longer than that
                self.assertIsNone(launcher.poll(), "the launcher has ended")
                self.assertLess(time.monotonic(), end, "waited too long for the rank")
                begun = self.children(launcher)[local_rank:][:1]
            pid = begun[0]
            os.kill(pid, signal.SIGSTOP)
            self.wait_for(lambda: self.state(pid) == "T", what="the pause")
            threads = 2 if SANITIZER == "thread" else 1  # it has one of its own
            if len(os.listdir(f"/proc/{pid}/task")) <= threads:  # others serve the store, and watch the ranks
                return launcher, pid
            launcher.kill()
            launcher.communicate()
            self.assert_no_leftovers()
        self.fail("the ranks always join before they can be frozen")

    def end_with_75(self, launchers):
        """Whether training had not begun: a rank may have joined before it was frozen, which its threads do not always show."""
        is_late = False
        for number, p in enumerate(launchers):
            try:
                out, err = p.communicate(timeout=BEFORE_TIMEOUT)
            except subprocess.TimeoutExpired:
                p.kill()
                self.fail(f"launcher {number} still waits: {p.communicate()}")
            self.assertEqual(p.returncode, STOPPED, f"launcher {number}: {out}{err}")
            is_late = is_late or "stopped on request after step" in err
            if not is_late:
                self.assertRegex(err, "stopped on request before training began; there was nothing to save")
        self.assert_no_leftovers()
        return not is_late

    def repeat(self, attempt, *arguments):
        for _ in range(20):
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            if attempt(*arguments):
                return
        self.fail("the ranks always join before they can be frozen")

    def one_node(self, rank, seconds):
        self.write("c.yaml", CONFIG)
        p, pid = self.halt(rank, "c.yaml", "--nproc", 3, "--no-progress")
        time.sleep(seconds)  # the others join, or try to
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
        return self.end_with_75([p])

    def test_a_rank_that_the_others_wait_for(self):
        self.repeat(self.one_node, 1, 1.0)

    def test_interrupt_of_all_processes(self):
        """Ctrl-C reaches launcher and ranks at once, also a rank that cannot handle it yet."""
        self.write("c.yaml", CONFIG)
        chosen = random.Random(7)
        for trial in range(40):
            p = self.start("c.yaml", "--nproc", 2, "--no-progress", "--run-dir", f"r{trial}", start_new_session=True)
            self.wait_for(lambda: p.poll() is not None or self.children(p), what="a rank")
            time.sleep(chosen.random() * 0.003)
            os.killpg(p.pid, signal.SIGINT)
            out, err = p.communicate(timeout=BEFORE_TIMEOUT)
            self.assertEqual(p.returncode, STOPPED, out + err)

    def test_rank_0(self):
        self.repeat(self.one_node, 0, 1.0)

    def test_while_all_are_starting(self):
        self.repeat(self.one_node, 2, 0)

    def two_nodes(self, node):
        """Each with its launcher, which has no link to the other yet."""
        self.write("c.yaml", CONFIG)
        arguments = ["c.yaml", "--nnodes", 2, "--nproc", 1, "--master-addr", "127.0.0.1", "--master-port", free_port(),
                     "--no-progress", "--node-rank"]
        env = {"DDPTRAIN_SECRET": "a secret of two nodes"}
        launchers = {}
        launchers[node], pid = self.halt(0, *arguments, node, env=env)
        launchers[1 - node] = self.start(*arguments, 1 - node, env=env)
        time.sleep(1.0)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
        return self.end_with_75([launchers[0], launchers[1]])

    def test_the_rank_of_another_node(self):
        self.repeat(self.two_nodes, 1)

    def test_rank_0_of_another_node(self):
        self.repeat(self.two_nodes, 0)
