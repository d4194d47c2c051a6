/* A name is compared by its last word: that of customer_id, customerId, CustomerID and "customer id" is "id". */
#include "data/dataset/identifiers.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/numbers/statistics.h"
#include "base/scoped.h"
#include "data/source/source.h"

#define MIN_IDENTIFIERS 10    /* values of a column that may be one */
#define MIN_GROUPS 5          /* different values */
#define MAX_ROWS_OF_KEY 20    /* mean rows of a value, of customer_id */
#define MAX_ROWS_OF_UNIT 100  /* of patient */
#define DIFFERENT_VALUES 0.95 /* the least share */

static bool is_break(const char *name, size_t at) {
    unsigned char before = (unsigned char)name[at - 1], c = (unsigned char)name[at];
    return !isalnum(before) || (isupper(c) && islower(before));
}

static const char *last_word(const char *name) {
    size_t at = strlen(name);
    while (at > 0 && (at == strlen(name) || !is_break(name, at))) at--;
    return name + at;
}

enum identifier_name identifier_name(const char *column) {
    static const struct {
        enum identifier_name kind;
        bool is_whole; /* only as the whole name: "phone number" may be one, "number of rooms" is none */
        const char *words[24];
    } kinds[] = {
        {IDENTIFIER_NUMBER, true, {"no", "nr", "num", "number", "row", "obs", "observation", "case", "rank", "record"}},
        {IDENTIFIER_NUMBER, false, {"index", "idx", "key", "code", "rownames", "rowname", "rownum", "rowid", "serial"}},
        {IDENTIFIER_NUMBER, false, {"_no", "_nr", "_number"}},
        {IDENTIFIER_KEY, false, {"id", "ids", "uuid", "guid", "identifier"}},
        {IDENTIFIER_UNIT,
         false,
         {"subject", "subj", "patient", "person", "participant", "respondent", "customer", "client", "user", "member",
          "student", "pupil", "animal", "rat", "mouse", "player", "individual"}},
        {NAME_OF_TIME, false, {"year",    "years", "yr",     "age",    "time",   "date",      "day",
                               "days",    "month", "months", "week",   "hour",   "minute",    "second",
                               "quarter", "t",     "period", "season", "decade", "timestamp", "datetime"}},
    };
    const char *word = last_word(column);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t k = 0; k < sizeof kinds[i].words / sizeof *kinds[i].words && kinds[i].words[k]; k++) {
            const char *known = kinds[i].words[k];
            bool is_ending = *known == '_' && word > column && strcasecmp(word, known + 1) == 0;
            if (is_ending || strcasecmp(kinds[i].is_whole ? column : word, known) == 0) return kinds[i].kind;
        }
    return NO_IDENTIFIER;
}

bool identifier_is(const struct identifier_values *v, bool *repeats) {
    enum identifier_name name = identifier_name(v->name);
    bool is_named = name != NO_IDENTIFIER && name != NAME_OF_TIME;
    *repeats = false;
    if (v->count < MIN_IDENTIFIERS) return false;
    if (v->are_numbers && name != NAME_OF_TIME && v->is_complete) return true;
    if (!is_named || (v->are_numbers && !v->are_whole)) return false;
    double distinct = (double)v->distinct, count = (double)v->count;
    if (distinct >= DIFFERENT_VALUES * count) return true;
    double max_rows = name == IDENTIFIER_UNIT ? MAX_ROWS_OF_UNIT : name == IDENTIFIER_KEY ? MAX_ROWS_OF_KEY : 0;
    *repeats = distinct >= MIN_GROUPS && count <= distinct * max_rows && v->missing == 0;
    return *repeats;
}

/* ---- of an open source ---- */

#define CHUNK_VALUES ((size_t)1 << 15)
#define MAX_WHOLE 9007199254740992.0 /* 2^53 */
#define MAX_NAMED 10                 /* columns in a note */

/* An input of numbers that may be an identifier. */
struct candidate {
    size_t column, count; /* count: values so far */
    bool is_named;        /* else it must be complete */
    double min, max, first, last;
    double step;     /* between the first two values */
    bool is_regular; /* between all that follow each other */
    double *values;  /* (rows of the source); NULL: they are not kept */
};

/* False: the column is no identifier. */
static bool add_number(struct candidate *c, double value, size_t rows) {
    if (isnan(value)) return true;
    if (value != floor(value)) return false;
    if (!c->is_named && fabs(value) >= MAX_WHOLE) return false;
    if (!c->is_named && c->count > 0 && (value == c->first || value == c->last)) return false;
    if (c->count == 0) c->first = value;
    if (c->count == 1) c->step = value - c->last;
    c->is_regular = c->count == 0 || (value - c->last == c->step && (c->count == 1 || c->is_regular));
    c->last = value;
    c->min = fmin(c->min, value);
    c->max = fmax(c->max, value);
    if (c->values) c->values[c->count] = value;
    c->count++;
    return c->is_named || c->is_regular || c->max - c->min < (double)rows;
}

