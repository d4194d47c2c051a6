/* Every operation is rounded to float32 as torch's, except the mean of adjust_contrast, whose sum is in double. */
#include "data/images/color_jitter.h"

#include <math.h>
#include <string.h>

#define STREAM 0x636f6c00u /* the factors; the order: the number behind it */

#define FACTOR_DOC(name)                                                                                               \
    "A number v for factors in [max(0, 1 - v), 1 + v], or [minimum, maximum] (torchvision's adjust_" name "); null: "  \
    "1."

static const struct schema_row rows[] = {
    {.key = "brightness",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct color_jitter_config, brightness),
     .fallback = "null",
     .min = 0,
     .max = 1000,
     .doc = FACTOR_DOC("brightness")},
    {.key = "contrast",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct color_jitter_config, contrast),
     .fallback = "null",
     .min = 0,
     .max = 1000,
     .doc = FACTOR_DOC("contrast")},
    {.key = "saturation",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct color_jitter_config, saturation),
     .fallback = "null",
     .min = 0,
     .max = 1000,
     .doc = FACTOR_DOC("saturation")},
    {.key = "hue",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct color_jitter_config, hue),
     .fallback = "null",
     .min = -0.5,
     .max = 0.5,
     .doc = "A number v for shifts of the hue in [-v, v], where 1 is the whole circle, or [minimum, maximum] "
            "(torchvision's adjust_hue); null: 0."},
    {0},
};

static const struct real_list *range_of(const struct color_jitter_config *config, enum color color) {
    const struct real_list *lists[] = {&config->brightness, &config->contrast, &config->saturation, &config->hue};
    return lists[color];
}

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    struct place place = where ? where->place : (struct place){0};
    for (enum color color = 0; color < COLORS; color++) {
        const struct real_list *list = range_of(config, color);
        bool is_range = (list->count == 1 && list->items[0] >= 0) ||
                        (list->count == 2 && list->items[0] <= list->items[1]) || list->count == 0;
        if (!is_range)
            problems_add(problems, place, path, "%s must be a number from 0, or two numbers in order, such as %s",
                         rows[color].key, color == COLOR_HUE ? "[-0.1, 0.1]" : "[0.8, 1.2]");
    }
}

const struct schema color_jitter_schema = {
    .name = "dataset.augment.color_jitter", .size = sizeof(struct color_jitter_config), .rows = rows, .check = check};

bool color_jitter_is_on(const struct color_jitter_config *config) { return color_jitter_create(config).is_on; }

struct color_jitter color_jitter_create(const struct color_jitter_config *config) {
    struct color_jitter jitter = {0};
    for (enum color color = 0; color < COLORS; color++) {
        const struct real_list *list = range_of(config, color);
        double center = color == COLOR_HUE ? 0 : 1;
        if (list->count == 0) continue;
        jitter.low[color] = list->count == 2 ? list->items[0] : center - list->items[0];
        jitter.high[color] = list->count == 2 ? list->items[1] : center + list->items[0];
        if (color != COLOR_HUE) jitter.low[color] = fmax(jitter.low[color], 0);
        jitter.changes[color] = jitter.low[color] != center || jitter.high[color] != center;
        jitter.is_on = jitter.is_on || jitter.changes[color];
    }
    return jitter;
}

struct color_change color_jitter_draw(const struct color_jitter *jitter, const struct augment_key *key) {
    struct color_change change = {.order = {COLOR_BRIGHTNESS, COLOR_CONTRAST, COLOR_SATURATION, COLOR_HUE}};
    uint32_t word[4];
    augment_words(key, STREAM, word);
    for (int i = 0; i < COLORS; i++) change.factors[i] = augment_between(word[i], jitter->low[i], jitter->high[i]);
    augment_words(key, STREAM + 1, word);
    for (int i = 0; i < COLORS - 1; i++) { /* Fisher and Yates */
        int64_t at = i + augment_below(word[i], COLORS - i);
        enum color color = change.order[i];
        change.order[i] = change.order[at];
        change.order[at] = color;
    }
    return change;
}

static float clamp(float value) { return value < 0 ? 0 : value > 1 ? 1 : value; }

