/* Bands of an image, and the results of a correlation. */
#include "device/cpu/bf16/amx_correlation.h"

#include <string.h>

#include "device/cpu/bf16/round.h"

/* to (count) = from, rounded */
static void round_numbers(uint16_t *to, const float *from, size_t count) {
    for (size_t i = 0; i < count; i += STEP) {
        __mmask32 mask = count - i >= STEP ? (__mmask32)-1 : ((__mmask32)1 << (count - i)) - 1;
        __m512 second = count - i > SIZE ? load(from + i + SIZE, count - i - SIZE) : _mm512_setzero_ps();
        _mm512_mask_storeu_epi16(to + i, mask, (__m512i)neighbours_of(load(from + i, count - i), second));
    }
}

void amx_copy_band(const struct band *b, const float *images, uint16_t *to) {
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
        amx_copy_band(&band, f->images, copy);
        correlate_band(f, &band, copy, f->out + offset_of(&band));
    }
    _tile_release();
}

/* Bands are short enough for all threads; results do not depend on them. */
void amx_correlate(const struct correlation_pass *f, size_t rows) {
    if (rows == 0) return;
    struct amx_correlation c = *f->c;
    struct correlation_pass shorter = *f;
    shorter.c = &c;
    c.band = at_most(c.band, divide_up(rows * c.out.height, parallel_threads()));
    size_t work = c.out.width * c.out.channels * depth_of(&c) * c.kernel[0] * c.band;
    parallel_for(rows * bands_of(&c), 1 + AMX_MIN_WORK / work, correlate_bands, &shorter);
}
