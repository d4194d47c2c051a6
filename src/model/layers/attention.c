/* attention: multi-head self-attention (torch.nn.MultiheadAttention with one input), and scaled dot product attention
 * without projections, for models with linear layers for them. Scores are never stored (device/sequence.h). */

#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "device/sequence.h"
#include "model/init.h"
#include "model/layer.h"
#include "model/layers/layers.h"

struct attention_config {
    int64_t heads, kv_heads; /* kv_heads: scaled_dot_product_attention only */
    bool is_causal;          /* not of cross_attention */
    double dropout;
    bool bias; /* of the projections; not of scaled_dot_product_attention */
    int mask;  /* enum attention_mask; cross_attention only */
};

/* The parameters of a layer with an output of (T, C): in_proj_weight (3C, C), in_proj_bias (3C), out_proj.weight (C,
 * C), out_proj.bias (C). */
enum { IN_WEIGHT, IN_BIAS, OUT_WEIGHT, OUT_BIAS };

#define HEADS                                                                                                          \
    SCHEMA_ROW(INT, struct attention_config, heads, .flags = SCHEMA_REQUIRED, .min = 1, .max = 1 << 16,                \
               .doc = "Number of heads (PyTorch's num_heads); must divide the features.")
#define CAUSAL                                                                                                         \
    {                                                                                                                  \
        .key = "causal", .type = SCHEMA_BOOL, .offset = offsetof(struct attention_config, is_causal),                  \
        .fallback = "false", .doc = "Whether a position attends only to itself and to earlier positions."              \
    }
#define DROPOUT                                                                                                        \
    SCHEMA_ROW(REAL, struct attention_config, dropout, .fallback = "0", .min = 0, .max = 1,                            \
               .doc = "Probability of dropout of the attention weights, the softmaxes, in training.")
#define BIAS                                                                                                           \
    SCHEMA_ROW(BOOL, struct attention_config, bias, .fallback = "true", .doc = "Whether the projections have biases.")

static const struct schema_row attention_rows[] = {
    HEADS, CAUSAL, DROPOUT, BIAS, {0},
};
static const struct schema_row core_rows[] = {
    HEADS,
    SCHEMA_KEY(INT, "num_kv_heads", struct attention_config, kv_heads, .fallback = "null", .min = 1, .max = 1 << 16,
               .doc = "Heads of keys and of values, each shared by heads / num_kv_heads neighbouring heads of queries "
                      "(grouped queries; PyTorch's enable_gqa). null: as many as `heads`."),
    CAUSAL,
    DROPOUT,
    {0},
};
static const struct schema attention_schema =
    SCHEMA("model.layers.attention", struct attention_config, .rows = attention_rows);
static const struct schema core_schema =
    SCHEMA("model.layers.scaled_dot_product_attention", struct attention_config, .rows = core_rows);

static const struct attention_config *config_of(const struct layer *layer) { return layer->config; }
static size_t tokens_of(const struct layer *layer) { return (size_t)layer->out.size[0]; }
static size_t features_of(const struct layer *layer) { return (size_t)layer->out.size[1]; }

static size_t head_size_of(const struct layer *layer) { return features_of(layer) / (size_t)config_of(layer)->heads; }

/* Rows of the mask: one for each query, or one for all. */
static size_t mask_queries(const struct layer *layer) {
    return layer->ins[2].dims == 2 ? (size_t)layer->ins[2].size[0] : 1;
}

/* [x]: the inputs; the keys are those of the second one, and the third is a mask. [key]: filled, because the shape
 * refers to it. */
static struct attention_shape shape_of(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                                       struct draw_key *key) {
    const struct attention_config *c = config_of(layer);
    const struct shape *keys = &layer->ins[layer->in_count > 1 ? 1 : 0];
    struct attention_shape shape = {.rows = pass->rows,
                                    .tokens = tokens_of(layer),
                                    .heads = (size_t)c->heads,
                                    .head_size = head_size_of(layer),
                                    .is_causal = c->is_causal,
                                    .lengths = pass_lengths(pass, keys),
                                    .dropout_p = (float)c->dropout,
                                    .mask_kind = (enum attention_mask)c->mask};
    if (layer->in_count > 1) shape.keys = (size_t)keys->size[0];
    if (layer->in_count > 2) shape.mask = floats(&x[2]), shape.mask_queries = mask_queries(layer);
    *key = pass->draws;
    key->stream = layer->stream;
    if (pass->is_training && c->dropout > 0) shape.dropout = key;
    return shape;
}

/* ---- one position after the other ---- */

/* The queries of a group are the rows of two products: with the keys of its head, and of their softmax with the values.
 * Keys and values of a head are stored one position after the other. */

struct attention_cache {
    struct head_groups groups;
    float *keys, *values; /* (kv_heads, positions, head_size) */
    float *queries;       /* (heads * head_size) of the position, scaled */
    float *scores;        /* (heads / kv_heads, positions) */
    float *scales;        /* (heads * head_size) times 1 / sqrt(head_size) */
};

static status alloc_all(struct attention_cache *c, struct device *device) {
    const struct head_groups *g = &c->groups;
    size_t stored = g->kv_heads * g->positions * g->head_size, features = g->heads * g->head_size;
    size_t scores = g->heads / g->kv_heads * g->positions;
    TRY(device_alloc(device, stored * sizeof *c->keys, "the keys of an attention", (void **)&c->keys));
    TRY(device_alloc(device, stored * sizeof *c->values, "the values of an attention", (void **)&c->values));
    TRY(device_alloc(device, features * sizeof *c->queries, "the queries of an attention", (void **)&c->queries));
    TRY(device_alloc(device, 2 * scores * sizeof *c->scores, "the scores of an attention", (void **)&c->scores));
    TRY(device_alloc(device, features * sizeof *c->scales, "the scale of an attention", (void **)&c->scales));
    TRY(device_map(device, (void **)&c->scales));
    for (size_t i = 0; i < features; i++) c->scales[i] = 1 / sqrtf((float)g->head_size);
    return device_unmap(device, (void **)&c->scales, true);
}

