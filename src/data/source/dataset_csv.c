/* CSV files: a header line with column names, then one row of values per line; the class column may be text. The file
 * is read once and stored until the rows are scaled (row_store.h); texts of a column become numbers when all are known.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "data/columns/date.h"
#include "data/source/column_view.h"
#include "data/source/csv_source.h"
#include "data/source/row_filter.h"

/* ---- plain rows ---- */

/* Rows whose fields are plain: numbers, texts and missing values without doubled quotes, line ends inside of quotes and
 * blanks around them. Their numbers are read where they stand, without csv_next's list of fields. Nothing of the text
 * is changed before the whole row was read, so that csv_next can read every other row. */

enum field_kind { FIELD_IGNORED, FIELD_NUMBER, FIELD_TEXT };

struct field_plan {
    enum field_kind kind;
    bool may_be_missing, is_input, is_group;
    bool is_column;    /* of the first file; others are ignored */
    size_t column, at; /* at: index in the row */
    char *from, *to;   /* FIELD_TEXT, FIELD_IGNORED: of the current row */
};

#define MAX_NUMBER 64     /* bytes; longer fields are left to csv_next */
#define NO_SEPARATOR (-1) /* the decimal separator is not known yet, or the delimiter, so that it is in quotes only */

/* ---- numbers ---- */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* Digits at [at], eight at a time (Lemire: "Quickly parsing eight digits"); CSV_PADDING bytes behind the text can be
 * read. Each byte of a word becomes the digit's value; a byte that is no digit is at least 10 then, and adding 0x76
 * sets its highest bit. */
