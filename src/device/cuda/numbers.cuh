/* Operands in GPU memory, float32 or 16 bits: how kernels read and write them. */
#pragma once

#include <cuda_runtime.h>

#include "device/cuda/tensor_core.cuh"

extern "C" {
#include "base/bits.h"
}

/* Largest power of two that divides an address, up to 256. */
static inline uint32_t alignment(const void *p) {
    uintptr_t lowest = (uintptr_t)p & -(uintptr_t)p;
    return lowest == 0 || lowest > 256 ? 256 : (uint32_t)lowest;
}

/* Converts two numbers to 16 bits each, the first in the lower bits, rounded as base/bits.h does; the payload of a
 * NaN may differ. */
__device__ static inline uint32_t gpu_to_half(bool is_bfloat16, float low, float high) {
    return is_bfloat16 ? bfloat16_factors::pair(low, high) : float16_factors::pair(low, high);
}

__device__ static inline uint16_t gpu_to_half(bool is_bfloat16, float x) {
    return (uint16_t)gpu_to_half(is_bfloat16, x, 0);
}

/* Converts back to float32. */
__device__ static inline float gpu_from_half(bool is_bfloat16, uint16_t bits) {
    return is_bfloat16 ? bits_from_bfloat16(bits) : float16_factors::widen(bits);
}

enum gpu_format { GPU_FLOAT32, GPU_BFLOAT16, GPU_FLOAT16 };

/* V adjacent numbers of one thread (V is 1 or 4): as floats, and as stored in memory. */
template <int V> struct gpu_several { float at[V]; };
template <int V> struct gpu_fetched { uint4 bits; };
template <> struct gpu_fetched<1> { uint32_t bits; };

/* An operand that is read. */
struct gpu_numbers {
    const void *at; /* NULL: none */
    enum gpu_format form;
    struct half_copy *copy; /* for products, on the host; NULL: none */

    bool is_half() const { return form != GPU_FLOAT32; }
    /* of float32 */
    const float *floats() const { return (const float *)at; }
    /* Whether four() may be used. */
    bool has_fours() const { return alignment(at) >= (is_half() ? sizeof(uint2) : sizeof(float4)); }

    __device__ float one(size_t i) const {
        if (form == GPU_FLOAT32) return ((const float *)at)[i];
        return gpu_from_half(form == GPU_BFLOAT16, ((const uint16_t *)at)[i]);
    }
    /* Numbers i to i + 3, i a multiple of 4, as stored in memory, so that several loads are in flight; a conversion
     * to float4 would wait for each. */
    __device__ uint4 fetch(size_t i) const {
        if (form == GPU_FLOAT32) return *(const uint4 *)((const float *)at + i);
        uint2 v = *(const uint2 *)((const uint16_t *)at + i);
        return {v.x, v.y, 0, 0};
    }
    __device__ float4 widen(uint4 v) const {
        if (form == GPU_FLOAT32)
            return {bits_to_float(v.x), bits_to_float(v.y), bits_to_float(v.z), bits_to_float(v.w)};
        if (form == GPU_BFLOAT16)
            return {bits_to_float(v.x << 16), bits_to_float(v.x & 0xffff0000u), bits_to_float(v.y << 16),
                    bits_to_float(v.y & 0xffff0000u)};
        return {gpu_from_half(false, (uint16_t)v.x), gpu_from_half(false, (uint16_t)(v.x >> 16)),
                gpu_from_half(false, (uint16_t)v.y), gpu_from_half(false, (uint16_t)(v.y >> 16))};
    }
    __device__ float4 four(size_t i) const { return widen(fetch(i)); }
    /* The same of V numbers, 1 or 4. */
    template <int V> __device__ gpu_fetched<V> fetch_some(size_t i) const {
        if constexpr (V == 4)
            return {fetch(i)};
        else
            return {form == GPU_FLOAT32 ? ((const uint32_t *)at)[i] : ((const uint16_t *)at)[i]};
    }
    template <int V> __device__ gpu_several<V> some(struct gpu_fetched<V> v) const {
        if constexpr (V == 4) {
            float4 f = widen(v.bits);
            return {{f.x, f.y, f.z, f.w}};
        } else {
            return {
                {form == GPU_FLOAT32 ? bits_to_float(v.bits) : gpu_from_half(form == GPU_BFLOAT16, (uint16_t)v.bits)}};
        }
    }
    template <int V> __device__ gpu_several<V> some_at(size_t i) const { return some<V>(fetch_some<V>(i)); }
    /* Those from number i on. */
    __device__ struct gpu_numbers from(size_t i) const {
        return {form == GPU_FLOAT32 ? (const void *)((const float *)at + i) : (const uint16_t *)at + i, form, nullptr};
    }
};

/* The 16-bit result of an operator, or the copy of its result, for elements of y (count). */
struct gpu_half_output {
    uint16_t *to; /* NULL: not written */
    bool is_bfloat16;

    __device__ void put(size_t i, float y) const {
        if (to) to[i] = gpu_to_half(is_bfloat16, y);
    }
    /* Elements i to i + 3, i a multiple of 4. */
    __device__ void put(size_t i, float4 y) const {
        if (to) *(uint2 *)(to + i) = of(y);
    }
    __device__ uint2 of(float4 y) const {
        return {gpu_to_half(is_bfloat16, y.x, y.y), gpu_to_half(is_bfloat16, y.z, y.w)};
    }
};

/* An operand that is written: in float32, in 16 bits, or in float32 with its copy for products (struct half_copy). */
struct gpu_result {
    float *to; /* NULL: in 16 bits only, or not at all */
    struct gpu_half_output half_output;
    struct half_copy *copy; /* of [to], for products, on the host; NULL: none */

    __host__ __device__ bool is_wanted() const { return to || half_output.to; }
    bool is_half() const { return !to && half_output.to; }
    bool has_fours() const { return alignment(to) >= sizeof(float4) && alignment(half_output.to) >= sizeof(uint2); }

    __device__ void put(size_t i, float y) const {
        if (to) to[i] = y;
        half_output.put(i, y);
    }
    /* Elements i to i + 3, i a multiple of 4. */
    __device__ void put(size_t i, float4 y) const {
        if (to) *(float4 *)(to + i) = y;
        half_output.put(i, y);
    }
    __device__ void put(size_t i, struct gpu_several<1> y) const { put(i, y.at[0]); }
    __device__ void put(size_t i, struct gpu_several<4> y) const { put(i, float4{y.at[0], y.at[1], y.at[2], y.at[3]}); }
    /* Those from element i on. */
    __device__ struct gpu_result from(size_t i) const {
        return {
            to ? to + i : nullptr, {half_output.to ? half_output.to + i : nullptr, half_output.is_bfloat16}, nullptr};
    }
};