static void attention_cache_destroy(struct attention_cache *c, struct device *device) {
    if (!c) return;
    device_free(device, c->keys);
    device_free(device, c->values);
    device_free(device, c->queries);
    device_free(device, c->scores);
    device_free(device, c->scales);
    free(c);
}

static status attention_cache_create(struct device *device, const struct head_groups *groups,
                                     struct attention_cache **out) {
    struct attention_cache *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return status_memory("the cache of an attention");
    c->groups = *groups;
    status s = alloc_all(c, device);
    if (s) attention_cache_destroy(c, device);
    if (!s) *out = c;
    return s;
}

static void position_forward(struct attention_cache *c, struct device *device, size_t position, const float *qkv,
                             float *y) {
    const struct device_ops *ops = device_ops(device);
    const struct head_groups *g = &c->groups;
    size_t size = g->head_size, group = g->heads / g->kv_heads, count = position + 1;
    float *softmaxes = c->scores + group * g->positions;
    ops->multiply(device, qkv, c->scales, c->queries, g->heads * size);
    for (size_t h = 0; h < g->kv_heads; h++) {
        float *keys = c->keys + h * g->positions * size, *values = c->values + h * g->positions * size;
        const float *key = qkv + (g->heads + h) * size, *value = key + g->kv_heads * size;
        ops->copy(device, F32(key), F32(keys + position * size), size);
        ops->copy(device, F32(value), F32(values + position * size), size);
        ops->linear_forward(device, F32(c->queries + h * group * size), keys, NULL, false, F32(c->scores), group, size,
                            count);
        ops->sequence->softmax_forward(device, c->scores, softmaxes, group, count);
        ops->linear_backward_input(device, F32(softmaxes), values, F32(y + h * group * size), group, size, count);
    }
}

/* Stores the keys and values of the pass's positions, the first of which is at most the number of those stored, and
 * computes y (rows, heads * head_size) from qkv (rows, (heads + 2 kv_heads) * head_size). */
static void attention_cache_forward(struct attention_cache *c, const struct pass *pass, const float *qkv, float *y) {
    size_t features = c->groups.heads * c->groups.head_size, keys = c->groups.kv_heads * c->groups.head_size;
    for (size_t r = 0; r < pass->rows; r++)
        position_forward(c, pass->device, pass->position + r, qkv + r * (features + 2 * keys), y + r * features);
}

/* ---- self-attention ---- */

static status check_dims(const struct layer *layer) {
    if (layer->in.dims == 2) return OK;
    return status_usage("its input must be (positions, features), but is %s", shape_text(&layer->in).s);
}

/* Sets layer->out from an input of (T, parts * C). */
static status plan_shape(struct layer *layer, int64_t parts) {
    int64_t heads = config_of(layer)->heads;
    if (layer->in.size[1] % (heads * parts) != 0)
        return status_usage(parts == 1
                                ? "its input is %s: heads (%lld) must divide the features"
                                : "its input is %s: its features must be q, k and v, each a multiple of heads (%lld)",
                            shape_text(&layer->in).s, (long long)heads);
    layer->out = layer->in;
    layer->out.size[1] /= parts;
    return OK;
}

/* struct layer_type's check_device: limits the size of heads. */
static status attention_check_device(const struct layer *layer, const struct device_ops *ops) {
    size_t size = head_size_of(layer), max = ops->sequence->max_head_size;
    if (max == 0 || size <= max) return OK;
    return status_usage("a head has at most %zu features, got %zu: use more heads, or train.device: cpu", max, size);
}

static bool is_grouped(const struct layer *layer) {
    const struct attention_config *c = config_of(layer);
    return c->kv_heads != SCHEMA_NO_INT && c->kv_heads != c->heads;
}

/* Heads of keys and of values; a layer with projections has no key for them. */
static size_t kv_heads_of(const struct layer *layer) {
    const struct attention_config *c = config_of(layer);
    return (size_t)(c->kv_heads && is_grouped(layer) ? c->kv_heads : c->heads);
}

static struct head_groups groups_of(const struct layer *layer, size_t positions) {
    return (struct head_groups){.positions = positions,
                                .heads = (size_t)config_of(layer)->heads,
                                .kv_heads = kv_heads_of(layer),
                                .head_size = head_size_of(layer)};
}

/* With cached_positions: earlier positions do not depend on later ones. */
static status check_cache(const struct layer *layer) {
    if (!layer->cached_positions || config_of(layer)->is_causal) return OK;
    return status_usage("it needs all positions at once");
}

static status create_cache(struct layer *layer, struct device *device, size_t batch) {
    if (!layer->cached_positions) return OK;
    struct head_groups groups = groups_of(layer, layer->cached_positions);
    struct attention_cache *cache;
    TRY(attention_cache_create(device, &groups, &cache));
    layer->runtime = cache;
    return OK;
}

static void release_cache(struct layer *layer, struct device *device) {
    attention_cache_destroy(layer->runtime, device);
    layer->runtime = NULL;
}

/* Multiply-adds of one row: scores and weighted sums of values. A causal mask removes half. */
static size_t core_multiply_adds(const struct layer *layer) {
    size_t whole = 2 * tokens_of(layer) * tokens_of(layer) * features_of(layer);
    return config_of(layer)->is_causal ? whole / 2 : whole;
}

