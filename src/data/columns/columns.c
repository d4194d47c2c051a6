/* Lists of columns, which are searched by their sorted names, because a table may have thousands, and the choice of the
 * target where nobody has named one. */
#include "data/columns/columns.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/scoped.h"

/* ---- sorted names ---- */

/* Equal names are sorted by their index, so that the first one is found. */

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

/* ---- columns ---- */

#define NAMES_LENGTH 200 /* of a list of names in a message */

static const char *const role_names[COLUMN_ROLES] = {[COLUMN_INPUT] = "input", [COLUMN_TARGET] = "target"};

const char *column_role_name(enum column_role role) { return role_names[role]; }

struct column_list columns_copy(struct arena *arena, const struct column_list *list) {
    struct column_list copy = {.format = list->format ? arena_copy(arena, list->format) : NULL, .count = list->count};
    copy.items = arena_alloc(arena, (list->count + 1) * sizeof *copy.items);
    for (size_t i = 0; i < list->count; i++)
        copy.items[i] = (struct named_column){arena_copy(arena, list->items[i].name), list->items[i].role};
    return copy;
}

size_t columns_count(const struct column_list *list, enum column_role role) {
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) count += list->items[i].role == role;
    return count;
}

struct column_index columns_index(struct arena *arena, const struct column_list *list) {
    struct column_index index;
    for (size_t role = 0; role < COLUMN_ROLES; role++) {
        index.roles[role] = name_index_create(arena, list->count);
        for (size_t i = 0; i < list->count; i++)
            if (list->items[i].role == role) name_index_add(&index.roles[role], list->items[i].name, i);
        name_index_sort(&index.roles[role]);
    }
    return index;
}

bool columns_have(const struct column_index *index, enum column_role role, const char *name) {
    return name_index_find(&index->roles[role], name) != SIZE_MAX;
}

bool columns_have_name(const struct column_index *index, const char *name) {
    return columns_have(index, COLUMN_INPUT, name) || columns_have(index, COLUMN_TARGET, name);
}

void columns_add_names(const struct column_list *list, enum column_role role, struct text *out) {
    size_t start = out->length;
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].role != role) continue;
        const char *separator = out->length > start ? ", " : "";
        if (out->length - start >= NAMES_LENGTH) {
            text_printf(out, "%s...", separator);
            return;
        }
        text_printf(out, "%s%.60s", separator, list->items[i].name);
    }
}

const char *columns_nearest(const struct column_list *list, const char *name) {
    SCOPED_ARENA arena = arena_create();
    const char **names = arena_alloc(arena, (list->count + 1) * sizeof *names); /* ends with NULL */
    for (size_t i = 0; i < list->count; i++) names[i] = list->items[i].name;
    return schema_nearest(name, names);
}

static status reject_key(const struct column_list *trained, enum column_role role, const char *what, const char *name) {
    SCOPED_TEXT expected = {0};
    columns_add_names(trained, role, &expected);
    return status_usage("dataset.%ss: %s '%.60s'; the model was trained with the %ss: %s", column_role_name(role), what,
                        name, column_role_name(role), text_string(&expected));
}

static status check_names(const struct column_list *trained, const struct column_index *index, enum column_role role,
                          const struct string_list *names, const struct name_index *sorted) {
    for (size_t i = 0; i < names->count; i++)
        if (!columns_have(index, role, names->items[i]))
            return reject_key(trained, role, "unknown column", names->items[i]);
    for (size_t i = 0; i < trained->count; i++)
        if (trained->items[i].role == role && name_index_find(sorted, trained->items[i].name) == SIZE_MAX)
            return reject_key(trained, role, "missing column", trained->items[i].name);
    for (size_t i = 0; i < names->count; i++)
        if (name_index_find(sorted, names->items[i]) != i)
            return reject_key(trained, role, "repeated column", names->items[i]);
    return OK;
}

status columns_check_key(const struct column_list *trained, enum column_role role, const struct string_list *names) {
    if (names->count == 0) return OK;
    SCOPED_ARENA arena = arena_create();
    struct column_index index = columns_index(arena, trained);
    struct name_index sorted = name_index_create(arena, names->count);
    for (size_t i = 0; i < names->count; i++) name_index_add(&sorted, names->items[i], i);
    name_index_sort(&sorted);
    return check_names(trained, &index, role, names, &sorted);
}

/* ---- the target ---- */

/* init and a run without dataset.targets choose by this file, so that they choose the same column. */

bool target_is_usual(const char *name) {
    static const char *const usual[] = {"target", "targets", "label",    "labels", "class",
                                        "y",      "outcome", "survived", "churn"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcasecmp(name, usual[i]) == 0) return true;
    return false;
}

const char *target_why(const char *name) { return target_is_usual(name) ? "by its name" : "the last column"; }

void target_choice_add(struct target_choice *choice, size_t column, const char *name, bool has_name) {
    bool is_usual = has_name && target_is_usual(name);
    if (choice->is_usual && !is_usual) return;
    if (choice->has_name && !has_name) return;
    *choice = (struct target_choice){.column = column, .is_usual = is_usual, .has_name = has_name};
}
