/* CSV files are read here, because a table with identifiers or missing values cannot be opened without rules; other
 * formats are opened with the defaults. */
#include "data/suggest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/io.h"
#include "data/csv.h"
#include "data/csv_dialect.h"
#include "data/csv_source.h"
#include "data/date.h"
#include "data/file_pattern.h"
#include "data/internal.h"
#include "data/text_pool.h"

#define MAX_CATEGORIES 100    /* of a column whose type is inferred, see raw_columns.c */
#define MAX_POOLED 1000       /* different texts that are counted */
#define MAX_NUMBER_CLASSES 20 /* different whole numbers that are taken for classes */

/* ---- columns of a CSV file ---- */

struct column_view {
    const char *name;
    struct text_pool pool; /* of its values but the missing ones */
    size_t values, missing, numbers, whole;
    double first, last, min, max;      /* numbers */
    bool has_dates;                    /* each value is a date */
    bool starts_with_text, is_counted; /* is_counted: each value is 1 more than the one before */
};

static status add_value(struct column_view *c, const char *text, char *decimal, size_t row) {
    double number;
    size_t index;
    bool is_number = csv_decimal(text, decimal, &number);
    if (!is_number && csv_means_missing(text)) {
        c->missing++;
        return OK;
    }
    if (c->values++ == 0) {
        c->starts_with_text = !is_number;
        c->is_counted = is_number && (number == 0 || number == 1);
        c->has_dates = true;
        c->min = c->max = number;
    } else if (is_number) {
        c->is_counted = c->is_counted && number == c->last + 1;
    }
    double seconds;
    c->has_dates = c->has_dates && date_parse(text, NULL, &seconds);
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

/* What `columns:` needs for an input. [may_count]: a column that counts the rows is used. */
static void choose_rule(const struct column_view *c, bool may_count, struct arena *arena,
                        struct column_suggestion *out) {
    bool has_texts = holds_texts(c), is_date = has_texts && c->has_dates && c->starts_with_text;
    const char *missing = has_texts ? "most_frequent" : "median";
    *out = (struct column_suggestion){
        .name = c->name, .missing = c->missing, .texts = has_texts && !is_date ? c->pool.count : 0};
    if (c->values == 0) {
        out->rule = "ignore";
        out->reason = "it is empty";
    } else if (!has_texts && c->is_counted && c->values > 2 && !may_count) {
        out->rule = "ignore";
        out->reason = "it counts the rows";
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

/* ---- the target of a CSV file ---- */

static size_t default_target(const struct column_view *columns, size_t count) {
    static const char *const usual[] = {"target", "targets", "label",    "labels", "class",
                                        "y",      "outcome", "survived", "churn"};
    for (size_t i = count; i-- > 0;)
        for (size_t k = 0; k < sizeof usual / sizeof *usual; k++)
            if (strcasecmp(columns[i].name, usual[k]) == 0) return i;
    return count - 1;
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

/* ---- CSV files ---- */

static status read_columns(struct csv_reader *reader, struct column_view **columns, size_t *count, size_t *rows,
                           struct arena *arena) {
    bool has_record;
    double number;
    size_t numbers = 0;
    char decimal = csv_usual_decimal(reader);
    TRY(csv_next(reader, &has_record));
    if (!has_record) return status_new(STATUS_DATA, "%s: the file is empty", reader->path);
    *count = reader->count;
    *columns = arena_alloc(arena, *count * sizeof **columns);
    for (size_t i = 0; i < *count; i++) {
        (*columns)[i].name = arena_copy(arena, reader->fields[i].text);
        numbers += csv_number(reader->fields[i].text, &number);
    }
    if (numbers > 1 && numbers + 1 >= *count)
        return status_new(STATUS_DATA,
                          "%s:line 1: expected a header with column names, but this is a row of numbers; insert a "
                          "line with names before it",
                          reader->path);
    if (*count < 2)
        return status_new(STATUS_DATA, "%s:line 1: expected two columns or more, separated by , ; | or tabs",
                          reader->path);
    for (*rows = 0;; ++*rows) {
        TRY(csv_next(reader, &has_record));
        if (!has_record) return OK;
        if (reader->count != *count)
            return status_new(STATUS_DATA, "%s:line %zu: there are %zu fields, but the header has %zu", reader->path,
                              reader->record_line, reader->count, *count);
        for (size_t i = 0; i < *count; i++) TRY(add_value(&(*columns)[i], reader->fields[i].text, &decimal, *rows));
    }
}

/* Adds the inputs: all columns but [target]. */
static void add_inputs(const struct column_view *columns, size_t count, size_t target, bool may_count,
                       struct arena *arena, struct suggestion *out) {
    out->column_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct column_suggestion *column = &out->columns[out->column_count];
        if (i == target) continue;
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

static status suggest_csv(const char *path, const char *target, struct arena *arena, struct suggestion *out) {
    char *text = NULL;
    size_t count = 0;
    uint64_t bytes;
    struct csv_reader reader = {0};
    struct column_view *columns = NULL;
    const char *note;
    TRY(file_check(path, &bytes));
    status s = csv_open_file(path, NULL, &reader, &text, &note);
    if (!s) s = read_columns(&reader, &columns, &count, &out->rows, arena);
    if (!s && out->rows == 0) s = status_new(STATUS_DATA, "%s: there are no rows", path);
    if (!s) s = view_columns(path, target, columns, count, arena, out);
    for (size_t i = 0; i < count; i++) text_pool_free(&columns[i].pool);
    csv_free(&reader);
    buffer_free(text);
    out->input_dims = 1;
    out->input_shape[0] = (int64_t)out->features;
    return s;
}

/* ---- other formats ---- */

static status count_smallest(struct dataset *dataset, struct suggestion *out) {
    const struct dataset_info *info = dataset_info(dataset);
    int64_t *classes = NULL;
    size_t *counts = NULL;
    status s = rows_alloc(info->train_rows, sizeof *classes, "the classes", (void **)&classes);
    if (!s) s = rows_alloc((size_t)info->classes, sizeof *counts, "the classes", (void **)&counts);
    if (!s) s = dataset_train_classes(dataset, classes);
    for (size_t i = 0; !s && i < info->train_rows; i++) counts[classes[i]]++;
    out->smallest_class = info->train_rows;
    for (int64_t c = 0; !s && c < info->classes; c++)
        if (counts[c] > 0 && counts[c] < out->smallest_class) out->smallest_class = counts[c];
    buffer_free(classes);
    buffer_free(counts);
    return s;
}

static status describe(struct dataset *dataset, struct arena *arena, struct suggestion *out) {
    const struct dataset_info *info = dataset_info(dataset);
    struct string_list labels = dataset_labels(dataset);
    out->rows = info->train_rows;
    out->input_kind = info->input_kind;
    out->input_dims = info->input_dims;
    memcpy(out->input_shape, info->input_shape, sizeof out->input_shape);
    out->features = info->input_size;
    out->target_kind = info->target_kind;
    out->classes = info->classes;
    out->target_size = info->target_size;
    out->names = (struct string_list){arena_alloc(arena, (labels.count + 1) * sizeof *labels.items), labels.count};
    for (size_t i = 0; i < labels.count; i++) out->names.items[i] = arena_copy(arena, labels.items[i]);
    if (info->target_kind == TARGET_CLASS && info->input_kind == INPUT_VALUES) return count_smallest(dataset, out);
    return OK;
}

/* Many classes with few rows each are probably whole numbers of a regression. */
static bool are_values(const struct suggestion *s) {
    return s->input_kind == INPUT_VALUES && s->names.count == 0 && s->classes > MAX_NUMBER_CLASSES &&
           (size_t)s->classes * 10 > s->rows;
}

static status open_as(const struct dataset_config *config, bool wants_classes, struct arena *arena,
                      struct suggestion *out) {
    struct dataset *dataset;
    TRY(dataset_open(config, wants_classes, true, &dataset));
    status s = describe(dataset, arena, out);
    dataset_close(dataset);
    return s;
}

static status suggest_rows(const char *path, const char *target, struct arena *arena, struct suggestion *out) {
    struct dataset_config config;
    struct problems problems = {0};
    int64_t image_size[] = {SUGGESTED_IMAGE_SIZE, SUGGESTED_IMAGE_SIZE};
    schema_bind(&dataset_schema, NULL, "dataset", &dataset_schema, &config, arena, &problems); /* the defaults */
    problems_free(&problems);
    config.path = path;
    if (target) config.targets = (struct string_list){&target, 1};
    if (out->is_image_folder) config.image.size = (struct int_list){image_size, 2};
    status failure = open_as(&config, true, arena, out);
    if (!failure && !are_values(out)) return OK;
    status s = open_as(&config, false, arena, out);
    if (s && failure) {
        status_free(s);
        return failure;
    }
    status_free(failure);
    return s;
}

status suggest(const char *path, const char *target, struct arena *arena, struct suggestion *out) {
    static const struct dataset_config automatic;
    struct io_info info;
    *out = (struct suggestion){0};
    TRY(io_stat(path, &info));
    const struct dataset_format *format = dataset_format_of(&automatic, path);
    out->is_image_folder = info.is_folder;
    if (info.is_folder) format = &dataset_images;
    if (!format) {
        uint64_t bytes;
        struct text names = {0};
        TRY(file_check(path, &bytes));
        dataset_format_names(&names);
        status s =
            status_new(STATUS_USAGE, "'%s': unknown file extension; the formats are: %s", path, text_string(&names));
        text_free(&names);
        return s;
    }
    out->format = format->name;
    if (format != &dataset_csv) return suggest_rows(path, target, arena, out);
    struct string_list files;
    TRY(file_pattern_expand(path, arena, &files)); /* the first file is typical */
    TRY(suggest_csv(files.items[0], target, arena, out));
    out->rows *= files.count;
    return OK;
}
