/* The reader of metrics.jsonl and history.jsonl: the lines of a file, and the fields of a line. A line is read in one
 * pass from left to right. A decimal becomes an integer of up to 19 digits times a power of ten in extended precision,
 * which is ten times as fast as strtod and exact enough for a plot. */
#include "base/files/json_lines.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"

/* ---- the fields of a line ---- */

struct cursor {
    const char *at, *end;
    bool has_escapes; /* the text that was read last */
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
    c->has_escapes = false;
    for (; c->at < c->end; c->at++) {
        if (*c->at == '"') {
            *length = (size_t)(c->at++ - *text);
            return true;
        }
        if (*c->at != '\\') continue;
        c->has_escapes = true;
        if (++c->at == c->end) return false;
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
        field->length = strlen("null");
        return read_word(c, "null");
    case 't':
    case 'f':
        field->kind = KIND_BOOL;
        field->length = strlen(*c->at == 't' ? "true" : "false");
        return read_word(c, *c->at == 't' ? "true" : "false");
    default:
        field->kind = KIND_NUMBER;
        if (!read_number(c, &field->number)) return false;
        field->length = (size_t)(c->at - field->text);
        return true;
    }
}

bool json_line_read(const char *bytes, size_t size, struct json_line *out) {
    struct cursor c = {.at = bytes, .end = bytes + size};
    out->count = 0;
    if (!take(&c, '{')) return false;
    for (bool is_first = true; !take(&c, '}'); is_first = false) {
        struct json_field field = {.number = NAN};
        if (!is_first && !take(&c, ',')) return false;
        if (!read_string(&c, &field.key, &field.key_length)) return false;
        field.has_key_escapes = c.has_escapes;
        if (!take(&c, ':') || !read_value(&c, &field)) return false;
        if (out->count < JSON_LINE_MAX_FIELDS) out->fields[out->count++] = field;
    }
    skip_blanks(&c);
    return c.at == c.end;
}

bool json_line_is_clean(const char *bytes, size_t size) {
    unsigned unusual = 0;
    for (size_t i = 0; i < size; i++) unusual |= (unsigned char)(bytes[i] - ' ') > '~' - ' ';
    if (!unusual) return true;
    json_t *object = json_loadb(bytes, size, 0, NULL);
    bool is_clean = json_is_object(object);
    json_decref(object);
    return is_clean;
}

/* A text as in the line, without its escapes; malloc'ed. NULL: its escapes are none of a text. */
static char *unescape(const char *bytes, size_t length) {
    json_t *value = json_loadb(bytes - 1, length + 2, JSON_DECODE_ANY, NULL); /* with its quotes */
    char *text = json_is_string(value) ? strdup(json_string_value(value)) : NULL;
    if (json_is_string(value) && !text) status_exit_without_memory();
    json_decref(value);
    return text;
}

static bool has_key(const struct json_field *field, const char *key, size_t length) {
    if (!field->has_key_escapes) return field->key_length == length && memcmp(field->key, key, length) == 0;
    char *name = unescape(field->key, field->key_length);
    bool is_equal = name && strcmp(name, key) == 0;
    free(name);
    return is_equal;
}

