/* layers: the table of layer types. */
#pragma once

#include "model/emit/c.h"
#include "model/emit/onnx.h"
#include "model/layer.h"
#include "model/model.h"

#define ACTIVATION_NAME(id, name, module, properties, doc) X(name)
/* The table: a name here, and a `const struct layer_type layer_<name>` in a file of this folder; activations come from
 * device/activations.h. The order is that of docs/config.md. Its user has defined X(name). */
/* clang-format off */
#define LAYER_TYPES(X) \
    X(linear) ACTIVATION_LAYERS(ACTIVATION_NAME) X(gelu) X(flatten) X(dropout) X(dropout1d) X(dropout2d) \
    X(drop_path) X(layer_scale) X(layer_scale2d) X(sequential) X(repeat) X(residual) \
    X(conv2d) X(conv1d) X(conv_transpose2d) X(conv_transpose1d) X(max_pool2d) X(max_pool1d) X(avg_pool2d) X(avg_pool1d) \
    X(adaptive_avg_pool2d) X(adaptive_avg_pool1d) \
    X(adaptive_max_pool2d) X(adaptive_max_pool1d) X(batch_norm) X(group_norm) X(instance_norm) \
    X(embedding) X(embedding_bag) X(positional_embedding) X(patch_embedding) X(class_token) X(layer_norm) \
    X(rms_norm) X(attention) X(scaled_dot_product_attention) X(cross_attention) \
    X(rotary_embedding) X(leaky_relu) X(prelu) X(softmax) X(log_softmax) X(reshape) X(add) X(concat) X(multiply) \
    X(parallel) X(slice) X(mean) X(sequence_lengths) X(upsample) \
    X(lstm) X(gru) X(rnn) X(elu) X(celu) X(softplus) X(hardtanh) X(threshold) X(softshrink) X(hardshrink) X(glu) \
    X(permute) X(max) X(pixel_shuffle) X(pixel_unshuffle) X(pad) X(chunk) X(split) \
    X(matmul) X(expression) X(sample_normal) X(unfold) X(fold) \
    X(conv3d) X(max_pool3d) X(avg_pool3d) X(adaptive_avg_pool3d) X(adaptive_max_pool3d) X(conv_transpose3d) \
    X(rrelu) X(dropout3d) X(alpha_dropout) X(feature_alpha_dropout) X(max_unpool1d) X(max_unpool2d) X(max_unpool3d)
/* clang-format on */
#define X(name) extern const struct layer_type layer_##name;
LAYER_TYPES(X)
#undef X

/* struct layer_type's plan of a layer without parameters whose output has the shape of the input. */
status layer_plan_same(struct layer *layer, struct planning *planning);

/* Declares a parameter of the layer, [name] in it ("weight"). */
void layer_declare(const struct layer *layer, struct planning *planning, const char *name, int dims,
                   const int64_t *shape);

bool layer_is_linear(const struct layer *layer);
/* Whether it is GELU by tanh. */
bool layer_is_gelu_tanh(const struct layer *layer);

/* Not in the table: build.c adds them. */
extern const struct layer_type layer_reorder, layer_input, layer_outputs, layer_part;
