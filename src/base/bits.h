/* bits: reinterprets floats as integers, and converts between float32 and 16-bit floats (round to nearest, ties to
 * even). The functions have no branches, so loops over them vectorise. */
#pragma once

#include <stdint.h>
#include <string.h>

/* Marks inline functions that GPU kernels use, too. */
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

HOST_DEVICE static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

HOST_DEVICE static inline float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double bits_to_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

HOST_DEVICE static inline float bits_from_bfloat16(uint16_t half) { return bits_to_float((uint32_t)half << 16); }

/* Shifts exponent and fraction into place and corrects the exponent bias (by 112) with a multiplication, which also
 * normalises subnormal numbers. */
HOST_DEVICE static inline float bits_from_float16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
    uint32_t bits = bits_of_float(bits_to_float(rest) * 0x1p112f);
    return bits_to_float(sign | (rest >= 0x0f800000 ? rest | 0x7f800000 : bits)); /* infinite or NaN */
}

HOST_DEVICE static inline uint16_t bits_to_bfloat16(float value) {
    uint32_t bits = bits_of_float(value);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded); /* a NaN stays one */
}

HOST_DEVICE static inline uint16_t bits_to_float16(float value) {
    uint32_t bits = bits_of_float(value), sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
    /* below 2^-14: adding 0.5 makes the processor round at 2^-24; else rounded by integer arithmetic */
    uint32_t small = bits_of_float(bits_to_float(rest) + 0.5f) - 0x3f000000;
    uint32_t normal = (rest + 0xfff + ((rest >> 13) & 1) - 0x38000000) >> 13;
    uint32_t half = rest < 0x38800000 ? small : normal;
    half = rest >= 0x477ff000 ? 0x7c00 : half; /* 65520 and more */
    half = rest > 0x7f800000 ? 0x7e00 : half;
    return (uint16_t)(sign | half);
}
