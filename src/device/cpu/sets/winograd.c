/* Convolutions of 3 x 3 kernels and stride 1 by Winograd's algorithm: a quarter of the multiplications,
 * in [POINTS] matrix products over (tiles, channels), on channels-last memory. The gradients are the exact adjoint of
 * the forward pass, so forward and both gradients share the points of the weights, the inputs and the outputs.
 *
 * Small weights: their points are computed once per pass and stay in the cache; threads split tiles, or images. Large
 * weights: there are few tiles, so all tiles' points stay in the cache and those of the weights are computed in
 * pieces where they are used; threads split panels of channels. Every sum has one order, for any number of threads. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/sets/lanes.h"
#include "device/cpu/sets/set.h"
#include "device/image.h"

/* ---- the transforms ----
 *
 * Those of F(4 x 4, 3 x 3) (Winograd 1980; Lavin and Gray 2016). Per row and column six products
 * replace the twelve of four outputs with a kernel of three. The points are 0, +-sqrt(1/2), +-sqrt(2) and infinity:
 * their rounding error is about half of that of the usual 0, +-1, +-2, and an output is as exact as a direct sum
 * within a factor of two.
 *
 *     y = A^T [(G g G^T) . (B^T d B)] A
 *
 * Each function is one dimension of one transform; the transposed ones are those of the gradients. Vectors hold
 * [LANES] channels. */

#define INLINE static inline __attribute__((always_inline))
#define TILE 4 /* outputs of a tile in each dimension */
#define SPAN 6 /* inputs, and points */
#define POINTS (SPAN * SPAN)
#define TAPS 9 /* of a kernel */
#define ROOT_HALF 0.70710678118654752440f
#define ROOT_TWO 1.41421356237309504880f

typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE lanes load(const float *from) { return *(const lanes *)from; }
INLINE void store(float *to, lanes value) { *(lanes *)to = value; }

/* v = B^T d */
INLINE void inputs_to_points(const lanes d[SPAN], lanes v[SPAN]) {
    lanes even = plus_times(d[4], d[2], -2), odd = plus_times(d[3], d[1], -2);
    lanes wide_even = plus_times(d[4], d[2], -0.5f), wide_odd = plus_times(d[3], d[1], -0.5f);
    v[0] = plus_times(d[4], d[2], -2.5f) + d[0];
    v[1] = plus_times(even, odd, ROOT_HALF);
    v[2] = plus_times(even, odd, -ROOT_HALF);
    v[3] = plus_times(wide_even, wide_odd, ROOT_TWO);
    v[4] = plus_times(wide_even, wide_odd, -ROOT_TWO);
    v[5] = plus_times(d[5], d[3], -2.5f) + d[1];
}

/* d = B v */
INLINE void points_to_inputs(const lanes v[SPAN], lanes d[SPAN]) {
    lanes sum = v[1] + v[2], wide_sum = v[3] + v[4];
    lanes odd = ROOT_HALF * (v[1] - v[2]), wide_odd = ROOT_TWO * (v[3] - v[4]);
    d[0] = v[0];
    d[1] = plus_times(plus_times(v[5], odd, -2), wide_odd, -0.5f);
    d[2] = plus_times(plus_times(-2 * sum, v[0], -2.5f), wide_sum, -0.5f);
    d[3] = plus_times(odd + wide_odd, v[5], -2.5f);
    d[4] = v[0] + sum + wide_sum;
    d[5] = v[5];
}

/* y = A^T m */
INLINE void points_to_outputs(const lanes m[SPAN], lanes y[TILE]) {
    lanes sum = m[1] + m[2], wide_sum = m[3] + m[4];
    lanes odd = ROOT_HALF * (m[1] - m[2]), wide_odd = ROOT_TWO * (m[3] - m[4]);
    y[0] = m[0] + sum + wide_sum;
    y[1] = odd + wide_odd;
    y[2] = plus_times(2 * wide_sum, sum, 0.5f);
    y[3] = plus_times(2 * wide_odd, odd, 0.5f) + m[5];
}

/* m = A y */
INLINE void outputs_to_points(const lanes y[TILE], lanes m[SPAN]) {
    lanes even = plus_times(y[0], y[2], 0.5f), odd = plus_times(y[1], y[3], 0.5f);
    lanes wide_even = plus_times(y[0], y[2], 2), wide_odd = plus_times(y[1], y[3], 2);
    m[0] = y[0];
    m[1] = plus_times(even, odd, ROOT_HALF);
    m[2] = plus_times(even, odd, -ROOT_HALF);
    m[3] = plus_times(wide_even, wide_odd, ROOT_TWO);
    m[4] = plus_times(wide_even, wide_odd, -ROOT_TWO);
    m[5] = y[3];
}

/* u = G g */
INLINE void taps_to_points(const lanes g[3], lanes u[SPAN]) {
    lanes even = plus_times(g[0], g[2], 0.5f), odd = (-2.0f / 3 * ROOT_HALF) * g[1];
    lanes wide_even = plus_times(g[0], g[2], 2), wide_odd = (1.0f / 6 * ROOT_TWO) * g[1];
    u[0] = g[0];
    u[1] = plus_times(odd, even, -2.0f / 3);
    u[2] = plus_times(-odd, even, -2.0f / 3);
    u[3] = plus_times(wide_odd, wide_even, 1.0f / 6);
    u[4] = plus_times(-wide_odd, wide_even, 1.0f / 6);
    u[5] = g[2];
}

