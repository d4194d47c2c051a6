/* Columns of a table whose rows were read once. */
#include "data/source/column_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "data/columns/date.h"
#include "data/csv/csv.h"
#include "data/source/csv_source.h"

/* ---- numbers as people write them ---- */

/* What a person or a spreadsheet writes into a column of numbers. */

#define MAX_UNIT 12 /* bytes */

bool suggest_is_mark(const char *text) {
    static const char *const marks[] = {"?",      "??",   "-",    "--",      "---",           ".",         "..",
                                        "*",      "na",   "n.a.", "n.a",     "n/a",           "#n/a",      "nan",
                                        "none",   "null", "nil",  "missing", "not available", "unknown",   "\u2013",
                                        "\u2014", "inf",  "-inf", "+inf",    "infinity",      "-infinity", NULL};
    for (size_t i = 0; marks[i]; i++)
        if (strcasecmp(marks[i], text) == 0) return true;
    return false;
}

static const char *const currencies[] = {"$", "\u20ac", "\u00a3", "\u00a5", "\u20b9", NULL};
static const char *const separators[] = {",", ".", "'", " ", "\u2019", "\u00a0", "\u202f", NULL};

static void skip_blanks(const char **at) {
    for (size_t n; (n = csv_starts_with(*at, csv_blanks));) *at += n;
}

/* NUMBER_CURRENCY with the bit of the currency; 0: there is none. */
static unsigned skip_currency(const char **at) {
    for (unsigned i = 0; currencies[i]; i++) {
        size_t n = strlen(currencies[i]);
        if (strncmp(*at, currencies[i], n) != 0) continue;
        *at += n;
        skip_blanks(at);
        return NUMBER_CURRENCY | NUMBER_DOLLAR << i;
    }
    return 0;
}

static size_t count_digits(const char *text) { return strspn(text, "0123456789"); }

/* Groups of three digits behind the first one to three, all with the same separator: its bytes; 0: there are none. */
static size_t skip_groups(const char **at) {
    size_t first = csv_starts_with(*at, separators), n = first;
    const char *separator = *at;
    if (!n || count_digits(*at + n) != 3) return 0;
    while (n == first && memcmp(*at, separator, n) == 0 && count_digits(*at + n) == 3) {
        *at += n + 3;
        n = csv_starts_with(*at, separators);
    }
    return first;
}

/* Skips digits with separators of thousands or decimals; false: there are none. */
static bool skip_number(const char **at, unsigned *styles) {
    size_t digits = count_digits(*at);
    if (digits == 0 && **at != '.') return false;
    bool is_fraction = **at == '0';
    *at += digits;
    char separator = **at;
    bool has_groups = digits > 0 && digits <= 3 && separator != '.' && skip_groups(at) > 0;
    if (has_groups) *styles |= NUMBER_SEPARATORS;
    /* 1.234.567 or 1.234,5; 1.234 alone is a number, unless decimals have a comma */
    if (digits > 0 && digits <= 3 && !is_fraction && separator == '.' && count_digits(*at + 1) == 3 &&
        ((*at)[4] == '.' || (*at)[4] == ',' || (*at)[4] == 0) && skip_groups(at) > 0)
        *styles |= NUMBER_SEPARATORS;
    bool is_comma = **at == ',' && count_digits(*at + 1) > 0;
    if (is_comma && !(*styles & NUMBER_SEPARATORS)) *styles |= NUMBER_COMMA;
    if (**at == '.' || is_comma) *at += 1 + count_digits(*at + 1);
    return true;
}

static bool is_unit(const char *text) {
    if (strlen(text) > MAX_UNIT) return false;
    for (; *text; text++)
        if ((unsigned char)*text < 0x80 && !strchr(" /abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", *text))
            return false;
    return true;
}

static bool skip_sign(const char **at) {
    bool has_sign = **at == '-' || **at == '+';
    *at += has_sign;
    return has_sign;
}

