/* See images.h. */
#include "model/layers/images.h"
#include "base/text.h"

struct image_shape image_of(const struct shape *shape) {
    struct image_shape image = {1, 1, (size_t)shape->size[0]};
    for (int d = 1; d + 1 < shape->dims; d++) image.height *= (size_t)shape->size[d];
    if (shape->dims > 1) image.width = (size_t)shape->size[shape->dims - 1];
    return image;
}

struct shape channels_last_shape(int dims, size_t channels, size_t height, size_t width) {
    struct shape shape = {.dims = dims, .is_channels_last = true, .size = {(int64_t)channels}};
    if (dims > 2) shape.size[1] = (int64_t)height;
    shape.size[dims - 1] = (int64_t)width;
    return shape;
}

status image_check(const struct layer *layer, int dims) {
    if (layer->in.dims == dims) return OK;
    return status_usage("needs an input of shape (channels, %s), got %s",
                        dims == 4   ? "depth, height, width"
                        : dims == 3 ? "height, width"
                                    : "length",
                        shape_text(&layer->in).s);
}

void key_problem(struct problems *problems, const struct node *where, const char *path, const char *key,
                 const char *format, ...) {
    struct text full = {0};
    va_list arguments;
    va_start(arguments, format);
    status sentence = status_newv(STATUS_USAGE, format, arguments);
    va_end(arguments);
    text_printf(&full, "%s.%s", path, key);
    problems_add(problems, where->place, text_string(&full), "%s", status_message(sentence));
    text_free(&full);
    status_free(sentence);
}

void sizes_check(const struct int_list *list, const char *key, int max, const struct node *where, const char *path,
                 struct problems *problems) {
    if (list->items) sizes_check_count(list->count, key, max, where, path, problems);
}

void sizes_check_count(size_t count, const char *key, int max, const struct node *where, const char *path,
                       struct problems *problems) {
    static const char *const sentences[] = {"expected one number, got %zu",
                                            "expected one number or two (height, width), got %zu",
                                            "expected one number or three (depth, height, width), got %zu"};
    if (count == 1 || count == (size_t)max) return;
    key_problem(problems, where, path, key, sentences[max - 1], count);
}

size_t size_at(const struct int_list *list, int d) {
    return (size_t)list->items[list->count == 1 ? 0 : d + (int)list->count - 3];
}

size_t window_output(const struct window *window, int d, size_t in) {
    size_t padded = in + 2 * window->padding[d], extent = window->dilation[d] * (window->kernel[d] - 1) + 1;
    return padded < extent ? 0 : (padded - extent) / window->stride[d] + 1;
}

size_t window_output_ceil(const struct window *window, int d, size_t in) {
    size_t padded = in + 2 * window->padding[d] + window->stride[d] - 1; /* the stride rounds the division up */
    size_t extent = window->dilation[d] * (window->kernel[d] - 1) + 1;
    if (padded < extent) return 0;
    size_t count = (padded - extent) / window->stride[d] + 1;
    return (count - 1) * window->stride[d] >= in + window->padding[d] ? count - 1 : count;
}

size_t adaptive_window(size_t in, size_t out) {
    size_t largest = 0;
    for (size_t o = 0; o < out; o++) {
        size_t size = ((o + 1) * in + out - 1) / out - o * in / out;
        if (size > largest) largest = size;
    }
    return largest;
}

/* ---- volumes ---- */

struct image_shape volume_image(const struct shape *shape) {
    return (struct image_shape){(size_t)shape->size[2], (size_t)shape->size[3], (size_t)shape->size[0]};
}

struct shape volume_shape(size_t channels, size_t depth, size_t height, size_t width) {
    return (struct shape){.dims = 4,
                          .size = {(int64_t)channels, (int64_t)depth, (int64_t)height, (int64_t)width},
                          .is_channels_last = true};
}

/* ---- in exported C ---- */

void c_max_pool(const struct c_call *c, const struct pooling *p, const char *x, const char *in, size_t images) {
    c_begin_images(c, images);
    text_printf(&c->c->body, "    max_pool(%s, %s, %s, %s,\n             %s, %d);\n",
                c_at_image(c, x, images, c_image_size(&p->in)), in, c_at_image(c, c->y, images, c_image_size(&p->out)),
                c_image(c, &p->out), c_window(c, &p->window), p->is_adaptive);
    c_end_images(c, images);
}

void c_average_pool(const struct c_call *c, const struct pooling *p, size_t images) {
    c_begin_images(c, images);
    text_printf(&c->c->body, "    average_pool(%s, %s, %s, %s,\n                 %s, %d, %d, %zu);\n",
                c_at_image(c, c->x, images, c_image_size(&p->in)), c_image(c, &p->in),
                c_at_image(c, c->y, images, c_image_size(&p->out)), c_image(c, &p->out), c_window(c, &p->window),
                p->is_adaptive, !p->is_adaptive && !p->excludes_padding, p->divisor);
    c_end_images(c, images);
}
