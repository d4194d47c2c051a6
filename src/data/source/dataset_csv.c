/* CSV files: a header line with column names, then one row of values per line; the class column may be text. The file
 * is read once and stored as doubles until the rows are scaled; texts of a column become numbers when all are known. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "data/source/csv_source.h"
#include "data/source/row_filter.h"
#include "data/source/suggest_numbers.h"

/* ---- rows ---- */

static size_t values_of(const struct csv *csv) { return csv->base.input_size + csv->base.target_size; }

/* The line number is the last value of a row. */
size_t csv_line_of(const struct csv *csv, size_t row) {
    const double *values;
    size_t got;
    status s = row_store_read((struct row_store *)&csv->store, row, 1, &values, &got);
    bool is_lost = s != OK;
    status_free(s);
    return is_lost ? 0 : (size_t)values[csv->store.width - 1];
}

status csv_reject_value(const struct csv *csv, size_t column, const char *text, const char *what, const char *advice) {
    size_t line = csv->reader.record_line;
    if (*text == 0)
        return status_new(STATUS_DATA, "%s:%s %zu: column '%s': missing value%s", csv->path, csv->input->unit, line,
                          csv_printable(csv, csv->names[column]),
                          csv->roles[column].is_target && !csv->orders
                              ? "; write dataset.drop_missing_targets: true to leave out such rows"
                              : "");
    return status_new(STATUS_DATA, "%s:%s %zu: column '%s': '%s' is not %s%s", csv->path, csv->input->unit, line,
                      csv_printable(csv, csv->names[column]), csv_printable(csv, text), what, advice);
}

bool csv_is_missing(const struct csv *csv, const char *text) {
    if (!csv->starts_missing[(unsigned char)*text]) return false;
    for (size_t i = 0; csv->missing[i]; i++)
        if (strcmp(csv->missing[i], text) == 0) return true;
    return false;
}

bool csv_read_number(struct csv *csv, const char *text, double *value) {
    char stripped[CSV_UNGROUPED], ungrouped[CSV_UNGROUPED];
    const char *bare = csv_ungroup(csv_strip(text, csv->strip, stripped), csv->thousands, ungrouped);
    bool is_number = csv_decimal(bare, &csv->decimal, value);
    if (csv->decimal == CSV_UNCLEAR && !csv->unclear) {
        csv->unclear = arena_copy(csv->arena, text);
        csv->unclear_line = csv->reader.record_line;
    }
    return is_number;
}

/* What to write for numbers that are written in other ways; "": it is none. */
static const char *advise_style(const struct csv *csv, const char *text) {
    unsigned styles = csv->records ? 0 : suggest_number_style(text);
    if (!csv->thousands && styles == NUMBER_SEPARATORS && strchr(text, ','))
        return "; if commas separate thousands, write dataset.csv: {thousands: \",\"}";
    bool is_marked = !csv->strip && styles & (NUMBER_PERCENT | NUMBER_CURRENCY | NUMBER_PARENTHESES);
    unsigned unreadable = csv->decimal == '.' ? NUMBER_UNIT | NUMBER_COMMA : NUMBER_UNIT;
    return is_marked && !(styles & unreadable)
               ? "; to read it as a number, name the other characters, such as dataset.csv: {strip: \"%$\"}"
               : "";
}

static status add_text(struct csv *csv, size_t column, struct column_builder *builder, const char *text,
                       double *value) {
    bool fits;
    TRY(column_builder_add_text(builder, text, csv->base.rows, value, &fits));
    if (fits) return OK;
    struct text advice = {0};
    text_add(&advice, advise_style(csv, text));
    column_builder_explain_text(builder, &advice);
    status s = csv_reject_value(csv, column, text, "a number", text_string(&advice));
    text_free(&advice);
    return s;
}

