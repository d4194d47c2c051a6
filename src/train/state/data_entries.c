/* JSON, because a label or a name may contain any character of a quoted CSV field, also line ends. Everything that is
 * read is checked: a checkpoint may be damaged, and counts, shapes and indices are used as sizes. */
#include "train/state/data_entries.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "data/text/tokenizer.h"

/* ---- JSON ---- */

static char *take(struct arena *arena, struct text *json) {
    char *copy = arena_copy(arena, text_string(json));
    text_free(json);
    return copy;
}

static void add_numbers(struct text *json, const double *numbers, size_t count) {
    text_add(json, "[");
    for (size_t i = 0; i < count; i++) {
        text_add(json, i ? ", " : "");
        text_add_double(json, numbers[i]);
    }
    text_add(json, "]");
}

/* Parses the text at [path] of a checkpoint; *exists false: there is none. *out NULL: it is no JSON. */
static status load(struct checkpoint *checkpoint, const char *path, bool *exists, json_t **out) {
    SCOPED_STRING text = NULL;
    *out = NULL;
    TRY(checkpoint_read_text(checkpoint, path, &text));
    *exists = text != NULL;
    if (text) *out = json_loads(text, 0, NULL);
    return OK;
}

/* False for anything but a list of strings. */
static bool read_texts(struct arena *arena, const json_t *list, struct string_list *out) {
    size_t count = json_array_size(list);
    *out = (struct string_list){.items = arena_alloc(arena, (count + 1) * sizeof *out->items), .count = count};
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text) return false;
        out->items[i] = arena_copy(arena, text);
    }
    return json_is_array(list);
}

/* False for anything but a list of [count] finite numbers. */
static bool read_numbers(const json_t *list, size_t count, double *out) {
    bool is_valid = json_is_array(list) && json_array_size(list) == count;
    for (size_t i = 0; is_valid && i < count; i++) {
        const json_t *number = json_array_get(list, i);
        out[i] = json_number_value(number);
        is_valid = json_is_number(number) && isfinite(out[i]);
    }
    return is_valid;
}

/* ---- data/labels: the labels of the classes ---- */

char *labels_write(struct arena *arena, const struct string_list *labels) {
    struct text json = {0};
    text_add_json_list(&json, labels->items, labels->count);
    return take(arena, &json);
}

status labels_read(struct arena *arena, const char *text, struct string_list *out) {
    json_auto_t *list = json_loads(text, 0, NULL);
    if (read_texts(arena, list, out)) return OK;
    return status_data("the checkpoint's labels (data/labels) are not a list of strings");
}

status labels_load(struct arena *arena, struct checkpoint *checkpoint, struct string_list *out) {
    SCOPED_STRING text = NULL;
    *out = (struct string_list){0};
    TRY(checkpoint_read_text(checkpoint, "data/labels", &text));
    return text ? labels_read(arena, text, out) : OK;
}

status labels_load_newest(struct arena *arena, const char *folder, struct string_list *out) {
    SCOPED_CHECKPOINT checkpoint = NULL;
    SCOPED_STRING path = NULL;
    *out = (struct string_list){0};
    TRY(checkpoint_open_newest(folder, NULL, &checkpoint, &path));
    return checkpoint ? labels_load(arena, checkpoint, out) : OK;
}

status labels_compare(const struct string_list *trained, const struct string_list *now, const char *path,
                      const char *otherwise) {
    for (size_t i = 0; i < trained->count && i < now->count; i++)
        if (strcmp(trained->items[i], now->items[i]) != 0)
            return status_data("%s: class %zu was '%.60s' in the training and is '%.60s' in the dataset now; use the "
                               "same labels, or %s",
                               path, i, trained->items[i], now->items[i], otherwise);
    return OK;
}

/* ---- data/columns: the names of the columns ---- */

char *column_names_write(struct arena *arena, const struct column_list *list) {
    struct text json = {0};
    text_add(&json, "{\"format\": ");
    text_add_json(&json, list->format);
    text_add(&json, ", \"columns\": [");
    for (size_t i = 0; i < list->count; i++) {
        text_add(&json, i ? ", {\"name\": " : "{\"name\": ");
        text_add_json(&json, list->items[i].name);
        text_printf(&json, ", \"role\": \"%s\"}", column_role_name(list->items[i].role));
    }
    text_add(&json, "]}");
    return take(arena, &json);
}

