"""The backend mpi under the mpirun of real MPIs: the bits of the other backends, several hosts, lost, hanging and stopped ranks.
ctest-labels: dist fault"""
import contextlib, functools, os, re, shutil, signal, unittest

import program
from program import IO, OK, USAGE, free_port

MPIS = {"openmpi": ("mpirun.openmpi", "--oversubscribe"), "mpich": ("mpirun.mpich",)}
# the libraries of MPI are not instrumented and have leaks of their own
ENVIRONMENT = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
FAILED = range(1, 256)  # an mpirun that ends the other ranks, or one that MPI aborts when the memory of another has gone, has codes of its own
RANK = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"  # in a shell that mpirun starts
CONFIG = """name: test
seed: 1
dataset: {path: datasets/wine.h5, inputs: x, targets: y, split: {test: 0.2, seed: 1}}
sampler: {batch_size: 8}
model: {layers: [linear: {out: 96}, relu, linear: {out: 96}, relu, linear: {out: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {epochs: 3, log_every: 1}
checkpoint: {save_every: 3}
"""


def has_mpi(name):
    """Whether it is installed, and the build has found it."""
    return shutil.which(MPIS[name][0]) and os.path.exists(os.path.join(os.path.dirname(program.BINARY), f"ddptrain_{name}.so"))


def with_each_mpi(test):
    """The test once with each MPI, as self.mpi."""
    @functools.wraps(test)
    def run(self):
        found = [name for name in MPIS if has_mpi(name)]
        if not found:
            self.skipTest("neither Open MPI (openmpi-bin, libopenmpi-dev) nor MPICH (mpich, libmpich-dev) is installed")
        for self.mpi in found:
            with self.subTest(mpi=self.mpi):
                shutil.rmtree(self.path("runs"), ignore_errors=True)
                test(self)
    return run


