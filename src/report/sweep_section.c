/* The section of a report about a sweep, or about a comparison of two configs. Trials come sorted, the best first. A
 * plot draws at most MAX_POINTS of them: the best ALWAYS_DRAWN, and of the others every n-th, so that the others are as
 * dense where they are. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "report/report_page.h"
#include "report/svg.h"
#include "report/sweep_data.h"
#include "sweep/compare.h"
#include "sweep/sweep_folder.h"
#include "train/folder/run_folder.h"
#include "train/metrics/report.h"

/* ---- a comparison of two configs ---- */

/* A pair is the runs of trial 0 and trial 1 with the same repeat. */

#define MAX_DRAWN_PAIRS 2000
#define MAX_PAIRS 1000000 /* a larger number is that of a damaged file */

/* The value of a repeat of trial 0 and 1, each (count); NAN: it has none. */
static void collect(const struct sweep_data *s, double *const values[2], int64_t count) {
    for (int64_t i = 0; i < count; i++) values[0][i] = values[1][i] = NAN;
    for (size_t i = 0; i < s->run_count; i++) {
        const struct sweep_data_run *run = &s->runs[i];
        if (run->trial > 1 || run->trial < 0 || run->repeat < 0 || run->repeat >= count) continue;
        values[run->trial][run->repeat] = run->state == TRIAL_COMPLETE ? run->value : NAN;
    }
}

static void add_row(struct text *out, const char *name, const char *config, const struct sweep_data *s, double mean,
                    double error) {
    char text[32];
    page_row_begin(out, NULL);
    page_cell(out, name, NULL);
    page_cell(out, config, "code");
    report_metric(s->metric, mean, text);
    page_cell(out, text, "n");
    report_metric_error(s->metric, error, text);
    page_cell(out, text, "n");
    page_row_end(out);
}

static void add_tests(struct text *out, const struct sweep_data *s, const struct paired_tests *c) {
    static const struct page_heading headings[] = {
        {"", false}, {"Config", false}, {"Mean", true}, {"Standard error", true}};
    SCOPED_TEXT t = {0};
    page_table_begin(out, headings, 4, false);
    add_row(out, "A, trial 0", s->config, s, c->mean[0], c->error[0]);
    add_row(out, "B, trial 1", s->other, s, c->mean[1], c->error[1]);
    page_table_end(out);
    page_facts_begin(out);
    paired_tests_add_difference(c, s->metric, &t);
    page_fact(out, "A - B", text_string(&t));
    text_clear(&t);
    text_printf(&t, "%.3g", c->t.p);
    page_fact(out, "p-value, paired t-test", text_string(&t));
    text_clear(&t);
    text_printf(&t, "%.3g", c->wilcoxon_p);
    page_fact(out, "p-value, Wilcoxon signed-rank test", text_string(&t));
    page_facts_end(out);
    text_clear(&t);
    paired_tests_add_sentence(c, s->metric, s->is_max, &t);
    text_add(out, "<p class=\"headline\">");
    html_add(out, text_string(&t));
    text_add(out, "</p>\n");
}

/* A point is a pair: A to the right, B up; on the line both are equal. */
static void draw_pairs(struct text *out, const struct sweep_data *s, double *const values[2], size_t count) {
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < count; i++)
        for (int side = 0; side < 2 && isfinite(values[0][i] + values[1][i]); side++) {
            low = fmin(low, values[side][i]);
            high = fmax(high, values[side][i]);
        }
    bool is_percent = report_is_percent(s->metric);
    struct svg_plot plot = {.out = out, .x = {.label = "A", .is_percent = is_percent}, .y.is_percent = is_percent};
    axis_fit(&plot.x, low, high, true);
    axis_fit(&plot.y, low, high, true);
    SCOPED_STRING title = text_format("Pairs: %s of B over that of A", s->metric);
    text_add(out, "<div class=\"plots\">\n");
    svg_begin(&plot, title);
    text_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fL%.1f %.1f\"/>", plot.left, plot.bottom, plot.right, plot.top);
    for (size_t i = 0; i < count && i < MAX_DRAWN_PAIRS; i++) {
        if (!isfinite(values[0][i] + values[1][i])) continue;
        char a[32], b[32];
        report_metric(s->metric, values[0][i], a);
        report_metric(s->metric, values[1][i], b);
        SCOPED_STRING label = text_format("pair %zu: A %s, B %s", i, a, b);
        svg_point(&plot, values[0][i], values[1][i], 3.2, "pt", label);
    }
    svg_end(&plot);
    page_note(out,
              "A point is a pair of runs with the same seed. Above the line the value of B is larger, below it that of "
              "A; %s values are better.",
              s->is_max ? "larger" : "smaller");
    svg_end_figure(out);
    text_add(out, "</div>\n");
}

