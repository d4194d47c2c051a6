"""The formats of export, read by Python's standard library. ctest-labels: unit"""
import collections, csv, glob, io, json, os, re, pickle, shutil, stat, struct, zipfile

import numpy as np

import program
from program import DATA, WINE
from test_weights import read_safetensors


class StateDict(pickle.Unpickler):
    """Allows what torch.load(weights_only=True) allows, and only what a state_dict of float32 needs."""
    def __init__(self, archive, root):
        self.archive, self.root, self.storages = archive, root, []
        super().__init__(io.BytesIO(archive.read(root + "data.pkl")))

    def find_class(self, module, name):
        known = {("collections", "OrderedDict"): collections.OrderedDict, ("torch", "FloatStorage"): "float32",
                 ("torch._utils", "_rebuild_tensor_v2"): self.tensor}
        return known[module, name]

    def persistent_load(self, id_):
        kind, dtype, key, device, elements = id_
        assert (kind, dtype, device) == ("storage", "float32", "cpu")
        values = np.frombuffer(self.archive.read(f"{self.root}data/{key}"), "<f4")
        assert len(values) == elements
        return values

    @staticmethod
    def tensor(values, offset, shape, strides, requires_grad, hooks):
        array = np.zeros(shape, "<f4")
        assert offset == 0 and not requires_grad and hooks == {} and strides == tuple(s // 4 for s in np.empty(shape, "<f4").strides)
        return values.reshape(array.shape)


def read_pt(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        root = archive.namelist()[0].split("/")[0] + "/"
        for member in archive.infolist():
            with open(path, "rb") as f:
                f.seek(member.header_offset)
                name, extra = struct.unpack("<26xHH", f.read(30))
            assert (member.header_offset + 30 + name + extra) % 64 == 0 and member.compress_type == zipfile.ZIP_STORED
        assert archive.read(root + "byteorder") == b"little" and archive.read(root + "version") == b"3\n"
        pickled = archive.read(root + "data.pkl")
        assert pickled[:2] == b"\x80\2"
        return StateDict(archive, root).load()


class Export(program.Case):
    given_files = {"test.yaml": program.WINE}

    def test_only_files_are_replaced(self):
        self.run_program("test.yaml", "train.epochs=1")
        os.mkfifo(self.path("w.pt"))
        for words in (["export", "runs/test", "--out", "w.pt"], ["export", "test.yaml", "--format", "pytorch", "--out", "w.pt"], ["export", "runs/test", "--format", "pt", "--out", "/dev/null"]):
            self.assertIn("it exists and is not a regular file", self.run_program(*words, code=program.USAGE)[1])
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("w.pt")).st_mode))

    def epochs_and_steps(self, folder):
        return self.events("epoch", folder), self.events("step", folder)

    def test_metrics_as_csv(self):
        """A row for each step and epoch; what a continued run computes again counts once."""
        self.run_program("test.yaml", "--run-dir", "runs/whole")
        self.run_program("test.yaml", "--stop-after", "12", code=program.STOPPED)
        with open(self.path("runs/test/metrics.jsonl"), "a") as f:  # steps after the checkpoint, of a process that was killed
            f.write('{"event":"step","epoch":2,"step":13,"loss":77}\n{"event":"step","epoch":2,"step":14,"loss":77}\n')
        self.run_program("test.yaml")
        for run in ("whole", "test"):
            self.run_program("export", f"runs/{run}", "--format", "metrics-csv", "--out", f"{run}.csv")
        tables = []
        for run in ("whole", "test"):
            rows = list(csv.DictReader(self.read(f"{run}.csv").splitlines()))
            tables.append([{k: v for k, v in row.items() if k != "samples_per_second"} for row in rows])
        self.assertEqual(tables[0], tables[1])
        epochs, steps = self.epochs_and_steps("runs/whole")
        self.assertEqual([(float(r["loss"]), int(r["step"]), int(r["epoch"])) for r in tables[0] if r["event"] == "step"], [(e["loss"], e["step"], e["epoch"]) for e in steps])
        self.assertEqual([(float(r["val_loss"]), r["loss"], int(r["step"])) for r in tables[0] if r["event"] == "epoch"],
                         [(e["val_loss"], "", [s["step"] for s in steps if s["epoch"] == e["epoch"]][-1]) for e in epochs])

    def test_mlflow(self):
        self.run_program("test.yaml", "name=it's x")
        for _ in range(2):  # the same run replaces itself
            self.run_program("export", "runs/it's x", "--format", "mlflow", "--out", "mlruns")
        (experiment,) = os.listdir(self.path("mlruns"))
        (run,) = [name for name in os.listdir(self.path("mlruns", experiment)) if name != "meta.yaml"]
        folder = f"mlruns/{experiment}/{run}"
        meta = self.read(f"{folder}/meta.yaml")
        self.assertRegex(run, "^[0-9a-f]{32}$")
        self.assertIn(f"run_id: {run}\nrun_name: \"it's x\"\n", meta)
        self.assertIn(f"experiment_id: '{experiment}'\n", meta)
        self.assertIn("status: 3\n", meta)
        self.assertIn(f"experiment_id: '{experiment}'\n", self.read(f"mlruns/{experiment}/meta.yaml"))
        self.assertIn("name: \"it's x\"\n", self.read(f"mlruns/{experiment}/meta.yaml"))
        start, end = (int(re.search(rf"^{name}_time: (\d+)$", meta, re.M)[1]) for name in ("start", "end"))
        epochs, steps = self.epochs_and_steps("runs/it's x")
        for name, events in (("loss", steps), ("lr", steps), ("val_loss", epochs)):
            lines = [line.split() for line in self.read(f"{folder}/metrics/{name}").splitlines()]
            self.assertEqual([float(value) for _, value, _ in lines], [e[name] for e in events])
            last = {s["epoch"]: s["step"] for s in steps}
            self.assertEqual([int(step) for _, _, step in lines], [e.get("step", last[e["epoch"]]) for e in events])
            self.assertTrue(all(start <= int(time) <= end + 1 for time, _, _ in lines))
        self.assertEqual(self.read(f"{folder}/params/optimizer.lr"), "0.001")
        self.assertFalse(os.path.exists(self.path(folder, "params", "train.steps")))  # null
        self.assertEqual(self.read(f"{folder}/tags/mlflow.runName"), "it's x")
        self.write("sweep.yaml", "config: test.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.01}, {optimizer.lr: 0.02}]\n")
        self.run_program("sweep", "sweep.yaml")
        self.run_program("export", "sweeps/sweep", "--format", "mlflow", "--out", "mlruns")
        self.assertEqual(sorted(self.read(path[len(self.folder) + 1:]) for path in glob.glob(self.path("mlruns/*/*/params/optimizer.lr"))), ["0.001", "0.01", "0.02"])

    def test_mlflow_of_other_runs(self):
        """Epochs without steps; names in other letters; what an earlier run in the folder had; a trial without a step; several exports at once."""
        self.run_program("test.yaml", "train.log_every=0", "optimizer={type: adam, eps: 1.0e-7}")
        self.run_program("export", "runs/test", "--format", "mlflow", "--out", "mlruns")
        (folder,) = (os.path.dirname(path) for path in glob.glob(self.path("mlruns/*/*/metrics")))
        epochs, _ = self.epochs_and_steps("runs/test")
        self.assertEqual([int(line.split()[2]) for line in self.read(f"{folder}/metrics/val_loss").splitlines()], [e["step"] for e in epochs])
        self.assertEqual(len({e["step"] for e in epochs}), len(epochs))
        self.assertTrue(os.path.exists(f"{folder}/params/optimizer.eps"))
        self.run_program("test.yaml", "--fresh", "optimizer={type: sgd, lr: 0.01}")
        exports = [self.start("export", "runs/test", "--format", "mlflow", "--out", "mlruns") for _ in range(4)]
        for one in exports:
            self.assertEqual(one.wait(), program.OK)
        self.assertFalse(os.path.exists(f"{folder}/params/optimizer.eps"))
        with open(self.path("runs/test/metrics.jsonl"), "a") as f:
            f.write('{"event":"epoch","epoch":9,"step":90,"val_\u00e9":1,"val_\u00fc":2}\n')
        self.run_program("export", "runs/test", "--format", "mlflow", "--out", "mlruns")
        self.assertEqual([self.read(f"{folder}/metrics/val_{name}").split()[1] for name in ("__", "___2")], ["1", "2"])
        self.write("sweep.yaml", "config: test.yaml\nmethod: list\nkeep: all\ntrials: [{optimizer.lr: 0.01}, {optimizer.lr: 0.02}]\n")
        self.run_program("sweep", "sweep.yaml")
        self.write("sweeps/sweep/runs/0000/metrics.jsonl", '{"event":"start","name":"test"}\n')
        _, err = self.run_program("export", "sweeps/sweep", "--format", "mlflow", "--out", "other")
        self.assertIn("left out: sweeps/sweep/runs/0000/metrics.jsonl: the run has no step or epoch yet", err)
        self.assertEqual([self.read(path) for path in glob.glob(self.path("other/*/*/params/optimizer.lr"))], ["0.02"])

    def test_metrics_that_cannot_be_written(self):
        self.run_program("test.yaml", "train.epochs=1")
        self.write("file", "")
        os.mkdir(self.path("empty"))
        self.write("sweep.yaml", "config: test.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.01}]\n")
        self.run_program("sweep", "sweep.yaml", "keep=none")
        for words, code, message in ((("runs/test", "--format", "mlflow"), program.USAGE, "export needs --out FOLDER"),
                                     (("runs/test", "--format", "metrics-csv"), program.USAGE, "export needs --out FILE"),
                                     (("runs/test", "--format", "mlflow", "--out", "m", "--checkpoint", "best"), program.USAGE, "it writes what a run has recorded"),
                                     (("runs/test", "--format", "mlflow", "--out", "file"), program.IO, "file"),
                                     (("empty", "--format", "mlflow", "--out", "m"), program.DATA, "empty"),
                                     (("sweeps/sweep", "--format", "mlflow", "--out", "m"), program.DATA, "sweeps/sweep: the sweep has kept no run folder (keep)"),
                                     (("sweeps/sweep", "--format", "metrics-csv", "--out", "m"), program.USAGE, "sweeps/sweep: a sweep has trials.csv; metrics-csv is of one run"),
                                     (("runs/test", "--format", "mlfow", "--out", "m"), program.USAGE, "--format: expected one of safetensors, pt, onnx, c, pytorch, mlflow, metrics-csv, got 'mlfow'")):
            with self.subTest(words=words):
                self.assertIn(message, self.run_program("export", *words, code=code)[1])
        with open(self.path("runs/test/metrics.jsonl"), "w") as f:
            f.write('{"event":"start","name":"test"}\n')
        self.assertIn("metrics.jsonl: the run has no step or epoch yet", self.run_program("export", "runs/test", "--format", "metrics-csv", "--out", "m", code=program.DATA)[1])

    def test_pt_is_the_state_dict(self):
        """Any bits are kept: NaN, denormals, -0; the names are those of safetensors."""
        def change(f):
            f["model/0.bias"][:4] = np.array([np.nan, 1e-42, -0.0, -np.inf], "<f4")
        self.run_program("test.yaml", "train.epochs=1")
        program.change_checkpoint(self.checkpoints()[-1], change)
        self.run_program("export", "runs/test", "--out", "w.pt", err="w.pt: 4 tensors")
        self.run_program("export", "runs/test", "--out", "w.safetensors")
        self.run_program("export", "runs/test", "--out", "other.name", "--format", "pt")
        tensors, expected = read_pt(self.path("w.pt")), read_safetensors(self.path("w.safetensors"))
        self.assertIs(type(tensors), collections.OrderedDict)
        self.assertEqual(list(tensors), list(expected))
        for name, values in expected.items():
            self.assertEqual(tensors[name].tobytes(), values.tobytes())
        with open(self.path("w.pt"), "rb") as one, open(self.path("other.name"), "rb") as other:
            self.assertEqual(one.read(), other.read())


