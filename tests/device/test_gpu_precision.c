/* The GPU's products in each precision, against sums in double of factors that are rounded here. Skipped where there is
 * no GPU. ctest-labels: gpu */
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "gpu_work.h"

static const size_t shapes[][3] = {/* rows, in, out: 16-bit rows with and without padding; sums in tiles */
                                   {1, 1, 1},   {3, 8, 16},     {37, 70, 45}, {64, 128, 132},
                                   {5, 13, 64}, {300, 33, 130}, {70, 260, 3}};

struct work {
    size_t rows, in, out;
    float *x, *w, *bias, *dy, *dw, *dbias; /* dw and dbias: initial values */
};

static struct work work_new(const size_t *shape) {
    struct work p = {.rows = shape[0], .in = shape[1], .out = shape[2]};
    p.x = random_values(p.rows * p.in, 1);
    p.w = random_values(p.out * p.in, 2);
    p.bias = random_values(p.out, 3);
    p.dy = random_values(p.rows * p.out, 4);
    p.dw = random_values(p.out * p.in, 5);
    p.dbias = random_values(p.out, 6);
    return p;
}

static void work_free(struct work *p) {
    guarded_free(p->x), guarded_free(p->w), guarded_free(p->bias), guarded_free(p->dy), guarded_free(p->dw),
        guarded_free(p->dbias);
}

static float rounded(enum precision precision, float x) {
    if (precision == PRECISION_BFLOAT16) return bits_from_bfloat16(bits_to_bfloat16(x));
    if (precision == PRECISION_FLOAT16) return bits_from_float16(bits_to_float16(x));
    return x;
}

/* TF32 is rounded in one way or another by different GPUs; the others differ from us by the order of float32 sums. */
static double tolerance(enum precision precision) { return precision == PRECISION_TF32 ? 0x1p-9 : 2e-6; }

/* One element: a start and the sum over k of a[k as] b[k bs], and how far off it may be. */
struct element {
    double value, size;
};

static struct element element(enum precision precision, double start, const float *a, size_t as, const float *b,
                              size_t bs, size_t k) {
    struct element e = {start, fabs(start)};
    for (size_t i = 0; i < k; i++) {
        double product = (double)rounded(precision, a[i * as]) * (double)rounded(precision, b[i * bs]);
        e.value += product;
        e.size += fabs(product);
    }
    return e;
}

static void check_element(enum precision precision, const char *what, size_t i, struct element e, float found) {
    ck_assert_msg(fabs((double)found - e.value) <= tolerance(precision) * e.size + 1e-30,
                  "precision %d, %s %zu: %.9g, expected %.9g", (int)precision, what, i, (double)found, e.value);
}

static struct device *gpu_with(enum precision precision) {
    struct device *device;
    ck_assert(!device_create("cuda", &device));
    ck_assert(!device_set_precision(device, precision));
    return device;
}

static void end(struct device *device) {
    status s = device_status(device);
    ck_assert_msg(!s, "%s", status_message(s));
    device_destroy(device);
}

static void check_forward(struct device *d, enum precision precision, const struct work *p, bool has_relu) {
    float *y = random_values(p->rows * p->out, 7);
    device_ops(d)->linear_forward(d, F32(p->x), p->w, p->bias, has_relu, F32(y), p->rows, p->in, p->out);
    ck_assert(!device_status(d));
    for (size_t i = 0; i < p->rows * p->out; i++) {
        const float *x = p->x + i / p->out * p->in, *w = p->w + i % p->out * p->in;
        struct element e = element(precision, (double)p->bias[i % p->out], x, 1, w, 1, p->in);
        if (has_relu && e.value < 0) e.value = 0;
        check_element(precision, "y", i, e, y[i]);
    }
    guarded_free(y);
}

