/* sqlite_rows: the rows of a table of an SQLite database as records, for the config that `ddptrain init` writes. */
#ifndef DATA_SQLITE_ROWS_H
#define DATA_SQLITE_ROWS_H

#include "base/arena.h"
#include "data/csv/csv.h"
#include "data/source/source.h"

struct sqlite_rows;

/* Opens the only table of the database, or the one with the most rows among those with a column [target] (NULL: any):
 * *table; *tables: all of them. Memory in [arena]. Close it, unless there is a failure. */
status sqlite_rows_open(const char *path, const char *target, struct arena *arena, struct string_list *tables,
                        const char **table, struct sqlite_rows **out);

/* record_reader.next of struct sqlite_rows. Blobs are suggest_blob. */
status sqlite_rows_next(void *state, const struct csv_reader **record);

void sqlite_rows_close(struct sqlite_rows *rows);

#endif
