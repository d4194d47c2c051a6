/* select: one value of an array by its rank, without sorting all. */
#pragma once

#include <stddef.h>

/* Orders values (count, no NaN) so that values[index], index < count, is the one that a sort would put there, no value
 * before it is larger and none behind it is smaller; returns it. */
double select_value(double *values, size_t count, size_t index);
