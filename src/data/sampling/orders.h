/* orders: the orders of rows that were drawn for epochs, so that many runs over the same rows draw each one once. */
#ifndef DATA_ORDERS_H
#define DATA_ORDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise. */
struct orders {
    size_t slots, rows; /* slots 0: nothing is stored */
    uint64_t *seeds;    /* (slots) of the generator */
    bool *is_set;       /* (slots) */
    int64_t *items;     /* (slots, rows) */
};

/* Copies the order that the generator with [seed] gives to [out] (rows); false: it is not stored. */
bool orders_get(const struct orders *orders, uint64_t seed, size_t rows, int64_t *out);
/* Stores it, in place of another one if need be. At most 1 MiB is used; without memory nothing is stored. */
void orders_put(struct orders *orders, uint64_t seed, size_t rows, const int64_t *order);
void orders_free(struct orders *orders);

#endif
