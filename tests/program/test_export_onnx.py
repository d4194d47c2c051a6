"""The ONNX file of export, read with the standard library: its structure and weights. scripts/check_onnx.py compares its
outputs with predict. ctest-labels: unit"""
import json, os, re, struct

import numpy as np

import program
import test_export_c
from program import USAGE


def fields(message):
    """A message of Protocol Buffers as {field: [values]}; messages and texts stay bytes."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            value = varint()
        elif tag & 7 == 5:
            value, at = struct.unpack("<f", message[at:at + 4])[0], at + 4
        else:
            assert tag & 7 == 2, tag
            size = varint()
            value, at = message[at:at + size], at + size
            assert len(value) == size
        found.setdefault(tag >> 3, []).append(value)
    return found


def texts(node, field):
    return [value.decode() for value in node.get(field, [])]


class Graph:
    """nodes: (operator, inputs, outputs); tensors: name -> array; inputs, outputs: name -> (type, dimensions)."""
    def __init__(self, path):
        with open(path, "rb") as f:
            model = fields(f.read())
        self.ir_version, self.opset = model[1][0], fields(model[8][0])[2][0]
        self.metadata = {fields(p)[1][0].decode(): json.loads(fields(p)[2][0]) for p in model.get(14, [])}
        graph = fields(model[7][0])
        self.nodes = [(texts(n, 4)[0], texts(n, 1), texts(n, 2)) for n in map(fields, graph[1])]
        self.options = [dict(map(attribute, fields(n).get(5, []))) for n in graph[1]]
        types = {1: "<f4", 7: "<i8", 11: "<f8"}
        self.tensors = {}
        for t in map(fields, graph.get(5, [])):
            assert texts(t, 8)[0] not in self.tensors, "two tensors have one name"
            if t[2][0] == 8:
                self.tensors[texts(t, 8)[0]] = np.array(texts(t, 6)).reshape(t[1])
                continue
            self.tensors[texts(t, 8)[0]] = np.frombuffer(t[9][0], types[t[2][0]]).reshape(t.get(1, []))
        self.inputs, self.outputs = ({texts(v, 1)[0]: self.value(v) for v in map(fields, graph[k])} for k in (11, 12))

    def run(self, rows):
        """The value of `outputs`, for the operators that compute() has. Several inputs: parts of a row, one after another."""
        values, at, rows = {**self.tensors, "": None}, 0, rows.reshape(len(rows), -1)
        for name, (kind, (_, *shape)) in self.inputs.items():
            part = rows[:, at:at + int(np.prod(shape))]
            values[name], at = part.reshape(-1, *shape).astype({1: float, 7: int}[kind]), at + part.shape[1]
        for (operator, names, results), options in zip(self.nodes, self.options):
            values.update(zip(results, compute(operator, options, [values[name] for name in names])))
        return values["outputs"]

    @staticmethod
    def value(info):
        tensor = fields(fields(info[2][0])[1][0])
        dims = [fields(d) for d in fields(tensor[2][0])[1]]
        return tensor[1][0], [d[1][0] if 1 in d else d[2][0].decode() for d in dims]


def attribute(message):
    """Name and value of an attribute: a number, a text, or a list."""
    a = fields(message)
    values = {1: a.get(2), 2: a.get(3), 3: a.get(4), 7: a.get(8), 8: a.get(9)}[a[20][0]]
    values = [v.decode() if isinstance(v, bytes) else v - (v >= 1 << 63) * (1 << 64) for v in values or [0]]
    return a[1][0].decode(), values if a[20][0] > 3 else values[0]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def recurrent(operator, options, x, w, r, b=None, lengths=None):
    """ONNX's LSTM, GRU (linear_before_reset) and RNN, from their definitions: the outputs and the last states. A row of fewer
    steps than the others is computed by itself."""
    directions, hidden = len(w), r.shape[2]
    if lengths is not None:
        outputs, last = np.zeros((len(x), directions, x.shape[1], hidden)), np.zeros((directions, x.shape[1], hidden))
        for i, n in enumerate(lengths):
            outputs[:n, :, i:i + 1], last[:, i:i + 1] = recurrent(operator, options, x[:n, i:i + 1], w, r, b)
        return outputs, last
    b = np.zeros((directions, 2 * w.shape[1])) if b is None else b
    outputs, last = np.zeros((len(x), directions, x.shape[1], hidden)), []
    for d in range(directions):
        h, c = (np.zeros((x.shape[1], hidden)) for _ in range(2))
        wb, rb = np.split(b[d], 2)
        for t in reversed(range(len(x))) if d else range(len(x)):
            a, s = x[t] @ w[d].T + wb, h @ r[d].T + rb
            if operator == "LSTM":
                i, o, f, g = np.split(a + s, 4, 1)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            elif operator == "GRU":
                (az, ar, an), (sz, sr, sn) = np.split(a, 3, 1), np.split(s, 3, 1)
                z = sigmoid(az + sz)
                h = (1 - z) * np.tanh(an + sigmoid(ar + sr) * sn) + z * h
            else:
                h = {"Tanh": np.tanh, "Relu": lambda v: np.maximum(v, 0)}[options["activations"][d]](a + s)
            outputs[t, d] = h
        last.append(h)
    return outputs, np.stack(last)


def compute(operator, options, x):
    """The outputs of a node in float64."""
    if operator in ("LSTM", "GRU", "RNN"):
        return recurrent(operator, options, *x)
    if operator == "Slice":
        starts, ends, axes = (v.tolist() for v in x[1:])
        index = [slice(None)] * x[0].ndim
        for start, end, axis in zip(starts, ends, axes):
            index[axis] = slice(start, end)
        return [x[0][tuple(index)]]
    if operator == "Reshape":
        return [x[0].reshape([x[0].shape[i] if n == 0 else n for i, n in enumerate(x[1].tolist())])]
    if operator in ("ReduceMean", "ReduceMax", "ReduceSum"):
        reduce = {"ReduceMean": np.mean, "ReduceMax": np.max, "ReduceSum": np.sum}[operator]
        return [reduce(x[0], tuple(x[1].tolist()), keepdims=bool(options.get("keepdims", 1)))]
    if operator == "Pad":
        before, after = np.split(x[1], 2)
        mode = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}[options["mode"]]
        return [np.pad(x[0], list(zip(before, after)), mode, **({"constant_values": x[2].item()} if mode == "constant" else {}))]
    if operator == "LayerNormalization":
        centered = x[0] - x[0].mean(-1, keepdims=True)
        return [centered / np.sqrt((centered ** 2).mean(-1, keepdims=True) + options["epsilon"]) * x[1] + x[2]]
    if operator == "Softmax":
        e = np.exp(x[0] - x[0].max(-1, keepdims=True))
        return [e / e.sum(-1, keepdims=True)]
    return [{"Gemm": lambda: x[0] @ x[1].T + (x[2] if len(x) > 2 else 0), "MatMul": lambda: x[0] @ x[1],
             "Add": lambda: x[0] + x[1], "Sub": lambda: x[0] - x[1], "Mul": lambda: x[0] * x[1],
             "Exp": lambda: np.exp(x[0]), "Tanh": lambda: np.tanh(x[0]), "Cast": lambda: x[0].astype({1: float, 6: int, 7: int, 11: float}[options["to"]]), "Identity": lambda: x[0],
             "Concat": lambda: np.concatenate(x, options["axis"]), "Transpose": lambda: x[0].transpose(options["perm"]),
             "Div": lambda: x[0] / x[1], "Max": lambda: np.maximum(x[0], x[1]), "Min": lambda: np.minimum(x[0], x[1]),
             "Equal": lambda: x[0] == x[1], "Less": lambda: x[0] < x[1], "Where": lambda: np.where(*x),
             "Unsqueeze": lambda: np.expand_dims(x[0], tuple(x[1])),
             "Gather": lambda: np.take(x[0], x[1], options.get("axis", 0))}[operator]()]


class ExportOnnx(program.Case):
    train = test_export_c.ExportC.train

    def test_every_layer(self):
        """Every value is computed before it is used; weights are those of the checkpoint; the batch is symbolic."""
        import h5py
        for name, (shape, outputs, layers) in test_export_c.LAYERS.items():
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
                    self.assertFalse(set(results) & known, operator)
                    known |= set(results)
                self.assertIn("outputs", known)
                with h5py.File(self.checkpoints()[-1]) as f:
                    for tensor in f["model"]:
                        if re.search(r"_l\d", tensor):  # of a recurrent layer: ONNX has its gates in another order
                            continue
                        np.testing.assert_array_equal(graph.tensors[tensor], f["model"][tensor][:])

    def test_values(self):
        """The graph, computed by NumPy, gives what predict gives: joins, rotations, attention, the gates of recurrent layers."""
        import h5py
        for name in "joins", "mean", "parts", "products", "rotary", "interleaved", "grouped", "lstm", "gru", "rnn":
            with self.subTest(name):
                x = self.train(*test_export_c.LAYERS[name])
                self.run_program("export", "runs/test", "--out", "m.onnx")
                self.run_program("predict", "test.yaml", "--part", "all", "--out", "p.h5")
                with h5py.File(self.path("p.h5")) as f:
                    np.testing.assert_allclose(Graph(self.path("m.onnx")).run(x), f["outputs"][:], rtol=1e-4, atol=1e-5)

    def compare(self, rows):
        """The graph of the newest run, computed by NumPy, with predict."""
        import h5py
        self.run_program("export", "runs/test", "--out", "m.onnx")
        self.run_program("predict", "test.yaml", "--part", "all", "--out", "p.h5")
        graph = Graph(self.path("m.onnx"))
        with h5py.File(self.path("p.h5")) as f:
            got = graph.run(rows)
            np.testing.assert_allclose(got, f["outputs"][:len(got)].reshape(got.shape), rtol=1e-4, atol=1e-5)
        used = {name for _, inputs, _ in graph.nodes for name in inputs} | {"outputs"}
        self.assertLessEqual({name for _, _, outputs in graph.nodes for name in outputs}, used | {""})
        self.assertLessEqual(set(graph.tensors), used)

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

    def test_refused(self):
        self.train((4,), 3, "[{linear: 3}, {batch_norm: {track_running_stats: false}}]")
        _, err = self.run_program("export", "runs/test", "--out", "m.onnx", code=USAGE)
        test_export_c.check_refusal(self, err)
        self.assertFalse(os.path.exists(self.path("m.onnx")))


if __name__ == "__main__":
    program.main()
