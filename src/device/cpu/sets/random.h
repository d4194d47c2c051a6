/* random: the random words of a row (Philox 4x32-10, base/numbers/rng.h) for LANES blocks of four at a time, and
 * dropout with them. Each 64-bit lane holds one number of 32 bits; the upper half is whatever the round before left,
 * because multiplications ignore it. Written out, because compilers divide the 64-bit products into pieces. */
#pragma once

#include "device/cpu/cpu.h"
#include "device/cpu/sets/lanes.h"

#if LANES == 4 && defined __SSE2__
#include <emmintrin.h>
#endif

typedef uint64_t wide_words __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t lane_words __attribute__((vector_size(4 * LANES), aligned(4)));

#define WIDE (LANES / 2)  /* lanes of wide_words */
#define WORDS (4 * LANES) /* of one call: of two vectors, which hide the latency of each other */

#if LANES == 16
#define WIDE_INDEX ((wide_words){0, 1, 2, 3, 4, 5, 6, 7})
#define LOW_PAIRS(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_PAIRS(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif LANES == 8
#define WIDE_INDEX ((wide_words){0, 1, 2, 3})
#define LOW_PAIRS(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_PAIRS(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#else
#define WIDE_INDEX ((wide_words){0, 1})
#define LOW_PAIRS(a, b) __builtin_shufflevector(a, b, 0, 2)
#define HIGH_PAIRS(a, b) __builtin_shufflevector(a, b, 1, 3)
#endif

/* The 64-bit products of the lower halves of lanes. */
static inline __attribute__((always_inline)) wide_words times_word(wide_words a, uint32_t b) {
#if LANES == 16
    return (wide_words)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif LANES == 8
    return (wide_words)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined __SSE2__
    return (wide_words)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#elif defined __ARM_NEON
    return (wide_words)vmull_u32(vmovn_u64((uint64x2_t)a), vdup_n_u32(b));
#else
    return (a & 0xffffffffu) * b;
#endif
}

/* Whose words they are: seed and stream are the key; block, row of the global batch and pass the counter. */
struct row_words {
    uint32_t row, pass, high, key0, key1;
};

static inline struct row_words row_words_of(const struct draw_key *key, size_t i) {
    uint64_t pass = *key->pass, row = key->first_row + i * key->row_stride;
    return (struct row_words){(uint32_t)row, (uint32_t)pass, (uint32_t)(pass >> 32) ^ (uint32_t)(row >> 32) << 16,
                              (uint32_t)key->seed ^ (uint32_t)(key->seed >> 32) * 0x85ebca6bu, key->stream};
}

/* words (WORDS): of elements 4 block to 4 block + WORDS - 1 of the row. */
static inline void draw_words(const struct row_words *r, uint64_t block, uint32_t *words) {
    wide_words c[2][4];
    uint32_t key0 = r->key0, key1 = r->key1;
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        c[i][0] = WIDE_INDEX + (block + i * WIDE);
        c[i][1] = (wide_words){0} + r->row;
        c[i][2] = (wide_words){0} + r->pass;
        c[i][3] = c[i][0] >> 32 ^ r->high;
    }
    UNROLL
    for (int round = 0; round < 10; round++, key0 += 0x9e3779b9u, key1 += 0xbb67ae85u) {
        UNROLL
        for (size_t i = 0; i < 2; i++) {
            wide_words a = times_word(c[i][0], 0xd2511f53u), b = times_word(c[i][2], 0xcd9e8d57u);
            c[i][0] = b >> 32 ^ c[i][1] ^ key0;
            c[i][2] = a >> 32 ^ c[i][3] ^ key1;
            c[i][1] = b;
            c[i][3] = a;
        }
    }
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        wide_words one = (c[i][0] & 0xffffffffu) | c[i][1] << 32, two = (c[i][2] & 0xffffffffu) | c[i][3] << 32;
        *(lane_words *)(words + 2 * i * LANES) = (lane_words)LOW_PAIRS(one, two);
        *(lane_words *)(words + (2 * i + 1) * LANES) = (lane_words)HIGH_PAIRS(one, two);
    }
}

/* An element is kept if its random number is not below it; with p = 1 none is. */
static inline uint32_t dropout_threshold(float p) { return p >= 1 ? 0xffffffffu : (uint32_t)((double)p * 0x1p32); }

/* y = x m / (1 - p) with the masks m of elements [at, at + count) of a row. y may be x. */
static inline void drop_elements(const struct row_words *r, float p, uint64_t at, const float *x, float *y,
                                 size_t count) {
    float scale = p < 1 ? 1 / (1 - p) : 0;
    uint32_t threshold = dropout_threshold(p), words[WORDS];
    for (size_t j = 0; j < count;) {
        size_t skipped = (at + j) % 4, left = WORDS - skipped, end = count - j < left ? count : j + left;
        draw_words(r, (at + j) / 4, words);
#pragma omp simd
        for (size_t e = j; e < end; e++) {
            float kept = x[e] * scale;
            y[e] = words[skipped + e - j] >= threshold && p < 1 ? kept : 0;
        }
        j = end;
    }
}
