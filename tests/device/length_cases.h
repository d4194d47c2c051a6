/* Operators on rows of different lengths, as cases: lengths, means, recurrent layers, losses, attention; and what
 * attention computes with the same kernels: its dropout, and keys of other rows. For tests only. */
#pragma once

#include "operator_case.h"

static void put_numbers(struct results *r, const int32_t *numbers, size_t count) {
    float *to = next(r, count);
    for (size_t i = 0; i < count; i++) to[i] = (float)numbers[i];
}

/* Lengths 1 to [positions], for guarded_free. */
static int32_t *some_lengths(size_t rows, size_t positions) {
    int32_t *lengths = guarded_malloc(rows * sizeof *lengths);
    for (size_t i = 0; i < rows; i++)
        lengths[i] = (int32_t)(i % 3 == 0 ? positions : i % 3 == 1 ? 1 : 1 + i * 37 % positions);
    return lengths;
}

static void lengths_of_rows(struct device *d, struct results *r) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    const size_t positions[] = {1, 5, 300, 1000};
    for (size_t i = 0; i < 4; i++) {
        size_t rows = 9, count = rows * positions[i];
        int32_t *ids = guarded_malloc(count * sizeof *ids), *wanted = some_lengths(rows, positions[i]), lengths[9];
        for (size_t j = 0; j < count; j++) /* some padding before the end, one row of nothing else */
            ids[j] =
                j % positions[i] >= (size_t)wanted[j / positions[i]] || j / positions[i] == 1 ? 7 : (int32_t)(j % 9);
        ops->padding_lengths(d, ids, 7, lengths, rows, positions[i]);
        put_numbers(r, lengths, rows);
        guarded_free(ids), guarded_free(wanted);
    }
    const float values[] = {1, 5, 4.9f, 0, -3, 6, 1e9f, NAN, INFINITY};
    int32_t numbers[9];
    ops->given_lengths(d, values, numbers, 9, 5);
    put_numbers(r, numbers, 9);
    ops->to_tokens(d, values, numbers, 9, 6);
    put_numbers(r, numbers, 9);
}

static void means(struct device *d, struct results *r) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    const size_t shapes[][3] = {{1, 1, 1}, {7, 5, 3}, {300, 2, 1}, {5, 130, 33}};
    for (size_t i = 0; i < 8; i++) {
        const size_t *s = shapes[i / 2], all = s[0] * s[1] * s[2];
        int32_t *lengths = some_lengths(s[0], s[1]);
        float *x = random_values(all, 1), *dy = random_values(s[0] * s[2], 2);
        ops->mean_forward(d, x, i % 2 ? lengths : NULL, next(r, s[0] * s[2]), s[0], s[1], s[2]);
        ops->mean_backward(d, dy, i % 2 ? lengths : NULL, next(r, all), s[0], s[1], s[2]);
        guarded_free(lengths), guarded_free(x), guarded_free(dy);
    }
}

/* Forward, the last outputs, and backward of one direction; with states before the first step and gradients of those
 * after the last one. */
static void recur_rows(struct device *d, struct results *r, struct recurrent_shape s, bool has_lengths,
                       bool has_states) {
    const struct recurrent_ops *ops = device_ops(d)->recurrent;
    size_t n = s.steps * s.rows, width = recurrent_gates(s.cell) * s.hidden,
           states = recurrent_states(s.cell) * s.hidden;
    int32_t *lengths = some_lengths(s.rows, s.steps);
    s.lengths = has_lengths ? lengths : NULL;
    float *weight = random_values(width * s.hidden, 1), *bias = random_values(width, 2);
    for (size_t i = 0; i < width * s.hidden; i++) weight[i] *= 0.2f;
    struct recurrent_arrays a = {.weight = weight,
                                 .bias = s.cell == RECURRENT_GRU ? bias : NULL,
                                 .gates = next_from(r, n * width, 3),
                                 .h = next(r, n * s.hidden),
                                 .dh = random_values(n * s.hidden, 4),
                                 .scratch = random_values(ops->scratch_floats(&s), 5)};
    a.states = states ? next(r, n * states) : NULL;
    float *start = random_values(4 * s.rows * s.hidden, 8);
    if (has_states) {
        a.h_start = start, a.dh_end = start + s.rows * s.hidden, a.dh_start = next(r, s.rows * s.hidden);
        if (s.cell == RECURRENT_LSTM)
            a.c_start = start + 2 * s.rows * s.hidden, a.dc_end = start + 3 * s.rows * s.hidden,
            a.dc_start = next(r, s.rows * s.hidden);
    }
    ops->forward(d, &s, &a);
    ops->take_last(d, &s, a.h, next_from(r, s.rows * (s.hidden + 3), 6), s.hidden + 3);
    ops->put_last(d, &s, weight, s.hidden - 1, next_from(r, n * s.hidden, 7));
    ops->backward(d, &s, &a);
    guarded_free(start);
    guarded_free(lengths), guarded_free(weight), guarded_free(bias), guarded_free(a.dh), guarded_free(a.scratch);
}

