/* Attention in blocks against its definition in double, on every instruction set and in bfloat16; exp, tanh and erf
 * through the activations against libm. ctest-labels: unit */
#include <math.h>
#include <string.h>

#include "check_main.h"
#include "device/internal.h"
#include "device_work.h"

#define SHAPE(rows_, tokens_, heads_, size_, causal_)                                                                  \
    { .rows = rows_, .tokens = tokens_, .heads = heads_, .head_size = size_, .is_causal = causal_ }

/* One head of one row by the formulas: p = softmax(q k^T / sqrt(d)), y = m p v with the masks m of dropout, and the
 * derivatives. */
struct plain {
    double *y, *dq, *dk, *dv; /* (tokens, d) */
    const float *masks;       /* (tokens, tokens); NULL: all 1 */
    size_t keys;              /* real ones */
};

static void plain_head(const struct attention_shape *s, const float *q, const float *dy, struct plain *out) {
    size_t t = s->tokens, d = s->head_size, c = s->heads * d;
    const float *k = q + c, *v = q + 2 * c;
    double *p = guarded_malloc(t * sizeof *p), *dp = guarded_malloc(t * sizeof *dp), scale = 1 / sqrt((double)d);
    for (size_t i = 0; i < t; i++) {
        size_t seen = s->is_causal && i + 1 < out->keys ? i + 1 : out->keys;
        double max = -INFINITY, sum = 0, total = 0;
        for (size_t j = 0; j < seen; j++) {
            p[j] = 0;
            for (size_t e = 0; e < d; e++) p[j] += scale * (double)q[i * 3 * c + e] * (double)k[j * 3 * c + e];
            max = fmax(max, p[j]);
        }
        for (size_t j = 0; j < seen; j++) sum += p[j] = exp(p[j] - max);
        for (size_t j = 0; j < seen; j++) {
            double mask = out->masks ? (double)out->masks[i * t + j] : 1;
            p[j] /= sum;
            dp[j] = 0;
            for (size_t e = 0; e < d; e++) {
                out->y[i * d + e] += mask * p[j] * (double)v[j * 3 * c + e];
                out->dv[j * d + e] += mask * p[j] * (double)dy[i * c + e];
                dp[j] += mask * (double)dy[i * c + e] * (double)v[j * 3 * c + e];
            }
            total += p[j] * dp[j];
        }
        for (size_t j = 0; j < seen; j++)
            for (size_t e = 0; e < d; e++) {
                out->dq[i * d + e] += p[j] * (dp[j] - total) * scale * (double)k[j * 3 * c + e];
                out->dk[j * d + e] += p[j] * (dp[j] - total) * scale * (double)q[i * 3 * c + e];
            }
    }
    guarded_free(p), guarded_free(dp);
}

#define FLOAT32_ERROR 2e-5
#define BFLOAT16_ERROR 1e-2 /* inputs are bfloat16 already, but scores and their gradients are rounded to 8 bits */

/* Within [error] of the larger of [unit] and the value. */
static void same(const double *expected, const float *values, size_t stride, size_t tokens, size_t d, double error,
                 double unit, const char *what) {
    for (size_t i = 0; i < tokens; i++)
        for (size_t e = 0; e < d; e++)
            ck_assert_msg(fabs(expected[i * d + e] - (double)values[i * stride + e]) <
                              error * fmax(unit, fabs(expected[i * d + e])),
                          "%s(%zu, %zu): %.9g, not %.9g", what, i, e, (double)values[i * stride + e],
                          expected[i * d + e]);
}

/* What the operator dropout makes of ones (rows, heads, tokens, tokens). */
static float *masks_of(struct device *device, const struct attention_shape *s) {
    size_t row = s->heads * s->tokens * s->tokens;
    if (!s->dropout) return NULL;
    float *masks = guarded_malloc(s->rows * row * sizeof *masks);
    for (size_t i = 0; i < s->rows * row; i++) masks[i] = 1;
    device_ops(device)->dropout(device, s->dropout, s->dropout_p, F32(masks), F32(masks), s->rows, row);
    return masks;
}

