/* Formulas over rows: the values of each function, blocks of every shape, the same bits with every instruction set and
 * number of threads. ctest-labels: unit */
#include "device/expression.h"

#include <math.h>

#include "check_main.h"
#include "device/cpu/parallel.h"
#include "device_work.h"

static const char *const names[] = {"x", "y", "s", NULL}; /* two vectors, and one number for each row */

struct formula {
    struct expression e;
    uint16_t gradient; /* by x */
};

static struct formula *parsed(const char *text) {
    struct formula *f = malloc(sizeof *f);
    const uint16_t by = 0;
    size_t at;
    status s = expression_parse(text, &(struct expression_options){.names = names}, &f->e, &at, NULL);
    if (!s) s = expression_differentiate(&f->e, f->e.value, expression_variable(&f->e, 3), &by, 1, &f->gradient);
    ck_assert_msg(!s, "%s: %s", text, status_message(s));
    return f;
}

struct batch {
    size_t rows, size;
    float *x, *y, *s;
};

static struct batch batch_of(size_t rows, size_t size) {
    return (struct batch){rows, size, random_values(rows * size, 1), random_values(rows * size, 2),
                          random_values(rows, 3)};
}

static void free_batch(struct batch *b) { guarded_free(b->x), guarded_free(b->y), guarded_free(b->s); }

static bool is_vector(const struct formula *f, size_t size) {
    return size > 1 && expression_is_vector(&f->e, f->e.value, (const bool[]){true, true, false, false});
}

/* value (rows, size, or rows), gradient by x (rows, size) with the seed 1.5, and the sum of the values or, of vectors,
 * of s. */
static double run(struct device *device, const struct formula *f, const struct batch *b, float *value,
                  float *gradient) {
    double sum = 0;
    struct expression_call call = {.expression = &f->e, .rows = b->rows, .size = b->size};
    const float *from[] = {b->x, b->y, b->s};
    for (size_t i = 0; i < 3; i++) call.variables[i].values = from[i];
    call.variables[0].is_vector = call.variables[1].is_vector = b->size > 1;
    call.variables[3].constant = 1.5f;
    bool has_vector = is_vector(f, b->size);
    call.outputs[call.output_count++] = (struct expression_output){f->e.value, value, has_vector};
    call.outputs[call.output_count++] = (struct expression_output){f->gradient, gradient, b->size > 1};
    if (!has_vector) {
        call.sums[0].node = f->e.value, call.sums[0].to = &sum;
        call.sum_count = 1;
    }
    status s = device_ops(device)->formulas->prepare(device, &call);
    ck_assert_msg(!s, "%s", status_message(s));
    device_ops(device)->formulas->run(device, &call);
    return sum;
}

/* ---- values ---- */

static const char *const functions[] = {
    "x + y",
    "x - y",
    "x * y",
    "x / y",
    "x ^ 2",
    "x ^ 8",
    "x ^ -3",
    "abs(x) ^ 0.5",
    "abs(x) ^ 1.5",
    "abs(x) ^ 2.2",
    "x ^ y",
    "min(x, y)",
    "max(x, y)",
    "x < y",
    "x <= y",
    "x == y",
    "x != y",
    "x > 0 and y > 0",
    "x > 0 or y > 0",
    "not (x > 0)",
    "where(x > y, x, y * y)",
    "-x",
    "abs(x)",
    "sign(x)",
    "floor(3 * x)",
    "round(3 * x)",
    "sqrt(abs(x))",
    "exp(x)",
    "exp(20 * x)",
    "expm1(x)",
    "log(abs(x))",

    "log1p(abs(x))",
    "log1p(x / 1000)",
    "sin(x)",
    "cos(x)",
    "sin(4 * x)",
    "tanh(x)",
    "erf(x)",
    "sigmoid(x)",
    "softplus(x)",
    "relu(x)",
    "silu(x)",
    "gelu(x)",
    "clamp(x, -0.5, 0.5)",
    "x * 3 + 1 / 7 + pi",
};

