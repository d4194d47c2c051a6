/* Converts the number types of the emulated GPU's libraries to and from float. */
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "emulation.h"

namespace emulation {

static inline size_t size_of(cudaDataType type) {
    switch (type) {
    case CUDA_R_32F:
        return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    default:
        die("a type of numbers that is not emulated: %d", type);
    }
}

static inline float load(cudaDataType type, const void *p, size_t i) {
    if (type == CUDA_R_32F) return ((const float *)p)[i];
    if (type == CUDA_R_16F) return ((const __half *)p)[i];
    return ((const __nv_bfloat16 *)p)[i];
}

static inline void store(cudaDataType type, void *p, size_t i, float value) {
    if (type == CUDA_R_32F)
        ((float *)p)[i] = value;
    else if (type == CUDA_R_16F)
        ((__half *)p)[i] = value;
    else
        ((__nv_bfloat16 *)p)[i] = value;
}

/* Rounds to the 10 bits of mantissa of TF32. */
static inline float to_tf32(float x) {
    unsigned bits = std::bit_cast<unsigned>(x);
    if ((bits & 0x7f800000) == 0x7f800000) return x;
    return std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

} // namespace emulation
