/* Attention on tensor cores: 16-bit factors, float32 sums, 16 rows per warp. The kernels correspond to those of
 * attention.cuh. Matrices are rounded to 16 bits once, before, with heads padded to a multiple of 16 bytes. Tiles are
 * double buffered: cp.async fills one buffer while the other is used, and one barrier per tile ensures that the tile
 * has arrived and that the one before has been read. Gradients of queries and keys are scaled at the end, as in
 * FlashAttention-2. */
#pragma once

#include "device/cuda/attention.cuh"

/* Rows and columns of a thread are those of the sums of a product (tensor_core.cuh): scores are the first factor of the
 * next product as they are. BLOCKS: per multiprocessor, which limits the registers of a thread. */
template <class F, unsigned SIZE, unsigned ROWS_, unsigned COLUMNS_, unsigned BLOCKS_> struct attention_tensor {
    static constexpr unsigned D = SIZE, ROWS = ROWS_, COLUMNS = COLUMNS_, BLOCKS = BLOCKS_;
    static constexpr unsigned THREADS = ROWS * 2;
    static constexpr unsigned STRIDE = D + 8; /* eight rows of a matrix have no bank conflicts */
    static constexpr unsigned TILE = COLUMNS * STRIDE;
    static constexpr unsigned OWN = 2, SEEN = COLUMNS / 4, OUT = D / 4, LANES = 4, WARP_ROWS = 16, STEPS = D / 16;

    unsigned lane, first;

    __device__ attention_tensor() : lane(threadIdx.x % 32), first(threadIdx.x / 32 * WARP_ROWS) {}

    __device__ unsigned row(unsigned i) const { return first + lane / 4 + 8 * i; }
    __device__ unsigned column(unsigned j) const { return j / 2 * 8 + lane % 4 * 2 + j % 2; }
    __device__ bool is_first_of_row() const { return lane % 4 == 0; }

    /* (16, 16) of own rows, columns from d */
    __device__ void own_factors(uint32_t (&a)[4], const uint16_t *own, unsigned d) const {
        load_matrices(a, own + (first + lane % 16) * STRIDE + lane / 16 * 8 + d);
    }

    /* s = own tile^T; columns of the second factor are rows of the tile. */
    template <class A> __device__ void scores(float (&s)[OWN][SEEN], const A &own, const uint16_t *tile) const {
        const uint16_t *b_row = tile + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;
        UNROLL for (unsigned d = 0; d < STEPS; d++) {
            uint32_t a[4], b[4];
            own.get(*this, a, d);
            UNROLL for (unsigned n = 0; n < COLUMNS; n += 16) {
                load_matrices(b, b_row + n * STRIDE + d * 16);
                multiply(s, n / 4, a, b);
            }
        }
    }

    /* sums += s tile; rows of the second factor are rows of the tile. */
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

    /* The own rows of a result, of [count], times [factor], from [at] of y or dqkv on, and its 16-bit copy. */
    __device__ void write(const struct attention_job &job, float *to, size_t at, size_t stride, unsigned count,
                          unsigned own, const float (&sums)[OWN][OUT], const float (&factor)[OWN]) const {
        UNROLL for (unsigned i = 0; i < OWN; i++) {
            unsigned token = own + row(i);
            if (token >= count) continue;
            size_t start = at + token * stride;
            UNROLL for (unsigned j = 0; j < OUT; j += 2) if (column(j) < job.head_size)
                put(job, to, start + column(j), column(j) + 1 < job.head_size, sums[i][j] * factor[i],
                    sums[i][j + 1] * factor[i]);
        }
    }

    /* Bytes of shared memory: own rows of [matrices], the tiles, [more] for each half. */
    static constexpr size_t shared(unsigned matrices, size_t more) {
        return (matrices * ROWS * STRIDE + 4 * TILE) * sizeof(uint16_t) + 2 * more;
    }

  private:
    /* 16 columns of the sums, a thread's from [j] */
    template <unsigned N>
    __device__ static void multiply(float (&sums)[OWN][N], unsigned j, const uint32_t (&a)[4], const uint32_t (&b)[4]) {
        F::multiply(&sums[0][j], &sums[0][j + 1], &sums[1][j], &sums[1][j + 1], a, b[0], b[1]);
        F::multiply(&sums[0][j + 2], &sums[0][j + 3], &sums[1][j + 2], &sums[1][j + 3], a, b[2], b[3]);
    }

    __device__ static void put(const struct attention_job &job, float *to, size_t i, bool are_two, float x, float y) {
        uint32_t both = F::pair(x, y);
        if (job.is_aligned) { /* the head size is even, then */
            if (to) *(float2 *)(to + i) = {x, y};
            if (job.half_output) *(uint32_t *)(job.half_output + i) = both;
            return;
        }
        to[i] = x;
        if (are_two) to[i + 1] = y;
        if (!job.half_output) return;
        job.half_output[i] = (uint16_t)both;
        if (are_two) job.half_output[i + 1] = (uint16_t)(both >> 16);
    }
};

