"""What the program tests share: run the built ddptrain as a user would, each test in its own folder."""
import contextlib, errno, fcntl, glob, hashlib, json, os, random, re, shutil, signal, socket, struct, subprocess, tempfile, termios, time, unittest

BINARY = os.environ["DDPTRAIN"]
SOURCE = os.environ["DDPTRAIN_SOURCE"]
SANITIZER = os.environ.get("DDPTRAIN_SANITIZER", "")
SLOW = 8 if SANITIZER else 1  # factor for deadlines, which only end what hangs: a loaded machine may be ten times slower
BEFORE_TIMEOUT = min(180 * SLOW, 500)  # of what must not wait for dist.timeout, 600 s by default
VECTORS = os.path.join(SOURCE, "tests", "vectors")

OK, USAGE, DATA, PEER, DIVERGED, IO, STOPPED, NOT_FINITE = 0, 64, 65, 69, 71, 74, 75, 76


# Ignored ones (under nohup, behind a script's &) would be inherited, and the program respects that.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


def vectors(name):
    with open(os.path.join(VECTORS, name + ".json")) as f:
        return json.load(f)


def free_port():
    """One that no connection of another process gets meanwhile as its own: these are at random, from 32768 on."""
    while True:
        port = random.SystemRandom().randrange(16384, 32768)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError as e:
                if e.errno != errno.EADDRINUSE:
                    raise


