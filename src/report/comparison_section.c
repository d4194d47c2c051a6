/* A pair is the runs of trial 0 and trial 1 with the same repeat. */
#include "report/comparison_section.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/html.h"
#include "report/page.h"
#include "report/svg.h"
#include "sweep/compare.h"
#include "sweep/sweep_folder.h"
#include "train/metrics/report.h"

#define MAX_DRAWN_PAIRS 2000
#define MAX_PAIRS 1000000 /* a larger number in a damaged file is not believed */

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
    struct text t = {0};
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
    text_free(&t);
}

/* A point is a pair: A to the right, B up; on the line both are equal. */
static void draw_pairs(struct text *out, const struct sweep_data *s, double *const values[2], size_t count) {
    double low = INFINITY, high = -INFINITY;
    struct text title = {0};
    for (size_t i = 0; i < count; i++)
        for (int side = 0; side < 2 && isfinite(values[0][i] + values[1][i]); side++) {
            low = fmin(low, values[side][i]);
            high = fmax(high, values[side][i]);
        }
    bool is_percent = report_is_percent(s->metric);
    struct svg_plot plot = {.out = out, .x = {.label = "A", .is_percent = is_percent}, .y.is_percent = is_percent};
    axis_fit(&plot.x, low, high, true);
    axis_fit(&plot.y, low, high, true);
    text_printf(&title, "Pairs: %s of B over that of A", s->metric);
    text_add(out, "<div class=\"plots\">\n");
    svg_begin(&plot, text_string(&title), NULL);
    text_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fL%.1f %.1f\"/>", plot.left, plot.bottom, plot.right, plot.top);
    for (size_t i = 0; i < count && i < MAX_DRAWN_PAIRS; i++) {
        struct text label = {0};
        if (!isfinite(values[0][i] + values[1][i])) continue;
        char a[32], b[32];
        report_metric(s->metric, values[0][i], a);
        report_metric(s->metric, values[1][i], b);
        text_printf(&label, "pair %zu: A %s, B %s", i, a, b);
        svg_point(&plot, values[0][i], values[1][i], 3.2, "pt", text_string(&label));
        text_free(&label);
    }
    svg_end(&plot);
    page_note(
        out,
        "A point is a pair of runs with the same seed. Above the line the value of B is larger, below it that of A; %s "
        "values are better.",
        s->is_max ? "larger" : "smaller");
    svg_end_figure(out);
    text_add(out, "</div>\n");
    text_free(&title);
}

static status load(const struct sweep_data *s, const char *name, struct config_file **out) {
    struct text path = {0};
    text_printf(&path, "%s/%s", s->path, name);
    status r = config_load(text_string(&path), NULL, 0, out);
    text_free(&path);
    return r;
}

/* Nothing for configs that cannot be read; the page says that elsewhere. */
static void add_notices(struct text *out, const struct sweep_data *s) {
    struct config_file *a = NULL, *b = NULL;
    struct text warnings = {0};
    status r = load(s, SWEEP_BASE_CONFIG, &a);
    if (!r) r = load(s, SWEEP_OTHER_CONFIG, &b);
    if (!r) comparability_explain(config_of(a), config_of(b), s->metric, &warnings);
    for (const char *line = text_string(&warnings); *line; line += strcspn(line, "\n") + 1)
        page_notice(out, "%.*s.", (int)strcspn(line, "\n"), line);
    text_free(&warnings);
    config_free(a);
    config_free(b);
    status_free(r);
}

void comparison_section_add(struct text *out, const struct sweep_data *s) {
    int64_t count = sweep_data_repeats(s);
    if (!s->other || count > MAX_PAIRS) return;
    double *values[2];
    for (int side = 0; side < 2; side++) {
        values[side] = calloc((size_t)count, sizeof *values[side]);
        if (!values[side]) status_exit_without_memory();
    }
    collect(s, values, count);
    struct paired_tests c = paired_tests_make(values[0], values[1], (size_t)count);
    text_printf(out, "<h3>A and B: %zu pair%s of runs</h3>\n", c.pairs, text_plural(c.pairs, "s"));
    if (c.left_out)
        page_notice(out, "%zu pair%s left out, of which a run has failed, has not ended or has no value.", c.left_out,
                    c.left_out == 1 ? " is" : "s are");
    add_notices(out, s);
    if (c.pairs >= 2) {
        add_tests(out, s, &c);
        draw_pairs(out, s, values, (size_t)count);
    } else {
        page_notice(out, "A test needs two pairs of complete runs with values.");
    }
    free(values[0]);
    free(values[1]);
}
