/* Every operator over images, as cases for any device: convolutions, poolings, norms in every mode. For tests only. */
#pragma once

#include "operator_case.h"

static size_t elements(const struct image_shape *i) { return i->height * i->width * i->channels; }

static const struct pooling poolings[] = {
    /* each element in one window */
    {.in = {6, 8, 5}, .out = {3, 4, 5}, .window = {{2, 2}, {2, 2}, {0, 0}, {1, 1}}, .has_relu = true},
    /* overlapping windows with padding; windows with gaps */
    {.in = {9, 7, 33}, .out = {5, 4, 33}, .window = {{3, 3}, {2, 2}, {1, 1}, {1, 1}}},
    {.in = {9, 8, 3}, .out = {3, 3, 3}, .window = {{2, 1}, {3, 3}, {0, 0}, {1, 1}}, .has_relu = true},
    /* ceil_mode: the last windows exceed the padded image */
    {.in = {6, 7, 4}, .out = {3, 3, 4}, .window = {{3, 4}, {2, 3}, {0, 1}, {1, 1}}},
    {.in = {5, 6, 4}, .out = {3, 3, 4}, .window = {{3, 4}, {2, 2}, {1, 1}, {1, 1}}, .excludes_padding = true},
    {.in = {5, 6, 2}, .out = {3, 3, 2}, .window = {{3, 3}, {2, 2}, {1, 1}, {1, 1}}, .divisor = 5},
    /* a signal; a window of 256 positions, the maximum; one element */
    {.in = {1, 40, 70}, .out = {1, 13, 70}, .window = {{1, 5}, {1, 3}, {0, 2}, {1, 1}}},
    {.in = {16, 16, 2}, .out = {1, 1, 2}, .window = {{16, 16}, {16, 16}, {0, 0}, {1, 1}}},
    {.in = {1, 1, 1}, .out = {1, 1, 1}, .window = {{1, 1}, {1, 1}, {0, 0}, {1, 1}}},
};

/* Adaptive windows; outputs smaller and larger than the image. */
static const struct pooling adaptive[] = {
    {.in = {7, 9, 6}, .out = {1, 1, 6}, .window = {.kernel = {7, 9}}, .is_adaptive = true},
    {.in = {7, 9, 6}, .out = {3, 4, 6}, .window = {.kernel = {3, 3}}, .is_adaptive = true},
    {.in = {3, 2, 65}, .out = {5, 7, 65}, .window = {.kernel = {2, 2}}, .is_adaptive = true},
};

/* Multiples of 1/4, so that a window has several maxima; one NaN. */
static float *coarse_values(size_t count, uint64_t seed) {
    float *values = random_values(count, seed);
    for (size_t i = 0; i < count; i++) values[i] = roundf(values[i] * 4) / 4;
    values[count / 2] = NAN;
    return values;
}

#define ROWS 3

static void max_poolings(struct device *d, struct results *r) {
    const struct image_ops *ops = device_ops(d)->image;
    size_t windows = sizeof poolings / sizeof *poolings, count = windows + sizeof adaptive / sizeof *adaptive;
    for (size_t i = 0; i < count; i++) {
        const struct pooling *p = i < windows ? &poolings[i] : &adaptive[i - windows];
        size_t in = ROWS * elements(&p->in), out = ROWS * elements(&p->out);
        float *x = coarse_values(in, i), *dy = random_values(out, 100 + i), *y = next(r, out);
        uint8_t *index = next_bytes(r, out);
        ops->max_pool_forward(d, p, F32(x), F32(y), index, ROWS);
        ops->max_pool_backward(d, p, F32(y), index, F32(dy), F32(next_from(r, in, 1)), ROWS);
        float *again = next(r, out);
        ops->max_pool_gather(d, p, index, F32(x), F32(again), ROWS);
        for (size_t o = 0; o < out; o++) ck_assert(again[o] == y[o] || isnan(y[o]) || (p->has_relu && y[o] == 0));
        guarded_free(x), guarded_free(dy);
    }
}

