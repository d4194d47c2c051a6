/* `--help-config` as plain text: the overview, one section, one choice of types, one type or one key. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema/schema_internal.h"

#define LINE_MAX 100 /* columns */

/* Adds [words] wrapped to LINE_MAX columns, from column [column]; further lines start at [indent]. */
static void add_wrapped(struct text *out, const char *words, size_t column, size_t indent) {
    for (const char *word = words; *word;) {
        size_t length = strcspn(word, " ");
        bool is_first = word == words;
        if (!is_first && column + 1 + length > LINE_MAX) {
            text_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!is_first) {
            text_add(out, " ");
            column++;
        }
        text_add_bytes(out, word, length);
        column += length;
        word += length;
        word += strspn(word, " ");
    }
    text_add(out, "\n");
}

static size_t max_width(size_t width, const char *word) {
    size_t length = strlen(word);
    return length > width ? length : width;
}

/* "  name    first\n          second\n" */
static void add_entry(struct text *out, const char *name, size_t width, const char *first, const char *second) {
    size_t column = 2 + width + 2;
    text_printf(out, "  %-*s  ", (int)width, name);
    if (first && *first) add_wrapped(out, first, column, column);
    if (!second || !*second) return;
    if (first && *first) text_printf(out, "%*s", (int)column, "");
    add_wrapped(out, second, column, column);
}

static void add_row(struct text *out, const struct schema_row *row, size_t width) {
    struct text summary = {0};
    row_add_summary(row, &summary);
    add_entry(out, row->key, width, text_string(&summary), row->doc);
    text_free(&summary);
}

static void add_rows(struct text *out, const struct schema *schema) {
    size_t width = 0;
    for (const struct schema_row *row = schema->rows; row->key; row++) width = max_width(width, row->key);
    for (const struct schema_row *row = schema->rows; row->key; row++) add_row(out, row, width);
}

static bool has_rows(const struct schema *schema) { return schema && schema->rows[0].key; }

static void add_title(struct text *out, const char *path, const char *doc) {
    text_printf(out, "%s: ", path);
    add_wrapped(out, doc ? doc : "", strlen(path) + 2, 0);
}

static void add_choice(struct text *out, const struct section *section) {
    const struct schema_variants *variants = section->choice;
    const struct schema_row *row = section->row;
    add_title(out, section->path, row->doc);
    struct text summary = {0};
    row_add_summary(row, &summary);
    text_printf(out, "\n  %s\n\n", text_string(&summary));
    text_free(&summary);

    const struct schema_variant *type;
    size_t width = 0;
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) width = max_width(width, type->name);
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) add_entry(out, type->name, width, type->doc, NULL);
    if (has_rows(variants->common)) {
        text_printf(out, "\nKeys of every %s:\n\n", variants->what);
        add_rows(out, variants->common);
    }
    if (!variants->at(0)) return;
    text_add(out, "\n");
    text_printf(out, variants->is_keyed ? "Written as NAME or NAME: {KEY: VALUE, ...}"
                                        : "Written as NAME or {type: NAME, KEY: VALUE, ...}");
    text_printf(out, "; the keys of one: --help-config %s.%s\n", section->path, variants->at(0)->name);
}

static void add_struct(struct text *out, const struct section *section) {
    const char *row_doc = section->row ? section->row->doc : NULL;
    add_title(out, section->path, section->type ? section->type->doc : row_doc);
    text_add(out, "\n");
    if (has_rows(section->own)) add_rows(out, section->own);
    if (has_rows(section->common)) {
        if (has_rows(section->own)) text_add(out, "\n");
        text_printf(out, "Keys of every %s:\n\n", section->variants->what);
        add_rows(out, section->common);
    }
    if (!has_rows(section->own) && !has_rows(section->common)) text_add(out, "  It has no keys.\n");
    if (section->own && section->own->shorthand)
        text_printf(out, "\nA single value means {%s: VALUE}.\n", section->own->shorthand);
}

/* ---- lookup ---- */

/* The result of a lookup: a section or choice, or one of its keys. */
struct target {
    struct section section;
    const struct schema_row *key;
};

