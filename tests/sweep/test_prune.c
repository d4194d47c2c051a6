/* The decisions of asha, of hyperband and of the median rule are those of their definitions, also where runs report
 * again and values are equal or not finite. ctest-labels: unit */
#include <math.h>

#include "base/numbers/rng.h"
#include "check_main.h"
#include "sweep/prune.h"

#define RUNS 600

struct known {
    bool is_there;
    double value;
};

/* By definition: fewer than the best 1 / factor are better. */
static bool is_stopped(const struct known *known, int64_t run, double factor) {
    size_t count = 0, better = 0, promoted;
    for (size_t i = 0; i < RUNS; i++) {
        count += known[i].is_there;
        better += known[i].is_there && known[i].value < known[run].value;
    }
    promoted = (size_t)((double)count / factor);
    return known[run].value == INFINITY || better >= (promoted ? promoted : 1);
}

static const double factors[] = {1.5, 2, 3, 10, 1000};

/* Two repeats with one rung each; every fifth report is of a run that has reported before. */
TEST_EACH(asha_is_its_definition, factors) {
    static struct known known[2][RUNS];
    struct prune_config config = {.type = PRUNE_ASHA, .min_epochs = 2, .reduction_factor = factors[_i]};
    struct pruner *pruner = pruner_create(&config, 2);
    struct rng rng;
    size_t stopped = 0;
    memset(known, 0, sizeof known);
    rng_seed(&rng, 7);
    for (size_t k = 0; k < 1200; k++) {
        int64_t group = k % 2, run = (int64_t)(rng_uniform53(&rng) * RUNS), number = 2 * run + group;
        double value = floor(rng_uniform53(&rng) * 100); /* with ties */
        if (k % 17 == 0) value = k % 34 ? NAN : INFINITY;
        known[group][run] = (struct known){true, isfinite(value) ? value : INFINITY};
        bool must_stop = pruner_report(pruner, number, 2, value);
        ck_assert_int_eq(must_stop, is_stopped(known[group], run, factors[_i]));
        ck_assert(!pruner_report(pruner, number, 1, value)); /* no rung */
        stopped += must_stop;
    }
    ck_assert_uint_gt(stopped, 100);
    pruner_destroy(pruner);
}

/* Li's n configurations of bracket s, without the rounding: factor^s (last + 1) / (s + 1). */
static const struct prune_config hyperbands[] = {
    {.type = PRUNE_HYPERBAND, .min_epochs = 1, .max_epochs = 81, .reduction_factor = 3},
    {.type = PRUNE_HYPERBAND, .min_epochs = 1, .max_epochs = 27, .reduction_factor = 3},
    {.type = PRUNE_HYPERBAND, .min_epochs = 2, .max_epochs = 100, .reduction_factor = 4},
    {.type = PRUNE_HYPERBAND, .min_epochs = 5, .max_epochs = 9, .reduction_factor = 1.5},
};
static const int64_t bracket_counts[] = {5, 4, 3, 2};

TEST_EACH(trials_are_distributed_by_the_shares_of_the_brackets, hyperbands) {
    enum { TRIALS = 2000 };
    const struct prune_config *c = &hyperbands[_i];
    int64_t count = hyperband_brackets(c), found[8] = {0};
    double all = 0, n[8];
    ck_assert_int_eq(count, bracket_counts[_i]);
    for (int64_t b = 0; b < count; b++)
        all += n[b] = pow(c->reduction_factor, (double)(count - 1 - b)) * (double)count / (double)(count - b);
    for (int64_t trial = 0; trial < TRIALS; trial++) {
        found[hyperband_bracket(c, trial)]++;
        for (int64_t b = 0; b < count; b++) /* at any time, not only in the end */
            ck_assert_double_lt(fabs((double)found[b] - (double)(trial + 1) * n[b] / all), 4);
    }
}

/* Two repeats; each bracket compares its own trials alone, at its own rungs. */
TEST(a_bracket_of_hyperband_is_an_asha) {
    static struct known known[2][3][4][RUNS]; /* by repeat, rung, bracket */
    const struct prune_config config = hyperbands[1];
    const int64_t rungs[] = {1, 3, 9};
    struct pruner *pruner = pruner_create(&config, 2);
    struct rng rng;
    size_t stopped[4] = {0};
    memset(known, 0, sizeof known);
    rng_seed(&rng, 11);
    for (size_t k = 0; k < 20000; k++) {
        int64_t repeat = k % 2, trial = (int64_t)(rng_uniform53(&rng) * RUNS), epoch = 1 + k / 2 % 27;
        int64_t bracket = hyperband_bracket(&config, trial), rung = 2;
        double value = floor(rng_uniform53(&rng) * 100);
        while (rung >= 0 && rungs[rung] != epoch) rung--;
        bool must_stop = pruner_report(pruner, 2 * trial + repeat, epoch, value), expected = false;
        if (rung >= bracket) {
            known[repeat][rung][bracket][trial] = (struct known){true, value};
            expected = is_stopped(known[repeat][rung][bracket], trial, 3);
        }
        ck_assert_int_eq(must_stop, expected);
        stopped[bracket] += must_stop;
    }
    ck_assert(stopped[0] > 100 && stopped[1] > 50 && stopped[2] > 10 && stopped[3] == 0);
    pruner_destroy(pruner);
}

