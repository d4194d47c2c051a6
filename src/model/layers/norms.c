/* layer_norm and rms_norm: over the last dimension (torch.nn.LayerNorm, torch.nn.RMSNorm); group_norm and
 * instance_norm: torch.nn.GroupNorm, and InstanceNorm, whose groups are the channels, the first dimension of a row. */
#include "device/norm.h"

#include <float.h>
#include <math.h>

#include "model/layers/layers.h"

/* The keys of all of them. */
struct norm_config {
    double eps; /* NAN: RMSNorm's default, FLT_EPSILON */
    bool affine, bias;
    int64_t num_groups;
};

#define EPS(fallback_, doc_, ...)                                                                                      \
    SCHEMA_ROW(REAL, struct norm_config, eps, .fallback = fallback_, .min = 0, .max = 1, .doc = doc_, __VA_ARGS__)
#define ELEMENTWISE                                                                                                    \
    SCHEMA_KEY(BOOL, "elementwise_affine", struct norm_config, affine, .fallback = "true",                             \
               .doc = "Whether the result is multiplied by a learned weight.")
/* [affine_]: the default of the key. */
#define GROUP_ROWS(affine_)                                                                                            \
    EPS("1.0e-5", "Added to the variance.", ),                                                                         \
        SCHEMA_ROW(BOOL, struct norm_config, affine, .fallback = affine_,                                              \
                   .doc = "Whether a learned weight and bias per channel are applied.")

static const struct schema_row layer_norm_rows[] = {
    EPS("1e-5", "Added to the variance.", ),
    ELEMENTWISE,
    SCHEMA_ROW(BOOL, struct norm_config, bias, .fallback = "true",
               .doc = "Whether a learned bias is added (requires elementwise_affine)."),
    {0},
};
static const struct schema_row rms_norm_rows[] = {
    EPS("null", "Added to the mean square; null: 1.19e-7, as PyTorch's default.", ),
    ELEMENTWISE,
    {0},
};
static const struct schema_row group_norm_rows[] = {
    SCHEMA_ROW(INT, struct norm_config, num_groups, .flags = SCHEMA_REQUIRED, .min = 1, .max = 1 << 20,
               .doc = "Groups of channels that are normalised together; must divide the channels."),
    GROUP_ROWS("true"),
    {0},
};
static const struct schema_row instance_norm_rows[] = {GROUP_ROWS("false"), {0}};

static const struct schema layer_norm_schema =
    SCHEMA("model.layers.layer_norm", struct norm_config, .rows = layer_norm_rows);
static const struct schema rms_norm_schema = SCHEMA("model.layers.rms_norm", struct norm_config, .rows = rms_norm_rows);
static const struct schema group_norm_schema =
    SCHEMA("model.layers.group_norm", struct norm_config, .rows = group_norm_rows, .shorthand = "num_groups");
static const struct schema instance_norm_schema =
    SCHEMA("model.layers.instance_norm", struct norm_config, .rows = instance_norm_rows);

static const struct norm_config *config_of(const struct layer *layer) { return layer->config; }
static bool is_of_groups(const struct layer *layer) {
    return layer->type == &layer_group_norm || layer->type == &layer_instance_norm;
}
static bool has_weight(const struct layer *layer) { return config_of(layer)->affine; }
static bool has_bias(const struct layer *layer) {
    return has_weight(layer) && (is_of_groups(layer) || (layer->type == &layer_layer_norm && config_of(layer)->bias));
}

/* Elements of the weight: those of the last dimension, or the channels. */
static size_t width(const struct layer *layer) {
    return (size_t)layer->in.size[is_of_groups(layer) ? 0 : layer->in.dims - 1];
}

static void declare(const struct layer *layer, struct planning *planning) {
    int64_t shape[1] = {(int64_t)width(layer)};
    if (has_weight(layer)) layer_declare(layer, planning, "weight", 1, shape);
    if (has_bias(layer)) layer_declare(layer, planning, "bias", 1, shape);
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    for (size_t i = 0; has_weight(layer) && i < width(layer); i++) params_value(params, layer->first_param)[i] = 1;
    for (size_t i = 0; has_bias(layer) && i < width(layer); i++) params_value(params, layer->first_param + 1)[i] = 0;
}

