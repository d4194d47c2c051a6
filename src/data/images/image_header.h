/* image_header: the size of an image from the first bytes of its file. */
#ifndef DATA_IMAGE_HEADER_H
#define DATA_IMAGE_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct image_header {
    uint32_t width, height;
    bool is_grey; /* no colours are stored */
};

/* *found: false for a file that is neither JPEG nor PNG, or is truncated. Fails if it cannot be read. */
status image_header_read(const char *path, struct image_header *out, bool *found);

#endif