static bool read_named_column(struct arena *arena, const json_t *item, struct named_column *out) {
    const char *name = json_string_value(json_object_get(item, "name"));
    const char *role = json_string_value(json_object_get(item, "role"));
    if (!name || !role) return false;
    out->name = arena_copy(arena, name);
    for (out->role = 0; out->role < COLUMN_ROLES; out->role++)
        if (strcmp(role, column_role_name(out->role)) == 0) return true;
    return false;
}

static int compare_columns(const void *a, const void *b) {
    const struct named_column *left = *(const struct named_column *const *)a,
                              *right = *(const struct named_column *const *)b;
    int names = strcmp(left->name, right->name);
    return names ? names : (int)left->role - (int)right->role;
}

/* No column is in a list twice, so two lists with the same columns are of the same length. */
static bool has_repetition(struct arena *arena, const struct column_list *list) {
    const struct named_column **sorted = arena_alloc(arena, (list->count + 1) * sizeof *sorted);
    for (size_t i = 0; i < list->count; i++) sorted[i] = &list->items[i];
    qsort(sorted, list->count, sizeof *sorted, compare_columns);
    for (size_t i = 1; i < list->count; i++)
        if (compare_columns(&sorted[i - 1], &sorted[i]) == 0) return true;
    return false;
}

status column_names_parse(struct arena *arena, const char *text, struct column_list *out) {
    json_auto_t *whole = json_loads(text, 0, NULL);
    const json_t *items = json_object_get(whole, "columns");
    const char *format = json_string_value(json_object_get(whole, "format"));
    size_t count = json_array_size(items);
    bool is_valid = format && json_is_array(items);
    *out = (struct column_list){.items = arena_alloc(arena, (count + 1) * sizeof *out->items), .count = count};
    if (format) out->format = arena_copy(arena, format);
    for (size_t i = 0; is_valid && i < count; i++)
        is_valid = read_named_column(arena, json_array_get(items, i), &out->items[i]);
    if (!is_valid) return status_data("the checkpoint's columns (data/columns) are not a list of names and roles");
    if (has_repetition(arena, out))
        return status_data("the checkpoint's columns (data/columns) contain a column twice in the same role");
    return OK;
}

status column_names_read(struct arena *arena, struct checkpoint *checkpoint, struct column_list *out) {
    SCOPED_STRING text = NULL;
    *out = (struct column_list){0};
    TRY(checkpoint_read_text(checkpoint, "data/columns", &text));
    return text ? column_names_parse(arena, text, out) : OK;
}

/* Reports the first column that only one of the two lists has. */
static status compare_names(const struct column_list *trained, const struct column_list *now, const char *path,
                            const char *otherwise, struct arena *arena) {
    struct column_index trained_index = columns_index(arena, trained), now_index = columns_index(arena, now);
    for (size_t i = 0; i < trained->count; i++) {
        const struct named_column *column = &trained->items[i];
        if (columns_have(&now_index, column->role, column->name)) continue;
        bool found = columns_have_name(&now_index, column->name);
        const char *nearest = found ? NULL : columns_nearest(now, column->name);
        return status_data("%s: it was trained with the column '%.60s' as %s, which the dataset now %s%s%.60s%s; use "
                           "the same columns, or %s",
                           path, column->name, column_role_name(column->role),
                           found ? "has in another role (see dataset.inputs, dataset.targets)" : "does not have",
                           nearest ? " (there is '" : "", nearest ? nearest : "", nearest ? "')" : "", otherwise);
    }
    for (size_t i = 0; i < now->count; i++)
        if (!columns_have(&trained_index, now->items[i].role, now->items[i].name))
            return status_data(
                "%s: it was trained without the column '%.60s', which the dataset now has as %s; use the "
                "same columns, or %s",
                path, now->items[i].name, column_role_name(now->items[i].role), otherwise);
    return OK;
}

