/* Flash attention (Dao, FlashAttention-2) in three kernels: forward, the gradients of keys and values, and the gradient
 * of queries. A block owns some rows of one matrix (queries or keys) and loops over tiles of the other; scores are in
 * registers. This file has the declarations for float32 and tensor cores (attention_tensor.cuh), and the kernels for
 * float32 (attention_float.cuh). An engine E defines:
 *   ROWS, COLUMNS     rows that a block owns, rows of a tile, so columns of the scores; ROWS is a multiple of COLUMNS
 *   D                 the head size, padded with zeros;  STRIDE: elements between rows in shared memory
 *   OWN, SEEN, OUT    rows, columns of scores and columns of a result that a thread holds
 *   LANES             neighbouring threads that share a row
 *   scores            s = own tile^T;  weighted: sums += s tile
 * A variant V of the kernels defines what they support besides a causal mask (struct attention_variant).
 * While a tile is processed, the next one is loaded from memory into registers.
 *
 * Backward computes the scores twice, once per kernel: 7 products of tiles instead of 5, so that sums have a fixed
 * order without atomics or a buffer for partial sums of dq. */
#pragma once

#include <cmath>
#include <type_traits>

#include "device/cuda/draws.cuh"
#include "device/cuda/tensor_core.cuh"

#define ATTENTION_LOG2_E 1.44269504f

/* Arguments of the kernels of one operator; matrices as in device/sequence.h. */
struct attention_job {
    unsigned tokens, heads, head_size;
    unsigned blocks; /* for one head */
    bool is_causal;
    bool is_aligned; /* four numbers can be read at once */
    float scale;
    const float *qkv, *dy;
    const float *totals;     /* (rows, heads, tokens): sums of y dy */
    const float2 *softmaxes; /* (rows, heads, tokens): the largest score, not scaled; minus the denominator's log2 */
    float2 *out_softmaxes;
    float *y, *dqkv;
    /* of the kernels with 16-bit factors */
    unsigned padded;                    /* the head size, as a multiple of 8 */
    const uint16_t *half_qkv, *half_dy; /* the same with heads of [padded] numbers, zeros at the end */
    const float4 *statistics;           /* (rows, heads, tokens): softmaxes, totals, nothing */
    uint16_t *half_output;              /* y or dqkv in 16 bits; y and dqkv may then be NULL; NULL: none */
};

/* Arguments of masked kernels, too. They are apart because nvcc 13 needs more registers for kernels with long
 * arguments. */
static_assert(sizeof(struct attention_job) < 128, "");
struct attention_masked_job : attention_job {
    unsigned keys;                      /* of a row */
    unsigned q_parts, kv_parts, k_part; /* rows of queries, and of keys and values, have these parts of heads *
                                           head_size numbers; part of the keys, before that of the values */
    const int32_t *lengths;             /* (rows): keys that count; NULL: all */
    const float *kv;                    /* as qkv; the same array, or another */
    float *dkv;
    const uint16_t *half_kv;
    struct mask_draws draws; /* of dropout */
    bool is_masked, drops;   /* which variant is needed */
};

/* What kernels support: MASKED: other arrays and numbers of keys than of queries, and rows of different lengths; DROPS:
 * dropout of the softmaxes, too. Else queries, keys and values are the three parts of one matrix. */
template <bool MASKED, bool DROPS_> struct attention_variant {
    static constexpr bool IS_MASKED = MASKED, DROPS = DROPS_;
    using job = std::conditional_t<MASKED, attention_masked_job, attention_job>;

    __device__ static unsigned keys(const job &j) {
        if constexpr (MASKED)
            return j.keys;
        else
            return j.tokens;
    }
    /* Keys of a row that count. */
    __device__ static unsigned visible(const job &j, size_t row) {
        if constexpr (MASKED)
            return j.lengths ? (unsigned)j.lengths[row] : j.keys;
        else
            return j.tokens;
    }
    __device__ static size_t q_parts(const job &j) {
        if constexpr (MASKED)
            return j.q_parts;
        else
            return 3;
    }
    __device__ static size_t kv_parts(const job &j) {
        if constexpr (MASKED)
            return j.kv_parts;
        else
            return 3;
    }
    __device__ static const float *kv(const job &j) {
        if constexpr (MASKED)
            return j.kv;
        else
            return j.qkv;
    }
    __device__ static float *dkv(const job &j) {
        if constexpr (MASKED)
            return j.dkv;
        else
            return j.dqkv;
    }
};
using attention_plain = attention_variant<false, false>;
using attention_masked = attention_variant<true, false>;
using attention_dropped = attention_variant<true, true>;