static void check_backward(struct device *d, enum precision precision, const struct work *p) {
    size_t in = p->in, out = p->out, rows = p->rows;
    float *dw = guarded_malloc(out * in * sizeof *dw), *dbias = guarded_malloc(out * sizeof *dbias);
    float *dx = random_values(rows * in, 7);
    memcpy(dw, p->dw, out * in * sizeof *dw);
    memcpy(dbias, p->dbias, out * sizeof *dbias);
    device_ops(d)->linear_backward_weight(d, F32(p->dy), F32(p->x), dw, dbias, rows, in, out);
    device_ops(d)->linear_backward_input(d, F32(p->dy), p->w, F32(dx), rows, in, out);
    ck_assert(!device_status(d));
    for (size_t i = 0; i < out * in; i++)
        check_element(precision, "dw", i,
                      element(precision, (double)p->dw[i], p->dy + i / in, out, p->x + i % in, in, rows), dw[i]);
    for (size_t i = 0; i < rows * in; i++)
        check_element(precision, "dx", i, element(precision, 0, p->dy + i / in * out, 1, p->w + i % in, in, out),
                      dx[i]);
    float one = 1; /* sums of columns use numbers that are not rounded */
    for (size_t i = 0; i < out; i++)
        check_element(PRECISION_FLOAT32, "dbias", i,
                      element(PRECISION_FLOAT32, (double)p->dbias[i], p->dy + i, out, &one, 0, rows), dbias[i]);
    guarded_free(dw), guarded_free(dbias), guarded_free(dx);
}

TEST_EACH(factors_are_rounded_and_sums_are_not, shapes) {
    for (enum precision precision = PRECISION_FLOAT32; precision <= PRECISION_FLOAT16; precision++) {
        struct device *d = gpu_with(precision);
        struct work p = work_new(shapes[_i]);
        for (int again = 0; again < 2; again++) { /* the second time with existing plans */
            check_forward(d, precision, &p, false);
            check_forward(d, precision, &p, true);
            check_backward(d, precision, &p);
        }
        work_free(&p);
        end(d);
    }
}

/* Factors that are exact in bfloat16 are the same in all precisions. */
TEST(exact_factors_give_exact_results) {
    for (enum precision precision = PRECISION_TF32; precision <= PRECISION_FLOAT16; precision++) {
        struct device *d = gpu_with(precision);
        struct work p = work_new(shapes[2]);
        float *y = random_values(p.rows * p.out, 7);
        for (size_t i = 0; i < p.rows * p.in; i++) p.x[i] = rounded(PRECISION_BFLOAT16, p.x[i]);
        for (size_t i = 0; i < p.out * p.in; i++) p.w[i] = rounded(PRECISION_BFLOAT16, p.w[i]);
        device_ops(d)->linear_forward(d, F32(p.x), p.w, p.bias, false, F32(y), p.rows, p.in, p.out);
        end(d);
        for (size_t i = 0; i < p.rows * p.out; i++) {
            const float *x = p.x + i / p.out * p.in, *w = p.w + i % p.out * p.in;
            check_element(PRECISION_FLOAT32, "y", i,
                          element(PRECISION_FLOAT32, (double)p.bias[i % p.out], x, 1, w, 1, p.in), y[i]);
        }
        guarded_free(y);
        work_free(&p);
    }
}

/* The precision of a device may change: products are planned for each precision. */
TEST(precision_may_change) {
    struct device *d = gpu_with(PRECISION_FLOAT32);
    struct work p = work_new(shapes[3]);
    static const enum precision order[] = {PRECISION_FLOAT32, PRECISION_BFLOAT16, PRECISION_FLOAT16, PRECISION_FLOAT32,
                                           PRECISION_BFLOAT16};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        ck_assert(!device_set_precision(d, order[i]));
        check_forward(d, order[i], &p, false);
        check_backward(d, order[i], &p);
    }
    work_free(&p);
    end(d);
}

