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

/* A linear layer whose inputs x are (rows, in), as of a batch, or (in, rows), as of a layer before it; its weight is
 * (out, in), its outputs y (out, rows). */
struct group_linear {
    size_t rows, in, out;
    bool is_batch;
    bool is_shared; /* x, a batch, has one number for all models */
};

static inline struct group_product group_linear_forward(const struct group_linear *l, const float *x,
                                                        const float *weight, const float *bias, float *y) {
    return (struct group_product){.m = l->rows,
                                  .n = l->out,
                                  .k = l->in,
                                  .a = x,
                                  .a_row = l->is_batch ? l->in : 1,
                                  .a_step = l->is_batch ? 1 : l->rows,
                                  .is_shared = l->is_shared,
                                  .b = weight,
                                  .b_column = l->in,
                                  .b_step = 1,
                                  .c_row = 1,
                                  .c_column = l->rows,
                                  .row = bias,
                                  .c = y};
}

static inline struct group_product group_linear_weight(const struct group_linear *l, const float *x, const float *dy,
                                                       float *gradient) {
    return (struct group_product){.m = l->in,
                                  .n = l->out,
                                  .k = l->rows,
                                  .a = x,
                                  .a_row = l->is_batch ? 1 : l->rows,
                                  .a_step = l->is_batch ? l->in : 1,
                                  .is_shared = l->is_shared,
                                  .b = dy,
                                  .b_column = l->rows,
                                  .b_step = 1,
                                  .c_row = 1,
                                  .c_column = l->in,
                                  .c = gradient};
}

static inline struct group_product group_linear_bias(const struct group_linear *l, const float *dy, float *gradient) {
    static const float one = 1;
    return (struct group_product){.m = 1,
                                  .n = l->out,
                                  .k = l->rows,
                                  .a = &one,
                                  .is_shared = true,
                                  .b = dy,
                                  .b_column = l->rows,
                                  .b_step = 1,
                                  .c_column = 1,
                                  .c = gradient};
}

/* dx (in, rows) */
static inline struct group_product group_linear_input(const struct group_linear *l, const float *dy,
                                                      const float *weight, float *dx) {
    return (struct group_product){.m = l->rows,
                                  .n = l->in,
                                  .k = l->out,
                                  .a = dy,
                                  .a_row = 1,
                                  .a_step = l->rows,
                                  .b = weight,
                                  .b_column = 1,
                                  .b_step = l->in,
                                  .c_row = 1,
                                  .c_column = l->rows,
                                  .c = dx};
}

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
