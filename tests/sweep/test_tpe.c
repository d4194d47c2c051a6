/* Suggestions stay within the space, come near what was good, and need nothing of the observations. ctest-labels: unit
 */
#include "sweep/tpe.h"

#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>

#include "check_main.h"

static const char *words[] = {"sgd", "adam", "adamw"}, *lonely[] = {"one"};

static struct parameter kinds[] = {
    {.path = "a", .kind = PARAMETER_VALUES, .texts = words, .count = 3},
    {.path = "b", .kind = PARAMETER_UNIFORM, .min = -1.5, .max = 2.25},
    {.path = "c", .kind = PARAMETER_UNIFORM, .min = 0, .max = 1, .step = 0.1},
    {.path = "d", .kind = PARAMETER_LOG_UNIFORM, .min = 1e-4, .max = 1e-1},
    {.path = "e", .kind = PARAMETER_INT_UNIFORM, .min = -3, .max = 4},
    {.path = "f", .kind = PARAMETER_INT_UNIFORM, .min = 8, .max = 30, .step = 8},
    {.path = "g", .kind = PARAMETER_INT_LOG_UNIFORM, .min = 1, .max = 256},
    {.path = "h", .kind = PARAMETER_VALUES, .texts = lonely, .count = 1},
    {.path = "i", .kind = PARAMETER_UNIFORM, .min = 0.7, .max = 0.7},
    {.path = "j", .kind = PARAMETER_LOG_UNIFORM, .min = 3e-3, .max = 3e-3},
    {.path = "k", .kind = PARAMETER_INT_LOG_UNIFORM, .min = 5, .max = 5},
};
static const struct space all_kinds = {.items = kinds, .count = sizeof kinds / sizeof *kinds};

static struct parameter plane_items[] = {{.path = "x", .kind = PARAMETER_UNIFORM, .min = -10, .max = 10},
                                         {.path = "y", .kind = PARAMETER_LOG_UNIFORM, .min = 1e-6, .max = 1}};
static const struct space plane = {.items = plane_items, .count = 2};

enum { MAX_COUNT = 400, LONG_COUNT = 1400 };
static struct observation observations[LONG_COUNT];

/* The suggestion after observations (count). */
static void suggest(const struct space *space, size_t count, struct rng *rng, struct point *out) {
    struct tpe *tpe = tpe_create(space, 1);
    for (size_t i = 0; i < count; i++) tpe_observe(tpe, i, &observations[i]);
    tpe_suggest(tpe, rng, out);
    tpe_destroy(tpe);
}

static void is_in_space(const struct space *space, const struct point *point) {
    for (size_t j = 0; j < SPACE_MAX_PARAMETERS; j++) {
        double value = point->values[j];
        if (j >= space->count) {
            ck_assert_double_eq(value, 0);
            continue;
        }
        const struct parameter *p = &space->items[j];
        if (p->kind == PARAMETER_VALUES)
            ck_assert_msg(value >= 0 && value < (double)p->count && value == floor(value), "%s: %g", p->path, value);
        else
            ck_assert_msg(value >= p->min && value <= p->max && value == parameter_round(p, value), "%s: %.17g",
                          p->path, value);
    }
}

typedef double value_function(const struct point *point);

static double sum_of_coordinates(const struct point *point) {
    return point->values[0] + point->values[1] + point->values[2];
}

/* Minimum 0 at x = 3, y = 1e-2 */
static double quadratic(const struct point *point) {
    double x = (point->values[0] - 3) / 10, y = log10(point->values[1]) + 2;
    return x * x + y * y / 9;
}

/* Fills observations (count) with a search; the generator of each trial depends on [seed] and its number. */
static void search(const struct space *space, value_function *value, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++) {
        struct rng rng;
        rng_seed(&rng, seed * MAX_COUNT + i);
        observations[i] = (struct observation){.is_complete = true};
        suggest(space, i, &rng, &observations[i].point);
        is_in_space(space, &observations[i].point);
        observations[i].values[0] = value(&observations[i].point);
    }
}

static double best_value(size_t count) {
    double best = INFINITY;
    for (size_t i = 0; i < count; i++) best = fmin(best, observations[i].values[0]);
    return best;
}

/* Best where b and d are at their limits, e at its lower one and a is the last word. */
static double at_the_limits(const struct point *point) {
    const double *v = point->values;
    return -v[0] + v[1] + log10(v[3]) + v[4] - v[6] / 100 - v[2];
}

