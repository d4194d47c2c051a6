/* Every instruction set gives the same bits as the baseline element by element, and products that agree with a plain
 * double loop; sums do not depend on where in the matrix an element stands. ctest-labels: unit */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers/rng.h"
#include "check_main.h"
#include "device/cpu/cpu.h"
#include "device/internal.h"
#include "device_work.h"

static void product_agrees(struct device *device, size_t rows, size_t in, size_t out) {
    const struct device_ops *ops = device_ops(device);
    float *x = random_values(rows * in, 1), *w = random_values(out * in, 2), *bias = random_values(out, 3);
    float *y = guarded_malloc(rows * out * sizeof *y), *dx = guarded_malloc(rows * in * sizeof *dx);
    float *dw = guarded_calloc(out * in, sizeof *dw), *db = guarded_calloc(out, sizeof *db);
    ops->linear_forward(device, F32(x), w, bias, false, F32(y), rows, in, out);
    for (size_t i = 0; i < rows; i++)
        for (size_t o = 0; o < out; o++) {
            double sum = (double)bias[o], size = 1;
            for (size_t k = 0; k < in; k++)
                sum += (double)x[i * in + k] * (double)w[o * in + k],
                    size += fabs((double)x[i * in + k] * (double)w[o * in + k]);
            ck_assert_msg(fabs(sum - (double)y[i * out + o]) < 1e-6 * size, "y(%zu, %zu) of %zu x %zu x %zu", i, o,
                          rows, in, out);
        }
    ops->linear_backward_input(device, F32(y), w, F32(dx), rows, in, out);
    ops->linear_backward_weight(device, F32(y), F32(x), dw, db, rows, in, out);
    ops->linear_backward_weight(device, F32(y), F32(x), dw, db, rows, in, out); /* gradients add up */
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < in; k++) {
            double sum = 0, size = 1;
            for (size_t o = 0; o < out; o++)
                sum += (double)y[i * out + o] * (double)w[o * in + k],
                    size += fabs((double)y[i * out + o] * (double)w[o * in + k]);
            ck_assert(fabs(sum - (double)dx[i * in + k]) < 1e-6 * size);
        }
    for (size_t o = 0; o < out; o++) {
        double bias_sum = 0;
        for (size_t i = 0; i < rows; i++) bias_sum += 2 * (double)y[i * out + o];
        ck_assert(fabs(bias_sum - (double)db[o]) < 1e-4 * (1 + fabs(bias_sum)));
        for (size_t k = 0; k < in; k++) {
            double sum = 0, size = 1;
            for (size_t i = 0; i < rows; i++)
                sum += 2 * (double)y[i * out + o] * (double)x[i * in + k],
                    size += fabs((double)y[i * out + o] * (double)x[i * in + k]);
            ck_assert(fabs(sum - (double)dw[o * in + k]) < 1e-5 * size);
        }
    }
    guarded_free(x), guarded_free(w), guarded_free(bias), guarded_free(y), guarded_free(dx), guarded_free(dw),
        guarded_free(db);
}

TEST(products) {
    static const size_t shapes[][3] = {{1, 1, 1},    {32, 13, 64}, {32, 64, 3},  {7, 5, 17},     {8, 16, 32},
                                       {9, 300, 33}, {3, 513, 31}, {65, 2, 100}, {128, 256, 128}};
    for (size_t s = 0; s < 3; s++) {
        SCOPED_DEVICE device = open_set(sets[s]);
        if (!device) continue;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            product_agrees(device, shapes[i][0], shapes[i][1], shapes[i][2]);
    }
}

