"""How sweeps end: workers, coordinators and ranks that are killed or stopped, disks that are full, trials of several processes.
ctest-labels: dist fault"""
import contextlib, glob, json, os, random, re, resource, shutil, signal, socket, struct, subprocess, sys, time, unittest

import program
from program import IO, OK, STOPPED, USAGE
from test_sweep import SWEEP, GRID, SweepCase


class Parallel(SweepCase):
    """nproc_per_trial: the run of the config with --nproc N."""
    WORDS = ("nproc_per_trial=2", "--nproc", 2, "trials=6")

    def test_a_trial_is_the_run_of_its_config_on_as_many_processes(self):
        self.sweep(SWEEP, *self.WORDS, "keep=best 2")
        rows = self.rows()
        self.assertEqual({r["state"] for r in rows}, {"complete"})
        self.assertEqual(len(self.kept()), 2)
        row = rows[int(self.kept()[0])]
        words = [f"{k}={row[k]}" for k in ("optimizer.lr", "sampler.batch_size", "model.layers.0.linear.out")]
        self.run_program("base.yaml", *words, "--nproc", 2, "--run-dir", "alone", "checkpoint.best={metric: val_loss, mode: min}")
        self.assertEqual(self.sha("alone"), row["state_sha256"])
        losses = [e["val_loss"] for e in self.events("epoch", "alone")]
        self.assertEqual((min(losses), losses.index(min(losses)) + 1, 3), (float(row["val_loss"]), int(row["best_epoch"]), int(row["epochs"])))
        self.assert_no_leftovers()

    def test_failures_and_pruning(self):
        self.sweep("config: base.yaml\nmethod: list\nnproc_per_trial: 2\ntrials: [{optimizer.lr: 0.01}, {optimizer: {type: sgd, lr: 1.0e+30}}]\n", name="bad")
        rows = self.rows("bad")
        self.assertEqual([r["state"] for r in rows], ["complete", "failed"])
        self.assertIn("not finite", rows[1]["message"])
        for epochs in (2500, 10000, 40000):  # a fast machine ends a short trial before the request to stop
            self.sweep(SWEEP, *self.WORDS[:1], "--nproc", 1, "trials=8", f"train.epochs={epochs}", "early_terminate={type: asha, min_epochs: 20}", "--fresh")
            rows = self.rows()
            if "pruned" in {r["state"] for r in rows}:
                break
        self.assertIn("pruned", {r["state"] for r in rows})
        for row in rows:
            self.assertTrue(row["state"] == "complete" or int(row["epochs"]) < epochs, row)

    def test_a_trial_that_loses_a_rank_is_handed_out_again(self):
        """As one whose worker was lost: from its checkpoint, and three times in a row are a failure."""
        self.write("lost.yaml", SWEEP)
        p = self.start("sweep", "lost.yaml", "trials=1", "train.epochs=2000000", "checkpoint.save_every={steps: 50}", "nproc_per_trial=2", "--nproc", 1)
        checkpoints, before = self.path("sweeps/lost/runs/0000/checkpoints/*.h5"), set()
        for number in range(3):
            deadline, ranks = time.monotonic() + 300 * program.SLOW, {}
            while len(ranks) < 2 or set(glob.glob(checkpoints)) <= before:
                self.assertIsNone(p.poll())
                self.assertLess(time.monotonic(), deadline)
                ranks = self.processes_of_ranks()
            os.kill(ranks[number % 2], signal.SIGKILL)
            self.wait_while_alive(ranks.values())
            before = set(glob.glob(checkpoints))
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, program.PEER, err)
        lost = r"has lost a process \(rank \d \(host .*\) was killed by SIGKILL.*\)"
        self.assertEqual(len(re.findall(rf"the worker of trial 0 {lost}; the trial is handed out again\n", err)), 2, err)
        self.assertRegex(self.rows("lost")[0]["message"], rf"^its worker {lost}, 3 times in a row; the same command tries it again$")

    def processes_of_ranks(self):
        """rank -> process id"""
        found = {}
        for pid in self.leftovers():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ") as f:
                rank = re.search(r"(?:^|\0)RANK=(\d+)", f.read())
                if rank:
                    found[int(rank[1])] = pid
        return found

    def wait_while_alive(self, pids):
        deadline = time.monotonic() + 300 * program.SLOW
        while set(pids) & set(self.leftovers()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_a_full_disk_is_reported_with_its_advice(self):
        """The message of the trial's own process has two lines: what happened, and what to do."""
        _, err = self.sweep(SWEEP, *self.WORDS[:1], "trials=1", code=IO, env={"DDPTRAIN_FAULT": "1:enospc:ever", "DDPTRAIN_FAULT_FILTER": ".h5"})
        self.assertRegex(err, "ddptrain: trial 0: rank 0 .*: No space left on device\nthe last state is not saved; .*\n$")

    def test_a_kill_and_a_stop(self):
        words = (*self.WORDS, "train.epochs=300", "keep=best 2")
        self.sweep(SWEEP, *words)
        for number in (signal.SIGKILL, signal.SIGTERM):
            name = f"ended{number}"
            self.write(f"{name}.yaml", SWEEP)
            p = self.start("sweep", f"{name}.yaml", *words)
            time.sleep(0.3 * program.SLOW)
            p.send_signal(number)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertNotIn("the budget", err)
            self.assert_no_leftovers()
            self.sweep(SWEEP, *words, name=name)
            self.assertEqual(self.rows(name), self.rows())


class Folder(SweepCase):
    """The folder of a sweep is moved, or deleted and replaced, while it runs."""
    TEXT = "config: base.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.01}, {optimizer.lr: 0.02}, {optimizer.lr: 0.03}]\nkeep: best 2\n"

    def begin(self):
        """After the first trial; its worker goes on, and the coordinator is stopped, so that it cannot end before the folder has
        been moved. self.words: the number of epochs with which a trial takes some time."""
        self.write("test.yaml", self.TEXT)
        history = self.path("sweeps/test/history.jsonl")
        for epochs in (6000, 24000, 96000, 384000):
            self.words = (f"train.epochs={epochs}", "--nproc", 1)
            p = self.start("sweep", "test.yaml", *self.words)
            self.addCleanup(p.kill)
            self.wait_for(lambda: p.poll() is not None or (os.path.exists(history) and os.path.getsize(history)), what="the first trial")
            time.sleep(0.1)  # the table is written, and the next trial has begun
            p.send_signal(signal.SIGSTOP)
            self.wait_for(lambda: p.poll() is not None or self.state(p.pid) == "T", what="the pause")
            if p.poll() is None and len(self.history()) == 1 and self.history()[0]["seconds"] > 0.4:
                break
            p.kill()
            p.communicate()
            self.assert_no_leftovers()
            shutil.rmtree(self.path("sweeps/test"))
        self.assertIsNone(p.poll())
        return p

    def replace(self):
        self.sweep(self.TEXT, "train.epochs=1")
        names = sorted(os.listdir(self.path("sweeps/test/runs")))
        with open(self.path("sweeps/test/trials.csv")) as f:
            return f.read(), names

    def assert_as_replaced(self, before):
        with open(self.path("sweeps/test/trials.csv")) as f:
            self.assertEqual((f.read(), sorted(os.listdir(self.path("sweeps/test/runs")))), before)

    def test_a_moved_folder_is_followed(self):
        p = self.begin()
        os.rename(self.path("sweeps/test"), self.path("sweeps/moved"))
        p.send_signal(signal.SIGCONT)
        replaced = self.replace()
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.sweep(self.TEXT, *self.words, name="reference")
        self.assertEqual(p.returncode, OK, err)
        self.assertIn("sweeps/moved during this sweep, which continues there", err)
        self.assert_as_replaced(replaced)
        self.assertEqual(self.rows("moved"), self.rows("reference"))
        self.assertEqual(self.kept("moved"), self.kept("reference"))

    def test_a_folder_that_is_moved_while_its_table_is_written(self):
        self.write("test.yaml", self.TEXT)
        p = self.start("sweep", "test.yaml", "train.epochs=100000000", "--nproc", 1, env={"DDPTRAIN_FAULT": "1:slow:ever", "DDPTRAIN_FAULT_FILTER": "trials.csv"})
        self.addCleanup(p.kill)
        for _ in range(20):  # the file may get its name before the coordinator is stopped
            self.wait_for(lambda: p.poll() is not None or glob.glob(self.path("sweeps/test/trials.csv.tmp-*")), what="the table")
            p.send_signal(signal.SIGSTOP)
            self.wait_for(lambda: p.poll() is not None or self.state(p.pid) == "T", what="the pause")
            if p.poll() is not None or glob.glob(self.path("sweeps/test/trials.csv.tmp-*")):
                break
            p.send_signal(signal.SIGCONT)
        os.rename(self.path("sweeps/test"), self.path("sweeps/moved"))
        p.send_signal(signal.SIGCONT)
        self.assertTrue(any("sweeps/moved during this sweep, which continues there" in line for line in p.stderr))
        p.terminate()
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, STOPPED, err)
        self.assertEqual(glob.glob(self.path("sweeps/moved/trials.csv*")), [self.path("sweeps/moved/trials.csv")])

    def test_a_comparison_reads_what_was_moved(self):
        """Not the folder that another one has made at the old path."""
        self.write("other.yaml", self.read("base.yaml"))
        for epochs in (6000, 24000, 96000):  # a fast machine may have ended few epochs before the folder is moved
            words = ("compare", "base.yaml", "other.yaml", f"train.epochs={epochs}", "optimizer.lr=0.001", "--seeds", 3, "--nproc", 1, "--fresh")
            p = self.start(*words)
            self.wait_for(lambda: p.poll() is not None or (os.path.exists(self.path("sweeps/base-or-other/history.jsonl")) and self.read("sweeps/base-or-other/history.jsonl")), what="a run")
            os.rename(self.path("sweeps/base-or-other"), self.path("sweeps/moved"))
            self.run_program("compare", "base.yaml", "other.yaml", "train.epochs=1", "--seeds", 2)
            out, err = p.communicate(timeout=180 * program.SLOW)
            if "sweeps/moved" in err:
                break
            shutil.rmtree(self.path("sweeps/moved"))
        self.assertEqual((p.returncode, out), (OK, self.run_program(*words, "--run-dir", "sweeps/reference")[0]), err)
        self.assertIn("sweeps/moved during this sweep, which continues there", err)

    def test_a_deleted_folder_ends_the_sweep(self):
        p = self.begin()
        self.code = USAGE
        while self.code == USAGE:
            while os.path.exists(self.path("sweeps/test")):  # a run may just write a file
                subprocess.run(["rm", "-rf", self.path("sweeps/test")], stderr=subprocess.DEVNULL)
            _, said = self.run_program("sweep", "test.yaml", "train.epochs=1", code=None)
            if self.code == USAGE:  # a run that has just begun has made its folder again
                self.assertIn("this folder is not a sweep's, and has files (runs)", said)
        self.assertEqual(self.code, OK, said)
        p.send_signal(signal.SIGCONT)
        replaced = self.replace()
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, IO, err)
        self.assertIn("the folder was deleted, replaced or moved out of reach during this sweep", err)
        self.assert_as_replaced(replaced)


