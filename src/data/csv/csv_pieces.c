/* Reads a file in pieces into one buffer, which is small enough for the caches. A record is parsed, which changes its
 * text, when it is known to end in the buffer. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/gzip.h"
#include "base/files/io.h"
#include "data/csv/csv.h"
#include "data/csv/csv_dialect.h"
#include "data/files/files.h"

#define PIECE ((size_t)1 << 20)

/* ---- reading ---- */

static status grow(struct csv_reader *reader, size_t left) {
    void *larger;
    size_t capacity = reader->capacity_bytes * 2;
    TRY(rows_alloc(capacity + CSV_PADDING, 1, reader->path, &larger));
    memcpy(larger, reader->at, left);
    buffer_free(reader->buffer);
    reader->buffer = reader->at = larger;
    reader->capacity_bytes = capacity;
    return OK;
}

/* Checks the [got] bytes at the end of the buffer. A character may be cut there. */
static status check_piece(struct csv_reader *reader, size_t got) {
    const char *first = reader->end - got - reader->unchecked;
    size_t size = got + reader->unchecked, valid = reader->is_utf8_checked ? csv_utf8_prefix(first, size) : size;
    if (memchr(reader->end - got, 0, got)) return csv_reject_nul(reader->path);
    reader->unchecked = size - valid;
    reader->is_not_utf8 = reader->unchecked > 3 || (reader->unchecked > 0 && reader->is_final);
    return reader->is_not_utf8 ? status_new(STATUS_DATA, "%s: this is not UTF-8 text", reader->path) : OK;
}

/* Moves the unread text to the start of the buffer and reads more behind it. */
static status refill(struct csv_reader *reader) {
    size_t left = (size_t)(reader->end - reader->at), got;
    if (left > reader->capacity_bytes / 2)
        TRY(grow(reader, left));
    else
        memmove(reader->buffer, reader->at, left);
    size_t wanted = reader->capacity_bytes - left;
    reader->at = reader->complete = reader->buffer;
    TRY(io_read(reader->fd, reader->path, reader->buffer + left, wanted, &got));
    reader->is_final = got < wanted;
    reader->end = reader->buffer + left + got;
    memset(reader->end, 0, CSV_PADDING);
    return check_piece(reader, got);
}

/* ---- records ---- */

/* Behind the closing quote of the quoted field at [at]; NULL: it is not in the buffer. */
static char *skip_quoted(const struct csv_reader *reader, char *at) {
    for (at++; (at = memchr(at, reader->quote, (size_t)(reader->end - at))) && at + 1 < reader->end; at += 2)
        if (at[1] != reader->quote) return at + 1;
    return NULL;
}

