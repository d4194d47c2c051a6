/* All operators except those over images, as cases for any device: products, element-wise rules, losses, norms, whole
 * buffers. For tests only. */
#pragma once

#include "operator_case.h"

#define ROWS 37
#define IN 70
#define OUT 45
#define TOKENS 300 /* more than a block of the GPU has threads */
#define N (ROWS * IN)
#define WHOLE (1 << 19) /* of a whole buffer */

static void products(struct device *d, struct results *r) {
    const struct device_ops *ops = device_ops(d);
    float *x = random_values(N, 1), *w = random_values(OUT * IN, 2), *bias = random_values(OUT + 1, 3);
    float *dy = random_values(ROWS * OUT, 4);
    ops->linear_forward(d, F32(x), w, bias, false, F32(next(r, ROWS * OUT)), ROWS, IN, OUT);
    ops->linear_forward(d, F32(x), w, bias + 1, true, F32(next(r, ROWS * OUT)), ROWS, IN, OUT);
    ops->linear_forward(d, F32(x), w, NULL, true, F32(next(r, ROWS * OUT)), ROWS, IN, OUT);
    ops->linear_forward(d, F32(x), w, NULL, false, F32(next(r, OUT)), 1, IN, OUT);
    ops->linear_backward_input(d, F32(dy), w, F32(next(r, N)), ROWS, IN, OUT);
    float *dw = next_from(r, OUT * IN, 5), *dbias = next_from(r, OUT, 6);
    ops->linear_backward_weight(d, F32(dy), F32(x), dw, dbias, ROWS, IN, OUT);
    ops->linear_backward_weight(d, F32(dy), F32(x), dw, NULL, ROWS, IN, OUT);
    ops->linear_forward(d, F32(x), w, bias, true, F32(next(r, ROWS)), ROWS, IN, 1);
    ops->linear_forward(d, F32(x), w, bias, false, F32(next(r, ROWS * OUT)), ROWS, 1, OUT);
    ops->linear_forward(d, F32(x), w, bias, true, F32(next(r, OUT)), 1, IN, OUT);
    x[5 * IN] = NAN; /* a relu does not hide it */
    ops->linear_forward(d, F32(x), w, bias, true, F32(next(r, ROWS * OUT)), ROWS, IN, OUT);
    guarded_free(x), guarded_free(w), guarded_free(bias), guarded_free(dy);
}

static void elements(struct device *d, struct results *r) {
    const struct device_ops *ops = device_ops(d);
    float *x = random_values(N, 1), *y = random_values(N, 2), *dy = random_values(N, 3);
    for (int f = 0; f < ACTIVATION_COUNT; f++) {
        float *to = next(r, N);
        ops->activation_forward(d, (enum activation)f, F32(x), F32(to), N);
        ops->activation_backward(d, (enum activation)f, F32(x), F32(to), F32(dy), F32(next(r, N)), N);
    }
    ops->add(d, F32(x), F32(y), F32(next(r, N)), N);
    ops->copy(d, F32(x), F32(next(r, N)), N);
    for (int f = 0; f < KEYED_ACTIVATION_COUNT; f++) {
        struct keyed_activation keyed = {(enum keyed_function)f, 0.1f, 0.7f};
        ops->keyed_forward(d, &keyed, F32(x), F32(next(r, N)), N);
        ops->keyed_backward(d, &keyed, F32(x), F32(dy), F32(next(r, N)), N);
    }
    for (size_t channels = 1; channels <= IN; channels += IN - 1) {
        ops->prelu_forward(d, x, y, channels, next(r, N), N);
        ops->prelu_backward(d, x, y, channels, dy, next(r, N), next_from(r, channels, 5), N);
        ops->prelu_backward(d, x, y, channels, dy, NULL, next_from(r, channels, 6), N);
    }
    for (size_t channels = 1; channels <= IN; channels += IN - 1) {
        ops->scale_forward(d, x, y, channels, next(r, N), N);
        ops->scale_backward(d, x, y, channels, dy, next(r, N), next_from(r, channels, 5), N);
        ops->scale_backward(d, x, y, channels, dy, NULL, next_from(r, channels, 6), N);
    }
    ops->image->add_relu(d, F32(x), F32(y), F32(next(r, N)), N);
    ops->multiply(d, x, y, next(r, N), N);
    ops->copy_columns(d, x + 3, 10, next_from(r, 7 * ROWS, 4) + 2, 7, ROWS, 5);
    ops->image->relu_backward(d, F32(y), F32(dy), F32(next(r, N)), N);
    ops->image->transpose(d, F32(x), F32(next(r, N)), ROWS, 7, 10);
    struct draw_key key = {.seed = 42, .stream = 3, .pass = &work_pass, .first_row = 5, .row_stride = 2};
    ops->dropout(d, &key, 0.3f, F32(x), F32(next(r, N)), ROWS, IN);
    ops->dropout(d, &key, 0.3f, F32(x), F32(next(r, 32 * 80)), 32, 80); /* whole fours */
    ops->dropout(d, &key, 1, F32(x), F32(next(r, 59 * 3)), 3, 59);
    ops->dropout_channels(d, &key, 0.3f, F32(x), F32(next(r, N)), ROWS, IN, 1);
    ops->dropout_channels(d, &key, 0.3f, F32(x), F32(next(r, N)), ROWS, IN, 14);
    ops->dropout_channels(d, &key, 0.3f, F32(x), F32(next(r, 4 * 280)), 4, 280, 140); /* more than are drawn at once */
    ops->dropout_channels(d, &key, 1, F32(x), F32(next(r, 60 * 3)), 3, 60, 5);
    ops->rrelu(d, &key, 0.1f, 0.4f, x, dy, next(r, N), ROWS, IN);
    ops->rrelu(d, &key, 0.1f, 0.4f, x, x, next(r, 3 * 59), 3, 59);
    ops->sample_normal(d, &key, x, y, next(r, N), ROWS, IN);
    ops->sample_normal_backward(d, &key, y, dy, next(r, N), ROWS, IN);
    ops->sequence->add_row(d, x, y, next(r, N), ROWS, IN);
    guarded_free(x), guarded_free(y), guarded_free(dy);
}

