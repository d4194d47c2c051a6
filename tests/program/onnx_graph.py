"""An ONNX file, read with the standard library, and its operators from their definitions (https://onnx.ai/onnx/operators), in NumPy
with float64, so that the values of a graph can be compared where no ONNX runtime is installed."""
import itertools, json, math, struct

import numpy as np


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
        """The value of `outputs`, for the operators that compute() has. Several inputs: parts of a row, one after another, or a
        dictionary with the rows of each."""
        if isinstance(rows, dict):
            return self.compute({**self.tensors, "": None, **rows})
        values, at, rows = {**self.tensors, "": None}, 0, rows.reshape(len(rows), -1)
        for name, (kind, (_, *shape)) in self.inputs.items():
            part = rows[:, at:at + int(np.prod(shape))]
            values[name], at = part.reshape(-1, *shape).astype({1: float, 7: int}[kind]), at + part.shape[1]
        return self.compute(values)

    def compute(self, values):
        for (operator, names, results), options in zip(self.nodes, self.options):
            values.update(zip(results, compute(operator, options, [values[name] for name in names])))
            values[""] = None  # a result that is left out
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


def recurrent(operator, options, x, w, r, b=None, lengths=None, *initial):
    """ONNX's LSTM, GRU (linear_before_reset) and RNN, from their definitions: the outputs, the last states and the last cell
    states. A row of fewer steps than the others is computed by itself."""
    directions, hidden = len(w), r.shape[2]
    initial = initial + (np.zeros((directions, x.shape[1], hidden)),) * (2 - len(initial))
    if lengths is not None:
        outputs, last = np.zeros((len(x), directions, x.shape[1], hidden)), np.zeros((2, directions, x.shape[1], hidden))
        for i, n in enumerate(lengths):
            outputs[:n, :, i:i + 1], *last[:, :, i:i + 1] = recurrent(operator, options, x[:n, i:i + 1], w, r, b, None, *(s[:, i:i + 1] for s in initial))
        return outputs, *last
    b = np.zeros((directions, 2 * w.shape[1])) if b is None else b
    outputs, last = np.zeros((len(x), directions, x.shape[1], hidden)), []
    for d in range(directions):
        h, c = (state[d] for state in initial)
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
        last.append((h, c))
    return outputs, *(np.stack(states) for states in zip(*last))


def softplus(x):
    return np.logaddexp(0, x)


def gelu(options, x):
    if options.get("approximate") == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gemm(options, a, b, c=0.0):
    """Of matrices only."""
    assert a.ndim == b.ndim == 2 and not options.get("transA")
    return a @ (b.T if options.get("transB") else b) + c


def layer_norm(options, x, scale, bias=0.0):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + options["epsilon"]) * scale + bias


def batch_norm(options, x, *parameters):
    scale, bias, mean, variance = (p.reshape(-1, *[1] * (x.ndim - 2)) for p in parameters)
    return (x - mean) / np.sqrt(variance + options["epsilon"]) * scale + bias


