/* The arithmetic is that of torch._amp_update_scale_: factors are double, the scale is rounded to float32. */
#include "optim/loss_scale.h"

#include <float.h>
#include <math.h>

#define MIN_FACTOR 1e-6 /* products with the scale remain in the range of float32 */

static const struct schema_row rows[] = {
    SCHEMA_ROW(REAL, struct loss_scale_config, init_scale, .fallback = "65536", .min = MIN_FACTOR, .max = 0x1p127,
               .doc = "The factor of the loss at the start."),
    SCHEMA_ROW(REAL, struct loss_scale_config, growth_factor, .fallback = "2", .min = 1, .max = 1 << 20,
               .excludes_min = true,
               .doc = "The scale is multiplied by this after `growth_interval` steps in a row without an overflow."),
    SCHEMA_ROW(REAL, struct loss_scale_config, backoff_factor, .fallback = "0.5", .min = MIN_FACTOR, .max = 1,
               .excludes_max = true,
               .doc = "The scale is multiplied by this when gradients overflow; that step is not applied."),
    SCHEMA_ROW(INT, struct loss_scale_config, growth_interval, .fallback = "2000", .min = 1, .max = 1 << 30,
               .doc = "Steps without an overflow after which the scale grows."),
    {0},
};
const struct schema loss_scale_schema =
    SCHEMA("train.grad_scaler", struct loss_scale_config, .rows = rows, .shorthand = "init_scale");

double loss_scale_value(const struct loss_scale_config *config, const struct loss_scale *state) {
    return state->scale > 0 ? state->scale : (double)(float)config->init_scale;
}

void loss_scale_update(const struct loss_scale_config *config, struct loss_scale *state, bool has_overflowed) {
    double now = loss_scale_value(config, state);
    state->scale = now;
    if (has_overflowed) {
        state->scale = fmax((double)(float)(now * config->backoff_factor), (double)FLT_MIN);
        state->growth_tracker = 0;
    } else if (++state->growth_tracker == config->growth_interval) {
        double grown = (double)(float)(now * config->growth_factor);
        if (isfinite(grown)) state->scale = grown;
        state->growth_tracker = 0;
    }
}

bool loss_scale_can_overflow(const struct loss_scale_config *config, const struct loss_scale *state) {
    return loss_scale_value(config, state) > 1;
}
