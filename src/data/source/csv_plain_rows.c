/* Rows whose fields are plain: numbers, texts and missing values without doubled quotes, line ends inside of quotes and
 * blanks around them. Their numbers are read where they stand, without csv_next's list of fields. Nothing of the text
 * is changed before the whole row was read, so that csv_next can read every other row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/source/csv_source.h"

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

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

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
    double result = digits <= CSV_EXACT ? (double)digits / powers[behind] : csv_quotient(digits, (int)behind);
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
    return next;
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

status csv_add_plain_row(struct csv *csv, double *row, bool *is_added) {
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

status csv_plan_rows(struct csv *csv, bool is_text) {
    size_t size = csv->base.input_size, targets = csv->base.target_size;
    csv->has_plans = false;
    if (csv->records || csv->base.rows == 0) return OK; /* the first row decides about labels */
    if (csv->reader.delimiter == CSV_BLANKS || csv->filter) return OK;
    if (csv->drops_missing_targets && is_text) return OK; /* a label may be a missing value */
    struct field_plan *plans = realloc(csv->plans, csv->n_fields * sizeof *plans);
    if (!plans) return status_memory("%zu fields of %s", csv->n_fields, csv->path);
    csv->plans = plans;
    csv->has_plans = true;
    memset(plans, 0, csv->n_fields * sizeof *plans);
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
