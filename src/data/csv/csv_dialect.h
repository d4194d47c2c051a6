/* csv_dialect: `dataset.csv`, how a CSV file is written, and what of it is recognised from the file. */
#ifndef DATA_CSV_DIALECT_H
#define DATA_CSV_DIALECT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/schema/schema.h"
#include "data/csv/csv.h"

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

/* Reads the file, decompresses gzip and converts it to UTF-8: *text (size) and CSV_PADDING more bytes, for
 * buffer_free, also after a failure. A byte order mark has priority over [encoding]; CSV_ENCODING_AUTO is UTF-8 or,
 * when the bytes are not UTF-8, Windows-1252, and then *note is a clause about it (else NULL). */
status csv_read_file(const char *path, enum csv_encoding encoding, char **text, size_t *size, const char **note);

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

#endif