static status load(const struct sweep_data *s, const char *name, struct config_file **out) {
    SCOPED_STRING path = text_path(s->path, name);
    return config_load(path, NULL, 0, out);
}

/* Nothing for configs that cannot be read; the page says that elsewhere. */
static void add_comparability(struct text *out, const struct sweep_data *s) {
    SCOPED_CONFIG a = NULL, *b = NULL;
    SCOPED_TEXT warnings = {0};
    status r = load(s, SWEEP_BASE_CONFIG, &a);
    if (!r) r = load(s, SWEEP_OTHER_CONFIG, &b);
    if (!r) comparability_explain(config_of(a), config_of(b), s->metric, &warnings);
    for (const char *line = text_string(&warnings); *line; line += strcspn(line, "\n") + 1)
        page_notice(out, "%.*s.", (int)strcspn(line, "\n"), line);
    status_free(r);
}

/* Nothing for a sweep that is not a comparison. */
static void comparison_section_add(struct text *out, const struct sweep_data *s) {
    int64_t count = sweep_data_repeats(s);
    if (!s->other || count > MAX_PAIRS) return;
    SCOPED_ARENA arena = arena_create();
    double *const values[] = {arena_alloc(arena, (size_t)count * sizeof(double)),
                              arena_alloc(arena, (size_t)count * sizeof(double))};
    collect(s, values, count);
    struct paired_tests c = paired_tests_make(values[0], values[1], (size_t)count);
    text_printf(out, "<h3>A and B: %zu pair%s of runs</h3>\n", c.pairs, text_plural(c.pairs, "s"));
    if (c.left_out)
        page_notice(out, "%zu pair%s left out, of which a run has failed, has not ended or has no value.", c.left_out,
                    c.left_out == 1 ? " is" : "s are");
    add_comparability(out, s);
    if (c.pairs >= 2) {
        add_tests(out, s, &c);
        draw_pairs(out, s, values, (size_t)count);
    } else {
        page_notice(out, "A test needs two pairs of complete runs with values.");
    }
}

#define MAX_POINTS 2000
#define MAX_ALL_POINTS 12000 /* of all plots over parameters together */
#define MAX_LINES 300        /* parallel coordinates */
#define ALWAYS_DRAWN 50
#define BEST_SHOWN 10
#define FRONT_SHOWN 50
#define BEST_COMMANDS 5
#define BEST_CURVES 5

/* Whether entry [i] of [n] is drawn where [max] are: the first [always], and the others evenly. */
static bool is_drawn(size_t i, size_t n, size_t max, size_t always) {
    size_t rest = max - always;
    if (n <= max || i < always) return true;
    return (i - always) * rest / (n - always) != (i - always + 1) * rest / (n - always);
}

/* ---- facts ---- */

