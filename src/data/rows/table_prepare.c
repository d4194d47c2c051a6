/* Tables whose inputs are features of a preparation. All raw values are checked before the first of them is encoded. */
#include <math.h>
#include <string.h>

#include "data/rows/table.h"

/* "<place>: <sentence>" */
static status reject(const struct table *table, size_t row, size_t column, const char *sentence) {
    struct text place = {0};
    table->source->format->describe(table->source, false, row, column, &place);
    status s = status_new(STATUS_DATA, "%s: %s", text_string(&place), sentence);
    text_free(&place);
    return s;
}

/* Rows first .. first + count - 1; NaN is a missing value. */
static status check_finite(const struct table *table, const double *raw, size_t first, size_t count) {
    size_t size = table->source->input_size;
    for (size_t i = 0; i < count * size; i++)
        if (isinf(raw[i]))
            return reject(table, first + i / size, i % size,
                          raw[i] > 0 ? "Inf is not a finite number; remove the row or replace the value"
                                     : "-Inf is not a finite number; remove the row or replace the value");
    return OK;
}

/* The rows of a read buffer. */
static size_t rows_at(const struct table *table, size_t row) {
    size_t count = ((size_t)1 << 17) / (table->source->input_size + 1) + 1;
    return table->rows - row < count ? table->rows - row : count;
}

status table_read_raw(struct table *table, double **raw) {
    size_t size = table->source->input_size;
    bool is_kept = table->source->is_small;
    void *memory;
    *raw = NULL;
    TRY(rows_alloc(is_kept ? table->rows : rows_at(table, 0), size * sizeof(double), "the columns of the dataset",
                   &memory));
    status s = OK;
    for (size_t row = 0, count; !s && row < table->rows; row += count) {
        count = rows_at(table, row);
        double *rows = (double *)memory + (is_kept ? row * size : 0);
        s = table->source->format->read(table->source, row, count, rows, NULL);
        if (!s) s = check_finite(table, rows, row, count);
    }
    if (is_kept)
        *raw = memory;
    else
        buffer_free(memory);
    return s;
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
        bool is_category = raw->type == COLUMN_CATEGORY, is_text = raw->type == COLUMN_TEXT;
        text_add(&sentence, "missing value; remove the row, or write dataset.columns: {");
        text_add_value(&sentence, raw->name, TEXT_MAX_NAME);
        text_printf(&sentence, ": {missing: %s}}%s",
                    is_text       ? "constant, fill: TEXT"
                    : is_category ? "most_frequent"
                                  : "median",
                    is_text       ? ""
                    : is_category ? ", or constant or indicator"
                                  : ", or mean, most_frequent, constant or indicator");
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

/* The unknown categories of a column. */
struct unknown {
    size_t count, first; /* first: the text of the first one */
};

static void count_unknown(const struct table *table, const double *row, struct unknown *unknown) {
    for (size_t column = 0; column < table->source->input_size; column++) {
        const int32_t *map = table->maps[column];
        if (table->preparation->items[column].type != COLUMN_CATEGORY || isnan(row[column]) ||
            map[(size_t)row[column]] >= 0)
            continue;
        if (unknown[column].count++ == 0) unknown[column].first = (size_t)row[column];
    }
}

/* Adds "column 'a': 3 values ..." for a column with unknown categories; [path]: before the first. */
static void note_unknown(const struct table *table, size_t column, const struct unknown *unknown, const char *path,
                         struct text *note) {
    size_t count = unknown->count;
    if (count == 0 || note->length > 400) return;
    text_printf(note, "%s%s column '", note->length ? ";" : path, note->length ? "" : ":");
    text_add_value(note, table->source->columns[column].name, TEXT_MAX_NAME);
    text_printf(note, "': %zu value%s %s no category of the training rows, such as '", count, text_plural(count, "s"),
                count == 1 ? "is" : "are");
    text_add_value(note, table->source->columns[column].texts.items[unknown->first], TEXT_MAX_NAME);
    text_add(note, "'");
}

static status check_rows(struct table *table, bool is_trained, struct unknown *unknown) {
    size_t size = table->source->input_size;
    for (size_t first = 0, count; first < table->rows; first += count) {
        count = table->rows - first < table->chunk_rows ? table->rows - first : table->chunk_rows;
        TRY(table->source->format->read(table->source, first, count, table->raw, NULL));
        for (size_t i = 0; i < count; i++) {
            const double *row = table->raw + i * size;
            for (size_t column = 0; column < size; column++)
                TRY(check_value(table, first + i, column, row[column], is_trained));
            count_unknown(table, row, unknown);
        }
    }
    return OK;
}

status table_prepare(struct table *table, const struct preparation *preparation, const struct tokenizer *tokenizer,
                     bool is_trained, const char *path, struct arena *arena) {
    size_t size = table->source->input_size;
    struct unknown *unknown = arena_alloc(arena, (size + 1) * sizeof *unknown);
    struct text note = {0};
    table->preparation = preparation;
    TRY(status_prefix(preparation_map(preparation, table->source->columns, tokenizer, arena, &table->maps), "%s",
                      path));
    table->input_size = preparation->features;
    TRY(table_alloc_chunk(table));
    TRY(check_rows(table, is_trained, unknown));
    for (size_t column = 0; column < size; column++) note_unknown(table, column, &unknown[column], path, &note);
    if (note.length) table->note = arena_copy(arena, text_string(&note));
    text_free(&note);
    return OK;
}
