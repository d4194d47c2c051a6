/* The sections of a report about runs: overview, curves, confusion matrices, configs. One run has training and
 * validation in one plot; several runs have one plot for each, in which a run is a colour. */
#include "report/report_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/schema/schema.h"
#include "base/scoped.h"
#include "report/run_data.h"
#include "report/svg.h"
#include "train/metrics/report.h"
#include "train/state/data_entries.h"

/* ---- the names of classes ---- */

/* The labels are in the checkpoints only, so the newest one is read. A page is made also if that fails. */

/* The labels of the newest valid checkpoint, one for each class of run->confusion, in [arena]; count 0: the classes are
 * numbers, or there is no such checkpoint. */
static struct string_list class_labels_read(const struct run_data *run, struct arena *arena) {
    struct string_list labels;
    status failure = labels_load_newest(arena, arena_printf(arena, "%s/checkpoints", run->path), &labels);
    bool is_right = !failure && labels.count == run->classes;
    status_free(failure);
    return is_right ? labels : (struct string_list){0};
}

/* ---- overview ---- */

static void add_time(double unix_seconds, const char *format, struct text *out) {
    time_t seconds = (time_t)unix_seconds;
    struct tm parts;
    char text[64];
    if (isnan(unix_seconds) || !localtime_r(&seconds, &parts)) return;
    strftime(text, sizeof text, format, &parts);
    text_add(out, text);
}

static void number_text(double value, struct text *out) {
    if (isfinite(value)) text_printf(out, "%.10g", value);
}

static void duration_text(double seconds, struct text *out) {
    char text[32];
    if (!(seconds >= 0 && seconds < 1e15)) return;
    report_duration(seconds, text);
    text_add(out, text);
}

/* A fact whose text is [text], which is cleared. */
static void fact(struct text *out, const char *name, struct text *text) {
    page_fact(out, name, text_string(text));
    text_clear(text);
}

/* "97.31 % in epoch 2" */
static void best_value_text(const struct run_data *r, struct text *out) {
    char value[32];
    report_metric(r->best_metric, r->best_value, value);
    if (isfinite(r->best_value) && r->best_epoch > 0) text_printf(out, "%s in epoch %.0f", value, r->best_epoch);
}

/* The same after the name of the metric. */
static void best_text(const struct run_data *r, struct text *out) {
    SCOPED_TEXT value = {0};
    best_value_text(r, &value);
    if (value.length) text_printf(out, "%s %s", r->best_metric, text_string(&value));
}

/* The metric of all runs; NULL: they have several. */
static const char *common_metric(struct run_data *const *runs, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (strcmp(runs[i]->best_metric, runs[0]->best_metric) != 0) return NULL;
    return runs[0]->best_metric;
}

static void test_text(const struct run_data *r, struct text *out) {
    if (!isfinite(r->test_loss)) return;
    char accuracy[32];
    report_metric("accuracy", r->test_accuracy, accuracy);
    text_printf(out, "loss %.6g", r->test_loss);
    if (isfinite(r->test_accuracy)) text_printf(out, ", accuracy %s", accuracy);
    if (isfinite(r->test_rows)) text_printf(out, " on %.0f rows", r->test_rows);
}

/* The baseline of metric [name], "val_accuracy" or "val_loss"; NAN: there is none. */
static double baseline_value(const struct run_data *r, const char *name) {
    if (!r->baseline) return NAN;
    return strcmp(name, "val_accuracy") == 0 ? r->baseline_accuracy
           : strcmp(name, "val_loss") == 0   ? r->baseline_loss
                                             : NAN;
}

static void baseline_text(const struct run_data *r, struct text *out) {
    const char *name = isfinite(baseline_value(r, "val_accuracy")) ? "val_accuracy" : "val_loss";
    char value[32];
    if (!isfinite(baseline_value(r, name))) return;
    report_metric(name, baseline_value(r, name), value);
    text_printf(out, "%s %s, %s", name, value, r->baseline);
}

