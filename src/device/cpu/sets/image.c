/* Pooling and the conversion between channels first and channels last. Windows are small and channels many, so every
 * loop runs over channels innermost. Threads split rows of the batch. */
#include <math.h>
#include <string.h>

#include "device/cpu/parallel.h"
#include "device/cpu/sets/set.h"
#include "device/image.h"

#define LANES KERNELS_LANES
#define INLINE static inline __attribute__((always_inline))

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1)));

#define TILE 16
#define SUM_CHANNELS 64 /* whose sums are added together */

struct transposition {
    const float *x;
    float *y;
    size_t height, width;
};

static void transpose_part(void *context, size_t first, size_t last) {
    const struct transposition *t = context;
    size_t height = t->height, width = t->width;
    const float *restrict x = t->x + first * height * width;
    float *restrict y = t->y + first * height * width;
    for (size_t r = first; r < last; r++, x += height * width, y += height * width)
        for (size_t i = 0; i < height; i += TILE)
            for (size_t j = 0; j < width; j += TILE) {
                size_t i_end = i + TILE < height ? i + TILE : height, j_end = j + TILE < width ? j + TILE : width;
                for (size_t b = j; b < j_end; b++)
                    for (size_t a = i; a < i_end; a++) y[b * height + a] = x[a * width + b];
            }
}

static void transpose(struct device *device, const float *x, float *y, size_t rows, size_t height, size_t width) {
    (void)device;
    parallel_for(rows, parallel_items(height * width), transpose_part, &(struct transposition){x, y, height, width});
}

struct elements {
    const float *a, *b;
    float *to;
};

/* [to] may be [a] or [b]: the compiler's own overlap check would then choose the scalar loop. */
static void add_relu_part(void *context, size_t first, size_t last) {
    const struct elements *e = context;
    const float *a = e->a, *b = e->b;
    float *to = e->to;
#pragma omp simd
    for (size_t i = first; i < last; i++) {
        float v = a[i] + b[i];
        to[i] = v <= 0 ? 0 : v;
    }
}

static void add_relu(struct device *device, const float *a, const float *b, float *y, size_t count) {
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, add_relu_part, &(struct elements){a, b, y});
}

static void relu_backward_part(void *context, size_t first, size_t last) {
    const struct elements *e = context;
    const float *y = e->a, *dy = e->b;
    float *to = e->to;
#pragma omp simd
    for (size_t i = first; i < last; i++) {
        float gradient = dy[i];
        to[i] = y[i] > 0 ? gradient : 0;
    }
}

static void relu_backward(struct device *device, const float *y, const float *dy, float *dx, size_t count) {
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, relu_backward_part, &(struct elements){y, dy, dx});
}

/* The real elements of a window along one dimension; [skipped]: number of padding elements before them; [padded]: all
 * of its elements in the padded image, which the last window may exceed. */
struct span {
    size_t from, to, skipped, padded;
};

INLINE struct span span_of(const struct pooling *p, int d, size_t in, size_t out, size_t o) {
    if (p->is_adaptive) return (struct span){o * in / out, ((o + 1) * in + out - 1) / out, 0, 0};
    size_t start = o * p->window.stride[d], end = start + p->window.kernel[d], padding = p->window.padding[d];
    size_t skipped = start < padding ? padding - start : 0,
           padded_end = end < in + 2 * padding ? end : in + 2 * padding;
    return (struct span){start + skipped - padding, (end < in + padding ? end : in + padding) - padding, skipped,
                         padded_end - start};
}

/* Elements of a window: offsets relative to the image, and positions in the window. */
struct view {
    size_t offsets[POOLING_MAX_WINDOW];
    int32_t positions[POOLING_MAX_WINDOW];
    size_t count;
};

static void find_elements(const struct pooling *p, size_t oy, size_t ox, struct view *view) {
    struct span v = span_of(p, 0, p->in.height, p->out.height, oy), h = span_of(p, 1, p->in.width, p->out.width, ox);
    view->count = 0;
    for (size_t i = v.from; i < v.to; i++)
        for (size_t j = h.from; j < h.to; j++) {
            view->offsets[view->count] = (i * p->in.width + j) * p->in.channels;
            view->positions[view->count++] =
                (int32_t)((i - v.from + v.skipped) * p->window.kernel[1] + j - h.from + h.skipped);
        }
}

INLINE lanes select_lanes(ints mask, lanes yes, lanes no) { return (lanes)((mask & (ints)yes) | (~mask & (ints)no)); }

/* Operands of a pooling, (rows, in) and (rows, out). */
struct image_pass {
    const struct pooling *p;
    const float *x, *y, *dy;
    float *to; /* y forward, dx backward */
    const uint8_t *index;
    uint8_t *new_index;
    size_t channels, in, out;
};

static struct image_pass pass_of(const struct pooling *p) {
    size_t channels = p->in.channels;
    return (struct image_pass){.p = p,
                               .channels = channels,
                               .in = p->in.height * p->in.width * channels,
                               .out = p->out.height * p->out.width * channels};
}

