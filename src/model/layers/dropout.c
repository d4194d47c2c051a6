/* dropout: in training, zeroes elements with probability p and scales the others by 1 / (1 - p) (torch.nn.Dropout);
 * dropout1d, dropout2d and dropout3d whole channels, drop_path whole rows. alpha_dropout and feature_alpha_dropout keep
 * the mean and the variance of the output of selu instead. The mask is a function of (seed, layer, step, row of
 * the global batch, element or channel): backward computes it again where a device is not faster with a stored bit for
 * each element, a resume gets the same mask, and so do 2 ranks x 16 rows and 1 rank x 32 rows. PyTorch's masks differ.
 */
#include <math.h>

#include "model/layers/images.h"
#include "model/layers/layers.h"

enum path_mode { PATH_ROW, PATH_BATCH };
static const char *const path_modes[] = {"row", "batch", NULL};

struct dropout_config {
    double p;
    int mode; /* enum path_mode; of drop_path */
};

#define P_ROW(doc_, ...) SCHEMA_ROW(REAL, struct dropout_config, p, .min = 0, .max = 1, .doc = doc_, __VA_ARGS__)

static const struct schema_row element_rows[] = {P_ROW("Probability that an element is zeroed.", .fallback = "0.5"),
                                                 {0}};
static const struct schema_row channel_rows[] = {P_ROW("Probability that a channel is zeroed.", .fallback = "0.5"),
                                                 {0}};
static const struct schema_row alpha_rows[] = {
    P_ROW("Probability that an element becomes the limit of selu.", .fallback = "0.5"), {0}};
static const struct schema_row alpha_channel_rows[] = {
    P_ROW("Probability that the elements of a channel become the limit of selu.", .fallback = "0.5"), {0}};
static const struct schema_row path_rows[] = {
    P_ROW("Probability that the branch of a row is zeroed.", .flags = SCHEMA_REQUIRED),
    SCHEMA_ROW(CHOICE, struct dropout_config, mode, .fallback = "row", .choices = path_modes,
               .doc = "`row`: each row has a draw of its own; `batch`: one draw for all rows of a step."),
    {0},
};

#define DROPOUT_SCHEMA(type_, rows_)                                                                                   \
    static const struct schema type_##_schema = {                                                                      \
        .name = "model.layers." #type_, .size = sizeof(struct dropout_config), .rows = rows_, .shorthand = "p"};
DROPOUT_SCHEMA(dropout, element_rows)
DROPOUT_SCHEMA(dropout1d, channel_rows)
DROPOUT_SCHEMA(dropout2d, channel_rows)
DROPOUT_SCHEMA(dropout3d, channel_rows)
DROPOUT_SCHEMA(alpha_dropout, alpha_rows)
DROPOUT_SCHEMA(feature_alpha_dropout, alpha_channel_rows)
DROPOUT_SCHEMA(drop_path, path_rows)
#undef DROPOUT_SCHEMA

static const struct dropout_config *config_of(const struct layer *layer) { return layer->config; }

static status plan_channels(struct layer *layer, struct planning *planning) {
    const struct layer_type *type = layer->type;
    TRY(image_check(layer, type == &layer_dropout1d ? 2 : type == &layer_dropout2d ? 3 : 4));
    return layer_plan_same(layer, planning);
}

/* [channels] with a draw each; 0: each element has one. */
static void apply(const struct layer *layer, const struct pass *pass, const struct tensor *from,
                  const struct tensor *to, size_t channels) {
    const struct dropout_config *c = config_of(layer);
    struct draw_key key = pass->draws;
    key.stream = layer->stream;
    if (c->mode == PATH_BATCH) key.first_row = key.row_stride = 0;
    if (!pass->is_training || c->p == 0)
        pass->ops->copy(pass->device, from, to, pass->rows * layer->in_size);
    else if (channels > 0)
        pass->ops->dropout_channels(pass->device, &key, (float)c->p, from, to, pass->rows, layer->in_size, channels);
    else
        pass->ops->dropout(pass->device, &key, (float)c->p, from, to, pass->rows, layer->in_size);
}

static size_t channels_of(const struct layer *layer) { return (size_t)layer->in.size[0]; }

/* ---- dropout ---- */

