/* group: operators for as many models of the same shapes as a vector of the instruction set has lanes. A number of the
 * models is [lanes] numbers side by side, that of model i in lane i; each lane has the bits of the operators for one
 * model. Sums of more than LONG_SUM terms, whose order is another one, are not supported. */
#pragma once

#include "device/cpu/cpu.h"

/* c(i, j) = start + sum over k of a(i, k) b(k, j), in order, with a(i, k) = a[i * a_row + k * a_step] and so on: in
 * numbers of the models. */
struct group_product {
    size_t m, n, k;
    const float *a, *b;
    size_t a_row, a_step, b_column, b_step, c_row, c_column;
    bool is_shared;    /* a has one number for all models, not one of each */
    const float *row;  /* (n) start; NULL: 0 */
    bool has_relu;     /* c = max(0, c) */
    const float *mask; /* as c: where it is not greater than 0, c = 0; NULL: none */
    float *c;
};

/* The sums of a batch are added to those of each model: loss, and the rows whose largest output is that of the target.
 */
struct group_sums {
    double *loss, *correct; /* (lanes) */
};

struct group_ops {
    size_t lanes;
    void (*product)(const struct group_product *p);
    /* Losses of x (size, rows), in the order of the rows; dx = the derivative by x times the factor, NULL: none.
     * Plain cross entropy of 2 to SHORT_ROW classes: without weights, smoothing and ignored targets. targets: int64_t
     * (rows) of all models, or not [is_shared], int32_t (rows, lanes). */
    void (*cross_entropy)(const float *x, const void *targets, bool is_shared, size_t rows, size_t classes,
                          float factor, float *dx, const struct group_sums *sums);
    /* Of targets (rows, size), or not [is_shared], (rows, size, lanes). */
    void (*squared_error)(const float *x, const float *targets, bool is_shared, size_t rows, size_t size, float factor,
                          float *dx, const struct group_sums *sums);
    /* One run of an update; [constants]: (lanes), whose flags and conditions are those of the first one. states: NULL
     * where the optimizer does not use one. RULE_SGD and RULE_ADAM. */
    void (*update)(enum update_rule rule, const union optimizer_constants *const *constants, float *values,
                   const float *gradients, float *const states[OPTIMIZER_STATES], size_t count);
};

/* For [count] models: those of the device, or of vectors of half the width, which are enough for so many. NULL: the
 * device rounds factors. */
const struct group_ops *cpu_group_ops(struct device *device, size_t count);
