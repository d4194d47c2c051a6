/* Creates what a run creates, except the group of ranks, the loaders and the run folder. */
#include "train/run/run.h"

#include <string.h>

#include "base/scoped.h"
#include "checkpoint/checkpoint.h"
#include "train/loop/dry_run.h"
#include "train/loop/trainer.h"
#include "train/plan/plan.h"
#include "train/weights/weights.h"

/* Reads and verifies the file of checkpoint.resume. */
static status check_resume(const struct config *config) {
    struct checkpoint *checkpoint;
    const char *resume = config->checkpoint.resume;
    if (strcmp(resume, "auto") == 0 || strcmp(resume, "never") == 0) return OK;
    int64_t epochs;
    if (snapshot_is(resume)) return status_prefix(snapshot_epochs(resume, &epochs), "checkpoint.resume");
    TRY(status_prefix(checkpoint_open(resume, &checkpoint), "checkpoint.resume"));
    checkpoint_close(checkpoint);
    return OK;
}

/* Whether the config of a run folder can be read. */
static status check_written(const struct config *config) {
    SCOPED_TEXT written = {0};
    schema_write_yaml(&config_schema, config, &written);
    return config_check_written(text_string(&written));
}

/* The GPU memory of the rank that needs the maximum, by a dry run. */
static status measure_memory(struct trainer *t, struct plan *plan) {
    const struct sampler_config *sampler = &plan->config->sampler;
    struct device_memory *m = &plan->memory;
    void *shards = NULL;
    if (device_is_host(t->device)) return OK;
    if (sampler->shards)
        TRY(device_alloc(t->device, elastic_memory(t->model, sampler->shards, plan->env.world_size),
                         "the shards of a batch", &shards));
    status s = dry_run_training(t, &plan->rows);
    if (!s) m->measured = device_memory_used(t->device);
    device_free(t->device, shards);
    return s;
}

/* Whether the snapshot of a script that the run continues fits. */
static status try_snapshot(struct trainer *t, const struct config *config, struct text *warning) {
    int64_t updates;
    if (!snapshot_is(config->checkpoint.resume) || t->averaging.zero) return OK;
    TRY(state_create(t->model, t->optimizer, t->ema, NULL, NULL, NULL, &t->state));
    TRY(state_map(t->state));
    status s = snapshot_load(config->checkpoint.resume, config, t->state, &updates, warning);
    s = status_first(s, state_unmap(t->state, false));
    state_destroy(t->state);
    return s;
}

static status try_parts(struct plan *plan, struct text *report, struct text *warning) {
    struct trainer t = {0};
    struct device_memory *m = &plan->memory;
    if (!device_is_host(plan->device)) {
        TRY(device_memory_info(plan->device, &m->free, &m->total));
        m->free += device_memory_used(plan->device); /* as before the device was opened */
    }
    status s = trainer_create(&t, plan);
    if (!s) s = measure_memory(&t, plan);
    if (!s) s = init_from(plan->model, &plan->config->model.init_from, plan->dataset, report);
    if (!s) s = try_snapshot(&t, plan->config, warning);
    trainer_destroy(&t);
    return s;
}

/* A lack of memory is no error: another machine may have it. Consumes [failure]. */
static status record_missing(struct plan *plan, status failure) {
    if (status_code(failure) != STATUS_MEMORY) return failure;
    plan->missing = plan_explain_memory(plan, failure);
    return OK;
}

static void warn_of_schedule(const struct plan *plan, const char *run_dir, struct text *out) {
    SCOPED_TEXT folder = {0}, warning = {0};
    text_printf(&folder, "%s%s", run_dir ? "" : "runs/", run_dir ? run_dir : plan->config->name);
    schedule_warn(plan, text_string(&folder), &warning);
    if (warning.length) text_printf(out, "warning        %s\n", text_string(&warning));
}

status check_run(const struct config *config, const struct dist_env *env, const struct check_options *options,
                 struct text *out, status *missing) {
    struct plan_options plan_options = {.purpose = PLAN_CHECK, .reads_all = options->reads_all, .env = env};
    struct plan *plan;
    SCOPED_TEXT report = {0};
    SCOPED_TEXT warning = {0};
    *missing = OK;
    TRY(plan_create(config, &plan_options, &plan));
    status s = check_written(config);
    if (!s) s = check_resume(config);
    if (!s && !plan->missing) s = record_missing(plan, try_parts(plan, &report, &warning));
    if (!s) {
        if (options->prints_dot)
            plan_graph(plan->model, config->name, out);
        else
            plan_describe(plan, out);
        if (!options->prints_dot) warn_of_schedule(plan, options->run_dir, out);
        if (report.length && !options->prints_dot) text_printf(out, "\nmodel.init_from: %s\n", text_string(&report));
        if (warning.length && !options->prints_dot)
            text_printf(out, "\ncheckpoint.resume: warning: %s: %s\n", config->checkpoint.resume,
                        text_string(&warning));
        *missing = plan->missing;
        plan->missing = OK;
    }
    plan_destroy(plan);
    return config_add_place(config, s);
}
