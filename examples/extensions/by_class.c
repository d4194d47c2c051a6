/* by_class: every class equally often in each batch. The rows of each class come in a random order, which begins again
 * when all were used; classes take turns. An epoch has as many rows as there are training rows, so rows of rare
 * classes are repeated, and some of frequent ones left out. */
#include "extension.h"

#include <stdlib.h>

/* The training rows of each class, one class after another: class c has [first[c], first[c + 1]) of them. */
struct classes {
    size_t count, *first, *rows;
};

static status start(const void *config, const struct sampler_rows *rows, void **state) {
    struct classes *c = arena_alloc(rows->arena, sizeof *c);
    int64_t last = 0;
    (void)config;
    if (!rows->classes) return status_new(STATUS_USAGE, "it needs one class for each row as target");
    for (size_t r = 0; r < rows->rows; r++)
        if (rows->classes[r] > last) last = rows->classes[r];
    c->first = arena_alloc(rows->arena, ((size_t)last + 2) * sizeof *c->first);
    c->rows = arena_alloc(rows->arena, rows->rows * sizeof *c->rows);
    size_t placed = 0;
    for (int64_t class = 0; class <= last; class ++) {
        size_t begin = placed;
        for (size_t r = 0; r < rows->rows; r++)
            if (rows->classes[r] == class) c->rows[placed++] = r;
        if (placed > begin) c->first[c->count++] = begin; /* classes without rows have no turn */
    }
    c->first[c->count] = placed;
    if (c->count == 0) return status_new(STATUS_DATA, "no training row has a class");
    *state = c;
    return OK;
}

/* Row [n] of a class: its rows in random orders, one after the other. */
static status draw(const void *config, const struct sampler_rows *rows, const void *state,
                   struct sampler_epoch *epoch) {
    const struct classes *c = state;
    int64_t *orders = malloc(rows->rows * sizeof *orders); /* of each class */
    (void)config;
    if (!orders) return status_memory("the orders of the classes");
    for (size_t turn = 0; turn * c->count < rows->rows; turn++)
        for (size_t k = 0; k < c->count && turn * c->count + k < rows->rows; k++) {
            size_t first = c->first[k], size = c->first[k + 1] - first;
            if (turn % size == 0) rng_permutation(&epoch->rng, orders + first, size);
            sampler_yield(epoch, c->rows[first + (size_t)orders[first + turn % size]]);
        }
    free(orders);
    return OK;
}

static const struct sampler_type by_class = {
    .variant = {"by_class", NULL, "Every class equally often in each batch."},
    .start = start,
    .draw = draw,
};

DDPTRAIN_EXTENSION(.sampler = &by_class);
