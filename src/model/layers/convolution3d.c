/* conv3d: torch.nn.Conv3d. A convolution over images of a volume whose channels are those of all images in the window
 * along the depth, (channels, kernel depth): the weight (out, channels, kernel depth, kernel height, kernel width) is
 * then that of a conv2d. So the layer has two nodes: one makes these channels, the other is the convolution. */
#include "model/build.h"
#include "model/init.h"
#include "model/layers/convolution.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"
#include "model/layers/volumes.h"

#define SIZES " one number, or [depth, height, width]."

static const struct schema_row rows[] = {CONVOLUTION_ROWS(SIZES, "Zeros around the input:" SIZES, ), {0}};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct convolution_config *c = config;
    static const struct int_list none;
    struct convolution_config groups = {.out = c->out, .groups = c->groups};
    groups.kernel_size = groups.stride = groups.padding = groups.dilation = none;
    convolution_check(&groups, 2, where, path, problems);
    triple_check(&c->kernel_size, "kernel_size", where, path, problems);
    triple_check(&c->stride, "stride", where, path, problems);
    triple_check(&c->padding, "padding", where, path, problems);
    triple_check(&c->dilation, "dilation", where, path, problems);
}

static const struct schema schema = {
    .name = "model.layers.conv3d", .size = sizeof(struct convolution_config), .rows = rows, .check = check};

static const struct convolution_config *config_of(const struct layer *layer) { return layer->config; }

/* Of an input (channels, depth, height, width). */
static struct depth_window depth_of(const struct convolution_config *c, const struct shape *in) {
    struct depth_window w = {.in = (size_t)in->size[1],
                             .positions = (size_t)(in->size[2] * in->size[3]),
                             .channels = (size_t)in->size[0],
                             .kernel = triple_at(&c->kernel_size, 0),
                             .stride = triple_at(&c->stride, 0),
                             .padding = triple_at(&c->padding, 0),
                             .dilation = triple_at(&c->dilation, 0)};
    size_t padded = w.in + 2 * w.padding, extent = w.dilation * (w.kernel - 1) + 1;
    w.out = padded < extent ? 0 : (padded - extent) / w.stride + 1;
    return w;
}

/* Of one image of the first node's output. */
static struct convolution convolution_of(const struct layer *layer) {
    const struct convolution_config *c = config_of(layer);
    struct convolution v = {
        .in = volume_image(&layer->in), .groups = (size_t)c->groups, .has_bias = c->bias, .has_relu = layer->has_relu};
    for (int d = 0; d < 2; d++) {
        v.window.kernel[d] = triple_at(&c->kernel_size, d + 1);
        v.window.stride[d] = triple_at(&c->stride, d + 1);
        v.window.padding[d] = triple_at(&c->padding, d + 1);
        v.window.dilation[d] = triple_at(&c->dilation, d + 1);
    }
    v.out = (struct image_shape){window_output(&v.window, 0, v.in.height), window_output(&v.window, 1, v.in.width),
                                 (size_t)c->out};
    return v;
}

/* ---- the images of each window along the depth, as channels ---- */

static status plan_unfold(struct layer *layer, struct planning *planning) {
    const struct convolution_config *c = config_of(layer);
    (void)planning;
    TRY(volume_check(layer));
    struct depth_window w = depth_of(c, &layer->in);
    if (w.channels % (size_t)c->groups != 0)
        return status_new(STATUS_USAGE, "groups must divide the input's channels (%zu), got %zu", w.channels,
                          (size_t)c->groups);
    if (w.out == 0)
        return status_new(STATUS_USAGE, "the kernel is deeper than the padded input (%zu)", w.in + 2 * w.padding);
    struct image_shape image = volume_image(&layer->in);
    layer->out = volume_shape(w.channels * w.kernel, w.out, image.height, image.width);
    return OK;
}

static void unfold(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    struct depth_window w = depth_of(config_of(layer), &layer->in);
    device_ops(pass->device)->shapes->unfold_depth(pass->device, &w, x, y, pass->rows);
}

static void fold(const struct layer *layer, const struct pass *pass, const float *x, const float *y, const float *dy,
                 float *dx) {
    struct depth_window w = depth_of(config_of(layer), &layer->in);
    (void)x, (void)y;
    if (dx) device_ops(pass->device)->shapes->fold_depth(pass->device, &w, dy, dx, pass->rows);
}

