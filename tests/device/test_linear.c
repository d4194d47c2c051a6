/* Products of sizes that cover every branch of the kernel: several blocks of k, of rows and of columns, tiles at the
 * edges, rows that are copied first; and the same bits on one and several threads. ctest-labels: unit */
#include <float.h>
#include <math.h>
#include <string.h>

#include "check_main.h"
#include "device/cpu/cpu.h"
#include "device/internal.h"
#include "device_work.h"
#include "no_memory.h"

struct results {
    float *y, *positive, *dx, *dw, *dbias;
};

static struct results compute(struct device *device, size_t rows, size_t in, size_t out) {
    const struct device_ops *ops = device_ops(device);
    float *x = random_values(rows * in, 1), *w = random_values(out * in, 2), *bias = random_values(out, 3);
    struct results r = {guarded_malloc(rows * out * sizeof(float)), guarded_malloc(rows * out * sizeof(float)),
                        guarded_malloc(rows * in * sizeof(float)), random_values(out * in, 4), random_values(out, 5)};
    ops->linear_forward(device, F32(x), w, bias, false, F32(r.y), rows, in, out);
    ops->linear_forward(device, F32(x), w, NULL, true, F32(r.positive), rows, in, out);
    ops->linear_backward_input(device, F32(r.y), w, F32(r.dx), rows, in, out);
    ops->linear_backward_weight(device, F32(r.y), F32(x), r.dw, r.dbias, rows, in, out);
    guarded_free(x), guarded_free(w), guarded_free(bias);
    return r;
}

static void release(struct results *r) {
    guarded_free(r->y), guarded_free(r->positive), guarded_free(r->dx), guarded_free(r->dw), guarded_free(r->dbias);
}

/* Of float32 sums; of factors that are two bfloat16, each of which may differ by 2^-16, as may the product that is left
 * out. */
static double tolerance(enum precision precision) { return precision == PRECISION_TF32 ? 0x1.9p-15 : 1e-6; }

/* |value - sum of a(i) b(i)| is at most [limit] times the sum of |a(i) b(i)|. */
static void check(float value, float start, const float *a, size_t a_step, const float *b, size_t b_step, size_t count,
                  double limit, const char *what) {
    double sum = (double)start, size = 1 + fabs(sum);
    for (size_t i = 0; i < count; i++) {
        double term = (double)a[i * a_step] * (double)b[i * b_step];
        sum += term;
        size += fabs(term);
    }
    ck_assert_msg(fabs(sum - (double)value) < limit * size, "%s: %g, not %g", what, (double)value, sum);
}

/* Checks elements in the corners and some between. */
static void check_all(const struct results *r, size_t rows, size_t in, size_t out, enum precision precision) {
    float *x = random_values(rows * in, 1), *w = random_values(out * in, 2), *bias = random_values(out, 3);
    float *dw = random_values(out * in, 4), *dbias = random_values(out, 5), one = 1;
    float *dy = memcpy(guarded_malloc(rows * out * sizeof *dy), r->y, rows * out * sizeof *dy);
    double limit = tolerance(precision);
    if (precision == PRECISION_BFLOAT16) round_bf16(x, rows * in), round_bf16(w, out * in), round_bf16(dy, rows * out);
    for (size_t i = 0; i < rows; i += i + 8 < rows ? 7 : 1)
        for (size_t o = 0; o < out; o += o + 8 < out ? 7 : 1) {
            check(r->y[i * out + o], bias[o], x + i * in, 1, w + o * in, 1, in, limit, "y");
            float plain = r->positive[i * out + o];
            ck_assert(plain >= 0);
            if (plain > 0) check(plain, 0, x + i * in, 1, w + o * in, 1, in, limit, "y with relu");
            if (plain == 0) ck_assert_double_lt((double)(r->y[i * out + o] - bias[o]), 1e-3);
        }
    for (size_t j = 0; j < in; j += j + 8 < in ? 7 : 1) {
        for (size_t i = 0; i < rows; i += i + 8 < rows ? 7 : 1)
            check(r->dx[i * in + j], 0, dy + i * out, 1, w + j, in, out, limit, "dx");
        for (size_t o = 0; o < out; o += o + 8 < out ? 7 : 1)
            check(r->dw[o * in + j], dw[o * in + j], dy + o, out, x + j, in, rows, limit, "dw");
    }
    for (size_t o = 0; o < out; o++) check(r->dbias[o], dbias[o], r->y + o, out, &one, 0, rows, limit, "dbias");
    guarded_free(x), guarded_free(w), guarded_free(bias), guarded_free(dw), guarded_free(dbias), guarded_free(dy);
}

