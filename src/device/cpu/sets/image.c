/* Operators over images: the conversion between channels first and channels last, pooling, batch norm and group norm.
 * Windows are small and channels many, so every loop runs over channels innermost. Threads split rows of the batch. */
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

static void transpose(struct device *device, const struct tensor *x, const struct tensor *y, size_t rows, size_t height,
                      size_t width) {
    (void)device;
    parallel_for(rows, parallel_items(height * width), transpose_part,
                 &(struct transposition){floats(x), floats(y), height, width});
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

static void add_relu(struct device *device, const struct tensor *a, const struct tensor *b, const struct tensor *y,
                     size_t count) {
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, add_relu_part, &(struct elements){floats(a), floats(b), floats(y)});
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

static void relu_backward(struct device *device, const struct tensor *y, const struct tensor *dy,
                          const struct tensor *dx, size_t count) {
    (void)device;
    parallel_for(count, PARALLEL_FLOATS, relu_backward_part, &(struct elements){floats(y), floats(dy), floats(dx)});
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

/* Elements of a window: offsets relative to its first one in the image, and positions in the window. */
struct view {
    size_t start; /* of the first element */
    size_t offsets[POOLING_MAX_WINDOW];
    int32_t positions[POOLING_MAX_WINDOW];
    size_t count;
    size_t height, width, skipped[2]; /* from which the others follow; start with zeros */
};

static void list_elements(const struct pooling *p, struct view *view) {
    view->count = 0;
    for (size_t i = 0; i < view->height; i++)
        for (size_t j = 0; j < view->width; j++) {
            view->offsets[view->count] = (i * p->in.width + j) * p->in.channels;
            view->positions[view->count++] =
                (int32_t)((i + view->skipped[0]) * p->window.kernel[1] + j + view->skipped[1]);
        }
}

/* Moves the view to another window, which mostly has the elements of the one before, elsewhere. */
INLINE void move_view(const struct pooling *p, struct span v, size_t ox, struct view *view) {
    struct span h = span_of(p, 1, p->in.width, p->out.width, ox);
    size_t height = v.to - v.from, width = h.to - h.from;
    view->start = (v.from * p->in.width + h.from) * p->in.channels;
    if (height == view->height && width == view->width && v.skipped == view->skipped[0] &&
        h.skipped == view->skipped[1])
        return;
    view->height = height, view->width = width, view->skipped[0] = v.skipped, view->skipped[1] = h.skipped;
    list_elements(p, view);
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
    bool adds; /* backward: an element may be in several windows */
};

static struct image_pass pass_of(const struct pooling *p) {
    size_t channels = p->in.channels;
    return (struct image_pass){.p = p,
                               .channels = channels,
                               .in = p->in.height * p->in.width * channels,
                               .out = p->out.height * p->out.width * channels};
}

/* One window, all channels; [count] is a constant for the common 2 x 2 */
INLINE void max_window(const struct image_pass *pass, const struct view *view, size_t in, size_t out, size_t count) {
    const float *x = pass->x + in;
    float *y = pass->to + out;
    uint8_t *index = pass->new_index + out;
    bool has_relu = pass->p->has_relu;
    size_t c = 0, channels = pass->channels;
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

/* Calls window(pass, view, first element of the window in [in], of the output) for each window of rows [first, last).
 */
INLINE void for_windows(const struct image_pass *pass, size_t first, size_t last,
                        void (*window)(const struct image_pass *, const struct view *, size_t in, size_t out)) {
    const struct pooling *p = pass->p;
    struct view view = {0};
    size_t at = first * pass->out;
    for (size_t r = first; r < last; r++)
        for (size_t oy = 0; oy < p->out.height; oy++) {
            struct span v = span_of(p, 0, p->in.height, p->out.height, oy);
            for (size_t ox = 0; ox < p->out.width; ox++, at += pass->channels) {
                move_view(p, v, ox, &view);
                window(pass, &view, r * pass->in + view.start, at);
            }
        }
}

INLINE void max_forward(const struct image_pass *pass, const struct view *view, size_t in, size_t out) {
    if (view->count == 4)
        max_window(pass, view, in, out, 4);
    else
        max_window(pass, view, in, out, view->count);
}

static void max_pool_forward_part(void *context, size_t first, size_t last) {
    for_windows(context, first, last, max_forward);
}

static void max_pool_forward(struct device *device, const struct pooling *p, const struct tensor *x,
                             const struct tensor *y, uint8_t *index, size_t rows) {
    (void)device;
    struct image_pass pass = pass_of(p);
    pass.x = floats(x), pass.to = floats(y), pass.new_index = index;
    parallel_for(rows, parallel_items(pass.in), max_pool_forward_part, &pass);
}

/* dx at the maximum (+)= dy */
INLINE void max_window_back(const struct image_pass *pass, const struct view *view, size_t in, size_t out, size_t count,
                            bool adds) {
    const float *y = pass->y + out, *dy = pass->dy + out;
    const uint8_t *index = pass->index + out;
    float *dx = pass->to + in;
    bool has_relu = pass->p->has_relu;
    size_t c = 0, channels = pass->channels;
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

INLINE void max_backward(const struct image_pass *pass, const struct view *view, size_t in, size_t out) {
    if (view->count == 4 && !pass->adds)
        max_window_back(pass, view, in, out, 4, false);
    else
        max_window_back(pass, view, in, out, view->count, pass->adds);
}

static void max_pool_backward_part(void *context, size_t first, size_t last) {
    const struct image_pass *pass = context;
    if (pass->adds) memset(pass->to + first * pass->in, 0, (last - first) * pass->in * sizeof *pass->to);
    for_windows(pass, first, last, max_backward);
}

static void max_pool_backward(struct device *device, const struct pooling *p, const struct tensor *y,
                              const uint8_t *index, const struct tensor *dy, const struct tensor *dx, size_t rows) {
    (void)device;
    struct image_pass pass = pass_of(p);
    pass.y = floats(y), pass.index = index, pass.dy = floats(dy), pass.to = floats(dx);
    pass.adds = !is_partition(p);
    parallel_for(rows, parallel_items(pass.in), max_pool_backward_part, &pass);
}

/* y = the element of x at the maximum */
INLINE void gather_window(const struct image_pass *pass, const struct view *view, size_t in, size_t out) {
    const float *x = pass->x + in;
    float *y = pass->to + out;
    const uint8_t *index = pass->index + out;
    size_t c = 0, channels = pass->channels;
    for (; c + LANES <= channels; c += LANES) {
        ints at = __builtin_convertvector(*(const bytes *)(index + c), ints);
        lanes found = {0};
        for (size_t k = 0; k < view->count; k++)
            found = select_lanes(at == view->positions[k], *(const lanes *)(x + view->offsets[k] + c), found);
        *(lanes *)(y + c) = found;
    }
    for (; c < channels; c++)
        for (size_t k = 0; k < view->count; k++)
            if (index[c] == view->positions[k]) y[c] = x[view->offsets[k] + c];
}

static void max_pool_gather_part(void *context, size_t first, size_t last) {
    for_windows(context, first, last, gather_window);
}

static void max_pool_gather(struct device *device, const struct pooling *p, const uint8_t *index,
                            const struct tensor *x, const struct tensor *y, size_t rows) {
    (void)device;
    struct image_pass pass = pass_of(p);
    pass.x = floats(x), pass.index = index, pass.to = floats(y);
    parallel_for(rows, parallel_items(pass.in), max_pool_gather_part, &pass);
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

static void avg_pool_forward(struct device *device, const struct pooling *p, const struct tensor *x,
                             const struct tensor *y, size_t rows) {
    (void)device;
    struct image_pass pass = pass_of(p);
    pass.x = floats(x), pass.to = floats(y);
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

static void avg_pool_backward(struct device *device, const struct pooling *p, const struct tensor *dy,
                              const struct tensor *dx, size_t rows) {
    (void)device;
    struct image_pass pass = pass_of(p);
    pass.dy = floats(dy), pass.to = floats(dx);
    parallel_for(rows, parallel_items(pass.in), avg_pool_backward_part, &pass);
}

/* ---- batch norm and group norm ----
 *
 * Sums are computed in one pass: relative to the first position's values, in float over a few positions and in double
 * beyond, so they are as exact as two passes. Threads split channels where there are sums over positions, else
 * positions. */

#define BLOCK 32 /* channels at a time: their sums stay in registers */
#define RUN 32   /* positions that are summed in float */
#define LINE 16  /* floats of a line of the cache */

/* A batch norm's workspace. */
struct work {
    float *mean, *inverse, *scale, *shift, *from_x, *constant; /* (channels) */
    double *sums;                                              /* (2, channels) for all processes' */
    double *count;                                             /* number of positions of the statistics */
};

static struct work work_of(float *work, size_t channels) {
    double *sums = (double *)(void *)(work + 6 * channels);
    return (struct work){
        work, work + channels,    work + 2 * channels, work + 3 * channels, work + 4 * channels, work + 5 * channels,
        sums, sums + 2 * channels};
}

/* The vectors of the channels from [c] on. */
INLINE struct work from_channel(const struct work *w, size_t c) {
    return (struct work){w->mean + c,   w->inverse + c,  w->scale + c, w->shift + c,
                         w->from_x + c, w->constant + c, NULL,         NULL};
}

/* What sums over positions are made of. */
struct positions {
    const struct batch_norm *norm;
    const struct work *w;
    const float *x, *dy;  /* (count, channels) */
    size_t count, stride; /* of x */
};

static size_t stride_of(const struct batch_norm *norm, const struct tensor *t) {
    return t && t->stride ? t->stride : norm->channels;
}

static void clear_sums(const struct positions *p, size_t first, size_t last) {
    memset(p->w->sums + first, 0, (last - first) * sizeof *p->w->sums);
    memset(p->w->sums + p->norm->channels + first, 0, (last - first) * sizeof *p->w->sums);
}

static void add_sums(const struct positions *p, size_t channel, size_t from, size_t to, const float *first,
                     const float *second) {
    double *sums = p->w->sums + channel;
    for (size_t c = from; c < to; c++) {
        sums[c] += (double)first[c];
        sums[p->norm->channels + c] += (double)second[c];
    }
}

static size_t run_at(const struct positions *p, size_t position) {
    return p->count - position < RUN ? p->count - position : RUN;
}

/* Prefetches the [size] channels at [x] of the position a run later: positions are far apart, which the processor does
 * not expect. Rests of channels are in the lines of others. */
INLINE void prefetch_run(const float *x, size_t stride, size_t size) {
    for (size_t c = 0; size >= LINE && c < size; c += LINE) __builtin_prefetch(x + RUN * stride + c);
}

/* Whether a line exists from the first channel of each position of the run at [position], also where x has a stride. */
static bool is_line_in(const struct positions *p, size_t position) {
    return (position + RUN) * p->norm->channels + LINE <= p->count * p->norm->channels;
}

/* Calls function(p, position, ..., channel, size, from, to) for the channels from [first] to [last], [size] of them at
 * a time, of which [from, to) are summed. [size] is a constant, a whole line wherever there is one: their sums stay in
 * registers, and the compiler makes scalars of less than a vector. A line that would not be whole begins with channels
 * of the call before, or ends with channels of the next position. */
#define FOR_CHANNELS(first, last, function, p, position, ...)                                                          \
    do {                                                                                                               \
        size_t c_ = first;                                                                                             \
        for (; last - c_ >= BLOCK; c_ += BLOCK) function(p, position, __VA_ARGS__ c_, BLOCK, 0, BLOCK);                \
        for (size_t at_; c_ < last && last >= LINE; c_ = at_ + LINE) {                                                 \
            at_ = last - c_ < LINE ? last - LINE : c_;                                                                 \
            function(p, position, __VA_ARGS__ at_, LINE, c_ - at_, LINE);                                              \
        }                                                                                                              \
        if (c_ < last && is_line_in(p, position))                                                                      \
            function(p, position, __VA_ARGS__ c_, LINE, 0, last - c_), c_ = last;                                      \
        if (c_ < last) function(p, position, __VA_ARGS__ c_, last - c_, 0, last - c_);                                 \
    } while (0)

/* sums[0] += x - origin, sums[1] += (x - origin)^2 over a run of positions, of [size] <= BLOCK channels of which
 * [from, to) are added; origin: the first position's values */
INLINE void moments_run(const struct positions *p, size_t position, size_t channel, size_t size, size_t from,
                        size_t to) {
    float first[BLOCK] = {0}, second[BLOCK] = {0};
    size_t stride = p->stride, count = run_at(p, position);
    const float *restrict x = p->x + position * stride + channel, *restrict origin = p->x + channel;
    for (size_t i = 0; i < count; i++, x += stride) {
        prefetch_run(x, stride, size);
        for (size_t c = 0; c < size; c++) {
            float d = x[c] - origin[c];
            first[c] += d;
            second[c] = fmaf(d, d, second[c]);
        }
    }
    add_sums(p, channel, from, to, first, second);
}

/* Writes the sums of moments_run over all positions to w->sums, for some blocks of channels: position after position,
 * as they are in memory. */
static void moments_part(void *context, size_t first, size_t last) {
    const struct positions *p = context;
    size_t begin = first * BLOCK, end = last * BLOCK < p->norm->channels ? last * BLOCK : p->norm->channels;
    clear_sums(p, begin, end);
    for (size_t i = 0; i < p->count; i += RUN) FOR_CHANNELS(begin, end, moments_run, p, i, );
}

static size_t blocks_of(size_t channels) { return (channels + BLOCK - 1) / BLOCK; }

static void sum_positions(void (*part)(void *, size_t, size_t), struct positions *p) {
    parallel_for(blocks_of(p->norm->channels), parallel_items(BLOCK * p->count), part, p);
}

/* Mean and variance over this process's positions. */
static void own_moments(const struct batch_norm *norm, const struct work *w, const struct tensor *tx, size_t count,
                        float *variance) {
    const float *x = floats(tx);
    size_t channels = norm->channels;
    sum_positions(moments_part, &(struct positions){norm, w, x, NULL, count, stride_of(norm, tx)});
#pragma omp simd
    for (size_t c = 0; c < channels; c++) {
        double shift = w->sums[c] / (double)count;
        double spread = w->sums[channels + c] / (double)count - shift * shift;
        w->mean[c] = (float)((double)x[c] + shift);
        variance[c] = (float)(spread > 0 ? spread : 0);
    }
}

/* The moments over the positions of all processes: sums of x and x^2 in double. A process may have no positions. */
static void moments_of_all(const struct batch_norm *norm, const struct work *w, const struct tensor *tx, size_t count,
                           float *variance) {
    const float *x = floats(tx);
    size_t channels = norm->channels;
    sum_positions(moments_part, &(struct positions){norm, w, x, NULL, count, stride_of(norm, tx)});
    for (size_t c = 0; c < channels; c++) {
        double origin = count ? (double)x[c] : 0, sum = w->sums[c];
        w->sums[c] = sum + (double)count * origin;
        w->sums[channels + c] += origin * (2 * sum + (double)count * origin);
    }
    *w->count = (double)count;
    norm->sync->sum(norm->sync->user, w->sums, 2 * channels + 1);
    for (size_t c = 0; c < channels; c++) {
        double mean = w->sums[c] / *w->count, spread = w->sums[channels + c] / *w->count - mean * mean;
        w->mean[c] = (float)mean;
        variance[c] = (float)(spread > 0 ? spread : 0);
    }
}

/* running = (1 - momentum) running + momentum new; a batch of one value has no unbiased variance and its biased
 * variance is used */
static void update_running(const struct batch_norm *norm, const struct work *w, const float *variance, double count,
                           float *running_mean, float *running_var) {
    double m = (double)norm->momentum, unbiased = count > 1 ? count / (count - 1) : 1;
#pragma omp simd
    for (size_t c = 0; c < norm->channels; c++) {
        running_mean[c] = (float)((1 - m) * (double)running_mean[c] + m * (double)w->mean[c]);
        running_var[c] = (float)((1 - m) * (double)running_var[c] + m * unbiased * (double)variance[c]);
    }
}

INLINE void apply(const float *restrict x, float *restrict y, const float *restrict scale, const float *restrict shift,
                  size_t count, size_t channels, bool has_relu) {
    for (size_t i = 0; i < count; i++, x += channels, y += channels)
        for (size_t c = 0; c < channels; c++) {
            float v = fmaf(x[c], scale[c], shift[c]);
            y[c] = has_relu && v <= 0 ? 0 : v;
        }
}

/* Operands of the passes over positions. */
struct application {
    const struct batch_norm *norm;
    const struct work *w;
    const float *x, *dy;
    float *to;
    size_t x_stride, to_stride;
};

/* [count] positions of [channels], from float [at] on. */
static void apply_from(const struct application *a, const struct work *w, size_t at, size_t count, size_t channels) {
    if (a->norm->has_relu)
        apply(a->x + at, a->to + at, w->scale, w->shift, count, channels, true);
    else
        apply(a->x + at, a->to + at, w->scale, w->shift, count, channels, false);
}

#define WIDE 512 /* floats of positions that are taken together */

/* How many of [positions] are taken as one, whose channels are whole vectors: the rest of each would be scalars. */
static size_t taken_together(size_t channels, size_t positions) {
    size_t count = LINE;
    while (count > 1 && channels * (count / 2) % LINE == 0) count /= 2;
    return channels * count <= WIDE && count * LINE <= positions ? count : 1;
}

/* Calls [run] for the positions [first, last). */
static void run_together(const struct application *a, size_t first, size_t last,
                         void (*run)(const struct application *, const struct work *, size_t, size_t, size_t)) {
    float values[5][WIDE];
    size_t channels = a->norm->channels, count = taken_together(channels, last - first), whole = (last - first) / count;
    const float *from[5] = {a->w->mean, a->w->scale, a->w->shift, a->w->from_x, a->w->constant};
    struct work w = {
        .mean = values[0], .scale = values[1], .shift = values[2], .from_x = values[3], .constant = values[4]};
    for (size_t i = 0; count > 1 && i < 5 * count; i++)
        memcpy(values[i / count] + i % count * channels, from[i / count], channels * sizeof **values);
    run(a, count > 1 ? &w : a->w, first * channels, whole, count * channels);
    first += whole * count;
    run(a, a->w, first * channels, last - first, channels);
}

/* The same for positions with gaps between them, in whole lines, the last of which begins with channels of the line
 * before it. */
static void apply_with_gaps(const struct application *a, size_t first, size_t last, bool has_relu) {
    const float *scale = a->w->scale, *shift = a->w->shift;
    size_t channels = a->norm->channels, whole = channels / LINE * LINE;
    for (size_t i = first; i < last; i++) {
        const float *x = a->x + i * a->x_stride;
        float *y = a->to + i * channels;
        prefetch_run(x, a->x_stride, channels);
        for (size_t c = 0; c < whole; c += LINE) apply(x + c, y + c, scale + c, shift + c, 1, LINE, has_relu);
        size_t c = channels - LINE;
        if (whole == 0)
            apply(x, y, scale, shift, 1, channels, has_relu);
        else if (whole < channels)
            apply(x + c, y + c, scale + c, shift + c, 1, LINE, has_relu);
    }
}

static void apply_part(void *context, size_t first, size_t last) {
    const struct application *a = context;
    if (a->x_stride == a->norm->channels)
        run_together(a, first, last, apply_from);
    else if (a->norm->has_relu)
        apply_with_gaps(a, first, last, true);
    else
        apply_with_gaps(a, first, last, false);
}

static void apply_all(const struct batch_norm *norm, const struct work *w, const struct tensor *x,
                      const struct tensor *y, size_t count) {
    parallel_for(count, parallel_items(norm->channels), apply_part,
                 &(struct application){norm, w, floats(x), NULL, floats(y), stride_of(norm, x), norm->channels});
}

static void batch_norm_forward(struct device *device, const struct batch_norm *norm, const struct tensor *x,
                               const float *weight, const float *bias, float *running_mean, float *running_var,
                               float *work, const struct tensor *y, size_t count) {
    (void)device;
    struct work w = work_of(work, norm->channels);
    float *variance = w.constant; /* until backward */
    if (norm->uses_batch) {
        *w.count = (double)count;
        if (norm->sync)
            moments_of_all(norm, &w, x, count, variance);
        else
            own_moments(norm, &w, x, count, variance);
        if (running_mean) update_running(norm, &w, variance, *w.count, running_mean, running_var);
    } else {
        memcpy(w.mean, running_mean, norm->channels * sizeof *w.mean);
        memcpy(variance, running_var, norm->channels * sizeof *variance);
    }
#pragma omp simd
    for (size_t c = 0; c < norm->channels; c++) {
        w.inverse[c] = (float)(1 / sqrt((double)variance[c] + (double)norm->eps));
        w.scale[c] = weight ? weight[c] * w.inverse[c] : w.inverse[c];
        w.shift[c] = fmaf(-w.mean[c], w.scale[c], bias ? bias[c] : 0);
    }
    apply_all(norm, &w, x, y, count);
}

static void batch_norm_recompute(struct device *device, const struct batch_norm *norm, const struct tensor *x,
                                 float *work, const struct tensor *y, size_t count) {
    (void)device;
    struct work w = work_of(work, norm->channels);
    apply_all(norm, &w, x, y, count);
}

/* sums[0] += g, sums[1] += g (x - mean) over a run of positions; with a relu g is dy where y > 0 */
INLINE void gradients_run(const struct positions *p, size_t position, bool has_relu, size_t channel, size_t size,
                          size_t from, size_t to) {
    float first[BLOCK] = {0}, second[BLOCK] = {0};
    size_t channels = p->norm->channels, stride = p->stride, count = run_at(p, position);
    const float *restrict x = p->x + position * stride + channel, *restrict dy = p->dy + position * channels + channel;
    const float *restrict mean = p->w->mean + channel;
    const float *restrict scale = p->w->scale + channel, *restrict shift = p->w->shift + channel;
    for (size_t i = 0; i < count; i++, x += stride, dy += channels) {
        prefetch_run(x, stride, size);
        prefetch_run(dy, channels, size);
        for (size_t c = 0; c < size; c++) {
            float d = dy[c], g = has_relu && fmaf(x[c], scale[c], shift[c]) <= 0 ? 0 : d;
            first[c] += g;
            second[c] = fmaf(g, x[c] - mean[c], second[c]);
        }
    }
    add_sums(p, channel, from, to, first, second);
}

/* Positions of less than a line, whose constants are copied to whole lines. */
struct narrow {
    struct positions positions;
    struct work work;
    float mean[LINE], scale[LINE], shift[LINE];
};

static const struct positions *widen(const struct positions *p, struct narrow *n) {
    size_t size = p->norm->channels * sizeof *n->mean;
    *n = (struct narrow){.positions = *p, .work = *p->w};
    memcpy(n->mean, p->w->mean, size);
    memcpy(n->scale, p->w->scale, size);
    memcpy(n->shift, p->w->shift, size);
    n->work.mean = n->mean, n->work.scale = n->scale, n->work.shift = n->shift;
    n->positions.w = &n->work;
    return &n->positions;
}

/* As moments_part. */
static void gradients_part(void *context, size_t first, size_t last) {
    struct narrow narrow;
    const struct positions *p = context;
    if (p->norm->channels < LINE) p = widen(p, &narrow);
    size_t begin = first * BLOCK, end = last * BLOCK < p->norm->channels ? last * BLOCK : p->norm->channels;
    clear_sums(p, begin, end);
    for (size_t i = 0; i < p->count; i += RUN)
        if (p->norm->has_relu)
            FOR_CHANNELS(begin, end, gradients_run, p, i, true, );
        else
            FOR_CHANNELS(begin, end, gradients_run, p, i, false, );
}

/* dx, to which it adds with [adds], = scale (g - mean(g) - (x - mean) inverse^2 mean(g (x - mean))) */
INLINE void apply_back(const float *restrict x, const float *restrict dy, const struct work *w, float *restrict dx,
                       size_t count, size_t channels, bool has_relu, bool adds) {
    const float *restrict scale = w->scale, *restrict shift = w->shift, *restrict from_x = w->from_x;
    const float *restrict constant = w->constant, *restrict mean = w->mean;
    for (size_t i = 0; i < count; i++, x += channels, dy += channels, dx += channels)
        for (size_t c = 0; c < channels; c++) {
            float g = has_relu && fmaf(x[c], scale[c], shift[c]) <= 0 ? 0 : dy[c];
            float v = fmaf(g, scale[c], fmaf(x[c] - mean[c], from_x[c], constant[c]));
            dx[c] = adds ? dx[c] + v : v;
        }
}

/* function(arguments..., has_relu, adds) with constants. */
#define FOR_EACH_KIND(norm, function, ...)                                                                             \
    do {                                                                                                               \
        if ((norm)->has_relu && (norm)->adds_to_dx)                                                                    \
            function(__VA_ARGS__, true, true);                                                                         \
        else if ((norm)->has_relu)                                                                                     \
            function(__VA_ARGS__, true, false);                                                                        \
        else if ((norm)->adds_to_dx)                                                                                   \
            function(__VA_ARGS__, false, true);                                                                        \
        else                                                                                                           \
            function(__VA_ARGS__, false, false);                                                                       \
    } while (0)

static void apply_back_from(const struct application *a, const struct work *w, size_t at, size_t count,
                            size_t channels) {
    FOR_EACH_KIND(a->norm, apply_back, a->x + at, a->dy + at, w, a->to + at, count, channels);
}

/* As apply_with_gaps; the last line is added before the line that it overlaps is written. */
INLINE void apply_back_with_gaps(const struct application *a, size_t first, size_t last, bool has_relu, bool adds) {
    size_t channels = a->norm->channels, whole = channels / LINE * LINE, rest = channels - LINE;
    for (size_t i = first; i < last; i++) {
        const float *x = a->x + i * a->x_stride, *dy = a->dy + i * channels;
        float *dx = a->to + i * a->to_stride, end[LINE];
        prefetch_run(x, a->x_stride, channels);
        prefetch_run(dx, a->to_stride, channels);
        if (whole == 0) {
            apply_back(x, dy, a->w, dx, 1, channels, has_relu, adds);
            continue;
        }
        if (whole < channels) {
            struct work w = from_channel(a->w, rest);
            memcpy(end, dx + rest, sizeof end);
            apply_back(x + rest, dy + rest, &w, end, 1, LINE, has_relu, adds);
        }
        for (size_t c = 0; c < whole; c += LINE) {
            struct work w = from_channel(a->w, c);
            apply_back(x + c, dy + c, &w, dx + c, 1, LINE, has_relu, adds);
        }
        if (whole < channels) memcpy(dx + rest, end, sizeof end);
    }
}

static void apply_back_part(void *context, size_t first, size_t last) {
    const struct application *a = context;
    if (a->x_stride == a->norm->channels && a->to_stride == a->norm->channels)
        run_together(a, first, last, apply_back_from);
    else
        FOR_EACH_KIND(a->norm, apply_back_with_gaps, a, first, last);
}

static void batch_norm_backward(struct device *device, const struct batch_norm *norm, const struct tensor *tx,
                                const struct tensor *tdy, float *work, const struct tensor *tdx, float *dweight,
                                float *dbias, size_t count) {
    const float *x = floats(tx), *dy = floats(tdy);
    float *dx = floats(tdx);
    (void)device;
    size_t channels = norm->channels;
    struct work w = work_of(work, channels);
    sum_positions(gradients_part, &(struct positions){norm, &w, x, dy, count, stride_of(norm, tx)});
#pragma omp simd
    for (size_t c = 0; c < channels; c++) { /* of this process's rows, as all gradients */
        if (dweight) dweight[c] += (float)(w.sums[channels + c] * (double)w.inverse[c]);
        if (dbias) dbias[c] += (float)w.sums[c];
    }
    if (norm->sync) norm->sync->sum(norm->sync->user, w.sums, 2 * channels);
    if (!dx) return;
#pragma omp simd
    for (size_t c = 0; c < channels; c++) {
        double inverse = (double)w.inverse[c], scale = (double)w.scale[c];
        w.from_x[c] = (float)(-scale * inverse * inverse * w.sums[channels + c] / *w.count);
        w.constant[c] = (float)(-scale * w.sums[c] / *w.count);
    }
    parallel_for(count, parallel_items(channels), apply_back_part,
                 &(struct application){norm, &w, x, dy, dx, stride_of(norm, tx), stride_of(norm, tdx)});
}

/* Mean and variance of one group of one row. */
static void group_moments(const struct group_norm *norm, const float *x, double *mean, double *variance) {
    size_t size = norm->channels / norm->groups;
    double sum = 0, squares = 0, count = (double)(size * norm->positions), origin = (double)x[0];
    for (size_t i = 0; i < norm->positions; i++)
        for (size_t c = 0; c < size; c++) {
            double d = (double)x[i * norm->channels + c] - origin;
            sum += d;
            squares += d * d;
        }
    *mean = origin + sum / count;
    *variance = squares / count - sum / count * (sum / count);
    if (*variance < 0) *variance = 0;
}

static void group_norm_forward(struct device *device, const struct group_norm *norm, const struct tensor *x,
                               const float *weight, const float *bias, float *saved, const struct tensor *y,
                               size_t rows) {
    (void)device;
    size_t size = norm->channels / norm->groups, row = norm->channels * norm->positions;
    for (size_t r = 0; r < rows; r++)
        for (size_t g = 0; g < norm->groups; g++) {
            const float *from = floats(x) + r * row + g * size;
            float *to = floats(y) + r * row + g * size;
            double mean, variance;
            group_moments(norm, from, &mean, &variance);
            double inverse = 1 / sqrt(variance + (double)norm->eps);
            saved[2 * (r * norm->groups + g)] = (float)mean;
            saved[2 * (r * norm->groups + g) + 1] = (float)inverse;
            for (size_t i = 0; i < norm->positions; i++)
                for (size_t c = 0; c < size; c++) {
                    float v = (from[i * norm->channels + c] - (float)mean) * (float)inverse;
                    to[i * norm->channels + c] = weight ? fmaf(v, weight[g * size + c], bias[g * size + c]) : v;
                }
        }
}

/* dweight += sums of dy v, dbias += sums of dy over the positions of all rows, of [size] <= BLOCK channels of a group
 */
static void add_group_sums(const struct group_norm *norm, const float *x, const float *saved, const float *dy,
                           size_t rows, size_t channel, size_t size, float *dweight, float *dbias) {
    double weights[BLOCK] = {0}, biases[BLOCK] = {0};
    size_t channels = norm->channels, group = channel / (channels / norm->groups);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0, end; i < norm->positions; i = end) {
            const float *statistics = saved + 2 * (r * norm->groups + group);
            float mean = statistics[0], inverse = statistics[1], first[BLOCK] = {0}, second[BLOCK] = {0};
            end = norm->positions - i < RUN ? norm->positions : i + RUN;
            for (size_t e = (r * norm->positions + i) * channels + channel; i < end; i++, e += channels)
                for (size_t c = 0; c < size; c++) {
                    first[c] += dy[e + c] * ((x[e + c] - mean) * inverse);
                    second[c] += dy[e + c];
                }
            for (size_t c = 0; c < size; c++) weights[c] += (double)first[c], biases[c] += (double)second[c];
        }
    for (size_t c = 0; c < size; c++) {
        if (dweight) dweight[channel + c] += (float)weights[c];
        if (dbias) dbias[channel + c] += (float)biases[c];
    }
}

/* v = (x - mean) inverse;  h = dy weight;  dx = inverse (h - mean(h) - v mean(h v)) */
static void group_norm_backward(struct device *device, const struct group_norm *norm, const struct tensor *tx,
                                const float *weight, const float *saved, const struct tensor *tdy,
                                const struct tensor *tdx, float *dweight, float *dbias, size_t rows) {
    const float *x = floats(tx), *dy = floats(tdy);
    float *dx = floats(tdx);
    (void)device;
    size_t size = norm->channels / norm->groups, row = norm->channels * norm->positions;
    if (rows * norm->positions > LONG_SUM && (dweight || dbias)) {
        for (size_t c = 0; c < norm->channels; c += size)
            for (size_t j = 0; j < size; j += BLOCK)
                add_group_sums(norm, x, saved, dy, rows, c + j, size - j < BLOCK ? size - j : BLOCK, dweight, dbias);
        dweight = dbias = NULL;
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t g = 0; g < norm->groups; g++) {
            size_t at = r * row + g * size;
            float mean = saved[2 * (r * norm->groups + g)], inverse = saved[2 * (r * norm->groups + g) + 1];
            double sum = 0, product = 0, count = (double)(size * norm->positions);
            for (size_t i = 0; i < norm->positions; i++)
                for (size_t c = 0; c < size; c++) {
                    size_t e = at + i * norm->channels + c;
                    float v = (x[e] - mean) * inverse, h = weight ? dy[e] * weight[g * size + c] : dy[e];
                    sum += (double)h;
                    product += (double)(h * v);
                    if (dweight) dweight[g * size + c] += dy[e] * v;
                    if (dbias) dbias[g * size + c] += dy[e];
                }
            float h_mean = (float)(sum / count), hv_mean = (float)(product / count);
            for (size_t i = 0; dx && i < norm->positions; i++)
                for (size_t c = 0; c < size; c++) {
                    size_t e = at + i * norm->channels + c;
                    float v = (x[e] - mean) * inverse, h = weight ? dy[e] * weight[g * size + c] : dy[e];
                    dx[e] = inverse * (h - h_mean - v * hv_mean);
                }
        }
}

const struct image_ops IN_SET(image) = {
    .add_relu = add_relu,
    .relu_backward = relu_backward,
    .transpose = transpose,
    .max_pool_forward = max_pool_forward,
    .max_pool_backward = max_pool_backward,
    .max_pool_gather = max_pool_gather,
    .avg_pool_forward = avg_pool_forward,
    .avg_pool_backward = avg_pool_backward,
    .batch_norm_forward = batch_norm_forward,
    .batch_norm_recompute = batch_norm_recompute,
    .batch_norm_backward = batch_norm_backward,
    .group_norm_forward = group_norm_forward,
    .group_norm_backward = group_norm_backward,
    .takes_strides = true,
};