/* g = G^T u */
INLINE void points_to_taps(const lanes u[SPAN], lanes g[3]) {
    lanes sum = (-2.0f / 3) * (u[1] + u[2]), wide_sum = (1.0f / 6) * (u[3] + u[4]);
    g[0] = u[0] + sum + wide_sum;
    g[1] = plus_times((1.0f / 6 * ROOT_TWO) * (u[3] - u[4]), u[1] - u[2], -2.0f / 3 * ROOT_HALF);
    g[2] = plus_times(2 * wide_sum, sum, 0.5f) + u[5];
}

/* taps (TAPS vectors) of the kernels at [from], [stride] apart, one for each lane */
INLINE void load_taps(const float *from, size_t stride, lanes taps[TAPS]) {
    lanes square[LANES];
#if LANES > TAPS
    for (size_t l = 0; l < LANES; l++) square[l] = partial_load(from + l * stride, TAPS);
    transpose(square);
    for (size_t i = 0; i < TAPS; i++) taps[i] = square[i];
#else
    lanes last = {0};
    for (size_t i = 0; i + LANES < TAPS; i += LANES) {
        for (size_t l = 0; l < LANES; l++) square[l] = load(from + l * stride + i);
        transpose(square);
        for (size_t l = 0; l < LANES; l++) taps[i + l] = square[l];
    }
    for (size_t l = 0; l < LANES; l++) last[l] = from[l * stride + TAPS - 1];
    taps[TAPS - 1] = last;
#endif
}

/* The reverse: adds the taps to the kernels. */
INLINE void add_taps(const lanes taps[TAPS], size_t stride, float *to) {
    lanes square[LANES] = {0};
#if LANES > TAPS
    for (size_t i = 0; i < TAPS; i++) square[i] = taps[i];
    transpose(square);
    for (size_t l = 0; l < LANES; l++)
        partial_store(to + l * stride, partial_load(to + l * stride, TAPS) + square[l], TAPS);
#else
    for (size_t i = 0; i + LANES < TAPS; i += LANES) {
        for (size_t l = 0; l < LANES; l++) square[l] = taps[i + l];
        transpose(square);
        for (size_t l = 0; l < LANES; l++) store(to + l * stride + i, load(to + l * stride + i) + square[l]);
    }
    for (size_t l = 0; l < LANES; l++) to[l * stride + TAPS - 1] += taps[TAPS - 1][l];
#endif
}

/* to (SPAN or TILE, ...) = both dimensions of a transform of [n] x [n] to [m] x [m]: [transform] along the columns,
 * then along the rows */
#define TRANSFORM_2D(transform, n, m, from, to)                                                                        \
    do {                                                                                                               \
        lanes half_[m][n], line_[SPAN], turned_[SPAN];                                                                 \
        for (size_t j_ = 0; j_ < (n); j_++) {                                                                          \
            for (size_t i_ = 0; i_ < (n); i_++) line_[i_] = (from)[i_ * (n) + j_];                                     \
            transform(line_, turned_);                                                                                 \
            for (size_t i_ = 0; i_ < (m); i_++) half_[i_][j_] = turned_[i_];                                           \
        }                                                                                                              \
        for (size_t i_ = 0; i_ < (m); i_++) {                                                                          \
            transform(half_[i_], turned_);                                                                             \
            for (size_t j_ = 0; j_ < (m); j_++) (to)[i_ * (m) + j_] = turned_[j_];                                     \
        }                                                                                                              \
    } while (0)

/* ---- the passes ---- */

#define LINE 16  /* floats of a line of the cache */
#define PANEL 64 /* adjacent channels */
#define MAX_VECTORS (KERNELS_REGISTERS == 32 ? 4 : 2)
#define MAX_ROWS 6
#define PARTS 4 /* ranges of images whose weight gradients are summed separately, for any number of threads */
#define SMALL_WEIGHTS ((size_t)3 << 20) /* bytes of points */
#define SMALL_BLOCK ((size_t)600 << 10) /* bytes of the points of a block of tiles: half of the second-level cache */
#define LARGE_BLOCK ((size_t)5 << 20)   /* half of the third-level cache */

struct device_convolution {
    struct device *device;
    struct convolution c;
    size_t across, down, image_tiles; /* tiles of an image */
    size_t in, out;                   /* channels */
    bool has_small_weights;
    size_t block; /* tiles at a time */
    float *zeros; /* (in or out channels): read as padding */
};

/* ---- products ---- */

