/* Curves keep short series as they are, and of long ones the extremes, the ends, the mean and the gaps. */
#include "report/curve.h"

#include <math.h>

#include "check_main.h"

struct seen {
    size_t count, breaks;
    double x, low, high, last_y;
};

static void see(void *user, double x, double y, bool is_joined) {
    struct seen *s = user;
    ck_assert(s->count == 0 || x >= s->x);
    s->low = s->count == 0 || y < s->low ? y : s->low;
    s->high = s->count == 0 || y > s->high ? y : s->high;
    s->count++;
    s->breaks += !is_joined;
    s->x = x;
    s->last_y = y;
}

static struct curve of(size_t count) {
    struct curve c = {0};
    for (size_t i = 0; i < count; i++) curve_add(&c, (double)i, sin((double)i) + (i == count / 3 ? 10 : 0));
    return c;
}

static const size_t lengths[] = {1, 2, 999, 1000, 1001, 1999, 2000, 2001, 12345, 1000000};

TEST_EACH(extremes_and_ends_stay, lengths) {
    size_t n = lengths[_i];
    struct curve c = of(n);
    struct seen s = {0};
    curve_visit(&c, see, &s);
    ck_assert_uint_eq(c.values, n);
    if (n <= CURVE_MAX_POINTS) ck_assert_uint_eq(s.count, n);
    ck_assert_uint_le(s.count, CURVE_MAX_POINTS + 1);
    ck_assert_uint_eq(s.breaks, 1);
    ck_assert_double_eq(s.high, c.highest.y);
    ck_assert_double_eq(s.low, c.lowest.y);
    ck_assert_double_eq(s.high, sin((double)(n / 3)) + 10);
    ck_assert_double_eq(c.highest.x, (double)(n / 3));
    ck_assert_double_eq(s.x, (double)(n - 1));
    ck_assert_double_eq(s.last_y, c.last.y);
    ck_assert_double_eq(c.first.x, 0);
    curve_free(&c);
}

TEST_EACH(groups_hold_all_values, lengths) {
    struct curve_group groups[240];
    size_t n = lengths[_i];
    struct curve c = of(n);
    size_t count = curve_groups(&c, 240, groups);
    double low = INFINITY, high = -INFINITY, mean = 0;
    ck_assert_uint_ge(count, n < 240 ? n : 100);
    ck_assert_uint_le(count, 240);
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, groups[i].low);
        high = fmax(high, groups[i].high);
        mean += groups[i].mean / (double)count;
        ck_assert(groups[i].low <= groups[i].mean && groups[i].mean <= groups[i].high);
        ck_assert(i == 0 || groups[i].x > groups[i - 1].x);
        ck_assert(groups[i].is_joined == (i > 0));
    }
    ck_assert_double_eq(low, c.lowest.y);
    ck_assert_double_eq(high, c.highest.y);
    if (n > 10000) ck_assert_double_lt(fabs(mean), 0.01);
    curve_free(&c);
}

TEST(values_that_are_not_finite_are_gaps) {
    static const double values[] = {NAN, 1, 2, INFINITY, -INFINITY, 3, NAN, 4, 5, NAN};
    struct curve c = {0};
    struct seen s = {0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) curve_add(&c, (double)i, values[i]);
    curve_visit(&c, see, &s);
    ck_assert_uint_eq(c.values, 5);
    ck_assert_uint_eq(c.missing, 5);
    ck_assert_uint_eq(s.count, 5);
    ck_assert_uint_eq(s.breaks, 3);
    curve_free(&c);
    for (size_t i = 0; i < 100000; i++) curve_add(&c, (double)i, i % 20000 == 7 ? NAN : 1);
    s = (struct seen){0};
    curve_visit(&c, see, &s);
    ck_assert_uint_eq(s.breaks, 5); /* the first gap is within the first bucket */
    curve_free(&c);
}

CHECK_MAIN("curve")
