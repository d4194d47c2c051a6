/* The loop: steps, evaluations and saves. The metrics of an epoch are computed from the counters; an evaluation adds
 * its own. */
#include "train/loop/loop.h"

#include <math.h>

#include "base/clock.h"
#include "base/scoped.h"
#include "optim/schedule.h"
#include "train/loop/ledger.h"
#include "train/loop/progress.h"
#include "train/loop/rank_sync.h"
#include "train/loop/recovery.h"
#include "train/loop/save.h"
#include "train/loop/step.h"

/* ---- the end of an epoch: evaluation, best value, early stop, schedule, log ---- */

static bool is_accuracy_known(const struct trainer *t) { return t->loss->wants_classes; }

/* What an evaluation is of: the validation rows or the test rows. */
struct evaluated {
    struct loader *loader;
    struct evaluation *evaluation;
    struct recordings *recordings; /* NULL: its passes are not recorded */
    struct ema *average;           /* of the weights, which is evaluated instead; NULL: none */
};

struct work {
    const struct trainer *trainer;
    struct evaluation *evaluation;
    struct pass pass;
    struct batch batch; /* on the device */
};

static status run_pass(void *user) {
    const struct work *w = user;
    const struct trainer *t = w->trainer;
    const float *outputs = floats(model_forward(t->model, &w->pass, w->batch.inputs));
    evaluation_add_loss(w->evaluation, outputs, &w->batch);
    return zero_take_failure(t->averaging.zero);
}

/* Evaluates this rank's next batch, number [index], of the rows; the rank may have none left. */
static status evaluate_batch(struct trainer *t, const struct evaluated *e, size_t index) {
    struct batch batch, fed;
    TRY(feed_next(t->feed, e->loader, &batch, &fed));
    if (batch.rows == 0) {
        model_forward_without_rows(t->model);
        TRY(zero_wait(t->averaging.zero));
        return evaluation_add_no_rows(e->evaluation);
    }
    struct work work = {t, e->evaluation, trainer_pass(t, batch.rows, false), fed};
    work.pass.continues_rows = index > 0;
    struct recording_key key = {.rows = batch.rows, .continues = index > 0 && model_carries_state(t->model)};
    TRY(recordings_run(e->recordings, &key, run_pass, &work));
    TRY(zero_wait(t->averaging.zero));
    return evaluation_add_metrics(e->evaluation, model_output(t->model, fed.inputs), &batch);
}

/* Before each batch the ranks exchange whether one of them received a stop request. All ranks do it equally often,
 * although some may have one batch less. */
static status evaluate_batches(struct trainer *t, const struct evaluated *e, bool *must_stop) {
    size_t batches = loader_batches(e->loader);
    for (size_t i = 0; i < batches; i++) {
        activity_phase(t->activity, ACTIVITY_EVALUATING);
        TRY(rank_sync_stop_request(t, must_stop));
        if (*must_stop) return OK;
        report_evaluation(&t->outputs.report, progress_fraction(t), t->state->counters.epoch + 1, i, batches);
        TRY(evaluate_batch(t, e, i));
    }
    return OK;
}

/* Evaluates each row once over all ranks. */
static status evaluate(struct trainer *t, const struct evaluated *e, bool *must_stop,
                       struct evaluation_result *result) {
    activity_phase(t->activity, ACTIVITY_EVALUATING);
    TRY(rank_sync_buffers(t));
    status s = loader_seek(e->loader, 0, 0);
    save_release(t); /* the average and the weights change places */
    evaluation_start(e->evaluation);
    ema_swap(e->average, &t->model->params);
    if (!s) s = evaluate_batches(t, e, must_stop);
    ema_swap(e->average, &t->model->params);
    if (!s) s = device_status(t->device);
    if (!s) s = recordings_agree(t->recordings);
    return s || *must_stop ? s : evaluation_finish(e->evaluation, result);
}

status loop_evaluate_test(struct trainer *t, bool with_average, bool *must_stop) {
    struct evaluated test = {t->test.loader, t->test.evaluation, NULL, with_average ? t->ema : NULL};
    return evaluate(t, &test, must_stop, &t->test.result);
}

/* Evaluates into t->epoch.result. *must_stop is set, on all ranks in the same batch, when a rank received a stop
 * request: then there is no result, and the state is unchanged. STATUS_NOT_FINITE: the validation loss is not finite;
 * STATUS_DATA: it is not defined, because no target counts. */
