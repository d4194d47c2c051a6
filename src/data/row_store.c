/* The first block grows; then blocks of one size follow one another. They are large enough for huge pages. */
#include "data/row_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "data/internal.h"

#define FIRST_BYTES ((size_t)64 << 10)
#define BLOCK_BYTES ((size_t)16 << 20)

static size_t rows_of(const struct row_store *store, size_t bytes) {
    size_t rows = bytes / sizeof(double) / store->width;
    return rows > 0 ? rows : 1;
}

static status grow_first(struct row_store *store, const char *what) {
    void *block;
    size_t rows = store->block_rows * 4, most = rows_of(store, BLOCK_BYTES);
    if (rows > most) rows = most;
    TRY(rows_alloc(rows * store->width, sizeof(double), what, &block));
    memcpy(block, store->blocks[0], store->rows * store->width * sizeof(double));
    buffer_free(store->blocks[0]);
    store->blocks[0] = block;
    store->block_rows = rows;
    return OK;
}

static status add_block(struct row_store *store, const char *what) {
    void *block;
    if (store->block_count == store->capacity) {
        size_t capacity = store->capacity ? store->capacity * 2 : 16;
        double **blocks = realloc(store->blocks, capacity * sizeof *blocks);
        if (!blocks) return status_memory("more than %zu rows of %s", store->rows, what);
        store->blocks = blocks;
        store->capacity = capacity;
    }
    if (store->block_count == 0) store->block_rows = rows_of(store, FIRST_BYTES);
    TRY(rows_alloc(store->block_rows * store->width, sizeof(double), what, &block));
    store->blocks[store->block_count++] = block;
    return OK;
}

status row_store_next(struct row_store *store, const char *what, double **row) {
    bool is_full = store->rows == store->block_count * store->block_rows;
    if (is_full && store->block_count == 1 && store->block_rows < rows_of(store, BLOCK_BYTES))
        TRY(grow_first(store, what));
    else if (is_full)
        TRY(add_block(store, what));
    *row = store->blocks[store->rows / store->block_rows] + store->rows % store->block_rows * store->width;
    return OK;
}

void row_store_free(struct row_store *store) {
    for (size_t i = 0; i < store->block_count; i++) buffer_free(store->blocks[i]);
    free(store->blocks);
    *store = (struct row_store){0};
}
