/* What a person or a spreadsheet writes into a column of numbers. */
#include "data/source/suggest_numbers.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "data/csv/csv.h"

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
