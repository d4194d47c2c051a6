/* contrastive on processes with different numbers of rows, one without rows: sums and gradients equal those of one
 * process with all rows. Threads simulate the processes, and a barrier the all-gather. test_loss.c compares one process
 * with PyTorch. ctest-labels: unit */
#include <math.h>
#include <pthread.h>

#include "check_main.h"
#include "device/cpu/parallel.h"
#include "model/loss.h"

#define PROCESSES 3
#define MAX_BYTES (1 << 20)

/* Shared by the processes. */
struct group {
    pthread_barrier_t barrier;
    char all[MAX_BYTES];
    const size_t *rows; /* (PROCESSES) */
    size_t max;
};

struct process {
    struct group *group; /* NULL: a single process with all rows */
    size_t number, rows, size;
    bool is_symmetric, has_gradient;
    const float *outputs; /* of its rows */
    float *gradient;
    struct loss_sums sums;
    size_t gathers;
};

static void gather(void *user, void *all, size_t bytes) {
    struct process *p = user;
    struct group *group = p->group;
    ck_assert_uint_le(PROCESSES * bytes, MAX_BYTES);
    memcpy(group->all + p->number * bytes, (char *)all + p->number * bytes, bytes);
    pthread_barrier_wait(&group->barrier);
    memcpy(all, group->all, PROCESSES * bytes);
    pthread_barrier_wait(&group->barrier);
    p->gathers++;
}

/* The gradient's factor as in an update: the weight of a batch is its share of the mean rows. */
static float factor_of(const struct process *p, size_t all_rows) {
    return p->group ? (float)PROCESSES / (float)all_rows : 1 / (float)all_rows;
}

static void *run(void *argument) {
    struct process *p = argument;
    struct device *device;
    size_t all_rows = p->rows, max = p->rows;
    struct all_rows all = {.world_size = PROCESSES, .rank = p->number, .gather = gather, .user = p};
    if (p->group) {
        all.rows = p->group->rows;
        all.max = max = p->group->max;
        all_rows = all.rows[0] + all.rows[1] + all.rows[2];
    }
    struct contrastive_options options = {
        .temperature = 0.2f, .is_symmetric = p->is_symmetric, .size = p->size, .all = p->group ? &all : NULL};
    ck_assert(!device_create("cpu", &device));
    const struct loss_ops *ops = device_ops(device)->losses;
    ck_assert(!ops->contrastive_prepare(device, max, p->group ? PROCESSES : 1, p->size));
    ops->contrastive(device, &options, p->outputs, p->rows, factor_of(p, all_rows),
                     p->has_gradient ? p->gradient : NULL, &p->sums);
    device_destroy(device);
    return NULL;
}

static float *random_rows(size_t rows, size_t size) {
    struct rng rng;
    float *values = malloc(rows * 2 * size * sizeof *values);
    rng_seed(&rng, 3);
    rng_normal(&rng, values, rows * 2 * size, 0.3, 1);
    return values;
}

static void check_near(double got, double expected, double scale, const char *what) {
    ck_assert_msg(fabs(got - expected) <= 2e-6 * scale, "%s: expected %.9g, got %.9g", what, expected, got);
}

/* [rows]: of each process */
static void compare(const size_t *rows, size_t size, bool is_symmetric, bool has_gradient) {
    SCOPED_MEMORY struct group *group = calloc(1, sizeof *group);
    struct process parts[PROCESSES] = {{0}};
    pthread_t threads[PROCESSES];
    size_t all_rows = rows[0] + rows[1] + rows[2], first = 0;
    SCOPED_MEMORY float *outputs = random_rows(all_rows, size);
    SCOPED_MEMORY float *expected = calloc(all_rows * 2 * size, sizeof *expected),
                        *got = calloc(all_rows * 2 * size, sizeof *got);
    struct process whole = {.rows = all_rows,
                            .size = size,
                            .is_symmetric = is_symmetric,
                            .has_gradient = has_gradient,
                            .outputs = outputs,
                            .gradient = expected};
    struct loss_sums sums = {0};
    double largest = 0;
    run(&whole);
    pthread_barrier_init(&group->barrier, NULL, PROCESSES);
    group->rows = rows;
    for (size_t i = 0; i < PROCESSES; i++) group->max = rows[i] > group->max ? rows[i] : group->max;
    for (size_t i = 0; i < PROCESSES; first += rows[i], i++) {
        parts[i] = whole;
        parts[i].sums = (struct loss_sums){0};
        parts[i].group = group;
        parts[i].number = i;
        parts[i].rows = rows[i];
        parts[i].outputs = outputs + first * 2 * size;
        parts[i].gradient = got + first * 2 * size;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run, &parts[i]), 0);
    }
    for (size_t i = 0; i < PROCESSES; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < PROCESSES; i++) {
        sums.loss += parts[i].sums.loss;
        sums.count += parts[i].sums.count;
        ck_assert_uint_eq(parts[i].gathers, has_gradient ? 2 : 1);
    }
    ck_assert(sums.count == (double)all_rows && whole.sums.count == (double)all_rows);
    check_near(sums.loss / sums.count, whole.sums.loss / whole.sums.count, 1, "loss");
    for (size_t i = 0; i < all_rows * 2 * size; i++) largest = fmax(largest, fabs((double)expected[i]));
    ck_assert(largest > 0 || !has_gradient || all_rows == 1);
    for (size_t i = 0; i < all_rows * 2 * size; i++)
        check_near((double)got[i] / PROCESSES, (double)expected[i], largest, "gradient");
    pthread_barrier_destroy(&group->barrier);
}