static void rules(struct device *d, struct results *r) {
    const struct optimizer_ops *ops = device_ops(d)->optimizers;
    float *g = random_values(N, 8), *state[12], *values[9], *before = guarded_calloc(21 * N, sizeof *before);
    ck_assert_ptr_nonnull(before);
    for (int i = 0; i < 9; i++) values[i] = next_from(r, N, 20 + (uint64_t)i);
    for (int i = 0; i < 12; i++) state[i] = memset(next(r, N), 0, N * sizeof(float));
    struct sgd_constants sgd = work_sgd;
    struct sgd_constants plain = {.minus_lr = -0.1f};
    struct adam_constants adam = {.beta1 = 0.9f,
                                  .one_minus_beta1 = 0.1f,
                                  .beta2 = 0.99f,
                                  .one_minus_beta2 = 0.01f,
                                  .eps = 1e-8f,
                                  .minus_step_size = -0.01f,
                                  .sqrt_correction2 = 0.1f,
                                  .decay_factor = 0.99f,
                                  .uses_lerp = true};
    struct adam_constants other = adam;
    other.uses_lerp = false, other.has_weight_decay = true, other.weight_decay = 0.1f;
    struct adagrad_constants adagrad = {
        .minus_lr = -0.1f, .eps = 1e-10f, .weight_decay = 0.1f, .has_weight_decay = true};
    struct rmsprop_constants rmsprop = {
        .minus_lr = -0.1f, .alpha = 0.9f, .one_minus_alpha = 0.1f, .eps = 1e-8f, .momentum = 0.9f};
    struct lion_constants lion = {.minus_lr = -0.1f,
                                  .beta1 = 0.9f,
                                  .one_minus_beta1 = 0.1f,
                                  .beta2 = 0.99f,
                                  .one_minus_beta2 = 0.01f,
                                  .decay_factor = 0.99f};
    for (int t = 0; t < 4; t++) { /* the last one is skipped */
        const float *clip = t < 3 ? &work_clip : &work_held;
        for (size_t i = 0; t == 3 && i < 21; i++)
            memcpy(before + i * N, i < 9 ? values[i] : state[i - 9], N * sizeof *before);
        sgd.is_first = t == 0;
        struct {
            enum update_rule rule;
            union optimizer_constants constants;
            const float *clip;
            float *states[OPTIMIZER_STATES];
        } updates[] = {{RULE_SGD, {.sgd = sgd}, clip, {state[0]}},
                       {RULE_SGD, {.sgd = plain}, t < 3 ? &work_whole : clip, {NULL}},
                       {RULE_ADAM, {.adam = adam}, clip, {state[1], state[2]}},
                       {RULE_ADAM, {.adam = other}, clip, {state[3], state[4], state[5]}},
                       {RULE_ADAGRAD, {.adagrad = adagrad}, clip, {state[6]}},
                       {RULE_RMSPROP, {.rmsprop = rmsprop}, clip, {state[7], state[8], state[9]}},
                       {RULE_RMSPROP, {.rmsprop = rmsprop}, clip, {state[10]}},
                       {RULE_LION, {.lion = lion}, clip, {state[11]}}};
        for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
            work_update(d, updates[i].rule, &updates[i].constants, updates[i].clip, values[i], g, updates[i].states, N);
        ops->average(d, 0.01f, clip, g, values[8], N);
    }
    for (size_t i = 0; i < 21; i++)
        ck_assert(memcmp(before + i * N, i < 9 ? values[i] : state[i - 9], N * sizeof *before) == 0);
    ops->save_or_restore(d, &work_clip, values[7], state[11], N); /* save */
    ops->save_or_restore(d, &work_held, values[6], state[11], N); /* restore */
    ck_assert(memcmp(values[6], values[7], N * sizeof *g) == 0);
    ops->clamp(d, 0.5f, values[8], N);
    guarded_free(g), guarded_free(before);
}