TEST(suggestions_stay_within_the_space) {
    search(&all_kinds, at_the_limits, MAX_COUNT, 1);
    /* the sum at the limits; the smallest and largest values are reached */
    ck_assert_double_le(best_value(MAX_COUNT), -1.9 - 1.4 - 3.9 - 3 - 2.4 - 0.9);
}

TEST(suggestions_come_near_the_best) {
    size_t near = 0, count = 120;
    search(&plane, quadratic, count, 2);
    for (size_t i = count - 40; i < count; i++) near += observations[i].values[0] < 0.02;
    ck_assert_uint_ge(near, 25); /* at random: 3 % */
    ck_assert_double_le(best_value(count), 1e-3);
}

/* The best values of both are compared seed by seed. */
TEST(is_better_than_random_search) {
    int won = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rng rng;
        double random = INFINITY;
        rng_seed(&rng, 1000 + seed);
        for (int i = 0; i < 60; i++) {
            struct point point;
            space_draw(&plane, &rng, &point);
            random = fmin(random, quadratic(&point));
        }
        search(&plane, quadratic, 60, seed);
        won += best_value(60) < random;
    }
    ck_assert_int_ge(won, 17);
}

/* Good where the word and the number fit together, on two islands. */
static double islands(const struct point *point) {
    double x = point->values[1];
    return point->values[0] == 1 ? fabs(x + 1) : point->values[0] == 2 ? fabs(x - 2) : 3;
}

TEST(parameters_that_belong_together_stay_together) {
    struct space space = {.items = kinds, .count = 2};
    size_t mixed = 0;
    search(&space, islands, 150, 3);
    for (size_t i = 90; i < 150; i++) {
        double word = observations[i].point.values[0], x = observations[i].point.values[1];
        mixed += (word == 1 && fabs(x - 2) < 0.25) || (word == 2 && fabs(x + 1) < 0.25);
    }
    ck_assert_uint_le(mixed, 6);
    ck_assert_double_le(best_value(150), 0.02);
}

TEST(the_first_are_random) {
    for (size_t count = 0; count < TPE_STARTUP; count++) {
        struct rng one, two;
        struct point drawn, suggested;
        rng_seed(&one, count);
        rng_seed(&two, count);
        space_draw(&plane, &one, &drawn);
        suggest(&plane, count, &two, &suggested);
        ck_assert_mem_eq(&drawn, &suggested, sizeof drawn);
        observations[count] = (struct observation){.point = drawn, .values[0] = (double)count, .is_complete = true};
    }
    struct rng one, two;
    struct point drawn, suggested;
    rng_seed(&one, TPE_STARTUP);
    rng_seed(&two, TPE_STARTUP);
    space_draw(&plane, &one, &drawn);
    suggest(&plane, TPE_STARTUP, &two, &suggested);
    ck_assert_mem_ne(&drawn, &suggested, sizeof drawn);
}

/* [count] random points; the caller sets what became of them. */
static void draw_observations(const struct space *space, size_t count) {
    struct rng rng;
    rng_seed(&rng, 99);
    for (size_t i = 0; i < count; i++) {
        observations[i] = (struct observation){.is_complete = true};
        space_draw(space, &rng, &observations[i].point);
    }
}

static void suggest_many(const struct space *space, size_t count) {
    struct rng rng;
    struct point point;
    rng_seed(&rng, 5);
    for (int i = 0; i < 50; i++) {
        suggest(space, count, &rng, &point);
        is_in_space(space, &point);
    }
}

TEST(any_values_will_do) {
    static const double values[] = {0, NAN, INFINITY, -INFINITY, 1e308, -1e308, 5e-324};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (int kind = 0; kind < 3; kind++) {
            draw_observations(&all_kinds, 50);
            for (size_t i = 0; i < 50; i++) { /* all equal; all pruned; every third has another value */
                observations[i].values[0] = kind == 2 && i % 3 == 0 ? (double)i : values[v];
                observations[i].is_complete = kind != 1;
                observations[i].epochs = kind == 1 ? 3 : 0;
            }
            for (size_t count = 0; count <= 50; count += 5) suggest_many(&all_kinds, count);
        }
}

