/* The kernels of train.precision: bfloat16, for processors with AVX-512 BF16 or AMX. Compiled once for each of them, as
 * ../sets for each instruction set. Operands are float32 in memory and rounded to bfloat16 while a product packs them
 * (to nearest, ties to even; subnormal numbers to 0), so it needs no pass over memory before it and no second copy of
 * the weights. Products and sums are float32, each c(i, j) in an order that depends on k alone; it is another one with
 * AMX. */
#ifndef DEVICE_CPU_BF16_KERNELS_H
#define DEVICE_CPU_BF16_KERNELS_H

#include "device/cpu/kernels.h"

struct bf16_kernels {
    const char *description; /* of a device that uses them */
    /* One of ars and acs must be 1, and one of brs and bcs; [packed] is not used. */
    void (*product)(const struct cpu_product *p);
    /* The same bits, of a large product on all threads, with the workspace of the device. False, and nothing is
     * computed, if that cannot be allocated. NULL: there is none. */
    bool (*shared_product)(struct device *device, const struct cpu_product *p);
    /* Attention of sets/attention.c with these products: the softmax and stored values stay float32. NULL: all of it
     * does. */
    const struct attention_kernels *attention;
    /* Large convolutions are rounded, too: by [convolution] where [convolves], else, without a dilation, by oneDNN if
     * it is installed. NULL: they stay float32. */
    bool (*convolves)(const struct convolution *c);
    const struct convolution_ops *convolution; /* the caller computes the gradient of the bias */
};

/* [name]: "amx" or "avx512_bf16"; NULL: the best for this processor. NULL if it, or the system, does not support them.
 * AMX: asks the system, which saves its registers only for processes that do. */
const struct bf16_kernels *bf16_kernels_find(const char *name);

/* The kernels of train.float32_matmul_precision: high: each factor is the sum of two bfloat16, of which three products
 * are added (a difference of up to 3 x 2^-16 of the product of their magnitudes); only products of matrices. A factor
 * that is infinite, or of 3.39e38 or more, gives NaN. [name]: as above; NULL if that is not AMX, because with AVX-512
 * BF16 three products take longer than one of float32. */
const struct bf16_kernels *bf16_kernels_find_parts(const char *name);

#endif
