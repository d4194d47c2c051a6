/* The files stay in memory; a pointer for each field. */
#include "data/source/csv_texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "data/files/files.h"
#include "data/source/source.h"

struct text_part {
    char *text;              /* the file */
    size_t first, records;   /* in [fields]; all of its records, also the header */
    size_t width, first_row; /* fields of a record; row number of its first row */
    size_t *at;              /* (columns) the field of each column of the first file; SIZE_MAX: none */
};

struct csv_texts {
    struct arena *arena;
    struct string_list names;
    struct text_part *parts; /* (part_count) */
    size_t part_count;
    const char **fields; /* (capacity): record by record */
    size_t count, capacity;
    bool has_headers, is_ragged; /* is_ragged: a record may have another number of fields than the header */
};

static status add_fields(struct csv_texts *t, const struct csv_reader *reader, size_t width) {
    TRY(array_grow(&t->fields, &t->capacity, t->count + width, sizeof *t->fields, reader->path));
    for (size_t i = 0; i < width; i++) t->fields[t->count++] = i < reader->count ? reader->fields[i].text : "";
    return OK;
}

static status read_records(struct csv_texts *t, struct text_part *part, struct csv_reader *reader) {
    part->first = t->count;
    for (bool has_record;;) {
        TRY(csv_next(reader, &has_record));
        if (!has_record) return OK;
        if (part->records == 0) part->width = reader->count;
        if (reader->count != part->width && !t->is_ragged)
            return status_data("%s:line %zu: there are %zu fields, but the first line has %zu", reader->path,
                               reader->record_line, reader->count, part->width);
        TRY(add_fields(t, reader, part->width));
        part->records++;
    }
}

static status read_part(struct csv_texts *t, const char *path, const struct csv_config *dialect,
                        struct text_part *part) {
    struct csv_reader reader = {0};
    const char *note;
    status s = csv_open_file(path, dialect, &reader, &part->text, &note);
    if (!s) s = read_records(t, part, &reader);
    csv_free(&reader);
    return s;
}

/* ---- columns ---- */

static void name_columns(struct csv_texts *t) {
    const struct text_part *first = &t->parts[0];
    t->names = (struct string_list){arena_alloc(t->arena, (first->width + 1) * sizeof *t->names.items), first->width};
    for (size_t i = 0; i < first->width; i++)
        t->names.items[i] = t->has_headers ? t->fields[first->first + i] : arena_printf(t->arena, "column_%zu", i + 1);
}

static void match_columns(struct csv_texts *t, struct text_part *part) {
    part->at = arena_alloc(t->arena, (t->names.count + 1) * sizeof *part->at);
    for (size_t i = 0; i < t->names.count; i++) {
        part->at[i] = t->has_headers || i >= part->width ? SIZE_MAX : i;
        for (size_t k = 0; k < part->width && part->at[i] == SIZE_MAX; k++)
            if (strcmp(t->names.items[i], t->fields[part->first + k]) == 0) part->at[i] = k;
    }
}

static status find_columns(struct csv_texts *t, const char *path, size_t rows) {
    size_t records = 0, row = 0;
    for (size_t i = 0; i < t->part_count; i++) records += t->parts[i].records;
    t->has_headers = records == rows + t->part_count;
    if (!t->has_headers && records != rows)
        return status_data("%s: it has changed while it was read: %zu lines for %zu rows", path, records, rows);
    name_columns(t);
    for (size_t i = 0; i < t->part_count; i++) {
        struct text_part *part = &t->parts[i];
        match_columns(t, part);
        part->first_row = row;
        row += part->records - t->has_headers;
    }
    return OK;
}

static status open_texts(const char *path, const struct string_list *others, const struct csv_config *dialect,
                         size_t rows, bool is_ragged, struct csv_texts **out) {
    struct csv_texts *t = calloc(1, sizeof *t);
    struct string_list files = {0};
    *out = NULL;
    if (!t) return status_memory("the texts of %s", path);
    t->is_ragged = is_ragged;
    t->arena = arena_create();
    status s = file_list_expand(path, others, t->arena, &files);
    t->parts = arena_alloc(t->arena, (files.count + 1) * sizeof *t->parts);
    for (; !s && t->part_count < files.count; t->part_count++)
        s = read_part(t, files.items[t->part_count], dialect, &t->parts[t->part_count]);
    if (!s) s = find_columns(t, path, rows);
    if (s) csv_texts_close(t);
    if (!s) *out = t;
    return s;
}

/* Reads records that are in memory: text. */
static status read_text(struct csv_texts *t, const char *path, const struct text *text, size_t rows) {
    struct csv_reader reader;
    t->parts = arena_alloc(t->arena, 2 * sizeof *t->parts);
    t->part_count = 1;
    TRY(rows_alloc(text->length + CSV_PADDING, 1, path, &t->parts[0].text));
    memcpy(t->parts[0].text, text_string(text), text->length);
    TRY(csv_start(&reader, path, t->parts[0].text, text->length));
    status s = read_records(t, &t->parts[0], &reader);
    csv_free(&reader);
    return s ? s : find_columns(t, path, rows);
}

status csv_texts_of(const struct dataset_config *config, bool is_validation, size_t rows, struct csv_texts **out) {
    const char *path = is_validation ? config->validation.path : config->path;
    const struct dataset_format *format = dataset_format_of(config, path);
    SCOPED_TEXT text = {0};
    if (!format || !format->add_records)
        return open_texts(path, dataset_others(config, is_validation), &config->csv, rows,
                          config->request.skips_bad_rows, out);
    struct csv_texts *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return status_memory("the texts of %s", path);
    t->arena = arena_create();
    status s = format->add_records(config, is_validation, &text);
    if (!s) s = read_text(t, path, &text, rows);
    if (s) csv_texts_close(t);
    if (!s) *out = t;
    return s;
}

void csv_texts_close(struct csv_texts *texts) {
    if (!texts) return;
    for (size_t i = 0; i < texts->part_count; i++) buffer_free(texts->parts[i].text);
    free(texts->fields);
    arena_destroy(texts->arena);
    free(texts);
}

struct string_list csv_texts_names(const struct csv_texts *texts) {
    return texts->names;
}

const char *csv_texts_field(const struct csv_texts *texts, size_t row, size_t column) {
    const struct text_part *part = &texts->parts[texts->part_count - 1];
    while (part > texts->parts && part->first_row > row) part--;
    size_t record = row - part->first_row + texts->has_headers;
    return part->at[column] == SIZE_MAX ? "" : texts->fields[part->first + record * part->width + part->at[column]];
}
