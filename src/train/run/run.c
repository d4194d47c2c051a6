/* Each function of the set-up fills a part of struct run; destroy frees what was created. Checks of the user's input
 * come first, and the run folder is changed last. */
#include "train/run/run.h"
#include "train/run/run_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/files/io.h"
#include "checkpoint/saver.h"
#include "dist/process/launcher_channel.h"
#include "train/loop/dry_run.h"
#include "train/loop/loop.h"
#include "train/loop/micro_batch.h"
#include "train/loop/progress.h"
#include "train/loop/save.h"
#include "train/metrics/metrics_read.h"
#include "train/run/schedule_warnings.h"

/* Large operators may be those of oneDNN, whose order of sums depends on the number of threads. */
static bool depends_on_threads(const struct model *model) {
    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].type->depends_on_threads) return true;
    return false;
}

/* Sets the initial weights from the seed. */
static status init_model(struct run *run) {
    struct model *model = run->trainer.model;
    TRY(model_map(model));
    rng_seed(&run->rng, (uint64_t)run->config->seed);
    model_init(model, &run->rng);
    return model_unmap(model, true);
}

static status open_loaders(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct config *c = run->config;
    struct sampler_config sampler = c->sampler;
    struct dist_env evaluates = plan_evaluation_env(run->plan);
    sampler.generator = &run->rng;
    TRY(loader_create(t->dataset, &sampler, t->batch, run->env->rank, run->env->world_size, c->dataset.prefetch,
                      &t->loader));
    if (run->plan->info.validation_rows == 0) return OK;
    bool is_interleaved = loss_compares_rows(t->loss, t->loss_config);
    if (run->plan->info.test_rows && !run->options->writes_nothing)
        TRY(loader_create_evaluation(t->dataset, DATASET_TEST, t->batch, evaluates.rank, evaluates.world_size,
                                     is_interleaved, &t->test.loader));
    return loader_create_evaluation(t->dataset, DATASET_VALIDATION, t->batch, evaluates.rank, evaluates.world_size,
                                    is_interleaved, &t->validation);
}

/* Creates the parts that need no other rank. */
static status create_parts(struct run *run) {
    struct trainer *t = &run->trainer;
    struct plan_options options = {.purpose = PLAN_TRAINING, .env = run->env, .dataset = run->options->dataset};
    TRY(config_check_written(text_string(&run->config_text)));
    TRY(plan_create(run->config, &options, &run->plan));
    /* OpenMP reads this variable when it is loaded, at the first large operation */
    bool is_elastic = plan_is_elastic(run->plan) && !run->config->determinism.is_portable;
    if (is_elastic && depends_on_threads(run->plan->model)) setenv("OMP_NUM_THREADS", "1", 0);
    TRY(trainer_create(t, run->plan));
    TRY(init_model(run));
    TRY(plan_explain_rows(open_loaders(run)));
    return state_create(t->model, t->optimizer, t->ema, t->dataset, text_string(&run->config_text), &t->state);
}

/* A checkpoint resets the launcher's count of restarts. Called in the saver's thread. */
static void checkpoint_is_complete(void *activity, int64_t step) {
    activity_saved(activity, step);
    launcher_send(MESSAGE_SAVED, 0, step, "");
}

/* From here on the run folder belongs to this run. Rank 0. */
static status open_outputs(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct config *c = run->config;
    struct text warning = {0};
    schedule_warn(run->plan, run->folder_path, &warning); /* compares with the config that is replaced here */
    status s = run_folder_write_config(run->folder, text_string(&run->config_text));
    if (!s) s = log_open_file(run->log, run_folder_log(run->folder));
    if (!s && warning.length) log_warning(run->log, "%s", text_string(&warning));
    text_free(&warning);
    TRY(s);
    struct io_info metrics;
    TRY(io_stat(run_folder_metrics(run->folder), &metrics));
    if ((int64_t)metrics.size < t->state->counters.metrics_bytes)
        log_warning(
            run->log,
            "%s is shorter than at the last save: lines of earlier steps are lost; the training state is not affected",
            run_folder_metrics(run->folder));
    TRY(metrics_open(run_folder_metrics(run->folder), t->state->counters.metrics_bytes, &t->outputs.metrics));
    if (c->train.tensorboard) TRY(metrics_open_events(t->outputs.metrics, t->state->counters.step));
    TRY(saver_create(run_folder_checkpoints(run->folder), c->checkpoint.keep, &t->outputs.saver));
    TRY(saver_move(t->outputs.saver, run_folder_checkpoints_by_fd(run->folder), run_folder_checkpoints(run->folder)));
    saver_on_saved(t->outputs.saver, checkpoint_is_complete, t->activity);
    t->outputs.folder = run->folder;
    t->outputs.log = run->log;
    t->outputs.report = (struct report){.log = run->log,
                                        .counts_steps = c->train.steps != SCHEMA_NO_INT,
                                        .total = c->train.steps != SCHEMA_NO_INT ? c->train.steps : c->train.epochs,
                                        .has_accuracy = t->loss->wants_classes};
    return run_log_start(run);
}

/* The state is mapped and whole. */
static void summarize(const struct run *run) {
    const struct trainer *t = &run->trainer;
    const struct counters *c = &t->state->counters;
    struct run_summary *summary = run->options->summary;
    if (!summary) return;
    *summary = (struct run_summary){.epochs = c->epoch,
                                    .steps = c->step,
                                    .best_value = c->best_value,
                                    .best_epoch = c->best_epoch,
                                    .seconds = c->seconds,
                                    .evaluation_seconds = t->epoch.all_evaluation_seconds};
    state_sha256(t->state, summary->state_sha256);
}

