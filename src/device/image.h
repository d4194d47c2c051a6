/* image: operators over images (a signal is an image of height 1). Memory is channels last: (rows, height, width,
 * channels), so the innermost loop runs over channels for every size of kernel and image. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/status.h"

struct device;
struct tensor;

struct image_shape {
    size_t height, width, channels;
};

/* Position of a kernel: [0] along the height, [1] along the width. [padding] is that before the image; behind it there
 * are as many zeros as the outputs need. */
struct window {
    size_t kernel[2], stride[2], padding[2], dilation[2];
};

/* The padding after the [in] pixels of a dimension: that before, or more if the [out] outputs need it. */
HOST_DEVICE static inline size_t window_padding_after(const struct window *w, int d, size_t in, size_t out) {
    size_t end = (out - 1) * w->stride[d] + w->dilation[d] * (w->kernel[d] - 1) + 1, before = w->padding[d];
    return end > in + 2 * before ? end - in - before : before;
}

struct convolution {
    struct image_shape in, out;
    struct window window;
    size_t groups;
    bool has_bias;
    bool has_relu; /* y = max(convolution, 0) */
};

/* Device state of one convolution: workspace, plans. */
struct device_convolution;

struct convolution_ops {
    /* For passes of up to [rows] rows. */
    status (*create)(struct device *, const struct convolution *, size_t rows, struct device_convolution **out);
    void (*destroy)(struct device_convolution *); /* takes NULL */
    /* Prepares passes of exactly [rows] rows, forward and, if [is_training], backward. Passes of other sizes work,
     * too, but the first may allocate. NULL: nothing to prepare. */
    status (*prepare)(struct device_convolution *, size_t rows, bool is_training);
    /* y (rows, out) from x (rows, in), w (out channels, in channels / groups, kernel height, kernel width), bias (out
     * channels) or NULL */
    void (*forward)(struct device_convolution *, const struct tensor *x, const float *w, const float *bias,
                    const struct tensor *y, size_t rows);
    /* dw, dbias (NULL without a bias) +=; dx, unless NULL, = ; dy is that of the convolution, before a relu. dw NULL:
     * only dx; x is not read and may be NULL. */
    void (*backward)(struct device_convolution *, const struct tensor *x, const float *w, const struct tensor *dy,
                     const struct tensor *dx, float *dw, float *dbias, size_t rows);
};

struct pooling {
    struct image_shape in, out;
    struct window window;  /* dilation is 1; is_adaptive: only the size of the largest window */
    bool is_adaptive;      /* window sizes follow from in and out: from floor(o in / out) to ceil((o + 1) in / out) */
    bool excludes_padding; /* an average counts only real elements, else also padding */
    size_t divisor;        /* divides a sum instead; 0: as above */
    bool has_relu;         /* maximum: y = max(maximum, 0) */
};
#define POOLING_MAX_WINDOW 256 /* elements of a maximum's window: its position is stored in one byte */

/* values (count), on the host: replaced by the sums over all ranks. [user] keeps a failure. */
struct all_sum {
    void (*sum)(void *user, double *values, size_t count);
    void *user;
};

struct batch_norm {
    size_t channels;
    float eps, momentum;
    bool uses_batch;            /* statistics of this batch (training, or no running ones), else running statistics */
    bool has_relu;              /* y = max(norm, 0) */
    bool adds_to_dx;            /* dx += instead of = */
    const struct all_sum *sync; /* statistics and gradients over the rows of all ranks; NULL: over those of this rank */
};
/* floats that forward stores for backward: 6 vectors of [channels], and sums in double */
#define BATCH_NORM_WORK(channels) (10 * (channels) + 2)

struct group_norm {
    size_t channels, groups, positions; /* height * width */
    float eps;
};

struct image_ops {
    /* y (count) = max(a + b, 0); y may be a or b */
    void (*add_relu)(struct device *, const struct tensor *a, const struct tensor *b, const struct tensor *y,
                     size_t count);
    /* dx (count) = dy where y > 0, else 0; dx may be dy */
    void (*relu_backward)(struct device *, const struct tensor *y, const struct tensor *dy, const struct tensor *dx,
                          size_t count);
    /* y (rows, width, height) from x (rows, height, width) */
    void (*transpose)(struct device *, const struct tensor *x, const struct tensor *y, size_t rows, size_t height,
                      size_t width);
    /* index (rows, out): position of each maximum within its window, for backward. The first maximum is used; NaN is
     * the maximum. */
    void (*max_pool_forward)(struct device *, const struct pooling *, const struct tensor *x, const struct tensor *y,
                             uint8_t *index, size_t rows);
    void (*max_pool_backward)(struct device *, const struct pooling *, const struct tensor *y, const uint8_t *index,
                              const struct tensor *dy, const struct tensor *dx, size_t rows);
    /* y (rows, out): the element of x (rows, in) at each position of [index] */
    void (*max_pool_gather)(struct device *, const struct pooling *, const uint8_t *index, const struct tensor *x,
                            const struct tensor *y, size_t rows);
    void (*avg_pool_forward)(struct device *, const struct pooling *, const struct tensor *x, const struct tensor *y,
                             size_t rows);
    void (*avg_pool_backward)(struct device *, const struct pooling *, const struct tensor *dy, const struct tensor *dx,
                              size_t rows);
    /* y = (x - mean) / sqrt(variance + eps) * weight + bias over [count] positions of [channels]; the batch variance
     * is the biased one, and the running statistics (NULL: none) are updated with momentum from mean and unbiased
     * variance. weight and bias (channels) may be NULL; work (BATCH_NORM_WORK(channels)), aligned for doubles. With
     * sync all ranks must call, also with a [count] of 0. */
    void (*batch_norm_forward)(struct device *, const struct batch_norm *, const struct tensor *x, const float *weight,
                               const float *bias, float *running_mean, float *running_var, float *work,
                               const struct tensor *y, size_t count);
    /* Recomputes y of the previous forward pass, from the same x and work */
    void (*batch_norm_recompute)(struct device *, const struct batch_norm *, const struct tensor *x, float *work,
                                 const struct tensor *y, size_t count);
    /* dweight, dbias (NULL without weight) +=; dx, unless NULL, = ; after a forward with uses_batch,
     * and with the same sync */
    void (*batch_norm_backward)(struct device *, const struct batch_norm *, const struct tensor *x,
                                const struct tensor *dy, float *work, const struct tensor *dx, float *dweight,
                                float *dbias, size_t count);
    /* the same over groups of channels of each row; saved (rows, 2 groups): means and inverse deviations */
    void (*group_norm_forward)(struct device *, const struct group_norm *, const struct tensor *x, const float *weight,
                               const float *bias, float *saved, const struct tensor *y, size_t rows);
    void (*group_norm_backward)(struct device *, const struct group_norm *, const struct tensor *x, const float *weight,
                                const float *saved, const struct tensor *dy, const struct tensor *dx, float *dweight,
                                float *dbias, size_t rows);
    /* x and dx of a batch norm may have a stride (struct tensor), and dx may be added to. */
    bool takes_strides;
};
