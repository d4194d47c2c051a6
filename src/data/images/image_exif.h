/* image_exif: how a photo was held, from the EXIF data of a JPEG file, and its pixels when it is turned upright. */
#ifndef DATA_IMAGE_EXIF_H
#define DATA_IMAGE_EXIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The tag Orientation, 1 .. 8, of a JPEG file, [bytes] (size) or its beginning; 1, upright, also for files without it
 * and for other or damaged data. */
int exif_orientation(const uint8_t *bytes, size_t size);

/* Whether width and height of the upright image are those of the stored one, exchanged. */
static inline bool exif_is_swapped(int orientation) { return orientation >= 5; }

/* Row [y] of the upright image, as Pillow's exif_transpose, of stored pixels (height, width) of 4 bytes: out (width),
 * or (height) if they are exchanged. */
void exif_upright_row(int orientation, const uint8_t *pixels, size_t height, size_t width, size_t y, uint8_t *out);

#endif