/* The result of a row is the same alone and in a batch, so 2 ranks x 16 rows agree with 1 rank x 32. */
TEST(rows_are_independent) {
    for (size_t s = 0; s < 3; s++) {
        SCOPED_DEVICE device = open_set(sets[s]);
        if (!device) continue;
        const struct device_ops *ops = device_ops(device);
        float *x = random_values(32 * 13, 1), *w = random_values(64 * 13, 2), *bias = random_values(64, 3);
        float whole[32 * 64], row[64];
        ops->linear_forward(device, F32(x), w, bias, false, F32(whole), 32, 13, 64);
        for (size_t i = 0; i < 32; i++) {
            ops->linear_forward(device, F32(x + i * 13), w, bias, false, F32(row), 1, 13, 64);
            ck_assert_mem_eq(row, whole + i * 64, sizeof row);
        }
        guarded_free(x), guarded_free(w), guarded_free(bias);
    }
}

#define N 1003

/* All sets must give the same bits. */
struct results {
    float forward[5][N], backward[5][N], dropout[N], sgd[N], momentum[N], adam[N], exp_avg[N], exp_avg_sq[N], norm;
    float amsgrad[N], max_exp_avg_sq[N], adagrad[N], sum[N], rmsprop[2][N], square_avg[N], grad_avg[N], buffer[N];
    float lion[N], lion_avg[N], average[N], clamped[N], late[WORK_RULES][N],
        late_states[WORK_RULES][OPTIMIZER_STATES][N];
};

static void compute_other_rules(struct device *device, struct results *r, const float *p, const float *g) {
    const struct optimizer_ops *ops = device_ops(device)->optimizers;
    struct adam_constants adam = {.beta1 = 0.9f,
                                  .one_minus_beta1 = 0.1f,
                                  .beta2 = 0.99f,
                                  .one_minus_beta2 = 0.01f,
                                  .eps = 1e-8f,
                                  .minus_step_size = -0.01f,
                                  .sqrt_correction2 = 0.1f,
                                  .decay_factor = 1,
                                  .weight_decay = 0.1f,
                                  .has_weight_decay = true};
    struct adagrad_constants adagrad = {
        .minus_lr = -0.1f, .eps = 1e-10f, .weight_decay = 0.1f, .has_weight_decay = true};
    struct rmsprop_constants rmsprop = {
        .minus_lr = -0.1f, .alpha = 0.9f, .one_minus_alpha = 0.1f, .eps = 1e-8f, .momentum = 0.9f};
    struct lion_constants lion = {.minus_lr = -0.1f,
                                  .beta1 = 0.9f,
                                  .one_minus_beta1 = 0.1f,
                                  .beta2 = 0.99f,
                                  .one_minus_beta2 = 0.01f,
                                  .decay_factor = 0.99f};
    for (size_t i = 0; i < WORK_RULES; i++) memcpy(r->late[i], p, N * sizeof *p);
    float *const starts[] = {r->amsgrad, r->adagrad, r->rmsprop[0], r->rmsprop[1], r->lion, r->clamped};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) memcpy(starts[i], p, N * sizeof *p);
    memcpy(r->average, g, N * sizeof *g);
    float *exp_avg = guarded_calloc(2 * N, sizeof *exp_avg);
    for (int t = 0; t < 3; t++) {
        struct {
            enum update_rule rule;
            union optimizer_constants constants;
            float *values, *states[OPTIMIZER_STATES];
        } updates[] = {
            {RULE_ADAM, {.adam = adam}, r->amsgrad, {exp_avg, exp_avg + N, r->max_exp_avg_sq}},
            {RULE_ADAGRAD, {.adagrad = adagrad}, r->adagrad, {r->sum}},
            {RULE_RMSPROP, {.rmsprop = rmsprop}, r->rmsprop[0], {r->square_avg, r->grad_avg, r->buffer}},
            {RULE_RMSPROP, {.rmsprop = rmsprop}, r->rmsprop[1], {r->square_avg}},
            {RULE_LION, {.lion = lion}, r->lion, {r->lion_avg}},
        };
        for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
            work_update(device, updates[i].rule, &updates[i].constants, &work_clip, updates[i].values, g,
                        updates[i].states, N);
        for (size_t i = 0; i < WORK_RULES; i++) {
            float *states[OPTIMIZER_STATES], *buffers[OPTIMIZER_STATES];
            for (int k = 0; k < OPTIMIZER_STATES; k++) buffers[k] = r->late_states[i][k];
            work_states(work_rules[i].rule, buffers, states);
            work_update(device, work_rules[i].rule, &work_rules[i].constants, &work_clip, r->late[i], g, states, N);
        }
        ops->average(device, 0.01f, &work_clip, p, r->average, N);
    }
    ops->clamp(device, 0.5f, r->clamped, N);
    guarded_free(exp_avg);
}

