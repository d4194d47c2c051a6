/* Norms and softmax as nodes of ONNX, and factors of channels. */
#include "export/onnx_operations.h"

static const char *constant_vector(struct onnx_graph *g, size_t size, float value) {
    float *values = arena_alloc(g->arena, size * sizeof *values);
    for (size_t i = 0; i < size; i++) values[i] = value;
    return onnx_tensor(g, NULL, ONNX_FLOAT, values, 1, (const int64_t[]){(int64_t)size});
}

static const char *param_or(struct onnx_graph *g, size_t index, size_t size, float value) {
    return index == OPERATION_NO_PARAM ? constant_vector(g, size, value) : onnx_param(g, index);
}

static const char *add_batch_norm(const struct onnx_call *c) {
    size_t channels = (size_t)c->layer->in.size[0];
    struct text attributes = {0};
    onnx_float(&attributes, "epsilon", c->op->eps);
    const char *inputs[] = {c->x, param_or(c->g, c->op->weight, channels, 1), param_or(c->g, c->op->bias, channels, 0),
                            onnx_buffer(c->g, c->op->mean), onnx_buffer(c->g, c->op->variance)};
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
static const char *per_channel(const struct onnx_call *c, size_t index) {
    int64_t shape[MAX_DIMS];
    for (int d = 0; d < c->layer->in.dims; d++) shape[d] = d ? 1 : c->layer->in.size[0];
    return onnx_node2(c->g, "Reshape", onnx_param(c->g, index), onnx_numbers(c->g, shape, (size_t)c->layer->in.dims));
}

static const char *add_group_norm(const struct onnx_call *c) {
    const char *x = onnx_reshape(c->g, c->x, (const int64_t[]){(int64_t)c->op->groups, -1}, 2);
    const char *centered = onnx_node2(c->g, "Sub", x, mean_of_last(c->g, x));
    const char *y = onnx_reshape(c->g, over_root_mean_square(c->g, centered, c->op->eps), c->layer->in.size,
                                 (size_t)c->layer->in.dims);
    if (c->op->weight == OPERATION_NO_PARAM) return y;
    y = onnx_node2(c->g, "Mul", y, per_channel(c, c->op->weight));
    return onnx_node2(c->g, "Add", y, per_channel(c, c->op->bias));
}

static const char *add_layer_norm(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    onnx_float(&attributes, "epsilon", c->op->eps);
    const char *inputs[3] = {c->x, param_or(c->g, c->op->weight, (size_t)onnx_last(&c->layer->in), 1)};
    if (c->op->bias != OPERATION_NO_PARAM) inputs[2] = onnx_param(c->g, c->op->bias);
    return onnx_node(c->g, "LayerNormalization", inputs, inputs[2] ? 3 : 2, &attributes);
}

static const char *add_rms_norm(const struct onnx_call *c) {
    const char *y = over_root_mean_square(c->g, c->x, c->op->eps);
    return c->op->weight == OPERATION_NO_PARAM ? y : onnx_node2(c->g, "Mul", y, onnx_param(c->g, c->op->weight));
}

static const char *add_scale(const struct onnx_call *c) {
    bool is_last = c->op->dimension == c->layer->in.dims - 1;
    return onnx_node2(c->g, "Mul", c->x, is_last ? onnx_param(c->g, c->op->weight) : per_channel(c, c->op->weight));
}

/* The slopes of channels get a dimension of 1 for each one after them. */
static const char *add_prelu(const struct onnx_call *c) {
    const char *slopes = onnx_param(c->g, c->op->weight);
    if (c->layer->in.dims > 1) {
        int64_t shape[MAX_DIMS];
        for (int d = 0; d < c->layer->in.dims; d++) shape[d] = d ? 1 : -1;
        slopes = onnx_node2(c->g, "Reshape", slopes, onnx_numbers(c->g, shape, (size_t)c->layer->in.dims));
    }
    return onnx_node2(c->g, "PRelu", c->x, slopes);
}

const char *onnx_softmax(struct onnx_graph *g, const char *x) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    return onnx_node1(g, "Softmax", x, &attributes);
}

static const char *add_softmax(const struct onnx_call *c) { return onnx_softmax(c->g, c->x); }

static const char *add_log_softmax(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    return onnx_node1(c->g, "LogSoftmax", c->x, &attributes);
}

onnx_writer *const onnx_norms[OPERATION_KINDS] = {
    [OPERATION_BATCH_NORM] = add_batch_norm, [OPERATION_GROUP_NORM] = add_group_norm,
    [OPERATION_LAYER_NORM] = add_layer_norm, [OPERATION_RMS_NORM] = add_rms_norm,
    [OPERATION_SOFTMAX] = add_softmax,       [OPERATION_LOG_SOFTMAX] = add_log_softmax,
    [OPERATION_PRELU] = add_prelu,           [OPERATION_SCALE] = add_scale,
};
