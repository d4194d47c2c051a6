/* compare: whether one config is better than another: both are trained with the same seeds, and the differences of the
 * pairs are tested. The runs are a sweep of two trials, in a sweep folder of its own. */
#pragma once

#include "base/numbers/statistics.h"
#include "base/text.h"
#include "sweep/sweep.h"
#include "sweep/trials.h"
#include "train/config/config.h"

/* Trains what its folder does not have yet and adds the result to [out], a table and a sentence. [file]:
 * sweep_load_comparison's. Warnings where the metric of the two is not comparable (comparability_explain). STATUS_DATA
 * with fewer than two pairs of complete runs. */
status compare_run(const struct sweep_file *file, const struct sweep_options *options, struct log *log,
                   struct text *out);

/* Of a sweep with `confirm` that has ended: trains its best trial and the other config with new seeds, and adds the
 * result as compare_run. The files are in <folder of the sweep>/confirm. Nothing where trials are left to do.
 * STATUS_DATA: there are not enough complete trials. */
status confirm_run(const struct sweep_file *file, const struct sweep_options *options, struct log *log,
                   struct text *out);

/* ---- whether a metric means the same ---- */

/* Adds a sentence for each reason why values of [metric] of [a] and [b] are not comparable, each with "\n": another
 * definition of the loss, if it is a loss, and other validation rows or targets. Nothing: none is known. */
void comparability_explain(const struct config *a, const struct config *b, const char *metric, struct text *out);
/* The same for configs that differ in [key], a dotted path, as trials of a sweep do: at most one sentence, with "\n".
 */
void comparability_explain_key(const char *key, const char *metric, struct text *out);

/* ---- tests of pairs ---- */

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
