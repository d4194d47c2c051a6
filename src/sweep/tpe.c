/* The Tree-structured Parzen Estimator. Densities are sums over kernels of products over parameters, computed as
 * logarithms. Points are vectors with one coordinate for each parameter: its place in its range, from 0 to 1, or an
 * index into its list of values. */
#include "sweep/tpe.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/numbers/portable_math.h"

#define DRAWS 24     /* attempts to draw a point that no trial had */
#define ANY_VALUE -1 /* the center of a prior in a list of values */

/* ---- coordinates ---- */

/* The range of a number on the scale of its kernels: whole numbers and steps own the cell around them. */
struct extent {
    double low, width;
};

static double to_scale(const struct parameter *p, double value) {
    return parameter_is_log(p) ? portable_log(value) : value;
}

/* Half of the distance to the next value; 0: any number is one. */
static double half_cell(const struct parameter *p) {
    if (p->kind == PARAMETER_INT_LOG_UNIFORM) return 0.5;
    return parameter_step(p) / 2;
}

static struct extent extent_of(const struct parameter *p) {
    if (p->kind == PARAMETER_VALUES) return (struct extent){0, 0};
    double half = half_cell(p), high = half > 0 ? parameter_round(p, p->max) + half : p->max;
    double low = to_scale(p, p->min - half);
    return (struct extent){low, to_scale(p, high) - low};
}

static double to_coordinate(const struct parameter *p, struct extent extent, double value) {
    if (p->kind == PARAMETER_VALUES) return value;
    return extent.width > 0 ? (to_scale(p, value) - extent.low) / extent.width : 0.5;
}

static double from_coordinate(const struct parameter *p, struct extent extent, double coordinate) {
    if (p->kind == PARAMETER_VALUES) return coordinate;
    double scaled = extent.low + coordinate * extent.width;
    return parameter_round(p, parameter_is_log(p) ? portable_exp(scaled) : scaled);
}

/* ---- densities ---- */

/* What all kernels share. */
struct axes {
    const struct space *space;
    struct extent extents[SPACE_MAX_PARAMETERS];
    double deviation; /* of coordinates of numbers, where their cells are not wider */
};

struct density {
    size_t count;   /* kernels; the last one is the prior */
    double *shares; /* (count) cumulative weights, the last 1 */
    double
        *factors; /* (count) logarithms of the weight and of what the normal densities of the kernel are divided by */
    double *centers; /* (count, parameters) coordinates */
    double *inverse; /* (count, parameters) 1 / deviation; values of a list: unused */
    double same[SPACE_MAX_PARAMETERS], other[SPACE_MAX_PARAMETERS]; /* probabilities of values: the observed, another */
    double log_same[SPACE_MAX_PARAMETERS], log_other[SPACE_MAX_PARAMETERS];
};

/* Half of a whole number's cell, as a part of the range. */
static double cell_deviation(const struct parameter *p, struct extent extent, double value) {
    double half = half_cell(p);
    if (half == 0) return 0;
    return (to_scale(p, value + half) - to_scale(p, value - half)) / extent.width / 2;
}

