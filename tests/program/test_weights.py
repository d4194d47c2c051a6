"""Weights move both ways between ddptrain and PyTorch: export, init_from. ctest-labels: unit"""
import json, os, struct

import h5py
import numpy as np

import program
from program import DATA, USAGE


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[8 + length:][slice(*t["data_offsets"])], "<f4").reshape(t["shape"]) for name, t in header.items()}


def write_safetensors(path, tensors, prefix="", **changes):
    header, body = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[prefix + name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    for name, change in changes.items():
        header[name.replace("__", ".")].update(change)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


class Weights(program.Case):
    given_files = {"test.yaml": program.WINE}

    def weights(self, run):
        with h5py.File(self.checkpoints(run)[-1]) as f:
            return {name: f["model"][name][:] for name in f["model"]}

    def start_from(self, file, code=0):
        """The weights a run begins with, seen after one step with learning rate 0."""
        _, err = self.run_program("test.yaml", f"model.init_from={file}", "optimizer.lr=0", "train.epochs=1", "--fresh", "--run-dir", "runs/b", code=code)
        return err if code else self.weights("runs/b")

    def test_there_and_back(self):
        self.run_program("test.yaml")
        for source in ("runs/test", "runs/test/checkpoints", self.checkpoints()[-1]):
            self.run_program("export", source, "--out", "w.safetensors")
            exported, saved = read_safetensors(self.path("w.safetensors")), self.weights("runs/test")
            self.assertEqual(set(exported), {"0.weight", "0.bias", "2.weight", "2.bias"})
            for name in saved:
                np.testing.assert_array_equal(exported[name], saved[name])
        for file in ("w.safetensors", self.checkpoints()[-1]):
            begun = self.start_from(file)
            for name in saved:
                np.testing.assert_array_equal(begun[name], saved[name])

    def test_shared_layers(self):
        """The weights of one layer, which many others share, are in the file once."""
        many = "".join(", {linear: {out: 4, share: a}}" for _ in range(60))
        self.write("test.yaml", "dataset: {format: synthetic, synthetic: {kind: uniform, inputs: 4, rows: 8, targets: 4}}\nsampler: {batch_size: 8}\n"
                                f"model: {{layers: [{{linear: {{out: 4, name: a}}}}{many}]}}\nloss: mse\noptimizer: sgd\ntrain: {{steps: 1}}\n")
        self.run_program("test.yaml")
        for file in ("w.safetensors", "w.pt"):
            self.run_program("export", "runs/test", "--out", file)
            self.run_program("test.yaml", f"model.init_from={file}", "optimizer.lr=0", "--fresh", "--run-dir", "runs/b")
            for name, saved in self.weights("runs/test").items():
                np.testing.assert_array_equal(self.weights("runs/b")[name], saved)

    def test_from_a_run_folder(self):
        """Its best checkpoint, else the newest; a folder beside the config, too."""
        os.mkdir(self.path("configs"))
        for best, words in (("newest", []), ("best", ["checkpoint.best=train_loss", "optimizer.lr=0.1"])):
            self.run_program("test.yaml", "--fresh", "--run-dir", "configs/runs/a", *words)
            path = self.checkpoints("configs/runs/a")[-1] if best == "newest" else self.path("configs/runs/a/checkpoints/best.h5")
            with h5py.File(path) as f:
                saved = {name: f["model"][name][:] for name in f["model"]}
            self.write("configs/other.yaml", self.read("test.yaml"))
            for folder in ("configs/runs/a", "configs/runs/a/checkpoints"):
                for name, begun in self.start_from(folder).items():
                    np.testing.assert_array_equal(begun, saved[name])
            _, err = self.run_program("configs/other.yaml", "model.init_from=runs/a", "--run-dir", "runs/c", "--fresh")
            self.assertIn(f"model.init_from: {os.path.realpath(path)}\n", err)
        self.assertIn("model.init_from: configs/runs/a/checkpoints/best.h5\n", self.run_program("check", "test.yaml", "model.init_from=configs/runs/a")[0])
        os.mkdir(self.path("empty"))
        self.assertIn("model.init_from: empty has no checkpoint; train first\n", self.start_from("empty", code=DATA))
        self.assertIn("model.init_from: map, skip and partial are for files, and empty is a folder",
                      self.start_from("{file: empty, partial: true}", code=USAGE))

    def test_a_run_of_the_name_of_the_file(self):
        """The file is what model.init_from names, in the working directory or beside; the folder of the run never is."""
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "plain.pt")
        self.run_program("test.yaml", "--run-dir", "runs/plain.pt", "model.init_from=plain.pt")
        self.assertIn("\n  init_from: {file: plain.pt", self.read("runs/plain.pt/config.yaml").replace("init_from:\n    file:", "init_from: {file:"))
        for config in ("runs/plain.pt", "runs/plain.pt/config.yaml"):
            self.run_program("eval", config, "--checkpoint", "initial", err="new run starts with; model.init_from: plain.pt\n")
        self.run_program("runs/plain.pt/config.yaml", "train.epochs=12")
        os.rename(self.path("plain.pt"), self.path("other.pt"))
        self.run_program("eval", "runs/plain.pt", "--checkpoint", "initial", code=DATA, err="model.init_from: plain.pt: there is no such file")

    def test_other_columns_and_classes_are_a_warning(self):
        """Weights are taken by position."""
        text = ("name: test\ndataset: {path: a.csv, targets: y}\nsampler: {batch_size: 8}\nmodel: {layers: [{linear: 2}]}\n"
                "loss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        rows = [(i % 7, i % 3, "pqr"[i % 3], "no" if i % 2 else "yes") for i in range(24)]

        def table(name, columns, rows):
            self.write(name, "\n".join([columns, *(",".join(map(str, row)) for row in rows)]) + "\n")
        table("a.csv", "u,v,c,y", rows)
        table("b.csv", "v,u,c,y", [(v, u, c, y) for u, v, c, y in rows])
        table("c.csv", "u,v,c,y", [(u, v, chr(ord(c) + 1), y) for u, v, c, y in rows])
        table("d.csv", "u,v,c,y", [(u, v, c, {"no": "Z", "yes": "A"}[y]) for u, v, c, y in rows])
        self.write("a.yaml", text)
        self.run_program("a.yaml", "--run-dir", "runs/a")
        start = "; warning: weights are taken by position, but "
        for data, message in (("b.csv", "input 0 was 'u' in its training and is 'v' now\n"),
                              ("c.csv", "category of 'c' 0 was 'p' in its training and is 'q' now\n"),
                              ("d.csv", "class 0 was 'no' in its training and is 'A' now\n"), ("a.csv", None)):
            words = ("a.yaml", f"dataset.path={data}", "model.init_from=runs/a")
            for text in (self.run_program(*words, "--run-dir", "runs/b", "--fresh")[1], self.run_program("check", *words)[0]):
                if message:
                    self.assertIn("h5" + start + message, text)
                else:
                    self.assertNotIn("warning", text)
        file = self.checkpoints("runs/a")[-1]
        self.run_program("a.yaml", "dataset.path=d.csv", f"model.init_from={file}", "--run-dir", "runs/c", err=file + start + "class 0")
        self.run_program("export", "runs/a", "--out", "w.safetensors")  # which has no categories
        for source in ("w.safetensors", "{file: w.safetensors, partial: true}"):
            for data, message in (("b.csv", "input 0 was 'u'"), ("d.csv", "class 0 was 'no'"), ("a.csv", None)):
                _, err = self.run_program("a.yaml", f"dataset.path={data}", f"model.init_from={source}", "--run-dir", "runs/b", "--fresh")
                if message:
                    self.assertIn(start + message, err)
                    self.assertIn("model.init_from: w.safetensors", err)
                else:
                    self.assertNotIn("warning", err)

    def test_other_types_and_module(self):
        r = np.random.default_rng(0)
        shapes = {"0.weight": (64, 13), "0.bias": (64,), "2.weight": (3, 64), "2.bias": (3,)}
        values = {n: r.normal(size=s).astype("<f4").astype("<f2").astype("<f4") for n, s in shapes.items()}
        values["2.bias"][:] = [0.0, 6e-8, -65504.0]  # zero, a subnormal half, the largest
        values["2.bias"] = values["2.bias"].astype("<f2").astype("<f4")
        bf16 = {n: (v.view("<u4") >> 16).astype("<u2") for n, v in values.items()}
        back = {n: (b.astype("<u4") << 16).view("<f4") for n, b in bf16.items()}
        for dtype, arrays, expected in (("F32", values, values), ("F64", {n: v.astype("<f8") for n, v in values.items()}, values),
                                        ("F16", {n: v.astype("<f2") for n, v in values.items()}, values), ("BF16", bf16, back)):
            for prefix in ("", "module.", "_orig_mod.", "module._orig_mod.", "model.", "net.inner.", "_orig_mod.model."):
                write_safetensors(self.path("w.safetensors"), {n: (dtype, a) for n, a in arrays.items()}, prefix)
                begun = self.start_from("w.safetensors")
                for n in shapes:
                    np.testing.assert_array_equal(begun[n], expected[n], f"{dtype} {prefix}{n}")

    def test_refused(self):
        good = {"0.weight": ("F32", np.zeros((64, 13), "<f4")), "0.bias": ("F32", np.zeros(64, "<f4")),
                "2.weight": ("F32", np.zeros((3, 64), "<f4")), "2.bias": ("F32", np.zeros(3, "<f4"))}
        path = self.path("w.safetensors")
        less = {k: v for k, v in good.items() if k != "0.bias"}
        for tensors, changes, sentences in (
                (dict(less, extra=good["0.bias"]), {}, ["0.bias: (64,) in the model, not in the file", "extra: in the file, not in the model"]),
                (dict(good, **{"2.bias": ("F32", np.zeros(4, "<f4"))}), {}, ["2.bias: (4,) in the file, (3,) in the model"]),
                (good, {"0__bias": {"dtype": "C64"}}, ["tensor '0.bias': its dtype must be F32"]),
                (good, {"0__bias": {"dtype": "I32"}}, ["tensor '0.bias': its dtype must be F32, F64, F16 or BF16"]),
                (good, {"0__bias": {"shape": [63]}}, ["tensor '0.bias': its data_offsets do not match its shape"]),
                (good, {"0__bias": {"shape": [2 ** 40, 2 ** 40]}}, ["tensor '0.bias': its shape is not sensible"]),
                (good, {"0__bias": {"shape": "x"}}, ["tensor '0.bias': its shape is not a list"]),
                (good, {"0__bias": {"data_offsets": [0, 10 ** 15]}}, ["tensor '0.bias': its values are outside of the file"]),
                (good, {"0__bias": {"data_offsets": [-4, 252]}}, ["tensor '0.bias': its values are outside of the file"]),
                (good, {"0__bias": {"data_offsets": None}}, ["tensor '0.bias': it has no data_offsets"]),
                (good, {"0__bias": {"data_offsets": [3324, 3580]}}, ["tensor '0.bias': its values overlap those of another tensor"]),
                (good, {"0__bias": {"data_offsets": [3332, 3588]}}, ["tensor '0.bias': there are unused bytes before"])):
            with self.subTest(sentences):
                write_safetensors(path, tensors, **changes)
                err = self.start_from("w.safetensors", code=DATA)
                for s in sentences:
                    self.assertIn(s, err)
        write_safetensors(path, good)
        with open(path, "rb") as f:
            whole = f.read()
        bad, double = np.zeros(64, "<f4"), np.zeros(64, "<f8")
        for array, value, sentence in ((bad, np.nan, "value 5 (from 0) is NaN; a run starts from finite numbers"),
                                       (bad, -np.inf, "value 5 (from 0) is -Inf"), (double, np.inf, "value 5 (from 0) is Inf;"),
                                       (double, 1e300, "value 5 (from 0) is 1e+300, too large for float32")):
            array[5] = value
            write_safetensors(path, dict(good, **{"0.bias": (f"F{8 * array.itemsize}", array)}))
            self.assertIn(f"model.init_from: w.safetensors: tensor '0.bias': {sentence}", self.start_from("w.safetensors", code=DATA))
        for bytes_, sentence in ((whole + b"more", "there are 4 unused bytes after the last tensor"), (b"", "too short"), (whole[:100], "truncated"), (whole[:-4], "outside of the file"),
                                 (struct.pack("<Q", 5) + b"{]  }", "its header is not JSON")):
            with open(path, "wb") as f:
                f.write(bytes_)
            self.assertIn(sentence, self.start_from("w.safetensors", code=DATA))
        self.assertIn("there is no such file", self.start_from("none.safetensors", code=DATA))
        self.assertIn("there is no such checkpoint", self.start_from("none.h5", code=DATA))

    def test_batch_counters_are_passed_over(self):
        """state_dict of nn.BatchNorm1d has an integer that no computation reads."""
        self.write("test.yaml", program.WINE.replace("relu,", "batch_norm,"))
        values = np.random.default_rng(0)
        good = {n: ("F32", values.random(size=s).astype("<f4")) for n, s in (
            ("0.weight", (64, 13)), ("0.bias", 64), ("1.weight", 64), ("1.bias", 64), ("1.running_mean", 64),
            ("1.running_var", 64), ("2.weight", (3, 64)), ("2.bias", 3))}
        good["1.num_batches_tracked"] = ("I64", np.array(7, "<i8"))
        for prefix in ("", "module."):
            write_safetensors(self.path("w.safetensors"), good, prefix)
            np.testing.assert_array_equal(self.start_from("w.safetensors")["1.weight"], good["1.weight"][1])

    def test_tied(self):
        """A tied weight may be in the file under its other name, too, or only; but with the same numbers."""
        self.write("text.txt", "abcd" * 50)
        self.write("test.yaml", """
dataset: {path: text.txt, text: {block_size: 4}}
sampler: {batch_size: 8}
model: {layers: [{embedding: {embedding_dim: 3, name: wte}}, {linear: {out: 4, bias: false, tie: wte.weight, name: lm_head}}]}
loss: cross_entropy
optimizer: sgd
train: {epochs: 1}
""")
        weight, other = np.arange(12, dtype="<f4").reshape(4, 3), np.arange(12, dtype="<f4").reshape(4, 3) + 1
        path = self.path("w.safetensors")
        for names in (["wte.weight"], ["wte.weight", "lm_head.weight"], ["lm_head.weight"]):
            write_safetensors(path, {name: ("F32", weight) for name in names})
            np.testing.assert_array_equal(self.start_from("w.safetensors")["wte.weight"], weight)
        write_safetensors(path, {"wte.weight": ("F32", weight), "lm_head.weight": ("F32", other)}, "module.")
        err = self.start_from("w.safetensors", code=DATA)
        self.assertIn("lm_head.weight: differs from wte.weight, to which the model ties it", err)
        write_safetensors(path, {"wte.weight": ("F32", weight), "lm_head.weight": ("F32", weight[:2])})
        self.assertIn("lm_head.weight: differs from", self.start_from("w.safetensors", code=DATA))

    def test_conv1d_layout(self):
        """GPT-2's file as Hugging Face writes it: linear weights are (in, out). The square ones fit either way and are named, too;
        embeddings are not transposed, square or not."""
        r = np.random.default_rng(5)
        width, block, characters = 8, 8, 4
        self.write("text.txt", "abcd" * 50)
        self.write("test.yaml", f"""
dataset: {{path: text.txt, text: {{block_size: {block}}}}}
sampler: {{batch_size: 8}}
model:
  layers:
    - embedding: {{embedding_dim: {width}, name: wte}}
    - positional_embedding: {{name: wpe}}
    - repeat:
        name: h
        times: 2
        layers:
          - residual:
              name: ''
              layers:
                - layer_norm: {{name: ln_1}}
                - sequential:
                    name: attn
                    layers:
                      - linear: {{out: {3 * width}, name: c_attn}}
                      - scaled_dot_product_attention: {{heads: 2, causal: true}}
                      - linear: {{out: {width}, name: c_proj}}
          - residual:
              name: ''
              layers:
                - layer_norm: {{name: ln_2}}
                - sequential:
                    name: mlp
                    layers: [{{linear: {{out: {4 * width}, name: c_fc}}}}, gelu, {{linear: {{out: {width}, name: c_proj}}}}]
    - layer_norm: {{name: ln_f}}
    - linear: {{out: {characters}, bias: false, tie: wte.weight, name: lm_head}}
loss: cross_entropy
optimizer: sgd
train: {{epochs: 1}}
""")
        shapes = {"wte.weight": (characters, width), "wpe.weight": (block, width), "ln_f.weight": width, "ln_f.bias": width}
        for i in range(2):
            for name, shape in (("attn.c_attn", (width, 3 * width)), ("attn.c_proj", (width, width)),
                                ("mlp.c_fc", (width, 4 * width)), ("mlp.c_proj", (4 * width, width))):
                shapes[f"h.{i}.{name}.weight"], shapes[f"h.{i}.{name}.bias"] = shape, shape[1]
            for name in ("ln_1", "ln_2"):
                shapes[f"h.{i}.{name}.weight"] = shapes[f"h.{i}.{name}.bias"] = width
        tensors = {name: ("F32", r.normal(size=shape).astype("<f4")) for name, shape in shapes.items()}
        path = self.path("w.safetensors")
        write_safetensors(path, tensors)
        err = self.start_from("w.safetensors", code=DATA)
        self.assertIn("h.0.attn.c_attn.weight: (8, 24) in the file, (24, 8) in the model\n", err)
        for i in range(2):
            self.assertIn(f"h.{i}.attn.c_proj.weight: (8, 8) is square and cannot be distinguished by shape\n", err)
        self.assertEqual(err.count("is square"), 2, err)  # wpe is as well, and never transposed
        self.assertIn("transpose them before saving, and also the square ones", err)
        self.assertEqual(err.count(" in the file, ("), 6, err)
        named = [line.split(":")[0].strip() for line in err.splitlines() if "is square" in line or " in the file, (" in line]
        turned = {n: (t, np.ascontiguousarray(a.T) if n in named else a) for n, (t, a) in tensors.items()}
        write_safetensors(path, turned)
        self.start_from("w.safetensors")
        less = {n: v for n, v in tensors.items() if "attn.c_proj.weight" not in n}
        write_safetensors(path, less)
        err = self.start_from("w.safetensors", code=DATA)
        self.assertNotIn("is square", err)

    def test_inspect(self):
        values = np.array([[1, 2], [3, np.inf]], "<f4")
        write_safetensors(self.path("w.safetensors"), {"0.weight": ("F32", values), "half": ("F16", np.array([0.5], "<f2")),
                                                       "1.num_batches_tracked": ("I64", np.array(7, "<i8"))})
        out, _ = self.run_program("inspect", "w.safetensors")
        self.assertRegex(out, r"0\.weight +F32 \(2, 2\) +min 1  max 3  mean 2  not finite: 1\n")
        self.assertRegex(out, r"half +F16 \(1\) +min 0\.5  max 0\.5")
        self.assertRegex(out, r"num_batches_tracked +I64 \(\) *\n")
        self.assertIn("3 tensors, 6 values", out)
        with open(self.path("w.safetensors"), "r+b") as f:
            f.truncate(100)
        self.run_program("inspect", "w.safetensors", code=DATA)
        self.run_program("inspect", "none.safetensors", code=DATA)
        write_safetensors(self.path("w.safetensors"), {})
        self.assertIn("\n0 tensors, 0 values\n", self.run_program("inspect", "w.safetensors")[0])
        self.assertIn("\n  0.weight: (64, 13) in the model, not in the file\n", self.start_from("w.safetensors", code=DATA))

    def test_a_resume_keeps_its_own_weights(self):
        self.run_program("test.yaml", "train.epochs=5")
        self.run_program("export", "runs/test", "--out", "w.safetensors")
        self.run_program("test.yaml", "train.epochs=2", "model.init_from=w.safetensors", "--run-dir", "runs/b")
        self.run_program("test.yaml", "train.epochs=4", "model.init_from=w.safetensors", "--run-dir", "runs/b")
        self.run_program("test.yaml", "train.epochs=4", "model.init_from=w.safetensors", "--run-dir", "runs/c", "--nproc", 1)
        self.assertEqual(self.sha("runs/b"), self.sha("runs/c"))

    def test_files_of_another_kind(self):
        """The message names the format, not damage."""
        self.run_program("test.yaml", "train.epochs=1")
        self.run_program("export", "runs/test", "--out", "w.safetensors")
        with open(self.path("w.pt"), "wb") as f:
            f.write(b"PK\3\4" + bytes(400))
        self.write("w.txt", "0.weight 1 2 3\n" * 100)
        self.write("empty.h5", "")
        with open(self.path("damaged.h5"), "wb") as f, open(self.checkpoints()[-1], "rb") as whole:
            f.write(whole.read()[:-300])
        for file, sentence in (("w.safetensors", "a safetensors file, which has weights but not the state of a run; start a run from it with model.init_from"),
                               ("w.pt", "a file of torch.save, which has weights but not the state of a run; start a run from it with model.init_from"),
                               ("w.txt", "a text file, not a checkpoint"), ("empty.h5", "an empty file"),
                               ("damaged.h5", "no seal at its end: the file is truncated, damaged or not written by ddptrain")):
            for words in (["eval", "test.yaml", "--checkpoint", file], ["test.yaml", f"checkpoint.resume={file}", "--run-dir", "runs/c"],
                          ["export", file, "--out", "x.safetensors"], ["test.yaml", f"model.init_from={file}", "--run-dir", "runs/c"]):
                if (file in ("w.safetensors", "w.pt") and "init_from" in words[1]) or (file == "w.pt" and "resume" in words[1]):
                    continue
                with self.subTest(words):
                    self.run_program(*words, code=DATA, err=f"{file}: {sentence}")
        os.rename(self.path("w.safetensors"), self.path("model.bin"))
        self.run_program("test.yaml", "model.init_from=model.bin", "train.epochs=1", "--run-dir", "runs/d")

    def test_export_words(self):
        for arguments, code, sentence in ((["export"], USAGE, "no file given"), (["export", "runs/test"], USAGE, "export needs --out"),
                                          (["export", "x", "--out", "x.npz"], USAGE, "--out: the format is not known by the extension of 'x.npz'; give --format, one of safetensors"),
                                          (["export", "x", "--out", "x", "--format", "npz"], USAGE, "--format: expected one of safetensors"),
                                          (["test.yaml", "--format", "pt"], USAGE, "--format is for export; 'train' does not accept it"),
                                          (["export", "none", "--out", "x.safetensors"], DATA, "none: there is no such checkpoint"),
                                          (["export", ".", "--out", "x.safetensors"], DATA, ". has no checkpoint")):
            self.run_program(*arguments, code=code, err=sentence)
