/* Operators of models over sequences, as cases: attention of many shapes and in every precision, norms and
 * softmax of short and long rows, gradients of embeddings, cross entropy with few and many classes. For tests only. */
#pragma once

#include "operator_case.h"

/* ---- attention ---- */

static const size_t tokens[] = {1, 17, 65, 130};

static void attend(struct device *d, struct results *r, size_t heads, size_t head_size) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    for (size_t i = 0; i < 2 * sizeof tokens / sizeof *tokens; i++) {
        struct attention_shape s = {
            .rows = 2, .tokens = tokens[i / 2], .heads = heads, .head_size = head_size, .is_causal = i % 2};
        size_t counts = s.rows * s.heads * s.tokens, values = counts * s.head_size;
        float *qkv = random_values(3 * values, 1), *dy = random_values(values, 2), *y = next(r, values);
        float *softmaxes = guarded_malloc(2 * counts * sizeof *softmaxes), *dqkv = next(r, 3 * values);
        for (size_t j = 0; j < 3 * values; j++) dqkv[j] = NAN; /* every number is written */
        ops->attention_forward(d, &s, F32(qkv), F32(y), softmaxes);
        ops->attention_backward(d, &s, F32(qkv), F32(y), softmaxes, F32(dy), F32(dqkv));
        guarded_free(qkv), guarded_free(dy), guarded_free(softmaxes);
    }
}

static void heads_of_8(struct device *d, struct results *r) { attend(d, r, 3, 8); }
static void heads_of_10(struct device *d, struct results *r) { attend(d, r, 1, 10); }
static void heads_of_16(struct device *d, struct results *r) { attend(d, r, 2, 16); }
static void heads_of_64(struct device *d, struct results *r) { attend(d, r, 2, 64); }
static void heads_of_96(struct device *d, struct results *r) { attend(d, r, 1, 96); }
static void heads_of_128(struct device *d, struct results *r) { attend(d, r, 1, 128); }
static void heads_of_200(struct device *d, struct results *r) { attend(d, r, 1, 200); }
static void heads_of_256(struct device *d, struct results *r) { attend(d, r, 1, 256); }

/* Scores with differences so large that exponentials are 0, and equal scores. */
static void extreme_scores(struct device *d, struct results *r) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    struct attention_shape s = {.rows = 1, .tokens = 70, .heads = 1, .head_size = 16, .is_causal = true};
    size_t values = s.tokens * s.head_size;
    float *qkv = random_values(3 * values, 1), *dy = random_values(values, 2), *y, softmaxes[2 * 70];
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < 3 * values; j++)
            if (j / s.head_size % 3 == 0) qkv[j] *= i ? 0 : 100;
        y = next(r, values);
        ops->attention_forward(d, &s, F32(qkv), F32(y), softmaxes);
        ops->attention_backward(d, &s, F32(qkv), F32(y), softmaxes, F32(dy), F32(next(r, 3 * values)));
    }
    guarded_free(qkv), guarded_free(dy);
}

/* As large_scores in test_sequence.c: scores of 4e4, 4e8 and 4e10, exact. In 16 bits gradients of q and k, sums of
 * numbers of that size that cancel, consist of rounding errors. */
static void large_scores(struct device *d, struct results *r, size_t count, bool is_exact) {
    static const float large[] = {288, 28672, 294912}, step[] = {0.125f, 16, 128};
    struct attention_shape s = {.rows = 1, .tokens = 70, .heads = 2, .head_size = 16, .is_causal = true};
    size_t c = s.heads * s.head_size, values = s.tokens * c;
    for (size_t k = 0; k < count; k++) {
        float *qkv = random_values(3 * values, 1), *dy = random_values(values, 2), softmaxes[4 * 70];
        float *y = next(r, values), *dqkv = next(r, 3 * values);
        for (size_t i = 0; i < 3 * values; i++)
            if (i % (3 * c) < 2 * c)
                qkv[i] = i % s.head_size == 0 ? large[k] : step[k] * rintf(fminf(fmaxf(qkv[i], -3), 3));
        round_bf16(qkv, 3 * values), round_bf16(dy, values);
        device_ops(d)->sequence->attention_forward(d, &s, F32(qkv), F32(y), softmaxes);
        device_ops(d)->sequence->attention_backward(d, &s, F32(qkv), F32(y), softmaxes, F32(dy), F32(dqkv));
        for (size_t i = 0; i < 3 * values; i++) {
            if (!isfinite(dqkv[i])) ck_abort_msg("the gradient %zu is not finite", i);
            if (i % (3 * c) < 2 * c) dqkv[i] = is_exact ? dqkv[i] / large[k] : 0;
        }
        guarded_free(qkv), guarded_free(dy);
    }
}

