/* trainer: the loop: steps, and what is due after them. run.c creates its parts. All ranks make the same calls in the
 * same order. It connects the files below it: a step that needs a roll-back, the save that comes before it. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/parts.h"

/* Trains from where the state is to the end of the run and saves the last state. *is_stopped, on all ranks: it ended
 * before that, on a request to stop; the state is saved. STATUS_NOT_FINITE, on all ranks in the same step, when the
 * loss or a gradient is not finite and train.on_nonfinite does not let the run go on; STATUS_DIVERGED when the states
 * of the ranks differ; then nothing is saved after the last good checkpoint. All ranks.
 * [is_resumed]: the state is that of a
 * checkpoint of this folder or of checkpoint.resume. */
status trainer_run(struct trainer *trainer, bool is_resumed, bool *is_stopped);

#endif
