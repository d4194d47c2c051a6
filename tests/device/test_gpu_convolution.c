/* The GPU's convolutions in 16 bits, against the CPU's with factors that are rounded here: results of cuDNN are rounded
 * once more, to the same type; bias and earlier gradients are not. Skipped where there is no GPU. ctest-labels: gpu */
#include <math.h>
#include <string.h>

#include "gpu_work.h"

#define ROWS 2

static const struct convolution shapes[] = {
    /* channels that are a multiple of 16 bytes, and others; a bias, a relu, both, none; groups, strides, dilation; a
       signal */
    {.in = {7, 6, 3}, .out = {7, 6, 8}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1, .has_bias = true},
    {.in = {6, 5, 16}, .out = {6, 5, 8}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1, .has_relu = true},
    {.in = {8, 9, 4},
     .out = {4, 5, 6},
     .window = {{3, 2}, {2, 2}, {1, 1}, {1, 1}},
     .groups = 1,
     .has_bias = true,
     .has_relu = true},
    {.in = {9, 7, 6}, .out = {5, 5, 4}, .window = {{3, 3}, {1, 2}, {0, 3}, {2, 2}}, .groups = 2},
    {.in = {4, 4, 24}, .out = {2, 2, 40}, .window = {{1, 1}, {2, 2}, {0, 0}, {1, 1}}, .groups = 1},
    /* weights that several blocks reorder, and whose channels do not fit into shared memory */
    {.in = {3, 3, 130}, .out = {2, 2, 8}, .window = {{2, 2}, {1, 1}, {0, 0}, {1, 1}}, .groups = 1},
    {.in = {1, 12290, 1}, .out = {1, 2, 8}, .window = {{1, 12289}, {1, 1}, {0, 0}, {1, 1}}, .groups = 1},
    {.in = {1, 33, 5}, .out = {1, 17, 10}, .window = {{1, 5}, {1, 2}, {0, 2}, {1, 1}}, .groups = 5, .has_bias = true},
};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)

static size_t elements(const struct image_shape *i) { return i->height * i->width * i->channels; }

static float rounded(enum precision precision, float x) {
    if (precision == PRECISION_BFLOAT16) return bits_from_bfloat16(bits_to_bfloat16(x));
    return precision == PRECISION_FLOAT16 ? bits_from_float16(bits_to_float16(x)) : x;
}

/* Operands of a convolution; dw and dbias have initial values. */
struct work {
    struct convolution c;
    size_t in, out, weights;
    float *x, *w, *bias, *dy, *y, *dx, *dw, *dbias;
};

static struct work work_new(const struct convolution *c) {
    struct work p = {.c = *c, .in = ROWS * elements(&c->in), .out = ROWS * elements(&c->out)};
    p.weights = c->out.channels * (c->in.channels / c->groups) * c->window.kernel[0] * c->window.kernel[1];
    p.x = random_values(p.in, 1), p.w = random_values(p.weights, 2), p.bias = random_values(c->out.channels, 3);
    p.dy = random_values(p.out, 4);
    p.y = random_values(p.out, 5), p.dx = random_values(p.in, 6);
    p.dw = random_values(p.weights, 7), p.dbias = random_values(c->out.channels, 8);
    return p;
}

static void work_free(struct work *p) {
    guarded_free(p->x), guarded_free(p->w), guarded_free(p->bias), guarded_free(p->dy), guarded_free(p->y),
        guarded_free(p->dx), guarded_free(p->dw), guarded_free(p->dbias);
}

static void round_factors(struct work *p, enum precision precision) {
    for (size_t i = 0; i < p->in; i++) p->x[i] = rounded(precision, p->x[i]);
    for (size_t i = 0; i < p->weights; i++) p->w[i] = rounded(precision, p->w[i]);
    for (size_t i = 0; i < p->out; i++) p->dy[i] = rounded(precision, p->dy[i]);
}

static struct device *device_with(const char *name, enum precision precision) {
    struct device *device;
    ck_assert(!device_create(name, &device));
    ck_assert(!device_set_precision(device, precision));
    return device;
}

static void end(struct device *device) {
    status s = device_status(device);
    ck_assert_msg(!s, "%s", status_message(s));
    device_destroy(device);
}

static struct device_convolution *prepared(struct device *d, const struct convolution *c) {
    const struct convolution_ops *ops = device_ops(d)->convolution;
    struct device_convolution *made;
    status s = ops->create(d, c, ROWS, &made);
    ck_assert_msg(!s, "%s", status_message(s));
    if (ops->prepare) ck_assert(!ops->prepare(made, ROWS, true));
    return made;
}

