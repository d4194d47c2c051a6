/* step: one update of the parameters, from its micro-batches to its line in metrics.jsonl. All ranks.
 *
 * A step is enqueued (load, forward, backward, reduce, measure) and completed (read, control all-reduce, decide,
 * update, log). Where the host has to decide, both follow each other at once. A GPU that records passes decides about
 * the update itself and makes it in the same recording: then the next step is enqueued before this one is completed. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/parts.h"

/* What a step led to; the same on all ranks. */
struct step_result {
    enum {
        STEP_DONE,     /* the step was applied, skipped, left out or, where steps are pending, enqueued */
        STEP_REPEATED, /* the step before was not finite and was run again; this one was not run */
        STEP_ROLL_BACK /* it was not finite, and the run needs recovery_roll_back */
    } outcome;
    bool must_stop; /* a rank was asked to stop */
};

/* Before the first step. */
status step_open(struct trainer *trainer);

/* Where the micro-batches of the next step begin. */
struct guard_place step_place(const struct trainer *trainer);

/* The next step. STATUS_NOT_FINITE: the run ends, as train.on_nonfinite asks for. result->must_stop is only raised. */
status step_run(struct trainer *trainer, struct step_result *result);

/* Completes the pending step, if there is one, so that the state is whole. */
status step_finish(struct trainer *trainer, struct step_result *result);

/* Instead of step_run: a step that a roll-back leaves out. */
status step_leave_out(struct trainer *trainer, struct step_result *result);

#endif
