/* The texts of all fields stay in memory, one after another. */
#include "data/source/csv_texts.h"

#include <stdlib.h>
#include <string.h>

#include "data/source/column_view.h"
#include "data/source/csv_source.h"

struct text_part {
    size_t first, records;   /* in [fields]; all of its records, also the header */
    size_t width, first_row; /* fields of a record; row number of its first row */
    size_t *at;              /* (columns) the field of each column of the first file; SIZE_MAX: none */
};

struct csv_texts {
    struct arena *arena;
    struct string_list names;
    struct text_part *parts; /* (part_count) */
    size_t part_count;
    size_t *fields; /* (count): record by record, where the text begins in [texts] */
    size_t count, capacity;
    char *texts; /* (length): NUL-terminated */
    size_t length, text_capacity;
    bool has_headers, is_ragged; /* is_ragged: a record may have another number of fields than the header */
};

static const char *text_at(const struct csv_texts *t, size_t field) { return t->texts + t->fields[field]; }

static status add_field(struct csv_texts *t, const char *path, const char *text) {
    size_t bytes = strlen(text) + 1;
    TRY(array_grow(&t->fields, &t->capacity, t->count + 1, sizeof *t->fields, path));
    TRY(array_grow(&t->texts, &t->text_capacity, t->length + bytes, 1, path));
    t->fields[t->count++] = t->length;
    memcpy(t->texts + t->length, text, bytes);
    t->length += bytes;
    return OK;
}

/* Fields that a record does not have, and blobs, are "". */
static status add_fields(struct csv_texts *t, const struct csv_reader *reader, size_t width) {
    for (size_t i = 0; i < width; i++) {
        const char *text = i < reader->count ? reader->fields[i].text : "";
        TRY(add_field(t, reader->path, text == suggest_blob ? "" : text));
    }
    return OK;
}

static status read_records(struct csv_texts *t, struct csv *csv, struct text_part *part) {
    const struct csv_reader *reader = &csv->reader;
    part->first = t->count;
    for (bool has_record;;) {
        TRY(csv->input->next(csv, &has_record));
        if (!has_record) return OK;
        if (part->records == 0) part->width = reader->count;
        if (reader->count != part->width && !t->is_ragged)
            return status_data("%s:line %zu: there are %zu fields, but the first line has %zu", reader->path,
                               reader->record_line, reader->count, part->width);
        TRY(add_fields(t, reader, part->width));
        csv->base.rows += part->records++ > 0;
    }
}

/* ---- columns ---- */

static void name_columns(struct csv_texts *t) {
    const struct text_part *first = &t->parts[0];
    t->names = (struct string_list){arena_alloc(t->arena, (first->width + 1) * sizeof *t->names.items), first->width};
    for (size_t i = 0; i < first->width; i++)
        t->names.items[i] = t->has_headers ? text_at(t, first->first + i) : arena_printf(t->arena, "column_%zu", i + 1);
}

static void match_columns(struct csv_texts *t, struct text_part *part) {
    part->at = arena_alloc(t->arena, (t->names.count + 1) * sizeof *part->at);
    for (size_t i = 0; i < t->names.count; i++) {
        part->at[i] = t->has_headers || i >= part->width ? SIZE_MAX : i;
        for (size_t k = 0; k < part->width && part->at[i] == SIZE_MAX; k++)
            if (strcmp(t->names.items[i], text_at(t, part->first + k)) == 0) part->at[i] = k;
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

/* ---- files ---- */

static status read_parts(struct csv_texts *t, struct csv *csv, const struct dataset_config *config,
                         bool is_validation) {
    t->parts = arena_alloc(t->arena, (csv->part_count + 1) * sizeof *t->parts);
    t->part_count = csv->part_count;
    for (size_t i = 0; i < t->part_count; i++) {
        TRY(csv_start_file(csv, config, is_validation, i));
        TRY(read_records(t, csv, &t->parts[i]));
    }
    return OK;
}

/* *is_whole: files of CSV are read as a whole; else whether they must be, after a failure. */
static status read_files(struct csv_texts *t, const struct dataset_config *config, bool is_validation, bool *is_whole) {
    const char *path = is_validation ? config->validation.path : config->path;
    struct csv *csv;
    t->count = t->length = 0;
    TRY(csv_open_records(dataset_format_of(config, path), config, is_validation, &csv));
    csv->is_whole = *is_whole;
    status s = read_parts(t, csv, config, is_validation);
    *is_whole = csv->reader.is_not_utf8;
    csv_close(&csv->base);
    return s;
}

status csv_texts_of(const struct dataset_config *config, bool is_validation, size_t rows, struct csv_texts **out) {
    const char *path = is_validation ? config->validation.path : config->path;
    struct csv_texts *t = calloc(1, sizeof *t);
    bool is_whole = false;
    *out = NULL;
    if (!t) return status_memory("the texts of %s", path);
    t->is_ragged = config->request.skips_bad_rows;
    t->arena = arena_create();
    status s = read_files(t, config, is_validation, &is_whole);
    if (s && is_whole) {
        status_free(s);
        s = read_files(t, config, is_validation, &is_whole);
    }
    if (!s) s = find_columns(t, path, rows);
    if (s) csv_texts_close(t);
    if (!s) *out = t;
    return s;
}

void csv_texts_close(struct csv_texts *texts) {
    if (!texts) return;
    free(texts->fields);
    free(texts->texts);
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
    return part->at[column] == SIZE_MAX ? "" : text_at(texts, part->first + record * part->width + part->at[column]);
}