static void large_float32(struct device *d, struct results *r) { large_scores(d, r, 3, true); }

static void large_bfloat16(struct device *d, struct results *r) {
    if (strncmp(device_describe(d), "cuda", 4) == 0) ck_assert(!device_set_precision(d, PRECISION_BFLOAT16));
    large_scores(d, r, 3, false);
}

static void large_float16(struct device *d, struct results *r) {
    if (strncmp(device_describe(d), "cuda", 4) == 0) ck_assert(!device_set_precision(d, PRECISION_FLOAT16));
    large_scores(d, r, 2, false);
}

/* The CPU's attention is float32 in every precision. Heads that are rounded in place, and padded ones. */
static void in_precision(struct device *d, struct results *r, enum precision precision) {
    if (strncmp(device_describe(d), "cuda", 4) == 0) ck_assert(!device_set_precision(d, precision));
    if (precision == PRECISION_BFLOAT16)
        attend(d, r, 3, 8), attend(d, r, 2, 10), attend(d, r, 1, 64), attend(d, r, 1, 128);
    else
        attend(d, r, 3, 3), attend(d, r, 1, 16), attend(d, r, 1, 40), attend(d, r, 1, 69), attend(d, r, 1, 96);
}

static void bfloat16(struct device *d, struct results *r) { in_precision(d, r, PRECISION_BFLOAT16); }
static void float16(struct device *d, struct results *r) { in_precision(d, r, PRECISION_FLOAT16); }

/* ---- rows ---- */

static const size_t sizes[] = {1, 3, 8, 70, 768, 1024, 1030, 2048, 200, 4096, 260};

static void norms(struct device *d, struct results *r) {
    const struct norm_ops *ops = device_ops(d)->norm_layers;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t rows = i % 2 ? 9 : 70, size = sizes[i], all = rows * size;
        float *x = random_values(all, 1), *w = random_values(size, 2), *b = random_values(size, 3);
        float *dy = random_values(all, 4), *statistics = next(r, 2 * rows);
        ops->layer_norm_forward(d, x, w, b, 1e-5f, F32(next(r, all)), statistics, rows, size);
        ops->layer_norm_backward(d, x, w, statistics, F32(dy), F32(next_from(r, all, 5)), i % 3 == 0,
                                 next_from(r, size, 6), next_from(r, size, 7), rows, size);
        ops->rms_norm_forward(d, x, w, 1e-5f, F32(next(r, all)), statistics, rows, size);
        ops->rms_norm_backward(d, x, w, statistics, F32(dy), F32(next_from(r, all, 5)), i % 3 == 0,
                               next_from(r, size, 6), rows, size);
        guarded_free(x), guarded_free(w), guarded_free(b), guarded_free(dy);
    }
}

