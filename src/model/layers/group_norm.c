/* group_norm and instance_norm: torch.nn.GroupNorm, and InstanceNorm, whose groups are the channels. The first
 * dimension of a row is the channels. */
#include "model/layers/layers.h"

struct group_norm_config {
    int64_t num_groups;
    double eps;
    bool affine;
};

/* [affine_]: the default of the key. */
#define NORM_ROWS(affine_)                                                                                             \
    SCHEMA_ROW(REAL, struct group_norm_config, eps, .fallback = "1.0e-5", .min = 0, .max = 1, .excludes_min = true,    \
               .doc = "Added to the variance."),                                                                       \
        SCHEMA_ROW(BOOL, struct group_norm_config, affine, .fallback = affine_,                                        \
                   .doc = "Whether a learned weight and bias per channel are applied.")

static const struct schema_row rows[] = {
    SCHEMA_ROW(INT, struct group_norm_config, num_groups, .flags = SCHEMA_REQUIRED, .min = 1, .max = 1 << 20,
               .doc = "Groups of channels that are normalised together; must divide the channels."),
    NORM_ROWS("true"),
    {0},
};
static const struct schema_row instance_rows[] = {NORM_ROWS("false"), {0}};

static const struct schema schema =
    SCHEMA("model.layers.group_norm", struct group_norm_config, .rows = rows, .shorthand = "num_groups");

static const struct schema instance_schema =
    SCHEMA("model.layers.instance_norm", struct group_norm_config, .rows = instance_rows);

static const struct group_norm_config *config_of(const struct layer *layer) { return layer->config; }

static size_t groups_of(const struct layer *layer) {
    return layer->type == &layer_instance_norm ? (size_t)layer->in.size[0] : (size_t)config_of(layer)->num_groups;
}

static struct group_norm norm_of(const struct layer *layer) {
    size_t channels = (size_t)layer->in.size[0];
    return (struct group_norm){.channels = channels,
                               .groups = groups_of(layer),
                               .positions = layer->in_size / channels,
                               .eps = (float)config_of(layer)->eps};
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct group_norm_config *c = config_of(layer);
    size_t groups = groups_of(layer);
    if (layer->type == &layer_instance_norm && layer->in.dims < 2)
        return status_new(STATUS_USAGE,
                          "needs an input of shape (channels, length) or (channels, height, width), got %lld",
                          (long long)layer->in.size[0]);
    if (layer->type == &layer_instance_norm && layer->in_size == groups)
        return status_new(STATUS_USAGE, "needs more than one position in each channel: each is normalised alone, so "
                                        "that one value becomes 0 whatever the input is");
    if ((size_t)layer->in.size[0] % groups != 0)
        return status_new(STATUS_USAGE, "num_groups must divide the channels (%lld), got %zu",
                          (long long)layer->in.size[0], groups);
    layer->out = layer->in;
    layer->saved_size = 2 * groups;
    if (!c->affine) return OK;
    layer_declare(layer, planning, "weight", 1, layer->in.size);
    layer_declare(layer, planning, "bias", 1, layer->in.size);
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

static void forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                    const struct tensor *y) {
    bool affine = config_of(layer)->affine;
    struct group_norm norm = norm_of(layer);
    size_t p = layer->first_param;
    device_ops(pass->device)
        ->image->group_norm_forward(pass->device, &norm, x, affine ? params_value(pass->params, p) : NULL,
                                    affine ? params_value(pass->params, p + 1) : NULL, layer->saved, y, pass->rows);
}

static void backward(const struct layer *layer, const struct pass *pass, const struct tensor *x, const struct tensor *y,
                     const struct tensor *dy, const struct tensor *dx) {
    (void)y;
    bool affine = config_of(layer)->affine;
    struct group_norm norm = norm_of(layer);
    size_t p = layer->first_param;
    device_ops(pass->device)
        ->image->group_norm_backward(pass->device, &norm, x, affine ? params_value(pass->params, p) : NULL,
                                     layer->saved, dy, dx, affine ? params_gradient(pass->params, p) : NULL,
                                     affine ? params_gradient(pass->params, p + 1) : NULL, pass->rows);
}

static const char *write_onnx(const struct onnx_call *c) {
    const struct layer *layer = c->layer;
    const char *x = onnx_reshape(c->g, c->x, (const int64_t[]){(int64_t)groups_of(layer), -1}, 2);
    const char *centered = onnx_node2(c->g, "Sub", x, onnx_mean_of_last(c->g, x));
    const char *y = onnx_reshape(c->g, onnx_over_root_mean_square(c->g, centered, (float)config_of(layer)->eps),
                                 layer->in.size, (size_t)layer->in.dims);
    if (!config_of(layer)->affine) return y;
    y = onnx_node2(c->g, "Mul", y, onnx_of_channels(c, layer->first_param));
    return onnx_node2(c->g, "Add", y, onnx_of_channels(c, layer->first_param + 1));
}

static void write_c(const struct c_call *c) {
    const struct layer *layer = c->layer;
    size_t channels = (size_t)layer->in.size[0];
    bool affine = config_of(layer)->affine;
    const char *w = c_plain(c, affine ? layer->first_param : NO_PARAM);
    const char *b = c_plain(c, affine ? layer->first_param + 1 : NO_PARAM);
    text_printf(c_use(c, "group_norm"), "    group_norm(%s, %s, %s, %a, %s, %zu, %zu, %zu);\n", c->x, w, b,
                (double)(float)config_of(layer)->eps, c->y, layer->in_size / channels, channels, groups_of(layer));
}

/* What both rows have. */
#define GROUP_NORM                                                                                                     \
    .memory_format = FORMAT_CHANNELS_LAST, .ignores = IGNORES_Y, .plan = plan, .init = init,                           \
    .autocast = AUTOCAST_FLOAT32, .forward = forward, .backward = backward, .half = HALF_ALL, .onnx = write_onnx,      \
    .c = write_c

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "InstanceNorm1d InstanceNorm2d InstanceNormalization", "instance_norm"),
    VALUE_ALIAS("layer", "GroupNormalization", "group_norm"),
    KEY_ALIAS("layer.group_norm", "groups num_group", ".num_groups"),
    CALL_ALIAS("layer", "group_norm", "num_groups - eps affine"),
    {0},
};

const struct layer_type layer_group_norm = {
    .aliases = aliases,
    .variant = {"group_norm", &schema, "Normalises groups of channels of each row (torch.nn.GroupNorm)."},
    GROUP_NORM,
    .pytorch = "nn.GroupNorm({num_groups}, {channels}{,eps}{,affine})",
};
const struct layer_type layer_instance_norm = {
    .variant =
        {"instance_norm", &instance_schema,
         "Normalises each channel of each row (torch.nn.InstanceNorm1d, InstanceNorm2d, without running statistics)."},
    GROUP_NORM,
    .pytorch = "nn.InstanceNorm{d}d({channels}{,eps}{,affine})",
};
