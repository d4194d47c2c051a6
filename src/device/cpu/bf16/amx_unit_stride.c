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
#include <string.h>

#include "device/cpu/bf16/amx.h"
#include "device/cpu/bf16/round.h"
#include "device/cpu/parallel.h"
#include "device/image.h"

/* ---- bands of lines of an image ---- */

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

/* A correlation of images; weights: tiles (weight_floats) */
struct correlation_pass {
    const struct amx_correlation *c;
    const float *images, *weights, *bias; /* bias: NULL without one */
    float *out;                           /* (rows, out) */
    bool has_relu;
};

/* ---- results that are sums over a kernel ---- */

/* to (count) = from, rounded */
static void round_numbers(uint16_t *to, const float *from, size_t count) {
    for (size_t i = 0; i < count; i += STEP) {
        __mmask32 mask = count - i >= STEP ? (__mmask32)-1 : ((__mmask32)1 << (count - i)) - 1;
        __m512 second = count - i > SIZE ? load(from + i + SIZE, count - i - SIZE) : _mm512_setzero_ps();
        _mm512_mask_storeu_epi16(to + i, mask, (__m512i)neighbours_of(load(from + i, count - i), second));
    }
}

/* to: the copy of the lines of [images] that a band reads, and zeros after them */
static void copy_band(const struct band *b, const float *images, uint16_t *to) {
    const struct amx_correlation *c = b->c;
    size_t channels = c->image.channels, left = c->padding[1] * channels, count = c->image.width * channels;
    size_t lines = b->lines + c->kernel[0] - 1;
    const float *image = images + b->row * c->image.height * count;
    for (size_t l = 0; l < lines; l++, to += line_numbers(c)) {
        size_t y = b->first + l - c->padding[0]; /* too large where it is above the image */
        bool is_padding = y >= c->image.height;
        memset(to, 0, (is_padding ? line_numbers(c) : left) * sizeof *to);
        if (is_padding) continue;
        round_numbers(to + left, image + y * count, count);
        memset(to + left + count, 0, (line_numbers(c) - left - count) * sizeof *to);
    }
    memset(to, 0, SLACK(c->image.channels) * sizeof *to);
}

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Tiles of sums: 0 and 1 are of 16 pixels and 32 channels, 2 and 3 of the next 16 pixels; or all of 16 channels
 * [is_narrow], each of the next 16 pixels. b: tiles of the first 16 channels; those of the next ones follow. bias: (32)
 * or NULL */
ALWAYS_INLINE void correlate(const struct amx_correlation *c, const uint16_t *x, const float *b, bool is_narrow,
                             const float *bias) {
    size_t stride = c->image.channels * sizeof *x, steps = divide_up(depth_of(c), STEP);
    size_t next = SIZE * c->image.channels, line = divide_up(c->out.channels, SIZE) * steps * TILE_FLOATS;
    const float *bias_1 = is_narrow ? bias : bias + SIZE;
    AMX_READS_MEMORY;
    _tile_loadd(0, bias, 0);
    _tile_loadd(1, bias_1, 0);
    _tile_loadd(2, bias, 0);
    _tile_loadd(3, bias_1, 0);
    for (size_t l = 0; l < c->kernel[0]; l++, x += line_numbers(c), b += line)
        for (size_t s = 0; s < steps; s++) {
            const uint16_t *a = x + s * STEP;
            _tile_loadd(4, b + s * TILE_FLOATS, TILE_STRIDE);
            if (is_narrow) {
                _tile_loadd(5, a, stride);
                _tile_dpbf16ps(0, 5, 4);
                _tile_loadd(6, a + next, stride);
                _tile_dpbf16ps(1, 6, 4);
                _tile_loadd(7, a + 2 * next, stride);
                _tile_dpbf16ps(2, 7, 4);
                _tile_loadd(5, a + 3 * next, stride);
                _tile_dpbf16ps(3, 5, 4);
            } else {
                _tile_loadd(6, a, stride);
                _tile_dpbf16ps(0, 6, 4);
                _tile_loadd(5, b + (steps + s) * TILE_FLOATS, TILE_STRIDE);
                _tile_dpbf16ps(1, 6, 5);
                _tile_loadd(7, a + next, stride);
                _tile_dpbf16ps(2, 7, 4);
                _tile_dpbf16ps(3, 7, 5);
            }
        }
}

