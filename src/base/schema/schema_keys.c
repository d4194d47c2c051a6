/* The keys of a schema by their dotted paths, for completion. */
#include <string.h>

#include "base/schema/schema_internal.h"

struct walk {
    schema_key_function *visit;
    void *context;
    struct arena *arena;
    const char **paths; /* (count) those visited: several types of an optimizer have the key `lr` */
    size_t count, capacity;
    const struct schema_variants *open[8]; /* tables that contain the present one: a schedule may contain a schedule */
    size_t depth;
};

static void visit(struct walk *w, const char *path, const char *const *values) {
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(w->paths[i], path) == 0) return;
    if (w->count == w->capacity) {
        const char **larger = arena_alloc(w->arena, (w->capacity * 2 + 64) * sizeof *larger);
        if (w->count) memcpy(larger, w->paths, w->count * sizeof *larger);
        w->paths = larger;
        w->capacity = w->capacity * 2 + 64;
    }
    w->paths[w->count++] = path;
    w->visit(w->context, path, values);
}

static void walk_rows(struct walk *w, const char *path, const struct schema *schema);

static void walk_types(struct walk *w, const char *path, const struct schema_variants *variants) {
    const struct schema_variant *type;
    size_t count = 0;
    for (size_t i = 0; i < w->depth; i++)
        if (w->open[i] == variants) return;
    if (w->depth == sizeof w->open / sizeof *w->open) return;
    while (variants->at(count)) count++;
    const char **names = arena_alloc(w->arena, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++) names[i] = variants->at(i)->name;
    names[count] = NULL;
    visit(w, path, names);
    if (variants->is_keyed) return;
    visit(w, arena_printf(w->arena, "%s.type", path), names);
    w->open[w->depth++] = variants;
    walk_rows(w, path, variants->common);
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) walk_rows(w, path, type->schema);
    w->depth--;
}

static void walk_rows(struct walk *w, const char *path, const struct schema *schema) {
    static const char *const booleans[] = {"true", "false", NULL}, *const none[] = {NULL};
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++) {
        const char *key = *path ? arena_printf(w->arena, "%s.%s", path, row->key) : row->key;
        if (row->type == SCHEMA_SECTION)
            walk_rows(w, key, row->section);
        else if (row->type == SCHEMA_VARIANT)
            walk_types(w, key, row->variants);
        else if (row->type < SCHEMA_SECTION)
            visit(w, key, row->type == SCHEMA_BOOL ? booleans : row->choices ? row->choices : none);
    }
}

void schema_each_key(const struct schema *root, schema_key_function *function, void *context) {
    struct walk w = {.visit = function, .context = context, .arena = arena_create()};
    walk_rows(&w, "", root);
    arena_destroy(w.arena);
}
