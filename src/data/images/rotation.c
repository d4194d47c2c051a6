/* Pixels of the result are looked up in the image, at the place that the inverse rotation gives. */
#include "data/images/rotation.h"

#include <math.h>

#include "base/numbers/portable_math.h"

#define STREAM 0x726f7461u

static const char *const interpolations[] = {"nearest", "bilinear", NULL};

static const struct schema_row rows[] = {
    {.key = "degrees",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct rotation_config, degrees),
     .fallback = "null",
     .min = -360,
     .max = 360,
     .doc = "Range of the angles: a number d for [-d, d], or [minimum, maximum], counter-clockwise; null or 0: no "
            "rotation."},
    {.key = "interpolation",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct rotation_config, interpolation),
     .fallback = "nearest",
     .choices = interpolations,
     .doc = "nearest, as torchvision's default, or bilinear, a mean of four pixels. Targets for each pixel are rotated "
            "with nearest."},
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct rotation_config *rotation = config;
    struct place place = where ? where->place : (struct place){0};
    const double *degrees = rotation->degrees.items;
    size_t count = rotation->degrees.count;
    bool is_range = (count == 1 && degrees[0] >= 0) || (count == 2 && degrees[0] <= degrees[1]);
    if (count && !is_range)
        problems_add(problems, place, path,
                     "degrees must be a number from 0, such as 15, or two numbers in order, "
                     "such as [-15, 15]");
    if (!count && rotation->interpolation)
        problems_add(problems, place, path, "without degrees nothing is rotated; give them, such as degrees: 15");
}

const struct schema rotation_schema = {.name = "dataset.augment.rotation",
                                       .size = sizeof(struct rotation_config),
                                       .rows = rows,
                                       .shorthand = "degrees",
                                       .check = check};

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
    augment_words(key, STREAM, word);
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
static double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; }
static double below(double x) {
    double rounded = nearest(x);
    return rounded > x ? rounded - 1 : rounded;
}

int64_t turn_nearest(const struct turn *turn, size_t y, size_t x) {
    double down, across;
    place_of(turn, y, x, &down, &across);
    down = nearest(down), across = nearest(across);
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
