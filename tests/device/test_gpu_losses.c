/* The losses ctc and contrastive of the GPU against the CPU's: rows of any number of steps and targets, alignments
 * that do not exist, states and logits that do not fit into a block. Skipped where there is no GPU. ctest-labels: gpu
 */
#include "gpu_work.h"

/* (positions, classes), with every 11th position, from [masked] on, without one class. */
static float *log_probabilities(size_t positions, size_t classes, size_t masked) {
    float *x = random_values(positions * classes, 1);
    for (size_t i = 0; i < positions; i++) {
        double sum = 0;
        for (size_t c = 0; c < classes; c++) sum += exp((double)x[i * classes + c]);
        for (size_t c = 0; c < classes; c++) x[i * classes + c] -= (float)log(sum);
        if (i >= masked && i % 11 == 3) x[i * classes + i % classes] = -INFINITY;
    }
    return x;
}

struct ctc_case {
    size_t rows, steps, classes, target_size;
    size_t targets[8]; /* of each row */
    int32_t lengths[8];
    int64_t blank, padding;
};

static void put_sums(struct results *r, const struct loss_sums *s) {
    float *to = next(r, 4);
    to[0] = (float)s->loss, to[1] = (float)s->count, to[2] = (float)s->correct, to[3] = (float)s->scored;
}

/* The target of row 0 is the one that its largest outputs say. */
static void decode(const struct ctc_case *t, const float *x, int64_t *targets) {
    size_t count = 0, before = t->classes;
    for (size_t step = 0; step < t->steps; step++) {
        size_t best = 0;
        for (size_t c = 1; c < t->classes; c++)
            if (x[step * t->classes + c] > x[step * t->classes + best]) best = c;
        if (best != before && (int64_t)best != t->blank && count < t->targets[0]) targets[count++] = (int64_t)best;
        before = best;
    }
}

/* [i]: bit 0: lengths, bit 1: weights, bit 2: they are counted, bit 3: zero_infinity, bit 4: without a gradient */
static void run_ctc(struct device *d, struct results *r, const struct ctc_case *t, int i) {
    const struct loss_ops *ops = device_ops(d)->losses;
    static const float weights[] = {1, 0.5f, 0, 2, 1, 3, 0.25f, 1};
    size_t values = t->rows * t->steps * t->classes;
    float *x = log_probabilities(t->rows * t->steps, t->classes, t->steps * 2);
    int64_t *targets = guarded_malloc(t->rows * t->target_size * sizeof *targets);
    struct ctc_options o = {.blank = t->blank,
                            .padding = t->padding,
                            .zero_infinity = i & 8,
                            .steps = t->steps,
                            .classes = t->classes,
                            .rows = {.values = i & 2 ? weights : NULL,
                                     .is_counted = i & 4,
                                     .lengths = i & 1 ? t->lengths : NULL,
                                     .positions = t->steps,
                                     .target_size = t->target_size}};
    struct loss_sums sums = {.loss = 1, .count = 2};
    for (size_t row = 0; row < t->rows; row++)
        for (size_t k = 0; k < t->target_size; k++) {
            int64_t class = (int64_t)((k * k + 3 * row + k / 5) % t->classes);
            targets[row * t->target_size + k] = k >= t->targets[row] ? t->padding : class == t->padding ? 0 : class;
        }
    decode(t, x, targets);
    ck_assert(!ops->ctc_prepare(d, t->rows, t->steps, t->classes, t->target_size));
    ops->ctc(d, &o, x, targets, t->rows, 0.5f, i & 16 ? NULL : next(r, values), &sums);
    put_sums(r, &sums);
    guarded_free(x), guarded_free(targets);
}

/* Rows without targets, steps or alignments, and more targets than steps. */
static void short_rows(struct device *d, struct results *r) {
    static const struct ctc_case t = {8, 23, 6, 9, {4, 0, 9, 1, 3, 9, 2, 0}, {23, 5, 23, 0, 12, 7, 23, 0}, 2, -100};
    static const struct ctc_case padded = {4, 9, 40, 3, {2, 0, 1, 3}, {9, 3, 9, 8}, 39, 39};
    for (int i = 0; i < 32; i++) run_ctc(d, r, &t, i);
    run_ctc(d, r, &padded, 0);
    run_ctc(d, r, &padded, 1);
}

