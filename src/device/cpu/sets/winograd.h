/* winograd: the transforms of F(4 x 4, 3 x 3) (Winograd 1980; Lavin and Gray 2016). Per row and column six products
 * replace the twelve of four outputs with a kernel of three. The points are 0, +-sqrt(1/2), +-sqrt(2) and infinity:
 * their rounding error is about half of that of the usual 0, +-1, +-2, and an output is as exact as a direct sum
 * within a factor of two.
 *
 *     y = A^T [(G g G^T) . (B^T d B)] A
 *
 * Each function is one dimension of one transform; the transposed ones are those of the gradients. Vectors hold
 * [LANES] channels. */
#ifndef DEVICE_CPU_SETS_WINOGRAD_H
#define DEVICE_CPU_SETS_WINOGRAD_H

#include <stddef.h>
#include <stdint.h>

#include "device/cpu/sets/lanes.h"

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
    lanes even = d[4] - 2 * d[2], odd = d[3] - 2 * d[1], wide_even = d[4] - 0.5f * d[2], wide_odd = d[3] - 0.5f * d[1];
    v[0] = (d[4] - 2.5f * d[2]) + d[0];
    v[1] = even + ROOT_HALF * odd;
    v[2] = even - ROOT_HALF * odd;
    v[3] = wide_even + ROOT_TWO * wide_odd;
    v[4] = wide_even - ROOT_TWO * wide_odd;
    v[5] = (d[5] - 2.5f * d[3]) + d[1];
}

/* d = B v */
INLINE void points_to_inputs(const lanes v[SPAN], lanes d[SPAN]) {
    lanes sum = v[1] + v[2], wide_sum = v[3] + v[4];
    lanes odd = ROOT_HALF * (v[1] - v[2]), wide_odd = ROOT_TWO * (v[3] - v[4]);
    d[0] = v[0];
    d[1] = v[5] - 2 * odd - 0.5f * wide_odd;
    d[2] = -2.5f * v[0] - 2 * sum - 0.5f * wide_sum;
    d[3] = odd + wide_odd - 2.5f * v[5];
    d[4] = v[0] + sum + wide_sum;
    d[5] = v[5];
}

/* y = A^T m */
INLINE void points_to_outputs(const lanes m[SPAN], lanes y[TILE]) {
    lanes sum = m[1] + m[2], wide_sum = m[3] + m[4];
    lanes odd = ROOT_HALF * (m[1] - m[2]), wide_odd = ROOT_TWO * (m[3] - m[4]);
    y[0] = m[0] + sum + wide_sum;
    y[1] = odd + wide_odd;
    y[2] = 0.5f * sum + 2 * wide_sum;
    y[3] = 0.5f * odd + 2 * wide_odd + m[5];
}

/* m = A y */
INLINE void outputs_to_points(const lanes y[TILE], lanes m[SPAN]) {
    lanes even = y[0] + 0.5f * y[2], odd = y[1] + 0.5f * y[3], wide_even = y[0] + 2 * y[2], wide_odd = y[1] + 2 * y[3];
    m[0] = y[0];
    m[1] = even + ROOT_HALF * odd;
    m[2] = even - ROOT_HALF * odd;
    m[3] = wide_even + ROOT_TWO * wide_odd;
    m[4] = wide_even - ROOT_TWO * wide_odd;
    m[5] = y[3];
}

/* u = G g */
INLINE void taps_to_points(const lanes g[3], lanes u[SPAN]) {
    lanes even = (-2.0f / 3) * (g[0] + 0.5f * g[2]), odd = (-2.0f / 3 * ROOT_HALF) * g[1];
    lanes wide_even = (1.0f / 6) * (g[0] + 2 * g[2]), wide_odd = (1.0f / 6 * ROOT_TWO) * g[1];
    u[0] = g[0];
    u[1] = even + odd;
    u[2] = even - odd;
    u[3] = wide_even + wide_odd;
    u[4] = wide_even - wide_odd;
    u[5] = g[2];
}

/* g = G^T u */
INLINE void points_to_taps(const lanes u[SPAN], lanes g[3]) {
    lanes sum = (-2.0f / 3) * (u[1] + u[2]), wide_sum = (1.0f / 6) * (u[3] + u[4]);
    g[0] = u[0] + sum + wide_sum;
    g[1] = (-2.0f / 3 * ROOT_HALF) * (u[1] - u[2]) + (1.0f / 6 * ROOT_TWO) * (u[3] - u[4]);
    g[2] = 0.5f * sum + 2 * wide_sum + u[5];
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

#endif
