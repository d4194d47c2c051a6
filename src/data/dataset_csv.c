/* CSV files: a header line with column names, then one row of numbers per line; the class column may be text. The file
 * is read once and stored as doubles until the rows are scaled. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/io.h"
#include "base/utf8.h"
#include "data/csv.h"
#include "data/internal.h"

#define NOT_USED SIZE_MAX

struct role {
    bool is_target;
    size_t at; /* index among the inputs or the targets; NOT_USED */
};

struct csv {
    struct source base;
    struct arena *arena;
    const char *path;
    char *text; /* the file; labels and fields point into it */
    struct csv_reader reader;

    size_t n_columns;
    const char **names;                     /* (n_columns) */
    struct role *roles;                     /* (n_columns) */
    size_t *input_columns, *target_columns; /* (input_size), (target_size): column of each value */

    double *values;       /* (rows, input_size + target_size) */
    size_t *lines;        /* (rows) */
    const char **labels;  /* (rows) text of the class column; NULL: it holds numbers */
    size_t capacity;      /* of the arrays above, in rows */
    const char **classes; /* (n_classes) sorted, unique labels */
    size_t n_classes;
    bool has_given_classes; /* [classes] are those of a checkpoint, in the arena */
    bool is_kind_known;     /* another file decides whether the class column has labels */
    bool has_no_header;     /* the first record is a row */
};

/* ---- columns ---- */

static bool is_utf8(const char *text) {
    size_t left = strlen(text);
    uint32_t code;
    for (size_t bytes; left > 0; text += bytes, left -= bytes)
        if ((bytes = utf8_decode(text, left, &code)) == 0) return false;
    return true;
}

/* A text of the file, escaped for messages. */
static const char *printable(const struct csv *csv, const char *text) {
    struct text out = {0};
    text_add_value(&out, text, TEXT_MAX_NAME);
    const char *copy = arena_copy(csv->arena, text_string(&out));
    text_free(&out);
    return copy;
}

static void list_columns(const struct csv *csv, struct text *out) {
    for (size_t i = 0; i < csv->n_columns && out->length < 200; i++) {
        text_add(out, i ? ", " : "");
        text_add_value(out, csv->names[i], TEXT_MAX_NAME);
    }
    if (out->length >= 200) text_add(out, ", ...");
}

static status read_header(struct csv *csv) {
    bool has_record;
    TRY(csv_next(&csv->reader, &has_record));
    if (!has_record) return status_new(STATUS_DATA, "%s: the file is empty", csv->path);
    size_t n = csv->n_columns = csv->reader.count;
    csv->names = arena_alloc(csv->arena, (n + 1) * sizeof *csv->names); /* ends with NULL */
    csv->roles = arena_alloc(csv->arena, n * sizeof *csv->roles);
    csv->input_columns = arena_alloc(csv->arena, n * sizeof *csv->input_columns);
    csv->target_columns = arena_alloc(csv->arena, n * sizeof *csv->target_columns);
    for (size_t i = 0; i < n; i++) {
        csv->names[i] = arena_copy(csv->arena, csv->reader.fields[i].text);
        csv->roles[i].at = NOT_USED;
        if (csv->names[i][0] == 0)
            return status_new(STATUS_DATA,
                              "%s:line 1: column %zu has no name (pandas writes such an index column without "
                              "index=False)",
                              csv->path, i + 1);
    }
    if (n == 1 && strpbrk(csv->names[0], ";\t"))
        return status_new(STATUS_DATA, "%s:line 1: the fields seem to be separated by '%s'; only commas are read",
                          csv->path, strchr(csv->names[0], ';') ? ";" : "tab");
    return OK;
}

/* Whether numeric names are plausible as column names: three or more that count up from 0 or 1, or five or more that
 * increase, such as wavelengths and years. */