/* Reads the rows while there are candidates (*count), and removes those that are no identifiers. */
static status read_candidates(struct source *source, struct candidate *candidates, size_t *count) {
    size_t size = source->input_size, at_once = CHUNK_VALUES / size + 1;
    SCOPED_BUFFER double *chunk = NULL;
    TRY(rows_alloc(at_once, size * sizeof(double), "the columns of the dataset", &chunk));
    status s = OK;
    for (size_t first = 0, rows; !s && *count > 0 && first < source->rows; first += rows) {
        rows = source->rows - first < at_once ? source->rows - first : at_once;
        s = source->format->read(source, first, rows, chunk, NULL);
        size_t kept = 0;
        for (size_t i = 0; !s && i < *count; i++) {
            struct candidate *c = &candidates[i];
            bool may_be = true;
            for (size_t row = 0; may_be && row < rows; row++)
                may_be = add_number(c, chunk[row * size + c->column], source->rows);
            if (may_be) candidates[kept++] = *c;
        }
        *count = kept;
    }
    return s;
}

/* The number of different values of a candidate that was read. */
static status count_different(struct source *source, const struct candidate *read, size_t *different) {
    struct candidate c = {.column = read->column, .is_named = true};
    size_t count = 1;
    *different = 0;
    TRY(rows_alloc(source->rows, sizeof(double), "the values of an identifier", &c.values));
    status s = read_candidates(source, &c, &count);
    if (!s) qsort(c.values, c.count, sizeof *c.values, statistics_compare);
    for (size_t i = 0; !s && i < c.count; i++) *different += i == 0 || c.values[i] != c.values[i - 1];
    buffer_free(c.values);
    return s;
}

static bool may_be_named(const char *column) {
    enum identifier_name name = identifier_name(column);
    return name != NO_IDENTIFIER && name != NAME_OF_TIME;
}

/* Sets found[column] of the inputs of numbers. */
static status find_numbers(struct source *source, const struct column_rules *rules, struct arena *arena, bool *found) {
    struct candidate *candidates = arena_alloc(arena, source->input_size * sizeof *candidates);
    size_t count = 0;
    for (size_t i = 0; i < source->input_size; i++) {
        const struct raw_column *raw = &source->columns[i];
        if (raw->type != COLUMN_NUMBER || column_rule_find(rules, raw->name)) continue;
        candidates[count++] =
            (struct candidate){.column = i, .is_named = may_be_named(raw->name), .min = INFINITY, .max = -INFINITY};
    }
    if (count > 0) TRY(read_candidates(source, candidates, &count));
    for (size_t i = 0; i < count; i++) {
        const struct candidate *c = &candidates[i];
        bool is_dense = c->count > 0 && c->max - c->min + 1 == (double)c->count, repeats;
        struct identifier_values v = {.name = source->columns[c->column].name,
                                      .count = c->count,
                                      .missing = source->rows - c->count,
                                      .are_numbers = true,
                                      .are_whole = true};
        if (c->count < MIN_IDENTIFIERS || (!c->is_named && !is_dense && !c->is_regular)) continue;
        TRY(count_different(source, c, &v.distinct));
        v.is_complete = c->is_regular || (is_dense && v.distinct == c->count);
        found[c->column] = identifier_is(&v, &repeats);
    }
    return OK;
}

static const char *describe(const struct source *source, const bool *found, size_t count, struct arena *arena) {
    SCOPED_TEXT out = {0};
    size_t named = 0;
    text_printf(&out, "column%s ", text_plural(count, "s"));
    for (size_t i = 0; i < source->input_size && named < MAX_NAMED; i++) {
        if (!found[i]) continue;
        text_add(&out, named++ ? ", '" : "'");
        text_add_value(&out, source->columns[i].name, TEXT_MAX_NAME);
        text_add(&out, "'");
    }
    if (count > named) text_printf(&out, " and %zu more", count - named);
    text_printf(&out, " look%s like %s of the rows; to train without %s, write dataset.columns: {",
                count == 1 ? "s" : "", count == 1 ? "an identifier" : "identifiers", count == 1 ? "it" : "them");
    named = 0;
    for (size_t i = 0; i < source->input_size && named < MAX_NAMED; i++) {
        if (!found[i]) continue;
        text_add(&out, named++ ? ", " : "");
        text_add_value(&out, source->columns[i].name, TEXT_MAX_NAME);
        text_add(&out, ": ignore");
    }
    text_add(&out, count > named ? ", ...}" : "}");
    return arena_copy(arena, text_string(&out));
}

status identifiers_note(struct source *source, const struct section_list *rules, struct arena *arena,
                        const char **note) {
    struct column_rules given = column_rules_index(arena, rules);
    bool *found = arena_alloc(arena, source->input_size + 1);
    size_t count = 0;
    TRY(find_numbers(source, &given, arena, found));
    for (size_t i = 0; i < source->input_size; i++) {
        const struct raw_column *raw = &source->columns[i];
        struct identifier_values v = {.name = raw->name,
                                      .count = source->rows - raw->missing,
                                      .missing = raw->missing,
                                      .distinct = raw->texts.count};
        bool has_texts = raw->type == COLUMN_CATEGORY || raw->type == COLUMN_TEXT, repeats;
        if (has_texts && !column_rule_find(&given, raw->name)) found[i] = identifier_is(&v, &repeats);
        count += found[i];
    }
    if (count > 0 && count < source->input_size) *note = describe(source, found, count, arena);
    return OK;
}
