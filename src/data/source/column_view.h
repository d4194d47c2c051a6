/* column_view: what is known of a column when its rows were read once: the kinds of its values, and up to MAX_POOLED
 * different texts. */
#pragma once

#include "base/text.h"
#include "data/columns/raw_columns.h"

/* ---- numbers as people write them ---- */

/* Texts in a column of numbers: those that usually mean a missing value, and numbers that are written
 * in a way that a run does not read. */

/* Whether the text usually means a missing value, such as "?" or "-", though pandas' read_csv does not take it for one.
 */
bool suggest_is_mark(const char *text);

/* How a number is written that csv_number does not read: bits; 0: it is none. */
enum number_style {
    NUMBER_PERCENT = 1 << 0,
    NUMBER_CURRENCY = 1 << 1,
    NUMBER_SEPARATORS = 1 << 2, /* of thousands: 1,234 */
    NUMBER_COMMA = 1 << 3,      /* a decimal comma among points */
    NUMBER_UNIT = 1 << 4,
    NUMBER_INFINITE = 1 << 5,
    NUMBER_PARENTHESES = 1 << 6, /* of negative ones: (1.5) */
    NUMBER_DOLLAR = 1 << 7       /* and the bits above, with NUMBER_CURRENCY: which currency */
};
unsigned suggest_number_style(const char *text);

/* The characters for dataset.csv.strip that numbers of [styles] have, adding to [out]; false: they have others, or
 * several currencies or units that would be mixed. */
bool suggest_strip(unsigned styles, struct text *out);

/* Adds "currency signs and thousands separators". */
void suggest_add_styles(unsigned styles, struct text *out);

/* ---- columns ---- */

#define MAX_POOLED 1000 /* different texts that are counted */

/* The text of a value that is bytes, which only databases have; compared by its address. */
extern const char suggest_blob[];

/* Whether dates never fall from row to row, and are not all the same. */
struct date_order {
    double first, last;
    bool falls;
};

/* An extreme number: how often it occurs, and the nearest other one. */
struct number_end {
    size_t count;
    double next;
};

struct date_form {
    const char *format; /* of date_parse */
    struct date_order order;
};

/* Zero-initialise, but the arena of the pools. */
struct column_view {
    const char *name;
    bool has_no_name;       /* in the file; then it is no input */
    struct text_pool pool;  /* of its values but the missing ones and [marks] */
    struct text_pool marks; /* suggest_is_mark; first_row is a line of the file */
    size_t values, missing, blobs, numbers, whole;
    unsigned missing_texts; /* bit i: some are csv_missing_text(i) */
    size_t styled;          /* values that are numbers in one of [styles], enum number_style */
    unsigned styles;
    const char *text, *styled_text; /* the first that is not a number, the first in one of [styles]; their lines */
    size_t text_line, styled_line;
    const char *inexact; /* the first whole number that a double does not always hold; NULL: there is none */
    const char *code;    /* the first of only digits after a zero, such as 007; NULL: there is none */
    struct date_order iso;
    struct date_form *forms; /* (form_count): each value is a date of each; not of ISO 8601 */
    size_t form_count;
    size_t first_line;            /* of its first value */
    double first, last, min, max; /* numbers */
    double step;                  /* between the first two numbers */
    bool is_regular;              /* between all numbers that follow each other, and they are whole */
    struct number_end ends[2];    /* of the smallest and the largest number */
    bool has_dates;               /* each value is a date */
    bool starts_with_text;
    bool falls;         /* a number is not larger than the one before */
    uint64_t whole_sum; /* of a hash of each whole number */
    bool keeps_hashes;  /* [hashes] are of all values; set it before the first one */
    uint64_t *hashes;   /* (hash_count) */
    size_t hash_count, hash_capacity;
};

/* Adds a value. *decimal as for csv_decimal. [line]: of the file, for messages. */
status column_view_add(struct column_view *c, const char *text, char *decimal, size_t line);

void column_view_free(struct column_view *c);

/* The number of different values; with keeps_hashes exact, else at most MAX_POOLED + 1. */
size_t column_view_distinct(struct column_view *c);

/* Whether each value is 1 more than the one before, from 0 or 1 on. */
bool column_view_is_counted(const struct column_view *c);

/* Whether the values are whole numbers with equal steps between them from row to row. */
bool column_view_is_regular(const struct column_view *c);

/* Whether the values are whole numbers that follow each other, each once, in any order. */
bool column_view_is_permutation(const struct column_view *c);

/* Whether the marks of the column mean missing values, as they do beside numbers and dates. */
bool column_view_marks_missing(const struct column_view *c);

/* Whether each value is a date, none earlier than the one before. */
bool column_view_dates_rise(const struct column_view *c);

/* Whether each value is a number, larger than the one before. */
bool column_view_numbers_rise(const struct column_view *c);

/* Call it after all values: the marks of the column that are in [missing] are missing values, others texts. */
status column_view_decide_marks(struct column_view *c, const struct text_pool *missing);