/* Own rows as first factor, from shared memory each time. */
template <class E> struct attention_shared_rows {
    const uint16_t *rows;
    __device__ void get(const E &e, uint32_t (&a)[4], unsigned step) const { e.own_factors(a, rows, step * 16); }
};

/* The same, kept in registers. */
template <class E> struct attention_kept_rows {
    uint32_t factors[E::STEPS][4];
    __device__ void keep(const E &e, const uint16_t *rows) {
        UNROLL for (unsigned i = 0; i < E::STEPS; i++) e.own_factors(factors[i], rows, i * 16);
    }
    __device__ void get(const E &, uint32_t (&a)[4], unsigned step) const {
        UNROLL for (unsigned i = 0; i < 4; i++) a[i] = factors[step][i];
    }
};

/* A rounded matrix (rows, padded) of one head. */
struct attention_half_rows {
    const uint16_t *at;
    size_t stride;
};

/* Starts to copy COUNT rows from [first] on, of [rows], zeros outside of the matrix. */
template <class E, unsigned COUNT>
__device__ void attention_copy(uint16_t *to, const struct attention_job &job, const struct attention_half_rows &from,
                               unsigned rows, unsigned first) {
    constexpr unsigned ROW = E::D / 8, STEP = E::THREADS / ROW;
    static_assert(E::THREADS % ROW == 0 && COUNT % STEP == 0, "a tile is a whole number of each thread's parts");
    unsigned row = threadIdx.x / ROW, column = threadIdx.x % ROW * 8;
    UNROLL for (unsigned i = 0; i < COUNT; i += STEP) {
        bool is_there = first + row + i < rows && column < job.padded;
        const uint16_t *at = from.at + (first + row + i) * from.stride + column;
        copy_start(to + (row + i) * E::STRIDE + column, is_there ? at : from.at, is_there);
    }
}

