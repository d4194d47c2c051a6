"""ddptrain watch: what it shows of a run or a sweep, on a terminal and elsewhere, and when it ends.
ctest-labels: unit"""
import fcntl, json, os, re, resource, select, signal, struct, termios, time, unittest

import program
from program import DATA, LONG, OK, STOPPED, USAGE, WINE

SWEEP = """config: base.yaml
method: random
trials: 6
seed: 3
parameters:
  optimizer.lr: {distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}
  sampler.batch_size: {values: [8, 16]}
"""
START = {"event": "start", "world_size": 2, "train_rows": 100, "val_rows": 20, "batch_size": 5, "device": "cpu"}


class Screen:
    """What a terminal shows after the bytes that came: the few sequences that watch uses."""

    def __init__(self, rows):
        self.rows, self.lines, self.row, self.column, self.most = rows, [""], 0, 0, 0

    def feed(self, text):
        for part in re.findall(r"\x1b\[\??\d*[A-Za-z]|[^\x1b\r\n]+|\r|\n", text):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.row, self.column = self.row + 1, self.column  # the terminal adds \r itself
                if self.row == len(self.lines):
                    self.lines.append("")
            elif re.fullmatch(r"\x1b\[\d+A", part):
                self.row -= int(part[2:-1])
                assert self.row >= 0, "above the first line"
            elif part == "\x1b[J":
                assert self.column == 0
                self.lines[self.row:] = [""]
            elif not part.startswith("\x1b"):
                self.lines[self.row] = self.lines[self.row][:self.column] + part
                self.column += len(part)
            self.most = max(self.most, len(self.lines))


