/* image_decoder: what the files of each kind of image share: the state of one thread that decodes images, the resizer
 * that it gives rows, the orientation of photos. */
#pragma once

#include "base/status.h"
#include "data/images/image.h"

/* ---- resizing ---- */

/* Resizes an image row by row, so that memory does not grow with the height of the image. */

/* One dimension: [in] pixels are resized to [resized], of which [count] from [first] on are kept. */
struct resize_range {
    size_t in, resized, first, count;
};

/* The weights of the input pixels for each kept pixel. */
struct resize_axis {
    size_t count, taps;   /* kept pixels; the maximum number of weights of one */
    size_t *first, *used; /* (count): the first input pixel, the number of weights */
    int32_t *weights;     /* (count, taps), in units of 2^-22 */
    double *exact;        /* (taps): workspace */
    size_t capacity, weight_capacity, exact_capacity;
};

struct resizer {
    struct resize_axis x, y;
    size_t channels; /* bytes of a pixel: 1 or 4 */
    size_t row;      /* the next input row */
    size_t top;      /* output rows before it are complete */
    uint8_t *line;   /* (x.count * channels): an input row after the horizontal pass */
    int32_t *sums;   /* (y.count, x.count * channels), in units of 2^-22, rounded */
    size_t line_capacity, sums_capacity;
};

/* Whether no more rows are needed. */
bool resizer_is_complete(const struct resizer *resizer);

/* ---- orientation ---- */

/* How a photo was held, from the EXIF data of a JPEG file, and its pixels when it is turned upright. */

/* The tag Orientation, 1 .. 8, of a JPEG file, [bytes] (size) or its beginning; 1, upright, also for files without it
 * and for other or damaged data. */
int exif_orientation(const uint8_t *bytes, size_t size);

/* Whether width and height of the upright image are those of the stored one, exchanged. */
static inline bool exif_is_swapped(int orientation) { return orientation >= 5; }

/* Row [y] of the upright image, as Pillow's exif_transpose, of stored pixels (height, width) of 4 bytes: out (width),
 * or (height) if they are exchanged. */
void exif_upright_row(int orientation, const uint8_t *pixels, size_t height, size_t width, size_t y, uint8_t *out);

/* ---- decoding ---- */

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