static const size_t shapes[][3] = {
    {1, 1, 1},       {40, 1024, 101}, {33, 401, 270},   {300, 17, 49},
    {2, 2048, 5},    {65, 130, 1000}, {600, 1024, 230}, {560, 401, 205}, /* several groups of columns, packed once */
    {450, 101, 700},                                                     /* the inputs packed once for dw */
    {520, 530, 1024}};                                                   /* rows copied before the product */

TEST(products_agree) {
    for (size_t s = 0; s < SETS; s++) {
        SCOPED_DEVICE device = open_set(sets[s]);
        if (!device) continue;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct results r = compute(device, shapes[i][0], shapes[i][1], shapes[i][2]);
            check_all(&r, shapes[i][0], shapes[i][1], shapes[i][2], PRECISION_FLOAT32);
            release(&r);
        }
    }
}

/* More rows than are copied at once. */
/* One row after the other, in every set; columns that are whole vectors, parts of one, many. */
TEST(gradients_of_biases_are_added_in_order) {
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    static const size_t sizes[] = {1, 3, 7, 16, 30, 64, 77, 5000};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        SCOPED_DEVICE device = open_set(names[n]);
        for (size_t s = 0; device && s < sizeof sizes / sizeof *sizes; s++)
            for (size_t rows = 1; rows < 40; rows += 6) {
                size_t size = sizes[s];
                float *dy = random_values(rows * size, 1), *sum = random_values(size, 2), *x = random_values(rows, 3);
                float *dbias = memcpy(guarded_malloc(size * sizeof *sum), sum, size * sizeof *sum);
                float *dw = random_values(size, 4);
                device_ops(device)->linear_backward_weight(device, F32(dy), F32(x), dw, dbias, rows, 1, size);
                for (size_t i = 0; i < rows * size; i++) sum[i % size] += dy[i];
                ck_assert_mem_eq(dbias, sum, size * sizeof *sum);
                guarded_free(dy), guarded_free(sum), guarded_free(x), guarded_free(dbias), guarded_free(dw);
            }
    }
}

TEST(rows_are_copied_in_groups) {
    size_t rows = 4100, in = 1024, out = 512;
    SCOPED_DEVICE device = open_set(NULL);
    float *x = random_values(rows * in, 1), *w = random_values(out * in, 2), *bias = random_values(out, 3);
    float *y = guarded_malloc(rows * out * sizeof *y);
    device_ops(device)->linear_forward(device, F32(x), w, bias, false, F32(y), rows, in, out);
    for (size_t i = 0; i < rows; i += i + 70 < rows ? 63 : 1)
        for (size_t o = 0; o < out; o += o + 8 < out ? 7 : 1)
            check(y[i * out + o], bias[o], x + i * in, 1, w + o * in, 1, in, tolerance(PRECISION_FLOAT32), "y");
    guarded_free(x), guarded_free(w), guarded_free(bias), guarded_free(y);
}

#define LARGE ((size_t)1 << 19) /* multiply-adds, more than of any small product */