static void average(struct device *d, struct results *r, const struct pooling *p) {
    const struct image_ops *ops = device_ops(d)->image;
    size_t in = ROWS * elements(&p->in), out = ROWS * elements(&p->out);
    float *x = random_values(in, 1), *dy = random_values(out, 2);
    ops->avg_pool_forward(d, p, F32(x), F32(next(r, out)), ROWS);
    ops->avg_pool_backward(d, p, F32(dy), F32(next_from(r, in, 3)), ROWS);
    guarded_free(x), guarded_free(dy);
}

static void average_poolings(struct device *d, struct results *r) {
    for (size_t i = 0; i < sizeof poolings / sizeof *poolings; i++) average(d, r, &poolings[i]);
    for (size_t i = 0; i < sizeof adaptive / sizeof *adaptive; i++) average(d, r, &adaptive[i]);
}

/* Replaces the sums by those of all processes; [user]: how often the rows of this process occur. */
static void multiply(void *user, double *values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] *= *(double *)user;
}

/* Adds the sums of the other process: 1 for the gradients, 1 and 2 for those of forward, over 3 positions. */
static void add_others(void *user, double *values, size_t count) {
    size_t channels = *(size_t *)user;
    for (size_t i = 0; i < count; i++) values[i] += i < channels ? 1 : i < 2 * channels ? 2 : 3;
}

struct norm_case {
    size_t channels, count;
    bool uses_batch, has_relu, is_affine, has_running, is_shared;
};

static const struct norm_case norm_cases[] = {
    {.channels = 1, .count = 300, .uses_batch = true, .is_affine = true, .has_running = true},
    {.channels = 3, .count = 2, .uses_batch = true, .has_running = true},
    {.channels = 5, .count = 1, .uses_batch = true, .is_affine = true, .has_running = true, .has_relu = true},
    {.channels = 16, .count = 777, .uses_batch = true, .is_affine = true, .has_relu = true},
    {.channels = 33, .count = 600, .uses_batch = true, .is_affine = true, .has_running = true, .has_relu = true},
    {.channels = 70, .count = 41, .uses_batch = true, .is_affine = true, .has_running = true, .is_shared = true},
    {.channels = 6, .count = 90, .uses_batch = true, .is_shared = true, .has_relu = true},
    {.channels = 40, .count = 50, .has_running = true, .is_affine = true, .has_relu = true},
    {.channels = 4, .count = 50, .has_running = true},
    {.channels = 28, .count = 90, .uses_batch = true, .is_affine = true, .has_relu = true},
};

static void batch_norm(struct device *d, struct results *r, const struct norm_case *n) {
    const struct image_ops *ops = device_ops(d)->image;
    double processes = 3;
    struct all_sum sync = {multiply, &processes};
    struct batch_norm norm = {.channels = n->channels,
                              .eps = 1e-5f,
                              .momentum = 0.1f,
                              .uses_batch = n->uses_batch,
                              .has_relu = n->has_relu,
                              .sync = n->is_shared ? &sync : NULL};
    size_t all = n->channels * n->count;
    float *x = random_values(all, 1), *dy = random_values(all, 2),
          *work = guarded_calloc(BATCH_NORM_WORK(n->channels), 4);
    for (size_t i = 0; i < all; i++) x[i] += 3 * (float)(i % n->channels % 4); /* means of several deviations */
    float *weight = random_values(n->channels, 3), *bias = random_values(n->channels, 4);
    float *mean = next_from(r, n->channels, 5), *variance = next_from(r, n->channels, 6);
    for (size_t i = 0; i < n->channels; i++) variance[i] = fabsf(variance[i]) + 0.5f;
    ops->batch_norm_forward(d, &norm, F32(x), n->is_affine ? weight : NULL, n->is_affine ? bias : NULL,
                            n->has_running ? mean : NULL, n->has_running ? variance : NULL, work, F32(next(r, all)),
                            n->count);
    ops->batch_norm_recompute(d, &norm, F32(x), work, F32(next(r, all)), n->count);
    float *dweight = next_from(r, n->channels, 7), *dbias = next_from(r, n->channels, 8);
    if (n->uses_batch) {
        ops->batch_norm_backward(d, &norm, F32(x), F32(dy), work, F32(next(r, all)), n->is_affine ? dweight : NULL,
                                 n->is_affine ? dbias : NULL, n->count);
        ops->batch_norm_backward(d, &norm, F32(x), F32(dy), work, NULL, dweight, dbias, n->count);
    }
    guarded_free(x), guarded_free(dy), guarded_free(work), guarded_free(weight), guarded_free(bias);
}

