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

/* The sum of all, halves onto halves. */
static inline float sums_total(float *sums) {
    for (size_t half = SUMS / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++) sums[i] += sums[i + half];
    return sums[0];
}

/* The largest of x (count > 0); a NaN may be passed over. */
static inline float largest_of(const float *x, size_t count) {
    float lanes[SUMS], best = x[0];
    size_t whole = count / SUMS * SUMS;
    for (size_t l = 0; l < SUMS; l++) lanes[l] = best;
    for (size_t i = 0; i < whole; i += SUMS)
        for (size_t l = 0; l < SUMS; l++) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    for (size_t i = whole; i < count; i++) best = x[i] > best ? x[i] : best;
    for (size_t l = 0; l < SUMS; l++) best = lanes[l] > best ? lanes[l] : best;
    return best;
}

#endif
