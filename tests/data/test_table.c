/* The number of rows that a table reads at once: a few MiB, at least one row, and none for a file without rows, whose
 * header may have any row size; and what it reads at once for a batch. ctest-labels: unit */
#include <math.h>

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

TEST(rows_of_a_chunk) {
    static const struct {
        size_t rows, input_size, expected;
    } cases[] = {{3, 4, 3}, {1000000, 8, 65536}, {2, 1000000, 1}, {0, 8, 0}, {0, (size_t)1 << 50, 0}, {0, SIZE_MAX, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t rows;
        ck_ok(create(cases[i].rows, cases[i].input_size, &rows));
        ck_assert_uint_eq(rows, cases[i].expected);
    }
}

TEST(a_row_that_no_memory_holds) {
    size_t rows;
    ck_failure(create(1, SIZE_MAX, &rows), STATUS_MEMORY, "are more than any machine has");
}

/* ---- the rows of a batch ---- */

enum { WIDE = 100000, CHUNK = 5, ROWS = 40 }; /* CHUNK: rows of 100,000 doubles in 4 MiB */

static size_t largest_read, reads, bad_row = SIZE_MAX; /* that is not a number */

/* Row r of the file: all values are r, and so is its target. More than a chunk at once would be behind the buffer. */
static status read_rows(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    ck_assert_uint_le(first + count, source->rows);
    if (count > largest_read) largest_read = count;
    if (count > CHUNK) return status_new(STATUS_BUG, "%zu rows at once", count);
    reads += inputs != NULL;
    for (size_t r = 0; r < count; r++) {
        for (size_t i = 0; inputs && i < WIDE; i++)
            inputs[r * WIDE + i] = first + r == bad_row ? NAN : (double)(first + r);
        if (targets) targets[r] = (double)(first + r);
    }
    return OK;
}

static void describe(const struct source *source, enum row_value kind, size_t row, size_t element, struct text *out) {
    (void)source, (void)kind;
    text_printf(out, "row %zu, element %zu", row, element);
}

static const struct dataset_format wide = {
    .name = "wide", .read = read_rows, .describe = describe, .close = close_nothing};

static struct table open_wide(struct source *source) {
    static const struct scaler none = {0};
    struct table table;
    *source = (struct source){.format = &wide, .rows = ROWS, .input_size = WIDE, .target_size = 1, .divide = 1};
    ck_ok(table_create(source, TARGET_VALUES, &none, &table));
    ck_assert_uint_eq(table.chunk_rows, CHUNK);
    largest_read = reads = 0;
    return table;
}

/* Adjacent rows are read together, whatever their order in the batch, at most a chunk of them. */
TEST(adjacent_rows_of_a_batch) {
    static const struct {
        size_t count;
        int64_t rows[12];
        size_t reads;
    } cases[] = {{4, {7, 6, 9, 8}, 1},
                 {5, {14, 11, 10, 13, 12}, 1},
                 {6, {20, 25, 21, 24, 22, 23}, 2},
                 {11, {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, 3},
                 {7, {30, 31, 31, 32, 33, 34, 34}, 1},
                 {3, {39, 0, 37}, 3}};
    static float inputs[12 * WIDE], targets[12];
    struct source source;
    struct selection all = {0};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct table table = open_wide(&source);
        ck_ok(table_read(&table, &all, cases[c].rows, cases[c].count, inputs, targets));
        bool is_good = true;
        for (size_t r = 0; r < cases[c].count; r++) {
            is_good &= targets[r] == (float)cases[c].rows[r];
            for (size_t i = 0; i < WIDE; i++) is_good &= inputs[r * WIDE + i] == (float)cases[c].rows[r];
        }
        ck_assert_msg(is_good, "batch %zu has other rows", c);
        ck_assert_uint_eq(reads, cases[c].reads);
        table_free(&table);
    }
}

static void add_row(void *context, const double *row) {
    double *next = context;
    ck_assert(row[0] == *next && row[WIDE - 1] == *next);
    *next += 1;
}

TEST(all_rows_in_chunks) {
    struct source source;
    struct table table = open_wide(&source);
    double next = 3;
    ck_ok(table_each(&table, &(struct selection){.first = 3}, ROWS - 3, add_row, &next));
    ck_assert(next == ROWS);
    ck_assert_uint_eq(largest_read, CHUNK);
    ck_assert_uint_eq(reads, (ROWS - 3 + CHUNK - 1) / CHUNK);
    table_free(&table);
}

static void add_sum(void *context, const double *row) { *(double *)context += row[0]; }

/* A row between those that are visited may have any values; one that is visited is refused by its own place. */
TEST(rows_that_are_not_visited) {
    static const int64_t visited[] = {12, 10, 14, 11, 30};
    struct source source;
    struct table table = open_wide(&source);
    struct selection rows = {0};
    ck_ok(order_alloc(5, ROWS, "the order of the rows", &rows.order));
    for (size_t i = 0; i < 5; i++) order_set(&rows.order, i, (size_t)visited[i]);
    double sum = 0;
    bad_row = 13;
    ck_ok(table_each(&table, &rows, 5, add_sum, &sum));
    ck_assert(sum == 12 + 10 + 14 + 11 + 30);
    ck_assert_uint_eq(reads, 2);
    bad_row = 14;
    ck_failure(table_each(&table, &rows, 5, add_sum, &sum), STATUS_DATA,
               "row 14, element 0: NaN is not a finite number");
    bad_row = SIZE_MAX;
    order_free(&rows.order);
    table_free(&table);
}

CHECK_MAIN("table")
