/* Large convolutions (oneDNN's, if its module is built) against the project's implementation, which the gradient checks
 * of the model's tests compare with the definition; that one on every instruction set. ctest-labels: unit */
#include <math.h>
#include <string.h>

#include "check_main.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/internal.h"
#include "device_work.h"

static const struct convolution cases[] = {
    {.in = {13, 14, 16},
     .out = {13, 14, 32},
     .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}},
     .groups = 1,
     .has_bias = true},
    {.in = {28, 28, 1},
     .out = {26, 26, 48},
     .window = {{3, 3}, {1, 1}, {0, 0}, {1, 1}},
     .groups = 1,
     .has_bias = true,
     .has_relu = true},
    {.in = {15, 16, 3}, .out = {8, 8, 48}, .window = {{3, 3}, {2, 2}, {1, 1}, {1, 1}}, .groups = 1},
    {.in = {16, 16, 32}, .out = {8, 8, 64}, .window = {{1, 1}, {2, 2}, {0, 0}, {1, 1}}, .groups = 1},
    {.in = {17, 12, 20},
     .out = {15, 16, 40},
     .window = {{3, 2}, {1, 1}, {1, 3}, {2, 2}},
     .groups = 2,
     .has_bias = true},
    {.in = {1, 200, 24},
     .out = {1, 100, 24},
     .window = {{1, 5}, {1, 2}, {0, 2}, {1, 1}},
     .groups = 24,
     .has_bias = true},
    /* Winograd: tiles that exceed the image, several panels of channels; then weights computed in pieces */
    {.in = {11, 14, 32},
     .out = {9, 12, 80},
     .window = {{3, 3}, {1, 1}, {0, 0}, {1, 1}},
     .groups = 1,
     .has_bias = true,
     .has_relu = true},
    /* as for Winograd, except for the dilation in one direction */
    {.in = {14, 12, 32}, .out = {10, 10, 32}, .window = {{3, 3}, {1, 1}, {0, 0}, {2, 1}}, .groups = 1},
    {.in = {12, 14, 32}, .out = {10, 10, 32}, .window = {{3, 3}, {1, 1}, {0, 0}, {1, 2}}, .groups = 1},
    /* as for Winograd, except for the groups */
    {.in = {12, 14, 64}, .out = {12, 14, 64}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 2},
    {.in = {7, 5, 144}, .out = {9, 7, 48}, .window = {{3, 3}, {1, 1}, {2, 2}, {1, 1}}, .groups = 1},
    /* unit stride: outputs of two pixels in one vector, lines of 13, 7 and 1 pixels; panels that are not whole */
    {.in = {9, 13, 48}, .out = {9, 13, 12}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1, .has_bias = true},
    {.in = {4, 9, 24},
     .out = {5, 7, 11},
     .window = {{2, 3}, {1, 1}, {1, 0}, {1, 1}},
     .groups = 1,
     .has_bias = true,
     .has_relu = true},
    {.in = {6, 1, 10}, .out = {6, 1, 9}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1},
    {.in = {8, 11, 21},
     .out = {8, 11, 44},
     .window = {{1, 1}, {1, 1}, {0, 0}, {1, 1}},
     .groups = 1,
     .has_bias = true,
     .has_relu = true},
    {.in = {3, 34, 8}, .out = {5, 35, 6}, .window = {{3, 4}, {1, 1}, {2, 2}, {1, 1}}, .groups = 1},
    {.in = {4, 5, 208}, .out = {4, 5, 176}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1, .has_bias = true},
    /* channels of whole tiles of AMX: a stride and padding behind the image; more terms than one block of k has */
    {.in = {9, 12, 64},
     .out = {5, 6, 96},
     .window = {{3, 3}, {2, 2}, {1, 1}, {1, 1}},
     .groups = 1,
     .has_bias = true,
     .has_relu = true},
    {.in = {7, 9, 160}, .out = {7, 9, 64}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1, .has_bias = true},
    /* strides beside a dilation, with inputs that are not read */
    {.in = {11, 13, 64}, .out = {4, 7, 64}, .window = {{3, 2}, {3, 2}, {2, 1}, {2, 1}}, .groups = 1},
    {.in = {10, 9, 64}, .out = {3, 3, 64}, .window = {{2, 1}, {4, 4}, {0, 0}, {1, 1}}, .groups = 1, .has_bias = true},
    /* dilated, channels of more than two tiles that are not whole: oneDNN's gradient of the weights is wrong with AMX
     */
    {.in = {21, 19, 66}, .out = {21, 19, 68}, .window = {{5, 3}, {1, 1}, {4, 2}, {2, 2}}, .groups = 1},
    /* stride 1 with AMX: several bands of lines, the last of fewer; one, two and three tiles of channels */
    {.in = {41, 150, 20}, .out = {41, 150, 24}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1},
    {.in = {10, 20, 9},
     .out = {8, 18, 45},
     .window = {{5, 5}, {1, 1}, {1, 1}, {1, 1}},
     .groups = 1,
     .has_bias = true,
     .has_relu = true},
    /* products of the image: kernels of one position and of one line, and images of one pixel */
    {.in = {9, 11, 96}, .out = {9, 11, 64}, .window = {{1, 1}, {1, 1}, {0, 0}, {1, 1}}, .groups = 1, .has_bias = true},
    {.in = {1, 9, 64}, .out = {1, 9, 96}, .window = {{1, 3}, {1, 1}, {0, 1}, {1, 1}}, .groups = 1},
    {.in = {1, 1, 64}, .out = {1, 1, 64}, .window = {{1, 1}, {1, 1}, {0, 0}, {1, 1}}, .groups = 1},
    {.in = {12, 21, 64}, .out = {13, 20, 16}, .window = {{2, 4}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1},
};

