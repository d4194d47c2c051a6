"""The model of a ddptrain config as a torch.nn.Module, with the same names of parameters and buffers.

    from pytorch_model import load_config, read_safetensors, Model
    model = Model(load_config("config.yaml")["model"], shape=(13,))      # tokens: shape=(64,), vocabulary=65
    model.load_state_dict(read_safetensors("wine.safetensors"))

An independent second opinion: every layer is PyTorch's own module where PyTorch has one. Needs torch, numpy, yaml.
"""
import fnmatch
import json
import math
import re
import struct
from collections import ChainMap

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-08 as a string; a config means the number."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
                              list("-+.0123456789"))


def parse_yaml(text):
    return yaml.load(text, Loader=_Loader)


def load_config(path):
    with open(path, encoding="utf-8") as file:
        return parse_yaml(file)


def read_safetensors(path):
    types = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = torch.from_numpy(np.frombuffer(data[8 + length + begin:8 + length + end], np.uint8).copy())
        tensors[name] = raw.view(types[entry["dtype"]]).reshape(entry["shape"])
    return tensors


class RMSNorm(nn.Module):  # torch.nn.RMSNorm came with PyTorch 2.4
    def __init__(self, width, eps, affine):
        super().__init__()
        self.eps = torch.finfo(torch.float32).eps if eps is None else eps
        self.weight = nn.Parameter(torch.ones(width)) if affine else None

    def forward(self, x):
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return y if self.weight is None else y * self.weight


class LayerNorm(nn.Module):  # torch.nn.LayerNorm; its bias=False came with PyTorch 2.1
    def __init__(self, width, eps, affine, bias):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width)) if affine else None
        self.bias = nn.Parameter(torch.zeros(width)) if affine and bias else None

    def forward(self, x):
        return functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


class Positions(nn.Embedding):
    def forward(self, x):
        return x + self.weight[:x.shape[1]]


def causal_mask(positions, like):
    return torch.full((positions, positions), float("-inf"), dtype=like.dtype).triu(1)


# ---- rows of different lengths: a tensor (rows, positions, ...) may have an attribute `lengths`, (rows) ----

def lengths_of(x):
    return getattr(x, "lengths", None)


def with_lengths(x, lengths):
    if lengths is not None and x.dim() > 2:
        x.lengths = lengths
    return x


def is_padding(positions, lengths):
    """(rows, positions)"""
    return torch.arange(positions) >= lengths[:, None]


def real_positions(y, t):
    """Outputs and targets without the positions that are padding; `rows` of the outputs: the number of rows."""
    if lengths_of(y) is None:
        return y, t
    real, rows = ~is_padding(y.shape[1], y.lengths), len(y)
    y, t = y[real], t.reshape(*y.shape[:2], *t.shape[2:])[real]
    y.rows = rows
    return y, t


class Embedding(nn.Embedding):
    def forward(self, x):
        x = x.long()
        y = super().forward(x)
        if self.padding_idx is not None:
            last = torch.arange(1, x.shape[1] + 1) * (x != self.padding_idx)
            y.lengths = last.max(1).values.clamp(min=1)
        return y


class EmbeddingBag(nn.EmbeddingBag):
    def forward(self, x):
        return super().forward(x.long())


def without_padding(x, value):
    """[x] with [value] where its positions are padding."""
    return x.masked_fill(is_padding(x.shape[1], x.lengths).reshape(*x.shape[:2], *[1] * (x.dim() - 2)), value)


class Mean(nn.Module):
    def __init__(self, dims, keepdim):
        super().__init__()
        self.dims, self.keepdim = dims, keepdim

    def forward(self, x):
        if 1 in [dim % x.dim() for dim in self.dims] and lengths_of(x) is not None:
            x = without_padding(x, 0).sum(1, True) / x.lengths.reshape(-1, *[1] * (x.dim() - 1))
        return x.mean(self.dims, self.keepdim)


class Max(nn.Module):
    def __init__(self, dim, keepdim):
        super().__init__()
        self.dim, self.keepdim = dim, keepdim

    def forward(self, x):
        if self.dim % x.dim() == 1 and lengths_of(x) is not None:
            x = without_padding(x, float("-inf"))
        return x.max(self.dim, self.keepdim)[0]


