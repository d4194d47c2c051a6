"""Sweeps that several processes share (--share): killed, suspended, stopped, on full disks; the table of one process, no run lost or twice.
ctest-labels: dist fault"""
import collections, contextlib, glob, json, os, random, shutil, signal, subprocess, time

import program
from program import DATA, IO, OK, STOPPED, USAGE
from test_sweep import SWEEP, SweepCase

LONG = SWEEP.replace("trials: 12", "trials: 40")
WORDS = ("train.epochs=60",)


class SharedCase(SweepCase):
    def share(self, *words, name="many", sweep="test", **options):
        return self.start("sweep", f"{sweep}.yaml", "--share", "--nproc", 1, "--run-dir", name, *words, **options)

    def alone(self, text, *words):
        self.sweep(text, *words, "--run-dir", "one")
        return self.read("one/trials.csv")

    def results(self, name="many"):
        """How many published results each run has."""
        counts = collections.Counter()
        for path in glob.glob(self.path(name, "shared/blocks/*")):
            with open(path) as f:
                counts.update((e["trial"], e["repeat"]) for e in map(json.loads, f) if e["event"] == "run")
        return counts

    def end(self, p, code=OK, timeout=300):
        out, err = p.communicate(timeout=timeout * program.SLOW)
        self.assertEqual(p.returncode, code, out + err)
        return out, err

    def owners(self, name="many"):
        """Whose claims there are."""
        found = set()
        for path in glob.glob(self.path(name, "shared/blocks/*")):
            with open(path) as f:
                found.add(json.loads(f.readline())["member"])
        return found

    def assert_shared(self, table, count, name="many"):
        self.assertEqual(self.read(f"{name}/trials.csv"), table)
        self.assertEqual(sorted(self.results(name).values()), [1] * count)
        self.assertEqual(glob.glob(self.path(name, "shared/members/*/runs/*")), [])
        self.assertLessEqual(self.owners(name), set(self.members(name)))

    def members(self, name="many"):
        return os.listdir(self.path(name, "shared/members"))


