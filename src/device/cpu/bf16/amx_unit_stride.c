/* Convolutions with AMX of stride 1, in bfloat16: tiles are loaded from a copy of the image in bfloat16, with its
 * padding, and the image is not copied for each position of the kernel. The numbers that a line of the kernel reads for
 * a pixel are adjacent in the copy, (kernel width) x (channels), and those of the next pixel begin [channels] further,
 * so a tile is 16 pixels, 32 steps of these lines at a time. Pixels are numbered through the lines of the copy; results
 * between the end of an image's line and that of the copy's are dropped. The copy is of a few lines at a time, a band,
 * which stays in the second-level cache.
 *
 * The gradient of the inputs is such a convolution of the outputs' gradient. The gradient of the weights is a matrix
 * (channels of the outputs, numbers of a line of the kernel), each a sum over pixels.
 *
 * Steps past the end of a kernel's line, and pixels whose results are dropped, are multiplied by 0, so an infinite
 * number or NaN can make results of the pixels beside it NaN, too. */
#include <stdlib.h>

#include "device/cpu/bf16/amx_correlation.h"
#include "device/cpu/bf16/amx_weights.h"
#include "device/cpu/cpu.h"

#define MIN_CHANNELS 8
#define MIN_PIXELS SIZE               /* of a band */
#define MANY_PIXELS 56                /* of a band, from which it is faster than the product of amx_convolution.c */
#define MAX_WEIGHTS ((size_t)1 << 19) /* words that stay in the second-level cache */

static bool suits_correlation(const struct amx_correlation *c) {
    return c->image.channels >= MIN_CHANNELS && c->image.channels <= MAX_CHANNELS &&
           c->kernel[0] * line_numbers(c) <= BAND && weight_floats(c) <= MAX_WEIGHTS &&
           c->band * c->width >= MIN_PIXELS && 4 * c->out.width >= 3 * c->width; /* at most a quarter is dropped */
}

bool amx_unit_stride_suits(const struct convolution *c) {
    const struct window *w = &c->window;
    for (int d = 0; d < 2; d++)
        if (w->stride[d] != 1 || w->dilation[d] != 1 || w->padding[d] >= w->kernel[d] || w->kernel[d] > MAX_KERNEL)
            return false;
    struct amx_correlation forward = forward_of(c), gradient = gradient_of(c);
    return c->groups == 1 && suits_correlation(&forward) && suits_correlation(&gradient);
}

static bool has_many_pixels(const struct amx_correlation *c) { return c->band * c->width >= MANY_PIXELS; }

bool amx_unit_stride_is_faster(const struct convolution *c) {
    struct amx_correlation forward = forward_of(c), gradient = gradient_of(c);
    return c->window.kernel[0] * c->window.kernel[1] > 1 && has_many_pixels(&forward) && has_many_pixels(&gradient);
}

/* ---- the operators ---- */

/* Tiles of the weights, from their copy: number (k, j) of line l is copy[l * line + k * k_step + j * j_step]. */
static void pack_weights(const struct amx_correlation *c, const float *copy, size_t line, size_t j_step, size_t k_step,
                         float *tiles) {
    size_t size = weight_floats(c) / c->kernel[0];
    for (size_t l = 0; l < c->kernel[0]; l++) {
        struct amx_factor f = amx_columns(copy + l * line, j_step, k_step, 1);
        f.pack(tiles + l * size, &f, 0, c->out.channels, 0, depth_of(c));
    }
}

struct device_convolution {
    struct device *device;
    struct convolution c;
    size_t *mirrored; /* positions of the kernel, for the gradient of the inputs */
};

static size_t max_of(size_t a, size_t b) { return a > b ? a : b; }

/* Floats of the workspace: a copy of the weights, or the sums of their gradient, in whole tiles; then tiles of the
 * weights, or bands. */
static size_t copy_floats(const struct convolution *c) {
    struct amx_correlation forward = forward_of(c);
    size_t weights = c->out.channels * c->window.kernel[0] * depth_of(&forward);
    return round_up(max_of(weights, gradient_floats(&forward)), SIZE);
}