/* The mean of x in suggestions of 200 generators, where the good observations are near 5 and the others near -5. */
static double mean_suggestion(size_t count) {
    double sum = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct rng rng;
        struct point point;
        rng_seed(&rng, seed);
        suggest(&plane, count, &rng, &point);
        sum += point.values[0];
    }
    return sum / 200;
}

static void observe_at(size_t i, double x, struct observation observation) {
    observation.point = (struct point){.values = {x + 0.02 * (double)(i % 7), 1e-3 * (1 + (double)(i % 5))}};
    observations[i] = observation;
}

TEST(complete_trials_are_better_than_pruned_ones) {
    for (size_t i = 0; i < 40; i++)
        observe_at(i, i % 4 == 0 ? 5 : -5,
                   (struct observation){.values[0] = i % 4 == 0 ? 2 : 1, .is_complete = i % 4 == 0, .epochs = 7});
    ck_assert_double_ge(mean_suggestion(40), 4);
}

TEST(pruned_trials_are_ranked_by_epochs_then_by_value) {
    for (size_t i = 0; i < 40; i++)
        observe_at(i, i % 4 == 0 ? 5 : -5, (struct observation){.values[0] = 10, .epochs = i % 4 == 0 ? 9 : 3});
    ck_assert_double_ge(mean_suggestion(40), 4);
    for (size_t i = 0; i < 40; i++)
        observe_at(i, i % 4 == 0 ? 5 : -5, (struct observation){.values[0] = i % 4 == 0 ? 1 : 2, .epochs = 4});
    ck_assert_double_ge(mean_suggestion(40), 4);
}

/* Half of the points, with x below 0, failed; the others are better the nearer x is to 5. */
TEST(failed_trials_are_kept_away_from) {
    static const double failures[] = {NAN, INFINITY, -INFINITY};
    for (size_t f = 0; f < 3; f++) {
        draw_observations(&plane, 60);
        for (size_t i = 0; i < 60; i++) {
            double x = observations[i].point.values[0];
            observations[i].values[0] = x < 0 ? failures[f] : fabs(x - 5);
        }
        double mean = mean_suggestion(60);
        ck_assert_msg(mean > 4 && mean < 6, "mean %g", mean);
    }
}

/* Of 3 x 8 x 11 points with one best region none comes twice in 150 trials. */
TEST(points_come_once) {
    struct parameter items[] = {kinds[0], kinds[4], kinds[2]};
    struct space space = {.items = items, .count = 3};
    search(&space, sum_of_coordinates, 150, 4);
    for (size_t i = 0; i < 150; i++)
        for (size_t k = 0; k < i; k++)
            ck_assert_msg(memcmp(&observations[i].point, &observations[k].point, sizeof(struct point)) != 0,
                          "trials %zu and %zu are the same", k, i);
}

/* Of 12 values ten have ended and one runs: the last one is left. */
TEST(running_trials_are_not_suggested_again) {
    struct parameter numbers[] = {{.path = "n", .kind = PARAMETER_INT_UNIFORM, .min = 0, .max = 11}};
    struct space space = {.items = numbers, .count = 1};
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct rng rng;
        struct point point;
        for (size_t i = 0; i < 11; i++)
            observations[i] = (struct observation){.point = {.values = {(double)((seed + i) % 12)}},
                                                   .values[0] = (double)i,
                                                   .is_complete = true,
                                                   .is_running = i == 10};
        rng_seed(&rng, seed);
        suggest(&space, 11, &rng, &point);
        ck_assert_double_eq(point.values[0], (double)((seed + 11) % 12));
    }
}

TEST(running_trials_have_no_value) {
    draw_observations(&plane, 30);
    for (size_t i = 0; i < 30; i++) observations[i].values[0] = (double)i;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rng rng;
        struct point points[2];
        for (int is_best = 0; is_best < 2; is_best++) {
            observations[29].is_running = true;
            observations[29].values[0] = is_best ? -1e9 : 1e9;
            rng_seed(&rng, seed);
            suggest(&plane, 30, &rng, &points[is_best]);
        }
        ck_assert_mem_eq(&points[0], &points[1], sizeof points[0]);
    }
}

