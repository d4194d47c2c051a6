/* The Tree-structured Parzen Estimator. Densities are sums over kernels of products over parameters, computed as
 * logarithms. Points are vectors with one coordinate for each parameter: its place in its range, from 0 to 1, or an
 * index into its list of values. */
#include "sweep/tpe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/numbers/portable_math.h"
#include "base/scoped.h"
#include "base/status.h"

#define DRAWS 24     /* attempts to draw a point that no trial had */
#define ANY_VALUE -1 /* the center of a prior in a list of values */

/* ---- observations ---- */

/* Of each trial its point and its result; the numbers of the best ones in their order; and a hash table of all points.
 * So neither the next suggestion nor the question whether a point was observed looks at every trial. */

#define MAX_RANKED (TPE_MAX_BEST + TPE_MAX_REST)

enum observation_kind { OBSERVED_NOT, OBSERVED_RUNNING, OBSERVED_FAILED, OBSERVED_PRUNED, OBSERVED_COMPLETE };

struct result {
    double values[TPE_MAX_METRICS];
    int64_t epochs;
    int kind; /* enum observation_kind */
};

struct tpe {
    const struct space *space;
    size_t metrics;
    struct result *results; /* (capacity) by number of the trial */
    double *points;         /* (capacity, parameters) */
    size_t capacity, usable;
    size_t ranked[MAX_RANKED + 1]; /* (ranked_count) trials that have ended, the best first */
    size_t ranked_count;
    bool has_changed; /* a result was replaced, or with several metrics added: ranked is to be made anew */
    size_t *slots;    /* (slot_count) trial + 1 by the hash of its point; 0: empty. A power of two */
    size_t slot_count, points_count;
};

static const double *point_of(const struct tpe *tpe, size_t trial) { return tpe->points + trial * tpe->space->count; }

