/* The groups of dataset.split.group in a table are compared as categories: numbers if all values of the column are, so
 * that 1 and 1.0 are the same group, and else texts, as codes such as 007 are. */
#include "data/columns/raw_columns.h"
#include "data/source/csv_source.h"

void csv_note_merged(struct csv *csv, size_t column, const struct text_pool *pool, const struct string_list *sorted) {
    if (sorted->count >= pool->count) return;
    const char **first = arena_alloc(csv->arena, (sorted->count + 1) * sizeof *first);
    for (size_t i = 0; i < pool->count; i++) {
        const char *text = pool->items[i].text;
        size_t index = category_find(sorted, true, text);
        if (index == SIZE_MAX) continue;
        if (first[index]) {
            csv_add_note(csv, arena_printf(csv->arena,
                                           "column '%s': '%s' and '%s' are equal as numbers and one value%s; a letter "
                                           "before them keeps them apart",
                                           csv_printable(csv, csv->names[column]), csv_printable(csv, first[index]),
                                           csv_printable(csv, text),
                                           pool->count - sorted->count > 1 ? ", as others of the column" : ""));
            return;
        }
        first[index] = text;
    }
}

void csv_number_groups(struct csv *csv) {
    size_t count = csv->groups.count;
    bool are_numbers = category_are_numbers(&csv->groups);
    struct string_list sorted = {.items = arena_alloc(csv->arena, (count + 1) * sizeof *sorted.items)};
    csv->group_values = arena_alloc(csv->arena, (count + 1) * sizeof *csv->group_values);
    for (size_t i = 0; i < count; i++) sorted.items[i] = csv->groups.items[i].text;
    sorted.count = category_sort(sorted.items, count, are_numbers);
    if (are_numbers && csv->group_column != NOT_USED) csv_note_merged(csv, csv->group_column, &csv->groups, &sorted);
    for (size_t i = 0; i < count; i++)
        csv->group_values[i] = (double)category_find(&sorted, are_numbers, csv->groups.items[i].text);
}