status csv_add_input(struct csv *csv, size_t column, const char *text, double *value) {
    struct column_builder *builder = &csv->builders[csv->roles[column].at];
    bool is_number = !column_builder_wants_text(builder) && csv_read_number(csv, text, value);
    bool is_missing = (!is_number || csv->has_missing_number) && csv_is_missing(csv, text);
    if (csv->is_new && (is_number || is_missing || column_builder_wants_text(builder)))
        TRY(csv_check_new(csv, column, text, is_missing, *value));
    if (is_missing) {
        *value = NAN;
        column_builder_add_missing(builder);
        return OK;
    }
    if (!is_number) return add_text(csv, column, builder, text, value);
    column_builder_add_number(builder);
    return OK;
}

static status add_target(struct csv *csv, size_t column, const char *text, double *value) {
    bool may_be_label = csv->has_labels && *text, is_number = csv_read_number(csv, text, value);
    if (csv->base.rows == 0 && !csv->is_kind_known) csv->has_labels = may_be_label = may_be_label && !is_number;
    if (may_be_label) return csv_add_label(csv, text, value);
    struct role *role = &csv->roles[column];
    for (size_t pair = 0; pair < BOOLEAN_PAIRS && csv->base.rows == 0; pair++)
        if (boolean_read(text, pair, value)) role->booleans = pair + 1;
    if (role->booleans) return csv_add_boolean(csv, column, text, value);
    return is_number ? OK : csv_reject_value(csv, column, text, "a number", advise_style(csv, text));
}

static status add_weight(struct csv *csv, size_t column, const char *text, double *value) {
    bool is_number = csv_read_number(csv, text, value);
    return is_number ? OK : csv_reject_value(csv, column, text, "a number", ", and dataset.weights names this column");
}

status csv_add_group(struct csv *csv, const char *text, double *value) {
    size_t index;
    if (csv_is_missing(csv, text))
        return status_new(STATUS_DATA, "%s:%s %zu: column '%s': missing value, and %s names this column", csv->path,
                          csv->input->unit, csv->reader.record_line, csv_printable(csv, csv->names[csv->group_column]),
                          csv->group_key);
    TRY(text_pool_add(&csv->groups, text, csv->base.rows, &index));
    *value = (double)index;
    return OK;
}

size_t csv_group_at(const struct csv *csv) { return values_of(csv) + (csv->weight_column != NOT_USED); }

void csv_copy_targets(const struct csv *csv, double *row) {
    for (size_t i = 0; i < csv->base.target_size; i++) {
        const struct role *role = &csv->roles[csv->target_columns[i]];
        if (!role->is_target) row[csv->base.input_size + i] = row[role->at];
    }
}

/* Labels, categories, groups and numbers that mean missing values, and for `init` every value, are compared as text. */
static bool is_compared(const struct csv *csv, size_t column) {
    if (!csv->roles || csv->has_missing_number) return true;
    const struct role *role = &csv->roles[column];
    if (role->is_weight) return false;
    if (role->at == NOT_USED) return true; /* read by the filter */
    return role->is_target || role->is_group || column_builder_wants_text(&csv->builders[role->at]);
}

void csv_format_real(const struct csv *csv, size_t column, double value, char text[CSV_REAL]) {
    int precision = is_compared(csv, column) ? 15 : 17;
    do snprintf(text, CSV_REAL, "%.*g", precision, value);
    while (precision++ < 17 && strtod(text, NULL) != value);
}

/* ---- dataset.filter ---- */

static const char *filter_text(void *state, size_t column) {
    const struct csv *csv = state;
    const char *text = csv->reader.fields[csv->fields[csv->filter_columns[column]]].text;
    return *text == 0 || csv_is_missing(csv, text) ? NULL : text;
}

static bool filter_number(void *state, const char *text, double *value) { return csv_read_number(state, text, value); }

