/* A step is one update of the parameters. Its micro-batches are computed one after another: load, forward, loss,
 * backward. While backward of the last one runs, complete gradients are averaged over the ranks, bucket by bucket
 * (averaging.h). Then the averaged gradients are measured: are they finite, what is their norm. What follows is done in
 * one of two orders:
 *
 *   update, results, control all-reduce   one rank or NCCL: the devices of all ranks have the same gradients, so each
 *                                         rank decides alone. The device updates the parameters, or skips the update if
 *                                         a number is not finite. The host reads the results afterwards, and the ranks
 *                                         verify that all decided the same.
 *   results, control all-reduce, update   several ranks whose gradients are averaged in host memory, ZeRO, elastic: the
 *                                         host reads the results, all ranks make the same decision, and the host
 *                                         enqueues the update or handles the non-finite step (recovery.h).
 *
 * A GPU can record a step of the first order as a CUDA graph. Then the next step is enqueued before the results of this
 * one, the pending step, are read, so the GPU never waits for the host. After a non-finite step the device skips the
 * update of that step and of the step enqueued after it. The host then returns to the start of that step and repeats it
 * in the second order: a skipped update sets the gradients to zero, which the diagnosis reads; and so diagnosis and
 * recovery are in one place. Nothing is allocated here. */
#include "train/loop/step.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/stop.h"
#include "dist/comm/comm_gpu.h"
#include "train/loop/averaging.h"
#include "train/loop/compute_check.h"
#include "train/loop/ledger.h"
#include "train/loop/progress.h"
#include "train/loop/rank_sync.h"
#include "train/loop/recovery.h"
#include "train/loop/save.h"
#include "train/loop/trace.h"

struct data_position step_position(const struct trainer *t) {
    return (struct data_position){t->state->counters.epoch, t->state->counters.batch};
}

/* ---- micro-batches ---- */

/* The number of micro-batches of the next update: train.accumulate, fewer at the end of an epoch. */
static size_t count_batches(const struct trainer *t) {
    size_t left = loader_batches(t->loader) - (size_t)t->state->counters.batch;
    size_t per_step = (size_t)t->config->train.accumulate;
    return left < per_step ? left : per_step;
}

/* Rows of batch number [index] of an epoch on [rank]. */
static size_t rows_of_batch(const struct trainer *t, size_t index, int rank) {
    size_t rows = dataset_info(t->dataset)->train_rows, first = index * t->batch;
    size_t length = sampler_own_length(t->sampler, rows, rank, comm_world_size(t->comm));
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
    if (!t->micro_batches.pass_failure)
        t->micro_batches.pass_failure = comm_all_reduce(t->comm, values, count, COMM_FLOAT64, COMM_SUM);
}

/* The rows of the current micro-batch on all ranks; NULL: the loss does not compare them. */
static const struct all_rows *all_rows(const struct trainer *t) {
    return row_gather_batch(t->micro_batches.gather, (size_t)t->state->counters.batch);
}

static status take_failure(struct trainer *t) {
    status failure = t->micro_batches.pass_failure;
    t->micro_batches.pass_failure = OK;
    failure = status_first(failure, zero_take_failure(t->averaging.zero));
    return status_first(failure, row_gather_take_failure(t->micro_batches.gather));
}

static void param_is_ready(void *trainer, size_t index) {
    struct trainer *t = trainer;
    const struct params *params = &t->model->params;
    t->averaging.hooks->ready(t, index, 0, params->items[index].count, params_gradient(params, index));
}

static void begin_group(void *trainer, size_t group) {
    struct trainer *t = trainer;
    t->averaging.hooks->begin_group(t, group);
}

static void part_is_ready(void *trainer, size_t index, size_t first, size_t count, float *gradient) {
    struct trainer *t = trainer;
    t->averaging.hooks->ready(t, index, first, count, gradient);
}

/* A piece on the device, and its pass: the argument of run_pass. */
struct work {
    struct trainer *trainer;
    const struct update *update;
    const struct batch_piece *piece;
    struct pass pass;
    float scale; /* of the loss */
};

static void backward(const struct work *w) {
    struct trainer *t = w->trainer;
    const struct averaging_hooks *hooks = t->averaging.hooks;
    bool is_averaged = w->piece->is_last || hooks->averages_each;
    if (is_averaged && hooks->begin) hooks->begin(t, w->update, w->piece);
    activity_phase(t->activity, ACTIVITY_BACKWARD);
    if (hooks->begin_group)
        model_backward_in_groups(t->model, &w->pass, w->piece->batch.inputs, begin_group, param_is_ready, t);
    else if (hooks->keeps_gradients)
        model_backward(t->model, &w->pass, w->piece->batch.inputs, is_averaged && hooks->ready ? param_is_ready : NULL,
                       t);
    else
        model_backward_in_parts(t->model, &w->pass, w->piece->batch.inputs,
                                &(struct gradient_receiver){part_is_ready, t});
}