class Shared(SharedCase):
    def test_processes_share_the_trials(self):
        table = self.alone(LONG)
        kept = sorted(os.listdir(self.path("one/runs")))
        processes = [self.share("trials=40") for _ in range(4)]
        for p in processes:
            self.end(p)
        self.assert_shared(table, 40)
        self.assertEqual(sorted(os.listdir(self.path("many/runs"))), kept)
        self.assertEqual(len(self.members()), 4)
        with open(self.path("many/history.jsonl")) as f:
            self.assertEqual([json.loads(line)["trial"] for line in f], list(range(40)))
        self.run_program(f"many/runs/{kept[0]}/config.yaml")  # an ordinary run
        out, err = self.end(self.share("trials=50"))  # more trials, later
        self.assertIn("continuing: 40 of 50", out + err)
        self.assertEqual(self.read("many/trials.csv"), self.alone(LONG, "trials=50"))

    def test_repeats_and_other_methods(self):
        text = SWEEP + "repeat: {seeds: 2}\nkeep: all\n"
        table = self.alone(text)
        for p in [self.share() for _ in range(2)]:
            self.end(p)
        self.assert_shared(table, 24)
        self.assertEqual(self.read("many/summary.csv"), self.read("one/summary.csv"))
        self.assertEqual(len(glob.glob(self.path("many/runs/*/seed-1"))), 12)
        self.sweep(SWEEP.replace("random", "tpe"), "--share", "--run-dir", "tpe")
        self.assertEqual(sorted(self.results("tpe").values()), [1] * 12)

    def test_a_sweep_of_one_process_is_continued(self):
        table = self.alone(LONG)
        self.sweep(LONG, "trials=9", "--run-dir", "many")
        for p in [self.share("trials=40") for _ in range(2)]:
            self.end(p)
        self.assertEqual(self.read("many/trials.csv"), table)
        self.assertEqual(len(self.results()), 31)
        _, err = self.sweep(LONG, "--run-dir", "many", code=USAGE)
        self.assertIn("was started with --share", err)

    def test_what_is_refused(self):
        self.sweep(SWEEP, "--share", "--run-dir", "many")
        for words, message in ((("seed=4",), "sweep.yaml differs first in\n  folder: seed: 3\n  now:    seed: 4"),
                               (("train.epochs=4",), "base_config.yaml differs in 1 key"),
                               (("repeat={seeds: 2}",), "sweep.yaml differs first in"),
                               (("--fresh",), "--share with --fresh"),
                               (("--lease", "0.1"), "--lease: expected 1 to"),
                               (("early_terminate=asha",), "--share: early_terminate compares the epochs of all runs")):
            _, err = self.sweep(SWEEP, "--share", "--run-dir", "many", *words, code=USAGE)
            self.assertIn(message, err)
        self.assertEqual(len(self.members()), 1)
        os.mkdir(self.path("other"))
        self.write("other/mine.txt", "")
        _, err = self.sweep(SWEEP, "--share", "--run-dir", "other", code=USAGE)
        self.assertIn("not a sweep's, and has files (mine.txt)", err)
        self.assertEqual(os.listdir(self.path("other")), ["mine.txt"])
        os.makedirs(self.path("begun/shared/blocks"))
        _, err = self.sweep(SWEEP, "--run-dir", "begun", code=USAGE)
        self.assertIn("begun: this sweep was started with --share", err)

    def test_a_process_alone_has_the_folder(self):
        self.write("test.yaml", LONG)
        endless = "train.epochs=100000000"
        p = self.start("sweep", "test.yaml", "--nproc", 1, endless, "--run-dir", "many")
        self.wait_for(lambda: p.poll() is not None or os.path.exists(self.path("many/history.jsonl")), what="the sweep")
        _, err = self.end(self.share(endless), USAGE)
        self.assertIn("another ddptrain is running this sweep", err)
        p.terminate()
        self.end(p, STOPPED)

    def test_other_data_and_damaged_entries(self):
        self.write("test.yaml", LONG)
        self.sweep(SWEEP, "--share", "--run-dir", "many")
        path = glob.glob(self.path("many/shared/blocks/0.1"))[0]
        with open(path) as f:
            text = f.read()
        for broken, message in ((text[:-20], "blocks/0.1: not an entry of this sweep"), (text.replace('"run"', '"ran"', 1), "blocks/0.1:2: not a line of this sweep")):
            os.remove(self.path("many/history.jsonl"))
            with open(path, "w") as f:
                f.write(broken)
            _, err = self.sweep(SWEEP, "--share", "--run-dir", "many", code=DATA)
            self.assertIn(message, err)
            with open(path, "w") as f:
                f.write(text)
            self.sweep(SWEEP, "--share", "--run-dir", "many")
        with open(path, "w") as f:  # as another host with another version of the data file
            start = text.index('"data":{"') + len('"data":{"') + 16 + 3
            f.write(text[:start] + "0" * 64 + text[start + 64:])
        os.remove(self.path("many/history.jsonl"))
        _, err = self.sweep(SWEEP, "--share", "--run-dir", "many", code=DATA)
        self.assertIn("trained on other data", err)


