/* The rows of the schema of a sweep: every key but `parameters` and the list of `trials`. */
#include <string.h>

#include "sweep/sweep_config_internal.h"

static const char *const methods[] = {"grid", "random", "tpe", "list", NULL};
static const char *const goals[] = {"auto", "minimize", "maximize", NULL};
static const char *const prunes[] = {"none", "asha", "median", NULL};

static const struct schema_row metric_rows[] = {
    {.key = "name",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct sweep_metric, name),
     .fallback = "val_loss",
     .doc = "A field of the epoch events of metrics.jsonl; the value of a run is that of its best epoch."},
    {.key = "goal",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct sweep_metric, goal),
     .fallback = "auto",
     .choices = goals,
     .doc = "Which values are better; `auto`: as `mode: auto` of checkpoint.best."},
    {0},
};
static const struct schema metric_schema = {
    .name = "metric", .size = sizeof(struct sweep_metric), .rows = metric_rows, .shorthand = "name"};

static const struct schema_row repeat_rows[] = {
    {.key = "seeds",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_repeat, seeds),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .min = 1,
     .max = 10000,
     .doc = "Runs of a trial with other seeds: seed and sampler.seed of the config plus 0, 1, 2 ..."},
    {.key = "folds",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_repeat, folds),
     .fallback = "null",
     .min = 2,
     .max = 10000,
     .doc = "Runs of a trial over the folds of a cross-validation (dataset.split.folds and fold)."},
    {0},
};
static const struct schema repeat_schema = {.name = "repeat", .size = sizeof(struct sweep_repeat), .rows = repeat_rows};

static const struct schema_row prune_rows[] = {
    {.key = "type",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct prune_config, type),
     .fallback = "none",
     .choices = prunes,
     .doc = "`asha`: asynchronous successive halving; `median`: a run is stopped if its best value so far is worse "
            "than the "
            "median of the complete runs at the same epoch."},
    {.key = "min_epochs",
     .type = SCHEMA_INT,
     .offset = FIELD(struct prune_config, min_epochs),
     .fallback = "1",
     .min = 1,
     .max = INFINITY,
     .doc = "No run is stopped before this epoch; the first rung of asha."},
    {.key = "reduction_factor",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct prune_config, reduction_factor),
     .fallback = "3",
     .min = 1,
     .max = 1000,
     .excludes_min = true,
     .doc = "asha: of the runs that have reached a rung the best 1 / reduction_factor continue to the next, which is "
            "reduction_factor times as many epochs away."},
    {.key = "startup_trials",
     .type = SCHEMA_INT,
     .offset = FIELD(struct prune_config, startup_trials),
     .fallback = "5",
     .min = 1,
     .max = INFINITY,
     .doc = "median: no run is stopped before this number of runs is complete."},
    {0},
};
static const struct schema prune_schema = {
    .name = "early_terminate", .size = sizeof(struct prune_config), .rows = prune_rows, .shorthand = "type"};

static const struct schema_row budget_rows[] = {
    {.key = "seconds",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct sweep_budget, seconds),
     .fallback = "null",
     .min = 0,
     .max = INFINITY,
     .excludes_min = true,
     .doc = "The sweep stops after this time; the same command continues it."},
    {0},
};
static const struct schema budget_schema = {
    .name = "budget", .size = sizeof(struct sweep_budget), .rows = budget_rows, .shorthand = "seconds"};

static const struct schema_row keep_rows[] = {
    {.key = "runs",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct sweep_keep, runs),
     .fallback = "best 10",
     .doc = "Trials whose run folders are kept: `best N`, `all` or `none`. The table has a row for every run."},
    {0},
};
static const struct schema keep_schema = {
    .name = "keep", .size = sizeof(struct sweep_keep), .rows = keep_rows, .shorthand = "runs"};

#define SECTION(field_, schema_, flags_, doc_)                                                                         \
    {                                                                                                                  \
        .key = #field_, .type = SCHEMA_SECTION, .offset = offsetof(struct sweep_config, field_),                       \
        .section = &(schema_), .flags = (flags_), .doc = doc_                                                          \
    }

static const struct schema_row sweep_rows[] = {
    {.key = "config",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct sweep_config, config),
     .flags = SCHEMA_REQUIRED,
     .doc = "The config of the trials; a relative path is searched beside this file, too."},
    {.key = "overrides",
     .type = SCHEMA_STRING_LIST,
     .offset = FIELD(struct sweep_config, overrides),
     .fallback = "[]",
     .doc =
         "KEY=VALUE words for the config of all trials, as on the command line: [train.epochs=5]. Words of the command "
         "line follow them."},
    {.key = "method",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct sweep_config, method),
     .flags = SCHEMA_REQUIRED,
     .choices = methods,
     .doc = "`grid`: every combination; `random`: independent draws; `tpe`: Tree-structured Parzen Estimator, draws "
            "near the best trials so far; `list`: the trials that `trials` lists."},
    SECTION(metric, metric_schema, 0, "The metric by which trials are compared."),
    SECTION(repeat, repeat_schema, 0, "Runs of each trial; its value is their mean."),
    SECTION(early_terminate, prune_schema, 0, "When a run with a bad metric is stopped early."),
    {.key = "trials",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_config, trials),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .min = 1,
     .max = SWEEP_MAX_TRIALS,
     .doc = "Number of trials; null: all points of a grid. With method list: a list of mappings from keys to values."},
    {.key = "nproc_per_trial",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_config, nproc_per_trial),
     .fallback = "1",
     .min = 1,
     .max = 4096,
     .doc = "Processes of each run, which average gradients as those of ddptrain CONFIG --nproc N do; with more than "
            "1, new processes are started for each run."},
    SECTION(budget, budget_schema, SCHEMA_EXTENDS, "Limits of the sweep."),
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_config, seed),
     .fallback = "0",
     .doc = "Seed of the draws of random and tpe."},
    SECTION(keep, keep_schema, SCHEMA_EXTENDS, "Which run folders are kept."),
    {.key = "tensorboard",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct sweep_config, tensorboard),
     .fallback = "false",
     .flags = SCHEMA_EXTENDS,
     .doc = "Writes a TensorBoard event file for each run into the folder tensorboard, with its parameters and its "
            "value, for "
            "TensorBoard's HParams."},
    {0},
};

/* Those of `parameters` and of an entry of the list of `trials`. */
static bool has_path_keys(char *const *steps, size_t count) {
    return (count == 1 && strcmp(steps[0], "parameters") == 0) || (count == 2 && strcmp(steps[0], "trials") == 0);
}

const struct schema sweep_schema = {
    .name = "sweep", .size = sizeof(struct sweep_config), .rows = sweep_rows, .has_path_keys = has_path_keys};

const char *sweep_method_name(enum sweep_method method) { return methods[method]; }

const char *sweep_goal_name(enum sweep_goal goal) { return goals[goal]; }
