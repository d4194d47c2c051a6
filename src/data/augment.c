/* Three random words per image (Philox): the vertical and horizontal offset of the crop, and the flip. */
#include "data/augment.h"

#include <string.h>

#include "base/philox.h"

#define STREAM 0x6175676du /* differs from the streams of the model's random numbers, which are small */

static const struct schema_row crop_rows[] = {
    {.key = "padding",
     .type = SCHEMA_INT,
     .offset = FIELD(struct random_crop_config, padding),
     .fallback = "0",
     .min = 0,
     .max = 10000,
     .doc = "Black pixels added on each side before a window of the image's size is cut out at a random position "
            "(torchvision's RandomCrop(size, padding)); 0: no crop."},
    {0},
};

static const struct schema crop_schema = {.name = "dataset.augment.random_crop",
                                          .size = sizeof(struct random_crop_config),
                                          .rows = crop_rows,
                                          .shorthand = "padding"};

static const struct schema_row augment_rows[] = {
    {.key = "random_crop",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct augment_config, random_crop),
     .section = &crop_schema,
     .doc = "Shifts the image by up to padding pixels."},
    {.key = "horizontal_flip",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct augment_config, horizontal_flip),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .doc = "Probability that an image is mirrored left to right (torchvision's RandomHorizontalFlip)."},
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = FIELD(struct augment_config, seed),
     .fallback = "0",
     .doc = "The changes of an image depend only on this seed, the epoch and its row."},
    {0},
};

const struct schema augment_schema = {
    .name = "dataset.augment", .size = sizeof(struct augment_config), .rows = augment_rows};

bool augment_is_on(const struct augment_config *config) {
    return config->random_crop.padding > 0 || config->horizontal_flip > 0;
}

struct change {
    int64_t down, across; /* pixel (y, x) of the result is pixel (y + down, x + across) of the image */
    bool is_flipped;      /* after the shift */
};

/* Maps a random word to 0 .. count - 1. */
static int64_t random_below(uint32_t word, int64_t count) { return (int64_t)((uint64_t)word * (uint64_t)count >> 32); }

static struct change draw(const struct augment_config *config, int64_t epoch, int64_t row) {
    uint64_t r = (uint64_t)row, e = (uint64_t)epoch, seed = (uint64_t)config->seed;
    uint32_t word[4] = {(uint32_t)r, (uint32_t)(r >> 32), (uint32_t)e, (uint32_t)(e >> 32)};
    philox(word, (uint32_t)seed, (uint32_t)(seed >> 32) ^ STREAM);
    int64_t padding = config->random_crop.padding;
    return (struct change){.down = random_below(word[0], 2 * padding + 1) - padding,
                           .across = random_below(word[1], 2 * padding + 1) - padding,
                           .is_flipped = (double)word[2] < config->horizontal_flip * 0x1p32};
}

/* to (width): pixels across .. across + width - 1 of from (width) */
static void shift_line(const float *from, int64_t width, int64_t across, float fill, float *to) {
    for (int64_t x = 0; x < width; x++) {
        int64_t at = x + across;
        to[x] = at >= 0 && at < width ? from[at] : fill;
    }
}

static void flip_line(float *line, size_t width) {
    for (size_t left = 0, right = width - 1; left < right; left++, right--) {
        float value = line[left];
        line[left] = line[right];
        line[right] = value;
    }
}

void augment_image(const struct augment *augment, int64_t epoch, int64_t row, float *image, float *scratch) {
    struct change change = draw(&augment->config, epoch, row);
    size_t width = augment->width, pixels = augment->height * width;
    int64_t height = (int64_t)augment->height;
    bool is_moved = change.down != 0 || change.across != 0;
    if (is_moved) memcpy(scratch, image, augment->channels * pixels * sizeof *image);
    for (size_t c = 0; c < augment->channels; c++)
        for (int64_t y = 0; y < height; y++) {
            int64_t from = y + change.down;
            float *line = image + c * pixels + (size_t)y * width;
            if (is_moved && from >= 0 && from < height)
                shift_line(scratch + c * pixels + (size_t)from * width, (int64_t)width, change.across, augment->fill[c],
                           line);
            else if (is_moved)
                for (size_t x = 0; x < width; x++) line[x] = augment->fill[c];
            if (change.is_flipped) flip_line(line, width);
        }
}
