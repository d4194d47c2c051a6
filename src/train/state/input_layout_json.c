/* Everything that is read is checked: a checkpoint may be damaged, and shapes are used as sizes. */
#include "train/state/input_layout_json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

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
    char *copy = arena_copy(arena, text_string(&json));
    text_free(&json);
    return copy;
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

static bool parse(struct arena *arena, const json_t *whole, struct input_layout *out) {
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
    char *text;
    *has_layout = false;
    TRY(checkpoint_read_text(checkpoint, "data/inputs", &text));
    if (!text) return OK;
    json_t *whole = json_loads(text, 0, NULL);
    *has_layout = parse(arena, whole, out);
    json_decref(whole);
    free(text);
    return *has_layout ? OK
                       : status_new(STATUS_DATA, "the checkpoint's description of the inputs (data/inputs) is damaged: "
                                                 "expected a kind, a shape and a divisor");
}
