"""Writes layers.json: small models in PyTorch, their outputs, gradients and 20 steps of SGD with momentum, in float64. Every
layer type and every key of one stands in some case (tests/model/test_layers.c fails otherwise). The models are those of the
scripts that `ddptrain export --format pytorch` writes; most cases were recorded with models that were written by hand.

Inputs, targets and initial weights are not stored: both sides compute them from `fraction`, whose values float32 holds exactly.

Cases that the file has already keep their numbers, whose last digits depend on PyTorch's version and the processor; --all writes
all anew, and `by`, the version that wrote most of them."""
import ast
import json
import os
import re
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch
import yaml
from torch.nn import functional

HERE = os.path.dirname(os.path.abspath(__file__))
DDPTRAIN = os.environ.get("DDPTRAIN", os.path.join(HERE, "..", "..", "build", "release", "bin", "ddptrain"))
# the key of a value that stands alone, `linear: 3`
SHORTHANDS = {
    "out": "linear", "kernel_size": "unfold max_pool1d max_pool2d max_pool3d max_unpool1d max_unpool2d max_unpool3d avg_pool1d avg_pool2d avg_pool3d",
    "output_size": "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d",
    "num_groups": "group_norm", "embedding_dim": "embedding embedding_bag", "head_size": "rotary_embedding", "hidden_size": "lstm gru rnn",
    "alpha": "elu celu", "beta": "softplus", "lambd": "softshrink hardshrink", "negative_slope": "leaky_relu", "num_parameters": "prelu", "p": "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout drop_path",
    "init_values": "layer_scale layer_scale2d", "dim": "mean max concat glu", "scale_factor": "upsample", "dims": "permute",
    "value": "expression", "upscale_factor": "pixel_shuffle", "downscale_factor": "pixel_unshuffle", "padding": "pad", "shape": "reshape",
    "layers": "sequential residual"}

ROWS, STEPS, LR, MOMENTUM = 5, 20, 0.02, 0.9
GIVEN = ("layers", "freeze", "shape", "vocabulary")  # of a case: from these the others follow