/* Sets layer->out from an input of (T, C + 2 kv_heads * head_size). */
static status plan_groups(struct layer *layer) {
    const struct attention_config *c = config_of(layer);
    if (c->heads % c->kv_heads != 0)
        return status_usage("num_kv_heads (%lld) must divide heads (%lld)", (long long)c->kv_heads,
                            (long long)c->heads);
    if (layer->in.size[1] % (c->heads + 2 * c->kv_heads) != 0)
        return status_new(
            STATUS_USAGE,
            "its input is %s: its features must be %lld heads of queries, %lld of keys and %lld of values",
            shape_text(&layer->in).s, (long long)c->heads, (long long)c->kv_heads, (long long)c->kv_heads);
    layer->out = layer->in;
    layer->out.size[1] = layer->in.size[1] / (c->heads + 2 * c->kv_heads) * c->heads;
    return OK;
}

/* Saved: with groups the repeated q, k and v, and their gradient; then two numbers of each softmax. */
static status core_plan(struct layer *layer, struct planning *planning) {
    TRY(check_dims(layer));
    TRY(is_grouped(layer) ? plan_groups(layer) : plan_shape(layer, 3));
    TRY(check_cache(layer));
    layer->saved_size = 2 * (size_t)config_of(layer)->heads * tokens_of(layer);
    if (is_grouped(layer)) layer->saved_size += 6 * features_of(layer) * tokens_of(layer);
    return OK;
}

static void core_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct sequence_ops *ops = pass->ops->sequence;
    struct draw_key key;
    struct attention_shape shape = shape_of(layer, pass, o.x, &key);
    if (layer->cached_positions) {
        attention_cache_forward(layer->runtime, pass, floats(o.x), floats(o.y));
        return;
    }
    if (!is_grouped(layer)) {
        ops->attention_forward(pass->device, &shape, o.x, o.y, layer->saved);
        return;
    }
    struct head_groups groups = groups_of(layer, pass->rows * tokens_of(layer));
    size_t values = 3 * pass->rows * layer->out_size;
    ops->repeat_heads(pass->device, &groups, floats(o.x), layer->saved);
    ops->attention_forward(pass->device, &shape, F32(layer->saved), o.y, layer->saved + 2 * values);
}

static void core_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct sequence_ops *ops = pass->ops->sequence;
    struct draw_key key;
    struct attention_shape shape = shape_of(layer, pass, o.x, &key);
    if (!o.dx) return;
    if (!is_grouped(layer)) {
        ops->attention_backward(pass->device, &shape, o.x, o.y, layer->saved, o.dy, o.dx);
        return;
    }
    struct head_groups groups = groups_of(layer, pass->rows * tokens_of(layer));
    size_t values = 3 * pass->rows * layer->out_size;
    float *gradient = layer->saved + values;
    ops->attention_backward(pass->device, &shape, F32(layer->saved), o.y, layer->saved + 2 * values, o.dy,
                            F32(gradient));
    ops->sum_heads(pass->device, &groups, gradient, floats(o.dx));
}

/* The parts of layer->saved, each for the whole batch: q, k and v, the outputs of the heads, two numbers of each
 * softmax, and the two gradients of backward. */
enum { HEADS_COPY, DQKV_COPY }; /* of inner_matrices */
struct saved {
    float *qkv, *heads, *softmaxes, *dqkv, *dheads;
};

static struct saved saved_of(const struct layer *layer, size_t rows) {
    size_t values = rows * layer->out_size;
    struct saved s = {.qkv = layer->saved};
    s.heads = s.qkv + 3 * values;
    s.dqkv = s.heads + values;
    s.dheads = s.dqkv + 3 * values;
    s.softmaxes = s.dheads + values;
    return s;
}

/* Index of the parameter in params; without biases the two weights are adjacent. */
static size_t attention_param(const struct layer *layer, int which) {
    return layer->first_param + (config_of(layer)->bias ? (size_t)which : (size_t)which / 2);
}

/* NULL: there are no biases. */
static const float *attention_value(const struct layer *layer, const struct params *params, int which) {
    bool is_bias = which == IN_BIAS || which == OUT_BIAS;
    return is_bias && !config_of(layer)->bias ? NULL : params_value(params, attention_param(layer, which));
}

static float *attention_gradient(const struct layer *layer, const struct params *params, int which) {
    bool is_bias = which == IN_BIAS || which == OUT_BIAS;
    return is_bias && !config_of(layer)->bias ? NULL : params_gradient(params, attention_param(layer, which));
}

