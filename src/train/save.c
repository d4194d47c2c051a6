/* Every rank takes part: what is saved must be the same and finite on all of them. Rank 0 hands it to its saver. */
#include "train/save.h"

#include <stdio.h>

#include "train/recovery.h"

/* A failed save does not end the run: the checkpoints before it stay, and the next save tries again. Rank 0. */
static status note_failed_save(struct trainer *t, status failure) {
    if (!failure) return OK;
    if (status_code(failure) != STATUS_IO) return failure;
    t->save_failed = true;
    log_warning(t->log, "a checkpoint could not be saved, the run goes on: %s", status_message(failure));
    metrics_begin(t->metrics, "checkpoint_failed");
    metrics_text(t->metrics, "error", status_message(failure));
    status_free(failure);
    return metrics_end(t->metrics);
}

status save_settle(struct trainer *t) {
    status failure = saver_wait(t->saver);
    if (!failure) t->written = t->handed_over;
    return note_failed_save(t, failure);
}

status save_follow_folder(struct trainer *t) {
    bool has_changed, is_new;
    TRY(run_folder_follow(t->folder, t->log, &has_changed, &is_new));
    if (has_changed)
        TRY(saver_move(t->saver, run_folder_checkpoints_held(t->folder), run_folder_checkpoints(t->folder)));
    return is_new ? metrics_move(t->metrics, run_folder_metrics(t->folder)) : OK;
}

/* Rank 0 copies the state and goes on; a thread writes it. [is_last]: the state changes no more, so it is not copied,
 * and the caller waits. The name says whether the state stands between epochs. */
static status write_state(struct trainer *t, bool is_last) {
    struct counters *c = &t->state->counters;
    TRY(save_settle(t));
    status lost = save_follow_folder(t);
    if (lost) return note_failed_save(t, lost);
    char name[64], path[4096];
    if (c->batch == 0)
        snprintf(name, sizeof name, "epoch-%04lld", (long long)c->epoch);
    else
        snprintf(name, sizeof name, "step-%08lld", (long long)c->step);
    snprintf(path, sizeof path, "%s/%s.h5", run_folder_checkpoints(t->folder), name);
    metrics_begin(t->metrics, "checkpoint");
    metrics_text(t->metrics, "path", path);
    metrics_int(t->metrics, "step", c->step);
    TRY(metrics_end(t->metrics));
    status unwritten = metrics_sync(t->metrics, &c->metrics_bytes);
    if (unwritten) return note_failed_save(t, unwritten);
    t->save_failed = false;
    saver_mark(t->saver, c->step);
    status unsaved =
        (is_last ? saver_save_in_place : saver_save)(t->saver, name, t->state->entries, t->state->entry_count);
    if (!unsaved) t->handed_over = (struct guard_place){c->epoch, c->batch};
    return note_failed_save(t, unsaved);
}

/* All ranks. What is gathered for the last one stays until the run ends. */
static status save(struct trainer *t, bool is_last) {
    if (t->saver || t->zero) TRY(state_lend(t->state));
    TRY(zero_gather(t->zero, t->state, t->comm));
    status s = t->saver ? write_state(t, is_last) : OK;
    if (!is_last) zero_release(t->zero, t->state);
    if (t->saver || t->zero) s = status_first(s, state_take_back(t->state, false));
    return s;
}

static bool is_finite(const struct trainer *t, const float *values, size_t count) {
    return device_ops(t->device)->is_finite(t->device, values, count);
}

/* The name of a range that is not finite; NULL: all are. */
static const char *bad_range(const struct trainer *t, const struct params *params) {
    if (is_finite(t, params->values, params->total)) return NULL;
    for (size_t i = 0; i < params->count; i++)
        if (!is_finite(t, params_value(params, i), params->items[i].count)) return params->items[i].name;
    return "(padding)";
}

static status save_what_is_good(struct trainer *t, bool is_last, bool *has_moved) {
    const struct counters *c = &t->state->counters;
    *has_moved = false;
    if (t->saved_step == trainer_moves(c)) return OK;
    pulse_phase(t->pulse, PULSE_SAVING);
    TRY(trainer_share_buffers(t)); /* rank 0's are saved */
    TRY(trainer_check_agreement(t, true));
    const char *bad = bad_range(t, &t->model->params);
    if (!bad) bad = bad_range(t, &t->model->buffers);
    if (bad) {
        *has_moved = true;
        return recovery_of_parameter(t, bad, t->last_group);
    }
    TRY(save(t, is_last));
    t->saved_step = trainer_moves(c);
    return OK;
}

status save_if_good(struct trainer *t, bool *has_moved) { return save_what_is_good(t, false, has_moved); }

bool save_is_due(const struct trainer *t, bool is_epoch_end, bool is_applied) {
    const struct save_every *every = &t->config->checkpoint.save_every;
    const struct counters *c = &t->state->counters;
    if (is_applied && every->steps != SCHEMA_NO_INT && c->step % every->steps == 0) return true;
    return is_epoch_end && every->epochs != SCHEMA_NO_INT && c->epoch % every->epochs == 0;
}

/* Takes [failure] of the last save. */
static status lose_last(status failure) {
    if (status_code(failure) != STATUS_IO) return failure;
    status told = status_new(STATUS_IO,
                             "%s\nthe last state is not saved; when that is mended, run the same command again: it "
                             "goes on from the newest checkpoint",
                             status_message(failure));
    status_free(failure);
    return told;
}

status save_last(struct trainer *t, bool *has_moved) {
    TRY(save_what_is_good(t, true, has_moved));
    if (*has_moved) return OK;
    if (t->saver) TRY(save_settle(t));
    uint8_t has_failed = t->saver && t->save_failed;
    if (t->zero) TRY(comm_broadcast(t->comm, &has_failed, 1, COMM_UINT8, 0));
    if (!has_failed) return OK;
    /* the background save failed and was reported: once more, and now it counts */
    if (t->saver) TRY(save_follow_folder(t));
    if (t->saver) TRY(lose_last(metrics_sync(t->metrics, &t->state->counters.metrics_bytes)));
    TRY(save(t, true));
    if (!t->saver) return OK;
    TRY(lose_last(saver_wait(t->saver)));
    return t->save_failed ? lose_last(status_new(STATUS_IO, "the checkpoint could not be written")) : OK;
}

status save_first(struct trainer *t) {
    bool has_moved;
    bool is_own = t->state->counters.metrics_bytes > 0; /* resumed from this folder */
    if (t->config->train.on_nonfinite.policy != NONFINITE_ROLLBACK || is_own) return OK;
    t->saved_step = -1;
    return save_if_good(t, &has_moved);
}
