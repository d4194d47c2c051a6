"""model.init_from with a map: weights as transformers and torchvision save them give the logits of their models.
ctest-labels: unit"""
import json, os, shutil

import numpy as np

import program
from program import DATA, SOURCE, USAGE
from test_weights import write_safetensors

FOLDER = os.path.join(SOURCE, "tests/vectors/pretrained")
END = """
optimizer: {type: sgd, lr: 0}
sampler: {batch_size: 2}
train: {epochs: 1}
"""
TOKENS = "name: test\ndataset: {path: t.bin, tokens: {dtype: uint16, vocabulary: 23, block_size: 8, stride: 8}}\nloss: cross_entropy" + END
ROWS = "name: test\ndataset: {path: t.h5}\nloss: cross_entropy" + END

GPT2 = """
model:
  init_from: {file: gpt2.safetensors, map: gpt2}
  layers:
    - embedding: {embedding_dim: 16, name: wte}
    - positional_embedding: {name: wpe}
    - repeat:
        name: h
        times: 2
        layers:
          - residual:
              name: ''
              layers:
                - layer_norm: {name: ln_1}
                - sequential:
                    name: attn
                    layers:
                      - linear: {out: 48, name: c_attn}
                      - scaled_dot_product_attention: {heads: 4, causal: true}
                      - linear: {out: 16, name: c_proj}
          - residual:
              name: ''
              layers:
                - layer_norm: {name: ln_2}
                - sequential:
                    name: mlp
                    layers: [{linear: {out: 64, name: c_fc}}, {gelu: {approximate: tanh}}, {linear: {out: 16, name: c_proj}}]
    - layer_norm: {name: ln_f}
    - linear: {out: 23, bias: false, tie: wte.weight, name: lm_head}
"""
LLAMA = """
model:
  init_from: {file: llama.safetensors, map: llama}
  layers:
    - embedding: {embedding_dim: 16, name: tok_embeddings}
    - repeat:
        name: layers
        times: 2
        layers:
          - residual:
              name: ''
              layers:
                - rms_norm: {name: attention_norm, eps: 1.0e-5}
                - linear: {out: 32, bias: false, name: wqkv}
                - rotary_embedding: {head_size: 4, heads: 6}
                - scaled_dot_product_attention: {heads: 4, num_kv_heads: 2, causal: true}
                - linear: {out: 16, bias: false, name: wo}
          - residual:
              name: ''
              layers:
                - rms_norm: {name: ffn_norm, eps: 1.0e-5}
                - linear: {out: 24, bias: false, name: w1}
                - silu: {name: gate}
                - linear: {out: 24, bias: false, name: w3, from: ffn_norm}
                - multiply: {from: [gate, w3]}
                - linear: {out: 16, bias: false, name: w2}
    - rms_norm: {name: norm, eps: 1.0e-5}
    - linear: {out: 23, bias: false, name: output}
"""
BERT = """
model:
  init_from: {file: bert.safetensors, map: bert}
  layers:
    - embedding: {embedding_dim: 16, name: word_embeddings}
    - positional_embedding: {name: position_embeddings}
    - layer_norm: {name: embeddings_norm, eps: 1.0e-12}
    - repeat:
        name: layer
        times: 2
        layers:
          - residual: {name: '', layers: [{attention: {heads: 4, name: attention}}]}
          - layer_norm: {name: attention_norm, eps: 1.0e-12}
          - residual: {name: '', layers: [{linear: {out: 24, name: intermediate}}, gelu, {linear: {out: 16, name: output}}]}
          - layer_norm: {name: output_norm, eps: 1.0e-12}
    - linear: {out: 16, name: transform}
    - gelu
    - layer_norm: {name: transform_norm, eps: 1.0e-12}
    - linear: {out: 23, tie: word_embeddings.weight, name: decoder}
"""
VIT = """
model:
  init_from: {file: vit.safetensors, map: vit}
  layers:
    - patch_embedding: {embed_dim: 16, patch_size: 4, name: patch_embedding}
    - class_token: {name: class_token}
    - positional_embedding: {name: position_embeddings}
    - repeat:
        name: layer
        times: 2
        layers:
          - residual: {name: '', layers: [{layer_norm: {name: norm_before, eps: 1.0e-12}}, {attention: {heads: 4, name: attention}}]}
          - residual:
              name: ''
              layers: [{layer_norm: {name: norm_after, eps: 1.0e-12}}, {linear: {out: 24, name: intermediate}}, gelu, {linear: {out: 16, name: output}}]
    - layer_norm: {name: norm, eps: 1.0e-12}
    - slice: {dim: 1, start: 0, end: 1}
    - flatten
    - linear: {out: 3, name: classifier}
"""


