/* Joins, parts, reductions and other shapes as nodes of ONNX. */
#include "export/onnx_operations.h"

static const char *add_concat(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", c->op->dimension + 1);
    return onnx_node(c->g, "Concat", c->inputs, c->layer->in_count, &attributes);
}

static const char *add_slice(const struct onnx_call *c) {
    return onnx_slice(c->g, c->x, c->op->dimension + 1, (int64_t)c->op->start, (int64_t)c->op->end);
}

static const char *add_product(const struct onnx_call *c) {
    return onnx_node2(c->g, "Mul", c->inputs[0], c->inputs[1]);
}

/* Split into factors, transposed, and joined again. */
static const char *add_permutation(const struct onnx_call *c) {
    size_t dims = c->op->split.dims;
    bool is_split = dims != (size_t)c->layer->in.dims;
    int64_t order[PERMUTATION_DIMS + 1] = {0};
    for (size_t d = 0; d < dims; d++) order[d + 1] = c->op->split.order[d] + 1;
    const char *x = is_split ? onnx_reshape(c->g, c->x, c->op->split.size, dims) : c->x;
    x = onnx_transpose(c->g, x, order, dims + 1);
    return is_split ? onnx_reshape(c->g, x, c->layer->out.size, (size_t)c->layer->out.dims) : x;
}

static const char *add_pad(const struct onnx_call *c) {
    static const char *const modes[] = {
        [PAD_CONSTANT] = "constant", [PAD_REFLECT] = "reflect", [PAD_REPLICATE] = "edge", [PAD_CIRCULAR] = "wrap"};
    size_t dims = (size_t)c->layer->in.dims + 1;
    const size_t *sides = c->op->pads;
    int64_t pads[2 * (MAX_DIMS + 1)] = {0};
    struct text attributes = {0};
    pads[dims - 1] = (int64_t)sides[0], pads[2 * dims - 1] = (int64_t)sides[1];
    if (dims > 2) pads[dims - 2] = (int64_t)sides[2], pads[2 * dims - 2] = (int64_t)sides[3];
    onnx_string(&attributes, "mode", modes[c->op->pad.mode]);
    const char *inputs[3] = {c->x, onnx_numbers(c->g, pads, 2 * dims)};
    bool is_constant = c->op->pad.mode == PAD_CONSTANT;
    if (is_constant) inputs[2] = onnx_scalar(c->g, c->op->pad.value);
    return onnx_node(c->g, "Pad", inputs, is_constant ? 3 : 2, &attributes);
}

static const char *reduction(const struct onnx_call *c, const char *type) {
    struct text attributes = {0};
    const int64_t axis = c->op->dimension + 1;
    onnx_int(&attributes, "keepdims", c->layer->out.dims == c->layer->in.dims);
    const char *inputs[] = {c->x, onnx_numbers(c->g, &axis, 1)};
    return onnx_node(c->g, type, inputs, 2, &attributes);
}

/* [x], whose elements are one for each row of the batch or position of it, with dimensions of 1 behind them. */
static const char *with_dims(const struct onnx_call *c, const char *x, int64_t positions, int dims) {
    int64_t shape[MAX_DIMS] = {positions};
    for (int d = 1; d < dims; d++) shape[d] = 1;
    return onnx_reshape(c->g, x, shape, (size_t)dims);
}

/* The reduction of the positions before the end of each row; the others count as [padding]. */
static const char *reduction_of_real(const struct onnx_call *c, const char *type, float padding) {
    const struct shape *in = &c->layer->in;
    const char *are_real = onnx_real_positions(c->g, c->op->lengths, in->size[0]);
    struct onnx_call real = *c;
    real.x = onnx_where(c->g, with_dims(c, are_real, in->size[0], in->dims), c->x, onnx_scalar(c->g, padding));
    return reduction(&real, type);
}

static const char *mean_of_real(const struct onnx_call *c) {
    struct onnx_graph *g = c->g;
    const char *total = reduction_of_real(c, "ReduceSum", 0);
    const char *lengths = onnx_cast(g, onnx_lengths(g, c->op->lengths), ONNX_FLOAT);
    return onnx_node2(g, "Div", total, with_dims(c, lengths, 1, c->layer->out.dims));
}

static const char *add_mean(const struct onnx_call *c) {
    return c->op->lengths ? mean_of_real(c) : reduction(c, "ReduceMean");
}

static const char *add_maximum(const struct onnx_call *c) {
    return c->op->lengths ? reduction_of_real(c, "ReduceMax", -INFINITY) : reduction(c, "ReduceMax");
}

static const char *add_matrix_product(const struct onnx_call *c) {
    return onnx_node2(c->g, "MatMul", c->inputs[0], c->inputs[1]);
}

onnx_writer *const onnx_shapes[OPERATION_KINDS] = {
    [OPERATION_CONCAT] = add_concat,    [OPERATION_SLICE] = add_slice,           [OPERATION_MEAN] = add_mean,
    [OPERATION_MULTIPLY] = add_product, [OPERATION_PERMUTE] = add_permutation,   [OPERATION_PAD] = add_pad,
    [OPERATION_MAXIMUM] = add_maximum,  [OPERATION_MATMUL] = add_matrix_product,
};
