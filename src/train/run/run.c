/* Each function of the set-up fills a part of struct run; destroy frees what was created. Checks of the user's input
 * come first, and the run folder is changed last. */
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/files/io.h"
#include "base/files/sealed.h"
#include "base/scoped.h"
#include "base/stop.h"
#include "base/system/machine.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "data/dataset/dataset.h"
#include "device/cpu/parallel.h"
#include "dist/comm/comm.h"
#include "dist/comm/comm_gpu.h"
#include "dist/process/launcher_channel.h"
#include "optim/optimizer.h"
#include "train/config/extension.h"
#include "train/folder/run_folder.h"
#include "train/loop/averaging.h"
#include "train/loop/dry_run.h"
#include "train/loop/group.h"
#include "train/loop/ledger.h"
#include "train/loop/loop.h"
#include "train/loop/progress.h"
#include "train/loop/rank_sync.h"
#include "train/loop/save.h"
#include "train/loop/step.h"
#include "train/loop/trace.h"
#include "train/loop/trainer.h"
#include "train/metrics/metrics.h"
#include "train/metrics/report.h"
#include "train/plan/plan.h"
#include "train/weights/weights.h"

struct run {
    const struct config *config;
    const struct dist_env *env;
    const struct run_options *options;
    struct log *log;     /* NULL except on rank 0 */
    struct log *any_log; /* on all ranks */
    struct plan *plan;
    struct store *store;
    struct comm *own_comm;     /* of this rank alone, for evaluations that are not shared; NULL: they are shared */
    struct comm *sampler_comm; /* for a sampler of an extension; else NULL */
    struct run_folder *folder;
    char *folder_path;
    struct text config_text;
    struct rng rng; /* PyTorch's default generator: seeded, then used to build the model */
    float
        *initial; /* of a run that is used again: its initial weights, and the generator after them; NULL: not known */
    struct rng initial_rng;
    int64_t initial_seed;
    struct group *group; /* of a run that is used again; NULL: none was made, or it is not possible */
    bool has_tried_group;
    struct trainer trainer;
    bool is_resumed, is_complete; /* set on all ranks by resume */
};

static inline bool is_first_rank(const struct run *run) { return run->env->rank == 0; }

/* ---- the start and the end in the log and in metrics.jsonl ---- */

static void warn_of_activation(const struct run *run) {
    SCOPED_TEXT warning = {0};
    loss_warn_of_activation(run->trainer.loss, run->trainer.model, &warning);
    if (warning.length) log_warning(run->log, "%s", text_string(&warning));
}

/* The variables that change what NCCL does. */
static void log_variables(const struct run *run) {
    SCOPED_TEXT variables = {0};
    if (!comm_gpu(run->trainer.comm)) return;
    comm_gpu_variables(&variables);
    if (variables.length) log_line(run->log, "NCCL's variables: %s", text_string(&variables));
}

/* The file of the sampler, which may repeat or leave out rows. */
static void log_indices(const struct run *run) {
    SCOPED_TEXT text = {0};
    if (!run->plan->indices) return;
    sampler_describe_indices(&run->plan->sampler, &text);
    log_line(run->log, "sampler: %s", text_string(&text));
}

static void log_unused(const struct run *run) {
    SCOPED_TEXT unused = {0};
    model_add_unused(run->trainer.model, &unused);
    if (unused.length) log_line(run->log, "unused, so they keep their values: %s", text_string(&unused));
}

static void log_ignored(const struct run *run) {
    SCOPED_TEXT key = {0};
    for (size_t i = 0; config_ignored(run->config, i, &key); i++, text_clear(&key))
        log_line(run->log, "ignored: %s", text_string(&key));
}

static void log_start(struct run *run) {
    const struct trainer *t = &run->trainer;
    const struct dataset_info *info = &run->plan->info;
    const char *backend = comm_describe(t->comm);
    bool is_compressed = run->config->dist.gradient_compression == COMPRESSION_BFLOAT16;
    char test[48] = "";
    if (info->test_rows)
        snprintf(test, sizeof test, ", %zu test row%s", info->test_rows, text_plural(info->test_rows, "s"));
    log_line(run->log, "%s: %zu parameter%s, %zu training row%s, %zu validation row%s%s", run->config->name,
             t->model->params.elements, text_plural(t->model->params.elements, "s"), info->train_rows,
             text_plural(info->train_rows, "s"), info->validation_rows, text_plural(info->validation_rows, "s"), test);
    SCOPED_TEXT target = {0};
    plan_describe_target(t->dataset, &run->config->dataset, &target);
    if (target.length) log_line(run->log, "target: %s", text_string(&target));
    if (plan_is_elastic(run->plan))
        log_line(run->log, "elastic: batches of %lld row%s in %zu shard%s; the same bits on any number of processes",
                 (long long)run->config->sampler.global_batch_size,
                 text_plural((uint64_t)run->config->sampler.global_batch_size, "s"), run->config->sampler.shards,
                 text_plural(run->config->sampler.shards, "s"));
    log_line(run->log, "%d process%s on %s%s%s%s, %zu row%s per batch and process, %zu batch%s per epoch",
             run->env->world_size, text_plural((uint64_t)run->env->world_size, "es"), device_describe(t->device),
             run->env->world_size > 1 ? ", gradients averaged by " : "", run->env->world_size > 1 ? backend : "",
             run->env->world_size > 1 && is_compressed ? " as bfloat16" : "", t->batch, text_plural(t->batch, "s"),
             loader_batches(t->loader), text_plural(loader_batches(t->loader), "es"));
    if (device_code(t->device)) log_line(run->log, "GPU code: %s", device_code(t->device));
    log_variables(run);
    const char *why_not;
    config_updates_in_backward(run->config, run->env, &why_not);
    if (why_not) log_line(run->log, "optimizer.in_backward has no effect: %s", why_not);
    SCOPED_TEXT saves = {0}, weights = {0};
    plan_describe_class_weights(info, &weights);
    if (weights.length) log_line(run->log, "class weights: %s (balanced)", text_string(&weights));
    save_describe(run->config, &saves);
    if (save_is_automatic(run->config)) log_line(run->log, "checkpoints: %s", text_string(&saves));
    log_indices(run);
    log_unused(run);
    const struct string_list notes = dataset_notes(t->dataset);
    for (size_t i = 0; i < notes.count; i++) log_line(run->log, "%s", notes.items[i]);
    log_ignored(run);
    warn_of_activation(run);
    if (run->config->device_reason && gpus_are_expected())
        log_line(run->log, "train.device: auto is the CPU: %s", run->config->device_reason);
}

static status log_start_metrics(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct counters *c = &t->state->counters;
    const struct dataset_info *info = &run->plan->info;
    metrics_begin(t->outputs.metrics, c->metrics_bytes ? METRICS_RESUME : METRICS_START);
    metrics_text(t->outputs.metrics, "name", run->config->name);
    metrics_int(t->outputs.metrics, "world_size", run->env->world_size);
    metrics_int(t->outputs.metrics, "parameters", (int64_t)t->model->params.elements);
    metrics_int(t->outputs.metrics, "seed", run->config->seed);
    metrics_int(t->outputs.metrics, "train_rows", (int64_t)info->train_rows);
    metrics_int(t->outputs.metrics, "val_rows", (int64_t)info->validation_rows);
    if (info->test_rows) metrics_int(t->outputs.metrics, "test_rows", (int64_t)info->test_rows);
    metrics_int(t->outputs.metrics, "batch_size", (int64_t)t->batch);
    metrics_text(t->outputs.metrics, "device", device_describe(t->device));
    metrics_int(t->outputs.metrics, "gradient_bytes",
                (int64_t)(params_gradient_floats(&t->model->params) * sizeof(float)));
    metrics_text(t->outputs.metrics, "backend", comm_backend(t->comm));
    metrics_text(t->outputs.metrics, "dataset_fingerprint", info->fingerprint);
    metrics_int(t->outputs.metrics, "epoch", c->epoch);
    metrics_int(t->outputs.metrics, "first_step", c->step + 1);
    metrics_real(t->outputs.metrics, "startup_seconds", clock_seconds() - run->options->started);
    return metrics_end(t->outputs.metrics);
}

