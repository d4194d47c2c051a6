/* A run starts from the newest checkpoint of its folder, from the checkpoint of checkpoint.resume, from the weights of
 * model.init_from, or from initial weights. */
#include "train/run/run.h"
#include "train/run/run_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/files/sealed.h"
#include "dist/process/launcher_channel.h"
#include "train/loop/progress.h"
#include "train/loop/rank_sync.h"
#include "train/metrics/report.h"
#include "train/weights/init_from.h"

/* Within an epoch, the position in the data depends on the number of ranks. */
static status check_world_size(const struct run *run, const struct counters *c, const char *path) {
    bool is_between_epochs = c->batch == 0 || c->pending_end == PENDING_END_OF_EPOCH;
    if (is_between_epochs || c->world_size == run->env->world_size || plan_is_elastic(run->plan)) return OK;
    return status_new(STATUS_USAGE,
                      "%s was saved in the middle of an epoch by %lld process%s; continue with --nproc %lld (now %d)",
                      path, (long long)c->world_size, text_plural((uint64_t)c->world_size, "es"),
                      (long long)c->world_size, run->env->world_size);
}

static status load(struct run *run, struct checkpoint *checkpoint, const char *path, const char *otherwise) {
    struct state *state = run->trainer.state;
    TRY(state_map(state));
    status s = state_load(state, checkpoint, path, otherwise);
    TRY(status_first(s, state_unmap(state, true)));
    TRY(check_world_size(run, &state->counters, path));
    if (state->counters.pending_end == PENDING_END_OF_EPOCH) /* batches of this number of ranks */
        state->counters.batch = (int64_t)loader_batches(run->trainer.loader);
    run->is_resumed = true;
    return OK;
}

/* Whether checkpoint.resume is a file, which is used when the run folder has no checkpoint. */
static bool names_file(const struct run *run) {
    const char *resume = run->config->checkpoint.resume;
    return strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0;
}

/* Which rows are trained on, and what they are, must stay: with another split, rows that the state was trained on would
 * be validation rows. */
static status compare_dataset(const struct run *run, struct checkpoint *checkpoint, const char *path) {
    static const char *const keys[] = {"dataset", NULL};
    struct config_file *before;
    struct text differences = {0};
    TRY(config_of_checkpoint(checkpoint, &before));
    if (!before) {
        log_warning(run->log,
                    "%s: this version cannot read its config, so its dataset cannot be compared with that of "
                    "this run",
                    path);
        return OK;
    }
    struct config now = *run->config;
    now.dataset.augment = config_of(before)->dataset.augment; /* is of no row that is measured */
    size_t count = schema_diff_keys(&config_schema, keys, SCHEMA_EXTENDS, config_of(before), &now, &differences);
    status s = OK;
    if (count)
        s = status_new(STATUS_USAGE,
                       "checkpoint.resume: %s has another dataset; %zu key%s (file -> now):\n%s"
                       "give the dataset of the file, or start from its weights alone with model.init_from",
                       path, count, count == 1 ? " differs" : "s differ", text_string(&differences));
    text_free(&differences);
    config_free(before);
    return s;
}

static status load_named(struct run *run) {
    const char *path = run->config->checkpoint.resume;
    struct checkpoint *checkpoint;
    TRY(status_prefix(checkpoint_open(path, &checkpoint), "checkpoint.resume"));
    status s = compare_dataset(run, checkpoint, path);
    if (!s) s = load(run, checkpoint, path, "leave out checkpoint.resume to start over");
    checkpoint_close(checkpoint);
    struct counters *c = &run->trainer.state->counters;
    c->metrics_bytes = 0;                     /* of the file in another folder */
    c->best_value = c->early_stop_best = NAN; /* best.h5 is there, too, and the metrics may be others */
    c->best_epoch = c->early_stop_wait = 0;
    return s;
}

/* Whether best.h5 of the run folder is as it was written; else *why says what is wrong. */
static bool best_is_valid(const struct run *run, struct text *why) {
    struct text path = {0};
    struct io_info info;
    struct seal seal;
    text_printf(&path, "%s/" CHECKPOINT_BEST ".h5", run_folder_checkpoints(run->folder));
    status s = io_stat(text_string(&path), &info);
    if (!s && !info.exists) s = status_new(STATUS_DATA, "%s is missing", text_string(&path));
    if (!s) s = sealed_verify(text_string(&path), &seal);
    bool is_valid = !s;
    if (s) text_add(why, status_message(s));
    status_free(s);
    text_free(&path);
    return is_valid;
}

/* Without the state of the best epoch the next ones are compared among each other: one that is worse is better than
 * none. */
static void check_best(struct run *run) {
    struct counters *c = &run->trainer.state->counters;
    const char *metric = run->config->checkpoint.best.metric;
    struct text why = {0};
    bool is_lost = metric && c->best_epoch > 0 && !best_is_valid(run, &why);
    bool is_complete = progress_is_complete(run->config, c);
    char best[32];
    report_metric(metric ? metric : "", c->best_value, best);
    if (is_lost)
        log_warning(run->log, "%s; the state of the best epoch, %lld (%s %s), is lost%s", text_string(&why),
                    (long long)c->best_epoch, metric, best,
                    is_complete ? "" : ", so the best of the epochs from now on is kept, also if it is worse");
    if (is_lost && !is_complete) {
        c->best_value = NAN;
        c->best_epoch = 0;
    }
    text_free(&why);
}