class Window:
    """The places of a kernel in padded images (rows, channels, ...)."""
    def __init__(self, options, pad_value=0.0):
        self.kernel, self.strides = options["kernel_shape"], options["strides"]
        self.dilations = options.get("dilations") or [1] * len(self.kernel)
        self.before, self.after = np.split(np.array(options["pads"]), 2)
        self.extent = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]
        self.pad_value = pad_value

    def pad(self, x):
        return np.pad(x, [(0, 0), (0, 0), *zip(self.before, self.after)], constant_values=self.pad_value)

    def index(self, offset, out):
        """The part of padded images that the kernel's element at [offset] meets, for [out] places."""
        return (slice(None), slice(None), *(slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, n, s in zip(offset, self.dilations, out, self.strides)))

    def offsets(self):
        return itertools.product(*map(range, self.kernel))

    def views(self, x):
        """For each element of the kernel, what it meets: (elements, rows, channels, ...)."""
        padded = self.pad(x)
        out = [(n - e) // s + 1 for n, e, s in zip(padded.shape[2:], self.extent, self.strides)]
        return np.stack([padded[self.index(offset, out)] for offset in self.offsets()])


def convolution(options, x, w, bias=None):
    window, groups = Window(options), options["group"]
    views = window.views(x)
    parts = [np.einsum("knc...,ock->no...", v, f.reshape(*f.shape[:2], -1))
             for v, f in zip(np.split(views, groups, 2), np.split(w, groups, 0))]
    y = np.concatenate(parts, 1)
    return y if bias is None else y + bias.reshape(-1, *[1] * (y.ndim - 2))


def transposed_convolution(options, x, w, bias=None):
    window, groups = Window(options), options["group"]
    size = [(n - 1) * s + e + o for n, s, e, o in zip(x.shape[2:], window.strides, window.extent, options["output_padding"])]
    y = np.zeros((len(x), w.shape[1] * groups, *size))
    for offset in window.offsets():
        parts = [np.einsum("nc...,co->no...", v, f[(slice(None), slice(None), *offset)]) for v, f in zip(np.split(x, groups, 1), np.split(w, groups, 0))]
        y[window.index(offset, x.shape[2:])] += np.concatenate(parts, 1)
    y = y[(slice(None), slice(None), *(slice(b, n - a) for b, a, n in zip(window.before, window.after, size)))]
    return y if bias is None else y + bias.reshape(-1, *[1] * (y.ndim - 2))


def average_pool(options, x):
    window = Window(options)
    counts = len(list(window.offsets())) if options.get("count_include_pad") else window.views(np.ones_like(x)).sum(0)
    return window.views(x).sum(0) / counts


def resize(options, x, _, scales=None, sizes=None):
    """One dimension after the other."""
    for d, axis in enumerate(options["axes"]):
        n = x.shape[axis]
        out = int(sizes[d]) if sizes is not None else math.floor(n * float(scales[d]))
        scale = out / n if sizes is not None else float(scales[d])
        places = {"asymmetric": lambda i: i / scale, "half_pixel": lambda i: (i + 0.5) / scale - 0.5,
                  "align_corners": lambda i: i * (n - 1) / (out - 1)}[options["coordinate_transformation_mode"]](np.arange(out))
        places = np.clip(places, 0, n - 1)
        first = np.floor(places).astype(int)
        second = np.minimum(first + 1, n - 1)
        share = (places - first if options["mode"] == "linear" else np.zeros(out)).reshape(-1, *[1] * (x.ndim - 1 - axis))
        x = np.take(x, first, axis) * (1 - share) + np.take(x, second, axis) * share
    return x


ACTIVATIONS = {
    "Relu": lambda o, x: np.maximum(x, 0), "Sigmoid": lambda o, x: sigmoid(x), "Tanh": lambda o, x: np.tanh(x), "Gelu": gelu,
    "LeakyRelu": lambda o, x: np.where(x < 0, o["alpha"] * x, x), "PRelu": lambda o, x, slope: np.where(x < 0, slope * x, x),
    "Selu": lambda o, x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "Elu": lambda o, x: np.where(x > 0, x, o["alpha"] * np.expm1(np.minimum(x, 0))), "Softplus": lambda o, x: softplus(x),
    "Celu": lambda o, x: np.maximum(x, 0) + np.minimum(o["alpha"] * np.expm1(np.minimum(x, 0) / o["alpha"]), 0), "Softsign": lambda o, x: x / (1 + np.abs(x)),
    "Shrink": lambda o, x: np.where(x < -o["lambd"], x + o["bias"], np.where(x > o["lambd"], x - o["bias"], 0)), "LessOrEqual": lambda o, a, b: a <= b, "Greater": lambda o, a, b: a > b, "Neg": lambda o, x: -x,
    "Mish": lambda o, x: x * np.tanh(softplus(x)), "HardSwish": lambda o, x: x * np.clip(x / 6 + 0.5, 0, 1),
    "HardSigmoid": lambda o, x: np.clip(o["alpha"] * x + o["beta"], 0, 1), "Clip": lambda o, x, low, high: np.clip(x, low, high),
}
OPERATORS = {
    **ACTIVATIONS, "LayerNormalization": layer_norm, "BatchNormalization": batch_norm, "Conv": convolution, "ConvTranspose": transposed_convolution,
    "AveragePool": average_pool, "Resize": resize,
    "GlobalAveragePool": lambda o, x: x.mean(tuple(range(2, x.ndim)), keepdims=True),
    "LogSoftmax": lambda o, x: x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)),
    "Gemm": gemm, "MatMul": lambda o, a, b: a @ b, "Add": lambda o, a, b: a + b, "Sub": lambda o, a, b: a - b,
    "Mul": lambda o, a, b: a * b, "Div": lambda o, a, b: a / b, "Sqrt": lambda o, x: np.sqrt(x), "Exp": lambda o, x: np.exp(x), "Cast": lambda o, x: x.astype({1: float, 6: int, 7: int, 11: float}[o["to"]]),
    "IsNaN": lambda o, x: np.isnan(x), "Identity": lambda o, x: x, "Concat": lambda o, *x: np.concatenate(x, o["axis"]), "Transpose": lambda o, x: x.transpose(o["perm"]),
    "Max": lambda o, a, b: np.maximum(a, b), "Min": lambda o, a, b: np.minimum(a, b), "Equal": lambda o, a, b: a == b, "Less": lambda o, a, b: a < b,
    "Pow": lambda o, a, b: np.power(a, b), "Neg": lambda o, x: -x, "Abs": lambda o, x: np.abs(x), "Sign": lambda o, x: np.sign(x),
    "Floor": lambda o, x: np.floor(x), "Round": lambda o, x: np.round(x), "Log": lambda o, x: np.log(x), "Sin": lambda o, x: np.sin(x),
    "Cos": lambda o, x: np.cos(x), "Not": lambda o, x: ~x, "And": lambda o, a, b: a & b, "Or": lambda o, a, b: a | b,
    "LessOrEqual": lambda o, a, b: a <= b, "Erf": lambda o, x: np.vectorize(math.erf)(x),
    "Where": lambda o, *x: np.where(*x), "Unsqueeze": lambda o, x, axes: np.expand_dims(x, tuple(axes)),
    "Gather": lambda o, x, index: np.take(x, index, o.get("axis", 0)), "Shape": lambda o, x: np.array(x.shape[o["start"]:o["end"]]),
    "Expand": lambda o, x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))),
}


