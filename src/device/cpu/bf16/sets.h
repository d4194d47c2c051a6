/* sets: the rows of the table of kernels.c. */
#ifndef DEVICE_CPU_BF16_SETS_H
#define DEVICE_CPU_BF16_SETS_H

#include "device/cpu/bf16/kernels.h"

extern const struct bf16_kernels bf16_kernels_amx, bf16_kernels_avx512, bf16_kernels_amx_two, bf16_kernels_amx_three;

#endif
