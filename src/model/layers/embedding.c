/* embedding: token ids to learned vectors (torch.nn.Embedding), and learned positions that are added to them (the
 * `wte(i) + wpe(arange(T))` of GPT models). */
#include "base/text.h"
#include "model/layers/layers.h"

struct embedding_config {
    int64_t embedding_dim, num_embeddings;
};

struct positional_config {
    int64_t num_embeddings;
};

static const struct schema_row embedding_rows[] = {
    {.key = "embedding_dim",
     .type = SCHEMA_INT,
     .offset = offsetof(struct embedding_config, embedding_dim),
     .flags = SCHEMA_REQUIRED,
     .min = 1,
     .max = 1 << 24,
     .doc = "Elements of a vector."},
    {.key = "num_embeddings",
     .type = SCHEMA_INT,
     .offset = offsetof(struct embedding_config, num_embeddings),
     .fallback = "null",
     .min = 1,
     .max = 1 << 30,
     .doc = "Number of vectors; null: the dataset's vocabulary."},
    {0},
};
static const struct schema_row positional_rows[] = {
    {.key = "num_embeddings",
     .type = SCHEMA_INT,
     .offset = offsetof(struct positional_config, num_embeddings),
     .fallback = "null",
     .min = 1,
     .max = 1 << 30,
     .doc = "Number of positions; null: the length of the input."},
    {0},
};

static const struct schema embedding_schema = {.name = "model.layers.embedding",
                                               .size = sizeof(struct embedding_config),
                                               .rows = embedding_rows,
                                               .shorthand = "embedding_dim"};
static const struct schema positional_schema = {
    .name = "model.layers.positional_embedding", .size = sizeof(struct positional_config), .rows = positional_rows};

static size_t width(const struct layer *layer) { return (size_t)layer->out.size[layer->out.dims - 1]; }

static void declare(const struct layer *layer, struct planning *planning, int64_t count) {
    int64_t shape[2] = {count, (int64_t)width(layer)};
    params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.weight", layer->name), 2,
                   shape);
}

/* torch.nn.Embedding: normal(0, 1) */
static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    rng_normal(rng, params_drawn(params, layer->first_param), params->items[layer->first_param].count, 0, 1);
}

static status embedding_plan(struct layer *layer, struct planning *planning) {
    const struct embedding_config *c = layer->config;
    if (!layer->in.is_tokens)
        return status_new(STATUS_USAGE, "its input must be the dataset's tokens, but it is the output of a layer or of "
                                        "a dataset that is not text");
    int64_t count = c->num_embeddings == SCHEMA_NO_INT ? layer->in.vocabulary : c->num_embeddings;
    if (count < layer->in.vocabulary)
        return status_new(STATUS_USAGE, "num_embeddings is %lld, but the dataset's vocabulary has %lld tokens",
                          (long long)count, (long long)layer->in.vocabulary);
    if (layer->in.dims >= MAX_DIMS) return status_new(STATUS_USAGE, "its input has too many dimensions");
    layer->out = (struct shape){.dims = layer->in.dims + 1};
    for (int d = 0; d < layer->in.dims; d++) layer->out.size[d] = layer->in.size[d];
    layer->out.size[layer->in.dims] = c->embedding_dim;
    declare(layer, planning, count);
    return OK;
}

static size_t vocabulary(const struct layer *layer, const struct params *params) {
    return (size_t)params->items[layer->first_param].shape[0];
}

static void embedding_forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    device_ops(pass->device)
        ->sequence->embedding_forward(pass->device, (const int32_t *)(const void *)x,
                                      params_value(pass->params, layer->first_param), y, pass->rows * layer->in_size,
                                      vocabulary(layer, pass->params), width(layer));
}

static void embedding_backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                               const float *dy, float *dx) {
    (void)y;
    (void)dx; /* tokens have no gradient */
    device_ops(pass->device)
        ->sequence->embedding_backward(pass->device, (const int32_t *)(const void *)x, dy,
                                       params_gradient(pass->params, layer->first_param), pass->rows * layer->in_size,
                                       vocabulary(layer, pass->params), width(layer));
}

static status positional_plan(struct layer *layer, struct planning *planning) {
    const struct positional_config *c = layer->config;
    if (layer->in.dims != 2) {
        struct text shape = {0};
        shape_print(&layer->in, &shape);
        status s = status_new(STATUS_USAGE, "its input must be (positions, features), but is %s", text_string(&shape));
        text_free(&shape);
        return s;
    }
    int64_t positions = layer->cached_positions ? (int64_t)layer->cached_positions : layer->in.size[0];
    int64_t count = c->num_embeddings == SCHEMA_NO_INT ? positions : c->num_embeddings;
    if (count < positions)
        return status_new(STATUS_USAGE, "num_embeddings is %lld, but the input has %lld positions", (long long)count,
                          (long long)positions);
    layer->out = layer->in;
    declare(layer, planning, count);
    return OK;
}

/* y[t] = x[t] + weight[t] for t < T: the first T rows of weight are added to each row of the batch; of a row of one
 * position that of the position */
static void positional_forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    const float *weight = params_value(pass->params, layer->first_param);
    if (layer->cached_positions) weight += pass->position * layer->in_size;
    device_ops(pass->device)->sequence->add_row(pass->device, x, weight, y, pass->rows, layer->in_size);
}

static void positional_backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                                const float *dy, float *dx) {
    (void)x;
    (void)y;
    const struct device_ops *ops = device_ops(pass->device);
    ops->sequence->sum_rows(pass->device, dy, params_gradient(pass->params, layer->first_param), pass->rows,
                            layer->in_size);
    if (dx) ops->copy(pass->device, dy, dx, pass->rows * layer->in_size);
}

static void describe_embedding(const struct layer *layer, struct operation *to) {
    to->kind = OPERATION_EMBEDDING;
    to->weight = layer->first_param;
}

static void describe_positional(const struct layer *layer, struct operation *to) {
    to->kind = OPERATION_ADD_POSITIONS;
    to->weight = layer->first_param;
}

const struct layer_type layer_embedding = {
    .variant = {"embedding", &embedding_schema, "A learned vector for each token (torch.nn.Embedding)."},
    .takes_tokens = true,
    .ignores = IGNORES_Y,
    .is_by_position = true,
    .plan = embedding_plan,
    .init = init,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .describe = describe_embedding,
};
const struct layer_type layer_positional_embedding = {
    .variant = {"positional_embedding", &positional_schema,
                "Adds a learned vector to each position: x + weight[0:T], the weight a torch.nn.Embedding."},
    .ignores = IGNORES_X_AND_Y,
    .is_by_position = true,
    .plan = positional_plan,
    .init = init,
    .forward = positional_forward,
    .backward = positional_backward,
    .describe = describe_positional,
};
