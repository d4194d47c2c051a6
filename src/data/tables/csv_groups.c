/* The groups of dataset.split.group in a table are compared as categories: numbers if all values of the column are, so
 * that 1 and 1.0 are the same group, and else texts, as codes such as 007 are. */
#include "data/columns/raw_columns.h"
#include "data/tables/csv_source.h"

void csv_number_groups(struct csv *csv) {
    size_t count = csv->groups.count;
    bool are_numbers = category_are_numbers(&csv->groups);
    struct string_list sorted = {.items = arena_alloc(csv->arena, (count + 1) * sizeof *sorted.items)};
    csv->group_values = arena_alloc(csv->arena, (count + 1) * sizeof *csv->group_values);
    for (size_t i = 0; i < count; i++) sorted.items[i] = csv->groups.items[i].text;
    sorted.count = category_sort(sorted.items, count, are_numbers);
    for (size_t i = 0; i < count; i++)
        csv->group_values[i] = (double)category_find(&sorted, are_numbers, csv->groups.items[i].text);
}
