"""The C file of export: every layer, compiled by gcc and clang, with the bits of predict. ctest-labels: unit"""
import csv, ctypes, math, os, re, shutil, subprocess

import numpy as np

import program
from program import DATA, USAGE

FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fPIC", "-shared"]
FUSES = " fma " in open("/proc/cpuinfo").read().replace("\n", " ") if os.path.exists("/proc/cpuinfo") else False

# name: (shape of a row, outputs, layers); every type of layer, most keys, odd sizes.
# Their expressions call functions of the C library (docs/expressions.md).
ROUNDED = {"expressions", "features"}
LAYERS = {
    "linear": ((7,), 5, "[{linear: 5}]"),
    "one_output": ((1,), 1, "[{linear: {out: 1, bias: false}}]"),
    "wide": ((3,), 1, "[{linear: 130}, relu, {linear: 67}, tanh, {linear: 1}]"),
    "activations": ((9,), 4, "[{linear: 33}, tanh, {linear: 20}, sigmoid, {linear: 17}, gelu, {linear: 16}, {gelu: {approximate: tanh}}, {linear: 9}, silu, "
                          "{linear: 5}, {leaky_relu: 0.2}, {linear: 4}, relu]"),
    "more_activations": ((9,), 4, "[{linear: 33}, selu, {linear: 20}, softplus, {linear: 17}, mish, {linear: 16}, elu, {linear: 9}, {elu: 0.3}, {linear: 18}, logsigmoid, {linear: 9}, softsign, {linear: 17}, tanhshrink, {linear: 9}, {celu: 0.4}, "
                              "{linear: 9}, {softplus: {beta: 2, threshold: 0.5}}, {linear: 9}, {hardtanh: {min_val: -0.8, max_val: 0.6}}, {linear: 9}, "
                              "{threshold: {threshold: -0.3, value: 0.2}}, {linear: 9}, {softshrink: 0.1}, {linear: 9}, {hardshrink: 0.1}, {linear: 18}, "
                                "hardswish, {linear: 5}, hardsigmoid, {linear: 4}, relu6]"),
    "softmax": ((6,), 21, "[{linear: 21}, softmax]"),
    "patches": ((3, 6, 4), 3, "[{patch_embedding: {embed_dim: 8, patch_size: [3, 2]}}, class_token, positional_embedding, {residual: [layer_norm, "
                              "{attention: {heads: 2}}]}, {slice: {end: 1}}, flatten, {linear: 3}]"),
    "class_token": ((6, 4), 2, "[class_token, {attention: {heads: 2}}, {slice: {end: 1}}, flatten, {linear: 2}]"),
    "same_padding": ((2, 6, 5), 3, "[{conv2d: {out: 5, kernel_size: [2, 4], padding: same}}, relu, {conv2d: {out: 6, kernel_size: 4, padding: same, dilation: 2, "
                                   "bias: false}}, {layer_scale2d: 0.4}, {dropout2d: 0.2}, {conv2d: {out: 6, kernel_size: 3, padding: valid, groups: 6}}, flatten, {linear: 3}]"),
    "layer_scale": ((4, 6), 8, "[{residual: [{linear: 6}, {layer_scale: 0.3}, {drop_path: 0.2}]}, {linear: 2}, flatten]"),
    "log_softmax": ((4, 6), 28, "[{linear: 21}, log_softmax, {linear: 7}, log_softmax, flatten]"),
    "prelu": ((6,), 5, "[{linear: 9}, prelu, {linear: 5}, {prelu: {num_parameters: 5, init: 0.1}}]"),
    "prelu_of_channels": ((2, 5, 4), 3, "[{conv2d: {out: 3, kernel_size: 2}}, {prelu: 3}, {conv2d: {out: 4, kernel_size: 2}}, prelu, flatten, {linear: 3}]"),
    "dropout": ((6,), 2, "[{dropout: 0.5}, {linear: 8}, {dropout: 0.1}, relu, {linear: 2}]"),
    "sample_normal": ((6,), 3, "[{linear: {out: 8, name: h}}, tanh, {linear: {out: 5, name: mean}}, {linear: {out: 5, name: variance, from: h}}, "
                              "{sample_normal: {from: [mean, variance]}}, relu, {linear: 3}]"),
    "norms": ((10,), 7, "[{linear: 19}, layer_norm, {linear: 18}, {layer_norm: {bias: false}}, {linear: 5}, {layer_norm: {elementwise_affine: false}}, "
                     "{linear: 33}, rms_norm, {linear: 7}, {rms_norm: {elementwise_affine: false, eps: 0.01}}]"),
    "batch_norm": ((5,), 2, "[{linear: 12}, batch_norm, relu, {linear: 6}, {batch_norm: {affine: false}}, {linear: 2}]"),
    "residual": ((8,), 4, "[{residual: [{linear: 8}, relu, {linear: 8}]}, relu, {residual: {layers: [{linear: 4}], shortcut: [{linear: 4}]}}, "
                       "{repeat: {times: 2, layers: [{residual: [{sequential: [{linear: 4}, tanh]}]}]}}]"),
    "shared": ((8, 6, 6), 2, "[{conv2d: {out: 4, kernel_size: 3, groups: 2, name: a}}, {conv2d: {out: 4, kernel_size: 3, share: a}}, {batch_norm: {name: n}}, "
                             "relu, {batch_norm: {share: n, eps: 0.5}}, {batch_norm: {share: n}}, flatten, {linear: 2}]"),
    "reshape": ((12,), 2, "[{reshape: [3, 4]}, {linear: 5}, {attention: {heads: 1}}, flatten, {linear: 2}]"),
    "attention": ((70, 8), 3, "[{positional_embedding: {}}, {attention: {heads: 2}}, layer_norm, {attention: {heads: 4, causal: true, bias: false}}, "
                           "{linear: 24}, {scaled_dot_product_attention: {heads: 2, causal: true}}, flatten, {linear: 3}]"),
    "convolution": ((3, 9, 7), 3, "[{conv2d: {out: 4, kernel_size: 3, padding: 1}}, relu, {max_pool2d: 2}, {conv2d: {out: 6, kernel_size: [3, 1], stride: [2, 1], "
                               "groups: 2, bias: false, dilation: [1, 1]}}, batch_norm, relu, flatten, {linear: 3}]"),
    "dilated": ((2, 11, 11), 2, "[{conv2d: {out: 70, kernel_size: 3, dilation: 2, padding: 2, stride: 3}}, {group_norm: 7}, relu, {adaptive_avg_pool2d: [3, 2]}, flatten, {linear: 2}]"),
    "pools": ((4, 10, 9), 2, "[{max_pool2d: {kernel_size: 3, stride: 2, padding: 1, ceil_mode: true}}, {avg_pool2d: {kernel_size: 2, stride: 1, padding: 1}}, "
                          "{avg_pool2d: {kernel_size: [3, 2], stride: 2, padding: 1, ceil_mode: true, count_include_pad: false}}, "
                          "{avg_pool2d: {kernel_size: 2, divisor_override: 3}}, {conv2d: {out: 2, kernel_size: 1}}, {adaptive_avg_pool2d: 1}, flatten]"),
    "transposed": ((3, 4, 5), 2, "[{conv_transpose2d: {out: 70, kernel_size: 2, stride: 2}}, relu, {conv_transpose2d: {out: 6, kernel_size: [3, 2], "
                                 "stride: [3, 2], padding: [1, 0], output_padding: [2, 1], dilation: [1, 2], groups: 2, bias: false}}, {max_pool2d: 4}, "
                                 "{conv_transpose2d: {out: 5, kernel_size: 1}}, flatten, {linear: 2}]"),
    "volume_of_same_size": ((2, 3, 4, 3), 2, "[{conv3d: {out: 3, kernel_size: [2, 4, 3], padding: same, dilation: [2, 1, 1]}}, flatten, {linear: 2}]"),
    "transposed_signal": ((3, 7), 2, "[{conv_transpose1d: {out: 8, kernel_size: 3, stride: 2, output_padding: 1}}, relu, {conv_transpose1d: {out: 6, "
                                     "kernel_size: 4, padding: 2, dilation: 2, groups: 2, bias: false}}, flatten, {linear: 2}]"),
    "pooled_signal": ((3, 23), 2, "[{max_pool1d: {kernel_size: 3, stride: 2, padding: 1, ceil_mode: true}}, {avg_pool1d: {kernel_size: 2, stride: 1, "
                                  "padding: 1}}, {instance_norm: {affine: true}}, {adaptive_avg_pool1d: 9}, {avg_pool1d: {kernel_size: 2, ceil_mode: true}}, "
                                  "{adaptive_max_pool1d: 2}, flatten, {linear: 2}]"),
    "gated": ((3, 6, 5), 3, "[{conv2d: {out: 8, kernel_size: 3}}, {glu: 1}, {glu: 2}, flatten, {linear: 6}, glu]"),
    "adaptive_maxima": ((2, 7, 9), 3, "[instance_norm, {adaptive_max_pool2d: [3, 4]}, {adaptive_max_pool2d: 1}, flatten, {linear: 3}]"),
    "signal": ((2, 15), 1, "[{conv1d: {out: 5, kernel_size: 4, stride: 2, padding: 1}}, {dropout1d: 0.2}, gelu, batch_norm, {group_norm: {num_groups: 5, affine: false}}, flatten, {linear: 1}]"),
    "resnet": ((3, 8, 8), 4, "[{conv2d: {out: 6, kernel_size: 3, padding: 1}}, {residual: {layers: [batch_norm, relu, {conv2d: {out: 8, kernel_size: 3, stride: 2, padding: 1}}], "
                          "shortcut: [{conv2d: {out: 8, kernel_size: 1, stride: 2}}]}}, relu, {adaptive_avg_pool2d: 1}, flatten, {linear: 4}]"),
    "joins": ((9,), 5, "[{linear: {out: 8, name: a}}, tanh, {linear: {out: 8, name: b}}, {multiply: {from: [a, b], name: m}}, "
                       "{slice: {from: a, start: 2, end: 5, name: c}}, {concat: {from: [m, c, b]}}, {linear: 5}]"),
    "joined_images": ((3, 6, 4), 3, "[{conv2d: {out: 4, kernel_size: 3, padding: 1, name: a}}, {max_pool2d: 2}, {upsample: 2}, {concat: {from: a}}, "
                                    "{slice: {start: 1, end: 7}}, {slice: {start: 1, end: 5, dim: 2, name: s}}, {slice: {start: 1, end: 3, dim: -1}}, "
                                    "{concat: {from: s, dim: 3}}, {parallel: {branches: [[{conv2d: {out: 3, kernel_size: 1}}, relu], "
                                    "[{conv2d: {out: 5, kernel_size: 3, padding: 1}}]], join: concat}}, {upsample: [1, 3]}, flatten, {linear: 3}]"),
    "unfolded": ((3, 6, 7), 3, "[{unfold: {kernel_size: [3, 2], stride: [1, 2], padding: [1, 0], dilation: [1, 2]}}, {linear: 9}, "
                               "{fold: {output_size: [5, 5], kernel_size: 3, stride: 2, padding: 1, dilation: [1, 1]}}, flatten, {linear: 3}]"),
    "upsampled": ((3, 5, 4), 3, "[{upsample: {scale_factor: 2, mode: bilinear}}, {conv2d: {out: 4, kernel_size: 3}}, {upsample: {size: [5, 9], mode: bilinear, "
                                "align_corners: true}}, {upsample: {size: [7, 4]}}, {upsample: {scale_factor: [0.6, 1.7], mode: bilinear}}, flatten, {linear: 3}]"),
    "hardly_upsampled": ((2, 3, 5), 3, "[{upsample: 1.3}, {conv2d: {out: 3, kernel_size: 1}}, {upsample: {scale_factor: [1.2, 2], mode: bilinear}}, flatten, {linear: 3}]"),
    "hardly_upsampled_signal": ((2, 3), 3, "[{upsample: 1.3}, {conv1d: {out: 3, kernel_size: 1}}, {upsample: 2.3}, flatten, {linear: 3}]"),
    "upsampled_signal": ((3, 7), 3, "[{upsample: {scale_factor: 1.5, mode: linear}}, {conv1d: {out: 4, kernel_size: 3}}, {upsample: {size: 12, mode: linear, "
                                    "align_corners: true}}, {upsample: {size: 5}}, flatten, {linear: 3}]"),
    "permuted": ((4, 5, 2), 3, "[{permute: [0, 3, 1, 2]}, {conv2d: {out: 3, kernel_size: 2}}, {permute: [0, 3, 1, 2]}, {linear: 4}, {permute: [0, 2, 3, 1]}, {linear: 5}, "
                               "{permute: [0, 3, 2, 1]}, flatten, {linear: 6}, {reshape: [2, 3]}, {permute: [0, 2, 1]}, {linear: 3}, {permute: [0, 2, 1]}, flatten, {linear: 3}]"),
    "excitation": ((3, 6, 5), 3, "[{conv2d: {out: 4, kernel_size: 2, name: a}}, {adaptive_avg_pool2d: 1}, {conv2d: {out: 4, kernel_size: 1}}, "
                                 "{sigmoid: {name: gate}}, {multiply: {from: a}}, {add: {from: gate}}, flatten, {linear: 3}]"),
    "reduced": ((3, 6, 5), 3, "[{conv2d: {out: 4, kernel_size: 2, name: a}}, {mean: {dim: [2, 3], name: m}}, {max: {dim: 3, from: a}}, {mean: {dim: 1, keepdim: true}}, flatten, "
                              "{concat: {from: m}}, {linear: 7}, {reshape: [7, 1]}, {max: {dim: -1, keepdim: true}}, {max: 2}, {linear: 3}]"),
    "shuffled": ((2, 4, 5), 3, "[{conv2d: {out: 8, kernel_size: 2}}, {pixel_shuffle: 2}, {pad: [0, 1, 0, 0]}, {pixel_unshuffle: 3}, {conv2d: {out: 9, kernel_size: 1}}, "
                               "{pixel_shuffle: 3}, flatten, {linear: 3}]"),
    "padded": ((2, 4, 5), 3, "[{pad: {padding: 1, value: 0.5}}, {conv2d: {out: 3, kernel_size: 2}}, {pad: {padding: [1, 2, 0, 3], mode: reflect}}, {pad: {padding: [2, 0, 1, 0], "
                             "mode: replicate}}, {conv2d: {out: 2, kernel_size: 3}}, {pad: {padding: [1, 2]}}, flatten, {pad: [2, 3]}, {linear: 3}]"),
    "pad_of_convolution": ((3, 8, 9), 3, "[{conv2d: {out: 4, kernel_size: 1}}, {pad: {padding: [1, 0, 2, 1]}}, flatten, {linear: 3}]"),
    "pad_of_upsample": ((3, 8, 9), 3, "[{upsample: 2}, {pad: {padding: [1, 0, 2, 1]}}, flatten, {linear: 3}]"),
    "pad_of_maxima": ((4, 8, 9), 3, "[{max_pool2d: {kernel_size: 2, stride: 1}}, {pad: {padding: [1, 0, 2, 1]}}, flatten, {linear: 3}]"),
    "pad_of_norm": ((4, 8, 9), 3, "[batch_norm, {pad: {padding: [1, 0, 2, 1]}}, flatten, {linear: 3}]"),
    "padded_depth": ((2, 6, 2, 2), 2, "[{conv3d: {out: 3, kernel_size: 1, padding: [2, 0, 0]}}, {conv3d: {out: 3, kernel_size: [1, 2, 1], padding: [1, 0, 0]}}, flatten, {linear: 2}]"),
    "padded_signal": ((3, 6), 3, "[{pad: {padding: [2, 1], mode: circular}}, {conv1d: {out: 4, kernel_size: 2}}, {pad: {padding: [1, 2, 1, 0], mode: reflect}}, flatten, {linear: 3}]"),
    "parts": ((9,), 4, "[{linear: 12}, {chunk: {chunks: 3, names: [q, k, v]}}, {multiply: {from: [q, k]}}, {concat: {from: v}}, {reshape: [2, 4]}, "
                       "{split: {split_size: [1, 3], dim: -1, names: [a, b]}}, {concat: {from: [b, a], dim: 2}}, flatten, {linear: 4}]"),
    "products": ((6, 5), 3, "[{linear: 4}, {reshape: {shape: [2, 3, 4], name: a}}, tanh, {permute: {dims: [0, 1, 3, 2], name: b}}, {matmul: {from: [a, b]}}, softmax, "
                            "{matmul: {from: a}}, flatten, {linear: 3}]"),
    "expressions": ((6,), 3, "[{linear: {out: 5, name: a}}, tanh, {linear: {out: 5, name: b}}, {expression: {from: [a, b], value: 'a * sigmoid(b) + 0.1 * a'}}, "
                             "{expression: 'where(x > 0.1 and not x > 2 or x < -9, x ^ 2, erf(x)) - abs(x) / 2 + min(x, 0.1) * max(x, -x) + exp(sin(x)) * cos(x)'}, "
                             "{expression: 'sign(x) * sqrt(abs(x)) + log1p(abs(x)) + expm1(x) * softplus(x) + relu(x) * tanh(x) + log(1 + x * x) + "
                             "(x >= 0.3) + (x != 1) * (x == x) + detach(x) + floor(3 * x) - round(2 * x) + pow(2, x) + -x'}, {linear: 3}]"),
    "features": ((4, 6), 12, "[{linear: {out: 5, name: a}}, {linear: 1}, {expression: {from: a, value: 'softmax(a) * x - mean(a) + norm(a - x) + 0.1 * index'}}, "
                            "{expression: 'logsumexp(x) + x * (max(x) - min(x))'}, {linear: 3}, flatten]"),
    "numbers": ((6,), 2, "[{linear: 5}, {expression: 'sum(x * x)'}, {linear: 2}]"),
    "volume": ((2, 6, 5, 4), 3, "[{conv3d: {out: 4, kernel_size: [3, 2, 3], stride: [2, 1, 1], padding: [1, 0, 2], dilation: [2, 1, 1]}}, relu, {max_pool3d: {kernel_size: 2, "
                                "stride: 1, padding: 1, ceil_mode: true}}, batch_norm, {conv3d: {out: 6, kernel_size: [1, 2, 2], groups: 2, bias: false}}, "
                                "{avg_pool3d: {kernel_size: 2, stride: [1, 2, 1], padding: 1, count_include_pad: false}}, flatten, {linear: 3}]"),
    "transposed_volume": ((2, 2, 3, 2), 3, "[{conv_transpose3d: {out: 6, kernel_size: [3, 2, 2], stride: [3, 2, 1], padding: [1, 0, 2], output_padding: [2, 1, 0], "
                                           "dilation: [2, 1, 3], groups: 2}}, relu, {conv_transpose3d: {out: 2, kernel_size: 2, bias: false}}, flatten, {linear: 3}]"),
    "drawn": ((2, 3, 4, 3), 3, "[{conv3d: {out: 4, kernel_size: 2}}, rrelu, {dropout3d: 0.2}, {rrelu: {lower: -0.1, upper: 0.4}}, {feature_alpha_dropout: 0.2}, flatten, {linear: 9}, "
                              "selu, {alpha_dropout: 0.3}, {linear: 3}]"),
    "padded_volume": ((2, 2, 3, 4), 3, "[{conv3d: {out: 3, kernel_size: 1}}, {pad: 1}, {pad: {padding: [2, 1, 0, 2, 1, 3], mode: reflect}}, {pad: {padding: [1, 2, 3, 0, 1, 1], mode: circular}}, "
                                       "{conv3d: {out: 2, kernel_size: [4, 3, 5]}}, {pad: {padding: [0, 1, 2, 0, 1, 0], mode: replicate}}, flatten, {linear: 3}]"),
    "unpools": ((3, 7, 6), 3, "[{conv2d: {out: 4, kernel_size: 2}}, {relu: {name: a}}, {max_pool2d: 2}, {conv2d: {out: 4, kernel_size: 1, name: b}}, {max_pool2d: {kernel_size: [2, 1], stride: 2, "
                              "padding: [1, 0], ceil_mode: true}}, tanh, {max_unpool2d: {kernel_size: [2, 1], stride: 2, padding: [1, 0], ceil_mode: true, from: b}}, "
                              "{max_unpool2d: {kernel_size: 2, from: a}}, {conv2d: {out: 2, kernel_size: 1}}, flatten, {linear: 3}]"),
    "unpooled_signal": ((3, 11), 2, "[{conv1d: {out: 4, kernel_size: 2, name: a}}, {max_pool1d: 3}, {conv1d: {out: 4, kernel_size: 1}}, {max_unpool1d: {kernel_size: 3, from: a}}, flatten, {linear: 2}]"),
    "unpooled_volume": ((2, 5, 4, 3), 2, "[{conv3d: {out: 3, kernel_size: 1, name: a}}, {max_pool3d: {kernel_size: 2, stride: [2, 3, 2], padding: [0, 1, 0]}}, tanh, "
                                         "{max_unpool3d: {kernel_size: 2, stride: [2, 3, 2], padding: [0, 1, 0], from: a}}, flatten, {linear: 2}]"),
    "volume_pools": ((3, 4, 5, 4), 2, "[{avg_pool3d: {kernel_size: [2, 1, 2], stride: 1, divisor_override: 3}}, {adaptive_max_pool3d: [2, 3, 2]}, {adaptive_avg_pool3d: [1, 2, 2]}, "
                                      "{conv3d: {out: 3, kernel_size: 1}}, prelu, {adaptive_avg_pool3d: 1}, flatten, {linear: 2}]"),
    "rotary": ((12, 8), 3, "[{linear: 16}, {rotary_embedding: {head_size: 4, heads: 3}}, {scaled_dot_product_attention: {heads: 2, num_kv_heads: 1, causal: true}}, "
                           "{linear: 24}, {rotary_embedding: {head_size: 6, heads: 2, interleaved: true, base: 50}}, "
                           "{scaled_dot_product_attention: {heads: 4}}, flatten, {linear: 3}]"),
    "interleaved": ((5, 8), 3, "[{rotary_embedding: {head_size: 4, interleaved: true}}, flatten, {linear: 3}]"),
    "grouped": ((70, 6), 2, "[{linear: 32}, {scaled_dot_product_attention: {heads: 4, num_kv_heads: 2}}, flatten, {linear: 2}]"),
    "mean": ((7, 5), 3, "[{linear: 4}, {mean: 1}, {linear: 3}, {reshape: [3, 1]}, {mean: -1}]"),
    "means": ((3, 6, 5), 2, "[{conv2d: {out: 4, kernel_size: 2}}, {mean: 2}, {mean: {dim: 1}}, {linear: 2}]"),
    "states": ((6, 4), 5, "[{linear: {out: 3, name: x}}, {lstm: {hidden_size: 2, num_layers: 2, bidirectional: true, initial_state: learned, last_state: [h, c]}}, "
                          "{lstm: {hidden_size: 2, num_layers: 2, bidirectional: true, initial_state: [c, h], output: last, last_state: d}}, {flatten: {from: d, name: f}}, "
                          "{gru: {hidden_size: 4, initial_state: learned, from: x, last_state: g}}, {gru: {hidden_size: 4, initial_state: g, bias: false, output: last, name: e}}, "
                          "{rnn: {hidden_size: 4, initial_state: e, from: x, output: last}}, {concat: {from: f}}, {linear: 5}]"),
    "lstm": ((7, 3), 4, "[{lstm: {hidden_size: 5, num_layers: 2, bidirectional: true, dropout: 0.3}}, {lstm: {hidden_size: 37, bias: false}}, "
                        "{lstm: {hidden_size: 4, num_layers: 3, output: last}}]"),
    "gru": ((6, 4), 6, "[{gru: {hidden_size: 35, num_layers: 3}}, {gru: {hidden_size: 5, bias: false}}, {gru: {hidden_size: 3, bidirectional: true, output: last}}]"),
    "rnn": ((5, 2), 3, "[{rnn: {hidden_size: 6, bidirectional: true}}, {rnn: {hidden_size: 4, num_layers: 2, nonlinearity: relu, bias: false}}, "
                       "{rnn: {hidden_size: 3, bidirectional: true, num_layers: 2, output: last}}, {linear: 3}]"),
}


