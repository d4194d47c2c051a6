/* row_store: rows of doubles, whose number is not known before they are added. Most columns of a table are decimals of
 * a few digits: a block of rows keeps each value of such a column as a whole number of 1 to 7 bytes, which divided by a
 * power of ten is the same double. Rows that need more than max_bytes so are moved to a file without a name, which the
 * system removes when the process ends, however it ends. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct row_block;

/* Zero-initialise, then set width and max_bytes. */
struct row_store {
    size_t width;     /* of a row */
    size_t max_bytes; /* of packed blocks in memory */
    size_t rows;

    bool is_large;     /* as doubles the rows would need more than max_bytes */
    size_t space;      /* rows, as doubles, that were counted for is_large */
    double *open;      /* (open_rows, width) rows that no block has yet */
    size_t open_rows;  /* allocated */
    size_t block_rows; /* of each block; 0: there is none yet */
    struct row_block *blocks;
    size_t block_count, capacity; /* capacity: of [blocks] */
    size_t bytes, in_memory;      /* of all blocks; of those in memory */

    bool has_file, is_file_full;
    int fd;
    const char *folder;
    uint64_t file_bytes;

    double *read;    /* (read_rows, width) the rows first .. first + loaded - 1 of a block */
    uint8_t *packed; /* of the file, before they are unpacked */
    size_t read_rows, first, loaded;
};

/* The memory of row number store->rows, which is not part of the store until the caller adds 1 to store->rows. [what]:
 * for messages. */
status row_store_next(struct row_store *store, const char *what, double **row);

/* After the last row: *rows, valid until the next call, has rows [first] to first + *got - 1, *got at most [count] and
 * at least 1. */
status row_store_read(struct row_store *store, size_t first, size_t count, const double **rows, size_t *got);

/* Reads one column of rows first .. first + count - 1: values (count). */
status row_store_read_column(struct row_store *store, size_t column, size_t first, size_t count, double *values);

/* Frees the memory of blocks whose rows are all before [row]: they are not read again. */
void row_store_release(struct row_store *store, size_t row);

/* Whether all rows are in memory. */
static inline bool row_store_is_in_memory(const struct row_store *store) { return !store->has_file; }

/* Tells the operating system that a row in the file will be read soon. */
void row_store_will_read(const struct row_store *store, size_t row);

void row_store_free(struct row_store *store);
