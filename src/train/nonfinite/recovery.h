/* recovery: a step whose loss, gradients or running statistics are not finite. All ranks know of it by the word of that
 * step; here they find out where it came from, tell each other, and do what train.on_nonfinite says. */
#ifndef TRAIN_RECOVERY_H
#define TRAIN_RECOVERY_H

#include "train/parts.h"

struct bad_step {
    struct guard_place first; /* of its micro-batches */
    size_t batches;
    const char *what; /* "the loss is", "gradients are" */
};

/* Before the first step, and after the last. All ranks. */
status recovery_open(struct trainer *trainer);
void recovery_close(struct trainer *trainer);

/* Before a step that the host decides about: what it changes besides the parameters can be restored. */
void recovery_prepare(struct trainer *trainer);

/* Whether a roll-back leaves out the group of micro-batches that begins at [place]. */
bool recovery_leaves_out(const struct trainer *trainer, struct guard_place place);

/* The step was not applied; the data is behind it. OK: the run may continue, after recovery_roll_back where
 * *needs_roll_back was raised. STATUS_NOT_FINITE: it ends, with the layer and the rows. All ranks. */
status recovery_run(struct trainer *trainer, const struct bad_step *bad, bool *needs_roll_back);

/* Gradients that overflowed float16 at a scale that may be to blame: the step is not applied, the scale shrinks.
 * Neither a fault nor a case for train.on_nonfinite. All ranks. */
bool recovery_is_overflow(const struct trainer *trainer, bool is_loss_good);
status recovery_overflow(struct trainer *trainer);

/* A parameter (or a running statistic) is not finite, found before a save; [last]: the step before. OK: a
 * roll-back is needed; an applied update cannot be skipped. STATUS_NOT_FINITE: the run ends. All ranks. */
status recovery_of_parameter(struct trainer *trainer, const char *parameter, struct guard_place last);

/* The newest checkpoint, whose place in the run is [written], becomes the state; the micro-batches that led here are
 * left out from now on. After save_complete. STATUS_NOT_FINITE: too many did not help. All ranks. */
status recovery_roll_back(struct trainer *trainer, struct guard_place written);

#endif