/* " (always the most frequent class: 39.90 %)" after the best value. */
static void add_baseline(const struct run_data *r, struct text *out) {
    double value = baseline_value(r, r->best_metric);
    bool is_worse = r->best_is_max ? r->best_value < value : r->best_value > value;
    char number[32];
    if (!isfinite(value)) return;
    report_metric(r->best_metric, value, number);
    text_printf(out, is_worse ? ", worse than %s: %s" : " (%s: %s)", r->baseline, number);
}

static double rate_of(const struct run_data *r) { return r->seconds > 0 ? r->samples / r->seconds : NAN; }

static void add_facts(struct text *out, const struct run_data *r) {
    static const struct {
        const char *name, *curve;
    } last[] = {{"Training loss", "train_loss"},
                {"Validation loss", "val_loss"},
                {"Training accuracy", "train_accuracy"},
                {"Validation accuracy", "val_accuracy"}};
    SCOPED_TEXT t = {0};
    char value[32];
    page_facts_begin(out);
    page_fact(out, "State", run_states[run_data_state(r)]);
    number_text(r->epochs, &t);
    if (t.length && isfinite(run_data_number(r, "train.epochs")))
        text_printf(&t, " of %.0f", run_data_number(r, "train.epochs"));
    fact(out, "Epochs", &t);
    number_text(r->steps, &t);
    if (t.length && isfinite(run_data_number(r, "train.steps")))
        text_printf(&t, " of %.0f", run_data_number(r, "train.steps"));
    fact(out, "Steps", &t);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        report_metric(last[i].curve, run_data_last(r, last[i].curve, false), value);
        if (isfinite(run_data_last(r, last[i].curve, false))) text_add(&t, value);
        fact(out, last[i].name, &t);
    }
    best_text(r, &t);
    fact(out, "Best epoch", &t);
    baseline_text(r, &t);
    fact(out, "Baseline", &t);
    test_text(r, &t);
    fact(out, "Test", &t);
    duration_text(r->seconds, &t);
    fact(out, "Time of training", &t);
    char rate[24];
    axis_number(rate_of(r), rate);
    if (isfinite(rate_of(r))) text_printf(&t, "%s samples/s", rate);
    fact(out, "Throughput", &t);
    if (isfinite(r->peak_memory)) text_printf(&t, "%.1f MiB at most, rank 0", r->peak_memory / 1048576);
    fact(out, "Memory", &t);
    number_text(r->parameters, &t);
    fact(out, "Parameters", &t);
    number_text(r->train_rows, &t);
    if (t.length && r->val_rows > 0) text_printf(&t, " + %.10g of validation", r->val_rows);
    if (t.length && r->test_rows > 0) text_printf(&t, " + %.10g of test", r->test_rows);
    fact(out, "Rows", &t);
    if (isfinite(r->batch_size)) text_printf(&t, "%.10g rows a process", r->batch_size);
    fact(out, "Batch", &t);
    if (isfinite(r->world_size)) text_printf(&t, "%.10g on %s", r->world_size, r->device ? r->device : "?");
    fact(out, "Processes", &t);
    add_time(r->modified, "%Y-%m-%d %H:%M:%S %z", &t);
    fact(out, "Last line written", &t);
    page_fact(out, "State SHA-256", r->sha256);
    page_fact(out, "Fingerprint of the data", r->fingerprint);
    page_fact(out, "Folder", r->path);
    page_facts_end(out);
}

static void add_row(struct text *out, const struct run_data *r, bool has_common_metric) {
    SCOPED_TEXT t = {0};
    page_row_begin(out, NULL);
    page_cell(out, r->label, NULL);
    page_cell(out, run_states[run_data_state(r)], NULL);
    page_number(out, r->epochs);
    page_number(out, r->steps);
    page_number(out, run_data_last(r, "train_loss", false));
    page_number(out, run_data_last(r, "val_loss", false));
    if (has_common_metric)
        best_value_text(r, &t);
    else
        best_text(r, &t);
    text_printf(out, "<td data-v=\"%.9g\">", isfinite(r->best_value) ? r->best_value : 0);
    html_add(out, t.length ? text_string(&t) : "-");
    text_add(out, "</td>");
    text_clear(&t);
    duration_text(r->seconds, &t);
    text_printf(out, "<td class=\"n\" data-v=\"%.9g\">", isfinite(r->seconds) ? r->seconds : 0);
    html_add(out, t.length ? text_string(&t) : "-");
    text_add(out, "</td>");
    page_number(out, rate_of(r));
    text_clear(&t);
    if (isfinite(r->world_size)) text_printf(&t, "%.10g on %s", r->world_size, r->device ? r->device : "?");
    page_cell(out, text_string(&t), NULL);
    text_clear(&t);
    if (isfinite(r->peak_memory)) text_printf(&t, "%.1f MiB", r->peak_memory / 1048576);
    page_cell(out, t.length ? text_string(&t) : "-", "n");
    text_clear(&t);
    add_time(r->modified, "%Y-%m-%d %H:%M", &t);
    page_cell(out, text_string(&t), "time");
    page_hash(out, r->sha256);
    page_row_end(out);
}

