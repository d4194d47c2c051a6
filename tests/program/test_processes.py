"""Real processes and signals: which rank is reported, which processes are left, and every way to start. ctest-labels: dist fault"""
import contextlib, fcntl, os, re, resource, shutil, signal, subprocess, sys, termios, time, unittest

import program
from program import IO, OK, PEER, STOPPED, USAGE, free_port

CONVOLUTION = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 3000, inputs: [3, 16, 16], classes: 4, seed: 3}}
sampler: {batch_size: 32}
model: {layers: [{conv2d: {out: 32, kernel_size: 3, stride: 2}}, relu, {conv2d: {out: 96, kernel_size: 5, padding: 2}}, relu, flatten, {linear: {out: 4}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.002}
train: {epochs: 100000}
"""
ENDLESS = program.LONG.replace("epochs: 12", "epochs: 100000").replace("steps: 200", "steps: 1000000")


class Started(program.Case):
    given_files = {"test.yaml": program.WINE, "endless.yaml": ENDLESS}

    def start_endless(self, *arguments, **options):
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        p = self.start("endless.yaml", *arguments, **options)
        self.addCleanup(self.finish, p)
        self.wait_for(lambda: p.poll() is not None or self.has_steps("runs/endless"), what="the first step")
        return p

    def finish(self, p):
        for pid in self.leftovers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        p.wait()
        for stream in (p.stdout, p.stderr):
            if stream:
                stream.close()

    def environment_of(self, rank, world, port):
        return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


class Processes(Started):
    def test_a_killed_rank_is_named_and_the_others_end(self):
        for killed_rank in (0, 1, 2):
            with self.subTest(killed_rank=killed_rank):
                p = self.start_endless("--nproc", 3)
                pid = self.ranks(p)[killed_rank]
                os.kill(pid, signal.SIGKILL)
                _, err = p.communicate(timeout=program.BEFORE_TIMEOUT)
                self.assertEqual(p.returncode, PEER, err)
                self.assertRegex(err, rf"rank {killed_rank} \(host \S+, pid {pid}\).*SIGKILL")
                for other in {0, 1, 2} - {killed_rank}:
                    self.assertNotRegex(err, rf"ddptrain: rank {other} ")
                self.assert_no_leftovers()

    def test_the_log_of_a_run_says_why_it_failed(self):
        p = self.start_endless("--nproc", 2)
        os.kill(self.ranks(p)[1], signal.SIGKILL)
        p.communicate(timeout=180 * program.SLOW)
        self.assertRegex(self.read("runs/endless/log.txt"), r"\nrank 1 \(host \S+, pid \d+\) was killed by SIGKILL.*\n$")
        p = self.start_endless("--nproc", 2, "--max-restarts", 1, "--fresh")
        os.kill(self.ranks(p)[1], signal.SIGKILL)
        self.wait_for(lambda: "resuming" in self.read("runs/endless/log.txt") or "starting all ranks again" in self.read("runs/endless/log.txt"), what="a restart")
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=180 * program.SLOW)
        text = self.read("runs/endless/log.txt")
        self.assertRegex(text, r"was killed by SIGKILL.*\nstarting all ranks again in ")
        self.assertRegex(text, r"\nstopped on request .*\n$")

    @unittest.skipIf(program.SANITIZER, "128 processes")
    def test_many_ranks_start(self):
        """Their messages fill the channel to the launcher, which does not read before it has started all of them."""
        self.run_program("test.yaml", "sampler.batch_size=128", "train.epochs=1", "train.evaluate_every=0", "--nproc", 128)

    @unittest.skipIf(program.SANITIZER, "128 processes")
    def test_open_files_of_rank_0_grow_by_one_for_each_rank(self):
        files = {}
        for count in (32, 128):
            p = self.start_endless("--nproc", count, "sampler.batch_size=1", "--fresh")
            self.wait_for(lambda: self.events("step", "runs/endless"), what="a step")
            pid = self.ranks(p)[0]
            files[count] = min(len(os.listdir(f"/proc/{pid}/fd")) for _ in range(20))  # some are open for a moment
            p.kill()
            p.communicate()
            self.assert_no_leftovers()
        self.assertEqual(files[128] - files[32], 96, files)

    def test_nothing_is_left_after_the_launcher_is_killed(self):
        p = self.start_endless("--nproc", 3)
        self.assertEqual(len(self.leftovers()), 4)
        p.kill()
        p.wait()
        self.assert_no_leftovers()

    def test_nothing_is_left_after_a_stopped_rank(self):
        p = self.start_endless("--nproc", 2)
        os.kill(self.ranks(p)[1], signal.SIGSTOP)
        p.kill()
        p.wait()
        self.assert_no_leftovers()

    def test_signals_to_the_launcher(self):
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2, signal.SIGALRM):
            p = self.start_endless("--nproc", 2)
            p.send_signal(sent)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, STOPPED, err)
            self.assertEqual(err.count("stopped on request"), 1, err)
            self.assertRegex(self.read("runs/endless/log.txt"), r"\nstopped on request after step \d+.*; the state is saved, .*\n$")
            self.assertTrue(self.checkpoints("runs/endless"))
            self.assert_no_leftovers()

    def test_a_signal_to_one_rank_stops_all(self):
        """A scheduler may send SIGTERM to any rank: all stop after the same step."""
        for asked in (0, 1, 2):
            p = self.start_endless("--nproc", 3)
            os.kill(self.ranks(p)[asked], signal.SIGTERM)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, STOPPED, err)
            self.assertTrue(self.checkpoints("runs/endless"))
            self.assertEqual(self.events("stopped", "runs/endless")[-1]["step"], self.events("checkpoint", "runs/endless")[-1]["step"])
            self.assert_no_leftovers()

    def test_a_suspended_rank_is_woken_to_stop(self):
        """SIGTERM alone would wait until it is continued; within the grace all save and end."""
        p = self.start_endless("--nproc", 2)
        os.kill(self.ranks(p)[1], signal.SIGSTOP)
        time.sleep(0.2)
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, STOPPED, err)
        self.assertTrue(self.checkpoints("runs/endless"))

    def test_the_end_of_an_allocation(self):
        """Slurm names the time: the run stops and saves before it, by twice the grace or a tenth of what is left."""
        for left in (3600, 400):
            end = int(time.time()) + left
            _, err = self.run_program("test.yaml", "train.epochs=1", "--fresh", env={"SLURM_JOB_END_TIME": str(end)})
            said = re.search(r"the allocation ends at \d{4}-\S+ \S+; this run stops and saves (\d+) s before", err)
            self.assertTrue(said, err)
            least, most = (min(60, rest / 10) for rest in (end - time.time(), left))  # it is read between these two
            self.assertTrue(least - 1 < int(said[1]) <= most, said)

    def test_a_second_interrupt_does_not_wait(self):
        p = self.start_endless("--nproc", 2)
        os.kill(self.ranks(p)[1], signal.SIGSTOP)  # so that a polite end cannot come
        self.send_and_wait(p, signal.SIGINT)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=180 * program.SLOW)
        self.assertNotEqual(p.returncode, OK)
        self.assert_no_leftovers()

    def test_a_stop_while_joining_ends_at_once(self):
        """Rank 0 waits for a rank that never comes, with and without a launcher."""
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            for arguments, env in ((["--nnodes", 2, "--node-rank", 0, "--master-addr", "127.0.0.1", "--master-port", free_port()], None),
                                   ([], self.environment_of(0, 2, free_port()))):
                with self.subTest(signal=sent, arguments=arguments):
                    p = self.start("test.yaml", *arguments, env=env)
                    self.wait_for(lambda: self.catches(p.pid, sent), what="the handlers of stop requests")
                    time.sleep(0.5 * program.SLOW)
                    p.send_signal(sent)
                    p.communicate(timeout=program.BEFORE_TIMEOUT)
                    self.assertEqual(p.returncode, STOPPED)
                    self.assert_no_leftovers()
                    self.assertFalse(os.path.exists(self.path("runs")))

    def test_a_node_that_cannot_start_reports_it(self):
        """Its data is missing: the other node receives the error instead of waiting until dist.timeout."""
        for verb in ([], ["eval"]):
            for bad in (0, 1):
                with self.subTest(verb=verb, bad=bad):
                    port = free_port()
                    nodes = [self.start(*verb, "test.yaml", "--nnodes", 2, "--node-rank", n, "--master-addr", "127.0.0.1", "--master-port", port,
                                        *(["dataset.path=gone.h5"] if n == bad else [])) for n in (0, 1)]
                    said = [p.communicate(timeout=180 * program.SLOW)[1] for p in nodes]
                    self.assertIn("gone.h5", said[bad])
                    self.assertRegex(said[1 - bad], rf"rank {bad} \(.*gone\.h5")
                    self.assertIn(nodes[1 - bad].returncode, (program.PEER, nodes[bad].returncode))
                    self.assertNotIn(nodes[bad].returncode, (program.OK, program.PEER))
            self.run_program("test.yaml")

    def alone(self, node, port):
        """The launcher of a node whose first rank is killed while it waits for the other node."""
        p = self.start("test.yaml", "--nproc", 2, "--nnodes", 2, "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port)
        self.addCleanup(self.finish, p)
        self.wait_for(lambda: 2 * node in self.ranks(p), what="the rank")
        time.sleep(1.5 * program.SLOW)  # it looks for the other node
        os.kill(self.ranks(p)[2 * node], signal.SIGKILL)
        time.sleep(program.SLOW)
        self.assertIsNone(p.poll())
        return p

    def test_a_node_that_fails_before_it_joins_informs_the_other(self):
        for node in (0, 1):
            with self.subTest(node=node):
                port = free_port()
                failed = self.alone(node, port)
                other = self.start("test.yaml", "--nproc", 2, "--nnodes", 2, "--node-rank", 1 - node, "--master-addr", "127.0.0.1", "--master-port", port)
                self.addCleanup(self.finish, other)
                for p in (failed, other):
                    _, err = p.communicate(timeout=180 * program.SLOW)
                    self.assertEqual(p.returncode, program.PEER)
                    self.assertRegex(err, rf"rank {2 * node} \(.* was killed by SIGKILL")
                self.assert_no_leftovers()

    def test_a_request_to_stop_ends_the_wait_for_nodes_to_inform(self):
        for node in (0, 1):
            p = self.alone(node, free_port())
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=program.BEFORE_TIMEOUT)
            self.assertEqual(p.returncode, program.PEER)

    def two_nodes(self, *different, more=(), counts=(2, 2), binaries=(None, None)):
        """Runs two nodes whose command lines differ; (exit code, stderr) of each, soon after the start."""
        where = ["--master-addr", "127.0.0.1", "--master-port", free_port(), *more]
        nodes = [self.start(*own, "--nnodes", count, "--node-rank", n, *where, binary=binaries[n]) for n, (own, count) in enumerate(zip(different, counts))]
        for p in nodes:
            self.addCleanup(self.finish, p)
        said = [p.communicate(timeout=program.BEFORE_TIMEOUT)[1] for p in nodes]
        self.assert_no_leftovers()
        self.assertFalse(os.path.exists(self.path("runs")))
        return [(p.returncode, s) for p, s in zip(nodes, said)]

    def test_nodes_with_other_numbers_of_processes_end(self):
        """Also with --max-restarts: another start would bring nothing else."""
        for zero, one, counts in ((2, 1, ("4 ranks, 2 on each of 2 nodes", "2 ranks, 1 on each of 2 nodes")),
                                  (1, 3, ("2 ranks, 1 on each of 2 nodes", "6 ranks, 3 on each of 2 nodes"))):
            with self.subTest(zero=zero, one=one):
                (code, here), (other, there) = self.two_nodes(*[["test.yaml", "--nproc", n] for n in (zero, one)], more=["--max-restarts", 2])
                self.assertEqual((code, other), (USAGE, USAGE), here + there)
                self.assertRegex(here, rf"rank \d \(host .*, node 1: {counts[1]}\) expects another number of ranks than rank 0 \({counts[0]}\): --nproc")
                self.assertIn(f"it expects {counts[0]}, this rank {2 * one}: --nproc", there)
                self.assertNotIn("starting all ranks again", here + there)

    def test_nodes_that_count_other_nodes_end(self):
        (code, here), (other, there) = self.two_nodes(["test.yaml"], ["test.yaml"], counts=(2, 3))
        self.assertEqual((code, other), (USAGE, USAGE), here + there)
        self.assertIn("node 1: 3 ranks, 1 on each of 3 nodes) expects another number of ranks than rank 0 (2 ranks, 1 on each of 2 nodes)", here)
        self.assertIn("it expects 2 ranks, 1 on each of 2 nodes, this rank 3", there)

    def test_a_node_whose_config_cannot_be_read_reports_it(self):
        self.write("broken.yaml", program.WINE.replace("batch_size", "batch_sise"))
        for config, words in (("gone.yaml", "gone.yaml"), ("broken.yaml", "batch_sise")):
            for bad in (0, 1):
                with self.subTest(config=config, bad=bad):
                    lines = [[config if n == bad else "test.yaml", "--nproc", 2] for n in (0, 1)]
                    said = self.two_nodes(*lines, more=["--max-restarts", 2])
                    self.assertEqual([code for code, _ in said], [USAGE, USAGE], said)
                    self.assertRegex(said[1 - bad][1], rf"(?s)rank {2 * bad} \(host .*{words}")
                    self.assertIn(words, said[bad][1])

    def test_nodes_with_other_programs_end(self):
        """A copy of the program that calls itself another version."""
        other = self.path("other/ddptrain")
        shutil.copytree(os.path.dirname(program.BINARY), self.path("other"), ignore=lambda folder, names: [n for n in names if not n.startswith("ddptrain")])
        with open(other, "rb") as f:
            contents = f.read()
        mine = re.search(rb"ddptrain: (\d+\.\d+\.\d+)\n", contents)
        with open(other, "wb") as f:
            f.write(contents.replace(mine[0], mine[0][:-2] + b"x\n"))
        for code, err in self.two_nodes(["test.yaml"], ["test.yaml"], binaries=(None, other)):
            self.assertEqual(code, USAGE, err)
            self.assertIn("the program, the config, the data or the model is not the same on all ranks: rank 1 differs", err)
            self.assertIn(f"rank 0: {mine[0].decode().strip()}\n  rank 1: {mine[0][:-2].decode()}x", err)

    def test_a_stop_at_any_moment_of_the_start_is_75(self):
        for trial in range(12):
            p = self.start("endless.yaml", "--nproc", 2, "--run-dir", f"runs/{trial}")
            self.wait_for(lambda: self.catches(p.pid, signal.SIGTERM), what="the program's first instructions")
            time.sleep(0.008 * trial)
            p.send_signal(signal.SIGTERM)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, STOPPED, err)
            self.assert_no_leftovers()

    def test_a_closed_terminal_saves(self):
        for nproc in (1, 2):
            p = self.start_endless("--nproc", nproc)
            p.send_signal(signal.SIGHUP)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, STOPPED, err)
            self.assertTrue(self.checkpoints("runs/endless"))

    def test_too_few_open_files_for_the_processes(self):
        p = self.start("test.yaml", "--nproc", 12, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32)))
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, IO, err)
        self.assertIn("too many open files: the limit of this process is 32, and it needs 56 more than are open; raise the limit, for "
                      "example with 'ulimit -n 96'", err)
        self.assert_no_leftovers()

    def test_a_config_from_a_pipe_is_for_one_process(self):
        for more, code in ((["--nproc", 1], OK), (["--nproc", 2], USAGE), (["--max-restarts", 1], USAGE)):
            with self.subTest(more=more):
                p = subprocess.Popen([program.BINARY, "/dev/stdin", "train.epochs=1", "--fresh", *map(str, more)], cwd=self.folder,
                                     env=self.environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                _, err = p.communicate(program.WINE, timeout=180 * program.SLOW)
                self.assertEqual(p.returncode, code, err)
                self.assertEqual("a pipe can be read only once; write it to a file" in err, code == USAGE, err)
        with open(self.path("test.yaml")) as file:
            p = subprocess.Popen([program.BINARY, "/dev/stdin", "train.epochs=1", "--fresh", "--nproc", "2"], cwd=self.folder,
                                 env=self.environment(), stdin=file, stderr=subprocess.PIPE, text=True)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, OK, err)

    def test_nohup_and_a_scripts_ampersand_are_respected(self):
        def ignore():
            for number in (signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)

        for nproc in (1, 2):
            p = self.start_endless("--nproc", nproc, preexec_fn=ignore)
            for number in (signal.SIGHUP, signal.SIGINT):
                p.send_signal(number)
            time.sleep(0.3)
            self.assertIsNone(p.poll())
            p.send_signal(signal.SIGTERM)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, STOPPED, err)
            self.assertEqual(err.count("stopping after this step (SIGTERM)"), nproc - 1, err)

    def test_one_process_needs_no_launcher(self):
        p = self.start_endless()
        self.assertEqual(self.leftovers(), [p.pid])
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, STOPPED)

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = [self.start("test.yaml", "--nproc", 2, "--run-dir", f"runs/{i}") for i in range(4)]
        for j in jobs:
            _, err = j.communicate(timeout=180 * program.SLOW)
            self.assertEqual(j.returncode, OK, err)
        self.assertEqual(len({self.sha(f"runs/{i}") for i in range(4)}), 1)

    def test_started_by_hand(self):
        """The variables of torchrun's contract, set by someone else."""
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/reference")
        port = free_port()
        ranks = [self.start("test.yaml", env=self.environment_of(r, 2, port)) for r in (1, 0)]
        for p in ranks:
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, OK, err)
        self.assertEqual(self.sha(), self.sha("runs/reference"))

    def test_ranks_that_disagree_end_with_the_difference(self):
        self.write("other.yaml", program.WINE.replace("lr: 0.001", "lr: 0.002").replace("checkpoint:", "name: test\ncheckpoint:"))
        port = free_port()
        ranks = [self.start("test.yaml", env=self.environment_of(0, 2, port)),
                 self.start("other.yaml", env=self.environment_of(1, 2, port))]
        for p in ranks:
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, USAGE, err)
            self.assertIn("lr: 0.001", err)
            self.assertIn("lr: 0.002", err)
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_two_jobs_with_one_port(self):
        """The second one ends at once and says why, also if it counts as the same job; the first one is not disturbed."""
        port = free_port()
        first = [self.start("endless.yaml", "--no-progress", env=self.environment_of(r, 2, port)) for r in range(2)]
        self.addCleanup(lambda: [p.kill() for p in first if p.poll() is None])
        self.wait_for(lambda: first[0].poll() is not None or self.has_steps("runs/endless"), what="the first step")
        for more, why in ({}, r"rank 1 has joined already \(host "), ({"DDPTRAIN_JOB_ID": "second"}, "it belongs to another job"):
            second = [self.start("test.yaml", env={**self.environment_of(r, 2, port), **more}) for r in range(2)]
            said = [p.communicate(timeout=180 * program.SLOW)[1] for p in second]
            self.assertEqual([p.returncode for p in second], [USAGE, USAGE], said)
            self.assertIn(f"port {port} on 127.0.0.1, where rank 0 must listen, is in use by another program; set MASTER_PORT", said[0])
            self.assertRegex(said[1], rf"rank 0 at 127.0.0.1:{port} rejected rank 1: {why}")
        self.assertEqual([p.poll() for p in first], [None, None])
        first[0].terminate()
        said = ["".join(p.communicate(timeout=180 * program.SLOW)) for p in first]
        self.assertEqual([p.returncode for p in first], [STOPPED, STOPPED], said)

    def test_a_rank_that_never_comes_is_named(self):
        _, err = self.run_program("test.yaml", "dist.timeout=1", code=PEER, env=self.environment_of(0, 2, free_port()))
        self.assertRegex(err, r"rank 1|1 of 2")

    def test_mpich_with_wrappers(self):
        """The ranks find their job by MPICH's process manager, also if a shell and another program are between them."""
        ranks = ('import os, subprocess, sys; size = "2"; ranks = [subprocess.Popen(["sh", "-c", \'"$@"; exit $?\', "sh", *sys.argv[3:]], '
                 'env={**os.environ, "PMI_RANK": r, "PMI_SIZE": size, "MPI_LOCALRANKID": r, "MPI_LOCALNRANKS": size}) for r in "01"]; '
                 'sys.exit(max(p.wait() for p in ranks))')
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/reference")
        p = subprocess.run([sys.executable, "-c", ranks, "--control-port", f"n1:{os.getpid()}", "nice", program.BINARY, "test.yaml"], cwd=self.folder,
                           env=self.environment(), capture_output=True, text=True, timeout=300 * program.SLOW, stdin=subprocess.DEVNULL)
        self.assertEqual(p.returncode, OK, p.stderr)
        self.assertEqual(self.sha(), self.sha("runs/reference"))

    def test_rank_without_number_of_ranks(self):
        """A rank that does not know how many there are does not train alone."""
        _, err = self.run_program("test.yaml", code=USAGE, env={"PALS_RANKID": "0", "PALS_LOCAL_RANKID": "0", "PALS_LOCAL_SIZE": "2"})
        self.assertIn("PMI_SIZE, their number, is not set; set WORLD_SIZE to it", err)
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_mpirun(self):
        mpirun = shutil.which("mpirun")
        if not mpirun:
            raise unittest.SkipTest("mpirun (openmpi-bin) is not installed")
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/reference")
        p = subprocess.run([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", program.BINARY, "test.yaml"], cwd=self.folder,
                           env=self.environment(), capture_output=True, text=True, timeout=300 * program.SLOW, stdin=subprocess.DEVNULL)
        self.assertEqual(p.returncode, OK, p.stderr)
        self.assertEqual(self.sha(), self.sha("runs/reference"))


@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one processor")
@unittest.skipIf(program.SANITIZER, "slow, and a sanitizer has threads of its own")
class Threads(program.Case):
    """A process takes no more threads than processors are left to it: by a mask, a quota, other ranks of the host."""

    def setUp(self):
        super().setUp()
        self.write("convolution.yaml", CONVOLUTION)
        self.write("wide.yaml", ENDLESS.replace("out: 48", "out: 20000").replace("batch_size: 8", "batch_size: 64"))

    def max_threads(self, *ranks, prefix=(), config="wide"):
        """The maximum number of threads that any of the started processes has after its first steps, without that of a save."""
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        started = [subprocess.Popen([*prefix, program.BINARY, f"{config}.yaml", "--quiet", "train.log_every=1", "checkpoint.save_every=1000000"], cwd=self.folder,
                                    env={**{k: v for k, v in self.environment().items() if k != "OMP_NUM_THREADS"}, **rank}) for rank in ranks or ({},)]
        self.wait_for(lambda: self.has_steps(f"runs/{config}") and len(self.events("step", f"runs/{config}")) > 2, what="the first steps")
        maximum = 0
        for _ in range(25):
            for p in started:
                with open(f"/proc/{p.pid}/status") as f:
                    maximum = max(maximum, int(dict(line.split(":", 1) for line in f)["Threads"]))
            time.sleep(0.02)
        for p in started:
            p.kill()
            p.wait()
        return maximum

    def test_a_mask_is_respected(self):
        cores = sorted(os.sched_getaffinity(0))
        one = self.max_threads({"OMP_NUM_THREADS": "1"})
        self.assertEqual(self.max_threads(), one + program.processors() - 1)
        self.assertEqual(self.max_threads(prefix=("taskset", "-c", str(cores[-1]))), one)

    def test_a_quota_is_respected(self):
        """Also that of a group around the process's own."""
        group = f"/sys/fs/cgroup/cpu/ddptrain-test-{os.getpid()}"
        try:
            os.mkdir(group)
            self.addCleanup(os.rmdir, group)
            os.mkdir(f"{group}/within")
            self.addCleanup(os.rmdir, f"{group}/within")
            with open(f"{group}/cpu.cfs_quota_us", "w") as f:
                f.write("100000")
        except OSError:
            self.skipTest("no right to make a control group of version 1")
        for own in (group, f"{group}/within"):
            self.assertEqual(self.max_threads(prefix=("sh", "-c", f'echo $$ > {own}/cgroup.procs; exec "$@"', "sh")),
                             self.max_threads({"OMP_NUM_THREADS": "1"}), own)
        for own in (f"{group}/within", group):  # they are empty a moment after their processes
            self.wait_for(lambda path=f"{own}/cgroup.procs": not self.read(path), what="the end of the processes")

    def test_ranks_share_unbound_processors(self):
        def ranks(**more):
            at = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **more}
            return [{"RANK": str(r), "LOCAL_RANK": str(r), **at} for r in range(2)]
        cores = sorted(os.sched_getaffinity(0))
        for config in ("wide", "convolution"):  # oneDNN brings the library of threads before the ranks have met
            with self.subTest(config):
                share = str(max(1, len(cores) // 2))
                self.assertEqual(self.max_threads(*ranks(), config=config), self.max_threads(*ranks(OMP_NUM_THREADS=share), config=config))
        if len(cores) > 4:  # a part of the host's
            part = cores[:4]
            self.assertEqual(self.max_threads(*ranks(), prefix=("taskset", "-c", ",".join(map(str, part)))), self.max_threads(*ranks(OMP_NUM_THREADS="2")))


@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one processor")
class Binding(Started):
    """--cpu-bind cores."""

    def allowed(self, pid):
        with open(f"/proc/{pid}/status") as f:
            return dict(line.split(":\t") for line in f)["Cpus_allowed_list"].strip()

    def sets(self, *arguments):
        p = self.start_endless("--nproc", 2, *arguments)
        found = [os.sched_getaffinity(pid) for _, pid in sorted(self.ranks(p).items())]
        lists = [self.allowed(pid) for _, pid in sorted(self.ranks(p).items())]
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, STOPPED, err)
        return found, lists, err

    def test_each_rank_has_processors_of_its_own(self):
        every = os.sched_getaffinity(0)
        found, lists, err = self.sets("--cpu-bind", "cores")
        self.assertEqual(found[0] | found[1], every)
        self.assertFalse(found[0] & found[1])
        said = f"rank 0 on processors {lists[0]}, rank 1 on {lists[1]}\n"
        self.assertIn(said, err)
        out, _ = self.run_program("check", "endless.yaml", "--nproc", 2, "--cpu-bind", "cores")
        self.assertTrue(out.endswith(said), out)
        for arguments in ((), ("--cpu-bind", "none")):
            found, _, err = self.sets(*arguments)
            self.assertEqual(found, [every, every])
            self.assertNotIn("on processors", err)

    def test_a_restart_binds_again(self):
        p = self.start_endless("--nproc", 2, "--cpu-bind", "cores", "--max-restarts", 1)
        before = self.ranks(p)
        self.assertEqual(sorted(before), [0, 1])
        sets = {rank: os.sched_getaffinity(pid) for rank, pid in before.items()}
        os.kill(before[1], signal.SIGKILL)
        self.wait_for(lambda: len(self.ranks(p)) == 2 and not set(self.ranks(p).values()) & set(before.values()), what="the second start")

        def bound():
            with contextlib.suppress(ProcessLookupError):  # the list is read while ranks start and end
                return {rank: os.sched_getaffinity(pid) for rank, pid in self.ranks(p).items()}

        self.wait_for(lambda: bound() == sets, what="the same processors")

    def test_what_cannot_be(self):
        one = str(min(os.sched_getaffinity(0)))
        p = subprocess.run(["taskset", "-c", one, program.BINARY, "test.yaml", "--nproc", "2", "--cpu-bind", "cores"], cwd=self.folder,
                           env=self.environment(), capture_output=True, text=True, timeout=300 * program.SLOW)
        self.assertEqual(p.returncode, USAGE, p.stderr)
        self.assertIn("2 processes here, but 1 processor to bind them to", p.stderr)
        self.run_program("test.yaml", "--cpu-bind", "core", code=USAGE, err="--cpu-bind: expected none or cores, got 'core'")
        self.run_program("test.yaml", "--cpu-bind", "cores", code=USAGE, env=self.environment_of(0, 2, free_port()), err="whose own options bind it")
        self.assertFalse(os.path.exists(self.path("runs")))


class Terminal(program.Case):
    def test_progress_bar_on_a_terminal_and_plain_lines_elsewhere(self):
        self.write("test.yaml", program.LONG)
        _, err = self.run_program("test.yaml")
        self.assertNotIn("\r", err)
        self.assertNotIn("\033", err)
        bar, text, epochs = r"\d+ % \[[=> ]{24}\] epoch \d+  step \d+  loss [\d.]+  \d+ samples/s  .* left", "", 12
        while not re.search(bar, text):  # a fast machine ends a short run before a bar of a step
            self.assertLess(epochs, 10_000_000, text[-2000:])
            epochs *= 4
            shutil.rmtree(self.path("runs"))
            text = self.run_on_terminal("test.yaml", f"train.epochs={epochs}", columns=120)
        self.assertTrue(text.strip().splitlines()[-1].startswith("checkpoint:"))
        self.assertNotIn("%  [", self.read("runs/test/log.txt"))
        self.assertNotIn("\r", self.read("runs/test/log.txt"))

    def test_epoch_lines_fit_the_terminal(self):
        """Parts are left out, the losses last; log.txt has the whole lines."""
        self.write("test.yaml", program.WINE)
        for columns, part in ((200, "samples/s"), (80, "accuracy"), (60, "validation loss")):
            shown = self.run_on_terminal("test.yaml", "train.epochs=2", "--no-progress", "--fresh", columns=columns)
            lines = [line for line in shown.splitlines() if line.startswith("epoch ")]
            self.assertEqual(len(lines), 2, shown)
            for line, whole in zip(lines, re.findall(r"^epoch .*", self.read("runs/test/log.txt"), re.M)):
                self.assertLessEqual(len(line), columns)
                self.assertIn(part, line)
                self.assertRegex(whole, r" accuracy .* accuracy .* rows\)  lr .* samples/s$")
                self.assertEqual(line == whole, columns == 200)

    def test_the_end_of_a_run_in_steps(self):
        """The last epoch counts by its share."""
        self.write("test.yaml", program.WINE)
        for steps, text in ((2, "done: 0.40 epochs, 2 steps in "), (5, "done: 1 epoch, 5 steps in "), (12, "done: 2.40 epochs, 12 steps in ")):
            self.run_program("test.yaml", "train.epochs=null", f"train.steps={steps}", "--fresh", err=text)

    def test_stty_tostop(self):
        """The ranks have process groups of their own, which such a terminal stops when they write to it."""
        self.write("test.yaml", program.WINE)
        main, side = os.openpty()
        self.addCleanup(os.close, main)
        settings = termios.tcgetattr(side)
        settings[3] |= termios.TOSTOP
        termios.tcsetattr(side, termios.TCSANOW, settings)

        def control():
            os.setsid()
            fcntl.ioctl(2, termios.TIOCSCTTY, 0)

        p = self.start("test.yaml", "--nproc", 2, stderr=side, stdin=subprocess.DEVNULL, preexec_fn=control)
        os.close(side)
        self.addCleanup(p.stdout.close)
        self.assertEqual(p.wait(180 * program.SLOW), OK, os.read(main, 65536))

    def test_quiet(self):
        self.write("test.yaml", program.WINE)
        out, err = self.run_program("test.yaml", "--quiet")
        self.assertEqual((out, err), ("", ""))
        self.assertIn("done: ", self.read("runs/test/log.txt"))


class ClosedStreams(program.Case):
    def test_files_do_not_take_their_place(self):
        """What is meant for a closed terminal must not land in the file that was opened instead."""
        self.write("test.yaml", program.WINE)
        for nproc in (1, 2):
            run = f"runs/{nproc}"
            command = [program.BINARY, "test.yaml", "--nproc", str(nproc), "--run-dir", run]
            p = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command], cwd=self.folder, env=self.environment(), timeout=300 * program.SLOW)
            self.assertEqual(p.returncode, 0)
            self.assertEqual(self.read(f"{run}/.lock"), "a run of ddptrain\n")
            self.assertEqual(self.events("end", run)[-1]["epoch"], 10)
            self.run_program("test.yaml", "--nproc", nproc, "--run-dir", run, "train.epochs=11")
