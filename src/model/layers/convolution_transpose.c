/* conv_transpose2d: torch.nn.ConvTranspose2d, the transpose of a convolution from the layer's output to its input. So
 * the convolution's gradient of its input is the layer's output, and its output is the layer's gradient. */
#include "model/layers/convolution.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"

static const struct schema_row rows[] = {
    CONVOLUTION_ROWS(
        " one number, or [height, width].",
        "dilation * (kernel_size - 1) - padding zeros are around the input: one number, or [height, width].", ),
    CONVOLUTION_SIZES(output_padding, 0,
                      "Added to the size of the output, which a stride leaves open: one number, or [height, width]. "
                      "Below stride.",
                      .fallback = "0"),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct convolution_config *c = config;
    convolution_check(c, 2, where, path, problems);
    pair_check(&c->output_padding, "output_padding", 2, where, path, problems);
}

static const struct schema schema = {
    .name = "model.layers.conv_transpose2d", .size = sizeof(struct convolution_config), .rows = rows, .check = check};

static const struct convolution_config *config_of(const struct layer *layer) { return layer->config; }

/* The convolution from the layer's output to its input. */
static struct convolution convolution_of(const struct layer *layer) {
    const struct convolution_config *c = config_of(layer);
    return (struct convolution){.in = image_of(&layer->out),
                                .out = image_of(&layer->in),
                                .window = convolution_window(c, 3),
                                .groups = (size_t)c->groups};
}

/* (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1; 0: nothing is left */
static size_t output_size(const struct window *w, int d, size_t in, size_t output_padding) {
    size_t size = (in - 1) * w->stride[d] + w->dilation[d] * (w->kernel[d] - 1) + output_padding + 1;
    return size > 2 * w->padding[d] ? size - 2 * w->padding[d] : 0;
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct convolution_config *c = config_of(layer);
    struct window w = convolution_window(c, 3);
    size_t output_padding[2], size[2];
    TRY(image_check(layer, 3));
    struct image_shape in = image_of(&layer->in);
    pair_of(&c->output_padding, 3, 0, output_padding);
    if (in.channels % (size_t)c->groups != 0)
        return status_new(STATUS_USAGE, "groups must divide the input's channels (%zu), got %lld", in.channels,
                          (long long)c->groups);
    for (int d = 0; d < 2; d++) {
        if (output_padding[d] >= w.stride[d])
            return status_new(STATUS_USAGE, "output_padding must be less than stride (%zu), got %zu", w.stride[d],
                              output_padding[d]);
        size[d] = output_size(&w, d, d == 0 ? in.height : in.width, output_padding[d]);
        if (size[d] == 0 || size[d] > INT32_MAX)
            return status_new(STATUS_USAGE, "the output would have %zu %s", size[d], d == 0 ? "rows" : "columns");
    }
    layer->out = channels_last_shape(3, (size_t)c->out, size[0], size[1]);
    struct convolution convolution = convolution_of(layer);
    convolution_declare(layer, planning, &convolution, (size_t)c->out);
    return OK;
}

static status alloc(struct layer *layer, struct device *device, size_t batch) {
    struct convolution c = convolution_of(layer);
    return convolution_alloc(layer, device, &c, batch);
}

/* The convolution runs backward in either case. */
static status prepare(struct layer *layer, struct device *device, size_t batch, bool is_training) {
    (void)is_training;
    return convolution_prepare(layer, device, batch, true);
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    struct convolution c = convolution_of(layer);
    convolution_init(layer, params, rng, &c);
}

static size_t positions_of(const struct layer *layer) { return layer->out_size / (size_t)layer->out.size[0]; }

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    const struct device_ops *ops = device_ops(pass->device);
    size_t first = layer->first_param;
    ops->convolution->backward(layer->runtime, NULL, params_value(pass->params, first), x, y, NULL, NULL, pass->rows);
    if (config_of(layer)->bias)
        ops->sequence->add_row(pass->device, y, params_value(pass->params, first + 1), y,
                               pass->rows * positions_of(layer), (size_t)layer->out.size[0]);
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    const struct device_ops *ops = device_ops(pass->device);
    size_t first = layer->first_param;
    const float *w = params_value(pass->params, first);
    (void)y;
    if (config_of(layer)->bias)
        ops->sequence->sum_rows(pass->device, dy, params_gradient(pass->params, first + 1),
                                pass->rows * positions_of(layer), (size_t)layer->out.size[0]);
    ops->convolution->backward(layer->runtime, dy, w, x, NULL, params_gradient(pass->params, first), NULL, pass->rows);
    if (dx) ops->convolution->forward(layer->runtime, dy, w, NULL, dx, pass->rows);
}

static size_t multiply_adds(const struct layer *layer) {
    struct convolution c = convolution_of(layer);
    return convolution_multiply_adds(&c);
}

static void describe(const struct layer *layer, struct operation *to) {
    to->kind = OPERATION_CONV_TRANSPOSE;
    to->convolution = convolution_of(layer);
    to->weight = layer->first_param;
    if (config_of(layer)->bias) to->bias = layer->first_param + 1;
}

const struct layer_type layer_conv_transpose2d = {
    .variant = {"conv_transpose2d", &schema,
                "Transposed convolution over (channels, height, width) (torch.nn.ConvTranspose2d)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .depends_on_threads = true,
    .ignores = IGNORES_Y,
    .runs_on = convolution_runs_on,
    .plan = plan,
    .alloc = alloc,
    .release = convolution_release,
    .prepare = prepare,
    .init = init,
    .autocast = AUTOCAST_PRODUCT,
    .copies = COPY_WITHOUT_GAPS,
    .forward = forward,
    .backward = backward,
    .multiply_adds = multiply_adds,
    .describe = describe,
};
