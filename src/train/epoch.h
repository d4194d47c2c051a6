/* epoch: what is done at the end of one: evaluation, the best so far, the log. All ranks. */
#ifndef TRAIN_EPOCH_H
#define TRAIN_EPOCH_H

#include "train/parts.h"

/* Whether the validation rows are evaluated after the current epoch. [is_last]: of the run. */
bool epoch_evaluates(const struct trainer *trainer, bool is_last);

/* Evaluates; the result is in trainer->result. *must_stop is raised, on all ranks in the same batch, when a rank was
 * asked to stop: then there is no result, and the state is as before. STATUS_NOT_FINITE: the validation loss is not. */
status epoch_evaluate(struct trainer *trainer, bool *must_stop);

/* After epoch_evaluate where that is due: reports and starts the counters of the next epoch. [is_whole]: all its
 * batches were seen (a run by steps may end within an epoch). */
status epoch_finish(struct trainer *trainer, bool is_whole, bool is_last);

#endif
