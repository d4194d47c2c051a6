/* JSON, because a name may contain any character of a quoted CSV field or of an HDF5 name. */
#include "train/state/column_names.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

char *column_names_write(struct arena *arena, const struct column_list *list) {
    struct text json = {0};
    text_add(&json, "{\"format\": ");
    text_add_json(&json, list->format);
    text_add(&json, ", \"columns\": [");
    for (size_t i = 0; i < list->count; i++) {
        text_add(&json, i ? ", {\"name\": " : "{\"name\": ");
        text_add_json(&json, list->items[i].name);
        text_printf(&json, ", \"role\": \"%s\"}", column_role_name(list->items[i].role));
    }
    text_add(&json, "]}");
    char *copy = arena_copy(arena, text_string(&json));
    text_free(&json);
    return copy;
}

static bool read_column(struct arena *arena, const json_t *item, struct named_column *out) {
    const char *name = json_string_value(json_object_get(item, "name"));
    const char *role = json_string_value(json_object_get(item, "role"));
    if (!name || !role) return false;
    out->name = arena_copy(arena, name);
    for (out->role = 0; out->role < COLUMN_ROLES; out->role++)
        if (strcmp(role, column_role_name(out->role)) == 0) return true;
    return false;
}

static int compare_columns(const void *a, const void *b) {
    const struct named_column *left = *(const struct named_column *const *)a,
                              *right = *(const struct named_column *const *)b;
    int names = strcmp(left->name, right->name);
    return names ? names : (int)left->role - (int)right->role;
}

/* No column is in a list twice, so two lists with the same columns are of the same length. */
static bool has_repetition(struct arena *arena, const struct column_list *list) {
    const struct named_column **sorted = arena_alloc(arena, (list->count + 1) * sizeof *sorted);
    for (size_t i = 0; i < list->count; i++) sorted[i] = &list->items[i];
    qsort(sorted, list->count, sizeof *sorted, compare_columns);
    for (size_t i = 1; i < list->count; i++)
        if (compare_columns(&sorted[i - 1], &sorted[i]) == 0) return true;
    return false;
}

status column_names_parse(struct arena *arena, const char *text, struct column_list *out) {
    json_t *whole = json_loads(text, 0, NULL), *items = json_object_get(whole, "columns");
    const char *format = json_string_value(json_object_get(whole, "format"));
    size_t count = json_array_size(items);
    bool is_valid = format && json_is_array(items);
    *out = (struct column_list){.items = arena_alloc(arena, (count + 1) * sizeof *out->items), .count = count};
    if (format) out->format = arena_copy(arena, format);
    for (size_t i = 0; is_valid && i < count; i++)
        is_valid = read_column(arena, json_array_get(items, i), &out->items[i]);
    json_decref(whole);
    if (!is_valid)
        return status_new(STATUS_DATA, "the checkpoint's columns (data/columns) are not a list of names and roles");
    if (has_repetition(arena, out))
        return status_new(STATUS_DATA,
                          "the checkpoint's columns (data/columns) contain a column twice in the same role");
    return OK;
}

status column_names_read(struct arena *arena, struct checkpoint *checkpoint, struct column_list *out) {
    char *text;
    *out = (struct column_list){0};
    status s = checkpoint_read_text(checkpoint, "data/columns", &text);
    if (!s && text) s = column_names_parse(arena, text, out);
    free(text);
    return s;
}

/* Reports the first column that only one of the two lists has. */
static status compare_names(const struct column_list *trained, const struct column_list *now, const char *path,
                            const char *otherwise, struct arena *arena) {
    struct column_index trained_index = columns_index(arena, trained), now_index = columns_index(arena, now);
    for (size_t i = 0; i < trained->count; i++) {
        const struct named_column *column = &trained->items[i];
        if (columns_have(&now_index, column->role, column->name)) continue;
        bool found = columns_have_name(&now_index, column->name);
        const char *nearest = found ? NULL : columns_nearest(now, column->name);
        return status_new(
            STATUS_DATA,
            "%s: it was trained with the column '%.60s' as %s, which the dataset now %s%s%.60s%s; use the same "
            "columns, or %s",
            path, column->name, column_role_name(column->role),
            found ? "has in another role (see dataset.inputs, dataset.targets)" : "does not have",
            nearest ? " (there is '" : "", nearest ? nearest : "", nearest ? "')" : "", otherwise);
    }
    for (size_t i = 0; i < now->count; i++)
        if (!columns_have(&trained_index, now->items[i].role, now->items[i].name))
            return status_new(STATUS_DATA,
                              "%s: it was trained without the column '%.60s', which the dataset now has as %s; use "
                              "the same columns, or %s",
                              path, now->items[i].name, column_role_name(now->items[i].role), otherwise);
    return OK;
}

static status compare_order(const struct column_list *trained, const struct column_list *now, const char *path,
                            const char *otherwise) {
    for (size_t i = 0; i < trained->count; i++) {
        enum column_role role = trained->items[i].role;
        if (i < now->count && strcmp(trained->items[i].name, now->items[i].name) == 0) continue;
        struct text names = {0};
        columns_add_names(trained, role, &names);
        status s = status_new(STATUS_DATA,
                              "%s: the %s columns of the dataset have another order than in training, and a resume "
                              "needs the same order: %s; use the same file, or %s",
                              path, column_role_name(role), text_string(&names), otherwise);
        text_free(&names);
        return s;
    }
    return OK;
}

status column_names_compare(const struct column_list *trained, const struct column_list *now, const char *path,
                            const char *otherwise) {
    if (trained->count == 0 || now->count == 0 || strcmp(trained->format, now->format) != 0) return OK;
    struct arena *arena = arena_create();
    status s = compare_names(trained, now, path, otherwise, arena);
    arena_destroy(arena);
    TRY(s);
    return compare_order(trained, now, path, otherwise);
}
