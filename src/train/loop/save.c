/* All ranks take part: the state must be the same and finite on all of them. Rank 0 passes it to its saver. */
#include "train/loop/save.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/files/io.h"
#include "checkpoint/saver.h"
#include "device/cpu/parallel.h"
#include "train/loop/averaging.h"
#include "train/loop/ledger.h"
#include "train/loop/progress.h"
#include "train/loop/rank_sync.h"

/* A failed save does not end the run: earlier checkpoints remain, and the next save retries. Rank 0. */
static status report_failed_save(struct trainer *t, status failure) {
    if (!failure) return OK;
    if (!status_is_system(failure)) return failure;
    t->saves.has_failed = true;
    snprintf(t->saves.why, sizeof t->saves.why, "%s", status_message(failure));
    log_warning(t->outputs.log, "a checkpoint could not be saved; the run continues: %s", status_message(failure));
    metrics_begin(t->outputs.metrics, METRICS_CHECKPOINT_FAILED);
    metrics_text(t->outputs.metrics, "error", status_message(failure));
    status_free(failure);
    return metrics_end(t->outputs.metrics);
}

static double state_bytes(const struct trainer *t) {
    double arrays = 1 + (double)t->optimizer->buffer_count + (t->ema ? 1 : 0);
    return arrays * (double)t->model->params.total * sizeof(float);
}

#define MAX_COPY_NOW 2e6 /* bytes; a copy of so many takes as long as a thread needs to begin */

/* Waits for the saver. Rank 0. */
static status wait_for_saver(struct trainer *t) {
    status failure = saver_wait(t->outputs.saver);
    if (failure)
        t->saves.queued = t->saves.written;
    else
        t->saves.written = t->saves.queued;
    return report_failed_save(t, failure);
}

/* Writes the lines of a ledger that was deleted again. */
static status restore_ledger(struct trainer *t, bool is_new) {
    const char *path = run_folder_ledger(t->outputs.folder);
    struct io_info info;
    if (!t->outputs.ledger) return OK;
    TRY(io_stat(path, &info));
    if (!is_new && info.exists) return OK;
    if (!is_new) log_warning(t->outputs.log, "%s was deleted during the run; it is written again", path);
    return metrics_move(t->outputs.ledger, path);
}

static status follow_folder(struct trainer *t) {
    bool has_changed, is_new;
    TRY(run_folder_follow(t->outputs.folder, t->outputs.log, &has_changed, &is_new));
    if (has_changed)
        TRY(saver_move(t->outputs.saver, run_folder_checkpoints_by_fd(t->outputs.folder),
                       run_folder_checkpoints(t->outputs.folder)));
    TRY(restore_ledger(t, is_new));
    return is_new ? metrics_move(t->outputs.metrics, run_folder_metrics(t->outputs.folder)) : OK;
}

status save_prepare(void *trainer) {
    const struct trainer *t = trainer;
    metrics_start_sync(t->outputs.metrics); /* so that a file system with a journal writes it once for both */
    if (t->outputs.ledger) metrics_start_sync(t->outputs.ledger);
    TRY(metrics_sync(t->outputs.metrics));
    return t->outputs.ledger ? metrics_sync(t->outputs.ledger) : OK;
}

status save_hash(void *trainer) {
    struct trainer *t = trainer;
    struct save_state *s = &t->saves;
    if (!*s->hashed_name) return OK;
    parallel_leave();
    return ledger_checkpoint(t, &s->hashed, s->hashed_name, &t->state->counters.ledger_bytes);
}

void save_release(struct trainer *t) {
    if (t->outputs.saver) saver_wait_copy(t->outputs.saver);
}

/* Logs that [name] is saved, and writes the lines so far, to which the checkpoint refers; *bytes: the size of the file;
 * NULL: they are written with a later line. Rank 0. */
static status log_save(struct trainer *t, const char *name, int64_t step, int64_t *bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.h5", run_folder_checkpoints(t->outputs.folder), name);
    metrics_begin(t->outputs.metrics, METRICS_CHECKPOINT);
    metrics_text(t->outputs.metrics, "path", path);
    metrics_int(t->outputs.metrics, "step", step);
    TRY(metrics_end(t->outputs.metrics));
    return bytes ? metrics_flush(t->outputs.metrics, bytes) : OK;
}

