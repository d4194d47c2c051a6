/* On a terminal a line that moves; in a batch log at most one line every 10 s, and one for each new best. */
#include "sweep/sweep_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "sweep/compare/comparability.h"
#include "sweep/sweep_folder.h"
#include "train/metrics/report.h"

#define BAR_WIDTH 24
#define LINE_SECONDS 10
#define BEST_SHOWN 5

static int64_t runs_of(const struct sweep_report *r) { return r->sweep->trials * r->sweep->runs; }

static int64_t ended(const struct sweep_report *r) { return runs_of(r) - trials_count(r->trials, TRIAL_PENDING); }

/* "12 pruned, 1 failed" with a comma before it; nothing where there are none. */
static void add_counts(const struct sweep_report *r, struct text *out) {
    for (int state = TRIAL_PRUNED; state <= TRIAL_FAILED; state++)
        if (trials_count(r->trials, state))
            text_printf(out, ", %" PRId64 " %s", trials_count(r->trials, state), trial_states[state]);
}

static const char *noun(const struct sweep_report *r) { return r->sweep->runs > 1 ? "run" : "trial"; }

/* The rate is that when the last run ended: time without an end does not make the rest longer. A rest that has passed
 * is not known. */
static void add_progress(const struct sweep_report *r, struct text *out) {
    int64_t here = ended(r) - r->before;
    double rate = (double)here / fmax(r->last_end - r->started, 1e-6);
    text_printf(out, "%" PRId64 " of %" PRId64 " %ss", ended(r), runs_of(r), noun(r));
    add_counts(r, out);
    char best[32];
    report_metric(r->sweep->metric.name, r->best_value, best);
    if (r->best >= 0) text_printf(out, ", best %s (trial %" PRId64 ")", best, r->best);
    if (here == 0) return;
    text_printf(out, ", %.3g %ss/s", rate, noun(r));
    double left = (double)(runs_of(r) - ended(r)) / rate - (clock_seconds() - r->last_end);
    char duration[32];
    report_duration(left, duration);
    if (left > 0) text_printf(out, ", %s left", duration);
}

static void add_point(const struct sweep_report *r, int64_t trial, struct text *out) {
    struct point point;
    if (r->sweep->list) {
        for (const char *const *word = r->sweep->list[trial]; *word; word++) text_printf(out, "  %s", *word);
        return;
    }
    trials_point(r->trials, trial, &point);
    for (size_t i = 0; i < r->sweep->space.count; i++) {
        text_printf(out, "  %s=", r->sweep->space.items[i].path);
        parameter_write(&r->sweep->space.items[i], point.values[i], out);
    }
}

static void warn_of_goal(const struct sweep_report *r) {
    const struct sweep_metric *metric = &r->sweep->metric;
    const char *usual = sweep_goal_name(sweep_goal_of(metric->name));
    if (metric->goal != (int)sweep_goal_of(metric->name))
        log_warning(r->log, "metric.goal is %s, although the usual goal of %s is %s; leave goal out to %s it",
                    sweep_goal_name((enum sweep_goal)metric->goal), metric->name, usual, usual);
}

static bool has_word(const char *const *words, const char *word) {
    while (*words && strcmp(*words, word) != 0) words++;
    return *words != NULL;
}

/* Adds a sentence for each KEY=VALUE word of [words] that [others] lack. */
static void add_warnings_of_words(const struct sweep_report *r, const char *const *words, const char *const *others,
                                  struct text *out) {
    struct text key = {0};
    for (; *words; words++) {
        if (has_word(others, *words)) continue;
        text_clear(&key);
        text_printf(&key, "%.*s", (int)strcspn(*words, "="), *words);
        comparability_explain_key(text_string(&key), r->sweep->metric.name, out);
    }
    text_free(&key);
}

/* A warning for each parameter that changes what the metric means; of a list the first trials that differ in one. */
static void warn_of_parameters(const struct sweep_report *r) {
    const struct sweep_config *sweep = r->sweep;
    struct text warnings = {0};
    for (size_t i = 0; i < sweep->space.count; i++) {
        const struct parameter *p = &sweep->space.items[i];
        if (p->kind != PARAMETER_VALUES || p->count > 1)
            comparability_explain_key(p->path, sweep->metric.name, &warnings);
    }
    for (int64_t i = 1; sweep->list && i < sweep->trials && !warnings.length; i++) {
        add_warnings_of_words(r, sweep->list[i], sweep->list[0], &warnings);
        if (!warnings.length) add_warnings_of_words(r, sweep->list[0], sweep->list[i], &warnings);
    }
    for (const char *line = text_string(&warnings); *line; line += strcspn(line, "\n") + 1)
        log_warning(r->log, "%.*s", (int)strcspn(line, "\n"), line);
    text_free(&warnings);
}