static void batch_norms(struct device *d, struct results *r) {
    for (size_t i = 0; i < sizeof norm_cases / sizeof *norm_cases; i++) batch_norm(d, r, &norm_cases[i]);
}

/* A process without rows calls the sums, too. */
static void batch_norm_of_others(struct device *d, struct results *r) {
    const struct image_ops *ops = device_ops(d)->image;
    size_t channels = 35;
    struct all_sum sync = {add_others, &channels};
    struct batch_norm norm = {.channels = channels, .eps = 1e-5f, .momentum = 0.1f, .uses_batch = true, .sync = &sync};
    float none, *work = guarded_calloc(BATCH_NORM_WORK(channels), 4);
    float *weight = random_values(channels, 1), *bias = random_values(channels, 2);
    ops->batch_norm_forward(d, &norm, NULL, weight, bias, next_from(r, channels, 3), next_from(r, channels, 4), work,
                            F32(&none), 0);
    ops->batch_norm_backward(d, &norm, F32(&none), F32(&none), work, F32(&none), next_from(r, channels, 5),
                             next_from(r, channels, 6), 0);
    guarded_free(work), guarded_free(weight), guarded_free(bias);
}

static const struct group_norm group_cases[] = {
    {.channels = 6, .groups = 3, .positions = 35, .eps = 1e-5f},
    {.channels = 70, .groups = 1, .positions = 9, .eps = 1e-3f},
    {.channels = 33, .groups = 33, .positions = 20, .eps = 1e-5f},
    {.channels = 600, .groups = 2, .positions = 3, .eps = 1e-5f},
    {.channels = 4, .groups = 2, .positions = 1, .eps = 1e-5f},
};

static void group_norms(struct device *d, struct results *r) {
    const struct image_ops *ops = device_ops(d)->image;
    for (size_t i = 0; i < sizeof group_cases / sizeof *group_cases; i++) {
        const struct group_norm *norm = &group_cases[i];
        size_t all = ROWS * norm->channels * norm->positions;
        float *x = random_values(all, 1), *dy = random_values(all, 2);
        float *weight = random_values(norm->channels, 3), *bias = random_values(norm->channels, 4);
        for (size_t e = 0; e < all; e++) x[e] += 5;
        for (int affine = 0; affine < 2; affine++) {
            float *saved = next(r, ROWS * 2 * norm->groups);
            float *dweight = next_from(r, norm->channels, 5), *dbias = next_from(r, norm->channels, 6);
            ops->group_norm_forward(d, norm, F32(x), affine ? weight : NULL, affine ? bias : NULL, saved,
                                    F32(next(r, all)), ROWS);
            ops->group_norm_backward(d, norm, F32(x), affine ? weight : NULL, saved, F32(dy), F32(next(r, all)),
                                     affine ? dweight : NULL, affine ? dbias : NULL, ROWS);
        }
        guarded_free(x), guarded_free(dy), guarded_free(weight), guarded_free(bias);
    }
}

static const struct convolution convolutions[] = {
    {.in = {7, 6, 3}, .out = {7, 6, 8}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1, .has_bias = true},
    {.in = {8, 9, 4},
     .out = {4, 5, 6},
     .window = {{3, 2}, {2, 2}, {1, 1}, {1, 1}},
     .groups = 1,
     .has_bias = true,
     .has_relu = true},
    {.in = {9, 7, 6}, .out = {5, 5, 4}, .window = {{3, 3}, {1, 2}, {0, 3}, {2, 2}}, .groups = 2, .has_relu = true},
    {.in = {4, 4, 40}, .out = {2, 2, 40}, .window = {{1, 1}, {2, 2}, {0, 0}, {1, 1}}, .groups = 1},
    {.in = {1, 33, 5}, .out = {1, 17, 10}, .window = {{1, 5}, {1, 2}, {0, 2}, {1, 1}}, .groups = 5, .has_bias = true},
    /* more padding behind the image than before it */
    {.in = {6, 5, 3}, .out = {6, 5, 4}, .window = {{2, 4}, {1, 1}, {0, 1}, {1, 1}}, .groups = 1, .has_bias = true},
    {.in = {6, 7, 8}, .out = {6, 7, 8}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 8, .has_bias = true},
    {.in = {9, 11, 45}, .out = {5, 5, 45}, .window = {{3, 3}, {2, 2}, {1, 0}, {1, 1}}, .groups = 45, .has_relu = true},
    {.in = {9, 13, 33},
     .out = {7, 5, 33},
     .window = {{3, 5}, {1, 3}, {1, 2}, {2, 1}},
     .groups = 33,
     .has_bias = true,
     .has_relu = true},
};

