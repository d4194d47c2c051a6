"""train.tensorboard: an event file with the numbers of metrics.jsonl, read here record by record with its checksums.
ctest-labels: unit"""
import csv, glob, math, os, struct, time

import program
from program import WINE


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(message):
    """(number, value) of a protocol buffer's fields; a value is an int or bytes."""
    found, at = [], 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        size = {0: None, 1: 8, 5: 4}.get(key & 7, -1)
        if size is None:
            found.append((key >> 3, varint()))
            continue
        if size == -1:
            assert key & 7 == 2, key
            size = varint()
        found.append((key >> 3, message[at:at + size]))
        assert at + size <= len(message)
        at += size
    return found


class Tensorboard(program.Case):
    def setUp(self):
        super().setUp()
        self.begun = time.time()

    def records(self, path):
        with open(path, "rb") as f:
            data = f.read()
        at, found = 0, []
        while at < len(data):
            length, = struct.unpack_from("<Q", data, at)
            record = data[at + 12:at + 12 + length]
            self.assertEqual(struct.unpack_from("<I", data, at + 8)[0], masked(data[at:at + 8]))
            self.assertEqual(struct.unpack_from("<I", data, at + 12 + length)[0], masked(record))
            found.append(fields(record))
            at += 16 + length
        self.assertEqual(at, len(data))
        return found

    def scalars(self, run="runs/test"):
        """{tag: {step: value}}, as TensorBoard reads the files: in the order of their names, later starts replace what they do again."""
        tags = {}
        for path in sorted(glob.glob(self.path(run, "events.out.tfevents.*")), key=os.path.getmtime):
            records = self.records(path)
            self.assertLessEqual(self.begun, struct.unpack("<d", dict(records[0])[1])[0])
            self.assertLessEqual(struct.unpack("<d", dict(records[-1])[1])[0], time.time())
            self.assertEqual([r for r in records[0] if r[0] == 3], [(3, b"brain.Event:2")])
            for record in records:
                values = dict(record)
                if 7 in values:
                    self.assertEqual(fields(values[7]), [(1, 1)])
                    tags = {tag: {s: v for s, v in points.items() if s < values[2]} for tag, points in tags.items()}
                for number, value in fields(values.get(5, b"")):
                    point = dict(fields(value))
                    self.assertNotIn(values[2], tags.get(point[1].decode(), {}))
                    tags.setdefault(point[1].decode(), {})[values[2]] = struct.unpack("<f", point[2])[0]
        return tags

    def check(self, steps, run="runs/test"):
        tags = self.scalars(run)
        per_epoch = steps // len(self.events("epoch", run))
        for event in ("step", "epoch"):
            for number, numbers in enumerate(self.events(event, run), 1):
                step = number if event == "step" else number * per_epoch
                for name, value in numbers.items():
                    if not isinstance(value, float) and name not in ("lr", "val_accuracy", "train_accuracy"):
                        continue
                    self.assertEqual(tags[f"{event}/{name}"][step], struct.unpack("<f", struct.pack("<f", value))[0], (event, name, step))
        self.assertEqual(sorted(tags["step/loss"]), list(range(1, steps + 1)))
        self.assertEqual({tag.split("/")[0] for tag in tags}, {"step", "epoch"})
        self.assertTrue(all(math.isfinite(v) for v in tags["step/loss"].values()))
        return tags

    def test_has_the_numbers_of_the_metrics(self):
        self.write("test.yaml", WINE)
        train = "tensorboard: true, metrics: [f1, precision, recall, auc, perplexity, confusion_matrix]"
        self.run_program("test.yaml", "--nproc", 1, f"train={{epochs: 4, {train}}}")
        tags = self.check(20)
        self.assertEqual({"step/loss", "step/lr", "step/grad_norm", "epoch/train_loss", "epoch/val_loss", "epoch/val_accuracy", "epoch/val_f1"} - set(tags), set())
        self.run_program("test.yaml", f"train={{epochs: 60, {train}}}")
        self.assertEqual(len(glob.glob(self.path("runs/test/events.out.tfevents.*"))), 2)
        self.check(300)

    def test_epochs_without_steps(self):
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train={epochs: 2, tensorboard: true, log_every: 0}")
        self.assertEqual(sorted(self.scalars()["epoch/val_loss"]), [5, 10])

    def test_every_metric_of_several_losses_has_its_name(self):
        """Also many of them, with long names."""
        losses = [f"{letter * 70}_loss" for letter in "abcdef"]
        self.write("test.yaml", WINE.replace("loss: cross_entropy", "losses: [%s]" % ", ".join(f"{{type: cross_entropy, name: {name}}}" for name in losses)))
        self.run_program("test.yaml", "train={epochs: 2, tensorboard: true, metrics: [f1, precision, recall, balanced_accuracy]}")
        tags = self.check(10)
        for name in losses:
            for metric in ("loss", "accuracy", "f1", "precision", "recall", "balanced_accuracy"):
                self.assertIn(f"val_{name}_{metric}", self.events("epoch")[-1])
                self.assertEqual(len(tags[f"epoch/val_{name}_{metric}"]), 2)

    def test_a_resume_replaces_what_it_does_again(self):
        """A killed run: its newest checkpoint is older than its newest events."""
        self.write("test.yaml", WINE)
        run = ["test.yaml", "train={epochs: 6, tensorboard: true}", "checkpoint.save_every=1"]
        self.run_program(*run)
        for name in self.checkpoints()[-2:]:
            os.remove(name)
        self.run_program(*run)
        self.check(30)

    def test_a_rollback_replaces_what_it_does_again(self):
        rows = [f"{row},{row % 3}" for row in range(24)]
        rows[5] = "3e38,1"  # a batch of an epoch has no finite loss
        self.write("data.csv", "a,y\n" + "\n".join(rows) + "\n")
        self.write("test.yaml", """
dataset: {path: data.csv, targets: y, validation: good.csv}
sampler: {batch_size: 4, shuffle: true}
model: {layers: [{linear: {out: 1}}]}
loss: mse
optimizer: {type: adam, lr: 0.01}
train: {epochs: 4, tensorboard: true, on_nonfinite: rollback}
checkpoint: {save_every: {steps: 3}, keep: 0}
""")
        self.write("good.csv", "a,y\n1,1\n2,0\n")
        self.run_program("test.yaml")
        self.assertGreaterEqual(len(self.events("rollback")), 1)
        self.check(20)

    def test_a_disk_that_fails_once(self):
        """Whichever call on the file fails, all numbers are in it at the end, or the run says why it cannot begin."""
        self.write("test.yaml", WINE)
        started = 0
        for kind in ("enospc", "eio"):
            for n in range(1, 12):
                _, err = self.run_program("test.yaml", "--fresh", "train={epochs: 4, tensorboard: true}", "checkpoint.save_every=1", code=None,
                                          env={"DDPTRAIN_FAULT": f"{n}:{kind}", "DDPTRAIN_FAULT_FILTER": "events.out.tfevents"})
                if self.code:
                    self.assertEqual(self.code, program.IO, err)
                    self.assertIn("events.out.tfevents", err)
                elif self.events("start"):
                    started += 1
                    self.check(20)
        self.assertGreater(started, 10)

    def test_a_disk_that_fails_ever(self):
        self.write("test.yaml", WINE)
        _, err = self.run_program("test.yaml", "train={epochs: 4, tensorboard: true}", "checkpoint.save_every=1", code=program.IO,
                                  env={"DDPTRAIN_FAULT": "3:enospc:ever", "DDPTRAIN_FAULT_FILTER": "events.out.tfevents"})
        self.assertRegex(err, "a checkpoint could not be saved; the run continues: .*events.out.tfevents")

    def test_without_the_key_there_is_none(self):
        self.write("test.yaml", WINE)
        self.run_program("test.yaml", "train.epochs=1")
        self.assertEqual(glob.glob(self.path("runs/test/events*")), [])

    # ---- HParams: one file for each run of a sweep, as TensorBoard's plugin reads it (plugin_data.proto) ----

    def plugin(self, summary):
        """(tag, the fields of HParamsPluginData) of a summary with one value."""
        [(_, value)] = fields(summary)
        value = dict(fields(value))
        plugin = dict(fields(dict(fields(value[9]))[1]))
        self.assertEqual(plugin[1], b"hparams")
        self.assertEqual(dict(fields(value[8]))[1], 1)  # a tensor of floats
        return value[1].decode(), fields(plugin[2])

    def test_the_runs_of_a_sweep(self):
        self.write("base.yaml", WINE)
        self.write("sweep.yaml", "config: base.yaml\nmethod: grid\nrepeat: {seeds: 2}\nparameters:\n  optimizer.lr: {values: [0.01, 1.0e+30]}\n"
                                 "  optimizer.type: {values: [adam, sgd]}\n  train.epochs: {distribution: int_uniform, min: 2, max: 3}\n")
        self.run_program("sweep", "sweep.yaml", "--tensorboard")
        with open(self.path("sweeps/sweep/trials.csv"), newline="") as f:
            rows = list(csv.DictReader(f))
        self.assertEqual({r["state"] for r in rows}, {"complete", "failed"})
        for row in rows:
            if not row["seed"] or (row["state"] == "failed" and not row["message"]):
                continue
            [path] = glob.glob(self.path(f"sweeps/sweep/tensorboard/{int(row['trial']):04d}-seed-{row['seed']}/events.out.tfevents.*"))
            summaries = [dict(r)[5] for r in self.records(path) if 5 in dict(r)]
            tag, [(kind, start)] = self.plugin(summaries[0])
            self.assertEqual((tag, kind), ("_hparams_/session_start_info", 3))
            hparams = {}
            for _, entry in fields(start):
                entry = dict(fields(entry))
                [(number, value)] = fields(entry[2])
                hparams[entry[1].decode()] = struct.unpack("<d", value)[0] if number == 2 else value.decode()
            self.assertEqual(hparams, {"optimizer.lr": float(row["optimizer.lr"]), "optimizer.type": row["optimizer.type"],
                                       "train.epochs": float(row["train.epochs"])})
            tag, [(kind, end)] = self.plugin(summaries[1])
            self.assertEqual((tag, kind, fields(end)), ("_hparams_/session_end_info", 4, [(1, 2 if row["state"] == "failed" else 1)]))
            values = [dict(fields(dict(fields(s))[1])) for s in summaries[2:]]
            self.assertEqual([v[1] for v in values], [b"best/val_loss"] if row["val_loss"] else [])
            if row["val_loss"]:
                self.assertAlmostEqual(struct.unpack("<f", values[0][2])[0], float(row["val_loss"]), delta=1e-6 * float(row["val_loss"]))
        before = sorted(glob.glob(self.path("sweeps/sweep/tensorboard/*/*")))
        os.unlink(before[0])
        os.rmdir(os.path.dirname(before[0]))
        self.run_program("sweep", "sweep.yaml", "--tensorboard")  # what is missing is written again, what is there stays
        after = sorted(glob.glob(self.path("sweeps/sweep/tensorboard/*/*")))
        self.assertEqual((len(after), after[1:]), (len(before), before[1:]))

    def test_a_sweep_that_is_killed_or_fails_while_it_writes_them(self):
        """The next start writes what is missing."""
        self.write("base.yaml", WINE)
        self.write("sweep.yaml", "config: base.yaml\nmethod: grid\nparameters: {optimizer.lr: {values: [0.01, 0.02, 0.03]}}\n"
                                 "overrides: [train.epochs=2]\ntensorboard: true\nkeep: none\n")
        self.run_program("sweep", "sweep.yaml")
        size = [os.path.getsize(path) for path in glob.glob(self.path("sweeps/sweep/tensorboard/*/*"))]
        folders = sorted(glob.glob(self.path("sweeps/sweep/tensorboard/*")))
        for folder, leaves_file in zip(folders, (False, True)):  # killed before, or after, the file was made
            [path] = os.listdir(folder)
            os.unlink(os.path.join(folder, path))
            if leaves_file:
                self.write(os.path.join(folder, "events.out.tfevents.1"), "")
        failed = 0
        for n in range(1, 8):
            words = ["sweep", "sweep.yaml", "--run-dir", f"sweeps/{n}"]
            self.run_program(*words, code=None, env={"DDPTRAIN_FAULT": f"{n}:enospc", "DDPTRAIN_FAULT_FILTER": "events.out.tfevents"})
            failed += self.code == program.IO
            self.run_program(*words)
        self.run_program("sweep", "sweep.yaml")
        self.assertGreater(failed, 2)
        for run in ("sweep", *range(1, 8)):
            files = glob.glob(self.path(f"sweeps/{run}/tensorboard/*/*"))
            self.assertEqual([os.path.getsize(path) for path in files], size, run)

    def test_the_option_of_a_run(self):
        self.write("base.yaml", WINE)
        self.run_program("base.yaml", "--tensorboard", "--run-dir", "runs/a")
        self.assertTrue(glob.glob(self.path("runs/a/events.out.tfevents.*")))
        self.assertIn("tensorboard: true", self.read("runs/a/config.yaml"))
