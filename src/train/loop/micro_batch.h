/* micro_batch: runs the micro-batches of an update: load, forward, loss, backward. The last one reduces gradients by
 * the averaging method and, if the device makes the update, applies it. */
#ifndef TRAIN_MICRO_BATCH_H
#define TRAIN_MICRO_BATCH_H

#include "train/loop/trainer.h"
#include "train/loop/update.h"

/* Before the first step. */
status micro_batches_open(struct trainer *trainer);
void micro_batches_close(struct trainer *trainer);

/* The number of micro-batches of the next update: train.accumulate, fewer at the end of an epoch. */
size_t micro_batches_of_update(const struct trainer *trainer);

/* Runs them and advances the counters; sets update->batches and update->rows (of this rank). All ranks. */
status micro_batches_run(struct trainer *trainer, struct update *update);

/* After an update by the host, which leaves zero gradients. */
void micro_batches_applied(struct trainer *trainer);

#endif
