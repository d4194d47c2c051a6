/* progress: the progress of a run and the learning rates that depend on it. The same on all ranks. */
#pragma once

#include "optim/schedule.h"
#include "train/loop/trainer.h"

/* Whether train.early_stop ends the run here. */
bool progress_stops_early(const struct config *config, const struct counters *counters);
/* Whether the run is finished. */
bool progress_is_complete(const struct config *config, const struct counters *counters);
/* Applied and skipped steps: identifies a state within a run. */
int64_t progress_attempted_steps(const struct counters *counters);

int64_t progress_total_steps(const struct trainer *trainer);
double progress_fraction(const struct trainer *trainer); /* of the run that is done, 0 to 1 */
struct schedule_progress progress_of(const struct trainer *trainer);
/* The same of a run at another place, without reductions of the rate. */
struct schedule_progress progress_at(const struct train_config *config, int64_t steps_per_epoch, int64_t epoch,
                                     int64_t step);

/* The scheduled rate of the optimizer at [progress], for the log. */
double progress_lr(const struct trainer *trainer, const struct schedule_progress *progress);