/* The masks of dropout of one head; of variants without it they are 1. */
template <class V> struct attention_drops {
    const typename V::job &job;
    size_t row, head; /* head: of the row */
    uint64_t drawn;   /* the number of the four words */
    uint32_t word[4];

    __device__ attention_drops(const typename V::job &job, size_t row, size_t head)
        : job(job), row(row), head(head), drawn(UINT64_MAX) {}

    /* 0, or 1 / (1 - p). Neighbouring keys of a query share random words. */
    __device__ float factor(unsigned query, unsigned key) {
        if constexpr (!V::DROPS) return 1;
        if constexpr (V::DROPS) {
            uint64_t at = ((uint64_t)head * job.tokens + query) * job.keys + key;
            if (at / 4 != drawn) job.draws.of(row, drawn = at / 4, word);
            uint32_t low = at % 2 ? word[1] : word[0], high = at % 2 ? word[3] : word[2];
            return job.draws.keeps(at % 4 < 2 ? low : high) ? job.draws.scale : 0;
        }
    }

    /* Multiplies scores of the own queries from [own] on, and keys from [key] on, by their masks. */
    template <class E> __device__ void apply(const E &e, unsigned own, unsigned key, float (&s)[E::OWN][E::SEEN]) {
        if constexpr (V::DROPS)
            UNROLL for (unsigned i = 0; i < E::OWN; i++) UNROLL for (unsigned j = 0; j < E::SEEN; j++) s[i][j] *=
                factor(own + e.row(i), key + e.column(j));
    }
};

/* A matrix (rows, head_size) of one head. */
struct attention_rows {
    const float *at;
    size_t stride;
};

/* The head that a block works on. */
struct attention_head {
    struct attention_rows q, k, v, dy;
    size_t first;      /* of its numbers in y: token 0 */
    size_t counts;     /* of its numbers in softmaxes */
    unsigned own;      /* first row of the block */
    unsigned visible;  /* of masked variants: keys that count */
    size_t row, index; /* of the head */

    /* Keys that count. */
    template <class V> __device__ unsigned keys(const attention_job &job) const {
        return V::IS_MASKED ? visible : job.tokens;
    }
};

/* [is_last_first]: blocks of later rows, which attend to more keys, start earlier. */
template <class E, class V>
__device__ struct attention_head attention_head_of(const typename V::job &job, bool is_last_first) {
    size_t c = (size_t)job.heads * job.head_size, head = blockIdx.x / job.blocks;
    size_t row = head / job.heads, at = head % job.heads * job.head_size, tokens = job.tokens;
    unsigned piece = blockIdx.x % job.blocks;
    struct attention_head h;
    h.q = {job.qkv + row * tokens * V::q_parts(job) * c + at, V::q_parts(job) * c};
    h.k = {h.q.at + c, h.q.stride};
    if constexpr (V::IS_MASKED) {
        h.k = {job.kv + (row * job.keys * job.kv_parts + job.k_part) * c + at, job.kv_parts * c};
        h.visible = V::visible(job, row);
    }
    h.v = {h.k.at + c, h.k.stride};
    h.first = row * tokens * c + at;
    h.dy = {job.dy + h.first, c};
    h.counts = head * tokens;
    h.own = (is_last_first ? job.blocks - 1 - piece : piece) * E::ROWS;
    h.row = row;
    h.index = head % job.heads;
    return h;
}

/* A tile in registers before it is written to shared memory; each thread has groups of four neighbours of a row. */
template <class E> struct attention_registers {
    static constexpr unsigned ROW = E::D / 4, STEP = E::THREADS / ROW, COUNT = E::COLUMNS / STEP;
    static_assert(E::THREADS % ROW == 0 && E::COLUMNS % STEP == 0, "a tile is a whole number of each thread's parts");
    float4 values[COUNT];
};

/* Four numbers of row [row], of [rows], from column [column], zeros outside of the matrix. */
__device__ static inline float4 attention_read(const struct attention_job &job, const struct attention_rows &from,
                                               unsigned rows, unsigned row, unsigned column) {
    float4 v = {0, 0, 0, 0};
    if (row >= rows || column >= job.head_size) return v;
    const float *at = from.at + row * from.stride + column;
    if (job.is_aligned) return *(const float4 *)at;
    v.x = at[0];
    if (column + 1 < job.head_size) v.y = at[1];
    if (column + 2 < job.head_size) v.z = at[2];
    if (column + 3 < job.head_size) v.w = at[3];
    return v;
}

