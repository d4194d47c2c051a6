/* One pass over the text; unquoting moves the characters of a field to its start. */
#include "data/csv/csv.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"

status csv_reject_nul(const char *path) {
    return status_new(STATUS_DATA,
                      "%s: this is not UTF-8 text (it has a zero byte); if it is UTF-16, set dataset.csv.encoding: "
                      "utf-16",
                      path);
}

status csv_start(struct csv_reader *reader, const char *path, char *text, size_t size) {
    *reader = (struct csv_reader){
        .path = path, .at = text, .end = text + size, .line = 1, .delimiter = ',', .quote = '"', .is_final = true};
    text[size] = 0;
    if (memchr(text, 0, size)) return csv_reject_nul(path);
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) reader->at += 3;
    return OK;
}

void csv_free(struct csv_reader *reader) {
    free(reader->fields);
    buffer_free(reader->buffer);
    if (reader->has_file) status_free(io_close(reader->fd, reader->path)); /* it was only read */
    *reader = (struct csv_reader){0};
}

static status add_field(struct csv_reader *reader, const char *text, bool is_quoted) {
    if ((size_t)(reader->at - reader->record) > CSV_MAX_RECORD)
        return status_new(STATUS_DATA, "%s:line %zu: the line is longer than %zu MiB, the maximum", reader->path,
                          reader->record_line, CSV_MAX_RECORD >> 20);
    if (reader->count == reader->capacity) {
        size_t capacity = reader->capacity ? reader->capacity * 2 : 32;
        struct csv_field *fields = realloc(reader->fields, capacity * sizeof *fields);
        if (!fields) return status_memory("%zu fields of a line of %s", capacity, reader->path);
        reader->fields = fields;
        reader->capacity = capacity;
    }
    reader->fields[reader->count++] = (struct csv_field){text, is_quoted};
    return OK;
}

static bool is_blank(const struct csv_reader *reader, char c) {
    return c == ' ' || (c == '\t' && reader->delimiter != '\t');
}

/* The text ends with a NUL and has no other. */
static bool ends_field(const struct csv_reader *reader, const char *at) {
    return csv_is_delimiter(reader, *at) || *at == '\n' || *at == '\r' || *at == 0;
}

/* Unquotes the field at reader->at, moving its characters to its start, and advances behind the closing quote. */
static status unquote(struct csv_reader *reader, char **field_end) {
    char *to = reader->at, *from = reader->at + 1;
    size_t opened = reader->line;
    char quote = reader->quote;
    for (;; from++) {
        if (from == reader->end)
            return status_new(STATUS_DATA, "%s:line %zu: a quoted field is not closed", reader->path, opened);
        if (*from == quote && from[1] != quote) break;
        if (*from == quote) from++;
        if (*from == '\n' || (*from == '\r' && from[1] != '\n')) reader->line++;
        *to++ = *from;
    }
    *field_end = to;
    for (from++; is_blank(reader, *from) && reader->delimiter != CSV_BLANKS; from++) {
    }
    reader->at = from;
    if (ends_field(reader, from)) return OK;
    return status_new(STATUS_DATA,
                      "%s:line %zu: text after the closing quote of a field (write a quote inside a field twice)",
                      reader->path, reader->line);
}

/* Whether one of eight bytes is the delimiter, or less than 14 as the line ends are (Hacker's Delight, 6-1). */
static bool may_end_field(const char *bytes, char delimiter) {
    const uint64_t ones = 0x0101010101010101u;
    uint64_t word, other;
    memcpy(&word, bytes, sizeof word);
    other = word ^ ones * (unsigned char)delimiter;
    return (((other - ones) & ~other) | ((word - ones * 14) & ~word)) & ones << 7;
}

static void parse_plain(struct csv_reader *reader, char **field_end) {
    char *at = reader->at;
    while (reader->end - at >= 8 && !may_end_field(at, reader->delimiter)) at += 8;
    while (!ends_field(reader, at)) at++;
    *field_end = reader->at = at;
}

