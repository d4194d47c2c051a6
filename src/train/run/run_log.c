/* Lines of the log, and events of metrics.jsonl. */
#include "train/run/run.h"
#include "train/run/run_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/system/machine.h"
#include "data/dataset/baseline.h"
#include "dist/comm/comm_gpu.h"
#include "optim/optimizer_groups.h"
#include "train/loop/progress.h"
#include "train/loop/save.h"
#include "train/run/plan_describe.h"
#include "train/weights/weights.h"

static void warn_of_activation(const struct run *run) {
    struct text warning = {0};
    loss_warn_of_activation(run->trainer.loss, run->trainer.model, &warning);
    if (warning.length) log_warning(run->log, "%s", text_string(&warning));
    text_free(&warning);
}

/* The variables that change what NCCL does. */
static void log_variables(const struct run *run) {
    struct text variables = {0};
    if (!comm_gpu(run->trainer.comm)) return;
    comm_gpu_variables(&variables);
    if (variables.length) log_line(run->log, "NCCL's variables: %s", text_string(&variables));
    text_free(&variables);
}

static void log_ignored(const struct run *run) {
    struct text key = {0};
    for (size_t i = 0; config_ignored(run->config, i, &key); i++, text_clear(&key))
        log_line(run->log, "ignored: %s", text_string(&key));
    text_free(&key);
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
    struct text target = {0};
    plan_describe_target(t->dataset, &run->config->dataset, &target);
    if (target.length) log_line(run->log, "target: %s", text_string(&target));
    text_free(&target);
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
    if (optimizer_is_in_backward(&run->config->optimizer) &&
        !config_updates_in_backward(run->config, run->env->world_size))
        log_line(run->log,
                 "optimizer.in_backward has no effect with %d processes, because gradients are averaged first",
                 run->env->world_size);
    struct text saves = {0}, weights = {0};
    plan_describe_class_weights(info, &weights);
    if (weights.length) log_line(run->log, "class weights: %s (balanced)", text_string(&weights));
    text_free(&weights);
    save_describe(run->config, &saves);
    if (save_is_automatic(run->config)) log_line(run->log, "checkpoints: %s", text_string(&saves));
    text_free(&saves);
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

status run_log_start(struct run *run) {
    log_start(run);
    return log_start_metrics(run);
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
        log_warning(
            run->log,
            "checkpoint.best: %s was not a number in any epoch, so no checkpoint is the best one; is it defined "
            "for these validation rows?",
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
    struct text name = {0};
    if (r->rows == 0) return;
    metrics_real(t->outputs.metrics, "test_loss", r->loss);
    if (t->loss->wants_classes) metrics_real(t->outputs.metrics, "test_accuracy", r->accuracy);
    metrics_int(t->outputs.metrics, "test_rows", r->rows);
    metrics_text(t->outputs.metrics, "test_checkpoint", t->test.is_best ? CHECKPOINT_BEST : CHECKPOINT_NEWEST);
    for (size_t i = 0; i < r->metric_count; i++) {
        text_clear(&name);
        text_printf(&name, "test_%s", r->metrics[i].name);
        metrics_real(t->outputs.metrics, text_string(&name), r->metrics[i].value);
    }
    text_free(&name);
    if (r->confusion) metrics_matrix(t->outputs.metrics, "test_confusion_matrix", r->confusion, r->classes, r->classes);
}

static void log_test(const struct run *run) {
    const struct trainer *t = &run->trainer;
    const struct evaluation_result *r = &t->test.result;
    struct text line = {0};
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
    text_free(&line);
}

status run_log_end(struct run *run, bool is_stopped) {
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
    if (is_stopped) return OK;
    report_duration(c->seconds, duration);
    const struct dataset_info *info = &run->plan->info;
    bool has_accuracy = t->loss->wants_classes && info->validation_rows;
    char skipped[48] = "";
    if (c->skipped) snprintf(skipped, sizeof skipped, " (%lld more skipped)", (long long)c->skipped);
    struct text epochs = {0};
    add_epochs(t, &epochs);
    log_line(run->log, "done: %s, %lld step%s%s in %s of training, %.0f samples/s", text_string(&epochs),
             (long long)c->step, text_plural((uint64_t)c->step, "s"), skipped, duration,
             (double)c->samples / (c->seconds > 0 ? c->seconds : 1e-9));
    text_free(&epochs);
    struct early_stop early = early_stop_of(&run->config->train.early_stop);
    if (progress_stops_early(run->config, c))
        log_line(run->log, "stopped early: %s has not %s in %lld evaluation%s", early.monitor.metric,
                 isnan(c->early_stop_best) ? "been a number" : "improved", (long long)c->early_stop_wait,
                 text_plural((uint64_t)c->early_stop_wait, "s"));
    warn_of_no_best(run);
    if (t->epoch.result.rows > 0) {
        struct text line = {0};
        text_printf(&line, "validation: loss %.4f", t->epoch.result.loss);
        if (has_accuracy) text_printf(&line, ", accuracy %.2f %%", 100 * t->epoch.result.accuracy);
        text_printf(&line, " on %zu row%s; ", info->validation_rows, text_plural(info->validation_rows, "s"));
        add_best_epoch(run, has_accuracy, &line);
        log_line(run->log, "%s", text_string(&line));
        text_free(&line);
        log_baseline(run, &baseline);
        const struct string_list labels = dataset_labels(t->dataset);
        report_metrics(run->log, &t->epoch.result, &labels);
    }
    log_test(run);
    log_line(run->log, "checkpoint: the newest in %s; state sha256 %.16s", run_folder_checkpoints(run->folder), hex);
    return OK;
}