static void add_count(struct text *out, uint64_t count, const char *what) {
    if (count) text_printf(out, "%s%llu %s", out->length ? ", " : "", (unsigned long long)count, what);
}

static void add_notices(struct text *out, const struct run_data *r) {
    SCOPED_TEXT t = {0};
    add_count(&t, r->resumes, "resumed");
    add_count(&t, r->skipped, "batches skipped for numbers that are not finite");
    add_count(&t, r->rollbacks, "returns to a checkpoint");
    add_count(&t, r->failed_checkpoints, "checkpoints that did not reach the disk");
    if (t.length) page_note(out, "%s: %s.", r->label, text_string(&t));
    if (r->file.malformed)
        page_notice(out, "%s: %llu of %llu lines of metrics.jsonl are damaged and were left out.", r->label,
                    (unsigned long long)r->file.malformed, (unsigned long long)r->file.lines);
    if (r->file.is_torn && !r->is_locked)
        page_notice(out, "%s: the last line of metrics.jsonl is not complete (the run was killed) and was left out.",
                    r->label);
    if (r->curve_count == 0) page_notice(out, "%s: no step or epoch has ended yet.", r->label);
    if (!r->keys) page_notice(out, "%s: config.yaml is absent or cannot be read.", r->label);
}

/* The result in one sentence: of one run, or the best of runs with the same metric. */
static void add_headline(struct text *out, struct run_data *const *runs, size_t count) {
    const struct run_data *best = runs[0];
    SCOPED_TEXT value = {0};
    for (size_t i = 1; i < count; i++) {
        const struct run_data *r = runs[i];
        if (strcmp(r->best_metric, best->best_metric) != 0 || r->best_is_max != best->best_is_max) return;
        if (isnan(best->best_value) ||
            (best->best_is_max ? r->best_value > best->best_value : r->best_value < best->best_value))
            best = r;
    }
    best_text(best, &value);
    if (value.length) {
        text_add(out, "<p class=\"headline\">Best result: ");
        html_add(out, text_string(&value));
        if (count > 1) text_add(out, " of ");
        if (count > 1) html_add_short(out, best->label, 80);
        text_clear(&value);
        add_baseline(best, &value);
        html_add(out, text_string(&value));
        text_add(out, "</p>\n");
    }
}

void runs_section_overview(struct text *out, struct run_data *const *runs, size_t count) {
    const char *metric = common_metric(runs, count);
    SCOPED_STRING best = text_format("Best%s%s", metric ? " " : "", metric ? metric : "");
    const struct page_heading headings[] = {{"Run", false},          {"State", false},     {"Epochs", true},
                                            {"Steps", true},         {"Train loss", true}, {"Val. loss", true},
                                            {best, false},           {"Time", true},       {"Samples/s", true},
                                            {"Processes", false},    {"Memory", true},     {"Last written", false},
                                            {"State SHA-256", false}};
    add_headline(out, runs, count);
    if (count == 1) add_facts(out, runs[0]);
    if (count > 1) {
        page_table_begin(out, headings, sizeof headings / sizeof *headings, true);
        for (size_t i = 0; i < count; i++) add_row(out, runs[i], metric != NULL);
        page_table_end(out);
    }
    for (size_t i = 0; i < count; i++) add_notices(out, runs[i]);
}

/* ---- curves ---- */

