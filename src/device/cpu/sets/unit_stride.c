/* Convolutions with stride 1 and few channels: the pixels under a line of the kernel are contiguous on channels-last
 * memory, so tiles of results are summed from the image itself, or from a copy of some of its lines with zeros around
 * them. The gradient of the input is such a convolution of the outputs' gradient. Each sum has one order (line, pixel
 * and channel of the kernel; of the weights' gradient images, lines and pixels) for vectors of any width and any number
 * of threads; as in gemm.c the compiler may fuse a product and a sum. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/sets/lanes.h"
#include "device/cpu/sets/set.h"
#include "device/image.h"

#define INLINE static inline __attribute__((always_inline))
#define MAX_PIXELS 8                                    /* of a tile */
#define WIDE_PIXELS (KERNELS_REGISTERS == 32 ? 8 : 4)   /* of a tile of three vectors, and outputs of one of weights */
#define MIDDLE_PIXELS (KERNELS_REGISTERS == 32 ? 8 : 6) /* of a tile of two vectors */
#define LINE 16                                         /* floats of a line of the cache */
#define STRIP ((size_t)16384)                           /* floats of the lines that all panels of outputs read */
#define WEIGHTS_STRIP ((size_t)7168) /* of what all tiles of weights read: it stays in the first-level cache */
#define PARTS 8           /* ranges of images whose weight gradients are summed separately, for any number of threads */
#define MIN_POSITIONS 256 /* of images whose sums are one, because a long sum in float is less exact */

struct device_convolution {
    struct device *device;
    struct convolution c;
};

static size_t min_of(size_t a, size_t b) { return a < b ? a : b; }
static size_t whole_vectors(size_t columns) { return (columns + LANES - 1) / LANES * LANES; }

/* ---- strips: some lines of an image with zeros around them ---- */

/* What a pass reads and writes: y (out) from x (in), [before] zeros before x. */
struct correlation {
    struct image_shape in, out;
    size_t kernel[2], before[2];
    size_t strip; /* lines of y at a time */
};

/* Pixels of a line with its zeros. */
static size_t line_pixels(const struct correlation *p) { return p->out.width + p->kernel[1] - 1; }
static size_t strip_pixels(const struct correlation *p) { return (p->strip + p->kernel[0] - 1) * line_pixels(p); }

/* The lines of a strip for which [max] floats hold [channels] of each of its pixels, and [outputs] of each of its
 * outputs. */
static size_t strip_of(const struct correlation *p, size_t max, size_t channels, size_t outputs) {
    size_t line = line_pixels(p) * channels, more = (p->kernel[0] - 1) * line, each = line + p->out.width * outputs;
    return min_of(max > more + each ? (max - more) / each : 1, p->out.height);
}

static struct correlation correlation_of(const struct convolution *c, bool is_backward) {
    const struct window *w = &c->window;
    struct correlation p = {.in = c->in, .out = c->out};
    if (is_backward) p.in = c->out, p.out = c->in;
    for (int d = 0; d < 2; d++) {
        p.kernel[d] = w->kernel[d];
        p.before[d] = is_backward ? w->kernel[d] - 1 - w->padding[d] : w->padding[d];
    }
    return p;
}

/* [count] channels of each pixel of x; to: [width] floats of each, zeros beyond */
static void copy_pixels(const float *x, size_t channels, size_t count, float *to, size_t width, size_t pixels) {
    if (channels == width) {
        memcpy(to, x, pixels * width * sizeof *to);
        return;
    }
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < pixels; i++, x += channels, to += width) {
        for (size_t c = 0; c < whole; c += LANES) *(lanes *)(to + c) = *(const lanes *)(x + c);
        for (size_t c = whole; c < width; c++) to[c] = c < count ? x[c] : 0;
    }
}