static bool skip_parenthesis(const char **at, char parenthesis) {
    bool is_there = **at == parenthesis;
    *at += is_there;
    skip_blanks(at);
    return is_there;
}

unsigned suggest_number_style(const char *text) {
    unsigned styles = 0;
    double number;
    skip_blanks(&text);
    if (csv_number(text, &number) && !isfinite(number)) return NUMBER_INFINITE;
    bool has_sign = skip_sign(&text);
    if (strcasecmp(text, "inf") == 0 || strcasecmp(text, "infinity") == 0) return NUMBER_INFINITE;
    bool is_open = !has_sign && skip_parenthesis(&text, '(');
    styles |= skip_currency(&text);
    if (!is_open && !has_sign && !(is_open = skip_parenthesis(&text, '('))) skip_sign(&text);
    if (!skip_number(&text, &styles)) return 0;
    skip_blanks(&text);
    if (is_open && skip_parenthesis(&text, ')')) {
        styles |= NUMBER_PARENTHESES;
        is_open = false;
    }
    styles |= skip_currency(&text);
    if (*text == '%') {
        styles |= NUMBER_PERCENT;
        text++;
    }
    if (is_open && !skip_parenthesis(&text, ')')) return 0;
    if (is_open) styles |= NUMBER_PARENTHESES;
    if (*text == 0) return styles;
    unsigned marks = NUMBER_CURRENCY | NUMBER_PERCENT | NUMBER_PARENTHESES;
    return styles & marks || !is_unit(text) ? 0 : styles | NUMBER_UNIT;
}

bool suggest_strip(unsigned styles, struct text *out) {
    unsigned known = NUMBER_PERCENT | NUMBER_CURRENCY | NUMBER_SEPARATORS | NUMBER_PARENTHESES, found = 0;
    const char *currency = NULL;
    for (unsigned i = 0; currencies[i]; i++) {
        known |= NUMBER_DOLLAR << i;
        if (!(styles & NUMBER_DOLLAR << i)) continue;
        currency = currencies[i];
        found++;
    }
    found += (styles & NUMBER_PERCENT) != 0;
    if (found > 1 || (found == 0 && !(styles & NUMBER_PARENTHESES)) || styles & ~known) return false;
    const char *marks[] = {styles & NUMBER_PERCENT ? "%" : NULL, currency, styles & NUMBER_PARENTHESES ? "()" : NULL};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (marks[i] && !(out->length && strstr(text_string(out), marks[i]))) text_add(out, marks[i]);
    return true;
}

void suggest_add_styles(unsigned styles, struct text *out) {
    static const char *const names[] = {"percent signs", "currency signs",  "thousands separators", "decimal commas",
                                        "units",         "infinite values", "parentheses"};
    size_t count = 0, last = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (styles >> i & 1) last = i;
    for (size_t i = 0; i <= last; i++)
        if (styles >> i & 1) text_printf(out, "%s%s", count++ == 0 ? "" : i == last ? " and " : ", ", names[i]);
}

/* ---- columns ---- */

/* A mark is kept apart until all rows are read, because what it means depends on the other values of the file. */

const char suggest_blob[] = "(blob)";

static void add_missing(struct column_view *c, const char *text) {
    size_t i = 0;
    while (csv_missing_text(i) && strcmp(csv_missing_text(i), text) != 0) i++;
    c->missing_texts |= 1u << i;
    c->missing++;
}

/* Of a value that is not a number: how it is written, and whether it is a date. */
static void examine_text(struct column_view *c, const char *text, size_t line) {
    unsigned styles = suggest_number_style(text);
    c->styles |= styles;
    c->styled += styles != 0;
    if (!c->text) {
        c->text = arena_copy(c->pool.arena, text);
        c->text_line = line;
    }
    if (styles && !c->styled_text) {
        c->styled_text = arena_copy(c->pool.arena, text);
        c->styled_line = line;
    }
}

