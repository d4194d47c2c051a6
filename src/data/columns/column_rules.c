/* The `dataset.columns` section of the config. */
#include "data/columns/column_rules.h"

#include <string.h>

#include "base/expression/expression.h"
#include "base/scoped.h"
#include "data/columns/date.h"
#include "data/text/tokenizer.h"

const char *const column_types[] = {"auto", "number", "boolean", "category", "date", "text", "ignore", NULL};
const char *const missing_rules[] = {"error", "mean", "median", "most_frequent", "constant", "indicator", NULL};
const char *const column_encodings[] = {"one_hot", "ordinal", "embedding", NULL};
const char *const unknown_rules[] = {"ignore", "error", NULL};
static const char *const scales[] = {"none", "standard", "minmax", NULL};

static const struct schema_row rows[] = {
    SCHEMA_ROW(CHOICE, struct column_rule, type, .present_offset = FIELD(struct column_rule, is_given.type),
               .fallback = "auto", .choices = column_types,
               .doc = "What the column holds. auto: the first value decides between numbers and texts; texts are "
                      "true/false or yes/no (boolean), ISO dates, or a category if each occurs twice or more on "
                      "average; text: the tokens of a text, for an embedding layer; ignore: not used."),
    SCHEMA_ROW(CHOICE, struct column_rule, missing, .present_offset = FIELD(struct column_rule, is_given.missing),
               .fallback = "error", .choices = missing_rules,
               .doc = "What replaces a missing value, fitted on the training rows as scikit-learn's SimpleImputer: "
                      "mean, median, most_frequent, or constant (see fill). indicator: mean with indicator: true; for "
                      "one-hot categories missing is a category of its own."),
    SCHEMA_ROW(STRING, struct column_rule, fill, .present_offset = FIELD(struct column_rule, is_given.fill),
               .fallback = "null", .doc = "With missing: constant, the value; null: 0, for categories missing_value."),
    SCHEMA_ROW(BOOL, struct column_rule, indicator, .present_offset = FIELD(struct column_rule, is_given.indicator),
               .fallback = "false",
               .doc = "SimpleImputer's add_indicator: one more feature, 1 where the value is missing, if values are "
                      "missing in the training rows. It is not scaled."),
    SCHEMA_ROW(CHOICE, struct column_rule, encoding, .present_offset = FIELD(struct column_rule, is_given.encoding),
               .fallback = "one_hot", .choices = column_encodings,
               .doc = "Of a category: one_hot (one feature for each category, OneHotEncoder), ordinal (its index among "
                      "the sorted categories, OrdinalEncoder) or embedding (that index + 1, for an embedding layer "
                      "with num_embeddings: categories of the file + 1; 0 is an unknown category)."),
    SCHEMA_ROW(CHOICE, struct column_rule, unknown, .present_offset = FIELD(struct column_rule, is_given.unknown),
               .fallback = "ignore", .choices = unknown_rules,
               .doc =
                   "A category that no training row has: ignore gives zeros (one_hot), -1 (ordinal) or 0 (embedding)."),
    SCHEMA_ROW(CHOICE, struct column_rule, scale, .present_offset = FIELD(struct column_rule, is_given.scale),
               .fallback = "null", .choices = scales,
               .doc = "Scaling after missing values were replaced, as dataset.scale; null: dataset.scale for numbers, "
                      "booleans, dates and ordinal categories, none for one_hot and embedding."),
    SCHEMA_ROW(
        STRING_LIST, struct column_rule, parts, .present_offset = FIELD(struct column_rule, is_given.parts),
        .fallback = "[]",
        .doc = "Of a date: year, month, day, weekday (Monday is 0), dayofyear, quarter, hour, minute, second, epoch "
               "(days since 1970-01-01), each one feature; []: year, month, day, weekday, and hour if a training row "
               "has a time of day, of these what the format has; hour and minute of a time without a date."),
    SCHEMA_ROW(STRING, struct column_rule, format, .present_offset = FIELD(struct column_rule, is_given.format),
               .fallback = "null",
               .doc = "Of a date: as strptime's in English, of %Y %y %m %b (Mar or March) %d %H %M %S %I %p %z, and %q "
                      "for a quarter, such as '%d.%m.%Y', '%b %d, %Y', '%Y-%m', '%Y Q%q' or '%H:%M'; null: ISO 8601, "
                      "2024-05-31T14:30:00 with - or / or no separators, and a blank instead of T. An offset such as "
                      "+02:00 is not applied: parts are those of the time that is written."),
    SCHEMA_ROW(
        STRING, struct column_rule, tokenizer, .fallback = "null",
        .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE, /* the fingerprint is compared instead */
        .doc =
            "Of a text: tokenizer.json of Hugging Face's tokenizers, byte-level BPE, WordPiece, Unigram or WordLevel, "
            "the same for all columns of texts. null: the words that occur at least twice in the training rows, at "
            "most 20,000, are the tokens, any other word is its bytes, and padding is 0. It is kept in checkpoints."),
    SCHEMA_ROW(INT, struct column_rule, length, .present_offset = FIELD(struct column_rule, is_given.length),
               .fallback = "128", .min = 1, .max = 1e6,
               .doc = "Of a text: the number of its features. A longer text is cut after as many tokens, a shorter one "
                      "is followed by padding."),
    SCHEMA_ROW(INT, struct column_rule, padding, .fallback = "null", .min = 0, .max = TOKENIZER_MAX_TOKENS,
               .doc = "Of a text: the token behind the end of a short text, padding_idx of the embedding; null: the "
                      "padding token of the tokenizer."),
    SCHEMA_ROW(STRING, struct column_rule, expression, .present_offset = FIELD(struct column_rule, is_given.expression),
               .fallback = "null",
               .doc = "Makes a column that the file does not have, of numbers: a formula of others, such as `weight / "
                      "height ^ 2` (docs/expressions.md). Where one of them is missing, it is, too."),
    {0},
};

