/* `inspect` for CSV files: the columns with the types that a config without `columns` would use, and their ranges. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "data/source/csv_header.h"
#include "data/source/csv_source.h"

#define MAX_LABELS 10

struct column {
    const char *labels[MAX_LABELS]; /* the first distinct texts */
    size_t label_count, texts, missing;
    double min, max;
    bool has_fraction, has_more_labels;
    struct column_builder builder; /* of the type that a config without `columns` would use */
    bool is_mixed;                 /* texts follow numbers */
};

static void add_label(struct column *column, const char *text) {
    for (size_t i = 0; i < column->label_count; i++)
        if (strcmp(column->labels[i], text) == 0) return;
    if (column->label_count < MAX_LABELS)
        column->labels[column->label_count++] = text;
    else
        column->has_more_labels = true;
}

static status add_field(struct column *column, const char *text, char *decimal, size_t row) {
    double value, index;
    bool fits = true;
    if (csv_means_missing(text)) {
        column->missing++;
        return OK;
    }
    bool is_number = csv_decimal(text, decimal, &value);
    if (!is_number) {
        column->texts++;
        add_label(column, text);
    } else {
        column->min = fmin(column->min, value);
        column->max = fmax(column->max, value);
        column->has_fraction = column->has_fraction || value != floor(value);
    }
    if (is_number && !column_builder_wants_text(&column->builder))
        column_builder_add_number(&column->builder);
    else
        TRY(column_builder_add_text(&column->builder, text, row, &index, &fits));
    column->is_mixed = column->is_mixed || !fits;
    return OK;
}

/* "category", "date", ...; "text" for a column that needs an entry in `columns`. */
static const char *type_of(struct column *column, struct arena *arena) {
    struct raw_column raw;
    double *map = NULL;
    size_t row;
    if (column->is_mixed) return "text";
    status s = column_builder_finish(&column->builder, arena, &raw, &map, &row);
    const char *type = s ? "text" : column_types[raw.type];
    status_free(s);
    free(map);
    return type;
}

static void print_column(size_t number, const char *name, const struct column *column, const char *type, size_t rows,
                         struct text *out) {
    text_printf(out, "  %4zu  ", number);
    size_t start = out->length;
    text_add_value(out, name, TEXT_MAX_NAME);
    text_pad(out, start, 28);
    text_add(out, " ");
    if (column->missing == rows)
        text_add(out, "empty");
    else if (column->texts == 0)
        text_printf(out, "%-8s %.6g to %.6g", column->has_fraction ? "number" : "integer", column->min, column->max);
    else
        text_printf(out, "%-8s ", type);
    for (size_t i = 0; column->texts && i < column->label_count; i++) {
        text_add(out, i ? ", " : "");
        text_add_value(out, column->labels[i], TEXT_MAX_NAME);
    }
    if (column->has_more_labels) text_add(out, ", ...");
    if (column->missing && column->missing < rows) text_printf(out, "  (%zu missing)", column->missing);
    text_add(out, "\n");
}

/* The names of the header; [has_row]: the current record is a row, and they are 0, 1, 2, ... */
static const char **names_of(const struct csv_reader *reader, bool has_row, struct arena *arena) {
    const char **names = arena_alloc(arena, (reader->count + 1) * sizeof *names);
    for (size_t i = 0; i < reader->count; i++)
        names[i] = has_row ? arena_printf(arena, "%zu", i) : arena_copy(arena, reader->fields[i].text);
    return names;
}

static status count_fields(struct csv_reader *reader, struct column *columns, size_t count, bool has_row, size_t *rows,
                           char *decimal) {
    *decimal = csv_usual_decimal(reader);
    *rows = 0;
    if (!has_row) TRY(csv_next(reader, &has_row));
    while (has_row) {
        if (reader->count != count)
            return status_new(STATUS_DATA, "%s:line %zu: %zu values, but the first line has %zu", reader->path,
                              reader->record_line, reader->count, count);
        for (size_t i = 0; i < count; i++) TRY(add_field(&columns[i], reader->fields[i].text, decimal, *rows));
        ++*rows;
        TRY(csv_next(reader, &has_row));
    }
    return OK;
}

/* "the delimiter is ';', it is not UTF-8 ...": what a reader of the file should know. */
static void add_dialect(const struct csv_reader *reader, const char *note, struct text *out) {
    if (reader->delimiter == '\t')
        text_add(out, ", separated by tabs");
    else if (reader->delimiter == CSV_BLANKS)
        text_add(out, ", separated by blanks");
    else if (reader->delimiter != ',')
        text_printf(out, ", separated by '%c'", reader->delimiter);
    if (note) text_printf(out, "\nnote    %s", note);
}

status csv_inspect(const char *path, struct text *out) {
    struct arena *arena = arena_create();
    struct csv_reader reader = {0};
    char *text = NULL;
    const char *note;
    bool has_row = false;
    size_t rows;
    char decimal;
    status s = csv_open_file(path, NULL, &reader, &text, &note);
    if (!s) s = csv_next(&reader, &has_row);
    if (!s && !has_row) s = status_new(STATUS_DATA, "%s: the file is empty", path);
    size_t count = reader.count;
    struct column *columns = arena_alloc(arena, (count + 1) * sizeof *columns);
    for (size_t i = 0; i < count; i++) columns[i] = (struct column){.min = INFINITY, .max = -INFINITY};
    has_row = !s && csv_first_is_row(path, NULL);
    const char **names = s ? NULL : names_of(&reader, has_row, arena);
    bool has_header = !has_row;
    for (size_t i = 0; !s && i < count; i++) column_builder_start(&columns[i].builder, names[i], NULL, NULL, arena);
    if (!s) s = count_fields(&reader, columns, count, has_row, &rows, &decimal);
    if (!s) {
        text_printf(out, "file    %s\nformat  csv, %zu row%s, %zu column%s, %s", path, rows, text_plural(rows, "s"),
                    count, text_plural(count, "s"), has_header ? "with a header" : "without a header");
        add_dialect(&reader, note, out);
        if (csv_is_undecided(decimal))
            text_add(out, "\nnote    commas of numbers may be decimal commas or separate thousands; a config needs "
                          "dataset.csv.decimal: ',' or dataset.csv.thousands: ','");
        if (!has_header) text_add(out, "\nnote    a config needs dataset.csv: {no_header: true} for it");
        text_add(out, "\n\n");
        for (size_t i = 0; i < count; i++)
            print_column(i + 1, names[i], &columns[i], type_of(&columns[i], arena), rows, out);
    }
    for (size_t i = 0; i < count; i++) column_builder_free(&columns[i].builder);
    csv_free(&reader);
    buffer_free(text);
    arena_destroy(arena);
    return s;
}
