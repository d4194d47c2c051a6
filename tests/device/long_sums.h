/* Sums of many positive numbers, by every operator that has them, against sums in double. A limit is at most four times
 * the error of PyTorch 2.15 on the same shape (float32, on the CPU), relative to the largest value. For tests only. */
#pragma once

#include "operator_case.h"

#define TERMS ((size_t)1 << 17)

/* (count), from 0.5 to 1 */
static float *positive_values(size_t count, uint64_t seed) {
    float *values = guarded_malloc(count * sizeof *values);
    struct rng rng;
    rng_seed(&rng, seed);
    rng_uniform(&rng, values, count, 0.5, 1);
    return values;
}

/* A sum in double beside each result. */
static void expect(const char *what, const float *found, const double *sums, size_t count, double limit) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(sums[i]));
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)found[i] - sums[i]) / largest;
        if (!(error <= limit)) ck_abort_msg("%s %zu: %.9g, not %.9g (%.1e)", what, i, (double)found[i], sums[i], error);
    }
}

#define IN 5
#define OUT 3
#define HEAD 8

static void take_part(void *user, size_t first, size_t rows) {
    float *const *dw = user;
    memcpy(dw[1] + first * IN, dw[0], rows * IN * sizeof **dw);
}

static void weights_and_biases(struct device *d) {
    float *x = positive_values(TERMS * IN, 1), *dy = positive_values(TERMS * OUT, 2), dw[OUT * IN] = {0}, db[OUT] = {0};
    double weights[OUT * IN] = {0}, biases[OUT] = {0};
    for (size_t i = 0; i < TERMS * OUT; i++) {
        biases[i % OUT] += (double)dy[i];
        for (size_t j = 0; j < IN; j++) weights[i % OUT * IN + j] += (double)dy[i] * (double)x[i / OUT * IN + j];
    }
    device_ops(d)->linear_backward_weight(d, F32(dy), F32(x), dw, db, TERMS, IN, OUT);
    expect("bias", db, biases, OUT, 4e-7);
    if (device_is_host(d)) { /* of a GPU by cuBLASLt */
        float part[OUT * IN], parts[OUT * IN], db_of_parts[OUT];
        expect("weight", dw, weights, OUT * IN, 6e-6);
        const struct part_receiver receiver = {take_part, (float *[]){part, parts}};
        device_ops(d)->linear_backward_weight_in_parts(d, dy, x, part, db_of_parts, TERMS, IN, OUT, 1, &receiver);
        ck_assert(memcmp(parts, dw, sizeof dw) == 0 && memcmp(db_of_parts, db, sizeof db) == 0);
    }
    guarded_free(x), guarded_free(dy);
}

static void inner_dimension(struct device *d) {
    float *x = positive_values(OUT * TERMS, 1), *w = positive_values(OUT * TERMS, 2), y[OUT * OUT];
    float bias[OUT] = {1, 2, 3};
    double sums[OUT * OUT];
    if (!device_is_host(d)) return; /* by cuBLASLt */
    for (size_t i = 0; i < OUT * OUT; i++) sums[i] = (double)bias[i % OUT];
    for (size_t i = 0; i < OUT * OUT; i++)
        for (size_t k = 0; k < TERMS; k++) sums[i] += (double)x[i / OUT * TERMS + k] * (double)w[i % OUT * TERMS + k];
    device_ops(d)->linear_forward(d, F32(x), w, bias, false, F32(y), OUT, TERMS, OUT);
    expect("output", y, sums, OUT * OUT, 6e-6);
    guarded_free(x), guarded_free(w);
}

