/* What a layer computes as nodes of ONNX; tensors are channels-first, as in PyTorch. */
#include <math.h>
#include <stdlib.h>

#include "device/sequence.h"
#include "export/onnx_graph.h"

/* What an operation is written from. */
struct call {
    struct onnx_graph *g;
    const struct layer *layer;
    const struct operation *op;
    const char *x;             /* the first of [inputs] */
    const char *const *inputs; /* (layer->in_count) */
};

static const char *same(const struct call *c) { return c->x; }

static int64_t last(const struct shape *shape) { return shape->size[shape->dims - 1]; }

/* x w^T + b of the last dimension; [dims]: of the rows */
static const char *linear(struct onnx_graph *g, const char *x, size_t w, size_t b, int dims) {
    struct text attributes = {0};
    const char *weight = onnx_param(g, w), *bias = b == OPERATION_NO_PARAM ? NULL : onnx_param(g, b);
    if (dims == 1) {
        onnx_int(&attributes, "transB", 1);
        return onnx_node(g, "Gemm", (const char *const[]){x, weight, bias}, bias ? 3 : 2, &attributes);
    }
    onnx_ints(&attributes, "perm", (const int64_t[]){1, 0}, 2);
    const char *y = onnx_node2(g, "MatMul", x, onnx_node1(g, "Transpose", weight, &attributes));
    return bias ? onnx_node2(g, "Add", y, bias) : y;
}

static const char *add_linear(const struct call *c) {
    return linear(c->g, c->x, c->op->weight, c->op->bias, c->layer->in.dims);
}

static const char *at_most_6(struct onnx_graph *g, const char *x) {
    const char *inputs[] = {x, onnx_scalar(g, 0), onnx_scalar(g, 6)};
    return onnx_node(g, "Clip", inputs, 3, NULL);
}

static const char *add_activation(const struct call *c) {
    struct text attributes = {0};
    switch (c->op->function) {
    case ACTIVATION_RELU:
        return onnx_node1(c->g, "Relu", c->x, NULL);
    case ACTIVATION_TANH:
        return onnx_node1(c->g, "Tanh", c->x, NULL);
    case ACTIVATION_SIGMOID:
        return onnx_node1(c->g, "Sigmoid", c->x, NULL);
    case ACTIVATION_SILU:
        return onnx_node2(c->g, "Mul", c->x, onnx_node1(c->g, "Sigmoid", c->x, NULL));
    case ACTIVATION_RELU6:
        return at_most_6(c->g, c->x);
    case ACTIVATION_SELU:
        return onnx_node1(c->g, "Selu", c->x, NULL);
    case ACTIVATION_HARDSWISH:
        return onnx_node1(c->g, "HardSwish", c->x, NULL);
    case ACTIVATION_HARDSIGMOID:
        onnx_float(&attributes, "alpha", 1.0f / 6);
        onnx_float(&attributes, "beta", 0.5f);
        return onnx_node1(c->g, "HardSigmoid", c->x, &attributes);
    case ACTIVATION_MISH:
        return onnx_node1(c->g, "Mish", c->x, NULL);
    case ACTIVATION_SOFTPLUS:
        return onnx_node1(c->g, "Softplus", c->x, NULL);
    case ACTIVATION_ELU:
        return onnx_node1(c->g, "Elu", c->x, NULL);
    case ACTIVATION_GELU:
    case ACTIVATION_GELU_TANH:
        onnx_string(&attributes, "approximate", c->op->function == ACTIVATION_GELU ? "none" : "tanh");
        break;
    }
    return onnx_node1(c->g, "Gelu", c->x, &attributes);
}

static const char *add_leaky_relu(const struct call *c) {
    struct text attributes = {0};
    onnx_float(&attributes, "alpha", c->op->slope);
    return onnx_node1(c->g, "LeakyRelu", c->x, &attributes);
}

static const char *add_elu(const struct call *c) {
    struct text attributes = {0};
    onnx_float(&attributes, "alpha", c->op->slope);
    return onnx_node1(c->g, "Elu", c->x, &attributes);
}

/* ---- images ---- */

/* The dimensions of an image that a node has: (height, width), or (length). */
static void add_pair(struct text *attributes, const char *name, const size_t pair[2], int dims) {
    int64_t values[2] = {(int64_t)pair[0], (int64_t)pair[1]};
    onnx_ints(attributes, name, values + (3 - dims), (size_t)dims - 1);
}

/* pads: those before, then those after */
static void add_pads(struct text *attributes, const size_t before[2], const size_t after[2], int dims) {
    int64_t both[4] = {(int64_t)before[0], (int64_t)before[1], (int64_t)after[0], (int64_t)after[1]};
    int64_t signal[2] = {both[1], both[3]};
    onnx_ints(attributes, "pads", dims == 3 ? both : signal, dims == 3 ? 4 : 2);
}