static status begin_log(struct run *run) {
    log_start(run);
    TRY(log_start_metrics(run));
    return ledger_start(&run->trainer, "ddptrain " DDPTRAIN_VERSION, text_string(&run->config_text),
                        plan_is_elastic(run->plan));
}

/* Whose best value counters.best_value is. */
static const char *best_metric(const struct run *run) {
    const struct trainer *t = &run->trainer;
    if (run->config->checkpoint.best.metric) return run->config->checkpoint.best.metric;
    if (!run->plan->info.validation_rows) return "train_loss";
    return t->loss->wants_classes ? "val_accuracy" : "val_loss";
}

/* A metric may be undefined, such as auc where all rows are of one class. */
static void warn_of_no_best(const struct run *run) {
    const char *metric = run->config->checkpoint.best.metric;
    if (metric && run->trainer.epoch.has_ended && run->trainer.state->counters.best_epoch == 0)
        log_warning(run->log,
                    "checkpoint.best: %s was not a number in any epoch, so no checkpoint is the best one; is it "
                    "defined for these validation rows?",
                    metric);
}

/* With the share of an epoch that has not ended, in hundredths. */
static double epochs_of(const struct trainer *t) {
    const struct counters *c = &t->state->counters;
    double share = (double)c->batch / (double)loader_batches(t->loader);
    return (double)c->epoch + (c->batch > 0 ? fmax(round(share * 100) / 100, 0.01) : 0);
}

/* "2 epochs", or of a run whose length is in steps "1.25 epochs". */
static void add_epochs(const struct trainer *t, struct text *out) {
    const struct counters *c = &t->state->counters;
    if (c->batch > 0)
        text_printf(out, "%.2f epochs", epochs_of(t));
    else
        text_printf(out, "%lld epoch%s", (long long)c->epoch, text_plural((uint64_t)c->epoch, "s"));
}

static void add_best_epoch(const struct run *run, bool has_accuracy, struct text *out) {
    const struct counters *c = &run->trainer.state->counters;
    const char *metric = run->config->checkpoint.best.metric;
    char best[32];
    report_metric(metric ? metric : "", c->best_value, best);
    if (c->best_epoch == 0) {
        text_add(out, "no epoch is the best");
        return;
    }
    text_printf(out, "best epoch %lld: ", (long long)c->best_epoch);
    if (metric)
        text_printf(out, "%s %s", metric, best);
    else if (has_accuracy)
        text_printf(out, "accuracy %.2f %%", 100 * c->best_value);
    else
        text_printf(out, "loss %.4f", c->best_value);
}

/* What the validation rows of the newest epoch are compared with: an accuracy, or the mean of squared or absolute
 * errors. */
struct comparison {
    const char *metric;      /* "accuracy" or "loss"; NULL: nothing */
    const char *baseline;    /* "always the most frequent class" */
    double reached, trivial; /* of the model, of the baseline */
    bool is_worse;           /* the model, in the newest and the best epoch */
};

static struct comparison compare_with_baseline(const struct run *run) {
    const struct trainer *t = &run->trainer;
    const struct evaluation_result *r = &t->epoch.result;
    struct comparison c = {0};
    if (r->rows == 0 || t->model->out.lengths) return c;
    struct baseline b = baseline_of(t->dataset);
    const char *loss = t->loss->variant.name;
    bool is_squared = strcmp(loss, "mse") == 0, is_absolute = strcmp(loss, "l1") == 0;
    bool is_class = b.kind == BASELINE_CLASS && r->has_accuracy;
    if (b.kind == BASELINE_NONE || !(is_class || is_squared || is_absolute)) return c;
    c = (struct comparison){.metric = is_class ? "accuracy" : "loss",
                            .baseline = baseline_names[b.kind],
                            .reached = is_class ? r->accuracy : r->loss,
                            .trivial = is_class     ? b.accuracy
                                       : is_squared ? b.squared
                                                    : b.absolute};
    double best = t->state->counters.best_value;
    char name[16];
    snprintf(name, sizeof name, "val_%s", c.metric);
    bool is_best = strcmp(best_metric(run), name) == 0 && t->state->counters.best_epoch > 0;
    c.is_worse = is_class ? fmax(c.reached, is_best ? best : 0) < c.trivial
                          : fmin(c.reached, is_best ? best : INFINITY) > c.trivial;
    return c;
}

static void log_baseline_metrics(struct run *run, const struct comparison *c) {
    if (!c->metric) return;
    metrics_text(run->trainer.outputs.metrics, "baseline", c->baseline);
    metrics_real(run->trainer.outputs.metrics, strcmp(c->metric, "loss") == 0 ? "baseline_loss" : "baseline_accuracy",
                 c->trivial);
}

static void log_baseline(const struct run *run, const struct comparison *c) {
    char value[32];
    if (!c->metric) return;
    snprintf(value, sizeof value, "%.4f", c->trivial);
    if (report_is_percent(c->metric)) report_metric(c->metric, c->trivial, value);
    log_line(run->log, "baseline: %s %s (%s)%s", c->metric, value, c->baseline,
             c->is_worse ? ", which is better than the model" : "");
}

/* test_loss, test_accuracy, test_f1, ... */
static void log_test_metrics(struct trainer *t) {
    const struct evaluation_result *r = &t->test.result;
    if (r->rows == 0) return;
    metrics_real(t->outputs.metrics, "test_loss", r->loss);
    if (t->loss->wants_classes) metrics_real(t->outputs.metrics, "test_accuracy", r->accuracy);
    metrics_int(t->outputs.metrics, "test_rows", r->rows);
    metrics_text(t->outputs.metrics, "test_checkpoint", t->test.is_best ? CHECKPOINT_BEST : CHECKPOINT_NEWEST);
    for (size_t i = 0; i < r->metric_count; i++) {
        SCOPED_STRING name = text_format("test_%s", r->metrics[i].name);
        metrics_real(t->outputs.metrics, name, r->metrics[i].value);
    }
    if (r->confusion) metrics_matrix(t->outputs.metrics, "test_confusion_matrix", r->confusion, r->classes, r->classes);
}

static void log_test(const struct run *run) {
    const struct trainer *t = &run->trainer;
    const struct evaluation_result *r = &t->test.result;
    SCOPED_TEXT line = {0};
    if (r->rows == 0) return;
    text_printf(&line, "test: loss %.4f", r->loss);
    if (t->loss->wants_classes) text_printf(&line, ", accuracy %.2f %%", 100 * r->accuracy);
    for (size_t i = 0; i < r->metric_count; i++) {
        char value[32];
        report_metric(r->metrics[i].name, r->metrics[i].value, value);
        text_printf(&line, ", %s %s", r->metrics[i].name, value);
    }
    text_printf(&line, " on %lld row%s; ", (long long)r->rows, text_plural((uint64_t)r->rows, "s"));
    if (t->test.is_best)
        text_printf(&line, "best checkpoint, epoch %lld", (long long)t->state->counters.best_epoch);
    else
        text_add(&line, "newest checkpoint");
    log_line(run->log, "%s", text_string(&line));
}