static status keep_row(struct csv *csv, bool *keeps) {
    const struct filter_row row = {csv, filter_text, filter_number};
    size_t column = SIZE_MAX;
    *keeps = true;
    if (!csv->filter) return OK;
    row_filter_test(csv->filter, &row, keeps, &column);
    if (column == SIZE_MAX) return OK;
    const char *text = filter_text(csv, column);
    column = csv->filter_columns[column];
    return csv_leave_out(csv, column, BAD_VALUE, text,
                         csv_reject_value(csv, column, text, "a number", ", and dataset.filter compares it with one"));
}

static status start_filter(struct csv *csv, const struct dataset_config *config) {
    if (!config->filter || config->cells) return OK;
    TRY(row_filter_parse(config->filter, csv->arena, &csv->filter));
    size_t count = row_filter_column_count(csv->filter);
    csv->filter_columns = arena_alloc(csv->arena, (count + 1) * sizeof *csv->filter_columns);
    for (size_t i = 0; i < count; i++) {
        const char *name = row_filter_column(csv->filter, i);
        TRY(csv_find_column(csv, name, "dataset.filter", &csv->filter_columns[i]));
        csv->roles[csv->filter_columns[i]].is_filtered = true;
    }
    return OK;
}

static status note_filtered(struct csv *csv) {
    size_t rows = csv->base.rows + csv->base.left_out_count;
    if (!csv->filter) return OK;
    if (csv->kept == 0 && rows > 0)
        return status_new(STATUS_DATA, "%s: dataset.filter leaves out all %zu rows", csv->path, rows);
    csv_add_note(csv, arena_printf(csv->arena, "dataset.filter keeps %zu of %zu row%s", csv->kept, rows,
                                   text_plural(rows, "s")));
    return OK;
}

static bool lacks_target(const struct csv *csv) {
    for (size_t i = 0; csv->drops_missing_targets && i < csv->base.target_size; i++)
        if (csv_is_missing(csv, csv->reader.fields[csv->fields[csv->target_columns[i]]].text)) return true;
    return false;
}

static status add_value(struct csv *csv, size_t column, const char *text, double *row) {
    const struct role *role = &csv->roles[column];
    return role->is_group    ? csv_add_group(csv, text, &row[csv_group_at(csv)])
           : role->is_weight ? add_weight(csv, column, text, &row[values_of(csv)])
           : role->is_target ? add_target(csv, column, text, &row[csv->base.input_size + role->at])
                             : csv_add_input(csv, column, text, &row[role->at]);
}

static status reject_fields(const struct csv *csv) {
    return status_new(STATUS_DATA, "%s:line %zu: there are %zu fields, but the header has %zu", csv->path,
                      csv->reader.record_line, csv->reader.count, csv->n_fields);
}

/* Adds the current record as a row, unless it is left out. */
static status add_record(struct csv *csv, double *row) {
    if (csv->reader.count != csv->n_fields) return csv_leave_out(csv, 0, BAD_FIELDS, "", reject_fields(csv));
    bool keeps;
    TRY(keep_row(csv, &keeps));
    if (csv->is_left_out) return OK;
    csv->kept += keeps;
    csv->is_left_out = !keeps || lacks_target(csv);
    csv->dropped += keeps && csv->is_left_out;
    for (size_t i = 0; i < csv->n_columns && !csv->is_left_out; i++) {
        if (csv->roles[i].at == NOT_USED) continue;
        const char *text = csv->reader.fields[csv->fields[i]].text;
        status s = add_value(csv, i, text, row);
        if (s) TRY(csv_leave_out(csv, i, csv_is_missing(csv, text) ? BAD_MISSING : BAD_VALUE, text, s));
    }
    if (csv->is_left_out) return OK;
    for (size_t i = 0; csv->orders && i < csv->n_columns; i++)
        if (csv->roles[i].may_be_date) csv_order_add(csv, i, csv->reader.fields[csv->fields[i]].text, row);
    csv_copy_targets(csv, row);
    return OK;
}