static void newer_rules(struct device *d, struct results *r) {
    float *g = random_values(N, 8), *values[WORK_RULES], *states[WORK_RULES][OPTIMIZER_STATES];
    for (size_t i = 0; i < WORK_RULES; i++) {
        float *buffers[OPTIMIZER_STATES];
        values[i] = next_from(r, N, 40 + i);
        for (int k = 0; k < OPTIMIZER_STATES; k++) buffers[k] = memset(next(r, N), 0, N * sizeof(float));
        work_states(work_rules[i].rule, buffers, states[i]);
    }
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < WORK_RULES; i++)
            work_update(d, work_rules[i].rule, &work_rules[i].constants, &work_clip, values[i], g, states[i], N);
    guarded_free(g);
}

/* The gradients that decide about an update, of one block and of more. */
static void decide_by_gradients(struct device *d) {
    static const size_t counts[] = {1, 7, 4096, 32768, 40000};
    const double loss = 1;
    const float norm = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float *x = random_values(counts[i], 1);
        for (size_t k = 0; k < 3; k++) {
            double nonfinite[2] = {0}, found_inf = 0, also = 0;
            float clip = 0.5f;
            if (k > 0) x[k == 1 ? counts[i] - 1 : counts[i] / 2] = k == 1 ? NAN : -INFINITY;
            device_ops(d)->check_finite(d, x, counts[i], &also);
            device_ops(d)->skip_if_nonfinite(d, x, counts[i], &loss, &norm, nonfinite, 2, &found_inf, &clip);
            ck_assert(nonfinite[0] == (k > 0) && nonfinite[1] == 0 && found_inf == (k > 0) && also == (k > 0));
            ck_assert(k > 0 ? isnan(clip) : clip == 0.5f);
        }
        guarded_free(x);
    }
}

/* After a non-finite number all updates are skipped until the host resets found_inf. */
static void decisions(struct device *d, struct results *r) {
    const struct device_ops *ops = device_ops(d);
    const double losses[] = {1, INFINITY, NAN, 1, 1, 1, 1};
    decide_by_gradients(d);
    double nonfinite[][2] = {{0}, {0}, {0}, {0}, {1, 0}, {0, 2}, {0}};
    const float norms[] = {2, 2, 2, INFINITY, 2, 2, 2};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        bool is_nonfinite = i > 0 && i < 6;
        double found_inf = 0;
        float clip = 0.5f, x = 3;
        ops->skip_if_nonfinite(d, NULL, 0, &losses[i], &norms[i], nonfinite[i], 2, &found_inf, &clip);
        ck_assert(is_nonfinite ? found_inf == 1 && isnan(clip) : found_inf == 0 && clip == 0.5f);
        clip = 0.5f;
        ops->skip_if_nonfinite(d, NULL, 0, &losses[0], &norms[0], nonfinite[0], 2, &found_inf, &clip);
        ck_assert(is_nonfinite ? found_inf == 1 && isnan(clip) : found_inf == 0 && clip == 0.5f);
        ops->propagate_nonfinite(d, &losses[i], &nonfinite[i][0], &x);
        ck_assert(i == 1 || i == 2 || i == 4 ? isnan(x) : x == 3);
        *next(r, 1) = (float)found_inf;
    }
}

