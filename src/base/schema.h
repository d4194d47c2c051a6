/* schema: rows that say what a config may hold. One table binds a tree to a typed struct, checks it, prints
 * the resolved config, compares two configs, and makes `--help-config`, the reference page and the JSON schema
 * for editors; so these can never disagree. A config type and its rows live with their owner (the sampler's in
 * src/data/sampler.c); src/train/config.c only composes them.
 *
 * Values are what YAML 1.2's core schema calls them, strictly: true/false for booleans (yes/on are errors with a
 * hint), decimal integers (with optional _ between digits), finite decimal or scientific reals (1e-3 too, which
 * YAML 1.1 takes for a string); nan, inf, hex and octal are errors. */
#ifndef BASE_SCHEMA_H
#define BASE_SCHEMA_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/document.h"

enum schema_type {
    SCHEMA_BOOL,         /* bool */
    SCHEMA_INT,          /* int64_t; SCHEMA_NO_INT when null */
    SCHEMA_REAL,         /* double; NAN when null */
    SCHEMA_STRING,       /* const char *; NULL when null */
    SCHEMA_CHOICE,       /* int: index into [choices]; -1 when null */
    SCHEMA_INT_LIST,     /* struct int_list; a single value is a list of one; items NULL when null */
    SCHEMA_REAL_LIST,    /* struct real_list; likewise */
    SCHEMA_STRING_LIST,  /* struct string_list; likewise */
    SCHEMA_SECTION,      /* a nested struct by value, bound by [section] */
    SCHEMA_SECTION_LIST, /* struct section_list: a list of mappings, each bound by [section] */
    SCHEMA_VARIANT,      /* struct variant, one of [variants] */
    SCHEMA_VARIANT_LIST, /* struct variant_list, each one of [variants] */
};

#define SCHEMA_NO_INT INT64_MIN

struct int_list {
    int64_t *items;
    size_t count;
};
struct real_list {
    double *items;
    size_t count;
};
struct string_list {
    const char **items;
    size_t count;
};

/* Structs of a section (section->size bytes each), one after the other. */
struct section_list {
    void *items;
    size_t count;
};

