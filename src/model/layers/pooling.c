/* Maxima and averages of windows over images, signals and volumes, and the inverse of maxima, as in torch.nn. A signal
 * is an image of height 1. A maximum stores its position for backward. */
#include <stdio.h>
#include <string.h>

#include "model/build.h"
#include "model/layer.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"

/* The keys of all of them. */
struct pool_config {
    struct int_list kernel_size, stride, padding;
    struct int_list output_size; /* adaptive only */
    bool ceil_mode, count_include_pad;
    int64_t divisor_override; /* at most 0: none */
};

#define POOL_SIZES(key_, min_, doc_, ...)                                                                              \
    SCHEMA_ROW(INT_LIST, struct pool_config, key_, .min = min_, .max = 4096, .doc = doc_, __VA_ARGS__)

/* [sizes]: one number, and the form of a list, such as " one number, or [height, width].". */
#define POOL_WINDOW_ROWS(sizes)                                                                                        \
    POOL_SIZES(kernel_size, 1, "Size of the window:" sizes, .flags = SCHEMA_REQUIRED),                                 \
        POOL_SIZES(stride, 1, "Step of the window; null: its size.", .fallback = "null"),                              \
        POOL_SIZES(padding, 0, "Padding around the input, at most half the window.", .fallback = "0"),                 \
        SCHEMA_ROW(BOOL, struct pool_config, ceil_mode, .fallback = "false",                                           \
                   .doc = "Whether the size of the output is rounded up: a last window may exceed the padded input, "  \
                          "if it starts in the input or the padding before it.")

#define POOL_COUNT_ROW                                                                                                 \
    SCHEMA_ROW(BOOL, struct pool_config, count_include_pad, .fallback = "true",                                        \
               .doc =                                                                                                  \
                   "Whether padded zeros count in the average; elements beyond the padding (ceil_mode) never count.")

#define POOL_DIVISOR_ROW                                                                                               \
    SCHEMA_ROW(INT, struct pool_config, divisor_override, .fallback = "null", .min = 1, .max = 1 << 24,                \
               .doc = "Divisor of the sum of a window; null: the number of its elements.")

#define POOL_OUTPUT_ROW(sizes) POOL_SIZES(output_size, 1, "Size of the output:" sizes, .flags = SCHEMA_REQUIRED)

/* The schema of the layer [name_], in the variable name_##_schema. */
#define POOL_SCHEMA(name_, rows_, shorthand_, check_)                                                                  \
    static const struct schema name_##_schema = {.name = "model.layers." #name_,                                       \
                                                 .size = sizeof(struct pool_config),                                   \
                                                 .rows = rows_,                                                        \
                                                 .shorthand = shorthand_,                                              \
                                                 .check = check_}

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
    sizes_check(&c->kernel_size, "kernel_size", max, where, path, problems);
    sizes_check(&c->stride, "stride", max, where, path, problems);
    sizes_check(&c->padding, "padding", max, where, path, problems);
}

CHECK_WITH(check_window1d, check_window, 1)
CHECK_WITH(check_window2d, check_window, 2)

static void check_output(const struct pool_config *c, int max, const struct node *where, const char *path,
                         struct problems *problems) {
    sizes_check(&c->output_size, "output_size", max, where, path, problems);
}
CHECK_WITH(check_output1d, check_output, 1)
CHECK_WITH(check_output2d, check_output, 2)

POOL_SCHEMA(max_pool1d, max1d_rows, "kernel_size", check_window1d);
POOL_SCHEMA(max_pool2d, max_rows, "kernel_size", check_window2d);
POOL_SCHEMA(avg_pool1d, avg1d_rows, "kernel_size", check_window1d);
POOL_SCHEMA(avg_pool2d, avg_rows, "kernel_size", check_window2d);
POOL_SCHEMA(adaptive_avg_pool1d, adaptive1d_rows, "output_size", check_output1d);
POOL_SCHEMA(adaptive_avg_pool2d, adaptive_rows, "output_size", check_output2d);
POOL_SCHEMA(adaptive_max_pool1d, adaptive1d_rows, "output_size", check_output1d);
POOL_SCHEMA(adaptive_max_pool2d, adaptive_rows, "output_size", check_output2d);

/* The two nodes of a pooling of volumes, of maxima and of averages; the index has these bits. */
enum { ALONG_DEPTH = 1, AVERAGES = 2, TYPES = 4 };
static const struct layer_type types[TYPES];

static bool is_volume(const struct layer *layer) { return layer->in.dims == 4; }
static bool is_along_depth(const struct layer *layer) {
    return layer->type == &types[ALONG_DEPTH] || layer->type == &types[ALONG_DEPTH | AVERAGES];
}
/* Images of a row, one after another, that are pooled. */
static size_t images_of(const struct layer *layer) {
    return is_volume(layer) && !is_along_depth(layer) ? (size_t)layer->in.size[1] : 1;
}

