/* range: minimum, maximum and mean of numbers, for `inspect`. */
#ifndef CHECKPOINT_RANGE_H
#define CHECKPOINT_RANGE_H

#include <stdint.h>

#include "base/text.h"

/* Values that are not finite are counted apart. Start with RANGE_NONE. */
struct range {
    double min, max, sum;
    uint64_t finite, not_finite;
};
#define RANGE_NONE ((struct range){.min = INFINITY, .max = -INFINITY})

void range_add(struct range *range, double value);
/* "  min 0  max 1  mean 0.5  not finite: 2"; what there is none of is left out. */
void range_print(const struct range *range, struct text *out);

#endif