/* The head that a block works on. */
template <class E, class V> struct attention_block {
    struct attention_half_rows q, k, v, dy;
    size_t y, dqkv;             /* first of its numbers in y, and of its queries' in dqkv: token 0 */
    size_t y_stride, c;         /* between tokens of y; from queries to keys, and to values */
    size_t counts;              /* of its numbers in softmaxes */
    unsigned own, start, count; /* first row of the block; first row of tiles, and how many tiles */
    size_t row, index;          /* of the head */
    /* of masked variants */
    size_t dkv;       /* as dqkv */
    unsigned visible; /* keys that count */

    /* [has_queries]: its own rows are queries, and blocks of later ones, which attend to more keys, start
     * earlier. */
    __device__ attention_block(const typename V::job &job, bool has_queries) {
        size_t head = blockIdx.x / job.blocks, at = head % job.heads, tokens = job.tokens;
        size_t width = (size_t)job.heads * job.padded;
        unsigned piece = blockIdx.x % job.blocks;
        row = head / job.heads;
        index = at;
        c = y_stride = (size_t)job.heads * job.head_size;
        q = {job.half_qkv + row * tokens * V::q_parts(job) * width + at * job.padded, V::q_parts(job) * width};
        k = {q.at + width, q.stride};
        dqkv = row * tokens * dq_stride(job) + at * job.head_size;
        if constexpr (V::IS_MASKED) {
            size_t key = row * job.keys * job.kv_parts + job.k_part; /* parts before its first key */
            k = {job.half_kv + key * width + at * job.padded, job.kv_parts * width};
            dkv = key * c + at * job.head_size;
            visible = V::visible(job, row);
        }
        v = {k.at + width, k.stride};
        dy = {job.half_dy, width};
        if (dy.at) dy.at += row * tokens * width + at * job.padded;
        y = row * tokens * c + at * job.head_size;
        counts = head * tokens;
        own = (has_queries ? job.blocks - 1 - piece : piece) * E::ROWS;
        start = !has_queries && job.is_causal ? own : 0;
        unsigned end = has_queries ? keys(job) : job.tokens;
        if (has_queries && job.is_causal && own + E::ROWS < end) end = own + E::ROWS;
        count = (end - start + E::COLUMNS - 1) / E::COLUMNS;
        if (V::IS_MASKED && !has_queries && own >= visible) count = 0; /* all of its keys are padding */
    }

    /* That count. */
    __device__ unsigned keys(const typename V::job &job) const { return V::IS_MASKED ? visible : job.tokens; }
    __device__ size_t dk() const { return V::IS_MASKED ? dkv : dqkv + c; }
    /* Between rows of dqkv and dkv. */
    __device__ size_t dq_stride(const typename V::job &job) const { return V::q_parts(job) * c; }
    __device__ size_t dk_stride(const typename V::job &job) const { return V::kv_parts(job) * c; }
};

/* Runs work(half, first row of the tile) for each tile; copy(half, first row) starts the copies of one. Copies started
 * before are complete with the first tile, when ready() is called. */
template <class E, class V, class C, class R, class W>
__device__ void attention_tiles(const attention_block<E, V> &h, C copy, R ready, W work) {
    if (V::IS_MASKED && h.count == 0) {
        copy_commit();
        copy_wait<0>();
        return;
    }
    copy(0, h.start);
    copy_commit();
    for (unsigned i = 0; i < h.count; i++) {
        copy_wait<0>();
        __syncthreads(); /* the tile is loaded, the one before has been read */
        if (i == 0) ready();
        if (i + 1 < h.count) {
            copy((i + 1) % 2, h.start + (i + 1) * E::COLUMNS);
            copy_commit();
        }
        work(i % 2, h.start + i * E::COLUMNS);
    }
}

/* Forward: a block for some queries of one head. Scores become exp(score - largest so far); sums so far are scaled to
 * the new largest score. */
