"""Whatever interrupts a run, the same command continues it and ends with the same bits. ctest-labels: fault"""
import contextlib, fcntl, glob, os, random, shutil, signal, subprocess, time

import numpy as np

import program
from program import DATA, IO, OK, STOPPED, USAGE


class Resume(program.Case):
    given_files = {"test.yaml": program.LONG}

    def reference(self, *arguments):
        self.run_program("test.yaml", *arguments, "--run-dir", "runs/reference")
        self.expected_sha, self.expected_losses = self.sha("runs/reference"), self.losses("runs/reference")

    def check_same_run(self, *arguments):
        self.run_program("test.yaml", *arguments)
        self.assertEqual(self.sha(), self.expected_sha)
        self.assertEqual(self.losses(), self.expected_losses)
        self.assertEqual([e["epoch"] for e in self.events("epoch")], list(range(12)))

    def kill_everything(self, process):
        for pid in self.leftovers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def test_kill_at_random_moments(self):
        for nproc, trials in ((1, 6), (2, 4)):
            self.reference("--nproc", nproc, "--fresh")
            seconds = self.events("end", "runs/reference")[-1]["seconds"]
            for trial in range(trials):
                random.seed(trial)
                with self.subTest(nproc=nproc, trial=trial):
                    shutil.rmtree(self.path("runs/test"), ignore_errors=True)
                    for _ in range(3):  # killed three times before it may end
                        p = self.start("test.yaml", "--nproc", nproc)
                        time.sleep(random.random() * (0.05 * nproc + seconds / 2))
                        self.kill_everything(p)
                    self.check_same_run("--nproc", nproc)

    def test_stop_request_saves_and_continues(self):
        for nproc in (1, 2):
            for sent in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(nproc=nproc, signal=sent):
                    self.reference("--nproc", nproc, "--fresh")
                    shutil.rmtree(self.path("runs/test"), ignore_errors=True)
                    slow = {"DDPTRAIN_FAULT": "1:slow:ever", "DDPTRAIN_FAULT_FILTER": "checkpoints"}  # 18 saves
                    p = self.start("test.yaml", "--nproc", nproc, env=slow)
                    self.wait_for(lambda: os.path.exists(self.path("runs/test/metrics.jsonl")) and self.events("step"), what="the first step")
                    p.send_signal(sent)
                    out, err = p.communicate(timeout=180 * program.SLOW)
                    self.assertEqual(p.returncode, STOPPED, err)
                    self.assertIn("run the same command again to continue", err)
                    self.assertTrue(self.checkpoints())
                    self.assertEqual(self.metrics()[-1]["event"], "stopped")
                    self.assert_no_leftovers()
                    self.check_same_run("--nproc", nproc)

    def test_killed_at_every_io_call_of_the_first_saves(self):
        self.reference()
        killed = 0
        for n in list(range(1, 60)) + list(range(60, 200, 20)):
            shutil.rmtree(self.path("runs/test"), ignore_errors=True)
            self.run_program("test.yaml", code=None, env={"DDPTRAIN_FAULT": f"{n}:kill"})
            if self.code == OK:
                break
            self.assertEqual(self.code, -signal.SIGKILL)
            killed += 1
            self.check_same_run()
        self.assertGreater(killed, 30)

    def test_damaged_newest_falls_back(self):
        self.reference()
        self.run_program("test.yaml", "train.epochs=8")
        before = self.checkpoints()
        with open(self.path("runs/test/checkpoints/epoch-0008.h5"), "r+b") as f:  # the newest
            data = bytearray(f.read())
            data[len(data) // 2] ^= 0x10
            f.seek(0)
            f.write(data)
        self.run_program("test.yaml", "train.epochs=8", err=("warning: ", "epoch-0008.h5", "resuming from runs/test/checkpoints/step-"))
        self.assertGreater(len(before), 1)

    def test_every_checkpoint_damaged_is_refused_and_nothing_is_lost(self):
        self.run_program("test.yaml", "train.epochs=2", "checkpoint.keep=2")
        for c in self.checkpoints():
            os.truncate(c, 1000)
        before = {c: os.path.getsize(c) for c in self.checkpoints()}
        self.run_program("test.yaml", "train.epochs=3", code=DATA, err="runs/test/checkpoints")
        self.assertEqual(before, {c: os.path.getsize(c) for c in self.checkpoints()})

    def test_a_complete_run_is_reported_and_can_be_extended(self):
        self.reference()
        self.run_program("test.yaml", "train.epochs=8", "schedule.t_max=1750")
        metrics = self.metrics()
        self.run_program("test.yaml", "train.epochs=8", "schedule.t_max=1750", err="complete (epoch 8")
        self.assertEqual(self.metrics(), metrics)
        self.run_program("test.yaml", "schedule.t_max=1750")
        self.run_program("test.yaml", "schedule.t_max=1750", "--run-dir", "runs/whole")
        self.assertEqual(self.sha(), self.sha("runs/whole"))
        self.assertEqual(self.losses(), self.losses("runs/whole"))

    def test_another_config_is_refused_with_a_diff(self):
        self.run_program("test.yaml", "train.epochs=1")
        before = self.metrics(), self.checkpoints(), self.read("runs/test/config.yaml")
        _, err = self.run_program("test.yaml", "train.epochs=2", "optimizer.lr=0.1", "model.layers.0.linear.out=50", code=USAGE)
        self.assertIn("optimizer.lr: 0.002 -> 0.1", err)
        self.assertRegex(err, r"model\.layers\.0.*48 -> 50|out: 48 -> 50")
        self.assertNotIn("train.epochs", err)
        self.assertEqual(before, (self.metrics(), self.checkpoints(), self.read("runs/test/config.yaml")))
        self.run_program("test.yaml", "train.epochs=1", "optimizer.lr=0.1", "--fresh")
        self.assertTrue(os.path.exists(self.path("runs/test.1/metrics.jsonl")))

    def test_what_leaves_the_numbers_may_change(self):
        """Time limits, and the place of the same rows."""
        import h5py
        with h5py.File(self.path("datasets/wine.h5")) as d, h5py.File(self.path("v.h5"), "w") as f:
            f["x"], f["y"] = d["x"][:9], d["y"][:9]
        self.write("test.yaml", program.WINE.replace("split: {test: 0.2, seed: 42}", "validation: v.h5"))
        self.run_program("test.yaml", "train.epochs=1")
        shutil.copy(os.path.realpath(self.path("datasets/wine.h5")), self.path("moved.h5"))
        os.rename(self.path("v.h5"), self.path("w.h5"))
        moved = ["dataset.path=moved.h5", "dataset.validation=w.h5"]
        self.run_program("test.yaml", "dist.timeout=60", "dist.hang_timeout=20", *moved)
        self.assertEqual(self.events("epoch")[-1]["epoch"], 9)
        with h5py.File(self.path("w.h5"), "a") as f:
            f["x"][3, 3] += 1
        self.run_program("test.yaml", "train.epochs=11", *moved, code=DATA, err="it was trained on other data")

    def test_other_data_is_refused(self):
        shutil.copy(os.path.realpath(self.path("datasets/iris.csv")), self.path("data.csv"))
        self.write("test.yaml", program.WINE.replace("path: datasets/wine.h5, inputs: x, targets: y", "path: data.csv"))
        self.run_program("test.yaml")
        text = self.read("data.csv")
        self.write("data.csv", text.replace("5.1", "5.2", 1))
        self.run_program("test.yaml", "train.epochs=11", code=DATA, err="it was trained on other data")

    def test_middle_of_an_epoch_needs_the_same_world(self):
        for call in range(10, 200, 10):  # until it is interrupted in the middle of an epoch
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            self.run_program("test.yaml", "--nproc", 2, code=None, env={"DDPTRAIN_FAULT": f"{call}:kill", "DDPTRAIN_FAULT_FILTER": "checkpoints"})
            if any("step-" in c for c in self.checkpoints()):
                break
        self.run_program("test.yaml", "--nproc", 3, code=USAGE, err="continue with --nproc 2")
        self.write("more.yaml", self.read("test.yaml").replace("checkpoint: {", f"checkpoint: {{resume: {self.checkpoints()[-1]}, "))
        place = f"more.yaml:{len(self.read('more.yaml').splitlines())}:22: checkpoint.resume: "
        _, err = self.run_program("more.yaml", "--nproc", 3, "--run-dir", "runs/more", code=USAGE)
        self.assertIn(place + self.checkpoints()[-1] + " was saved in the middle of an epoch by 2 processes; continue with --nproc 2 (now 3)", err)
        self.run_program("test.yaml", "--nproc", 2)

    def test_checkpoint_of_an_older_version(self):
        """The first checkpoints have no counters of schedules, skipped steps, loss scales and early stops: a resume begins these anew."""
        self.run_program("test.yaml", "train.epochs=2", "schedule.t_max=600")
        self.run_program("test.yaml", "schedule.t_max=600", "--run-dir", "runs/whole")
        names = ("plateau_best", "plateau_bad_epochs", "plateau_cooldown", "plateau_reductions", "skipped", "skipped_in_row",
                 "epoch_scored", "loss_scale", "loss_scale_growth_tracker", "early_stop_best", "early_stop_wait", "pending_end")
        for c in self.checkpoints():
            program.without_datasets(c, *(f"state/{name}" for name in names))
        self.run_program("test.yaml", "schedule.t_max=600")
        self.assertEqual(self.losses(), self.losses("runs/whole"))
        program.without_datasets(self.checkpoints()[-1], "state/step")
        start = self.checkpoints()[-1]
        _, err = self.run_program("test.yaml", f"checkpoint.resume={start}", "train.epochs=13", "--run-dir", "runs/c", code=DATA)
        self.assertIn("state/step: int64 scalar in the config, not in the file", err)

    def test_start_from_a_complete_state(self):
        """The new folder has the state, as if its run had ended with it; a longer run continues from it."""
        self.run_program("test.yaml", "train.epochs=2", "--run-dir", "runs/first")
        start = self.path("runs/first/checkpoints/epoch-0002.h5")
        resume = ("test.yaml", f"checkpoint.resume={start}")
        for nproc in (1, 2):
            run = f"runs/{nproc}"
            self.run_program(*resume, "train.epochs=2", "--run-dir", run, "--nproc", nproc, err=f"{start}: complete (epoch 2, step ")
            self.assertEqual(self.sha(run), self.sha("runs/first"))
            self.assertEqual([os.path.basename(c) for c in self.checkpoints(run)], ["epoch-0002.h5"])
            self.run_program("eval", "test.yaml", "--run-dir", run)
            self.assertIn(f"{run}: complete", self.run_program(*resume, "train.epochs=2", "--run-dir", run, "--nproc", nproc)[1])
            self.run_program(*resume, "train.epochs=3", "--run-dir", run, "--nproc", nproc)
            self.assertEqual([e["epoch"] for e in self.events("epoch", run)], [2])
        _, err = self.run_program(*resume, "train.epochs=2", "checkpoint.best=val_loss", "--run-dir", "runs/best")
        self.assertNotIn("was not a number", err)  # no epoch was evaluated

    def test_start_from_a_state_of_other_batches(self):
        """100 batches of 8 rows are done; with 24 rows an epoch has no more than these, with 48 fewer."""
        self.run_program("test.yaml", "train.epochs=2", "--run-dir", "runs/first", "checkpoint.save_every={steps: 400}", "checkpoint.keep=0")
        start = f"checkpoint.resume={self.path('runs/first/checkpoints/step-00000400.h5')}"
        for nproc, rows in ((1, 24), (1, 48), (2, 12)):
            if nproc == 2:
                self.run_program("test.yaml", "train.epochs=2", "--run-dir", "runs/first", "--fresh", "--nproc", 2, "sampler.batch_size=4",
                                 "checkpoint.save_every={steps: 400}", "checkpoint.keep=0")
            _, err = self.run_program("test.yaml", start, f"sampler.batch_size={rows}", "--run-dir", f"runs/{rows}", "--nproc", nproc, code=DATA)
            said = f"was saved after batch 100 of an epoch, which has {2400 // rows // nproc} here: it belongs to a run"
            self.assertIn(said, err)
            _, err = self.run_program("test.yaml", start, f"sampler.batch_size={rows}", "train.epochs=null", "train.steps=400", "schedule.t_max=400",
                                      "--run-dir", f"runs/complete-{rows}", "--nproc", nproc, code=DATA)
            self.assertIn(said, err)

    def test_checkpoint_of_a_newer_version(self):
        """A counter unknown to this version is accepted only if it is 0."""
        self.run_program("test.yaml", "train.epochs=2", "schedule.t_max=600")
        newest = self.path("runs/test/checkpoints/epoch-0002.h5")

        def change(value):
            def write(f):
                if "later" in f["state"]:
                    del f["state/later"]
                f["state/later"] = np.int64(value)
                f["state/later_list"] = np.ones(3)
            return write
        program.change_checkpoint(newest, change(1))
        _, err = self.run_program("test.yaml", "schedule.t_max=600", code=DATA)
        self.assertIn(f"{os.path.relpath(newest, self.folder)}: 'state/later' is 1, a counter that this version does not have; "
                      "resume with the newer ddptrain that wrote the file", err)
        self.run_program("eval", "test.yaml", "schedule.t_max=600")  # weights are weights
        program.without_datasets(newest, "state/later_list")
        program.change_checkpoint(newest, change(0))
        self.run_program("test.yaml", "train.epochs=3", "schedule.t_max=600", err="resuming from")
        newest = self.path("runs/test/checkpoints/epoch-0003.h5")
        program.change_checkpoint(newest, lambda f: f.attrs.modify("format_version", np.int32(2)))
        self.run_program("eval", "test.yaml", "--checkpoint", newest, code=DATA, err="written by a newer ddptrain (format 2; this one reads up to 1)")

    def test_state_of_another_optimizer(self):
        """What one optimizer kept is of no use to another, also where the other keeps less."""
        self.run_program("test.yaml", "train.epochs=1")
        start = self.checkpoints()[-1]
        for number, (other, sentence) in enumerate((("sgd", "exp_avg/0.weight: float32 (48, 20) in the file, not in the config"),
                                                    ("adagrad", "sum/0.weight: float32 (48, 20) in the config, not in the file"))):
            _, err = self.run_program("test.yaml", f"optimizer={{type: {other}, lr: 0.1}}", f"checkpoint.resume={start}", "--run-dir", f"runs/{number}", code=DATA)
            self.assertIn(f"optimizer/{sentence}", err)

    def test_resume_never_and_from_a_file(self):
        self.run_program("test.yaml", "train.epochs=2")
        self.run_program("test.yaml", "train.epochs=3", "checkpoint.resume=never", code=USAGE, err="checkpoint.resume is never")
        start = self.path("runs/test/checkpoints/epoch-0002.h5")
        self.run_program("test.yaml", "train.epochs=3", f"checkpoint.resume={start}", "--run-dir", "runs/b", err="resuming from " + start)
        self.assertEqual(self.events("step", "runs/b")[0]["step"], 601)
        _, err = self.run_program("test.yaml", "checkpoint.resume=missing.h5", "--run-dir", "runs/c", code=None)
        self.assertIn(self.code, (DATA, IO))
        self.assertIn("missing.h5", err)

    def test_from_a_file_of_another_dataset(self):
        """With another split, rows that the state was trained on would be validation rows."""
        self.run_program("test.yaml", "train.epochs=2")
        start = ["test.yaml", "train.epochs=3", "checkpoint.resume=runs/test/checkpoints/epoch-0002.h5", "--run-dir", "runs/b"]
        for argument, line in (("dataset.split.seed=7", "split.seed: 1 -> 7"), ("dataset.scale=minmax", "scale.type: none -> minmax")):
            for more in ([], ["--fresh"]):
                _, err = self.run_program(*start, argument, *more, code=USAGE)
                self.assertEqual(err, f"ddptrain: argument '{start[2]}': checkpoint.resume: runs/test/checkpoints/epoch-0002.h5 has another dataset; 1 key differs (file -> now):\n"
                                      f"  dataset.{line}\ngive the dataset of the file, or start from its weights alone with model.init_from\n")
                self.assertFalse(os.path.exists(self.path("runs/b")) and self.checkpoints("runs/b"))
        self.run_program(*start, "dataset.augment.seed=3", "dataset.prefetch=1", "optimizer.lr=0.01")

    def test_a_default_is_no_difference(self):
        """Also where it is the only key of a section that was not there before, and in an evaluation."""
        self.run_program("test.yaml", "train.epochs=1")
        for same in ("dataset.csv.decimal=null", "train.grad_scaler.growth_factor=2.0", "train.accumulate=1", "optimizer.betas=[9e-1, 0.999]",
                     "train.ema=null"):
            self.assertIn("complete", self.run_program("test.yaml", "train.epochs=1", same)[1], same)
            self.run_program("eval", "test.yaml", same)
        self.run_program("test.yaml", "train.epochs=2", "dataset.csv.decimal=','", code=USAGE, err="  dataset.csv.decimal: null -> \",\"\n")
        np.savez(self.path("images.npz"), x=np.ones((24, 1, 8, 8), np.float32), y=np.arange(24) % 3)
        self.write("images.yaml", "dataset: {path: images.npz}\nmodel: {layers: [flatten, {linear: 3}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        self.run_program("images.yaml")
        self.run_program("images.yaml", "dataset.augment.seed=0")
        _, err = self.run_program("images.yaml", "dataset.augment.erasing={}", code=USAGE)  # the section turns it on
        self.assertIn("  dataset.augment.erasing.p: 0 -> 0.5\n", err)

    def test_never_means_checkpoints_of_earlier_jobs(self):
        """A requeued job continues from its own checkpoint."""
        self.write("test.yaml", program.WINE.replace("save_every: 5", "save_every: 1"))
        self.run_program("test.yaml", "--run-dir", "runs/whole")
        _, err = self.run_program("test.yaml", "checkpoint.resume=never", "--max-restarts", 2,
                                  env={"DDPTRAIN_FAULT": "90:kill", "DDPTRAIN_FAULT_FILTER": "checkpoints"})
        self.assertIn("starting all ranks again", err)
        self.assertIn("resuming from runs/test/checkpoints/epoch-", err)
        self.assertEqual(self.sha(), self.sha("runs/whole"))
        self.run_program("test.yaml", "checkpoint.resume=never", "train.epochs=11", code=USAGE, err="checkpoint.resume is never")

    def test_a_failed_fresh_start_moves_nothing(self):
        self.run_program("test.yaml", "train.epochs=1")
        before = self.metrics()
        for override in ("checkpoint.resume=none.h5", "model.init_from=none.safetensors"):
            self.run_program("test.yaml", "train.epochs=1", "--fresh", override, code=DATA)
            self.assertEqual(self.metrics(), before)
            self.assertEqual(os.listdir(self.path("runs")), ["test"])

    def test_fresh_may_start_from_the_folder_it_moves(self):
        self.run_program("test.yaml", "train.epochs=1")
        _, err = self.run_program("test.yaml", "train.epochs=2", "--fresh", "--run-dir", "runs/test/", "checkpoint.resume=runs/test/checkpoints/epoch-0001.h5")
        self.assertIn("renamed the folder of the earlier run: runs/test.1", err)
        self.assertEqual(self.events("step")[0]["step"], 301)

    def test_lost_metrics_are_reported(self):
        self.run_program("test.yaml", "train.epochs=1")
        lines = self.read("runs/test/metrics.jsonl").splitlines(keepends=True)
        whole = "".join(lines[:20])
        for i, kept in enumerate(("", whole, whole + lines[20][:-1], whole + "x" * 9000, "x" * 9000)):
            self.write("runs/test/metrics.jsonl", kept)
            self.run_program("test.yaml", f"train.epochs={2 + i}", err="warning: runs/test/metrics.jsonl is shorter than at the last save")
            now = self.read("runs/test/metrics.jsonl")
            expected = whole if whole in kept else ""
            self.assertTrue(now.startswith(expected + '{"event":"resume"'), now[:100])
            self.metrics()  # every line is one

    def test_damaged_metrics_are_reported(self):
        """What a full disk leaves over NFS, or an editor: the lines that are whole stay, and the next one is whole."""
        self.run_program("test.yaml", "train.epochs=1")
        path, lost = self.path("runs/test/metrics.jsonl"), ": lines of earlier steps are lost; the training state is not affected"
        nul = "NUL characters in place of lines, as a full disk leaves them"
        with open(path, "rb") as f:
            lines = f.read().splitlines(keepends=True)
        middle, end = sum(map(len, lines[:9])) + 20, sum(map(len, lines[:-2])) + 5
        whole = b"".join(lines)
        other = b"".join(lines[:5]) + lines[3].replace(b"step", b"other step") + b"".join(lines[5:])
        for i, (damaged, message, bad) in enumerate((
                (whole[:middle] + bytes(600) + whole[middle + 600:], f"metrics.jsonl:10: {nul}{lost}", 1),
                (whole[:end] + bytes(len(whole) - end), f"metrics.jsonl:{len(lines) - 1}: {nul}{lost}", 0),
                (other, "the last save ended within this line, so the file was changed" + lost, 0),
                (whole + bytes(5000), None, 0), (whole + whole[:50], None, 0), (whole + whole, None, 0))):
            shutil.rmtree(self.path("runs/copy"), ignore_errors=True)
            shutil.copytree(self.path("runs/test"), self.path("runs/copy"))
            with open(self.path("runs/copy/metrics.jsonl"), "wb") as f:
                f.write(damaged)
            _, err = self.run_program("test.yaml", "train.epochs=2", "--run-dir", "runs/copy")
            self.assertEqual("lines of earlier steps are lost" in err, message is not None, err)
            self.assertIn(message or "", err)
            with open(self.path("runs/copy/metrics.jsonl"), "rb") as f:
                now = f.read().splitlines()
            found = [line for line in now if b"\0" in line or not line.startswith(b'{"event":') or not line.endswith(b"}")]
            self.assertEqual(len(found), bad, found)
            self.assertEqual(sum(b'"event":"resume"' in line for line in now), 1, i)
            self.assertIn(b'"event":"end"', now[-1])

    def test_another_model_in_the_checkpoint_is_refused(self):
        self.run_program("test.yaml", "train.epochs=1")
        file = self.checkpoints()[0]
        _, err = self.run_program("test.yaml", "model.layers.0.linear.out=50", f"checkpoint.resume={file}", "--run-dir", "runs/b", code=DATA)
        self.assertIn(f"...': checkpoint.resume: {file}: the checkpoint does not match the config", err)
        self.assertRegex(err, r"model/0\.weight: \(48, 20\) in the file, \(50, 20\) in the config")
        self.assertRegex(err, r"optimizer/exp_avg/0\.bias")

    def test_a_folder_in_use_is_refused(self):
        p = self.start("test.yaml", "train.epochs=1000000")
        self.addCleanup(self.kill_everything, p)
        self.wait_for(lambda: os.path.exists(self.path("runs/test/metrics.jsonl")), what="the first run")
        for extra in ([], ["--fresh"]):
            _, err = self.run_program("test.yaml", "train.epochs=1000000", *extra, code=USAGE)
            self.assertIn("another ddptrain is training in this folder", err)
            self.assertIn("waiting for runs/test/.lock: another ddptrain has locked it", err)
        self.assertIsNone(p.poll())

    def test_a_lock_of_a_dying_run_is_waited_for(self):
        lock = self.path("runs/test/.lock")
        os.makedirs(os.path.dirname(lock))
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            p = self.start("test.yaml", "train.epochs=1")
            self.addCleanup(self.kill_everything, p)
            self.wait_for(lambda: p.poll() is not None or self.has_open(lock), what="the run to open the lock")
            time.sleep(0.2)  # it has tried by now
        p.wait(180 * program.SLOW)
        self.assertEqual(p.returncode, OK, p.stderr.read())

    def has_open(self, path):
        for file in (f for pid in self.leftovers() for f in glob.glob(f"/proc/{pid}/fd/*")):
            with contextlib.suppress(OSError):
                if os.path.samefile(file, path):
                    return True
        return False


class MovedFolder(program.Case):
    """A run whose folder is moved or deleted meanwhile loses nothing and changes no other files."""

    def begin(self, env=None, width=48):
        self.write("test.yaml", program.LONG.replace("schedule: {type: cosine, interval: step, warmup: 50}\n", "").replace("out: 48", f"out: {width}")
                   .replace("train: {", "train: {tensorboard: true, "))
        p = self.start("test.yaml", "train.epochs=1000000", "checkpoint.keep=2", env=env)
        self.addCleanup(lambda: p.poll() is None and p.kill())
        self.wait_for(self.checkpoints, what="the first checkpoint")
        self.pause(p)
        return p

    def pause(self, p):
        p.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: self.state(p.pid) == "T", what="the pause")

    def finish(self, p, run):
        """After a requested stop it has saved in [run] and continues from there to the same end as an undisturbed run."""
        before = self.checkpoints(run)
        p.send_signal(signal.SIGCONT)
        self.wait_for(lambda: self.checkpoints(run) not in ([], before), what="a checkpoint in " + run)
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, STOPPED, err)
        self.assertFalse([f for f in os.listdir(self.path(run, "checkpoints")) if ".tmp" in f])
        epochs = f"train.epochs={self.events('stopped', run)[-1]['epoch'] + 1}"
        self.run_program("test.yaml", epochs, "--run-dir", run)
        self.run_program("test.yaml", epochs, "--run-dir", "runs/whole")
        self.assertEqual(self.sha(run), self.sha("runs/whole"))
        self.assertEqual(self.losses(run), self.losses("runs/whole"))
        return err

    def test_moved(self):
        """Another run begins where it was; each keeps its own."""
        p = self.begin()
        os.rename(self.path("runs/test"), self.path("elsewhere"))
        self.run_program("test.yaml", "train.epochs=2")
        other = self.sha(), self.checkpoints()
        err = self.finish(p, "elsewhere")
        self.assertRegex(err, "warning: runs/test was moved to .*/elsewhere during this run; the run continues there. .*--run-dir .*/elsewhere")
        self.assertIn("runs/test was moved", self.read("elsewhere/log.txt"))
        self.assertEqual((self.sha(), self.checkpoints()), other)

    def test_deleted(self):
        p = self.begin()
        shutil.rmtree(self.path("runs"))
        err = self.finish(p, "runs/test")
        self.assertIn("runs/test was deleted, or moved out of reach, during this run; the run saves into a new folder runs/test", err)
        self.assertEqual(len(glob.glob(self.path("runs/test/events.out.tfevents.*"))), 2)  # one since then, one of the continued run

    def test_emptied(self):
        """What "rm -r runs/test/*" takes is made again, metrics.jsonl with all its lines."""
        p = self.begin()
        for name in os.listdir(self.path("runs/test")):
            if name == "checkpoints":
                shutil.rmtree(self.path("runs/test", name))
            elif name != ".lock":
                os.remove(self.path("runs/test", name))
        err = self.finish(p, "runs/test")
        self.assertEqual(err.count("runs/test: files of this run were deleted during the run; they are written again"), 1)
        self.assertTrue({"config.yaml", "log.txt", "metrics.jsonl"} <= set(os.listdir(self.path("runs/test"))))

    def test_deleted_on_a_disk_that_fails(self):
        """Any call fails with which metrics.jsonl is made again: the next save makes it, with each line once."""
        for call in range(1, 6):  # remove, open, write, rename, and one more
            with self.subTest(call=call):
                shutil.rmtree(self.path("runs"), ignore_errors=True)
                p = self.begin({"DDPTRAIN_FAULT": f"{call}:enospc", "DDPTRAIN_FAULT_FILTER": "metrics.jsonl.part"})
                os.remove(self.path("runs/test/metrics.jsonl"))
                self.finish(p, "runs/test")
                self.assertFalse(os.path.exists(self.path("runs/test/metrics.jsonl.part")))

    def test_deleted_on_a_full_disk(self):
        os.mkdir(self.path("runs"))
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", self.path("runs")], check=False, capture_output=True).returncode:
            self.skipTest("no right to mount")
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.path("runs")], check=True)
        p = self.begin(width=3000)  # so slow that its lines do not fill the disk
        os.remove(self.path("runs/test/metrics.jsonl"))
        with open(self.path("runs/filler"), "wb", buffering=0) as f:
            while True:
                try:
                    f.write(bytes(1 << 16))
                except OSError:
                    break
        p.send_signal(signal.SIGCONT)
        self.assertTrue(any("could not be saved; the run continues" in line for line in p.stderr))
        self.assertFalse(os.path.exists(self.path("runs/test/metrics.jsonl")))
        self.pause(p)
        os.remove(self.path("runs/filler"))
        self.finish(p, "runs/test")

    def test_deleted_and_taken(self):
        p = self.begin()
        shutil.rmtree(self.path("runs/test"))
        self.run_program("test.yaml", "train.epochs=2", "seed=1")
        other = self.sha(), self.checkpoints()
        err = self.finish(p, "runs/test.1")
        self.assertIn("this run saves into a new folder runs/test.1", err)
        self.assertEqual((self.sha(), self.checkpoints()), other)

    def is_locked(self, path):
        with contextlib.suppress(FileNotFoundError), open("/proc/locks") as f:
            return f":{os.stat(path).st_ino} " in f.read()

    def test_lost_lock(self):
        """The lock is made again; who took it meanwhile keeps the folder."""
        p = self.begin()
        os.remove(self.path("runs/test/.lock"))
        p.send_signal(signal.SIGCONT)  # a save that has begun may still end without
        self.wait_for(lambda: self.is_locked(self.path("runs/test/.lock")), what="the lock")
        with open(self.path("runs/test/.lock")) as f, self.assertRaises(BlockingIOError):
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.pause(p)
        os.remove(self.path("runs/test/.lock"))
        with open(self.path("runs/test/.lock"), "w") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            self.finish(p, "runs/test.1")

    def test_gone_before_a_restart(self):
        """A job that starts again does not begin anew where its folder should be."""
        self.write("test.yaml", program.LONG)
        p = self.start("test.yaml", "train.epochs=1000000", "--nproc", 2, "--max-restarts", 3)
        self.addCleanup(lambda: p.poll() is None and p.kill())
        self.wait_for(self.checkpoints, what="the first checkpoint")
        p.send_signal(signal.SIGSTOP)
        for pid in self.leftovers():
            if pid != p.pid:
                os.kill(pid, signal.SIGKILL)
        self.wait_for(lambda: self.leftovers() == [p.pid], what="the end of the ranks")
        os.rename(self.path("runs/test"), self.path("elsewhere"))
        p.send_signal(signal.SIGCONT)
        _, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, USAGE, err)
        self.assertIn("runs/test: the run folder has disappeared since this job began", err)
        self.assertFalse(os.path.exists(self.path("runs/test")))


class FailingDisk(program.Case):
    def test_every_failing_call_leaves_a_good_folder(self):
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml", "--run-dir", "runs/reference")
        failed = 0
        for kind in ("enospc", "eio"):
            for n in range(1, 120, 1 if not program.SANITIZER else 7):
                shutil.rmtree(self.path("runs/test"), ignore_errors=True)
                self.run_program("test.yaml", code=None, env={"DDPTRAIN_FAULT": f"{n}:{kind}", "DDPTRAIN_FAULT_FILTER": "runs/"})
                self.assertIn(self.code, (OK, IO, DATA), f"call {n} {kind}")
                failed += self.code != OK
                self.run_program("test.yaml")
                self.assertEqual(self.sha(), self.sha("runs/reference"), f"call {n} {kind}")
                self.assertFalse([f for f in os.listdir(self.path("runs/test/checkpoints")) if ".tmp" in f])
        self.assertGreater(failed, 28 if not program.SANITIZER else 3)