static void layer_norm_parameters(struct device *d) {
    float *x = positive_values(TERMS * IN, 1), *dy = positive_values(TERMS * IN, 2),
          *y = positive_values(TERMS * IN, 3);
    float *statistics = positive_values(2 * TERMS, 4), weight[IN] = {1, 1, 1, 1, 1}, dw[IN] = {0}, db[IN] = {0};
    double weights[IN] = {0}, biases[IN] = {0};
    const struct norm_ops *ops = device_ops(d)->norm_layers;
    ops->layer_norm_forward(d, x, weight, weight, 1e-5f, F32(y), statistics, TERMS, IN);
    for (size_t i = 0; i < TERMS * IN; i++) x[i] = fabsf(x[i] - statistics[i / IN * 2]) + statistics[i / IN * 2];
    for (size_t i = 0; i < TERMS * IN; i++) {
        double mean = (double)statistics[i / IN * 2], scale = (double)statistics[i / IN * 2 + 1];
        weights[i % IN] += (double)dy[i] * (((double)x[i] - mean) * scale);
        biases[i % IN] += (double)dy[i];
    }
    ops->layer_norm_backward(d, x, weight, statistics, F32(dy), F32(y), false, dw, db, TERMS, IN);
    expect("layer_norm's weight", dw, weights, IN, 4e-6);
    expect("layer_norm's bias", db, biases, IN, 4e-6);
    memset(weights, 0, sizeof weights);
    ops->rms_norm_forward(d, x, weight, 1e-5f, F32(y), statistics, TERMS, IN);
    for (size_t i = 0; i < TERMS * IN; i++)
        weights[i % IN] += (double)dy[i] * ((double)x[i] * (double)statistics[i / IN]);
    memset(dw, 0, sizeof dw);
    ops->rms_norm_backward(d, x, weight, statistics, F32(dy), F32(y), false, dw, TERMS, IN);
    expect("rms_norm's weight", dw, weights, IN, 1.6e-6);
    guarded_free(x), guarded_free(dy), guarded_free(y), guarded_free(statistics);
}

static void group_norm_parameters(struct device *d) {
    struct group_norm norm = {.channels = 4, .groups = 2, .positions = TERMS / 4, .eps = 1e-5f};
    size_t rows = 4, count = rows * norm.positions * norm.channels;
    float *x = positive_values(count, 1), *dy = positive_values(count, 2), *y = positive_values(count, 3);
    float weight[4] = {1, 1, 1, 1}, saved[2 * 4 * 2], dw[4] = {0}, db[4] = {0};
    double weights[4] = {0}, biases[4] = {0};
    device_ops(d)->image->group_norm_forward(d, &norm, F32(x), weight, weight, saved, F32(y), rows);
    for (size_t i = 0; i < count; i++) {
        const float *s = saved + (i / 4 / norm.positions * 2 + i % 4 / 2) * 2;
        x[i] = fabsf(x[i] - s[0]) + s[0];
        weights[i % 4] += (double)dy[i] * (((double)x[i] - (double)s[0]) * (double)s[1]);
        biases[i % 4] += (double)dy[i];
    }
    device_ops(d)->image->group_norm_backward(d, &norm, F32(x), weight, saved, F32(dy), F32(y), dw, db, rows);
    expect("weight", dw, weights, 4, 7e-7);
    expect("bias", db, biases, 4, 7e-7);
    guarded_free(x), guarded_free(dy), guarded_free(y);
}

/* Means, sums of rows and a mean over an image: of several columns and of one. */
static void means_of_many(struct device *d) {
    const struct pooling whole = {
        .in = {256, 512, OUT}, .out = {1, 1, OUT}, .window = {.kernel = {256, 512}}, .is_adaptive = true};
    float *x = positive_values(TERMS * OUT, 1), y[OUT], rows[OUT] = {0}, pooled[OUT], one;
    double sums[OUT] = {0}, mean[OUT], first = 0;
    for (size_t i = 0; i < TERMS * OUT; i++) sums[i % OUT] += (double)x[i];
    for (size_t i = 0; i < TERMS; i++) first += (double)x[i] / (double)TERMS;
    for (size_t i = 0; i < OUT; i++) mean[i] = sums[i] / (double)TERMS;
    device_ops(d)->sequence->mean_forward(d, x, NULL, y, 1, TERMS, OUT);
    device_ops(d)->sequence->mean_forward(d, x, NULL, &one, 1, TERMS, 1);
    device_ops(d)->sequence->sum_rows(d, x, rows, TERMS, OUT);
    device_ops(d)->image->avg_pool_forward(d, &whole, F32(x), F32(pooled), 1);
    expect("mean", y, mean, OUT, 4e-7);
    expect("mean of one column", &one, &first, 1, 4e-7);
    expect("sum of rows", rows, sums, OUT, 4e-7);
    expect("pooled", pooled, mean, OUT, 1.2e-6); /* PyTorch 6e-8 with mean, up to 9e-6 with avg_pool2d */
    guarded_free(x);
}

