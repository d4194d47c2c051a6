/* range: minimum, maximum and mean of numbers, for `inspect`. */
#ifndef CHECKPOINT_RANGE_H
#define CHECKPOINT_RANGE_H

#include <stdint.h>

#include "base/text.h"

/* Non-finite values are counted separately. Start with RANGE_NONE. */
struct range {
    double min, max, sum;
    uint64_t finite, not_finite;
};
#define RANGE_NONE ((struct range){.min = INFINITY, .max = -INFINITY})

void range_add(struct range *range, double value);
/* Adds "  min 0  max 1  mean 0.5  not finite: 2", without the parts that do not apply. */
void range_print(const struct range *range, struct text *out);

#endif