static void put_sums(struct results *r, const struct loss_sums *s) {
    float *to = next(r, 4);
    to[0] = (float)s->loss, to[1] = (float)s->count, to[2] = (float)s->correct, to[3] = (float)s->scored;
}

static void losses(struct device *d, struct results *r) {
    const struct loss_ops *ops = device_ops(d)->losses;
    float *x = random_values(TOKENS * OUT, 1), *t = random_values(TOKENS * OUT, 2);
    double weight[OUT], pos_weight[3] = {0.5, 1, 3};
    float row_weights[TOKENS];
    int64_t targets[TOKENS];
    for (int i = 0; i < TOKENS; i++) row_weights[i] = (float)(i % 5) * 0.75f;
    for (int c = 0; c < OUT; c++) weight[c] = 0.25 + c % 4;
    for (int i = 0; i < TOKENS; i++) targets[i] = i % 7 == 3 ? -100 : i * 31 % OUT;
    for (int i = 0; i < 16; i++) {
        struct cross_entropy_options o = {.label_smoothing = i & 1 ? 0.1f : 0,
                                          .weight = i & 2 ? weight : NULL,
                                          .ignored = -100,
                                          .rows = {.values = i & 4 ? row_weights : NULL, .is_counted = i & 8},
                                          .row_positions = 2};
        struct loss_sums sums = {0};
        ops->cross_entropy(d, &o, F32(x), targets, TOKENS, OUT, 0.5f, F32(next(r, TOKENS * OUT)), &sums);
        ops->cross_entropy(d, &o, F32(x), targets, TOKENS, OUT, 1, NULL, &sums);
        put_sums(r, &sums);
    }
    for (int loss = LOSS_MSE; loss <= LOSS_SOFT_MARGIN; loss++) {
        struct elementwise_options o = {.loss = (enum elementwise_loss)loss,
                                        .beta = 0.5f,
                                        .pos_weight = pos_weight,
                                        .pos_weights = 3,
                                        .pos_weight_run = 1,
                                        .eps = 4,
                                        .is_full = loss != LOSS_POISSON,
                                        .alpha = 0.25f,
                                        .gamma = 1.5f};
        struct loss_sums sums = {0};
        for (int i = 0; loss == LOSS_FOCAL && i < TOKENS * OUT; i++) t[i] = (float)(i % 3 == 0);
        for (int i = 0; loss == LOSS_KL_DIV && i < TOKENS * OUT; i++) t[i] = i % 5 ? fabsf(t[i]) : 0;
        ops->elementwise(d, &o, x, t, TOKENS * OUT, 0.1f, 3, next(r, TOKENS * OUT), &sums);
        for (int counted = 0; counted < 2; counted++) {
            o.rows = (struct row_weights){.values = row_weights, .is_counted = counted};
            o.row_elements = OUT;
            ops->elementwise(d, &o, x, t, TOKENS * OUT, 0.1f, 3, next(r, TOKENS * OUT), &sums);
        }
        put_sums(r, &sums);
    }
    for (int i = 0; i < 3; i++) {
        struct cross_entropy_options o = {.weight = i ? weight : NULL,
                                          .ignored = -100,
                                          .rows = {.values = i ? row_weights : NULL, .is_counted = i > 1},
                                          .row_positions = 2};
        struct loss_sums sums = {0};
        ops->nll(d, &o, x, targets, TOKENS, OUT, 0.5f, next(r, TOKENS * OUT), &sums);
        ops->nll(d, &o, x, targets, TOKENS, OUT, 1, NULL, &sums);
        o.margin = 0.7f, o.squares = o.weight != NULL;
        ops->multi_margin(d, &o, x, targets, TOKENS, OUT, 0.5f, next(r, TOKENS * OUT), &sums);
        put_sums(r, &sums);
        struct rowwise_options dice = {.smooth = 1e-5f, .parts = 1, .targets = i ? OUT : TOKENS * OUT, .row_masks = 1};
        dice.rows = (struct row_weights){.values = i ? row_weights : NULL, .is_counted = i > 1};
        ops->rowwise(d, &dice, x, t, i ? TOKENS : 1, dice.targets, 0.5f, next(r, TOKENS * OUT), &sums);
        dice = (struct rowwise_options){.smooth = 1,
                                        .parts = 1,
                                        .targets = OUT,
                                        .rows = {.values = row_weights, .is_counted = i > 1},
                                        .row_masks = 2};
        ops->rowwise(d, &dice, x, t, TOKENS, OUT, 1, NULL, &sums);
        put_sums(r, &sums);
        for (int loss = ROWWISE_GAUSSIAN_NLL; loss <= ROWWISE_MULTILABEL_MARGIN; loss++) {
            size_t parts = loss == ROWWISE_TRIPLET_MARGIN  ? 3
                           : loss >= ROWWISE_CROSS_ENTROPY ? 1
                                                           : 2,
                   size = OUT / parts;
            struct rowwise_options pair = {
                .loss = (enum rowwise_loss)loss, .eps = 0.01f, .margin = 0.2f, .parts = parts};
            pair.is_full = i > 1, pair.is_swapped = i > 0, pair.row_masks = 1;
            pair.targets = loss == ROWWISE_TRIPLET_MARGIN ? 0 : loss == ROWWISE_COSINE_EMBEDDING ? 1 : size;
            pair.smooth = 0.1f, pair.weight = loss == ROWWISE_CROSS_ENTROPY && i ? weight : NULL;
            pair.rows = (struct row_weights){.values = i ? row_weights : NULL, .is_counted = i > 1};
            for (int k = 0; k < TOKENS; k++) t[k] = loss == ROWWISE_COSINE_EMBEDDING && k % 2 ? -1 : 1;
            for (int k = 0; loss == ROWWISE_MULTILABEL_MARGIN && k < TOKENS * OUT; k++)
                t[k] = k % 11 == 10 ? -1 : (float)(k * 7 % OUT);
            ops->rowwise(d, &pair, x, t, TOKENS, size, 0.5f, next(r, TOKENS * parts * size), &sums);
            put_sums(r, &sums);
        }
    }
    int64_t classes[TOKENS * 2];
    struct loss_sums parts[3] = {{.loss = 6, .count = 2}, {.loss = 0}, {.loss = -1, .count = 4}},
                     sums = {.loss = 1, .count = 2};
    const double weights[] = {0.5, 2, 4};
    for (int i = 0; i < TOKENS * OUT; i++) x[i] = (float)(i * 31 % 97);
    ops->to_classes(d, x + 1, OUT, classes, TOKENS, 2);
    float *to = next(r, TOKENS * 2);
    for (int i = 0; i < TOKENS * 2; i++) {
        ck_assert_int_eq(classes[i], (i / 2 * OUT + 1 + i % 2) * 31 % 97);
        to[i] = (float)classes[i];
    }
    ops->combine(d, parts, weights, 3, 5, &sums);
    ck_assert(sums.loss == 1 + 5 * (0.5 * 3 - 4 * 0.25) && sums.count == 7);
    put_sums(r, &sums);
    guarded_free(x), guarded_free(t);
}