static void attention_declare(const struct layer *layer, struct planning *planning) {
    static const char *const names[] = {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"};
    int64_t c = layer->out.size[1];
    const int64_t shapes[][2] = {{3 * c, c}, {3 * c, 0}, {c, c}, {c, 0}};
    for (int i = 0; i < 4; i++)
        if (i % 2 == 0 || config_of(layer)->bias)
            layer_declare(layer, planning, names[i], i % 2 == 0 ? 2 : 1, shapes[i]);
}

static status attention_plan(struct layer *layer, struct planning *planning) {
    TRY(check_dims(layer));
    TRY(plan_shape(layer, 1));
    TRY(check_cache(layer));
    attention_declare(layer, planning);
    layer->saved_size = (8 * features_of(layer) + 2 * (size_t)config_of(layer)->heads) * tokens_of(layer);
    return OK;
}

/* MultiheadAttention initialises out_proj, then in_proj by xavier_uniform; biases are 0, that of out_proj after its
 * draw.
 */
static void attention_init(const struct layer *layer, const struct params *params, struct rng *rng) {
    size_t c = features_of(layer);
    init_kaiming_uniform(rng, params_drawn(params, attention_param(layer, OUT_WEIGHT)), c * c, c);
    if (config_of(layer)->bias) init_fan_in_uniform(rng, params_drawn(params, attention_param(layer, OUT_BIAS)), c, c);
    init_xavier_uniform(rng, params_drawn(params, attention_param(layer, IN_WEIGHT)), 3 * c * c, c, 3 * c);
    for (int i = IN_BIAS; config_of(layer)->bias && i <= OUT_BIAS; i += 2) {
        const struct param *p = &params->items[attention_param(layer, i)];
        for (size_t j = 0; j < p->count; j++) params->values[p->value + j] = 0;
    }
}

static void attention_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct draw_key key;
    struct attention_shape shape = shape_of(layer, pass, o.x, &key);
    struct saved s = saved_of(layer, pass->rows);
    struct tensor attended = layer_inner(layer, HEADS_COPY, s.heads);
    size_t n = pass->rows * tokens_of(layer), c = features_of(layer);
    pass->ops->linear_forward(pass->device, o.x, attention_value(layer, pass->params, IN_WEIGHT),
                              attention_value(layer, pass->params, IN_BIAS), false, F32(s.qkv), n, c, 3 * c);
    if (layer->cached_positions)
        attention_cache_forward(layer->runtime, pass, s.qkv, s.heads);
    else
        pass->ops->sequence->attention_forward(pass->device, &shape, F32(s.qkv), &attended, s.softmaxes);
    pass->ops->linear_forward(pass->device, &attended, attention_value(layer, pass->params, OUT_WEIGHT),
                              attention_value(layer, pass->params, OUT_BIAS), false, o.y, n, c, c);
}

static void attention_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct device_ops *ops = pass->ops;
    struct draw_key key;
    struct attention_shape shape = shape_of(layer, pass, o.x, &key);
    struct saved s = saved_of(layer, pass->rows);
    struct tensor dqkv = layer_inner(layer, DQKV_COPY, s.dqkv);
    size_t n = pass->rows * tokens_of(layer), c = features_of(layer);
    ops->linear_backward_weight(pass->device, o.dy, F32(s.heads), attention_gradient(layer, pass->params, OUT_WEIGHT),
                                attention_gradient(layer, pass->params, OUT_BIAS), n, c, c);
    ops->linear_backward_input(pass->device, o.dy, attention_value(layer, pass->params, OUT_WEIGHT), F32(s.dheads), n,
                               c, c);
    ops->sequence->attention_backward(pass->device, &shape, F32(s.qkv), F32(s.heads), s.softmaxes, F32(s.dheads),
                                      &dqkv);
    ops->linear_backward_weight(pass->device, &dqkv, o.x, attention_gradient(layer, pass->params, IN_WEIGHT),
                                attention_gradient(layer, pass->params, IN_BIAS), n, c, 3 * c);
    if (o.dx)
        ops->linear_backward_input(pass->device, &dqkv, attention_value(layer, pass->params, IN_WEIGHT), o.dx, n, c,
                                   3 * c);
}

static size_t inner_matrices(const struct layer *layer, struct inner_matrix to[LAYER_MAX_INNER]) {
    size_t values = layer->out_size, c = features_of(layer);
    to[HEADS_COPY] = (struct inner_matrix){.size = values, .columns = c};
    to[DQKV_COPY] = (struct inner_matrix){.size = 3 * values, .columns = 3 * c, .is_backward = true};
    return 2;
}

static size_t attention_multiply_adds(const struct layer *layer) {
    return 4 * tokens_of(layer) * features_of(layer) * features_of(layer) + core_multiply_adds(layer);
}

static bool can_be_half(const struct layer *layer) {
    size_t size = head_size_of(layer);
    return !is_grouped(layer) && !layer->cached_positions && size % 8 == 0 && size <= ATTENTION_MAX_HALF;
}

static void attention_facts(const struct layer *layer, struct layer_facts *to) {
    to->lengths = layer->in.lengths;
    to->heads = (size_t)config_of(layer)->heads;
}

/* ---- in ONNX: keys that are padding get no part of a softmax ---- */

static size_t bias_or_none(const struct layer *layer, int which) {
    return config_of(layer)->bias ? attention_param(layer, which) : NO_PARAM;
}

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
static const char *columns_onnx(const struct onnx_call *c, const char *x, int64_t tokens, int64_t first,
                                int64_t heads) {
    struct onnx_graph *g = c->g;
    int64_t queries = config_of(c->layer)->heads, size = c->layer->out.size[1] / queries;
    x = onnx_slice(g, x, -1, first * size, (first + heads) * size);
    x = onnx_transpose(g, onnx_reshape(g, x, (const int64_t[]){tokens, heads, size}, 3), (const int64_t[]){0, 2, 1, 3},
                       4);
    if (heads == queries) return x;
    int64_t *indices = arena_alloc(g->arena, (size_t)queries * sizeof *indices);
    for (int64_t h = 0; h < queries; h++) indices[h] = h / (queries / heads);
    return onnx_gather(g, x, onnx_numbers(g, indices, (size_t)queries), 1);
}

/* Scores of keys that are padding become -infinity. */
static const char *without_padding(const struct onnx_call *c, const char *scores, size_t lengths, int64_t keys) {
    if (!lengths) return scores;
    const char *are_real =
        onnx_reshape(c->g, onnx_real_positions(c->g, lengths, keys), (const int64_t[]){1, 1, keys}, 3);
    return onnx_where(c->g, are_real, scores, onnx_scalar(c->g, -INFINITY));
}

