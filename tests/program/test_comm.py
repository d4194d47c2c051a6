"""ddptrain comm: its check, its table, its exit codes, and how it is started. ctest-labels: dist fault"""
import os, re, signal

import program
from program import OK, PEER, STOPPED, USAGE, free_port

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
                self.run_program("comm", *words, code=USAGE, err=sentence)

    def show(self, *words):
        """rank -> (before, after), and the lines after this table."""
        out, _ = self.run_program("comm", "--show", *words)
        self.assertEqual([line for line in out.splitlines() if line != line.rstrip()], [])
        head, table, *rest = out.split("\n\n")
        self.head = head
        rows = [re.split(r" {4,}", line[6:]) for line in table.rstrip("\n").splitlines()[1:]]
        return {r: tuple(" ".join(cell.split()) for cell in row) for r, row in enumerate(rows)}, rest

    def test_show(self):
        """The buffers before and after every operation of the tutorials."""
        lists = [" ".join(str(10 * r + i) for i in range(4)) for r in range(4)]
        sums, columns = "60 64 68 72", "0 10 20 30"
        expected = {
            "send": lists[:1] + [lists[0]] + lists[2:], "broadcast": [lists[0]] * 4, "reduce": [sums] + lists[1:], "all_reduce": [sums] * 4,
            "scatter": ["0", "1", "2", "3"], "gather": [columns, "-", "-", "-"], "all_gather": [columns] * 4, "reduce_scatter": sums.split(),
            "all_gather_object": ["[[], [0], [0, 1], [0, 1, 2]]"] * 4}
        for backend in ("shm", "gloo"):
            for operation, after in expected.items():
                with self.subTest(operation, backend=backend):
                    table, rest = self.show(operation, "--nproc", 4, "--backend", backend)
                    self.assertEqual([row[1] for row in table.values()], after)
                    self.assertIn({"shm": "4 processes, shared memory", "gloo": "4 processes, gloo"}[backend], self.head)
                    self.assertEqual(len(rest), 3 if operation == "all_reduce" else 0)
        self.assertIn("send(tensor, dst=3) on rank 2, recv(tensor, src=2) on rank 3", (self.show("recv", "--nproc", 4, "--root", 2), self.head)[1])
        table, _ = self.show("reduce", "--nproc", 4, "--group", "3,1", "--root", 3, "--values", "-(rank + 1) * 2 + i / 4", "--op", "max")
        self.assertEqual(table, {0: ("", "(not in the group)"), 1: ("-4 -3.75", "-4 -3.75"), 2: ("", "(not in the group)"), 3: ("-8 -7.75", "-4 -3.75")})
        self.assertIn("reduce(tensor, dst=3, op=ReduceOp.MAX)", self.head)
        self.assertIn("new_group([1, 3])", self.head)
        table, _ = self.show("barrier", "--nproc", 3)
        times = [[float(re.search(r"at (-?[\d.]+) ms", cell)[1]) for cell in row] for row in table.values()]
        self.assertGreaterEqual(min(leaves for _, leaves in times), max(comes for comes, _ in times) - 0.1)

    def test_show_the_steps_of_all_reduce(self):
        for op, apply in (("sum", sum), ("product", lambda v: v[0] * v[1] * v[2]), ("min", min), ("max", max), ("avg", lambda v: sum(v) / 3)):
            values = [[100 * r + 7 * i + 1 for i in range(3)] for r in range(3)]
            result = " ".join(f"{apply([v[i] for v in values]):.6g}" for i in range(3))
            with self.subTest(op):
                table, (order, ring, end) = self.show("all_reduce", "--nproc", 3, "--op", op, "--values", "100 * rank + 7 * i + 1")
                self.assertEqual([row[1] for row in table.values()], [result] * 3)
                self.assertTrue(" ".join(order.splitlines()[-1].split()).endswith(result), order)
                rows = [re.split(r"  +", line) for line in ring.splitlines()[2:]]
                self.assertEqual([row[0] for row in rows], ["start", "1 combine", "2 combine", "3 copy", "4 copy"])
                self.assertEqual([re.sub(r"[\[\]]", "", cell) for cell in rows[-1][1:]], [result] * 3)
                for row in rows[1:]:
                    self.assertEqual([cell.count("[") for cell in row[1:]], [1] * 3)
                self.assertIn("same bits", end)
        _, (_, ring, end) = self.show("all_reduce", "--nproc", 6, "--values", "1 / (rank + 3)")
        self.assertEqual(len(ring.splitlines()), 2 + 10)
        self.assertRegex(end, r"The results differ: element \d is 1\.217\d+ in order of rank, 1\.217\d+ in the ring")

    def test_show_mistakes(self):
        for words, sentence in ((["all_reduc"], "got 'all_reduc'; did you mean 'all_reduce'?"), (["reduce", "--nproc", 1], "--show needs 2 to 16 processes, as in --nproc 4, but there is 1"),
                                (["reduce", "--nproc", 17], "but there are 17"), (["reduce", "--group", "0,2,2"], "--group: rank 2 is given twice"),
                                (["reduce", "--group", "0,4"], "--group: rank 4 does not exist; there are ranks 0 to 3"),
                                (["reduce", "--group", "-1,2"], "--group: expected ranks as in 0,2, got '-1,2'"),
                                (["reduce", "--group", "0,,1"], "--group: expected ranks as in 0,2, got '0,,1'"),
                                (["reduce", "--group", "2"], "--group: '2' is a single rank"), (["reduce", "--group", "0,2", "--root", "1"], "--root: rank 1 is not in the group"),
                                (["reduce", "--root", "4"], "--root: rank 4 does not exist"), (["reduce", "--op", "mean"], "--op: expected sum, avg, min, max or product, got 'mean'"),
                                (["reduce", "--values", "rank +"], "--values: character 7: the expression ends where a number, a name or '(' is expected"),
                                (["reduce", "--values", "(rank"], "--values: character 6: expected ')'"), (["reduce", "--values", "rank 1"], "--values: character 6: expected an operator"),
                                (["reduce", "--values", "rnak"], "--values: character 1: unknown name 'rnak'; did you mean 'rank'?"), (["reduce", "--values", "sum(i)"], "here each name is one number"),
                                (["reduce", "--values", "(" * 5000], "--values: character "), (["reduce", "--values", "1 / rank"], "--values: '1 / rank' is not finite for rank 0, i 0")):
            with self.subTest(words=words):
                _, err = self.run_program("comm", "--show", *(words if "--nproc" in words else words + ["--nproc", 4]), code=USAGE)
                self.assertIn(sentence, err)
                self.assertEqual(err.count("\n"), 1, err)
        self.run_program("comm", "--nproc", 2, "--group", "0,1", code=USAGE, err="--group, --values, --root and --op need --show OPERATION")

    def started_by_a_launcher(self, hosts):
        port, ranks = free_port(), []
        for rank in range(2):
            env = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DDPTRAIN_HOST": hosts[rank]}
            ranks.append(self.start("comm", "--sizes", "1K", env=env))
        outs = [p.communicate(timeout=180 * program.SLOW) for p in ranks]
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
        p.communicate(timeout=180 * program.SLOW)

    def test_another_secret(self):
        """Both sides say why: the rank that is rejected, and the one that goes on waiting for it."""
        env = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        self.write("test.yaml", program.WINE)
        first, second = (self.start("test.yaml", env={**env, "RANK": str(rank), "DDPTRAIN_SECRET": f"the secret of rank {rank}"}) for rank in range(2))
        _, err = second.communicate(timeout=180 * program.SLOW)
        self.assertEqual(second.returncode, USAGE, err)
        self.assertIn("the secrets differ", err)
        first.send_signal(signal.SIGTERM)
        out, err = first.communicate(timeout=180 * program.SLOW)
        self.assertEqual((out + err).count("rejected a connection with another secret (is DDPTRAIN_SECRET the same on every rank?)\n"), 1, out + err)

    def test_stopped(self):
        """Nothing is due to be saved, and no message mentions a save."""
        for nproc in (2, 3):  # one process has nothing to measure and is done at once
            p = self.start("comm", "--nproc", nproc, "--sizes", ",".join(["64M"] * 32))
            self.assertIn("process", p.stdout.readline())
            p.send_signal(signal.SIGTERM)
            _, err = p.communicate(timeout=180 * program.SLOW)
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
                _, err = p.communicate(timeout=180 * program.SLOW)
                self.assertEqual(p.returncode, PEER, err)
                self.assertIn("killed by SIGKILL", err)
                self.assert_no_leftovers()
                self.assertEqual({name for name in os.listdir("/dev/shm") if "ddptrain" in name} - before, set())
