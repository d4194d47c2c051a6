/* micro_batch: what an update is made from: batches of the loader, each through forward, loss and backward; the last
 * one reduces gradients as the way of averaging does it, and where the device decides, makes the update. */
#ifndef TRAIN_MICRO_BATCH_H
#define TRAIN_MICRO_BATCH_H

#include "train/parts.h"
#include "train/update.h"

/* Before the first step. */
void micro_batches_open(struct trainer *trainer);

/* Micro-batches of the update that starts now: train.accumulate, fewer at the end of an epoch. */
size_t micro_batches_of_update(const struct trainer *trainer);

/* All of them; the counters are behind them afterwards. update->batches and ->rows (of this rank) are set. All ranks.
 */
status micro_batches_run(struct trainer *trainer, struct update *update);

/* The host made the update, which leaves gradients zero. */
void micro_batches_applied(struct trainer *trainer);

#endif
