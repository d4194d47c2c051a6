/* augment: random changes of training images, different in each epoch. The change of an image depends only on the seed,
 * the epoch and its row, so it is the same on any number of ranks, in any order, and after a resume. */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/schema/schema.h"
#include "base/status.h"
#include "data/images/color_jitter.h"
#include "data/images/erasing.h"
#include "data/images/rotation.h"

struct random_crop_config {
    int64_t padding; /* pixels on each side; 0: no crop */
};

struct random_resized_crop_config {
    struct real_list scale, ratio; /* two numbers each; scale of none: no crop */
};

/* `augment:` */
struct augment_config {
    struct random_crop_config random_crop;
    struct random_resized_crop_config random_resized_crop;
    double horizontal_flip, vertical_flip; /* probabilities; 0: never */
    struct rotation_config rotation;
    struct color_jitter_config color_jitter;
    struct erasing_config erasing;
    bool has_erasing; /* the key is given */
    int64_t seed;
};
extern const struct schema augment_schema;

struct augment {
    struct augment_config config;
    size_t channels, height, width;
    float *fill;               /* (channels) value of the padding: a black pixel after scaling */
    bool is_resized;           /* random_resized_crop is given */
    double scale[2], ratio[2]; /* of it */
    struct random_rotation rotation;
    struct color_jitter color_jitter;
    struct color_range *colors; /* (channels) from scaled values to 0 .. 1; for color_jitter */
    struct erasing erasing;
};

bool augment_is_on(const struct augment_config *config);

/* Whether pixels move, so that targets with a place in the image must move, too. */
bool augment_moves(const struct augment_config *config);

/* Sets the fields of random_resized_crop, rotation, color_jitter and erasing from augment->config, whose lists are not
 * needed then. */
void augment_prepare(struct augment *augment);

/* Changes image (channels, height, width) of [row] in [epoch] in place; [scratch] is a workspace of the same size.
 * torchvision's RandomCrop((height, width), padding) or RandomResizedCrop((height, width), scale, ratio), then
 * RandomHorizontalFlip(p), RandomVerticalFlip(p), RandomRotation, ColorJitter and RandomErasing, with other random
 * numbers. */
void augment_image(const struct augment *augment, int64_t epoch, int64_t row, float *image, float *scratch);

/* How the pixels of another image of this size move with it, without being mixed: sets from (height, width) to the
 * pixel that each pixel is then, the nearest one with random_resized_crop and rotation, or to -1 outside of the image.
 */
void augment_pixels(const struct augment *augment, int64_t epoch, int64_t row, int64_t *from);

/* The window that random_resized_crop cuts out of the image of [row] in [epoch]. */
struct augment_window {
    size_t top, left, height, width;
};
struct augment_window augment_draw_window(const struct augment *augment, int64_t epoch, int64_t row);

/* Resizes the window of from (channels, height, width) to the whole image: to. Bilinear, as PyTorch's interpolate with
 * align_corners=False; a window is never larger than the image. */
void augment_resize(const struct augment *augment, const struct augment_window *window, const float *from, float *to);

#endif
