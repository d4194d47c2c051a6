/* row_filter: `dataset.filter`, an expression over the columns of a table that says which rows are used, such as
 * "year >= 2010 and country == 'DE'". The words are Python's, the rules pandas' query(). */
#pragma once

#include "base/arena.h"
#include "base/status.h"

struct row_filter {
    const char **columns; /* (column_count): the names, without repetitions */
    size_t column_count;
    bool asks_for_missing;    /* it has `is missing` or `is not missing`, which pandas' query() lacks */
    bool has_escapes;         /* a text or a name has a quote or a backslash, which query() reads as Python does */
    struct filter_node *root; /* of row_filter.c */
};

/* Parses [text]: *out in [arena]. STATUS_USAGE: "character 6: expected ..., not '='". */
status row_filter_parse(const char *text, struct arena *arena, struct row_filter **out);

/* How the values of a row are read: [column] is an index of row_filter.columns. */
struct filter_row {
    void *state;
    const char *(*text)(void *state, size_t column); /* NULL: a missing value */
    bool (*number)(void *state, const char *text, double *value);
};

/* Whether the row is used. A missing value makes every comparison false but !=, as NaN does in pandas. A text that is
 * no number is not equal to a number; by < it cannot be compared with one: *column is its column then, and *keeps
 * false; else *column is SIZE_MAX. */
void row_filter_test(const struct row_filter *filter, const struct filter_row *row, bool *keeps, size_t *column);