static bool is_max(const struct layer *layer) {
    const struct layer_type *type = layer->type;
    return type == &layer_max_pool1d || type == &layer_max_pool2d || type == &layer_adaptive_max_pool1d ||
           type == &layer_adaptive_max_pool2d || type == &types[0] || type == &types[ALONG_DEPTH];
}
/* Of its input: 2: (channels, length), 3: (channels, height, width). */
static int dims_of(const struct layer *layer) {
    const struct layer_type *type = layer->type;
    return type == &layer_max_pool1d || type == &layer_avg_pool1d || type == &layer_adaptive_avg_pool1d ||
                   type == &layer_adaptive_max_pool1d
               ? 2
               : 3;
}

/* Sets the window [to] of a pooling to dimension [d] of the input, of [in] elements, and returns the output's size;
 * [d]: 0 the depth, 1 the height, 2 the width, -1 none. */
static size_t set_window(const struct pool_config *c, struct window *w, int to, int d, size_t in) {
    w->kernel[to] = w->stride[to] = w->dilation[to] = 1;
    if (d < 0) return in;
    if (c->output_size.items) {
        size_t out = size_at(&c->output_size, d);
        w->kernel[to] = adaptive_window(in, out);
        return out;
    }
    w->kernel[to] = size_at(&c->kernel_size, d);
    w->stride[to] = size_at(c->stride.items ? &c->stride : &c->kernel_size, d);
    w->padding[to] = size_at(&c->padding, d);
    return c->ceil_mode ? window_output_ceil(w, to, in) : window_output(w, to, in);
}

/* Of images whose height and width are these dimensions of the input. */
static struct pooling image_pooling(const struct pool_config *c, struct image_shape in, int height, int width) {
    struct pooling p = {.in = in, .is_adaptive = c->output_size.items != NULL};
    size_t rows = set_window(c, &p.window, 0, height, in.height),
           columns = set_window(c, &p.window, 1, width, in.width);
    p.out = (struct image_shape){rows, columns, in.channels};
    return p;
}

/* Of an image, or of a signal, which is one of height 1. */
static struct pooling pooling_of_image(const struct pool_config *c, const struct shape *in, int dims) {
    return image_pooling(c, image_of(in), dims == 2 ? -1 : 1, 2);
}

/* Of one image of a volume, or of the volume as an image whose height is the depth and whose channels are all other
 * elements. */
static struct pooling volume_pooling(const struct pool_config *c, const struct shape *in, bool along_depth) {
    struct image_shape image = volume_image(in);
    if (!along_depth) return image_pooling(c, image, 1, 2);
    image = (struct image_shape){(size_t)in->size[1], 1, image.height * image.width * image.channels};
    return image_pooling(c, image, 0, -1);
}

static struct pooling pooling_of(const struct layer *layer) {
    const struct pool_config *c = layer->config;
    struct pooling p = is_volume(layer) ? volume_pooling(c, &layer->in, is_along_depth(layer))
                                        : pooling_of_image(c, &layer->in, dims_of(layer));
    p.has_relu = layer->has_relu;
    p.excludes_padding = !is_max(layer) && !p.is_adaptive && !c->count_include_pad;
    if (!is_max(layer) && c->divisor_override > 0) p.divisor = is_along_depth(layer) ? 1 : (size_t)c->divisor_override;
    return p;
}

/* [padded], [what]: what the sentences say about the padded input and the elements of a window. The position of a
 * maximum in its window is stored in one byte. */
static status check_window_of(const struct pooling *p, bool is_max, const char *padded, const char *what) {
    const struct window *w = &p->window;
    if (p->out.height == 0 || p->out.width == 0)
        return status_usage("the window is larger than the padded input%s", padded);
    if (2 * w->padding[0] > w->kernel[0] || 2 * w->padding[1] > w->kernel[1])
        return status_usage("padding must be at most half the window");
    if (!is_max || w->kernel[0] * w->kernel[1] <= POOLING_MAX_WINDOW) return OK;
    return status_usage("a window may have at most %d elements%s, got %zu", POOLING_MAX_WINDOW, what,
                        w->kernel[0] * w->kernel[1]);
}

static status check_pooling(const struct layer *layer, const struct pooling *p) {
    const struct window *w = &p->window;
    char padded[64];
    snprintf(padded, sizeof padded, " (%s%zu x %zu)",
             is_along_depth(layer) ? "depth "
             : is_volume(layer)    ? "images of "
                                   : "",
             p->in.height + 2 * w->padding[0], p->in.width + 2 * w->padding[1]);
    return check_window_of(p, is_max(layer), padded, is_volume(layer) ? " in an image and along the depth" : "");
}