static status compare_order(const struct column_list *trained, const struct column_list *now, const char *path,
                            const char *otherwise) {
    for (size_t i = 0; i < trained->count; i++) {
        enum column_role role = trained->items[i].role;
        if (i < now->count && strcmp(trained->items[i].name, now->items[i].name) == 0) continue;
        SCOPED_TEXT names = {0};
        columns_add_names(trained, role, &names);
        return status_data("%s: the %s columns of the dataset have another order than in training, and a resume "
                           "needs the same order: %s; use the same file, or %s",
                           path, column_role_name(role), text_string(&names), otherwise);
    }
    return OK;
}

status column_names_compare(const struct column_list *trained, const struct column_list *now, const char *path,
                            const char *otherwise) {
    if (trained->count == 0 || now->count == 0 || strcmp(trained->format, now->format) != 0) return OK;
    SCOPED_ARENA arena = arena_create();
    TRY(compare_names(trained, now, path, otherwise, arena));
    return compare_order(trained, now, path, otherwise);
}

/* ---- data/class_weights ---- */

char *class_weights_write(struct arena *arena, const struct real_list *weights) {
    struct text json = {0};
    add_numbers(&json, weights->items, weights->count);
    return take(arena, &json);
}

status class_weights_read(struct arena *arena, struct checkpoint *checkpoint, struct real_list *out) {
    bool exists;
    json_auto_t *list = NULL;
    *out = (struct real_list){0};
    TRY(load(checkpoint, "data/class_weights", &exists, &list));
    if (!exists) return OK;
    size_t count = json_array_size(list); /* 0 for NULL */
    *out = (struct real_list){.items = arena_alloc(arena, (count + 1) * sizeof(double)), .count = count};
    bool is_valid = count > 0 && read_numbers(list, count, out->items);
    for (size_t i = 0; is_valid && i < count; i++) is_valid = out->items[i] > 0;
    if (is_valid) return OK;
    return status_data("the checkpoint's weights of the classes (data/class_weights) are damaged: expected numbers > "
                       "0");
}

/* ---- data/target_scale ---- */

char *target_scale_write(struct arena *arena, const struct target_scale *scale) {
    struct text json = {0};
    text_printf(&json, "{\"type\": \"%s\"", target_scale_names[scale->type]);
    text_add(&json, ", \"mean\": ");
    add_numbers(&json, scale->mean, scale->size);
    text_add(&json, ", \"scale\": ");
    add_numbers(&json, scale->scale, scale->size);
    text_add(&json, "}");
    return take(arena, &json);
}

static struct target_scale *parse_scale(struct arena *arena, const json_t *whole) {
    const char *type = json_string_value(json_object_get(whole, "type"));
    const json_t *mean = json_object_get(whole, "mean"), *scales = json_object_get(whole, "scale");
    size_t count = json_array_size(mean);
    struct target_scale *scale = arena_alloc(arena, sizeof *scale);
    for (int i = TARGET_SCALE_STANDARD; type && target_scale_names[i]; i++) {
        if (strcmp(type, target_scale_names[i]) != 0) continue;
        *scale = target_scale_new((enum target_scale_type)i, count, arena);
        bool is_valid =
            count > 0 && read_numbers(mean, count, scale->mean) && read_numbers(scales, count, scale->scale);
        for (size_t k = 0; is_valid && k < count; k++) is_valid = scale->scale[k] > 0;
        return is_valid ? scale : NULL;
    }
    return NULL;
}

status target_scale_read(struct arena *arena, struct checkpoint *checkpoint, struct target_scale **out) {
    bool exists;
    json_auto_t *whole = NULL;
    *out = NULL;
    TRY(load(checkpoint, "data/target_scale", &exists, &whole));
    if (!exists) return OK;
    *out = parse_scale(arena, whole);
    return *out ? OK
                : status_data("the checkpoint's scale of the targets (data/target_scale) is damaged: "
                              "expected a type and finite numbers mean and scale > 0");
}

/* ---- data/inputs: what a row of the inputs is ---- */

#define MAX_VALUES ((int64_t)1 << 31) /* of a row */

static void add_shape(struct text *json, int dims, const int64_t *shape) {
    text_add(json, "\"shape\": [");
    for (int i = 0; i < dims; i++) text_printf(json, "%s%lld", i ? ", " : "", (long long)shape[i]);
    text_add(json, "]");
}

