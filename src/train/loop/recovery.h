/* recovery: handles a step whose loss, gradients or running statistics are not finite, which all ranks know from the
 * control all-reduce of the step: finds and reports the origin, and applies train.on_nonfinite. */
#pragma once

#include "train/loop/trainer.h"

struct bad_step {
    struct data_position first; /* of its micro-batches */
    size_t batches;
    const char *what; /* "the loss is", "gradients are" */
};

/* Before the first step, and after the last. All ranks. */
status recovery_open(struct trainer *trainer);
void recovery_close(struct trainer *trainer);

/* Whether the micro-batches of the step that begins at [position] are skipped after a roll-back. */
bool recovery_skips(const struct trainer *trainer, struct data_position position);

/* After a step that was not applied; its micro-batches are consumed. OK: the run continues, after recovery_roll_back if
 * *needs_roll_back is set. STATUS_NOT_FINITE, with the layer and the rows: the run ends. All ranks. */
status recovery_run(struct trainer *trainer, const struct bad_step *bad, bool *needs_roll_back);

/* Gradients overflowed float16, possibly because of the loss scale: the step is skipped and the scale reduced. This is
 * not an error, and train.on_nonfinite does not apply. All ranks. */
bool recovery_is_overflow(const struct trainer *trainer, bool is_loss_finite);
status recovery_overflow(struct trainer *trainer);

/* Before a save a parameter or a running statistic was found not to be finite; [last]: position of the last step. OK: a
 * roll-back is needed, because an applied update cannot be skipped. STATUS_NOT_FINITE: the run ends. All ranks. */
status recovery_of_parameter(struct trainer *trainer, const char *parameter, struct data_position last);

/* Loads the newest checkpoint, whose position in the data is [written]; the micro-batches that caused the roll-back are
 * skipped from now on. After save_complete. STATUS_NOT_FINITE: too many roll-backs. All ranks. */
status recovery_roll_back(struct trainer *trainer, struct data_position written);