static status plan(struct layer *layer, struct planning *planning) {
    TRY(image_check(layer, dims_of(layer)));
    struct pooling p = pooling_of(layer);
    TRY(check_pooling(layer, &p));
    layer->out = channels_last_shape(dims_of(layer), p.out.channels, p.out.height, p.out.width);
    if (is_max(layer)) layer->saved_size = (shape_elements(&layer->out) + sizeof(float) - 1) / sizeof(float);
    return OK;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct image_ops *ops = pass->ops->image;
    struct pooling p = pooling_of(layer);
    size_t images = pass->rows * images_of(layer);
    if (is_max(layer))
        ops->max_pool_forward(pass->device, &p, o.x, o.y, (uint8_t *)layer->saved, images);
    else
        ops->avg_pool_forward(pass->device, &p, o.x, o.y, images);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct image_ops *ops = pass->ops->image;
    struct pooling p = pooling_of(layer);
    size_t images = pass->rows * images_of(layer);
    if (!o.dx) return;
    if (is_max(layer))
        ops->max_pool_backward(pass->device, &p, o.y, (const uint8_t *)layer->saved, o.dy, o.dx, images);
    else
        ops->avg_pool_backward(pass->device, &p, o.dy, o.dx, images);
}

/* ---- in other formats ---- */

/* The padding after the image that gives [out] windows (ceil_mode). */
static size_t pad_after(const struct window *w, int d, size_t in, size_t out) {
    size_t end = (out - 1) * w->stride[d] + w->kernel[d], image = in + w->padding[d];
    return end > image ? end - image : 0;
}

/* Adaptive maxima of x along dimension [axis] of a batch: of a slice for each output. */
static const char *adaptive_max_along(struct onnx_graph *g, const char *x, int64_t axis, size_t in, size_t out) {
    const char **parts = arena_alloc(g->arena, out * sizeof *parts);
    struct text attributes = {0};
    const char *axes = onnx_numbers(g, (const int64_t[]){axis}, 1);
    for (size_t o = 0; o < out; o++) {
        int64_t from = (int64_t)(o * in / out), to = (int64_t)(((o + 1) * in + out - 1) / out);
        const char *inputs[] = {x, onnx_numbers(g, &from, 1), onnx_numbers(g, &to, 1), axes};
        parts[o] = onnx_node2(g, "ReduceMax", onnx_node(g, "Slice", inputs, 4, NULL), axes);
    }
    onnx_int(&attributes, "axis", axis);
    if (out > 1) return onnx_node(g, "Concat", parts, out, &attributes);
    text_free(&attributes);
    return parts[0];
}

/* Of an image, a signal, an image of a volume, or along the depth. */
static const char *maxima_onnx(const struct onnx_call *c, const struct pooling *p) {
    const struct window *w = &p->window;
    size_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, before[3] = {0}, after[3] = {0};
    const size_t in[2] = {p->in.height, p->in.width}, out[2] = {p->out.height, p->out.width};
    size_t count = (size_t)c->layer->in.dims - 1, first = 3 - count;
    struct text attributes = {0};
    bool is_depth = is_along_depth(c->layer);
    for (int d = 0; d < (is_depth ? 1 : 2); d++) {
        int to = is_depth ? 0 : d + 1;
        kernel[to] = w->kernel[d], stride[to] = w->stride[d], before[to] = w->padding[d];
        after[to] = pad_after(w, d, in[d], out[d]);
    }
    onnx_window(&attributes, count, kernel + first, stride + first, before + first, after + first);
    return onnx_node1(c->g, "MaxPool", c->x, &attributes);
}

static const char *adaptive_maxima_onnx(const struct onnx_call *c, const struct pooling *p) {
    const char *x = c->x;
    if (c->layer->in.dims == 3) x = adaptive_max_along(c->g, x, 2, p->in.height, p->out.height);
    return adaptive_max_along(c->g, x, c->layer->in.dims, p->in.width, p->out.width);
}

/* One dimension of an average as a matrix (out, in), whose rows are the weights of the windows. */
static const char *average_tensor(struct onnx_graph *g, const struct pooling *p, int d, size_t in, size_t out) {
    float *matrix = arena_alloc(g->arena, out * in * sizeof *matrix);
    for (size_t o = 0; o < out; o++) {
        size_t start = o * p->window.stride[d], end = start + p->window.kernel[d], pad = p->window.padding[d];
        size_t padded = (end < in + 2 * pad ? end : in + 2 * pad) - start;
        size_t from = start < pad ? 0 : start - pad, to = (end < in + pad ? end : in + pad) - pad;
        if (p->is_adaptive) from = o * in / out, to = ((o + 1) * in + out - 1) / out;
        size_t count = p->is_adaptive || p->excludes_padding ? to - from : padded;
        if (p->divisor) count = d == 0 ? p->divisor : 1;
        for (size_t i = from; i < to; i++) matrix[o * in + i] = 1 / (float)count;
    }
    return onnx_tensor(g, NULL, ONNX_FLOAT, matrix, 2, (const int64_t[]){(int64_t)out, (int64_t)in});
}