/* c (rows, LANES * vectors; row stride ldc) = or += a b, with a(i, k) = a[i * ars + k * acs] */
INLINE void multiply_rows(size_t vectors, size_t rows, size_t depth, const float *a, size_t ars, size_t acs,
                          const float *b, size_t ldb, float *c, size_t ldc, bool adds) {
    lanes sum[MAX_ROWS][MAX_VECTORS];
    const float *row[MAX_ROWS];
    UNROLL
    for (size_t i = 0; i < rows; i++) {
        row[i] = a + i * ars;
        UNROLL
        for (size_t v = 0; v < vectors; v++) sum[i][v] = adds ? load(c + i * ldc + v * LANES) : (lanes){0};
    }
    for (size_t k = 0, at = 0; k < depth; k++, at += acs, b += ldb) {
        lanes right[MAX_VECTORS];
        UNROLL
        for (size_t v = 0; v < vectors; v++) right[v] = load(b + v * LANES);
        UNROLL
        for (size_t i = 0; i < rows; i++) {
            float left = row[i][at];
            UNROLL
            for (size_t v = 0; v < vectors; v++) sum[i][v] = plus_times(sum[i][v], right[v], left);
        }
    }
    UNROLL
    for (size_t i = 0; i < rows; i++) {
        UNROLL
        for (size_t v = 0; v < vectors; v++) store(c + i * ldc + v * LANES, sum[i][v]);
    }
}

INLINE void multiply_columns(size_t vectors, size_t m, size_t depth, const float *a, size_t ars, size_t acs,
                             const float *b, size_t ldb, float *c, size_t ldc, bool adds) {
    size_t blocks = (m + MAX_ROWS - 1) / MAX_ROWS;
    for (size_t n = 0; n < blocks; n++) {
        size_t i = m * n / blocks, rows = m * (n + 1) / blocks - i;
        const float *from = a + i * ars;
        float *to = c + i * ldc;
        switch (rows) {
#define ROWS(count)                                                                                                    \
    case count:                                                                                                        \
        multiply_rows(vectors, count, depth, from, ars, acs, b, ldb, to, ldc, adds);                                   \
        break;
            ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) default : break;
        }
    }
}

static void multiply_wide(size_t m, size_t depth, const float *a, size_t ars, size_t acs, const float *b, size_t ldb,
                          float *c, size_t ldc, bool adds) {
    multiply_columns(MAX_VECTORS, m, depth, a, ars, acs, b, ldb, c, ldc, adds);
}

static void multiply_narrow(size_t m, size_t depth, const float *a, size_t ars, size_t acs, const float *b, size_t ldb,
                            float *c, size_t ldc, bool adds) {
    multiply_columns(1, m, depth, a, ars, acs, b, ldb, c, ldc, adds);
}

#if LANES == 16
static void multiply_half(size_t m, size_t depth, const float *a, size_t ars, size_t acs, const float *b, size_t ldb,
                          float *c, size_t ldc, bool adds) {
    multiply_columns(2, m, depth, a, ars, acs, b, ldb, c, ldc, adds);
}
#endif

/* c (m, n) = or += a b; n a multiple of LANES */
static void multiply(size_t m, size_t n, size_t depth, const float *a, size_t ars, size_t acs, const float *b,
                     size_t ldb, float *c, size_t ldc, bool adds) {
    size_t j = 0;
    for (; j + MAX_VECTORS * LANES <= n; j += MAX_VECTORS * LANES)
        multiply_wide(m, depth, a, ars, acs, b + j, ldb, c + j, ldc, adds);
#if LANES == 16
    for (; j + 2 * LANES <= n; j += 2 * LANES) multiply_half(m, depth, a, ars, acs, b + j, ldb, c + j, ldc, adds);
#endif
    for (; j < n; j += LANES) multiply_narrow(m, depth, a, ars, acs, b + j, ldb, c + j, ldc, adds);
}

/* ---- points of tiles ---- */

/* Points of [tiles] x [channels]: point p begins at p * stride. The stride keeps them off the same sets of the caches.
 */
static size_t stride_of(size_t tiles, size_t channels) { return tiles * channels + 16; }

static size_t min_of(size_t a, size_t b) { return a < b ? a : b; }

/* Of a block of tiles, a point of the inputs or of the gradients has one panel of channels after the other, (tiles,
 * channels of the panel), so that products read adjacent memory. Offset of the panel from [channel] on, a multiple of
 * PANEL. */
static size_t panel_at(const struct device_convolution *d, size_t channel) { return channel * d->block; }

/* Of [channels], those of the panel from [channel] on. */
static size_t width_of(size_t channels, size_t channel) { return min_of(PANEL, channels - channel); }

struct tile_place {
    size_t image;
    ptrdiff_t y, x; /* of the first output */
};

static struct tile_place place_of(const struct device_convolution *d, size_t tile) {
    size_t in_image = tile % d->image_tiles;
    return (struct tile_place){tile / d->image_tiles, (ptrdiff_t)(in_image / d->across * TILE),
                               (ptrdiff_t)(in_image % d->across * TILE)};
}

/* Addresses of the n x n pixels from (y, x); [elsewhere]: for pixels outside of the image. */
INLINE void look_at(const float *image, const struct image_shape *size, ptrdiff_t y, ptrdiff_t x, ptrdiff_t n,
                    const float *elsewhere, const float **pixels) {
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < n; j++) {
            bool is_inside =
                y + i >= 0 && y + i < (ptrdiff_t)size->height && x + j >= 0 && x + j < (ptrdiff_t)size->width;
            pixels[i * n + j] =
                is_inside ? image + ((size_t)(y + i) * size->width + (size_t)(x + j)) * size->channels : elsewhere;
        }
}

