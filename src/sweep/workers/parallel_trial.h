/* parallel_trial: a run of a sweep in several processes (nproc_per_trial): this program is started as a user would
 * start it, and its metrics.jsonl is read meanwhile. */
#ifndef SWEEP_PARALLEL_TRIAL_H
#define SWEEP_PARALLEL_TRIAL_H

#include "train/run/run.h"

struct parallel_trial {
    const struct config *config;
    const char *folder; /* of the run */
    int64_t nproc;
    const volatile sig_atomic_t *stop; /* the run is then asked to stop */
    const char *metric;                /* of the epochs, for on_epoch */
    run_epoch_function *on_epoch;      /* called for each epoch that metrics.jsonl has, from its first on; NULL: none */
    void *user;
};

/* As run_train: OK, STATUS_STOPPED, or why the run failed, in its own words. */
status parallel_trial_run(const struct parallel_trial *trial, struct run_summary *summary);

#endif