static status end_log(struct run *run, bool is_stopped) {
    struct trainer *t = &run->trainer;
    const struct counters *c = &t->state->counters;
    char hex[DIGEST_HEX_SIZE], duration[32];
    struct comparison baseline = compare_with_baseline(run);
    state_sha256(t->state, hex);
    metrics_begin(t->outputs.metrics, is_stopped ? METRICS_STOPPED : METRICS_END);
    metrics_int(t->outputs.metrics, "epoch", c->epoch);
    metrics_real(t->outputs.metrics, "epochs", epochs_of(t));
    metrics_int(t->outputs.metrics, "step", c->step);
    metrics_int(t->outputs.metrics, "samples", c->samples);
    metrics_int(t->outputs.metrics, "skipped", c->skipped);
    metrics_real(t->outputs.metrics, "seconds", c->seconds);
    metrics_int(t->outputs.metrics, "best_epoch", c->best_epoch); /* from 1, as in the log; 0: none yet */
    metrics_int(t->outputs.metrics, "best_epoch_index",
                c->best_epoch - 1); /* from 0, as in the event of the epoch; -1: none */
    metrics_real(t->outputs.metrics, "best_value", c->best_value);
    metrics_text(t->outputs.metrics, "best_metric", best_metric(run));
    if (progress_stops_early(run->config, c)) metrics_int(t->outputs.metrics, "early_stop_wait", c->early_stop_wait);
    log_baseline_metrics(run, &baseline);
    log_test_metrics(t);
    metrics_int(t->outputs.metrics, "peak_memory_bytes", (int64_t)memory_peak());
    metrics_text(t->outputs.metrics, "state_sha256", hex);
    TRY(metrics_end(t->outputs.metrics));
    TRY(ledger_end(t, is_stopped ? METRICS_STOPPED : METRICS_END, hex));
    if (is_stopped) return OK;
    report_duration(c->seconds, duration);
    const struct dataset_info *info = &run->plan->info;
    bool has_accuracy = t->loss->wants_classes && info->validation_rows;
    char skipped[48] = "";
    if (c->skipped) snprintf(skipped, sizeof skipped, " (%lld more skipped)", (long long)c->skipped);
    SCOPED_TEXT epochs = {0};
    add_epochs(t, &epochs);
    char rate[48] = "";
    if (c->seconds > 0) snprintf(rate, sizeof rate, ", %.0f samples/s", (double)c->samples / c->seconds);
    log_line(run->log, "done: %s, %lld step%s%s in %s of training%s", text_string(&epochs), (long long)c->step,
             text_plural((uint64_t)c->step, "s"), skipped, duration, rate);
    struct early_stop early = early_stop_of(&run->config->train.early_stop);
    if (progress_stops_early(run->config, c))
        log_line(run->log, "stopped early: %s has not %s in %lld evaluation%s", early.monitor.metric,
                 isnan(c->early_stop_best) ? "been a number" : "improved", (long long)c->early_stop_wait,
                 text_plural((uint64_t)c->early_stop_wait, "s"));
    warn_of_no_best(run);
    if (t->epoch.result.rows > 0) {
        SCOPED_TEXT line = {0};
        text_printf(&line, "validation: loss %.4f", t->epoch.result.loss);
        if (has_accuracy) text_printf(&line, ", accuracy %.2f %%", 100 * t->epoch.result.accuracy);
        text_printf(&line, " on %zu row%s; ", info->validation_rows, text_plural(info->validation_rows, "s"));
        add_best_epoch(run, has_accuracy, &line);
        log_line(run->log, "%s", text_string(&line));
        log_baseline(run, &baseline);
        const struct string_list labels = dataset_labels(t->dataset);
        report_metrics(run->log, &t->epoch.result, &labels);
    }
    log_test(run);
    log_line(run->log, "checkpoint: the newest in %s; state sha256 %.16s", run_folder_checkpoints(run->folder), hex);
    return OK;
}

/* ---- connecting to the other ranks ---- */

/* The store is opened first: it reports missing and failed ranks. Then the ranks compare their invariants, and only
 * after that open connections for data. */

/* Everything that must be identical on all ranks, one line each, so that a difference is a line. */
static void describe_invariants(const struct run *run, struct text *out) {
    const struct params *params = &run->trainer.model->params;
    text_add(out, "ddptrain: " DDPTRAIN_VERSION "\n");
    text_add(out, text_string(&run->config_text));
    text_printf(out, "device: %s\n", config_device_name(run->config));
    text_printf(out, "dataset fingerprint: %s\n", run->plan->info.fingerprint);
    if (run->plan->indices && *run->plan->indices->digest)
        text_printf(out, "rows of sampler.path: %s\n", run->plan->indices->digest);
    else if (run->plan->indices)
        text_printf(out, "rows of sampler.order: %zu\n", run->plan->indices->length);
    for (size_t i = 0; i < params->count; i++) {
        text_printf(out, "parameter %s:", params->items[i].name);
        for (int d = 0; d < params->items[i].dims; d++) text_printf(out, " %lld", (long long)params->items[i].shape[d]);
        text_add(out, "\n");
    }
}

static status open_evaluation(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct dataset_info *info = &run->plan->info;
    size_t first, rows, test_rows;
    if (!t->validation) return OK;
    struct dist_env env = plan_evaluation_env(run->plan);
    if (plan_is_elastic(run->plan)) TRY(comm_create("auto", &env, NULL, run->config->dist.timeout, &run->own_comm));
    sampler_evaluation_range(info->validation_rows, env.rank, env.world_size, &first, &rows);
    struct evaluation_options options = {.metrics = &run->config->train.metric_list,
                                         .loss = t->loss,
                                         .loss_config = t->loss_config,
                                         .info = info,
                                         .dataset = t->dataset,
                                         .part = DATASET_VALIDATION,
                                         .device = t->device,
                                         .comm = run->own_comm ? run->own_comm : t->comm,
                                         .output = &t->model->out,
                                         .model = t->model,
                                         .rows = rows,
                                         .all_rows = info->validation_rows,
                                         .batch = t->batch};
    TRY(evaluation_create(&options, &t->evaluation));
    if (!t->test.loader) return OK;
    sampler_evaluation_range(info->test_rows, env.rank, env.world_size, &first, &test_rows);
    options.part = DATASET_TEST;
    options.rows = test_rows;
    options.all_rows = info->test_rows;
    return evaluation_create(&options, &t->test.evaluation);
}

static status open_elastic(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct dataset_info *info = &run->plan->info;
    struct elastic_options options = {.shards = run->config->sampler.shards,
                                      .batch = (size_t)run->config->sampler.global_batch_size,
                                      .accumulates = run->config->train.accumulate > 1,
                                      .rows = sampler_length(&run->plan->sampler, info->train_rows, 1),
                                      .model = t->model,
                                      .input_size = info->input_size,
                                      .target_bytes = dataset_target_bytes(info),
                                      .comm = t->comm};
    return elastic_create(&options, &t->averaging.elastic);
}