static void add_facts(struct text *out, const struct sweep_data *s) {
    SCOPED_TEXT t = {0};
    double seconds = 0;
    char duration[32];
    for (size_t i = 0; i < s->trial_total; i++) seconds += s->trials[i].seconds;
    report_duration(seconds < 1e15 ? seconds : 0, duration);
    page_facts_begin(out);
    page_fact(out, "State", sweep_data_state(s));
    text_printf(&t, "%s of %s", s->is_max ? "maximum" : "minimum", s->metric);
    for (size_t i = 0; i < s->other_count; i++)
        text_printf(&t, ", %s of %s", s->is_other_max[i] ? "maximum" : "minimum", s->others[i]);
    page_fact(out, s->other_count ? "Goals" : "Goal", text_string(&t));
    page_fact(out, "Method", s->method);
    text_clear(&t);
    text_printf(&t, "%zu ended", s->trial_total);
    if (s->trial_count >= 0) text_printf(&t, " of %" PRId64, s->trial_count);
    page_fact(out, "Trials", text_string(&t));
    text_clear(&t);
    for (int state = TRIAL_COMPLETE; state <= TRIAL_FAILED; state++)
        text_printf(&t, "%s%zu %s", t.length ? ", " : "", s->counts[state], trial_states[state]);
    page_fact(out, sweep_data_repeats(s) > 1 ? "Runs" : "States", text_string(&t));
    text_clear(&t);
    if (s->seeds > 0) text_printf(&t, "%" PRId64 " seeds", s->seeds);
    if (s->folds > 0) text_printf(&t, "%s%" PRId64 " folds", t.length ? " x " : "", s->folds);
    page_fact(out, "Runs of a trial", text_string(&t));
    page_fact(out, "Early termination", strcmp(s->early, "none") ? s->early : "");
    page_fact(out, "Time of training, all runs", duration);
    page_fact(out, s->other ? "Config A, trial 0" : "Config", s->config);
    page_fact(out, "Config B, trial 1", s->other);
    page_fact(out, "Folder", s->path);
    page_facts_end(out);
    if (s->file.malformed)
        page_notice(out, "%llu of %llu lines of history.jsonl are damaged and were left out.",
                    (unsigned long long)s->file.malformed, (unsigned long long)s->file.lines);
    if (s->file.is_torn && !s->is_locked)
        page_notice(out, "The last line of history.jsonl is not complete and was left out.");
    if (s->run_count == 0) page_notice(out, "No trial has ended yet.");
}

/* ---- best trials ---- */

static void add_best_row(struct text *out, const struct sweep_data *s, const struct sweep_data_trial *t) {
    SCOPED_TEXT cell = {0};
    page_row_begin(out, t == s->trials ? "best" : NULL);
    text_printf(&cell, "%04" PRId64, t->trial);
    page_cell(out, text_string(&cell), "n");
    text_clear(&cell);
    sweep_data_add_mean(s, t, "\u00b1", &cell);
    text_printf(out, "<td class=\"n\" data-v=\"%.17g\">", t->mean);
    html_add(out, text_string(&cell));
    text_add(out, "</td>");
    for (size_t i = 0; i < s->other_count; i++) {
        char value[32];
        report_metric(s->others[i], sweep_data_other(s, t, i), value);
        text_printf(out, "<td class=\"n\" data-v=\"%.17g\">", sweep_data_other(s, t, i));
        html_add(out, value);
        text_add(out, "</td>");
    }
    if (sweep_data_repeats(s) > 1) page_number(out, (double)t->complete);
    for (size_t i = 0; i < s->parameter_count; i++) {
        const struct sweep_data_parameter *p = &s->parameters[i];
        text_clear(&cell);
        sweep_data_add_value(p, sweep_data_point(s, t)[i], &cell);
        if (p->is_number)
            page_number(out, sweep_data_point(s, t)[i]);
        else
            page_cell(out, text_string(&cell), NULL);
    }
    SCOPED_STRING hash = sweep_data_hash(s, t);
    page_hash(out, hash);
    page_row_end(out);
}

static void add_command(struct text *out, const struct sweep_data *s, const struct sweep_data_trial *t) {
    SCOPED_TEXT command = {0};
    sweep_data_add_command(s, t, &command);
    text_printf(out, "<pre><code># trial %04" PRId64 "\n", t->trial);
    html_add(out, text_string(&command));
    text_add(out, "</code></pre>\n");
}

/* Of a sweep without that of the best trial, which is below the headline. */
static void add_commands(struct text *out, const struct sweep_data *s) {
    size_t first = s->other ? 0 : 1;
    if (s->ranked > first) text_printf(out, "<h3>Commands of the %s trials</h3>\n", s->other ? "two" : "next best");
    for (size_t i = first; i < s->ranked && i < BEST_COMMANDS; i++) add_command(out, s, &s->trials[i]);
    page_note(out,
              "Each command trains the trial's %s again, from the folder where the sweep was started, and ends with "
              "the same state SHA-256.",
              sweep_data_repeats(s) > 1 ? "first run" : "run");
}

