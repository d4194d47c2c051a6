/* round: vectors of float32 that are read as pairs of bfloat16. */
#pragma once

#include <immintrin.h>
#include <stdbool.h>

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

/* The first halves of these words are x rounded to bfloat16 (to nearest; what is in the middle, away from 0). A NaN may
 * become 0, but not with [keeps_nan]. */
static inline __m512i rounded(__m512 x, bool keeps_nan) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    __mmask16 added = keeps_nan ? _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q) : (__mmask16)-1;
    return _mm512_mask_add_epi32((__m512i)x, added, (__m512i)x, half);
}

/* Words without their second halves. */
static inline __m512i bfloat16_of(__m512i words) { return _mm512_and_si512(words, _mm512_set1_epi32(-0x10000)); }

/* (x0, y0), (x1, y1), ...: the first halves of words */
static inline __m512i first_halves(__m512i x, __m512i y) {
    return _mm512_or_si512(_mm512_srli_epi32(x, 16), bfloat16_of(y));
}

#define PART_STRIDE 256 /* floats between the parts of a number, whose tiles follow each other */

/* to: the words (x0, y0), (x1, y1), ... of each part */
static inline __attribute__((always_inline)) void store_parts(float *to, __m512 x, __m512 y, size_t parts) {
    for (size_t part = 0; part < parts; part++, to += PART_STRIDE) {
        __m512i round_x = rounded(x, part + 1 == parts), round_y = rounded(y, part + 1 == parts);
        _mm512_storeu_si512(to, first_halves(round_x, round_y));
        x -= _mm512_castsi512_ps(bfloat16_of(round_x)), y -= _mm512_castsi512_ps(bfloat16_of(round_y));
    }
}

/* to: the words of the first [count] > 0 of 32 floats, zeros after them: (x0, x1), ... of one part, (x0, x16), ... of
 * several */
static inline __attribute__((always_inline)) void store_row(float *to, const float *x, size_t count, size_t parts) {
    if (parts == 1)
        *(lanes *)to = neighbours(x, count);
    else
        store_parts(to, load(x, count), count > LANES ? load(x + LANES, count - LANES) : _mm512_setzero_ps(), parts);
}

#endif
