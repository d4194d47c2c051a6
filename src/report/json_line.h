/* json_line: the fields of a JSON object in one line, as metrics.jsonl and history.jsonl have them. A reader of its
 * own: a run of 10^6 steps has 200 MB of such lines, for which a tree of every line would take several seconds. Nothing
 * is copied or allocated. */
#ifndef REPORT_JSON_LINE_H
#define REPORT_JSON_LINE_H

#include <stdbool.h>
#include <stddef.h>

enum json_kind { KIND_NUMBER, KIND_TEXT, KIND_NULL, KIND_BOOL, KIND_NESTED };

struct json_field {
    const char *key; /* as in the line (key_length), without quotes */
    size_t key_length;
    enum json_kind kind;
    double number;    /* KIND_NUMBER: within 1 unit in the last place */
    const char *text; /* KIND_TEXT: as in the line (length), without quotes; KIND_NESTED: the whole list or object */
    size_t length;
};

#define JSON_LINE_MAX_FIELDS 128

struct json_line {
    struct json_field fields[JSON_LINE_MAX_FIELDS];
    size_t count; /* further fields are left out */
};

/* false: bytes (size) are not one complete object. The contents of nested values are not checked. */
bool json_line_read(const char *bytes, size_t size, struct json_line *out);

/* NULL: there is no such field. */
const struct json_field *json_line_find(const struct json_line *line, const char *key);
/* Whether the field [key] is the text [value]. */
bool json_line_is(const struct json_line *line, const char *key, const char *value);
/* The number [key]; NAN if it is absent or not a number. */
double json_line_number(const struct json_line *line, const char *key);
/* The text of a field without escapes, malloc'ed; NULL: it is no text. */
char *json_field_text(const struct json_field *field);

#endif
