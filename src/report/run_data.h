/* run_data: what the files of a run folder say: metrics.jsonl as curves and the newest events, config.yaml as keys and
 * values. Nothing in the folder is trusted or changed; it may be that of a run that is going on. */
#pragma once

#include "base/files/json_lines.h"
#include "report/curve.h"

#define RUN_DATA_MAX_CURVES 64
#define RUN_DATA_MAX_CLASSES 1000

/* Of step events (x: updates so far) or of epoch events (x: epochs so far). */
struct run_curve {
    char name[64]; /* of the field: "loss", "val_loss" */
    bool is_of_steps;
    struct curve curve;
};

/* A key of the config by its dotted path; items of a list of mappings have their index in it. */
struct run_key {
    char *key, *value; /* value: YAML in one line */
};

enum run_state { RUN_EMPTY, RUN_RUNNING, RUN_COMPLETE, RUN_STOPPED, RUN_FAILED };
extern const char *const run_states[];

struct run_data {
    char *path;  /* of the folder, without a slash at its end */
    char *label; /* its name, for legends */
    struct line_file file;
    bool is_locked;  /* a process has the run (seen on this host only, where file systems do not share locks) */
    double modified; /* when metrics.jsonl was written, in seconds since 1970; NAN: there is none */
    struct run_curve *curves; /* (curve_count), in the order in which their fields came first */
    size_t curve_count;
    char *device, *fingerprint;                                      /* of the newest `start` or `resume`; NULL: none */
    double world_size, parameters, train_rows, val_rows, batch_size; /* NAN: unknown */
    double epochs, steps, samples, seconds;                          /* of the newest event that has them */
    double epoch_updates;                                            /* of an epoch; NAN: no whole one is known */
    double best_epoch, best_value;                                   /* NAN: none yet */
    bool best_is_max;                                                /* a larger value is better */
    const char *best_metric;                                         /* which: best_value is one of its curve */
    double test_loss, test_accuracy, test_rows;                      /* of the end; NAN: none */
    char *baseline;                          /* "always the most frequent class", of the end; NULL: none */
    double baseline_loss, baseline_accuracy; /* of the validation rows; NAN: none */
    double peak_memory;                      /* bytes; NAN: unknown */
    uint64_t resumes, skipped, rollbacks, failed_checkpoints;
    bool has_begun, has_ended, has_stopped; /* the last line is `end` or `stopped` */
    char sha256[65];                        /* "": none */
    double *confusion;                      /* (classes, classes): rows are targets; of the newest epoch with one */
    size_t classes;
    struct run_key *keys; /* (key_count), of the resolved config */
    size_t key_count;
};

/* Reads the run folder [path]. STATUS_DATA for a folder that is absent or none of a run. */
status run_data_read(const char *path, struct run_data **out);
/* What was added since; begins anew where the files are others. */
status run_data_update(struct run_data *run);
void run_data_free(struct run_data *run); /* takes NULL */

enum run_state run_data_state(const struct run_data *run);
/* NULL: there is none. */
const struct curve *run_data_curve(const struct run_data *run, const char *name, bool is_of_steps);
/* Its last value; NAN: none. */
double run_data_last(const struct run_data *run, const char *name, bool is_of_steps);
/* The value of a key; NULL: the config has none. */
const char *run_data_key(const struct run_data *run, const char *key);
/* A number of the config; NAN: not given. */
double run_data_number(const struct run_data *run, const char *key);
