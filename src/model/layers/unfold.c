/* unfold, fold: torch.nn.Unfold and Fold. The windows of an image as columns, (channels kernel_height kernel_width,
 * windows), and the sum of such columns as an image. Each is the backward of the other: windows along the height, then
 * along the width, then the columns' order. */
#include "model/layer.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"

struct fold_config {
    struct int_list kernel_size, stride, padding, dilation, output_size; /* output_size: fold only */
};

#define SIZES(key_, min_, doc_, ...)                                                                                   \
    SCHEMA_ROW(INT_LIST, struct fold_config, key_, .min = min_, .max = 1 << 20,                                        \
               .doc = doc_ " one number, or [height, width].", __VA_ARGS__)
#define WINDOW_ROWS                                                                                                    \
    SIZES(kernel_size, 1, "Size of the window:", .flags = SCHEMA_REQUIRED),                                            \
        SIZES(stride, 1, "Step of the window:", .fallback = "1"),                                                      \
        SIZES(padding, 0, "Zeros around the image:", .fallback = "0"),                                                 \
        SIZES(dilation, 1, "Distance of the elements of a window:", .fallback = "1")

static const struct schema_row unfold_rows[] = {WINDOW_ROWS, {0}};
static const struct schema_row fold_rows[] = {
    SIZES(output_size, 1, "Size of the image:", .flags = SCHEMA_REQUIRED), WINDOW_ROWS, {0}};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct fold_config *c = config;
    sizes_check(&c->kernel_size, "kernel_size", 2, where, path, problems);
    sizes_check(&c->stride, "stride", 2, where, path, problems);
    sizes_check(&c->padding, "padding", 2, where, path, problems);
    sizes_check(&c->dilation, "dilation", 2, where, path, problems);
    sizes_check(&c->output_size, "output_size", 2, where, path, problems);
}

static const struct schema unfold_schema =
    SCHEMA("model.layers.unfold", struct fold_config, .rows = unfold_rows, .shorthand = "kernel_size", .check = check);
static const struct schema fold_schema =
    SCHEMA("model.layers.fold", struct fold_config, .rows = fold_rows, .check = check);

/* An image (channels, in[0], in[1]) with out[0] x out[1] windows. */
struct folding {
    size_t channels, in[2], out[2];
    struct window window;
};

static struct window window_of(const struct layer *layer) {
    const struct fold_config *c = layer->config;
    struct window w;
    for (int d = 0; d < 2; d++) {
        w.kernel[d] = size_at(&c->kernel_size, d + 1), w.stride[d] = size_at(&c->stride, d + 1);
        w.padding[d] = size_at(&c->padding, d + 1), w.dilation[d] = size_at(&c->dilation, d + 1);
    }
    return w;
}

static struct folding folding_of(const struct layer *layer) {
    const struct shape *image = layer->type == &layer_fold ? &layer->out : &layer->in;
    struct folding f = {.channels = (size_t)image->size[0],
                        .in = {(size_t)image->size[1], (size_t)image->size[2]},
                        .window = window_of(layer)};
    for (int d = 0; d < 2; d++) f.out[d] = window_output(&f.window, d, f.in[d]);
    return f;
}

static size_t taps_of(const struct folding *f) { return f->window.kernel[0] * f->window.kernel[1]; }

/* Elements of (channels, out[0], in[1], kernel[0]) and of the columns. */
static size_t between(const struct folding *f) { return f->channels * f->out[0] * f->in[1] * f->window.kernel[0]; }
static size_t columns(const struct folding *f) { return f->channels * f->out[0] * f->out[1] * taps_of(f); }

static struct depth_window side_of(const struct folding *f, int d) {
    return (struct depth_window){.in = f->in[d],
                                 .out = f->out[d],
                                 .positions = d == 0 ? f->in[1] : 1,
                                 .channels = d == 0 ? 1 : f->window.kernel[0],
                                 .kernel = f->window.kernel[d],
                                 .stride = f->window.stride[d],
                                 .padding = f->window.padding[d],
                                 .dilation = f->window.dilation[d]};
}

