/* Declarations shared by the schema files. */
#pragma once

#include "base/schema/schema.h"

/* ---- schema_value.c: scalars of YAML 1.2's core schema ---- */

/* False when [text] is not such a value; *hint then says what to write, or is unchanged. */
bool value_parse_bool(const char *text, bool *out, const char **hint);
bool value_parse_int(const char *text, int64_t *out, const char **hint);
bool value_parse_real(const char *text, double *out, const char **hint);

/* Whether the row's field may be null. */
bool row_is_nullable(const struct schema_row *row);
/* Adds the expected type: "an integer", "a list of numbers", "one of none, standard". */
void row_add_expected(const struct schema_row *row, struct text *out);
bool row_has_limits(const struct schema_row *row);
bool row_is_within_limits(const struct schema_row *row, double value);
/* ">= 0 and < 1" */
void row_add_limits(const struct schema_row *row, struct text *out);
/* "a" or "an", by the first letter of [word]. */
const char *article(const char *word);
/* "s" or "es". */
const char *plural_suffix(const char *word);

/* Adds type, limits and default for documentation: "integer >= 1 or null, default 32". */
void row_add_summary(const struct schema_row *row, struct text *out);

/* The default as a tree at [place]; NULL when the row has none. */
const struct node *row_fallback(const struct schema_row *row, struct place place, struct arena *arena);

/* Adds [text] as a YAML scalar that parses to the same string: plain where possible, else in double quotes. */
void value_add_string(struct text *out, const char *text);

/* ---- schema_write.c ---- */

/* The row's field in a config. */
static inline const void *row_field(const struct schema_row *row, const void *config) {
    return (const char *)config + row->offset;
}

/* The names of the groups of a list of texts; NULL: the row has none. */
static inline struct string_groups *row_groups(const struct schema_row *row, const void *field) {
    return row->groups_offset ? (struct string_groups *)((char *)field - row->offset + row->groups_offset) : NULL;
}

/* Where a string that may be a list has its other items; NULL: it is never a list. */
static inline struct string_list *row_others(const struct schema_row *row, const void *field) {
    return row->others_offset ? (struct string_list *)((char *)field - row->offset + row->others_offset) : NULL;
}

/* Whether the key was not given and must be omitted when the config is written (present_offset). */
static inline bool row_is_absent(const struct schema_row *row, const void *config) {
    return row->present_offset != 0 && !*(const bool *)((const char *)config + row->present_offset);
}

/* ---- schema_describe.c ---- */

/* A mapping of keys, or a choice of types. */
struct section {
    const char *path;                     /* "optimizer", "optimizer.adam", "model.layers.linear"; "" for the root */
    const char *parent;                   /* of a type: the path of its choice */
    const struct schema_row *row;         /* whose value the section or choice is; NULL for the root */
    const struct schema_variants *choice; /* a choice: its types follow as sections, unless it is a repetition */
    const char *repeats;                  /* a choice whose types were listed before: its path there; else NULL */
    const struct schema_variant *type;    /* a type of [variants] */
    const struct schema_variants *variants;
    const struct schema *own, *common; /* the keys; either may be NULL */
};
struct sections {
    struct section *items;
    size_t count;
};

/* All sections of [root] in the order of their rows, each table of types once, in [arena]. */
struct sections sections_list(const struct schema *root, struct arena *arena);

/* The section with the shortest path that has [key]; NULL when none has it. */
const struct section *sections_with_key(const struct sections *all, const char *key);
/* The section, or choice of types, that has the key of the dotted [path]; NULL: the schema has no such key. */
const struct section *sections_at_key(const struct sections *all, const char *path);

/* The row of [key] in [schema]; NULL when absent or when [schema] is NULL. */
const struct schema_row *schema_row(const struct schema *schema, const char *key);
/* Whether a type of the table has [key]. */
bool variants_with_key(const struct schema_variants *variants, const char *key);
/* The row of the type [name]; NULL when there is none. */
const struct schema_variant *variants_find(const struct schema_variants *variants, const char *name, int *index);

/* ---- schema_suggest.c ---- */

/* The mapping of an unknown key: the type's own schema and the common one, either may be NULL. */
struct key_scope {
    const struct schema *own, *common;
    const struct schema_variants *variants; /* the types' table when the keys are those of a type; else NULL */
    const char *type;                       /* the type's name */
    const char *path;                       /* dotted */
};

/* Whether [key] is a key of [scope]. */
bool scope_has_key(const struct key_scope *scope, const char *key);

/* A walk over the aliases of all tables; all 0 at the start. */
struct alias_cursor {
    size_t table;
    const struct schema_alias *alias; /* the last one that was returned */
};
/* The next alias of [root]; NULL, once: there are no more, or no root. */
const struct schema_alias *alias_next(const struct schema *root, struct alias_cursor *cursor);
/* The first alias of [kind] for [word] at [place]; NULL: none. */
const struct schema_alias *alias_find(const struct schema *root, enum alias_kind kind, const char *place,
                                      const char *word);
/* The place of a scope in the notation of aliases: "layer.conv2d", or the path without list indices. */
const char *alias_place(const struct key_scope *scope, struct arena *arena);
/* The key of [place] that the alias refers to; NULL: none, or a key of another place. */
const char *alias_key_of_place(const struct schema_alias *alias, const char *place);
/* Whether [word] equals [known], ignoring case, '_', '-', a prefix such as "nn." and arguments. */
bool alias_is_same(const char *word, const char *known);

/* "unknown key; did you mean 'optimizer.lr' (optimizer: line 6, column 1)?", with the keys of [scope] where nothing or
 * only a typo explains it. [document]: the root of the tree, for places; may be NULL. */
void suggest_key(const char *key, const struct key_scope *scope, const struct schema *root, const struct node *document,
                 struct text *out);
/* Adds "unknown layer 'liner'; did you mean 'linear'? (known: ...)". */
void suggest_type(const char *name, const struct schema_variants *variants, const struct schema *root,
                  struct text *out);
/* "; did you mean 'x'?" when an entry of [known] is near */
void suggest_nearest(const char *word, const char *const *known, struct text *out);