static void check_category_keys(const struct column_rule *rule, struct place place, const char *path,
                                struct problems *problems) {
    bool may_be_category = rule->type == COLUMN_AUTO || rule->type == COLUMN_CATEGORY;
    if (!may_be_category && (rule->encoding != ENCODING_ONE_HOT || rule->unknown != UNKNOWN_IGNORE))
        problems_add(problems, place, path, "encoding and unknown are for categories, and the type is %s",
                     column_types[rule->type]);
    if (rule->type == COLUMN_CATEGORY && (rule->missing == MISSING_MEAN || rule->missing == MISSING_MEDIAN))
        problems_add(problems, place, path,
                     "missing: %s is for numbers; a category has most_frequent, constant or indicator",
                     missing_rules[rule->missing]);
    bool is_one_hot = rule->type == COLUMN_CATEGORY && rule->encoding == ENCODING_ONE_HOT;
    if (is_one_hot && rule->scale > 0)
        problems_add(problems, place, path, "one-hot features are 0 and 1 and are not scaled; remove scale");
    if (rule->encoding == ENCODING_EMBEDDING && rule->scale > 0)
        problems_add(problems, place, path, "tokens of an embedding are not scaled; remove scale");
}

static void check_date_keys(const struct column_rule *rule, struct place place, const char *path,
                            struct problems *problems) {
    if (rule->type != COLUMN_DATE && (rule->parts.count || rule->format)) {
        problems_add(problems, place, path, "parts and format are for type: date");
        return;
    }
    for (size_t i = 0; i < rule->parts.count; i++) {
        enum date_part part;
        bool is_repeated = false;
        for (size_t k = 0; k < i; k++)
            is_repeated = is_repeated || strcmp(rule->parts.items[i], rule->parts.items[k]) == 0;
        if (!date_part_find(rule->parts.items[i], &part))
            problems_add(problems, place, path, "unknown part of a date '%s' (known: %s)", rule->parts.items[i],
                         DATE_PARTS_TEXT);
        else if (is_repeated)
            problems_add(problems, place, path, "the part '%s' is listed twice", rule->parts.items[i]);
    }
    const char *wrong = rule->format ? date_check_format(rule->format) : NULL;
    if (wrong) problems_add(problems, place, path, "format '%s': %s", rule->format, wrong);
}

