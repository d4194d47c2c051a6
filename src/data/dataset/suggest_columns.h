/* suggest_columns: looks at the rows of a table whose columns have names: which column is the target, which columns
 * need rules of `columns:`. */
#ifndef DATA_SUGGEST_COLUMNS_H
#define DATA_SUGGEST_COLUMNS_H

#include "data/csv/csv.h"
#include "data/dataset/suggest.h"

#define SUGGESTED_NUMBER_CLASSES 20 /* different whole numbers that are taken for classes */

/* Reads records: the names of the columns first, then the rows. */
struct record_reader {
    const char *path;
    const char *header, *advice; /* for messages: where the names are; what to do if there is only one */
    bool has_lines;              /* records are in lines of a text; else they are counted from 0 */
    char decimal;                /* '.' or ','; 0: not known yet */
    char thousands;              /* 0: none */
    const char *strip;           /* of csv_strip */
    const char *unclear;         /* the first number that left [decimal] unclear, and its line */
    size_t unclear_line;
    void *state;
    /* Sets *record, valid until the next call; NULL: there are no more. */
    status (*next)(void *state, const struct csv_reader **record);
};

/* Reads all rows. [target] and the failures: as for suggest. With has_lines and without strip, or thousands, the
 * numbers of a column may show that there are some: then only out->strip and strip_text, or out->thousands and
 * thousands_text, are set, and the rows must be read again. */
status suggest_columns(struct record_reader *reader, const char *target, struct arena *arena, struct suggestion *out);

#endif
