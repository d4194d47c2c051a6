/* raw_columns: the input columns of a table as its file has them, before a preparation (preparation.h) makes features
 * of them. A format with named columns (CSV, SQLite) passes each value to a column_builder and gives the result to the
 * code above as source.columns; its read() then yields
 *
 *   number, boolean    the number; true and yes are 1, false and no are 0
 *   category           the index into texts, the sorted unique texts of the file
 *   date               seconds since 1970-01-01
 *   text               the index into texts, the unique texts of the file in the order of their first rows
 *
 * and NaN for a missing value. */
#pragma once

#include "base/arena.h"
#include "base/status.h"
#include "data/columns/column_rules.h"

/* ---- different texts ---- */

/* The different texts of a column, in the order of their first occurrence. */

struct pooled_text {
    const char *text;
    size_t count, first_row;
    uint64_t first, last; /* see raw_columns.c */
};

/* Zero-initialise, but [arena]. */
struct text_pool {
    struct arena *arena; /* texts are copied to it; NULL: they stay valid */
    struct pooled_text *items;
    size_t count, capacity;
    struct text_slot *slots; /* (slot_count) hash table */
    size_t slot_count;
};

/* Counts an occurrence of [text] in [row]: its index. */
status text_pool_add(struct text_pool *pool, const char *text, size_t row, size_t *index);
/* Whether the text was added before. */
bool text_pool_has(const struct text_pool *pool, const char *text);
/* Whether each text is a list of numbers, and how many numbers the lists have. */
bool text_pool_lists(const struct text_pool *pool, size_t *min, size_t *max);
void text_pool_free(struct text_pool *pool);

/* ---- columns ---- */

struct raw_column {
    const char *name;
    enum column_type type;    /* NUMBER, BOOLEAN, CATEGORY, DATE or TEXT */
    struct string_list texts; /* CATEGORY: sorted by category_compare; TEXT */
    bool are_numbers;         /* CATEGORY: every text is a number, and they are compared as numbers: 1 and 1.0 are one
                                 category */
    const char *date_format;  /* DATE: of date_parse */
    size_t missing;           /* number of rows without value */
};

/* Whether the text can be compared as a number: it is a finite one and no code such as 007 (csv_is_code). */
bool category_is_number(const char *text);
/* Whether all texts are such numbers; false: there are none. */
bool category_are_numbers(const struct text_pool *pool);
/* Numbers by value, from 2^53 on also by their texts; texts by their bytes, which is the order of code points. */
int category_compare(bool are_numbers, const char *a, const char *b);
/* Sorts texts (count) and removes repetitions: the new count. *ranks (count), NULL: not used: for each of the texts as
 * they were its index then. */
size_t category_sort(const char **texts, size_t count, bool are_numbers, double *ranks);
/* The index of [text] in sorted texts; SIZE_MAX: it is none of them. */
size_t category_find(const struct string_list *texts, bool are_numbers, const char *text);

/* Whether the text is one of [pair], below BOOLEAN_PAIRS, in any case: false or true, no or yes; *value: 0 or 1. */
enum { BOOLEAN_PAIRS = 2 };
bool boolean_read(const char *text, size_t pair, double *value);

/* The numbers (labels->count) that stand for labels in a file of numbers: their values, or 0 and 1 of two labels such
 * as no and yes, because databases and spreadsheets have numbers for them. False: the labels are other texts. */
bool labels_as_numbers(const struct string_list *labels, double *numbers);

struct column_builder {
    const char *name;
    enum column_type type;   /* COLUMN_AUTO: not decided yet, except by holds_texts */
    const char *date_format; /* of date_parse */
    bool is_given;           /* the type is given: by the config, the training file or a checkpoint */
    bool holds_texts;        /* values are texts of the pool */
    bool is_target;          /* the column is a target, too: texts are an error. Set by the caller; default false */
    size_t missing, values;
    struct text_pool pool;
};

/* Starts a column whose type is that of [known] (the training file), else of [rule], else inferred; both may be NULL.
 * Its texts are copied to [arena]. */
void column_builder_start(struct column_builder *builder, const char *name, const struct column_rule *rule,
                          const struct raw_column *known, struct arena *arena);
void column_builder_free(struct column_builder *builder);

/* Whether the next value must be passed as text, also if it is a number. */
static inline bool column_builder_wants_text(const struct column_builder *builder) { return builder->holds_texts; }
/* Adds a number, where text is not wanted. */
static inline void column_builder_add_number(struct column_builder *builder) { builder->values++; }
static inline void column_builder_add_missing(struct column_builder *builder) { builder->missing++; }
/* Adds a text of [row]; *value: a number for column_builder_finish. False: the column holds
 * numbers, so that a text is an error (column_builder_explain_text). */
status column_builder_add_text(struct column_builder *builder, const char *text, size_t row, double *value, bool *fits);
/* Adds what to do about a text in a column of numbers: "; write ...". */
void column_builder_explain_text(const struct column_builder *builder, struct text *out);

/* Decides the type and sorts the categories: *out in [arena]. The value of each row must then be replaced:
 * value = map[(size_t)value] unless it is missing; *map NULL: values are numbers; free it with free. A failure is
 * STATUS_DATA with "column 'a': ..." and the *row of its value, or SIZE_MAX. */
status column_builder_finish(struct column_builder *builder, struct arena *arena, struct raw_column *out, double **map,
                             size_t *row);

/* After column_builder_finish: the first text that is not a number, of a column that became a category because its
 * first value is a text, although at least half of its values are numbers. NULL: it is no such column, or its type is
 * given.
 */
const char *column_builder_text_among_numbers(const struct column_builder *builder);
/* Likewise a number with a decimal comma, if all texts are numbers where the comma is the decimal separator. */
const char *column_builder_decimal_comma(const struct column_builder *builder);
