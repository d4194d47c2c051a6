/* Rows that are packed are the same doubles, bit for bit, in memory and in the file; they need the bytes that their
 * digits need. ctest-labels: unit */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "check_main.h"
#include "data/source/row_store.h"
#include "files.h"

enum { WIDTH = 8, ROWS = 100000 };

/* Whole numbers, decimals, and columns that cannot be packed, each with values that are special. */
static double value_of(size_t row, size_t column) {
    double whole = (double)(row * 2654435761u % 100003) - 50000;
    switch (column) {
    case 0:
        return (double)row;
    case 1:
        return whole / 100;
    case 2:
        return row % 7 ? whole / 1e5 : NAN;
    case 3:
        return row % 5 ? whole : -0.0;
    case 4:
        return sqrt((double)row);
    case 5:
        return row == ROWS / 2 ? INFINITY : whole * 1e300;
    case 6:
        return row < ROWS / 2 ? 0.5 : whole / 1e9; /* more digits later */
    default:
        return row % 2 ? NAN : 1;
    }
}

static bool is_same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

static void fill(struct row_store *store, size_t rows) {
    for (size_t row = 0; row < rows; row++) {
        double *values;
        status s = row_store_next(store, "t.csv", &values);
        if (s) ck_ok(s);
        for (size_t i = 0; i < store->width; i++) values[i] = value_of(row, i);
        store->rows++;
    }
}

static void check_rows(struct row_store *store, size_t first, size_t count) {
    for (size_t got; count > 0; first += got, count -= got) {
        const double *rows;
        ck_ok(row_store_read(store, first, count, &rows, &got));
        ck_assert(got >= 1 && got <= count);
        size_t good = 0, values = got * store->width;
        while (good < values && is_same(rows[good], value_of(first + good / store->width, good % store->width))) good++;
        ck_assert_msg(good == values, "row %zu, column %zu: %.17g", first + good / store->width, good % store->width,
                      rows[good]);
    }
}

static void check_columns(struct row_store *store) {
    SCOPED_MEMORY double *values = malloc(store->rows * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (size_t column = 0; column < store->width; column++) {
        ck_ok(row_store_read_column(store, column, 3, store->rows - 3, values));
        size_t row = 3;
        while (row < store->rows && is_same(values[row - 3], value_of(row, column))) row++;
        ck_assert_msg(row == store->rows, "row %zu, column %zu: %.17g", row, column, values[row - 3]);
    }
}

TEST(rows_come_back) {
    static const size_t megabytes[] = {1000, 2, 0};
    for (size_t i = 0; i < sizeof megabytes / sizeof *megabytes; i++) {
        struct row_store store = {.width = WIDTH, .max_bytes = megabytes[i] << 20};
        fill(&store, ROWS);
        ck_assert(row_store_is_in_memory(&store) == (i == 0));
        ck_assert(store.is_large == (i > 0));
        check_rows(&store, 0, ROWS);
        for (size_t row = 0; row < 5000; row++)
            check_rows(&store, row * 7919 % ROWS, row % 3 ? 1 : ROWS - row * 7919 % ROWS < 5 ? 1 : 5);
        check_columns(&store);
        row_store_free(&store);
    }
}

/* Tables of all sizes around the buffer that grows and the blocks. */
TEST(all_sizes) {
    for (size_t rows = 1; rows < 40000; rows = rows * 3 / 2 + 1) {
        struct row_store store = {.width = WIDTH, .max_bytes = (size_t)1 << 30};
        fill(&store, rows);
        check_rows(&store, 0, rows);
        row_store_free(&store);
    }
}

/* Whole numbers up to 2^31 and decimals of five digits need 1 to 4 bytes, not 8; special values need no more. */
TEST(bytes_of_a_row) {
    struct row_store store = {.width = 4, .max_bytes = (size_t)1 << 30};
    fill(&store, ROWS);
    double bytes = (double)store.bytes / (double)(store.block_count * store.block_rows);
    ck_assert_msg(store.block_count > 0 && bytes <= 3 + 3 + 3 + 3, "%.2f bytes a row", bytes);
    row_store_free(&store);
}

TEST(memory_is_released) {
    struct row_store store = {.width = WIDTH, .max_bytes = (size_t)1 << 30};
    fill(&store, ROWS);
    size_t before = store.in_memory, block = before / store.block_count;
    ck_assert_uint_eq(before, store.bytes);
    row_store_release(&store, store.block_rows - 1);
    ck_assert_uint_eq(store.in_memory, before);
    row_store_release(&store, 2 * store.block_rows);
    ck_assert_uint_le(store.in_memory, before - 3 * block / 2);
    check_rows(&store, 2 * store.block_rows, ROWS - 2 * store.block_rows);
    row_store_release(&store, ROWS);
    ck_assert_uint_eq(store.in_memory, 0);
    row_store_free(&store);
}

static double full_value(size_t row, size_t column) { return sqrt((double)(row * 31 + column)); }

static void fill_full(struct row_store *store, size_t rows) {
    for (size_t row = 0; row < rows; row++) {
        double *values;
        status s = row_store_next(store, "t.csv", &values);
        if (s) ck_ok(s);
        for (size_t i = 0; i < WIDTH; i++) values[i] = full_value(store->rows, i);
        store->rows++;
    }
}

static void check_full(struct row_store *store) {
    for (size_t first = 0, got; first < store->rows; first += got) {
        const double *values;
        ck_ok(row_store_read(store, first, store->rows - first, &values, &got));
        size_t i = 0;
        while (i < got * WIDTH && values[i] == full_value(first + i / WIDTH, i % WIDTH)) i++;
        ck_assert_msg(i == got * WIDTH, "row %zu, column %zu: %.17g", first + i / WIDTH, i % WIDTH, values[i]);
    }
}

/* Doubles of all digits are moved to a file before they need much more than as float32; without space for it they stay.
 */
TEST(rows_of_all_digits) {
    for (int has_space = 1; has_space >= 0; has_space--) {
        struct row_store store = {.width = WIDTH, .max_bytes = (size_t)1 << 30};
        limit_file_size(has_space ? RLIM_INFINITY : (rlim_t)1 << 20);
        fill_full(&store, 700000);
        limit_file_size(RLIM_INFINITY);
        ck_assert(!store.is_large);
        ck_assert(has_space ? store.in_memory == 0 : store.in_memory > store.bytes - ((size_t)2 << 20));
        check_full(&store);
        row_store_free(&store);
    }
}

/* A block of which the file had space for a part is later written to its place, not behind the part. */
TEST(a_block_is_written_again_after_a_part_of_it) {
    struct row_store store = {.width = WIDTH, .max_bytes = (size_t)1 << 30};
    limit_file_size(((rlim_t)1 << 20) + 4096);
    fill_full(&store, 700000);
    limit_file_size(RLIM_INFINITY);
    ck_assert(store.is_file_full && store.in_memory > 0);
    store.max_bytes = 0;
    fill_full(&store, 100000);
    ck_assert_uint_eq(store.in_memory, 0);
    check_full(&store);
    row_store_free(&store);
}

CHECK_MAIN("row_store")
