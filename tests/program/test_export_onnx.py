"""The ONNX file of export, read with the standard library: its structure, weights and values. tests/proof/check_onnx.py compares the
values of a runtime. ctest-labels: unit"""
import csv, datetime, math, os, re, subprocess, unittest

import numpy as np

import program
import test_export_c
from onnx_graph import Graph
from program import IO, SANITIZER, USAGE


# shape of a row: layers, each with its keys in turn, so that each key decides about values or sizes of the last layer of a path.
ATTRIBUTES = {
    (2, 7, 9): [
        "{conv2d: {out: 3, kernel_size: [2, 3], stride: [2, 3]}}", "{conv2d: {out: 3, kernel_size: [2, 3], padding: [2, 1]}}", "{conv2d: {out: 3, kernel_size: [2, 3], dilation: [3, 2]}}",
        "{conv2d: {out: 4, kernel_size: 2, groups: 2, bias: false}}", "{conv2d: {out: 3, kernel_size: [2, 4], padding: same, dilation: [1, 2]}}",
        "{conv_transpose2d: {out: 3, kernel_size: [2, 3], stride: [2, 3]}}", "{conv_transpose2d: {out: 3, kernel_size: [3, 4], padding: [1, 2]}}",
        "{conv_transpose2d: {out: 3, kernel_size: [2, 3], dilation: [3, 2]}}", "{conv_transpose2d: {out: 3, kernel_size: 2, stride: [2, 4], output_padding: [1, 3]}}",
        "{conv_transpose2d: {out: 3, kernel_size: [2, 3], stride: [3, 2], dilation: [3, 2], output_padding: [2, 1]}}", "{conv_transpose2d: {out: 4, kernel_size: 2, groups: 2, bias: false}}",
        "{max_pool2d: {kernel_size: [2, 3]}}", "{max_pool2d: {kernel_size: [2, 3], stride: [1, 2]}}", "{max_pool2d: {kernel_size: [2, 3], padding: [0, 1]}}", "{max_pool2d: {kernel_size: 2, ceil_mode: true}}",
        *(f"{{tanh: {{name: t}}}}, {{max_pool2d: {{{keys}}}}}, {{max_unpool2d: {{{keys}, from: t}}}}" for keys in
          ("kernel_size: [2, 3]", "kernel_size: 2, stride: [4, 3]", "kernel_size: [2, 3], padding: [1, 0]", "kernel_size: 2, ceil_mode: true")),
        "{avg_pool2d: {kernel_size: [2, 3]}}", "{avg_pool2d: {kernel_size: [2, 3], stride: [1, 2]}}", "{avg_pool2d: {kernel_size: [2, 3], padding: [1, 0]}}",
        "{avg_pool2d: {kernel_size: [2, 3], padding: [0, 1], count_include_pad: false}}", "{avg_pool2d: {kernel_size: 2, padding: 1, ceil_mode: true}}", "{avg_pool2d: {kernel_size: [2, 3], divisor_override: 5}}",
        "{adaptive_avg_pool2d: {output_size: [3, 2]}}", "{adaptive_max_pool2d: {output_size: [2, 5]}}", "{batch_norm: {eps: 0.5}}", "{batch_norm: {affine: false}}",
        "{group_norm: {num_groups: 2, eps: 0.5}}", "{group_norm: {num_groups: 1, affine: false, eps: 0}}", "{instance_norm: {eps: 0.5}}", "{instance_norm: {affine: true, eps: 0}}", "{prelu: {num_parameters: 2}}", "{layer_scale2d: {}}",
        "{upsample: {scale_factor: [2, 1.5]}}", "{upsample: {size: [3, 11]}}", "{upsample: {scale_factor: [1.5, 2], mode: bilinear}}", "{upsample: {size: [11, 4], mode: bilinear, align_corners: true}}",
        "{pad: {padding: [1, 2, 3, 0]}}", "{pad: {padding: [1, 0, 2, 3], value: -0.7}}", "{pad: {padding: [1, 2, 3, 0], mode: reflect}}", "{pad: {padding: [1, 2, 3, 0], mode: replicate}}",
        "{permute: {dims: [0, 3, 1, 2]}}", "{reshape: {shape: [-1, 14]}}", "{slice: {start: 3, end: 6, dim: 2}}", "{slice: {end: 1}}", "{mean: {dim: [2, 3]}}", "{mean: {dim: 3, keepdim: true}}",
        "{max: {dim: 2}}", "{max: {dim: 3, keepdim: true}}", "{tanh: {name: t}}, {concat: {from: [t, t], dim: 3}}", "{linear: {out: 9, name: t}}, {split: {split_size: [2, 7], dim: 3, names: [p, q]}}, {concat: {from: [q, p], dim: 3}}",
        "{linear: {out: 8, name: t}}, {chunk: {chunks: 2, dim: 3, names: [p, q]}}, {multiply: {from: [p, q]}}"],
    (4, 6, 8): ["{unfold: {kernel_size: [3, 2]}}", "{unfold: {kernel_size: 2, stride: [2, 3], padding: [1, 0], dilation: [1, 3]}}", "{pixel_shuffle: {upscale_factor: 2}}", "{pixel_unshuffle: {downscale_factor: 2}}", "{patch_embedding: {embed_dim: 5, patch_size: [3, 2]}}",
                "{patch_embedding: {embed_dim: 5, patch_size: 2, bias: false}}"],
    (2, 11): [
        "{conv1d: {out: 3, kernel_size: 3, stride: 2}}", "{conv1d: {out: 3, kernel_size: 3, padding: 2}}", "{conv1d: {out: 3, kernel_size: 3, dilation: 2}}", "{conv1d: {out: 4, kernel_size: 3, groups: 2, bias: false}}",
        "{conv_transpose1d: {out: 3, kernel_size: 3, stride: 2, output_padding: 1}}", "{conv_transpose1d: {out: 4, kernel_size: 3, padding: 1, dilation: 2}}",
        "{conv_transpose1d: {out: 4, kernel_size: 2, groups: 2, bias: false}}", "{max_pool1d: {kernel_size: 3}}", "{max_pool1d: {kernel_size: 3, stride: 2, padding: 1}}", "{max_pool1d: {kernel_size: 2, ceil_mode: true}}",
        "{avg_pool1d: {kernel_size: 3}}", "{avg_pool1d: {kernel_size: 3, stride: 2, padding: 1}}", "{avg_pool1d: {kernel_size: 3, padding: 1, count_include_pad: false}}", "{avg_pool1d: {kernel_size: 2, ceil_mode: true}}",
        *(f"{{tanh: {{name: t}}}}, {{max_pool1d: {{{keys}}}}}, {{max_unpool1d: {{{keys}, from: t}}}}" for keys in
          ("kernel_size: 3", "kernel_size: 2, stride: 4, padding: 1", "kernel_size: 2, ceil_mode: true")),
        "{adaptive_avg_pool1d: {output_size: 4}}", "{adaptive_max_pool1d: {output_size: 4}}",
        "{upsample: {scale_factor: 1.5, mode: linear}}", "{pad: {padding: [3, 2], mode: circular}}"],
    (2, 5, 4, 6): [
        "{conv3d: {out: 3, kernel_size: [3, 2, 1], stride: [1, 2, 3]}}", "{conv3d: {out: 3, kernel_size: [2, 1, 3], padding: [0, 1, 2]}}", "{conv3d: {out: 3, kernel_size: 2, dilation: [3, 2, 1]}}",
        "{conv_transpose3d: {out: 3, kernel_size: [3, 2, 1], stride: [2, 3, 1], output_padding: [1, 2, 0]}}", "{conv_transpose3d: {out: 4, kernel_size: 2, padding: [0, 2, 1], dilation: [1, 3, 2]}}",
        "{conv_transpose3d: {out: 4, kernel_size: 2, groups: 2, bias: false}}", "{rrelu: {lower: -0.2, upper: 0.5}}", "{dropout3d: {p: 0.3}}", "{alpha_dropout: {p: 0.3}}", "{feature_alpha_dropout: {p: 0.3}}",
        "{pad: {padding: [1, 2, 0, 3, 2, 1], mode: reflect}}", "{pad: {padding: 2, mode: circular}}", "{pad: {padding: [1, 0, 2, 1, 3, 2], value: -1}}",
        "{conv3d: {out: 3, kernel_size: [2, 4, 3], padding: same, dilation: [2, 1, 1]}}", "{conv3d: {out: 4, kernel_size: 2, groups: 2, bias: false}}", "{max_pool3d: {kernel_size: [3, 2, 1]}}", "{max_pool3d: {kernel_size: 2, stride: [1, 2, 3], padding: [0, 1, 1]}}",
        *(f"{{tanh: {{name: t}}}}, {{max_pool3d: {{{keys}}}}}, {{max_unpool3d: {{{keys}, from: t}}}}" for keys in
          ("kernel_size: [3, 2, 1]", "kernel_size: 2, stride: [2, 3, 4], padding: [0, 1, 1]", "kernel_size: 2, stride: 3, ceil_mode: true")),
        "{max_pool3d: {kernel_size: 2, stride: 3, ceil_mode: true}}", "{avg_pool3d: {kernel_size: [3, 2, 1]}}", "{avg_pool3d: {kernel_size: 2, stride: [1, 2, 3], padding: [0, 1, 1]}}",
        "{avg_pool3d: {kernel_size: 2, padding: 1, count_include_pad: false}}", "{avg_pool3d: {kernel_size: 2, stride: 3, ceil_mode: true}}", "{avg_pool3d: {kernel_size: [3, 2, 1], divisor_override: 5}}",
        "{adaptive_avg_pool3d: {output_size: [2, 3, 4]}}", "{adaptive_max_pool3d: {output_size: [3, 1, 2]}}"],
    (5, 8): [
        "{reshape: [10, 4]}, {fold: {output_size: [3, 5], kernel_size: [2, 5], stride: [1, 3], padding: [1, 0], dilation: 1}}", "{reshape: [10, 4]}, {fold: {output_size: [2, 5], kernel_size: [1, 2], dilation: [1, 3], stride: 1}}",
        "{linear: {out: 3, bias: false}}", "{linear: {out: 3}}", "{gelu: {approximate: tanh}}", "{leaky_relu: {negative_slope: 0.3}}", "{elu: {alpha: 0.4}}", "{celu: {alpha: 0.4}}", "{softplus: {beta: 2, threshold: 0.5}}", "{softplus: {beta: 0.5}}", "{glu: {dim: -1}}", "{permute: [0, 2, 1]}, {glu: {dim: 1}}",
        "{hardtanh: {min_val: -0.8, max_val: 0.6}}", "{threshold: {threshold: -0.3, value: 0.2}}", "{softshrink: {lambd: 0.2}}", "{hardshrink: {lambd: 0.2}}", "{layer_scale: {}}", "{positional_embedding: {}}",
        "{layer_norm: {eps: 0.5}}", "{layer_norm: {elementwise_affine: false}}", "{layer_norm: {bias: false}}", "{rms_norm: {eps: 0.5}}", "{rms_norm: {elementwise_affine: false}}",
        "{attention: {heads: 2}}", "{attention: {heads: 4, causal: true}}", "{attention: {heads: 1, bias: false}}", "{linear: 24}, {scaled_dot_product_attention: {heads: 2}}",
        "{linear: 24}, {scaled_dot_product_attention: {heads: 4, causal: true}}", "{linear: 16}, {scaled_dot_product_attention: {heads: 4, num_kv_heads: 2}}",
        "{linear: {out: 8, name: q}}, {linear: 8}, {cross_attention: {heads: 2, from: q}}", "{linear: {out: 8, name: q}}, {linear: 8}, {cross_attention: {heads: 1, bias: false, from: q}}",
        "{reshape: {shape: [5, 8], name: rows}}, {reshape: {shape: [8, 5], name: m}}, {linear: {out: 4, name: q}}, {linear: {out: 4, from: rows, name: kv}}, {cross_attention: {heads: 2, mask: add, from: [q, kv, m]}}",
        "{expression: {value: x * sigmoid(x) - mean(x)}}", "{rotary_embedding: {head_size: 4}}", "{rotary_embedding: {head_size: 4, heads: 1}}", "{rotary_embedding: {head_size: 4, base: 7}}", "{rotary_embedding: {head_size: 4, interleaved: true}}",
        *(f"{{{kind}: {{hidden_size: 3{keys}}}}}" for kind in ("lstm", "gru", "rnn") for keys in ("", ", num_layers: 2", ", bias: false", ", bidirectional: true", ", output: last")), "{rnn: {hidden_size: 3, nonlinearity: relu}}",
        *(f"{{{kind}: {{hidden_size: 3, initial_state: learned, last_state: h}}}}, {{flatten: {{from: h}}}}" for kind in ("lstm", "gru", "rnn"))],
}
# What a file does not say: of training, of initial weights, or given by shapes; and types that other tests have, since they take tokens or layers.
NOT_EXPORTED = {"dropout", "momentum", "sync", "init", "init_values", "num_embeddings", "track_running_stats", "tie", "names",
                "carry_state"}  # test_recurrent.py exports it, with the rows that it needs