/* Lets the saver write the state that save_best copied, of which the lines are written; [waits]: until it is on disk.
 * Rank 0. */
static status write_kept(struct trainer *t, bool waits) {
    t->saves.has_failed = false;
    t->saves.best_written_at = clock_seconds();
    status unsaved = saver_write_kept(t->outputs.saver, waits);
    if (!unsaved) t->saves.queued = t->saves.best;
    return report_failed_save(t, unsaved);
}

/* The same, with its line, if the state is not on disk. Rank 0. */
static status write_best(struct trainer *t, bool waits) {
    int64_t bytes;
    if (!saver_has_kept(t->outputs.saver)) return OK;
    TRY(wait_for_saver(t)); /* its thread uses the files that follow_folder may replace */
    status lost = follow_folder(t);
    if (lost) return report_failed_save(t, lost);
    status unwritten = log_save(t, CHECKPOINT_BEST, t->saves.best_step, &bytes);
    return unwritten ? report_failed_save(t, unwritten) : write_kept(t, waits);
}

/* Writes the best state and waits; *is_on_disk false: that failed. Rank 0. */
static status complete_best(struct trainer *t, bool *is_on_disk) {
    TRY(wait_for_saver(t));
    TRY(write_best(t, true));
    TRY(wait_for_saver(t));
    *is_on_disk = !saver_has_kept(t->outputs.saver);
    return OK;
}

/* epoch-N at the end of an epoch, otherwise step-N. A state saved before an evaluation has the same name as after it,
 * and is replaced by that. */
static void name_state(const struct counters *c, size_t size, char *name) {
    if (c->batch == 0 || c->pending_end == PENDING_END_OF_EPOCH)
        snprintf(name, size, "epoch-%04lld", (long long)c->epoch + (c->batch > 0));
    else
        snprintf(name, size, "step-%08lld", (long long)c->step);
}

/* Whether the saver's thread copies the state while the next step computes its gradients. A small one is copied sooner
 * than a thread begins. Updates during backward, parts of other ranks and copies of a GPU's memory do not stay. */
static bool is_copied_later(const struct trainer *t) {
    return state_bytes(t) > MAX_COPY_NOW && device_is_host(t->device) && t->averaging.hooks->keeps_gradients &&
           !t->averaging.zero;
}

/* The line of the ledger for checkpoint [name]; [is_later]: by save_hash. Forward changes buffers, so a state with
 * some is hashed now. */
static status write_ledger(struct trainer *t, const char *name, bool is_later) {
    struct save_state *s = &t->saves;
    bool is_now = !is_later || t->model->buffers.total > 0;
    s->hashed = *t->state;
    snprintf(s->hashed_name, sizeof s->hashed_name, "%s", is_now ? "" : name);
    return is_now ? ledger_checkpoint(t, t->state, name, &t->state->counters.ledger_bytes) : OK;
}

/* Rank 0 continues, and a thread copies the state and writes it. [is_last]: the state does not change any more, so it
 * is not copied, and the caller waits. The best state is on disk before, because this state says which epoch was the
 * best: a resume from it would not compute that epoch again. The lines of both are written before, at once, so that one
 * fsync of each file is enough: where the best state cannot be written, this one has its lines without being tried, and
 * again at the next save. Rank 0. */
static status write_state(struct trainer *t, bool is_last) {
    struct counters *c = &t->state->counters;
    char name[64];
    bool is_later = !is_last && is_copied_later(t);
    TRY(wait_for_saver(t));
    bool has_best = saver_has_kept(t->outputs.saver);
    status lost = follow_folder(t);
    if (lost) return report_failed_save(t, lost);
    name_state(c, sizeof name, name);
    status unwritten = has_best ? log_save(t, CHECKPOINT_BEST, t->saves.best_step, NULL) : OK;
    if (!unwritten) unwritten = log_save(t, name, c->step, &c->metrics_bytes);
    if (!unwritten) unwritten = write_ledger(t, name, is_later);
    if (unwritten) return report_failed_save(t, unwritten);
    if (has_best) TRY(write_kept(t, true));
    if (has_best) TRY(wait_for_saver(t));
    if (saver_has_kept(t->outputs.saver)) return OK; /* that failed */
    t->saves.has_failed = false;
    saver_set_step(t->outputs.saver, c->step);
    struct state *state = t->state;
    status unsaved =
        is_later  ? saver_save_later(t->outputs.saver, name, state->entries, state->entry_count, state->is_steady)
        : is_last ? saver_save_in_place(t->outputs.saver, name, state->entries, state->entry_count)
                  : saver_save(t->outputs.saver, name, state->entries, state->entry_count);
    if (!unsaved) t->saves.queued = (struct data_position){c->epoch, c->batch};
    return report_failed_save(t, unsaved);
}

