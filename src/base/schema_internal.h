/* What the schema files share: names and limits of values, the list of a schema's sections, and a walk over a config.
 */
#ifndef BASE_SCHEMA_INTERNAL_H
#define BASE_SCHEMA_INTERNAL_H

#include "base/document_internal.h"
#include "base/schema.h"

/* ---- schema_value.c: scalars as YAML 1.2's core schema has them ---- */

/* Each is false when [text] is not one; *hint (may stay NULL) then says what to write. */
bool value_parse_bool(const char *text, bool *out, const char **hint);
bool value_parse_int(const char *text, int64_t *out, const char **hint);
bool value_parse_real(const char *text, double *out, const char **hint);

/* Whether the row's field may be null. */
bool row_is_nullable(const struct schema_row *row);
/* "an integer", "a list of numbers", "one of none, standard": what a value of the row must be. */
void row_add_expected(const struct schema_row *row, struct text *out);
bool row_has_limits(const struct schema_row *row);
bool row_admits(const struct schema_row *row, double value);
/* ">= 0 and < 1" */
void row_add_limits(const struct schema_row *row, struct text *out);
/* A limit or default without an exponent where it is an integer. */
void value_add_number(struct text *out, double value);
/* "a" or "an", by the first letter of [word]. */
const char *article(const char *word);

/* "integer >= 1 or null, default 32": type, limits and default for documentation. */
void row_add_summary(const struct schema_row *row, struct text *out);

/* The default as a tree at [place]; NULL when the row has none. */
const struct node *row_fallback(const struct schema_row *row, struct place place, struct arena *arena);

/* [text] as a YAML scalar that reads back as the same string: plain where that is safe, else in double quotes. */
void value_add_string(struct text *out, const char *text);

/* ---- schema_yaml.c ---- */

/* The field of a row whose value fits a line (no section or variant, nor a list of them) as YAML. */
void value_add_yaml(const struct schema_row *row, const void *field, struct text *out);

/* The row's field in a config. */
static inline const void *row_field(const struct schema_row *row, const void *config) {
    return (const char *)config + row->offset;
}

/* Whether the row's key is left out when a config is written, because it was not given and that means something. */
static inline bool row_is_absent(const struct schema_row *row, const void *config) {
    return row->present_offset != 0 && !*(const bool *)((const char *)config + row->present_offset);
}

/* ---- schema_sections.c ---- */

/* A place where keys stand, or a choice of types. */
struct section {
    const char *path;                     /* "optimizer", "optimizer.adam", "model.layers.linear"; "" for the root */
    const char *parent;                   /* of a type: the path of its choice */
    const struct schema_row *row;         /* that the section or choice is the value of; NULL for the root */
    const struct schema_variants *choice; /* a choice: its types follow as sections, unless it is a repetition */
    const char *repeats;                  /* a choice whose types were listed before: the path there; else NULL */
    const struct schema_variant *type;    /* a type of [variants] */
    const struct schema_variants *variants;
    const struct schema *own, *common; /* the keys; either may be NULL */
};
struct sections {
    struct section *items;
    size_t count;
};

/* All sections of [root] in the order of their rows, each table of types once. They live in [arena]. */
struct sections sections_list(const struct schema *root, struct arena *arena);

/* The section nearest to the top that has [key]; NULL when none has it. */
const struct section *sections_with_key(const struct sections *all, const char *key);
/* The section, or choice of types, that has the key of the dotted [path]; NULL: the schema has no such key. */
const struct section *sections_at_key(const struct sections *all, const char *path);

/* The row of [key] in [schema]; NULL when absent or when [schema] is NULL. */
const struct schema_row *schema_row(const struct schema *schema, const char *key);
/* Whether a type of the table has [key]. */
bool variants_with_key(const struct schema_variants *variants, const char *key);
/* The row of the type [name]; NULL when there is none. */
const struct schema_variant *variants_find(const struct schema_variants *variants, const char *name, int *index);

/* ---- schema_alias.c ---- */

/* A place where keys are read: the type's own schema and the common one, either may be NULL. */
struct key_scope {
    const struct schema *own, *common;
    const struct schema_variants *variants; /* the types' table when the keys are those of a type; else NULL */
    const char *type;                       /* the type's name */
    const char *path;                       /* dotted */
};

/* Whether [key] may stand there. */
bool scope_has_key(const struct key_scope *scope, const char *key);

/* The first alias of [kind] for [word] that names [place]; NULL: there is none. */
const struct schema_alias *alias_find(const struct schema *root, enum alias_kind kind, const char *place,
                                      const char *word);
/* The alias for the key [word] in [scope]: one that names a place or, with [is_anywhere], one that names none. One
 * whose key the scope has comes before one that is only a key of other types. NULL: there is none. */
const struct schema_alias *alias_of_key(const struct schema *root, const struct key_scope *scope, bool is_anywhere,
                                        const char *word, struct arena *arena);
/* The place of a scope, as aliases name it: "layer.conv2d", or the path without the numbers of list entries. */
const char *alias_place(const struct key_scope *scope, struct arena *arena);
/* The key of [place] that the alias means; NULL: it means one elsewhere, or none. */
const char *alias_key_of_place(const struct schema_alias *alias, const char *place);
/* Whether [word] is [known] but for case, '_', '-', a prefix such as "nn." and arguments. */
bool alias_is_same(const char *word, const char *known);
/* The type with the arguments of the call [word] as keys: "linear: {out: 64}" for "nn.Linear(13, 64)". What becomes of
 * arguments that have no key is added to [left_out] as sentences, each with a blank before it. */
const char *alias_call(const struct schema *root, const struct schema_variants *variants,
                       const struct schema_variant *type, const char *word, struct text *left_out, struct arena *arena);

/* ---- schema_suggest.c ---- */

/* "unknown key; did you mean 'optimizer.lr' (optimizer: line 6, column 1)?", with the keys of [scope] where nothing or
 * only a typo explains it. [document]: the root of the tree, for places; may be NULL. */
void suggest_key(const char *key, const struct key_scope *scope, const struct schema *root, const struct node *document,
                 struct text *out);
/* "unknown layer 'liner'; did you mean 'linear'? (known: ...)" */
void suggest_type(const char *name, const struct schema_variants *variants, const struct schema *root,
                  struct text *out);
/* "; did you mean 'x'?" when an entry of [known] is near */
void suggest_nearest(const char *word, const char *const *known, struct text *out);

#endif