/* Adds the next row; *is_row false: there is none. [has_record]: it is the current record. */
static status add_row(struct csv *csv, const struct dataset_config *config, bool has_record, bool *is_row) {
    double *row;
    bool is_plain = false;
    *is_row = true;
    csv->is_left_out = false;
    TRY(row_store_next(&csv->store, csv->path, &row));
    if (!has_record) TRY(csv_add_plain_row(csv, row, &is_plain));
    if (!is_plain) {
        if (!has_record) TRY(csv->input->next(csv, &has_record));
        if (!has_record) TRY(csv_next_file(csv, config, &has_record));
        *is_row = has_record;
        if (!has_record) return OK;
        TRY(add_record(csv, row));
    }
    if (csv->is_left_out) return csv_add_left_out(csv);
    row[csv->store.width - 1] = (double)csv->reader.record_line;
    csv->base.rows = ++csv->store.rows;
    return is_plain ? OK : csv_plan_rows(csv, csv->has_labels);
}

/* [may_be_text]: the target is one class column. Its first value, or the training file, decides whether it has labels
 * or numbers. */
static status read_rows(struct csv *csv, const struct dataset_config *config, bool may_be_text,
                        const struct csv *train) {
    bool is_row = true;
    csv->store.width = csv_group_at(csv) + (csv->group_column != NOT_USED) + 1;
    csv->store.max_bytes = config->cells ? SIZE_MAX : (size_t)config->cache_mb << 20;
    csv->drops_missing_targets = config->drops_missing_targets;
    csv->has_labels = train ? train->n_classes > 0 : csv->has_given_classes || may_be_text;
    for (bool has_record = csv->has_no_header; is_row; has_record = false)
        TRY(add_row(csv, config, has_record, &is_row));
    TRY(csv_finish_new(csv));
    TRY(note_filtered(csv));
    csv->has_labels = csv->has_labels && csv->base.rows > 0;
    if (csv->dropped)
        csv_add_note(csv, arena_printf(csv->arena, "%zu row%s without a target %s left out (drop_missing_targets)",
                                       csv->dropped, text_plural(csv->dropped, "s"), csv->dropped == 1 ? "is" : "are"));
    TRY(row_store_finish(&csv->store, csv->path));
    csv->base.is_small = !csv->store.is_in_file;
    return OK;
}

/* ---- columns ---- */

/* What pandas' read_csv takes for a missing value. */
static const char *const usual_missing[] = {"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
                                            "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
                                            "NaN",  "None",   "n/a",      "nan",  "null",    NULL};

bool csv_means_missing(const char *text) {
    for (size_t i = 0; usual_missing[i]; i++)
        if (strcmp(usual_missing[i], text) == 0) return true;
    return false;
}

const char *csv_missing_text(size_t index) {
    return index < sizeof usual_missing / sizeof *usual_missing ? usual_missing[index] : NULL;
}

static void set_missing(struct csv *csv, const struct dataset_config *config) {
    const char **texts = arena_alloc(csv->arena, (config->missing.count + 1) * sizeof *texts);
    double number;
    for (size_t i = 0; i < config->missing.count; i++) {
        char decimal = 0; /* '.' or ',' */
        texts[i] = arena_copy(csv->arena, config->missing.items[i]);
        csv->has_missing_number = csv->has_missing_number || csv_decimal(texts[i], &decimal, &number);
    }
    csv->missing = config->missing.count ? texts : usual_missing;
    for (size_t i = 0; csv->missing[i]; i++) csv->starts_missing[(unsigned char)*csv->missing[i]] = true;
}

/* The type of a column that another file decides: the training file or a checkpoint; false: none does. */
static bool known_type(const struct csv *csv, const struct dataset_config *config, const struct csv *train,
                       size_t input, struct raw_column *known) {
    const struct preparation *p = config->preparation;
    const char *name = csv->names[csv->input_columns[input]];
    *known = (struct raw_column){.type = COLUMN_NUMBER};
    if (train) *known = train->raw[input]; /* its columns have the same order */
    bool is_prepared = !train && p && input < p->count && strcmp(p->items[input].name, name) == 0;
    if (is_prepared)
        *known = (struct raw_column){.type = p->items[input].type, .date_format = p->items[input].date_format};
    return train || config->is_trained;
}

