/* A schema described for people and editors: `--help-config`, the reference page, the JSON schema, and keys for
 * completion. All but the last walk one list of sections. */
#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema/schema_internal.h"
#include "base/scoped.h"

/* ---- sections ---- */

/* The list of all sections of a schema, for help, the reference page and suggestions. A table of types may contain
 * itself (layers in a layer) and be used several times, so its types are listed only once. */

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

/* ---- tables of types ---- */

const void *type_table_at(const struct type_table *table, size_t index) {
    if (index < table->own_count) return table->own[index];
    return index - table->own_count < table->added_count ? table->added[index - table->own_count] : NULL;
}

bool type_table_add(struct type_table *table, const void *type) {
    const char *const *name = type, *const * other;
    for (size_t i = 0; (other = type_table_at(table, i)) != NULL; i++)
        if (strcmp(*other, *name) == 0) return false;
    if (table->added_count == TYPES_MAX_ADDED) return false;
    table->added[table->added_count++] = type;
    return true;
}

/* ---- keys by their paths ---- */

/* For completion. Unlike the sections, the keys of a table of types are visited at every place that has the table. */

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

/* ---- help ---- */

/* Plain text: the overview, one section, one choice of types, one type or one key. */

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

static void help_row(struct text *out, const struct schema_row *row, size_t width) {
    SCOPED_TEXT summary = {0};
    row_add_summary(row, &summary);
    add_entry(out, row->key, width, text_string(&summary), row->doc);
}

static void help_rows(struct text *out, const struct schema *schema) {
    size_t width = 0;
    for (const struct schema_row *row = schema->rows; row->key; row++) width = max_width(width, row->key);
    for (const struct schema_row *row = schema->rows; row->key; row++) help_row(out, row, width);
}

static bool has_rows(const struct schema *schema) { return schema && schema->rows[0].key; }

static void add_title(struct text *out, const char *path, const char *doc) {
    text_printf(out, "%s: ", path);
    add_wrapped(out, doc ? doc : "", strlen(path) + 2, 0);
}

static void help_choice(struct text *out, const struct section *section) {
    const struct schema_variants *variants = section->choice;
    const struct schema_row *row = section->row;
    add_title(out, section->path, row->doc);
    SCOPED_TEXT summary = {0};
    row_add_summary(row, &summary);
    text_printf(out, "\n  %s\n\n", text_string(&summary));

    const struct schema_variant *type;
    size_t width = 0;
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) width = max_width(width, type->name);
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) add_entry(out, type->name, width, type->doc, NULL);
    if (has_rows(variants->common)) {
        text_printf(out, "\nKeys of every %s:\n\n", variants->what);
        help_rows(out, variants->common);
    }
    if (!variants->at(0)) return;
    text_add(out, "\n");
    text_printf(out, variants->is_keyed ? "Written as NAME or NAME: {KEY: VALUE, ...}"
                                        : "Written as NAME or {type: NAME, KEY: VALUE, ...}");
    text_printf(out, "; the keys of one: --help-config %s.%s\n", section->path, variants->at(0)->name);
}

static void help_struct(struct text *out, const struct section *section) {
    const char *row_doc = section->row ? section->row->doc : NULL;
    add_title(out, section->path, section->type ? section->type->doc : row_doc);
    text_add(out, "\n");
    if (has_rows(section->own)) help_rows(out, section->own);
    if (has_rows(section->common)) {
        if (has_rows(section->own)) text_add(out, "\n");
        text_printf(out, "Keys of every %s:\n\n", section->variants->what);
        help_rows(out, section->common);
    }
    if (!has_rows(section->own) && !has_rows(section->common)) text_add(out, "  It has no keys.\n");
    if (section->own && section->own->shorthand)
        text_printf(out, "\nA single value means {%s: VALUE}.\n", section->own->shorthand);
}

