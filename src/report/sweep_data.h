/* sweep_data: what the files of a sweep's folder say: sweep.yaml (parameters, metric, number of trials) and
 * history.jsonl (the runs that have ended, in their order). Unlike src/sweep it only reads, also beside a sweep that is
 * going on, and leaves out lines that are damaged instead of ending there. */
#pragma once

#include "base/files/json_lines.h"
#include "report/run_data.h"
#include "sweep/trials.h"

#define SWEEP_DATA_MAX_PARAMETERS SPACE_MAX_PARAMETERS
#define SWEEP_DATA_MAX_RUNS 10000000

/* Its values are numbers, or else words of which a point has the index. */
struct sweep_data_parameter {
    const char *path;
    bool is_number, is_log, is_int;
    double low, high;   /* is_number: of the distribution, or of the values */
    const char **words; /* (word_count): of the values, as in the file */
    size_t word_count;
};

/* A run that has ended; a trial has one for each repeat. There may be millions, so both structures are small. */
struct sweep_data_run {
    double value, seconds;
    uint64_t offset; /* of its line in the history */
    int32_t trial, repeat;
    int16_t message; /* index of reasons; -1: none */
    uint8_t state;   /* enum trial_state */
};

struct sweep_data_trial {
    double mean, error; /* as trial_summary's */
    double pruned;      /* mean of the values of pruned runs; NAN: none */
    double seconds;
    int64_t trial;
    uint32_t first;          /* index of its first run */
    uint32_t complete, runs; /* complete, ended */
    uint32_t order;          /* how many trials ended before it */
    uint8_t state;           /* as trial_summary's */
    bool is_on_front;        /* of the complete trials, by all metrics; false where there is one */
};

/* Runs that failed for the same reason but for numbers in it. */
struct sweep_data_reason {
    char *message; /* of the first one */
    size_t count;
};

struct sweep_data {
    char *path, *label;
    struct line_file file;
    bool is_locked, has_stopped; /* has_stopped: in order, and nothing was added since */
    double modified;             /* of the history; NAN: there is none */
    char *history;               /* the file with the runs: history.jsonl, or, of a shared sweep, the one of now */
    uint64_t history_size;
    struct arena *arena; /* of what sweep.yaml says */
    const char *method, *metric, *config, *early;
    const char *other;     /* of a comparison: the config of trial 1; NULL: a sweep */
    const char *overrides; /* of the config, quoted for a shell, each with a blank before it; "": none */
    bool is_max;
    const char *others[SWEEP_MAX_OTHER_METRICS]; /* (other_count) names of the other metrics */
    bool is_other_max[SWEEP_MAX_OTHER_METRICS];
    size_t other_count, front;               /* front: trials on the Pareto front */
    int64_t trial_count;                     /* asked for; -1: unknown */
    int64_t seeds, folds;                    /* of a trial; 0: not given */
    struct sweep_data_parameter *parameters; /* (parameter_count) */
    size_t parameter_count;
    struct sweep_data_run
        *runs;          /* (run_count), in the order in which they ended; of a run that is there twice the last */
    double *points;     /* (run_count, parameter_count) */
    double *run_others; /* (run_count, other_count); NULL: other_count is 0 */
    double *others_of;  /* the same, of trials: sweep_data_other */
    size_t run_count, run_capacity;
    struct sweep_data_reason *reasons; /* (reason_count), of failed runs */
    size_t reason_count;
    size_t counts[4]; /* runs by enum trial_state; PENDING: 0 */
    /* Of all runs that were read, by sweep_data_update. */
    struct sweep_data_trial *trials; /* (trial_total), the best first, then those without a mean */
    size_t trial_total, ranked;      /* ranked: complete trials, which come first */
};

/* Whether [path] is the folder of a sweep. */
status sweep_data_is_sweep(const char *path, bool *out);
/* STATUS_DATA for a folder without a readable sweep.yaml. */
status sweep_data_read(const char *path, struct sweep_data **out);
/* What was added since. */
status sweep_data_update(struct sweep_data *sweep);
void sweep_data_free(struct sweep_data *sweep); /* takes NULL */

/* (parameter_count) of the trial; NAN: not given. */
const double *sweep_data_point(const struct sweep_data *sweep, const struct sweep_data_trial *trial);

/* The mean of other metric [index] of a trial; NAN: it has none. */
double sweep_data_other(const struct sweep_data *sweep, const struct sweep_data_trial *trial, size_t index);

/* The state's SHA-256 of the first run of a trial, from history.jsonl; the caller frees it. "": there is none. */
char *sweep_data_hash(const struct sweep_data *sweep, const struct sweep_data_trial *trial);

/* Runs of a trial. */
int64_t sweep_data_repeats(const struct sweep_data *sweep);
/* Runs asked for; -1: unknown. */
int64_t sweep_data_total(const struct sweep_data *sweep);
/* Whether every trial has ended. */
bool sweep_data_is_complete(const struct sweep_data *sweep);
/* "running", "complete", "stopped" or "not complete". */
const char *sweep_data_state(const struct sweep_data *sweep);
bool sweep_data_is_better(const struct sweep_data *sweep, double a, double b);

/* Adds "optimizer.lr=0.01" for each parameter of a trial, the words separated by [separator]; quoted for a shell. */
void sweep_data_add_words(const struct sweep_data *sweep, const struct sweep_data_trial *trial, const char *separator,
                          struct text *out);
/* Adds the mean of a trial, with its standard error after [sign] if there is one: "97.31 % +- 0.42 %", "0.123 +-
 * 0.004". */
void sweep_data_add_mean(const struct sweep_data *sweep, const struct sweep_data_trial *trial, const char *sign,
                         struct text *out);
/* Adds the value of one parameter. */
void sweep_data_add_value(const struct sweep_data_parameter *parameter, double value, struct text *out);
/* Adds the command that trains the trial's first run again, to the same bits; of a comparison with the resolved config
 * in the folder. */
void sweep_data_add_command(const struct sweep_data *sweep, const struct sweep_data_trial *trial, struct text *out);

/* ---- how much a parameter explains ---- */

#define IMPORTANCE_MIN_VALUES 10

/* The share, 0 to 1, of the variance of the ranks of metric (count) that the means over groups of equal or neighbouring
 * values explain, corrected for what chance explains: epsilon squared of a one-way analysis of variance on ranks,
 * (SSB - (k-1) MSW) / SST with k groups. Numbers are put into up to ten groups of about equal size (sqrt(count / 5) of
 * them), words are groups by themselves (!is_number). Ranks make it independent of the scale of both. NAN: fewer than
 * IMPORTANCE_MIN_VALUES values, a metric that is the same for all, or only one group. Values that are NAN are a group.
 */
double importance_share(const double *metric, const double *values, size_t count, bool is_number);

/* Spearman's rank correlation; NAN where one of both is constant or a value is NAN. */
double importance_correlation(const double *metric, const double *values, size_t count);