# layers, shape of a row; a vocabulary: the rows are tokens and the loss is cross_entropy, else mse on all outputs
CASES = [
    ("[{linear: {out: 5}}, {linear: {out: 3, bias: false}}]", [6]),
    ("[{linear: {out: 5, name: fc1}}, tanh, {linear: {out: 3, name: fc2}}]", [4, 6]),
    ("[{linear: 7}, relu, {linear: 3}]", [6]),
    ("[{linear: 7}, sigmoid, {linear: 3}, tanh]", [6]),
    ("[{linear: 7}, gelu, {linear: 3}]", [6]),
    ("[{linear: 7}, {gelu: {approximate: tanh}}, {linear: 3}]", [6]),
    ("[{linear: 7}, silu, {linear: 3}]", [6]),
    ("[{linear: 7}, leaky_relu, {linear: 5}, {leaky_relu: {negative_slope: 0.2}}, {linear: 3}]", [6]),
    ("[{linear: 7}, rrelu, {linear: 5}, {rrelu: {lower: 0.1, upper: 0.6}}, {linear: 3}]", [6]),
    ("[{linear: 9}, selu, {alpha_dropout: {p: 0.3}}, {linear: 3}]", [6]),
    ("[{conv2d: {out: 5, kernel_size: 2}}, selu, {feature_alpha_dropout: 0.2}, {conv2d: {out: 2, kernel_size: 2}}]", [2, 4, 3]),
    ("[{conv3d: {out: 5, kernel_size: 2}}, {dropout3d: {p: 0.4}}, {conv3d: {out: 2, kernel_size: 1}}]", [2, 3, 2, 3]),
    ("[{conv3d: {out: 2, kernel_size: 1}}, {pad: 1}, tanh, {pad: {padding: [1, 2, 0, 1, 2, 1], mode: reflect}}, {conv3d: {out: 1, kernel_size: [5, 3, 6]}}]", [2, 1, 2, 2]),
    ("[{linear: 7}, relu6, {linear: 5}, selu, {linear: 3}]", [6]),
    ("[{linear: 7}, hardswish, {linear: 5}, hardsigmoid, {linear: 3}]", [6]),
    ("[{linear: 7}, mish, {linear: 5}, softplus, {linear: 3}]", [6]),
    ("[{linear: 7}, elu, {linear: 5}, {elu: {alpha: 0.3}}, {linear: 3}]", [6]),
    ("[{linear: 7}, logsigmoid, {linear: 5}, softsign, {linear: 6}, tanhshrink, {linear: 3}]", [6]),
    ("[{linear: 7}, celu, {linear: 5}, {celu: {alpha: 0.3}}, {linear: 6}, {softplus: {beta: 3, threshold: 0.5}}, {linear: 3}]", [6]),
    ("[{linear: 7}, {hardtanh: {min_val: -0.3, max_val: 0.2}}, {linear: 5}, {threshold: {threshold: -0.1, value: 0.4}}, {linear: 3}]", [6]),
    ("[{linear: 8}, glu, {linear: 6}, {glu: {dim: 1}}, {linear: 3}]", [6, 5]),
    ("[{conv2d: {out: 6, kernel_size: 2}}, {glu: 1}, tanh, {glu: {dim: 2}}, {conv2d: {out: 4, kernel_size: 1}}, glu]", [2, 5, 5]),
    ("[{linear: 7}, {softshrink: {lambd: 0.1}}, {linear: 5}, {hardshrink: {lambd: 0.1}}, {linear: 3}]", [6]),
    ("[{linear: 7}, softmax, {linear: 3}]", [4, 6]),
    ("[{linear: 7}, {dropout: {p: 0}}, {linear: 3}]", [6]),
    ("[{linear: {out: 7, name: mean}}, tanh, {linear: {out: 7, name: spread}}, {sample_normal: {from: [mean, spread]}}, {linear: 3}]", [6]),
    ("[flatten, {linear: 5}, flatten]", [2, 3, 2]),
    ("[{linear: 8}, {reshape: [2, -1, 2]}, {linear: 3}, tanh, {reshape: {shape: 12}}]", [6]),
    ("[{sequential: {layers: [{linear: 5}, tanh, {sequential: [{linear: 4}]}]}}, {linear: 3}]", [6]),
    ("[{repeat: {times: 3, start: 2, layers: [{linear: 6}, tanh]}}, {linear: 3}]", [6]),
    ("[{linear: 6}, {residual: [{linear: 6}, tanh, {linear: 6}]}, {linear: 3}]", [6]),
    ("[{linear: 6}, {residual: {layers: [{linear: 4}, gelu], shortcut: [{linear: 4}]}}, relu, {linear: 3}]", [6]),
    ("[{residual: [{linear: 6}, {residual: [tanh, {residual: [{linear: 6}]}, tanh]}]}, {linear: 3}]", [6]),
    ("[{linear: {out: 4, name: first}}, {repeat: {times: 2, name: h, layers: [{residual: {name: '', layers: [{layer_norm: "
     "{name: ln}}, {sequential: {name: mlp, layers: [{linear: {out: 5, name: fc}}, gelu, {linear: {out: 4, name: proj}}]}}]}}]}}, "
     "{linear: 3}]", [3, 6]),
    # outputs by name, joins
    ("[{linear: {out: 5, name: a}}, tanh, {linear: {out: 5, name: b}}, {add: {from: [a, b], name: s}}, {multiply: {from: a, name: m}}, "
     "{concat: {from: [b, s, m, input]}}, relu, {linear: 3}]", [6]),
    ("[{linear: {out: 4, name: a}}, {relu: {name: r}}, {linear: {out: 7, from: a}}, {concat: {from: r, dim: 2}}, {slice: {start: 2, end: 9, dim: -1}}, "
     "{concat: {from: input, dim: -1}}, {slice: {start: 1, end: 3, dim: 1}}]", [3, 6]),
    ("[{parallel: {branches: [[{linear: 3}, tanh], [{linear: 4}], []]}}, {parallel: {name: p, join: add, branches: [[{linear: 5}], "
     "{layers: [{linear: 5}, tanh]}]}}, {linear: 3}]", [6]),
    ("[{conv2d: {out: 4, kernel_size: 3, padding: 1, name: stem}}, relu, {parallel: {branches: [[{conv2d: {out: 3, kernel_size: 1}}], "
     "[{max_pool2d: {kernel_size: 3, stride: 1, padding: 1}}, {conv2d: {out: 2, kernel_size: 1}}]], dim: 1}}, {concat: {from: stem, name: c}}, "
     "{slice: {start: 1, end: 8}}, {slice: {dim: 2, start: 1, end: 4, name: s}}, {concat: {from: [s, s], dim: 3}}, "
     "{conv2d: {out: 2, kernel_size: 2}}]", [2, 5, 4]),
    ("[{sequential: {name: down, layers: [{conv2d: {out: 4, kernel_size: 3, padding: 1}}, relu]}}, {max_pool2d: 2}, {conv2d: {out: 4, "
     "kernel_size: 1, name: deep}}, {conv2d: {out: 4, kernel_size: 2, stride: 2, from: down, name: side}}, {add: {from: [deep, side]}}, silu, "
     "{conv2d: {out: 4, kernel_size: 1}}, sigmoid, {multiply: {from: side, name: m}}, {sequential: {from: m, layers: [{repeat: {times: 2, layers: [{conv2d: {out: 4, "
     "kernel_size: 1, name: r}}, tanh, {add: {from: r}}]}}]}}, {adaptive_avg_pool2d: 1}, flatten, {linear: 3}]", [2, 6, 4]),
    ("[{conv2d: {out: 3, kernel_size: 2, stride: 2}}, tanh, {upsample: 2}, {concat: {from: input}}, {conv2d: {out: 2, kernel_size: 1}}, "
     "{upsample: {scale_factor: [3, 1]}}]", [2, 4, 6]),
    ("[{conv2d: {out: 3, kernel_size: 1}}, {upsample: {scale_factor: 2, mode: bilinear}}, tanh, {conv2d: {out: 2, kernel_size: 2}}, "
     "{upsample: {size: [4, 11], mode: bilinear, align_corners: true}}]", [2, 3, 4]),
    ("[{conv2d: {out: 2, kernel_size: 1}}, {upsample: {scale_factor: [1.7, 0.6], mode: bilinear, align_corners: false}}, tanh, "
     "{upsample: {size: 5}}, {upsample: {scale_factor: 1.5}}]", [2, 4, 6]),
    ("[{conv1d: {out: 3, kernel_size: 2}}, {upsample: {scale_factor: 2.5, mode: linear}}, {conv1d: {out: 2, kernel_size: 2}}, "
     "{upsample: {size: 7, mode: nearest}}, {upsample: {size: 4, mode: linear, align_corners: true}}]", [2, 5]),
    # other shapes
    ("[{linear: 5}, {permute: [0, 2, 1]}, {linear: 2}, tanh, {permute: {dims: [0, -1, 1]}}, {linear: 3}]", [4, 6]),
    ("[{permute: [0, 3, 1, 2]}, {conv2d: {out: 3, kernel_size: 2}}, tanh, {permute: [0, 3, 1, 2]}, {linear: 4}, {permute: [0, 2, 3, 1]}, "
     "{conv2d: {out: 2, kernel_size: 1}}, {permute: [0, 3, 2, 1]}, {linear: 2}]", [4, 5, 2]),
    ("[{conv2d: {out: 3, kernel_size: 2}}, {mean: {dim: [2, -1]}}, {linear: 4}, tanh, {mean: {dim: 1, keepdim: true}}]", [2, 4, 5]),
    ("[{linear: 4}, {mean: 1}, tanh, {linear: 3}]", [5, 6]),
    ("[{conv2d: {out: 3, kernel_size: 2}}, {mean: {dim: 1, keepdim: true}}, tanh, {conv2d: {out: 4, kernel_size: 1}}, {mean: 1}, {linear: 2}]", [2, 4, 5]),
    ("[{linear: 5}, {max: 1}, {linear: 4}, {max: {dim: -1, keepdim: true}}]", [7, 6]),
    ("[{conv2d: {out: 3, kernel_size: 2}}, {max: {dim: 2}}, {max: {dim: 1, keepdim: false}}, {linear: 2}]", [2, 4, 5]),
    ("[{conv2d: {out: 8, kernel_size: 2}}, {pixel_shuffle: 2}, tanh, {conv2d: {out: 2, kernel_size: 1}}, {pixel_unshuffle: {downscale_factor: 3}}, "
     "{conv2d: {out: 18, kernel_size: 1}}, {pixel_shuffle: {upscale_factor: 3}}]", [2, 4, 7]),
    ("[{conv2d: {out: 2, kernel_size: 2}}, {pad: 1}, tanh, {pad: {padding: [1, 2, 0, 3], mode: reflect}}, {conv2d: {out: 2, kernel_size: 2}}, "
     "{pad: {padding: [0, 2, 3, 1], mode: replicate}}, {pad: {padding: [3, 1, 2, 1], mode: circular}}, {conv2d: {out: 1, kernel_size: 2}}, "
     "{pad: {padding: [1, 0], value: 0.5}}]", [2, 4, 5]),
    ("[{conv1d: {out: 3, kernel_size: 2}}, {pad: {padding: [2, 1], mode: reflect}}, {conv1d: {out: 2, kernel_size: 2}}, tanh, "
     "{pad: {padding: 2, mode: circular}}, {linear: 4}, {pad: {padding: [1, 0, 0, 2], value: -1, mode: constant}}, {linear: 2}]", [2, 6]),
    ("[{conv2d: {out: 4, kernel_size: 3, name: a}}, {adaptive_avg_pool2d: 1}, {conv2d: {out: 4, kernel_size: 1}}, sigmoid, {multiply: {from: a}}, "
     "{conv2d: {out: 3, kernel_size: 1}}, {tanh: {name: b}}, {adaptive_avg_pool2d: 1}, {add: {from: b}}, {adaptive_avg_pool2d: 2}, flatten, {linear: 3}]", [2, 6, 5]),
    ("[{linear: {out: 9, name: a}}, {chunk: {chunks: 3, names: [q, k, v]}}, {multiply: {from: [q, k], name: m}}, {concat: {from: [m, v]}}, "
     "{chunk: {chunks: 4, dim: 1, names: [p, r, s]}}, {add: {from: [p, s]}}, {concat: {from: r}}, {linear: 3}]", [6]),
    ("[{conv2d: {out: 5, kernel_size: 2}}, {split: {split_size: [2, 3], names: [a, b]}}, {split: {split_size: 2, dim: -1, from: a, names: [c, d]}}, "
     "{concat: {from: [c, d], dim: 3, name: e}}, {concat: {from: [b, e]}}, {conv2d: {out: 2, kernel_size: 1}}]", [2, 4, 5]),
    ("[{linear: {out: 4, name: a}}, {linear: {out: 5, from: input}}, tanh, {permute: {dims: [0, 2, 1], name: b}}, {matmul: {from: [b, a]}}, "
     "{linear: 3}]", [4, 6]),
    ("[{linear: 4}, {reshape: {shape: [2, 3, 4], name: a}}, tanh, {permute: {dims: [0, 1, 3, 2], name: b}}, {matmul: {from: [a, b]}}, softmax, {matmul: "
     "{from: a}}, flatten, {linear: 3}]", [6, 5]),
    ("[{linear: {out: 5, name: a}}, tanh, {linear: {out: 5, name: b}}, {expression: {from: [a, b], value: 'a * sigmoid(b) + 0.1 * a'}}, "
     "{expression: 'where(x > 0.1 and x < 2, abs(x) ^ 1.5, 0.3 * erf(x)) - abs(x) / 2'}, {linear: 3}]", [6]),
    ("[{linear: {out: 5, name: a}}, {linear: 1}, {expression: {from: a, value: 'softmax(a) * x - mean(a) + norm(a - x) / 9'}}, "
     "{expression: {value: 'tanh(logsumexp(x) / 4 + x)'}}, {linear: 3}]", [4, 6]),
    ("[{conv2d: {out: 4, kernel_size: 2}}, {expression: 'x * tanh(softplus(x))'}, {conv2d: {out: 2, kernel_size: 2}}]", [2, 4, 5]),
    # volumes
    ("[{conv3d: {out: 3, kernel_size: 2}}, relu, {conv3d: {out: 2, kernel_size: [1, 2, 1], bias: false}}]", [2, 3, 4, 3]),
    ("[{conv3d: {out: 4, kernel_size: [3, 2, 3], stride: [2, 1, 1], padding: [1, 0, 2], dilation: [2, 1, 1]}}, tanh, {conv3d: {out: 2, "
     "kernel_size: 3, padding: 1, groups: 2}}, flatten, {linear: 3}]", [2, 6, 3, 4]),
    ("[{conv3d: {out: 3, kernel_size: [2, 4, 3], padding: same, dilation: [2, 1, 1]}}, tanh, {conv3d: {out: 2, kernel_size: 2, padding: valid}}]",
     [2, 3, 4, 3]),
    ("[{conv3d: {out: 4, kernel_size: 1}}, {conv_transpose3d: {out: 4, kernel_size: [3, 2, 2], stride: [3, 2, 1], padding: [1, 0, 2], "
     "output_padding: [2, 1, 0], dilation: [2, 1, 3], groups: 2}}, tanh, {conv_transpose3d: {out: 2, kernel_size: 2, bias: false}}]", [2, 2, 2, 3]),
    ("[{conv3d: {out: 3, kernel_size: 1}}, {max_pool3d: {kernel_size: [2, 3, 2], stride: [1, 2, 1], padding: [1, 1, 0], ceil_mode: true}}, "
     "batch_norm, {max_pool3d: 2}, {conv3d: {out: 2, kernel_size: 1}}]", [2, 4, 5, 4]),
    ("[{conv3d: {out: 3, kernel_size: 1}}, {avg_pool3d: {kernel_size: [2, 3, 2], stride: [1, 2, 1], padding: [1, 1, 0], ceil_mode: true}}, "
     "tanh, {avg_pool3d: {kernel_size: 2, padding: 1, count_include_pad: false}}, {avg_pool3d: {kernel_size: [1, 2, 1], divisor_override: 5}}, {conv3d: {out: 2, kernel_size: 1}}]", [2, 4, 5, 4]),
    ("[{conv3d: {out: 3, kernel_size: 1}}, {adaptive_max_pool3d: [2, 3, 4]}, {group_norm: 3}, {adaptive_avg_pool3d: {output_size: [1, 2, 3]}}, "
     "{adaptive_avg_pool3d: 1}, flatten, {linear: 2}]", [2, 4, 5, 3]),
    ("[{conv3d: {out: 2, kernel_size: 2}}, instance_norm, {adaptive_max_pool3d: {output_size: 1}}, {mean: {dim: [2, 3, 4]}}, {linear: 2}]", [2, 4, 5, 3]),
    # convolutions
    ("[{conv2d: {out: 3, kernel_size: 3}}, relu, {conv2d: {out: 2, kernel_size: 2}}]", [2, 6, 5]),
    ("[{conv2d: {out: 4, kernel_size: [3, 2], stride: [2, 1], padding: [1, 0], dilation: [1, 2]}}, tanh, "
     "{conv2d: {out: 2, kernel_size: 3, groups: 2, padding: 1, bias: false}}]", [3, 7, 6]),
    ("[{conv2d: {out: 4, kernel_size: 3, padding: 2, stride: 2}}, tanh, {conv2d: {out: 4, kernel_size: 3, groups: 4, dilation: 2, "
     "padding: 2}}, flatten, {linear: 3}]", [1, 5, 7]),
    ("[{conv2d: {out: 16, kernel_size: 3, stride: 3, padding: 1}}, relu, {conv2d: {out: 3, kernel_size: 1}}]", [1, 8, 7]),
    ("[{conv1d: {out: 4, kernel_size: 3, padding: 1}}, tanh, {conv1d: {out: 6, kernel_size: 2, stride: 2, groups: 2}}, "
     "{conv1d: {out: 2, kernel_size: 2, dilation: 2, bias: false}}]", [2, 9]),
    ("[{conv1d: {out: 4, kernel_size: [4], padding: 3, dilation: 2}}, relu, flatten, {linear: 3}]", [3, 6]),
    ("[{conv_transpose2d: {out: 3, kernel_size: 2, stride: 2}}, tanh, {conv2d: {out: 2, kernel_size: 2}}]", [2, 3, 4]),
    ("[{conv_transpose2d: {out: 4, kernel_size: [3, 2], stride: [3, 2], padding: [1, 0], output_padding: [2, 1], dilation: [1, 2]}}, "
     "tanh, {conv_transpose2d: {out: 6, kernel_size: 3, groups: 2, padding: 1, bias: false}}]", [3, 2, 3]),
    ("[{conv2d: {out: 4, kernel_size: 2, stride: 2}}, relu, {conv_transpose2d: {out: 4, kernel_size: 3, groups: 4, padding: 2}}]",
     [1, 8, 9]),
    ("[{conv1d: {out: 4, kernel_size: 2}}, {conv_transpose1d: {out: 6, kernel_size: 3, stride: 3, padding: 1, output_padding: 2, dilation: 2, "
     "groups: 2}}, tanh, {conv_transpose1d: {out: 2, kernel_size: 2, bias: false}}]", [3, 6]),
    # pools
    ("[{conv2d: {out: 3, kernel_size: 1}}, {max_pool2d: {kernel_size: [2, 3], stride: 1, padding: [1, 1]}}]", [2, 3, 4]),
    ("[{conv2d: {out: 2, kernel_size: 1}}, relu, {max_pool2d: 2}, {linear: 2}]", [2, 5, 4]),
    ("[{conv2d: {out: 3, kernel_size: 3}}, {avg_pool2d: 2}, {conv2d: {out: 2, kernel_size: 1}}]", [2, 7, 6]),
    ("[{conv2d: {out: 2, kernel_size: 1}}, {avg_pool2d: {kernel_size: 3, stride: 2, padding: 1}}, tanh, {avg_pool2d: {kernel_size: "
     "[2, 3], stride: [1, 2], padding: [1, 1], count_include_pad: false}}]", [2, 7, 6]),
    ("[{conv2d: {out: 3, kernel_size: 1}}, {max_pool2d: {kernel_size: 2, ceil_mode: true}}, tanh, {max_pool2d: {kernel_size: [3, 2], "
     "stride: 2, padding: 1, ceil_mode: true}}]", [2, 7, 5]),
    ("[{conv2d: {out: 18, kernel_size: 1}}, relu, {max_pool2d: {kernel_size: 3, stride: 2, ceil_mode: true}}, {linear: 2}]", [2, 6, 8]),
    ("[{conv2d: {out: 3, kernel_size: 1}}, {avg_pool2d: {kernel_size: 3, stride: 2, padding: 1, ceil_mode: true}}, tanh, {avg_pool2d: "
     "{kernel_size: 2, ceil_mode: true, count_include_pad: false}}]", [2, 8, 6]),
    # windows beyond the padding, one dropped because it would start there, and one larger than the image
    ("[{conv2d: {out: 2, kernel_size: 1}}, {avg_pool2d: {kernel_size: 4, stride: 3, padding: 2, ceil_mode: true}}, {avg_pool2d: "
     "{kernel_size: [3, 2], stride: [3, 4], ceil_mode: true}}, {avg_pool2d: {kernel_size: 2, ceil_mode: true}}]", [2, 9, 10]),
    ("[{conv2d: {out: 2, kernel_size: 1}}, {avg_pool2d: {kernel_size: [2, 3], stride: 2, padding: [0, 1], ceil_mode: true, "
     "divisor_override: 5}}]", [2, 7, 5]),
    ("[{conv2d: {out: 3, kernel_size: 2}}, {adaptive_avg_pool2d: {output_size: [2, 3]}}, tanh, {adaptive_avg_pool2d: 1}, flatten, "
     "{linear: 3}]", [2, 6, 5]),
    ("[{conv2d: {out: 2, kernel_size: 1}}, {adaptive_avg_pool2d: [4, 5]}]", [2, 3, 4]),
    ("[{conv1d: {out: 3, kernel_size: 1}}, {max_pool1d: {kernel_size: 3, stride: 2, padding: 1, ceil_mode: true}}, tanh, "
     "{avg_pool1d: {kernel_size: 2, stride: 2, padding: 1, count_include_pad: false, ceil_mode: true}}, {max_pool1d: 2}]", [2, 11]),
    ("[{conv1d: {out: 3, kernel_size: 2}}, {adaptive_max_pool1d: 5}, tanh, {adaptive_avg_pool1d: {output_size: 3}}, {linear: 2}]", [2, 9]),
    ("[{conv2d: {out: 3, kernel_size: 2}}, relu, {adaptive_max_pool2d: {output_size: [3, 2]}}, {adaptive_max_pool2d: 1}]", [2, 8, 6]),
    ("[{conv2d: {out: 3, kernel_size: 1}}, {adaptive_max_pool2d: [2, 3]}, flatten, {linear: 3}]", [2, 3, 4]),
    # unpools
    ("[{conv2d: {out: 18, kernel_size: 1}}, {relu: {name: a}}, {max_pool2d: 2}, {conv2d: {out: 18, kernel_size: 1}}, {max_unpool2d: {kernel_size: 2, from: a}}, "
     "{conv2d: {out: 2, kernel_size: 3}}]", [2, 5, 4]),
    ("[{conv2d: {out: 3, kernel_size: 1, name: a}}, {max_pool2d: {kernel_size: [2, 3], stride: [3, 4], padding: [1, 1]}}, tanh, "
     "{max_unpool2d: {kernel_size: [2, 3], stride: [3, 4], padding: [1, 1], from: a}}, {linear: 2}]", [2, 7, 6]),
    ("[{conv2d: {out: 2, kernel_size: 1, name: a}}, {max_pool2d: {kernel_size: 2, ceil_mode: true}}, {conv2d: {out: 2, kernel_size: 1}}, "
     "{max_unpool2d: {kernel_size: 2, ceil_mode: true, from: a}}, {max_pool2d: {kernel_size: 1, stride: 2}}]", [2, 5, 3]),
    ("[{conv1d: {out: 3, kernel_size: 1, name: a}}, {max_pool1d: {kernel_size: 3, padding: 1}}, {conv1d: {out: 3, kernel_size: 1}}, "
     "{max_unpool1d: {kernel_size: 3, padding: 1, from: a}}, {linear: 2}]", [2, 11]),
    ("[{conv1d: {out: 3, kernel_size: 1, name: a}}, {max_pool1d: {kernel_size: 2, stride: 3, ceil_mode: true}}, tanh, "
     "{max_unpool1d: {kernel_size: 2, stride: 3, ceil_mode: true, from: a}}, {linear: 2}]", [2, 8]),
    ("[{conv3d: {out: 3, kernel_size: 1, name: a}}, {max_pool3d: 2}, {conv3d: {out: 3, kernel_size: 1}}, {max_unpool3d: {kernel_size: 2, from: a}}, {linear: 2}]", [2, 5, 2, 4]),
    ("[{conv3d: {out: 2, kernel_size: 1, name: a}}, {max_pool3d: {kernel_size: [2, 3, 1], stride: [2, 3, 2], padding: [1, 1, 0], ceil_mode: true}}, tanh, "
     "{max_unpool3d: {kernel_size: [2, 3, 1], stride: [2, 3, 2], padding: [1, 1, 0], ceil_mode: true, from: a}}, {linear: 2}]", [2, 3, 7, 4]),
    # normalizations
    ("[{conv2d: {out: 3, kernel_size: 2}}, instance_norm, tanh, {conv2d: {out: 2, kernel_size: 1}}, {instance_norm: {affine: true, eps: 0.1}}]",
     [2, 4, 5]),
    ("[{conv1d: {out: 4, kernel_size: 2, bias: false}}, {instance_norm: {affine: true}}, {linear: 3}]", [2, 7]),
    ("[{conv2d: {out: 5, kernel_size: 3, bias: false}}, batch_norm, tanh, {conv2d: {out: 3, kernel_size: 1}}, "
     "{batch_norm: {affine: false}}]", [2, 5, 4]),
    ("[{linear: {out: 7, bias: false}}, {batch_norm: {momentum: 0.3, eps: 0.01, sync: true}}, relu, {linear: 3}]", [6]),
    ("[{conv1d: {out: 4, kernel_size: 3, bias: false}}, {batch_norm: {track_running_stats: false}}, flatten, {linear: 3}]", [2, 7]),
    ("[{conv2d: {out: 6, kernel_size: 3}}, {group_norm: {num_groups: 3}}, tanh, {conv2d: {out: 4, kernel_size: 1}}, {group_norm: "
     "{num_groups: 1, affine: false}}, {conv2d: {out: 2, kernel_size: 1}}, {group_norm: {num_groups: 2, eps: 0.1}}]", [2, 4, 4]),
    ("[{linear: 9}, layer_norm, {linear: 3}]", [4, 6]),
    ("[{linear: 6}, {residual: [{layer_norm: {elementwise_affine: false}}, {linear: 6}]}, {layer_norm: {eps: 0.01, bias: false}}]",
     [6]),
    ("[{linear: 9}, rms_norm, {linear: 3}]", [4, 6]),
    ("[{linear: 8}, {residual: [{rms_norm: {eps: 0.1}}, {linear: 8}]}, {residual: [{rms_norm: {elementwise_affine: false}}, "
     "{linear: 8}]}, {linear: 2}]", [6]),
    # sequences
    ("[{embedding: 5}, {linear: 7}]", [4], 7),
    ("[{embedding: {embedding_dim: 5, num_embeddings: 9, name: wte}}, {positional_embedding: {num_embeddings: 6, name: wpe}}, tanh, "
     "{linear: 7}]", [4], 7),
    ("[{embedding: {embedding_dim: 5, name: wte}}, positional_embedding, {linear: 5}, tanh, {linear: {out: 7, tie: wte.weight}}]",
     [4], 7),
    ("[{embedding: {embedding_dim: 5, name: wte}}, {linear: {out: 7, bias: false, tie: wte.weight}}]", [4], 7),
    ("[{linear: 5}, positional_embedding, tanh, {linear: 3}]", [4, 6]),
    ("[{attention: {heads: 2}}, {linear: 3}]", [5, 6]),
    ("[{linear: 6}, {residual: [{attention: {heads: 3, causal: true, bias: false}}]}, {linear: 3}]", [5, 6]),
    ("[{linear: 18}, {scaled_dot_product_attention: {heads: 3, causal: true}}, {linear: 3}]", [5, 6]),
    ("[{linear: 12}, {scaled_dot_product_attention: {heads: 2}}, {linear: 3}]", [5, 6]),
    ("[{linear: 20}, {scaled_dot_product_attention: {heads: 6, num_kv_heads: 2, causal: true}}, {linear: 3}]", [5, 6]),
    ("[{linear: 24}, {rotary_embedding: {heads: 5, head_size: 4}}, {scaled_dot_product_attention: {heads: 4, num_kv_heads: 1}}, "
     "{linear: 3}]", [5, 6]),
    ("[{linear: 12}, {rotary_embedding: {head_size: 6, interleaved: true, base: 100}}, {linear: 3}]", [5, 6]),
    ("[{linear: 7}, log_softmax, {linear: 3}]", [2, 5]),
    ("[{linear: 7}, prelu, {linear: 5}, {prelu: {num_parameters: 5, init: 0.1}}, {linear: 3}]", [6]),
    ("[{conv2d: {out: 3, kernel_size: 2}}, {prelu: 3}, {conv2d: {out: 2, kernel_size: 2}}, prelu]", [2, 4, 5]),
    ("[{patch_embedding: {embed_dim: 6, patch_size: [2, 3]}}, class_token, positional_embedding, {linear: 3}]", [3, 4, 6]),
    ("[{patch_embedding: {embed_dim: 5, patch_size: 2, bias: false}}, class_token, {slice: {end: 1}}, flatten, {linear: 3}]", [2, 4, 4]),
    ("[{conv2d: {out: 3, kernel_size: [2, 4], padding: same}}, tanh, {dropout2d: {p: 0}}, {conv2d: {out: 4, kernel_size: [4, 1], padding: "
     "same, dilation: [1, 3]}}, {layer_scale2d: {init_values: 0.5}}, {conv2d: {out: 2, kernel_size: 3, padding: valid}}]", [2, 5, 4]),
    ("[{conv1d: {out: 4, kernel_size: 4, padding: same, dilation: 3}}, tanh, {dropout1d: {p: 0}}, {conv1d: {out: 3, kernel_size: 2, padding: same}}, "
     "{conv1d: {out: 2, kernel_size: 2, padding: valid}}]", [2, 9]),
    ("[{linear: 6}, {residual: [{linear: 6}, tanh, layer_scale, {drop_path: {p: 0, mode: row}}]}, {residual: [{linear: 6}, "
     "{layer_scale: {init_values: 0.3}}, {drop_path: {p: 0, mode: batch}}]}, {linear: 3}]", [2, 6]),
    ("[{embedding_bag: {embedding_dim: 6, num_embeddings: 8}}, {linear: 28}, {reshape: [4, 7]}]", [4], 7),
    ("[{embedding_bag: {embedding_dim: 6, mode: sum, padding_idx: 3}}, {linear: 28}, {reshape: [4, 7]}]", [4], 7),
    ("[{embedding_bag: {embedding_dim: 6, mode: max, padding_idx: 3}}, {linear: 28}, {reshape: [4, 7]}]", [4], 7),
    ("[{embedding_bag: {embedding_dim: 6, mode: mean, padding_idx: 1}}, {linear: 28}, {reshape: [4, 7]}]", [4], 7),
    # recurrent layers
    ("[{linear: 5}, {lstm: {hidden_size: 4}}, {linear: 3}]", [4, 6]),
    ("[{lstm: {hidden_size: 5, num_layers: 2, bidirectional: true, output: last, bias: false}}, {linear: 3}]", [4, 6]),
    ("[{lstm: {hidden_size: 3, carry_state: false}}, {gru: {hidden_size: 4, carry_state: false}}, {rnn: {hidden_size: 3, carry_state: false}}]", [3, 6]),
    ("[{linear: 5}, {lstm: {hidden_size: 3, num_layers: 2, dropout: 0, bidirectional: true, output: all}}, {linear: 3}]", [3, 6]),
    ("[{linear: 5}, {gru: {hidden_size: 4}}, {linear: 3}]", [4, 6]),
    ("[{gru: {hidden_size: 5, num_layers: 2, bidirectional: true, output: last, bias: false}}, {linear: 3}]", [4, 6]),
    ("[{linear: 5}, {gru: {hidden_size: 3, num_layers: 3, dropout: 0, output: all}}, {linear: 3}]", [5, 6]),
    ("[{linear: 5}, {rnn: {hidden_size: 4}}, {linear: 3}]", [4, 6]),
    ("[{rnn: {hidden_size: 5, num_layers: 2, bidirectional: true, output: last, bias: false, nonlinearity: tanh}}, {linear: 3}]", [4, 6]),
    ("[{linear: 5}, {rnn: {hidden_size: 3, num_layers: 2, dropout: 0, nonlinearity: relu}}, {linear: 3}]", [1, 6]),
    ("[{embedding: 6}, {lstm: 5}, {linear: 7}]", [4], 7),
    ("[{linear: 5}, {lstm: {hidden_size: 4, num_layers: 2, bidirectional: true, initial_state: learned, last_state: [h, c]}}, "
     "{lstm: {hidden_size: 4, num_layers: 2, bidirectional: true, initial_state: [c, h], output: last, last_state: [d, e]}}, {add: {from: [d, e]}}, "
     "{linear: 3}]", [4, 6]),
    ("[{linear: {out: 4, name: x}}, {mean: 1}, {linear: {out: 3, name: h0}}, {gru: {hidden_size: 3, from: x, initial_state: h0, last_state: h}}, "
     "{gru: {hidden_size: 3, bias: false, initial_state: h}}, {gru: {hidden_size: 2, num_layers: 2, initial_state: learned}}, {linear: 3}]", [4, 6]),
    ("[{linear: {out: 5, name: x}}, {rnn: {hidden_size: 4, num_layers: 2, initial_state: learned, last_state: h}}, {rnn: {hidden_size: 4, "
     "num_layers: 2, initial_state: h, from: x, output: last}}, {linear: 3}]", [4, 6]),
    ("[{embedding: {embedding_dim: 4, name: words}}, {lstm: {hidden_size: 5, last_state: [h, c]}}, {lstm: {hidden_size: 5, from: words, "
     "initial_state: [h, c]}}, {linear: 7}]", [4], 7),
    # rows of different lengths
    ("[{embedding: {embedding_dim: 6, padding_idx: 0}}, positional_embedding, {attention: {heads: 2, dropout: 0}}, {linear: 7}]", [5], 7),
    ("[{embedding: {embedding_dim: 6, padding_idx: 0}}, {residual: [{layer_norm: {}}, {linear: 18}, {scaled_dot_product_attention: {heads: 3, "
     "causal: true, dropout: 0}}]}, {linear: 7}]", [5], 7),
    ("[{embedding: {embedding_dim: 6, padding_idx: 0}}, {linear: 10}, {scaled_dot_product_attention: {heads: 3, num_kv_heads: 1}}, {mean: 1}, "
     "{linear: 7}]", [5], 7),
    ("[{embedding: {embedding_dim: 4, padding_idx: 0}}, {lstm: {hidden_size: 5, num_layers: 2, bidirectional: true, output: last}}, {linear: 7}]",
     [5], 7),
    ("[{embedding: {embedding_dim: 4, padding_idx: 0}}, {gru: {hidden_size: 3, num_layers: 2, bidirectional: true}}, {attention: {heads: 2}}, "
     "{linear: 7}]", [5], 7),
    ("[{embedding: {embedding_dim: 4, padding_idx: 0}}, {rnn: {hidden_size: 5, output: last}}, {linear: 7}]", [5], 7),
    ("[{embedding: {embedding_dim: 4, padding_idx: 0}}, {lstm: 5}, tanh, {mean: {dim: -2}}, {linear: 7}]", [5], 7),
    ("[{embedding: {embedding_dim: 4, padding_idx: 0, name: words}}, {lstm: {hidden_size: 3, num_layers: 2, bidirectional: true, initial_state: learned, "
     "last_state: [h, c], name: encoder}}, {lstm: {hidden_size: 3, num_layers: 2, bidirectional: true, from: words, initial_state: [h, c], last_state: d}}, "
     "{add: {from: encoder}}, {mean: {dim: 1, name: m}}, {flatten: {from: d}}, {concat: {from: m}}, {linear: 7}]", [5], 7),
    ("[{embedding: {embedding_dim: 4, padding_idx: 0, name: words}}, {gru: {hidden_size: 3, num_layers: 2, bidirectional: true, initial_state: learned, "
     "last_state: h, name: encoder}}, {gru: {hidden_size: 3, num_layers: 2, bidirectional: true, from: words, initial_state: h, last_state: d}}, "
     "{add: {from: encoder}}, {mean: {dim: 1, name: m}}, {flatten: {from: d}}, {concat: {from: m}}, {linear: 7}]", [5], 7),
    ("[{embedding: {embedding_dim: 4, padding_idx: 0, name: words}}, {rnn: {hidden_size: 3, num_layers: 2, bidirectional: true, initial_state: learned, "
     "last_state: h, name: encoder}}, {rnn: {hidden_size: 3, num_layers: 2, bidirectional: true, from: words, initial_state: h, last_state: d}}, "
     "{add: {from: encoder}}, {mean: {dim: 1, name: m}}, {flatten: {from: d}}, {concat: {from: m}}, {linear: 7}]", [5], 7),
    ("[{sequence_lengths: {from: [series, steps]}}, {linear: 6}, {gru: {hidden_size: 4, bidirectional: true}}, {attention: {heads: 2}}, "
     "{linear: 3}]", [5, 4]),
    ("[{sequence_lengths: {from: [series, steps]}}, {linear: 6}, {attention: {heads: 2}}, {mean: {dim: 1}}, {linear: 3}]", [5, 4]),
    ("[{sequence_lengths: {from: [series, steps]}}, {linear: 6}, tanh, {max: 1}, {linear: 3}]", [5, 4]),
    ("[{embedding: {embedding_dim: 6, padding_idx: 0}}, {linear: 4}, {prelu: {init: 0.1}}, {attention: {heads: 2}}, prelu, {linear: 7}]", [5], 7),
    ("[{sequence_lengths: {from: [series, steps]}}, {linear: 6}, {prelu: 5}, {dropout1d: {p: 0}}, {mean: 1}, {linear: 3}]", [5, 4]),
    ("[{linear: 6}, {mean: 2}, {linear: 3}]", [4, 5]),
    ("[{conv2d: {out: 3, kernel_size: 2}}, {mean: {dim: 1}}, {mean: 2}, {linear: 3}]", [2, 4, 5]),
    ("[{linear: {out: 6, name: q}}, tanh, {linear: 6}, {slice: {end: 3, name: memory}}, {cross_attention: {heads: 2, dropout: 0, from: [q, memory]}}, "
     "{cross_attention: {heads: 3, bias: false, from: q}}, {linear: 3}]", [5, 6]),
    ("[{conv2d: {out: 3, kernel_size: 2}}, {unfold: {kernel_size: [3, 2], stride: [1, 2], padding: [1, 0], dilation: [1, 2]}}, {linear: 5}, tanh, {linear: 3}]", [2, 6, 7]),
    ("[{linear: 12}, tanh, {fold: {output_size: [4, 5], kernel_size: 2}}, flatten, {linear: 3}]", [8, 4]),
    ("[{linear: 4}, {fold: {output_size: [5, 6], kernel_size: [3, 2], stride: [2, 3], padding: 1, dilation: 2}}, flatten, {linear: 3}]", [12, 4]),
    ("[{reshape: {shape: [5, 5], name: mask}}, {linear: {out: 6, name: q}}, {cross_attention: {heads: 2, mask: add, from: [q, q, mask]}}, {linear: 3}]", [5, 5]),
    ("[{embedding: {embedding_dim: 6, padding_idx: 0, name: memory}}, tanh, {linear: {out: 6, name: q}}, {cross_attention: {heads: 2, from: "
     "[q, memory]}}, {linear: 7}]", [5], 7),
    # frozen parameters
    ("[{linear: 5}, tanh, {linear: 4}, tanh, {linear: 3}]", [6], None, ["0.*", "2.bias"]),
    ("[{conv2d: {out: 3, kernel_size: 2}}, batch_norm, relu, {conv2d: {out: 2, kernel_size: 2}}]", [2, 4, 4], None, ["1.weight"]),
]