static void start_columns(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    size_t count = csv->base.input_size;
    csv->builders = arena_alloc(csv->arena, (count + 1) * sizeof *csv->builders);
    csv->raw = arena_alloc(csv->arena, (count + 1) * sizeof *csv->raw);
    set_missing(csv, config);
    for (size_t i = 0; i < count; i++) {
        struct raw_column known;
        const char *name = csv->names[csv->input_columns[i]];
        bool is_known = known_type(csv, config, train, i, &known);
        column_builder_start(&csv->builders[i], name, column_rule_find(&csv->rules, name), is_known ? &known : NULL,
                             csv->arena);
    }
    for (size_t i = 0; i < csv->base.target_size; i++) {
        const struct role *role = &csv->roles[csv->target_columns[i]];
        if (!role->is_target) csv->builders[role->at].is_target = true;
    }
}

static status check_texts(const struct csv *csv, size_t column, const struct raw_column *raw) {
    for (size_t i = 0; i < raw->texts.count; i++)
        if (!csv_is_utf8(raw->texts.items[i]))
            return status_new(STATUS_DATA, "%s: column '%s': the text '%s' is not UTF-8", csv->path,
                              csv_printable(csv, csv->names[column]), csv_printable(csv, raw->texts.items[i]));
    return OK;
}

static status finish_column(struct csv *csv, size_t input) {
    size_t row;
    status s = column_builder_finish(&csv->builders[input], csv->arena, &csv->raw[input], &csv->maps[input], &row);
    if (s && row != SIZE_MAX)
        return status_prefix(s, "%s:%s %zu", csv_path_of(csv, row), csv->input->unit, csv_line_of(csv, row));
    if (s) return status_prefix(s, "%s", csv->path);
    return check_texts(csv, csv->input_columns[input], &csv->raw[input]);
}

/* A wrong first value makes categories of numbers. */
static void note_mixed_columns(struct csv *csv) {
    size_t count = 0;
    const char *text = NULL, *name = NULL;
    for (size_t i = 0; i < csv->base.input_size; i++) {
        const char *found = column_builder_text_among_numbers(&csv->builders[i]);
        if (!found || count++ > 0) continue;
        text = csv_printable(csv, found);
        name = csv_printable(csv, csv->builders[i].name);
    }
    if (count == 0) return;
    const char *others =
        count == 1 ? "" : arena_printf(csv->arena, "; so %s %zu more", count == 2 ? "is" : "are", count - 1);
    csv_add_note(csv, arena_printf(csv->arena,
                                   "column '%s' is a category, because its first value is a text, though most are "
                                   "numbers%s; if they are numbers, correct texts such as '%s' or list them in "
                                   "dataset.missing, else write dataset.columns: {%s: category}",
                                   name, others, text, name));
}

/* A missing value of an input may be replaced, one of a target may not. */
static status reject_missing_target(struct csv *csv, size_t target) {
    const double *values;
    size_t got, row = 0, at = csv->base.input_size + target;
    for (; row < csv->base.rows; row++) {
        TRY(row_store_read(&csv->store, row, 1, &values, &got));
        if (isnan(values[at])) break;
    }
    return status_new(STATUS_DATA,
                      "%s:%s %zu: column '%s': missing value, and the column is a target, too; fill it in the file, as "
                      "pandas' interpolate() does, or remove the row",
                      csv_path_of(csv, row), csv->input->unit, csv_line_of(csv, row),
                      csv_printable(csv, csv->names[csv->target_columns[target]]));
}