static void check_statistics(struct trainer *t);
static void propagate_nonfinite(struct trainer *t);
static status decide_and_update(struct trainer *t, const struct update *update);
static status sum(struct trainer *t, struct loss_sums *sums, double *counts, size_t count);

static bool includes_update(const struct update *update, const struct batch_piece *piece) {
    return piece->is_last && update->decides_alone;
}

/* The end of the forward part, also on a rank without rows. */
static void finish_forward(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    if (!includes_update(update, piece)) return;
    check_statistics(t);
    propagate_nonfinite(t);
}

/* The end of the backward part, also on a rank without rows. */
static status finish_backward(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    const struct averaging_hooks *hooks = t->averaging.hooks;
    if (hooks->piece_done) TRY(hooks->piece_done(t, piece));
    return includes_update(update, piece) ? decide_and_update(t, update) : OK;
}

/* Forward and loss. */
static status forward(const struct work *w) {
    struct trainer *t = w->trainer;
    const struct batch *batch = &w->piece->batch;
    activity_phase(t->activity, ACTIVITY_FORWARD);
    const struct tensor *output = w->update->is_traced       ? trace_forward(t, &w->pass, batch->inputs)
                                  : t->compute_check.injects ? compute_check_forward(t, &w->pass, batch->inputs)
                                                             : model_forward(t->model, &w->pass, batch->inputs);
    TRY(take_failure(t));
    loss_run(t->loss, t->loss_config, t->model, output, batch->targets, batch->weights, all_rows(t), batch->rows,
             w->scale, w->piece->sums);
    return take_failure(t);
}

/* Forward, loss, backward; in the last micro-batch also the end of the averaging, and the update if this rank decides
 * about it alone. May be recorded: the work depends only on the key of the recording and on values in device memory. */
static status run_pass(void *user) {
    const struct work *w = user;
    struct trainer *t = w->trainer;
    TRY(forward(w));
    finish_forward(t, w->update, w->piece);
    backward(w);
    TRY(take_failure(t));
    return finish_backward(t, w->update, w->piece);
}

/* The part of a checked step that is repeated, and of a step with a trace. */
static status compute(void *user) {
    const struct work *w = user;
    struct trainer *t = w->trainer;
    if (w->piece->batch.rows == 0) {
        model_forward_without_rows(t->model);
        if (t->micro_batches.gather)
            loss_run(t->loss, t->loss_config, t->model, NULL, NULL, NULL, all_rows(t), 0, 0, w->piece->sums);
        return take_failure(t);
    }
    TRY(forward(w));
    activity_phase(t->activity, ACTIVITY_BACKWARD);
    model_backward(t->model, &w->pass, w->piece->batch.inputs, NULL, NULL);
    return take_failure(t);
}

/* What follows the last computation of a piece whose gradients were not averaged meanwhile. */
static status average(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    const struct averaging_hooks *hooks = t->averaging.hooks;
    const struct params *params = &t->model->params;
    bool is_averaged = piece->is_last || hooks->averages_each;
    if (is_averaged && hooks->begin) hooks->begin(t, update, piece);
    if (hooks->begin_group) model_backward_in_groups(t->model, NULL, NULL, begin_group, param_is_ready, t);
    for (size_t p = params->count; is_averaged && hooks->ready && !hooks->begin_group && p-- > 0;)
        if (!params->items[p].is_frozen) param_is_ready(t, p);
    return finish_backward(t, update, piece);
}

static struct work work_of(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    float direction = optimizer_maximizes(&t->config->optimizer) ? -1 : 1;
    struct work work = {
        .trainer = t, .update = update, .piece = piece, .scale = direction * update->loss_scale * piece->weight};
    work.pass = trainer_pass(t, piece->batch.rows, true);
    work.pass.draws.first_row = piece->first_row;
    work.pass.draws.row_stride = piece->row_stride;
    work.pass.continues_rows = piece->number > 0;
    work.pass.all_sum = comm_world_size(t->comm) > 1 ? &t->micro_batches.all_sum : NULL;
    return work;
}

/* The piece of a checked step, or of one with a trace. Gradients that share memory (ZeRO's stage 2) are averaged during
 * backward in any case. */
static status run_apart(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    struct work work = work_of(t, update, piece);
    bool is_averaged = t->averaging.hooks->begin_group && piece->batch.rows > 0;
    if (is_averaged)
        TRY(run_pass(&work));
    else
        TRY(update->is_checked ? compute_check_piece(t, piece, compute, &work) : compute(&work));
    if (update->is_traced) TRY(trace_piece(t, update, piece));
    return is_averaged ? OK : average(t, update, piece);
}

