/* The loop: steps, evaluations and saves. */
#include "train/loop/loop.h"

#include "train/loop/epoch.h"
#include "train/loop/ledger.h"
#include "train/loop/progress.h"
#include "train/loop/rank_sync.h"
#include "train/loop/recovery.h"
#include "train/loop/save.h"
#include "train/loop/step.h"

/* The same on all ranks. */
enum loop_state { LOOP_RUNNING, LOOP_COMPLETE, LOOP_STOPPED };

/* Waits for a pending save, then loads the newest checkpoint. */
static status roll_back(struct trainer *t) {
    struct data_position written;
    TRY(save_complete(t, &written));
    TRY(recovery_roll_back(t, written));
    save_mark_saved(t);
    return OK;
}

/* Saves by [function]: save_first, save_best, save_if_valid, save_before_evaluation or save_last. Rolls back
 * (*has_rolled_back) when a parameter is not finite. */
static status save(struct trainer *t, status (*function)(struct trainer *, const char **), bool *has_rolled_back) {
    const char *nonfinite;
    TRY(function(t, &nonfinite));
    *has_rolled_back = nonfinite != NULL;
    if (!nonfinite) return OK;
    TRY(recovery_of_parameter(t, nonfinite, t->steps.last));
    return roll_back(t);
}

/* Stops on request, after a save. */
static status stop(struct trainer *t, enum loop_state *state) {
    bool has_rolled_back;
    *state = LOOP_STOPPED;
    return save(t, save_last, &has_rolled_back);
}

static bool is_epoch_end(const struct trainer *t) {
    return (size_t)t->state->counters.batch == loader_batches(t->loader);
}

/* A run whose evaluation was pending may be beyond its end, if it was made shorter since. */
static bool is_last(const struct trainer *t) {
    const struct counters *c = &t->state->counters;
    if (t->config->train.epochs == SCHEMA_NO_INT) return c->step >= t->config->train.steps;
    return is_epoch_end(t) && c->epoch + 1 >= t->config->train.epochs;
}

/* Whether the run stops here (--stop-after). */
static bool is_stop(const struct trainer *t) { return t->stop_after >= 0 && t->state->counters.step >= t->stop_after; }

/* Runs a step; completes it if the state is needed after it. */
static status take_step(struct trainer *t, struct step_result *result) {
    TRY(recovery_skips(t, step_position(t)) ? step_skip(t, result) : step_run(t, result));
    if (result->outcome != STEP_DONE) return OK;
    bool is_needed = result->must_stop || is_epoch_end(t) || is_last(t) || is_stop(t) || ledger_is_due(t) ||
                     save_is_due(t, false, result->is_applied);
    return is_needed ? step_finish(t, result) : OK;
}

/* The end of an epoch, or of the run. After a stop request before or during the evaluation counters.pending_end remains
 * set and is saved, so that a resume continues here. */
static status finish_epoch(struct trainer *t, bool is_applied, bool *must_stop, bool *has_rolled_back) {
    struct counters *c = &t->state->counters;
    bool ends_epoch = is_epoch_end(t), ends_run = is_last(t);
    if (epoch_evaluates(t, ends_run)) {
        c->pending_end = ends_epoch ? PENDING_END_OF_EPOCH : PENDING_END_OF_RUN;
        if (*must_stop) return OK;
        if (ends_run || save_is_due(t, ends_epoch, is_applied)) TRY(save(t, save_before_evaluation, has_rolled_back));
        if (*has_rolled_back) return OK;
        TRY(epoch_evaluate(t, must_stop));
        if (*must_stop) return OK;
        c->pending_end = PENDING_NONE;
    }
    save_mark_unsaved(t); /* a state saved before does not contain the result of the evaluation */
    return epoch_finish(t, ends_epoch, ends_run);
}

/* Saves the last state; the run continues if it rolls back instead. */
static status complete_run(struct trainer *t, bool *has_rolled_back, enum loop_state *state) {
    TRY(save(t, save_last, has_rolled_back));
    *state = *has_rolled_back ? LOOP_RUNNING : LOOP_COMPLETE;
    return OK;
}

