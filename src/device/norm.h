/* norm: normalisation over the last dimension, as torch.nn.LayerNorm and RMSNorm. Each sum is 16 partial sums that
 * are added in a fixed order, so every instruction set gives the same bits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct device;
struct tensor;

/* x, y, dy, dx (rows, size); weight, bias and their gradients (size) or NULL */
struct norm_ops {
    /* y = (x - mean) / sqrt(variance + eps) * weight + bias; statistics (rows, 2): mean and 1 / sqrt(...), for backward
     */
    void (*layer_norm_forward)(struct device *, const float *x, const float *weight, const float *bias, float eps,
                               const struct tensor *y, float *statistics, size_t rows, size_t size);
    /* dweight, dbias += ; dx, unless NULL, = or (adds) += */
    void (*layer_norm_backward)(struct device *, const float *x, const float *weight, const float *statistics,
                                const struct tensor *dy, const struct tensor *dx, bool adds, float *dweight,
                                float *dbias, size_t rows, size_t size);
    /* y = x / sqrt(mean of x^2 + eps) * weight; statistics (rows): 1 / sqrt(...) */
    void (*rms_norm_forward)(struct device *, const float *x, const float *weight, float eps, const struct tensor *y,
                             float *statistics, size_t rows, size_t size);
    void (*rms_norm_backward)(struct device *, const float *x, const float *weight, const float *statistics,
                              const struct tensor *dy, const struct tensor *dx, bool adds, float *dweight, size_t rows,
                              size_t size);
    /* x = a + b, then the same as forward of x; a, b, y and statistics do not share memory. NULL: the device adds and
     * normalises in two operators. */
    void (*add_layer_norm_forward)(struct device *, const struct tensor *a, const struct tensor *b, float *x,
                                   const float *weight, const float *bias, float eps, const struct tensor *y,
                                   float *statistics, size_t rows, size_t size);
    void (*add_rms_norm_forward)(struct device *, const struct tensor *a, const struct tensor *b, float *x,
                                 const float *weight, float eps, const struct tensor *y, float *statistics, size_t rows,
                                 size_t size);
};
