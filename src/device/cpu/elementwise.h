/* elementwise: operators whose elements are independent, split into ranges for the threads; the loops are those of
 * the device's instruction set. Arguments as in device.h and optimizers.h. */
#ifndef DEVICE_CPU_ELEMENTWISE_H
#define DEVICE_CPU_ELEMENTWISE_H

#include "device/device.h"

void elementwise_add(struct device *device, const float *a, const float *b, float *y, size_t count);
void elementwise_copy(struct device *device, const float *x, float *y, size_t count);
void elementwise_multiply(struct device *device, const float *a, const float *b, float *y, size_t count);
void elementwise_copy_columns(struct device *device, const float *x, size_t x_stride, float *y, size_t y_stride,
                              size_t rows, size_t count);
void elementwise_activation_forward(struct device *device, enum activation f, const float *x, float *y, size_t count);
void elementwise_activation_backward(struct device *device, enum activation f, const float *x, const float *y,
                                     const float *dy, float *dx, size_t count);
void elementwise_leaky_relu_forward(struct device *device, float slope, const float *x, float *y, size_t count);
void elementwise_leaky_relu_backward(struct device *device, float slope, const float *x, const float *dy, float *dx,
                                     size_t count);

void elementwise_prelu_forward(struct device *device, const float *x, const float *slopes, size_t channels, float *y,
                               size_t count);
void elementwise_prelu_backward(struct device *device, const float *x, const float *slopes, size_t channels,
                                const float *dy, float *dx, float *dslopes, size_t count);

void elementwise_scale_forward(struct device *device, const float *x, const float *scales, size_t channels, float *y,
                               size_t count);
void elementwise_scale_backward(struct device *device, const float *x, const float *scales, size_t channels,
                                const float *dy, float *dx, float *dscales, size_t count);

extern const struct optimizer_ops elementwise_optimizer_ops;

#endif