/* NULL: it has none. */
static float *weight_in(const struct layer *layer, const struct pass *pass) {
    return has_weight(layer) ? params_value(pass->params, layer->first_param) : NULL;
}
static float *bias_in(const struct layer *layer, const struct pass *pass) {
    return has_bias(layer) ? params_value(pass->params, layer->first_param + 1) : NULL;
}
static float *weight_slopes(const struct layer *layer, const struct pass *pass) {
    return has_weight(layer) ? params_gradient(pass->params, layer->first_param) : NULL;
}
static float *bias_slopes(const struct layer *layer, const struct pass *pass) {
    return has_bias(layer) ? params_gradient(pass->params, layer->first_param + 1) : NULL;
}

static size_t weight_of(const struct layer *layer) { return has_weight(layer) ? layer->first_param : NO_PARAM; }
static size_t bias_of(const struct layer *layer) { return has_bias(layer) ? layer->first_param + 1 : NO_PARAM; }

/* ---- layer_norm and rms_norm ---- */

/* Number of vectors (last dimension) in [rows] rows of the batch. */
static size_t vectors(const struct layer *layer, size_t rows) { return rows * (layer->in_size / width(layer)); }

static status plan(struct layer *layer, struct planning *planning) {
    layer->out = layer->in;
    declare(layer, planning);
    layer->saved_size = layer->in_size / width(layer) * (layer->type == &layer_layer_norm ? 2 : 1);
    return OK;
}

static void layer_norm_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    pass->ops->norm_layers->layer_norm_forward(pass->device, floats(o.x), weight_in(layer, pass), bias_in(layer, pass),
                                               (float)config_of(layer)->eps, o.y, layer->saved,
                                               vectors(layer, pass->rows), width(layer));
}

static bool layer_norm_takes_sum(const struct device_ops *ops) { return ops->norm_layers->add_layer_norm_forward; }

static void layer_norm_of_sum(const struct layer *layer, const struct pass *pass, const struct tensor *a,
                              const struct tensor *b, const struct tensor *x, const struct tensor *y) {
    const struct norm_ops *ops = pass->ops->norm_layers;
    ops->add_layer_norm_forward(pass->device, a, b, floats(x), weight_in(layer, pass), bias_in(layer, pass),
                                (float)config_of(layer)->eps, y, layer->saved, vectors(layer, pass->rows),
                                width(layer));
}

static void layer_norm_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    pass->ops->norm_layers->layer_norm_backward(pass->device, floats(o.x), weight_in(layer, pass), layer->saved, o.dy,
                                                o.dx, layer->adds_to_dx, weight_slopes(layer, pass),
                                                bias_slopes(layer, pass), vectors(layer, pass->rows), width(layer));
}

static float rms_eps(const struct layer *layer) {
    double eps = config_of(layer)->eps;
    return isnan(eps) ? FLT_EPSILON : (float)eps;
}

static void rms_norm_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    pass->ops->norm_layers->rms_norm_forward(pass->device, floats(o.x), weight_in(layer, pass), rms_eps(layer), o.y,
                                             layer->saved, vectors(layer, pass->rows), width(layer));
}

static bool rms_norm_takes_sum(const struct device_ops *ops) { return ops->norm_layers->add_rms_norm_forward; }

static void rms_norm_of_sum(const struct layer *layer, const struct pass *pass, const struct tensor *a,
                            const struct tensor *b, const struct tensor *x, const struct tensor *y) {
    const struct norm_ops *ops = pass->ops->norm_layers;
    ops->add_rms_norm_forward(pass->device, a, b, floats(x), weight_in(layer, pass), rms_eps(layer), y, layer->saved,
                              vectors(layer, pass->rows), width(layer));
}

static void rms_norm_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    pass->ops->norm_layers->rms_norm_backward(pass->device, floats(o.x), weight_in(layer, pass), layer->saved, o.dy,
                                              o.dx, layer->adds_to_dx, weight_slopes(layer, pass),
                                              vectors(layer, pass->rows), width(layer));
}

