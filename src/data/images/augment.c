/* Random changes of training images: rotation, colours, erasing, and all of them together. Each has random words of its
 * own (a stream), so that a change does not depend on which others are configured. */
#include "data/images/augment.h"

#include <math.h>
#include <string.h>

#include "base/numbers/portable_math.h"

/* ---- rotation ---- */

/* Pixels of the result are looked up in the image, at the place that the inverse rotation gives. */

#define ROTATION_STREAM 0x726f7461u

static const char *const interpolations[] = {"nearest", "bilinear", NULL};

static const struct schema_row rotation_rows[] = {
    SCHEMA_ROW(REAL_LIST, struct rotation_config, degrees, .fallback = "null", .min = -360, .max = 360,
               .doc = "Range of the angles: a number d for [-d, d], or [minimum, maximum], counter-clockwise; null or "
                      "0: no rotation."),
    SCHEMA_ROW(CHOICE, struct rotation_config, interpolation, .fallback = "nearest", .choices = interpolations,
               .doc = "nearest, as torchvision's default, or bilinear, a mean of four pixels. Targets for each pixel "
                      "are rotated with nearest."),
    {0},
};

static void check_rotation(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct rotation_config *rotation = config;
    struct place place = where ? where->place : (struct place){0};
    const double *degrees = rotation->degrees.items;
    size_t count = rotation->degrees.count;
    bool is_range = (count == 1 && degrees[0] >= 0) || (count == 2 && degrees[0] <= degrees[1]);
    if (count && !is_range)
        problems_add(problems, place, path,
                     "degrees must be a number from 0, such as 15, or two numbers in order, such as [-15, 15]");
    if (!count && rotation->interpolation)
        problems_add(problems, place, path, "without degrees nothing is rotated; give them, such as degrees: 15");
}

static const struct schema rotation_schema =
    SCHEMA("dataset.augment.rotation", struct rotation_config, .rows = rotation_rows, .shorthand = "degrees",
           .check = check_rotation);

bool rotation_is_on(const struct rotation_config *config) {
    for (size_t i = 0; i < config->degrees.count; i++)
        if (config->degrees.items[i] != 0) return true;
    return false;
}

struct random_rotation rotation_create(const struct rotation_config *config) {
    struct random_rotation rotation = {.is_on = rotation_is_on(config), .is_bilinear = config->interpolation == 1};
    if (!rotation.is_on) return rotation;
    bool is_single = config->degrees.count == 1;
    rotation.degrees[0] = is_single ? -config->degrees.items[0] : config->degrees.items[0];
    rotation.degrees[1] = config->degrees.items[config->degrees.count - 1];
    return rotation;
}

double rotation_draw(const struct random_rotation *rotation, const struct augment_key *key) {
    uint32_t word[4];
    augment_words(key, ROTATION_STREAM, word);
    return augment_between(word[0], rotation->degrees[0], rotation->degrees[1]);
}

struct turn turn_create(double degrees, size_t height, size_t width) {
    return (struct turn){portable_cos_degrees(degrees), portable_sin_degrees(degrees), height, width};
}

/* The place in the image, in pixels from the centre of its first one, that pixel (y, x) of the result is from. */
static void place_of(const struct turn *turn, size_t y, size_t x, double *down, double *across) {
    double middle_y = ((double)turn->height - 1) / 2, middle_x = ((double)turn->width - 1) / 2;
    double dy = (double)y - middle_y, dx = (double)x - middle_x;
    *across = turn->cosine * dx - turn->sine * dy + middle_x;
    *down = turn->sine * dx + turn->cosine * dy + middle_y;
}

static bool is_inside(const struct turn *turn, double y, double x) {
    return y >= 0 && y < (double)turn->height && x >= 0 && x < (double)turn->width;
}

/* The nearest integer, halves to even ones, as rint, and the largest one that is not above; |x| < 2^51. */
static double rounded(double x) { return (x + 0x1.8p52) - 0x1.8p52; }
static double below(double x) {
    double nearest = rounded(x);
    return nearest > x ? nearest - 1 : nearest;
}

