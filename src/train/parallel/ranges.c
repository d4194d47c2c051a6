/* One pass over the parameters. */
#include "train/parallel/ranges.h"

#include <stdlib.h>

status ranges_create(const struct params *params, struct ranges *out) {
    *out = (struct ranges){.ranges = calloc(params->count + 1, sizeof *out->ranges),
                           .index_of = calloc(params->count + 1, sizeof *out->index_of)};
    if (!out->ranges || !out->index_of) {
        ranges_free(out);
        return status_memory("the ranges of the gradients");
    }
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        out->index_of[i] = p->is_frozen ? SIZE_MAX : out->count;
        if (!p->is_frozen) out->ranges[out->count++] = (struct reducer_range){p->name, p->offset, p->count};
    }
    return OK;
}

void ranges_free(struct ranges *ranges) {
    free(ranges->ranges);
    free(ranges->index_of);
    *ranges = (struct ranges){0};
}
