/* One function for each subject; config_check calls all of them, so that all problems are reported together. */
#include "train/config/config_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/optimizer_groups.h"
#include "train/metrics/metric_table.h"

#define MAX_NAME 240 /* bytes; file names have at most 255, and --fresh adds ".N" */

/* The node of [section].[key] in the config [root]; NULL: not given. */
static const struct node *find_key(const struct node *root, const char *section, const char *key) {
    const struct node *node = node_get(root, section);
    return node && node->kind == NODE_MAPPING ? node_get(node, key) : NULL;
}

/* The place of [section].[key], else of the section, else of the config. */
static struct place place_of_key(const struct node *root, const char *section, const char *key) {
    const struct node *node = find_key(root, section, key);
    if (!node) node = node_get(root, section);
    return config_place(node ? node : root);
}

static bool has_control_character(const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 32 || *c == 127) return true;
    return false;
}

static void check_name(const struct config *c, const struct node *root, struct problems *problems) {
    struct place place = config_place(node_get(root, "name"));
    if (!c->name) return;
    if (strchr(c->name, '/') || !*c->name || strcmp(c->name, ".") == 0 || strcmp(c->name, "..") == 0)
        problems_add(problems, place, "name", "must be a file name without '/', got '%s'", c->name);
    else if (strlen(c->name) > MAX_NAME)
        problems_add(problems, place, "name",
                     "is the name of the run folder, so it must have at most %d bytes, got %zu", MAX_NAME,
                     strlen(c->name));
    else if (has_control_character(c->name))
        problems_add(problems, place, "name",
                     "is the name of the run folder, so it must have no line ends or other control characters");
}

static void check_resume(const struct config *c, const struct node *root, struct problems *problems) {
    const struct node *resume = find_key(root, "checkpoint", "resume");
    static const char *const none[] = {NULL}; /* any other value may be a file */
    struct text hint = {0};
    if (c->checkpoint.resume && !*c->checkpoint.resume)
        problems_add(problems, config_place(resume), "checkpoint.resume", "must be auto, never or a file, got ''");
    if (resume && resume->kind == NODE_SCALAR)
        schema_suggest_value(&config_schema, "checkpoint.resume", resume->text, none, &hint);
    if (hint.length)
        problems_add(problems, config_place(resume), "checkpoint.resume",
                     "expected auto, never or a file, got '%.40s'; %s", resume->text, text_string(&hint));
    text_free(&hint);
}

/* Shards are parts of the batch of all ranks. Sets sampler.shards. */
static void check_elastic(struct config *c, const struct node *root, struct problems *problems) {
    struct place place = config_place(node_get(root, "determinism"));
    if (c->determinism.mode != DETERMINISM_ELASTIC || c->determinism.shards == SCHEMA_NO_INT) return;
    c->sampler.shards = (size_t)c->determinism.shards;
    if (c->sampler.global_batch_size == SCHEMA_NO_INT)
        problems_add(problems, place, "determinism", "elastic needs sampler.global_batch_size, the rows of all ranks");
    else if (c->determinism.shards > c->sampler.global_batch_size)
        problems_add(problems, place, "determinism.shards", "must be at most sampler.global_batch_size, %lld",
                     (long long)c->sampler.global_batch_size);
    if (c->train.precision == TRAIN_FLOAT16)
        problems_add(problems, place, "determinism", "elastic cannot be combined with train.precision: float16");
    if (c->dist.gradient_compression != COMPRESSION_NONE)
        problems_add(problems, place, "determinism",
                     "elastic cannot be combined with dist.gradient_compression: the rounded values would depend on "
                     "the number of processes");
}

/* Other precisions have instructions that not every processor has, or are sums in another order there. */
static void check_portable(const struct config *c, const struct node *root, struct problems *problems) {
    if (!c->determinism.is_portable) return;
    if (c->train.precision != TRAIN_FLOAT32 || c->train.matmul_precision == MATMUL_HIGH)
        problems_add(problems, place_of_key(root, "determinism", "portable"), "determinism.portable",
                     "is for train.precision: float32 with float32_matmul_precision: highest");
}

static void check_backend(const struct config *c, const struct node *root, struct problems *problems) {
    struct place place = place_of_key(root, "dist", "backend");
    const char *name = comm_backend_names[c->dist.backend];
    if (!comm_backend_needs_gpus(c->dist.backend)) return;
    if (c->train.device == DEVICE_CPU)
        problems_add(problems, place, "dist.backend",
                     "%s is for the memory of GPUs and needs train.device: cuda or auto; on the CPU use auto here",
                     name);
    else if (c->determinism.mode == DETERMINISM_ELASTIC)
        problems_add(problems, place, "dist.backend",
                     "determinism: elastic sums its shards in a fixed order, which %s does not support; use auto",
                     name);
}