template <class E, class V>
__global__ void __launch_bounds__(E::THREADS, E::BLOCKS) attention_tensor_forward(typename V::job job) {
    uint16_t *own = gpu_shared<uint16_t>(), *tiles = own + E::ROWS * E::STRIDE; /* (2; keys, values) */
    E e;
    attention_block<E, V> h(job, true);
    attention_kept_rows<E> queries;
    attention_drops<V> drops(job, h.row, h.index);
    float sums[E::OWN][E::OUT] = {}, largest[E::OWN], sum[E::OWN], scale = job.scale * ATTENTION_LOG2_E;
    unsigned first = h.own + e.first; /* of the warp's queries */
    UNROLL for (unsigned i = 0; i < E::OWN; i++) largest[i] = -INFINITY, sum[i] = 0;
    attention_copy<E, E::ROWS>(own, job, h.q, job.tokens, h.own);
    attention_tiles<E, V>(
        h,
        [&](unsigned half, unsigned key) {
            attention_copy<E, E::COLUMNS>(tiles + half * 2 * E::TILE, job, h.k, V::keys(job), key);
            attention_copy<E, E::COLUMNS>(tiles + (half * 2 + 1) * E::TILE, job, h.v, V::keys(job), key);
        },
        [&] { queries.keep(e, own); },
        [&](unsigned half, unsigned key) {
            if (first >= job.tokens || (job.is_causal && key >= first + E::WARP_ROWS)) return;
            const uint16_t *keys = tiles + half * 2 * E::TILE, *values = keys + E::TILE;
            float s[E::OWN][E::SEEN] = {};
            e.scores(s, queries, keys);
            if (key + E::COLUMNS > h.keys(job) || (job.is_causal && key + E::COLUMNS > first + 1))
                UNROLL for (unsigned i = 0; i < E::OWN; i++) {
                    unsigned query = h.own + e.row(i);
                    unsigned end = job.is_causal && query < h.keys(job) ? query + 1 : h.keys(job);
                    UNROLL for (unsigned j = 0; j < E::SEEN; j++) if (key + e.column(j) >= end) s[i][j] = -INFINITY;
                }
            UNROLL for (unsigned i = 0; i < E::OWN; i++) {
                float now = largest[i];
                UNROLL for (unsigned j = 0; j < E::SEEN; j++) now = fmaxf(now, s[i][j]);
                now = attention_largest<E>(now);
                float factor = exp2_fast((largest[i] - now) * scale);
                largest[i] = now;
                sum[i] *= factor;
                UNROLL for (unsigned j = 0; j < E::SEEN; j++) {
                    s[i][j] = exp2_fast((s[i][j] - now) * scale);
                    sum[i] += s[i][j];
                }
                UNROLL for (unsigned j = 0; j < E::OUT; j++) sums[i][j] *= factor;
            }
            drops.apply(e, h.own, key, s);
            e.weighted(sums, s, values);
        });
    UNROLL for (unsigned i = 0; i < E::OWN; i++) {
        unsigned query = h.own + e.row(i);
        float all = attention_sum<E>(sum[i]);
        if (e.is_first_of_row() && query < job.tokens) job.out_softmaxes[h.counts + query] = {largest[i], -log2f(all)};
        sum[i] = 1 / all;
    }
    e.write(job, job.y, h.y, h.y_stride, job.tokens, h.own, sums, sum);
}

/* A block for some keys of one head: own rows are keys, columns are queries.
 * p = softmax, dp = dy v^T, ds = p (dp - sum(y dy));  dv += p^T dy, dk += ds^T q, which is scaled at the end */