/* Of one number in a row, with the derivative. */
TEST_EACH(values_of_functions, functions) {
    SCOPED_MEMORY struct formula *f = parsed(functions[_i]), *slope = parsed(functions[_i]);
    struct batch b = batch_of(2001, 1);
    float *value = guarded_malloc(b.rows * sizeof(float)), *gradient = guarded_malloc(b.rows * sizeof(float));
    slope->e.own = slope->e.count;
    if (slope->gradient != EXPRESSION_NONE) slope->e.value = slope->gradient;
    for (size_t set = 0; set < SETS; set++) {
        SCOPED_DEVICE device = open_set(sets[set]);
        if (!device) continue;
        run(device, f, &b, value, gradient);
        for (size_t i = 0; i < b.rows; i++) {
            const double in[] = {(double)b.x[i], (double)b.y[i], (double)b.s[i], 1.5};
            double expected = expression_evaluate(&f->e, in),
                   g = slope->gradient == EXPRESSION_NONE ? 0 : expression_evaluate(&slope->e, in);
            ck_assert_msg((isnan(expected) && isnan(value[i])) ||
                              fabs((double)value[i] - expected) <= 4e-6 * fabs(expected) + 3e-7,
                          "%s %s of %g, %g: %.9g, not %.9g", sets[set], functions[_i], in[0], in[1], (double)value[i],
                          expected);
            ck_assert_msg((isnan(g) && isnan(gradient[i])) || fabs((double)gradient[i] - g) <= 2e-5 * fabs(g) + 1e-5,
                          "%s derivative of %s at %g, %g: %.9g, not %.9g", sets[set], functions[_i], in[0], in[1],
                          (double)gradient[i], g);
        }
    }
    guarded_free(value), guarded_free(gradient);
    free_batch(&b);
}

/* Extreme numbers are those of the C library. */
TEST(extreme_numbers) {
    static const float in[] = {0,        -0.0f,     1e-42f, -1e-42f, 1e-38f, 3e38f, -3e38f,
                               INFINITY, -INFINITY, NAN,    1,       -1,     1e-8f};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        float x = in[i], p = formula_log(x), q = logf(x);
        ck_assert_msg(p == q || (isnan(p) && isnan(q)) || fabsf(p - q) <= 1e-6f * fabsf(q), "log(%g): %g, %g",
                      (double)x, (double)p, (double)q);
        p = formula_log1p(x), q = log1pf(x);
        ck_assert_msg(p == q || (isnan(p) && isnan(q)) || fabsf(p - q) <= 1e-6f * fabsf(q), "log1p(%g): %g, %g",
                      (double)x, (double)p, (double)q);
        p = formula_expm1(x), q = expm1f(x);
        ck_assert_msg(p == q || (isnan(p) && isnan(q)) || fabsf(p - q) <= 1e-6f * fabsf(q), "expm1(%g): %g, %g",
                      (double)x, (double)p, (double)q);
        p = formula_round(x), q = rintf(x);
        ck_assert_msg(p == q || (isnan(p) && isnan(q)), "round(%g)", (double)x);
        for (size_t k = 0; k < sizeof in / sizeof *in; k++) {
            p = formula_power(x, in[k]), q = powf(x, in[k]);
            if (isinf(in[k])) continue; /* infinite exponents are not written */
            ck_assert_msg(p == q || (isnan(p) && isnan(q)) || fabsf(p - q) <= 1e-6f * fabsf(q), "pow(%g, %g): %g, %g",
                          (double)x, (double)in[k], (double)p, (double)q);
        }
    }
}

/* ---- shapes ---- */

static const size_t shapes[][2] = {{1, 1},    {7, 1},   {5000, 1}, {1, 3},     {5, 3},
                                   {400, 10}, {37, 33}, {3, 1500}, {2, 20000}, {30000, 2}};

static const char *const of_rows[] = {
    "mean((x - y) ^ 2)",
    "sum(x) * s",
    "max(x) - min(y)",
    "logsumexp(x + s)",
    "norm(x - y)",
    "x - mean(x)",
    "softmax(x) * s",
    "sum(s * x) + s",
    "x * s + index",
    "s",
    "mean(s) + sum(s) + norm(s)",
    "3",
    "x / norm(x) + 2",
};

/* The formula [which] at element i of a row, in double. */
static double expected_of(size_t which, const float *x, const float *y, double s, size_t size, size_t i) {
    double sum = 0, squares = 0, errors = 0, max = -INFINITY, min = INFINITY, exps = 0;
    for (size_t k = 0; k < size; k++) {
        double a = (double)x[k], b = (double)y[k];
        sum += a, squares += a * a, errors += (a - b) * (a - b), exps += exp(a);
        max = a > max ? a : max, min = b < min ? b : min;
    }
    const double at[] = {errors / (double)size,
                         sum * s,
                         max - min,
                         log(exps) + s,
                         sqrt(errors),
                         (double)x[i] - sum / (double)size,
                         exp((double)x[i]) / exps * s,
                         sum * s + s,
                         (double)x[i] * s + (double)i,
                         s,
                         s + s + fabs(s),
                         3,
                         (double)x[i] / sqrt(squares) + 2};
    return at[which];
}