static float grey(const float *image, size_t channels, size_t pixels, size_t i) {
    if (channels == 1) return image[i];
    return (0.2989F * image[i] + 0.587F * image[i + pixels]) + 0.114F * image[i + 2 * pixels];
}

/* factor * a + (1 - factor) * b */
static float blend(double factor, float a, float b) { return clamp((float)factor * a + (float)(1 - factor) * b); }

static void adjust_contrast(double factor, size_t channels, size_t pixels, float *image) {
    double sum = 0;
    for (size_t i = 0; i < pixels; i++) sum += (double)grey(image, channels, pixels, i);
    float mean = (float)(sum / (double)pixels);
    for (size_t i = 0; i < channels * pixels; i++) image[i] = blend(factor, image[i], mean);
}

static void adjust_saturation(double factor, size_t pixels, float *image) {
    for (size_t i = 0; i < pixels; i++) {
        float light = grey(image, 3, pixels, i);
        for (size_t c = 0; c < 3; c++) image[i + c * pixels] = blend(factor, image[i + c * pixels], light);
    }
}

/* Hue (0 .. 1), saturation and value of a colour, and back, as Pillow. */
static void to_hsv(const float rgb[3], float hsv[3]) {
    float r = rgb[0], g = rgb[1], b = rgb[2];
    float high = fmaxf(r, fmaxf(g, b)), low = fminf(r, fminf(g, b)), range = high - low;
    float divisor = range == 0 ? 1 : range;
    float rc = (high - r) / divisor, gc = (high - g) / divisor, bc = (high - b) / divisor;
    float hue = high == r ? bc - gc : high == g ? 2 + rc - bc : 4 + gc - rc;
    float turns = hue / 6 + 1;
    hsv[0] = turns >= 1 ? turns - 1 : turns; /* exact, as fmod(turns, 1) of at most 2 */
    hsv[1] = range == 0 ? 0 : range / high;
    hsv[2] = high;
}

static void from_hsv(const float hsv[3], float rgb[3]) {
    int sector = (int)(hsv[0] * 6);
    float s = hsv[1], v = hsv[2], f = hsv[0] * 6 - (float)sector;
    float p = clamp(v * (1 - s)), q = clamp(v * (1 - s * f)), t = clamp(v * (1 - s * (1 - f)));
    const float colors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
    memcpy(rgb, colors[sector % 6], sizeof colors[0]);
}

static void adjust_hue(double factor, size_t pixels, float *image) {
    for (size_t i = 0; i < pixels; i++) {
        float color[3] = {image[i], image[i + pixels], image[i + 2 * pixels]}, hsv[3];
        to_hsv(color, hsv);
        hsv[0] += (float)factor;
        hsv[0] += hsv[0] < 0 ? 1 : hsv[0] >= 1 ? -1 : 0;
        from_hsv(hsv, color);
        for (size_t c = 0; c < 3; c++) image[i + c * pixels] = color[c];
    }
}

void color_adjust(enum color color, double factor, size_t channels, size_t pixels, float *image) {
    if (color == COLOR_BRIGHTNESS)
        for (size_t i = 0; i < channels * pixels; i++) image[i] = blend(factor, image[i], 0);
    if (color == COLOR_CONTRAST) adjust_contrast(factor, channels, pixels, image);
    if (color == COLOR_SATURATION && channels == 3) adjust_saturation(factor, pixels, image);
    if (color == COLOR_HUE && channels == 3) adjust_hue(factor, pixels, image);
}

void color_jitter_apply(const struct color_jitter *jitter, const struct color_change *change, size_t channels,
                        size_t pixels, const struct color_range *ranges, float *image) {
    for (size_t c = 0; c < channels; c++)
        for (size_t i = c * pixels; i < (c + 1) * pixels; i++)
            image[i] = clamp(image[i] * ranges[c].slope + ranges[c].offset);
    for (int i = 0; i < COLORS; i++) {
        enum color color = change->order[i];
        if (jitter->changes[color]) color_adjust(color, change->factors[color], channels, pixels, image);
    }
    for (size_t c = 0; c < channels; c++)
        for (size_t i = c * pixels; i < (c + 1) * pixels; i++)
            image[i] = (image[i] - ranges[c].offset) / ranges[c].slope;
}
