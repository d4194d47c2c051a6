/* color_jitter: torchvision's ColorJitter of images of floats, with its functions for tensors and its random order. */
#ifndef DATA_COLOR_JITTER_H
#define DATA_COLOR_JITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/schema/schema.h"
#include "data/images/augment_random.h"

enum color { COLOR_BRIGHTNESS, COLOR_CONTRAST, COLOR_SATURATION, COLOR_HUE, COLORS };

/* `color_jitter:`; each one number, the largest deviation from no change, or two, minimum and maximum; none: no change
 */
struct color_jitter_config {
    struct real_list brightness, contrast, saturation, hue;
};
extern const struct schema color_jitter_schema;

struct color_jitter {
    bool is_on, changes[COLORS];
    double low[COLORS], high[COLORS];
};

bool color_jitter_is_on(const struct color_jitter_config *config);
struct color_jitter color_jitter_create(const struct color_jitter_config *config);

/* What is done with the image of [key]: order[i] is the i-th change, factors are those of enum color. */
struct color_change {
    enum color order[COLORS];
    double factors[COLORS];
};
struct color_change color_jitter_draw(const struct color_jitter *jitter, const struct augment_key *key);

/* How values of a channel become shares of the largest one, 0 .. 1: value * slope + offset. */
struct color_range {
    float slope, offset;
};

/* Changes image (channels, pixels) of 1 or 3 channels (RGB); ranges (channels). */
void color_jitter_apply(const struct color_jitter *jitter, const struct color_change *change, size_t channels,
                        size_t pixels, const struct color_range *ranges, float *image);

/* torchvision's adjust_brightness, adjust_contrast, adjust_saturation or adjust_hue of image (channels, pixels), whose
 * values are 0 .. 1; the last two do not change images of 1 channel. */
void color_adjust(enum color color, double factor, size_t channels, size_t pixels, float *image);

#endif