/* Copies the state into the saver, in place of the one before. Rank 0. */
static status keep_best(struct trainer *t, bool is_last) {
    struct counters *c = &t->state->counters;
    (void)is_last;
    TRY(wait_for_saver(t));
    c->metrics_bytes = metrics_size(t->outputs.metrics);
    if (t->outputs.ledger) c->ledger_bytes = metrics_size(t->outputs.ledger);
    t->saves.best = (struct data_position){c->epoch, c->batch};
    t->saves.best_step = c->step;
    saver_set_step(t->outputs.saver, c->step);
    return report_failed_save(t,
                              saver_keep(t->outputs.saver, CHECKPOINT_BEST, t->state->entries, t->state->entry_count));
}

/* [write] is called on rank 0 with the whole state. After the last save the gathered optimizer state is kept until the
 * run ends. All ranks. */
static status save(struct trainer *t, status (*write)(struct trainer *, bool is_last), bool is_last) {
    if (t->outputs.saver || t->averaging.zero) TRY(state_map(t->state));
    TRY(zero_gather(t->averaging.zero, t->state, t->comm));
    /* parameters that rank 0 has gathered for the save are not copied, which would be as much memory again */
    bool is_gathered = t->model->params.own != NULL;
    status s = t->outputs.saver ? write(t, is_last || is_gathered) : OK;
    if (!s && t->outputs.saver && is_gathered) s = wait_for_saver(t);
    if (!is_last) zero_release(t->averaging.zero, t->state);
    if (t->outputs.saver || t->averaging.zero) s = status_first(s, state_unmap(t->state, false));
    return s;
}

static bool is_finite(const struct trainer *t, const float *values, size_t count) {
    return device_ops(t->device)->is_finite(t->device, F32(values), count);
}

/* The name of a tensor that is not finite; NULL: all are finite. */
static const char *nonfinite_range(const struct trainer *t, const struct params *params) {
    if (is_finite(t, params->values, params->total)) return NULL;
    for (size_t i = 0; i < params->count; i++)
        if (!is_finite(t, params_value(params, i), params->items[i].count)) return params->items[i].name;
    return "(padding)";
}

/* Verifies that the state is the same on all ranks; *nonfinite: a tensor that is not finite; NULL: none. */
static status check_state(struct trainer *t, const char **nonfinite) {
    activity_phase(t->activity, ACTIVITY_SAVING);
    TRY(rank_sync_buffers(t)); /* those of rank 0 are saved */
    TRY(rank_sync_verify(t, true));
    TRY(rank_sync_verify_rows(t));
    const struct params *params = &t->model->params;
    if (params->own)
        TRY(zero_nonfinite_value(t->averaging.zero, params, t->device, t->comm, nonfinite));
    else
        *nonfinite = nonfinite_range(t, params);
    if (!*nonfinite) *nonfinite = nonfinite_range(t, &t->model->buffers);
    return OK;
}

/* Saves, unless the state is already saved. */
static status save_once(struct trainer *t, bool is_last, const char **nonfinite) {
    const struct counters *c = &t->state->counters;
    double start = clock_seconds();
    *nonfinite = NULL;
    t->saves.is_requested = false;
    if (t->saves.saved_step == progress_attempted_steps(c)) return OK;
    TRY(check_state(t, nonfinite));
    if (*nonfinite) return OK;
    TRY(save(t, write_state, is_last));
    t->saves.saved_step = progress_attempted_steps(c);
    t->saves.saved_at = clock_seconds();
    t->saves.seconds = t->saves.saved_at - start;
    return OK;
}