/* One of several types with keys of their own: an optimizer, a loss, a layer. */
struct variant {
    int index;          /* into the table; -1: not given */
    const char *name;   /* the type's name */
    void *config;       /* the type's own struct (schema->size bytes); NULL when the type has no keys */
    void *common;       /* the struct of keys that all types share; NULL when there are none */
    struct place place; /* for later errors, such as shapes that do not fit */
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

struct schema_variants {
    const char *what;                                 /* "layer", "optimizer": for messages and docs */
    const struct schema_variant *(*at)(size_t index); /* row [index] of the owner's table; NULL past its end */
    const struct schema *common;                      /* keys of every type; NULL: none */
    bool is_keyed; /* true: `relu` or `linear: {out: 3}`; false: `adam` or `{type: adam, lr: 0.1}` */
};

enum schema_flags {
    SCHEMA_REQUIRED = 1, /* no default: missing is an error */
    SCHEMA_EXTENDS = 2,  /* a change leaves the run's numbers (more epochs, other logging): a resume accepts it */
    SCHEMA_NULLABLE = 4, /* null may be written (implied when the default is null) */
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
    const char *const *choices;             /* SCHEMA_CHOICE: NULL-terminated */
    const struct schema *section;           /* SCHEMA_SECTION, SCHEMA_SECTION_LIST */
    const struct schema_variants *variants; /* SCHEMA_VARIANT, SCHEMA_VARIANT_LIST */
    size_t present_offset;                  /* not 0: a bool in the struct that says whether the user wrote this key; a
                                               key that was not is then left out by schema_write_yaml */
    const char *doc;                        /* one sentence or two; units; PyTorch's name where it differs */
};

/* What an alias stands for: a key; a value of a SCHEMA_CHOICE or the name of a type; the order of a call's arguments.
 */
enum alias_kind { ALIAS_KEY, ALIAS_VALUE, ALIAS_CALL };

/* Words of other programs for one of our keys, values or types, for suggestions: an alias wins over a word that is
 * merely spelled alike. */
struct schema_alias {
    enum alias_kind kind;
    const char *place; /* where the words are written. Keys: the section ("sampler", "layer.conv2d", "layer.*" for
                          every layer, "schedule" for every schedule, "schedule.cosine"; "" for the top level); values:
                          the dotted path of the key, or its end ("*.padding"); types: what they are ("layer"); NULL:
                          anywhere */
    const char *words; /* separated by blanks; case, '_' and '-' do not count. ALIAS_CALL: the type's name, or another
                          name exactly as it is spelled */
    const char *meant; /* a key: its dotted path from the top level, or ".out" in the same section; a value or type: its
                          name; NULL: there is no such thing. Of several aliases for one key the first whose key the
                          type at hand has is used. ALIAS_CALL: names of the arguments by position, keys or words with
                          aliases of their own; '-' for one that means nothing here, '~' for such a one that is often
                          left out, '?' for an object, which a number is not */
    const char *note;  /* a further sentence; NULL: none */
};

struct schema {
    const char *name;              /* "optimizer.adam": for docs */
    size_t size;                   /* of the struct */
    const struct schema_row *rows; /* ends with key NULL */
    const char *shorthand; /* key that a bare scalar or list stands for: `save_every: 50` is {epochs: 50}; NULL: none */
    /* After the rows are bound without an error: checks across keys, derived fields. May be NULL. [where] is the
     * section's mapping (for an absent section an empty one at the place of what is around it), [path] its dotted path,
     * for problems_add. Must accept what it made: a written config is bound again. */
    void (*check)(void *config, const struct node *where, const char *path, struct problems *problems);
    const struct schema_alias *aliases; /* of the root: rows that end with words NULL; may be NULL */
};

/* Fills *config (schema->size bytes, zeroed first) from [mapping] (NULL: all defaults). [path] is the dotted path
 * of the mapping, "" at the top. Unknown keys are named with the key that is meant: by the aliases of
 * [root], by a key of that name in another section of [root], or by the nearest known key; wrong types, ranges and
 * choices with what is allowed. Everything the struct points to lives in [arena]. */
void schema_bind(const struct schema *schema, const struct node *mapping, const char *path, const struct schema *root,
                 void *config, struct arena *arena, struct problems *problems);

/* The resolved config: every key with its value, defaults included, as YAML that binds to the same struct (keys with
 * present_offset only when they were given). */
void schema_write_yaml(const struct schema *schema, const void *config, struct text *out);

/* Compares two configs of one schema key by key; each difference is added to [out] as one line
 * "  key: old -> new\n". Keys with SCHEMA_EXTENDS are left out. Returns how many there are. */
size_t schema_diff(const struct schema *schema, const void *before, const void *after, struct text *out);

/* Help for [section] (a dotted path such as "optimizer.adam" or "model.layers.linear"; NULL: the overview of all
 * sections) in plain text, at most 100 columns. An unknown section is a STATUS_USAGE failure that lists the known ones.
 */
status schema_help(const struct schema *schema, const char *section, struct text *out);

/* The reference page (Markdown), and the JSON schema (draft-07) for editors. */
void schema_write_markdown(const struct schema *schema, struct text *out);
void schema_write_json(const struct schema *schema, struct text *out);

/* Adds "did you mean 'cuda'?" for [word], which is not one of the NULL-terminated [known] values of the key [path] (a
 * dotted path): by the aliases of [root], else by the nearest; nothing when nothing is near. */
void schema_suggest_value(const struct schema *root, const char *path, const char *word, const char *const *known,
                          struct text *out);

/* The entry of the NULL-terminated [known] nearest to [word] by edit distance (transpositions count one), when it
 * is near enough to be a typo; else NULL. For any "did you mean". */
const char *schema_nearest(const char *word, const char *const *known);

/* A row's offset: FIELD(struct adam_config, lr). */
#define FIELD(type, member) offsetof(type, member)

#endif