def block(planes, stride, has_shortcut):
    shortcut = (f", shortcut: [{{conv2d: {{out: {planes}, kernel_size: 1, stride: {stride}, bias: false}}}}, {{batch_norm: {{momentum: 0}}}}]"
                if has_shortcut else "")
    return f"""{{sequential: {{layers: [{{residual: {{name: '', layers: [
          {{conv2d: {{out: {planes}, kernel_size: 3, stride: {stride}, padding: 1, bias: false, name: conv1}}}}, {{batch_norm: {{name: bn1, momentum: 0}}}}, relu,
          {{conv2d: {{out: {planes}, kernel_size: 3, padding: 1, bias: false, name: conv2}}}}, {{batch_norm: {{name: bn2, momentum: 0}}}}]{shortcut}}}}}, relu]}}}}"""


RESNET = f"""
model:
  init_from: {{file: resnet.safetensors, map: resnet}}
  layers:
    - conv2d: {{out: 64, kernel_size: 7, stride: 2, padding: 3, bias: false, name: conv1}}
    - batch_norm: {{name: bn1, momentum: 0}}
    - relu
    - max_pool2d: {{kernel_size: 3, stride: 2, padding: 1}}
    - sequential: {{name: layer1, layers: [{block(2, 1, True)}]}}
    - sequential: {{name: layer2, layers: [{block(4, 2, True)}, {block(4, 1, False)}]}}
    - sequential: {{name: layer3, layers: [{block(8, 2, True)}]}}
    - sequential: {{name: layer4, layers: [{block(16, 2, True)}]}}
    - adaptive_avg_pool2d: 1
    - flatten
    - linear: {{out: 5, name: fc}}
"""


def read_file(name):
    """The tensors as write_safetensors takes them."""
    with open(os.path.join(FOLDER, name), "rb") as f:
        data = f.read()
    length = int.from_bytes(data[:8], "little")
    header, types = json.loads(data[8:8 + length]), {"F32": "<f4", "F16": "<f2", "I64": "<i8", "BOOL": "?"}
    header.pop("__metadata__", None)
    return {n: (t["dtype"], np.frombuffer(data[8 + length:][slice(*t["data_offsets"])], types[t["dtype"]]).reshape(t["shape"]))
            for n, t in header.items()}