static status plan_elements(struct layer *layer, struct planning *planning) {
    size_t bytes = DROPOUT_BITS(layer->in_size) * sizeof(uint16_t);
    layer->saved_size = (bytes + sizeof(float) - 1) / sizeof(float);
    return layer_plan_same(layer, planning);
}

static uint16_t *kept_of(const struct layer *layer) { return (uint16_t *)(void *)layer->saved; }

static bool saves_mask(const struct layer *layer, const struct pass *pass) {
    return pass->ops->dropout_saving && pass->is_training && config_of(layer)->p > 0;
}

static void forward_elements(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct draw_key key = pass->draws;
    key.stream = layer->stream;
    if (saves_mask(layer, pass))
        pass->ops->dropout_saving(pass->device, &key, (float)config_of(layer)->p, o.x, o.y, kept_of(layer), pass->rows,
                                  layer->in_size);
    else
        apply(layer, pass, o.x, o.y, 0);
}

static void backward_elements(const struct layer *layer, const struct pass *pass, struct operands o) {
    if (!o.dx) return;
    if (saves_mask(layer, pass))
        pass->ops->dropout_saved(pass->device, (float)config_of(layer)->p, kept_of(layer), o.dy, o.dx, pass->rows,
                                 layer->in_size);
    else
        apply(layer, pass, o.dy, o.dx, 0);
}

#define PASSES(name_, channels_)                                                                                       \
    static void forward_##name_(const struct layer *layer, const struct pass *pass, struct operands o) {               \
        apply(layer, pass, o.x, o.y, channels_);                                                                       \
    }                                                                                                                  \
    static void backward_##name_(const struct layer *layer, const struct pass *pass, struct operands o) {              \
        if (o.dx) apply(layer, pass, o.dy, o.dx, channels_);                                                           \
    }
PASSES(channels, channels_of(layer))
PASSES(rows, 1)
#undef PASSES

/* ---- alpha_dropout ---- */

static status plan_alpha(struct layer *layer, struct planning *planning) {
    layer->saved_size = layer->in_size;
    return layer_plan_same(layer, planning);
}

#define SELU_LIMIT 1.7580993408473766 /* selu of minus infinity is minus this, its scale times its alpha */

/* y = a (mask (x + limit) / (1 - p) - limit): an element that is dropped was -limit, and a keeps the variance, which is
 * 1. [is_forward]: else of gradients. */
static void apply_alpha(const struct layer *layer, const struct pass *pass, const struct tensor *from,
                        const struct tensor *to, size_t channels, bool is_forward) {
    double p = config_of(layer)->p, a = sqrt((1 - p) / (SELU_LIMIT * SELU_LIMIT * p + 1));
    struct keyed_activation shift = {KEYED_AFFINE, 1, (float)SELU_LIMIT};
    struct keyed_activation scale = {KEYED_AFFINE, (float)a, is_forward ? (float)(-a * SELU_LIMIT) : 0};
    size_t count = pass->rows * layer->in_size;
    if (!pass->is_training || p == 0) {
        apply(layer, pass, from, to, channels);
        return;
    }
    if (is_forward) pass->ops->keyed_forward(pass->device, &shift, from, to, count);
    apply(layer, pass, is_forward ? to : from, F32(layer->saved), channels);
    pass->ops->keyed_forward(pass->device, &scale, F32(layer->saved), to, count);
}

#define ALPHA_PASSES(name_, channels_)                                                                                 \
    static void forward_##name_(const struct layer *layer, const struct pass *pass, struct operands o) {               \
        apply_alpha(layer, pass, o.x, o.y, channels_, true);                                                           \
    }                                                                                                                  \
    static void backward_##name_(const struct layer *layer, const struct pass *pass, struct operands o) {              \
        if (o.dx) apply_alpha(layer, pass, o.dy, o.dx, channels_, false);                                              \
    }
ALPHA_PASSES(alpha, 0)
ALPHA_PASSES(alpha_channels, channels_of(layer))
#undef ALPHA_PASSES

#define DROPOUT_LAYER(name_)                                                                                           \
    .ignores = IGNORES_X_AND_Y, .forward = forward_##name_, .backward = backward_##name_, .is_identity = true