/* 1200 steps: without numbers relative to the largest one the gradient has half as many digits. */
static void many_steps(struct device *d, struct results *r) {
    static const struct ctc_case t = {2, 1200, 5, 200, {200, 77}, {1200, 500}, 0, -1};
    run_ctc(d, r, &t, 1);
}

/* More states than threads; and a row of targets whose states do not fit into shared memory. */
static void many_states(struct device *d, struct results *r) {
    static const struct ctc_case threads = {1, 950, 7, 600, {600}, {950}, 1, -1};
    static const struct ctc_case memory = {2, 40, 7, 3100, {11, 700}, {40, 30}, 1, -1};
    run_ctc(d, r, &threads, 0);
    run_ctc(d, r, &memory, 0);
    run_ctc(d, r, &memory, 24);
}

static void run_contrastive(struct device *d, struct results *r, size_t rows, size_t size, bool is_symmetric,
                            float temperature) {
    const struct loss_ops *ops = device_ops(d)->losses;
    struct contrastive_options o = {.temperature = temperature, .is_symmetric = is_symmetric, .size = size};
    float *x = random_values(rows * 2 * size, 1);
    struct loss_sums sums = {.loss = 1, .count = 2};
    if (rows > 2)
        for (size_t i = 0; i < size; i++) x[3 * size + i] = 0; /* a row without a direction */
    ck_assert(!ops->contrastive_prepare(d, rows, 1, size));
    ops->contrastive(d, &o, x, rows, 0.5f, next(r, rows * 2 * size), &sums);
    ops->contrastive(d, &o, x, rows, 1, NULL, &sums);
    put_sums(r, &sums);
    guarded_free(x);
}

static void contrastive(struct device *d, struct results *r) {
    static const size_t rows[] = {1, 2, 5, 33, 130}, sizes[] = {1, 3, 16, 1037, 9};
    for (size_t i = 0; i < 5; i++)
        for (int is_symmetric = 0; is_symmetric < 2; is_symmetric++) {
            run_contrastive(d, r, rows[i], sizes[i], is_symmetric, 0.07f);
            run_contrastive(d, r, rows[4 - i], sizes[i], is_symmetric, 2);
        }
    run_contrastive(d, r, 7, 5, true, 0.01f);
}

/* 2049 rows: their logits are two blocks. */
static void many_rows(struct device *d, struct results *r) { run_contrastive(d, r, 2049, 2, true, 0.5f); }

static const struct operator_case cases[] = {{"ctc", short_rows, 1e-5},
                                             {"ctc, many steps", many_steps, 1e-5},
                                             {"ctc, many states", many_states, 1e-5},
                                             {"contrastive", contrastive, 5e-4},
                                             {"contrastive, many rows", many_rows, 1e-5}};

TEST_EACH(every_loss, cases) { agrees_with_the_cpu(&cases[_i]); }

/* The loss stays float32 where products are 16 bits. */
TEST(precision) {
    struct results exact, half;
    struct device *d = open_device("cuda");
    run_on(open_device("cuda"), &cases[3], &exact);
    ck_assert(!device_set_precision(d, PRECISION_BFLOAT16));
    run_on(d, &cases[3], &half);
    for (size_t i = 0; i < exact.count; i++) ck_assert(is_same_result(&exact, &half, i));
    free_results(&exact), free_results(&half);
}

/* Sizes whose workspace no number counts. */
TEST(too_large) {
    struct device *d = open_device("cuda");
    const struct loss_ops *ops = device_ops(d)->losses;
    status s[] = {ops->ctc_prepare(d, 64, SIZE_MAX / 64, 5, 7), ops->ctc_prepare(d, 1 << 15, 1 << 15, 5, SIZE_MAX / 8),
                  ops->contrastive_prepare(d, SIZE_MAX / 64, 1024, 2)};
    for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
        ck_assert_int_eq(status_code(s[i]), STATUS_MEMORY);
        status_free(s[i]);
    }
    device_destroy(d);
}

int main(void) { return gpu_run("gpu_losses"); }