static float layer_eps(const struct layer *layer) { return (float)config_of(layer)->eps; }

static void layer_facts(const struct layer *layer, struct layer_facts *to) { to->layer_norm_eps = layer_eps(layer); }
static void rms_facts(const struct layer *layer, struct layer_facts *to) { to->rms_norm_eps = rms_eps(layer); }

static const char *layer_onnx(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    onnx_float(&attributes, "epsilon", layer_eps(c->layer));
    const char *inputs[3] = {c->x, onnx_param_or(c->g, weight_of(c->layer), width(c->layer), 1)};
    if (has_bias(c->layer)) inputs[2] = onnx_param(c->g, bias_of(c->layer));
    return onnx_node(c->g, "LayerNormalization", inputs, inputs[2] ? 3 : 2, &attributes);
}

static const char *rms_onnx(const struct onnx_call *c) {
    const char *y = onnx_over_root_mean_square(c->g, c->x, rms_eps(c->layer));
    return has_weight(c->layer) ? onnx_node2(c->g, "Mul", y, onnx_param(c->g, weight_of(c->layer))) : y;
}

static void layer_c(const struct c_call *c) {
    const char *w = c_plain(c, weight_of(c->layer)), *b = c_plain(c, bias_of(c->layer));
    text_printf(&c->c->body, "    layer_norm(%s, %s, %s, %af, %s, %zu, %zu);\n", c->x, w, b,
                (double)layer_eps(c->layer), c->y, vectors(c->layer, 1), width(c->layer));
}

static void rms_c(const struct c_call *c) {
    text_printf(&c->c->body, "    rms_norm(%s, %s, %af, %s, %zu, %zu);\n", c->x, c_plain(c, weight_of(c->layer)),
                (double)rms_eps(c->layer), c->y, vectors(c->layer, 1), width(c->layer));
}

/* What both rows have. The input is a residual stream, which stays float32. */
#define NORM                                                                                                           \
    .is_by_position = true, .can_add_to_dx = true, .ignores = IGNORES_Y, .plan = plan, .init = init,                   \
    .half = HALF_Y | HALF_DY, .autocast = AUTOCAST_FLOAT32

/* ---- group_norm and instance_norm ---- */

static size_t groups_of(const struct layer *layer) {
    return layer->type == &layer_instance_norm ? (size_t)layer->in.size[0] : (size_t)config_of(layer)->num_groups;
}

static struct group_norm groups_in(const struct layer *layer) {
    size_t channels = (size_t)layer->in.size[0];
    return (struct group_norm){.channels = channels,
                               .groups = groups_of(layer),
                               .positions = layer->in_size / channels,
                               .eps = (float)config_of(layer)->eps};
}

static status group_plan(struct layer *layer, struct planning *planning) {
    size_t groups = groups_of(layer);
    if (layer->type == &layer_instance_norm && layer->in.dims < 2)
        return status_usage("needs an input of shape (channels, length) or (channels, height, width), got %lld",
                            (long long)layer->in.size[0]);
    if (layer->type == &layer_instance_norm && layer->in_size == groups)
        return status_usage("needs more than one position in each channel: each is normalised alone, so "
                            "that one value becomes 0 whatever the input is");
    if ((size_t)layer->in.size[0] % groups != 0)
        return status_usage("num_groups must divide the channels (%lld), got %zu", (long long)layer->in.size[0],
                            groups);
    layer->out = layer->in;
    layer->saved_size = 2 * groups;
    declare(layer, planning);
    return OK;
}

static void group_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct group_norm norm = groups_in(layer);
    pass->ops->image->group_norm_forward(pass->device, &norm, o.x, weight_in(layer, pass), bias_in(layer, pass),
                                         layer->saved, o.y, pass->rows);
}

static void group_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct group_norm norm = groups_in(layer);
    pass->ops->image->group_norm_backward(pass->device, &norm, o.x, weight_in(layer, pass), layer->saved, o.dy, o.dx,
                                          weight_slopes(layer, pass), bias_slopes(layer, pass), pass->rows);
}