static status run_rows(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    struct work work = work_of(t, update, piece);
    struct recording_key key = {.rows = piece->batch.rows,
                                .scale = work.scale,
                                .loss_scale = update->loss_scale,
                                .is_last = piece->is_last,
                                .is_update = includes_update(update, piece),
                                .has_norm = piece->is_last && update->has_norm,
                                .continues = work.pass.continues_rows && model_carries_state(t->model),
                                .adds = t->averaging.hooks->averages_each && !piece->is_first};
    return recordings_run(t->recordings, &key, run_pass, &work);
}

/* On a rank without rows of this micro-batch: its gradients are those of the update so far. */
static status run_no_rows(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    struct work work = {.trainer = t, .update = update, .piece = piece};
    TRY(compute(&work));
    finish_forward(t, update, piece);
    return average(t, update, piece);
}

/* Gradients are zero after an update, but not at the start of a run or after a step that was not applied. */
static void zero_gradients(struct trainer *t) {
    const struct averaging_hooks *hooks = t->averaging.hooks;
    if (!t->micro_batches.has_zero_gradients && hooks->keeps_gradients && !hooks->begin_group)
        params_zero_gradients(&t->model->params, t->device);
}

/* Computes [batch], the micro-batch number [i] of the update, in as many pieces as the averaging needs. */
static status run_pieces(struct trainer *t, const struct update *update, const struct batch *batch, float weight,
                         size_t i) {
    const struct averaging_hooks *hooks = t->averaging.hooks;
    size_t count = 1;
    for (size_t index = 0; index < count; index++) {
        struct batch_piece piece = {.batch = *batch,
                                    .first_row = (size_t)comm_rank(t->comm),
                                    .row_stride = (size_t)comm_world_size(t->comm),
                                    .weight = weight,
                                    .sums = &t->memory.results->sums,
                                    .number = (size_t)t->state->counters.batch,
                                    .index = index,
                                    .is_first = i == 0,
                                    .is_last = i + 1 == update->batches};
        if (hooks->pieces) count = hooks->pieces(t, update, &piece);
        TRY(update->is_checked || update->is_traced ? run_apart(t, update, &piece)
            : piece.batch.rows > 0                  ? run_rows(t, update, &piece)
                                                    : run_no_rows(t, update, &piece));
    }
    return OK;
}

static status run_micro_batch(struct trainer *t, struct update *update, double step_rows, size_t i) {
    struct batch host, batch;
    activity_phase(t->activity, ACTIVITY_LOADING);
    TRY(feed_next(t->feed, t->loader, &host, &batch));
    if (batch.rows == 0 && !t->config->sampler.uneven && !t->averaging.elastic)
        return status_new(STATUS_BUG, "the loader ended an epoch too early");
    activity_phase(t->activity, ACTIVITY_FORWARD);
    if (i == 0) zero_gradients(t);
    t->micro_batches.has_zero_gradients = false;
    t->micro_batches.newest = batch;
    t->micro_batches.weight = batch_weight(t, batch.rows, step_rows);
    TRY(run_pieces(t, update, &batch, t->micro_batches.weight, i));
    t->micro_batches.has_zero_gradients = i + 1 == update->batches && update->decides_alone;
    update->rows += (double)batch.rows;
    t->state->counters.batch++;
    return OK;
}

/* Runs the micro-batches of an update and advances the counters; update->rows: of this rank. */
static status run_micro_batches(struct trainer *t, struct update *update) {
    size_t first = (size_t)t->state->counters.batch;
    double step_rows = 0;
    for (size_t i = 0; i < update->batches; i++) step_rows += mean_rows(t, first + i);
    for (size_t i = 0; i < update->batches; i++) TRY(run_micro_batch(t, update, step_rows, i));
    return t->averaging.hooks->finish ? t->averaging.hooks->finish(t) : OK;
}

/* ---- the update: enqueues operators, nothing here waits for the device ---- */

static void check_statistics(struct trainer *t) {
    const struct params *buffers = &t->model->buffers;
    device_ops(t->device)->check_finite(t->device, buffers->values, buffers->total,
                                        &t->memory.results->nonfinite[NONFINITE_STATISTICS]);
}

/* With NCCL a non-finite number of this rank is put into its gradients before they are reduced, and so reaches all
 * ranks. */
static void propagate_nonfinite(struct trainer *t) {
    if (comm_gpu(t->comm))
        device_ops(t->device)->propagate_nonfinite(t->device, &t->memory.results->sums.loss,
                                                   &t->memory.results->nonfinite[NONFINITE_STATISTICS],
                                                   t->model->params.gradients);
}

