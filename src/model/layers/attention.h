/* attention: what the layers of torch.nn.MultiheadAttention share, attention and cross_attention. */
#ifndef MODEL_LAYERS_ATTENTION_H
#define MODEL_LAYERS_ATTENTION_H

#include "model/layer.h"

struct attention_config {
    int64_t heads, kv_heads; /* kv_heads: scaled_dot_product_attention only */
    bool is_causal;          /* not of cross_attention */
    double dropout;
    bool bias; /* of the projections; not of scaled_dot_product_attention */
};

/* The parameters of a layer with an output of (T, C): in_proj_weight (3C, C), in_proj_bias (3C), out_proj.weight (C,
 * C), out_proj.bias (C). */
enum { IN_WEIGHT, IN_BIAS, OUT_WEIGHT, OUT_BIAS };
void attention_declare(const struct layer *layer, struct planning *planning);
/* struct layer_type's init. */
void attention_init(const struct layer *layer, const struct params *params, struct rng *rng);

/* struct layer_type's describe, of an attention to its own input. */
void attention_describe(const struct layer *layer, struct operation *to);
/* struct layer_type's check_device: limits the size of heads. */
status attention_check_device(const struct layer *layer, const struct device_ops *ops);

/* Index in params; without biases the two weights are adjacent. */
size_t attention_param(const struct layer *layer, int which);
/* NULL: there are no biases. */
const float *attention_value(const struct layer *layer, const struct params *params, int which);
float *attention_gradient(const struct layer *layer, const struct params *params, int which);

#endif