/* The minimum number of rows, at least three, for which it is large. */
static size_t rows_of(const struct convolution *c) {
    size_t row = c->out.height * c->out.width * c->out.channels * c->in.channels / c->groups * c->window.kernel[0] *
                 c->window.kernel[1];
    size_t rows = ((size_t)1 << 22) / row + 1;
    return rows < 3 ? 3 : rows;
}

struct tensors {
    float *x, *w, *bias, *dy, *y, *dx, *dw, *dbias;
    size_t in, out, weights;
};

static float *numbers(struct rng *rng, size_t count) {
    float *values = guarded_malloc(count * sizeof *values);
    if (rng)
        for (size_t i = 0; i < count; i++) values[i] = (float)(rng_u32(rng) % 2001) / 1000 - 1;
    else
        memset(values, 0, count * sizeof *values);
    return values;
}

/* The same inputs each time, rounded to bfloat16 if [is_rounded]; one gradient is not zero before. */
/* Those that the device chooses. */
static void forward_of_device(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                              size_t rows) {
    cpu_convolution_ops.forward(d, F32(x), w, bias, F32(y), rows);
}
static void backward_of_device(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                               float *dw, float *dbias, size_t rows) {
    cpu_convolution_ops.backward(d, F32(x), w, F32(dy), F32(dx), dw, dbias, rows);
}
static status create_of_device(struct device *device, const struct convolution *c, size_t rows,
                               struct device_convolution **out) {
    return cpu_convolution_ops.create(device, c, rows, out);
}
static void destroy_of_device(struct device_convolution *d) { cpu_convolution_ops.destroy(d); }
static status prepare_of_device(struct device_convolution *d, size_t rows, bool is_training) {
    return cpu_convolution_ops.prepare(d, rows, is_training);
}
static const struct convolution_kernels of_device = {create_of_device, destroy_of_device, prepare_of_device,
                                                     forward_of_device, backward_of_device};

