#!/usr/bin/env python3
"""Kills and suspends processes that share a sweep (ddptrain sweep --share), and checks that no run is lost or done twice.

    tests/proof/shared_sweep.py [--processes 16] [--kills 200] [--trials 3000] [--seed N] [--binary build/release/bin/ddptrain]
    tests/proof/shared_sweep.py --folders /mnt/a/x /mnt/b/x     the same folder as two hosts see it
    tests/proof/shared_sweep.py --hosts 'PREFIX' 'PREFIX' --folders /export/x
        each prefix starts a program on a host (nsenter ... sh -c 'cd /mnt/x && exec "$@"' sh), in the folder as that host sees it; tests/proof/nfs.py

Every process that ends is started again until the given number of faults is reached: SIGKILL, SIGTERM, or SIGSTOP for longer than the lease.
As root and without --hosts half of the processes run in PID namespaces of their own, as processes of other hosts do: nobody sees whether they
exist. At the end
the table must have the bytes of a sweep of one process, and each run exactly one published result.
"""
import argparse, collections, glob, json, os, random, shlex, shutil, signal, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LEASE = 2
ALONE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
SWEEP = """config: {root}/configs/wine_mlp.yaml
method: random
trials: {trials}
overrides: [train.epochs={epochs}, dataset.path={root}/datasets/wine.h5]
parameters: {{optimizer.lr: {{distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}}}}
keep: {{runs: best 5}}
"""


