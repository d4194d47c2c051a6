/* All time-critical loops in plain C that the compiler vectorises; the file is compiled once per instruction set
 * (set.h). Element-wise formulas write each fused multiply-add of PyTorch's kernels as fmaf. */
#include "device/cpu/sets/set.h"

#include <math.h>

#include "base/bits.h"
#include "base/numbers/philox.h"

/* Adds four rows at a time, in order, so that the sum is read and written less often. */
static void add_run(float *restrict sum, const float *restrict x, size_t rows, size_t size, size_t stride) {
    size_t i = 0;
    for (; i + 4 <= rows; i += 4, x += 4 * stride)
        for (size_t j = 0; j < size; j++)
            sum[j] = sum[j] + x[j] + x[stride + j] + x[2 * stride + j] + x[3 * stride + j];
    for (; i < rows; i++, x += stride)
        for (size_t j = 0; j < size; j++) sum[j] += x[j];
}

#define SUM_COLUMNS 64 /* whose sums in double stay in the first-level cache */

static void add_long_rows(float *restrict sum, const float *restrict x, size_t rows, size_t size, size_t stride) {
    double totals[SUM_COLUMNS] = {0};
    for (size_t i = 0; i < rows; i += LONG_SUM_RUN) {
        float run[SUM_COLUMNS] = {0};
        add_run(run, x + i * stride, rows - i < LONG_SUM_RUN ? rows - i : LONG_SUM_RUN, size, stride);
        for (size_t j = 0; j < size; j++) totals[j] += (double)run[j];
    }
    for (size_t j = 0; j < size; j++) sum[j] = (float)((double)sum[j] + totals[j]);
}

void IN_SET(add_rows)(float *sum, const float *x, size_t rows, size_t size, size_t stride) {
    if (rows <= LONG_SUM) {
        add_run(sum, x, rows, size, stride);
        return;
    }
    for (size_t j = 0; j < size; j += SUM_COLUMNS)
        add_long_rows(sum + j, x + j, rows, size - j < SUM_COLUMNS ? size - j : SUM_COLUMNS, stride);
}

static void add(const float *a, const float *b, float *y, size_t count) { /* y may be a or b */
#pragma omp simd
    for (size_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

/* Random numbers of elements 4 block to 4 block + 3 of local row [i]. The key: seed and stream. The counter: block, row
 * of the global batch, pass. */
static inline __attribute__((always_inline)) void draw(const struct draw_key *key, size_t i, size_t block,
                                                       uint32_t word[4]) {
    uint64_t pass = *key->pass, row = key->first_row + i * key->row_stride;
    word[0] = (uint32_t)block;
    word[1] = (uint32_t)row;
    word[2] = (uint32_t)pass;
    word[3] = (uint32_t)(pass >> 32) ^ (uint32_t)(row >> 32) << 16;
    philox(word, (uint32_t)key->seed ^ (uint32_t)(key->seed >> 32) * 0x85ebca6bu, key->stream);
}

/* An element is kept if its random number is not below it; with p = 1 none is. */
static uint32_t threshold_of(float p) { return p >= 1 ? 0xffffffffu : (uint32_t)((double)p * 0x1p32); }

static void dropout(const struct draw_key *key, float p, const float *restrict x, float *restrict y, size_t rows,
                    size_t size) {
    float scale = 1 / (1 - p);
    uint32_t threshold = threshold_of(p);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < size; j += 4) {
            uint32_t word[4];
            draw(key, i, j / 4, word);
            for (size_t l = 0; l < 4 && j + l < size; l++) {
                size_t e = i * size + j + l;
                y[e] = word[l] >= threshold && p < 1 ? x[e] * scale : 0;
            }
        }
}

#define DRAWN 64 /* channels at a time; a multiple of 4 */

/* Channels [first, first + count) of all positions of a row. */
static void drop_channels(const float *restrict x, float *restrict y, size_t size, size_t channels,
                          const float *restrict scales, size_t count) {
    for (size_t at = 0; at < size; at += channels)
        for (size_t c = 0; c < count; c++) y[at + c] = scales[c] > 0 ? x[at + c] * scales[c] : 0;
}

static void drop_row(const float *restrict x, float *restrict y, size_t size, float scale) {
    for (size_t j = 0; j < size; j++) y[j] = scale > 0 ? x[j] * scale : 0;
}

static void dropout_channels(const struct draw_key *key, float p, const float *restrict x, float *restrict y,
                             size_t rows, size_t size, size_t channels) {
    float scale = 1 / (1 - p), scales[DRAWN];
    uint32_t threshold = threshold_of(p);
    for (size_t i = 0; i < rows; i++, x += size, y += size)
        for (size_t first = 0; first < channels; first += DRAWN) {
            size_t count = channels - first < DRAWN ? channels - first : DRAWN;
            for (size_t c = 0; c < count; c += 4) {
                uint32_t word[4];
                draw(key, i, (first + c) / 4, word);
                for (size_t l = 0; l < 4; l++) scales[c + l] = word[l] >= threshold && p < 1 ? scale : 0;
            }
            if (channels == 1)
                drop_row(x, y, size, scales[0]);
            else
                drop_channels(x + first, y + first, size, channels, scales, count);
        }
}

/* 16 partial sums in double, added in a fixed order at the end */
static float norm(const float *x, size_t count) {
    double lanes[16] = {0}, sum = 0;
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (int l = 0; l < 16; l++) lanes[l] += (double)x[i + (size_t)l] * (double)x[i + (size_t)l];
    for (; i < count; i++) lanes[i % 16] += (double)x[i] * (double)x[i];
    for (int l = 0; l < 16; l++) sum += lanes[l];
    return (float)sqrt(sum);
}

/* an exponent of all ones is an infinity or a NaN */
static bool is_finite(const float *x, size_t count) {
    uint32_t bad = 0;
    for (size_t i = 0; i < count; i++) bad |= (bits_of_float(x[i]) & 0x7f800000u) == 0x7f800000u;
    return bad == 0;
}

const struct cpu_kernels IN_SET(cpu_kernels) = {
    .is_avx512 = KERNELS_LANES == 16,
    .exponentials = IN_SET(exponentials),
    .short_softmax = IN_SET(short_softmax),
    .product = IN_SET(product),
    .pack = IN_SET(pack),
    .add_rows = IN_SET(add_rows),
    .add = add,
    .activation_forward = IN_SET(activation_forward),
    .activation_backward = IN_SET(activation_backward),
    .dropout = dropout,
    .dropout_channels = dropout_channels,
    .optimizers = &IN_SET(optimizer_kernels),
    .image = &IN_SET(image_ops),
    .convolution = &IN_SET(convolution_ops),
    .winograd = &IN_SET(winograd_ops),
    .depthwise = &IN_SET(depthwise_ops),
    .unit_stride = &IN_SET(unit_stride_ops),
    .bias_gradient = IN_SET(bias_gradient),
    .norm = norm,
    .is_finite = is_finite,
    .leaky_relu_forward = IN_SET(leaky_relu_forward),
    .leaky_relu_backward = IN_SET(leaky_relu_backward),
    .norm_layers = &IN_SET(norm_ops),
    .sequence = &IN_SET(sequence_ops),
    .attention = &IN_SET(attention_kernels),
    .recurrent = &IN_SET(recurrent_kernels),
};