static void add_window(struct text *attributes, const struct window *w, const size_t after[2], int dims) {
    add_pair(attributes, "kernel_shape", w->kernel, dims);
    add_pair(attributes, "strides", w->stride, dims);
    add_pads(attributes, w->padding, after, dims);
}

/* With [attributes], which those of every convolution follow. */
static const char *convolution(const struct call *c, const char *type, struct text *attributes) {
    const struct convolution *v = &c->op->convolution;
    const size_t after[2] = {window_padding_after(&v->window, 0, v->in.height, v->out.height),
                             window_padding_after(&v->window, 1, v->in.width, v->out.width)};
    add_window(attributes, &v->window, after, c->layer->in.dims);
    add_pair(attributes, "dilations", v->window.dilation, c->layer->in.dims);
    onnx_int(attributes, "group", (int64_t)v->groups);
    const char *inputs[3] = {c->x, onnx_param(c->g, c->op->weight)};
    if (c->op->bias != OPERATION_NO_PARAM) inputs[2] = onnx_param(c->g, c->op->bias);
    return onnx_node(c->g, type, inputs, inputs[2] ? 3 : 2, attributes);
}

/* A dimension of a volume, before those of its images. */
static void add_triple(struct text *attributes, const char *name, size_t depth, const size_t pair[2]) {
    onnx_ints(attributes, name, (const int64_t[]){(int64_t)depth, (int64_t)pair[0], (int64_t)pair[1]}, 3);
}

static void add_volume_window(struct text *attributes, const size_t kernel[3], const size_t stride[3],
                              const size_t before[3], const size_t after[3]) {
    int64_t pads[6];
    for (int d = 0; d < 3; d++) pads[d] = (int64_t)before[d], pads[3 + d] = (int64_t)after[d];
    add_triple(attributes, "kernel_shape", kernel[0], kernel + 1);
    add_triple(attributes, "strides", stride[0], stride + 1);
    onnx_ints(attributes, "pads", pads, 6);
}

/* Of the volume itself: OPERATION_UNFOLD_DEPTH adds no node. */
static const char *convolution3d(const struct call *c) {
    const struct convolution *v = &c->op->convolution;
    const struct window *w = &v->window;
    const struct depth_window *depth = &c->op->depth;
    const size_t pads[3] = {depth->padding, w->padding[0], w->padding[1]};
    struct text attributes = {0};
    add_volume_window(&attributes, (const size_t[]){depth->kernel, w->kernel[0], w->kernel[1]},
                      (const size_t[]){depth->stride, w->stride[0], w->stride[1]}, pads, pads);
    add_triple(&attributes, "dilations", depth->dilation, w->dilation);
    onnx_int(&attributes, "group", (int64_t)v->groups);
    const char *inputs[3] = {c->x, onnx_param(c->g, c->op->weight)};
    if (c->op->bias != OPERATION_NO_PARAM) inputs[2] = onnx_param(c->g, c->op->bias);
    return onnx_node(c->g, "Conv", inputs, inputs[2] ? 3 : 2, &attributes);
}

static const char *add_convolution(const struct call *c) {
    struct text attributes = {0}, order = {0};
    if (c->op->depth.kernel > 0) return convolution3d(c);
    const char *y = convolution(c, "Conv", &attributes);
    if (c->layer->out.dims == c->layer->in.dims) return y;
    onnx_ints(&order, "perm", (const int64_t[]){0, 2, 1}, 3); /* patch_embedding: a sequence of pixels */
    return onnx_node1(c->g, "Transpose",
                      onnx_node2(c->g, "Reshape", y, onnx_numbers(c->g, (const int64_t[]){0, 0, -1}, 3)), &order);
}

/* What a stride leaves open of the output's size. */
static size_t output_padding(const struct window *w, int d, size_t in, size_t out) {
    return out + 2 * w->padding[d] - (in - 1) * w->stride[d] - w->dilation[d] * (w->kernel[d] - 1) - 1;
}

static const char *add_convolution_transpose(const struct call *c) {
    const struct convolution *v = &c->op->convolution; /* from the output to the input */
    struct text attributes = {0};
    size_t after[2] = {output_padding(&v->window, 0, v->out.height, v->in.height),
                       output_padding(&v->window, 1, v->out.width, v->in.width)};
    add_pair(&attributes, "output_padding", after, 3);
    return convolution(c, "ConvTranspose", &attributes);
}

/* The padding after the image that gives [out] windows (ceil_mode). */
static size_t pad_after(const struct window *w, int d, size_t in, size_t out) {
    size_t end = (out - 1) * w->stride[d] + w->kernel[d], image = in + w->padding[d];
    return end > image ? end - image : 0;
}

