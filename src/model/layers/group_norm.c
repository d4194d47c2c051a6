/* group_norm: torch.nn.GroupNorm; the first dimension of a row is the channels. */
#include "model/layers/images.h"
#include "model/layers/layers.h"

struct group_norm_config {
    int64_t num_groups;
    double eps;
    bool affine;
};

static const struct schema_row rows[] = {
    {.key = "num_groups",
     .type = SCHEMA_INT,
     .offset = offsetof(struct group_norm_config, num_groups),
     .flags = SCHEMA_REQUIRED,
     .min = 1,
     .max = 1 << 20,
     .doc = "Groups of channels that are normalised together; must divide the channels."},
    {.key = "eps",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct group_norm_config, eps),
     .fallback = "1.0e-5",
     .min = 0,
     .max = 1,
     .excludes_min = true,
     .doc = "Added to the variance."},
    {.key = "affine",
     .type = SCHEMA_BOOL,
     .offset = offsetof(struct group_norm_config, affine),
     .fallback = "true",
     .doc = "Whether a learned weight and bias per channel are applied."},
    {0},
};

static const struct schema schema = {.name = "model.layers.group_norm",
                                     .size = sizeof(struct group_norm_config),
                                     .rows = rows,
                                     .shorthand = "num_groups"};

static const struct group_norm_config *config_of(const struct layer *layer) { return layer->config; }

static struct group_norm norm_of(const struct layer *layer) {
    size_t channels = (size_t)layer->in.size[0];
    return (struct group_norm){.channels = channels,
                               .groups = (size_t)config_of(layer)->num_groups,
                               .positions = layer->in_size / channels,
                               .eps = (float)config_of(layer)->eps};
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct group_norm_config *c = config_of(layer);
    if (layer->in.size[0] % c->num_groups != 0)
        return status_new(STATUS_USAGE, "num_groups must divide the channels (%lld), got %lld",
                          (long long)layer->in.size[0], (long long)c->num_groups);
    layer->out = layer->in;
    layer->saved_size = 2 * (size_t)c->num_groups;
    if (!c->affine) return OK;
    params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.weight", layer->name), 1,
                   layer->in.size);
    params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.bias", layer->name), 1,
                   layer->in.size);
    return OK;
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    (void)rng;
    if (!config_of(layer)->affine) return;
    float *weight = params_value(params, layer->first_param), *bias = params_value(params, layer->first_param + 1);
    for (int64_t c = 0; c < layer->in.size[0]; c++) {
        weight[c] = 1;
        bias[c] = 0;
    }
}

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    bool affine = config_of(layer)->affine;
    struct group_norm norm = norm_of(layer);
    size_t p = layer->first_param;
    device_ops(pass->device)
        ->image->group_norm_forward(pass->device, &norm, x, affine ? params_value(pass->params, p) : NULL,
                                    affine ? params_value(pass->params, p + 1) : NULL, layer->saved, y, pass->rows);
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    (void)y;
    bool affine = config_of(layer)->affine;
    struct group_norm norm = norm_of(layer);
    size_t p = layer->first_param;
    device_ops(pass->device)
        ->image->group_norm_backward(pass->device, &norm, x, affine ? params_value(pass->params, p) : NULL,
                                     layer->saved, dy, dx, affine ? params_gradient(pass->params, p) : NULL,
                                     affine ? params_gradient(pass->params, p + 1) : NULL, pass->rows);
}

static void describe(const struct layer *layer, struct operation *to) {
    to->kind = OPERATION_GROUP_NORM;
    to->groups = (size_t)config_of(layer)->num_groups;
    to->eps = (float)config_of(layer)->eps;
    if (config_of(layer)->affine) to->weight = layer->first_param, to->bias = layer->first_param + 1;
}

static bool runs_on(const struct device_ops *ops) { return ops->image->group_norm_forward != NULL; }

const struct layer_type layer_group_norm = {
    .variant = {"group_norm", &schema, "Normalises groups of channels of each row (torch.nn.GroupNorm)."},
    .order = ORDER_CHANNELS_LAST,
    .ignores = IGNORES_Y,
    .runs_on = runs_on,
    .plan = plan,
    .init = init,
    .autocast = AUTOCAST_FLOAT32,
    .forward = forward,
    .backward = backward,
    .half = HALF_ALL,
    .describe = describe,
};