static bool are_rising(const double *numbers, size_t count, size_t columns) {
    bool is_counted = columns >= 3 && (numbers[0] == 0 || numbers[0] == 1), is_rising = count >= 5;
    for (size_t i = 1; i < count; i++) {
        is_counted = is_counted && numbers[i] == numbers[0] + (double)i;
        is_rising = is_rising && numbers[i] > numbers[i - 1];
    }
    return is_counted || is_rising;
}

/* Which names a header needs, where a model knows them: in the order of the training if the number of fields fits. */
static void advise_header(const struct csv *csv, const struct dataset_config *config, struct text *out) {
    const struct column_list *list = &config->columns;
    size_t inputs = columns_count(list, COLUMN_INPUT), targets = columns_count(list, COLUMN_TARGET);
    struct text input_names = {0}, target_names = {0};
    if (list->count == 0) return;
    columns_add_names(list, COLUMN_INPUT, &input_names);
    columns_add_names(list, COLUMN_TARGET, &target_names);
    if (csv->n_columns == inputs + targets && targets > 0)
        text_printf(out, "; with the columns of the training in their order it would be: %s, %s",
                    text_string(&input_names), text_string(&target_names));
    else
        text_printf(out, "; the row has %zu field%s, and the model was trained with the inputs %s and the target %s%s",
                    csv->n_columns, text_plural(csv->n_columns, "s"), text_string(&input_names),
                    text_string(&target_names), config->without_targets ? ", which 'predict' does not need" : "");
    text_free(&input_names);
    text_free(&target_names);
}

/* Rejects a file without header, whose first row would be lost: when the config names no column, the first line must
 * not be numbers (with one label at most). */
static status check_header(const struct csv *csv, const struct dataset_config *config) {
    double *numbers = arena_alloc(csv->arena, (csv->n_columns + 1) * sizeof *numbers);
    size_t count = 0;
    for (size_t i = 0; i < csv->n_columns; i++) count += csv_number(csv->names[i], &numbers[count]);
    bool is_named = config->inputs.count || config->targets.count;
    if (is_named || count == 0 || count + 1 < csv->n_columns || are_rising(numbers, count, csv->n_columns)) return OK;
    struct text advice = {0};
    advise_header(csv, config, &advice);
    status s = status_new(STATUS_DATA,
                          "%s:line 1: expected a header with column names, but this is a row of numbers ('%s', "
                          "...); insert a line with names before it%s",
                          csv->path, printable(csv, csv->names[0]), text_string(&advice));
    text_free(&advice);
    return s;
}

/* Rows to predict need no header: when the first line has as many numbers as the model has inputs, and none is a column
 * name, it is a row, and the columns have the order of the training. */
static void name_columns(struct csv *csv, const struct dataset_config *config) {
    const struct column_list *list = &config->columns;
    double number;
    if (!config->without_targets || csv->n_columns != columns_count(list, COLUMN_INPUT)) return;
    for (size_t i = 0; i < csv->n_columns; i++)
        if (!csv_number(csv->names[i], &number) || columns_have_name(list, csv->names[i])) return;
    csv->has_no_header = true;
    struct text names = {0};
    columns_add_names(list, COLUMN_INPUT, &names);
    for (size_t i = 0; i < csv->n_columns; i++) csv->names[i] = list->items[i].name;
    csv->base.note = arena_printf(csv->arena, "%s: there is no header; the columns must have the order of training: %s",
                                  csv->path, text_string(&names));
    text_free(&names);
}