/* Rejects what needs all gradients at once or a step that can be undone. */
static void check_in_backward(const struct config *c, const struct node *root, struct problems *problems) {
    const struct train_config *t = &c->train;
    char backend[64];
    snprintf(backend, sizeof backend, "dist.backend: %s", comm_backend_names[c->dist.backend]);
    const struct {
        bool is_set;
        const char *setting, *reason;
    } conflicts[] = {
        {t->clip_grad_norm > 0, "train.clip_grad_norm", "the norm is known only when all gradients are"},
        {t->accumulate > 1, "train.accumulate", "gradients of micro-batches are summed before an update"},
        {t->on_nonfinite.policy != NONFINITE_STOP, "train.on_nonfinite: skip or rollback",
         "a part of the step is already applied when a gradient is found not to be finite"},
        {t->precision == TRAIN_FLOAT16, "train.precision: float16", "a step whose gradients overflow is undone"},
        {t->device == DEVICE_CUDA, "train.device: cuda", "it is for the CPU only"},
        {comm_backend_needs_gpus(c->dist.backend), backend, "it is for the CPU only"},
        {c->dist.zero_stage > 0, "dist.zero_stage",
         "the shards of the optimizer are updated after gradients are averaged"},
        {c->determinism.mode == DETERMINISM_ELASTIC, "determinism.mode: elastic",
         "the gradients of batch shards are summed before an update"},
    };
    if (!optimizer_is_in_backward(&c->optimizer)) return;
    for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts; i++)
        if (conflicts[i].is_set)
            problems_add(problems, place_of_key(root, "optimizer", "in_backward"), "optimizer.in_backward",
                         "cannot be combined with %s: %s", conflicts[i].setting, conflicts[i].reason);
}

static void check_metrics(const struct config *c, const struct node *root, struct problems *problems) {
    status s = c->losses.count ? metric_check_terms(&c->train.metrics, &c->losses, &config_schema)
                               : metric_check(&c->train.metrics, config_loss(c), &config_schema);
    if (s) problems_add(problems, place_of_key(root, "train", "metrics"), "train.metrics", "%s", status_message(s));
    status_free(s);
}

static void check_target_scale(const struct config *c, const struct node *root, struct problems *problems) {
    const struct loss_type *loss = config_loss(c);
    if (c->dataset.target_scale == TARGET_SCALE_NONE || loss->is_regression || c->losses.count) return;
    const char *targets = loss->targets ? loss->targets : loss->wants_classes ? "classes" : "probabilities";
    bool are_values = strcmp(targets, "values") == 0; /* which this loss does not have scaled */
    problems_add(problems, place_of_key(root, "dataset", "target_scale"), "dataset.target_scale",
                 "is for the losses mse, l1, smooth_l1, huber and quantile, but the loss is %s%s%s", loss->variant.name,
                 are_values ? "" : ", whose targets are ", are_values ? "" : targets);
}

static bool is_maximized(const char *metric) { return monitor_is_maximized(&(struct monitor){.metric = metric}); }

/* checkpoint.best, train.early_stop and reduce_on_plateau: their metric must be one of metrics.jsonl's epochs. */
static void check_monitors(const struct config *c, const struct node *root, struct problems *problems) {
    const struct early_stop stop = early_stop_of(&c->train.early_stop);
    struct monitor plateau = {0};
    plateau.metric = schedule_monitor(&c->schedule, &plateau.mode);
    const struct {
        const char *section, *key, *path;
        const struct monitor *monitor;
    } monitors[] = {{"checkpoint", "best", "checkpoint.best", &c->checkpoint.best},
                    {"train", "early_stop", "train.early_stop", &stop.monitor},
                    {"schedule", "monitor", "schedule.monitor", &plateau}};
    for (size_t i = 0; i < sizeof monitors / sizeof *monitors; i++) {
        const struct monitor *m = monitors[i].monitor;
        /* the best epoch may be the last one, the only one that is evaluated */
        bool needs_no_more =
            m == &c->checkpoint.best || (m == &plateau && m->metric && !monitor_is_of_validation(m->metric));
        status s = m->metric || m->mode == MONITOR_AUTO
                       ? monitor_check(m, &c->train.metrics, config_loss(c), &c->losses,
                                       dataset_has_validation(&c->dataset), needs_no_more ? 1 : c->train.evaluate_every)
                       : status_new(STATUS_USAGE, "mode needs metric; give the metric, too");
        if (s)
            problems_add(problems, place_of_key(root, monitors[i].section, monitors[i].key), monitors[i].path, "%s",
                         status_message(s));
        else if (m == &plateau && m->mode == MONITOR_MIN && m->metric && is_maximized(m->metric))
            problems_add(problems, config_place(node_get(root, "schedule")), "schedule.mode",
                         "with min a rising %.60s reduces the learning rate; use mode: max", m->metric);
        status_free(s);
    }
}

/* The momentum that a schedule changes must exist. */
static void check_schedule(const struct config *c, const struct node *root, struct problems *problems) {
    struct place place = config_place(node_get(root, "schedule"));
    if (schedule_changes_momentum(&c->schedule) && isnan(optimizer_settings(&c->optimizer).momentum))
        problems_add(problems, place, "schedule",
                     "%s changes the momentum, and this optimizer has none that can change; set optimizer.momentum, or "
                     "cycle_momentum: false",
                     c->schedule.name);
}

void config_check(void *config, const struct node *root, const char *path, struct problems *problems) {
    const struct config *c = config;
    (void)path;
    config_check_losses(config, root, problems);
    if (c->loss.index < 0 && c->losses.count == 0) return;
    check_elastic(config, root, problems);
    check_portable(c, root, problems);
    check_backend(c, root, problems);
    check_name(c, root, problems);
    check_resume(c, root, problems);
    check_in_backward(c, root, problems);
    check_schedule(c, root, problems);
    check_metrics(c, root, problems);
    check_target_scale(c, root, problems);
    check_monitors(c, root, problems);
}