const struct json_field *json_line_find(const struct json_line *line, const char *key) {
    size_t length = strlen(key);
    for (size_t i = 0; i < line->count; i++)
        if (has_key(&line->fields[i], key, length)) return &line->fields[i];
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

/* The character after a number is none of it, so strtod ends there. */
double json_field_exact(const struct json_field *field) {
    return field && field->kind == KIND_NUMBER ? strtod(field->text, NULL) : NAN;
}

bool json_field_int(const struct json_field *field, int64_t min, int64_t max, int64_t *out) {
    char *end = NULL;
    errno = 0;
    *out = field && field->kind == KIND_NUMBER ? strtoll(field->text, &end, 10) : 0;
    return end && !errno && end == field->text + field->length && *out >= min && *out <= max;
}

char *json_field_text(const struct json_field *field) {
    return field && field->kind == KIND_TEXT ? unescape(field->text, field->length) : NULL;
}

/* ---- the lines of a file ---- */

/* Read in blocks; a line longer than a block makes the buffer grow up to the limit, and what is longer is skipped. */

#define BLOCK ((size_t)1 << 16)

struct reader {
    struct line_file *file;
    const char *path;
    bool (*visit)(void *user, const char *line, size_t size);
    void *user;
    char *buffer;
    size_t filled, capacity;
    bool is_skipping; /* within a line that is too long */
};

static void visit_line(struct reader *r, const char *line, size_t size) {
    r->file->lines++;
    if (r->is_skipping || !r->visit(r->user, line, size)) r->file->malformed++;
    r->is_skipping = false;
}

/* The complete lines of the buffer; what follows them moves to its beginning. */
static void visit_lines(struct reader *r) {
    size_t start = 0;
    char *end;
    while ((end = memchr(r->buffer + start, '\n', r->filled - start))) {
        size_t size = (size_t)(end - (r->buffer + start));
        visit_line(r, r->buffer + start, size);
        r->file->offset += size + 1;
        start += size + 1;
    }
    r->filled -= start;
    memmove(r->buffer, r->buffer + start, r->filled);
    if (r->filled <= LINE_FILE_MAX_LINE) return;
    r->is_skipping = true;
    r->file->offset += r->filled;
    r->filled = 0;
}

static status read_blocks(struct reader *r, int fd) {
    size_t got;
    do {
        if (r->capacity - r->filled < BLOCK) {
            size_t capacity = r->capacity * 2 + BLOCK;
            char *buffer = realloc(r->buffer, capacity);
            if (!buffer) return status_memory("the lines of '%s'", r->path);
            r->buffer = buffer;
            r->capacity = capacity;
        }
        TRY(io_read_at(fd, r->path, r->buffer + r->filled, BLOCK, r->file->offset + r->filled, &got));
        r->filled += got;
        visit_lines(r);
    } while (got == BLOCK);
    r->file->is_torn = r->filled > 0 || r->is_skipping;
    return OK;
}

/* Whether what was read before is still there: the same file, and a line ends at the offset. */
static status is_same(const struct line_file *file, int fd, const char *path, const struct io_info *info, bool *out) {
    char last = '\n';
    size_t got = 1;
    *out = true;
    if (file->inode == 0) return OK;
    if (file->offset > 0) TRY(io_read_at(fd, path, &last, 1, file->offset - 1, &got));
    *out = file->inode == info->inode && file->device == info->device && got == 1 && last == '\n';
    return OK;
}

static status read_file(struct reader *r, int fd, bool *has_restarted) {
    struct io_info info;
    bool same;
    TRY(io_stat_fd(fd, r->path, &info));
    if (!info.is_file) return status_data("%s: not a regular file", r->path);
    if (info.size > LINE_FILE_MAX_BYTES)
        return status_data("%s: %.0f GB is more than a report reads", r->path, (double)info.size / 1e9);
    TRY(is_same(r->file, fd, r->path, &info, &same));
    *has_restarted = !same;
    r->file->inode = info.inode;
    r->file->device = info.device;
    return same ? read_blocks(r, fd) : OK;
}

status line_file_read(struct line_file *file, const char *path,
                      bool (*visit)(void *user, const char *line, size_t size), void *user, bool *has_restarted) {
    struct reader r = {.file = file, .path = path, .visit = visit, .user = user};
    struct io_info info;
    int fd;
    *has_restarted = false;
    TRY(io_stat(path, &info));
    if (!info.exists) {
        *has_restarted = file->inode != 0;
        return OK;
    }
    TRY(io_open(path, &fd));
    status s = read_file(&r, fd, has_restarted);
    free(r.buffer);
    return status_first(s, io_close(fd, path));
}
