/* Tables whose inputs are features of a preparation. All raw values are checked before the first of them is encoded. */
#include <math.h>
#include <string.h>

#include "data/internal.h"

/* "<place>: <sentence>" */
static status reject(const struct table *table, size_t row, size_t column, const char *sentence) {
    struct text place = {0};
    table->source->format->describe(table->source, false, row, column, &place);
    status s = status_new(STATUS_DATA, "%s: %s", text_string(&place), sentence);
    text_free(&place);
    return s;
}

/* NaN is a missing value. */
static status check_finite(const struct table *table, const double *raw) {
    size_t size = table->source->input_size;
    for (size_t i = 0; i < table->rows * size; i++)
        if (isinf(raw[i]))
            return reject(table, i / size, i % size,
                          raw[i] > 0 ? "Inf is not a finite number; remove the row or replace the value"
                                     : "-Inf is not a finite number; remove the row or replace the value");
    return OK;
}

status table_read_raw(struct table *table, double **raw) {
    size_t size = table->source->input_size;
    void *memory;
    *raw = NULL;
    TRY(rows_alloc(table->rows, size * sizeof(double), "the columns of the dataset", &memory));
    *raw = memory;
    TRY(table->source->format->read(table->source, 0, table->rows, *raw, NULL));
    return check_finite(table, *raw);
}

/* Adds the other columns with missing values and without a rule. */
static void add_others(const struct table *table, size_t column, struct text *out) {
    size_t count = 0;
    for (size_t i = 0; i < table->source->input_size; i++) {
        const struct raw_column *raw = &table->source->columns[i];
        if (i == column || raw->missing == 0 || table->preparation->items[i].missing != MISSING_ERROR) continue;
        if (++count > 10) continue;
        text_add(out, count == 1 ? "; the same holds for '" : ", '");
        text_add_value(out, raw->name, TEXT_MAX_NAME);
        text_add(out, "'");
    }
    if (count > 10) text_printf(out, " and %zu more", count - 10);
}

static status reject_missing(const struct table *table, size_t row, size_t column, bool is_trained) {
    const struct raw_column *raw = &table->source->columns[column];
    struct text sentence = {0};
    if (is_trained) {
        text_add(&sentence, "missing value; the model was trained without a rule for missing values of this column "
                            "(dataset.columns)");
    } else {
        bool is_category = raw->type == COLUMN_CATEGORY;
        text_add(&sentence, "missing value; remove the row, or write dataset.columns: {");
        text_add_value(&sentence, raw->name, TEXT_MAX_NAME);
        text_printf(&sentence, ": {missing: %s}}, or %s", is_category ? "most_frequent" : "median",
                    is_category ? "constant or indicator" : "mean, most_frequent, constant or indicator");
        add_others(table, column, &sentence);
    }
    status s = reject(table, row, column, text_string(&sentence));
    text_free(&sentence);
    return s;
}

static status reject_unknown(const struct table *table, size_t row, size_t column, size_t text) {
    struct text sentence = {0};
    text_add(&sentence, "'");
    text_add_value(&sentence, table->source->columns[column].texts.items[text], TEXT_MAX_NAME);
    text_add(&sentence, "' is not a category of the training rows, and the column has unknown: error");
    status s = reject(table, row, column, text_string(&sentence));
    text_free(&sentence);
    return s;
}

static status check_value(const struct table *table, size_t row, size_t column, double value, bool is_trained) {
    const struct prepared_column *prepared = &table->preparation->items[column];
    if (isnan(value)) return prepared->missing == MISSING_ERROR ? reject_missing(table, row, column, is_trained) : OK;
    bool is_unknown = prepared->type == COLUMN_CATEGORY && table->maps[column][(size_t)value] < 0;
    if (is_unknown && prepared->unknown == UNKNOWN_ERROR) return reject_unknown(table, row, column, (size_t)value);
    return OK;
}

/* Adds "column 'a': 3 values ..." for a column with unknown categories; [path]: before the first. */
static void note_unknown(const struct table *table, size_t column, const double *raw, const char *path,
                         struct text *note) {
    size_t count = 0, first = 0, size = table->source->input_size;
    const int64_t *map = table->maps[column];
    for (size_t row = 0; map && row < table->rows; row++) {
        double value = raw[row * size + column];
        if (isnan(value) || map[(size_t)value] >= 0) continue;
        if (count++ == 0) first = (size_t)value;
    }
    if (count == 0 || note->length > 400) return;
    text_printf(note, "%s%s column '", note->length ? ";" : path, note->length ? "" : ":");
    text_add_value(note, table->source->columns[column].name, TEXT_MAX_NAME);
    text_printf(note, "': %zu value%s %s no category of the training rows, such as '", count, text_plural(count, "s"),
                count == 1 ? "is" : "are");
    text_add_value(note, table->source->columns[column].texts.items[first], TEXT_MAX_NAME);
    text_add(note, "'");
}

status table_prepare(struct table *table, const struct preparation *preparation, const double *raw, bool is_trained,
                     const char *path, struct arena *arena) {
    size_t size = table->source->input_size;
    struct text note = {0};
    table->preparation = preparation;
    table->maps = preparation_map(preparation, table->source->columns, arena);
    for (size_t row = 0; row < table->rows; row++)
        for (size_t column = 0; column < size; column++)
            TRY(check_value(table, row, column, raw[row * size + column], is_trained));
    for (size_t column = 0; column < size; column++) note_unknown(table, column, raw, path, &note);
    if (note.length) table->note = arena_copy(arena, text_string(&note));
    text_free(&note);
    table->input_size = preparation->features;
    return table_alloc_chunk(table);
}
