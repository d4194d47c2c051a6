/* rank_sync: broadcasts and comparisons between ranks, other than averaging. All ranks call all functions. */
#pragma once

#include "train/loop/trainer.h"

/* Broadcasts the running statistics of rank 0, as DistributedDataParallel's broadcast_buffers, but only before an
 * evaluation or a save: a training pass does not read them. */
status rank_sync_buffers(struct trainer *trainer);

/* Sets *must_stop on all ranks if one of them received a stop request. */
status rank_sync_stop_request(struct trainer *trainer, bool *must_stop);

/* Verifies that the states of all ranks are equal (agreement_check, which needs the state mapped; this maps it). */
status rank_sync_verify(struct trainer *trainer, bool with_buffers);

/* Verifies that the rows in the memory of each rank are those that were read, where that takes less than 1 % of the
 * time since the last time. STATUS_DIVERGED names the rank and the rows, the same on all ranks. */
status rank_sync_verify_rows(struct trainer *trainer);
/* Before the first step. */
void rank_sync_open_rows(struct trainer *trainer);

/* loader_seek of the training rows; verifies that a sampler of an extension has drawn the same rows on all ranks:
 * STATUS_DATA with the first index that differs, the same sentence on all ranks. */
status rank_sync_seek(struct trainer *trainer, int64_t epoch, size_t batch);

/* Broadcasts the counters and the state of rank 0: parameters, running statistics, optimizer, moving average. The state
 * must be mapped (state_map). */
status rank_sync_state(struct trainer *trainer);
/* The same without optimizer and moving average, which are equal at the start of a run. */
status rank_sync_start(struct trainer *trainer);
