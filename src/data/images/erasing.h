/* erasing: torchvision's RandomErasing, a rectangle of an image that becomes 0 after scaling. */
#ifndef DATA_ERASING_H
#define DATA_ERASING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/schema/schema.h"
#include "data/images/augment_random.h"

/* `erasing:` */
struct erasing_config {
    double p; /* probability */
    struct real_list scale, ratio;
};
extern const struct schema erasing_schema;

struct erasing {
    double p; /* 0: never */
    double scale[2], ratio[2];
};

struct erasing erasing_create(const struct erasing_config *config);

/* Lines top .. top + height - 1, columns left .. left + width - 1. */
struct erased {
    size_t top, left, height, width;
};

/* The rectangle of the image (height, width) of [key]; height 0: nothing is erased. */
struct erased erasing_draw(const struct erasing *erasing, const struct augment_key *key, size_t height, size_t width);

/* Sets the rectangle of the channel (.., width) to 0. */
void erase_channel(const struct erased *erased, size_t width, float *channel);

#endif
