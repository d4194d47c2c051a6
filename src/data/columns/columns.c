/* The lists are short and searched once per file, so the search is linear. */
#include "data/columns/columns.h"

#include <string.h>

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

bool columns_have(const struct column_list *list, enum column_role role, const char *name) {
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].role == role && strcmp(list->items[i].name, name) == 0) return true;
    return false;
}

bool columns_have_name(const struct column_list *list, const char *name) {
    return columns_have(list, COLUMN_INPUT, name) || columns_have(list, COLUMN_TARGET, name);
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
    struct arena *arena = arena_create();
    const char **names = arena_alloc(arena, (list->count + 1) * sizeof *names); /* ends with NULL */
    for (size_t i = 0; i < list->count; i++) names[i] = list->items[i].name;
    const char *nearest = schema_nearest(name, names);
    arena_destroy(arena);
    return nearest;
}

static status reject_key(const struct column_list *trained, enum column_role role, const char *what, const char *name) {
    struct text expected = {0};
    columns_add_names(trained, role, &expected);
    status s = status_new(STATUS_USAGE, "dataset.%ss: %s '%.60s'; the model was trained with the %ss: %s",
                          column_role_name(role), what, name, column_role_name(role), text_string(&expected));
    text_free(&expected);
    return s;
}

status columns_check_key(const struct column_list *trained, enum column_role role, const struct string_list *names) {
    if (names->count == 0) return OK;
    for (size_t i = 0; i < names->count; i++)
        if (!columns_have(trained, role, names->items[i]))
            return reject_key(trained, role, "unknown column", names->items[i]);
    for (size_t i = 0; i < trained->count; i++)
        if (trained->items[i].role == role && !string_list_has(names, trained->items[i].name))
            return reject_key(trained, role, "missing column", trained->items[i].name);
    bool has_repeated = names->count > columns_count(trained, role);
    for (size_t i = 0; has_repeated && i < names->count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(names->items[k], names->items[i]) == 0)
                return reject_key(trained, role, "repeated column", names->items[i]);
    return OK;
}
