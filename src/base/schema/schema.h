/* schema: tables that describe the keys of a config. One table is used to bind a tree to a typed struct, to check it,
 * to print the resolved config, to compare two configs, and to write `--help-config`, the reference page and the JSON
 * schema for editors. A config struct and its rows are defined beside the code that uses them (the sampler's in
 * src/data/sampling/sampler.c); src/train/config/config_schema.c combines them.
 *
 * Values follow YAML 1.2's core schema, strictly: true/false for booleans (yes/on are errors with a hint), decimal
 * integers (with optional _ between digits), finite decimal or scientific numbers (also 1e-3, a string in YAML 1.1);
 * nan, inf, hex and octal are errors. */
#pragma once

#include <math.h>
#include <string.h>

#include "base/document/document.h"

enum schema_type {
    SCHEMA_BOOL,         /* bool */
    SCHEMA_INT,          /* int64_t; SCHEMA_NO_INT when null */
    SCHEMA_REAL,         /* double; NAN when null */
    SCHEMA_STRING,       /* const char *; NULL when null; with [others_offset] also a list */
    SCHEMA_CHOICE,       /* int: index into [choices]; -1 when null */
    SCHEMA_INT_LIST,     /* struct int_list; a single value is a list of one; items NULL when null; with [choices] also
                            one of these words */
    SCHEMA_REAL_LIST,    /* struct real_list; as SCHEMA_INT_LIST, also with [choices] */
    SCHEMA_STRING_LIST,  /* struct string_list; as SCHEMA_INT_LIST; with [groups_offset] also a mapping from names to
                            lists */
    SCHEMA_SECTION,      /* a nested struct by value, bound by [section] */
    SCHEMA_SECTION_LIST, /* struct section_list: a list of mappings, each bound by [section] */
    SCHEMA_SECTION_MAP,  /* struct section_list: a mapping from names of the user's to mappings, each bound by
                            [section], whose struct begins with `const char *`, the name */
    SCHEMA_VARIANT,      /* struct variant, one of [variants] */
    SCHEMA_VARIANT_LIST, /* struct variant_list, each one of [variants] */
};

#define SCHEMA_NO_INT INT64_MIN

struct int_list {
    int64_t *items;
    size_t count;
    int word; /* choices[word - 1] in place of a list, then items is NULL; 0: none */
};
struct real_list {
    double *items;
    size_t count;
    int word; /* as in struct int_list */
};
struct string_list {
    const char **items;
    size_t count;
};

static inline bool string_list_has(const struct string_list *list, const char *text) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], text) == 0) return true;
    return false;
}

/* The names that the items of a string_list were given under: the first group has the first [count] items. */
struct string_group {
    const char *name;
    size_t count;
};
struct string_groups {
    struct string_group *items;
    size_t count; /* 0: the value was a list */
};

/* An array of structs of a section (section->size bytes each). */
struct section_list {
    void *items;
    size_t count;
};

/* A type with its own keys: an optimizer, a loss, a layer. */
struct variant {
    int index;          /* into the table; -1: not given */
    const char *name;   /* of the type */
    void *config;       /* the type's own struct (schema->size bytes); NULL when the type has no keys */
    void *common;       /* the struct of the keys that all types have; NULL when there are none */
    struct place place; /* for later errors, such as wrong shapes */
};
struct variant_list {
    struct variant *items;
    size_t count;
};

struct schema_variant {
    const char *name;
    const struct schema *schema; /* NULL: no keys of its own */
    const char *doc;             /* one or two sentences */
};

#define TYPES_MAX_ADDED 64 /* types of extensions in a table */

/* A table of types: those of the program, then those that extensions add. A row begins with `const char *`, its name.
 */
struct type_table {
    const void *const *own; /* (own_count) */
    size_t own_count, added_count;
    const void *added[TYPES_MAX_ADDED];
};
/* Row [index]; NULL past the end. */
const void *type_table_at(const struct type_table *table, size_t index);
/* False: there is a row of its name, or no space. */
bool type_table_add(struct type_table *table, const void *type);

