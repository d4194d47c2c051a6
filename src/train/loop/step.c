/* After a non-finite step the device skips the update of that step and of the step enqueued after it. The host then
 * returns to the start of that step and runs it again synchronously, so that diagnosis and recovery are in one place.
 * Nothing is allocated here. */
#include "train/loop/step.h"

#include <math.h>

#include "base/clock.h"
#include "train/loop/averaging/averaging.h"
#include "train/loop/control.h"
#include "train/loop/micro_batch.h"
#include "train/loop/progress.h"
#include "train/loop/rank_sync.h"
#include "train/loop/recovery.h"
#include "train/loop/step_log.h"

static bool can_enqueue_ahead(const struct trainer *t) {
    const struct averaging *method = t->averaging.method;
    return t->recordings && method->can_update_on_device && method->can_update_on_device(t);
}

status step_open(struct trainer *t) {
    if (!fault_flip_read(&t->steps.flip))
        return status_new(STATUS_USAGE, "DDPTRAIN_FAULT_FLIP: expected RANK:STEP:BIT");
    TRY(micro_batches_open(t));
    t->steps.enqueues_ahead = can_enqueue_ahead(t);
    return OK;
}

struct data_position step_position(const struct trainer *t) {
    return (struct data_position){t->state->counters.epoch, t->state->counters.batch};
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

static struct update new_update(const struct trainer *t, bool is_device_update) {
    struct schedule_progress progress = progress_of(t);
    bool needs_norm = is_norm_needed(t);
    return (struct update){.first = step_position(t),
                           .step = t->state->counters.step,
                           .loss_scale = loss_scale(t),
                           .lr = progress_lr(t),
                           .momentum = schedule_momentum(&t->config->schedule, &progress),
                           .is_device_update = is_device_update,
                           .needs_norm = needs_norm,
                           .has_norm = is_device_update && needs_norm,
                           .grad_norm = NAN,
                           .checks_state = control_checks_state(t)};
}

/* Injects the fault of a test. */
static status flip_bit(struct trainer *t) {
    if (!t->steps.flip.is_set || t->steps.flip.step != t->state->counters.step) return OK;
    TRY(state_map(t->state));
    agreement_fault(&t->steps.flip, t->state, comm_rank(t->comm));
    return state_unmap(t->state, true);
}

/* Saves the running statistics, which the host or the device restores after a step that is not applied, and resets the
 * results. found_inf and the saved statistics of the device are kept over consecutive pending steps. */
static status prepare(struct trainer *t, const struct update *update, bool is_first) {
    const struct params *buffers = &t->model->buffers;
    const struct averaging *method = t->averaging.method;
    size_t size = update->is_device_update ? offsetof(struct device_results, found_inf) : sizeof *t->memory.results;
    if (update->is_device_update && is_first && buffers->total)
        device_ops(t->device)->copy(t->device, buffers->values, t->memory.saved_buffers, buffers->total);
    if (!update->is_device_update) {
        TRY(flip_bit(t));
        recovery_prepare(t);
    }
    device_upload(t->device, t->memory.results, &(struct device_results){.norm.clip = 1 / update->loss_scale}, size);
    if (update->is_device_update)
        optimizer_plan_step(t->optimizer, update->step + 1, progress_rate, t, update->momentum);
    if (method->start) method->start(t, update);
    return OK;
}

/* clip_grad_value_: after the norm and the check for non-finite numbers, as with GradScaler.unscale_. */
static void clamp_gradients(struct trainer *t, const struct update *update) {
    const struct params *params = &t->model->params;
    float limit = (float)t->config->train.clip_grad_value * update->loss_scale;
    if (limit <= 0 || !t->averaging.method->keeps_gradients) return;
    device_ops(t->device)->optimizers->clamp(t->device, limit, params->gradients, params->trained);
}

static status measure(struct trainer *t, struct update *update) {
    const struct params *buffers = &t->model->buffers;
    device_ops(t->device)->check_finite(t->device, buffers->values, buffers->total,
                                        &t->memory.results->nonfinite[NONFINITE_STATISTICS]);
    TRY(t->averaging.method->measure(t, update));
    clamp_gradients(t, update);
    return OK;
}

/* Updates the counters that the next step depends on. */
static void count_applied(struct trainer *t) {
    struct counters *c = &t->state->counters;
    c->step++;
    if (t->config->train.precision == TRAIN_FLOAT16)
        loss_scale_update(&t->config->train.grad_scaler, &c->loss_scale, false);
}

/* If the device makes the update, its results are copied asynchronously, and the counters are updated as if the step
 * were finite. */
static status step_enqueue(struct trainer *t, bool is_device_update, struct pending_step *out) {
    const struct pending_step *last = &t->steps.pending;
    *out = (struct pending_step){.is_pending = true,
                                 .slot = last->is_pending ? 1 - last->slot : 0,
                                 .scale_before = t->state->counters.loss_scale,
                                 .start = clock_seconds(),
                                 .update = new_update(t, is_device_update)};
    t->steps.last = out->update.first;
    TRY(prepare(t, &out->update, !last->is_pending));
    TRY(t->averaging.method->run(t, &out->update)); /* load, forward, backward, reduce */
    if (!is_device_update) return measure(t, &out->update);
    device_download_begin(t->device, out->slot, t->memory.results, sizeof *t->memory.results);
    count_applied(t);
    return OK;
}

/* ---- complete ---- */

/* Waits for the device; the only place of a step that does. */
static status read_results(struct trainer *t, struct pending_step *step, struct device_results *results) {
    const struct averaging *method = t->averaging.method;
    struct update *update = &step->update;
    void *stream = update->is_device_update ? device_download_stream(t->device, step->slot) : device_stream(t->device);
    if (method->wait) TRY(method->wait(t, stream));
    TRY(update->is_device_update ? device_download_end(t->device, step->slot, results, sizeof *results)
                                 : device_download(t->device, results, t->memory.results, sizeof *results));
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
    return !update->is_device_update || update->skips == (is_finite ? 0 : comm_world_size(t->comm));
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

/* Makes the update. */
static status apply(struct trainer *t, const struct update *update) {
    const struct averaging *method = t->averaging.method;
    activity_phase(t->activity, ACTIVITY_UPDATING);
    if (method->update) TRY(method->update(t, update));
    micro_batches_applied(t);
    ema_update(t->ema, &t->model->params, update->step + 1, &t->memory.results->norm.clip);
    TRY(device_status(t->device));
    count_applied(t);
    return OK;
}

static status step_complete(struct trainer *t, struct pending_step *step, struct step_result *result);

static status run_and_wait(struct trainer *t, struct step_result *result) {
    struct pending_step step;
    TRY(step_enqueue(t, false, &step));
    return step_complete(t, &step, result);
}

/* Returns to the start of [step] and runs it again; the device skipped its update and all since. */
static status repeat(struct trainer *t, const struct pending_step *step, struct step_result *result) {
    struct counters *c = &t->state->counters;
    const struct averaging *method = t->averaging.method;
    t->steps.pending.is_pending = false;
    if (method->wait) TRY(method->wait(t, device_stream(t->device)));
    TRY(device_wait(t->device));
    c->batch = step->update.first.batch;
    c->step = step->update.step;
    c->loss_scale = step->scale_before;
    TRY(loader_seek(t->loader, c->epoch, (size_t)c->batch));
    result->outcome = STEP_REPEATED;
    return run_and_wait(t, result);
}

static void set_duration(struct trainer *t, struct pending_step *step) {
    double now = clock_seconds();
    step->update.seconds = now - (step->start > t->steps.completed_at ? step->start : t->steps.completed_at);
    t->steps.completed_at = now;
}

static status step_complete(struct trainer *t, struct pending_step *step, struct step_result *result) {
    struct update *update = &step->update;
    struct device_results results;
    TRY(read_results(t, step, &results));
    TRY(control_all_reduce(t, update));
    result->must_stop = result->must_stop || update->stops > 0;
    const char *what = what_is_nonfinite(update);
    if (!is_decision_right(t, update, what == NULL)) return report_difference(t, update);
    if (what) return update->is_device_update ? repeat(t, step, result) : recover(t, update, what, result);
    if (!update->is_device_update) TRY(apply(t, update));
    set_duration(t, step);
    return step_log_write(t, update);
}

/* ---- functions of step.h ---- */

/* Whether the host must have completed the last step before this one is enqueued: for a hash of the state, a fault of a
 * test, or the first copy of the moving average. */
static bool is_host_needed(const struct trainer *t) {
    bool is_first_average = t->ema && t->state->counters.step == 0;
    return !t->steps.enqueues_ahead || t->steps.flip.is_set || is_first_average || control_checks_state(t);
}

status step_finish(struct trainer *t, struct step_result *result) {
    struct pending_step step = t->steps.pending;
    t->steps.pending.is_pending = false;
    return step.is_pending ? step_complete(t, &step, result) : OK;
}

status step_run(struct trainer *t, struct step_result *result) {
    struct pending_step last = t->steps.pending, next;
    if (is_host_needed(t)) {
        TRY(step_finish(t, result));
        return result->outcome == STEP_DONE ? run_and_wait(t, result) : OK;
    }
    TRY(step_enqueue(t, true, &next));
    t->steps.pending = next;
    return last.is_pending ? step_complete(t, &last, result) : OK;
}

status step_skip(struct trainer *t, struct step_result *result) {
    TRY(step_finish(t, result));
    if (result->outcome != STEP_DONE) return OK;
    t->state->counters.batch += (int64_t)micro_batches_of_update(t);
    t->state->counters.skipped++;
    return loader_seek(t->loader, t->state->counters.epoch, (size_t)t->state->counters.batch);
}
