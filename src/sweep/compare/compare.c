/* The values of the runs are read from the table that the sweep has written. */
#include "sweep/compare/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sweep/compare/comparability.h"
#include "sweep/compare/paired_tests.h"
#include "train/metrics/report.h"

static double value_of(const struct trials *trials, int64_t run) {
    const struct trial_run *r = trials_run(trials, run);
    return r->state == TRIAL_COMPLETE ? r->value : NAN;
}

static status read_pairs(const struct sweep_config *sweep, const struct trials *trials, struct paired_tests *out) {
    size_t n = (size_t)sweep->runs;
    double *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b);
    status s = a && b ? OK : status_memory("the pairs of runs");
    for (size_t i = 0; !s && i < n; i++) {
        a[i] = value_of(trials, (int64_t)i);
        b[i] = value_of(trials, (int64_t)(n + i));
    }
    if (!s) *out = paired_tests_make(a, b, n);
    free(a);
    free(b);
    return s;
}

static status too_few(const struct trials *trials, const char *folder) {
    struct text why = {0};
    trials_explain_values(trials, &why);
    status s = status_new(STATUS_DATA, "fewer than two pairs of runs %s%s: see %s/trials.csv",
                          why.length ? "have values: " : "are complete", text_string(&why), folder);
    text_free(&why);
    return s;
}

static void add_result(const struct sweep_config *sweep, const struct paired_tests *c, struct text *out) {
    const char *const paths[] = {sweep->config, sweep->other};
    text_printf(out, "%s over %zu seed%s\n", sweep->metric.name, c->pairs, text_plural(c->pairs, "s"));
    if (c->left_out)
        text_printf(out, "%zu pair%s left out, of which a run failed or has no value\n", c->left_out,
                    text_plural(c->left_out, "s"));
    for (int side = 0; side < 2; side++) {
        char mean[32], error[32];
        report_metric(sweep->metric.name, c->mean[side], mean);
        report_metric_error(sweep->metric.name, c->error[side], error);
        text_printf(out, "%c: %-40s mean %s, standard error %s\n", "AB"[side], paths[side], mean, error);
    }
    text_add(out, "A - B: ");
    paired_tests_add_difference(c, sweep->metric.name, out);
    text_printf(out, "\np-values: paired t-test %.3g, Wilcoxon signed-rank test %.3g\n", c->t.p, c->wilcoxon_p);
    paired_tests_add_sentence(c, sweep->metric.name, sweep->metric.goal == SWEEP_MAXIMIZE, out);
    text_add(out, "\n");
}

/* [log] NULL: adds the warnings to [out]. */
static void warn(const struct sweep_file *file, struct log *log, struct text *out) {
    struct text warnings = {0};
    comparability_explain(sweep_file_base(file), sweep_file_other(file), sweep_file_config(file)->metric.name,
                          &warnings);
    for (const char *line = text_string(&warnings); *line; line += strcspn(line, "\n") + 1) {
        int length = (int)strcspn(line, "\n");
        if (log)
            log_warning(log, "%.*s", length, line);
        else
            text_printf(out, "warning: %.*s\n", length, line);
    }
    text_free(&warnings);
}

status compare_run(const struct sweep_file *file, const struct sweep_options *options, struct log *log,
                   struct text *out) {
    const struct sweep_config *sweep = sweep_file_config(file);
    struct trials *trials = NULL;
    struct paired_tests comparison = {0};
    struct text folder = {0};
    struct sweep_options with_folder = *options;
    with_folder.folder_now = &folder;
    warn(file, log, NULL);
    status s = sweep_run(file, &with_folder, log);
    if (!s) s = trials_open(text_string(&folder), sweep, NULL, log, &trials);
    if (!s) s = read_pairs(sweep, trials, &comparison);
    if (!s && comparison.pairs < 2) s = too_few(trials, text_string(&folder));
    if (!s) add_result(sweep, &comparison, out);
    if (!s) warn(file, NULL, out);
    text_free(&folder);
    return status_first(s, trials_close(trials));
}