/* The pixel y * width + x of the image that pixel (y, x) of the rotated one is, the nearest one; -1: it is outside. */
static int64_t turn_nearest(const struct turn *turn, size_t y, size_t x) {
    double down, across;
    place_of(turn, y, x, &down, &across);
    down = rounded(down), across = rounded(across);
    return is_inside(turn, down, across) ? (int64_t)down * (int64_t)turn->width + (int64_t)across : -1;
}

/* The pixels around the place that pixel (y, x) of the result is from: those inside, and their weights. */
struct corners {
    size_t count, pixels[4];
    double weights[4], sum; /* of the weights */
};

static struct corners corners_of(const struct turn *turn, size_t y, size_t x) {
    struct corners corners = {0};
    double down, across;
    place_of(turn, y, x, &down, &across);
    double top = below(down), left = below(across);
    for (int corner = 0; corner < 4; corner++) {
        double v = top + corner / 2, u = left + corner % 2;
        if (!is_inside(turn, v, u)) continue;
        double weight = (1 - fabs(down - v)) * (1 - fabs(across - u));
        corners.pixels[corners.count] = (size_t)v * turn->width + (size_t)u;
        corners.weights[corners.count++] = weight;
        corners.sum += weight;
    }
    return corners;
}

static float mix(const struct corners *corners, float fill, const float *from) {
    double sum = 0;
    for (size_t i = 0; i < corners->count; i++) sum += corners->weights[i] * ((double)from[corners->pixels[i]] - fill);
    return (float)(fill + corners->sum * sum);
}

void turn_image(const struct turn *turn, bool is_bilinear, size_t channels, const float *fill, const float *from,
                float *to) {
    size_t pixels = turn->height * turn->width;
    for (size_t y = 0; y < turn->height; y++)
        for (size_t x = 0; x < turn->width; x++, to++) {
            struct corners corners = {0};
            int64_t pixel = -1;
            if (is_bilinear)
                corners = corners_of(turn, y, x);
            else
                pixel = turn_nearest(turn, y, x);
            for (size_t c = 0; c < channels; c++)
                to[c * pixels] = is_bilinear ? mix(&corners, fill[c], from + c * pixels)
                                 : pixel < 0 ? fill[c]
                                             : from[c * pixels + (size_t)pixel];
        }
}

/* ---- colours ---- */

/* Every operation is rounded to float32 as torch's, except the mean of adjust_contrast, whose sum is in double. */

#define COLOR_STREAM 0x636f6c00u /* the factors; the order: the number behind it */

#define FACTOR_DOC(name)                                                                                               \
    "A number v for factors in [max(0, 1 - v), 1 + v], or [minimum, maximum] (torchvision's adjust_" name "); null: "  \
    "1."

static const struct schema_row color_rows[] = {
    SCHEMA_ROW(REAL_LIST, struct color_jitter_config, brightness, .fallback = "null", .min = 0, .max = 1000,
               .doc = FACTOR_DOC("brightness")),
    SCHEMA_ROW(REAL_LIST, struct color_jitter_config, contrast, .fallback = "null", .min = 0, .max = 1000,
               .doc = FACTOR_DOC("contrast")),
    SCHEMA_ROW(REAL_LIST, struct color_jitter_config, saturation, .fallback = "null", .min = 0, .max = 1000,
               .doc = FACTOR_DOC("saturation")),
    SCHEMA_ROW(REAL_LIST, struct color_jitter_config, hue, .fallback = "null", .min = -0.5, .max = 0.5,
               .doc = "A number v for shifts of the hue in [-v, v], where 1 is the whole circle, or [minimum, maximum] "
                      "(torchvision's adjust_hue); null: 0."),
    {0},
};

static const struct real_list *range_of(const struct color_jitter_config *config, enum color color) {
    const struct real_list *lists[] = {&config->brightness, &config->contrast, &config->saturation, &config->hue};
    return lists[color];
}