/* *is_available: every rank has the GPU backend; *missing: why this rank has not, or NULL. All ranks. */
static status check_gpu_backend(struct comm *comm, int backend, bool *is_available, status *missing) {
    *missing = comm_gpu_check(backend);
    uint8_t has = *missing ? 0 : 1;
    status s = comm_all_reduce(comm, &has, 1, COMM_UINT8, COMM_MIN);
    *is_available = has;
    return s;
}

/* Opens the GPU backend, if every rank has a GPU and the backend, so that gradients are averaged in GPU memory. All
 * ranks.
 */
static status open_gpus(struct run *run) {
    struct trainer *t = &run->trainer;
    int backend = run->config->dist.backend, gpu;
    char identity[128];
    if (run->env->world_size == 1 || !device_stream(t->device)) return OK;
    struct gpus_process process = dist_env_gpus(run->env);
    TRY(gpus_choose(&process, &gpu));
    TRY(gpus_identity(gpu, identity));
    TRY(comm_check_gpus(t->comm, identity));
    if (!comm_backend_uses_gpus(backend) || plan_is_elastic(run->plan)) return OK;
    bool is_available = false;
    status missing = OK, s = check_gpu_backend(t->comm, backend, &is_available, &missing);
    if (!s && is_available) s = comm_open_gpu(t->comm, backend, gpu, identity, run->config->dist.nccl_nvls);
    if (!s && !is_available && comm_backend_needs_gpus(backend)) {
        s = missing ? missing
                    : status_usage("dist.backend: %s: another rank does not have it; use auto",
                                   comm_backend_names[backend]);
        missing = OK;
    }
    if (!s && !is_available && zero_own_gradients(t->averaging.zero))
        s = status_usage("dist.zero_stage: %lld needs NCCL on GPUs, to average and gather in their memory: %s",
                         (long long)run->config->dist.zero_stage,
                         missing ? status_message(missing) : "another rank does not have it");
    else if (missing)
        log_line(run->log, "gradients are averaged through the host: %s", status_message(missing));
    status_free(missing);
    return s;
}

/* Opens the store and compares the invariants, if there are other ranks. */
static status open_store(struct run *run) {
    const struct dist_config *d = &run->config->dist;
    SCOPED_TEXT invariants = {0};
    struct store_options options = {.timeout = d->timeout,
                                    .hang = d->hang_timeout,
                                    .log = run->any_log,
                                    .overdue = run->options->overdue,
                                    .forwards_stop = true};
    if (run->env->world_size == 1) return OK;
    TRY(store_open_with(run->env, &options, &run->store));
    run->trainer.activity = store_activity(run->store);
    describe_invariants(run, &invariants);
    return store_agree(run->store, "the program, the config, the data or the model", text_string(&invariants),
                       d->timeout);
}

/* Puts the gradients into memory of the group: ranks of a host then average without a copy. */
static status alloc_gradients(struct trainer *t) {
    struct params *params = &t->model->params;
    void *gradients;
    if (comm_world_size(t->comm) == 1 || comm_gpu(t->comm) || zero_own_gradients(t->averaging.zero)) return OK;
    TRY(comm_alloc(t->comm, params_gradient_floats(params) * sizeof(float), &gradients));
    if (device_is_host(t->device))
        params_use_gradients(params, t->device, gradients);
    else
        t->averaging.host_gradients = gradients;
    return OK;
}

static status open_reducer(struct trainer *t) {
    const struct dist_config *d = &t->config->dist;
    struct averaging_state *a = &t->averaging;
    const struct model *model = t->model;
    size_t *places = calloc(model->gradient_group_count + 1, sizeof *places);
    if (!places) return status_memory("the reducer");
    for (size_t g = 0; g < model->gradient_group_count; g++) places[g] = model->gradient_groups[g].piece.offset;
    struct reducer_config buckets = {.bucket_cap_mb = d->bucket_cap_mb,
                                     .first_bucket_mb = d->first_bucket_mb,
                                     .is_scattered = a->zero != NULL,
                                     .shards = zero_own_gradients(a->zero),
                                     .places = model->gradient_group_count ? places : NULL,
                                     .is_compressed = d->gradient_compression == COMPRESSION_BFLOAT16,
                                     .stream = device_stream(t->device)};
    float *gradients = a->host_gradients ? a->host_gradients : t->model->params.gradients;
    status s = comm_overlaps(t->comm, &buckets.is_overlapped);
    if (!s) s = reducer_create(&buckets, a->ranges.ranges, a->ranges.count, gradients, t->comm, &a->reducer);
    free(places);
    return s;
}

/* The sum is of the sampler's group, so that a rank that has made other calls than the others is found at once: a call
 * that hardly any sampler makes, where a barrier of one rank would be taken for this one. */
static status start_sampler(struct run *run) {
    struct trainer *t = &run->trainer;
    TRY(comm_split(t->comm, 0, run->env->rank, &run->sampler_comm));
    TRY(loader_start_sampler(t->loader, run->sampler_comm));
    int64_t none[3] = {0};
    return status_prefix(comm_all_reduce(run->sampler_comm, none, 3, COMM_INT64, COMM_MIN), "sampler.order %s",
                         t->sampler->order.name);
}

/* Gives all ranks the fewest threads that one has, because the parts of a gradient depend on them. All ranks. */
static status share_threads(struct comm *comm) {
    if (comm_world_size(comm) == 1) return OK;
    int32_t threads = (int32_t)parallel_threads(), fewest = threads;
    TRY(comm_all_reduce(comm, &fewest, 1, COMM_INT32, COMM_MIN));
    if (fewest < threads) parallel_limit(fewest);
    return OK;
}

static status join(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct dist_config *d = &run->config->dist;
    const char *why_not;
    bool is_elastic = plan_is_elastic(run->plan);
    bool is_in_backward = config_updates_in_backward(run->config, run->env, &why_not);
    TRY(open_store(run));
    TRY(comm_create(comm_backend_names[d->backend], run->env, run->store, d->timeout, &t->comm));
    if (!is_elastic) TRY(comm_limit_threads(t->comm)); /* elastic: the bits must not depend on the ranks */
    TRY(open_gpus(run));
    TRY(trainer_open_recordings(t, run->log));
    TRY(alloc_gradients(t));
    TRY(open_evaluation(run));
    if (is_in_backward)
        TRY(share_threads(t->comm));
    else if (is_elastic)
        TRY(open_elastic(run));
    else if (run->env->world_size > 1)
        TRY(open_reducer(t));
    if (t->sampler->type == SAMPLER_EXTENSION) TRY(start_sampler(run));
    t->averaging.hooks = averaging_choose(t, is_in_backward);
    t->ledger_every = ledger_interval(t);
    return OK;
}

/* ---- loading ---- */

/* A run starts from the newest checkpoint of its folder, from the checkpoint of checkpoint.resume, from the weights of
 * model.init_from, or from initial weights. */

/* Within an epoch, the position in the data depends on the number of ranks, and is before its end unless that end is
 * pending. */