/* ---- help: lookup ---- */

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
    SCOPED_TEXT list = {0}, hint = {0};
    size_t count = 0;
    for (size_t i = 1; i < all->count; i++) {
        known[count++] = all->items[i].path;
        if (all->items[i].type || all->items[i].repeats) continue; /* the types are listed with their choice */
        text_printf(&list, "%s%s", list.length ? ", " : "", all->items[i].path);
    }
    suggest_nearest(section, known, &hint);
    return status_usage("unknown section '%s'%s (known: %s)", short_text(section).s, text_string(&hint),
                        text_string(&list));
}

status schema_help(const struct schema *schema, const char *section, struct text *out) {
    if (!section || !*section) {
        text_printf(out, "Keys of a %s; --help-%s KEY explains one.\n\n", schema->name, schema->name);
        help_rows(out, schema);
        return OK;
    }
    SCOPED_ARENA arena = arena_create();
    struct sections all = sections_list(schema, arena);
    struct target t;
    status s = OK;
    if (!walk(schema, section, arena, &t) && !find_anywhere(&all, section, arena, &t)) {
        s = unknown_section(section, &all, arena);
    } else if (t.key) {
        text_printf(out, "%s:\n\n", t.section.path);
        help_row(out, t.key, strlen(t.key->key));
    } else if (t.section.choice) {
        help_choice(out, &t.section);
    } else {
        help_struct(out, &t.section);
    }
    return s;
}

/* ---- the reference page ---- */

/* A table for each section, a heading and an anchor for each type. */

/* Adds [text] escaped for a Markdown table; text inside `...` needs no escapes but for '|'. */
static void add_cell(struct text *out, const char *text) {
    bool is_code = false;
    for (; *text; text++) {
        if (*text == '`') is_code = !is_code;
        if (*text == '|')
            text_add(out, "\\|");
        else if (*text == '<' && !is_code)
            text_add(out, "&lt;");
        else
            text_add_bytes(out, *text == '\n' ? " " : text, 1);
    }
}

/* Adds [text] in backquotes. */
static void add_code(struct text *out, const char *text) {
    SCOPED_TEXT code = {0};
    text_printf(&code, "`%s`", text);
    add_cell(out, text_string(&code));
}

static void add_type_cell(struct text *out, const struct schema_row *row, const char *path, const char *repeats) {
    static const char *const names[] = {
        [SCHEMA_BOOL] = "boolean",
        [SCHEMA_INT] = "integer",
        [SCHEMA_REAL] = "number",
        [SCHEMA_STRING] = "text",
        [SCHEMA_CHOICE] = "choice",
        [SCHEMA_INT_LIST] = "list of integers",
        [SCHEMA_REAL_LIST] = "list of numbers",
        [SCHEMA_STRING_LIST] = "list of texts",
    };
    if (row->type == SCHEMA_SECTION)
        text_printf(out, "[section](#%s)", path);
    else if (row->type == SCHEMA_SECTION_LIST)
        text_printf(out, "[list of sections](#%s)", path);
    else if (row->type == SCHEMA_SECTION_MAP)
        text_printf(out, row->section->rows->key ? "[mapping to sections](#%s)" : "[mapping to values](#%s)", path);
    else if (row->type == SCHEMA_VARIANT)
        text_printf(out, "[%s](#%s)", row->variants->what, repeats ? repeats : path);
    else if (row->type == SCHEMA_VARIANT_LIST)
        text_printf(out, "[list of %s%s](#%s)", row->variants->what, plural_suffix(row->variants->what),
                    repeats ? repeats : path);
    else
        text_add(out, row->groups_offset                              ? "list of texts, or mapping to lists"
                      : row->others_offset                            ? "text, or list of texts"
                      : row->type == SCHEMA_INT_LIST && row->choices  ? "choice, or list of integers"
                      : row->type == SCHEMA_REAL_LIST && row->choices ? "choice, or list of numbers"
                                                                      : names[row->type]);
    if (row_is_nullable(row)) text_add(out, " or null");
}