/* Scores with the third input of cross_attention, (tokens, keys) or (keys). */
static const char *masked_onnx(const struct onnx_call *c, const char *scores, const char *mask, int64_t keys) {
    struct onnx_graph *g = c->g;
    int64_t queries = c->layer->ins[2].dims == 2 ? c->layer->ins[2].size[0] : 1;
    mask = onnx_reshape(g, mask, (const int64_t[]){1, queries, keys}, 3);
    if (config_of(c->layer)->mask == MASK_ADD) return onnx_node2(g, "Add", scores, mask);
    const char *are_zero = onnx_node2(g, "Equal", mask, onnx_scalar(g, 0)), *hidden = onnx_scalar(g, -INFINITY);
    bool ignores = config_of(c->layer)->mask == MASK_IGNORE;
    return onnx_where(g, are_zero, ignores ? scores : hidden, ignores ? hidden : scores);
}

/* softmax(q k^T / sqrt(size)) v of each head: (batch, tokens, width). [k], [v]: of [keys] positions */
static const char *attend_onnx(const struct onnx_call *c, const char *q, const char *k, const char *v, size_t lengths,
                               int64_t keys, const char *mask) {
    struct onnx_graph *g = c->g;
    int64_t tokens = c->layer->out.size[0], width = c->layer->out.size[1];
    const char *scale = onnx_scalar(g, 1 / sqrtf((float)(width / config_of(c->layer)->heads)));
    const char *products = onnx_node2(g, "MatMul", q, onnx_transpose(g, k, (const int64_t[]){0, 1, 3, 2}, 4));
    const char *scores = onnx_node2(g, "Mul", products, scale);
    if (config_of(c->layer)->is_causal) scores = onnx_node2(g, "Add", scores, causal_mask(g, (size_t)tokens));
    if (mask) scores = masked_onnx(c, scores, mask, keys);
    const char *y = onnx_node2(g, "MatMul", onnx_softmax(g, without_padding(c, scores, lengths, keys)), v);
    return onnx_reshape(g, onnx_transpose(g, y, (const int64_t[]){0, 2, 1, 3}, 4), (const int64_t[]){tokens, width}, 2);
}

/* qkv (tokens, (heads + 2 kv_heads) * size) */
static const char *self_onnx(const struct onnx_call *c, const char *qkv) {
    int64_t tokens = c->layer->out.size[0], heads = config_of(c->layer)->heads,
            kv_heads = (int64_t)kv_heads_of(c->layer);
    const char *q = columns_onnx(c, qkv, tokens, 0, heads), *k = columns_onnx(c, qkv, tokens, heads, kv_heads);
    const char *v = columns_onnx(c, qkv, tokens, heads + kv_heads, kv_heads);
    return attend_onnx(c, q, k, v, c->layer->in.lengths, tokens, NULL);
}

static const char *core_onnx(const struct onnx_call *c) { return self_onnx(c, c->x); }

static const char *attention_onnx(const struct onnx_call *c) {
    const struct layer *layer = c->layer;
    const char *qkv = onnx_linear(c->g, c->x, attention_param(layer, IN_WEIGHT), bias_or_none(layer, IN_BIAS), 2);
    return onnx_linear(c->g, self_onnx(c, qkv), attention_param(layer, OUT_WEIGHT), bias_or_none(layer, OUT_BIAS), 2);
}

/* ---- in C ---- */

#define ATTENTION_BLOCK 64 /* as in the functions of the exported code */

static void core_c_of(const struct c_call *c, const char *qkv, const char *y) {
    size_t tokens = (size_t)c->layer->out.size[0], width = (size_t)c->layer->out.size[1];
    size_t heads = (size_t)config_of(c->layer)->heads;
    text_printf(&c->c->body, "    self_attention(%s, %s, %zu, %s, %zu, %zu, %zu, %d, %s);\n", qkv, y, tokens,
                c_length(c, c->layer->in.lengths, tokens), heads, kv_heads_of(c->layer), width / heads,
                config_of(c->layer)->is_causal, c->scratch[0]);
}

static void core_c(const struct c_call *c) { core_c_of(c, c->x, c->y); }

static size_t core_work(const struct layer *layer) {
    return ATTENTION_BLOCK * (ATTENTION_BLOCK + (size_t)(layer->out.size[1] / config_of(layer)->heads));
}

static void core_c_scratch(const struct layer *layer, size_t sizes[2]) { sizes[0] = core_work(layer); }

/* Adds the call of a linear layer. */
static void linear_c(const struct c_call *c, const char *x, const char *w, const char *b, const char *y, size_t rows,
                     size_t in, size_t out) {
    text_printf(&c->c->body, "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", x, w, b, y, rows, in, out);
}

/* y = the output's projection of [heads] */
static void projection_c(const struct c_call *c, const char *heads) {
    size_t tokens = (size_t)c->layer->out.size[0], width = (size_t)c->layer->out.size[1];
    const char *weight = c_matrix(c, attention_param(c->layer, OUT_WEIGHT));
    const char *bias = c_plain(c, bias_or_none(c->layer, OUT_BIAS));
    linear_c(c, heads, weight, bias, c->y, tokens, width, width);
}

/* scratch[1]: q, k and v, then the outputs of the heads */
static void attention_c(const struct c_call *c) {
    size_t tokens = (size_t)c->layer->out.size[0], width = (size_t)c->layer->out.size[1];
    const char *heads = arena_printf(c->c->arena, "%s + %zu", c->scratch[1], 3 * tokens * width);
    const char *weight = c_matrix(c, attention_param(c->layer, IN_WEIGHT));
    const char *bias = c_plain(c, bias_or_none(c->layer, IN_BIAS));
    linear_c(c, c->x, weight, bias, c->scratch[1], tokens, width, 3 * width);
    core_c_of(c, c->scratch[1], heads);
    projection_c(c, heads);
}

