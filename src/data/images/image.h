/* image: decodes JPEG and PNG images, resizes and crops them to one shape. The pixels are those of Pillow and
 * torchvision: Image.open(file).convert("RGB"), Resize (bilinear, antialiased), CenterCrop. As there, transparency is
 * dropped, and the orientation in EXIF data is applied only on request: ImageOps.exif_transpose before convert. */
#pragma once

#include "base/files/archive.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "base/text.h"

enum image_crop { CROP_CENTER, CROP_NONE };

/* `image:` */
struct image_config {
    struct int_list size;   /* [height, width] of the rows, or one number for both; count 0: not given */
    struct int_list resize; /* [height, width], or one number for the shorter side; count 0: derived from size */
    int crop;               /* enum image_crop */
    int64_t channels;       /* 3: RGB; 1: grey */
    bool dct_scaling;       /* large JPEG images are decoded at a fraction of their size */
    bool exif_orientation;  /* JPEG images are turned upright */
    int64_t threads;        /* that decode; SCHEMA_NO_INT: as many as there are processors */
    const char *labels;     /* CSV file with the targets of each image; NULL: the class is the folder */
    const char *column;     /* of labels, with the names of the files; NULL: the first */
    const char *masks;      /* folder with a PNG image of the class of each pixel; NULL: none */
};
extern const struct schema image_schema;

/* Whether [path] has the name of an image that is read (.jpg, .jpeg, .png), or of one that other programs read (.webp
 * and others). */
bool image_is_named(const char *path);
bool image_is_foreign(const char *path);

/* Height and width of the rows. */
void image_rows(const struct image_config *config, size_t *height, size_t *width);

/* What one thread needs to decode: memory that grows with the largest image. */
struct image_decoder;
status image_decoder_create(const struct image_config *config, struct image_decoder **out);
void image_decoder_destroy(struct image_decoder *decoder); /* takes NULL */

/* Decodes a file in memory, [bytes] (size), to out (channels, height, width). [name]: for messages. STATUS_DATA for a
 * file that is not an image, damaged, truncated or too large. */
status image_decode(struct image_decoder *decoder, const char *name, const uint8_t *bytes, size_t size, uint8_t *out);

/* A file, which may be in an archive: its path begins with that of the archive then. */
struct image_place {
    const struct archive *archive; /* NULL: it is in the file system */
    const char *path;
};

/* The same for a file. */
status image_decode_file(struct image_decoder *decoder, const struct image_place *place, uint8_t *out);

/* Adds "JPEG 500x375" (width, height) from the first bytes of a file. */
status image_describe_file(struct image_decoder *decoder, const struct image_place *place, struct text *out);

/* The EXIF orientation of a file: 1, upright, .. 8; 1 also if it is no JPEG image. Fails if it cannot be read.
 */
status image_file_orientation(const struct image_place *place, int *orientation);

/* Decodes the mask of the image [image], a PNG image [mask] of the same size: out (height, width) of the rows, resized
 * and cropped as the image, but with the nearest pixel (Pillow's NEAREST). A pixel is its grey value, or its index in a
 * palette. STATUS_DATA: it is no such image. */
status image_decode_mask(struct image_decoder *decoder, const struct image_place *mask, const struct image_place *image,
                         uint8_t *out);

/* ---- sizes ---- */

/* The size of an image from the first bytes of its file. */

struct image_header {
    const char *kind; /* "JPEG" */
    size_t width, height;
    bool is_grey; /* no colours are stored */
};

/* *found: false for a file that is neither JPEG nor PNG, or is damaged before its size. Fails if it cannot be read. */
status image_header_read(const struct image_place *place, struct image_header *out, bool *found);

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
