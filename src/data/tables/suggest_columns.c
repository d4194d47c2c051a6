/* Rows are read once; of each column its kinds of values and up to MAX_POOLED different texts are counted. */
#include "data/tables/suggest_columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/columns/date.h"
#include "data/columns/text_pool.h"
#include "data/internal.h"
#include "data/tables/csv_source.h"

#define MAX_CATEGORIES 100 /* of a column whose type is inferred, see raw_columns.c */
#define MAX_POOLED 1000    /* different texts that are counted */
#define MAX_COMPARED 10000 /* names; a run finds duplicates among more */
#define MAX_NUMBER_CLASSES SUGGESTED_NUMBER_CLASSES

const char suggest_blob[] = "(blob)";

/* ---- columns ---- */

/* Formats of dates that are not ISO's. */
static const char *const date_formats[] = {"%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%m-%d-%Y"};
#define DATE_FORMATS (sizeof date_formats / sizeof *date_formats)

struct column_view {
    const char *name;
    bool has_no_name;      /* in the file; then it is no input */
    struct text_pool pool; /* of its values but the missing ones */
    size_t values, missing, blobs, numbers, whole;
    unsigned formats;                  /* bit i: each value is a date of date_formats[i] */
    double first, last, min, max;      /* numbers */
    bool has_dates;                    /* each value is a date */
    bool starts_with_text, is_counted; /* is_counted: each value is 1 more than the one before */
};

static status add_value(struct column_view *c, const char *text, char *decimal, size_t row) {
    double number;
    size_t index;
    if (text == suggest_blob) {
        c->blobs++;
        return OK;
    }
    bool is_number = csv_decimal(text, decimal, &number);
    if (!is_number && csv_means_missing(text)) {
        c->missing++;
        return OK;
    }
    if (c->values++ == 0) {
        c->starts_with_text = !is_number;
        c->is_counted = is_number && (number == 0 || number == 1);
        c->has_dates = true;
        c->formats = (1u << DATE_FORMATS) - 1;
        c->min = c->max = number;
    } else if (is_number) {
        c->is_counted = c->is_counted && number == c->last + 1;
    }
    double seconds;
    c->has_dates = c->has_dates && date_parse(text, NULL, &seconds);
    for (size_t i = 0; i < DATE_FORMATS; i++)
        if (c->formats >> i & 1 && !date_parse(text, date_formats[i], &seconds)) c->formats &= ~(1u << i);
    if (c->pool.count <= MAX_POOLED) TRY(text_pool_add(&c->pool, text, row, &index));
    if (!is_number) return OK;
    c->numbers++;
    c->whole += number == floor(number);
    c->min = c->numbers == 1 ? number : fmin(c->min, number);
    c->max = c->numbers == 1 ? number : fmax(c->max, number);
    c->last = number;
    return OK;
}

static bool holds_texts(const struct column_view *c) { return c->numbers < c->values; }

static bool are_categories(const struct column_view *c) {
    return c->pool.count <= MAX_CATEGORIES && c->pool.count * 2 <= c->values;
}

/* The format of dates; where days and months could be either, a person must say. */
static void choose_format(const struct column_view *c, struct arena *arena, struct column_suggestion *out) {
    size_t first = 0, last = DATE_FORMATS - 1;
    while (!(c->formats >> first & 1)) first++;
    while (!(c->formats >> last & 1)) last--;
    out->texts = 0;
    if (first == last) {
        out->rule = arena_printf(arena, "{type: date, format: \"%s\"%s}", date_formats[first],
                                 c->missing ? ", missing: mean" : "");
        out->reason = c->missing ? arena_printf(arena, "dates; %zu missing", c->missing) : "dates";
        return;
    }
    out->rule = "ignore";
    out->reason = arena_printf(arena, "dates, either {type: date, format: \"%s\"} or {type: date, format: \"%s\"}",
                               date_formats[first], date_formats[last]);
}

