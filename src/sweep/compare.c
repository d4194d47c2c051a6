/* Two configs compared: the sweep of both, tests of the pairs of runs, and whether the metric means the same for both.
 * The values of the runs are read from the table that the sweep has written. */
#include "sweep/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "base/status.h"
#include "train/metrics/report.h"

/* ---- whether a metric means the same ---- */

/* Keys that differ are those of schema_diff, and paths of data, which it leaves to the fingerprints. */

static const char *const of_loss[] = {"loss", "losses", "dataset.weights", "dataset.target_scale", NULL};
static const char *const of_rows[] = {
    "dataset.path",       "dataset.query", "dataset.table",  "dataset.targets",   "dataset.split",
    "dataset.validation", "dataset.text",  "dataset.tokens", "dataset.synthetic", NULL};

/* Whether [text] begins with a key of [keys] or one below it: "loss.weight: 1 -> 2", or a key alone. */
static bool is_about(const char *text, const char *const *keys) {
    for (size_t i = 0; keys[i]; i++) {
        size_t length = strlen(keys[i]);
        if (strncmp(text, keys[i], length) == 0 && strchr(".:", text[length]))
            return true; /* strchr finds the end, too */
    }
    return false;
}

static bool is_same_file(const char *a, const char *b) {
    struct io_info one, other;
    status s = io_stat(a, &one);
    if (!s) s = io_stat(b, &other);
    bool is_same = !s && one.exists && io_is_same(&one, &other);
    status_free(s);
    return is_same;
}

static void add_text(const char *key, const char *a, const char *b, struct text *out) {
    a = a ? a : "null";
    b = b ? b : "null";
    if (strcmp(a, b) != 0 && !is_same_file(a, b)) text_printf(out, "  %s: %s -> %s\n", key, a, b);
}

/* "losses.1.loss_weight" */
static bool is_weight_of_term(const char *text) {
    if (strncmp(text, "losses.", 7) != 0) return false;
    const char *member = text + 7 + strspn(text + 7, "0123456789"), *weight = ".loss_weight";
    return strncmp(member, weight, strlen(weight)) == 0;
}

/* Whether a difference in [text] changes what the loss [metric] is; that of one of `losses` is without its weight. */
static bool changes_loss(const char *text, const char *metric) {
    size_t length = strlen(metric);
    bool is_loss = length >= 4 && strcmp(metric + length - 4, "loss") == 0;
    bool is_sum = strcmp(metric, "val_loss") == 0 || strcmp(metric, "train_loss") == 0;
    return is_loss && is_about(text, of_loss) && (is_sum || !is_weight_of_term(text));
}

/* Adds the differences that change the loss [metric], or NULL: which rows it is of: "loss.label_smoothing: 0 in A, 0.1
 * in B; ...". */
static void add_differences(const char *lines, const char *metric, struct text *out) {
    for (const char *line = lines; *line; line += strcspn(line, "\n") + 1) {
        const char *arrow = strstr(line, " -> ");
        if (!arrow || !(metric ? changes_loss(line + 2, metric) : is_about(line + 2, of_rows))) continue;
        int before = (int)(arrow - line - 2), after = (int)strcspn(arrow + 4, "\n");
        text_printf(out, "%s%.*s in A, %.*s in B", out->length ? "; " : "", before, line + 2, after, arrow + 4);
    }
}

void comparability_explain(const struct config *a, const struct config *b, const char *metric, struct text *out) {
    SCOPED_TEXT lines = {0}, loss = {0}, rows = {0};
    schema_diff(&config_schema, a, b, &lines);
    add_text("dataset.path", a->dataset.path, b->dataset.path, &lines);
    add_text("dataset.validation.path", a->dataset.validation.path, b->dataset.validation.path, &lines);
    add_text("dataset.validation.query", a->dataset.validation.query, b->dataset.validation.query, &lines);
    add_differences(text_string(&lines), metric, &loss);
    add_differences(text_string(&lines), NULL, &rows);
    if (loss.length)
        text_printf(out,
                    "%s is not comparable, the losses are defined differently (%s); --metric names another metric\n",
                    metric, text_string(&loss));
    if (rows.length)
        text_printf(out, "%s may not be comparable, it may be of other rows or targets (%s)\n", metric,
                    text_string(&rows));
}

