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
    /* One of ars and acs must be 1, and one of brs and bcs; [packed] is not used. NULL: float32. */
    void (*product)(const struct cpu_product *p);
    /* A large product on all threads, with the workspace of the device, or, with the same bits, on one thread if that
     * cannot be allocated. NULL: there is none. */
    void (*shared_product)(struct device *device, const struct cpu_product *p);
    /* Whether it is for this product; then also for a part of its rows. NULL: for each, with the bits of [product]. */
    bool (*shares)(const struct cpu_product *p);
    /* Attention of sets/attention.c with these products: the softmax and stored values stay float32. NULL: all of it
     * does. */
    const struct attention_kernels *attention;
    /* Large convolutions are rounded, too. Where [convolution_of] returns NULL, oneDNN rounds those with many channels,
     * if it is installed and they are not dilated. */
    bool rounds_convolutions;
    /* NULL: those of the device; the caller computes the gradient of the bias. */
    const struct convolution_ops *(*convolution_of)(const struct convolution *c);
};

/* [name]: "amx" or "avx512_bf16"; NULL: the best for this processor. NULL if it, or the system, does not support them.
 * AMX: asks the system, which saves its registers only for processes that do. */
const struct bf16_kernels *bf16_kernels_find(const char *name);

/* Kernels whose factors are sums of bfloat16. [name]: as above; NULL if that is not AMX, because with AVX-512 BF16 they
 * take longer than those of float32.
 *
 * 2 [parts]: of train.float32_matmul_precision: high, only for products of matrices. Three products of parts are added,
 * a difference of up to 3 x 2^-16 of the product of the factors' magnitudes. A factor that is infinite, or of 3.39e38
 * or more, gives NaN.
 *
 * 3: each factor is exactly their sum. Six products are added; the others are less than 2^-23 of the product of the
 * factors' magnitudes together. Results that are not finite are computed again in float32, unless they are added to c
 * or are of a convolution. Parts, and products of parts, below 2^-126 are 0, so factors below 2^-103 and products below
 * 2^-102 have fewer bits. */
const struct bf16_kernels *bf16_kernels_find_parts(const char *name, size_t parts);

#endif
