/* csv: the records of a comma-separated text (RFC 4180) in memory, one after the other, with the line each starts in.
 * Fields are unquoted in place. */
#ifndef DATA_CSV_H
#define DATA_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct csv_field {
    const char *text; /* NUL-terminated; blanks around an unquoted field are gone */
    bool is_quoted;
};

struct csv_reader {
    const char *path; /* for messages */
    char *at, *end;   /* what is left; *end is a NUL that belongs to the reader */
    size_t line;      /* of [at], from 1 */
    size_t record_line;
    const char *record;       /* where it starts */
    struct csv_field *fields; /* (capacity): of the record */
    size_t count, capacity;
};

/* The longest record that is read, in bytes: each field takes 16 bytes more. */
#define CSV_MAX_RECORD ((size_t)16 << 20)

/* Starts at [text] (size bytes, and one more that is written to). A byte order mark is skipped. STATUS_DATA when it is
 * no text (a NUL inside). */
status csv_start(struct csv_reader *reader, const char *path, char *text, size_t size);

/* The next record: fields (count), started in line record_line; *has_record false at the end. Lines end in \n, \r\n or
 * \r; empty lines at the end are skipped, others are a record of one empty field. */
status csv_next(struct csv_reader *reader, bool *has_record);

void csv_free(struct csv_reader *reader);

/* The decimal number that is the whole text ("1", "-0.5e-3"); false for anything else, such as nan, inf or hex. */
bool csv_number(const char *text, double *value);

#endif
