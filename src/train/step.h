/* step: one update of the parameters, from its micro-batches to its line in metrics.jsonl. All ranks. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/trainer.h"

/* Before the first step. */
void step_open(struct trainer *trainer);

/* Where the micro-batches of the next step begin. */
struct guard_place step_place(const struct trainer *trainer);

/* The next step. The counters stand behind it, or where a roll-back took them. Where trainer->is_ahead, its results are
 * not there yet, only those of the one before; if those were not good, the step is not done and the counters stand
 * where the one before left them. *must_stop is raised: a rank was asked to stop. As trainer_run what ends the run. */
status step_run(struct trainer *trainer, bool *must_stop);

/* The results of the last step, so that the state is whole. *is_again: they were not good, and counters have changed.
 */
status step_finish(struct trainer *trainer, bool *must_stop, bool *is_again);

/* Instead of step_run: a step that a roll-back leaves out. */
status step_pass_over(struct trainer *trainer, bool *must_stop);

#endif
