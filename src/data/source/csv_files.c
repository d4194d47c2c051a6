/* The files of a path that is a pattern or a list: their rows follow one another, and the columns of each are found by
 * the names of the first file's. */
#include <stdlib.h>
#include <string.h>

#include "data/files/files.h"
#include "data/source/csv_source.h"

status csv_find_files(struct csv *csv, const struct dataset_config *config, bool is_validation) {
    struct string_list files = {&csv->path, 1};
    const struct string_list *others = dataset_others(config, is_validation);
    if (csv->base.format != &dataset_cells) TRY(file_list_expand(csv->path, others, csv->arena, &files));
    if (csv->records && files.count > 1)
        return files_are_too_many(csv->path, others, files.count, csv->base.format->name);
    csv->parts = arena_alloc(csv->arena, files.count * sizeof *csv->parts);
    csv->part_count = files.count;
    for (size_t i = 0; i < files.count; i++) csv->parts[i].path = files.items[i];
    return OK;
}

const char *csv_path_of(const struct csv *csv, size_t row) {
    size_t part = csv->part; /* later parts are not open yet */
    while (part > 0 && csv->parts[part].first_row > row) part--;
    return csv->parts[part].path;
}

static status missing_column(const struct csv *csv, size_t column) {
    return status_new(STATUS_DATA, "%s: there is no column '%s', which '%s' has", csv->path,
                      csv_printable(csv, csv->names[column]), csv->parts[0].path);
}

/* Writes the names of the fields to [sorted] (n_fields). */
static void sort_fields(const struct csv *csv, struct sorted_name *sorted) {
    for (size_t i = 0; i < csv->n_fields; i++) {
        const char *text = csv->reader.fields[i].text;
        sorted[i] = (struct sorted_name){text[0] ? text : csv_name(text, i, csv->arena), i};
    }
    qsort(sorted, csv->n_fields, sizeof *sorted, csv_compare_names);
}

/* The number of fields with the name of [column], and the last of them in *field. A field without a name is only that
 * of a column without one. */
static size_t find_fields(const struct csv *csv, const struct sorted_name *sorted, size_t column, size_t *field) {
    const char *name = csv->names[column];
    const struct sorted_name *end = sorted + csv->n_fields,
                             *at = bsearch(&name, sorted, csv->n_fields, sizeof *sorted, csv_compare_names);
    size_t found = 0;
    while (at && at > sorted && strcmp(at[-1].name, name) == 0) at--;
    for (; at && at < end && strcmp(at->name, name) == 0; at++) {
        if (!csv->roles[column].has_no_name && csv->reader.fields[at->index].text[0] == 0) continue;
        *field = at->index;
        found++;
    }
    return found;
}

/* Finds the columns that are used, and those whose order is checked. */
static status match_fields(struct csv *csv, const struct sorted_name *sorted) {
    for (size_t i = 0; i < csv->n_columns; i++) {
        bool is_used = csv->roles[i].at != NOT_USED || csv->roles[i].is_filtered;
        if (!is_used && !csv->roles[i].may_be_date) continue;
        size_t field = 0, found = find_fields(csv, sorted, i, &field);
        if (!is_used && found != 1) {
            csv->roles[i].may_be_date = false;
            continue;
        }
        if (found == 0) return missing_column(csv, i);
        if (found > 1)
            return status_new(STATUS_DATA, "%s:line 1: duplicate column '%s'", csv->path,
                              csv_printable(csv, csv->names[i]));
        csv->fields[i] = field;
    }
    return OK;
}

static status match_columns(struct csv *csv) {
    csv->n_fields = csv->reader.count;
    struct sorted_name *sorted = calloc(csv->n_fields + 1, sizeof *sorted);
    if (!sorted) return status_memory("the columns of a table");
    sort_fields(csv, sorted);
    status s = match_fields(csv, sorted);
    free(sorted);
    return s;
}

/* Starts file csv->part; its first row is the current record then. */
static status start_file(struct csv *csv, const struct dataset_config *config, bool *has_record) {
    struct csv_part *part = &csv->parts[csv->part];
    part->first_row = csv->base.rows;
    csv->path = part->path;
    csv_free(&csv->reader);
    TRY(csv_read_text(csv, config));
    TRY(csv_next(&csv->reader, has_record));
    if (csv->has_no_header) return OK;
    if (!*has_record) return status_new(STATUS_DATA, "%s: the file is empty", csv->path);
    TRY(match_columns(csv));
    return csv_next(&csv->reader, has_record);
}

status csv_next_file(struct csv *csv, const struct dataset_config *config, bool *has_record) {
    *has_record = false;
    while (!*has_record && csv->part + 1 < csv->part_count) {
        csv->part++;
        TRY(start_file(csv, config, has_record));
    }
    return OK;
}
