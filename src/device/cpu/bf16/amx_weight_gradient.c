/* The gradient of the weights of a convolution of stride 1: pixels are the steps of the products. */
#include "device/cpu/bf16/amx_correlation.h"

#include <string.h>

#include "device/cpu/bf16/round.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

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
        amx_copy_band(&band, g->x, copy);
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

void amx_weight_gradient(struct weight_gradient *g, size_t rows) {
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
