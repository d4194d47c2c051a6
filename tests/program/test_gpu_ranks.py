"""Several processes, each on its own emulated GPU (tests/emulation), with NCCL between them: the same bits as through the host,
who gets which GPU under which launcher, what is refused, and how a lost rank ends the others. ctest-labels: dist fault gpu-emulated"""
import csv, json, os, re, shutil, signal, subprocess, unittest

import program
from program import DIVERGED, OK, PEER, USAGE, free_port

FOLDER = os.path.join(os.path.dirname(os.path.dirname(program.BINARY)), "emulation")
BUCKETS = ("dist.first_bucket_mb=0.0001", "dist.bucket_cap_mb=0.0005")  # several in a model of 4 KiB


@unittest.skipUnless(os.path.exists(os.path.join(FOLDER, "ddptrain_nccl.so")), "this build has no emulated GPU")
class Ranks(program.Case):
    given_files = {"test.yaml": program.WINE}

    def emulated(self, gpus, **more):
        return {"DDPTRAIN_MODULE_DIR": FOLDER, "LD_LIBRARY_PATH": os.path.join(FOLDER, "driver"),
                "DDPTRAIN_EMULATED_GPUS": str(gpus), **{name: str(value) for name, value in more.items()}}

    def train(self, *words, gpus=2, code=OK, run="runs/test", **more):
        return self.run_program("test.yaml", "train.device=cuda", "train.epochs=3", *words, "--run-dir", run, code=code,
                                env=self.emulated(gpus, **more), timeout=300)

    def rank(self, rank, *words, **more):
        """One of two, as a launcher starts it."""
        return self.start("test.yaml", "train.device=cuda", "train.epochs=3", *words, env=self.emulated(2, **more))

    def ends(self, processes, code):
        outs = [p.communicate(timeout=300 * program.SLOW) for p in processes]
        self.assertEqual([p.returncode for p in processes], [code] * len(processes), outs)
        return "".join(err for _, err in outs)


@unittest.skipIf(program.SANITIZER, "slow, and the class Lost runs the same code")
class Bits(Ranks):
    def test_as_through_the_host(self):
        """NCCL sums two numbers; so do shared memory and Gloo. Whatever the order of streams and threads, and however it is cut."""
        _, err = self.train("--nproc", 2)
        self.assertIn("gradients averaged by NCCL; host memory by shared memory", err)
        self.assertEqual(self.events("start")[0]["backend"], "nccl")
        for run, words, more in (("nccl", ["dist.backend=nccl", *BUCKETS], {"DDPTRAIN_EMULATED_STREAMS": "random"}),
                                 ("gloo", ["dist.backend=gloo"], {}), ("shm", ["dist.backend=shm", *BUCKETS], {}),
                                 ("zero", ["dist.zero_stage=1", *BUCKETS], {"DDPTRAIN_EMULATED_STREAMS": "random"})):
            with self.subTest(run):
                _, err = self.train("--nproc", 2, *words, run=f"runs/{run}", **more)
                self.assertEqual("NCCL" in err, run in ("nccl", "zero"), err)
                self.assertEqual(self.sha(f"runs/{run}"), self.sha())

    def test_compressed(self):
        for backend in ("nccl", "gloo"):
            self.train("--nproc", 2, "dist.gradient_compression=bfloat16", f"dist.backend={backend}", *BUCKETS,
                       run=f"runs/{backend}")
        self.assertEqual(self.sha("runs/nccl"), self.sha("runs/gloo"))

    def test_nvls_is_off(self):
        """Sums of an NVSwitch differ between calls; the config or NCCL's own variable allows them."""
        compressed = ("dist.gradient_compression=bfloat16", *BUCKETS)
        shas = {}
        for run, words, more in (("one", (), {}), ("two", (), {}), ("key", ("dist.nccl_nvls=true",), {}),
                                 ("variable", (), {"NCCL_NVLS_ENABLE": 1})):
            _, err = self.train("--nproc", 3, *compressed, *words, gpus=3, run=f"runs/{run}",
                                DDPTRAIN_EMULATED_NVLS=1 + (run == "two"), **more)
            shas[run] = self.sha(f"runs/{run}")
            expected = {"key": None, "variable": "NCCL_NVLS_ENABLE=1"}.get(run, "NCCL_NVLS_ENABLE=0")
            self.assertRegex(err, r"NCCL's variables: .*NCCL_SOCKET_IFNAME==lo")
            if expected:
                self.assertIn(expected, err)
            else:
                self.assertNotIn("NCCL_NVLS_ENABLE", err)
        self.assertEqual(shas["one"], shas["two"])
        self.assertNotEqual(shas["one"], shas["key"])  # the emulation makes a difference
        self.assertEqual(shas["key"], shas["variable"])

    def test_three(self):
        """In another order of sums than the house's, so to rounding only."""
        self.train("--nproc", 3, *BUCKETS, gpus=3)
        self.train("--nproc", 3, "dist.backend=gloo", gpus=3, run="runs/gloo")
        self.assert_close(self.losses(), self.losses("runs/gloo"), 1e-5, "losses")

    def test_a_rank_without_rows(self):
        """A rank cannot record, so no rank does: the second batch of an epoch has a row on rank 0 only."""
        words = ("sampler={batch_size: 47, uneven: true, seed: 42}", "train.epochs=4")
        self.train("--nproc", 3, *words, gpus=3)
        self.train("--nproc", 3, *words, "dist.backend=gloo", gpus=3, run="runs/gloo")
        self.assert_close(self.losses(), self.losses("runs/gloo"), 1e-5, "losses")

    def test_a_resumed_run(self):
        self.train("--nproc", 2, "train.epochs=6", "checkpoint.save_every=3")
        self.train("--nproc", 2, "train.epochs=3", "checkpoint.save_every=3", run="runs/part")
        self.train("--nproc", 2, "train.epochs=6", "checkpoint.save_every=3", run="runs/part")
        self.assertEqual(self.sha("runs/part"), self.sha())


