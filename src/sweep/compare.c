/* Pairs of runs share the seeds of the initial weights and of the order of the rows, so a difference within a pair is
 * the configs'. */
#include "sweep/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/statistics.h"

#define LEVEL 0.05 /* of significance */

struct pairs {
    double *a, *b, *differences; /* (count) */
    size_t count, left_out;
};

static void pairs_free(struct pairs *pairs) {
    free(pairs->a);
    free(pairs->b);
    free(pairs->differences);
}

static status collect(const struct sweep_config *sweep, const struct trials *trials, struct pairs *pairs) {
    size_t n = (size_t)sweep->runs;
    *pairs = (struct pairs){calloc(n, sizeof(double)), calloc(n, sizeof(double)), calloc(n, sizeof(double)), 0, 0};
    if (!pairs->a || !pairs->b || !pairs->differences) return status_memory("the pairs of runs");
    for (int64_t i = 0; i < sweep->runs; i++) {
        const struct trial_run *a = trials_run(trials, i), *b = trials_run(trials, sweep->runs + i);
        if (a->state != TRIAL_COMPLETE || b->state != TRIAL_COMPLETE || !isfinite(a->value) || !isfinite(b->value)) {
            pairs->left_out++;
            continue;
        }
        pairs->a[pairs->count] = a->value;
        pairs->b[pairs->count] = b->value;
        pairs->differences[pairs->count++] = a->value - b->value;
    }
    return OK;
}

static void add_config(const char *name, const char *path, const double *values, size_t count, struct text *out) {
    text_printf(out, "%s: %-40s mean %.6g, standard error %.2g\n", name, path, statistics_mean(values, count),
                statistics_standard_error(values, count));
}

static void add_verdict(const struct sweep_config *sweep, const struct t_test *t, double wilcoxon, size_t count,
                        struct text *out) {
    bool is_a_better = trials_is_better(sweep, t->difference, 0);
    const char *metric = sweep->metric.name;
    if (t->difference == 0 && t->error == 0) {
        text_printf(out, "The two are the same: %s is equal in every pair.\n", metric);
        return;
    }
    if (t->p < LEVEL && wilcoxon < LEVEL)
        text_printf(out, "%s is better: its %s is %s by %.3g on average, and both tests say that this is not chance.\n",
                    is_a_better ? "A" : "B", metric, sweep->metric.goal == SWEEP_MAXIMIZE ? "higher" : "lower",
                    fabs(t->difference));
    else if (t->p < LEVEL || wilcoxon < LEVEL)
        text_printf(out,
                    "Undecided: one test sees a difference and the other does not; more seeds (--seeds) would tell.\n");
    else
        text_printf(out, "No difference is shown: with %zu pairs, differences like these are common by chance alone.\n",
                    count);
}

static void add_result(const struct sweep_config *sweep, struct pairs *pairs, struct text *out) {
    struct t_test t = statistics_t_test(pairs->differences, pairs->count);
    double wilcoxon = statistics_wilcoxon_p(pairs->differences, pairs->count);
    text_printf(out, "%s over %zu seed%s\n", sweep->metric.name, pairs->count,
                text_plural((uint64_t)pairs->count, "s"));
    if (pairs->left_out)
        text_printf(out, "%zu pair%s left out, of which a run failed\n", pairs->left_out,
                    text_plural(pairs->left_out, "s"));
    add_config("A", sweep->config, pairs->a, pairs->count, out);
    add_config("B", sweep->other, pairs->b, pairs->count, out);
    text_printf(out, "A - B: %.6g, 95 %% confidence interval %.6g to %.6g\n", t.difference, t.low, t.high);
    text_printf(out, "p-values: paired t-test %.3g, Wilcoxon signed-rank test %.3g\n", t.p, wilcoxon);
    add_verdict(sweep, &t, wilcoxon, pairs->count, out);
}

status compare_run(const struct sweep_file *file, const struct sweep_options *options, struct log *log,
                   struct text *out) {
    const struct sweep_config *sweep = sweep_of(file);
    struct trials *trials;
    struct pairs pairs = {0};
    TRY(sweep_run(file, options, log));
    TRY(trials_open(options->folder, sweep, NULL, &trials));
    status s = collect(sweep, trials, &pairs);
    if (!s && pairs.count < 2)
        s = status_new(STATUS_DATA, "fewer than two pairs of runs are complete: see %s/trials.csv", options->folder);
    if (!s) add_result(sweep, &pairs, out);
    pairs_free(&pairs);
    return status_first(s, trials_close(trials));
}
