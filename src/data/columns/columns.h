/* columns: the names and roles of a table's columns. They come from the training file and are stored in checkpoints
 * (train/state/column_names.h), so that the columns of another file are found by name. */
#ifndef DATA_COLUMNS_H
#define DATA_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "base/text.h"
#include "data/columns/name_index.h"

enum column_role { COLUMN_INPUT, COLUMN_TARGET, COLUMN_ROLES };

struct named_column {
    const char *name;
    enum column_role role;
};

struct column_list {
    const char *format;         /* of the file: "csv", "hdf5" */
    struct named_column *items; /* (count): the inputs in the model's order, then the targets */
    size_t count;               /* 0: the format has no column names */
};

/* "input", "target" */
const char *column_role_name(enum column_role role);

/* A copy in [arena], with the names. */
struct column_list columns_copy(struct arena *arena, const struct column_list *list);

/* The number of columns with [role]. */
size_t columns_count(const struct column_list *list, enum column_role role);

/* The names of the columns with each role (the same data may be input and target), sorted, in [arena]. */
struct column_index {
    struct name_index roles[COLUMN_ROLES];
};
struct column_index columns_index(struct arena *arena, const struct column_list *list);

/* Whether the list has a column of this name, in any role or in [role]. */
bool columns_have_name(const struct column_index *index, const char *name);
bool columns_have(const struct column_index *index, enum column_role role, const char *name);

/* Adds the names of the columns with [role], "a, b, c", truncated after about 200 characters. */
void columns_add_names(const struct column_list *list, enum column_role role, struct text *out);

/* The name in [list] that [name] may be a typo of; NULL: none. */
const char *columns_nearest(const struct column_list *list, const char *name);

/* Checks that [names], the value of the key dataset.inputs or dataset.targets, are the columns that the model was
 * trained with, in any order; an empty list is OK. STATUS_USAGE with the first name that is unknown or missing. */
status columns_check_key(const struct column_list *trained, enum column_role role, const struct string_list *names);

#endif
