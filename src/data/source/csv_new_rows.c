/* New rows, for a trained model: those that it cannot read are counted by column and reason while the file is read, so
 * that one message names all of them. They are an error, or left out. What a missing value, an unknown category, a text
 * in a column of numbers or a label means was decided in training (preparation.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/columns/date.h"
#include "data/source/csv_source.h"

#define MAX_KINDS 8 /* in a message */

/* Whether the preparation, if there is one, is that of the columns; another one is an error when it is used. */
static bool is_of_columns(const struct csv *csv, const struct preparation *p) {
    bool is_same = !p || p->count == csv->base.input_size;
    for (size_t i = 0; p && is_same && i < p->count; i++)
        is_same = strcmp(p->items[i].name, csv->names[csv->input_columns[i]]) == 0;
    return is_same;
}

void csv_start_new(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    const struct preparation *p = config->preparation;
    csv->is_new = config->is_trained && !config->cells && is_of_columns(csv, p);
    csv->skips_bad = csv->is_new && config->skips_bad_rows;
    if (!csv->is_new) return;
    csv->prepared = arena_alloc(csv->arena, (csv->base.input_size + 1) * sizeof *csv->prepared);
    for (size_t i = 0; p && i < p->count; i++) csv->prepared[i] = &p->items[i];
    const struct csv *known = train ? train : csv;
    if (train ? known->has_given_classes : config->classes.count > 0) csv->known_classes = known;
}

bool csv_needs_value(const struct csv *csv, size_t column) {
    const struct prepared_column *prepared = csv->prepared[csv->roles[column].at];
    return !prepared || prepared->missing == MISSING_ERROR;
}

static bool is_boolean(const char *text) {
    double value;
    bool is_one = strcmp(text, "0") == 0 || strcmp(text, "1") == 0;
    for (size_t pair = 0; !is_one && pair < BOOLEAN_PAIRS; pair++) is_one = boolean_read(text, pair, &value);
    return is_one;
}

status csv_check_new(const struct csv *csv, size_t column, const char *text, bool is_missing, double value) {
    const struct prepared_column *prepared = csv->prepared[csv->roles[column].at];
    enum column_type type = prepared ? prepared->type : COLUMN_NUMBER;
    double seconds;
    if (is_missing && csv_needs_value(csv, column))
        return status_new(STATUS_DATA,
                          "%s:%s %zu: column '%s': missing value; the model was trained without a rule for missing "
                          "values of this column (dataset.columns)",
                          csv->path, csv->input->unit, csv->reader.record_line, csv_printable(csv, csv->names[column]));
    if (is_missing || text_pool_has(&csv->builders[csv->roles[column].at].pool, text)) return OK;
    if (type == COLUMN_NUMBER && !isfinite(value)) return csv_reject_value(csv, column, text, "a finite number", "");
    if (type == COLUMN_BOOLEAN && !is_boolean(text))
        return csv_reject_value(csv, column, text, "true, false, yes, no, 1 or 0", "");
    if (type == COLUMN_DATE && !date_parse(text, prepared->date_format, &seconds))
        return csv_reject_value(csv, column, text, "a date",
                                prepared->date_format ? " of the format of the training"
                                                      : " such as 2024-05-31 or 2024-05-31 14:30:00");
    if (type == COLUMN_CATEGORY && prepared->unknown == UNKNOWN_ERROR &&
        category_find(&prepared->categories, prepared->are_numbers, text) == SIZE_MAX)
        return csv_reject_value(csv, column, text, "a category of the training rows",
                                ", and the column has unknown: error");
    return OK;
}

status csv_leave_out(struct csv *csv, size_t column, enum bad_reason reason, const char *text, status failure) {
    struct bad_rows *bad = &csv->bad;
    if (!csv->is_new || status_code(failure) != STATUS_DATA) return failure;
    if (!bad->kinds) bad->kinds = arena_alloc(csv->arena, csv->n_columns * BAD_REASONS * sizeof *bad->kinds);
    struct bad_kind *kind = &bad->kinds[column * BAD_REASONS + reason];
    if (kind->count++ == 0) {
        kind->path = csv->path;
        kind->line = csv->reader.record_line;
        kind->text = csv_printable(csv, text);
    }
    if (bad->count++ == 0)
        bad->first = failure;
    else
        status_free(failure);
    csv->is_left_out = true;
    return OK;
}