/* x = a + b and a norm of x: in one operator where the device has it. */
static void norms_of_sums(struct device *d, struct results *r) {
    const struct norm_ops *ops = device_ops(d)->norm_layers;
    bool is_fused = ops->add_layer_norm_forward && ops->add_rms_norm_forward;
    ck_assert(is_fused || device_is_host(d));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t rows = i % 2 ? 9 : 70, size = sizes[i], all = rows * size;
        float *a = random_values(all, 1), *b = random_values(all, 2), *w = random_values(size, 3);
        float *bias = i % 3 ? random_values(size, 4) : NULL;
        for (int is_rms = 0; is_rms < 2; is_rms++) {
            float *x = next(r, all), *y = next(r, all), *statistics = next(r, (2 - (size_t)is_rms) * rows);
            if (is_fused && is_rms) {
                ops->add_rms_norm_forward(d, F32(a), F32(b), x, w, 1e-5f, F32(y), statistics, rows, size);
            } else if (is_fused) {
                ops->add_layer_norm_forward(d, F32(a), F32(b), x, w, bias, 1e-5f, F32(y), statistics, rows, size);
            } else {
                device_ops(d)->add(d, F32(a), F32(b), F32(x), all);
                if (is_rms)
                    ops->rms_norm_forward(d, x, w, 1e-5f, F32(y), statistics, rows, size);
                else
                    ops->layer_norm_forward(d, x, w, bias, 1e-5f, F32(y), statistics, rows, size);
            }
        }
        guarded_free(a), guarded_free(b), guarded_free(w);
        if (bias) guarded_free(bias);
    }
}

/* So many rows that a warp or a block processes several; dx is added to, set, or not computed. */
static void norms_of_many_rows(struct device *d, struct results *r) {
    const struct norm_ops *ops = device_ops(d)->norm_layers;
    static const size_t shapes[][2] = {{2300, 8}, {9000, 4}, {270, 1028}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t rows = shapes[i][0], size = shapes[i][1], all = rows * size;
        float *x = random_values(all, 1), *w = random_values(size, 2), *b = random_values(size, 3),
              *y = guarded_malloc(4 * all);
        float *dy = random_values(all, 4), *statistics = next(r, 2 * rows), *dx = i < 2 ? next_from(r, all, 5) : NULL;
        ops->layer_norm_forward(d, x, w, b, 1e-5f, F32(y), statistics, rows, size);
        ops->layer_norm_backward(d, x, w, statistics, F32(dy), F32(dx), i == 0, next_from(r, size, 6),
                                 next_from(r, size, 7), rows, size);
        ops->rms_norm_forward(d, x, NULL, 1e-5f, F32(y), statistics, rows, size);
        ops->rms_norm_backward(d, x, NULL, statistics, F32(dy), F32(dx), i == 0, next_from(r, size, 6), rows, size);
        guarded_free(x), guarded_free(w), guarded_free(b), guarded_free(dy), guarded_free(y);
    }
}

static void softmaxes(struct device *d, struct results *r) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t rows = 9, size = sizes[i];
        float *x = random_values(rows * size, 1), *dy = random_values(rows * size, 2), *y = next(r, rows * size);
        if (size > 1) x[0] = -INFINITY;
        ops->softmax_forward(d, x, y, rows, size);
        ops->softmax_backward(d, y, dy, next(r, rows * size), rows, size);
        y = next(r, rows * size);
        ops->log_softmax_forward(d, x, y, rows, size);
        if (size > 1) y[0] = -50; /* -INFINITY cannot be compared */
        ops->log_softmax_backward(d, y, dy, next(r, rows * size), rows, size);
        guarded_free(x), guarded_free(dy);
    }
}

static void sums_of_rows(struct device *d, struct results *r) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    const size_t shapes[][2] = {{1, 1}, {300, 5}, {2000, 33}, {3, 2000}, {5000, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        float *x = random_values(2 * shapes[i][0] * shapes[i][1], 1);
        ops->sum_rows(d, x, next_from(r, shapes[i][1], 2), shapes[i][0], shapes[i][1]);
        ops->add_row(d, x, x + shapes[i][1] - 1, next(r, shapes[i][0] * shapes[i][1]), shapes[i][0], shapes[i][1]);
        guarded_free(x);
    }
}

/* ---- embedding ---- */

