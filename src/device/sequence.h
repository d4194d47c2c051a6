/* sequence: operators of models over token sequences: embedding, softmax, attention. */
#ifndef DEVICE_SEQUENCE_H
#define DEVICE_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;

#define ATTENTION_MAX_HALF 128 /* maximum head size with 16-bit operands; a multiple of 8 */

struct attention_shape {
    size_t rows, tokens, heads, head_size;
    bool is_causal; /* token t attends to tokens 0 to t */
};

struct sequence_ops {
    size_t max_head_size; /* of attention; 0: any */
    /* y (count, size): row tokens[i] of weight (vocabulary, size) */
    void (*embedding_forward)(struct device *, const int32_t *tokens, const float *weight, float *y, size_t count,
                              size_t vocabulary, size_t size);
    /* dweight: row tokens[i] += row i of dy */
    void (*embedding_backward)(struct device *, const int32_t *tokens, const float *dy, float *dweight, size_t count,
                               size_t vocabulary, size_t size);
    /* y (rows, size) = x + row in every row */
    void (*add_row)(struct device *, const float *x, const float *row, float *y, size_t rows, size_t size);
    /* sum (size) += each row of x (rows, size) */
    void (*sum_rows)(struct device *, const float *x, float *sum, size_t rows, size_t size);
    /* y (rows, size) = softmax of each row */
    void (*softmax_forward)(struct device *, const float *x, float *y, size_t rows, size_t size);
    void (*softmax_backward)(struct device *, const float *y, const float *dy, float *dx, size_t rows, size_t size);
    /* y (rows, tokens, C) = softmax(q k^T / sqrt(head_size)) v per head, C = heads * head_size; qkv (rows, tokens,
     * 3C): q, k, v of all heads side by side. Scores exist only block by block; softmaxes (rows, heads, tokens, 2)
     * stores two device-specific numbers of each for backward, such as the largest score and the denominator (their
     * logarithm in one number would lose the denominator next to a large score). */
    void (*attention_forward)(struct device *, const struct attention_shape *, const float *qkv, float *y,
                              float *softmaxes);
    /* dqkv (rows, tokens, 3C) = ; scores are recomputed block by block */
    void (*attention_backward)(struct device *, const struct attention_shape *, const float *qkv, const float *y,
                               const float *softmaxes, const float *dy, float *dqkv);
};

#endif
