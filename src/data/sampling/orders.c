/* A table with a slot for each seed modulo its size: epochs have consecutive seeds. */
#include "data/sampling/orders.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 20)
#define MAX_SLOTS 1024

bool orders_get(const struct orders *orders, uint64_t seed, size_t rows, int64_t *out) {
    if (orders->slots == 0 || orders->rows != rows) return false;
    size_t slot = (size_t)(seed % orders->slots);
    if (!orders->is_set[slot] || orders->seeds[slot] != seed) return false;
    memcpy(out, orders->items + slot * rows, rows * sizeof *out);
    return true;
}

/* Whether there is memory for an order. */
static bool allocate(struct orders *orders, size_t rows) {
    size_t slots = rows > 0 ? MAX_BYTES / sizeof *orders->items / rows : 0;
    if (slots == 0) return false;
    if (slots > MAX_SLOTS) slots = MAX_SLOTS;
    *orders = (struct orders){.slots = slots,
                              .rows = rows,
                              .seeds = calloc(slots, sizeof *orders->seeds),
                              .is_set = calloc(slots, sizeof *orders->is_set),
                              .items = calloc(slots * rows, sizeof *orders->items)};
    if (orders->seeds && orders->is_set && orders->items) return true;
    orders_free(orders);
    return false;
}

void orders_put(struct orders *orders, uint64_t seed, size_t rows, const int64_t *order) {
    if (orders->slots == 0 && !allocate(orders, rows)) return;
    if (orders->rows != rows) return;
    size_t slot = (size_t)(seed % orders->slots);
    orders->seeds[slot] = seed;
    orders->is_set[slot] = true;
    memcpy(orders->items + slot * rows, order, rows * sizeof *order);
}

void orders_free(struct orders *orders) {
    free(orders->seeds);
    free(orders->is_set);
    free(orders->items);
    *orders = (struct orders){0};
}