class Contrastive(Ranks):
    """A loss over the rows of all ranks: they are gathered by NCCL, and the steps are recorded."""
    CONFIG = """
dataset: {path: datasets/wine.h5, scale: standard, split: {test: 0.2, seed: 42}}
sampler: {batch_size: 16}
model: {layers: [{linear: {out: 16}}, tanh, {linear: {out: 8, name: codes}}]}
losses: [{type: contrastive, output: codes, temperature: 0.3}]
optimizer: {type: adam, lr: 0.003}
train: {epochs: 3, log_every: 1}
"""

    def setUp(self):
        super().setUp()
        self.write("test.yaml", self.CONFIG)

    def counted(self, *words, **more):
        path = self.path("counts.json")
        self.train(*words, DDPTRAIN_EMULATED_COUNTS=path, **more)
        with open(path) as file:
            return json.load(file)

    def agrees(self, run, other, tolerance=1e-5):
        self.assert_close(self.losses(run), self.losses(other), tolerance, "losses")
        values = [[e["val_loss"] for e in self.events("epoch", of)] for of in (run, other)]
        self.assertEqual(len(values[0]), 3)
        self.assert_close(*values, tolerance, "val_loss")

    def test_the_same_numbers(self):
        """By NCCL in recorded steps, the same bits without recordings, through the host, and on the CPU."""
        counts = self.counted("--nproc", 2)
        self.assertGreater(counts["graphs"], 4)
        self.assertEqual(counts["late_allocations"], 0)
        self.train("--nproc", 2, "train.cuda_graph=false", run="runs/plain", DDPTRAIN_EMULATED_STREAMS="random")
        self.assertEqual(self.sha("runs/plain"), self.sha())
        self.assertEqual(self.counted("--nproc", 2, "dist.backend=gloo", run="runs/host")["graphs"], 0)
        self.agrees("runs/host", "runs/test")
        self.run_program("test.yaml", "train.device=cpu", "--nproc", 2, "--run-dir", "runs/cpu")
        self.agrees("runs/cpu", "runs/test")

    def test_uneven_rows(self):
        """On three ranks the last batch of an epoch has 14, 14 and 13 or fewer rows; or a rank has none."""
        for batch in (17, 47):
            words = (f"sampler={{batch_size: {batch}, uneven: true, seed: 42}}", "--nproc", 3)
            for run, more in (("nccl", ()), ("host", ("dist.backend=gloo",))):
                self.train(*words, *more, gpus=3, run=f"runs/{run}{batch}")
            self.run_program("test.yaml", "train.device=cpu", *words, "--run-dir", f"runs/cpu{batch}")
            self.agrees(f"runs/nccl{batch}", f"runs/cpu{batch}")
            self.agrees(f"runs/host{batch}", f"runs/cpu{batch}")


class Collectives(Ranks):
    def test_checked_and_measured(self):
        for gpus in (2,) if program.SANITIZER else (2, 3, 4):
            with self.subTest(gpus=gpus):
                out, _ = self.run_program("comm", "--backend", "nccl", "--nproc", gpus, "--sizes", "64K",
                                          env=self.emulated(gpus), timeout=300)
                self.assertIn(f"{gpus} processes, nccl\n", out)
                self.assertRegex(out, r"\n\d{3,} calls of every collective, type and operation: all correct")
                self.assertEqual(len(re.findall(r"^ +\d+ KiB ", out, re.M)), 5)

    def test_one_process_has_no_peers(self):
        self.run_program("comm", "--backend", "nccl", "--nproc", 1, env=self.emulated(1), code=USAGE, err="--backend nccl needs two processes or more")


