/* Rows are added as doubles to one buffer, which first grows and then is packed, block by block. A small table is never
 * packed. The rows of a block are packed one after another, so that a single row is one read. */
#include "data/source/row_store.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "data/source/source.h"

#define FIRST_BYTES ((size_t)64 << 10)
#define BLOCK_BYTES ((size_t)1 << 20)  /* as doubles */
#define READ_BYTES ((size_t)128 << 10) /* as doubles, that are unpacked at once */
#define COUNTED_BYTES ((size_t)16 << 20)
#define MIN_PACKED_ROWS 16 /* with fewer the columns of a block need more than they save */

/* Rows that cannot be packed well are moved to a file although max_bytes would allow them: with them the rows as they
 * are used, of 4 bytes a value, would need three times as much. */
#define SMALL_BYTES ((size_t)32 << 20)
#define GOOD_BYTES 5 /* of a packed value */

/* ---- packed rows ---- */

#define NOT_DECIMAL UINT8_MAX
#define MAX_DIGITS 15
#define MAX_WHOLE 0x1p51 /* below it whole numbers are exact, and so is the trick of round_whole */

static const double powers[MAX_DIGITS + 1] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                              1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

/* value = whole / power, of the lowest [bytes] bytes; 8 bytes: a double. The two lowest whole numbers, up to [special],
 * are NaN and -0. */
struct packed_column {
    uint32_t offset;       /* in a row */
    uint8_t bytes, unused; /* unused: bits of 64 */
    double power;
    int64_t special;
};

struct row_block {
    struct packed_column *columns; /* (width); NULL: all are doubles */
    uint8_t *rows;                 /* (block_rows, row_bytes); NULL: in the file, at offset, or released */
    uint64_t offset;
    size_t row_bytes;
};

static size_t plain_bytes(const struct row_store *store) { return store->width * sizeof(double); }

static size_t rows_of(const struct row_store *store, size_t bytes) {
    size_t rows = bytes / plain_bytes(store);
    return rows > 0 ? rows : 1;
}

/* To the nearest whole number, for values below MAX_WHOLE. */
static inline double round_whole(double value) { return value + 0x1.8p52 - 0x1.8p52; }

/* Whether the value can be packed with [digits], by a whole number *whole. */
static inline bool is_decimal(double value, unsigned digits, double *whole) {
    double scaled = value * powers[digits];
    *whole = round_whole(scaled);
    return fabs(scaled) < MAX_WHOLE && *whole / powers[digits] == value;
}

/* What is known about a column of the block. */
struct column_range {
    double min, max;
    unsigned digits; /* NOT_DECIMAL: it stays doubles */
};

static inline bool is_special(double value) { return isnan(value) || (value == 0 && signbit(value)); }

/* Adds a value that [range] may not hold yet. */
static void add_value(struct column_range *range, double value) {
    double whole;
    unsigned digits = range->digits;
    while (digits <= MAX_DIGITS && !is_decimal(value, digits, &whole)) digits++;
    range->digits = digits <= MAX_DIGITS ? digits : NOT_DECIMAL;
}

static void measure(const struct row_store *store, struct column_range *ranges) {
    size_t width = store->width;
    for (size_t i = 0; i < width; i++) ranges[i] = (struct column_range){.min = INFINITY, .max = -INFINITY};
    for (size_t row = 0; row < store->block_rows; row++) {
        const double *values = store->open + row * width;
        for (size_t i = 0; i < width; i++) {
            double value = values[i], whole;
            struct column_range *range = &ranges[i];
            if (range->digits == NOT_DECIMAL || is_special(value)) continue;
            if (!is_decimal(value, range->digits, &whole)) add_value(range, value);
            if (value < range->min) range->min = value;
            if (value > range->max) range->max = value;
        }
    }
}

/* The bytes of a whole number from -largest to largest, beside the two special ones. */
static uint8_t bytes_of(double largest) {
    uint8_t bytes = 1;
    while (bytes < 7 && largest > (double)((INT64_C(1) << (8 * bytes - 1)) - 3)) bytes++;
    return bytes;
}

