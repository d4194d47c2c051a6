/* The reader of CSV: records, a file in pieces, the numbers in fields, and how a file is written. A record is parsed in
 * one pass over its text, in which unquoting moves the characters of a field to its start, so that nothing is copied.
 */
#include "data/csv/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/gzip.h"
#include "base/files/io.h"
#include "base/utf8.h"
#include "data/files/files.h"

/* ---- records ---- */

/* The failure for a NUL at [nul], behind reader->at. */
static status reject_nul(const struct csv_reader *reader, const char *nul) {
    long long line = (long long)reader->line;
    for (const char *at = reader->at; at < nul; at++) line += *at == '\n' || (*at == '\r' && at[1] != '\n');
    return status_data("%s:line %lld: this is not UTF-8 text (it has a zero byte); if it is UTF-16, set "
                       "dataset.csv.encoding: utf-16",
                       reader->path, line);
}

status csv_start(struct csv_reader *reader, const char *path, char *text, size_t size) {
    *reader = (struct csv_reader){
        .path = path, .at = text, .end = text + size, .line = 1, .delimiter = ',', .quote = '"', .is_final = true};
    text[size] = 0;
    const char *nul = memchr(text, 0, size);
    if (nul) return reject_nul(reader, nul);
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
        return status_data("%s:line %zu: the line is longer than %zu MiB, the maximum", reader->path,
                           reader->record_line, CSV_MAX_RECORD >> 20);
    TRY(array_grow(&reader->fields, &reader->capacity, reader->count + 1, sizeof *reader->fields, reader->path));
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
        if (from == reader->end) return status_data("%s:line %zu: a quoted field is not closed", reader->path, opened);
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
    return status_data("%s:line %zu: text after the closing quote of a field (write a quote inside a field twice)",
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

/* ---- files in pieces ---- */

/* Reads a file in pieces into one buffer, which is small enough for the caches. A record is parsed, which changes its
 * text, when it is known to end in the buffer. */

#define PIECE ((size_t)1 << 20)

/* ---- reading ---- */

static status grow(struct csv_reader *reader, size_t left) {
    char *larger;
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
    const char *nul = memchr(reader->end - got, 0, got);
    if (nul) return reject_nul(reader, nul);
    reader->unchecked = size - valid;
    reader->is_not_utf8 = reader->unchecked > 3 || (reader->unchecked > 0 && reader->is_final);
    return reader->is_not_utf8 ? status_data("%s: this is not UTF-8 text", reader->path) : OK;
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

static bool is_white_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Whether blanks and line ends are all that is left in the buffer. */
static bool is_rest_blank(const struct csv_reader *reader) {
    const char *at = reader->at;
    while (is_white_space(*at)) at++;
    return at == reader->end;
}

/* Without quotes every line of the buffer is a record. Empty lines may be the end of the file and are left. */
static void find_complete(struct csv_reader *reader) {
    size_t size = (size_t)(reader->end - reader->at);
    char *last = memrchr(reader->at, '\n', size);
    if (!last || (reader->quote && memchr(reader->at, reader->quote, size))) return;
    while (last > reader->at && is_white_space(last[-1])) last--;
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
        has_text = has_text || !is_white_space(*at);
        if (*at != '\n') continue;
        lines += has_text;
        has_text = false;
    }
    return lines >= 8 || reader->is_final || (size_t)(reader->end - reader->at) > CSV_MAX_RECORD;
}

static status start(struct csv_reader *reader, const struct csv_config *dialect, bool *is_started) {
    struct io_info info;
    bool is_auto = dialect->encoding == CSV_ENCODING_AUTO;
    TRY(io_stat_fd(reader->fd, reader->path, &info));
    reader->capacity_bytes = info.size < PIECE ? (size_t)info.size + 1 : PIECE;
    TRY(rows_alloc(reader->capacity_bytes + CSV_PADDING, 1, reader->path, &reader->buffer));
    reader->at = reader->end = reader->buffer;
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

/* ---- numbers ---- */

/* A number of at most 19 digits and a small power of ten is computed exactly with 128-bit integers and rounded once, to
 * nearest even, as strtod does (the idea is Clinger's: the digits and the power of ten are exact, so one correctly
 * rounded operation gives the nearest double); strtod converts all others. */

__extension__ typedef unsigned __int128 uint128;

enum { MAX_POWER = 19 }; /* of ten, that fits into 64 bits */
#define DIGITS "0123456789"

const double csv_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                             1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* The quotient of digits * 2^shift has 64 or 65 bits, and what is left of the
 * division decides only between a tie and more. */
double csv_quotient(uint64_t digits, int power) {
    uint64_t divisor = (uint64_t)csv_powers[power];
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
        result = power < 0 ? (double)digits / csv_powers[-power] : (double)digits * csv_powers[power];
    else if (power <= 0 && power >= -MAX_POWER && digits > 0)
        result = csv_quotient(digits, -power);
    else
        return false;
    *value = is_negative ? -result : result;
    return true;
}

bool csv_is_inexact(const char *text, double number) {
    if (fabs(number) < (double)CSV_EXACT) return false;
    text += *text == '-' || *text == '+';
    return text[strspn(text, "0123456789")] == 0;
}

int csv_compare(const char *a, double x, const char *b, double y) {
    if (x != y || !csv_is_inexact(a, x) || !csv_is_inexact(b, y)) return (x > y) - (x < y);
    a += strspn(a, "+-0"), b += strspn(b, "+-0");
    size_t length = strlen(a), other = strlen(b);
    int order = length != other ? (length > other ? 1 : -1) : strcmp(a, b);
    return x < 0 ? -order : order;
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

/* ---- dialect ---- */

/* Files are converted to UTF-8 before they are parsed, so that the parser sees bytes only. */

/* ---- config ---- */

static const char *const encodings[] = {"auto", "utf-8", "utf-16", "latin-1", "windows-1252", NULL};

static const struct schema_row rows[] = {
    SCHEMA_ROW(STRING, struct csv_config, delimiter, .fallback = "null",
               .doc = "One character, tab, or blanks for any number of blanks and tabs; null: the one of , ; | and tab "
                      "that the first lines have equally often, or blanks between numbers."),
    SCHEMA_ROW(STRING, struct csv_config, quote, .fallback = "'\"'",
               .doc = "The character around fields with delimiters or line ends; written twice inside of them. '': "
                      "there is none."),
    SCHEMA_ROW(STRING, struct csv_config, decimal, .fallback = "null",
               .doc = "The decimal separator, '.' or ','; null: '.', or with the delimiter ; the one of the first "
                      "number with one."),
    SCHEMA_ROW(STRING, struct csv_config, thousands, .fallback = "null",
               .doc = "The separator of groups of three digits in numbers, ',' '.' ' ' '_' or an apostrophe, as "
                      "pandas' thousands; null: there is none."),
    SCHEMA_ROW(STRING, struct csv_config, strip, .fallback = "null",
               .doc = "Characters that are removed from the ends of numbers, with blanks: with '%$€' '5.5 %' is 5.5, "
                      "'-$3' is -3; with '()' (3) is -3. null: such values are texts."),
    SCHEMA_ROW(STRING, struct csv_config, comment, .fallback = "null",
               .doc = "A character such as '#': lines that start with it are skipped. null: only lines above the "
                      "header that start with # and are not the header."),
    SCHEMA_ROW(CHOICE, struct csv_config, encoding, .fallback = "auto", .choices = encodings,
               .doc = "auto: by the byte order mark, else UTF-8, or Windows-1252 if the file is not UTF-8."),
    SCHEMA_KEY(BOOL, "no_header", struct csv_config, has_no_header, .fallback = "false",
               .doc = "true: the first line is a row; the columns are named 0, 1, 2, ... as with pandas' header=None."),
    {0},
};

char csv_config_char(const char *text) {
    if (!text) return 0;
    if (strcmp(text, "blanks") == 0) return CSV_BLANKS;
    return strcmp(text, "tab") == 0 ? '\t' : *text;
}

/* A character that may stand in a number or end a line cannot be a delimiter or quote. */
static bool is_special(const char *text) {
    bool is_char = strlen(text) == 1 || strcmp(text, "tab") == 0;
    return is_char && (unsigned char)*text < 0x80 && !strchr("\r\n 0123456789+-.", csv_config_char(text));
}

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct csv_config *csv = config;
    struct place place = where ? where->place : (struct place){0};
    char delimiter = csv_config_char(csv->delimiter), quote = csv_config_char(csv->quote);
    bool has_letter = csv->delimiter && strlen(csv->delimiter) == 1 && strchr("eE", *csv->delimiter);
    bool is_blanks = delimiter == CSV_BLANKS && strcmp(csv->delimiter, "blanks") == 0;
    if (csv->delimiter && !is_blanks && (!is_special(csv->delimiter) || has_letter))
        problems_add(problems, place, path, "delimiter must be one character such as ',' ';' '|', or tab, or blanks");
    if (*csv->quote && !is_special(csv->quote))
        problems_add(problems, place, path, "quote must be one character such as '\"', or '' for none");
    if (csv->strip && strpbrk(csv->strip, "0123456789.,+-eE"))
        problems_add(problems, place, path, "strip must not have digits . , + - e E, which are parts of numbers");
    if (csv->comment && (!is_special(csv->comment) || csv_config_char(csv->comment) == delimiter ||
                         csv_config_char(csv->comment) == quote))
        problems_add(problems, place, path,
                     "comment must be one character such as '#', not the delimiter or the quote");
    if (csv->thousands && (strlen(csv->thousands) != 1 || !strchr(",. _'", *csv->thousands)))
        problems_add(problems, place, path, "thousands must be ',' '.' ' ' '_' or an apostrophe");
    else if (csv->thousands && ((csv->decimal && *csv->decimal == *csv->thousands) || delimiter == *csv->thousands))
        problems_add(problems, place, path, "thousands must be another character than decimal and delimiter");
    if (csv->decimal && strcmp(csv->decimal, ".") != 0 && strcmp(csv->decimal, ",") != 0)
        problems_add(problems, place, path, "decimal must be '.' or ','");
    else if (csv->delimiter && (delimiter == quote || (csv->decimal && delimiter == *csv->decimal)))
        problems_add(problems, place, path, "delimiter, quote and decimal must be different characters");
}

const struct schema csv_schema = SCHEMA("dataset.csv", struct csv_config, .rows = rows, .check = check);

/* ---- encodings ---- */

/* Runs of ASCII are skipped by words. */
size_t csv_utf8_prefix(const char *bytes, size_t size) {
    uint32_t code;
    size_t i = 0;
    while (i < size) {
        uint64_t word;
        if (size - i >= sizeof word) {
            memcpy(&word, bytes + i, sizeof word);
            if (!(word & 0x8080808080808080u)) {
                i += sizeof word;
                continue;
            }
        }
        size_t length = utf8_decode(bytes + i, size - i, &code);
        if (length == 0) return i;
        i += length;
    }
    return size;
}

static bool is_utf8(const char *bytes, size_t size) { return csv_utf8_prefix(bytes, size) == size; }

/* The characters of 0x80 to 0x9f; 0: undefined, which stays a control character as in the WHATWG's Encoding Standard.
 */
static const uint16_t windows1252[32] = {0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                         0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017d, 0,
                                         0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                         0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

static uint32_t code_of_byte(uint8_t byte, bool is_windows) {
    bool is_mapped = is_windows && byte >= 0x80 && byte < 0xa0 && windows1252[byte - 0x80];
    return is_mapped ? windows1252[byte - 0x80] : byte;
}

/* Replaces *text by its conversion. */
static status replace(char *converted, size_t length, char **text, size_t *size) {
    buffer_free(*text);
    *text = converted;
    *size = length;
    return OK;
}

static status from_bytes(const char *path, bool is_windows, char **text, size_t *size) {
    size_t length = 0;
    char *out;
    TRY(rows_alloc(*size + CSV_PADDING, 3, path, &out));
    for (size_t i = 0; i < *size; i++)
        length += utf8_write(code_of_byte((uint8_t)(*text)[i], is_windows), out + length);
    return replace(out, length, text, size);
}

static status from_utf16(const char *path, bool is_big, char **text, size_t *size) {
    size_t length = 0;
    const uint8_t *in = (const uint8_t *)*text;
    if (*size % 2) return status_data("%s: UTF-16 text has an even number of bytes, this has %zu", path, *size);
    char *out;
    TRY(rows_alloc(*size + CSV_PADDING, 2, path, &out));
    for (size_t i = 0; i < *size; i += 2) {
        uint32_t code = (uint32_t)(is_big ? in[i] << 8 | in[i + 1] : in[i + 1] << 8 | in[i]);
        if (code >= 0xd800 && code < 0xdc00 && i + 3 < *size) {
            uint32_t low = (uint32_t)(is_big ? in[i + 2] << 8 | in[i + 3] : in[i + 3] << 8 | in[i + 2]);
            if (low >= 0xdc00 && low < 0xe000) {
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                i += 2;
            }
        }
        if (code >= 0xd800 && code < 0xe000) {
            buffer_free(out);
            return status_data("%s: this is not UTF-16 text (byte %zu)", path, i);
        }
        length += utf8_write(code, out + length);
    }
    return replace(out, length, text, size);
}

static bool starts_with(const char *text, size_t size, const char *mark, size_t length) {
    return size >= length && memcmp(text, mark, length) == 0;
}

static status decode(const char *path, enum csv_encoding encoding, char **text, size_t *size, const char **note) {
    bool is_little = starts_with(*text, *size, "\xff\xfe", 2), is_big = starts_with(*text, *size, "\xfe\xff", 2);
    if (is_little || is_big || encoding == CSV_UTF16) return from_utf16(path, is_big, text, size);
    if (starts_with(*text, *size, "\xef\xbb\xbf", 3)) return OK;
    if (encoding == CSV_LATIN1 || encoding == CSV_WINDOWS1252)
        return from_bytes(path, encoding == CSV_WINDOWS1252, text, size);
    if (encoding == CSV_UTF8 || is_utf8(*text, *size) || memchr(*text, 0, *size)) return OK;
    *note = "it is not UTF-8 and is read as Windows-1252 (Latin-1); see dataset.csv.encoding";
    return from_bytes(path, true, text, size);
}

/* ---- files ---- */

/* Reads the file, decompresses gzip and converts it to UTF-8: *text (size) and CSV_PADDING more bytes, for
 * buffer_free, also after a failure. A byte order mark has priority over [encoding]; CSV_ENCODING_AUTO is UTF-8 or,
 * when the bytes are not UTF-8, Windows-1252, and then *note is a clause about it (else NULL). */
static status csv_read_file(const char *path, enum csv_encoding encoding, char **text, size_t *size,
                            const char **note) {
    *note = NULL;
    TRY(file_read(path, text, size));
    if (gzip_is(*text, *size)) {
        char *packed = *text;
        *text = NULL;
        status s = gzip_read_all(path, packed, *size, text, size);
        buffer_free(packed);
        TRY(s);
    }
    return decode(path, encoding, text, size, note);
}

/* ---- delimiters ---- */

static const char delimiters[] = "\t;|,";
enum { DELIMITERS = sizeof delimiters - 1, SAMPLED_LINES = 5 };

/* Counts the delimiters of the line from *at on, outside of quotes, and advances behind its end. */
static void count_line(const char **at, const char *end, char quote, size_t counts[DELIMITERS]) {
    bool is_quoted = false;
    memset(counts, 0, DELIMITERS * sizeof *counts);
    for (; *at < end; ++*at) {
        char c = **at;
        if (quote && c == quote) is_quoted = !is_quoted;
        if (is_quoted) continue;
        if (c == '\n' || c == '\r') break;
        for (size_t d = 0; d < DELIMITERS; d++) counts[d] += c == delimiters[d];
    }
    if (*at == end) return;
    bool is_pair = **at == '\r' && *at + 1 < end && (*at)[1] == '\n';
    *at += is_pair ? 2 : 1;
}

static const char *line_end(const char *at, const char *end) {
    while (at < end && *at != '\n' && *at != '\r') at++;
    return at;
}

/* Advances behind lines of blanks and comments. */
static void skip_comment_lines(const char **at, const char *end, char comment) {
    const char *c = *at;
    while (c < end && (strchr(" \t\r\n", *c) || (comment && *c == comment && c == *at))) {
        if (comment && *c == comment) c = line_end(c, end);
        if (c < end && (*c == '\r' || *c == '\n')) *at = c + 1;
        c += c < end;
    }
    if (c == end) *at = end;
}

/* ---- blanks ---- */

/* The next text between blanks of the line, [at, *to); false: there is none. */
static bool next_word(const char **at, const char **to, const char *end, char quote) {
    while (*at < end && (**at == ' ' || **at == '\t')) ++*at;
    if (*at == end) return false;
    bool is_quoted = false;
    for (*to = *at; *to < end && (is_quoted || (**to != ' ' && **to != '\t')); ++*to)
        is_quoted = is_quoted != (quote && **to == quote);
    return true;
}

static bool is_number(const char *from, const char *to) {
    char word[CSV_UNGROUPED];
    double value;
    size_t length = (size_t)(to - from);
    if (length >= sizeof word) return false;
    memcpy(word, from, length);
    word[length] = 0;
    return csv_number(word, &value);
}

/* Whether the first lines have as many texts between blanks, of which at least half are numbers but in the first line;
 * [has_tabs]: two of the numbers are separated by several blanks. */
static bool are_words(const char *at, const char *end, char quote, char comment, bool has_tabs) {
    size_t first = 0, lines = 0;
    for (; lines < SAMPLED_LINES; lines++) {
        skip_comment_lines(&at, end, comment);
        if (at == end) break;
        const char *stop = line_end(at, end), *to = NULL, *before = NULL;
        size_t words = 0, numbers = 0, gaps = 0;
        for (; next_word(&at, &to, stop, quote); words++, before = to, at = to) {
            bool is_a_number = is_number(at, to);
            gaps += is_a_number && before && at - before > 1;
            numbers += is_a_number;
        }
        if (lines == 0) first = words;
        if (words < 2 || words != first || (lines > 0 && numbers * 2 < words) || (has_tabs && numbers > 0 && gaps == 0))
            return false;
    }
    return lines > 1;
}

/* The first of tab, ';', '|' and ',' that each of the first lines has equally often, blanks, or the most frequent one
 * of the first line; ',' when there is none. */
static char find_delimiter(const char *text, size_t size, char quote, char comment) {
    const char *at = text, *end = text + size;
    size_t first[DELIMITERS], counts[DELIMITERS], best = DELIMITERS - 1, found = DELIMITERS;
    bool is_equal[DELIMITERS] = {0};
    skip_comment_lines(&at, end, comment);
    count_line(&at, end, quote, first);
    for (size_t d = 0; d < DELIMITERS; d++) is_equal[d] = first[d] > 0;
    for (int line = 1; line < SAMPLED_LINES; line++) {
        skip_comment_lines(&at, end, comment);
        if (at == end) break;
        count_line(&at, end, quote, counts);
        for (size_t d = 0; d < DELIMITERS; d++) is_equal[d] = is_equal[d] && counts[d] == first[d];
    }
    for (size_t d = DELIMITERS; d-- > 0;) {
        if (is_equal[d]) found = d;
        if (first[d] > first[best]) best = d;
    }
    if (found == DELIMITERS && first[best] > 0) found = best;
    bool has_tabs = found == 0;
    if ((has_tabs || found == DELIMITERS) && are_words(text, end, quote, comment, has_tabs)) return CSV_BLANKS;
    return found < DELIMITERS ? delimiters[found] : ',';
}

/* ---- comments ---- */

#define COMMENT '#'

static size_t count_fields(const char *at, const char *end, char quote, char delimiter) {
    size_t count = 0;
    bool is_quoted = false;
    const char *to;
    if (delimiter == CSV_BLANKS)
        for (; next_word(&at, &to, end, quote); at = to) count++;
    for (; at < end; at++) {
        if (quote && *at == quote) is_quoted = !is_quoted;
        count += !is_quoted && *at == delimiter;
    }
    return count;
}

static bool starts_with_number(const char *at, const char *end) {
    while (at < end && strchr("\"' +-.", *at)) at++;
    return at < end && *at >= '0' && *at <= '9';
}

/* Skips the comments above the header. The last of them is the header if it has as many fields as the row below, which
 * starts with a number, or if there is no other. */
static void skip_comments(struct csv_reader *reader) {
    const char *at = reader->at, *last = NULL, *end = reader->end;
    size_t lines = 0, count = 0;
    for (; at < end && (*at == COMMENT || *at == '\n' || *at == '\r'); at++) {
        const char *stop = line_end(at, end);
        count += *at == COMMENT;
        if (*at == COMMENT) last = at;
        at = stop;
        if (at < end && at + 1 < end && at[0] == '\r' && at[1] == '\n') at++;
    }
    if (!last || at >= end) return;
    const char *row_end = line_end(at, end), *last_end = line_end(last, end);
    char delimiter = reader->delimiter ? reader->delimiter : find_delimiter(at, (size_t)(end - at), reader->quote, 0);
    size_t fields = count_fields(at, row_end, reader->quote, delimiter);
    /* Between blanks a # alone is no name. */
    const char *names = delimiter == CSV_BLANKS && (last[1] == ' ' || last[1] == '\t') ? last + 1 : last;
    bool is_alike = fields > 0 && count_fields(names, last_end, reader->quote, delimiter) == fields;
    if (is_alike && (count == 1 || starts_with_number(at, row_end))) at = names;
    for (; reader->at < at; reader->at++)
        lines += *reader->at == '\n' || (*reader->at == '\r' && reader->at[1] != '\n');
    reader->line += lines;
}

status csv_set_dialect(struct csv_reader *reader, const struct csv_config *dialect) {
    reader->delimiter = csv_config_char(dialect->delimiter);
    reader->quote = dialect->quote ? csv_config_char(dialect->quote) : '"';
    reader->comment = csv_config_char(dialect->comment);
    if (!reader->comment) skip_comments(reader);
    if (!reader->delimiter)
        reader->delimiter =
            find_delimiter(reader->at, (size_t)(reader->end - reader->at), reader->quote, reader->comment);
    if (!reader->comment || !csv_is_delimiter(reader, reader->comment)) return OK;
    return status_usage("%s: dataset.csv.comment '%s' is the delimiter of the file; name it with dataset.csv.delimiter "
                        "if it is another, or choose another comment",
                        reader->path, dialect->comment);
}

status csv_open_file(const char *path, const struct csv_config *dialect, struct csv_reader *reader, char **text,
                     const char **note) {
    static const struct csv_config recognised;
    size_t size;
    if (!dialect) dialect = &recognised;
    *text = NULL;
    TRY(csv_read_file(path, (enum csv_encoding)dialect->encoding, text, &size, note));
    TRY(csv_start(reader, path, *text, size));
    return csv_set_dialect(reader, dialect);
}

/* ---- numbers ---- */

char csv_decimal_of(const struct csv_reader *reader, const struct csv_config *dialect) {
    if (dialect->decimal) return *dialect->decimal;
    char thousands = csv_config_char(dialect->thousands);
    return thousands == ',' ? '.' : thousands == '.' ? ',' : csv_usual_decimal(reader);
}

status csv_ask_decimal(const char *path, size_t line, const char *text) {
    return status_data("%s:line %zu: '%s' has a decimal comma or a separator of thousands, and no other number shows "
                       "which; set dataset.csv.decimal: ',' or dataset.csv.thousands: ','",
                       path, line, text_name(text).s);
}

/* ---- writing ---- */

/* Blanks at the ends would be removed from an unquoted field. */
static bool needs_quotes(const char *field) {
    size_t length = strlen(field);
    if (length == 0) return false;
    char first = field[0], last = field[length - 1];
    return strpbrk(field, ",\"\r\n") || first == ' ' || first == '\t' || last == ' ' || last == '\t';
}

void csv_add_field(struct text *out, const char *field) {
    if (!needs_quotes(field)) {
        text_add(out, field);
        return;
    }
    text_add(out, "\"");
    for (const char *at = field; *at;) {
        size_t plain = strcspn(at, "\"");
        text_add_bytes(out, at, plain);
        at += plain;
        if (*at) {
            text_add(out, "\"\"");
            at++;
        }
    }
    text_add(out, "\"");
}
