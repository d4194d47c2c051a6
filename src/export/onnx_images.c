/* Convolutions, poolings and interpolation as nodes of ONNX. */
#include "device/shapes.h"
#include "export/onnx_operations.h"

/* The dimensions of an image that a node has: (height, width), or (length). */
static void add_pair(struct text *attributes, const char *name, const size_t pair[2], int dims) {
    int64_t values[2] = {(int64_t)pair[0], (int64_t)pair[1]};
    onnx_ints(attributes, name, values + (3 - dims), (size_t)dims - 1);
}

/* pads: those before, then those after */
static void add_pads(struct text *attributes, const size_t before[2], const size_t after[2], int dims) {
    int64_t both[4] = {(int64_t)before[0], (int64_t)before[1], (int64_t)after[0], (int64_t)after[1]};
    int64_t signal[2] = {both[1], both[3]};
    onnx_ints(attributes, "pads", dims == 3 ? both : signal, dims == 3 ? 4 : 2);
}

static void add_window(struct text *attributes, const struct window *w, const size_t after[2], int dims) {
    add_pair(attributes, "kernel_shape", w->kernel, dims);
    add_pair(attributes, "strides", w->stride, dims);
    add_pads(attributes, w->padding, after, dims);
}

/* With [attributes], which those of every convolution follow. */
static const char *convolution(const struct onnx_call *c, const char *type, struct text *attributes) {
    const struct convolution *v = &c->op->convolution;
    const size_t after[2] = {window_padding_after(&v->window, 0, v->in.height, v->out.height),
                             window_padding_after(&v->window, 1, v->in.width, v->out.width)};
    add_window(attributes, &v->window, after, c->layer->in.dims);
    add_pair(attributes, "dilations", v->window.dilation, c->layer->in.dims);
    onnx_int(attributes, "group", (int64_t)v->groups);
    const char *inputs[3] = {c->x, onnx_param(c->g, c->op->weight)};
    if (c->op->bias != OPERATION_NO_PARAM) inputs[2] = onnx_param(c->g, c->op->bias);
    return onnx_node(c->g, type, inputs, inputs[2] ? 3 : 2, attributes);
}

/* A dimension of a volume, before those of its images. */
static void add_triple(struct text *attributes, const char *name, size_t depth, const size_t pair[2]) {
    onnx_ints(attributes, name, (const int64_t[]){(int64_t)depth, (int64_t)pair[0], (int64_t)pair[1]}, 3);
}

static void add_volume_window(struct text *attributes, const size_t kernel[3], const size_t stride[3],
                              const size_t before[3], const size_t after[3]) {
    int64_t pads[6];
    for (int d = 0; d < 3; d++) pads[d] = (int64_t)before[d], pads[3 + d] = (int64_t)after[d];
    add_triple(attributes, "kernel_shape", kernel[0], kernel + 1);
    add_triple(attributes, "strides", stride[0], stride + 1);
    onnx_ints(attributes, "pads", pads, 6);
}

/* Of the volume itself: OPERATION_UNFOLD_DEPTH adds no node. */
static const char *convolution3d(const struct onnx_call *c) {
    const struct convolution *v = &c->op->convolution;
    const struct window *w = &v->window;
    const struct depth_window *depth = &c->op->depth;
    const size_t pads[3] = {depth->padding, w->padding[0], w->padding[1]};
    struct text attributes = {0};
    add_volume_window(&attributes, (const size_t[]){depth->kernel, w->kernel[0], w->kernel[1]},
                      (const size_t[]){depth->stride, w->stride[0], w->stride[1]}, pads, pads);
    add_triple(&attributes, "dilations", depth->dilation, w->dilation);
    onnx_int(&attributes, "group", (int64_t)v->groups);
    const char *inputs[3] = {c->x, onnx_param(c->g, c->op->weight)};
    if (c->op->bias != OPERATION_NO_PARAM) inputs[2] = onnx_param(c->g, c->op->bias);
    return onnx_node(c->g, "Conv", inputs, inputs[2] ? 3 : 2, &attributes);
}