template <class E>
__device__ void attention_fetch(attention_registers<E> &held, const struct attention_job &job,
                                const struct attention_rows &from, unsigned rows, unsigned first) {
    unsigned row = first + threadIdx.x / held.ROW, column = threadIdx.x % held.ROW * 4;
    UNROLL for (unsigned i = 0; i < held.COUNT; i++) held.values[i] =
        attention_read(job, from, rows, row + i * held.STEP, column);
}

template <class E> __device__ void attention_put(typename E::element *tile, const attention_registers<E> &held) {
    unsigned row = threadIdx.x / held.ROW, column = threadIdx.x % held.ROW * 4;
    UNROLL for (unsigned i = 0; i < held.COUNT; i++)
        E::put(tile + (row + i * held.STEP) * E::STRIDE + column, held.values[i]);
}

/* The rows that the block owns. */
template <class E>
__device__ void attention_own(typename E::element *own, const struct attention_job &job,
                              const struct attention_rows &from, unsigned rows, unsigned first) {
    for (unsigned i = 0; i < E::ROWS; i += E::COLUMNS) {
        attention_registers<E> held;
        attention_fetch(held, job, from, rows, first + i);
        attention_put<E>(own + i * E::STRIDE, held);
    }
}

/* The own rows of the result, of [count] rows, times [factor]. */
template <class E>
__device__ void attention_write(const E &e, const struct attention_job &job, float *to, size_t stride, unsigned count,
                                unsigned first, const float (&sums)[E::OWN][E::OUT], const float (&factor)[E::OWN]) {
    UNROLL for (unsigned i = 0; i < E::OWN; i++) {
        unsigned row = first + e.row(i);
        if (row >= count) continue;
        UNROLL for (unsigned j = 0; j < E::OUT; j += 2) {
            unsigned column = e.out_column(j);
            float *at = to + row * stride + column;
            float2 both = {sums[i][j] * factor[i], sums[i][j + 1] * factor[i]};
            if (column >= job.head_size) continue;
            if (job.is_aligned) {
                *(float2 *)at = both;
            } else {
                at[0] = both.x;
                if (column + 1 < job.head_size) at[1] = both.y;
            }
        }
    }
}

/* Of the lanes that share a row; every lane gets the result. */
template <class E> __device__ float attention_largest(float x) {
    UNROLL for (unsigned way = E::LANES / 2; way > 0; way /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, way));
    return x;
}

template <class E> __device__ float attention_sum(float x) {
    UNROLL for (unsigned way = E::LANES / 2; way > 0; way /= 2) x += __shfl_xor_sync(0xffffffffu, x, way);
    return x;
}

/* State of forward for a thread's rows: the largest score, and the denominator of the thread's own columns. */
template <class E> struct attention_softmax { float largest[E::OWN], sum[E::OWN]; };

/* Replaces scores of keys from [key] on, of [keys], by exp(score - largest); scales earlier sums to the new largest
 * score. */
template <class E>
__device__ void attention_update_softmax(const E &e, const struct attention_job &job, unsigned keys, unsigned own,
                                         unsigned key, float (&s)[E::OWN][E::SEEN], attention_softmax<E> &soft,
                                         float (&sums)[E::OWN][E::OUT]) {
    bool is_partial = key + E::COLUMNS > keys || (job.is_causal && key + E::COLUMNS > own + e.first_row() + 1);
    float scale = job.scale * ATTENTION_LOG2_E;
    UNROLL for (unsigned i = 0; i < E::OWN; i++) {
        unsigned query = own + e.row(i), end = job.is_causal && query < keys ? query + 1 : keys;
        float largest = soft.largest[i];
        if (is_partial) UNROLL for (unsigned j = 0; j < E::SEEN; j++) if (key + e.column(j) >= end) s[i][j] = -INFINITY;
        UNROLL for (unsigned j = 0; j < E::SEEN; j++) largest = fmaxf(largest, s[i][j]);
        largest = attention_largest<E>(largest);
        float factor = E::exp2((soft.largest[i] - largest) * scale), sum = soft.sum[i] * factor;
        UNROLL for (unsigned j = 0; j < E::SEEN; j++) {
            s[i][j] = E::exp2((s[i][j] - largest) * scale);
            sum += s[i][j];
        }
        UNROLL for (unsigned j = 0; j < E::OUT; j++) sums[i][j] *= factor;
        soft.largest[i] = largest;
        soft.sum[i] = sum;
    }
}