char *input_layout_write(struct arena *arena, const struct input_layout *layout) {
    bool has_tokens = layout->kind == INPUT_TOKENS;
    struct text json = {0};
    text_printf(&json, "{\"kind\": \"%s\", ", has_tokens ? "tokens" : "values");
    add_shape(&json, layout->dims, layout->shape);
    if (layout->tokens) text_printf(&json, ", \"tokens\": %lld", (long long)layout->tokens);
    if (has_tokens) text_printf(&json, ", \"vocabulary\": %lld", (long long)layout->vocabulary);
    text_add(&json, ", \"divide\": ");
    text_add_double(&json, layout->divide);
    text_printf(&json, ", \"bytes\": %s", layout->is_bytes ? "true" : "false");
    for (size_t i = 0; i < layout->input_count; i++) {
        text_add(&json, i ? ", {\"name\": " : ", \"names\": [{\"name\": ");
        text_add_json(&json, layout->inputs[i].name);
        text_add(&json, ", ");
        add_shape(&json, layout->inputs[i].dims, layout->inputs[i].shape);
        if (layout->inputs[i].tokens) text_printf(&json, ", \"tokens\": %lld", (long long)layout->inputs[i].tokens);
        text_add(&json, i + 1 == layout->input_count ? "}]" : "}");
    }
    text_add(&json, "}");
    return take(arena, &json);
}

static bool read_shape(const json_t *object, int *dims, int64_t *shape, size_t *size) {
    const json_t *list = json_object_get(object, "shape");
    size_t count = json_array_size(list);
    int64_t product = 1;
    if (count == 0 || count > MAX_DIMS) return false;
    for (size_t i = 0; i < count; i++) {
        shape[i] = json_integer_value(json_array_get(list, i));
        if (shape[i] < 1 || shape[i] > MAX_VALUES / product) return false;
        product *= shape[i];
    }
    *dims = (int)count;
    *size = (size_t)product;
    return true;
}

/* The number of tokens of values; 0: they are none. */
static bool read_tokens(const json_t *object, int64_t *tokens) {
    *tokens = json_integer_value(json_object_get(object, "tokens"));
    return *tokens >= 0 && *tokens <= INT32_MAX;
}

static bool read_names(struct arena *arena, const json_t *whole, struct input_layout *out) {
    const json_t *list = json_object_get(whole, "names");
    size_t first = 0;
    struct dataset_input *inputs = arena_alloc(arena, (json_array_size(list) + 1) * sizeof *inputs);
    out->inputs = inputs;
    out->input_count = json_array_size(list);
    for (size_t i = 0; i < out->input_count; i++) {
        const json_t *object = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(object, "name"));
        if (!name || !read_shape(object, &inputs[i].dims, inputs[i].shape, &inputs[i].size)) return false;
        if (!read_tokens(object, &inputs[i].tokens)) return false;
        inputs[i].name = arena_copy(arena, name);
        inputs[i].first = first;
        first += inputs[i].size;
    }
    return out->input_count == 0 || first == out->size;
}

static bool parse_layout(struct arena *arena, const json_t *whole, struct input_layout *out) {
    const char *kind = json_string_value(json_object_get(whole, "kind"));
    bool has_tokens = kind && strcmp(kind, "tokens") == 0;
    *out = (struct input_layout){.kind = has_tokens ? INPUT_TOKENS : INPUT_VALUES,
                                 .vocabulary = json_integer_value(json_object_get(whole, "vocabulary")),
                                 .divide = json_number_value(json_object_get(whole, "divide")),
                                 .is_bytes = json_is_true(json_object_get(whole, "bytes"))};
    if (!kind || (!has_tokens && strcmp(kind, "values") != 0)) return false;
    if (has_tokens && (out->vocabulary < 1 || out->vocabulary > INT32_MAX)) return false;
    if (!isfinite(out->divide) || out->divide <= 0) return false;
    if (!read_tokens(whole, &out->tokens)) return false;
    return read_shape(whole, &out->dims, out->shape, &out->size) && read_names(arena, whole, out);
}

status input_layout_read(struct arena *arena, struct checkpoint *checkpoint, struct input_layout *out,
                         bool *has_layout) {
    bool exists;
    json_auto_t *whole = NULL;
    *has_layout = false;
    TRY(load(checkpoint, "data/inputs", &exists, &whole));
    if (!exists) return OK;
    *has_layout = parse_layout(arena, whole, out);
    return *has_layout ? OK
                       : status_data("the checkpoint's description of the inputs (data/inputs) is damaged: "
                                     "expected a kind, a shape and a divisor");
}

