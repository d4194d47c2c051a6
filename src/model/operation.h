/* operation: what a layer computes when it does not train, as plain data, for programs that write a model in another
 * format. Each type of layer describes itself (layer_type.describe). The formulas are those of the device's operators.
 */
#ifndef MODEL_OPERATION_H
#define MODEL_OPERATION_H

#include "device/device.h"

struct layer;

enum operation_kind {
    OPERATION_IDENTITY,       /* y = x: dropout, views */
    OPERATION_REORDER,        /* the same values in the other order of memory */
    OPERATION_LINEAR,         /* weight, bias */
    OPERATION_ACTIVATION,     /* function */
    OPERATION_LEAKY_RELU,     /* slope */
    OPERATION_ELU,            /* slope: its alpha */
    OPERATION_CONVOLUTION,    /* weight, bias; convolution */
    OPERATION_MAX_POOL,       /* pooling */
    OPERATION_AVERAGE_POOL,   /* pooling */
    OPERATION_BATCH_NORM,     /* weight, bias, mean, variance; eps */
    OPERATION_GROUP_NORM,     /* weight, bias; groups, eps */
    OPERATION_LAYER_NORM,     /* weight, bias; eps */
    OPERATION_RMS_NORM,       /* weight; eps */
    OPERATION_SOFTMAX,        /* of the last dimension */
    OPERATION_EMBEDDING,      /* weight */
    OPERATION_ADD_POSITIONS,  /* weight: y[t] = x[t] + weight[t] */
    OPERATION_ATTENTION,      /* weight, bias, out_weight, out_bias: with projections; heads, is_causal */
    OPERATION_ATTENTION_CORE, /* heads, is_causal: of queries, keys and values */
    OPERATION_OTHER,          /* the type does not describe it */
    OPERATION_KINDS
};

#define OPERATION_NO_PARAM SIZE_MAX

struct operation {
    enum operation_kind kind;
    size_t weight, bias, out_weight, out_bias; /* indices in the model's params; OPERATION_NO_PARAM: none */
    size_t mean, variance;                     /* indices in the model's buffers */
    bool has_relu;                             /* y = max(y, 0) at the end */
    enum activation function;
    float slope, eps;
    struct convolution convolution; /* its has_bias and has_relu repeat the above */
    struct pooling pooling;
    size_t groups, heads;
    bool is_causal;
    bool uses_batch; /* of a batch norm: the statistics of the rows that are computed together */
};

struct operation operation_of(const struct layer *layer);

#endif
