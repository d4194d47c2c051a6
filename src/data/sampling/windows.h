/* windows: the windows of time series, dataset.window: which rows they start at. */
#pragma once

#include "data/sampling/split.h"
#include "data/source/source.h"

/* Rows in the order of the file. */
struct window_rows {
    size_t rows;
    const int64_t *series; /* (rows) of each row; NULL: all are one series */
    const bool *is_used;   /* (rows) whether a window may have the row; NULL: all */
    size_t history;        /* rows before those that are used that a window may begin with, of the same series */
};

/* The first rows of the windows of [span] adjacent rows that are used and of one series: in each stretch of such rows,
 * every [stride] rows from its first. Returns their number. starts (that number): NULL: they are only counted. */
size_t windows_find(const struct window_rows *of, size_t span, size_t stride, int64_t *starts);

/* The first row whose series was interrupted by another; [rows]: there is none. [was_seen] (number of series): false.
 */
size_t windows_interruption(const int64_t *series, size_t rows, bool *was_seen);

/* The number of series that have used rows but none of the windows: starts (count), of windows_find. *first: the first
 * used row of the first of them, if there is one. The rows of a series are adjacent. */
size_t windows_short_series(const struct window_rows *of, const int64_t *starts, size_t count, size_t *first);

/* Splits each series in the order of time, with the sizes of split_sizes_three: order (rows) has the test rows of all
 * series, which are the last ones of each, the validation rows before these, and then the training rows, each in the
 * order of the file. */
void windows_split(const struct split_config *split, const int64_t *series, size_t rows, int64_t *order,
                   struct split_counts *counts);

/* `dataset.window`: what it cannot be combined with. Without `split.shuffle` a split is in the order of time. [format]:
 * NULL: unknown. */
void window_check(struct dataset_config *dataset, const struct dataset_format *format, const struct node *where,
                  struct problems *problems);