/* Averages that no node of ONNX has: along the height, then along the width. */
static const char *average_by_matrices(const struct onnx_call *c, const struct pooling *p) {
    bool has_rows = c->layer->in.dims >= 3;
    const char *rows = has_rows ? average_tensor(c->g, p, 0, p->in.height, p->out.height) : NULL;
    const char *columns = average_tensor(c->g, p, 1, p->in.width, p->out.width);
    const char *x = has_rows ? onnx_node2(c->g, "MatMul", rows, c->x) : c->x;
    return onnx_node2(c->g, "MatMul", x, onnx_transpose(c->g, columns, (const int64_t[]){1, 0}, 2));
}

static const char *averages_onnx(const struct onnx_call *c, const struct pooling *p) {
    struct text attributes = {0};
    if (p->is_adaptive && p->out.height == 1 && p->out.width == 1)
        return onnx_node1(c->g, "GlobalAveragePool", c->x, NULL);
    bool is_plain = !p->is_adaptive && !p->divisor &&
                    pad_after(&p->window, 0, p->in.height, p->out.height) <= p->window.padding[0] &&
                    pad_after(&p->window, 1, p->in.width, p->out.width) <= p->window.padding[1];
    if (!is_plain) return average_by_matrices(c, p);
    const struct window *w = &p->window;
    size_t count = (size_t)c->layer->in.dims - 1, first = 2 - count;
    onnx_window(&attributes, count, w->kernel + first, w->stride + first, w->padding + first, w->padding + first);
    onnx_int(&attributes, "count_include_pad", !p->excludes_padding);
    return onnx_node1(c->g, "AveragePool", c->x, &attributes);
}

static const char *write_onnx(const struct onnx_call *c) {
    struct pooling p = pooling_of(c->layer);
    if (!is_max(c->layer)) return averages_onnx(c, &p);
    return p.is_adaptive ? adaptive_maxima_onnx(c, &p) : maxima_onnx(c, &p);
}

static void write_c(const struct c_call *c) {
    struct pooling p = pooling_of(c->layer);
    if (is_max(c->layer))
        c_max_pool(c, &p, c->x, c_image(c, &p.in), images_of(c->layer));
    else
        c_average_pool(c, &p, images_of(c->layer));
}

/* What all rows of maxima, and of averages, have. */
#define MAXIMUM                                                                                                        \
    .memory_format = FORMAT_CHANNELS_LAST, .relu = RELU_BEFORE, .ignores = IGNORES_X, .plan = plan,                    \
    .forward = forward, .backward = backward, .half = HALF_ALL, .onnx = write_onnx, .c = write_c
#define AVERAGE                                                                                                        \
    .memory_format = FORMAT_CHANNELS_LAST, .ignores = IGNORES_X_AND_Y, .plan = plan, .forward = forward,               \
    .backward = backward, .half = HALF_ALL, .onnx = write_onnx, .c = write_c

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "MaxPooling1D", "max_pool1d"),
    VALUE_ALIAS("layer", "AveragePooling1D", "avg_pool1d"),
    VALUE_ALIAS_NOTE("layer", "GlobalMaxPooling2D GlobalMaxPool2D", "adaptive_max_pool2d",
                     "Its output_size is 1, and flatten follows"),
    VALUE_ALIAS("layer", "MaxPooling2D MaxPool MaxPooling pool", "max_pool2d"),
    VALUE_ALIAS("layer", "AveragePooling2D AvgPool AveragePooling AveragePool2d", "avg_pool2d"),
    VALUE_ALIAS_NOTE("layer", "GlobalAveragePooling2D GlobalAvgPool2d global_avg_pool gap AdaptiveAvgPool",
                     "adaptive_avg_pool2d", "Write 'adaptive_avg_pool2d: 1', and flatten after it"),
    VALUE_ALIAS("layer", "MaxPooling3D", "max_pool3d"),
    VALUE_ALIAS("layer", "AveragePooling3D", "avg_pool3d"),
    VALUE_ALIAS_NOTE("layer", "GlobalAveragePooling3D GlobalAvgPool3d", "adaptive_avg_pool3d",
                     "Write 'adaptive_avg_pool3d: 1'"),
    VALUE_ALIAS_NOTE("layer", "unpool unpooling max_unpool MaxUnpooling2D MaxUnpool", "max_unpool2d",
                     "Its `from:` has the values and the input of the max pool"),
    KEY_ALIAS("layer.max_unpool2d", "kernel pool_size size window pool ksize k", ".kernel_size"),
    KEY_ALIAS("layer.max_pool2d", "kernel pool_size size window pool ksize k", ".kernel_size"),
    KEY_ALIAS("layer.avg_pool2d", "kernel pool_size size window pool ksize k", ".kernel_size"),
    KEY_ALIAS("layer.max_pool3d", "kernel pool_size size window pool ksize k", ".kernel_size"),
    KEY_ALIAS("layer.avg_pool3d", "kernel pool_size size window pool ksize k", ".kernel_size"),
    KEY_ALIAS("layer.adaptive_avg_pool2d", "size output out", ".output_size"),
    CALL_ALIAS("layer", "max_pool3d", "kernel_size stride padding"),
    CALL_ALIAS("layer", "avg_pool3d", "kernel_size stride padding"),
    CALL_ALIAS("layer", "max_pool2d", "kernel_size stride padding"),
    CALL_ALIAS("layer", "max_unpool1d", "kernel_size stride padding"),
    CALL_ALIAS("layer", "max_unpool2d", "kernel_size stride padding"),
    CALL_ALIAS("layer", "max_unpool3d", "kernel_size stride padding"),
    CALL_ALIAS("layer", "avg_pool2d", "kernel_size stride padding"),
    CALL_ALIAS("layer", "adaptive_avg_pool2d", "output_size"),
    {0},
};

