/* The groups of dataset.split.group in a table. They are numbers if all values of the column are, so that 1 and 1.0 are
 * the same group, and else texts: the values that pandas' read_csv reads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/tables/csv_source.h"

#define MAX_EXACT 9007199254740992.0 /* 2^53: larger integers are not exact as doubles, and are compared as texts */

struct group {
    const char *text;
    double number;
    size_t index;
};

static int compare_numbers(const void *left, const void *right) {
    const struct group *a = left, *b = right;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return fabs(a->number) < MAX_EXACT ? 0 : strcmp(a->text, b->text);
}

static int compare_texts(const void *left, const void *right) {
    return strcmp(((const struct group *)left)->text, ((const struct group *)right)->text);
}

/* Gets the groups; false: a value is not a number. */
static bool read_numbers(struct csv *csv, struct group *groups) {
    bool are_numbers = true;
    for (size_t i = 0; i < csv->groups.count; i++) {
        groups[i] = (struct group){.text = csv->groups.items[i].text, .index = i};
        are_numbers =
            are_numbers && csv_decimal(groups[i].text, &csv->decimal, &groups[i].number) && !isnan(groups[i].number);
    }
    return are_numbers;
}

status csv_number_groups(struct csv *csv) {
    size_t count = csv->groups.count;
    struct group *groups = calloc(count + 1, sizeof *groups);
    if (!groups) return status_memory("%zu groups", count);
    bool are_numbers = read_numbers(csv, groups);
    int (*compare)(const void *, const void *) = are_numbers ? compare_numbers : compare_texts;
    qsort(groups, count, sizeof *groups, compare);
    csv->group_values = arena_alloc(csv->arena, (count + 1) * sizeof *csv->group_values);
    double value = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && compare(&groups[i - 1], &groups[i]) != 0) value++;
        csv->group_values[groups[i].index] = value;
    }
    free(groups);
    return OK;
}