static void add_allowed_cell(struct text *out, const struct schema_row *row) {
    for (size_t i = 0; row->choices && row->choices[i]; i++) {
        text_add(out, i ? ", " : "");
        add_code(out, row->choices[i]);
    }
    if (!row_has_limits(row)) return;
    if (row->choices) text_add(out, ", ");
    row_add_limits(row, out);
}

static const struct section *section_at(const struct sections *all, const char *path) {
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->items[i].path, path) == 0) return &all->items[i];
    return NULL;
}

/* [flags]: those of the section. */
static void add_table(struct text *out, const struct sections *all, const char *path, const struct schema *schema,
                      unsigned flags) {
    text_add(out, "| Key | Type | Default | Allowed | Meaning |\n|---|---|---|---|---|\n");
    for (const struct schema_row *row = schema->rows; row->key; row++) {
        SCOPED_TEXT row_path = {0};
        text_printf(&row_path, "%s%s%s", path, *path ? "." : "", row->key);
        const struct section *section = section_at(all, text_string(&row_path));
        text_printf(out, "| `%s` | ", row->key);
        add_type_cell(out, row, text_string(&row_path), section ? section->repeats : NULL);
        text_add(out, " | ");
        if (row->flags & SCHEMA_REQUIRED)
            text_add(out, "required");
        else if (row->fallback)
            add_code(out, row->fallback);
        text_add(out, " | ");
        add_allowed_cell(out, row);
        text_add(out, " | ");
        add_cell(out, row->doc ? row->doc : "");
        if ((row->flags | flags) & SCHEMA_EXTENDS) text_add(out, " *May differ on a resume.*");
        if ((row->flags | flags) & SCHEMA_INFERENCE) text_add(out, " *May differ in eval and predict.*");
        text_add(out, " |\n");
    }
    text_add(out, "\n");
}

static void page_choice(struct text *out, const struct sections *all, const struct section *s) {
    const struct schema_variants *variants = s->choice;
    const struct schema_variant *type;
    add_cell(out, s->row->doc ? s->row->doc : "");
    text_printf(out, " Written as `NAME` or `%s`. ",
                variants->is_keyed ? "NAME: {KEY: VALUE}" : "{type: NAME, KEY: VALUE}");
    text_add(out, variants->at(0) ? "One of:\n\n" : "All types are those of extensions.\n");
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++)
        text_printf(out, "- [`%s`](#%s.%s)\n", type->name, s->path, type->name);
    text_add(out, "\n");
    if (!has_rows(variants->common)) return;
    text_printf(out, "Keys of every %s:\n\n", variants->what);
    add_table(out, all, s->path, variants->common, s->row->flags);
}

static void page_struct(struct text *out, const struct sections *all, const struct section *s) {
    const char *doc = s->type ? s->type->doc : s->row->doc;
    add_cell(out, doc ? doc : "");
    text_add(out, "\n\n");
    if (s->own && s->own->shorthand) text_printf(out, "A single value means `{%s: VALUE}`.\n\n", s->own->shorthand);
    if (has_rows(s->own))
        add_table(out, all, s->path, s->own, s->row->flags);
    else
        text_add(out, s->common ? "No keys of its own.\n\n" : "No keys.\n\n");
}

void schema_write_markdown(const struct schema *schema, struct text *out) {
    SCOPED_ARENA arena = arena_create();
    struct sections all = sections_list(schema, arena);
    text_printf(out,
                "# %c%s reference\n\nEvery key of a %s. The program generates this page from the schema that it checks "
                "%ss with.\nUnknown keys, wrong types and values outside the allowed range are errors. A resume "
                "accepts another value only for keys whose\nmeaning ends with *May differ on a resume.*\n\n",
                toupper((unsigned char)schema->name[0]), schema->name + 1, schema->name, schema->name);
    add_table(out, &all, "", schema, 0);
    for (size_t i = 1; i < all.count; i++) {
        const struct section *s = &all.items[i];
        if (s->repeats) continue;
        text_printf(out, "<a id=\"%s\"></a>\n\n%s `%s`\n\n", s->path, s->type ? "###" : "##", s->path);
        if (s->choice)
            page_choice(out, &all, s);
        else
            page_struct(out, &all, s);
    }
}