/* Loads the newest checkpoint of the run folder, else the file of checkpoint.resume, else none. `never` does not apply
 * to checkpoints of this job, after a restart. Rank 0. */
static status find_and_load(struct run *run) {
    const char *resume = run->config->checkpoint.resume;
    struct checkpoint *checkpoint = NULL;
    char *path = NULL;
    TRY(checkpoint_open_newest(run_folder_checkpoints(run->folder), run->log, &checkpoint, &path));
    status s = OK;
    if (checkpoint && strcmp(resume, "never") == 0 && !run->env->has_begun) {
        s = status_new(
            STATUS_USAGE,
            "%s has checkpoints and checkpoint.resume is never; use --fresh (the old folder is kept) or another "
            "--run-dir",
            run->folder_path);
    } else if (checkpoint) {
        s = load(run, checkpoint, path, "--fresh to start over");
        if (!s) check_best(run);
    } else if (names_file(run)) {
        s = load_named(run);
    }
    checkpoint_close(checkpoint);
    const struct counters *c = &run->trainer.state->counters;
    if (!s && run->is_resumed && !progress_is_complete(run->config, c))
        log_line(run->log, "resuming from %s: epoch %lld, step %lld", path ? path : resume, (long long)c->epoch,
                 (long long)c->step);
    free(path);
    return s;
}

/* Loads model.init_from, if set, and logs what was used. */
static status load_initial_weights(const struct run *run) {
    struct text report = {0};
    status s = init_from(run->trainer.model, &run->config->model.init_from, run->plan->dataset, &report);
    if (!s && report.length) log_line(run->log, "model.init_from: %s", text_string(&report));
    text_free(&report);
    return s;
}

/* --fresh renames the old folder, so the files of the start are loaded before: they may be missing, or be in that
 * folder. Rank 0. */
static status load_before_fresh(struct run *run) {
    if (!names_file(run)) return load_initial_weights(run);
    TRY(load_named(run));
    log_line(run->log, "starting from %s", run->config->checkpoint.resume);
    return OK;
}

/* After a restart by ddptrain's launcher the folder exists; of other launchers it is only known that it is not the
 * first start. */
static enum run_folder_start folder_start(const struct run *run, bool is_fresh) {
    bool is_ours = run->env->has_begun && run->env->launcher == LAUNCHER_OWN;
    return is_fresh ? RUN_FOLDER_FRESH : is_ours ? RUN_FOLDER_REQUIRED : RUN_FOLDER_ANY;
}

/* Broadcasts the state of rank 0. Maps only what is broadcast, because mapped memory of a GPU is pinned. */
static status broadcast_loaded(struct run *run) {
    struct trainer *t = &run->trainer;
    if (!run->is_resumed && !t->averaging.zero) return rank_sync_start(t);
    TRY(state_map(t->state));
    status s = rank_sync_state(t);
    return status_first(s, state_unmap(t->state, true));
}

/* Gathers sharded optimizer state on rank 0, where a checkpoint is loaded. */
static status gather_shards(struct trainer *t) {
    if (!t->averaging.zero) return OK;
    TRY(state_map(t->state));
    status s = zero_gather(t->averaging.zero, t->state, t->comm);
    return status_first(s, state_unmap(t->state, false));
}

/* A complete state of another folder is saved in this one, as the last state of a run is. */
static void set_complete(struct run *run) {
    const struct counters *c = &run->trainer.state->counters;
    bool is_complete = run->is_resumed && progress_is_complete(run->config, c);
    run->is_complete = is_complete && counters_are_own(c);
    if (is_complete && !run->is_complete)
        log_line(run->log,
                 "%s: complete (epoch %lld, step %lld), so no step follows; increase train.epochs or "
                 "train.steps to continue",
                 run->config->checkpoint.resume, (long long)c->epoch, (long long)c->step);
}

status run_resume(struct run *run) {
    struct trainer *t = &run->trainer;
    TRY(gather_shards(t));
    if (run->options->writes_nothing) {
        TRY(load_before_fresh(run));
    } else if (run_is_first_rank(run)) {
        bool is_fresh = run->options->is_fresh && !run->env->has_begun;
        if (is_fresh) TRY(load_before_fresh(run));
        TRY(run_folder_open(run->folder_path, folder_start(run, is_fresh), run->config, run->log, &run->folder));
        if (run->options->is_in_sweep) run_folder_set_in_sweep(run->folder);
        if (!is_fresh) TRY(find_and_load(run));
        if (!is_fresh && !run->is_resumed) TRY(load_initial_weights(run));
        set_complete(run);
    }
    struct counters *c = &t->state->counters;
    c->world_size = run->env->world_size;
    uint8_t flags[] = {run->is_resumed, run->is_complete};
    TRY(comm_broadcast(t->comm, flags, sizeof flags, COMM_UINT8, 0));
    run->is_resumed = flags[0];
    run->is_complete = flags[1];
    TRY(broadcast_loaded(run));
    if (c->step == 0) ema_start(t->ema, &t->model->params); /* an evaluation may come before the first applied step */
    launcher_send(MESSAGE_RESUMED, 0, c->step, run->folder_path);
    return OK;
}