/* Adaptive maxima of x along dimension [axis] of a batch: of a slice for each output. */
static const char *adaptive_max_along(struct onnx_graph *g, const char *x, int64_t axis, size_t in, size_t out) {
    const char **parts = calloc(out, sizeof *parts);
    struct text attributes = {0};
    const char *axes = onnx_numbers(g, (const int64_t[]){axis}, 1);
    for (size_t o = 0; parts && o < out; o++) {
        int64_t from = (int64_t)(o * in / out), to = (int64_t)(((o + 1) * in + out - 1) / out);
        const char *inputs[] = {x, onnx_numbers(g, &from, 1), onnx_numbers(g, &to, 1), axes};
        parts[o] = onnx_node2(g, "ReduceMax", onnx_node(g, "Slice", inputs, 4, NULL), axes);
    }
    onnx_int(&attributes, "axis", axis);
    const char *y = parts && out > 1 ? onnx_node(g, "Concat", parts, out, &attributes) : parts ? parts[0] : x;
    if (out == 1) text_free(&attributes);
    free(parts);
    return y;
}

static const char *adaptive_max(const struct call *c) {
    const struct pooling *p = &c->op->pooling;
    const char *x = c->x;
    if (c->layer->in.dims == 3) x = adaptive_max_along(c->g, x, 2, p->in.height, p->out.height);
    return adaptive_max_along(c->g, x, c->layer->in.dims, p->in.width, p->out.width);
}

static void add_volume_pool(const struct call *c, struct text *attributes) {
    const struct pooling *p = &c->op->pooling;
    const struct window *w = &p->window;
    size_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, before[3] = {0}, after[3] = {0};
    const size_t in[2] = {p->in.height, p->in.width}, out[2] = {p->out.height, p->out.width};
    for (int d = 0; d < (c->op->is_along_depth ? 1 : 2); d++) {
        int to = c->op->is_along_depth ? 0 : d + 1;
        kernel[to] = w->kernel[d], stride[to] = w->stride[d], before[to] = w->padding[d];
        after[to] = pad_after(w, d, in[d], out[d]);
    }
    add_volume_window(attributes, kernel, stride, before, after);
}

/* Adaptive maxima of a volume: along its depth, or of its images. */
static const char *adaptive_volume_max(const struct call *c) {
    const struct pooling *p = &c->op->pooling;
    const char *x = adaptive_max_along(c->g, c->x, c->op->is_along_depth ? 2 : 3, p->in.height, p->out.height);
    return c->op->is_along_depth ? x : adaptive_max_along(c->g, x, 4, p->in.width, p->out.width);
}

static const char *add_max_pool(const struct call *c) {
    const struct pooling *p = &c->op->pooling;
    struct text attributes = {0};
    if (c->layer->in.dims == 4) {
        if (p->is_adaptive) return adaptive_volume_max(c);
        add_volume_pool(c, &attributes);
        return onnx_node1(c->g, "MaxPool", c->x, &attributes);
    }
    size_t after[2] = {pad_after(&p->window, 0, p->in.height, p->out.height),
                       pad_after(&p->window, 1, p->in.width, p->out.width)};
    if (p->is_adaptive) return adaptive_max(c);
    add_window(&attributes, &p->window, after, c->layer->in.dims);
    return onnx_node1(c->g, "MaxPool", c->x, &attributes);
}

/* One dimension of an average as a matrix (out, in), whose rows are the weights of the windows. */
static const char *average_tensor(struct onnx_graph *g, const struct pooling *p, int d, size_t in, size_t out) {
    float *matrix = calloc(out * in, sizeof *matrix);
    for (size_t o = 0; matrix && o < out; o++) {
        size_t start = o * p->window.stride[d], end = start + p->window.kernel[d], pad = p->window.padding[d];
        size_t padded = (end < in + 2 * pad ? end : in + 2 * pad) - start;
        size_t from = start < pad ? 0 : start - pad, to = (end < in + pad ? end : in + pad) - pad;
        if (p->is_adaptive) from = o * in / out, to = ((o + 1) * in + out - 1) / out;
        size_t count = p->is_adaptive || p->excludes_padding ? to - from : padded;
        if (p->divisor) count = d == 0 ? p->divisor : 1;
        for (size_t i = from; i < to; i++) matrix[o * in + i] = 1 / (float)count;
    }
    const char *name = onnx_tensor(g, NULL, ONNX_FLOAT, matrix, 2, (const int64_t[]){(int64_t)out, (int64_t)in});
    free(matrix);
    return name;
}

/* [matrix] times the depth of a volume, whose images are rows for that. */
static const char *averages_along_depth(const struct call *c, const char *matrix) {
    const int64_t *in = c->layer->in.size;
    const char *x = onnx_reshape(c->g, c->x, (const int64_t[]){in[0], in[1], in[2] * in[3]}, 3);
    return onnx_reshape(c->g, onnx_node2(c->g, "MatMul", matrix, x), c->layer->out.size, 4);
}

