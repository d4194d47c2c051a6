/* Depthwise convolutions: each channel has a kernel of its own, so nothing is summed over channels, and the innermost
 * loop runs over the channels of several pixels whose kernel elements lie in the image at the same places. The gradient
 * of the input is such a sum over the outputs. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "device/cpu/parallel.h"
#include "device/cpu/sets/lanes.h"
#include "device/cpu/sets/set.h"
#include "device/image.h"

#define MAX_SIDE 16 /* of a kernel */
#define MAX_TAPS (MAX_SIDE * MAX_SIDE)
#define PIXELS 4 /* computed together, so that a weight is read once for them */

/* The kernel elements of one dimension that count at a place, and where their sources are. */
struct side {
    size_t count, index[MAX_SIDE], from[MAX_SIDE];
};

struct device_convolution {
    struct convolution c;
    struct side *sides[2][2]; /* [is_backward][dimension]: of each output or, backward, of each pixel */
    size_t taps;              /* kernel elements */
    float *weights;           /* (taps, channels) */
    float *gradients;         /* (taps, channels) */
    float *row;               /* gradients of one row, summed separately, because a long sum in float is less exact */
};

static void destroy(struct device_convolution *d) {
    if (!d) return;
    for (int i = 0; i < 4; i++) free(d->sides[i / 2][i % 2]);
    buffer_free(d->weights);
    buffer_free(d->gradients);
    buffer_free(d->row);
    free(d);
}

/* ---- which kernel elements count at a place ---- */

/* Sources of [target] in dimension [d]: of an output pixels of the image or, [is_backward], of a pixel outputs. */
static struct side side_of(const struct convolution *c, int d, bool is_backward, size_t target) {
    const struct window *w = &c->window;
    size_t stride = w->stride[d], in = d ? c->in.width : c->in.height, out = d ? c->out.width : c->out.height;
    struct side side = {0};
    for (size_t k = 0; k < w->kernel[d]; k++) {
        size_t reach = k * w->dilation[d], from;
        if (is_backward) {
            size_t at = target + w->padding[d];
            if (at < reach || (at - reach) % stride != 0 || (at - reach) / stride >= out) continue;
            from = (at - reach) / stride;
        } else {
            size_t at = target * stride + reach;
            if (at < w->padding[d] || at - w->padding[d] >= in) continue;
            from = at - w->padding[d];
        }
        side.index[side.count] = k;
        side.from[side.count++] = from;
    }
    return side;
}

static status create_sides(struct device_convolution *d) {
    const struct convolution *c = &d->c;
    const size_t counts[2][2] = {{c->out.height, c->out.width}, {c->in.height, c->in.width}};
    for (int i = 0; i < 4; i++) {
        bool is_backward = i / 2;
        int dimension = i % 2;
        size_t count = counts[is_backward][dimension];
        struct side *sides = d->sides[is_backward][dimension] = calloc(count, sizeof *sides);
        if (!sides) return status_memory("a convolution");
        for (size_t at = 0; at < count; at++) sides[at] = side_of(c, dimension, is_backward, at);
    }
    return OK;
}

static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    (void)device;
    (void)rows;
    struct device_convolution *d = calloc(1, sizeof *d);
    if (!d) return status_memory("a convolution");
    d->c = *c;
    d->taps = c->window.kernel[0] * c->window.kernel[1];
    size_t bytes = d->taps * c->in.channels * sizeof(float);
    status s = buffer_new(bytes, "a convolution", (void **)&d->weights);
    if (!s) s = buffer_new(bytes, "a convolution", (void **)&d->gradients);
    if (!s) s = buffer_new(bytes, "a convolution", (void **)&d->row);
    if (!s) s = create_sides(d);
    if (s) destroy(d);
    if (!s) *out = d;
    return s;
}

