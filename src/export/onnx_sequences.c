/* Layers of tokens and positions as nodes of ONNX. */
#include <math.h>
#include <stdlib.h>

#include "device/sequence.h"
#include "export/onnx_operations.h"

static const char *add_embedding(const struct onnx_call *c) {
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
static const char *counted_tokens(const struct onnx_call *c) {
    const char *is_padding = onnx_node2(c->g, "Equal", c->x, onnx_numbers(c->g, (const int64_t[]){c->op->padding}, 1));
    const char *ones = onnx_node2(c->g, "Sub", onnx_scalar(c->g, 1), onnx_cast(c->g, is_padding, ONNX_FLOAT));
    return onnx_node2(c->g, "Unsqueeze", ones, onnx_numbers(c->g, (const int64_t[]){2}, 1));
}

/* Vectors of the padding count as 0, or as far below all others; a bag without tokens is 0. */
static const char *add_embedding_bag(const struct onnx_call *c) {
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
static const char *heads_of(const struct onnx_call *c, const char *qkv, int64_t first, int64_t heads) {
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
static const char *attend(const struct onnx_call *c, const char *qkv) {
    struct onnx_graph *g = c->g;
    int64_t tokens = c->layer->out.size[0], width = c->layer->out.size[1];
    int64_t heads = (int64_t)c->op->heads, kv_heads = (int64_t)c->op->kv_heads;
    const char *queries = heads_of(c, qkv, 0, heads), *values = heads_of(c, qkv, heads + kv_heads, kv_heads);
    const char *keys = onnx_transpose(g, heads_of(c, qkv, heads, kv_heads), (const int64_t[]){0, 1, 3, 2}, 4);
    const char *scale = onnx_scalar(g, 1 / sqrtf((float)(width / heads)));
    const char *scores = onnx_node2(g, "Mul", onnx_node2(g, "MatMul", queries, keys), scale);
    if (c->op->is_causal) scores = onnx_node2(g, "Add", scores, causal_mask(g, (size_t)tokens));
    const char *y = onnx_node2(g, "MatMul", onnx_softmax(g, scores), values);
    return onnx_reshape(g, onnx_transpose(g, y, (const int64_t[]){0, 2, 1, 3}, 4), (const int64_t[]){tokens, width}, 2);
}

static const char *add_core(const struct onnx_call *c) { return attend(c, c->x); }

static const char *add_attention(const struct onnx_call *c) {
    const char *heads = attend(c, onnx_linear(c->g, c->x, c->op->weight, c->op->bias, 2));
    return onnx_linear(c->g, heads, c->op->out_weight, c->op->out_bias, 2);
}

/* y = x * cosines + (the other element of each pair) * sines, with sines of both signs; 1 and 0 for other features */
static const char *add_rotation(const struct onnx_call *c) {
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

onnx_writer *const onnx_sequences[OPERATION_KINDS] = {
    [OPERATION_EMBEDDING] = add_embedding,     [OPERATION_EMBEDDING_BAG] = add_embedding_bag,
    [OPERATION_CLASS_TOKEN] = add_class_token, [OPERATION_ADD_POSITIONS] = add_positions,
    [OPERATION_ATTENTION] = add_attention,     [OPERATION_ATTENTION_CORE] = add_core,
    [OPERATION_ROTATE] = add_rotation,         [OPERATION_RECURRENT] = onnx_recurrent,
};