const struct layer_type layer_max_pool2d = {
    .aliases = aliases,
    .variant = {"max_pool2d", &max_pool2d_schema, "Maximum of each window (torch.nn.MaxPool2d)."},
    MAXIMUM,
    .pytorch = "nn.MaxPool2d({kernel_size}{,stride}{,padding}{,ceil_mode})",
};
const struct layer_type layer_max_pool1d = {
    .variant = {"max_pool1d", &max_pool1d_schema, "Maximum of each window of (channels, length) (torch.nn.MaxPool1d)."},
    MAXIMUM,
    .pytorch = "nn.MaxPool1d({kernel_size}{,stride}{,padding}{,ceil_mode})",
};
const struct layer_type layer_avg_pool2d = {
    .variant = {"avg_pool2d", &avg_pool2d_schema, "Average of each window (torch.nn.AvgPool2d)."},
    AVERAGE,
    .pytorch = "nn.AvgPool2d({kernel_size}{,stride}{,padding}{,ceil_mode}{,count_include_pad}{,divisor_override})",
};
const struct layer_type layer_avg_pool1d = {
    .variant = {"avg_pool1d", &avg_pool1d_schema, "Average of each window of (channels, length) (torch.nn.AvgPool1d)."},
    AVERAGE,
    .pytorch = "nn.AvgPool1d({kernel_size}{,stride}{,padding}{,ceil_mode}{,count_include_pad})",
};
const struct layer_type layer_adaptive_avg_pool2d = {
    .variant = {"adaptive_avg_pool2d", &adaptive_avg_pool2d_schema,
                "Averages with an output of the given size (torch.nn.AdaptiveAvgPool2d); 1: one per channel."},
    AVERAGE,
    .pytorch = "nn.AdaptiveAvgPool2d({output_size})",
};
const struct layer_type layer_adaptive_avg_pool1d = {
    .variant = {"adaptive_avg_pool1d", &adaptive_avg_pool1d_schema,
                "The same over (channels, length) (torch.nn.AdaptiveAvgPool1d)."},
    AVERAGE,
    .pytorch = "nn.AdaptiveAvgPool1d({output_size})",
};
const struct layer_type layer_adaptive_max_pool2d = {
    .variant = {"adaptive_max_pool2d", &adaptive_max_pool2d_schema,
                "Maxima with an output of the given size (torch.nn.AdaptiveMaxPool2d); 1: one per channel."},
    MAXIMUM,
    .pytorch = "nn.AdaptiveMaxPool2d({output_size})",
};
const struct layer_type layer_adaptive_max_pool1d = {
    .variant = {"adaptive_max_pool1d", &adaptive_max_pool1d_schema,
                "The same over (channels, length) (torch.nn.AdaptiveMaxPool1d)."},
    MAXIMUM,
    .pytorch = "nn.AdaptiveMaxPool1d({output_size})",
};

/* ---- poolings of volumes ---- */

/* max_pool3d, avg_pool3d and their adaptive forms, as in torch.nn. The maximum of a window is the maximum, along the
 * depth, of those of its images; the same holds for averages, whose numbers of elements are products. So the layer has
 * two nodes, each a pooling of images. */

#define POOL3D_SIZES " one number, or [depth, height, width]."

static const struct schema_row pool3d_max_rows[] = {POOL_WINDOW_ROWS(POOL3D_SIZES), {0}};
static const struct schema_row pool3d_avg_rows[] = {
    POOL_WINDOW_ROWS(POOL3D_SIZES), POOL_COUNT_ROW, POOL_DIVISOR_ROW, {0}};
static const struct schema_row pool3d_adaptive_rows[] = {POOL_OUTPUT_ROW(POOL3D_SIZES), {0}};

CHECK_WITH(pool3d_check_window, check_window, 3)

CHECK_WITH(check_output3d, check_output, 3)

POOL_SCHEMA(max_pool3d, pool3d_max_rows, "kernel_size", pool3d_check_window);
POOL_SCHEMA(avg_pool3d, pool3d_avg_rows, "kernel_size", pool3d_check_window);
POOL_SCHEMA(adaptive_avg_pool3d, pool3d_adaptive_rows, "output_size", check_output3d);
POOL_SCHEMA(adaptive_max_pool3d, pool3d_adaptive_rows, "output_size", check_output3d);