struct schema_variants {
    const char *what;                                 /* "layer", "optimizer": for messages and docs */
    const struct schema_variant *(*at)(size_t index); /* row [index] of the owner's table; NULL past its end */
    const struct schema *common;                      /* keys of every type; NULL: none */
    bool is_keyed;       /* true: `relu` or `linear: {out: 3}`; false: `adam` or `{type: adam, lr: 0.1}` */
    const char *implied; /* unless is_keyed: a mapping without `type` that has a key of this name is of the type with
                            this name; NULL: none */
};

enum schema_flags {
    SCHEMA_REQUIRED = 1,  /* no default: missing is an error */
    SCHEMA_EXTENDS = 2,   /* resume accepts a change: it does not affect completed steps (more epochs, other logging) */
    SCHEMA_NULLABLE = 4,  /* null is allowed (implied when the default is null) */
    SCHEMA_INFERENCE = 8, /* eval and predict accept another value than that of the training: where rows are, how their
                             file is written, which of them are used, or what only training uses */
};

struct schema_row {
    const char *key;
    enum schema_type type;
    size_t offset;        /* of the field in the struct */
    const char *fallback; /* the default as YAML text ("0.001", "[0.9, 0.999]", "null", "adam"); NULL for a section:
                             the section's own defaults; NULL with SCHEMA_REQUIRED: none */
    unsigned flags;
    double min, max; /* for numbers and items of number lists; both 0: no limits; INFINITY: none on that side */
    bool excludes_min, excludes_max;
    const char *const *choices;             /* SCHEMA_CHOICE, lists of numbers: NULL-terminated */
    const struct schema *section;           /* SCHEMA_SECTION, SCHEMA_SECTION_LIST */
    const struct schema_variants *variants; /* SCHEMA_VARIANT, SCHEMA_VARIANT_LIST */
    size_t present_offset;                  /* not 0: offset of a bool that is set when the user wrote this key;
                                               schema_write_yaml omits the key when it is false */
    size_t groups_offset;                   /* SCHEMA_STRING_LIST, not 0: offset of a struct string_groups; the value
                                               may be a mapping from names to lists, whose items are all in the list */
    size_t others_offset;                   /* SCHEMA_STRING, not 0: offset of a struct string_list; the value may be a
                                               list: its first item is the string, the others are in the list */
    const char *doc;                        /* one or two sentences; units; PyTorch's name where it differs */
};

/* The kind of an alias: of a key; of a value of a SCHEMA_CHOICE or the name of a type; the order of a call's arguments.
 */
enum alias_kind { ALIAS_KEY, ALIAS_VALUE, ALIAS_CALL };

/* Names that other programs use for one of our keys, values or types, for suggestions. An alias has priority over a
 * name with a similar spelling. */
struct schema_alias {
    enum alias_kind kind;
    const char
        *place;        /* where the names apply. Keys: the section ("sampler", "layer.conv2d", "layer.*" for every
                          layer, "schedule" for every schedule, "schedule.cosine"; "" for the top level); values: the
                          dotted path of the key, or its end ("*.padding"); types: their kind ("layer"); NULL: anywhere */
    const char *names; /* separated by spaces; case, '_' and '-' are ignored. ALIAS_CALL: the type's name, or another
                          name in its exact spelling */
    const char *meant; /* a key: its dotted path from the top level, or ".out" in the same section; a value or type: its
                          name; NULL: no equivalent. The first alias is used whose key the type has. ALIAS_CALL: names
                          of the positional arguments, which may be aliases; '-' for no equivalent, '~' for an argument
                          without equivalent that is often omitted, '?' for an object */
    const char *note;  /* appended to the message; NULL: none */
};