/* Rows with some padding, and the last one with nothing else. */
static void embedding_bags(struct device *d, struct results *r) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    for (size_t i = 0; i < 6; i++) {
        struct embedding_bag bag = {.mode = (enum bag_mode)(i % 3),
                                    .rows = 17,
                                    .tokens = 9,
                                    .vocabulary = 40,
                                    .size = i < 3 ? 33 : 4,
                                    .padding = i < 3 ? 5 : -1};
        int32_t *ids = guarded_malloc(17 * 9 * sizeof *ids), *largest = guarded_malloc(17 * bag.size * sizeof *largest);
        float *table = random_values(40 * bag.size, 1), *dy = random_values(17 * bag.size, 2);
        for (size_t j = 0; j < 17 * 9; j++) ids[j] = j >= 16 * 9 || j % 4 == 0 ? 5 : (int32_t)(j * j % 40);
        ops->embedding_bag_forward(d, &bag, ids, table, next(r, 17 * bag.size), bag.mode == BAG_MAX ? largest : NULL);
        ops->embedding_bag_backward(d, &bag, ids, bag.mode == BAG_MAX ? largest : NULL, dy,
                                    next_from(r, 40 * bag.size, 3));
        guarded_free(ids), guarded_free(largest), guarded_free(table), guarded_free(dy);
    }
}

#define WORDS 5000

static int32_t all_different(size_t i) { return (int32_t)(i * 7 % WORDS); }
static int32_t all_equal(size_t i) { return (int32_t)(i * 0) + WORDS - 1; }
static int32_t of_two(size_t i) { return i % 40 < 37 ? 0 : 4097; }
static int32_t in_runs(size_t i) { return (int32_t)(i / 33); }

static void embeddings(struct device *d, struct results *r) {
    int32_t (*const words[])(size_t) = {all_different, all_equal, of_two, in_runs};
    const size_t counts[] = {1, 31, 64, 700}, widths[] = {6, 3, 8, 1};
    for (size_t i = 0; i < 16; i++) {
        size_t count = counts[i / 4], size = widths[i % 4];
        int32_t *ids = guarded_malloc(count * sizeof *ids);
        float *dy = random_values(count * size, 1);
        for (size_t j = 0; j < count; j++) ids[j] = words[i % 4](j);
        float *table = random_values(WORDS * size, 3);
        device_ops(d)->sequence->embedding_forward(d, ids, table, next(r, count * size), count, WORDS, size);
        device_ops(d)->sequence->embedding_backward(d, ids, dy, next_from(r, WORDS * size, 2), count, WORDS, size);
        guarded_free(ids), guarded_free(dy), guarded_free(table);
    }
    int32_t few[] = {1, 0, 1};
    float dy[] = {1, 2, 3};
    device_ops(d)->sequence->embedding_backward(d, few, dy, next_from(r, 2, 3), 3, 2, 1);
    few[0] = few[2] = 0;
    device_ops(d)->sequence->embedding_backward(d, few, dy, next_from(r, 1, 3), 3, 1, 1);
}

/* ---- recurrent layers ---- */

/* Forward and backward of one direction; the bias of a GRU is used in every other one. */
static void recur(struct device *d, struct results *r, enum recurrent_cell cell, struct recurrent_shape s) {
    const struct recurrent_ops *ops = device_ops(d)->recurrent;
    size_t n = s.steps * s.rows, width = recurrent_gates(cell) * s.hidden, states = recurrent_states(cell) * s.hidden;
    s.cell = cell;
    size_t scratch = ops->scratch_floats(&s);
    float *weight = random_values(width * s.hidden, 1), *bias = random_values(width, 2);
    for (size_t i = 0; i < width * s.hidden; i++) weight[i] *= 0.2f;
    struct recurrent_arrays a = {.weight = weight,
                                 .bias = cell == RECURRENT_GRU && !s.is_reverse ? bias : NULL,
                                 .gates = next_from(r, n * width, 3),
                                 .h = next(r, n * s.hidden),
                                 .dh = random_values(n * s.hidden, 4),
                                 .scratch = random_values(scratch, 5)};
    a.states = states ? next(r, n * states) : NULL;
    ops->forward(d, &s, &a);
    if (states) memcpy(next(r, n * width), a.gates, n * width * sizeof(float)); /* an RNN needs only h */
    ops->backward(d, &s, &a);
    guarded_free(weight), guarded_free(bias), guarded_free(a.dh), guarded_free(a.scratch);
}