/* Averages that no node of ONNX has: along the height, then along the width. */
static const char *average_by_matrices(const struct call *c) {
    const struct pooling *p = &c->op->pooling;
    struct text attributes = {0};
    const char *rows = average_tensor(c->g, p, 0, p->in.height, p->out.height);
    if (c->op->is_along_depth) return averages_along_depth(c, rows);
    const char *columns = average_tensor(c->g, p, 1, p->in.width, p->out.width);
    const char *x = c->layer->in.dims >= 3 ? onnx_node2(c->g, "MatMul", rows, c->x) : c->x;
    onnx_ints(&attributes, "perm", (const int64_t[]){1, 0}, 2);
    return onnx_node2(c->g, "MatMul", x, onnx_node1(c->g, "Transpose", columns, &attributes));
}

static const char *add_average_pool(const struct call *c) {
    const struct pooling *p = &c->op->pooling;
    struct text attributes = {0};
    if (c->layer->in.dims == 4) return average_by_matrices(c);
    if (p->is_adaptive && p->out.height == 1 && p->out.width == 1)
        return onnx_node1(c->g, "GlobalAveragePool", c->x, NULL);
    bool is_plain = !p->is_adaptive && !p->divisor &&
                    pad_after(&p->window, 0, p->in.height, p->out.height) <= p->window.padding[0] &&
                    pad_after(&p->window, 1, p->in.width, p->out.width) <= p->window.padding[1];
    if (!is_plain) return average_by_matrices(c);
    add_window(&attributes, &p->window, p->window.padding, c->layer->in.dims);
    onnx_int(&attributes, "count_include_pad", !p->excludes_padding);
    return onnx_node1(c->g, "AveragePool", c->x, &attributes);
}

/* ---- norms ---- */

static const char *constant_vector(struct onnx_graph *g, size_t size, float value) {
    float *values = malloc(size * sizeof *values);
    for (size_t i = 0; values && i < size; i++) values[i] = value;
    const char *name = onnx_tensor(g, NULL, ONNX_FLOAT, values, 1, (const int64_t[]){(int64_t)size});
    free(values);
    return name;
}

static const char *param_or(struct onnx_graph *g, size_t index, size_t size, float value) {
    return index == OPERATION_NO_PARAM ? constant_vector(g, size, value) : onnx_param(g, index);
}

static const char *add_batch_norm(const struct call *c) {
    size_t channels = (size_t)c->layer->in.size[0];
    const struct params *buffers = &c->g->m->model->buffers;
    const int64_t shape[] = {(int64_t)channels};
    struct text attributes = {0};
    onnx_float(&attributes, "epsilon", c->op->eps);
    const char *inputs[] = {
        c->x, param_or(c->g, c->op->weight, channels, 1), param_or(c->g, c->op->bias, channels, 0),
        onnx_tensor(c->g, buffers->items[c->op->mean].name, ONNX_FLOAT, c->g->m->buffers[c->op->mean], 1, shape),
        onnx_tensor(c->g, buffers->items[c->op->variance].name, ONNX_FLOAT, c->g->m->buffers[c->op->variance], 1,
                    shape)};
    return onnx_node(c->g, "BatchNormalization", inputs, 5, &attributes);
}

static const char *mean_of_last(struct onnx_graph *g, const char *x) {
    return onnx_node2(g, "ReduceMean", x, onnx_numbers(g, (const int64_t[]){-1}, 1));
}

/* x / sqrt(mean of x^2 + eps) of the last dimension */
static const char *over_root_mean_square(struct onnx_graph *g, const char *x, float eps) {
    const char *square = mean_of_last(g, onnx_node2(g, "Mul", x, x));
    return onnx_node2(g, "Div", x, onnx_node1(g, "Sqrt", onnx_node2(g, "Add", square, onnx_scalar(g, eps)), NULL));
}

/* A parameter of the channels, for a tensor of (channels, ...). */
static const char *per_channel(const struct call *c, size_t index) {
    int64_t shape[MAX_DIMS];
    for (int d = 0; d < c->layer->in.dims; d++) shape[d] = d ? 1 : c->layer->in.size[0];
    return onnx_node2(c->g, "Reshape", onnx_param(c->g, index), onnx_numbers(c->g, shape, (size_t)c->layer->in.dims));
}

static const char *add_group_norm(const struct call *c) {
    const char *x = onnx_reshape(c->g, c->x, (const int64_t[]){(int64_t)c->op->groups, -1}, 2);
    const char *centered = onnx_node2(c->g, "Sub", x, mean_of_last(c->g, x));
    const char *y = onnx_reshape(c->g, over_root_mean_square(c->g, centered, c->op->eps), c->layer->in.size,
                                 (size_t)c->layer->in.dims);
    if (c->op->weight == OPERATION_NO_PARAM) return y;
    y = onnx_node2(c->g, "Mul", y, per_channel(c, c->op->weight));
    return onnx_node2(c->g, "Add", y, per_channel(c, c->op->bias));
}