static status check_position(const struct plan *plan, const struct counters *c, const char *path) {
    uint64_t batches = plan->batches, batch = (uint64_t)c->batch;
    if (batch == 0 || c->pending_end == PENDING_END_OF_EPOCH) return OK;
    if (c->world_size != plan->env.world_size && !plan_is_elastic(plan))
        return status_usage("%s was saved in the middle of an epoch by %lld process%s; continue with --nproc %lld (now "
                            "%d)",
                            path, (long long)c->world_size, text_plural((uint64_t)c->world_size, "es"),
                            (long long)c->world_size, plan->env.world_size);
    if (batch < batches || (batch == batches && c->pending_end)) return OK;
    return status_data("%s was saved after batch %llu of an epoch, which has %llu here: it belongs to a run with other "
                       "batches; start from a checkpoint of the end of an epoch",
                       path, (unsigned long long)batch, (unsigned long long)batches);
}

static status load_state(const struct plan *plan, struct state *state, struct checkpoint *checkpoint, const char *path,
                         const char *otherwise) {
    SCOPED_STRING written = NULL;
    TRY(checkpoint_read_text(checkpoint, "config", &written));
    if (written) TRY(extensions_check_same(&plan->config->extensions, written, path));
    TRY(state_load(state, checkpoint, path, otherwise));
    return check_position(plan, &state->counters, path);
}

/* Whether checkpoint.resume is a file, which is used when the run folder has no checkpoint. */
static bool names_file(const struct run *run) {
    const char *resume = run->config->checkpoint.resume;
    return strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0;
}

/* Which rows are trained on, and what they are, must stay: with another split, rows that the state was trained on would
 * be validation rows. */
static status compare_dataset(const struct config *config, struct checkpoint *checkpoint, struct text *warning) {
    static const char *const keys[] = {"dataset", NULL};
    const char *path = config->checkpoint.resume;
    SCOPED_CONFIG before = NULL;
    SCOPED_TEXT differences = {0};
    TRY(config_of_checkpoint(checkpoint, &before));
    if (!before) {
        text_add(warning,
                 "this version cannot read its config, so its dataset cannot be compared with that of this run");
        return OK;
    }
    struct config now = *config;
    now.dataset.augment = config_of(before)->dataset.augment; /* is of no row that is measured */
    size_t count = schema_diff_keys(&config_schema, keys, SCHEMA_EXTENDS, config_of(before), &now, &differences);
    if (count == 0) return OK;
    return status_usage(
        "checkpoint.resume: %s has another dataset; %zu key%s (file -> now):\n%sgive the dataset of the "
        "file, or start from its weights alone with model.init_from",
        path, count, count == 1 ? " differs" : "s differ", text_string(&differences));
}

status run_load_named(const struct plan *plan, struct state *state, struct checkpoint *checkpoint,
                      struct text *warning) {
    const char *path = plan->config->checkpoint.resume;
    TRY(compare_dataset(plan->config, checkpoint, warning));
    return status_prefix(load_state(plan, state, checkpoint, path, "leave out checkpoint.resume to start over"),
                         "checkpoint.resume");
}

/* [path]: in the run folder; NULL: it is that of checkpoint.resume. */
static status load(struct run *run, struct checkpoint *checkpoint, const char *path) {
    struct state *state = run->trainer.state;
    SCOPED_TEXT warning = {0};
    TRY(state_map(state));
    status s = path ? load_state(run->plan, state, checkpoint, path, "--fresh to start over")
                    : run_load_named(run->plan, state, checkpoint, &warning);
    if (warning.length) log_warning(run->log, "%s: %s", run->config->checkpoint.resume, text_string(&warning));
    TRY(status_first(s, state_unmap(state, true)));
    if (state->counters.pending_end == PENDING_END_OF_EPOCH) /* batches of this number of ranks */
        state->counters.batch = (int64_t)loader_batches(run->trainer.loader);
    run->is_resumed = true;
    return OK;
}

/* The snapshot of a PyTorch script: weights, the state of the optimizer and the number of epochs. */
static status load_snapshot(struct run *run, const char *path) {
    const struct trainer *t = &run->trainer;
    struct counters *c = &t->state->counters;
    int64_t epochs, updates, steps = (int64_t)run->plan->steps;
    SCOPED_TEXT warning = {0};
    TRY(status_prefix(snapshot_epochs(path, &epochs), "checkpoint.resume"));
    TRY(state_map(t->state));
    zero_expose(t->averaging.zero, &t->model->params);
    status s = snapshot_load(path, run->config, t->state, &updates, &warning);
    zero_hide(t->averaging.zero, &t->model->params);
    s = status_first(s, state_unmap(t->state, true));
    if (!s && warning.length) log_warning(run->log, "%s: %s", path, text_string(&warning));
    TRY(s);
    if (__builtin_mul_overflow(epochs, steps, &c->step))
        return status_data("checkpoint.resume: %s: its number of epochs is too large", path);
    c->epoch = epochs; /* samples and seconds are those of this program, from 0 on */
    /* EPOCHS_RUN is the last epoch that was run, counted from 0, and is run again: the optimizer has made more updates.
     */
    if (updates >= 0) c->step = updates;
    if (updates < 0 && t->optimizer->buffer_count && c->step == 0) c->step = steps;
    run->is_resumed = true;
    return OK;
}

static status load_named(struct run *run) {
    const char *path = run->config->checkpoint.resume;
    SCOPED_CHECKPOINT checkpoint = NULL;
    if (snapshot_is(path)) return load_snapshot(run, path);
    TRY(status_prefix(checkpoint_open(path, &checkpoint), "checkpoint.resume"));
    TRY(load(run, checkpoint, NULL));
    struct counters *c = &run->trainer.state->counters;
    c->metrics_bytes = c->ledger_bytes = 0;   /* of the files in another folder */
    c->best_value = c->early_stop_best = NAN; /* best.h5 is there, too, and the metrics may be others */
    c->best_epoch = c->early_stop_wait = 0;
    return OK;
}

/* Whether best.h5 among [checkpoints] is as it was written; else *why says what is wrong. */
static bool best_is_valid(const char *checkpoints, struct text *why) {
    SCOPED_STRING path = text_path(checkpoints, CHECKPOINT_BEST ".h5");
    struct io_info info;
    struct seal seal;
    status s = io_stat(path, &info);
    if (!s && !info.exists) s = status_data("%s is missing", path);
    if (!s) s = sealed_verify(path, &seal);
    bool is_valid = !s;
    if (s) text_add(why, status_message(s));
    status_free(s);
    return is_valid;
}

/* Without the state of the best epoch the next ones are compared among each other: one that is worse is better than
 * none. */
static void check_best(struct run *run, const char *checkpoints) {
    struct counters *c = &run->trainer.state->counters;
    const char *metric = run->config->checkpoint.best.metric;
    SCOPED_TEXT why = {0};
    bool is_lost = metric && c->best_epoch > 0 && !best_is_valid(checkpoints, &why);
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
}

/* Loads the newest of [checkpoints], those of the run folder, else the file of checkpoint.resume, else none. `never`
 * does not apply to checkpoints of this job, after a restart. Rank 0. */
static status find_and_load(struct run *run, const char *checkpoints) {
    const char *resume = run->config->checkpoint.resume;
    SCOPED_CHECKPOINT checkpoint = NULL;
    SCOPED_STRING path = NULL;
    TRY(checkpoint_open_newest(checkpoints, run->log, &checkpoint, &path));
    if (checkpoint && strcmp(resume, "never") == 0 && !run->env->has_begun)
        return status_usage(
            "%s has checkpoints and checkpoint.resume is never; use --fresh (the old folder is kept) or "
            "another --run-dir",
            run->folder_path);
    if (checkpoint) {
        TRY(load(run, checkpoint, path));
        check_best(run, checkpoints);
    } else if (names_file(run)) {
        TRY(load_named(run));
    }
    const struct counters *c = &run->trainer.state->counters;
    if (run->is_resumed && !progress_is_complete(run->config, c))
        log_line(run->log, "resuming from %s: epoch %lld, step %lld", path ? path : resume, (long long)c->epoch,
                 (long long)c->step);
    return OK;
}