/* A block for some queries of one head. */
template <class E, class V>
__global__ void __launch_bounds__(E::THREADS) attention_forward_kernel(typename V::job job) {
    typename E::element *own = gpu_shared<typename E::element>(), *keys = own + E::ROWS * E::STRIDE;
    typename E::element *values = keys + E::COLUMNS * E::STRIDE;
    E e(values + E::COLUMNS * E::STRIDE);
    struct attention_head h = attention_head_of<E, V>(job, true);
    unsigned last = h.own + e.first_row() + E::WARP_ROWS - 1; /* of the warp's queries */
    unsigned end = job.is_causal && h.own + E::ROWS < h.keys<V>(job) ? h.own + E::ROWS : h.keys<V>(job);
    float sums[E::OWN][E::OUT] = {}, factor[E::OWN];
    attention_softmax<E> soft;
    attention_drops<V> drops(job, h.row, h.index);
    UNROLL for (unsigned i = 0; i < E::OWN; i++) soft.largest[i] = -INFINITY, soft.sum[i] = 0;
    attention_registers<E> held;
    attention_own<E>(own, job, h.q, job.tokens, h.own);
    attention_fetch(held, job, h.k, V::keys(job), 0);
    attention_put<E>(keys, held);
    __syncthreads();
    for (unsigned key = 0; key < end; key += E::COLUMNS) {
        bool works = h.own + e.first_row() < job.tokens && (!job.is_causal || key <= last);
        float s[E::OWN][E::SEEN] = {};
        attention_fetch(held, job, h.v, V::keys(job), key);
        if (works) {
            e.scores(s, own, keys);
            attention_update_softmax(e, job, h.keys<V>(job), h.own, key, s, soft, sums);
            drops.apply(e, h.own, key, s);
        }
        attention_put<E>(values, held);
        __syncthreads(); /* values are loaded, keys have been read */
        attention_fetch(held, job, h.k, V::keys(job), key + E::COLUMNS);
        if (works) e.weighted(sums, s, values);
        attention_put<E>(keys, held);
        __syncthreads();
    }
    UNROLL for (unsigned i = 0; i < E::OWN; i++) {
        float sum = attention_sum<E>(soft.sum[i]);
        unsigned query = h.own + e.row(i);
        factor[i] = 1 / sum;
        if (e.is_first_of_row() && query < job.tokens)
            job.out_softmaxes[h.counts + query] = {soft.largest[i], -log2f(sum)};
    }
    attention_write(e, job, job.y + h.first, h.dy.stride, job.tokens, h.own, sums, factor);
}

/* softmaxes and totals of a tile of queries: to (3, COLUMNS) */
template <class E>
__device__ void attention_statistics(float *to, const struct attention_job &job, const struct attention_head &h,
                                     unsigned first) {
    for (unsigned i = threadIdx.x; i < E::COLUMNS; i += E::THREADS) {
        bool is_there = first + i < job.tokens;
        size_t at = h.counts + first + i;
        float2 softmax = {0, 0};
        if (is_there) softmax = job.softmaxes[at];
        to[i] = softmax.x;
        to[E::COLUMNS + i] = softmax.y;
        to[2 * E::COLUMNS + i] = is_there ? job.totals[at] : 0;
    }
}

/* A block for some keys of one head: own rows are keys, columns are queries.
 * p = softmax, dp = dy v^T, ds = p (dp - sum(y dy)) scale;  dv += p^T dy, dk += ds^T q */
