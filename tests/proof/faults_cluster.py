"""The guarantees of faults.py that need several hosts, a scheduler or another launcher: network namespaces joined by a veth
pair (root), a real slurmctld with two slurmd on this machine (root), mpirun and torchrun if installed."""
import collections, contextlib, itertools, json, os, random, re, shutil, signal, subprocess, sys, time

import faults
from faults import check

# ---- two hosts on one machine ----


numbers = itertools.count()


class Hosts:
    """Two network namespaces, 10.231.7.1 and .2, joined by a veth pair; removed at the end."""

    def __init__(self):
        self.names = [f"ddptrain-{os.getpid()}-{next(numbers)}" for _ in range(2)]

    def __enter__(self):
        with contextlib.ExitStack() as undone:  # undoes a set-up that fails
            undone.push(self.__exit__)
            for name in self.names:
                self.ip("netns", "add", name)
            device = self.join()
            for number, name in enumerate(self.names, 1):
                self.ip("-n", name, "address", "add", f"10.231.7.{number}/24", "dev", device)
                self.ip("-n", name, "link", "set", device, "up")
                self.ip("-n", name, "link", "set", "lo", "up")
            undone.pop_all()
        return self

    def join(self):
        """Makes the link; the name of its device in both."""
        a, b = self.names
        self.ip("link", "add", "veth0", "netns", a, "type", "veth", "peer", "name", "veth0", "netns", b)
        return "veth0"

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)

    def cut(self, host=1):
        self.ip("-n", self.names[host], "link", "set", "veth0", "down")

    def start(self, place, config, nproc, *arguments, run, nnodes=2):
        """The two launchers; only the first has the run folder's lock and writes."""
        return [place.start(config, "--nnodes", nnodes, "--node-rank", node, "--master-addr", "10.231.7.1", "--master-port", 29511,
                            "--nproc", nproc, *arguments, prefix=("ip", "netns", "exec", name), run=run)
                for node, name in enumerate(self.names)]


class BadLink(Hosts):
    """The same with a link that delays and loses packets."""

    def __init__(self, place, jitter, loss, seed):
        super().__init__()
        program = os.path.join(os.path.dirname(place.binary), "slow_links")
        self.words, self.relay = [program, "--delay", "5", "--jitter", str(jitter), "--loss", str(loss), "--seed", str(seed)], None

    def join(self):
        ends = [f"{name}=10.231.7.{number}" for number, name in enumerate(self.names, 1)]
        self.relay = subprocess.Popen([*self.words, *ends], stdout=subprocess.PIPE, text=True)
        check(self.relay.stdout.readline() == "up\n", "no TUN devices")
        return "link0"

    def end(self):
        """(carried, lost)"""
        self.relay.terminate()
        return [int(n) for n in re.findall(r"\d+", self.relay.communicate()[0])]

    def __exit__(self, *_):
        if self.relay:
            self.relay.kill()
            self.relay.wait()
            self.relay.stdout.close()
        super().__exit__()


def lossy(place, rng):
    """G8: two hosts with a link that jitters and loses packets, also under full load: no false alarm, and the bits of a good link"""
    place.write("lossy.yaml", 1, 20, rows=600)
    if "lossy" not in place.reference:
        code, err = place.finish(place.start("lossy.yaml", "--nproc", 2, run="runs/lossy-reference"))
        check(code == 0, err)
        place.reference["lossy"] = place.sha("runs/lossy-reference")
    shutil.rmtree(place.path("runs/lossy"), ignore_errors=True)
    jitter, loss = rng.choice(((50, 0.02), (100, 0.05)))
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(rng.choice((0, os.cpu_count())))]
    begin = time.monotonic()
    try:
        with BadLink(place, jitter, loss, rng.randrange(1 << 30)) as hosts:
            for p in hosts.start(place, "lossy.yaml", 1, run="runs/lossy"):
                code, err = place.finish(p, 240)
                check(code == 0, jitter, "ms,", loss, code, err)
            carried, lost = hosts.end()
    finally:
        for p in burners:
            p.kill()
            p.wait()
    check(lost > 0, "no packet was lost")
    check(place.sha("runs/lossy") == place.reference["lossy"], "other bits")
    place.nothing_left()
    return {"packets": carried, "lost": lost, "s of training over bad links": round(time.monotonic() - begin), f"with {jitter} ms and {loss * 100:g} %": 1,
            "under load": int(bool(burners))}