/* FNV-1a over the words, so that the same numbers have the same place: 0 and -0 are one number. */
static size_t slot_of(const struct tpe *tpe, const double *values) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t j = 0; j < tpe->space->count; j++) {
        double value = values[j] + 0.0;
        uint64_t word;
        memcpy(&word, &value, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return (size_t)hash & (tpe->slot_count - 1);
}

/* An inactive parameter of a trial says nothing about its value: there its kernel is the prior. */
static bool is_active(const struct tpe *tpe, size_t trial, size_t parameter) {
    struct point point = {0};
    if (!tpe->space->items[parameter].condition_count) return true;
    memcpy(point.values, point_of(tpe, trial), tpe->space->count * sizeof *point.values);
    return space_is_active(tpe->space, parameter, &point);
}

static bool is_same_point(const struct tpe *tpe, size_t trial, const double *values) {
    const double *own = point_of(tpe, trial);
    size_t j = 0;
    while (j < tpe->space->count && own[j] == values[j]) j++;
    return j == tpe->space->count;
}

/* The slot of the point, or the empty one where it would be. */
static size_t find_slot(const struct tpe *tpe, const double *values) {
    size_t slot = slot_of(tpe, values);
    while (tpe->slots[slot] && !is_same_point(tpe, tpe->slots[slot] - 1, values))
        slot = (slot + 1) & (tpe->slot_count - 1);
    return slot;
}

static bool is_observed(const struct tpe *tpe, const struct point *point) {
    return tpe->points_count && tpe->slots[find_slot(tpe, point->values)];
}

static void *grow(void *items, size_t size) { return status_need(realloc(items, size ? size : 1)); }

/* At most half of the slots are used. */
static void add_point(struct tpe *tpe, size_t trial) {
    if (2 * (tpe->points_count + 1) > tpe->slot_count) {
        tpe->slot_count = tpe->slot_count ? 2 * tpe->slot_count : 64;
        tpe->slots = grow(tpe->slots, tpe->slot_count * sizeof *tpe->slots);
        memset(tpe->slots, 0, tpe->slot_count * sizeof *tpe->slots);
        for (size_t i = 0; i < tpe->capacity; i++)
            if (i != trial && tpe->results[i].kind) tpe->slots[find_slot(tpe, point_of(tpe, i))] = i + 1;
    }
    size_t slot = find_slot(tpe, point_of(tpe, trial));
    tpe->points_count += !tpe->slots[slot];
    tpe->slots[slot] = trial + 1;
}

/* Best first; no two are equal. */
static bool is_better(const struct tpe *tpe, size_t left, size_t right) {
    const struct result *a = &tpe->results[left], *b = &tpe->results[right];
    if (a->kind != b->kind) return a->kind > b->kind;
    if (a->kind == OBSERVED_PRUNED && a->epochs != b->epochs) return a->epochs > b->epochs;
    if (a->kind != OBSERVED_FAILED && a->values[0] != b->values[0]) return a->values[0] < b->values[0];
    return left < right;
}

static void rank(struct tpe *tpe, size_t trial) {
    size_t low = 0, high = tpe->ranked_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (is_better(tpe, trial, tpe->ranked[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    memmove(tpe->ranked + low + 1, tpe->ranked + low, (tpe->ranked_count - low) * sizeof *tpe->ranked);
    tpe->ranked[low] = trial;
    if (tpe->ranked_count < MAX_RANKED) tpe->ranked_count++;
}

/* How many of the trials count as the best ones: ceil(0.15 usable), or TPE_MAX_BEST. */
static size_t count_best(const struct tpe *tpe) {
    size_t best = (3 * tpe->usable + 19) / 20;
    return best < TPE_MAX_BEST ? best : TPE_MAX_BEST;
}

static void rank_fronts(struct tpe *tpe);

static void rank_all(struct tpe *tpe) {
    tpe->ranked_count = 0;
    if (tpe->metrics > 1) rank_fronts(tpe);
    for (size_t i = 0; i < tpe->capacity; i++)
        if (tpe->results[i].kind == OBSERVED_FAILED || (tpe->metrics == 1 && tpe->results[i].kind > OBSERVED_FAILED))
            rank(tpe, i);
    tpe->has_changed = false;
}

static struct result result_of(const struct tpe *tpe, const struct observation *o) {
    struct result out = {.kind = o->is_complete ? OBSERVED_COMPLETE : OBSERVED_PRUNED};
    if (o->is_running) return (struct result){.kind = OBSERVED_RUNNING};
    for (size_t i = 0; i < tpe->metrics; i++) {
        if (!isfinite(o->values[i])) return (struct result){.kind = OBSERVED_FAILED};
        out.values[i] = o->values[i];
    }
    if (!o->is_complete) out.epochs = o->epochs;
    return out;
}

static bool is_same_result(const struct tpe *tpe, const struct result *a, const struct result *b) {
    bool is_same = a->kind == b->kind && a->epochs == b->epochs;
    for (size_t i = 0; i < tpe->metrics; i++) is_same = is_same && a->values[i] == b->values[i];
    return is_same;
}

struct tpe *tpe_create(const struct space *space, size_t metrics) {
    struct tpe *tpe = status_need(calloc(1, sizeof *tpe));
    tpe->space = space;
    tpe->metrics = metrics;
    return tpe;
}

void tpe_destroy(struct tpe *tpe) {
    if (!tpe) return;
    free(tpe->results);
    free(tpe->points);
    free(tpe->slots);
    free(tpe);
}

void tpe_observe(struct tpe *tpe, size_t trial, const struct observation *observation) {
    size_t n = tpe->space->count, before = tpe->capacity;
    if (trial >= before) {
        tpe->capacity = trial + 1 > 2 * before ? trial + 1 : 2 * before;
        tpe->results = grow(tpe->results, tpe->capacity * sizeof *tpe->results);
        tpe->points = grow(tpe->points, tpe->capacity * n * sizeof *tpe->points);
        memset(tpe->results + before, 0, (tpe->capacity - before) * sizeof *tpe->results);
    }
    struct result *result = &tpe->results[trial], old = *result;
    *result = result_of(tpe, observation);
    if (!old.kind) {
        memcpy(tpe->points + trial * n, observation->point.values, n * sizeof *tpe->points);
        add_point(tpe, trial);
    }
    tpe->usable += (result->kind >= OBSERVED_PRUNED) - (size_t)(old.kind >= OBSERVED_PRUNED);
    bool is_ended = result->kind >= OBSERVED_FAILED, was_ended = old.kind >= OBSERVED_FAILED;
    if (was_ended || tpe->metrics > 1)
        tpe->has_changed |= !is_same_result(tpe, &old, result);
    else if (is_ended)
        rank(tpe, trial);
}

/* ---- fronts of several metrics ---- */

/* A complete trial, sorted by its values. */
struct member {
    const double *values; /* (metrics) */
    size_t metrics, trial, front;
    double distance; /* to the nearest that is taken; -1: it is taken itself */
};

static int compare_members(const void *left, const void *right) {
    const struct member *a = left, *b = right;
    for (size_t k = 0; k < a->metrics; k++)
        if (a->values[k] != b->values[k]) return a->values[k] < b->values[k] ? -1 : 1;
    return a->trial < b->trial ? -1 : 1;
}

static int compare_fronts(const void *left, const void *right) {
    const struct member *a = left, *b = right;
    if (a->front != b->front) return a->front < b->front ? -1 : 1;
    return compare_members(left, right);
}

/* [a] is not behind [b] in their order. */
static bool dominates(const struct member *a, const struct member *b) {
    bool is_equal = true;
    for (size_t k = 0; k < a->metrics; k++) {
        if (a->values[k] > b->values[k]) return false;
        is_equal = is_equal && a->values[k] == b->values[k];
    }
    return !is_equal;
}

/* Whether a trial of front [front], whose last one is [last], dominates members[index]. With two metrics the last one
 * has the smallest second value. before (count): the one before each in its front + 1; 0: there is none */
static bool is_dominated(const struct member *members, const size_t *before, size_t last, size_t index) {
    for (size_t i = last; i > 0; i = members->metrics == 2 ? 0 : before[i - 1])
        if (dominates(&members[i - 1], &members[index])) return true;
    return false;
}

/* The first front none of whose members dominates it; a front with such a member comes after others with one. */
static void set_fronts(struct arena *arena, struct member *members, size_t count) {
    size_t fronts = 0, *last = arena_alloc(arena, (count + 1) * sizeof *last);
    size_t *before = arena_alloc(arena, (count + 1) * sizeof *before);
    for (size_t i = 0; i < count; i++) {
        size_t low = 0, high = fronts;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (is_dominated(members, before, last[middle], i))
                low = middle + 1;
            else
                high = middle;
        }
        before[i] = low == fronts ? 0 : last[low];
        last[low] = i + 1;
        fronts += low == fronts;
        members[i].front = low;
    }
}

/* Takes member [at] of a front (count): it is exchanged with the first one that is not taken. */
static void take(struct member *front, size_t count, size_t taken, size_t at, const double *scales) {
    struct member one = front[at];
    front[at] = front[taken];
    front[taken] = one;
    for (size_t i = taken + 1; i < count; i++) {
        double square = 0;
        for (size_t k = 0; k < one.metrics; k++) {
            double part = (front[i].values[k] - one.values[k]) * scales[k];
            square += part * part;
        }
        front[i].distance = fmin(front[i].distance, square);
    }
}

/* Brings [wanted] members of a front (count) to its start, those that stand for it best. */
static void spread(struct member *front, size_t count, size_t wanted) {
    size_t metrics = front->metrics, taken = 0;
    double scales[TPE_MAX_METRICS];
    for (size_t k = 0; k < metrics; k++) {
        double low = INFINITY, high = -INFINITY;
        for (size_t i = 0; i < count; i++) {
            low = fmin(low, front[i].values[k]);
            high = fmax(high, front[i].values[k]);
        }
        scales[k] = high > low ? 1 / (high - low) : 0;
    }
    for (size_t i = 0; i < count; i++) front[i].distance = INFINITY;
    for (; taken < wanted; taken++) {
        size_t at = taken;
        for (size_t i = taken + 1; i < count; i++) {
            bool is_better = taken < metrics ? front[i].values[taken] < front[at].values[taken]
                                             : front[i].distance > front[at].distance;
            if (is_better) at = i;
        }
        take(front, count, taken, at, scales);
    }
}

/* Ranks the complete trials. */
static void rank_fronts(struct tpe *tpe) {
    SCOPED_ARENA arena = arena_create();
    struct member *members = arena_alloc(arena, (tpe->usable + 1) * sizeof *members);
    size_t count = 0, best = count_best(tpe), first = 0;
    for (size_t i = 0; i < tpe->capacity; i++)
        if (tpe->results[i].kind == OBSERVED_COMPLETE)
            members[count++] = (struct member){.values = tpe->results[i].values, .metrics = tpe->metrics, .trial = i};
    if (count) qsort(members, count, sizeof *members, compare_members);
    set_fronts(arena, members, count);
    if (count) qsort(members, count, sizeof *members, compare_fronts);
    while (first < best) {
        size_t end = first;
        while (end < count && members[end].front == members[first].front) end++;
        if (end > best) spread(members + first, end - first, best - first);
        first = end;
    }
    for (size_t i = 0; i < count && i < MAX_RANKED; i++) tpe->ranked[tpe->ranked_count++] = members[i].trial;
}

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
    double log_deviation;
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

/* Puts a kernel on each of the [trials] (count), with their weights (mean 1; NULL: equal), and the prior after them. */
static struct density density_new(struct arena *arena, const struct axes *axes, const struct tpe *tpe,
                                  const size_t *trials, const double *weights, size_t count) {
    size_t n = axes->space->count, kernels = count + 1;
    struct density density = {.count = kernels,
                              .shares = arena_alloc(arena, kernels * sizeof(double)),
                              .factors = arena_alloc(arena, kernels * sizeof(double)),
                              .centers = arena_alloc(arena, kernels * n * sizeof(double)),
                              .inverse = arena_alloc(arena, kernels * n * sizeof(double))};
    double sum = 0;
    for (size_t k = 0; k < kernels; k++) {
        double weight = (k < count && weights ? weights[k] : 1) / (double)kernels;
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
            bool is_known = k < count && is_active(tpe, trials[k], j);
            if (p->kind == PARAMETER_VALUES) {
                *center = is_known ? point_of(tpe, trials[k])[j] : ANY_VALUE;
                if (!is_known) density.factors[k] -= portable_log(values);
                continue;
            }
            double value = is_known ? point_of(tpe, trials[k])[j] : 0, deviation = 1;
            *center = is_known ? to_coordinate(p, axes->extents[j], value) : 0.5;
            if (is_known) deviation = fmax(axes->deviation, cell_deviation(p, axes->extents[j], value));
            double inside = portable_normal((1 - *center) / deviation) - portable_normal(-*center / deviation);
            density.inverse[k * n + j] = 1 / deviation;
            bool is_usual = inside == 1 && deviation == axes->deviation; /* saves the logarithm */
            density.factors[k] -= is_usual ? axes->log_deviation : portable_log(deviation * inside);
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

#define NEGLIGIBLE                                                                                                     \
    40 /* a sum of at least e^x is the same with and without e^(x - 40), which is below half a bit of it */

/* terms (at least density->count): workspace */
static double density_log(const struct density *density, const struct space *space, const double *coordinates,
                          double *terms) {
    double largest = -INFINITY, highest = -INFINITY, sum = 0;
    for (size_t k = 0; k < density->count; k++) {
        terms[k] = log_kernel(density, space, k, coordinates);
        largest = fmax(largest, terms[k]);
    }
    for (size_t k = 0; k < density->count; k++) {
        double power = terms[k] - largest;
        if (power < highest - NEGLIGIBLE) continue;
        sum += portable_exp(power);
        highest = fmax(highest, power);
    }
    return largest + portable_log(sum);
}

/* ---- suggestions ---- */

static void draw_at_random(const struct tpe *tpe, struct rng *rng, struct point *out) {
    for (int i = 0; i < DRAWS; i++) {
        space_draw(tpe->space, rng, out);
        if (!is_observed(tpe, out)) return;
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
static bool suggest(struct arena *arena, const struct tpe *tpe, struct rng *rng, struct point *out) {
    const struct space *space = tpe->space;
    double weights[TPE_MAX_BEST], *terms = arena_alloc(arena, (tpe->ranked_count + 1) * sizeof *terms);
    size_t best = count_best(tpe);
    rank_weights(weights, best);
    double power = tpe->metrics == 1 ? -0.9 : -0.7; /* a front is longer than a point */
    struct axes axes = {.space = space, .deviation = 2 * portable_exp(power * portable_log((double)tpe->usable))};
    axes.log_deviation = portable_log(axes.deviation);
    for (size_t j = 0; j < space->count; j++) axes.extents[j] = extent_of(&space->items[j]);
    struct density good = density_new(arena, &axes, tpe, tpe->ranked, tpe->metrics == 1 ? weights : NULL, best);
    struct density rest = density_new(arena, &axes, tpe, tpe->ranked + best, NULL, tpe->ranked_count - best);

    double highest = -INFINITY;
    for (int i = 0; i < TPE_CANDIDATES; i++) {
        struct point point;
        double coordinates[SPACE_MAX_PARAMETERS];
        density_draw(&good, &axes, rng, &point);
        space_normalize(space, &point);
        if (is_observed(tpe, &point) || !space_is_allowed(space, &point)) continue;
        for (size_t j = 0; j < space->count; j++)
            coordinates[j] = to_coordinate(&space->items[j], axes.extents[j], point.values[j]);
        double ratio = density_log(&good, space, coordinates, terms) - density_log(&rest, space, coordinates, terms);
        if (ratio <= highest) continue;
        highest = ratio;
        *out = point;
    }
    return highest > -INFINITY;
}

void tpe_suggest(struct tpe *tpe, struct rng *rng, struct point *out) {
    if (tpe->has_changed) rank_all(tpe);
    if (tpe->usable >= TPE_STARTUP) {
        struct arena *arena = arena_create();
        bool found = suggest(arena, tpe, rng, out);
        arena_destroy(arena);
        if (found) return;
    }
    draw_at_random(tpe, rng, out);
}
