/* batch_norm with sync on processes with different numbers of rows, one without rows: statistics, outputs and gradients
 * equal those of one process with all rows. Threads simulate the processes, and a barrier the all-reduce.
 * ctest-labels: unit */
#include <math.h>
#include <pthread.h>

#include "check_main.h"
#include "model/model.h"

#define PROCESSES 3
#define ROWS 11

static const size_t rows_of[PROCESSES] = {3, 8, 0}, first_of[PROCESSES] = {0, 3, 11};

static const char yaml[] =
    "layers: [{conv2d: {out: 5, kernel_size: 2}}, {batch_norm: {sync: true}}, relu, {conv2d: {out: 70, kernel_size: "
    "1}}, {batch_norm: {sync: true, affine: false}}, {adaptive_avg_pool2d: 1}, flatten]\n";
static const struct shape input = {.dims = 3, .size = {2, 3, 4}};

/* Shared by the processes. */
struct group {
    pthread_barrier_t barrier;
    pthread_mutex_t mutex;
    double sums[256];
};

struct process {
    struct group *group; /* NULL: a single process with all rows */
    size_t rows;
    const float *inputs, *dy; /* of its rows */
    struct document *document;
    struct model_config config;
    struct model *model;
    struct device *device;
    const float *output;
};

static void sum_over_group(void *user, double *values, size_t count) {
    struct group *group = user;
    ck_assert_uint_le(count, sizeof group->sums / sizeof *group->sums);
    pthread_mutex_lock(&group->mutex);
    for (size_t i = 0; i < count; i++) group->sums[i] += values[i];
    pthread_mutex_unlock(&group->mutex);
    pthread_barrier_wait(&group->barrier);
    memcpy(values, group->sums, count * sizeof *values);
    if (pthread_barrier_wait(&group->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
        memset(group->sums, 0, sizeof group->sums);
    pthread_barrier_wait(&group->barrier);
}

static void open_process(struct process *p) {
    struct problems problems = {0};
    struct rng rng;
    ck_assert(!document_parse("test.yaml", yaml, strlen(yaml), &problems, &p->document));
    schema_bind(&model_schema, document_root(p->document), "model", &model_schema, &p->config,
                document_arena(p->document), &problems);
    ck_assert_uint_eq(problems.count, 0);
    ck_assert(!model_plan(&p->config, &input, &p->model));
    ck_assert(!device_create("cpu", &p->device));
    ck_assert(!model_alloc(p->model, p->device, ROWS));
    rng_seed(&rng, 7);
    model_init(p->model, &rng);
}

static void close_process(struct process *p) {
    model_destroy(p->model);
    device_destroy(p->device);
    document_destroy(p->document);
}

static void *run(void *argument) {
    struct process *p = argument;
    const struct all_sum all_sum = {sum_over_group, p->group};
    struct pass pass = {
        .device = p->device, .rows = p->rows, .is_training = true, .all_sum = p->group ? &all_sum : NULL};
    p->output = floats(model_forward(p->model, &pass, p->inputs));
    memcpy(model_output_gradient(p->model).data, p->dy, p->rows * p->model->out_size * sizeof *p->dy);
    model_backward(p->model, &pass, p->inputs, NULL, NULL);
    return NULL;
}

static void check_near(double got, double expected, double scale, const char *what) {
    ck_assert_msg(fabs(got - expected) <= 3e-6 * (scale + fabs(expected)), "%s: expected %.9g, got %.9g", what,
                  expected, got);
}

TEST(uneven_rows) {
    struct group group = {0};
    struct process whole = {.rows = ROWS}, parts[PROCESSES] = {{0}};
    pthread_t threads[PROCESSES];
    size_t in = shape_elements(&input), out = 70;
    SCOPED_MEMORY float *inputs = malloc(ROWS * in * sizeof *inputs), *dy = malloc(ROWS * out * sizeof *dy);
    struct rng rng;
    rng_seed(&rng, 1);
    rng_normal(&rng, inputs, ROWS * in, 20, 2); /* far from 0, and the first rows elsewhere than the last */
    for (size_t i = 0; i < ROWS * in; i++) inputs[i] += (float)(i / in);
    rng_normal(&rng, dy, ROWS * out, 0, 1);
    pthread_barrier_init(&group.barrier, NULL, PROCESSES);
    pthread_mutex_init(&group.mutex, NULL);
    whole.inputs = inputs;
    whole.dy = dy;
    open_process(&whole);
    run(&whole);
    for (size_t i = 0; i < PROCESSES; i++) {
        parts[i] = (struct process){
            .group = &group, .rows = rows_of[i], .inputs = inputs + first_of[i] * in, .dy = dy + first_of[i] * out};
        open_process(&parts[i]);
    }
    for (size_t i = 0; i < PROCESSES; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, run, &parts[i]), 0);
    for (size_t i = 0; i < PROCESSES; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < PROCESSES; i++) {
        for (size_t j = 0; j < rows_of[i] * out; j++)
            check_near((double)parts[i].output[j], (double)whole.output[first_of[i] * out + j], 1, "output");
        for (size_t j = 0; j < whole.model->buffers.total; j++)
            check_near((double)parts[i].model->buffers.values[j], (double)whole.model->buffers.values[j], 1, "running");
    }
    for (size_t j = 0; j < whole.model->params.total; j++) {
        double sum = 0;
        for (size_t i = 0; i < PROCESSES; i++) sum += (double)parts[i].model->params.gradients[j];
        check_near(sum, (double)whole.model->params.gradients[j], 30, "gradient");
    }
    for (size_t i = 0; i < PROCESSES; i++) close_process(&parts[i]);
    close_process(&whole);
    pthread_barrier_destroy(&group.barrier);
    pthread_mutex_destroy(&group.mutex);
}

CHECK_MAIN("batch_norm_sync")