status save_best(struct trainer *t, const char **nonfinite) {
    TRY(check_state(t, nonfinite));
    return *nonfinite ? OK : save(t, keep_best, false);
}

status save_if_valid(struct trainer *t, const char **nonfinite) { return save_once(t, false, nonfinite); }

bool save_is_automatic(const struct config *config) {
    const struct save_every *every = &config->checkpoint.save_every;
    return every->steps == SCHEMA_NO_INT && every->epochs == SCHEMA_NO_INT;
}

void save_describe(const struct config *config, struct text *out) {
    const struct save_every *every = &config->checkpoint.save_every;
    if (save_is_automatic(config))
        text_printf(out,
                    "after epochs where a save costs less than %g %% of the time since the last one, every %g min, ",
                    100 * SAVE_MAX_FRACTION, SAVE_SECONDS / 60);
    if (every->epochs != SCHEMA_NO_INT)
        text_printf(out, "every %lld epoch%s, ", (long long)every->epochs, text_plural((uint64_t)every->epochs, "s"));
    if (every->steps != SCHEMA_NO_INT)
        text_printf(out, "every %lld step%s, ", (long long)every->steps, text_plural((uint64_t)every->steps, "s"));
    text_add(out, "at the end and on a stop request");
}

static double seconds_since(double time) { return (clock_seconds() - time) * fault_clock(); }

bool save_is_overdue(const struct trainer *t) {
    return t->outputs.saver && save_is_automatic(t->config) &&
           (clock_recent_seconds() - t->saves.saved_at) * fault_clock() >= SAVE_SECONDS;
}

#define SAVE_START 0.02       /* seconds, fixed cost of a save */
#define SAVE_BYTES_SECOND 2e8 /* of a slow disk */

static double expected_cost(const struct trainer *t) {
    double estimate = SAVE_START + state_bytes(t) / SAVE_BYTES_SECOND;
    return t->saves.seconds > estimate ? t->saves.seconds : estimate;
}

status save_decide(struct trainer *t) {
    uint8_t is_due = 0;
    if (!save_is_automatic(t->config)) return OK;
    if (t->outputs.saver) is_due = expected_cost(t) <= SAVE_MAX_FRACTION * seconds_since(t->saves.saved_at);
    TRY(comm_broadcast(t->comm, &is_due, 1, COMM_UINT8, 0));
    t->saves.is_requested = t->saves.is_requested || is_due;
    return OK;
}

status save_best_if_due(struct trainer *t) {
    if (!t->outputs.saver) return OK;
    double seconds = seconds_since(t->saves.best_written_at);
    bool is_due = expected_cost(t) <= SAVE_MAX_FRACTION * seconds || seconds >= SAVE_SECONDS;
    return is_due ? write_best(t, false) : OK;
}

status save_set_steps(struct trainer *t, const char *list) {
    struct save_state *s = &t->saves;
    for (const char *at = list; at && *at; s->step_count++) {
        char *end;
        int64_t step = strtoll(at, &end, 10);
        bool is_number = end != at && step > 0 && (*end == ',' || !*end);
        if (!is_number || s->step_count == MAX_SAVE_STEPS)
            return status_usage("--save-at: expected at most %d numbers of steps, got '%s'", MAX_SAVE_STEPS, list);
        s->steps[s->step_count] = step;
        at = end + (*end == ',');
    }
    return OK;
}

static bool is_wanted(const struct save_state *s, int64_t step) {
    for (size_t i = 0; i < s->step_count; i++)
        if (s->steps[i] == step) return true;
    return false;
}

bool save_is_due(const struct trainer *t, bool is_epoch_end, bool is_applied) {
    const struct save_every *every = &t->config->checkpoint.save_every;
    const struct counters *c = &t->state->counters;
    if (t->saves.is_requested || is_wanted(&t->saves, c->step)) return true;
    if (is_applied && every->steps != SCHEMA_NO_INT && c->step % every->steps == 0) return true;
    int64_t epochs = c->epoch + (c->pending_end == PENDING_END_OF_EPOCH);
    return is_epoch_end && every->epochs != SCHEMA_NO_INT && epochs % every->epochs == 0;
}