/* One window, all channels; [count] is a constant for the common 2 x 2 */
INLINE void max_window(const float *x, float *y, uint8_t *index, const struct view *view, size_t count, size_t channels,
                       bool has_relu) {
    size_t c = 0;
    for (; c + LANES <= channels; c += LANES) {
        lanes best = *(const lanes *)(x + view->offsets[0] + c);
        ints at = (ints){0} + view->positions[0];
        for (size_t k = 1; k < count; k++) {
            lanes v = *(const lanes *)(x + view->offsets[k] + c);
            ints is_better = (v > best) | (v != v);
            best = select_lanes(is_better, v, best);
            at = (is_better & view->positions[k]) | (~is_better & at);
        }
        if (has_relu) best = select_lanes(best <= 0, (lanes){0}, best);
        *(lanes *)(y + c) = best;
        *(bytes *)(index + c) = __builtin_convertvector(at, bytes);
    }
    for (; c < channels; c++) {
        float best = x[view->offsets[0] + c];
        int32_t at = view->positions[0];
        for (size_t k = 1; k < count; k++) {
            float v = x[view->offsets[k] + c];
            if (v > best || v != v) best = v, at = view->positions[k];
        }
        y[c] = has_relu && best <= 0 ? 0 : best;
        index[c] = (uint8_t)at;
    }
}

static void max_pool_forward_part(void *context, size_t first, size_t last) {
    const struct image_pass *pass = context;
    const struct pooling *p = pass->p;
    struct view view;
    for (size_t oy = 0; oy < p->out.height; oy++)
        for (size_t ox = 0; ox < p->out.width; ox++) {
            find_elements(p, oy, ox, &view);
            for (size_t r = first; r < last; r++) {
                size_t at = r * pass->out + (oy * p->out.width + ox) * pass->channels;
                const float *from = pass->x + r * pass->in;
                if (view.count == 4)
                    max_window(from, pass->to + at, pass->new_index + at, &view, 4, pass->channels, p->has_relu);
                else
                    max_window(from, pass->to + at, pass->new_index + at, &view, view.count, pass->channels,
                               p->has_relu);
            }
        }
}

static void max_pool_forward(struct device *device, const struct pooling *p, const float *x, float *y, uint8_t *index,
                             size_t rows) {
    (void)device;
    struct image_pass pass = pass_of(p);
    pass.x = x, pass.to = y, pass.new_index = index;
    parallel_for(rows, parallel_items(pass.in), max_pool_forward_part, &pass);
}

/* dx at the maximum (+)= dy */
INLINE void max_window_back(float *dx, const float *y, const uint8_t *index, const float *dy, const struct view *view,
                            size_t count, size_t channels, bool has_relu, bool adds) {
    size_t c = 0;
    for (; c + LANES <= channels; c += LANES) {
        lanes g = *(const lanes *)(dy + c);
        ints at = __builtin_convertvector(*(const bytes *)(index + c), ints);
        if (has_relu) g = select_lanes(*(const lanes *)(y + c) > 0, g, (lanes){0});
        for (size_t k = 0; k < count; k++) {
            lanes *to = (lanes *)(dx + view->offsets[k] + c);
            lanes part = select_lanes(at == view->positions[k], g, (lanes){0});
            *to = adds ? *to + part : part;
        }
    }
    for (; c < channels; c++) {
        float g = has_relu && !(y[c] > 0) ? 0 : dy[c];
        for (size_t k = 0; k < count; k++) {
            float *to = dx + view->offsets[k] + c, part = index[c] == view->positions[k] ? g : 0;
            *to = adds ? *to + part : part;
        }
    }
}

/* Every input element is in exactly one window. */
static bool is_partition(const struct pooling *p) {
    const struct window *w = &p->window;
    return !p->is_adaptive && w->kernel[0] == w->stride[0] && w->kernel[1] == w->stride[1] && !w->padding[0] &&
           !w->padding[1] && p->in.height == p->out.height * w->kernel[0] && p->in.width == p->out.width * w->kernel[1];
}

static void max_pool_backward_part(void *context, size_t first, size_t last) {
    const struct image_pass *pass = context;
    const struct pooling *p = pass->p;
    struct view view;
    bool adds = !is_partition(p);
    if (adds) memset(pass->to + first * pass->in, 0, (last - first) * pass->in * sizeof *pass->to);
    for (size_t oy = 0; oy < p->out.height; oy++)
        for (size_t ox = 0; ox < p->out.width; ox++) {
            find_elements(p, oy, ox, &view);
            for (size_t r = first; r < last; r++) {
                size_t at = r * pass->out + (oy * p->out.width + ox) * pass->channels;
                float *to = pass->to + r * pass->in;
                if (view.count == 4 && !adds)
                    max_window_back(to, pass->y + at, pass->index + at, pass->dy + at, &view, 4, pass->channels,
                                    p->has_relu, false);
                else
                    max_window_back(to, pass->y + at, pass->index + at, pass->dy + at, &view, view.count,
                                    pass->channels, p->has_relu, adds);
            }
        }
}

