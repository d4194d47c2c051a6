/* progress: how far a run is, and the rates that follow from it. The same on all ranks. */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include "train/schedule.h"
#include "train/trainer.h"

int64_t progress_total_steps(const struct trainer *trainer);
struct schedule_progress progress_of(const struct trainer *trainer);

/* What the schedule makes of a group's [base_lr] now: optimizer_rate, of a struct trainer. */
double progress_rate(const void *trainer, double base_lr);
/* The optimizer's own rate, for the log. */
double progress_lr(const struct trainer *trainer);

#endif
