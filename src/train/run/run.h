/* run: the complete run of a rank: opens the data, plans the model, joins the group, compares the ranks, resumes,
 * trains, reports, and frees everything, also after a failure. */
#pragma once

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "dist/process/env.h"
#include "dist/store/store.h"
#include "model/model.h"
#include "train/config/config.h"
#include "train/plan/plan.h"

struct checkpoint;
struct dataset;
struct run;
struct state;

/* The result of a run that ended or was stopped. */
struct run_summary {
    int64_t epochs, steps;
    double best_value;         /* of checkpoint.best's metric, or of the default one; NAN: none */
    int64_t best_epoch;        /* from 1; 0: none */
    double seconds;            /* of the training steps, also those of earlier processes */
    double evaluation_seconds; /* of the evaluations in this process */
    char state_sha256[65];     /* hex */
};

/* After an epoch (from 1), with its value of checkpoint.best's metric; NAN: this epoch has none. [is_last]: the run
 * ends with it. Rank 0. */
typedef void run_epoch_function(void *user, int64_t epoch, double value, bool is_last);

struct run_options {
    const char *folder;  /* --run-dir; NULL: runs/<name> */
    bool is_fresh;       /* --fresh */
    int64_t stop_after;  /* --stop-after: the run stops after this update, as on request; 0: before the first one;
                            -1: none */
    const char *trace;   /* --trace: file for everything of that update (trace.h); NULL: none */
    const char *save_at; /* --save-at: "5,10": saves after these updates, too (save_set_steps); NULL: none */
    store_overdue_function *overdue; /* as in store_options; NULL: none */
    double started;                  /* clock_seconds() when the program started */

    /* Of runs that a program makes one after another. */
    bool writes_nothing;          /* no run folder, no log; one rank */
    bool is_in_sweep;             /* a deleted run folder is not created anew where the folder around it is gone, too */
    struct dataset *dataset;      /* what config.dataset describes, opened and shared (dataset_retain), which run_train
                                     closes; NULL: run_train opens it */
    run_epoch_function *on_epoch; /* NULL: none */
    void *user;                   /* of on_epoch */
    struct run_summary *summary;  /* filled when the run ends or is stopped; NULL: not wanted. Rank 0 */
    struct run **parts;           /* with writes_nothing; in: those of an earlier run whose config differs from this one
                                     in the optimizer and the seeds alone, and which does not update in backward, or
                                     NULL; out: those of this run, or NULL. The config of the first run of [parts] must
                                     live as long. NULL: none are kept */
};

void run_parts_destroy(struct run *parts); /* takes NULL */
/* How many runs run_train_group can train at once; 0: none. [config]: of the first run of [parts] (NULL: 0). */
size_t run_parts_lanes(struct run *parts, const struct config *config);

/* Trains. [log] is used on rank 0 only. OK also for a run that is already complete. All ranks. */
status run_train(const struct config *config, const struct dist_env *env, const struct run_options *options,
                 struct log *log);

/* Trains [count] runs at once, at most run_parts_lanes, with [options]->parts, to which run_train's conditions apply,
 * and without on_epoch: summaries (count) and their numbers are those of run_train for each. is_trained (count): false
 * for a run that run_train is to train, because it differs from the others, failed or diverged. STATUS_STOPPED: none is
 * trained. */
status run_train_group(const struct config *const *configs, size_t count, const struct dist_env *env,
                       const struct run_options *options, struct log *log, struct run_summary *summaries,
                       bool *is_trained);

/* The failures that run_train would have before it connects to other ranks, and rank 0 when it loads what it starts
 * from: bad rows, model.init_from, checkpoint.resume, a checkpoint of the run folder that does not fit. Reads all rows,
 * needs the memory of a rank, and changes nothing. */
status run_try_start(const struct config *config, const struct dist_env *env, const struct run_options *options);

/* Loads [checkpoint], the file of checkpoint.resume, after it was compared with the config: its dataset, extensions and
 * number of ranks. [state] without a dataset and not mapped: compares only. Adds a warning without the file's name. */
status run_load_named(const struct plan *plan, struct state *state, struct checkpoint *checkpoint,
                      struct text *warning);

/* ---- the work of `ddptrain check` (check.c): the plan of a run and the parts of one rank, a dry run, and the
 * description of the plan. It writes nothing. ---- */

struct check_options {
    bool prints_dot;     /* describe the model only, as a drawing for Graphviz */
    const char *run_dir; /* folder of the run; NULL: runs/<name> */
    bool reads_all;      /* read all rows of the dataset; else only its metadata */
};

/* Adds the description to [out]. [env]: the ranks of the run; this process is rank 0. Returns the failures that
 * training would return before its first step, except that a GPU or memory that this machine lacks is *missing
 * (STATUS_USAGE; NULL: nothing): everything else is checked and described. */
status check_run(const struct config *config, const struct dist_env *env, const struct check_options *options,
                 struct text *out, status *missing);

/* Adds "label, by its name (dataset.targets names another)"; of arrays the array or the file.
 * Nothing if targets have no names. */
void plan_describe_target(const struct dataset *dataset, const struct dataset_config *config, struct text *out);

/* Adds "0.5, 2, and 30 more", the weights of `weight: balanced`. */
void plan_describe_class_weights(const struct dataset_info *info, struct text *out);

/* Adds the warning for a run with [plan] in [folder], without a newline; nothing if there is none. It compares with the
 * folder's config.yaml, so it is called before that is replaced. A folder that is absent or cannot be read counts as
 * none. Rank 0. */
void schedule_warn(const struct plan *plan, const char *folder, struct text *out);
