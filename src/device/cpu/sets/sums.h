/* sums: 16 partial sums, whatever the width of a vector, added in a fixed order: all instruction sets give the same
 * bits. */
#ifndef DEVICE_CPU_SETS_SUMS_H
#define DEVICE_CPU_SETS_SUMS_H

#include <stddef.h>

#define SUMS 16

/* sums[index % 16] += term for index 0 to count - 1; [term] is an expression of [index] */
#define SUM_INTO(sums, count, index, term)                                                                             \
    do {                                                                                                               \
        size_t whole_ = (count) / SUMS * SUMS;                                                                         \
        for (size_t base_ = 0; base_ < whole_; base_ += SUMS)                                                          \
            for (size_t lane_ = 0; lane_ < SUMS; lane_++) {                                                            \
                size_t index = base_ + lane_;                                                                          \
                (sums)[lane_] += (term);                                                                               \
            }                                                                                                          \
        for (size_t index = whole_; index < (count); index++) (sums)[index - whole_] += (term);                        \
    } while (0)

typedef float sums_8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float sums_4 __attribute__((vector_size(16)));

/* The sum of all, halves onto halves; in registers, since each step would wait for the memory of the one before. */
static inline float sums_total(const float *sums) {
    sums_8 eight = *(const sums_8 *)sums + *(const sums_8 *)(sums + SUMS / 2);
    sums_4 four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* The largest of x (count > 0); a NaN may be passed over. */
static inline float largest_of(const float *x, size_t count) {
    float lanes[SUMS], best = x[0];
    size_t whole = count / SUMS * SUMS;
    for (size_t l = 0; l < SUMS; l++) lanes[l] = best;
    for (size_t i = 0; i < whole; i += SUMS) {
#pragma omp simd
        for (size_t l = 0; l < SUMS; l++) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    }
    for (size_t i = whole; i < count; i++) best = x[i] > best ? x[i] : best;
    for (size_t half = SUMS / 2; half > 0; half /= 2) {
#pragma omp simd
        for (size_t l = 0; l < half; l++) lanes[l] = lanes[l + half] > lanes[l] ? lanes[l + half] : lanes[l];
    }
    return lanes[0] > best ? lanes[0] : best;
}

#endif