def fraction(index, salt):
    """A number of [-1, 1) in steps of 2^-15, the same in tests/model/test_layers.c."""
    h = (index * 2654435761 + salt * 40503 + 12345) & 0xffffffff
    h ^= h >> 15
    h = h * 2246822519 & 0xffffffff
    h ^= h >> 13
    return (h >> 16) / 32768 - 1


def fractions(salt, *shape):
    count = torch.Size(shape).numel()
    return torch.tensor([fraction(i, salt) for i in range(count)], dtype=torch.float64).reshape(shape)


def start(parameter, salt):
    """Matrices around 0, vectors (biases, weights of norms) around 1, so that none is in its usual place."""
    with torch.no_grad():
        values = fractions(salt, *parameter.shape)
        parameter.copy_(0.5 * values if parameter.dim() > 1 else 1 + 0.5 * values)


def parse_layer(entry):
    """(type, keys) of an entry of a list of layers: `relu`, `linear: 3` or `linear: {out: 3}`."""
    kind, value = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
    if isinstance(value, dict):
        return kind, value
    return kind, {next(key for key, kinds in SHORTHANDS.items() if kind in kinds.split()): value}


def with_vocabulary(entry, vocabulary):
    """The same with num_embeddings for each embedding, because the rows here are no tokens of a file that says it."""
    if isinstance(entry, list):
        return [with_vocabulary(one, vocabulary) for one in entry]
    kind, keys = parse_layer(entry)
    keys = {key: with_vocabulary(value, vocabulary) if key in ("layers", "shortcut") else value for key, value in keys.items()}
    if vocabulary and kind in ("embedding", "embedding_bag"):
        keys = {"num_embeddings": vocabulary, **keys}
    return {kind: keys} if keys or kind == "parallel" else kind


