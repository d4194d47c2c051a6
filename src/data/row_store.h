/* row_store: rows of doubles, whose number is not known before they are added. */
#ifndef DATA_ROW_STORE_H
#define DATA_ROW_STORE_H

#include <stddef.h>

#include "base/status.h"

/* Zero-initialise. Blocks are not moved when there are more than one, so that large tables are never copied. */
struct row_store {
    size_t width;      /* of a row */
    size_t block_rows; /* of each block, also of the last */
    double **blocks;
    size_t block_count, capacity; /* capacity: of [blocks] */
    size_t rows;
};

/* The memory of row number store->rows, which is not part of the store until the caller adds 1 to store->rows. */
status row_store_next(struct row_store *store, const char *what, double **row);

static inline const double *row_store_at(const struct row_store *store, size_t row) {
    return store->blocks[row / store->block_rows] + row % store->block_rows * store->width;
}

void row_store_free(struct row_store *store);

#endif