/* Loads model.init_from, if set, and logs what was used. */
static status load_initial_weights(const struct run *run) {
    SCOPED_TEXT report = {0};
    struct zero *zero = run->trainer.averaging.zero;
    zero_expose(zero, &run->trainer.model->params);
    status s = init_from(run->trainer.model, &run->config->model.init_from, run->plan->dataset, &report);
    zero_hide(zero, &run->trainer.model->params);
    if (!s && report.length) log_line(run->log, "model.init_from: %s", text_string(&report));
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

static status load_start(struct run *run, const char *checkpoints) {
    TRY(find_and_load(run, checkpoints));
    return run->is_resumed ? OK : load_initial_weights(run);
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
                 "%s: complete (epoch %lld, step %lld), so no step follows; increase train.epochs or train.steps to "
                 "continue",
                 run->config->checkpoint.resume, (long long)c->epoch, (long long)c->step);
}

static status resume(struct run *run) {
    struct trainer *t = &run->trainer;
    TRY(gather_shards(t));
    if (run->options->writes_nothing) {
        if (is_first_rank(run) || !t->averaging.zero) TRY(load_before_fresh(run));
    } else if (is_first_rank(run)) {
        bool is_fresh = run->options->is_fresh && !run->env->has_begun;
        if (is_fresh) TRY(load_before_fresh(run));
        TRY(run_folder_open(run->folder_path, folder_start(run, is_fresh), run->config, run->log, &run->folder));
        if (run->options->is_in_sweep) TRY(run_folder_set_in_sweep(run->folder));
        if (!is_fresh) TRY(load_start(run, run_folder_checkpoints(run->folder)));
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

/* ---- the test rows ---- */

/* The test rows are evaluated once, at the end. The weights of the best checkpoint are in its file only, so rank 0
 * reads them from there; the newest ones are copied before and put back. */

/* Rank 0 reads the best checkpoint into the mapped model; *is_read 0: there is none that fits. */
static void read_best(struct run *run, uint8_t *is_read) {
    struct trainer *t = &run->trainer;
    SCOPED_CHECKPOINT checkpoint = NULL;
    SCOPED_STRING path = text_path(run_folder_checkpoints(run->folder), CHECKPOINT_BEST ".h5");
    status s = checkpoint_open(path, &checkpoint);
    if (!s) s = weights_load(t->model, checkpoint, t->ema != NULL);
    *is_read = !s;
    if (s) log_warning(run->log, "the test is that of the newest state: %s", status_message(s));
    status_free(s);
}

/* Copies the parameters and buffers of the mapped model to values, or back. */
static void copy_weights(const struct model *model, float *values, bool is_back) {
    const struct params *params = &model->params, *buffers = &model->buffers;
    struct {
        float *values;
        size_t count;
    } parts[] = {{params->own ? params->own : params->values, params->own ? params->own_count : params->total},
                 {buffers->values, buffers->total}};
    for (int i = 0; i < 2; values += parts[i++].count)
        if (parts[i].count)
            memcpy(is_back ? parts[i].values : values, is_back ? values : parts[i].values,
                   parts[i].count * sizeof *values);
}

/* Replaces the weights of all ranks by those of the best checkpoint. */
static status load_best(struct run *run) {
    struct trainer *t = &run->trainer;
    uint8_t is_read = 0;
    struct params *params = &t->model->params, *buffers = &t->model->buffers;
    TRY(zero_gather_params(t->averaging.zero, t->state, t->comm));
    zero_expose(t->averaging.zero, params);
    if (is_first_rank(run)) read_best(run, &is_read);
    zero_hide(t->averaging.zero, params);
    TRY(comm_broadcast(t->comm, &is_read, 1, COMM_UINT8, 0));
    t->test.is_best = is_read;
    if (is_read) TRY(zero_scatter_params(t->averaging.zero, t->state, t->comm));
    if (is_read && !params->own) TRY(comm_broadcast(t->comm, params->values, params->total, COMM_FLOAT32, 0));
    return is_read && buffers->total ? comm_broadcast(t->comm, buffers->values, buffers->total, COMM_FLOAT32, 0) : OK;
}

static status test_best(struct run *run, float *newest, bool *is_stopped) {
    struct trainer *t = &run->trainer;
    TRY(model_map(t->model));
    copy_weights(t->model, newest, false);
    status s = load_best(run);
    TRY(status_first(s, model_unmap(t->model, true)));
    TRY(loop_evaluate_test(t, !t->test.is_best, is_stopped));
    TRY(model_map(t->model));
    copy_weights(t->model, newest, true);
    return model_unmap(t->model, true);
}

static status test(struct run *run, bool *is_stopped) {
    struct trainer *t = &run->trainer;
    void *newest;
    if (!t->test.loader) return OK;
    if (!run->config->checkpoint.best.metric || t->state->counters.best_epoch == 0)
        return loop_evaluate_test(t, true, is_stopped);
    TRY(buffer_new((t->model->params.total + t->model->buffers.total) * sizeof(float), "the newest weights", &newest));
    status s = test_best(run, newest, is_stopped);
    buffer_free(newest);
    return s;
}

/* ---- the order of a run ---- */

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
    struct sampler_config sampler = run->plan->sampler;
    struct dist_env evaluates = plan_evaluation_env(run->plan);
    sampler.generator = &run->rng;
    TRY(loader_create(t->dataset, &sampler, t->batch, run->env->rank, run->env->world_size, c->dataset.prefetch,
                      &t->loader));
    if (run->plan->info.validation_rows == 0) return OK;
    enum evaluation_order order = sampler_evaluation_order(&sampler, loss_compares_rows(t->loss, t->loss_config));
    if (run->plan->info.test_rows && !run->options->writes_nothing)
        TRY(loader_create_evaluation(t->dataset, DATASET_TEST, t->batch, evaluates.rank, evaluates.world_size, order,
                                     &t->test.loader));
    return loader_create_evaluation(t->dataset, DATASET_VALIDATION, t->batch, evaluates.rank, evaluates.world_size,
                                    order, &t->validation);
}

static status create_state(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct sampler_indices *indices = run->plan->indices;
    return state_create(t->model, t->optimizer, t->ema, t->dataset, text_string(&run->config_text),
                        indices && *indices->digest ? indices->digest : NULL, &t->state);
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
    return create_state(run);
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
    SCOPED_TEXT warning = {0};
    schedule_warn(run->plan, run->folder_path, &warning); /* compares with the config that is replaced here */
    status s = run_folder_write_config(run->folder, text_string(&run->config_text));
    if (!s) s = log_open_file(run->log, run_folder_log(run->folder));
    if (!s && warning.length) log_warning(run->log, "%s", text_string(&warning));
    TRY(s);
    SCOPED_TEXT damage = {0};
    s = metrics_check(run_folder_metrics(run->folder), t->state->counters.metrics_bytes, &damage);
    if (!s && damage.length)
        log_warning(run->log, "%s: lines of earlier steps are lost; the training state is not affected",
                    text_string(&damage));
    TRY(s);
    TRY(metrics_open(run_folder_metrics(run->folder), t->state->counters.metrics_bytes, &t->outputs.metrics));
    if (c->train.tensorboard) TRY(metrics_open_events(t->outputs.metrics, t->state->counters.step));
    TRY(saver_create(run_folder_checkpoints(run->folder), c->checkpoint.keep, &t->outputs.saver));
    TRY(saver_move(t->outputs.saver, run_folder_checkpoints_by_fd(run->folder), run_folder_checkpoints(run->folder)));
    saver_on_saved(t->outputs.saver, checkpoint_is_complete, t->activity);
    saver_before_write(t->outputs.saver, save_prepare, t);
    saver_before_copy(t->outputs.saver, save_hash, t);
    t->outputs.folder = run->folder;
    t->outputs.log = run->log;
    t->outputs.report = (struct report){.log = run->log,
                                        .counts_steps = c->train.steps != SCHEMA_NO_INT,
                                        .total = c->train.steps != SCHEMA_NO_INT ? c->train.steps : c->train.epochs,
                                        .has_accuracy = t->loss->wants_classes};
    if (t->ledger_every) TRY(ledger_open(t, run_folder_ledger(run->folder), t->state->counters.ledger_bytes));
    return begin_log(run);
}

/* The state is mapped and whole. */
static void summarize(const struct run *run, struct run_summary *summary) {
    const struct trainer *t = &run->trainer;
    const struct counters *c = &t->state->counters;
    if (!summary) return;
    *summary = (struct run_summary){.epochs = c->epoch,
                                    .steps = c->step,
                                    .best_value = c->best_value,
                                    .best_epoch = c->best_epoch,
                                    .seconds = c->seconds,
                                    .evaluation_seconds = t->epoch.all_evaluation_seconds};
    state_sha256(t->state, summary->state_sha256);
}

static status stopped(const struct run *run) {
    const struct counters *c = &run->trainer.state->counters;
    bool is_asked = run->options->stop_after > 0 && c->step >= run->options->stop_after && !c->pending_end;
    return status_new(STATUS_STOPPED, "stopped %s after step %lld%s; the state is saved, run the same command %s",
                      is_asked ? "as asked" : "on request", (long long)c->step,
                      c->pending_end ? ", before the end of the evaluation" : "",
                      is_asked ? "without --stop-after to continue" : "again to continue");
}

static status train(struct run *run) {
    struct trainer *t = &run->trainer;
    if (is_first_rank(run) && !run->options->writes_nothing) TRY(open_outputs(run));
    TRY(trace_create(t, run->options->trace, run->options->stop_after, text_string(&run->config_text), &t->trace));
    fault_delay(run->env->rank);
    stop_defer();
    bool is_stopped;
    status s = loop_run(t, run->is_resumed, &is_stopped);
    log_progress(run->log, NULL);
    TRY(s);
    if (!is_stopped) TRY(test(run, &is_stopped));
    TRY(state_map(t->state));
    TRY(zero_gather(t->averaging.zero, t->state, t->comm));
    if (t->outputs.metrics) TRY(end_log(run, is_stopped));
    summarize(run, run->options->summary);
    TRY(comm_barrier(t->comm)); /* no rank closes its connections before the others are done */
    return is_stopped ? stopped(run) : OK;
}

/* For a run that is already complete. Writes the last line of metrics.jsonl if the earlier process ended before it. */
static status report_complete(struct run *run) {
    struct trainer *t = &run->trainer;
    bool has_end = true, is_stopped = false;
    if (is_first_rank(run)) TRY(metrics_ends_with(run_folder_metrics(run->folder), METRICS_END, &has_end));
    TRY(comm_broadcast(t->comm, &has_end, sizeof has_end, COMM_UINT8, 0));
    if (!has_end) TRY(test(run, &is_stopped));
    TRY(state_map(t->state)); /* until the end */
    TRY(zero_gather(t->averaging.zero, t->state, t->comm));
    if (is_stopped) return stopped(run);
    if (!is_first_rank(run)) return OK;
    summarize(run, run->options->summary);
    const struct counters *c = &t->state->counters;
    if (!has_end) {
        TRY(open_outputs(run));
        TRY(end_log(run, false));
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
    evaluation_destroy(t->evaluation); /* metrics of extensions have a group */
    evaluation_destroy(t->test.evaluation);
    comm_destroy(run->own_comm);
    comm_destroy(run->sampler_comm);
    comm_destroy(t->comm);
    saver_destroy(t->outputs.saver); /* its thread uses the activity record of the store and the state */
    store_close(run->store);
    *result = status_first(*result, metrics_close(t->outputs.metrics));
    *result = status_first(*result, metrics_close(t->outputs.ledger));
    state_destroy(t->state);
    trainer_destroy(t);
    loader_destroy(t->loader);
    loader_destroy(t->validation);
    loader_destroy(t->test.loader);
    step_close(t);
    trace_destroy(t->trace);
    plan_destroy(run->plan);
    run_folder_close(run->folder);
    text_free(&run->config_text);
    free(run->folder_path);
    free(run->initial);
    group_destroy(run->group);
}

static char *folder_path(const struct config *config, const struct run_options *options) {
    char *path = options->folder ? text_format("%s", options->folder) : text_path("runs", config->name);
    path[io_length_without_slashes(path)] = 0;
    return path;
}

/* Everything before the first step. */
static status prepare(struct run *run) {
    status s = create_parts(run);
    s = plan_explain_memory(run->plan, s);
    if (s) {
        store_report_before_joining(run->env, NULL, 0, run->any_log, s);
        return s;
    }
    TRY(plan_explain_memory(run->plan, join(run)));
    TRY(plan_explain_memory(run->plan, dry_run_training(&run->trainer, &run->plan->rows)));
    TRY(zero_open(run->trainer.averaging.zero, run->trainer.comm)); /* a dry run gathers nothing */
    TRY(comm_barrier(run->trainer.comm)); /* no run folder is created when a rank has too little memory */
    return resume(run);
}

/* ---- parts that are used again ---- */

/* Whether a run whose config has another optimizer or seeds can use the parts: those in the memory of this process that
 * are as after their creation once they are filled with zeros. */
static bool has_parts_to_keep(const struct run *run) {
    const struct trainer *t = &run->trainer;
    const struct config *c = run->config;
    return run->options->parts && run->options->writes_nothing && run->env->world_size == 1 &&
           device_is_host(t->device) && !model_carries_state(t->model) && !plan_is_elastic(run->plan) &&
           !t->averaging.zero && !optimizer_is_in_backward(&c->optimizer) && c->extensions.count == 0;
}

/* What depends on the optimizer, or on the steps of the run. */
static void release_state(struct run *run) {
    struct trainer *t = &run->trainer;
    state_destroy(t->state);
    optimizer_destroy(t->optimizer);
    ema_destroy(t->ema);
    step_close(t);
    trace_destroy(t->trace);
    optimizer_plan_destroy(run->plan->optimizer);
    run->plan->optimizer = NULL;
    *t = (struct trainer){.comm = t->comm,
                          .device = t->device,
                          .dataset = t->dataset,
                          .sampler = t->sampler,
                          .loader = t->loader,
                          .validation = t->validation,
                          .batch = t->batch,
                          .feed = t->feed,
                          .model = t->model,
                          .loss = t->loss,
                          .loss_config = t->loss_config,
                          .evaluation = t->evaluation,
                          .recordings = t->recordings,
                          .evaluations = t->evaluations,
                          .ledger_every = t->ledger_every,
                          .averaging = {.ranges = t->averaging.ranges,
                                        .norm_ranges = t->averaging.norm_ranges,
                                        .reducer = t->averaging.reducer},
                          .memory = t->memory};
}

#define MAX_INITIAL ((size_t)1 << 18) /* floats that are kept to be copied, instead of being drawn again */

static status init_again(struct run *run) {
    const struct model *model = run->trainer.model;
    size_t count = model->params.total + model->buffers.total;
    if (run->initial && run->initial_seed == run->config->seed) {
        copy_weights(model, run->initial, true);
        run->rng = run->initial_rng;
        return OK;
    }
    TRY(init_model(run));
    if (!run->initial && count <= MAX_INITIAL) run->initial = malloc(count * sizeof *run->initial);
    if (!run->initial) return OK;
    copy_weights(model, run->initial, false);
    run->initial_rng = run->rng;
    run->initial_seed = run->config->seed;
    return OK;
}

/* As prepare, with the parts of another run. */
static status prepare_again(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct config *c = run->config;
    const struct params *params = &t->model->params;
    run->plan->config = t->config = c;
    run->plan->sampler.seed = c->sampler.seed;
    loader_set_seed(t->loader, c->sampler.seed, &run->rng);
    model_clear(t->model);
    device_zero(t->device, t->memory.results, sizeof *t->memory.results);
    TRY(optimizer_plan_create(&c->optimizer, params, &run->plan->optimizer));
    TRY(optimizer_create(&c->optimizer, params, t->device, &t->optimizer));
    TRY(ema_create(&c->train.ema, params, t->device, &t->ema));
    TRY(init_again(run));
    TRY(create_state(run));
    t->averaging.hooks = averaging_choose(t, false);
    return resume(run);
}

void run_parts_destroy(struct run *parts) {
    status none = OK;
    if (parts) destroy(parts, &none);
    status_free(none);
    free(parts);
}

/* *again: with the parts of another run. */
static struct run *new_run(const struct config *config, const struct dist_env *env, const struct run_options *options,
                           struct log *log, bool *again) {
    struct run *run = options->parts ? *options->parts : NULL;
    *again = run != NULL;
    if (options->parts) *options->parts = NULL;
    if (!run) run = status_need(calloc(1, sizeof *run));
    run->config = config;
    run->env = env;
    run->options = options;
    run->log = env->rank == 0 ? log : NULL;
    run->any_log = log;
    run->is_resumed = run->is_complete = false;
    run->trainer.on_epoch = options->on_epoch;
    run->trainer.user = options->user;
    run->trainer.stop_after = options->stop_after;
    return run;
}

status run_train(const struct config *config, const struct dist_env *env, const struct run_options *options,
                 struct log *log) {
    bool again;
    struct run *run = new_run(config, env, options, log, &again);
    if (!again) run->folder_path = folder_path(config, options);
    if (!again) schema_write_yaml(&config_schema, config, &run->config_text);
    status s = trace_check(config, env, options->trace, options->stop_after);
    if (!s) s = save_set_steps(&run->trainer, options->save_at);
    if (!s) s = again ? prepare_again(run) : prepare(run);
    if (!s) s = run->is_complete ? report_complete(run) : train(run);
    if (!s && has_parts_to_keep(run)) {
        release_state(run);
        *options->parts = run;
        return OK;
    }
    destroy(run, &s);
    s = config_add_place(config, s);
    if (s && env->launcher != LAUNCHER_OWN)
        log_file_line(run->log, status_message(s)); /* the launcher knows the cause */
    free(run);
    return s;
}

/* ---- several runs at once ---- */

size_t run_parts_lanes(struct run *run, const struct config *config) {
    if (!run) return 0;
    if (!run->has_tried_group) status_free(group_create(&run->trainer, config, &run->group));
    run->has_tried_group = true;
    return group_lanes(run->group);
}

/* The parts of lane [index], and what the run had in their place. */
static status open_lane(struct run *run, const struct config *config, size_t index, struct group_lane *lane) {
    run->config = config;
    status s = prepare_again(run);
    *lane = (struct group_lane){.config = config,
                                .plan = run->plan->optimizer,
                                .optimizer = run->trainer.optimizer,
                                .state = run->trainer.state,
                                .generator = run->rng};
    if (!s) group_put(run->group, index, &run->trainer);
    run->plan->optimizer = NULL;
    run->trainer.optimizer = NULL;
    run->trainer.state = NULL;
    return s;
}

/* [summary] NULL: the lane is not trained. */
static status close_lane(struct run *run, size_t index, const struct group_lane *lane, struct run_summary *summary) {
    struct trainer *t = &run->trainer;
    status s = OK;
    run->plan->optimizer = lane->plan;
    group_set_lane(t, lane);
    if (summary) {
        group_take(run->group, index, t);
        t->epoch.all_evaluation_seconds = lane->evaluation_seconds;
        s = state_map(t->state);
        if (!s) summarize(run, summary);
    }
    release_state(run);
    return s;
}

status run_train_group(const struct config *const *configs, size_t count, const struct dist_env *env,
                       const struct run_options *options, struct log *log, struct run_summary *summaries,
                       bool *is_trained) {
    struct group_lane lanes[GROUP_MAX_LANES] = {{0}};
    struct run *run = *options->parts;
    struct trainer *t = &run->trainer;
    size_t opened = 0;
    bool is_stopped = false;
    status s = OK;
    run->env = env;
    run->options = options;
    run->log = run->any_log = log;
    run->is_resumed = run->is_complete = false;
    group_set_count(run->group, count);
    for (; opened < count && !s; opened++) s = open_lane(run, configs[opened], opened, &lanes[opened]);
    if (!s) s = group_run(t, run->group, lanes, count, &is_stopped);
    for (size_t i = 0; i < count; i++) {
        is_trained[i] = i < opened && !s && !is_stopped && !lanes[i].is_lost;
        if (i < opened) s = status_first(s, close_lane(run, i, &lanes[i], is_trained[i] ? &summaries[i] : NULL));
    }
    for (size_t i = 0; i < count && s; i++) is_trained[i] = false;
    return s || !is_stopped ? s : status_new(STATUS_STOPPED, "stopped on request");
}

/* What rank 0 loads at a start, without changing the run folder; another config in it is reported by run_folder_check.
 */
static status try_start(struct run *run) {
    const struct run_options *options = run->options;
    TRY(plan_explain_memory(run->plan, create_parts(run)));
    if (!is_first_rank(run)) return OK;
    if (options->is_fresh || options->writes_nothing) return load_before_fresh(run);
    status s = run_folder_check(run->folder_path, RUN_FOLDER_ANY, run->config);
    bool is_own = !s;
    status_free(s);
    if (!is_own) return OK;
    SCOPED_STRING checkpoints = text_path(run->folder_path, "checkpoints");
    return load_start(run, checkpoints);
}

status run_try_start(const struct config *config, const struct dist_env *env, const struct run_options *options) {
    struct config whole = *config;
    whole.dist.zero_stage = 0; /* no other rank has a part of the state */
    struct run run = {.config = &whole, .env = env, .options = options, .folder_path = folder_path(config, options)};
    schema_write_yaml(&config_schema, config, &run.config_text);
    status s = try_start(&run);
    destroy(&run, &s);
    return config_add_place(config, s);
}