/* (rows, size) logits of which the first, the last and every third are [masked]; their last row is [last]. */
static float *masked_logits(size_t rows, size_t size, float masked, float last) {
    float *x = random_values(rows * size, 1);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < size; j++) {
            bool is_masked = j < size / 2 || j % 3 == 0 || j > size - size / 8;
            if (is_masked) x[i * size + j] = i + 1 < rows ? masked : last;
        }
    return x;
}

/* Logits of -inf have the probability 0 and no gradient. A NaN or an inf makes its row NaN, wherever it is, and so do
 * only -inf. */
static void masked(struct device *d, struct results *r) {
    const struct loss_ops *ops = device_ops(d)->losses;
    const size_t sizes[] = {2, 5, 45, 300, 1021, 2048, 20000};
    const struct {
        float masked, last;
    } values[] = {{-INFINITY, -INFINITY}, {-INFINITY, NAN}, {-INFINITY, INFINITY}, {-65504, 65504}};
    int64_t targets[4];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            size_t size = sizes[k], rows = sizeof targets / sizeof *targets;
            float *x = masked_logits(rows, size, values[v].masked, values[v].last), *y = next(r, rows * size);
            for (size_t j = 0; j < size; j++) x[size + j] = j + 2 < size ? -INFINITY : 1; /* all but the last two */
            for (size_t i = 0; i < rows; i++) targets[i] = (int64_t)(size - 1 - (size > 2 ? size / 8 : 0));
            device_ops(d)->sequence->softmax_forward(d, x, y, rows, size);
            for (int smooth = 0; smooth < 2; smooth++)
                for (size_t used = rows - 1; used <= rows; used++) {
                    struct cross_entropy_options o = {.label_smoothing = smooth ? 0.1f : 0, .ignored = -100};
                    struct loss_sums sums = {0};
                    ops->cross_entropy(d, &o, F32(x), targets, used, size, 1, F32(next(r, used * size)), &sums);
                    sums.correct = 0; /* of rows without a largest number it is undefined */
                    put_sums(r, &sums);
                }
            ck_assert(size < 5 || y[0] == 0); /* no NaN: the first row is only masked */
            guarded_free(x);
        }
}

