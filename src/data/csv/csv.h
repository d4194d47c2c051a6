/* csv: parses a comma-separated text (RFC 4180, or with another delimiter and quote) record by record, in memory or a
 * file that is read in pieces. Fields are unquoted in place. */
#pragma once

#include "base/arena.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "base/text.h"

struct csv_field {
    const char *text; /* NUL-terminated; without the blanks around an unquoted field */
    bool is_quoted;
};

struct csv_reader {
    const char *path;      /* for messages */
    char *at, *end;        /* the unread text in memory; *end is a NUL written by the reader */
    char delimiter, quote; /* quote 0: fields are never quoted. delimiter CSV_BLANKS: fields are separated by any number
                              of blanks and tabs */
    char comment;          /* lines that start with it are skipped; 0: none */
    size_t line;           /* of [at], from 1 */
    size_t record_line;
    const char *record;       /* start of the record */
    struct csv_field *fields; /* (capacity): of the record */
    size_t count, capacity;

    bool is_final; /* all text is in memory; else the members below are used */
    bool has_file; /* fd is open */
    int fd;
    char *buffer; /* (capacity_bytes + CSV_PADDING) */
    size_t capacity_bytes;
    char *complete;                    /* records that start before it end in the buffer */
    bool is_utf8_checked, is_not_utf8; /* is_not_utf8: the text is not UTF-8, which the failure says */
    size_t unchecked;                  /* bytes of a cut character at the end of the buffer */
};

#define CSV_BLANKS ' '
static inline bool csv_is_delimiter(const struct csv_reader *reader, char c) {
    return c == reader->delimiter || (c == '\t' && reader->delimiter == CSV_BLANKS);
}

/* The maximum size of a record in bytes; each field takes 16 bytes more. */
#define CSV_MAX_RECORD ((size_t)16 << 20)

/* Bytes behind the text of a file that can be read, the NUL included. */
#define CSV_PADDING 8

/* Starts at [text] (size bytes and one more, which is overwritten), with delimiter ',' and quote '"' unless they are
 * changed then. Skips a byte order mark. STATUS_DATA when the text contains a NUL. */
status csv_start(struct csv_reader *reader, const char *path, char *text, size_t size);

/* Parses the next record: fields (count), starting in line record_line; *has_record false at the end. Lines end with
 * \n, \r\n or \r; comments and lines without text are skipped, as pandas' read_csv does. */
status csv_next(struct csv_reader *reader, bool *has_record);

void csv_free(struct csv_reader *reader);

/* Makes the whole next record available in memory. *has_more: the text was moved, and there may be more of it. */
status csv_complete(struct csv_reader *reader, bool *has_more);

/* The field at [at], without change of the text: its characters *from .. *to - 1 and the delimiter, line end or end of
 * the text behind it. NULL: it has blanks at its ends, or a doubled quote or a line end in quotes. */
char *csv_plain_field(const struct csv_reader *reader, char *at, char **from, char **to);

/* Parses a decimal number ("1", "-0.5e-3") to the nearest double; false for any other text, such as nan, inf or hex. */
bool csv_number(const char *text, double *value);
/* The same with the decimal separator *decimal: '.', ',', or 0: the first number with a separator decides and sets it,
 * but numbers such as 13,881 leave CSV_UNCLEAR, from which 1,5 decides and 1.5 makes CSV_MIXED. */
bool csv_decimal(const char *text, char *decimal, double *value);
#define CSV_UNCLEAR '?' /* commas may separate groups of three digits */
#define CSV_MIXED '!'   /* they do, or one of the numbers is wrong */
static inline bool csv_is_undecided(char decimal) { return decimal == CSV_UNCLEAR || decimal == CSV_MIXED; }

/* The text of a number without the separators of its groups of three digits, "1,234.5", in [out]; [text] if it is no
 * such number, or [thousands] is 0. A blank also stands for U+00A0 and U+202F, an apostrophe for U+2019. */
#define CSV_UNGROUPED 64
const char *csv_ungroup(const char *text, char thousands, char out[CSV_UNGROUPED]);

/* The text of a number without blanks and the characters of [strip] (UTF-8; NULL: none) at its ends, also behind a
 * sign, in [out]: "-$5" is "-5", and with () in [strip] "(5)", too. [text] if it does not start and end as a number
 * then, or has a parenthesis without the other one, or a sign as well. */
