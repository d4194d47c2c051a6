/* product: the matrix product in bfloat16, for processors with AVX-512 BF16. */
#ifndef DEVICE_CPU_BF16_PRODUCT_H
#define DEVICE_CPU_BF16_PRODUCT_H

#include "device/cpu/kernels.h"

/* As struct cpu_product, but a and b are rounded to bfloat16 (to nearest, ties to even; subnormal numbers to 0) when
 * they are read; products and sums are float32, each c(i, j) over pairs of k in order. One of ars and acs must be 1,
 * and one of brs and bcs. */
void product_bf16(const struct cpu_product *p);

/* Attention of sets/attention.c with these products: the softmax and stored values stay float32. */
void attention_forward_bf16(struct device *device, const struct attention_shape *shape, const float *qkv, float *y,
                            float *softmaxes);
void attention_backward_bf16(struct device *device, const struct attention_shape *shape, const float *qkv,
                             const float *y, const float *softmaxes, const float *dy, float *dqkv);
void cross_attention_forward_bf16(struct device *device, const struct attention_shape *shape, const float *q,
                                  const float *kv, float *y, float *softmaxes);
void cross_attention_backward_bf16(struct device *device, const struct attention_shape *shape, const float *q,
                                   const float *kv, const float *y, const float *softmaxes, const float *dy, float *dq,
                                   float *dkv);

/* Whether this processor supports it. */
bool product_bf16_is_supported(void);

#endif
