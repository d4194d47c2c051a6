"""The ledger of a run and ddptrain audit: what is recorded, what is repeated, and that changes are found. ctest-labels: dist"""
import glob, hashlib, json, os, re, shutil

import numpy as np

import program
from program import DATA, DIVERGED, OK, STOPPED, USAGE, seal_ledger as seal

WINE = "datasets/wine.h5"
CONFIG = f"""
name: test
seed: 1
dataset: {{path: wine.h5, inputs: [x], targets: [y], scale: standard, split: 0.2}}
sampler: {{batch_size: 16}}
model: {{layers: [{{linear: 24}}, batch_norm, relu, {{dropout: 0.1}}, {{linear: 3}}]}}
loss: cross_entropy
optimizer: {{type: adamw, lr: 0.01}}
schedule: {{type: cosine}}
train: {{epochs: 8, ledger: {{every: 6}}}}
checkpoint: {{save_every: {{epochs: 1}}, keep: 0}}
"""
ELASTIC = ["determinism={mode: elastic, shards: 4, portable: true}", "sampler.batch_size=null", "sampler.global_batch_size=16"]


class Audit(program.Case):
    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(program.SOURCE, WINE), self.path("wine.h5"))
        self.write("c.yaml", CONFIG)

    def train(self, *arguments, code=OK):
        return self.run_program("c.yaml", "--quiet", *arguments, code=code)

    def bodies(self, run="runs/test"):
        """The lines without their chains, which must be right."""
        bodies, chain = [], ""
        for line in self.read(f"{run}/ledger.jsonl").splitlines(True):
            body, _, rest = line.rpartition(',"chain":"')
            chain = hashlib.sha256((chain + body).encode()).hexdigest()[:32]
            self.assertEqual(rest, chain + '"}\n')
            bodies.append(body)
        return bodies

    def ledger(self, run="runs/test"):
        return [json.loads(body + "}") for body in self.bodies(run)]

    def audit(self, *arguments, code=OK, **options):
        out, err = self.run_program("audit", "runs/test", *arguments, code=code, **options)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("ddptrain-")], [])
        return out if code == OK else err

    def forge(self, bodies, run="runs/test"):
        """Writes a ledger with these lines; in the checkpoints the sizes of it and of metrics.jsonl are those that they have now."""
        self.write(f"{run}/ledger.jsonl", seal(bodies))
        for path in self.checkpoints(run):
            name, sizes = os.path.basename(path), {}
            for file, word in (("ledger", f'"name":"{name[:-3]}"'), ("metrics", f'/{name}"')):
                lines = self.read(f"{run}/{file}.jsonl").splitlines(True)
                ends = [i for i, line in enumerate(lines) if '"event":"checkpoint"' in line and word in line]
                if ends:
                    sizes[f"state/{file}_bytes"] = sum(map(len, lines[:ends[-1] + 1]))
            if name != "best.h5":
                program.change_checkpoint(path, lambda f: [f[key].write_direct(np.array(size)) for key, size in sizes.items()])

    def edit(self, name, *changes):
        """Replaces texts in a file of the run; each must be there."""
        text = self.read(f"runs/test/{name}")
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        self.write(f"runs/test/{name}", text)

    # ---- the ledger ----

    def test_what_is_recorded(self):
        self.train()
        lines = self.ledger()
        start, end = lines[0], lines[-1]
        with open(self.path("runs/test/config.yaml"), "rb") as f:
            self.assertEqual(start["config_sha256"], hashlib.sha256(f.read()).hexdigest())
        self.assertEqual((start["event"], start["step"], start["world_size"], start["every"]), ("start", 0, 1, 6))
        self.assertEqual(start["dataset_fingerprint"], self.metrics()[0]["dataset_fingerprint"])
        self.assertEqual((end["event"], end["state_sha256"]), ("end", self.sha()))
        steps = [line for line in lines if line["event"] == "step"]
        self.assertEqual([line["step"] for line in steps], list(range(6, 73, 6)))
        by_step = {line["step"]: line for line in self.events("step")}
        for line in steps:
            self.assertEqual(line["loss"], by_step[line["step"]]["loss"])
            self.assertEqual(line["grad_norm"], by_step[line["step"]]["grad_norm"])
        self.assertEqual([line["name"] for line in lines if line["event"] == "checkpoint"], [f"epoch-{i:04d}" for i in range(1, 9)])
        for field in ("rows", "parameters"):
            self.assertEqual(len({line[field] for line in steps}), len(steps))

    def test_the_interval_is_a_function_of_model_and_batch(self):
        for run in ("a", "b"):
            self.train("--run-dir", run, "train.ledger=auto", "train.epochs=60")
        self.assertEqual(self.bodies("a"), self.bodies("b"))
        every = self.ledger("a")[0]["every"]
        self.assertEqual(every & every - 1, 0)
        self.train("--run-dir", "off", "train.ledger=off")
        self.assertFalse(os.path.exists(self.path("off/ledger.jsonl")))

    def test_a_stop_and_a_resume(self):
        """The lines of a run that was stopped are those of one that was not, and two more."""
        self.train("--run-dir", "whole")
        self.train("--stop-after", 31, code=STOPPED)
        self.assertEqual(self.ledger()[-1]["event"], "stopped")
        self.train()
        whole, lines = self.bodies("whole"), self.bodies()
        more = [json.loads(body + "}") for body in lines if body not in whole]
        self.assertEqual([(line["event"], line["step"]) for line in more], [("checkpoint", 31), ("resume", 31)])
        self.assertEqual(more[0]["state"], more[1]["state"])
        self.assertEqual([body for body in lines if body in whole], whole)
        self.assertIn("the run is as recorded", self.audit("--all"))

    def test_ranks(self):
        """Elastic runs of any number of processes have the same lines; a run with ZeRO those of one without."""
        for n in (1, 3):
            self.train("--run-dir", f"e{n}", "--nproc", n, *ELASTIC)
        self.assertEqual(self.bodies("e1")[1:], self.bodies("e3")[1:])
        for stage in (0, 1):
            self.train("--run-dir", f"z{stage}", "--nproc", 2, f"dist.zero_stage={stage}")
        self.assertEqual(self.bodies("z0")[1:], self.bodies("z1")[1:])

    # ---- audits of what is as recorded ----

    def test_equal(self):
        self.train()
        out = self.audit("--all")
        self.assertEqual(len(re.findall(r"(?m)^steps \d+ to \d+: equal, \d+ lines", out)), 8)
        self.assertIn("8 of 8 intervals repeated, all equal", out)
        out = self.audit("--intervals", 2, "--seed", 5)
        self.assertEqual(out, self.without_times(self.audit("--intervals", 2, "--seed", 5), out))
        self.assertIn("2 of 8 intervals repeated", out)
        self.assertRegex(out, r"with 95 % confidence at least \d+ % of its intervals are as recorded")
        self.assertRegex(self.audit(), r"\n1 of 8 intervals repeated")

    def test_confidence(self):
        """Whole numbers: one interval of ten that differs is missed by nine with a probability of 10 %, so nine are 90 %."""
        self.train("train.epochs=10")
        for count, percent in ((1, 10), (5, 70), (9, 90)):
            self.assertIn(f"at least {percent} % of its intervals", self.audit("--intervals", count))

    def without_times(self, out, like):
        times = iter(re.findall(r"\d+\.\d s", like))
        return re.sub(r"\d+\.\d s", lambda _: next(times), out)

    def test_without_its_checkpoints(self):
        """What starts from a file that was removed is repeated from the one before."""
        self.train("checkpoint.keep=2")
        self.assertIn("8 of 8 intervals repeated", self.audit("--all"))
        out = self.audit("--intervals", 1, "--seed", 3)
        self.assertRegex(out, r"[1-7] of 8 intervals repeated")
        # all that are repeated are proven, also those that the chosen one needed
        out = self.audit("--intervals", 1, "--seed", next(seed for seed in range(100) if "7 of 8" in self.audit("--intervals", 1, "--seed", seed)))
        self.assertIn("with 95 % confidence at least 87 % of its intervals", out)

    def test_one_run_for_many_intervals(self):
        """Those without files between them, up to the best checkpoint and up to 64 of them."""
        self.train("checkpoint={keep: 1, save_every: {steps: 1}, best: val_loss}", "train.ledger={every: 3}", "train.epochs=15")
        import h5py
        with h5py.File(self.path("runs/test/checkpoints/best.h5")) as f:
            best = int(f["state/step"][()])
        out = self.audit("--all")
        runs = [tuple(map(int, m)) for m in re.findall(r"(?m)^steps (\d+) to (\d+): equal, \d+ lines, (\d+) intervals,", out)]
        ends = [end for _, end, _ in runs]
        self.assertEqual([end - first + 1 for first, end, _ in runs], [count for _, _, count in runs])
        self.assertEqual((runs[0][0], ends[-1]), (1, 135))
        self.assertIn(best, ends)
        self.assertIn(64, ends if best > 64 else [64])
        self.assertLess(len(runs), 6)
        self.assertIn("135 of 135 intervals repeated", out)
        bodies = self.bodies()
        for step in (7, 60):  # within the first run
            i = next(i for i, body in enumerate(bodies) if '"event":"checkpoint"' in body and f'"step":{step},' in body)
            changed = re.sub(r'"state":"(.)', lambda m: '"state":"' + ("0" if m[1] != "0" else "1"), bodies[i])
            self.write("runs/test/ledger.jsonl", seal(bodies[:i] + [changed] + bodies[i + 1:]))
            self.assertIn(f"ledger.jsonl:{i + 1}: step {step} differs: state is", self.audit("--all", code=DIVERGED))

    def test_files_that_have_moved(self):
        """The weights or the checkpoint that the run started from: its place is given as a key."""
        self.train("--run-dir", "before", "train.epochs=2")
        for key, other in (("model.init_from", "before/checkpoints/epoch-0001.h5"), ("checkpoint.resume", "before/checkpoints/epoch-0001.h5")):
            shutil.copy(self.path("before/checkpoints/epoch-0002.h5"), self.path("start.h5"))
            self.train(f"{key}=start.h5", "--fresh")
            os.rename(self.path("start.h5"), self.path("moved.h5"))
            self.assertIn("start.h5", self.audit("--all", code=None))
            self.assertIn(self.code, (DATA, program.IO))
            self.assertIn("the run is as recorded", self.audit("--all", f"{key}={self.path('moved.h5')}"))
            self.assertIn("state is", self.audit("--all", f"{key}={self.path(other)}", code=None))
            self.assertIn(self.code, (DIVERGED, DATA))
        self.assertIn("unexpected argument 'model.layers=[]'", self.audit("model.layers=[]", code=USAGE))

    def test_on_other_processors_and_processes(self):
        """A run of two processes with AVX-512, audited by one with AVX2."""
        self.train("--nproc", 2, *ELASTIC)
        for n in (1, 2, 4):
            self.assertIn("the run is as recorded", self.audit("--all", "--nproc", n, env={"DDPTRAIN_CPU": "avx2"}))

    def test_two_ranks_and_zero(self):
        self.train("--nproc", 2, "dist.zero_stage=1", "train.accumulate=2")
        self.assertIn("the run is as recorded", self.audit("--all"))

    def test_a_run_that_was_extended(self):
        """The config of the first part is in its checkpoints."""
        self.train()
        self.train("train.epochs=12")
        self.assertIn("12 of 12 intervals repeated", self.audit("--all"))
        os.remove(self.path("runs/test/checkpoints/epoch-0003.h5"))
        self.assertIn("12 of 12 intervals repeated", self.audit("--all"))

    def test_names(self):
        """Of folders, which are values of YAML on the way."""
        for name in ("# x", "a: b", "[x", "a b'c"):
            self.train("--run-dir", name)
            self.run_program("audit", name, "--all", out="the run is as recorded")

    def test_a_checkpoint_of_the_beginning_that_was_removed(self):
        self.train("--stop-after", 0, code=STOPPED)
        self.train()
        os.remove(self.path("runs/test/checkpoints/epoch-0000.h5"))
        self.assertIn("8 of 8 intervals repeated", self.audit("--all"))

    def test_a_ledger_of_a_part(self):
        self.train("train.ledger=off", "--stop-after", 20, code=STOPPED)
        self.train()
        out = self.audit("--all")
        self.assertIn("it begins after step 20", out)
        self.assertIn("the run is as recorded", out)

    def test_a_ledger_that_begins_after_an_epoch(self):
        """The name of the checkpoint is that of the epoch. Without the file nothing is wrong with the run."""
        self.train("train.ledger=off", "train.epochs=3")
        self.train()
        out = self.audit("--all")
        self.assertIn("it begins after step ", out)
        self.assertIn("the run is as recorded", out)
        os.remove(self.path("runs/test/checkpoints/epoch-0003.h5"))
        self.assertIn("and the checkpoint of that step is not in the folder, so the steps to the next checkpoint cannot be repeated", self.audit("--all", code=DATA))

    def test_a_resume_from_the_best_checkpoint(self):
        """It may be newer than all others, as after a kill, and has no line of its own."""
        words = ("checkpoint.best=val_loss", "checkpoint.save_every=5")
        self.train(*words)
        os.remove(self.path("runs/test/checkpoints/epoch-0008.h5"))
        shutil.copytree(self.path("runs/test"), self.path("longer"))
        self.train(*words)
        resumes = [line for line in self.ledger() if line["event"] == "resume"]
        saves = [line["step"] for line in self.ledger() if line["event"] == "checkpoint"]
        self.assertTrue(len(resumes) == 1 and resumes[0]["step"] > 45, resumes)
        self.assertEqual(saves, [45, 72])
        self.assertIn("2 of 2 intervals repeated", self.audit("--all"))
        self.run_program("certify", "runs/test")
        self.train(*words, "train.epochs=12", "--run-dir", "longer")
        _, err = self.run_program("audit", "longer", code=DATA)
        self.assertRegex(err, r"longer/ledger.jsonl:\d+: the resume has another config than steps 46 to \d+, after which there is no line of a checkpoint")

    def test_a_ledger_without_a_part(self):
        self.train("--stop-after", 20, code=STOPPED)
        self.train("train.ledger=off", "--stop-after", 60, code=STOPPED)
        self.train()
        self.assertIn("ledger.jsonl:8: it has no lines of steps 21 to 60; was train.ledger off then?", self.audit(code=DATA))

    def test_what_cannot_be_repeated(self):
        """Counts as if it differed: the config of the first steps is nowhere in the folder of an earlier version."""
        self.train()
        self.train("train.epochs=12", "train.log_every=5")
        for i in range(1, 9):  # with the first config
            os.remove(self.path(f"runs/test/checkpoints/epoch-000{i}.h5"))
        out = self.audit("--all")
        self.assertIn("steps 1 to 72: equal, 22 lines, 8 intervals, ", out)
        self.assertIn("12 of 12 intervals repeated", out)
        self.write("runs/test/ledger.jsonl", program.without_configs(self.read("runs/test/ledger.jsonl")))
        self.forge(self.bodies())
        out = self.audit("--all")
        self.assertIn("9 of 12 intervals cannot be repeated", out)  # the ninth has no file to start from
        self.assertIn("3 of 12 intervals repeated, all equal", out)
        self.assertIn("at least 25 % of its intervals are as recorded", out)

    def test_configs_of_earlier_starts(self):
        """One of them is in the last checkpoint of its start."""
        self.train()
        self.train("train.epochs=12")
        for i in range(1, 8):
            os.remove(self.path(f"runs/test/checkpoints/epoch-000{i}.h5"))
        self.assertIn("12 of 12 intervals repeated", self.audit("--all"))

    def with_device(self, device):
        bodies = self.bodies()
        found = json.loads(bodies[0] + "}")["device"]
        self.edit("metrics.jsonl", (json.dumps(found), json.dumps(device(found))))
        self.forge([bodies[0].replace(json.dumps(found), json.dumps(device(found)))] + bodies[1:])

    def test_devices(self):
        """16-bit products need no other processor; a run of a GPU is not repeated on the CPU."""
        self.train()
        self.with_device(lambda device: device[:-1] + ", bfloat16)")
        self.assertIn("the run is as recorded", self.audit("--all"))
        self.with_device(lambda device: device.replace(", bfloat16)", ", another)"))
        self.assertIn("without determinism.portable", self.audit("--all", code=USAGE))
        self.with_device(lambda device: "NVIDIA H200")
        self.assertRegex(self.audit("--all", code=None), "cannot be repeated: .*(GPU|cuda)")
        self.assertNotIn(self.code, (OK, DIVERGED))

    def test_moved_data(self):
        self.train()
        os.rename(self.path("wine.h5"), self.path("moved.h5"))
        self.assertRegex(self.audit("--all", code=DATA), r"steps 1 to 9 of runs/test cannot be repeated: .*wine.h5")
        self.assertIn("the run is as recorded", self.audit("--all", f"dataset.path={self.path('moved.h5')}"))

    # ---- audits of what was changed ----

    def test_a_changed_line(self):
        """Every line of the ledger: changed, removed, or moved."""
        self.train()
        lines = self.read("runs/test/ledger.jsonl").splitlines(True)
        for i in range(0, len(lines), 4):
            digit = re.search(r'"step":(\d)', lines[i]).start(1)
            changed = lines[i][:digit] + ("2" if lines[i][digit] == "1" else "1") + lines[i][digit + 1:]
            self.write("runs/test/ledger.jsonl", "".join(lines[:i] + [changed] + lines[i + 1:]))
            self.assertIn(f"ledger.jsonl:{i + 1}: the chain is broken", self.audit(code=DIVERGED))
            if i == len(lines) - 1:
                continue
            self.write("runs/test/ledger.jsonl", "".join(lines[:i] + lines[i + 1:]))
            self.assertIn(f"ledger.jsonl:{i + 1}: the chain is broken", self.audit(code=DIVERGED))
            self.write("runs/test/ledger.jsonl", "".join(lines[:i] + [lines[i + 1], lines[i]] + lines[i + 2:]))
            self.assertIn(f"ledger.jsonl:{i + 1}: the chain is broken", self.audit(code=DIVERGED))

    def test_a_chain_that_was_made_anew(self):
        """Who changes a line and all chains after it is found where that step is repeated."""
        self.train()
        bodies = self.bodies()
        for field, found in (("loss", "loss is"), ("parameters", "parameters is"), ("rows", "rows is")):
            i = next(i for i, body in enumerate(bodies) if '"step":36,' in body and '"event":"step"' in body)
            j = bodies[i].index(f'"{field}":') + len(field) + 6
            changed = bodies[i][:j] + ("7" if bodies[i][j] != "7" else "3") + bodies[i][j + 1:]
            self.write("runs/test/ledger.jsonl", seal(bodies[:i] + [changed] + bodies[i + 1:]))
            err = self.audit("--all", code=DIVERGED)
            if field == "loss":  # metrics.jsonl has it, too
                self.assertRegex(err, rf"runs/test/metrics.jsonl:\d+: loss is \S+, and \S+ in runs/test/ledger.jsonl:{i + 1}\n")
                os.rename(self.path("runs/test/metrics.jsonl"), self.path("metrics.jsonl"))
                err = self.audit("--all", code=DIVERGED)
                os.rename(self.path("metrics.jsonl"), self.path("runs/test/metrics.jsonl"))
            self.assertIn(f"ledger.jsonl:{i + 1}: step 36 differs: {found}", err)
        i = next(i for i, body in enumerate(bodies) if '"event":"checkpoint"' in body and '"step":45,' in body)
        changed = re.sub(r'"state":"(.)', lambda m: '"state":"' + ("0" if m[1] != "0" else "1"), bodies[i])
        self.write("runs/test/ledger.jsonl", seal(bodies[:i] + [changed] + bodies[i + 1:]))
        self.assertIn(f"ledger.jsonl:{i + 1}: step 45 differs: state is", self.audit("--all", code=DIVERGED))

    def test_nul_characters(self):
        """In place of lines they are the reason why nothing is compared; at the end, after a power failure, a last line without its bytes."""
        self.train()
        for name in ("metrics.jsonl", "ledger.jsonl"):
            with open(self.path(f"runs/test/{name}"), "rb") as f:
                whole = f.read()
            lines = whole.split(b"\n")
            for content, line in ((b"\n".join(lines[:5] + [bytes(len(lines[5]))] + lines[6:]), 6), (bytes(len(lines[0]) + 1) + b"\n".join(lines[1:]), 1), (whole + bytes(300), None)):
                with open(self.path(f"runs/test/{name}"), "wb") as f:
                    f.write(content)
                err = self.audit(code=DATA if line else OK)
                if line:
                    self.assertIn(f"runs/test/{name}:{line}: NUL characters in place of lines, as a power failure or a full disk leaves them; without these lines the run "
                                  "cannot be compared\n", err)
            with open(self.path(f"runs/test/{name}"), "wb") as f:
                f.write(whole)

    def test_a_ledger_that_was_cut(self):
        """Lines removed at the end, and step lines removed with all chains made anew."""
        self.train()
        bodies = self.bodies()
        self.write("runs/test/ledger.jsonl", seal(bodies[:-1]))
        self.assertIn("the last line is not that of the end of the run", self.audit(code=DIVERGED))
        self.write("runs/test/ledger.jsonl", seal(bodies[:9]))
        self.assertRegex(self.audit(code=DIVERGED), r"it has no line for runs/test/checkpoints/epoch-000\d.h5: lines were removed")
        i = next(i for i, body in enumerate(bodies) if '"step":36,' in body and '"event":"step"' in body)
        self.write("runs/test/ledger.jsonl", seal(bodies[:i] + bodies[i + 1:]))
        self.assertIn(f"ledger.jsonl:{i + 1}: no line of step 36 above it", self.audit(code=DIVERGED))
        self.write("runs/test/ledger.jsonl", seal(bodies[:i] + [bodies[i].replace('"step":36', '"step":35')] + bodies[i:]))
        self.assertIn(f"ledger.jsonl:{i + 1}: a step that has no line in such a ledger", self.audit(code=DIVERGED))

    def test_changed_metrics(self):
        """Losses and norms at steps of the ledger without repeating them, each other number by repeating it."""
        self.train("checkpoint.keep=2")
        lines = self.read("runs/test/metrics.jsonl").splitlines(True)

        def find(event, key, value):
            return next(i for i, line in enumerate(lines) if f'"event":"{event}"' in line and f'"{key}":{value},' in line)

        def audit(changed, *arguments):
            self.write("runs/test/metrics.jsonl", "".join(changed))
            return self.audit(*arguments, code=DIVERGED)

        def edited(i, key):
            number = re.search(rf'"{key}":(-?[0-9.e-]+)', lines[i])
            new = str(float(number[1]) * (1 + 1e-9) + 1e-9)
            return lines[:i] + [lines[i].replace(number[0], f'"{key}":{new}')] + lines[i + 1:]
        for key in ("loss", "grad_norm"):
            i = find("step", "step", 36)
            self.assertRegex(audit(edited(i, key)), rf"runs/test/metrics.jsonl:{i + 1}: {key} is \S+, and \S+ in runs/test/ledger.jsonl:\d+\n")
        for event, value, key in (("step", 35, "loss"), ("step", 2, "grad_norm"), ("step", 50, "lr"), ("step", 44, "samples"),
                                  ("epoch", 3, "val_loss"), ("epoch", 7, "val_accuracy"), ("epoch", 0, "train_loss")):
            i = find(event, event, value)
            self.assertRegex(audit(edited(i, key), "--all"), rf"runs/test/metrics.jsonl:{i + 1}: {key} is \S+, and \S+ when it is repeated\n")
        i = find("step", "step", 35)
        self.assertRegex(audit(lines[:i] + lines[i + 1:], "--all"), "metrics.jsonl: it has no line of step 35, which is there when")
        self.assertRegex(audit(lines[:i] + [lines[i + 1], lines[i]] + lines[i + 2:]), rf"metrics.jsonl:{i + 2}: a step that was already there")
        e = find("epoch", "epoch", 4)
        self.assertRegex(audit(lines[:e] + lines[e + 1:], "--all"), "metrics.jsonl: it has no line of epoch 4, which is there when")
        more = lines[:i + 1] + [lines[i].replace('"loss":', '"f1":0.99,"loss":')] + lines[i + 2:]
        more[i + 1] = more[i + 1].replace('"step":35', '"step":36')
        self.assertRegex(audit(more, "--all"), rf"metrics.jsonl:{i + 2}: \w+ is")
        self.write("runs/test/metrics.jsonl", re.sub(r'"samples_per_second":.', '"samples_per_second":7', "".join(lines)))
        self.assertIn("the run is as recorded", self.audit("--all"))
        self.assertRegex(audit([line.replace('"samples_per_second":', '"samples_per_second":1') for line in lines]),
                         r"metrics.jsonl: it has \d+ bytes up to line \d+, and state/metrics_bytes of runs/test/checkpoints/epoch-0008.h5 is \d+")
        last = max(k for k, line in enumerate(lines) if '"event":"step"' in line)
        for more, at, why in ((lines[e].replace('"val_loss":', '"val_loss":1'), e, "an epoch that was already there"),
                              (lines[e].replace('"epoch":4', '"epoch":8'), len(lines) - 1, "an epoch after the end of the run"),
                              (re.sub(r'"step":\d+', '"step":73', lines[last]), last + 1, "a step after the end of the run")):
            self.assertRegex(audit(lines[:at] + [more] + lines[at:]), rf"runs/test/metrics.jsonl:\d+: {why}")
        end = re.sub(r'"best_value":[^,]+', '"best_value":0.5', lines[-1])
        self.assertRegex(audit(lines[:-1] + [end]), rf"metrics.jsonl:{len(lines)}: best_epoch and best_value are not those of the best of its epochs")
        end = re.sub(r'"samples":\d+', '"samples":9', lines[-1])
        self.assertRegex(audit(lines[:-1] + [end], "--all"), rf"metrics.jsonl:{len(lines)}: samples is 9, and \d+ when it is repeated")

    def test_another_best_checkpoint(self):
        """A checkpoint of the same run in place of the best one; a checkpoint that is said to await its evaluation."""
        self.train("checkpoint.best=val_loss")
        best = self.events("end")[0]["best_epoch"]
        self.assertIn("the run is as recorded", self.audit("--all"))
        other = 3 if best != 3 else 4
        shutil.copy(self.path(f"runs/test/checkpoints/epoch-000{other}.h5"), self.path("runs/test/checkpoints/best.h5"))
        self.assertRegex(self.audit(code=DIVERGED), rf"best.h5: the state after epoch {other}, and runs/test/metrics.jsonl:\d+ says that epoch {best} is the best")
        bodies = self.bodies()
        i = next(i for i, body in enumerate(bodies) if '"event":"checkpoint"' in body and '"step":45,' in body)
        self.write("runs/test/ledger.jsonl", seal(bodies[:i] + [bodies[i].replace('"name"', '"pending":1,"name"')] + bodies[i + 1:]))
        self.assertIn(f"ledger.jsonl:{i + 2}: no other line of the step of a pending evaluation", self.audit(code=DIVERGED))

    def test_another_best_epoch(self):
        """best.h5 of another epoch with the names of that epoch in metrics.jsonl; none; one that the run does not keep."""
        self.train("checkpoint.best=val_loss")
        end, best = self.events("end")[0], self.path("runs/test/checkpoints/best.h5")
        other = 3 if end["best_epoch"] != 3 else 4
        value = self.events("epoch")[other - 1]["val_loss"]
        metrics = self.read("runs/test/metrics.jsonl")
        shutil.copy(best, self.path("best.h5"))
        shutil.copy(self.path(f"runs/test/checkpoints/epoch-000{other}.h5"), best)
        self.edit("metrics.jsonl", (f'"best_epoch":{end["best_epoch"]},', f'"best_epoch":{other},'),
                  (f'"best_epoch_index":{end["best_epoch"] - 1},', f'"best_epoch_index":{other - 1},'), (f'"best_value":{end["best_value"]!r},', f'"best_value":{value!r},'))
        why = r"metrics.jsonl:\d+: best_epoch and best_value are not those of the best of its epochs"
        self.assertRegex(self.audit(code=DIVERGED), why)
        self.assertRegex(self.run_program("certify", "runs/test", code=DIVERGED)[1], why)
        self.write("runs/test/metrics.jsonl", metrics)
        os.remove(best)
        for words in ("audit", "certify"):
            self.assertIn(f"best.h5: it is missing, and epoch {end['best_epoch']} is the best", self.run_program(words, "runs/test", code=DIVERGED)[1])
        shutil.copy(self.path("best.h5"), best)
        self.assertIn("all equal", self.audit())
        self.train("--fresh")
        shutil.copy(self.path("best.h5"), best)
        self.assertIn("best.h5: the run keeps no best checkpoint (checkpoint.best): the file was added", self.audit(code=DIVERGED))

    def test_a_best_checkpoint_that_was_lost(self):
        """A resume without best.h5 compares the epochs from there on; the audit says so."""
        self.train("checkpoint.best=val_loss", "optimizer.lr=1e-9", "--stop-after", 40, code=STOPPED)
        os.remove(self.path("runs/test/checkpoints/best.h5"))
        self.assertIn("best.h5: it is missing", self.audit(code=DIVERGED))
        self.train("checkpoint.best=val_loss", "optimizer.lr=1e-9")
        best = min(self.events("epoch"), key=lambda e: e["val_loss"])["epoch"] + 1
        out = self.audit("--all")
        self.assertIn("the run is as recorded", out)
        if best != self.events("end")[0]["best_epoch"]:
            self.assertIn("best.h5 is that of the best epoch since the resume of step 41: ", out)

    def changed(self, name, change):
        """The message of an audit and of certify while a checkpoint is changed and sealed anew."""
        path = self.path("runs/test/checkpoints", name)
        shutil.copy(path, self.path("copy.h5"))
        program.change_checkpoint(path, change)
        err = self.run_program("certify", "runs/test", code=DIVERGED)[1]
        self.assertEqual(self.audit("--intervals", 1, "--seed", self.first_seed, code=DIVERGED), err)
        shutil.copy(self.path("copy.h5"), path)
        return err

    def test_weights_without_repeating_them(self):
        """Those of the newest and of the best checkpoint, by each audit and by certify."""
        self.train("checkpoint.best=val_loss")
        self.first_seed = next(seed for seed in range(99) if self.starts(seed, 1))

        def flip(path):
            def change(f):
                value = f[path][:]
                value.reshape(-1).view(np.uint32)[0] ^= 1
                f[path][:] = value
            return change
        for name in ("epoch-0008.h5", "best.h5"):
            for path in ("model/0.weight", "model/1.running_mean", "optimizer/exp_avg_sq/4.bias"):
                self.assertRegex(self.changed(name, flip(path)), rf"{name}: not the state that the run had: its state is \w{{16}}, and \w{{16}} in runs/test/ledger.jsonl:\d+")
        self.assertIn("all equal", self.audit())
        self.assertIn("model/9.weight", self.run_changed("epoch-0008.h5", lambda f: f.create_dataset("model/9.weight", data=np.zeros((2, 2), np.float32)), DATA))
        self.assertIn("all equal", self.audit())
        self.assertIn("data/inputs", self.run_changed("best.h5", lambda f: f.pop("data/inputs"), DATA))
        self.train("--fresh", "checkpoint={best: val_loss, save_every: {steps: 72}}", "train.ledger={every: 9}")
        self.assertRegex(self.changed("best.h5", flip("model/0.weight")), r"best.h5: not the state that the run had: its parameters is \w{16}")
        self.train("--fresh", "checkpoint={best: val_loss, save_every: {steps: 72}}", "train.ledger={every: 50}")
        self.assertRegex(self.run_program("certify", "runs/test")[1], r"best.h5: the ledger has no hash of step \d+, so its weights are not compared")

    def run_changed(self, name, change, code):
        path = self.path("runs/test/checkpoints", name)
        shutil.copy(path, self.path("copy.h5"))
        program.change_checkpoint(path, lambda f: change(f) and None)
        err = self.run_program("certify", "runs/test", code=code)[1]
        shutil.copy(self.path("copy.h5"), path)
        return err

    def test_counters(self):
        """In the newest checkpoint and in best.h5 by each audit, in others when their interval is repeated."""
        self.train("checkpoint.best=val_loss", "train.early_stop={metric: val_loss, patience: 50}", "schedule={type: reduce_on_plateau, monitor: val_loss, patience: 0}")
        self.first_seed = next(seed for seed in range(99) if self.starts(seed, 1))

        def set_to(path, value):
            def change(f):
                f[path][()] = value
            return change
        by_ledger = [("epoch", 7), ("batch", 3), ("step", 71), ("pending_end", 1), ("world_size", 2)]
        waits = [("early_stop_best", 0.1), ("early_stop_wait", 3), ("plateau_best", 0.1), ("plateau_bad_epochs", 9), ("plateau_cooldown", 1), ("plateau_reductions", 7)]
        sums = [(f"epoch_{name}", 1.0) for name in ("loss", "count", "correct", "scored", "samples", "seconds")]
        for name, value in by_ledger + waits + sums:
            self.assertIn(f"epoch-0008.h5: state/{name} is {value:g}", self.changed("epoch-0008.h5", set_to(f"state/{name}", value)))
        for name, value in waits + sums:
            self.assertIn(f"best.h5: state/{name} is {value:g}", self.changed("best.h5", set_to(f"state/{name}", value)))
        for file in ("epoch-0008.h5", "best.h5"):
            self.assertIn("state/metrics_bytes of ", self.changed(file, set_to("state/metrics_bytes", 77)))
            self.assertRegex(self.changed(file, set_to("state/best_value", 0.25)), "state/best_value 0.25, which are not those of the best")
            self.assertIn("state/best_epoch is 2", self.changed(file, set_to("state/best_epoch", 2)))
            self.assertIn("not the state that the run had: its state", self.changed(file, set_to("state/samples", 1)))
            self.assertIn(f"{file}: the step of its seal is 5, and ", self.with_order(file, 5))
        self.assertIn("state/ledger_bytes of ", self.changed("epoch-0008.h5", set_to("state/ledger_bytes", 77)))
        path = self.path("runs/test/checkpoints/epoch-0004.h5")
        shutil.copy(path, self.path("whole.h5"))
        for name, value in by_ledger[:1] + waits + sums[:2] + [("best_epoch", 1), ("skipped", 1), ("skipped_in_row", 1), ("loss_scale", 2.0), ("loss_scale_growth_tracker", 1), ("ledger_bytes", 9)]:
            program.change_checkpoint(path, set_to(f"state/{name}", value))
            self.assertRegex(self.audit("--all", code=DIVERGED), f"epoch-0004.h5: .*state/{name} |state/{name} of runs/test/checkpoints/epoch-0004.h5")
            shutil.copy(self.path("whole.h5"), path)

    def with_order(self, name, order):
        """The message of an audit while the seal of a checkpoint has another step."""
        path = self.path("runs/test/checkpoints", name)
        shutil.copy(path, self.path("copy.h5"))
        program.change_checkpoint(path, lambda f: None, order)
        err = self.audit(code=DIVERGED)
        shutil.copy(self.path("copy.h5"), path)
        return err

    def test_files_that_would_be_the_newest(self):
        """The step of a seal says which checkpoint is used."""
        self.train()
        self.assertIn("epoch-0003.h5: the step of its seal is 999, and 27 in the ledger", self.with_order("epoch-0003.h5", 999))
        copy = self.path("runs/test/checkpoints/mine.h5")
        shutil.copy(self.path("runs/test/checkpoints/epoch-0003.h5"), copy)
        self.assertIn("all equal", self.audit())
        program.change_checkpoint(copy, lambda f: None, 73)
        self.assertIn("mine.h5: it would be used as the newest checkpoint", self.audit(code=DIVERGED))

    def test_fields_of_a_start(self):
        """Of a ledger whose whole chain was made anew, and of the lines of starts in metrics.jsonl."""
        self.train("train.epochs=4", "--stop-after", 20, code=STOPPED)
        self.train("train.epochs=4")
        bodies, metrics = self.bodies(), self.read("runs/test/metrics.jsonl")
        resume = next(i for i, body in enumerate(bodies) if '"event":"resume"' in body)
        for i in (0, resume):
            for old, new, why in (('"portable":0', '"portable":1', "portable is 1, and 0 by its config"), ('"elastic":0', '"elastic":1', "elastic is 1, and 0 by its config"),
                                  ('"every":6', '"every":3', "every is 3, and 6 by its config"), ('"world_size":1', '"world_size":0', "world_size is 0, and at least 1"),
                                  ("dropout:", "Dropout:", "its config is not the one of its config_sha256")):
                self.assertIn(old, bodies[i])
                self.forge(bodies[:i] + [bodies[i].replace(old, new)] + bodies[i + 1:])
                self.assertIn(f"ledger.jsonl:{i + 1}: {why}", self.audit(code=DIVERGED))
        self.forge([bodies[0].replace('"world_size":1', '"world_size":2')] + bodies[1:])
        self.assertIn("metrics.jsonl:1: world_size is 1, and 2 in runs/test/ledger.jsonl:1", self.audit(code=DIVERGED))
        changed = re.sub('"dataset_fingerprint":"...', '"dataset_fingerprint":"000', bodies[resume])
        self.forge(bodies[:resume] + [changed] + bodies[resume + 1:])
        self.assertIn(f"ledger.jsonl:{resume + 1}: dataset_fingerprint is ", self.audit(code=DIVERGED))
        self.forge([re.sub('"dataset_fingerprint":"...', '"dataset_fingerprint":"000', body) for body in bodies])
        self.edit("metrics.jsonl", (json.loads(metrics.splitlines()[0])["dataset_fingerprint"][:3], "000"))
        self.assertIn("data/fingerprint is not the dataset_fingerprint of runs/test/ledger.jsonl:1", self.run_program("certify", "runs/test", code=DIVERGED)[1])
        self.forge(bodies)
        lines = metrics.splitlines(True)
        number = next(i for i, line in enumerate(lines) if '"event":"resume"' in line)
        for i in (0, number):
            for key, value, repeats in (("name", '"mine"', False), ("world_size", 2, False), ("parameters", 1, False), ("seed", 7, False), ("dataset_fingerprint", '"0"', False),
                                        ("device", '"cpu"', False), ("epoch", 3, False), ("train_rows", 7, True), ("val_rows", 7, True), ("batch_size", 7, True)):
                changed = re.sub(rf'"{key}":("[^"]*"|\d+)', f'"{key}":{value}', lines[i])
                self.write("runs/test/metrics.jsonl", "".join(lines[:i] + [changed] + lines[i + 1:]))
                self.assertRegex(self.audit(code=DIVERGED), rf"metrics.jsonl:{i + 1}: {key} is ")
                if not repeats:
                    self.assertRegex(self.run_program("certify", "runs/test", code=DIVERGED)[1], rf"metrics.jsonl:{i + 1}: {key} is ")
            self.write("runs/test/metrics.jsonl", "".join(lines[:i] + lines[i + 1:]))
            self.assertRegex(self.audit(code=DIVERGED), "no line of a start above it|it has no line of the start of runs/test/ledger.jsonl")

    def test_what_metrics_says_of_checkpoints(self):
        """One whose line and file were removed; the counts of the end."""
        self.train()
        bodies = self.bodies()
        os.remove(self.path("runs/test/checkpoints/epoch-0003.h5"))
        self.forge([body for body in bodies if '"name":"epoch-0003"' not in body])
        self.assertRegex(self.audit(code=DIVERGED), r"metrics.jsonl:\d+: a checkpoint that is not in the ledger: lines of it were removed")
        self.train("--fresh")
        for key in ("samples", "skipped", "epoch"):
            whole = self.read("runs/test/metrics.jsonl")
            self.write("runs/test/metrics.jsonl", re.sub(rf'("event":"end".*"{key}":)\d', r"\g<1>7", whole))
            self.assertRegex(self.run_program("certify", "runs/test", code=DIVERGED)[1], rf"metrics.jsonl:\d+: {key} is not that of the newest checkpoint")
            self.write("runs/test/metrics.jsonl", whole)

    def test_the_config_of_another_checkpoint(self):
        """One that is neither the newest nor the best."""
        self.train()

        def other(f):
            text = f["config"][()].decode().replace("relu", "tanh")
            del f["config"]
            f["config"] = np.bytes_(text)
        program.change_checkpoint(self.path("runs/test/checkpoints/epoch-0004.h5"), other)
        self.assertIn("epoch-0004.h5: the config in it is not one that the run had", self.audit("--all", code=DIVERGED))

    def test_changed_data(self):
        import h5py
        self.train()
        with h5py.File(self.path("wine.h5"), "r+") as f:
            f["x"][17, 3] += 0.25
        self.assertIn("ledger.jsonl:1: step 0 differs: dataset_fingerprint is", self.audit("--intervals", 8, "--seed", 1, code=DIVERGED))

    def starts(self, seed, step):
        """Whether the interval that is chosen with [seed] begins at [step]."""
        out, err = self.run_program("audit", "runs/test", "--intervals", 1, "--seed", seed, code=None)
        return f"steps {step} to" in out or f"step {step - 1} differs" in err

    def test_another_config(self):
        self.train()
        config = self.read("runs/test/config.yaml")
        self.write("runs/test/config.yaml", config.replace("seed: 1\n", "seed: 2\n", 1))
        self.assertIn("config.yaml: not the config of the run", self.audit(code=DIVERGED))

    def test_a_changed_checkpoint(self):
        """With its seal, too: its state is in the ledger."""
        self.train()
        path = self.path("runs/test/checkpoints/epoch-0005.h5")

        def change(f):
            value = f["optimizer/exp_avg/0.weight"][:]
            value.view(np.uint32)[3, 5] ^= 1
            f["optimizer/exp_avg/0.weight"][:] = value
        program.change_checkpoint(path, change)
        self.assertIn("epoch-0005.h5: not what the run gives when it is repeated: optimizer/exp_avg/0.weight[3, 5]", self.audit("--all", code=DIVERGED))
        out = self.audit("--intervals", 1, "--seed", next(seed for seed in range(99) if self.starts(seed, 46)), code=DIVERGED)
        self.assertIn("step 45 differs: state is", out)
        with open(path, "r+b") as f:
            f.seek(5000)
            byte = f.read(1)[0]
            f.seek(5000)
            f.write(bytes([byte ^ 4]))
        self.assertIn("epoch-0005.h5: damaged", self.audit("--all", code=DATA))

    def test_a_claim_of_another_run(self):
        """A ledger that was written by a run of another seed, with the config of this one."""
        self.train("seed=2")
        other, config = self.bodies(), self.read("runs/test/config.yaml")
        self.train("--fresh")
        mine = self.read("runs/test/config.yaml")
        sha = [hashlib.sha256(text.encode()).hexdigest() for text in (config, mine)]
        os.remove(self.path("runs/test/metrics.jsonl"))
        self.write("runs/test/ledger.jsonl", seal([body.replace(*sha) for body in other]))
        self.assertIn("ledger.jsonl:1: its config is not the one of its config_sha256", self.audit(code=DIVERGED))
        self.write("runs/test/ledger.jsonl", seal([body.replace(*sha).replace("seed: 2", "seed: 1") for body in other]))
        self.assertRegex(self.audit("--all", code=DIVERGED), r"ledger.jsonl:\d+: step \d+ differs: ")

    def zero(self, path):
        def change(f):
            f["model/0.weight"][:] = 0 * f["model/0.weight"][:]
        program.change_checkpoint(self.path(path), change)

    def test_the_files_that_are_used(self):
        """The newest checkpoint and the best one, which no interval starts from: weights, scaler, missing, damaged."""
        self.train("checkpoint.best=val_loss")
        for name in ("epoch-0008.h5", "best.h5"):
            path = f"runs/test/checkpoints/{name}"
            shutil.copy(self.path(path), self.path("copy.h5"))
            self.zero(path)
            self.assertIn(f"{path}: not what the run gives when it is repeated: model/0.weight", self.audit("--all", code=DIVERGED))
            shutil.copy(self.path("copy.h5"), self.path(path))

            def move(f):
                f["scaler/mean"][:] = f["scaler/mean"][:] + 1
            program.change_checkpoint(self.path(path), move)
            self.assertIn(f"{path}: not what the run gives when it is repeated: scaler/mean", self.audit("--intervals", 1, code=DIVERGED))
            shutil.copy(self.path("copy.h5"), self.path(path))

            def other(f):
                text = f["config"][()].decode().replace("relu", "tanh")
                del f["config"]
                f["config"] = text
            program.change_checkpoint(self.path(path), other)
            self.assertIn(f"{path}: the config in it is not one that the run had", self.audit(code=DIVERGED))
            with open(self.path(path), "wb"):
                pass
            self.assertIn(path, self.audit(code=DATA))
            self.run_program("certify", "runs/test", code=DATA)
            shutil.copy(self.path("copy.h5"), self.path(path))
        os.remove(self.path("runs/test/checkpoints/epoch-0008.h5"))
        self.assertIn("epoch-0008.h5: the newest checkpoint of the ledger is missing\n", self.audit(code=DATA))
        self.train("--run-dir", "killed", "--stop-after", 30, code=STOPPED)
        for path in glob.glob(self.path("killed/checkpoints/step-*.h5")):
            os.remove(path)
        self.assertIn("is missing; if the run was killed while it wrote it, continue the run first\n",
                      self.run_program("audit", "killed", code=DATA)[1])

    def test_the_end_of_the_run(self):
        """A forged last step, and metrics.jsonl without its end, or without the file."""
        self.train()
        bodies = self.bodies()
        self.assertIn('"step":72', bodies[-1])
        whole = self.read("runs/test/ledger.jsonl")
        self.write("runs/test/ledger.jsonl", seal(bodies[:-1] + [bodies[-1].replace('"step":72', '"step":1000000')]))
        self.assertIn("the end of the run is at another step than its last checkpoint", self.audit(code=DIVERGED))
        self.write("runs/test/ledger.jsonl", whole)
        lines = self.read("runs/test/metrics.jsonl").splitlines(True)
        for text in "".join(lines[:-1]), "":
            self.write("runs/test/metrics.jsonl", text)
            self.assertIn("metrics.jsonl: it does not end with the end of the run, which the ledger has", self.audit(code=DIVERGED))
        os.remove(self.path("runs/test/metrics.jsonl"))
        self.assertIn("metrics.jsonl: it does not end with the end of the run", self.audit("--intervals", 1, code=DIVERGED))

    def test_accumulated_steps_of_zero(self):
        """Stages 2 and 3 sum accumulated gradients in another order, which the repetition has, too."""
        for stage in 0, 2, 3:
            self.train("--fresh", "--nproc", 2, "train.epochs=2", "train.accumulate=2", f"dist.zero_stage={stage}")
            self.audit("--all")

    def test_a_state_that_takes_the_place_of_another(self):
        """A weight is changed while the run is stopped; a line that hides it, and a second end."""
        self.train("--stop-after", 27, code=STOPPED)
        self.zero("runs/test/checkpoints/epoch-0003.h5")
        self.train()
        self.assertIn("another state at the step of the checkpoint above", self.audit("--all", code=DIVERGED))
        bodies = self.bodies()
        i = next(i for i, body in enumerate(bodies) if '"event":"resume"' in body)
        state = json.loads(bodies[i] + "}")["state"]
        hidden = re.sub('"state":"[^"]*"', f'"state":"{state}"', bodies[i - 1])
        self.write("runs/test/ledger.jsonl", seal(bodies[:i] + [hidden] + bodies[i:]))
        self.assertIn("another state at the step of the checkpoint above", self.audit("--all", code=DIVERGED))
        self.train("--fresh")
        bodies = self.bodies()
        for lines, why in ((bodies + bodies[-1:], "an end before other lines"), (bodies[:5] + bodies[:1] + bodies[5:], "a second start"),
                           (bodies[:6] + bodies[1:], "a step before that of the line above"), (bodies[:5] + bodies[4:], "a step that was already there")):
            self.write("runs/test/ledger.jsonl", seal(lines))
            self.assertIn(why, self.audit("--all", code=DIVERGED))

    def test_a_state_of_zero(self):
        """A sharded state is whole in the repetition."""
        words = ("--nproc", 2, "dist.zero_stage=1")
        self.train(*words, "--stop-after", 13, code=STOPPED)
        self.zero("runs/test/checkpoints/step-00000013.h5")
        self.train(*words)
        self.assertRegex(self.audit("--all", code=DIVERGED), "step-00000013.h5: not what the run gives|step 13 differs: state is")

    def test_two_configs(self):
        """A ledger that continues that of another config."""
        self.train("seed=9", "--stop-after", 27, code=STOPPED)
        shutil.copytree(self.path("runs/test/checkpoints"), self.path("first"))
        first = self.bodies()[:-1]
        shutil.rmtree(self.path("runs/test"))
        self.train(f"checkpoint.resume={self.path('first/epoch-0003.h5')}")
        second = self.bodies()
        second[0] = second[0].replace('"event":"start"', '"event":"resume"')
        for name in os.listdir(self.path("first")):
            shutil.copy(self.path("first", name), self.path("runs/test/checkpoints", name))
        self.write("runs/test/ledger.jsonl", seal(first + second))
        self.assertIn("seed: 9 -> 1", self.audit("--all", code=DIVERGED))

    # ---- statements ----

    def test_a_statement(self):
        """It is what in-toto's specification says, about the bytes of the files; any change refutes it."""
        self.train("checkpoint.best=val_loss")
        out, _ = self.run_program("certify", "runs/test")
        statement = json.loads(out)
        self.assertEqual(statement["_type"], "https://in-toto.io/Statement/v1")
        names = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
        self.assertEqual(sorted(names), ["checkpoints/best.h5", "checkpoints/epoch-0008.h5", "config.yaml", "ledger.jsonl"])
        for name, digest in names.items():
            with open(self.path("runs/test", name), "rb") as f:
                self.assertEqual(digest, hashlib.sha256(f.read()).hexdigest())
        predicate = statement["predicate"]
        self.assertEqual((predicate["state_sha256"], predicate["step"], predicate["ledger"]["lines"]), (self.sha(), 72, len(self.bodies())))
        self.run_program("certify", "runs/test", "--out", "s.json")
        self.assertEqual(self.read("s.json"), out)
        self.run_program("certify", "runs/test", "--out", "s.json")
        for name in ("wine.h5", "runs/test/ledger.jsonl"):
            self.assertIn("it exists and is no statement", self.run_program("certify", "runs/test", "--out", name, code=USAGE)[1])
        self.assertIn("s.json: the statement is about the files of this folder", self.audit("--statement", "s.json"))
        for text in (json.dumps(statement), json.dumps(statement, indent=8, sort_keys=True), out.replace("/", r"\/")):
            self.write("s.json", text)
            self.assertIn("s.json: the statement is about the files of this folder", self.audit("--statement", "s.json"))
        for old, new, what in (('"step": 72', '"step": 71', "predicate.step is 71, and here it is 72"),
                               (names["config.yaml"], "0" * 64, r"subject\[2\].digest.sha256 is \"0{64}\", and here it is \"" + names["config.yaml"]),
                               (predicate["dataset_fingerprint"], "1" * 64, "predicate.dataset_fingerprint is \"1{64}\""),
                               ('"world_size": 1, ', "", "predicate.world_size is missing, and here it is 1"),
                               ('"world_size": 1, ', '"world_size": 1, "more": [2], ', r"predicate.more is \[2\], and here it is missing"),
                               ('"subject": [\n', '"subject": [\n{"name": "a"},', r"subject\[0\].(name|digest) is ")):
            self.write("other.json", out.replace(old, new))
            self.assertRegex(self.audit("--statement", "other.json", code=DIVERGED), rf"other.json: the statement is not about this folder: {what}")
        self.train("--run-dir", "other", "seed=2")
        self.run_program("audit", "other", "--statement", "s.json", code=DIVERGED, err="the statement is not about this folder")

    def test_what_is_no_statement(self):
        self.train("--stop-after", 20, code=STOPPED)
        self.assertIn("the run has not ended", self.run_program("certify", "runs/test", code=DATA)[1])
        self.assertIn("not a statement of ddptrain certify", self.audit("--statement", "c.yaml", code=DATA))
        for text in ('{"predicateType": "urn:ddptrain:training:1"', '{"predicateType": "urn:ddptrain:training:1", "predicateType": "b"}', "[]", '"a"'):
            self.write("s.json", text)
            self.assertIn("not a statement of ddptrain certify", self.audit("--statement", "s.json", code=DATA))
        self.assertIn("missing.json", self.audit("--statement", "missing.json", code=program.IO))

    # ---- what cannot be audited ----

    def test_mistakes(self):
        self.run_program("audit", "c.yaml", code=USAGE, err="c.yaml: not the folder of a run")
        self.train()
        self.assertIn("--nproc 2: this run had 1 process", self.audit("--nproc", 2, code=USAGE))
        for word in (0, -1, "x"):
            self.assertIn(f"--nproc: expected a number of at least 1, got '{word}'", self.audit("--nproc", word, code=USAGE))
        for steps in ("3,x", "0", ",".join(map(str, range(1, 70)))):
            self.assertIn("--save-at: expected at most 64 numbers of steps", self.train("--save-at", steps, code=USAGE)[1])
        for words in (("--all", "--intervals", 3), ("--fraction", 0.5, "--intervals", 3), ("--all", "--fraction", 1)):
            self.assertIn("exclude each other", self.audit(*words, code=USAGE))
        for fraction in (2, 0, 1.001):
            self.assertIn("--fraction: expected a number above 0 and at most 1", self.audit("--fraction", fraction, code=USAGE))
        self.assertIn("--intervals: expected at least 1", self.audit("--intervals", 0, code=USAGE))
        self.assertIn("unexpected argument 'train.epochs=3'", self.audit("train.epochs=3", code=USAGE))
        bodies = self.bodies()
        os.rename(self.path("runs/test/config.yaml"), self.path("config.yaml"))
        self.assertIn("config.yaml: there is no such file", self.audit(code=DATA))
        os.rename(self.path("config.yaml"), self.path("runs/test/config.yaml"))
        self.write("runs/test/ledger.jsonl", seal([bodies[0].replace('"version":1', '"version":2')] + bodies[1:]))
        self.assertIn("written by a newer version", self.audit(code=DATA))
        self.forge([re.sub('"processor":"[^"]*"', '"processor":"Another"', bodies[0])] + bodies[1:])
        self.assertIn("without determinism.portable", self.audit(code=USAGE))
        self.write("runs/test/ledger.jsonl", seal(bodies[1:]))
        self.assertIn("ledger.jsonl:1: the first line is not that of a start", self.audit(code=DIVERGED))
        self.write("runs/test/ledger.jsonl", "")
        self.assertIn("no complete line", self.audit(code=DATA))
        os.remove(self.path("runs/test/ledger.jsonl"))
        os.mkdir(self.path("runs/test/ledger.jsonl"))
        self.assertIn("ledger.jsonl: not a file of at most 4 GiB", self.audit(code=DATA))
        os.rmdir(self.path("runs/test/ledger.jsonl"))
        self.assertIn("it is not written with train.ledger: off", self.audit(code=DATA))

    def test_a_run_that_is_running(self):
        self.write("long.yaml", program.LONG)
        p = self.start("long.yaml", "train.epochs=10000000", "--run-dir", "run", "--quiet")
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        self.wait_for(lambda: os.path.exists(self.path("run/metrics.jsonl")), what="the run")
        for words in (("audit", "run"), ("bisect", "run", "long.yaml"), ("bisect", "long.yaml", "run")):
            self.assertIn("run: this run is still running: wait for its end", self.run_program(*words, code=USAGE)[1])

    def test_a_folder_of_a_killed_audit(self):
        """It is removed by the next one, and that of an audit that is running is not; what is no such folder stays."""
        self.train()
        for name in ("ddptrain-audit-abcdef", "ddptrain-notes"):
            os.makedirs(self.path(name, "interval-1"))
        self.write("ddptrain-notes/.lock", "mine\n")
        others = {"ddptrain-audit-abcdef", "ddptrain-notes"}

        def folders():
            return {name for name in os.listdir(self.folder) if name.startswith("ddptrain-")} - others
        p = self.start("audit", "runs/test", "--all", env={"DDPTRAIN_FAULT_LATE": "0:600"})  # it is killed while it runs
        self.wait_for(folders, what="the folder")
        first = folders()
        self.wait_for(lambda: all(os.path.exists(self.path(name, "output.txt")) for name in first), what="a run")
        self.run_program("audit", "runs/test")
        self.assertIsNone(p.poll())
        self.assertEqual(folders(), first)
        p.kill()
        p.communicate()
        self.assert_no_leftovers()
        self.assertEqual(folders(), first)
        self.run_program("audit", "runs/test")
        self.assertEqual(folders(), set())
        self.assertEqual(set(os.listdir(self.folder)) & others, others)
        for name in others:
            shutil.rmtree(self.path(name))

    def test_a_ledger_that_is_deleted_during_the_run(self):
        """It is written again with all its lines; the last ones as ever."""
        self.write("long.yaml", program.LONG)
        p = self.start("long.yaml", "train.epochs=10000000", "--run-dir", "run", "--no-progress", "train.ledger={every: 10}")
        self.addCleanup(p.kill)
        ledger = self.path("run/ledger.jsonl")
        self.wait_for(lambda: os.path.exists(ledger) and os.path.getsize(ledger) > 3000, what="the ledger")
        os.remove(ledger)
        p.send_signal(program.signal.SIGTERM)
        out, err = p.communicate(timeout=180 * program.SLOW)
        self.assertEqual(p.returncode, STOPPED, out + err)
        self.assertIn("run/ledger.jsonl was deleted during the run; it is written again", out + err)
        lines = self.ledger("run")
        self.assertEqual((lines[0]["event"], lines[-1]["event"]), ("start", "stopped"))
        self.assertIn("all equal", self.run_program("audit", "run")[0])

    def test_no_checkpoint_yet(self):
        self.train("train.epochs=1")
        self.write("runs/test/ledger.jsonl", seal(self.bodies()[:2]))
        shutil.rmtree(self.path("runs/test/checkpoints"))
        os.remove(self.path("runs/test/metrics.jsonl"))
        self.assertIn("no checkpoint yet", self.audit(code=DATA))

    def test_a_damaged_ledger_is_begun_anew(self):
        self.train("--stop-after", 20, code=STOPPED)
        self.write("runs/test/ledger.jsonl", "something else\n" * 200)
        self.run_program("c.yaml", "--no-progress", err="ledger.jsonl: its last line has no chain; the ledger begins anew")
        self.assertEqual(self.ledger()[0]["step"], 20)