/* Long rows: softmax, its logarithm, norms. The outputs are divided by their largest value. */
static void rows_of_many(struct device *d) {
    size_t count = 4 * TERMS;
    float *x = positive_values(count, 1), *y = positive_values(count, 2), *dy = positive_values(count, 3);
    float *dx = positive_values(count, 4), statistics[2];
    double *expected = guarded_malloc(count * sizeof *expected), sum = 0, product = 0, mean = 0, variance = 0;
    const struct sequence_ops *ops = device_ops(d)->sequence;
    for (size_t i = 0; i < count; i++) sum += exp((double)x[i]), mean += (double)x[i] / (double)count;
    for (size_t i = 0; i < count; i++) expected[i] = exp((double)x[i]) / sum, product += expected[i] * (double)dy[i];
    ops->softmax_forward(d, x, y, 1, count);
    expect("softmax", y, expected, count, 1.4e-6);
    for (size_t i = 0; i < count; i++) expected[i] = (double)x[i] - log(sum);
    ops->log_softmax_forward(d, x, dx, 1, count);
    expect("log_softmax", dx, expected, count, 4e-7);
    for (size_t i = 0; i < count; i++) expected[i] = exp((double)x[i]) / sum * ((double)dy[i] - product);
    ops->softmax_backward(d, y, dy, dx, 1, count);
    expect("gradient of softmax", dx, expected, count, 2.7e-6);
    for (size_t i = 0; i < count; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)count;
    for (size_t i = 0; i < count; i++) expected[i] = ((double)x[i] - mean) / sqrt(variance + 1e-5);
    device_ops(d)->norm_layers->layer_norm_forward(d, x, NULL, NULL, 1e-5f, F32(y), statistics, 1, count);
    expect("layer_norm", y, expected, count, 9e-7);
    guarded_free(x), guarded_free(y), guarded_free(dy), guarded_free(dx), guarded_free(expected);
}

/* The loss of a row of many classes, with and without a gradient. */
static void classes_of_many(struct device *d) {
    float *x = positive_values(TERMS, 1), *dx = positive_values(TERMS, 2);
    double sum = 0, loss;
    int64_t target = 7;
    for (size_t i = 0; i < TERMS; i++) sum += exp((double)x[i]);
    loss = log(sum) - (double)x[target];
    for (int i = 0; i < 2; i++) {
        struct loss_sums sums = {0};
        struct cross_entropy_options o = {.ignored = -100};
        device_ops(d)->losses->cross_entropy(d, &o, F32(x), &target, 1, TERMS, 1, F32(i ? dx : NULL), &sums);
        expect("cross entropy", &(float){(float)sums.loss}, &loss, 1, 4e-7);
    }
    guarded_free(x), guarded_free(dx);
}

/* The loss of many rows. */
static void losses_of_many(struct device *d) {
    float *x = positive_values(TERMS * IN, 1), *dx = positive_values(TERMS * IN, 2);
    int64_t *targets = guarded_malloc(TERMS * sizeof *targets);
    struct loss_sums sums = {0};
    struct cross_entropy_options o = {.ignored = -100};
    double loss = 0;
    for (size_t i = 0; i < TERMS; i++) {
        double sum = 0;
        targets[i] = (int64_t)(i % IN);
        for (size_t j = 0; j < IN; j++) sum += exp((double)x[i * IN + j]);
        loss += log(sum) - (double)x[i * IN + i % IN];
    }
    device_ops(d)->losses->cross_entropy(d, &o, F32(x), targets, TERMS, IN, 1, F32(dx), &sums);
    ck_assert_msg(fabs(sums.loss - loss) <= 1e-7 * loss, "loss %.12g, not %.12g", sums.loss, loss);
    guarded_free(x), guarded_free(dx), guarded_free(targets);
}

