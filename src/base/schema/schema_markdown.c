/* The reference page: a table for each section, a heading and an anchor for each type. */
#include <ctype.h>
#include <string.h>

#include "base/schema/schema_internal.h"

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
    struct text code = {0};
    text_printf(&code, "`%s`", text);
    add_cell(out, text_string(&code));
    text_free(&code);
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
        text_printf(out, "[mapping to sections](#%s)", path);
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
        struct text row_path = {0};
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
        text_free(&row_path);
    }
    text_add(out, "\n");
}

static bool has_rows(const struct schema *schema) { return schema && schema->rows[0].key; }

static void add_choice(struct text *out, const struct sections *all, const struct section *s) {
    const struct schema_variants *variants = s->choice;
    const struct schema_variant *type;
    add_cell(out, s->row->doc ? s->row->doc : "");
    text_printf(out, " Written as `NAME` or `%s`. ",
                variants->is_keyed ? "NAME: {KEY: VALUE}" : "{type: NAME, KEY: VALUE}");
    text_add(out, "One of:\n\n");
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++)
        text_printf(out, "- [`%s`](#%s.%s)\n", type->name, s->path, type->name);
    text_add(out, "\n");
    if (!has_rows(variants->common)) return;
    text_printf(out, "Keys of every %s:\n\n", variants->what);
    add_table(out, all, s->path, variants->common, s->row->flags);
}

static void add_struct(struct text *out, const struct sections *all, const struct section *s) {
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
    struct arena *arena = arena_create();
    struct sections all = sections_list(schema, arena);
    text_printf(out,
                "# %c%s reference\n\nEvery key of a %s. The program generates this page from the schema that it "
                "checks %ss with.\nUnknown keys, wrong types and values outside the allowed range are errors. A resume "
                "accepts another value only for keys whose\nmeaning ends with *May differ on a resume.*\n\n",
                toupper((unsigned char)schema->name[0]), schema->name + 1, schema->name, schema->name);
    add_table(out, &all, "", schema, 0);
    for (size_t i = 1; i < all.count; i++) {
        const struct section *s = &all.items[i];
        if (s->repeats) continue;
        text_printf(out, "<a id=\"%s\"></a>\n\n%s `%s`\n\n", s->path, s->type ? "###" : "##", s->path);
        if (s->choice)
            add_choice(out, &all, s);
        else
            add_struct(out, &all, s);
    }
    arena_destroy(arena);
}