/* Saved masks are those that are drawn: of x (17, 59) with [dropped], and none with p = 1. */
static void compare_saved_masks(struct device *device, const struct draw_key *key, const float *x,
                                const float *dropped) {
    const struct device_ops *ops = device_ops(device);
    float y[17 * 59], zeros[17 * 59] = {0};
    uint16_t kept[17 * DROPOUT_BITS(59)];
    for (int i = 0; i < 2; i++) {
        const float p = i ? 1 : 0.3f, *expected = i ? zeros : dropped;
        ops->dropout_saving(device, key, p, F32((float *)(uintptr_t)x), F32(y), kept, 17, 59);
        ck_assert_mem_eq(y, expected, sizeof y);
        memset(y, 1, sizeof y);
        ops->dropout_saved(device, p, kept, F32((float *)(uintptr_t)x), F32(y), 17, 59);
        ck_assert_mem_eq(y, expected, sizeof y);
    }
}

static void compute(struct device *device, struct results *r) {
    const struct device_ops *ops = device_ops(device);
    float *x = random_values(N, 7), *g = random_values(N, 8), *p = random_values(N, 9);
    memset(r, 0, sizeof *r);
    for (int f = 0; f < 5; f++) {
        ops->activation_forward(device, (enum activation)f, F32(x), F32(r->forward[f]), N);
        ops->activation_backward(device, (enum activation)f, F32(x), F32(r->forward[f]), F32(g), F32(r->backward[f]),
                                 N);
    }
    struct draw_key key = {.seed = 42, .stream = 3, .pass = &work_pass, .first_row = 5, .row_stride = 2};
    ops->dropout(device, &key, 0.3f, F32(x), F32(r->dropout), 17, 59);
    compare_saved_masks(device, &key, x, r->dropout);
    struct sgd_constants sgd = work_sgd;
    struct adam_constants adam = {.beta1 = 0.9f,
                                  .one_minus_beta1 = 0.1f,
                                  .beta2 = 0.999f,
                                  .one_minus_beta2 = 0.001f,
                                  .eps = 1e-8f,
                                  .minus_step_size = -0.01f,
                                  .sqrt_correction2 = 0.03f,
                                  .decay_factor = 1,
                                  .uses_lerp = true};
    memcpy(r->sgd, p, N * sizeof *p);
    memcpy(r->momentum, g, N * sizeof *p);
    memcpy(r->adam, p, N * sizeof *p);
    work_update(device, RULE_SGD, &(union optimizer_constants){.sgd = sgd}, &work_clip, r->sgd, g,
                (float *[OPTIMIZER_STATES]){r->momentum}, N);
    work_update(device, RULE_ADAM, &(union optimizer_constants){.adam = adam}, &work_clip, r->adam, g,
                (float *[OPTIMIZER_STATES]){r->exp_avg, r->exp_avg_sq}, N);
    r->norm = ops->norm(device, x, N);
    compute_other_rules(device, r, p, g);
    guarded_free(x), guarded_free(g), guarded_free(p);
}

