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
