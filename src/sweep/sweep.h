/* sweep: trains one config many times with other values of some keys. The process that calls it is the coordinator: it
 * hands out runs to worker processes, decides which continue, and alone writes the table. Or several such processes
 * share the sweep, each with workers of its own, and only the last one writes the table. */
#pragma once

#include "base/log.h"
#include "dist/process/env.h"
#include "sweep/sweep_config.h"

struct sweep_options {
    const char *folder; /* of the sweep */
    bool is_fresh;      /* an earlier sweep in it is moved aside */
    bool is_shared;     /* with other processes (claims.h); never together with is_fresh */
    double lease;       /* is_shared: seconds of silence after which another process is given up */
    int workers;        /* processes of this rank, >= 1 */
    int threads;        /* of each */
    /* One rank, or one of several that a launcher has started: then rank 0 calls sweep_run and the others
     * sweep_run_worker, and each is one worker. */
    const struct dist_env *env;
    const char *no_gpu;      /* as worker_options' */
    double grace;            /* seconds that workers have to save after a stop request */
    struct text *folder_now; /* set to where the folder is at the end, which may have been moved; NULL: not wanted */
};

/* STATUS_STOPPED after a request to stop: the same command continues. OK also where trials have failed, unless all
 * have. */
status sweep_run(const struct sweep_file *file, const struct sweep_options *options, struct log *log);

/* A rank other than 0: works for the coordinator until the sweep ends. Waits [timeout] seconds for it at first.
 * STATUS_PEER: it was not reached, or was lost. */
status sweep_run_worker(const struct sweep_file *file, const struct sweep_options *options, double timeout);
