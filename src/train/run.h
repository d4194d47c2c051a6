/* run: one rank's whole run: joins the group, opens the data, plans the model, resumes, agrees with the other ranks,
 * trains, says how it went, and cleans up, also after a failure. */
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
    volatile sig_atomic_t *can_save; /* set when training begins: a stop must now wait for a save; NULL: nobody asks */
    volatile sig_atomic_t *stop_fd;  /* store_options': while [can_save] is not set; NULL: nobody asks */
    store_overdue_function *overdue; /* store_options'; NULL: none */
    double started;                  /* clock_seconds() when the program started */
};

/* Trains. [log] is used on rank 0 only. OK also for a run that was complete before. All ranks. */
status run_train(const struct config *config, const struct dist_env *env, const struct run_options *options,
                 struct log *log);

#endif
