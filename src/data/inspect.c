/* `inspect` for data files that are not HDF5: the columns of a CSV file, the shape of a row of the others. */
#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "data/csv.h"
#include "data/internal.h"

#define MAX_LABELS 10

struct column {
    const char *labels[MAX_LABELS]; /* the first distinct texts */
    size_t label_count, texts, missing;
    double min, max;
    bool has_fraction, has_more_labels;
};

static void add_label(struct column *column, const char *text) {
    for (size_t i = 0; i < column->label_count; i++)
        if (strcmp(column->labels[i], text) == 0) return;
    if (column->label_count < MAX_LABELS)
        column->labels[column->label_count++] = text;
    else
        column->has_more_labels = true;
}

static void add_field(struct column *column, const char *text) {
    double value;
    if (!*text) {
        column->missing++;
    } else if (!csv_number(text, &value)) {
        column->texts++;
        add_label(column, text);
    } else {
        column->min = fmin(column->min, value);
        column->max = fmax(column->max, value);
        column->has_fraction = column->has_fraction || value != floor(value);
    }
}

/* A line with two or more numbers, or with numbers only, is not a header. */
static bool is_header(const struct csv_reader *reader) {
    double value;
    size_t numbers = 0;
    for (size_t i = 0; i < reader->count; i++) numbers += csv_number(reader->fields[i].text, &value);
    return numbers < 2 && numbers < reader->count;
}

static void print_column(size_t number, const char *name, const struct column *column, size_t rows, struct text *out) {
    struct text shown = {0};
    text_add_value(&shown, name, TEXT_MAX_NAME);
    text_printf(out, "  %4zu  %-28s ", number, text_string(&shown));
    text_free(&shown);
    if (column->missing == rows)
        text_add(out, "empty");
    else if (column->texts == 0)
        text_printf(out, "%-8s %.6g to %.6g", column->has_fraction ? "number" : "integer", column->min, column->max);
    else
        text_printf(out, "%-8s ", "text");
    for (size_t i = 0; column->texts && i < column->label_count; i++) {
        text_add(out, i ? ", " : "");
        text_add_value(out, column->labels[i], TEXT_MAX_NAME);
    }
    if (column->has_more_labels) text_add(out, ", ...");
    if (column->missing && column->missing < rows) text_printf(out, "  (%zu missing)", column->missing);
    text_add(out, "\n");
}

/* The names of the header, or "(no header)"; *has_row: the current record is a row. */
static const char **names_of(const struct csv_reader *reader, bool *has_row, struct arena *arena) {
    const char **names = arena_alloc(arena, (reader->count + 1) * sizeof *names);
    *has_row = !is_header(reader);
    for (size_t i = 0; i < reader->count; i++)
        names[i] = *has_row ? "(no header)" : arena_copy(arena, reader->fields[i].text);
    return names;
}

static status count_fields(struct csv_reader *reader, struct column *columns, size_t count, bool has_row,
                           size_t *rows) {
    *rows = 0;
    if (!has_row) TRY(csv_next(reader, &has_row));
    while (has_row) {
        if (reader->count != count)
            return status_new(STATUS_DATA, "%s:line %zu: %zu values, but the first line has %zu", reader->path,
                              reader->record_line, reader->count, count);
        for (size_t i = 0; i < count; i++) add_field(&columns[i], reader->fields[i].text);
        ++*rows;
        TRY(csv_next(reader, &has_row));
    }
    return OK;
}

static status inspect_csv(const char *path, char *text, size_t size, struct arena *arena, struct text *out) {
    struct csv_reader reader = {0};
    bool has_row = false;
    size_t rows;
    status s = csv_start(&reader, path, text, size);
    if (!s) s = csv_next(&reader, &has_row);
    if (!s && !has_row) s = status_new(STATUS_DATA, "%s: the file is empty", path);
    size_t count = reader.count;
    struct column *columns = arena_alloc(arena, (count + 1) * sizeof *columns);
    for (size_t i = 0; i < count; i++) columns[i] = (struct column){.min = INFINITY, .max = -INFINITY};
    const char **names = s ? NULL : names_of(&reader, &has_row, arena);
    bool has_header = !has_row;
    if (!s) s = count_fields(&reader, columns, count, has_row, &rows);
    if (!s) {
        text_printf(out, "file    %s\nformat  csv, %zu row%s, %zu column%s, %s\n\n", path, rows, text_plural(rows, "s"),
                    count, text_plural(count, "s"), has_header ? "with a header" : "without a header");
        for (size_t i = 0; i < count; i++) print_column(i + 1, names[i], &columns[i], rows, out);
    }
    csv_free(&reader);
    return s;
}

static status inspect_rows(const char *path, const char *format, struct arena *arena, struct text *out) {
    struct dataset_config config;
    struct problems problems = {0};
    struct dataset *dataset;
    schema_bind(&dataset_schema, NULL, "dataset", &dataset_schema, &config, arena, &problems); /* the defaults */
    problems_free(&problems);
    config.path = path;
    config.without_targets = true;
    TRY(dataset_open(&config, true, true, &dataset));
    const struct dataset_info *info = dataset_info(dataset);
    text_printf(out, "file    %s\nformat  %s, %zu row%s of (", path, format, info->train_rows,
                text_plural(info->train_rows, "s"));
    for (int i = 0; i < info->input_dims; i++)
        text_printf(out, "%s%lld", i ? ", " : "", (long long)info->input_shape[i]);
    text_add(out, info->input_kind == INPUT_TOKENS ? ") tokens" : ")");
    if (info->vocabulary) text_printf(out, ", vocabulary %lld", (long long)info->vocabulary);
    text_add(out, "\n");
    dataset_close(dataset);
    return OK;
}

bool dataset_is_inspected(const char *path) {
    static const struct dataset_config by_extension;
    const struct dataset_format *format = dataset_format_of(&by_extension, path);
    return format && strcmp(format->name, "hdf5") != 0;
}

status dataset_inspect(const char *path, struct text *out) {
    static const struct dataset_config by_extension;
    const struct dataset_format *format = dataset_format_of(&by_extension, path);
    struct arena *arena = arena_create();
    char *text = NULL;
    size_t size;
    uint64_t bytes;
    status s = file_check(path, &bytes);
    if (!s && strcmp(format->name, "csv") != 0)
        s = inspect_rows(path, format->name, arena, out);
    else if (!s)
        s = file_read(path, &text, &size);
    if (!s && text) s = inspect_csv(path, text, size, arena, out);
    buffer_free(text);
    arena_destroy(arena);
    return s;
}