void comparability_explain_key(const char *key, const char *metric, struct text *out) {
    if (changes_loss(key, metric))
        text_printf(out,
                    "%s is not comparable between trials that differ in %s, which changes what the loss is; choose "
                    "another metric, such as val_accuracy, val_auc or val_mae\n",
                    metric, key);
    else if (is_about(key, of_rows))
        text_printf(out,
                    "%s may not be comparable between trials that differ in %s, it may be of other rows or targets\n",
                    metric, key);
}

/* ---- tests of pairs ---- */

/* Pairs of runs share the seeds of the initial weights and of the order of the rows, so a difference within a pair is
 * the configs'. */

#define LEVEL 0.05      /* of significance */
#define MAX_VALUE 1e150 /* of base/statistics */

static double *numbers(size_t count) { return status_need(calloc(count + 1, sizeof(double))); }

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
        text_add(out, "Undecided: one test shows a difference and the other does not; more seeds may decide.");
    else
        text_printf(out, "No difference is shown: with %zu pairs, differences like these are common by chance alone.",
                    c->pairs);
}

/* ---- the runs of a comparison ---- */

static double value_of(const struct trials *trials, int64_t run) {
    const struct trial_run *r = trials_run(trials, run);
    return r->state == TRIAL_COMPLETE ? r->value : NAN;
}

static struct paired_tests test_pairs(const struct sweep_config *sweep, const struct trials *trials) {
    size_t n = (size_t)sweep->runs;
    double *values = numbers(2 * n);
    for (size_t i = 0; i < 2 * n; i++) values[i] = value_of(trials, (int64_t)i);
    struct paired_tests c = paired_tests_make(values, values + n, n);
    free(values);
    return c;
}

static status too_few(const struct trials *trials, const char *folder) {
    SCOPED_TEXT why = {0};
    trials_explain_values(trials, &why);
    return status_data("fewer than two pairs of runs %s%s: see %s/trials.csv",
                       why.length ? "have values: " : "are complete", text_string(&why), folder);
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
    SCOPED_TEXT warnings = {0};
    comparability_explain(sweep_file_base(file), sweep_file_other(file), sweep_file_config(file)->metric.name,
                          &warnings);
    for (const char *line = text_string(&warnings); *line; line += strcspn(line, "\n") + 1) {
        int length = (int)strcspn(line, "\n");
        if (log)
            log_warning(log, "%.*s", length, line);
        else
            text_printf(out, "warning: %.*s\n", length, line);
    }
}

status compare_run(const struct sweep_file *file, const struct sweep_options *options, struct log *log,
                   struct text *out) {
    const struct sweep_config *sweep = sweep_file_config(file);
    struct trials *trials = NULL;
    struct paired_tests comparison = {0};
    SCOPED_TEXT folder = {0};
    struct sweep_options with_folder = *options;
    with_folder.folder_now = &folder;
    warn(file, log, NULL);
    status s = sweep_run(file, &with_folder, log);
    if (!s) s = trials_open(text_string(&folder), sweep, NULL, log, &trials);
    if (!s) comparison = test_pairs(sweep, trials);
    if (!s && comparison.pairs < 2) s = too_few(trials, text_string(&folder));
    if (!s) add_result(sweep, &comparison, out);
    if (!s) warn(file, NULL, out);
    return status_first(s, trials_close(trials));
}

/* ---- the best trial of a sweep ---- */