static const char *group_onnx(const struct onnx_call *c) {
    const struct layer *layer = c->layer;
    const char *x = onnx_reshape(c->g, c->x, (const int64_t[]){(int64_t)groups_of(layer), -1}, 2);
    const char *centered = onnx_node2(c->g, "Sub", x, onnx_mean_of_last(c->g, x));
    const char *y = onnx_reshape(c->g, onnx_over_root_mean_square(c->g, centered, (float)config_of(layer)->eps),
                                 layer->in.size, (size_t)layer->in.dims);
    if (!has_weight(layer)) return y;
    y = onnx_node2(c->g, "Mul", y, onnx_of_channels(c, layer->first_param));
    return onnx_node2(c->g, "Add", y, onnx_of_channels(c, layer->first_param + 1));
}

static void group_c(const struct c_call *c) {
    const struct layer *layer = c->layer;
    size_t channels = (size_t)layer->in.size[0];
    const char *w = c_plain(c, weight_of(layer)), *b = c_plain(c, bias_of(layer));
    text_printf(&c->c->body, "    group_norm(%s, %s, %s, %a, %s, %zu, %zu, %zu);\n", c->x, w, b,
                (double)(float)config_of(layer)->eps, c->y, layer->in_size / channels, channels, groups_of(layer));
}

/* What both rows have. */
#define GROUP_NORM                                                                                                     \
    .memory_format = FORMAT_CHANNELS_LAST, .ignores = IGNORES_Y, .plan = group_plan, .init = init,                     \
    .autocast = AUTOCAST_FLOAT32, .forward = group_forward, .backward = group_backward, .half = HALF_ALL,              \
    .onnx = group_onnx, .c = group_c

/* ---- the table ---- */

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "LayerNormalization ln", "layer_norm"),
    CALL_ALIAS("layer", "layer_norm", "- eps elementwise_affine bias"),
    CALL_ALIAS("layer", "rms_norm", "- eps elementwise_affine"),
    VALUE_ALIAS("layer", "InstanceNorm1d InstanceNorm2d InstanceNormalization", "instance_norm"),
    VALUE_ALIAS("layer", "GroupNormalization", "group_norm"),
    KEY_ALIAS("layer.group_norm", "groups num_group", ".num_groups"),
    CALL_ALIAS("layer", "group_norm", "num_groups - eps affine"),
    {0},
};

const struct layer_type layer_layer_norm = {
    .aliases = aliases,
    .variant = {"layer_norm", &layer_norm_schema,
                "Mean 0 and variance 1 over the last dimension, then weight and bias (torch.nn.LayerNorm)."},
    .forward = layer_norm_forward,
    .forward_of_sum = layer_norm_of_sum,
    .takes_sum = layer_norm_takes_sum,
    .backward = layer_norm_backward,
    .facts = layer_facts,
    .onnx = layer_onnx,
    .c = layer_c,
    NORM,
    .pytorch = "nn.LayerNorm({in}{,eps}{,elementwise_affine}{,bias})",
};
const struct layer_type layer_rms_norm = {
    .variant = {"rms_norm", &rms_norm_schema,
                "Mean square 1 over the last dimension, then a weight (torch.nn.RMSNorm)."},
    .forward = rms_norm_forward,
    .forward_of_sum = rms_norm_of_sum,
    .takes_sum = rms_norm_takes_sum,
    .backward = rms_norm_backward,
    .facts = rms_facts,
    .onnx = rms_onnx,
    .c = rms_c,
    NORM,
    .pytorch = "RMSNorm({in}, {eps|1.1920929e-07}{,elementwise_affine})",
};
const struct layer_type layer_group_norm = {
    .variant = {"group_norm", &group_norm_schema, "Normalises groups of channels of each row (torch.nn.GroupNorm)."},
    GROUP_NORM,
    .pytorch = "nn.GroupNorm({num_groups}, {channels}{,eps}{,affine})",
};
const struct layer_type layer_instance_norm = {
    .variant =
        {"instance_norm", &instance_norm_schema,
         "Normalises each channel of each row (torch.nn.InstanceNorm1d, InstanceNorm2d, without running statistics)."},
    GROUP_NORM,
    .pytorch = "nn.InstanceNorm{d}d({channels}{,eps}{,affine})",
};
