#!/usr/bin/env python3
"""Injects faults into running jobs and checks the guarantees of docs/reliability.md: real processes, signals, sockets, namespaces.

    tests/proof/faults.py                          every guarantee that this machine can test, a few trials each
    tests/proof/faults.py kill orphans --trials 100 --seed 7
    tests/proof/faults.py --list

Prints a table; each failure has its seed, and `--seed` repeats it. Needs a built program (--binary) and, for `link` and
`slurm`, root. Changes nothing outside its own temporary folder and its own processes.
"""
import argparse, collections, contextlib, ctypes, glob, json, os, random, re, shutil, signal, socket, struct, subprocess, sys, tempfile, time

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # train.device: auto is the CPU, where bits are the same everywhere
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SLOW = float(os.environ.get("FAULTS_SLOW", "1"))  # factor for deadlines on slow builds and loaded machines
SANITIZED = bool(os.environ.get("DDPTRAIN_SANITIZER"))
VARIABLES = ("DDPTRAIN_", "SLURM_", "OMPI_", "PMI_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_")

with open(os.path.join(ROOT, "tests/program/long.yaml")) as f:
    CONFIG = f.read().replace("rows: 3000", "rows: 1200")


def config(epochs, save):
    return CONFIG.replace("epochs: 12", f"epochs: {epochs}").replace("steps: 200", f"steps: {save}")


class Failed(Exception):
    """A guarantee does not hold."""


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(str(w) for w in what))