def write_layers(folder, shape, outputs, layers, rows=12):
    """The data of a model of LAYERS: returns the config and the rows."""
    import h5py
    r = np.random.default_rng(1)
    x = (r.normal(size=(rows, *shape)) * 3 + 1).astype("f4")
    with h5py.File(os.path.join(folder, "data.h5"), "w") as f:
        f["x"], f["y"] = x, r.normal(size=(rows, outputs)).astype("f4")
    return (f"dataset: {{path: data.h5}}\nsampler: {{batch_size: 4}}\nmodel: {{layers: {layers}}}\nloss: mse\n"
            "optimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 1}\n"), x


# A table with every type of column and every rule; names that C does not allow or that are reserved.
TABLE = """dataset:
  path: table.csv
  targets: y
  SCALE
  columns:
    a: {type: number, missing: mean, indicator: true, scale: minmax}
    b c: {type: category, encoding: ordinal, unknown: UNKNOWN}
    double: {type: category, missing: most_frequent, encoding: embedding}
    EOF: {type: category, missing: constant}
    When: {type: date, parts: [year, month, day, weekday, dayofyear, quarter, hour, minute, second, epoch], missing: median}
    0.weight: {missing: median}
sampler: {batch_size: 8}
model: {layers: [{linear: 5}, sigmoid, {linear: 1}]}
loss: mse
optimizer: {type: sgd, lr: 0.00001}
train: {epochs: 1}
"""


