/* Means, Student's t and Wilcoxon's signed ranks. Student's t needs the incomplete beta function only with b = 1/2, so
 * that its complete beta function is a ratio of two gammas half a step apart: a short series, without the logarithms of
 * gammas whose rounding errors would grow with the degrees of freedom. */
#include "base/numbers/statistics.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define PI 3.14159265358979323846
#define MAX_EXACT 50           /* pairs without zeros and ties */
#define MAX_EXACT_WITH_TIES 13 /* pairs */
#define LARGE_RATIO 0x1p30     /* from here on 1 + u^2 is u^2 */

int statistics_compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

size_t statistics_largest(const float *values, size_t count) {
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

/* ---- means ---- */

/* The sum of (values - center)^power, power 1 or 2 (Neumaier's compensated sum). */
static double sum_around(const double *values, size_t count, double center, int power) {
    double sum = 0, lost = 0;
    for (size_t i = 0; i < count; i++) {
        double from = values[i] - center, term = power == 1 ? from : from * from, next = sum + term;
        lost += fabs(sum) >= fabs(term) ? (sum - next) + term : (term - next) + sum;
        sum = next;
    }
    return sum + lost;
}

double statistics_mean(const double *values, size_t count) {
    assert(count > 0);
    double rounded = sum_around(values, count, 0, 1) / (double)count;
    return rounded + sum_around(values, count, rounded, 1) / (double)count; /* equal values: exactly their value */
}

double statistics_standard_error(const double *values, size_t count) {
    if (count == 1) return INFINITY;
    double n = (double)count;
    return sqrt(sum_around(values, count, statistics_mean(values, count), 2) / (n - 1) / n);
}

/* ---- Student's t ---- */

/* Gamma(a + 1/2) / Gamma(a), a > 0: the series for large a (DLMF 5.11.13), after steps up of 1. */
static double gamma_ratio(double a) {
    static const double series[] = {
        1, -1.0 / 8, 1.0 / 128, 5.0 / 1024, -21.0 / 32768, -399.0 / 262144, 869.0 / 4194304, 39325.0 / 33554432};
    double factor = 1, sum = 0;
    while (a < 32) {
        factor *= a / (a + 0.5);
        a++;
    }
    for (size_t i = sizeof series / sizeof *series; i-- > 0;) sum = sum / a + series[i];
    return factor * sqrt(a) * sum;
}

/* The continued fraction f with I_x(a, b) = x^a y^b / B(a, b) / f, where y = 1 - x: the even part of DLMF 8.17.22 as
 * DiDonato and Morris (1992) write it, b1 + a2 / (b2 + a3 / (b3 + ...)) with
 *   a[n+1] = (a + n - 1) (a + b + n - 1) n (b - n) x^2 / (a + 2 n - 1)^2
 *   b[n+1] = n + n (b - n) x / (a + 2 n - 1) + (a + n) / (a + 2 n + 1) (a - (a + b) x + 1 + n (1 + y)).
 * Nothing cancels where x is near 1, since the difference is also (a + b) y - b. Lentz's method; for
 * x < (a + 1) / (a + b + 2), where it needs some sqrt(max(a, b)) steps. */
static double beta_fraction(double x, double y, double a, double b) {
    double difference = x < y ? a - (a + b) * x : (a + b) * y - b;
    double fraction = a / (a + 1) * (difference + 1), c = fraction, d = 0, change;
    double n = 0;
    do {
        n++;
        double odd = a + 2 * n - 1, over = (a + n - 1) * (a + b + n - 1) * n * (b - n) * (x / odd) * (x / odd);
        double under = n + n * (b - n) * x / odd + (a + n) / (odd + 2) * (difference + 1 + n * (1 + y));
        d = 1 / (under + over * d);
        c = under + over / c;
        change = c * d;
        fraction *= change;
    } while (fabs(change - 1) > 2 * DBL_EPSILON);
    return fraction;
}

/* sqrt(1 + u^2) without overflow, to the power of -exponent */
static double power_of_root(double u, double exponent) {
    double logarithm = u < LARGE_RATIO ? log1p(u * u) / 2 : log(u);
    return exp(-exponent * logarithm);
}

double statistics_t_p(double t, double df) {
    assert(df > 0 && !isnan(t));
    if (isinf(t)) return 0;
    double a = df / 2, u = fabs(t) / sqrt(df);
    double scale = gamma_ratio(a) / sqrt(PI);                 /* 1 / B(a, 1/2) */
    double x = 1 / (1 + u * u), rest = 1 / (1 + 1 / (u * u)); /* 1 - x */
    double front = scale * power_of_root(u, df) * sqrt(rest); /* x^a (1 - x)^(1/2) / B(a, 1/2) */
    if (x < (a + 1) / (a + 2.5)) return front / beta_fraction(x, rest, a, 0.5);
    return 1 - front / beta_fraction(rest, x, 0.5, a); /* I_x(a, b) = 1 - I_{1-x}(b, a) */
}

double statistics_t_quantile(double p, double df) {
    assert(p > 0 && p < 1 && df >= 1);
    /* p is a convex function of t > 0: from below, Newton's steps only rise. Its slope is twice the density. */
    double scale = 2 * gamma_ratio(df / 2) / sqrt(PI * df), t = 0, step;
    do {
        step = (statistics_t_p(t, df) - p) / (scale * power_of_root(t / sqrt(df), df + 1));
        t += step;
    } while (step > 4 * DBL_EPSILON * t);
    return t;
}

struct t_test statistics_t_test(const double *differences, size_t count) {
    double mean = statistics_mean(differences, count), error = statistics_standard_error(differences, count);
    if (count == 1) return (struct t_test){mean, error, 0, 1, -INFINITY, INFINITY};
    double df = (double)count - 1, t = mean == 0 ? 0 : mean / error;
    double half = statistics_t_quantile(0.05, df) * error;
    return (struct t_test){mean, error, t, statistics_t_p(t, df), mean - half, mean + half};
}

/* ---- Wilcoxon's signed ranks ---- */

static int by_absolute_value(const void *left, const void *right) {
    double a = fabs(*(const double *)left), b = fabs(*(const double *)right);
    return (a > b) - (a < b);
}

/* What the p-value depends on. Ranks and their sums are doubled: means of ranks are then whole numbers. */
struct signed_ranks {
    size_t count;       /* differences other than 0 */
    double plus, total; /* twice the sum of the ranks of positive differences; of all */
    double tied;        /* the sum of t^3 - t over groups of t equal absolute values */
    bool has_ties;
};

/* Groups of equal absolute values in differences (count), sorted by them: [*begin, *end) is the group after *end. */
static bool next_group(const double *differences, size_t count, size_t *begin, size_t *end) {
    *begin = *end;
    while (*end < count && fabs(differences[*end]) == fabs(differences[*begin])) (*end)++;
    return *begin < count;
}

static struct signed_ranks rank(const double *differences, size_t count) {
    struct signed_ranks ranks = {.count = count};
    for (size_t begin, end = 0; next_group(differences, count, &begin, &end);) {
        double twice = (double)(begin + 1 + end), size = (double)(end - begin);
        for (size_t i = begin; i < end; i++) ranks.plus += differences[i] > 0 ? twice : 0;
        ranks.total += twice * size;
        ranks.tied += size * size * size - size;
        ranks.has_ties |= size > 1;
    }
    return ranks;
}

/* The exact p-value of differences (count <= MAX_EXACT, none 0): the shares of all 2^count signs whose doubled rank sum
 * is at most, or at least, ranks->plus. Numbers of signs are below 2^53: exact. */
static double exact_p(const double *differences, const struct signed_ranks *ranks) {
    double ways[MAX_EXACT * (MAX_EXACT + 1) + 1] = {1}; /* by doubled rank sum */
    size_t total = 0;
    for (size_t begin, end = 0; next_group(differences, ranks->count, &begin, &end);)
        for (size_t i = begin, twice = begin + 1 + end; i < end; i++) {
            for (size_t sum = total + 1; sum-- > 0;) ways[sum + twice] += ways[sum];
            total += twice;
        }
    size_t smaller = (size_t)fmin(ranks->plus, ranks->total - ranks->plus); /* the distribution is symmetric */
    double tail = 0;
    for (size_t sum = 0; sum <= smaller; sum++) tail += ways[sum];
    return fmin(1, ldexp(tail, 1 - (int)ranks->count));
}

/* z = (W - n (n + 1) / 4) / sqrt((n (n + 1) (2 n + 1) - sum (t^3 - t) / 2) / 24) */
static double normal_p(const struct signed_ranks *ranks) {
    double n = (double)ranks->count;
    double variance = (n * (n + 1) * (2 * n + 1) - ranks->tied / 2) / 24;
    double z = (ranks->plus / 2 - n * (n + 1) / 4) / sqrt(variance);
    return erfc(fabs(z) / sqrt(2));
}

double statistics_wilcoxon_p(double *differences, size_t count) {
    assert(count > 0);
    qsort(differences, count, sizeof *differences, by_absolute_value);
    size_t zeros = 0;
    while (zeros < count && differences[zeros] == 0) zeros++;
    if (zeros == count) return 1;
    struct signed_ranks ranks = rank(differences + zeros, count - zeros);
    bool is_plain = zeros == 0 && !ranks.has_ties;
    return count <= (is_plain ? MAX_EXACT : MAX_EXACT_WITH_TIES) ? exact_p(differences + zeros, &ranks)
                                                                 : normal_p(&ranks);
}
