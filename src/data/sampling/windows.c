/* Windows of a time series, and the keys of `dataset.window`. */
#include "data/sampling/windows.h"

#include "data/sampling/split.h"

/* ---- config ---- */

static const struct schema_row window_rows_table[] = {
    SCHEMA_ROW(INT, struct window_config, steps, .fallback = "0", .min = 0, .max = 1e6,
               .doc = "Adjacent rows of a sample, whose inputs are (steps, features), as Keras' sequence_length and "
                      "Darts' input_chunk_length; 0: a sample is a row."),
    SCHEMA_ROW(INT, struct window_config, horizon, .fallback = "1", .min = 1, .max = 1e6,
               .doc = "The target is that of the row so many rows after the last row of the inputs; 1: the next row."),
    SCHEMA_ROW(INT, struct window_config, predict_steps, .fallback = "1", .min = 1, .max = 1e6,
               .doc =
                   "Adjacent rows whose targets a sample has, from that of horizon on, as Darts' output_chunk_length: "
                   "the model needs an output for each, of several target columns those of the first row first."),
    SCHEMA_ROW(INT, struct window_config, stride, .fallback = "1", .min = 1, .max = 1e9, .flags = SCHEMA_INFERENCE,
               .doc =
                   "Rows between the starts of two samples, as Keras' sequence_stride; predict computes all windows."),
    SCHEMA_KEY(
        BOOL, "history", struct window_config, has_history, .fallback = "false", .flags = SCHEMA_INFERENCE,
        .doc =
            "Inputs of windows for validation and test may be of the rows before those of their part, such as the last "
            "training rows, which are known when the first of their targets are forecast; their targets never are."),
    SCHEMA_ROW(STRING, struct window_config, group, .fallback = "null",
               .doc =
                   "Name of a column (HDF5, NPZ: of a dataset or an array of numbers) that says which series a row is "
                   "of; the rows of a series are adjacent. A window has rows of one series, and split.test or train "
                   "takes the last rows of each. The column is not an input. Null: split.group, or one series."),
    {0},
};

static void check_keys(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct window_config *window = config;
    bool is_default = window->horizon == 1 && window->predict_steps == 1 && window->stride == 1 &&
                      !window->has_history && !window->group;
    if (window->steps > 0 || is_default) return;
    problems_add(problems, where ? where->place : (struct place){0}, path,
                 "steps is missing: give the number of rows of a window");
}

const struct schema window_section = SCHEMA("dataset.window", struct window_config, .rows = window_rows_table,
                                            .shorthand = "steps", .check = check_keys);

static bool are_different(const char *a, const char *b) { return a && b && strcmp(a, b) != 0; }

/* Samples that overlap and are divided at random have values of the training rows among those for validation. */
static void check_split(struct dataset_config *dataset, const struct node *where, struct problems *problems) {
    struct split_config *split = &dataset->split;
    const struct node *given = node_get(where, "split");
    bool is_given = given && given->kind == NODE_MAPPING && node_get(given, "shuffle");
    if (split->stratify)
        problems_add(problems, dataset_place(given, "stratify"), "dataset.split.stratify",
                     "windows are split in the order of time, not by class; remove stratify");
    if (split->group || !split_is_given(split)) return;
    if (split->shuffle && is_given)
        problems_add(problems, dataset_place(given, "shuffle"), "dataset.split.shuffle",
                     "windows overlap, so a random split would train on rows of the validation; remove shuffle: the "
                     "last rows are then the validation rows");
    split->shuffle = false;
    if (split->folds && dataset->window.group)
        problems_add(problems, dataset_place(given, "folds"), "dataset.split.folds",
                     "folds of several series need split.group: %s, which keeps each series in one part",
                     dataset->window.group);
}

