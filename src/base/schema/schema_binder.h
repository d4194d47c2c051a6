/* schema_binder: what the files that bind a tree to a struct share. */
#ifndef BASE_SCHEMA_BINDER_H
#define BASE_SCHEMA_BINDER_H

#include "base/schema/schema_internal.h"

struct binder {
    const struct schema *root;
    const struct node *document; /* the root of the tree; NULL when only a section is bound */
    struct arena *arena;
    struct problems *problems;
};

/* The path to a value as a list on the stack; it becomes text only for a problem. */
struct path {
    const struct path *parent;
    const char *key; /* NULL: an entry of a list */
    size_t index;
};

/* Adds "optimizer.groups.0.lr". */
void binder_add_path(const struct path *path, struct text *out);

/* Whether the list of problems is full; then counts one more. */
bool binder_is_full(struct binder *b);

/* Problems so far, also those that were only counted. */
size_t binder_problem_count(const struct binder *b);

void binder_report(struct binder *b, struct place place, const struct path *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void binder_report_text(struct binder *b, struct place place, const struct path *path, const struct text *sentence);

/* "expected an integer, got 'abc'; hint"; [hint]: NULL: one that is found. */
void binder_report_wrong_type(struct binder *b, const struct schema_row *row, const struct node *node,
                              const struct path *path, const char *hint);
/* "null is not allowed; ..." */
void binder_report_null(struct binder *b, const struct schema_row *row, const struct node *node,
                        const struct path *path);

/* Binds the value [node], not null, to the row's [field], or reports why it does not fit. */
typedef void bind_function(struct binder *b, const struct schema_row *row, const struct node *node,
                           const struct path *path, void *field);
bind_function bind_bool, bind_int, bind_real, bind_string, bind_choice, bind_int_list, bind_real_list, bind_string_list;

#endif
