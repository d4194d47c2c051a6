/* sequence: operators of models over token sequences: embedding, softmax, attention. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"

struct device;
struct tensor;
struct draw_key;

#define ATTENTION_MAX_HALF 128 /* maximum head size with 16-bit operands; a multiple of 8 */

/* What the numbers of a mask mean: 1 a key that is not attended to, 1 one that is, or what is added to a score. */
enum attention_mask { MASK_IGNORE, MASK_KEEP, MASK_ADD };
#define MASK_HIDDEN (-1e30f) /* the scaled score of a key that is not attended to, and the least of MASK_ADD */

/* What is added to a scaled score. */
HOST_DEVICE static inline float attention_mask_bias(enum attention_mask kind, float x) {
    if (kind == MASK_ADD) return x < MASK_HIDDEN ? MASK_HIDDEN : x;
    return (x > 0 || x < 0) == (kind == MASK_IGNORE) ? MASK_HIDDEN : 0;
}

struct attention_shape {
    size_t rows, tokens, heads, head_size;
    size_t keys;    /* of cross_attention_*: positions of keys and values, which are not causal; else not used */
    bool is_causal; /* token t attends to tokens 0 to t */
    const int32_t *lengths; /* (rows), each 1 to tokens: a row's later tokens are padding, to which none attends; NULL:
                               there is none */
    const struct draw_key *dropout; /* of the softmaxes (torch.nn.functional.scaled_dot_product_attention's dropout_p);
                                       NULL: none. Number of an element: (head, query, key) */
    float dropout_p;
    /* Of cross_attention_*, where takes_masks: (rows, mask_queries, keys), mask_queries 1 (the same for all queries) or
     * tokens; NULL: none. A query that attends to no key gets NaN, as in PyTorch. */
    const float *mask;
    size_t mask_queries;
    enum attention_mask mask_kind;
};

/* Rotary position embedding (Su et al., RoFormer) of the first heads * head_size of [features]: each pair of numbers of
 * a head is rotated by the angle of its position. */
struct rotation {
    size_t rows, tokens, features, heads, head_size;
    bool is_interleaved; /* pairs (2i, 2i + 1); else (i, i + head_size / 2) */
    bool is_inverse;     /* by the negative angles: the gradient */
};

/* Heads of queries, and of keys and values, which groups of heads / kv_heads neighbouring queries share. */
struct head_groups {
    size_t positions, heads, kv_heads, head_size;
};

/* How the vectors of a bag of tokens become one. */
enum bag_mode { BAG_MEAN, BAG_SUM, BAG_MAX };

struct embedding_bag {
    enum bag_mode mode;
    size_t rows, tokens; /* of each row */
    size_t vocabulary, size;
    int32_t padding; /* tokens that are left out; -1: none */
};

/* Tokens of a row that count. */
HOST_DEVICE static inline size_t bag_count(const struct embedding_bag *bag, const int32_t *tokens) {
    size_t count = 0;
    for (size_t t = 0; t < bag->tokens; t++) count += tokens[t] != bag->padding;
    return count;
}

