/* Passes over a (count, channels) matrix whose channels are contiguous, such as images and features. A thread handles
 * one channel, or four adjacent ones, so that neighbouring threads read neighbouring addresses, a warp reads whole
 * cache lines, and no index needs a division.
 *
 * Sums over the rows of each channel have two stages: blocks sum a range of rows each, then a second kernel adds the
 * blocks' results and finishes them. Terms are added in float over a few rows and in double beyond, as on the CPU;
 * the order follows from count and channels alone. */
#pragma once

#include "device/cuda/gpu.cuh"

#define COLUMN_RUN 32     /* rows that a thread sums in float */
#define COLUMN_GROUP 8    /* rows read without a branch between them, so that all loads are in flight together */
#define COLUMN_RESIDENT 3 /* minimum blocks of the first stage per multiprocessor */
#define COLUMN_WIDTH 32   /* maximum channels of a block, or groups of four */
#define COLUMN_NARROW 8   /* the same in the second stage, whose blocks have few channels and many parts */
#define COLUMN_BLOCKS 384 /* approximate number in the first stage: 3 for a multiprocessor of an H100 */
#define COLUMN_PASSES 8   /* rows of a thread that does not sum */
#define COLUMN_AHEAD 4    /* of these, rows that it reads before it writes the first; parts that it adds, likewise */

/* A block is (width channels, GPU_THREADS / width rows); blocks are (tiles of channels, parts of the rows). */
struct column_shape {
    unsigned width, lanes, tiles;
};

static inline struct column_shape column_shape_of(size_t channels, unsigned width = COLUMN_WIDTH) {
    struct column_shape s = {1, GPU_THREADS, 0};
    while (s.width < width && s.width < channels) s.width *= 2, s.lanes /= 2;
    s.tiles = (unsigned)((channels + s.width - 1) / s.width);
    return s;
}

/* Blocks for [count] rows, each of at least [smallest] rows; 1 for none. */
static inline unsigned column_parts(size_t count, size_t smallest, size_t limit) {
    size_t parts = (count + smallest - 1) / smallest;
    return (unsigned)(parts < 1 ? 1 : parts > limit ? limit : parts);
}

/* Replaces each of M values by its sum over the block's lanes, in the threads of lane 0; once per kernel. */
template <int M> static __device__ inline void column_reduce(double *values) {
    __shared__ double shared[M][GPU_THREADS];
    unsigned own = threadIdx.y * blockDim.x + threadIdx.x;
    for (int m = 0; m < M; m++) shared[m][own] = values[m];
    __syncthreads();
    for (unsigned half = GPU_THREADS / 2; half >= blockDim.x; half /= 2) {
        for (int m = 0; own < half && m < M; m++) shared[m][own] += shared[m][own + half];
        __syncthreads();
    }
    for (int m = 0; m < M; m++) values[m] = shared[m][threadIdx.x];
}

/* Rows that a thread of V channels sums in float, and how many of them are loaded at once. */
template <int V> constexpr int column_run = V == 1 ? COLUMN_RUN : COLUMN_RUN / 2;
template <int V> constexpr int column_group = V == 1 ? COLUMN_GROUP : COLUMN_GROUP / 2;

/* parts (gridDim.y, N, channels): sums over a part's rows. f.of<V>(channel) is called once per thread; with each row:
 * at.add(at.get(row, i), terms (N, V)), i being the first of its V elements. */
template <int N, int V, typename F>
__global__ void __launch_bounds__(GPU_THREADS, COLUMN_RESIDENT)
    column_first(size_t count, size_t channels, size_t span, F f, double *parts) {
    size_t channel = V * ((size_t)blockIdx.x * blockDim.x + threadIdx.x), first = blockIdx.y * span;
    size_t last = first + span < count ? first + span : count;
    double sums[N * V] = {};
    size_t lanes = blockDim.y;
    constexpr int group = column_group<V>;
    if (channel < channels) {
        auto at = f.template of<V>(channel);
        for (size_t row = first + threadIdx.y; row < last;) {
            float run[N * V] = {};
            for (int k = 0; k < column_run<V> && row < last; k += group)
                if (row + (group - 1) * lanes < last) {
                    decltype(at.get(0, 0)) got[group];
#pragma unroll
                    for (int i = 0; i < group; i++)
                        got[i] = at.get(row + i * lanes, (row + i * lanes) * channels + channel);
#pragma unroll
                    for (int i = 0; i < group; i++) at.add(got[i], run);
                    row += group * lanes;
                } else {
                    for (; row < last; row += lanes) at.add(at.get(row, row * channels + channel), run);
                }
            for (int n = 0; n < N * V; n++) sums[n] += (double)run[n];
        }
    }
    column_reduce<N * V>(sums);
    if (threadIdx.y > 0 || channel >= channels) return;
    for (int n = 0; n < N * V; n++) parts[(blockIdx.y * N + n / V) * channels + channel + n % V] = sums[n];
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
    column_reduce<N>(sums);
    if (threadIdx.y == 0 && channel < channels) finish(channel, sums);
}