static status plan_unfold(struct layer *layer, struct planning *planning) {
    TRY(image_check(layer, 3));
    struct folding f = folding_of(layer);
    if (f.out[0] == 0 || f.out[1] == 0)
        return status_usage("the window is larger than the image with its padding, %zu x %zu",
                            f.in[0] + 2 * f.window.padding[0], f.in[1] + 2 * f.window.padding[1]);
    layer->out =
        (struct shape){.dims = 2, .size = {(int64_t)(f.channels * taps_of(&f)), (int64_t)(f.out[0] * f.out[1])}};
    layer->saved_size = between(&f) + columns(&f);
    return OK;
}

static status plan_fold(struct layer *layer, struct planning *planning) {
    const struct fold_config *c = layer->config;
    struct window w = window_of(layer);
    int64_t taps = (int64_t)(w.kernel[0] * w.kernel[1]);
    const size_t size[2] = {size_at(&c->output_size, 1), size_at(&c->output_size, 2)};
    int64_t windows = (int64_t)(window_output(&w, 0, size[0]) * window_output(&w, 1, size[1]));
    if (layer->in.dims != 2 || layer->in.size[0] % taps != 0 || layer->in.size[1] != windows || windows == 0)
        return status_usage("its input must be (a multiple of %lld, the elements of a window; %lld windows), but is %s",
                            (long long)taps, (long long)windows, shape_text(&layer->in).s);
    layer->out = (struct shape){.dims = 3, .size = {layer->in.size[0] / taps, (int64_t)size[0], (int64_t)size[1]}};
    struct folding f = folding_of(layer);
    layer->saved_size = between(&f) + columns(&f);
    return OK;
}

/* y = the columns of x. [rows] of the batch. */
static void unfold(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    const struct shape_ops *ops = pass->ops->shapes;
    struct folding f = folding_of(layer);
    struct depth_window height = side_of(&f, 0), width = side_of(&f, 1);
    float *middle = layer->saved, *all = middle + pass->rows * between(&f);
    size_t taps = taps_of(&f), of_row = f.out[1] * taps;
    struct permutation order = {.dims = 5,
                                .size = {f.channels, f.window.kernel[0], f.window.kernel[1], f.out[0], f.out[1]},
                                .stride = {f.out[0] * of_row, f.window.kernel[1], 1, of_row, taps}};
    ops->unfold_depth(pass->device, &height, x, middle, pass->rows * f.channels);
    ops->unfold_depth(pass->device, &width, middle, all, pass->rows * f.channels * f.out[0]);
    ops->permute(pass->device, &order, all, y, pass->rows);
}

/* y = the image whose pixels are the sums of the columns x. */
static void fold(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    const struct shape_ops *ops = pass->ops->shapes;
    struct folding f = folding_of(layer);
    struct depth_window height = side_of(&f, 0), width = side_of(&f, 1);
    float *middle = layer->saved, *all = middle + pass->rows * between(&f);
    size_t windows = f.out[0] * f.out[1];
    struct permutation order = {.dims = 5,
                                .size = {f.channels, f.out[0], f.out[1], f.window.kernel[0], f.window.kernel[1]},
                                .stride = {taps_of(&f) * windows, f.out[1], 1, f.window.kernel[1] * windows, windows}};
    ops->permute(pass->device, &order, x, all, pass->rows);
    ops->fold_depth(pass->device, &width, all, middle, pass->rows * f.channels * f.out[0]);
    ops->fold_depth(pass->device, &height, middle, y, pass->rows * f.channels);
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    (layer->type == &layer_fold ? fold : unfold)(layer, pass, floats(o.x), floats(o.y));
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    if (o.dx) (layer->type == &layer_fold ? unfold : fold)(layer, pass, floats(o.dy), floats(o.dx));
}

/* ---- in ONNX: unfold gathers pixels of the padded image ---- */

