/* check: what `ddptrain check` does: makes the plan of a run, then the parts of one rank as the run would before its
 * first step, with a dry run, and describes the plan. Rows are not read and nothing is written. */
#ifndef TRAIN_CHECK_H
#define TRAIN_CHECK_H

#include "base/status.h"
#include "base/text.h"
#include "dist/process/env.h"
#include "train/config.h"

/* [env]: the ranks that would share the work; this process is rank 0. The failures that training would have before its
 * first step. *missing: NULL, or what only this machine lacks, a GPU or memory: STATUS_USAGE as training would say it;
 * everything else was checked and is described. */
status check_run(const struct config *config, const struct dist_env *env, struct text *out, status *missing);

#endif