def write_table(path):
    with open(path, "w", newline="", encoding="utf-8") as f:
        rows = csv.writer(f, lineterminator="\n")
        rows.writerow(["a", "b c", "double", "EOF", "When", "flag", "0.weight", "y"])
        for i in range(40):
            date = f"{2000 + i % 9}-0{1 + i % 9}-1{i % 9} 1{i % 9}:3{i % 9}:0{i % 9}.5{['', 'Z', '+02:00', '-0330', '+01'][i % 5]}" if i % 6 else ""
            rows.writerow([i % 7 if i % 5 else "", ["x", "y,z", 'é"q'][i % 3], [1, 2.5, "3.0", ""][i % 4], ["aa", "b", "", "?c*/"][i % 4], date,
                           ["yes", "no"][i % 2], i / 10 if i % 11 else "", i])


# Two inputs and two outputs, one of which has the name of an input: config, inputs of a row.
NAMED = """dataset: {path: data.h5, inputs: {image: x, table: z}, targets: {kind: c, value: y}SCALE}
sampler: {batch_size: 4}
model:
  layers:
    - conv2d: {out: 4, kernel_size: 3, from: image}
    - flatten: {name: seen}
    - linear: {out: 6, from: table, name: known}
    - concat: {from: [seen, known]}
    - relu
    - linear: {out: 3, name: last}
    - reshape: [3, 1]
    - linear: {out: 2, name: pairs}
losses: [{type: cross_entropy, output: last, target: kind, name: table}, {type: mse, output: pairs, target: value}]
optimizer: {type: adam, lr: 0.01}
train: {epochs: 1}
"""