/* ---- the JSON schema ---- */

/* Draft-07, for editors. Each table of types is a definition, so that layers may contain layers. It
 * accepts what schema_bind accepts, as far as JSON schema can express it. */

struct writer {
    struct sections all;
};

static json_t *number_of(double value) {
    return value == floor(value) && fabs(value) < 1e15 ? json_integer((json_int_t)value) : json_real(value);
}

static void set_limits(json_t *object, const struct schema_row *row) {
    if (!row_has_limits(row)) return;
    if (isfinite(row->min))
        json_object_set_new(object, row->excludes_min ? "exclusiveMinimum" : "minimum", number_of(row->min));
    if (isfinite(row->max))
        json_object_set_new(object, row->excludes_max ? "exclusiveMaximum" : "maximum", number_of(row->max));
}

/* {"anyOf": [a, b]} */
static json_t *either(json_t *a, json_t *b) { return json_pack("{s:[o,o]}", "anyOf", a, b); }

/* "#/$defs/layer"; a second table of the same name gets a number. */
static void add_definition_name(const struct writer *w, const struct schema_variants *variants, struct text *out) {
    size_t earlier = 0;
    for (size_t i = 0; i < w->all.count && w->all.items[i].choice != variants; i++) {
        const struct section *s = &w->all.items[i];
        if (s->choice && !s->repeats && strcmp(s->choice->what, variants->what) == 0) earlier++;
    }
    for (const char *c = variants->what; *c; c++) text_add_bytes(out, *c == ' ' ? "_" : c, 1);
    if (earlier > 0) text_printf(out, "_%zu", earlier + 1);
}

static json_t *reference_to(const struct writer *w, const struct schema_variants *variants) {
    SCOPED_TEXT pointer = {0};
    text_add(&pointer, "#/$defs/");
    add_definition_name(w, variants, &pointer);
    json_t *reference = json_pack("{s:s}", "$ref", text_string(&pointer));
    return reference;
}

/* ---- the JSON schema: defaults ---- */

static json_t *default_value(const struct schema_row *row, const struct node *node) {
    bool flag;
    int64_t integer;
    double real;
    const char *hint = NULL;
    if (node_is_null(node)) return json_null();
    if (node->kind == NODE_SEQUENCE && (row->type < SCHEMA_SECTION || node->count == 0)) {
        json_t *list = json_array();
        for (size_t i = 0; i < node->count; i++) json_array_append_new(list, default_value(row, node->items[i]));
        return list;
    }
    if (node->kind != NODE_SCALAR) return NULL;
    switch (row->type) {
    case SCHEMA_BOOL:
        return value_parse_bool(node->text, &flag, &hint) ? json_boolean(flag) : NULL;
    case SCHEMA_INT:
    case SCHEMA_INT_LIST:
        return value_parse_int(node->text, &integer, &hint) ? json_integer(integer) : NULL;
    case SCHEMA_REAL:
    case SCHEMA_REAL_LIST:
        return value_parse_real(node->text, &real, &hint) ? number_of(real) : NULL;
    default:
        return json_string(node->text);
    }
}

static void set_default(json_t *object, const struct schema_row *row) {
    if (!row->fallback) return;
    SCOPED_ARENA arena = arena_create();
    const struct node *node = row_fallback(row, (struct place){"default", 0, 0}, arena);
    json_t *value = node ? default_value(row, node) : NULL;
    if (value) json_object_set_new(object, "default", value);
}

/* ---- the JSON schema: values ---- */

static json_t *object_of(const struct writer *w, const struct schema *own, const struct schema *common,
                         const char *type, bool is_implied);

static bool needs_keys(const struct schema *schema) {
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++)
        if ((row->flags & SCHEMA_REQUIRED) || (row->type == SCHEMA_SECTION && needs_keys(row->section))) return true;
    return false;
}