static void check_colors(void *config, const struct node *where, const char *path, struct problems *problems) {
    struct place place = where ? where->place : (struct place){0};
    for (enum color color = 0; color < COLORS; color++) {
        const struct real_list *list = range_of(config, color);
        bool is_range = (list->count == 1 && list->items[0] >= 0) ||
                        (list->count == 2 && list->items[0] <= list->items[1]) || list->count == 0;
        if (!is_range)
            problems_add(problems, place, path, "%s must be a number from 0, or two numbers in order, such as %s",
                         color_rows[color].key, color == COLOR_HUE ? "[-0.1, 0.1]" : "[0.8, 1.2]");
    }
}

static const struct schema color_jitter_schema =
    SCHEMA("dataset.augment.color_jitter", struct color_jitter_config, .rows = color_rows, .check = check_colors);

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
    augment_words(key, COLOR_STREAM, word);
    for (int i = 0; i < COLORS; i++) change.factors[i] = augment_between(word[i], jitter->low[i], jitter->high[i]);
    augment_words(key, COLOR_STREAM + 1, word);
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

/* ---- erasing ---- */

/* RandomErasing.get_params: ten attempts, four random words each. */

#define ERASING_STREAM 0x65726100u /* and the MAX_ATTEMPTS numbers behind it */
#define MAX_ATTEMPTS 10

static const struct schema_row erasing_rows[] = {
    SCHEMA_ROW(REAL, struct erasing_config, p, .fallback = "0.5", .min = 0, .max = 1,
               .doc = "Probability that a rectangle of an image is erased."),
    SCHEMA_ROW(REAL_LIST, struct erasing_config, scale, .fallback = "[0.02, 0.33]", .min = 0, .max = 1,
               .doc = "Minimum and maximum share of the image's area."),
    SCHEMA_ROW(REAL_LIST, struct erasing_config, ratio, .fallback = "[0.3, 3.3]", .min = 0.001, .max = 1000,
               .doc = "Minimum and maximum of height / width of the rectangle."),
    {0},
};

static bool are_in_order(const struct real_list *list) { return list->count == 2 && list->items[0] <= list->items[1]; }

static void check_erasing(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct erasing_config *erasing = config;
    struct place place = where ? where->place : (struct place){0};
    if (!are_in_order(&erasing->scale))
        problems_add(problems, place, path, "scale must be two numbers in order, such as [0.02, 0.33]");
    if (!are_in_order(&erasing->ratio))
        problems_add(problems, place, path, "ratio must be two numbers in order, such as [0.3, 3.3]");
}

static const struct schema erasing_schema = SCHEMA("dataset.augment.erasing", struct erasing_config,
                                                   .rows = erasing_rows, .shorthand = "p", .check = check_erasing);

static struct erasing erasing_create(const struct erasing_config *config) {
    struct erasing erasing = {.p = config->p};
    for (size_t i = 0; i < 2; i++) {
        erasing.scale[i] = config->scale.items[i];
        erasing.ratio[i] = config->ratio.items[i];
    }
    return erasing;
}