def write_named(folder):
    """The rows for NAMED; returns those of all inputs."""
    import h5py
    r = np.random.default_rng(2)
    x, z = (r.normal(size=(12, *shape)).astype("f4") * 2 + 1 for shape in ((2, 5, 4), (5,)))
    with h5py.File(os.path.join(folder, "data.h5"), "w") as f:
        f["x"], f["z"], f["c"], f["y"] = x, z, np.arange(12) % 3, r.normal(size=(12, 3, 2)).astype("f4")
    return np.concatenate([x.reshape(12, -1), z], 1)


# Rows of different lengths: inputs of the dataset, columns of the outputs, layers. Tokens t and u end with a padding of 0, the
# series x has n steps; write_padded makes them.
PADDED = {
    "padded_attention": ("t", 4, "[{embedding: {embedding_dim: 8, num_embeddings: 9, padding_idx: 0}}, positional_embedding, {residual: [{attention: {heads: 2, dropout: 0.3}}]}, "
                                 "layer_norm, {residual: [{attention: {heads: 4, causal: true, bias: false}}]}, {linear: 16}, {scaled_dot_product_attention: {heads: 4, "
                                 "num_kv_heads: 2, dropout: 0.1}}, {mean: 1}, {linear: 4}]"),
    "padded_positions": ("t", (75, 3), "[{embedding: {embedding_dim: 6, num_embeddings: 9, padding_idx: 0}}, {attention: {heads: 3}}, {linear: 3}]"),
    "padded_lstm": ("t", 4, "[{embedding: {embedding_dim: 5, num_embeddings: 9, padding_idx: 0}}, {lstm: {hidden_size: 7, num_layers: 2, bidirectional: true}}, "
                            "{lstm: {hidden_size: 4, bias: false, output: last}}]"),
    "padded_gru": ("t", 6, "[{embedding: {embedding_dim: 5, num_embeddings: 9, padding_idx: 0}}, {gru: {hidden_size: 3, bidirectional: true}}, "
                           "{gru: {hidden_size: 5, bias: false}}, {gru: {hidden_size: 3, num_layers: 2, bidirectional: true, output: last}}]"),
    "padded_rnn": ("t", (75, 3), "[{embedding: {embedding_dim: 5, num_embeddings: 9, padding_idx: 0}}, {rnn: {hidden_size: 4, bidirectional: true}}, "
                                 "{rnn: {hidden_size: 3, nonlinearity: relu, bias: false}}]"),
    "padded_states": ("t", 7, "[{embedding: {embedding_dim: 5, num_embeddings: 9, padding_idx: 0}}, {lstm: {hidden_size: 3, num_layers: 2, bidirectional: true, initial_state: learned, "
                              "last_state: [h, c], name: y}}, {lstm: {hidden_size: 3, num_layers: 2, bidirectional: true, initial_state: [c, h], last_state: d}}, {mean: {dim: 1, name: m}}, "
                              "{flatten: {from: d}}, {linear: {out: 5, name: e}}, {gru: {hidden_size: 5, from: y, initial_state: e, output: last}}, {concat: {from: m}}, {linear: 7}]"),
    "bag": ("t", 4, "[{embedding_bag: {embedding_dim: 5, num_embeddings: 9}}, {linear: 4}]"),
    "padded_max": ("t", 4, "[{embedding: {embedding_dim: 5, num_embeddings: 9, padding_idx: 0}}, {lstm: {hidden_size: 3, bidirectional: true, output: all}}, {max: 1}, {linear: 4}]"),
    "padded_max_of_maps": ("t", 4, "[{embedding: {embedding_dim: 6, num_embeddings: 9, padding_idx: 0}}, {linear: 4}, {max: {dim: 1, keepdim: true}}, flatten]"),
    "padded_prelu": ("t", 4, "[{embedding: {embedding_dim: 6, num_embeddings: 9, padding_idx: 0}}, prelu, {attention: {heads: 3}}, {prelu: {num_parameters: 75, init: -0.5}}, "
                             "{gru: 4}, {dropout1d: 0.2}, {prelu: 75}, {mean: 1}, {linear: 4}]"),
    "padded_bag": ("t", 4, "[{embedding_bag: {embedding_dim: 5, num_embeddings: 9, padding_idx: 0, mode: max}}, {linear: 4}]"),
    "padded_without_reader": ("t", 3, "[{embedding: {embedding_dim: 2, num_embeddings: 9, padding_idx: 0}}, flatten, {linear: 3}]"),
    "series": ("{series: x, steps: n}", 2, "[{sequence_lengths: {from: [series, steps]}}, {lstm: {hidden_size: 6, output: all}}, {mean: {dim: [1, 2], keepdim: true}}, {flatten: {name: a}}, "
                                           "{sequence_lengths: {from: [series, steps]}}, {linear: 4}, {mean: {dim: 1, keepdim: true}}, flatten, {concat: {from: a}}, {linear: 2}]"),
    "series_last": ("{series: x, steps: n}", 4, "[{sequence_lengths: {from: [series, steps]}}, {rnn: {hidden_size: 4, num_layers: 2, output: last}}]"),
    "cross": ("{source: t, shifted: u}", (70, 3), """
      [{embedding: {embedding_dim: 8, num_embeddings: 9, padding_idx: 0, from: source}}, {residual: [{attention: {heads: 4}}]}, {layer_norm: {name: memory}},
       {embedding: {embedding_dim: 8, num_embeddings: 9, padding_idx: 0, from: shifted}}, positional_embedding, {residual: [{attention: {heads: 4, causal: true}}]},
       {layer_norm: {name: queries}}, {cross_attention: {heads: 4, dropout: 0.2, from: memory}}, {add: {from: queries}}, {layer_norm: {name: later}},
       {cross_attention: {heads: 2, bias: false, from: memory}}, {linear: 3}]"""),
    "cross_of_series": ("{series: x, other: v}", 2, "[{linear: {out: 6, from: series, name: s}}, {linear: {out: 6, from: other, name: o}}, "
                                                    "{cross_attention: {heads: 3, from: [o, s]}}, flatten, {linear: 2}]"),
    "masks": ("{series: x, mask: m, key_mask: k, bias: b}", 2, "[{linear: {out: 6, from: series, name: s}}, {cross_attention: {heads: 3, from: [s, s, mask]}}, {tanh: {name: a}}, "
                                                               "{cross_attention: {heads: 2, mask: keep, from: [a, s, key_mask]}}, {linear: {out: 6, name: c}}, "
                                                               "{cross_attention: {heads: 1, mask: add, from: [c, c, bias]}}, flatten, {linear: 2}]"),
}


