/* A linear layer, GELU by tanh and a linear layer fused on the GPU: each result against sums in double of the result
 * before it, which has 16 bits between the layers. Skipped where there is no GPU. ctest-labels: gpu */
#include <math.h>
#include <string.h>

#include "gpu_work.h"

static const struct {
    size_t rows, in, hidden, out;
    bool has_bias;
} shapes[] = {{1, 1, 8, 1, true}, {37, 70, 48, 45, true}, {64, 16, 136, 24, false}, {5, 13, 64, 8, true}};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)

struct work {
    size_t rows, in, hidden, out;
    bool has_bias;
    float *x, *w1, *b1, *w2, *b2, *dy;                    /* read */
    float *to, *dw1, *db1, *dw2, *db2, *dx;               /* written or added to */
    float *dw1_start, *db1_start, *dw2_start, *db2_start; /* initial values */
    float *kept, *y, *dkept;                              /* tensors between the layers, as float32 */
};

static struct work work_new(int shape) {
    struct work p = {.rows = shapes[shape].rows,
                     .in = shapes[shape].in,
                     .hidden = shapes[shape].hidden,
                     .out = shapes[shape].out,
                     .has_bias = shapes[shape].has_bias};
    size_t first = p.hidden * p.in, second = p.out * p.hidden, between = p.rows * p.hidden;
    p.x = random_values(p.rows * p.in, 1), p.w1 = random_values(first, 2), p.b1 = random_values(p.hidden, 3);
    p.w2 = random_values(second, 4), p.b2 = random_values(p.out, 5), p.dy = random_values(p.rows * p.out, 6);
    p.to = random_values(p.rows * p.out, 7), p.dx = random_values(p.rows * p.in, 8);
    p.dw1 = random_values(first, 9), p.dw1_start = random_values(first, 9);
    p.db1 = random_values(p.hidden, 10), p.db1_start = random_values(p.hidden, 10);
    p.dw2 = random_values(second, 11), p.dw2_start = random_values(second, 11);
    p.db2 = random_values(p.out, 12), p.db2_start = random_values(p.out, 12);
    p.kept = random_values(between, 13), p.y = random_values(between, 13), p.dkept = random_values(between, 13);
    return p;
}

static void work_free(struct work *p) {
    float *all[] = {p->x,         p->w1,        p->b1,   p->w2,  p->b2,   p->dy,        p->to,
                    p->dw1,       p->db1,       p->dw2,  p->db2, p->dx,   p->dw1_start, p->db1_start,
                    p->dw2_start, p->db2_start, p->kept, p->y,   p->dkept};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guarded_free(all[i]);
}

static float widened(enum precision precision, uint16_t bits) {
    return precision == PRECISION_BFLOAT16 ? bits_from_bfloat16(bits) : bits_from_float16(bits);
}

static float rounded(enum precision precision, float x) {
    return widened(precision, precision == PRECISION_BFLOAT16 ? bits_to_bfloat16(x) : bits_to_float16(x));
}

/* The device's 16-bit tensor (count). */
static void look(struct device *d, enum precision precision, const void *memory, float *to, size_t count) {
    uint16_t *bits = guarded_malloc(count * sizeof *bits);
    ck_assert(!device_download(d, bits, memory, count * sizeof *bits));
    for (size_t i = 0; i < count; i++) to[i] = widened(precision, bits[i]);
    guarded_free(bits);
}

