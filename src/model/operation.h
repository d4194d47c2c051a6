/* operation: what a layer computes when it does not train, as plain data, for programs that write a model in another
 * format. Each type of layer describes itself (layer_type.describe). The formulas are those of the device's operators.
 */
#ifndef MODEL_OPERATION_H
#define MODEL_OPERATION_H

#include "device/device.h"
#include "device/recurrent.h"

struct layer;

enum operation_kind {
    OPERATION_IDENTITY,         /* y = x: dropout, views */
    OPERATION_REORDER,          /* the same values in the other order of memory */
    OPERATION_LINEAR,           /* weight, bias */
    OPERATION_ACTIVATION,       /* function */
    OPERATION_LEAKY_RELU,       /* slope */
    OPERATION_ELU,              /* slope: its alpha */
    OPERATION_PRELU,            /* weight: a slope, or one for each channel */
    OPERATION_SCALE,            /* weight: a factor for each element of dimension */
    OPERATION_CONVOLUTION,      /* weight, bias; convolution */
    OPERATION_CONV_TRANSPOSE,   /* weight, bias; convolution: from the output to the input */
    OPERATION_MAX_POOL,         /* pooling */
    OPERATION_AVERAGE_POOL,     /* pooling */
    OPERATION_BATCH_NORM,       /* weight, bias, mean, variance; eps */
    OPERATION_GROUP_NORM,       /* weight, bias; groups, eps */
    OPERATION_LAYER_NORM,       /* weight, bias; eps */
    OPERATION_RMS_NORM,         /* weight; eps */
    OPERATION_SOFTMAX,          /* of the last dimension */
    OPERATION_LOG_SOFTMAX,      /* of the last dimension */
    OPERATION_EMBEDDING,        /* weight; padding: of the lengths that it sets */
    OPERATION_EMBEDDING_BAG,    /* weight; bag, padding */
    OPERATION_CLASS_TOKEN,      /* weight: a position before those of x */
    OPERATION_ADD_POSITIONS,    /* weight: y[t] = x[t] + weight[t] */
    OPERATION_ATTENTION,        /* weight, bias, out_weight, out_bias: with projections; heads, is_causal */
    OPERATION_ATTENTION_CORE,   /* heads, kv_heads, is_causal: of queries, keys and values */
    OPERATION_CROSS_ATTENTION,  /* as ATTENTION: queries of the first input, keys and values of the second */
    OPERATION_SEQUENCE_LENGTHS, /* y = the first input; the second is the lengths that it sets */
    OPERATION_CONCAT,           /* of several inputs along dimension */
    OPERATION_SLICE,            /* elements start to end - 1 along dimension */
    OPERATION_MULTIPLY,         /* of two inputs, element by element */
    OPERATION_UPSAMPLE,         /* resize */
    OPERATION_PERMUTE,          /* the row as split.size, in the order split.order; permutation: in memory */
    OPERATION_PAD,              /* pad: in memory; pads: of the last dimension and the one before */
    OPERATION_MEAN,             /* along dimension; of the first lengths of it */
    OPERATION_MAXIMUM,          /* along dimension */
    OPERATION_MATMUL,           /* of two inputs: their last two dimensions; the others are the same */
    OPERATION_UNFOLD_DEPTH,     /* depth: the input of a 3D convolution as images with more channels */
    OPERATION_ROTATE,           /* rotation: pairs of features by an angle for each position */
    OPERATION_RECURRENT,        /* weight: the first of its parameters; recurrent */
    OPERATION_INPUT,            /* elements start to end - 1 of a row of all inputs, which have the name */
    OPERATION_OUTPUTS,          /* a row of all outputs: its inputs, one after another */
    OPERATION_OTHER,            /* the type does not describe it */
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
    size_t images;             /* of one row that convolution or pooling works on, one after another */
    bool is_along_depth;       /* the height of pooling is the depth of a volume, its channels all other elements */
    struct depth_window depth; /* of a 3D convolution, whose input is that of OPERATION_UNFOLD_DEPTH; kernel 0: none */
    struct resize resize;
    struct pad pad;
    size_t pads[4]; /* left, right, top, bottom */
    struct permutation permutation;
    struct {
        size_t dims;
        int64_t size[PERMUTATION_DIMS], order[PERMUTATION_DIMS]; /* order: from 0, without the batch */
    } split;
    size_t groups, heads, kv_heads;
    bool is_causal;
    enum bag_mode bag;
    int32_t padding; /* a token that is left out; -1: none */
    /* The number of a row's real positions, as in struct shape; 0: none. [lengths]: of those that it leaves out when it
     * attends, steps or reduces; [sets_lengths]: that it determines. */
    size_t lengths, sets_lengths;
    int dimension; /* of the shape of a row */
    size_t start, end;
    const char *name;
    struct {
        size_t heads, head_size; /* the first features; the others do not change */
        double base;             /* pair i of a head is rotated by position * base^(-2i / head_size) */
        bool is_interleaved;     /* pairs (2i, 2i + 1), else (i, i + head_size / 2) */
    } rotation;
    /* Parameters of each direction of each layer: weight_ih, weight_hh and, with has_bias, bias_ih, bias_hh. */
    struct {
        enum recurrent_cell cell;
        size_t hidden, layers, directions;
        bool has_bias, is_last; /* is_last: only the state after the last step, of the other direction the first */
    } recurrent;
    bool uses_batch; /* of a batch norm: the statistics of the rows that are computed together */
};

struct operation operation_of(const struct layer *layer);

#endif
