/* placement: assigns offsets in one block to pieces of memory; pieces that are never needed at the same time may
 * overlap. */
#pragma once

#include "base/arena.h"

#define PLACEMENT_ALIGNMENT 16 /* elements: one cache line of floats */

struct piece {
    size_t size;                    /* elements; 0: takes no memory */
    size_t first, last;             /* the first and last time at which its content is needed */
    size_t first_again, last_again; /* the same, after the content was computed once more; 0: not */
    size_t offset;                  /* in elements, a multiple of PLACEMENT_ALIGNMENT; placement_find sets it */
};

/* Assigns an offset to each of [pieces]; returns the size of the block. The largest pieces are placed first, each at
 * the lowest offset that does not overlap pieces in use at the same time. */
size_t placement_find(struct arena *arena, struct piece **pieces, size_t count);
/* The same for pieces of which few are needed at a time, once each: not more than the largest of each of as many slots
 * as pieces are needed at the same time. */
size_t placement_find_in_turn(struct arena *arena, struct piece **pieces, size_t count);