/* clip_grad_value_: after the norm and the check for non-finite numbers, as with GradScaler.unscale_. 0: none. */
static float clamp_limit(const struct trainer *t, const struct update *update) {
    return (float)t->config->train.clip_grad_value * update->loss_scale;
}

static void clamp_gradients(struct trainer *t, const struct update *update) {
    const struct params *params = &t->model->params;
    float limit = clamp_limit(t, update), *shard = zero_own_gradients(t->averaging.zero);
    if (limit > 0 && t->averaging.hooks->keeps_gradients)
        device_ops(t->device)->optimizers->clamp(t->device, limit, shard ? shard : params->gradients,
                                                 shard ? zero_shard(t->averaging.zero)->total : params->trained);
}

/* With averaged gradients, which every rank decides about together with the others. */
static status measure(struct trainer *t, struct update *update) {
    check_statistics(t);
    TRY(t->averaging.hooks->measure(t, update));
    clamp_gradients(t, update);
    return OK;
}

/* ---- lbfgs: a step evaluates its batch several times ---- */

struct evaluated {
    struct trainer *trainer;
    struct update update;
};

/* The loss of all ranks and the averaged gradients of the step's batch, with the parameters as they are. */
static status evaluate_again(void *user, double *loss) {
    struct evaluated *e = user;
    struct trainer *t = e->trainer;
    const struct averaging_hooks *hooks = t->averaging.hooks;
    struct loss_sums *sums = &t->memory.results->sums;
    params_zero_gradients(&t->model->params, t->device);
    device_zero(t->device, sums, sizeof *sums);
    t->state->counters.batch--; /* that of the batch, for its random numbers */
    status s = run_pieces(t, &e->update, &t->micro_batches.newest, t->micro_batches.weight, 0);
    t->state->counters.batch++;
    TRY(s);
    if (hooks->finish) TRY(hooks->finish(t));
    struct loss_sums all = *sums;
    double none = 0;
    TRY(sum(t, &all, &none, 1));
    *loss = all.loss / all.count;
    return OK;
}

static status run_lbfgs(struct trainer *t, const struct update *update) {
    struct params *params = &t->model->params;
    struct evaluated e = {t, *update};
    e.update.is_checked = e.update.is_traced = e.update.needs_norm = false;
    TRY(lbfgs_step(t->optimizer->lbfgs, update->lr, params->values, params->gradients,
                   update->sums.loss / update->sums.count, evaluate_again, &e));
    params_zero_gradients(params, t->device);
    return OK;
}

/* The optimizer's update, after which all ranks have all parameters, and that of the moving average. Does nothing but
 * set the gradients to zero if the device has decided to skip it. */
static status update_parameters(struct trainer *t, const struct update *update) {
    struct params *params = &t->model->params;
    const float *clip = &t->memory.results->norm.clip;
    save_release(t);
    if (t->optimizer->lbfgs)
        TRY(run_lbfgs(t, update));
    else if (t->averaging.hooks->keeps_gradients)
        optimizer_run_step(t->optimizer, params, clip);
    TRY(zero_all_gather(t->averaging.zero, params, t->device, t->comm));
    ema_update(t->ema, params, update->step + 1, clip);
    return OK;
}

/* Measures the averaged gradients, which every rank has completely, and updates the parameters, unless a loss, a
 * gradient or a running statistic is not finite in this update or an earlier one (found_inf). */
static status decide_and_update(struct trainer *t, const struct update *update) {
    struct params *params = &t->model->params, *buffers = &t->model->buffers;
    const struct device_ops *ops = device_ops(t->device);
    struct device_results *results = t->memory.results;
    bool checks_last = !update->has_norm && clamp_limit(t, update) <= 0; /* clamp hides infinite gradients */
    if (update->has_norm)
        ops->clip_norm(t->device, params->gradients, t->averaging.norm_ranges, t->averaging.ranges.count,
                       (float)t->config->train.clip_grad_norm, update->loss_scale, &results->norm);
    else if (!checks_last)
        ops->check_finite(t->device, params->gradients, params->trained, &results->nonfinite[NONFINITE_GRADIENTS]);
    clamp_gradients(t, update);
    ops->skip_if_nonfinite(t->device, params->gradients, checks_last ? params->trained : 0, &results->sums.loss,
                           &results->norm.norm, &results->nonfinite[NONFINITE_GRADIENTS], 2, &results->found_inf,
                           &results->norm.clip);
    TRY(update_parameters(t, update));
    if (buffers->total)
        ops->optimizers->save_or_restore(t->device, &results->norm.clip, buffers->values, t->memory.saved_buffers,
                                         buffers->total);
    return OK;
}

