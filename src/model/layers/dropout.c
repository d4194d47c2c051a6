/* dropout: in training, zeroes elements with probability p and scales the others by 1 / (1 - p) (torch.nn.Dropout). The
 * mask is a function of (seed, layer, step, row of the global batch, element): backward computes it again instead of
 * storing it, a resume gets the same mask, and so do 2 ranks x 16 rows and 1 rank x 32 rows. PyTorch's masks differ. */
#include "model/layers/layers.h"

struct dropout_config {
    double p;
};

static const struct schema_row rows[] = {
    {.key = "p",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct dropout_config, p),
     .fallback = "0.5",
     .min = 0,
     .max = 1,
     .doc = "Probability that an element is zeroed."},
    {0},
};

static const struct schema schema = {
    .name = "model.layers.dropout", .size = sizeof(struct dropout_config), .rows = rows, .shorthand = "p"};

static status plan(struct layer *layer, struct planning *planning) {
    (void)planning;
    layer->out = layer->in;
    return OK;
}

static void apply(const struct layer *layer, const struct pass *pass, const float *from, float *to) {
    double p = ((const struct dropout_config *)layer->config)->p;
    if (!pass->is_training || p == 0) {
        device_ops(pass->device)->copy(pass->device, from, to, pass->rows * layer->in_size);
        return;
    }
    struct draw_key key = pass->draws;
    key.stream = layer->stream;
    device_ops(pass->device)->dropout(pass->device, &key, (float)p, from, to, pass->rows, layer->in_size);
}

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    apply(layer, pass, x, y);
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    (void)x;
    (void)y;
    if (dx) apply(layer, pass, dy, dx);
}

static void describe(const struct layer *layer, struct operation *to) {
    (void)layer;
    to->kind = OPERATION_IDENTITY;
}

const struct layer_type layer_dropout = {
    .variant = {"dropout", &schema,
                "In training, zeroes elements with probability p and scales the rest (torch.nn.Dropout)."},
    .order = ORDER_ANY,
    .ignores = IGNORES_X_AND_Y,
    .half = HALF_ALL,
    .is_by_position = true,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
