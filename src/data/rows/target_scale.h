/* target_scale: how the targets of a regression are scaled for the loss, and how outputs and metrics get back to the
 * unit of the file: scikit-learn's TransformedTargetRegressor. */
#pragma once

#include "base/arena.h"

/* `target_scale:` */
enum target_scale_type { TARGET_SCALE_NONE, TARGET_SCALE_STANDARD, TARGET_SCALE_MINMAX, TARGET_SCALE_LOG1P };
extern const char *const target_scale_names[]; /* "none", "standard", "minmax", "log1p", NULL */

/* standard: y' = (y - mean) / scale with mean and population standard deviation (1 for a constant target); minmax: the
 * same with minimum and range; log1p: y' = log(1 + y), for y > -1. */
struct target_scale {
    enum target_scale_type type;
    size_t size;          /* targets of a row */
    double *mean, *scale; /* (size); 0 and 1 for log1p */
};

/* Of target [element] of a row; in double. */
double target_scale_apply(const struct target_scale *scale, size_t element, double value);
double target_scale_undo(const struct target_scale *scale, size_t element, double value);

struct target_scale target_scale_new(enum target_scale_type type, size_t size, struct arena *arena);
struct target_scale target_scale_copy(const struct target_scale *scale, struct arena *arena);