static status pool3d_plan(struct layer *layer, struct planning *planning) {
    TRY(image_check(layer, 4));
    struct pooling p = pooling_of(layer);
    TRY(check_pooling(layer, &p));
    layer->out = layer->in;
    if (is_along_depth(layer))
        layer->out.size[1] = (int64_t)p.out.height;
    else
        layer->out.size[2] = (int64_t)p.out.height, layer->out.size[3] = (int64_t)p.out.width;
    if (is_max(layer)) layer->saved_size = (shape_elements(&layer->out) + sizeof(float) - 1) / sizeof(float);
    return OK;
}

static const char *adaptive_volume_max(const struct onnx_call *c, const struct pooling *p) {
    bool is_depth = is_along_depth(c->layer);
    const char *x = adaptive_max_along(c->g, c->x, is_depth ? 2 : 3, p->in.height, p->out.height);
    return is_depth ? x : adaptive_max_along(c->g, x, 4, p->in.width, p->out.width);
}

/* A matrix times the depth of a volume, whose images are rows for that. */
static const char *averages_along_depth(const struct onnx_call *c, const struct pooling *p) {
    const int64_t *in = c->layer->in.size;
    const char *matrix = average_tensor(c->g, p, 0, p->in.height, p->out.height);
    const char *x = onnx_reshape(c->g, c->x, (const int64_t[]){in[0], in[1], in[2] * in[3]}, 3);
    return onnx_reshape(c->g, onnx_node2(c->g, "MatMul", matrix, x), c->layer->out.size, 4);
}

static const char *pool3d_onnx(const struct onnx_call *c) {
    struct pooling p = pooling_of(c->layer);
    if (!is_max(c->layer)) return is_along_depth(c->layer) ? averages_along_depth(c, &p) : average_by_matrices(c, &p);
    return p.is_adaptive ? adaptive_volume_max(c, &p) : maxima_onnx(c, &p);
}

#define STEP(name_, doc_)                                                                                              \
    {                                                                                                                  \
        .variant = {name_, NULL, doc_}, .memory_format = FORMAT_CHANNELS_LAST, .ignores = IGNORES_X,                   \
        .plan = pool3d_plan, .forward = forward, .backward = backward, .half = HALF_ALL, .onnx = pool3d_onnx,          \
        .c = write_c                                                                                                   \
    }
static const struct layer_type types[TYPES] = {
    STEP("max_pool3d", "Maxima of the images of a volume."),
    STEP("max_pool3d", "Maxima along the depth."),
    STEP("avg_pool3d", "Averages of the images of a volume."),
    STEP("avg_pool3d", "Averages along the depth."),
};

static status expand(struct builder *builder, const struct layer_type *first, const struct layer_entry *e,
                     size_t *out) {
    struct layer_entry images = *e, depth = *e;
    size_t between;
    images.name = arena_printf(builder->model->arena, "%s/images", e->name);
    depth.in = &between;
    TRY(build_layer(builder, first, &images, &between));
    return build_layer(builder, first + ALONG_DEPTH, &depth, out);
}

static status expand_max(struct builder *builder, const struct layer_entry *e, size_t *out) {
    return expand(builder, types, e, out);
}

static status expand_average(struct builder *builder, const struct layer_entry *e, size_t *out) {
    return expand(builder, types + AVERAGES, e, out);
}

const struct layer_type layer_max_pool3d = {
    .variant = {"max_pool3d", &max_pool3d_schema,
                "Maximum of each window of (channels, depth, height, width) (torch.nn.MaxPool3d)."},
    .expand = expand_max,
    .pytorch = "nn.MaxPool3d({kernel_size}{,stride}{,padding}{,ceil_mode})",
};
const struct layer_type layer_avg_pool3d = {
    .variant = {"avg_pool3d", &avg_pool3d_schema,
                "Average of each window of (channels, depth, height, width) (torch.nn.AvgPool3d)."},
    .expand = expand_average,
    .pytorch = "nn.AvgPool3d({kernel_size}{,stride}{,padding}{,ceil_mode}{,count_include_pad}{,divisor_override})",
};
const struct layer_type layer_adaptive_avg_pool3d = {
    .variant = {"adaptive_avg_pool3d", &adaptive_avg_pool3d_schema,
                "Averages with an output of the given size (torch.nn.AdaptiveAvgPool3d); 1: one per channel."},
    .expand = expand_average,
    .pytorch = "nn.AdaptiveAvgPool3d({output_size})",
};
const struct layer_type layer_adaptive_max_pool3d = {
    .variant = {"adaptive_max_pool3d", &adaptive_max_pool3d_schema,
                "Maxima with an output of the given size (torch.nn.AdaptiveMaxPool3d); 1: one per channel."},
    .expand = expand_max,
    .pytorch = "nn.AdaptiveMaxPool3d({output_size})",
};

/* ---- max_unpool ---- */

/* Values, and the input of a max pool: the output is as large as this input, with the values where its maxima are, and
 * else 0. The positions are found again in forward, and are those of a max pool layer: of images and, for volumes, then
 * along the depth. */

