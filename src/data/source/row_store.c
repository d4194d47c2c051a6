/* The first block grows; then blocks of one size follow one another. They are large enough for huge pages. */
#include "data/source/row_store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "data/source/source.h"

#define FIRST_BYTES ((size_t)64 << 10)
#define BLOCK_BYTES ((size_t)16 << 20)

static size_t row_bytes(const struct row_store *store) { return store->width * sizeof(double); }

static size_t rows_of(const struct row_store *store, size_t bytes) {
    size_t rows = bytes / row_bytes(store);
    return rows > 0 ? rows : 1;
}

/* ---- memory ---- */

static status grow_first(struct row_store *store, size_t rows, const char *what) {
    void *block;
    TRY(rows_alloc(rows, row_bytes(store), what, &block));
    memcpy(block, store->blocks[0], store->rows * row_bytes(store));
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
    TRY(rows_alloc(store->block_rows, row_bytes(store), what, &block));
    store->blocks[store->block_count++] = block;
    return OK;
}

/* ---- the file ---- */

static status explain(const struct row_store *store, status failure, const char *what) {
    return status_prefix(failure,
                         "%s: its rows need more than dataset.cache_mb and are kept in a temporary file in %s (the "
                         "environment variable TMPDIR names another folder)",
                         what, store->folder);
}

/* Appends the first [rows] rows of a block. */
static status write_rows(struct row_store *store, const double *block, size_t rows, const char *what) {
    TRY(explain(store, io_write(store->fd, store->folder, block, rows * row_bytes(store)), what));
    store->stored += rows;
    return OK;
}

/* Moves the rows, all of whose blocks are full, to a file. */
static status move_to_file(struct row_store *store, const char *what) {
    store->folder = io_temporary_folder();
    TRY(explain(store, io_create_unnamed(store->folder, &store->fd), what));
    store->is_in_file = true;
    for (size_t i = 0; i < store->block_count; i++) TRY(write_rows(store, store->blocks[i], store->block_rows, what));
    while (store->block_count > 1) buffer_free(store->blocks[--store->block_count]);
    return OK;
}

/* ---- rows ---- */

/* Makes space for a row when all blocks are full. */
static status make_space(struct row_store *store, const char *what) {
    size_t max = rows_of(store, BLOCK_BYTES), rows = store->block_rows * 4 < max ? store->block_rows * 4 : max;
    bool is_growing = store->block_count == 1 && store->block_rows < max;
    size_t bytes = (is_growing ? rows : (store->block_count + 1) * store->block_rows) * row_bytes(store);
    if (store->is_in_file) return write_rows(store, store->blocks[0], store->block_rows, what);
    if (store->block_count > 0 && bytes > store->max_bytes) return move_to_file(store, what);
    return is_growing ? grow_first(store, rows, what) : add_block(store, what);
}

status row_store_next(struct row_store *store, const char *what, double **row) {
    if (store->rows == store->stored + store->block_count * store->block_rows) TRY(make_space(store, what));
    size_t at = store->rows - store->stored;
    *row = store->blocks[at / store->block_rows] + at % store->block_rows * store->width;
    return OK;
}

status row_store_finish(struct row_store *store, const char *what) {
    if (!store->is_in_file) return OK;
    store->first = store->stored;
    store->loaded = store->rows - store->stored;
    return write_rows(store, store->blocks[0], store->loaded, what);
}

status row_store_read(struct row_store *store, size_t first, size_t count, const double **rows, size_t *got) {
    size_t at = first % store->block_rows, left = store->block_rows - at;
    if (!store->is_in_file) {
        *rows = store->blocks[first / store->block_rows] + at * store->width;
        *got = count < left ? count : left;
        return OK;
    }
    bool is_loaded = first >= store->first && first - store->first < store->loaded;
    if (!is_loaded) {
        store->loaded = 0;
        size_t size = count < store->block_rows ? count : store->block_rows;
        TRY(io_read_at(store->fd, store->folder, store->blocks[0], size * row_bytes(store),
                       (uint64_t)first * row_bytes(store), NULL));
        store->first = first;
        store->loaded = size;
    }
    left = store->first + store->loaded - first;
    *rows = store->blocks[0] + (first - store->first) * store->width;
    *got = count < left ? count : left;
    return OK;
}

void row_store_will_read(const struct row_store *store, size_t row) {
    if (!store->is_in_file) return;
    off_t start = (off_t)((uint64_t)row * row_bytes(store));
    posix_fadvise(store->fd, start, (off_t)row_bytes(store), POSIX_FADV_WILLNEED);
}

void row_store_free(struct row_store *store) {
    for (size_t i = 0; i < store->block_count; i++) buffer_free(store->blocks[i]);
    free(store->blocks);
    if (store->is_in_file) status_free(io_close(store->fd, store->folder)); /* nobody reads it again */
    *store = (struct row_store){0};
}
