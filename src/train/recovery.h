/* recovery: a step whose loss, gradients or running statistics are not finite. All ranks know of it by the word of that
 * step; here they find out where it came from, tell each other, and do what train.on_nonfinite says. */
#ifndef TRAIN_RECOVERY_H
#define TRAIN_RECOVERY_H

#include "train/trainer.h"

struct bad_step {
    struct guard_place first; /* of its micro-batches */
    size_t batches;
    const char *what; /* "the loss is", "gradients are" */
};

/* The step was not applied; the data stands behind it. OK: the run may go on from where the state now stands.
 * STATUS_NOT_FINITE: it ends, with the layer and the rows. All ranks. */
status recovery_run(struct trainer *trainer, const struct bad_step *bad);

/* Gradients that overflowed float16 at a scale that may be to blame: the step is not applied, the scale shrinks.
 * Neither a fault nor a case for train.on_nonfinite. All ranks. */
bool recovery_is_overflow(const struct trainer *trainer, bool is_loss_good);
status recovery_overflow(struct trainer *trainer);

/* A parameter (or a running statistic) is not finite, found before a save; [last]: the step before. As recovery_run,
 * but an applied update cannot be skipped. All ranks. */
status recovery_of_parameter(struct trainer *trainer, const char *parameter, struct guard_place last);

#endif