/* [unit]: the size of the terms of the gradients of q and k. */
static void agrees(struct device *device, const struct attention_shape *s, const float *qkv, const float *dy,
                   double error, double unit) {
    size_t d = s->head_size, c = s->heads * d, values = s->rows * s->tokens * c, one = s->tokens * d;
    float *y = guarded_malloc(values * sizeof *y), *dqkv = guarded_malloc(3 * values * sizeof *dqkv);
    float *softmaxes = guarded_malloc(2 * s->rows * s->heads * s->tokens * sizeof *softmaxes);
    float *masks = masks_of(device, s);
    memset(dqkv, 0xff, 3 * values * sizeof *dqkv); /* NaN: all of it must be set */
    device_ops(device)->sequence->attention_forward(device, s, F32(qkv), F32(y), softmaxes);
    device_ops(device)->sequence->attention_backward(device, s, F32(qkv), F32(y), softmaxes, F32(dy), F32(dqkv));
    for (size_t r = 0; r < s->rows; r++)
        for (size_t h = 0; h < s->heads; h++) {
            double *all = guarded_calloc(4 * one, sizeof *all);
            struct plain plain = {all, all + one, all + 2 * one, all + 3 * one, NULL, s->tokens};
            if (masks) plain.masks = masks + (r * s->heads + h) * s->tokens * s->tokens;
            if (s->lengths) plain.keys = (size_t)s->lengths[r];
            size_t narrow = r * s->tokens * c + h * d, wide = r * s->tokens * 3 * c + h * d;
            plain_head(s, qkv + wide, dy + narrow, &plain);
            same(plain.y, y + narrow, c, s->tokens, d, error, 1, "y");
            same(plain.dq, dqkv + wide, 3 * c, s->tokens, d, error, unit, "dq");
            same(plain.dk, dqkv + wide + c, 3 * c, s->tokens, d, error, unit, "dk");
            same(plain.dv, dqkv + wide + 2 * c, 3 * c, s->tokens, d, error, 1, "dv");
            guarded_free(all);
        }
    guarded_free(y), guarded_free(dqkv), guarded_free(softmaxes), guarded_free(masks);
}

static void attention_agrees(struct device *device, const struct attention_shape *s, float spread, double error) {
    size_t values = s->rows * s->tokens * s->heads * s->head_size;
    float *qkv = random_values(3 * values, 1), *dy = random_values(values, 2);
    for (size_t i = 0; i < 3 * values; i++) qkv[i] *= spread;
    if (error > FLOAT32_ERROR) round_bf16(qkv, 3 * values), round_bf16(dy, values);
    agrees(device, s, qkv, dy, error, 1);
    guarded_free(qkv), guarded_free(dy);
}

static const struct attention_shape shapes[] = {
    SHAPE(1, 1, 1, 1, true),     SHAPE(2, 64, 2, 16, true), SHAPE(1, 150, 2, 9, true),
    SHAPE(2, 150, 1, 32, false), SHAPE(1, 65, 3, 5, true),  SHAPE(1, 129, 1, 64, false),
};
#define SHAPES (sizeof shapes / sizeof *shapes)

TEST(attention) {
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        SCOPED_DEVICE device = open_set(sets[i]);
        if (!device) continue;
        for (size_t j = 0; j < SHAPES; j++) attention_agrees(device, &shapes[j], 1, FLOAT32_ERROR);
        attention_agrees(device, &shapes[2], 3, FLOAT32_ERROR); /* maxima that grow from block to block */
    }
}

/* Padding and dropout, in one block and in several; rows of full length give the bits of no lengths. */
TEST(masked_attention) {
    static const int32_t lengths[][3] = {{1, 5, 3}, {150, 64, 65}, {7, 150, 128}};
    static const uint64_t pass = 3;
    const struct draw_key key = {.seed = 5, .stream = 2, .pass = &pass, .first_row = 1, .row_stride = 2};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        SCOPED_DEVICE device = open_set(sets[i]);
        if (!device) continue;
        for (size_t j = 0; j < 3; j++)
            for (int kind = 1; kind < 8; kind++) {
                struct attention_shape s = SHAPE(3, j == 0 ? 5 : 150, 2, 8, (kind & 4) != 0);
                if (kind & 1) s.lengths = lengths[j];
                if (kind & 2) s.dropout = &key, s.dropout_p = 0.3f;
                attention_agrees(device, &s, 1, FLOAT32_ERROR);
            }
    }
}