/* Rows of a result have the same bits in a small product and in a large one with more rows. */
static void check_small(struct device *device, size_t rows, size_t in, size_t out) {
    const struct device_ops *ops = device_ops(device);
    size_t many = LARGE / (in * out) + rows, wide = LARGE / (rows * in) + out;
    float *x = random_values(many * in, 1), *w = random_values(wide * in, 2), *bias = random_values(out, 3);
    float *dy = random_values(many * out, 4), *wide_dy = random_values(rows * wide, 5);
    float *small_x = guarded_copy(x, rows * in * sizeof *x), *small_w = guarded_copy(w, out * in * sizeof *w);
    float *small_dy = guarded_copy(dy, rows * out * sizeof *dy), *small_dw = guarded_copy(w, out * in * sizeof *w);
    float *y = guarded_malloc(rows * out * sizeof *y), *large_y = guarded_malloc(many * out * sizeof *y);
    float *dx = guarded_malloc(rows * in * sizeof *dx), *large_dx = guarded_malloc(many * in * sizeof *dx);
    for (int i = 0; i < 2; i++) {
        ops->linear_forward(device, F32(small_x), small_w, i ? NULL : bias, i, F32(y), rows, in, out);
        ops->linear_forward(device, F32(x), small_w, i ? NULL : bias, i, F32(large_y), many, in, out);
        ck_assert_mem_eq(y, large_y, rows * out * sizeof *y);
    }
    ops->linear_backward_input(device, F32(small_dy), small_w, F32(dx), rows, in, out);
    ops->linear_backward_input(device, F32(dy), small_w, F32(large_dx), many, in, out);
    ck_assert_mem_eq(dx, large_dx, rows * in * sizeof *dx);
    for (size_t i = 0; i < rows; i++) memcpy(small_dy + i * out, wide_dy + i * wide, out * sizeof *dy);
    ops->linear_backward_weight(device, F32(small_dy), F32(small_x), small_dw, NULL, rows, in, out);
    ops->linear_backward_weight(device, F32(wide_dy), F32(x), w, NULL, rows, in, wide);
    ck_assert_mem_eq(small_dw, w, out * in * sizeof *w);
    float *const blocks[] = {x, w, bias, dy, wide_dy, small_x, small_w, small_dy, small_dw, y, large_y, dx, large_dx};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) guarded_free(blocks[i]);
}

/* With the name of a set that multiplies in bfloat16; NULL, with a line, where it cannot. */
static struct device *open_rounding(const char *set, enum precision precision) {
    struct device *device = NULL;
    status s = cpu_device_create(set, &device);
    if (!s) s = device_set_precision(device, precision);
    if (!s && precision != PRECISION_BFLOAT16 && !device_has_tf32("cpu"))
        s = status_new(STATUS_USAGE, "this CPU does not have AMX");
    if (!s) return device;
    printf("skipped on this machine: %s\n", status_message(s));
    status_free(s);
    device_destroy(device);
    return NULL;
}

static struct device *open_bfloat16(const char *set) { return open_rounding(set, PRECISION_BFLOAT16); }

static const char *const bf16_sets[][2] = {{"amx", "cpu (amx, bfloat16)"}, {"avx512_bf16", "cpu (avx512, bfloat16)"}};
#define BF16_SETS (sizeof bf16_sets / sizeof *bf16_sets)

