/* The number of rows that a table reads at once: a few MiB, at least one row, and none for a file without rows, whose
 * header may have any row size. ctest-labels: unit */
#include <stdint.h>

#include "check_main.h"
#include "data/rows/table.h"
#include "files.h"

static void close_nothing(struct source *source) { (void)source; }

static const struct dataset_format fake = {.name = "fake", .close = close_nothing};

static status create(size_t rows, size_t input_size, size_t *chunk_rows) {
    struct source source = {.format = &fake, .rows = rows, .input_size = input_size, .target_size = 1};
    struct table table;
    status s = table_create(&source, TARGET_CLASS, NULL, &table);
    *chunk_rows = table.chunk_rows;
    table_free(&table);
    return s;
}

START_TEST(rows_of_a_chunk) {
    static const struct {
        size_t rows, input_size, expected;
    } cases[] = {{3, 4, 3}, {1000000, 8, 65536}, {2, 1000000, 1}, {0, 8, 0}, {0, (size_t)1 << 50, 0}, {0, SIZE_MAX, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t rows;
        ck_ok(create(cases[i].rows, cases[i].input_size, &rows));
        ck_assert_uint_eq(rows, cases[i].expected);
    }
}
END_TEST

START_TEST(a_row_that_no_memory_holds) {
    size_t rows;
    ck_failure(create(1, SIZE_MAX, &rows), STATUS_MEMORY, "are more than any machine has");
}
END_TEST

TESTS("table", rows_of_a_chunk, a_row_that_no_memory_holds)