TEST(full_lengths) {
    static const int32_t lengths[] = {70, 70};
    SCOPED_DEVICE device = open_set("baseline");
    struct attention_shape s = SHAPE(2, 70, 2, 8, true);
    enum { VALUES = 2 * 70 * 16, SOFTMAXES = 2 * 2 * 2 * 70, ALL = 4 * VALUES + SOFTMAXES };
    float *qkv = random_values(3 * VALUES, 1), *dy = random_values(VALUES, 2);
    float *results[2]; /* y, dqkv, softmaxes */
    for (int i = 0; i < 2; i++) {
        float *y = results[i] = guarded_calloc(ALL, sizeof *y);
        s.lengths = i ? lengths : NULL;
        device_ops(device)->sequence->attention_forward(device, &s, F32(qkv), F32(y), y + 4 * VALUES);
        device_ops(device)->sequence->attention_backward(device, &s, F32(qkv), F32(y), y + 4 * VALUES, F32(dy),
                                                         F32(y + VALUES));
    }
    ck_assert_mem_eq(results[0], results[1], ALL * sizeof *results[0]);
    guarded_free(results[0]), guarded_free(results[1]), guarded_free(qkv), guarded_free(dy);
}

/* Scores that are so large that their last digit is not small, but exact, so that only the softmax can be wrong:
 * q and k are [large] in their first feature and small multiples of [step] in the others; the scale is a power of 2. */
static void large_scores_agree(struct device *device, float large, float step, double error) {
    const struct attention_shape cases[] = {SHAPE(1, 150, 2, 4, true), SHAPE(1, 70, 1, 16, false)};
    for (size_t j = 0; j < sizeof cases / sizeof *cases; j++) {
        const struct attention_shape *s = &cases[j];
        size_t d = s->head_size, c = s->heads * d, values = s->rows * s->tokens * c;
        float *qkv = random_values(3 * values, 1), *dy = random_values(values, 2);
        for (size_t i = 0; i < 3 * values; i++)
            if (i % (3 * c) < 2 * c) qkv[i] = i % d == 0 ? large : step * rintf(fminf(fmaxf(qkv[i], -3), 3));
        if (error > FLOAT32_ERROR) round_bf16(qkv, 3 * values), round_bf16(dy, values);
        agrees(device, s, qkv, dy, error, (double)large);
        guarded_free(qkv), guarded_free(dy);
    }
}

/* 4e4, 4e8 and 4e10 once scaled: an ulp of 0.004, 32 and 4096 */
static void all_large_scores_agree(struct device *device, double error) {
    large_scores_agree(device, 288, 0.125f, error);
    large_scores_agree(device, 28672, 16, error);
    large_scores_agree(device, 294912, 128, error);
}

TEST(large_scores) {
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        SCOPED_DEVICE device = open_set(sets[i]);
        if (!device) continue;
        all_large_scores_agree(device, FLOAT32_ERROR);
    }
}

/* The device in bfloat16; NULL if the processor does not have the instructions. */
static struct device *open_bfloat16(void) {
    struct device *device = open_set("avx512");
    status s = device ? device_set_precision(device, PRECISION_BFLOAT16) : NULL;
    if (s) printf("skipped on this machine: %s\n", status_message(s)), device_destroy(device), device = NULL;
    status_free(s);
    return device;
}

TEST(bfloat16_attention_agrees_to_8_bits) {
    SCOPED_DEVICE device = open_bfloat16();
    if (!device) return;
    for (size_t j = 0; j < SHAPES; j++) attention_agrees(device, &shapes[j], 1, BFLOAT16_ERROR);
    attention_agrees(device, &shapes[2], 3, 9 * BFLOAT16_ERROR); /* terms are nine times as large */
    all_large_scores_agree(device, BFLOAT16_ERROR);
}

