/* image_masks: `dataset.image.masks`, a folder with a PNG image for each image, whose pixels are the targets. */
#ifndef DATA_IMAGE_MASKS_H
#define DATA_IMAGE_MASKS_H

#include "base/arena.h"
#include "data/images/image.h"
#include "data/source/source.h"

struct image_masks {
    const char *folder;            /* without slashes at the end; NULL: there are none */
    bool is_binary;                /* values are 0 and 1, or 0 and 255, which becomes 1; else they are classes */
    size_t size;                   /* height * width of a row */
    struct image_decoder *decoder; /* NULL: masks are not read */
    uint8_t *pixels;               /* (size) */
};

/* Whether the keys of [config] name masks and fit together. */
status image_masks_check(const struct dataset_config *config, bool wants_classes);

/* Finds the folder of the training or the validation images. */
status image_masks_find(struct image_masks *masks, const struct dataset_config *config, bool wants_classes,
                        bool is_validation, struct arena *arena);

/* Prepares to read masks for the images of [base], and sets its targets. [image] must stay valid. */
status image_masks_start(struct image_masks *masks, const struct image_config *image, struct source *base,
                         struct arena *arena);
void image_masks_close(struct image_masks *masks);

/* Reads the mask of [image], the path of the file [name] in [below] ("" or "/folder") of the dataset, to values (size).
 */
status image_masks_read(struct image_masks *masks, const char *image, const char *below, const char *name,
                        double *values);

/* Adds the place of value [element] of the same mask, in rows of [width] pixels. */
void image_masks_describe(const struct image_masks *masks, const char *below, const char *name, size_t width,
                          size_t element, struct text *out);

#endif
