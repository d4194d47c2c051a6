/* save: what the loop keeps of its state, and when; saver.c is the thread that writes it. */
#ifndef TRAIN_SAVE_H
#define TRAIN_SAVE_H

#include <stdbool.h>

#include "base/status.h"
#include "train/parts.h"

/* Before everything else. [is_resumed]: the state is that of a checkpoint. */
void save_open(struct trainer *trainer, bool is_resumed);

/* Before the first step: a roll-back needs a checkpoint. As save_if_good. All ranks. */
status save_first(struct trainer *trainer, const char **nonfinite);

/* Without checkpoint.save_every a state is saved at the end of an epoch when that is expected to cost at most this
 * share of the time since the last save, and whenever so many seconds have passed. */
#define SAVE_SHARE 0.01
#define SAVE_SECONDS 600.0
bool save_is_automatic(const struct config *config);
/* Adds when checkpoints are written, in words. */
void save_describe(const struct config *config, struct text *out);
/* Rank 0's clock: SAVE_SECONDS are over. The other ranks get it by the control all-reduce of the
 * step. */
bool save_is_overdue(const struct trainer *trainer);
/* At the end of an epoch: rank 0 decides for all whether save_is_due is true. All ranks. */
status save_decide(struct trainer *trainer);

/* So long an evaluation that a save which is due after it is also made before it: what was trained is not lost when the
 * process ends meanwhile. */
#define LONG_EVALUATION 10.0 /* seconds */
/* Before an evaluation, where a save is due after it. [nonfinite] as save_if_good's. All ranks. */
status save_before_evaluation(struct trainer *trainer, const char **nonfinite);

/* Whether checkpoint.save_every, or save_request since the last save, asks for a save here. [is_applied]: the step
 * before changed the parameters. */
bool save_is_due(const struct trainer *trainer, bool is_epoch_end, bool is_applied);

/* Saves a state once. One that is not finite is not saved: *nonfinite is the name of a parameter or of a running
 * statistic, else NULL. A save that fails is a warning. All ranks. */
status save_if_good(struct trainer *trainer, const char **nonfinite);

/* The same as checkpoints/best.h5, besides the saves that are due. All ranks. */
status save_best(struct trainer *trainer, const char **nonfinite);

/* As save_if_good, and the state is on disk when it returns OK, unless *nonfinite: before the run reports its end, and
 * nothing may change it meanwhile. All ranks. */
status save_last(struct trainer *trainer, const char **nonfinite);

/* Waits for the save under way (one that failed is a warning) and follows a run folder that was moved, so that the
 * newest checkpoint can be read; *written: the place of the run in it. All ranks. */
status save_complete(struct trainer *trainer, struct guard_place *written);

/* The current state is that of the newest checkpoint; that of no checkpoint. The same on all ranks. */
void save_mark(struct trainer *trainer);
void save_forget(struct trainer *trainer);

/* A save is due by rank 0's clock (save_is_overdue). The same on all ranks. */
void save_request(struct trainer *trainer);

#endif