class Storage:
    """What torch.save pickles as a persistent id."""
    def __init__(self, name, key, elements):
        self.id = ("storage", Global("torch", name), key, "cpu", elements)


class Global:
    def __init__(self, module, name):
        self.module, self.name = module, name

    def __reduce__(self):
        return f"{self.module} {self.name}"


class Pickler(pickle._Pickler):
    """Writes globals of modules that are not installed."""
    def persistent_id(self, value):
        return value.id if isinstance(value, Storage) else None

    def save_global(self, obj, name=None):
        if isinstance(obj, Global):
            self.write(f"c{obj.module}\n{obj.name}\n".encode())
        else:
            super().save_global(obj, name)

    def save_reduce(self, func, args, *more, obj=None, **options):
        self.save(func)
        self.save(args)
        self.write(pickle.REDUCE)


class WidePickler(Pickler):
    """Writes every integer with eight bytes."""
    def save_int(self, value):
        self.write(pickle.LONG1 + b"\x08" + struct.pack("<q", value))
    dispatch = {**Pickler.dispatch, int: save_int}


class Call:
    def __init__(self, function, *args):
        self.call = (Global(*function.rsplit(" ", 1)), args)

    def __reduce__(self):
        return self.call


STORAGES = {"<f4": "FloatStorage", "<f8": "DoubleStorage", "<f2": "HalfStorage", "<i8": "LongStorage", "|i1": "CharStorage"}