class Pretrained(program.Case):
    def setUp(self):
        super().setUp()
        with open(os.path.join(FOLDER, "pretrained.json"), encoding="utf-8") as f:
            self.expected = json.load(f)

    def copy(self, name):
        write_safetensors(self.path(f"{name}.safetensors"), read_file(f"{name}.safetensors"))

    def tokens(self, name):
        rows = np.array(self.expected[name]["inputs"], "<u2")
        with open(self.path("t.bin"), "wb") as f:
            f.write(rows.tobytes() + np.array([0], "<u2").tobytes())

    def rows(self, x):
        import h5py
        with h5py.File(self.path("t.h5"), "w") as f:
            f["x"], f["y"] = np.array(x, "<f4"), np.array([0, 1], "<i8")

    def compare(self, name, config):
        """Trains an epoch with a learning rate of 0 and predicts; returns what the run printed."""
        self.copy(name)
        self.write("test.yaml", config)
        _, err = self.run_program("test.yaml", "--fresh")
        out, _ = self.run_program("predict", "test.yaml", "--part", "train", "--outputs", "--out", "p.h5")
        import h5py
        with h5py.File(self.path("p.h5")) as f:
            found = f["outputs"][:]
        expected = np.array(self.expected[name]["logits"])
        np.testing.assert_allclose(found.reshape(-1), expected, atol=1e-4 * np.abs(expected).max())
        return err

    def test_gpt2(self):
        self.tokens("gpt2")
        err = self.compare("gpt2", TOKENS + GPT2)
        for line in ("gpt2.safetensors: 28 of 29 tensors used, for 28 of 28 parameters",
                     "  h.*.attn.c_attn.weight -> h.*.attn.c_attn.weight, transposed: 2 tensors",
                     "  not used, as the map has no use for them: transformer.h.0.attn.bias"):
            self.assertIn(line, err)

    def test_llama(self):
        self.tokens("llama")
        err = self.compare("llama", TOKENS + LLAMA)
        self.assertIn("  layers.*.self_attn.k_proj.* -> layers.*.wqkv.*, part 2 of 3: 2 tensors", err)

    def test_bert(self):
        self.tokens("bert")
        err = self.compare("bert", TOKENS + BERT)
        self.assertIn("position_embeddings.weight, row 0 added to each row: 1 tensor", err)

    def test_bert_of_rows_with_padding(self):
        """As transformers with an attention_mask, at the positions that are not padding."""
        import h5py
        expected = self.expected["bert_padded"]
        self.copy("bert")
        with h5py.File(self.path("t.h5"), "w") as f:
            f["x"], f["y"] = np.array(expected["inputs"], "u1"), np.array(expected["inputs"], "<i8")
        self.write("test.yaml", ROWS + BERT.replace("embedding_dim: 16", "embedding_dim: 16, num_embeddings: 23, padding_idx: 0"))
        self.run_program("test.yaml", "--fresh")
        self.run_program("predict", "test.yaml", "--part", "train", "--outputs", "--out", "p.h5")
        with h5py.File(self.path("p.h5")) as f:
            found = f["outputs"][:].reshape(expected["shape"])
        real = np.arange(8) < np.array(expected["lengths"])[:, None]
        logits = np.array(expected["logits"]).reshape(expected["shape"])
        np.testing.assert_allclose(found[real], logits[real], atol=1e-4 * np.abs(logits).max())
        self.assertGreater(np.abs(found[real] - np.array(self.expected["bert"]["logits"]).reshape(expected["shape"])[real]).max(), 0.1)

    def test_vit(self):
        self.rows(self.expected["vit"]["inputs"])
        self.compare("vit", ROWS + VIT)

    def test_resnet(self):
        self.rows((np.arange(2 * 3 * 32 * 32) * 7919 % 257 / 128 - 1).reshape(2, 3, 32, 32))
        self.compare("resnet", ROWS + RESNET)


LAYERS = """
name: test
dataset: {path: t.h5}
loss: cross_entropy
model:
  init_from: {file: w.safetensors, map: {MAP}OPTIONS}
  layers: [{linear: {out: 6, name: a}}, relu, {linear: {out: 6, name: b}}, relu, {linear: {out: 2, name: c}}]
""" + END


