/* A pass over a micro-batch may be recorded: its work depends only on its key and on values in device memory. */
#include "train/loop/micro_batch.h"

#include "dist/comm/comm_gpu.h"
#include "train/loop/averaging/averaging.h"
#include "train/loop/device_update.h"

size_t micro_batches_of_update(const struct trainer *t) {
    size_t left = loader_batches(t->loader) - (size_t)t->state->counters.batch;
    size_t per_step = (size_t)t->config->train.accumulate;
    return left < per_step ? left : per_step;
}

/* Rows of batch number [index] of an epoch on [rank]. */
static size_t rows_of_batch(const struct trainer *t, size_t index, int rank) {
    size_t rows = dataset_info(t->dataset)->train_rows, first = index * t->batch;
    size_t length = sampler_own_length(&t->config->sampler, rows, rank, comm_world_size(t->comm));
    size_t left = length > first ? length - first : 0;
    return left < t->batch ? left : t->batch;
}

/* The mean over ranks of their rows in batch number [index]. */
static double mean_rows(const struct trainer *t, size_t index) {
    int world = comm_world_size(t->comm);
    size_t rows = 0;
    if (!t->config->sampler.uneven) return (double)rows_of_batch(t, index, 0);
    for (int r = 0; r < world; r++) rows += rows_of_batch(t, index, r);
    return (double)rows / world;
}

/* The weight of a micro-batch of [rows] rows in its update; gradients are averaged over ranks later. `samples`, and
 * ranks with unequal rows, need the rows of all micro-batches: only the last batch of an epoch may be short. */
static float batch_weight(const struct trainer *t, size_t rows, double step_rows) {
    const struct train_config *c = &t->config->train;
    if (c->accumulate_weighting == WEIGHTING_SAMPLES) return (float)((double)rows / step_rows);
    if (!t->config->sampler.uneven) return 1.0f / (float)c->accumulate;
    return (float)((double)rows / (mean_rows(t, (size_t)t->state->counters.batch) * (double)c->accumulate));
}

/* Called by layers during a pass; a failure is returned after the pass. */
static void sum_over_ranks(void *trainer, double *values, size_t count) {
    struct trainer *t = trainer;
    if (!t->micro_batches.all_sum_failure)
        t->micro_batches.all_sum_failure = comm_all_reduce(t->comm, values, count, COMM_FLOAT64, COMM_SUM);
}

status micro_batches_open(struct trainer *t) {
    size_t rows = dataset_info(t->dataset)->train_rows;
    int world = comm_world_size(t->comm);
    t->micro_batches.all_sum = (struct all_sum){sum_over_ranks, t};
    if (world == 1 || !loss_compares_rows(t->loss, t->loss_config)) return OK;
    TRY(row_gather_create(t->comm, comm_gpu(t->comm), t->batch, &t->micro_batches.gather));
    for (int r = 0; r < world; r++)
        row_gather_set_rows(t->micro_batches.gather, r, sampler_own_length(&t->config->sampler, rows, r, world));
    return OK;
}

void micro_batches_close(struct trainer *t) { row_gather_destroy(t->micro_batches.gather); }

/* The rows of the current micro-batch on all ranks; NULL: the loss does not compare them. */
static const struct all_rows *all_rows(const struct trainer *t) {
    return row_gather_batch(t->micro_batches.gather, (size_t)t->state->counters.batch);
}

static status take_failure(struct trainer *t) {
    status failure = t->micro_batches.all_sum_failure;
    t->micro_batches.all_sum_failure = OK;
    return status_first(failure, row_gather_take_failure(t->micro_batches.gather));
}

/* The argument of run_pass: a micro-batch on the device. */
struct work {
    struct trainer *trainer;
    struct pass pass;
    struct batch batch;
    struct recording_key key;
};

/* forward, loss, backward; for the last micro-batch also the end of the reduction, and the update if the device makes
 * it */
