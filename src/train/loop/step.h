/* step: one update of the parameters, from its micro-batches to its line in metrics.jsonl. All ranks.
 *
 * A step is enqueued (load, forward, backward, reduce, measure) and completed (read, control all-reduce, decide,
 * update, log). If the host makes the update, a step is completed immediately. A GPU that records passes checks the
 * numbers and makes the update itself, in the same recording: then the next step is enqueued before this one is
 * completed. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/loop/trainer.h"

/* The same on all ranks. */
struct step_result {
    enum {
        STEP_DONE,     /* the step was applied, skipped or enqueued */
        STEP_REPEATED, /* the previous step was not finite and was run again; this one was not run */
        STEP_ROLL_BACK /* not finite; the run needs recovery_roll_back */
    } outcome;
    bool must_stop; /* a rank received a stop request */
};

/* Before the first step. */
status step_open(struct trainer *trainer);

/* The position in the data of the next step. */
struct data_position step_position(const struct trainer *trainer);

/* Runs or enqueues the next step. STATUS_NOT_FINITE: the run ends by train.on_nonfinite. Sets result->must_stop, never
 * clears it. */
status step_run(struct trainer *trainer, struct step_result *result);

/* Completes the pending step, if there is one; after it the state is consistent. */
status step_finish(struct trainer *trainer, struct step_result *result);

/* Instead of step_run: skips the step, after a roll-back. */
status step_skip(struct trainer *trainer, struct step_result *result);

#endif