class Faults(SharedCase):
    """LEASE is short, but a loaded machine may be silent for that long: then trials are taken over, too."""
    LEASE = ("--lease", 2)

    def begin(self, *words):
        """A process that trains a trial of four checkpoints and has the first one; suspended with its worker, until go_on."""
        for _ in range(20):  # a machine that has no time for this test may end the trial, which takes seconds anywhere
            p = self.share(*words, *self.LEASE, env={"DDPTRAIN_FAULT": "1:slow:ever", "DDPTRAIN_FAULT_FILTER": "checkpoints"})
            self.addCleanup(p.kill)
            self.wait_for(lambda: p.poll() is not None or glob.glob(self.path("many/shared/members/*/runs/*/checkpoints/*.h5")), what="a checkpoint")
            self.assertIsNone(p.poll(), "it has ended")
            for pid in self.leftovers():
                os.kill(pid, signal.SIGSTOP)
                self.wait_for(lambda: self.state(pid) == "T", what="the pause")
            if not self.results() and len(glob.glob(self.path("many/shared/members/*/runs/*/checkpoints/*.h5"))) < 3:
                return p
            p.kill()
            self.end(p, -signal.SIGKILL)
            shutil.rmtree(self.path("many"))
        self.fail("the trial always ends before it can be suspended")

    def go_on(self):
        for pid in self.leftovers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    TRIAL = ("trials=2", "train.epochs=8000", "checkpoint.save_every=2000", "dataset.synthetic.rows=400")

    def continued(self):
        """The epoch from which the first trial was continued by the process that ended it."""
        lines = self.read("many/runs/0000/metrics.jsonl").splitlines()
        return [json.loads(line)["epoch"] for line in lines if json.loads(line)["event"] == "resume"]

    def test_who_looks_sees_the_results_of_all(self):
        """Before the end there is a table, and report and watch know that processes are running, which lock nothing."""
        for epochs in (5000, 20000, 80000):  # a fast machine ends a short sweep before it is looked at
            shutil.rmtree(self.path("many"), ignore_errors=True)
            table = self.alone(LONG, f"train.epochs={epochs}", "--fresh")
            processes = [self.share("trials=40", f"train.epochs={epochs}") for _ in range(2)]
            self.wait_for(lambda: any(p.poll() is not None for p in processes) or glob.glob(self.path("many/shared/blocks/*.1")), what="results")
            for number in (signal.SIGSTOP, signal.SIGCONT):  # the sweep may be faster than the pause between two tables
                for p in processes:
                    p.send_signal(number)
                time.sleep(2.5 if number == signal.SIGSTOP else 0)
            self.wait_for(lambda: any(p.poll() is not None for p in processes) or
                          (os.path.exists(self.path("many/trials.csv")) and self.read("many/trials.csv").count("\n") > 2), what="a table")
            for p in processes:
                p.send_signal(signal.SIGSTOP)
            if (os.path.islink(self.path("many/trials.csv")) and [p.poll() for p in processes] == [None, None] and
                    self.read("many/trials.csv").count("\n") < 41):
                break
            for p in processes:
                p.send_signal(signal.SIGCONT)
                self.end(p)
        self.assertEqual(os.readlink(self.path("many/trials.csv")), "shared/trials.csv")
        rows = self.read("many/trials.csv").splitlines()
        self.assertEqual([row for row in rows if row not in table.splitlines()], [])
        self.assertLess(len(rows), 41)
        self.assertRegex(self.end(self.start("watch", "many"))[0], rf"many: running.*\n.* {len(rows) - 1} of 40 trials")
        self.run_program("report", "many", "--out", "r.html")
        self.assertIn(rows[1].split(",")[0], self.read("r.html"))
        for p in processes:
            p.send_signal(signal.SIGCONT)
        for p in processes:
            self.end(p)
        self.assertFalse(os.path.islink(self.path("many/trials.csv")))
        self.assert_shared(table, 40)
        with open(self.path("many/shared/history.jsonl"), "w") as f:  # as by a process that was suspended since
            f.write(self.read("many/history.jsonl").splitlines(True)[0])
        watch = self.start("watch", "many")
        self.assertIn("many: complete", self.end(watch)[0])

    def test_a_moved_folder(self):
        table = self.alone(SWEEP, *self.TRIAL)
        p = self.begin(*self.TRIAL)
        os.rename(self.path("many"), self.path("it's new"))
        self.go_on()
        _, err = self.end(p, IO)
        self.assertRegex(err, r"many: the folder was moved to .*/it's new while processes share its sweep, and this one ends; start it again with --run-dir '.*/it'\\''s new'\n$")
        self.assertFalse(os.path.exists(self.path("many")))
        self.end(self.share(*self.TRIAL, name="it's new"))  # at once: the other one could still say that it ends
        self.assert_shared(table, 2, "it's new")
        p = self.begin(*self.TRIAL)
        os.rename(self.path("many"), self.path("gone"))
        os.mkdir(self.path("many"))
        self.go_on()
        self.assertIn("many: the folder was moved to", self.end(p, IO)[1])
        os.rmdir(self.path("many"))
        p = self.begin(*self.TRIAL)
        self.go_on()
        while os.path.exists(self.path("many")):  # the process may have written where rm had been
            subprocess.run(["rm", "-rf", self.path("many")], check=False, stderr=subprocess.DEVNULL)
        self.assertIn("many: the folder was deleted, replaced or moved out of reach during this sweep", self.end(p, IO)[1])

    def test_a_killed_process(self):
        """Its host knows that it does not exist: its trial is continued from the checkpoint at once."""
        table = self.alone(SWEEP, *self.TRIAL)
        p = self.begin(*self.TRIAL)
        p.kill()
        self.end(p, -signal.SIGKILL)
        self.end(self.share(*self.TRIAL))  # with a lease of a minute
        self.assert_shared(table, 2)
        self.assertGreater(self.continued()[-1], 0)

    def test_a_suspended_process(self):
        """Another one takes its trial over after the lease. When it goes on it finds that out before it publishes."""
        table = self.alone(SWEEP, *self.TRIAL)
        p = self.begin(*self.TRIAL)
        self.end(self.share(*self.TRIAL, *self.LEASE))
        self.assert_shared(table, 2)
        self.go_on()
        out, err = self.end(p)
        self.assertRegex(out + err, "trials 0 to 0: this process was silent for longer than the lease")
        self.assertEqual(self.read("many/trials.csv"), table)
        self.assertEqual(sorted(self.results().values()), [1] * 2)

    def test_a_stopped_process(self):
        table = self.alone(SWEEP, *self.TRIAL)
        p = self.begin(*self.TRIAL)
        p.terminate()
        self.go_on()
        _, err = self.end(p, STOPPED)
        self.assertIn("run the same command again to continue", err)
        self.end(self.share(*self.TRIAL))
        self.assert_shared(table, 2)
        self.assertGreater(self.continued()[-1], 0)

    def test_kills_anywhere(self):
        """Before each call that concerns the shared files, by a kill and by a full disk."""
        table = self.alone(SWEEP)
        for kind, codes in (("kill", (OK, -signal.SIGKILL)), ("enospc:ever", (OK, IO)), ("eio", (OK, IO))):
            for n in random.Random(3).sample(range(1, 160), 8):
                name = f"{kind[:4]}{n}"
                p = self.share(name=name, env={"DDPTRAIN_FAULT": f"{n}:{kind}", "DDPTRAIN_FAULT_FILTER": "blocks"})  # not of workers
                _, err = p.communicate(timeout=180 * program.SLOW)
                self.assertIn(p.returncode, codes, (name, err))
                self.end(self.share(name=name))
                self.assert_shared(table, 12, name)

    def test_shared_files_are_those_of_the_folder_that_was_opened(self):
        """By its descriptor, so that another sweep that takes its place gets nothing. Messages name its path."""
        self.sweep(SWEEP, "--run-dir", "one")
        for n in (1, 2):  # before there are workers
            p = self.share(name=f"many{n}", env={"DDPTRAIN_FAULT": f"{n}:enospc:ever", "DDPTRAIN_FAULT_FILTER": "/proc/self/fd/"})
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, IO, (n, err))
            self.assertIn(f"many{n}/shared/", err)
            self.assertNotIn("/proc/self", err)

    def test_random_faults(self):
        table = self.alone(LONG, *WORDS)
        draw, processes, suspended, faults = random.Random(1), [], [], 0
        deadline = time.monotonic() + 20 * program.SLOW
        while time.monotonic() < deadline:
            processes = [p for p in processes if p.poll() is None]
            for p in [p for p, end in suspended if end < time.monotonic()]:
                p.send_signal(signal.SIGCONT)
            suspended = [s for s in suspended if s[1] >= time.monotonic()]
            while faults < 12 and len(processes) < 3:
                processes.append(self.share(*WORDS, *self.LEASE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            if not processes:
                break
            time.sleep(0.1)
            if faults < 12:
                p, number = draw.choice(processes), draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
                p.send_signal(number)
                suspended += [(p, time.monotonic() + draw.uniform(1, 4))] if number == signal.SIGSTOP else []
                faults += 1
        for p, _ in suspended:
            p.send_signal(signal.SIGCONT)
        for p in processes:
            p.wait(180 * program.SLOW)
        self.end(self.share(*WORDS, *self.LEASE))
        self.assert_shared(table, 40)