struct erased erasing_draw(const struct erasing *erasing, const struct augment_key *key, size_t height, size_t width) {
    uint32_t word[4];
    augment_words(key, ERASING_STREAM, word);
    if ((double)word[0] >= erasing->p * 0x1p32) return (struct erased){0};
    double low = portable_log(erasing->ratio[0]), high = portable_log(erasing->ratio[1]);
    for (uint32_t attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
        augment_words(key, ERASING_STREAM + attempt, word);
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

/* Sets the rectangle of the channel (.., width) to 0. */
static void erase_channel(const struct erased *erased, size_t width, float *channel) {
    for (size_t y = erased->top; y < erased->top + erased->height; y++)
        memset(channel + y * width + erased->left, 0, erased->width * sizeof *channel);
}

/* ---- all changes ---- */

/* Four random words per image (Philox): the vertical and horizontal offset of the crop, and the two flips; others for
 * the window of random_resized_crop. */

#define STREAM 0x6175676du        /* differs from the streams of the model's random numbers, which are small */
#define WINDOW_STREAM 0x77696e00u /* and the MAX_ATTEMPTS - 1 numbers behind it */

static const struct schema_row crop_rows[] = {
    SCHEMA_ROW(INT, struct random_crop_config, padding, .fallback = "0", .min = 0, .max = 10000,
               .doc = "Black pixels added on each side before a window of the image's size is cut out at a random "
                      "position (torchvision's RandomCrop(size, padding)); 0: no crop."),
    {0},
};

static const struct schema crop_schema =
    SCHEMA("dataset.augment.random_crop", struct random_crop_config, .rows = crop_rows, .shorthand = "padding");

static const struct schema_row resized_rows[] = {
    SCHEMA_ROW(
        REAL_LIST, struct random_resized_crop_config, scale, .fallback = "null", .min = 0, .max = 1,
        .doc =
            "Minimum and maximum share of the image's area, such as [0.08, 1], torchvision's default; null: no crop."),
    SCHEMA_ROW(REAL_LIST, struct random_resized_crop_config, ratio, .fallback = "[0.75, 1.3333333333333333]",
               .min = 0.001, .max = 1000, .doc = "Minimum and maximum of width / height of the window."),
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

static const struct schema resized_schema =
    SCHEMA("dataset.augment.random_resized_crop", struct random_resized_crop_config, .rows = resized_rows,
           .shorthand = "scale", .check = check_resized);

static const struct schema_row augment_rows[] = {
    SCHEMA_ROW(SECTION, struct augment_config, random_crop, .section = &crop_schema,
               .doc = "Shifts the image by up to padding pixels."),
    SCHEMA_ROW(SECTION, struct augment_config, random_resized_crop, .section = &resized_schema,
               .doc = "Cuts a window of random size and position out of the image and resizes it to the image's size "
                      "(torchvision's RandomResizedCrop, bilinear)."),
    SCHEMA_ROW(REAL, struct augment_config, horizontal_flip, .fallback = "0", .min = 0, .max = 1,
               .doc = "Probability that an image is mirrored left to right (torchvision's RandomHorizontalFlip)."),
    SCHEMA_ROW(REAL, struct augment_config, vertical_flip, .fallback = "0", .min = 0, .max = 1,
               .doc = "Probability that an image is mirrored top to bottom (torchvision's RandomVerticalFlip), for "
                      "images without an upper side, such as those of microscopes and satellites."),
    SCHEMA_ROW(SECTION, struct augment_config, rotation, .section = &rotation_schema,
               .doc = "Rotates the image about its centre by a random angle (torchvision's RandomRotation); pixels "
                      "from outside are black."),
    SCHEMA_ROW(SECTION, struct augment_config, color_jitter, .section = &color_jitter_schema,
               .doc = "Changes brightness, contrast, saturation and hue by random factors, in a random order "
                      "(torchvision's ColorJitter), of images with 1 or 3 channels (RGB) and values from 0 to 1 after "
                      "dataset.divide, or bytes."),
    SCHEMA_ROW(
        SECTION, struct augment_config, erasing, .present_offset = FIELD(struct augment_config, has_erasing),
        .section = &erasing_schema,
        .doc =
            "Sets a random rectangle of the image to 0 after scaling (torchvision's RandomErasing after Normalize)."),
    SCHEMA_ROW(INT, struct augment_config, seed, .fallback = "0",
               .doc = "The changes of an image depend only on this seed, the epoch and its row."),
    {0},
};

static void check_augment(void *config, const struct node *where, const char *path, struct problems *problems) {
    struct augment_config *augment = config;
    struct place place = where ? where->place : (struct place){0};
    if (augment->random_crop.padding > 0 && augment->random_resized_crop.scale.count)
        problems_add(problems, place, path, "random_crop and random_resized_crop exclude each other; remove one");
    if (!augment->has_erasing) augment->erasing.p = 0; /* the default is that of a section that was given */
}

const struct schema augment_schema =
    SCHEMA("dataset.augment", struct augment_config, .rows = augment_rows, .check = check_augment);

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