/* Ends in any order, first as running trials, and with another result at first: the suggestion is the same. */
TEST(the_order_of_the_ends_does_not_matter) {
    size_t count = 300;
    draw_observations(&all_kinds, count);
    for (size_t i = 0; i < count; i++) {
        observations[i].values[0] = i % 11 == 0 ? NAN : floor(at_the_limits(&observations[i].point)); /* with ties */
        observations[i].is_complete = i % 3 > 0;
        observations[i].epochs = (int64_t)(i % 5);
    }
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct tpe *tpe = tpe_create(&all_kinds, 1);
        struct rng one, two;
        struct point expected, found;
        for (size_t k = 0; k < count; k++) {
            struct observation running = observations[k * 7 % count], other = running;
            running.is_running = true;
            other.values[0] = -1000;
            tpe_observe(tpe, k * 7 % count, &running);
            if (k % 50 == seed) tpe_observe(tpe, k * 7 % count, &other);
        }
        for (size_t k = 0; k < count; k++) tpe_observe(tpe, k * 13 % count, &observations[k * 13 % count]);
        rng_seed(&one, seed);
        rng_seed(&two, seed);
        suggest(&all_kinds, count, &one, &expected);
        tpe_suggest(tpe, &two, &found);
        ck_assert_mem_eq(&expected, &found, sizeof found);
        tpe_destroy(tpe);
    }
}

/* ---- several metrics ---- */

/* The front of the first two: x from -4 to 4 at the smallest y. Of the third metric everything else is the front, too.
 */
static void set_two(struct observation *o, double scale) {
    double x = o->point.values[0], y = log10(o->point.values[1]) + 6;
    o->values[0] = ((x - 4) * (x - 4) + y) * scale;
    o->values[1] = (x + 4) * (x + 4) + y;
    o->values[2] = floor(-y);
}

static void suggest_of(const struct space *space, size_t metrics, size_t count, uint64_t seed, struct point *out) {
    struct tpe *tpe = tpe_create(space, metrics);
    struct rng rng;
    rng_seed(&rng, seed);
    for (size_t i = 0; i < count; i++) tpe_observe(tpe, i, &observations[i]);
    tpe_suggest(tpe, &rng, out);
    tpe_destroy(tpe);
}

/* Most suggestions are near the front, in all parts of it; a metric in another unit (a power of two) changes no bit. */
TEST(several_metrics_have_a_front) {
    int parts[4] = {0}, near = 0, count = 120;
    for (int i = 0; i < count; i++) {
        struct point *point = &observations[i].point, other;
        observations[i].is_complete = true;
        suggest_of(&plane, 2, (size_t)i, (uint64_t)i, point);
        is_in_space(&plane, point);
        for (int k = 0; k < i; k++) set_two(&observations[k], 1024);
        suggest_of(&plane, 2, (size_t)i, (uint64_t)i, &other);
        ck_assert_mem_eq(point, &other, sizeof other);
        for (int k = 0; k <= i; k++) set_two(&observations[k], 1);
        double x = point->values[0];
        bool is_near = i >= 40 && x >= -4 && x < 4 && point->values[1] < 1e-4;
        near += is_near;
        if (is_near) parts[(int)((x + 4) / 2)]++;
    }
    ck_assert_int_ge(near, 60); /* of 80; at random 11 */
    for (int k = 0; k < 4; k++) ck_assert_int_ge(parts[k], 8);
}

/* The best are those that no other dominates, here every eighth, not those with the smallest first metric. */
TEST(dominated_trials_are_the_rest) {
    for (size_t metrics = 2; metrics <= 3; metrics++) {
        size_t count = 40, on_front = 0;
        for (size_t i = 0; i < count; i++) {
            double x = i % 8 == 0 ? -8 + 0.1 * (double)i : 3 + 0.1 * (double)i;
            observations[i] = (struct observation){.is_complete = true, .point.values = {x, 1e-3}};
            observations[i].values[0] = i % 8 == 0 ? (double)i : 1 + (double)i;
            observations[i].values[1] = i % 8 == 0 ? -(double)i : 50 - (double)i;
            observations[i].values[2] = i == 7 ? NAN : 5; /* with three metrics it has failed */
        }
        for (uint64_t seed = 0; seed < 40; seed++) {
            struct point point;
            suggest_of(&plane, metrics, count, seed, &point);
            on_front += point.values[0] < -2;
        }
        ck_assert_uint_ge(on_front, 30);
    }
}

