/* A stretch is a maximal range of adjacent rows that may be in one window. */
#include "data/sampling/windows.h"

#include "data/sampling/split.h"

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
