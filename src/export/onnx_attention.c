/* Attention and rotary positions as nodes of ONNX. Keys that are padding get no part of a softmax. */
#include <math.h>

#include "device/sequence.h"
#include "export/onnx_operations.h"

/* -infinity for the keys after each query: (tokens, tokens) */
static const char *causal_mask(struct onnx_graph *g, size_t tokens) {
    float *mask = arena_alloc(g->arena, tokens * tokens * sizeof *mask);
    for (size_t i = 0; i < tokens; i++)
        for (size_t j = i + 1; j < tokens; j++) mask[i * tokens + j] = -INFINITY;
    const int64_t shape[] = {(int64_t)tokens, (int64_t)tokens};
    return onnx_tensor(g, NULL, ONNX_FLOAT, mask, 2, shape);
}

/* Columns from [first] on of [x], of [tokens] positions, as (batch, heads, tokens, size), each of [heads] heads as
 * often as there are queries for it. */
static const char *heads_of(const struct onnx_call *c, const char *x, int64_t tokens, int64_t first, int64_t heads) {
    struct onnx_graph *g = c->g;
    int64_t queries = (int64_t)c->op->heads, size = c->layer->out.size[1] / queries;
    x = onnx_slice(g, x, -1, first * size, (first + heads) * size);
    x = onnx_transpose(g, onnx_reshape(g, x, (const int64_t[]){tokens, heads, size}, 3), (const int64_t[]){0, 2, 1, 3},
                       4);
    if (heads == queries) return x;
    int64_t *indices = arena_alloc(g->arena, (size_t)queries * sizeof *indices);
    for (int64_t h = 0; h < queries; h++) indices[h] = h / (queries / heads);
    return onnx_gather(g, x, onnx_numbers(g, indices, (size_t)queries), 1);
}

/* Scores of keys that are padding become -infinity. */
static const char *without_padding(const struct onnx_call *c, const char *scores, int64_t keys) {
    if (!c->op->lengths) return scores;
    const char *are_real =
        onnx_reshape(c->g, onnx_real_positions(c->g, c->op->lengths, keys), (const int64_t[]){1, 1, keys}, 3);
    return onnx_where(c->g, are_real, scores, onnx_scalar(c->g, -INFINITY));
}

/* softmax(q k^T / sqrt(size)) v of each head: (batch, tokens, width). [k], [v]: of [keys] positions */
static const char *attend(const struct onnx_call *c, const char *q, const char *k, const char *v, int64_t keys) {
    struct onnx_graph *g = c->g;
    int64_t tokens = c->layer->out.size[0], width = c->layer->out.size[1];
    const char *scale = onnx_scalar(g, 1 / sqrtf((float)(width / (int64_t)c->op->heads)));
    const char *products = onnx_node2(g, "MatMul", q, onnx_transpose(g, k, (const int64_t[]){0, 1, 3, 2}, 4));
    const char *scores = onnx_node2(g, "Mul", products, scale);
    if (c->op->is_causal) scores = onnx_node2(g, "Add", scores, causal_mask(g, (size_t)tokens));
    const char *y = onnx_node2(g, "MatMul", onnx_softmax(g, without_padding(c, scores, keys)), v);
    return onnx_reshape(g, onnx_transpose(g, y, (const int64_t[]){0, 2, 1, 3}, 4), (const int64_t[]){tokens, width}, 2);
}

/* qkv (tokens, (heads + 2 kv_heads) * size) */
static const char *attend_to_itself(const struct onnx_call *c, const char *qkv) {
    int64_t tokens = c->layer->out.size[0], heads = (int64_t)c->op->heads, kv_heads = (int64_t)c->op->kv_heads;
    const char *q = heads_of(c, qkv, tokens, 0, heads), *k = heads_of(c, qkv, tokens, heads, kv_heads);
    const char *v = heads_of(c, qkv, tokens, heads + kv_heads, kv_heads);
    return attend(c, q, k, v, tokens);
}

static const char *add_core(const struct onnx_call *c) { return attend_to_itself(c, c->x); }

static const char *add_attention(const struct onnx_call *c) {
    const char *heads = attend_to_itself(c, onnx_linear(c->g, c->x, c->op->weight, c->op->bias, 2));
    return onnx_linear(c->g, heads, c->op->out_weight, c->op->out_bias, 2);
}

/* x w^T + b of elements [first, end) of the output */
static const char *projection(const struct onnx_call *c, const char *x, int64_t first, int64_t end) {
    struct onnx_graph *g = c->g;
    const char *w = onnx_slice(g, onnx_param(g, c->op->weight), 0, first, end);
    const char *y = onnx_node2(g, "MatMul", x, onnx_transpose(g, w, (const int64_t[]){1, 0}, 2));
    if (c->op->bias == OPERATION_NO_PARAM) return y;
    return onnx_node2(g, "Add", y, onnx_slice(g, onnx_param(g, c->op->bias), 0, first, end));
}

static const char *add_cross_attention(const struct onnx_call *c) {
    int64_t tokens = c->layer->out.size[0], width = c->layer->out.size[1], keys = c->layer->ins[1].size[0];
    int64_t heads = (int64_t)c->op->heads;
    const char *q = projection(c, c->inputs[0], 0, width), *kv = projection(c, c->inputs[1], width, 3 * width);
    const char *k = heads_of(c, kv, keys, 0, heads), *v = heads_of(c, kv, keys, heads, heads);
    const char *y = attend(c, heads_of(c, q, tokens, 0, heads), k, v, keys);
    return onnx_linear(c->g, y, c->op->out_weight, c->op->out_bias, 2);
}

/* y = x * cosines + (the other one of its pair) * sines, both (tokens, features); the sines of the first of a pair are
 * negative; features that are not rotated have cosine 1 and sine 0 */
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
    const char *other = onnx_gather(g, c->x, onnx_numbers(g, others, features), -1);
    const char *own = onnx_node2(g, "Mul", c->x, onnx_tensor(g, NULL, ONNX_FLOAT, cosines, 2, shape));
    return onnx_node2(g, "Add", own, onnx_node2(g, "Mul", other, onnx_tensor(g, NULL, ONNX_FLOAT, sines, 2, shape)));
}

onnx_writer *const onnx_attention[OPERATION_KINDS] = {
    [OPERATION_ATTENTION] = add_attention,
    [OPERATION_ATTENTION_CORE] = add_core,
    [OPERATION_CROSS_ATTENTION] = add_cross_attention,
    [OPERATION_ROTATE] = add_rotation,
};