template <class E, class V>
__global__ void __launch_bounds__(E::THREADS, E::BLOCKS) attention_tensor_keys(typename V::job job) {
    uint16_t *own_keys = gpu_shared<uint16_t>(), *own_values = own_keys + E::ROWS * E::STRIDE;
    uint16_t *tiles = own_values + E::ROWS * E::STRIDE;   /* (2; queries, slopes) */
    float4 *statistics = (float4 *)(tiles + 4 * E::TILE); /* (2, COLUMNS) */
    E e;
    attention_block<E, V> h(job, false);
    attention_shared_rows<E> keys = {own_keys}, values = {own_values};
    attention_drops<V> drops(job, h.row, h.index);
    float dk[E::OWN][E::OUT] = {}, dv[E::OWN][E::OUT] = {}, scale = job.scale * ATTENTION_LOG2_E;
    unsigned first = h.own + e.first; /* of the warp's keys */
    attention_copy<E, E::ROWS>(own_keys, job, h.k, V::keys(job), h.own);
    attention_copy<E, E::ROWS>(own_values, job, h.v, V::keys(job), h.own);
    attention_tiles<E, V>(
        h,
        [&](unsigned half, unsigned query) {
            attention_copy<E, E::COLUMNS>(tiles + half * 2 * E::TILE, job, h.q, job.tokens, query);
            attention_copy<E, E::COLUMNS>(tiles + (half * 2 + 1) * E::TILE, job, h.dy, job.tokens, query);
            if (threadIdx.x < E::COLUMNS) {
                const float4 *from = job.statistics + h.counts;
                bool is_there = query + threadIdx.x < job.tokens;
                copy_start(statistics + half * E::COLUMNS + threadIdx.x, is_there ? from + query + threadIdx.x : from,
                           is_there);
            }
        },
        [] {},
        [&](unsigned half, unsigned query) {
            if (first >= h.keys(job) || (job.is_causal && query + E::COLUMNS <= first)) return;
            const uint16_t *queries = tiles + half * 2 * E::TILE, *slopes = queries + E::TILE;
            const float4 *known = statistics + half * E::COLUMNS;
            float p[E::OWN][E::SEEN] = {}, ds[E::OWN][E::SEEN] = {};
            e.scores(p, keys, queries);
            UNROLL for (unsigned j = 0; j < E::SEEN; j++) UNROLL for (unsigned i = 0; i < E::OWN; i++) p[i][j] =
                exp2_fast(fmaf(p[i][j] - known[e.column(j)].x, scale, known[e.column(j)].y));
            if (query + E::COLUMNS > job.tokens || (job.is_causal && query < first + E::WARP_ROWS) ||
                (V::IS_MASKED && first + E::WARP_ROWS > h.keys(job)))
                UNROLL for (unsigned i = 0; i < E::OWN; i++) UNROLL for (unsigned j = 0; j < E::SEEN; j++) {
                    unsigned key = h.own + e.row(i), seen = query + e.column(j);
                    bool is_hidden = V::IS_MASKED && key >= h.keys(job);
                    if (seen >= job.tokens || (job.is_causal && key > seen) || is_hidden) p[i][j] = 0;
                }
            if constexpr (!V::DROPS) e.weighted(dv, p, slopes);
            e.scores(ds, values, slopes);
            UNROLL for (unsigned j = 0; j < E::SEEN; j++) UNROLL for (unsigned i = 0; i < E::OWN; i++) {
                float mask = V::DROPS ? drops.factor(query + e.column(j), h.own + e.row(i)) : 1;
                float slope = V::DROPS ? ds[i][j] * mask : ds[i][j];
                ds[i][j] = p[i][j] * (slope - known[e.column(j)].z);
                if constexpr (V::DROPS) p[i][j] *= mask;
            }
            if constexpr (V::DROPS) e.weighted(dv, p, slopes);
            e.weighted(dk, ds, queries);
        });
    float factor[E::OWN] = {job.scale, job.scale}, one[E::OWN] = {1, 1};
    e.write(job, V::dkv(job), h.dk(), h.dk_stride(job), V::keys(job), h.own, dk, factor);
    e.write(job, V::dkv(job), h.dk() + h.c, h.dk_stride(job), V::keys(job), h.own, dv, one);
}