static void describe_unfold(const struct layer *layer, struct operation *to) {
    to->kind = OPERATION_UNFOLD_DEPTH;
    to->depth = depth_of(config_of(layer), &layer->in);
}

static bool has_shapes(const struct device_ops *ops) { return ops->shapes != NULL; }

static const struct layer_type unfold_depth = {
    .variant = {"conv3d", NULL, "The images of each window along the depth, as channels."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .ignores = IGNORES_X_AND_Y,
    .runs_on = has_shapes,
    .plan = plan_unfold,
    .forward = unfold,
    .backward = fold,
    .describe = describe_unfold,
};

/* ---- the convolution ---- */

static size_t depth_kernel(const struct layer *layer) { return triple_at(&config_of(layer)->kernel_size, 0); }

static status plan(struct layer *layer, struct planning *planning) {
    const struct convolution_config *c = config_of(layer);
    struct convolution v = convolution_of(layer);
    if (v.out.height == 0 || v.out.width == 0)
        return status_new(STATUS_USAGE, "the kernel is larger than the padded input (%zu x %zu)",
                          v.in.height + 2 * v.window.padding[0], v.in.width + 2 * v.window.padding[1]);
    layer->out = volume_shape(v.out.channels, convolution_images(layer), v.out.height, v.out.width);
    size_t channels = v.in.channels / depth_kernel(layer) / v.groups;
    const int64_t shape[] = {c->out, (int64_t)channels, (int64_t)depth_kernel(layer), (int64_t)v.window.kernel[0],
                             (int64_t)v.window.kernel[1]};
    params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.weight", layer->name), 5,
                   shape);
    if (c->bias)
        params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.bias", layer->name), 1,
                       &c->out);
    return OK;
}

static status alloc(struct layer *layer, struct device *device, size_t batch) {
    struct convolution c = convolution_of(layer);
    return convolution_alloc(layer, device, &c, batch);
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    struct convolution c = convolution_of(layer);
    convolution_init(layer, params, rng, &c);
}

static size_t multiply_adds(const struct layer *layer) {
    struct convolution c = convolution_of(layer);
    return convolution_images(layer) * convolution_multiply_adds(&c);
}

static void describe(const struct layer *layer, struct operation *to) {
    const struct convolution_config *c = config_of(layer);
    to->kind = OPERATION_CONVOLUTION;
    to->convolution = convolution_of(layer);
    to->images = convolution_images(layer);
    to->depth = (struct depth_window){.kernel = depth_kernel(layer),
                                      .stride = triple_at(&c->stride, 0),
                                      .padding = triple_at(&c->padding, 0),
                                      .dilation = triple_at(&c->dilation, 0)};
    to->weight = layer->first_param;
    if (c->bias) to->bias = layer->first_param + 1;
}

static const struct layer_type convolution_of_images = {
    .variant = {"conv3d", NULL, "The convolution over images whose channels are those of a window."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .depends_on_threads = true,
    .relu = RELU_AFTER,
    .ignores = IGNORES_Y,
    .runs_on = convolution_runs_on,
    .plan = plan,
    .alloc = alloc,
    .release = convolution_release,
    .prepare = convolution_prepare,
    .init = init,
    .autocast = AUTOCAST_PRODUCT,
    .copies = COPY_WITHOUT_GAPS,
    .forward = convolution_forward,
    .backward = convolution_backward,
    .half = HALF_ALL,
    .multiply_adds = multiply_adds,
    .describe = describe,
};

static status expand(struct builder *builder, const struct variant *variant, const char *path, const char *name,
                     const size_t *in, size_t count, size_t *out) {
    size_t images;
    TRY(build_layer(builder, &unfold_depth, variant, path, arena_printf(builder->model->arena, "%s/depth", name), in,
                    count, &images));
    return build_layer(builder, &convolution_of_images, variant, path, name, &images, 1, out);
}

const struct layer_type layer_conv3d = {
    .variant = {"conv3d", &schema, "Convolution over (channels, depth, height, width) (torch.nn.Conv3d)."},
    .expand = expand,
};