static struct tensors run_on(struct device *device, const struct convolution_kernels *ops, const struct convolution *c,
                             size_t max, size_t rows, bool is_rounded) {
    struct rng rng;
    rng_seed(&rng, 3);
    struct tensors t = {.in = max * c->in.height * c->in.width * c->in.channels,
                        .out = max * c->out.height * c->out.width * c->out.channels,
                        .weights =
                            c->out.channels * c->in.channels / c->groups * c->window.kernel[0] * c->window.kernel[1]};
    t.x = numbers(&rng, t.in);
    t.w = numbers(&rng, t.weights);
    t.bias = numbers(&rng, c->out.channels);
    t.dy = numbers(&rng, t.out);
    t.dw = numbers(&rng, t.weights);
    t.dbias = numbers(&rng, c->out.channels);
    if (is_rounded) round_bf16(t.x, t.in), round_bf16(t.w, t.weights), round_bf16(t.dy, t.out);
    t.y = numbers(NULL, t.out);
    t.dx = numbers(NULL, t.in);
    struct device_convolution *d;
    ck_assert(!ops->create(device, c, max, &d));
    for (int i = 0; i < 2; i++) { /* the second time memory of the first is reused */
        ops->forward(d, t.x, t.w, c->has_bias ? t.bias : NULL, t.y, rows);
        ops->backward(d, t.x, t.w, t.dy, t.dx, t.dw, c->has_bias ? t.dbias : NULL, rows);
    }
    ops->destroy(d);
    return t;
}

static struct tensors run(struct device *device, const struct convolution_kernels *ops, const struct convolution *c,
                          size_t max, size_t rows) {
    return run_on(device, ops, c, max, rows, false);
}

static void free_tensors(struct tensors *t) {
    guarded_free(t->x), guarded_free(t->w), guarded_free(t->bias), guarded_free(t->dy), guarded_free(t->y),
        guarded_free(t->dx), guarded_free(t->dw), guarded_free(t->dbias);
}

static void equal(const float *a, const float *b, size_t count, const char *what, size_t which) {
    double largest = 1e-6, worst = 0;
    bool is_finite = true; /* fmax skips NaN */
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
        is_finite = is_finite && isfinite(a[i]);
    }
    ck_assert_msg(is_finite && worst <= 5e-6 * largest, "case %zu, %s: %g of %g", which, what, worst, largest);
}

static void compare_products(const struct tensors *a, const struct tensors *b, size_t which) {
    equal(a->y, b->y, a->out, "y", which);
    equal(a->dx, b->dx, a->in, "dx", which);
    equal(a->dw, b->dw, a->weights, "dw", which);
}

static void compare(const struct tensors *a, const struct tensors *b, const struct convolution *c, size_t which) {
    compare_products(a, b, which);
    equal(a->dbias, b->dbias, c->out.channels, "dbias", which);
}

static bool has_unit_stride(const struct convolution *c) {
    bool has = c->groups == 1;
    for (int d = 0; d < 2; d++)
        has =
            has && c->window.stride[d] == 1 && c->window.dilation[d] == 1 && c->window.padding[d] < c->window.kernel[d];
    return has;
}

TEST(every_implementation) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device *device;
        ck_assert(!cpu_device_create("baseline", &device));
        struct tensors expected =
            run(device, cpu_kernels_of(device)->convolution, &cases[i], rows_of(&cases[i]), rows_of(&cases[i]));
        struct tensors large = run(device, &of_device, &cases[i], rows_of(&cases[i]), rows_of(&cases[i]));
        compare(&large, &expected, &cases[i], i);
        free_tensors(&large);
        device_destroy(device);
        for (size_t s = 0; s < SETS; s++) {
            if (!(device = open_set(sets[s]))) continue;
            struct tensors own =
                run(device, cpu_kernels_of(device)->convolution, &cases[i], rows_of(&cases[i]), rows_of(&cases[i]));
            compare(&own, &expected, &cases[i], i);
            free_tensors(&own);
            if (has_unit_stride(&cases[i])) {
                own =
                    run(device, cpu_kernels_of(device)->unit_stride, &cases[i], rows_of(&cases[i]), rows_of(&cases[i]));
                compare_products(&own, &expected, i);
                free_tensors(&own);
            }
            device_destroy(device);
        }
        free_tensors(&expected);
    }
}

static double distance(const float *a, const float *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += fabs((double)a[i] - (double)b[i]);
    return sum;
}