POOL_SCHEMA(max_unpool1d, max1d_rows, "kernel_size", check_window1d);
POOL_SCHEMA(max_unpool2d, max_rows, "kernel_size", check_window2d);
POOL_SCHEMA(max_unpool3d, pool3d_max_rows, "kernel_size", pool3d_check_window);

struct unpooling {
    int dims;                     /* of its inputs: 2 (channels, length), 3, or 4 (channels, depth, height, width) */
    size_t images;                /* of a row */
    struct pooling image, volume; /* the max pool of each image, and of volumes then along the depth */
    /* Of a row in layer->saved: floats between the two, positions (bytes, a multiple of 4) of each. */
    size_t between, positions, depth_positions;
};

static size_t in_fours(size_t bytes) { return (bytes + 3) / 4 * 4; }

static int unpool_dims(const struct layer *layer) {
    return layer->type == &layer_max_unpool1d ? 2 : layer->type == &layer_max_unpool2d ? 3 : 4;
}

static struct unpooling unpooling_of(const struct layer *layer) {
    const struct pool_config *c = layer->config;
    const struct shape *before = &layer->ins[1];
    struct unpooling u = {.dims = unpool_dims(layer), .images = 1};
    if (u.dims < 4) {
        u.image = pooling_of_image(c, before, u.dims);
    } else {
        struct shape maxima = *before;
        u.images = (size_t)before->size[1];
        u.image = volume_pooling(c, before, false);
        maxima.size[2] = (int64_t)u.image.out.height, maxima.size[3] = (int64_t)u.image.out.width;
        u.volume = volume_pooling(c, &maxima, true);
        u.between = u.images * c_image_size(&u.image.out);
        u.depth_positions = in_fours(c_image_size(&u.volume.out));
    }
    u.positions = in_fours(u.images * c_image_size(&u.image.out));
    return u;
}

static struct shape unpool_shape(const struct unpooling *u, struct image_shape image, size_t depth) {
    return u->dims == 4 ? volume_shape(image.channels, depth, image.height, image.width)
                        : channels_last_shape(u->dims, image.channels, image.height, image.width);
}

static status unpool_check_window(const struct pooling *p) {
    const struct window *w = &p->window;
    TRY(check_window_of(p, true, " of the max pool", ""));
    if (w->stride[0] < w->kernel[0] || w->stride[1] < w->kernel[1])
        return status_usage("stride must be at least kernel_size: windows that overlap may have the same "
                            "maximum, which several values would then have as their position");
    return OK;
}

static status unpool_plan(struct layer *layer, struct planning *planning) {
    if (layer->in_count != 2)
        return status_usage("takes two outputs, the values and the input of the max pool, but from: gives %zu",
                            layer->in_count);
    for (size_t i = 0; i < 2; i++) {
        const struct layer of = {.in = layer->ins[i]};
        TRY(image_check(&of, unpool_dims(layer)));
    }
    struct unpooling u = unpooling_of(layer);
    TRY(unpool_check_window(&u.image));
    if (u.dims == 4) TRY(unpool_check_window(&u.volume));
    struct shape maxima = unpool_shape(&u, u.image.out, u.volume.out.height);
    layer->out = unpool_shape(&u, u.image.in, u.images);
    layer->saved_size = u.between + (u.positions + u.depth_positions) / sizeof(float);
    if (shape_is_equal(&layer->in, &maxima)) return OK;
    return status_usage("the values have the shape %s, but a max pool of %s gives %s", shape_text(&layer->in).s,
                        shape_text(&layer->ins[1]).s, shape_text(&maxima).s);
}

/* y is first memory for maxima, which nothing reads. */
static void unpool(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct image_ops *ops = pass->ops->image;
    struct unpooling u = unpooling_of(layer);
    size_t images = pass->rows * u.images;
    float *between = layer->saved;
    uint8_t *positions = (uint8_t *)(layer->saved + pass->rows * u.between);
    uint8_t *depth_positions = positions + pass->rows * u.positions;
    struct tensor maxima = tensor_from(o.y, 0), values = o.x[0];
    ops->max_pool_forward(pass->device, &u.image, &o.x[1], u.dims == 4 ? F32(between) : &maxima, positions, images);
    if (u.dims == 4) {
        ops->max_pool_forward(pass->device, &u.volume, F32(between), &maxima, depth_positions, pass->rows);
        ops->max_pool_backward(pass->device, &u.volume, &values, depth_positions, &values, F32(between), pass->rows);
        values = *F32(between);
    }
    ops->max_pool_backward(pass->device, &u.image, &values, positions, &values, o.y, images);
}