static status evaluate_validation(struct trainer *t, bool *must_stop) {
    double start = clock_seconds();
    struct evaluated validation = {t->validation, t->evaluation, t->evaluations, t->ema};
    TRY(evaluate(t, &validation, must_stop, &t->epoch.result));
    if (*must_stop) return OK;
    t->epoch.evaluation_seconds = clock_seconds() - start;
    t->epoch.all_evaluation_seconds += t->epoch.evaluation_seconds;
    if (isfinite(t->epoch.result.loss)) return OK;
    const char *loss = t->epoch.result.without_targets;
    if (loss)
        return status_data("the validation loss%s%s%s is not defined: no target of the %lld validation row%s counts, "
                           "because each is the loss's ignore_index, is padding, or has the weight 0. Use other "
                           "validation rows (dataset.split, dataset.validation)",
                           *loss ? " '" : "", loss, *loss ? "'" : "", (long long)t->epoch.result.rows,
                           text_plural((uint64_t)t->epoch.result.rows, "s"));
    return status_new(STATUS_NOT_FINITE,
                      "the validation loss is not finite after epoch %lld; nothing was saved after the evaluation. Try "
                      "a smaller optimizer.lr or train.clip_grad_norm",
                      (long long)t->state->counters.epoch + 1);
}

bool loop_is_evaluated(const struct trainer *t, bool is_last) {
    int64_t every = t->config->train.evaluate_every;
    return t->validation && (is_last || (every > 0 && (t->state->counters.epoch + 1) % every == 0));
}

/* The metric of checkpoint.best; default: validation accuracy, else validation loss, else training loss. */
static struct monitor monitor_of_best(const struct trainer *t, const struct epoch_report *e) {
    if (t->config->checkpoint.best.metric) return t->config->checkpoint.best;
    bool by_accuracy = e->has_validation && is_accuracy_known(t);
    return (struct monitor){.metric = by_accuracy ? "val_accuracy" : e->has_validation ? "val_loss" : "train_loss"};
}

static void update_best(struct trainer *t, const struct epoch_report *e) {
    struct counters *c = &t->state->counters;
    struct monitor monitor = monitor_of_best(t, e);
    double value = monitor_value(monitor.metric, e, &t->epoch.result);
    t->epoch.value = value;
    t->epoch.is_best = monitor_is_better(&monitor, value, c->best_value, 0);
    if (!t->epoch.is_best) return;
    c->best_value = value;
    c->best_epoch = e->epoch;
}

/* As for the schedule, an evaluation that is done only because the run ends does not count, so that a longer run is
 * identical up to here. */
static void update_early_stop(struct trainer *t, const struct epoch_report *e) {
    struct counters *c = &t->state->counters;
    struct early_stop stop = early_stop_of(&t->config->train.early_stop);
    if (!stop.monitor.metric) return;
    double value = monitor_value(stop.monitor.metric, e, &t->epoch.result);
    bool is_better = monitor_is_better(&stop.monitor, value, c->early_stop_best, stop.min_delta);
    if (is_better) c->early_stop_best = value;
    c->early_stop_wait = is_better ? 0 : c->early_stop_wait + 1;
}

/* Passes the monitored value to the schedule, if this epoch has it. The same on all ranks. */
static void update_schedule(struct trainer *t, const struct epoch_report *e, bool is_whole) {
    const struct variant *schedule = &t->config->schedule;
    struct monitor monitor = {0};
    monitor.metric = schedule_monitor(schedule, &monitor.mode);
    if (!monitor.metric || !is_whole || isnan(e->train_loss)) return; /* NAN: it has no training loss */
    if (monitor_is_of_validation(monitor.metric) && !loop_is_evaluated(t, false)) return;
    schedule_update_plateau(schedule, &t->state->counters.plateau, monitor_value(monitor.metric, e, &t->epoch.result),
                            monitor_is_maximized(&monitor));
}

/* val_f1, ... */
static void log_evaluation(struct trainer *t) {
    const struct evaluation_result *r = &t->epoch.result;
    SCOPED_TEXT name = {0};
    for (size_t i = 0; i < r->metric_count; i++) {
        text_clear(&name);
        text_printf(&name, "val_%s", r->metrics[i].name);
        metrics_real(t->outputs.metrics, text_string(&name), r->metrics[i].value);
    }
    if (r->confusion) metrics_matrix(t->outputs.metrics, "val_confusion_matrix", r->confusion, r->classes, r->classes);
}