#define DROPOUT(name_) DROPOUT_LAYER(name_), .half = HALF_ALL

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "SpatialDropout1D", "dropout1d"),
    VALUE_ALIAS("layer", "SpatialDropout2D", "dropout2d"),
    VALUE_ALIAS("layer", "StochasticDepth stochastic_depth", "drop_path"),
    KEY_ALIAS("layer.dropout", "rate prob probability dropout dropout_rate drop_prob ratio", ".p"),
    KEY_ALIAS("layer.dropout1d", "rate prob probability dropout_rate drop_prob", ".p"),
    KEY_ALIAS("layer.dropout2d", "rate prob probability dropout_rate drop_prob", ".p"),
    VALUE_ALIAS("layer", "SpatialDropout3D", "dropout3d"),
    KEY_ALIAS("layer.dropout3d", "rate prob probability dropout_rate drop_prob", ".p"),
    KEY_ALIAS("layer.alpha_dropout", "rate prob probability dropout_rate drop_prob", ".p"),
    KEY_ALIAS("layer.feature_alpha_dropout", "rate prob probability dropout_rate drop_prob", ".p"),
    KEY_ALIAS("layer.drop_path", "rate prob probability drop_prob drop_rate drop_path_rate", ".p"),
    CALL_ALIAS("layer", "dropout", "p"),
    {0},
};

const struct layer_type layer_dropout = {
    .aliases = aliases,
    .variant = {"dropout", &dropout_schema,
                "In training, zeroes elements with probability p and scales the rest (torch.nn.Dropout)."},
    .memory_format = FORMAT_PRESERVE,
    .is_by_position = true,
    .plan = plan_elements,
    DROPOUT(elements),
    .pytorch = "Dropout({p}, stream={number}{order})",
};
const struct layer_type layer_dropout1d = {
    .variant = {"dropout1d", &dropout1d_schema,
                "In training, zeroes whole channels of (channels, length) with probability p and scales the rest "
                "(torch.nn.Dropout1d)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .keeps_positions = true,
    .plan = plan_channels,
    DROPOUT(channels),
    .pytorch = "ChannelDropout({p}, stream={number})",
};
const struct layer_type layer_dropout2d = {
    .variant = {"dropout2d", &dropout2d_schema,
                "In training, zeroes whole channels of (channels, height, width) with probability p and scales the "
                "rest (torch.nn.Dropout2d)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .keeps_positions = true,
    .plan = plan_channels,
    DROPOUT(channels),
    .pytorch = "ChannelDropout({p}, stream={number})",
};
const struct layer_type layer_dropout3d = {
    .variant = {"dropout3d", &dropout3d_schema,
                "In training, zeroes whole channels of (channels, depth, height, width) with probability p and scales "
                "the rest (torch.nn.Dropout3d)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .keeps_positions = true,
    .plan = plan_channels,
    DROPOUT(channels),
    .pytorch = "ChannelDropout({p}, stream={number})",
};
const struct layer_type layer_alpha_dropout = {
    .variant = {"alpha_dropout", &alpha_dropout_schema,
                "The dropout of selu: in training, elements become its limit with probability p, and all are scaled "
                "and shifted so that mean 0 and variance 1 remain (torch.nn.AlphaDropout)."},
    .memory_format = FORMAT_PRESERVE,
    .is_by_position = true,
    .plan = plan_alpha,
    DROPOUT_LAYER(alpha),
    .pytorch = "AlphaDropout({p}, stream={number}{order})",
};
const struct layer_type layer_feature_alpha_dropout = {
    .variant = {"feature_alpha_dropout", &feature_alpha_dropout_schema,
                "The same of whole channels, the first dimension of the input (torch.nn.FeatureAlphaDropout)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .plan = plan_alpha,
    DROPOUT_LAYER(alpha_channels),
    .pytorch = "FeatureAlphaDropout({p}, stream={number})",
};
const struct layer_type layer_drop_path = {
    .variant =
        {"drop_path", &drop_path_schema,
         "Stochastic depth: as the last layer of a residual branch, in training, zeroes the branch of a row with "
         "probability p and scales the others by 1 / (1 - p) (torchvision.ops.StochasticDepth, timm's DropPath)."},
    .memory_format = FORMAT_PRESERVE,
    .is_by_position = true,
    .plan = layer_plan_same,
    DROPOUT(rows),
    .pytorch = "DropPath({p}{,mode}, stream={number})",
};