def shared_files():
    return {name for name in os.listdir("/dev/shm") if "ddptrain" in name}


def link(place, rng):
    """G8: both hosts report a cut link between them within 5 s, with the correct host, while joining or training; no process is left"""
    shutil.rmtree(place.path("runs/link"), ignore_errors=True)
    before = shared_files()
    with Hosts() as hosts:
        nproc, is_joining = rng.choice((1, 2, 2)), rng.random() < 0.25
        if is_joining:  # of three hosts the last never comes, and the ranks of the others wait for it
            nodes = hosts.start(place, "endless.yaml", nproc, nnodes=3, run="runs/link")
            nodes[0].stderr.readline()  # who is missing, when all others are there
            time.sleep(1)
        else:
            nodes = hosts.start(place, "endless.yaml", nproc, "train.log_every=0", run="runs/link")
            place.wait(lambda: place.size("runs/link", "metrics.jsonl") > 0 or nodes[0].poll() is not None, "the first step")
            time.sleep(rng.uniform(0, 1))
        begin = time.monotonic()
        hosts.cut(rng.randrange(2))
        ends = [0, 0]
        while not all(ends) and time.monotonic() < begin + 20 * faults.SLOW:
            for i, p in enumerate(nodes):
                ends[i] = ends[i] or (time.monotonic() if p.poll() is not None else 0)
            time.sleep(0.01)
        for node, p in enumerate(nodes):
            code, err = place.finish(p)
            check(code == 69, code, err)
            named = re.search(r"rank (\d) \(.*\) is unreachable: its host has not answered", err)
            check(named and int(named[1]) // nproc == 1 - node, "node", node, err)
        seconds = max(ends) - begin
        check(seconds < 5 * faults.SLOW, "took", seconds, "s")
        place.nothing_left()
        check(shared_files() <= before, "left in /dev/shm:", shared_files() - before)
        return {"seconds": seconds, "while joining": int(is_joining)}


def losses(place, run):
    with open(place.path(run, "metrics.jsonl")) as f:
        return [e["loss"] for e in map(json.loads, f) if e["event"] == "step"]


def hosts(place, rng):
    """two ranks on each of two hosts, shared memory within and Gloo between them: the losses of one host with four, and the same bits where guaranteed"""
    options = rng.choice(((), ("dist.backend=gloo",)))
    for run in ("runs/hosts", "runs/one-host"):
        shutil.rmtree(place.path(run), ignore_errors=True)
    place.write("hosts.yaml", 4, 200)
    code, err = place.finish(place.start("hosts.yaml", "--nproc", 4, *options, run="runs/one-host"))
    check(code == 0, err)
    with Hosts() as pair:
        for p in pair.start(place, "hosts.yaml", 2, *options, run="runs/hosts"):
            code, err = place.finish(p)
            check(code == 0, code, err)
    with open(place.path("runs/hosts/log.txt")) as f:
        text = f.read()
    check(("averaged by gloo," if options else "averaged by shared memory, gloo between hosts,") in text, text)
    far = max(abs(a - b) for a, b in zip(losses(place, "runs/hosts"), losses(place, "runs/one-host"), strict=True))
    check(far < 1e-4, "the losses differ by", far)  # sums host by host round otherwise than sums in order of rank
    check(not options or place.sha("runs/hosts") == place.sha("runs/one-host"), "other bits")
    place.nothing_left()


def nodes(place, rng):
    """G19, G7: a rank of one node is killed: the launchers of both start again together, to the same bits"""
    expected = place.undisturbed(2)
    shutil.rmtree(place.path("runs/nodes"), ignore_errors=True)
    with Hosts() as hosts:
        launchers = hosts.start(place, "short.yaml", 1, "--max-restarts", 3, run="runs/nodes")
        time.sleep(rng.uniform(0.1, place.seconds))
        chosen = rng.choice(launchers)
        found = list(place.ranks(chosen).values()) if chosen.poll() is None else []
        for pid in found:
            faults.send(pid, signal.SIGKILL)
        for p in launchers:
            code, err = place.finish(p)
            check(code == 0, code, err)
        check(place.sha("runs/nodes") == expected, "other bits")
        return {"kills": len(found)}


# ---- memory ----

GROUPS = "/sys/fs/cgroup/memory" if os.path.isdir("/sys/fs/cgroup/memory") else "/sys/fs/cgroup"
GROUP_LIMIT = "memory.limit_in_bytes" if GROUPS.endswith("memory") else "memory.max"
HUNGRY = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 2000000, inputs: 40, classes: 4, seed: 3}}
sampler: {batch_size: 8}
model: {layers: [{linear: {out: 4}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


def memory(place, rng):
    """G7: a rank that the kernel kills for lack of memory: the limit and its memory use are reported"""
    limit, group = rng.choice((150, 200, 250)), f"{GROUPS}/ddptrain-{os.getpid()}-{next(numbers)}"
    with open(place.path("hungry.yaml"), "w") as f:
        f.write(HUNGRY)
    os.mkdir(group)
    try:
        with open(f"{group}/{GROUP_LIMIT}", "w") as f:
            f.write(str(limit << 20))
        p = place.start("hungry.yaml", "--nproc", 2, prefix=("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"), run="runs/hungry")
        code, err = place.finish(p)
        check(code == 69, code, err)
        check(re.search(rf"rank \d \(host \S+, pid \d+\) was killed by SIGKILL; probably out of memory: limit {limit / 1024:.1f} GiB, peak of "
                        r"this rank 0\.\d GiB", err), err)
    finally:
        place.clean_up()
        for _ in range(1000):  # it is empty a moment after its processes
            with contextlib.suppress(OSError):
                os.rmdir(group)
                break
            time.sleep(0.01)


def has_groups():
    group = f"{GROUPS}/ddptrain-{os.getpid()}"
    try:
        os.mkdir(group)
        has_limit = os.path.exists(f"{group}/{GROUP_LIMIT}")
        os.rmdir(group)
        return has_limit
    except OSError:
        return False


# ---- Slurm ----


class Slurm:
    """munged, slurmctld and two slurmd of our own, in a folder of their own."""

    CONF = """ClusterName=t
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={d}/munge.sock,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort={p}0
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool.%n
TmpFS={d}/tmp.%n
SlurmctldPidFile={d}/slurmctld.pid
SlurmdPidFile={d}/%n.pid
SlurmctldLogFile={d}/slurmctld.log
SlurmdLogFile={d}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname={host} Port={p}1 CPUs=2
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname={host} Port={p}2 CPUs=2
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""

    def __init__(self, folder):
        self.d = os.path.join(folder, f"slurm-{next(numbers)}")
        for name in ("", "state", "spool.n1", "spool.n2", "tmp.n1", "tmp.n2"):
            os.makedirs(os.path.join(self.d, name), exist_ok=True)
        os.chmod(self.d, 0o755)
        self.env = {**{k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}, "SLURM_CONF": f"{self.d}/slurm.conf"}
        with open(f"{self.d}/key", "wb") as f:
            f.write(os.urandom(128))
        os.chmod(f"{self.d}/key", 0o600)
        for name, text in (("slurm.conf", self.CONF.format(host=os.uname().nodename, d=self.d, p=random.randrange(1100, 1900))), ("cgroup.conf", "CgroupPlugin=cgroup/v1\n")):
            with open(f"{self.d}/{name}", "w") as f:
                f.write(text)
        self.run("munged", "--force", f"--key-file={self.d}/key", f"--socket={self.d}/munge.sock", f"--pid-file={self.d}/munged.pid",
                 f"--log-file={self.d}/munged.log", f"--seed-file={self.d}/seed")
        self.run("slurmctld")
        for node in ("n1", "n2"):
            self.run("slurmd", "-N", node)
        end = time.monotonic() + 20
        while self.run("sinfo", "--noheader", "--format", "%t", "--states", "idle").strip() != "idle" and time.monotonic() < end:
            time.sleep(0.2)

    def run(self, *words):
        return subprocess.run(words, env=self.env, check=True, capture_output=True, text=True, cwd=self.d, timeout=60).stdout

    def stop(self):
        pids = []
        for name in ("n1", "n2", "slurmctld", "munged"):
            try:
                with open(f"{self.d}/{name}.pid") as f:
                    pids.append(int(f.read()))
                os.kill(pids[-1], signal.SIGTERM)
            except (OSError, ValueError):
                pass
        end = time.monotonic() + 10  # else the next cluster meets these
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
            time.sleep(0.05)


def listening_ranks(place):
    """Ranks under Slurm that can handle SIGTERM."""
    found = 0
    for pid, environment in place.processes().items():
        try:
            with open(f"/proc/{pid}/status") as f:
                caught = int(re.search(r"SigCgt:\s*(\w+)", f.read())[1], 16)
        except OSError:
            continue
        found += "SLURM_PROCID" in environment and bool(caught >> (signal.SIGTERM - 1) & 1)
    return found


def state_of(cluster, job):
    return dict(re.findall(r"(\w+)=(\S+)", cluster.run("scontrol", "show", "job", job)))


def slurm(place, rng):
    """G21: a stop request in any phase under a real Slurm: saved, 75 within 30 s, requeued, the same bits in the end"""
    place.write("slurm.yaml", 400, 2000)
    code, err = place.finish(place.start("slurm.yaml", "--nproc", 2, "--fresh", run="runs/slurm-reference"))
    check(code == 0, err)
    expected = place.sha("runs/slurm-reference")
    shutil.rmtree(place.path("runs/slurm"), ignore_errors=True)
    cluster = Slurm(place.folder)
    try:
        count = rng.choice((1, 2))
        said = cluster.run("srun", f"--nodes={count}", "--ntasks=2", "--export=ALL,MASTER_ADDR=127.0.0.1", place.binary, "comm", "--sizes", "1K")
        check("2 processes, shared memory" in said, said)
        log = place.path("slurm.log")
        if os.path.exists(log):
            os.remove(log)
        script = os.path.join(faults.ROOT, "examples", "slurm", "slurm_train.sbatch")
        words = ["sbatch", "--parsable", f"--nodes={count}", "--ntasks=2", "--ntasks-per-node=2", "--time=10", f"--chdir={place.folder}",
                 f"--output={log}", f"--export=ALL,DDPTRAIN={place.binary},MASTER_ADDR=127.0.0.1", script, "slurm.yaml", "--run-dir", "runs/slurm"]
        words = [w for w in words if not w.startswith("--ntasks-per-node")] if "--nodes=2" in words else words
        job = cluster.run(*words).strip()
        place.wait(lambda: state_of(cluster, job)["JobState"] == "RUNNING", "the job to run", 30)
        # Slurm gives a signal to those that are there: before, nobody hears it
        place.wait(lambda: listening_ranks(place) == 2 or state_of(cluster, job)["JobState"] != "RUNNING", "the ranks", 30)
        time.sleep(rng.uniform(0, 1.5))
        begin = time.monotonic()
        subprocess.run(["scancel", f"--signal={rng.choice(('TERM', 'USR1'))}", job], env=cluster.env, check=False, capture_output=True)
        place.wait(lambda: state_of(cluster, job)["JobState"] != "RUNNING", "the end of the job step", 40)
        seconds = time.monotonic() - begin
        requeued = state_of(cluster, job)["Restarts"] != "0"
        with open(log) as f:
            text = f.read()
        check(requeued == ("saved; back into the queue" in text), text)
        if requeued:
            place.wait(lambda: state_of(cluster, job)["JobState"] in ("COMPLETED", "FAILED"), "the requeued job", 180)
        check(state_of(cluster, job)["JobState"] == "COMPLETED", state_of(cluster, job)["JobState"], text)
        check(place.sha("runs/slurm") == expected, "other bits")
        check(seconds < 30 * faults.SLOW, "took", seconds, "s")
        return {"seconds": seconds, "requeued": int(requeued)}
    finally:
        cluster.stop()


def slurm_mpi(place, rng):
    """the backend mpi under a real Slurm's srun --mpi=pmix (Open MPI) and --mpi=pmi2 (MPICH), also between nodes: the same bits; a killed rank is named, and no other stays in MPI"""
    expected, mpi, kind = place.undisturbed(2), rng.choice(("pmix", "pmi2")), rng.choice(("named", "between nodes", "killed"))
    shutil.rmtree(place.path("runs/mpi"), ignore_errors=True)
    cluster = Slurm(place.folder)
    try:
        nodes, backend = (2, ()) if kind == "between nodes" else (rng.choice((1, 2)), ("dist.backend=mpi",))
        config = "endless.yaml" if kind == "killed" else "short.yaml"
        words = ["srun", f"--mpi={mpi}", f"--nodes={nodes}", "--ntasks=2", f"--chdir={place.folder}", "--export=ALL,MASTER_ADDR=127.0.0.1",
                 "sh", "-c", f'{"export DDPTRAIN_HOST=n$SLURM_NODEID; " if kind == "between nodes" else ""}exec "$@"', "sh",
                 place.binary, config, "--no-progress", "--run-dir", "runs/mpi", *backend]
        step = subprocess.Popen(words, env=cluster.env, cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            begin = time.monotonic()
            if kind == "killed":
                place.wait(lambda: place.size("runs/mpi", "metrics.jsonl") > 0 or step.poll() is not None, "the first step", 60)
                pid = next(pid for pid, environment in place.processes().items() if environment.get("SLURM_PROCID") == "1")
                begin = time.monotonic()
                faults.send(pid, signal.SIGKILL)
            said = step.communicate(timeout=60 * faults.SLOW)[0]
        finally:
            step.kill()
        seconds = time.monotonic() - begin
        if kind == "killed":
            check(step.returncode != 0 and f"rank 1 (host {os.uname().nodename}, pid {pid})" in said, said)
            check(seconds < 15 * faults.SLOW, "took", seconds, "s")
        else:
            check(step.returncode == 0 and place.sha("runs/mpi") == expected, "other bits", said)
            with open(place.path("runs/mpi/log.txt")) as f:
                check("gradients averaged by mpi," in f.read(), said)
        place.nothing_left()
        return {mpi: 1, kind: 1}
    finally:
        cluster.stop()


# ---- other launchers ----


def launch(place, commands, *words):
    """What all of them printed; each, words before and after the program's, must end well."""
    started = [subprocess.Popen([*before, place.binary, *words, *after], cwd=place.folder, env=place.environment(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for before, after in commands]
    said = [p.communicate(timeout=120 * faults.SLOW)[0] for p in started]
    check(all(p.returncode == 0 for p in started), *said)
    return "".join(said)


def launcher(place, *commands, world=2):
    """Right collectives and the same bits, over shared memory without being asked."""
    expected = place.undisturbed(world)
    shutil.rmtree(place.path("runs/other"), ignore_errors=True)
    said = launch(place, commands, "comm", "--sizes", "1K")
    check(f"{world} processes, shared memory\n" in said and "all correct" in said, said)
    said = launch(place, commands, "short.yaml", "--no-progress", "--run-dir", "runs/other")
    check(place.sha("runs/other") == expected, "other bits", said)
    with open(place.path("runs/other/log.txt")) as f:
        check("gradients averaged by shared memory," in f.read(), said)


def openmpi(place, _rng):
    """Open MPI's mpirun"""
    launcher(place, (("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"), ()))


def mpich(place, _rng):
    """MPICH's mpirun"""
    launcher(place, (("mpirun.mpich", "-n", "2"), ()))


def torchrun(place, rng):
    """torchrun, standalone, with the static rendezvous, or two of them on one host"""
    own = ("-r", "1", "-t", "1", "--no_python")
    at = ("--master_addr=127.0.0.1", f"--master_port={faults.free_port()}")
    how = rng.randrange(3)
    if how == 2:
        launcher(place, *((("torchrun", "--nnodes=2", f"--node_rank={node}", *at, *own, "--nproc_per_node=1"), ()) for node in range(2)))
    else:
        launcher(place, (("torchrun", *(("--standalone",) if how == 0 else ("--nnodes=1", *at)), *own, "--nproc_per_node=2"), ()))


def launchers(place, rng):
    """two launchers on one host, as if each had its own host"""
    nproc = rng.choice((1, 2))
    at = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(faults.free_port()), "--nproc", str(nproc))
    launcher(place, *(((), (*at, "--node-rank", str(node))) for node in range(2)), world=2 * nproc)


def endings(place, rng):
    """no launcher waits for a node that has ended: a rank killed between its last line and its end, a launcher killed, one that gives up"""
    expected = place.undisturbed(2)
    shutil.rmtree(place.path("runs/endings"), ignore_errors=True)
    port, how = faults.free_port(), rng.choice(("last rank", "last rank", "launcher", "gives up"))
    restarts = (0, 3) if how == "gives up" else (3, 3)
    config = "short.yaml" if how == "last rank" else "endless.yaml"
    launchers = [place.start(config, "--nnodes", 2, "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port, "--max-restarts",
                          restarts[node], run="runs/endings") for node in range(2)]
    chosen = rng.randrange(2)
    place.wait(lambda: all(place.ranks(p) for p in launchers), "the ranks")
    ranks = list(place.ranks(launchers[chosen]).values())
    if how == "last rank":
        for line in launchers[0].stderr:
            if line.startswith("checkpoint: the newest"):
                break
        time.sleep(rng.choice((0, 0, rng.uniform(0, 0.003))))
    else:
        place.wait(lambda: place.size("runs/endings", "metrics.jsonl") > 0, "the first step")
        time.sleep(rng.uniform(0, 0.3))
    begin = time.monotonic()
    hits = sum(os.path.exists(f"/proc/{pid}") for pid in ranks)
    for pid in [launchers[chosen].pid] if how == "launcher" else ranks:
        faults.send(pid, signal.SIGKILL)
    ends = [place.finish(p, 20) for p in launchers]
    seconds = time.monotonic() - begin
    check(seconds < 10 * faults.SLOW, "took", seconds, "s")
    place.nothing_left()
    if how == "last rank":
        check([code for code, _ in ends] == [0, 0], *ends)
        check(place.sha("runs/endings") == expected, "other bits")
        return {"seconds": seconds, "killed at the end": hits, "started again": int("starting all ranks again" in ends[chosen][1])}
    if how == "launcher":
        code, err = ends[1 - chosen]
        check(code == 69 and f"the launcher of node {chosen} has ended: this node ends, too" in err, code, err)
    else:
        check([code for code, _ in ends] == [69, 69] and "the launcher of node 0 has ended: this node ends, too" in ends[1][1], *ends)
    return {"seconds": seconds, how: 1}


def launchers_of(place, count, *arguments, run):
    """Launchers with one rank each, on this host."""
    at = ("--nnodes", count, "--master-addr", "127.0.0.1", "--master-port", faults.free_port())
    return [place.start("three.yaml", *at, "--node-rank", node, *arguments, run=run) for node in range(count)]


def three(place, rng):
    """one of three launchers is killed: the others name it; one gets a stop request, in training or between two starts: all end with 75, to the same bits"""
    place.write("three.yaml", 200, 500)
    expected = place.undisturbed(3, "three.yaml")
    shutil.rmtree(place.path("runs/three"), ignore_errors=True)
    how, chosen = rng.choice(("killed", "asked", "between")), rng.randrange(3)
    launchers = launchers_of(place, 3, "--max-restarts", rng.choice((0, 3)) if how != "between" else 3, run="runs/three")
    place.wait(lambda: place.size("runs/three", "metrics.jsonl") > 0, "the first step")
    time.sleep(rng.uniform(0, 0.3 * place.seconds))
    if how == "between":
        place.wait(lambda: all(place.ranks(p) for p in launchers), "the ranks")
        faults.send(next(iter(place.ranks(rng.choice(launchers)).values())), signal.SIGKILL)
        for line in launchers[chosen].stderr:
            if line.startswith("starting all ranks again"):
                break
    begin = time.monotonic()
    faults.send(launchers[chosen].pid, signal.SIGKILL if how == "killed" else rng.choice((signal.SIGTERM, signal.SIGINT)))
    ends = [place.finish(p, 20) for p in launchers]
    seconds = time.monotonic() - begin
    check(seconds < 10 * faults.SLOW, "took", seconds, "s")
    place.nothing_left()
    if how != "between" and not any(code for node, (code, _) in enumerate(ends) if how == "asked" or node != chosen):
        check(place.sha("runs/three") == expected, "other bits")
        return {"too late": 1}
    for node, (code, err) in enumerate(ends):
        if how == "killed":
            check(node == chosen or code == 69, "node", node, code, err)
            named = set(re.findall(r"launcher of node (\d)|rank (\d) \([^)]*\) (?:exited|was killed|left)", err.split("ddptrain: ")[-1]))
            check(node == chosen or {a or b for a, b in named} == {str(chosen)}, "of node", chosen, "says", node, err)
        else:
            check(code == 75, "of node", chosen, "says", node, code, err)
    code, err = place.finish(place.start("three.yaml", "--nproc", 3, run="runs/three"))
    check(code == 0, code, err)
    check(place.sha("runs/three") == expected, "other bits")
    return {"seconds": seconds, how: 1}


def slurm_sweep(place, rng):
    """a sweep of 4 workers on 2 nodes under a real Slurm: stopped at any time, requeued, the same table in the end"""
    _, seconds = faults.expected_sweep(place)
    shutil.rmtree(place.path("sweeps/slurm"), ignore_errors=True)
    cluster = Slurm(place.folder)
    try:
        log = place.path("sweep.log")
        if os.path.exists(log):
            os.remove(log)
        script = os.path.join(faults.ROOT, "examples", "slurm", "slurm_sweep.sbatch")
        job = cluster.run("sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=2", "--time=10", f"--chdir={place.folder}", f"--output={log}",
                          f"--export=ALL,DDPTRAIN={place.binary},MASTER_ADDR=127.0.0.1", script, *faults.sweep_words()[1:],
                          "--run-dir", "sweeps/slurm").strip()
        place.wait(lambda: os.path.exists(place.path("sweeps/slurm/history.jsonl")) or state_of(cluster, job)["JobState"] in ("COMPLETED", "FAILED"),
                   "the sweep to begin", 60)
        time.sleep(rng.uniform(0, seconds))
        subprocess.run(["scancel", "--signal=TERM", job], env=cluster.env, check=False, capture_output=True)
        place.wait(lambda: state_of(cluster, job)["JobState"] in ("COMPLETED", "FAILED"), "the end of the job", 180)
        with open(log) as f:
            text = f.read()
        state = state_of(cluster, job)
        check(state["JobState"] == "COMPLETED", state["JobState"], text)
        faults.check_sweep(place, "sweeps/slurm")
        return {"requeued": int(state["Restarts"] != "0")}
    finally:
        cluster.stop()


def has_namespaces():
    name = f"ddptrain-{os.getpid()}"
    made = shutil.which("ip") and subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], check=False)
    return made


def guarantees():
    """Those that this machine can try."""
    is_root = os.geteuid() == 0
    found = collections.OrderedDict()
    for function, tools, needs_root in ((link, ("ip",), True), (hosts, ("ip",), True), (nodes, ("ip",), True), (lossy, ("ip",), True), (launchers, (), False), (endings, (), False), (three, (), False), (memory, (), True), (openmpi, ("mpirun.openmpi",), False),
                                        (mpich, ("mpirun.mpich",), False), (torchrun, ("torchrun",), False),
                                        (slurm, ("munged", "slurmctld", "slurmd", "sbatch"), True),
                                        (slurm_sweep, ("munged", "slurmctld", "slurmd", "sbatch"), True),
                                        (slurm_mpi, ("munged", "slurmctld", "slurmd", "srun", "mpirun.openmpi", "mpirun.mpich"), True)):
        lacking = [t for t in tools if not shutil.which(t)] + (["root"] if needs_root and not is_root else [])
        if tools == ("ip",) and not lacking and not has_namespaces():
            lacking = ["right to make network namespaces"]
        if function is memory and not lacking and not has_groups():
            lacking = ["control group for memory that may be divided"]
        if lacking:
            print(f"{function.__name__}: not tried, there is no {', '.join(lacking)}", file=sys.stderr)
        else:
            found[function.__name__] = function
    return found
