/* Passes over a (count, channels) matrix whose channels lie side by side, as those of images and features do: a thread
 * keeps to one channel, so that neighbours read neighbouring addresses and nothing is divided.
 *
 * Sums over the rows of each channel are taken in two stages: blocks sum a range of rows each, then a second kernel
 * adds the blocks' results and makes of them what is wanted. Terms are added in float over a few rows and in double
 * beyond, as on the CPU; who adds what follows from count and channels alone. */
#ifndef DEVICE_CUDA_COLUMNS_CUH
#define DEVICE_CUDA_COLUMNS_CUH

#include "device/cuda/gpu.cuh"

#define COLUMN_RUN 32      /* rows that a thread sums in float */
#define COLUMN_GROUP 8     /* rows that it reads without a test between them, so that all are on their way at once */
#define COLUMN_WIDTH 32    /* most channels of a block */
#define COLUMN_BLOCKS 1024 /* of the first stage, about */
#define COLUMN_PASSES 8    /* rows of a thread that does not sum */
#define COLUMN_AHEAD 4     /* of these, rows that it reads before it writes the first; parts that it adds, likewise */

/* A block is (width channels, GPU_THREADS / width rows); blocks are (tiles of channels, parts of the rows). */
struct column_shape {
    unsigned width, lanes, tiles;
};

static inline struct column_shape column_shape_of(size_t channels) {
    struct column_shape s = {1, GPU_THREADS, 0};
    while (s.width < COLUMN_WIDTH && s.width < channels) s.width *= 2, s.lanes /= 2;
    s.tiles = (unsigned)((channels + s.width - 1) / s.width);
    return s;
}

/* Blocks that share out [count] rows, each of which takes at least [least]; 1 for none. */
static inline unsigned column_parts(size_t count, size_t least, size_t most) {
    size_t parts = (count + least - 1) / least;
    return (unsigned)(parts < 1 ? 1 : parts > most ? most : parts);
}

/* The sum over a block's lanes of each of its channels, in every thread of lane 0. */
static __device__ inline double column_reduce(double value) {
    __shared__ double values[GPU_THREADS];
    unsigned own = threadIdx.y * blockDim.x + threadIdx.x;
    values[own] = value;
    __syncthreads();
    for (unsigned half = GPU_THREADS / 2; half >= blockDim.x; half /= 2) {
        if (own < half) values[own] += values[own + half];
        __syncthreads();
    }
    double result = values[threadIdx.x];
    __syncthreads();
    return result;
}

/* parts (gridDim.y, N, channels): sums over a part's rows of what add(row, channel, terms) adds to terms (N). */
template <int N, typename Add>
__global__ void column_first(size_t count, size_t channels, size_t span, Add add, double *parts) {
    size_t channel = (size_t)blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * span;
    size_t last = first + span < count ? first + span : count;
    double sums[N] = {};
    size_t lanes = blockDim.y;
    if (channel < channels)
        for (size_t row = first + threadIdx.y; row < last;) {
            float run[N] = {};
            for (int k = 0; k < COLUMN_RUN && row < last; k += COLUMN_GROUP)
                if (row + (COLUMN_GROUP - 1) * lanes < last) {
#pragma unroll
                    for (int i = 0; i < COLUMN_GROUP; i++) add(row + i * lanes, channel, run);
                    row += COLUMN_GROUP * lanes;
                } else {
                    for (; row < last; row += lanes) add(row, channel, run);
                }
            for (int n = 0; n < N; n++) sums[n] += (double)run[n];
        }
    for (int n = 0; n < N; n++) {
        double sum = column_reduce(sums[n]);
        if (threadIdx.y == 0 && channel < channels) parts[(blockIdx.y * N + n) * channels + channel] = sum;
    }
}

/* finish(channel, sums (N)) for each channel, with the sums over all parts. */
template <int N, typename T, typename Finish>
__global__ void column_second(unsigned parts, size_t channels, const T *partial, Finish finish) {
    size_t channel = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    double sums[N] = {};
    size_t lanes = blockDim.y, part = threadIdx.y;
    auto take = [&](size_t at) {
        for (int n = 0; n < N; n++) sums[n] += (double)partial[(at * N + n) * channels + channel];
    };
    if (channel < channels) {
        for (; part + (COLUMN_AHEAD - 1) * lanes < parts; part += COLUMN_AHEAD * lanes)
#pragma unroll
            for (int k = 0; k < COLUMN_AHEAD; k++) take(part + k * lanes);
        for (; part < parts; part += lanes) take(part);
    }
    for (int n = 0; n < N; n++) sums[n] = column_reduce(sums[n]);
    if (threadIdx.y == 0 && channel < channels) finish(channel, sums);
}

/* The second stage alone, of parts (parts, N, channels). */
template <int N, typename T, typename Finish>
void column_add(call *c, unsigned parts, size_t channels, const T *partial, Finish finish) {
    struct column_shape s = column_shape_of(channels);
    c->launch(column_second<N, T, Finish>, dim3(s.tiles), dim3(s.width, s.lanes), 0, parts, channels, partial, finish);
}

/* Both stages. */
template <int N, typename Add, typename Finish>
void column_sums(call *c, size_t count, size_t channels, Add add, Finish finish) {
    struct column_shape s = column_shape_of(channels);
    if (channels == 0) return;
    size_t most = COLUMN_BLOCKS / s.tiles;
    unsigned parts = column_parts(count, (size_t)s.lanes * COLUMN_RUN, most > 0 ? most : 1);
    size_t whole = (size_t)s.lanes * COLUMN_GROUP, span = ((count + parts - 1) / parts + whole - 1) / whole * whole;
    if (span == 0) span = whole;
    parts = column_parts(count, span, parts);
    double *partial = c->scratch<double>(parts * N * channels);
    c->launch(column_first<N, Add>, dim3(s.tiles, parts), dim3(s.width, s.lanes), 0, count, channels, span, add,
              partial);
    column_add<N>(c, parts, channels, partial, finish);
}

/* Makes f.of(channel) once for a thread, and with each of the thread's elements: at.put(i, at.get(i)). get only reads,
 * put only writes, nothing but what belongs to element i. */
template <typename F> __global__ void column_pass(size_t count, size_t channels, F f) {
    size_t channel = (size_t)blockIdx.x * blockDim.x + threadIdx.x, step = (size_t)gridDim.y * blockDim.y;
    if (channel >= channels) return;
    auto at = f.of(channel);
    size_t row = (size_t)blockIdx.y * blockDim.y + threadIdx.y;
    for (; row + (COLUMN_AHEAD - 1) * step < count; row += COLUMN_AHEAD * step) {
        decltype(at.get(0)) got[COLUMN_AHEAD];
#pragma unroll
        for (int k = 0; k < COLUMN_AHEAD; k++) got[k] = at.get((row + k * step) * channels + channel);
#pragma unroll
        for (int k = 0; k < COLUMN_AHEAD; k++) at.put((row + k * step) * channels + channel, got[k]);
    }
    for (; row < count; row += step) at.put(row * channels + channel, at.get(row * channels + channel));
}

template <typename F> void column_each(call *c, size_t count, size_t channels, F f) {
    struct column_shape s = column_shape_of(channels);
    if (channels == 0 || count == 0) return;
    unsigned parts = column_parts(count, (size_t)s.lanes * COLUMN_PASSES, 65535);
    c->launch(column_pass<F>, dim3(s.tiles, parts), dim3(s.width, s.lanes), 0, count, channels, f);
}

#endif