/* Sizes on both sides of each vector and tile. */
static void check_all_small(struct device *device) {
    static const size_t small[][3] = {{1, 1, 1},    {2, 3, 2},    {3, 7, 5},    {4, 8, 8},   {5, 9, 7},    {8, 15, 9},
                                      {9, 16, 16},  {7, 17, 15},  {32, 13, 64}, {32, 64, 3}, {14, 13, 37}, {12, 23, 24},
                                      {13, 25, 33}, {6, 31, 47},  {11, 33, 49}, {16, 16, 1}, {33, 35, 2},  {17, 31, 4},
                                      {47, 3, 53},  {32, 16, 35}, {40, 35, 3},  {32, 48, 1}, {32, 33, 4},  {64, 32, 2},
                                      {10, 64, 61}, {9, 64, 64}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        check_small(device, small[i][0], small[i][1], small[i][2]);
}

TEST(small_products_have_the_bits_of_large_ones) {
    for (size_t s = 0; s < SETS + BF16_SETS; s++) {
        SCOPED_DEVICE device = s < SETS ? open_set(sets[s]) : open_bfloat16(bf16_sets[s - SETS][0]);
        if (!device) continue;
        check_all_small(device);
    }
    struct device *device = open_rounding("amx", PRECISION_TF32);
    if (device) check_all_small(device);
    device_destroy(device);
}

/* A few rows, whose product reads w (out, in), or its transpose, in place, and some rows, whose tiles are lower, have
 * the bits of the same rows with others beside them. */
static void check_few(struct device *device, size_t in, size_t out, bool is_transposed) {
    static const enum product_start starts[] = {PRODUCT_ADD, PRODUCT_ZERO, PRODUCT_ROW};
    static const size_t few[] = {1, 2, 3, 5, 8, 9, 12, 23, 30};
    enum { MANY = 66 };
    float *x = random_values(MANY * in, 1), *w = random_values(out * in, 2), *bias = random_values(out, 3);
    float *c = random_values(MANY * out, 4), *many = NULL;
    for (size_t i = 0; i < 3 * (1 + sizeof few / sizeof *few); i++) {
        size_t n = i % (1 + sizeof few / sizeof *few), start = i / (1 + sizeof few / sizeof *few);
        size_t rows = n ? few[n - 1] : MANY;
        float *y = guarded_copy(c, rows * out * sizeof *c), *its_x = guarded_copy(x, rows * in * sizeof *x);
        struct cpu_product p = {.m = rows,
                                .n = out,
                                .k = in,
                                .a = its_x,
                                .ars = in,
                                .acs = 1,
                                .b = w,
                                .brs = is_transposed ? out : 1,
                                .bcs = is_transposed ? 1 : in,
                                .c = y,
                                .ldc = out,
                                .start = starts[start],
                                .row = bias,
                                .has_relu = start != 1};
        cpu_product(device, &p);
        guarded_free(its_x);
        if (n == 0) {
            if (many) guarded_free(many);
            many = y;
            continue;
        }
        ck_assert_mem_eq(y, many, rows * out * sizeof *x);
        guarded_free(y);
    }
    guarded_free(x), guarded_free(w), guarded_free(bias), guarded_free(c), guarded_free(many);
}

TEST(few_rows_have_the_bits_of_many) {
    static const size_t sizes[][2] = {{15, 3},   {16, 1},    {17, 33},   {33, 50},   {129, 70}, {401, 41},
                                      {4097, 5}, {9001, 20}, {500, 530}, {4400, 61}, {300, 64}, {4500, 48}};
    for (size_t s = 0; s < SETS; s++) {
        SCOPED_DEVICE device = open_set(sets[s]);
        for (size_t i = 0; device && i < 2 * sizeof sizes / sizeof *sizes; i++)
            check_few(device, sizes[i / 2][0], sizes[i / 2][1], i % 2);
    }
}

/* Destroys the device. */
static void check_rounding(struct device *device, const char *description, enum precision precision) {
    static const size_t deep[][3] = {
        {70, 2100, 33}, {2100, 40, 70}, {1, 33, 1}, {17, 1025, 15}}; /* several blocks of k */
    if (!device) return;
    ck_assert_str_eq(device_describe(device), description);
    for (size_t i = 0; i < (sizeof shapes + sizeof deep) / sizeof *shapes; i++) {
        const size_t *shape = i < sizeof shapes / sizeof *shapes ? shapes[i] : deep[i - sizeof shapes / sizeof *shapes];
        struct results r = compute(device, shape[0], shape[1], shape[2]);
        check_all(&r, shape[0], shape[1], shape[2], precision);
        release(&r);
    }
    device_destroy(device);
}

TEST(bfloat16_rounds_the_factors_only) {
    for (size_t s = 0; s < BF16_SETS; s++)
        check_rounding(open_bfloat16(bf16_sets[s][0]), bf16_sets[s][1], PRECISION_BFLOAT16);
}

TEST(factors_are_two_bfloat16) {
    struct device *device = open_rounding("amx", PRECISION_TF32);
    float x[] = {INFINITY, 1, 3e38f, 1 + 0x1p-15f}, w = 2, y[4];
    check_rounding(device, "cpu (avx512, factors of two bfloat16 with amx)", PRECISION_TF32);
    device = open_rounding("amx", PRECISION_TF32);
    if (device) device_ops(device)->linear_forward(device, F32(x), &w, NULL, false, F32(y), 4, 1, 1);
    if (device) ck_assert(isnan(y[0]) && y[1] == 2 && isinf(y[2]) && y[3] == 2 + 0x1p-14f);
    device_destroy(device);
    device = open_set("avx2"); /* stays float32 */
    if (device) ck_assert(!device_set_precision(device, PRECISION_TF32));
    if (device) ck_assert_str_eq(device_describe(device), "cpu (avx2)");
    device_destroy(device);
}

/* Of x, dy (rows, ...) with one number that is infinite: results that are not finite are those of float32, and the
 * others have the bits that they have without it. */
static void check_infinity(struct device *split, struct device *plain, float *x, const float *w, const float *bias,
                           size_t rows, size_t in, size_t out) {
    float *y[3];
    for (int i = 0; i < 3; i++) {
        y[i] = guarded_malloc(rows * out * sizeof *y[i]);
        if (i == 1) x[5 * in + 3] = INFINITY;
        struct device *device = i < 2 ? split : plain;
        device_ops(device)->linear_forward(device, F32(x), w, bias, false, F32(y[i]), rows, in, out);
    }
    for (size_t i = 0; i < rows * out; i++)
        if (i / out == 5)
            ck_assert(isinf(y[1][i]) && y[1][i] == y[2][i]);
        else
            ck_assert(y[1][i] == y[0][i]);
    for (int i = 0; i < 3; i++) guarded_free(y[i]);
}

TEST(factors_are_three_bfloat16) {
    struct device *plain = open_set("avx512"), *split = open_rounding("amx", PRECISION_FLOAT32_SPLIT);
    size_t rows = 70, in = 600, out = 101;
    float *x = random_values(rows * in, 1), *w = random_values(out * in, 2), *bias = random_values(out, 3);
    if (plain && split) check_infinity(split, plain, x, w, bias, rows, in, out);
    if (plain && split) check_infinity(split, plain, x, w, NULL, rows, in, out);
    device_destroy(plain);
    check_rounding(split, "cpu (avx512, amx)", PRECISION_FLOAT32_SPLIT);
    split = open_set("avx2"); /* as float32 */
    if (split) ck_assert(!device_set_precision(split, PRECISION_FLOAT32_SPLIT));
    if (split) ck_assert_str_eq(device_describe(split), "cpu (avx2)");
    device_destroy(split);
    guarded_free(x), guarded_free(w), guarded_free(bias);
}

/* What is computed again has subnormal numbers, also where a thread packs, without them, while it multiplies. */
TEST(results_beside_infinity_are_those_of_float32) {
    struct device *devices[] = {open_set("avx512"), open_rounding("amx", PRECISION_FLOAT32_SPLIT)};
    size_t rows = 70, in = 600, out = 1200, row = 5;
    float *x = random_values(rows * in, 1), *w = random_values(out * in, 2);
    float *y[2] = {guarded_malloc(rows * out * sizeof(float)), guarded_malloc(rows * out * sizeof(float))};
    for (size_t k = 0; k < in; k++) x[row * in + k] = k ? 1e-30f : 4, w[in + k] = k ? 1e-11f : 0;
    w[0] = 3e38f;
    for (int d = 0; d < 2 && devices[0] && devices[1]; d++)
        device_ops(devices[d])->linear_forward(devices[d], F32(x), w, NULL, false, F32(y[d]), rows, in, out);
    if (devices[0] && devices[1]) {
        ck_assert(isinf(y[1][row * out]));
        ck_assert(y[1][row * out + 1] > 0 && y[1][row * out + 1] < FLT_MIN);
        ck_assert_mem_eq(y[1] + row * out, y[0] + row * out, 2 * sizeof(float));
    }
    for (int d = 0; d < 2; d++) device_destroy(devices[d]), guarded_free(y[d]);
    guarded_free(x), guarded_free(w);
}

/* More exact than the sums of float32: the parts have all bits, and few sums are rounded. */
TEST(three_bfloat16_are_as_exact_as_float32) {
    size_t rows = 80, in = 900, out = 64;
    float *x = random_values(rows * in, 1), *w = random_values(out * in, 2),
          *y = guarded_malloc(rows * out * sizeof *y);
    double squares[2] = {0};
    struct device *devices[] = {open_set("avx512"), open_rounding("amx", PRECISION_FLOAT32_SPLIT)};
    for (int d = 0; d < 2 && devices[0] && devices[1]; d++) {
        device_ops(devices[d])->linear_forward(devices[d], F32(x), w, NULL, false, F32(y), rows, in, out);
        for (size_t i = 0; i < rows * out; i++) {
            double sum = 0;
            for (size_t k = 0; k < in; k++) sum += (double)x[i / out * in + k] * (double)w[i % out * in + k];
            squares[d] += (sum - (double)y[i]) * (sum - (double)y[i]);
        }
    }
    ck_assert_double_le(squares[1], squares[0]);
    for (int d = 0; d < 2; d++) device_destroy(devices[d]);
    guarded_free(x), guarded_free(w), guarded_free(y);
}

struct collected {
    const float *part;
    float *whole;
    size_t in, rows;
};

static void collect(void *user, size_t first, size_t count) {
    struct collected *c = user;
    ck_assert_uint_eq(first, c->rows);
    memcpy(c->whole + first * c->in, c->part, count * c->in * sizeof *c->part);
    c->rows += count;
}

/* The gradient of a weight, at most [max_rows] rows of which are in memory. */
static void check_parts(struct device *device, size_t rows, size_t in, size_t out, size_t max_rows) {
    const struct device_ops *ops = device_ops(device);
    float *x = random_values(rows * in, 1), *dy = random_values(rows * out, 2), *part, *whole, *dw, *dbias[2];
    part = guarded_malloc(max_rows * in * sizeof *part);
    whole = guarded_malloc(out * in * sizeof *whole);
    dw = memset(guarded_malloc(out * in * sizeof *dw), 0, out * in * sizeof *dw);
    for (int i = 0; i < 2; i++) dbias[i] = memset(guarded_malloc(out * sizeof *dbias[i]), 0, out * sizeof *dbias[i]);
    dbias[1][0] = 1; /* is set, not added to */
    struct collected collected = {part, whole, in, 0};
    ops->linear_backward_weight(device, F32(dy), F32(x), dw, dbias[0], rows, in, out);
    ops->linear_backward_weight_in_parts(device, dy, x, part, dbias[1], rows, in, out, max_rows,
                                         &(struct part_receiver){collect, &collected});
    ck_assert_uint_eq(collected.rows, out);
    ck_assert_mem_eq(whole, dw, out * in * sizeof *dw);
    ck_assert_mem_eq(dbias[0], dbias[1], out * sizeof **dbias);
    float *const blocks[] = {x, dy, part, whole, dw, dbias[0], dbias[1]};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) guarded_free(blocks[i]);
}

