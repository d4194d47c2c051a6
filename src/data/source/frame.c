/* One file is open at a time. A block of rows is read by columns, then given to the table row by row. */
#include "data/source/frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "base/system/module.h"

#define DATE_TEXT 40 /* bytes of a date and a time */

struct records {
    const struct frame_reader *reader; /* NULL: no file was opened */
    struct frame frame;
    struct string_list names;                                   /* that the config names */
    size_t n_all;                                               /* columns of the file, also those that are not read */
    uint64_t row;                                               /* the next one */
    size_t at, got;                                             /* the next one in the block, rows of the block */
    bool has_names;                                             /* the names of the columns were given */
    char (*texts)[DATE_TEXT > CSV_REAL ? DATE_TEXT : CSV_REAL]; /* (count): values of the current row */
};

/* ---- names ---- */

static void add_names(struct string_list *out, const struct string_list *names) {
    for (size_t i = 0; i < names->count; i++) out->items[out->count++] = names->items[i];
}

/* The columns that the config, or the model that was trained, names. */
static struct string_list named_columns(const struct dataset_config *config, struct arena *arena) {
    const struct column_list *trained = &config->request.columns;
    struct string_list out = {0};
    out.items =
        arena_alloc(arena, (config->inputs.count + config->targets.count + trained->count + 2) * sizeof *out.items);
    add_names(&out, &config->inputs);
    if (!config->request.without_targets) add_names(&out, &config->targets);
    if (!config->request.without_targets && config->weights) out.items[out.count++] = config->weights;
    if (dataset_group(config)) out.items[out.count++] = dataset_group(config);
    for (size_t i = 0; i < trained->count; i++)
        if (trained->items[i].role == COLUMN_INPUT) out.items[out.count++] = trained->items[i].name;
    return out;
}

static status check_named(const struct frame *frame, const struct string_list *names) {
    for (size_t i = 0; i < frame->count; i++)
        if (frame->columns[i].unread && string_list_has(names, frame->columns[i].name))
            return status_data("%s: column '%s' cannot be read: %s", frame->path, text_name(frame->columns[i].name).s,
                               frame->columns[i].unread);
    return OK;
}

/* ---- files ---- */

bool frame_is_format(const struct dataset_format *format) {
    return format == &dataset_netcdf || format == &dataset_parquet;
}

/* A file that is not there is reported before a module that is not there. */
static status find_reader(const struct dataset_format *format, const char *path, const struct frame_reader **out) {
    uint64_t bytes;
    void *reader;
    TRY(file_check(path, &bytes));
    *out = &netcdf_reader;
    if (format == &dataset_netcdf) return OK;
    TRY(module_need("parquet", FRAME_PARQUET_SYMBOL, "files of Parquet and Arrow need Arrow's module",
                    "install it, or convert the file: pandas.read_parquet(FILE).to_csv('new.csv', index=False)",
                    &reader));
    *out = reader;
    return OK;
}

static void close_file(struct records *r) {
    if (r->frame.arena) r->reader->close(&r->frame);
    arena_destroy(r->frame.arena);
    r->frame = (struct frame){0};
}

/* Columns that cannot be read are no columns of the table, and stand behind the others. */
static void drop_unread(struct frame *frame) {
    size_t kept = 0;
    for (size_t i = 0; i < frame->count; i++) {
        struct frame_column column = frame->columns[i];
        if (column.unread) continue;
        frame->columns[i] = frame->columns[kept];
        frame->columns[kept++] = column;
    }
    frame->count = kept;
}

static status open_file(struct records *r, const struct dataset_format *format, const char *path) {
    close_file(r);
    TRY(find_reader(format, path, &r->reader));
    r->frame = (struct frame){.path = path, .arena = arena_create()};
    r->row = r->at = r->got = 0;
    r->has_names = false;
    TRY(r->reader->open(&r->frame, r->names.items, r->names.count));
    TRY(check_named(&r->frame, &r->names));
    r->n_all = r->frame.count;
    drop_unread(&r->frame);
    if (r->frame.count == 0) return status_data("%s: the file has no columns that can be read", path);
    r->texts = arena_alloc(r->frame.arena, r->frame.count * sizeof *r->texts);
    return OK;
}

static void want(struct frame *frame, size_t column) {
    struct frame_column *c = &frame->columns[column];
    c->is_wanted = true;
    if (c->holds_texts || c->is_wide) c->texts = arena_alloc(frame->arena, FRAME_ROWS * sizeof *c->texts);
    if (!c->holds_texts) c->numbers = arena_alloc(frame->arena, FRAME_ROWS * sizeof *c->numbers);
}