def compute(operator, options, x):
    """The outputs of a node in float64."""
    if operator in ("LSTM", "GRU", "RNN"):
        return recurrent(operator, options, *x)
    if operator == "MaxPool":  # the indices are those of the elements of the whole batch
        views, places = Window(options, -np.inf).views(x[0]), Window(options, -1).views(np.arange(x[0].size).reshape(x[0].shape))
        return [views.max(0), np.take_along_axis(places, views.argmax(0)[None], 0)[0]]
    if operator == "ConstantOfShape":
        return [np.zeros(x[0].tolist())]
    if operator == "ScatterElements":  # of lists
        y = x[0].copy()
        y[x[1]] = x[2]
        return [y]
    if operator == "Slice":
        starts, ends, axes = (v.tolist() for v in x[1:])
        index = [slice(None)] * x[0].ndim
        for start, end, axis in zip(starts, ends, axes):
            index[axis] = slice(start, end)
        return [x[0][tuple(index)]]
    if operator == "Reshape":
        return [x[0].reshape([x[0].shape[i] if n == 0 else n for i, n in enumerate(x[1].tolist())])]
    if operator.startswith("Reduce"):
        reduce = {"ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceSum": np.sum,
                  "ReduceLogSumExp": lambda x, *a, **k: np.log(np.sum(np.exp(x), *a, **k)),
                  "ReduceL2": lambda x, *a, **k: np.sqrt(np.sum(x * x, *a, **k))}[operator]
        return [reduce(x[0], tuple(x[1].tolist()), keepdims=bool(options.get("keepdims", 1)))]
    if operator == "Pad":
        before, after = np.split(x[1], 2)
        mode = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}[options["mode"]]
        return [np.pad(x[0], list(zip(before, after)), mode, **({"constant_values": x[2].item()} if mode == "constant" else {}))]
    if operator == "Col2Im":
        (height, width), (kh, kw) = x[1].tolist(), x[2].tolist()
        top, left, bottom, right = options["pads"]
        (sh, sw), (dh, dw) = options["strides"], options["dilations"]
        oh, ow = ((size + pad - d * (k - 1) - 1) // s + 1 for size, pad, d, k, s in ((height, top + bottom, dh, kh, sh), (width, left + right, dw, kw, sw)))
        columns = x[0].reshape(len(x[0]), -1, kh, kw, oh, ow)
        image = np.zeros((*columns.shape[:2], height + top + bottom, width + left + right))
        for a, b, i, j in itertools.product(range(kh), range(kw), range(oh), range(ow)):
            image[:, :, i * sh + a * dh, j * sw + b * dw] += columns[:, :, a, b, i, j]
        return [image[:, :, top:top + height, left:left + width]]
    if operator == "Softmax":
        e = np.exp(x[0] - x[0].max(-1, keepdims=True))
        return [e / e.sum(-1, keepdims=True)]
    return [OPERATORS[operator](options, *x)]