/* As the CPU's bfloat16, where the CPU has it. */
TEST_EACH(agrees_with_the_cpu_in_bfloat16, shapes) {
    struct device *gpu = gpu_with(PRECISION_BFLOAT16), *cpu;
    ck_assert(!device_create("cpu", &cpu));
    status s = device_set_precision(cpu, PRECISION_BFLOAT16);
    struct work p = work_new(shapes[_i]);
    size_t count = p.rows * p.out;
    float *one = random_values(count, 7), *other = random_values(count, 8);
    for (int i = 0; !s && i < 2; i++) {
        struct device *d = i ? gpu : cpu;
        device_ops(d)->linear_forward(d, F32(p.x), p.w, p.bias, false, F32(i ? one : other), p.rows, p.in, p.out);
    }
    end(gpu);
    for (size_t i = 0; !s && i < count; i++)
        ck_assert_msg(fabs((double)one[i] - (double)other[i]) <= 1e-5 * sqrt((double)p.in) * (1 + fabs((double)one[i])),
                      "%zu: GPU %.9g, CPU %.9g", i, (double)one[i], (double)other[i]);
    status_free(s);
    guarded_free(one), guarded_free(other);
    work_free(&p);
    device_destroy(cpu);
}

/* x (rows, columns) on the device with a copy, which is made. */
static struct tensor with_copy(struct device *d, struct half_copy *copy, float *x, size_t rows, size_t columns) {
    size_t stride = (columns + 7) / 8 * 8, bytes = rows * stride * sizeof *copy->memory;
    *copy = (struct half_copy){.columns = columns % 8 ? columns : 0};
    ck_assert(!device_alloc(d, bytes, "a test", (void **)&copy->memory));
    return (struct tensor){.data = x, .copy = copy};
}

static float *on_device(struct device *d, const float *values, size_t count) {
    float *x;
    ck_assert(!device_alloc(d, count * sizeof *x, "a test", (void **)&x));
    device_upload(d, x, values, count * sizeof *x);
    return x;
}

static void check_dx(const struct work *p, const float *dy, const float *dx) {
    for (size_t i = 0; i < p->rows * p->in; i++)
        check_element(PRECISION_BFLOAT16, "dx", i,
                      element(PRECISION_BFLOAT16, 0, dy + i / p->in * p->out, 1, p->w + i % p->in, p->in, p->out),
                      dx[i]);
}

/* The copy that the first product of a gradient writes is read by the next product, but not after an operator has
 * changed the gradient, or after the caller has and cleared is_valid. */
TEST(a_changed_gradient_is_rounded_again) {
    for (int change = 0; change < 3; change++) {
        struct device *d = gpu_with(PRECISION_BFLOAT16);
        const struct device_ops *ops = device_ops(d);
        struct work p = work_new(shapes[3]);
        struct half_copy copy;
        size_t count = p.rows * p.out;
        float *dx = random_values(p.rows * p.in, 7), *other = random_values(count, 8);
        struct tensor dy = with_copy(d, &copy, on_device(d, p.dy, count), p.rows, p.out);
        ops->linear_backward_weight(d, &dy, F32(p.x), p.dw, p.dbias, p.rows, p.in, p.out);
        ck_assert(copy.is_valid);
        if (change == 1) ops->copy(d, F32(other), &dy, count);
        if (change == 2) device_upload(d, dy.data, other, count * sizeof *other), copy.is_valid = false;
        ck_assert_int_eq(copy.is_valid, change == 0);
        ops->linear_backward_input(d, &dy, p.w, F32(dx), p.rows, p.in, p.out);
        ck_assert(!device_download(d, p.dy, dy.data, count * sizeof *p.dy));
        check_dx(&p, p.dy, dx);
        device_free(d, copy.memory), device_free(d, dy.data);
        guarded_free(dx), guarded_free(other);
        work_free(&p);
        end(d);
    }
}

/* Products read a valid copy itself, whatever operators ran in between: here it is zeroed without clearing is_valid.
 * One with other gaps is neither read nor written, nor is that of another operand. */
