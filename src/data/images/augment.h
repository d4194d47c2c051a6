/* augment: random changes of training images, different in each epoch. The change of an image depends only on the seed,
 * the epoch and its row, so it is the same on any number of ranks, in any order, and after a resume. */
#pragma once

#include "base/numbers/rng.h"
#include "base/schema/schema.h"
#include "base/status.h"

/* ---- random numbers ---- */

/* Random numbers of augmentations. They are functions of the seed, the epoch and the row, so they are
 * the same on any number of ranks, in any order, and after a resume. */

/* What the change of an image depends on. */
struct augment_key {
    int64_t seed, epoch, row;
};

/* Four random words; other [stream]s give independent ones. */
static inline void augment_words(const struct augment_key *key, uint32_t stream, uint32_t word[4]) {
    uint64_t row = (uint64_t)key->row, epoch = (uint64_t)key->epoch, seed = (uint64_t)key->seed;
    word[0] = (uint32_t)row;
    word[1] = (uint32_t)(row >> 32);
    word[2] = (uint32_t)epoch;
    word[3] = (uint32_t)(epoch >> 32);
    philox(word, (uint32_t)seed, (uint32_t)(seed >> 32) ^ stream);
}

/* Maps a random word to 0 .. count - 1. */
static inline int64_t augment_below(uint32_t word, int64_t count) {
    return (int64_t)((uint64_t)word * (uint64_t)count >> 32);
}

/* Maps a random word to [low, high). */
static inline double augment_between(uint32_t word, double low, double high) {
    return low + word * 0x1p-32 * (high - low);
}

/* ---- rotation ---- */

/* Torchvision's RandomRotation about the centre of an image, whose size does not change. */

/* `rotation:` */
struct rotation_config {
    struct real_list degrees; /* one number d: -d .. d; two: minimum and maximum; none, or 0: no rotation */
    int interpolation;        /* 0: nearest; 1: bilinear */
};

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

/* Rotates the image from (channels, height, width): to. Pixels from outside are black, fill (channels). Bilinear, those
 * at the border are fill + m sum of w (pixel - fill) over the pixels inside, whose weights w have the sum m:
 * torchvision multiplies twice with m. */
void turn_image(const struct turn *turn, bool is_bilinear, size_t channels, const float *fill, const float *from,
                float *to);

/* ---- colours ---- */

/* Torchvision's ColorJitter of images of floats, with its functions for tensors and its random order. */

enum color { COLOR_BRIGHTNESS, COLOR_CONTRAST, COLOR_SATURATION, COLOR_HUE, COLORS };

/* `color_jitter:`; each one number, the largest deviation from no change, or two, minimum and maximum; none: no change
 */
struct color_jitter_config {
    struct real_list brightness, contrast, saturation, hue;
};

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

/* ---- erasing ---- */

/* Torchvision's RandomErasing, a rectangle of an image that becomes 0 after scaling. */

/* `erasing:` */
struct erasing_config {
    double p; /* probability */
    struct real_list scale, ratio;
};

struct erasing {
    double p; /* 0: never */
    double scale[2], ratio[2];
};

/* Lines top .. top + height - 1, columns left .. left + width - 1. */
struct erased {
    size_t top, left, height, width;
};

/* The rectangle of the image (height, width) of [key]; height 0: nothing is erased. */
struct erased erasing_draw(const struct erasing *erasing, const struct augment_key *key, size_t height, size_t width);

/* ---- all changes ---- */

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