template <class E, class V> __global__ void __launch_bounds__(E::THREADS) attention_keys_kernel(typename V::job job) {
    typename E::element *own_keys = gpu_shared<typename E::element>(), *own_values = own_keys + E::ROWS * E::STRIDE;
    typename E::element *queries = own_values + E::ROWS * E::STRIDE, *slopes = queries + E::COLUMNS * E::STRIDE;
    float *statistics = (float *)(slopes + E::COLUMNS * E::STRIDE); /* (3, COLUMNS): as attention_statistics says */
    E e(statistics + 3 * E::COLUMNS);
    struct attention_head h = attention_head_of<E, V>(job, false);
    unsigned own_key = h.own + e.first_row(), start = job.is_causal ? h.own : 0;
    if (V::IS_MASKED && h.own >= h.keys<V>(job)) start = job.tokens; /* all of its keys are padding */
    float dk[E::OWN][E::OUT] = {}, dv[E::OWN][E::OUT] = {}, one[E::OWN];
    attention_drops<V> drops(job, h.row, h.index);
    float scale = job.scale * ATTENTION_LOG2_E;
    attention_registers<E> next_queries, next_slopes;
    attention_own<E>(own_keys, job, h.k, V::keys(job), h.own);
    attention_own<E>(own_values, job, h.v, V::keys(job), h.own);
    attention_fetch(next_queries, job, h.q, job.tokens, start);
    attention_fetch(next_slopes, job, h.dy, job.tokens, start);
    for (unsigned query = start; query < job.tokens; query += E::COLUMNS) {
        bool works = own_key < h.keys<V>(job) && (!job.is_causal || query + E::COLUMNS > own_key);
        bool is_partial = query + E::COLUMNS > job.tokens || (job.is_causal && query < own_key + E::WARP_ROWS) ||
                          (V::IS_MASKED && own_key + E::WARP_ROWS > h.keys<V>(job));
        float p[E::OWN][E::SEEN] = {}, ds[E::OWN][E::SEEN] = {};
        attention_put<E>(queries, next_queries);
        attention_put<E>(slopes, next_slopes);
        attention_statistics<E>(statistics, job, h, query);
        __syncthreads();
        attention_fetch(next_queries, job, h.q, job.tokens, query + E::COLUMNS);
        attention_fetch(next_slopes, job, h.dy, job.tokens, query + E::COLUMNS);
        if (works) {
            e.scores(p, own_keys, queries);
            UNROLL for (unsigned i = 0; i < E::OWN; i++) UNROLL for (unsigned j = 0; j < E::SEEN; j++) {
                unsigned key = h.own + e.row(i), seen = query + e.column(j);
                const float *known = statistics + e.column(j);
                float x = E::exp2(fmaf(p[i][j] - known[0], scale, known[E::COLUMNS]));
                bool is_hidden =
                    seen >= job.tokens || (job.is_causal && key > seen) || (V::IS_MASKED && key >= h.keys<V>(job));
                p[i][j] = is_partial && is_hidden ? 0 : x;
            }
            if constexpr (!V::DROPS) e.weighted(dv, p, slopes);
            e.scores(ds, own_values, slopes);
            UNROLL for (unsigned i = 0; i < E::OWN; i++) UNROLL for (unsigned j = 0; j < E::SEEN; j++) {
                float mask = V::DROPS ? drops.factor(query + e.column(j), h.own + e.row(i)) : 1;
                float slope = V::DROPS ? ds[i][j] * mask : ds[i][j];
                ds[i][j] = p[i][j] * (slope - statistics[2 * E::COLUMNS + e.column(j)]) * job.scale;
                if constexpr (V::DROPS) p[i][j] *= mask;
            }
            if constexpr (V::DROPS) e.weighted(dv, p, slopes);
            e.weighted(dk, ds, queries);
        }
        __syncthreads(); /* the tiles have been read */
    }
    UNROLL for (unsigned i = 0; i < E::OWN; i++) one[i] = 1;
    float *to = V::dkv(job) + (h.k.at - V::kv(job));
    attention_write(e, job, to, h.k.stride, V::keys(job), h.own, dk, one);
    attention_write(e, job, to + h.dy.stride, h.v.stride, V::keys(job), h.own, dv, one);
}

