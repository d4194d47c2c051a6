/* One image at a time, through a copy. */
#include "data/source/channels_last.h"

#include <string.h>

status channels_last_reject(const char *name, int dims) {
    return status_new(STATUS_USAGE,
                      "dataset.layout: nhwc needs images, (rows, height, width, channels), but %s has %d dimension%s",
                      name, dims + 1, text_plural((uint64_t)dims + 1, "s"));
}

bool channels_last_fits(int dims, const int64_t *shape, const int64_t *image) {
    return dims == 3 && shape[0] == image[0] && shape[1] == image[1];
}

status channels_last_create(int64_t shape[3], struct channels_last *out) {
    int64_t height = shape[0], width = shape[1], channels = shape[2];
    shape[0] = channels;
    shape[1] = height;
    shape[2] = width;
    out->channels = (size_t)channels;
    out->pixels = (size_t)(height * width);
    return rows_alloc(out->pixels * out->channels, sizeof(double), "an image", &out->image);
}

void channels_last_free(struct channels_last *layout) { buffer_free(layout->image); }

static void transpose(const struct channels_last *layout, char *row, size_t bytes) {
    memcpy(layout->image, row, layout->channels * layout->pixels * bytes);
    for (size_t c = 0; c < layout->channels; c++)
        for (size_t p = 0; p < layout->pixels; p++)
            memcpy(row + (c * layout->pixels + p) * bytes,
                   (const char *)layout->image + (p * layout->channels + c) * bytes, bytes);
}

void channels_last_apply(const struct channels_last *layout, void *rows, size_t count, size_t stride, size_t bytes) {
    for (size_t i = 0; layout->image && i < count; i++) transpose(layout, (char *)rows + i * stride, bytes);
}

size_t channels_last_element(const struct channels_last *layout, size_t element) {
    return layout->image ? element % layout->pixels * layout->channels + element / layout->pixels : element;
}
