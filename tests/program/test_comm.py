"""ddptrain comm: its check, its table, its exit codes, and how it is started. ctest-labels: dist fault"""
import os, re, signal, subprocess, time, unittest

import program
from program import OK, PEER, STOPPED, USAGE
from test_processes import free_port

PARTS = ["all_reduce", "all_reduce, any memory", "reduce_scatter", "all_gather", "broadcast", "send, recv"]


class Comm(program.Case):
    def check_output(self, out, world, backend, sizes):
        lines = out.splitlines()
        self.assertEqual(lines[0], f"{world} process{'es' if world > 1 else ''}, {backend}")
        self.assertRegex(lines[1], r"^\d{3,} calls of every collective, type and operation: all correct, \d+\.\d\d s$")
        rows = [line.split() for line in lines if re.match(r"^ +\d+ (B|KiB|MiB) ", line)]
        self.assertEqual(len(rows), len(PARTS) * len(sizes) if world > 1 else 0, out)
        for row, size in zip(rows, sizes * len(PARTS)):
            self.assertEqual(" ".join(row[:2]), size)
            self.assertGreater(float(row[2]), 0)
        if world > 1:
            self.assertEqual([line.split(", float32")[0] for line in lines if ", float32" in line], PARTS)

    def test_backends(self):
        for world, options, backend in ((1, [], "self"), (3, [], "shared memory"), (2, ["--backend", "gloo"], "gloo"),
                                        (2, ["--backend", "shm"], "shared memory")):
            with self.subTest(world=world, options=options):
                out, err = self.run_program("comm", "--nproc", world, "--sizes", "4,1000,256K", *options)
                self.check_output(out, world, backend, ["4 B", "1000 B", "256 KiB"])
                self.assertNotIn("\r", err, "a progress bar is for terminals")
        self.assert_no_leftovers()

    def test_many_hosts(self):
        """So many that they are not all connected: every collective, and the bits of shared memory, of small data and along a chain."""
        out, _ = self.run_program("comm", "--nproc", 17, "--sizes", "4", "--backend", "gloo")
        self.check_output(out, 17, "gloo", ["4 B"])
        self.write("test.yaml", """name: test
seed: 1
dataset: {path: datasets/wine.h5, inputs: x, targets: y, split: {test: 0.2, seed: 1}}
sampler: {batch_size: 2}
model: {layers: [linear: {out: 1100}, relu, linear: {out: 1100}, relu, linear: {out: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {epochs: null, steps: 3}
checkpoint: {save_every: 3}
""")
        for backend in "gloo", "shm":
            self.run_program("test.yaml", "--nproc", 17, f"dist.backend={backend}", "--run-dir", "runs/" + backend, "--fresh")
        self.assertEqual(self.sha("runs/gloo"), self.sha("runs/shm"))

    def test_mistakes(self):
        for words, sentence in ((["--sizes", "1K,x"], "expected sizes from 4 to 1G as in 1K,64K,1M, got 'x'"),
                                (["--sizes", "2"], "got '2'"), (["--sizes", "4096G"], "got '4096G'"),
                                (["--sizes", ","], "no size is given"),
                                (["--backend", "tcp"], "expected auto, shm, gloo, mpi or nccl, got 'tcp'"),
                                (["wine.yaml"], "comm takes no config, got 'wine.yaml'")):
            with self.subTest(words=words):
                _, err = self.run_program("comm", *words, code=USAGE)
                self.assertIn(sentence, err)

    def started_by_a_launcher(self, hosts):
        port, ranks = free_port(), []
        for rank in range(2):
            env = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DDPTRAIN_HOST": hosts[rank]}
            ranks.append(self.start("comm", "--sizes", "1K", env=env))
        outs = [p.communicate(timeout=60 * program.SLOW) for p in ranks]
        self.assertEqual([p.returncode for p in ranks], [OK, OK], outs)
        self.assertEqual(outs[1][0], "", "rank 0 speaks")
        return outs[0][0]

    def test_by_the_variables_of_torchrun(self):
        self.check_output(self.started_by_a_launcher(["", ""]), 2, "shared memory", ["1 KiB"])
        self.check_output(self.started_by_a_launcher(["a", "b"]), 2, "gloo", ["1 KiB"])

    def test_the_ranks_that_it_waits_for(self):
        env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        p = self.start("comm", "--sizes", "1K", env=env)
        self.addCleanup(p.kill)
        self.assertRegex(p.stderr.readline(), "^waiting for .*: 1\n$")
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=60 * program.SLOW)

    def test_another_secret(self):
        """Both sides say why: the rank that is rejected, and the one that goes on waiting for it."""
        env = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        self.write("test.yaml", program.WINE)
        first, second = (self.start("test.yaml", env={**env, "RANK": str(rank), "DDPTRAIN_SECRET": f"the secret of rank {rank}"}) for rank in range(2))
        _, err = second.communicate(timeout=60 * program.SLOW)
        self.assertEqual(second.returncode, USAGE, err)
        self.assertIn("the secrets differ", err)
        first.send_signal(signal.SIGTERM)
        out, err = first.communicate(timeout=60 * program.SLOW)
        self.assertEqual((out + err).count("rejected a connection with another secret (is DDPTRAIN_SECRET the same on every rank?)\n"), 1, out + err)

    def test_stopped(self):
        """Nothing is due to be saved, and no message mentions a save."""
        for nproc in (2, 3):  # one process has nothing to measure and is done at once
            p = self.start("comm", "--nproc", nproc, "--sizes", ",".join(["64M"] * 32))
            self.assertIn("process", p.stdout.readline())
            p.send_signal(signal.SIGTERM)
            _, err = p.communicate(timeout=60 * program.SLOW)
            self.assertEqual(p.returncode, STOPPED, err)
            self.assertIn("ddptrain: stopped on request\n", err)
            self.assertNotIn("sav", err)

    def test_a_killed_rank(self):
        """While it measures: the exit code is that of a lost rank, and nothing stays."""
        for backend in ("shm", "gloo"):
            with self.subTest(backend=backend):
                sizes, before = ",".join(["4M"] * 32), set(os.listdir("/dev/shm"))  # other programs may have files there
                p = self.start("comm", "--nproc", 3, "--sizes", sizes, "--backend", backend)
                self.assertIn("3 processes", p.stdout.readline())
                p.stdout.readline()
                killed_rank = max(pid for pid in self.leftovers() if pid != p.pid)
                os.kill(killed_rank, signal.SIGKILL)
                _, err = p.communicate(timeout=30 * program.SLOW)
                self.assertEqual(p.returncode, PEER, err)
                self.assertIn("killed by SIGKILL", err)
                self.assert_no_leftovers()
                self.assertEqual({name for name in os.listdir("/dev/shm") if "ddptrain" in name} - before, set())


if __name__ == "__main__":
    program.main()
