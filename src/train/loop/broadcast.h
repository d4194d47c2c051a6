/* broadcast: broadcasts and comparisons between ranks, other than averaging. All ranks call all functions. */
#ifndef TRAIN_BROADCAST_H
#define TRAIN_BROADCAST_H

#include "train/loop/trainer.h"

/* Broadcasts the running statistics of rank 0, as DistributedDataParallel's broadcast_buffers, but only before an
 * evaluation or a save: a training pass does not read them. */
status broadcast_buffers(struct trainer *trainer);

/* Sets *must_stop on all ranks if one of them received a stop request. */
status any_rank_stops(struct trainer *trainer, bool *must_stop);

/* Compares the states of the ranks (agreement_check). */
status check_agreement(struct trainer *trainer, bool with_buffers);

/* Broadcasts the counters and the state of rank 0: parameters, running statistics, optimizer, moving average. The state
 * must be mapped (state_map). */
status broadcast_state(struct trainer *trainer);
/* The same without optimizer and moving average, which are equal at the start of a run. */
status broadcast_start(struct trainer *trainer);

#endif
