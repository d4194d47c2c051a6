/* cross_attention: queries of one output, keys and values of another, as in a decoder (torch.nn.MultiheadAttention with
 * two inputs). in_proj has the rows of the queries first. */
#include "base/text.h"
#include "device/sequence.h"
#include "model/layers/attention.h"
#include "model/layers/layers.h"

static const struct schema_row rows[] = {
    {.key = "heads",
     .type = SCHEMA_INT,
     .offset = offsetof(struct attention_config, heads),
     .flags = SCHEMA_REQUIRED,
     .min = 1,
     .max = 1 << 16,
     .doc = "Number of heads (PyTorch's num_heads); must divide the features."},
    {.key = "dropout",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct attention_config, dropout),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .doc = "Probability of dropout of the attention weights, the softmaxes, in training."},
    {.key = "bias",
     .type = SCHEMA_BOOL,
     .offset = offsetof(struct attention_config, bias),
     .fallback = "true",
     .doc = "Whether the projections have biases."},
    {0},
};
static const struct schema schema = {
    .name = "model.layers.cross_attention", .size = sizeof(struct attention_config), .rows = rows};

static const struct attention_config *config_of(const struct layer *layer) { return layer->config; }
static size_t tokens_of(const struct layer *layer) { return (size_t)layer->out.size[0]; }
static size_t features_of(const struct layer *layer) { return (size_t)layer->out.size[1]; }
static size_t keys_of(const struct layer *layer) { return (size_t)layer->ins[1].size[0]; }

/* [key]: filled, because the shape refers to it. */
static struct attention_shape shape_of(const struct layer *layer, const struct pass *pass, struct draw_key *key) {
    size_t heads = (size_t)config_of(layer)->heads;
    struct attention_shape shape = {.rows = pass->rows,
                                    .tokens = tokens_of(layer),
                                    .keys = keys_of(layer),
                                    .heads = heads,
                                    .head_size = features_of(layer) / heads,
                                    .lengths = pass_lengths(pass, &layer->ins[1]),
                                    .dropout_p = (float)config_of(layer)->dropout};
    *key = pass->draws;
    key->stream = layer->stream;
    if (pass->is_training && config_of(layer)->dropout > 0) shape.dropout = key;
    return shape;
}

static status check_inputs(const struct layer *layer) {
    const struct shape *q = &layer->ins[0], *kv = &layer->ins[1];
    struct text queries = {0}, keys = {0};
    status s = OK;
    shape_print(q, &queries);
    shape_print(kv, &keys);
    if (q->dims != 2 || kv->dims != 2 || q->size[1] != kv->size[1])
        s = status_new(STATUS_USAGE,
                       "queries, and keys and values, must be (positions, features) with the same features, but are %s "
                       "and %s",
                       text_string(&queries), text_string(&keys));
    else if (q->size[1] % config_of(layer)->heads != 0)
        s = status_new(STATUS_USAGE, "its input is %s: heads (%lld) must divide the features", text_string(&queries),
                       (long long)config_of(layer)->heads);
    text_free(&queries);
    text_free(&keys);
    return s;
}

static status plan(struct layer *layer, struct planning *planning) {
    if (layer->in_count != 2)
        return status_new(STATUS_USAGE, "it takes two outputs, `from: [queries, keys_and_values]`, got %zu",
                          layer->in_count);
    TRY(check_inputs(layer));
    layer->out = layer->in;
    attention_declare(layer, planning);
    size_t c = features_of(layer), t = tokens_of(layer);
    layer->saved_size = 4 * t * c + 4 * keys_of(layer) * c + 2 * (size_t)config_of(layer)->heads * t;
    return OK;
}

/* The parts of layer->saved, each for the whole batch. */
struct saved {
    float *q, *heads, *dq, *dheads; /* (tokens, C) */
    float *kv, *dkv;                /* (keys, 2C) */
    float *softmaxes;
};

