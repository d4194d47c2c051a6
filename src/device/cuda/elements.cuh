/* Element-wise operators, four numbers a thread: all that a thread reads is on its way before it computes, and it
 * writes where it has read, so results may lie on operands. */
#ifndef DEVICE_CUDA_ELEMENTS_CUH
#define DEVICE_CUDA_ELEMENTS_CUH

#include "device/cuda/product.cuh"

/* Numbers [4 i, 4 i + 4) of an operand, or number i; 0 without one. */
__device__ static inline float4 elements_four(const float *from, size_t i) {
    return from ? ((const float4 *)from)[i] : float4{0, 0, 0, 0};
}
__device__ static inline float elements_one(const float *from, size_t i) { return from ? from[i] : 0; }

template <typename F, typename... Operand>
__global__ void __launch_bounds__(GPU_THREADS)
    elements_kernel(size_t fours, size_t count, float *to, struct gpu_also also, F f, Operand... from) {
    size_t i = (size_t)blockIdx.x * GPU_THREADS + threadIdx.x;
    auto each = [&](auto... v) { return float4{f(v.x...), f(v.y...), f(v.z...), f(v.w...)}; };
    if (i < fours) {
        float4 y = each(elements_four(from, i)...);
        ((float4 *)to)[i] = y;
        also.put(4 * i, y);
        return;
    }
    i += 3 * fours; /* the rest, or all of it where an operand is not aligned, one by one */
    if (i >= count) return;
    float y = f(elements_one(from, i)...);
    to[i] = y;
    also.put(i, y);
}

/* to[i] = f(from[i]...) for i in [0, count), a second time in [also]. [from]: operands, NULL for zeros. */
template <typename F, typename... Operand>
void elements(call *c, size_t count, float *to, struct gpu_also also, F f, Operand... from) {
    bool are_aligned = (... && (alignment(from) >= sizeof(float4))) && alignment(to) >= sizeof(float4);
    size_t fours = are_aligned ? count / 4 : 0, threads = count - 3 * fours;
    if (count == 0) return;
    c->launch(elements_kernel<F, Operand...>, (unsigned)((threads + GPU_THREADS - 1) / GPU_THREADS), GPU_THREADS, 0,
              fours, count, to, also, f, from...);
}

#endif