/* With prepared plans, and with a number of rows without a plan. */
static void convolve(struct device *d, struct results *r, const struct convolution *c, size_t rows, bool is_prepared) {
    const struct convolution_ops *ops = device_ops(d)->convolution;
    struct device_convolution *made;
    status s = ops->create(d, c, rows, &made);
    ck_assert_msg(!s, "%s", status_message(s));
    if (is_prepared && ops->prepare) ck_assert(!ops->prepare(made, rows, true));
    size_t in = rows * elements(&c->in), out = rows * elements(&c->out), channels = c->out.channels;
    size_t weights = channels * (c->in.channels / c->groups) * c->window.kernel[0] * c->window.kernel[1];
    float *x = random_values(in, 1), *w = random_values(weights, 2), *bias = random_values(channels, 3);
    float *dy = random_values(out, 4);
    ops->forward(made, F32(x), w, c->has_bias ? bias : NULL, F32(next(r, out)), rows);
    float *dbias = next_from(r, channels, 5);
    ops->backward(made, F32(x), w, F32(dy), F32(next(r, in)), next_from(r, weights, 6), c->has_bias ? dbias : NULL,
                  rows);
    ops->backward(made, F32(x), w, F32(dy), NULL, next_from(r, weights, 7), c->has_bias ? dbias : NULL, rows);
    ops->backward(made, NULL, w, F32(dy), F32(next(r, in)), NULL, NULL, rows);
    ops->destroy(made);
    guarded_free(x), guarded_free(w), guarded_free(bias), guarded_free(dy);
}

static void all_convolutions(struct device *d, struct results *r) {
    for (size_t i = 0; i < sizeof convolutions / sizeof *convolutions; i++) {
        convolve(d, r, &convolutions[i], 2, true);
        convolve(d, r, &convolutions[i], 3, false);
    }
}

/* Plans of another precision replace the earlier ones. */
static void rounded_convolutions(struct device *d, struct results *r) {
    ck_assert(!device_set_precision(d, PRECISION_TF32));
    all_convolutions(d, r);
}

/* A relu does not hide a NaN. */
static void convolution_of_nan(struct device *d, struct results *r) {
    const struct convolution_ops *ops = device_ops(d)->convolution;
    struct convolution c = {.in = {2, 2, 1},
                            .out = {2, 2, 1},
                            .window = {{1, 1}, {1, 1}, {0, 0}, {1, 1}},
                            .groups = 1,
                            .has_bias = true,
                            .has_relu = true};
    struct device_convolution *made;
    float x[4] = {1, NAN, -1, 0}, w = 1, bias = 0.5f;
    ck_assert(!ops->create(d, &c, 1, &made));
    ops->forward(made, F32(x), &w, &bias, F32(next(r, 4)), 1);
    ops->destroy(made);
}

static const struct operator_case image_cases[] = {
    {"convolutions", all_convolutions, 2e-5},
    {"convolutions in TF32", rounded_convolutions, 1e-2},
    {"a convolution of NaN", convolution_of_nan, 0},
    {"maximum poolings", max_poolings, 0},
    {"average poolings", average_poolings, 0},
    {"batch norms", batch_norms, 1e-5},
    {"batch norm of other processes' rows", batch_norm_of_others, 1e-5},
    {"group norms", group_norms, 1e-5},
};