class Places(Ranks):
    def test_one_process_for_each_gpu(self):
        """By default, and for --nproc gpu."""
        for words in ([], ["--nproc", "gpu"], ["--nproc", "auto"]):
            _, err = self.train(*words, "--fresh", gpus=3)
            self.assertIn("3 processes on cuda:0", err)
        self.run_program("check", "test.yaml", "train.device=cuda", env=self.emulated(3), out="processes      3,")

    def auto(self, *words, gpus=2, code=OK, **more):
        return self.run_program("test.yaml", "train.epochs=3", *words, "--fresh", code=code, env=self.emulated(gpus, **more), timeout=300)

    def test_auto_selects_the_gpus(self):
        """One process per GPU, the requested number, those of a launcher; eval, check and restarts select the same device."""
        self.assertIn("2 processes on cuda:0 (Emulated GPU), gradients averaged by NCCL", self.auto()[1])
        self.assertIn("2 processes on cuda:0 (Emulated GPU), gradients averaged by NCCL", self.auto("dist.backend=nccl")[1])
        self.assertIn("1 process on cuda:0", self.auto("--nproc", 1)[1])
        self.assertIn("1 process on cuda:0", self.auto("--max-restarts", 1, gpus=1)[1])
        self.assertIn("device: auto", self.read("runs/test/config.yaml"))
        self.assertIn("processes      2,", self.run_program("check", "test.yaml", env=self.emulated(2))[0])
        self.assertIn("loss", self.run_program("eval", "test.yaml", env=self.emulated(1))[0])
        self.assertIn("2 processes on cuda:0", self.ends(self.torchrun(device="auto"), OK))

    def test_auto_selects_the_cpu(self):
        """Without a GPU for each process it prints why, unless GPUs are hidden; settings that need a GPU are refused."""
        for words, more, why in (
                (["--nproc", 3], {}, "3 processes on this host, 2 GPUs"),
                ([], {"DDPTRAIN_EMULATED_CAPABILITY": 75}, "a run on GPUs needs compute capability 8.0 or higher, but cuda:0 (Emulated GPU) has 7.5"),
                ([], {"gpus": 0}, "a run on GPUs needs a GPU, but the driver finds none"),
                (["--nproc", 2, "optimizer.in_backward=true"], {"gpus": 0}, None),
                ([], {"CUDA_VISIBLE_DEVICES": ""}, None)):
            with self.subTest(more=more, words=words):
                _, err = self.auto(*words, **more)
                self.assertRegex(err, r"\d process(es)? on cpu")
                if why:
                    self.assertIn(f"train.device: auto is the CPU: {why}", err)
                else:
                    self.assertNotIn("auto takes", err)
        self.assertIn("on cpu", self.auto("optimizer.in_backward=true")[1])
        self.assertIn("dist.backend: nccl is for the memory of GPUs: 3 processes on this host, 2 GPUs",
                      self.auto("--nproc", 3, "dist.backend=nccl", code=USAGE)[1])
        self.assertIn("train.precision: float16 needs a GPU: a run on GPUs needs a GPU, but the driver finds none",
                      self.auto("train.precision=float16", gpus=0, code=USAGE)[1])

    def test_auto_of_each_trial(self):
        """A trial whose optimizer needs the CPU does not leave its parts, which are of the CPU, to those that take the GPU."""
        optimizers = ["{type: lbfgs, lr: 0.1}", "{type: sgd, lr: 0.1}"]
        self.write("sweep.yaml", f"config: test.yaml\nmethod: grid\nkeep: none\nmetric: train_loss\nparameters: {{optimizer: {{values: [{', '.join(optimizers)}]}}}}\n")
        self.run_program("sweep", "sweep.yaml", "train.epochs=3", "--nproc", 1, env=self.emulated(1), timeout=300)
        with open(self.path("sweeps/sweep/trials.csv"), newline="") as f:
            trials = [row["state_sha256"] for row in csv.DictReader(f)]
        for optimizer, device, trial in zip(optimizers, ("cpu", "cuda:0"), trials):
            _, err = self.auto(f"optimizer={optimizer}", "--nproc", 1)
            self.assertIn(f"1 process on {device}", err)
            self.assertEqual(self.sha(), trial, optimizer)

    def test_auto_must_be_the_same_for_all(self):
        err = self.ends(self.torchrun({}, {"DDPTRAIN_EMULATED_GPUS": 0}, device="auto"), USAGE)
        self.assertIn("device: cuda", err)
        self.assertIn("device: cpu", err)

    def test_too_many(self):
        _, err = self.train("--nproc", 3, code=USAGE)
        self.assertIn("a GPU for each process: 3 processes on this host, 2 GPUs; start as many processes as GPUs (--nproc 2)", err)
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_a_shared_gpu_is_for_tests(self):
        self.train("--nproc", 2, gpus=1, DDPTRAIN_SHARE_GPUS=1)
        self.train("--nproc", 2, run="runs/two")
        self.assertEqual(self.sha(), self.sha("runs/two"))

    def slurm(self, shown):
        port = free_port()
        return [self.rank(r, SLURM_PROCID=r, SLURM_LOCALID=r, SLURM_STEP_ID=0, SLURM_STEP_NUM_TASKS=2, SLURM_NTASKS_PER_NODE=2,
                          SLURM_STEP_NODELIST="n1", SLURM_JOB_ID=os.getpid(), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                          CUDA_VISIBLE_DEVICES=shown[r]) for r in range(2)]

    def test_slurm_shows_each_task_its_own(self):
        """srun --gpus-per-task 1: every task has one GPU, number 0 for CUDA."""
        err = self.ends(self.slurm(["0", "1"]), OK)
        self.assertIn("2 processes on cuda:0 (Emulated GPU), gradients averaged by NCCL", err)

    def test_slurm_all_gpus_visible_to_all_tasks(self):
        self.ends(self.slurm(["0,1", "0,1"]), OK)

    def test_slurm_the_same_gpu_visible_to_two_tasks(self):
        err = self.ends(self.slurm(["1", "1"]), USAGE)
        self.assertIn("ranks 0 and 1 have the same, Emulated GPU at 0000:02:00.0", err)
        self.assertFalse(os.path.exists(self.path("runs", "test", "metrics.jsonl")))

    def torchrun(self, *more, device="cuda"):
        port = free_port()
        return [self.rank(r, f"train.device={device}", "--run-dir", "runs/launched", RANK=r, WORLD_SIZE=2, LOCAL_RANK=r, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                          **(more[r] if more else {})) for r in range(2)]

    def test_torchrun(self):
        self.assertIn("2 processes on cuda:0 (Emulated GPU), gradients averaged by NCCL", self.ends(self.torchrun(), OK))

    def test_a_rank_that_cannot_record(self):
        """Then none does: with NCCL all ranks or none must record a call. Whether it is the capture or the graph, of the first or a later one."""
        self.train("--nproc", 2)
        for fails in ("capture:1", "graph:1", "graph:2"):
            with self.subTest(fails):
                err = self.ends(self.torchrun({}, {"DDPTRAIN_EMULATED_FAIL": fails}), OK)
                self.assertIn("steps are not recorded as a CUDA graph: another rank cannot", err)
                self.assertEqual(self.sha("runs/launched"), self.sha())
                shutil.rmtree(self.path("runs", "launched"))

    def test_too_little_memory_on_one(self):
        """Memory of operators: no run folder was created or moved before the failure."""
        port = free_port()
        self.train(gpus=1, run="runs/launched")
        ranks = [self.rank(r, "--run-dir", "runs/launched", "--fresh", "model.layers.0.linear.out=40000", "train.precision=bfloat16", RANK=r, WORLD_SIZE=2, LOCAL_RANK=r, LOCAL_WORLD_SIZE=2,
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=port, DDPTRAIN_EMULATED_MIB=(300, 50)[r], DDPTRAIN_EMULATED_REFUSAL_MS=1000) for r in range(2)]
        err = "".join(p.communicate(timeout=180 * program.SLOW)[1] for p in ranks)
        self.assertEqual([p.returncode for p in ranks], [PEER, USAGE], err)
        self.assertIn("the run does not fit in memory", err)
        self.assertEqual(os.listdir(self.path("runs")), ["launched"])

    def test_different_libraries(self):
        ranks = self.torchrun({}, {"DDPTRAIN_EMULATED_NCCL": 22703})
        err = "".join(p.communicate(timeout=180 * program.SLOW)[1] for p in ranks)
        self.assertEqual([p.returncode for p in ranks], [PEER, USAGE], err)
        self.assertIn("rank 1 has version 22703 of NCCL, and rank 0 has 22800: install the same", err)

    def test_without_nccl(self):
        """auto: through the host, with a message; nccl: refused."""
        os.mkdir(self.path("modules"))
        for name in ("ddptrain_cuda.so", "libemulation.so"):
            os.symlink(os.path.join(FOLDER, name), self.path("modules", name))
        without = {"DDPTRAIN_MODULE_DIR": self.path("modules")}
        os.mkdir(self.path("bin"))  # so that the program's own folder has none either
        copied = shutil.copy2(program.BINARY, self.path("bin", "ddptrain"))
        env = self.environment({**self.emulated(2), **without})
        p = subprocess.run([copied, "test.yaml", "train.device=cuda", "train.epochs=3", "--nproc", "2"], cwd=self.folder, env=env,
                           capture_output=True, text=True, timeout=300 * program.SLOW, stdin=subprocess.DEVNULL)
        self.assertEqual(p.returncode, OK, p.stderr)
        self.assertIn("gradients are averaged through the host: dist.backend: nccl needs a build with NCCL", p.stderr)
        self.assertIn("gradients averaged by shared memory", p.stderr)
        p = subprocess.run([copied, "test.yaml", "train.device=cuda", "dist.backend=nccl", "--nproc", "2", "--fresh"], cwd=self.folder,
                           env=env, capture_output=True, text=True, timeout=300 * program.SLOW, stdin=subprocess.DEVNULL)
        self.assertEqual(p.returncode, USAGE, p.stderr)
        self.assertIn("dist.backend: nccl needs a build with NCCL", p.stderr)


