/* loop: the loop over steps, evaluations and saves. run.c creates its parts. All ranks make the same calls in the
 * same order. */
#pragma once

#include "train/loop/trainer.h"

/* Trains from the current state to the end of the run and saves the last state. [is_resumed]: the state is that of a
 * checkpoint. *is_stopped, on all ranks: a stop request ended the run earlier; the state is saved. STATUS_NOT_FINITE,
 * on all ranks in the same step: the loss or a gradient is not finite, and train.on_nonfinite ends the run.
 * STATUS_DIVERGED: the states of the ranks differ. After both nothing more is saved. All ranks. */
status loop_run(struct trainer *trainer, bool is_resumed, bool *is_stopped);

/* Evaluates the test rows into trainer->test.result with the weights of the model, or [with_average] with their moving
 * average, if the run has one. *must_stop is set, on all ranks in the same batch, when a rank received a stop request:
 * then there is no result. All ranks. */
status loop_evaluate_test(struct trainer *trainer, bool with_average, bool *must_stop);

/* Whether the validation rows are evaluated after the current epoch. [is_last]: of the run. */
bool loop_is_evaluated(const struct trainer *trainer, bool is_last);
/* Reports the epoch after its evaluation, if that is due, and resets its counters. [is_whole]: all its batches are done
 * (a run by steps may end within an epoch). */
status loop_complete_epoch(struct trainer *trainer, bool is_whole, bool is_last);