status csv_add_left_out(struct csv *csv) {
    struct source *source = &csv->base;
    if (source->left_out_count == csv->left_out_capacity) {
        size_t capacity = 2 * csv->left_out_capacity + 64;
        size_t *items = realloc(source->left_out, capacity * sizeof *items);
        if (!items) return status_memory("%zu rows of %s that are left out", capacity, csv->path);
        source->left_out = items;
        csv->left_out_capacity = capacity;
    }
    source->left_out[source->left_out_count] = source->rows + source->left_out_count;
    source->left_out_count++;
    return OK;
}

/* Adds "30 with a value of column 'a' that cannot be read (the first in line 12: 'maybe')". */
static void add_kind(const struct csv *csv, size_t index, struct text *out) {
    const struct bad_kind *kind = &csv->bad.kinds[index];
    const char *name = csv_printable(csv, csv->names[index / BAD_REASONS]);
    enum bad_reason reason = (enum bad_reason)(index % BAD_REASONS);
    text_printf(out, "%zu ", kind->count);
    if (reason == BAD_FIELDS)
        text_add(out, "with another number of fields");
    else if (reason == BAD_MISSING)
        text_printf(out, "without a value of column '%s'", name);
    else
        text_printf(out, "with a wrong value of column '%s'", name);
    text_add(out, kind->count == 1 ? " (" : " (first: ");
    if (csv->part_count > 1) text_printf(out, "%s ", kind->path);
    text_printf(out, "%s %zu", csv->input->unit, kind->line);
    if (reason == BAD_VALUE) text_printf(out, " '%s'", kind->text);
    text_add(out, ")");
}

static void add_kinds(const struct csv *csv, struct text *out) {
    size_t kinds = 0;
    for (size_t i = 0; i < csv->n_columns * BAD_REASONS; i++) {
        if (csv->bad.kinds[i].count == 0 || ++kinds > MAX_KINDS) continue;
        text_add(out, kinds == 1 ? "" : ", ");
        add_kind(csv, i, out);
    }
    if (kinds > MAX_KINDS) text_printf(out, " and %zu more kinds", kinds - MAX_KINDS);
}

static status reject_rows(const struct csv *csv, size_t rows, const char *kinds) {
    const struct bad_rows *bad = &csv->bad;
    bool is_one = bad->count == 1;
    return status_new(STATUS_DATA, "%s; %zu row%s of %zu cannot be read%s%s. Correct %s%s", status_message(bad->first),
                      bad->count, text_plural(bad->count, "s"), rows, is_one ? "" : ": ", is_one ? "" : kinds,
                      is_one ? "it" : "them",
                      csv->orders ? "; rows of windows are adjacent, so that none can be left out"
                      : is_one    ? ", or leave it out with --skip-bad-rows"
                                  : ", or leave them out with --skip-bad-rows");
}

status csv_finish_new(struct csv *csv) {
    const struct bad_rows *bad = &csv->bad;
    size_t rows = csv->base.rows + csv->base.left_out_count;
    struct text kinds = {0};
    status s = OK;
    if (bad->count == 0) return OK;
    add_kinds(csv, &kinds);
    if (csv->skips_bad && csv->base.rows > 0)
        csv_add_note(csv, arena_printf(csv->arena, "%zu of %zu rows %s left out (--skip-bad-rows): %s", bad->count,
                                       rows, bad->count == 1 ? "is" : "are", text_string(&kinds)));
    else if (csv->skips_bad)
        s = status_new(STATUS_DATA, "%s; no row can be read: %s", status_message(bad->first), text_string(&kinds));
    else
        s = reject_rows(csv, rows, text_string(&kinds));
    text_free(&kinds);
    return s;
}