static inline const char *read_digits(const char *at, uint64_t *value) {
    static const uint64_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    for (;;) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        word ^= 0x3030303030303030u;
        uint64_t others = ((word + 0x7676767676767676u) | word) & 0x8080808080808080u;
        unsigned count = others ? (unsigned)__builtin_ctzll(others) >> 3 : 8;
        if (count == 0) return at;
        word <<= 64 - 8 * count; /* leading zeros */
        word = word * 10 + (word >> 8);
        word = ((word & 0x000000ff000000ffu) * 0x000f424000000064u +
                ((word >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u) >>
               32;
        *value = *value * tens[count] + word;
        at += count;
        if (count < 8) return at;
    }
}
#else
static inline const char *read_digits(const char *at, uint64_t *value) {
    for (; *at >= '0' && *at <= '9'; at++) *value = *value * 10 + (uint64_t)(*at - '0');
    return at;
}
#endif

/* Reads "-12.5", whose value is that of csv_number: the character behind it; NULL: it is another text. */
static inline char *read_number(char *text, int separator, double *value) {
    bool is_negative = *text == '-';
    uint64_t digits = 0;
    const char *first = text + is_negative, *at = read_digits(first, &digits);
    size_t count = (size_t)(at - first), behind = 0;
    if ((unsigned char)*at == separator) {
        first = at + 1;
        at = read_digits(first, &digits);
        behind = (size_t)(at - first);
        count += behind;
    }
    if (count == 0 || count > CSV_MAX_DIGITS) return NULL;
    double result = digits <= CSV_EXACT ? (double)digits / csv_powers[behind] : csv_quotient(digits, (int)behind);
    uint64_t bits, sign = (uint64_t)is_negative << 63; /* signs are random: without a branch */
    memcpy(&bits, &result, sizeof bits);
    bits ^= sign;
    memcpy(value, &bits, sizeof bits);
    return text + (at - text);
}

/* ---- fields ---- */

/* Reads a field that is not a plain number, or is not used: the character behind it; NULL: it is for csv_next. */
static char *read_field(struct csv *csv, struct field_plan *plan, char *at, double *value) {
    char text[MAX_NUMBER], *from, *to;
    char *next = csv_plain_field(&csv->reader, at, &from, &to);
    if (!next) return NULL;
    plan->from = from;
    plan->to = to;
    if (plan->kind == FIELD_IGNORED) return next;
    if (plan->kind == FIELD_TEXT) return plan->is_input || to > from ? next : NULL;
    size_t length = (size_t)(to - from);
    if (length >= sizeof text || csv->decimal == 0 || csv_is_undecided(csv->decimal)) return NULL;
    memcpy(text, from, length);
    text[length] = 0;
    if (plan->may_be_missing && csv_is_missing(csv, text)) {
        if (csv->is_new && csv_needs_value(csv, plan->column)) return NULL;
        *value = NAN;
    } else if (!csv_decimal(text, &csv->decimal, value) || isinf(*value)) {
        return NULL;
    }
    bool is_inexact = !isnan(*value) && csv_is_inexact(text, *value);
    return is_inexact && !csv->roles[plan->column].has_inexact ? NULL : next;
}

/* Reads the fields of the row at reader->at: the start of the next line; NULL: it is for csv_next. */
static char *read_row(struct csv *csv, double *row) {
    struct csv_reader *reader = &csv->reader;
    struct field_plan *plans = csv->plans;
    char delimiter = reader->delimiter, *at = reader->at, *next = at;
    bool is_decided = csv->decimal && !csv_is_undecided(csv->decimal);
    int separator = is_decided && csv->decimal != delimiter ? csv->decimal : NO_SEPARATOR;
    if (*at == '\n' || *at == '\r' || *at == ' ' || *at == '\t') return NULL;
    if (reader->comment && *at == reader->comment) return NULL;
    for (size_t i = 0; i < csv->n_fields; i++, at = next + 1) {
        struct field_plan *plan = &plans[i];
        bool is_last = i + 1 == csv->n_fields, is_number = plan->kind == FIELD_NUMBER;
        if (is_number && plan->may_be_missing && csv->has_missing_number) is_number = false;
        next = is_number ? read_number(at, separator, &row[plan->at]) : NULL;
        bool is_large = next && fabs(row[plan->at]) >= (double)CSV_EXACT && !csv->roles[plan->column].has_inexact;
        if (is_large && !memchr(at, separator, (size_t)(next - at))) return NULL; /* csv_is_inexact */
        if (!next || (*next != delimiter && *next != '\n' && *next != '\r'))
            next = read_field(csv, plan, at, &row[plan->at]);
        if (!next || (*next == delimiter) == is_last) return NULL;
    }
    if ((size_t)(next - reader->at) > CSV_MAX_RECORD || *next == 0) return NULL;
    if ((*next == '\r' && next + 1 == reader->end) || next[-1] == '\x1a') return NULL; /* perhaps the end of the file */
    return next + (next[0] == '\r' && next[1] == '\n' ? 2 : 1);
}

/* ---- rows ---- */

static status add_field(struct csv *csv, struct field_plan *plan, double *value) {
    if (plan->kind == FIELD_TEXT) {
        *plan->to = 0; /* a quote, the delimiter or the line end, which were already read */
        return plan->is_input                      ? csv_add_input(csv, plan->column, plan->from, value)
               : plan->is_group                    ? csv_add_group(csv, plan->from, value)
               : csv->roles[plan->column].booleans ? csv_add_boolean(csv, plan->column, plan->from, value)
                                                   : csv_add_label(csv, plan->from, value);
    }
    if (!plan->is_input) return OK;
    struct column_builder *builder = &csv->builders[csv->roles[plan->column].at];
    if (isnan(*value))
        column_builder_add_missing(builder);
    else
        column_builder_add_number(builder);
    return OK;
}

/* A column of numbers has no dates; a text in it is left to csv_next. */
static void add_orders(struct csv *csv, const double *row) {
    for (size_t i = 0; csv->orders && i < csv->n_fields; i++) {
        struct field_plan *plan = &csv->plans[i];
        if (plan->kind == FIELD_NUMBER || !csv->roles[plan->column].may_be_date || !plan->is_column) continue;
        *plan->to = 0;
        csv_order_add(csv, plan->column, plan->from, row);
    }
}

/* Reads the row at the reader to row (store.width) if it is plain and csv_plan_rows was called. */
static status csv_add_plain_row(struct csv *csv, double *row, bool *is_added) {
    struct csv_reader *reader = &csv->reader;
    *is_added = false;
    if (!csv->has_plans) return OK;
    bool has_more = false;
    char *next = read_row(csv, row);
    if (!next) TRY(csv_complete(reader, &has_more));
    if (has_more) next = read_row(csv, row);
    if (!next) return OK;
    *is_added = true;
    reader->record_line = reader->line++;
    reader->at = next;
    for (size_t i = 0; i < csv->n_fields && !csv->is_left_out; i++) {
        struct field_plan *plan = &csv->plans[i];
        status s = plan->kind != FIELD_IGNORED ? add_field(csv, plan, &row[plan->at]) : OK;
        if (s)
            TRY(csv_leave_out(csv, plan->column, csv_is_missing(csv, plan->from) ? BAD_MISSING : BAD_VALUE, plan->from,
                              s));
    }
    if (csv->is_left_out) return OK;
    add_orders(csv, row);
    csv_copy_targets(csv, row);
    return OK;
}

/* Call it after each row that is not plain, and before the first of a file. [is_text]: the target is a label. */
static status csv_plan_rows(struct csv *csv, bool is_text) {
    size_t size = csv->base.input_size, targets = csv->base.target_size;
    struct field_plan *plans;
    csv->has_plans = false;
    if (csv->records || csv->base.rows == 0) return OK; /* the first row decides about labels */
    if (csv->reader.delimiter == CSV_BLANKS || csv->filter || csv->n_columns > csv->n_own) return OK;
    if (csv->drops_missing_targets && is_text) return OK; /* a label may be a missing value */
    buffer_free(csv->plans);
    TRY(rows_alloc(csv->n_fields, sizeof *plans, csv->path, &csv->plans));
    plans = csv->plans;
    csv->has_plans = true;
    for (size_t i = 0; i < csv->n_columns; i++) {
        const struct role *role = &csv->roles[i];
        struct field_plan *plan = &plans[csv->fields[i]];
        if (role->at == NOT_USED && !role->may_be_date) continue;
        *plan = (struct field_plan){FIELD_NUMBER, .is_column = true, .column = i, .at = role->at};
        if (role->at == NOT_USED) plan->kind = FIELD_IGNORED, plan->at = 0;
        if (role->at == NOT_USED) continue;
        plan->is_input = plan->may_be_missing = !role->is_weight && !role->is_target && !role->is_group;
        if (role->is_weight) plan->at = size + targets;
        if (role->is_target) plan->at += size;
        plan->is_group = role->is_group;
        if (role->is_group) plan->at = csv_group_at(csv);
        if (role->is_target  ? is_text || role->booleans
            : role->is_group ? true
                             : plan->is_input && column_builder_wants_text(&csv->builders[role->at]))
            plan->kind = FIELD_TEXT;
    }
    return OK;
}

/* ---- new rows ---- */

/* New rows, for a trained model: those that it cannot read are counted by column and reason while the file is read, so
 * that one message names all of them. They are an error, or left out. What a missing value, an unknown category, a text
 * in a column of numbers or a label means was decided in training (preparation.h). */

#define MAX_KINDS 8 /* in a message */

/* Whether the preparation, if there is one, is that of the columns; another one is an error when it is used. */
static bool is_of_columns(const struct csv *csv, const struct preparation *p) {
    bool is_same = !p || p->count == csv->base.input_size;
    for (size_t i = 0; p && is_same && i < p->count; i++)
        is_same = strcmp(p->items[i].name, csv->names[csv->input_columns[i]]) == 0;
    return is_same;
}

/* Rows of a trained model are new, unless they are those of a program that embeds it. Call it when the columns are
 * chosen; [train]: the training file if this is a file of validation rows. */
static void csv_start_new(struct csv *csv, const struct dataset_config *config, const struct csv *train) {
    const struct preparation *p = config->request.preparation;
    csv->is_new = config->request.is_trained && !config->request.cells && is_of_columns(csv, p);
    csv->skips_bad = csv->is_new && config->request.skips_bad_rows;
    if (!csv->is_new) return;
    csv->prepared = arena_alloc(csv->arena, (csv->base.input_size + 1) * sizeof *csv->prepared);
    for (size_t i = 0; p && i < p->count; i++) csv->prepared[i] = &p->items[i];
    const struct csv *known = train ? train : csv;
    if (train ? known->has_given_classes : config->request.classes.count > 0) csv->known_classes = known;
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

/* Of new rows: STATUS_DATA if the model cannot read the value of an input. [is_missing]: it is a missing one; else, of
 * a column of numbers, *value is it. */
static status csv_check_new(const struct csv *csv, size_t column, const char *text, bool is_missing, double value) {
    const struct prepared_column *prepared = csv->prepared[csv->roles[column].at];
    enum column_type type = prepared ? prepared->type : COLUMN_NUMBER;
    double seconds;
    if (is_missing && csv_needs_value(csv, column))
        return status_data("%s: missing value; the model was trained without a rule for missing values of this column "
                           "(dataset.columns)",
                           csv_place(csv, column));
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

/* The current record is not a row of the source. */
static status csv_add_left_out(struct csv *csv) {
    struct source *source = &csv->base;
    TRY(array_grow(&source->left_out, &csv->left_out_capacity, source->left_out_count + 1, sizeof *source->left_out,
                   "the rows that are left out"));
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
    return status_data("%s; %zu row%s of %zu cannot be read%s%s. Correct %s%s", status_message(bad->first), bad->count,
                       text_plural(bad->count, "s"), rows, is_one ? "" : ": ", is_one ? "" : kinds,
                       is_one ? "it" : "them",
                       csv->orders ? "; rows of windows are adjacent, so that none can be left out"
                       : is_one    ? ", or leave it out with --skip-bad-rows"
                                   : ", or leave them out with --skip-bad-rows");
}

/* When all rows were read: a note about the rows that are left out, or STATUS_DATA with the first and the number of
 * each kind. */
static status csv_finish_new(struct csv *csv) {
    const struct bad_rows *bad = &csv->bad;
    size_t rows = csv->base.rows + csv->base.left_out_count;
    SCOPED_TEXT kinds = {0};
    if (bad->count == 0) return OK;
    add_kinds(csv, &kinds);
    if (!csv->skips_bad) return reject_rows(csv, rows, text_string(&kinds));
    if (csv->base.rows == 0)
        return status_data("%s; no row can be read: %s", status_message(bad->first), text_string(&kinds));
    csv_add_note(csv, arena_printf(csv->arena, "%zu of %zu rows %s left out (--skip-bad-rows): %s", bad->count, rows,
                                   bad->count == 1 ? "is" : "are", text_string(&kinds)));
    return OK;
}

/* ---- the order of time ---- */

/* Whether the rows of a table with dataset.window are in the order of time and have equal distances, as they are taken:
 * the dates of each column that has some are compared with those of the row above in the same series, also where the
 * column is not an input. A column of other dates, such as birthdays, is no warning as long as another one ascends, or
 * ascends by equal steps. */

#define CLOCK_CHANGE 3600.0 /* seconds by which clocks go back at the end of daylight saving time */

#define MAX_STEPS 8     /* different steps of a column that are counted one by one */
#define TOLERANCE 0.125 /* of equal steps: months have 28 to 31 days, and clocks of devices vary */

/* Steps that a calendar explains. */
enum step_kind { STEP_PLAIN, STEP_SUNDAY_NIGHT /* when clocks change */, STEP_WEEKEND /* from a Friday to a Monday */ };

/* Rows whose distance from the row above is about the same. */
struct csv_step {
    enum step_kind kind;
    double seconds; /* of the first of them */
    size_t count;
    const char *why; /* about the first of them */
};

/* The dates of a column. */
struct csv_order {
    const char *format;         /* of date_parse */
    bool has_last, is_adjacent; /* is_adjacent: the row above has a date */
    double last, group;         /* of the last row with a date, and its series */
    char above[32];             /* its text, or the start of it */
    size_t dates;
    size_t earlier, later;  /* rows before and after the row above */
    bool is_far;            /* one of them by more than CLOCK_CHANGE */
    const char *why;        /* about the first of them */
    struct csv_step *steps; /* (step_count), then one for all others (MAX_STEPS + 1) */
    size_t step_count;
};

static void csv_order_start(struct csv *csv, const struct dataset_config *config) {
    if (config->window.steps == 0 || config->request.cells) return;
    csv->orders = arena_alloc(csv->arena, csv->n_columns * sizeof *csv->orders);
    for (size_t i = 0; i < csv->n_columns; i++) {
        struct role *role = &csv->roles[i];
        bool is_input = role->at != NOT_USED && !role->is_target && !role->is_weight && !role->is_group;
        csv->orders[i] = (struct csv_order){.format = is_input ? csv->builders[role->at].date_format : NULL};
        role->may_be_date = i < csv->n_own && (is_input || role->at == NOT_USED);
    }
}

/* Numbers such as 20240531 are no dates, unless the config has the format. */
static bool parse(const struct csv_order *order, const char *text, double *seconds) {
    return (order->format || strpbrk(text, "-/")) && date_parse(text, order->format, seconds);
}

static void note_earlier(struct csv *csv, size_t column, const char *text, double seconds) {
    struct csv_order *order = &csv->orders[column];
    order->is_far |= order->last - seconds > CLOCK_CHANGE;
    if (order->earlier++ > 0) return;
    order->why = arena_printf(csv->arena, "%s: '%s' is before '%s' of the row above", csv_place(csv, column),
                              csv_printable(csv, text), csv_printable(csv, order->above));
}

static enum step_kind kind_of(double before, double after) {
    double day = date_part_of(after, DATE_WEEKDAY);
    if (day == 6 && date_part_of(after, DATE_HOUR) < 4) return STEP_SUNDAY_NIGHT;
    bool is_weekend = day == 0 && date_part_of(before, DATE_WEEKDAY) == 4 && after - before < 4 * 86400.0;
    return is_weekend ? STEP_WEEKEND : STEP_PLAIN;
}

static bool are_equal(double a, double b) { return fabs(a - b) <= TOLERANCE * b; }

static const char *duration(struct arena *arena, double seconds) {
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{86400, "day"}, {3600, "h"}, {60, "min"}, {0, "s"}};
    size_t i = 0;
    while (seconds < units[i].seconds) i++;
    double value = units[i].seconds > 0 ? seconds / units[i].seconds : seconds;
    bool is_plural = i == 0 && seconds > units[0].seconds;
    return arena_printf(arena, "%.4g %s%s", value, units[i].name, is_plural ? "s" : "");
}

static void add_step(struct csv *csv, size_t column, const char *text, double seconds) {
    struct csv_order *order = &csv->orders[column];
    double length = seconds - order->last;
    enum step_kind kind = kind_of(order->last, seconds);
    size_t at = 0;
    if (!order->steps) order->steps = arena_alloc(csv->arena, (MAX_STEPS + 1) * sizeof *order->steps);
    while (at < order->step_count && (order->steps[at].kind != kind || !are_equal(length, order->steps[at].seconds)))
        at++;
    struct csv_step *step = &order->steps[at];
    if (at == order->step_count && at < MAX_STEPS) order->step_count++;
    if (step->count++ > 0) return;
    step->kind = kind;
    step->seconds = length;
    step->why = arena_printf(csv->arena, "%s: '%s' is %s after '%s' of the row above", csv_place(csv, column),
                             csv_printable(csv, text), duration(csv->arena, length), csv_printable(csv, order->above));
}

void csv_order_add(struct csv *csv, size_t column, const char *text, const double *row) {
    struct csv_order *order = &csv->orders[column];
    double seconds, group = csv->group_column == NOT_USED ? 0 : row[csv_group_at(csv)];
    bool is_adjacent = order->is_adjacent;
    order->is_adjacent = !csv_is_missing(csv, text);
    if (!order->is_adjacent) return;
    csv->roles[column].may_be_date = parse(order, text, &seconds);
    if (!csv->roles[column].may_be_date) return;
    bool has_above = order->has_last && order->group == group;
    if (has_above && seconds < order->last) note_earlier(csv, column, text, seconds);
    if (has_above && seconds > order->last) order->later++;
    if (has_above && is_adjacent && seconds >= order->last) add_step(csv, column, text, seconds);
    order->has_last = true;
    order->last = seconds;
    order->group = group;
    order->dates++;
    snprintf(order->above, sizeof order->above, "%s", text);
}

/* Clocks that go back once or twice a year are no disorder. */
static bool is_disordered(const struct csv_order *order) {
    return order->is_far || (order->earlier > 1 && order->earlier > order->dates / 100);
}

/* The step that the others should have: the most frequent one if it is usual, else the first; NULL: the rows have no
 * distances that could be compared. */
static const struct csv_step *expected_step(const struct csv_order *order, size_t *total, bool *is_usual) {
    const struct csv_step *most = NULL, *first = NULL;
    size_t zeros = 0;
    *total = order->steps ? order->steps[MAX_STEPS].count : 0;
    for (size_t i = 0; i < order->step_count; i++) {
        const struct csv_step *step = &order->steps[i];
        *total += step->count;
        if (step->seconds <= 0) zeros += step->count;
        if (step->seconds > 0 && !first) first = step;
        if (step->seconds > 0 && (!most || step->count > most->count)) most = step;
    }
    if (*total < 3 || zeros * 4 >= *total) return NULL; /* several rows of a time */
    *is_usual = most && most->count * 2 > *total;
    return *is_usual ? most : first;
}

static bool is_expected(const struct csv_step *step, const struct csv_step *expected) {
    if (step->kind == STEP_WEEKEND && are_equal(expected->seconds, 86400)) return true;
    if (step->kind == STEP_SUNDAY_NIGHT && are_equal(fabs(step->seconds - expected->seconds), CLOCK_CHANGE))
        return true;
    return are_equal(step->seconds, expected->seconds);
}

/* A warning about rows of unequal distances; NULL: there are none. */
static const char *explain_steps(const struct csv *csv, const struct csv_order *order) {
    bool is_usual;
    size_t total, unequal = 0;
    const char *why = NULL;
    const struct csv_step *expected = expected_step(order, &total, &is_usual);
    for (size_t i = 0; expected && i <= MAX_STEPS; i++) {
        const struct csv_step *step = &order->steps[i];
        if (step->count == 0 || (i < MAX_STEPS && is_expected(step, expected))) continue;
        if (!why) why = step->why;
        unequal += step->count;
    }
    if (!why) return NULL;
    return arena_printf(
        csv->arena,
        "%s and the %s step is %s, so %zu of %zu steps differ; dataset.window takes rows as equal steps of time: add "
        "the missing rows, or number the parts without gaps in a column for dataset.window.group",
        why, is_usual ? "usual" : "first", duration(csv->arena, expected->seconds), unequal, total);
}

static void warn_of_order(struct csv *csv, const struct csv_order *found) {
    const char *more =
        found->earlier == 1 ? "" : arena_printf(csv->arena, ", and %zu more rows are like it", found->earlier - 1);
    csv->base.warning = arena_printf(csv->arena, "%s%s; dataset.window takes rows in the order of %s", found->why, more,
                                     csv->records                    ? "dataset.query: write one with `order by`"
                                     : csv->group_column == NOT_USED ? "the file: sort them by time"
                                                                     : "the file: sort those of each series by time");
}

static void csv_order_finish(struct csv *csv) {
    const struct csv_order *found = NULL;
    const char *steps = NULL;
    bool has_order = false;
    for (size_t i = 0; csv->orders && i < csv->n_columns; i++) {
        const struct csv_order *order = &csv->orders[i];
        if (!csv->roles[i].may_be_date || order->earlier + order->later == 0) continue; /* or dates all alike */
        if (is_disordered(order)) {
            found = found ? found : order;
            continue;
        }
        const char *unequal = explain_steps(csv, order);
        if (!unequal) return;
        steps = has_order ? steps : unequal;
        has_order = true;
    }
    if (has_order)
        csv->base.warning = steps;
    else if (found)
        warn_of_order(csv, found);
}

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
    if (*text == 0)
        return status_data("%s: missing value%s", csv_place(csv, column),
                           csv->roles[column].is_target && !csv->orders
                               ? "; write dataset.drop_missing_targets: true to leave out such rows"
                               : "");
    return status_data("%s: '%s' is not %s%s", csv_place(csv, column), csv_printable(csv, text), what, advice);
}

/* As pandas: 999 is also 999.0 and 9.99e2; but no code such as 0999 or -0999. */
static bool equals_missing_number(const struct csv *csv, const char *text) {
    char stripped[CSV_UNGROUPED], ungrouped[CSV_UNGROUPED], decimal = csv->decimal;
    const char *bare = csv_ungroup(csv_strip(text, csv->strip, stripped), csv->thousands, ungrouped);
    double value;
    if (csv_is_code(text + (*text == '-' || *text == '+')) || !csv_decimal(bare, &decimal, &value)) return false;
    for (size_t i = 0; csv->missing[i]; i++)
        if (csv_compare(bare, value, csv->missing[i], csv->missing_numbers[i]) == 0 && !isnan(csv->missing_numbers[i]))
            return true;
    return false;
}

bool csv_is_missing(const struct csv *csv, const char *text) {
    for (size_t i = 0; csv->starts_missing[(unsigned char)*text] && csv->missing[i]; i++)
        if (strcmp(csv->missing[i], text) == 0) return true;
    return csv->has_missing_number && equals_missing_number(csv, text);
}

/* Reads a number as the file writes them. */
static bool csv_read_number(struct csv *csv, const char *text, double *value) {
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
    SCOPED_TEXT advice = {0};
    text_add(&advice, advise_style(csv, text));
    column_builder_explain_text(builder, &advice);
    return csv_reject_value(csv, column, text, "a number", text_string(&advice));
}

/* Makes a note about the first whole number of the column that a number does not hold. */
static void note_inexact(struct csv *csv, size_t column, const char *text, double value) {
    struct role *role = &csv->roles[column];
    const char *name = csv_printable(csv, csv->names[column]), *advice = "";
    bool is_real = csv->numbers && column < csv->n_own && csv->numbers[column].is_real;
    if (role->has_inexact || is_real || !csv_is_inexact(text, value)) return;
    role->has_inexact = true;
    if (!role->is_target)
        advice = arena_printf(csv->arena, "; if they are identifiers, write dataset.columns: {%s: ignore}, or category",
                              name);
    csv_add_note(csv, arena_printf(csv->arena,
                                   "column '%s': %s of %s %zu: whole numbers from 2^53 on lose their last digits%s",
                                   name, csv_printable(csv, text), csv->input->unit, csv->reader.record_line, advice));
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
    note_inexact(csv, column, text, *value);
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
    if (!is_number) return csv_reject_value(csv, column, text, "a number", advise_style(csv, text));
    note_inexact(csv, column, text, *value);
    return OK;
}

static status add_weight(struct csv *csv, size_t column, const char *text, double *value) {
    bool is_number = csv_read_number(csv, text, value);
    return is_number ? OK : csv_reject_value(csv, column, text, "a number", ", and dataset.weights names this column");
}

status csv_add_group(struct csv *csv, const char *text, double *value) {
    size_t index;
    if (csv_is_missing(csv, text))
        return status_data("%s: missing value, and %s names this column", csv_place(csv, csv->group_column),
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

bool csv_takes_number(const struct csv *csv, size_t column, double value) {
    if (!csv->numbers || !csv->roles || csv->has_missing_number || csv->is_new || !isfinite(value)) return false;
    const struct role *role = &csv->roles[column];
    bool is_known = csv->base.rows > 0 && !csv->has_labels && !role->booleans; /* the first target decides */
    if (role->at == NOT_USED || role->is_filtered || role->may_be_date || role->is_group) return false;
    bool may_be_inexact = fabs(value) >= (double)CSV_EXACT && !role->has_inexact && !csv->numbers[column].is_real;
    if (may_be_inexact && !role->is_weight) return false;
    if (role->is_target) return is_known && !csv->drops_missing_targets;
    return role->is_weight || !column_builder_wants_text(&csv->builders[role->at]);
}

status csv_make_fields(struct csv_reader *reader, const char *path, size_t count) {
    free(reader->fields);
    reader->fields = calloc(count + 1, sizeof *reader->fields);
    reader->count = reader->capacity = reader->fields ? count : 0;
    return reader->fields ? OK : status_memory("the columns of %s", path);
}

const char *csv_missing_in(const struct csv *csv, size_t column) {
    bool is_listed = csv->missing && !csv->roles[column].is_target && !csv->roles[column].is_weight;
    return is_listed ? csv->missing[0] : "";
}

void csv_format_real(const struct csv *csv, size_t column, double value, char text[CSV_REAL]) {
    int precision = is_compared(csv, column) ? 15 : 17;
    if (fabs(value) >= 1e15 && fabs(value) < (double)CSV_EXACT && value == floor(value)) precision = 16; /* no 1e+15 */
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
    if (!config->filter || config->request.cells) return OK;
    TRY(row_filter_parse(config->filter, csv->arena, &csv->filter));
    size_t count = csv->filter->column_count;
    csv->filter_columns = arena_alloc(csv->arena, (count + 1) * sizeof *csv->filter_columns);
    for (size_t i = 0; i < count; i++) {
        const char *name = csv->filter->columns[i];
        TRY(csv_find_column(csv, name, "dataset.filter", &csv->filter_columns[i]));
        if (csv->filter_columns[i] >= csv->n_own)
            return status_usage("dataset.filter: '%s' is an expression of dataset.columns, which it cannot read",
                                csv_printable(csv, name));
        csv->roles[csv->filter_columns[i]].is_filtered = true;
    }
    return OK;
}

static status note_filtered(struct csv *csv) {
    size_t rows = csv->base.rows + csv->base.left_out_count;
    if (!csv->filter) return OK;
    if (csv->kept == 0 && rows > 0) return status_data("%s: dataset.filter leaves out all %zu rows", csv->path, rows);
    csv_add_note(csv, arena_printf(csv->arena, "dataset.filter keeps %zu of %zu row%s", csv->kept, rows,
                                   text_plural(rows, "s")));
    return OK;
}

static bool lacks_target(const struct csv *csv) {
    for (size_t i = 0; csv->drops_missing_targets && i < csv->base.target_size; i++)
        if (csv->target_columns[i] < csv->n_own &&
            csv_is_missing(csv, csv->reader.fields[csv->fields[csv->target_columns[i]]].text))
            return true;
    return false;
}

static status add_value(struct csv *csv, size_t column, const char *text, double *row) {
    const struct role *role = &csv->roles[column];
    return role->is_group    ? csv_add_group(csv, text, &row[csv_group_at(csv)])
           : role->is_weight ? add_weight(csv, column, text, &row[values_of(csv)])
           : role->is_target ? add_target(csv, column, text, &row[csv->base.input_size + role->at])
                             : csv_add_input(csv, column, text, &row[role->at]);
}

/* Adds a number that csv_takes_number. */
static void add_number(struct csv *csv, size_t column, double value, double *row) {
    const struct role *role = &csv->roles[column];
    bool is_input = !role->is_weight && !role->is_target;
    row[role->is_weight ? values_of(csv) : role->is_target ? csv->base.input_size + role->at : role->at] = value;
    if (is_input) column_builder_add_number(&csv->builders[role->at]);
}

/* ---- computed columns ---- */

/* Names the operands with their values: "height is 0". */
static status reject_result(const struct csv *csv, size_t column, double value) {
    const struct computed_column *c = &csv->computed[column - csv->n_own];
    SCOPED_TEXT operands = {0};
    for (size_t i = 0; i < c->expression->name_count; i++)
        text_printf(&operands, "%s%s is %g", i ? ", " : "", csv_printable(csv, csv->names[c->operands[i]]),
                    c->values[i]);
    return status_data("%s: %s is %s (%s)", csv_place(csv, column), csv_printable(csv, c->text),
                       isnan(value) ? "not a number" : "infinite", text_string(&operands));
}

/* The value of an operand in the current record; NAN: missing. */
static status read_operand(struct csv *csv, size_t column, size_t operand, double *value) {
    struct computed_column *c = &csv->computed[column - csv->n_own];
    const char *text = csv->reader.fields[csv->fields[c->operands[operand]]].text;
    *value = NAN;
    if (*text == 0 || csv_is_missing(csv, text) || csv_read_number(csv, text, value)) return OK;
    for (size_t pair = 0; pair < BOOLEAN_PAIRS; pair++)
        if (boolean_read(text, pair, value)) return OK;
    return csv_leave_out(
        csv, c->operands[operand], BAD_VALUE, text,
        csv_reject_value(csv, c->operands[operand], text, "a number",
                         arena_printf(csv->arena, ", and dataset.columns.%s computes with it", csv->names[column])));
}

/* Adds the value of a computed column to the row. Where an operand is missing, it is, too. */
static status add_computed(struct csv *csv, size_t column, double *row) {
    struct computed_column *c = &csv->computed[column - csv->n_own];
    const struct role *role = &csv->roles[column];
    bool is_missing = false;
    if (role->at == NOT_USED) return OK;
    for (size_t i = 0; i < c->expression->name_count; i++) {
        TRY(read_operand(csv, column, i, &c->values[i]));
        if (csv->is_left_out) return OK;
        is_missing = is_missing || isnan(c->values[i]);
    }
    double value = is_missing ? NAN : expression_evaluate(c->expression, c->values);
    if (!is_missing && !isfinite(value))
        return csv_leave_out(csv, column, BAD_VALUE, c->text, reject_result(csv, column, value));
    if (role->is_target && csv->base.rows == 0 && !csv->is_kind_known) csv->has_labels = false;
    if (role->is_target && is_missing)
        return csv_leave_out(csv, column, BAD_MISSING, "", csv_reject_value(csv, column, "", "", ""));
    if (role->is_target) {
        row[csv->base.input_size + role->at] = value;
        return OK;
    }
    if (csv->is_new && is_missing) {
        status s = csv_check_new(csv, column, "", true, value);
        if (s) return csv_leave_out(csv, column, BAD_MISSING, "", s);
    }
    row[role->at] = value;
    if (is_missing)
        column_builder_add_missing(&csv->builders[role->at]);
    else
        column_builder_add_number(&csv->builders[role->at]);
    return OK;
}

static status reject_fields(const struct csv *csv) {
    return status_data("%s:line %zu: there are %zu fields, but the header has %zu", csv->path, csv->reader.record_line,
                       csv->reader.count, csv->n_fields);
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
    for (size_t i = 0; i < csv->n_own && !csv->is_left_out; i++) {
        if (csv->roles[i].at == NOT_USED) continue;
        if (csv->numbers && csv->numbers[i].is_given) {
            add_number(csv, i, csv->numbers[i].value, row);
            continue;
        }
        const char *text = csv->reader.fields[csv->fields[i]].text;
        status s = add_value(csv, i, text, row);
        if (s) TRY(csv_leave_out(csv, i, csv_is_missing(csv, text) ? BAD_MISSING : BAD_VALUE, text, s));
    }
    for (size_t i = csv->n_own; i < csv->n_columns && !csv->is_left_out; i++) TRY(add_computed(csv, i, row));
    if (csv->is_left_out) return OK;
    for (size_t i = 0; csv->orders && i < csv->n_own; i++)
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
    csv->store.max_bytes = config->request.cells ? SIZE_MAX : (size_t)config->cache_mb << 20;
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
    csv->base.is_small = !csv->store.is_large;
    csv->base.access = row_store_is_in_memory(&csv->store) ? ROWS_IN_MEMORY : ROWS_STORED;
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
    csv->missing_numbers = arena_alloc(csv->arena, (config->missing.count + 1) * sizeof *csv->missing_numbers);
    for (size_t i = 0; i < config->missing.count; i++) {
        char decimal = 0; /* '.' or ',' */
        texts[i] = arena_copy(csv->arena, config->missing.items[i]);
        if (csv_decimal(texts[i], &decimal, &csv->missing_numbers[i]))
            csv->has_missing_number = true;
        else
            csv->missing_numbers[i] = NAN;
    }
    csv->missing = config->missing.count ? texts : usual_missing;
    for (size_t i = 0; csv->missing[i]; i++) csv->starts_missing[(unsigned char)*csv->missing[i]] = true;
}

/* The type of a column that another file decides: the training file or a checkpoint; false: none does. */
static bool known_type(const struct csv *csv, const struct dataset_config *config, const struct csv *train,
                       size_t input, struct raw_column *known) {
    const struct preparation *p = config->request.preparation;
    const char *name = csv->names[csv->input_columns[input]];
    *known = (struct raw_column){.type = COLUMN_NUMBER};
    if (train) *known = train->raw[input]; /* its columns have the same order */
    bool is_prepared = !train && p && input < p->count && strcmp(p->items[input].name, name) == 0;
    if (is_prepared)
        *known = (struct raw_column){.type = p->items[input].type, .date_format = p->items[input].date_format};
    return train || config->request.is_trained;
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

/* The texts that are kept, in the order of the file, in which they are in memory. */
static status check_texts(const struct csv *csv, size_t column, const struct raw_column *raw,
                          const struct text_pool *pool) {
    for (size_t i = 0; raw->texts.count > 0 && i < pool->count; i++)
        if (!csv_is_utf8(pool->items[i].text))
            return status_data("%s: column '%s': the text '%s' is not UTF-8", csv->path,
                               csv_printable(csv, csv->names[column]), csv_printable(csv, pool->items[i].text));
    return OK;
}

static status finish_column(struct csv *csv, size_t input) {
    size_t row;
    status s = column_builder_finish(&csv->builders[input], csv->arena, &csv->raw[input], &csv->maps[input], &row);
    if (s && row != SIZE_MAX)
        return status_prefix(s, "%s:%s %zu", csv_path_of(csv, row), csv->input->unit, csv_line_of(csv, row));
    if (s) return status_prefix(s, "%s", csv->path);
    return check_texts(csv, csv->input_columns[input], &csv->raw[input], &csv->builders[input].pool);
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

/* Of files with another delimiter than a semicolon, whose commas are not read as decimal commas without csv.decimal. */
static void note_decimal_commas(struct csv *csv) {
    for (size_t i = 0; i < csv->base.input_size; i++) {
        const char *found = column_builder_decimal_comma(&csv->builders[i]);
        if (!found) continue;
        csv_add_note(csv,
                     arena_printf(csv->arena,
                                  "column '%s' is a category of numbers with decimal commas, such as '%s'; if they "
                                  "are numbers, set dataset.csv.decimal: ','",
                                  csv_printable(csv, csv->builders[i].name), csv_printable(csv, found)));
        return;
    }
}

/* A missing value of an input may be replaced, one of a target may not. */
static status reject_missing_target(struct csv *csv, size_t target) {
    const double *values;
    size_t got, row = 0, at = csv->base.input_size + target;
    for (; row < csv->base.rows; row++) {
        TRY(row_store_read(&csv->store, row, 1, &values, &got));
        if (isnan(values[at])) break;
    }
    return status_data("%s: missing value, and the column is a target, too; fill it in the file, as pandas' "
                       "interpolate() does, or remove the row",
                       csv_place_of(csv, row, csv->target_columns[target]));
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
    note_decimal_commas(csv);
    for (size_t i = 0; i < csv->base.input_size; i++)
        if (csv->raw[i].type == COLUMN_CATEGORY && csv->raw[i].are_numbers)
            csv_note_merged(csv, csv->input_columns[i], &csv->builders[i].pool, &csv->raw[i].texts);
    csv->base.columns = csv->raw;
    return OK;
}

/* ---- the source ---- */

/* Reads the current file and starts the reader. */
static status csv_read_text(struct csv *csv, const struct dataset_config *config) {
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
    for (size_t i = 0; i < csv->n_own && !*out; i++) {
        const struct role *role = &csv->roles[i];
        *out = role->is_target && role->at != NOT_USED && column_rule_find(&csv->rules, csv->names[i]);
    }
    if (!*out || may_be_text) return OK;
    return status_usage("dataset.columns: `category` is for a target that is one class, and this loss takes %s",
                        csv->base.target_size > 1 ? "several targets" : "numbers");
}

static status open_all(struct csv *csv, const struct dataset_config *config, bool wants_classes,
                       const struct csv *train, bool is_validation) {
    const char *path = csv->path;
    TRY(csv_find_files(csv, config, is_validation));
    TRY(csv_start_file(csv, config, is_validation, 0));
    if (train && csv->decimal == 0 && !csv_is_undecided(train->decimal)) csv->decimal = train->decimal;
    TRY(csv_read_header(csv, config, train));
    csv->are_targets_inputs =
        config->window.steps > 0 && !wants_classes && config->request.target_range == TARGETS_ARE_ANY;
    TRY(csv_choose_columns(csv, config, train));
    TRY(start_filter(csv, config));
    start_columns(csv, config, train);
    csv_start_new(csv, config, train);
    csv_order_start(csv, config);
    bool is_binary =
        !wants_classes && !config->request.has_losses && config->request.target_range == TARGETS_ARE_PROBABILITIES;
    bool has_target = csv->base.target_size == 1 && csv->roles[csv->target_columns[0]].is_target;
    bool may_be_text = (wants_classes || is_binary) && has_target;
    if (!train && may_be_text && config->request.classes.count) csv_copy_classes(csv, &config->request.classes);
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
    csv->base.labels = (struct string_list){.items = csv->classes, .count = csv->n_classes};
    csv->base.input_dims = 1;
    csv->base.input_shape[0] = (int64_t)csv->base.input_size;
    return OK;
}

void csv_close(struct source *source) {
    struct csv *csv = (struct csv *)source;
    for (size_t i = 0; csv->builders && i < csv->base.input_size; i++) column_builder_free(&csv->builders[i]);
    if (csv->input->close) csv->input->close(csv);
    free(csv->records);
    csv_free(&csv->reader);
    for (size_t i = 0; i < csv->part_count; i++) buffer_free(csv->parts[i].text);
    for (size_t i = 0; csv->maps && i < values_of(csv); i++) free(csv->maps[i]);
    row_store_free(&csv->store);
    free(csv->base.left_out);
    status_free(csv->bad.first);
    text_pool_free(&csv->labels);
    text_pool_free(&csv->groups);
    buffer_free(csv->plans);
    arena_destroy(csv->arena);
    free(csv);
}

static status create(const struct dataset_format *format, const char *path, struct csv **out) {
    const struct csv_input *input = format->records;
    struct csv *csv = calloc(1, sizeof *csv);
    void *records = input->state_bytes ? calloc(1, input->state_bytes) : NULL;
    if (!csv || (input->state_bytes && !records)) {
        free(csv);
        free(records);
        return status_memory("a dataset");
    }
    csv->base.format = format;
    csv->base.is_small = true;
    csv->input = input;
    csv->records = records;
    csv->decimal = '.';
    csv->weight_column = csv->group_column = NOT_USED;
    csv->arena = csv->labels.arena = csv->groups.arena = arena_create();
    csv->path = arena_copy(csv->arena, path);
    *out = csv;
    return OK;
}

status csv_open_records(const struct dataset_format *format, const struct dataset_config *config, bool is_validation,
                        struct csv **out) {
    struct csv *csv = NULL;
    TRY(create(format, is_validation ? config->validation.path : config->path, &csv));
    status s = csv_find_files(csv, config, is_validation);
    if (s) csv_close(&csv->base);
    if (!s) *out = csv;
    return s;
}

static status open_source(const struct dataset_format *format, const struct dataset_config *config, const char *path,
                          bool wants_classes, const struct source *train, bool *is_whole, struct source **out) {
    struct csv *csv = NULL;
    TRY(create(format, path, &csv));
    csv->is_whole = *is_whole;
    bool is_table = train && train->format == format;
    status s = open_all(csv, config, wants_classes, is_table ? (const struct csv *)train : NULL, train != NULL);
    *is_whole = csv->reader.is_not_utf8;
    if (s) csv_close(&csv->base);
    if (!s) *out = &csv->base;
    return s;
}

status csv_open(const struct dataset_format *format, const struct dataset_config *config, const char *path,
                bool wants_classes, const struct source *train, struct source **out) {
    bool is_whole = false;
    status s = open_source(format, config, path, wants_classes, train, &is_whole, out);
    if (!s || !is_whole) return s;
    status_free(s); /* a file is not UTF-8: its encoding is recognised by all of it */
    return open_source(format, config, path, wants_classes, train, &is_whole, out);
}

static status start_file(struct csv *csv, const struct dataset_config *config, bool is_validation) {
    (void)is_validation;
    return csv_read_text(csv, config);
}

static status next_record(struct csv *csv, bool *has_record) { return csv_next(&csv->reader, has_record); }

static status open_csv(const struct dataset_config *config, const char *path, bool wants_classes,
                       const struct source *train, struct source **out) {
    return csv_open(&dataset_csv, config, path, wants_classes, train, out);
}

static void copy_values(const double *values, double *const *maps, size_t count, double *out) {
    memcpy(out, values, count * sizeof *out);
    for (size_t i = 0; i < count; i++)
        if (maps[i] && !isnan(values[i])) out[i] = maps[i][(size_t)values[i]];
}

static status read_column(struct csv *csv, size_t at, size_t first, size_t count, double *values) {
    const double *map = csv->maps[at];
    TRY(row_store_read_column(&csv->store, at, first, count, values));
    for (size_t i = 0; map && i < count; i++)
        if (!isnan(values[i])) values[i] = map[(size_t)values[i]];
    return OK;
}

status csv_read_rows(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    struct csv *csv = (struct csv *)source;
    size_t size = source->input_size, target_size = source->target_size;
    if (!inputs && target_size == 1 && count > 1) return read_column(csv, size, first, count, targets);
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

status csv_read_column(struct source *source, size_t column, size_t first, size_t count, double *values) {
    return read_column((struct csv *)source, column, first, count, values);
}

void csv_release(struct source *source, size_t row) { row_store_release(&((struct csv *)source)->store, row); }

void csv_will_read(const struct source *source, size_t row) {
    row_store_will_read(&((const struct csv *)source)->store, row);
}

status csv_read_extra(struct source *source, enum row_value extra, size_t first, size_t count, double *values) {
    struct csv *csv = (struct csv *)source;
    bool is_group = extra == ROW_GROUP;
    size_t at = is_group ? csv_group_at(csv) : values_of(csv);
    for (size_t done = 0, got; done < count; done += got) {
        const double *rows;
        TRY(row_store_read(&csv->store, first + done, count - done, &rows, &got));
        for (size_t i = done; i < done + got; i++, rows += csv->store.width)
            values[i] = is_group ? csv->group_values[(size_t)rows[at]] : rows[at];
    }
    return OK;
}

void csv_describe(const struct source *source, enum row_value kind, size_t row, size_t element, struct text *out) {
    const struct csv *csv = (const struct csv *)source;
    size_t column = kind == ROW_WEIGHT  ? csv->weight_column
                    : kind == ROW_GROUP ? csv->group_column
                                        : (kind == ROW_TARGET ? csv->target_columns : csv->input_columns)[element];
    text_add(out, csv_place_of(csv, row, column));
}

/* The columns for the checkpoint, which stores UTF-8 only. */
struct column_list csv_columns(const struct source *source, struct arena *arena) {
    struct column_list list = csv_columns_of((const struct csv *)source, arena);
    for (size_t i = 0; i < list.count; i++)
        if (!csv_is_utf8(list.items[i].name)) return (struct column_list){0};
    return list;
}

static const struct csv_input input = {
    .unit = "line", .header = "line 1", .reads_many = true, .start = start_file, .next = next_record};
static const char *const extensions[] = {".csv", ".tsv", ".csv.gz", ".tsv.gz", ".data", NULL};
const struct dataset_format dataset_csv = {.name = "csv",
                                           .keys = KEYS_OF_NAMES | KEY_COLUMNS | KEY_CSV,
                                           .extensions = extensions,
                                           .reads_patterns = true,
                                           .open = open_csv,
                                           .records = &input,
                                           .inspect = csv_inspect,
                                           CSV_FUNCTIONS,
                                           .pytorch = "read_csv({path}, {inputs}, {targets}{csv})"};
