/* loss_scale: with float16 the loss is multiplied by a large number, so that small gradients do not vanish when they
 * are rounded, and the gradients are divided by it before they are used. The number follows torch.amp.GradScaler: it is
 * halved when gradients overflow, and that step is not applied; it is doubled after many good steps. */
#ifndef OPTIM_LOSS_SCALE_H
#define OPTIM_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/schema.h"

/* `train.grad_scaler:`, GradScaler's arguments */
struct loss_scale_config {
    double init_scale, growth_factor, backoff_factor;
    int64_t growth_interval; /* good steps in a row after which the scale grows */
};
extern const struct schema loss_scale_schema;

/* Part of the counters of a run, so part of its checkpoints. */
struct loss_scale {
    double scale;           /* what a float32 holds; 0: no step yet */
    int64_t growth_tracker; /* good steps since the scale changed */
};

/* What the next step's loss is multiplied by. */
double loss_scale_value(const struct loss_scale_config *config, const struct loss_scale *state);

/* After a step (GradScaler.update). [has_overflown]: its gradients were not finite. Never below 2^-126: 0 would be no
 * scale at all. */
void loss_scale_update(const struct loss_scale_config *config, struct loss_scale *state, bool has_overflown);

/* Whether gradients that are not finite may be the scale's fault: at 1 and below they would overflow without it. */
bool loss_scale_is_suspect(const struct loss_scale_config *config, const struct loss_scale *state);

#endif