def script_model(layers, shape, vocabulary, freeze):
    """(the model of the script that ddptrain exports, in float64, the shape of an output row)."""
    with tempfile.TemporaryDirectory() as folder:
        config, script = os.path.join(folder, "config.yaml"), os.path.join(folder, "model.py")
        arrays, names = {"x": np.zeros((2, *shape), "f4"), "n": np.ones((2, 1), "f4")}, ["x"]
        if "sequence_lengths" in layers:
            names = {"series": ["x"], "steps": ["n"]}
        if vocabulary:
            arrays["x"] += 1
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"dataset": {"path": os.path.join(folder, "rows.h5"), "inputs": names, "targets": ["y"]}, "loss": "mse", "train": {"epochs": 1},
                       "model": {"layers": with_vocabulary(yaml.safe_load(layers), vocabulary), "freeze": list(freeze)}}, file)
        out = (1,)
        for _ in range(2):  # the first message says the shape of the output
            with h5py.File(os.path.join(folder, "rows.h5"), "w") as file:
                file.update(arrays, y=np.zeros((2, *out), "f4"))
            p = subprocess.run([DDPTRAIN, "export", config, "--out", script, "--quiet"], capture_output=True, text=True, check=False)
            found = re.search(r"the model's output is (\([\d, ]+\)|\d+), but a target row", p.stderr)
            if found:
                value = ast.literal_eval(found.group(1))
                out = value if isinstance(value, tuple) else (value,)
        if p.returncode:
            raise ValueError(f"{layers}: {p.stderr}")
        with open(script, encoding="utf-8") as file:
            code = file.read().replace("dtype = torch.float32", "dtype = torch.float64")
    before, _, rest = code.partition("# ---- data ----")
    space = {}
    exec(compile(before + rest.partition("# ---- model ----")[2].partition("# ---- training ----")[0], "model.py", "exec"), space)
    if "draws" in space:  # those of a step of seed 0
        space["draws"].rows = np.arange(ROWS, dtype=np.uint64)
    return space["model"], out


