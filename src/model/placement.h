/* placement: several pieces of memory in one block, of which those may lie on each other that are never needed at the
 * same time. */
#ifndef MODEL_PLACEMENT_H
#define MODEL_PLACEMENT_H

#include <stddef.h>

#include "base/arena.h"

#define PLACEMENT_ALIGNMENT 16 /* elements: one cache line of floats */

struct piece {
    size_t size;        /* elements; 0: takes no room */
    size_t first, last; /* the times, both included, between which it keeps what is written to it */
    size_t offset;      /* in elements, a multiple of PLACEMENT_ALIGNMENT; placement_find sets it */
};

/* Finds an offset for each of [pieces]; returns the size of the block. The largest pieces are placed first, each as low
 * as those let it that live at the same time. */
size_t placement_find(struct arena *arena, struct piece **pieces, size_t count);

#endif