/* Whether [b] has the kernel elements of [a], [distance] sources later. */
static bool continues(const struct side *a, const struct side *b, size_t distance) {
    bool is_equal = a->count == b->count;
    for (size_t i = 0; is_equal && i < a->count; i++)
        is_equal = a->index[i] == b->index[i] && a->from[i] + distance == b->from[i];
    return is_equal;
}

/* Places of the sources and of the weights, in floats. */
struct taps {
    size_t count, from[MAX_TAPS], weight[MAX_TAPS];
};

static void set_taps(const struct convolution *c, const struct side *y, const struct side *x, size_t width,
                     struct taps *taps) {
    taps->count = 0;
    for (size_t i = 0; i < y->count; i++)
        for (size_t j = 0; j < x->count; j++) {
            taps->from[taps->count] = (y->from[i] * width + x->from[j]) * c->in.channels;
            taps->weight[taps->count++] = (y->index[i] * c->window.kernel[1] + x->index[j]) * c->in.channels;
        }
}

/* ---- sums over the kernel ---- */

/* Pixels whose sources are [from_step] floats apart. */
struct sums {
    const struct taps *taps;
    const float *from, *weights, *bias; /* bias NULL: 0 */
    float *to;
    size_t from_step, to_step, channels;
    bool has_relu;
};

static inline __attribute__((always_inline)) lanes relu_of(lanes x) { return (lanes)((lane_mask)x & ~(x <= 0)); }

/* [pixels] and [vectors], of the channels from [c] on, are constants wherever this is called. */
static inline __attribute__((always_inline)) void sum_at(const struct sums *s, size_t c, size_t pixels,
                                                         size_t vectors) {
    lanes sums[PIXELS][2];
    for (size_t p = 0; p < pixels; p++)
        for (size_t v = 0; v < vectors; v++)
            sums[p][v] = s->bias ? *(const lanes *)(s->bias + c + v * LANES) : (lanes){0};
    for (size_t t = 0; t < s->taps->count; t++) {
        const float *w = s->weights + s->taps->weight[t] + c, *from = s->from + s->taps->from[t] + c;
        for (size_t v = 0; v < vectors; v++) {
            lanes weight = *(const lanes *)(w + v * LANES);
            for (size_t p = 0; p < pixels; p++)
                sums[p][v] = plus_product(sums[p][v], weight, *(const lanes *)(from + p * s->from_step + v * LANES));
        }
    }
    for (size_t p = 0; p < pixels; p++)
        for (size_t v = 0; v < vectors; v++)
            *(lanes *)(s->to + p * s->to_step + c + v * LANES) = s->has_relu ? relu_of(sums[p][v]) : sums[p][v];
}

static inline __attribute__((always_inline)) void sum_pixels(const struct sums *s, size_t pixels) {
    size_t c = 0;
    for (; c + 2 * LANES <= s->channels; c += 2 * LANES) sum_at(s, c, pixels, 2);
    for (; c + LANES <= s->channels; c += LANES) sum_at(s, c, pixels, 1);
    for (; c < s->channels; c++)
        for (size_t p = 0; p < pixels; p++) {
            float sum = s->bias ? s->bias[c] : 0;
            for (size_t t = 0; t < s->taps->count; t++)
                sum = plus_number(sum, s->weights[s->taps->weight[t] + c],
                                  s->from[p * s->from_step + s->taps->from[t] + c]);
            s->to[p * s->to_step + c] = s->has_relu && sum <= 0 ? 0 : sum;
        }
}

/* A pass over some rows of the batch. */
struct work {
    struct device_convolution *d;
    const float *from, *bias;
    float *to;
    bool is_backward;
};