static void norms(struct device *d, struct results *r) {
    const struct norm_ops *ops = device_ops(d)->norm_layers;
    float *x = random_values(N, 1), *w = random_values(IN, 2), *b = random_values(IN, 3), *dy = random_values(N, 4);
    for (int i = 0; i < 4; i++) {
        const float *weight = i & 1 ? w : NULL, *bias = i & 1 ? b : NULL;
        bool adds = i & 2;
        float *statistics = next(r, 2 * ROWS), *dw = next_from(r, IN, 5), *db = next_from(r, IN, 6);
        ops->layer_norm_forward(d, x, weight, bias, 1e-5f, F32(next(r, N)), statistics, ROWS, IN);
        ops->layer_norm_backward(d, x, weight, statistics, F32(dy), F32(next_from(r, N, 7)), adds, weight ? dw : NULL,
                                 bias ? db : NULL, ROWS, IN);
        ops->layer_norm_backward(d, x, weight, statistics, F32(dy), NULL, false, dw, NULL, ROWS, IN);
        ops->rms_norm_forward(d, x, weight, 1e-5f, F32(next(r, N)), statistics, ROWS, IN);
        ops->rms_norm_backward(d, x, weight, statistics, F32(dy), F32(next_from(r, N, 8)), adds, dw, ROWS, IN);
    }
    guarded_free(x), guarded_free(w), guarded_free(b), guarded_free(dy);
}

static void sequences(struct device *d, struct results *r) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) tokens[i] = i * 17 % ROWS;
    float *table = random_values(N, 1), *dy = random_values(TOKENS * IN, 2), *x = random_values(TOKENS * IN, 3);
    ops->embedding_forward(d, tokens, table, next(r, TOKENS * IN), TOKENS, ROWS, IN);
    ops->embedding_backward(d, tokens, dy, next_from(r, N, 4), TOKENS, ROWS, IN);
    ops->sum_rows(d, x, next_from(r, IN, 5), TOKENS, IN);
    float *y = next(r, TOKENS * IN);
    ops->softmax_forward(d, x, y, IN, TOKENS);
    ops->softmax_backward(d, y, dy, next(r, TOKENS * IN), IN, TOKENS);
    guarded_free(table), guarded_free(dy), guarded_free(x);
}

static void attention(struct device *d, struct results *r) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    for (int causal = 0; causal < 2; causal++) {
        struct attention_shape s = {.rows = 2, .tokens = TOKENS, .heads = 3, .head_size = 16, .is_causal = causal};
        size_t values = s.rows * s.tokens * s.heads * s.head_size;
        float *qkv = random_values(3 * values, 1), *dy = random_values(values, 2), *y = next(r, values);
        float *softmaxes = guarded_malloc(2 * s.rows * s.heads * s.tokens * sizeof *softmaxes);
        ops->attention_forward(d, &s, F32(qkv), F32(y), softmaxes);
        ops->attention_backward(d, &s, F32(qkv), F32(y), softmaxes, F32(dy), F32(next(r, 3 * values)));
        guarded_free(qkv), guarded_free(dy), guarded_free(softmaxes);
    }
}

static void rotations_and_groups(struct device *d, struct results *r) {
    const struct sequence_ops *ops = device_ops(d)->sequence;
    struct head_groups groups = {.positions = 2 * TOKENS, .heads = 6, .kv_heads = 2, .head_size = 4};
    float *x = random_values((size_t)2 * TOKENS * 40, 1), *y = random_values((size_t)2 * TOKENS * 72, 2);
    float *table = random_values((size_t)TOKENS * 4, 3);
    for (int i = 0; i < 4; i++) {
        struct rotation rotation = {.rows = 2,
                                    .tokens = TOKENS,
                                    .features = 40,
                                    .heads = 8,
                                    .head_size = 4,
                                    .is_interleaved = i & 1,
                                    .is_inverse = i & 2};
        ops->rotate(d, &rotation, table, x, next(r, (size_t)2 * TOKENS * 40));
    }
    ops->repeat_heads(d, &groups, x, next(r, (size_t)2 * TOKENS * 72));
    ops->sum_heads(d, &groups, y, next(r, (size_t)2 * TOKENS * 40));
    guarded_free(x), guarded_free(y), guarded_free(table);
}

