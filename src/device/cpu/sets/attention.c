/* Attention, one head of one row after the other, in blocks of queries and keys (Dao et al., FlashAttention): a block
 * of scores stays in the cache between its two products, the softmax is rescaled when larger scores occur, and
 * backward recomputes the scores from the maxima and denominators that forward stored. Blocks hidden by a causal mask
 * are skipped. Scores are scaled after the maximum is subtracted: the difference is exact where it matters, however
 * large they are. */
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

/* Keys of the block at [first] that query [query] attends to. */
static size_t seen(const struct head *h, size_t query, size_t first, size_t keys) {
    if (!h->is_causal || query >= first + keys) return keys;
    return query < first ? 0 : query - first + 1;
}

/* block (BLOCK, BLOCK) = a (m, size) b (n, size)^T */
static void scores(float *block, const float *a, size_t a_stride, size_t m, const float *b, size_t b_stride, size_t n,
                   size_t size) {
    struct cpu_product p = {.m = m,
                            .n = n,
                            .k = size,
                            .a = a,
                            .ars = a_stride,
                            .acs = 1,
                            .b = b,
                            .brs = 1,
                            .bcs = b_stride,
                            .c = block,
                            .ldc = BLOCK,
                            .start = PRODUCT_ZERO};
    IN_SET(product)(&p);
}

/* c (m, size; [c_stride]) += a (m, k; strides [ars] and [acs]) b (k, size); for the first block =. */
static void weigh(const struct head *h, bool is_first, size_t m, size_t k, const float *a, size_t ars, size_t acs,
                  const float *b, size_t b_stride, float *c, size_t c_stride) {
    struct cpu_product p = {.m = m,
                            .n = h->size,
                            .k = k,
                            .a = a,
                            .ars = ars,
                            .acs = acs,
                            .b = b,
                            .brs = b_stride,
                            .bcs = 1,
                            .c = c,
                            .ldc = c_stride,
                            .start = is_first ? PRODUCT_ZERO : PRODUCT_ADD};
    IN_SET(product)(&p);
}

/* Rounded up to whole vectors. */
static size_t round_up(size_t count) { return (count + SUMS - 1) / SUMS * SUMS; }

/* Masked scores become -infinity, whose exponential is 0, up to a multiple of whole vectors. */
static size_t hide(float *row, size_t count) {
    size_t padded = round_up(count);
    for (size_t j = count; j < padded; j++) row[j] = -INFINITY;
    return padded;
}

/* The softmax of a block of queries so far: the largest score of each, not scaled, and the sum of exp((score -
 * maximum) scale). */
struct running {
    float maximum[BLOCK], sum[BLOCK];
};

/* The block of scores (queries, BLOCK) becomes exp((score - maximum) scale), with updated maxima and sums. factors:
 * multipliers of earlier sums for the new maxima. */
static void take_in(const struct head *h, float *block, size_t first, size_t queries, size_t k, size_t keys,
                    struct running *running, float *factors) {
    float max[BLOCK];
    for (size_t i = 0; i < queries; i++) {
        float *row = block + i * BLOCK;
        max[i] = largest_of(row, hide(row, seen(h, first + i, k, keys)));
    }
    for (size_t i = 0; i < queries; i++) {
        float before = running->maximum[i];
        running->maximum[i] = max[i] > before ? max[i] : before;
        factors[i] = math_exp((before - running->maximum[i]) * h->scale);
    }
    for (size_t i = 0; i < queries; i++) {
        size_t padded = round_up(seen(h, first + i, k, keys));
        float *restrict row = block + i * BLOCK, max_so_far = running->maximum[i], sums[SUMS] = {0};
        SUM_INTO(sums, padded, j, (row[j] = math_exp((row[j] - max_so_far) * h->scale)));
        for (size_t j = padded; j < keys; j++) row[j] = 0;
        running->sum[i] *= factors[i];
        running->sum[i] += sums_total(sums);
    }
}

static void forward_queries(const struct head *h, size_t first, float *y, float *softmaxes) {
    _Alignas(64) float block[BLOCK * BLOCK], factors[BLOCK];
    struct running running;
    size_t queries = block_at(h, first);
    for (size_t i = 0; i < queries; i++) running.maximum[i] = -INFINITY, running.sum[i] = 0;
    for (size_t k = 0; k < h->tokens && (!h->is_causal || k < first + queries); k += BLOCK) {
        size_t keys = block_at(h, k);
        scores(block, h->q + first * h->wide, h->wide, queries, h->k + k * h->wide, h->wide, keys, h->size);
        take_in(h, block, first, queries, k, keys, &running, factors);
        for (size_t i = 0; i < queries && k > 0; i++)
            for (size_t d = 0; d < h->size; d++) y[i * h->narrow + d] *= factors[i];
        weigh(h, k == 0, queries, keys, block, BLOCK, 1, h->v + k * h->wide, h->wide, y, h->narrow);
    }
    for (size_t i = 0; i < queries; i++) {
        float inverse = 1 / running.sum[i];
        for (size_t d = 0; d < h->size; d++) y[i * h->narrow + d] *= inverse;
        softmaxes[2 * i] = running.maximum[i], softmaxes[2 * i + 1] = inverse;
    }
}