static const float *image_at(const float *x, const struct image_shape *size, size_t n) {
    return x + n * size->height * size->width * size->channels;
}

/* Where the channels from [channel] on of a [tile] of a block are, in the points of [channels]. */
static size_t offset_of(const struct device_convolution *d, size_t tile, size_t channels, size_t channel) {
    size_t panel = channel / PANEL * PANEL;
    return panel_at(d, panel) + tile * width_of(channels, panel) + channel - panel;
}

/* points (POINTS, panels of in channels, tiles) of the inputs of tiles [first, last) of the block that begins at tile
 * [begin] */
static void input_points(const struct device_convolution *d, const float *x, size_t begin, size_t first, size_t last,
                         float *points, size_t stride) {
    const float *pixels[POINTS];
    for (size_t t = first; t < last; t++) {
        struct tile_place place = place_of(d, t);
        look_at(image_at(x, &d->c.in, place.image), &d->c.in, place.y - (ptrdiff_t)d->c.window.padding[0],
                place.x - (ptrdiff_t)d->c.window.padding[1], SPAN, d->zeros, pixels);
        for (size_t c = 0; c < d->in; c += LANES) {
            lanes from[POINTS], to[POINTS];
            for (size_t i = 0; i < POINTS; i++) from[i] = load(pixels[i] + c);
            TRANSFORM_2D(inputs_to_points, SPAN, SPAN, from, to);
            float *at = points + offset_of(d, t - begin, d->in, c);
            for (size_t i = 0; i < POINTS; i++) store(at + i * stride, to[i]);
        }
    }
}

/* the same of the outputs' gradients, (POINTS, panels of out channels, tiles) */
static void gradient_points(const struct device_convolution *d, const float *dy, size_t begin, size_t first,
                            size_t last, float *points, size_t stride) {
    const float *pixels[TILE * TILE];
    for (size_t t = first; t < last; t++) {
        struct tile_place place = place_of(d, t);
        look_at(image_at(dy, &d->c.out, place.image), &d->c.out, place.y, place.x, TILE, d->zeros, pixels);
        for (size_t c = 0; c < d->out; c += LANES) {
            lanes from[TILE * TILE], to[POINTS];
            for (size_t i = 0; i < TILE * TILE; i++) from[i] = load(pixels[i] + c);
            TRANSFORM_2D(outputs_to_points, TILE, SPAN, from, to);
            float *at = points + offset_of(d, t - begin, d->out, c);
            for (size_t i = 0; i < POINTS; i++) store(at + i * stride, to[i]);
        }
    }
}

/* max(v, 0); NaN is not changed */
INLINE lanes relu(lanes v) { return (lanes)(~(v <= 0) & (ints)v); }

/* y at channels [channel, channel + width) of tiles [first, last) from points (POINTS, tiles, width) */
static void outputs(const struct device_convolution *d, const float *points, size_t stride, size_t first, size_t last,
                    size_t channel, size_t width, const float *bias, float *y) {
    const struct image_shape *size = &d->c.out;
    for (size_t t = first; t < last; t++, points += width) {
        struct tile_place at = place_of(d, t);
        float *to = y + ((at.image * size->height + (size_t)at.y) * size->width + (size_t)at.x) * d->out + channel;
        size_t rows = size->height - (size_t)at.y < TILE ? size->height - (size_t)at.y : TILE;
        size_t columns = size->width - (size_t)at.x < TILE ? size->width - (size_t)at.x : TILE;
        for (size_t c = 0; c < width; c += LANES) {
            lanes from[POINTS], pixels[TILE * TILE], shift = bias ? load(bias + channel + c) : (lanes){0};
            for (size_t i = 0; i < POINTS; i++) from[i] = load(points + i * stride + c);
            TRANSFORM_2D(points_to_outputs, SPAN, TILE, from, pixels);
            for (size_t i = 0; i < rows; i++)
                for (size_t j = 0; j < columns; j++) {
                    lanes value = pixels[i * TILE + j] + shift;
                    if (d->c.has_relu) value = relu(value);
                    store(to + (i * size->width + j) * d->out + c, value);
                }
        }
    }
}

/* dx += at channels [channel, channel + width) of tiles [first, last), which overlap, one after the other */
static void add_inputs(const struct device_convolution *d, const float *points, size_t stride, size_t first,
                       size_t last, size_t channel, size_t width, float *dx) {
    const float *pixels[POINTS];
    for (size_t t = first; t < last; t++, points += width) {
        struct tile_place at = place_of(d, t);
        look_at(image_at(dx, &d->c.in, at.image), &d->c.in, at.y - (ptrdiff_t)d->c.window.padding[0],
                at.x - (ptrdiff_t)d->c.window.padding[1], SPAN, NULL, pixels);
        for (size_t c = 0; c < width; c += LANES) {
            lanes from[POINTS], parts[POINTS];
            for (size_t i = 0; i < POINTS; i++) from[i] = load(points + i * stride + c);
            TRANSFORM_2D(points_to_inputs, SPAN, SPAN, from, parts);
            for (size_t i = 0; i < POINTS; i++) {
                if (!pixels[i]) continue;
                float *to = (float *)pixels[i] + channel + c;
                store(to, load(to) + parts[i]);
            }
        }
    }
}

/* ---- points of weights ---- */

