/* Layers of tokens and positions as nodes of ONNX, and the lengths of rows. */
#include <math.h>

#include "export/onnx_operations.h"

/* Over dimension 1, which the result does not have. */
static const char *reduce(struct onnx_graph *g, const char *op, const char *x) {
    struct text attributes = {0};
    onnx_int(&attributes, "keepdims", 0);
    return onnx_node(g, op, (const char *const[]){x, onnx_numbers(g, (const int64_t[]){1}, 1)}, 2, &attributes);
}

/* ---- rows of different lengths ---- */

/* The numbers [first, first + count): (count) */
static const char *range(struct onnx_graph *g, int64_t first, int64_t count) {
    int64_t *values = arena_alloc(g->arena, (size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = first + i;
    return onnx_numbers(g, values, (size_t)count);
}

static void set_lengths(const struct onnx_call *c, const char *lengths) {
    c->g->lengths[c->op->sets_lengths - 1] = lengths;
}

static bool are_lengths_read(const struct onnx_call *c) {
    return c->op->sets_lengths && c->g->m->reads_lengths[c->op->sets_lengths - 1];
}

/* The positions up to the last one that is not the padding, at least 1. [tokens]: int64 (batch, positions) */
static const char *lengths_of_tokens(const struct onnx_call *c, const char *tokens) {
    struct onnx_graph *g = c->g;
    const int64_t zero = 0, one = 1, padding = c->op->padding;
    const char *is_padding = onnx_node2(g, "Equal", tokens, onnx_numbers(g, &padding, 1));
    const char *ends = onnx_where(g, is_padding, onnx_numbers(g, &zero, 1), range(g, 1, c->layer->in.size[0]));
    return onnx_node2(g, "Max", reduce(g, "ReduceMax", ends), onnx_numbers(g, &one, 1));
}

/* The second input has one element; values beyond the positions count as the nearest one. */
static const char *add_sequence_lengths(const struct onnx_call *c) {
    struct onnx_graph *g = c->g;
    const int64_t flat = -1, one = 1, positions = c->layer->out.size[0];
    if (!are_lengths_read(c)) return c->x;
    const char *given = onnx_cast(g, onnx_node2(g, "Reshape", c->inputs[1], onnx_numbers(g, &flat, 1)), ONNX_INT64);
    const char *limited = onnx_node2(g, "Min", given, onnx_numbers(g, &positions, 1));
    set_lengths(c, onnx_node2(g, "Max", limited, onnx_numbers(g, &one, 1)));
    return c->x;
}

const char *onnx_lengths(const struct onnx_graph *g, size_t number) { return g->lengths[number - 1]; }

const char *onnx_real_positions(struct onnx_graph *g, size_t number, int64_t positions) {
    const int64_t column[] = {-1, 1};
    const char **known = &g->real_positions[number - 1];
    if (*known) return *known;
    const char *lengths = onnx_node2(g, "Reshape", onnx_lengths(g, number), onnx_numbers(g, column, 2));
    *known = onnx_node2(g, "Less", range(g, 0, positions), lengths);
    return *known;
}

/* ---- tokens ---- */

static const char *tokens_of(const struct onnx_call *c) {
    return c->layer->in.is_tokens ? c->x : onnx_cast(c->g, c->x, ONNX_INT64);
}

static const char *add_embedding(const struct onnx_call *c) {
    const char *tokens = tokens_of(c);
    if (are_lengths_read(c)) set_lengths(c, lengths_of_tokens(c, tokens));
    return onnx_node2(c->g, "Gather", onnx_param(c->g, c->op->weight), tokens);
}

/* The number of tokens that are not the padding, as float (batch, 1) */
static const char *counted_tokens(struct onnx_graph *g, const char *is_padding) {
    const char *ones = onnx_where(g, is_padding, onnx_scalar(g, 0), onnx_scalar(g, 1));
    return reduce(g, "ReduceSum", ones);
}

/* Vectors of the padding count as 0, or as below all others; a bag without tokens is 0. */
static const char *add_embedding_bag(const struct onnx_call *c) {
    static const char *const reductions[] = {
        [BAG_MEAN] = "ReduceMean", [BAG_SUM] = "ReduceSum", [BAG_MAX] = "ReduceMax"};
    struct onnx_graph *g = c->g;
    const int64_t padding = c->op->padding, axis = 2;
    const char *tokens = tokens_of(c), *reduction = reductions[c->op->bag];
    const char *x = onnx_node2(g, "Gather", onnx_param(g, c->op->weight), tokens);
    if (padding < 0) return reduce(g, reduction, x);
    const char *is_padding = onnx_node2(g, "Equal", tokens, onnx_numbers(g, &padding, 1));
    is_padding = onnx_node2(g, "Unsqueeze", is_padding, onnx_numbers(g, &axis, 1));
    x = onnx_where(g, is_padding, onnx_scalar(g, c->op->bag == BAG_MAX ? -INFINITY : 0), x);
    if (c->op->bag == BAG_SUM) return reduce(g, reduction, x);
    const char *count = counted_tokens(g, is_padding);
    if (c->op->bag == BAG_MEAN)
        return onnx_node2(g, "Div", reduce(g, "ReduceSum", x), onnx_node2(g, "Max", count, onnx_scalar(g, 1)));
    const char *zero = onnx_scalar(g, 0);
    return onnx_where(g, onnx_node2(g, "Equal", count, zero), zero, reduce(g, reduction, x));
}

/* The token is repeated for each row of the batch. */
static const char *add_class_token(const struct onnx_call *c) {
    struct text first = {0}, axis = {0}, second = {0};
    onnx_int(&first, "start", 0);
    onnx_int(&first, "end", 1);
    onnx_int(&axis, "axis", 0);
    onnx_int(&second, "axis", 1);
    const char *batch = onnx_node1(c->g, "Shape", c->x, &first);
    const char *sizes[] = {batch, onnx_numbers(c->g, (const int64_t[]){1, onnx_last(&c->layer->in)}, 2)};
    const char *shape = onnx_node(c->g, "Concat", sizes, 2, &axis);
    const char *parts[] = {onnx_node2(c->g, "Expand", onnx_param(c->g, c->op->weight), shape), c->x};
    return onnx_node(c->g, "Concat", parts, 2, &second);
}

static const char *add_positions(const struct onnx_call *c) {
    const int64_t *shape = c->layer->in.size; /* the first of the weight's rows */
    bool are_all = c->g->m->model->params.items[c->op->weight].shape[0] == shape[0];
    const char *rows = are_all ? onnx_param(c->g, c->op->weight)
                               : onnx_tensor(c->g, NULL, ONNX_FLOAT, c->g->m->params[c->op->weight], 2, shape);
    return onnx_node2(c->g, "Add", c->x, rows);
}

onnx_writer *const onnx_sequences[OPERATION_KINDS] = {
    [OPERATION_EMBEDDING] = add_embedding,
    [OPERATION_EMBEDDING_BAG] = add_embedding_bag,
    [OPERATION_SEQUENCE_LENGTHS] = add_sequence_lengths,
    [OPERATION_CLASS_TOKEN] = add_class_token,
    [OPERATION_ADD_POSITIONS] = add_positions,
    [OPERATION_RECURRENT] = onnx_recurrent,
};
