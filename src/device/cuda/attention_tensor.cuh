/* Attention on tensor cores: 16-bit factors, float32 sums, 16 rows to a warp. */
#ifndef DEVICE_CUDA_ATTENTION_TENSOR_CUH
#define DEVICE_CUDA_ATTENTION_TENSOR_CUH

#include "device/cuda/attention.cuh"

/* Rows and columns of a thread are those of the sums of a product (tensor_core.cuh): scores are the first factor of the
 * next product as they are. */
template <class F, unsigned SIZE, unsigned COLUMNS_> struct attention_tensor {
    using element = uint16_t;
    static constexpr unsigned D = SIZE, ROWS = 128, COLUMNS = COLUMNS_, THREADS = 256;
    static constexpr unsigned STRIDE = D + 8; /* eight rows of a matrix meet no bank twice */
    static constexpr unsigned OWN = 2, SEEN = COLUMNS / 4, OUT = D / 4, LANES = 4, WARP_ROWS = 16;
    static constexpr unsigned PRIVATE = 0;

    unsigned lane, first;

    __device__ explicit attention_tensor(void *) : lane(threadIdx.x % 32), first(threadIdx.x / 32 * WARP_ROWS) {}

    __device__ unsigned row(unsigned i) const { return first + lane / 4 + 8 * i; }
    __device__ unsigned column(unsigned j) const { return j / 2 * 8 + lane % 4 * 2 + j % 2; }
    __device__ unsigned out_column(unsigned j) const { return column(j); }
    __device__ unsigned first_row() const { return first; }
    __device__ bool is_first_of_row() const { return lane % 4 == 0; }
    __device__ static float exp2(float x) { return exp2_fast(x); }
    __device__ static void put(uint16_t *to, const float4 &values) {
        *(uint2 *)to = {F::pair(values.x, values.y), F::pair(values.z, values.w)};
    }

    /* (16, 16) of own rows and columns from d; columns of the second factor are rows of the tile */
    __device__ void scores(float (&s)[OWN][SEEN], const uint16_t *own, const uint16_t *tile) const {
        const uint16_t *a_row = own + (first + lane % 16) * STRIDE + lane / 16 * 8;
        const uint16_t *b_row = tile + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;
        UNROLL for (unsigned d = 0; d < D; d += 16) {
            uint32_t a[4], b[4];
            load_matrices(a, a_row + d);
            UNROLL for (unsigned n = 0; n < COLUMNS; n += 16) {
                load_matrices(b, b_row + n * STRIDE + d);
                multiply(s, n / 4, a, b);
            }
        }
    }

    /* The same with the scores as first factor; rows of the second are rows of the tile. */
    __device__ void weighted(float (&sums)[OWN][OUT], const float (&s)[OWN][SEEN], const uint16_t *tile) const {
        const uint16_t *row = tile + lane % 16 * STRIDE + lane / 16 * 8;
        UNROLL for (unsigned n = 0; n < COLUMNS; n += 16) {
            unsigned j = n / 4;
            uint32_t a[4] = {F::pair(s[0][j], s[0][j + 1]), F::pair(s[1][j], s[1][j + 1]),
                             F::pair(s[0][j + 2], s[0][j + 3]), F::pair(s[1][j + 2], s[1][j + 3])};
            UNROLL for (unsigned d = 0; d < D; d += 16) {
                uint32_t b[4];
                load_transposed(b, row + n * STRIDE + d);
                multiply(sums, d / 4, a, b);
            }
        }
    }

  private:
    /* 16 columns of the sums, a thread's from [j] */
    template <unsigned N>
    __device__ static void multiply(float (&sums)[OWN][N], unsigned j, const uint32_t (&a)[4], const uint32_t (&b)[4]) {
        F::multiply(&sums[0][j], &sums[0][j + 1], &sums[1][j], &sums[1][j + 1], a, b[0], b[1]);
        F::multiply(&sums[0][j + 2], &sums[0][j + 3], &sums[1][j + 2], &sums[1][j + 3], a, b[2], b[3]);
    }
};

/* Head sizes up to 128. */
template <class F> void attention_tensor_start(call *c, const struct attention_job &job, size_t heads) {
    if (job.head_size <= 32)
        attention_start<attention_tensor<F, 32, 64>>(c, job, heads);
    else if (job.head_size <= 64)
        attention_start<attention_tensor<F, 64, 64>>(c, job, heads);
    else
        attention_start<attention_tensor<F, 128, 32>>(c, job, heads);
}

#endif