/* The gradients of kernels over a large image or many small ones: general, of one channel each, of stride 1, 3 x 3 by
 * Winograd's algorithm. */
static void convolution(struct device *d, size_t height, size_t rows, size_t channels, size_t groups, size_t kernel) {
    const size_t width = 256, padding = kernel / 2, taps = kernel * kernel, in = channels / groups;
    struct convolution c = {.in = {height, width, channels},
                            .out = {height, width, channels},
                            .window = {{kernel, kernel}, {1, 1}, {padding, padding}, {1, 1}},
                            .groups = groups,
                            .has_bias = true};
    size_t positions = rows * height * width, count = positions * channels, weight_count = channels * in * taps;
    float *x = positive_values(count, 1), *dy = positive_values(count, 2), *dx = positive_values(count, 3);
    float *w = positive_values(weight_count, 4), *dw = guarded_malloc(weight_count * sizeof *dw), db[16] = {0};
    double *weights = guarded_malloc(weight_count * sizeof *weights), biases[16] = {0};
    struct device_convolution *made;
    memset(dw, 0, weight_count * sizeof *dw), memset(weights, 0, weight_count * sizeof *weights);
    for (size_t i = 0; i < count; i++) biases[i % channels] += (double)dy[i];
    for (size_t tap = 0; tap < taps && device_is_host(d); tap++) /* of a GPU by cuDNN */
        for (size_t i = 0; i < positions; i++) {
            size_t row = i / width % height + tap / kernel, column = i % width + tap % kernel;
            if (row < padding || row - padding >= height || column < padding || column - padding >= width) continue;
            const float *from = x + (i + tap / kernel * width + tap % kernel - padding * (width + 1)) * channels;
            for (size_t out = 0; out < channels; out++)
                for (size_t j = 0; j < in; j++)
                    weights[(out * in + j) * taps + tap] +=
                        (double)dy[i * channels + out] * (double)from[out / (channels / groups) * in + j];
        }
    const struct convolution_ops *ops = device_ops(d)->convolution;
    ck_assert(!ops->create(d, &c, rows, &made));
    ops->backward(made, F32(x), w, F32(dy), F32(dx), dw, db, rows);
    ops->destroy(made);
    expect("bias", db, biases, channels, 8e-6);
    if (device_is_host(d)) expect("weight", dw, weights, weight_count, 5e-6);
    guarded_free(x), guarded_free(dy), guarded_free(dx), guarded_free(w), guarded_free(dw), guarded_free(weights);
}

static void large_images(struct device *d) { convolution(d, 256, 1, 4, 1, 1); }
static void large_images_by_unit_stride(struct device *d) { convolution(d, 256, 1, 8, 1, 1); }
static void large_images_by_channels(struct device *d) { convolution(d, 256, 1, 16, 16, 1); }
static void small_images(struct device *d) { convolution(d, 1, 512, 4, 1, 1); }
static void large_images_by_winograd(struct device *d) { convolution(d, 1024, 1, 16, 1, device_is_host(d) ? 3 : 1); }

/* Embeddings of few tokens; PReLU's slopes. */
static void few_parameters(struct device *d) {
    float *x = positive_values(TERMS * IN, 1), *dy = positive_values(TERMS * IN, 2),
          *dx = positive_values(TERMS * IN, 3);
    float slopes[IN] = {1, 1, 1, 1, 1}, found[2][IN] = {{0}};
    double sums[2][IN] = {{0}};
    int32_t *tokens = guarded_malloc(TERMS * sizeof *tokens);
    for (size_t i = 0; i < TERMS; i++) tokens[i] = 1;
    for (size_t i = 0; i < TERMS * IN; i++) {
        x[i] = -x[i];
        sums[0][i % IN] += (double)x[i] * (double)dy[i];
        sums[1][i % IN] += (double)dy[i];
    }
    device_ops(d)->prelu_backward(d, x, slopes, IN, dy, dx, found[0], TERMS * IN);
    expect("slope", found[0], sums[0], IN, 4e-7);
    memset(sums[0], 0, sizeof sums[0]), memset(found, 0, sizeof found);
    device_ops(d)->sequence->embedding_backward(d, tokens, dy, found[0], TERMS, 2, IN);
    expect("embedding", &found[0][0], &sums[0][0], 2 * IN, 3.3e-5);
    guarded_free(x), guarded_free(dy), guarded_free(dx), guarded_free(tokens);
}