/* A target that is an input, too, is the number of its column: its builder rejects texts. */
static status check_targets(struct csv *csv) {
    for (size_t i = 0; i < csv->base.target_size; i++) {
        const struct role *role = &csv->roles[csv->target_columns[i]];
        if (!role->is_target && csv->raw[role->at].missing > 0) return reject_missing_target(csv, i);
    }
    return OK;
}

static status finish_columns(struct csv *csv) {
    csv->maps = arena_alloc(csv->arena, (values_of(csv) + 1) * sizeof *csv->maps);
    for (size_t i = 0; i < csv->base.input_size; i++) TRY(finish_column(csv, i));
    TRY(check_targets(csv));
    note_mixed_columns(csv);
    for (size_t i = 0; i < csv->base.input_size; i++)
        if (csv->raw[i].type == COLUMN_CATEGORY && csv->raw[i].are_numbers)
            csv_note_merged(csv, csv->input_columns[i], &csv->builders[i].pool, &csv->raw[i].texts);
    csv->base.columns = csv->raw;
    return OK;
}

/* ---- the source ---- */

status csv_read_text(struct csv *csv, const struct dataset_config *config) {
    struct csv_part *part = &csv->parts[csv->part];
    const struct csv_config *dialect = &config->csv;
    uint64_t bytes;
    const char *note = NULL;
    bool is_started = false;
    TRY(file_check(part->path, &bytes));
    csv->base.file_bytes += bytes;
    status s = csv->is_whole ? OK : csv_open_pieces(part->path, dialect, &csv->reader, &is_started);
    if (!s && !is_started) s = csv_open_file(part->path, dialect, &csv->reader, &part->text, &note);
    if (!s && note) csv_add_note(csv, note);
    char decimal = csv_decimal_of(&csv->reader, dialect);
    if (csv->part == 0 || decimal != 0) csv->decimal = decimal; /* else that of the files before */
    csv->thousands = csv_config_char(dialect->thousands);
    csv->strip = dialect->strip;
    return s;
}

/* Whether dataset.columns says that the values of the target are labels. */
static status find_label_rule(const struct csv *csv, bool may_be_text, bool *out) {
    *out = false;
    for (size_t i = 0; i < csv->n_columns && !*out; i++) {
        const struct role *role = &csv->roles[i];
        *out = role->is_target && role->at != NOT_USED && column_rule_find(&csv->rules, csv->names[i]);
    }
    if (!*out || may_be_text) return OK;
    return status_new(STATUS_USAGE,
                      "dataset.columns: `category` is for a target that is one class, and this loss takes %s",
                      csv->base.target_size > 1 ? "several targets" : "numbers");
}

static status open_all(struct csv *csv, const struct dataset_config *config, bool wants_classes,
                       const struct csv *train, bool is_validation) {
    const char *path = csv->path;
    TRY(csv_find_files(csv, config, is_validation));
    csv->path = csv->parts[0].path;
    TRY(csv->input->start(csv, config, is_validation));
    if (train && csv->decimal == 0 && !csv_is_undecided(train->decimal)) csv->decimal = train->decimal;
    TRY(csv_read_header(csv, config, train));
    csv->are_targets_inputs = config->window.steps > 0 && !wants_classes && config->target_range == TARGETS_ARE_ANY;
    TRY(csv_choose_columns(csv, config, train));
    TRY(start_filter(csv, config));
    start_columns(csv, config, train);
    csv_start_new(csv, config, train);
    csv_order_start(csv, config);
    bool is_binary = !wants_classes && !config->has_losses && config->target_range == TARGETS_ARE_PROBABILITIES;
    bool has_target = csv->base.target_size == 1 && csv->roles[csv->target_columns[0]].is_target;
    bool may_be_text = (wants_classes || is_binary) && has_target;
    if (!train && may_be_text && config->classes.count) csv_copy_classes(csv, &config->classes);
    TRY(find_label_rule(csv, may_be_text, &csv->is_kind_known));
    csv->is_kind_known = csv->is_kind_known || train || csv->has_given_classes;
    TRY(read_rows(csv, config, may_be_text, train));
    csv_order_finish(csv);
    csv->path = path;
    if (csv_is_undecided(csv->decimal)) return csv_ask_decimal(csv->parts[0].path, csv->unclear_line, csv->unclear);
    if (csv->decimal == ',' && !config->csv.decimal) csv_add_note(csv, "numbers have a decimal comma");
    TRY(finish_columns(csv));
    csv_number_groups(csv);
    TRY(csv_number_labels(csv, is_binary, train));
    csv->base.input_dims = 1;
    csv->base.input_shape[0] = (int64_t)csv->base.input_size;
    return OK;
}