/* Chooses the columns of a block: the bytes of its rows. */
static size_t choose_columns(const struct row_store *store, const struct column_range *ranges,
                             struct packed_column *columns) {
    size_t offset = 0;
    for (size_t i = 0; i < store->width; i++) {
        const struct column_range *range = &ranges[i];
        struct packed_column *column = &columns[i];
        unsigned digits = range->digits;
        double largest =
            range->min > range->max ? 0 : fmax(fabs(range->min), fabs(range->max)); /* or all are missing */
        *column = (struct packed_column){.offset = (uint32_t)offset, .bytes = 8};
        if (digits != NOT_DECIMAL && largest * powers[digits] < MAX_WHOLE) {
            column->bytes = bytes_of(largest * powers[digits] + 1);
            column->unused = (uint8_t)(64 - 8 * column->bytes);
            column->power = powers[digits];
            column->special = (INT64_MIN >> column->unused) + 1;
        }
        offset += column->bytes;
    }
    return offset;
}

/* Packs the open rows to [packed], which has 8 bytes more than they need: each value is written as 8 bytes, of which
 * the next one overwrites those that it does not need. */
static void pack_rows(const struct row_store *store, const struct packed_column *columns, size_t row_bytes,
                      uint8_t *packed) {
    size_t width = store->width;
    for (size_t row = 0; row < store->block_rows; row++) {
        const double *values = store->open + row * width;
        uint8_t *out = packed + row * row_bytes;
        for (size_t i = 0; i < width; i++) {
            const struct packed_column *column = &columns[i];
            int64_t bits;
            if (column->bytes == 8)
                memcpy(&bits, &values[i], sizeof bits);
            else if (is_special(values[i]))
                bits = column->special - isnan(values[i]);
            else
                bits = (int64_t)round_whole(values[i] * column->power);
            memcpy(out + column->offset, &bits, sizeof bits);
        }
    }
}