/* *has_row false: there are no more. */
static status next_row(struct records *r, bool *has_row) {
    *has_row = r->row < r->frame.rows;
    if (!*has_row) return OK;
    if (r->at == r->got) {
        uint64_t left = r->frame.rows - r->row;
        r->at = 0;
        r->got = left < FRAME_ROWS ? (size_t)left : FRAME_ROWS;
        TRY(r->reader->read(&r->frame, r->row, r->got));
    }
    r->at++;
    r->row++;
    return OK;
}

/* ---- values ---- */

/* Seconds since 1970 as ISO 8601, with a fraction of up to six digits; false: the year is not 1 to 9999. */
static bool format_date(double seconds, char text[DATE_TEXT]) {
    double days = floor(seconds / 86400), micros = rint((seconds - days * 86400) * 1e6);
    if (micros >= 86400e6) {
        days++;
        micros = 0;
    }
    if (!(days >= -719162 && days < 2932897)) return false;
    double noon = days * 86400;
    long long rest = (long long)micros;
    int length = snprintf(text, DATE_TEXT, "%04d-%02d-%02d", (int)date_part_of(noon, DATE_YEAR),
                          (int)date_part_of(noon, DATE_MONTH), (int)date_part_of(noon, DATE_DAY));
    length += snprintf(text + length, DATE_TEXT - (size_t)length, "T%02d:%02d:%02d", (int)(rest / 3600000000),
                       (int)(rest / 60000000 % 60), (int)(rest / 1000000 % 60));
    if (rest % 1000000) snprintf(text + length, DATE_TEXT - (size_t)length, ".%06d", (int)(rest % 1000000));
    return true;
}

/* The text of a value; NULL: it is missing. A date out of range is STATUS_DATA. */
static status text_of(struct records *r, size_t field, const char **text) {
    const struct frame_column *column = &r->frame.columns[field];
    size_t at = r->at - 1;
    *text = column->texts ? column->texts[at] : NULL;
    if (column->holds_texts || *text) return OK;
    double value = column->numbers[at];
    if (isnan(value)) return OK;
    *text = r->texts[field];
    if (!column->is_date)
        snprintf(r->texts[field], sizeof *r->texts, "%.17g", value);
    else if (!format_date(value, r->texts[field]))
        return status_data("%s:row %llu: column '%s': the date is not in the years 1 to 9999", r->frame.path,
                           (unsigned long long)r->row - 1, column->name);
    return OK;
}

static status read_value(struct csv *csv, size_t column, size_t field) {
    struct records *r = csv->records;
    const struct frame_column *c = &r->frame.columns[field];
    const char *text;
    csv->numbers[column] = (struct csv_number){.is_real = !c->is_wide};
    csv->reader.fields[field].text = csv_missing_in(csv, column);
    bool is_number = !c->holds_texts && !c->is_date && !isnan(c->numbers[r->at - 1]);
    if (is_number && csv_takes_number(csv, column, c->numbers[r->at - 1])) {
        csv->numbers[column] = (struct csv_number){.is_given = true, .value = c->numbers[r->at - 1]};
        return OK;
    }
    TRY(text_of(r, field, &text));
    if (is_number && text == r->texts[field]) csv_format_real(csv, column, c->numbers[r->at - 1], r->texts[field]);
    if (text) csv->reader.fields[field].text = text;
    return OK;
}

/* ---- records of a table ---- */

static const char *why_unread(const struct csv *csv, const char *name) {
    const struct records *r = csv->records;
    for (size_t i = r->frame.count; i < r->n_all; i++)
        if (strcmp(r->frame.columns[i].name, name) == 0) return r->frame.columns[i].unread;
    return NULL;
}

/* Where all columns are inputs; of netCDF most variables that are not read have other dimensions than the rows. */
static void note_unread(struct csv *csv, const struct dataset_config *config) {
    const struct records *r = csv->records;
    struct column_rules rules = column_rules_index(csv->arena, &config->rules);
    bool are_all =
        config->inputs.count == 0 && config->request.columns.count == 0 && csv->base.format == &dataset_parquet;
    for (size_t i = r->frame.count; are_all && i < r->n_all; i++) {
        const struct frame_column *c = &r->frame.columns[i];
        const struct column_rule *rule = column_rule_find(&rules, c->name);
        if (strncmp(c->name, "__index_level_", 14) == 0 || (rule && rule->type == COLUMN_IGNORED)) continue;
        csv_add_note(csv, arena_printf(csv->arena, "column '%s' is not used: %s", text_name(c->name).s, c->unread));
    }
}

static status start(struct csv *csv, const struct dataset_config *config, bool is_validation) {
    struct records *r = csv->records;
    uint64_t bytes;
    (void)is_validation;
    TRY(file_check(csv->path, &bytes));
    csv->base.file_bytes += bytes;
    r->names = named_columns(config, csv->arena);
    TRY(open_file(r, csv->base.format, csv->path));
    note_unread(csv, config);
    return csv_make_fields(&csv->reader, csv->path, r->frame.count);
}

