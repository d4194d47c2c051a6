/* set: names of functions that are compiled once per instruction set. IN_SET(gemm) is gemm_avx512 in one object,
 * gemm_baseline in another. cmake/CpuKernels.cmake defines KERNELS_SET, KERNELS_LANES (floats of one vector)
 * and KERNELS_REGISTERS (vectors). */
#ifndef DEVICE_CPU_SETS_SET_H
#define DEVICE_CPU_SETS_SET_H

#include "device/cpu/cpu.h"

#define IN_SET_PASTED(name, set) name##_##set
#define IN_SET_EXPANDED(name, set) IN_SET_PASTED(name, set)
#define IN_SET(name) IN_SET_EXPANDED(name, KERNELS_SET)

/* optimizers.c */
extern const struct optimizer_kernels IN_SET(optimizer_kernels);

/* image.c, image_norm.c, convolution.c, winograd.c, depthwise.c, unit_stride.c */
extern const struct image_ops IN_SET(image_ops);
extern const struct convolution_ops IN_SET(convolution_ops), IN_SET(winograd_ops), IN_SET(depthwise_ops),
    IN_SET(unit_stride_ops);
void IN_SET(bias_gradient)(const float *dy, float *dbias, size_t rows, size_t positions, size_t channels);
void IN_SET(batch_norm_forward)(struct device *device, const struct batch_norm *norm, const float *x,
                                const float *weight, const float *bias, float *running_mean, float *running_var,
                                float *work, float *y, size_t count);
void IN_SET(batch_norm_recompute)(struct device *device, const struct batch_norm *norm, const float *x, float *work,
                                  float *y, size_t count);
void IN_SET(batch_norm_backward)(struct device *device, const struct batch_norm *norm, const float *x, const float *dy,
                                 float *work, float *dx, float *dweight, float *dbias, size_t count);
void IN_SET(group_norm_forward)(struct device *device, const struct group_norm *norm, const float *x,
                                const float *weight, const float *bias, float *saved, float *y, size_t rows);
void IN_SET(group_norm_backward)(struct device *device, const struct group_norm *norm, const float *x,
                                 const float *weight, const float *saved, const float *dy, float *dx, float *dweight,
                                 float *dbias, size_t rows);
/* activations.c */
void IN_SET(activation_forward)(enum activation f, const float *x, float *y, size_t count);
void IN_SET(activation_backward)(enum activation f, const float *x, const float *y, const float *dy, float *dx,
                                 size_t count);
void IN_SET(leaky_relu_forward)(float slope, const float *x, float *y, size_t count);
void IN_SET(leaky_relu_backward)(float slope, const float *x, const float *dy, float *dx, size_t count);

/* kernels.c: sum (size) += each row of x (rows, size; [stride] between rows) */
void IN_SET(add_rows)(float *sum, const float *x, size_t rows, size_t size, size_t stride);

/* norm.c, sequence.c, attention.c */
float IN_SET(exponentials)(const float *x, float *e, float *max, size_t count);
void IN_SET(short_softmax)(const float *x, float *y, float *max, float *sum, size_t rows, size_t count);
extern const struct norm_ops IN_SET(norm_ops);
extern const struct sequence_ops IN_SET(sequence_ops);
extern const struct attention_kernels IN_SET(attention_kernels);

/* direct.c: false, and nothing is computed, where gemm.c is faster */
bool IN_SET(direct_product)(const struct cpu_product *p);
#if KERNELS_LANES == 16
bool direct_product_avx2(const struct cpu_product *p); /* also on processors with AVX-512 */
#endif

/* recurrent.c */
extern const struct recurrent_kernels IN_SET(recurrent_kernels);

/* gemm.c, and ../bf16 for its sets */
void IN_SET(product)(const struct cpu_product *p);
void IN_SET(pack)(const struct cpu_product *p, float *packed);
void IN_SET(gemm)(size_t m, size_t n, size_t k, const float *a, size_t ars, size_t acs, const float *b, size_t brs,
                  size_t bcs, float *c, size_t ldc);

#endif
