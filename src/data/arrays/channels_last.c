/* One image at a time, through a copy. */
#include "data/arrays/channels_last.h"

#include <string.h>

status channels_last_create(const struct dataset_config *config, const char *name, struct source *source,
                            struct channels_last *out) {
    int64_t *shape = source->input_shape;
    if (config->layout != LAYOUT_NHWC) return OK;
    if (source->input_dims != 3)
        return status_new(
            STATUS_USAGE,
            "dataset.layout: nhwc needs images, (rows, height, width, channels), but %s has %d dimension%s", name,
            source->input_dims + 1, text_plural((uint64_t)source->input_dims + 1, "s"));
    int64_t height = shape[0], width = shape[1], channels = shape[2];
    shape[0] = channels;
    shape[1] = height;
    shape[2] = width;
    out->channels = (size_t)channels;
    out->pixels = (size_t)(height * width);
    return rows_alloc(source->input_size, sizeof(double), "an image", &out->image);
}

void channels_last_free(struct channels_last *layout) { buffer_free(layout->image); }

static void transpose(const struct channels_last *layout, char *row, size_t bytes) {
    memcpy(layout->image, row, layout->channels * layout->pixels * bytes);
    for (size_t c = 0; c < layout->channels; c++)
        for (size_t p = 0; p < layout->pixels; p++)
            memcpy(row + (c * layout->pixels + p) * bytes,
                   (const char *)layout->image + (p * layout->channels + c) * bytes, bytes);
}

void channels_last_apply(const struct channels_last *layout, void *rows, size_t count, size_t bytes) {
    size_t row = layout->channels * layout->pixels * bytes;
    for (size_t i = 0; layout->image && i < count; i++) transpose(layout, (char *)rows + i * row, bytes);
}

size_t channels_last_element(const struct channels_last *layout, size_t element) {
    return layout->image ? element % layout->pixels * layout->channels + element / layout->pixels : element;
}