TEST(uneven_rows) {
    static const size_t rows[][PROCESSES] = {{3, 8, 0}, {0, 1, 5}, {1, 0, 0}, {2, 2, 2}, {70, 131, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int symmetric = 0; symmetric < 2; symmetric++) {
            compare(rows[i], 5, symmetric, true);
            compare(rows[i], 17, symmetric, true);
            compare(rows[i], 5, symmetric, false);
        }
}

/* The gradient of a process includes the losses of the others: that of one row alone is 0. */
TEST(other_processes_count) {
    static const size_t rows[PROCESSES] = {1, 1, 1};
    float *outputs = random_rows(3, 4), alone[8], *all = calloc(24, sizeof *all);
    struct process one = {.rows = 1, .size = 4, .is_symmetric = true, .has_gradient = true, .outputs = outputs};
    one.gradient = alone;
    run(&one);
    ck_assert(one.sums.loss == 0);
    for (size_t i = 0; i < 8; i++) ck_assert(alone[i] == 0);
    compare(rows, 4, true, true);
    free(outputs), free(all);
}

/* The same bits on three threads and on one. */
TEST(threads) {
    enum { ROWS = 300, SIZE = 64 };
    SCOPED_MEMORY float *outputs = random_rows(ROWS, SIZE), *three = calloc(2 * ROWS * SIZE, sizeof *three);
    SCOPED_MEMORY float *one = calloc(2 * ROWS * SIZE, sizeof *one);
    struct process p = {
        .rows = ROWS, .size = SIZE, .is_symmetric = true, .has_gradient = true, .outputs = outputs, .gradient = three};
    setenv("OMP_NUM_THREADS", "3", 1);
    run(&p);
    struct loss_sums sums = p.sums;
    parallel_limit(1);
    p.gradient = one;
    p.sums = (struct loss_sums){0};
    run(&p);
    ck_assert(p.sums.loss == sums.loss && sums.loss > 0);
    ck_assert_mem_eq(one, three, 2 * ROWS * SIZE * sizeof *one);
}

static void fail_to_gather(void *user, void *all, size_t bytes) { (void)user, (void)all, (void)bytes; }

/* After a failure of the communication the other rows are not set: results are of no use, but nothing else happens. And
 * an embedding of zeros has no direction. */
TEST(without_values) {
    static const size_t rows[PROCESSES] = {2, 3, 2};
    struct all_rows all = {.world_size = PROCESSES, .rank = 1, .rows = rows, .max = 3, .gather = fail_to_gather};
    struct contrastive_options options = {.temperature = 0.1f, .is_symmetric = true, .size = 2, .all = &all};
    float outputs[12] = {1, 2, 3, 4, 0, 0, 1, 1, 2, 1, 1, 2}, gradient[12];
    struct loss_sums sums = {0};
    struct device *device;
    ck_assert(!device_create("cpu", &device));
    const struct loss_ops *ops = device_ops(device)->losses;
    ck_assert(!ops->contrastive_prepare(device, 3, PROCESSES, 2));
    ops->contrastive(device, &options, outputs, 3, 1, gradient, &sums);
    ck_assert(sums.count == 3);
    options.all = NULL;
    sums = (struct loss_sums){0};
    ops->contrastive(device, &options, outputs, 3, 1, gradient, &sums);
    ck_assert(isfinite(sums.loss));
    for (size_t i = 0; i < 12; i++) ck_assert(isfinite(gradient[i]));
    status s = ops->contrastive_prepare(device, SIZE_MAX / 64, 1024, 2);
    ck_assert_int_eq(status_code(s), STATUS_MEMORY);
    status_free(s);
    device_destroy(device);
}

CHECK_MAIN("contrastive")