static void recurrent_rows(struct device *d, struct results *r) {
    for (int cell = RECURRENT_LSTM; cell <= RECURRENT_RELU; cell++)
        for (int i = 0; i < 4; i++) {
            struct recurrent_shape s = {.cell = (enum recurrent_cell)cell,
                                        .rows = i % 2 ? 5 : 19,
                                        .steps = i % 2 ? 7 : 3,
                                        .hidden = i % 2 ? 6 : 33,
                                        .is_reverse = i / 2};
            recur_rows(d, r, s, true, false);
            recur_rows(d, r, s, true, true);
            if (i % 2) recur_rows(d, r, s, false, i / 2);
        }
}

/* ---- losses ---- */

enum { LOSS_ROWS = 9, LOSS_POSITIONS = 40, LOSS_CLASSES = 6, LOSS_VALUES = LOSS_ROWS * LOSS_POSITIONS * LOSS_CLASSES };

static void put_loss(struct results *r, const struct loss_sums *s) {
    float *to = next(r, 4);
    to[0] = (float)s->loss, to[1] = (float)s->count, to[2] = (float)s->correct, to[3] = (float)s->scored;
}

/* [i]: bit 0: weights of rows, bit 1: they are counted, bit 2: weights of classes. */
static void losses_with_classes(struct device *d, struct results *r, int i, struct row_weights rows, const float *x) {
    static const double weight[LOSS_CLASSES] = {0.5, 1, 2, 0.25, 3, 0};
    int64_t targets[LOSS_ROWS * LOSS_POSITIONS];
    struct cross_entropy_options o = {.label_smoothing = i & 1 ? 0.1f : 0,
                                      .weight = i & 4 ? weight : NULL,
                                      .ignored = -100,
                                      .rows = rows,
                                      .row_positions = LOSS_POSITIONS};
    struct loss_sums sums = {0}, other = {0};
    for (int k = 0; k < LOSS_ROWS * LOSS_POSITIONS; k++) targets[k] = k % 5 == 2 ? -100 : k * 31 % LOSS_CLASSES;
    device_ops(d)->losses->cross_entropy(d, &o, F32(x), targets, LOSS_ROWS * LOSS_POSITIONS, LOSS_CLASSES, 0.5f,
                                         F32(next(r, LOSS_VALUES)), &sums);
    put_loss(r, &sums);
    o.label_smoothing = 0;
    device_ops(d)->losses->nll(d, &o, x, targets, LOSS_ROWS * LOSS_POSITIONS, LOSS_CLASSES, 0.5f, next(r, LOSS_VALUES),
                               &other);
    put_loss(r, &other);
}

/* [i]: as in losses_with_classes; each row here is a position. */
static void losses_of_parts(struct device *d, struct results *r, int i, struct row_weights rows, const float *x,
                            const float *t) {
    static const size_t parts[] = {[ROWWISE_DICE] = 1,
                                   [ROWWISE_GAUSSIAN_NLL] = 2,
                                   [ROWWISE_COSINE_EMBEDDING] = 2,
                                   [ROWWISE_KL_NORMAL] = 2,
                                   [ROWWISE_TRIPLET_MARGIN] = 3};
    for (int loss = ROWWISE_DICE; loss <= ROWWISE_TRIPLET_MARGIN; loss++) {
        size_t size = LOSS_CLASSES / parts[loss];
        struct rowwise_options o = {.loss = (enum rowwise_loss)loss,
                                    .smooth = 1,
                                    .eps = 0.01f,
                                    .margin = 0.2f,
                                    .is_full = i & 4,
                                    .parts = parts[loss],
                                    .targets = loss == ROWWISE_TRIPLET_MARGIN     ? 0
                                               : loss == ROWWISE_COSINE_EMBEDDING ? 1
                                                                                  : size,
                                    .rows = rows,
                                    .row_masks = LOSS_POSITIONS};
        struct loss_sums sums = {0};
        device_ops(d)->losses->rowwise(d, &o, x, t, LOSS_ROWS * LOSS_POSITIONS, size, 0.1f, next(r, LOSS_VALUES),
                                       &sums);
        device_ops(d)->losses->rowwise(d, &o, x, t, LOSS_ROWS * LOSS_POSITIONS, size, 0.1f, NULL, &sums);
        put_loss(r, &sums);
    }
}