/* The best trial with its command, and how far the sweep is. */
static void add_headline(struct text *out, const struct sweep_data *s) {
    size_t counts[TRIAL_FAILED + 1] = {0};
    SCOPED_TEXT t = {0};
    for (size_t i = 0; i < s->trial_total; i++) counts[s->trials[i].state]++;
    for (int state = TRIAL_COMPLETE; state <= TRIAL_FAILED; state++)
        if (counts[state]) text_printf(&t, "%s%zu %s", t.length ? ", " : "", counts[state], trial_states[state]);
    int64_t left = s->trial_count < 0 ? 0 : s->trial_count - (int64_t)(s->trial_total - counts[TRIAL_PENDING]);
    if (left > 0) text_printf(&t, "%s%" PRId64 " to go", t.length ? ", " : "", left);
    if (s->ranked) {
        SCOPED_TEXT mean = {0};
        sweep_data_add_mean(s, s->trials, "\u00b1", &mean);
        text_add(out, "<p class=\"headline\">Best result: ");
        html_add(out, s->metric);
        text_printf(out, " %s in trial %04" PRId64 "</p>\n", text_string(&mean), s->trials[0].trial);
    }
    if (t.length) text_printf(out, "<p>Trials: %s</p>\n", text_string(&t));
    if (s->ranked) add_command(out, s, s->trials);
}

/* Whether trials have other values of parameter [index], or some of them, of a list, none. */
static bool has_other_values(const struct sweep_data *s, size_t index) {
    for (size_t i = 1; i < s->trial_total; i++) {
        double a = sweep_data_point(s, &s->trials[0])[index], b = sweep_data_point(s, &s->trials[i])[index];
        if (isnan(a) ? !isnan(b) : !(a == b)) return true;
    }
    return false;
}

/* A notice for each parameter that changes what the metric means. */
static void add_notices(struct text *out, const struct sweep_data *s) {
    SCOPED_TEXT warnings = {0};
    for (size_t i = 0; i < s->parameter_count; i++)
        if (has_other_values(s, i)) comparability_explain_key(s->parameters[i].path, s->metric, &warnings);
    for (const char *line = text_string(&warnings); *line; line += strcspn(line, "\n") + 1)
        page_notice(out, "%.*s.", (int)strcspn(line, "\n"), line);
}

/* The best trials, or with several metrics the Pareto front, by the first one. */
static void add_best(struct text *out, const struct sweep_data *s) {
    struct page_heading headings[SWEEP_DATA_MAX_PARAMETERS + SWEEP_MAX_OTHER_METRICS + 4];
    size_t count = 0, shown = 0, max = s->other_count ? FRONT_SHOWN : BEST_SHOWN;
    if (!s->ranked) return;
    SCOPED_STRING metric =
        text_format("%s%s", s->metric, sweep_data_repeats(s) > 1 ? " (mean \u00b1 standard error)" : "");
    headings[count++] = (struct page_heading){"Trial", true};
    headings[count++] = (struct page_heading){metric, true};
    for (size_t i = 0; i < s->other_count; i++) headings[count++] = (struct page_heading){s->others[i], true};
    if (sweep_data_repeats(s) > 1) headings[count++] = (struct page_heading){"Runs", true};
    for (size_t i = 0; i < s->parameter_count; i++)
        headings[count++] = (struct page_heading){s->parameters[i].path, s->parameters[i].is_number};
    headings[count++] =
        (struct page_heading){sweep_data_repeats(s) > 1 ? "State SHA-256 of the first run" : "State SHA-256", false};
    if (s->other_count)
        text_printf(out, "<h3>Pareto front: %zu of %zu complete trials</h3>\n", s->front, s->ranked);
    else
        text_add(out, "<h3>Best trials</h3>\n");
    add_notices(out, s);
    page_table_begin(out, headings, count, true);
    for (size_t i = 0; i < s->ranked && shown < max; i++) {
        if (s->other_count && !s->trials[i].is_on_front) continue;
        add_best_row(out, s, &s->trials[i]);
        shown++;
    }
    page_table_end(out);
    if (s->other_count)
        page_note(out, "No other complete trial is as good in every metric and better in one. %s",
                  shown < s->front ? "More of them: pareto_front is 1 in trials.csv." : "");
    add_commands(out, s);
}

/* ---- axes ---- */

/* A few trials that are far worse than the others do not decide about the scale: they are drawn at its edge. */
#define OUTLIER 5 /* times as far from the best as nine of ten trials */

struct metric_axis {
    struct axis axis;
    size_t beyond; /* trials at the edge */
};

