/* Attention, one head of one row after the other, in blocks of queries and keys (Dao et al., FlashAttention): a block
 * of scores lives in the cache between its two products, the softmax is corrected as larger scores come, and backward
 * makes the scores again from the denominators that forward kept. Blocks that a causal mask hides are left out. */
#include <math.h>
#include <string.h>

#include "device/cpu/parallel.h"
#include "device/cpu/sets/set.h"
#include "device/cpu/sets/sums.h"
#include "device/math.h"

#define BLOCK 64 /* queries, and keys: two blocks of scores fit in the first-level cache */

/* One head of one row. Strides: [wide] between tokens of qkv, [narrow] of y. */
struct head {
    const float *q, *k, *v;
    size_t wide, narrow, size, tokens;
    float scale;
    bool is_causal;
};

static struct head head_of(const struct attention_shape *s, const float *qkv, size_t row, size_t h) {
    size_t c = s->heads * s->head_size;
    const float *q = qkv + row * s->tokens * 3 * c + h * s->head_size;
    return (struct head){.q = q,
                         .k = q + c,
                         .v = q + 2 * c,
                         .wide = 3 * c,
                         .narrow = c,
                         .size = s->head_size,
                         .tokens = s->tokens,
                         .scale = 1 / sqrtf((float)s->head_size),
                         .is_causal = s->is_causal};
}

static size_t block_at(const struct head *h, size_t first) {
    return h->tokens - first < BLOCK ? h->tokens - first : BLOCK;
}

/* Keys of the block at [first] that query [query] sees. */
static size_t seen(const struct head *h, size_t query, size_t first, size_t keys) {
    if (!h->is_causal || query >= first + keys) return keys;
    return query < first ? 0 : query - first + 1;
}

/* block (BLOCK, BLOCK) = a (m, size) b (n, size)^T */
static void scores(float *block, const float *a, size_t a_stride, size_t m, const float *b, size_t b_stride, size_t n,
                   size_t size) {
    for (size_t i = 0; i < m; i++) memset(block + i * BLOCK, 0, n * sizeof *block);
    IN_SET(gemm)(m, n, size, a, a_stride, 1, b, 1, b_stride, block, BLOCK);
}

/* Scores that a query does not see become -infinity, whose exponential is 0: so many that whole vectors can be used. */
static size_t hide(float *row, size_t count) {
    size_t padded = (count + SUMS - 1) / SUMS * SUMS;
    for (size_t j = count; j < padded; j++) row[j] = -INFINITY;
    return padded;
}

/* The running maximum and denominator of a query take in its row of scores, which becomes exp(score - maximum); [y],
 * the sum so far, is scaled to the new maximum. */
static void take_in(float *restrict row, size_t seen_keys, float scale, float *maximum, float *sum, float *restrict y,
                    size_t size) {
    size_t count = hide(row, seen_keys);
    float most = largest_of(row, count) * scale, sums[SUMS] = {0};
    if (most > *maximum) {
        float factor = math_exp(*maximum - most);
        *maximum = most;
        *sum *= factor;
        for (size_t d = 0; d < size; d++) y[d] *= factor;
    }
    most = *maximum;
    for (size_t j = 0; j < count; j++) row[j] = math_exp(fmaf(row[j], scale, -most));
    SUM_INTO(sums, count, j, row[j]);
    *sum += sums_total(sums);
}

static void forward_queries(const struct head *h, size_t first, float *y, float *log_sums) {
    _Alignas(64) float block[BLOCK * BLOCK];
    float maximum[BLOCK], sum[BLOCK];
    size_t queries = block_at(h, first);
    for (size_t i = 0; i < queries; i++) {
        maximum[i] = -INFINITY;
        sum[i] = 0;
        memset(y + i * h->narrow, 0, h->size * sizeof *y);
    }
    for (size_t k = 0; k < h->tokens && (!h->is_causal || k < first + queries); k += BLOCK) {
        size_t keys = block_at(h, k);
        scores(block, h->q + first * h->wide, h->wide, queries, h->k + k * h->wide, h->wide, keys, h->size);
        for (size_t i = 0; i < queries; i++) {
            size_t count = seen(h, first + i, k, keys);
            float *row = block + i * BLOCK;
            if (count) take_in(row, count, h->scale, &maximum[i], &sum[i], y + i * h->narrow, h->size);
            for (size_t j = count; j < keys; j++) row[j] = 0;
        }
        IN_SET(gemm)(queries, h->size, keys, block, BLOCK, 1, h->v + k * h->wide, h->wide, 1, y, h->narrow);
    }
    for (size_t i = 0; i < queries; i++) {
        float inverse = 1 / sum[i];
        for (size_t d = 0; d < h->size; d++) y[i * h->narrow + d] *= inverse;
        log_sums[i] = maximum[i] + logf(sum[i]);
    }
}

struct forward {
    const struct attention_shape *shape;
    const float *qkv;
    float *y, *log_sums;
};