static void attention_c_scratch(const struct layer *layer, size_t sizes[2]) {
    sizes[0] = core_work(layer);
    sizes[1] = 4 * layer->out_size;
}

static void core_facts(const struct layer *layer, struct layer_facts *to) {
    attention_facts(layer, to);
    to->kv_heads = kv_heads_of(layer);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "MultiheadAttention SelfAttention mha self_attn", "attention"),
    VALUE_ALIAS("layer", "encoder_decoder_attention EncDecAttention cross_attn multihead_attn", "cross_attention"),
    KEY_ALIAS("layer.attention", "dropout_p attention_dropout attn_dropout p", ".dropout"),
    KEY_ALIAS_NOTE("layer.attention", "key_padding_mask", NULL,
                   "padding follows from padding_idx of the embedding or from sequence_lengths"),
    KEY_ALIAS_NOTE("layer.attention", "attn_mask mask", NULL,
                   "a mask of the dataset is the third input of cross_attention, `from: [x, x, mask]`"),
    KEY_ALIAS_NOTE("layer.attention", "embed_dim d_model dim hidden_size", NULL,
                   "the size of the input is inferred; leave the key out"),
    CALL_ALIAS("layer", "attention", "~ heads"),
    {0},
};

const struct layer_type layer_attention = {
    .aliases = aliases,
    .variant = {"attention", &attention_schema,
                "Multi-head self-attention over (positions, features) (torch.nn.MultiheadAttention)."},
    .ignores = IGNORES_Y,
    .check_device = attention_check_device,
    .is_by_position = true,
    .limits_positions = true,
    .plan = attention_plan,
    .init = attention_init,
    .autocast = AUTOCAST_PRODUCT,
    .copies = COPY_ROWS,
    .inner_matrices = inner_matrices,
    .alloc = create_cache,
    .release = release_cache,
    .forward = attention_forward,
    .backward = attention_backward,
    .multiply_adds = attention_multiply_adds,
    .facts = attention_facts,
    .onnx = attention_onnx,
    .c = attention_c,
    .c_scratch = attention_c_scratch,
    .pytorch = "Attention({in}, {heads}{,causal}{,bias}{,dropout}{stream})",
};
const struct layer_type layer_scaled_dot_product_attention = {
    .variant = {"scaled_dot_product_attention", &core_schema,
                "Attention without projections: (positions, 3C), which are queries, keys and values, to (positions, "
                "C); with num_kv_heads keys and values are narrower than queries."},
    .check_device = attention_check_device,
    .is_by_position = true,
    .limits_positions = true,
    .plan = core_plan,
    .half = HALF_ALL,
    .autocast = AUTOCAST_PRODUCT,
    .can_be_half = can_be_half,
    .alloc = create_cache,
    .release = release_cache,
    .forward = core_forward,
    .backward = core_backward,
    .multiply_adds = core_multiply_adds,
    .facts = core_facts,
    .onnx = core_onnx,
    .c = core_c,
    .c_scratch = core_c_scratch,
    .pytorch = "DotProductAttention({heads}{,num_kv_heads:kv_heads}{,causal}{,dropout}{stream})",
};

/* ---- cross_attention ---- */

/* cross_attention: queries of one output, keys and values of another, as in a decoder (torch.nn.MultiheadAttention with
 * two inputs). in_proj has the rows of the queries first. */

static const char *const masks[] = {"ignore", "keep", "add", NULL};

static const struct schema_row rows[] = {
    HEADS,
    DROPOUT,
    BIAS,
    SCHEMA_ROW(CHOICE, struct attention_config, mask, .fallback = "ignore", .choices = masks,
               .doc = "What the numbers of a third input mean: `ignore`: keys with 1 are not attended to "
                      "(MultiheadAttention's boolean attn_mask and key_padding_mask); `keep`: only those with 1 are "
                      "(scaled_dot_product_attention's boolean attn_mask); `add`: they are added to the scores."),
    {0},
};
static const struct schema schema = SCHEMA("model.layers.cross_attention", struct attention_config, .rows = rows);

static size_t keys_of(const struct layer *layer) { return (size_t)layer->ins[1].size[0]; }

static status check_inputs(const struct layer *layer) {
    const struct shape *q = &layer->ins[0], *kv = &layer->ins[1];
    if (q->dims != 2 || kv->dims != 2 || q->size[1] != kv->size[1])
        return status_new(
            STATUS_USAGE,
            "queries, and keys and values, must be (positions, features) with the same features, but are %s and %s",
            shape_text(q).s, shape_text(kv).s);
    if (q->size[1] % config_of(layer)->heads != 0)
        return status_usage("its input is %s: heads (%lld) must divide the features", shape_text(q).s,
                            (long long)config_of(layer)->heads);
    return OK;
}

static status check_mask(const struct layer *layer) {
    const struct shape *mask = &layer->ins[2];
    int64_t queries = layer->ins[0].size[0], keys = layer->ins[1].size[0];
    bool is_last = mask->dims > 0 && mask->size[mask->dims - 1] == keys;
    if (mask->input && !mask->is_tokens && is_last &&
        (mask->dims == 1 || (mask->dims == 2 && (mask->size[0] == queries || mask->size[0] == 1))))
        return OK;
    return status_new(
        STATUS_USAGE,
        "its mask must be values of the dataset in each row, (%lld keys) or (%lld queries, %lld keys), but is %s%s",
        (long long)keys, (long long)queries, (long long)keys, shape_text(mask).s,
        mask->input ? "" : ", which a layer computes");
}