struct sequence_ops {
    size_t max_head_size; /* of attention; 0: any */
    bool takes_masks;     /* attention_shape's mask */
    /* lengths (rows): the positions of each row up to the last one that is not [padding], at least 1; tokens (rows,
     * positions). */
    void (*padding_lengths)(struct device *, const int32_t *tokens, int32_t padding, int32_t *lengths, size_t rows,
                            size_t positions);
    /* lengths (rows) = x (rows), whose values are integers, at least 1 and at most [positions] */
    void (*given_lengths)(struct device *, const float *x, int32_t *lengths, size_t rows, size_t positions);
    /* tokens (count) = x (count), whose values are integers of 0 to vocabulary - 1; others become 0 */
    void (*to_tokens)(struct device *, const float *x, int32_t *tokens, size_t count, size_t vocabulary);
    /* y (rows, inner) = the mean over x (rows, size, inner), of a row's first lengths[row]; NULL: all */
    void (*mean_forward)(struct device *, const float *x, const int32_t *lengths, float *y, size_t rows, size_t size,
                         size_t inner);
    void (*mean_backward)(struct device *, const float *dy, const int32_t *lengths, float *dx, size_t rows, size_t size,
                          size_t inner);
    /* y (count, size): row tokens[i] of weight (vocabulary, size) */
    void (*embedding_forward)(struct device *, const int32_t *tokens, const float *weight, float *y, size_t count,
                              size_t vocabulary, size_t size);
    /* dweight: row tokens[i] += row i of dy */
    void (*embedding_backward)(struct device *, const int32_t *tokens, const float *dy, float *dweight, size_t count,
                               size_t vocabulary, size_t size);
    /* y (rows, size): mean, sum or maximum over the rows of weight of each row of tokens (rows, tokens), 0 without any;
     * largest (rows, size): the position of each maximum, the first one, -1 without any; NULL for other modes */
    void (*embedding_bag_forward)(struct device *, const struct embedding_bag *, const int32_t *tokens,
                                  const float *weight, float *y, int32_t *largest);
    /* dweight += */
    void (*embedding_bag_backward)(struct device *, const struct embedding_bag *, const int32_t *tokens,
                                   const int32_t *largest, const float *dy, float *dweight);
    /* y (rows, size) = x + row in every row */
    void (*add_row)(struct device *, const float *x, const float *row, float *y, size_t rows, size_t size);
    /* sum (size) += each row of x (rows, size) */
    void (*sum_rows)(struct device *, const float *x, float *sum, size_t rows, size_t size);
    /* y (rows, size) = softmax of each row */
    void (*softmax_forward)(struct device *, const float *x, float *y, size_t rows, size_t size);
    void (*softmax_backward)(struct device *, const float *y, const float *dy, float *dx, size_t rows, size_t size);
    /* y (rows, size) = x - log(sum of exp(x)) of each row; dx = dy - exp(y) sum(dy) */
    void (*log_softmax_forward)(struct device *, const float *x, float *y, size_t rows, size_t size);
    void (*log_softmax_backward)(struct device *, const float *y, const float *dy, float *dx, size_t rows, size_t size);
    /* y = x (rows, tokens, features), rotated; table (tokens, head_size / 2, 2): cosine and sine of each angle */
    void (*rotate)(struct device *, const struct rotation *, const float *table, const float *x, float *y);
    /* y (positions, 3 heads * head_size): q, and each head of k and v repeated for its group, from x (positions, (heads
     * + 2 kv_heads) * head_size) */
    void (*repeat_heads)(struct device *, const struct head_groups *, const float *x, float *y);
    /* dx = ; the gradients of a group are added in the order of its heads */
    void (*sum_heads)(struct device *, const struct head_groups *, const float *dy, float *dx);
    /* y (rows, tokens, C) = softmax(q k^T / sqrt(head_size)) v per head, C = heads * head_size; qkv (rows, tokens,
     * 3C): q, k, v of all heads side by side. Scores exist only block by block; softmaxes (rows, heads, tokens, 2)
     * stores two device-specific numbers of each for backward, such as the largest score and the denominator (their
     * logarithm in one number would lose the denominator next to a large score). */
    void (*attention_forward)(struct device *, const struct attention_shape *, const struct tensor *qkv,
                              const struct tensor *y, float *softmaxes);
    /* dqkv (rows, tokens, 3C) = ; scores are recomputed block by block */
    void (*attention_backward)(struct device *, const struct attention_shape *, const struct tensor *qkv,
                               const struct tensor *y, const float *softmaxes, const struct tensor *dy,
                               const struct tensor *dqkv);
    /* The same of q (rows, tokens, C) and kv (rows, keys, 2C), whose lengths are those of kv. */
    void (*cross_attention_forward)(struct device *, const struct attention_shape *, const float *q, const float *kv,
                                    const struct tensor *y, float *softmaxes);
    void (*cross_attention_backward)(struct device *, const struct attention_shape *, const float *q, const float *kv,
                                     const float *y, const float *softmaxes, const float *dy, float *dq, float *dkv);
};

/* The angle of pair [i] of a head at a position (rotary_embedding). */
static inline double rotation_angle(double base, size_t head_size, size_t position, size_t i) {
    return (double)position * pow(base, -2 * (double)i / (double)head_size);
}

/* Element [j] of the features of a position, rotated, from those of the position and its part of the table. */
HOST_DEVICE static inline float rotated(const struct rotation *r, const float *x, const float *table, size_t j) {
    if (j >= r->heads * r->head_size) return x[j];
    size_t half = r->head_size / 2, d = j % r->head_size, pair = r->is_interleaved ? d / 2 : d % half;
    bool is_first = r->is_interleaved ? d % 2 == 0 : d < half;
    size_t step = r->is_interleaved ? 1 : half;
    float cosine = table[2 * pair], sine = r->is_inverse ? -table[2 * pair + 1] : table[2 * pair + 1];
    return is_first ? x[j] * cosine - x[j + step] * sine : x[j] * cosine + x[j - step] * sine;
}

/* The column of x in repeat_heads that column [j] of y repeats. */
HOST_DEVICE static inline size_t repeated_column(const struct head_groups *g, size_t j) {
    size_t columns = g->heads * g->head_size, part = j / columns, head = j % columns / g->head_size;
    if (part == 0) return j;
    size_t kv_head = (part - 1) * g->kv_heads + head / (g->heads / g->kv_heads);
    return columns + kv_head * g->head_size + j % g->head_size;
}

/* Element [i] of the gradient of x in repeat_heads, from the gradients of a position. */
HOST_DEVICE static inline float summed_head(const struct head_groups *g, const float *dy, size_t i) {
    size_t columns = g->heads * g->head_size, group = g->heads / g->kv_heads;
    if (i < columns) return dy[i];
    size_t kv_head = (i - columns) / g->head_size, part = kv_head / g->kv_heads;
    const float *first = dy + (1 + part) * columns + kv_head % g->kv_heads * group * g->head_size + i % g->head_size;
    float sum = *first;
    for (size_t n = 1; n < group; n++) sum += first[n * g->head_size];
    return sum;
}