/* The lines that [lines] lines of y from [first] on need, [count] channels from [x] on: [width] floats of each pixel */
static void copy_strip(const struct correlation *p, const float *x, size_t first, size_t lines, size_t count,
                       size_t width, float *to) {
    size_t before = p->before[1], pixels = min_of(p->in.width, line_pixels(p) - before);
    size_t after = line_pixels(p) - before - pixels;
    for (size_t i = first; i < first + lines + p->kernel[0] - 1; i++, to += line_pixels(p) * width) {
        if (i < p->before[0] || i - p->before[0] >= p->in.height) {
            memset(to, 0, line_pixels(p) * width * sizeof *to);
            continue;
        }
        memset(to, 0, before * width * sizeof *to);
        copy_pixels(x + (i - p->before[0]) * p->in.width * p->in.channels, p->in.channels, count, to + before * width,
                    width, pixels);
        memset(to + (before + pixels) * width, 0, after * width * sizeof *to);
    }
}

static bool is_padded(const struct correlation *p) { return p->kernel[0] > 1 || p->kernel[1] > 1; }

/* ---- y from x ---- */

/* Arguments shared by the tiles of one panel of outputs. */
struct panel {
    const float *weights; /* (kernel lines, run, width) */
    const float *start;   /* (width) */
    const float *ahead;   /* what the next strip is copied from: a line of the cache is prefetched now and then */
    size_t kernel_lines, run, line, in_channels, out_channels, columns;
    bool has_relu, is_copied;
};

INLINE lanes relu_of(lanes x) { return (lanes)((lane_mask)x & ~(x <= 0)); }

/* Prefetches, for pixels after [pixels] others, y at the beginning of a tile, and a line of x. */
INLINE void prefetch_next(size_t pixels, struct panel *p, const float *const *from, size_t k, bool is_first,
                          const float *y) {
    for (size_t i = 0; is_first && i < pixels; i++)
        for (size_t c = 0; c < p->columns; c += LINE) __builtin_prefetch(y + (pixels + i) * p->out_channels + c, 1);
    if (p->is_copied) {
        __builtin_prefetch(p->ahead, 0, 2);
        p->ahead += LINE;
        return;
    }
    UNROLL
    for (size_t i = 0; i < pixels; i++) __builtin_prefetch(from[i] + k + pixels * p->in_channels);
}

/* [pixels] and [vectors] are constants wherever this is called. */
INLINE void tile_of(size_t pixels, size_t vectors, struct panel *p, const float *x, float *y) {
    lanes sum[MAX_PIXELS][TILE_VECTORS];
    const float *weights = p->weights, *from[MAX_PIXELS];
    size_t run = p->run;
    UNROLL
    for (size_t i = 0; i < pixels; i++) {
        from[i] = x + i * p->in_channels;
        UNROLL
        for (size_t v = 0; v < vectors; v++) sum[i][v] = *(const lanes *)(p->start + v * LANES);
    }
    for (size_t line = 0; line < p->kernel_lines; line++) {
        for (size_t k = 0, end; k < run; k = end) {
            prefetch_next(pixels, p, from, k, line == 0 && k == 0, y);
            end = min_of(k + LINE, run);
            for (; k < end; k++, weights += vectors * LANES) {
                lanes weight[TILE_VECTORS];
                UNROLL
                for (size_t v = 0; v < vectors; v++) weight[v] = *(const lanes *)(weights + v * LANES);
                UNROLL
                for (size_t i = 0; i < pixels; i++) {
                    float value = from[i][k];
                    UNROLL
                    for (size_t v = 0; v < vectors; v++) sum[i][v] = plus_times(sum[i][v], weight[v], value);
                }
            }
        }
        UNROLL
        for (size_t i = 0; i < pixels; i++) from[i] += p->line;
    }
    size_t whole = p->columns / LANES;
    UNROLL
    for (size_t i = 0; i < pixels; i++, y += p->out_channels) {
        UNROLL
        for (size_t v = 0; v < vectors; v++) {
            lanes result = p->has_relu ? relu_of(sum[i][v]) : sum[i][v];
            if (v < whole)
                *(lanes *)(y + v * LANES) = result;
            else
                partial_store(y + v * LANES, result, p->columns - v * LANES);
        }
    }
}

typedef void line_function(struct panel *p, const float *x, float *y, size_t width);

/* A line of [width] pixels in tiles of about the same size. Separate functions, so that each has all registers. */
#define TILE_CASE(count, vectors)                                                                                      \
    case count:                                                                                                        \
        tile_of(count, vectors, p, x, y);                                                                              \
        break;