class Ends(SweepCase):
    WORDS = ("trials=60", "train.epochs=40", "keep=best 3", "--nproc", "2")

    def workers(self, p):
        with contextlib.suppress(OSError):  # it has ended
            children = self.children(p)
            return [pid for pid in self.leftovers() if pid in children]
        return []

    def bytes_of(self, name):
        with open(self.path("sweeps", name, "trials.csv"), "rb") as f:
            return f.read()

    def test_the_table_is_the_same_after_any_kill(self):
        self.sweep(SWEEP, *self.WORDS)
        seed = int(os.environ.get("DDPTRAIN_SWEEP_SEED", "1"))
        rng = random.Random(seed)
        for attempt in range(int(os.environ.get("DDPTRAIN_SWEEP_KILLS", "5"))):
            with self.subTest(seed=seed, attempt=attempt):
                self.write("killed.yaml", SWEEP)
                whom = rng.choice(("coordinator", "worker", "all"))
                p = self.start("sweep", "killed.yaml", *self.WORDS)
                time.sleep(rng.uniform(0, 0.5) * program.SLOW)
                workers = self.workers(p)
                targets = [p.pid] if whom == "coordinator" else workers[:1] if whom == "worker" else [p.pid, *workers]
                for pid in targets:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                p.communicate(timeout=180 * program.SLOW)
                self.sweep(SWEEP, *self.WORDS, name="killed")
                self.assertEqual(self.bytes_of("killed"), self.bytes_of("test"), whom)
                self.assert_every_trial_once(60, "killed")
                self.assertEqual(self.kept("killed"), self.kept())
                self.assert_no_leftovers()
                subprocess.run(["rm", "-r", self.path("sweeps", "killed")], check=True)

    def test_a_request_to_stop(self):
        self.sweep(SWEEP, *self.WORDS)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            name = f"stopped{number}"
            self.write(f"{name}.yaml", SWEEP)
            p = self.start("sweep", f"{name}.yaml", *self.WORDS)
            history = self.path("sweeps", name, "history.jsonl")
            while p.poll() is None and not (os.path.exists(history) and os.path.getsize(history)):
                time.sleep(0.005)
            p.send_signal(number)
            _, err = p.communicate(timeout=180 * program.SLOW)
            if p.returncode != OK:  # a fast machine may have been done
                self.assertEqual(p.returncode, STOPPED, err)
                self.assertRegex(err, r"stopped on request after \d+ of 60 runs; run the same command again to continue")
            self.assert_no_leftovers()
            self.sweep(SWEEP, *self.WORDS, name=name)
            self.assertEqual(self.bytes_of(name), self.bytes_of("test"))

    def test_a_worker_that_always_dies_is_a_failed_trial(self):
        """DDPTRAIN_FAULT ends a process at a system call of a save, which only the run folder of a kept trial makes."""
        self.write("killed.yaml", SWEEP)
        p = self.start("sweep", "killed.yaml", "trials=1", "train.epochs=2000000", "--nproc", "1")
        while p.poll() is None:  # one that is killed before it has the trial does not count
            for pid in self.workers(p)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self.wait_for(lambda: pid not in self.workers(p))
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, program.PEER, err)
        self.assertIn("the trial is handed out again", err)
        row = self.rows("killed")[0]
        self.assertEqual((row["state"], row["message"]), ("failed", "its worker was ended by signal 9 (Killed), 3 times in a row; the same command tries it again"))

    def test_the_same_command_tries_a_lost_trial_again(self):
        """But none that has failed because of its values."""
        self.write("lost.yaml", "config: base.yaml\nmethod: list\ntrials: [{}, {sampler.batch_size: 4000, sampler.drop_last: true}, {optimizer.lr: 0.02}]\nkeep: none\n")
        self.run_program("sweep", "lost.yaml")
        expected, history = self.bytes_of("lost"), self.read("sweeps/lost/history.jsonl")
        for trials in ((0,), (0, 2)):
            lines = [json.loads(line) for line in history.splitlines()]
            for line in lines:
                if line["trial"] in trials:
                    line.update(state="failed", value=None, best_epoch=0, epochs=0, state_sha256="", code=program.PEER, message="its worker was ended by signal 9 (Killed), 3 times in a row")
            self.write("sweeps/lost/history.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
            _, err = self.run_program("sweep", "lost.yaml")
            self.assertIn(f"trying {len(trials)} run{'s' if len(trials) > 1 else ''} again whose workers were lost at an earlier start\n", err)
            self.assertIn(f"continuing: {3 - len(trials)} of 3 trials have ended", err)
            self.assertEqual(self.bytes_of("lost"), expected)
            self.assertEqual(sorted(json.loads(line)["trial"] for line in self.read("sweeps/lost/history.jsonl").splitlines()[3:]), list(trials))
            self.assertNotIn("again", self.run_program("sweep", "lost.yaml")[1])

    def wait_for_worker(self, p):
        self.wait_for(lambda: self.workers(p) or p.poll() is not None)
        return self.workers(p)[0]

    def test_a_worker_that_ends_while_the_best_runs_get_their_folders(self):
        """The other worker is training one of them, too."""
        for number in (signal.SIGKILL, signal.SIGTERM):
            name = f"ended{number}"
            self.write(f"{name}.yaml", GRID)
            p = self.start("sweep", f"{name}.yaml", "keep=best 4", "train.epochs=8000", "--nproc", "2")
            runs = self.path("sweeps", name, "runs")
            self.wait_for(lambda: p.poll() is not None or (os.path.isdir(runs) and len(os.listdir(runs)) >= 2))
            with contextlib.suppress(IndexError, ProcessLookupError):  # all has ended
                os.kill(self.wait_for_worker(p), number)
            _, err = p.communicate(timeout=300 * program.SLOW)
            self.assertEqual(p.returncode, OK, err)
            self.assertEqual(len(self.kept(name)), 4)
            for trial in self.kept(name):
                self.assertEqual(self.sha(f"sweeps/{name}/runs/{trial}"), self.rows(name)[int(trial)]["state_sha256"])

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user, to whom ulimit -u applies")
    def test_the_best_runs_get_their_folders_with_few_processes(self):
        """More workers train short ones again than --nproc says, but only where they can be started."""
        os.chmod(self.folder, 0o777)
        shutil.copy(program.BINARY, self.path("ddptrain"))
        self.write("short.yaml", SWEEP)

        def sweep(limit, keep):
            return subprocess.run([self.path("ddptrain"), "sweep", "short.yaml", "--nproc", "1", keep, "--run-dir", f"limit{limit}-{keep}"],
                                  cwd=self.folder, env=self.environment(None), capture_output=True, text=True, user=100000 + os.getpid(),  # who has no other processes
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit)))
        first = next(n for n in range(1, 500) if sweep(n, "keep=best 1").returncode == OK)
        for limit in (first, first + 3, first + 7):
            p = sweep(limit, "keep=best 9")
            self.assertEqual(p.returncode, OK, f"{limit}\n{p.stderr}")
            self.assertEqual(len(os.listdir(self.path(f"limit{limit}-keep=best 9/runs"))), 9)

    def test_workers_that_are_stopped_between_runs(self):
        """Such a worker has ended as it should, with jobs that it has not begun: no loss of a trial."""
        for trials in (6000, 24000, 96000):  # a fast machine may have ended few trials before
            self.write("short.yaml", SWEEP.replace("trials: 12", f"trials: {trials}") + "keep: none\n")
            p = self.start("sweep", "short.yaml", "train.epochs=1", "--nproc", "1", "--fresh")
            seen = set()
            while p.poll() is None and len(seen) < 40:
                for worker in set(self.workers(p)) - seen:
                    seen.add(worker)
                    time.sleep(0.004)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGTERM)
            if len(seen) > 10:
                break
            p.communicate()
        self.assertGreater(len(seen), 10)
        _, err = p.communicate(timeout=300 * program.SLOW)
        self.assertEqual(p.returncode, OK, err)
        self.assertNotIn("the worker of trial", err)
        self.assertEqual({r["state"] for r in self.rows("short")}, {"complete"})
        self.assert_every_trial_once(trials, "short")

    def test_a_long_trial_goes_on_from_its_checkpoint_in_another_worker(self):
        """After some seconds a trial has a run folder; a worker that is killed loses the time since the last checkpoint."""
        self.write("long.yaml", "config: base.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.02}]\nkeep: all\n")
        folder = self.path("sweeps/long/runs/0000/checkpoints")
        for epochs in (4000, 16000, 64000):  # a fast machine may have ended few epochs before the kill
            words = (f"train.epochs={epochs}", "checkpoint.save_every=100", "dataset.synthetic.rows=600", "--nproc", "1")
            p = self.start("sweep", "long.yaml", *words, "--fresh")
            self.wait_for(lambda: p.poll() is not None or (os.path.isdir(folder) and len(os.listdir(folder)) > 2))
            with contextlib.suppress(IndexError, ProcessLookupError):
                os.kill(self.wait_for_worker(p), signal.SIGKILL)
            _, err = p.communicate(timeout=300 * program.SLOW)
            self.assertEqual(p.returncode, OK, err)
            if "handed out again" in err:
                break
        self.assertTrue(self.events("resume", "sweeps/long/runs/0000"), "the run began again")
        self.run_program("base.yaml", *words[:-2], "optimizer.lr=0.02", "--run-dir", "alone", "checkpoint.best={metric: val_loss, mode: min}", timeout=300)
        self.assertEqual(self.rows("long")[0]["state_sha256"], self.sha("alone"))

    def test_a_killed_sweep_of_runs_that_never_resume(self):
        """The next start of the sweep continues its own run folders; else the kill would be in the table, as failed trials."""
        self.write("never.yaml", "config: base.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.02}, {checkpoint.resume: never}]\nkeep: all\n"
                   "overrides: [checkpoint.resume=never]\n")
        folders = [self.path(f"sweeps/never/runs/000{k}/checkpoints") for k in (0, 1)]
        for epochs in (4000, 16000, 64000):  # a fast machine may have ended few epochs before the kill
            words = (f"train.epochs={epochs}", "checkpoint.save_every=100", "dataset.synthetic.rows=600", "--nproc", "2")
            p = self.start("sweep", "never.yaml", *words, "--fresh")
            self.wait_for(lambda: p.poll() is not None or all(os.path.isdir(f) and len(os.listdir(f)) > 1 for f in folders))
            p.kill()
            p.communicate()
            self.assert_no_leftovers()
            if p.returncode != OK and not any(self.events("end", f"sweeps/never/runs/000{k}") for k in (0, 1)):
                break
        self.run_program("sweep", "never.yaml", *words)
        self.assertEqual({(row["state"], row["epochs"]) for row in self.rows("never")}, {("complete", str(epochs))})
        self.assertTrue(self.events("resume", "sweeps/never/runs/0000"))

    def test_a_slow_trial_without_a_folder_gets_one(self):
        """keep: none, so it begins without; it takes longer than 5 seconds, and is pruned from the folder at the end."""
        self.write("slow.yaml", "config: base.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.02}]\nkeep: none\n")
        words = ("train.epochs=100000000", "--nproc", "1")
        p = self.start("sweep", "slow.yaml", *words)
        self.wait_for(lambda: p.poll() is not None or os.path.exists(self.path("sweeps/slow/runs/0000/config.yaml")))
        self.assertIsNone(p.poll())
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, STOPPED, err)
        self.assertTrue(self.checkpoints("sweeps/slow/runs/0000"), "what was trained is saved")

    def test_one_coordinator_at_a_time(self):
        self.write("test.yaml", SWEEP)
        p = self.start("sweep", "test.yaml", "trials=1", "train.epochs=100000000")
        self.wait_for(lambda: p.poll() is not None or os.path.exists(self.path("sweeps/test/base_config.yaml")))
        self.run_program("sweep", "test.yaml", "trials=1", "train.epochs=100000000", code=USAGE, err="sweeps/test: another ddptrain is running this sweep")
        p.terminate()
        p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, STOPPED)

    def test_a_lock_that_is_held_for_a_moment(self):
        """Of watch, or of the workers of a coordinator that was killed."""
        import fcntl, threading
        self.sweep(GRID)
        with open(self.path("sweeps/test/.lock")) as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            threading.Timer(0.5, lambda: fcntl.flock(f, fcntl.LOCK_UN)).start()
            self.sweep(GRID)

    def test_a_full_disk_ends_the_sweep_and_nothing_is_lost(self):
        import resource
        self.write("test.yaml", SWEEP)
        p = self.start("sweep", "test.yaml", *self.WORDS, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, IO, err)
        self.assertIn("sweeps/test/", err)
        self.sweep(SWEEP, *self.WORDS)
        self.sweep(SWEEP, *self.WORDS, name="whole")
        self.assertEqual(self.bytes_of("test"), self.bytes_of("whole"))


    def test_a_checkpoint_that_cannot_be_written_is_no_failed_trial(self):
        import resource
        words = ("trials=3", "keep=all", "model.layers.0.linear.out=4000")
        text = SWEEP.replace("  model.layers.0.linear.out: {distribution: int_uniform, min: 4, max: 12}\n", "")
        self.write("test.yaml", text)
        p = self.start("sweep", "test.yaml", *words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, IO, err)
        self.assertRegex(err, "ddptrain: trial \\d+: ")
        self.sweep(text, *words)
        self.assertEqual([r["state"] for r in self.rows()], ["complete"] * 3)
        self.sweep(text, *words, name="whole")
        self.assertEqual(self.bytes_of("test"), self.bytes_of("whole"))

    def test_a_trial_with_a_run_that_fails_has_its_other_runs(self):
        """So that the table does not depend on which run ended first."""
        text = "config: base.yaml\nmethod: list\nrepeat: {seeds: 3}\ntrials: [{optimizer: {type: sgd, lr: 1.0e+30}}, {optimizer.lr: 0.01}]\n"
        _, err = self.sweep(text, "--nproc", 3)
        self.assertEqual([(r["trial"], r["seed"], r["state"]) for r in self.rows()],
                         [("0", str(i), "failed") for i in range(3)] + [("1", str(i), "complete") for i in range(3)])
        self.assertEqual([(r["state"], r["runs"]) for r in self.rows(table="summary.csv")], [("failed", "0"), ("complete", "3")])
        self.assertIn("done: 6 of 6 runs, 3 failed", err)