static const char *add_convolution(const struct onnx_call *c) {
    struct text attributes = {0}, order = {0};
    if (c->op->depth.kernel > 0) return convolution3d(c);
    const char *y = convolution(c, "Conv", &attributes);
    if (c->layer->out.dims == c->layer->in.dims) return y;
    onnx_ints(&order, "perm", (const int64_t[]){0, 2, 1}, 3); /* patch_embedding: a sequence of pixels */
    return onnx_node1(c->g, "Transpose",
                      onnx_node2(c->g, "Reshape", y, onnx_numbers(c->g, (const int64_t[]){0, 0, -1}, 3)), &order);
}

/* What a stride leaves open of the output's size. */
static size_t output_padding(const struct window *w, int d, size_t in, size_t out) {
    return out + 2 * w->padding[d] - (in - 1) * w->stride[d] - w->dilation[d] * (w->kernel[d] - 1) - 1;
}

static const char *add_convolution_transpose(const struct onnx_call *c) {
    const struct convolution *v = &c->op->convolution; /* from the output to the input */
    struct text attributes = {0};
    size_t after[2] = {output_padding(&v->window, 0, v->out.height, v->in.height),
                       output_padding(&v->window, 1, v->out.width, v->in.width)};
    add_pair(&attributes, "output_padding", after, 3);
    return convolution(c, "ConvTranspose", &attributes);
}

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

static const char *adaptive_max(const struct onnx_call *c) {
    const struct pooling *p = &c->op->pooling;
    const char *x = c->x;
    if (c->layer->in.dims == 3) x = adaptive_max_along(c->g, x, 2, p->in.height, p->out.height);
    return adaptive_max_along(c->g, x, c->layer->in.dims, p->in.width, p->out.width);
}

static void add_volume_pool(const struct onnx_call *c, struct text *attributes) {
    const struct pooling *p = &c->op->pooling;
    const struct window *w = &p->window;
    size_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, before[3] = {0}, after[3] = {0};
    const size_t in[2] = {p->in.height, p->in.width}, out[2] = {p->out.height, p->out.width};
    for (int d = 0; d < (c->op->is_along_depth ? 1 : 2); d++) {
        int to = c->op->is_along_depth ? 0 : d + 1;
        kernel[to] = w->kernel[d], stride[to] = w->stride[d], before[to] = w->padding[d];
        after[to] = pad_after(w, d, in[d], out[d]);
    }
    add_volume_window(attributes, kernel, stride, before, after);
}

/* Adaptive maxima of a volume: along its depth, or of its images. */
static const char *adaptive_volume_max(const struct onnx_call *c) {
    const struct pooling *p = &c->op->pooling;
    const char *x = adaptive_max_along(c->g, c->x, c->op->is_along_depth ? 2 : 3, p->in.height, p->out.height);
    return c->op->is_along_depth ? x : adaptive_max_along(c->g, x, 4, p->in.width, p->out.width);
}