static void order_date(struct date_order *order, double seconds, bool is_first) {
    if (is_first) order->first = order->last = seconds;
    order->falls = order->falls || seconds < order->last;
    order->last = seconds;
}

static void find_forms(struct column_view *c, const char *text) {
    const char *formats[DATE_MAX_FORMATS];
    c->form_count = date_find_formats(text, c->pool.arena, formats);
    c->forms = arena_alloc(c->pool.arena, (c->form_count + 1) * sizeof *c->forms);
    for (size_t i = 0; i < c->form_count; i++) c->forms[i] = (struct date_form){.format = formats[i]};
}

static void examine_dates(struct column_view *c, const char *text, bool is_first) {
    double seconds;
    size_t kept = 0;
    c->has_dates = c->has_dates && date_parse(text, NULL, &seconds);
    if (c->has_dates) order_date(&c->iso, seconds, is_first);
    if (is_first) find_forms(c, text);
    for (size_t i = 0; i < c->form_count; i++) {
        if (!date_parse(text, c->forms[i].format, &seconds)) continue;
        order_date(&c->forms[i].order, seconds, is_first);
        c->forms[kept++] = c->forms[i];
    }
    c->form_count = kept;
}

static bool rises(const struct date_order *order) { return !order->falls && order->last > order->first; }

bool column_view_dates_rise(const struct column_view *c) {
    if (c->numbers == c->values) return false;
    if (c->has_dates) return rises(&c->iso);
    for (size_t i = 0; i < c->form_count; i++)
        if (rises(&c->forms[i].order)) return true;
    return false;
}