static const char *add_layer_norm(const struct call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    onnx_float(&attributes, "epsilon", c->op->eps);
    const char *inputs[3] = {c->x, param_or(c->g, c->op->weight, (size_t)last(&c->layer->in), 1)};
    if (c->op->bias != OPERATION_NO_PARAM) inputs[2] = onnx_param(c->g, c->op->bias);
    return onnx_node(c->g, "LayerNormalization", inputs, inputs[2] ? 3 : 2, &attributes);
}

static const char *add_rms_norm(const struct call *c) {
    const char *y = over_root_mean_square(c->g, c->x, c->op->eps);
    return c->op->weight == OPERATION_NO_PARAM ? y : onnx_node2(c->g, "Mul", y, onnx_param(c->g, c->op->weight));
}

/* ---- sequences ---- */

static const char *softmax(struct onnx_graph *g, const char *x) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    return onnx_node1(g, "Softmax", x, &attributes);
}

static const char *add_softmax(const struct call *c) { return softmax(c->g, c->x); }

static const char *add_log_softmax(const struct call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    return onnx_node1(c->g, "LogSoftmax", c->x, &attributes);
}

/* The slopes of channels get a dimension of 1 for each one after them. */
static const char *add_prelu(const struct call *c) {
    const char *slopes = onnx_param(c->g, c->op->weight);
    if (c->layer->in.dims > 1) {
        int64_t shape[3] = {-1, 1, 1};
        slopes = onnx_node2(c->g, "Reshape", slopes, onnx_numbers(c->g, shape, (size_t)c->layer->in.dims));
    }
    return onnx_node2(c->g, "PRelu", c->x, slopes);
}

static const char *add_scale(const struct call *c) {
    bool is_last = c->op->dimension == c->layer->in.dims - 1;
    return onnx_node2(c->g, "Mul", c->x, is_last ? onnx_param(c->g, c->op->weight) : per_channel(c, c->op->weight));
}

static const char *add_embedding(const struct call *c) {
    const char *tokens = c->layer->in.is_tokens ? c->x : onnx_cast(c->g, c->x, ONNX_INT64);
    return onnx_node2(c->g, "Gather", onnx_param(c->g, c->op->weight), tokens);
}

/* Over dimension 1, which the result does not have. */
static const char *reduce(struct onnx_graph *g, const char *op, const char *x) {
    struct text attributes = {0};
    onnx_int(&attributes, "keepdims", 0);
    return onnx_node(g, op, (const char *const[]){x, onnx_numbers(g, (const int64_t[]){1}, 1)}, 2, &attributes);
}

/* 1 for each token that is not the padding, as float (batch, tokens, 1) */
static const char *counted_tokens(const struct call *c) {
    const char *is_padding = onnx_node2(c->g, "Equal", c->x, onnx_numbers(c->g, (const int64_t[]){c->op->padding}, 1));
    const char *ones = onnx_node2(c->g, "Sub", onnx_scalar(c->g, 1), onnx_cast(c->g, is_padding, ONNX_FLOAT));
    return onnx_node2(c->g, "Unsqueeze", ones, onnx_numbers(c->g, (const int64_t[]){2}, 1));
}

/* Vectors of the padding count as 0, or as far below all others; a bag without tokens is 0. */
static const char *add_embedding_bag(const struct call *c) {
    static const char *const reductions[] = {
        [BAG_MEAN] = "ReduceMean", [BAG_SUM] = "ReduceSum", [BAG_MAX] = "ReduceMax"};
    struct onnx_graph *g = c->g;
    const char *x = add_embedding(c);
    if (c->op->padding < 0) return reduce(g, reductions[c->op->bag], x);
    const char *counted = counted_tokens(c), *count = reduce(g, "ReduceSum", counted);
    const char *one = onnx_scalar(g, 1), *at_least_one = onnx_node2(g, "Max", count, one);
    if (c->op->bag != BAG_MAX) {
        const char *sum = reduce(g, "ReduceSum", onnx_node2(g, "Mul", x, counted));
        return c->op->bag == BAG_SUM ? sum : onnx_node2(g, "Div", sum, at_least_one);
    }
    const char *below = onnx_node2(g, "Mul", onnx_node2(g, "Sub", counted, one), onnx_scalar(g, 3e38f));
    const char *largest = reduce(g, "ReduceMax", onnx_node2(g, "Add", onnx_node2(g, "Mul", x, counted), below));
    return onnx_node2(g, "Mul", largest, onnx_node2(g, "Min", count, one));
}

