/* Element-wise operators, four numbers at a time, twice per thread: a thread loads all its operands before it
 * computes, and writes only where it has read, so results may alias operands. */
#pragma once

#include "device/cuda/product.cuh"

/* Numbers [4 i, 4 i + 4) of an operand, or number i; 0 without one. All operands are loaded before the first is
 * converted. */
__device__ static inline float4 elements_fetch(const float *from, size_t i) {
    return from ? ((const float4 *)from)[i] : float4{0, 0, 0, 0};
}
__device__ static inline uint4 elements_fetch(const struct gpu_numbers &from, size_t i) {
    return from.at ? from.fetch(4 * i) : uint4{0, 0, 0, 0};
}
__device__ static inline float4 elements_four(const float *, float4 fetched) { return fetched; }
__device__ static inline float4 elements_four(const struct gpu_numbers &from, uint4 fetched) {
    return from.widen(fetched);
}
__device__ static inline float elements_one(const float *from, size_t i) { return from ? from[i] : 0; }
__device__ static inline float elements_one(const struct gpu_numbers &from, size_t i) {
    return from.at ? from.one(i) : 0;
}
static inline bool elements_has_fours(const float *from) { return alignment(from) >= sizeof(float4); }
static inline bool elements_has_fours(const struct gpu_numbers &from) { return from.has_fours(); }

#define ELEMENTS_AHEAD 2 /* groups of four per thread: with 16 bits, one does not saturate memory */

template <typename F, typename... Operand>
__global__ void __launch_bounds__(GPU_THREADS)
    elements_kernel(size_t fours, size_t count, struct gpu_result to, F f, Operand... from) {
    size_t i = (size_t)blockIdx.x * ELEMENTS_AHEAD * GPU_THREADS + threadIdx.x, other = i + GPU_THREADS;
    auto each = [&](auto... v) { return float4{f(v.x...), f(v.y...), f(v.z...), f(v.w...)}; };
    auto of = [&](auto... fetched) { return each(elements_four(from, fetched)...); };
    auto both = [&](auto... fetched) {
        [&](auto... next) {
            to.put(4 * i, of(fetched...));
            to.put(4 * other, of(next...));
        }(elements_fetch(from, other)...);
    };
    if (other < fours)
        both(elements_fetch(from, i)...);
    else
        for (size_t k = 0; k < ELEMENTS_AHEAD; k++, i += GPU_THREADS) {
            if (i < fours) {
                to.put(4 * i, of(elements_fetch(from, i)...));
            } else { /* the rest, or all of it where an operand is not aligned, one by one */
                size_t one = i + 3 * fours;
                if (one < count) to.put(one, f(elements_one(from, one)...));
            }
        }
}

/* to[i] = f(from[i]...) for i in [0, count). [from]: operands, floats or struct gpu_numbers; NULL: zeros. */
template <typename F, typename... Operand>
void elements(operator_call *c, size_t count, struct gpu_result to, F f, Operand... from) {
    bool are_aligned = (... && elements_has_fours(from)) && to.has_fours();
    size_t fours = are_aligned ? count / 4 : 0, threads = count - 3 * fours, of_block = ELEMENTS_AHEAD * GPU_THREADS;
    if (count == 0) return;
    c->launch(elements_kernel<F, Operand...>, (unsigned)((threads + of_block - 1) / of_block), GPU_THREADS, 0, fours,
              count, to, f, from...);
}

/* The same in float32, a second time in [also]. */
template <typename F, typename... Operand>
void elements(operator_call *c, size_t count, float *to, struct gpu_half_output half_output, F f, Operand... from) {
    elements(c, count, gpu_result{to, half_output}, f, from...);
}