/* What `columns:` needs for an input. [may_count]: a column that counts the rows is used. */
static void choose_rule(const struct column_view *c, bool may_count, struct arena *arena,
                        struct column_suggestion *out) {
    bool has_texts = holds_texts(c), is_date = has_texts && c->has_dates && c->starts_with_text;
    const char *missing = has_texts ? "most_frequent" : "median";
    *out = (struct column_suggestion){
        .name = c->name, .missing = c->missing, .texts = has_texts && !is_date ? c->pool.count : 0};
    if (c->blobs > 0) {
        out->rule = "ignore";
        out->reason = "it has blobs";
    } else if (c->values == 0) {
        out->rule = "ignore";
        out->reason = "it is empty";
    } else if (!has_texts && c->is_counted && c->values > 2 && !may_count) {
        out->rule = "ignore";
        out->reason = "it counts the rows";
    } else if (has_texts && !is_date && c->formats) {
        choose_format(c, arena, out);
    } else if (has_texts && !is_date && !are_categories(c)) {
        out->rule = "ignore";
        out->reason =
            arena_printf(arena, "%s%zu different texts in %zu rows", c->pool.count > MAX_POOLED ? "more than " : "",
                         c->pool.count > MAX_POOLED ? MAX_POOLED : c->pool.count, c->values);
    } else if (has_texts && !c->starts_with_text) {
        out->rule = c->missing ? "{type: category, missing: most_frequent}" : "category";
        out->reason = arena_printf(arena, "%zu texts among numbers", c->values - c->numbers);
    } else if (c->missing) {
        out->rule = arena_printf(arena, "{missing: %s}", missing);
        out->reason = arena_printf(arena, "%zu value%s missing", c->missing, c->missing == 1 ? " is" : "s are");
    }
}

/* ---- the target ---- */

static size_t default_target(const struct column_view *columns, size_t count) {
    static const char *const usual[] = {"target", "targets", "label",    "labels", "class",
                                        "y",      "outcome", "survived", "churn"};
    size_t last = count - 1;
    while (last > 0 && columns[last].has_no_name) last--;
    for (size_t i = count; i-- > 0;)
        for (size_t k = 0; k < sizeof usual / sizeof *usual; k++)
            if (strcasecmp(columns[i].name, usual[k]) == 0) return i;
    return last;
}