/* The token is repeated for each row of the batch. */
static const char *add_class_token(const struct call *c) {
    struct text first = {0}, axis = {0}, second = {0};
    onnx_int(&first, "start", 0);
    onnx_int(&first, "end", 1);
    onnx_int(&axis, "axis", 0);
    onnx_int(&second, "axis", 1);
    const char *batch = onnx_node1(c->g, "Shape", c->x, &first);
    const char *sizes[] = {batch, onnx_numbers(c->g, (const int64_t[]){1, last(&c->layer->in)}, 2)};
    const char *shape = onnx_node(c->g, "Concat", sizes, 2, &axis);
    const char *parts[] = {onnx_node2(c->g, "Expand", onnx_param(c->g, c->op->weight), shape), c->x};
    return onnx_node(c->g, "Concat", parts, 2, &second);
}

static const char *add_positions(const struct call *c) {
    const int64_t *shape = c->layer->in.size; /* the first of the weight's rows */
    bool are_all = c->g->m->model->params.items[c->op->weight].shape[0] == shape[0];
    const char *rows = are_all ? onnx_param(c->g, c->op->weight)
                               : onnx_tensor(c->g, NULL, ONNX_FLOAT, c->g->m->params[c->op->weight], 2, shape);
    return onnx_node2(c->g, "Add", c->x, rows);
}

const char *onnx_transpose(struct onnx_graph *g, const char *x, const int64_t *order, size_t count) {
    struct text attributes = {0};
    onnx_ints(&attributes, "perm", order, count);
    return onnx_node1(g, "Transpose", x, &attributes);
}

/* -infinity for the keys after each query: (tokens, tokens) */
static const char *causal_mask(struct onnx_graph *g, size_t tokens) {
    float *mask = calloc(tokens * tokens, sizeof *mask);
    for (size_t i = 0; mask && i < tokens; i++)
        for (size_t j = i + 1; j < tokens; j++) mask[i * tokens + j] = -INFINITY;
    const int64_t shape[] = {(int64_t)tokens, (int64_t)tokens};
    const char *name = onnx_tensor(g, NULL, ONNX_FLOAT, mask, 2, shape);
    free(mask);
    return name;
}

/* Elements [start, end) of the last dimension. */
static const char *columns(struct onnx_graph *g, const char *x, int64_t start, int64_t end) {
    const char *inputs[] = {x, onnx_numbers(g, &start, 1), onnx_numbers(g, &end, 1),
                            onnx_numbers(g, (const int64_t[]){-1}, 1)};
    return onnx_node(g, "Slice", inputs, 4, NULL);
}

static const char *gather(struct onnx_graph *g, const char *x, const char *indices, int64_t axis) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", axis);
    return onnx_node(g, "Gather", (const char *const[]){x, indices}, 2, &attributes);
}

/* Columns from [first] on as (batch, heads, tokens, size), each of [heads] heads as often as there are queries for it.
 */
static const char *heads_of(const struct call *c, const char *qkv, int64_t first, int64_t heads) {
    struct onnx_graph *g = c->g;
    int64_t tokens = c->layer->out.size[0], queries = (int64_t)c->op->heads, size = c->layer->out.size[1] / queries;
    const char *x = columns(g, qkv, first * size, (first + heads) * size);
    x = onnx_transpose(g, onnx_reshape(g, x, (const int64_t[]){tokens, heads, size}, 3), (const int64_t[]){0, 2, 1, 3},
                       4);
    if (heads == queries) return x;
    int64_t *indices = arena_alloc(g->arena, (size_t)queries * sizeof *indices);
    for (int64_t h = 0; h < queries; h++) indices[h] = h / (queries / heads);
    return gather(g, x, onnx_numbers(g, indices, (size_t)queries), 1);
}

/* softmax(q k^T / sqrt(size)) v of each head; qkv (tokens, (heads + 2 kv_heads) * size) */
static const char *attend(const struct call *c, const char *qkv) {
    struct onnx_graph *g = c->g;
    int64_t tokens = c->layer->out.size[0], width = c->layer->out.size[1];
    int64_t heads = (int64_t)c->op->heads, kv_heads = (int64_t)c->op->kv_heads;
    const char *queries = heads_of(c, qkv, 0, heads), *values = heads_of(c, qkv, heads + kv_heads, kv_heads);
    const char *keys = onnx_transpose(g, heads_of(c, qkv, heads, kv_heads), (const int64_t[]){0, 1, 3, 2}, 4);
    const char *scale = onnx_scalar(g, 1 / sqrtf((float)(width / heads)));
    const char *scores = onnx_node2(g, "Mul", onnx_node2(g, "MatMul", queries, keys), scale);
    if (c->op->is_causal) scores = onnx_node2(g, "Add", scores, causal_mask(g, (size_t)tokens));
    const char *y = onnx_node2(g, "MatMul", softmax(g, scores), values);
    return onnx_reshape(g, onnx_transpose(g, y, (const int64_t[]){0, 2, 1, 3}, 4), (const int64_t[]){tokens, width}, 2);
}

static const char *add_core(const struct call *c) { return attend(c, c->x); }