static void forward_heads(void *context, size_t from, size_t to) {
    const struct forward *f = context;
    for (size_t i = from; i < to; i++) {
        struct head h = head_of(f->shape, f->qkv, i / f->shape->heads, i % f->shape->heads);
        float *y = f->y + i / f->shape->heads * h.tokens * h.narrow + i % f->shape->heads * h.size;
        for (size_t first = 0; first < h.tokens; first += BLOCK)
            forward_queries(&h, first, y + first * h.narrow, f->log_sums + i * h.tokens + first);
    }
}

/* Heads that are work for a thread. */
static size_t least_heads(const struct attention_shape *s) {
    return 1 + ((size_t)1 << 19) / (s->tokens * s->tokens * s->head_size + 1);
}

void IN_SET(attention_forward)(struct device *device, const struct attention_shape *s, const float *qkv, float *y,
                               float *log_sums) {
    (void)device;
    struct forward f = {s, qkv, y, log_sums};
    parallel_for(s->rows * s->heads, least_heads(s), forward_heads, &f);
}

/* What backward of one head reads and adds to; strides as in struct head. */
struct head_gradients {
    const float *y, *dy, *log_sums;
    float *dq, *dk, *dv;
};

/* The pair of blocks: p = softmax, dp = dy v^T, ds = p (dp - sum(y dy)) scale;
 * dv += p^T dy, dk += ds^T q, dq += ds k */
static void backward_blocks(const struct head *h, const struct head_gradients *g, size_t first, size_t k) {
    _Alignas(64) float p[BLOCK * BLOCK], dp[BLOCK * BLOCK];
    size_t queries = block_at(h, first), keys = block_at(h, k);
    const float *q = h->q + first * h->wide, *dy = g->dy + first * h->narrow, *y = g->y + first * h->narrow;
    scores(p, q, h->wide, queries, h->k + k * h->wide, h->wide, keys, h->size);
    scores(dp, dy, h->narrow, queries, h->v + k * h->wide, h->wide, keys, h->size);
    for (size_t i = 0; i < queries; i++) {
        size_t count = seen(h, first + i, k, keys);
        float sums[SUMS] = {0},
              log_sum = g->log_sums[first + i], *restrict row = p + i * BLOCK, *restrict drow = dp + i * BLOCK;
        SUM_INTO(sums, h->size, d, y[i * h->narrow + d] * dy[i * h->narrow + d]);
        float total = sums_total(sums);
        size_t padded = hide(row, count);
        for (size_t j = count; j < padded; j++) drow[j] = 0;
        for (size_t j = 0; j < padded; j++) row[j] = math_exp(fmaf(row[j], h->scale, -log_sum));
        for (size_t j = 0; j < padded; j++) drow[j] = row[j] * (drow[j] - total) * h->scale;
        for (size_t j = padded; j < keys; j++) row[j] = drow[j] = 0;
    }
    IN_SET(gemm)(keys, h->size, queries, p, 1, BLOCK, dy, h->narrow, 1, g->dv + k * h->wide, h->wide);
    IN_SET(gemm)(keys, h->size, queries, dp, 1, BLOCK, q, h->wide, 1, g->dk + k * h->wide, h->wide);
    IN_SET(gemm)
    (queries, h->size, keys, dp, BLOCK, 1, h->k + k * h->wide, h->wide, 1, g->dq + first * h->wide, h->wide);
}

struct backward {
    const struct attention_shape *shape;
    const float *qkv, *y, *log_sums, *dy;
    float *dqkv;
};

static void backward_heads(void *context, size_t from, size_t to) {
    const struct backward *b = context;
    for (size_t i = from; i < to; i++) {
        size_t row = i / b->shape->heads, n = i % b->shape->heads, c = b->shape->heads * b->shape->head_size;
        struct head h = head_of(b->shape, b->qkv, row, n);
        size_t narrow = row * h.tokens * c + n * h.size;
        float *dq = b->dqkv + row * h.tokens * 3 * c + n * h.size;
        struct head_gradients g = {b->y + narrow, b->dy + narrow, b->log_sums + i * h.tokens, dq, dq + c, dq + 2 * c};
        for (size_t t = 0; t < 3 * h.tokens; t++) memset(dq + t * c, 0, h.size * sizeof *dq);
        for (size_t k = 0; k < h.tokens; k += BLOCK)
            for (size_t first = h.is_causal ? k : 0; first < h.tokens; first += BLOCK)
                backward_blocks(&h, &g, first, k);
    }
}

void IN_SET(attention_backward)(struct device *device, const struct attention_shape *s, const float *qkv,
                                const float *y, const float *log_sums, const float *dy, float *dqkv) {
    (void)device;
    struct backward b = {s, qkv, y, log_sums, dy, dqkv};
    parallel_for(s->rows * s->heads, least_heads(s), backward_heads, &b);
}
