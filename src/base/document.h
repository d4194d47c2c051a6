/* document: a YAML file as a tree whose every node knows where it stands (file, line, column).
 * A config is read by people and machines that must trust it, so only the plain subset is accepted: one
 * document, mappings, sequences and scalars; no aliases, anchors, tags, merge keys; no duplicate keys; at most
 * 32 levels and 1 MiB (libyaml checks none of these, and its time is quadratic in nesting).
 *
 * Errors are collected, not thrown: one reading of a file reports all that is wrong with it. */
#ifndef BASE_DOCUMENT_H
#define BASE_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

#define DOCUMENT_MAX_DEPTH 32        /* mappings and sequences inside each other; the root is level 1 */
#define DOCUMENT_MAX_BYTES (1 << 20) /* of a file */
#define DOCUMENT_MAX_NODES (1 << 16) /* keys and values; so any file stays below 16 MiB of memory */
#define DOCUMENT_MAX_BLANKS 1024     /* spaces and empty lines in a row; libyaml is quadratic in them */
#define PROBLEMS_MAX 100             /* sentences that are kept; further ones are only counted */

struct place {
    const char *file; /* as the user wrote it; "argument 'a.b=VALUE'" for an override */
    int line, column; /* from 1; 0 when there is none (an override, a missing key of an empty file) */
};

enum node_kind { NODE_SCALAR, NODE_SEQUENCE, NODE_MAPPING };

struct node {
    enum node_kind kind;
    struct place place;
    const char *text;         /* NODE_SCALAR: the value, NUL-terminated, no NUL inside */
    bool is_quoted;           /* NODE_SCALAR: "..." or '...': always a string, never null or a number */
    size_t count;             /* children */
    struct node **items;      /* NODE_SEQUENCE: (count); NODE_MAPPING: the values (count) */
    const char **keys;        /* NODE_MAPPING: (count), unique */
    struct place *key_places; /* NODE_MAPPING: (count) */
};

/* What is wrong with a file. Zero-initialise. count is 0 when all is well. */
struct problems {
    struct problem *items;
    size_t count, capacity;
    size_t left_out; /* beyond PROBLEMS_MAX */
};

/* Adds "file:line:column: key: sentence"; without the numbers when line is 0, without the key when [key] (the dotted
 * path) is NULL or "". Control characters are shown escaped, so a problem is always one line. */
void problems_add(struct problems *problems, struct place place, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* All sentences, one a line, sorted by file, line and column (overrides last), as one failure; OK when there are
 * none. */
status problems_status(const struct problems *problems, enum status_code code);
void problems_free(struct problems *problems);

struct document;

/* Reads [path]. What is wrong with its form goes to [problems], and *out is then NULL or a tree that is good
 * for finding more problems. A file that cannot be read is a failure (STATUS_USAGE) naming it. An empty file
 * is an empty mapping. The root is always a mapping. */
status document_read(const char *path, struct problems *problems, struct document **out);

/* The same from memory; [name] stands for the file in messages. */
status document_parse(const char *name, const char *bytes, size_t size, struct problems *problems,
                      struct document **out);

/* Applies one override "a.b.c=VALUE": VALUE is YAML in one line (`0.1`, `[1, 2]`, `{type: sgd, lr: 0.1}`).
 * Missing mappings on the way are made; a scalar on the way that names a type (`loss: mse`) becomes
 * {type: mse} so that `loss.label_smoothing=0.1` works. A step may be an index into a sequence
 * (`model.layers.0.linear.out=128`). Problems get the place {"argument 'a.b.c=VALUE'", 0, 0}. */
void document_override(struct document *document, const char *assignment, struct problems *problems);

const struct node *document_root(const struct document *document);
/* The arena that holds the tree; configs bound from it may use it too. */
struct arena *document_arena(struct document *document);
void document_destroy(struct document *document); /* takes NULL */

/* The value of [key] in a mapping, NULL when absent or when [mapping] is NULL. */
const struct node *node_get(const struct node *mapping, const char *key);

/* null (Null, NULL), ~ or an empty plain scalar. */
bool node_is_null(const struct node *node);

/* One value of YAML in a line ("0.1", "[1, 2]", "{type: sgd}") as a tree in [arena]; every node has the place [place].
 * NULL when it is malformed; what is wrong went to [problems]. */
struct node *node_parse(const char *text, struct place place, struct arena *arena, struct problems *problems);

#endif