static struct saved saved_of(const struct layer *layer, size_t count) {
    size_t values = count * layer->out_size, others = 2 * count * keys_of(layer) * features_of(layer);
    struct saved s = {.q = layer->saved};
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

static void join(const struct layer *layer, const struct pass *pass, const float *const *x, float *y) {
    const struct device_ops *ops = device_ops(pass->device);
    struct draw_key key;
    struct attention_shape shape = shape_of(layer, pass, &key);
    struct saved s = saved_of(layer, pass->rows);
    size_t n = pass->rows * tokens_of(layer), m = pass->rows * keys_of(layer), c = features_of(layer);
    const float *w = attention_value(layer, pass->params, IN_WEIGHT);
    const float *bias = attention_value(layer, pass->params, IN_BIAS);
    ops->linear_forward(pass->device, x[0], w, bias, false, s.q, n, c, c);
    ops->linear_forward(pass->device, x[1], w + c * c, later(bias, c), false, s.kv, m, c, 2 * c);
    ops->sequence->cross_attention_forward(pass->device, &shape, s.q, s.kv, s.heads, s.softmaxes);
    ops->linear_forward(pass->device, s.heads, attention_value(layer, pass->params, OUT_WEIGHT),
                        attention_value(layer, pass->params, OUT_BIAS), false, y, n, c, c);
}

static void join_backward(const struct layer *layer, const struct pass *pass, const float *const *x, const float *y,
                          const float *dy, float *const *dx) {
    (void)y;
    const struct device_ops *ops = device_ops(pass->device);
    struct draw_key key;
    struct attention_shape shape = shape_of(layer, pass, &key);
    struct saved s = saved_of(layer, pass->rows);
    size_t n = pass->rows * tokens_of(layer), m = pass->rows * keys_of(layer), c = features_of(layer);
    const float *w = attention_value(layer, pass->params, IN_WEIGHT);
    float *dw = attention_gradient(layer, pass->params, IN_WEIGHT);
    float *dbias = attention_gradient(layer, pass->params, IN_BIAS);
    ops->linear_backward_weight(pass->device, dy, s.heads, attention_gradient(layer, pass->params, OUT_WEIGHT),
                                attention_gradient(layer, pass->params, OUT_BIAS), n, c, c);
    ops->linear_backward_input(pass->device, dy, attention_value(layer, pass->params, OUT_WEIGHT), s.dheads, n, c, c);
    ops->sequence->cross_attention_backward(pass->device, &shape, s.q, s.kv, s.heads, s.softmaxes, s.dheads, s.dq,
                                            s.dkv);
    ops->linear_backward_weight(pass->device, s.dq, x[0], dw, dbias, n, c, c);
    ops->linear_backward_weight(pass->device, s.dkv, x[1], dw + c * c, dbias ? dbias + c : NULL, m, c, 2 * c);
    if (dx[0]) ops->linear_backward_input(pass->device, s.dq, w, dx[0], n, c, c);
    if (dx[1]) ops->linear_backward_input(pass->device, s.dkv, w + c * c, dx[1], m, c, 2 * c);
}

/* The outputs of the heads, and the gradients of q and kv. */
static size_t inner_matrices(const struct layer *layer, struct inner_matrix to[LAYER_MAX_INNER]) {
    size_t values = layer->out_size, c = features_of(layer), others = 2 * keys_of(layer) * c;
    to[0] = (struct inner_matrix){.first = values, .size = values, .columns = c};
    to[1] = (struct inner_matrix){.first = 2 * values, .size = values, .columns = c, .is_backward = true};
    to[2] = (struct inner_matrix){.first = 4 * values + others, .size = others, .columns = 2 * c, .is_backward = true};
    return 3;
}

static size_t multiply_adds(const struct layer *layer) {
    size_t c = features_of(layer), t = tokens_of(layer), k = keys_of(layer);
    return 2 * t * c * c + 2 * k * c * c + 2 * t * k * c;
}

static void describe(const struct layer *layer, struct operation *to) {
    attention_describe(layer, to);
    to->kind = OPERATION_CROSS_ATTENTION;
    to->lengths = layer->ins[1].lengths;
}

const struct layer_type layer_cross_attention = {
    .variant =
        {"cross_attention", &schema,
         "Multi-head attention of queries to the keys and values of another output: `cross_attention: {heads: 4, "
         "from: [queries, memory]}` (torch.nn.MultiheadAttention)."},
    .joins = true,
    .ignores = IGNORES_Y,
    .keeps_positions = true,
    .check_device = attention_check_device,
    .plan = plan,
    .init = attention_init,
    .autocast = AUTOCAST_PRODUCT,
    .copies = COPY_ROWS,
    .inner_matrices = inner_matrices,
    .join = join,
    .join_backward = join_backward,
    .multiply_adds = multiply_adds,
    .describe = describe,
};
