/* share: what ranks make equal or compare, outside of averaging. All ranks call all of it. */
#ifndef TRAIN_SHARE_H
#define TRAIN_SHARE_H

#include "train/parts.h"

/* Rank 0's running statistics become everyone's, as DistributedDataParallel's broadcast_buffers: before evaluation (a
 * training pass does not read them, and rank 0 is the one that saves). All ranks. */
status share_buffers(struct trainer *trainer);

/* Whether a rank was asked to stop: *must_stop is raised on all ranks. All ranks. */
status share_stop(struct trainer *trainer, bool *must_stop);

/* Compares the states of the ranks (agreement_check). All ranks. */
status share_check_agreement(struct trainer *trainer, bool with_buffers);

/* Rank 0's counters, and its state, mapped, become everyone's: parameters, running statistics, optimizer, average. All
 * ranks. */
status share_state(struct trainer *trainer);
/* The same where optimizer and average are as every rank makes them. */
status share_start(struct trainer *trainer);

#endif
