/* Convolution without a library: the pixels under the kernel become rows of a matrix (im2col), followed by a matrix
 * product per row of the batch and group. Small convolutions always run here: the set-up of a library costs more. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "device/cpu/parallel.h"
#include "device/cpu/sets/set.h"
#include "device/image.h"

struct device_convolution {
    struct convolution c;
    size_t in_group, out_group; /* channels of one group */
    size_t taps;                /* kernel elements: height * width */
    size_t depth;               /* taps * in_group: length of a product */
    size_t positions;           /* out height * width */
    float *columns;             /* (positions, taps, in_group): of one row and group */
    float *weights, *gradients; /* (groups, taps, in_group, out_group) */
    float *row;                 /* gradients of one row, summed separately, because a long sum in float is less exact */
};

static void destroy(struct device_convolution *d) {
    if (!d) return;
    buffer_free(d->columns);
    buffer_free(d->weights);
    buffer_free(d->gradients);
    buffer_free(d->row);
    free(d);
}

static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    (void)device;
    (void)rows;
    struct device_convolution *d = calloc(1, sizeof *d);
    if (!d) return status_memory("a convolution");
    d->c = *c;
    d->in_group = c->in.channels / c->groups;
    d->out_group = c->out.channels / c->groups;
    d->taps = c->window.kernel[0] * c->window.kernel[1];
    d->depth = d->taps * d->in_group;
    d->positions = c->out.height * c->out.width;
    size_t weights = c->groups * d->depth * d->out_group * sizeof(float);
    status s = buffer_new(d->positions * d->depth * sizeof(float), "a convolution", (void **)&d->columns);
    if (!s) s = buffer_new(weights, "a convolution", (void **)&d->weights);
    if (!s) s = buffer_new(weights, "a convolution", (void **)&d->gradients);
    if (!s) s = buffer_new(weights, "a convolution", (void **)&d->row);
    if (s) destroy(d);
    if (!s) *out = d;
    return s;
}

/* For kernel element (ky, kx) at output (oy, ox): the pixel, or false if it is padding. */
static inline bool pixel_of(const struct convolution *c, size_t oy, size_t ox, size_t ky, size_t kx, size_t *pixel) {
    const struct window *w = &c->window;
    size_t y = oy * w->stride[0] + ky * w->dilation[0], x = ox * w->stride[1] + kx * w->dilation[1];
    if (y < w->padding[0] || x < w->padding[1]) return false;
    y -= w->padding[0];
    x -= w->padding[1];
    *pixel = y * c->in.width + x;
    return y < c->in.height && x < c->in.width;
}

/* Copies the pixels of x to columns or, with [adds], adds columns to the pixels. */
static void move_columns(struct device_convolution *d, float *x, size_t group, bool adds) {
    const struct convolution *c = &d->c;
    float *column = d->columns;
    for (size_t oy = 0; oy < c->out.height; oy++)
        for (size_t ox = 0; ox < c->out.width; ox++)
            for (size_t ky = 0; ky < c->window.kernel[0]; ky++)
                for (size_t kx = 0; kx < c->window.kernel[1]; kx++, column += d->in_group) {
                    size_t pixel;
                    if (!pixel_of(c, oy, ox, ky, kx, &pixel)) {
                        if (!adds) memset(column, 0, d->in_group * sizeof *column);
                        continue;
                    }
                    float *at = x + pixel * c->in.channels + group * d->in_group;
                    if (adds)
                        for (size_t i = 0; i < d->in_group; i++) at[i] += column[i];
                    else
                        memcpy(column, at, d->in_group * sizeof *column);
                }
}

/* Copies weights from PyTorch's order to this one or, with [adds], adds gradients in this order to PyTorch's. */
static void move_weights(struct device_convolution *d, const float *from, float *to, bool adds) {
    size_t ours = 0;
    for (size_t g = 0; g < d->c.groups; g++)
        for (size_t t = 0; t < d->taps; t++)
            for (size_t i = 0; i < d->in_group; i++)
                for (size_t o = 0; o < d->out_group; o++, ours++) {
                    size_t theirs = ((g * d->out_group + o) * d->in_group + i) * d->taps + t;
                    if (adds)
                        to[theirs] += from[ours];
                    else
                        to[ours] = from[theirs];
                }
}