TEST(a_copy_is_that_of_its_operand) {
    struct device *d = gpu_with(PRECISION_BFLOAT16);
    const struct device_ops *ops = device_ops(d);
    struct work p = work_new(shapes[3]);
    struct half_copy copy;
    size_t count = p.rows * p.out;
    float *dx = random_values(2 * p.rows * p.in, 7), *other = on_device(d, p.dy, count);
    struct tensor dy = with_copy(d, &copy, on_device(d, p.dy, count), p.rows, p.out);
    ops->linear_backward_input(d, F32(other), p.w, F32(dx), p.rows, p.in, p.out);
    copy.columns = 4;
    ops->linear_backward_input(d, &dy, p.w, F32(dx), p.rows, p.in, p.out);
    ck_assert(!copy.is_valid);
    copy.columns = p.out % 8 ? p.out : 0;
    ops->linear_backward_input(d, &dy, p.w, F32(dx), p.rows, p.in, p.out);
    ck_assert(copy.is_valid);
    check_dx(&p, p.dy, dx);
    device_zero(d, copy.memory, p.rows * 136 * sizeof *copy.memory);
    ops->linear_backward_input(d, F32(other), p.w, F32(dx), p.rows, p.in, p.out);
    check_dx(&p, p.dy, dx);
    ops->linear_backward_input(d, &dy, p.w, F32(dx), p.rows, p.in, p.out);
    for (size_t i = 0; i < p.rows * p.in; i++) ck_assert(dx[i] == 0);
    device_free(d, copy.memory), device_free(d, dy.data), device_free(d, other);
    guarded_free(dx);
    work_free(&p);
    end(d);
}

/* With the weight at [w] the device computes what it should with that of [p]. */
static void check_product(struct device *d, enum precision precision, const float *w, const struct work *p) {
    float *y = random_values(p->rows * p->out, 9);
    device_ops(d)->linear_forward(d, F32(p->x), w, NULL, false, F32(y), p->rows, p->in, p->out);
    ck_assert(!device_status(d));
    for (size_t i = 0; i < p->rows * p->out; i++)
        check_element(precision, "y", i,
                      element(precision, 0, p->x + i / p->out * p->in, 1, p->w + i % p->out * p->in, 1, p->in), y[i]);
    guarded_free(y);
}

/* Weights that are parameters are used as of the last round_parameters if their 16-bit rows need no padding, otherwise
 * as they are. */
TEST_LOOP(parameters_are_rounded_by_round_parameters, 0, PRECISION_FLOAT16 + 1) {
    enum precision precision = (enum precision)_i;
    bool is_half = precision == PRECISION_BFLOAT16 || precision == PRECISION_FLOAT16;
    struct device *d = gpu_with(precision);
    static const struct {
        size_t in, offset;
        bool is_kept;
    } weights[] = {{24, 64, true}, {24, 68, false}, {13, 64, false}};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        struct work p = work_new((const size_t[]){5, weights[i].in, 16}), other = p;
        size_t count = p.out * p.in, total = 512;
        float *values;
        other.w = random_values(count, 10);
        ck_assert(!device_alloc(d, total * sizeof *values, "a test", (void **)&values));
        device_upload(d, values + weights[i].offset, p.w, count * sizeof *values);
        device_ops(d)->round_parameters(d, values, total);
        check_product(d, precision, values + weights[i].offset, &p);
        device_upload(d, values + weights[i].offset, other.w, count * sizeof *values);
        check_product(d, precision, values + weights[i].offset, is_half && weights[i].is_kept ? &p : &other);
        device_ops(d)->round_parameters(d, values, total);
        check_product(d, precision, values + weights[i].offset, &other);
        device_free(d, values);
        guarded_free(other.w);
        work_free(&p);
    }
    end(d);
}

static void write_gelu(struct device *d, const float *x, const struct tensor *y, size_t rows, size_t size) {
    device_ops(d)->activation_forward(d, ACTIVATION_GELU, F32(x), y, rows * size);
}

static void write_layer_norm(struct device *d, const float *x, const struct tensor *y, size_t rows, size_t size) {
    float *statistics = random_values(2 * rows, 12);
    device_ops(d)->norm_layers->layer_norm_forward(d, x, NULL, NULL, 1e-5f, y, statistics, rows, size);
    guarded_free(statistics);
}

static void write_rms_norm(struct device *d, const float *x, const struct tensor *y, size_t rows, size_t size) {
    float *statistics = random_values(rows, 12);
    device_ops(d)->norm_layers->rms_norm_forward(d, x, NULL, 1e-5f, y, statistics, rows, size);
    guarded_free(statistics);
}

