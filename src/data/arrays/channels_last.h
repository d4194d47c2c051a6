/* channels_last: images that a file stores as (height, width, channels), dataset.layout nhwc, become (channels, height,
 * width). */
#ifndef DATA_CHANNELS_LAST_H
#define DATA_CHANNELS_LAST_H

#include "data/internal.h"

/* Zero-initialised it changes nothing. */
struct channels_last {
    size_t channels, pixels;
    void *image; /* (pixels * channels) doubles: workspace; NULL: rows stay as they are */
};

/* With layout nhwc: changes the shape of [source] to (channels, height, width). [name]: of the array, for the message
 * STATUS_USAGE when a row is not an image. */
status channels_last_create(const struct dataset_config *config, const char *name, struct source *source,
                            struct channels_last *out);
void channels_last_free(struct channels_last *layout);

/* Transposes rows (count) of values of [bytes] bytes, at most 8. */
void channels_last_apply(const struct channels_last *layout, void *rows, size_t count, size_t bytes);

/* The index in the file of element [element] of a row (channels, height, width). */
size_t channels_last_element(const struct channels_last *layout, size_t element);

#endif