def loss_of(outputs, targets, vocabulary):
    """Of rows with lengths without the positions that are padding."""
    y, t = outputs, targets
    if isinstance(outputs, tuple):
        real = torch.arange(outputs[0].shape[1]) < outputs[1][:, None]
        y, t = outputs[0][real], targets[real]
    return functional.cross_entropy(y.flatten(0, -2), t.flatten()) if vocabulary else functional.mse_loss(y, t)


def keys_of(layers):
    """"type" and "type.key" for every layer and key that is written in the list."""
    for entry in layers:
        kind, keys = parse_layer(entry)
        yield kind
        yield from (f"{kind}.{key}" for key in keys)
        for inner in ("layers", "shortcut"):
            yield from keys_of(keys.get(inner) or [])


def tensors(named):
    return {name: [float(f"{v:.9g}") for v in t.detach().flatten().tolist()] for name, t in named}


def lengths(rows, positions):
    """The real positions of each row of a case with padding, the same in tests/model/test_layers.c."""
    return [1 + 3 * row % positions for row in range(rows)]


def pad(tokens):
    """Token 0 is padding, and no other token is 0."""
    tokens = tokens.clamp(min=1)
    for row, length in enumerate(lengths(*tokens.shape)):
        tokens[row, length:] = 0
    return tokens