static void write_cross_entropy(struct device *d, const float *x, const struct tensor *y, size_t rows, size_t size) {
    struct cross_entropy_options o = {.ignored = -100};
    struct loss_sums sums = {0};
    int64_t *targets = guarded_malloc(rows * sizeof *targets);
    for (size_t i = 0; i < rows; i++) targets[i] = i % 5 == 3 ? -100 : (int64_t)(i % size);
    device_ops(d)->losses->cross_entropy(d, &o, F32(x), targets, rows, size, 1000, y, &sums);
    guarded_free(targets);
}

typedef void writer(struct device *, const float *x, const struct tensor *y, size_t rows, size_t size);
static void write_layer_norm_back(struct device *d, const float *x, const struct tensor *y, size_t rows, size_t size) {
    float *values = random_values(rows * size, 1), *statistics = random_values(2 * rows, 2);
    device_ops(d)->norm_layers->layer_norm_backward(d, values, NULL, statistics, F32(x), y, false, NULL, NULL, rows,
                                                    size);
    guarded_free(values), guarded_free(statistics);
}
static void write_rms_norm_back(struct device *d, const float *x, const struct tensor *y, size_t rows, size_t size) {
    float *values = random_values(rows * size, 1), *statistics = random_values(rows, 2), *sums = random_values(size, 3);
    device_ops(d)->norm_layers->rms_norm_backward(d, values, sums, statistics, F32(x), y, false, sums, rows, size);
    guarded_free(values), guarded_free(statistics), guarded_free(sums);
}

static void write_relu(struct device *d, const float *x, const struct tensor *y, size_t rows, size_t size) {
    device_ops(d)->activation_forward(d, ACTIVATION_RELU, F32(x), y, rows * size);
}

static writer *const writers[] = {write_gelu,         write_relu,          write_layer_norm,
                                  write_rms_norm,     write_cross_entropy, write_layer_norm_back,
                                  write_rms_norm_back};

/* Backward of a layer reads the 16-bit copy of its gradient that a norm has written, whatever ran in between. The bits
 * are those of a gradient that is rounded there, except for the sums of the bias, which then use rounded numbers. */
TEST_LOOP(backward_before_a_norm, 0, 4) {
    enum precision precision = _i % 2 ? PRECISION_FLOAT16 : PRECISION_BFLOAT16;
    size_t rows = 37, in = 24, out = 136, count = rows * out;
    struct device *d = gpu_with(precision);
    float *x = random_values(rows * in, 1), *w = random_values(out * in, 2), *given = random_values(count, 3), *dy;
    float *dw[2], *dbias[2], *dx[2];
    ck_assert(!device_alloc(d, count * sizeof *dy, "a test", (void **)&dy));
    for (int i = 0; i < 2; i++) {
        dw[i] = random_values(out * in, 4), dbias[i] = random_values(out, 5), dx[i] = random_values(rows * in, 6);
        struct half_copy copy;
        struct tensor gradient = with_copy(d, &copy, dy, rows, out);
        if (i > 0) gradient.copy = NULL;
        (_i < 2 ? write_layer_norm_back : write_rms_norm_back)(d, given, &gradient, rows, out);
        ck_assert_int_eq(copy.is_valid, i == 0);
        device_ops(d)->is_finite(d, F32(x), 1); /* an operator between them */
        device_ops(d)->linear_backward_weight(d, &gradient, F32(x), dw[i], dbias[i], rows, in, out);
        device_ops(d)->linear_backward_input(d, &gradient, w, F32(dx[i]), rows, in, out);
        device_free(d, copy.memory);
    }
    for (size_t k = 0; k < out * in; k++) ck_assert_float_eq_tol(dw[0][k], dw[1][k], 1e-5f);
    for (size_t k = 0; k < rows * in; k++) ck_assert_float_eq_tol(dx[0][k], dx[1][k], 1e-5f);
    for (size_t k = 0; k < out; k++) ck_assert_float_eq_tol(dbias[0][k], dbias[1][k], 0.1f);
    ck_assert(memcmp(dbias[0], dbias[1], out * sizeof **dbias) != 0); /* so the 16 bits were read */
    device_free(d, dy);
    for (int i = 0; i < 2; i++) guarded_free(dw[i]), guarded_free(dbias[i]), guarded_free(dx[i]);
    guarded_free(x), guarded_free(w), guarded_free(given);
    end(d);
}