static bool step_into_struct(struct target *t, const char *step) {
    bool is_list = t->section.row && t->section.row->type == SCHEMA_SECTION_LIST;
    bool is_map = t->section.row && t->section.row->type == SCHEMA_SECTION_MAP;
    if (is_list && step[strspn(step, "0123456789")] == 0) return true;
    const struct schema_row *row = schema_row(t->section.own, step);
    if (!row) row = schema_row(t->section.common, step);
    if (!row) return is_map; /* a name of the user's */
    if (row->type < SCHEMA_SECTION)
        t->key = row;
    else if (row->section)
        t->section = (struct section){.row = row, .own = row->section};
    else
        t->section = (struct section){.row = row, .choice = row->variants};
    return true;
}

/* [step] is a type's name, an index (as in error messages), or a key of any type. */
static bool step_into_choice(struct target *t, const char *step) {
    const struct schema_variants *variants = t->section.choice;
    if (step[strspn(step, "0123456789")] == 0) return true;
    int index = 0;
    const struct schema_variant *type = variants_find(variants, step, &index), *other;
    for (size_t i = 0; !type && (other = variants->at(i)) != NULL; i++) {
        struct target inner = {.section = {.own = other->schema, .common = variants->common}};
        if (!step_into_struct(&inner, step)) continue;
        *t = inner;
        return true;
    }
    if (!type) return false;
    t->section = (struct section){
        .row = t->section.row, .type = type, .variants = variants, .own = type->schema, .common = variants->common};
    return true;
}

static bool walk(const struct schema *root, const char *path, struct arena *arena, struct target *t) {
    *t = (struct target){.section = {.own = root}};
    char *steps = arena_copy(arena, path), *rest = steps;
    for (const char *step; (step = strsep(&rest, ".")) != NULL;) {
        if (t->key || !*step) return false;
        if (!(t->section.choice ? step_into_choice(t, step) : step_into_struct(t, step))) return false;
    }
    t->section.path = path;
    return true;
}

/* Finds a type or key by its name alone: `adam`, `conv2d`, `lr`. */
static bool find_anywhere(const struct sections *all, const char *name, struct arena *arena, struct target *t) {
    for (size_t i = 1; i < all->count; i++) {
        const char *last = strrchr(all->items[i].path, '.');
        if (!last || strcmp(last + 1, name) != 0) continue;
        *t = (struct target){.section = all->items[i]};
        return true;
    }
    const struct section *owner = sections_with_key(all, name);
    if (!owner) return false;
    *t = (struct target){.section = *owner, .key = schema_row(owner->own, name)};
    if (!t->key) t->key = schema_row(owner->common, name);
    t->section.path = *owner->path ? arena_printf(arena, "%s.%s", owner->path, name) : name;
    return true;
}

static status unknown_section(const char *section, const struct sections *all, struct arena *arena) {
    const char **known = arena_alloc(arena, all->count * sizeof *known);
    struct text list = {0}, hint = {0};
    size_t count = 0;
    for (size_t i = 1; i < all->count; i++) {
        known[count++] = all->items[i].path;
        if (all->items[i].type || all->items[i].repeats) continue; /* the types are listed with their choice */
        text_printf(&list, "%s%s", list.length ? ", " : "", all->items[i].path);
    }
    suggest_nearest(section, known, &hint);
    status s = status_new(STATUS_USAGE, "unknown section '%s'%s (known: %s)", short_text(section).s, text_string(&hint),
                          text_string(&list));
    text_free(&list);
    text_free(&hint);
    return s;
}

status schema_help(const struct schema *schema, const char *section, struct text *out) {
    if (!section || !*section) {
        text_printf(out, "Keys of a %s; --help-%s KEY explains one.\n\n", schema->name, schema->name);
        add_rows(out, schema);
        return OK;
    }
    struct arena *arena = arena_create();
    struct sections all = sections_list(schema, arena);
    struct target t;
    status s = OK;
    if (!walk(schema, section, arena, &t) && !find_anywhere(&all, section, arena, &t)) {
        s = unknown_section(section, &all, arena);
    } else if (t.key) {
        text_printf(out, "%s:\n\n", t.section.path);
        add_row(out, t.key, strlen(t.key->key));
    } else if (t.section.choice) {
        add_choice(out, &t.section);
    } else {
        add_struct(out, &t.section);
    }
    arena_destroy(arena);
    return s;
}