def processors():
    """Those that a process may use: of its mask, and of the time that its control groups allow."""
    allowed = len(os.sched_getaffinity(0))
    with open("/proc/self/cgroup") as f:
        groups = [line.strip().split(":", 2) for line in f]
    for _, controllers, path in groups:
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = "/sys/fs/cgroup/cpu" if controllers else "/sys/fs/cgroup"
        parts = [part for part in path.split("/") if part]
        for i in range(len(parts) + 1):
            limits = []
            for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",):
                with contextlib.suppress(OSError), open(os.path.join(top, *parts[:i], name)) as f:
                    limits += f.read().split()
            if len(limits) == 2 and limits[0] not in ("max", "-1"):
                allowed = min(allowed, max(1, -(-int(limits[0]) // int(limits[1]))))
    return allowed


def open_terminal(columns, rows=24):
    """Its two ends: what a program writes to the second is read from the first."""
    main, side = os.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    return main, side


def seal_ledger(bodies):
    """The text of a ledger with these lines, which have no chain yet."""
    chain, out = "", ""
    for body in bodies:
        chain = hashlib.sha256((chain + body).encode()).hexdigest()[:32]
        out += f'{body},"chain":"{chain}"}}\n'
    return out


def without_configs(text):
    """A ledger as earlier versions wrote it: its starts name configs by their SHA-256 alone."""
    bodies = [line.rpartition(',"chain":"')[0] for line in text.splitlines()]
    return seal_ledger([re.sub(r',"config":"(\\.|[^"\\])*"', "", body) for body in bodies])


def softmax(rows):
    import numpy as np
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def change_checkpoint(path, change, order=None):
    """Calls [change] with the open HDF5 file of a checkpoint, and makes its seal anew, with the step [order]."""
    import h5py
    with open(path, "rb") as f:
        whole = f.read()
    image, own = whole[:-128], struct.unpack("<Q", whole[-64:-56])[0]
    with open(path, "wb") as f:
        f.write(image)
    with h5py.File(path, "r+", libver="earliest") as f:
        change(f)
    with open(path, "rb") as f:
        image = f.read()
    seal = b"ddptrain sealed\n" + struct.pack("<IIQ", 1, 128, len(image)) + hashlib.sha256(image).digest()
    seal += struct.pack("<Q", own if order is None else order) + bytes(24)
    with open(path, "wb") as f:
        f.write(image + seal + hashlib.sha256(seal).digest())


def without_datasets(path, *names):
    """Makes a checkpoint one of a version that did not keep these datasets."""
    def remove(f):
        for name in names:
            del f[name]
    change_checkpoint(path, remove)


class Case(unittest.TestCase):
    """A test with a temporary working folder that sees the project's datasets."""
    sees_gpus = False  # real ones: a test that compares bits must not find itself on one
    given_files = {}  # name: text, those in the folder from the beginning

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddptrain-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.symlink(os.path.join(SOURCE, "datasets"), os.path.join(self.folder, "datasets"))
        for name, text in self.given_files.items():
            self.write(name, text)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return name

    def read(self, name):
        with open(self.path(name)) as f:
            return f.read()

    def environment(self, extra=None):
        e = {k: v for k, v in os.environ.items() if not k.startswith(("DDPTRAIN_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "PALS_", "FLUX_", "MV2_"))}
        for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            e.pop(k, None)
        if not self.sees_gpus and "DDPTRAIN_MODULE_DIR" not in (extra or {}):
            e["CUDA_VISIBLE_DEVICES"] = ""
        e.update(extra or {})
        return e

    def start(self, *arguments, env=None, binary=None, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([binary or BINARY, *map(str, arguments)], cwd=self.folder, env=self.environment(env), text=True,
                                **options)

    def run_program(self, *arguments, code=OK, out="", err="", env=None, timeout=300):
        """Runs to the end; the exit code must be [code] (None: any), and [out] and [err], a text or several, must be in what it writes.
        Returns (stdout, stderr)."""
        p = self.start(*arguments, env=env)
        try:
            said = p.communicate(timeout=timeout * SLOW)
        except subprocess.TimeoutExpired:
            p.kill()
            said = p.communicate()
            self.fail(f"no end after {timeout * SLOW} s: {arguments}\n{said[0]}{said[1]}")
        if code is not None:
            self.assertEqual(p.returncode, code, f"{arguments}\n{said[0]}{said[1]}")
        self.code = p.returncode
        for texts, stream in zip((out, err), said):
            for text in [texts] if isinstance(texts, str) else texts:
                self.assertIn(text, stream)
        return said

    def run_on_terminal(self, *arguments, columns):
        """Runs to the end on a terminal of this width. Returns what it shows, which the kernel hands over in pieces."""
        main, side = open_terminal(columns)
        p = self.start(*arguments, stdout=subprocess.DEVNULL, stderr=side, env={"TERM": "xterm"})
        os.close(side)
        shown = b""
        with contextlib.suppress(OSError):  # closed at the other end
            while part := os.read(main, 65536):
                shown += part
        os.close(main)
        self.assertEqual(p.wait(300 * SLOW), OK, shown)
        return shown.decode()

    def metrics(self, run="runs/test"):
        """The lines that are there now: a run may be writing its last line, and more lines than this reads in the same time."""
        with open(self.path(run, "metrics.jsonl"), "rb") as f:
            whole = f.read(os.fstat(f.fileno()).st_size)
        return [json.loads(line) for line in whole[:whole.rfind(b"\n") + 1].splitlines()]

    def events(self, event, run="runs/test"):
        return [m for m in self.metrics(run) if m["event"] == event]

    def losses(self, run="runs/test"):
        steps = self.events("step", run)
        self.assertEqual([s["step"] for s in steps], list(range(1, len(steps) + 1)), "steps have a gap or a duplicate")
        return [s["loss"] for s in steps]

    def sha(self, run="runs/test"):
        return self.events("end", run)[-1]["state_sha256"]

    def checkpoints(self, run="runs/test"):
        return sorted(glob.glob(self.path(run, "checkpoints", "*.h5")))

    def leftovers(self):
        """Processes whose working folder is this test's."""
        found = []
        for p in os.listdir("/proc"):
            if not p.isdigit() or int(p) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{p}/cwd") == os.path.realpath(self.folder):
                    with open(f"/proc/{p}/stat") as f:
                        if f.read().rsplit(")", 1)[1].split()[0] != "Z":
                            found.append(int(p))
        return found

    def children(self, process):
        """Those that the process has started, in the order of their start."""
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as f:
            return [int(pid) for pid in f.read().split()]

    def ranks(self, process):
        """rank -> process id, of those that the launcher [process] has started."""
        found = {}
        for pid in self.leftovers():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ") as f:
                e = dict(v.split("=", 1) for v in f.read().split("\0") if "=" in v)
                if pid != process.pid and e.get("DDPTRAIN_LAUNCHER") == str(process.pid):
                    found[int(e["RANK"])] = pid
        return found

    def assert_no_leftovers(self, seconds=60):
        end = time.monotonic() + seconds * SLOW
        while self.leftovers() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.leftovers(), [], f"processes left after {seconds} s")

    def has_steps(self, run="runs/test"):
        """Whether the run has trained: from then on every rank saves before it stops."""
        with contextlib.suppress(FileNotFoundError), open(self.path(run, "metrics.jsonl"), "rb") as f:
            return b'"event":"step"' in f.read(1 << 20)
        return False

    def has_joined(self, pid):
        """Whether the rank has joined the others: its thread that watches the others runs."""
        names = set()
        for path in glob.glob(f"/proc/{pid}/task/*/comm"):
            with contextlib.suppress(OSError), open(path) as f:
                names.add(f.read().strip())
        return "heartbeat" in names

    def state(self, pid):
        """R, S, T ... of proc(5)."""
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]

    def signals(self, pid, *masks):
        """The signals in any of these masks of a process (proc(5)), as bits; none after its end."""
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as f:
            status = dict(line.split(":", 1) for line in f)
            return sum({1 << i for m in masks for i in range(64) if int(status[m], 16) >> i & 1})
        return 0

    def catches(self, pid, number):
        """Whether a process has a handler for the signal, or waits for it as the launcher does."""
        return bool(self.signals(pid, "SigCgt", "SigBlk") >> (number - 1) & 1)

    def send_and_wait(self, process, number):
        """Until the process has taken the signal: two that are pending would be one."""
        process.send_signal(number)
        self.wait_for(lambda: not self.signals(process.pid, "SigPnd", "ShdPnd") >> (number - 1) & 1, what="the signal to be taken")

    def wait_for(self, condition, seconds=180, what="the condition"):
        end = time.monotonic() + seconds * SLOW
        while not condition():
            self.assertLess(time.monotonic(), end, f"waited too long for {what}")
            time.sleep(0.005)

    def assert_close(self, got, expected, tolerance, what=""):
        self.assertEqual(len(got), len(expected), what)
        worst = max(abs(a - b) for a, b in zip(got, expected))
        self.assertLessEqual(worst, tolerance, f"{what}: largest difference {worst}")


WINE = """
dataset: {path: datasets/wine.h5, inputs: x, targets: y, scale: standard, split: {test: 0.2, seed: 42}}
sampler: {batch_size: 32, shuffle: true, seed: 42}
model: {layers: [{linear: {out: 64}}, relu, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {epochs: 10}
checkpoint: {save_every: 5}
"""


def long_evaluation(train=400, validation=7600 if SANITIZER else 39600):
    """A config whose evaluation, 8 rows a batch, takes long beside its training: with the default 50 steps and some tenths of
    a second, more with a sanitizer. These are the numbers of rows."""
    rows = train + validation
    return f"""
dataset: {{format: synthetic, synthetic: {{kind: classes, rows: {rows}, inputs: 64, classes: 4, seed: 3}}, split: {{test: {validation / rows}, seed: 1}}}}
sampler: {{batch_size: 8, shuffle: true}}
model: {{layers: [{{linear: {{out: 500}}}}, gelu, {{linear: {{out: 500}}}}, gelu, {{dropout: {{p: 0.2}}}}, {{linear: {{out: 4}}}}]}}
loss: cross_entropy
optimizer: {{type: adamw, lr: 0.002}}
schedule: {{type: reduce_on_plateau, monitor: val_loss, patience: 0}}
train: {{epochs: 1, metrics: [f1, auc], ema: {{decay: 0.9}}}}
checkpoint: {{save_every: 1}}
"""


with open(os.path.join(SOURCE, "tests/program/long.yaml")) as f:
    LONG = f.read()
