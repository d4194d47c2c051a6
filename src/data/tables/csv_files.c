/* The files of a path that is a pattern or a list: their rows follow one another, and the columns of each are found by
 * the names of the first file's. */
#include <string.h>

#include "data/file_pattern.h"
#include "data/tables/csv_source.h"

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

/* Finds the columns that are used, and those whose order is checked. */
static status match_columns(struct csv *csv) {
    csv->n_fields = csv->reader.count;
    for (size_t i = 0; i < csv->n_columns; i++) {
        size_t field = 0, found = 0;
        bool is_used = csv->roles[i].at != NOT_USED;
        if (!is_used && !csv->roles[i].may_be_date) continue;
        for (size_t k = 0; k < csv->n_fields; k++)
            if (strcmp(csv->roles[i].has_no_name ? csv_name(csv->reader.fields[k].text, k, csv->arena)
                                                 : csv->reader.fields[k].text,
                       csv->names[i]) == 0)
                field = k, found++;
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