static void store_tile(size_t tile, float *to, size_t stride) {
    if (tile == 0)
        _tile_stored(0, to, stride * sizeof *to);
    else if (tile == 1)
        _tile_stored(1, to, stride * sizeof *to);
    else if (tile == 2)
        _tile_stored(2, to, stride * sizeof *to);
    else
        _tile_stored(3, to, stride * sizeof *to);
}

/* Writes a tile of sums, of pixels from [pixel] on and channels from [channel] on, to out (lines of the band): without
 * a copy, if all pixels are in one of its lines. */
static void write_tile(const struct band *b, float *out, size_t tile, size_t pixel, size_t channel, bool has_relu) {
    _Alignas(64) float sums[TILE_FLOATS];
    const struct amx_correlation *c = b->c;
    size_t channels = c->out.channels, count = at_most(channels - channel, SIZE);
    size_t y = pixel / c->width, x = pixel % c->width;
    float *to = out + (y * c->out.width + x) * channels + channel;
    if (y < b->lines && x + SIZE <= c->out.width && count == SIZE) {
        store_tile(tile, to, channels);
        if (has_relu) relu_rows(to, channels, SIZE, SIZE);
        return;
    }
    store_tile(tile, sums, SIZE);
    if (has_relu) relu_rows(sums, SIZE, SIZE, SIZE);
    for (size_t i = 0; i < SIZE && y < b->lines; i++) {
        if (x < c->out.width)
            memcpy(out + (y * c->out.width + x) * channels + channel, sums + i * SIZE, count * sizeof *sums);
        if (++x == c->width) x = 0, y++;
    }
}

/* out: the lines of the band */
static void correlate_band(const struct correlation_pass *f, const struct band *b, const uint16_t *x, float *out) {
    const struct amx_correlation *c = b->c;
    size_t tiles = divide_up(c->out.channels, SIZE), steps = divide_up(depth_of(c), STEP), pixels = pixels_of(b);
    for (size_t t = 0; t < tiles; t += 2) {
        float bias[2 * SIZE] = {0};
        const float *weights = f->weights + t * steps * TILE_FLOATS;
        bool is_narrow = t + 1 == tiles;
        size_t size = is_narrow ? TILES * SIZE : 2 * SIZE, channel = t * SIZE;
        if (f->bias) memcpy(bias, f->bias + channel, at_most(c->out.channels - channel, 2 * SIZE) * sizeof *bias);
        for (size_t i = 0; i < pixels; i += size) {
            const uint16_t *at = x + i * c->image.channels;
            if (is_narrow)
                correlate(c, at, weights, true, bias);
            else
                correlate(c, at, weights, false, bias);
            for (size_t tile = 0; tile < TILES; tile++)
                write_tile(b, out, tile, i + (is_narrow ? tile : tile / 2) * SIZE,
                           channel + (is_narrow ? 0 : tile % 2 * SIZE), f->has_relu);
        }
    }
}

static void correlate_bands(void *context, size_t first, size_t last) {
    const struct correlation_pass *f = context;
    _Alignas(64) uint16_t copy[BAND + SLACK(MAX_CHANNELS)];
    amx_configure();
    for (size_t i = first; i < last; i++) {
        struct band band = band_of(f->c, i);
        copy_band(&band, f->images, copy);
        correlate_band(f, &band, copy, f->out + offset_of(&band));
    }
    _tile_release();
}

/* Bands are short enough for all threads; results do not depend on them. */
/* out = that of [rows] images, by all threads */
static void correlate_images(const struct correlation_pass *f, size_t rows) {
    if (rows == 0) return;
    struct amx_correlation c = *f->c;
    struct correlation_pass shorter = *f;
    shorter.c = &c;
    c.band = at_most(c.band, divide_up(rows * c.out.height, parallel_threads()));
    size_t work = c.out.width * c.out.channels * depth_of(&c) * c.kernel[0] * c.band;
    parallel_for(rows * bands_of(&c), 1 + AMX_MIN_WORK / work, correlate_bands, &shorter);
}

/* ---- the gradient of the weights: pixels are the steps of the products ---- */

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

