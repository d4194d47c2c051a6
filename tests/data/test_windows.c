/* Which rows are windows, and that a table has its rows once however many windows have them. ctest-labels: unit */
#include "data/dataset/open_dataset.h"
#include "data/sampling/windows.h"
#include "open.h"

static void equal_starts(const struct window_rows *of, size_t span, size_t stride, const int64_t *expected,
                         size_t count) {
    int64_t starts[16];
    ck_assert_uint_eq(windows_find(of, span, stride, NULL), count);
    ck_assert_uint_eq(windows_find(of, span, stride, starts), count);
    for (size_t i = 0; i < count; i++) ck_assert_int_eq(starts[i], expected[i]);
}

TEST(stretches_of_rows) {
    const int64_t series[] = {4, 4, 4, 4, 2, 2, 7, 7, 7, 7};
    const bool is_used[] = {true, true, true, true, true, true, true, false, true, true};
    struct window_rows of = {.rows = 10};
    equal_starts(&of, 9, 1, (int64_t[]){0, 1}, 2);
    equal_starts(&of, 3, 4, (int64_t[]){0, 4}, 2);
    equal_starts(&of, 11, 1, NULL, 0);
    of.series = series;
    equal_starts(&of, 3, 1, (int64_t[]){0, 1, 6, 7}, 4);
    equal_starts(&of, 2, 2, (int64_t[]){0, 2, 4, 6, 8}, 5);
    of.is_used = is_used;
    equal_starts(&of, 2, 1, (int64_t[]){0, 1, 2, 4, 8}, 5);
    of.history = 2;
    equal_starts(&of, 3, 1, (int64_t[]){0, 1, 6, 7}, 4);
    of.history = 0;
    of.series = NULL;
    equal_starts(&of, 2, 3, (int64_t[]){0, 3, 8}, 3);
    of.rows = 0;
    equal_starts(&of, 1, 1, NULL, 0);
}

TEST(interrupted_series) {
    const int64_t series[] = {1, 1, 0, 2, 2, 0};
    bool was_seen[2][3] = {0};
    ck_assert_uint_eq(windows_interruption(series, 5, was_seen[0]), 5);
    ck_assert_uint_eq(windows_interruption(series, 6, was_seen[1]), 5);
}

TEST(short_series) {
    const int64_t series[] = {1, 1, 1, 0, 2, 2, 3};
    const bool is_used[] = {true, true, true, true, false, false, true};
    struct window_rows of = {.rows = 7, .series = series};
    size_t first;
    ck_assert_uint_eq(windows_short_series(&of, (int64_t[]){0, 1, 4}, 3, &first), 2);
    ck_assert_uint_eq(first, 3);
    ck_assert_uint_eq(windows_short_series(&of, (int64_t[]){3, 4, 6}, 3, &first), 1);
    ck_assert_uint_eq(first, 0);
    ck_assert_uint_eq(windows_short_series(&of, (int64_t[]){0, 3, 5, 6}, 4, &first), 0);
    const bool last[] = {false, false, true, false, false, true, false};
    of.is_used = last;
    ck_assert_uint_eq(windows_short_series(&of, (int64_t[]){1}, 1, &first), 1);
    ck_assert_uint_eq(first, 5);
    of.is_used = is_used;
    ck_assert_uint_eq(windows_short_series(&of, (int64_t[]){0, 3}, 2, &first), 1);
    ck_assert_uint_eq(first, 6);
}

/* The sizes are those of train_test_split, and of random_split. */
TEST(last_rows_of_each_series) {
    const int64_t series[] = {1, 1, 1, 1, 1, 0, 0, 2}, expected[] = {3, 4, 6, 7, 0, 1, 2, 5};
    int64_t order[8];
    struct split_counts counts;
    windows_split(&(struct split_config){.test = 0.4}, series, 8, order, &counts);
    ck_assert_uint_eq(counts.validation, 4);
    for (size_t i = 0; i < 8; i++) ck_assert_int_eq(order[i], expected[i]);
    windows_split(&(struct split_config){.train = 0.8}, series, 8, order, &counts);
    ck_assert_uint_eq(counts.validation, 3);
    ck_assert_int_eq(order[0], 4);
    ck_assert_int_eq(order[1], 6);
    ck_assert_int_eq(order[2], 7);
    const int64_t three[] = {4, 6, 7, 3, 5, 0, 1, 2};
    windows_split(&(struct split_config){.test = 0.2, .validation = 0.25}, series, 8, order, &counts);
    ck_assert(counts.test == 3 && counts.validation == 2 && counts.train == 3);
    for (size_t i = 0; i < 8; i++) ck_assert_int_eq(order[i], three[i]);
}

TEST(rows_are_stored_once) {
    SCOPED_TEXT csv = {0};
    SCOPED_DATASET dataset;
    text_add(&csv, "a,y\n");
    for (int i = 0; i < 50; i++) text_printf(&csv, "%d,%d\n", i, 100 + i);
    char *folder = make_folder(), *path = path_in(folder, "rows.csv");
    spill(path, csv.data, csv.length);
    ck_ok(open_yaml(&dataset, false, "{path: %s, window: {steps: 20, horizon: 2}, split: {test: 0.5}}", path));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_uint_eq(info->train_rows, 4);
    ck_assert_uint_eq(info->validation_rows, 4);
    ck_assert_uint_eq(dataset->tables[0].rows * dataset->tables[0].input_size, 100);
    float inputs[40], target;
    ck_ok(dataset_read(dataset, DATASET_VALIDATION, &(int64_t){1}, 1, inputs, &target));
    for (int i = 0; i < 20; i++) ck_assert(inputs[2 * i] == (float)(26 + i) && inputs[2 * i + 1] == (float)(126 + i));
    ck_assert_float_eq(target, 147);
    ck_assert_int_eq(dataset_row(dataset, DATASET_VALIDATION, 1), 45);
    free(path);
    remove_folder(folder);
}

CHECK_MAIN("windows")
