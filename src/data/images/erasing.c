/* RandomErasing.get_params: ten attempts, four random words each. */
#include "data/images/erasing.h"

#include <math.h>
#include <string.h>

#include "base/numbers/portable_math.h"

#define STREAM 0x65726100u /* and the MAX_ATTEMPTS numbers behind it */
#define MAX_ATTEMPTS 10

static const struct schema_row rows[] = {
    {.key = "p",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct erasing_config, p),
     .fallback = "0.5",
     .min = 0,
     .max = 1,
     .doc = "Probability that a rectangle of an image is erased."},
    {.key = "scale",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct erasing_config, scale),
     .fallback = "[0.02, 0.33]",
     .min = 0,
     .max = 1,
     .doc = "Minimum and maximum share of the image's area."},
    {.key = "ratio",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct erasing_config, ratio),
     .fallback = "[0.3, 3.3]",
     .min = 0.001,
     .max = 1000,
     .doc = "Minimum and maximum of height / width of the rectangle."},
    {0},
};

static bool is_range(const struct real_list *list) { return list->count == 2 && list->items[0] <= list->items[1]; }

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct erasing_config *erasing = config;
    struct place place = where ? where->place : (struct place){0};
    if (!is_range(&erasing->scale))
        problems_add(problems, place, path, "scale must be two numbers in order, such as [0.02, 0.33]");
    if (!is_range(&erasing->ratio))
        problems_add(problems, place, path, "ratio must be two numbers in order, such as [0.3, 3.3]");
}

const struct schema erasing_schema = {.name = "dataset.augment.erasing",
                                      .size = sizeof(struct erasing_config),
                                      .rows = rows,
                                      .shorthand = "p",
                                      .check = check};

struct erasing erasing_create(const struct erasing_config *config) {
    struct erasing erasing = {.p = config->p};
    for (size_t i = 0; i < 2; i++) {
        erasing.scale[i] = config->scale.items[i];
        erasing.ratio[i] = config->ratio.items[i];
    }
    return erasing;
}

struct erased erasing_draw(const struct erasing *erasing, const struct augment_key *key, size_t height, size_t width) {
    uint32_t word[4];
    augment_words(key, STREAM, word);
    if ((double)word[0] >= erasing->p * 0x1p32) return (struct erased){0};
    double low = portable_log(erasing->ratio[0]), high = portable_log(erasing->ratio[1]);
    for (uint32_t attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
        augment_words(key, STREAM + attempt, word);
        double area = (double)(height * width) * augment_between(word[0], erasing->scale[0], erasing->scale[1]);
        double ratio = portable_exp(augment_between(word[1], low, high));
        double h = rint(sqrt(area * ratio)), w = rint(sqrt(area / ratio));
        if (h >= (double)height || w >= (double)width) continue;
        struct erased erased = {.height = (size_t)h, .width = (size_t)w};
        erased.top = (size_t)augment_below(word[2], (int64_t)(height - erased.height) + 1);
        erased.left = (size_t)augment_below(word[3], (int64_t)(width - erased.width) + 1);
        return erased;
    }
    return (struct erased){0};
}

void erase_channel(const struct erased *erased, size_t width, float *channel) {
    for (size_t y = erased->top; y < erased->top + erased->height; y++)
        memset(channel + y * width + erased->left, 0, erased->width * sizeof *channel);
}
