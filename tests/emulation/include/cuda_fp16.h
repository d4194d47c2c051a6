/* Emulated CUDA: float16, rounded to the nearest, ties to even. */
#pragma once

#include "cuda_runtime.h"

static inline unsigned short emulated_float16_bits(float x) {
    unsigned bits = std::bit_cast<unsigned>(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x477ff000) return (unsigned short)(sign | 0x7c00); /* from 65520 on: infinity */
    if (size < 0x38800000) {                                        /* below 2^-14: the sum's last place is 2^-24 */
        float sum = std::bit_cast<float>(size) + 0.5f;
        return (unsigned short)(sign | (std::bit_cast<unsigned>(sum) - 0x3f000000));
    }
    unsigned rounded = size + 0xfff + (size >> 13 & 1);
    return (unsigned short)(sign | ((rounded - 0x38000000) >> 13));
}

static inline float emulated_float16_value(unsigned short x) {
    unsigned sign = (unsigned)(x & 0x8000) << 16, size = x & 0x7fff;
    float value = size >= 0x7c00   ? std::bit_cast<float>(0x7f800000 | (size & 0x3ff) << 13)
                  : size >= 0x0400 ? std::bit_cast<float>((size << 13) + 0x38000000)
                                   : (float)size * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<unsigned>(value) | sign);
}

struct __half_raw {
    unsigned short x;
};

struct __half {
    unsigned short __x;
    __half() = default;
    __half(float value) : __x(emulated_float16_bits(value)) {}
    __half(const __half_raw &raw) : __x(raw.x) {}
    operator float() const { return emulated_float16_value(__x); }
    operator __half_raw() const { return {__x}; }
};
typedef __half half;

struct alignas(4) __half2 {
    __half x, y;
    __half2() = default;
    __half2(__half low, __half high) : x(low), y(high) {}
};
typedef __half2 half2;

static inline __half __float2half(float x) { return x; }
static inline __half __float2half_rn(float x) { return x; }
static inline float __half2float(__half x) { return x; }
static inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
static inline __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
static inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
static inline float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }
static inline float __low2float(__half2 v) { return v.x; }
static inline float __high2float(__half2 v) { return v.y; }
static inline unsigned short __half_as_ushort(__half x) { return x.__x; }
static inline __half __ushort_as_half(unsigned short x) { return __half_raw{x}; }
