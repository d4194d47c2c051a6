/* Pairs of runs share the seeds of the initial weights and of the order of the rows, so a difference within a pair is
 * the configs'. */
#include "sweep/compare/paired_tests.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"
#include "train/metrics/report.h"

#define LEVEL 0.05      /* of significance */
#define MAX_VALUE 1e150 /* of base/statistics */

static double *numbers(size_t count) {
    double *values = calloc(count + 1, sizeof *values);
    if (!values) status_exit_without_memory();
    return values;
}

struct paired_tests paired_tests_make(const double *a, const double *b, size_t count) {
    struct paired_tests c = {0};
    double *both[] = {numbers(count), numbers(count)}, *differences = numbers(count);
    for (size_t i = 0; i < count; i++) {
        if (!(fabs(a[i]) < MAX_VALUE && fabs(b[i]) < MAX_VALUE)) {
            c.left_out++;
            continue;
        }
        both[0][c.pairs] = a[i];
        both[1][c.pairs] = b[i];
        differences[c.pairs++] = a[i] - b[i];
    }
    if (c.pairs >= 2) {
        for (int side = 0; side < 2; side++) {
            c.mean[side] = statistics_mean(both[side], c.pairs);
            c.error[side] = statistics_standard_error(both[side], c.pairs);
        }
        c.t = statistics_t_test(differences, c.pairs);
        c.wilcoxon_p = statistics_wilcoxon_p(differences, c.pairs);
    }
    free(both[0]);
    free(both[1]);
    free(differences);
    return c;
}

void paired_tests_add_difference(const struct paired_tests *c, const char *metric, struct text *out) {
    const struct t_test *t = &c->t;
    if (report_is_percent(metric))
        text_printf(out, "%.2f percentage points, 95 %% confidence interval %.2f to %.2f", 100 * t->difference,
                    100 * t->low, 100 * t->high);
    else
        text_printf(out, "%.6g, 95 %% confidence interval %.6g to %.6g", t->difference, t->low, t->high);
}

/* Adds the size of the difference in few digits. */
static void add_size(const struct paired_tests *c, const char *metric, struct text *out) {
    double size = fabs(c->t.difference);
    if (report_is_percent(metric))
        text_printf(out, "%.2f percentage points", 100 * size);
    else
        text_printf(out, "%.3g", size);
}

void paired_tests_add_sentence(const struct paired_tests *c, const char *metric, bool is_max, struct text *out) {
    const struct t_test *t = &c->t;
    bool is_t = t->p < LEVEL, is_wilcoxon = c->wilcoxon_p < LEVEL, is_a_better = is_max == (t->difference > 0);
    if (t->difference == 0 && t->error == 0)
        text_printf(out, "The two are the same: %s is equal in every pair.", metric);
    else if (is_t && is_wilcoxon) {
        text_printf(out, "%s is better: its %s is %s by ", is_a_better ? "A" : "B", metric,
                    is_max ? "higher" : "lower");
        add_size(c, metric, out);
        text_add(out, " on average, and both tests say that this is not chance.");
    } else if (is_t || is_wilcoxon)
        text_add(out,
                 "Undecided: one test shows a difference and the other does not; more seeds (--seeds) may decide.");
    else
        text_printf(out, "No difference is shown: with %zu pairs, differences like these are common by chance alone.",
                    c->pairs);
}
