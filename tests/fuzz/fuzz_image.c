/* Any bytes as an image: decoded, or rejected with a sentence, never a crash. The last byte chooses the options. */
#include <stdlib.h>

#include "data/images/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    int64_t shape[] = {7, 5}, resize[] = {9};
    uint8_t out[3 * 7 * 5], options = size ? bytes[size - 1] : 0;
    struct image_config config = {.size = {.items = shape, .count = 2},
                                  .resize = {.items = resize, .count = options & 1},
                                  .crop = options & 2 ? CROP_NONE : CROP_CENTER,
                                  .channels = options & 4 ? 1 : 3,
                                  .dct_scaling = options & 8,
                                  .exif_orientation = options & 16};
    struct image_decoder *decoder;
    if (config.resize.count) config.crop = CROP_CENTER;
    if (image_decoder_create(&config, &decoder)) abort();
    status s = image_decode(decoder, "x", bytes, size, out);
    if (s && status_message(s)[0] == 0) abort();
    status_free(s);
    image_decoder_destroy(decoder);
    return 0;
}