TEST(sets_give_equal_bits) {
    struct results *first = guarded_malloc(sizeof *first), *other = guarded_malloc(sizeof *other);
    struct device *device = open_set("baseline");
    ck_assert_ptr_nonnull(device);
    compute(device, first);
    device_destroy(device);
    /* that of an extension is a function of its own */
#define X(id, name, ...)                                                                                               \
    ck_assert_msg(work_has_run[id] || id == RULE_OWN, "the rule '%s' has no row in work_rules of device_work.h", #name);
    UPDATE_RULES(X)
#undef X
    for (size_t s = 1; s < 3; s++) {
        if (!(device = open_set(sets[s]))) continue;
        compute(device, other);
        ck_assert_msg(memcmp(first, other, sizeof *first) == 0, "%s differs from the baseline", sets[s]);
        device_destroy(device);
    }
    guarded_free(first), guarded_free(other);
}

/* torch.sign: an update of lion changes nothing where momentum and gradient are 0, and NaN is propagated. */
TEST(lion_of_zero_and_nan) {
    const struct lion_constants constants = {.minus_lr = -0.5f,
                                             .beta1 = 0.9f,
                                             .one_minus_beta1 = 0.1f,
                                             .beta2 = 0.99f,
                                             .one_minus_beta2 = 0.01f,
                                             .decay_factor = 1};
    const float g[] = {0, NAN, 3, -3};
    for (size_t s = 0; s < 3; s++) {
        SCOPED_DEVICE device = open_set(sets[s]);
        if (!device) continue;
        float values[] = {1, 1, 1, 1}, average[4] = {0};
        work_update(device, RULE_LION, &(union optimizer_constants){.lion = constants}, &work_whole, values, g,
                    (float *[OPTIMIZER_STATES]){average}, 4);
        ck_assert(values[0] == 1 && isnan(values[1]) && values[2] == 0.5f && values[3] == 1.5f);
        ck_assert(average[0] == 0 && isnan(average[1]));
    }
}

TEST(dropout_depends_on_the_row_only) {
    SCOPED_DEVICE device = open_set("baseline");
    float ones[8 * 10], whole[8 * 10], half[4 * 10];
    for (int i = 0; i < 80; i++) ones[i] = 1;
    const uint64_t three = 3, four = 4;
    struct draw_key all = {.seed = 1, .stream = 2, .pass = &three, .first_row = 0, .row_stride = 1};
    device_ops(device)->dropout(device, &all, 0.5f, F32(ones), F32(whole), 8, 10);
    int kept = 0;
    for (int i = 0; i < 80; i++) {
        ck_assert(whole[i] == 0 || whole[i] == 2);
        kept += whole[i] != 0;
    }
    ck_assert_int_gt(kept, 20);
    ck_assert_int_lt(kept, 60);
    for (uint64_t rank = 0; rank < 2; rank++) { /* rank r of 2 has the rows r, r + 2, ... */
        struct draw_key own = {.seed = 1, .stream = 2, .pass = &three, .first_row = rank, .row_stride = 2};
        device_ops(device)->dropout(device, &own, 0.5f, F32(ones), F32(half), 4, 10);
        for (size_t i = 0; i < 4; i++) ck_assert_mem_eq(half + i * 10, whole + (2 * i + rank) * 10, 10 * sizeof *half);
    }
    struct draw_key next = all;
    next.pass = &four;
    float other[80];
    device_ops(device)->dropout(device, &next, 0.5f, F32(ones), F32(other), 8, 10);
    ck_assert(memcmp(other, whole, sizeof other) != 0);
    device_ops(device)->dropout(device, &all, 0, F32(ones), F32(other), 8, 10);
    ck_assert_mem_eq(other, ones, sizeof ones);
    device_ops(device)->dropout(device, &all, 1, F32(ones), F32(other), 8, 10);
    for (int i = 0; i < 80; i++) ck_assert(other[i] == 0);
}

/* The masks of every set are those of the generator, one block of four at a time: rows shorter and longer than what is
 * drawn at once, and a pass and a row above 32 bits. */
TEST(dropout_draws_the_words_of_philox) {
    enum { ROWS = 3, MAX = 200 };
    float ones[ROWS * MAX], y[ROWS * MAX];
    for (size_t i = 0; i < ROWS * MAX; i++) ones[i] = 1;
    const uint64_t pass = 0x500000003;
    struct draw_key key = {.seed = 0x700000009, .stream = 2, .pass = &pass, .first_row = 0x2fffffffe, .row_stride = 3};
    for (size_t s = 0; s < 3; s++) {
        SCOPED_DEVICE device = open_set(sets[s]);
        if (!device) continue;
        for (size_t size = 1; size <= MAX; size++) {
            device_ops(device)->dropout(device, &key, 0.5f, F32(ones), F32(y), ROWS, size);
            for (size_t i = 0; i < ROWS; i++)
                for (size_t j = 0; j < size; j++) {
                    uint64_t row = key.first_row + i * key.row_stride;
                    uint32_t word[4] = {(uint32_t)j / 4, (uint32_t)row, (uint32_t)pass,
                                        (uint32_t)(pass >> 32) ^ (uint32_t)(row >> 32) << 16};
                    philox(word, 9 ^ 7 * 0x85ebca6bu, key.stream);
                    ck_assert(y[i * size + j] == (word[j % 4] >> 31 ? 2 : 0));
                }
        }
    }
}

/* Against the formula in double, with the moments of the distribution; a sample is that of its row on any rank. */
TEST(samples_of_a_normal_distribution) {
    enum { SIZE = 30, COUNT = 2000 };
    SCOPED_DEVICE device = open_set("baseline");
    float *zeros = calloc(COUNT * SIZE, sizeof *zeros), *z = calloc(COUNT * SIZE, sizeof *z), half[4 * SIZE];
    ck_assert(zeros && z);
    const uint64_t three = 3;
    struct draw_key key = {.seed = 1, .stream = 2, .pass = &three, .first_row = 0, .row_stride = 1};
    double moments[5] = {0};
    device_ops(device)->sample_normal(device, &key, zeros, zeros, z, COUNT, SIZE);
    for (size_t i = 0; i < COUNT * SIZE; i++)
        for (int m = 1; m < 5; m++) moments[m] += pow((double)z[i], m) / (COUNT * SIZE);
    ck_assert_double_eq_tol(moments[1], 0, 0.02);
    ck_assert_double_eq_tol(moments[2], 1, 0.03);
    ck_assert_double_eq_tol(moments[3], 0, 0.06);
    ck_assert_double_eq_tol(moments[4], 3, 0.2);
    for (uint64_t rank = 0; rank < 2; rank++) {
        struct draw_key own = {.seed = 1, .stream = 2, .pass = &three, .first_row = rank, .row_stride = 2};
        device_ops(device)->sample_normal(device, &own, zeros, zeros, half, 4, SIZE);
        for (size_t i = 0; i < 4; i++)
            ck_assert_mem_eq(half + i * SIZE, z + (2 * i + rank) * SIZE, SIZE * sizeof *half);
    }
    for (uint32_t i = 0; i < 100000; i++) {
        uint32_t a = i < 10 ? i : i < 20 ? 0xffffffffu - (i - 10) : i * 2654435761u, b = i * 2246822519u;
        float pair[2], u = (float)a * 0x1p-32f + 0x1p-33f;
        math_normal_pair(a, b, pair);
        double angle = ((b >> 30) + (double)(b & 0x3fffffffu) / 0x1p30 - 0.5) * 1.5707963267948966;
        ck_assert_double_eq_tol((double)pair[0], sqrt(-2 * log((double)u)) * cos(angle), 2e-6);
        ck_assert_double_eq_tol((double)pair[1], sqrt(-2 * log((double)u)) * sin(angle), 2e-6);
    }
    free(zeros);
    free(z);
}

TEST(finite_or_not) {
    for (size_t s = 0; s < 3; s++) {
        SCOPED_DEVICE device = open_set(sets[s]);
        if (!device) continue;
        float *x = random_values(100, 1);
        ck_assert(device_ops(device)->is_finite(device, F32(x), 100));
        for (size_t i = 0; i < 100; i += 33) {
            float keep = x[i], bad[] = {INFINITY, -INFINITY, NAN};
            for (int b = 0; b < 3; b++) {
                x[i] = bad[b];
                ck_assert(!device_ops(device)->is_finite(device, F32(x), 100));
            }
            x[i] = keep;
        }
        guarded_free(x);
    }
}

/* Every element counts, in whole groups of lanes and in the rest. */
TEST(norms) {
    static const size_t counts[] = {1, 2, 15, 16, 17, 40, 1000};
    for (size_t n = 0; n < 3 * 7; n++) {
        SCOPED_DEVICE device = open_set(sets[n % 3]);
        if (!device) continue;
        size_t count = counts[n / 3];
        float *x = random_values(count, n + 1);
        double sum = 0;
        for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
        ck_assert_float_eq_tol(device_ops(device)->norm(device, x, count), (float)sqrt(sum), 1e-6f * (float)sqrt(sum));
        guarded_free(x);
    }
}

TEST(errors) {
    struct device *device = NULL;
    status s = cpu_device_create("mmx", &device);
    const char *start = "this CPU does not have the instruction set 'mmx'; it has: ";
    ck_assert(strncmp(status_message(s), start, strlen(start)) == 0 && strstr(status_message(s), "baseline"));
    status_free(s);
}

/* A smaller reservation does not shrink the workspace. */
TEST(the_workspace_never_shrinks) {
    const size_t sizes[] = {1, (size_t)64 << 20, 16, 0, (size_t)32 << 20, 4096};
    size_t max = 0;
    SCOPED_DEVICE device = open_set("baseline");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ck_assert(!workspace_reserve(device, sizes[i], "a test"));
        if (sizes[i] > max) max = sizes[i];
        char *workspace = workspace_of(device);
        ck_assert_uint_eq((uintptr_t)workspace % 64, 0);
        memset(workspace, 1, max);
    }
}

