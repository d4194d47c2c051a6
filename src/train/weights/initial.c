/* The plan is that of inference, so there are no gradients and no state of an optimizer. */
#include "train/weights/initial.h"

#include <string.h>

#include "train/plan/plan.h"
#include "train/state/state.h"
#include "train/weights/init_from.h"

static status check_resume(const struct config *config) {
    const char *resume = config->checkpoint.resume;
    if (strcmp(resume, "auto") == 0 || strcmp(resume, "never") == 0) return OK;
    return status_new(STATUS_USAGE, "a new run continues from checkpoint.resume: %s; give --checkpoint %s", resume,
                      resume);
}

/* Weights are float32 whatever a GPU computes with. */
static struct config on_cpu(const struct config *config) {
    struct config own = *config;
    own.device = DEVICE_CPU;
    own.train.precision = TRAIN_FLOAT32;
    return own;
}

static void log_weights(const struct config *config, const struct text *report, struct log *log) {
    const char *file = config->model.init_from.file;
    if (report->length || file)
        log_line(log, "the weights that a new run starts with; model.init_from: %s",
                 report->length ? report->data : file);
    else
        log_line(log, "the weights that a new run starts with; initialized with seed %lld", (long long)config->seed);
}

/* Sets the weights as a run does (run.c). */
static status set_weights(const struct plan *plan, struct log *log) {
    const struct config *config = plan->config;
    struct model *model = plan->model;
    struct text report = {0};
    struct rng rng;
    TRY(model_alloc(model, plan->device, 1));
    TRY(model_map(model));
    rng_seed(&rng, (uint64_t)config->seed);
    model_init(model, &rng);
    TRY(model_unmap(model, true));
    status s = init_from(model, &config->model.init_from, plan->dataset, &report);
    if (!s) log_weights(config, &report, log);
    text_free(&report);
    return s;
}

static status make_checkpoint(const struct plan *plan, const char *config_text, const char *name,
                              struct checkpoint **out) {
    struct optimizer none = {0};
    struct state *state;
    TRY(state_create(plan->model, &none, NULL, plan->dataset, config_text, &state));
    status s = state_map(state);
    if (!s) s = checkpoint_create(name, state->entries, state->entry_count, out);
    if (!s) s = state_unmap(state, false);
    state_destroy(state);
    return s;
}

status initial_open(const struct config *config, const char *name, struct log *log, struct checkpoint **out) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    struct plan_options options = {.purpose = PLAN_INFERENCE, .env = &alone};
    struct config own = on_cpu(config);
    struct text config_text = {0};
    struct plan *plan;
    *out = NULL;
    TRY(check_resume(config));
    TRY(plan_create(&own, &options, &plan));
    schema_write_yaml(&config_schema, config, &config_text);
    status s = set_weights(plan, log);
    if (!s) s = make_checkpoint(plan, text_string(&config_text), name, out);
    text_free(&config_text);
    plan_destroy(plan);
    return plan_explain_memory(NULL, s);
}
