/* Embedding, softmax, the broadcast rows of positions, lengths of rows. Attention is in attention.c; cpu.c adds it. */
#include "device/sequence.h"

#include <string.h>

#include "device/cpu/sets/set.h"
#include "device/cpu/sets/sums.h"
#include "device/math.h"

static void embedding_forward(struct device *device, const int32_t *tokens, const float *weight, float *y, size_t count,
                              size_t vocabulary, size_t size) {
    (void)device;
    (void)vocabulary;
    for (size_t i = 0; i < count; i++) memcpy(y + i * size, weight + (size_t)tokens[i] * size, size * sizeof *y);
}

static void embedding_backward(struct device *device, const int32_t *tokens, const float *restrict dy,
                               float *restrict dweight, size_t count, size_t vocabulary, size_t size) {
    (void)device;
    (void)vocabulary;
    for (size_t i = 0; i < count; i++) {
        float *to = dweight + (size_t)tokens[i] * size;
        for (size_t j = 0; j < size; j++) to[j] += dy[i * size + j];
    }
}

/* y (size) = the vectors of one row of tokens, which has [count] that are not padding */
static void bag_forward(const struct embedding_bag *bag, const int32_t *tokens, size_t count,
                        const float *restrict weight, float *restrict y, int32_t *restrict largest) {
    bool is_max = bag->mode == BAG_MAX;
    for (size_t j = 0; j < bag->size; j++) y[j] = is_max && count > 0 ? -INFINITY : 0;
    for (size_t j = 0; is_max && j < bag->size; j++) largest[j] = -1;
    for (size_t t = 0; t < bag->tokens; t++) {
        if (tokens[t] == bag->padding) continue;
        const float *restrict vector = weight + (size_t)tokens[t] * bag->size;
        if (is_max)
            for (size_t j = 0; j < bag->size; j++) {
                bool is_larger = largest[j] < 0 || vector[j] > y[j];
                y[j] = is_larger ? vector[j] : y[j];
                largest[j] = is_larger ? (int32_t)t : largest[j];
            }
        else
            for (size_t j = 0; j < bag->size; j++) y[j] += vector[j];
    }
    if (bag->mode == BAG_MEAN && count > 0)
        for (size_t j = 0; j < bag->size; j++) y[j] /= (float)count;
}

static void embedding_bag_forward(struct device *device, const struct embedding_bag *bag, const int32_t *tokens,
                                  const float *weight, float *y, int32_t *largest) {
    (void)device;
    for (size_t r = 0; r < bag->rows; r++)
        bag_forward(bag, tokens + r * bag->tokens, bag_count(bag, tokens + r * bag->tokens), weight, y + r * bag->size,
                    largest ? largest + r * bag->size : NULL);
}

static void embedding_bag_backward(struct device *device, const struct embedding_bag *bag, const int32_t *tokens,
                                   const int32_t *largest, const float *dy, float *dweight) {
    (void)device;
    for (size_t r = 0; r < bag->rows; r++, tokens += bag->tokens, dy += bag->size) {
        size_t count = bag_count(bag, tokens);
        float scale = bag->mode == BAG_MEAN && count > 0 ? (float)count : 1;
        for (size_t t = 0; bag->mode != BAG_MAX && t < bag->tokens; t++) {
            if (tokens[t] == bag->padding) continue;
            float *restrict to = dweight + (size_t)tokens[t] * bag->size;
            for (size_t j = 0; j < bag->size; j++) to[j] += dy[j] / scale;
        }
        for (size_t j = 0; bag->mode == BAG_MAX && j < bag->size; j++) {
            int32_t t = largest[r * bag->size + j];
            if (t >= 0) dweight[(size_t)tokens[t] * bag->size + j] += dy[j];
        }
    }
}

static void add_row(struct device *device, const float *restrict x, const float *restrict row, float *restrict y,
                    size_t rows, size_t size) {
    (void)device;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < size; j++) y[i * size + j] = x[i * size + j] + row[j];
}

static void sum_rows(struct device *device, const float *restrict x, float *restrict sum, size_t rows, size_t size) {
    (void)device;
    IN_SET(add_rows)(sum, x, rows, size, size);
}

float IN_SET(exponentials)(const float *restrict x, float *restrict e, float *max, size_t count) {
    float largest = *max = largest_of(x, count), sums[SUMS] = {0};
    for (size_t j = 0; j < count; j++) e[j] = math_exp_negative(x[j] - largest);
    SUM_INTO(sums, count, j, e[j]);
    return sums_total(sums);
}

