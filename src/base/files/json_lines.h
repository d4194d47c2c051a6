/* json_lines: files of one JSON object a line, as metrics.jsonl and history.jsonl are. A reader of its own: a run of
 * 10^6 steps has 200 MB of such lines, for which a tree of every line would take several seconds. Nothing is copied,
 * and only what has escapes is allocated. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* ---- the fields of a line ---- */

enum json_kind { KIND_NUMBER, KIND_TEXT, KIND_NULL, KIND_BOOL, KIND_NESTED };

struct json_field {
    const char *key; /* as in the line (key_length), without quotes */
    size_t key_length;
    enum json_kind kind;
    bool has_key_escapes;
    double number;    /* KIND_NUMBER: within 1 unit in the last place */
    const char *text; /* KIND_TEXT: as in the line (length), without quotes; else the whole value */
    size_t length;
};

#define JSON_LINE_MAX_FIELDS 128

struct json_line {
    struct json_field fields[JSON_LINE_MAX_FIELDS];
    size_t count; /* further fields are left out */
};

/* false: bytes (size) are not one complete object. The contents of nested values are not checked. */
bool json_line_read(const char *bytes, size_t size, struct json_line *out);

/* Whether the bytes are printable ASCII, or else a JSON object to a parser that checks everything: then texts have no
 * control characters and are UTF-8. */
bool json_line_is_clean(const char *bytes, size_t size);

/* [key]: without escapes. NULL: there is no such field. */
const struct json_field *json_line_find(const struct json_line *line, const char *key);
/* Whether the field [key] is the text [value]. */
bool json_line_is(const struct json_line *line, const char *key, const char *value);
/* The number [key]; NAN if it is absent or not a number. */
double json_line_number(const struct json_line *line, const char *key);
/* The number of a field, rounded as strtod does; NAN: it is none. */
double json_field_exact(const struct json_field *field);
/* Whether the field is a whole number, without a point or an exponent, of min to max. */
bool json_field_int(const struct json_field *field, int64_t min, int64_t max, int64_t *out);
/* The text of a field without escapes, malloc'ed; NULL: it is no text. */
char *json_field_text(const struct json_field *field);

/* ---- the lines of a file ---- */

/* The lines of a file to which another process may be appending. What was read stays read: the next call
 * goes on behind it. A last line without its end is left for the next call. */

/* Zero-initialise. */
struct line_file {
    uint64_t offset;        /* of what is not read yet */
    uint64_t device, inode; /* of the file; 0: not opened yet */
    uint64_t lines, malformed;
    bool is_torn; /* a part of a line follows */
};

#define LINE_FILE_MAX_LINE ((size_t)16 << 20)
#define LINE_FILE_MAX_BYTES ((uint64_t)64 << 30)

/* Calls visit(user, line, size) for each further line of [path], without its line end; false from it, or a line above
 * LINE_FILE_MAX_LINE, counts as malformed. An absent file has no lines. *has_restarted: the file is another one or was
 * cut; nothing was read: begin anew with a zeroed struct. STATUS_DATA for anything but a regular file and for one above
 * LINE_FILE_MAX_BYTES. */
status line_file_read(struct line_file *file, const char *path,
                      bool (*visit)(void *user, const char *line, size_t size), void *user, bool *has_restarted);