class Place:
    """A temporary folder with configs, and the processes started in it."""

    def __init__(self, binary):
        self.binary = binary
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="ddptrain-faults-"))
        self.write("short.yaml", 40, 200)
        self.write("endless.yaml", 1000000, 1000)
        with open(self.path("evaluated.yaml"), "w") as f:  # most of the time is spent in evaluations
            f.write(config(4, 50).replace("rows: 1200", "rows: 20000").replace("test: 0.2", "test: 0.95"))
        with open(self.path("heavy.yaml"), "w") as f:  # time is spent in computing, not between steps
            f.write(config(1000000, 1000).replace("out: 48", "out: 20000").replace("batch_size: 8", "batch_size: 64"))
        self.started = []
        self.reference = {}
        self.seconds = 1.0  # of an undisturbed run

    def write(self, name, epochs, save, rows=1200):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(config(epochs, save).replace("rows: 1200", f"rows: {rows}"))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def environment(self, extra=None):
        e = {k: v for k, v in os.environ.items() if not k.startswith(VARIABLES)}
        e.update(extra or {})
        return e

    def start(self, *arguments, env=None, prefix=(), run=None):
        words = [*prefix, self.binary, *map(str, arguments), "--no-progress"]
        if run:
            words += ["--run-dir", run]
        p = subprocess.Popen(words, cwd=self.folder, env=self.environment(env), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(p)
        return p

    def finish(self, p, seconds=120):
        """(code, standard error) of its end."""
        try:
            _, err = p.communicate(timeout=seconds * SLOW)
        except subprocess.TimeoutExpired:
            p.kill()
            _, err = p.communicate()
            raise Failed(f"no end after {seconds * SLOW} s:\n{err}") from None
        return p.returncode, err

    def processes(self):
        """pid -> environment of what runs in this folder."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/cwd") != self.folder or int(pid) == os.getpid():
                    continue
                with open(f"/proc/{pid}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                        continue
                with open(f"/proc/{pid}/environ") as f:
                    found[int(pid)] = dict(v.split("=", 1) for v in f.read().split("\0") if "=" in v)
            except OSError:
                pass
        return found

    def ranks(self, launcher):
        """rank -> pid."""
        return {int(e["RANK"]): pid for pid, e in self.processes().items() if e.get("DDPTRAIN_LAUNCHER") == str(launcher.pid)}

    def running(self, config, nproc, *arguments, run="runs/x", **options):
        """A job that has begun to train; its run folder is new."""
        shutil.rmtree(self.path(run), ignore_errors=True)
        p = self.start(config, "--nproc", nproc, *arguments, run=run, **options)
        self.wait(lambda: self.size(run, "metrics.jsonl") > 0 or p.poll() is not None, "the first step")
        return p

    def size(self, *parts):
        try:
            return os.path.getsize(self.path(*parts))
        except OSError:
            return -1

    def text(self, *parts):
        try:
            with open(self.path(*parts)) as f:
                return f.read()
        except OSError:
            return ""

    def wait(self, condition, what, seconds=20):
        end = time.monotonic() + seconds * SLOW
        while not condition():
            check(time.monotonic() < end, "waited too long for", what)
            time.sleep(0.002)

    def sha(self, run):
        with open(self.path(run, "metrics.jsonl")) as f:
            events = [json.loads(line) for line in f]
        steps = [e["step"] for e in events if e["event"] == "step"]
        check(steps == list(range(1, len(steps) + 1)), "a step is missing or twice in", run)
        return [e for e in events if e["event"] == "end"][-1]["state_sha256"]

    def undisturbed(self, nproc, config="short.yaml"):
        """The state after a run without faults."""
        if (nproc, config) not in self.reference:
            run, begin = f"runs/reference-{nproc}-{config}", time.monotonic()
            code, err = self.finish(self.start(config, "--nproc", nproc, run=run))
            check(code == 0, err)
            self.reference[nproc, config] = self.sha(run), time.monotonic() - begin
        sha, self.seconds = self.reference[nproc, config]
        return sha

    def nothing_left(self, seconds=2.0):
        end = time.monotonic() + seconds * SLOW
        while self.processes() and time.monotonic() < end:
            time.sleep(0.01)
        check(not self.processes(), "still there after", seconds, "s:", list(self.processes()))

    def rank_logs(self, run):
        logs = {}
        for path in glob.glob(self.path(run, "logs", "rank-*.txt")):
            with open(path) as f:
                logs[int(re.search(r"rank-(\d+)", path)[1])] = f.read()
        return logs

    def clean_up(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.wait()
            for stream in (p.stdout, p.stderr):
                stream.close()
        self.started = []

    def remove(self):
        self.clean_up()
        shutil.rmtree(self.folder, ignore_errors=True)


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def free_port():
    """Two consecutive ports outside of the kernel's ephemeral range."""
    for port in random.sample(range(20000, 30000, 2), 100):
        with socket.socket() as s, socket.socket() as t:
            try:
                s.bind(("127.0.0.1", port))
                t.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                pass
    raise OSError("no free port")


# ---- the guarantees: each function makes one trial and raises Failed; the table sums up the results ----


def kill(place, rng):
    """G1: SIGKILL of any process at any time; the same command resumes to the same bits"""
    nproc = rng.choice((1, 2, 3))
    expected = place.undisturbed(nproc)
    shutil.rmtree(place.path("runs/kill"), ignore_errors=True)
    p = place.start("short.yaml", "--nproc", nproc, run="runs/kill")
    time.sleep(rng.uniform(0, place.seconds))
    ranks = place.ranks(p)
    chosen = rng.choice(["launcher", "all", *ranks.values()])
    hits = int(p.poll() is None)
    for pid in ([p.pid] if chosen == "launcher" else [p.pid, *ranks.values()] if chosen == "all" else [chosen]):
        send(pid, signal.SIGKILL)
    place.finish(p)
    place.nothing_left()
    code, err = place.finish(place.start("short.yaml", "--nproc", nproc, run="runs/kill"))
    check(code == 0, err)
    check(place.sha("runs/kill") == expected, "other bits after a kill of", chosen)
    return {"killed before their end": hits}


SWEEP = """config: short.yaml
method: random
trials: 60
parameters:
  optimizer.lr: {distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}
  model.layers.0.linear.out: {distribution: int_uniform, min: 4, max: 64}
keep: {runs: best 3}
"""


def sweep_words(config="sweep.yaml"):
    return ["sweep", config, "train.epochs=8", "dataset.split.test=0.2"]


def sweep_table(place, folder):
    with open(place.path(folder, "trials.csv"), "rb") as f:
        return f.read()


def expected_sweep(place):
    """The table of a sweep that nothing disturbed, and how long it took."""
    if "sweep" not in place.reference:
        with open(place.path("sweep.yaml"), "w") as f:
            f.write(SWEEP)
        begin = time.monotonic()
        code, err = place.finish(place.start(*sweep_words(), "--nproc", 2, run="sweeps/whole"))
        check(code == 0, err)
        place.reference["sweep"] = sweep_table(place, "sweeps/whole"), time.monotonic() - begin
    return place.reference["sweep"]


def check_sweep(place, folder):
    check(sweep_table(place, folder) == expected_sweep(place)[0], "another table")
    with open(place.path(folder, "history.jsonl")) as f:
        trials = [json.loads(line)["trial"] for line in f]
    check(sorted(trials) == list(range(60)), "trials lost or trained twice:", sorted(trials))


def sweep(place, rng):
    """SIGKILL of the coordinator of a sweep, a worker or all, at any time: the same command ends with the same table, no trial lost or twice"""
    _, seconds = expected_sweep(place)
    shutil.rmtree(place.path("sweeps/killed"), ignore_errors=True)
    p = place.start(*sweep_words(), "--nproc", 2, run="sweeps/killed")
    time.sleep(rng.uniform(0, seconds))
    workers = [pid for pid in place.processes() if pid != p.pid]
    whom = rng.choice(("coordinator", "worker", "all"))
    hits = int(p.poll() is None)
    for pid in ([p.pid] if whom == "coordinator" else workers[:1] if whom == "worker" else [p.pid, *workers]):
        send(pid, signal.SIGKILL)
    place.finish(p)
    place.nothing_left()
    code, err = place.finish(place.start(*sweep_words(), "--nproc", 2, run="sweeps/killed"))
    check(code == 0, err)
    check_sweep(place, "sweeps/killed")
    return {"killed before their end": hits}


def orphans(place, rng):
    """G6: no process of the job exists 2 s after the end of any of its processes, also with stopped ranks"""
    nproc = rng.choice((2, 3))
    p = place.running("endless.yaml", nproc)
    ranks = place.ranks(p)
    check(len(ranks) == nproc, "ranks:", ranks)
    time.sleep(rng.uniform(0, 0.2))
    if rng.random() < 0.5:
        send(rng.choice(list(ranks.values())), signal.SIGSTOP)
    target = rng.choice([p.pid, p.pid, *ranks.values()])
    number = rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    if target != p.pid:
        number = signal.SIGKILL
    send(target, number)
    place.wait(lambda: p.poll() is not None, "the end of the launcher", 8)
    place.nothing_left()
    place.finish(p)


def death(place, rng):
    """G7: every rank reports a killed rank within 1 s, with rank, pid and signal; no other rank is reported"""
    nproc = rng.choice((2, 3, 4))
    p = place.running("endless.yaml", nproc)
    ranks = place.ranks(p)
    check(len(ranks) == nproc, "ranks:", ranks)
    time.sleep(rng.uniform(0, 0.3))
    chosen = rng.randrange(nproc)
    name = rng.choice(("KILL", "SEGV", "ABRT", "BUS", "FPE"))
    name = "KILL" if SANITIZED else name  # sanitizers catch the others
    begin = time.monotonic()
    send(ranks[chosen], getattr(signal, "SIG" + name))
    code, err = place.finish(p)
    seconds = time.monotonic() - begin
    said = rf"rank {chosen} \(host \S+, pid {ranks[chosen]}\) was killed by SIG{name}"
    check(code == 69, code, err)
    last = r"; last seen (before its first batch|in [a-z ]+ of step \d+), (in|after) \w+ #\d+"  # the launcher shares memory with the rank
    check(re.search("ddptrain: " + said + last, err), err)
    check(seconds < 1 * SLOW, "took", seconds, "s")
    for rank, log in place.rank_logs("runs/x").items():
        check(rank == chosen or re.search(said, log), "rank", rank, "believes:", log)
    return {"seconds": seconds}


def stop(place, rng):
    """G9: a stopped rank is reported with its phase and collective, and killed, within 10 s"""
    nproc = rng.choice((2, 3))
    p = place.running("endless.yaml", nproc, "train.log_every=0")
    ranks = place.ranks(p)
    check(len(ranks) == nproc, "ranks:", ranks)
    time.sleep(rng.uniform(0, 0.5))
    chosen = rng.randrange(nproc)
    begin = time.monotonic()
    send(ranks[chosen], signal.SIGSTOP)
    place.wait(lambda: p.poll() is not None, "the end", 16)
    seconds = time.monotonic() - begin
    code, err = place.finish(p)
    check(code == 69, code, err)
    # one that is stopped before its second beat was last seen when it joined, or in a phase before any collective
    found = re.search(rf"ddptrain: rank {chosen} \(host \S+, pid {ranks[chosen]}\) hangs: .*last seen (when it joined the other ranks|"
                      rf"(before its first batch|in ([a-z ]+) of step \d+)(, (in|after) \w+ #\d+)?)$", err, re.M)
    check(found, err)
    check(seconds < 10 * SLOW, "took", seconds, "s")
    place.nothing_left()
    return {"seconds": seconds, found[3] or found[2] or found[1]: 1}


def waits_for(pid, number):
    """The launcher blocks the signals and reads them from a descriptor; before that, and in a rank, a handler runs."""
    try:
        with open(f"/proc/{pid}/status") as f:
            status = f.read()
    except OSError:
        return False
    return any(int(re.search(rf"{name}:\s*(\w+)", status)[1], 16) >> (number - 1) & 1 for name in ("SigCgt", "SigBlk"))


# When to send it: what is waited for, as a condition on the place and the run.
INSTANTS = {
    "start": lambda place, run: True,
    "begun": lambda place, run: place.size(run, "config.yaml") >= 0,
    "training": lambda place, run: place.size(run, "metrics.jsonl") > 0,
    "saving": lambda place, run: len(glob.glob(place.path(run, "checkpoints", "*"))) > 0,
    "end": lambda place, run: "done: " in place.text(run, "log.txt"),
}


def request(place, rng):
    """a stop request at any time, to any rank or the launcher: 75 and a complete checkpoint, or nothing started, or 0; then the same bits"""
    nproc, config = rng.choice((1, 2, 3, 4)), rng.choice(("short.yaml", "evaluated.yaml"))
    instant = rng.choice(["any", "any", "any", *INSTANTS])
    number = rng.choice((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP))
    target, grace, run = rng.choice(["launcher", *range(nproc)]), 10, "runs/request"
    expected = place.undisturbed(nproc, config)
    words = [config, "--nproc", nproc, "--grace", grace, "dist.timeout=30"]
    shutil.rmtree(place.path(run), ignore_errors=True)
    p = place.start(*words, run=run)
    wait = rng.uniform(0, 1.1 * place.seconds) if instant == "any" else rng.uniform(0, 0.02)
    place.wait(lambda: p.poll() is not None or INSTANTS.get(instant, INSTANTS["start"])(place, run), instant)
    time.sleep(wait)
    pid = p.pid
    if target != "launcher" and nproc > 1:
        place.wait(lambda: p.poll() is not None or target in place.ranks(p), "the ranks")
        pid = place.ranks(p).get(target, p.pid)
    place.wait(lambda: p.poll() is not None or waits_for(pid, number), "the program's first instructions")
    begin = time.monotonic()
    send(pid, number)
    code, err = place.finish(p)
    seconds = time.monotonic() - begin
    what = f"{number.name} to {target} of {nproc}, {config}, {instant}+{wait:.3f} s: code {code} after {seconds:.1f} s\n{err}"
    check(code in (0, 75), what)
    check(seconds < grace * SLOW or code == 0, "too late:", what)
    place.nothing_left()
    saved = glob.glob(place.path(run, "checkpoints", "*.h5"))
    last = [json.loads(line)["event"] for line in place.text(run, "metrics.jsonl").splitlines()][-1:]
    check(code == 0 or bool(saved) == (last == ["stopped"]), "saved and said so:", saved, last, what)
    check(not glob.glob(place.path(run, "**", "*.tmp-*"), recursive=True) or code == 75 and not saved, "half a file:", what)
    again, words_again = place.finish(place.start(*words, run=run))
    check(again == 0, what, "\nthen", again, words_again)
    check(place.sha(run) == expected, "other bits after", what)
    return {"seconds": seconds if code == 75 else 0, "ended before it came" if code == 0 else "saved" if saved else "nothing begun": 1}


class Tracer:
    """Stops one thread of a process and leaves the others running, as a loop or a deadlock does."""

    SEIZE, INTERRUPT = 0x4206, 0x4207

    def __init__(self, thread):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        for request in (self.SEIZE, self.INTERRUPT):
            if self.libc.ptrace(request, thread, None, None) != 0:
                raise OSError(ctypes.get_errno(), "ptrace")
        self.thread = thread

    def reap(self):
        """The parent of a traced process sees its end only after its tracer has waited for it."""
        self.libc.waitpid(self.thread, None, os.WNOHANG | 0x40000000)  # __WALL


def hang(place, rng):
    """G9: a rank whose training thread hangs while its heartbeats continue is reported within 10 s"""
    p = place.running("heavy.yaml", 2, "train.log_every=0", "train.evaluate_every=0")
    ranks = place.ranks(p)
    place.wait(lambda: '"event":"epoch"' in place.text("runs/x", "metrics.jsonl"), "the first epoch")  # before a step the limit is dist.timeout
    time.sleep(rng.uniform(0, 0.5))
    chosen = rng.randrange(2)
    begin = time.monotonic()
    tracer = Tracer(ranks[chosen])

    def is_over():
        tracer.reap()
        return p.poll() is not None
    place.wait(is_over, "the end", 25)
    named = time.monotonic() - begin
    code, err = place.finish(p)
    check(code == 69, code, err)
    # inside a collective both ranks wait, and either may be reported
    found = re.search(r"ddptrain: rank (\d) \(host \S+, pid \d+\) hangs (in|after) ([a-z ]+) of step \d+, (in|after) \w+ #\d+: "
                      r"no rank has made progress for \d+\.\d s", err)
    check(found and (int(found[1]) == chosen or found[2] == "after"), err)
    check(named < 10 * SLOW, "took", named, "s")
    place.nothing_left()
    return {"seconds": named, found[3]: 1}


def processor_time(pid):
    """In clock ticks; 0: it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
    return 0


def slow(place, rng):
    """G9: a slow rank that makes progress is not killed (6 s of a rank at a tenth of its speed)"""
    p = place.running("endless.yaml", 2, "train.log_every=0")
    chosen = place.ranks(p)[rng.randrange(2)]
    end = time.monotonic() + 6
    while time.monotonic() < end and p.poll() is None:
        send(chosen, signal.SIGSTOP)
        time.sleep(0.45)
        used = processor_time(chosen)
        send(chosen, signal.SIGCONT)
        time.sleep(0.05)
        place.wait(lambda: processor_time(chosen) != used or p.poll() is not None, "the slow rank to go on")  # on a loaded machine
    check(p.poll() is None, "a false alarm:", place.finish(p) if p.poll() is not None else "")
    send(chosen, signal.SIGCONT)
    p.send_signal(signal.SIGTERM)
    check(place.finish(p)[0] == 75, "it did not save")


def restart(place, rng):
    """G19, G1: ranks killed repeatedly under --max-restarts: the job ends with the same bits"""
    expected = place.undisturbed(2)
    shutil.rmtree(place.path("runs/restart"), ignore_errors=True)
    p = place.start("short.yaml", "--nproc", 2, "--max-restarts", 3, run="runs/restart")
    kills = 0
    for _ in range(rng.choice((1, 2))):
        time.sleep(rng.uniform(0, place.seconds))
        ranks = place.ranks(p)
        if p.poll() is None and ranks:
            send(rng.choice(list(ranks.values())), signal.SIGKILL)
            kills += 1
    code, err = place.finish(p)
    check(code == 0, code, err)
    check(place.sha("runs/restart") == expected, "other bits")
    place.nothing_left()
    return {"kills": kills}


def stale(place, rng):
    """G19: a rank of an older start never joins, and does not affect the newer ones"""
    expected = place.undisturbed(2)
    shutil.rmtree(place.path("runs/stale"), ignore_errors=True)
    port, restart_count = free_port(), rng.randrange(1, 5)
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "job"}

    def rank(number, count):
        return place.start("short.yaml", run="runs/stale",
                           env={**common, "RANK": str(number), "LOCAL_RANK": str(number), "TORCHELASTIC_RESTART_COUNT": str(count)})
    old = rank(1, rng.randrange(restart_count))
    ranks = [rank(0, restart_count), rank(1, restart_count)]
    older = rank(1, rng.randrange(restart_count))
    for p in ranks:
        code, err = place.finish(p)
        check(code == 0, err)
    for p in (old, older):
        if p.poll() is None:
            p.send_signal(signal.SIGTERM)  # it came after the end and waits for a rank 0
        code, err = place.finish(p)
        check(code in (69, 75), code, err)
    check(place.sha("runs/stale") == expected, "other bits")


def give_up(place, rng):
    """G20: a crash that repeats without progress ends after N restarts, with its reason"""
    restarts, call = rng.choice((1, 2)), rng.randrange(3, 12)
    shutil.rmtree(place.path("runs/again"), ignore_errors=True)
    p = place.start("short.yaml", "--nproc", 2, "--max-restarts", restarts, run="runs/again",
                    env={"DDPTRAIN_FAULT": f"{call}:kill", "DDPTRAIN_FAULT_FILTER": "checkpoints"})
    code, err = place.finish(p)
    check(code == 69, code, err)
    check(err.count("starting all ranks again") == restarts, err)
    check(re.search(rf"rank 0 \(host \S+, pid \d+\) was killed by SIGKILL; last seen [^\n]*\n{restarts} restarts? without a new checkpoint", err), err)
    place.nothing_left()


NOISE = (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0-x\r\n", b"\0" * 64,
         b"DDPS\x03\x01\0\0" + b"\xff" * 16, b"DDPS\x03\x02\0\0", b"DDPS\x03\x10\0\0" + struct.pack("<IIQ", 76, 1, 0) + bytes(76))


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024


def untrusted(place, rng):
    """G17: other clients on the rendezvous port have no effect; memory does not grow; loopback only"""
    expected = place.undisturbed(2)
    p = place.running("endless.yaml", 2, run="runs/loud")
    ranks = place.ranks(p)
    port = int(place.processes()[ranks[0]]["MASTER_PORT"])
    with open("/proc/net/tcp") as f:
        listeners = [line.split() for line in f if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"]
    check(all(fields[1].startswith("0100007F") for fields in listeners), "listens beyond loopback:", listeners)
    place.wait(lambda: len(glob.glob(place.path("runs/loud/checkpoints/*.h5"))) >= 3, "its memory to be in use")
    before, knocks, held = resident(ranks[0]), 0, []
    end = time.monotonic() + 2
    while time.monotonic() < end:
        try:
            s = socket.create_connection(("127.0.0.1", port), timeout=1)
            held.append(s)
            s.sendall(rng.choice(NOISE) if rng.random() < 0.7 else rng.randbytes(rng.randrange(1, 400)))
        except OSError:
            continue
        knocks += 1
        if len(held) > 60 or rng.random() < 0.5:
            held.pop(rng.randrange(len(held))).close()
    grown = resident(ranks[0]) - before
    for s in held:
        s.close()
    check(p.poll() is None, "the job ended")
    check(grown < 4 or SANITIZED, "memory grew by", grown, "MiB")
    p.send_signal(signal.SIGTERM)
    check(place.finish(p)[0] == 75, "it did not save")
    shutil.rmtree(place.path("runs/loud2"), ignore_errors=True)
    p = place.start("short.yaml", "--nproc", 2, run="runs/loud2")
    code, err = place.finish(p)
    check(code == 0 and place.sha("runs/loud2") == expected, "other bits", err)
    return {"connections": knocks}


def pairs(place, rng):
    """G18: jobs that start at the same time on one host do not affect each other"""
    expected = place.undisturbed(2)
    jobs = []
    for i in range(2):
        shutil.rmtree(place.path(f"runs/pair{i}"), ignore_errors=True)
        jobs.append(place.start("short.yaml", "--nproc", 2, run=f"runs/pair{i}"))
        time.sleep(rng.choice((0, 0, rng.uniform(0, 0.05))))
    for i, p in enumerate(jobs):
        code, err = place.finish(p)
        check(code == 0, err)
        check(place.sha(f"runs/pair{i}") == expected, "other bits")


def missing(place, rng):
    """missing ranks are reported; a stop request during start gives 75 on every rank, also on those that got no signal"""
    port, world = free_port(), 3
    env = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(world)}
    ranks = [place.start("short.yaml", run="runs/missing", env={**env, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in (0, 1)]
    said = ""
    for line in ranks[0].stderr:
        said += line
        if line.startswith("waiting for 1 of 3 ranks: 2"):
            break
    asked = rng.choice(ranks)
    asked.send_signal(rng.choice((signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)))
    for r, p in enumerate(ranks):
        code, err = place.finish(p, 10)
        check(code == 75, "rank", r, code, err)
        check(r != 0 or "waiting for 1 of 3 ranks: 2" in said, said + err)


GUARANTEES = collections.OrderedDict((f.__name__, f) for f in (kill, sweep, orphans, death, stop, request, hang, slow, restart, stale, give_up, untrusted,
                                                            pairs, missing))


ALIASES = {"strangers": "untrusted"}  # former names


def load_more():
    """Loads the guarantees that need root and system tools."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import faults_cluster
    for name, function in faults_cluster.guarantees().items():
        GUARANTEES[name] = function


def run(binary, names, trials, seed, out=print):
    """Rows of the table; every trial has its own seed, so that it can be repeated alone."""
    rows, failures = [], 0
    for name in names:
        place, begin, failed, sums, worst = Place(binary), time.monotonic(), 0, collections.Counter(), 0.0
        try:
            for trial in range(trials):
                try:
                    result = GUARANTEES[name](place, random.Random(f"{name}/{seed + trial}")) or {}
                    worst = max(worst, result.pop("seconds", 0))
                    sums.update(result)
                except Failed as e:
                    failed += 1
                    out(f"{name}: FAILED with --seed {seed + trial} --trials 1:\n{e}")
                finally:
                    place.clean_up()
        finally:
            place.remove()
        notes = [f"at most {worst:.2f} s"] if worst else []
        notes += [f"{v} {k}" for k, v in sorted(sums.items())]
        rows.append((name, GUARANTEES[name].__doc__, trials, failed, ", ".join(notes), time.monotonic() - begin))
        failures += failed
        out(f"{name}: {trials} trials, {failed} failed, {', '.join(notes)} ({rows[-1][-1]:.0f} s)")
    return rows, failures


def main():
    sys.modules["faults"] = sys.modules["__main__"]  # for faults_cluster
    for number in (signal.SIGINT, signal.SIGHUP):  # ignored after `&` and nohup, which a job would respect
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guarantee", nargs="*", help="which; all of this machine by default")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "release", "bin", "ddptrain"))
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    load_more()
    if arguments.list:
        for name, function in GUARANTEES.items():
            print(f"{name:10} {function.__doc__}")
        return 0
    chosen = [ALIASES.get(name, name) for name in arguments.guarantee]
    unknown = [name for name in chosen if name not in GUARANTEES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(GUARANTEES)}")
    rows, failures = run(os.path.realpath(arguments.binary), chosen or list(GUARANTEES), arguments.trials, arguments.seed)
    print("\n| | guarantee | trials | failed | |\n|---|---|---|---|---|")
    for name, guarantee, trials, failed, notes, _ in rows:
        print(f"| `{name}` | {guarantee} | {trials} | {failed} | {notes} |")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