OTHER_TYPES = {"sequential", "repeat", "residual", "parallel", "embedding", "embedding_bag", "drop_path"}


class ExportOnnx(program.Case):
    train = test_export_c.ExportC.train

    def test_every_layer(self):
        """Every value is computed before it is used; weights are those of the checkpoint; the batch is symbolic."""
        import h5py
        for name, (shape, outputs, layers) in list(test_export_c.LAYERS.items())[::4 if SANITIZER else 1]:  # test_values exports all
            with self.subTest(name):
                self.train(shape, outputs, layers)
                self.run_program("export", "runs/test", "--out", "m.onnx")
                graph = Graph(self.path("m.onnx"))
                self.assertEqual((graph.ir_version, graph.opset), (10, 22))
                self.assertEqual(graph.inputs, {"inputs": (1, ["batch", *shape])})
                self.assertEqual(graph.outputs, {"outputs": (1, ["batch", outputs])})
                known = set(graph.tensors) | set(graph.inputs)
                for operator, inputs, results in graph.nodes:
                    self.assertLessEqual(set(inputs), known | {""}, operator)
                    self.assertFalse(set(results) & known - {""}, operator)
                    known |= set(results)
                self.assertIn("outputs", known)
                with h5py.File(self.checkpoints()[-1]) as f:
                    for tensor in f["model"]:
                        if re.search(r"_l\d", tensor):  # of a recurrent layer: ONNX has its gates in another order
                            continue
                        np.testing.assert_array_equal(graph.tensors[tensor], f["model"][tensor][:])

    def test_values(self):
        """The graph of every layer, computed by NumPy, gives what predict gives."""
        for name, model in test_export_c.LAYERS.items():
            with self.subTest(name):
                # outside of training the variance of sample_normal is not read
                self.compare(self.train(*model), unread={"/3", "variance.weight", "variance.bias"} if name == "sample_normal" else set())

    def test_every_attribute(self):
        """Of each layer, as the last one of a path; many paths are one model."""
        for shape, paths in ATTRIBUTES.items():
            for first in range(0, len(paths), 8):
                part = paths[first:first + 8]
                try:
                    self.compare(self.train(shape, 2, f"[{{parallel: {{branches: [{', '.join(f'[{path}, flatten]' for path in part)}]}}}}, {{linear: 2}}]"))
                except Exception:
                    for path in part:  # which one it is
                        with self.subTest(path):
                            self.compare(self.train(shape, 2, f"[{path}, flatten, {{linear: 2}}]"))
                    raise

    def test_attributes_are_complete(self):
        paths = [path for paths in ATTRIBUTES.values() for path in paths]
        out, _ = self.run_program("--help-config", "model.layers")
        for kind in re.findall(r"^  ([a-z]\w+)  ", out.split("Keys of every layer")[0], re.M):
            keys, _ = self.run_program("--help-config", f"model.layers.{kind}")
            of_kind = [path for path in paths if re.search(rf"\b{kind}: \{{", path)]
            for key in set() if kind in OTHER_TYPES else set(re.findall(r"^  ([a-z]\w+)  ", keys.split("Keys of every layer")[0], re.M)) - NOT_EXPORTED - {"name", "from", "share"}:
                self.assertTrue([path for path in of_kind if re.search(rf"\b{key}: ", path)], f"no case of ATTRIBUTES has {kind}.{key}")

    def compare(self, rows, unread=frozenset()):
        """The graph of the newest run, computed by NumPy, with predict."""
        import h5py
        self.run_program("export", "runs/test", "--out", "m.onnx")
        self.run_program("predict", "test.yaml", "--part", "all", "--out", "p.h5")
        graph = Graph(self.path("m.onnx"))
        with h5py.File(self.path("p.h5")) as f:
            got = graph.run(rows)
            np.testing.assert_allclose(got, f["outputs"][:len(got)].reshape(got.shape), rtol=1e-4, atol=1e-5)
        used = {name for _, inputs, _ in graph.nodes for name in inputs} | {"outputs"}
        maxima = {outputs[0] for operator, _, outputs in graph.nodes if operator == "MaxPool" and len(outputs) == 2}  # of which the positions are read
        self.assertLessEqual({name for _, _, outputs in graph.nodes for name in outputs}, used | {""} | unread | maxima)
        self.assertLessEqual(set(graph.tensors), used | unread)

    def test_rows_of_different_lengths(self):
        """The graph derives lengths from padding_idx, or takes them as an input, and leaves padding out as predict does."""
        for name in test_export_c.PADDED:
            with self.subTest(name):
                config, rows = test_export_c.write_padded(self.folder, name)
                self.write("test.yaml", config)
                self.run_program("test.yaml", "--fresh")
                self.compare(rows)

    def test_lengths_are_an_input(self):
        config, _ = test_export_c.write_padded(self.folder, "series_last")
        self.write("test.yaml", config)
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        self.assertEqual(Graph(self.path("m.onnx")).inputs, {"series": (1, ["batch", 9, 3]), "steps": (1, ["batch", 1])})

    def test_padded_text_and_bags(self):
        """Tokens of a text: attention and a recurrent layer without padding, and the vectors of all tokens of a row."""
        self.write("text.txt", "to be or not to be,        that is the question. " * 30)
        text = self.read("text.txt")
        known = sorted(set(text))
        rows = np.array([[known.index(c) for c in text[i:i + 6]] for i in range(40)])
        self.assertTrue((rows == 0).all(1).any() and (rows[:, -1] == 0).any())
        self.write("test.yaml", test_export_c.PADDED_TEXT.replace("CLASSES", str(len(known))))
        self.run_program("test.yaml")
        self.compare(rows)
        for mode in ("mean", "sum", "max"):
            for padding in ("null", "0", "-1"):
                with self.subTest(mode, padding=padding):
                    self.write("test.yaml", test_export_c.BAG.format(size=6, mode=mode, padding=padding, out=6 * len(known), classes=len(known)))
                    self.run_program("test.yaml", "--fresh")
                    self.compare(rows)

    def test_inputs_and_metadata(self):
        self.write("data.csv", "a,b,class\n" + "".join(f"{i},{i * i},{'no yes'.split()[i % 2]}\n" for i in range(20)))
        self.write("test.yaml", "dataset: {path: data.csv, targets: class, scale: standard}\nsampler: {batch_size: 8}\n"
                                "model: {layers: [{linear: 9}, relu, {linear: 2}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        graph = Graph(self.path("m.onnx"))
        self.assertEqual(graph.metadata, {"labels": ["no", "yes"], "columns": ["a", "b"]})
        self.assertEqual([n[0] for n in graph.nodes], ["Cast", "Sub", "Div", "Cast", "Gemm", "Relu", "Gemm", "Identity"])
        np.testing.assert_array_equal(graph.tensors["input_mean"], [9.5, np.mean(np.arange(20) ** 2)])
        self.assertEqual(graph.tensors["input_scale"].dtype, np.dtype("<f8"))

    def test_target_scale(self):
        import h5py
        with h5py.File(self.path("data.h5"), "w") as f:
            f["x"], f["y"] = np.ones((4, 3), "f4"), np.array([[1], [2], [3], [6]], "f4")
        self.write("test.yaml", "dataset: {path: data.h5, target_scale: minmax}\nmodel: {layers: [{linear: 1}]}\nloss: mse\noptimizer: sgd\ntrain: {epochs: 1}\n")
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        graph = Graph(self.path("m.onnx"))
        self.assertEqual([n[0] for n in graph.nodes], ["Gemm", "Cast", "Mul", "Add", "Cast", "Identity"])
        self.assertEqual((graph.tensors["target_scale"].item(), graph.tensors["target_mean"].item()), (5, 1))
        for scale in ("standard", "log1p"):
            self.write("test.yaml", self.read("test.yaml").replace("minmax", scale).replace("standard", scale))
            self.run_program("test.yaml", "--fresh")
            self.run_program("export", "runs/test", "--out", "m.onnx")
            self.run_program("predict", "test.yaml", "--part", "all", "--out", "p.h5")
            with h5py.File(self.path("p.h5")) as f:
                np.testing.assert_allclose(Graph(self.path("m.onnx")).run(np.ones((4, 3))).ravel(), f["prediction"][:], rtol=1e-5)

    def test_prepared_columns(self):
        """An input for each column: text, numbers as double, a date as its parts."""
        test_export_c.write_table(self.path("table.csv"))
        self.write("test.yaml", test_export_c.TABLE.replace("SCALE", "scale: standard").replace("UNKNOWN", "ignore"))
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        graph = Graph(self.path("m.onnx"))
        self.assertEqual(graph.inputs, {"a": (11, ["batch", 1]), "b c": (8, ["batch", 1]), "double": (11, ["batch", 1]), "EOF": (8, ["batch", 1]),
                                        "When": (11, ["batch", 10]), "flag": (11, ["batch", 1]), "column/0.weight": (11, ["batch", 1])})
        self.assertEqual([n[0] for n in graph.nodes][:5], ["IsNaN", "Where", "Cast", "Concat", "Equal"])
        self.assertEqual([n[0] for n in graph.nodes][-8:], ["Concat", "Sub", "Div", "Cast", "Gemm", "Sigmoid", "Gemm", "Identity"])
        known = set(graph.tensors) | set(graph.inputs)
        for operator, inputs, results in graph.nodes:
            self.assertLessEqual(set(inputs), known, operator)
            known |= set(results)

    def test_values_of_prepared_columns(self):
        """Missing ones, categories by text and by number, dates: what predict gives."""
        import h5py
        test_export_c.write_table(self.path("table.csv"))
        with open(self.path("table.csv"), newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(f))

        def date(text):
            if not text:
                return [math.nan] * 10
            d = datetime.datetime.fromisoformat(text).replace(tzinfo=None)  # the time on the clock
            days = (d - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)
            return [d.year, d.month, d.day, d.weekday(), d.timetuple().tm_yday, (d.month + 2) // 3, d.hour, d.minute, d.second, days]
        values = {"b c": [[r["b c"]] for r in rows], "EOF": [[r["EOF"]] for r in rows], "When": [date(r["When"]) for r in rows],
                  "flag": [[float(r["flag"] == "yes")] for r in rows], "column/0.weight": [[float(r["0.weight"] or "nan")] for r in rows],
                  **{name: [[float(r[name] or "nan")] for r in rows] for name in ("a", "double")}}
        for missing, indicator in (("constant", "false"), ("most_frequent", "true")):
            self.write("test.yaml", test_export_c.TABLE.replace("SCALE", "scale: standard").replace("UNKNOWN", "ignore").replace("lr: 0.00001", "lr: 0.01")
                       .replace("EOF: {type: category, missing: constant}", f"EOF: {{type: category, missing: {missing}, indicator: {indicator}}}")
                       .replace("missing: median}\n    0", f"missing: median, indicator: {indicator}}}\n    0"))
            self.run_program("test.yaml", "--fresh")
            self.run_program("export", "runs/test", "--out", "m.onnx")
            self.run_program("predict", "test.yaml", "--part", "all", "--out", "p.h5")
            got = Graph(self.path("m.onnx")).run({name: np.array(value) for name, value in values.items()})
            with h5py.File(self.path("p.h5")) as f:
                np.testing.assert_allclose(got, f["outputs"][:].reshape(got.shape), rtol=1e-4, atol=1e-5)
            self.assertGreater(np.ptp(got), 0.1, "the outputs say nothing about the inputs")

    def test_tokens_and_tied_weights(self):
        self.write("text.txt", "abcd" * 50)
        self.write("test.yaml", "dataset: {path: text.txt, text: {block_size: 4}}\nsampler: {batch_size: 8}\nmodel: {layers: [{embedding: {embedding_dim: 3, "
                                "name: wte}}, {linear: {out: 4, bias: false, tie: wte.weight}}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {steps: 1}\n")
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        graph = Graph(self.path("m.onnx"))
        self.assertEqual(graph.inputs, {"inputs": (7, ["batch", 4])})
        self.assertEqual(list(graph.tensors), ["wte.weight"])
        self.assertEqual([n[0] for n in graph.nodes], ["Gather", "Transpose", "MatMul", "Identity"])

    def test_named_inputs_and_several_outputs(self):
        test_export_c.write_named(self.folder)
        self.write("test.yaml", test_export_c.NAMED.replace("SCALE", ", scale: standard"))
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        graph = Graph(self.path("m.onnx"))
        self.assertEqual(graph.inputs, {"image": (1, ["batch", 2, 5, 4]), "table": (1, ["batch", 5])})
        self.assertEqual(graph.outputs, {"table_output": (1, ["batch", 3]), "pairs": (1, ["batch", 3, 2])})
        results = [r for n in graph.nodes for r in n[2]]
        self.assertEqual(len(set(results)), len(results))

    def test_one_named_input(self):
        rows = self.train((2, 3), 2, "[flatten, {linear: 2}]")
        config = self.read("test.yaml").replace("data.h5", "data.h5, inputs: {seq: x}, targets: y").replace("[flatten", "[{flatten: {from: seq}}")
        self.write("test.yaml", config)
        self.run_program("test.yaml", "--fresh")
        self.compare(rows)
        self.assertEqual(Graph(self.path("m.onnx")).inputs, {"seq": (1, ["batch", 2, 3])})

    def test_names_that_occur_twice(self):
        """Inputs with the names of a weight and of the output; outputs with the names of inputs."""
        self.write("data.csv", "a,b,c,t,u\n" + "".join(f"{i},{i * i % 7},{i % 3},{i % 5},{i % 2}\n" for i in range(20)))
        layers = "[{linear: {out: 1, from: outputs, name: q}}, {linear: {out: 1, from: q.weight, name: r}}, {add: {from: [q, r]}}, {linear: {out: 1, name: z}}]"
        config = "dataset: {{path: data.csv, inputs: {}, targets: {}}}\nsampler: {{batch_size: 8}}\nmodel: {{layers: {}}}\n{}\noptimizer: sgd\ntrain: {{epochs: 1}}\n"
        self.write("test.yaml", config.format("{outputs: [a, b], q.weight: [c]}", "t", layers, "loss: mse"))
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        graph = Graph(self.path("m.onnx"))
        self.assertEqual(list(graph.inputs), ["input/outputs", "input/q.weight"])
        self.assertEqual(list(graph.outputs), ["outputs"])
        layers = "[{linear: {out: 1, from: a, name: a_output}}, {linear: {out: 1, from: x, name: n}}, {add: {from: [a_output, n], name: m}}, {linear: {out: 1, name: s}}]"
        losses = "losses: [{output: a_output, type: mse, target: p, name: a_output}, {output: s, type: mse, target: q, name: a}]"
        self.write("test.yaml", config.format("{a: [a, b], x: [c]}", "{p: t, q: u}", layers, losses))
        self.run_program("test.yaml", "--fresh")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        graph = Graph(self.path("m.onnx"))
        self.assertEqual(len(graph.outputs), 2)
        self.assertFalse(set(graph.outputs) & set(graph.inputs))
        losses = losses.replace("name: a_output", "name: target_p").replace("name: a}", "name: input_s}")
        self.write("test.yaml", config.format("{input_a: [a, b], x: [c]}", "{p: t, q: u}", layers.replace("from: a,", "from: input_a,"), losses))
        self.run_program("test.yaml", "--fresh")
        self.run_program("export", "runs/test", "--out", "m.onnx")
        graph = Graph(self.path("m.onnx"))
        self.assertEqual((list(graph.inputs), list(graph.outputs)), (["input_a", "x"], ["target_p", "input_s"]))

    def test_refused(self):
        self.train((4,), 3, "[{linear: 3}, {batch_norm: {track_running_stats: false}}]")
        _, err = self.run_program("export", "runs/test", "--out", "m.onnx", code=USAGE)
        test_export_c.check_refusal(self, err)
        self.assertFalse(os.path.exists(self.path("m.onnx")))

    @unittest.skipIf(SANITIZER, "the sanitizer has allocations of its own")
    def test_missing_memory(self):
        """For what only the file needs: an error, not a crash or a file of another model."""
        self.write("fail.c", "#include <stddef.h>\nvoid *__libc_malloc(size_t size);\nvoid *__libc_calloc(size_t count, size_t size);\n"
                             "static int fails(size_t bytes) { return bytes >= BYTES && bytes < BYTES + 64; }\n"
                             "void *malloc(size_t size) { return fails(size) ? NULL : __libc_malloc(size); }\n"
                             "void *calloc(size_t count, size_t size) { return fails(count * size) ? NULL : __libc_calloc(count, size); }\n")
        for name, width, floats, layers in (("averages", 200, 101 * 200, "[{adaptive_avg_pool1d: 101}, flatten, {linear: 2}]"),
                                            ("ones", 16411, 16411, "[{layer_norm: {elementwise_affine: false}}, {adaptive_avg_pool1d: 2}, flatten, {linear: 2}]")):
            with self.subTest(name):
                self.train((1, width), 2, layers)
                library = self.path(f"{name}.so")
                subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", f"-DBYTES={4 * floats}", self.path("fail.c"), "-o", library], check=True)
                self.run_program("export", "runs/test", "--out", "m.onnx", code=IO, env={"LD_PRELOAD": library}, err="memory")
                self.assertFalse(os.path.exists(self.path("m.onnx")))