/* [x] is nearer to the results of rounded factors than to those of others. */
static void check_rounded(const struct tensors *x, const struct tensors *rounded, const struct tensors *plain,
                          size_t i) {
    ck_assert_msg(distance(x->y, rounded->y, x->out) < 0.01 * distance(x->y, plain->y, x->out), "case %zu, y", i);
    ck_assert_msg(distance(x->dx, rounded->dx, x->in) < 0.01 * distance(x->dx, plain->dx, x->in), "case %zu, dx", i);
    ck_assert_msg(distance(x->dw, rounded->dw, x->weights) < 0.01 * distance(x->dw, plain->dw, x->weights),
                  "case %zu, dw", i);
}

/* With AMX, in bfloat16: the factors are rounded, the sums are not. */
TEST(factors_are_rounded) {
    SCOPED_DEVICE device = open_set("amx"), *baseline = open_set("baseline");
    ck_assert_ptr_nonnull(baseline);
    status s = device ? device_set_precision(device, PRECISION_BFLOAT16) : OK;
    if (s) printf("skipped on this machine: %s\n", status_message(s));
    for (size_t i = 0; i < sizeof cases / sizeof *cases && device && !s; i++) {
        const struct convolution *c = &cases[i];
        const struct convolution_kernels *plain_ops = cpu_kernels_of(baseline)->convolution;
        size_t rows = rows_of(c);
        struct tensors expected = run_on(baseline, plain_ops, c, rows, rows, true);
        struct tensors exact = run_on(device, &of_device, c, rows, rows, true);
        compare(&exact, &expected, c, i);
        struct tensors plain = run(baseline, plain_ops, c, rows, rows);
        struct tensors own = run(device, &of_device, c, rows, rows);
        bool is_own = cpu_amx_convolution(device, c), is_dilated = c->window.dilation[0] > 1;
        if (is_own)
            check_rounded(&own, &expected, &plain, i);
        else if (c->in.channels < 64 || c->out.channels < 64 || is_dilated) /* stays float32 */
            compare(&own, &plain, c, i);
        free_tensors(&own), free_tensors(&plain), free_tensors(&exact), free_tensors(&expected);
    }
    status_free(s);
}

/* With AMX, in float32: by the operators with AMX, and by those that are chosen. */
TEST(factors_are_three_bfloat16) {
    SCOPED_DEVICE device = open_set("amx"), *baseline = open_set("baseline");
    ck_assert_ptr_nonnull(baseline);
    if (device) ck_assert(!device_set_precision(device, PRECISION_FLOAT32_SPLIT));
    for (size_t i = 0; i < sizeof cases / sizeof *cases && device; i++) {
        const struct convolution *c = &cases[i];
        const struct convolution_kernels *amx = cpu_amx_convolution(device, c);
        size_t rows = rows_of(c);
        struct tensors expected = run(baseline, cpu_kernels_of(baseline)->convolution, c, rows, rows);
        struct tensors chosen = run(device, &of_device, c, rows, rows);
        compare(&chosen, &expected, c, i);
        if (amx) {
            struct tensors own = run(device, amx, c, rows, rows);
            compare_products(&own, &expected, i);
            free_tensors(&own);
        }
        free_tensors(&chosen), free_tensors(&expected);
    }
}

/* Fewer and more rows than it was created for, then on one thread: each pass needs another part of the workspace. */
static void add_other_rows(struct device *device, const void *context, struct digest *digest) {
    static const size_t counts[] = {4, 1, 20, 0, 7};
    const struct convolution *c = context;
    ck_assert(!device_set_precision(device, PRECISION_BFLOAT16));
    const struct convolution_kernels *ops = cpu_amx_convolution(device, c);
    struct device_convolution *d;
    ck_assert(!ops->create(device, c, 7, &d));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (i == 4) parallel_limit(1);
        struct tensors t = run(device, cpu_kernels_of(device)->convolution, c, 20, 1); /* the inputs */
        ops->forward(d, t.x, t.w, NULL, t.y, counts[i]);
        ops->backward(d, t.x, t.w, t.dy, t.dx, t.dw, NULL, counts[i]);
        digest_add(digest, t.y, t.out * sizeof *t.y);
        digest_add(digest, t.dx, t.in * sizeof *t.dx);
        digest_add(digest, t.dw, t.weights * sizeof *t.dw);
        free_tensors(&t);
    }
    ops->destroy(d);
}

