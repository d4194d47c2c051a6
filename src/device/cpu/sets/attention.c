/* Attention, one head of one row after the other, in blocks of queries and keys (Dao et al., FlashAttention): a block
 * of scores stays in the cache between its two products, the softmax is rescaled when larger scores occur, and
 * backward recomputes the scores from the maxima and denominators that forward stored. Blocks hidden by a causal mask
 * are skipped. Scores are scaled after the maximum is subtracted: the difference is exact where it matters, however
 * large they are. */
#include <math.h>
#include <string.h>

#include "device/cpu/parallel.h"
#include "device/cpu/sets/random.h"
#include "device/cpu/sets/set.h"
#include "device/cpu/sets/sums.h"
#include "device/math.h"

#define BLOCK 64 /* queries, and keys: two blocks of scores fit in the first-level cache */

/* Queries, keys and values of all rows and heads. [q_stride], [kv_stride]: between tokens; [q_row], [kv_row]: between
 * rows. */
struct attention_inputs {
    const float *q, *k, *v;
    size_t q_stride, kv_stride, q_row, kv_row;
};

/* One head of one row; strides as above. */
struct head {
    struct attention_inputs at; /* its own */
    size_t y_stride, size, tokens;
    size_t all_keys, keys; /* keys: without padding */
    float scale;
    bool is_causal, has_long_sums;
    const struct attention_shape *shape; /* for dropout */
    size_t row, index;
};

/* Side by side. */
static struct attention_inputs self_operands(const struct attention_shape *s, const float *qkv) {
    size_t c = s->heads * s->head_size, row = s->tokens * 3 * c;
    return (struct attention_inputs){qkv, qkv + c, qkv + 2 * c, 3 * c, 3 * c, row, row};
}

static struct attention_inputs cross_operands(const struct attention_shape *s, const float *q, const float *kv) {
    size_t c = s->heads * s->head_size;
    return (struct attention_inputs){q, kv, kv + c, c, 2 * c, s->tokens * c, s->keys * 2 * c};
}

static struct attention_inputs operands_of_head(const struct attention_inputs *all, size_t row, size_t start) {
    struct attention_inputs own = *all;
    own.q += row * all->q_row + start;
    own.k += row * all->kv_row + start;
    own.v += row * all->kv_row + start;
    return own;
}

static struct head head_of(const struct attention_shape *s, const struct attention_inputs *all, size_t keys, size_t row,
                           size_t h) {
    return (struct head){.at = operands_of_head(all, row, h * s->head_size),
                         .y_stride = s->heads * s->head_size,
                         .size = s->head_size,
                         .tokens = s->tokens,
                         .all_keys = keys,
                         .keys = s->lengths ? (size_t)s->lengths[row] : keys,
                         .shape = s,
                         .row = row,
                         .index = h,
                         .scale = 1 / sqrtf((float)s->head_size),
                         .has_long_sums = keys > LONG_SUM || s->tokens > LONG_SUM,
                         .is_causal = s->is_causal};
}

static size_t block_at(size_t count, size_t first) { return count - first < BLOCK ? count - first : BLOCK; }

/* Number of keys of the block at [first] that query [query] attends to. */
static size_t visible_keys(const struct head *h, size_t query, size_t first, size_t keys) {
    if (keys > h->keys - first) keys = h->keys - first;
    if (!h->is_causal || query >= first + keys) return keys;
    return query < first ? 0 : query - first + 1;
}

/* Keys or values of a block: (count, size) with [stride] between them, or transposed (size, BLOCK), which is shared by
 * the products with many blocks of queries. */
struct side {
    const float *at;
    size_t stride, count;
    const float *transposed; /* NULL: the product transposes them */
};

#define MAX_TRANSPOSED 128 /* size of a head */

