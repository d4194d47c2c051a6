/* See volumes.h. */
#include "model/layers/volumes.h"

#include "base/text.h"

status volume_check(const struct layer *layer) {
    if (layer->in.dims == 4) return OK;
    struct text shape = {0};
    shape_print(&layer->in, &shape);
    status s = status_new(STATUS_USAGE, "needs an input of shape (channels, depth, height, width), got %s",
                          text_string(&shape));
    text_free(&shape);
    return s;
}

struct image_shape volume_image(const struct shape *shape) {
    return (struct image_shape){(size_t)shape->size[2], (size_t)shape->size[3], (size_t)shape->size[0]};
}

struct shape volume_shape(size_t channels, size_t depth, size_t height, size_t width) {
    return (struct shape){.dims = 4,
                          .size = {(int64_t)channels, (int64_t)depth, (int64_t)height, (int64_t)width},
                          .is_channels_last = true};
}

void triple_check(const struct int_list *list, const char *key, const struct node *where, const char *path,
                  struct problems *problems) {
    struct text full = {0};
    if (!list->items || list->count == 1 || list->count == 3) return;
    text_printf(&full, "%s.%s", path, key);
    problems_add(problems, where->place, text_string(&full),
                 "expected one number or three (depth, height, width), got %zu", list->count);
    text_free(&full);
}

size_t triple_at(const struct int_list *list, int d) { return (size_t)list->items[list->count == 1 ? 0 : d]; }