TEST(other_numbers_of_rows_on_threads) {
    static const struct convolution convolutions[] = {
        {.in = {4, 4, 1024}, .out = {4, 4, 512}, .window = {{1, 1}, {1, 1}, {0, 0}, {1, 1}}, .groups = 1},
        {.in = {30, 31, 40}, .out = {30, 31, 24}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1}};
    SCOPED_DEVICE device = open_set("amx");
    status s = device ? device_set_precision(device, PRECISION_BFLOAT16) : OK;
    if (s) printf("skipped on this machine: %s\n", status_message(s));
    for (size_t i = 0; i < 2 && device && !s; i++) threads_agree(add_other_rows, &convolutions[i]);
    status_free(s);
}

/* A last batch that is shorter than the others. */
TEST(fewer_rows) {
    SCOPED_DEVICE device;
    ck_assert(!cpu_device_create(NULL, &device));
    struct tensors expected = run(device, cpu_kernels_of(device)->convolution, &cases[0], 16, 5);
    struct tensors large = run(device, &of_device, &cases[0], 16, 5);
    compare(&large, &expected, &cases[0], 0);
    free_tensors(&large), free_tensors(&expected);
}

/* Inference, which needs no gradients, with more rows and fewer than before; by the kernels of stride 1 and by oneDNN.
 */
TEST_LOOP(outputs_alone, 0, 2) {
    const struct convolution *c = _i == 0 ? &cases[0] : &cases[3];
    SCOPED_DEVICE device;
    ck_assert(!cpu_device_create(NULL, &device));
    const struct convolution_kernels *ops = &of_device;
    struct device_convolution *d;
    const size_t most = rows_of(c), rows[] = {most / 2, 2 * most, most / 2, most};
    ck_assert(!ops->create(device, c, most, &d));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tensors expected = run(device, cpu_kernels_of(device)->convolution, c, rows[i], rows[i]);
        float *y = numbers(NULL, expected.out);
        ck_assert(!ops->prepare(d, rows[i], false));
        ops->forward(d, expected.x, expected.w, c->has_bias ? expected.bias : NULL, y, rows[i]);
        equal(y, expected.y, expected.out, "y", i);
        guarded_free(y);
        free_tensors(&expected);
    }
    ops->destroy(d);
}

/* One image or a few, for which Winograd's algorithm computes the points of large weights in smaller pieces, have the
 * bits of the same images in a batch. */