static void run(struct device *d, enum precision precision, struct work *p) {
    const struct gelu_ops *ops = device_ops(d)->gelu;
    size_t between = p->rows * p->hidden;
    struct tensor kept = {.is_half = true}, y = {.is_half = true}, dkept = {.is_half = true};
    ck_assert(!device_alloc(d, between * sizeof(float), "a test", &kept.data));
    ck_assert(!device_alloc(d, between * sizeof(float), "a test", &y.data));
    ck_assert(!device_alloc(d, between * sizeof(float), "a test", &dkept.data));
    ops->forward_before(d, F32(p->x), p->w1, p->has_bias ? p->b1 : NULL, &kept, &y, p->rows, p->in, p->hidden);
    ops->forward_after(d, &y, p->w2, p->has_bias ? p->b2 : NULL, false, F32(p->to), p->rows, p->hidden, p->out);
    ops->backward_after(d, F32(p->dy), &y, p->w2, &kept, p->dw2, p->has_bias ? p->db2 : NULL, &dkept, p->rows,
                        p->hidden, p->out);
    ops->backward_before(d, &dkept, F32(p->x), p->w1, p->dw1, p->has_bias ? p->db1 : NULL, F32(p->dx), p->rows, p->in,
                         p->hidden);
    look(d, precision, kept.data, p->kept, between);
    look(d, precision, y.data, p->y, between);
    look(d, precision, dkept.data, p->dkept, between);
    device_free(d, kept.data), device_free(d, y.data), device_free(d, dkept.data);
}

struct sum {
    double value, size;
};

/* start and the sum over k of a[k as] b[k bs], all rounded */
static struct sum sum_of(enum precision precision, double start, const float *a, size_t as, const float *b, size_t bs,
                         size_t k) {
    struct sum s = {start, fabs(start)};
    for (size_t i = 0; i < k; i++) {
        double product = (double)rounded(precision, a[i * as]) * (double)rounded(precision, b[i * bs]);
        s.value += product;
        s.size += fabs(product);
    }
    return s;
}

static void check_wide(const char *what, size_t i, struct sum s, float found) {
    ck_assert_msg(fabs((double)found - s.value) <= 2e-6 * s.size + 1e-30, "%s %zu: %.9g, expected %.9g", what, i,
                  (double)found, s.value);
}

/* A 16-bit number near [expected], which has an error of at most [doubt]: on a GPU cuBLASLt also rounds the number of
 * size [rounded_before] from which it computes this one, the sum before its bias or before the factor of GELU. */
static void check_half(enum precision precision, const char *what, size_t i, double expected, double rounded_before,
                       double doubt, float found) {
    double unit = precision == PRECISION_BFLOAT16 ? 0x1p-8 : 0x1p-11; /* half a place */
    double min = precision == PRECISION_BFLOAT16 ? 0 : 0x1p-24;
    double max = unit * (fabs(expected) + fabs(rounded_before)) * 1.01 + doubt + min;
    ck_assert_msg(fabs((double)found - expected) <= max, "%s %zu: %.9g, expected %.9g", what, i, (double)found,
                  expected);
}

