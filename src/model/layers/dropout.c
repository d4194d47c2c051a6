/* dropout: in training, zeroes elements with probability p and scales the others by 1 / (1 - p) (torch.nn.Dropout);
 * dropout1d and dropout2d whole channels, drop_path whole rows. The mask is a function of (seed, layer, step, row of
 * the global batch, element or channel): backward computes it again instead of storing it, a resume gets the same mask,
 * and so do 2 ranks x 16 rows and 1 rank x 32 rows. PyTorch's masks differ. */
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
DROPOUT_SCHEMA(drop_path, path_rows)
#undef DROPOUT_SCHEMA

static const struct dropout_config *config_of(const struct layer *layer) { return layer->config; }

static status plan(struct layer *layer, struct planning *planning) {
    (void)planning;
    layer->out = layer->in;
    return OK;
}

static status plan_channels(struct layer *layer, struct planning *planning) {
    TRY(image_check(layer, layer->type == &layer_dropout1d ? 2 : 3));
    return plan(layer, planning);
}

/* [channels] with a draw each; 0: each element has one. */
static void apply(const struct layer *layer, const struct pass *pass, const struct tensor *from,
                  const struct tensor *to, size_t channels) {
    const struct device_ops *ops = device_ops(pass->device);
    const struct dropout_config *c = config_of(layer);
    struct draw_key key = pass->draws;
    key.stream = layer->stream;
    if (c->mode == PATH_BATCH) key.first_row = key.row_stride = 0;
    if (!pass->is_training || c->p == 0)
        ops->copy(pass->device, from, to, pass->rows * layer->in_size);
    else if (channels > 0)
        ops->dropout_channels(pass->device, &key, (float)c->p, from, to, pass->rows, layer->in_size, channels);
    else
        ops->dropout(pass->device, &key, (float)c->p, from, to, pass->rows, layer->in_size);
}

static size_t channels_of(const struct layer *layer) { return (size_t)layer->in.size[0]; }

#define PASSES(name_, channels_)                                                                                       \
    static void forward_##name_(const struct layer *layer, const struct pass *pass, const struct tensor *x,            \
                                const struct tensor *y) {                                                              \
        apply(layer, pass, x, y, channels_);                                                                           \
    }                                                                                                                  \
    static void backward_##name_(const struct layer *layer, const struct pass *pass, const struct tensor *x,           \
                                 const struct tensor *y, const struct tensor *dy, const struct tensor *dx) {           \
        (void)x, (void)y;                                                                                              \
        if (dx) apply(layer, pass, dy, dx, channels_);                                                                 \
    }
PASSES(elements, 0)
PASSES(channels, channels_of(layer))
PASSES(rows, 1)
#undef PASSES

#define DROPOUT(name_)                                                                                                 \
    .ignores = IGNORES_X_AND_Y, .half = HALF_ALL, .forward = forward_##name_, .backward = backward_##name_,            \
    .is_identity = true

/* Names in other programs. */
static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "SpatialDropout1D", "dropout1d"),
    VALUE_ALIAS("layer", "SpatialDropout2D", "dropout2d"),
    VALUE_ALIAS("layer", "StochasticDepth stochastic_depth", "drop_path"),
    KEY_ALIAS("layer.dropout", "rate prob probability dropout dropout_rate drop_prob ratio", ".p"),
    KEY_ALIAS("layer.dropout1d", "rate prob probability dropout_rate drop_prob", ".p"),
    KEY_ALIAS("layer.dropout2d", "rate prob probability dropout_rate drop_prob", ".p"),
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
    .plan = plan,
    DROPOUT(elements),
    .pytorch = "Dropout({p}, stream={number})",
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
const struct layer_type layer_drop_path = {
    .variant =
        {"drop_path", &drop_path_schema,
         "Stochastic depth: as the last layer of a residual branch, in training, zeroes the branch of a row with "
         "probability p and scales the others by 1 / (1 - p) (torchvision.ops.StochasticDepth, timm's DropPath)."},
    .memory_format = FORMAT_PRESERVE,
    .is_by_position = true,
    .plan = plan,
    DROPOUT(rows),
    .pytorch = "DropPath({p}{,mode}, stream={number})",
};