/* A block for some queries of one head: dq += ds k. */
template <class E, class V>
__global__ void __launch_bounds__(E::THREADS) attention_queries_kernel(typename V::job job) {
    typename E::element *own_queries = gpu_shared<typename E::element>(), *own_slopes;
    own_slopes = own_queries + E::ROWS * E::STRIDE;
    typename E::element *keys = own_slopes + E::ROWS * E::STRIDE, *values = keys + E::COLUMNS * E::STRIDE;
    E e(values + E::COLUMNS * E::STRIDE);
    struct attention_head h = attention_head_of<E, V>(job, true);
    unsigned own_query = h.own + e.first_row();
    unsigned end = job.is_causal && h.own + E::ROWS < h.keys<V>(job) ? h.own + E::ROWS : h.keys<V>(job);
    float dq[E::OWN][E::OUT] = {}, total[E::OWN], one[E::OWN];
    attention_drops<V> drops(job, h.row, h.index);
    float2 softmax[E::OWN];
    float scale = job.scale * ATTENTION_LOG2_E;
    UNROLL for (unsigned i = 0; i < E::OWN; i++) {
        unsigned query = h.own + e.row(i);
        softmax[i] = {0, 0};
        if (query < job.tokens) softmax[i] = job.softmaxes[h.counts + query];
        total[i] = query < job.tokens ? job.totals[h.counts + query] : 0;
        one[i] = 1;
    }
    attention_registers<E> next_keys, next_values;
    attention_own<E>(own_queries, job, h.q, job.tokens, h.own);
    attention_own<E>(own_slopes, job, h.dy, job.tokens, h.own);
    attention_fetch(next_keys, job, h.k, V::keys(job), 0);
    attention_fetch(next_values, job, h.v, V::keys(job), 0);
    for (unsigned key = 0; key < end; key += E::COLUMNS) {
        bool works = own_query < job.tokens && (!job.is_causal || key < own_query + E::WARP_ROWS);
        bool is_partial = key + E::COLUMNS > h.keys<V>(job) || (job.is_causal && key + E::COLUMNS > own_query + 1);
        float p[E::OWN][E::SEEN] = {}, ds[E::OWN][E::SEEN] = {};
        attention_put<E>(keys, next_keys);
        attention_put<E>(values, next_values);
        __syncthreads();
        attention_fetch(next_keys, job, h.k, V::keys(job), key + E::COLUMNS);
        attention_fetch(next_values, job, h.v, V::keys(job), key + E::COLUMNS);
        if (works) {
            e.scores(p, own_queries, keys);
            e.scores(ds, own_slopes, values);
            drops.apply(e, h.own, key, ds);
            UNROLL for (unsigned i = 0; i < E::OWN; i++) UNROLL for (unsigned j = 0; j < E::SEEN; j++) {
                unsigned query = h.own + e.row(i), seen = key + e.column(j);
                float x =
                    E::exp2(fmaf(p[i][j] - softmax[i].x, scale, softmax[i].y)) * (ds[i][j] - total[i]) * job.scale;
                ds[i][j] = is_partial && (seen >= h.keys<V>(job) || (job.is_causal && seen > query)) ? 0 : x;
            }
            e.weighted(dq, ds, keys);
        }
        __syncthreads(); /* the tiles have been read */
    }
    attention_write(e, job, job.dqkv + (h.q.at - job.qkv), h.q.stride, job.tokens, h.own, dq, one);
}

/* Bytes of shared memory: own rows of [matrices] matrices, two tiles, [floats], and those of the engine. */
template <class E> size_t attention_shared(unsigned matrices, unsigned floats) {
    return (matrices * E::ROWS + 2 * E::COLUMNS) * E::STRIDE * sizeof(typename E::element) +
           (floats + E::PRIVATE) * sizeof(float);
}

/* Blocks of kernels whose own rows are [count] queries or keys of each head. */
template <class E> unsigned attention_grid(struct attention_masked_job *job, unsigned count, size_t heads) {
    job->blocks = (count + E::ROWS - 1) / E::ROWS;
    return (unsigned)(heads * job->blocks);
}

/* [heads] of all rows. Starts forward, or with job.dqkv backward. */
template <class E, class V> void attention_start(operator_call *c, struct attention_masked_job job, size_t heads) {
    unsigned grid = attention_grid<E>(&job, job.dqkv ? job.keys : job.tokens, heads);
    if (!job.dqkv) {
        c->launch(attention_forward_kernel<E, V>, grid, E::THREADS, attention_shared<E>(1, 0), job);
        return;
    }
    c->launch(attention_keys_kernel<E, V>, grid, E::THREADS, attention_shared<E>(2, 3 * E::COLUMNS), job);
    grid = attention_grid<E>(&job, job.tokens, heads);
    c->launch(attention_queries_kernel<E, V>, grid, E::THREADS, attention_shared<E>(2, 0), job);
}

/* attention_float.cu, attention_bfloat16.cu, attention_float16.cu: job->heads heads of all rows are [heads]. */
typedef void gpu_attention(operator_call *c, const struct attention_masked_job *job, size_t heads);
gpu_attention gpu_attention_float, gpu_attention_bfloat16, gpu_attention_float16;
/* attention_*_masked.cu: with job->is_masked */
gpu_attention gpu_attention_float_masked, gpu_attention_bfloat16_masked, gpu_attention_float16_masked;