/* sum(y weight), y of the values qkv + step * direction */
static double moved(struct device *device, const struct attention_shape *s, const float *qkv, const float *direction,
                    float step, const float *weight) {
    size_t values = s->rows * s->tokens * s->heads * s->head_size;
    float *x = guarded_malloc(3 * values * sizeof *x), *y = guarded_malloc(values * sizeof *y);
    float *softmaxes = guarded_malloc(2 * s->rows * s->heads * s->tokens * sizeof *softmaxes);
    double sum = 0;
    for (size_t i = 0; i < 3 * values; i++) x[i] = qkv[i] + step * direction[i];
    device_ops(device)->sequence->attention_forward(device, s, F32(x), F32(y), softmaxes);
    for (size_t i = 0; i < values; i++) sum += (double)y[i] * (double)weight[i];
    guarded_free(x), guarded_free(y), guarded_free(softmaxes);
    return sum;
}

/* Along a direction of half gradient, half noise the difference of two forward passes is the slope. */
TEST(bfloat16_gradients_are_those_of_forward) {
    SCOPED_DEVICE device = open_bfloat16();
    for (size_t j = 1; device && j < SHAPES; j++) {
        const struct attention_shape *s = &shapes[j];
        size_t values = s->rows * s->tokens * s->heads * s->head_size;
        float *qkv = random_values(3 * values, 1), *dy = random_values(values, 2),
              *y = guarded_malloc(values * sizeof *y);
        float *dqkv = guarded_malloc(3 * values * sizeof *dqkv), *direction = random_values(3 * values, 3),
              step = 0.03f;
        float *softmaxes = guarded_malloc(2 * s->rows * s->heads * s->tokens * sizeof *softmaxes);
        device_ops(device)->sequence->attention_forward(device, s, F32(qkv), F32(y), softmaxes);
        device_ops(device)->sequence->attention_backward(device, s, F32(qkv), F32(y), softmaxes, F32(dy), F32(dqkv));
        double slope = 0;
        for (size_t i = 0; i < 3 * values; i++) {
            direction[i] += dqkv[i];
            slope += (double)dqkv[i] * (double)direction[i];
        }
        double numeric = (moved(device, s, qkv, direction, step, dy) - moved(device, s, qkv, direction, -step, dy)) /
                         (2 * (double)step);
        ck_assert_msg(fabs(numeric - slope) < 0.03 * fabs(slope), "shape %zu: %g, not %g", j, slope, numeric);
        guarded_free(qkv), guarded_free(dy), guarded_free(y), guarded_free(dqkv), guarded_free(direction),
            guarded_free(softmaxes);
    }
}

/* The outputs of all shapes, in bfloat16 if the machine supports it. */
static void run_attention(struct device *device, const void *context, struct digest *digest) {
    const bool *is_bfloat16 = context;
    if (*is_bfloat16) status_free(device_set_precision(device, PRECISION_BFLOAT16));
    for (size_t j = 0; j < SHAPES; j++) {
        const struct attention_shape *s = &shapes[j];
        size_t values = s->rows * s->tokens * s->heads * s->head_size;
        float *qkv = random_values(3 * values, 1), *dy = random_values(values, 2),
              *y = guarded_malloc(values * sizeof *y);
        float *dqkv = guarded_malloc(3 * values * sizeof *dqkv),
              *softmaxes = guarded_malloc(2 * values * sizeof *softmaxes);
        device_ops(device)->sequence->attention_forward(device, s, F32(qkv), F32(y), softmaxes);
        device_ops(device)->sequence->attention_backward(device, s, F32(qkv), F32(y), softmaxes, F32(dy), F32(dqkv));
        digest_add(digest, y, values * sizeof *y);
        digest_add(digest, dqkv, 3 * values * sizeof *dqkv);
        guarded_free(qkv), guarded_free(dy), guarded_free(y), guarded_free(dqkv), guarded_free(softmaxes);
    }
}

