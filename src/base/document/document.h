/* document: a YAML file as a tree; every node has its position (file, line, column).
 * A plain subset of YAML is accepted: one document, mappings, sequences and scalars; in a file anchors of values,
 * aliases and merge keys (<<), whose values are copied; no tags, no duplicate keys; at most 32 levels, 65536 nodes with
 * the copies, and 1 MiB (libyaml checks none of these, and its time is quadratic in nesting).
 *
 * Errors are collected: one read of a file reports all its errors. */
#pragma once

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

#define DOCUMENT_MAX_DEPTH 32        /* nested mappings and sequences; the root is level 1 */
#define DOCUMENT_MAX_BYTES (1 << 20) /* of a file */
#define DOCUMENT_MAX_NODES (1 << 16) /* keys and values; limits the memory of a document to 16 MiB */
#define DOCUMENT_MAX_ANCHORS 1024    /* values with an anchor */
#define DOCUMENT_MAX_BLANKS 1024     /* consecutive spaces and empty lines; libyaml's time is quadratic in them */
#define PROBLEMS_MAX 100             /* messages that are stored; further ones are only counted */

#define PLACE_FILE 4096 /* bytes of a file's name in a message */

struct place {
    const char *file; /* as the user wrote it; "argument 'a.b=VALUE'" for an override */
    int line, column; /* from 1; 0: no position (an override, a missing key of an empty file) */
};

/* How a message begins: "FILE:LINE:COLUMN"; the file alone without a position, "config" without a file. */
struct place_text {
    char s[PLACE_FILE + 32];
};
struct place_text place_text(struct place place);

enum node_kind { NODE_SCALAR, NODE_SEQUENCE, NODE_MAPPING };

struct node {
    enum node_kind kind;
    struct place place;
    const char *text;         /* NODE_SCALAR: the value, NUL-terminated, no NUL inside */
    bool is_over_base;        /* it is null and stands for a value that a base gives to the key */
    bool is_quoted;           /* NODE_SCALAR: "..." or '...': always a string, never null or a number */
    size_t count;             /* children */
    struct node **items;      /* NODE_SEQUENCE: (count); NODE_MAPPING: the values (count) */
    const char **keys;        /* NODE_MAPPING: (count), unique */
    struct place *key_places; /* NODE_MAPPING: (count) */
};

/* The errors of a file. Zero-initialise. */
struct problems {
    struct problem *items;
    size_t count, capacity;
    size_t left_out; /* beyond PROBLEMS_MAX */
};

/* Adds "file:line:column: key: sentence"; without the position when line is 0, without the key when [key] (the dotted
 * path) is NULL or "". Control characters are escaped, so a problem is always one line. */
void problems_add(struct problems *problems, struct place place, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* All problems as one failure, one per line, sorted by file, line and column (overrides last); OK when there are
 * none. */
status problems_status(const struct problems *problems, enum status_code code);
void problems_free(struct problems *problems);
#define SCOPED_PROBLEMS __attribute__((cleanup(problems_free))) struct problems /* as those of base/scoped.h */

struct document;

/* Reads [path]. Syntax errors go to [problems]; *out is then NULL or a tree in which further problems can be found. A
 * file that cannot be read is a failure (STATUS_USAGE). The root is always a mapping; an empty file is an empty
 * mapping. */
status document_read(const char *path, struct problems *problems, struct document **out);

#define DOCUMENT_MAX_BASES 32 /* files that a file is based on, in all */

/* Dotted paths of two keys of one mapping: where one is given, it replaces the other one of a file before. */
struct document_alternatives {
    const char *keys[2];
    /* Names of keys beside them, or NULL: keys[0] replaces keys[1] only where the mapping before has none of them, and
     * keys[1] does not replace keys[0]. A key that is null or 0 is not there. */
    const char *unless[2];
};

/* Whether keys[1 - k] replaces keys[k] of [before], the mapping of the file before that has it. */
bool document_replaces(const struct document_alternatives *alternatives, size_t k, const struct node *before);

/* As document_read, on top of the files that the key `base` of the root names, one or a list, relative to the folder of
 * the file that names them; they may have bases, too. Of two files the later one wins, and the file itself over its
 * bases: mappings are merged key by key, also a type name with the keys of the type (`adam` with {lr: 0.1}); lists,
 * single values and mappings of another `type` are replaced; and a key replaces those that [alternatives] (count) name
 * with it. Every node keeps the place in its file. The key `base` is removed. *out is NULL if a base cannot be used. */
status document_read_merged(const char *path, const struct document_alternatives *alternatives, size_t count,
                            struct problems *problems, struct document **out);

/* Where the root has the key `variables`, a mapping from names to values: replaces ${name} in all values and removes
 * the key. A value that is one reference becomes the variable's value, of any kind; as a part of a text it is the
 * variable's text. $${name} is the text ${name}. */
void document_substitute(struct document *document, struct problems *problems);

/* document_read from memory; [name] is the file name in messages. */
status document_parse(const char *name, const char *bytes, size_t size, struct problems *problems,
                      struct document **out);

/* A copy to which overrides can be applied; [document] must live as long. */
struct document *document_copy(const struct document *document);

/* What the schema of a document says about the path [steps] (count) of an override. */
struct document_paths {
    /* The key of which a scalar or list at the path is the short form (`linear: 16` is {out: 16}); NULL: there is
     * none. */
    const char *(*short_form)(const void *schema, char *const *steps, size_t count);
    /* How many steps from steps[depth] on are one key, which is new in its mapping. */
    size_t (*new_key)(const void *schema, char *const *steps, size_t count, size_t depth);
    const void *schema;
};

/* Applies one override "a.b.c=VALUE": VALUE is YAML in one line (`0.1`, `[1, 2]`, `{type: sgd, lr: 0.1}`).
 * Missing mappings of the path are created; a scalar in the path that names a type (`loss: mse`) becomes
 * {type: mse} so that `loss.label_smoothing=0.1` works; with [paths], which may be NULL, a short form becomes a
 * mapping, too. A step may be an index into a sequence (`model.layers.0.linear.out=128`). Steps that are an existing
 * key together are this key: `columns.price.usd` of {columns: {price.usd: float}}. Problems get the place {"argument
 * 'a.b.c=VALUE'", 0, 0}. */
void document_override(struct document *document, const char *assignment, const struct document_paths *paths,
                       struct problems *problems);

const struct node *document_root(const struct document *document);
/* The arena that holds the tree; configs bound from it may use it too. */
struct arena *document_arena(struct document *document);
void document_destroy(struct document *document); /* takes NULL */
static inline void scoped_document_destroy(struct document **document) { document_destroy(*document); }
#define SCOPED_DOCUMENT __attribute__((cleanup(scoped_document_destroy))) struct document *

/* The value of [key] in a mapping, NULL when absent or when [mapping] is NULL. */
const struct node *node_get(const struct node *mapping, const char *key);

/* null (Null, NULL), ~ or an empty plain scalar. */
bool node_is_null(const struct node *node);

/* Parses one YAML value ("0.1", "[1, 2]", "{type: sgd}") to a tree in [arena]; every node has the place [place].
 * NULL when it is malformed; the errors are in [problems]. */
struct node *node_parse(const char *text, struct place place, struct arena *arena, struct problems *problems);

/* [text] shortened for a message: use short_text(x).s within one expression. */
struct short_text {
    char s[68];
};
struct short_text short_text(const char *text);
