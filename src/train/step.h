/* step: one update of the parameters, from its micro-batches to its line in metrics.jsonl. All ranks. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/trainer.h"

/* Before the first step. */
void step_open(struct trainer *trainer);

/* Where the micro-batches of the next step begin. */
struct guard_place step_place(const struct trainer *trainer);

/* The next step. The counters stand behind it, or where a roll-back took them. *must_stop: a rank was asked to stop. As
 * trainer_run what ends the run. */
status step_run(struct trainer *trainer, bool *must_stop);

/* Instead: a step that a roll-back leaves out. */
status step_pass_over(struct trainer *trainer);

#endif
