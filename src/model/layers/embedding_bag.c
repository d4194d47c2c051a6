/* embedding_bag: the mean, sum or maximum of the learned vectors of a row's tokens (torch.nn.EmbeddingBag of rows of
 * the same length). */
#include "base/text.h"
#include "model/layers/embedding.h"
#include "model/layers/layers.h"

static const char *const modes[] = {"mean", "sum", "max", NULL};

static const struct schema_row rows[] = {
    EMBEDDING_ROWS("", -(1 << 30),
                   "A token that is left out of the mean, sum or maximum, whose vector is 0 at first; below 0: counted "
                   "from the end; null: none."),
    {.key = "mode",
     .type = SCHEMA_CHOICE,
     .offset = offsetof(struct embedding_config, mode),
     .fallback = "mean",
     .choices = modes,
     .doc = "How the vectors of a row's tokens become one."},
    {0},
};
static const struct schema schema = {.name = "model.layers.embedding_bag",
                                     .size = sizeof(struct embedding_config),
                                     .rows = rows,
                                     .shorthand = "embedding_dim"};

static const struct embedding_config *config_of(const struct layer *layer) { return layer->config; }
static size_t width(const struct layer *layer) { return (size_t)config_of(layer)->embedding_dim; }

/* The token of padding_idx; -1: none. */
static int32_t padding_of(const struct layer *layer) {
    int64_t index = config_of(layer)->padding_idx;
    return index == SCHEMA_NO_INT ? -1 : (int32_t)(index < 0 ? index + embedding_count(layer) : index);
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct embedding_config *c = config_of(layer);
    int64_t shape[2] = {embedding_count(layer), c->embedding_dim};
    TRY(embedding_check_input(layer));
    if (layer->in.dims != 1) return status_new(STATUS_USAGE, "its input must be rows of one dimension, (tokens)");
    TRY(embedding_check_count(layer));
    if (c->padding_idx != SCHEMA_NO_INT && (c->padding_idx >= shape[0] || c->padding_idx < -shape[0]))
        return status_new(STATUS_USAGE, "padding_idx must be from %lld to %lld, got %lld", -(long long)shape[0],
                          (long long)shape[0] - 1, (long long)c->padding_idx);
    layer->out = (struct shape){.dims = 1, .size = {c->embedding_dim}};
    layer->saved_size = c->mode == BAG_MAX ? width(layer) : 0;
    params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.weight", layer->name), 2,
                   shape);
    return OK;
}

/* layer->runtime: the tokens (batch, tokens) of an input of values. */
static status alloc(struct layer *layer, struct device *device, size_t batch) {
    if (layer->in.is_tokens) return OK;
    return device_alloc(device, batch * layer->in_size * sizeof(int32_t), "an embedding_bag", &layer->runtime);
}

static void release(struct layer *layer, struct device *device) { device_free(device, layer->runtime); }

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    embedding_draw(layer, params, rng, padding_of(layer));
}

static struct embedding_bag bag_of(const struct layer *layer, const struct pass *pass) {
    return (struct embedding_bag){.mode = (enum bag_mode)config_of(layer)->mode,
                                  .rows = pass->rows,
                                  .tokens = layer->in_size,
                                  .vocabulary = (size_t)embedding_count(layer),
                                  .size = width(layer),
                                  .padding = padding_of(layer)};
}

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    struct embedding_bag bag = bag_of(layer, pass);
    device_ops(pass->device)
        ->sequence->embedding_bag_forward(pass->device, &bag, embedding_tokens(layer, pass, x, layer->runtime),
                                          params_value(pass->params, layer->first_param), y,
                                          (int32_t *)(void *)layer->saved);
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    struct embedding_bag bag = bag_of(layer, pass);
    const int32_t *tokens = layer->in.is_tokens ? (const int32_t *)(const void *)x : layer->runtime;
    (void)y;
    (void)dx; /* tokens have no gradient */
    device_ops(pass->device)
        ->sequence->embedding_bag_backward(pass->device, &bag, tokens, (const int32_t *)(const void *)layer->saved, dy,
                                           params_gradient(pass->params, layer->first_param));
}

static void describe(const struct layer *layer, struct operation *to) {
    to->kind = OPERATION_EMBEDDING_BAG;
    to->weight = layer->first_param;
    to->bag = (enum bag_mode)config_of(layer)->mode;
    to->padding = padding_of(layer);
}

const struct layer_type layer_embedding_bag = {
    .variant = {"embedding_bag", &schema,
                "The mean, sum or maximum of the learned vectors of a row's tokens (torch.nn.EmbeddingBag)."},
    .takes_tokens = true,
    .ignores = IGNORES_Y,
    .check_row = embedding_check_values,
    .plan = plan,
    .alloc = alloc,
    .release = release,
    .init = init,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