class Ranks(SweepCase):
    """The ranks of another launcher, here with torchrun's variables: rank 0 hands out runs, the others are workers."""
    WORDS = ("trials=60", "train.epochs=40", "keep=best 3")

    def setUp(self):
        super().setUp()
        self.port = program.free_port()

    def rank(self, rank, world, *words, name="test", **options):
        env = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port}
        return self.start("sweep", f"{name}.yaml", *(words or self.WORDS), env={k: str(v) for k, v in env.items()}, **options)

    def end(self, process, code=OK):
        out, err = process.communicate(timeout=180 * program.SLOW)
        self.assertEqual(process.returncode, code, out + err)
        return err

    def expected(self, *words):
        self.sweep(SWEEP, *(words or self.WORDS), name="alone")
        self.write("test.yaml", SWEEP)
        with open(self.path("sweeps/alone/trials.csv"), "rb") as f:
            return f.read()

    def assert_table(self, expected):
        with open(self.path("sweeps/test/trials.csv"), "rb") as f:
            self.assertEqual(f.read(), expected)
        self.assert_every_trial_once(60)
        self.assertEqual(self.kept(), self.kept("alone"))
        self.assert_no_leftovers()

    def started(self, p):
        """Waits until the sweep has results."""
        history = self.path("sweeps/test/history.jsonl")
        self.wait_for(lambda: p.poll() is not None or (os.path.exists(history) and os.path.getsize(history)), what="a result")

    def test_ranks_are_workers(self):
        expected = self.expected()
        ranks = [self.rank(r, 3) for r in (2, 1, 0)]
        for p in ranks:
            self.end(p)
        self.assert_table(expected)

    def test_a_rank_that_connects_late_and_one_that_never_does(self):
        expected = self.expected()
        first = self.rank(0, 3)
        self.started(first)
        late = self.rank(1, 3)
        self.end(first)  # after some seconds of waiting for rank 2
        self.end(late)
        self.assert_table(expected)
        self.assertIn("rank 2 cannot reach the coordinator of the sweep", self.end(self.rank(2, 3, *self.WORDS, "dist.timeout=1"), program.PEER))

    def test_a_worker_and_a_rank_that_are_killed(self):
        expected = self.expected()
        for whom in ("worker", "rank"):
            ranks = [self.rank(r, 2) for r in (0, 1)]
            self.started(ranks[0])
            target = ranks[1].pid if whom == "rank" else next(iter(self.children(ranks[1])), ranks[1].pid)
            try:
                os.kill(target, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.end(ranks[0])
            ranks[1].communicate(timeout=300)
            self.assert_table(expected)
            subprocess.run(["rm", "-r", self.path("sweeps/test")], check=True)

    def wait_for_worker(self, rank):
        """Waits until a rank other than 0 has its first run, for which it starts a process."""
        self.wait_for(lambda: self.children(rank), what="a worker")

    def test_without_the_coordinator_the_ranks_end(self):
        expected = self.expected()
        long = (*self.WORDS, "train.epochs=100000")
        ranks = [self.rank(r, 3, *long) for r in (0, 1, 2)]
        for p in ranks[1:]:
            self.wait_for_worker(p)
        ranks[0].kill()
        for p in ranks[1:]:
            self.assertIn("rank 0, the coordinator of the sweep, was lost; run the same command again to continue", self.end(p, program.PEER))
        ranks[0].communicate()
        self.assert_no_leftovers()
        ranks = [self.rank(r, 3, *self.WORDS, "--fresh") for r in (0, 1, 2)]
        for p in ranks:
            self.end(p)
        self.assert_table(expected)

    def test_a_request_to_stop(self):
        words = (*self.WORDS, "train.epochs=400")
        expected = self.expected(*words)
        for _ in range(20):  # the sweep may end before the request arrives
            shutil.rmtree(self.path("sweeps/test"), ignore_errors=True)
            ranks = [self.rank(r, 3, *words) for r in (0, 1, 2)]
            self.started(ranks[0])
            self.wait_for(lambda: all(p.poll() is not None or self.catches(p.pid, signal.SIGTERM) for p in ranks), what="all ranks")
            for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):  # all get the request before any of them ends
                for p in ranks:
                    p.send_signal(number)
            ends = [(p.communicate(timeout=180 * program.SLOW), p.returncode) for p in ranks]
            if OK not in [code for _, code in ends]:
                break
        self.assertEqual({code for _, code in ends}, {STOPPED}, ends)
        for p in [self.rank(r, 3, *words) for r in (0, 1, 2)]:
            self.end(p)
        self.assert_table(expected)

    def test_a_request_to_stop_one_rank(self):
        """It ends, and the others do its runs."""
        expected = self.expected()
        for _ in range(20):  # the sweep may end before the request arrives
            ranks = [self.rank(r, 2, *self.WORDS, "--fresh") for r in (0, 1)]
            self.started(ranks[0])
            while ranks[1].poll() is None and not self.children(ranks[1]):
                time.sleep(0.002)
            ranks[1].send_signal(signal.SIGTERM)
            _, err = ranks[1].communicate(timeout=180 * program.SLOW)
            self.end(ranks[0])
            self.assert_table(expected)
            if ranks[1].returncode != OK:
                break
        self.assertEqual(ranks[1].returncode, STOPPED, err)

    def test_another_sweep_on_one_rank(self):
        self.write("test.yaml", SWEEP)
        first, other = self.rank(0, 2), self.rank(1, 2, *self.WORDS, "seed=9")
        self.assertIn("rank 1 has another sweep than rank 0", self.end(other, USAGE))
        self.end(first)
        self.assert_every_trial_once(60)

    def test_an_error_of_the_coordinator_ends_all(self):
        self.sweep(SWEEP, *self.WORDS)
        ranks = [self.rank(r, 2, *self.WORDS, "seed=9") for r in (0, 1)]
        self.assertIn("this sweep folder belongs to another sweep", self.end(ranks[0], USAGE))
        self.end(ranks[1])

    def test_connections_without_the_secret_have_no_effect(self):
        """Bytes that are no HELLO, a HELLO cut short, and a true HELLO without the secret."""
        expected = self.expected()
        env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port)}
        first = self.start("sweep", "test.yaml", *self.WORDS, "train.epochs=40", env=env)
        hello = struct.pack("<IIII", 0x57534444, 1, 2, 0) + bytes(64)
        connections, deadline = [], time.monotonic() + 30
        while first.poll() is None and len(connections) < 60 and time.monotonic() < deadline:
            try:
                s = socket.create_connection(("127.0.0.1", self.port), timeout=1)
            except OSError:
                time.sleep(0.005)
                continue
            connections.append(s)
            try:
                s.sendall((b"GET / HTTP/1.0\r\n\r\n" * 9, hello[:40], hello, hello + os.urandom(4000), os.urandom(80))[len(connections) % 5])
            except OSError:
                pass
        self.assertGreater(len(connections), 20)
        self.end(first)
        for s in connections:
            s.settimeout(5)
            try:
                self.assertLessEqual(len(s.recv(10000)), 44)  # at most a CHALLENGE
            except OSError:
                pass
            s.close()
        self.assert_table(expected)

    def flood(self):
        """A process that connects 200 times a second, says nothing, and keeps the last 8000 connections."""
        code = """if True:
            import resource, socket, sys, time
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            kept, begin = [None] * 8000, time.monotonic()
            for i in range(10**9):
                s = kept[i % 8000] = socket.socket()
                try:
                    s.settimeout(1)
                    s.connect(("127.0.0.1", int(sys.argv[1])))
                except OSError:
                    pass
                if i == 300:
                    print("flooded", flush=True)
                time.sleep(max(0, begin + i / 200 - time.monotonic()))
            """
        p = subprocess.Popen([sys.executable, "-c", code, str(self.port)], stdout=subprocess.PIPE, text=True)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.assertEqual(p.stdout.readline(), "flooded\n")

    def test_a_flood_of_strangers_keeps_no_rank_out(self):
        self.write("test.yaml", SWEEP)
        slow = ("trials=100000", "train.epochs=200", "keep=none")
        first = self.rank(0, 2, *slow)
        self.started(first)
        self.flood()
        second = self.rank(1, 2, *slow)
        self.addCleanup(second.kill)
        self.addCleanup(first.kill)
        self.wait_for_worker(second)
        for p in (second, first):
            p.send_signal(signal.SIGTERM)
            self.end(p, program.STOPPED)

    def test_a_rank_connects_again_when_its_proof_was_not_read(self):
        """Rank 0 closes connections in a flood, also one whose proof is on its way."""
        self.write("test.yaml", SWEEP)
        slow = ("trials=100000", "train.epochs=200", "keep=none")
        with socket.create_server(("127.0.0.1", self.port)) as listener:
            listener.settimeout(30 * program.SLOW)
            second = self.rank(1, 2, *slow)
            for _ in range(2):
                s, _ = listener.accept()
                with s:
                    self.assertEqual(len(s.recv(80, socket.MSG_WAITALL)), 80)
                    s.sendall(struct.pack("<III", 0x57534444, 0, 2) + bytes(32))
                    self.assertTrue(s.recv(1 << 16))
        first = self.rank(0, 2, *slow)
        self.wait_for_worker(second)
        for p in (second, first):
            p.send_signal(signal.SIGTERM)
            self.end(p, STOPPED)

    def test_a_rank_that_is_started_twice_or_with_another_world_size(self):
        """It is told what is wrong, and the sweep goes on."""
        expected = self.expected()
        slow = ("trials=100000", "train.epochs=200", "keep=none")
        ranks = [self.rank(r, 3, *slow) for r in (0, 1)]
        self.started(ranks[0])
        self.wait_for_worker(ranks[1])  # else the process below may be the first rank 1
        self.assertIn("rank 1: another process takes part in this sweep as rank 1; start each rank once, with its own RANK", self.end(self.rank(1, 3, *slow), USAGE))
        self.assertIn("rank 2 has WORLD_SIZE 4, but rank 0 has 3: WORLD_SIZE must be the same on all ranks of a sweep", self.end(self.rank(2, 4, *slow), USAGE))
        self.assertIn("rank 3 has WORLD_SIZE 4, but rank 0 has 3", self.end(self.rank(3, 4, *slow), USAGE))
        for p in ranks:
            p.send_signal(signal.SIGTERM)
        for p in ranks:
            self.end(p, program.STOPPED)
        ranks = [self.rank(r, 2, "--fresh", *self.WORDS) for r in (0, 1)]
        for p in ranks:
            self.end(p)
        self.assert_table(expected)

    def test_options_of_a_launcher_of_our_own(self):
        self.write("test.yaml", GRID)
        self.assertIn("--nproc 2: this process is already rank 0 of 2", self.end(self.rank(0, 2, "--nproc", "2"), USAGE))
        self.assertIn("nproc_per_trial: 2: each process of", self.end(self.rank(0, 2, "nproc_per_trial=2"), USAGE))