/* One line of the target: groups of pixels a stride apart, as far as they have the same kernel elements. */
static void sum_line(const struct work *work, const struct side *y, const float *from, float *to) {
    const struct convolution *c = &work->d->c;
    bool is_backward = work->is_backward;
    size_t width = is_backward ? c->in.width : c->out.width, step = is_backward ? c->window.stride[1] : 1;
    size_t distance = is_backward ? 1 : c->window.stride[1], channels = c->in.channels;
    const struct side *sides = work->d->sides[is_backward][1];
    struct taps taps;
    for (size_t phase = 0; phase < step; phase++)
        for (size_t x = phase, count; x < width; x += count * step) {
            const struct side *side = &sides[x];
            for (count = 1; count < PIXELS && x + count * step < width; count++)
                if (!continues(side, &sides[x + count * step], count * distance)) break;
            set_taps(c, y, side, is_backward ? c->out.width : c->in.width, &taps);
            struct sums s = {&taps,
                             from,
                             work->d->weights,
                             work->bias,
                             to + x * channels,
                             distance * channels,
                             step * channels,
                             channels,
                             c->has_relu && !is_backward};
            if (count == PIXELS) {
                sum_pixels(&s, PIXELS);
                continue;
            }
            for (size_t p = 0; p < count; p++, s.from += s.from_step, s.to += s.to_step) sum_pixels(&s, 1);
        }
}

static void sum_rows(void *context, size_t first, size_t last) {
    const struct work *work = context;
    const struct convolution *c = &work->d->c;
    size_t in = c->in.height * c->in.width * c->in.channels, out = c->out.height * c->out.width * c->in.channels;
    size_t height = work->is_backward ? c->in.height : c->out.height;
    size_t line = (work->is_backward ? c->in.width : c->out.width) * c->in.channels;
    for (size_t r = first; r < last; r++)
        for (size_t y = 0; y < height; y++)
            sum_line(work, &work->d->sides[work->is_backward][0][y], work->from + r * (work->is_backward ? out : in),
                     work->to + r * (work->is_backward ? in : out) + y * line);
}

/* From (channels, taps) to (taps, channels). */
static void set_weights(struct device_convolution *d, const float *w) {
    size_t channels = d->c.in.channels;
    for (size_t t = 0; t < d->taps; t++)
        for (size_t c = 0; c < channels; c++) d->weights[t * channels + c] = w[c * d->taps + t];
}

static size_t row_cost(const struct device_convolution *d) {
    return d->c.out.height * d->c.out.width * d->c.in.channels * d->taps / 4;
}

static void forward(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                    size_t rows) {
    struct work work = {.d = d, .from = x, .bias = bias, .to = y};
    set_weights(d, w);
    parallel_for(rows, parallel_items(row_cost(d)), sum_rows, &work);
}

/* ---- the gradient of the kernels ---- */

struct gradient {
    struct device_convolution *d;
    const float *x, *dy;
    size_t rows;
};

/* For [count] outputs of a line from dy on: row (taps, channels) += dy x of [taps] kernel elements from [t] on, a
 * constant. The channels are [first, last), whole vectors. */
static inline __attribute__((always_inline)) void multiply_taps(const struct gradient *g, const struct taps *taps,
                                                                size_t t, size_t number, const float *x,
                                                                const float *dy, size_t count, size_t first,
                                                                size_t last) {
    size_t channels = g->d->c.in.channels, step = g->d->c.window.stride[1] * channels;
    for (size_t c = first; c < last; c += LANES) {
        lanes sums[9];
        const float *from[9];
        for (size_t i = 0; i < number; i++) {
            sums[i] = *(const lanes *)(g->d->row + taps->weight[t + i] + c);
            from[i] = x + taps->from[t + i] + c;
        }
        for (size_t n = 0; n < count; n++) {
            lanes slope = *(const lanes *)(dy + n * channels + c);
            for (size_t i = 0; i < number; i++)
                sums[i] = plus_product(sums[i], slope, *(const lanes *)(from[i] + n * step));
        }
        for (size_t i = 0; i < number; i++) *(lanes *)(g->d->row + taps->weight[t + i] + c) = sums[i];
    }
}