/* sums_total of [count] <= 12 numbers, none below 0, and of zeros after them, which change nothing and are left out */
static inline __attribute__((always_inline)) float short_total(const float *x, size_t count) {
    float four[4] = {0};
    for (size_t i = 0; i < 4 && i < count; i++) {
        four[i] = i + 8 < count ? x[i] + x[i + 8] : x[i];
        if (i + 4 < count) four[i] += x[i + 4];
    }
    return (count > 2 ? four[0] + four[2] : four[0]) + (count > 3 ? four[1] + four[3] : four[1]);
}

/* [count] is a constant wherever this is called. */
static inline __attribute__((always_inline)) void short_softmax(const float *restrict x, float *restrict y,
                                                                float *restrict max, float *restrict log_sum,
                                                                size_t rows, size_t count) {
    float divisors[SHORT_ROWS * SHORT_ROW], sum[SHORT_ROWS];
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * count;
        float largest = row[0];
        for (size_t j = 1; j < count; j++) largest = row[j] > largest ? row[j] : largest;
        for (size_t j = 0; j < count; j++) y[i * count + j] = row[j] - largest;
        max[i] = largest;
    }
    for (size_t j = 0; j < rows * count; j++) y[j] = math_exp_negative(y[j]);
    for (size_t i = 0; i < rows; i++) {
        sum[i] = short_total(y + i * count, count);
        for (size_t j = 0; j < count; j++) divisors[i * count + j] = sum[i];
    }
    for (size_t j = 0; j < rows * count; j++) y[j] /= divisors[j];
    for (size_t i = 0; i < rows; i++) log_sum[i] = log_of(sum[i]);
}

void IN_SET(short_softmax)(const float *x, float *y, float *max, float *log_sum, size_t rows, size_t count) {
    switch (count) {
#define COUNT(n)                                                                                                       \
    case n:                                                                                                            \
        short_softmax(x, y, max, log_sum, rows, n);                                                                    \
        break;
        COUNT(2)
        COUNT(3)
        COUNT(4)
        COUNT(5)
        COUNT(6)
        COUNT(7)
        COUNT(8)
        COUNT(9)
        COUNT(10)
#undef COUNT
    }
}

static void softmax_forward(struct device *device, const float *restrict x, float *restrict y, size_t rows,
                            size_t size) {
    (void)device;
    for (size_t i = 0; i < rows; i++, x += size, y += size) {
        float max, scale = 1 / IN_SET(exponentials)(x, y, &max, size);
        for (size_t j = 0; j < size; j++) y[j] *= scale;
    }
}

/* dx = y (dy - sum(y dy)) */
static void softmax_backward(struct device *device, const float *restrict y, const float *restrict dy,
                             float *restrict dx, size_t rows, size_t size) {
    (void)device;
    for (size_t i = 0; i < rows; i++, y += size, dy += size, dx += size) {
        float sums[SUMS] = {0};
        SUM_INTO(sums, size, j, y[j] * dy[j]);
        float total = sums_total(sums);
        for (size_t j = 0; j < size; j++) dx[j] = y[j] * (dy[j] - total);
    }
}

static void log_softmax_forward(struct device *device, const float *restrict x, float *restrict y, size_t rows,
                                size_t size) {
    (void)device;
    for (size_t i = 0; i < rows; i++, x += size, y += size) {
        float max, shift = logf(IN_SET(exponentials)(x, y, &max, size));
        for (size_t j = 0; j < size; j++) y[j] = x[j] - max - shift;
    }
}

/* dx = dy - exp(y) sum(dy) */
static void log_softmax_backward(struct device *device, const float *restrict y, const float *restrict dy,
                                 float *restrict dx, size_t rows, size_t size) {
    (void)device;
    for (size_t i = 0; i < rows; i++, y += size, dy += size, dx += size) {
        float sums[SUMS] = {0};
        SUM_INTO(sums, size, j, dy[j]);
        float total = sums_total(sums);
        for (size_t j = 0; j < size; j++) dx[j] = dy[j] - math_exp_negative(y[j]) * total;
    }
}

/* [count] heads of one position in the half-split order, whose loops need no division. */
static void rotate_halves(const struct rotation *r, const float *restrict table, const float *restrict x,
                          float *restrict y) {
    size_t half = r->head_size / 2;
    float sign = r->is_inverse ? -1.0f : 1.0f;
    for (size_t h = 0; h < r->heads; h++, x += r->head_size, y += r->head_size)
        for (size_t i = 0; i < half; i++) {
            float cosine = table[2 * i], sine = sign * table[2 * i + 1], first = x[i], second = x[i + half];
            y[i] = first * cosine - second * sine;
            y[i + half] = second * cosine + first * sine;
        }
}

