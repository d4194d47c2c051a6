/* The list of all sections of a schema, for help, the reference page and suggestions. A table of types may contain
 * itself (layers in a layer) and be used several times, so its types are listed only once. */
#include <stdlib.h>
#include <string.h>

#include "base/schema/schema_internal.h"

struct lister {
    struct sections list;
    size_t capacity;
    struct arena *arena;
};

static void add_section(struct lister *l, struct section section) {
    if (l->list.count == l->capacity) {
        l->capacity = l->capacity ? l->capacity * 2 : 32;
        struct section *items = arena_alloc(l->arena, l->capacity * sizeof *items);
        if (l->list.count > 0) memcpy(items, l->list.items, l->list.count * sizeof *items);
        l->list.items = items;
    }
    l->list.items[l->list.count++] = section;
}

static void list_rows(struct lister *l, const char *path, const struct schema *schema);

static const char *listed_before(const struct lister *l, const struct schema_variants *variants) {
    for (size_t i = 0; i < l->list.count; i++)
        if (l->list.items[i].choice == variants) return l->list.items[i].path;
    return NULL;
}

static void list_choice(struct lister *l, const char *path, const struct schema_row *row) {
    const struct schema_variants *variants = row->variants;
    const char *before = listed_before(l, variants);
    add_section(l, (struct section){.path = path, .row = row, .choice = variants, .repeats = before});
    if (before) return;
    list_rows(l, path, variants->common);
    const struct schema_variant *type;
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) {
        const char *type_path = arena_printf(l->arena, "%s.%s", path, type->name);
        add_section(l, (struct section){.path = type_path,
                                        .parent = path,
                                        .row = row,
                                        .type = type,
                                        .variants = variants,
                                        .own = type->schema,
                                        .common = variants->common});
        list_rows(l, type_path, type->schema);
    }
}

static void list_rows(struct lister *l, const char *path, const struct schema *schema) {
    if (!schema) return;
    for (const struct schema_row *row = schema->rows; row->key; row++) {
        if (row->type < SCHEMA_SECTION) continue;
        const char *row_path = *path ? arena_printf(l->arena, "%s.%s", path, row->key) : row->key;
        if (row->section) {
            add_section(l, (struct section){.path = row_path, .row = row, .own = row->section});
            list_rows(l, row_path, row->section);
        } else {
            list_choice(l, row_path, row);
        }
    }
}

struct sections sections_list(const struct schema *root, struct arena *arena) {
    struct lister l = {.arena = arena};
    add_section(&l, (struct section){.path = "", .own = root});
    list_rows(&l, "", root);
    return l.list;
}

static size_t level_of(const char *path) {
    size_t level = *path != 0;
    for (; *path; path++) level += *path == '.';
    return level;
}

/* The keys of a type have the level of its choice; those of a keyed type (`linear: {out: 3}`) are one level deeper. */
static size_t level_of_keys(const struct section *s) {
    return level_of(s->type && !s->variants->is_keyed ? s->parent : s->path) + (s->variants && s->variants->is_keyed);
}

const struct section *sections_with_key(const struct sections *all, const char *key) {
    const struct section *best = NULL;
    for (size_t i = 0; i < all->count; i++) {
        const struct section *s = &all->items[i];
        bool has_key = schema_row(s->own, key) || schema_row(s->common, key);
        if (has_key && (!best || level_of_keys(s) < level_of_keys(best))) best = s;
    }
    return best;
}

const struct section *sections_at_key(const struct sections *all, const char *path) {
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    size_t length = dot ? (size_t)(dot - path) : 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct section *s = &all->items[i];
        if (strlen(s->path) != length || strncmp(s->path, path, length) != 0) continue;
        bool has_key =
            s->choice ? variants_with_key(s->choice, key) : schema_row(s->own, key) || schema_row(s->common, key);
        return has_key ? s : NULL;
    }
    return NULL;
}

const struct schema_row *schema_row(const struct schema *schema, const char *key) {
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++)
        if (strcmp(row->key, key) == 0) return row;
    return NULL;
}

bool variants_with_key(const struct schema_variants *variants, const char *key) {
    const struct schema_variant *type;
    if (schema_row(variants->common, key) || (!variants->is_keyed && strcmp(key, "type") == 0)) return true;
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++)
        if (schema_row(type->schema, key)) return true;
    return false;
}

const struct schema_variant *variants_find(const struct schema_variants *variants, const char *name, int *index) {
    const struct schema_variant *type;
    for (int i = 0; (type = variants->at((size_t)i)) != NULL; i++) {
        if (strcmp(type->name, name) != 0) continue;
        *index = i;
        return type;
    }
    return NULL;
}
