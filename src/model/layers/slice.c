/* slice: a part of the input along one dimension (Tensor.narrow). */
#include "model/layers/slice.h"

#include "model/layers/joins.h"
#include "model/layers/layers.h"

static const struct schema_row rows[] = {
    {.key = "start",
     .type = SCHEMA_INT,
     .offset = offsetof(struct slice_config, start),
     .fallback = "0",
     .min = 0,
     .max = INFINITY,
     .doc = "The first index."},
    {.key = "end",
     .type = SCHEMA_INT,
     .offset = offsetof(struct slice_config, end),
     .flags = SCHEMA_REQUIRED,
     .min = 1,
     .max = INFINITY,
     .doc = "The index after the last one."},
    {.key = "dim",
     .type = SCHEMA_INT,
     .offset = offsetof(struct slice_config, dim),
     .fallback = "1",
     .min = -MAX_DIMS,
     .max = MAX_DIMS,
     .doc = "The dimension, as in PyTorch: 0 is the batch, 1 the channels of an image or the features of a vector, -1 "
            "the last."},
    {0},
};
static const struct schema schema = {.name = "model.layers.slice", .size = sizeof(struct slice_config), .rows = rows};

static int dimension_of(const struct layer *layer) {
    return join_dimension(&layer->in, ((const struct slice_config *)layer->config)->dim);
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct slice_config *c = layer->config;
    int dimension = dimension_of(layer);
    (void)planning;
    if (dimension < 0)
        return status_new(STATUS_USAGE, "dim %lld: the input has the dimensions 1 to %d (0 is the batch)",
                          (long long)c->dim, layer->in.dims);
    if (c->start >= c->end || c->end > layer->in.size[dimension])
        return status_new(STATUS_USAGE, "start %lld and end %lld: the input has %lld elements along dim %lld",
                          (long long)c->start, (long long)c->end, (long long)layer->in.size[dimension],
                          (long long)c->dim);
    layer->out = layer->in;
    layer->out.size[dimension] = c->end - c->start;
    return OK;
}

/* The columns of the slice: from element [at] of every [stride], [width] of them. */
static void columns_of(const struct layer *layer, size_t *outer, size_t *at, size_t *stride, size_t *width) {
    const struct slice_config *c = layer->config;
    int dimension = dimension_of(layer);
    size_t inner;
    join_blocks(&layer->in, dimension, outer, &inner);
    *at = (size_t)c->start * inner;
    *stride = (size_t)layer->in.size[dimension] * inner;
    *width = (size_t)(c->end - c->start) * inner;
}

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    size_t outer, at, stride, width;
    columns_of(layer, &outer, &at, &stride, &width);
    device_ops(pass->device)->copy_columns(pass->device, x + at, stride, y, width, pass->rows * outer, width);
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    size_t outer, at, stride, width;
    (void)x, (void)y;
    if (!dx) return;
    columns_of(layer, &outer, &at, &stride, &width);
    device_zero(pass->device, dx, pass->rows * layer->in_size * sizeof(float));
    device_ops(pass->device)->copy_columns(pass->device, dy, width, dx + at, stride, pass->rows * outer, width);
}

static void describe(const struct layer *layer, struct operation *to) {
    const struct slice_config *c = layer->config;
    to->kind = OPERATION_SLICE;
    to->dimension = dimension_of(layer);
    to->start = (size_t)c->start;
    to->end = (size_t)c->end;
}

const struct layer_type layer_slice = {
    .variant = {"slice", &schema, "The elements start to end - 1 along a dimension (Tensor.narrow)."},
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