class Lost(Ranks):
    def training(self, *words, **more):
        """Two ranks that train for long, without a run before them; their pids by rank."""
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        p = self.start("test.yaml", "train.device=cuda", "train.epochs=100000", "--nproc", 2, *BUCKETS, *words,
                       env=self.emulated(2, **more))
        self.wait_for(lambda: os.path.exists(self.path("runs/test/metrics.jsonl")) and len(self.metrics()) > 5, what="steps")
        return p, self.children(p)

    def test_a_killed_rank(self):
        """Named, and the other, which waits in NCCL, is freed and ended long before dist.timeout."""
        for killed_rank in (1, 0):
            with self.subTest(killed_rank=killed_rank):
                p, ranks = self.training()
                os.kill(ranks[killed_rank], signal.SIGKILL)
                _, err = p.communicate(timeout=program.BEFORE_TIMEOUT)
                self.assertEqual(p.returncode, PEER, err)
                self.assertRegex(err, rf"rank {killed_rank} \(host .*, pid {ranks[killed_rank]}\) was killed by SIGKILL")
                self.assert_no_leftovers()

    def test_a_stopped_rank(self):
        """It does not run any more; the other waits in NCCL and is not the cause."""
        p, ranks = self.training()
        os.kill(ranks[1], signal.SIGSTOP)
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, PEER, err)
        self.assertRegex(err, rf"rank 1 \(host .*, pid {ranks[1]}\)")
        self.assertNotRegex(err, r"rank 0 \(host")
        self.assert_no_leftovers()

    def test_nccl_fails(self):
        """At a step's call, and while a pass is recorded."""
        for words, fails in ((["train.cuda_graph=false"], "nccl:9"), ([], "nccl:2")):
            _, err = self.train("--nproc", 2, *words, "--fresh", code=PEER, DDPTRAIN_EMULATED_FAIL=fails)
            self.assertIn("NCCL: unhandled system error; NCCL_DEBUG=INFO shows more, NCCL_SOCKET_IFNAME chooses its", err)

    def pair(self, *words, fails, code):
        """Two ranks, of which [fails] is about the second alone; what both wrote."""
        common = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        return self.ends([self.rank(0, *words, RANK=0, LOCAL_RANK=0, **common),
                          self.rank(1, *words, RANK=1, LOCAL_RANK=1, DDPTRAIN_EMULATED_FAIL=fails, **common)], code)

    def test_a_rank_lost_while_connecting(self):
        """The others do not wait for dist.timeout."""
        err = self.pair(fails="connect:1", code=PEER)
        self.assertIn("NCCL: unhandled system error", err)

    def test_one_rank_alone_is_not_finite(self):
        """The sum that NCCL gives to one rank is NaN: its GPU alone skips the update. Both ranks end with that in the same step, whether
        their states differ since then or not (a learning rate of 0)."""
        for words, text in (([], "the states of the ranks differ after epoch 0, step 3: rank 1 "),
                            (["optimizer={type: sgd, lr: 0}", "train.on_nonfinite=skip"], "1 of 2 ranks skipped step 3, ")):
            with self.subTest(words):
                err = self.pair("--fresh", *words, fails="sum:3", code=DIVERGED)
                self.assertIn(text, err)
