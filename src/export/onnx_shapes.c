/* Joins, parts, reductions and other shapes as nodes of ONNX. */
#include "export/onnx_operations.h"

static const char *add_concat(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", c->op->dimension + 1);
    return onnx_node(c->g, "Concat", c->inputs, c->layer->in_count, &attributes);
}

static const char *add_slice(const struct onnx_call *c) {
    const int64_t start = (int64_t)c->op->start, end = (int64_t)c->op->end, axis = c->op->dimension + 1;
    const char *inputs[] = {c->x, onnx_numbers(c->g, &start, 1), onnx_numbers(c->g, &end, 1),
                            onnx_numbers(c->g, &axis, 1)};
    return onnx_node(c->g, "Slice", inputs, 4, NULL);
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
    const char *inputs[] = {c->x, onnx_numbers(c->g, pads, 2 * dims), onnx_scalar(c->g, c->op->pad.value)};
    return onnx_node(c->g, "Pad", inputs, c->op->pad.mode == PAD_CONSTANT ? 3 : 2, &attributes);
}

static const char *reduction(const struct onnx_call *c, const char *type) {
    struct text attributes = {0};
    const int64_t axis = c->op->dimension + 1;
    onnx_int(&attributes, "keepdims", c->layer->out.dims == c->layer->in.dims);
    const char *inputs[] = {c->x, onnx_numbers(c->g, &axis, 1)};
    return onnx_node(c->g, type, inputs, 2, &attributes);
}

static const char *add_mean(const struct onnx_call *c) { return reduction(c, "ReduceMean"); }
static const char *add_maximum(const struct onnx_call *c) { return reduction(c, "ReduceMax"); }

static const char *add_matrix_product(const struct onnx_call *c) {
    return onnx_node2(c->g, "MatMul", c->inputs[0], c->inputs[1]);
}

onnx_writer *const onnx_shapes[OPERATION_KINDS] = {
    [OPERATION_CONCAT] = add_concat,    [OPERATION_SLICE] = add_slice,           [OPERATION_MEAN] = add_mean,
    [OPERATION_MULTIPLY] = add_product, [OPERATION_PERMUTE] = add_permutation,   [OPERATION_PAD] = add_pad,
    [OPERATION_MAXIMUM] = add_maximum,  [OPERATION_MATMUL] = add_matrix_product,
};
