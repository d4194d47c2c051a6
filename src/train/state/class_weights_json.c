/* Everything that is read is checked: a checkpoint may be damaged. */
#include "train/state/class_weights_json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/text.h"

char *class_weights_write(struct arena *arena, const struct real_list *weights) {
    struct text json = {0};
    for (size_t i = 0; i < weights->count; i++) {
        text_add(&json, i ? ", " : "[");
        text_add_double(&json, weights->items[i]);
    }
    text_add(&json, "]");
    char *copy = arena_copy(arena, text_string(&json));
    text_free(&json);
    return copy;
}

static bool parse(struct arena *arena, const json_t *list, struct real_list *out) {
    size_t count = json_array_size(list); /* 0 for NULL */
    *out = (struct real_list){.items = arena_alloc(arena, (count + 1) * sizeof(double)), .count = count};
    for (size_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(list, i);
        out->items[i] = json_number_value(number);
        if (!json_is_number(number) || !isfinite(out->items[i]) || out->items[i] <= 0) return false;
    }
    return count > 0;
}

status class_weights_read(struct arena *arena, struct checkpoint *checkpoint, struct real_list *out) {
    char *text;
    *out = (struct real_list){0};
    TRY(checkpoint_read_text(checkpoint, "data/class_weights", &text));
    if (!text) return OK;
    json_t *list = json_loads(text, 0, NULL);
    bool is_valid = parse(arena, list, out);
    json_decref(list);
    free(text);
    return is_valid
               ? OK
               : status_new(STATUS_DATA, "the checkpoint's weights of the classes (data/class_weights) are damaged: "
                                         "expected numbers > 0");
}