static struct metric_axis fit_metric(const struct sweep_data *s) {
    struct metric_axis m = {.axis = {.label = s->metric, .is_percent = report_is_percent(s->metric)}};
    double low = INFINITY, high = -INFINITY, positive = INFINITY;
    size_t n = s->ranked;
    for (size_t i = 0; i < s->trial_total; i++) {
        double value = i < n ? s->trials[i].mean : s->trials[i].pruned;
        if (isnan(value) || (n >= 10 && i >= n)) continue;
        low = fmin(low, value);
        high = fmax(high, value);
        if (value > 0) positive = fmin(positive, value);
    }
    m.axis.is_log = isfinite(positive) && axis_wants_log(positive, low, high);
    if (n >= 10 && !m.axis.is_log) {
        double best = s->trials[0].mean, usual = s->trials[(n - 1) * 9 / 10].mean;
        double limit = best + OUTLIER * (usual - best);
        if (!s->is_max && limit < high && usual != best) high = limit;
        if (s->is_max && limit > low && usual != best) low = limit;
    }
    if (!isfinite(low)) low = 0, high = 1;
    for (size_t i = 0; i < n; i++)
        m.beyond += s->trials[i].mean < low || s->trials[i].mean > high || (m.axis.is_log && s->trials[i].mean <= 0);
    axis_fit(&m.axis, m.axis.is_log ? positive : low, high, true);
    return m;
}

static void note_beyond(struct text *out, const struct metric_axis *m) {
    if (m->beyond)
        page_note(out, "%zu trial%s beyond the axis %s at its edge.", m->beyond, m->beyond == 1 ? "" : "s",
                  m->beyond == 1 ? "is" : "are");
}

static void fit_parameter(const struct sweep_data_parameter *p, struct axis *axis) {
    *axis = (struct axis){.label = p->path, .is_log = p->is_log};
    if (p->is_number)
        axis_fit(axis, p->low, p->high, false);
    else
        axis_fit_words(axis, p->words, p->word_count);
}

/* ---- plots ---- */

static void add_label(const struct sweep_data *s, const struct sweep_data_trial *t, struct text *out) {
    text_clear(out);
    text_printf(out, "trial %" PRId64 ": %s ", t->trial, s->metric);
    if (t->state == TRIAL_COMPLETE)
        sweep_data_add_mean(s, t, "\u00b1", out);
    else {
        char value[32];
        report_metric(s->metric, t->pruned, value);
        text_printf(out, "%s, %s", value, trial_states[t->state]);
    }
}

/* The trials in the order in which they ended, and the best value until then. */
static void draw_best_so_far(struct text *out, const struct sweep_data *s, const struct metric_axis *m) {
    const struct sweep_data_trial **ordered = status_need(calloc(s->trial_total + 1, sizeof *ordered));
    struct svg_plot plot = {.out = out, .x.label = "trials that have ended", .y = m->axis};
    struct curve best = {0};
    SCOPED_TEXT label = {0};
    double value = NAN;
    SCOPED_STRING title = text_format("Best %s so far%s", s->metric, m->axis.is_log ? " (logarithmic)" : "");
    axis_fit(&plot.x, 1, fmax(2, (double)s->trial_total), false);
    svg_begin(&plot, title);
    for (size_t i = 0; i < s->trial_total; i++) ordered[s->trials[i].order] = &s->trials[i];
    for (size_t i = 0; i < s->trial_total; i++) {
        const struct sweep_data_trial *t = ordered[i];
        bool is_ranked = t->state == TRIAL_COMPLETE && isfinite(t->mean);
        double at = is_ranked ? t->mean : t->pruned;
        if (isfinite(at) && is_drawn(i, s->trial_total, MAX_POINTS, 0)) {
            add_label(s, t, &label);
            svg_point(&plot, (double)i + 1, at, 2.2, is_ranked ? "pt" : "pt pruned", text_string(&label));
        }
        if (is_ranked && sweep_data_is_better(s, t->mean, value)) {
            if (!isnan(value)) curve_add(&best, (double)i + 1, value);
            value = t->mean;
            curve_add(&best, (double)i + 1, value);
        }
    }
    if (!isnan(value)) curve_add(&best, (double)s->trial_total, value);
    svg_curve(&plot, &best, 1, "best so far");
    svg_end(&plot);
    note_beyond(out, m);
    svg_end_figure(out);
    curve_free(&best);
    free(ordered);
}

/* Where words share a place, points are spread around it, always in the same way. */
static double spread(int64_t trial) { return (double)((uint64_t)trial * 2654435761u % 1000) / 1000 * 0.5 - 0.25; }