static json_t *choice_of(const struct schema_row *row) {
    json_t *values = json_array();
    for (size_t i = 0; row->choices[i]; i++) {
        bool flag;
        const char *hint = NULL;
        json_array_append_new(values, json_string(row->choices[i]));
        if (value_parse_bool(row->choices[i], &flag, &hint)) json_array_append_new(values, json_boolean(flag));
    }
    return json_pack("{s:o}", "enum", values);
}

static json_t *scalar_of(const struct schema_row *row) {
    static const char *const types[] = {
        [SCHEMA_BOOL] = "boolean",     [SCHEMA_INT] = "integer",      [SCHEMA_REAL] = "number",
        [SCHEMA_INT_LIST] = "integer", [SCHEMA_REAL_LIST] = "number",
    };
    if (row->type == SCHEMA_CHOICE) return choice_of(row);
    if (row->type == SCHEMA_STRING || row->type == SCHEMA_STRING_LIST)
        return json_pack("{s:[s,s,s]}", "type", "string", "number", "boolean");
    json_t *scalar = json_pack("{s:s}", "type", types[row->type]);
    set_limits(scalar, row);
    return scalar;
}

static json_t *value_of(const struct writer *w, const struct schema_row *row);

static json_t *section_of(const struct writer *w, const struct schema *schema) {
    json_t *object = object_of(w, schema, NULL, NULL, false);
    const struct schema_row *shorthand = schema->shorthand ? schema_row(schema, schema->shorthand) : NULL;
    return shorthand ? either(object, value_of(w, shorthand)) : object;
}

/* A type by name or mapping; a mapping without `type:` has the type of the default. */
static json_t *variant_of(const struct writer *w, const struct schema_row *row) {
    int index;
    const struct schema_variant *type =
        row->fallback && !row->variants->is_keyed ? variants_find(row->variants, row->fallback, &index) : NULL;
    json_t *reference = reference_to(w, row->variants);
    return type ? either(reference, object_of(w, type->schema, row->variants->common, NULL, false)) : reference;
}

static json_t *value_of(const struct writer *w, const struct schema_row *row) {
    json_t *value;
    if (row->type == SCHEMA_SECTION) {
        value = section_of(w, row->section);
    } else if (row->type == SCHEMA_SECTION_LIST) {
        value = json_pack("{s:s,s:o}", "type", "array", "items", section_of(w, row->section));
    } else if (row->type == SCHEMA_SECTION_MAP) {
        value = json_pack("{s:s,s:o}", "type", "object", "additionalProperties",
                          row->section->rows->key ? section_of(w, row->section) : json_object());
    } else if (row->type == SCHEMA_VARIANT) {
        value = variant_of(w, row);
    } else if (row->type == SCHEMA_VARIANT_LIST) {
        value = json_pack("{s:s,s:o}", "type", "array", "items", reference_to(w, row->variants));
    } else {
        value = scalar_of(row);
        if (row->type >= SCHEMA_INT_LIST)
            value = either(value, json_pack("{s:s,s:O}", "type", "array", "items", value));
        if (row->type != SCHEMA_STRING_LIST && row->type >= SCHEMA_INT_LIST && row->choices)
            value = either(value, choice_of(row));
        if (row->others_offset)
            value = either(value, json_pack("{s:s,s:i,s:O}", "type", "array", "minItems", 1, "items", value));
        if (row->groups_offset)
            value = either(value, json_pack("{s:s,s:O}", "type", "object", "additionalProperties", value));
    }
    return row_is_nullable(row) ? either(value, json_pack("{s:s}", "type", "null")) : value;
}

/* A value with its description and default. JSON schema ignores keywords beside a $ref, so a reference is wrapped. */
static json_t *property_of(const struct writer *w, const struct schema_row *row) {
    json_t *value = value_of(w, row);
    if (json_object_get(value, "$ref")) value = json_pack("{s:[o]}", "allOf", value);
    if (row->doc) json_object_set_new(value, "description", json_string(row->doc));
    set_default(value, row);
    return value;
}

