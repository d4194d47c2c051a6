/* set: names of functions that are compiled once per instruction set. IN_SET(gemm) is gemm_avx512 in one object,
 * gemm_baseline in another. cmake/CpuKernels.cmake defines KERNELS_SET, KERNELS_LANES (floats of one vector)
 * and KERNELS_REGISTERS (vectors). */
#pragma once

#include "device/cpu/cpu.h"

#define IN_SET_PASTED(name, set) name##_##set
#define IN_SET_EXPANDED(name, set) IN_SET_PASTED(name, set)
#define IN_SET(name) IN_SET_EXPANDED(name, KERNELS_SET)

/* What cpu.h declares for files outside of this folder. */
#define X(result, name, arguments) result IN_SET(name) arguments;
CPU_LOOPS(X)
#undef X
#define X(type, name) extern const struct type IN_SET(name);
CPU_TABLES(X)
#undef X

/* elementwise.c: y (count) = f(x);  dx (count) = dy f'(x) */
void IN_SET(activate)(enum activation f, const float *x, float *y, size_t count);
void IN_SET(activate_backward)(enum activation f, const float *x, const float *y, const float *dy, float *dx,
                               size_t count);

/* direct.c: false, and nothing is computed, where gemm.c is faster */
bool IN_SET(direct_product)(const struct cpu_product *p);
#if KERNELS_LANES == 16
bool direct_product_avx2(const struct cpu_product *p); /* also on processors with AVX-512 */
#endif

/* gemm.c: c (m, n; row stride ldc) += a b, strides as in struct cpu_product */
void IN_SET(gemm)(size_t m, size_t n, size_t k, const float *a, size_t ars, size_t acs, const float *b, size_t brs,
                  size_t bcs, float *c, size_t ldc);