void sweep_report_start(struct sweep_report *r) {
    r->started = r->shown = r->printed = r->last_end = clock_seconds();
    r->before = ended(r);
    r->best = -1;
    r->best_value = NAN;
    int64_t best;
    if (trials_best(r->trials, 1, &best) == 1) {
        r->best = best;
        r->best_value = trials_summary(r->trials, best).mean;
    }
    log_line(r->log, "%s: %" PRId64 " trial%s%s (%s), %d worker%s", r->folder, r->sweep->trials,
             text_plural((uint64_t)r->sweep->trials, "s"), r->sweep->runs > 1 ? " of several runs" : "",
             sweep_method_name((enum sweep_method)r->sweep->method), r->workers,
             text_plural((uint64_t)r->workers, "s"));
    warn_of_goal(r);
    warn_of_parameters(r);
    if (r->before > 0)
        log_line(r->log, "continuing: %" PRId64 " of %" PRId64 " %ss have ended", r->before, runs_of(r), noun(r));
}

/* "0.123 +- 0.004", of accuracies "97.31 % +- 0.42 %" */
static void add_mean(const struct sweep_report *r, const struct trial_summary *s, struct text *out) {
    char mean[32], error[32];
    report_metric(r->sweep->metric.name, s->mean, mean);
    report_metric_error(r->sweep->metric.name, s->error, error);
    text_add(out, mean);
    if (!isnan(s->error)) text_printf(out, " +- %s", error);
}

void sweep_report_run(struct sweep_report *r, int64_t run) {
    int64_t trial = run / r->sweep->runs;
    struct trial_summary s = trials_summary(r->trials, trial);
    const struct trial_run *result = trials_run(r->trials, run);
    struct text line = {0};
    r->last_end = clock_seconds();
    if (result->state == TRIAL_FAILED && trials_count(r->trials, TRIAL_FAILED) <= 3)
        log_warning(r->log, "trial %" PRId64 " failed: %s", trial, result->message ? result->message : "");
    if (s.state == TRIAL_COMPLETE && trials_is_better(r->sweep, s.mean, r->best_value)) {
        r->best = trial;
        r->best_value = s.mean;
        text_printf(&line, "trial %" PRId64 ": %s ", trial, r->sweep->metric.name);
        add_mean(r, &s, &line);
        add_point(r, trial, &line);
        log_line(r->log, "%s", text_string(&line));
    }
    text_free(&line);
}

void sweep_report_progress(struct sweep_report *r) {
    double now = clock_seconds();
    struct text line = {0};
    bool has_bar = log_has_progress(r->log);
    if (now - (has_bar ? r->shown : r->printed) < (has_bar ? 0.1 : LINE_SECONDS)) return;
    r->shown = r->printed = now;
    if (has_bar) {
        double fraction = (double)ended(r) / (double)runs_of(r);
        int filled = (int)(fraction * BAR_WIDTH);
        text_printf(&line, "%3d %% [", (int)(fraction * 100));
        for (int i = 0; i < BAR_WIDTH; i++) text_add(&line, i < filled ? "=" : i == filled ? ">" : " ");
        text_add(&line, "] ");
    }
    add_progress(r, &line);
    if (has_bar && line.length >= log_width()) line.data[log_width() - 1] = 0;
    (has_bar ? log_progress(r->log, text_string(&line)) : log_line(r->log, "%s", text_string(&line)));
    text_free(&line);
}

/* The best trials, and how to train the best one again. */
static void list_best(const struct sweep_report *r) {
    int64_t best[BEST_SHOWN], count = trials_best(r->trials, BEST_SHOWN, best);
    struct text line = {0};
    if (count) log_line(r->log, "best of %s (%s):", r->sweep->metric.name, r->sweep->runs > 1 ? "mean" : "best epoch");
    for (int64_t i = 0; i < count; i++) {
        struct trial_summary s = trials_summary(r->trials, best[i]);
        text_clear(&line);
        text_printf(&line, "  trial %04" PRId64 "  ", best[i]);
        add_mean(r, &s, &line);
        add_point(r, best[i], &line);
        log_line(r->log, "%s", text_string(&line));
    }
    text_clear(&line);
    if (count && r->sweep->kept > 0) {
        struct text word = {0};
        sweep_run_path(r->folder, r->sweep, best[0] * r->sweep->runs, &line);
        text_add(&line, "/config.yaml");
        text_add_shell(&word, text_string(&line));
        log_line(r->log, "the best one is a run like any other: ddptrain eval %s --checkpoint best",
                 text_string(&word));
        text_free(&word);
    }
    text_free(&line);
}

void sweep_report_end(struct sweep_report *r) {
    char duration[32];
    struct text counts = {0};
    report_duration(clock_seconds() - r->started, duration);
    add_counts(r, &counts);
    log_line(r->log, "%s%" PRId64 " of %" PRId64 " %ss%s in %s; table: %s/trials.csv", r->is_done ? "done: " : "",
             ended(r), runs_of(r), noun(r), text_string(&counts), duration, r->folder);
    text_clear(&counts);
    trials_explain_values(r->trials, &counts);
    if (counts.length) log_warning(r->log, "%s", text_string(&counts));
    text_free(&counts);
    list_best(r);
}