void window_check(struct dataset_config *dataset, const struct dataset_format *format, const struct node *where,
                  struct problems *problems) {
    static const char path[] = "dataset.window";
    struct place place = dataset_place(where, "window");
    const struct window_config *window = &dataset->window;
    if (window->steps == 0) return;
    check_split(dataset, where, problems);
    if (format && format->keys & (KEY_IMAGE | KEY_TEXT | KEY_TOKENS))
        problems_add(problems, place, path, "needs a table of numbers for each time, not format %s%s", format->name,
                     format->keys & KEY_IMAGE ? "" : "; see its block_size");
    if (dataset->input_groups.count)
        problems_add(problems, dataset_place(where, "inputs"), "dataset.inputs",
                     "a window has one input (steps, features); give a list of columns instead of named inputs");
    if (dataset->weights)
        problems_add(problems, dataset_place(where, "weights"), "dataset.weights",
                     "weights are of rows, and with dataset.window a sample has several; remove it");
    if (window->group && format && !format->read_extra)
        problems_add(problems, place, path, "group: format %s has no names for groups; hdf5, csv, sqlite and npz have",
                     format->name);
    if (are_different(window->group, dataset->split.group))
        problems_add(problems, place, path, "group is '%s', but split.group is '%s'; both must be the same",
                     window->group, dataset->split.group);
}

/* ---- windows ---- */

/* A stretch is a maximal range of adjacent rows that may be in one window. */

/* The end of the stretch of used rows that starts at [row]. */
static size_t stretch_end(const struct window_rows *of, size_t row) {
    size_t end = row + 1;
    while (end < of->rows && (!of->is_used || of->is_used[end]) && (!of->series || of->series[end] == of->series[row]))
        end++;
    return end;
}

/* The first row that windows of the stretch from [row] on may have. */
static size_t history_of(const struct window_rows *of, size_t row) {
    size_t first = row;
    while (first > 0 && row - first < of->history && (!of->series || of->series[first - 1] == of->series[row])) first--;
    return first;
}

size_t windows_find(const struct window_rows *of, size_t span, size_t stride, int64_t *starts) {
    size_t count = 0;
    for (size_t row = 0, end; row < of->rows; row = end) {
        end = row + 1;
        if (of->is_used && !of->is_used[row]) continue;
        end = stretch_end(of, row);
        size_t first = history_of(of, row);
        for (size_t start = first; end - first >= span && start <= end - span; start += stride, count++)
            if (starts) starts[count] = (int64_t)start;
    }
    return count;
}

size_t windows_interruption(const int64_t *series, size_t rows, bool *was_seen) {
    for (size_t row = 0; row < rows; row++) {
        if (row > 0 && series[row] == series[row - 1]) continue;
        if (was_seen[series[row]]) return row;
        was_seen[series[row]] = true;
    }
    return rows;
}

size_t windows_short_series(const struct window_rows *of, const int64_t *starts, size_t count, size_t *first) {
    const int64_t *series = of->series;
    size_t last = of->rows, found = 0, next = 0; /* next: the first window that does not start before [row] */
    for (size_t row = 0; row < of->rows; row++) {
        if (of->is_used && !of->is_used[row]) continue;
        bool is_new = last == of->rows || series[row] != series[last];
        last = row;
        if (!is_new) continue;
        while (next < count && starts[next] < (int64_t)row && series[starts[next]] != series[row]) next++;
        if (next < count && series[starts[next]] == series[row]) continue;
        if (found++ == 0) *first = row;
    }
    return found;
}

void windows_split(const struct split_config *split, const int64_t *series, size_t rows, int64_t *order,
                   struct split_counts *counts) {
    struct window_rows all = {.rows = rows, .series = series};
    struct split_counts own;
    *counts = (struct split_counts){0};
    for (size_t row = 0, end; row < rows; row = end) {
        end = stretch_end(&all, row);
        split_sizes_three(split, end - row, &own);
        counts->train += own.train;
        counts->validation += own.validation;
        counts->test += own.test;
    }
    size_t test = 0, validation = counts->test, train = counts->test + counts->validation;
    for (size_t row = 0, end; row < rows; row = end) {
        end = stretch_end(&all, row);
        split_sizes_three(split, end - row, &own);
        for (size_t i = row; i < end; i++)
            order[i < row + own.train                    ? train++
                  : i < row + own.train + own.validation ? validation++
                                                         : test++] = (int64_t)i;
    }
}
