/* Places the largest pieces first, each at the lowest free offset. For a chain of layers the result is nearly as small
 * as the maximum memory in use at one time. */
#include "model/placement.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static int compare_sizes(const void *a, const void *b) {
    const struct piece *x = *(struct piece *const *)a, *y = *(struct piece *const *)b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->last < y->last ? -1 : x->last > y->last;
}

static size_t padded_size(const struct piece *piece) {
    return (piece->size + PLACEMENT_ALIGNMENT - 1) / PLACEMENT_ALIGNMENT * PLACEMENT_ALIGNMENT;
}

/* A piece that has its offset; copied, so that the search reads memory in order. */
struct placed {
    size_t offset, end;
    size_t first, last, first_again, last_again;
};

static bool overlap(size_t first, size_t last, size_t other_first, size_t other_last) {
    return last >= other_first && first <= other_last;
}

static bool are_needed_together(const struct piece *a, const struct placed *b) {
    if (overlap(a->first, a->last, b->first, b->last)) return true;
    if (!a->last_again && !b->last_again) return false;
    return (a->last_again && overlap(a->first_again, a->last_again, b->first, b->last)) ||
           (b->last_again && overlap(a->first, a->last, b->first_again, b->last_again)) ||
           (a->last_again && b->last_again && overlap(a->first_again, a->last_again, b->first_again, b->last_again));
}

/* The lowest gap for [piece] between those of [placed] (count, by offset) that are in use at the same time. */
static size_t lowest_gap(const struct piece *piece, const struct placed *placed, size_t count) {
    size_t end = 0, size = padded_size(piece);
    for (size_t i = 0; i < count; i++) {
        const struct placed *other = &placed[i];
        if (!are_needed_together(piece, other)) continue;
        if (other->offset >= end + size) break;
        if (other->end > end) end = other->end;
    }
    return end;
}

/* Memory of pieces that are needed one after another. */
struct slot {
    size_t size, last;
};

static int compare_times(const void *a, const void *b) {
    const struct piece *x = *(struct piece *const *)a, *y = *(struct piece *const *)b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The free slot that needs the smallest growth; [count]: none is free. */
static size_t best_slot(const struct slot *slots, size_t count, const struct piece *piece) {
    size_t best = count, size = padded_size(piece), smallest = SIZE_MAX;
    for (size_t s = 0; s < count; s++) {
        size_t growth = slots[s].size < size ? size - slots[s].size : 0;
        if (slots[s].last >= piece->first || growth >= smallest) continue;
        best = s;
        smallest = growth;
    }
    return best;
}

size_t placement_find_in_turn(struct arena *arena, struct piece **pieces, size_t count) {
    size_t largest_first = placement_find(arena, pieces, count), slot_count = 0, total = 0;
    struct slot *slots = arena_alloc(arena, (count + 1) * sizeof *slots);
    size_t *slot_of = arena_alloc(arena, (count + 1) * sizeof *slot_of);
    if (count) qsort(pieces, count, sizeof(struct piece *), compare_times);
    for (size_t i = 0; i < count; i++) {
        size_t size = padded_size(pieces[i]), s = slot_of[i] = best_slot(slots, slot_count, pieces[i]);
        if (s == slot_count) slots[slot_count++] = (struct slot){0};
        if (slots[s].size < size) slots[s].size = size;
        slots[s].last = pieces[i]->last;
    }
    for (size_t s = 0; s < slot_count; s++) total += slots[s].size;
    if (total >= largest_first) return largest_first;
    for (size_t i = 0; i < count; i++) {
        pieces[i]->offset = 0;
        for (size_t s = 0; s < slot_of[i]; s++) pieces[i]->offset += slots[s].size;
    }
    return total;
}

size_t placement_find(struct arena *arena, struct piece **pieces, size_t count) {
    struct placed *placed = arena_alloc(arena, (count + 1) * sizeof *placed);
    size_t total = 0, n = 0;
    if (count) qsort(pieces, count, sizeof(struct piece *), compare_sizes);
    for (size_t i = 0; i < count && pieces[i]->size; i++) {
        struct piece *piece = pieces[i];
        piece->offset = lowest_gap(piece, placed, n);
        size_t at = n++, end = piece->offset + padded_size(piece);
        if (end > total) total = end;
        for (; at > 0 && placed[at - 1].offset > piece->offset; at--) placed[at] = placed[at - 1];
        placed[at] =
            (struct placed){piece->offset, end, piece->first, piece->last, piece->first_again, piece->last_again};
    }
    return total;
}