/* A run that is worse than the median of the complete ones at its epoch, by its best value so far. */
TEST(the_median_is_of_complete_runs) {
    struct prune_config config = {.type = PRUNE_MEDIAN, .min_epochs = 1, .startup_trials = 3};
    struct pruner *pruner = pruner_create(&config, 2); /* even runs are of the first repeat */
    for (int64_t run = 0; run < 5; run++) {
        ck_assert(!pruner_report(pruner, 2 * run, 1, (double)run));
        ck_assert(!pruner_report(pruner, 2 * run, 2, 10 + (double)run));
    }
    for (int64_t run = 4; run >= 2; run--) {
        ck_assert(!pruner_report(pruner, 18, 1, 100));
        pruner_complete(pruner, 2 * run);
        pruner_complete(pruner, 2 * run);
    }
    ck_assert(pruner_report(pruner, 18, 1, 3.5)); /* the median of 2, 3, 4 */
    ck_assert(!pruner_report(pruner, 18, 1, 3));
    ck_assert(!pruner_report(pruner, 18, 2, 99)); /* its best is 3 */
    ck_assert(!pruner_report(pruner, 19, 1, 99)); /* another repeat has no complete runs */
    pruner_destroy(pruner);
    pruner_destroy(NULL);
}

static int by_value(const void *left, const void *right) {
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* By definition: the values of complete runs, sorted; NAN: there are fewer than [min]. */
static double median_of(const struct known *known, const bool *is_complete, size_t min) {
    double values[RUNS];
    size_t n = 0;
    for (size_t i = 0; i < RUNS; i++)
        if (known[i].is_there && is_complete[i]) values[n++] = known[i].value;
    qsort(values, n, sizeof *values, by_value);
    if (n < min) return NAN;
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Two repeats; runs report before and after they are complete, and again. */
TEST(the_median_is_its_definition) {
    enum { START = 5 };
    static struct known known[2][RUNS];
    static bool is_complete[2][RUNS]; /* a run has one group */
    struct prune_config config = {.type = PRUNE_MEDIAN, .min_epochs = 3, .startup_trials = START};
    struct pruner *pruner = pruner_create(&config, 2);
    struct rng rng;
    size_t stopped = 0;
    rng_seed(&rng, 3);
    for (size_t k = 0; k < 3000; k++) {
        size_t run = (size_t)(rng_uniform53(&rng) * RUNS), group = run % 2;
        double value = floor(rng_uniform53(&rng) * 100); /* with ties */
        if (k % 17 == 0) value = k % 34 ? NAN : INFINITY;
        known[group][run] = (struct known){true, isfinite(value) ? value : INFINITY};
        bool must_stop = pruner_report(pruner, (int64_t)run, 3, value);
        ck_assert_int_eq(must_stop, known[group][run].value > median_of(known[group], is_complete[group], START));
        stopped += must_stop;
        run = (size_t)(rng_uniform53(&rng) * RUNS);
        if (k % 4) continue;
        is_complete[run % 2][run] = true;
        pruner_complete(pruner, (int64_t)run);
    }
    ck_assert_uint_gt(stopped, 500);
    pruner_destroy(pruner);
}

/* 4 x 10^5 runs of three epochs take less than a second; with a pass over the runs for each report they would take an
 * hour. */
TEST(the_median_of_many_runs) {
    enum { MANY = 400000 };
    struct prune_config config = {.type = PRUNE_MEDIAN, .min_epochs = 1, .startup_trials = 5};
    struct pruner *pruner = pruner_create(&config, 1);
    size_t stopped = 0;
    for (int64_t i = 0; i < MANY; i++) {
        int64_t run = i * 7919 % MANY; /* in any order */
        bool must_stop = false;
        for (int64_t epoch = 1; epoch <= 3 && !must_stop; epoch++)
            must_stop = pruner_report(pruner, run, epoch, (double)(run * 31 % 1009) / (double)epoch);
        if (!must_stop) pruner_complete(pruner, run);
        stopped += must_stop;
    }
    ck_assert(stopped > MANY / 2 && stopped < MANY - 100);
    pruner_destroy(pruner);
}

CHECK_MAIN("prune")
