/* The gradient of an embedding: positions are sorted by token (a stable counting sort, four bits at a time, in one
 * block), so that equal tokens are adjacent; then tiles of sorted positions are summed, and the sums of a token that
 * is in several tiles are added tile after tile. The work depends on the number of positions only, and the order of
 * each sum follows from the tokens. */
#include "device/cuda/gpu.cuh"

#define SORT_THREADS 512
#define SORT_BITS 4
#define SORT_DIGITS (1 << SORT_BITS)
#define SORT_AHEAD 8 /* positions that a thread loads at once */
#define TILE 32      /* sorted positions */

struct sorted {
    int32_t *tokens, *positions; /* (count) */
    bool is_aligned;             /* both can be read four at a time */
};

/* Exclusive prefix sums of [counts], digit by digit and within a digit thread by thread; all threads. */
__device__ static void prefix(unsigned *counts, unsigned *sums) {
    unsigned *own = counts + threadIdx.x * SORT_DIGITS, total = 0;
    for (unsigned i = 0; i < SORT_DIGITS; i++) total += own[i];
    sums[threadIdx.x] = total;
    __syncthreads();
    for (unsigned way = 1; way < SORT_THREADS; way *= 2) {
        unsigned before = threadIdx.x >= way ? sums[threadIdx.x - way] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    unsigned at = sums[threadIdx.x] - total;
    for (unsigned i = 0; i < SORT_DIGITS; i++) {
        unsigned count = own[i];
        own[i] = at;
        at += count;
    }
    __syncthreads();
}

/* Calls f(token, position) for positions [first, last), in their order; first is a multiple of 4. A thread that reads
 * single numbers uses 4 of the 32 bytes that the memory returns. */
template <typename F> __device__ static void each_position(struct sorted from, size_t first, size_t last, F f) {
    size_t i = first;
    for (; from.is_aligned && i + SORT_AHEAD <= last; i += SORT_AHEAD) {
        int4 tokens[SORT_AHEAD / 4], positions[SORT_AHEAD / 4];
#pragma unroll
        for (int k = 0; k < SORT_AHEAD / 4; k++) {
            int at = (int)i + 4 * k;
            tokens[k] = *(const int4 *)(from.tokens + at);
            positions[k] = from.positions ? *(const int4 *)(from.positions + at) : int4{at, at + 1, at + 2, at + 3};
        }
#pragma unroll
        for (int k = 0; k < SORT_AHEAD / 4; k++) {
            f(tokens[k].x, positions[k].x), f(tokens[k].y, positions[k].y);
            f(tokens[k].z, positions[k].z), f(tokens[k].w, positions[k].w);
        }
    }
    for (; i < last; i++) f(from.tokens[i], from.positions ? from.positions[i] : (int32_t)i);
}

/* One pass over the digit at [shift]: each thread has a run of neighbouring positions, in their order. */
__global__ static void __launch_bounds__(SORT_THREADS)
    sort_kernel(struct sorted from, struct sorted to, size_t count, unsigned shift) {
    __shared__ unsigned counts[SORT_DIGITS * SORT_THREADS], sums[SORT_THREADS];
    size_t run = (count + 4 * SORT_THREADS - 1) / (4 * SORT_THREADS) * 4, first = threadIdx.x * run;
    size_t last = first + run < count ? first + run : count;
    unsigned *own = counts + threadIdx.x;
    for (unsigned d = 0; d < SORT_DIGITS; d++) own[d * SORT_THREADS] = 0;
    each_position({from.tokens, nullptr, from.is_aligned}, first, last, [=](int32_t token, int32_t) {
        own[((unsigned)token >> shift & (SORT_DIGITS - 1)) * SORT_THREADS]++;
    });
    __syncthreads();
    prefix(counts, sums);
    each_position(from, first, last, [=](int32_t token, int32_t position) {
        unsigned at = own[((unsigned)token >> shift & (SORT_DIGITS - 1)) * SORT_THREADS]++;
        to.tokens[at] = token;
        to.positions[at] = position;
    });
}

struct gather {
    struct sorted order;
    const float *dy; /* (count, size) */
    float *dweight;  /* (vocabulary, size) */
    float *heads;    /* (tiles, size): a tile's sums of the last token of the tile before */
    float *tails;    /* (tiles, size): its sums of its last token, if the next tile continues it */
    size_t count, size;
};

/* Whether the sorted positions i - 1 and i have the same token; i may be 0 or the count. */
__device__ static bool continues(const struct gather &g, size_t i) {
    return i > 0 && i < g.count && g.order.tokens[i] == g.order.tokens[i - 1];
}

/* A block for a tile and for columns as many as threads. */
__global__ static void tile_kernel(struct gather g) {
    size_t first = (size_t)blockIdx.x * TILE, last = first + TILE < g.count ? first + TILE : g.count;
    size_t column = (size_t)blockIdx.y * GPU_THREADS + threadIdx.x, start = first;
    if (column >= g.size) return;
    float sum = 0;
    for (size_t i = first; i < last; i++) {
        sum += g.dy[(size_t)g.order.positions[i] * g.size + column];
        if (i + 1 < last && continues(g, i + 1)) continue;
        if (start == first && continues(g, first))
            g.heads[blockIdx.x * g.size + column] = sum;
        else if (continues(g, i + 1))
            g.tails[blockIdx.x * g.size + column] = sum;
        else
            g.dweight[(size_t)g.order.tokens[i] * g.size + column] += sum;
        start = i + 1;
        sum = 0;
    }
}

/* For a tile with a token that starts in it and continues in the next: its sums of all tiles. */
__global__ static void tiles_kernel(struct gather g) {
    size_t next = ((size_t)blockIdx.x + 1) * TILE, column = (size_t)blockIdx.y * GPU_THREADS + threadIdx.x;
    if (column >= g.size || !continues(g, next)) return;
    int32_t token = g.order.tokens[next];
    size_t first = next - TILE;
    if (g.order.tokens[first] == token && continues(g, first)) return; /* the token started in an earlier tile */
    float sum = g.tails[blockIdx.x * g.size + column];
    for (size_t i = next; continues(g, i) && g.order.tokens[i] == token; i += TILE)
        sum += g.heads[i / TILE * g.size + column];
    g.dweight[(size_t)token * g.size + column] += sum;
}

static struct sorted order_of(operator_call *c, const int32_t *tokens, size_t count, size_t vocabulary) {
    struct sorted from = {const_cast<int32_t *>(tokens), nullptr, alignment(tokens) >= sizeof(int4)}, to[2];
    int next = 0;
    for (int i = 0; i < 2; i++) to[i] = {c->scratch<int32_t>(count), c->scratch<int32_t>(count), true};
    for (unsigned shift = 0; shift == 0 || (vocabulary - 1) >> shift > 0; shift += SORT_BITS) {
        c->launch(sort_kernel, 1, SORT_THREADS, 0, from, to[next], count, shift);
        from = to[next];
        next = 1 - next;
    }
    return from;
}

void gpu_embedding_gather(operator_call *c, const int32_t *tokens, const float *dy, float *dweight, size_t count,
                          size_t vocabulary, size_t size) {
    struct gather g = {.dy = dy, .dweight = dweight};
    size_t tiles = (count + TILE - 1) / TILE;
    if (count == 0 || size == 0 || vocabulary == 0) return;
    g.count = count;
    g.size = size;
    g.heads = c->scratch<float>(tiles * size);
    g.tails = c->scratch<float>(tiles * size);
    g.order = order_of(c, tokens, count, vocabulary);
    dim3 grid((unsigned)tiles, (unsigned)((size + GPU_THREADS - 1) / GPU_THREADS));
    c->launch(tile_kernel, grid, GPU_THREADS, 0, g);
    c->launch(tiles_kernel, grid, GPU_THREADS, 0, g);
}

void gpu_embedding_backward(struct device *device, const int32_t *tokens, const float *dy, float *dweight, size_t count,
                            size_t vocabulary, size_t size) {
    operator_call c(device, "embedding_backward");
    const float *from = c.in(dy, count * size);
    float *to = c.inout(dweight, vocabulary * size);
    gpu_embedding_gather(&c, c.in(tokens, count), from, to, count, vocabulary, size);
}