/* Of LANES channels that products are summed over, the taps of LANES kernels each. */
INLINE void load_kernels(const float *w, size_t side_stride, size_t deep_stride, lanes kernels[LANES * TAPS]) {
    if (deep_stride == TAPS)
        for (size_t i = 0; i < TAPS; i++) load_transposed(kernels + i * LANES, w + i * LANES, side_stride, LANES);
    else
        for (size_t l = 0; l < LANES; l++) load_taps(w + l * deep_stride, side_stride, kernels + l * TAPS);
}

/* points (POINTS, depth, width) of the weights from (side, deep) on; [side]: output side channels, [deep]: channels
 * that products are summed over; strides of w between them */
static void weight_points(const float *w, size_t side_stride, size_t deep_stride, size_t width, size_t depth, float *to,
                          size_t stride) {
    for (size_t c = 0; c < width; c += LANES) {
        /* What is read next, as far as it is in short runs of LANES kernels, which processors do not foresee. */
        const float *next = c + LANES < width ? w + (c + LANES) * side_stride : w + depth * deep_stride;
        for (size_t k = 0; k < depth; k += LANES) {
            lanes kernels[LANES * TAPS];
            load_kernels(w + c * side_stride + k * deep_stride, side_stride, deep_stride, kernels);
            for (size_t l = 0; l < LANES; l++) {
                const float *run = next + l * side_stride + k * TAPS;
                for (size_t i = 0; deep_stride == TAPS && i < LANES * TAPS; i += LINE) __builtin_prefetch(run + i);
                lanes points[POINTS];
                TRANSFORM_2D(taps_to_points, 3, SPAN, kernels + l * TAPS, points);
                _Pragma("GCC unroll 36") /* so that the points stay in registers */
                    for (size_t i = 0; i < POINTS; i++) store(to + i * stride + (k + l) * width + c, points[i]);
            }
        }
    }
}

/* dw (out, in, 3, 3) += of the points (POINTS, depth input channels, width output channels; row stride ld) of its
 * gradient, [parts] of which are added up first */
static void add_weights(const float *points, size_t parts, size_t part_stride, size_t stride, size_t ld, size_t in,
                        size_t width, size_t depth, float *dw) {
    for (size_t c = 0; c < width; c += LANES)
        for (size_t k = 0; k < depth; k++) {
            lanes from[POINTS], taps[TAPS];
            for (size_t i = 0; i < POINTS; i++) {
                from[i] = load(points + i * stride + k * ld + c);
                for (size_t p = 1; p < parts; p++) from[i] += load(points + p * part_stride + i * stride + k * ld + c);
            }
            TRANSFORM_2D(points_to_taps, SPAN, 3, from, taps);
            add_taps(taps, in * TAPS, dw + (c * in + k) * TAPS);
        }
}

/* ---- passes ---- */

/* One call of forward or backward, and its offsets in the workspace. */
struct job {
    const struct device_convolution *d;
    const float *x, *w, *bias, *dy;
    float *y, *dx, *dw;
    size_t tiles, first, last, parts, slots; /* of all rows; a block's; ranges of images; ranges of work */
    float *weights, *sums;                   /* small weights: points of all; of their gradient (parts) */
    float *inputs, *gradients;               /* points of a block (small weights: for each slot) */
    float *products, *piece;                 /* for each slot: points of a panel; large weights: of a piece of them */
};

static size_t floats_of(size_t tiles, size_t channels) { return POINTS * stride_of(tiles, channels) + 16; }
static size_t panels_of(size_t channels) { return (channels + PANEL - 1) / PANEL; }
static size_t images_of(const struct job *job) { return job->tiles / job->d->image_tiles; }

/* Assigns offsets from [at] on; returns the floats used. */
static size_t place(const struct device_convolution *d, size_t slots, float *at, struct job *job) {
    size_t max = d->in > d->out ? d->in : d->out, copies = d->has_small_weights ? slots : 1, used = 0;
    job->slots = slots;
#define PLACE(member, floats) job->member = at ? at + used : NULL, used += (floats)
    PLACE(inputs, copies * floats_of(d->block, d->in));
    PLACE(gradients, copies * floats_of(d->block, d->out));
    PLACE(products, slots * floats_of(d->block, PANEL));
    if (d->has_small_weights) {
        PLACE(weights, panels_of(max) * floats_of(max, PANEL));
        PLACE(sums, PARTS * floats_of(d->in, d->out));
    } else {
        PLACE(piece, slots * floats_of(PANEL, PANEL));
    }
#undef PLACE
    return used;
}

static struct job new_job(const struct device_convolution *d, size_t rows) {
    struct job job = {.d = d, .tiles = rows * d->image_tiles, .parts = min_of(PARTS, rows)};
    place(d, parallel_threads(), workspace_of(d->device), &job);
    return job;
}

/* The points of small weights: panels of output channels over input channels, or the other way round. */
static void all_weights(const struct job *job, bool is_forward) {
    const struct device_convolution *d = job->d;
    size_t side = is_forward ? d->out : d->in, depth = is_forward ? d->in : d->out;
    size_t out_stride = TAPS * d->in, stride = stride_of(depth, PANEL);
    for (size_t j = 0; j < side; j += PANEL)
        weight_points(job->w + j * (is_forward ? out_stride : TAPS), is_forward ? out_stride : TAPS,
                      is_forward ? TAPS : out_stride, min_of(PANEL, side - j), depth,
                      job->weights + j / PANEL * floats_of(depth, PANEL), stride);
}