static status find_target(const char *path, const char *target, const struct column_view *columns, size_t count,
                          size_t *out) {
    const char **names = calloc(count + 1, sizeof *names);
    if (!names) return status_memory("the names of the columns");
    for (size_t i = 0; i < count; i++) names[i] = columns[i].name;
    *out = target ? 0 : default_target(columns, count);
    while (target && *out < count && strcmp(names[*out], target) != 0) ++*out;
    const char *nearest = *out == count ? schema_nearest(target, names) : NULL;
    free(names);
    if (*out < count) return OK;
    return status_new(STATUS_USAGE, "--target: %s has no column '%s'%s%s%s", path, target,
                      nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'" : "");
}

static void count_classes(const struct column_view *c, bool are_labels, struct arena *arena, struct suggestion *out) {
    out->target_kind = TARGET_CLASS;
    out->classes = are_labels ? (int64_t)c->pool.count : (int64_t)c->max + 1;
    out->smallest_class = c->values;
    out->names.items = arena_alloc(arena, (c->pool.count + 1) * sizeof *out->names.items);
    for (size_t i = 0; i < c->pool.count; i++) {
        if (c->pool.items[i].count < out->smallest_class) out->smallest_class = c->pool.items[i].count;
        if (are_labels) out->names.items[out->names.count++] = arena_copy(arena, c->pool.items[i].text);
    }
    if (are_labels) out->names.count = category_sort(out->names.items, out->names.count, false);
}

static status choose_target(const char *path, const struct column_view *c, struct arena *arena,
                            struct suggestion *out) {
    struct text name = {0};
    text_add_value(&name, c->name, TEXT_MAX_NAME);
    const char *shown = arena_copy(arena, text_string(&name));
    text_free(&name);
    out->target = c->name;
    if (c->blobs)
        return status_new(STATUS_USAGE, "%s: the target '%s' has blobs; name another column by --target COLUMN", path,
                          shown);
    if (c->missing)
        return status_new(STATUS_USAGE,
                          "%s: the target '%s' has no value in %zu row%s; name another column by --target COLUMN, or "
                          "remove these rows",
                          path, shown, c->missing, text_plural(c->missing, "s"));
    if (holds_texts(c) && !are_categories(c))
        return status_new(
            STATUS_USAGE,
            "%s: the target '%s' has too many different texts (%zu or more in %zu rows) for classes; name another "
            "column by --target COLUMN",
            path, shown, c->pool.count, c->values);
    if (holds_texts(c) && !c->starts_with_text)
        return status_new(STATUS_USAGE,
                          "%s: the target '%s' has numbers and texts, such as '%s'; name another column by --target "
                          "COLUMN, or write texts only",
                          path, shown, c->pool.items[0].text);
    bool are_numbers = !holds_texts(c) && c->whole == c->values && c->min >= 0 && c->max < 2 * MAX_NUMBER_CLASSES &&
                       c->pool.count > 1 && c->pool.count <= MAX_NUMBER_CLASSES && c->pool.count * 3 <= c->values;
    out->target_size = 1;
    out->target_kind = TARGET_VALUES;
    if (holds_texts(c) || are_numbers) count_classes(c, holds_texts(c), arena, out);
    return OK;
}

/* ---- rows ---- */

/* The names of the columns, from the first record. */
static status read_names(struct record_reader *reader, struct column_view **columns, size_t *count,
                         struct arena *arena) {
    const struct csv_reader *record;
    double number;
    size_t numbers = 0;
    TRY(reader->next(reader->state, &record));
    if (!record) return status_new(STATUS_DATA, "%s: the file is empty", reader->path);
    *count = record->count;
    *columns = arena_alloc(arena, *count * sizeof **columns);
    for (size_t i = 0; i < *count; i++) {
        (*columns)[i].pool.arena = arena; /* the texts of SQLite are valid until the next row */
        (*columns)[i].has_no_name = record->fields[i].text[0] == 0;
        (*columns)[i].name = csv_name(record->fields[i].text, i, arena);
        numbers += csv_number(record->fields[i].text, &number);
        for (size_t k = 0; k < i && *count <= MAX_COMPARED; k++)
            if (strcmp((*columns)[k].name, (*columns)[i].name) == 0)
                return status_new(STATUS_DATA, "%s:%s: duplicate column '%s'", reader->path, reader->header,
                                  (*columns)[i].name);
    }
    if (numbers > 1 && numbers + 1 >= *count)
        return status_new(STATUS_DATA,
                          "%s:%s: expected a header with column names, but this is a row of numbers; insert a "
                          "line with names before it",
                          reader->path, reader->header);
    if (*count < 2)
        return status_new(STATUS_DATA, "%s:%s: expected two columns or more%s", reader->path, reader->header,
                          reader->advice);
    return OK;
}

static status read_rows(struct record_reader *reader, struct column_view *columns, size_t count, size_t *rows) {
    for (*rows = 0;; ++*rows) {
        const struct csv_reader *record;
        TRY(reader->next(reader->state, &record));
        if (!record && *rows == 0) return status_new(STATUS_DATA, "%s: there are no rows", reader->path);
        if (!record) return OK;
        if (record->count != count)
            return status_new(STATUS_DATA, "%s:line %zu: there are %zu fields, but the header has %zu", reader->path,
                              record->record_line, record->count, count);
        for (size_t i = 0; i < count; i++) TRY(add_value(&columns[i], record->fields[i].text, &reader->decimal, *rows));
    }
}

/* Adds the inputs: all columns but [target]. */
static void add_inputs(const struct column_view *columns, size_t count, size_t target, bool may_count,
                       struct arena *arena, struct suggestion *out) {
    out->column_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct column_suggestion *column = &out->columns[out->column_count];
        if (i == target || columns[i].has_no_name) continue;
        choose_rule(&columns[i], may_count, arena, column);
        bool is_ignored = column->rule && strcmp(column->rule, "ignore") == 0;
        if (!is_ignored) out->features += column->texts ? column->texts : 1;
        out->column_count++;
    }
}

static status view_columns(const char *path, const char *target, struct column_view *columns, size_t count,
                           struct arena *arena, struct suggestion *out) {
    size_t at = 0;
    TRY(find_target(path, target, columns, count, &at));
    TRY(choose_target(path, &columns[at], arena, out));
    out->columns = arena_alloc(arena, count * sizeof *out->columns);
    add_inputs(columns, count, at, false, arena, out);
    if (out->features == 0) add_inputs(columns, count, at, true, arena, out);
    if (out->features > 0) return OK;
    return status_new(
        STATUS_USAGE,
        "%s: no column is left for the inputs, because each is empty or has too many different texts; see "
        "ddptrain inspect %s",
        path, path);
}

status suggest_columns(struct record_reader *reader, const char *target, struct arena *arena, struct suggestion *out) {
    struct column_view *columns = NULL;
    size_t count = 0;
    status s = read_names(reader, &columns, &count, arena);
    if (!s) s = read_rows(reader, columns, count, &out->rows);
    if (!s) s = view_columns(reader->path, target, columns, count, arena, out);
    for (size_t i = 0; columns && i < count; i++) text_pool_free(&columns[i].pool);
    out->input_dims = 1;
    out->input_shape[0] = (int64_t)out->features;
    return s;
}
