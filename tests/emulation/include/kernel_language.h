/* Emulated CUDA: the functions and keywords of kernels. A thread of a block is a fiber (../block.cc): it runs until it
 * waits at a barrier or for the other lanes of its warp. Shared memory is thread_local, which inside a function is also
 * static; so the shared memory of a module is contiguous and can be filled with garbage before a block. */
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "vector_types.h"

#define __host__
#define __device__
#define __global__
#define __constant__ static
#define __shared__ thread_local
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

constexpr int warpSize = 32;
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* The source location of a wait; threads that wait together must be at the same one. */
#define EMULATED_LOCATION const char *file = __builtin_FILE(), int line = __builtin_LINE()
void emulated_block_barrier(const char *file, int line);
/* Exchanges [bytes] (up to 64) among the lanes of [mask]. Returns the address of the value of lane 0; that of lane i is
 * 64 i bytes after it, undefined where i is not in the mask. Valid until the next exchange of this lane. */
const unsigned char *emulated_exchange(unsigned mask, const void *own, size_t bytes, const char *file, int line);
unsigned emulated_lane();
void *emulated_shared_bytes(); /* dynamic shared memory of the block */
/* Starts a copy of [bytes] (4, 8 or 16) to shared memory, of zeros if not [is_valid]; it belongs to the group that the
 * next commit ends. A wait is for all groups but the last [groups]. See ../copies.cc. */
void emulated_copy(void *to, const void *from, unsigned bytes, bool is_valid, const char *file, int line);
void emulated_copy_commit();
void emulated_copy_wait(unsigned groups);

static inline void __syncthreads(EMULATED_LOCATION) { emulated_block_barrier(file, line); }

static inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATED_LOCATION) {
    emulated_exchange(mask, nullptr, 0, file, line);
}

template <typename T> T emulated_value(const unsigned char *values, unsigned lane) {
    T value;
    memcpy(&value, values + 64 * lane, sizeof value);
    return value;
}

/* The value of lane [from], own where [is_inside] is false: the lane is outside of the group of [width] lanes. */
template <typename T>
T emulated_shuffle(unsigned mask, T own, unsigned from, bool is_inside, const char *file, int line) {
    const unsigned char *values = emulated_exchange(mask, &own, sizeof own, file, line);
    return is_inside ? emulated_value<T>(values, from) : own;
}

template <typename T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMULATED_LOCATION) {
    unsigned first = emulated_lane() & ~(unsigned)(width - 1);
    return emulated_shuffle(mask, value, first + ((unsigned)lane & (unsigned)(width - 1)), true, file, line);
}

template <typename T> T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, EMULATED_LOCATION) {
    unsigned own = emulated_lane(), from = own ^ (unsigned)lanes;
    return emulated_shuffle(mask, value, from, from / (unsigned)width <= own / (unsigned)width, file, line);
}

template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32, EMULATED_LOCATION) {
    unsigned own = emulated_lane(), from = own + lanes;
    return emulated_shuffle(mask, value, from, from / (unsigned)width == own / (unsigned)width, file, line);
}

template <typename T> T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32, EMULATED_LOCATION) {
    unsigned own = emulated_lane(), within = own & (unsigned)(width - 1);
    return emulated_shuffle(mask, value, own - lanes, within >= lanes, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int is_true, EMULATED_LOCATION) {
    const unsigned char *values = emulated_exchange(mask, &is_true, sizeof is_true, file, line);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && emulated_value<int>(values, lane)) bits |= 1u << lane;
    return bits;
}

static inline int __any_sync(unsigned mask, int is_true, EMULATED_LOCATION) {
    return __ballot_sync(mask, is_true, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int is_true, EMULATED_LOCATION) {
    return __ballot_sync(mask, is_true, file, line) == mask;
}

/* Threads run one at a time. */
template <typename T> T atomicAdd(T *p, std::type_identity_t<T> value) {
    T before = *p;
    *p = before + value;
    return before;
}

static inline void __threadfence() {}
static inline void __threadfence_block() {}
[[noreturn]] static inline void __trap() { abort(); }

using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;

static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
#define __expf(x) expf(x) /* macros, since the C library declares these names */
#define __logf(x) logf(x)
#define __powf(x, y) powf(x, y)
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
static inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
static inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
static inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
static inline int __popc(unsigned x) { return std::popcount(x); }
static inline int __clz(int x) { return std::countl_zero((unsigned)x); }
static inline int __ffs(int x) { return x ? std::countr_zero((unsigned)x) + 1 : 0; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
template <typename T> T __ldg(const T *p) { return *p; }
template <typename T> void __stcs(T *p, T value) { *p = value; }
template <typename T> T __ldcs(const T *p) { return *p; }
