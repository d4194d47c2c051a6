/* order: the numbers of rows in an order, of 4 bytes each where all are below 2^32, else of 8, or computed. */
#pragma once

#include <string.h>

#include "base/buffer.h"
#include "base/numbers/rng.h"
#include "data/files/files.h"

#define ORDER_MAX_SMALL ((size_t)UINT32_MAX)

/* One of three; none: 0, 1, 2, ... */
struct row_order {
    uint32_t *small;
    int64_t *wide;
    struct {
        size_t rows; /* 0: not given */
        uint64_t key;
    } computed; /* by rng_permuted */
};

static inline bool order_is_given(const struct row_order *order) {
    return order->small || order->wide || order->computed.rows;
}

static inline size_t order_at(const struct row_order *order, size_t i) {
    if (order->small) return order->small[i];
    if (order->wide) return (size_t)order->wide[i];
    return order->computed.rows ? (size_t)rng_permuted(order->computed.key, order->computed.rows, i) : i;
}

static inline void order_set(struct row_order *order, size_t i, size_t row) {
    if (order->small)
        order->small[i] = (uint32_t)row;
    else
        order->wide[i] = (int64_t)row;
}

/* Memory for [count] numbers of rows below [rows], for order_free. */
static inline status order_alloc(size_t count, size_t rows, const char *what, struct row_order *out) {
    bool is_small = rows <= ORDER_MAX_SMALL;
    void *items;
    *out = (struct row_order){0};
    TRY(rows_alloc(count, is_small ? sizeof *out->small : sizeof *out->wide, what, &items));
    if (is_small)
        out->small = items;
    else
        out->wide = items;
    return OK;
}

static inline void order_free(struct row_order *order) {
    buffer_free(order->small);
    buffer_free(order->wide);
    *order = (struct row_order){0};
}

/* Stores the [count] numbers below [rows] in 4 bytes each, if they fit, in the same memory; the other half is given
 * back. */
static inline void order_shrink(struct row_order *order, size_t count, size_t rows) {
    char *items = (char *)order->wide;
    if (!items || rows > ORDER_MAX_SMALL) return;
    for (size_t i = 0; i < count; i++) {
        int64_t wide;
        memcpy(&wide, items + i * sizeof wide, sizeof wide);
        uint32_t small = (uint32_t)wide;
        memcpy(items + i * sizeof small, &small, sizeof small);
    }
    *order = (struct row_order){.small = (uint32_t *)(void *)items};
    buffer_discard(order->small + count, count * sizeof *order->small);
}
