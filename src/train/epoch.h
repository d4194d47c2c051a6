/* epoch: what is done at the end of one: evaluation, the best so far, the log. All ranks. */
#ifndef TRAIN_EPOCH_H
#define TRAIN_EPOCH_H

#include "train/trainer.h"

/* Evaluates where that is due, reports and starts the counters of the next epoch. [is_whole]: all its batches were seen
 * (a run by steps may end within an epoch); [is_last]: of the run. STATUS_NOT_FINITE: the validation loss is not. */
status epoch_finish(struct trainer *trainer, bool is_whole, bool is_last);

#endif