static int compare_names(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static status check_unique(const struct csv *csv) {
    const char **sorted = arena_alloc(csv->arena, csv->n_columns * sizeof *sorted);
    memcpy(sorted, csv->names, csv->n_columns * sizeof *sorted);
    qsort(sorted, csv->n_columns, sizeof *sorted, compare_names);
    for (size_t i = 1; i < csv->n_columns; i++)
        if (strcmp(sorted[i], sorted[i - 1]) == 0)
            return status_new(STATUS_DATA, "%s:line 1: duplicate column '%s'", csv->path, printable(csv, sorted[i]));
    return OK;
}

/* [known_from]: the source of the name, for the message; NULL: the config. */
static status find_column(const struct csv *csv, const char *name, const char *known_from, size_t *column) {
    for (*column = 0; *column < csv->n_columns; (*column)++)
        if (strcmp(csv->names[*column], name) == 0) return OK;
    const char *nearest = schema_nearest(name, csv->names);
    struct text columns = {0};
    list_columns(csv, &columns);
    status s =
        status_new(STATUS_DATA, "%s: there is no column '%s'%s%s%s%s%s; the columns are: %s", csv->path, name,
                   known_from ? ", which is in " : "", known_from ? known_from : "", nearest ? "; did you mean '" : "",
                   nearest ? printable(csv, nearest) : "", nearest ? "'" : "", text_string(&columns));
    text_free(&columns);
    return s;
}

static status use_column(struct csv *csv, size_t column, bool is_target) {
    struct role *role = &csv->roles[column];
    if (role->at != NOT_USED)
        return status_new(STATUS_DATA, "%s: column '%s' is used twice, as %s; see dataset.inputs and dataset.targets",
                          csv->path, printable(csv, csv->names[column]),
                          role->is_target != is_target ? "input and as target"
                          : is_target                  ? "target"
                                                       : "input");
    size_t *count = is_target ? &csv->base.target_size : &csv->base.input_size;
    (is_target ? csv->target_columns : csv->input_columns)[*count] = column;
    *role = (struct role){is_target, (*count)++};
    return OK;
}

static status use_columns(struct csv *csv, const struct string_list *names, bool is_target) {
    for (size_t i = 0; i < names->count; i++) {
        size_t column;
        TRY(find_column(csv, names->items[i], NULL, &column));
        TRY(use_column(csv, column, is_target));
    }
    return OK;
}

/* The columns of [csv] in the model's order. */
static struct column_list columns_of(const struct csv *csv, struct arena *arena) {
    size_t count = csv->base.input_size + csv->base.target_size;
    struct column_list list = {dataset_csv.name, arena_alloc(arena, (count + 1) * sizeof *list.items), count};
    for (size_t i = 0; i < csv->base.input_size; i++)
        list.items[i] = (struct named_column){csv->names[csv->input_columns[i]], COLUMN_INPUT};
    for (size_t i = 0; i < csv->base.target_size; i++)
        list.items[csv->base.input_size + i] = (struct named_column){csv->names[csv->target_columns[i]], COLUMN_TARGET};
    return list;
}

static bool is_in_order(const struct csv *csv) {
    for (size_t i = 1; i < csv->base.input_size; i++)
        if (csv->input_columns[i] < csv->input_columns[i - 1]) return false;
    for (size_t i = 1; i < csv->base.target_size; i++)
        if (csv->target_columns[i] < csv->target_columns[i - 1]) return false;
    return true;
}

/* Makes a note about columns that are not in [list], and about a different order. */
static void note_columns(struct csv *csv, const struct dataset_config *config, const struct column_list *list) {
    struct text note = {0}, ignored = {0};
    for (size_t i = 0; i < csv->n_columns && ignored.length < 200; i++)
        if (csv->roles[i].at == NOT_USED && !columns_have_name(list, csv->names[i]))
            text_printf(&ignored, "%s%s", ignored.length ? ", " : "", printable(csv, csv->names[i]));
    bool was_chosen = config->inputs.count > 0; /* then other columns and another order are expected */
    if (!was_chosen && !is_in_order(csv))
        text_add(&note, "the columns have another order than in training and are read by name");
    if (!was_chosen && ignored.length)
        text_printf(&note, "%scolumns that were not used in training are ignored: %s%s", note.length ? "; " : "",
                    text_string(&ignored), ignored.length >= 200 ? ", ..." : "");
    if (note.length) csv->base.note = arena_printf(csv->arena, "%s: %s", csv->path, text_string(&note));
    text_free(&note);
    text_free(&ignored);
}

/* Uses the columns of [list], found by name. */
static status use_named_columns(struct csv *csv, const struct dataset_config *config, const struct column_list *list,
                                const char *known_from) {
    for (size_t i = 0; i < list->count; i++) {
        const struct named_column *named = &list->items[i];
        size_t column;
        if (named->role == COLUMN_TARGET && config->without_targets) continue;
        TRY(find_column(csv, named->name, known_from, &column));
        TRY(use_column(csv, column, named->role == COLUMN_TARGET));
    }
    note_columns(csv, config, list);
    return OK;
}

static status use_same_columns(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    struct column_list list = columns_of(train, csv->arena);
    return use_named_columns(csv, config, &list, arena_printf(csv->arena, "'%s'", train->path));
}

static status use_trained_columns(struct csv *csv, const struct dataset_config *config) {
    TRY(columns_check_key(&config->columns, COLUMN_INPUT, &config->inputs));
    if (!config->without_targets) TRY(columns_check_key(&config->columns, COLUMN_TARGET, &config->targets));
    return use_named_columns(csv, config, &config->columns, "the data that the model was trained with");
}

/* Whether the columns of a model that was trained with a CSV file are known. */
static bool has_trained_columns(const struct dataset_config *config) {
    return config->columns.count && strcmp(config->columns.format, dataset_csv.name) == 0;
}

/* Whether [column] is a target by the config. */
static bool is_target(const struct csv *csv, const struct string_list *targets, size_t column) {
    if (targets->count == 0) return column + 1 == csv->n_columns;
    for (size_t i = 0; i < targets->count; i++)
        if (strcmp(csv->names[column], targets->items[i]) == 0) return true;
    return false;
}

static status choose_columns(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    if (train) return use_same_columns(csv, config, train);
    if (has_trained_columns(config)) return use_trained_columns(csv, config);
    if (!config->without_targets) {
        TRY(use_columns(csv, &config->targets, true));
        if (config->targets.count == 0) TRY(use_column(csv, csv->n_columns - 1, true));
    }
    TRY(use_columns(csv, &config->inputs, false));
    for (size_t i = 0; i < csv->n_columns && config->inputs.count == 0; i++)
        if (csv->roles[i].at == NOT_USED && !is_target(csv, &config->targets, i)) TRY(use_column(csv, i, false));
    if (csv->base.input_size > 0) return OK;
    return status_new(STATUS_DATA, "%s: there is no column for the inputs; the file has only: %s", csv->path,
                      printable(csv, csv->names[0]));
}

/* ---- rows ---- */

static status grow(struct csv *csv) {
    if (csv->base.rows < csv->capacity) return OK;
    size_t capacity = csv->capacity ? csv->capacity * 2 : 256;
    size_t row = (csv->base.input_size + csv->base.target_size) * sizeof(double);
    double *values = capacity > PTRDIFF_MAX / row ? NULL : realloc(csv->values, capacity * row);
    if (values) csv->values = values;
    size_t *lines = realloc(csv->lines, capacity * sizeof *lines);
    if (lines) csv->lines = lines;
    const char **labels = realloc(csv->labels, capacity * sizeof *labels);
    if (labels) csv->labels = labels;
    if (!values || !lines || !labels) return status_memory("more than %zu rows of %s", csv->base.rows, csv->path);
    csv->capacity = capacity;
    return OK;
}

static status reject_value(const struct csv *csv, size_t column, const char *text) {
    size_t line = csv->reader.record_line;
    if (*text == 0)
        return status_new(STATUS_DATA, "%s:line %zu: column '%s': missing value", csv->path, line,
                          printable(csv, csv->names[column]));
    return status_new(STATUS_DATA, "%s:line %zu: column '%s': '%s' is not a number", csv->path, line,
                      printable(csv, csv->names[column]), printable(csv, text));
}

static status add_row(struct csv *csv, bool *is_text) {
    TRY(grow(csv));
    size_t row = csv->base.rows, size = csv->base.input_size, total = size + csv->base.target_size;
    double *values = csv->values + row * total;
    csv->lines[row] = csv->reader.record_line;
    csv->labels[row] = NULL;
    for (size_t i = 0; i < csv->n_columns; i++) {
        const struct role *role = &csv->roles[i];
        const char *text = csv->reader.fields[i].text;
        if (role->at == NOT_USED) continue;
        double *value = &values[role->at + (role->is_target ? size : 0)];
        bool may_be_label = role->is_target && *is_text && *text;
        bool is_number = csv_number(text, value);
        if (role->is_target && row == 0 && !csv->is_kind_known) *is_text = may_be_label = may_be_label && !is_number;
        if (may_be_label)
            csv->labels[row] = text;
        else if (!is_number)
            return reject_value(csv, i, text);
    }
    csv->base.rows++;
    return OK;
}

/* [may_be_text]: the target is one class column. Its first value, or the training file, decides whether it has labels
 * or numbers. */
static status read_rows(struct csv *csv, bool may_be_text, const struct csv *train) {
    bool is_text = train ? train->n_classes > 0 : csv->has_given_classes || may_be_text;
    for (bool has_record = csv->has_no_header, is_first = has_record;; is_first = false) {
        if (!is_first) TRY(csv_next(&csv->reader, &has_record));
        if (!has_record) break;
        if (csv->reader.count != csv->n_columns)
            return status_new(STATUS_DATA, "%s:line %zu: there are %zu fields, but the header has %zu", csv->path,
                              csv->reader.record_line, csv->reader.count, csv->n_columns);
        TRY(add_row(csv, &is_text));
    }
    if (is_text && csv->base.rows > 0) return OK;
    free(csv->labels);
    csv->labels = NULL;
    return OK;
}

/* ---- labels ---- */

static status check_labels(const struct csv *csv) {
    for (size_t row = 0; row < csv->base.rows; row++)
        if (!is_utf8(csv->labels[row]))
            return status_new(STATUS_DATA, "%s:line %zu: column '%s': the label is not UTF-8 text", csv->path,
                              csv->lines[row], printable(csv, csv->names[csv->target_columns[0]]));
    return OK;
}

static void copy_classes(struct csv *csv, const struct string_list *classes) {
    csv->classes = arena_alloc(csv->arena, classes->count * sizeof *csv->classes);
    for (size_t i = 0; i < classes->count; i++) csv->classes[i] = arena_copy(csv->arena, classes->items[i]);
    csv->n_classes = classes->count;
    csv->has_given_classes = true;
}

static status collect_classes(struct csv *csv) {
    void *sorted;
    TRY(rows_alloc(csv->base.rows, sizeof *csv->classes, "labels", &sorted));
    csv->classes = sorted;
    memcpy(csv->classes, csv->labels, csv->base.rows * sizeof *csv->classes);
    qsort(csv->classes, csv->base.rows, sizeof *csv->classes, compare_names);
    for (size_t i = 0; i < csv->base.rows; i++)
        if (i == 0 || strcmp(csv->classes[i], csv->classes[csv->n_classes - 1]) != 0)
            csv->classes[csv->n_classes++] = csv->classes[i];
    return OK;
}

/* Replaces labels by their index in the sorted labels of the training file. */
static status number_labels(struct csv *csv, const struct csv *train) {
    if (!csv->labels) return OK;
    TRY(check_labels(csv));
    if (!train && !csv->has_given_classes) TRY(collect_classes(csv));
    const struct csv *known = train ? train : csv;
    size_t total = csv->base.input_size + 1;
    for (size_t row = 0; row < csv->base.rows; row++) {
        const char **found =
            bsearch(&csv->labels[row], known->classes, known->n_classes, sizeof *known->classes, compare_names);
        if (!found)
            return status_new(STATUS_DATA, "%s:line %zu: column '%s': class '%s' is not in %s%s%s", csv->path,
                              csv->lines[row], printable(csv, csv->names[csv->target_columns[0]]),
                              printable(csv, csv->labels[row]),
                              known->has_given_classes ? "the data that the model was trained with" : "'",
                              known->has_given_classes ? "" : known->path, known->has_given_classes ? "" : "'");
        csv->values[row * total + total - 1] = (double)(found - known->classes);
    }
    csv->base.classes = (int64_t)known->n_classes;
    return OK;
}

/* ---- the source ---- */

static status read_text(struct csv *csv) {
    size_t size;
    TRY(file_read(csv->path, &csv->text, &size));
    return csv_start(&csv->reader, csv->path, csv->text, size);
}

static status open_all(struct csv *csv, const struct dataset_config *config, bool wants_classes,
                       const struct csv *train) {
    TRY(read_text(csv));
    TRY(read_header(csv));
    if (!train && has_trained_columns(config)) name_columns(csv, config);
    TRY(check_unique(csv));
    if (!train && !csv->has_no_header) TRY(check_header(csv, config));
    TRY(choose_columns(csv, config, train));
    bool may_be_text = wants_classes && csv->base.target_size == 1;
    if (!train && may_be_text && config->classes.count) copy_classes(csv, &config->classes);
    csv->is_kind_known = train || csv->has_given_classes;
    TRY(read_rows(csv, may_be_text, train));
    TRY(number_labels(csv, train));
    csv->base.input_dims = 1;
    csv->base.input_shape[0] = (int64_t)csv->base.input_size;
    return OK;
}

static void close_csv(struct source *source) {
    struct csv *csv = (struct csv *)source;
    csv_free(&csv->reader);
    buffer_free(csv->text);
    free(csv->values);
    free(csv->lines);
    free(csv->labels);
    if (!csv->has_given_classes) buffer_free(csv->classes);
    arena_destroy(csv->arena);
    free(csv);
}

static status open_csv(const struct dataset_config *config, const char *path, bool wants_classes,
                       const struct source *train, struct source **out) {
    struct csv *csv = calloc(1, sizeof *csv);
    if (!csv) return status_memory("a dataset");
    csv->base.format = &dataset_csv;
    csv->base.is_small = true;
    csv->arena = arena_create();
    csv->path = arena_copy(csv->arena, path);
    bool is_csv = train && train->format == &dataset_csv;
    status s = open_all(csv, config, wants_classes, is_csv ? (const struct csv *)train : NULL);
    if (s == OK)
        *out = &csv->base;
    else
        close_csv(&csv->base);
    return s;
}

static status read_csv(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    const struct csv *csv = (struct csv *)source;
    size_t size = source->input_size, total = size + source->target_size;
    for (size_t i = 0; i < count; i++) {
        const double *values = csv->values + (first + i) * total;
        if (inputs) memcpy(inputs + i * size, values, size * sizeof *values);
        if (targets) memcpy(targets + i * (total - size), values + size, (total - size) * sizeof *values);
    }
    return OK;
}

static void describe_csv(const struct source *source, bool is_target, size_t row, size_t element, struct text *out) {
    const struct csv *csv = (const struct csv *)source;
    text_printf(out, "%s:line %zu: column '%s'", csv->path, csv->lines[row],
                printable(csv, csv->names[(is_target ? csv->target_columns : csv->input_columns)[element]]));
}

static struct string_list labels_of(const struct source *source) {
    const struct csv *csv = (const struct csv *)source;
    return (struct string_list){.items = csv->classes, .count = csv->n_classes};
}

/* The columns for the checkpoint, which stores UTF-8 only. */
static struct column_list list_of(const struct source *source, struct arena *arena) {
    struct column_list list = columns_of((const struct csv *)source, arena);
    for (size_t i = 0; i < list.count; i++)
        if (!is_utf8(list.items[i].name)) return (struct column_list){0};
    return list;
}

static const char *const extensions[] = {".csv", NULL};
const struct dataset_format dataset_csv = {.name = "csv",
                                           .extensions = extensions,
                                           .open = open_csv,
                                           .read = read_csv,
                                           .describe = describe_csv,
                                           .labels = labels_of,
                                           .columns = list_of,
                                           .close = close_csv};
