/* A step reads as it happens: load, forward, backward, reduce, clip, update, which leaves gradients that are zero.
 * Everything was allocated before.
 *
 * A GPU that records passes decides about the update itself and makes it in the same recording; the host asks for the
 * next step and then reads what this one found: it is one step ahead. A step that was not finite holds back its own
 * update and that of the next one; then the host goes back to where the step began and does it again, waiting for it:
 * all that is to be found out and decided has one place. */
#include "train/step.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "dist/comm_gpu.h"
#include "train/progress.h"
#include "train/recovery.h"

/* What one optimizer update saw; after share_sums the same on all ranks. */
struct update {
    struct loss_sums sums;
    double rows;
    double stops; /* ranks that were asked to stop */
    /* ranks that found a loss, an averaged gradient or a running statistic that is not finite */
    double bad_losses, bad_gradients, bad_statistics;
    double seconds;
    size_t batches;  /* micro-batches taken from the loader */
    bool is_decided; /* on the device, which makes the update in the last pass */
    bool has_norm;
    bool checks_state; /* hashes ride with the sums */
};

/* Micro-batches of the update that starts now: accumulate, fewer at the end of an epoch. */
static size_t group_size(const struct trainer *t) {
    size_t left = loader_batches(t->loader) - (size_t)t->state->counters.batch;
    size_t group = (size_t)t->config->train.accumulate;
    return left < group ? left : group;
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

/* What a micro-batch of [rows] counts in its update; gradients are averaged over ranks afterwards. `samples`, and ranks
 * with unequal rows, need the rows of all: only the last batch of an epoch may be short. */
static float batch_weight(const struct trainer *t, size_t rows, double group_rows) {
    const struct train_config *c = &t->config->train;
    if (c->accumulate_weighting == WEIGHTING_SAMPLES) return (float)((double)rows / group_rows);
    if (!t->config->sampler.uneven) return 1.0f / (float)c->accumulate;
    return (float)((double)rows / (mean_rows(t, (size_t)t->state->counters.batch) * (double)c->accumulate));
}

static bool has_device_failed(const struct trainer *t) {
    status failure = device_status(t->device);
    bool has_failed = failure != OK;
    status_free(failure);
    return has_failed;
}

/* What a failed operator has not written is not sent. */
static void gradient_is_ready(void *trainer, size_t param) {
    struct trainer *t = trainer;
    if (!has_device_failed(t)) reducer_ready(t->reducer, t->ranges.index_of[param]);
}

/* What layers ask for in the middle of a pass; the failure waits until the pass is over. */
static void sum_over_ranks(void *trainer, double *values, size_t count) {
    struct trainer *t = trainer;
    if (!t->all_sum_failure) t->all_sum_failure = comm_all_reduce(t->comm, values, count, COMM_FLOAT64, COMM_SUM);
}

void step_open(struct trainer *t) { t->all_sum = (struct all_sum){sum_over_ranks, t}; }

static status take_failure(struct trainer *t) {
    status failure = t->all_sum_failure;
    t->all_sum_failure = OK;
    return failure;
}

/* A rank without rows of this batch takes part with zeros. */
static void sit_out(struct trainer *t) {
    for (size_t i = t->ranges.count; i-- > 0;) reducer_ready(t->reducer, i);
}

/* Gradients of a device that the reducer does not see: through the host, once all are there. */
static status average_on_host(struct trainer *t) {
    const struct params *params = &t->model->params;
    size_t bytes = params->trained * sizeof *t->host_gradients;
    TRY(device_download(t->device, t->host_gradients, params->gradients, bytes));
    reducer_start(t->reducer);
    sit_out(t);
    TRY(reducer_finish(t->reducer));
    device_upload(t->device, params->gradients, t->host_gradients, bytes);
    return OK;
}

/* A micro-batch on the device. */
struct work {
    struct trainer *trainer;
    struct pass pass;
    struct batch batch;
    struct recording_key key;
};

/* Before gradients are sent: what only this rank has seen reaches all with them. */
static void tell_in_gradients(struct trainer *t) {
    const struct device_ops *ops = device_ops(t->device);
    const struct params *buffers = &t->model->buffers;
    ops->note_bad(t->device, buffers->values, buffers->total, &t->found->bad[BAD_STATISTICS]);
    if (comm_gpu(t->comm))
        ops->spoil(t->device, &t->found->sums.loss, &t->found->bad[BAD_STATISTICS], t->model->params.gradients);
}

/* With gradients that are equal on all ranks the decision is, too. */
static void decide_and_update(struct trainer *t, bool has_norm) {
    struct params *params = &t->model->params, *buffers = &t->model->buffers;
    const struct device_ops *ops = device_ops(t->device);
    const struct train_config *c = &t->config->train;
    struct found *found = t->found;
    float limit = (float)c->clip_grad_value * t->loss_scale;
    if (limit > 0) ops->optimizers->clamp(t->device, limit, params->gradients, params->trained);
    if (has_norm)
        ops->clip_norm(t->device, params->gradients, t->norm_ranges, t->ranges.count, (float)c->clip_grad_norm,
                       t->loss_scale, &found->norm);
    else
        ops->note_bad(t->device, params->gradients, params->trained, &found->bad[BAD_GRADIENTS]);
    ops->hold(t->device, &found->sums.loss, &found->norm.norm, found->bad, 2, &found->held, &found->norm.clip);
    optimizer_run_step(t->optimizer, params, &found->norm.clip);
    ema_update(t->ema, params, t->state->counters.step + 1, &found->norm.clip);
    if (buffers->total) ops->optimizers->settle(t->device, &found->norm.clip, buffers->values, t->kept, buffers->total);
}

/* An update leaves them so; not so the start of a run, and a step that was not applied. */
static void zero_gradients(struct trainer *t) {
    if (!t->has_zero_gradients && !t->is_in_backward) params_zero_gradients(&t->model->params, t->device);
}

/* forward, loss, backward; the last micro-batch of a group reduces while it goes back */
static status run_pass(void *user) {
    const struct work *w = user;
    struct trainer *t = w->trainer;
    bool reduces = w->key.is_last && !t->host_gradients && !t->is_in_backward;
    if (reduces) reducer_start(t->reducer);
    pulse_phase(t->pulse, PULSE_FORWARD);
    const float *output = model_forward(t->model, &w->pass, w->batch.inputs);
    TRY(take_failure(t));
    loss_run(t->loss, t->config->loss.config, t->model, output, w->batch.targets, w->batch.rows, w->key.scale,
             &t->found->sums);
    if (w->key.is_update) tell_in_gradients(t);
    pulse_phase(t->pulse, PULSE_BACKWARD);
    if (t->is_in_backward)
        in_backward_run(t, &w->pass, w->batch.inputs);
    else
        model_backward(t->model, &w->pass, w->batch.inputs, reduces ? gradient_is_ready : NULL, t);
    TRY(take_failure(t));
    if (!reduces) return OK;
    TRY(device_status(t->device));
    TRY(reducer_finish(t->reducer));
    if (w->key.is_update) decide_and_update(t, w->key.has_norm);
    return OK;
}

/* A rank without rows of this batch. */
static status run_nothing(struct trainer *t, bool is_last) {
    if (!is_last || t->host_gradients) return OK;
    reducer_start(t->reducer);
    sit_out(t);
    return reducer_finish(t->reducer);
}

/* Number [i] of the update's. */
static status micro_batch(struct trainer *t, struct update *update, double group_rows, size_t i) {
    bool is_last = i + 1 == update->batches;
    struct batch host, batch;
    pulse_phase(t->pulse, PULSE_LOADING);
    TRY(feed_next(t->feed, t->loader, &host, &batch));
    if (batch.rows == 0 && !t->config->sampler.uneven)
        return status_new(STATUS_BUG, "the loader ended an epoch before its time");
    pulse_phase(t->pulse, PULSE_FORWARD);
    if (i == 0) zero_gradients(t);
    t->has_zero_gradients = false;
    if (batch.rows > 0) {
        struct work work = {.trainer = t,
                            .pass = trainer_pass(t, batch.rows, true),
                            .batch = batch,
                            .key = {.rows = batch.rows,
                                    .scale = t->loss_scale * batch_weight(t, batch.rows, group_rows),
                                    .loss_scale = t->loss_scale,
                                    .is_last = is_last,
                                    .is_update = is_last && update->is_decided,
                                    .has_norm = is_last && update->is_decided && update->has_norm}};
        work.pass.all_sum = comm_world_size(t->comm) > 1 ? &t->all_sum : NULL;
        TRY(recordings_run(t->recordings, &work.key, run_pass, &work));
    } else {
        TRY(run_nothing(t, is_last));
    }
    t->has_zero_gradients = is_last && update->is_decided;
    update->rows += (double)batch.rows;
    t->state->counters.batch++;
    return OK;
}

static status forward_backward(struct trainer *t, struct update *update) {
    size_t first = (size_t)t->state->counters.batch;
    double group_rows = 0;
    update->batches = group_size(t);
    for (size_t i = 0; i < update->batches; i++) group_rows += mean_rows(t, first + i);
    for (size_t i = 0; i < update->batches; i++) TRY(micro_batch(t, update, group_rows, i));
    return t->host_gradients ? average_on_host(t) : OK;
}

/* The same in shards: one batch, since accumulation is what shards are. */
static status forward_backward_shards(struct trainer *t, struct update *update) {
    size_t number = (size_t)t->state->counters.batch;
    struct batch host, batch;
    pulse_phase(t->pulse, PULSE_LOADING);
    TRY(feed_next(t->feed, t->loader, &host, &batch));
    pulse_phase(t->pulse, PULSE_FORWARD);
    struct pass pass = trainer_pass(t, batch.rows, true);
    TRY(elastic_run(t->elastic, &batch, number, &pass));
    update->batches = 1;
    update->rows = (double)batch.rows;
    t->state->counters.batch++;
    return OK;
}

static bool is_state_check_due(const struct trainer *t) {
    int64_t every = t->config->train.check_state_every;
    return every > 0 && t->state->counters.step % every == 0 && comm_world_size(t->comm) > 1;
}

static status put_hash(struct trainer *t, double *word) {
    TRY(state_lend(t->state));
    agreement_put(agreement_hash(t->state, false), word);
    return state_take_back(t->state, false);
}

#define COUNTS 5

/* One small word rides with every step, so that all ranks decide the same in the same step. */
static status share_sums(struct trainer *t, struct update *update) {
    enum { SUMS = sizeof update->sums / sizeof(double), MOST = SUMS + COUNTS + AGREEMENT_WORD };
    bool checks_state = update->checks_state;
    double word[MOST], *counts = word + SUMS, *hash = counts + COUNTS;
    size_t count = COUNTS + (checks_state ? AGREEMENT_WORD : 0);
    memcpy(word, &update->sums, sizeof update->sums);
    counts[0] = update->rows;
    counts[1] = t->stop && *t->stop ? 1 : 0;
    counts[2] = isfinite(update->sums.loss) ? 0 : 1;
    counts[3] = update->bad_gradients;
    counts[4] = update->bad_statistics;
    if (checks_state) TRY(put_hash(t, hash));
    if (t->elastic)
        TRY(elastic_share(t->elastic, &update->sums, counts, count));
    else
        TRY(comm_all_reduce(t->comm, word, SUMS + count, COMM_FLOAT64, COMM_SUM));
    if (!t->elastic) memcpy(&update->sums, word, sizeof update->sums);
    update->rows = counts[0];
    update->stops = counts[1];
    update->bad_losses = counts[2] + (isfinite(update->sums.loss) ? 0 : 1);
    update->bad_gradients = counts[3];
    update->bad_statistics = counts[4];
    if (!checks_state || agreement_holds(hash, comm_world_size(t->comm))) return OK;
    return trainer_check_agreement(t, false);
}

/* The same on all ranks: the averaged gradients are. */
static bool is_norm_needed(const struct trainer *t) {
    int64_t every = t->config->train.log_every;
    return t->config->train.clip_grad_norm > 0 || (every > 0 && (t->state->counters.step + 1) % every == 0);
}

/* Each rank has only its cuts of the averaged gradients. */
static bool are_gradients_shared(const struct trainer *t) { return t->zero && !t->elastic; }

/* This rank's share of looking whether the averaged gradients are finite, where no norm would show it. */
static void look_at_share(struct trainer *t) {
    const struct params *params = &t->model->params;
    const struct device_ops *ops = device_ops(t->device);
    size_t world = (size_t)comm_world_size(t->comm), rank = (size_t)comm_rank(t->comm);
    size_t begin = params->trained * rank / world, end = params->trained * (rank + 1) / world;
    if (are_gradients_shared(t))
        zero_note_bad(t->zero, t->device, params->gradients, &t->found->bad[BAD_GRADIENTS]);
    else
        ops->note_bad(t->device, params->gradients + begin, end - begin, &t->found->bad[BAD_GRADIENTS]);
}

/* The norm of what each rank has a cut of, and the coefficient as device_ops' clip_norm takes it. */
static status measure_shares(struct trainer *t, float most) {
    struct params *params = &t->model->params;
    double squares;
    TRY(device_lend(t->device, (void **)&params->gradients));
    TRY(zero_squared_norm(t->zero, params, t->comm, &squares));
    TRY(device_take_back(t->device, (void **)&params->gradients, false));
    struct clip_norm norm = {.norm = (float)(sqrt(squares) / (double)t->loss_scale), .clip = 1 / t->loss_scale};
    float coefficient = most / (norm.norm + 1e-6f);
    if (most > 0 && coefficient < 1) norm.clip *= coefficient;
    device_upload(t->device, &t->found->norm, &norm, sizeof norm);
    return OK;
}

/* clip_grad_norm_: the coefficient is max / (norm + 1e-6), at most 1. Without clipping the norm is taken only where it
 * is logged, on rank 0. clip_grad_value_ comes first, so that the norm is that of what is used. Whatever the norm is
 * needed for, it also shows whether the gradients are finite. They stand multiplied by the loss scale. *has_norm: it
 * was taken. */
static status measure_gradients(struct trainer *t, bool *has_norm) {
    const struct params *params = &t->model->params, *buffers = &t->model->buffers;
    const struct device_ops *ops = device_ops(t->device);
    double limit = t->config->train.clip_grad_value;
    float most = (float)t->config->train.clip_grad_norm;
    *has_norm = false;
    ops->note_bad(t->device, buffers->values, buffers->total, &t->found->bad[BAD_STATISTICS]);
    if (t->is_in_backward) return t->in_backward.bad ? in_backward_failure(t) : OK;
    if (limit > 0) ops->optimizers->clamp(t->device, (float)limit * t->loss_scale, params->gradients, params->trained);
    if (!is_norm_needed(t)) {
        look_at_share(t);
        return OK;
    }
    *has_norm = most > 0 || t->metrics || are_gradients_shared(t);
    if (!*has_norm) return OK;
    if (are_gradients_shared(t)) return measure_shares(t, most);
    ops->clip_norm(t->device, params->gradients, t->norm_ranges, t->ranges.count, most, t->loss_scale, &t->found->norm);
    return OK;
}

/* What was found with a step's gradients. */
static void take_found(struct trainer *t, const struct found *found, struct update *update) {
    update->sums = found->sums;
    update->bad_gradients = found->bad[BAD_GRADIENTS];
    update->bad_statistics = found->bad[BAD_STATISTICS];
    t->grad_norm = t->is_in_backward ? sqrt(t->in_backward.squares) : NAN;
    if (!update->has_norm) return;
    t->grad_norm = (double)found->norm.norm;
    update->bad_gradients = isfinite(found->norm.norm) ? 0 : 1;
}

/* The one place of a step where the host waits for the device. */
static status read_found(struct trainer *t, struct update *update) {
    struct found found;
    if (t->reducer) TRY(reducer_wait(t->reducer, device_stream(t->device)));
    TRY(device_download(t->device, &found, t->found, sizeof found));
    take_found(t, &found, update);
    return OK;
}

/* With float16 alone. */
static float loss_scale(const struct trainer *t) {
    const struct train_config *c = &t->config->train;
    if (c->precision != TRAIN_FLOAT16) return 1;
    return (float)loss_scale_value(&c->grad_scaler, &t->state->counters.loss_scale);
}

/* Of step number [step] (from 1). */
static status log_step(struct trainer *t, const struct update *update, int64_t step, float scale, double lr) {
    const struct counters *c = &t->state->counters;
    if (t->metrics) pulse_phase(t->pulse, PULSE_LOGGING);
    double loss = update->sums.loss / update->sums.count;
    double elapsed = c->epoch_seconds > 0 ? c->epoch_seconds : update->seconds;
    double done = (double)step / (double)progress_total_steps(t);
    report_step(&t->report, done, c->epoch + 1, step, loss, c->epoch_samples / elapsed);
    int64_t every = t->config->train.log_every;
    if (!t->metrics || every == 0 || step % every != 0) return OK;
    metrics_begin(t->metrics, "step");
    metrics_int(t->metrics, "epoch", c->epoch);
    metrics_int(t->metrics, "step", step);
    metrics_real(t->metrics, "loss", loss);
    metrics_real(t->metrics, "lr", lr);
    metrics_real(t->metrics, "grad_norm", t->grad_norm);
    if (t->config->train.precision == TRAIN_FLOAT16) metrics_real(t->metrics, "loss_scale", (double)scale);
    metrics_int(t->metrics, "samples", (int64_t)update->rows);
    metrics_real(t->metrics, "seconds", update->seconds);
    return metrics_end(t->metrics);
}

/* The part of the counters that later steps depend on. */
static void count_on(struct trainer *t) {
    struct counters *c = &t->state->counters;
    c->step++;
    if (t->config->train.precision == TRAIN_FLOAT16)
        loss_scale_update(&t->config->train.grad_scaler, &c->loss_scale, false);
}

static void count_step(struct trainer *t, const struct update *update) {
    struct counters *c = &t->state->counters;
    c->skipped_in_row = 0;
    c->samples += (int64_t)update->rows;
    c->epoch_loss += update->sums.loss;
    c->epoch_count += update->sums.count;
    c->epoch_correct += update->sums.correct;
    c->epoch_scored += update->sums.scored;
    c->epoch_samples += update->rows;
    c->epoch_seconds += update->seconds;
    c->seconds += update->seconds;
}

struct guard_place step_place(const struct trainer *t) {
    return (struct guard_place){t->state->counters.epoch, t->state->counters.batch};
}

/* NULL: all is finite. */
static const char *what_is_bad(const struct update *update) {
    if (update->bad_losses > 0) return "the loss is";
    if (update->bad_gradients > 0) return "gradients are";
    return update->bad_statistics > 0 ? "running statistics are" : NULL;
}

/* A test's fault. */
static status flip_bit(struct trainer *t) {
    if (!t->flip.is_set || t->flip.step != t->state->counters.step) return OK;
    TRY(state_lend(t->state));
    agreement_fault(&t->flip, t->state, comm_rank(t->comm));
    return state_take_back(t->state, true);
}

/* The host waits for what the step found, and decides. */
static status run_and_wait(struct trainer *t, bool *must_stop) {
    struct update update = {.checks_state = is_state_check_due(t)};
    struct schedule_progress progress = progress_of(t);
    double momentum = schedule_momentum(&t->config->schedule, &progress);
    double start = clock_seconds(), lr = progress_lr(t);
    t->last_group = step_place(t);
    t->loss_scale = loss_scale(t);
    TRY(flip_bit(t));
    guard_keep_buffers(t->guard, &t->model->buffers);
    device_upload(t->device, t->found, &(struct found){.norm.clip = 1 / t->loss_scale}, sizeof *t->found);
    if (t->is_in_backward) {
        in_backward_start(t, is_norm_needed(t));
        optimizer_plan_step(t->optimizer, t->state->counters.step + 1, progress_rate, t, momentum);
    }
    TRY(t->elastic ? forward_backward_shards(t, &update) : forward_backward(t, &update));
    TRY(measure_gradients(t, &update.has_norm));
    TRY(read_found(t, &update));
    TRY(share_sums(t, &update));
    *must_stop = *must_stop || update.stops > 0;
    const char *bad = what_is_bad(&update);
    if (bad && recovery_is_overflow(t, update.bad_losses == 0 && update.bad_statistics == 0))
        return recovery_overflow(t);
    if (bad) pulse_phase(t->pulse, PULSE_LOADING); /* it may read a checkpoint */
    if (bad) return recovery_run(t, &(struct bad_step){t->last_group, update.batches, bad});
    pulse_phase(t->pulse, PULSE_UPDATING);
    if (!t->is_in_backward)
        optimizer_step(t->optimizer, &t->model->params, t->state->counters.step + 1, progress_rate, t, momentum,
                       &t->found->norm.clip);
    t->has_zero_gradients = !t->is_in_backward;
    TRY(zero_share_values(t->zero, &t->model->params, t->device, t->comm));
    ema_update(t->ema, &t->model->params, t->state->counters.step + 1, &t->found->norm.clip);
    TRY(device_status(t->device));
    update.seconds = clock_seconds() - start;
    count_on(t);
    count_step(t, &update);
    pulse_step(t->pulse, t->state->counters.step, update.seconds);
    return log_step(t, &update, t->state->counters.step, t->loss_scale, lr);
}

/* ---- one step ahead ---- */

/* Asks for the next step; the counters go on as if it were good. */
static status take_off(struct trainer *t, struct flight *out) {
    struct counters *c = &t->state->counters;
    const struct params *buffers = &t->model->buffers;
    struct schedule_progress progress = progress_of(t);
    struct update update = {.is_decided = true, .has_norm = is_norm_needed(t)};
    *out = (struct flight){.is_up = true,
                           .slot = t->flight.is_up ? 1 - t->flight.slot : 0,
                           .first = step_place(t),
                           .step = c->step,
                           .scale = c->loss_scale,
                           .loss_scale = loss_scale(t),
                           .lr = progress_lr(t),
                           .start = clock_seconds(),
                           .has_norm = update.has_norm};
    t->last_group = out->first;
    t->loss_scale = out->loss_scale;
    if (!t->flight.is_up && buffers->total)
        device_ops(t->device)->copy(t->device, buffers->values, t->kept, buffers->total);
    device_upload(t->device, t->found, &(struct found){.norm.clip = 1 / t->loss_scale}, offsetof(struct found, held));
    optimizer_plan_step(t->optimizer, c->step + 1, progress_rate, t,
                        schedule_momentum(&t->config->schedule, &progress));
    TRY(forward_backward(t, &update));
    device_download_later(t->device, out->slot, t->found, sizeof *t->found);
    out->batches = update.batches;
    out->rows = update.rows;
    count_on(t);
    return OK;
}

/* Back to before [flight], as its device is: its update was held back, and all since. */
static status do_again(struct trainer *t, const struct flight *flight, bool *must_stop) {
    struct counters *c = &t->state->counters;
    t->flight.is_up = false;
    if (t->reducer) TRY(reducer_wait(t->reducer, device_stream(t->device)));
    TRY(device_wait(t->device));
    c->batch = flight->first.batch;
    c->step = flight->step;
    c->loss_scale = flight->scale;
    TRY(loader_seek(t->loader, c->epoch, (size_t)c->batch));
    return run_and_wait(t, must_stop);
}

static status differ(struct trainer *t, const struct flight *flight) {
    TRY(trainer_check_agreement(t, false));
    return status_new(STATUS_BUG, "the device and the ranks do not agree whether step %lld is finite",
                      (long long)flight->step + 1);
}

/* Its results. *is_again: they were not good, and the step was done again: the counters stand where that has led. */
static status land(struct trainer *t, const struct flight *flight, bool *must_stop, bool *is_again) {
    struct update update = {.rows = flight->rows, .batches = flight->batches, .has_norm = flight->has_norm};
    struct found found;
    if (t->reducer) TRY(reducer_wait(t->reducer, device_download_stream(t->device, flight->slot)));
    TRY(device_download_end(t->device, flight->slot, &found, sizeof found));
    take_found(t, &found, &update);
    TRY(share_sums(t, &update));
    *must_stop = *must_stop || update.stops > 0;
    bool is_bad = what_is_bad(&update) != NULL;
    if (is_bad != (found.held > 0)) return differ(t, flight);
    if (is_bad) {
        *is_again = true;
        return do_again(t, flight, must_stop);
    }
    double now = clock_seconds();
    update.seconds = now - (flight->start > t->landed ? flight->start : t->landed);
    t->landed = now;
    count_step(t, &update);
    pulse_step(t->pulse, flight->step + 1, update.seconds);
    return log_step(t, &update, flight->step + 1, flight->loss_scale, flight->lr);
}

status step_finish(struct trainer *t, bool *must_stop, bool *is_again) {
    struct flight flight = t->flight;
    *is_again = false;
    t->flight.is_up = false;
    return flight.is_up ? land(t, &flight, must_stop, is_again) : OK;
}

/* What the host has a part in waits for it: a hash of the state, a test's fault, the first copy of an average. */
static bool can_take_off(const struct trainer *t) {
    bool is_first_average = t->ema && t->state->counters.step == 0;
    return t->is_ahead && !t->flip.is_set && !is_first_average && !is_state_check_due(t);
}

status step_run(struct trainer *t, bool *must_stop) {
    bool is_again = false;
    struct flight before = t->flight, next;
    if (!can_take_off(t)) {
        TRY(step_finish(t, must_stop, &is_again));
        return is_again ? OK : run_and_wait(t, must_stop);
    }
    TRY(take_off(t, &next));
    t->flight = next;
    return before.is_up ? land(t, &before, must_stop, &is_again) : OK;
}

status step_pass_over(struct trainer *t, bool *must_stop) {
    bool is_again;
    TRY(step_finish(t, must_stop, &is_again));
    if (is_again) return OK;
    t->state->counters.batch += (int64_t)group_size(t);
    t->state->counters.skipped++;
    return loader_seek(t->loader, t->state->counters.epoch, (size_t)t->state->counters.batch);
}
