/* mean: the average over one dimension (torch.mean), over positions only of those that are not padding. */
#include "model/layers/joins.h"
#include "model/layers/layers.h"

struct mean_config {
    int64_t dim;
};

static const struct schema_row rows[] = {
    {.key = "dim",
     .type = SCHEMA_INT,
     .offset = offsetof(struct mean_config, dim),
     .fallback = "1",
     .min = -MAX_DIMS,
     .max = MAX_DIMS,
     .doc = "The dimension, as in PyTorch: 0 is the batch, 1 the positions of (positions, features), -1 the last."},
    {0},
};
static const struct schema schema = {
    .name = "model.layers.mean", .size = sizeof(struct mean_config), .rows = rows, .shorthand = "dim"};

static int dimension_of(const struct layer *layer) {
    return join_dimension(&layer->in, ((const struct mean_config *)layer->config)->dim);
}

static status plan(struct layer *layer, struct planning *planning) {
    int dimension = dimension_of(layer);
    (void)planning;
    if (layer->in.dims < 2 || dimension < 0)
        return status_new(STATUS_USAGE,
                          "dim %lld: the input has the dimensions 1 to %d (0 is the batch), and needs two",
                          (long long)((const struct mean_config *)layer->config)->dim, layer->in.dims);
    layer->out = (struct shape){.dims = layer->in.dims - 1};
    for (int d = 0, to = 0; d < layer->in.dims; d++)
        if (d != dimension) layer->out.size[to++] = layer->in.size[d];
    return OK;
}

/* The lengths of the averaged positions. */
static const int32_t *lengths_of(const struct layer *layer, const struct pass *pass) {
    return dimension_of(layer) == 0 ? pass_lengths(pass, &layer->in) : NULL;
}

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    size_t outer, inner, size = (size_t)layer->in.size[dimension_of(layer)];
    join_blocks(&layer->in, dimension_of(layer), &outer, &inner);
    device_ops(pass->device)
        ->sequence->mean_forward(pass->device, x, lengths_of(layer, pass), y, pass->rows * outer, size, inner);
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    size_t outer, inner, size = (size_t)layer->in.size[dimension_of(layer)];
    (void)x, (void)y;
    if (!dx) return;
    join_blocks(&layer->in, dimension_of(layer), &outer, &inner);
    device_ops(pass->device)
        ->sequence->mean_backward(pass->device, dy, lengths_of(layer, pass), dx, pass->rows * outer, size, inner);
}

static bool runs_on(const struct device_ops *ops) { return ops->sequence->mean_forward != NULL; }

static void describe(const struct layer *layer, struct operation *to) {
    to->kind = OPERATION_MEAN;
    to->dimension = dimension_of(layer);
}

const struct layer_type layer_mean = {
    .variant = {"mean", &schema,
                "The mean over a dimension (torch.mean); over positions, padding is left out (padding_idx)."},
    .ignores = IGNORES_X_AND_Y,
    .runs_on = runs_on,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