static const char *unfold_onnx(const struct onnx_call *c) {
    struct onnx_graph *g = c->g;
    struct folding f = folding_of(c->layer);
    const struct window *w = &f.window;
    size_t height = f.in[0] + 2 * w->padding[0], width = f.in[1] + 2 * w->padding[1], at = 0;
    int64_t *pixels = arena_alloc(g->arena, columns(&f) * sizeof *pixels), pad[8] = {0};
    const int64_t flat = (int64_t)(f.channels * height * width);
    const char *x = c->x;
    for (int d = 0; d < 2; d++) pad[2 + d] = pad[6 + d] = (int64_t)w->padding[d];
    if (w->padding[0] || w->padding[1]) {
        struct text attributes = {0};
        onnx_string(&attributes, "mode", "constant");
        const char *sides = onnx_numbers(g, pad, 8), *zero = onnx_scalar(g, 0);
        x = onnx_node(g, "Pad", (const char *const[]){x, sides, zero}, 3, &attributes);
    }
    for (size_t k = 0; k < f.channels * taps_of(&f); k++)
        for (size_t o = 0; o < f.out[0] * f.out[1]; o++) {
            size_t tap = k % taps_of(&f), row = o / f.out[1] * w->stride[0] + tap / w->kernel[1] * w->dilation[0];
            size_t column = o % f.out[1] * w->stride[1] + tap % w->kernel[1] * w->dilation[1];
            pixels[at++] = (int64_t)((k / taps_of(&f) * height + row) * width + column);
        }
    x = onnx_reshape(g, x, &flat, 1);
    const char *indices = onnx_numbers(g, pixels, at);
    return onnx_reshape(g, onnx_gather(g, x, indices, 1), c->layer->out.size, 2);
}

static const char *fold_onnx(const struct onnx_call *c) {
    struct folding f = folding_of(c->layer);
    const struct window *w = &f.window;
    const int64_t size[2] = {(int64_t)f.in[0], (int64_t)f.in[1]};
    const int64_t kernel[2] = {(int64_t)w->kernel[0], (int64_t)w->kernel[1]};
    const int64_t height = (int64_t)w->padding[0], width = (int64_t)w->padding[1];
    struct text attributes = {0};
    onnx_sizes(&attributes, "dilations", w->dilation, 2);
    onnx_ints(&attributes, "pads", (const int64_t[]){height, width, height, width}, 4);
    onnx_sizes(&attributes, "strides", w->stride, 2);
    const char *image = onnx_numbers(c->g, size, 2), *block = onnx_numbers(c->g, kernel, 2);
    return onnx_node(c->g, "Col2Im", (const char *const[]){c->x, image, block}, 3, &attributes);
}

/* ---- in C: both functions have the same arguments ---- */

static void write_c(const struct c_call *c) {
    const char *function = c->layer->type == &layer_fold ? "fold" : "unfold";
    struct folding f = folding_of(c->layer);
    text_printf(&c->c->body, "    %s(%s, %s, %zu, %s, %s, %s, %s, %s, %s);\n", function, c->x, c->y, f.channels,
                c_list(c, f.in, 2), c_list(c, f.out, 2), c_list(c, f.window.kernel, 2), c_list(c, f.window.stride, 2),
                c_list(c, f.window.padding, 2), c_list(c, f.window.dilation, 2));
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "im2col extract_image_patches", "unfold"),
    VALUE_ALIAS("layer", "col2im", "fold"),
    CALL_ALIAS("layer", "unfold", "kernel_size dilation padding stride"),
    CALL_ALIAS("layer", "fold", "output_size kernel_size dilation padding stride"),
    {0},
};

const struct layer_type layer_unfold = {
    .aliases = aliases,
    .variant = {"unfold", &unfold_schema,
                "The windows of an image as columns: (channels, height, width) to (channels * elements of the window, "
                "windows) (torch.nn.Unfold)."},
    .ignores = IGNORES_X_AND_Y,
    .plan = plan_unfold,
    .forward = forward,
    .backward = backward,
    .onnx = unfold_onnx,
    .c = write_c,
    .pytorch = "nn.Unfold({kernel_size}{,dilation}{,padding}{,stride})",
};

const struct layer_type layer_fold = {
    .variant = {"fold", &fold_schema,
                "Sums columns into the image whose windows they are: (channels * elements of the window, windows) to "
                "(channels, height, width) (torch.nn.Fold)."},
    .ignores = IGNORES_X_AND_Y,
    .plan = plan_fold,
    .forward = forward,
    .backward = backward,
    .onnx = fold_onnx,
    .c = write_c,
    .pytorch = "nn.Fold({output_size}, {kernel_size}{,dilation}{,padding}{,stride})",
};
