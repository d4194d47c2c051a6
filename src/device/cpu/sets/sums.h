/* sums: 16 partial sums for every vector width, added in a fixed order: all instruction sets give the same bits. */
#pragma once

#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/sets/lanes.h"

#define SUMS 16

/* sums[index % 16] += term for index 0 to count - 1; [term] is an expression of [index]. More than LONG_SUM terms
 * of a sum are added in runs. */
#define SUM_INTO(sums, count, index, term)                                                                             \
    do {                                                                                                               \
        size_t whole_ = (count) / SUMS * SUMS, begin_ = 0;                                                             \
        for (; whole_ > SUMS * LONG_SUM && begin_ < whole_;) {                                                         \
            size_t left_ = whole_ - begin_,                                                                            \
                   end_ = begin_ + (left_ < SUMS * LONG_SUM_RUN ? left_ : SUMS * LONG_SUM_RUN);                        \
            float run_[SUMS] = {0};                                                                                    \
            for (; begin_ < end_; begin_ += SUMS)                                                                      \
                for (size_t lane_ = 0; lane_ < SUMS; lane_++) {                                                        \
                    size_t index = begin_ + lane_;                                                                     \
                    run_[lane_] += (term);                                                                             \
                }                                                                                                      \
            for (size_t lane_ = 0; lane_ < SUMS; lane_++) (sums)[lane_] += run_[lane_];                                \
        }                                                                                                              \
        for (size_t base_ = begin_; base_ < whole_; base_ += SUMS)                                                     \
            for (size_t lane_ = 0; lane_ < SUMS; lane_++) {                                                            \
                size_t index = base_ + lane_;                                                                          \
                (sums)[lane_] += (term);                                                                               \
            }                                                                                                          \
        for (size_t index = whole_; index < (count); index++) (sums)[index - whole_] += (term);                        \
    } while (0)

typedef float sums_8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float sums_4 __attribute__((vector_size(16)));
typedef int32_t mask_8 __attribute__((vector_size(32)));
typedef int32_t mask_4 __attribute__((vector_size(16)));

/* Lower and upper half of a vector, as vectors. */
#define HALF_4(x, h) __builtin_shufflevector(x, x, h, h + 1, h + 2, h + 3)

/* The sum of all, by halves; in registers, because each step would wait for a store to memory. */
static inline float sums_total(const float *sums) {
    sums_8 eight = *(const sums_8 *)sums + *(const sums_8 *)(sums + SUMS / 2);
    sums_4 four = HALF_4(eight, 0) + HALF_4(eight, 4);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* a > b ? a : b, of each lane: the maximum instruction, which also keeps b where a number is NaN */
#define LARGER(vector, mask, a, b) (vector)(((mask)(a) & ((a) > (b))) | ((mask)(b) & ~((a) > (b))))
static inline lanes larger_lanes(lanes a, lanes b) {
#if LANES == 16
    return (lanes)_mm512_max_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (lanes)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return LARGER(lanes, mask_4, a, b);
#endif
}

/* The largest of x (count > 0); a NaN may be ignored. */
static inline float largest_of(const float *x, size_t count) {
    size_t whole = count / SUMS * SUMS;
    lanes max[SUMS / LANES];
    float best = x[0], all[SUMS];
    for (size_t v = 0; v < SUMS / LANES; v++) max[v] = x[0] - (lanes){0};
    for (size_t i = 0; i < whole; i += SUMS)
        for (size_t v = 0; v < SUMS / LANES; v++) max[v] = larger_lanes(*(const lanes *)(x + i + v * LANES), max[v]);
    for (size_t i = whole; i < count; i++) best = x[i] > best ? x[i] : best;
    memcpy(all, max, sizeof all);
    sums_8 low = *(const sums_8 *)all, high = *(const sums_8 *)(all + 8), eight = LARGER(sums_8, mask_8, high, low);
    sums_4 left = HALF_4(eight, 0), right = HALF_4(eight, 4), four = LARGER(sums_4, mask_4, right, left);
    for (size_t i = 0; i < 4; i++) best = four[i] > best ? four[i] : best;
    return best;
}

/* log(u) for a normal u > 0; NaN for infinity and NaN. The algorithm and the bits of glibc's logf where the processor
 * has fused multiply-adds: u = z 2^k, c near z is one of 16 numbers, r = z / c - 1, log(u) = k ln(2) + log(c) + log(1 +
 * r). */
static inline __attribute__((always_inline)) float log_of(float u) {
    static const double inverses[] = {
        0x1.661ec79f8f3bep+0, 0x1.571ed4aaf883dp+0, 0x1.49539f0f010bp+0,  0x1.3c995b0b80385p+0, 0x1.30d190c8864a5p+0,
        0x1.25e227b0b8eap+0,  0x1.1bb4a4a1a343fp+0, 0x1.12358f08ae5bap+0, 0x1.0953f419900a7p+0, 0x1p+0,
        0x1.e608cfd9a47acp-1, 0x1.ca4b31f026aap-1,  0x1.b2036576afce6p-1, 0x1.9c2d163a1aa2dp-1, 0x1.886e6037841edp-1,
        0x1.767dcf5534862p-1};
    static const double logs[] = {-0x1.57bf7808caadep-2, -0x1.2bef0a7c06ddbp-2,
                                  -0x1.01eae7f513a67p-2, -0x1.b31d8a68224e9p-3,
                                  -0x1.6574f0ac07758p-3, -0x1.1aa2bc79c81p-3,
                                  -0x1.a4e76ce8c0e5ep-4, -0x1.1973c5a611cccp-4,
                                  -0x1.252f438e10c1ep-5, 0x0p+0,
                                  0x1.aa5aa5df25984p-5,  0x1.c5e53aa362eb4p-4,
                                  0x1.526e57720db08p-3,  0x1.bc2860d22477p-3,
                                  0x1.1058bc8a07ee1p-2,  0x1.4043057b6ee09p-2};
    uint32_t bits = bits_of_float(u), rest = bits - 0x3f330000u, power = rest & 0xff800000u, i = rest >> 19 & 15;
    double k = (double)((int32_t)power / (1 << 23)), r = fma((double)bits_to_float(bits - power), inverses[i], -1);
    double p = fma(0x1.5575b0be00b6ap-2, r, -0x1.ffffef20a4123p-2), z = r * r;
    p = fma(-0x1.00ea348b88334p-2, z, p);
    return (float)fma(p, z, fma(k, 0x1.62e42fefa39efp-1, logs[i]) + r) + (u - u);
}
