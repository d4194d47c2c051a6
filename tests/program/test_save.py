"""When checkpoints are written: without checkpoint.save_every, and before a long evaluation. DDPTRAIN_FAULT_CLOCK makes
the time pass. ctest-labels: dist fault"""
import collections, json, os, re, shutil, signal, subprocess, time, unittest

import program

SAVE_EVERY = "checkpoint: {save_every: 1}\n"


class Automatic(program.Case):
    def test_saves_without_the_key(self):
        """A killed run continues from the end of an epoch, to the same bits; a short one saves its end only."""
        text = program.long_evaluation(200, 200).replace(SAVE_EVERY, "").replace("epochs: 1,", "epochs: 100000,")
        alone = re.sub(r", split: {[^}]*}", "", text).replace("val_loss", "train_loss")  # no validation rows
        for nproc, config in ((1, alone), (2, alone), (1, text), (2, text)):
            self.write("test.yaml", config)
            shutil.rmtree(self.path("runs/test"), ignore_errors=True)
            p = self.start("test.yaml", "--nproc", nproc, env={"DDPTRAIN_FAULT_CLOCK": "30"})
            self.wait_for(lambda: os.path.exists(self.path("runs/test/metrics.jsonl")), what="the start")
            self.wait_for(lambda: [c for c in self.checkpoints() if "epoch-" in c], what="a checkpoint")
            p.kill()
            _, err = p.communicate()
            self.assertIn("checkpoints: after epochs where a save costs less than 1 %", err)
            epochs = int(re.search(r"epoch-(\d+)", self.checkpoints()[-1])[1]) + 2
            self.assert_no_leftovers()
            self.run_program("test.yaml", "--nproc", nproc, f"train.epochs={epochs}", err="resuming from runs/test/checkpoints/epoch-")
            self.run_program("test.yaml", "--nproc", nproc, f"train.epochs={epochs}", "--run-dir", "runs/reference", "--fresh")
            self.assertEqual(self.sha(), self.sha("runs/reference"))
        self.run_program("test.yaml", "train.epochs=3", "--fresh", env={"DDPTRAIN_FAULT_CLOCK": "0.001"})
        self.assertEqual([os.path.basename(c) for c in self.checkpoints()], ["epoch-0003.h5"])
        out, _ = self.run_program("check", "test.yaml")
        self.assertIn("checkpoints    after epochs where a save costs less than 1 % of the time since the last one, every 10 min, at the end", out)
        self.run_program("check", "test.yaml", "checkpoint.save_every=5", out="checkpoints    every 5 epochs, at the end and on a stop request")

    def test_states_that_are_copied_during_the_next_step(self):
        """Above 2 MB the saver's thread copies the state and writes its line of the ledger while the next step computes
        its gradients: every checkpoint holds the state after its step, which a resume and an audit find."""
        middle = {"plain": "relu", "ema": "relu", "batch_norm": "batch_norm, relu", "lbfgs": "relu"}
        for kind, layers in middle.items():
            optimizer = "{type: lbfgs, max_iter: 2, history_size: 2, lr: 0.1}" if kind == "lbfgs" else "{type: adam, lr: 0.001}"
            self.write("test.yaml", program.WINE.replace("{linear: {out: 64}}, relu", f"{{linear: {{out: 768}}}}, {layers}, {{linear: {{out: 768}}}}, relu")
                       .replace("{type: adam, lr: 0.001}", optimizer).replace("{epochs: 10}", "{epochs: 1, ema: 0.9}" if kind == "ema" else "{epochs: 1}")
                       .replace("save_every: 5", "save_every: {steps: 1}, keep: 0"))
            for nproc in (1, 2):
                with self.subTest(kind=kind, nproc=nproc):
                    self.run_program("test.yaml", "--nproc", nproc, "--fresh")
                    sha, last = self.sha(), self.events("step")[-1]["step"]
                    self.assertIn("the run is as recorded", self.run_program("audit", "runs/test", "--all")[0])
                    lines = [json.loads(line) for line in self.read("runs/test/ledger.jsonl").splitlines()]
                    self.assertEqual([e["step"] for e in lines if e["event"] == "checkpoint"], list(range(1, last + 1)))
                    for path in self.checkpoints():
                        if int(re.search(r"-(\d+)\.h5", path)[1]) > 2 or "epoch-" in path:
                            os.remove(path)
                    self.run_program("test.yaml", "--nproc", nproc, err="resuming from runs/test/checkpoints/step-00000002.h5")
                    self.assertEqual(self.sha(), sha)

    @unittest.skipUnless(shutil.which("cc"), "there is no C compiler, which this test needs (cc)")
    @unittest.skipIf(program.SANITIZER, "a sanitizer must be the first library")
    def test_the_order_of_writing(self):
        """By the calls that the program makes: the lines to which a checkpoint refers are on disk before it is written; all
        of it is before it gets its name; its name is before an older one is removed and before the next one is written."""
        library = self.path("file_order.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, os.path.join(program.SOURCE, "tests/program/file_order.c"), "-ldl"], check=True)
        large = program.WINE.replace("out: 64", "out: 40000")
        for name, config in (("small", program.WINE), ("large", large)):
            self.write("test.yaml", config.replace("save_every: 5", "save_every: {steps: 2}, keep: 1").replace("epochs: 10", "epochs: 1"))
            log, run = self.path(name), os.path.realpath(self.path("runs/test"))
            self.run_program("test.yaml", "--fresh", env={"LD_PRELOAD": library, "FILE_ORDER": log})
            calls = [tuple(line.split(" ", 1)) for line in self.read(log).splitlines()]
            saved = [i for i, (what, path) in enumerate(calls) if what == "rename" and path.endswith(".h5")]
            self.assertEqual([os.path.basename(calls[i][1]) for i in saved], ["step-00000002.h5", "step-00000004.h5", "epoch-0001.h5"])
            before = 0
            for at, after in zip(saved, saved[1:] + [len(calls)]):
                path = calls[at][1]
                written = [i for i, (what, of) in enumerate(calls[:after]) if what == "write" and of.startswith(path + ".tmp-")]
                temporary = calls[written[0]][1]
                self.assertLess(before, written[0])
                self.assertLess(written[-1], at, "nothing is written after the rename")
                self.assertIn(("sync", temporary), calls[written[-1] + 1:at], "the file before its name")
                for lines in "metrics.jsonl", "ledger.jsonl":
                    self.assertIn(("sync", f"{run}/{lines}"), calls[before:written[0]], "what it refers to before the file")
                done = calls.index(("sync", os.path.dirname(path)), at)
                self.assertLess(done, after, "the name before the next checkpoint")
                removed = [i for i, call in enumerate(calls[at:after], at) if call[0] == "remove" and re.search(r"/(step|epoch)-\d+\.h5$", call[1])]
                self.assertEqual(len(removed), at != saved[0])
                self.assertTrue(all(done < i for i in removed), "the name before an older checkpoint is removed")
                before = done

    def test_saves_within_an_epoch_after_ten_minutes(self):
        """Minutes pass in a fraction of a second. A killed run continues from there, to the same bits."""
        for nproc in (1, 2):
            for rows in (39960, 159960, 639960):  # a fast machine has done an epoch of few rows before the kill
                self.write("test.yaml", program.long_evaluation(rows, 40).replace(SAVE_EVERY, ""))
                shutil.rmtree(self.path("runs/test"), ignore_errors=True)
                p = self.start("test.yaml", "--nproc", nproc, env={"DDPTRAIN_FAULT_CLOCK": "10000"})
                self.wait_for(lambda: p.poll() is not None or self.checkpoints(), what="a checkpoint")
                p.kill()
                p.communicate()
                self.assert_no_leftovers()
                if not self.events("epoch"):
                    break
            self.assertEqual(self.events("epoch"), [], "the epoch was over too soon for this test")
            step = int(re.search(r"/step-(\d+)\.h5$", self.checkpoints()[-1])[1])
            last = f"train.steps={step + 20}"
            self.run_program("test.yaml", "--nproc", nproc, "train.epochs=null", last, err="resuming from runs/test/checkpoints/step-")
            self.run_program("test.yaml", "--nproc", nproc, "train.epochs=null", last, "--run-dir", "runs/reference", "--fresh")
            self.assertEqual(self.sha(), self.sha("runs/reference"))
            saved = [os.path.basename(e["path"]) for e in self.events("checkpoint", "runs/reference")]
            self.assertEqual(saved, [f"step-{step + 20:08}.h5"], "without the clock of this test only the end is saved")

    def test_saves_before_a_long_evaluation(self):
        """Also after it, under the same name, whichever rule is due."""
        for save_every in (SAVE_EVERY, ""):
            self.write("test.yaml", program.long_evaluation(800, 7200).replace(SAVE_EVERY, save_every).replace("epochs: 1,", "epochs: 2,"))
            for nproc, clock, times in ((1, 10000, 2), (2, 10000, 2), (1, 0.001, 1)):
                with self.subTest(save_every=save_every, nproc=nproc, clock=clock):
                    self.run_program("test.yaml", "--nproc", nproc, "--fresh", env={"DDPTRAIN_FAULT_CLOCK": str(clock)})
                    names = [os.path.basename(e["path"]) for e in self.events("checkpoint")]
                    saved = collections.Counter(name for name in names if name.startswith("epoch-"))
                    expected = {"epoch-0001.h5": times, "epoch-0002.h5": times}
                    if not save_every and clock < 1:
                        del expected["epoch-0001.h5"]  # too soon after the start
                    self.assertEqual(saved, expected)
                    out, _ = self.run_program("inspect", self.path("runs/test/checkpoints/epoch-0002.h5"))
                    self.assertRegex(out, r"pending_end +int64 scalar +0\n")

    def test_a_kill_in_a_long_evaluation_costs_no_training(self):
        for rows in (7600, 39600, 159600, 639600):  # a fast machine has evaluated few rows before the kill
            self.write("test.yaml", program.long_evaluation(validation=rows))
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            p = self.start("test.yaml", env={"DDPTRAIN_FAULT_CLOCK": "10000"})
            self.wait_for(lambda: p.poll() is not None or self.checkpoints(), what="a checkpoint")
            p.kill()
            p.communicate()
            if not self.events("epoch"):
                break
        self.assertEqual(self.events("epoch"), [], "the save came after the evaluation")
        self.run_program("test.yaml", err="resuming from runs/test/checkpoints/epoch-0001.h5")
        self.run_program("test.yaml", "--run-dir", "runs/reference")
        self.assertEqual(self.sha(), self.sha("runs/reference"))
        self.assertEqual(self.losses(), self.losses("runs/reference"))

    def test_the_clock_of_these_tests(self):
        self.write("test.yaml", program.long_evaluation())
        for value in ("0", "-1", "x", "2x", "nan", "inf"):
            _, err = self.run_program("test.yaml", code=program.USAGE, env={"DDPTRAIN_FAULT_CLOCK": value})
            self.assertIn(f"DDPTRAIN_FAULT_CLOCK: expected a factor above 0, got '{value}'", err)


class Stopped(program.Case):
    def test_a_stop_before_all_have_begun_is_no_saved_stop(self):
        """Rank 1 gets the signal before it has started, while rank 0 trains."""
        self.write("test.yaml", program.long_evaluation().replace("epochs: 1,", "epochs: 1000,"))
        for seconds in (2, 8, 32):  # a slow machine needs some until rank 0 trains
            p = self.start("test.yaml", "--nproc", 2, "--fresh", env={"DDPTRAIN_FAULT_LATE": f"1:{seconds * program.SLOW}"})
            self.wait_for(lambda: os.path.exists(self.path("runs/test/metrics.jsonl")), what="the start of rank 0")
            time.sleep(0.5 * program.SLOW)
            os.kill(self.ranks(p)[1], signal.SIGTERM)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, program.STOPPED, err)
            if "before training began" in err:
                break
        self.assertIn("stopped on request before training began; there was nothing to save", err)
        self.assertEqual(self.events("stopped"), [])
        self.assertEqual(self.checkpoints(), [])
