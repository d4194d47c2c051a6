/* ranges: the ranges of the gradients that are averaged, those of parameters that are not frozen, for the reducer. */
#pragma once

#include "dist/reducer.h"
#include "model/params.h"

/* ranges (count) are the [count] trained parameters in order; index_of (params->count): a parameter's range, SIZE_MAX
 * when it is frozen. */
struct ranges {
    struct reducer_range *ranges;
    size_t count;
    size_t *index_of;
};
status ranges_create(const struct params *params, struct ranges *out);
void ranges_free(struct ranges *ranges);
