/* Attention in float32: tiles in shared memory, each thread four rows of the result. */
#pragma once

#include "device/cuda/attention.cuh"

/* 16 neighbouring threads share four rows: scores of every 16th column, and neighbouring columns of a result. */
template <unsigned SIZE, unsigned ROWS_, unsigned COLUMNS_> struct attention_float {
    using element = float;
    static constexpr unsigned D = SIZE, ROWS = ROWS_, COLUMNS = COLUMNS_, THREADS = ROWS * 4;
    static constexpr unsigned STRIDE = D + 4; /* 16 threads that read 16 rows have no bank conflicts */
    static constexpr unsigned OWN = 4, SEEN = COLUMNS / 16, OUT = D / 16, LANES = 16, WARP_ROWS = 8;
    static constexpr unsigned WEIGHTS = COLUMNS + 4;
    static constexpr unsigned PRIVATE = ROWS * WEIGHTS; /* floats of shared memory */

    float *weights; /* (4, COLUMNS) of this thread's rows, WEIGHTS apart */
    unsigned x, y;

    __device__ explicit attention_float(float *memory)
        : weights(memory + threadIdx.x / 16 * 4 * WEIGHTS), x(threadIdx.x % 16), y(threadIdx.x / 16 * 4) {}

    __device__ unsigned row(unsigned i) const { return y + i; }
    __device__ unsigned column(unsigned j) const { return x + 16 * j; }
    __device__ unsigned out_column(unsigned j) const { return OUT < 4 ? x * OUT + j : j / 4 * 64 + x * 4 + j % 4; }
    __device__ unsigned first_row() const { return threadIdx.x / 32 * WARP_ROWS; }
    __device__ bool is_first_of_row() const { return x == 0; }
    __device__ static float exp2(float x) { return exp2f(x); }
    __device__ static void put(float *to, const float4 &values) { *(float4 *)to = values; }

    __device__ void scores(float (&s)[OWN][SEEN], const float *own, const float *tile) const {
        for (unsigned d = 0; d < D; d += 4) {
            float4 a[OWN];
            UNROLL for (unsigned i = 0; i < OWN; i++) a[i] = *(const float4 *)(own + (y + i) * STRIDE + d);
            UNROLL for (unsigned j = 0; j < SEEN; j++) {
                float4 b = *(const float4 *)(tile + (x + 16 * j) * STRIDE + d);
                UNROLL for (unsigned i = 0; i < OWN; i++) s[i][j] =
                    fmaf(a[i].w, b.w, fmaf(a[i].z, b.z, fmaf(a[i].y, b.y, fmaf(a[i].x, b.x, s[i][j]))));
            }
        }
    }

    /* Weights pass through shared memory to the threads of the same row, which are of the same warp. */
    __device__ void weighted(float (&sums)[OWN][OUT], const float (&s)[OWN][SEEN], const float *tile) const {
        __syncwarp();
        UNROLL for (unsigned i = 0; i < OWN; i++) UNROLL for (unsigned j = 0; j < SEEN; j++)
            weights[i * WEIGHTS + x + 16 * j] = s[i][j];
        __syncwarp();
        for (unsigned n = 0; n < COLUMNS; n += 4) {
            float4 p[OWN];
            UNROLL for (unsigned i = 0; i < OWN; i++) p[i] = *(const float4 *)(weights + i * WEIGHTS + n);
            UNROLL for (unsigned j = 0; j < OUT; j += OUT < 4 ? OUT : 4) {
                const float *at = tile + n * STRIDE + out_column(j);
                add(sums, j, p, at);
            }
        }
    }

  private:
    /* Columns [j] to [j] + 3 (or all) of the sums take in four rows of the tile. */
    __device__ static void add(float (&sums)[OWN][OUT], unsigned j, const float4 (&p)[OWN], const float *at) {
        UNROLL for (unsigned m = 0; m < 4; m++) {
            float v[4] = {};
            if (OUT < 4) {
                float2 two = *(const float2 *)(at + m * STRIDE);
                v[0] = two.x, v[1] = two.y;
            } else {
                float4 four = *(const float4 *)(at + m * STRIDE);
                v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
            }
            UNROLL for (unsigned i = 0; i < OWN; i++) {
                float weight = m == 0 ? p[i].x : m == 1 ? p[i].y : m == 2 ? p[i].z : p[i].w;
                UNROLL for (unsigned l = 0; l < (OUT < 4 ? OUT : 4); l++) sums[i][j + l] =
                    fmaf(weight, v[l], sums[i][j + l]);
            }
        }
    }
};

/* Tiles are sized so that shared memory suffices on every GPU (99 KiB per block). */
template <class V> void attention_float_start(operator_call *c, const struct attention_masked_job *job, size_t heads) {
    if (job->head_size <= 32)
        attention_start<attention_float<32, 64, 64>, V>(c, *job, heads);
    else if (job->head_size <= 64)
        attention_start<attention_float<64, 64, 64>, V>(c, *job, heads);
    else if (job->head_size <= 128)
        attention_start<attention_float<128, 32, 32>, V>(c, *job, heads);
    else
        attention_start<attention_float<256, 16, 16>, V>(c, *job, heads);
}
