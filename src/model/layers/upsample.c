/* upsample: an image with each pixel repeated (torch.nn.Upsample, mode nearest). It is the transpose of a pooling that
 * sums the pixels of each window, so the operators of averages do it, with a divisor of 1. */
#include "model/layers/images.h"
#include "model/layers/layers.h"

struct upsample_config {
    struct int_list scale_factor;
};

static const struct schema_row rows[] = {
    {.key = "scale_factor",
     .type = SCHEMA_INT_LIST,
     .offset = offsetof(struct upsample_config, scale_factor),
     .flags = SCHEMA_REQUIRED,
     .min = 1,
     .max = 1024,
     .doc = "How often each pixel is repeated: one number, or one for the height and one for the width."},
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct upsample_config *c = config;
    pair_check(&c->scale_factor, "scale_factor", 2, where, path, problems);
}

static const struct schema schema = {.name = "model.layers.upsample",
                                     .size = sizeof(struct upsample_config),
                                     .rows = rows,
                                     .shorthand = "scale_factor",
                                     .check = check};

/* The pooling from the layer's output to its input. */
static struct pooling pooling_of(const struct layer *layer) {
    struct pooling p = {.in = image_of(&layer->out), .out = image_of(&layer->in), .divisor = 1};
    pair_of(&((const struct upsample_config *)layer->config)->scale_factor, 3, 0, p.window.kernel);
    for (int d = 0; d < 2; d++) {
        p.window.stride[d] = p.window.kernel[d];
        p.window.dilation[d] = 1;
    }
    return p;
}

static status plan(struct layer *layer, struct planning *planning) {
    size_t scale[2];
    (void)planning;
    TRY(image_check(layer, 3));
    struct image_shape in = image_of(&layer->in);
    pair_of(&((const struct upsample_config *)layer->config)->scale_factor, 3, 0, scale);
    if (in.height * scale[0] > INT32_MAX || in.width * scale[1] > INT32_MAX)
        return status_new(STATUS_USAGE, "the output would have %zu x %zu pixels", in.height * scale[0],
                          in.width * scale[1]);
    layer->out = channels_last_shape(3, in.channels, in.height * scale[0], in.width * scale[1]);
    return OK;
}

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    struct pooling p = pooling_of(layer);
    device_ops(pass->device)->image->avg_pool_backward(pass->device, &p, x, y, pass->rows);
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    struct pooling p = pooling_of(layer);
    (void)x, (void)y;
    if (dx) device_ops(pass->device)->image->avg_pool_forward(pass->device, &p, dy, dx, pass->rows);
}

static void describe(const struct layer *layer, struct operation *to) {
    to->kind = OPERATION_UPSAMPLE;
    to->pooling = pooling_of(layer);
}

static bool runs_on(const struct device_ops *ops) { return ops->image->avg_pool_forward != NULL; }

const struct layer_type layer_upsample = {
    .variant = {"upsample", &schema,
                "An image with each pixel repeated (torch.nn.Upsample with an integer scale_factor, mode nearest)."},
    .order = ORDER_CHANNELS_LAST,
    .ignores = IGNORES_X_AND_Y,
    .runs_on = runs_on,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};