class Watch(program.Case):
    @unittest.skipIf(program.SANITIZER, "a sanitizer needs more memory")
    def test_the_memory_of_many_trials(self):
        """20 MB for 100,000 trials with one parameter, 25 MB for a report; 36 MB when each kept its hash."""
        count = 100000
        self.write("base.yaml", WINE)
        self.write("sweep.yaml", "config: base.yaml\nmethod: random\ntrials: 1\noverrides: [train.epochs=1]\nkeep: none\n"
                   "parameters: {optimizer.lr: {distribution: uniform, min: 0.1, max: 0.2}}\n")
        self.run_program("sweep", "sweep.yaml")
        self.write("sweeps/sweep/sweep.yaml", self.read("sweeps/sweep/sweep.yaml").replace("trials: 1\n", f"trials: {count}\n"))
        line = json.loads(self.read("sweeps/sweep/history.jsonl").splitlines()[0])
        with open(self.path("sweeps/sweep/history.jsonl"), "w") as f:
            f.writelines(json.dumps({**line, "trial": i, "value": (i * 7919 % count) / count, "state_sha256": f"{i:064x}"}) + "\n" for i in range(count))
        best = next(i for i in range(count) if i * 7919 % count == 0)
        for words, most in ((("watch", "sweeps/sweep"), 20e6), (("report", "sweeps/sweep", "--out", "s.html"), 25e6)):
            p = self.start(*words, preexec_fn=lambda limit=int(most): resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
            out, err = p.communicate(timeout=300)
            self.assertEqual((p.returncode, err), (OK, ""), out)
            self.assertIn("100000", out.replace(",", "") + self.read("s.html").replace(",", "") if words[0] == "report" else out.replace(",", ""))
        self.assertIn(f'title="{best:064x}"', self.read("s.html"), "the hash of the best trial")

    def once(self, folder, **options):
        out, err = self.run_program("watch", folder, env={"LC_ALL": "C"}, **options)
        self.assertEqual(err, "")
        self.assertNotIn("\x1b", out)
        self.assertEqual([line for line in out.split("\n") if line.endswith(" ")], [])
        return out

    def fake(self, *events, name="a", config="train: {epochs: 10}\n", age=0):
        os.makedirs(self.path("runs", name), exist_ok=True)
        path = self.path("runs", name, "metrics.jsonl")
        with open(path, "w") as f:
            f.writelines(json.dumps(e) + "\n" for e in events)
        os.utime(path, (time.time() - age,) * 2)
        self.write(f"runs/{name}/config.yaml", config)
        return f"runs/{name}"

    def open_terminal(self, folder, rows=24, columns=100, locale="C.UTF-8"):
        terminal, other = program.open_terminal(columns, rows)
        self.addCleanup(os.close, terminal)
        p = self.start("watch", folder, stdout=other, env={"TERM": "xterm", "LC_ALL": locale})
        os.close(other)
        self.addCleanup(p.stderr.close)
        self.addCleanup(p.kill)
        self.shown = ""
        return p, terminal

    def read_until(self, terminal, pattern, seconds=180):
        """Until [pattern] was shown (None: the end); the new text."""
        new, end = "", time.monotonic() + seconds * program.SLOW
        while pattern is None or not re.search(pattern, new):
            self.assertLess(time.monotonic(), end, f"no {pattern}: {new!r}")
            if not select.select([terminal], [], [], 0.2)[0]:
                continue
            try:
                piece = os.read(terminal, 1 << 16).decode(errors="replace")
            except OSError:  # the other side is closed
                piece = ""
            if not piece:
                self.assertIsNone(pattern, f"the end before {pattern}: {new!r}")
                break
            new += piece
        self.shown += new
        return new

    # ---- once ----

    def test_a_complete_run(self):
        self.write("test.yaml", WINE)
        self.run_program("test.yaml")
        out, epochs = self.once("runs/test"), self.events("epoch")
        end = self.events("end")[0]
        self.assertRegex(out, r"\Aruns/test: complete, 1 process on cpu")
        self.assertRegex(out, r"progress  \[=+\] 100 %  epoch 10 of 10  step 50\n")
        self.assertIn("train loss %.6g  validation loss %.6g  accuracy %.2f %%\n" % (epochs[-1]["train_loss"], epochs[-1]["val_loss"], 100 * epochs[-1]["val_accuracy"]), out)
        self.assertIn("best      val_accuracy %.2f %% in epoch %d\n" % (100 * end["best_value"], end["best_epoch"]), out)
        self.assertRegex(out, r"\nloss      [_.,=+*#-]{30,60}  [\d.]+ to [\d.]+\n")
        self.assertNotIn("left", out)

    def test_progress_in_steps_and_epochs(self):
        """100 rows, 2 processes, 5 rows a batch: 10 steps an epoch, before the first one has ended too."""
        steps = [{"event": "step", "step": i, "loss": 1 / i, "lr": 0.5, "samples": 10, "seconds": 0.5} for i in range(1, 6)]
        self.assertIn(" 5 %  epoch 0 of 10  step 5\n", self.once(self.fake(START, *steps)))
        self.assertIn("20 samples/s  47 s left\n", self.once("runs/a"))  # 2.5 s for a twentieth
        self.assertIn(" 10 %  epoch 0 of 10", self.once(self.fake(START, *steps, config="train: {epochs: 10, accumulate: 2}\n")))
        self.assertIn(" 25 %  step 5 of 20\n", self.once(self.fake(START, *steps, config="train: {steps: 20}\n")))
        epoch = {"event": "epoch", "epoch": 0, "train_loss": 3, "val_loss": 2}
        self.assertIn(" 25 %  epoch 1  step 5 of 20\n", self.once(self.fake(START, *steps, epoch, config="train: {steps: 20}\n")))
        out = self.once(self.fake(START, *steps, epoch, {**epoch, "epoch": 1, "val_loss": 4}))  # 5 steps in 2 epochs
        self.assertIn(" 20 %  epoch 2 of 10  step 5\n", out)
        self.assertIn("train loss 3  validation loss 4\n", out)
        self.assertIn("best      val_loss 2 in epoch 1\n", out)

    def test_states_without_a_process(self):
        step = {"event": "step", "step": 1, "loss": 1, "lr": 1}
        for events, age, state in (((START, step), 5, "running on another host, or just ended"), ((START, step), 500, "failed or killed"),
                                   ((START, step, {"event": "stopped", "epoch": 1, "step": 3}), 5, "stopped"),
                                   ((START, step, {"event": "end", "epoch": 1, "step": 3}), 5, "complete")):
            out = self.once(self.fake(*events, age=age))
            self.assertRegex(out, rf"\Aruns/a: {state}, 2 processes on cpu\n")
            self.assertRegex(out, r"\nchanged   8 min [2-5]\d s ago\n" if age == 500 else r"\nchanged   \d+ s ago\n")
        os.remove(self.path("runs/a/metrics.jsonl"))
        self.write("runs/a/.lock", "a run of ddptrain\n")
        self.assertIn("runs/a: not begun", self.once("runs/a"))

    def test_hostile_texts(self):
        evil = "\x1b]0;title\x07\x1b[2J\u202e\nx"
        out = self.once(self.fake({**START, "device": evil}, {"event": "epoch", "epoch": 0, "train_loss": 1, "val_loss": 2},
                                  config=json.dumps({"checkpoint": {"best": {"metric": evil}}})))
        self.assertNotRegex(out, "[\x00-\x08\x0b-\x1f\x7f\u202e]")
        self.assertIn("\\x1b]0;title", out)

    def test_a_sweep(self):
        self.write("base.yaml", WINE)
        self.write("test.yaml", SWEEP)
        self.run_program("sweep", "test.yaml")
        out = self.once("sweeps/test")
        with open(self.path("sweeps/test/history.jsonl")) as f:
            runs = [json.loads(line) for line in f]
        best = sorted(runs, key=lambda r: r["value"])[:5]
        self.assertRegex(out, r"\Asweeps/test: complete, random, minimum of val_loss\n")
        self.assertIn("100 %  6 of 6 trials: 6 complete, 0 pruned, 0 failed\n", out)
        self.assertEqual(re.findall(r"trial (\d+)  (\S+)  optimizer.lr=", out), [("%04d" % r["trial"], "%.6g" % r["value"]) for r in best])
        with open(self.path("sweeps/test/history.jsonl"), "w") as f:
            failed = {**runs[0], "state": "failed", "value": None, "message": "no \x1b[1m memory"}
            f.writelines(json.dumps(r) + "\n" for r in (*runs[:3], {**failed, "trial": 5}))
        out = self.once("sweeps/test")
        self.assertIn(": running on another host, or just ended, random", out)
        self.assertIn(" 66 %  4 of 6 trials: 3 complete, 0 pruned, 1 failed\n", out)
        self.assertIn("failed    1: no \\x1b[1m memory\n", out)

    def test_a_sweep_that_was_stopped(self):
        self.write("base.yaml", WINE)
        self.write("test.yaml", SWEEP)
        p = self.start("sweep", "test.yaml", "train.epochs=100000000", "--nproc", 1)
        self.wait_for(lambda: os.path.exists(self.path("sweeps/test/history.jsonl")), what="the sweep")
        p.send_signal(signal.SIGTERM)
        p.communicate()
        self.assertEqual(p.returncode, STOPPED)
        out = self.once("sweeps/test")
        self.assertRegex(out, r"\Asweeps/test: stopped, random, minimum of val_loss\n")
        self.assertIn("\ncontinue  with the same command\n", out)
        terminal = self.open_terminal("sweeps/test")
        self.read_until(terminal[1], None)
        self.assertEqual(terminal[0].wait(180 * program.SLOW), OK)
        self.run_program("report", "sweeps/test", "--out", "page.html")
        self.assertIn("stopped", self.read("page.html"))
        self.run_program("sweep", "test.yaml", "train.epochs=100000000", "budget.seconds=0.2", "--nproc", 1)
        self.assertIn("sweeps/test: stopped", self.once("sweeps/test"))
        with open(self.path("sweeps/test/history.jsonl"), "a") as f:
            f.write('{"event":"epoch","trial":0,"repeat":0,"epoch":1,"value":1}\n')  # begun again, then killed
        self.assertIn("sweeps/test: running on another host, or just ended", self.once("sweeps/test"))

    def test_what_is_refused(self):
        for folder, words in (("none", "there is no such folder"), (".", "not the folder of a run or a sweep")):
            self.run_program("watch", folder, code=DATA, err=words)
        self.run_program("watch", code=USAGE)
        self.run_program("watch", "a", "b", code=USAGE)

    # ---- on a terminal ----

    def test_no_number_is_cut(self):
        """A part of a number would be another number."""
        folder = self.fake(START, {"event": "step", "step": 123456789, "loss": 1.23456, "lr": 0.000123456}, config="train: {steps: 987654321}\n")
        numbers = {"0", "123456789", "987654321", "1.23456", "0.000123456", "12", "2"}
        for columns in range(20, 90, 3):
            p, terminal = self.open_terminal(folder, columns=columns)
            self.read_until(terminal, r"\x1b\[J(.|\n)*\n")
            p.send_signal(signal.SIGINT)
            self.read_until(terminal, None)
            lines = [line for line in re.sub(r"\x1b\[\??\d*[A-Za-z]", "", self.shown).split("\r\n") if re.match("progress|step", line)]
            self.assertTrue(lines)
            for line in lines:
                self.assertLess(len(line), columns)
                self.assertLessEqual(set(re.findall(r"[\d.]+", line)), numbers, line)

    def test_a_run_that_goes_on(self):
        """Drawn in place once a second, with a narrow line for each row; ends by itself."""
        self.write("test.yaml", LONG.replace("epochs: 12", "epochs: 100000"))
        run = self.start("test.yaml")
        self.addCleanup(run.communicate)
        self.addCleanup(run.kill)
        self.wait_for(lambda: os.path.exists(self.path("runs/test/metrics.jsonl")) and len(self.events("epoch")) > 1, what="two epochs")  # of 300 steps
        p, terminal = self.open_terminal("runs/test", columns=75)
        self.read_until(terminal, r"runs/test: running, 1 process")
        self.read_until(terminal, r"(?s)(\x1b\[\d+A.*){3}left")
        self.assertIsNone(p.poll())
        run.send_signal(signal.SIGTERM)
        self.read_until(terminal, None)
        self.assertEqual(p.wait(180 * program.SLOW), OK)
        self.assertEqual(run.wait(180 * program.SLOW), STOPPED)
        screen = Screen(24)
        screen.feed(self.shown)
        self.assertRegex(screen.lines[0], r"^runs/test: stopped")
        self.assertEqual(sum("progress" in line for line in screen.lines), 1)
        self.assertLess(max(map(len, screen.lines)), 75)
        self.assertRegex("\n".join(screen.lines), r"\nloss      [\u2581-\u2588]{20,}")
        updates = [int(n) for n in re.findall(r"step (\d+)", self.shown)]
        self.assertEqual(updates, sorted(updates))
        self.assertGreater(updates[-1], 600)
        self.assertEqual(updates[-1], self.events("stopped")[-1]["step"])
        self.assertTrue(self.shown.endswith("\x1b[?25h"), "the cursor is not shown again")

    def test_a_run_that_has_not_begun(self):
        """It is waited for, also while its folder is empty; another folder is an error at once."""
        p, terminal = self.open_terminal("runs/a", columns=60)
        self.read_until(terminal, r"runs/a: waiting for this folder \(Ctrl-C ends\)")
        os.makedirs(self.path("runs/a"))
        self.fake(START, {"event": "step", "step": 7, "loss": 1, "lr": 1})
        self.read_until(terminal, "step 7")
        with open(self.path("runs/a/metrics.jsonl"), "a") as f:
            f.write(json.dumps({"event": "end", "epoch": 1, "step": 8}) + "\n")
        self.read_until(terminal, None)
        self.assertEqual(p.wait(180 * program.SLOW), OK)
        screen = Screen(24)
        screen.feed(self.shown)
        self.assertRegex(screen.lines[0], r"^runs/a: complete")
        self.assertNotIn("waiting", "\n".join(screen.lines))
        p, terminal = self.open_terminal(".")
        self.read_until(terminal, None)
        self.assertEqual(p.wait(180 * program.SLOW), DATA)

    def test_a_terminal_that_becomes_narrower(self):
        """The rows into which the terminal breaks the lines are drawn over, too."""
        folder = self.fake(START, {"event": "step", "step": 1, "loss": 1, "lr": 1})
        for _ in range(10):  # it may draw once more between the two calls, on a terminal that is still wide
            p, terminal = self.open_terminal(folder, columns=100)
            self.read_until(terminal, "changed.*\n")
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
            lines = re.sub(r"\x1b\[\??\d*[A-Za-z]|\r", "", self.shown).split("\n")[:-1]
            rows = int(re.search(r"\x1b\[(\d+)A", self.read_until(terminal, r"\x1b\[\d+A")).group(1))
            p.send_signal(signal.SIGINT)
            self.read_until(terminal, None)
            if rows != len(lines):
                break
        self.assertEqual(rows, sum(-(-len(line) // 30) for line in lines))
        self.assertGreater(rows, len(lines))

    def test_an_interrupt_ends_it(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            seconds = []
            while not seconds or min(seconds) > 0.5 and len(seconds) < 20:  # of many, one within the second between two updates
                p, terminal = self.open_terminal(self.fake(START, {"event": "step", "step": 1, "loss": 1, "lr": 1}), locale="C")
                self.read_until(terminal, "changed")
                p.send_signal(number)
                begin = time.monotonic()
                self.read_until(terminal, None)
                self.assertEqual(p.wait(180 * program.SLOW), OK)
                seconds.append(time.monotonic() - begin)
                self.assertTrue(self.shown.endswith("\x1b[?25h"))
                self.assertEqual(p.stderr.read(), "")
            self.assertLess(min(seconds), 0.8 * program.SLOW)

    def test_it_ends_when_nothing_changes_any_more(self):
        p, terminal = self.open_terminal(self.fake(START, age=50))
        self.read_until(terminal, "running on another host")
        self.read_until(terminal, "failed or killed")
        self.read_until(terminal, None)
        self.assertEqual(p.wait(180 * program.SLOW), OK)

    def test_a_low_terminal(self):
        """No more lines than it has: those above could not be drawn over."""
        folder = self.fake(START, *({"event": "epoch", "epoch": i, "train_loss": i, "val_loss": i} for i in range(9)))
        for rows, columns in ((4, 30), (2, 10), (1, 1)):
            p, terminal = self.open_terminal(folder, rows, columns)
            self.read_until(terminal, r"(?s)(\x1b\[\d+A.*){2}")
            p.send_signal(signal.SIGINT)
            self.read_until(terminal, None)
            self.assertEqual(p.wait(180 * program.SLOW), OK)
            screen = Screen(rows)
            screen.feed(self.shown)
            self.assertLessEqual(screen.most, max(rows, 2))
            self.assertLess(max(map(len, screen.lines)), max(columns, 2))

    def test_a_run_that_begins_anew(self):
        """metrics.jsonl is cut or replaced: the numbers are those of the new one."""
        step = {"event": "step", "loss": 1, "lr": 1}
        folder = self.fake(START, *({**step, "step": i} for i in range(1, 40)))
        p, terminal = self.open_terminal(folder)
        self.read_until(terminal, "step 39")
        self.fake(START, *({**step, "step": i} for i in range(1, 4)))
        self.read_until(terminal, r"step 3\b")
        path = self.path(folder, "metrics.jsonl")
        self.fake(START, *({**step, "step": i} for i in range(1, 400)), name="b")
        os.replace(self.path("runs/b/metrics.jsonl"), path)
        self.read_until(terminal, "step 399")
        with open(path, "a") as f:
            f.write(json.dumps({**step, "step": 400}) + "\n" + json.dumps({**step, "step": 401})[:20])
        self.read_until(terminal, r"step 400\b")
        with open(path, "a") as f:
            f.write(json.dumps({**step, "step": 401})[20:] + "\n" + json.dumps({"event": "end", "epoch": 2, "step": 401}) + "\n")
        self.assertIn("step 401", self.read_until(terminal, None))
        self.assertEqual(p.wait(180 * program.SLOW), OK)

    def test_a_sweep_that_goes_on(self):
        self.write("base.yaml", WINE.replace("epochs: 10", "epochs: 60000"))
        self.write("test.yaml", SWEEP)
        sweep = self.start("sweep", "test.yaml", "trials=400", "train.epochs=40", "--nproc", 1)
        self.addCleanup(sweep.communicate)
        self.addCleanup(sweep.kill)
        self.wait_for(lambda: os.path.exists(self.path("sweeps/test/history.jsonl")), what="the sweep")
        p, terminal = self.open_terminal("sweeps/test")
        self.read_until(terminal, None, 600)
        self.assertEqual(p.wait(180 * program.SLOW), OK)
        screen = Screen(24)
        screen.feed(self.shown)
        self.assertRegex(screen.lines[0], "^sweeps/test: (complete|running)")
        self.assertIn("400 of 400 trials", "\n".join(screen.lines))