static double gelu_of(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

static double slope_of(double x) {
    double c = sqrt(2 / M_PI), t = tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

static void check_between(enum precision precision, const struct work *p) {
    for (size_t i = 0; i < p->rows * p->hidden; i++) {
        size_t row = i / p->hidden, unit = i % p->hidden;
        double bias = p->has_bias ? (double)rounded(precision, p->b1[unit]) : 0;
        struct sum before = sum_of(precision, bias, p->x + row * p->in, 1, p->w1 + unit * p->in, 1, p->in);
        struct sum back = sum_of(precision, 0, p->dy + row * p->out, 1, p->w2 + unit, p->hidden, p->out);
        double slope = slope_of((double)p->kept[i]);
        double off = p->has_bias ? fabs((double)p->b1[unit] - bias) : 0; /* without the epilogue it is not rounded */
        double sum = fabs(before.value) + fabs(bias), tanh_error = 6e-4; /* of the GPU's fast tanh */
        check_half(precision, "kept", i, before.value, sum, 2e-6 * before.size + off, p->kept[i]);
        check_half(precision, "y", i, gelu_of(before.value), 1.2 * sum,
                   4e-6 * (1 + before.size) + 1.2 * off + tanh_error * fabs(before.value) / 2, p->y[i]);
        check_half(precision, "dkept", i, back.value * slope, back.value * slope,
                   4e-6 * back.size + tanh_error * fabs(back.value), p->dkept[i]);
    }
}

static void check_gradient(enum precision precision, const char *what, const float *start, const float *dy,
                           const float *x, size_t rows, size_t in, size_t out, const float *found) {
    for (size_t i = 0; i < out * in; i++)
        check_wide(what, i, sum_of(precision, (double)start[i], dy + i / in, out, x + i % in, in, rows), found[i]);
}

static void check_bias(const char *what, const float *start, const float *dy, size_t rows, size_t out,
                       const float *found) {
    for (size_t k = 0; k < out; k++) {
        struct sum s = {(double)start[k], fabs((double)start[k])};
        for (size_t i = 0; i < rows; i++) s.value += (double)dy[i * out + k], s.size += fabs((double)dy[i * out + k]);
        check_wide(what, k, s, found[k]);
    }
}

TEST_LOOP(each_result_uses_the_rounded_input, 0, 2 * SHAPES) {
    enum precision precision = _i < SHAPES ? PRECISION_BFLOAT16 : PRECISION_FLOAT16;
    struct work p = work_new(_i % SHAPES);
    struct device *d;
    ck_assert(!device_create("cuda", &d));
    ck_assert(!device_set_precision(d, precision));
    ck_assert(device_ops(d)->can_be_half(d, p.hidden));
    run(d, precision, &p);
    ck_assert(!device_status(d));
    device_destroy(d);
    check_between(precision, &p);
    for (size_t i = 0; i < p.rows * p.out; i++)
        check_wide("to", i,
                   sum_of(precision, p.has_bias ? (double)p.b2[i % p.out] : 0, p.y + i / p.out * p.hidden, 1,
                          p.w2 + i % p.out * p.hidden, 1, p.hidden),
                   p.to[i]);
    for (size_t i = 0; i < p.rows * p.in; i++)
        check_wide("dx", i, sum_of(precision, 0, p.dkept + i / p.in * p.hidden, 1, p.w1 + i % p.in, p.in, p.hidden),
                   p.dx[i]);
    check_gradient(precision, "dw1", p.dw1_start, p.dkept, p.x, p.rows, p.in, p.hidden, p.dw1);
    check_gradient(precision, "dw2", p.dw2_start, p.dy, p.y, p.rows, p.hidden, p.out, p.dw2);
    if (p.has_bias) {
        check_bias("db1", p.db1_start, p.dkept, p.rows, p.hidden, p.db1);
        check_bias("db2", p.db2_start, p.dy, p.rows, p.out, p.db2); /* of numbers that are not rounded */
    }
    work_free(&p);
}

/* Again in the same memory, and without gradients of the inputs. */
TEST(a_relu_after_and_no_input_gradients) {
    struct work p = work_new(1), again = work_new(1);
    struct device *d;
    struct tensor kept = {.is_half = true}, y = {.is_half = true};
    ck_assert(!device_create("cuda", &d));
    ck_assert(!device_set_precision(d, PRECISION_BFLOAT16));
    run(d, PRECISION_BFLOAT16, &p);
    const struct gelu_ops *ops = device_ops(d)->gelu;
    ck_assert(!device_alloc(d, p.rows * p.hidden * sizeof(float), "a test", &kept.data));
    ck_assert(!device_alloc(d, p.rows * p.hidden * sizeof(float), "a test", &y.data));
    ops->forward_before(d, F32(p.x), p.w1, p.b1, &kept, &y, p.rows, p.in, p.hidden);
    ops->forward_after(d, &y, p.w2, p.b2, true, F32(again.to), p.rows, p.hidden, p.out);
    ops->backward_after(d, F32(p.dy), &y, p.w2, &kept, again.dw2, again.db2, NULL, p.rows, p.hidden, p.out);
    ck_assert(!device_status(d));
    for (size_t i = 0; i < p.rows * p.out; i++) ck_assert(again.to[i] == (p.to[i] > 0 ? p.to[i] : 0));
    ck_assert_int_eq(memcmp(again.dw2, p.dw2, p.out * p.hidden * sizeof *p.dw2), 0);
    ck_assert_int_eq(memcmp(again.db2, p.db2, p.out * sizeof *p.db2), 0);
    device_free(d, kept.data), device_free(d, y.data);
    device_destroy(d);
    work_free(&p), work_free(&again);
}

int main(void) { return gpu_run("gpu_gelu"); }
