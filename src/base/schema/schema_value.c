/* Scalars: one syntax for each type, and hints for other common ones (yes, 0x10, 1e3 for an integer). */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema/schema_internal.h"
#include "base/utf8.h"

static bool is_any_of(const char *text, const char *const *words) {
    for (; *words; words++)
        if ((*text | 0x20) == (**words | 0x20) && strcasecmp(text, *words) == 0) return true;
    return false;
}

bool value_parse_bool(const char *text, bool *out, const char **hint) {
    static const char *const yes[] = {"yes", "on", "y", "1", NULL}, *const no[] = {"no", "off", "n", "0", NULL};
    static const char *const truths[] = {"true", "True", "TRUE"}, *const falsehoods[] = {"false", "False", "FALSE"};
    for (size_t i = 0; i < 3; i++) {
        *out = strcmp(text, truths[i]) == 0;
        if (*out || strcmp(text, falsehoods[i]) == 0) return true;
    }
    *hint = is_any_of(text, yes) ? "write true" : is_any_of(text, no) ? "write false" : NULL;
    return false;
}

/* Copies the digits at *text to [out] (max + 1) without the _ between them, and advances *text. Returns the number of
 * digits. */
static size_t take_digits(const char **text, char *out, size_t max) {
    size_t count = 0;
    const char *t = *text;
    for (; isdigit((unsigned char)*t) || (*t == '_' && count > 0 && isdigit((unsigned char)t[1])); t++)
        if (*t != '_' && count < max) out[count++] = *t;
    *text = t;
    out[count] = 0;
    return count;
}

#define DIGITS_MAX 32 /* more than an integer of 64 bits has */

bool value_parse_int(const char *text, int64_t *out, const char **hint) {
    char digits[DIGITS_MAX + 2];
    const char *t = text;
    digits[0] = '+';
    if (*t == '-' || *t == '+') digits[0] = *t++;
    size_t count = take_digits(&t, digits + 1, DIGITS_MAX);
    if (count == 0 || *t) {
        double real;
        const char *ignored = NULL;
        if (count == 1 && digits[1] == '0' && *t && strchr("xXoObB", *t))
            *hint = "write it in decimal";
        else if (value_parse_real(text, &real, &ignored) && fabs(real) < 1e15 && real == floor(real))
            *hint = "write it without a point or exponent";
        return false;
    }
    if (count > 1 && digits[1] == '0') {
        *hint = "write it without a leading 0";
        return false;
    }
    errno = 0;
    *out = strtoll(digits, NULL, 10);
    if (errno == 0 && *out != SCHEMA_NO_INT) return true;
    *hint = errno ? "it does not fit into 64 bits" : "the minimum is -9223372036854775807";
    return false;
}

/* [number]: as large as [text]. */
static bool parse_real(const char *text, char *number, double *out, const char **hint) {
    static const char *const not_finite[] = {"nan", ".nan", "inf", ".inf", "infinity", NULL};
    char *n = number;
    const char *t = text;
    if (*t == '-' || *t == '+') *n++ = *t++;
    if (is_any_of(t, not_finite)) {
        *hint = "it must be finite";
        return false;
    }
    size_t whole = take_digits(&t, n, SIZE_MAX), fraction = 0;
    n += whole;
    if (*t == '.') {
        *n++ = *t++;
        fraction = take_digits(&t, n, SIZE_MAX);
        n += fraction;
    }
    if (whole + fraction == 0) return false;
    if (*t == 'e' || *t == 'E') {
        *n++ = *t++;
        if (*t == '-' || *t == '+') *n++ = *t++;
        size_t exponent = take_digits(&t, n, SIZE_MAX);
        if (exponent == 0) return false;
        n += exponent;
    }
    if (*t == ',' && fraction == 0 && isdigit((unsigned char)t[1]))
        *hint = "write a decimal point instead of the comma";
    if (*t) return false;
    *n = 0;
    *out = strtod(number, NULL);
    if (isinf(*out)) *hint = "it is too large";
    if (*out == 0 && strpbrk(number, "123456789") && strpbrk(number, "123456789") < number + strcspn(number, "eE"))
        *hint = "it is too small, it would become 0";
    return !*hint;
}

