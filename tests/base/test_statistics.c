/* Means and tests of paired runs against SciPy's and mpmath's numbers. ctest-labels: unit */
#include "base/numbers/statistics.h"

#include <math.h>

#include "check_main.h"
#include "vectors.h"

#define MAX_COUNT 512
#define PRECISION 1e-12 /* relative */

static double number(const json_t *c, const char *key) {
    const json_t *value = json_object_get(c, key);
    ck_assert_msg(json_is_number(value), "no number %s", key);
    return json_number_value(value);
}

static void equal(double actual, double expected, double scale, const char *name, const char *what) {
    ck_assert_msg(fabs(actual - expected) <= PRECISION * scale, "%s: %s is %.17g, expected %.17g", name, what, actual,
                  expected);
}

/* Reads the differences of a case. */
static size_t read_differences(const json_t *c, double differences[MAX_COUNT]) {
    const json_t *values = json_object_get(c, "differences");
    size_t count = json_array_size(values);
    ck_assert(count > 0 && count <= MAX_COUNT);
    for (size_t i = 0; i < count; i++) differences[i] = json_number_value(json_array_get(values, i));
    return count;
}

TEST(equals_scipy) {
    json_t *root = vectors_load("statistics"), *c;
    size_t i;
    ck_assert_uint_gt(json_array_size(json_object_get(root, "cases")), 20);
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        double differences[MAX_COUNT];
        const char *name = json_string_value(json_object_get(c, "name"));
        size_t count = read_differences(c, differences);
        struct t_test test = statistics_t_test(differences, count);
        /* what is added or subtracted rounds with the size of its operands */
        double error = number(c, "error"), low = number(c, "low"), high = number(c, "high"), t = number(c, "t");
        double size = fabs(number(c, "mean")) + error, width = fabs(low) + fabs(high);
        equal(test.difference, number(c, "mean"), size, name, "the mean");
        equal(test.error, error, error, name, "the error");
        equal(test.t, t, fmax(fabs(t), 1), name, "t");
        equal(test.p, number(c, "p"), number(c, "p"), name, "p");
        equal(test.low, low, width, name, "low");
        equal(test.high, high, width, name, "high");
        ck_assert_double_eq(statistics_mean(differences, count), test.difference);
        ck_assert_double_eq(statistics_standard_error(differences, count), test.error);
        double p = number(c, "wilcoxon");
        equal(statistics_wilcoxon_p(differences, count), p, p, name, "Wilcoxon's p");
    }
    json_decref(root);
}

TEST(equals_students_t) {
    json_t *root = vectors_load("statistics"), *row;
    size_t i;
    ck_assert_uint_gt(json_array_size(json_object_get(root, "t_df_p")), 150);
    json_array_foreach(json_object_get(root, "t_df_p"), i, row) {
        double t = json_number_value(json_array_get(row, 0)), df = json_number_value(json_array_get(row, 1));
        double p = json_number_value(json_array_get(row, 2)), actual = statistics_t_p(t, df);
        ck_assert_msg(fabs(actual - p) <= PRECISION * p, "t %g, df %g: p is %.17g, expected %.17g", t, df, actual, p);
        ck_assert_double_eq(statistics_t_p(-t, df), actual);
    }
    json_array_foreach(json_object_get(root, "p_df_t"), i, row) {
        double p = json_number_value(json_array_get(row, 0)), df = json_number_value(json_array_get(row, 1));
        double t = json_number_value(json_array_get(row, 2)), actual = statistics_t_quantile(p, df);
        ck_assert_msg(fabs(actual - t) <= PRECISION * t, "p %g, df %g: t is %.17g, expected %.17g", p, df, actual, t);
    }
    json_decref(root);
}