static const char *add_attention(const struct call *c) {
    const char *heads = attend(c, linear(c->g, c->x, c->op->weight, c->op->bias, 2));
    return linear(c->g, heads, c->op->out_weight, c->op->out_bias, 2);
}

/* y = x * cosines + (the other element of each pair) * sines, with sines of both signs; 1 and 0 for other features */
static const char *add_rotation(const struct call *c) {
    struct onnx_graph *g = c->g;
    const int64_t *shape = c->layer->in.size;
    size_t size = c->op->rotation.head_size, rotated = c->op->rotation.heads * size, features = (size_t)shape[1];
    bool is_interleaved = c->op->rotation.is_interleaved;
    float *cosines = arena_alloc(g->arena, (size_t)shape[0] * features * sizeof *cosines);
    float *sines = arena_alloc(g->arena, (size_t)shape[0] * features * sizeof *sines);
    int64_t *others = arena_alloc(g->arena, features * sizeof *others);
    for (size_t j = 0; j < features; j++) {
        size_t at = j % size, pair = is_interleaved ? at / 2 : at % (size / 2);
        bool is_second = is_interleaved ? at % 2 : at >= size / 2;
        size_t distance = is_interleaved ? 1 : size / 2;
        others[j] = (int64_t)(j >= rotated ? j : is_second ? j - distance : j + distance);
        for (size_t t = 0; t < (size_t)shape[0]; t++) {
            double angle = rotation_angle(c->op->rotation.base, size, t, pair);
            cosines[t * features + j] = j < rotated ? (float)cos(angle) : 1;
            sines[t * features + j] = j >= rotated ? 0 : is_second ? (float)sin(angle) : -(float)sin(angle);
        }
    }
    const char *other = gather(g, c->x, onnx_numbers(g, others, features), -1);
    const char *own = onnx_node2(g, "Mul", c->x, onnx_tensor(g, NULL, ONNX_FLOAT, cosines, 2, shape));
    return onnx_node2(g, "Add", own, onnx_node2(g, "Mul", other, onnx_tensor(g, NULL, ONNX_FLOAT, sines, 2, shape)));
}

/* ---- joins ---- */

static const char *add_concat(const struct call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", c->op->dimension + 1);
    return onnx_node(c->g, "Concat", c->inputs, c->layer->in_count, &attributes);
}

static const char *add_slice(const struct call *c) {
    const int64_t start = (int64_t)c->op->start, end = (int64_t)c->op->end, axis = c->op->dimension + 1;
    const char *inputs[] = {c->x, onnx_numbers(c->g, &start, 1), onnx_numbers(c->g, &end, 1),
                            onnx_numbers(c->g, &axis, 1)};
    return onnx_node(c->g, "Slice", inputs, 4, NULL);
}

static const char *add_product(const struct call *c) { return onnx_node2(c->g, "Mul", c->inputs[0], c->inputs[1]); }

/* Whether the sizes determine the scale: it was not given, or it was not rounded. */
static bool has_scale_of_sizes(const struct resize_side *s) {
    float scale = (float)s->in / (float)s->out;
    return s->scale >= scale && s->scale <= scale;
}

static const char *add_upsample(const struct call *c) {
    const struct resize *r = &c->op->resize;
    size_t dims = (size_t)c->layer->in.dims - 1; /* that change */
    const struct resize_side *side = r->side + (2 - dims);
    int64_t axes[2], sizes[2];
    float scales[2];
    bool has_sizes = true;
    struct text attributes = {0};
    for (size_t d = 0; d < dims; d++) {
        axes[d] = (int64_t)d + 2;
        sizes[d] = (int64_t)side[d].out;
        scales[d] = 1 / side[d].scale;
        has_sizes = has_sizes && (r->align_corners || has_scale_of_sizes(&side[d]));
    }
    onnx_ints(&attributes, "axes", axes, dims);
    onnx_string(&attributes, "mode", r->is_nearest ? "nearest" : "linear");
    onnx_string(&attributes, "nearest_mode", "floor");
    onnx_string(&attributes, "coordinate_transformation_mode",
                r->is_nearest      ? "asymmetric"
                : r->align_corners ? "align_corners"
                                   : "half_pixel");
    const int64_t count = (int64_t)dims;
    const char *inputs[4] = {c->x, ""};
    inputs[2] = has_sizes ? "" : onnx_tensor(c->g, NULL, ONNX_FLOAT, scales, 1, &count);
    if (has_sizes) inputs[3] = onnx_numbers(c->g, sizes, dims);
    return onnx_node(c->g, "Resize", inputs, has_sizes ? 4 : 3, &attributes);
}

/* Split into factors, transposed, and joined again. */
static const char *add_permutation(const struct call *c) {
    size_t dims = c->op->split.dims;
    bool is_split = dims != (size_t)c->layer->in.dims;
    int64_t order[PERMUTATION_DIMS + 1] = {0};
    for (size_t d = 0; d < dims; d++) order[d + 1] = c->op->split.order[d] + 1;
    const char *x = is_split ? onnx_reshape(c->g, c->x, c->op->split.size, dims) : c->x;
    x = onnx_transpose(c->g, x, order, dims + 1);
    return is_split ? onnx_reshape(c->g, x, c->layer->out.size, (size_t)c->layer->out.dims) : x;
}