TEST(parts_of_a_gradient_have_the_bits_of_the_whole) {
    static const enum precision precisions[] = {PRECISION_FLOAT32, PRECISION_FLOAT32_SPLIT, PRECISION_BFLOAT16};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        SCOPED_DEVICE device = i ? open_rounding(NULL, precisions[i]) : open_set(NULL);
        if (!device) continue;
        check_parts(device, 100, 300, 590, 96);
        check_parts(device, 70, 3000, 1000, 480); /* smaller parts, of an x that is packed once */
        check_parts(device, 50, 6000, 600, 48);   /* fewer than each thread would have */
        check_parts(device, 5, 7, 50, 48);
    }
}

/* The product on one thread, which needs no workspace, has the bits of the one on all threads. */
TEST(a_missing_workspace_does_not_change_bits) {
    size_t rows = 330, in = 1100, out = 290;
    float *x = random_values(rows * in, 1), *w = random_values(out * in, 2);
    float *y = guarded_malloc(rows * out * sizeof *y), *other = guarded_malloc(rows * out * sizeof *y);
    static const enum precision precisions[] = {PRECISION_BFLOAT16, PRECISION_TF32, PRECISION_FLOAT32_SPLIT};
    for (int i = 0; i < 6 && CAN_FAIL_ALLOCATIONS; i++) {
        struct device *device = open_rounding("amx", precisions[i / 2]);
        if (!device) break;
        allocations_left = i % 2;
        device_ops(device)->linear_forward(device, F32(x), w, NULL, false, F32(i % 2 ? other : y), rows, in, out);
        ck_assert_int_eq(allocations_left, 0);
        device_destroy(device);
        if (i % 2) ck_assert_mem_eq(y, other, rows * out * sizeof *y);
    }
    guarded_free(x), guarded_free(w), guarded_free(y), guarded_free(other);
}