static status log_epoch(struct trainer *t, const struct epoch_report *e) {
    if (!t->outputs.metrics) return OK;
    activity_phase(t->activity, ACTIVITY_LOGGING);
    metrics_begin(t->outputs.metrics, METRICS_EPOCH);
    metrics_int(t->outputs.metrics, "epoch", e->epoch - 1);
    metrics_step(t->outputs.metrics, t->state->counters.step);
    metrics_real(t->outputs.metrics, "train_loss", e->train_loss);
    if (e->has_train_accuracy) metrics_real(t->outputs.metrics, "train_accuracy", e->train_accuracy);
    if (e->has_validation) {
        metrics_real(t->outputs.metrics, "val_loss", e->validation_loss);
        if (is_accuracy_known(t)) metrics_real(t->outputs.metrics, "val_accuracy", e->validation_accuracy);
        metrics_int(t->outputs.metrics, "val_rows", e->validation_rows);
        log_evaluation(t);
    }
    metrics_rate(t->outputs.metrics, "lr", e->lr);
    metrics_real(t->outputs.metrics, "samples_per_second", e->samples_per_second);
    if (!isnan(e->comm_hidden)) metrics_real(t->outputs.metrics, "comm_hidden", e->comm_hidden);
    return metrics_end(t->outputs.metrics);
}

/* Of the epoch, or the part of it since the start of this process. NAN: no communication, or elastic mode, which sums
 * after backward. */
static double hidden_comm_fraction(struct trainer *t) {
    if (!t->averaging.reducer) return NAN;
    struct reducer_times before = t->epoch.times;
    t->epoch.times = reducer_times(t->averaging.reducer);
    return reducer_hidden(before, t->epoch.times);
}

status loop_complete_epoch(struct trainer *t, bool is_whole, bool is_last) {
    struct counters *c = &t->state->counters;
    struct schedule_progress progress = progress_of(t);
    struct epoch_report e = {.epoch = c->epoch + 1,
                             .train_loss = c->epoch_count > 0 ? c->epoch_loss / c->epoch_count : NAN,
                             .has_steps = c->epoch_samples > 0,
                             .has_train_accuracy = is_accuracy_known(t) && c->epoch_scored > 0,
                             .train_accuracy = c->epoch_correct / c->epoch_scored,
                             .has_validation = loop_is_evaluated(t, is_last),
                             .samples_per_second = c->epoch_samples / (c->epoch_seconds > 0 ? c->epoch_seconds : 1e-9),
                             .lr = progress_lr(t, &progress),
                             .comm_hidden = hidden_comm_fraction(t)};
    if (e.has_validation) {
        e.validation_rows = t->epoch.result.rows;
        e.validation_loss = t->epoch.result.loss;
        e.validation_accuracy = t->epoch.result.accuracy;
    }
    t->epoch.has_ended = true;
    t->epoch.is_best = false;
    t->epoch.value = NAN;
    if (e.has_validation || !t->validation) {
        update_best(t, &e);
        if (is_whole && (!t->validation || loop_is_evaluated(t, false))) update_early_stop(t, &e);
    }
    update_schedule(t, &e, is_whole);
    report_epoch(&t->outputs.report, &e, is_last);
    TRY(log_epoch(t, &e));
    bool ends_run = is_last || progress_stops_early(t->config, c);
    if (t->on_epoch) t->on_epoch(t->user, e.epoch, t->epoch.value, ends_run);
    if (!is_whole) return OK;
    c->epoch++;
    c->batch = 0;
    c->epoch_loss = c->epoch_count = c->epoch_correct = c->epoch_scored = c->epoch_samples = c->epoch_seconds = 0;
    return OK;
}

/* ---- the loop ---- */

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
    if (loop_is_evaluated(t, ends_run)) {
        c->pending_end = ends_epoch ? PENDING_END_OF_EPOCH : PENDING_END_OF_RUN;
        if (*must_stop) return OK;
        if (ends_run || save_is_due(t, ends_epoch, is_applied)) TRY(save(t, save_before_evaluation, has_rolled_back));
        if (*has_rolled_back) return OK;
        TRY(evaluate_validation(t, must_stop));
        if (*must_stop) return OK;
        c->pending_end = PENDING_NONE;
    }
    save_mark_unsaved(t); /* a state saved before does not contain the result of the evaluation */
    return loop_complete_epoch(t, ends_epoch, ends_run);
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

static status run_all(struct trainer *t, enum loop_state *state) {
    const struct counters *c = &t->state->counters;
    bool is_complete = progress_is_complete(t->config, c), has_rolled_back;
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