/* With all digits, however many there are. */
bool value_parse_real(const char *text, double *out, const char **hint) {
    char short_number[128];
    size_t size = strlen(text) + 1;
    char *number = size <= sizeof short_number ? short_number : malloc(size);
    if (!number) status_exit_without_memory();
    bool is_number = parse_real(text, number, out, hint);
    if (number != short_number) free(number);
    return is_number;
}

bool row_is_nullable(const struct schema_row *row) {
    if (row->flags & SCHEMA_NULLABLE) return true;
    return row->fallback && (strcmp(row->fallback, "null") == 0 || strcmp(row->fallback, "~") == 0);
}

const char *plural_suffix(const char *word) { return word[strlen(word) - 1] == 's' ? "es" : "s"; }

const char *article(const char *word) { return strchr("aeiou", word[0]) ? "an" : "a"; }

void row_add_expected(const struct schema_row *row, struct text *out) {
    static const char *const names[] = {
        [SCHEMA_BOOL] = "true or false",
        [SCHEMA_INT] = "an integer",
        [SCHEMA_REAL] = "a number",
        [SCHEMA_STRING] = "a text",
        [SCHEMA_INT_LIST] = "a list of integers",
        [SCHEMA_REAL_LIST] = "a list of numbers",
        [SCHEMA_STRING_LIST] = "a list of texts",
    };
    if (row->groups_offset) {
        text_add(out, "a list of texts, or a mapping from names to lists of texts");
    } else if (row->others_offset) {
        text_add(out, "a text, or a list of texts");
    } else if (row->choices) {
        text_add(out, row->type == SCHEMA_INT_LIST    ? "a list of integers, or one of "
                      : row->type == SCHEMA_REAL_LIST ? "a list of numbers, or "
                                                      : "one of ");
        for (size_t i = 0; row->choices[i]; i++) text_printf(out, "%s%s", i ? ", " : "", row->choices[i]);
    } else if (row->type == SCHEMA_SECTION) {
        text_add(out, "a mapping with the keys ");
        const struct schema_row *r = row->section->rows;
        for (size_t i = 0; r[i].key; i++) text_printf(out, "%s%s", i ? ", " : "", r[i].key);
    } else if (row->type == SCHEMA_SECTION_LIST) {
        text_add(out, "a list of mappings");
    } else if (row->type == SCHEMA_SECTION_MAP) {
        text_add(out, "a mapping from names to mappings");
    } else if (row->type == SCHEMA_VARIANT) {
        text_printf(out, "%s %s", article(row->variants->what), row->variants->what);
    } else if (row->type == SCHEMA_VARIANT_LIST) {
        text_printf(out, "a list of %s%s", row->variants->what, plural_suffix(row->variants->what));
    } else {
        text_add(out, names[row->type]);
    }
}

bool row_has_limits(const struct schema_row *row) { return row->min != 0 || row->max != 0; }

bool row_is_within_limits(const struct schema_row *row, double value) {
    if (!row_has_limits(row)) return true;
    bool is_min_met = row->excludes_min ? value > row->min : value >= row->min;
    bool is_max_met = row->excludes_max ? value < row->max : value <= row->max;
    return is_min_met && is_max_met;
}

/* Adds a number; an integer without exponent. */
static void value_add_number(struct text *out, double value) {
    if (value == floor(value) && fabs(value) < 1e15)
        text_printf(out, "%.0f", value);
    else
        text_add_double(out, value);
}

void row_add_limits(const struct schema_row *row, struct text *out) {
    bool has_min = isfinite(row->min), has_max = isfinite(row->max);
    if (has_min) {
        text_add(out, row->excludes_min ? "> " : ">= ");
        value_add_number(out, row->min);
    }
    if (has_min && has_max) text_add(out, " and ");
    if (has_max) {
        text_add(out, row->excludes_max ? "< " : "<= ");
        value_add_number(out, row->max);
    }
}

