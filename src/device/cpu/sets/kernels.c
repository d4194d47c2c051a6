/* All time-critical loops in plain C that the compiler vectorises; the file is compiled once per instruction set
 * (set.h). Element-wise formulas write each fused multiply-add of PyTorch's kernels as fmaf. */
#include "device/cpu/sets/set.h"

#include <math.h>

#include "base/bits.h"
#include "base/philox.h"

/* Adds four rows at a time, in order, so that the sum is read and written less often. */
static void add_rows(float *restrict sum, const float *restrict x, size_t rows, size_t size, size_t stride) {
    size_t i = 0;
    for (; i + 4 <= rows; i += 4, x += 4 * stride)
        for (size_t j = 0; j < size; j++)
            sum[j] = sum[j] + x[j] + x[stride + j] + x[2 * stride + j] + x[3 * stride + j];
    for (; i < rows; i++, x += stride)
        for (size_t j = 0; j < size; j++) sum[j] += x[j];
}

static void add(const float *a, const float *b, float *y, size_t count) { /* y may be a or b */
#pragma omp simd
    for (size_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

/* The key: seed and stream. The counter: element block, row of the global batch, step. */
static void dropout(const struct draw_key *key, float p, const float *restrict x, float *restrict y, size_t rows,
                    size_t size) {
    float scale = 1 / (1 - p);
    uint64_t step = *key->step;
    uint32_t key0 = (uint32_t)key->seed ^ (uint32_t)(key->seed >> 32) * 0x85ebca6bu, key1 = key->stream;
    uint32_t threshold =
        p >= 1 ? 0xffffffffu : (uint32_t)((double)p * 0x1p32); /* kept if the random number is not below it */
    for (size_t i = 0; i < rows; i++) {
        uint64_t row = key->first_row + i * key->row_stride;
        for (size_t j = 0; j < size; j += 4) {
            uint32_t word[4] = {(uint32_t)(j / 4), (uint32_t)row, (uint32_t)step,
                                (uint32_t)(step >> 32) ^ (uint32_t)(row >> 32) << 16};
            philox(word, key0, key1);
            for (size_t l = 0; l < 4 && j + l < size; l++) {
                size_t e = i * size + j + l;
                y[e] = word[l] >= threshold && p < 1 ? x[e] * scale : 0;
            }
        }
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
    .add_rows = add_rows,
    .add = add,
    .activation_forward = IN_SET(activation_forward),
    .activation_backward = IN_SET(activation_backward),
    .dropout = dropout,
    .optimizers = &IN_SET(optimizer_kernels),
    .image = &IN_SET(image_ops),
    .convolution = &IN_SET(convolution_ops),
    .winograd = &IN_SET(winograd_ops),
    .depthwise = &IN_SET(depthwise_ops),
    .bias_gradient = IN_SET(bias_gradient),
    .norm = norm,
    .is_finite = is_finite,
    .leaky_relu_forward = IN_SET(leaky_relu_forward),
    .leaky_relu_backward = IN_SET(leaky_relu_backward),
    .norm_layers = &IN_SET(norm_ops),
    .sequence = &IN_SET(sequence_ops),
    .recurrent = &IN_SET(recurrent_kernels),
};