/* By the clock of rank 0: the time of the last evaluation, else that of training as many rows. All ranks. */
static status is_evaluation_long(const struct trainer *t, bool *is_long) {
    const struct counters *c = &t->state->counters;
    double rows = (double)dataset_info(t->dataset)->validation_rows, seconds = t->epoch.evaluation_seconds;
    if (seconds <= 0 && c->epoch_samples > 0) seconds = rows * c->epoch_seconds / c->epoch_samples;
    uint8_t exceeds = seconds * fault_clock() > LONG_EVALUATION_SECONDS;
    TRY(comm_broadcast(t->comm, &exceeds, 1, COMM_UINT8, 0));
    *is_long = exceeds;
    return OK;
}

status save_before_evaluation(struct trainer *t, const char **nonfinite) {
    bool is_long, is_requested = t->saves.is_requested;
    *nonfinite = NULL;
    TRY(is_evaluation_long(t, &is_long));
    if (!is_long) return OK;
    TRY(save_if_valid(t, nonfinite));
    t->saves.is_requested = is_requested && !*nonfinite;
    return OK;
}

/* Explains a [failure] of the last save. Consumes it. */
static status explain_last(status failure) {
    if (!status_is_system(failure)) return failure;
    status explained = status_new(status_code(failure),
                                  "%s\nthe last state is not saved; when that is fixed, run the same command again: it "
                                  "continues from the newest checkpoint",
                                  status_message(failure));
    status_free(failure);
    return explained;
}

status save_last(struct trainer *t, const char **nonfinite) {
    TRY(save_once(t, true, nonfinite));
    if (*nonfinite) return OK;
    if (t->outputs.saver) TRY(wait_for_saver(t));
    uint8_t has_failed = t->outputs.saver && t->saves.has_failed;
    if (t->averaging.zero) TRY(comm_broadcast(t->comm, &has_failed, 1, COMM_UINT8, 0));
    if (!has_failed) return OK;
    /* the background save failed and was reported: try once more, and return the failure */
    if (t->outputs.saver) TRY(follow_folder(t));
    if (t->outputs.saver) TRY(explain_last(metrics_flush(t->outputs.metrics, &t->state->counters.metrics_bytes)));
    TRY(save(t, write_state, true));
    if (!t->outputs.saver) return OK;
    TRY(explain_last(saver_wait(t->outputs.saver)));
    return t->saves.has_failed ? explain_last(status_new(STATUS_IO, "%s", t->saves.why)) : OK;
}

status save_first(struct trainer *t, const char **nonfinite) {
    bool is_own = counters_are_own(&t->state->counters);
    *nonfinite = NULL;
    if (t->config->train.on_nonfinite.policy != NONFINITE_ROLLBACK || is_own) return OK;
    return save_if_valid(t, nonfinite);
}

status save_complete(struct trainer *t, struct data_position *written) {
    bool is_best_on_disk = true;
    if (t->outputs.saver) TRY(complete_best(t, &is_best_on_disk));
    if (!is_best_on_disk) saver_drop_kept(t->outputs.saver); /* the repeated epochs have other numbers */
    if (t->outputs.saver) TRY(follow_folder(t));
    TRY(comm_broadcast(t->comm, &t->saves.written, sizeof t->saves.written, COMM_UINT8, 0));
    *written = t->saves.written;
    return OK;
}

void save_open(struct trainer *t, bool is_resumed) {
    t->saves.saved_at = t->saves.best_written_at = clock_seconds();
    rank_sync_open_rows(t);
    const struct counters *c = &t->state->counters;
    t->saves.saved_step = is_resumed && counters_are_own(c) ? progress_attempted_steps(c) : -1;
}

void save_close(struct trainer *t) {
    if (!t->outputs.saver) return;
    bool is_best_on_disk;
    status failure = complete_best(t, &is_best_on_disk);
    if (failure) log_warning(t->outputs.log, "the best state could not be saved: %s", status_message(failure));
    status_free(failure);
}

void save_mark_saved(struct trainer *t) { t->saves.saved_step = progress_attempted_steps(&t->state->counters); }

void save_mark_unsaved(struct trainer *t) { t->saves.saved_step = -1; }

void save_request(struct trainer *t) { t->saves.is_requested = true; }
