/* loss_scale: with float16 the loss is multiplied by a scale, so that small gradients do not underflow, and the
 * gradients are divided by it before the update. As in torch.amp.GradScaler the scale is halved when gradients
 * overflow, and that step is skipped; it is doubled after many finite steps. */
#pragma once

#include "base/schema/schema.h"

/* `train.grad_scaler:`, GradScaler's arguments */
struct loss_scale_config {
    double init_scale, growth_factor, backoff_factor;
    int64_t growth_interval; /* consecutive finite steps after which the scale grows */
};
extern const struct schema loss_scale_schema;

/* Part of the counters of a run and of its checkpoints. */
struct loss_scale {
    double scale;           /* a float32 value; 0: no step yet */
    int64_t growth_tracker; /* finite steps since the scale changed */
};

/* The scale of the next step. */
double loss_scale_value(const struct loss_scale_config *config, const struct loss_scale *state);

/* After a step (GradScaler.update). [has_overflowed]: its gradients were not finite. The scale is at least 2^-126, so
 * that it does not become 0. */
void loss_scale_update(const struct loss_scale_config *config, struct loss_scale *state, bool has_overflowed);

/* Whether the scale can cause an overflow of the gradients: it is above 1. */
bool loss_scale_can_overflow(const struct loss_scale_config *config, const struct loss_scale *state);