/* The second stage alone, of parts (parts, N, channels). */
template <int N, typename T, typename Finish>
void column_add(operator_call *c, unsigned parts, size_t channels, const T *partial, Finish finish) {
    struct column_shape s = column_shape_of(channels, COLUMN_NARROW);
    c->launch(column_second<N, T, Finish>, dim3(s.tiles), dim3(s.width, s.lanes), 0, parts, channels, partial, finish);
}

template <int N, int V, typename F, typename Finish>
void column_both(operator_call *c, size_t count, size_t channels, F f, Finish finish) {
    struct column_shape s = column_shape_of(channels / V);
    if (channels == 0) return;
    size_t limit = COLUMN_BLOCKS / s.tiles;
    unsigned parts = column_parts(count, (size_t)s.lanes * column_run<V>, limit > 0 ? limit : 1);
    size_t whole = (size_t)s.lanes * column_group<V>, span = ((count + parts - 1) / parts + whole - 1) / whole * whole;
    if (span == 0) span = whole;
    parts = column_parts(count, span, parts);
    double *partial = c->scratch<double>(parts * N * channels);
    c->launch(column_first<N, V, F>, dim3(s.tiles, parts), dim3(s.width, s.lanes), 0, count, channels, span, f,
              partial);
    column_add<N>(c, parts, channels, partial, finish);
}

/* Both stages, with f.of<V>() as column_first says; [has_fours]: channels are a multiple of 4, and V may be 4. */
template <int N, typename F, typename Finish>
void column_sums_of(operator_call *c, size_t count, size_t channels, bool has_fours, F f, Finish finish) {
    if (has_fours)
        column_both<N, 4>(c, count, channels, f, finish);
    else
        column_both<N, 1>(c, count, channels, f, finish);
}

/* For column_first: the terms of the channel of a thread. */
template <typename Add> struct column_terms {
    Add add_row;
    struct of_channel {
        Add add_row;
        size_t channel;
        __device__ size_t get(size_t row, size_t) const { return row; }
        __device__ void add(size_t row, float *terms) const { add_row(row, channel, terms); }
    };
    template <int V> __device__ of_channel of(size_t channel) const { return {add_row, channel}; }
};

/* Both stages of what add(row, channel, terms (N)) adds to terms. */
template <int N, typename Add, typename Finish>
void column_sums(operator_call *c, size_t count, size_t channels, Add add, Finish finish) {
    column_both<N, 1>(c, count, channels, column_terms<Add>{add}, finish);
}

/* Whether V may be 4 for (..., channels) operands. */
template <typename... Operand> static inline bool column_has_fours(size_t channels, const Operand &...operands) {
    return channels % 4 == 0 && (... && operands.has_fours());
}

/* The sums of [x] (count, channels) itself are added to [sums] (channels). */
struct column_values {
    struct gpu_numbers x;
    template <int V> struct of_channels {
        struct gpu_numbers x;
        __device__ gpu_fetched<V> get(size_t, size_t i) const { return x.fetch_some<V>(i); }
        __device__ void add(struct gpu_fetched<V> got, float *terms) const {
            struct gpu_several<V> v = x.some<V>(got);
            for (int k = 0; k < V; k++) terms[k] += v.at[k];
        }
    };
    template <int V> __device__ of_channels<V> of(size_t) const { return {x}; }
};

static inline void column_add_to(operator_call *c, struct gpu_numbers x, float *sums, size_t count, size_t channels) {
    column_sums_of<1>(c, count, channels, column_has_fours(channels, x), column_values{x},
                      [=] __device__(size_t channel, const double *total) { sums[channel] += (float)*total; });
}

/* Calls f.of<V>(channel) once per thread, and at.put(i, at.get(i)) for its V elements of each row. get only reads and
 * put only writes elements i to i + V - 1. */
template <int V, typename F>
__global__ void __launch_bounds__(GPU_THREADS) column_pass(size_t count, size_t channels, F f) {
    size_t channel = V * ((size_t)blockIdx.x * blockDim.x + threadIdx.x), step = (size_t)gridDim.y * blockDim.y;
    if (channel >= channels) return;
    auto at = f.template of<V>(channel);
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

template <int V, typename F> void column_start(operator_call *c, size_t count, size_t channels, F f) {
    struct column_shape s = column_shape_of(channels / V);
    if (channels == 0 || count == 0) return;
    unsigned parts = column_parts(count, (size_t)s.lanes * COLUMN_PASSES, 65535);
    c->launch(column_pass<V, F>, dim3(s.tiles, parts), dim3(s.width, s.lanes), 0, count, channels, f);
}

template <typename F> void column_each(operator_call *c, size_t count, size_t channels, bool has_fours, F f) {
    if (has_fours)
        column_start<4>(c, count, channels, f);
    else
        column_start<1>(c, count, channels, f);
}