@unittest.skipIf(program.SANITIZER == "thread", "the libraries of MPI are not instrumented")
class Mpi(program.Case):
    given_files = {"test.yaml": CONFIG}

    def start_ranks(self, count, *arguments, shell="exec \"$@\"", env=None, options=(), binary=program.BINARY):
        """mpirun, which starts the ranks through [shell]."""
        words = [*MPIS[self.mpi], *options, "-n", count, "sh", "-c", shell, "sh", binary, *arguments]
        p = self.start(*words[1:], binary=words[0], env={**ENVIRONMENT, "OMP_NUM_THREADS": "1", **(env or {})})
        self.addCleanup(lambda: p.poll() is None and p.kill())
        return p

    def run_ranks(self, count, *arguments, code=OK, **options):
        p = self.start_ranks(count, *arguments, **options)
        out, err = p.communicate(timeout=300 * program.SLOW)
        self.assertIn(p.returncode, (code,) if isinstance(code, int) else code, out + err)
        return out, err

    @with_each_mpi
    def test_every_collective(self):
        """8 ranks have slices that are small, 3 exchange everything directly, 2 have no slices."""
        for world in 2, 3, 8:
            out, _ = self.run_ranks(world, "comm", "--backend", "mpi", "--sizes", "1K")
            self.assertRegex(out, rf"^{world} processes, mpi\n\d+ calls of every collective, type and operation: all correct")
            self.assertRegex(out, r"\nMPI_Allreduce, float32, sum\n +size .*\n +1 KiB +\d", "the peer of our own all_reduce")

    @with_each_mpi
    def test_the_bits_of_the_other_backends(self):
        for words in (), ("dist.zero_stage=1",), ("dist.gradient_compression=bfloat16", "dist.bucket_cap_mb=0.01", "dist.first_bucket_mb=0.001"):
            for backend in "gloo", "shm":
                self.run_program("test.yaml", "--nproc", 3, f"dist.backend={backend}", *words, "--run-dir", "runs/" + backend, "--fresh")
            self.run_ranks(3, "test.yaml", "dist.backend=mpi", *words, "--fresh")
            self.assertRegex(self.read("runs/test/log.txt"), "averaged by mpi[, ]")
            self.assertEqual({self.sha(), self.sha("runs/gloo"), self.sha("runs/shm")}, {self.sha()}, words)

    @with_each_mpi
    def test_stages_of_zero(self):
        """Parameters that are gathered, gradients that are scattered and a checkpoint that is collected over MPI, between all
        ranks and between hosts of two: the state is that of stage 0. It is continued with the same stage."""
        small = "dist.bucket_cap_mb=0.01", "dist.first_bucket_mb=0.001"  # several buckets
        for backend, shell, how in (("mpi", 'exec "$@"', "averaged by mpi[, ]"),
                                    ("auto", f'export DDPTRAIN_HOST=h$(({RANK} / 2)); exec "$@"', "averaged by shared memory, mpi between hosts,")):
            self.run_ranks(4, "test.yaml", f"dist.backend={backend}", *small, "--run-dir", "runs/whole", "--fresh", shell=shell)
            for stage in 2, 3:
                words = f"dist.backend={backend}", f"dist.zero_stage={stage}", *small
                self.run_ranks(4, "test.yaml", *words, "train.epochs=1", "--fresh", shell=shell)
                _, err = self.run_ranks(4, "test.yaml", *words, shell=shell)
                self.assertIn("resuming from runs/test/checkpoints/epoch-0001.h5", err)
                self.assertRegex(self.read("runs/test/log.txt"), how)
                self.assertIn(f"zero_stage: {stage}", self.read("runs/test/config.yaml"))
                self.assertEqual(self.sha(), self.sha("runs/whole"), words)

    def run_without_mpi(self, hosts):
        """The ranks on these hosts, started by the variables of torchrun."""
        env = {"WORLD_SIZE": str(len(hosts)), "LOCAL_WORLD_SIZE": str(len(hosts)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = [self.start("test.yaml", "--run-dir", "runs/without", env={**env, "RANK": str(r), "LOCAL_RANK": str(r), "DDPTRAIN_HOST": host})
                 for r, host in enumerate(hosts)]
        said = [p.communicate(timeout=180 * program.SLOW) for p in ranks]
        self.assertEqual({p.returncode for p in ranks}, {OK}, said)

    @with_each_mpi
    def test_auto_on_several_hosts(self):
        """MPI between hosts, shared memory on each of them; the sums are those of Gloo between the same hosts."""
        for ranks, start in ((2, "shared memory, "), (1, "")):
            end = " between hosts" if start else ""
            shell = f'export DDPTRAIN_HOST=h$(({RANK} / {ranks})); exec "$@"'
            out, _ = self.run_ranks(4, "comm", "--sizes", "1K", shell=shell)
            self.assertRegex(out, f"^4 processes, {start}mpi{end}\n.*all correct")
            self.run_ranks(4, "test.yaml", "--fresh", shell=shell)
            self.assertIn(f"averaged by {start}mpi{end},", self.read("runs/test/log.txt"))
            shutil.rmtree(self.path("runs/without"), ignore_errors=True)
            self.run_without_mpi([f"h{r // ranks}" for r in range(4)])
            self.assertIn(f"averaged by {start}gloo{end},", self.read("runs/without/log.txt"))
            self.assertEqual(self.sha(), self.sha("runs/without"))

    @with_each_mpi
    def test_one_host_has_shared_memory(self):
        out, _ = self.run_ranks(2, "comm", "--sizes", "1K")
        self.assertRegex(out, "^2 processes, shared memory\n")

    def test_ranks_that_no_mpi_has_started(self):
        _, err = self.run_program("test.yaml", "--nproc", 2, "dist.backend=mpi", code=USAGE)
        self.assertIn("backend mpi needs ranks that an MPI has started, but ddptrain has started these; use mpirun, or srun with --mpi=pmix "
                      "(Open MPI) or --mpi=pmi2 (MPICH)", err)

    @with_each_mpi
    def test_without_the_module(self):
        """mpi is an error that names the package; auto takes Gloo and says so. All ranks, or one of them."""
        module = f"ddptrain_{self.mpi}.so"
        for folder in "with", "without":
            os.makedirs(self.path(self.mpi, folder))
            for file in "ddptrain", "ddptrain_gloo.so", *([module] if folder == "with" else []):
                shutil.copy(os.path.join(os.path.dirname(program.BINARY), file), self.path(self.mpi, folder))
        without, missing = self.path(self.mpi, "without", "ddptrain"), rf"backend mpi: the module {module} is not installed \(looked for "
        _, err = self.run_ranks(2, "test.yaml", "dist.backend=mpi", code=FAILED, binary=without)
        self.assertRegex(err, rf"{missing}.*build ddptrain with Debian's lib{self.mpi}-dev")
        for first, rank in ("without", ""), ("with", "rank 1: "):
            shell = f'export DDPTRAIN_HOST=h{RANK}; shift; [ {RANK} = 0 ] && exec {self.path(self.mpi, first, "ddptrain")} "$@"; exec {without} "$@"'
            out, _ = self.run_ranks(2, "comm", "--sizes", "1K", shell=shell)
            self.assertRegex(out, rf"^2 processes, gloo \(no MPI: {rank}{missing}")
            p = self.start_ranks(2, "comm", "--backend", "mpi", "--sizes", "1K", shell=shell)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertNotEqual(p.returncode, OK)
            self.assertRegex(err, missing)

    @unittest.skipUnless(has_mpi("mpich"), "MPICH (mpich, libmpich-dev) is not installed")
    def test_variables_without_an_mpi(self):
        """MPI itself then counts one process."""
        env = {"PMI_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = [self.start("test.yaml", "dist.backend=mpi", "dist.timeout=20", env={**env, "PMI_ID": str(r)}) for r in range(2)]
        said = ["".join(p.communicate(timeout=180 * program.SLOW)) for p in ranks]
        self.assertEqual([p.returncode for p in ranks], [IO, IO], said)
        for text in said:
            self.assertRegex(text, r"MPI counts this process as rank 0 of 1, the job as rank [01]; start it with the mpirun of this MPI")

    def rank_pid(self, rank):
        """The process of the rank; None: not there."""
        for pid in self.leftovers():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ") as f, open(f"/proc/{pid}/comm") as name:
                numbers = re.findall(r"(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)", f.read())
                if numbers and int(numbers[0]) == rank and name.read() == "ddptrain\n":
                    return pid
        return None

    def start_long(self, count, *arguments):
        p = self.start_ranks(count, "test.yaml", "dist.backend=mpi", "--no-progress", *arguments)
        self.wait_for(lambda: self.has_steps() or p.poll() is not None, what="the first step")
        return p

    @with_each_mpi
    def test_a_killed_rank(self):
        """The others name it and do not stay in MPI. MPICH's mpirun kills them itself."""
        for _ in range(5):  # Open MPI's mpirun ends them, too, on a loaded machine before they have said it
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            p = self.start_long(3, "train.epochs=100000000")
            pid = self.rank_pid(2)
            os.kill(pid, signal.SIGKILL)
            out, err = p.communicate(timeout=180 * program.SLOW)
            self.assertIn(p.returncode, FAILED, out + err)
            self.assert_no_leftovers()
            said = rf"rank [01] of 3 lost a peer in \w+: rank 2 \(host .*, pid {pid}\) exited without reporting an error"
            if self.mpi == "mpich" or re.search(said, out + err):
                break
        if self.mpi == "openmpi":
            self.assertRegex(out + err, said)

    @with_each_mpi
    def test_a_rank_that_hangs(self):
        """The others end and name it, although MPI waits."""
        p = self.start_long(3, "train.epochs=100000000", "dist.hang_timeout=5")
        pid = self.rank_pid(1)
        os.kill(pid, signal.SIGSTOP)
        self.wait_for(lambda: not self.rank_pid(0), what="the end of rank 0")
        with contextlib.suppress(ProcessLookupError):  # mpirun has killed it
            os.kill(pid, signal.SIGCONT)
        out, err = p.communicate(timeout=180 * program.SLOW)
        self.assertIn(p.returncode, FAILED, out + err)
        self.assertRegex(out + err, rf"rank [02] of 3 lost a peer in \w+: rank 1 \(host .*, pid {pid}\) hangs")
        self.assert_no_leftovers()

    @with_each_mpi
    def test_a_process_that_never_calls_mpi(self):
        """MPI_Init_thread waits for it without a deadline, in ranks that have all joined the job."""
        sizes = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMI_SIZE=2 MPI_LOCALNRANKS=2"
        shell = f'[ {RANK} = 2 ] && exec sleep 1000; export {sizes}; exec "$@"'
        for limit in (6 * program.SLOW, 60 * program.SLOW):  # also for joining, for which a slow machine needs longer
            out, err = self.run_ranks(3, "test.yaml", "dist.backend=mpi", f"dist.timeout={limit}", shell=shell,
                                      code=FAILED)
            if "MPI_Init_thread has not returned" in out + err:
                break
        self.assertRegex(out + err, rf"ddptrain: rank [01]: MPI_Init_thread has not returned within {limit} s: a process that MPI has started has not "
                         "called it, or the hosts cannot reach each other by MPI's network; the backend gloo does without MPI")
        self.assert_no_leftovers()

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    @with_each_mpi
    def test_a_full_dev_shm(self):
        """Open MPI does without it; MPICH cannot start, says so and ends the job."""
        full = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=4k none /dev/shm && exec "$@"', "sh", *MPIS[self.mpi])
        p = self.start(*full[1:], "-n", "2", program.BINARY, "test.yaml", "dist.backend=mpi", binary=full[0], env={**ENVIRONMENT, "OMP_NUM_THREADS": "1"})
        self.addCleanup(lambda: p.poll() is None and p.kill())
        out, err = p.communicate(timeout=180 * program.SLOW)
        if self.mpi == "openmpi":
            self.assertEqual(p.returncode, OK, out + err)
            self.assertIn("averaged by mpi", self.read("runs/test/log.txt"))
        else:
            self.assertNotEqual(p.returncode, OK, out + err)
            self.assertRegex(out + err, "MPI_Init_thread.* failed|UCX  ERROR .* failed to allocate")  # mpirun may end before it has read all
        self.assert_no_leftovers()

    @with_each_mpi
    def test_a_rank_that_fails(self):
        """It ends with its own failure, the others with the code of a lost rank; none waits in MPI_Finalize."""
        shell = f'[ {RANK} = 0 ] && export DDPTRAIN_FAULT=1:enospc:ever DDPTRAIN_FAULT_FILTER=checkpoints; exec "$@"'
        p = self.start_ranks(3, "test.yaml", "dist.backend=mpi", "train.epochs=100000000", "--no-progress", shell=shell)
        out, err = p.communicate(timeout=180 * program.SLOW)
        self.assertIn("No space left on device", out + err)
        self.assertNotEqual(p.returncode, OK, out + err)
        self.assert_no_leftovers()

    @with_each_mpi
    def test_stop_and_resume(self):
        """Every rank gets the signal from mpirun; the same command ends with the bits of an uninterrupted run."""
        self.write("test.yaml", CONFIG.replace("out: 96", "out: 700"))  # steps that take longer than their communication
        for epochs in (40, 300, 4800):  # a fast machine ends a short run before the signal
            words = (f"train.epochs={epochs}", "checkpoint.save_every=20")
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            p = self.start_long(2, *words)
            p.send_signal(signal.SIGTERM)
            out, err = p.communicate(timeout=180 * program.SLOW)
            if "stopped on request" in out + err:
                break
        self.run_program("test.yaml", "--nproc", 2, *words, "--run-dir", "runs/whole")
        self.assertIn("ddptrain: stopped on request after step", out + err)  # each mpirun has an exit code of its own
        self.run_ranks(2, "test.yaml", "dist.backend=mpi", *words)
        self.assertEqual(self.sha(), self.sha("runs/whole"))
        self.assert_no_leftovers()