/* SplitMix64 of Steele, Lea and Flood. */
static uint64_t hash_of(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

#define MAX_WHOLE 9007199254740992.0 /* 2^53 */

static uint64_t whole_hash(double number) { return hash_of((uint64_t)(int64_t)number); }

static status keep_hash(struct column_view *c, const char *text) {
    uint64_t hash = 0;
    for (const char *t = text; *t; t++) hash = hash_of(hash ^ (unsigned char)*t);
    TRY(array_grow(&c->hashes, &c->hash_capacity, c->hash_count + 1, sizeof *c->hashes, "the values of an identifier"));
    c->hashes[c->hash_count++] = hash;
    return OK;
}

static int compare_hashes(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void column_view_free(struct column_view *c) {
    text_pool_free(&c->pool);
    text_pool_free(&c->marks);
    free(c->hashes);
    c->hashes = NULL;
}

size_t column_view_distinct(struct column_view *c) {
    size_t count = 0;
    if (c->pool.count <= MAX_POOLED || c->hash_count == 0) return c->pool.count;
    qsort(c->hashes, c->hash_count, sizeof *c->hashes, compare_hashes);
    for (size_t i = 0; i < c->hash_count; i++) count += i == 0 || c->hashes[i] != c->hashes[i - 1];
    return count;
}

bool column_view_is_regular(const struct column_view *c) {
    return c->numbers == c->values && c->is_regular && c->step != 0;
}

bool column_view_is_counted(const struct column_view *c) {
    return column_view_is_regular(c) && c->step == 1 && (c->first == 0 || c->first == 1);
}

bool column_view_is_permutation(const struct column_view *c) {
    bool are_whole = c->values > 0 && c->whole == c->values && fabs(c->min) < MAX_WHOLE && fabs(c->max) < MAX_WHOLE;
    if (!are_whole || c->max - c->min + 1 != (double)c->values) return false;
    uint64_t sum = 0;
    for (size_t i = 0; i < c->values; i++) sum += whole_hash(c->min + (double)i);
    return sum == c->whole_sum;
}

bool column_view_numbers_rise(const struct column_view *c) {
    return c->numbers > 1 && c->numbers == c->values && !c->falls;
}

/* [sign]: 1 for the largest number, -1 for the smallest; [extreme]: the one so far. */
static void add_to_end(struct number_end *end, double extreme, double number, double sign) {
    double above = sign * (number - extreme);
    if (end->count == 0)
        *end = (struct number_end){1, -sign * INFINITY};
    else if (above > 0)
        *end = (struct number_end){1, extreme};
    else if (above < 0)
        end->next = sign * fmax(sign * end->next, sign * number);
    else
        end->count++;
}

static void add_number(struct column_view *c, const char *text, double number) {
    c->falls = c->falls || (c->numbers > 0 && number <= c->last);
    if (c->numbers == 0) c->first = number;
    if (c->numbers == 1) c->step = number - c->last;
    bool is_next = number == floor(number) && (c->numbers < 1 || number - c->last == c->step);
    c->is_regular = is_next && (c->numbers == 0 || c->is_regular);
    if (!c->code && csv_is_code(text)) c->code = arena_copy(c->pool.arena, text);
    if (!c->inexact && csv_is_inexact(text, number)) c->inexact = arena_copy(c->pool.arena, text);
    c->numbers++;
    c->whole += number == floor(number);
    if (number == floor(number) && fabs(number) < MAX_WHOLE) c->whole_sum += whole_hash(number);
    add_to_end(&c->ends[0], c->min, number, -1);
    add_to_end(&c->ends[1], c->max, number, 1);
    c->min = c->numbers == 1 ? number : fmin(c->min, number);
    c->max = c->numbers == 1 ? number : fmax(c->max, number);
    c->last = number;
}

status column_view_add(struct column_view *c, const char *text, char *decimal, size_t line) {
    double number;
    size_t index;
    if (text == suggest_blob) {
        c->blobs++;
        return OK;
    }
    bool is_number = csv_decimal(text, decimal, &number);
    if (!is_number && csv_means_missing(text)) {
        add_missing(c, text);
        return OK;
    }
    if (!is_number && suggest_is_mark(text)) return text_pool_add(&c->marks, text, line, &index);
    bool is_first = c->values++ == 0;
    if (is_first) c->starts_with_text = !is_number;
    is_number = is_number && isfinite(number); /* not 1e400 */
    if (is_first) {
        c->has_dates = true;
        c->first_line = line;
    }
    examine_dates(c, text, is_first);
    if (c->pool.count <= MAX_POOLED) TRY(text_pool_add(&c->pool, text, line, &index));
    if (c->keeps_hashes) TRY(keep_hash(c, text));
    if (is_number)
        add_number(c, text, number);
    else
        examine_text(c, text, line);
    return OK;
}

bool column_view_marks_missing(const struct column_view *c) {
    bool are_known = c->numbers == c->values || (c->numbers == 0 && (c->has_dates || c->form_count));
    return c->marks.count > 0 && c->values > 0 && are_known;
}

/* Takes a mark for a text like others. */
static status add_mark(struct column_view *c, const struct pooled_text *mark) {
    size_t index;
    bool is_first = c->values == 0 || mark->first_row < c->first_line;
    c->starts_with_text = c->starts_with_text || is_first;
    c->values += mark->count;
    c->has_dates = false;
    c->form_count = 0;
    if (!c->text || mark->first_row < c->text_line) {
        c->text = mark->text;
        c->text_line = mark->first_row;
    }
    if (c->pool.count > MAX_POOLED) return OK;
    for (size_t i = 0; i < mark->count; i++) TRY(text_pool_add(&c->pool, mark->text, mark->first_row, &index));
    return OK;
}

status column_view_decide_marks(struct column_view *c, const struct text_pool *missing) {
    for (size_t i = 0; i < c->marks.count; i++) {
        bool is_missing = false;
        for (size_t k = 0; k < missing->count; k++)
            is_missing = is_missing || strcmp(missing->items[k].text, c->marks.items[i].text) == 0;
        if (is_missing)
            c->missing += c->marks.items[i].count;
        else
            TRY(add_mark(c, &c->marks.items[i]));
    }
    return OK;
}
