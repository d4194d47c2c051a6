/* JSON, because a label may contain any character of a quoted CSV field, also line ends. */
#include "train/state/labels.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

char *labels_write(struct arena *arena, const struct string_list *labels) {
    struct text json = {0};
    text_add(&json, "[");
    for (size_t i = 0; i < labels->count; i++) {
        if (i) text_add(&json, ", ");
        text_add_json(&json, labels->items[i]);
    }
    text_add(&json, "]");
    char *copy = arena_copy(arena, text_string(&json));
    text_free(&json);
    return copy;
}

status labels_read(struct arena *arena, const char *text, struct string_list *out) {
    json_t *list = json_loads(text, 0, NULL);
    size_t count = json_array_size(list);
    bool is_valid = json_is_array(list);
    *out = (struct string_list){.items = arena_alloc(arena, (count + 1) * sizeof *out->items), .count = count};
    for (size_t i = 0; is_valid && i < count; i++) {
        const char *label = json_string_value(json_array_get(list, i));
        is_valid = label != NULL;
        if (label) out->items[i] = arena_copy(arena, label);
    }
    json_decref(list);
    return is_valid ? OK : status_new(STATUS_DATA, "the checkpoint's labels (data/labels) are not a list of strings");
}

status labels_load(struct arena *arena, struct checkpoint *checkpoint, struct string_list *out) {
    char *text;
    *out = (struct string_list){0};
    status s = checkpoint_read_text(checkpoint, "data/labels", &text);
    if (!s && text) s = labels_read(arena, text, out);
    free(text);
    return s;
}

status labels_load_newest(struct arena *arena, const char *folder, struct string_list *out) {
    struct checkpoint *checkpoint;
    char *path;
    *out = (struct string_list){0};
    TRY(checkpoint_open_newest(folder, NULL, &checkpoint, &path));
    status s = checkpoint ? labels_load(arena, checkpoint, out) : OK;
    checkpoint_close(checkpoint);
    free(path);
    return s;
}

status labels_compare(const struct string_list *trained, const struct string_list *now, const char *path,
                      const char *otherwise) {
    for (size_t i = 0; i < trained->count && i < now->count; i++)
        if (strcmp(trained->items[i], now->items[i]) != 0)
            return status_new(STATUS_DATA,
                              "%s: class %zu was '%.60s' in the training and is '%.60s' in the dataset now; use the "
                              "same labels, or %s",
                              path, i, trained->items[i], now->items[i], otherwise);
    return OK;
}
