/* sweep_config: the file of a sweep: which config is trained, with which values of which keys, and by which
 * metric trials are compared. Its keys are described in docs/sweep.md, which is generated from sweep_schema. */
#pragma once

#include "sweep/space.h"
#include "train/config/config.h"

enum sweep_method { SWEEP_GRID, SWEEP_RANDOM, SWEEP_TPE, SWEEP_LIST };
enum sweep_goal { SWEEP_AUTO, SWEEP_MINIMIZE, SWEEP_MAXIMIZE };
enum sweep_prune { PRUNE_NONE, PRUNE_ASHA, PRUNE_MEDIAN, PRUNE_HYPERBAND };

struct sweep_metric {
    const char *name; /* of a number of the epochs, as in checkpoint.best */
    int goal;         /* enum sweep_goal; of a sweep that was read never SWEEP_AUTO */
};

#define SWEEP_MAX_OTHER_METRICS 3
#define SWEEP_PARAMETERS "parameters" /* of other metrics: the number of weights of the model */
#define SWEEP_SECONDS "seconds"       /* of training */

/* Runs of a trial: every combination of seed and fold. */
struct sweep_repeat {
    int64_t seeds, folds; /* SCHEMA_NO_INT: not given */
};

struct prune_config {
    int type;                /* enum sweep_prune */
    int64_t min_epochs;      /* no run is stopped before */
    int64_t max_epochs;      /* hyperband: of a complete run; of a sweep that was read never SCHEMA_NO_INT then */
    double reduction_factor; /* asha, hyperband: of a rung's runs the best 1 / reduction_factor continue */
    int64_t startup_trials;  /* median: this many runs must be complete first */
};

struct sweep_budget {
    double seconds; /* NAN: none */
};

enum confirm_against { CONFIRM_BASE, CONFIRM_SECOND };
struct confirm_config {
    int64_t seeds; /* SCHEMA_NO_INT: no confirmation */
    int against;   /* enum confirm_against */
};

struct sweep_keep {
    const char *runs; /* "all", "none" or "best N" */
};

struct sweep_config {
    const char *config; /* path of the config of the trials, as find_file found it */
    struct string_list
        overrides; /* KEY=VALUE words for the config of all trials: the file's, then those of the command line */
    int method;    /* enum sweep_method */
    struct sweep_metric metric;
    struct section_list other_metrics; /* struct sweep_metric, at most SWEEP_MAX_OTHER_METRICS */
    struct sweep_repeat repeat;
    struct prune_config early_terminate;
    int64_t nproc_per_trial; /* processes of a run */
    int64_t trials;          /* how many; of a grid: all of them unless fewer are asked for */
    struct sweep_budget budget;
    int64_t seed;
    struct string_list constraints; /* formulas of parameters, parsed in space.constraints */
    struct confirm_config confirm;
    struct sweep_keep keep;
    bool tensorboard; /* an event file for each run */

    /* Not rows of the schema. */
    struct space space;             /* SWEEP_LIST: none */
    const char *const *const *list; /* SWEEP_LIST: (trials) KEY=VALUE words, NULL-terminated */
    const char *other; /* the config of the second of two trials (sweep_load_comparison); NULL: all have [config] */
    struct config_source *source, *other_source; /* of [config], of [other]: read once for all trials */
    int64_t kept;                                /* trials whose runs are kept, at most [trials]; INT64_MAX: all */
    int64_t runs;                                /* of a trial */
    int64_t folds;                               /* 1: none */
};

/* The keys but `parameters` and the list of `trials`. */
extern const struct schema sweep_schema;

/* The direction of a metric of that name, as `mode: auto` of checkpoint.best has it. */
enum sweep_goal sweep_goal_of(const char *metric);
/* Other metric [index]. */
const struct sweep_metric *sweep_other_metric(const struct sweep_config *sweep, size_t index);
/* "random": the name of a method in the file. */
const char *sweep_method_name(enum sweep_method method);
/* "minimize" or "maximize". */
const char *sweep_goal_name(enum sweep_goal goal);

struct sweep_file;

/* Reads [path] with the KEY=VALUE words [overrides] (count): those of a key of the sweep change the sweep, all others
 * the config of the trials. Checks every value of every parameter against the config. STATUS_USAGE lists each problem
 * as file:line:column. */
status sweep_load(const char *path, char *const *overrides, size_t count, struct sweep_file **out);
void sweep_free(struct sweep_file *file); /* takes NULL */
const struct sweep_config *sweep_file_config(const struct sweep_file *file);

/* Two trials, the configs [a] and [b] with the same [overrides] (count), each with [seeds] seeds and in [processes] for
 * each run; [metric] is compared in its own direction. No run folder is kept. STATUS_USAGE as sweep_load. */
status sweep_load_comparison(const char *a, const char *b, char *const *overrides, size_t count, int64_t seeds,
                             int64_t processes, const char *metric, struct sweep_file **out);

/* The config of the trials, without parameters; of the second one of a comparison, NULL: there is none. */
const struct config *sweep_file_base(const struct sweep_file *file);
const struct config *sweep_file_other(const struct sweep_file *file);
/* The resolved config of the trials, and the second one of a comparison; false: there is none. */
void sweep_write_base(const struct sweep_file *file, struct text *out);
bool sweep_write_other(const struct sweep_file *file, struct text *out);
/* The resolved sweep and configs: what must be the same on all ranks of a sweep. */
void sweep_write_all(const struct sweep_file *file, struct text *out);

/* The resolved sweep, which reads to the same. */
void sweep_write(const struct sweep_config *sweep, struct text *out);

/* *out: the config of run [repeat] (below sweep->runs) of trial [trial], which the caller frees (config_free). [point]:
 * the values of the parameters; NULL: without parameters, also without the values of a list. [trial] is used for
 * SWEEP_LIST, whose values are those of the list, and for a comparison (sweep_load_comparison), whose trial 1 has the
 * second config; otherwise [point] says everything. STATUS_USAGE for values that do not go together. */
status sweep_trial_config(const struct sweep_config *sweep, int64_t trial, const struct point *point, int64_t repeat,
                          struct config_file **out);

/* Point [trial] of a grid or of random draws: a function of the sweep and the number. */
void sweep_point(const struct sweep_config *sweep, int64_t trial, struct point *out);

/* The generator of trial [trial]. */
void sweep_rng(const struct sweep_config *sweep, int64_t trial, struct rng *rng);

/* A sweep with one seed where [sweep] has no repeat.seeds, else without: its runs, which have other paths, are those of
 * the first seed of [sweep]. */
struct sweep_config sweep_with_other_seeds(const struct sweep_config *sweep);

/* The seed of a repeat is the config's plus sweep_seed_of; -1: there are no seeds. The fold; -1: there are none. */
int64_t sweep_seed_of(const struct sweep_config *sweep, int64_t repeat);
int64_t sweep_fold_of(const struct sweep_config *sweep, int64_t repeat);

/* What metrics.jsonl calls the metric of the test rows: adds "test_auc" for "val_auc"; nothing: the metric is none of
 * an evaluation. */
void sweep_add_test_name(const struct sweep_config *sweep, struct text *out);