static const char *add_max_pool(const struct onnx_call *c) {
    const struct pooling *p = &c->op->pooling;
    struct text attributes = {0};
    if (c->layer->in.dims == 4) {
        if (p->is_adaptive) return adaptive_volume_max(c);
        add_volume_pool(c, &attributes);
        return onnx_node1(c->g, "MaxPool", c->x, &attributes);
    }
    size_t after[2] = {pad_after(&p->window, 0, p->in.height, p->out.height),
                       pad_after(&p->window, 1, p->in.width, p->out.width)};
    if (p->is_adaptive) return adaptive_max(c);
    add_window(&attributes, &p->window, after, c->layer->in.dims);
    return onnx_node1(c->g, "MaxPool", c->x, &attributes);
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

/* [matrix] times the depth of a volume, whose images are rows for that. */
static const char *averages_along_depth(const struct onnx_call *c, const char *matrix) {
    const int64_t *in = c->layer->in.size;
    const char *x = onnx_reshape(c->g, c->x, (const int64_t[]){in[0], in[1], in[2] * in[3]}, 3);
    return onnx_reshape(c->g, onnx_node2(c->g, "MatMul", matrix, x), c->layer->out.size, 4);
}

/* Averages that no node of ONNX has: along the height, then along the width. */
static const char *average_by_matrices(const struct onnx_call *c) {
    const struct pooling *p = &c->op->pooling;
    struct text attributes = {0};
    bool has_rows = c->layer->in.dims >= 3;
    const char *rows = has_rows ? average_tensor(c->g, p, 0, p->in.height, p->out.height) : NULL;
    if (c->op->is_along_depth) return averages_along_depth(c, rows);
    const char *columns = average_tensor(c->g, p, 1, p->in.width, p->out.width);
    const char *x = has_rows ? onnx_node2(c->g, "MatMul", rows, c->x) : c->x;
    onnx_ints(&attributes, "perm", (const int64_t[]){1, 0}, 2);
    return onnx_node2(c->g, "MatMul", x, onnx_node1(c->g, "Transpose", columns, &attributes));
}

static const char *add_average_pool(const struct onnx_call *c) {
    const struct pooling *p = &c->op->pooling;
    struct text attributes = {0};
    if (c->layer->in.dims == 4) return average_by_matrices(c);
    if (p->is_adaptive && p->out.height == 1 && p->out.width == 1)
        return onnx_node1(c->g, "GlobalAveragePool", c->x, NULL);
    bool is_plain = !p->is_adaptive && !p->divisor &&
                    pad_after(&p->window, 0, p->in.height, p->out.height) <= p->window.padding[0] &&
                    pad_after(&p->window, 1, p->in.width, p->out.width) <= p->window.padding[1];
    if (!is_plain) return average_by_matrices(c);
    add_window(&attributes, &p->window, p->window.padding, c->layer->in.dims);
    onnx_int(&attributes, "count_include_pad", !p->excludes_padding);
    return onnx_node1(c->g, "AveragePool", c->x, &attributes);
}

/* Whether the sizes determine the scale: it was not given, or it was not rounded. */
static bool has_scale_of_sizes(const struct resize_side *s) {
    float scale = (float)s->in / (float)s->out;
    return s->scale >= scale && s->scale <= scale;
}

/* By index, because Resize computes coordinates with other roundings, which select other pixels. */
static const char *nearest_pixels(const struct onnx_call *c) {
    const struct resize *r = &c->op->resize;
    const char *x = c->x;
    int64_t axis = c->layer->in.dims; /* the last one is the width */
    for (int d = 1; d >= 0 && axis >= 2; d--, axis--) {
        int64_t *indices = arena_alloc(c->g->arena, r->side[d].out * sizeof *indices);
        for (size_t o = 0; o < r->side[d].out; o++) indices[o] = (int64_t)resize_taps(r, d, o).first;
        x = onnx_gather(c->g, x, onnx_numbers(c->g, indices, r->side[d].out), axis);
    }
    return x;
}

static const char *add_upsample(const struct onnx_call *c) {
    const struct resize *r = &c->op->resize;
    if (r->is_nearest) return nearest_pixels(c);
    size_t dims = (size_t)c->layer->in.dims - 1; /* that change */
    const struct resize_side *side = r->side + (2 - dims);
    int64_t axes[2] = {0}, sizes[2] = {0};
    float scales[2] = {0};
    bool has_sizes = true;
    struct text attributes = {0};
    for (size_t d = 0; d < dims; d++) {
        axes[d] = (int64_t)d + 2;
        sizes[d] = (int64_t)side[d].out;
        scales[d] = side[d].in == side[d].out ? 1 : 1 / side[d].scale; /* the same size: a copy */
        has_sizes = has_sizes && (r->align_corners || has_scale_of_sizes(&side[d]));
    }
    onnx_ints(&attributes, "axes", axes, dims);
    onnx_string(&attributes, "mode", "linear");
    onnx_string(&attributes, "coordinate_transformation_mode", r->align_corners ? "align_corners" : "half_pixel");
    const int64_t count = (int64_t)dims;
    const char *inputs[4] = {c->x, ""};
    inputs[2] = has_sizes ? "" : onnx_tensor(c->g, NULL, ONNX_FLOAT, scales, 1, &count);
    if (has_sizes) inputs[3] = onnx_numbers(c->g, sizes, dims);
    return onnx_node(c->g, "Resize", inputs, has_sizes ? 4 : 3, &attributes);
}

onnx_writer *const onnx_images[OPERATION_KINDS] = {
    [OPERATION_CONVOLUTION] = add_convolution, [OPERATION_CONV_TRANSPOSE] = add_convolution_transpose,
    [OPERATION_MAX_POOL] = add_max_pool,       [OPERATION_AVERAGE_POOL] = add_average_pool,
    [OPERATION_UPSAMPLE] = add_upsample,
};
