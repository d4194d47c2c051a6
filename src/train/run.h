/* run: the complete run of a rank: opens the data, plans the model, joins the group, compares the ranks, resumes,
 * trains, reports, and frees everything, also after a failure. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <signal.h>
#include <stdbool.h>

#include "base/log.h"
#include "base/status.h"
#include "dist/process/env.h"
#include "dist/store/store.h"
#include "train/config.h"

struct run_options {
    const char *folder;                /* --run-dir; NULL: runs/<name> */
    bool is_fresh;                     /* --fresh */
    const volatile sig_atomic_t *stop; /* set by SIGINT or SIGTERM; NULL: never */
    volatile sig_atomic_t
        *can_save; /* set when training begins: a stop request then waits for a save; NULL: not needed */
    volatile sig_atomic_t *stop_fd;  /* as in store_options, until [can_save] is set; NULL: not needed */
    store_overdue_function *overdue; /* as in store_options; NULL: none */
    double started;                  /* clock_seconds() when the program started */
};

/* Trains. [log] is used on rank 0 only. OK also for a run that is already complete. All ranks. */
status run_train(const struct config *config, const struct dist_env *env, const struct run_options *options,
                 struct log *log);

#endif