/* A block for some queries of one head: dq += ds k, scaled at the end. */
template <class E, class V>
__global__ void __launch_bounds__(E::THREADS, E::BLOCKS) attention_tensor_queries(typename V::job job) {
    uint16_t *own_queries = gpu_shared<uint16_t>(), *own_slopes = own_queries + E::ROWS * E::STRIDE;
    uint16_t *tiles = own_slopes + E::ROWS * E::STRIDE; /* (2; keys, values) */
    E e;
    attention_block<E, V> h(job, true);
    attention_kept_rows<E> queries, slopes;
    attention_drops<V> drops(job, h.row, h.index);
    float dq[E::OWN][E::OUT] = {}, scale = job.scale * ATTENTION_LOG2_E;
    float4 known[E::OWN];
    unsigned first = h.own + e.first; /* of the warp's queries */
    UNROLL for (unsigned i = 0; i < E::OWN; i++) {
        unsigned query = h.own + e.row(i);
        known[i] = {0, 0, 0, 0};
        if (query < job.tokens) known[i] = job.statistics[h.counts + query];
    }
    attention_copy<E, E::ROWS>(own_queries, job, h.q, job.tokens, h.own);
    attention_copy<E, E::ROWS>(own_slopes, job, h.dy, job.tokens, h.own);
    attention_tiles<E, V>(
        h,
        [&](unsigned half, unsigned key) {
            attention_copy<E, E::COLUMNS>(tiles + half * 2 * E::TILE, job, h.k, V::keys(job), key);
            attention_copy<E, E::COLUMNS>(tiles + (half * 2 + 1) * E::TILE, job, h.v, V::keys(job), key);
        },
        [&] {
            queries.keep(e, own_queries);
            slopes.keep(e, own_slopes);
        },
        [&](unsigned half, unsigned key) {
            if (first >= job.tokens || (job.is_causal && key >= first + E::WARP_ROWS)) return;
            const uint16_t *keys = tiles + half * 2 * E::TILE, *values = keys + E::TILE;
            float p[E::OWN][E::SEEN] = {}, ds[E::OWN][E::SEEN] = {};
            e.scores(p, queries, keys);
            e.scores(ds, slopes, values);
            drops.apply(e, h.own, key, ds);
            UNROLL for (unsigned i = 0; i < E::OWN; i++) UNROLL for (unsigned j = 0; j < E::SEEN; j++) ds[i][j] =
                exp2_fast(fmaf(p[i][j] - known[i].x, scale, known[i].y)) * (ds[i][j] - known[i].z);
            if (key + E::COLUMNS > h.keys(job) || (job.is_causal && key + E::COLUMNS > first + 1))
                UNROLL for (unsigned i = 0; i < E::OWN; i++) UNROLL for (unsigned j = 0; j < E::SEEN; j++) {
                    unsigned query = h.own + e.row(i), seen = key + e.column(j);
                    if (seen >= h.keys(job) || (job.is_causal && seen > query)) ds[i][j] = 0;
                }
            e.weighted(dq, ds, keys);
        });
    float factor[E::OWN] = {job.scale, job.scale};
    e.write(job, job.dqkv, h.dqkv, h.dq_stride(job), job.tokens, h.own, dq, factor);
}

template <class FORWARD, class BACKWARD, class V>
void attention_tensor_launch(operator_call *c, struct attention_masked_job job, size_t heads) {
    if (!job.half_dy) {
        unsigned grid = attention_grid<FORWARD>(&job, job.tokens, heads);
        c->launch(attention_tensor_forward<FORWARD, V>, grid, FORWARD::THREADS, FORWARD::shared(1, 0), job);
        return;
    }
    unsigned grid = attention_grid<BACKWARD>(&job, job.keys, heads);
    c->launch(attention_tensor_keys<BACKWARD, V>, grid, BACKWARD::THREADS,
              BACKWARD::shared(2, BACKWARD::COLUMNS * sizeof(float4)), job);
    grid = attention_grid<BACKWARD>(&job, job.tokens, heads);
    c->launch(attention_tensor_queries<BACKWARD, V>, grid, BACKWARD::THREADS, BACKWARD::shared(2, 0), job);
}

/* Head sizes up to 128. Sized so that 16 warps share a processor (12 and 8 with larger heads), and its shared memory
 * suffices from compute capability 8.0 on. */
template <class F, class V>
void attention_tensor_start(operator_call *c, const struct attention_masked_job &job, size_t heads) {
    if (job.head_size <= 32) {
        using forward = attention_tensor<F, 32, 128, 64, 2>;
        using backward = attention_tensor<F, 32, 64, 32, 4>;
        attention_tensor_launch<forward, backward, V>(c, job, heads);
    } else if (job.head_size <= 64) {
        using forward = attention_tensor<F, 64, 128, 64, 2>;
        using backward = attention_tensor<F, 64, 128, 32, 2>;
        attention_tensor_launch<forward, backward, V>(c, job, heads);
    } else {
        using forward = attention_tensor<F, 128, 64, 32, 3>;
        using backward = attention_tensor<F, 128, 64, 32, 2>;
        attention_tensor_launch<forward, backward, V>(c, job, heads);
    }
}