/* Short rows are computed together; weights of 1 change nothing but this. */
TEST(short_rows_of_cross_entropy) {
    static const size_t positions[] = {1, 3, 32, 63, 64, 65, 200};
    for (size_t n = 0; n < 3 * 7 * 11; n++) {
        SCOPED_DEVICE device = open_set(sets[n % 3]);
        if (!device) continue;
        size_t count = positions[n / 3 % 7], classes = 1 + n / 21;
        float *x = random_values(count * classes, n), *dx[2];
        double weights[12];
        int64_t *targets = guarded_malloc(count * sizeof *targets);
        struct loss_sums sums[2] = {0};
        for (size_t i = 0; i < 12; i++) weights[i] = 1;
        for (size_t i = 0; i < count; i++) targets[i] = (int64_t)(i * 7 % classes);
        x[count / 2 * classes] = x[count / 2 * classes + classes - 1] =
            30; /* two are the largest, or one is not finite */
        if (n % 5 == 0) x[count / 2 * classes] = NAN;
        for (int i = 0; i < 2; i++) {
            struct cross_entropy_options o = {.ignored = -100, .weight = i ? weights : NULL};
            const struct loss_ops *ops = device_ops(device)->losses;
            dx[i] = guarded_calloc(count * classes, sizeof **dx);
            ops->cross_entropy(device, &o, F32(x), targets, count, classes, 0.5f, F32(dx[i]), &sums[i]);
            ops->cross_entropy(device, &o, F32(x), targets, count, classes, 1, NULL, &sums[i]);
        }
        ck_assert_mem_eq(&sums[0].count, &sums[1].count, sizeof sums[0] - offsetof(struct loss_sums, count));
        ck_assert(sums[0].loss == sums[1].loss || (isnan(sums[0].loss) && isnan(sums[1].loss)));
        for (size_t i = 0; i < count * classes; i++)
            ck_assert(dx[0][i] == dx[1][i] || (isnan(dx[0][i]) && isnan(dx[1][i])));
        guarded_free(x), guarded_free(targets), guarded_free(dx[0]), guarded_free(dx[1]);
    }
}

CHECK_MAIN("kernels")
