/* identifiers: whether a column says which row it is, which says nothing about new rows. */
#pragma once

#include "base/arena.h"
#include "data/columns/column_rules.h"

enum identifier_name {
    NO_IDENTIFIER,     /* any other name */
    IDENTIFIER_NUMBER, /* index, row, no, code, ...: an identifier if its values differ */
    IDENTIFIER_KEY,    /* id, customer_id, uuid, ...: rows with the same value belong together */
    IDENTIFIER_UNIT,   /* subject, patient, ...: the same, and a unit may have many rows */
    NAME_OF_TIME       /* year, day, ...: no identifier, though its values may be 1, 2, 3, ... */
};

enum identifier_name identifier_name(const char *column);

/* What is known of a column; its values are no dates. */
struct identifier_values {
    const char *name;
    size_t count, missing; /* values, rows without one */
    size_t distinct;       /* different values; needed only with a name other than NO_IDENTIFIER and NAME_OF_TIME */
    bool are_numbers, are_whole;
    bool is_complete; /* whole numbers that follow each other, each once, in any order, or at equal steps in the order
                         of the rows */
};

/* Whether the column says which row it is; *repeats: which rows belong together. */
bool identifier_is(const struct identifier_values *values, bool *repeats);

struct source;

/* A sentence about the inputs of an open source that are identifiers and have no rule; NULL: there are none, or all
 * inputs are. The source has columns; its rows are read once. */
status identifiers_note(struct source *source, const struct section_list *rules, struct arena *arena,
                        const char **note);