class Attention(nn.MultiheadAttention):  # not batch_first: its other arithmetic for that in eval() fails without biases
    def __init__(self, width, heads, causal, bias, dropout):
        super().__init__(width, heads, dropout=dropout, bias=bias)
        self.causal = causal

    def forward(self, x):
        mask = causal_mask(x.shape[1], x) if self.causal else None
        padding = None if lengths_of(x) is None else torch.zeros(x.shape[:2], dtype=x.dtype).masked_fill(
            is_padding(x.shape[1], x.lengths), float("-inf"))
        x = x.transpose(0, 1)
        return super().forward(x, x, x, key_padding_mask=padding, need_weights=False, attn_mask=mask)[0].transpose(0, 1)


class CrossAttention(nn.MultiheadAttention):
    def __init__(self, width, heads, bias, dropout):
        super().__init__(width, heads, dropout=dropout, bias=bias)

    def forward(self, x):
        q, memory = x
        padding = None if lengths_of(memory) is None else torch.zeros(memory.shape[:2], dtype=q.dtype).masked_fill(
            is_padding(memory.shape[1], memory.lengths), float("-inf"))
        query, kv = q.transpose(0, 1), memory.transpose(0, 1)
        y = super().forward(query, kv, kv, key_padding_mask=padding, need_weights=False)[0].transpose(0, 1)
        return with_lengths(y, lengths_of(q))


class DotProductAttention(nn.Module):
    """torch.nn.functional.scaled_dot_product_attention of q, k and v that stand side by side."""

    def __init__(self, heads, causal, kv_heads=None, dropout=0):
        super().__init__()
        self.heads, self.causal, self.kv_heads, self.dropout = heads, causal, kv_heads or heads, dropout

    def forward(self, x):
        rows, positions, width = x.shape
        size = width // (self.heads + 2 * self.kv_heads)
        parts = x.split([self.heads * size, self.kv_heads * size, self.kv_heads * size], 2)
        q, k, v = (t.reshape(rows, positions, -1, size).transpose(1, 2) for t in parts)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        scores = q @ k.transpose(2, 3) / size ** 0.5
        if self.causal:
            scores = scores + causal_mask(positions, x)
        if lengths_of(x) is not None:
            scores = scores.masked_fill(is_padding(positions, x.lengths)[:, None, None], float("-inf"))
        return (functional.dropout(scores.softmax(-1), self.dropout, self.training) @ v).transpose(1, 2).reshape(rows, positions, -1)


