/* The loop: steps, and what is due after them. */
#include "train/trainer.h"

#include "base/buffer.h"
#include "dist/comm_gpu.h"
#include "train/epoch.h"
#include "train/progress.h"
#include "train/save.h"
#include "train/step.h"

bool trainer_is_complete(const struct config *config, const struct counters *counters) {
    if (config->train.epochs != SCHEMA_NO_INT) return counters->epoch >= config->train.epochs;
    return counters->step >= config->train.steps;
}

/* The random numbers of a pass are named by its place in the run, not drawn in order. */
struct pass trainer_pass(struct trainer *t, size_t rows, bool is_training) {
    const struct counters *c = &t->state->counters;
    uint64_t number = (uint64_t)(c->epoch * (int64_t)loader_batches(t->loader) + c->batch);
    device_upload(t->device, t->pass_number, &number, sizeof number);
    return (struct pass){.device = t->device,
                         .rows = rows,
                         .is_training = is_training,
                         .draws = {.seed = (uint64_t)t->config->seed,
                                   .step = t->pass_number,
                                   .first_row = (uint64_t)comm_rank(t->comm),
                                   .row_stride = (uint64_t)comm_world_size(t->comm)}};
}

status trainer_check_agreement(struct trainer *t, bool with_buffers) {
    if (comm_world_size(t->comm) == 1) return OK;
    TRY(state_lend(t->state));
    status s = agreement_check(t->state, with_buffers, t->comm);
    return status_first(s, state_take_back(t->state, false));
}

int64_t trainer_moves(const struct counters *c) { return c->step + c->skipped; }

static status share_weights(struct trainer *t) {
    struct params *params = &t->model->params;
    TRY(comm_broadcast(t->comm, &t->state->counters, sizeof t->state->counters, COMM_UINT8, 0));
    TRY(comm_broadcast(t->comm, params->values, params->total, COMM_FLOAT32, 0));
    return trainer_share_buffers(t);
}

status trainer_share_start(struct trainer *t) {
    if (comm_world_size(t->comm) == 1) return OK;
    TRY(model_lend(t->model));
    status s = share_weights(t);
    return status_first(s, model_take_back(t->model, true));
}

status trainer_share_state(struct trainer *t) {
    const struct params *params = &t->model->params;
    TRY(share_weights(t));
    if (t->ema) TRY(comm_broadcast(t->comm, t->ema->values, params->total, COMM_FLOAT32, 0));
    if (t->zero) return zero_scatter(t->zero, t->state, t->comm);
    for (size_t i = 0; i < t->optimizer->buffer_count; i++)
        TRY(comm_broadcast(t->comm, t->optimizer->buffers[i], params->trained, COMM_FLOAT32, 0));
    return OK;
}

status trainer_share_buffers(struct trainer *t) {
    struct params *buffers = &t->model->buffers;
    if (!buffers->total || comm_world_size(t->comm) == 1) return OK;
    TRY(device_lend(t->device, (void **)&buffers->values));
    TRY(comm_broadcast(t->comm, buffers->values, buffers->total, COMM_FLOAT32, 0));
    return device_take_back(t->device, (void **)&buffers->values, true);
}

static status stop_on_request(struct trainer *t) {
    bool has_moved;
    TRY(save_last(t, &has_moved));
    return status_new(STATUS_STOPPED,
                      "stopped on request after step %lld; the state is saved, run the same command again to continue",
                      (long long)t->state->counters.step);
}

static bool is_epoch_end(const struct trainer *t) {
    return (size_t)t->state->counters.batch == loader_batches(t->loader);
}

static bool is_last(const struct trainer *t) {
    const struct counters *c = &t->state->counters;
    if (t->config->train.epochs == SCHEMA_NO_INT) return c->step == t->config->train.steps;
    return is_epoch_end(t) && c->epoch + 1 == t->config->train.epochs;
}

/* A step and its results, where something is to be done with the state after it. */
static status take_step(struct trainer *t, bool *must_stop) {
    int64_t step = t->state->counters.step;
    bool is_again;
    TRY(guard_leaves_out(t->guard, step_place(t)) ? step_pass_over(t, must_stop) : step_run(t, must_stop));
    bool is_whole_needed = *must_stop || is_epoch_end(t) || is_last(t);
    if (!is_whole_needed && !save_is_due(t, false, t->state->counters.step > step)) return OK;
    return step_finish(t, must_stop, &is_again);
}