static void convolve(struct device *d, struct work *p) {
    const struct convolution_ops *ops = device_ops(d)->convolution;
    struct device_convolution *made = prepared(d, &p->c);
    ops->forward(made, F32(p->x), p->w, p->c.has_bias ? p->bias : NULL, F32(p->y), ROWS);
    ops->backward(made, F32(p->x), p->w, F32(p->dy), F32(p->dx), p->dw, p->c.has_bias ? p->dbias : NULL, ROWS);
    ops->destroy(made);
}

/* The error of a 16-bit number of this size; a number exactly between two may be rounded to either. */
static double spacing(enum precision precision, double x) {
    int exponent;
    frexp(x, &exponent);
    double min = precision == PRECISION_FLOAT16 ? 0x1p-24 : 0x1p-130;
    return fmax(ldexp(1, exponent - (precision == PRECISION_FLOAT16 ? 11 : 8)), min);
}

/* Error of a sum of [terms] products of numbers up to 1: tensor cores truncate their sums, half a place of the typical
 * sum at each product. */
static double truncation(size_t terms) { return (double)terms * 0x1p-24 * sqrt((double)terms) / 3; }

/* [found] = start + the 16-bit number next to [sum] (nearly always: sums have another order). */
struct tally {
    size_t count, off;
};

static void check_element(enum precision precision, const char *what, size_t i, double start, float sum, size_t terms,
                          bool has_relu, float found, struct tally *tally) {
    double expected = (double)(float)(start + (double)rounded(precision, sum));
    if (has_relu && expected < 0) expected = 0;
    double far = fabs((double)found - expected), doubt = truncation(terms);
    double max = spacing(precision, (double)sum) + 1e-6 * (1 + fabs(start)) + doubt;
    tally->count++;
    tally->off += far > 2e-6 * (fabs(start) + fabs(expected) + 1e-3) && max > 10 * doubt;
    ck_assert_msg(far <= max, "precision %d, %s %zu: %.9g, expected %.9g", (int)precision, what, i, (double)found,
                  expected);
}

static void few_are_off(const char *what, struct tally t) {
    ck_assert_msg(t.off <= 2 + t.count / 50, "%s: %zu of %zu are rounded otherwise", what, t.off, t.count);
}

/* The results of the CPU without bias, relu and initial gradients. */
static struct work bare(const struct convolution *c, enum precision precision) {
    struct device *cpu = device_with("cpu", PRECISION_FLOAT32);
    struct convolution alone = *c;
    alone.has_relu = false;
    struct work p = work_new(&alone);
    round_factors(&p, precision);
    memset(p.bias, 0, c->out.channels * sizeof *p.bias);
    memset(p.dw, 0, p.weights * sizeof *p.dw);
    convolve(cpu, &p);
    end(cpu);
    return p;
}

TEST_LOOP(results_are_rounded_once, 0, 2 * SHAPES) {
    enum precision precision = _i < SHAPES ? PRECISION_BFLOAT16 : PRECISION_FLOAT16;
    const struct convolution *c = &shapes[_i % SHAPES];
    struct work sums = bare(c, precision), gpu = work_new(c), start = work_new(c);
    struct device *d = device_with("cuda", precision);
    convolve(d, &gpu);
    end(d);
    struct tally y = {0}, dx = {0}, dw = {0};
    size_t terms = gpu.weights / c->out.channels; /* about as many in each of the sums */
    for (size_t i = 0; i < gpu.out; i++)
        check_element(precision, "y", i, c->has_bias ? (double)gpu.bias[i % c->out.channels] : 0, sums.y[i], terms,
                      c->has_relu, gpu.y[i], &y);
    for (size_t i = 0; i < gpu.in; i++) check_element(precision, "dx", i, 0, sums.dx[i], terms, false, gpu.dx[i], &dx);
    for (size_t i = 0; i < gpu.weights; i++)
        check_element(precision, "dw", i, (double)start.dw[i], sums.dw[i], terms, false, gpu.dw[i], &dw);
    few_are_off("y", y), few_are_off("dx", dx), few_are_off("dw", dw);
    for (size_t k = 0; c->has_bias && k < c->out.channels; k++) { /* of what is not rounded */
        double sum = (double)start.dbias[k], size = fabs(sum);
        for (size_t i = k; i < gpu.out; i += c->out.channels) sum += (double)gpu.dy[i], size += fabs((double)gpu.dy[i]);
        ck_assert(fabs((double)gpu.dbias[k] - sum) <= 1e-6 * size);
    }
    work_free(&sums), work_free(&gpu), work_free(&start);
}