/* The metric over another one; the trials of the Pareto front on top. */
static void draw_front(struct text *out, const struct sweep_data *s, size_t index, const struct metric_axis *m) {
    const char *name = s->others[index];
    struct svg_plot plot = {.out = out, .x = {.label = name, .is_percent = report_is_percent(name)}, .y = m->axis};
    SCOPED_TEXT label = {0};
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < s->ranked; i++) {
        low = fmin(low, sweep_data_other(s, &s->trials[i], index));
        high = fmax(high, sweep_data_other(s, &s->trials[i], index));
    }
    plot.x.is_log = low > 0 && axis_wants_log(low, low, high);
    axis_fit(&plot.x, isfinite(low) ? low : 0, isfinite(high) ? high : 1, true);
    SCOPED_STRING title = text_format("%s over %s", s->metric, name);
    svg_begin(&plot, title);
    for (int on_top = 0; on_top < 2; on_top++)
        for (size_t i = s->ranked; i-- > 0;) {
            const struct sweep_data_trial *t = &s->trials[i];
            bool is_top = t->is_on_front, fits = is_drawn(i, s->ranked, MAX_POINTS, ALWAYS_DRAWN);
            if (is_top != on_top || isnan(sweep_data_other(s, t, index)) || !fits) continue;
            add_label(s, t, &label);
            char value[32];
            report_metric(name, sweep_data_other(s, t, index), value);
            text_printf(&label, ", %s %s", name, value);
            svg_point(&plot, sweep_data_other(s, t, index), t->mean, is_top ? 3.6 : 2.8, is_top ? "pt top" : "pt",
                      text_string(&label));
        }
    svg_end(&plot);
    page_note(out, "Filled orange points are the Pareto front of all metrics.");
    svg_end_figure(out);
}

static void draw_parameter(struct text *out, const struct sweep_data *s, size_t index, const struct metric_axis *m,
                           size_t max) {
    const struct sweep_data_parameter *p = &s->parameters[index];
    struct svg_plot plot = {.out = out, .y = m->axis};
    SCOPED_TEXT label = {0};
    fit_parameter(p, &plot.x);
    SCOPED_STRING title = text_format("%s over %s", s->metric, p->path);
    svg_begin(&plot, title);
    for (size_t i = s->trial_total; i-- > 0;) { /* the best on top */
        const struct sweep_data_trial *t = &s->trials[i];
        double value = i < s->ranked ? t->mean : t->pruned, x = sweep_data_point(s, t)[index];
        if (isnan(value) || isnan(x) || !is_drawn(i, s->trial_total, max, ALWAYS_DRAWN)) continue;
        add_label(s, t, &label);
        text_add(&label, ", ");
        sweep_data_add_value(p, x, &label);
        double at = p->is_number ? x : x + spread(t->trial);
        bool is_best = i < BEST_SHOWN && i < s->ranked;
        if (i < s->ranked && isfinite(t->error)) svg_error(&plot, at, t->mean - t->error, t->mean + t->error);
        svg_point(&plot, at, value, is_best ? 3.6 : 2.8,
                  i >= s->ranked ? "pt pruned"
                  : is_best      ? "pt top"
                                 : "pt",
                  text_string(&label));
    }
    svg_end(&plot);
    svg_end_figure(out);
}

/* Points of a plot over a parameter. */
static size_t max_points(const struct sweep_data *s) {
    size_t max = s->parameter_count ? MAX_ALL_POINTS / s->parameter_count : 0;
    return max > MAX_POINTS ? MAX_POINTS : max;
}

static void draw_parameters(struct text *out, const struct sweep_data *s, const struct metric_axis *m) {
    size_t max = max_points(s);
    for (size_t i = 0; i < s->parameter_count; i++) draw_parameter(out, s, i, m, max);
}

