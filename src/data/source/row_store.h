/* row_store: rows of doubles, whose number is not known before they are added. Rows that need more than max_bytes are
 * moved to a file without a name, which the system removes when the process ends, however it ends. */
#ifndef DATA_ROW_STORE_H
#define DATA_ROW_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Zero-initialise, then set width and max_bytes. Blocks are not moved when there are more than one, so that large
 * tables are never copied. */
struct row_store {
    size_t width;     /* of a row */
    size_t max_bytes; /* of blocks; one block is always allowed */
    size_t rows;

    size_t block_rows; /* of each block, also of the last */
    double **blocks;
    size_t block_count, capacity; /* capacity: of [blocks] */

    bool is_in_file; /* the rows are in a file; blocks[0] has rows first .. first + loaded - 1 */
    int fd;
    const char *folder;
    size_t stored, first, loaded; /* stored: rows in the file */
};

/* The memory of row number store->rows, which is not part of the store until the caller adds 1 to store->rows. [what]:
 * for messages. */
status row_store_next(struct row_store *store, const char *what, double **row);

/* Call it when all rows were added. */
status row_store_finish(struct row_store *store, const char *what);

/* After row_store_finish: *rows, valid until the next call, has rows [first] to first + *got - 1, *got at most [count]
 * and at least 1. */
status row_store_read(struct row_store *store, size_t first, size_t count, const double **rows, size_t *got);

/* Tells the operating system that a row in the file will be read soon. */
void row_store_will_read(const struct row_store *store, size_t row);

void row_store_free(struct row_store *store);

#endif