/* ---- enqueue ---- */

static float loss_scale(const struct trainer *t) {
    const struct train_config *c = &t->config->train;
    if (c->precision != TRAIN_FLOAT16) return 1;
    return (float)loss_scale_value(&c->grad_scaler, &t->state->counters.loss_scale);
}

static bool is_norm_needed(const struct trainer *t) {
    int64_t every = t->config->train.log_every;
    return t->config->train.clip_grad_norm > 0 || (every > 0 && (t->state->counters.step + 1) % every == 0);
}

/* Whether the next step compares hashes of the state (train.check_state_every). */
static bool checks_state(const struct trainer *t) {
    int64_t every = t->config->train.check_state_every;
    return every > 0 && t->state->counters.step % every == 0 && comm_world_size(t->comm) > 1;
}

/* Whether the next step is computed twice (train.check_compute). */
static bool is_checked(struct trainer *t) { return t->compute_check.is_on && compute_check_is_due(t); }

static bool is_traced(const struct trainer *t) { return t->trace && trace_is_due(t->trace, t->state->counters.step); }

/* Whether this rank decides about the next update without the others, which needs no work of the host before the
 * update: a hash of the state, a comparison of computations, a trace, a fault of a test, the first copy of the moving
 * average. */
static bool decides_alone(struct trainer *t) {
    const struct averaging_hooks *hooks = t->averaging.hooks;
    bool is_first_average = t->ema && t->state->counters.step == 0;
    if (t->optimizer->lbfgs || t->steps.flip.is_set || is_first_average || checks_state(t) || is_checked(t) ||
        is_traced(t))
        return false;
    return hooks->decides_alone && hooks->decides_alone(t);
}

/* A rank that decides alone needs the norm of the log itself if there are others, since all must do the same. */
static struct update new_update(struct trainer *t, bool is_alone, const struct schedule_progress *progress) {
    bool needs_norm = is_norm_needed(t);
    bool is_wanted = t->config->train.clip_grad_norm > 0 || t->outputs.metrics || comm_world_size(t->comm) > 1;
    return (struct update){.first = step_position(t),
                           .batches = count_batches(t),
                           .step = t->state->counters.step,
                           .loss_scale = loss_scale(t),
                           .lr = progress_lr(t, progress),
                           .decides_alone = is_alone,
                           .needs_norm = needs_norm,
                           .has_norm = is_alone && needs_norm && is_wanted,
                           .grad_norm = NAN,
                           .checks_state = checks_state(t),
                           .is_checked = is_checked(t),
                           .is_traced = is_traced(t)};
}

/* Injects the fault of a test. */
static status flip_bit(struct trainer *t) {
    if (!t->steps.flip.is_set || t->steps.flip.step != t->state->counters.step) return OK;
    TRY(state_map(t->state));
    save_release(t);
    agreement_fault(&t->steps.flip, t->state, comm_rank(t->comm));
    return state_unmap(t->state, true);
}

/* Saves the running statistics, which the device or the host restores after a step that is not applied, resets the
 * results, and uploads the constants of the update. found_inf and the saved statistics are kept over consecutive
 * pending steps. */
static status prepare(struct trainer *t, const struct update *update, const struct schedule_progress *progress,
                      bool is_first) {
    const struct params *buffers = &t->model->buffers;
    size_t size = update->decides_alone ? offsetof(struct device_results, found_inf) : sizeof *t->memory.results;
    TRY(flip_bit(t));
    if (is_first && buffers->total)
        device_ops(t->device)->copy(t->device, F32(buffers->values), F32(t->memory.saved_buffers), buffers->total);
    device_upload(t->device, t->memory.results, &(struct device_results){.norm.clip = 1 / update->loss_scale}, size);
    optimizer_plan_step(t->optimizer, update->step + 1, &t->config->schedule, progress);
    return OK;
}

/* Updates the counters that the next step depends on. */
static void count_applied(struct trainer *t) {
    struct counters *c = &t->state->counters;
    c->step++;
    if (t->config->train.precision == TRAIN_FLOAT16)
        loss_scale_update(&t->config->train.grad_scaler, &c->loss_scale, false);
}

/* Enqueues the next step up to its update, with the update if this rank decides alone; then the counters are updated as
 * if the step were finite. With a [slot] its results are copied while the next step is enqueued; -1: none. */
