/* product: the matrix product in bfloat16, for processors with AVX-512 BF16. */
#ifndef DEVICE_CPU_BF16_PRODUCT_H
#define DEVICE_CPU_BF16_PRODUCT_H

#include "device/cpu/kernels.h"

/* As struct product says, but a and b are rounded to bfloat16 (to nearest, ties to even; smallest numbers to 0) as they
 * are read; products and sums are float32, each c(i, j) over pairs of k in order. One of ars and acs must be 1, and one
 * of brs and bcs. */
void product_bf16(const struct product *p);

/* Whether this processor can. */
bool product_bf16_is_supported(void);

#endif
