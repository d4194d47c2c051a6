/* Maxima and averages of windows over images and signals, as in torch.nn. A signal is an image of height 1. A maximum
 * stores its position for backward. */
#include "model/layers/pooling.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"

#define LENGTH " one number."
#define SIZES " one number, or [height, width]."

static const struct schema_row max1d_rows[] = {POOL_WINDOW_ROWS(LENGTH), {0}};
static const struct schema_row max_rows[] = {POOL_WINDOW_ROWS(SIZES), {0}};
static const struct schema_row avg1d_rows[] = {POOL_WINDOW_ROWS(LENGTH), POOL_COUNT_ROW, {0}};
static const struct schema_row avg_rows[] = {POOL_WINDOW_ROWS(SIZES), POOL_COUNT_ROW, POOL_DIVISOR_ROW, {0}};
static const struct schema_row adaptive1d_rows[] = {POOL_OUTPUT_ROW(LENGTH), {0}};
static const struct schema_row adaptive_rows[] = {POOL_OUTPUT_ROW(SIZES), {0}};

static void check_window(const struct pool_config *c, int max, const struct node *where, const char *path,
                         struct problems *problems) {
    pair_check(&c->kernel_size, "kernel_size", max, where, path, problems);
    pair_check(&c->stride, "stride", max, where, path, problems);
    pair_check(&c->padding, "padding", max, where, path, problems);
}

static void check_window1d(void *config, const struct node *where, const char *path, struct problems *problems) {
    check_window(config, 1, where, path, problems);
}
static void check_window2d(void *config, const struct node *where, const char *path, struct problems *problems) {
    check_window(config, 2, where, path, problems);
}

static void check_output1d(void *config, const struct node *where, const char *path, struct problems *problems) {
    pair_check(&((const struct pool_config *)config)->output_size, "output_size", 1, where, path, problems);
}
static void check_output2d(void *config, const struct node *where, const char *path, struct problems *problems) {
    pair_check(&((const struct pool_config *)config)->output_size, "output_size", 2, where, path, problems);
}

POOL_SCHEMA(max_pool1d, max1d_rows, "kernel_size", check_window1d);
POOL_SCHEMA(max_pool2d, max_rows, "kernel_size", check_window2d);
POOL_SCHEMA(avg_pool1d, avg1d_rows, "kernel_size", check_window1d);
POOL_SCHEMA(avg_pool2d, avg_rows, "kernel_size", check_window2d);
POOL_SCHEMA(adaptive_avg_pool1d, adaptive1d_rows, "output_size", check_output1d);
POOL_SCHEMA(adaptive_avg_pool2d, adaptive_rows, "output_size", check_output2d);
POOL_SCHEMA(adaptive_max_pool1d, adaptive1d_rows, "output_size", check_output1d);
POOL_SCHEMA(adaptive_max_pool2d, adaptive_rows, "output_size", check_output2d);

static bool is_adaptive(const struct layer *layer) {
    const struct layer_type *type = layer->type;
    return type == &layer_adaptive_avg_pool1d || type == &layer_adaptive_avg_pool2d ||
           type == &layer_adaptive_max_pool1d || type == &layer_adaptive_max_pool2d;
}
static bool is_max(const struct layer *layer) {
    const struct layer_type *type = layer->type;
    return type == &layer_max_pool1d || type == &layer_max_pool2d || type == &layer_adaptive_max_pool1d ||
           type == &layer_adaptive_max_pool2d;
}
/* Of its input: 2: (channels, length), 3: (channels, height, width). */
static int dims_of(const struct layer *layer) {
    const struct layer_type *type = layer->type;
    return type == &layer_max_pool1d || type == &layer_avg_pool1d || type == &layer_adaptive_avg_pool1d ||
                   type == &layer_adaptive_max_pool1d
               ? 2
               : 3;
}

static struct pooling pooling_of(const struct layer *layer) {
    struct pooling p = {.in = image_of(&layer->in), .has_relu = layer->has_relu};
    size_t out[2];
    int dims = dims_of(layer);
    if (is_adaptive(layer)) {
        p.is_adaptive = true;
        pair_of(&((const struct pool_config *)layer->config)->output_size, dims, 1, out);
        p.window.kernel[0] = adaptive_window(p.in.height, out[0]);
        p.window.kernel[1] = adaptive_window(p.in.width, out[1]);
    } else {
        const struct pool_config *c = layer->config;
        p.excludes_padding = !is_max(layer) && !c->count_include_pad;
        if (!is_max(layer) && c->divisor_override > 0) p.divisor = (size_t)c->divisor_override;
        pair_of(&c->kernel_size, dims, 1, p.window.kernel);
        pair_of(c->stride.items ? &c->stride : &c->kernel_size, dims, 1, p.window.stride);
        pair_of(&c->padding, dims, 0, p.window.padding);
        p.window.dilation[0] = p.window.dilation[1] = 1;
        size_t (*count)(const struct window *, int, size_t) = c->ceil_mode ? window_output_ceil : window_output;
        out[0] = count(&p.window, 0, p.in.height);
        out[1] = count(&p.window, 1, p.in.width);
    }
    p.out = (struct image_shape){out[0], out[1], p.in.channels};
    return p;
}

