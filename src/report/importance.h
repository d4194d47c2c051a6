/* importance: how much of a metric each parameter explains. */
#ifndef REPORT_IMPORTANCE_H
#define REPORT_IMPORTANCE_H

#include <stdbool.h>
#include <stddef.h>

#define IMPORTANCE_MIN_VALUES 10

/* The share, 0 to 1, of the variance of the ranks of metric (count) that the means over groups of equal or neighbouring
 * values explain, corrected for what chance explains: epsilon squared of a one-way analysis of variance on ranks,
 * (SSB - (k-1) MSW) / SST with k groups. Numbers are put into up to ten groups of about equal size (sqrt(count / 5) of
 * them), words are groups by themselves (!is_number). Ranks make it independent of the scale of both. NAN: fewer than
 * IMPORTANCE_MIN_VALUES values, a metric that is the same for all, or only one group. Values that are NAN are a group.
 */
double importance_share(const double *metric, const double *values, size_t count, bool is_number);

/* Spearman's rank correlation; NAN where one of both is constant or a value is NAN. */
double importance_correlation(const double *metric, const double *values, size_t count);

#endif