/* Some operators also write the copy of their result, if it has no gaps; a change after that is not missed. */
static void check_product_after(writer *write, enum precision precision, const size_t *shape, bool changes) {
    struct device *d = gpu_with(precision);
    struct work p = work_new(shape);
    size_t count = p.rows * p.in, bytes = count * sizeof *p.x;
    float *x, *y, *other = random_values(count, 11), *result = random_values(p.rows * p.out, 9);
    ck_assert(!device_alloc(d, bytes, "a test", (void **)&x));
    ck_assert(!device_alloc(d, bytes, "a test", (void **)&y));
    for (size_t k = 0; k < p.out * p.in; k++) /* few products of long rows: their sums have errors of their own */
        if (p.in > 1024 && k % 1009 > 0) p.w[k] = 0;
    device_upload(d, x, p.x, bytes);
    struct half_copy copy;
    bool is_half = precision == PRECISION_BFLOAT16 || precision == PRECISION_FLOAT16;
    struct tensor matrix = with_copy(d, &copy, y, p.rows, p.in);
    write(d, x, &matrix, p.rows, p.in);
    ck_assert_int_eq(copy.is_valid, is_half && p.in % 8 == 0);
    if (changes) device_ops(d)->copy(d, F32(other), &matrix, count);
    device_ops(d)->linear_forward(d, &matrix, p.w, NULL, false, F32(result), p.rows, p.in, p.out);
    ck_assert_int_eq(copy.is_valid, is_half);
    device_free(d, copy.memory);
    ck_assert(!device_download(d, p.x, y, bytes));
    ck_assert(!changes || memcmp(p.x, other, bytes) == 0);
    for (size_t k = 0; k < p.rows * p.out; k++)
        check_element(precision, "y", k,
                      element(precision, 0, p.x + k / p.out * p.in, 1, p.w + k % p.out * p.in, 1, p.in), result[k]);
    device_free(d, x), device_free(d, y);
    guarded_free(other), guarded_free(result);
    work_free(&p);
    end(d);
}

/* The copy that a convolution reads has no gaps. Element-wise operators write it also if the columns are not a multiple
 * of 8; those that work on rows do not. */
TEST_LOOP(copies_without_gaps, 0, 2 * sizeof writers / sizeof *writers) {
    enum precision precision = _i % 2 ? PRECISION_FLOAT16 : PRECISION_BFLOAT16;
    static const size_t widths[] = {70, 60, 64}, rows = 7;
    for (size_t k = 0; k < 3; k++) {
        struct device *d = gpu_with(precision);
        size_t count = rows * widths[k];
        bool is_by_element = writers[_i / 2] == write_gelu || writers[_i / 2] == write_relu;
        float *x = random_values(count, 1), *y = on_device(d, x, count);
        uint16_t *bits = guarded_malloc(count * sizeof *bits);
        struct half_copy copy;
        struct tensor matrix = with_copy(d, &copy, y, 1, count);
        copy.columns = 0;
        writers[_i / 2](d, x, &matrix, rows, widths[k]);
        ck_assert_int_eq(copy.is_valid, is_by_element || widths[k] == 64);
        ck_assert(!device_download(d, bits, copy.memory, count * sizeof *bits));
        ck_assert(!device_download(d, x, y, count * sizeof *x));
        for (size_t i = 0; i < count; i++) {
            uint16_t expected = precision == PRECISION_FLOAT16 ? bits_to_float16(x[i]) : bits_to_bfloat16(x[i]);
            ck_assert_uint_eq(bits[i], copy.is_valid ? expected : 0);
        }
        device_free(d, copy.memory), device_free(d, y);
        guarded_free(x), guarded_free(bits);
        end(d);
    }
}