void csv_close(struct source *source) {
    struct csv *csv = (struct csv *)source;
    for (size_t i = 0; csv->builders && i < csv->base.input_size; i++) column_builder_free(&csv->builders[i]);
    if (csv->input->close) csv->input->close(csv);
    csv_free(&csv->reader);
    for (size_t i = 0; i < csv->part_count; i++) buffer_free(csv->parts[i].text);
    for (size_t i = 0; csv->maps && i < values_of(csv); i++) free(csv->maps[i]);
    row_store_free(&csv->store);
    free(csv->base.left_out);
    status_free(csv->bad.first);
    text_pool_free(&csv->labels);
    text_pool_free(&csv->groups);
    free(csv->plans);
    arena_destroy(csv->arena);
    free(csv);
}

static status open_source(const struct dataset_format *format, const struct csv_input *input, void *records,
                          const struct dataset_config *config, const char *path, bool wants_classes,
                          const struct source *train, bool *is_whole, struct source **out) {
    struct csv *csv = calloc(1, sizeof *csv);
    if (!csv) return status_memory("a dataset");
    csv->base.format = format;
    csv->base.is_small = true;
    csv->input = input;
    csv->records = records;
    csv->decimal = '.';
    csv->weight_column = csv->group_column = NOT_USED;
    csv->is_whole = *is_whole;
    csv->arena = csv->labels.arena = csv->groups.arena = arena_create();
    csv->path = arena_copy(csv->arena, path);
    bool is_table = train && train->format == format;
    status s = open_all(csv, config, wants_classes, is_table ? (const struct csv *)train : NULL, train != NULL);
    *is_whole = csv->reader.is_not_utf8;
    if (s == OK)
        *out = &csv->base;
    else
        csv_close(&csv->base);
    return s;
}

status csv_open(const struct dataset_format *format, const struct csv_input *input, void *records,
                const struct dataset_config *config, const char *path, bool wants_classes, const struct source *train,
                struct source **out) {
    bool is_whole = false;
    status s = open_source(format, input, records, config, path, wants_classes, train, &is_whole, out);
    if (!s || !is_whole) return s;
    status_free(s); /* a file is not UTF-8: its encoding is recognised by all of it */
    return open_source(format, input, NULL, config, path, wants_classes, train, &is_whole, out);
}

static status start_file(struct csv *csv, const struct dataset_config *config, bool is_validation) {
    (void)is_validation;
    return csv_read_text(csv, config);
}

static status next_record(struct csv *csv, bool *has_record) { return csv_next(&csv->reader, has_record); }

static status open_csv(const struct dataset_config *config, const char *path, bool wants_classes,
                       const struct source *train, struct source **out) {
    static const struct csv_input input = {.unit = "line", .start = start_file, .next = next_record};
    return csv_open(&dataset_csv, &input, NULL, config, path, wants_classes, train, out);
}

static void copy_values(const double *values, double *const *maps, size_t count, double *out) {
    memcpy(out, values, count * sizeof *out);
    for (size_t i = 0; i < count; i++)
        if (maps[i] && !isnan(values[i])) out[i] = maps[i][(size_t)values[i]];
}