/* Attention to many keys, and its gradients of many queries. q, k and v are positive, and so are dk of many queries. */
static void attention_case(struct device *d, size_t queries, size_t keys) {
    if (!device_is_host(d)) return; /* its factors are rounded */
    const struct attention_shape shape = {.rows = 1, .tokens = queries, .heads = 1, .head_size = HEAD, .keys = keys};
    float *q = positive_values(queries * HEAD, 1), *kv = positive_values(2 * keys * HEAD, 2),
          *dy = positive_values(queries * HEAD, 3), *y = positive_values(queries * HEAD, 4),
          *dq = positive_values(queries * HEAD, 5), *dkv = positive_values(2 * keys * HEAD, 6);
    float *softmaxes = positive_values(2 * queries, 7);
    double *outputs = guarded_malloc(queries * HEAD * sizeof *outputs), *p = guarded_malloc(keys * sizeof *p);
    double *values = guarded_malloc(2 * keys * HEAD * sizeof *values);
    memset(outputs, 0, queries * HEAD * sizeof *outputs), memset(values, 0, 2 * keys * HEAD * sizeof *values);
    for (size_t i = 0; i < queries; i++) {
        double sum = 0;
        for (size_t j = 0; j < keys; j++) {
            p[j] = 0;
            for (size_t n = 0; n < HEAD; n++) p[j] += (double)q[i * HEAD + n] * (double)kv[j * 2 * HEAD + n];
            p[j] = exp(p[j] / sqrt(HEAD)), sum += p[j];
        }
        for (size_t j = 0; j < keys; j++)
            for (size_t n = 0; n < HEAD; n++) {
                outputs[i * HEAD + n] += p[j] / sum * (double)kv[(2 * j + 1) * HEAD + n];
                values[(2 * j + 1) * HEAD + n] += p[j] / sum * (double)dy[i * HEAD + n];
            }
    }
    const struct sequence_ops *ops = device_ops(d)->sequence;
    ops->cross_attention_forward(d, &shape, q, kv, F32(y), softmaxes);
    ops->cross_attention_backward(d, &shape, q, kv, y, softmaxes, dy, dq, dkv);
    expect("attention", y, outputs, queries * HEAD, 1e-6);
    for (size_t j = 0; j < keys; j++) memset(dkv + 2 * j * HEAD, 0, HEAD * sizeof *dkv); /* of k: they cancel out */
    expect("gradient of values", dkv, values, 2 * keys * HEAD, 1e-6);
    guarded_free(q), guarded_free(kv), guarded_free(dy), guarded_free(y), guarded_free(dq), guarded_free(dkv);
    guarded_free(softmaxes), guarded_free(outputs), guarded_free(p), guarded_free(values);
}

static void attention_to_many(struct device *d) { attention_case(d, 3, TERMS); }
static void attention_of_many(struct device *d) { attention_case(d, TERMS, 3); }

static const struct {
    const char *name;
    void (*run)(struct device *);
} long_sums[] = {{"weights and biases", weights_and_biases},
                 {"inner dimension", inner_dimension},
                 {"parameters of layer_norm", layer_norm_parameters},
                 {"parameters of group_norm", group_norm_parameters},
                 {"means", means_of_many},
                 {"rows of many", rows_of_many},
                 {"classes of many", classes_of_many},
                 {"losses of many", losses_of_many},
                 {"large images", large_images},
                 {"large images by unit_stride", large_images_by_unit_stride},
                 {"large images by channels", large_images_by_channels},
                 {"large images by Winograd", large_images_by_winograd},
                 {"small images", small_images},
                 {"few parameters", few_parameters},
                 {"attention to many", attention_to_many},
                 {"attention of many", attention_of_many}};
