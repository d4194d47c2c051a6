/* cells: rows of a table in the caller's memory instead of a file, for predictions (dataset_config.cells). Columns are
 * found by name, and a cell means what it would mean in a CSV file. */
#ifndef DATA_CELLS_H
#define DATA_CELLS_H

#include <stddef.h>

/* One of [texts] and [numbers] is NULL. */
struct cell_column {
    const char *name;
    const char *const *texts; /* (rows); NULL: a missing value */
    const double *numbers;    /* (rows); NaN: a missing value */
};

struct cells {
    const struct cell_column *columns; /* (column_count) */
    size_t column_count, rows;
};

#endif
