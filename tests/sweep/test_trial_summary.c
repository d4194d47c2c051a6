/* The state, the mean and the standard error of a trial whose runs have ended in different ways. */
#include <math.h>

#include "base/numbers/rng.h"
#include "check_main.h"
#include "sweep/trials.h"

enum { MAX_RUNS = 6 };

static const struct {
    struct trial_value runs[MAX_RUNS];
    size_t count;
    int64_t repeats;
    struct trial_summary expected;
} trials[] = {
    {{{TRIAL_COMPLETE, 0.25}}, 1, 1, {TRIAL_COMPLETE, 0.25, NAN, 1}},
    {{{TRIAL_COMPLETE, 0.25}}, 1, 2, {TRIAL_PENDING, 0.25, NAN, 1}},
    {{{TRIAL_PENDING, NAN}, {TRIAL_COMPLETE, 0.25}}, 2, 2, {TRIAL_PENDING, 0.25, NAN, 1}},
    {{{TRIAL_COMPLETE, 1}, {TRIAL_COMPLETE, 3}}, 2, 2, {TRIAL_COMPLETE, 2, 1, 2}},
    {{{TRIAL_COMPLETE, 1}, {TRIAL_PRUNED, 9}, {TRIAL_COMPLETE, 3}}, 3, 4, {TRIAL_PRUNED, 2, 1, 2}},
    {{{TRIAL_COMPLETE, 1}, {TRIAL_PRUNED, 9}, {TRIAL_FAILED, NAN}}, 3, 4, {TRIAL_FAILED, 1, NAN, 1}},
    {{{TRIAL_FAILED, NAN}}, 1, 1, {TRIAL_FAILED, NAN, NAN, 0}},
    {{{TRIAL_COMPLETE, 1}, {TRIAL_COMPLETE, NAN}}, 2, 2, {TRIAL_COMPLETE, NAN, NAN, 2}},
    {{{TRIAL_COMPLETE, 1}, {TRIAL_COMPLETE, 1e200}}, 2, 2, {TRIAL_COMPLETE, NAN, NAN, 2}},
    {{{0}}, 0, 3, {TRIAL_PENDING, NAN, NAN, 0}},
    /* a plain sum of these gives 0.09999999999999999 and an error above 0 */
    {{{TRIAL_COMPLETE, 0.1},
      {TRIAL_COMPLETE, 0.1},
      {TRIAL_COMPLETE, 0.1},
      {TRIAL_COMPLETE, 0.1},
      {TRIAL_COMPLETE, 0.1},
      {TRIAL_COMPLETE, 0.1}},
     6,
     6,
     {TRIAL_COMPLETE, 0.1, 0, 6}},
};

static bool is_equal(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

TEST_EACH(summaries_are_those_of_the_runs, trials) {
    const struct trial_summary *expected = &trials[_i].expected;
    struct trial_summary s = trial_summary_make(trials[_i].runs, trials[_i].count, trials[_i].repeats);
    ck_assert_int_eq(s.state, expected->state);
    ck_assert_int_eq(s.complete, expected->complete);
    ck_assert_msg(is_equal(s.mean, expected->mean), "mean %.17g, expected %.17g", s.mean, expected->mean);
    ck_assert_msg(is_equal(s.error, expected->error), "error %.17g, expected %.17g", s.error, expected->error);
}

/* A sweep of [rate] runs a second, whose table takes [cost] seconds a row to write: the rows that are written in all.
 */
static double rows_written(double runs, double rate, double cost, double *fraction) {
    double time = 0, rows = 0, writing = 0, last = 0;
    while (time * rate < runs) {
        time += trials_pause(last);
        last = time * rate * cost;
        rows += time * rate;
        writing += last;
        time += last;
    }
    *fraction = writing / time;
    return rows;
}

/* The table of any number of rows takes a bounded part of the time: rows written grow with the runs, not with their
 * square. */
TEST(tables_take_a_bounded_part_of_the_time) {
    double fraction, few = rows_written(1e5, 5000, 5e-6, &fraction);
    ck_assert_double_le(fraction, 3 * TRIALS_FRACTION); /* the next version is longer than the last */
    double many = rows_written(1e6, 5000, 5e-6, &fraction);
    ck_assert_double_le(fraction, 3 * TRIALS_FRACTION);
    ck_assert_msg(many < 20 * few, "%g and %g rows", few, many);
    ck_assert_double_eq(trials_pause(0), TRIALS_SECONDS);
}

/* By definition, in n^2 steps; small whole numbers, so that there are many ties. */
static const size_t metric_counts[] = {1, 2, 3, 4};

TEST_EACH(the_pareto_front_is_its_definition, metric_counts) {
    enum { COUNT = 400 };
    static double values[COUNT * 4];
    static bool front[COUNT];
    size_t metrics = metric_counts[_i], on_front = 0;
    struct rng rng;
    rng_seed(&rng, 5);
    for (int range = 2; range <= 2000; range *= 10) {
        for (size_t i = 0; i < COUNT * metrics; i++) {
            values[i] = floor(rng_uniform53(&rng) * range);
            if (i % 97 == 0) values[i] = NAN;
        }
        pareto_front(values, COUNT, metrics, front);
        for (size_t i = 0; i < COUNT; i++) {
            bool expected = true;
            for (size_t k = 0; k < metrics; k++) expected = expected && !isnan(values[i * metrics + k]);
            for (size_t j = 0; j < COUNT && expected; j++) {
                size_t as_good = 0, better = 0;
                for (size_t k = 0; k < metrics; k++) {
                    as_good += values[j * metrics + k] <= values[i * metrics + k];
                    better += values[j * metrics + k] < values[i * metrics + k];
                }
                expected = as_good < metrics || better == 0;
            }
            ck_assert_msg(front[i] == expected, "%zu metrics below %d: row %zu", metrics, range, i);
            on_front += front[i];
        }
    }
    ck_assert_uint_gt(on_front, 4);
    ck_assert_uint_lt(on_front, 4 * COUNT);
}

/* 10^6 trials whose front has all of them: with a comparison of each two it would take hours. */
TEST(the_front_of_many_trials) {
    enum { MANY = 1000000 };
    SCOPED_MEMORY double *values = calloc(2 * MANY, sizeof *values);
    bool *front = calloc(MANY, sizeof *front);
    size_t on_front = 0;
    ck_assert(values && front);
    for (size_t i = 0; i < MANY; i++) {
        values[2 * i] = (double)(i * 7919 % MANY);
        values[2 * i + 1] = -values[2 * i];
    }
    pareto_front(values, MANY, 2, front);
    for (size_t i = 0; i < MANY; i++) on_front += front[i];
    ck_assert_uint_eq(on_front, MANY);
    free(front);
}

CHECK_MAIN("trial_summary")