TEST(bfloat16_needs_the_instructions) {
    for (size_t i = 0; i < 2; i++) { /* smaller sets, as on a processor without AVX-512 */
        struct device *device;
        status s = cpu_device_create(sets[i], &device);
        if (!s) {
            s = device_set_precision(device, PRECISION_BFLOAT16);
            ck_assert_int_eq(status_code(s), STATUS_USAGE);
            ck_assert_str_eq(status_message(s), "train.precision: bfloat16 needs a processor with the instructions "
                                                "AVX-512 BF16, which this one does not have: use float32");
            struct results r = compute(device, 3, 5, 7); /* float32 remains */
            check_all(&r, 3, 5, 7, PRECISION_FLOAT32);
            release(&r);
            device_destroy(device);
        }
        status_free(s);
    }
}

static void check_relu(struct device *device) {
    float x[20], w[20], y;
    for (int i = 0; i < 20; i++) x[i] = w[i] = 1;
    w[3] = NAN;
    device_ops(device)->linear_forward(device, F32(x), w, NULL, true, F32(&y), 1, 20, 1);
    ck_assert(isnan(y));
    w[3] = -100;
    device_ops(device)->linear_forward(device, F32(x), w, NULL, true, F32(&y), 1, 20, 1);
    ck_assert(y == 0 && !signbit(y));
    device_destroy(device);
}