static void draw_parallel(struct text *out, const struct sweep_data *s, const struct metric_axis *m) {
    size_t count = s->parameter_count + 1, drawn = 0;
    SCOPED_ARENA arena = arena_create();
    struct axis *axes = arena_alloc(arena, count * sizeof *axes);
    struct svg_line *lines = arena_alloc(arena, (MAX_LINES + 1) * sizeof *lines);
    double *values = arena_alloc(arena, (MAX_LINES + 1) * count * sizeof *values);
    for (size_t i = 0; i < s->parameter_count; i++) fit_parameter(&s->parameters[i], &axes[i]);
    axes[count - 1] = m->axis;
    for (size_t i = s->ranked; i-- > 0 && drawn <= MAX_LINES;) {
        const struct sweep_data_trial *t = &s->trials[i];
        if (!is_drawn(i, s->ranked, MAX_LINES, ALWAYS_DRAWN)) continue;
        double *point = values + drawn * count;
        for (size_t k = 0; k < s->parameter_count; k++)
            point[k] = s->parameters[k].is_number ? sweep_data_point(s, t)[k]
                                                  : sweep_data_point(s, t)[k] + spread(t->trial) * 0.5;
        point[count - 1] = t->mean;
        char value[32];
        report_metric(s->metric, t->mean, value);
        const char *label = arena_printf(arena, "trial %" PRId64 ": %s", t->trial, value);
        lines[drawn++] = (struct svg_line){point, (int)(i * SVG_SHADES / s->ranked), label};
    }
    svg_parallel(out, "Parallel coordinates", axes, count, lines, drawn);
    char part[96] = "";
    if (drawn < s->ranked)
        snprintf(part, sizeof part, "; %zu of %zu are drawn, the best %d and every n-th of the others", drawn,
                 s->ranked, ALWAYS_DRAWN);
    page_note(out, "A line is a complete trial%s; the strongest colour is the best fifth.%s", part,
              m->beyond ? " Values beyond the axis are at its edge." : "");
    svg_end_figure(out);
}

/* ---- importance ---- */

struct importance {
    double share, correlation;
    size_t parameter;
};

static int by_share(const void *a, const void *b) {
    const struct importance *x = a, *y = b;
    if (x->share != y->share) return x->share > y->share ? -1 : 1;
    return x->parameter < y->parameter ? -1 : x->parameter > y->parameter;
}

static struct importance importance_of(const struct sweep_data *s, size_t parameter, const double *metric,
                                       double *values) {
    bool is_number = s->parameters[parameter].is_number;
    for (size_t i = 0; i < s->ranked; i++) values[i] = sweep_data_point(s, &s->trials[i])[parameter];
    double share = importance_share(metric, values, s->ranked, is_number);
    double correlation = is_number ? importance_correlation(metric, values, s->ranked) : NAN;
    bool is_clear = fabs(correlation) > 2 / sqrt((double)s->ranked);
    return (struct importance){isnan(share) ? 0 : share, is_clear ? correlation : NAN, parameter};
}

static void draw_importance(struct text *out, const struct sweep_data *s) {
    size_t n = s->parameter_count;
    SCOPED_ARENA arena = arena_create();
    struct importance *items = arena_alloc(arena, n * sizeof *items);
    double *metric = arena_alloc(arena, s->ranked * sizeof *metric);
    double *values = arena_alloc(arena, s->ranked * sizeof *values), *shares = arena_alloc(arena, n * sizeof *shares);
    const char **names = arena_alloc(arena, n * sizeof *names), **texts = arena_alloc(arena, n * sizeof *texts);
    for (size_t i = 0; i < s->ranked; i++) metric[i] = s->trials[i].mean;
    for (size_t i = 0; i < n; i++) items[i] = importance_of(s, i, metric, values);
    qsort(items, n, sizeof *items, by_share);
    for (size_t i = 0; i < n; i++) {
        bool is_larger_better = items[i].correlation > 0 ? s->is_max : !s->is_max;
        const char *arrow = isnan(items[i].correlation) ? "" : is_larger_better ? " \u2191" : " \u2193";
        texts[i] = arena_printf(arena, "%.0f %%%s", items[i].share * 100, arrow);
        names[i] = s->parameters[items[i].parameter].path;
        shares[i] = items[i].share;
    }
    svg_bars(out, "Importance of the parameters", names, shares, texts, n);
    page_note(out,
              "Share of the variance of the trials' ranks by %s that the parameter alone explains: one-way analysis of "
              "variance of ranks over groups of neighbouring values, corrected for chance (epsilon squared), %zu "
              "complete trials. \u2191 larger values were better, \u2193 smaller ones (Spearman's correlation). "
              "Effects of several parameters together are not in it.",
              s->metric, s->ranked);
    svg_end_figure(out);
}

/* ---- failures, best runs ---- */

