/* statistics: how sure a mean is, and whether the differences of paired runs are more than chance. Plain functions of
 * doubles; nothing is allocated. The numbers are scipy.stats' (tests/vectors/statistics.json): p-values of the t-test
 * to 1e-12 relative down to p = 1e-290 and up to 10^6 pairs, exact p-values of the signed-rank test to the last bit.
 *
 * Every value given must be smaller than 1e150 in magnitude (so: finite), and count at least 1. No result is NaN. exp,
 * log, log1p and erfc of the C library are used, whose last bit may differ between libraries. */
#pragma once

#include <stddef.h>

/* Compares two doubles by their addresses, for qsort and bsearch. */
int statistics_compare(const void *left, const void *right);

/* The index of the largest of values (count), the first of equal ones. */
size_t statistics_largest(const float *values, size_t count);

/* The mean of values (count), with a compensated sum. */
double statistics_mean(const double *values, size_t count);

/* The standard error of that mean: sqrt(sum (v - mean)^2 / (count - 1) / count), scipy.stats.sem. INFINITY for one
 * value, which says nothing about the spread. */
double statistics_standard_error(const double *values, size_t count);

/* The probability that Student's t with [df] degrees of freedom (> 0; tested to 10^6) is at least |t| away from 0:
 * I_x(df/2, 1/2) with x = df / (df + t^2) (DLMF 8.17, Abramowitz & Stegun 26.7.1). t may be infinite. */
double statistics_t_p(double t, double df);

/* The t > 0 with statistics_t_p(t, df) = p, for 0 < p < 1 and df >= 1: the (1 - p/2)-quantile. */
double statistics_t_quantile(double p, double df);

/* The paired t-test: scipy.stats.ttest_rel(a, b) and its confidence_interval(0.95). */
struct t_test {
    double difference; /* the mean of a - b */
    double error;      /* its standard error */
    double t;          /* difference / error */
    double p;          /* two-sided */
    double low, high;  /* the 95 % confidence interval of the mean difference */
};

/* differences (count): a[i] - b[i]. Where scipy has NaN: one pair has error INFINITY, t 0, p 1 and the interval
 * (-INFINITY, INFINITY); differences that are all 0 have t 0 and p 1; equal ones other than 0 have t +-INFINITY, p 0
 * and an interval of one number. */
struct t_test statistics_t_test(const double *differences, size_t count);

/* The two-sided p-value of Wilcoxon's signed-rank test of differences (count), which are left sorted by their absolute
 * values: scipy.stats.wilcoxon(a, b) of SciPy 1.15 and later with its defaults. Zeros are left out
 * (zero_method='wilcox'), equal absolute values have the mean of their ranks (method='auto'):
 *   without zeros and ties, up to 50 pairs: exact
 *   with them, up to 13 pairs:              exact for these ranks, over all 2^count signs
 *   else                                    the normal approximation, its variance corrected for ties, without
 *                                           continuity correction
 * 1 if all differences are 0, where scipy has NaN from 14 pairs on. Zeros count as pairs in these limits. */
double statistics_wilcoxon_p(double *differences, size_t count);