static void rotate(struct device *device, const struct rotation *r, const float *table, const float *x, float *y) {
    size_t rotated_features = r->heads * r->head_size;
    (void)device;
    for (size_t i = 0; i < r->rows * r->tokens; i++, x += r->features, y += r->features) {
        const float *angles = table + i % r->tokens * r->head_size;
        if (r->is_interleaved)
            for (size_t j = 0; j < rotated_features; j++) y[j] = rotated(r, x, angles, j);
        else
            rotate_halves(r, angles, x, y);
        memcpy(y + rotated_features, x + rotated_features, (r->features - rotated_features) * sizeof *y);
    }
}

static void repeat_heads(struct device *device, const struct head_groups *g, const float *x, float *y) {
    size_t size = g->head_size, in = (g->heads + 2 * g->kv_heads) * size, out = 3 * g->heads * size;
    (void)device;
    for (size_t i = 0; i < g->positions; i++, x += in, y += out)
        for (size_t j = 0; j < out; j += size) memcpy(y + j, x + repeated_column(g, j), size * sizeof *y);
}

static void sum_heads(struct device *device, const struct head_groups *g, const float *dy, float *dx) {
    size_t in = (g->heads + 2 * g->kv_heads) * g->head_size, out = 3 * g->heads * g->head_size;
    (void)device;
    for (size_t i = 0; i < g->positions; i++, dy += out, dx += in)
        for (size_t j = 0; j < in; j++) dx[j] = summed_head(g, dy, j);
}

/* ---- rows of different lengths ---- */

static void padding_lengths(struct device *device, const int32_t *tokens, int32_t padding, int32_t *lengths,
                            size_t rows, size_t positions) {
    (void)device;
    for (size_t r = 0; r < rows; r++) {
        size_t length = positions;
        while (length > 1 && tokens[r * positions + length - 1] == padding) length--;
        lengths[r] = (int32_t)length;
    }
}

static void given_lengths(struct device *device, const float *x, int32_t *lengths, size_t rows, size_t positions) {
    (void)device;
    for (size_t r = 0; r < rows; r++)
        lengths[r] = !(x[r] >= 1) ? 1 : x[r] < (float)positions ? (int32_t)x[r] : (int32_t)positions;
}

static void to_tokens(struct device *device, const float *x, int32_t *tokens, size_t count, size_t vocabulary) {
    (void)device;
    for (size_t i = 0; i < count; i++) tokens[i] = x[i] >= 0 && x[i] < (float)vocabulary ? (int32_t)x[i] : 0;
}

static size_t length_of(const int32_t *lengths, size_t row, size_t size) {
    return lengths ? (size_t)lengths[row] : size;
}

static void mean_forward(struct device *device, const float *restrict x, const int32_t *lengths, float *restrict y,
                         size_t rows, size_t size, size_t inner) {
    (void)device;
    for (size_t r = 0; r < rows; r++, x += size * inner, y += inner) {
        size_t length = length_of(lengths, r, size);
        for (size_t j = 0; j < inner; j++) y[j] = x[j];
        IN_SET(add_rows)(y, x + inner, length - 1, inner, inner);
        for (size_t j = 0; j < inner; j++) y[j] /= (float)length;
    }
}

static void mean_backward(struct device *device, const float *restrict dy, const int32_t *lengths, float *restrict dx,
                          size_t rows, size_t size, size_t inner) {
    (void)device;
    for (size_t r = 0; r < rows; r++, dx += size * inner, dy += inner) {
        size_t length = length_of(lengths, r, size);
        for (size_t t = 0; t < length; t++)
            for (size_t j = 0; j < inner; j++) dx[t * inner + j] = dy[j] / (float)length;
        memset(dx + length * inner, 0, (size - length) * inner * sizeof *dx);
    }
}

const struct sequence_ops IN_SET(sequence) = {
    .padding_lengths = padding_lengths,
    .given_lengths = given_lengths,
    .to_tokens = to_tokens,
    .mean_forward = mean_forward,
    .mean_backward = mean_backward,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .embedding_bag_forward = embedding_bag_forward,
    .embedding_bag_backward = embedding_bag_backward,
    .add_row = add_row,
    .sum_rows = sum_rows,
    .softmax_forward = softmax_forward,
    .softmax_backward = softmax_backward,
    .log_softmax_forward = log_softmax_forward,
    .log_softmax_backward = log_softmax_backward,
    .rotate = rotate,
    .repeat_heads = repeat_heads,
    .sum_heads = sum_heads,
};