TEST(a_relu_does_not_change_nan) {
    check_relu(open_set(NULL));
    for (size_t s = 0; s < BF16_SETS; s++) {
        struct device *device = open_bfloat16(bf16_sets[s][0]);
        if (device) check_relu(device);
    }
}

/* [context]: the precision */
static void run_large(struct device *device, const void *context, struct digest *digest) {
    static const size_t large[][3] = {{300, 384, 200}, {96, 200, 1000}, {50, 1100, 1500}};
    ck_assert(!device_set_precision(device, *(const enum precision *)context));
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        size_t rows = large[i][0], in = large[i][1], out = large[i][2];
        struct results r = compute(device, rows, in, out);
        const float *all[] = {r.y, r.positive, r.dx, r.dw, r.dbias};
        const size_t counts[] = {rows * out, rows * out, rows * in, out * in, out};
        for (int p = 0; p < 5; p++) digest_add(digest, all[p], counts[p] * sizeof(float));
        release(&r);
    }
}

TEST(threads_do_not_change_bits) {
    static const enum precision precisions[] = {PRECISION_FLOAT32, PRECISION_TF32, PRECISION_FLOAT32_SPLIT,
                                                PRECISION_BFLOAT16};
    SCOPED_DEVICE device = open_bfloat16(NULL);
    for (size_t i = 0; i < (device ? 4 : 3); i++) threads_agree(run_large, &precisions[i]);
}

CHECK_MAIN("linear")