static inline double unpack(const struct packed_column *column, const uint8_t *row) {
    int64_t bits;
    double value;
    memcpy(&bits, row + column->offset, sizeof bits);
    if (column->bytes == 8) {
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    int64_t whole = (int64_t)((uint64_t)bits << column->unused) >> column->unused;
    if (whole <= column->special) return whole < column->special ? NAN : -0.0;
    return (double)whole / column->power;
}

static void unpack_rows(const struct row_store *store, const struct row_block *block, const uint8_t *packed,
                        size_t count, double *rows) {
    size_t width = store->width;
    if (!block->columns) {
        memcpy(rows, packed, count * plain_bytes(store));
        return;
    }
    for (size_t row = 0; row < count; row++, packed += block->row_bytes, rows += width)
        for (size_t i = 0; i < width; i++) rows[i] = unpack(&block->columns[i], packed);
}

static void unpack_column(const struct row_block *block, size_t column, const uint8_t *packed, size_t count,
                          double *values) {
    const struct packed_column plain = {.offset = (uint32_t)(column * sizeof(double)), .bytes = 8};
    const struct packed_column found = block->columns ? block->columns[column] : plain;
    for (size_t i = 0; i < count; i++, packed += block->row_bytes) values[i] = unpack(&found, packed);
}

/* ---- the file ---- */

static status explain(const struct row_store *store, status failure, const char *what) {
    return status_prefix(failure,
                         "%s: its rows need more than dataset.cache_mb and are kept in a temporary file in %s (the "
                         "environment variable TMPDIR names another folder)",
                         what, store->folder);
}

static void free_rows(struct row_store *store, struct row_block *block) {
    size_t bytes = store->block_rows * block->row_bytes;
    if (!block->rows) return;
    buffer_discard(block->rows, bytes);
    buffer_free(block->rows);
    block->rows = NULL;
    store->in_memory -= bytes;
}

static status write_block(struct row_store *store, struct row_block *block) {
    size_t bytes = store->block_rows * block->row_bytes;
    TRY(io_write_at(store->fd, store->folder, block->rows, bytes, store->file_bytes)); /* also after a part of one */
    block->offset = store->file_bytes;
    store->file_bytes += bytes;
    free_rows(store, block);
    return OK;
}

/* Moves the blocks that are in memory to the file. */
static status move_to_file(struct row_store *store) {
    if (!store->has_file) {
        store->folder = io_temporary_folder();
        TRY(io_create_unnamed(store->folder, &store->fd));
        store->has_file = true;
    }
    for (size_t i = 0; i < store->block_count; i++)
        if (store->blocks[i].rows) TRY(write_block(store, &store->blocks[i]));
    return OK;
}

/* Moves rows that max_bytes does not allow, or that are not packed well; these stay where the file has no space. */
static status limit_memory(struct row_store *store, const char *what) {
    bool must_move = store->in_memory > store->max_bytes;
    size_t values = store->block_count * store->block_rows * store->width;
    bool may_move = store->has_file || (store->max_bytes < SIZE_MAX && store->in_memory > SMALL_BYTES &&
                                        store->bytes > GOOD_BYTES * values);
    if (!must_move && (!may_move || store->is_file_full)) return OK;
    status s = move_to_file(store);
    if (s && must_move) return explain(store, s, what);
    if (s) store->is_file_full = true;
    status_free(s);
    return OK;
}

/* ---- rows ---- */

static status grow_open(struct row_store *store, size_t rows, const char *what) {
    double *larger;
    TRY(rows_alloc(rows, plain_bytes(store), what, &larger));
    if (store->open) memcpy(larger, store->open, store->open_rows * plain_bytes(store));
    buffer_free(store->open);
    store->open = larger;
    store->open_rows = rows;
    return OK;
}

static status add_block(struct row_store *store, const char *what, struct row_block **block) {
    TRY(array_grow(&store->blocks, &store->capacity, store->block_count + 1, sizeof *store->blocks, what));
    *block = &store->blocks[store->block_count++];
    **block = (struct row_block){.row_bytes = plain_bytes(store)};
    return OK;
}

static status choose_packing(struct row_store *store, struct row_block *block, const char *what) {
    SCOPED_BUFFER struct column_range *ranges = NULL;
    TRY(rows_alloc(store->width, sizeof *ranges, what, &ranges));
    TRY(rows_alloc(store->width, sizeof *block->columns, what, &block->columns));
    measure(store, ranges);
    block->row_bytes = choose_columns(store, ranges, block->columns);
    if (block->row_bytes < plain_bytes(store)) return OK;
    buffer_free(block->columns);
    block->columns = NULL;
    return OK;
}

/* Makes a block of the open rows. */
static status pack(struct row_store *store, const char *what) {
    struct row_block *block = NULL;
    store->block_rows = store->open_rows;
    TRY(add_block(store, what, &block));
    if (store->block_rows >= MIN_PACKED_ROWS) TRY(choose_packing(store, block, what));
    size_t bytes = store->block_rows * block->row_bytes;
    TRY(rows_alloc(bytes + sizeof(double), 1, what, &block->rows));
    if (block->columns)
        pack_rows(store, block->columns, block->row_bytes, block->rows);
    else
        memcpy(block->rows, store->open, bytes);
    store->bytes += bytes;
    store->in_memory += bytes;
    return limit_memory(store, what);
}

/* The rows count as doubles, in steps that grow. */
static void count_space(struct row_store *store) {
    size_t max = rows_of(store, COUNTED_BYTES);
    if (store->space == 0)
        store->space = rows_of(store, FIRST_BYTES);
    else if (store->space < max)
        store->space = store->space * 4 < max ? store->space * 4 : max;
    else
        store->space += max;
    if (store->space > rows_of(store, FIRST_BYTES) && store->space * plain_bytes(store) > store->max_bytes)
        store->is_large = true;
}

/* Makes space for a row behind the open ones. */
static status make_space(struct row_store *store, const char *what) {
    size_t max = rows_of(store, BLOCK_BYTES), rows = store->open_rows * 4;
    if (store->open_rows == 0) return grow_open(store, rows_of(store, FIRST_BYTES), what);
    if (store->open_rows >= max) return pack(store, what);
    return grow_open(store, rows < max ? rows : max, what);
}

status row_store_next(struct row_store *store, const char *what, double **row) {
    size_t packed = store->block_count * store->block_rows;
    if (store->rows == store->space) count_space(store);
    if (store->rows - packed == store->open_rows) TRY(make_space(store, what));
    *row = store->open + (store->rows - store->block_count * store->block_rows) * store->width;
    return OK;
}

/* Allocates store->read, and behind it memory for as many rows of the file. */
static status start_reading(struct row_store *store) {
    store->read_rows = rows_of(store, READ_BYTES);
    TRY(rows_alloc(2 * store->read_rows * plain_bytes(store) + sizeof(double), 1, "rows of the dataset", &store->read));
    store->packed = (uint8_t *)(store->read + store->read_rows * store->width);
    return OK;
}

/* *packed, *count: the packed rows from [first] on, at most [count] and those of one block. */
static status find_packed(struct row_store *store, size_t first, size_t *count, const uint8_t **packed) {
    size_t at = first % store->block_rows, left = store->block_rows - at;
    const struct row_block *block = &store->blocks[first / store->block_rows];
    *packed = block->rows + at * block->row_bytes;
    if (*count > left) *count = left;
    if (block->rows) return OK;
    if (!store->read) TRY(start_reading(store));
    if (*count > store->read_rows) *count = store->read_rows;
    *packed = store->packed;
    return io_read_at(store->fd, store->folder, store->packed, *count * block->row_bytes,
                      block->offset + (uint64_t)at * block->row_bytes, NULL);
}

status row_store_read_column(struct row_store *store, size_t column, size_t first, size_t count, double *values) {
    size_t packed = store->block_count * store->block_rows, end = first + count;
    for (size_t n; first < end && first < packed; first += n, values += n) {
        const uint8_t *rows;
        n = end - first;
        TRY(find_packed(store, first, &n, &rows));
        unpack_column(&store->blocks[first / store->block_rows], column, rows, n, values);
    }
    for (; first < end; first++) *values++ = store->open[(first - packed) * store->width + column];
    return OK;
}

/* Unpacks at most [count] rows from [first] on to store->read. */
static status load(struct row_store *store, size_t first, size_t count) {
    const uint8_t *packed;
    store->loaded = 0;
    if (!store->read) TRY(start_reading(store));
    if (count > store->read_rows) count = store->read_rows;
    TRY(find_packed(store, first, &count, &packed));
    unpack_rows(store, &store->blocks[first / store->block_rows], packed, count, store->read);
    store->first = first;
    store->loaded = count;
    return OK;
}

status row_store_read(struct row_store *store, size_t first, size_t count, const double **rows, size_t *got) {
    size_t packed = store->block_count * store->block_rows;
    if (first >= packed) {
        *rows = store->open + (first - packed) * store->width;
        *got = count;
        return OK;
    }
    if (first < store->first || first - store->first >= store->loaded) TRY(load(store, first, count));
    size_t left = store->first + store->loaded - first;
    *rows = store->read + (first - store->first) * store->width;
    *got = count < left ? count : left;
    return OK;
}

void row_store_release(struct row_store *store, size_t row) {
    for (size_t i = 0; i < store->block_count && (i + 1) * store->block_rows <= row; i++)
        free_rows(store, &store->blocks[i]);
}

void row_store_will_read(const struct row_store *store, size_t row) {
    if (row >= store->block_count * store->block_rows) return;
    const struct row_block *block = &store->blocks[row / store->block_rows];
    if (block->rows) return;
    uint64_t start = block->offset + (uint64_t)(row % store->block_rows) * block->row_bytes;
    posix_fadvise(store->fd, (off_t)start, (off_t)block->row_bytes, POSIX_FADV_WILLNEED);
}

void row_store_free(struct row_store *store) {
    for (size_t i = 0; i < store->block_count; i++) {
        buffer_free(store->blocks[i].rows);
        buffer_free(store->blocks[i].columns);
    }
    free(store->blocks);
    buffer_free(store->open);
    buffer_free(store->read);
    if (store->has_file) status_free(io_close(store->fd, store->folder)); /* nobody reads it again */
    *store = (struct row_store){0};
}