static status enqueue(struct trainer *t, bool is_alone, int slot, struct pending_step *out) {
    struct schedule_progress progress = progress_of(t);
    *out = (struct pending_step){.slot = slot,
                                 .scale_before = t->state->counters.loss_scale,
                                 .start = clock_seconds(),
                                 .update = new_update(t, is_alone, &progress)};
    t->steps.last = out->update.first;
    TRY(prepare(t, &out->update, &progress, !t->steps.pending.is_pending));
    if (out->update.is_traced) TRY(trace_begin(t));
    TRY(run_micro_batches(t, &out->update));
    if (out->update.is_traced) TRY(trace_gradients(t));
    if (!is_alone) return measure(t, &out->update);
    if (slot >= 0) device_download_begin(t->device, slot, t->memory.results, sizeof *t->memory.results);
    count_applied(t);
    return OK;
}

/* ---- the control all-reduce: a few numbers of every rank are summed, so that all ranks decide the same in the same
 * step. One array of float64: the counts in the order of enum count, then the numbers of a hash of the state ---- */

enum count {
    COUNT_ROWS,
    COUNT_STOPS,
    COUNT_NONFINITE_LOSSES,
    COUNT_NONFINITE_GRADIENTS,
    COUNT_NONFINITE_STATISTICS,
    COUNT_SKIPS,
    COUNT_DIFFERENCES,
    COUNT_SAVES,
    COUNTS
};
_Static_assert(COUNTS + AGREEMENT_NUMBERS <= ELASTIC_MAX_COUNTS, "elastic_all_reduce_sums reduces all of them");

static status put_hash(struct trainer *t, double *numbers) {
    TRY(state_map(t->state));
    agreement_put(agreement_hash(t->state, false), numbers);
    return state_unmap(t->state, false);
}

/* Sums the losses and [counts] (count) over the ranks. */
static status sum(struct trainer *t, struct loss_sums *sums, double *counts, size_t count) {
    enum { SUMS = sizeof *sums / sizeof(double) };
    double values[SUMS + COUNTS + AGREEMENT_NUMBERS];
    if (t->averaging.hooks->sum) return t->averaging.hooks->sum(t, sums, counts, count);
    memcpy(values, sums, sizeof *sums);
    memcpy(values + SUMS, counts, count * sizeof *counts);
    TRY(comm_all_reduce(t->comm, values, SUMS + count, COMM_FLOAT64, COMM_SUM));
    memcpy(sums, values, sizeof *sums);
    memcpy(counts, values + SUMS, count * sizeof *counts);
    return OK;
}

/* Sums the measured values of [update] over all ranks. STATUS_DIVERGED: the states of the ranks differ. All ranks. */
static status agree(struct trainer *t, struct update *update) {
    double counts[COUNTS + AGREEMENT_NUMBERS], *hash = counts + COUNTS;
    size_t count = COUNTS + (update->checks_state ? AGREEMENT_NUMBERS : 0);
    counts[COUNT_ROWS] = update->rows;
    counts[COUNT_STOPS] = stop_is_requested() ? 1 : 0;
    counts[COUNT_NONFINITE_LOSSES] = isfinite(update->sums.loss) ? 0 : 1;
    counts[COUNT_NONFINITE_GRADIENTS] = update->nonfinite_gradients;
    counts[COUNT_NONFINITE_STATISTICS] = update->nonfinite_statistics;
    counts[COUNT_SKIPS] = update->skips;
    counts[COUNT_DIFFERENCES] = t->compute_check.finding.is_found ? 1 : 0;
    counts[COUNT_SAVES] = save_is_overdue(t) ? 1 : 0;
    if (update->checks_state) TRY(put_hash(t, hash));
    TRY(sum(t, &update->sums, counts, count));
    update->rows = counts[COUNT_ROWS];
    update->stops = counts[COUNT_STOPS];
    update->nonfinite_losses = counts[COUNT_NONFINITE_LOSSES] + (isfinite(update->sums.loss) ? 0 : 1);
    update->nonfinite_gradients = counts[COUNT_NONFINITE_GRADIENTS];
    update->nonfinite_statistics = counts[COUNT_NONFINITE_STATISTICS];
    update->skips = counts[COUNT_SKIPS];
    if (counts[COUNT_SAVES] > 0) save_request(t);
    if (counts[COUNT_DIFFERENCES] > 0) return compute_check_report(t, update->step);
    if (!update->checks_state || agreement_is_equal(hash, comm_world_size(t->comm))) return OK;
    return rank_sync_verify(t, false);
}

/* ---- the line of the step: the sums of an epoch include its applied steps only ---- */