struct forward {
    const struct attention_shape *shape;
    const float *qkv;
    float *y, *softmaxes;
};

static void forward_heads(void *context, size_t from, size_t to) {
    const struct forward *f = context;
    for (size_t i = from; i < to; i++) {
        struct head h = head_of(f->shape, f->qkv, i / f->shape->heads, i % f->shape->heads);
        float *y = f->y + i / f->shape->heads * h.tokens * h.narrow + i % f->shape->heads * h.size;
        for (size_t first = 0; first < h.tokens; first += BLOCK)
            forward_queries(&h, first, y + first * h.narrow, f->softmaxes + 2 * (i * h.tokens + first));
    }
}

/* Minimum heads of a thread. */
static size_t min_heads(const struct attention_shape *s) {
    return 1 + ((size_t)1 << 19) / (s->tokens * s->tokens * s->head_size + 1);
}

void IN_SET(attention_forward)(struct device *device, const struct attention_shape *s, const float *qkv, float *y,
                               float *softmaxes) {
    (void)device;
    struct forward f = {s, qkv, y, softmaxes};
    parallel_for(s->rows * s->heads, min_heads(s), forward_heads, &f);
}

/* The first block of queries that attends to the keys at [k]. */
static size_t first_queries(const struct head *h, size_t k) { return h->is_causal ? k : 0; }

/* What backward of one head reads and writes; strides as in struct head. */
struct head_gradients {
    const float *y, *dy, *softmaxes;
    float *dq, *dk, *dv;
};

/* One pair of blocks: p = softmax, dp = dy v^T, ds = p (dp - sum(y dy)) scale; dv += p^T dy, dk += ds^T q, dq += ds
 * k; the first pair sets them */
static void backward_blocks(const struct head *h, const struct head_gradients *g, size_t first, size_t k) {
    _Alignas(64) float p[BLOCK * BLOCK], dp[BLOCK * BLOCK];
    size_t queries = block_at(h, first), keys = block_at(h, k);
    const float *q = h->q + first * h->wide, *dy = g->dy + first * h->narrow, *y = g->y + first * h->narrow;
    scores(p, q, h->wide, queries, h->k + k * h->wide, h->wide, keys, h->size);
    scores(dp, dy, h->narrow, queries, h->v + k * h->wide, h->wide, keys, h->size);
    for (size_t i = 0; i < queries; i++) {
        size_t count = seen(h, first + i, k, keys);
        const float *softmax = g->softmaxes + 2 * (first + i);
        float sums[SUMS] = {0}, max = softmax[0], inverse = softmax[1];
        float *restrict row = p + i * BLOCK, *restrict drow = dp + i * BLOCK;
        SUM_INTO(sums, h->size, d, y[i * h->narrow + d] * dy[i * h->narrow + d]);
        float total = sums_total(sums);
        size_t padded = hide(row, count);
        for (size_t j = count; j < padded; j++) drow[j] = 0;
        for (size_t j = 0; j < padded; j++) {
            row[j] = math_exp((row[j] - max) * h->scale) * inverse;
            drow[j] = row[j] * (drow[j] - total) * h->scale;
        }
        for (size_t j = padded; j < keys; j++) row[j] = drow[j] = 0;
    }
    bool is_first = first == first_queries(h, k);
    weigh(h, is_first, keys, queries, p, 1, BLOCK, dy, h->narrow, g->dv + k * h->wide, h->wide);
    weigh(h, is_first, keys, queries, dp, 1, BLOCK, q, h->wide, g->dk + k * h->wide, h->wide);
    weigh(h, k == 0, queries, keys, dp, BLOCK, 1, h->k + k * h->wide, h->wide, g->dq + first * h->wide, h->wide);
}

struct backward {
    const struct attention_shape *shape;
    const float *qkv, *y, *softmaxes, *dy;
    float *dqkv;
};

static void backward_heads(void *context, size_t from, size_t to) {
    const struct backward *b = context;
    for (size_t i = from; i < to; i++) {
        size_t row = i / b->shape->heads, n = i % b->shape->heads, c = b->shape->heads * b->shape->head_size;
        struct head h = head_of(b->shape, b->qkv, row, n);
        size_t narrow = row * h.tokens * c + n * h.size;
        float *dq = b->dqkv + row * h.tokens * 3 * c + n * h.size;
        struct head_gradients g = {b->y + narrow, b->dy + narrow, b->softmaxes + 2 * i * h.tokens, dq,
                                   dq + c,        dq + 2 * c};
        for (size_t k = 0; k < h.tokens; k += BLOCK)
            for (size_t first = first_queries(&h, k); first < h.tokens; first += BLOCK)
                backward_blocks(&h, &g, first, k);
    }
}

void IN_SET(attention_backward)(struct device *device, const struct attention_shape *s, const float *qkv,
                                const float *y, const float *softmaxes, const float *dy, float *dqkv) {
    (void)device;
    struct backward b = {s, qkv, y, softmaxes, dy, dqkv};
    parallel_for(s->rows * s->heads, min_heads(s), backward_heads, &b);
}
