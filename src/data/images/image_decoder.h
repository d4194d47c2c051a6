/* image_decoder: the state of one thread that decodes images, shared by the files of each kind of image. */
#ifndef DATA_IMAGE_DECODER_H
#define DATA_IMAGE_DECODER_H

#include "data/images/image.h"
#include "data/images/image_resize.h"

#define IMAGE_MAX_PIXELS 178956970u /* above this Pillow raises DecompressionBombError */
#define IMAGE_PIXEL 4               /* bytes of a pixel of a decoded row: red, green, blue, unused */

struct image_decoder {
    const struct image_config *config;
    size_t height, width; /* of the rows of the dataset */
    struct resizer resizer;
    uint8_t *row; /* (row_capacity): a decoded row */
    size_t row_capacity;
    uint8_t *pixels; /* (pixel_capacity): an image that must be turned */
    size_t pixel_capacity;
    uint8_t *file; /* (file_capacity): a file */
    size_t file_capacity;
    const char *name;  /* of the image that is decoded, for messages */
    char message[256]; /* of libjpeg or libpng */
};

/* "<name>: the image is damaged: <reason>" */
status image_damaged(const struct image_decoder *decoder, const char *reason);

/* Makes *memory (*capacity bytes) at least [bytes] large and keeps its contents. STATUS_MEMORY. */
status image_grow(uint8_t **memory, size_t *capacity, size_t bytes);

/* Checks the size of an image. */
status image_check_size(const struct image_decoder *decoder, size_t width, size_t height);

/* The size after the resize of an image of this size. */
void image_resized(const struct image_decoder *decoder, size_t width, size_t height, size_t *new_width,
                   size_t *new_height);

/* Prepares for rows of [width] pixels of an image that is [height] rows high and will be resized to these sizes. */
status image_start(struct image_decoder *decoder, size_t width, size_t height, size_t new_width, size_t new_height);

/* The kept columns and rows of an image of this size. */
void image_kept(const struct image_decoder *decoder, size_t width, size_t height, struct resize_range *x,
                struct resize_range *y);

/* Adds decoder->row (width, IMAGE_PIXEL). */
void image_add_row(struct image_decoder *decoder, size_t width);

/* Decode all rows that the resizer needs. With [size_only] only *width and *height are set, of the upright image with
 * exif_orientation. */
status image_decode_jpeg(struct image_decoder *decoder, const uint8_t *bytes, size_t size, bool size_only,
                         size_t *width, size_t *height);
status image_decode_png(struct image_decoder *decoder, const uint8_t *bytes, size_t size, bool size_only, size_t *width,
                        size_t *height);

/* Decodes all pixels of a PNG image with one byte each, a grey value or an index in a palette: *pixels (height, width)
 * for buffer_free, also after a failure. */
status image_decode_png_indexes(struct image_decoder *decoder, const uint8_t *bytes, size_t size, uint8_t **pixels,
                                size_t *width, size_t *height);

#endif
