/* A number of at most 19 digits and a small power of ten is computed exactly with 128-bit integers and rounded once, to
 * nearest even, as strtod does (the idea is Clinger's: the digits and the power of ten are exact, so one correctly
 * rounded operation gives the nearest double); strtod converts all others. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/csv/csv.h"

__extension__ typedef unsigned __int128 uint128;

enum { MAX_POWER = 19 };
#define DIGITS "0123456789"

static const uint64_t powers[MAX_POWER + 1] = {1u,
                                               10u,
                                               100u,
                                               1000u,
                                               10000u,
                                               100000u,
                                               1000000u,
                                               10000000u,
                                               100000000u,
                                               1000000000u,
                                               10000000000u,
                                               100000000000u,
                                               1000000000000u,
                                               10000000000000u,
                                               100000000000000u,
                                               1000000000000000u,
                                               10000000000000000u,
                                               100000000000000000u,
                                               1000000000000000000u,
                                               10000000000000000000u};

static const double exact_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* The quotient of digits * 2^shift has 64 or 65 bits, and what is left of the
 * division decides only between a tie and more. */
double csv_quotient(uint64_t digits, int power) {
    uint64_t divisor = powers[power];
    int shift = 64 + __builtin_clzll(digits) - __builtin_clzll(divisor);
    /* digits < 2^64 and divisor >= 2^63 after normalising both, so the shifted digits fit into 128 bits */
    uint128 dividend = (uint128)digits << shift, quotient = dividend / divisor;
    bool is_inexact = quotient * divisor != dividend;
    int extra = quotient >> 64 ? 65 - 53 : 64 - 53; /* bits that a double has not */
    uint64_t mantissa = (uint64_t)(quotient >> extra), half = (uint64_t)1 << (extra - 1);
    uint64_t rest = (uint64_t)quotient & ((half << 1) - 1);
    bool is_up = rest > half || (rest == half && (is_inexact || (mantissa & 1)));
    uint64_t rounded = mantissa + is_up;
    union {
        uint64_t bits;
        double value;
    } scale = {.bits = (uint64_t)(1023 + extra - shift) << 52}; /* 2^(extra - shift), a normal number */
    return (double)rounded * scale.value;
}

/* Digits, a point, digits: their value without the point and the number of digits behind it. False: there are none, or
 * too many. */
static bool read_digits(const char **at, uint64_t *digits, int *behind) {
    const char *c = *at;
    uint64_t value = 0;
    const char *first = c;
    for (; *c >= '0' && *c <= '9'; c++) value = value * 10 + (uint64_t)(*c - '0');
    ptrdiff_t count = c - first;
    *behind = 0;
    if (*c == '.') {
        first = ++c;
        for (; *c >= '0' && *c <= '9'; c++) value = value * 10 + (uint64_t)(*c - '0');
        *behind = (int)(c - first < 100 ? c - first : 100);
        count += c - first;
    }
    *at = c;
    *digits = value;
    return count > 0 && count <= CSV_MAX_DIGITS;
}

/* "e-12": adds it to *power. False: it is none, or too large. */
static bool read_exponent(const char **at, int *power) {
    const char *c = *at + 1;
    bool is_negative = *c == '-';
    int value = 0;
    if (*c == '-' || *c == '+') c++;
    const char *first = c;
    for (; *c >= '0' && *c <= '9' && c - first < 4; c++) value = value * 10 + (*c - '0');
    *at = c;
    *power += is_negative ? -value : value;
    return c > first;
}

static bool is_short_number(const char *text, double *value) {
    uint64_t digits;
    int behind;
    bool is_negative = *text == '-';
    if (*text == '-' || *text == '+') text++;
    if (!read_digits(&text, &digits, &behind)) return false;
    int power = -behind;
    if ((*text == 'e' || *text == 'E') && !read_exponent(&text, &power)) return false;
    if (*text) return false;
    double result;
    if (digits <= CSV_EXACT && power >= -22 && power <= 22)
        result = power < 0 ? (double)digits / exact_powers[-power] : (double)digits * exact_powers[power];
    else if (power <= 0 && power >= -MAX_POWER && digits > 0)
        result = csv_quotient(digits, -power);
    else
        return false;
    *value = is_negative ? -result : result;
    return true;
}