static void multiply_run(const struct gradient *g, const struct taps *taps, const float *x, const float *dy,
                         size_t count, size_t first, size_t last) {
    size_t whole = first + (last - first) / LANES * LANES, t = 0;
    size_t channels = g->d->c.in.channels, step = g->d->c.window.stride[1] * channels;
    for (; t + 9 <= taps->count; t += 9) multiply_taps(g, taps, t, 9, x, dy, count, first, whole);
    for (; t + 3 <= taps->count; t += 3) multiply_taps(g, taps, t, 3, x, dy, count, first, whole);
    for (; t < taps->count; t++) multiply_taps(g, taps, t, 1, x, dy, count, first, whole);
    for (size_t c = whole; c < last; c++)
        for (t = 0; t < taps->count; t++) {
            float sum = g->d->row[taps->weight[t] + c];
            for (size_t n = 0; n < count; n++)
                sum = plus_number(sum, dy[n * channels + c], x[taps->from[t] + n * step + c]);
            g->d->row[taps->weight[t] + c] = sum;
        }
}

/* Lines [line, end) of a row of the batch, each in runs of outputs that have the same kernel elements. */
static void multiply_lines(const struct gradient *g, const float *x, const float *dy, size_t line, size_t end,
                           size_t first, size_t last) {
    const struct convolution *c = &g->d->c;
    const struct side *sides = g->d->sides[0][1];
    struct taps taps;
    for (size_t y = line; y < end; y++)
        for (size_t at = 0, count; at < c->out.width; at += count) {
            for (count = 1; at + count < c->out.width; count++)
                if (!continues(&sides[at], &sides[at + count], count * c->window.stride[1])) break;
            set_taps(c, &g->d->sides[0][0][y], &sides[at], c->in.width, &taps);
            multiply_run(g, &taps, x, dy + (y * c->out.width + at) * c->in.channels, count, first, last);
        }
}

/* For some vectors of channels. */
static void gradient_part(void *context, size_t first, size_t last) {
    const struct gradient *g = context;
    const struct convolution *c = &g->d->c;
    size_t channels = c->in.channels, begin = first * LANES, end = last * LANES < channels ? last * LANES : channels;
    size_t width = c->out.width, height = c->out.height;
    size_t lines = width * height > LONG_SUM ? 1 + LONG_SUM_RUN / width : height; /* that are summed together */
    for (size_t r = 0; r < g->rows; r++)
        for (size_t y = 0; y < height; y += lines) {
            for (size_t t = 0; t < g->d->taps; t++)
                memset(g->d->row + t * channels + begin, 0, (end - begin) * sizeof(float));
            multiply_lines(g, g->x + r * c->in.height * c->in.width * channels, g->dy + r * height * width * channels,
                           y, height - y < lines ? height : y + lines, begin, end);
            for (size_t t = 0; t < g->d->taps; t++)
                for (size_t i = t * channels + begin; i < t * channels + end; i++) g->d->gradients[i] += g->d->row[i];
        }
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    size_t channels = d->c.in.channels, vectors = (channels + LANES - 1) / LANES;
    (void)dbias; /* computed by the caller */
    if (dw) {
        struct gradient g = {d, x, dy, rows};
        memset(d->gradients, 0, d->taps * channels * sizeof *d->gradients);
        parallel_for(vectors, parallel_items(rows * row_cost(d) / vectors), gradient_part, &g);
        for (size_t c = 0; c < channels; c++)
            for (size_t t = 0; t < d->taps; t++) dw[c * d->taps + t] += d->gradients[t * channels + c];
    }
    if (!dx) return;
    struct work work = {.d = d, .from = dy, .to = dx, .is_backward = true};
    set_weights(d, w);
    parallel_for(rows, parallel_items(row_cost(d)), sum_rows, &work);
}

const struct convolution_kernels IN_SET(depthwise) = {
    .create = create, .destroy = destroy, .forward = forward, .backward = backward};