#define LINE_OF(name, vectors, max, ...)                                                                               \
    static __attribute__((noinline)) void name(struct panel *p, const float *x, float *y, size_t width) {              \
        size_t tiles = (width + (max)-1) / (max);                                                                      \
        for (size_t n = 0, pixels; n < tiles; n++, x += pixels * p->in_channels, y += pixels * p->out_channels) {      \
            pixels = width * (n + 1) / tiles - width * n / tiles;                                                      \
            switch (pixels) {                                                                                          \
                TILE_CASE(1, vectors)                                                                                  \
                TILE_CASE(2, vectors)                                                                                  \
                TILE_CASE(3, vectors)                                                                                  \
                TILE_CASE(4, vectors) __VA_ARGS__ default : break;                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }
#define UP_TO_6(vectors) TILE_CASE(5, vectors) TILE_CASE(6, vectors)
#define UP_TO_8(vectors) UP_TO_6(vectors) TILE_CASE(7, vectors) TILE_CASE(8, vectors)
LINE_OF(line_1, 1, MAX_PIXELS, UP_TO_8(1))
#if KERNELS_REGISTERS == 32
LINE_OF(line_2, 2, MIDDLE_PIXELS, UP_TO_8(2))
LINE_OF(line_3, 3, WIDE_PIXELS, UP_TO_8(3))
#else
LINE_OF(line_2, 2, MIDDLE_PIXELS, UP_TO_6(2))
LINE_OF(line_3, 3, WIDE_PIXELS)
#endif

#if LANES == 8
#define PAIRED_WIDTH 12
/* Of 9 to 12 columns the last ones of two pixels are one vector, so that no lane is wasted. */
static bool is_paired(size_t columns) { return columns > LANES && columns <= PAIRED_WIDTH; }

static void store_paired(float *y, lanes first, __m128 others, size_t columns, bool has_relu) {
    float last[4];
    *(lanes *)y = has_relu ? relu_of(first) : first;
    if (has_relu) others = _mm_andnot_ps(_mm_cmple_ps(others, _mm_setzero_ps()), others);
    _mm_storeu_ps(last, others);
    if (columns == PAIRED_WIDTH)
        _mm_storeu_ps(y + LANES, others);
    else
        memcpy(y + LANES, last, (columns - LANES) * sizeof *y);
}

/* [pixels] is a constant. [step]: floats of x between pixels; y of the second pixel of two, y_step behind. */
INLINE void paired_tile(size_t pixels, struct panel *p, const float *x, size_t step, float *y, size_t y_step) {
    lanes sum[MAX_PIXELS], pair[MAX_PIXELS / 2];
    const float *weights = p->weights, *from[MAX_PIXELS];
    size_t run = p->run;
    for (size_t i = 0; i < pixels; i++) {
        from[i] = x + i * step;
        sum[i] = *(const lanes *)p->start;
        pair[i / 2] = (lanes)_mm256_broadcast_ps((const __m128 *)(const void *)(p->start + LANES));
    }
    for (size_t line = 0; line < p->kernel_lines; line++) {
        for (size_t k = 0, end; k < run; k = end) {
            prefetch_next(pixels, p, from, k, line == 0 && k == 0, y);
            end = min_of(k + LINE, run);
            for (; k < end; k++, weights += PAIRED_WIDTH) {
                __asm__("" : "+r"(k)); /* one index instead of eight pointers that are incremented */
                lanes weight = *(const lanes *)weights;
                lanes others = (lanes)_mm256_broadcast_ps((const __m128 *)(const void *)(weights + LANES));
                for (size_t i = 0; i < pixels; i += 2) {
                    lanes one = (lanes)_mm256_broadcast_ss(from[i] + k);
                    lanes other = (lanes)_mm256_broadcast_ss(from[i + 1] + k);
                    sum[i] = plus_product(sum[i], weight, one);
                    sum[i + 1] = plus_product(sum[i + 1], weight, other);
                    pair[i / 2] =
                        plus_product(pair[i / 2], others, (lanes)_mm256_blend_ps((__m256)one, (__m256)other, 0xf0));
                }
            }
        }
        for (size_t i = 0; i < pixels; i++) from[i] += p->line;
    }
    for (size_t i = 0; i < pixels; i += 2, y += 2 * y_step) {
        __m256 both = (__m256)pair[i / 2];
        store_paired(y, sum[i], _mm256_castps256_ps128(both), p->columns, p->has_relu);
        store_paired(y + y_step, sum[i + 1], _mm256_extractf128_ps(both, 1), p->columns, p->has_relu);
    }
}

/* The last tile begins before the end of the one before it, and computes some pixels again. */
static __attribute__((noinline)) void paired_line(struct panel *p, const float *x, float *y, size_t width) {
    size_t step = p->in_channels, y_step = p->out_channels;
    for (size_t i = 0; width >= MAX_PIXELS && i < width; i += MAX_PIXELS) {
        size_t at = min_of(i, width - MAX_PIXELS);
        paired_tile(MAX_PIXELS, p, x + at * step, step, y + at * y_step, y_step);
    }
    for (size_t i = 0; width < MAX_PIXELS && i < width; i += 2) {
        size_t at = width > 1 ? min_of(i, width - 2) : 0;
        paired_tile(2, p, x + at * step, width > 1 ? step : 0, y + at * y_step, width > 1 ? y_step : 0);
    }
}
#else
#define PAIRED_WIDTH 0
static bool is_paired(size_t columns) { return columns < 1; }
#define paired_line line_1
#endif

/* Floats of a row of a panel's weights. */
static size_t panel_width(size_t columns) { return is_paired(columns) ? PAIRED_WIDTH : whole_vectors(columns); }

static line_function *line_of(size_t columns) {
    static line_function *const functions[TILE_VECTORS] = {line_1, line_2, line_3};
    return is_paired(columns) ? paired_line : functions[whole_vectors(columns) / LANES - 1];
}

struct job {
    struct correlation correlation;
    const float *x, *bias, *dy; /* bias NULL: 0 */
    float *y;
    bool has_relu;
    size_t rows, slots, parts;
    float *weights; /* of all panels */
    float *strips;  /* (slots, strip_floats) */
    size_t strip_floats;
    float *sums;   /* (slots, weights): of some images */
    float *totals; /* (parts, weights) */
};

/* Panels one after the other, each (kernel lines, run, width) */
static void set_weights(const struct correlation *p, const float *w, bool is_backward, float *to) {
    size_t taps = p->kernel[0] * p->kernel[1], run = p->kernel[1] * p->in.channels;
    size_t out_step = is_backward ? taps : p->in.channels * taps, in_step = is_backward ? p->out.channels * taps : taps;
    for (size_t j = 0, columns; j < p->out.channels; j += columns) {
        columns = panel_columns(p->out.channels - j);
        for (size_t k = 0; k < p->kernel[0] * run; k++) {
            size_t tap = k / p->in.channels, channel = k % p->in.channels;
            const float *from = w + j * out_step + channel * in_step + (is_backward ? taps - 1 - tap : tap);
            for (size_t o = 0; o < panel_width(columns); o++) *to++ = o < columns ? from[o * out_step] : 0;
        }
    }
}

static size_t weight_floats(const struct correlation *p) {
    return (p->out.channels + PANEL_WIDTH) * p->kernel[0] * p->kernel[1] * p->in.channels;
}

/* [ahead]: what the next strip is copied from, if x is a copy */
static void sum_strip(const struct job *job, const float *x, float *y, size_t lines, const float *ahead) {
    const struct correlation *p = &job->correlation;
    struct panel panel = {.weights = job->weights,
                          .ahead = ahead,
                          .is_copied = is_padded(p),
                          .kernel_lines = p->kernel[0],
                          .run = p->kernel[1] * p->in.channels,
                          .line = line_pixels(p) * p->in.channels,
                          .in_channels = p->in.channels,
                          .out_channels = p->out.channels,
                          .has_relu = job->has_relu};
    for (size_t j = 0; j < p->out.channels; j += panel.columns) {
        float start[PANEL_WIDTH] = {0};
        panel.columns = panel_columns(p->out.channels - j);
        panel.start = start;
        if (job->bias) memcpy(start, job->bias + j, panel.columns * sizeof *start);
        line_function *sum_line = line_of(panel.columns);
        for (size_t i = 0; i < lines; i++)
            sum_line(&panel, x + i * panel.line, y + i * p->out.width * p->out.channels + j, p->out.width);
        panel.weights += panel_width(panel.columns) * panel.kernel_lines * panel.run;
    }
}

static size_t strips_of(const struct correlation *p) { return (p->out.height + p->strip - 1) / p->strip; }

static void sum_strips(void *context, size_t first, size_t last) {
    const struct job *job = context;
    const struct correlation *p = &job->correlation;
    size_t strips = strips_of(p), units = job->rows * strips;
    for (size_t slot = first; slot < last; slot++)
        for (size_t u = units * slot / job->slots; u < units * (slot + 1) / job->slots; u++) {
            size_t image = u / strips, line = u % strips * p->strip, lines = min_of(p->strip, p->out.height - line);
            const float *x = job->x + image * p->in.height * p->in.width * p->in.channels;
            const float *ahead = x + (line + lines) * p->in.width * p->in.channels;
            if (is_padded(p)) {
                float *strip = job->strips + slot * job->strip_floats;
                copy_strip(p, x, line, lines, p->in.channels, p->in.channels, strip);
                x = strip;
            } else {
                x += line * p->in.width * p->in.channels;
            }
            sum_strip(job, x, job->y + (image * p->out.height + line) * p->out.width * p->out.channels, lines, ahead);
        }
}

/* ---- the gradient of the weights ---- */

/* A strip of one panel of channels, and the gradient of its outputs. */
struct lines {
    const float *x, *dy;
    const float *ahead, *ahead_dy; /* of the next strip: a line of the cache is prefetched for each pixel */
    size_t ahead_lines;            /* of the cache, of ahead */
    size_t count, width, x_line, step, out_channels, sums_step; /* step: between pixels; sums_step: between outputs */
};

/* sums ([outputs], [vectors]) += the products over all pixels; both are constants wherever this is called. */
INLINE void multiply_pixels(size_t outputs, size_t vectors, struct lines *l, const float *x, const float *dy,
                            float *sums) {
    lanes sum[WIDE_PIXELS][TILE_VECTORS];
    size_t dy_step = l->out_channels, pixels = l->count * l->width;
    const float **next = l->ahead_lines ? &l->ahead : &l->ahead_dy, *ahead = *next;
    l->ahead_lines -= min_of(pixels, l->ahead_lines);
    *next += pixels * LINE;
    UNROLL
    for (size_t o = 0; o < outputs; o++) {
        UNROLL
        for (size_t v = 0; v < vectors; v++) sum[o][v] = *(const lanes *)(sums + o * l->sums_step + v * LANES);
    }
    for (size_t line = 0; line < l->count; line++, x += l->x_line) {
        const float *from = x;
        for (size_t i = 0; i < l->width; i++, from += vectors * LANES, dy += dy_step, ahead += LINE) {
            __builtin_prefetch(ahead, 0, 2);
            lanes value[TILE_VECTORS];
            UNROLL
            for (size_t v = 0; v < vectors; v++) value[v] = *(const lanes *)(from + v * LANES);
            UNROLL
            for (size_t o = 0; o < outputs; o++) {
                float slope = dy[o];
                UNROLL
                for (size_t v = 0; v < vectors; v++) sum[o][v] = plus_times(sum[o][v], value[v], slope);
            }
        }
    }
    UNROLL
    for (size_t o = 0; o < outputs; o++) {
        UNROLL
        for (size_t v = 0; v < vectors; v++) *(lanes *)(sums + o * l->sums_step + v * LANES) = sum[o][v];
    }
}

INLINE void multiply_outputs(size_t vectors, struct lines *l, const float *x, float *sums) {
    size_t o = 0;
    for (; o + WIDE_PIXELS <= l->out_channels; o += WIDE_PIXELS)
        multiply_pixels(WIDE_PIXELS, vectors, l, x, l->dy + o, sums + o * l->sums_step);
    for (; o + 2 <= l->out_channels; o += 2) multiply_pixels(2, vectors, l, x, l->dy + o, sums + o * l->sums_step);
    if (o < l->out_channels) multiply_pixels(1, vectors, l, x, l->dy + o, sums + o * l->sums_step);
}

typedef void outputs_function(struct lines *l, const float *x, float *sums);

#define OUTPUTS_OF(name, vectors)                                                                                      \
    static __attribute__((noinline)) void name(struct lines *l, const float *x, float *sums) {                         \
        multiply_outputs(vectors, l, x, sums);                                                                         \
    }
OUTPUTS_OF(outputs_1, 1)
OUTPUTS_OF(outputs_2, 2)
OUTPUTS_OF(outputs_3, 3)

/* Floats of the sums of a panel of channels (taps, out channels, whole vectors of channels), of all panels. */
static size_t panel_sums(const struct correlation *p, size_t columns) {
    return p->kernel[0] * p->kernel[1] * p->out.channels * whole_vectors(columns);
}
static size_t sums_floats(const struct correlation *p) { return panel_sums(p, p->in.channels + PANEL_WIDTH); }

/* total += sums = 0 */
static void fold_sums(float *restrict total, float *restrict sums, size_t floats) {
    for (size_t k = 0; k < floats; k++) total[k] += sums[k];
    memset(sums, 0, floats * sizeof *sums);
}

/* sums += those of one image; of a large image they are added to [total] after every few lines */
static void multiply_image(const struct job *job, const float *x, const float *dy, float *strip, float *sums,
                           float *total) {
    static outputs_function *const functions[TILE_VECTORS] = {outputs_1, outputs_2, outputs_3};
    const struct correlation *p = &job->correlation;
    size_t taps = p->kernel[0] * p->kernel[1];
    struct lines l = {.x = strip, .width = p->out.width, .out_channels = p->out.channels};
    size_t run = p->out.width * p->out.height > LONG_SUM ? LONG_SUM_RUN : SIZE_MAX, summed = 0;
    for (size_t line = 0; line < p->out.height; line += l.count) {
        float *to = sums;
        l.count = min_of(p->strip, p->out.height - line);
        l.dy = dy + line * p->out.width * p->out.channels;
        l.ahead = x + (line + l.count) * p->in.width * p->in.channels;
        l.ahead_dy = l.dy + l.count * p->out.width * p->out.channels;
        l.ahead_lines = l.count * p->in.width * p->in.channels / LINE;
        for (size_t j = 0, columns; j < p->in.channels; j += columns) {
            columns = panel_columns(p->in.channels - j);
            l.step = l.sums_step = whole_vectors(columns);
            l.x_line = line_pixels(p) * l.step;
            copy_strip(p, x + j, line, l.count, columns, l.step, strip);
            for (size_t t = 0; t < taps; t++, to += p->out.channels * l.sums_step)
                functions[l.step / LANES - 1](&l, strip + t / p->kernel[1] * l.x_line + t % p->kernel[1] * l.step, to);
        }
        summed += l.count * p->out.width;
        if (summed >= run) fold_sums(total, sums, sums_floats(p)), summed = 0;
    }
}

static void multiply_part(const struct job *job, size_t part, size_t slot) {
    const struct correlation *p = &job->correlation;
    size_t first = job->rows * part / job->parts, last = job->rows * (part + 1) / job->parts, floats = sums_floats(p);
    size_t in = p->in.height * p->in.width * p->in.channels, out = p->out.height * p->out.width * p->out.channels;
    size_t together = 1 + MIN_POSITIONS / (p->out.height * p->out.width);
    float *sums = job->sums + slot * floats, *total = job->totals + part * floats;
    memset(total, 0, floats * sizeof *total);
    for (size_t i = first; i < last; i += together) {
        memset(sums, 0, floats * sizeof *sums);
        for (size_t r = i; r < i + together && r < last; r++)
            multiply_image(job, job->x + r * in, job->dy + r * out, job->strips + slot * job->strip_floats, sums,
                           total);
        for (size_t k = 0; k < floats; k++) total[k] += sums[k];
    }
}

static void multiply_parts(void *context, size_t first, size_t last) {
    const struct job *job = context;
    for (size_t slot = first; slot < last; slot++)
        for (size_t part = job->parts * slot / job->slots; part < job->parts * (slot + 1) / job->slots; part++)
            multiply_part(job, part, slot);
}

/* dw (out channels, in channels, taps) += the sum of all parts */
static void add_weights(const struct job *job, float *dw) {
    const struct correlation *p = &job->correlation;
    size_t taps = p->kernel[0] * p->kernel[1], outputs = p->out.channels, floats = sums_floats(p);
    const float *from = job->totals;
    for (size_t j = 0, columns; j < p->in.channels; j += columns) {
        columns = panel_columns(p->in.channels - j);
        for (size_t n = 0; n < taps * outputs; n++, from += whole_vectors(columns))
            for (size_t c = 0; c < columns; c++) {
                float sum = 0;
                for (size_t part = 0; part < job->parts; part++) sum += from[part * floats + c];
                dw[(n % outputs * p->in.channels + j + c) * taps + n / outputs] += sum;
            }
    }
}

/* ---- the operators ---- */

enum purpose { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT };

/* A job for [rows] images, with its workspace at [memory], unless it is NULL; *floats: its size. */
static struct job job_of(const struct convolution *c, enum purpose purpose, size_t rows, float *memory,
                         size_t *floats) {
    struct job job = {
        .correlation = correlation_of(c, purpose == INPUT_GRADIENT), .rows = rows, .parts = min_of(PARTS, rows)};
    struct correlation *p = &job.correlation;
    bool is_for_weights = purpose == WEIGHT_GRADIENT;
    job.slots = is_for_weights ? min_of(parallel_threads(), PARTS) : parallel_threads();
    size_t sums = is_for_weights ? sums_floats(p) : 0, channels = is_for_weights ? PANEL_WIDTH : p->in.channels;
    p->strip = strip_of(p, is_for_weights ? WEIGHTS_STRIP : STRIP, channels, is_for_weights ? p->out.channels : 0);
    job.strip_floats = strip_pixels(p) * channels;
    float **const places[] = {&job.weights, &job.strips, &job.sums, &job.totals};
    const size_t sizes[] = {is_for_weights ? 0 : weight_floats(p), job.slots * job.strip_floats, job.slots * sums,
                            PARTS * sums};
    *floats = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (memory) *places[i] = memory + *floats;
        *floats += (sizes[i] + LINE - 1) / LINE * LINE;
    }
    return job;
}

static struct job own_job(const struct device_convolution *d, enum purpose purpose, size_t rows) {
    size_t floats;
    return job_of(&d->c, purpose, rows, workspace_of(d->device), &floats);
}

static void sum_all(struct job *job, const float *w, bool is_backward) {
    set_weights(&job->correlation, w, is_backward, job->weights);
    parallel_for(job->slots, 1, sum_strips, job);
}

static void forward(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                    size_t rows) {
    struct job job = own_job(d, FORWARD, rows);
    job.x = x, job.bias = bias, job.y = y, job.has_relu = d->c.has_relu;
    sum_all(&job, w, false);
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    (void)dbias; /* computed by the caller */
    if (dw) {
        struct job job = own_job(d, WEIGHT_GRADIENT, rows);
        job.x = x, job.dy = dy;
        parallel_for(job.slots, 1, multiply_parts, &job);
        add_weights(&job, dw);
    }
    if (!dx) return;
    struct job job = own_job(d, INPUT_GRADIENT, rows);
    job.x = dy, job.y = dx;
    sum_all(&job, w, true);
}

static void destroy(struct device_convolution *d) { free(d); }

static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    struct device_convolution *d = calloc(1, sizeof *d);
    if (!d) return status_memory("a convolution");
    *d = (struct device_convolution){.device = device, .c = *c};
    size_t max = 0;
    for (enum purpose purpose = FORWARD; purpose <= WEIGHT_GRADIENT; purpose++) {
        size_t floats;
        job_of(c, purpose, rows, NULL, &floats);
        if (floats > max) max = floats;
    }
    status s = workspace_reserve(device, max * sizeof(float), "a convolution");
    if (s) destroy(d);
    if (!s) *out = d;
    return s;
}

const struct convolution_kernels IN_SET(unit_stride) = {
    .create = create, .destroy = destroy, .forward = forward, .backward = backward};