/* products (POINTS, tiles, width) = or += points (POINTS, panels of [depth] channels, tiles) weights (POINTS, depth,
 * width) */
static void multiply_panel(const struct device_convolution *d, size_t tiles, size_t width, size_t depth,
                           const float *points, size_t stride, const float *weights, size_t weights_stride,
                           float *products, size_t products_stride, bool adds) {
    for (size_t p = 0; p < POINTS; p++)
        for (size_t k = 0; k < depth; k += PANEL)
            multiply(tiles, width, width_of(depth, k), points + p * stride + panel_at(d, k), width_of(depth, k), 1,
                     weights + p * weights_stride + k * width, width, products + p * products_stride, width,
                     adds || k > 0);
}

/* ---- small weights ---- */

static void forward_blocks(void *context, size_t first_slot, size_t last_slot) {
    const struct job *job = context;
    const struct device_convolution *d = job->d;
    size_t blocks = (job->tiles + d->block - 1) / d->block, stride = stride_of(d->block, d->in);
    size_t products_stride = stride_of(d->block, PANEL);
    for (size_t slot = first_slot; slot < last_slot; slot++) {
        float *inputs = job->inputs + slot * floats_of(d->block, d->in);
        float *products = job->products + slot * floats_of(d->block, PANEL);
        for (size_t b = blocks * slot / job->slots; b < blocks * (slot + 1) / job->slots; b++) {
            size_t first = b * d->block, last = min_of(first + d->block, job->tiles);
            input_points(d, job->x, first, first, last, inputs, stride);
            for (size_t j = 0; j < d->out; j += PANEL) {
                size_t width = min_of(PANEL, d->out - j);
                multiply_panel(d, last - first, width, d->in, inputs, stride,
                               job->weights + j / PANEL * floats_of(d->in, PANEL), stride_of(d->in, PANEL), products,
                               products_stride, false);
                outputs(d, products, products_stride, first, last, j, width, job->bias, job->y);
            }
        }
    }
}

/* The gradient of the inputs of a block of tiles. Images that start in it are zeroed first. */
static void back_to_inputs(const struct job *job, const float *gradients, float *products, size_t first, size_t last) {
    const struct device_convolution *d = job->d;
    size_t image = d->c.in.height * d->c.in.width * d->in, stride = stride_of(d->block, PANEL);
    for (size_t i = (first + d->image_tiles - 1) / d->image_tiles; i * d->image_tiles < last; i++)
        memset(job->dx + i * image, 0, image * sizeof(float));
    for (size_t j = 0; j < d->in; j += PANEL) {
        size_t width = min_of(PANEL, d->in - j);
        multiply_panel(d, last - first, width, d->out, gradients, stride_of(d->block, d->out),
                       job->weights + j / PANEL * floats_of(d->out, PANEL), stride_of(d->out, PANEL), products, stride,
                       false);
        add_inputs(d, products, stride, first, last, j, width, job->dx);
    }
}

/* One point of a block: sums (in, out) = or += those of inputs (panels, tiles) times gradients (panels, tiles) */
static void weight_sums(const struct device_convolution *d, size_t tiles, const float *inputs, const float *gradients,
                        float *sums, bool adds) {
    for (size_t i = 0; i < d->in; i += PANEL)
        for (size_t j = 0; j < d->out; j += PANEL)
            multiply(width_of(d->in, i), width_of(d->out, j), tiles, inputs + panel_at(d, i), 1, width_of(d->in, i),
                     gradients + panel_at(d, j), width_of(d->out, j), sums + i * d->out + j, d->out, adds);
}

static void backward_part(const struct job *job, size_t part, size_t slot) {
    const struct device_convolution *d = job->d;
    size_t stride = stride_of(d->block, d->in), gradients_stride = stride_of(d->block, d->out);
    float *inputs = job->inputs + slot * floats_of(d->block, d->in);
    float *gradients = job->gradients + slot * floats_of(d->block, d->out);
    float *sums = job->sums + part * floats_of(d->in, d->out);
    size_t begin = images_of(job) * part / job->parts * d->image_tiles;
    size_t end = images_of(job) * (part + 1) / job->parts * d->image_tiles;
    for (size_t first = begin; first < end; first += d->block) {
        size_t last = min_of(first + d->block, end);
        if (job->dw) input_points(d, job->x, first, first, last, inputs, stride);
        gradient_points(d, job->dy, first, first, last, gradients, gradients_stride);
        for (size_t p = 0; job->dw && p < POINTS; p++)
            weight_sums(d, last - first, inputs + p * stride, gradients + p * gradients_stride,
                        sums + p * stride_of(d->in, d->out), first > begin);
        if (job->dx) back_to_inputs(job, gradients, job->products + slot * floats_of(d->block, PANEL), first, last);
    }
}

static void backward_parts(void *context, size_t first_slot, size_t last_slot) {
    const struct job *job = context;
    for (size_t slot = first_slot; slot < last_slot; slot++)
        for (size_t part = job->parts * slot / job->slots; part < job->parts * (slot + 1) / job->slots; part++)
            backward_part(job, part, slot);
}