#define MAX_OWN_LEGEND 6 /* runs whose plots have their own legends; more have one for all plots */

struct series {
    const struct curve *curve;
    const char *name;
    size_t index;                /* of its colour */
    const struct run_data *best; /* whose best epoch is a point of the curve; NULL: none */
};

/* What is drawn in one plot. */
struct plot_of {
    const char *title;
    bool is_of_steps, wants_log, is_percent, has_legend;
    const struct series *series; /* (count) */
    size_t count;
};

static bool is_log_of(const struct plot_of *p, double low, double high) {
    return p->wants_log && low > 0 && axis_wants_log(low, low, high);
}

static void add_missing(struct text *out, const struct plot_of *p) {
    uint64_t missing = 0;
    for (size_t i = 0; i < p->count; i++) missing += p->series[i].curve->missing;
    if (missing)
        page_note(out, "%llu value%s not finite and left out.", (unsigned long long)missing,
                  missing == 1 ? " is" : "s are");
}

static void note_band(struct text *out, const struct plot_of *p) {
    for (size_t i = 0; i < p->count; i++)
        if (svg_is_band(p->series[i].curve)) {
            page_note(out, "Line: mean of neighbours; shade: from the smallest to the largest.");
            return;
        }
}

static void mark_best(struct svg_plot *plot, const struct series *series) {
    const struct run_data *r = series->best;
    char value[32];
    if (!r) return;
    report_metric(r->best_metric, r->best_value, value);
    SCOPED_STRING class = text_format("best f%zu", series->index % SVG_COLORS);
    SCOPED_STRING title = text_format("%s: best epoch %.0f, %s %s", series->name, r->best_epoch, r->best_metric, value);
    svg_point(plot, r->best_epoch, r->best_value, 4, class, title);
}

static void add_own_legend(struct text *out, const struct plot_of *p) {
    svg_legend_begin(out);
    for (size_t i = 0; i < p->count; i++) svg_legend_add(out, p->series[i].name, p->series[i].index);
    svg_legend_end(out);
}

static void draw(struct text *out, const struct plot_of *p) {
    double low = INFINITY, high = -INFINITY, left = INFINITY, right = -INFINITY;
    for (size_t i = 0; i < p->count; i++) {
        const struct curve *c = p->series[i].curve;
        low = fmin(low, c->lowest.y);
        high = fmax(high, c->highest.y);
        left = fmin(left, c->first.x);
        right = fmax(right, c->last.x);
    }
    struct svg_plot plot = {.out = out, .x.label = p->is_of_steps ? "step" : "epoch", .is_fine = true};
    plot.y.is_log = is_log_of(p, low, high);
    plot.y.is_percent = p->is_percent;
    axis_fit(&plot.x, left, right, false);
    axis_fit(&plot.y, low, high, true);
    SCOPED_STRING title = text_format("%s%s", p->title, plot.y.is_log ? " (logarithmic)" : "");
    svg_begin(&plot, title);
    for (size_t i = 0; i < p->count; i++) {
        svg_series_begin(&plot);
        svg_curve(&plot, p->series[i].curve, p->series[i].index, p->series[i].name);
        mark_best(&plot, &p->series[i]);
        svg_series_end(&plot);
    }
    svg_end(&plot);
    if (p->has_legend) add_own_legend(out, p);
    note_band(out, p);
    add_missing(out, p);
    svg_end_figure(out);
}

/* The well-known series, in the order in which they are drawn; others follow. */
static const struct known {
    const char *title;     /* of both together */
    const char *names[2];  /* training, validation */
    const char *titles[2]; /* of one alone */
    bool is_of_steps, wants_log;
} known[] = {
    {"Loss", {"train_loss", "val_loss"}, {"Training loss", "Validation loss"}, false, true},
    {"Accuracy", {"train_accuracy", "val_accuracy"}, {"Training accuracy", "Validation accuracy"}, false, false},
    {NULL, {"loss", NULL}, {"Loss of each step", NULL}, true, true},
    {NULL, {"grad_norm", NULL}, {"Gradient norm", NULL}, true, true},
    {NULL, {"lr", NULL}, {"Learning rate", NULL}, true, false},
    {NULL, {"loss_scale", NULL}, {"Loss scale", NULL}, true, true},
    {NULL, {"samples_per_second", NULL}, {"Samples per second", NULL}, false, false},
    {NULL, {"comm_hidden", NULL}, {"Share of communication during backward", NULL}, false, false},
};
#define N_KNOWN (sizeof known / sizeof *known)

