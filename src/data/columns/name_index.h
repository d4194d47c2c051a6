/* name_index: the sorted names of a list, so that many of them are found in little time. */
#ifndef DATA_NAME_INDEX_H
#define DATA_NAME_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

struct sorted_name {
    const char *name;
    size_t index; /* in the list */
};

struct name_index {
    struct sorted_name *items;
    size_t count;
};

/* Space for [count] names in [arena]; then name_index_add of each, and name_index_sort. */
struct name_index name_index_create(struct arena *arena, size_t count);
void name_index_add(struct name_index *names, const char *name, size_t index);
void name_index_sort(struct name_index *names);

/* The lowest index that was added with [name]; SIZE_MAX: none. */
size_t name_index_find(const struct name_index *names, const char *name);

#endif
