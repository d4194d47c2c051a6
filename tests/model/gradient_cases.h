/* A case for each layer and loss, for tests that run all of them. The list is compared with the tables of types, so
 * that one without a case fails (test_gradients.c). */
#pragma once

#include "model/model_fixture.h"

/* One case per layer type: a model with parameters before and after the layer, so that its dx is checked too. */
static const struct {
    const char *type, *layers;
    int dims;
    int64_t shape[4];
} layer_cases[] = {
    {"linear", "[{linear: {out: 5}}, {linear: {out: 3, bias: false}}, {linear: {out: 4}}]", 1, {6}},
    {"linear", "[{linear: {out: 5}}, flatten, {linear: {out: 3}}]", 2, {4, 6}}, /* the last dimension only */
    {"relu", "[{linear: {out: 7}}, relu, {linear: {out: 3}}]", 1, {6}},
    {"tanh", "[{linear: {out: 7}}, tanh, {linear: {out: 3}}]", 1, {6}},
    {"sigmoid", "[{linear: {out: 7}}, sigmoid, {linear: {out: 3}}]", 1, {6}},
    {"gelu", "[{linear: {out: 7}}, gelu, {linear: {out: 3}}]", 1, {6}},
    {"gelu", "[{linear: {out: 7}}, {gelu: {approximate: tanh}}, {linear: {out: 3}}]", 1, {6}},
    {"flatten", "[flatten, {linear: {out: 7}}, flatten, tanh, {linear: {out: 3}}, flatten]", 3, {2, 3, 2}},
    {"sequential",
     "[{sequential: {layers: [{linear: {out: 7}}, tanh, {sequential: [{linear: {out: 5}}]}]}}, {linear: {out: 3}}]",
     1,
     {6}},
    /* gradients of two uses are added */
    {"linear", "[{linear: {out: 6, name: a}}, tanh, {linear: {out: 6, share: a}}, {linear: {out: 3}}]", 1, {6}},
    {"sequential",
     "[{linear: 5}, {sequential: {layers: [{linear: 5}, layer_norm, {residual: [tanh, {linear: 5}]}], name: s}}, "
     "{linear: 5}, "
     "{sequential: {share: s}}, {linear: {out: 3}}]",
     1,
     {6}},
    {"repeat", "[{repeat: {times: 3, layers: [{linear: {out: 6}}, tanh]}}, {linear: {out: 3}}]", 1, {6}},
    /* all ways in which the plan of backward shares, adds or copies a gradient */
    {"residual",
     "[{linear: {out: 6}}, {residual: [{linear: {out: 6}}, tanh, {linear: {out: 6}}]}, {linear: {out: 3}}]",
     1,
     {6}},
    {"residual",
     "[{linear: {out: 6}}, {residual: [{linear: {out: 6}}]}, {residual: [tanh]}, {residual: [{residual: [tanh]}]}, "
     "{linear: {out: 3}}]",
     1,
     {6}},
    {"residual",
     "[{linear: {out: 6}}, {residual: {layers: [{linear: {out: 4}}, gelu], shortcut: [{linear: {out: 4}}]}}, {linear: "
     "{out: 3}}]",
     1,
     {6}},
    {"residual",
     "[{residual: [{linear: {out: 6}}, {residual: [tanh, {residual: [{linear: {out: 6}}]}, tanh]}]}, {linear: {out: "
     "3}}]",
     1,
     {6}},
    {"residual",
     "[{linear: {out: 6}}, {residual: [{residual: [{residual: [{linear: {out: 6}}, tanh]}, sigmoid]}, {residual: "
     "{layers: [tanh], shortcut: [{linear: {out: 6}}, tanh]}}]}, {linear: {out: 3}}]",
     1,
     {6}},
    {"residual",
     "[{linear: {out: 6}}, {residual: [flatten]}, {residual: {layers: [flatten, tanh], shortcut: [flatten]}}, {linear: "
     "{out: 3}}]",
     1,
     {6}},
    {"residual",
     "[{linear: {out: 4}}, {repeat: {times: 2, layers: [{residual: [tanh, {linear: {out: 4}}]}, {residual: [{linear: "
     "{out: 9}}, gelu, {linear: {out: 4}}]}]}}, {linear: {out: 3}}]",
     2,
     {3, 6}},
    {"add",
     "[{linear: {out: 5, name: a}}, tanh, {linear: {out: 5, name: b}}, {add: {from: [a, b, a], name: s}}, {add: {from: "
     "a}}, "
     "{add: {from: [s, s]}}, {add: {from: a}}, {linear: 3}]",
     1,
     {6}},
    {"add", /* one side of a sum has the gradient of the sum already, the other has none */
     "[{linear: {out: 5, name: a}}, tanh, {linear: {out: 5, name: b}}, {linear: {out: 5, name: c, from: a}}, {sigmoid: "
     "{name: d}}, "
     "{add: {from: b, name: s}}, {add: {from: [b, s]}}, {linear: 3}]",
     1,
     {6}},
    {"add",
     "[{linear: {out: 5, name: a}}, tanh, {linear: {out: 5, name: b}}, {linear: {out: 5, name: c, from: a}}, {sigmoid: "
     "{name: d}}, "
     "{add: {from: [b, d, b]}}, {linear: 3}]",
     1,
     {6}},
    {"residual",
     "[{linear: {out: 5}}, {residual: [{parallel: {branches: [[], [{linear: 5}]], join: add}}]}, {linear: 3}]",
     1,
     {6}},
    {"multiply channels",
     "[{conv2d: {out: 4, kernel_size: 3, name: a}}, {adaptive_avg_pool2d: 1}, sigmoid, {multiply: {from: a}}, "
     "flatten, {linear: 3}]",
     3,
     {2, 5, 4}},
    {"multiply",
     "[{linear: {out: 5, name: a}}, tanh, {linear: {out: 5, name: b}}, {multiply: {from: [a, b], name: m}}, {multiply: "
     "{from: [m, m]}}, {multiply: {from: a}}, {linear: 3}]",
     1,
     {6}},
    {"concat",
     "[{linear: {out: 5, name: a}}, tanh, {linear: {out: 4, name: b}}, {concat: {from: [a, b, a, input], name: c}}, "
     "{concat: {from: [c, c]}}, {linear: {out: 4}}, {concat: {from: b}}, {linear: 3}]",
     1,
     {6}},
    {"concat",
     "[{conv2d: {out: 3, kernel_size: 3, padding: 1, name: a}}, tanh, {conv2d: {out: 2, kernel_size: 1}}, {concat: "
     "{from: a, "
     "name: c}}, {concat: {from: [c, input]}}, {conv2d: {out: 7, kernel_size: 1}}, {concat: {from: c, dim: 1}}, "
     "{linear: "
     "5}, {concat: {from: input, dim: 1, name: d}}, {concat: {from: [d, d], dim: 2}}, {linear: 3}]",
     3,
     {2, 4, 5}},
    {"slice",
     "[{linear: {out: 7, name: a}}, tanh, {slice: {start: 1, end: 5, name: s}}, {slice: {end: 4, from: a}}, {add: "
     "{from: "
     "s}}, {linear: 3}]",
     1,
     {6}},
    {"slice",
     "[{conv2d: {out: 5, kernel_size: 1, name: a}}, {slice: {start: 1, end: 4}}, {slice: {dim: 2, end: 3}}, {slice: "
     "{dim: -1, "
     "start: 2, end: 4}}, {conv2d: {out: 2, kernel_size: 1}}]",
     3,
     {2, 4, 5}},
    {"parallel",
     "[{parallel: {branches: [[{linear: 3}, tanh], [{linear: 4}], []]}}, {parallel: {join: add, branches: [[{linear: "
     "5}], [{linear: 5}, "
     "tanh, {linear: {out: 5, name: x}}, tanh, {add: {from: x}}]]}}, {linear: 3}]",
     1,
     {6}},
    {"upsample",
     "[{conv2d: {out: 2, kernel_size: 2, stride: 2, name: small}}, tanh, {upsample: 2}, {concat: {from: input}}, "
     "{conv2d: {out: 2, "
     "kernel_size: 1}}, {upsample: [3, 1]}]",
     3,
     {2, 4, 6}},
    {"upsample",
     "[{conv2d: {out: 2, kernel_size: 2}}, {upsample: {scale_factor: 2, mode: bilinear}}, tanh, {upsample: {size: [4, "
     "9], mode: bilinear, align_corners: true}}, {upsample: {size: [7, 5]}}]",
     3,
     {2, 4, 5}},
    {"upsample",
     "[{conv1d: {out: 3, kernel_size: 2}}, {upsample: {scale_factor: 1.7, mode: linear}}, {conv1d: {out: 2, "
     "kernel_size: 2}}]",
     2,
     {2, 6}},
    {"permute", "[{linear: 5}, {permute: [0, 2, 1]}, {linear: 3}, {permute: [0, 2, 1]}, {linear: 2}]", 2, {4, 6}},
    {"permute",
     "[{permute: [0, 3, 1, 2]}, {conv2d: {out: 3, kernel_size: 2}}, tanh, {permute: [0, 3, 1, 2]}, {linear: 4}, "
     "{permute: [0, 2, 3, 1]}, {conv2d: {out: 2, kernel_size: 1}}]",
     3,
     {4, 5, 2}},
    {"mean", "[{linear: 4}, {mean: 1}, tanh, {linear: 3}, {mean: {dim: 1, keepdim: true}}, {linear: 2}]", 2, {5, 6}},
    {"mean", "[{conv2d: {out: 3, kernel_size: 2}}, {mean: [2, 1]}, {linear: 3}]", 3, {2, 4, 5}},
    {"max", "[{linear: 4}, {max: 1}, tanh, {linear: 3}]", 2, {5, 6}},
    {"max", "[{conv2d: {out: 3, kernel_size: 2}}, {max: {dim: 1, keepdim: true}}, {linear: 3}]", 3, {2, 4, 5}},
    {"pixel_shuffle",
     "[{conv2d: {out: 8, kernel_size: 2}}, {pixel_shuffle: 2}, tanh, {conv2d: {out: 2, kernel_size: 2}}]",
     3,
     {2, 4, 5}},
    {"pixel_unshuffle",
     "[{conv2d: {out: 2, kernel_size: 2}}, {pixel_unshuffle: 3}, tanh, {conv2d: {out: 2, kernel_size: 1}}]",
     3,
     {2, 4, 7}},
    {"pad",
     "[{conv2d: {out: 2, kernel_size: 2}}, {pad: 1}, tanh, {pad: {padding: [1, 2, 0, 3], mode: reflect}}, {conv2d: "
     "{out: 2, kernel_size: 2}}]",
     3,
     {2, 4, 5}},
    {"pad",
     "[{conv1d: {out: 2, kernel_size: 2}}, {pad: {padding: [2, 1], mode: replicate}}, {linear: 3}, {pad: {padding: [1, "
     "2, 2, 0], mode: circular}}, {linear: 2}]",
     2,
     {2, 6}},
    {"chunk",
     "[{linear: 9}, {chunk: {chunks: 3, names: [q, k, v]}}, {multiply: {from: [q, k]}}, {concat: {from: v}}, {linear: "
     "3}]",
     1,
     {6}},
    {"split",
     "[{conv2d: {out: 5, kernel_size: 2}}, {split: {split_size: [2, 3], names: [a, b]}}, {concat: {from: [b, a]}}, "
     "{conv2d: {out: 2, kernel_size: 2}}]",
     3,
     {2, 4, 5}},
    {"matmul",
     "[{linear: {out: 3, name: a}}, tanh, {permute: {dims: [0, 2, 1], name: b}}, {matmul: {from: [a, b], name: c}}, "
     "{matmul: {from: [c, a], name: d}}, {matmul: {from: [b, d]}}, {linear: 3}]",
     2,
     {4, 6}},
    {"expression",
     "[{linear: {out: 5, name: a}}, tanh, {linear: {out: 5, name: b}}, {expression: {from: [a, b], value: 'a * "
     "sigmoid(b) + 0.1 * a'}}, {expression: 'x ^ 3 / 4 + sin(x)'}, {linear: 3}]",
     1,
     {6}},
    {"expression", /* numbers beside vectors, reductions */
     "[{linear: {out: 5, name: a}}, {linear: 1}, {expression: {from: a, value: 'softmax(a) * x - mean(a) + norm(a - "
     "x) + index'}}, {expression: 'x * logsumexp(x)'}, {linear: 3}]",
     2,
     {4, 6}},
    {"expression", "[{linear: 5}, {expression: 'sum(x * x) + max(x)'}, {linear: 3}]", 1, {6}},
    {"expression",
     "[{conv2d: {out: 4, kernel_size: 2}}, {expression: 'x * tanh(softplus(x))'}, {conv2d: {out: 2, kernel_size: 2}}]",
     3,
     {2, 4, 5}},
    {"conv3d",
     "[{conv3d: {out: 4, kernel_size: [3, 2, 2], stride: [2, 1, 1], padding: [1, 0, 2], dilation: [2, 1, 1]}}, tanh, "
     "{conv3d: {out: 2, kernel_size: 2, groups: 2}}, relu, {conv3d: {out: 2, kernel_size: 1, bias: false}}]",
     4,
     {2, 6, 3, 3}},
    {"max_pool3d",
     "[{conv3d: {out: 2, kernel_size: 1}}, {max_pool3d: {kernel_size: 2, stride: 1}}, flatten, {linear: 2}]",
     4,
     {2, 2, 3, 2}},
    {"avg_pool3d",
     "[{conv3d: {out: 3, kernel_size: 1}}, {avg_pool3d: {kernel_size: [2, 3, 2], stride: [1, 2, 1], padding: 1, "
     "ceil_mode: true}}, {conv3d: {out: 2, kernel_size: 1}}]",
     4,
     {2, 3, 5, 4}},
    {"adaptive_avg_pool3d",
     "[{conv3d: {out: 3, kernel_size: 1}}, {adaptive_avg_pool3d: [2, 3, 2]}, {conv3d: {out: 2, kernel_size: 1}}]",
     4,
     {2, 3, 5, 4}},
    {"adaptive_max_pool3d",
     "[{conv3d: {out: 3, kernel_size: 1}}, {adaptive_max_pool3d: [2, 2, 1]}, flatten, {linear: 2}]",
     4,
     {2, 2, 3, 2}},
    {"max_unpool1d",
     "[{conv1d: {out: 3, kernel_size: 2, name: a}}, {max_pool1d: 2}, {conv1d: {out: 3, kernel_size: 1}}, "
     "{max_unpool1d: {kernel_size: 2, from: a}}, flatten, {linear: 3}]",
     2,
     {2, 6}},
    {"max_unpool2d",
     "[{conv2d: {out: 17, kernel_size: 1, name: a}}, {max_pool2d: 2}, {conv2d: {out: 17, kernel_size: 1}}, "
     "{max_unpool2d: {kernel_size: 2, from: a}}, {conv2d: {out: 2, kernel_size: 2}}, flatten, {linear: 2}]",
     3,
     {2, 2, 3}},
    {"max_unpool2d of the input",
     "[{conv2d: {out: 2, kernel_size: 3, stride: [1, 2], padding: [0, 1], name: x}}, {max_unpool2d: {kernel_size: 2, "
     "stride: [2, 3], padding: [1, 0], ceil_mode: true, from: [x, input]}}, tanh, flatten, {linear: 3}]",
     3,
     {2, 5, 4}},
    {"max_unpool3d",
     "[{conv3d: {out: 4, kernel_size: 1, name: a}}, {max_pool3d: {kernel_size: 2, stride: [3, 2, 2], padding: [1, 0, "
     "1]}}, {conv3d: {out: 4, kernel_size: 1}}, {max_unpool3d: {kernel_size: 2, stride: [3, 2, 2], padding: [1, 0, 1], "
     "from: a}}, {conv3d: {out: 2, kernel_size: 2}}]",
     4,
     {2, 3, 4, 3}},
    {"lstm", "[{linear: 5}, {lstm: 4}, {linear: 3}]", 2, {4, 6}},
    {"lstm", "[{lstm: {hidden_size: 5, num_layers: 2, bidirectional: true, output: last}}, {linear: 3}]", 2, {4, 6}},
    {"lstm",
     "[{linear: 5}, {lstm: {hidden_size: 3, num_layers: 3, bias: false, dropout: 0.3, bidirectional: true}}, {linear: "
     "3}]",
     2,
     {4, 6}},
    {"lstm",
     "[{linear: 5}, {lstm: {hidden_size: 9, num_layers: 3, dropout: 0.2, output: last}}, {linear: 3}]",
     2,
     {5, 6}},
    {"lstm",
     "[{linear: 5}, {lstm: {hidden_size: 4, num_layers: 2, bidirectional: true, initial_state: learned, last_state: "
     "[h, c]}}, {lstm: {hidden_size: 4, num_layers: 2, bidirectional: true, initial_state: [c, h], output: last, "
     "last_state: [d, e]}}, {add: {from: [d, e]}}, flatten, {linear: 3}]",
     2,
     {4, 6}},
    {"lstm",
     "[{linear: {out: 4, name: x}}, {lstm: {hidden_size: 3, num_layers: 2, dropout: 0.2, last_state: [h, c], name: "
     "encoder}}, {lstm: {hidden_size: 3, num_layers: 2, from: x, initial_state: [h, c]}}, {add: {from: "
     "encoder}}, "
     "{linear: 3}]",
     2,
     {4, 6}},
    {"lstm", /* only the states of the encoder are used, its outputs are the last step's */
     "[{linear: {out: 4, name: x}}, {lstm: {hidden_size: 3, output: last, last_state: [h, c]}}, {lstm: {hidden_size: "
     "3, from: x, output: last, initial_state: [h, c], last_state: d, name: y}}, {flatten: {from: d}}, {add: {from: "
     "y}}, {linear: 3}]",
     2,
     {4, 6}},
    {"gru", "[{linear: 5}, {gru: 4}, {linear: 3}]", 2, {4, 6}},
    {"gru",
     "[{linear: 5}, {gru: {hidden_size: 5, num_layers: 2, bidirectional: true, output: last}}, {linear: 3}]",
     2,
     {4, 6}},
    {"gru", "[{linear: 5}, {gru: {hidden_size: 6, num_layers: 2, bias: false, dropout: 0.3}}, {linear: 3}]", 2, {5, 6}},
    {"gru",
     "[{linear: {out: 4, name: x}}, {mean: 1}, {linear: {out: 3, name: h0}}, {gru: {hidden_size: 3, from: x, "
     "initial_state: h0, last_state: h}}, {gru: {hidden_size: 3, bias: false, initial_state: h}}, {linear: 3}]",
     2,
     {4, 6}},
    {"rnn",
     "[{linear: {out: 5, name: x}}, {rnn: {hidden_size: 4, bidirectional: true, initial_state: learned, last_state: "
     "h}}, {rnn: {hidden_size: 4, bidirectional: true, nonlinearity: relu, initial_state: h}}, {linear: 3}]",
     2,
     {4, 6}},
    {"rnn", "[{linear: 5}, {rnn: 4}, {linear: 3}]", 2, {4, 6}},
    {"rnn",
     "[{linear: 5}, {rnn: {hidden_size: 5, num_layers: 2, bidirectional: true, output: last, dropout: 0.2}}, {linear: "
     "3}]",
     2,
     {1, 6}},
    {"rnn", "[{linear: 5}, {rnn: {hidden_size: 5, bias: false, nonlinearity: relu}}, {linear: 3}]", 2, {3, 6}},
    {"silu", "[{linear: 7}, silu, {linear: 3}]", 1, {6}},
    {"relu6", "[{linear: 7}, relu6, {linear: 3}]", 1, {6}},
    {"selu", "[{linear: 7}, selu, {linear: 3}]", 1, {6}},
    {"hardswish", "[{linear: 7}, hardswish, {linear: 3}]", 1, {6}},
    {"hardsigmoid", "[{linear: 7}, hardsigmoid, {linear: 3}]", 1, {6}},
    {"mish", "[{linear: 7}, mish, {linear: 3}]", 1, {6}},
    {"softplus", "[{linear: 7}, softplus, {linear: 3}]", 1, {6}},
    {"softplus", "[{linear: 7}, {softplus: {beta: 3, threshold: 0.5}}, {linear: 3}]", 1, {6}},
    {"logsigmoid", "[{linear: 7}, logsigmoid, {linear: 3}]", 1, {6}},
    {"softsign", "[{linear: 7}, softsign, {linear: 3}]", 1, {6}},
    {"tanhshrink", "[{linear: 7}, tanhshrink, {linear: 3}]", 1, {6}},
    {"celu", "[{linear: 7}, celu, {linear: 5}, {celu: 0.3}, {linear: 3}]", 1, {6}},
    {"hardtanh", "[{linear: 7}, {hardtanh: {min_val: -0.3, max_val: 0.2}}, {linear: 3}]", 1, {6}},
    {"threshold", "[{linear: 7}, {threshold: {threshold: -0.3, value: -0.3}}, {linear: 3}]", 1, {6}},
    {"softshrink", "[{linear: 7}, {softshrink: 0.2}, {linear: 3}]", 1, {6}},
    {"glu", "[{linear: 8}, glu, {linear: 3}]", 1, {6}},
    {"glu", "[{conv2d: {out: 6, kernel_size: 2}}, {glu: 1}, tanh, {glu: 2}, flatten, {linear: 3}]", 3, {2, 5, 4}},
    {"hardshrink", "[{linear: 5}, {hardshrink: 0.35}, {linear: 3}]", 1, {6}},
    {"elu", "[{linear: 7}, elu, {linear: 5}, {elu: {alpha: 0.3}}, {linear: 3}]", 1, {6}},
    {"leaky_relu", "[{linear: 7}, {leaky_relu: 0.2}, {linear: 3}]", 1, {6}},
    {"softmax", "[{linear: 7}, softmax, {linear: 3}]", 2, {4, 6}},
    {"reshape", "[{linear: 8}, {reshape: [2, -1, 2]}, {linear: 3}, tanh, {reshape: 12}]", 1, {6}},
    {"layer_norm", "[{linear: 21}, layer_norm, {linear: 3}]", 2, {4, 6}},
    {"layer_norm",
     "[{linear: 21}, {residual: [{layer_norm: {elementwise_affine: false}}, {linear: 21}]}, {linear: 3}]",
     1,
     {6}},
    {"layer_norm", "[{linear: 8}, {residual: [layer_norm, {linear: 8}]}, {layer_norm: {bias: false}}]", 1, {6}},
    {"rms_norm", "[{linear: 21}, rms_norm, {linear: 3}]", 2, {4, 6}},
    {"rms_norm",
     "[{linear: 8}, {residual: [{rms_norm: {eps: 0.1}}, {linear: 8}]}, "
     "{residual: [{rms_norm: {elementwise_affine: false}}, {linear: 8}]}]",
     1,
     {6}},
    {"embedding", "[{embedding: 5}, {linear: 3}]", 1, {4}},
    {"positional_embedding", "[{embedding: 5}, positional_embedding, tanh, {linear: 3}]", 1, {4}},
    {"positional_embedding",
     "[{linear: 5}, {positional_embedding: {num_embeddings: 6}}, tanh, {linear: 3}]",
     2,
     {4, 6}},
    {"linear",
     "[{embedding: {embedding_dim: 5, name: wte}}, {linear: 5}, tanh, {linear: {out: 7, tie: wte.weight}}]",
     1,
     {4}},
    {"attention", "[{attention: {heads: 2}}, {linear: 3}]", 2, {5, 6}},
    {"attention",
     "[{linear: 6}, {residual: [{attention: {heads: 3, causal: true, bias: false}}]}, {linear: 3}]",
     2,
     {5, 6}},
    {"scaled_dot_product_attention",
     "[{linear: 18}, {scaled_dot_product_attention: {heads: 3, causal: true}}, "
     "{linear: 3}]",
     2,
     {5, 6}},
    {"scaled_dot_product_attention",
     "[{linear: 24}, {scaled_dot_product_attention: {heads: 6, num_kv_heads: 3, causal: true}}, {linear: 3}]",
     2,
     {5, 6}},
    {"attention", "[{linear: 6}, {attention: {heads: 2, dropout: 0.3}}, {linear: 3}]", 2, {5, 6}},
    {"scaled_dot_product_attention",
     "[{linear: 18}, {scaled_dot_product_attention: {heads: 3, causal: true, dropout: 0.4}}, {linear: 3}]",
     2,
     {5, 6}},
    /* rows of different lengths */
    {"embedding",
     "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {attention: {heads: 2, dropout: 0.2}}, tanh, {attention: "
     "{heads: 3, causal: true}}, {linear: 3}]",
     1,
     {5}},
    {"lstm",
     "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {lstm: {hidden_size: 4, bidirectional: true, num_layers: 2, "
     "dropout: 0.2}}, {lstm: {hidden_size: 3, output: last, bidirectional: true}}, {linear: 3}]",
     1,
     {5}},
    {"gru",
     "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {gru: {hidden_size: 4, bidirectional: true}}, {gru: "
     "{hidden_size: 3, output: last}}, {linear: 3}]",
     1,
     {5}},
    {"rnn",
     "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {rnn: {hidden_size: 4, bidirectional: true}}, {linear: 3}]",
     1,
     {5}},
    {"lstm",
     "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {lstm: {hidden_size: 4, bidirectional: true, num_layers: 2, "
     "initial_state: learned, last_state: [h, c]}}, {lstm: {hidden_size: 4, num_layers: 2, bidirectional: true, "
     "output: last, initial_state: [h, c], last_state: d}}, {flatten: {from: d}}, {linear: 3}]",
     1,
     {5}},
    {"gru",
     "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {gru: {hidden_size: 4, bidirectional: true, num_layers: 2, "
     "initial_state: learned, last_state: h}}, {gru: {hidden_size: 4, num_layers: 2, bidirectional: true, output: "
     "last, initial_state: h, last_state: d}}, {flatten: {from: d}}, {linear: 3}]",
     1,
     {5}},
    {"rnn",
     "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {rnn: {hidden_size: 4, bidirectional: true, num_layers: 2, "
     "initial_state: learned, last_state: h}}, {rnn: {hidden_size: 4, num_layers: 2, bidirectional: true, output: "
     "last, initial_state: h, last_state: d}}, {flatten: {from: d}}, {linear: 3}]",
     1,
     {5}},
    {"mean", "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {linear: 4}, {mean: 1}, {linear: 3}]", 1, {5}},
    {"mean", "[{linear: 6}, {mean: 2}, {linear: 3}]", 2, {4, 6}},
    {"mean", "[{conv2d: {out: 3, kernel_size: 2}}, {mean: 1}, {mean: -2}, {linear: 3}]", 3, {2, 4, 5}},
    {"sequence_lengths",
     "[{linear: {out: 4, from: series, name: x}}, {sequence_lengths: {from: [x, steps]}}, {gru: {hidden_size: 4, "
     "bidirectional: true}}, {attention: {heads: 2}}, {linear: 3}]",
     1,
     {13}},
    {"unfold",
     "[{conv2d: {out: 3, kernel_size: 2}}, {unfold: {kernel_size: [3, 2], stride: [1, 2], padding: [1, 0], dilation: "
     "[1, "
     "2]}}, {linear: 5}, tanh, {linear: 3}]",
     3,
     {2, 6, 7}},
    {"fold",
     "[{linear: 12}, tanh, {fold: {output_size: [4, 5], kernel_size: 2}}, {conv2d: {out: 2, kernel_size: 2}}, {unfold: "
     "2}, "
     "{fold: {output_size: [3, 4], kernel_size: [2, 2], padding: 0}}, flatten, {linear: 3}]",
     2,
     {8, 4}},
    {"fold",
     "[{linear: 4}, {fold: {output_size: [5, 6], kernel_size: [3, 2], stride: [2, 3], padding: [1, 1], dilation: 2}}, "
     "flatten, {linear: 3}]",
     2,
     {12, 4}},
    {"cross_attention",
     "[{linear: {out: 6, name: q}}, tanh, {linear: {out: 6, name: kv}}, {slice: {dim: 1, end: 4, name: memory}}, "
     "{cross_attention: {heads: 2, dropout: 0.3, from: [q, memory]}}, {cross_attention: {heads: 3, bias: false, from: "
     "q}}, "
     "{linear: 3}]",
     2,
     {5, 6}},
    {"cross_attention",
     "[{reshape: {shape: [5, 5], name: mask}}, {linear: {out: 6, name: q}}, {cross_attention: {heads: 2, mask: add, "
     "dropout: 0.2, from: [q, q, mask]}}, {linear: 3}]",
     2,
     {5, 5}},
    {"cross_attention",
     "[{embedding: {embedding_dim: 6, padding_idx: 0, name: memory}}, {positional_embedding: {name: q}}, "
     "{cross_attention: {heads: 2, from: [q, memory]}}, {linear: 3}]",
     1,
     {5}},
    {"rotary_embedding",
     "[{linear: 24}, {rotary_embedding: {heads: 5, head_size: 4}}, {scaled_dot_product_attention: {heads: 4, "
     "num_kv_heads: 1}}, {linear: 3}]",
     2,
     {5, 6}},
    {"rotary_embedding",
     "[{linear: 12}, {rotary_embedding: {head_size: 6, interleaved: true, base: 100}}, {linear: 3}]",
     2,
     {5, 6}},
    {"dropout", "[{linear: {out: 9}}, {dropout: {p: 0.3}}, {linear: {out: 3}}]", 1, {6}},
    {"conv2d", "[{conv2d: {out: 33, kernel_size: 3}}, {conv2d: {out: 1, kernel_size: 2}}, flatten]", 3, {2, 6, 5}},
    {"conv2d",
     "[{conv2d: {out: 4, kernel_size: [3, 2], stride: [2, 1], padding: [1, 0], dilation: [1, 2]}}, tanh, "
     "{conv2d: {out: 4, kernel_size: 3, groups: 2, padding: 1, bias: false}}, {linear: {out: 3}}, flatten]",
     3,
     {3, 7, 6}},
    {"conv2d",
     "[{conv2d: {out: 6, kernel_size: 3, padding: 2, stride: 2}}, tanh, {conv2d: {out: 6, kernel_size: 3, groups: 6, "
     "dilation: 2, padding: 2}}, {dropout: {p: 0.2}}, flatten, {linear: {out: 3}}]",
     3,
     {1, 5, 7}},
    {"conv2d",
     "[{conv2d: {out: 4, kernel_size: [2, 4], padding: same}}, tanh, {conv2d: {out: 4, kernel_size: 3, groups: 4, "
     "padding: "
     "same, dilation: 2}}, {conv2d: {out: 2, kernel_size: 2, padding: valid}}, flatten, {linear: 3}]",
     3,
     {2, 5, 6}},
    {"sample_normal",
     "[{linear: {out: 9, name: mean}}, tanh, {linear: {out: 9, name: log_variance}}, {sample_normal: {from: [mean, "
     "log_variance]}}, {linear: {out: 3}}]",
     1,
     {6}},
    {"dropout1d", "[{conv1d: {out: 6, kernel_size: 2}}, {dropout1d: 0.4}, flatten, {linear: 3}]", 2, {2, 5}},
    {"dropout2d", "[{conv2d: {out: 6, kernel_size: 2}}, {dropout2d: 0.4}, flatten, {linear: 3}]", 3, {2, 4, 3}},
    {"drop_path",
     "[{linear: 6}, {residual: [{linear: 6}, tanh, {drop_path: 0.4}]}, {residual: [{linear: 6}, {drop_path: {p: 0.2, "
     "mode: batch}}]}, {linear: 3}]",
     1,
     {6}},
    {"layer_scale", "[{linear: 5}, {residual: [{linear: 5}, {layer_scale: 0.5}]}, tanh, {linear: 3}]", 2, {4, 6}},
    {"layer_scale2d",
     "[{conv2d: {out: 3, kernel_size: 2}}, {layer_scale2d: 0.5}, tanh, {conv2d: {out: 2, kernel_size: 1}}, flatten, "
     "{linear: 3}]",
     3,
     {2, 4, 5}},
    {"embedding_bag", "[{embedding_bag: 5}, tanh, {linear: 12}, {reshape: [4, 3]}]", 1, {4}},
    {"embedding_bag",
     "[{embedding_bag: {embedding_dim: 5, mode: sum, padding_idx: 1}}, tanh, {linear: 12}, {reshape: [4, 3]}]",
     1,
     {4}},
    {"embedding_bag",
     "[{embedding_bag: {embedding_dim: 5, mode: max, padding_idx: 0}}, tanh, {linear: 12}, {reshape: [4, 3]}]",
     1,
     {4}},
    {"conv3d",
     "[{conv3d: {out: 3, kernel_size: [2, 4, 3], padding: same, dilation: [2, 1, 1]}}, tanh, {conv3d: {out: 2, "
     "kernel_size: 2, padding: valid}}]",
     4,
     {2, 3, 4, 3}},
    {"conv_transpose1d",
     "[{conv1d: {out: 4, kernel_size: 2}}, {conv_transpose1d: {out: 6, kernel_size: 3, stride: 3, padding: 1, "
     "output_padding: 2, dilation: 2, groups: 2}}, tanh, {conv_transpose1d: {out: 2, kernel_size: 2, bias: false}}]",
     2,
     {3, 5}},
    {"conv_transpose3d",
     "[{conv3d: {out: 4, kernel_size: 1}}, {conv_transpose3d: {out: 4, kernel_size: [3, 2, 2], stride: [3, 2, 1], "
     "padding: [1, 0, 2], output_padding: [2, 1, 0], dilation: [2, 1, 3], groups: 2}}, tanh, "
     "{conv_transpose3d: {out: 2, kernel_size: 2, bias: false}}]",
     4,
     {2, 2, 2, 3}},
    {"rrelu", "[{linear: 7}, rrelu, {linear: 5}, {rrelu: {lower: -0.2, upper: 0.6}}, {linear: 3}]", 1, {6}},
    {"dropout3d",
     "[{conv3d: {out: 5, kernel_size: 2}}, {dropout3d: 0.4}, tanh, {conv3d: {out: 2, kernel_size: 1}}]",
     4,
     {2, 3, 2, 3}},
    {"alpha_dropout", "[{linear: 9}, tanh, {alpha_dropout: 0.3}, {linear: 3}]", 1, {6}},
    {"feature_alpha_dropout",
     "[{conv2d: {out: 5, kernel_size: 2}}, tanh, {feature_alpha_dropout: 0.4}, {conv2d: {out: 2, kernel_size: 2}}]",
     3,
     {2, 4, 4}},
    {"pad",
     "[{conv3d: {out: 2, kernel_size: 1}}, {pad: 1}, tanh, {pad: {padding: [1, 2, 0, 1, 2, 1], mode: reflect}}, "
     "{conv3d: {out: 1, kernel_size: 3}}]",
     4,
     {2, 1, 2, 2}},
    {"pad",
     "[{linear: 3}, {pad: {padding: [1, 2, 0, 2, 1, 0], mode: replicate}}, tanh, {pad: {padding: [2, 1, 1, 0, 0, 2], "
     "mode: circular}}, {linear: 2}]",
     4,
     {2, 2, 1, 3}},
    {"conv_transpose2d",
     "[{conv_transpose2d: {out: 5, kernel_size: 2, stride: 2}}, tanh, {conv2d: {out: 3, kernel_size: 3}}, silu, "
     "{conv_transpose2d: {out: 2, kernel_size: 3}}, flatten]",
     3,
     {2, 3, 4}},
    {"conv_transpose2d",
     "[{conv2d: {out: 4, kernel_size: 1}}, {conv_transpose2d: {out: 4, kernel_size: [3, 2], stride: [3, 2], padding: "
     "[1, 0], output_padding: [2, 1], dilation: [1, 2]}}, tanh, {conv_transpose2d: {out: 6, kernel_size: 3, groups: 2, "
     "padding: 1, bias: false}}, flatten, {linear: {out: 3}}]",
     3,
     {3, 2, 3}},
    {"conv1d",
     "[{conv1d: {out: 4, kernel_size: 3, padding: 1}}, tanh, {conv1d: {out: 6, kernel_size: 2, stride: 2, groups: 2}}, "
     "flatten, {linear: {out: 3}}]",
     2,
     {2, 7}},
    {"max_pool2d",
     "[{conv2d: {out: 3, kernel_size: 1}}, {max_pool2d: {kernel_size: [2, 3], stride: 1, padding: [1, 1]}}, flatten, "
     "{linear: {out: 3}}]",
     3,
     {2, 2, 3}},
    {"max_pool2d", "[{conv2d: {out: 2, kernel_size: 1}}, {max_pool2d: 2}, flatten, {linear: {out: 3}}]", 3, {2, 4, 4}},
    {"avg_pool2d",
     "[{conv2d: {out: 5, kernel_size: 3}}, {avg_pool2d: 2}, {conv2d: {out: 3, kernel_size: 1}}, {avg_pool2d: "
     "{kernel_size: 3, stride: 2, padding: 1, count_include_pad: false}}, flatten, {linear: {out: 3}}]",
     3,
     {2, 8, 6}},
    {"max_pool2d",
     "[{conv2d: {out: 3, kernel_size: 1}}, {max_pool2d: {kernel_size: 2, ceil_mode: true}}, flatten, {linear: {out: "
     "3}}]",
     3,
     {2, 3, 3}},
    {"avg_pool2d",
     "[{conv2d: {out: 3, kernel_size: 1}}, {avg_pool2d: {kernel_size: 3, stride: 2, padding: 1, ceil_mode: true}}, "
     "{avg_pool2d: {kernel_size: 2, ceil_mode: true, divisor_override: 3}}, flatten, {linear: {out: 3}}]",
     3,
     {2, 6, 4}},
    {"log_softmax", "[{linear: 7}, log_softmax, {linear: 3}]", 2, {2, 5}},
    {"prelu", "[{linear: 7}, prelu, {linear: 5}, {prelu: {num_parameters: 5, init: 0.1}}, {linear: 3}]", 1, {6}},
    {"prelu",
     "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {linear: 4}, prelu, {attention: {heads: 2}}, {mean: 1}, "
     "{linear: 3}]",
     1,
     {5}},
    {"prelu", "[{embedding: {embedding_dim: 6, padding_idx: 0}}, {linear: 5}, {prelu: 5}, {linear: 3}]", 1, {5}},
    {"patch_embedding", "[{patch_embedding: {embed_dim: 6, patch_size: [2, 3]}}, tanh, {linear: 3}]", 3, {3, 4, 6}},
    {"class_token", "[{linear: 5}, class_token, tanh, {linear: 3}]", 2, {4, 6}},
    {"max_pool1d",
     "[{conv1d: {out: 3, kernel_size: 1}}, {max_pool1d: {kernel_size: 3, stride: 2, padding: 1}}, flatten, {linear: "
     "3}]",
     2,
     {2, 8}},
    {"avg_pool1d",
     "[{conv1d: {out: 3, kernel_size: 1}}, {avg_pool1d: {kernel_size: 3, stride: 2, padding: 1}}, flatten, {linear: "
     "3}]",
     2,
     {2, 8}},
    {"adaptive_avg_pool1d",
     "[{conv1d: {out: 3, kernel_size: 2}}, {adaptive_avg_pool1d: 3}, flatten, {linear: 3}]",
     2,
     {2, 8}},
    {"adaptive_max_pool1d",
     "[{conv1d: {out: 3, kernel_size: 2}}, {adaptive_max_pool1d: 3}, flatten, {linear: 3}]",
     2,
     {2, 8}},
    {"adaptive_max_pool2d",
     "[{conv2d: {out: 3, kernel_size: 1}}, {adaptive_max_pool2d: [1, 3]}, flatten, {linear: 3}]",
     3,
     {2, 1, 4}},
    {"instance_norm",
     "[{conv2d: {out: 3, kernel_size: 2}}, {instance_norm: {affine: true}}, tanh, {conv2d: {out: 2, kernel_size: 1}}, "
     "instance_norm, flatten, {linear: 3}]",
     3,
     {2, 4, 5}},
    {"adaptive_avg_pool2d",
     "[{conv2d: {out: 5, kernel_size: 2}}, {adaptive_avg_pool2d: [2, 3]}, {conv2d: {out: 3, kernel_size: 1}}, "
     "{adaptive_avg_pool2d: 1}, flatten, {linear: {out: 3}}]",
     3,
     {2, 6, 5}},
    {"batch_norm",
     "[{conv2d: {out: 5, kernel_size: 3, bias: false}}, batch_norm, tanh, {conv2d: {out: 66, kernel_size: 1}}, "
     "{batch_norm: {affine: false}}, {adaptive_avg_pool2d: 2}, flatten, {linear: {out: 3}}]",
     3,
     {2, 6, 5}},
    {"batch_norm of both factors",
     "[{linear: {out: 5}}, {batch_norm: {name: a}}, {linear: {out: 5, from: input}}, {batch_norm: {name: b}}, "
     "{multiply: {from: [a, b]}}, {linear: {out: 3}}]",
     1,
     {6}},
    {"batch_norm",
     "[{linear: {out: 7}}, batch_norm, {linear: {out: 5}}, batch_norm, tanh, {linear: {out: 3}}]",
     1,
     {6}},
    {"batch_norm",
     "[{conv1d: {out: 4, kernel_size: 3}}, {batch_norm: {track_running_stats: false}}, flatten, {linear: {out: 3}}]",
     2,
     {2, 7}},
    {"batch_norm",
     "[{conv2d: {out: 3, kernel_size: 2}}, batch_norm, batch_norm, relu, {residual: [{conv2d: {out: 3, kernel_size: "
     "1}}, "
     "batch_norm, relu, {conv2d: {out: 3, kernel_size: 1}}, batch_norm]}, relu, {conv2d: {out: 2, kernel_size: 1}}, "
     "batch_norm, flatten, {linear: {out: 3}}]",
     3,
     {2, 4, 3}},
    {"group_norm",
     "[{conv2d: {out: 6, kernel_size: 3}}, {group_norm: 3}, tanh, {conv2d: {out: 4, kernel_size: 1}}, {group_norm: "
     "{num_groups: 1, affine: false}}, flatten, {linear: {out: 3}}]",
     3,
     {2, 6, 5}},
    /* one side is channels-first and is reordered */
    {"residual",
     "[{linear: {out: 5}}, {residual: [{conv2d: {out: 2, kernel_size: 3, padding: 1}}]}, {residual: [{linear: {out: "
     "5}}]}, flatten, {linear: {out: 3}}]",
     3,
     {2, 4, 5}},
};