/* Rounded factors give the same result, and so does a second run. */
TEST_EACH(factors_are_rounded, shapes) {
    for (enum precision precision = PRECISION_BFLOAT16; precision <= PRECISION_FLOAT16; precision++) {
        struct work one = work_new(&shapes[_i]), other = work_new(&shapes[_i]);
        struct device *d = device_with("cuda", precision);
        convolve(d, &one);
        round_factors(&other, precision);
        convolve(d, &other);
        end(d);
        ck_assert_int_eq(memcmp(one.y, other.y, one.out * sizeof *one.y), 0);
        ck_assert_int_eq(memcmp(one.dx, other.dx, one.in * sizeof *one.dx), 0);
        ck_assert_int_eq(memcmp(one.dw, other.dw, one.weights * sizeof *one.dw), 0);
        work_free(&one), work_free(&other);
    }
}

static float *on_device(struct device *d, const float *values, size_t count) {
    float *memory;
    ck_assert(!device_alloc(d, (count + 16) * sizeof *memory, "a test", (void **)&memory));
    if (values) device_upload(d, memory, values, count * sizeof *memory);
    return memory;
}

/* y of a convolution without a bias and with the weights at [w]. */
static float *forward_of(struct device *d, const struct convolution *c, const float *x, const float *w) {
    float *y = random_values(ROWS * elements(&c->out), 9);
    struct device_convolution *made = prepared(d, c);
    device_ops(d)->convolution->forward(made, F32(x), w, NULL, F32(y), ROWS);
    device_ops(d)->convolution->destroy(made);
    ck_assert(!device_status(d));
    return y;
}

/* Weights that are parameters are used as of the last round_parameters, in forward and backward; others as they are. */
TEST(weights_are_rounded_by_round_parameters) {
    struct work p = work_new(&shapes[4]);
    float *other = random_values(p.weights, 10), *y[4];
    struct device *d = device_with("cuda", PRECISION_BFLOAT16);
    const struct device_ops *ops = device_ops(d);
    size_t count = (p.weights + 3) / 4 * 4, bytes = p.out * sizeof *p.y;
    float *values = on_device(d, NULL, count);
    device_upload(d, values, p.w, p.weights * sizeof *p.w);
    struct device_convolution *made = prepared(d, &p.c);
    for (int i = 0; i < 4; i++) y[i] = random_values(p.out, 11);
    ops->round_parameters(d, values, count);
    ops->convolution->forward(made, F32(p.x), values, NULL, F32(y[0]), ROWS);
    device_upload(d, values, other, p.weights * sizeof *other);
    ops->convolution->forward(made, F32(p.x), values, NULL, F32(y[1]), ROWS);
    float *dx = random_values(p.in, 12), *late = random_values(p.in, 13);
    ops->convolution->backward(made, F32(p.x), values, F32(p.dy), F32(dx), p.dw, NULL, ROWS);
    ops->round_parameters(d, values, count);
    ops->convolution->forward(made, F32(p.x), values, NULL, F32(y[2]), ROWS);
    ops->convolution->backward(made, F32(p.x), values, F32(p.dy), F32(late), p.dw, NULL, ROWS);
    ops->convolution->forward(made, F32(p.x), other, NULL, F32(y[3]), ROWS);
    ops->convolution->destroy(made);
    device_free(d, values);
    end(d);
    ck_assert_int_eq(memcmp(y[0], y[1], bytes), 0);
    ck_assert_int_ne(memcmp(y[0], y[2], bytes), 0);
    ck_assert_int_eq(memcmp(y[2], y[3], bytes), 0);
    ck_assert_int_ne(memcmp(dx, late, p.in * sizeof *dx), 0);
    for (int i = 0; i < 4; i++) guarded_free(y[i]);
    guarded_free(other), guarded_free(dx), guarded_free(late);
    work_free(&p);
}

static void write_add_relu(struct device *d, const float *x, float *y, size_t count) {
    device_ops(d)->image->add_relu(d, F32(x), F32(x), F32(y), count);
}

static void write_batch_norm(struct device *d, const float *x, float *y, size_t count) {
    struct batch_norm norm = {.channels = 16, .eps = 1e-5f, .momentum = 0.1f, .uses_batch = true, .has_relu = true};
    float *work = on_device(d, NULL, BATCH_NORM_WORK(16));
    device_ops(d)->image->batch_norm_forward(d, &norm, F32(x), NULL, NULL, NULL, NULL, work, F32(y), count / 16);
    device_free(d, work);
}