static void set_properties(const struct writer *w, const struct schema *schema, json_t *properties, json_t *required) {
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++) {
        json_object_set_new(properties, row->key, property_of(w, row));
        bool is_needed = (row->flags & SCHEMA_REQUIRED) || (row->type == SCHEMA_SECTION && needs_keys(row->section));
        if (is_needed) json_array_append_new(required, json_string(row->key));
    }
}

/* A mapping with the keys of [own] and [common] and, unless [type] is NULL, the key `type: <type>`, which is required
 * unless it [is_implied]. */
static json_t *object_of(const struct writer *w, const struct schema *own, const struct schema *common,
                         const char *type, bool is_implied) {
    json_t *properties = json_object(), *required = json_array();
    if (type) {
        json_object_set_new(properties, "type", json_pack("{s:s}", "const", type));
        if (!is_implied) json_array_append_new(required, json_string("type"));
    }
    set_properties(w, common, properties, required);
    set_properties(w, own, properties, required);
    return json_pack("{s:s,s:o,s:o,s:b}", "type", "object", "properties", properties, "required", required,
                     "additionalProperties", 0);
}

/* ---- the JSON schema: types ---- */

/* {linear: {out: 3}}; the options may be null or a shorthand's value. */
static json_t *keyed_of(const struct writer *w, const struct schema_variant *type, const struct schema *common) {
    json_t *options = object_of(w, type->schema, common, NULL, false);
    const char *shorthand = type->schema ? type->schema->shorthand : NULL;
    if (shorthand) options = either(options, value_of(w, schema_row(type->schema, shorthand)));
    if (!needs_keys(type->schema) && !needs_keys(common)) options = either(options, json_pack("{s:s}", "type", "null"));
    if (type->doc) json_object_set_new(options, "description", json_string(type->doc));
    return json_pack("{s:s,s:{s:o},s:[s],s:b}", "type", "object", "properties", type->name, options, "required",
                     type->name, "additionalProperties", 0);
}

static json_t *definition_of(const struct writer *w, const struct schema_variants *variants) {
    json_t *alternatives = json_array();
    const struct schema_variant *type;
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++) {
        if (!needs_keys(type->schema) && !needs_keys(variants->common)) {
            json_t *name = json_pack("{s:s}", "const", type->name);
            if (type->doc) json_object_set_new(name, "description", json_string(type->doc));
            json_array_append_new(alternatives, name);
        }
        bool is_implied = variants->implied && strcmp(variants->implied, type->name) == 0;
        json_array_append_new(alternatives, variants->is_keyed
                                                ? keyed_of(w, type, variants->common)
                                                : object_of(w, type->schema, variants->common, type->name, is_implied));
    }
    if (json_array_size(alternatives) > 0) return json_pack("{s:o}", "anyOf", alternatives);
    json_decref(alternatives);
    return json_pack("{s:[s,s]}", "type", "string", "object"); /* of extensions */
}

void schema_write_json(const struct schema *schema, struct text *out) {
    SCOPED_ARENA arena = arena_create();
    struct writer w = {.all = sections_list(schema, arena)};
    json_t *root = object_of(&w, schema, NULL, NULL, false), *definitions = json_object();
    for (size_t i = 0; i < w.all.count; i++) {
        const struct section *s = &w.all.items[i];
        if (!s->choice || s->repeats) continue;
        SCOPED_TEXT name = {0};
        add_definition_name(&w, s->choice, &name);
        json_object_set_new(definitions, text_string(&name), definition_of(&w, s->choice));
    }
    json_t *page = json_pack("{s:s,s:s}", "$schema", "http://json-schema.org/draft-07/schema#", "title", schema->name);
    json_object_update(page, root);
    json_object_set_new(page, "$defs", definitions);
    SCOPED_STRING text = json_dumps(page, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    text_printf(out, "%s\n", text ? text : "{}");
    json_decref(page);
    json_decref(root);
}
