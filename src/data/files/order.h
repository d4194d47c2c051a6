/* order: the numbers of rows in an order, of 4 bytes each where all are below 2^32, else of 8. */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#include <stdint.h>
#include <string.h>

#include "base/buffer.h"
#include "data/files/files.h"

#define ORDER_MAX_NARROW ((size_t)UINT32_MAX)

/* One of both; neither: 0, 1, 2, ... */
struct row_order {
    uint32_t *narrow;
    int64_t *wide;
};

static inline bool order_is_given(const struct row_order *order) { return order->narrow || order->wide; }

static inline size_t order_at(const struct row_order *order, size_t i) {
    return order->narrow ? order->narrow[i] : order->wide ? (size_t)order->wide[i] : i;
}

static inline void order_set(struct row_order *order, size_t i, size_t row) {
    if (order->narrow)
        order->narrow[i] = (uint32_t)row;
    else
        order->wide[i] = (int64_t)row;
}

/* Memory for [count] numbers of rows below [rows], for order_free. */
static inline status order_alloc(size_t count, size_t rows, const char *what, struct row_order *out) {
    bool is_narrow = rows <= ORDER_MAX_NARROW;
    void *items;
    *out = (struct row_order){0};
    TRY(rows_alloc(count, is_narrow ? sizeof *out->narrow : sizeof *out->wide, what, &items));
    if (is_narrow)
        out->narrow = items;
    else
        out->wide = items;
    return OK;
}

static inline void order_free(struct row_order *order) {
    buffer_free(order->narrow);
    buffer_free(order->wide);
    *order = (struct row_order){0};
}

/* Makes the [count] numbers below [rows] narrow, if they can be, in the same memory, whose other half is given back. */
static inline void order_narrow(struct row_order *order, size_t count, size_t rows) {
    char *items = (char *)order->wide;
    if (!items || rows > ORDER_MAX_NARROW) return;
    for (size_t i = 0; i < count; i++) {
        int64_t wide;
        memcpy(&wide, items + i * sizeof wide, sizeof wide);
        uint32_t narrow = (uint32_t)wide;
        memcpy(items + i * sizeof narrow, &narrow, sizeof narrow);
    }
    *order = (struct row_order){.narrow = (uint32_t *)(void *)items};
    buffer_discard(order->narrow + count, count * sizeof *order->narrow);
}

#endif
