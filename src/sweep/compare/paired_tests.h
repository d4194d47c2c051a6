/* paired_tests: what statistical tests say of the pairs of runs of two configs A and B show. The runs of a pair have
 * the same seeds. */
#ifndef SWEEP_PAIRED_TESTS_H
#define SWEEP_PAIRED_TESTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/numbers/statistics.h"
#include "base/text.h"

struct paired_tests {
    size_t pairs, left_out;   /* left_out: pairs of which a run has no value */
    double mean[2], error[2]; /* of A and B: mean and its standard error over the pairs */
    struct t_test t;          /* of A - B */
    double wilcoxon_p;
};

/* [a], [b]: the values of the runs, by pair (count); NAN: none. They are not kept. With fewer than two pairs only
 * [pairs] and [left_out] are set. */
struct paired_tests paired_tests_make(const double *a, const double *b, size_t count);

/* Adds "0.0104, 95 % confidence interval 0.00969 to 0.0111", of accuracies in percentage points. */
void paired_tests_add_difference(const struct paired_tests *comparison, const char *metric, struct text *out);
/* Adds a sentence that says whether the difference of [metric] is more than chance. [is_max]: larger values are better.
 */
void paired_tests_add_sentence(const struct paired_tests *comparison, const char *metric, bool is_max,
                               struct text *out);

#endif
