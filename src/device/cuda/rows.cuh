/* Kernels that process matrices by rows. A warp processes a row, or a block if the row is long; its threads read four
 * neighbouring numbers at a time. The order of every sum follows from the sizes. Sums over a matrix's rows are in
 * columns.cuh. */
#pragma once

#include "device/cuda/gpu.cuh"

#define ROWS_LONG 1024 /* numbers of a row from which a block processes it */

static inline bool rows_are_aligned(const void *p, size_t size) { return size % 4 == 0 && (uintptr_t)p % 16 == 0; }
static inline bool rows_are_aligned(const struct gpu_numbers &p, size_t size) { return size % 4 == 0 && p.has_fours(); }

/* Numbers [j, j + 4) of a row, [fill] past its end. */
__device__ static inline float4 row_load(const float *row, size_t j, size_t size, bool is_aligned, float fill) {
    if (is_aligned) return *(const float4 *)(row + j);
    float4 v = {row[j], fill, fill, fill};
    if (j + 1 < size) v.y = row[j + 1];
    if (j + 2 < size) v.z = row[j + 2];
    if (j + 3 < size) v.w = row[j + 3];
    return v;
}

__device__ static inline float4 row_load(const struct gpu_numbers &row, size_t j, size_t size, bool is_aligned,
                                         float fill) {
    if (is_aligned) return row.four(j);
    float4 v = {row.one(j), fill, fill, fill};
    if (j + 1 < size) v.y = row.one(j + 1);
    if (j + 2 < size) v.z = row.one(j + 2);
    if (j + 3 < size) v.w = row.one(j + 3);
    return v;
}

__device__ static inline void row_store(float *row, size_t j, size_t size, bool is_aligned, float4 v) {
    if (is_aligned) {
        *(float4 *)(row + j) = v;
        return;
    }
    row[j] = v.x;
    if (j + 1 < size) row[j + 1] = v.y;
    if (j + 2 < size) row[j + 2] = v.z;
    if (j + 3 < size) row[j + 3] = v.w;
}

/* The same in an operand whose rows start at [start]; 16 bits are written in fours. */
__device__ static inline void row_put(const struct gpu_result &to, size_t start, size_t j, size_t size, bool is_aligned,
                                      float4 v) {
    if (to.to) row_store(to.to + start, j, size, is_aligned, v);
    to.half_output.put(start + j, v);
}

/* The THREADS of a row (32, or the whole block: at most 1024) reduce their values by [op]; all get the same result. T
 * has up to 64 bytes. */
template <unsigned THREADS, typename T, typename Op> __device__ T row_join(T value, Op op) {
    for (int way = 16; way > 0; way /= 2) value = op(value, op.from_lane(value, way));
    if (THREADS == 32) return value;
    __shared__ T parts[THREADS / 32];
    __syncthreads(); /* the values of the previous call have been read */
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[threadIdx.x % (THREADS / 32)];
    for (int way = THREADS / 64; way > 0; way /= 2) value = op(value, op.from_lane(value, way));
    return value;
}

struct row_add {
    __device__ float operator()(float a, float b) const { return a + b; }
    __device__ float from_lane(float a, int way) const { return __shfl_xor_sync(0xffffffffu, a, way); }
    __device__ double operator()(double a, double b) const { return a + b; }
    __device__ double from_lane(double a, int way) const { return __shfl_xor_sync(0xffffffffu, a, way); }
};

struct row_larger {
    __device__ float operator()(float a, float b) const { return b > a ? b : a; }
    __device__ float from_lane(float a, int way) const { return __shfl_xor_sync(0xffffffffu, a, way); }
};

template <unsigned THREADS> __device__ float row_sum(float x) { return row_join<THREADS>(x, row_add()); }

/* exp(x) for x <= 0; [IS_FAST]: to about 2^-22, for x that was 16 bits. */
template <bool IS_FAST> __device__ static inline float row_exp(float x) {
    return IS_FAST ? exp2_fast(x * 1.44269504f) : math_exp(x);
}

/* The largest number so far, and the sum of exp(x - largest). While all numbers were -inf the sum is 0, because
 * -inf - -inf would be NaN; a NaN makes the sum NaN. */
struct row_softmax {
    float largest, sum;

    template <bool IS_FAST = false> __device__ void take(float4 v) {
        float larger = fmaxf(largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
        float base = larger == -INFINITY ? 0 : larger;
        sum = rescaled(larger) + ((row_exp<IS_FAST>(v.x - base) + row_exp<IS_FAST>(v.y - base)) +
                                  (row_exp<IS_FAST>(v.z - base) + row_exp<IS_FAST>(v.w - base)));
        largest = larger;
    }
    /* The sum for a largest number at least as large. */
    __device__ float rescaled(float larger) const { return largest == larger ? sum : sum * math_exp(largest - larger); }
};

struct row_softmax_join {
    __device__ struct row_softmax operator()(struct row_softmax a, struct row_softmax b) const {
        float larger = fmaxf(a.largest, b.largest);
        return {larger, a.rescaled(larger) + b.rescaled(larger)};
    }
    __device__ struct row_softmax from_lane(struct row_softmax a, int way) const {
        return {__shfl_xor_sync(0xffffffffu, a.largest, way), __shfl_xor_sync(0xffffffffu, a.sum, way)};
    }
};

/* f(row, first) for each row, by its threads, of which this is the [first] / 4-th. */
template <unsigned THREADS, typename F>
__global__ void __launch_bounds__(THREADS > GPU_THREADS ? THREADS : GPU_THREADS) rows_kernel(size_t rows, F f) {
    size_t row = THREADS > 32 ? blockIdx.x : (size_t)blockIdx.x * (GPU_THREADS / 32) + threadIdx.x / 32;
    if (row < rows) f.template run<THREADS>(row, threadIdx.x % THREADS * 4);
}

/* [f] has run<THREADS>(row, first): numbers [first, first + 4), [first + 4 THREADS, ...) are this thread's. */
template <typename F> void rows_start(operator_call *c, size_t rows, size_t size, F f) {
    size_t warps = GPU_THREADS / 32;
    if (rows == 0) return;
    if (size <= ROWS_LONG)
        c->launch(rows_kernel<32, F>, (unsigned)((rows + warps - 1) / warps), GPU_THREADS, 0, rows, f);
    else
        c->launch(rows_kernel<GPU_THREADS, F>, (unsigned)rows, GPU_THREADS, 0, rows, f);
}

/* The largest value of a row, at the first of its classes. */
struct best_class {
    float value;
    unsigned at;
};

struct best_class_join {
    __device__ struct best_class operator()(struct best_class a, struct best_class b) const {
        return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
    }
    __device__ struct best_class from_lane(struct best_class a, int way) const {
        return {__shfl_xor_sync(0xffffffffu, a.value, way), __shfl_xor_sync(0xffffffffu, a.at, way)};
    }
};
