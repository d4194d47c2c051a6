/* columns: the names and roles of a table's columns. They come from the training file and are stored in checkpoints
 * (train/state/data_entries.h), so that the columns of another file are found by name. */
#pragma once

#include "base/arena.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "base/text.h"

/* ---- sorted names ---- */

/* The sorted names of a list, so that many of them are found in little time. */

struct sorted_name {
    const char *name;
    size_t index; /* in the list */
};

struct name_index {
    struct sorted_name *items;
    size_t count;
};

/* Space for [count] names in [arena]; then name_index_add of each, and name_index_sort. */
struct name_index name_index_create(struct arena *arena, size_t count);
void name_index_add(struct name_index *names, const char *name, size_t index);
void name_index_sort(struct name_index *names);

/* The lowest index that was added with [name]; SIZE_MAX: none. */
size_t name_index_find(const struct name_index *names, const char *name);

/* ---- columns ---- */

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

/* ---- the target ---- */

/* The column that is the target where nobody has named one: the last with a usual name such as label or
 * class, else the last one that has a name. */

/* Whether a column with this name is usually the target. */
bool target_is_usual(const char *name);

/* Why the column was chosen, for people: "by its name" or "the last column". */
const char *target_why(const char *name);

/* Zero-initialise, and add the columns in the order of the file. */
struct target_choice {
    size_t column;
    bool is_usual, has_name;
};

/* [has_name]: in the file. */
void target_choice_add(struct target_choice *choice, size_t column, const char *name, bool has_name);