def write_padded(folder, name):
    """The data of PADDED: returns the config and the rows of all inputs."""
    import h5py
    inputs, outputs, layers = PADDED[name]
    r = np.random.default_rng(6)
    arrays = {"x": r.normal(size=(12, 9, 3)), "v": r.normal(size=(12, 4, 5)), "n": np.arange(12) % 9 + 1}
    for key, positions in ("t", 75), ("u", 70):
        arrays[key] = r.integers(0, 9, (12, positions))
        for i, length in enumerate([1, 2, positions, 64, 65, positions - 1, 3, 30, 66, 10, 63, 5]):
            arrays[key][i, length - 1], arrays[key][i, length:] = 1 + i % 8, 0  # zeros before the last token are none
    arrays["y"] = r.normal(size=(12, *np.atleast_1d(outputs)))
    arrays["m"], arrays["k"], arrays["b"] = r.random((12, 9, 9)) < 0.5, r.random((12, 9)) < 0.5, r.normal(size=(12, 9, 9))
    arrays["m"][:, range(9), range(9)], arrays["k"][:, 4] = 0, 1
    with h5py.File(os.path.join(folder, "data.h5"), "w") as f:
        for key, values in arrays.items():
            f[key] = values.astype("f4")
    named = re.findall(r"\w+: (\w)", inputs) or [inputs]
    config = (f"dataset: {{path: data.h5, inputs: {inputs}, targets: y}}\nsampler: {{batch_size: 4}}\nmodel:\n  layers: {layers}\n"
              "loss: mse\noptimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 1}\n")
    return config, np.concatenate([arrays[key].reshape(12, -1) for key in named], 1).astype("f4")


# The last position of a row of this text is padding where it is a blank.
PADDED_TEXT = """dataset: {path: text.txt, text: {block_size: 6}}
sampler: {batch_size: 8}
model: {layers: [{embedding: {embedding_dim: 8, padding_idx: 0}}, {attention: {heads: 2}}, {gru: {hidden_size: 5}}, {linear: CLASSES}]}
loss: cross_entropy
optimizer: adam
train: {epochs: 1}
"""


# The mean, sum or maximum of a text's tokens.
BAG = """dataset: {{path: text.txt, text: {{block_size: {size}}}}}
sampler: {{batch_size: 8}}
model: {{layers: [{{embedding_bag: {{embedding_dim: 7, mode: {mode}, padding_idx: {padding}}}}}, {{linear: {out}}}, {{reshape: [{size}, {classes}]}}]}}
loss: cross_entropy
optimizer: adam
train: {{epochs: 1}}
"""


def check_refusal(case, err):
    """Of a batch norm without running statistics, in the run's config."""
    lines = case.read("runs/test/config.yaml").splitlines()
    line, row = next((i, text) for i, text in enumerate(lines, 1) if "batch_norm" in text)
    case.assertIn(f"runs/test: config:{line}:{row.index('batch_norm') + 1}: model.layers.1.batch_norm uses the statistics of the batch "
                  "(track_running_stats: false), which an exported model does not have\n", err)