static void write_convolution(struct device *d, const float *x, float *y, size_t count) {
    struct convolution c = shapes[1];
    c.out = c.in;
    float *w = random_values(16 * 16 * 9, 14);
    struct device_convolution *made = prepared(d, &c);
    (void)count;
    device_ops(d)->convolution->forward(made, F32(x), w, NULL, F32(y), ROWS);
    device_ops(d)->convolution->destroy(made);
    guarded_free(w);
}

typedef void writer(struct device *, const float *x, float *y, size_t count);
static writer *const writers[] = {write_add_relu, write_batch_norm, write_convolution};

/* Some operators also write their result in 16 bits for a convolution after them; a change in between is not missed. */
TEST_EACH(a_convolution_after_16_bit_results, writers) {
    for (enum precision precision = PRECISION_FLOAT32; precision <= PRECISION_FLOAT16; precision++)
        for (int changes = 0; changes < 2; changes++) {
            struct work p = work_new(&shapes[1]);
            struct device *d = device_with("cuda", precision);
            float *x = on_device(d, p.x, p.in), *y = on_device(d, NULL, p.in), *other = random_values(p.in, 11);
            writers[_i](d, x, y, p.in);
            if (changes) device_upload(d, y, other, p.in * sizeof *other);
            float *after = forward_of(d, &p.c, y, p.w);
            ck_assert(!device_download(d, other, y, p.in * sizeof *other));
            float *again = forward_of(d, &p.c, other, p.w);
            ck_assert_int_eq(memcmp(after, again, p.out * sizeof *after), 0);
            guarded_free(after), guarded_free(again), guarded_free(other);
            device_free(d, x), device_free(d, y);
            work_free(&p);
            end(d);
        }
}

/* The same for the gradient from a batch norm to the convolution before it. */
TEST(a_gradient_with_a_16_bit_copy) {
    for (int changes = 0; changes < 2; changes++) {
        struct work p = work_new(&shapes[4]), again = work_new(&shapes[4]);
        struct device *d = device_with("cuda", PRECISION_BFLOAT16);
        const struct device_ops *ops = device_ops(d);
        size_t channels = p.c.out.channels, count = p.out / channels;
        struct batch_norm norm = {.channels = channels, .eps = 1e-5f, .momentum = 0.1f, .uses_batch = true};
        float *y = on_device(d, p.y, p.out), *dy = on_device(d, NULL, p.out);
        float *work = on_device(d, NULL, BATCH_NORM_WORK(channels)), *out = on_device(d, NULL, p.out);
        struct device_convolution *made = prepared(d, &p.c);
        ops->image->batch_norm_forward(d, &norm, F32(y), NULL, NULL, NULL, NULL, work, F32(out), count);
        ops->image->batch_norm_backward(d, &norm, F32(y), F32(out), work, F32(dy), NULL, NULL, count);
        if (changes) device_upload(d, dy, p.dy, p.out * sizeof *p.dy);
        ops->convolution->backward(made, F32(p.x), p.w, F32(dy), F32(p.dx), p.dw, NULL, ROWS);
        ck_assert(!device_download(d, again.dy, dy, p.out * sizeof *p.dy));
        ops->convolution->backward(made, F32(again.x), again.w, F32(again.dy), F32(again.dx), again.dw, NULL, ROWS);
        ops->convolution->destroy(made);
        ck_assert_int_eq(memcmp(p.dx, again.dx, p.in * sizeof *p.dx), 0);
        ck_assert_int_eq(memcmp(p.dw, again.dw, p.weights * sizeof *p.dw), 0);
        device_free(d, y), device_free(d, dy), device_free(d, work), device_free(d, out);
        work_free(&p), work_free(&again);
        end(d);
    }
}

/* A relu does not change a NaN, and the maximum of float16 is 65504. */
TEST(nan_and_infinity) {
    struct convolution c = {
        .in = {1, 2, 1}, .out = {1, 2, 1}, .window = {{1, 1}, {1, 1}, {0, 0}, {1, 1}}, .groups = 1, .has_relu = true};
    float x[ROWS * 2] = {NAN, -1, 300, 200}, w = 300;
    for (enum precision precision = PRECISION_BFLOAT16; precision <= PRECISION_FLOAT16; precision++) {
        struct device *d = device_with("cuda", precision);
        float *y = forward_of(d, &c, x, &w);
        ck_assert(isnan(y[0]) && y[1] == 0);
        ck_assert(precision == PRECISION_FLOAT16 ? isinf(y[2]) : fabsf(y[2] - 90000) < 300);
        ck_assert(fabsf(y[3] - 60000) < 300);
        guarded_free(y);
        end(d);
    }
}

int main(void) { return gpu_run("gpu_convolution"); }
