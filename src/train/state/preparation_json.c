/* Everything that is read is checked: a checkpoint may be damaged, and counts and indices are used as sizes. */
#include "train/state/preparation_json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/text/tokenizer.h"

#define MAX_FEATURES ((size_t)1 << 31)
#define MAX_LENGTH 1000000 /* of a text, as dataset.columns.length */

static const char *const scales[] = {"none", "standard", "minmax", NULL};

/* ---- writing ---- */

static void add_texts(struct text *json, const char *key, const char *const *texts, size_t count) {
    text_printf(json, ", \"%s\": [", key);
    for (size_t i = 0; i < count; i++) {
        text_add(json, i ? ", " : "");
        text_add_json(json, texts[i]);
    }
    text_add(json, "]");
}

static void add_category(const struct prepared_column *column, struct text *json) {
    text_printf(json, ", \"encoding\": \"%s\", \"unknown\": \"%s\"", column_encodings[column->encoding],
                unknown_rules[column->unknown]);
    if (column->tokens) text_printf(json, ", \"tokens\": %lld", (long long)column->tokens);
    add_texts(json, "categories", column->categories.items, column->categories.count);
    text_printf(json, ", \"numeric\": %s", column->are_numbers ? "true" : "false");
}

static void add_date(const struct prepared_column *column, struct text *json) {
    text_add(json, ", \"parts\": [");
    for (size_t i = 0; i < column->part_count; i++)
        text_printf(json, "%s\"%s\"", i ? ", " : "", date_parts[column->parts[i]]);
    text_add(json, "], \"format\": ");
    if (column->date_format)
        text_add_json(json, column->date_format);
    else
        text_add(json, "null");
}

static void add_column(const struct prepared_column *column, struct text *json) {
    text_add(json, "{\"name\": ");
    text_add_json(json, column->name);
    text_printf(json, ", \"type\": \"%s\", \"missing\": \"%s\", \"fill\": [", column_types[column->type],
                missing_rules[column->missing]);
    for (size_t i = 0; i < preparation_fill_count(column); i++) {
        text_add(json, i ? ", " : "");
        text_add_double(json, column->fill[i]);
    }
    text_printf(json, "], \"indicator\": %s, \"scale\": \"%s\"", column->has_indicator ? "true" : "false",
                scales[column->scale]);
    if (column->type == COLUMN_CATEGORY) add_category(column, json);
    if (column->type == COLUMN_DATE) add_date(column, json);
    if (column->type == COLUMN_TEXT)
        text_printf(json, ", \"length\": %zu, \"padding\": %d, \"tokens\": %lld", column->length, column->padding,
                    (long long)column->tokens);
    text_add(json, "}");
}

char *preparation_write(struct arena *arena, const struct preparation *preparation) {
    struct text json = {0};
    text_add(&json, "{\"columns\": [");
    for (size_t i = 0; i < preparation->count; i++) {
        text_add(&json, i ? ",\n" : "");
        add_column(&preparation->items[i], &json);
    }
    text_add(&json, "]}");
    char *copy = arena_copy(arena, text_string(&json));
    text_free(&json);
    return copy;
}

/* ---- reading ---- */

/* The index of a text among [names]; -1: it is none of them. */
static int choice(const json_t *item, const char *key, const char *const *names) {
    const char *text = json_string_value(json_object_get(item, key));
    for (int i = 0; text && names[i]; i++)
        if (strcmp(names[i], text) == 0) return i;
    return -1;
}

static bool read_choice(const json_t *item, const char *key, const char *const *names, int *out) {
    *out = choice(item, key, names);
    return *out >= 0;
}

static bool read_flag(const json_t *item, const char *key, bool *out) {
    const json_t *value = json_object_get(item, key);
    *out = json_is_true(value);
    return json_is_boolean(value);
}

static bool read_texts(struct arena *arena, const json_t *list, struct string_list *out) {
    size_t count = json_array_size(list);
    const char **texts = arena_alloc(arena, (count + 1) * sizeof *texts);
    *out = (struct string_list){texts, count};
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text) return false;
        texts[i] = arena_copy(arena, text);
    }
    return count > 0;
}

/* Sorted and unique, as the search needs them. */
static bool are_sorted(const struct prepared_column *column) {
    for (size_t i = 0; i < column->categories.count; i++) {
        const char *text = column->categories.items[i];
        if (category_find(&column->categories, column->are_numbers, text) != i) return false;
        if (i && category_compare(column->are_numbers, column->categories.items[i - 1], text) >= 0) return false;
    }
    return true;
}

static bool read_category(struct arena *arena, const json_t *item, struct prepared_column *out) {
    int encoding, unknown;
    if (!read_choice(item, "encoding", column_encodings, &encoding)) return false;
    if (!read_choice(item, "unknown", unknown_rules, &unknown)) return false;
    out->encoding = (enum column_encoding)encoding;
    out->unknown = (enum unknown_rule)unknown;
    out->tokens = json_integer_value(json_object_get(item, "tokens")); /* of earlier versions absent */
    if (out->tokens < 0 || out->tokens > INT32_MAX) return false;
    return read_flag(item, "numeric", &out->are_numbers) &&
           read_texts(arena, json_object_get(item, "categories"), &out->categories) && are_sorted(out);
}