TEST(students_t_has_limits) {
    for (double df = 1; df < 1e6; df *= 7) {
        ck_assert_double_eq(statistics_t_p(0, df), 1);
        ck_assert_double_eq(statistics_t_p(INFINITY, df), 0);
        ck_assert_double_eq(statistics_t_p(-INFINITY, df), 0);
        double last = 1;
        for (double t = 1e-3; t < 1e3; t *= 1.01) {
            double p = statistics_t_p(t, df);
            ck_assert_msg(p <= last && p >= 0, "df %g: p rises to %g at t %g", df, p, t);
            last = p;
        }
    }
    ck_assert_double_eq_tol(statistics_t_p(1e200, 1) / (2 / 3.14159265358979323846 * 1e-200), 1, PRECISION);
    ck_assert_double_eq_tol(statistics_t_quantile(1e-12, 1) / 636619772367.58134, 1, PRECISION); /* cot(p pi / 2) */
    double middle = 3 * 3.14159265358979323846 * sqrt(5) / 16; /* 1 / (2 density) at 0 */
    ck_assert_double_eq_tol(statistics_t_quantile(1 - 1e-9, 5) / (1e-9 * middle), 1, 1e-6);
}

TEST(one_pair_says_nothing) {
    double value = 3;
    struct t_test test = statistics_t_test(&value, 1);
    ck_assert_double_eq(test.difference, 3);
    ck_assert(isinf(test.error) && test.error > 0);
    ck_assert_double_eq(test.t, 0);
    ck_assert_double_eq(test.p, 1);
    ck_assert(isinf(test.low) && test.low < 0);
    ck_assert(isinf(test.high) && test.high > 0);
    ck_assert_double_eq(statistics_wilcoxon_p(&value, 1), 1);
}

TEST(equal_differences) {
    double values[MAX_COUNT];
    for (size_t count = 2; count <= MAX_COUNT; count += 1 + count / 4) {
        for (size_t i = 0; i < count; i++) values[i] = i % 2 ? 0.0 : -0.0;
        struct t_test test = statistics_t_test(values, count);
        ck_assert_double_eq(test.difference, 0);
        ck_assert_double_eq(test.error, 0);
        ck_assert_double_eq(test.t, 0);
        ck_assert_double_eq(test.p, 1);
        ck_assert(test.low == 0 && test.high == 0);
        ck_assert_double_eq(statistics_wilcoxon_p(values, count), 1);

        for (size_t i = 0; i < count; i++) values[i] = -0.1;
        test = statistics_t_test(values, count);
        ck_assert_double_eq(test.difference, -0.1);
        ck_assert_double_eq(test.error, 0);
        ck_assert(isinf(test.t) && test.t < 0);
        ck_assert_double_eq(test.p, 0);
        ck_assert(test.low == -0.1 && test.high == -0.1);
        double p = statistics_wilcoxon_p(values, count);
        if (count <= 13) ck_assert_double_eq(p, ldexp(1, 1 - (int)count));
        ck_assert(p > 0 && p <= 0.5);
    }
}

/* Many values, far from 0: a plain sum would lose digits. */
TEST(large_counts) {
    size_t count = 200000;
    SCOPED_MEMORY double *values = malloc(count * sizeof *values);
    ck_assert(values != NULL);
    for (size_t i = 0; i < count; i++) values[i] = 1e9 + (double)(i % 5) - 2;
    ck_assert_double_eq(statistics_mean(values, count), 1e9);
    double error = sqrt(2.0 / (double)(count - 1)); /* a mean square of 2 */
    ck_assert_double_eq_tol(statistics_standard_error(values, count) / error, 1, PRECISION);
    for (size_t i = 0; i < count; i++) values[i] = (double)(i + 1) * (i % 2 ? 1 : -1);
    double p = statistics_wilcoxon_p(values, count);
    /* W is n (n + 2) / 4, half of n more than its mean */
    double n = (double)count, z = n / 4 / sqrt(n * (n + 1) * (2 * n + 1) / 24);
    ck_assert_double_eq_tol(p, erfc(z / sqrt(2)), PRECISION);
}

TEST(limits_of_magnitude) {
    double values[] = {9e149, -9e149, 9e149};
    struct t_test test = statistics_t_test(values, 3);
    ck_assert(isfinite(test.difference) && isfinite(test.error) && isfinite(test.t) && isfinite(test.p));
    ck_assert(isfinite(test.low) && isfinite(test.high));
    for (int i = 0; i < 3; i++) values[i] *= 1e-300;
    test = statistics_t_test(values, 3);
    ck_assert(test.error > 0 && isfinite(test.t) && test.p > 0 && test.p < 1);
}

CHECK_MAIN("statistics")
