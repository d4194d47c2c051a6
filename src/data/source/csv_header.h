/* csv_header: whether the first record of a CSV file has the names of the columns, or is a row like those below. */
#ifndef DATA_CSV_HEADER_H
#define DATA_CSV_HEADER_H

#include <stdbool.h>

#include "data/csv/csv.h"

/* Compares the first record with the rows below it. It is a row if its values have their types: numbers above numbers,
 * dates above dates, texts that occur below again; but not if its numbers are plausible as names (0, 1, 2, ...; five or
 * more that increase; years). [dialect] NULL: recognised. False also for a file that cannot be read, which reading it
 * will report. */
bool csv_first_is_row(const char *path, const struct csv_config *dialect);

#endif
