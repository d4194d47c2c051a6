/* linear: the CPU's products for its table of operators, shapes as there. Each is split into ranges of rows or
 * columns for the threads of the process; a result does not depend on the split. */
#ifndef DEVICE_CPU_LINEAR_H
#define DEVICE_CPU_LINEAR_H

#include "device/cpu/kernels.h"

void linear_forward(struct device *device, const float *x, const float *w, const float *bias, bool has_relu, float *y,
                    size_t rows, size_t in, size_t out);
void linear_backward_input(struct device *device, const float *dy, const float *w, float *dx, size_t rows, size_t in,
                           size_t out);
void linear_backward_weight(struct device *device, const float *dy, const float *x, float *dw, float *dbias,
                            size_t rows, size_t in, size_t out);
void linear_backward_weight_in_parts(struct device *device, const float *dy, const float *x, float *dw, float *dbias,
                                     size_t rows, size_t in, size_t out, size_t max_rows,
                                     const struct part_receiver *receiver);

#endif