static void add_types(const struct schema_variants *variants, struct text *out) {
    const struct schema_variant *type;
    for (size_t i = 0; (type = variants->at(i)) != NULL; i++)
        text_printf(out, "%s%s", i ? ", " : "one of ", type->name);
    if (!variants->at(0)) text_add(out, "a type of an extension");
}

static void add_type(const struct schema_row *row, struct text *out) {
    static const char *const names[] = {
        [SCHEMA_BOOL] = "true or false",
        [SCHEMA_INT] = "integer",
        [SCHEMA_REAL] = "number",
        [SCHEMA_STRING] = "text",
        [SCHEMA_INT_LIST] = "list of integers",
        [SCHEMA_REAL_LIST] = "list of numbers",
        [SCHEMA_STRING_LIST] = "list of texts",
        [SCHEMA_SECTION] = "section",
        [SCHEMA_SECTION_LIST] = "list of sections",
        [SCHEMA_SECTION_MAP] = "mapping from names to sections",
    };
    if (row->choices)
        row_add_expected(row, out);
    else if (row->type == SCHEMA_VARIANT)
        add_types(row->variants, out);
    else if (row->type == SCHEMA_VARIANT_LIST)
        text_printf(out, "list of %s%s", row->variants->what, plural_suffix(row->variants->what));
    else if (row->groups_offset)
        text_add(out, "list of texts, or mapping from names to lists");
    else if (row->others_offset)
        text_add(out, "text, or list of texts");
    else
        text_add(out, names[row->type]);
}

void row_add_summary(const struct schema_row *row, struct text *out) {
    add_type(row, out);
    if (row_has_limits(row)) {
        text_add(out, " ");
        row_add_limits(row, out);
    }
    if (row_is_nullable(row)) text_add(out, " or null");
    if (row->flags & SCHEMA_REQUIRED)
        text_add(out, ", required");
    else if (row->fallback)
        text_printf(out, ", default %s", row->fallback);
}

const struct node *row_fallback(const struct schema_row *row, struct place place, struct arena *arena) {
    if (!row->fallback) return NULL;
    if (!strchr("[{\"'", row->fallback[0])) { /* a plain scalar needs no libyaml, nor does an empty list */
        struct node *node = arena_alloc(arena, sizeof *node);
        *node = (struct node){.kind = NODE_SCALAR, .place = place, .text = row->fallback};
        return node;
    }
    if (strcmp(row->fallback, "[]") == 0) {
        struct node *node = arena_alloc(arena, sizeof *node);
        *node = (struct node){.kind = NODE_SEQUENCE, .place = place};
        return node;
    }
    struct problems none = {0};
    const struct node *node = node_parse(row->fallback, place, arena, &none);
    problems_free(&none);
    return node;
}

/* ---- strings ---- */

/* Letters, digits and a few signs, but nothing that a YAML parser may read as a number, a boolean or null. */
static bool is_safe_plain(const char *text) {
    static const char *const words[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", NULL};
    if (!isalpha((unsigned char)text[0]) && text[0] != '/' && text[0] != '_') return false;
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_./-+@", *c)) return false;
    return !is_any_of(text, words);
}

/* The characters that need no escape in double quotes. */
static bool is_quotable(unsigned code) {
    return !utf8_is_control(code) && code != 0xfeff && code != 0xfffe && code != 0xffff;
}

void value_add_string(struct text *out, const char *text) {
    if (is_safe_plain(text)) {
        text_add(out, text);
        return;
    }
    text_add(out, "\"");
    size_t spaces = 0;
    for (size_t left = strlen(text); left > 0;) {
        unsigned code = 0xfffd;
        size_t length = utf8_decode(text, left, &code);
        bool is_known = length > 0;
        if (!is_known) length = 1;
        spaces = code == ' ' ? spaces + 1 : 0;
        if (code == '"' || code == '\\')
            text_printf(out, "\\%c", (char)code);
        else if (!is_known || !is_quotable(code))
            text_printf(out, "\\u%04x", code);
        else if (spaces > 64) /* far below DOCUMENT_MAX_BLANKS */
            text_add(out, "\\x20");
        else
            text_add_bytes(out, text, length);
        text += length;
        left -= length;
    }
    text_add(out, "\"");
}