class ExportC(program.Case):
    def compile(self, name="m", compiler="gcc", flags=("-O2",)):
        if not shutil.which(compiler):
            self.skipTest(f"{compiler} is not installed")
        library = self.path(f"{name}-{compiler}{len(os.listdir(self.folder))}.so")
        done = subprocess.run([compiler, *FLAGS, *flags, self.path(name + ".c"), "-o", library, "-lm"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return ctypes.CDLL(library)

    @staticmethod
    def run_library(library, rows, size, function="model_predict"):
        outputs = np.empty((len(rows), size), "f4")
        for i, row in enumerate(np.ascontiguousarray(rows.reshape(len(rows), -1))):
            code = getattr(library, function)(row.ctypes.data_as(ctypes.c_void_p), outputs[i:].ctypes.data_as(ctypes.c_void_p))
            assert code == 0, code
        return outputs

    def predictions(self, *words):
        import h5py
        self.run_program("predict", "test.yaml", "--part", "all", "--out", "p.h5", *words)
        with h5py.File(self.path("p.h5")) as f:
            return f["outputs"][:]

    def compare(self, got, expected, what, is_exact=True):
        """The same bits where products are fused; else a few units in the last place of the largest output."""
        if FUSES and is_exact:
            self.assertEqual(got.tobytes(), expected.astype("f4").tobytes(), f"{what}: {np.abs(got - expected).max()}")
        else:
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max(), err_msg=what)

    def train(self, shape, outputs, layers, rows=12):
        config, x = write_layers(self.folder, shape, outputs, layers, rows)
        self.write("test.yaml", config)
        self.run_program("test.yaml", "--fresh")
        return x

    def test_models_have_every_type(self):
        """The models of these tests and of those of ONNX have every type of layer, so that each is in both formats."""
        out, _ = self.run_program("--help-config", "model.layers")
        types = re.findall(r"^  ([a-z]\w+)  ", out.split("Keys of every layer")[0], re.M)
        self.assertGreater(len(types), 60)
        layers = " ".join([*(m[2] for m in LAYERS.values()), *(m[2] for m in PADDED.values()), BAG])
        self.assertEqual([t for t in types if not re.search(rf"\b{t}\b", layers)], [])

    def test_every_layer(self):
        for name, model in LAYERS.items():
            with self.subTest(name):
                x = self.train(*model)
                self.run_program("export", "runs/test", "--out", "m.c")
                self.assertNotRegex(self.read("m.c"), r"sizeof \*\w+ [+-]")  # bytes, not floats
                expected = self.predictions()
                for compiler, flags in (("gcc", ("-O1",)), ("clang", ("-O1",))):
                    got = self.run_library(self.compile("m", compiler, flags), x, expected.shape[1])
                    self.compare(got, expected, f"{name} {compiler} {flags}", name not in ROUNDED)

    def test_tokens_of_a_dataset(self):
        """They are floats; one that the embedding does not have is an error."""
        x = self.train((4,), 3, "[{linear: 3}]")
        x = np.abs(x).astype("i4") % 9
        import h5py
        with h5py.File(self.path("data.h5"), "r+") as f:
            f["x"][:] = x
        layers = "[{embedding: {embedding_dim: 5, num_embeddings: 9}}, {mean: 1}, {linear: 3}]"
        self.write("test.yaml", self.read("test.yaml").replace("[{linear: 3}]", layers))
        self.run_program("test.yaml", "--fresh")
        self.run_program("export", "runs/test", "--out", "m.c")
        library = self.compile()
        self.compare(self.run_library(library, x.astype("f4"), 3), self.predictions(), "tokens")
        outputs = np.empty(3, "f4")
        for value, code in (8, 0), (9, 2), (-1, 2), (1.5, 2), (math.nan, 2):
            row = np.array([0, 1, value, 2], "f4")
            self.assertEqual(library.model_predict(row.ctypes.data_as(ctypes.c_void_p), outputs.ctypes.data_as(ctypes.c_void_p)) == 0, code == 0, value)

    def test_named_inputs_and_several_outputs(self):
        for scale in ("", ", scale: standard", ", divide: 3"):
            with self.subTest(scale):
                rows = write_named(self.folder)
                self.write("test.yaml", NAMED.replace("SCALE", scale))
                self.run_program("test.yaml", "--fresh")
                self.run_program("export", "runs/test", "--out", "m.c")
                self.compare(self.run_library(self.compile(), rows, 9), self.predictions(), scale)
                header = self.read("m.h")
                for line in ("inputs 0 to 39: image", "inputs 40 to 44: table", "outputs 0 to 2: table", "outputs 3 to 8: pairs"):
                    self.assertIn(f"\n * {line}\n", header)
        code = self.read("m.c")
        os.remove(self.path("data.h5"))
        self.run_program("export", "runs/test", "--out", "m.c")
        self.assertEqual(self.read("m.c"), code)
        program.without_datasets(self.checkpoints()[-1], "data/inputs")
        _, err = self.run_program("export", "runs/test", "--out", "m.c", code=DATA)
        self.assertIn("the shapes of the model's inputs are not in the checkpoint, and the dataset cannot be read: ", err)

    def test_flags_do_not_change_bits(self):
        x = self.train(*LAYERS["activations"])
        self.run_program("export", "runs/test", "--out", "m.c")
        expected = self.predictions()
        for compiler in ("gcc", "clang"):
            for flags in (("-O0",), ("-O2", "-march=native"), ("-O3", "-std=gnu99", "-march=native"), ("-Os", "-mno-fma")):
                self.compare(self.run_library(self.compile("m", compiler, flags), x, expected.shape[1]), expected, f"{compiler} {flags}")

    def test_convolution_of_a_library(self):
        """A large convolution is oneDNN's in predict, which sums in another order: equal to rounding."""
        x = self.train((32, 24, 24), 2, "[{conv2d: {out: 48, kernel_size: 3, padding: 1}}, relu, {adaptive_avg_pool2d: 1}, flatten, {linear: 2}]")
        self.run_program("export", "runs/test", "--out", "m.c")
        expected = self.predictions()
        got = self.run_library(self.compile(), x, 2)
        np.testing.assert_allclose(got, expected, rtol=0, atol=4 * np.spacing(np.abs(expected).max() + np.float32(1)))

    def test_a_table_with_labels(self):
        """CSV: raw columns, scaled in double; columns and labels as strings. Doubles give the bits of predict."""
        r = np.random.default_rng(5)
        rows = r.normal(size=(30, 3)) * [1, 1000, 1e-3] + [0, 2020, 5]
        lines = ["a,b c,d?? %,class"] + [",".join(map(repr, map(float, row))) + "," + ("rød", 'a"b')[i % 2] for i, row in enumerate(rows)]
        lines = [line.replace('a"b', '"a""b"') for line in lines]
        self.write("data.csv", "\n".join(lines) + "\n")
        self.write("test.yaml", "dataset: {path: data.csv, targets: class, scale: standard}\nsampler: {batch_size: 8}\n"
                                "model: {layers: [{linear: 9}, relu, {linear: 2}]}\nloss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 2}\n")
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.c")
        os.rename(self.path("data.csv"), self.path("moved.csv"))
        self.run_program("export", "runs/test", "--out", "without_data.c")  # the checkpoint knows the columns
        self.assertEqual(self.read("m.c"), self.read("without_data.c").replace("without_data.h", "m.h"))
        os.rename(self.path("moved.csv"), self.path("data.csv"))
        library, expected = self.compile(), self.predictions()
        self.compare(self.run_library(library, rows, 2, "model_predict_double"), expected, "doubles")
        np.testing.assert_allclose(self.run_library(library, rows.astype("f4"), 2), expected, atol=1e-2)
        strings = lambda name, count: [s.decode() for s in (ctypes.c_char_p * count).in_dll(library, name)]
        self.assertEqual(strings("model_labels", 2), ['a"b', "rød"])
        self.assertEqual(strings("model_columns", 3), ["a", "b c", "d?? %"])
        header = self.read("m.h")
        for line in ("#define MODEL_INPUTS 3", "#define MODEL_OUTPUTS 2", "#define MODEL_LABELS 2"):
            self.assertIn(line, header)

    def test_target_scale(self):
        """Outputs are in the unit of the targets: the predictions, rounded to float."""
        import h5py
        r = np.random.default_rng(4)
        x, y = r.normal(size=(9, 5)).astype("f4"), (np.abs(r.normal(size=(9, 2))) * 1000).astype("f4")
        with h5py.File(self.path("data.h5"), "w") as f:
            f["x"], f["y"] = x, y
        for scale in ("standard", "minmax", "log1p"):
            self.write("test.yaml", f"dataset: {{path: data.h5, target_scale: {scale}}}\nsampler: {{batch_size: 4}}\n"
                                    "model: {layers: [{linear: 9}, relu, {linear: 2}]}\nloss: mse\noptimizer: adam\ntrain: {epochs: 1}\n")
            self.run_program("test.yaml", "--fresh")
            self.run_program("export", "runs/test", "--out", f"{scale}.c")
            self.predictions()
            with h5py.File(self.path("p.h5")) as f:
                expected = f["prediction"][:]
            self.compare(self.run_library(self.compile(scale), x, 2), expected, scale)

    @staticmethod
    def run_table(library, header, rows):
        """The outputs of rows of text, and the codes."""
        members = re.findall(r"^    (double|const char \*) ?(\w+); /\* (.*?): ", header, re.M)
        class Row(ctypes.Structure):
            _fields_ = [(member, ctypes.c_double if kind == "double" else ctypes.c_char_p) for kind, member, _ in members]
        outputs, codes = np.zeros((len(rows), 1), "f4"), []
        for i, row in enumerate(rows):
            number = lambda text: {"": math.nan, "yes": 1, "no": 0}[text] if text in ("", "yes", "no") else float(text)
            texts = lambda text: text.encode() if text or i % 2 else None  # missing: "" or NULL
            values = Row(*[number(row[name]) if kind == "double" else texts(row[name]) for kind, _, name in members])
            codes.append(library.model_predict(ctypes.byref(values), outputs[i:].ctypes.data_as(ctypes.c_void_p)))
        return outputs, codes

    def test_columns_with_names_of_macros(self):
        """gcc defines unix and linux unless it is asked for standard C."""
        self.write("table.csv", "unix,linux,kind,y\n" + "".join(f"{i},{i % 5},{'ab'[i % 2]},{i / 9}\n" for i in range(20)))
        self.write("test.yaml", "dataset: {path: table.csv, targets: [y], columns: {kind: {}}}\nmodel: {layers: [{linear: 1}]}\nloss: mse\n"
                                "optimizer: sgd\ntrain: {epochs: 1}\n")
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.c")
        self.compile(flags=("-std=gnu17",))

    def test_names_that_change_the_writing_direction(self):
        self.write("table.csv", "a\u202ex,kind,y\n" + "".join(f"{i},{'ab'[i % 2]}\u2066,{i / 9}\n" for i in range(20)))
        self.write("test.yaml", "dataset: {path: table.csv, targets: [y], columns: {kind: {}}}\nmodel: {layers: [{linear: 1}]}\nloss: mse\n"
                                "optimizer: sgd\ntrain: {epochs: 1}\n")
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.c")
        for name in ("m.c", "m.h"):
            with open(self.path(name), encoding="utf-8") as f:
                self.assertNotRegex(f.read(), "[\u202a-\u202e\u2066-\u2069]", name)

    def test_columns_whose_names_become_equal(self):
        """A column never gets the name that another one has in the table."""
        self.write("t.csv", "a b,a_b,a_b_,y\n" + "1,2,3,0\n4,2,,1\n" * 4)
        self.write("test.yaml", "dataset: {path: t.csv, columns: {a b: {missing: median}, a_b: {missing: median}, a_b_: {missing: median}}}\nsampler: {batch_size: 4}\nmodel: {layers: [{linear: 2}]}\n"
                                "loss: cross_entropy\noptimizer: sgd\ntrain: {epochs: 1}\n")
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "model.c")
        fields = re.findall(r"double (\w+);.*?/\* *'?([^:,*']+)", self.read("model.h"))
        self.assertEqual([name for name, _ in fields], ["a_b__", "a_b", "a_b_"], self.read("model.h"))

    def test_prepared_columns(self):
        """A struct of raw columns; the features of predict, bit by bit, without the table."""
        write_table(self.path("table.csv"))
        with open(self.path("table.csv"), newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
        for scale, unknown in (("scale: standard", "ignore"), ("scale: none", "error")):
            self.write("test.yaml", TABLE.replace("SCALE", scale).replace("UNKNOWN", unknown).replace(", scale: minmax" if "none" in scale else "\0", ""))
            self.run_program("test.yaml", "--fresh")
            os.rename(self.path("table.csv"), self.path("moved.csv"))
            self.run_program("export", "runs/test", "--out", "m.c")
            os.rename(self.path("moved.csv"), self.path("table.csv"))
            expected, header = self.predictions(), self.read("m.h")
            for line in ("double double_; /* double: 1, 2.5, 3.0 */", "const char *b_c; /* b c: ", "const char *EOF_; /* EOF: ", "double x0_weight; /* 0.weight: a number */"):
                self.assertIn(line, header)
            for compiler in ("gcc", "clang"):
                library = self.compile("m", compiler)
                got, codes = self.run_table(library, header, rows)
                self.assertEqual(set(codes), {0})
                self.compare(got, expected, f"{compiler} {scale}")
            wrong = [dict(rows[1], When="2001-02-30"), dict(rows[1], **{"b c": ""}), dict(rows[1], flag=""), dict(rows[1], **{"b c": "new"}),
                     dict(rows[1], **{"0.weight": "-inf"}), dict(rows[1], **{"0.weight": "1e999"})]
            self.assertEqual(self.run_table(library, header, wrong)[1], [5, 3, 3, 0 if unknown == "ignore" else 4, 6, 6])
            if unknown == "error":
                continue
            new = [dict(rows[1], **{"b c": "new", "double": "77", "EOF": "new", "When": "20240229T23:59:59Z"}), dict(rows[2], When="0001/01/01"), dict(rows[3], double="3")]
            with open(self.path("new.csv"), "w", newline="", encoding="utf-8") as f:
                writer = csv.DictWriter(f, rows[0].keys(), lineterminator="\n")
                writer.writeheader()
                writer.writerows(new)
            import h5py
            self.run_program("predict", "test.yaml", "new.csv", "--out", "n.h5")
            with h5py.File(self.path("n.h5")) as f:
                self.compare(self.run_table(library, header, new)[0], f["outputs"][:], "other values")

    def test_columns_with_the_names_of_keywords(self):
        """Of later standards of C, gcc's own, and of C++, which may include the header."""
        words = ["typeof", "constexpr", "nullptr", "alignof", "concept", "co_yield", "bitand", "char8_t", "reinterpret_cast", "static_assert"]
        self.write("data.csv", "\n".join([",".join([*words, "y"]), *(",".join(map(str, range(i, i + 11))) for i in range(9))]) + "\n")
        self.write("test.yaml", f"dataset: {{path: data.csv, targets: y, columns: {{{words[0]}: {{missing: mean}}}}}}\nsampler: {{batch_size: 4}}\n"
                                "model: {layers: [{linear: 1}]}\nloss: mse\noptimizer: sgd\ntrain: {steps: 1}\n")
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.c")
        for words in ("gcc", "-std=gnu17", "m.c"), ("g++", "-std=c++20", "-x", "c++", "m.h"):
            if shutil.which(words[0]):
                done = subprocess.run([*words, "-fsyntax-only"], cwd=self.folder, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_tokens(self):
        self.write("text.txt", "to be or not to be, that is the question. " * 30)
        self.write("test.yaml", "dataset: {path: text.txt, text: {block_size: 80}}\nsampler: {batch_size: 4}\nmodel:\n  layers:\n"
                                "    - embedding: {embedding_dim: 16, name: wte}\n    - positional_embedding: {}\n"
                                "    - repeat: {times: 2, layers: [{residual: [layer_norm, {attention: {heads: 2, causal: true}}]}, "
                                "{residual: [layer_norm, {linear: 32}, {gelu: {approximate: tanh}}, {linear: 16}]}]}\n"
                                "    - layer_norm\n    - linear: {out: 18, bias: false, tie: wte.weight}\n"
                                "loss: cross_entropy\noptimizer: adam\ntrain: {epochs: 1}\n".replace("out: 18", f"out: {len(set(self.read('text.txt')))}"))
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.c")
        expected, library = self.predictions(), self.compile()
        text, known = self.read("text.txt"), sorted(set(self.read("text.txt")))
        rows = np.array([[known.index(c) for c in text[i:i + 80]] for i in range(3)], "i4")
        self.compare(self.run_library(library, rows, expected.shape[1]), expected[:3], "tokens")
        for wrong in (-1, len(known)):
            tokens, outputs = (ctypes.c_int32 * 80)(*[wrong] * 80), (ctypes.c_float * expected.shape[1])()
            self.assertEqual(library.model_predict(tokens, outputs), 2)

    def test_embedding_bag(self):
        """Rows of some padding and of nothing else."""
        self.write("text.txt", "to be or not to be, that is the question. " * 30)
        known = sorted(set(self.read("text.txt")))
        for mode in ("mean", "sum", "max"):
            for padding in ("null", "0", "-1"):
                with self.subTest(mode, padding=padding):
                    self.write("test.yaml", BAG.format(size=5, mode=mode, padding=padding, out=5 * len(known), classes=len(known)))
                    self.run_program("test.yaml", "--fresh")
                    self.run_program("export", "runs/test", "--out", "m.c")
                    expected, library = self.predictions(), self.compile()
                    text = self.read("text.txt")
                    rows = np.array([[known.index(c) for c in text[i:i + 5]] for i in range(30)], "i4")
                    self.compare(self.run_library(library, rows, expected.shape[1]), expected[:30], "tokens")
                    if padding == "0":
                        import h5py
                        with h5py.File(self.checkpoints()[-1]) as f:
                            bias = f["model/1.bias"][:]
                        self.compare(self.run_library(library, np.zeros((1, 5), "i4"), expected.shape[1]), bias[None], "only padding")

    def test_rows_of_different_lengths(self):
        """Padding, given lengths, and cross_attention to a padded input: the bits of predict for rows of all lengths."""
        for name in PADDED:
            with self.subTest(name):
                config, rows = write_padded(self.folder, name)
                self.write("test.yaml", config)
                self.run_program("test.yaml", "--fresh")
                self.run_program("export", "runs/test", "--out", "m.c")
                expected = self.predictions()
                for compiler in ("gcc", "clang"):
                    got = self.run_library(self.compile("m", compiler, ("-O1",)), rows, expected[0].size)
                    self.compare(got, expected.reshape(len(rows), -1), f"{name} {compiler}")

    def test_given_lengths(self):
        """A length that no row can have is an error, which the header names."""
        config, rows = write_padded(self.folder, "series_last")
        self.write("test.yaml", config)
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.c")
        self.assertIn("2 for a length that is not from 1 to the positions of a row", self.read("m.h"))
        self.assertIn("inputs 27 to 27: steps", self.read("m.h"))
        library, outputs = self.compile(), np.empty(4, "f4")
        for length, code in (1, 0), (9, 0), (0, 2), (10, 2), (2.5, 2), (-1, 2), (math.nan, 2), (math.inf, 2):
            row = rows[0].copy()
            row[27] = length
            self.assertEqual(library.model_predict(row.ctypes.data_as(ctypes.c_void_p), outputs.ctypes.data_as(ctypes.c_void_p)), code, length)

    def test_masks_that_hide_all(self):
        """A query without a key is an error, as in predict: of each kind of mask; the header names it."""
        config, rows = write_padded(self.folder, "masks")
        self.write("test.yaml", config)
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.c")
        header, outputs = self.read("m.h"), np.empty(2, "f4")
        self.assertIn("; 2 for a mask that leaves a query without a key", header)
        library = self.compile()
        for name, hidden in ("mask", 1), ("key_mask", 0), ("bias", -1e30):
            first, last = map(int, re.search(rf"inputs (\d+) to (\d+): {name}\n", header).groups())
            for count in 0, 1:
                row = rows[0].copy()
                row[first:last + 1] = hidden
                row[first:last + 1:9] += (1 - 2 * hidden if abs(hidden) <= 1 else 1e30) * count
                self.assertEqual(library.model_predict(row.ctypes.data_as(ctypes.c_void_p), outputs.ctypes.data_as(ctypes.c_void_p)), 0 if count else 2, name)

    def test_padded_text(self):
        self.write("text.txt", "to be or not to be, that is the question. " * 30)
        text = self.read("text.txt")
        known = sorted(set(text))
        self.write("test.yaml", PADDED_TEXT.replace("CLASSES", str(len(known))))
        self.run_program("test.yaml")
        self.run_program("export", "runs/test", "--out", "m.c")
        expected = self.predictions()
        rows = np.array([[known.index(c) for c in text[i:i + 6]] for i in range(40)], "i4")
        self.assertTrue((rows[:, -1] == 0).any())
        self.compare(self.run_library(self.compile(), rows, expected[0].size), expected[:40].reshape(40, -1), "text")

    def test_any_weights(self):
        """NaN, infinities and denormals are written, and give what predict gives."""
        x = self.train((3,), 4, "[{linear: 4}]")
        def change(f):
            f["model/0.weight"][0] = np.array([1e-42, -1e-45, 0], "<f4")
            f["model/0.bias"][:] = np.array([-0.0, np.nan, np.inf, -np.inf], "<f4")
        program.change_checkpoint(self.checkpoints()[-1], change)
        self.run_program("export", "runs/test", "--out", "m.c")
        got, expected = self.run_library(self.compile(), x, 4), self.predictions()
        np.testing.assert_array_equal(got, expected)
        self.assertTrue(np.isnan(got[:, 1]).all() and np.isinf(got[:, 2:]).all() and (got[:, 0] != 0).any())

    def test_refused(self):
        self.train((4,), 3, "[{linear: 3}, {batch_norm: {track_running_stats: false}}]")
        _, err = self.run_program("export", "runs/test", "--out", "m.c", code=USAGE)
        check_refusal(self, err)
        self.train((2, 5, 5), 3, "[{conv2d: {out: 1, kernel_size: 3}}, flatten, {linear: 3}]")
        _, err = self.run_program("export", "runs/test", "--out", "m.cpp", "--format", "c", code=USAGE)
        self.assertIn("--out: the file of format c must end in .c, because a header .h is written, too; got 'm.cpp'", err)
        os.remove(self.path("data.h5"))
        program.without_datasets(self.checkpoints()[-1], "data/inputs")
        _, err = self.run_program("export", "runs/test", "--out", "m.c", code=DATA)
        self.assertIn("the shape of the model's inputs is not in the checkpoint, and the dataset cannot be read: ", err)
        self.assertFalse(os.path.exists(self.path("m.c")) or os.path.exists(self.path("m.h")))

    def test_examples(self):
        """examples/predict: Python and Fortran programs that call the C file."""
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml", "train.epochs=30")
        self.run_program("export", "runs/test", "--out", "wine.c")
        folder = os.path.join(program.SOURCE, "examples", "predict")
        self.compile("wine")
        done = subprocess.run(["cc", *FLAGS, "-O2", "wine.c", "-o", "libwine.so", "-lm"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run(["/usr/bin/python3", os.path.join(folder, "predict.py"), "./libwine.so"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.split()
        self.assertEqual(len(lines), 3, done.stdout)
        if not shutil.which("gfortran"):
            self.skipTest("gfortran is not installed: the Fortran example is not tested")
        done = subprocess.run(f"cc -c -O2 wine.c && gfortran -Wall -Werror {folder}/predict.f90 wine.o -lm -o predict && ./predict", shell=True,
                              cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        np.testing.assert_allclose([float(v) for v in done.stdout.split()], [float(v) for v in lines], rtol=1e-5)