static const char *add_pad(const struct call *c) {
    static const char *const modes[] = {
        [PAD_CONSTANT] = "constant", [PAD_REFLECT] = "reflect", [PAD_REPLICATE] = "edge", [PAD_CIRCULAR] = "wrap"};
    size_t dims = (size_t)c->layer->in.dims + 1;
    const size_t *sides = c->op->pads;
    int64_t pads[2 * (MAX_DIMS + 1)] = {0};
    struct text attributes = {0};
    pads[dims - 1] = (int64_t)sides[0], pads[2 * dims - 1] = (int64_t)sides[1];
    if (dims > 2) pads[dims - 2] = (int64_t)sides[2], pads[2 * dims - 2] = (int64_t)sides[3];
    onnx_string(&attributes, "mode", modes[c->op->pad.mode]);
    const char *inputs[] = {c->x, onnx_numbers(c->g, pads, 2 * dims), onnx_scalar(c->g, c->op->pad.value)};
    return onnx_node(c->g, "Pad", inputs, c->op->pad.mode == PAD_CONSTANT ? 3 : 2, &attributes);
}

static const char *reduction(const struct call *c, const char *type) {
    struct text attributes = {0};
    const int64_t axis = c->op->dimension + 1;
    onnx_int(&attributes, "keepdims", c->layer->out.dims == c->layer->in.dims);
    const char *inputs[] = {c->x, onnx_numbers(c->g, &axis, 1)};
    return onnx_node(c->g, type, inputs, 2, &attributes);
}

static const char *add_mean(const struct call *c) { return reduction(c, "ReduceMean"); }
static const char *add_maximum(const struct call *c) { return reduction(c, "ReduceMax"); }

static const char *add_matrix_product(const struct call *c) {
    return onnx_node2(c->g, "MatMul", c->inputs[0], c->inputs[1]);
}

static const char *add_recurrent(const struct call *c) { return onnx_recurrent(c->g, c->layer, c->op, c->x); }

static const char *(*const writers[OPERATION_KINDS])(const struct call *c) = {
    [OPERATION_IDENTITY] = same,
    [OPERATION_REORDER] = same,
    [OPERATION_LINEAR] = add_linear,
    [OPERATION_ACTIVATION] = add_activation,
    [OPERATION_LEAKY_RELU] = add_leaky_relu,
    [OPERATION_ELU] = add_elu,
    [OPERATION_CONVOLUTION] = add_convolution,
    [OPERATION_CONV_TRANSPOSE] = add_convolution_transpose,
    [OPERATION_MAX_POOL] = add_max_pool,
    [OPERATION_AVERAGE_POOL] = add_average_pool,
    [OPERATION_BATCH_NORM] = add_batch_norm,
    [OPERATION_GROUP_NORM] = add_group_norm,
    [OPERATION_LAYER_NORM] = add_layer_norm,
    [OPERATION_RMS_NORM] = add_rms_norm,
    [OPERATION_SOFTMAX] = add_softmax,
    [OPERATION_LOG_SOFTMAX] = add_log_softmax,
    [OPERATION_PRELU] = add_prelu,
    [OPERATION_SCALE] = add_scale,
    [OPERATION_EMBEDDING] = add_embedding,
    [OPERATION_EMBEDDING_BAG] = add_embedding_bag,
    [OPERATION_CLASS_TOKEN] = add_class_token,
    [OPERATION_ADD_POSITIONS] = add_positions,
    [OPERATION_ATTENTION] = add_attention,
    [OPERATION_ATTENTION_CORE] = add_core,
    [OPERATION_CONCAT] = add_concat,
    [OPERATION_SLICE] = add_slice,
    [OPERATION_MEAN] = add_mean,
    [OPERATION_MULTIPLY] = add_product,
    [OPERATION_UPSAMPLE] = add_upsample,
    [OPERATION_PERMUTE] = add_permutation,
    [OPERATION_PAD] = add_pad,
    [OPERATION_MAXIMUM] = add_maximum,
    [OPERATION_MATMUL] = add_matrix_product,
    [OPERATION_UNFOLD_DEPTH] = same,
    [OPERATION_ROTATE] = add_rotation,
    [OPERATION_RECURRENT] = add_recurrent,
};

const char *onnx_operation(struct onnx_graph *g, const struct layer *layer, const struct operation *op,
                           const char *const *inputs) {
    const char *y = writers[op->kind](&(struct call){g, layer, op, inputs[0], inputs});
    return op->has_relu ? onnx_node1(g, "Relu", y, NULL) : y;
}