const char *csv_strip(const char *text, const char *strip, char out[CSV_UNGROUPED]);

/* The characters that are blanks around numbers, for csv_starts_with. */
extern const char *const csv_blanks[];
/* The bytes of the first of [words] (NULL-terminated) that [text] starts with; 0: of none. */
size_t csv_starts_with(const char *text, const char *const *words);

/* Whether the text is probably a code whose leading zeros have a meaning, such as 007: digits, of which the first of
 * several is 0. */
bool csv_is_code(const char *text);

/* 10^0 to 10^22, which are exact. */
extern const double csv_powers[];
/* digits / 10^power, rounded once; digits > 0, power 0 .. 19. */
double csv_quotient(uint64_t digits, int power);
/* Integers of at most so many digits fit into 64 bits, and those up to CSV_EXACT are exact as doubles. */
#define CSV_MAX_DIGITS 19
#define CSV_EXACT ((uint64_t)1 << 53)
/* Whether [number], of this text, is a whole number from CSV_EXACT on, so that other whole numbers may be the same
 * double: digits with or without a sign. */
bool csv_is_inexact(const char *text, double number);
/* The order of two numbers with these texts, by their digits where csv_is_inexact. */
int csv_compare(const char *a, double x, const char *b, double y);

/* ---- csv dialect ---- */

/* Csv_dialect: `dataset.csv`, how a CSV file is written, and what of it is recognised from the file. */

enum csv_encoding { CSV_ENCODING_AUTO, CSV_UTF8, CSV_UTF16, CSV_LATIN1, CSV_WINDOWS1252 };

/* `csv:`; texts of one character, "tab" for a tab, "blanks" for CSV_BLANKS. */
struct csv_config {
    const char *delimiter; /* NULL: recognised */
    const char *quote;     /* "": there are none */
    const char *decimal;   /* NULL: '.', or recognised with delimiter ';' */
    const char *thousands; /* NULL: none */
    const char *strip;     /* characters that are removed from the ends of numbers; NULL: none */
    const char *comment;   /* NULL: comments are recognised above the header only */
    int encoding;          /* enum csv_encoding */
    bool has_no_header;    /* columns are named 0, 1, 2, ... */
};
extern const struct schema csv_schema;

/* The character of a key; 0: NULL or "". */
char csv_config_char(const char *text);

/* Reads the file and starts [reader] with the delimiter and the quote of [dialect], or those that are recognised; NULL:
 * everything is recognised. *text for buffer_free, also after a failure, and *note as in csv_read_file. */
status csv_open_file(const char *path, const struct csv_config *dialect, struct csv_reader *reader, char **text,
                     const char **note);

/* Starts [reader] at a file that is read in pieces; for csv_free, also after a failure. *is_started false: the file is
 * converted as a whole (csv_open_file). reader->is_not_utf8 after a failure, also of csv_next: the encoding was not
 * given, and the text is not UTF-8. Fields stay until the next record. */
status csv_open_pieces(const char *path, const struct csv_config *dialect, struct csv_reader *reader, bool *is_started);

/* Starts [reader] in pieces where that is possible, else with *text (for buffer_free, also after a failure), the file
 * as a whole; to read its first records. */
status csv_open_first(const char *path, const struct csv_config *dialect, struct csv_reader *reader, char **text);

/* Sets the delimiter, the quote and the comment, given or recognised by the text in memory, and skips recognised
 * comments. STATUS_USAGE: the comment is the recognised delimiter. */
status csv_set_dialect(struct csv_reader *reader, const struct csv_config *dialect);

/* The number of the first bytes that are UTF-8; [size]: all are. */
size_t csv_utf8_prefix(const char *bytes, size_t size);

/* The decimal separator for csv_decimal, of a file for which none is given. */
static inline char csv_usual_decimal(const struct csv_reader *reader) { return reader->delimiter == ';' ? 0 : '.'; }
/* That of a file with [dialect]. */
char csv_decimal_of(const struct csv_reader *reader, const struct csv_config *dialect);

/* The failure for numbers whose commas are unclear, such as [text] of [line]. */
status csv_ask_decimal(const char *path, size_t line, const char *text);

/* ---- writing ---- */

/* Adds [field] to a record, in quotes where a reader would else see another text. */
void csv_add_field(struct text *out, const char *field);
