/* Rows of a table in memory, read as the records of a CSV file are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/source/config.h"
#include "data/source/csv_source.h"

struct records {
    const struct cells *cells;
    char (*numbers)[CSV_REAL]; /* (column_count): the numbers of the current row */
    size_t next;               /* 0: the names; then row + 1 */
};

static status start(struct csv *csv, const struct dataset_config *config, bool is_validation) {
    struct records *records = csv->records;
    size_t columns = config->request.cells->column_count;
    (void)is_validation;
    records->cells = config->request.cells;
    records->numbers = arena_alloc(csv->arena, (columns + 1) * sizeof *records->numbers);
    csv->numbers = arena_alloc(csv->arena, (columns + 1) * sizeof *csv->numbers);
    if (config->csv.decimal) csv->decimal = *config->csv.decimal;
    return csv_make_fields(&csv->reader, "a table", columns);
}

/* With the decimal separator of the texts. */
static const char *format_number(struct csv *csv, size_t column, double value) {
    const struct records *records = csv->records;
    char *text = records->numbers[column], *point;
    csv_format_real(csv, column, value, text);
    if ((point = strchr(text, '.')) != NULL) *point = csv->decimal;
    return text;
}

static const char *cell_text(struct csv *csv, size_t column, size_t row) {
    const struct cell_column *cells = &((struct records *)csv->records)->cells->columns[column];
    csv->numbers[column].is_given = false;
    if (cells->texts) return cells->texts[row] ? cells->texts[row] : csv->missing[0];
    if (csv_takes_number(csv, column, cells->numbers[row])) {
        csv->numbers[column] = (struct csv_number){.is_given = true, .value = cells->numbers[row]};
        return "";
    }
    return isnan(cells->numbers[row]) ? csv->missing[0] : format_number(csv, column, cells->numbers[row]);
}

static status next_record(struct csv *csv, bool *has_record) {
    struct records *records = csv->records;
    const struct cells *cells = records->cells;
    size_t at = records->next++;
    *has_record = at <= cells->rows;
    csv->reader.record_line = at - 1;
    for (size_t i = 0; i < cells->column_count && at == 0; i++) csv->reader.fields[i].text = cells->columns[i].name;
    for (size_t i = 0; i < cells->column_count && at > 0 && *has_record; i++)
        if (csv->roles[i].at != NOT_USED || csv->roles[i].is_filtered)
            csv->reader.fields[i].text = cell_text(csv, i, at - 1);
    return OK;
}

static status open_cells(const struct dataset_config *config, const char *path, bool wants_classes,
                         const struct source *train, struct source **out) {
    (void)path;
    return csv_open(&dataset_cells, config, "table", wants_classes, train, out);
}

static const struct csv_input input = {
    .unit = "row", .state_bytes = sizeof(struct records), .start = start, .next = next_record};

const struct dataset_format dataset_cells = {.name = "cells",
                                             .reads_patterns = true,
                                             .open = open_cells,
                                             .records = &input,
                                             .read = csv_read_rows,
                                             .read_column = csv_read_column,
                                             .describe = csv_describe,
                                             .columns = csv_columns,
                                             .close = csv_close};