/* Whether each query attends to a key. */
static status check_mask_row(const struct layer *layer, const struct params *params, const float *row) {
    enum attention_mask kind = (enum attention_mask)config_of(layer)->mask;
    size_t keys = keys_of(layer);
    for (size_t q = 0; layer->in_count == 3 && q < mask_queries(layer); q++) {
        const float *mask = row + layer->ins[2].input - 1 + q * keys;
        size_t k = 0;
        while (k < keys && attention_mask_bias(kind, mask[k]) <= MASK_HIDDEN / 2) k++;
        if (k == keys) return status_data("the mask of %s leaves query %zu no key to attend to", layer->path, q);
    }
    return OK;
}

static status cross_check_device(const struct layer *layer, const struct device_ops *ops) {
    if (layer->in_count == 3 && !ops->sequence->takes_masks)
        return status_usage("a mask is for the CPU only: use train.device: cpu");
    return attention_check_device(layer, ops);
}

static status plan(struct layer *layer, struct planning *planning) {
    if (layer->in_count != 2 && layer->in_count != 3)
        return status_usage("it takes two outputs, `from: [queries, keys_and_values]`, and a mask or none, got %zu",
                            layer->in_count);
    TRY(check_inputs(layer));
    if (layer->in_count == 3) TRY(check_mask(layer));
    layer->out = layer->in;
    attention_declare(layer, planning);
    size_t c = features_of(layer), t = tokens_of(layer);
    layer->saved_size = 4 * t * c + 4 * keys_of(layer) * c + 2 * (size_t)config_of(layer)->heads * t;
    return OK;
}

/* The parts of layer->saved, each for the whole batch. */
enum { CROSS_HEADS_COPY, DQ_COPY, DKV_COPY }; /* of inner_matrices */
struct cross_saved {
    float *q, *heads, *dq, *dheads; /* (tokens, C) */
    float *kv, *dkv;                /* (keys, 2C) */
    float *softmaxes;
};

static struct cross_saved cross_saved_of(const struct layer *layer, size_t count) {
    size_t values = count * layer->out_size, others = 2 * count * keys_of(layer) * features_of(layer);
    struct cross_saved s = {.q = layer->saved};
    s.heads = s.q + values;
    s.dq = s.heads + values;
    s.dheads = s.dq + values;
    s.kv = s.dheads + values;
    s.dkv = s.kv + others;
    s.softmaxes = s.dkv + others;
    return s;
}

/* [x] of the rows of keys and values of in_proj; NULL stays NULL. */
static const float *later(const float *x, size_t elements) { return x ? x + elements : NULL; }

static void cross_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct draw_key key;
    struct attention_shape shape = shape_of(layer, pass, o.x, &key);
    struct cross_saved s = cross_saved_of(layer, pass->rows);
    struct tensor attended = layer_inner(layer, CROSS_HEADS_COPY, s.heads);
    size_t n = pass->rows * tokens_of(layer), m = pass->rows * keys_of(layer), c = features_of(layer);
    const float *w = attention_value(layer, pass->params, IN_WEIGHT);
    const float *bias = attention_value(layer, pass->params, IN_BIAS);
    pass->ops->linear_forward(pass->device, &o.x[0], w, bias, false, F32(s.q), n, c, c);
    pass->ops->linear_forward(pass->device, &o.x[1], w + c * c, later(bias, c), false, F32(s.kv), m, c, 2 * c);
    pass->ops->sequence->cross_attention_forward(pass->device, &shape, s.q, s.kv, &attended, s.softmaxes);
    pass->ops->linear_forward(pass->device, &attended, attention_value(layer, pass->params, OUT_WEIGHT),
                              attention_value(layer, pass->params, OUT_BIAS), false, o.y, n, c, c);
}

static void cross_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct device_ops *ops = pass->ops;
    struct draw_key key;
    struct attention_shape shape = shape_of(layer, pass, o.x, &key);
    struct cross_saved s = cross_saved_of(layer, pass->rows);
    struct tensor dq = layer_inner(layer, DQ_COPY, s.dq), dkv = layer_inner(layer, DKV_COPY, s.dkv);
    size_t n = pass->rows * tokens_of(layer), m = pass->rows * keys_of(layer), c = features_of(layer);
    const float *w = attention_value(layer, pass->params, IN_WEIGHT);
    float *dw = attention_gradient(layer, pass->params, IN_WEIGHT);
    float *dbias = attention_gradient(layer, pass->params, IN_BIAS);
    ops->linear_backward_weight(pass->device, o.dy, F32(s.heads), attention_gradient(layer, pass->params, OUT_WEIGHT),
                                attention_gradient(layer, pass->params, OUT_BIAS), n, c, c);
    ops->linear_backward_input(pass->device, o.dy, attention_value(layer, pass->params, OUT_WEIGHT), F32(s.dheads), n,
                               c, c);
    ops->sequence->cross_attention_backward(pass->device, &shape, s.q, s.kv, s.heads, s.softmaxes, s.dheads, s.dq,
                                            s.dkv);
    ops->linear_backward_weight(pass->device, &dq, &o.x[0], dw, dbias, n, c, c);
    ops->linear_backward_weight(pass->device, &dkv, &o.x[1], dw + c * c, dbias ? dbias + c : NULL, m, c, 2 * c);
    if (o.dx[0].data) ops->linear_backward_input(pass->device, &dq, w, &o.dx[0], n, c, c);
    if (o.dx[1].data) ops->linear_backward_input(pass->device, &dkv, w + c * c, &o.dx[1], m, c, 2 * c);
}

