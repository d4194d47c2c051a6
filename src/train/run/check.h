/* check: the work of `ddptrain check`. It makes the plan of a run and the parts of one rank, does a dry run, and
 * describes the plan. It writes nothing. */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "dist/process/env.h"
#include "train/config/config.h"

struct check_options {
    bool prints_dot;     /* describe the model only, as a drawing (plan_describe.h) */
    const char *run_dir; /* folder of the run; NULL: runs/<name> */
    bool reads_all;      /* read all rows of the dataset; else only its metadata */
};

/* Adds the description to [out]. [env]: the ranks of the run; this process is rank 0. Returns the failures that
 * training would return before its first step, except that a GPU or memory that this machine lacks is *missing
 * (STATUS_USAGE; NULL: nothing): everything else is checked and described. */
status check_run(const struct config *config, const struct dist_env *env, const struct check_options *options,
                 struct text *out, status *missing);