TEST(few_images_have_the_bits_of_many) {
    static const struct convolution c = {
        .in = {4, 3, 160}, .out = {4, 3, 176}, .window = {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, .groups = 1};
    enum { MANY = 9, IN = 4 * 3 * 160, OUT = 4 * 3 * 176 };
    for (size_t s = 0; s < SETS; s++) {
        SCOPED_DEVICE device = open_set(sets[s]);
        if (!device) continue;
        const struct convolution_kernels *ops = cpu_kernels_of(device)->winograd;
        struct tensors many = run(device, ops, &c, MANY, MANY);
        for (size_t rows = 1; rows < MANY; rows++) {
            float *y = numbers(NULL, rows * OUT), *dx = numbers(NULL, rows * IN);
            struct device_convolution *d;
            ck_assert(!ops->create(device, &c, rows, &d));
            ops->forward(d, many.x, many.w, NULL, y, rows);
            ops->backward(d, many.x, many.w, many.dy, dx, NULL, NULL, rows);
            ck_assert_mem_eq(y, many.y, rows * OUT * sizeof *y);
            ck_assert_mem_eq(dx, many.dx, rows * IN * sizeof *dx);
            ops->destroy(d);
            guarded_free(y), guarded_free(dx);
        }
        free_tensors(&many);
    }
}

enum bits_of { WINOGRAD, UNIT_STRIDE, BFLOAT16, THREE_BFLOAT16 };

struct bits_case {
    const struct convolution *c;
    enum bits_of of;
};

static void add_bits(struct device *device, const void *context, struct digest *digest) {
    const struct bits_case *of = context;
    const struct convolution *c = of->c;
    const struct cpu_kernels *kernels = cpu_kernels_of(device);
    const struct convolution_kernels *ops = of->of == WINOGRAD ? kernels->winograd : kernels->unit_stride;
    if (of->of == BFLOAT16 || of->of == THREE_BFLOAT16) {
        enum precision precision = of->of == BFLOAT16 ? PRECISION_BFLOAT16 : PRECISION_FLOAT32_SPLIT;
        ck_assert(!device_set_precision(device, precision));
        ops = cpu_amx_convolution(device, c);
    }
    struct tensors t = run(device, ops, c, rows_of(c), rows_of(c));
    digest_add(digest, t.y, t.out * sizeof *t.y);
    digest_add(digest, t.dx, t.in * sizeof *t.dx);
    digest_add(digest, t.dw, t.weights * sizeof *t.dw);
    free_tensors(&t);
}

static bool uses_amx(struct device *device, const struct convolution *c) {
    return device && cpu_amx_convolution(device, c);
}

TEST(the_same_bits_on_any_number_of_threads) {
    SCOPED_DEVICE device = open_set("amx"), *three = open_set("amx");
    if (three) ck_assert(!device_set_precision(three, PRECISION_FLOAT32_SPLIT));
    status s = device ? device_set_precision(device, PRECISION_BFLOAT16) : OK;
    if (s) printf("skipped on this machine: %s\n", status_message(s));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct convolution *c = &cases[i];
        if (c->in.channels >= 32 && c->out.channels >= 32 && c->window.kernel[0] == 3 && c->groups == 1 &&
            c->window.stride[0] == 1)
            threads_agree(add_bits, &(struct bits_case){c, WINOGRAD});
        if (has_unit_stride(c)) threads_agree(add_bits, &(struct bits_case){c, UNIT_STRIDE});
        if (uses_amx(device, c)) threads_agree(add_bits, &(struct bits_case){c, BFLOAT16});
        if (uses_amx(three, c)) threads_agree(add_bits, &(struct bits_case){c, THREE_BFLOAT16});
    }
    status_free(s);
}

/* Vectors of any width with fused multiply-adds give the same bits. */
TEST(the_same_bits_in_every_set) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensors both[2];
        size_t count = 0;
        for (size_t s = 1; has_unit_stride(&cases[i]) && s < SETS; s++) {
            SCOPED_DEVICE device = open_set(sets[s]);
            if (!device) continue;
            both[count++] =
                run(device, cpu_kernels_of(device)->unit_stride, &cases[i], rows_of(&cases[i]), rows_of(&cases[i]));
        }
        if (count == 2) {
            ck_assert_mem_eq(both[0].y, both[1].y, both[0].out * sizeof(float));
            ck_assert_mem_eq(both[0].dx, both[1].dx, both[0].in * sizeof(float));
            ck_assert_mem_eq(both[0].dw, both[1].dw, both[0].weights * sizeof(float));
        }
        while (count > 0) free_tensors(&both[--count]);
    }
}

/* By the operators that are chosen for determinism.portable, with oneDNN and AMX where they are. */
TEST(the_same_bits_on_every_processor) {
    static const char *const with_fma[] = {"avx2", "avx512", "amx"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensors first = {0};
        for (size_t s = 0; s < sizeof with_fma / sizeof *with_fma; s++) {
            struct device *device = open_set(with_fma[s]);
            if (!device) continue;
            ck_assert(!device_set_precision(device, PRECISION_FLOAT32_PORTABLE));
            struct tensors t = run(device, &of_device, &cases[i], rows_of(&cases[i]), rows_of(&cases[i]));
            device_destroy(device);
            if (!first.x) {
                first = t;
                continue;
            }
            ck_assert_mem_eq(t.y, first.y, t.out * sizeof(float));
            ck_assert_mem_eq(t.dx, first.dx, t.in * sizeof(float));
            ck_assert_mem_eq(t.dw, first.dw, t.weights * sizeof(float));
            ck_assert_mem_eq(t.dbias, first.dbias, cases[i].out.channels * sizeof(float));
            free_tensors(&t);
        }
        if (first.x) free_tensors(&first);
    }
}

CHECK_MAIN("convolution")