/* Puts a kernel on each of the observations (count), with their weights (mean 1), and the prior after them. */
static struct density density_new(struct arena *arena, const struct axes *axes,
                                  const struct observation *const *observations, const double *weights, size_t count) {
    size_t n = axes->space->count, kernels = count + 1;
    struct density density = {.count = kernels,
                              .shares = arena_alloc(arena, kernels * sizeof(double)),
                              .factors = arena_alloc(arena, kernels * sizeof(double)),
                              .centers = arena_alloc(arena, kernels * n * sizeof(double)),
                              .inverse = arena_alloc(arena, kernels * n * sizeof(double))};
    double sum = 0;
    for (size_t k = 0; k < kernels; k++) {
        double weight = (k < count ? weights[k] : 1) / (double)kernels;
        density.shares[k] = sum += weight;
        density.factors[k] = portable_log(weight);
    }
    density.shares[count] = 1;
    for (size_t j = 0; j < n; j++) {
        const struct parameter *p = &axes->space->items[j];
        double values = (double)p->count;
        density.other[j] = 1 / ((double)kernels + values);
        density.same[j] = density.other[j] * ((double)kernels + 1);
        density.log_same[j] = portable_log(density.same[j]);
        density.log_other[j] = portable_log(density.other[j]);
        for (size_t k = 0; k < kernels; k++) {
            double *center = &density.centers[k * n + j];
            if (p->kind == PARAMETER_VALUES) {
                *center = k < count ? observations[k]->point.values[j] : ANY_VALUE;
                if (k == count) density.factors[k] -= portable_log(values);
                continue;
            }
            double value = k < count ? observations[k]->point.values[j] : 0, deviation = 1;
            *center = k < count ? to_coordinate(p, axes->extents[j], value) : 0.5;
            if (k < count) deviation = fmax(axes->deviation, cell_deviation(p, axes->extents[j], value));
            double inside = portable_normal((1 - *center) / deviation) - portable_normal(-*center / deviation);
            density.inverse[k * n + j] = 1 / deviation;
            density.factors[k] -= portable_log(deviation * inside);
        }
    }
    return density;
}

/* A standard normal number (Marsaglia's polar method). */
static double draw_normal(struct rng *rng) {
    double x, y, square;
    do {
        x = 2 * rng_uniform53(rng) - 1;
        y = 2 * rng_uniform53(rng) - 1;
        square = x * x + y * y;
    } while (square >= 1 || square == 0);
    return x * sqrt(-2 * portable_log(square) / square);
}

/* At least a third of the normal numbers are inside: the center is, and no deviation is above 1. */
static double draw_truncated(struct rng *rng, double center, double inverse) {
    double coordinate;
    do coordinate = center + draw_normal(rng) / inverse;
    while (coordinate < 0 || coordinate > 1);
    return coordinate;
}

/* Any of [values], each as likely, or with the rest of the probability the observed one. */
static double draw_value(struct rng *rng, double observed, double other, size_t values) {
    double u = rng_uniform53(rng), any = observed == ANY_VALUE ? 1 : other * (double)values;
    return u < any ? fmin(floor(u / any * (double)values), (double)values - 1) : observed;
}

static void density_draw(const struct density *density, const struct axes *axes, struct rng *rng, struct point *out) {
    size_t n = axes->space->count, k = 0;
    for (double u = rng_uniform53(rng); u >= density->shares[k];) k++;
    *out = (struct point){0};
    for (size_t j = 0; j < n; j++) {
        const struct parameter *p = &axes->space->items[j];
        double center = density->centers[k * n + j];
        double coordinate = p->kind == PARAMETER_VALUES ? draw_value(rng, center, density->other[j], p->count)
                                                        : draw_truncated(rng, center, density->inverse[k * n + j]);
        out->values[j] = from_coordinate(p, axes->extents[j], coordinate);
    }
}

/* The logarithm of kernel [k] at [coordinates], but for a factor that all kernels have. */
static double log_kernel(const struct density *density, const struct space *space, size_t k,
                         const double *coordinates) {
    const double *centers = &density->centers[k * space->count], *inverse = &density->inverse[k * space->count];
    double squares = 0, sum = density->factors[k];
    for (size_t j = 0; j < space->count; j++)
        if (space->items[j].kind != PARAMETER_VALUES) {
            double distance = (coordinates[j] - centers[j]) * inverse[j];
            squares += distance * distance;
        } else if (centers[j] != ANY_VALUE)
            sum += coordinates[j] == centers[j] ? density->log_same[j] : density->log_other[j];
    return sum - squares / 2;
}

/* terms (at least density->count): workspace */
static double density_log(const struct density *density, const struct space *space, const double *coordinates,
                          double *terms) {
    double largest = -INFINITY, sum = 0;
    for (size_t k = 0; k < density->count; k++) {
        terms[k] = log_kernel(density, space, k, coordinates);
        largest = fmax(largest, terms[k]);
    }
    for (size_t k = 0; k < density->count; k++) sum += portable_exp(terms[k] - largest);
    return largest + portable_log(sum);
}

/* ---- suggestions ---- */

static bool is_usable(const struct observation *o) { return !o->is_running && isfinite(o->value); }

