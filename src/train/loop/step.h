/* step: one update of the parameters, from its micro-batches to its line in metrics.jsonl. All ranks. */
#pragma once

#include "train/loop/trainer.h"

/* The same on all ranks. */
struct step_result {
    enum {
        STEP_DONE,     /* the step was applied, skipped or enqueued */
        STEP_REPEATED, /* the step before was not finite and was repeated; the one enqueued after it did not run */
        STEP_ROLL_BACK /* not finite; the run needs recovery_roll_back */
    } outcome;
    bool is_applied; /* with STEP_DONE: the step changed the parameters; true for one that is enqueued */
    bool must_stop;  /* a rank received a stop request */
};

/* Before the first step. */
status step_open(struct trainer *trainer);
void step_close(struct trainer *trainer); /* also after a run that did not open it */

/* The position in the data of the next step. */
struct data_position step_position(const struct trainer *trainer);

/* Runs or enqueues the next step. STATUS_NOT_FINITE: the run ends by train.on_nonfinite. Sets result->must_stop, never
 * clears it. */
status step_run(struct trainer *trainer, struct step_result *result);

/* Completes the pending step, if there is one, and repeats it if it was not finite; after it the state is consistent.
 */
status step_finish(struct trainer *trainer, struct step_result *result);

/* Instead of step_run: skips the step, after a roll-back. */
status step_skip(struct trainer *trainer, struct step_result *result);
