/* One pass from left to right. A decimal becomes an integer of up to 19 digits times a power of ten in extended
 * precision, which is ten times as fast as strtod and exact enough for a plot. */
#include "report/json_line.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r' || *c->at == '\n')) c->at++;
}

static bool take(struct cursor *c, char wanted) {
    skip_blanks(c);
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

static bool read_string(struct cursor *c, const char **text, size_t *length) {
    if (!take(c, '"')) return false;
    *text = c->at;
    for (; c->at < c->end; c->at++) {
        if (*c->at == '"') {
            *length = (size_t)(c->at++ - *text);
            return true;
        }
        if (*c->at == '\\' && ++c->at == c->end) return false;
    }
    return false;
}

static bool is_digit(const struct cursor *c) { return c->at < c->end && *c->at >= '0' && *c->at <= '9'; }

#define MAX_DIGITS 19 /* that a uint64_t holds */
#define MAX_POWER 27  /* 10^27 is exact with the 64 bits of an extended mantissa */

static double scaled(uint64_t digits, int power, const char *text) {
    static const long double powers[MAX_POWER + 1] = {
        1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
        1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    if (power < -MAX_POWER || power > MAX_POWER) return fabs(strtod(text, NULL)); /* ends at a character of no number */
    return (double)(power < 0 ? (long double)digits / powers[-power] : (long double)digits * powers[power]);
}

static bool read_number(struct cursor *c, double *out) {
    const char *start = c->at;
    bool is_negative = c->at < c->end && *c->at == '-';
    uint64_t digits = 0;
    int power = 0, count = 0;
    c->at += is_negative;
    if (!is_digit(c)) return false;
    for (bool is_fraction = false; c->at < c->end; c->at++) {
        if (*c->at == '.' && !is_fraction) {
            is_fraction = true;
        } else if (!is_digit(c)) {
            break;
        } else if (count < MAX_DIGITS) {
            digits = digits * 10 + (uint64_t)(*c->at - '0');
            count += digits > 0;
            power -= is_fraction;
        } else {
            power += !is_fraction;
        }
    }
    if (c->at < c->end && (*c->at == 'e' || *c->at == 'E')) {
        int exponent = 0;
        bool is_small = ++c->at < c->end && *c->at == '-';
        if (c->at < c->end && (*c->at == '-' || *c->at == '+')) c->at++;
        if (!is_digit(c)) return false;
        for (; is_digit(c); c->at++)
            if (exponent < 100000) exponent = exponent * 10 + (*c->at - '0');
        power += is_small ? -exponent : exponent;
    }
    if (c->at == c->end) return false; /* the object is not closed */
    double value = digits ? scaled(digits, power, start) : 0;
    *out = is_negative ? -value : value;
    return true;
}

static bool read_word(struct cursor *c, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

/* From an opening bracket to the one that closes it. */
static bool skip_nested(struct cursor *c) {
    const char *text;
    size_t length, depth = 0;
    while (c->at < c->end) {
        if (*c->at == '"') {
            if (!read_string(c, &text, &length)) return false;
            continue;
        }
        depth += *c->at == '[' || *c->at == '{';
        depth -= *c->at == ']' || *c->at == '}';
        c->at++;
        if (depth == 0) return true;
    }
    return false;
}

static bool read_value(struct cursor *c, struct json_field *field) {
    skip_blanks(c);
    if (c->at == c->end) return false;
    field->text = c->at;
    switch (*c->at) {
    case '"':
        field->kind = KIND_TEXT;
        return read_string(c, &field->text, &field->length);
    case '[':
    case '{':
        field->kind = KIND_NESTED;
        if (!skip_nested(c)) return false;
        field->length = (size_t)(c->at - field->text);
        return true;
    case 'n':
        field->kind = KIND_NULL;
        return read_word(c, "null");
    case 't':
    case 'f':
        field->kind = KIND_BOOL;
        return read_word(c, *c->at == 't' ? "true" : "false");
    default:
        field->kind = KIND_NUMBER;
        return read_number(c, &field->number);
    }
}

bool json_line_read(const char *bytes, size_t size, struct json_line *out) {
    struct cursor c = {bytes, bytes + size};
    out->count = 0;
    if (!take(&c, '{')) return false;
    for (bool is_first = true; !take(&c, '}'); is_first = false) {
        struct json_field field = {.number = NAN};
        if (!is_first && !take(&c, ',')) return false;
        if (!read_string(&c, &field.key, &field.key_length) || !take(&c, ':') || !read_value(&c, &field)) return false;
        if (out->count < JSON_LINE_MAX_FIELDS) out->fields[out->count++] = field;
    }
    skip_blanks(&c);
    return c.at == c.end;
}

const struct json_field *json_line_find(const struct json_line *line, const char *key) {
    size_t length = strlen(key);
    for (size_t i = 0; i < line->count; i++)
        if (line->fields[i].key_length == length && memcmp(line->fields[i].key, key, length) == 0)
            return &line->fields[i];
    return NULL;
}

bool json_line_is(const struct json_line *line, const char *key, const char *value) {
    const struct json_field *field = json_line_find(line, key);
    return field && field->kind == KIND_TEXT && field->length == strlen(value) &&
           memcmp(field->text, value, field->length) == 0;
}

double json_line_number(const struct json_line *line, const char *key) {
    const struct json_field *field = json_line_find(line, key);
    return field && field->kind == KIND_NUMBER ? field->number : NAN;
}

char *json_field_text(const struct json_field *field) {
    if (!field || field->kind != KIND_TEXT) return NULL;
    json_t *value = json_loadb(field->text - 1, field->length + 2, JSON_DECODE_ANY, NULL);
    char *text = json_is_string(value) ? strdup(json_string_value(value)) : NULL;
    if (json_is_string(value) && !text) status_exit_without_memory();
    json_decref(value);
    return text;
}
