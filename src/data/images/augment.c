/* Four random words per image (Philox): the vertical and horizontal offset of the crop, and the two flips; others for
 * the window of random_resized_crop, and for each of the changes that have a file of their own. */
#include "data/images/augment.h"

#include <math.h>
#include <string.h>

#include "base/numbers/portable_math.h"

#define STREAM 0x6175676du        /* differs from the streams of the model's random numbers, which are small */
#define WINDOW_STREAM 0x77696e00u /* and the MAX_ATTEMPTS - 1 numbers behind it */
#define MAX_ATTEMPTS 10

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

static const struct schema_row resized_rows[] = {
    {.key = "scale",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct random_resized_crop_config, scale),
     .fallback = "null",
     .min = 0,
     .max = 1,
     .doc = "Minimum and maximum share of the image's area, such as [0.08, 1], torchvision's default; null: no crop."},
    {.key = "ratio",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct random_resized_crop_config, ratio),
     .fallback = "[0.75, 1.3333333333333333]",
     .min = 0.001,
     .max = 1000,
     .doc = "Minimum and maximum of width / height of the window."},
    {0},
};

/* Two numbers in order, the first one above 0. */
static bool is_range(const struct real_list *list) {
    return list->count == 2 && list->items[0] > 0 && list->items[0] <= list->items[1];
}

static void check_resized(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct random_resized_crop_config *crop = config;
    struct place place = where ? where->place : (struct place){0};
    if (crop->scale.count && !is_range(&crop->scale))
        problems_add(problems, place, path, "scale must be two numbers above 0 in order, such as [0.08, 1]");
    if (!is_range(&crop->ratio))
        problems_add(problems, place, path, "ratio must be two numbers in order, such as [0.75, 1.3333]");
}

static const struct schema resized_schema = {.name = "dataset.augment.random_resized_crop",
                                             .size = sizeof(struct random_resized_crop_config),
                                             .rows = resized_rows,
                                             .shorthand = "scale",
                                             .check = check_resized};

static const struct schema_row augment_rows[] = {
    {.key = "random_crop",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct augment_config, random_crop),
     .section = &crop_schema,
     .doc = "Shifts the image by up to padding pixels."},
    {.key = "random_resized_crop",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct augment_config, random_resized_crop),
     .section = &resized_schema,
     .doc =
         "Cuts a window of random size and position out of the image and resizes it to the image's size (torchvision's "
         "RandomResizedCrop, bilinear)."},
    {.key = "horizontal_flip",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct augment_config, horizontal_flip),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .doc = "Probability that an image is mirrored left to right (torchvision's RandomHorizontalFlip)."},
    {.key = "vertical_flip",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct augment_config, vertical_flip),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .doc =
         "Probability that an image is mirrored top to bottom (torchvision's RandomVerticalFlip), for images without "
         "an upper side, such as those of microscopes and satellites."},
    {.key = "rotation",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct augment_config, rotation),
     .section = &rotation_schema,
     .doc = "Rotates the image about its centre by a random angle (torchvision's RandomRotation); pixels from outside "
            "are black."},
    {.key = "color_jitter",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct augment_config, color_jitter),
     .section = &color_jitter_schema,
     .doc =
         "Changes brightness, contrast, saturation and hue by random factors, in a random order (torchvision's "
         "ColorJitter), of images with 1 or 3 channels (RGB) and values from 0 to 1 after dataset.divide, or bytes."},
    {.key = "erasing",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct augment_config, erasing),
     .present_offset = FIELD(struct augment_config, has_erasing),
     .section = &erasing_schema,
     .doc = "Sets a random rectangle of the image to 0 after scaling (torchvision's RandomErasing after Normalize)."},
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = FIELD(struct augment_config, seed),
     .fallback = "0",
     .doc = "The changes of an image depend only on this seed, the epoch and its row."},
    {0},
};

static void check_augment(void *config, const struct node *where, const char *path, struct problems *problems) {
    struct augment_config *augment = config;
    struct place place = where ? where->place : (struct place){0};
    if (augment->random_crop.padding > 0 && augment->random_resized_crop.scale.count)
        problems_add(problems, place, path, "random_crop and random_resized_crop exclude each other; remove one");
    if (!augment->has_erasing) augment->erasing.p = 0; /* the default is that of a section that was given */
}

const struct schema augment_schema = {
    .name = "dataset.augment", .size = sizeof(struct augment_config), .rows = augment_rows, .check = check_augment};

bool augment_moves(const struct augment_config *config) {
    return config->random_crop.padding > 0 || config->random_resized_crop.scale.count > 0 ||
           config->horizontal_flip > 0 || config->vertical_flip > 0 || rotation_is_on(&config->rotation);
}

bool augment_is_on(const struct augment_config *config) {
    return augment_moves(config) || color_jitter_is_on(&config->color_jitter) || config->erasing.p > 0;
}