char *csv_plain_field(const struct csv_reader *reader, char *at, char **from, char **to) {
    bool is_quoted = reader->quote && *at == reader->quote;
    if (is_quoted) {
        for (*from = ++at; *at != reader->quote && *at != '\n' && *at != '\r' && *at != 0; at++) {
        }
        *to = at;
        return *at == reader->quote && ends_field(reader, at + 1) ? at + 1 : NULL;
    }
    if (is_blank(reader, *at)) return NULL;
    *from = at;
    while (reader->end - at >= 8 && !may_end_field(at, reader->delimiter)) at += 8;
    while (!ends_field(reader, at)) at++;
    *to = at;
    return at > *from && is_blank(reader, at[-1]) ? NULL : at;
}

static bool is_at_line_end(const struct csv_reader *reader) {
    return reader->at < reader->end && (*reader->at == '\n' || *reader->at == '\r');
}

static void skip_line_end(struct csv_reader *reader) {
    if (!is_at_line_end(reader)) return;
    if (*reader->at == '\r' && reader->at[1] == '\n') reader->at++;
    reader->at++;
    reader->line++;
}

#define END_OF_DOS_FILE '\x1a' /* Ctrl-Z, behind the last line */

static bool is_rest_empty(const struct csv_reader *reader) {
    for (const char *c = reader->at; c < reader->end; c++)
        if (*c != '\n' && *c != '\r' && *c != END_OF_DOS_FILE && !is_blank(reader, *c)) return false;
    return true;
}

/* Whether the line at reader->at has nothing but blanks; *next: the line end behind them. */
static bool is_empty_line(const struct csv_reader *reader, char **next) {
    for (*next = reader->at; *next < reader->end && is_blank(reader, **next);) ++*next;
    return *next < reader->end && (**next == '\n' || **next == '\r');
}

static bool is_comment(const struct csv_reader *reader, char **next) {
    if (!reader->comment || *reader->at != reader->comment) return false;
    for (*next = reader->at; *next < reader->end && **next != '\n' && **next != '\r';) ++*next;
    return true;
}

static status skip_lines(struct csv_reader *reader) {
    bool has_more;
    char *next;
    TRY(csv_complete(reader, &has_more));
    while (is_empty_line(reader, &next) || is_comment(reader, &next)) {
        reader->at = next;
        skip_line_end(reader);
        TRY(csv_complete(reader, &has_more));
    }
    return OK;
}

status csv_next(struct csv_reader *reader, bool *has_record) {
    TRY(skip_lines(reader));
    reader->count = 0;
    reader->record_line = reader->line;
    reader->record = reader->at;
    bool may_be_end = reader->at == reader->end || is_at_line_end(reader) || *reader->at == END_OF_DOS_FILE ||
                      is_blank(reader, *reader->at);
    *has_record = !(may_be_end && is_rest_empty(reader));
    for (bool is_last = !*has_record; !is_last;) {
        char *field_end = reader->at;
        while (is_blank(reader, *reader->at)) reader->at++;
        char *field = reader->at;
        bool is_quoted = *field == reader->quote && reader->quote;
        if (is_quoted)
            TRY(unquote(reader, &field_end));
        else
            parse_plain(reader, &field_end);
        while (reader->delimiter == CSV_BLANKS && is_blank(reader, *reader->at)) reader->at++;
        bool is_end = reader->at == reader->end || is_at_line_end(reader);
        is_last = reader->delimiter == CSV_BLANKS ? is_end : *reader->at != reader->delimiter; /* it ends with a NUL */
        if (is_last)
            skip_line_end(reader);
        else if (reader->delimiter != CSV_BLANKS)
            reader->at++;
        while (!is_quoted && field_end > field && is_blank(reader, field_end[-1])) field_end--;
        bool may_be_end_of_file = is_last && reader->is_final && field_end > field && field_end[-1] == END_OF_DOS_FILE;
        if (may_be_end_of_file && is_rest_empty(reader)) field_end--;
        *field_end = 0; /* overwrites a quote, a blank, the comma or the line end, which were already read */
        TRY(add_field(reader, field, is_quoted));
    }
    return OK;
}
