"""A request to stop during an evaluation, and in the commands that only evaluate: within one batch, on any rank, and the
next start continues with that evaluation. ctest-labels: dist fault"""
import contextlib, fcntl, os, re, resource, select, shutil, signal, struct, termios, time

import program
from program import OK, PEER, STOPPED

VALIDATION = 7600 if program.SANITIZER else 39600
STEPS = {1: 50, 2: 25, 3: 17}  # of an epoch, by ranks


class Stop(program.Case):
    given_files = {"test.yaml": program.long_evaluation()}

    def reference(self, *arguments):
        self.run_program("test.yaml", *arguments, "--run-dir", "runs/reference")

    def read_until(self, terminal, said, end):
        """What [terminal] shows until it shows [said], or nothing more comes."""
        shown = ""
        while said is None or said not in shown:
            self.assertLess(time.monotonic(), end, shown[-2000:])
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # closed at the other end
                break
            shown += piece
            if not piece:
                break
        return shown.replace("\r\n", "\n")

    def stop_in_evaluation(self, nproc, arguments, number, rank=None):
        """As a person at a terminal does who sees the bar of the evaluation. Returns what was shown from then on.
        Where the evaluation was over before that, test.yaml gets more rows for it."""
        for factor in (1, 4, 16, 64):
            self.write("test.yaml", program.long_evaluation(validation=VALIDATION * factor))
            shutil.rmtree(self.path("runs/test"), ignore_errors=True)
            terminal, other = program.open_terminal(0, 0)
            self.addCleanup(os.close, terminal)
            p = self.start("test.yaml", "--nproc", nproc, *arguments, stderr=other, env={"TERM": "xterm"})
            os.close(other)
            limit = time.monotonic() + 300 * program.SLOW
            before = self.read_until(terminal, "evaluating: batch", limit)
            pid = p.pid if rank is None else self.ranks(p).get(rank)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid or p.pid, number)
            shown = self.read_until(terminal, None, limit)
            p.stdout.close()
            if p.wait(180 * program.SLOW) != 0 and "before the end of the evaluation" in shown:
                break
        self.assertEqual(p.returncode, STOPPED, before + shown)
        return shown

    def check_goes_on(self, nproc, *arguments):
        """The same epochs, metrics and bits as an uninterrupted run."""
        self.assertEqual(self.metrics()[-1]["event"], "stopped")
        self.assertEqual(self.events("epoch"), [])
        self.run_program("test.yaml", "--nproc", nproc, *arguments)
        self.assertEqual(self.sha(), self.sha("runs/reference"))
        timed = ("samples_per_second", "comm_hidden")
        epochs = [[{k: v for k, v in e.items() if k not in timed} for e in self.events("epoch", run)] for run in ("runs/test", "runs/reference")]
        self.assertEqual(*epochs)
        ends = [self.events("end", run)[-1] for run in ("runs/test", "runs/reference")]
        self.assertEqual(*[[e[k] for k in ("best_epoch", "best_value", "epoch", "step", "samples")] for e in ends])
        self.assertEqual(ends[0]["best_epoch_index"], self.events("epoch")[0]["epoch"])
        self.assertEqual(self.losses(), self.losses("runs/reference"))
        self.run_program("test.yaml", "--nproc", nproc, *arguments, err="complete (")

    def test_in_an_evaluation(self):
        for nproc, rank, number in ((1, None, signal.SIGTERM), (2, None, signal.SIGUSR1), (3, 2, signal.SIGTERM)):
            with self.subTest(nproc=nproc, rank=rank):
                err = self.stop_in_evaluation(nproc, [], number, rank)
                self.reference("--nproc", nproc, "--fresh")
                self.assertIn("before the end of the evaluation", err)
                self.assertEqual([os.path.basename(c) for c in self.checkpoints()], ["epoch-0001.h5"])
                self.check_goes_on(nproc)

    def test_in_the_evaluation_at_the_end_of_a_run_by_steps(self):
        steps = ["train.epochs=null", "train.steps=20", "train.log_every=1"]
        self.stop_in_evaluation(1, steps, signal.SIGTERM)
        self.reference(*steps)
        self.assertEqual([os.path.basename(c) for c in self.checkpoints()], ["step-00000020.h5"])
        self.check_goes_on(1, *steps)

    def test_a_longer_run_does_not_evaluate_where_the_shorter_one_would_end(self):
        self.stop_in_evaluation(1, ["train.epochs=null", "train.steps=20", "train.log_every=1"], signal.SIGTERM)
        self.run_program("test.yaml", "train.epochs=null", "train.steps=50")
        self.run_program("test.yaml", "train.epochs=null", "train.steps=50", "--run-dir", "runs/reference")
        self.assertEqual(self.sha(), self.sha("runs/reference"))
        self.assertEqual(len(self.events("epoch")), 1)

    def test_a_run_that_is_made_shorter_ends_with_this_evaluation(self):
        """It is beyond its new end, which it does not reach again."""
        for before, after, steps in ((["train.epochs=null", "train.steps=20"], ["train.epochs=null", "train.steps=10"], 20),
                                     (["train.epochs=9", "train.evaluate_every=3"], ["train.epochs=2", "train.evaluate_every=3"], 3 * STEPS[1])):
            self.stop_in_evaluation(1, before, signal.SIGTERM)
            self.run_program("test.yaml", *after)
            self.assertEqual(self.events("end")[-1]["step"], steps)
            self.assertIn("val_loss", self.events("epoch")[-1])

    def test_a_longer_run_without_this_evaluation_saves_the_epoch_again(self):
        """The end of the epoch is due, its evaluation no more: the file of the epoch does not stay before that end."""
        self.stop_in_evaluation(1, [], signal.SIGTERM)
        longer = ["train.epochs=2", "train.evaluate_every=2"]
        out, _ = self.run_program("inspect", self.path("runs/test/checkpoints/epoch-0001.h5"))
        self.assertRegex(out, r"pending_end +int64 scalar +2\n")
        self.run_program("test.yaml", *longer)
        self.run_program("test.yaml", *longer, "--run-dir", "runs/reference")
        self.assertEqual(self.sha(), self.sha("runs/reference"))
        out, _ = self.run_program("inspect", self.path("runs/test/checkpoints/epoch-0001.h5"))
        self.assertRegex(out, r"pending_end +int64 scalar +0\n")

    def test_another_number_of_ranks_goes_on_with_the_evaluation(self):
        self.stop_in_evaluation(2, [], signal.SIGTERM)
        self.run_program("test.yaml", "--nproc", 1)
        self.assertEqual([e["epoch"] for e in self.events("epoch")], [0])
        self.assertEqual(self.events("end")[-1]["step"], STEPS[2])

    def test_a_request_at_the_end_comes_too_late(self):
        """All is saved and printed: exit code 0, also if the launcher gets the signal after its ranks have ended."""
        # LeakSanitizer stops an ending process by SIGSTOP and waits; the launcher's SIGCONT, sent with the request, would cancel that.
        no_leaks = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
            p = self.start("test.yaml", "--nproc", 2, "--fresh", "--no-progress", "dataset.synthetic.rows=200", "dataset.split.test=0.5", env=no_leaks)
            for line in p.stderr:
                if line.startswith("checkpoint: the newest"):
                    break
            begin = time.monotonic()
            while p.poll() is None and time.monotonic() - begin < 0.5:  # after 1 s a second SIGTERM ends everything
                p.send_signal(number)
            err = p.communicate(timeout=180 * program.SLOW)[1]
            self.assertEqual(p.returncode, 0, err)
            self.assertEqual(self.metrics()[-1]["event"], "end")

    def test_the_soft_limit_of_the_cpu_time(self):
        """The kernel sends SIGXCPU to one rank, and again each second."""
        for nproc in (1, 2):
            for seconds in (1, 4, 16, 64):  # a slow machine needs some until training begins
                p = self.start("test.yaml", "--nproc", nproc, "--fresh", "train.epochs=100000", "schedule.monitor=train_loss", "train.evaluate_every=0",
                               preexec_fn=lambda limit=seconds: resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY)))
                _, err = p.communicate(timeout=300 * program.SLOW)
                self.assertEqual(p.returncode, STOPPED, err)
                if "before training began" not in err:
                    break
            self.assertIn("the state is saved", err)
            self.assertEqual(self.metrics()[-1]["event"], "stopped")
            self.assertTrue(self.checkpoints())

    def test_messages_of_one_process(self):
        for number, said in ((signal.SIGTERM, "then the state is saved\n"), (signal.SIGINT, "press Ctrl-C again to end at once\n")):
            err = self.stop_in_evaluation(1, [], number)
            self.assertEqual(err.count("stopping after this step or batch of evaluation"), 1, err)
            self.assertIn(said, err)

    def test_the_bar_fits_the_terminal(self):
        """Also one that becomes narrower: no line is as wide as it, and the most important parts stay."""
        for columns, parts in ((200, ["[", "epoch", "step", "loss", "samples/s", "left"]), (60, ["[", "epoch", "loss", "left"]), (24, ["%", "left"])):
            rows = 2000 if program.SANITIZER else 8000
            bars = []
            while len(bars) <= 2:  # a fast machine ends a short run before the bar has moved
                self.assertLess(rows, 10_000_000, "the run always ends before the bar has moved")
                shutil.rmtree(self.path("runs/test"), ignore_errors=True)
                terminal, other = program.open_terminal(columns if columns < 200 else 300)
                p = self.start("test.yaml", "train.epochs=2", f"dataset.synthetic.rows={rows}", "dataset.split.test=0.5", stderr=other, env={"TERM": "xterm"})
                os.close(other)
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
                shown = self.read_until(terminal, None, time.monotonic() + 300 * program.SLOW)
                os.close(terminal)
                p.stdout.close()
                self.assertEqual(p.wait(180 * program.SLOW), 0, shown)
                bars = [line for line in re.split(r"\r\x1b\[K|\n", shown) if re.match(r" *\d+ %", line)]
                rows *= 4
            self.assertLess(max(map(len, bars)), columns)
            for part in parts:
                self.assertTrue([b for b in bars if part in b], (part, bars[:3]))

    def test_a_second_interrupt_ends_one_process_at_once(self):
        self.write("slow.yaml", program.long_evaluation(6400).replace("out: 500", "out: 5000"))
        for rows in (200, 200, 800, 3200):  # a step may end between the two signals
            shutil.rmtree(self.path("runs/slow"), ignore_errors=True)
            p = self.start("slow.yaml", f"sampler.batch_size={rows}", "train.log_every=1")
            self.wait_for(lambda: os.path.exists(self.path("runs/slow/metrics.jsonl")) and self.events("step", "runs/slow"), what="the first step")
            self.send_and_wait(p, signal.SIGINT)
            p.send_signal(signal.SIGINT)
            _, err = p.communicate(timeout=180 * program.SLOW)
            if p.returncode != STOPPED:
                break
        self.assertEqual(p.returncode, PEER, err)
        self.assertIn("ended at once by a second signal", err)

    def test_eval_and_predict(self):
        self.run_program("test.yaml", "dataset.synthetic.rows=800", "dataset.split.test=0.5")
        for nproc, rank in ((1, None), (2, None), (2, 1)):
            for verb in (["eval"], ["predict", "--out", "p.csv"]):
                with self.subTest(verb=verb[0], nproc=nproc, rank=rank):
                    for rows in (80000, 320000, 1280000):  # a fast machine is done with few rows before the request
                        p = self.start(verb[0], "test.yaml", f"dataset.synthetic.rows={rows}", *verb[1:], "--nproc", nproc, "--run-dir", "runs/test")
                        self.wait_for(lambda: p.poll() is not None or (self.catches(p.pid, signal.SIGTERM) if nproc == 1 else
                                      [self.has_joined(pid) for pid in self.ranks(p).values()] == nproc * [True]), what="the ranks")
                        time.sleep(0.2 * program.SLOW)
                        pid = p.pid if rank is None else self.ranks(p).get(rank)
                        if p.poll() is None:
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(pid or p.pid, signal.SIGTERM)
                        out, err = p.communicate(timeout=180 * program.SLOW)
                        is_written = bool(out) if verb[0] == "eval" else os.path.exists(self.path("p.csv"))
                        self.assertEqual((p.returncode, is_written), (OK, True) if is_written else (STOPPED, False), err)
                        if not is_written:
                            break
                        with contextlib.suppress(FileNotFoundError):
                            os.remove(self.path("p.csv"))
                    self.assertEqual(p.returncode, STOPPED, err)
                    self.assertEqual(out, "")
                    self.assertEqual(len(re.findall("stopped on request", err)), 1, err)
                    self.assertNotIn("training began", err)
                    self.assertEqual([n for n in os.listdir(self.folder) if n.startswith("p.csv")], [])
                    self.assert_no_leftovers()

    def test_at_the_end_of_eval_and_predict(self):
        """The results are written and the code is 0, or they are not and it is 75, at whatever time the request comes."""
        self.run_program("test.yaml", "dataset.synthetic.rows=800", "dataset.split.test=0.5")
        for verb in (["eval"], ["predict", "--out", "p.csv"]):
            command = [verb[0], "test.yaml", *verb[1:], "--nproc", 2, "--run-dir", "runs/test", "dataset.synthetic.rows=800", "dataset.split.test=0.5"]
            start = time.monotonic()
            self.run_program(*command)
            seconds = time.monotonic() - start
            for i in range(12):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self.path("p.csv"))
                p = self.start(*command)
                until = time.monotonic() + seconds * (0.5 + 0.6 * i / 12)
                pids = {}
                while p.poll() is None and (len(pids) < 2 or time.monotonic() < until):
                    pids = self.ranks(p)
                if p.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pids.get(i % 3, p.pid), signal.SIGTERM)
                out, err = p.communicate(timeout=180 * program.SLOW)
                is_written = bool(out) if verb[0] == "eval" else os.path.exists(self.path("p.csv"))
                self.assertEqual((p.returncode, is_written), (OK, True) if is_written else (STOPPED, False), err)

    def test_export(self):
        """The file is written whole, or not at all."""
        self.run_program("test.yaml", "model.layers.0.linear.out=6000", "model.layers.2.linear.out=1000", "train.epochs=null", "train.steps=1",
                         "dataset.synthetic.rows=100", "schedule.monitor=train_loss")
        for i in range(3):
            p = self.start("export", "runs/test", "--out", "x.safetensors")
            self.wait_for(lambda: [n for n in os.listdir(self.folder) if n.startswith("x.safetensors")], what="the file")
            p.send_signal(signal.SIGTERM)
            _, err = p.communicate(timeout=180 * program.SLOW)
            self.assertEqual(p.returncode, 0, err)
            self.assertEqual([n for n in os.listdir(self.folder) if n.startswith("x.safetensors")], ["x.safetensors"])
            self.run_program("inspect", "x.safetensors")
            os.remove(self.path("x.safetensors"))

    def test_generate(self):
        self.write("text.txt", "the quick brown fox jumps over the lazy dog. " * 40)
        self.write("text.yaml", "dataset: {format: text, path: text.txt, text: {block_size: 32}}\nsampler: {batch_size: 8}\n"
                   "model: {layers: [{embedding: {embedding_dim: 256}}, {linear: {out: 1024}}, gelu, {linear: {out: 64}}]}\n"
                   "loss: cross_entropy\noptimizer: adam\ntrain: {steps: 1}\n")
        self.run_program("text.yaml")
        p = self.start("generate", "text.yaml", "--prompt", "the ", "--characters", 10000000)
        self.assertEqual(p.stdout.read(4), "the ")
        p.send_signal(signal.SIGTERM)
        out, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, STOPPED, err)
        self.assertTrue(out.endswith("\n"), out[-20:])