static size_t cross_inner_matrices(const struct layer *layer, struct inner_matrix to[LAYER_MAX_INNER]) {
    size_t values = layer->out_size, c = features_of(layer), others = 2 * keys_of(layer) * c;
    to[CROSS_HEADS_COPY] = (struct inner_matrix){.size = values, .columns = c};
    to[DQ_COPY] = (struct inner_matrix){.size = values, .columns = c, .is_backward = true};
    to[DKV_COPY] = (struct inner_matrix){.size = others, .columns = 2 * c, .is_backward = true};
    return 3;
}

static size_t multiply_adds(const struct layer *layer) {
    size_t c = features_of(layer), t = tokens_of(layer), k = keys_of(layer);
    return 2 * t * c * c + 2 * k * c * c + 2 * t * k * c;
}

static void cross_facts(const struct layer *layer, struct layer_facts *to) {
    to->lengths = layer->ins[1].lengths;
    to->unscaled = layer->in_count == 3 ? 3 : 0;
}

/* x w^T + b of elements [first, end) of the output */
static const char *projection_onnx(const struct onnx_call *c, const char *x, int64_t first, int64_t end) {
    struct onnx_graph *g = c->g;
    const char *w = onnx_slice(g, onnx_param(g, attention_param(c->layer, IN_WEIGHT)), 0, first, end);
    const char *y = onnx_node2(g, "MatMul", x, onnx_transpose(g, w, (const int64_t[]){1, 0}, 2));
    size_t bias = bias_or_none(c->layer, IN_BIAS);
    return bias == NO_PARAM ? y : onnx_node2(g, "Add", y, onnx_slice(g, onnx_param(g, bias), 0, first, end));
}

static const char *cross_onnx(const struct onnx_call *c) {
    const struct layer *layer = c->layer;
    int64_t tokens = layer->out.size[0], width = layer->out.size[1], keys = layer->ins[1].size[0];
    int64_t heads = config_of(layer)->heads;
    const char *q = projection_onnx(c, c->inputs[0], 0, width),
               *kv = projection_onnx(c, c->inputs[1], width, 3 * width);
    const char *k = columns_onnx(c, kv, keys, 0, heads), *v = columns_onnx(c, kv, keys, heads, heads);
    const char *y = attend_onnx(c, columns_onnx(c, q, tokens, 0, heads), k, v, layer->ins[1].lengths, keys,
                                layer->in_count > 2 ? c->inputs[2] : NULL);
    return onnx_linear(c->g, y, attention_param(layer, OUT_WEIGHT), bias_or_none(layer, OUT_BIAS), 2);
}

static void cross_c(const struct c_call *c) {
    const struct layer *layer = c->layer;
    struct arena *arena = c->c->arena;
    size_t tokens = (size_t)layer->out.size[0], width = (size_t)layer->out.size[1];
    size_t keys = (size_t)layer->ins[1].size[0], weight = attention_param(layer, IN_WEIGHT);
    size_t count = (size_t)config_of(layer)->heads, bias_param = bias_or_none(layer, IN_BIAS);
    const char *bias = c_plain(c, bias_param), *q = c->scratch[1];
    const char *kv_bias = bias_param == NO_PARAM ? bias : arena_printf(arena, "%s + %zu", bias, width);
    const char *kv = arena_printf(arena, "%s + %zu", q, tokens * width);
    const char *heads = arena_printf(arena, "%s + %zu", kv, 2 * keys * width);
    if (layer->in_count > 2)
        text_printf(&c->c->body, "    if (hides_all(%s, %zu, %zu, %d)) return 2;\n", c->inputs[2], mask_queries(layer),
                    keys, config_of(layer)->mask);
    linear_c(c, c->inputs[0], c_matrix_rows(c, weight, 0, width), bias, q, tokens, width, width);
    linear_c(c, c->inputs[1], c_matrix_rows(c, weight, width, 2 * width), kv_bias, kv, keys, width, 2 * width);
    text_printf(&c->c->body, "    cross_attention(%s, %s, %s, %zu, %zu, %s, %zu, %zu, %s, %zu, %d, %s);\n", q, kv,
                heads, tokens, keys, c_length(c, layer->ins[1].lengths, keys), count, width / count,
                layer->in_count > 2 ? c->inputs[2] : "NULL", layer->in_count > 2 ? mask_queries(layer) : 0,
                config_of(layer)->mask, c->scratch[0]);
    projection_c(c, heads);
}

/* scratch[1]: queries, keys and values, the outputs of the heads. */
static void cross_c_scratch(const struct layer *layer, size_t sizes[2]) {
    sizes[0] = core_work(layer);
    sizes[1] = 2 * layer->out_size + 2 * shape_elements(&layer->ins[1]);
}

const struct layer_type layer_cross_attention = {
    .variant = {"cross_attention", &schema,
                "Multi-head attention of queries to the keys and values of another output: `cross_attention: {heads: "
                "4, from: [queries, memory]}`, of an output to itself with a mask of the dataset: `from: [x, x, mask]` "
                "(torch.nn.MultiheadAttention)."},
    .joins = true,
    .ignores = IGNORES_Y,
    .keeps_positions = true,
    .check_device = cross_check_device,
    .check_row = check_mask_row,
    .plan = plan,
    .init = attention_init,
    .autocast = AUTOCAST_PRODUCT,
    .copies = COPY_ROWS,
    .inner_matrices = cross_inner_matrices,
    .forward = cross_forward,
    .backward = cross_backward,
    .multiply_adds = multiply_adds,
    .facts = cross_facts,
    .onnx = cross_onnx,
    .c = cross_c,
    .c_scratch = cross_c_scratch,
    .pytorch = "CrossAttention({in}, {heads}{,bias}{,dropout}{,mask}{stream})",
};