static bool is_known(const struct run_curve *c) {
    if (strcmp(c->name, "lr") == 0) return true; /* of epochs: drawn where there is none of steps */
    for (size_t i = 0; i < N_KNOWN; i++)
        for (int k = 0; k < 2; k++)
            if (known[i].names[k] && strcmp(known[i].names[k], c->name) == 0 && known[i].is_of_steps == c->is_of_steps)
                return true;
    return false;
}

#define MIN_POINTS 2 /* of a curve */

/* The curve of [name] of a run as a series; false: it has too few points. */
static bool series_of(const struct run_data *r, const char *name, bool is_of_steps, struct series *out) {
    const struct curve *curve = run_data_curve(r, name, is_of_steps);
    bool has_best = !is_of_steps && strcmp(name, r->best_metric) == 0 && isfinite(r->best_value) && r->best_epoch > 0;
    if (!curve || curve->values < MIN_POINTS) return false;
    *out = (struct series){.curve = curve, .name = r->label, .best = has_best ? r : NULL};
    return true;
}

/* The series [name] of all runs; returns how many there are. */
static size_t collect(struct run_data *const *runs, size_t count, const char *name, bool is_of_steps,
                      struct series *out) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (series_of(runs[i], name, is_of_steps, &out[found])) out[found++].index = i;
    return found;
}

/* Whether all values of each series are equal. */
static bool is_constant(const struct plot_of *p) {
    for (size_t i = 0; i < p->count; i++)
        if (p->series[i].curve->lowest.y != p->series[i].curve->highest.y) return false;
    return p->count > 0;
}

static bool is_percent(const char *name) { return report_is_percent(name) || strcmp(name, "comm_hidden") == 0; }

static size_t draw_all(struct text *out, struct run_data *const *runs, size_t count, const char *title,
                       const char *name, bool is_of_steps, bool wants_log, struct series *series) {
    struct plot_of plot = {.title = title,
                           .is_of_steps = is_of_steps,
                           .wants_log = wants_log,
                           .is_percent = is_percent(name),
                           .series = series,
                           .count = collect(runs, count, name, is_of_steps, series)};
    plot.has_legend = count > 1 && count <= MAX_OWN_LEGEND;
    if (strcmp(name, "lr") == 0 && is_constant(&plot)) return 1; /* the config has its value */
    if (plot.count) draw(out, &plot);
    return plot.count > 0;
}

/* Training and validation of one run. */
static size_t draw_pair(struct text *out, struct run_data *const *runs, const struct known *k, struct series *series) {
    struct plot_of plot = {.title = k->title,
                           .is_of_steps = k->is_of_steps,
                           .wants_log = k->wants_log,
                           .is_percent = is_percent(k->names[0]),
                           .series = series};
    static const char *const names[] = {"training", "validation"};
    for (size_t i = 0; i < 2; i++) {
        if (!series_of(runs[0], k->names[i], k->is_of_steps, &series[plot.count])) continue;
        series[plot.count].index = i;
        series[plot.count++].name = names[i];
    }
    plot.has_legend = plot.count > 1;
    if (plot.count == 1) plot.title = k->titles[series[0].index];
    if (plot.count) draw(out, &plot);
    return plot.count > 0;
}

static size_t draw_known(struct text *out, struct run_data *const *runs, size_t count, const struct known *k,
                         struct series *series) {
    size_t drawn = 0;
    if (k->title && count == 1) return draw_pair(out, runs, k, series);
    for (int i = 0; i < 2 && k->names[i]; i++)
        drawn += draw_all(out, runs, count, k->titles[i], k->names[i], k->is_of_steps, k->wants_log, series);
    if (drawn == 0 && strcmp(k->names[0], "lr") == 0)
        drawn += draw_all(out, runs, count, k->titles[0], "lr", false, false, series);
    return drawn;
}