#define KEY_ALIAS(place_, words_, meant_)                                                                              \
    { .kind = ALIAS_KEY, .place = place_, .names = words_, .meant = meant_ }
#define KEY_ALIAS_NOTE(place_, words_, meant_, note_)                                                                  \
    { .kind = ALIAS_KEY, .place = place_, .names = words_, .meant = meant_, .note = note_ }
#define VALUE_ALIAS(place_, words_, meant_)                                                                            \
    { .kind = ALIAS_VALUE, .place = place_, .names = words_, .meant = meant_ }
#define VALUE_ALIAS_NOTE(place_, words_, meant_, note_)                                                                \
    { .kind = ALIAS_VALUE, .place = place_, .names = words_, .meant = meant_, .note = note_ }
#define CALL_ALIAS(place_, type_, keys_)                                                                               \
    { .kind = ALIAS_CALL, .place = place_, .names = type_, .meant = keys_ }

struct schema {
    const char *name;              /* "optimizer.adam": for docs */
    size_t size;                   /* of the struct */
    const struct schema_row *rows; /* ends with key NULL */
    const char *shorthand;         /* the key of a bare scalar or list: `save_every: 50` is {epochs: 50}; NULL: none */
    /* Called after the rows were bound without an error: checks that involve several keys, derived fields. May be NULL.
     * [where] is the section's mapping (for an absent section an empty one at the place of its parent), [path] its
     * dotted path, for problems_add. Must accept its own output: a written config is bound again. */
    void (*check)(void *config, const struct node *where, const char *path, struct problems *problems);
    /* Of the root; may be NULL: the tables of aliases, each of which ends with a row without names; NULL past the last
     * one. An alias of an earlier table has priority. No table occurs twice. */
    const struct schema_alias *(*alias_table)(size_t index);
    /* Of the root; may be NULL: whether the keys of the mapping at the path [steps] (count), which the rows do not
     * have, are dotted paths (`parameters: {optimizer.lr: ...}`), so that what follows there in an override is one key.
     */
    bool (*has_path_keys)(char *const *steps, size_t count);
};

/* Fills *config (schema->size bytes, zeroed first) from [mapping] (NULL: all defaults). [path] is the dotted path
 * of the mapping, "" at the top. For an unknown key the problem suggests an alias of [root], a key of that name in
 * another section of [root], or the nearest known key; for a wrong type, range or choice it lists what is allowed.
 * Everything the struct points to is in [arena]. */
void schema_bind(const struct schema *schema, const struct node *mapping, const char *path, const struct schema *root,
                 void *config, struct arena *arena, struct problems *problems);

/* Binds one key of a root again: *config was filled by schema_bind from a mapping that differs in its value alone. Runs
 * no check of the root. */
void schema_bind_key(const struct schema *schema, const struct node *mapping, const char *key, void *config,
                     struct arena *arena, struct problems *problems);

/* document_override of a document that is bound by [root]: a short form in the path becomes a mapping, so that after
 * `linear: 16` both `linear.out=8` and `linear.bias=false` work. A new name of a SCHEMA_SECTION_MAP, which may have
 * dots, ends before the first key of its section. */
void schema_override(const struct schema *root, struct document *document, const char *assignment,
                     struct problems *problems);

/* Writes the resolved config: every key with its value, defaults included, as YAML that binds to the same struct (keys
 * with present_offset only when they were given). */
void schema_write_yaml(const struct schema *schema, const void *config, struct text *out);

/* Adds [code], which is Python, with its places in braces filled by the values of a config, as Python writes them
 * (lists of several values are tuples, one value stands alone):
 *
 *     {out}       the value of the key `out`
 *     {t_max|n}   that of `t_max`, or if it is null the text n
 *     {*weight}   a list also of one value
 *     {,bias}     ", bias=False", unless the value is the default
 *     {,out:n}    the same with another name: ", n=3"
 *     {!dropout}  nothing; STATUS_USAGE unless the value is the default
 *
 * [place], which may be NULL, is asked first for the name of a place: true if it has added what stands there. */