/* ---- data/preparation: how columns become inputs ---- */

#define MAX_FEATURES ((size_t)1 << 31)
#define MAX_LENGTH 1000000 /* of a text, as dataset.columns.length */

static const char *const scales[] = {"none", "standard", "minmax", NULL};

/* ---- writing ---- */

static void add_category(const struct prepared_column *column, struct text *json) {
    text_printf(json, ", \"encoding\": \"%s\", \"unknown\": \"%s\"", column_encodings[column->encoding],
                unknown_rules[column->unknown]);
    if (column->tokens) text_printf(json, ", \"tokens\": %lld", (long long)column->tokens);
    text_add(json, ", \"categories\": ");
    text_add_json_list(json, column->categories.items, column->categories.count);
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
    text_printf(json, ", \"type\": \"%s\", \"missing\": \"%s\", \"fill\": ", column_types[column->type],
                missing_rules[column->missing]);
    add_numbers(json, column->fill, preparation_fill_count(column));
    text_printf(json, ", \"indicator\": %s, \"scale\": \"%s\"", column->has_indicator ? "true" : "false",
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
    return take(arena, &json);
}

/* ---- reading ---- */

/* The index of a text among [names]; false: it is none of them. */
static bool read_choice(const json_t *item, const char *key, const char *const *names, int *out) {
    const char *text = json_string_value(json_object_get(item, key));
    for (*out = 0; text && names[*out]; ++*out)
        if (strcmp(names[*out], text) == 0) return true;
    return false;
}

static bool read_flag(const json_t *item, const char *key, bool *out) {
    const json_t *value = json_object_get(item, key);
    *out = json_is_true(value);
    return json_is_boolean(value);
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
           read_texts(arena, json_object_get(item, "categories"), &out->categories) && out->categories.count > 0 &&
           are_sorted(out);
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
    if (!read_numbers(list, count, out->fill)) return false;
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

static status parse_preparation(struct arena *arena, const char *text, struct preparation *out) {
    json_auto_t *whole = json_loads(text, 0, NULL);
    const json_t *items = json_object_get(whole, "columns");
    size_t count = json_array_size(items), features = 0;
    bool is_valid = count > 0;
    *out = (struct preparation){.items = arena_alloc(arena, (count + 1) * sizeof *out->items), .count = count};
    for (size_t i = 0; is_valid && i < count; i++) {
        struct prepared_column *column = &out->items[i];
        is_valid = read_column(arena, json_array_get(items, i), column);
        /* at most: its value and indicator, categories, parts of a date, tokens */
        features += column->categories.count + column->part_count + column->length + 2;
    }
    if (is_valid) preparation_number_features(out);
    if (is_valid && features <= MAX_FEATURES) return OK;
    return status_data("the checkpoint's preparation of the columns (data/preparation) is damaged: %s",
                       count ? "a column has a wrong or missing entry" : "it is not a list of columns");
}

status preparation_read(struct arena *arena, struct checkpoint *checkpoint, struct preparation **out) {
    SCOPED_STRING text = NULL;
    *out = NULL;
    TRY(checkpoint_read_text(checkpoint, "data/preparation", &text));
    if (!text) return OK;
    *out = arena_alloc(arena, sizeof **out);
    return parse_preparation(arena, text, *out);
}

/* ---- comparing ---- */

static bool is_same_column(const struct prepared_column *a, const struct prepared_column *b) {
    SCOPED_TEXT first = {0}, second = {0};
    add_column(a, &first);
    add_column(b, &second);
    return strcmp(text_string(&first), text_string(&second)) == 0;
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
    SCOPED_ARENA arena = arena_create();
    struct preparation *before;
    TRY(status_prefix(preparation_read(arena, checkpoint, &before), "%s", path));
    const char *name = first_difference(before ? before : &none, now ? now : &none);
    if (!name) return OK;
    return status_data("%s: the column '%.60s' was prepared in another way (types, categories, values for missing "
                       "ones); use the same file and the same dataset.columns, or %s",
                       path, name, otherwise);
}