static void whole_buffers(struct device *d, struct results *r) {
    const struct device_ops *ops = device_ops(d);
    const struct device_range ranges[] = {{0, 1000}, {1008, 1009}, {1024, WHOLE}};
    float *x = random_values(WHOLE, 1), bad[] = {INFINITY, -INFINITY, NAN};
    struct clip_norm norm = {0};
    double found = 0;
    *next(r, 1) = ops->norm(d, x, WHOLE);
    *next(r, 1) = ops->is_finite(d, F32(x), WHOLE);
    for (size_t i = 0; i < 3; i++) {
        float keep = x[i * 100003];
        x[i * 100003] = bad[i];
        *next(r, 1) = ops->is_finite(d, F32(x), WHOLE);
        ops->check_finite(d, x, WHOLE, &found);
        ops->clip_norm(d, x, ranges, 3, 1, 1, &norm);
        *next(r, 1) = norm.norm, *next(r, 1) = norm.clip;
        x[i * 100003] = keep;
    }
    ops->check_finite(d, x, WHOLE, &found);
    *next(r, 1) = (float)found;
    for (int max = 0; max < 3000; max += 1000) {
        ops->clip_norm(d, x, ranges, 3, (float)max, 4, &norm);
        *next(r, 1) = norm.norm, *next(r, 1) = norm.clip;
    }
    double sums[3] = {-1, -1, -1};
    ops->squares(d, x, ranges, 3, sums);
    for (size_t i = 0; i < 3; i++) *next(r, 1) = (float)sums[i];
    guarded_free(x);
}

/* Device memory: zero at first, copied in both directions, changed by host and device in turns. */
static void own_memory(struct device *d, struct results *r) {
    const struct device_ops *ops = device_ops(d);
    float *x = random_values(N, 1), *memory, *at;
    ck_assert(!device_alloc(d, N * sizeof *memory, "a test", (void **)&memory));
    ck_assert(!device_download(d, next(r, N), memory, N * sizeof *x));
    device_upload(d, memory, x, N * sizeof *x);
    memset(x, 0, N * sizeof *x); /* the device has a copy */
    ops->add(d, F32(memory), F32(memory), F32(memory), N);
    at = memory;
    for (int turn = 0; turn < 3; turn++) {
        ck_assert(!device_map(d, (void **)&at));
        ck_assert(!device_map(d, (void **)&at)); /* nested */
        memcpy(next(r, N), at, N * sizeof *at);
        for (size_t i = 0; i < N; i++) at[i] += 1;
        ck_assert(!device_unmap(d, (void **)&at, false));
        ck_assert(!device_unmap(d, (void **)&at, turn == 1 || device_is_host(d)));
        ck_assert_ptr_eq(at, memory);
        if (turn != 1 && device_is_host(d)) /* unmapped without changes */
            for (size_t i = 0; i < N; i++) at[i] -= 1;
        ops->add(d, F32(memory), F32(memory), F32(memory), N);
    }
    ck_assert(!device_download(d, next(r, N), memory, N * sizeof *x));
    device_zero(d, memory, N / 2 * sizeof *x);
    ck_assert(!device_download(d, next(r, N), memory, N * sizeof *x));
    device_free(d, memory);
    guarded_free(x);
}

static const struct operator_case operator_cases[] = {
    {"products", products, 1e-5},
    {"elements", elements, 1e-6},
    {"rules", rules, 1e-6},
    {"newer rules", newer_rules, 1e-6},
    {"masked", masked, 1e-6},
    {"losses", losses, 1e-5},
    {"norms", norms, 1e-5},
    {"sequences", sequences, 1e-5},
    {"attention", attention, 2e-5},
    {"decisions", decisions, 0},
    {"rotations and groups", rotations_and_groups, 1e-6},
    {"whole buffers", whole_buffers, 1e-6},
    {"own memory", own_memory, 1e-6},
};
