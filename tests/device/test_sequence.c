/* Attention in blocks against its definition in double, on every instruction set; exp, tanh and erf through the
 * activations against libm. ctest-labels: unit */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "device/internal.h"
#include "device_work.h"

static const char *const sets[] = {"baseline", "avx2", "avx512"};

/* The set's device, NULL where this machine does not have it. */
static struct device *open_set(const char *set) {
    struct device *device = NULL;
    status_free(cpu_device_create(set, &device));
    return device;
}

/* One head of one row by the formulas: p = softmax(q k^T / sqrt(d)), y = p v, and the derivatives. */
struct plain {
    double *y, *dq, *dk, *dv; /* (tokens, d) */
};

static void plain_head(const struct attention_shape *s, const float *q, const float *dy, struct plain *out) {
    size_t t = s->tokens, d = s->head_size, c = s->heads * d;
    const float *k = q + c, *v = q + 2 * c;
    double *p = malloc(t * sizeof *p), *dp = malloc(t * sizeof *dp), scale = 1 / sqrt((double)d);
    for (size_t i = 0; i < t; i++) {
        size_t seen = s->is_causal ? i + 1 : t;
        double most = -INFINITY, sum = 0, total = 0;
        for (size_t j = 0; j < seen; j++) {
            p[j] = 0;
            for (size_t e = 0; e < d; e++) p[j] += scale * (double)q[i * 3 * c + e] * (double)k[j * 3 * c + e];
            most = fmax(most, p[j]);
        }
        for (size_t j = 0; j < seen; j++) sum += p[j] = exp(p[j] - most);
        for (size_t j = 0; j < seen; j++) {
            p[j] /= sum;
            dp[j] = 0;
            for (size_t e = 0; e < d; e++) {
                out->y[i * d + e] += p[j] * (double)v[j * 3 * c + e];
                out->dv[j * d + e] += p[j] * (double)dy[i * c + e];
                dp[j] += (double)dy[i * c + e] * (double)v[j * 3 * c + e];
            }
            total += p[j] * dp[j];
        }
        for (size_t j = 0; j < seen; j++)
            for (size_t e = 0; e < d; e++) {
                out->dq[i * d + e] += p[j] * (dp[j] - total) * scale * (double)k[j * 3 * c + e];
                out->dk[j * d + e] += p[j] * (dp[j] - total) * scale * (double)q[i * 3 * c + e];
            }
    }
    free(p), free(dp);
}

static void same(const double *expected, const float *values, size_t stride, size_t tokens, size_t d,
                 const char *what) {
    for (size_t i = 0; i < tokens; i++)
        for (size_t e = 0; e < d; e++)
            ck_assert_msg(fabs(expected[i * d + e] - (double)values[i * stride + e]) < 2e-5, "%s(%zu, %zu): %g, not %g",
                          what, i, e, (double)values[i * stride + e], expected[i * d + e]);
}

static void attention_agrees(struct device *device, const struct attention_shape *s, float spread) {
    size_t d = s->head_size, c = s->heads * d, values = s->rows * s->tokens * c, one = s->tokens * d;
    float *qkv = random_values(3 * values, 1), *dy = random_values(values, 2), *y = malloc(values * sizeof *y);
    float *dqkv = malloc(3 * values * sizeof *dqkv),
          *log_sums = malloc(s->rows * s->heads * s->tokens * sizeof *log_sums);
    for (size_t i = 0; i < 3 * values; i++) qkv[i] *= spread;
    device_ops(device)->sequence->attention_forward(device, s, qkv, y, log_sums);
    device_ops(device)->sequence->attention_backward(device, s, qkv, y, log_sums, dy, dqkv);
    for (size_t r = 0; r < s->rows; r++)
        for (size_t h = 0; h < s->heads; h++) {
            double *all = calloc(4 * one, sizeof *all);
            struct plain plain = {all, all + one, all + 2 * one, all + 3 * one};
            size_t narrow = r * s->tokens * c + h * d, wide = r * s->tokens * 3 * c + h * d;
            plain_head(s, qkv + wide, dy + narrow, &plain);
            same(plain.y, y + narrow, c, s->tokens, d, "y");
            same(plain.dq, dqkv + wide, 3 * c, s->tokens, d, "dq");
            same(plain.dk, dqkv + wide + c, 3 * c, s->tokens, d, "dk");
            same(plain.dv, dqkv + wide + 2 * c, 3 * c, s->tokens, d, "dv");
            free(all);
        }
    free(qkv), free(dy), free(y), free(dqkv), free(log_sums);
}

START_TEST(attention) {
    static const struct attention_shape shapes[] = {
        {1, 1, 1, 1, true},     {2, 64, 2, 16, true}, {1, 150, 2, 9, true},
        {2, 150, 1, 32, false}, {1, 65, 3, 5, true},  {1, 129, 1, 64, false},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct device *device = open_set(sets[i]);
        if (!device) continue;
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) attention_agrees(device, &shapes[j], 1);
        attention_agrees(device, &shapes[2], 3); /* maxima that grow from block to block */
        device_destroy(device);
    }
}
END_TEST

static void near(float got, double expected, float x, const char *what) {
    ck_assert_msg(fabs((double)got - expected) <= 4e-7 * fabs(expected) + 1e-37, "%s(%g): %.9g, not %.9g", what,
                  (double)x, (double)got, expected);
}

START_TEST(functions) {
    enum { COUNT = 4001 };
    static float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = (float)(i - COUNT / 2) * 0.01f;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct device *device = open_set(sets[i]);
        if (!device) continue;
        device_ops(device)->activation_forward(device, ACTIVATION_TANH, x, y, COUNT);
        for (int j = 0; j < COUNT; j++) near(y[j], tanh((double)x[j]), x[j], "tanh");
        device_ops(device)->activation_forward(device, ACTIVATION_SIGMOID, x, y, COUNT);
        for (int j = 0; j < COUNT; j++) near(y[j], 1 / (1 + exp(-(double)x[j])), x[j], "sigmoid");
        device_ops(device)->activation_forward(device, ACTIVATION_GELU, x, y, COUNT);
        for (int j = COUNT / 2; j < COUNT; j++)
            near(y[j], (double)x[j] * 0.5 * (1 + erf((double)x[j] * M_SQRT1_2)), x[j], "gelu");
        float wild[] = {INFINITY, -INFINITY, NAN}, tamed[3];
        device_ops(device)->activation_forward(device, ACTIVATION_TANH, wild, tamed, 3);
        ck_assert(tamed[0] == 1 && tamed[1] == -1 && isnan(tamed[2]));
        device_ops(device)->activation_forward(device, ACTIVATION_SIGMOID, wild, tamed, 3);
        ck_assert(tamed[0] == 1 && tamed[1] == 0 && isnan(tamed[2]));
        device_destroy(device);
    }
}
END_TEST

TESTS("sequence", attention, functions)
