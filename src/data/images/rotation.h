/* rotation: torchvision's RandomRotation about the centre of an image, whose size does not change. */
#ifndef DATA_ROTATION_H
#define DATA_ROTATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/schema/schema.h"
#include "data/images/augment_random.h"

/* `rotation:` */
struct rotation_config {
    struct real_list degrees; /* one number d: -d .. d; two: minimum and maximum; none, or 0: no rotation */
    int interpolation;        /* 0: nearest; 1: bilinear */
};
extern const struct schema rotation_schema;

struct random_rotation {
    bool is_on, is_bilinear;
    double degrees[2]; /* minimum, maximum */
};

/* Whether it rotates: an angle is not 0. */
bool rotation_is_on(const struct rotation_config *config);
struct random_rotation rotation_create(const struct rotation_config *config);

/* A counter-clockwise rotation of images (height, width). */
struct turn {
    double cosine, sine;
    size_t height, width;
};
struct turn turn_create(double degrees, size_t height, size_t width);

/* The angle of the image of [key] in degrees. */
double rotation_draw(const struct random_rotation *rotation, const struct augment_key *key);

/* The pixel y * width + x of the image that pixel (y, x) of the rotated one is, the nearest one; -1: it is outside. */
int64_t turn_nearest(const struct turn *turn, size_t y, size_t x);

/* Rotates the image from (channels, height, width): to. Pixels from outside are black, fill (channels). Bilinear, those
 * at the border are fill + m sum of w (pixel - fill) over the pixels inside, whose weights w have the sum m:
 * torchvision multiplies twice with m. */
void turn_image(const struct turn *turn, bool is_bilinear, size_t channels, const float *fill, const float *from,
                float *to);

#endif