static status run_pass(void *user) {
    const struct work *w = user;
    struct trainer *t = w->trainer;
    const struct averaging *method = t->averaging.method;
    activity_phase(t->activity, ACTIVITY_FORWARD);
    const float *output = model_forward(t->model, &w->pass, w->batch.inputs);
    TRY(take_failure(t));
    loss_run(t->loss, t->loss_config, t->model, output, w->batch.targets, w->batch.weights, all_rows(t), w->batch.rows,
             w->key.scale, &t->memory.results->sums);
    TRY(take_failure(t));
    if (w->key.is_update) device_update_check(t);
    activity_phase(t->activity, ACTIVITY_BACKWARD);
    method->backward(t, &w->pass, w->batch.inputs, w->key.is_last);
    TRY(take_failure(t));
    if (w->key.is_last && method->finish_backward) TRY(method->finish_backward(t));
    if (w->key.is_update) device_update_run(t, w->key.has_norm, w->key.loss_scale);
    return OK;
}

static status run_rows(struct trainer *t, const struct update *update, const struct batch *batch, float weight,
                       bool is_last) {
    bool is_update = is_last && update->is_device_update;
    struct work work = {.trainer = t,
                        .pass = trainer_pass(t, batch->rows, true),
                        .batch = *batch,
                        .key = {.rows = batch->rows,
                                .scale = update->loss_scale * weight,
                                .loss_scale = update->loss_scale,
                                .is_last = is_last,
                                .is_update = is_update,
                                .has_norm = is_update && update->needs_norm}};
    work.pass.all_sum = comm_world_size(t->comm) > 1 ? &t->micro_batches.all_sum : NULL;
    return recordings_run(t->recordings, &work.key, run_pass, &work);
}

/* On a rank without rows of this batch. */
static status run_no_rows(struct trainer *t, bool is_last) {
    const struct averaging *method = t->averaging.method;
    if (t->micro_batches.gather)
        loss_run(t->loss, t->loss_config, t->model, NULL, NULL, NULL, all_rows(t), 0, 0, &t->memory.results->sums);
    TRY(take_failure(t));
    return is_last && method->contribute_zeros ? method->contribute_zeros(t) : OK;
}

/* Gradients are zero after an update, but not at the start of a run or after a step that was not applied. */
static void zero_gradients(struct trainer *t) {
    if (!t->micro_batches.has_zero_gradients && t->averaging.method->keeps_gradients)
        params_zero_gradients(&t->model->params, t->device);
}

void micro_batches_applied(struct trainer *t) {
    t->micro_batches.has_zero_gradients = t->averaging.method->keeps_gradients;
}

/* Micro-batch [i] of the update. */
static status run_batch(struct trainer *t, struct update *update, double step_rows, size_t i) {
    bool is_last = i + 1 == update->batches;
    struct batch host, batch;
    activity_phase(t->activity, ACTIVITY_LOADING);
    TRY(feed_next(t->feed, t->loader, &host, &batch));
    if (batch.rows == 0 && !t->config->sampler.uneven)
        return status_new(STATUS_BUG, "the loader ended an epoch too early");
    activity_phase(t->activity, ACTIVITY_FORWARD);
    if (i == 0) zero_gradients(t);
    t->micro_batches.has_zero_gradients = false;
    if (batch.rows > 0)
        TRY(run_rows(t, update, &batch, batch_weight(t, batch.rows, step_rows), is_last));
    else
        TRY(run_no_rows(t, is_last));
    t->micro_batches.has_zero_gradients = is_last && update->is_device_update;
    update->rows += (double)batch.rows;
    t->state->counters.batch++;
    return OK;
}

status micro_batches_run(struct trainer *t, struct update *update) {
    size_t first = (size_t)t->state->counters.batch;
    double step_rows = 0;
    update->batches = micro_batches_of_update(t);
    for (size_t i = 0; i < update->batches; i++) step_rows += mean_rows(t, first + i);
    for (size_t i = 0; i < update->batches; i++) TRY(run_batch(t, update, step_rows, i));
    return OK;
}