class RotaryEmbedding(nn.Module):
    """apply_rotary_pos_emb of Hugging Face's Llama, or of the paper's interleaved pairs, on the first heads."""

    def __init__(self, head_size, heads, base, interleaved):
        super().__init__()
        self.head_size, self.heads, self.base, self.interleaved = head_size, heads, base, interleaved

    def forward(self, x):
        rows, positions, width = x.shape
        count = self.heads * self.head_size if self.heads else width
        rotated, rest = x.split([count, width - count], 2)
        t = rotated.reshape(rows, positions, -1, self.head_size)
        angles = torch.outer(torch.arange(positions, dtype=torch.float64),
                             self.base ** (-torch.arange(0, self.head_size, 2, dtype=torch.float64) / self.head_size))
        if self.interleaved:
            angles, other = angles.repeat_interleave(2, 1), torch.stack([-t[..., 1::2], t[..., ::2]], -1).flatten(3)
        else:
            angles, other = torch.cat([angles, angles], 1), torch.cat([-t[..., self.head_size // 2:], t[..., :self.head_size // 2]], -1)
        cosines, sines = (f(angles).to(x.dtype)[:, None, :] for f in (torch.cos, torch.sin))
        return torch.cat([(t * cosines + other * sines).reshape(rotated.shape), rest], 2)


def _recurrent(base):
    """A module of torch.nn that returns the outputs of all steps, or the state after the last one."""
    class Recurrent(base):
        def __init__(self, width, c, **options):
            super().__init__(width, c["hidden_size"], c.get("num_layers", 1), bias=c.get("bias", True), batch_first=True,
                             dropout=c.get("dropout", 0), bidirectional=c.get("bidirectional", False), **options)
            self.returns_last = c.get("output", "all") == "last"

        def forward(self, x):
            lengths, steps = lengths_of(x), x.shape[1]
            if lengths is not None:
                x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            outputs, state = super().forward(x)
            if lengths is not None:
                outputs = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True, total_length=steps)[0]
            if not self.returns_last:
                return outputs
            state = state[0] if isinstance(state, tuple) else state
            return torch.cat(tuple(state[-2 if self.bidirectional else -1:]), -1)
    return Recurrent


LSTM, GRU, RNN = _recurrent(nn.LSTM), _recurrent(nn.GRU), _recurrent(nn.RNN)


class Slice(nn.Module):
    def __init__(self, dim, start, end):
        super().__init__()
        self.dim, self.start, self.end = dim, start, end

    def forward(self, x):
        return x.narrow(self.dim, self.start, self.end - self.start)


class Function(nn.Module):
    """A function of torch, as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def _pad(shape, c):
    padding = _list_of(c["padding"])
    padding = padding * (4 if len(shape) > 2 else 2) if len(padding) == 1 else padding
    return Function(lambda x: functional.pad(x, padding, c.get("mode", "constant"), c.get("value", 0)))


class Reshape(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x.reshape(x.shape[0], *self.shape)


def _sizes(value):
    """One number or one per dimension, as PyTorch takes them."""
    if isinstance(value, list):
        return value[0] if len(value) == 1 else tuple(value)
    return value


def _list_of(value):
    """Of a key that takes one value or several."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _convolution(kind, channels, c):
    more = {"output_padding": _sizes(c["output_padding"])} if "output_padding" in c else {}
    return kind(channels, c["out"], _sizes(c["kernel_size"]), _sizes(c.get("stride", 1)), _sizes(c.get("padding", 0)),
                dilation=_sizes(c.get("dilation", 1)), groups=c.get("groups", 1), bias=c.get("bias", True), **more)


def _window(c):
    stride = c.get("stride")
    options = {"stride": _sizes(stride) if stride else None, "padding": _sizes(c.get("padding", 0))}
    return [_sizes(c["kernel_size"])], dict(options, ceil_mode=c.get("ceil_mode", False))


class PatchEmbedding(nn.Conv2d):
    def __init__(self, channels, features, size, bias):
        super().__init__(channels, features, size, size, bias=bias)

    def forward(self, x):
        return super().forward(x).flatten(2).transpose(1, 2)


class ClassToken(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return torch.cat([self.weight.expand(len(x), 1, -1), x], 1)


class DropPath(nn.Module):  # torchvision.ops.StochasticDepth
    def __init__(self, p, mode):
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        noise = torch.empty([len(x) if self.mode == "row" else 1] + [1] * (x.dim() - 1), dtype=x.dtype).bernoulli_(1 - self.p)
        return x * noise if self.p == 1 else x * noise / (1 - self.p)


class LayerScale(nn.Module):  # timm's LayerScale, and LayerScale2d
    def __init__(self, width, init_values, of_channels):
        super().__init__()
        self.gamma, self.of_channels = nn.Parameter(torch.full((width,), float(init_values))), of_channels

    def forward(self, x):
        return x * (self.gamma[:, None, None] if self.of_channels else self.gamma)


def _average(c, kind=nn.AvgPool2d):
    sizes, options = _window(c)
    if c.get("divisor_override"):
        options["divisor_override"] = c["divisor_override"]
    return kind(*sizes, count_include_pad=c.get("count_include_pad", True), **options)


def _upsample(c):
    mode, sizes = c.get("mode", "nearest"), {k: _sizes(c[k]) for k in ("size", "scale_factor") if k in c}
    return nn.Upsample(**sizes, mode=mode, align_corners=None if mode == "nearest" else c.get("align_corners", False))


def _maximum(c, kind=nn.MaxPool2d):
    sizes, options = _window(c)
    return kind(*sizes, **options)


def _batch_norm(shape, c):
    kind = {3: nn.BatchNorm2d, 4: nn.BatchNorm3d}.get(len(shape), nn.BatchNorm1d)
    return kind(shape[0], c.get("eps", 1e-5), c.get("momentum", 0.1), c.get("affine", True),
                c.get("track_running_stats", True))


# type: (module of a row's shape and the keys, the key that stands for a value alone)
LEAVES = {
    "linear": (lambda s, c, v: nn.Linear(s[-1], c["out"], c.get("bias", True)), "out"),
    "conv1d": (lambda s, c, v: _convolution(nn.Conv1d, s[0], c), None),
    "conv2d": (lambda s, c, v: _convolution(nn.Conv2d, s[0], c), None),
    "conv_transpose2d": (lambda s, c, v: _convolution(nn.ConvTranspose2d, s[0], c), None),
    "max_pool2d": (lambda s, c, v: _maximum(c), "kernel_size"),
    "avg_pool2d": (lambda s, c, v: _average(c), "kernel_size"),
    "adaptive_avg_pool2d": (lambda s, c, v: nn.AdaptiveAvgPool2d(_sizes(c["output_size"])), "output_size"),
    "max_pool1d": (lambda s, c, v: _maximum(c, nn.MaxPool1d), "kernel_size"),
    "avg_pool1d": (lambda s, c, v: _average(c, nn.AvgPool1d), "kernel_size"),
    "adaptive_avg_pool1d": (lambda s, c, v: nn.AdaptiveAvgPool1d(c["output_size"]), "output_size"),
    "adaptive_max_pool1d": (lambda s, c, v: nn.AdaptiveMaxPool1d(c["output_size"]), "output_size"),
    "adaptive_max_pool2d": (lambda s, c, v: nn.AdaptiveMaxPool2d(_sizes(c["output_size"])), "output_size"),
    "instance_norm": (lambda s, c, v: {3: nn.InstanceNorm2d, 4: nn.InstanceNorm3d}.get(len(s), nn.InstanceNorm1d)(
        s[0], c.get("eps", 1e-5), affine=c.get("affine", False)), None),
    "batch_norm": (lambda s, c, v: _batch_norm(s, c), None),
    "group_norm": (lambda s, c, v: nn.GroupNorm(c["num_groups"], s[0], c.get("eps", 1e-5), c.get("affine", True)),
                   "num_groups"),
    "layer_norm": (lambda s, c, v: LayerNorm(s[-1], c.get("eps", 1e-5), c.get("elementwise_affine", True),
                                             c.get("bias", True)), None),
    "rms_norm": (lambda s, c, v: RMSNorm(s[-1], c.get("eps"), c.get("elementwise_affine", True)), None),
    "embedding": (lambda s, c, v: Embedding(c.get("num_embeddings") or v, c["embedding_dim"], c.get("padding_idx")), "embedding_dim"),
    "embedding_bag": (lambda s, c, v: EmbeddingBag(c.get("num_embeddings") or v, c["embedding_dim"], mode=c.get("mode", "mean"),
                                                   padding_idx=c.get("padding_idx")), "embedding_dim"),
    "positional_embedding": (lambda s, c, v: Positions(c.get("num_embeddings") or s[0], s[1]), None),
    "attention": (lambda s, c, v: Attention(s[1], c["heads"], c.get("causal", False), c.get("bias", True), c.get("dropout", 0)), None),
    "scaled_dot_product_attention": (lambda s, c, v: DotProductAttention(c["heads"], c.get("causal", False), c.get("num_kv_heads"),
                                                                         c.get("dropout", 0)), None),
    "rotary_embedding": (lambda s, c, v: RotaryEmbedding(c["head_size"], c.get("heads"), c.get("base", 10000), c.get("interleaved", False)),
                         "head_size"),
    "lstm": (lambda s, c, v: LSTM(s[1], c), "hidden_size"),
    "gru": (lambda s, c, v: GRU(s[1], c), "hidden_size"),
    "rnn": (lambda s, c, v: RNN(s[1], c, nonlinearity=c.get("nonlinearity", "tanh")), "hidden_size"),
    "relu": (lambda s, c, v: nn.ReLU(), None),
    "tanh": (lambda s, c, v: nn.Tanh(), None),
    "sigmoid": (lambda s, c, v: nn.Sigmoid(), None),
    "silu": (lambda s, c, v: nn.SiLU(), None),
    "relu6": (lambda s, c, v: nn.ReLU6(), None),
    "selu": (lambda s, c, v: nn.SELU(), None),
    "hardswish": (lambda s, c, v: nn.Hardswish(), None),
    "hardsigmoid": (lambda s, c, v: nn.Hardsigmoid(), None),
    "mish": (lambda s, c, v: nn.Mish(), None),
    "softplus": (lambda s, c, v: nn.Softplus(), None),
    "elu": (lambda s, c, v: nn.ELU(c.get("alpha", 1)), "alpha"),
    "gelu": (lambda s, c, v: nn.GELU(c.get("approximate", "none")), None),
    "leaky_relu": (lambda s, c, v: nn.LeakyReLU(c.get("negative_slope", 0.01)), "negative_slope"),
    "patch_embedding": (lambda s, c, v: PatchEmbedding(s[0], c["embed_dim"], _sizes(c["patch_size"]), c.get("bias", True)), None),
    "class_token": (lambda s, c, v: ClassToken(s[1]), None),
    "prelu": (lambda s, c, v: nn.PReLU(c.get("num_parameters", 1), c.get("init", 0.25)), "num_parameters"),
    "softmax": (lambda s, c, v: nn.Softmax(-1), None),
    "log_softmax": (lambda s, c, v: nn.LogSoftmax(-1), None),
    "dropout": (lambda s, c, v: nn.Dropout(c.get("p", 0.5)), "p"),
    "dropout1d": (lambda s, c, v: nn.Dropout1d(c.get("p", 0.5)), "p"),
    "dropout2d": (lambda s, c, v: nn.Dropout2d(c.get("p", 0.5)), "p"),
    "drop_path": (lambda s, c, v: DropPath(c["p"], c.get("mode", "row")), "p"),
    "layer_scale": (lambda s, c, v: LayerScale(s[-1], c.get("init_values", 1e-5), False), "init_values"),
    "layer_scale2d": (lambda s, c, v: LayerScale(s[0], c.get("init_values", 1e-5), True), "init_values"),
    "flatten": (lambda s, c, v: nn.Flatten(), None),
    "mean": (lambda s, c, v: Mean(_list_of(c.get("dim", 1)), c.get("keepdim", False)), "dim"),
    "slice": (lambda s, c, v: Slice(c.get("dim", 1), c.get("start", 0), c["end"]), None),
    "upsample": (lambda s, c, v: _upsample(c), "scale_factor"),
    # contiguous: PyTorch 2.15 computes a wrong gradient of batch_norm after a permutation of a tensor with a size of 1
    "permute": (lambda s, c, v: Function(lambda x: x.permute(c["dims"]).contiguous()), "dims"),
    "max": (lambda s, c, v: Max(c["dim"], c.get("keepdim", False)), "dim"),
    "pixel_shuffle": (lambda s, c, v: nn.PixelShuffle(c["upscale_factor"]), "upscale_factor"),
    "pixel_unshuffle": (lambda s, c, v: nn.PixelUnshuffle(c["downscale_factor"]), "downscale_factor"),
    "pad": (lambda s, c, v: _pad(s, c), "padding"),
    "conv3d": (lambda s, c, v: _convolution(nn.Conv3d, s[0], c), None),
    "max_pool3d": (lambda s, c, v: _maximum(c, nn.MaxPool3d), "kernel_size"),
    "avg_pool3d": (lambda s, c, v: _average(c, nn.AvgPool3d), "kernel_size"),
    "adaptive_avg_pool3d": (lambda s, c, v: nn.AdaptiveAvgPool3d(_sizes(c["output_size"])), "output_size"),
    "adaptive_max_pool3d": (lambda s, c, v: nn.AdaptiveMaxPool3d(_sizes(c["output_size"])), "output_size"),
    "reshape": (lambda s, c, v: Reshape(_list_of(c["shape"])), "shape"),
}
COMPOSITES = {"sequential": "layers", "repeat": None, "residual": "layers", "parallel": None}
JOINS = {"add": None, "concat": "dim", "multiply": None, "sequence_lengths": None, "cross_attention": None, "matmul": None}
# layers whose output has the positions of the input
BY_POSITION = {"linear", "relu", "tanh", "sigmoid", "silu", "relu6", "selu", "hardswish", "hardsigmoid", "mish", "softplus", "gelu",
               "leaky_relu", "elu", "prelu", "softmax", "log_softmax", "dropout", "dropout1d", "dropout2d", "layer_norm", "rms_norm", "layer_scale", "drop_path", "positional_embedding", "attention", "scaled_dot_product_attention",
               "rotary_embedding", "lstm", "gru", "rnn"}
SPLITS = {"chunk": lambda x, c: x.chunk(c["chunks"], c.get("dim", 1)),
          "split": lambda x, c: x.split(_sizes(c["split_size"]), c.get("dim", 1))}


def _join(kind, keys, shapes):
    """(shape, function of a list of tensors) of a layer that joins outputs of these shapes."""
    functions = {"add": sum, "multiply": lambda x: x[0] * x[1], "matmul": lambda x: x[0] @ x[1],
                 "concat": lambda x: torch.cat(x, keys.get("dim", 1)),
                 "sequence_lengths": lambda x: x[0].clone()}

    def join(x):
        y = functions[kind](x)
        if kind == "sequence_lengths":
            return with_lengths(y, x[1].reshape(-1).long().clamp(1, y.shape[1]))
        known = [lengths_of(one) for one in x if lengths_of(one) is not None]
        return with_lengths(y, known[0] if known and y.shape[1] == x[0].shape[1] else None)
    return tuple(join([torch.zeros(2, *shape) for shape in shapes]).shape[1:]), join


def parse_layer(entry):
    """(type, keys) of an entry of a list of layers: `relu`, `linear: 3` or `linear: {out: 3}`."""
    kind, value = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
    shorthands = {**COMPOSITES, **JOINS, **dict.fromkeys(SPLITS)}
    shorthand = shorthands[kind] if kind in shorthands else LEAVES[kind][1]
    if not isinstance(value, dict):
        value = {} if value is None else {shorthand: value}
    return kind, value


class Model(nn.Module):
    """[config]: the `model:` of a config; [shape]: of one row, without the batch. [inputs]: {name: shape} of the named inputs
    that a row has, one after another; [outputs]: names of layers (None: the last), whose values a row of the result has."""

    def __init__(self, config, shape, vocabulary=None, inputs=None, outputs=None):
        super().__init__()
        self.vocabulary, self.inputs = vocabulary, inputs or {"input": tuple(shape)}
        self.tokens, self.lengths = {}, {}  # of inputs: (vocabulary, padding or None) of an embedding; the largest length
        first = tuple(shape) if len(self.inputs) == 1 else None
        self.out_shape, self.apply_layers = self._list(config["layers"], "", first, ChainMap(self.inputs), outputs)
        for name, parameter in self.named_parameters():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in _list_of(config.get("freeze"))):
                parameter.requires_grad_(False)

    def forward(self, x):
        if len(self.inputs) == 1:
            return self.apply_layers(x, ChainMap({name: x for name in self.inputs}))
        parts = x.split([math.prod(shape) for shape in self.inputs.values()], 1)
        rows = {name: part.reshape(len(x), *shape) for part, (name, shape) in zip(parts, self.inputs.items())}
        return self.apply_layers(None, ChainMap(rows))

    def _put(self, name, module):
        """Registers [module] under a dotted name."""
        *levels, last = name.split(".")
        at = self
        for level in levels:
            if level not in at._modules:
                at.add_module(level, nn.Module())
            at = at._modules[level]
        at.add_module(last, module)

    def _leaf(self, kind, keys, name, shape):
        module = LEAVES[kind][0](shape, keys, self.vocabulary)
        module.eval()  # so that this first pass moves no running statistics
        row = torch.zeros(2, *shape, dtype=torch.long if kind.startswith("embedding") else torch.float32)
        out = tuple(module(row).shape[1:])
        if keys.get("tie"):
            module.weight = dict(self.named_parameters())[keys["tie"]]
        self._put(name, module.train())
        return out, lambda x, values: with_lengths(module(x), lengths_of(x)) if kind in BY_POSITION else module(x)

    def _residual(self, keys, name, shape, shapes):
        before = name + "." if name else ""
        out, branch = self._list(keys["layers"], before, shape, shapes)
        shortcut = self._list(keys.get("shortcut") or [], before + "shortcut.", shape, shapes)[1]

        def run(x, values):
            a, b = branch(x, values), shortcut(x, values)
            return with_lengths(a + b, lengths_of(b) if lengths_of(a) is None else lengths_of(a))
        return out, run

    def _repeat(self, keys, name, shape, shapes):
        before, copies = name + "." if name else "", []
        for i in range(keys.get("start", 0), keys.get("start", 0) + keys["times"]):
            shape, run = self._list(keys["layers"], f"{before}{i}.", shape, shapes)
            copies.append(run)

        def run_all(x, values):
            for run in copies:
                x = run(x, values)
            return x
        return shape, run_all

    def _parallel(self, keys, name, shape, shapes):
        before = name + "." if name else ""
        lists = [b["layers"] if isinstance(b, dict) else b for b in keys["branches"]]
        branches = [self._list(layers, f"{before}{i}.", shape, shapes) for i, layers in enumerate(lists)]
        out, join = _join(keys.get("join", "concat"), keys, [shape for shape, _ in branches])
        return out, lambda x, values: join([run(x, values) for _, run in branches])

    def _split(self, kind, keys, shape, shapes):
        """Parts with names; the output is the last one."""
        for name, part in zip(keys["names"], SPLITS[kind](torch.zeros(2, *shape), keys)):
            shapes[name] = tuple(part.shape[1:])

        def run(x, values):
            parts = SPLITS[kind](x, keys)
            values.update(zip(keys["names"], parts, strict=True))
            return parts[-1]
        return shapes[keys["names"][-1]], run

    def _list(self, layers, before, shape, shapes, outputs=None):
        """(shape, run) of a list of layers; [shapes]: of the outputs that `from` may name; [outputs]: those that it returns."""
        shapes, steps, known = shapes.new_child(), [], {}
        for i, entry in enumerate(layers):
            kind, keys = parse_layer(entry)
            own, sources = keys.get("name"), _list_of(keys.get("from"))
            name = before + (str(i) if own is None else own)
            if own == "":
                name = before[:-1]
            if kind in ("embedding", "embedding_bag") and sources and sources[0] in self.inputs:
                self.tokens[sources[0]] = keys.get("num_embeddings") or self.vocabulary, keys.get("padding_idx")
            if kind in JOINS:
                ins = ([shape] if len(sources) == 1 else []) + [shapes[source] for source in sources]
                if kind == "cross_attention":
                    shape, run = ins[0], CrossAttention(ins[0][1], keys["heads"], keys.get("bias", True), keys.get("dropout", 0))
                    self._put(name, run)
                else:
                    shape, run = _join(kind, keys, ins)
                if kind == "sequence_lengths" and sources[-1] in self.inputs:
                    self.lengths[sources[-1]] = ins[0][0]
            elif keys.get("share"):  # the same modules again
                given = shapes[sources[0]] if sources else shape
                run, (like, shape) = known[keys["share"]]
                assert like == given, (like, given)
            else:
                given = shapes[sources[0]] if sources else shape
                split = lambda kind=kind, keys=keys: self._split(kind, keys, given, shapes)
                composite = {"chunk": split, "split": split,
                             "sequential": lambda: self._list(keys["layers"], name + "." if name else "", given, shapes),
                             "repeat": lambda: self._repeat(keys, name, given, shapes),
                             "residual": lambda: self._residual(keys, name, given, shapes),
                             "parallel": lambda: self._parallel(keys, name, given, shapes)}
                shape, run = composite[kind]() if kind in composite else self._leaf(kind, keys, name, given)
            steps.append((run, kind in JOINS, sources, own))
            if own:
                shapes[own] = shape
            if own and kind not in JOINS:
                known[own] = run, (given, shape)

        def run_all(x, values):
            values = values.new_child()
            for run, joins, sources, own in steps:
                named = [values[source] for source in sources]
                if joins:
                    x = run(([x] if len(named) == 1 else []) + named)
                else:
                    x = run(named[0] if named else x, values)
                if own:
                    values[own] = x
            return torch.cat([(x if name is None else values[name]).flatten(1) for name in outputs], 1) if outputs else x
        self.out_shapes = [shape if name is None else shapes[name] for name in outputs or []]
        return (sum(math.prod(s) for s in self.out_shapes),) if outputs else shape, run_all


WITHOUT_TARGET = ("contrastive", "triplet_margin")


def weighted_sum(losses, shapes, columns):
    """The `losses:` of a config, as a function of rows of all outputs (of these shapes) and of all targets; [columns]: those of
    each loss's target."""
    def value(y, t):
        total, at = 0, 0
        for keys, shape, column in zip(losses, shapes, columns):
            own = y[:, at:at + math.prod(shape)].reshape(len(y), *shape)
            target = t[:, column]
            at += math.prod(shape)
            if keys["type"] == "cross_entropy":
                target = target.long().reshape(len(y), *shape[:-1])
            elif keys["type"] not in ("cosine_embedding", *WITHOUT_TARGET):  # whose target is a single value, or none
                target = target.reshape(own.shape)
            total = total + keys.get("loss_weight", 1) * loss_function(keys)(own, target)
        return total
    return value


def focal_loss(y, t, alpha, gamma):
    """torchvision.ops.sigmoid_focal_loss."""
    other = torch.sigmoid(y) * (1 - t) + torch.sigmoid(-y) * t
    weight = 1 if alpha is None else alpha * t + (1 - alpha) * (1 - t)
    return (weight * functional.binary_cross_entropy_with_logits(y, t, reduction="none") * other ** gamma).mean()


def quantile_loss(outputs, targets, quantile):
    """scikit-learn's mean_pinball_loss."""
    d = outputs - targets
    return (torch.where(d > 0, 1 - quantile, -quantile) * d).mean()


def dice_loss(y, t, smooth):
    """monai.losses.DiceLoss with sigmoid; a row without channels is one mask."""
    p = torch.sigmoid(y).flatten(2 if y.dim() > 2 else 1)
    t = t.reshape(p.shape)
    return (1 - (2 * (p * t).sum(-1) + smooth) / (p.sum(-1) + t.sum(-1) + smooth)).mean()


def contrastive_loss(a, b, temperature, symmetric):
    """open_clip's ClipLoss of features that are divided by their norms; not symmetric: its first term."""
    logits = functional.normalize(a) @ functional.normalize(b).T / temperature
    labels = torch.arange(len(logits))
    one = functional.cross_entropy(logits, labels)
    return (one + functional.cross_entropy(logits.T, labels)) / 2 if symmetric else one


def loss_function(config):
    """The `loss:` of a config, as a function of outputs (rows, ...) and targets."""
    kind, keys = (config, {}) if isinstance(config, str) else (config["type"], config)

    def optional(key, like):
        value = keys.get(key)
        return None if value is None else torch.tensor(value, dtype=like.dtype)

    def class_weight(y, t):
        """`balanced`: of the rows of the targets, which are all of the training. A class without a row has the weight 1."""
        if keys.get("weight") != "balanced":
            return optional("weight", y)
        counts = torch.bincount(t[t != keys.get("ignore_index", -100)], minlength=y.shape[-1]).to(y.dtype)
        return torch.where(counts > 0, counts.sum() / (counts > 0).sum() / counts.clamp(min=1), 1)

    if kind == "cross_entropy":
        # PyTorch has the classes of a sequence in the second dimension
        return lambda y, t: functional.cross_entropy(y.transpose(1, 2) if y.dim() == 3 else y, t, class_weight(y, t),
                                                     ignore_index=keys.get("ignore_index", -100),
                                                     label_smoothing=keys.get("label_smoothing", 0))
    if kind == "mse":
        return nn.MSELoss()
    if kind == "l1":
        return nn.L1Loss()
    if kind == "smooth_l1":
        return nn.SmoothL1Loss(beta=keys.get("beta", 1))
    if kind == "bce_with_logits":
        return lambda y, t: functional.binary_cross_entropy_with_logits(y, t, pos_weight=optional("pos_weight", y))
    if kind == "kl_div":
        reduction, log_target = keys.get("reduction", "mean"), keys.get("log_target", False)
        if reduction == "batchmean":  # of rows, also where some of their positions are padding
            return lambda y, t: nn.KLDivLoss(reduction="sum", log_target=log_target)(y, t) / getattr(y, "rows", len(y))
        return nn.KLDivLoss(reduction=reduction, log_target=log_target)
    if kind == "nll":
        return lambda y, t: functional.nll_loss(y.transpose(1, 2) if y.dim() == 3 else y, t, class_weight(y, t),
                                                ignore_index=keys.get("ignore_index", -100))
    if kind == "huber":
        return nn.HuberLoss(delta=keys.get("delta", 1))
    if kind == "quantile":
        return lambda y, t: quantile_loss(y, t, keys.get("quantile", 0.5))
    if kind == "poisson_nll":
        return nn.PoissonNLLLoss(keys.get("log_input", True), keys.get("full", False), eps=keys.get("eps", 1e-8))
    if kind == "focal":
        return lambda y, t: focal_loss(y, t, keys.get("alpha", 0.25), keys.get("gamma", 2))
    if kind == "dice":
        return lambda y, t: dice_loss(y, t, keys.get("smooth", 1e-5))
    if kind == "gaussian_nll":
        module = nn.GaussianNLLLoss(full=keys.get("full", False), eps=keys.get("eps", 1e-6))
        return lambda y, t: module(y[:, :y.shape[1] // 2], t, y[:, y.shape[1] // 2:])
    if kind == "cosine_embedding":
        module = nn.CosineEmbeddingLoss(margin=keys.get("margin", 0))
        return lambda y, t: module(*y.flatten(1).chunk(2, 1), t.flatten())
    if kind == "contrastive":
        return lambda y, t: contrastive_loss(*y.flatten(1).chunk(2, 1), keys.get("temperature", 0.07), keys.get("symmetric", True))
    if kind == "triplet_margin":
        module = nn.TripletMarginLoss(keys.get("margin", 1), eps=keys.get("eps", 1e-6), swap=keys.get("swap", False))
        return lambda y, t: module(*y.flatten(1).chunk(3, 1))
    raise ValueError(f"there is no loss '{kind}' here")