typedef bool schema_place(void *context, const char *name, struct text *out);
status schema_fill(const struct schema *schema, const void *config, const char *code, schema_place *place,
                   void *context, struct text *out);

/* Compares the keys [names] (NULL-terminated; NULL: all) of two configs of one schema and adds a line "  key: old ->
 * new\n" to [out] for each difference. Skips keys with a flag of [skipped]. Returns the number of differences. */
size_t schema_diff_keys(const struct schema *schema, const char *const *names, unsigned skipped, const void *before,
                        const void *after, struct text *out);

/* The same for all keys without SCHEMA_EXTENDS, as a resume compares them. */
size_t schema_diff(const struct schema *schema, const void *before, const void *after, struct text *out);

/* Help for [section] (a dotted path such as "optimizer.adam" or "model.layers.linear"; NULL: the overview of all
 * sections) in plain text, at most 100 columns wide. An unknown section: STATUS_USAGE, with a list of the known ones.
 */
status schema_help(const struct schema *schema, const char *section, struct text *out);

/* Write the reference page (Markdown), and the JSON schema (draft-07) for editors. */
void schema_write_markdown(const struct schema *schema, struct text *out);
void schema_write_json(const struct schema *schema, struct text *out);

/* Calls visit(context, path, values) for each key that can be set by its dotted path: "sampler.batch_size". [values],
 * NULL-terminated: what the key accepts, of a choice, a bool or a table of types; else empty. Not the keys within
 * lists.
 */
typedef void schema_key_function(void *context, const char *path, const char *const *values);
void schema_each_key(const struct schema *root, schema_key_function *function, void *context);

/* Adds "did you mean 'cuda'?" for [word], which is not one of the NULL-terminated values [known] of the key [path] (a
 * dotted path): by the aliases of [root], else the nearest value; nothing when no value is similar. */
void schema_suggest_value(const struct schema *root, const char *path, const char *word, const char *const *known,
                          struct text *out);

/* Adds "did you mean 'optimizer.lr=0.1'?" for an option of a command line, [word] without its dashes, that is a key of
 * a config or an alias for one, or what there is instead of such a key; nothing when it is neither. [value]: the
 * option's; may be NULL. */
void schema_suggest_override(const struct schema *root, const char *word, const char *value, struct text *out);

/* The entry of the NULL-terminated [known] with the smallest edit distance to [word] (transpositions count one), if it
 * is small enough for a typo; else NULL. */
const char *schema_nearest(const char *word, const char *const *known);

/* A row's offset: FIELD(struct adam_config, lr). */
#define FIELD(type, member) offsetof(type, member)
/* The row of a key with the name of its field: SCHEMA_ROW(REAL, struct adam_config, lr, .fallback = "0.001", .doc =
 * "..."). */
#define SCHEMA_ROW(type_, struct_, field_, ...)                                                                        \
    { .key = #field_, .type = SCHEMA_##type_, .offset = offsetof(struct_, field_), __VA_ARGS__ }
/* The same of a key with another name than its field: SCHEMA_KEY(BOOL, "no_header", struct csv_config, has_no_header,
 * ...).
 */
#define SCHEMA_KEY(type_, key_, struct_, field_, ...)                                                                  \
    { .key = key_, .type = SCHEMA_##type_, .offset = offsetof(struct_, field_), __VA_ARGS__ }

/* A schema: SCHEMA("optimizer.sgd", struct sgd_config, .rows = rows, .check = check) */
#define SCHEMA(name_, struct_, ...)                                                                                    \
    { .name = name_, .size = sizeof(struct_), __VA_ARGS__ }

/* Adds the tree as YAML in one line, "{type: sgd, lr: 0.1}", which parses to the same tree. */
void node_write(const struct node *node, struct text *out);
