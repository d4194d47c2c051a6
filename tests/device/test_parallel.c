/* A loop over threads does every item once, in ranges, also with more threads than processors; operators give the same
 * bits on any number of them. ctest-labels: unit */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "check_main.h"
#include "device/cpu/parallel.h"
#include "device/internal.h"
#include "device_work.h"

#define MAX_COUNT 1000

struct visits {
    atomic_int items[MAX_COUNT], ranges;
    pthread_t caller;
    size_t min;
    atomic_int others; /* ranges of other threads */
};

static void visit(void *context, size_t first, size_t last) {
    struct visits *v = context;
    v->ranges++;
    if (!pthread_equal(pthread_self(), v->caller)) v->others++;
    for (size_t i = first; i < last; i++) v->items[i]++;
}

static void run(size_t count, size_t min, struct visits *v) {
    *v = (struct visits){.caller = pthread_self()};
    parallel_for(count, min, visit, v);
    for (size_t i = 0; i < MAX_COUNT; i++) ck_assert_int_eq(v->items[i], i < count);
}

TEST(every_item_is_done_once) {
    setenv("OMP_NUM_THREADS", "3", 1);
    struct visits v;
    ck_assert_msg(parallel_threads() == 3, "libgomp.so.1, which is part of gcc, is not installed");
    for (size_t count = 0; count <= MAX_COUNT; count = count * 2 + 1)
        for (size_t min = 1; min <= MAX_COUNT; min *= 10) {
            run(count, min, &v);
            size_t max = count / min > 1 ? count / min : 1;
            int expected = (int)(count == 0 ? 0 : max < 3 ? max : 3);
            ck_assert_int_eq(v.ranges, expected);
            ck_assert_int_eq(v.others, expected > 1 ? expected - 1 : 0); /* each range has its own thread */
        }
}

/* Threads that wait do not use the processor for longer than a moment, unless the user wants that. */
TEST(waiting_threads_sleep) {
    unsetenv("GOMP_SPINCOUNT");
    setenv("OMP_WAIT_POLICY", "active", 1);
    parallel_limit_spinning();
    ck_assert_ptr_null(getenv("GOMP_SPINCOUNT"));
    unsetenv("OMP_WAIT_POLICY");
    setenv("GOMP_SPINCOUNT", "7", 1);
    parallel_limit_spinning();
    ck_assert_str_eq(getenv("GOMP_SPINCOUNT"), "7");
    unsetenv("GOMP_SPINCOUNT");
    parallel_limit_spinning();
    setenv("OMP_NUM_THREADS", "2", 1);
    struct visits v;
    run(MAX_COUNT, 1, &v);
    double used = 1; /* CPU time of all threads, the least of several times: a loop may have ended just before */
    for (int i = 0; i < 10 && used >= 0.002; i++) {
        double start = cpu_seconds();
        clock_sleep(0.1);
        used = cpu_seconds() - start;
    }
    ck_assert_double_lt(used, 0.002);
}

TEST(a_small_loop_stays_on_its_thread) {
    setenv("OMP_NUM_THREADS", "3", 1);
    struct visits v;
    run(199, 100, &v);
    ck_assert_int_eq(v.ranges, 1);
    ck_assert_int_eq(v.others, 0);
}

TEST(one_thread_is_the_caller) {
    setenv("OMP_NUM_THREADS", "1", 1);
    struct visits v;
    run(MAX_COUNT, 1, &v);
    ck_assert_int_eq(v.ranges, 1);
    ck_assert_int_eq(v.others, 0);
}