static void check_text_keys(const struct column_rule *rule, struct place place, const char *path,
                            struct problems *problems) {
    bool is_constant = rule->missing == MISSING_CONSTANT;
    if (rule->type != COLUMN_TEXT) {
        if (rule->tokenizer || rule->is_given.length || rule->padding != SCHEMA_NO_INT)
            problems_add(problems, place, path, "tokenizer, length and padding are for type: text");
        return;
    }
    if (rule->scale > 0) problems_add(problems, place, path, "tokens of a text are not scaled; remove scale");
    if (rule->indicator || (rule->missing != MISSING_ERROR && !is_constant) || (is_constant && !rule->fill))
        problems_add(problems, place, path, "what replaces a missing text is missing: constant with fill: TEXT");
}

static void check_expression(const struct column_rule *rule, const struct node *where, const char *path,
                             struct problems *problems) {
    const struct node *value = node_get(where, "expression");
    SCOPED_ARENA arena = arena_create();
    SCOPED_TEXT at = {0};
    struct expression *e = arena_alloc(arena, sizeof *e);
    text_printf(&at, "%s.expression", path);
    bool is_other = rule->type != COLUMN_AUTO && rule->type != COLUMN_NUMBER;
    if (is_other || rule->is_given.encoding || rule->is_given.unknown)
        problems_add(problems, where->place, path,
                     "the column of an expression is a number; remove type, encoding and unknown");
    else if (value &&
             expression_bind(value, text_string(&at), &(struct expression_options){.is_of_numbers = true}, e,
                             problems) &&
             e->name_count == 0)
        problems_add(problems, value->place, text_string(&at), "the expression has no column");
}

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct column_rule *rule = config;
    struct place place = where ? where->place : (struct place){0};
    if (rule->expression) check_expression(rule, where, path, problems);
    bool has_rule = rule->missing != MISSING_ERROR;
    if (rule->type == COLUMN_IGNORED && (has_rule || rule->indicator || rule->fill || rule->parts.count))
        problems_add(problems, place, path, "the column is ignored, so other keys have no effect; remove them");
    if (rule->indicator && !has_rule)
        problems_add(problems, place, path, "indicator needs a rule for missing values, such as missing: median");
    if (rule->fill && rule->missing != MISSING_CONSTANT)
        problems_add(problems, place, path, "fill is the value of missing: constant");
    check_category_keys(rule, place, path, problems);
    check_date_keys(rule, place, path, problems);
    check_text_keys(rule, place, path, problems);
}

const struct schema column_rule_schema =
    SCHEMA("dataset.columns", struct column_rule, .rows = rows, .shorthand = "type", .check = check);

struct column_rules column_rules_index(struct arena *arena, const struct section_list *rules) {
    struct column_rules out = {rules->items, name_index_create(arena, rules->count)};
    for (size_t i = 0; i < rules->count; i++) name_index_add(&out.names, out.items[i].name, i);
    name_index_sort(&out.names);
    return out;
}

const struct column_rule *column_rule_find(const struct column_rules *rules, const char *name) {
    size_t index = name_index_find(&rules->names, name);
    return index == SIZE_MAX ? NULL : &rules->items[index];
}

static void add_once(struct string_list *list, const char *name, struct arena *arena) {
    if (!string_list_has(list, name)) list->items[list->count++] = arena_copy(arena, name);
}

struct string_list column_rules_read(const struct section_list *rules, const struct string_list *names,
                                     struct arena *arena) {
    struct column_rules by_name = column_rules_index(arena, rules);
    size_t most = names->count + rules->count * EXPRESSION_MAX_VARIABLES;
    struct string_list list = {.items = arena_alloc(arena, (most + 1) * sizeof *list.items)};
    for (size_t i = 0; i < names->count; i++) {
        const struct column_rule *rule = column_rule_find(&by_name, names->items[i]);
        if (!rule || !rule->expression) list.items[list.count++] = names->items[i];
    }
    for (size_t i = 0; i < names->count; i++) {
        const struct column_rule *rule = column_rule_find(&by_name, names->items[i]);
        struct expression *e = rule && rule->expression ? arena_alloc(arena, sizeof *e) : NULL;
        char name[EXPRESSION_MAX_TEXT + 1];
        size_t at;
        status s =
            e ? expression_parse(rule->expression, &(struct expression_options){.is_of_numbers = true}, e, &at, NULL)
              : OK;
        for (size_t k = 0; e && !s && k < e->name_count; k++) {
            expression_name(e, k, name);
            add_once(&list, name, arena);
        }
        status_free(s);
    }
    return list;
}