void augment_prepare(struct augment *augment) {
    const struct augment_config *config = &augment->config;
    const struct random_resized_crop_config *crop = &config->random_resized_crop;
    augment->is_resized = crop->scale.count == 2;
    for (size_t i = 0; i < 2 && augment->is_resized; i++) {
        augment->scale[i] = crop->scale.items[i];
        augment->ratio[i] = crop->ratio.items[i];
    }
    augment->rotation = rotation_create(&config->rotation);
    augment->color_jitter = color_jitter_create(&config->color_jitter);
    if (config->erasing.p > 0) augment->erasing = erasing_create(&config->erasing);
}

struct change {
    int64_t down, across; /* pixel (y, x) of the result is pixel (y + down, x + across) of the image */
    bool is_flipped;      /* left to right, after the shift */
    bool is_upside_down;  /* top to bottom, after the shift */
};

static struct augment_key key_of(const struct augment *augment, int64_t epoch, int64_t row) {
    return (struct augment_key){augment->config.seed, epoch, row};
}

static struct change draw(const struct augment *augment, int64_t epoch, int64_t row) {
    const struct augment_config *config = &augment->config;
    const struct augment_key key = key_of(augment, epoch, row);
    uint32_t word[4];
    augment_words(&key, STREAM, word);
    int64_t padding = config->random_crop.padding;
    return (struct change){.down = augment_below(word[0], 2 * padding + 1) - padding,
                           .across = augment_below(word[1], 2 * padding + 1) - padding,
                           .is_flipped = (double)word[2] < config->horizontal_flip * 0x1p32,
                           .is_upside_down = (double)word[3] < config->vertical_flip * 0x1p32};
}

/* ---- windows ---- */

/* The largest window in the middle whose ratio is allowed. */
static struct augment_window middle_window(const struct augment *augment) {
    double width = (double)augment->width, height = (double)augment->height, ratio = width / height;
    if (ratio < augment->ratio[0]) height = rint(width / augment->ratio[0]);
    if (ratio > augment->ratio[1]) width = rint(height * augment->ratio[1]);
    struct augment_window window = {.height = (size_t)fmax(height, 1), .width = (size_t)fmax(width, 1)};
    window.top = (augment->height - window.height) / 2;
    window.left = (augment->width - window.width) / 2;
    return window;
}

/* RandomResizedCrop.get_params: ten attempts, four random words each. */
struct augment_window augment_draw_window(const struct augment *augment, int64_t epoch, int64_t row) {
    const struct augment_key key = key_of(augment, epoch, row);
    double width = (double)augment->width, height = (double)augment->height;
    double low = portable_log(augment->ratio[0]), high = portable_log(augment->ratio[1]);
    for (uint32_t attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        uint32_t word[4];
        augment_words(&key, WINDOW_STREAM + attempt, word);
        double area = height * width * augment_between(word[0], augment->scale[0], augment->scale[1]);
        double ratio = portable_exp(augment_between(word[1], low, high));
        double w = rint(sqrt(area * ratio)), h = rint(sqrt(area / ratio));
        if (w < 1 || w > width || h < 1 || h > height) continue;
        struct augment_window window = {.height = (size_t)h, .width = (size_t)w};
        window.top = (size_t)augment_below(word[2], (int64_t)(augment->height - window.height) + 1);
        window.left = (size_t)augment_below(word[3], (int64_t)(augment->width - window.width) + 1);
        return window;
    }
    return middle_window(augment);
}

/* The two pixels of [count] that pixel [at] of [resized] lies between, and the weight of the second. */
struct tap {
    size_t first, second;
    float weight;
};

static struct tap tap_at(size_t at, size_t count, size_t resized) {
    float position = fmaxf(((float)at + 0.5F) * ((float)count / (float)resized) - 0.5F, 0);
    size_t first = (size_t)position < count - 1 ? (size_t)position : count - 1;
    return (struct tap){first, first + 1 < count ? first + 1 : first, position - (float)first};
}

void augment_resize(const struct augment *augment, const struct augment_window *window, const float *from, float *to) {
    enum { COLUMNS = 256 }; /* whose taps are computed once */
    struct tap columns[COLUMNS];
    size_t width = augment->width, height = augment->height;
    for (size_t x = 0, count; x < width; x += count) {
        count = width - x < COLUMNS ? width - x : COLUMNS;
        for (size_t i = 0; i < count; i++) columns[i] = tap_at(x + i, window->width, width);
        for (size_t line = 0; line < augment->channels * height; line++) {
            struct tap y = tap_at(line % height, window->height, height);
            const float *image = from + line / height * height * width + window->top * width + window->left;
            const float *above = image + y.first * width, *below = image + y.second * width;
            for (size_t i = 0; i < count; i++) {
                struct tap c = columns[i];
                float a = (1 - c.weight) * above[c.first] + c.weight * above[c.second];
                float b = (1 - c.weight) * below[c.first] + c.weight * below[c.second];
                to[line * width + x + i] = (1 - y.weight) * a + y.weight * b;
            }
        }
    }
}