/* Transposes them into [copy] if that pays off. */
static struct side side_of(const struct head *h, const float *at, size_t stride, size_t count,
                           float copy[MAX_TRANSPOSED * BLOCK]) {
    struct side side = {at, stride, count, NULL};
    if (h->size > MAX_TRANSPOSED || h->tokens < 4 * BLOCK) return side;
    side.transposed = copy;
    for (size_t d = 0; d < h->size; d++, copy += BLOCK)
        for (size_t j = 0; j < count; j++) copy[j] = at[j * stride + d];
    return side;
}

/* block (BLOCK, BLOCK) = a (m, size) b (b.count, size)^T */
static void scores(float *block, const float *a, size_t a_stride, size_t m, const struct side *b, size_t size) {
    struct cpu_product p = {.m = m,
                            .n = b->count,
                            .k = size,
                            .a = a,
                            .ars = a_stride,
                            .acs = 1,
                            .b = b->transposed ? b->transposed : b->at,
                            .brs = b->transposed ? BLOCK : 1,
                            .bcs = b->transposed ? 1 : b->stride,
                            .c = block,
                            .ldc = BLOCK,
                            .start = PRODUCT_ZERO};
    IN_SET(product)(&p);
}

/* c (m, size; [c_stride]) += a (m, k; strides [ars] and [acs]) b (k, size), where m and k are at most BLOCK; for the
 * first block c = a b. */
static void add_product(const struct head *h, bool is_first, size_t m, size_t k, const float *a, size_t ars, size_t acs,
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
                            .start = is_first ? PRODUCT_ZERO : PRODUCT_ADD,
                            .is_run = h->has_long_sums && !is_first};
    IN_SET(product)(&p);
}

/* Rounded up to whole vectors. */
static size_t round_up(size_t count) { return (count + SUMS - 1) / SUMS * SUMS; }

/* Masked scores become -infinity, whose exponential is 0, up to a multiple of whole vectors. */
static size_t mask(float *row, size_t count) {
    size_t padded = round_up(count);
    for (size_t j = count; j < padded; j++) row[j] = -INFINITY;
    return padded;
}

/* Adds what the mask of the row says to a block of scores, which are not yet scaled. */
static void add_mask(const struct head *h, float *block, size_t first, size_t queries, size_t k, size_t keys) {
    const struct attention_shape *s = h->shape;
    for (size_t i = 0; i < queries; i++) {
        size_t query = s->mask_queries > 1 ? first + i : 0;
        const float *of = s->mask + (h->row * s->mask_queries + query) * h->all_keys + k;
        for (size_t j = 0; j < keys; j++) block[i * BLOCK + j] += attention_mask_bias(s->mask_kind, of[j]) / h->scale;
    }
}

/* The online softmax of a block of queries: for each the maximum score so far, not scaled, and the sum of exp((score -
 * maximum) scale). */
struct softmax_state {
    float maximum[BLOCK];
    double sum[BLOCK]; /* a float, except for long sums */
};

/* Replaces the block of scores (queries, BLOCK) by exp((score - maximum) scale) and updates maxima and sums. factors:
 * the multipliers of earlier sums after a change of the maximum. */
static void update_softmax(const struct head *h, float *block, size_t first, size_t queries, size_t k, size_t keys,
                           struct softmax_state *state, float *factors) {
    float max[BLOCK];
    for (size_t i = 0; i < queries; i++) {
        float *row = block + i * BLOCK;
        max[i] = largest_of(row, mask(row, visible_keys(h, first + i, k, keys)));
    }
    for (size_t i = 0; i < queries; i++) {
        float before = state->maximum[i];
        state->maximum[i] = max[i] > before ? max[i] : before;
        factors[i] = math_exp_negative((before - state->maximum[i]) * h->scale);
    }
    for (size_t i = 0; i < queries; i++) {
        size_t padded = round_up(visible_keys(h, first + i, k, keys));
        float *restrict row = block + i * BLOCK, max_so_far = state->maximum[i], sums[SUMS] = {0};
        SUM_INTO(sums, padded, j, (row[j] = math_exp_negative((row[j] - max_so_far) * h->scale)));
        for (size_t j = padded; j < keys; j++) row[j] = 0;
        double sum = state->sum[i] * (double)factors[i], block_sum = (double)sums_total(sums);
        state->sum[i] = h->has_long_sums ? sum + block_sum : (double)((float)sum + (float)block_sum);
    }
}