static int by_count(const void *a, const void *b) {
    const struct sweep_data_reason *x = a, *y = b;
    return x->count > y->count ? -1 : x->count < y->count;
}

#define MAX_REASONS_SHOWN 10

static void list_failures(struct text *out, const struct sweep_data *s) {
    static const struct page_heading headings[] = {{"Runs", true}, {"Reason (of the first one)", false}};
    if (!s->reason_count) return;
    struct sweep_data_reason *reasons = status_need(calloc(s->reason_count + 1, sizeof *reasons));
    memcpy(reasons, s->reasons, s->reason_count * sizeof *reasons);
    qsort(reasons, s->reason_count, sizeof *reasons, by_count);
    text_add(out, "<h3>Failed runs</h3>\n");
    page_table_begin(out, headings, 2, false);
    for (size_t i = 0; i < s->reason_count && i < MAX_REASONS_SHOWN && reasons[i].count; i++) {
        page_row_begin(out, NULL);
        page_number(out, (double)reasons[i].count);
        page_cell(out, reasons[i].message, NULL);
        page_row_end(out);
    }
    page_table_end(out);
    free(reasons);
}

/* The folder of the first run of a trial that has one: runs/0042, runs/0042/seed-0, runs/0042/seed-0-fold-0 ... */
static char *folder_of(const struct sweep_data *s, const struct sweep_data_trial *t) {
    bool has_seeds = s->seeds > 0, has_folds = s->folds > 0;
    return text_format("%s/runs/%04" PRId64 "%s%s%s", s->path, t->trial, has_seeds || has_folds ? "/" : "",
                       has_seeds ? "seed-0" : "",
                       !has_folds  ? ""
                       : has_seeds ? "-fold-0"
                                   : "fold-0");
}

/* Runs that are kept, of the best trials; returns how many there are. */
static status read_best(const struct sweep_data *s, struct run_data **runs, size_t *count) {
    for (size_t i = 0; i < s->ranked && i < 2 * BEST_CURVES && *count < BEST_CURVES; i++) {
        SCOPED_STRING path = folder_of(s, &s->trials[i]);
        bool is_run;
        TRY(run_folder_is_readable(path, &is_run));
        if (!is_run) continue;
        TRY(run_data_read(path, &runs[*count]));
        free(runs[*count]->label);
        runs[(*count)++]->label = text_format("trial %" PRId64, s->trials[i].trial);
    }
    return OK;
}

static status add_best_runs(struct text *out, const struct sweep_data *s) {
    struct run_data *runs[BEST_CURVES] = {NULL};
    size_t count = 0;
    status r = read_best(s, runs, &count);
    if (!r && count) {
        text_printf(out, "<h3>Curves of the best trials%s</h3>\n",
                    sweep_data_repeats(s) > 1 ? ", first run of each" : "");
        runs_section_curves(out, runs, count);
    }
    for (size_t i = 0; i < count; i++) run_data_free(runs[i]);
    return r;
}

status sweep_section_add(struct text *out, const struct sweep_data *s) {
    bool has_values = s->ranked > 0;
    for (size_t i = 0; i < s->trial_total; i++) has_values = has_values || !isnan(s->trials[i].pruned);
    if (!s->other) add_headline(out, s);
    add_facts(out, s);
    comparison_section_add(out, s);
    add_best(out, s);
    if (has_values) {
        struct metric_axis m = fit_metric(s);
        text_add(out, "<h3>Plots</h3>\n<div class=\"plots\">\n");
        for (size_t i = 0; i < s->other_count && s->ranked; i++) draw_front(out, s, i, &m);
        if (s->ranked) draw_best_so_far(out, s, &m);
        if (s->ranked >= IMPORTANCE_MIN_VALUES && s->parameter_count) draw_importance(out, s);
        draw_parameters(out, s, &m);
        if (s->ranked && s->parameter_count) draw_parallel(out, s, &m);
        text_add(out, "</div>\n");
        if (s->trial_total > s->ranked)
            page_note(
                out,
                "Hollow points are pruned trials, at their best value until then; filled orange ones are the best %d.",
                BEST_SHOWN);
        if (s->trial_total > max_points(s))
            page_note(out,
                      "Plots over parameters show %zu of the %zu trials: the best %d and every n-th of the others.",
                      max_points(s), s->trial_total, ALWAYS_DRAWN);
    }
    list_failures(out, s);
    return add_best_runs(out, s);
}