/* Does what is due after a step. [is_applied]: it changed the parameters. */
static status after_step(struct trainer *t, bool is_applied, bool must_stop, enum loop_state *state) {
    struct counters *c = &t->state->counters;
    bool ends_epoch = is_epoch_end(t), ends_run = is_last(t), has_rolled_back = false;
    if (ends_epoch && !ends_run) TRY(save_decide(t));
    if (ends_epoch || ends_run) TRY(finish_epoch(t, is_applied, &must_stop, &has_rolled_back));
    if (has_rolled_back) return OK;
    if (c->pending_end) return stop(t, state);
    bool is_best = (ends_epoch || ends_run) && t->epoch.is_best && t->config->checkpoint.best.metric;
    if (is_best) TRY(save(t, save_best, &has_rolled_back));
    if (has_rolled_back) return OK;
    if (ends_epoch) TRY(save_best_if_due(t));
    ends_run = ends_run || (ends_epoch && progress_stops_early(t->config, c));
    bool is_due = save_is_due(t, ends_epoch, is_applied);
    if (is_due && !ends_run && !must_stop) TRY(save(t, save_if_valid, &has_rolled_back));
    if (ends_run && !has_rolled_back) TRY(complete_run(t, &has_rolled_back, state));
    if (*state == LOOP_COMPLETE) return OK;
    if (must_stop) return stop(t, state);
    return ends_epoch && !has_rolled_back ? rank_sync_seek(t, c->epoch, 0) : OK;
}

/* Runs a step and does what is due after it. */
static status advance(struct trainer *t, enum loop_state *state) {
    struct step_result result = {0};
    TRY(take_step(t, &result));
    if (result.outcome == STEP_ROLL_BACK) TRY(roll_back(t));
    if (result.outcome == STEP_DONE) return after_step(t, result.is_applied, result.must_stop, state);
    return result.must_stop ? stop(t, state) : OK;
}

/* Does the evaluation that an earlier process did not finish. None is due here if the run was extended since. */
static status resume_pending_end(struct trainer *t, enum loop_state *state) {
    struct counters *c = &t->state->counters;
    bool is_due = c->pending_end && (is_epoch_end(t) || is_last(t));
    c->pending_end = PENDING_NONE;
    return is_due ? after_step(t, true, false, state) : OK;
}

/* The position of a state must be before the end of an epoch, unless that end is pending. */
static status check_position(const struct trainer *t) {
    const struct counters *c = &t->state->counters;
    uint64_t batches = loader_batches(t->loader), batch = (uint64_t)c->batch;
    if (batch < batches || (batch == batches && c->pending_end)) return OK;
    return status_new(STATUS_DATA,
                      "the checkpoint was saved after batch %llu of an epoch, which has %llu here: it belongs to a run "
                      "with other batches; start from a checkpoint of the end of an epoch",
                      (unsigned long long)batch, (unsigned long long)batches);
}

static status run_all(struct trainer *t, enum loop_state *state) {
    const struct counters *c = &t->state->counters;
    bool is_complete = progress_is_complete(t->config, c), has_rolled_back;
    TRY(check_position(t));
    TRY(save(t, save_first, &has_rolled_back));
    TRY(rank_sync_seek(t, c->epoch, (size_t)c->batch));
    if (is_complete) return save(t, save_last, &has_rolled_back);
    while (*state == LOOP_RUNNING) {
        if (c->pending_end)
            TRY(resume_pending_end(t, state));
        else
            TRY(is_stop(t) ? stop(t, state) : advance(t, state));
    }
    return OK;
}

status loop_run(struct trainer *t, bool is_resumed, bool *is_stopped) {
    enum loop_state state = LOOP_RUNNING;
    report_start(&t->outputs.report, progress_fraction(t));
    save_open(t, is_resumed);
    TRY(step_open(t));
    TRY(recovery_open(t));
    status s = recordings_agree(t->recordings); /* on the addresses after the dry run */
    if (!s) s = run_all(t, &state);
    recovery_close(t);
    *is_stopped = state == LOOP_STOPPED;
    return s;
}