class Process:
    """A process of the sweep. [prefix]: the command that starts it on a host, or in its own PID namespace, as its child."""
    def __init__(self, words, folder, prefix, log):
        self.prefix = prefix
        self.popen = subprocess.Popen(prefix + words, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        self.resume_at = None

    def child(self):
        """The process itself, not the prefix."""
        if not self.prefix:
            return self.popen.pid
        with open(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children") as f:
            children = f.read().split()
        return int(children[0]) if children else self.popen.pid

    def send(self, number):
        try:
            if number == signal.SIGCONT:  # nsenter stops with its child
                os.kill(self.popen.pid, number)
            os.kill(self.child(), number)
        except (OSError, ProcessLookupError):
            pass


def results(folder):
    """How many published results each run has."""
    counts = collections.Counter()
    for path in glob.glob(f"{folder}/shared/blocks/*"):
        with open(path) as f:
            for line in f:
                event = json.loads(line)
                if event["event"] == "run":
                    counts[event["trial"]] += 1
    return counts


class Trial:
    def __init__(self, o):
        self.o, self.random = o, random.Random(o.seed)
        self.folder = tempfile.mkdtemp(prefix="ddptrain-shared-")
        self.folders = o.folders or [self.folder]
        self.log = open(os.path.join(self.folder, "log"), "w+")
        for folder in {self.folder, *self.folders}:
            with open(os.path.join(folder, "s.yaml"), "w") as f:
                f.write(SWEEP.format(root=ROOT, trials=o.trials, epochs=o.epochs))
        self.faults = collections.Counter()
        self.processes, self.started, self.codes = [], 0, collections.Counter()

    def start(self):
        words = [self.o.binary, "sweep", "s.yaml", "--share", "--lease", str(LEASE), "--nproc", "1", "--run-dir", "many", "--no-progress", "--grace", "2"]
        prefix = ALONE if os.geteuid() == 0 and self.started % 2 == 1 else []
        if self.o.hosts:
            prefix = shlex.split(self.o.hosts[self.started % len(self.o.hosts)])
        self.processes.append(Process(words, self.folders[self.started % len(self.folders)], prefix, self.log))
        self.started += 1

    def fault(self):
        p = self.random.choice(self.processes)
        if p.resume_at:
            return
        number = self.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
        p.send(number)
        if number == signal.SIGSTOP:
            p.resume_at = time.monotonic() + LEASE * self.random.uniform(0.5, 2.5)
        self.faults[number.name] += 1

    def step(self, wanted):
        for p in list(self.processes):
            if p.resume_at and time.monotonic() > p.resume_at:
                p.send(signal.SIGCONT)
                p.resume_at = None
            if p.popen.poll() is not None:
                self.codes[-9 if p.prefix == ALONE and p.popen.returncode == 1 else p.popen.returncode] += 1  # unshare has no better code
                self.processes.remove(p)
                if sum(self.faults.values()) < wanted:
                    self.start()

    def run(self):
        reference = [self.o.binary, "sweep", "s.yaml", "--run-dir", os.path.join(self.folder, "one"), "--quiet", "--no-progress"]
        subprocess.run(reference, cwd=self.folder, check=True)
        start = time.monotonic()
        for _ in range(self.o.processes):
            self.start()
        due = start + 1
        while self.processes and time.monotonic() - start < self.o.timeout:
            if sum(self.faults.values()) < self.o.kills and time.monotonic() > due:
                self.fault()
                due = time.monotonic() + self.random.expovariate(1 / self.o.pause)
            self.step(self.o.kills)
            time.sleep(0.01)
        if not self.processes:
            for _ in range(2):  # the last one may have been killed
                self.start()
            while self.processes and time.monotonic() - start < self.o.timeout:
                self.step(0)
                time.sleep(0.01)
        self.seconds = time.monotonic() - start
        for p in self.processes:
            p.send(signal.SIGCONT)
            p.popen.kill()
        return not self.processes

    def check(self):
        many = os.path.join(self.folders[0], "many")
        with open(os.path.join(self.folder, "one", "trials.csv")) as a:
            wanted = a.read()
        counts = results(many)
        lost = [t for t in range(self.o.trials) if not counts[t]]
        repeated = [t for t, n in counts.items() if n > 1]
        try:
            with open(os.path.join(many, "trials.csv")) as f:
                is_same = f.read() == wanted
        except OSError:
            is_same = False
        kept = sorted(os.listdir(os.path.join(many, "runs"))) == sorted(os.listdir(os.path.join(self.folder, "one", "runs")))
        rest = glob.glob(f"{many}/shared/members/*/runs/*")
        others = {c: n for c, n in self.codes.items() if c not in (0, 75, -9, -15)}  # -15: it has not begun yet
        print(f"{self.started} starts, faults {dict(self.faults)}, {self.seconds:.0f} s, exit codes {dict(self.codes)}")
        print(f"lost {len(lost)}, repeated {len(repeated)}, same table: {is_same}, same runs kept: {kept}, folders left: {len(rest)}")
        return not lost and not repeated and is_same and kept and not others


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--processes", type=int, default=16)
    p.add_argument("--kills", type=int, default=200)
    p.add_argument("--trials", type=int, default=3000)
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--pause", type=float, default=0.15, help="mean seconds between two faults")
    p.add_argument("--timeout", type=float, default=600)
    p.add_argument("--seed", type=int, default=random.randrange(10**6))
    p.add_argument("--folders", nargs="*", default=[])
    p.add_argument("--hosts", nargs="*", default=[])
    p.add_argument("--binary", default=os.path.join(ROOT, "build/release/bin/ddptrain"))
    o = p.parse_args()
    print(f"seed {o.seed}")
    trial = Trial(o)
    has_ended = trial.run()
    ok = trial.check() and has_ended
    if not ok:
        trial.log.flush()
        print(f"FAILED; see {trial.folder}; failures of processes, and the last lines of all:")
        with open(os.path.join(trial.folder, "log")) as f:
            lines = f.readlines()
        print("".join([line for line in lines if line.startswith("ddptrain: ") and "stopped on request" not in line] + lines[-10:]))
    else:
        shutil.rmtree(trial.folder, ignore_errors=True)
        for folder in o.folders[:1]:
            shutil.rmtree(os.path.join(folder, "many"), ignore_errors=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