static void pack_words(const uint16_t *copy, size_t channels, float *words, size_t count) {
    for (size_t i = 0; i < count; i += SIZE) {
        __m512i first = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(copy + i)));
        __m512i second = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(copy + i + channels)));
        _mm512_storeu_si512(words + i, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
    }
}

/* A tile (channels [channel, channel + 16), 32 pixels) of dy; NULL: zeros */
static void pack_outputs(const float *const pixels[STEP], size_t channel, size_t count, float *tile) {
    lanes square[SIZE];
    for (size_t l = 0; l < SIZE; l++) {
        const float *one = pixels[2 * l], *other = pixels[2 * l + 1];
        square[l] = pairs_of(one ? load(one + channel, count) : _mm512_setzero_ps(),
                             other ? load(other + channel, count) : _mm512_setzero_ps());
    }
    transpose(square);
    for (size_t l = 0; l < SIZE; l++) *(lanes *)(tile + l * SIZE) = square[l];
}

static void pack_band_outputs(const struct band *b, const float *dy, float *tiles) {
    const struct amx_correlation *c = b->c;
    size_t channels = c->out.channels, steps = steps_of(c, c->band);
    for (size_t s = 0; s < steps_of(c, b->lines); s++) {
        const float *pixels[STEP];
        for (size_t l = 0; l < STEP; l++) {
            size_t y = (s * STEP + l) / c->width, x = (s * STEP + l) % c->width;
            pixels[l] = y < b->lines && x < c->out.width ? dy + (y * c->out.width + x) * channels : NULL;
        }
        for (size_t o = 0; o < channels; o += SIZE)
            pack_outputs(pixels, o, at_most(channels - o, SIZE), tiles + (o / SIZE * steps + s) * TILE_FLOATS);
    }
}

static void pack_bands(void *context, size_t first, size_t last) {
    const struct weight_gradient *g = context;
    const struct amx_correlation *c = g->c;
    _Alignas(64) uint16_t copy[BAND + SLACK(MAX_CHANNELS)];
    for (size_t i = first; i < last; i++) {
        struct band band = band_of(c, g->first + i);
        copy_band(&band, g->x, copy);
        pack_words(copy, c->image.channels, g->words + i * words_of(c, c->band), words_of(c, band.lines));
        pack_band_outputs(&band, g->dy + offset_of(&band), g->tiles + i * tiles_of(c));
    }
}

/* Up to four tiles of sums: [rows] x [columns], 2 x 2, 2 x 1, or 1 x 1 to 4. */
struct sum_block {
    float *sums[TILES]; /* by rows */
    size_t stride;      /* bytes */
    const float *a;     /* tiles of dy */
    size_t next_a;      /* to those of the next row */
    const float *b[TILES];
    size_t b_stride; /* bytes between words of two pixels */
    size_t steps;
};

ALWAYS_INLINE void add_block(const struct sum_block *x, size_t rows, size_t columns) {
    const float *a = x->a;
    size_t b_step = SIZE * x->b_stride / sizeof *a, at = 0;
    AMX_READS_MEMORY;
    _tile_loadd(0, x->sums[0], x->stride);
    if (rows * columns > 1) _tile_loadd(1, x->sums[1], x->stride);
    if (rows * columns > 2) _tile_loadd(2, x->sums[2], x->stride);
    if (rows * columns > 3) _tile_loadd(3, x->sums[3], x->stride);
    for (size_t s = 0; s < x->steps; s++, a += TILE_FLOATS, at += b_step) {
        _tile_loadd(4, a, TILE_STRIDE);
        _tile_loadd(5, x->b[0] + at, x->b_stride);
        _tile_dpbf16ps(0, 4, 5);
        if (rows == 2) {
            _tile_loadd(6, a + x->next_a, TILE_STRIDE);
            if (columns == 2) {
                _tile_loadd(7, x->b[1] + at, x->b_stride);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(2, 6, 5);
                _tile_dpbf16ps(3, 6, 7);
            } else {
                _tile_dpbf16ps(1, 6, 5);
            }
            continue;
        }
        if (columns > 1) {
            _tile_loadd(6, x->b[1] + at, x->b_stride);
            _tile_dpbf16ps(1, 4, 6);
        }
        if (columns > 2) {
            _tile_loadd(7, x->b[2] + at, x->b_stride);
            _tile_dpbf16ps(2, 4, 7);
        }
        if (columns > 3) {
            _tile_loadd(5, x->b[3] + at, x->b_stride);
            _tile_dpbf16ps(3, 4, 5);
        }
    }
    _tile_stored(0, x->sums[0], x->stride);
    if (rows * columns > 1) _tile_stored(1, x->sums[1], x->stride);
    if (rows * columns > 2) _tile_stored(2, x->sums[2], x->stride);
    if (rows * columns > 3) _tile_stored(3, x->sums[3], x->stride);
}

