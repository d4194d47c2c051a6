/* Every layer type of this folder, for the table in layer.c. */
#ifndef MODEL_LAYERS_LAYERS_H
#define MODEL_LAYERS_LAYERS_H

#include "model/layer.h"

extern const struct layer_type layer_linear, layer_relu, layer_tanh, layer_sigmoid, layer_gelu, layer_flatten,
    layer_dropout, layer_sequential, layer_repeat, layer_residual, layer_conv2d, layer_conv1d, layer_max_pool2d,
    layer_avg_pool2d, layer_adaptive_avg_pool2d, layer_batch_norm, layer_group_norm;

/* Whether it is GELU by tanh. */
bool layer_is_gelu_tanh(const struct layer *layer);

/* Not in the table: build.c adds it. */
extern const struct layer_type layer_reorder;

extern const struct layer_type layer_embedding, layer_positional_embedding, layer_layer_norm, layer_rms_norm,
    layer_attention, layer_scaled_dot_product_attention, layer_silu, layer_leaky_relu, layer_softmax, layer_reshape;

#endif