def case(layers, shape, vocabulary=None, freeze=()):
    parsed = yaml.safe_load(layers)
    rows = ROWS
    has_steps = "sequence_lengths" in layers  # inputs `series` and `steps`
    model, out_shape = script_model(layers.replace("sync: true", "sync: false"), shape, vocabulary, freeze)
    named = list(model.named_parameters())
    for salt, (_, parameter) in enumerate(named):
        start(parameter, 100 + salt)
    if vocabulary:
        tokens = ((fractions(1, rows, *shape) + 1) / 2 * vocabulary).long()
        targets = ((fractions(2, rows, *out_shape[:-1]) + 1) / 2 * vocabulary).long()
        if "padding_idx" in layers and "embedding_bag" not in layers:
            tokens = pad(tokens)
        inputs, loss_name = tokens.double(), "cross_entropy"
    else:
        inputs, loss_name = fractions(1, rows, *shape), "mse"
        targets = fractions(2, rows, *out_shape)
        if has_steps:
            steps = torch.tensor(lengths(rows, shape[0]), dtype=torch.float64)
            inputs = torch.cat([inputs.flatten(1), steps[:, None]], 1)
    trained = [p for _, p in named if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=LR, momentum=MOMENTUM)
    record = {"layers": layers, "freeze": list(freeze), "shape": shape, "vocabulary": vocabulary or 0, "rows": rows,
              "loss": loss_name, "keys": sorted(set(keys_of(parsed))), "losses": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = model(inputs)
        value = loss_of(outputs, targets, vocabulary)
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        value.backward()
        record["losses"].append(float(f"{value.item():.9g}"))
        if step == 0:
            record["outputs"] = tensors([("", outputs)])[""]
            record["gradients"] = tensors((n, p.grad) for n, p in named if p.requires_grad)
        optimizer.step()
    if not record["losses"][-1] < record["losses"][0]:
        raise ValueError(f"{layers}: does not learn: {record['losses']}")
    record["weights"] = tensors(named)
    record["buffers"] = tensors((n, b) for n, b in model.named_buffers() if not n.endswith("num_batches_tracked"))
    outputs = model.eval()(inputs)
    record["evaluated"] = tensors([("", outputs[0] if isinstance(outputs, tuple) else outputs)])[""]
    return record


def main():
    torch.set_num_threads(1)
    path, by = os.path.join(HERE, "layers.json"), f"PyTorch {torch.__version__}"
    cases, recorded = [case(*c) for c in CASES], []
    if "--all" not in sys.argv[1:]:  # the last digits depend on the version and the processor
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        by, recorded = table["by"], table["cases"]
    known = {json.dumps([c[key] for key in GIVEN]): c for c in recorded}
    cases = [known.get(json.dumps([c[key] for key in GIVEN]), c) for c in cases]
    with open(path, "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        file.write(f'{{"by":"{by}","lr":{LR},"momentum":{MOMENTUM},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