static void count_step(struct counters *c, const struct update *update) {
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

static status write_metrics(struct trainer *t, const struct update *update, double loss) {
    metrics_begin(t->outputs.metrics, METRICS_STEP);
    metrics_int(t->outputs.metrics, "epoch", t->state->counters.epoch);
    metrics_step(t->outputs.metrics, update->step + 1);
    metrics_real(t->outputs.metrics, "loss", loss);
    metrics_rate(t->outputs.metrics, "lr", update->lr);
    metrics_real(t->outputs.metrics, "grad_norm", update->grad_norm);
    if (t->config->train.precision == TRAIN_FLOAT16)
        metrics_real(t->outputs.metrics, "loss_scale", (double)update->loss_scale);
    metrics_int(t->outputs.metrics, "samples", (int64_t)update->rows);
    metrics_real(t->outputs.metrics, "seconds", update->seconds);
    return metrics_end(t->outputs.metrics);
}

/* Adds an applied step to the counters, the progress line and metrics.jsonl. Only rank 0 prints and writes. */
static status log_step(struct trainer *t, const struct update *update) {
    struct counters *c = &t->state->counters;
    int64_t every = t->config->train.log_every, step = update->step + 1;
    count_step(c, update);
    activity_step(t->activity, step, update->seconds);
    if (t->outputs.metrics) activity_phase(t->activity, ACTIVITY_LOGGING);
    double loss = update->sums.loss / update->sums.count;
    double elapsed = c->epoch_seconds > 0 ? c->epoch_seconds : update->seconds;
    double done = (double)step / (double)progress_total_steps(t);
    report_step(&t->outputs.report, done, c->epoch + 1, step, loss, c->epoch_samples / elapsed);
    if (t->outputs.metrics && every > 0 && step % every == 0) TRY(write_metrics(t, update, loss));
    return ledger_step(t, update);
}

/* ---- finish ---- */

/* The host waits until the work of a step in [stream] is done; with NCCL also on the other ranks. */
static status wait_for_step(struct trainer *t, void *stream) {
    return t->averaging.reducer ? reducer_wait(t->averaging.reducer, stream) : OK;
}

/* Waits for the device; the only place of a step that does. */
static status read_results(struct trainer *t, struct pending_step *step) {
    struct update *update = &step->update;
    struct device_results copy;
    const struct device_results *results = &copy;
    bool is_ahead = step->slot >= 0;
    TRY(wait_for_step(t, is_ahead ? device_download_stream(t->device, step->slot) : device_stream(t->device)));
    if (is_ahead)
        TRY(device_download_end(t->device, step->slot, &copy, sizeof copy));
    else if (device_is_host(t->device))
        results = t->memory.results; /* a copy would have to wait until all that the update wrote is in the cache */
    else
        TRY(device_download(t->device, &copy, t->memory.results, sizeof copy));
    update->sums = results->sums;
    update->nonfinite_gradients = results->nonfinite[NONFINITE_GRADIENTS];
    update->nonfinite_statistics = results->nonfinite[NONFINITE_STATISTICS];
    update->skips = results->found_inf > 0 ? 1 : 0;
    if (!update->has_norm) return OK;
    update->grad_norm = (double)results->norm.norm;
    update->nonfinite_gradients = isfinite(results->norm.norm) ? 0 : 1;
    return OK;
}

/* The array that is not finite; NULL: none. */
static const char *what_is_nonfinite(const struct update *update) {
    if (update->nonfinite_losses > 0) return "the loss is";
    if (update->nonfinite_gradients > 0) return "gradients are";
    return update->nonfinite_statistics > 0 ? "running statistics are" : NULL;
}

/* Whether the devices of all ranks applied or skipped the update, as [is_finite] requires. */
static bool is_decision_right(const struct trainer *t, const struct update *update, bool is_finite) {
    return !update->decides_alone || update->skips == (is_finite ? 0 : comm_world_size(t->comm));
}

/* Reports that the decisions of the devices differ. All ranks, because all have the same results. */
static status report_difference(struct trainer *t, const struct update *update) {
    int world = comm_world_size(t->comm);
    TRY(rank_sync_verify(t, false));
    if (update->skips > 0 && update->skips < world)
        return status_new(STATUS_DIVERGED,
                          "%g of %d ranks skipped step %lld, since a number in it is not finite there, and the others "
                          "did not, although all have the same gradients. Memory, a processor or the network failed; "
                          "nothing was saved after it, so the same command continues from the newest checkpoint",
                          update->skips, world, (long long)update->step + 1);
    return status_new(STATUS_BUG, "the device and the ranks do not agree whether step %lld is finite",
                      (long long)update->step + 1);
}

/* Handles a non-finite step, which is not applied. */
static status recover(struct trainer *t, const struct update *update, const char *what, struct step_result *result) {
    if (recovery_is_overflow(t, update->nonfinite_losses == 0 && update->nonfinite_statistics == 0))
        return recovery_overflow(t);
    activity_phase(t->activity, ACTIVITY_LOADING); /* a roll-back reads a checkpoint */
    bool needs_roll_back = false;
    TRY(recovery_run(t, &(struct bad_step){update->first, update->batches, what}, &needs_roll_back));
    if (needs_roll_back) result->outcome = STEP_ROLL_BACK;
    return OK;
}

/* The update, after all ranks have decided to make it. */
static status apply(struct trainer *t, const struct update *update) {
    activity_phase(t->activity, ACTIVITY_UPDATING);
    TRY(update_parameters(t, update));
    if (update->is_traced) TRY(trace_write(t, update));
    t->micro_batches.has_zero_gradients = t->averaging.hooks->keeps_gradients;
    TRY(device_status(t->device));
    count_applied(t);
    return OK;
}

static status finish(struct trainer *t, struct pending_step *step, struct step_result *result);

static status run_and_wait(struct trainer *t, bool is_alone, struct step_result *result) {
    struct pending_step step;
    TRY(enqueue(t, is_alone, -1, &step));
    return finish(t, &step, result);
}

/* Returns to the start of [step], whose update and all since the device skipped, and runs it again. */
static status repeat(struct trainer *t, const struct pending_step *step, struct step_result *result) {
    struct counters *c = &t->state->counters;
    bool has_next = t->steps.pending.is_pending;
    t->steps.pending.is_pending = false;
    TRY(wait_for_step(t, device_stream(t->device)));
    TRY(device_wait(t->device));
    c->batch = step->update.first.batch;
    c->step = step->update.step;
    c->loss_scale = step->scale_before;
    TRY(loader_seek(t->loader, c->epoch, (size_t)c->batch));
    if (has_next) result->outcome = STEP_REPEATED;
    return run_and_wait(t, false, result);
}

static void set_duration(struct trainer *t, struct pending_step *step) {
    double now = clock_seconds();
    step->update.seconds = now - (step->start > t->steps.completed_at ? step->start : t->steps.completed_at);
    t->steps.completed_at = now;
}

/* Results, agreement, and what follows from it. */
static status finish(struct trainer *t, struct pending_step *step, struct step_result *result) {
    struct update *update = &step->update;
    TRY(read_results(t, step));
    TRY(agree(t, update));
    result->must_stop = result->must_stop || update->stops > 0;
    const char *what = what_is_nonfinite(update);
    if (!is_decision_right(t, update, what == NULL)) return report_difference(t, update);
    result->is_applied = what == NULL;
    if (what) return update->decides_alone ? repeat(t, step, result) : recover(t, update, what, result);
    if (!update->decides_alone) TRY(apply(t, update));
    set_duration(t, step);
    return log_step(t, update);
}

/* ---- functions of step.h ---- */

status step_open(struct trainer *t) {
    size_t rows = dataset_info(t->dataset)->train_rows;
    int world = comm_world_size(t->comm);
    TRY(compute_check_open(t));
    t->micro_batches.all_sum = (struct all_sum){sum_over_ranks, t};
    if (world == 1 || !loss_compares_rows(t->loss, t->loss_config)) return OK;
    TRY(row_gather_create(t->comm, comm_gpu(t->comm), t->batch, &t->micro_batches.gather));
    for (int r = 0; r < world; r++)
        row_gather_set_rows(t->micro_batches.gather, r, sampler_own_length(t->sampler, rows, r, world));
    return OK;
}

void step_close(struct trainer *t) {
    row_gather_destroy(t->micro_batches.gather);
    compute_check_close(t);
}

status step_finish(struct trainer *t, struct step_result *result) {
    struct pending_step step;
    if (!t->steps.pending.is_pending) return OK;
    step = t->steps.pending;
    t->steps.pending.is_pending = false;
    return finish(t, &step, result);
}

status step_run(struct trainer *t, struct step_result *result) {
    struct pending_step last, next;
    bool is_alone = decides_alone(t), is_ahead = is_alone && t->recordings;
    if (!is_ahead) {
        TRY(step_finish(t, result));
        return result->outcome == STEP_DONE ? run_and_wait(t, is_alone, result) : OK;
    }
    last = t->steps.pending;
    TRY(enqueue(t, true, last.is_pending ? 1 - last.slot : 0, &next));
    next.is_pending = true;
    t->steps.pending = next;
    if (last.is_pending) TRY(finish(t, &last, result));
    result->is_applied = true;
    return OK;
}

status step_skip(struct trainer *t, struct step_result *result) {
    TRY(step_finish(t, result));
    result->is_applied = false;
    if (result->outcome != STEP_DONE) return OK;
    t->state->counters.batch += (int64_t)count_batches(t);
    t->state->counters.skipped++;
    return loader_seek(t->loader, t->state->counters.epoch, (size_t)t->state->counters.batch);
}
