/* Three parts are two splits, one after the other: first the test rows, then the rest into training and validation
 * rows, each as it would be done alone. */
#include <stdlib.h>
#include <string.h>

#include "data/sampling/split.h"
#include "data/source/source.h"

bool split_has_test(const struct split_config *config) {
    return config->test > 0 && (config->validation > 0 || config->folds > 0);
}

static struct split_config first_of(const struct split_config *config) {
    struct split_config first = *config;
    first.validation = 0;
    first.folds = 0;
    first.fold = SCHEMA_NO_INT;
    first.shuffle = config->shuffle && !config->time_series;
    first.time_series = false;
    return first;
}

static struct split_config second_of(const struct split_config *config) {
    struct split_config second = *config;
    second.test = config->validation;
    second.validation = 0;
    return second;
}

void split_sizes_three(const struct split_config *config, size_t rows, struct split_counts *counts) {
    struct split_config first = first_of(config), second = second_of(config);
    *counts = (struct split_counts){0};
    if (!split_has_test(config)) {
        split_sizes(config, rows, &counts->train, &counts->validation);
        return;
    }
    split_sizes(&first, rows, &rows, &counts->test);
    split_sizes(&second, rows, &counts->train, &counts->validation);
}

/* The rows that are divided off, in order (rows) before the others. *n_other: the others that are used. */
static status split_once(const struct split_config *config, const struct split_labels *labels, size_t rows,
                         int64_t *order, size_t *n, size_t *n_other, size_t *groups) {
    size_t first_other, first, at = 0;
    *groups = 0;
    if (config->time_series) return split_rows_time_series(config, rows, order, n, n_other);
    status s = OK;
    if (!config->folds) split_sizes(config, rows, n_other, n);
    if (config->group) {
        s = split_rows_grouped(config, labels->groups, rows, labels->group_count, order, n, groups);
    } else if (config->folds) {
        s = split_rows_folds(config, labels->classes, rows, order, n);
    } else if (config->stratify) {
        s = split_rows_stratified(config, labels->classes, rows, order);
    } else if (config->shuffle) {
        split_rows(config, rows, order, &first_other, &first);
    } else {
        for (size_t i = *n_other; i < rows; i++) order[at++] = (int64_t)i;
        for (size_t i = 0; i < *n_other; i++) order[at++] = (int64_t)i;
    }
    if (!s) *n_other = rows - *n;
    return s;
}

/* Numbers the groups that remain, in their order, and returns their count. [numbers]: (count) workspace. */
static size_t renumber(int64_t *groups, size_t rows, int64_t *numbers, size_t count) {
    size_t remaining = 0;
    memset(numbers, 0, count * sizeof *numbers);
    for (size_t i = 0; i < rows; i++) numbers[groups[i]] = 1;
    for (size_t i = 0; i < count; i++)
        if (numbers[i]) numbers[i] = (int64_t)remaining++;
    for (size_t i = 0; i < rows; i++) groups[i] = numbers[groups[i]];
    return remaining;
}

/* Divides rest (n), the rows that are not for the test. [memory]: (3, n) and (labels->group_count). */
static status split_rest(const struct split_config *config, const struct split_labels *labels, int64_t *rest, size_t n,
                         int64_t *memory, struct split_counts *counts) {
    int64_t *order = memory, *own = memory + n, *copy = memory + 2 * n;
    struct split_labels of = {0};
    struct split_config second = second_of(config);
    const int64_t *from = config->group ? labels->groups : config->stratify ? labels->classes : NULL;
    for (size_t i = 0; from && i < n; i++) own[i] = from[rest[i]];
    if (config->group)
        of = (struct split_labels){.groups = own, .group_count = renumber(own, n, memory + 3 * n, labels->group_count)};
    else
        of.classes = from ? own : NULL;
    TRY(split_once(&second, &of, n, order, &counts->validation, &counts->train, &counts->validation_groups));
    memcpy(copy, rest, n * sizeof *rest);
    for (size_t i = 0; i < counts->validation + counts->train; i++) rest[i] = copy[order[i]];
    return OK;
}

status split_rows_three(const struct split_config *config, const struct split_labels *labels, size_t rows,
                        int64_t *order, struct split_counts *counts) {
    struct split_config first = first_of(config);
    size_t rest, groups;
    *counts = (struct split_counts){0};
    TRY(status_prefix(split_once(&first, labels, rows, order, &counts->test, &rest, &groups), "the test rows"));
    if (rest == 0) return status_new(STATUS_DATA, "test %g of %zu rows leaves no other row", config->test, rows);
    int64_t *memory = calloc(3 * rest + labels->group_count + 1, sizeof *memory);
    if (!memory) return status_memory("%zu rows", rest);
    status s = split_rest(config, labels, order + counts->test, rest, memory, counts);
    free(memory);
    if (!s && counts->train == 0)
        s = status_new(STATUS_DATA, "test %g and validation %g of %zu rows leave no training row", config->test,
                       config->validation, rows);
    return s;
}