TEST(the_order_of_the_ends_does_not_matter_for_several_metrics) {
    for (size_t metrics = 2; metrics <= 3; metrics++) {
        size_t count = 300;
        draw_observations(&plane, count);
        for (size_t i = 0; i < count; i++) {
            set_two(&observations[i], 1);
            observations[i].values[0] = i % 17 == 0 ? NAN : floor(observations[i].values[0]); /* with ties */
            observations[i].is_complete = true;
        }
        for (uint64_t seed = 0; seed < 10; seed++) {
            struct tpe *tpe = tpe_create(&plane, metrics);
            struct point expected, found;
            struct rng rng;
            for (size_t k = 0; k < count; k++) {
                struct observation running = {.point = observations[k * 7 % count].point, .is_running = true};
                tpe_observe(tpe, k * 7 % count, &running);
            }
            for (size_t k = 0; k < count; k++) {
                tpe_observe(tpe, k * 13 % count, &observations[k * 13 % count]);
                rng_seed(&rng, k);
                if (k % 100 == 50) tpe_suggest(tpe, &rng, &found);
            }
            rng_seed(&rng, seed);
            tpe_suggest(tpe, &rng, &found);
            suggest_of(&plane, metrics, count, seed, &expected);
            ck_assert_mem_eq(&expected, &found, sizeof found);
            tpe_destroy(tpe);
        }
    }
}

/* Only the best take part, so a suggestion costs the same after any number of trials: whatever the others are, it has
 * the same bits. */
TEST(the_history_is_bounded) {
    size_t count = LONG_COUNT, others = 0;
    draw_observations(&plane, count);
    for (size_t i = 0; i < count; i++) observations[i].values[0] = (double)(i * 577 % count);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rng rng;
        struct point points[3];
        for (int k = 0; k < 3; k++) {
            size_t limit = k == 2 ? 30 : TPE_MAX_BEST + TPE_MAX_REST; /* 2: also those that take part */
            for (size_t i = 0; k && i < count; i++)
                if (observations[i].values[0] >= (double)limit) observations[i].point.values[0] = 3 + (double)i * 1e-4;
            rng_seed(&rng, seed);
            suggest(&plane, count, &rng, &points[k]);
            draw_observations(&plane, count);
            for (size_t i = 0; i < count; i++) observations[i].values[0] = (double)(i * 577 % count);
        }
        ck_assert_mem_eq(&points[0], &points[1], sizeof points[0]);
        others += memcmp(&points[0], &points[2], sizeof points[0]) != 0;
    }
    ck_assert_uint_gt(others, 0);
}

TEST(the_largest_space_and_many_observations) {
    static struct parameter items[SPACE_MAX_PARAMETERS];
    struct space space = {.items = items, .count = SPACE_MAX_PARAMETERS};
    for (size_t j = 0; j < space.count; j++) items[j] = kinds[j % all_kinds.count];
    draw_observations(&space, MAX_COUNT);
    for (size_t i = 0; i < MAX_COUNT; i++) observations[i].values[0] = at_the_limits(&observations[i].point);
    suggest_many(&space, MAX_COUNT);
}

/* Bits that another machine or compiler must give, too. */
TEST(the_same_everywhere) {
    struct rng rng;
    struct space space = {.items = kinds, .count = 7};
    rng_seed(&rng, 123);
    for (size_t i = 0; i < 60; i++) { /* of the C library only the order of log10 matters */
        observations[i] = (struct observation){.is_complete = true};
        for (size_t j = 0; j < space.count; j++) {
            const struct parameter *p = &kinds[j];
            double u = rng_uniform53(&rng);
            observations[i].point.values[j] =
                p->kind == PARAMETER_VALUES ? floor(u * 3) : parameter_round(p, p->min + u * (p->max - p->min));
        }
        observations[i].values[0] = at_the_limits(&observations[i].point);
    }
    struct sha256_ctx hash;
    uint8_t digest[32];
    char hex[17];
    sha256_init(&hash);
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct point point;
        rng_seed(&rng, seed);
        suggest(&space, 60, &rng, &point);
        sha256_update(&hash, space.count * sizeof *point.values, (const uint8_t *)point.values);
    }
    sha256_digest(&hash, sizeof digest, digest);
    for (int i = 0; i < 8; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    ck_assert_str_eq(hex, "75f03d5ff72189b5");
}

CHECK_MAIN("tpe")