static void add_all_weights(void *context, size_t first, size_t last) {
    const struct job *job = context;
    const struct device_convolution *d = job->d;
    add_weights(job->sums + first * LANES, job->parts, floats_of(d->in, d->out), stride_of(d->in, d->out), d->out,
                d->in, (last - first) * LANES, d->in, job->dw + first * LANES * d->in * TAPS);
}

/* ---- large weights ---- */

static void block_inputs(void *context, size_t first, size_t last) {
    const struct job *job = context;
    const struct device_convolution *d = job->d;
    input_points(d, job->x, job->first, job->first + first, job->first + last, job->inputs, stride_of(d->block, d->in));
}

static void block_gradients(void *context, size_t first, size_t last) {
    const struct job *job = context;
    const struct device_convolution *d = job->d;
    gradient_points(d, job->dy, job->first, job->first + first, job->first + last, job->gradients,
                    stride_of(d->block, d->out));
}

/* Of few tiles each point of a weight is used so rarely that it must not leave the first-level cache. */
#define FEW_TILES 6
#define SHALLOW 8 /* channels that products are summed over, whose points are computed together then */

/* The products of at most FEW_TILES tiles with the weights of LANES channels of each side, from w on: products (POINTS,
 * tiles, LANES; row stride [ldc]) = or += those with points (POINTS, tiles, LANES; row stride [row]). */
static void multiply_few(size_t tiles, const float *w, size_t side_stride, size_t deep_stride, const float *points,
                         size_t points_stride, size_t row, float *products, size_t products_stride, size_t ldc,
                         bool adds) {
    lanes kernels[LANES * TAPS], piece[SHALLOW][POINTS];
    load_kernels(w, side_stride, deep_stride, kernels);
    for (size_t k = 0; k < LANES; k += SHALLOW, points += SHALLOW, adds = true) {
        for (size_t l = 0; l < SHALLOW && k + l < LANES; l++) {
            const float *next = w + LANES * deep_stride + (k + l) * side_stride;
            for (size_t i = 0; deep_stride == TAPS && i < LANES * TAPS; i += LINE) __builtin_prefetch(next + i);
            TRANSFORM_2D(taps_to_points, 3, SPAN, kernels + (k + l) * TAPS, piece[l]);
        }
        switch (tiles) {
#define TILES(count)                                                                                                   \
    case count:                                                                                                        \
        for (size_t p = 0; p < POINTS; p++)                                                                            \
            multiply_rows(1, count, min_of(SHALLOW, LANES), points + p * points_stride, row, 1,                        \
                          (const float *)&piece[0][p], POINTS * LANES, products + p * products_stride, ldc, adds);     \
        break;
            TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6) default : break;
#undef TILES
        }
    }
}

/* The products of a block's tiles with panel [j]; the weights' points are computed piece by piece. */
static float *multiply_pieces(const struct job *job, bool is_forward, size_t slot, size_t j, size_t width) {
    const struct device_convolution *d = job->d;
    size_t deep = is_forward ? d->in : d->out, out_stride = TAPS * d->in;
    size_t side_stride = is_forward ? out_stride : TAPS, deep_stride = is_forward ? TAPS : out_stride;
    size_t tiles = job->last - job->first, points_stride = stride_of(d->block, deep);
    size_t piece_stride = stride_of(PANEL, PANEL), products_stride = stride_of(d->block, PANEL);
    const float *all = is_forward ? job->inputs : job->gradients, *w = job->w + j * side_stride;
    float *products = job->products + slot * floats_of(d->block, PANEL);
    float *piece = job->piece + slot * floats_of(PANEL, PANEL);
    for (size_t c = 0; tiles <= FEW_TILES && c < width; c += LANES)
        for (size_t k = 0; k < deep; k += LANES) {
            size_t panel = k / PANEL * PANEL;
            multiply_few(tiles, w + c * side_stride + k * deep_stride, side_stride, deep_stride,
                         all + panel_at(d, panel) + k - panel, points_stride, width_of(deep, panel), products + c,
                         products_stride, width, k > 0);
        }
    for (size_t k = 0; tiles > FEW_TILES && k < deep; k += PANEL) {
        size_t depth = min_of(PANEL, deep - k);
        weight_points(w + k * deep_stride, side_stride, deep_stride, width, depth, piece, piece_stride);
        multiply_panel(d, tiles, width, depth, all + panel_at(d, k), points_stride, piece, piece_stride, products,
                       products_stride, k > 0);
    }
    return products;
}

typedef void panel_work(const struct job *job, size_t slot, size_t j, size_t width);

/* For a side of [size] channels, the panels of the slots [first] to [last] - 1. */
static void each_panel(const struct job *job, size_t first, size_t last, size_t size, panel_work *work) {
    size_t panels = panels_of(size);
    for (size_t slot = first; slot < last; slot++)
        for (size_t panel = panels * slot / job->slots; panel < panels * (slot + 1) / job->slots; panel++)
            work(job, slot, panel * PANEL, min_of(PANEL, size - panel * PANEL));
}