/* "val_f1" -> "Validation: f1" */
static void add_title(const struct run_curve *curve, struct text *out) {
    bool is_validation = strncmp(curve->name, "val_", 4) == 0;
    text_printf(out, "%s%s", is_validation ? "Validation: " : "", curve->name + (is_validation ? 4 : 0));
}

/* Whether an earlier run has the same series, which then is drawn already. */
static bool is_drawn(struct run_data *const *runs, size_t run, size_t curve) {
    const struct run_curve *c = &runs[run]->curves[curve];
    for (size_t i = 0; i < run; i++)
        if (run_data_curve(runs[i], c->name, c->is_of_steps)) return true;
    return false;
}

static size_t draw_others(struct text *out, struct run_data *const *runs, size_t count, struct series *series) {
    size_t drawn = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < runs[i]->curve_count; k++) {
            const struct run_curve *c = &runs[i]->curves[k];
            SCOPED_TEXT title = {0};
            if (is_known(c) || is_drawn(runs, i, k)) continue;
            add_title(c, &title);
            drawn += draw_all(out, runs, count, text_string(&title), c->name, c->is_of_steps,
                              strstr(c->name, "loss") || strstr(c->name, "perplexity"), series);
        }
    return drawn;
}

/* Of more runs than a plot's own legend holds. */
static void add_legend(struct text *out, struct run_data *const *runs, size_t count) {
    svg_legend_begin(out);
    for (size_t i = 0; i < count; i++) svg_legend_add(out, runs[i]->label, i);
    svg_legend_end(out);
}

void runs_section_curves(struct text *out, struct run_data *const *runs, size_t count) {
    struct series *series = status_need(calloc(count + 2, sizeof *series));
    size_t drawn = 0;
    text_add(out, "<div class=\"plots curves\">\n");
    if (count > MAX_OWN_LEGEND) add_legend(out, runs, count);
    drawn += draw_known(out, runs, count, &known[0], series);
    drawn += draw_known(out, runs, count, &known[1], series);
    drawn += draw_others(out, runs, count, series);
    for (size_t i = 2; i < N_KNOWN; i++) drawn += draw_known(out, runs, count, &known[i], series);
    text_add(out, "</div>\n");
    if (drawn == 0) page_note(out, "There are no curves yet: no series has two values.");
    free(series);
}

/* ---- confusion matrices ---- */

#define MAX_MATRICES 12
#define MAX_DRAWN_CLASSES 100
#define MAX_CONFUSIONS 10

struct confusion {
    size_t target, predicted;
    double count;
};

static void add_class(struct text *out, const struct string_list *labels, size_t index) {
    if (labels->count)
        page_cell(out, labels->items[index], NULL);
    else
        page_number(out, (double)index);
}

/* The most frequent wrong predictions, as a table. */
static void list_confusions(struct text *out, const struct run_data *r, const struct string_list *labels) {
    const struct page_heading headings[] = {{"Target", !labels->count}, {"Predicted", !labels->count}, {"Rows", true}};
    struct confusion top[MAX_CONFUSIONS];
    size_t found = 0, n = r->classes;
    for (size_t i = 0; i < n * n; i++) {
        double count = r->confusion[i];
        if (i / n == i % n || count == 0 || (found == MAX_CONFUSIONS && count <= top[found - 1].count)) continue;
        size_t at = found < MAX_CONFUSIONS ? found++ : found - 1;
        for (; at > 0 && count > top[at - 1].count; at--) top[at] = top[at - 1];
        top[at] = (struct confusion){i / n, i % n, count};
    }
    if (!found) return;
    page_note(out, "The most frequent wrong predictions:");
    page_table_begin(out, headings, 3, false);
    for (size_t i = 0; i < found; i++) {
        page_row_begin(out, NULL);
        add_class(out, labels, top[i].target);
        add_class(out, labels, top[i].predicted);
        page_number(out, top[i].count);
        page_row_end(out);
    }
    page_table_end(out);
}