static bool read_date(struct arena *arena, const json_t *item, struct prepared_column *out) {
    const json_t *list = json_object_get(item, "parts"), *format = json_object_get(item, "format");
    size_t count = json_array_size(list);
    if (count == 0 || count > DATE_PARTS || (!json_is_null(format) && !json_is_string(format))) return false;
    out->part_count = count;
    out->parts = arena_alloc(arena, count * sizeof *out->parts);
    if (json_is_string(format)) out->date_format = arena_copy(arena, json_string_value(format));
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || !date_part_find(name, &out->parts[i])) return false;
    }
    return !out->date_format || !date_check_format(out->date_format);
}

static bool read_integer(const json_t *item, const char *key, json_int_t min, json_int_t max, json_int_t *out) {
    const json_t *value = json_object_get(item, key);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= min && *out <= max;
}

static bool read_text(const json_t *item, struct prepared_column *out) {
    json_int_t length, padding, tokens;
    if (!read_integer(item, "length", 1, MAX_LENGTH, &length)) return false;
    if (!read_integer(item, "tokens", 1, TOKENIZER_MAX_TOKENS + 1, &tokens)) return false;
    if (!read_integer(item, "padding", 0, tokens - 1, &padding)) return false;
    out->length = (size_t)length;
    out->padding = (int32_t)padding;
    out->tokens = tokens;
    return true;
}

static bool read_fill(struct arena *arena, const json_t *item, struct prepared_column *out) {
    const json_t *list = json_object_get(item, "fill");
    size_t count = json_array_size(list);
    if (count != preparation_fill_count(out)) return false;
    out->fill = arena_alloc(arena, count * sizeof *out->fill);
    for (size_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(list, i);
        if (!json_is_number(number)) return false;
        out->fill[i] = json_number_value(number);
        if (!isfinite(out->fill[i])) return false;
    }
    double index = out->fill[0];
    return out->type != COLUMN_CATEGORY ||
           (index == floor(index) && index >= -1 && index < (double)out->categories.count);
}

static bool read_column(struct arena *arena, const json_t *item, struct prepared_column *out) {
    int type, missing, scale;
    const char *name = json_string_value(json_object_get(item, "name"));
    *out = (struct prepared_column){0};
    if (!name || !read_choice(item, "type", column_types, &type) || type == COLUMN_AUTO || type == COLUMN_IGNORED)
        return false;
    if (!read_choice(item, "missing", missing_rules, &missing) || !read_choice(item, "scale", scales, &scale) ||
        !read_flag(item, "indicator", &out->has_indicator))
        return false;
    out->name = arena_copy(arena, name);
    out->type = (enum column_type)type;
    out->missing = (enum missing_rule)missing;
    out->scale = (enum scale_type)scale;
    if (type == COLUMN_CATEGORY && !read_category(arena, item, out)) return false;
    if (type == COLUMN_DATE && !read_date(arena, item, out)) return false;
    if (type == COLUMN_TEXT && !read_text(item, out)) return false;
    return read_fill(arena, item, out);
}

static status parse(struct arena *arena, const char *text, struct preparation *out) {
    json_t *whole = json_loads(text, 0, NULL), *items = json_object_get(whole, "columns");
    size_t count = json_array_size(items), features = 0;
    bool is_valid = count > 0;
    *out = (struct preparation){.items = arena_alloc(arena, (count + 1) * sizeof *out->items), .count = count};
    for (size_t i = 0; is_valid && i < count; i++) {
        struct prepared_column *column = &out->items[i];
        is_valid = read_column(arena, json_array_get(items, i), column);
        /* at most: its value and indicator, categories, parts of a date, tokens */
        features += column->categories.count + column->part_count + column->length + 2;
    }
    json_decref(whole);
    if (is_valid) preparation_number_features(out);
    if (is_valid && features <= MAX_FEATURES) return OK;
    return status_new(STATUS_DATA, "the checkpoint's preparation of the columns (data/preparation) is damaged: %s",
                      count ? "a column has a wrong or missing entry" : "it is not a list of columns");
}

status preparation_read(struct arena *arena, struct checkpoint *checkpoint, struct preparation **out) {
    char *text;
    *out = NULL;
    status s = checkpoint_read_text(checkpoint, "data/preparation", &text);
    if (!s && text) {
        *out = arena_alloc(arena, sizeof **out);
        s = parse(arena, text, *out);
    }
    free(text);
    return s;
}

/* ---- comparing ---- */

static bool is_same_column(const struct prepared_column *a, const struct prepared_column *b) {
    struct text first = {0}, second = {0};
    add_column(a, &first);
    add_column(b, &second);
    bool is_same = strcmp(text_string(&first), text_string(&second)) == 0;
    text_free(&first);
    text_free(&second);
    return is_same;
}

/* The first column that differs; NULL: none. */
static const char *first_difference(const struct preparation *before, const struct preparation *now) {
    for (size_t i = 0; i < before->count && i < now->count; i++)
        if (!is_same_column(&before->items[i], &now->items[i])) return before->items[i].name;
    if (before->count == now->count) return NULL;
    return before->count > now->count ? before->items[now->count].name : now->items[before->count].name;
}

status preparation_compare(struct checkpoint *checkpoint, const struct preparation *now, const char *path,
                           const char *otherwise) {
    static const struct preparation none;
    struct arena *arena = arena_create();
    struct preparation *before;
    status s = status_prefix(preparation_read(arena, checkpoint, &before), "%s", path);
    const char *name = s ? NULL : first_difference(before ? before : &none, now ? now : &none);
    if (name)
        s = status_new(STATUS_DATA,
                       "%s: the column '%.60s' was prepared in another way (types, categories, values for missing "
                       "ones); use the same file and the same dataset.columns, or %s",
                       path, name, otherwise);
    arena_destroy(arena);
    return s;
}