def tensor(key, array, offset=0, strides=None, elements=None, storage=None, shape=None):
    strides = tuple(s // array.itemsize for s in array.strides) if strides is None else strides
    return Call("torch._utils _rebuild_tensor_v2", Storage(storage or STORAGES[array.dtype.str], key, elements or array.size), offset, shape or array.shape,
                strides, False, {})


def write_pt(path, root, members, protocol=2, compression=zipfile.ZIP_STORED, pickler=Pickler, **more):
    pickled = io.BytesIO()
    pickler(pickled, protocol).dump(root)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x/data.pkl", pickled.getvalue())
        for name, content in {**more, **{f"data/{key}": array.tobytes() for key, array in members.items()}}.items():
            archive.writestr("x/" + name, content)


class InitFrom(program.Case):
    """model.init_from reads the state_dicts of torch.save without executing their pickles."""
    def setUp(self):
        super().setUp()
        self.write("test.yaml", program.WINE)
        r = np.random.default_rng(0)
        self.shapes = {"0.weight": (64, 13), "0.bias": (64,), "2.weight": (3, 64), "2.bias": (3,)}
        self.values = {n: r.normal(size=s).astype("<f4") for n, s in self.shapes.items()}

    def begin(self, file="w.pt", code=0):
        """The weights a run begins with, seen after one step with learning rate 0; or the message."""
        import h5py
        _, err = self.run_program("test.yaml", f"model.init_from={file}", "optimizer.lr=0", "train.epochs=1", "--fresh", "--run-dir", "runs/b", code=code)
        if code:
            return err
        with h5py.File(self.checkpoints("runs/b")[-1]) as f:
            return {name: f["model"][name][:] for name in f["model"]}

    def dictionary(self, arrays):
        return {n: tensor(str(i), a) for i, (n, a) in enumerate(arrays.items())}, {str(i): a for i, a in enumerate(arrays.values())}

    def test_there_and_back(self):
        self.run_program("test.yaml", "train.epochs=1")
        self.run_program("export", "runs/test", "--out", "w.pt")
        os.rename(self.path("w.pt"), self.path("no.extension"))
        begun = self.begin("no.extension")
        self.run_program("export", "runs/test", "--out", "w.safetensors")
        for name, values in read_safetensors(self.path("w.safetensors")).items():
            np.testing.assert_array_equal(begun[name], values)

    def test_the_run_of_a_config(self):
        self.write("a.yaml", WINE)
        self.run_program("a.yaml", "train.epochs=1", "checkpoint.best=val_loss")
        self.run_program("a.yaml", "train.epochs=1", "name=b")
        for words in ([], ["--checkpoint", "best"], ["--checkpoint", "newest"], ["--checkpoint", "initial"]):
            files = []
            for operand in ("runs/a", "a.yaml", "runs/a/config.yaml"):
                self.run_program("export", operand, *words, "--out", "w.safetensors")
                with open(self.path("w.safetensors"), "rb") as f:
                    files.append(f.read())
            self.assertEqual(len(set(files)), 1, words)
        self.run_program("a.yaml", "train.epochs=1", "seed=3", "--run-dir", "runs/other")
        files = []
        for words in (["runs/a"], ["runs/other"], ["a.yaml", "--run-dir", "runs/other"], ["runs/a", "--run-dir", "runs/other/"], ["runs/a/config.yaml", "--run-dir", "runs/other"]):
            self.run_program("export", *words, "--out", "w.safetensors")
            with open(self.path("w.safetensors"), "rb") as f:
                files.append(f.read())
        self.assertNotEqual(files[0], files[1])
        self.assertEqual(files[1:], files[1:2] * 4)
        _, err = self.run_program("export", "a.yaml", "--run-dir", "runs/none", "--out", "w.safetensors", code=DATA)
        self.assertIn("a.yaml: its run would be in runs/none, which does not exist", err)
        for operand in ("w.safetensors", "runs/none"):
            self.run_program("export", operand, "--run-dir", "runs/other", "--out", "v.safetensors", code=program.USAGE,
                             err=f"--run-dir is for a config or a run folder, and {operand} is neither")
        for words in (["--checkpoint", "initial", "--out", "v.safetensors"], ["--format", "pytorch", "--out", "v.py"]):
            self.run_program("export", "a.yaml", "--run-dir", "runs/other", *words, code=program.USAGE,
                             err="--run-dir: a PyTorch script and initial weights are of a config, without a run")
        self.run_program("inspect", "runs/a", "--run-dir", "runs/other", code=program.USAGE, err="; 'inspect' does not accept it")
        self.write("c.yaml", WINE)
        _, err = self.run_program("export", "c.yaml", "--out", "w.safetensors", code=DATA)
        self.assertIn("c.yaml: its run would be in runs/c, which does not exist; train first, or give a run folder", err)

    def test_protocols_types_and_shared_storages(self):
        for protocol in (2, 3, 4, 5):
            write_pt(self.path("w.pt"), *self.dictionary(self.values), protocol=protocol)
            np.testing.assert_array_equal(self.begin()["0.weight"], self.values["0.weight"])
        write_pt(self.path("w.pt"), *self.dictionary(self.values), pickler=WidePickler)
        np.testing.assert_array_equal(self.begin()["0.weight"], self.values["0.weight"])
        for dtype in ("<f8", "<f2"):
            arrays = {n: v.astype(dtype) for n, v in self.values.items()}
            write_pt(self.path("w.pt"), *self.dictionary(arrays))
            np.testing.assert_array_equal(self.begin()["0.weight"], arrays["0.weight"].astype("<f4"))
        flat, at, root = np.concatenate([v.ravel() for v in self.values.values()]), 0, collections.OrderedDict()
        for n, v in self.values.items():
            root["module." + n] = Call("torch._utils _rebuild_parameter", tensor("7", v, at, elements=flat.size), True, {})
            at += v.size
        write_pt(self.path("w.pt"), {**root, "module.1.num_batches_tracked": tensor("8", np.array(3, "<i8"))}, {"7": flat, "8": np.array(3, "<i8")})
        for n, v in self.values.items():
            np.testing.assert_array_equal(self.begin()[n], v)

    def test_a_state_dict_beside_other_things(self):
        """The dictionaries of training scripts: the model under a usual name, the optimizer, numbers."""
        root, members = self.dictionary(self.values)
        optimizer = {"state": {0: {"exp_avg": tensor("0", self.values["0.weight"]), "step": 3}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "foreach": None}]}
        for name in ("model_state_dict", "state_dict", "model", "net", "MODEL_STATE", "model_state"):
            write_pt(self.path("w.pt"), {"epoch": 3, "optimizer": optimizer, "args": Call("argparse Namespace"), name: root, "ema": {"0.weight": tensor("0", self.values["0.weight"])}}, members)
            for n, v in self.values.items():
                np.testing.assert_array_equal(self.begin()[n], v)
        write_pt(self.path("w.pt"), {"random": tensor("99", np.arange(9, dtype="u1"), storage="ByteStorage"), "epoch": 3, "generator": root, "optimizer": optimizer}, {**members, "99": np.arange(9, dtype="u1")})
        np.testing.assert_array_equal(self.begin()["0.weight"], self.values["0.weight"])
        write_pt(self.path("w.pt"), {"generator": root, "epoch": 3, "discriminator": root, "ema": root}, members)
        self.assertIn("w.pt: 'generator', 'discriminator' and 'ema' are dictionaries of tensors; save that of the model alone, or under the key 'model'\n", self.begin(code=DATA))
        write_pt(self.path("w.pt"), {"generator": root, "model": root, "net": root}, members)
        self.assertIn("w.pt: 'model' and 'net' are dictionaries of tensors", self.begin(code=DATA))
        write_pt(self.path("w.pt"), {"epoch": 3, "optimizer": optimizer}, members)
        self.assertIn("w.pt: tensor 'epoch': it is not a tensor; the file must be the state_dict, or contain one", self.begin(code=DATA))

    def test_snapshots_of_the_tutorials(self):
        """Files of the scripts of the DDP tutorials: their weights begin a run, and the one without a state of the optimizer continues."""
        import h5py
        vectors = program.vectors("snapshots/snapshots")
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = np.array(vectors["x"], "f4"), np.array(vectors["y"], "f4")
        for name in ("multigpu_torchrun", "mingpt_ddp"):
            shutil.copy(os.path.join(program.VECTORS, "snapshots", name + ".pt"), self.path(name + ".pt"))
        self.write("line.yaml", """name: line
dataset: {path: rows.h5}
sampler: {batch_size: 6}
model: {layers: [linear: 1]}
loss: mse
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 4}
checkpoint: {resume: multigpu_torchrun.pt, save_every: 1, keep: 0}
""")
        self.run_program("check", "line.yaml")
        self.assertIn("resuming from multigpu_torchrun.pt: epoch 1, step 4\n", "".join(self.run_program("line.yaml")))
        steps = self.events("step", "runs/line")
        self.assertEqual([s["step"] for s in steps], list(range(5, 17)))
        self.assert_close([s["loss"] for s in steps], vectors["sgd"], 1e-7)
        self.assertEqual(self.events("end", "runs/line")[-1]["step"], 16)
        self.run_program("line.yaml", "--nproc", 2, "--run-dir", "runs/two")
        self.assertEqual(self.events("step", "runs/two")[0]["step"], 3)
        self.run_program("line.yaml", "--fresh", "--run-dir", "runs/line")
        self.assertEqual(self.losses_from(5, "runs/line"), [s["loss"] for s in steps])
        for keys, message in ((["optimizer={type: sgd, lr: 0.1, momentum: 0.9}"], "multigpu_torchrun.pt: it has no state_dict of an optimizer, such as optimizer_state of the script, and sgd has a state; start from its weights with model.init_from"),
                              (["train.ema.decay=0.9"], "train.ema also has a state, which is not read from files of torch.save; start"),
                              (["model.layers=[{linear: 2}, {linear: 1}]"], "multigpu_torchrun.pt: does not match the model:\n")):
            with self.subTest(message):
                self.assertIn(message, self.run_program("line.yaml", *keys, "--run-dir", "runs/wrong", code=None)[1])
                self.assertIn(self.code, (64, 65))
        self.run_program("line.yaml", "model.init_from={file: multigpu_torchrun.pt, map: {weight: [0.weight], bias: [0.bias]}}", "--run-dir", "runs/map")
        self.assertEqual([s["loss"] for s in self.events("step", "runs/map")], [s["loss"] for s in steps])
        self.run_program("export", "runs/line", "--out", "w.pt")
        for command in ((), ("check",)):
            self.assertIn("checkpoint.resume: w.pt: it is a file of torch.save without a number EPOCHS_RUN or finished_epoch", self.run_program(*command, "line.yaml", "checkpoint.resume=w.pt", *(() if command else ("--run-dir", "runs/wrong")), code=65)[1])
        self.run_program("inspect", "mingpt_ddp.pt", out="format  torch.save\nfinished_epoch  2\n")
        self.write("gpt.yaml", self.read("line.yaml").replace("[linear: 1]", "[{linear: 3}, gelu, {linear: 1}], init_from: mingpt_ddp.pt").replace("resume: multigpu_torchrun.pt, ", ""))
        self.run_program("gpt.yaml", "name=gpt", "optimizer.lr=0")
        with h5py.File(self.checkpoints("runs/gpt")[-1]) as f:
            for name, values in vectors["weights"].items():
                np.testing.assert_array_equal(f["model"][name][()], np.array(values, "f4"))

    def test_state_of_the_optimizer_of_a_snapshot(self):
        """A run continues with the state of the script's optimizer: its losses are those of the script in PyTorch."""
        import h5py
        vectors = program.vectors("snapshots/snapshots")
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = np.array(vectors["x"], "f4"), np.array(vectors["y"], "f4")
        for name in ("mingpt_ddp", "two_orders", *vectors["states"]):
            shutil.copy(os.path.join(program.VECTORS, "snapshots", name + ".pt"), self.path(name + ".pt"))
        small = "[{linear: 3}, gelu, {linear: 1}]"
        layers = "[{linear: {out: 3, name: b}}, {batch_norm: {name: c}}, {linear: {out: 3, name: a}}, {layer_norm: {name: n}}, {linear: {out: 1, name: d}}]"

        def run(layers, file, optimizer, *arguments, **kwargs):
            self.write("c.yaml", f"""name: c
dataset: {{path: rows.h5}}
sampler: {{batch_size: 6}}
model: {{layers: {layers}}}
loss: mse
optimizer: {{{optimizer}}}
train: {{epochs: 4}}
checkpoint: {{resume: {file}.pt}}
""")
            return self.run_program(*arguments, "c.yaml", **kwargs)

        minGPT = "type: adamw, lr: 0.01, betas: [0.9, 0.95], weight_decay: 0.1"
        run(small, "mingpt_ddp", minGPT)
        self.assert_close(self.losses_from(9, "runs/c"), vectors["adamw"], 1e-7)
        for name, case in vectors["states"].items():
            optimizer = f"type: {case['type']}, " + ", ".join(f"{key}: {json.dumps(value)}" for key, value in case["keys"].items())
            with self.subTest(name):
                out, errors = run(layers, name, optimizer, "--fresh", f"model.freeze={json.dumps(case['freeze'])}")
                self.assertNotIn("warning", out + errors)
                self.assert_close(self.losses_from(5 if case["type"] == "sgd" else 9, "runs/c"), case["losses"], 5e-6)
        for stage in (1, 3):
            run(layers, "adam", "type: adam, lr: 0.01, amsgrad: true", "sampler.batch_size=3", f"dist.zero_stage={stage}", "--nproc", 2, "--run-dir", f"runs/zero{stage}")
        self.assertEqual(self.events("step", "runs/zero1")[-1]["loss"], self.events("step", "runs/zero3")[-1]["loss"])
        out, errors = run(small, "mingpt_ddp", "type: adamw, lr: 0.1, betas: [0.9, 0.99], weight_decay: 0.1", "--fresh")
        self.assertIn("warning: mingpt_ddp.pt: its optimizer has other settings, and those of the config are used: lr 0.01 (here 0.1), betas [0.9, 0.95] (here [0.9, 0.99])\n", out + errors)
        out, errors = run(layers, "adam_trained", "type: adam, lr: 0.001", "--fresh", "model.freeze=[b.*]")
        self.assertIn("warning: adam_trained.pt: its optimizer has other settings, and those of the config are used: maximize true (here false)\n", out + errors)
        groups = "type: adamw, lr: 0.01, weight_decay: 0.1"
        for layers_of, file, optimizer, message in (
                (small, "mingpt_ddp", "type: adam, lr: 0.01", "its optimizer is torch.optim.AdamW, and that of the config adam; start from its weights with model.init_from"),
                (small, "mingpt_ddp", "type: sgd, lr: 0.01", "its optimizer is not sgd, which has no setting 'betas'"),
                (small, "mingpt_ddp", "type: radam, lr: 0.01", "its optimizer is not radam, which has no setting 'amsgrad'"),
                (small, "mingpt_ddp", minGPT + ", amsgrad: true", "the state max_exp_avg_sq of the optimizer: mingpt_ddp.pt: does not match the model:\n"),
                (small, "mingpt_ddp", "type: lbfgs", "lbfgs also has a state, which is not read"), (small, "mingpt_ddp", "type: muon", "muon also has a state"),
                (layers, "sgd", "type: sgd, lr: 0.05", "its optimizer has the state 'momentum_buffer', and sgd with the keys of the config not"),
                (layers, "adamw_sorted", groups, "group 0 of its optimizer has 3 parameters with weight_decay 0.1 and lr 0.01, and by optimizer.decay and optimizer.groups of the config 10 have them"),
                (layers, "adam_trained", "type: adam, lr: 0.001, maximize: true", "its optimizer has 8 parameters, and its state_dict 10"),
                (layers, "adamw_sorted", minGPT, "group 0 of its optimizer has 3 parameters"),
                ("[{linear: {out: 4, name: b}}, {linear: {out: 4, name: a}}, {linear: {out: 1, name: c}}]", "two_orders", "type: sgd, momentum: 0.9, weight_decay: 0.1, decay: matrices",
                 "may list their parameters in the order of the model or sorted by name, and the shapes fit both")):
            with self.subTest(message):
                for arguments in (("--run-dir", "runs/wrong"), ("check",)):
                    out, errors = run(layers_of, file, optimizer, *arguments, code=None)
                    self.assertIn(self.code, (64, 65))
                    self.assertIn("checkpoint.resume: ", errors)
                    self.assertIn(message, errors)

    def test_other_snapshots(self):
        """Settings that are tensors, frozen parameters in the groups of the optimizer, and numbers that cannot be."""
        import h5py
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = np.ones((24, 4), "f4"), np.ones((24, 1), "f4")
        self.write("c.yaml", """name: c
dataset: {path: rows.h5}
sampler: {batch_size: 6}
model: {layers: [{linear: {out: 3, name: b}}, {linear: {out: 1, name: a}}]}
loss: mse
optimizer: {type: adamw, lr: 0.001, betas: [0.9, 0.999], weight_decay: 0.1, decay: matrices}
train: {epochs: 4}
checkpoint: {resume: s.pt}
""")
        shapes, r = {"b.weight": (3, 4), "b.bias": (3,), "a.weight": (1, 3), "a.bias": (1,)}, np.random.default_rng(0)
        values = {name: r.normal(size=shape).astype("<f4") for name, shape in shapes.items()}

        def run(*words, lr=np.float32(0.001), step=np.float32(8), frozen_step=np.float32(3), epochs=2, groups=(["b.weight", "a.weight"], ["b.bias", "a.bias"]), code=0):
            members, order = {}, sum(groups, [])

            def number(value):
                if type(value) is float:
                    return value
                members[f"n{len(members)}"] = array = np.array(value)
                return tensor(f"n{len(members) - 1}", array)

            def values_of(name, scale):
                members[f"v{len(members)}"] = array = np.abs(values[name]) * np.float32(scale)
                return tensor(f"v{len(members) - 1}", array)
            state = {i: {"step": number(frozen_step if name[0] == "b" else step), "exp_avg": values_of(name, 1), "exp_avg_sq": values_of(name, 2)} for i, name in enumerate(order)}
            lists = [{"lr": number(lr), "betas": (number(np.float64(0.9)), 0.999), "eps": 1e-8, "weight_decay": 0.1 * (1 - g), "amsgrad": False, "maximize": False, "foreach": None, "capturable": True,
                      "differentiable": False, "fused": None, "params": [order.index(name) for name in group]} for g, group in enumerate(groups)]
            root = {"MODEL_STATE": {name: values_of(name, 1) for name in shapes}, "OPTIMIZER_STATE": {"state": state, "param_groups": lists},
                    "EPOCHS_RUN": number(epochs) if isinstance(epochs, np.generic) else epochs}
            write_pt(self.path("s.pt"), root, members)
            return "".join(self.run_program(*words, code=code))
        freeze = ("c.yaml", "--fresh", "model.freeze=[b.*]")
        out = run(*freeze)
        self.assertNotIn("warning", out)
        self.assertIn("starting from s.pt\n", out)
        self.assertEqual(self.events("end", "runs/c")[-1]["step"], 16)
        self.assertIn("lr 0.001 (here 0.002)", run(*freeze, "optimizer.lr=0.002"))
        self.assertIn("lr 0.003 (here 0.001)", run(*freeze, lr=np.float64(0.003)))
        for epochs in (4, 9, np.int64(9), np.int8(4)):  # also tensors
            out = run(*freeze, epochs=epochs)
            self.assertIn(f"s.pt: complete (epoch {epochs}, step 8), so no step follows; increase train.epochs or train.steps to continue\n", out)
            self.assertNotIn("samples/s", out)
            with h5py.File(self.checkpoints("runs/c")[-1]) as f:
                names = []
                f.visit(names.append)
                (name,) = [n for n in names if n.endswith("exp_avg/a.weight")]
                np.testing.assert_array_equal(f[name][()], np.abs(values["a.weight"]))
        for message, code, arguments in (("its optimizer has made 10.5 updates, which is not a whole number; start from its weights", 64, {"step": np.float32(10.5)}),
                                         ("its optimizer has made 10.5 updates, which is not a whole number", 64, {"step": 10.5}),
                                         *((f"EPOCHS_RUN is {text}, but must be the number of epochs that were run; start from its weights", 65, {"epochs": epochs})
                                           for text, epochs in (("2.5", 2.5), ("-1", -1), ("-3", np.int8(-3)), ("0.25", np.float32(0.25)), ("1e+30", 10 ** 30), ("-1e+30", -10 ** 30))),
                                         ("it is a file of torch.save without a number EPOCHS_RUN or finished_epoch", 65, {"epochs": "2"}),
                                         ("its optimizer has 3 parameters, and its state_dict 4, of which 2 are trained (model.freeze); it must have all or those", 64,
                                          {"groups": (["b.weight", "a.weight"], ["a.bias"])})):
            with self.subTest(message):
                self.assertIn("c.yaml:8:22: checkpoint.resume: s.pt: " + message, run("check", "c.yaml", "model.freeze=[b.*]", code=code, **arguments))
        self.assertIn("has not made the same number of updates", run("check", "c.yaml", code=64))

    def test_groups_in_another_order(self):
        """Groups with other rates list the last layer first, and all shapes are the same: each parameter gets its own state."""
        import h5py
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = np.ones((24, 3), "f4"), np.ones((24, 3), "f4")
        names = ["a.weight", "a.bias", "b.weight", "b.bias"]
        state = {name: np.full((3, 3) if name.endswith("weight") else 3, i + 1, "<f4") for i, name in enumerate(names)}
        for scale in (1, 0.3):  # 0.3: of a schedule
            members, order = {}, ["b.weight", "b.bias", "a.weight", "a.bias"]

            def stored(array):
                members[f"v{len(members)}"] = array
                return tensor(f"v{len(members) - 1}", array)
            groups = [{"lr": lr * scale, "momentum": 0.9, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "params": numbers}
                      for lr, numbers in ((0.5, [0, 1]), (0.1, [2, 3]))]
            if scale != 1:
                groups = [dict(group, initial_lr=lr) for group, lr in zip(groups, (0.5, 0.1))]
            write_pt(self.path("s.pt"), {"MODEL_STATE": {name: stored(state[name]) for name in names}, "EPOCHS_RUN": 2,
                                         "OPTIMIZER_STATE": {"state": {i: {"momentum_buffer": stored(state[name])} for i, name in enumerate(order)}, "param_groups": groups}}, members)
            self.write("c.yaml", "name: c\ndataset: {path: rows.h5}\nsampler: {batch_size: 6}\nmodel: {layers: [{linear: {out: 3, name: a}}, {linear: {out: 3, name: b}}]}\nloss: mse\n"
                       "optimizer: {type: sgd, lr: 0.1, momentum: 0.9, groups: [{match: 'b.*', lr: 0.5}]}\ntrain: {epochs: 2}\ncheckpoint: {resume: s.pt}\n")
            self.run_program("c.yaml", "--fresh")
            with h5py.File(self.checkpoints("runs/c")[-1]) as f:
                for name in names:
                    np.testing.assert_array_equal(f[f"optimizer/momentum_buffer/{name}"][()], state[name], name)
            _, err = self.run_program("c.yaml", "--fresh", "optimizer.groups=[]", code=64)
            self.assertIn("group 0 of its optimizer has 2 parameters with weight_decay 0 and lr 0.5, and by optimizer.decay and optimizer.groups of the config 0 have them", err)
            for names_of_groups in ((), (names[2:], names[:2])):  # the same rates: only names tell which group is which
                same = [dict(group, lr=0.1, **({"param_names": names_of_groups[i]} if names_of_groups else {})) for i, group in enumerate(groups)]
                for group in same:
                    group.pop("initial_lr", None)
                write_pt(self.path("s.pt"), {"MODEL_STATE": {name: stored(state[name]) for name in names}, "EPOCHS_RUN": 2,
                                             "OPTIMIZER_STATE": {"state": {i: {"momentum_buffer": stored(state[name])} for i, name in enumerate(order)}, "param_groups": same}}, members)
                for command in (("check", "c.yaml"), ("c.yaml", "--fresh")):
                    said = "".join(self.run_program(*command, "optimizer.groups=[]"))
                    warning = "s.pt: groups 0 and 1 of its optimizer have the same settings and shapes, and no names: they are taken in the order of the model; where the script"
                    self.assertEqual(warning in said, not names_of_groups, said)
                with h5py.File(self.checkpoints("runs/c")[-1]) as f:
                    np.testing.assert_array_equal(f["optimizer/momentum_buffer/a.weight"][()], state["a.weight" if names_of_groups else "b.weight"])

    def losses_from(self, first, run):
        steps = self.events("step", run)
        self.assertEqual(steps[0]["step"], first)
        return [s["loss"] for s in steps]

    def test_refused(self):
        root, members = self.dictionary(self.values)
        weight = self.values["0.weight"]
        for change, sentence in (
                ({"0.weight": tensor("0", weight, strides=(1, 64))}, "tensor '0.weight': it is a view with other strides (transposed or sliced)"),
                ({"0.weight": tensor("0", weight, offset=1)}, "tensor '0.weight': it is larger than its values in the archive"),
                ({"0.weight": tensor("0", weight, offset=-1)}, "tensor '0.weight': its offset is not sensible"),
                ({"0.weight": tensor("0", weight, elements=10 ** 12)}, "tensor '0.weight': it is larger than its values in the archive"),
                ({"0.weight": tensor("9", weight)}, "tensor '0.weight': its values are not in the archive"),
                ({"0.weight": tensor("0", weight, storage="ComplexFloatStorage")}, "tensor '0.weight': its dtype must be float32, float64"),
                ({"0.weight": tensor("0", weight, shape=(2 ** 40, 2 ** 40))},
                 "tensor '0.weight': its shape is not sensible"),
                ({"epoch": 3}, "tensor 'epoch': it is not a tensor; the file must be the state_dict, or contain one"),
                ({"x": Call("os system", "touch executed")}, "tensor 'x': it is not a tensor"),
                ({"model": root}, "'model' is a dictionary of tensors beside others of the file; save that of the model alone"),
                ({"epoch": 3, "net": root}, "'net' is a dictionary of tensors beside others of the file; save that of the model alone"),
                ({3: tensor("0", weight)}, "tensor '?': it is not a tensor"),
                ({"extra": tensor("0", weight)}, "extra: in the file, not in the model")):
            with self.subTest(sentence):
                write_pt(self.path("w.pt"), {**root, **change}, members)
                self.assertIn(f"model.init_from: w.pt: {sentence}" if "extra" not in change else sentence, self.begin(code=DATA))
        self.assertFalse(os.path.exists(self.path("executed")))
        write_pt(self.path("w.pt"), tensor("0", weight), members)
        self.assertIn("w.pt: it is not a dictionary of tensors; save model.state_dict()", self.begin(code=DATA))
        write_pt(self.path("w.pt"), root, members, compression=zipfile.ZIP_DEFLATED)
        self.assertIn("its values are compressed; torch.save stores them", self.begin(code=DATA))
        write_pt(self.path("w.pt"), root, members, byteorder="big")
        self.assertIn("w.pt: its numbers are not little-endian", self.begin(code=DATA))

    def test_damaged(self):
        root, members = self.dictionary(self.values)
        write_pt(self.path("w.pt"), root, members)
        with open(self.path("w.pt"), "rb") as f:
            whole = f.read()
        at = whole.index(members["0"].tobytes())
        pickled = {name: b"\x80\2" + code for name, code in {
            "opcode 0x69": b"i", "a value is missing": b"R", "a mark is missing": b"t", "it ends early": b"X\4\0\0\0ab", "a memo is not set": b"h\0",
            "a memo's number": b"Nr\xff\xff\xff\xff", "items of no container": b"N(K\1K\2u", "a key has no value": b"(K\1d",
            "a name is not a text": b"NN\x93"}.items()}
        for bytes_, sentence in ((whole[:at] + b"????" + whole[at + 4:], "the zip archive is damaged or truncated"), (whole[:-40], "its directory is missing"),
                                 (b"\x80\2" + whole, "the old format of torch.save (before PyTorch 1.6); load it in PyTorch and save it again"),
                                 (b"weights", "not a file of torch.save"), (b"", "not a file of torch.save")):
            with open(self.path("w.pt"), "wb") as f:
                f.write(bytes_)
            self.assertIn(sentence, self.begin(code=DATA))
        for sentence, code in pickled.items():
            with zipfile.ZipFile(self.path("w.pt"), "w") as archive:
                archive.writestr("x/data.pkl", code)
            self.assertIn(sentence, self.begin(code=DATA))
        with zipfile.ZipFile(self.path("w.pt"), "w") as archive:
            archive.writestr("x.npy", "")
        self.assertIn("a zip archive without data.pkl, so not a file of torch.save", self.begin(code=DATA))
        self.assertIn("there is no such file", self.begin("none.pt", code=DATA))