bool csv_is_code(const char *text) {
    return text[0] == '0' && text[1] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

bool csv_number(const char *text, double *value) {
    if (is_short_number(text, value)) return true;
    if (*text == 0 || text[strspn(text, "+-.0123456789eE")] != 0) return false;
    char *end;
    *value = strtod(text, &end);
    return *end == 0;
}

/* A number with a decimal comma. */
static bool comma_number(const char *text, double *value) {
    char short_number[64];
    size_t comma = strcspn(text, ",."), length = strlen(text);
    if (text[comma] != ',') return text[comma] == 0 && csv_number(text, value);
    bool is_short = length < sizeof short_number;
    if (!is_short && text[strspn(text, "+-,0123456789eE")] != 0) return false;
    char *point = is_short ? short_number : malloc(length + 1);
    if (!point) status_exit_without_memory();
    memcpy(point, text, length + 1);
    point[comma] = '.';
    bool is_number = csv_number(point, value);
    if (!is_short) free(point);
    return is_number;
}

/* Whether the comma of a number may separate thousands: 13,881, but not 0,881 or 1381,881. */
static bool may_be_group(const char *text) {
    if (*text == '-' || *text == '+') text++;
    size_t comma = strspn(text, DIGITS);
    return *text != '0' && comma >= 1 && comma <= 3 && text[comma] == ',' && strspn(text + comma + 1, DIGITS) == 3 &&
           text[comma + 4] == 0;
}

bool csv_decimal(const char *text, char *decimal, double *value) {
    if (*decimal == '.') return csv_number(text, value);
    if (*decimal == ',') return comma_number(text, value);
    bool is_number = csv_number(text, value), has_comma = !is_number && comma_number(text, value);
    if (is_number && strchr(text, '.')) *decimal = csv_is_undecided(*decimal) ? CSV_MIXED : '.';
    if (has_comma && *decimal != CSV_MIXED) *decimal = may_be_group(text) ? CSV_UNCLEAR : ',';
    return is_number || has_comma;
}

/* The bytes of the separator of groups that [text] starts with. */
static size_t separator_bytes(const char *text, char thousands) {
    if (*text == thousands) return 1;
    if (thousands == '\'' && strncmp(text, "\u2019", 3) == 0) return 3;
    if (thousands != ' ') return 0;
    return strncmp(text, "\u00a0", 2) == 0 ? 2 : strncmp(text, "\u202f", 3) == 0 ? 3 : 0;
}

const char *csv_ungroup(const char *text, char thousands, char out[CSV_UNGROUPED]) {
    const char *at = text;
    char *to = out;
    if (!thousands || strlen(text) >= CSV_UNGROUPED) return text;
    if (*at == '-' || *at == '+') *to++ = *at++;
    size_t digits = strspn(at, DIGITS), groups = 0;
    if (digits < 1 || digits > 3 || *at == '0') return text;
    for (; digits > 0; digits--) *to++ = *at++;
    for (size_t n; (n = separator_bytes(at, thousands)) && strspn(at + n, DIGITS) == 3; groups++) {
        memcpy(to, at + n, 3);
        to += 3;
        at += n + 3;
    }
    memcpy(to, at, strlen(at) + 1);
    return groups > 0 ? out : text;
}

const char *const csv_blanks[] = {" ", "\u00a0", "\u202f", NULL};

size_t csv_starts_with(const char *text, const char *const *words) {
    for (size_t i = 0; words[i]; i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0) return strlen(words[i]);
    return 0;
}

/* The bytes of the blank, or of the character of [strip], that [text] starts with; 0: it starts with another one. */
static size_t stripped_bytes(const char *text, const char *strip) {
    size_t blank = csv_starts_with(text, csv_blanks);
    if (blank) return blank;
    for (size_t n; *strip; strip += n) {
        for (n = 1; (strip[n] & 0xc0) == 0x80;) n++;
        if (strncmp(text, strip, n) == 0) return n;
    }
    return 0;
}

const char *csv_strip(const char *text, const char *strip, char out[CSV_UNGROUPED]) {
    size_t length = strlen(text);
    size_t opened = 0, closed = 0;
    bool has_sign = false, is_negative = false;
    if (!strip || length == 0 || length >= CSV_UNGROUPED - 1) return text;
    const char *at = text, *end = text + length;
    for (size_t n; *at && *at != ')' && ((n = stripped_bytes(at, strip)) || (!has_sign && (*at == '-' || *at == '+')));
         at += n) {
        bool is_sign = n == 0;
        n = is_sign ? 1 : n;
        opened += *at == '(';
        is_negative = is_negative || *at == '(' || (is_sign && *at == '-');
        has_sign = has_sign || is_sign;
    }
    for (const char *last = end - 1; last > at; end = last--) {
        while (last > at && (*last & 0xc0) == 0x80) last--;
        if (*last == '(' || !stripped_bytes(last, strip)) break;
        closed += *last == ')';
    }
    if (opened != closed || opened + has_sign > 1) return text;
    size_t kept = (size_t)(end - at);
    if (kept == 0 || !strchr(DIGITS ".,", *at) || !strchr(DIGITS ".,", end[-1])) return text;
    out[0] = '-';
    memcpy(out + is_negative, at, kept);
    out[is_negative + kept] = 0;
    return out;
}