status csv_read_rows(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    struct csv *csv = (struct csv *)source;
    size_t size = source->input_size, target_size = source->target_size;
    for (size_t done = 0, got; done < count; done += got) {
        const double *rows;
        TRY(row_store_read(&csv->store, first + done, count - done, &rows, &got));
        for (size_t i = done; i < done + got; i++, rows += csv->store.width) {
            if (inputs) copy_values(rows, csv->maps, size, inputs + i * size);
            if (targets) copy_values(rows + size, csv->maps + size, target_size, targets + i * target_size);
        }
    }
    return OK;
}

void csv_will_read(const struct source *source, size_t row) {
    row_store_will_read(&((const struct csv *)source)->store, row);
}

status csv_read_weights(struct source *source, size_t first, size_t count, double *weights) {
    struct csv *csv = (struct csv *)source;
    for (size_t done = 0, got; done < count; done += got) {
        const double *rows;
        TRY(row_store_read(&csv->store, first + done, count - done, &rows, &got));
        for (size_t i = done; i < done + got; i++, rows += csv->store.width) weights[i] = rows[values_of(csv)];
    }
    return OK;
}

static void describe_value(const struct csv *csv, size_t row, size_t column, struct text *out) {
    text_printf(out, "%s:%s %zu: column '%s'", csv_path_of(csv, row), csv->input->unit, csv_line_of(csv, row),
                csv_printable(csv, csv->names[column]));
}

status csv_read_groups(struct source *source, size_t first, size_t count, double *groups) {
    struct csv *csv = (struct csv *)source;
    for (size_t done = 0, got; done < count; done += got) {
        const double *rows;
        TRY(row_store_read(&csv->store, first + done, count - done, &rows, &got));
        for (size_t i = done; i < done + got; i++, rows += csv->store.width)
            groups[i] = csv->group_values[(size_t)rows[csv_group_at(csv)]];
    }
    return OK;
}

void csv_describe_group(const struct source *source, size_t row, struct text *out) {
    const struct csv *csv = (const struct csv *)source;
    describe_value(csv, row, csv->group_column, out);
}

void csv_describe_weight(const struct source *source, size_t row, struct text *out) {
    const struct csv *csv = (const struct csv *)source;
    describe_value(csv, row, csv->weight_column, out);
}

void csv_describe(const struct source *source, bool is_target, size_t row, size_t element, struct text *out) {
    const struct csv *csv = (const struct csv *)source;
    describe_value(csv, row, (is_target ? csv->target_columns : csv->input_columns)[element], out);
}

struct string_list csv_labels(const struct source *source) {
    const struct csv *csv = (const struct csv *)source;
    return (struct string_list){.items = csv->classes, .count = csv->n_classes};
}

/* The columns for the checkpoint, which stores UTF-8 only. */
struct column_list csv_columns(const struct source *source, struct arena *arena) {
    struct column_list list = csv_columns_of((const struct csv *)source, arena);
    for (size_t i = 0; i < list.count; i++)
        if (!csv_is_utf8(list.items[i].name)) return (struct column_list){0};
    return list;
}

static const char *const extensions[] = {".csv", ".tsv", ".csv.gz", ".tsv.gz", ".data", NULL};
const struct dataset_format dataset_csv = {.name = "csv",
                                           .keys = KEYS_OF_NAMES | KEY_COLUMNS | KEY_CSV,
                                           .extensions = extensions,
                                           .reads_patterns = true,
                                           .open = open_csv,
                                           .read = csv_read_rows,
                                           .will_read = csv_will_read,
                                           .read_weights = csv_read_weights,
                                           .describe_weight = csv_describe_weight,
                                           .read_groups = csv_read_groups,
                                           .describe_group = csv_describe_group,
                                           .inspect = csv_inspect,
                                           .describe = csv_describe,
                                           .labels = csv_labels,
                                           .columns = csv_columns,
                                           .close = csv_close};
