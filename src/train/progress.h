/* progress: how far a run is, and the rates that follow from it. The same on all ranks. */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include "optim/schedule.h"
#include "train/parts.h"

/* Whether train.early_stop ends the run here. */
bool progress_stops_early(const struct config *config, const struct counters *counters);
/* Whether the state is that of a finished run. */
bool progress_is_complete(const struct config *config, const struct counters *counters);
/* Steps that were applied or skipped: tells apart the states of one run. */
int64_t progress_moves(const struct counters *counters);

int64_t progress_total_steps(const struct trainer *trainer);
double progress_fraction(const struct trainer *trainer); /* of the run that is done, 0 to 1 */
struct schedule_progress progress_of(const struct trainer *trainer);

/* What the schedule makes of a group's [base_lr] now: optimizer_rate, of a struct trainer. */
double progress_rate(const void *trainer, double base_lr);
/* The optimizer's own rate, for the log. */
double progress_lr(const struct trainer *trainer);

#endif