static void recurrent(struct device *d, struct results *r, enum recurrent_cell cell) {
    static const struct recurrent_shape shapes[] = {{.rows = 1, .steps = 1, .hidden = 1},
                                                    {.rows = 5, .steps = 4, .hidden = 7},
                                                    {.rows = 3, .steps = 9, .hidden = 32},
                                                    {.rows = 19, .steps = 3, .hidden = 65},
                                                    {.rows = 33, .steps = 2, .hidden = 130}};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        struct recurrent_shape s = shapes[i / 2];
        s.is_reverse = i % 2;
        recur(d, r, cell, s);
    }
}

static void lstm(struct device *d, struct results *r) { recurrent(d, r, RECURRENT_LSTM); }
static void gru(struct device *d, struct results *r) { recurrent(d, r, RECURRENT_GRU); }
static void rnn(struct device *d, struct results *r) {
    recurrent(d, r, RECURRENT_TANH);
    recurrent(d, r, RECURRENT_RELU);
}

/* ---- cross entropy ---- */

static void classes(struct device *d, struct results *r) {
    const size_t shapes[][2] = {{40, 1},   {40, 2},   {300, 10},  {20, 1000}, {7, 1024},
                                {9, 1027}, {5, 5000}, {3, 16384}, {2, 21001}};
    for (size_t i = 0; i < 4 * sizeof shapes / sizeof *shapes; i++) {
        size_t positions = shapes[i / 4][0], count = shapes[i / 4][1], all = positions * count;
        float *x = random_values(all, 1);
        double *weight = guarded_malloc(count * sizeof *weight);
        int64_t *targets = guarded_malloc(positions * sizeof *targets);
        struct loss_sums sums = {0};
        struct cross_entropy_options o = {
            .label_smoothing = i & 1 ? 0.1f : 0, .weight = i & 2 ? weight : NULL, .ignored = -100};
        for (size_t c = 0; c < count; c++) weight[c] = 0.25 + (double)(c % 4);
        for (size_t j = 0; j < positions; j++) targets[j] = j % 7 == 3 ? -100 : (int64_t)(j * 31 % count);
        for (size_t j = 0; j < positions; j += 3) /* some are correct, some have two maxima */
            x[j * count + (size_t)(targets[j] < 0 ? 0 : targets[j])] = 9, x[j * count + count / 2] = 9;
        device_ops(d)->losses->cross_entropy(d, &o, F32(x), targets, positions, count, 0.5f, F32(next(r, all)), &sums);
        device_ops(d)->losses->cross_entropy(d, &o, F32(x), targets, positions, count, 1, NULL, &sums);
        float *to = next(r, 4);
        to[0] = (float)sums.loss, to[1] = (float)sums.count, to[2] = (float)sums.correct, to[3] = (float)sums.scored;
        guarded_free(x), guarded_free(weight), guarded_free(targets);
    }
}

static const struct operator_case sequence_cases[] = {
    {"attention, heads of 8", heads_of_8, 2e-5},
    {"attention, heads of 10", heads_of_10, 2e-5},
    {"attention, heads of 16", heads_of_16, 2e-5},
    {"attention, heads of 64", heads_of_64, 2e-5},
    {"attention, heads of 96", heads_of_96, 2e-5},
    {"attention, heads of 128", heads_of_128, 2e-5},
    {"attention, heads of 200", heads_of_200, 2e-5},
    {"attention, heads of 256", heads_of_256, 2e-5},
    {"attention, extreme scores", extreme_scores, 1e-3},
    {"attention, large scores", large_float32, 2e-5},
    {"attention, large scores in bfloat16", large_bfloat16, 1e-2},
    {"attention, large scores in float16", large_float16, 2e-3},
    {"attention in bfloat16", bfloat16, 3e-2},
    {"attention in float16", float16, 4e-3},
    {"norms", norms, 2e-5},
    {"norms of sums", norms_of_sums, 2e-5},
    {"norms of many rows", norms_of_many_rows, 2e-5},
    {"softmax", softmaxes, 1e-5},
    {"sums and additions of rows", sums_of_rows, 1e-5},
    {"embedding", embeddings, 2e-5},
    {"embedding_bag", embedding_bags, 2e-5},
    {"lstm", lstm, 2e-5},
    {"gru", gru, 2e-5},
    {"rnn", rnn, 2e-5},
    {"cross entropy", classes, 1e-5},
};
