/* check: the work of `ddptrain check`. It makes the plan of a run and the parts of one rank, does a dry run, and
 * describes the plan. It reads no rows and writes nothing. */
#ifndef TRAIN_CHECK_H
#define TRAIN_CHECK_H

#include "base/status.h"
#include "base/text.h"
#include "dist/process/env.h"
#include "train/config.h"

/* Adds the description to [out], or with [is_graph] the drawing of the model (plan_graph.h). [env]: the ranks of the
 * run; this process is rank 0. Returns the failures that training would return before its first step, except that a GPU
 * or memory that this machine lacks is *missing (STATUS_USAGE; NULL: nothing): everything else is checked and
 * described. */
status check_run(const struct config *config, const struct dist_env *env, bool is_graph, struct text *out,
                 status *missing);

#endif