static inline struct shape input_of(size_t i) {
    bool is_tokens = strncmp(layer_cases[i].layers, "[{embedding", 11) == 0;
    struct shape input = {.dims = layer_cases[i].dims, .is_tokens = is_tokens, .vocabulary = is_tokens ? 7 : 0};
    memcpy(input.size, layer_cases[i].shape, sizeof layer_cases[i].shape);
    return input;
}

/* A series of 6 positions and its lengths, then [layers]. */
#define OF_LENGTHS(layers)                                                                                             \
    "[{linear: {out: 5, from: series, name: x}}, {sequence_lengths: {from: [x, steps]}}, tanh, " layers "]"

/* Every loss, each with every key that its gradient depends on. */
static const struct {
    const char *config;
    const char *outputs; /* the last layers; NULL: 4 outputs; with a `[` all layers, of a series with lengths */
} loss_cases[] = {
    {"cross_entropy", NULL},
    {"{type: cross_entropy, label_smoothing: 0.2}", NULL},
    {"{type: cross_entropy, ignore_index: 1}", NULL},
    {"{type: cross_entropy, weight: [1, 0.5, 2, 0.1], label_smoothing: 0.3, ignore_index: 0}", NULL},
    {"mse", NULL},
    {"l1", NULL},
    {"smooth_l1", NULL},
    {"{type: smooth_l1, beta: 0.4}", NULL},
    {"bce_with_logits", NULL},
    {"{type: bce_with_logits, pos_weight: 3}", NULL},
    {"{type: bce_with_logits, pos_weight: [1, 2, 0.5, 4]}", NULL},
    {"{type: bce_with_logits, pos_weight: 3, reduction: batchmean}", NULL},
    {"kl_div", NULL},
    {"{type: kl_div, reduction: batchmean, log_target: true}", NULL},
    {"nll", NULL},
    {"{type: nll, weight: [1, 0.5, 2, 0.1], ignore_index: 0}", NULL},
    {"huber", NULL},
    {"{type: huber, delta: 0.4}", NULL},
    {"{type: quantile, quantile: 0.8}", NULL},
    {"poisson_nll", NULL},
    {"{type: poisson_nll, log_input: false, eps: 4, full: true}", NULL},
    {"focal", NULL},
    {"{type: focal, alpha: null, gamma: 0.5}", NULL},
    {"dice", NULL},
    {"{type: dice, smooth: 1}", NULL},
    {"gaussian_nll", "{linear: {out: 6}}, softplus"},
    {"{type: gaussian_nll, full: true}", "{linear: {out: 2}}, sigmoid"},
    {"cosine_embedding", "{linear: {out: 6}}"},
    {"{type: cosine_embedding, margin: -0.3}", "{linear: {out: 4}}"},
    {"triplet_margin", "{linear: {out: 9}}"},
    {"{type: triplet_margin, margin: 0.5, eps: 0.1, swap: true}", "{linear: {out: 6}}"},
    {"kl_normal", "{linear: {out: 6}}"},
    {"{type: contrastive, temperature: 0.3}", "{linear: {out: 6}}"},
    {"{type: contrastive, symmetric: false, temperature: 2}", "{linear: {out: 10}}"},
    {"{type: ctc, blank: 2}", "{linear: {out: 20}}, {reshape: [5, 4]}, log_softmax"},
    {"{type: ctc, blank: 3, padding: 1, zero_infinity: true}", "{linear: {out: 12}}, {reshape: [3, 4]}, log_softmax"},
    {"{expression: mean(w * abs(y - t) ^ 1.5)}", NULL},
    {"{expression: 'logsumexp(y) - mean(t * y) + norm(y - t)'}", NULL},
    {"{type: expression, expression: 'sum(where(y > 0.1, silu(y), 0.3 * tanh(y)) * softmax(t)) / 2 + max(y)'}", NULL},
    {"soft_cross_entropy", NULL},
    {"{type: soft_cross_entropy, weight: [1, 0.5, 2, 0.1], label_smoothing: 0.3}", NULL},
    {"soft_cross_entropy", "{linear: {out: 12}}, {reshape: [3, 4]}"},
    {"hinge_embedding", NULL},
    {"{type: hinge_embedding, margin: 0.3}", NULL},
    {"soft_margin", NULL},
    {"margin_ranking", "{linear: {out: 6}}"},
    {"multi_margin", NULL},
    {"{type: multi_margin, p: 2, margin: 0.7, weight: [1, 0.5, 2, 0.1]}", NULL},
    {"multilabel_margin", NULL},
    {"{type: margin_ranking, margin: 2}", "{linear: {out: 4}}"},
    /* rows of different lengths */
    {"soft_cross_entropy", OF_LENGTHS("{linear: 4}")},
    {"hinge_embedding", OF_LENGTHS("{linear: 4}")},
    {"{type: margin_ranking, margin: 3}", OF_LENGTHS("{linear: 4}")},
    {"multi_margin", OF_LENGTHS("{linear: 4}")},
    {"multilabel_margin", OF_LENGTHS("{linear: 4}")},
    {"mse", OF_LENGTHS("{linear: 4}")},
    {"kl_div", OF_LENGTHS("{linear: 4}, log_softmax")},
    {"{type: kl_div, reduction: batchmean}", OF_LENGTHS("{linear: 4}, log_softmax")},
    {"dice", OF_LENGTHS("{linear: 4}")},
    {"gaussian_nll", OF_LENGTHS("{linear: 6}, softplus")},
    {"{type: cosine_embedding, margin: -0.3}", OF_LENGTHS("{linear: 4}")},
    {"kl_normal", OF_LENGTHS("{linear: 6}")},
    {"{type: triplet_margin, margin: 2, eps: 0.1, swap: true}", OF_LENGTHS("{linear: 6}")},
};

#define LOSS_LAYERS 256

static inline struct shape loss_input(size_t i) {
    bool has_lengths = loss_cases[i].outputs && loss_cases[i].outputs[0] == '[';
    return (struct shape){.dims = 1, .size = {has_lengths ? 13 : 6}};
}

static inline void layers_of_loss(size_t i, char layers[LOSS_LAYERS]) {
    const char *outputs = loss_cases[i].outputs ? loss_cases[i].outputs : "{linear: {out: 4}}";
    snprintf(layers, LOSS_LAYERS, outputs[0] == '[' ? "%s" : "[{linear: {out: 7}}, tanh, %s]", outputs);
}

/* The targets of kl_div are probabilities, those of losses of single values may be signs, and those of lists are the
 * classes 0, 1, -1, 3, then others. */
static inline void make_positive(struct fixture *f) {
    bool are_signs = f->loss->is_sign && !f->loss->parts;
    for (size_t v = 0; v < f->rows * f->model->out_size; v++)
        f->values[v] = f->loss->is_class_list ? (v % 5 == 2 ? -1 : (float)(v % 4))
                       : are_signs            ? (v % 3 ? 1 : -1)
                                              : fabsf(f->values[v]);
}
