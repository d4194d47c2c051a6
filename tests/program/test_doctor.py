"""ddptrain doctor: environments that are broken on purpose, each named, with the exit code of a run in it. ctest-labels: dist"""
import contextlib, glob, os, re, resource, shutil, signal, socket, subprocess, tempfile, time, unittest

import program
from program import BINARY, DATA, IO, OK, PEER, SLOW, SOURCE, USAGE, free_port

CONFIG = program.WINE
# 2.9 million parameters: 11 MiB, with Adam's averages and gradients 44
LARGE = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 256, inputs: 1200, classes: 5}}
sampler: {batch_size: 32}
model: {layers: [{linear: {out: 1200}}, relu, {linear: {out: 1200}}, relu, {linear: {out: 5}}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {epochs: 1}
"""
UNSHARE = ["unshare"] if os.geteuid() == 0 else ["unshare", "-r"]


def can_unshare(*flags):
    try:
        return subprocess.run([*UNSHARE, *flags, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


class Doctor(program.Case):
    given_files = {"c.yaml": CONFIG, "large.yaml": LARGE}

    def environment(self, extra=None):
        e = super().environment()
        for name in ("OMP_NUM_THREADS", "OMP_PROC_BIND", "LD_PRELOAD", "TMPDIR"):
            e.pop(name, None)
        return {**e, **(extra or {})}

    def files(self):
        return sorted(os.path.join(folder, name) for folder, folders, names in os.walk(self.folder) for name in folders + names)

    def doctor(self, *arguments, code=OK, env=None, limits=(), setup=None, flags=("-m",), user=None, run=True):
        """The findings: (kind, subject, sentence). [setup]: commands of a shell in new namespaces, before the program. With [run]
        and a problem: a run with the same arguments ends with the same code."""
        if setup is not None and not can_unshare(*flags):
            self.skipTest(f"this user may not make namespaces: {' '.join([*UNSHARE, *flags])}")
        before = self.files()

        def start(*words):
            words = [getattr(self, "binary", BINARY), *map(str, words)]
            if setup is not None:
                words = [*UNSHARE, *flags, "sh", "-ec", setup + '\nexec "$@"', "sh", *words]

            def lower():
                for name, limit in limits:
                    resource.setrlimit(name, (limit, limit))
            p = subprocess.run(words, cwd=self.folder, env=self.environment(env), capture_output=True, text=True,
                               stdin=subprocess.DEVNULL, timeout=300 * SLOW, preexec_fn=lower, user=user)
            self.assertEqual(p.returncode, code, f"{words}\n{p.stdout}{p.stderr}")
            return p
        p = start("doctor", *arguments)
        self.assertEqual(self.files(), before, "doctor left files")
        if run and code != OK:
            self.assertTrue(start(*arguments, "--quiet").stderr)
        self.output, self.error = p.stdout, p.stderr
        found = [m.groups() for m in re.finditer(r"^(problem|note) +(\S.{13}) (.*)$", p.stdout, re.M)]
        self.findings = [(kind, subject.strip(), sentence.strip()) for kind, subject, sentence in found]
        problems = [f for f in self.findings if f[0] == "problem"]
        if code != OK and p.stdout:
            self.assertGreater(len(problems), 0, p.stdout)
            self.assertRegex(p.stderr, r"^ddptrain: doctor: \d+ problems?, which would stop a job\n$")
        else:
            self.assertEqual(problems, [])
        return self.findings

    def named(self, kind, subject, pattern):
        """Among the findings, once, with what to do: a sentence has a colon or a semicolon before it."""
        found = [s for k, o, s in self.findings if (k, o) == (kind, subject) and re.search(pattern, s)]
        self.assertEqual(len(found), 1, f"{kind} {subject} {pattern}\n{self.output}")
        self.assertRegex(found[0], "[:;,] ", "what to do is missing")

    def not_named(self, pattern):
        self.assertEqual([f for f in self.findings if re.search(pattern, f[2])], [])

    # ---- nothing is wrong

    def test_a_sound_environment(self):
        for arguments in ([], ["c.yaml"], ["c.yaml", "--nproc", 2], ["c.yaml", "optimizer.lr=0.1"]):
            self.doctor(*arguments)
            by_us = ["config", "data", "launcher", "environment", "modules", "clock"]  # the rest is this machine's
            if "--nproc" not in arguments:
                by_us.append("threads")
            self.assertEqual([f for f in self.findings if f[1] in by_us], [], self.output)
            self.assertRegex(self.output, r"\ndoctor: nothing stops a job here; \d notes?\n$")
            for subject in ("processors", "memory", "limits", "modules", "run folder", "shared memory", "network", "GPU"):
                self.assertRegex(self.output, rf"(?m)^{subject} ")
        self.run_program("c.yaml", "train.epochs=1")
        self.doctor(os.path.join("runs", os.listdir(self.path("runs"))[0]))

    def test_quiet(self):
        self.doctor("c.yaml", "--quiet")
        self.assertEqual(self.output + self.error, "")

    # ---- the config and its data

    def test_a_wrong_config(self):
        self.write("wrong.yaml", CONFIG.replace("adam", "adamm"))
        self.doctor("wrong.yaml", code=USAGE)
        self.named("problem", "config", "wrong.yaml:6:.*adamm")
        self.assertRegex(self.output, r"(?m)^processors ")

    def test_missing_data(self):
        self.doctor("c.yaml", "dataset.path=nowhere.h5", code=DATA)
        self.named("problem", "data", "nowhere.h5")

    def test_a_bad_row(self):
        rows = [f"{i},{i % 7},{i % 2}" for i in range(300)]
        self.write("rows.csv", "a,b,y\n" + "\n".join(rows) + "\n")
        config = CONFIG.replace("path: datasets/wine.h5, inputs: x, targets: y", "path: rows.csv, inputs: [a, b], targets: [y]")
        self.write("rows.yaml", config.replace("{linear: {out: 3}}", "{linear: {out: 2}}"))
        self.doctor("rows.yaml")
        rows[211] = "211,seven,1"
        self.write("rows.csv", "a,b,y\n" + "\n".join(rows) + "\n")
        self.doctor("rows.yaml", code=DATA)
        self.named("problem", "data", "rows.csv:line 213.*seven")
        import h5py
        shutil.copy(os.path.join(SOURCE, "datasets/wine.h5"), self.path("wine.h5"))
        with h5py.File(self.path("wine.h5"), "r+") as f:
            f["x"][17, 3] = float("inf")
        self.doctor("c.yaml", "dataset.path=wine.h5", code=DATA)
        self.named("problem", "data", "row 17, column 3")

    def test_weights_to_start_from(self):
        self.run_program("c.yaml", "--run-dir", "before", "train.epochs=1")
        self.run_program("c.yaml", "--run-dir", "other", "train.epochs=1", "model.layers.0.linear.out=32")
        for path, sentence in (("nowhere.h5", "nowhere.h5"), ("other", "0.weight"), ("c.yaml", "c.yaml")):
            code = self.code_of("c.yaml", "--run-dir", "new", f"model.init_from={path}")
            self.doctor("c.yaml", f"model.init_from={path}", code=code)
            self.assertRegex(self.output, rf"problem  (data|start) +(.*\n +)*.*{sentence}")
        self.doctor("c.yaml", "model.init_from=before")
        self.run_program("c.yaml", "model.init_from=before", "train.epochs=1", "--run-dir", "run")
        shutil.rmtree(self.path("before"))
        self.doctor("c.yaml", "model.init_from=before", "--run-dir", "run")  # it continues from its own checkpoint
        self.doctor("c.yaml", "model.init_from=before", "--run-dir", "run", "--fresh", code=self.code_of("c.yaml", "model.init_from=before", "--run-dir", "new"))

    def code_of(self, *arguments):
        self.run_program(*arguments, code=None)
        self.assertNotEqual(self.code, OK)
        return self.code

    def test_a_checkpoint_to_start_from(self):
        self.run_program("c.yaml", "--run-dir", "run", "train.epochs=5")
        self.doctor("c.yaml", "--run-dir", "run", "checkpoint.resume=never", code=USAGE)
        self.named("problem", "start", "run has checkpoints and checkpoint.resume is never")
        self.doctor("c.yaml", "--run-dir", "run", "checkpoint.resume=never", "--fresh")
        file = os.path.relpath(self.checkpoints("run")[0], self.folder)
        self.doctor("c.yaml", "--run-dir", "new", f"checkpoint.resume={file}")
        self.doctor("c.yaml", "--run-dir", "new", f"checkpoint.resume={file}", "dataset.split.seed=1", code=USAGE)
        self.assertRegex(self.output, "problem  start +argument 'checkpoint.resume=.*': checkpoint.resume: .* has another dataset")
        self.doctor("c.yaml", "--run-dir", "new", f"checkpoint.resume={file}", "model.layers.0.linear.out=32", code=DATA)
        missing = self.code_of("c.yaml", "--run-dir", "new", "checkpoint.resume=nowhere.h5")
        self.doctor("c.yaml", "--run-dir", "new", "checkpoint.resume=nowhere.h5", code=missing)
        self.doctor("c.yaml", "--run-dir", "run", "checkpoint.resume=nowhere.h5")  # its own checkpoint is newer
        self.doctor("c.yaml", "--run-dir", "new", "--nproc", 2, "dist.zero_stage=1", f"checkpoint.resume={file}")
        for path in self.checkpoints("run"):
            os.truncate(path, 5000)
        self.doctor("c.yaml", "--run-dir", "run", code=DATA)
        self.assertRegex(self.output, "problem  data +")

    def test_data_that_have_changed(self):
        import h5py
        shutil.copy(os.path.join(SOURCE, "datasets/wine.h5"), self.path("wine.h5"))
        self.run_program("c.yaml", "--run-dir", "run", "dataset.path=wine.h5", "train.epochs=5")
        with h5py.File(self.path("wine.h5"), "r+") as f:
            f["x"][17, 3] += 1
        self.doctor("c.yaml", "--run-dir", "run", "dataset.path=wine.h5", code=DATA)
        self.named("problem", "data", "it was trained on other data")

    def test_a_gpu_that_is_not_there(self):
        self.doctor("c.yaml", "train.device=cuda", code=USAGE)
        self.assertIn("train.device: cuda needs", self.output)

    # ---- variables

    def test_threads(self):
        self.doctor(env={"OMP_NUM_THREADS": "500"})
        self.named("note", "threads", "OMP_NUM_THREADS=500.* more threads than the")
        self.doctor(env={"OMP_NUM_THREADS": "many"})
        self.named("note", "threads", "OMP_NUM_THREADS=many is not a number")
        if len(os.sched_getaffinity(0)) >= 4:
            self.doctor("c.yaml", "--nproc", 2)
            self.named("note", "threads", "each of the 2 processes has 1 thread")
        self.doctor(env={"MKL_NUM_THREADS": "4"})
        self.named("note", "environment", "MKL_NUM_THREADS has no effect")
        if len(os.sched_getaffinity(0)) == os.cpu_count():
            self.doctor("--nproc", 2, env={"OMP_PROC_BIND": "true"})
            self.named("note", "environment", "OMP_PROC_BIND=true binds")

    @unittest.skipIf(program.SANITIZER, "a sanitizer must be the first library")
    def test_variables(self):
        self.doctor(env={"DDPTRAIN_SECRTE": "x", "DDPTRAIN_FAULT_LATE": "1:2", "DDPTRAIN_STORE_FD": "9", "LD_PRELOAD": "libm.so.6",
                         "TMPDIR": "/nowhere", "DDPTRAIN_MODULE_DIR": "/nowhere"})
        self.named("note", "environment", "DDPTRAIN_SECRTE is not a variable.*DDPTRAIN_SECRET")
        self.named("note", "environment", "DDPTRAIN_FAULT_LATE is for tests")
        self.named("note", "environment", "DDPTRAIN_STORE_FD is left over")
        self.named("note", "environment", "LD_PRELOAD loads libm.so.6")
        self.named("note", "environment", "DDPTRAIN_MODULE_DIR=/nowhere cannot be read")
        self.named("note", "temporary", "/nowhere")
        self.doctor(env={"DDPTRAIN_SECRET": "short"}, code=USAGE)
        self.named("problem", "environment", "DDPTRAIN_SECRET has 5 characters")

    def test_every_variable_is_known(self):
        """Names in the source that doctor would call unknown."""
        names = set()
        for path in glob.glob(os.path.join(SOURCE, "src/**/*.[ch]*"), recursive=True) + glob.glob(os.path.join(SOURCE, "cmd/ddptrain/*.[ch]")):
            with open(path) as f:
                names |= set(re.findall(r'"(DDPTRAIN_[A-Z_]+)"', f.read()))
        names -= {"DDPTRAIN_", "DDPTRAIN_EMULATED", "DDPTRAIN_FAULT", "DDPTRAIN_FAULT_CLOCK"}  # these must have valid values
        self.assertGreater(len(names), 15)
        values = {"DDPTRAIN_SECRET": "0123456789abcdef", "DDPTRAIN_CPU": "baseline"}
        self.doctor(env={name: values.get(name, "1") for name in names})
        self.not_named("not a variable")

    # ---- processors, memory, limits

    def test_one_processor(self):
        self.doctor("c.yaml", "--nproc", 2, setup=f"taskset -cp {min(os.sched_getaffinity(0))} $$ >/dev/null", flags=("-m",))
        self.named("note", "processors", r"2 processes on this host, but 1 processor may be used")
        self.doctor("--nproc", 2, "--cpu-bind", "cores", setup=f"taskset -cp {min(os.sched_getaffinity(0))} $$ >/dev/null", code=USAGE)
        self.named("problem", "processors", "--cpu-bind cores: 2 processes here, but 1 processor to bind")

    def is_removed(self, folder):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        return not os.path.exists(folder)

    def test_hardware_threads(self):
        """A copy of the kernel's folders in which two processors are one core."""
        processors = sorted(os.sched_getaffinity(0))
        if len(processors) != 2 or os.cpu_count() != 2 or program.processors() != 2:
            self.skipTest("for a machine of two processors")
        os.mkdir(self.path("topology"))
        self.write("topology/thread_siblings_list", "0-1\n")
        self.write("topology/physical_package_id", "0\n")
        mounts = "; ".join(f"mount --bind topology /sys/devices/system/cpu/cpu{n}/topology" for n in processors)
        self.doctor("c.yaml", "--nproc", 2, setup=mounts)
        self.named("note", "processors", "2 processes on 1 core, whose 2 hardware threads")

    def test_a_low_priority(self):
        self.doctor(setup="renice -n 19 $$ >/dev/null")
        self.named("note", "processors", "this shell has a low priority .nice 19")

    def test_the_end_of_an_allocation(self):
        self.doctor(env={"SLURM_JOB_END_TIME": str(int(time.time()) + 60)})
        self.named("note", "limits", r"the allocation ends in \d\d s")

    def group(self, controller, **values):
        """A new control group of version 1 or 2, with this process's child in it: commands of a shell that enter it."""
        for top in (f"/sys/fs/cgroup/{controller}", "/sys/fs/cgroup"):
            if not os.access(top, os.W_OK) or (top.endswith("cgroup") and not os.path.exists(top + "/cgroup.controllers")):
                continue
            version = 2 if top.endswith("cgroup") else 1
            folder = tempfile.mkdtemp(prefix="ddptrain-test-", dir=top)
            self.addCleanup(self.wait_for, lambda: self.is_removed(folder), what="the end of the processes of " + folder)
            for name, value in values[f"v{version}"].items():
                try:
                    with open(os.path.join(folder, name), "w") as f:
                        f.write(value)
                except OSError as e:
                    self.skipTest(f"cannot limit {controller} in a control group: {e}")
            return f"echo $$ > {folder}/cgroup.procs"
        self.skipTest(f"this user may not make a control group for {controller}")

    def test_a_quota(self):
        """Of fewer processors than all threads of the ranks, here one each."""
        enter = self.group("cpu", v1={"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}, v2={"cpu.max": "150000 100000"})
        self.doctor("c.yaml", "--nproc", 2, setup=enter, env={"OMP_NUM_THREADS": "1"})
        self.named("note", "processors", r"the control group allows the time of 1\.50 processors to 2 threads, ")

    def test_a_memory_limit(self):
        enter = self.group("memory", v1={"memory.limit_in_bytes": "150M"}, v2={"memory.max": "150M"})
        self.doctor("large.yaml", "--nproc", 4, setup=enter, code=PEER, run=False)  # the kernel may also kill the launcher
        self.named("problem", "memory", "4 processes of at least .* MiB each, but .* MiB of the control group's limit are free")
        self.doctor("c.yaml", setup=enter)
        self.named("note", "memory", "only .* MiB of the control group's limit are free")

    def test_a_limit_of_processes(self):
        enter = self.group("pids", v1={"pids.max": "6"}, v2={"pids.max": "6"})
        self.doctor("c.yaml", "--nproc", 4, setup=enter, code=IO)
        self.named("problem", "processes", r"the control group allows \d+ more processes and threads")

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user, to whom ulimit -u applies")
    def test_too_few_processes_for_a_user(self):
        os.chmod(self.folder, 0o777)
        binary = self.path("ddptrain")
        shutil.copy(BINARY, binary)
        self.binary = binary
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path("datasets"))
        self.doctor("large.yaml", "--nproc", 8, limits=[(resource.RLIMIT_NPROC, 12)], user=65534, code=IO)
        self.named("problem", "processes", r"this user has \d+ processes and threads of at most 12 \(ulimit -u\)")

    def test_limits(self):
        self.doctor("c.yaml", "--nproc", 12, "sampler.batch_size=8", limits=[(resource.RLIMIT_NOFILE, 32)], code=IO)
        self.named("problem", "open files", "too many open files: the limit of this process is 32")
        self.doctor("c.yaml", limits=[(resource.RLIMIT_FSIZE, 4000)], code=IO)
        self.named("problem", "limits", r"files may have 4000 bytes \(ulimit -f\), and a checkpoint has")
        self.doctor("c.yaml", limits=[(resource.RLIMIT_CPU, 60)])
        self.named("note", "limits", r"60 s of processor time \(ulimit -t\)")

    @unittest.skipIf(program.SANITIZER, "sanitizers need terabytes of addresses")
    def test_a_limit_of_memory(self):
        self.write("larger.yaml", LARGE.replace("[{linear: {out: 1200}}", "[{linear: {out: 40000}}"))
        self.doctor("larger.yaml", limits=[(resource.RLIMIT_AS, 400 << 20)], code=USAGE)
        self.named("problem", "limits", r"a process may have 400 MiB of memory \(ulimit -v, -d\), and a rank needs at least")
        self.doctor("c.yaml", limits=[(resource.RLIMIT_STACK, 512 << 10)], code=USAGE)
        self.assertIn("the stack limit is 512 KiB", self.error)

    # ---- the run folder

    def test_a_read_only_file_system(self):
        os.mkdir(self.path("runs"))
        self.doctor("c.yaml", setup=f"mount --bind {self.path('runs')} {self.path('runs')}; mount -o remount,ro,bind {self.path('runs')}", code=IO)
        self.named("problem", "run folder", "Read-only file system")

    def test_a_full_file_system(self):
        os.mkdir(self.path("runs"))
        self.doctor("large.yaml", setup=f"mount -t tmpfs -o size=8m none {self.path('runs')}", code=IO)
        self.named("problem", "run folder", "No space left on device")
        self.named("note", "run folder", "MiB free, and .* checkpoints of .* MiB and a temporary one need")
        self.named("note", "run folder", r"\(tmpfs\) is in memory")
        self.doctor("c.yaml", setup=f"mount -t tmpfs -o nr_inodes=1 none {self.path('runs')}", code=IO)
        self.named("problem", "run folder", "No space left on device")
        self.named("note", "run folder", "can take only 0 more files")

    def test_no_locks(self):
        """No file system here is without locks: the call fails by a fault of the program."""
        self.doctor(code=IO, env={"DDPTRAIN_FAULT": "6:eio:once", "DDPTRAIN_FAULT_FILTER": "."}, run=False)
        self.named("problem", "run folder", r"cannot lock '\.'")

    def test_a_file_for_a_folder(self):
        self.write("taken", "")
        self.doctor("c.yaml", "--run-dir", "taken", code=USAGE)
        self.named("problem", "run folder", "taken: is not a folder")
        self.doctor("c.yaml", "--run-dir", "taken/runs", code=IO)
        self.named("problem", "run folder", "Not a directory")

    def test_folders_that_are_not_there(self):
        os.symlink("/nowhere/else", self.path("runs"))
        self.doctor("c.yaml", code=IO)
        self.named("problem", "run folder", "cannot create a file in 'runs': No such file or directory")
        os.remove(self.path("runs"))
        os.mkdir(self.path("gone"))
        self.doctor(os.path.join(self.folder, "c.yaml"), setup="cd gone; rmdir ../gone; mkdir ../gone", code=IO, run=False)
        self.named("problem", "run folder", "the working directory cannot be used")

    @unittest.skipIf(program.SANITIZER, "the leak sanitizer needs /proc")
    def test_no_proc_or_dev(self):
        self.doctor("c.yaml", "--nproc", 2, setup="mount -t tmpfs none /proc", code=IO)
        self.named("problem", "limits", "/proc/self/exe cannot be read .*is /proc mounted")
        os.mkdir(self.path("dev"))
        self.doctor("c.yaml", setup="mount --bind dev /dev", code=IO)
        self.assertEqual(self.error, "ddptrain: cannot open /dev/null: No such file or directory; is /dev mounted?\n")

    @unittest.skipIf(program.SANITIZER, "a sanitizer must be the first library")
    def test_a_file_system_that_hangs(self):
        """A preloaded library, in which a lock waits for ever and a second lasts a tenth."""
        library = self.preload("""
#define _GNU_SOURCE
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int flock(int fd, int operation) { for (;;) pause(); }
int clock_gettime(clockid_t id, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_MONOTONIC) t->tv_sec = t->tv_sec * 10 + t->tv_nsec / 100000000, t->tv_nsec = t->tv_nsec % 100000000 * 10;
    return result;
}
int poll(struct pollfd *p, nfds_t count, int timeout) {
    struct timespec t = {timeout / 10000, timeout % 10000 * 100000L};
    return ppoll(p, count, timeout < 0 ? 0 : &t, 0);
}
""")
        self.doctor(env={"LD_PRELOAD": library}, code=IO, run=False)
        self.named("problem", "run folder", "no answer within 30 s: a file system hangs")
        self.assertRegex(self.output, r"(?m)^shared memory ")
        self.assert_no_leftovers()

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_a_run_of_another_user(self):
        self.run_program("c.yaml", "--run-dir", "run", "train.epochs=1")
        for path in (self.folder, self.path("run")):
            os.chmod(path, 0o777)
        self.binary = self.path("ddptrain")
        shutil.copy(BINARY, self.binary)
        self.write("s.yaml", LARGE)
        self.run_program("s.yaml", "--run-dir", "synthetic")
        os.chmod(self.path("synthetic"), 0o777)
        self.doctor("s.yaml", "--run-dir", "synthetic", user=65534, code=IO)
        self.named("problem", "run folder", "cannot write 'synthetic/.lock': Permission denied; make it yours")

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_a_folder_of_another_user(self):
        os.mkdir(self.path("runs"), 0o755)
        os.chmod(self.folder, 0o755)
        self.binary = self.path("ddptrain")
        shutil.copy(BINARY, self.binary)
        self.doctor("large.yaml", user=65534, code=IO)
        self.named("problem", "run folder", "Permission denied")

    def test_another_run_in_the_folder(self):
        self.run_program("c.yaml", "--run-dir", "run", "train.epochs=1")
        self.doctor("c.yaml", "--run-dir", "run", "optimizer.lr=0.5", code=USAGE)
        self.named("problem", "run folder", "belongs to another config")
        self.assertIn("optimizer.lr", self.output)
        self.doctor("c.yaml", "--run-dir", "run", "optimizer.lr=0.5", "--fresh")

    def test_a_running_job(self):
        self.write("long.yaml", program.LONG)
        p = self.start("long.yaml", "train.epochs=10000000", "checkpoint.save_every=1000000000", "--run-dir", "run", "--quiet")  # files stay
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        self.wait_for(lambda: os.path.exists(self.path("run/metrics.jsonl")), what="the run")
        os.kill(p.pid, signal.SIGSTOP)
        self.doctor("long.yaml", "--run-dir", "run", code=USAGE)
        self.named("problem", "run folder", "another ddptrain is training in this folder")
        self.named("note", "processes", f"process {p.pid} of ddptrain is stopped")

    def test_a_rank_without_a_launcher(self):
        """A process with the variable of a launcher that is not its parent."""
        self.write("long.yaml", program.LONG)
        other = tempfile.TemporaryDirectory(prefix="ddptrain-test-")
        self.addCleanup(other.cleanup)
        p = self.start("long.yaml", "train.epochs=10000000", "--run-dir", other.name + "/run", "--quiet", env={"DDPTRAIN_LAUNCHER": "999999999"})
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        self.wait_for(lambda: os.path.exists(other.name + "/run/metrics.jsonl"), what="the run")
        self.doctor()
        self.named("note", "processes", f"process {p.pid} of ddptrain is a rank whose launcher has ended")

    def preload(self, text):
        if not shutil.which("cc"):
            self.skipTest("no C compiler for a library that changes a call")
        self.write("fake.c", text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "fake.so", "fake.c"], cwd=self.folder, check=True)
        return self.path("fake.so")

    @unittest.skipIf(program.SANITIZER, "a sanitizer must be the first library")
    def test_a_wrong_clock(self):
        """The clock of this machine must stay: a preloaded library is an hour ahead."""
        library = self.preload("""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += 3600;
    return result;
}
""")
        self.doctor(env={"LD_PRELOAD": library})
        self.named("note", "clock", "the clock of this host is 3600 s ahead of that of the file system")

    # ---- shared memory

    def test_shared_memory(self):
        self.doctor(setup="mount -t tmpfs -o size=1m none /dev/shm")
        self.named("note", "shared memory", "/dev/shm has 1 MiB free, and NCCL and MPI need")
        self.doctor(setup="mount -t tmpfs -o ro none /dev/shm")
        self.named("note", "shared memory", "/dev/shm cannot be written .it is read-only")
        os.mkdir(self.path("dev"))
        self.write("dev/null", "")
        self.doctor(setup="mount --bind /dev/null dev/null; mount --rbind dev /dev")
        self.named("note", "shared memory", "/dev/shm is missing")

    # ---- network

    def test_no_world_size(self):
        self.doctor("c.yaml", env={"RANK": "0"}, code=USAGE)
        self.named("problem", "launcher", "WORLD_SIZE is not set, although RANK is")
        self.doctor("c.yaml", "--nnodes", 2, code=USAGE)
        self.named("problem", "launcher", "--nnodes 2 needs --master-addr and --master-port")

    def test_an_address_of_one_host_for_two(self):
        env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "localhost",
               "MASTER_PORT": str(free_port())}
        self.doctor("c.yaml", "dist.timeout=2", env=env, code=PEER)
        self.named("problem", "network", "localhost is a loopback address")
        self.named("note", "network", "anyone who can reach rank 0 can join this job")
        self.doctor("c.yaml", "dist.timeout=2", env={**env, "RANK": "1", "DDPTRAIN_SECRET": "0123456789abcdef"}, code=PEER)
        self.named("problem", "network", "is localhost, a loopback address: this host is not that of rank 0")
        self.not_named("anyone")

    def test_an_unknown_host(self):
        self.doctor("c.yaml", "dist.timeout=2", "--nnodes", 2, "--master-addr", "nowhere.invalid", "--master-port", free_port(), code=USAGE)
        self.named("problem", "network", "'nowhere.invalid', has no address")
        self.doctor(env={"SLURM_JOB_NODELIST": "nowhere[1-2].invalid"})
        self.named("note", "network", "'nowhere1.invalid' of SLURM_JOB_NODELIST has no address")

    def test_another_host_of_rank_0(self):
        """192.0.2.1 is no address of any host: it is for documentation."""
        self.doctor("c.yaml", "dist.timeout=2", "--nnodes", 2, "--master-addr", "192.0.2.1", "--master-port", free_port(), code=PEER)
        self.named("problem", "network", "which does not have the address 192.0.2.1 of MASTER_ADDR")

    def test_a_port_in_use(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(s.getsockname()[1])}
            self.doctor("c.yaml", env=env, code=USAGE)
            self.named("problem", "network", "is in use by another program")

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_a_port_of_root(self):
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as f:
            if int(f.read()) <= 80:
                self.skipTest("on this machine every user may listen on every port")
        os.chmod(self.folder, 0o777)
        self.binary = self.path("ddptrain")
        shutil.copy(BINARY, self.binary)
        env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "80"}
        self.doctor("large.yaml", env=env, user=65534, code=USAGE)
        self.named("problem", "network", "rank 0 may not listen on port 80 of 127.0.0.1")

    def test_only_the_first_rank_of_a_host_looks(self):
        env = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        self.doctor(env=env)
        self.assertEqual(self.output, "")

    def test_no_way_to_rank_0(self):
        self.doctor("c.yaml", "dist.timeout=2", "--nnodes", 2, "--node-rank", 1, "--master-addr", "192.0.2.1", "--master-port", 29500,
                    setup="ip link set lo up; ip route add unreachable 192.0.2.0/24 2>/dev/null || true", flags=("-n",), code=PEER)
        self.named("problem", "network", r"the host of rank 0 does not answer at 192\.0\.2\.1:29500")

    def test_no_loopback_interface(self):
        self.doctor("c.yaml", "dist.timeout=2", "--nproc", 2, setup="true", flags=("-n",), code=PEER)
        self.named("problem", "network", "loopback interface")

    def test_an_unknown_interface(self):
        self.doctor("c.yaml", "--nproc", 2, "dist.backend=gloo", env={"GLOO_SOCKET_IFNAME": "nope0"}, code=PEER)
        self.named("problem", "network", "GLOO_SOCKET_IFNAME=nope0, which this host does not have")
        self.doctor(env={"NCCL_SOCKET_IFNAME": "nope0"})
        self.named("note", "network", "NCCL_SOCKET_IFNAME=nope0, which this host does not have")

    def hosts(self, address):
        name = socket.gethostname()
        self.write("hosts", f"127.0.0.1 localhost\n{address} {name}\n")
        self.write("nsswitch", "hosts: files\n")
        return name, "mount --bind hosts /etc/hosts; mount --bind nsswitch /etc/nsswitch.conf"

    def test_the_name_of_another_host(self):
        name, mounts = self.hosts("192.0.2.7")
        self.doctor(setup=mounts)
        self.named("note", "network", f"the name of this host, '{name}', has an address that is not one of this host")

    def test_debians_name_of_a_host(self):
        """127.0.1.1 in /etc/hosts is no problem on the host of rank 0, which then listens on all addresses."""
        name, mounts = self.hosts("127.0.1.1")
        self.doctor("--nnodes", 2, "--master-addr", name, "--master-port", free_port(), setup=mounts)
        self.named("note", "network", f"{name} is a loopback address here ./etc/hosts.: it must be another")
        self.doctor("c.yaml", "dist.timeout=2", "--nnodes", 2, "--node-rank", 1, "--master-addr", name, "--master-port", free_port(),
                    setup=mounts, code=PEER)
        self.named("problem", "network", f"is {name}, a loopback address")

    def test_a_host_without_a_name(self):
        self.doctor(setup="hostname nowhere.invalid; printf 'hosts: files\\n' > nsswitch; mount --bind nsswitch /etc/nsswitch.conf; rm nsswitch",
                    flags=("-m", "-u"))
        self.named("note", "network", "the name of this host, 'nowhere.invalid', has no address")

    # ---- modules and GPUs

    def modules(self, *names, text="not a library"):
        os.mkdir(self.path("modules"))
        for name in names:
            self.write(f"modules/ddptrain_{name}.so", text)
        return {"DDPTRAIN_MODULE_DIR": self.path("modules")}

    NODES = ("--nnodes", 2, "--node-rank", 0, "--master-addr", "127.0.0.1", "--master-port")

    def test_a_broken_module(self):
        env = self.modules("gloo", "onednn")
        self.doctor("c.yaml", env=env)
        self.named("note", "modules", "cannot load .*ddptrain_gloo.so: .*(file too short|invalid ELF header)")
        self.named("note", "modules", "ddptrain_onednn.so: .*large convolutions")
        self.doctor("c.yaml", "dist.backend=gloo", "--nproc", 2, env=env, code=USAGE)
        self.named("problem", "modules", "cannot load .*ddptrain_gloo.so")

    def test_a_missing_module(self):
        self.binary = self.path("ddptrain")
        shutil.copy(BINARY, self.binary)
        self.doctor("c.yaml", "dist.backend=gloo", "--nproc", 2, code=USAGE)
        self.named("problem", "modules", "ddptrain_gloo.so is not installed")
        self.doctor("c.yaml", "dist.backend=mpi", "--nproc", 2, code=USAGE)
        self.named("problem", "modules", "backend mpi needs ranks that an MPI has started")

    def test_a_module_that_crashes(self):
        library = self.preload('#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }\n')
        env = self.modules()
        shutil.copy(library, self.path("modules/ddptrain_onednn.so"))
        self.doctor(env=env, code=70, run=False)
        self.named("problem", "modules", "was ended by SIGABRT")
        self.assertRegex(self.output, r"(?m)^shared memory ")

    def test_a_library_without_a_driver(self):
        if os.path.exists("/proc/driver/nvidia/version"):
            self.skipTest("this machine has NVIDIA's driver")
        library = self.preload("int cuInit;\n")
        os.rename(library, self.path("libcuda.so.1"))
        self.doctor("c.yaml", env={"LD_LIBRARY_PATH": self.folder})
        self.named("note", "GPU", "libcuda.so.1 is installed .*but the kernel has no NVIDIA driver")

    def test_a_gpu_without_a_driver(self):
        """A folder in place of the kernel's list of devices."""
        if os.path.exists("/proc/driver/nvidia/version"):
            self.skipTest("this machine has NVIDIA's driver")
        devices = "/sys/bus/pci/devices"
        fake = f"mount -t tmpfs none {devices}; mkdir {devices}/a; echo 0x10de > {devices}/a/vendor; echo 0x030200 > {devices}/a/class"
        if not os.path.isdir(devices):
            self.skipTest("this machine has no PCI bus")
        self.doctor("c.yaml", setup=fake)
        self.named("note", "GPU", "there is an NVIDIA GPU, but its driver is not loaded")

    def test_other_versions_of_the_driver(self):
        """Files in place of those of the driver."""
        if os.path.exists("/proc/driver/nvidia") or not os.path.isdir("/proc/driver"):
            self.skipTest("/proc/driver cannot be replaced here")
        version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023"
        fake = f"mount -t tmpfs none /proc/driver; mkdir /proc/driver/nvidia; echo '{version}' > /proc/driver/nvidia/version"
        self.doctor("c.yaml", setup=fake)
        self.named("note", "GPU", "the driver 535.54.03 is loaded, but libcuda.so.1 is not installed")
        self.named("note", "GPU", "CUDA_VISIBLE_DEVICES is empty")
        library = self.preload("int cuInit;\n")
        os.rename(library, self.path("libcuda.so.550.1.2"))
        os.symlink("libcuda.so.550.1.2", self.path("libcuda.so.1"))
        self.doctor("c.yaml", env={"LD_LIBRARY_PATH": self.folder}, setup=fake)
        self.named("note", "GPU", "the kernel has version 535.54.03 of the driver, and libcuda is 550.1.2")
