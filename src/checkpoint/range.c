/* Sums in double, in the order of the numbers. */
#include "checkpoint/range.h"

#include <math.h>

void range_add(struct range *range, double value) {
    if (!isfinite(value)) {
        range->not_finite++;
        return;
    }
    range->min = value < range->min ? value : range->min;
    range->max = value > range->max ? value : range->max;
    range->sum += value;
    range->finite++;
}

void range_print(const struct range *range, struct text *out) {
    if (range->finite)
        text_printf(out, "  min %.6g  max %.6g  mean %.6g", range->min, range->max, range->sum / (double)range->finite);
    if (range->not_finite) text_printf(out, "  not finite: %llu", (unsigned long long)range->not_finite);
}
