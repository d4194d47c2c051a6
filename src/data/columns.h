/* columns: the names of a table's columns and what each is for. A dataset has them from its file, a checkpoint keeps
 * them (train/column_names.h), and other files are read by name. */
#ifndef DATA_COLUMNS_H
#define DATA_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/schema.h"
#include "base/status.h"
#include "base/text.h"

enum column_role { COLUMN_INPUT, COLUMN_TARGET, COLUMN_ROLES };

struct named_column {
    const char *name;
    enum column_role role;
};

struct column_list {
    const char *format;         /* of the file: "csv", "hdf5" */
    struct named_column *items; /* (count): the inputs in the order in which the model takes them, then the targets */
    size_t count;               /* 0: the columns have no names, or names without a meaning */
};

/* "input", "target" */
const char *column_role_name(enum column_role role);

/* In [arena], with the names. */
struct column_list columns_copy(struct arena *arena, const struct column_list *list);

/* How many have [role]. */
size_t columns_count(const struct column_list *list, enum column_role role);

/* Whether there is one of this name; with this role (the same data may be input and target). */
bool columns_have_name(const struct column_list *list, const char *name);
bool columns_have(const struct column_list *list, enum column_role role, const char *name);

/* Adds "a, b, c", the names of those with [role], cut after about 200 characters. */
void columns_add_names(const struct column_list *list, enum column_role role, struct text *out);

/* The name in [list] that is near enough to [name] for a typo; NULL: none. */
const char *columns_nearest(const struct column_list *list, const char *name);

/* Whether [names], the value of the key dataset.inputs or dataset.targets, are the columns that the model was trained
 * with, in any order; no names are OK. STATUS_USAGE names the first that is not, or that is missing. */
status columns_check_key(const struct column_list *trained, enum column_role role, const struct string_list *names);

#endif
