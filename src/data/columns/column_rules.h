/* column_rules: `dataset.columns`, how each column of a table becomes features: its type, what replaces missing values,
 * its encoding and its scaling. */
#pragma once

#include "base/schema/schema.h"
#include "data/columns/columns.h"

/* The names of each enum are its choices in a config and in a checkpoint: column_types, ... */
enum column_type {
    COLUMN_AUTO,
    COLUMN_NUMBER,
    COLUMN_BOOLEAN,
    COLUMN_CATEGORY,
    COLUMN_DATE,
    COLUMN_TEXT,
    COLUMN_IGNORED
};
enum missing_rule {
    MISSING_ERROR,
    MISSING_MEAN,
    MISSING_MEDIAN,
    MISSING_MOST_FREQUENT,
    MISSING_CONSTANT,
    MISSING_INDICATOR
};
enum column_encoding { ENCODING_ONE_HOT, ENCODING_ORDINAL, ENCODING_EMBEDDING };
enum unknown_rule { UNKNOWN_IGNORE, UNKNOWN_ERROR };

/* NULL-terminated, by value. */
extern const char *const column_types[], *const missing_rules[], *const column_encodings[], *const unknown_rules[];

/* One entry of `columns:`. */
struct column_rule {
    const char *name;         /* of the column */
    int type;                 /* enum column_type */
    int missing;              /* enum missing_rule */
    const char *fill;         /* MISSING_CONSTANT: the value; NULL: 0, or "missing_value" for categories */
    bool indicator;           /* one more feature: 1 where the value is missing */
    int encoding;             /* enum column_encoding, of categories */
    int unknown;              /* enum unknown_rule, of categories */
    int scale;                /* enum scale_type; -1: that of dataset.scale */
    struct string_list parts; /* of dates; count 0: the default */
    const char *format;       /* of dates; NULL: ISO 8601 */
    const char *tokenizer;    /* of texts: the file */
    int64_t length;           /* of texts: tokens of a row */
    int64_t padding;          /* of texts: a token; SCHEMA_NO_INT: that of the tokenizer */
    const char *expression;   /* of a column that the file does not have; NULL: none */
    struct {
        bool type, missing, fill, indicator, encoding, unknown, scale, parts, format, length, expression;
    } is_given; /* the keys that the config has */
};
extern const struct schema column_rule_schema;

/* The entries of `columns:`, sorted by name. */
struct column_rules {
    const struct column_rule *items;
    struct name_index names;
};
struct column_rules column_rules_index(struct arena *arena, const struct section_list *rules);

/* The columns of a table that a model with the inputs [names] reads: those that are computed are replaced by the
 * columns of their expressions, each once. In [arena]. */
struct string_list column_rules_read(const struct section_list *rules, const struct string_list *names,
                                     struct arena *arena);

/* The entry for the column [name]; NULL: none. */
const struct column_rule *column_rule_find(const struct column_rules *rules, const char *name);