/* ---- images ---- */

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

static void swap_lines(float *a, float *b, size_t width) {
    for (size_t x = 0; x < width; x++) {
        float value = a[x];
        a[x] = b[x];
        b[x] = value;
    }
}

/* Mirrors channel (height, width) top to bottom. */
static void flip_channel(float *channel, size_t height, size_t width) {
    for (size_t top = 0, bottom = height - 1; top < bottom; top++, bottom--)
        swap_lines(channel + top * width, channel + bottom * width, width);
}

/* random_crop or random_resized_crop, and the flips. */
static void crop_and_flip(const struct augment *augment, int64_t epoch, int64_t row, float *image, float *scratch) {
    struct change change = draw(augment, epoch, row);
    size_t width = augment->width, pixels = augment->height * width;
    int64_t height = (int64_t)augment->height;
    bool is_moved = change.down != 0 || change.across != 0;
    if (is_moved || augment->is_resized) memcpy(scratch, image, augment->channels * pixels * sizeof *image);
    if (augment->is_resized) {
        struct augment_window window = augment_draw_window(augment, epoch, row);
        augment_resize(augment, &window, scratch, image);
    }
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
    for (size_t c = 0; c < augment->channels && change.is_upside_down; c++)
        flip_channel(image + c * pixels, augment->height, width);
}

static void rotate(const struct augment *augment, const struct augment_key *key, float *image, float *scratch) {
    size_t pixels = augment->height * augment->width;
    struct turn turn = turn_create(rotation_draw(&augment->rotation, key), augment->height, augment->width);
    memcpy(scratch, image, augment->channels * pixels * sizeof *image);
    turn_image(&turn, augment->rotation.is_bilinear, augment->channels, augment->fill, scratch, image);
}

static void jitter(const struct augment *augment, const struct augment_key *key, float *image) {
    struct color_change change = color_jitter_draw(&augment->color_jitter, key);
    color_jitter_apply(&augment->color_jitter, &change, augment->channels, augment->height * augment->width,
                       augment->colors, image);
}

static void erase(const struct augment *augment, const struct augment_key *key, float *image) {
    struct erased erased = erasing_draw(&augment->erasing, key, augment->height, augment->width);
    for (size_t c = 0; c < augment->channels; c++)
        erase_channel(&erased, augment->width, image + c * augment->height * augment->width);
}

void augment_image(const struct augment *augment, int64_t epoch, int64_t row, float *image, float *scratch) {
    const struct augment_key key = key_of(augment, epoch, row);
    crop_and_flip(augment, epoch, row, image, scratch);
    if (augment->rotation.is_on) rotate(augment, &key, image, scratch);
    if (augment->color_jitter.is_on) jitter(augment, &key, image);
    if (augment->erasing.p > 0) erase(augment, &key, image);
}

/* The pixel of [count], resized to [resized], whose centre is the nearest to that of pixel [at]. */
static size_t nearest(size_t at, size_t count, size_t resized) { return (2 * at + 1) * count / (2 * resized); }

/* The pixel of the image that pixel (y, x) is after crop_and_flip; -1: outside. */
static int64_t pixel_before(const struct augment *augment, const struct change *change,
                            const struct augment_window *window, size_t y, size_t x) {
    size_t height = augment->height, width = augment->width;
    size_t line = change->is_upside_down ? height - 1 - y : y, column = change->is_flipped ? width - 1 - x : x;
    int64_t down = (int64_t)(window->top + nearest(line, window->height, height)) + change->down;
    int64_t across = (int64_t)(window->left + nearest(column, window->width, width)) + change->across;
    bool is_inside = down >= 0 && down < (int64_t)height && across >= 0 && across < (int64_t)width;
    return is_inside ? down * (int64_t)width + across : -1;
}

void augment_pixels(const struct augment *augment, int64_t epoch, int64_t row, int64_t *from) {
    const struct augment_key key = key_of(augment, epoch, row);
    struct change change = draw(augment, epoch, row);
    size_t height = augment->height, width = augment->width;
    struct augment_window window = {.height = height, .width = width};
    double degrees = augment->rotation.is_on ? rotation_draw(&augment->rotation, &key) : 0;
    struct turn turn = turn_create(degrees, height, width);
    if (augment->is_resized) window = augment_draw_window(augment, epoch, row);
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) {
            int64_t at = augment->rotation.is_on ? turn_nearest(&turn, y, x) : (int64_t)(y * width + x);
            size_t pixel = (size_t)at;
            from[y * width + x] = at < 0 ? -1 : pixel_before(augment, &change, &window, pixel / width, pixel % width);
        }
}