static bool is_used(const struct csv *csv, size_t column) {
    return !csv->roles || csv->roles[column].at != NOT_USED || csv->roles[column].is_filtered ||
           csv->roles[column].may_be_date;
}

static size_t field_of(const struct csv *csv, size_t column) { return csv->roles ? csv->fields[column] : column; }

static status give_names(struct csv *csv) {
    struct records *r = csv->records;
    r->has_names = true;
    for (size_t i = 0; i < r->frame.count; i++)
        csv->reader.fields[i].text = arena_copy(csv->arena, r->frame.columns[i].name);
    if (!csv->numbers || !csv->roles)
        csv->numbers = arena_alloc(csv->arena, (r->frame.count + 1) * sizeof *csv->numbers);
    return OK;
}

/* A CSV file with offsets has the parts of the local time that is written. */
static void note_zone(struct csv *csv, const struct frame_column *column) {
    static const char *const utc[] = {"UTC]", "Etc/UTC]", "Z]", "+00:00]"};
    const char *zone = column->is_date ? strstr(column->type, "tz=") : NULL;
    for (size_t i = 0; zone && i < sizeof utc / sizeof *utc; i++)
        if (strcmp(zone + 3, utc[i]) == 0) return;
    if (zone)
        csv_add_note(csv, arena_printf(csv->arena, "the times of column '%s' are those of UTC, not of its zone %.*s",
                                       text_name(column->name).s, (int)strcspn(zone + 3, "]"), zone + 3));
}

static status next_record(struct csv *csv, bool *has_record) {
    struct records *r = csv->records;
    *has_record = true;
    if (!r->has_names) return give_names(csv);
    size_t count = csv->roles ? csv->n_own : r->frame.count;
    for (size_t i = 0; r->row == 0 && i < count; i++) {
        if (!is_used(csv, i)) continue;
        want(&r->frame, field_of(csv, i));
        note_zone(csv, &r->frame.columns[field_of(csv, i)]);
    }
    TRY(next_row(r, has_record));
    csv->reader.record_line = (size_t)r->row - 1;
    for (size_t i = 0; *has_record && i < count; i++)
        if (is_used(csv, i)) TRY(read_value(csv, i, field_of(csv, i)));
    return OK;
}

static void close_records(struct csv *csv) { close_file(csv->records); }

const struct csv_input frame_input = {.unit = "row",
                                      .header = "the columns",
                                      .reads_many = true,
                                      .state_bytes = sizeof(struct records),
                                      .start = start,
                                      .next = next_record,
                                      .why_unread = why_unread,
                                      .close = close_records};

status frame_inspect(const struct dataset_format *format, const char *path, struct text *out) {
    const struct frame_reader *reader;
    TRY(find_reader(format, path, &reader));
    struct frame frame = {.path = path, .arena = arena_create()};
    status s = reader->open(&frame, NULL, 0);
    if (!s)
        text_printf(out, "file    %s\nformat  %s, %llu rows, %zu %s%s\n\n", path, format->name,
                    (unsigned long long)frame.rows, frame.count, reader->unit, text_plural(frame.count, "s"));
    for (size_t i = 0; !s && i < frame.count; i++) {
        const struct frame_column *c = &frame.columns[i];
        text_add(out, "  ");
        size_t start = out->length;
        text_add_value(out, c->name, TEXT_MAX_NAME);
        text_pad(out, start, 26);
        text_printf(out, " %s%s%s%s\n", c->type, c->unread ? " (not read: " : "", c->unread ? c->unread : "",
                    c->unread ? ")" : "");
    }
    reader->close(&frame);
    arena_destroy(frame.arena);
    return s;
}

/* ---- Parquet and Arrow, which the module ddptrain_parquet.so reads with Arrow's C++ library (parquet.cc): it is not
 * in every distribution, and loading it takes longer than a small run ---- */

static status open_parquet(const struct dataset_config *config, const char *path, bool wants_classes,
                           const struct source *train, struct source **out) {
    return csv_open(&dataset_parquet, config, path, wants_classes, train, out);
}

static status inspect(const char *path, struct text *out) { return frame_inspect(&dataset_parquet, path, out); }

static const char *const extensions[] = {".parquet", ".pq", ".arrow", ".feather", NULL};
const struct dataset_format dataset_parquet = {.name = "parquet",
                                               .keys = KEYS_OF_NAMES | KEY_COLUMNS,
                                               .extensions = extensions,
                                               .reads_patterns = true,
                                               .open = open_parquet,
                                               CSV_FUNCTIONS,
                                               .records = &frame_input,
                                               .inspect = inspect};