static void max_pool_backward(struct device *device, const struct pooling *p, const float *y, const uint8_t *index,
                              const float *dy, float *dx, size_t rows) {
    (void)device;
    struct image_pass pass = pass_of(p);
    pass.y = y, pass.index = index, pass.dy = dy, pass.to = dx;
    parallel_for(rows, parallel_items(pass.in), max_pool_backward_part, &pass);
}

/* 1 / elements of the window */
INLINE float window_factor(const struct pooling *p, struct span v, struct span h) {
    size_t real = (v.to - v.from) * (h.to - h.from), all = v.padded * h.padded;
    if (p->divisor) return 1 / (float)p->divisor;
    return 1 / (float)(p->is_adaptive || p->excludes_padding ? real : all);
}

/* y (channels) += the elements of a window; a line of a large one has a sum of its own */
static void sum_window(const struct image_pass *pass, const float *restrict x, struct span v, struct span h,
                       float *restrict y) {
    size_t channels = pass->channels, elements = (v.to - v.from) * (h.to - h.from);
    for (size_t i = v.from; i < v.to; i++) {
        const float *restrict line = x + (i * pass->p->in.width + h.from) * channels;
        for (size_t first = 0, last; first < channels && elements > LONG_SUM; first = last) {
            float sums[SUM_CHANNELS] = {0};
            last = channels - first < SUM_CHANNELS ? channels : first + SUM_CHANNELS;
            IN_SET(add_rows)(sums, line + first, h.to - h.from, last - first, channels);
            for (size_t c = first; c < last; c++) y[c] += sums[c - first];
        }
        for (size_t j = 0; j < h.to - h.from && elements <= LONG_SUM; j++)
            for (size_t c = 0; c < channels; c++) y[c] += line[j * channels + c];
    }
}

static void avg_pool_forward_part(void *context, size_t first, size_t last) {
    const struct image_pass *pass = context;
    const struct pooling *p = pass->p;
    const float *restrict x = pass->x + first * pass->in;
    float *restrict y = pass->to + first * pass->out;
    for (size_t r = first; r < last; r++, x += pass->in)
        for (size_t oy = 0; oy < p->out.height; oy++)
            for (size_t ox = 0; ox < p->out.width; ox++, y += pass->channels) {
                struct span v = span_of(p, 0, p->in.height, p->out.height, oy);
                struct span h = span_of(p, 1, p->in.width, p->out.width, ox);
                float factor = window_factor(p, v, h);
                memset(y, 0, pass->channels * sizeof *y);
                sum_window(pass, x, v, h, y);
                for (size_t c = 0; c < pass->channels; c++) y[c] *= factor;
            }
}

static void avg_pool_forward(struct device *device, const struct pooling *p, const float *x, float *y, size_t rows) {
    (void)device;
    struct image_pass pass = pass_of(p);
    pass.x = x, pass.to = y;
    parallel_for(rows, parallel_items(pass.in), avg_pool_forward_part, &pass);
}

static void avg_pool_backward_part(void *context, size_t first, size_t last) {
    const struct image_pass *pass = context;
    const struct pooling *p = pass->p;
    const float *restrict dy = pass->dy + first * pass->out;
    float *restrict dx = pass->to + first * pass->in;
    memset(dx, 0, (last - first) * pass->in * sizeof *dx);
    for (size_t r = first; r < last; r++, dx += pass->in)
        for (size_t oy = 0; oy < p->out.height; oy++)
            for (size_t ox = 0; ox < p->out.width; ox++, dy += pass->channels) {
                struct span v = span_of(p, 0, p->in.height, p->out.height, oy);
                struct span h = span_of(p, 1, p->in.width, p->out.width, ox);
                float factor = window_factor(p, v, h);
                for (size_t i = v.from; i < v.to; i++)
                    for (size_t j = h.from; j < h.to; j++)
                        for (size_t c = 0; c < pass->channels; c++)
                            dx[(i * p->in.width + j) * pass->channels + c] += dy[c] * factor;
            }
}

static void avg_pool_backward(struct device *device, const struct pooling *p, const float *dy, float *dx, size_t rows) {
    (void)device;
    struct image_pass pass = pass_of(p);
    pass.dy = dy, pass.to = dx;
    parallel_for(rows, parallel_items(pass.in), avg_pool_backward_part, &pass);
}

const struct image_ops IN_SET(image_ops) = {
    .add_relu = add_relu,
    .relu_backward = relu_backward,
    .transpose = transpose,
    .max_pool_forward = max_pool_forward,
    .max_pool_backward = max_pool_backward,
    .avg_pool_forward = avg_pool_forward,
    .avg_pool_backward = avg_pool_backward,
    .batch_norm_forward = IN_SET(batch_norm_forward),
    .batch_norm_recompute = IN_SET(batch_norm_recompute),
    .batch_norm_backward = IN_SET(batch_norm_backward),
    .group_norm_forward = IN_SET(group_norm_forward),
    .group_norm_backward = IN_SET(group_norm_backward),
};
