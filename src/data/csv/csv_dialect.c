/* Files are converted to UTF-8 before they are parsed, so that the parser sees bytes only. */
#include "data/csv/csv_dialect.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/gzip.h"
#include "base/utf8.h"
#include "data/csv/csv.h"
#include "data/files/files.h"

/* ---- config ---- */

static const char *const encodings[] = {"auto", "utf-8", "utf-16", "latin-1", "windows-1252", NULL};

static const struct schema_row rows[] = {
    {.key = "delimiter",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct csv_config, delimiter),
     .fallback = "null",
     .doc = "One character, tab, or blanks for any number of blanks and tabs; null: the one of , ; | and tab that the "
            "first lines have equally often, or blanks between numbers."},
    {.key = "quote",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct csv_config, quote),
     .fallback = "'\"'",
     .doc =
         "The character around fields with delimiters or line ends; written twice inside of them. '': there is none."},
    {.key = "decimal",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct csv_config, decimal),
     .fallback = "null",
     .doc =
         "The decimal separator, '.' or ','; null: '.', or with the delimiter ; the one of the first number with one."},
    {.key = "thousands",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct csv_config, thousands),
     .fallback = "null",
     .doc = "The separator of groups of three digits in numbers, ',' '.' ' ' '_' or an apostrophe, as pandas' "
            "thousands; null: there is none."},
    {.key = "strip",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct csv_config, strip),
     .fallback = "null",
     .doc =
         "Characters that are removed from the ends of numbers, with blanks: with '%$€' '5.5 %' is 5.5, '-$3' is -3; "
         "with '()' (3) is -3. null: such values are texts."},
    {.key = "comment",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct csv_config, comment),
     .fallback = "null",
     .doc = "A character such as '#': lines that start with it are skipped. null: only lines above the header that "
            "start with # and are not the header."},
    {.key = "encoding",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct csv_config, encoding),
     .fallback = "auto",
     .choices = encodings,
     .doc = "auto: by the byte order mark, else UTF-8, or Windows-1252 if the file is not UTF-8."},
    {.key = "no_header",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct csv_config, has_no_header),
     .fallback = "false",
     .doc = "true: the first line is a row; the columns are named 0, 1, 2, ... as with pandas' header=None."},
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

const struct schema csv_schema = {
    .name = "dataset.csv", .size = sizeof(struct csv_config), .rows = rows, .check = check};

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
    void *memory;
    size_t length = 0;
    TRY(rows_alloc(*size + CSV_PADDING, 3, path, &memory));
    char *out = memory;
    for (size_t i = 0; i < *size; i++)
        length += utf8_encode(code_of_byte((uint8_t)(*text)[i], is_windows), out + length);
    return replace(out, length, text, size);
}

static status from_utf16(const char *path, bool is_big, char **text, size_t *size) {
    void *memory;
    size_t length = 0;
    const uint8_t *in = (const uint8_t *)*text;
    if (*size % 2)
        return status_new(STATUS_DATA, "%s: UTF-16 text has an even number of bytes, this has %zu", path, *size);
    TRY(rows_alloc(*size + CSV_PADDING, 2, path, &memory));
    char *out = memory;
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
            buffer_free(memory);
            return status_new(STATUS_DATA, "%s: this is not UTF-16 text (byte %zu)", path, i);
        }
        length += utf8_encode(code, out + length);
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

status csv_read_file(const char *path, enum csv_encoding encoding, char **text, size_t *size, const char **note) {
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
static void skip_lines(const char **at, const char *end, char comment) {
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
        skip_lines(&at, end, comment);
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
    skip_lines(&at, end, comment);
    count_line(&at, end, quote, first);
    for (size_t d = 0; d < DELIMITERS; d++) is_equal[d] = first[d] > 0;
    for (int line = 1; line < SAMPLED_LINES; line++) {
        skip_lines(&at, end, comment);
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
    return status_new(STATUS_USAGE,
                      "%s: dataset.csv.comment '%s' is the delimiter of the file; name it with dataset.csv.delimiter "
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
    struct text shown = {0};
    text_add_value(&shown, text, TEXT_MAX_NAME);
    status s =
        status_new(STATUS_DATA,
                   "%s:line %zu: '%s' has a decimal comma or a separator of thousands, and no other number shows "
                   "which; set dataset.csv.decimal: ',' or dataset.csv.thousands: ','",
                   path, line, text_string(&shown));
    text_free(&shown);
    return s;
}
