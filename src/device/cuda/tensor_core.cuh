/* Tensor cores (PTX ISA, mma.sync and ldmatrix, compute capability 8.0): products of 16-bit factors with float32 sums,
 * and other instructions without a CUDA C++ intrinsic. All inline PTX is here. The
 * emulated GPU of the tests has a file of this name instead (tests/emulation/include).
 *
 * Layouts, with g = lane / 4 and t = lane % 4; a register holds two numbers, the first in its lower half:
 *   a (16, 16):  a[0] row g, columns 2t and 2t + 1;  a[1] row g + 8;  a[2] row g, columns 2t + 8, 2t + 9;  a[3] row
 *                g + 8 of these columns
 *   b (16, 8):   b[0] rows 2t and 2t + 1 of column g;  b[1] rows 2t + 8, 2t + 9
 *   sums (16, 8): rows g (0 and 1) and g + 8 (2 and 3), columns 2t and 2t + 1 */
#pragma once

#include <cmath>
#include <cstdint>

/* Unrolled, so that arrays indexed inside live in registers. */
#define UNROLL _Pragma("unroll")

/* Factors in bfloat16, rounded to nearest even. */
struct bfloat16_factors {
    __device__ static uint32_t pair(float first, float second) {
        uint32_t both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
        return both;
    }
    /* sums += a b; all lanes of the warp */
    __device__ static void multiply(float *sum0, float *sum1, float *sum2, float *sum3, const uint32_t a[4],
                                    uint32_t b0, uint32_t b1) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
                     "%9}, {%0, %1, %2, %3};"
                     : "+f"(*sum0), "+f"(*sum1), "+f"(*sum2), "+f"(*sum3)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

/* Factors in float16, rounded to nearest even; numbers that are too large become infinite. */
struct float16_factors {
    __device__ static uint32_t pair(float first, float second) {
        uint32_t both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
        return both;
    }
    __device__ static float widen(uint16_t bits) {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
    __device__ static void multiply(float *sum0, float *sum1, float *sum2, float *sum3, const uint32_t a[4],
                                    uint32_t b0, uint32_t b1) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(*sum0), "+f"(*sum1), "+f"(*sum2), "+f"(*sum3)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

/* Four matrices (8, 8) of 16-bit numbers in shared memory: lane l names row l % 8 of matrix l / 8, at a multiple of 16
 * bytes. r[i]: of matrix i, columns 2t and 2t + 1 of row g. */
__device__ static inline void load_matrices(uint32_t r[4], const uint16_t *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* The same of the matrices' transposes: rows 2t and 2t + 1 of column g. */
__device__ static inline void load_transposed(uint32_t r[4], const uint16_t *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Starts a copy of 16 bytes, of which both addresses are multiples, to shared memory, of zeros with ![is_valid]. It
 * belongs to the group of the thread that the next copy_commit ends. */
__device__ static inline void copy_start(void *to, const void *from, bool is_valid) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to), bytes = is_valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(bytes) : "memory");
}

__device__ static inline void copy_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }

/* Waits until all groups of this thread but the last GROUPS are complete; other threads need a barrier. */
template <unsigned GROUPS> __device__ inline void copy_wait() {
    asm volatile("cp.async.wait_group %0;" : : "n"(GROUPS) : "memory");
}

/* 2^x to about 2^-22; results below 2^-126 are 0 */
__device__ static inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