/* A number that the program has set is not a given one, also after a change; another one is. */
TEST(a_given_number_is_not_a_chosen_one) {
    unsetenv("OMP_NUM_THREADS"), unsetenv("DDPTRAIN_THREADS");
    ck_assert(!parallel_is_given());
    for (int threads = 3; threads > 0; threads--) {
        parallel_limit(threads);
        ck_assert_int_eq(atoi(getenv("OMP_NUM_THREADS")), threads);
        ck_assert(!parallel_is_given());
    }
    ck_assert_uint_eq(parallel_threads(), 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    ck_assert(parallel_is_given());
    setenv("OMP_NUM_THREADS", "", 1);
    ck_assert(!parallel_is_given());
}

#define ROWS 24
#define SIDE 20
#define CHANNELS 72
#define COUNT ((size_t)ROWS * SIDE * SIDE * CHANNELS)

/* Runs operators over a batch of images that is large enough for threads, each on the output of the one before. */
static void run_operators(struct device *device, float *x, float *y, float *dx) {
    static float work[BATCH_NORM_WORK(CHANNELS)], gradients[2 * CHANNELS];
    static uint8_t index[COUNT];
    const struct device_ops *ops = device_ops(device);
    struct batch_norm norm = {.channels = CHANNELS, .eps = 1e-5f, .uses_batch = true, .has_relu = true};
    struct image_shape image = {SIDE, SIDE, CHANNELS}, half = {SIDE / 2, SIDE / 2, CHANNELS};
    struct pooling pool = {.in = image, .out = half, .window = {{3, 3}, {2, 2}, {1, 1}, {1, 1}}};
    union optimizer_constants constants = {.sgd = {.minus_lr = -0.1f, .has_weight_decay = true, .weight_decay = 0.01f}};
    float *const states[OPTIMIZER_STATES] = {NULL};
    ops->image->batch_norm_forward(device, &norm, F32(x), NULL, NULL, NULL, NULL, work, F32(y), COUNT / CHANNELS);
    ops->image->batch_norm_backward(device, &norm, F32(x), F32(y), work, F32(dx), gradients, gradients + CHANNELS,
                                    COUNT / CHANNELS);
    ops->add(device, F32(x), F32(dx), F32(x), COUNT);
    ops->activation_forward(device, ACTIVATION_GELU, F32(x), F32(y), COUNT);
    ops->activation_backward(device, ACTIVATION_GELU, F32(x), F32(y), F32(x), F32(dx), COUNT);
    ops->image->max_pool_forward(device, &pool, F32(dx), F32(y), index, ROWS);
    ops->image->max_pool_backward(device, &pool, F32(y), index, F32(y), F32(x), ROWS);
    ops->image->max_pool_gather(device, &pool, index, F32(x), F32(y), ROWS);
    ops->image->avg_pool_forward(device, &pool, F32(x), F32(y), ROWS);
    ops->image->avg_pool_backward(device, &pool, F32(y), F32(dx), ROWS);
    work_update(device, RULE_SGD, &constants, &work_whole, x, dx, states, COUNT);
    ops->image->transpose(device, F32(x), F32(y), ROWS, (size_t)SIDE * SIDE, CHANNELS);
    ops->image->relu_backward(device, F32(dx), F32(y), F32(x), COUNT);
    ops->image->add_relu(device, F32(x), F32(y), F32(y), COUNT);
    ops->copy(device, F32(gradients), F32(y), 2 * (size_t)CHANNELS);
}

static void run_all(struct device *device, const void *context, struct digest *digest) {
    (void)context;
    float *all = guarded_calloc(3 * COUNT, sizeof *all), *values = random_values(COUNT, 5);
    memcpy(all, values, COUNT * sizeof *all);
    run_operators(device, all, all + COUNT, all + 2 * COUNT);
    digest_add(digest, all, 3 * COUNT * sizeof *all);
    guarded_free(values), guarded_free(all);
}

TEST(the_same_bits_on_any_number_of_threads) { threads_agree(run_all, NULL); }

/* Forward and backward of a layer whose rows are split. */
static void run_recurrent(struct device *device, const void *context, struct digest *digest) {
    struct recurrent_shape s = {.cell = *(const enum recurrent_cell *)context, .rows = 37, .steps = 5, .hidden = 96};
    const struct recurrent_ops *ops = device_ops(device)->recurrent;
    size_t n = s.rows * s.steps * s.hidden, width = recurrent_gates(s.cell);
    struct recurrent_arrays a = {.weight = random_values(width * s.hidden * s.hidden, 1),
                                 .gates = random_values(width * n, 2),
                                 .states = random_values(3 * n, 3),
                                 .h = random_values(n, 4),
                                 .dh = random_values(n, 5),
                                 .scratch = random_values(ops->scratch_floats(&s), 6)};
    ops->forward(device, &s, &a);
    digest_add(digest, a.gates, width * n * sizeof(float));
    digest_add(digest, a.h, n * sizeof(float));
    ops->backward(device, &s, &a);
    digest_add(digest, a.gates, width * n * sizeof(float));
    digest_add(digest, a.states, recurrent_states(s.cell) * n * sizeof(float));
    const float *const all[] = {a.weight, a.gates, a.states, a.h, a.dh, a.scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guarded_free((float *)(uintptr_t)all[i]);
}

TEST(recurrent_layers_have_the_same_bits) {
    const enum recurrent_cell cells[] = {RECURRENT_LSTM, RECURRENT_GRU, RECURRENT_TANH};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) threads_agree(run_recurrent, &cells[i]);
}

CHECK_MAIN("parallel")