static void losses_of_rows(struct device *d, struct results *r) {
    static const double pos_weight[] = {0.5, 3};
    float *x = random_values(LOSS_VALUES, 1), *t = random_values(LOSS_VALUES, 2), weights[LOSS_ROWS];
    int32_t *lengths = some_lengths(LOSS_ROWS, LOSS_POSITIONS);
    for (int i = 0; i < LOSS_ROWS; i++) weights[i] = (float)(i % 4) * 0.75f;
    for (int i = 0; i < 8; i++) {
        struct row_weights rows = {
            .values = i & 1 ? weights : NULL, .is_counted = i & 2, .lengths = lengths, .positions = LOSS_POSITIONS};
        struct elementwise_options o = {.loss = i & 4 ? LOSS_MSE : LOSS_BCE_WITH_LOGITS,
                                        .is_row_mean = i % 3 == 2,
                                        .pos_weight = pos_weight,
                                        .pos_weights = i & 4 ? 0 : 2,
                                        .pos_weight_run = 1 + i % 3,
                                        .rows = rows,
                                        .row_elements = LOSS_POSITIONS * LOSS_CLASSES};
        struct loss_sums sums = {0};
        losses_with_classes(d, r, i, rows, x);
        losses_of_parts(d, r, i, rows, x, t);
        device_ops(d)->losses->elementwise(d, &o, x, t, LOSS_VALUES, 0.1f, 3, next(r, LOSS_VALUES), &sums);
        device_ops(d)->losses->elementwise(d, &o, x, t, LOSS_VALUES, 0.1f, 3, NULL, &sums);
        put_loss(r, &sums);
    }
    guarded_free(x), guarded_free(t), guarded_free(lengths);
}

/* ---- attention ---- */

/* [kind]: bit 0: lengths, bit 1: dropout, bit 2: causal, or with [keys] > 0 cross attention. */
static void attend_to_some(struct device *d, struct results *r, struct attention_shape s, int kind) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    const struct draw_key key = {.seed = 5, .stream = 2, .pass = &work_pass, .first_row = 1, .row_stride = 2};
    size_t keys = s.keys ? s.keys : s.tokens, size = s.rows * s.heads * s.head_size;
    int32_t *lengths = some_lengths(s.rows, keys);
    float *q = random_values(3 * size * s.tokens, 1), *kv = random_values(2 * size * keys, 2);
    float *dy = random_values(size * s.tokens, 3), *y = next(r, size * s.tokens);
    float *softmaxes = guarded_malloc(2 * s.rows * s.heads * s.tokens * sizeof *softmaxes);
    if (kind & 1) s.lengths = lengths;
    if (kind & 2) s.dropout = &key, s.dropout_p = kind & 4 ? 0.1f : 0.4f;
    if (s.keys) {
        ops->cross_attention_forward(d, &s, q, kv, F32(y), softmaxes);
        float *dq = next(r, size * s.tokens);
        ops->cross_attention_backward(d, &s, q, kv, y, softmaxes, dy, dq, next(r, 2 * size * keys));
    } else {
        s.is_causal = kind & 4;
        ops->attention_forward(d, &s, F32(q), F32(y), softmaxes);
        ops->attention_backward(d, &s, F32(q), F32(y), softmaxes, F32(dy), F32(next(r, 3 * size * s.tokens)));
    }
    guarded_free(lengths), guarded_free(q), guarded_free(kv), guarded_free(dy), guarded_free(softmaxes);
}

/* Rows with one key, with blocks of padding, and without padding. */
static void masked_heads(struct device *d, struct results *r, size_t head_size) {
    static const int kinds[] = {1, 3, 5, 6, 7};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct attention_shape s = {.rows = 3, .tokens = 131, .heads = 1, .head_size = head_size};
        if (i % 2) s.tokens = 6, s.heads = 2;
        attend_to_some(d, r, s, kinds[i]);
    }
    for (int kind = 0; kind < 4; kind++) {
        struct attention_shape s = {.rows = 3, .tokens = 3, .keys = 200, .heads = 1, .head_size = head_size};
        if (kind % 2) s.tokens = 70, s.keys = 9, s.heads = 2;
        attend_to_some(d, r, s, kind);
    }
}

static void masked_small(struct device *d, struct results *r) { masked_heads(d, r, 8), masked_heads(d, r, 34); }
static void masked_large(struct device *d, struct results *r) { masked_heads(d, r, 66), masked_heads(d, r, 132); }

/* The CPU's attention is float32 in every precision. */
static void set_precision(struct device *d, enum precision precision) {
    if (strncmp(device_describe(d), "cuda", 4) == 0) ck_assert(!device_set_precision(d, precision));
}

static void masked_bfloat16(struct device *d, struct results *r) {
    set_precision(d, PRECISION_BFLOAT16);
    masked_heads(d, r, 16), masked_heads(d, r, 128);
}

static void masked_float16(struct device *d, struct results *r) {
    set_precision(d, PRECISION_FLOAT16);
    masked_heads(d, r, 9), masked_heads(d, r, 64);
}

static const struct operator_case length_cases[] = {
    {"lengths of rows", lengths_of_rows, 0},
    {"means of rows of different lengths", means, 1e-6},
    {"recurrent layers of rows of different lengths", recurrent_rows, 2e-5},
    {"losses of rows of different lengths", losses_of_rows, 1e-5},
    {"attention to some keys, small heads", masked_small, 2e-5},
    {"attention to some keys, large heads", masked_large, 2e-5},
    {"attention to some keys in bfloat16", masked_bfloat16, 0.12},
    {"attention to some keys in float16", masked_float16, 2e-2},
};