/* Best first. */
static int by_rank(const void *left, const void *right) {
    const struct observation *a = *(const struct observation *const *)left;
    const struct observation *b = *(const struct observation *const *)right;
    if (is_usable(a) != is_usable(b)) return is_usable(a) ? -1 : 1;
    if (is_usable(a)) {
        if (a->is_complete != b->is_complete) return a->is_complete ? -1 : 1;
        if (!a->is_complete && a->epochs != b->epochs) return a->epochs > b->epochs ? -1 : 1;
        if (a->value != b->value) return a->value < b->value ? -1 : 1;
    }
    return (a > b) - (a < b);
}

static bool is_observed(const struct space *space, const struct observation *observations, size_t count,
                        const struct point *point) {
    for (size_t i = 0; i < count; i++) {
        size_t j = 0;
        while (j < space->count && observations[i].point.values[j] == point->values[j]) j++;
        if (j == space->count) return true;
    }
    return false;
}

static void draw_at_random(const struct space *space, const struct observation *observations, size_t count,
                           struct rng *rng, struct point *out) {
    for (int i = 0; i < DRAWS; i++) {
        space_draw(space, rng, out);
        if (!is_observed(space, observations, count, out)) return;
    }
}

/* weights (best): log(best + 1/2) - log(k), with the mean 1 */
static void rank_weights(double *weights, size_t best) {
    double sum = 0;
    for (size_t k = 0; k < best; k++)
        sum += weights[k] = portable_log((double)best + 0.5) - portable_log((double)(k + 1));
    for (size_t k = 0; k < best; k++) weights[k] *= (double)best / sum;
}

/* false: every candidate was observed before. */
static bool suggest(struct arena *arena, const struct space *space, const struct observation *observations,
                    size_t count, size_t usable, struct rng *rng, struct point *out) {
    const struct observation **ranked = arena_alloc(arena, count * sizeof *ranked);
    double *weights = arena_alloc(arena, count * sizeof *weights),
           *terms = arena_alloc(arena, (count + 1) * sizeof *terms);
    size_t ended = 0;
    size_t best = (3 * usable + 19) / 20; /* ceil(0.15 usable) */
    if (best > TPE_MAX_BEST) best = TPE_MAX_BEST;
    for (size_t i = 0; i < count; i++) {
        if (observations[i].is_running) continue;
        ranked[ended] = &observations[i];
        weights[ended++] = 1;
    }
    qsort(ranked, ended, sizeof *ranked, by_rank);
    rank_weights(weights, best);
    struct axes axes = {.space = space, .deviation = 2 * portable_exp(-0.9 * portable_log((double)usable))};
    for (size_t j = 0; j < space->count; j++) axes.extents[j] = extent_of(&space->items[j]);
    struct density good = density_new(arena, &axes, ranked, weights, best);
    struct density rest = density_new(arena, &axes, ranked + best, weights + best, ended - best);

    double highest = -INFINITY;
    for (int i = 0; i < TPE_CANDIDATES; i++) {
        struct point point;
        double coordinates[SPACE_MAX_PARAMETERS];
        density_draw(&good, &axes, rng, &point);
        if (is_observed(space, observations, count, &point)) continue;
        for (size_t j = 0; j < space->count; j++)
            coordinates[j] = to_coordinate(&space->items[j], axes.extents[j], point.values[j]);
        double ratio = density_log(&good, space, coordinates, terms) - density_log(&rest, space, coordinates, terms);
        if (ratio <= highest) continue;
        highest = ratio;
        *out = point;
    }
    return highest > -INFINITY;
}

void tpe_suggest(const struct space *space, const struct observation *observations, size_t count, struct rng *rng,
                 struct point *out) {
    size_t usable = 0;
    for (size_t i = 0; i < count; i++) usable += is_usable(&observations[i]);
    if (usable >= TPE_STARTUP) {
        struct arena *arena = arena_create();
        bool found = suggest(arena, space, observations, count, usable, rng, out);
        arena_destroy(arena);
        if (found) return;
    }
    draw_at_random(space, observations, count, rng, out);
}
