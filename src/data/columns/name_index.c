/* Equal names are sorted by their index, so that the first one is found. */
#include "data/columns/name_index.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct name_index name_index_create(struct arena *arena, size_t count) {
    return (struct name_index){.items = arena_alloc(arena, (count + 1) * sizeof(struct sorted_name))};
}

void name_index_add(struct name_index *names, const char *name, size_t index) {
    names->items[names->count++] = (struct sorted_name){name, index};
}

static int by_name(const void *a, const void *b) {
    const struct sorted_name *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : (left->index > right->index) - (left->index < right->index);
}

void name_index_sort(struct name_index *names) { qsort(names->items, names->count, sizeof *names->items, by_name); }

size_t name_index_find(const struct name_index *names, const char *name) {
    size_t first = 0, end = names->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (strcmp(names->items[middle].name, name) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    bool is_found = first < names->count && strcmp(names->items[first].name, name) == 0;
    return is_found ? names->items[first].index : SIZE_MAX;
}