/* Cross entropy writes long rows differently. */
TEST(a_product_after_long_rows) {
    check_product_after(write_cross_entropy, PRECISION_BFLOAT16, (const size_t[]){4, 20008, 2}, false);
    check_product_after(write_cross_entropy, PRECISION_FLOAT16, (const size_t[]){4, 20004, 2}, false);
}

/* A result that the next linear layer would round is written in 16 bits only, and nothing after its end. */
TEST_LOOP(cross_entropy_in_16_bits, 0, 8) {
    static const size_t matrices[][2] = {{37, 8}, {21, 1000}, {9, 1048}, {3, 20008}};
    enum precision precision = _i % 2 ? PRECISION_FLOAT16 : PRECISION_BFLOAT16;
    size_t rows = matrices[_i / 2][0], size = matrices[_i / 2][1], count = rows * size;
    struct device *d = gpu_with(precision);
    struct cross_entropy_options o = {.ignored = -100, .label_smoothing = 0.1f};
    struct loss_sums sums = {0}, half_sums = {0};
    int64_t *targets = guarded_malloc(rows * sizeof *targets);
    float *x = random_values(count, 1), *wide = guarded_malloc(count * sizeof *wide), *half;
    uint16_t *bits = guarded_malloc(2 * count * sizeof *bits);
    for (size_t i = 0; i < rows; i++) targets[i] = i % 5 == 3 ? -100 : (int64_t)(i * 31 % size);
    ck_assert(!device_alloc(d, count * sizeof *half, "a test", (void **)&half));
    device_ops(d)->losses->cross_entropy(d, &o, F32(x), targets, rows, size, 100, F32(wide), &sums);
    struct tensor gradient = {.data = half, .is_half = true};
    device_ops(d)->losses->cross_entropy(d, &o, F32(x), targets, rows, size, 100, &gradient, &half_sums);
    ck_assert(!device_download(d, bits, half, 2 * count * sizeof *bits));
    ck_assert_int_eq(memcmp(&sums, &half_sums, sizeof sums), 0);
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_eq(bits[i],
                          precision == PRECISION_FLOAT16 ? bits_to_float16(wide[i]) : bits_to_bfloat16(wide[i]));
        ck_assert_uint_eq(bits[count + i], 0);
    }
    device_free(d, half);
    guarded_free(x), guarded_free(wide), guarded_free(bits), guarded_free(targets);
    end(d);
}

TEST_EACH(a_product_after_16_bit_results, writers) {
    static const enum precision precisions[] = {PRECISION_FLOAT32, PRECISION_BFLOAT16, PRECISION_FLOAT16};
    static const size_t some[][3] = {{37, 70, 45}, {64, 128, 132}, {5, 8, 16}};
    for (size_t i = 0; i < 3 * 3 * 2; i++) check_product_after(writers[_i], precisions[i % 3], some[i / 3 % 3], i >= 9);
}

/* Numbers beyond the maximum of float16 become infinite; the loss scale handles it. */
TEST(float16_overflows) {
    struct device *d = gpu_with(PRECISION_FLOAT16);
    float x[2] = {65519, 1}, w[2] = {1, 1}, y = 0;
    device_ops(d)->linear_forward(d, F32(x), w, NULL, false, F32(&y), 1, 2, 1);
    ck_assert(y == 65505); /* 65504 is the largest */
    x[0] = 65520;
    device_ops(d)->linear_forward(d, F32(x), w, NULL, false, F32(&y), 1, 2, 1);
    ck_assert(isinf(y));
    end(d);
}

TEST(the_description_contains_the_precision) {
    static const char *const names[] = {")", ", tf32)", ", bfloat16)", ", float16)"};
    for (enum precision precision = PRECISION_FLOAT32; precision <= PRECISION_FLOAT16; precision++) {
        struct device *d = gpu_with(precision);
        const char *text = device_describe(d), *name = names[precision];
        ck_assert_msg(strcmp(text + strlen(text) - strlen(name), name) == 0, "%s", text);
        ck_assert(precision != PRECISION_FLOAT32 || !strstr(text, ", "));
        end(d);
    }
}

int main(void) { return gpu_run("gpu_precision"); }
