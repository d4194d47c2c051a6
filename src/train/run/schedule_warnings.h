/* schedule_warnings: what a schedule does that is rarely wanted: a jump of the learning rate where a run is extended,
 * and a one_cycle of a single interval. */
#ifndef TRAIN_SCHEDULE_WARNINGS_H
#define TRAIN_SCHEDULE_WARNINGS_H

#include "train/plan/plan.h"

/* Adds the warning for a run with [plan] in [folder], without a newline; nothing if there is none. It compares with the
 * folder's config.yaml, so it is called before that is replaced. A folder that is absent or cannot be read counts as
 * none. Rank 0. */
void schedule_warn(const struct plan *plan, const char *folder, struct text *out);

#endif