static void forward(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                    size_t rows) {
    const struct convolution *c = &d->c;
    size_t in = c->in.height * c->in.width * c->in.channels, channels = c->out.channels;
    move_weights(d, w, d->weights, false);
    for (size_t r = 0; r < rows; r++, x += in, y += d->positions * channels) {
        for (size_t i = 0; i < d->positions; i++)
            for (size_t o = 0; o < channels; o++) y[i * channels + o] = bias ? bias[o] : 0;
        for (size_t g = 0; g < c->groups; g++) {
            move_columns(d, (float *)x, g, false);
            IN_SET(gemm)
            (d->positions, d->out_group, d->depth, d->columns, d->depth, 1, d->weights + g * d->depth * d->out_group,
             d->out_group, 1, y + g * d->out_group, channels);
        }
        for (size_t i = 0; c->has_relu && i < d->positions * channels; i++) y[i] = y[i] <= 0 ? 0 : y[i];
    }
}

#define BLOCK 32 /* channels at a time: their sums stay in registers */

static inline __attribute__((always_inline)) void sum_block(const float *restrict dy, float *restrict dbias,
                                                            size_t positions, size_t channels, size_t size) {
    float sums[BLOCK] = {0};
    for (size_t i = 0; i < positions; i++)
        for (size_t o = 0; o < size; o++) sums[o] += dy[i * channels + o];
    for (size_t o = 0; o < size; o++) dbias[o] += sums[o];
}

struct column_sums {
    const float *dy;
    float *dbias;
    size_t rows, positions, channels;
};

/* For some blocks of channels. */
static void bias_part(void *context, size_t first, size_t last) {
    const struct column_sums *s = context;
    size_t from = first * BLOCK, to = last * BLOCK < s->channels ? last * BLOCK : s->channels;
    if (s->positions > LONG_SUM || s->rows > LONG_SUM) {
        IN_SET(add_rows)(s->dbias + from, s->dy + from, s->rows * s->positions, to - from, s->channels);
        return;
    }
    for (size_t r = 0; r < s->rows; r++)
        for (size_t o = from; o < to; o += BLOCK) {
            const float *dy = s->dy + r * s->positions * s->channels + o;
            if (s->channels - o >= BLOCK)
                sum_block(dy, s->dbias + o, s->positions, s->channels, BLOCK);
            else
                sum_block(dy, s->dbias + o, s->positions, s->channels, s->channels - o);
        }
}

void IN_SET(bias_gradient)(const float *dy, float *dbias, size_t rows, size_t positions, size_t channels) {
    parallel_for((channels + BLOCK - 1) / BLOCK, parallel_items(rows * positions * BLOCK), bias_part,
                 &(struct column_sums){dy, dbias, rows, positions, channels});
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    const struct convolution *c = &d->c;
    size_t in = c->in.height * c->in.width * c->in.channels, channels = c->out.channels;
    size_t weights = c->groups * d->depth * d->out_group;
    move_weights(d, w, d->weights, false);
    if (dw) memset(d->gradients, 0, weights * sizeof *d->gradients);
    if (dx) memset(dx, 0, rows * in * sizeof *dx);
    if (dbias) IN_SET(bias_gradient)(dy, dbias, rows, d->positions, channels);
    for (size_t r = 0; r < rows; r++, dy += d->positions * channels) {
        if (dw) memset(d->row, 0, weights * sizeof *d->row);
        for (size_t g = 0; g < c->groups; g++) {
            const float *dy_group = dy + g * d->out_group;
            size_t at = g * d->depth * d->out_group;
            if (dw) {
                move_columns(d, (float *)x + r * in, g, false);
                IN_SET(gemm)
                (d->depth, d->out_group, d->positions, d->columns, 1, d->depth, dy_group, channels, 1, d->row + at,
                 d->out_group);
            }
            if (!dx) continue;
            memset(d->columns, 0, d->positions * d->depth * sizeof *d->columns);
            IN_SET(gemm)
            (d->positions, d->depth, d->out_group, dy_group, channels, 1, d->weights + at, 1, d->out_group, d->columns,
             d->depth);
            move_columns(d, dx + r * in, g, true);
        }
        for (size_t i = 0; dw && i < weights; i++) d->gradients[i] += d->row[i];
    }
    if (dw) move_weights(d, d->gradients, dw, true);
}

const struct convolution_kernels IN_SET(convolution) = {
    .create = create, .destroy = destroy, .forward = forward, .backward = backward};