static void draw_confusion(struct text *out, const struct run_data *r, const char *title) {
    SCOPED_ARENA arena = arena_create();
    struct string_list labels = class_labels_read(r, arena);
    if (r->classes <= MAX_DRAWN_CLASSES)
        svg_matrix(out, title, r->confusion, r->classes, labels.count ? labels.items : NULL);
    else
        text_printf(out, "<figure><figcaption>%zu classes, too many to draw</figcaption>", r->classes);
    if (r->classes > 12) list_confusions(out, r, &labels);
    svg_end_figure(out);
}

void runs_section_confusion(struct text *out, struct run_data *const *runs, size_t count) {
    size_t drawn = 0;
    for (size_t i = 0; i < count && drawn < MAX_MATRICES; i++) {
        const struct run_data *r = runs[i];
        if (!r->confusion) continue;
        if (drawn++ == 0)
            text_add(out, "<h2>Confusion matrix of the newest epoch</h2>\n<p class=\"note\">A row is a target class, a "
                          "column a predicted class; the shade is the share of the row's targets.</p>\n"
                          "<div class=\"plots\">\n");
        draw_confusion(out, r, count > 1 ? r->label : "Counts of validation rows");
    }
    if (drawn) text_add(out, "</div>\n");
}

/* ---- config ---- */

static bool differs(struct run_data *const *runs, size_t count, const char *key) {
    const char *first = run_data_key(runs[0], key);
    for (size_t i = 1; i < count; i++) {
        const char *value = run_data_key(runs[i], key);
        if (!first != !value || (first && strcmp(first, value) != 0)) return true;
    }
    return false;
}

static bool has_before(struct run_data *const *runs, size_t run, const char *key) {
    for (size_t i = 0; i < run; i++)
        if (run_data_key(runs[i], key)) return true;
    return false;
}

#define MAX_DIFFERENCES 200 /* keys */

/* The keys in which runs differ; returns how many there are. */
static size_t find_differences(struct run_data *const *runs, size_t count, const char **keys) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < runs[i]->key_count && found < MAX_DIFFERENCES; k++) {
            const char *key = runs[i]->keys[k].key;
            if (!has_before(runs, i, key) && differs(runs, count, key)) keys[found++] = key;
        }
    return found;
}

static void add_differences(struct text *out, struct run_data *const *runs, size_t count) {
    const char *keys[MAX_DIFFERENCES];
    struct page_heading headings[MAX_DIFFERENCES + 1] = {{"Run", false}};
    size_t found = find_differences(runs, count, keys);
    for (size_t k = 0; k < found; k++) headings[k + 1].text = keys[k];
    text_add(out, "<h3>Differences</h3>\n");
    if (!found) {
        page_note(out, "All runs have the same config.");
        return;
    }
    page_table_begin(out, headings, found + 1, true);
    for (size_t i = 0; i < count; i++) {
        page_row_begin(out, NULL);
        page_cell(out, runs[i]->label, NULL);
        for (size_t k = 0; k < found; k++) page_cell(out, run_data_key(runs[i], keys[k]), "code");
        page_row_end(out);
    }
    page_table_end(out);
}

static void add_config(struct text *out, const struct run_data *r) {
    static const struct page_heading headings[] = {{"Key", false}, {"Value", false}};
    page_table_begin(out, headings, 2, false);
    for (size_t i = 0; i < r->key_count; i++) {
        page_row_begin(out, NULL);
        page_cell(out, r->keys[i].key, "code");
        page_cell(out, r->keys[i].value, "code");
        page_row_end(out);
    }
    page_table_end(out);
}

#define MAX_CONFIGS 20 /* in full */

void runs_section_config(struct text *out, struct run_data *const *runs, size_t count) {
    text_add(out, "<h2>Config</h2>\n");
    if (count > 1) add_differences(out, runs, count);
    for (size_t i = 0; i < count && i < MAX_CONFIGS; i++) {
        if (!runs[i]->keys) continue;
        text_add(out, "<details><summary>Every key of ");
        html_add_short(out, runs[i]->label, 80);
        text_add(out, ", with defaults</summary>\n");
        add_config(out, runs[i]);
        text_add(out, "</details>\n");
    }
    if (count > MAX_CONFIGS) page_note(out, "Configs in full are of the first %d runs.", MAX_CONFIGS);
}