static size_t workspace_bytes(const struct convolution *c, bool is_training) {
    struct amx_correlation forward = forward_of(c), gradient = gradient_of(c);
    size_t floats = weight_floats(&forward);
    if (is_training) {
        floats = max_of(floats, weight_floats(&gradient));
        floats = max_of(floats, group_of(&forward) * (words_of(&forward, forward.band) + tiles_of(&forward)));
    }
    return (copy_floats(c) + floats) * sizeof(float);
}

static status prepare(struct device_convolution *d, size_t rows, bool is_training) {
    (void)rows;
    return workspace_reserve(d->device, workspace_bytes(&d->c, is_training), "a convolution");
}

/* Reserved again in each pass: the number of threads may have changed. NULL: there is not enough memory. */
static float *reserve(struct device_convolution *d, bool is_training) {
    status s = prepare(d, 0, is_training);
    bool is_missing = s != OK;
    status_free(s);
    return is_missing ? NULL : workspace_of(d->device);
}

static void destroy(struct device_convolution *d) {
    if (!d) return;
    free(d->mirrored);
    free(d);
}

static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    struct device_convolution *d = calloc(1, sizeof *d);
    if (!d) return status_memory("a convolution");
    size_t positions = c->window.kernel[0] * c->window.kernel[1];
    d->device = device;
    d->c = *c;
    d->mirrored = calloc(positions, sizeof *d->mirrored);
    status s = d->mirrored ? prepare(d, rows, true) : status_memory("a convolution");
    if (s) {
        destroy(d);
        return s;
    }
    for (size_t i = 0; i < positions; i++) d->mirrored[i] = positions - 1 - i;
    *out = d;
    return OK;
}

static void forward(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                    size_t rows) {
    struct amx_correlation c = forward_of(&d->c);
    size_t in = d->c.in.channels, terms = d->c.window.kernel[0] * depth_of(&c);
    float *copy = reserve(d, false);
    if (!copy) {
        amx_fail(y, rows * d->c.out.height * d->c.out.width * d->c.out.channels);
        return;
    }
    struct amx_weights weights = {.c = &d->c, .copy = copy, .out_stride = terms, .position_stride = in};
    struct correlation_pass f = {&c, x, copy + copy_floats(&d->c), bias, y, d->c.has_relu};
    amx_copy_weights(&weights, w);
    pack_weights(&c, copy, depth_of(&c), terms, 1, copy + copy_floats(&d->c));
    amx_correlate(&f, rows);
}

static void input_gradient(struct device_convolution *d, const float *w, const float *dy, float *dx, size_t rows) {
    struct amx_correlation c = gradient_of(&d->c);
    size_t in = d->c.in.channels, out = d->c.out.channels;
    float *copy = reserve(d, true);
    if (!copy) {
        amx_fail(dx, rows * d->c.in.height * d->c.in.width * in);
        return;
    }
    struct amx_weights weights = {
        .c = &d->c, .copy = copy, .out_stride = in, .position_stride = out * in, .places = d->mirrored};
    struct correlation_pass f = {&c, dy, copy + copy_floats(&d->c), NULL, dx, false};
    amx_copy_weights(&weights, w);
    pack_weights(&c, copy, depth_of(&c) * in, 1, in, copy + copy_floats(&d->c));
    amx_correlate(&f, rows);
}

static void weight_gradient(struct device_convolution *d, const float *x, const float *dy, float *dw, size_t rows) {
    struct amx_correlation c = forward_of(&d->c);
    float *copy = reserve(d, true);
    if (!copy) {
        amx_fail(dw, d->c.out.channels * d->c.window.kernel[0] * depth_of(&c));
        return;
    }
    float *words = copy + copy_floats(&d->c);
    struct weight_gradient g = {
        .c = &c, .x = x, .dy = dy, .sums = copy, .words = words, .tiles = words + group_of(&c) * words_of(&c, c.band)};
    amx_weight_gradient(&g, rows);
    struct amx_weights weights = {.c = &d->c,
                                  .copy = copy,
                                  .out_stride = c.kernel[0] * gradient_line(&c),
                                  .position_stride = d->c.in.channels,
                                  .line_gap = gradient_line(&c) - depth_of(&c)};
    amx_add_weights(&weights, dw);
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    (void)dbias; /* computed by the caller */
    if (rows == 0) return;
    if (dw) weight_gradient(d, x, dy, dw, rows);
    if (dx) input_gradient(d, w, dy, dx, rows);
}

const struct convolution_ops amx_unit_stride_ops = {
    .create = create, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