/* The positions have no derivative. */
static void unpool_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct image_ops *ops = pass->ops->image;
    struct unpooling u = unpooling_of(layer);
    size_t images = pass->rows * u.images, size = o.dx[1].is_half ? sizeof(uint16_t) : sizeof(float);
    float *between = layer->saved;
    const uint8_t *positions = (const uint8_t *)(layer->saved + pass->rows * u.between);
    const uint8_t *depth_positions = positions + pass->rows * u.positions;
    if (o.dx[1].data) device_zero(pass->device, o.dx[1].data, pass->rows * layer->out_size * size);
    if (!o.dx[0].data) return;
    ops->max_pool_gather(pass->device, &u.image, positions, o.dy, u.dims == 4 ? F32(between) : &o.dx[0], images);
    if (u.dims == 4) ops->max_pool_gather(pass->device, &u.volume, depth_positions, F32(between), &o.dx[0], pass->rows);
}

/* The attributes of the max pool whose positions they are. */
static void unpool_window(const struct unpooling *u, struct text *attributes) {
    const struct window *image = &u->image.window, *volume = &u->volume.window;
    size_t after[] = {u->dims == 4 ? pad_after(volume, 0, u->volume.in.height, u->volume.out.height) : 0,
                      pad_after(image, 0, u->image.in.height, u->image.out.height),
                      pad_after(image, 1, u->image.in.width, u->image.out.width)};
    size_t kernel[] = {volume->kernel[0], image->kernel[0], image->kernel[1]};
    size_t stride[] = {volume->stride[0], image->stride[0], image->stride[1]};
    size_t before[] = {volume->padding[0], image->padding[0], image->padding[1]};
    int first = 4 - u->dims;
    onnx_window(attributes, (size_t)u->dims - 1, kernel + first, stride + first, before + first, after + first);
}

/* By ScatterElements: implementations of MaxUnpool differ where the windows do not divide the image. The indices of
 * MaxPool count the elements of the whole batch. */
static const char *unpool_onnx(const struct onnx_call *c) {
    struct unpooling u = unpooling_of(c->layer);
    const struct shape *out = &c->layer->out;
    struct onnx_graph *g = c->g;
    struct text window = {0}, first = {0};
    const char *pooled[] = {"", ""}, *list = onnx_numbers(g, (const int64_t[]){-1}, 1);
    int64_t sizes[MAX_DIMS + 1] = {-1};
    unpool_window(&u, &window);
    onnx_node_outputs(g, "MaxPool", &c->inputs[1], 1, &window, pooled, 2);
    onnx_int(&first, "start", 0);
    onnx_int(&first, "end", 1);
    const char *count = onnx_node1(g, "Shape", onnx_node2(g, "Reshape", c->inputs[1], list), &first);
    const char *zeros = onnx_node1(g, "ConstantOfShape", count, NULL);
    const char *indices = onnx_node2(g, "Reshape", pooled[1], list), *values = onnx_node2(g, "Reshape", c->x, list);
    const char *y = onnx_node(g, "ScatterElements", (const char *const[]){zeros, indices, values}, 3, NULL);
    memcpy(sizes + 1, out->size, (size_t)out->dims * sizeof *sizes);
    return onnx_node2(g, "Reshape", y, onnx_numbers(g, sizes, (size_t)out->dims + 1));
}

static void unpool_c(const struct c_call *c) {
    struct unpooling u = unpooling_of(c->layer);
    struct window one = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    text_printf(
        &c->c->body,
        "    max_unpool(%s, %s, %zu, %s,\n               %s, %zu, %s,\n               %s,\n               %s);\n",
        c->inputs[0], c->inputs[1], u.images, c_image(c, &u.image.in), c->y, u.dims == 4 ? u.volume.out.height : 1,
        c_image(c, &u.image.out), c_window(c, u.dims == 4 ? &u.volume.window : &one), c_window(c, &u.image.window));
}

#define UNPOOL                                                                                                         \
    .joins = true, .memory_format = FORMAT_CHANNELS_LAST, .ignores = IGNORES_X_AND_Y, .plan = unpool_plan,             \
    .forward = unpool, .backward = unpool_backward, .half = HALF_ALL, .onnx = unpool_onnx, .c = unpool_c,              \
    .pytorch = "max_unpool({x}, {x1}, {kernel_size}{,stride}{,padding}{,ceil_mode})"

const struct layer_type layer_max_unpool1d = {
    .variant = {"max_unpool1d", &max_unpool1d_schema,
                "The inverse of max_pool1d, of (channels, length), as max_unpool2d (torch.nn.MaxUnpool1d)."},
    UNPOOL,
};
const struct layer_type layer_max_unpool2d = {
    .variant =
        {"max_unpool2d", &max_unpool2d_schema,
         "The inverse of max_pool2d, with the same keys: `from: [values, before]` are the values and the input of the "
         "max pool; each value is put where the maximum of its window is, all else is 0 (torch.nn.MaxUnpool2d)."},
    UNPOOL,
};
const struct layer_type layer_max_unpool3d = {
    .variant =
        {"max_unpool3d", &max_unpool3d_schema,
         "The inverse of max_pool3d, of (channels, depth, height, width), as max_unpool2d (torch.nn.MaxUnpool3d)."},
    UNPOOL,
};