class Rules(program.Case):
    def setUp(self):
        super().setUp()
        import h5py
        with h5py.File(self.path("t.h5"), "w") as f:
            f["x"], f["y"] = np.zeros((4, 4), "<f4"), np.array([0, 1, 0, 1], "<i8")
        r = np.random.default_rng(0)
        self.model = {n: r.normal(size=s).astype("<f4") for n, s in (
            ("a.weight", (6, 4)), ("a.bias", 6), ("b.weight", (6, 6)), ("b.bias", 6), ("c.weight", (2, 6)), ("c.bias", 2))}

    def load(self, tensors, rules, options="", code=0):
        write_safetensors(self.path("w.safetensors"), {n: ("F32", np.ascontiguousarray(t)) for n, t in tensors.items()})
        self.write("test.yaml", LAYERS.replace("{MAP}", rules if rules.startswith("g") else "{" + rules + "}").replace("OPTIONS", options))
        _, err = self.run_program("test.yaml", "--fresh", code=code)
        return err

    def assert_loaded(self, expected):
        import h5py
        with h5py.File(self.checkpoints()[-1]) as f:
            for name, values in expected.items():
                np.testing.assert_array_equal(f["model"][name][:], values, name)

    def test_rename_transpose_join_divide(self):
        m = self.model
        err = self.load({"net.0.w": m["a.weight"].T, "net.0.b1": m["a.bias"][:2], "net.0.b2": m["a.bias"][2:],
                         "net.1.w": m["b.weight"].T, "net.1.b": m["b.bias"].reshape(2, 3), "c.weight": m["c.weight"], "c.bias": m["c.bias"]},
                        "net.0.w: [a.weight, transpose], net.0.b2: [a.bias, part 2 of 2], net.0.b1: [a.bias, part 1 of 2], "
                        "'net.*.w': [b.weight, transpose], net.1.b: [b.bias, reshape]")
        self.assert_loaded(m)
        self.assertIn("w.safetensors: 7 of 7 tensors used, for 6 of 6 parameters", err)
        self.assertIn("with the same name: 2 tensors", err)
        both = np.concatenate([m["a.bias"], m["b.bias"]])
        wide = np.concatenate([m["b.weight"], m["c.weight"]]).T  # (6, 8) of two layers, in the other layout
        rest = {"a.weight": m["a.weight"], "c.bias": m["c.bias"], "both": both, "wide": wide}
        self.load(rest, "both: [a.bias, b.bias], wide: [b.weight, c.weight, transpose]")
        self.assert_loaded(m)
        err = self.load(dict(rest, both=both[:9]), "both: [a.bias, b.bias], wide: [b.weight, c.weight, transpose]", code=DATA)
        self.assertIn("both of the file is (9,); b.bias of the model is (6,)", err)
        err = self.load(dict(rest, both=np.append(both, both)), "both: [a.bias, b.bias], wide: [b.weight, c.weight, transpose]", code=DATA)
        self.assertIn("both: 24 rows in the file, but the parameters it is divided among have 12", err)

    def test_square_matrices(self):
        """A square matrix is never taken as it is beside others that are transposed."""
        m = self.model
        other = dict(m, **{"a.weight": m["a.weight"].T, "c.weight": m["c.weight"].T})
        square = "b.weight of the file is square, so its shape does not show whether it must be transposed"
        self.assertIn(square, self.load(other, "'[ac].weight': x", ", partial: true", code=DATA))
        self.assertIn("a.weight of the file is (4, 6); a.weight of the model is (6, 4); it matches with `transpose` in its rule",
                      self.load(other, "x: y", code=DATA))
        self.assertIn(square, self.load(other, "a.weight: [a.weight, transpose], c.weight: [c.weight, transpose]", code=DATA))
        self.load(other, "b.weight: [b.weight, as is], '*.weight': ['*.weight', transpose]")
        self.assert_loaded(m)
        self.load(dict(other, **{"b.weight": m["b.weight"].T}), "'*.weight': ['*.weight', transpose]")
        self.assert_loaded(m)

    def test_partial_and_skip(self):
        m = self.model
        tensors = dict(m, **{"old.c.weight": np.zeros((9, 6), "<f4"), "more": m["a.bias"]})
        for name in ("c.weight", "c.bias"):
            del tensors[name]
        err = self.load(tensors, "'old.**': '**'", code=DATA)
        for line in ("old.c.weight of the file is (9, 6); c.weight of the model is (2, 6)", "c.bias: (2,) in the model, not in the file",
                     "more: in the file, not in the model"):
            self.assertIn(line, err)
        self.assertIn("c.weight of the model is (2, 6)", self.load(tensors, "'old.**': '**'", ", partial: true", code=DATA))
        err = self.load(tensors, "'old.**': '**'", ", partial: true, skip: 'old.c.*'")
        for line in ("not used, as `skip` matches: old.c.weight", "not used, as the model has no such parameters: more",
                     "keep their initial values, as the file has none: c.weight, c.bias"):
            self.assertIn(line, err)
        self.assert_loaded({n: m[n] for n in ("a.weight", "a.bias", "b.weight", "b.bias")})
        self.assertIn("keep their initial values", self.run_program("check", "test.yaml")[0])

    def test_tensors_of_integers(self):
        """Buffers such as position_ids do not matter where the model has nothing of their name."""
        m = self.model
        self.load(m, "x: y", ", partial: true")
        whole = {**{n: ("F32", t) for n, t in m.items()}, "position_ids": ("I64", np.arange(4)), "seen": ("BOOL", np.ones(3, bool))}
        write_safetensors(self.path("w.safetensors"), whole)
        self.run_program("test.yaml", "--fresh", err="not used, as the model has no such parameters: position_ids, seen")
        self.assert_loaded(m)
        write_safetensors(self.path("w.safetensors"), dict(whole, **{"a.bias": ("I64", np.arange(6))}))
        self.run_program("test.yaml", "--fresh", code=DATA, err="tensor 'a.bias': its dtype must be F32, F64, F16 or BF16")

    def test_folders(self):
        """As transformers saves them, or of a run."""
        m = self.model
        self.load(m, "x: y", ", partial: true")
        text = self.read("test.yaml")
        os.mkdir(self.path("hf"))
        shutil.move(self.path("w.safetensors"), self.path("hf/model.safetensors"))
        self.write("test.yaml", text.replace("w.safetensors", "hf"))
        self.run_program("test.yaml", "--fresh")
        self.assert_loaded(m)
        self.write("test.yaml", text.replace("w.safetensors", "runs/test"))
        _, err = self.run_program("test.yaml", "--run-dir", "runs/b", code=USAGE)
        self.assertIn("map, skip and partial are for files, and runs/test is a folder without model.safetensors or pytorch_model.bin; the weights of a run "
                      "become a file with: ddptrain export runs/test --out weights.safetensors", err)

    def divide(self, **changes):
        """Writes the model's tensors to two files and their index; [changes]: other files of tensors."""
        m, part = self.model, lambda n: f"model-0000{n}-of-00002.safetensors"
        shutil.rmtree(self.path("hf"), ignore_errors=True)
        os.mkdir(self.path("hf"))
        first = ("c.bias", "a.weight", "b.weight")
        write_safetensors(self.path("hf", part(1)), {n: ("F32", m[n]) for n in first})
        write_safetensors(self.path("hf", part(2)), {n: ("F16", t.astype("<f2")) if n == "a.bias" else ("F32", t) for n, t in m.items() if n not in first})
        files = {n: part(1) if n in first else part(2) for n in m}
        self.write("hf/model.safetensors.index.json", json.dumps({"metadata": {"total_size": 1}, "weight_map": {**files, **changes}}))

    def test_weights_in_several_files(self):
        m = self.model
        self.load(m, "x: y", ", partial: true")
        text = self.read("test.yaml")
        m["a.bias"] = m["a.bias"].astype("<f2").astype("<f4")
        for path, options in (("hf", "model.init_from=hf"), ("hf/model.safetensors.index.json", "seed=3")):
            self.divide()
            self.write("test.yaml", text.replace("w.safetensors", path))
            self.run_program("test.yaml", "--fresh", options)
            self.assert_loaded(m)
        out, _ = self.run_program("inspect", "hf/model.safetensors.index.json")
        self.assertRegex(out, r"format  several files of tensors\n(.|\n)*c.bias +F32(.|\n)*a.bias +F16(.|\n)*\n6 tensors, ")
        for changes, sentence in (({"a.weight": "../w.safetensors"}, "the file of tensor 'a.weight' is not a name of a file beside it"),
                                  ({"a.weight": 3}, "the file of tensor 'a.weight' is not a name of a file beside it"),
                                  ({"more": "none.safetensors"}, "hf/none.safetensors: there is no such file; hf/model.safetensors.index.json says that "
                                                                 "tensor 'more' is in it"),
                                  ({"more": "model-00001-of-00002.safetensors"}, "tensor 'more' is not in model-00001-of-00002.safetensors, where the index says"),
                                  ({"a.weight": "model-00002-of-00002.safetensors"}, "tensor 'a.weight' is in model-00001-of-00002.safetensors, but the index "
                                                                                     "says model-00002-of-00002.safetensors")):
            self.divide(**changes)
            self.assertIn(sentence, self.run_program("test.yaml", "--fresh", code=DATA)[1])
        for index, sentence in (("{}", "it lists no tensors"), ("[", "not a list of the files of tensors: "), ('{"weight_map": 1}', "it lists no tensors")):
            self.write("hf/model.safetensors.index.json", index)
            self.assertIn(sentence, self.run_program("test.yaml", "--fresh", code=DATA)[1])
        self.divide()
        with open(self.path("hf/model-00002-of-00002.safetensors"), "r+b") as f:
            f.truncate(200)
        self.assertIn("model-00002-of-00002.safetensors: ", self.run_program("test.yaml", "--fresh", code=DATA)[1])

    def test_a_table_with_more_rows(self):
        self.write("test.yaml", "dataset: {format: synthetic, synthetic: {kind: classes, rows: 8, inputs: 4, classes: 2}}\nsampler: {batch_size: 4}\n"
                                "model: {init_from: {file: w.safetensors, partial: true}, layers: [{linear: {name: a, out: 6}}, {reshape: [2, 3]}, "
                                "{positional_embedding: {name: wpe, num_embeddings: 2}}, flatten, {linear: {name: b, out: 2}}]}\n"
                                "loss: cross_entropy\noptimizer: sgd\ntrain: {steps: 1}\n")
        write_safetensors(self.path("w.safetensors"), {"wpe.weight": ("F32", np.zeros((5, 3), "<f4")), "a.weight": ("F32", np.zeros((7, 4), "<f4"))})
        _, err = self.run_program("test.yaml", "--fresh", code=DATA)
        self.assertIn("wpe.weight of the file is (5, 3); wpe.weight of the model is (2, 3); it matches with `num_embeddings: 5` of the layer\n", err)
        self.assertRegex(err, r"a.weight of the model is \(6, 4\)\n")

    def test_conflicts(self):
        m = self.model
        same = dict(m, other=m["a.bias"])
        self.load(same, "other: a.bias")
        self.assert_loaded(m)
        self.assertIn("a.bias and other of the file are both for a.bias and differ", self.load(dict(same, other=m["b.bias"]), "other: a.bias", code=DATA))
        self.assertIn("a.bias and other of the file are both for a.bias", self.load(same, "other: [a.bias, part 1 of 1]", code=DATA))
        parts = {n: t for n, t in m.items() if n != "a.bias"}
        parts.update(p=m["a.bias"][:3], q=m["a.bias"][3:])
        err = self.load(parts, "p: [a.bias, part 1 of 3], q: [a.bias, part 3 of 3]", code=DATA)
        self.assertIn("p of the file is (3,) (part 1 of 3), q of the file is (3,) (part 3 of 3); 3 parts, each once, must give the rows of a.bias", err)
        bad = dict(m, other=np.full((1, 4), np.nan, "<f4"))
        self.assertIn("tensor 'other': value 0 (from 0) is NaN", self.load(bad, "other: [a.weight, add row 0]", code=DATA))
        self.assertIn("whose rows cannot be added to row 1", self.load(bad, "other: [a.weight, add row 1]", code=DATA).replace("other of the file is (1, 4); a.weight of the model is (6, 4), ", ""))

    def test_checkpoints_have_no_map(self):
        self.load(self.model, "a.bias: a.bias")
        self.write("test.yaml", self.read("test.yaml").replace("w.safetensors", self.checkpoints()[-1]))
        self.run_program("test.yaml", "--run-dir", "runs/b", code=USAGE, err="map, skip and partial are for safetensors files and those of torch.save")

    def test_patterns_without_a_tensor(self):
        """A typo in `skip` would load the head that is to be left out."""
        for rules, options, what in (("'hed.**': c.bias", "", "map: the pattern 'hed.**'"), ("a.bias: a.bias", ", skip: ['d.*']", "skip: the pattern 'd.*'"),
                                     ("a.bias: a.bias", ", skip: ['d.*'], partial: true", "skip: the pattern 'd.*'")):
            err = self.load(self.model, rules, options, code=DATA)
            self.assertIn(f"w.safetensors: does not match the model:\n  {what} matches no tensor of the file\n", err)
        self.load(self.model, "'hed.**': c.bias", ", partial: true")
        self.load({f"h.{n}": t for n, t in self.model.items()}, "'h.**': '**'", ", skip: ['h.c.*'], partial: true")

    def test_wrong_rules(self):
        for rules, sentence in (("a: [b, transposed now]", "the rule of 'a' has an operation that does not exist; they are transpose, as is,"),
                                ("a: 'b.*'", "the rule of 'a' has more wildcards than its pattern"),
                                ("a: [b, part 0 of 2]", "the rule of 'a' has a part that is not from 1 to N"),
                                ("a: [b, part 3 of 2]", "the rule of 'a' has a part that is not from 1 to N"),
                                ("a: [b, c, reshape]", "the rule of 'a' divides a tensor among several parameters"),
                                ("a: [transpose]", "the rule of 'a' names no parameter"),
                                ("a: [b, transpose, add row 0]", "the rule of 'a' has another operation beside add row"),
                                ("'***': b", "the pattern '***' has three '*' in a row"),
                                ("'**.**.**': b", "the pattern '**.**.**' has more than 2 wildcards '**'"),
                                ("'*.*.*.*.*.*.*': b", "has more than 6 wildcards")):
            with self.subTest(rules):
                self.assertIn("test.yaml:6:42: model.init_from.map: ", err := self.load(self.model, rules, code=USAGE))
                self.assertIn(sentence, err)
        self.assertIn("model.init_from.map: 'gpt3' is no map; expected one of gpt2, llama, bert, vit, resnet", self.load(self.model, "gpt3", code=USAGE))