/* Multiplies a block of softmaxes, or of their gradients, by the mask of dropout / (1 - p). The random numbers are
 * those of the operator dropout for rows of (heads, tokens, tokens). */
static void drop(const struct head *h, float *block, size_t first, size_t queries, size_t k, size_t keys) {
    struct row_words row = row_words_of(h->shape->dropout, h->row);
    for (size_t i = 0; i < queries; i++) {
        float *to = block + i * BLOCK;
        uint64_t at = ((uint64_t)h->index * h->tokens + first + i) * h->all_keys + k;
        drop_elements(&row, h->shape->dropout_p, at, to, to, keys);
    }
}

/* The block of queries at [first] with the keys at [k]. */
static void forward_block(const struct head *h, size_t first, size_t k, const struct side *keys, float *y,
                          struct softmax_state *state) {
    _Alignas(64) float block[BLOCK * BLOCK], factors[BLOCK];
    size_t queries = block_at(h->tokens, first);
    scores(block, h->at.q + first * h->at.q_stride, h->at.q_stride, queries, keys, h->size);
    if (h->shape->mask) add_mask(h, block, first, queries, k, keys->count);
    update_softmax(h, block, first, queries, k, keys->count, state, factors);
    if (h->shape->dropout) drop(h, block, first, queries, k, keys->count);
    for (size_t i = 0; i < queries && k > 0; i++)
        for (size_t d = 0; d < h->size; d++) y[i * h->y_stride + d] *= factors[i];
    add_product(h, k == 0, queries, keys->count, block, BLOCK, 1, h->at.v + k * h->at.kv_stride, h->at.kv_stride, y,
                h->y_stride);
}

#define GROUP (4 * BLOCK) /* queries that share transposed keys: their results stay in the second-level cache */

/* The queries of the group at [first]. y, softmaxes: of the head. */
static void forward_group(const struct head *h, size_t first, float *y, float *softmaxes) {
    _Alignas(64) float transposed[MAX_TRANSPOSED * BLOCK];
    struct softmax_state states[GROUP / BLOCK];
    size_t end = h->tokens - first < GROUP ? h->tokens : first + GROUP;
    for (size_t b = 0; b < GROUP / BLOCK; b++)
        for (size_t i = 0; i < BLOCK; i++) states[b].maximum[i] = -INFINITY, states[b].sum[i] = 0;
    for (size_t k = 0; k < h->keys && (!h->is_causal || k < end); k += BLOCK) {
        struct side keys =
            side_of(h, h->at.k + k * h->at.kv_stride, h->at.kv_stride, block_at(h->all_keys, k), transposed);
        for (size_t q = first; q < end; q += BLOCK)
            if (!h->is_causal || k < q + block_at(h->tokens, q))
                forward_block(h, q, k, &keys, y + q * h->y_stride, &states[(q - first) / BLOCK]);
    }
    for (size_t q = first; q < end; q++) {
        const struct softmax_state *state = &states[(q - first) / BLOCK];
        float inverse = 1 / (float)state->sum[(q - first) % BLOCK];
        if (h->shape->mask && state->maximum[(q - first) % BLOCK] * h->scale < MASK_HIDDEN / 2) inverse = NAN;
        for (size_t d = 0; d < h->size; d++) y[q * h->y_stride + d] *= inverse;
        softmaxes[2 * q] = state->maximum[(q - first) % BLOCK], softmaxes[2 * q + 1] = inverse;
    }
}

struct forward {
    const struct attention_shape *shape;
    struct attention_inputs from;
    size_t keys;
    float *y, *softmaxes;
};