/* The end of the record at reader->at with its line end; NULL: it is not in the buffer. */
static char *find_end(const struct csv_reader *reader) {
    char *at = reader->at;
    bool is_comment = reader->comment && *at == reader->comment;
    for (;;) {
        while (*at == ' ' || (*at == '\t' && reader->delimiter != '\t')) at++;
        if (!is_comment && reader->quote && *at == reader->quote && !(at = skip_quoted(reader, at))) return NULL;
        while (*at && !csv_is_delimiter(reader, *at) && *at != '\n' && *at != '\r') at++;
        if (at == reader->end) return NULL;
        char c = *at++;
        if (csv_is_delimiter(reader, c)) continue;
        if (c == '\n') return at;
        if (at == reader->end) return NULL; /* perhaps \r\n */
        return *at == '\n' ? at + 1 : at;
    }
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Whether blanks and line ends are all that is left in the buffer. */
static bool is_rest_blank(const struct csv_reader *reader) {
    const char *at = reader->at;
    while (is_blank(*at)) at++;
    return at == reader->end;
}

/* Without quotes every line of the buffer is a record. Empty lines may be the end of the file and are left. */
static void find_complete(struct csv_reader *reader) {
    size_t size = (size_t)(reader->end - reader->at);
    char *last = memrchr(reader->at, '\n', size);
    if (!last || (reader->quote && memchr(reader->at, reader->quote, size))) return;
    while (last > reader->at && is_blank(last[-1])) last--;
    reader->complete = last;
}

status csv_complete(struct csv_reader *reader, bool *has_more) {
    *has_more = false;
    while (!reader->is_final && reader->at >= reader->complete) {
        size_t left = (size_t)(reader->end - reader->at);
        char *end = left > CSV_MAX_RECORD ? reader->end : is_rest_blank(reader) ? NULL : find_end(reader);
        if (end) {
            reader->complete = end;
            return OK;
        }
        TRY(refill(reader));
        find_complete(reader);
        *has_more = true;
    }
    return OK;
}

/* ---- files ---- */

/* A file whose bytes are not the text: compressed, UTF-16 or another encoding that is converted as a whole. */
static bool is_converted(const struct csv_reader *reader, int encoding) {
    size_t size = (size_t)(reader->end - reader->at);
    bool is_utf16 = size >= 2 && (memcmp(reader->at, "\xff\xfe", 2) == 0 || memcmp(reader->at, "\xfe\xff", 2) == 0);
    return is_utf16 || gzip_is(reader->at, size) || (encoding != CSV_ENCODING_AUTO && encoding != CSV_UTF8);
}

/* The delimiter is recognised by the first lines. */
static bool has_lines(const struct csv_reader *reader) {
    int lines = 0;
    bool has_text = false;
    for (const char *at = reader->at; at < reader->end && lines < 8; at++) {
        has_text = has_text || !is_blank(*at);
        if (*at != '\n') continue;
        lines += has_text;
        has_text = false;
    }
    return lines >= 8 || reader->is_final || (size_t)(reader->end - reader->at) > CSV_MAX_RECORD;
}

static status start(struct csv_reader *reader, const struct csv_config *dialect, bool *is_started) {
    void *buffer;
    struct io_info info;
    bool is_auto = dialect->encoding == CSV_ENCODING_AUTO;
    TRY(io_stat_fd(reader->fd, reader->path, &info));
    reader->capacity_bytes = info.size < PIECE ? (size_t)info.size + 1 : PIECE;
    TRY(rows_alloc(reader->capacity_bytes + CSV_PADDING, 1, reader->path, &buffer));
    reader->buffer = reader->at = reader->end = buffer;
    status s = refill(reader);
    if (is_converted(reader, dialect->encoding)) return status_free(s), OK;
    TRY(s);
    bool has_mark = reader->end - reader->at >= 3 && memcmp(reader->at, "\xef\xbb\xbf", 3) == 0;
    if (has_mark) reader->at += 3;
    reader->is_utf8_checked = is_auto && !has_mark;
    if (reader->is_utf8_checked) TRY(check_piece(reader, (size_t)(reader->end - reader->at)));
    while (!has_lines(reader)) TRY(refill(reader));
    TRY(csv_set_dialect(reader, dialect));
    find_complete(reader);
    *is_started = true;
    return OK;
}

status csv_open_pieces(const char *path, const struct csv_config *dialect, struct csv_reader *reader,
                       bool *is_started) {
    *is_started = false;
    *reader = (struct csv_reader){.path = path, .line = 1, .delimiter = ',', .quote = '"'};
    TRY(io_open(path, &reader->fd));
    reader->has_file = true;
    status s = start(reader, dialect, is_started);
    if (!s && !*is_started) csv_free(reader);
    return s;
}

status csv_open_first(const char *path, const struct csv_config *dialect, struct csv_reader *reader, char **text) {
    bool is_started;
    const char *note;
    *text = NULL;
    status s = csv_open_pieces(path, dialect, reader, &is_started);
    if (s && !reader->is_not_utf8) return s;
    if (s) csv_free(reader);
    status_free(s);
    return is_started ? OK : csv_open_file(path, dialect, reader, text, &note);
}