static void add_sums(const struct sum_block *x, size_t rows, size_t columns) {
    if (rows == 2 && columns == 2)
        add_block(x, 2, 2);
    else if (rows == 2)
        add_block(x, 2, 1);
    else if (columns == 4)
        add_block(x, 1, 4);
    else if (columns == 3)
        add_block(x, 1, 3);
    else if (columns == 2)
        add_block(x, 1, 2);
    else
        add_block(x, 1, 1);
}

static size_t gradient_columns(const struct amx_correlation *c) { return c->kernel[0] * gradient_line(c) / SIZE; }
static size_t gradient_rows(const struct amx_correlation *c) { return divide_up(c->out.channels, SIZE); }

/* Tiles [column, column + columns) of the sums of one or two tiles of outputs from [row] on, of all bands. */
static void add_columns(const struct weight_gradient *g, size_t row, size_t rows, size_t column, size_t columns) {
    const struct amx_correlation *c = g->c;
    size_t line = gradient_line(c), sums_row = c->kernel[0] * line;
    struct sum_block x = {.stride = sums_row * sizeof *g->sums,
                          .next_a = steps_of(c, c->band) * TILE_FLOATS,
                          .b_stride = 2 * c->image.channels * sizeof *g->words};
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++)
            x.sums[r * columns + j] = g->sums + (row + r) * SIZE * sums_row + (column + j) * SIZE;
    for (size_t i = 0; i < g->count; i++) {
        x.a = g->tiles + i * tiles_of(c) + row * x.next_a;
        x.steps = steps_of(c, band_of(c, g->first + i).lines);
        for (size_t j = 0; j < columns; j++) {
            size_t l = (column + j) * SIZE / line, at = (column + j) * SIZE % line;
            x.b[j] = g->words + i * words_of(c, c->band) + l * line_numbers(c) + at;
        }
        add_sums(&x, rows, columns);
    }
}

/* Blocks are of two tiles of outputs and two of columns, or of one and four. */
static size_t block_columns(const struct amx_correlation *c) { return gradient_rows(c) == 1 ? TILES : 2; }

static void add_bands(void *context, size_t first, size_t last) {
    const struct weight_gradient *g = context;
    size_t rows = gradient_rows(g->c), columns = gradient_columns(g->c), width = block_columns(g->c);
    amx_configure();
    for (size_t i = first; i < last; i++) {
        size_t blocks = divide_up(columns, width), row = i / blocks * 2, column = i % blocks * width;
        add_columns(g, row, at_most(rows - row, 2), column, at_most(columns - column, width));
    }
    _tile_release();
}

/* sums = the gradient of [rows] images, by all threads */
static void sum_weight_gradient(struct weight_gradient *g, size_t rows) {
    const struct amx_correlation *c = g->c;
    size_t all = rows * bands_of(c), group = group_of(c), numbers = c->band * line_numbers(c);
    size_t blocks = divide_up(gradient_rows(c), 2) * divide_up(gradient_columns(c), block_columns(c));
    memset(g->sums, 0, gradient_floats(c) * sizeof *g->sums);
    for (g->first = 0; g->first < all; g->first += g->count) {
        g->count = at_most(all - g->first, group);
        parallel_for(g->count, 1 + AMX_MIN_NUMBERS / numbers, pack_bands, g);
        size_t work = g->count * steps_of(c, c->band) * STEP * TILES * TILE_FLOATS;
        parallel_for(blocks, 1 + AMX_MIN_WORK / work, add_bands, g);
    }
}

/* ---- the convolution ---- */

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
    correlate_images(&f, rows);
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
    correlate_images(&f, rows);
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
    sum_weight_gradient(&g, rows);
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

const struct convolution_kernels amx_unit_stride_ops = {
    .create = create, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