/* [trial] negative: without parameters. */
static status write_trial(const struct sweep_config *sweep, const struct trials *trials, int64_t trial,
                          const char *path) {
    struct point point = {0};
    SCOPED_CONFIG config = NULL;
    SCOPED_TEXT text = {0};
    if (trial >= 0) trials_point(trials, trial, &point);
    TRY(sweep_trial_config(sweep, trial >= 0 ? trial : 0, trial >= 0 ? &point : NULL, 0, &config));
    schema_write_yaml(&config_schema, config_of(config), &text);
    return io_replace_text(path, text_string(&text));
}

/* best (2); *count: how many are needed, and there; 0: the sweep has not ended. */
static status find_best(const struct sweep_config *sweep, const struct trials *trials, int64_t *best, size_t *count) {
    *count = 0;
    for (int64_t trial = 0; trial < sweep->trials; trial++)
        if (trials_summary(trials, trial).state == TRIAL_PENDING) return OK;
    size_t needed = sweep->confirm.against == CONFIRM_SECOND ? 2 : 1;
    if ((size_t)trials_best(trials, (int64_t)needed, best) < needed)
        return status_data("confirm: fewer than %zu trials are complete and have a value", needed);
    *count = needed;
    return OK;
}

/* The seeds after those of the trials, and as many processes for each run as they had. */
static status compare_new_seeds(const struct sweep_file *file, const char *a, const char *b,
                                const struct sweep_options *options, struct log *log, struct text *out) {
    const struct sweep_config *sweep = sweep_file_config(file);
    const struct config *base = sweep_file_base(file);
    int64_t used = sweep->repeat.seeds == SCHEMA_NO_INT ? 1 : sweep->repeat.seeds;
    struct sweep_file *comparison;
    if (base->seed > INT64_MAX - used || base->sampler.seed > INT64_MAX - used)
        return status_usage("confirm: no larger seeds than those of the trials are left; choose smaller ones");
    SCOPED_STRING seed = text_format("seed=%" PRId64, base->seed + used);
    SCOPED_STRING sampler = text_format("sampler.seed=%" PRId64, base->sampler.seed + used);
    char *words[] = {seed, sampler};
    status s = sweep_load_comparison(a, b, words, 2, sweep->confirm.seeds, sweep->nproc_per_trial, sweep->metric.name,
                                     &comparison);
    if (!s) s = compare_run(comparison, options, log, out);
    if (comparison) sweep_free(comparison);
    return s;
}

status confirm_run(const struct sweep_file *file, const struct sweep_options *options, struct log *log,
                   struct text *out) {
    const struct sweep_config *sweep = sweep_file_config(file);
    struct trials *trials;
    SCOPED_ARENA arena = arena_create();
    int64_t best[2] = {-1, -1};
    size_t count;
    TRY(trials_open(options->folder, sweep, NULL, log, &trials));
    status s = find_best(sweep, trials, best, &count);
    if (s || !count) return status_first(s, trials_close(trials));
    const char *folder = arena_printf(arena, "%s/confirm", options->folder);
    const char *a = arena_printf(arena, "%04" PRId64, best[0]);
    const char *b = best[1] >= 0 ? arena_printf(arena, "%04" PRId64, best[1]) : "base";
    const char *a_path = arena_printf(arena, "%s/%s.yaml", folder, a);
    const char *b_path = arena_printf(arena, "%s/%s.yaml", folder, b);
    s = io_make_folders(folder);
    if (!s) s = write_trial(sweep, trials, best[0], a_path);
    if (!s) s = write_trial(sweep, trials, best[1], b_path);
    TRY(status_first(s, trials_close(trials)));
    struct sweep_options own = *options;
    own.folder = arena_printf(arena, "%s/%s-or-%s", folder, a, b);
    own.is_fresh = false;
    log_line(log, "confirming trial %lld with %lld new seeds", (long long)best[0], (long long)sweep->confirm.seeds);
    return compare_new_seeds(file, a_path, b_path, &own, log, out);
}