static void forward_panel(const struct job *job, size_t slot, size_t j, size_t width) {
    const struct device_convolution *d = job->d;
    outputs(d, multiply_pieces(job, true, slot, j, width), stride_of(d->block, PANEL), job->first, job->last, j, width,
            job->bias, job->y);
}

static void forward_panels(void *context, size_t first, size_t last) {
    const struct job *job = context;
    each_panel(job, first, last, job->d->out, forward_panel);
}

static void input_panel(const struct job *job, size_t slot, size_t j, size_t width) {
    const struct device_convolution *d = job->d;
    add_inputs(d, multiply_pieces(job, false, slot, j, width), stride_of(d->block, PANEL), job->first, job->last, j,
               width, job->dx);
}

static void input_panels(void *context, size_t first, size_t last) {
    const struct job *job = context;
    each_panel(job, first, last, job->d->in, input_panel);
}

static void weight_panel(const struct job *job, size_t slot, size_t j, size_t width) {
    const struct device_convolution *d = job->d;
    size_t stride = stride_of(PANEL, PANEL), tiles = job->last - job->first;
    float *piece = job->piece + slot * floats_of(PANEL, PANEL);
    for (size_t k = 0; k < d->in; k += PANEL) {
        size_t depth = min_of(PANEL, d->in - k);
        for (size_t p = 0; p < POINTS; p++)
            multiply(depth, width, tiles, job->inputs + p * stride_of(d->block, d->in) + panel_at(d, k), 1, depth,
                     job->gradients + p * stride_of(d->block, d->out) + panel_at(d, j), width, piece + p * stride,
                     width, false);
        add_weights(piece, 1, 0, stride, width, d->in, width, depth, job->dw + (j * d->in + k) * TAPS);
    }
}

static void weight_panels(void *context, size_t first, size_t last) {
    const struct job *job = context;
    each_panel(job, first, last, job->d->out, weight_panel);
}

/* ---- the operators ---- */

#define MIN_TILES 4 /* minimum tiles of a thread */

static void forward(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                    size_t rows) {
    struct job job = new_job(d, rows);
    job.x = x, job.w = w, job.bias = bias, job.y = y;
    if (d->has_small_weights) {
        all_weights(&job, true);
        parallel_for(job.slots, 1, forward_blocks, &job);
        return;
    }
    for (; job.first < job.tiles; job.first = job.last) {
        job.last = min_of(job.first + d->block, job.tiles);
        parallel_for(job.last - job.first, MIN_TILES, block_inputs, &job);
        parallel_for(job.slots, 1, forward_panels, &job);
    }
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    (void)dbias; /* computed by the caller */
    struct job job = new_job(d, rows);
    job.x = x, job.w = w, job.dy = dy, job.dx = dx, job.dw = dw;
    if (d->has_small_weights) {
        if (dx) all_weights(&job, false);
        parallel_for(job.slots, 1, backward_parts, &job);
        if (dw) parallel_for(d->out / LANES, 1, add_all_weights, &job);
        return;
    }
    if (dx) memset(dx, 0, rows * d->c.in.height * d->c.in.width * d->in * sizeof *dx);
    for (; job.first < job.tiles; job.first = job.last) {
        job.last = min_of(job.first + d->block, job.tiles);
        if (dw) parallel_for(job.last - job.first, MIN_TILES, block_inputs, &job);
        parallel_for(job.last - job.first, MIN_TILES, block_gradients, &job);
        if (dw) parallel_for(job.slots, 1, weight_panels, &job);
        if (dx) parallel_for(job.slots, 1, input_panels, &job);
    }
}

static void destroy(struct device_convolution *d) {
    if (!d) return;
    buffer_free(d->zeros);
    free(d);
}

static size_t block_of(const struct device_convolution *d, size_t rows) {
    size_t max = d->in > d->out ? d->in : d->out, tiles = rows * d->image_tiles;
    size_t fit = (d->has_small_weights ? SMALL_BLOCK : LARGE_BLOCK) / (POINTS * max * sizeof(float));
    if (fit >= d->image_tiles) fit -= fit % d->image_tiles;
    if (fit < MAX_ROWS) fit = MAX_ROWS;
    return min_of(fit, tiles);
}

static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    struct device_convolution *d = calloc(1, sizeof *d);
    struct job job;
    if (!d) return status_memory("a convolution");
    d->device = device;
    d->c = *c;
    d->in = c->in.channels;
    d->out = c->out.channels;
    d->across = (c->out.width + TILE - 1) / TILE;
    d->down = (c->out.height + TILE - 1) / TILE;
    d->image_tiles = d->across * d->down;
    d->has_small_weights = POINTS * d->in * d->out * sizeof(float) <= SMALL_WEIGHTS;
    d->block = block_of(d, rows);
    size_t bytes = place(d, parallel_threads(), NULL, &job) * sizeof(float);
    status s = workspace_reserve(device, bytes, "a convolution");
    if (!s) s = buffer_new((d->in > d->out ? d->in : d->out) * sizeof(float), "a convolution", (void **)&d->zeros);
    if (s) destroy(d);
    if (!s) *out = d;
    return s;
}

const struct convolution_kernels IN_SET(winograd) = {
    .create = create, .destroy = destroy, .forward = forward, .backward = backward};