TEST(attention_on_threads) {
    const bool yes = true, no = false;
    char float32[DIGEST_HEX_SIZE], bfloat16[DIGEST_HEX_SIZE];
    threads_agree(run_attention, &no);
    threads_agree(run_attention, &yes);
    digest_with("1", run_attention, &no, float32);
    digest_with("1", run_attention, &yes, bfloat16);
    SCOPED_DEVICE device = open_bfloat16();
    ck_assert_int_eq(strcmp(float32, bfloat16) != 0, device != NULL);
}

static void near(float got, double expected, float x, const char *what) {
    ck_assert_msg(fabs((double)got - expected) <= 4e-7 * fabs(expected) + 1e-37, "%s(%g): %.9g, not %.9g", what,
                  (double)x, (double)got, expected);
}

TEST(functions) {
    enum { COUNT = 4001 };
    static float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = (float)(i - COUNT / 2) * 0.01f;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        SCOPED_DEVICE device = open_set(sets[i]);
        if (!device) continue;
        device_ops(device)->activation_forward(device, ACTIVATION_TANH, F32(x), F32(y), COUNT);
        for (int j = 0; j < COUNT; j++) near(y[j], tanh((double)x[j]), x[j], "tanh");
        device_ops(device)->activation_forward(device, ACTIVATION_SIGMOID, F32(x), F32(y), COUNT);
        for (int j = 0; j < COUNT; j++) near(y[j], 1 / (1 + exp(-(double)x[j])), x[j], "sigmoid");
        device_ops(device)->activation_forward(device, ACTIVATION_GELU, F32(x), F32(y), COUNT);
        for (int j = COUNT / 2; j < COUNT; j++)
            near(y[j], (double)x[j] * 0.5 * (1 + erf((double)x[j] * M_SQRT1_2)), x[j], "gelu");
        device_ops(device)->activation_forward(device, ACTIVATION_RELU, F32(x), F32(y), COUNT);
        for (int j = 0; j < COUNT; j++) ck_assert(y[j] == (x[j] > 0 ? x[j] : 0));
        device_ops(device)->activation_forward(device, ACTIVATION_SILU, F32(x), F32(y), COUNT);
        for (int j = COUNT / 2; j < COUNT; j++) near(y[j], (double)x[j] / (1 + exp(-(double)x[j])), x[j], "silu");
        device_ops(device)->keyed_forward(device, &(struct keyed_activation){KEYED_SOFTPLUS, 1, 20}, F32(x), F32(y),
                                          COUNT);
        for (int j = 0; j < COUNT; j++) near(y[j], log1p(exp((double)x[j])), x[j], "softplus");
        device_ops(device)->activation_forward(device, ACTIVATION_MISH, F32(x), F32(y), COUNT);
        for (int j = 0; j < COUNT; j++) near(y[j], (double)x[j] * tanh(log1p(exp((double)x[j]))), x[j], "mish");
        device_ops(device)->keyed_forward(device, &(struct keyed_activation){KEYED_ELU, 1, 0}, F32(x), F32(y), COUNT);
        for (int j = 0; j < COUNT; j++) near(y[j], x[j] > 0 ? (double)x[j] : expm1((double)x[j]), x[j], "elu");
        device_ops(device)->activation_forward(device, ACTIVATION_SELU, F32(x), F32(y), COUNT);
        for (int j = 0; j < COUNT; j++)
            near(y[j], 1.0507009873554805 * (x[j] > 0 ? (double)x[j] : 1.6732632423543772 * expm1((double)x[j])), x[j],
                 "selu");
        float wild[] = {INFINITY, -INFINITY, NAN}, tamed[3];
        device_ops(device)->activation_forward(device, ACTIVATION_RELU, F32(wild), F32(tamed), 3);
        ck_assert(isinf(tamed[0]) && tamed[1] == 0 && isnan(tamed[2]));
        device_ops(device)->activation_forward(device, ACTIVATION_TANH, F32(wild), F32(tamed), 3);
        ck_assert(tamed[0] == 1 && tamed[1] == -1 && isnan(tamed[2]));
        device_ops(device)->activation_forward(device, ACTIVATION_SIGMOID, F32(wild), F32(tamed), 3);
        ck_assert(tamed[0] == 1 && tamed[1] == 0 && isnan(tamed[2]));
    }
}

CHECK_MAIN("sequence")