static status stopped_on_request(const struct counters *c) {
    return status_new(
        STATUS_STOPPED,
        "stopped on request after step %lld%s; the state is saved, run the same command again to continue",
        (long long)c->step, c->pending_end ? ", before the end of the evaluation" : "");
}

static status train(struct run *run) {
    struct trainer *t = &run->trainer;
    if (run_is_first_rank(run) && !run->options->writes_nothing) TRY(open_outputs(run));
    fault_delay(run->env->rank);
    if (run->options->defers_stop) *run->options->defers_stop = 1;
    bool is_stopped;
    status s = loop_run(t, run->is_resumed, &is_stopped);
    log_progress(run->log, NULL);
    TRY(s);
    if (!is_stopped) TRY(run_test(run, &is_stopped));
    TRY(state_map(t->state));
    TRY(zero_gather(t->averaging.zero, t->state, t->comm));
    if (t->outputs.metrics) TRY(run_log_end(run, is_stopped));
    summarize(run);
    TRY(comm_barrier(t->comm)); /* no rank closes its connections before the others are done */
    return is_stopped ? stopped_on_request(&t->state->counters) : OK;
}

/* For a run that is already complete. Writes the last line of metrics.jsonl if the earlier process ended before it. */
static status report_complete(struct run *run) {
    struct trainer *t = &run->trainer;
    bool has_end = true, is_stopped = false;
    if (run_is_first_rank(run)) TRY(metrics_ends_with(run_folder_metrics(run->folder), METRICS_END, &has_end));
    TRY(comm_broadcast(t->comm, &has_end, sizeof has_end, COMM_UINT8, 0));
    if (!has_end) TRY(run_test(run, &is_stopped));
    TRY(state_map(t->state)); /* until the end */
    TRY(zero_gather(t->averaging.zero, t->state, t->comm));
    if (is_stopped) return stopped_on_request(&t->state->counters);
    if (!run_is_first_rank(run)) return OK;
    summarize(run);
    const struct counters *c = &t->state->counters;
    if (!has_end) {
        TRY(open_outputs(run));
        TRY(run_log_end(run, false));
    }
    log_line(run->log, "%s: complete (%sepoch %lld, step %lld); increase %s to continue, or use --fresh to start over",
             run->folder_path, progress_stops_early(run->config, c) ? "stopped early, " : "", (long long)c->epoch,
             (long long)c->step,
             progress_stops_early(run->config, c) ? "train.early_stop.patience" : "train.epochs or train.steps");
    return OK;
}

static void destroy(struct run *run, status *result) {
    struct trainer *t = &run->trainer;
    /* before connections close, so that other ranks report the cause */
    if (run->store && *result && status_code(*result) != STATUS_STOPPED) store_report(run->store, *result);
    save_close(t);
    reducer_destroy(t->averaging.reducer);
    elastic_destroy(t->averaging.elastic);
    trainer_close_recordings(t);
    comm_destroy(run->own_comm);
    comm_destroy(t->comm);
    saver_destroy(t->outputs.saver); /* its thread uses the activity record of the store and the state */
    store_close(run->store);
    *result = status_first(*result, metrics_close(t->outputs.metrics));
    state_destroy(t->state);
    trainer_destroy(t);
    loader_destroy(t->loader);
    loader_destroy(t->validation);
    loader_destroy(t->test.loader);
    evaluation_destroy(t->evaluation);
    evaluation_destroy(t->test.evaluation);
    micro_batches_close(t);
    plan_destroy(run->plan);
    run_folder_close(run->folder);
    text_free(&run->config_text);
    free(run->folder_path);
}

static char *folder_path(const struct config *config, const struct run_options *options) {
    struct text path = {0};
    if (options->folder)
        text_add(&path, options->folder);
    else
        text_printf(&path, "runs/%s", config->name);
    path.data[io_length_without_slashes(path.data)] = 0;
    return path.data;
}

/* Everything before the first step. */
static status prepare(struct run *run) {
    status s = create_parts(run);
    s = plan_explain_memory(run->plan, s);
    if (s) {
        store_report_before_joining(run->env, NULL, 0, run->any_log, s);
        return s;
    }
    TRY(plan_explain_memory(run->plan, run_join(run)));
    TRY(plan_explain_memory(run->plan, dry_run_training(&run->trainer, &run->plan->rows)));
    TRY(comm_barrier(run->trainer.comm)); /* no run folder is created when a rank has too little memory */
    return run_resume(run);
}

status run_train(const struct config *config, const struct dist_env *env, const struct run_options *options,
                 struct log *log) {
    struct run run = {.config = config,
                      .env = env,
                      .options = options,
                      .log = env->rank == 0 ? log : NULL,
                      .any_log = log,
                      .folder_path = folder_path(config, options),
                      .trainer = {.stop = options->stop, .on_epoch = options->on_epoch, .user = options->user}};
    schema_write_yaml(&config_schema, config, &run.config_text);
    status s = prepare(&run);
    if (!s) s = run.is_complete ? report_complete(&run) : train(&run);
    destroy(&run, &s);
    if (s && env->launcher != LAUNCHER_OWN)
        log_file_line(run.log, status_message(s)); /* the launcher knows the cause */
    return s;
}