/* One step, and what is due after it. *is_done: the run is complete and saved. */
static status advance(struct trainer *t, bool *is_done) {
    struct counters *c = &t->state->counters;
    int64_t epoch = c->epoch, batch = c->batch, step = c->step;
    bool must_stop = false, has_moved = false;
    TRY(take_step(t, &must_stop));
    if (c->epoch != epoch || c->batch <= batch) return must_stop ? stop_on_request(t) : OK; /* it led back */
    bool ends_epoch = is_epoch_end(t), ends_run = is_last(t);
    if (ends_epoch || ends_run) TRY(epoch_finish(t, ends_epoch, ends_run));
    bool is_due = save_is_due(t, ends_epoch, c->step > step);
    if (is_due && !ends_run && !must_stop) TRY(save_if_good(t, &has_moved));
    if (ends_run && !has_moved) {
        TRY(save_last(t, &has_moved));
        *is_done = !has_moved;
    }
    if (*is_done) return OK;
    if (must_stop) return stop_on_request(t);
    return ends_epoch && !has_moved ? loader_seek(t->loader, c->epoch, 0) : OK;
}

static status run_all(struct trainer *t) {
    const struct counters *c = &t->state->counters;
    bool is_done = trainer_is_complete(t->config, c), has_moved;
    TRY(save_first(t));
    TRY(loader_seek(t->loader, c->epoch, (size_t)c->batch));
    if (is_done) return save_last(t, &has_moved);
    while (!is_done) TRY(advance(t, &is_done));
    return OK;
}

/* A pass that the host has no part in. NCCL wants its calls recorded on all ranks or on none, so none may be without
 * rows. */
static bool is_recordable(const struct trainer *t) {
    if (comm_gpu(t->comm) && t->config->sampler.uneven) return false;
    status apart = comm_world_size(t->comm) > 1 ? model_check_apart(t->model, "a CUDA graph") : OK;
    bool is_apart = !apart;
    status_free(apart);
    return t->config->train.cuda_graph && is_apart;
}

status trainer_alloc(struct trainer *t, size_t rows, struct log *log) {
    size_t count = t->ranges.count;
    TRY(feed_create(t->device, dataset_info(t->dataset), rows, &t->feed));
    feed_expect(t->feed, t->loader);
    feed_expect(t->feed, t->validation);
    TRY(device_alloc(t->device, sizeof *t->found, "the results of a step", (void **)&t->found));
    TRY(device_alloc(t->device, t->model->buffers.total * sizeof *t->kept, "the last running statistics",
                     (void **)&t->kept));
    TRY(device_alloc(t->device, sizeof *t->pass_number, "the number of a pass", (void **)&t->pass_number));
    TRY(buffer_new(count * sizeof *t->norm_ranges, "the ranges of the gradients", (void **)&t->norm_ranges));
    for (size_t i = 0; i < count; i++) {
        const struct reducer_range *range = &t->ranges.ranges[i];
        t->norm_ranges[i] = (struct device_range){range->offset, range->offset + range->count};
    }
    TRY(recordings_create(t->device, t->comm, is_recordable(t), log, &t->recordings));
    return recordings_create(t->device, NULL, t->config->train.cuda_graph, NULL, &t->evaluations);
}

void trainer_free(struct trainer *t) {
    recordings_destroy(t->recordings);
    recordings_destroy(t->evaluations);
    feed_destroy(t->feed);
    device_free(t->device, t->found);
    device_free(t->device, t->kept);
    device_free(t->device, t->pass_number);
    buffer_free(t->norm_ranges);
}

/* Gradients that all ranks have whole, and the same, on the device. */
static bool can_be_ahead(const struct trainer *t) {
    bool has_all = comm_world_size(t->comm) == 1 || comm_gpu(t->comm);
    return t->recordings && has_all && !t->elastic && !t->zero && !t->is_in_backward;
}

status trainer_run(struct trainer *t) {
    report_start(&t->report, (double)t->state->counters.step / (double)progress_total_steps(t));
    if (!fault_flip_read(&t->flip)) return status_new(STATUS_USAGE, "DDPTRAIN_FAULT_FLIP: expected RANK:STEP:BIT");
    step_open(t);
    t->is_ahead = can_be_ahead(t);
    TRY(guard_create(&t->config->train.on_nonfinite, &t->model->buffers, t->device, &t->guard));
    status s = recordings_agree(t->recordings); /* on where memory is now that it is reserved */
    if (!s) s = run_all(t);
    guard_destroy(t->guard);
    t->guard = NULL;
    return s;
}
