/* amx_correlation: what convolutions of stride 1 in bfloat16 with AMX are made of: bands of lines of an image, results
 * that are sums over a kernel, and the gradient of its weights. */
#ifndef DEVICE_CPU_BF16_AMX_CORRELATION_H
#define DEVICE_CPU_BF16_AMX_CORRELATION_H

#include <stdint.h>

#include "device/cpu/bf16/amx.h"
#include "device/cpu/parallel.h"
#include "device/image.h"

#define SIZE AMX_SIZE
#define STEP AMX_STEP
#define TILE_FLOATS AMX_TILE_FLOATS
#define TILE_STRIDE (SIZE * sizeof(float))
#define TILES 4                 /* of sums */
#define BAND ((size_t)96 << 10) /* numbers of a band */
#define MAX_CHANNELS 512        /* of an image that is read */
#define MAX_KERNEL SIZE
#define SLACK_PIXELS (TILES * SIZE + MAX_KERNEL) /* behind a band, which tiles may read */
#define SLACK(channels) (SLACK_PIXELS * (channels) + 2 * STEP)
/* Words of the bands that each thread packs at a time for the gradient of the weights. */
#define GROUP ((size_t)1 << 18)

static inline size_t round_up(size_t count, size_t size) { return divide_up(count, size) * size; }

/* out(y, x) = sum over lines and columns of the kernel of image(y + line - padding, x + column - padding) weights */
struct amx_correlation {
    struct image_shape image, out;
    size_t kernel[2], padding[2];
    size_t width; /* of the copy */
    size_t band;  /* lines of out */
};

/* [padding]: not more than a kernel's size - 1 */
static inline struct amx_correlation correlation_of(const struct image_shape *image, const struct image_shape *out,
                                                    const size_t kernel[2], const size_t padding[2]) {
    struct amx_correlation c = {.image = *image,
                                .out = *out,
                                .kernel = {kernel[0], kernel[1]},
                                .padding = {padding[0], padding[1]},
                                .width = out->width + kernel[1] - 1};
    size_t lines = BAND / (c.width * image->channels);
    c.band = lines > kernel[0] ? at_most(lines - kernel[0] + 1, out->height) : 1;
    return c;
}

static inline struct amx_correlation forward_of(const struct convolution *c) {
    return correlation_of(&c->in, &c->out, c->window.kernel, c->window.padding);
}

static inline struct amx_correlation gradient_of(const struct convolution *c) {
    const struct window *w = &c->window;
    size_t padding[2] = {w->kernel[0] - 1 - w->padding[0], w->kernel[1] - 1 - w->padding[1]};
    return correlation_of(&c->out, &c->in, w->kernel, padding);
}

static inline size_t line_numbers(const struct amx_correlation *c) { return c->width * c->image.channels; }
static inline size_t bands_of(const struct amx_correlation *c) { return divide_up(c->out.height, c->band); }

/* Numbers of a line of the kernel. */
static inline size_t depth_of(const struct amx_correlation *c) { return c->kernel[1] * c->image.channels; }

/* Weights as tiles of b: (lines of the kernel, tiles of 16 channels of out, steps of 32). */
static inline size_t weight_floats(const struct amx_correlation *c) {
    return c->kernel[0] * divide_up(c->out.channels, SIZE) * divide_up(depth_of(c), STEP) * TILE_FLOATS;
}

/* A band of an image: [lines] lines of out from [first] on. */
struct band {
    const struct amx_correlation *c;
    size_t row, first, lines;
};

static inline struct band band_of(const struct amx_correlation *c, size_t i) {
    size_t first = i % bands_of(c) * c->band;
    return (struct band){c, i / bands_of(c), first, at_most(c->out.height - first, c->band)};
}

/* Of the band in out. */
static inline size_t offset_of(const struct band *b) {
    const struct image_shape *out = &b->c->out;
    return (b->row * out->height + b->first) * out->width * out->channels;
}

/* Pixels of the copy from the first to the last one of out. */
static inline size_t pixels_of(const struct band *b) { return b->lines * b->c->width - (b->c->kernel[1] - 1); }

/* to: the copy of the lines of [images] that a band reads, and zeros after them */
void amx_copy_band(const struct band *b, const float *images, uint16_t *to);

/* A correlation of images; weights: tiles (weight_floats) */
struct correlation_pass {
    const struct amx_correlation *c;
    const float *images, *weights, *bias; /* bias: NULL without one */
    float *out;                           /* (rows, out) */
    bool has_relu;
};

/* out = that of [rows] images, by all threads */
void amx_correlate(const struct correlation_pass *f, size_t rows);

/* ---- the gradient of the weights ---- */

/* Sums (tiles of 16 outputs, 16 channels of them, lines of the kernel, numbers of such a line in whole tiles), to which
 * all bands are added in order. */
struct weight_gradient {
    const struct amx_correlation *c; /* forward */
    const float *x, *dy;
    float *sums;
    /* The bands that are added: words (number, that of the next pixel) of x, and tiles of (outputs, 32 pixels) of dy */
    float *words, *tiles;
    size_t first, count;
};

static inline size_t gradient_line(const struct amx_correlation *c) { return round_up(depth_of(c), SIZE); }

static inline size_t gradient_floats(const struct amx_correlation *c) {
    return round_up(c->out.channels, SIZE) * c->kernel[0] * gradient_line(c);
}

/* Of a band of [lines]: steps of 32 pixels; words that their tiles read; tiles of dy. */
static inline size_t steps_of(const struct amx_correlation *c, size_t lines) {
    return divide_up(lines * c->width, STEP);
}

static inline size_t words_of(const struct amx_correlation *c, size_t lines) {
    size_t pixels = steps_of(c, lines) * STEP + (c->kernel[0] - 1) * c->width;
    return round_up(pixels * c->image.channels + gradient_line(c), SIZE);
}

static inline size_t tiles_of(const struct amx_correlation *c) {
    return divide_up(c->out.channels, SIZE) * steps_of(c, c->band) * TILE_FLOATS;
}

/* Bands that are packed at a time. */
static inline size_t group_of(const struct amx_correlation *c) {
    size_t bands = GROUP / (words_of(c, c->band) + tiles_of(c));
    return (bands > 0 ? bands : 1) * parallel_threads();
}

/* sums = the gradient of [rows] images, by all threads */
void amx_weight_gradient(struct weight_gradient *g, size_t rows);

#endif
