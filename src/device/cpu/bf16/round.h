/* round: vectors of float32 that are read as pairs of bfloat16. */
#ifndef DEVICE_CPU_BF16_ROUND_H
#define DEVICE_CPU_BF16_ROUND_H

#include <immintrin.h>

#include "device/cpu/sets/lanes.h"

#ifdef __AVX512BF16__ /* what is compiled for it includes this header */

/* The first [count] of 16 floats, zeros after them. */
static inline __m512 load(const float *x, size_t count) {
    return count >= LANES ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), x);
}

/* (x0, y0), (x1, y1), ... rounded */
static inline lanes pairs_of(__m512 x, __m512 y) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (lanes)_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(y, x));
}

/* (x0, x1), (x2, x3), ... rounded */
static inline lanes neighbours_of(__m512 low, __m512 high) { return (lanes)_mm512_cvtne2ps_pbh(high, low); }

/* of the first [count] > 0 of 32 floats, zeros after them */
static inline lanes neighbours(const float *x, size_t count) {
    return neighbours_of(load(x, count), count > LANES ? load(x + LANES, count - LANES) : _mm512_setzero_ps());
}

/* What rounding leaves of x, itself in float32: x is the sum of two bfloat16 but for 2^-16 of it. NaN where x is, or is
 * rounded to, infinity. */
static inline __m512 rest_of(__m512 x) {
    return x - _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)), 16));
}

#endif

#endif
