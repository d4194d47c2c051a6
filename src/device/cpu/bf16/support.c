/* A separate file, because it is compiled for every processor. */
#include "device/cpu/bf16/product.h"

bool product_bf16_is_supported(void) {
#ifdef DDPTRAIN_X86_KERNELS
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

#ifndef DDPTRAIN_X86_KERNELS
void product_bf16(const struct cpu_product *p) { (void)p; }
void attention_forward_bf16(struct device *device, const struct attention_shape *shape, const float *qkv, float *y,
                            float *softmaxes) {
    (void)device, (void)shape, (void)qkv, (void)y, (void)softmaxes;
}
void attention_backward_bf16(struct device *device, const struct attention_shape *shape, const float *qkv,
                             const float *y, const float *softmaxes, const float *dy, float *dqkv) {
    (void)device, (void)shape, (void)qkv, (void)y, (void)softmaxes, (void)dy, (void)dqkv;
}
void cross_attention_forward_bf16(struct device *device, const struct attention_shape *shape, const float *q,
                                  const float *kv, float *y, float *softmaxes) {
    (void)device, (void)shape, (void)q, (void)kv, (void)y, (void)softmaxes;
}
void cross_attention_backward_bf16(struct device *device, const struct attention_shape *shape, const float *q,
                                   const float *kv, const float *y, const float *softmaxes, const float *dy, float *dq,
                                   float *dkv) {
    (void)device, (void)shape, (void)q, (void)kv, (void)y, (void)softmaxes, (void)dy, (void)dq, (void)dkv;
}
#endif