static void forward_heads(void *context, size_t from, size_t to) {
    const struct forward *f = context;
    for (size_t i = from; i < to; i++) {
        struct head h = head_of(f->shape, &f->from, f->keys, i / f->shape->heads, i % f->shape->heads);
        float *y = f->y + i / f->shape->heads * h.tokens * h.y_stride + i % f->shape->heads * h.size;
        for (size_t first = 0; first < h.tokens; first += GROUP)
            forward_group(&h, first, y, f->softmaxes + 2 * i * h.tokens);
    }
}

/* Minimum heads of a thread. */
static size_t min_heads(const struct attention_shape *s, size_t keys) {
    return 1 + ((size_t)1 << 19) / (s->tokens * keys * s->head_size + 1);
}

static void attention_forward(struct device *device, const struct attention_shape *s, const struct tensor *qkv,
                              const struct tensor *y, float *softmaxes) {
    (void)device;
    struct forward f = {s, self_operands(s, floats(qkv)), s->tokens, floats(y), softmaxes};
    parallel_for(s->rows * s->heads, min_heads(s, f.keys), forward_heads, &f);
}

static void cross_attention_forward(struct device *device, const struct attention_shape *s, const float *q,
                                    const float *kv, const struct tensor *y, float *softmaxes) {
    (void)device;
    struct forward f = {s, cross_operands(s, q, kv), s->keys, floats(y), softmaxes};
    parallel_for(s->rows * s->heads, min_heads(s, f.keys), forward_heads, &f);
}

/* The first block of queries that attends to the keys at [k]. */
static size_t first_queries(const struct head *h, size_t k) { return h->is_causal ? k : 0; }

/* Operands of backward for one head; strides as in struct head. */
struct head_gradients {
    const float *y, *dy, *softmaxes;
    float *dq, *dk, *dv;
};

/* One pair of blocks: p = softmax, dp = dy v^T, ds = p (dp - sum(y dy)) scale; dv += p^T dy, dk += ds^T q, dq += ds
 * k; the first pair sets them. With dropout m: dp = m (dy v^T), dv += (m p)^T dy */
static void backward_blocks(const struct head *h, const struct head_gradients *g, size_t first, size_t k,
                            const struct side *of_keys, const struct side *of_values) {
    _Alignas(64) float p[BLOCK * BLOCK], dp[BLOCK * BLOCK];
    size_t queries = block_at(h->tokens, first), keys = of_keys->count;
    const float *q = h->at.q + first * h->at.q_stride, *dy = g->dy + first * h->y_stride,
                *y = g->y + first * h->y_stride;
    scores(p, q, h->at.q_stride, queries, of_keys, h->size);
    if (h->shape->mask) add_mask(h, p, first, queries, k, keys);
    scores(dp, dy, h->y_stride, queries, of_values, h->size);
    if (h->shape->dropout) drop(h, dp, first, queries, k, keys);
    for (size_t i = 0; i < queries; i++) {
        size_t count = visible_keys(h, first + i, k, keys);
        const float *softmax = g->softmaxes + 2 * (first + i);
        float sums[SUMS] = {0}, max = softmax[0], inverse = softmax[1];
        float *restrict row = p + i * BLOCK, *restrict drow = dp + i * BLOCK;
        SUM_INTO(sums, h->size, d, y[i * h->y_stride + d] * dy[i * h->y_stride + d]);
        float total = sums_total(sums);
        size_t padded = mask(row, count);
        for (size_t j = count; j < padded; j++) drow[j] = 0;
        for (size_t j = 0; j < padded; j++) {
            row[j] = math_exp_negative((row[j] - max) * h->scale) * inverse;
            drow[j] = row[j] * (drow[j] - total) * h->scale;
        }
        for (size_t j = padded; j < keys; j++) row[j] = drow[j] = 0;
    }
    if (h->shape->dropout) drop(h, p, first, queries, k, keys);
    bool is_first = first == first_queries(h, k);
    add_product(h, is_first, keys, queries, p, 1, BLOCK, dy, h->y_stride, g->dv + k * h->at.kv_stride, h->at.kv_stride);
    add_product(h, is_first, keys, queries, dp, 1, BLOCK, q, h->at.q_stride, g->dk + k * h->at.kv_stride,
                h->at.kv_stride);
    add_product(h, k == 0, queries, keys, dp, BLOCK, 1, h->at.k + k * h->at.kv_stride, h->at.kv_stride,
                g->dq + first * h->at.q_stride, h->at.q_stride);
}