TEST_EACH(values_of_rows, shapes) {
    struct batch b = batch_of(shapes[_i][0], shapes[_i][1]);
    float *value = guarded_malloc(b.rows * b.size * sizeof(float)),
          *gradient = guarded_malloc(b.rows * b.size * sizeof(float));
    struct device *device = open_set("baseline");
    for (size_t which = 0; which < sizeof of_rows / sizeof *of_rows; which++) {
        SCOPED_MEMORY struct formula *f = parsed(of_rows[which]);
        size_t width = is_vector(f, b.size) ? b.size : 1;
        double sum = run(device, f, &b, value, gradient), expected_sum = 0;
        for (size_t i = 0; i < b.rows * width; i += 1 + b.size / 50) {
            size_t row = i / width;
            double expected =
                expected_of(which, b.x + row * b.size, b.y + row * b.size, (double)b.s[row], b.size, i % width);
            ck_assert_msg(fabs((double)value[i] - expected) <= 1e-5 * (1 + fabs(expected)) * (b.size > 1000 ? 100 : 1),
                          "%s: value %zu of %zu x %zu: %.9g, not %.9g", of_rows[which], i, b.rows, b.size,
                          (double)value[i], expected);
        }
        for (size_t i = 0; i < b.rows; i++) expected_sum += (double)value[i];
        if (width == 1)
            ck_assert_msg(fabs(sum - expected_sum) <= 1e-9 * (double)b.rows * 100, "%s: %g, not %g", of_rows[which],
                          sum, expected_sum);
    }
    device_destroy(device);
    guarded_free(value), guarded_free(gradient);
    free_batch(&b);
}

/* "sum like" of a vector or a number, where the second operand is a vector or a number. */
TEST(sums_like_another_value) {
    struct batch b = batch_of(3, 5);
    float *value = guarded_malloc(b.rows * b.size * sizeof(float)),
          *gradient = guarded_malloc(b.rows * b.size * sizeof(float));
    struct device *device = open_set("baseline");
    for (int i = 0; i < 4; i++) {
        SCOPED_MEMORY struct formula *f = parsed("x + s");
        uint16_t first = expression_variable(&f->e, i & 1 ? 2 : 0), second = expression_variable(&f->e, i & 2 ? 2 : 0);
        f->gradient = expression_add(&f->e, EXPRESSION_SUM_LIKE, first, second, 0, 0);
        run(device, f, &b, value, gradient);
        for (size_t k = 0; k < b.rows * b.size; k++) {
            const float *x = b.x + k / b.size * b.size;
            float sum = x[0] + x[1] + x[2] + x[3] + x[4];
            float expected = i & 1 ? b.s[k / b.size] : i & 2 ? sum : b.x[k];
            ck_assert_msg(fabsf(gradient[k] - expected) < 1e-6f, "case %d, element %zu", i, k);
        }
    }
    device_destroy(device);
    guarded_free(value), guarded_free(gradient);
    free_batch(&b);
}

/* ---- the same bits ---- */

static void compare_bits(const char *text, const struct batch *b, struct device *one, struct device *other,
                         int threads) {
    struct formula *f = parsed(text);
    size_t bytes = b->rows * b->size * sizeof(float), width = is_vector(f, b->size) ? b->size : 1;
    float *values[2], *gradients[2];
    double sums[2];
    for (int i = 0; i < 2; i++) {
        values[i] = guarded_malloc(b->rows * width * sizeof(float));
        gradients[i] = guarded_malloc(bytes);
        if (i == 1 && threads) parallel_limit(threads);
        sums[i] = run(i ? other : one, f, b, values[i], gradients[i]);
    }
    ck_assert_msg(memcmp(values[0], values[1], b->rows * width * sizeof(float)) == 0, "values of %s", text);
    ck_assert_msg(memcmp(gradients[0], gradients[1], bytes) == 0, "gradients of %s", text);
    ck_assert_msg(memcmp(&sums[0], &sums[1], sizeof *sums) == 0, "the sum of %s", text);
    for (int i = 0; i < 2; i++) guarded_free(values[i]), guarded_free(gradients[i]);
    free(f);
}

TEST_LOOP(bits_of_sets, 1, (int)SETS) {
    SCOPED_DEVICE baseline = open_set("baseline"), *set = open_set(sets[_i]);
    for (size_t shape = 0; set && shape < sizeof shapes / sizeof *shapes; shape++) {
        struct batch b = batch_of(shapes[shape][0], shapes[shape][1]);
        for (size_t i = 0; i < sizeof of_rows / sizeof *of_rows; i++) compare_bits(of_rows[i], &b, baseline, set, 0);
        for (size_t i = 0; shape == 1 && i < sizeof functions / sizeof *functions; i++)
            compare_bits(functions[i], &b, baseline, set, 0);
        free_batch(&b);
    }
}

TEST(bits_of_threads) {
    setenv("OMP_NUM_THREADS", "3", 1);
    SCOPED_DEVICE device = open_set("baseline");
    struct batch b = batch_of(60001, 3);
    ck_assert_uint_eq(parallel_threads(), 3);
    compare_bits("mean(abs(x - y) ^ 1.5) * s", &b, device, device, 1);
    free_batch(&b);
}

CHECK_MAIN("expression")
