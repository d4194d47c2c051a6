/* dataset.split.group and window.group: the groups of the rows, numbered in their order. */
#include <math.h>
#include <stdlib.h>

#include "data/dataset/open_dataset.h"

#define CHUNK_ROWS ((size_t)1 << 16)
#define MAX_EXACT 9007199254740992.0 /* 2^53, which 2^53 + 1 becomes as a double, too */

static status reject(struct source *source, const char *key, size_t row, double group) {
    struct text place = {0};
    source->format->describe_group(source, row, &place);
    status s = isnan(group) ? status_new(STATUS_DATA, "%s: the group is missing (%s)", text_string(&place), key)
                            : status_new(STATUS_DATA, "%s: the group is not a number between -2^53 and 2^53",
                                         text_string(&place));
    text_free(&place);
    return s;
}

static status read_all(struct source *source, const char *key, double *values) {
    for (size_t row = 0, count; row < source->rows; row += count) {
        count = source->rows - row < CHUNK_ROWS ? source->rows - row : CHUNK_ROWS;
        TRY(source->format->read_groups(source, row, count, values + row));
        for (size_t i = row; i < row + count; i++)
            if (!(fabs(values[i]) < MAX_EXACT)) return reject(source, key, i, values[i]);
    }
    return OK;
}

static int compare_values(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The rank of each value (rows) among the different ones, whose number is returned. Sorts [unique], a copy of [values].
 */
static size_t rank_values(const double *values, double *unique, size_t rows, int64_t *ranks) {
    size_t count = 0;
    qsort(unique, rows, sizeof *unique, compare_values);
    for (size_t i = 0; i < rows; i++)
        if (i == 0 || unique[i] != unique[count - 1]) unique[count++] = unique[i];
    for (size_t i = 0; i < rows; i++) {
        const double *found = bsearch(&values[i], unique, count, sizeof *unique, compare_values);
        ranks[i] = found - unique;
    }
    return count;
}

/* [memory]: (2, rows) workspace. */
static status number_groups(const struct dataset_config *config, struct table *table, double *memory, int64_t *groups,
                            size_t *count) {
    double *values = memory, *unique = memory + table->rows;
    TRY(read_all(table->source, dataset_group_key(config), values));
    for (size_t i = 0; i < table->rows; i++) unique[i] = values[i];
    *count = rank_values(values, unique, table->rows, groups);
    if (*count > 1 || !dataset_splits_groups(config)) return OK;
    return status_new(STATUS_DATA, "%s: dataset.split.group: all rows have the same '%s'; a split needs two groups",
                      config->path, config->split.group);
}

status groups_read(const struct dataset_config *config, struct table *table, int64_t **groups, size_t *count) {
    void *ranks, *memory;
    *groups = NULL;
    TRY(rows_alloc(table->rows, sizeof(int64_t), "the groups of the rows", &ranks));
    *groups = ranks;
    TRY(rows_alloc(table->rows, 2 * sizeof(double), "the groups of the rows", &memory));
    status s = number_groups(config, table, memory, *groups, count);
    buffer_free(memory);
    return s;
}
