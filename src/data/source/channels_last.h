/* channels_last: images that a file stores as (height, width, channels), dataset.layout nhwc, become (channels, height,
 * width). */
#ifndef DATA_CHANNELS_LAST_H
#define DATA_CHANNELS_LAST_H

#include "data/source/source.h"

/* Zero-initialised it changes nothing. */
struct channels_last {
    size_t channels, pixels;
    void *image; /* (pixels * channels) doubles: workspace; NULL: rows stay as they are */
};

/* STATUS_USAGE: layout nhwc is given, but the rows of [name], an array, have [dims] dimensions and are no images. */
status channels_last_reject(const char *name, int dims);

/* Whether rows of targets of this shape are images as those of the inputs, [image] (height, width, channels): they have
 * three dimensions, and the same height and width. */
bool channels_last_fits(int dims, const int64_t *shape, const int64_t *image);

/* For rows of the shape (height, width, channels), which becomes (channels, height, width). */
status channels_last_create(int64_t shape[3], struct channels_last *out);
void channels_last_free(struct channels_last *layout);

/* Transposes rows (count) of values of [bytes] bytes, at most 8; a row starts [stride] bytes after the one before. */
void channels_last_apply(const struct channels_last *layout, void *rows, size_t count, size_t stride, size_t bytes);

/* The index in the file of element [element] of a row (channels, height, width). */
size_t channels_last_element(const struct channels_last *layout, size_t element);

#endif
