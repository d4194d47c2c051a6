/* Everything that is read is checked: a checkpoint may be damaged. */
#include "train/state/target_scale_json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static void add_numbers(struct text *json, const char *key, const double *numbers, size_t count) {
    text_printf(json, ", \"%s\": [", key);
    for (size_t i = 0; i < count; i++) {
        text_add(json, i ? ", " : "");
        text_add_double(json, numbers[i]);
    }
    text_add(json, "]");
}

char *target_scale_write(struct arena *arena, const struct target_scale *scale) {
    struct text json = {0};
    text_printf(&json, "{\"type\": \"%s\"", target_scale_names[scale->type]);
    add_numbers(&json, "mean", scale->mean, scale->size);
    add_numbers(&json, "scale", scale->scale, scale->size);
    text_add(&json, "}");
    char *copy = arena_copy(arena, text_string(&json));
    text_free(&json);
    return copy;
}

static bool read_numbers(const json_t *whole, const char *key, size_t count, double *out) {
    const json_t *list = json_object_get(whole, key);
    bool is_valid = json_is_array(list) && json_array_size(list) == count;
    for (size_t i = 0; is_valid && i < count; i++) {
        const json_t *number = json_array_get(list, i);
        out[i] = json_number_value(number);
        is_valid = json_is_number(number) && isfinite(out[i]);
    }
    return is_valid;
}

static struct target_scale *parse(struct arena *arena, const json_t *whole) {
    const char *type = json_string_value(json_object_get(whole, "type"));
    size_t count = json_array_size(json_object_get(whole, "mean"));
    struct target_scale *scale = arena_alloc(arena, sizeof *scale);
    for (int i = TARGET_SCALE_STANDARD; type && target_scale_names[i]; i++) {
        if (strcmp(type, target_scale_names[i]) != 0) continue;
        *scale = target_scale_new((enum target_scale_type)i, count, arena);
        bool is_valid = count > 0 && read_numbers(whole, "mean", count, scale->mean) &&
                        read_numbers(whole, "scale", count, scale->scale);
        for (size_t k = 0; is_valid && k < count; k++) is_valid = scale->scale[k] > 0;
        return is_valid ? scale : NULL;
    }
    return NULL;
}

status target_scale_read(struct arena *arena, struct checkpoint *checkpoint, struct target_scale **out) {
    char *text;
    *out = NULL;
    TRY(checkpoint_read_text(checkpoint, "data/target_scale", &text));
    if (!text) return OK;
    json_t *whole = json_loads(text, 0, NULL);
    *out = parse(arena, whole);
    json_decref(whole);
    free(text);
    return *out ? OK
                : status_new(STATUS_DATA,
                             "the checkpoint's scale of the targets (data/target_scale) is damaged: expected "
                             "a type and finite numbers mean and scale > 0");
}
