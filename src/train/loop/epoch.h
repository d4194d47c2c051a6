/* epoch: the end of an epoch: evaluation, best value, early stop, schedule, log. All ranks. */
#pragma once

#include "train/loop/trainer.h"

/* Whether the validation rows are evaluated after the current epoch. [is_last]: of the run. */
bool epoch_evaluates(const struct trainer *trainer, bool is_last);

/* Evaluates into trainer->epoch.result. *must_stop is set, on all ranks in the same batch, when a rank received a stop
 * request: then there is no result, and the state is unchanged. STATUS_NOT_FINITE: the validation loss is not finite;
 * STATUS_DATA: it is not defined, because no target counts. */
status epoch_evaluate(struct trainer *trainer, bool *must_stop);

/* Evaluates the test rows into trainer->test.result with the weights of the model, or [with_average] with their moving
 * average, if the run has one. *must_stop as above. */
status epoch_evaluate_test(struct trainer *trainer, bool with_average, bool *must_stop);

/* After epoch_evaluate, if that is due: reports the epoch and resets its counters. [is_whole]: all its batches are done
 * (a run by steps may end within an epoch). */
status epoch_finish(struct trainer *trainer, bool is_whole, bool is_last);