/* The gradients of keys in blocks that are all padding. */
static void zero_padding(const struct head *h, const struct head_gradients *g) {
    for (size_t t = (h->keys + BLOCK - 1) / BLOCK * BLOCK; t < h->all_keys; t++) {
        memset(g->dk + t * h->at.kv_stride, 0, h->size * sizeof(float));
        memset(g->dv + t * h->at.kv_stride, 0, h->size * sizeof(float));
    }
}

struct backward {
    const struct attention_shape *shape;
    struct attention_inputs from;
    size_t keys;
    const float *y, *softmaxes, *dy;
    float *dq, *dk, *dv; /* as in from */
};

/* The keys at [k] with all queries that attend to them. */
static void backward_keys(const struct head *h, const struct head_gradients *g, size_t k) {
    _Alignas(64) float keys[MAX_TRANSPOSED * BLOCK], values[MAX_TRANSPOSED * BLOCK];
    size_t stride = h->at.kv_stride, count = block_at(h->all_keys, k);
    struct side of_keys = side_of(h, h->at.k + k * stride, stride, count, keys);
    struct side of_values = side_of(h, h->at.v + k * stride, stride, count, values);
    for (size_t first = first_queries(h, k); first < h->tokens; first += BLOCK)
        backward_blocks(h, g, first, k, &of_keys, &of_values);
}

static void backward_heads(void *context, size_t from, size_t to) {
    const struct backward *b = context;
    for (size_t i = from; i < to; i++) {
        size_t row = i / b->shape->heads, n = i % b->shape->heads, c = b->shape->heads * b->shape->head_size;
        struct head h = head_of(b->shape, &b->from, b->keys, row, n);
        size_t start = row * h.tokens * c + n * h.size;
        size_t q = row * b->from.q_row + n * h.size, kv = row * b->from.kv_row + n * h.size;
        struct head_gradients g = {b->y + start, b->dy + start, b->softmaxes + 2 * i * h.tokens,
                                   b->dq + q,    b->dk + kv,    b->dv + kv};
        for (size_t k = 0; k < h.keys; k += BLOCK) backward_keys(&h, &g, k);
        zero_padding(&h, &g);
    }
}

static void attention_backward(struct device *device, const struct attention_shape *s, const struct tensor *qkv,
                               const struct tensor *y, const float *softmaxes, const struct tensor *dy,
                               const struct tensor *tdqkv) {
    float *dqkv = floats(tdqkv);
    (void)device;
    size_t c = s->heads * s->head_size;
    struct backward b = {
        s, self_operands(s, floats(qkv)), s->tokens, floats(y), softmaxes, floats(dy), dqkv, dqkv + c, dqkv + 2 * c};
    parallel_for(s->rows * s->heads, min_heads(s, b.keys), backward_heads, &b);
}

static void cross_attention_backward(struct device *device, const struct attention_shape *s, const float *q,
                                     const float *kv, const float *y, const float *softmaxes, const float *dy,
                                     float *dq, float *dkv) {
    (void)device;
    size_t c = s->heads * s->head_size;
    struct backward b = {s, cross_operands(s, q, kv), s->keys, y, softmaxes, dy, dq, dkv, dkv + c};
    parallel_for(s->rows * s->heads, min_heads(s, b.keys), backward_heads, &b);
}

const struct attention_kernels IN_SET(attention) = {attention_forward, attention_backward, cross_attention_forward,
                                                    cross_attention_backward};