/* The position of a maximum in its window is stored in one byte. */
static status check_positions(size_t elements) {
    if (elements <= POOLING_MAX_WINDOW) return OK;
    return status_new(STATUS_USAGE, "a window may have at most %d elements, got %zu", POOLING_MAX_WINDOW, elements);
}

static status check_pooling(const struct layer *layer, const struct pooling *p) {
    const struct window *w = &p->window;
    if (p->out.height == 0 || p->out.width == 0)
        return status_new(STATUS_USAGE, "the window is larger than the padded input (%zu x %zu)",
                          p->in.height + 2 * w->padding[0], p->in.width + 2 * w->padding[1]);
    if (2 * w->padding[0] > w->kernel[0] || 2 * w->padding[1] > w->kernel[1])
        return status_new(STATUS_USAGE, "padding must be at most half the window");
    return is_max(layer) ? check_positions(w->kernel[0] * w->kernel[1]) : OK;
}

static status plan(struct layer *layer, struct planning *planning) {
    (void)planning;
    TRY(image_check(layer, dims_of(layer)));
    struct pooling p = pooling_of(layer);
    TRY(check_pooling(layer, &p));
    layer->out = channels_last_shape(dims_of(layer), p.out.channels, p.out.height, p.out.width);
    if (is_max(layer)) layer->saved_size = (shape_elements(&layer->out) + sizeof(float) - 1) / sizeof(float);
    return OK;
}

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    const struct image_ops *ops = device_ops(pass->device)->image;
    struct pooling p = pooling_of(layer);
    if (is_max(layer))
        ops->max_pool_forward(pass->device, &p, x, y, (uint8_t *)layer->saved, pass->rows);
    else
        ops->avg_pool_forward(pass->device, &p, x, y, pass->rows);
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    const struct image_ops *ops = device_ops(pass->device)->image;
    struct pooling p = pooling_of(layer);
    (void)x;
    if (!dx) return;
    if (is_max(layer))
        ops->max_pool_backward(pass->device, &p, y, (const uint8_t *)layer->saved, dy, dx, pass->rows);
    else
        ops->avg_pool_backward(pass->device, &p, dy, dx, pass->rows);
}

static void describe(const struct layer *layer, struct operation *to) {
    to->kind = is_max(layer) ? OPERATION_MAX_POOL : OPERATION_AVERAGE_POOL;
    to->pooling = pooling_of(layer);
}

static bool max_runs_on(const struct device_ops *ops) { return ops->image->max_pool_forward != NULL; }
static bool avg_runs_on(const struct device_ops *ops) { return ops->image->avg_pool_forward != NULL; }

/* What all rows of maxima, and of averages, have. */
#define MAXIMUM                                                                                                        \
    .memory_format = FORMAT_CHANNELS_LAST, .relu = RELU_BEFORE, .ignores = IGNORES_X, .runs_on = max_runs_on,          \
    .plan = plan, .forward = forward, .backward = backward, .half = HALF_ALL, .describe = describe
#define AVERAGE                                                                                                        \
    .memory_format = FORMAT_CHANNELS_LAST, .ignores = IGNORES_X_AND_Y, .runs_on = avg_runs_on, .plan = plan,           \
    .forward = forward, .backward = backward, .half = HALF_ALL, .describe = describe
const struct layer_type layer_max_pool2d = {
    .variant = {"max_pool2d", &max_pool2d_schema, "Maximum of each window (torch.nn.MaxPool2d)."}, MAXIMUM};
const struct layer_type layer_max_pool1d = {
    .variant = {"max_pool1d", &max_pool1d_schema, "Maximum of each window of (channels, length) (torch.nn.MaxPool1d)."},
    MAXIMUM};
const struct layer_type layer_avg_pool2d = {
    .variant = {"avg_pool2d", &avg_pool2d_schema, "Average of each window (torch.nn.AvgPool2d)."}, AVERAGE};
const struct layer_type layer_avg_pool1d = {
    .variant = {"avg_pool1d", &avg_pool1d_schema, "Average of each window of (channels, length) (torch.nn.AvgPool1d)."},
    AVERAGE};
const struct layer_type layer_adaptive_avg_pool2d = {
    .variant = {"adaptive_avg_pool2d", &adaptive_avg_pool2d_schema,
                "Averages with an output of the given size (torch.nn.AdaptiveAvgPool2d); 1: one per channel."},
    AVERAGE};
const struct layer_type layer_adaptive_avg_pool1d = {
    .variant = {"adaptive_avg_pool1d", &adaptive_avg_pool1d_schema,
                "The same over (channels, length) (torch.nn.AdaptiveAvgPool1d)."},
    AVERAGE};
const struct layer_type layer_adaptive_max_pool2d = {
    .variant = {"adaptive_max_pool2d", &adaptive_max_pool2d_schema,
                "Maxima with an output of the given size (torch.nn.AdaptiveMaxPool2d); 1: one per channel."},
    MAXIMUM};
const struct layer_type layer_adaptive_max_pool1d = {
    .variant = {"adaptive_max_pool1d", &adaptive_max_pool1d_schema,
                "The same over (channels, length) (torch.nn.AdaptiveMaxPool1d)."},
    MAXIMUM};
