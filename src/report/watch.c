/* The lines of `ddptrain watch`, from the data of a run or a sweep. Rates are those of what happened while this process
 * watched; before, those that the files say. */
#include "report/report_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "report/run_data.h"
#include "report/svg.h"
#include "report/sweep_data.h"
#include "train/folder/run_folder.h"
#include "train/metrics/report.h"

struct watch {
    struct run_data *run; /* one of both */
    struct sweep_data *sweep;
    double started, now; /* monotonic time of the first reading, of the last one */
    double first, done;  /* how much was done then: share of a run, runs of a sweep; NAN: unknown */
    double modified;     /* when the files changed, in seconds since 1970; NAN: there are none */
};

/* ---- reading ---- */

/* Steps of an epoch; NAN: unknown. */
static double epoch_updates(const struct run_data *r) {
    double accumulate = run_data_number(r, "train.accumulate");
    if (r->epoch_updates > 0) return r->epoch_updates;
    double batches = ceil(r->train_rows / (r->batch_size * r->world_size));
    return ceil(batches / (accumulate >= 1 ? accumulate : 1));
}

/* The share of a run that is done. */
static double share_of(const struct run_data *r) {
    double steps = run_data_number(r, "train.steps"), epochs = run_data_number(r, "train.epochs");
    double share = NAN;
    if (r->has_ended) return 1;
    if (steps > 0)
        share = isnan(r->steps) ? 0 : r->steps / steps;
    else if (epochs > 0 && isfinite(r->steps) && epoch_updates(r) > 0)
        share = r->steps / (epoch_updates(r) * epochs);
    else if (epochs > 0)
        share = isnan(r->epochs) ? 0 : r->epochs / epochs;
    return share > 1 ? 1 : share;
}

static status read_again(struct watch *w) {
    if (w->run) TRY(run_data_update(w->run));
    if (w->sweep) TRY(sweep_data_update(w->sweep));
    w->now = clock_seconds();
    w->done = w->run ? share_of(w->run) : (double)w->sweep->run_count;
    w->modified = w->run ? w->run->modified : w->sweep->modified;
    if (!(w->done >= w->first)) { /* begun anew */
        w->first = w->done;
        w->started = w->now;
    }
    return OK;
}

status watch_open(const char *path, struct watch **out) {
    struct watch *w = calloc(1, sizeof *w);
    bool is_sweep;
    *out = NULL;
    if (!w) return status_memory("what is watched");
    w->first = NAN;
    status s = sweep_data_is_sweep(path, &is_sweep);
    if (!s) s = is_sweep ? sweep_data_read(path, &w->sweep) : run_data_read(path, &w->run);
    if (!s) s = read_again(w);
    if (s) watch_close(w);
    if (!s) *out = w;
    return s;
}

static status is_empty(const char *folder, bool *out) {
    SCOPED_NAMES names = {0};
    TRY(io_list(folder, &names));
    *out = names.count == 0;
    return OK;
}

status watch_is_absent(const char *path, bool *out) {
    struct io_info info;
    bool is_run, is_sweep, is_locked;
    TRY(io_stat(path, &info));
    *out = !info.exists;
    if (!info.is_folder) return OK;
    TRY(run_folder_is_readable(path, &is_run));
    TRY(sweep_data_is_sweep(path, &is_sweep));
    if (is_run || is_sweep) return OK;
    TRY(folder_lock_is_held(path, &is_locked));
    *out = is_locked;
    return is_locked ? OK : is_empty(path, out);
}

status watch_update(struct watch *watch) { return read_again(watch); }

void watch_close(struct watch *w) {
    if (!w) return;
    run_data_free(w->run);
    sweep_data_free(w->sweep);
    free(w);
}

static bool is_silent(const struct watch *w) { return !(clock_unix() - w->modified < WATCH_SILENCE); }

bool watch_has_ended(const struct watch *w) {
    if (w->run ? w->run->is_locked : w->sweep->is_locked) return false;
    if (w->run ? w->run->has_ended || w->run->has_stopped : w->sweep->has_stopped || sweep_data_is_complete(w->sweep))
        return true;
    return !isnan(w->modified) && is_silent(w);
}

/* ---- lines ---- */

struct page_of_lines {
    struct text *out;
    size_t width;
    bool has_blocks;
    struct text line;
    size_t name_length; /* of the line's name and the space behind it; 0: it has none */
};

/* Ends the line, cut to the width; leaves out one that has a name only. All characters of a line are one column wide
 * but those of names in other scripts, which are counted by their bytes. */
static void end_line(struct page_of_lines *p) {
    size_t columns = 0, at = 0;
    const char *text = text_string(&p->line);
    for (; text[at] && columns < p->width; at++) {
        bool is_block = strncmp(text + at, "\xe2\x96", 2) == 0;
        at += is_block ? 2 : 0;
        columns++;
    }
    while ((text[at] & 0xc0) == 0x80) at--; /* not within a character */
    size_t word = at;
    while (text[at] && text[at] != ' ' && word > p->name_length && text[word - 1] != ' ') word--;
    if (word > p->name_length) at = word; /* not within a number, which would be another one */
    while (at > 0 && text[at - 1] == ' ') at--;
    if (p->line.length > p->name_length) {
        text_add_bytes(p->out, text, at);
        text_add(p->out, "\n");
    }
    text_clear(&p->line);
    p->name_length = 0;
}

static void begin_line(struct page_of_lines *p, const char *name) {
    text_printf(&p->line, "%-9s ", name);
    p->name_length = p->line.length;
}

static void add_duration(struct page_of_lines *p, double seconds) {
    char text[32];
    if (seconds < 60)
        snprintf(text, sizeof text, "%.0f s", floor(seconds));
    else
        report_duration(seconds, text);
    text_add(&p->line, text);
}

static void add_name(struct page_of_lines *p, const char *name) { text_add_value(&p->line, name, TEXT_MAX_NAME); }

#define MAX_BAR 30

static void add_bar(struct page_of_lines *p, double share) {
    int width = p->width > 5 * MAX_BAR ? MAX_BAR : (int)p->width / 5, filled = (int)(share * width);
    text_add(&p->line, "[");
    for (int i = 0; i < width; i++) text_add(&p->line, i < filled ? "=" : i == filled ? ">" : " ");
    text_printf(&p->line, "] %.0f %%", floor(share * 100));
}

#define LINE_WIDTH 60 /* of a sparkline */
#define LEVELS 8

static void add_sparkline(struct page_of_lines *p, const char *name, const struct curve *curve) {
    static const char *const blocks[LEVELS] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                               "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const marks[LEVELS] = {"_", ".", ",", "-", "=", "+", "*", "#"};
    struct curve_group groups[LINE_WIDTH];
    char low[24], high[24];
    if (!curve || curve->values < 2 || p->width < 30) return;
    size_t width = p->width - 28 < LINE_WIDTH ? p->width - 28 : LINE_WIDTH;
    size_t count = curve_groups(curve, width, groups);
    struct axis axis = {.is_log = axis_wants_log(curve->lowest.y, curve->lowest.y, curve->highest.y)};
    axis_fit(&axis, curve->lowest.y, curve->highest.y, false);
    axis_number(curve->lowest.y, low);
    axis_number(curve->highest.y, high);
    begin_line(p, name);
    for (size_t i = 0; i < count; i++) {
        int level = (int)(axis_place(&axis, groups[i].mean) * (LEVELS - 0.001));
        text_add(&p->line, (p->has_blocks ? blocks : marks)[level]);
    }
    text_printf(&p->line, "  %s to %s", low, high);
    end_line(p);
}

static void add_left(struct page_of_lines *p, double seconds) {
    if (!(seconds >= 0 && seconds < 1e9)) return;
    add_duration(p, seconds);
    text_add(&p->line, " left");
}

static void add_age(const struct watch *w, struct page_of_lines *p) {
    double age = clock_unix() - w->modified;
    if (isnan(age)) return;
    begin_line(p, "changed");
    add_duration(p, age < 0 ? 0 : age);
    text_add(&p->line, " ago");
    end_line(p);
}

/* "running", or what else is known without a process on this host. */
static const char *state_without_lock(const struct watch *w) {
    return isnan(w->modified) ? "not begun"
           : is_silent(w)     ? "failed or killed"
                              : "running on another host, or just ended";
}

/* ---- a run ---- */

static void add_number(struct page_of_lines *p, const char *name, double value) {
    if (isfinite(value)) text_printf(&p->line, "%s %.6g  ", name, value);
}

static void add_metric(struct page_of_lines *p, const char *name, double value) {
    char text[32];
    report_metric(name, value, text);
    if (isfinite(value)) text_printf(&p->line, "%s %s  ", name, text);
}

static void add_run_state(const struct watch *w, struct page_of_lines *p) {
    const struct run_data *r = w->run;
    enum run_state state = run_data_state(r);
    add_name(p, r->path);
    text_printf(&p->line, ": %s",
                state == RUN_FAILED || state == RUN_EMPTY ? state_without_lock(w) : run_states[state]);
    if (isfinite(r->world_size))
        text_printf(&p->line, ", %.0f process%s", r->world_size, r->world_size > 1 ? "es" : "");
    if (r->device) {
        text_add(&p->line, " on ");
        add_name(p, r->device);
    }
    end_line(p);
}

static void add_of(struct page_of_lines *p, const char *what, double number, double total) {
    text_printf(&p->line, "%s %.10g", what, isnan(number) ? 0 : number);
    if (isfinite(total)) text_printf(&p->line, " of %.10g", total);
    text_add(&p->line, "  ");
}

/* Seconds that the rest takes. */
static double run_left(const struct watch *w) {
    double watched = w->now - w->started, rest = 1 - w->done;
    if (w->run->has_ended || w->run->has_stopped) return NAN;
    if (watched > 2 && w->done > w->first) return rest * watched / (w->done - w->first);
    return w->run->seconds / w->done * rest;
}

static void add_run_rate(const struct watch *w, struct page_of_lines *p) {
    const struct run_data *r = w->run;
    char rate[24];
    double newest = run_data_last(r, "samples_per_second", false);
    axis_number(isfinite(newest) ? newest : r->samples / r->seconds, rate);
    begin_line(p, "rate");
    if (r->seconds > 0) text_printf(&p->line, "%s samples/s  ", rate);
    add_left(p, run_left(w));
    end_line(p);
}

static void write_run(const struct watch *w, struct page_of_lines *p) {
    const struct run_data *r = w->run;
    const struct curve *steps = run_data_curve(r, "loss", true);
    add_run_state(w, p);
    begin_line(p, "progress");
    if (isfinite(w->done)) add_bar(p, w->done);
    text_add(&p->line, "  ");
    double epochs = run_data_number(r, "train.epochs"), total = run_data_number(r, "train.steps");
    if (isfinite(r->epochs) || !(total > 0)) add_of(p, "epoch", r->epochs, epochs);
    add_of(p, "step", r->steps, total);
    end_line(p);
    begin_line(p, "epoch");
    add_number(p, "train loss", run_data_last(r, "train_loss", false));
    add_number(p, "validation loss", run_data_last(r, "val_loss", false));
    add_metric(p, "accuracy", run_data_last(r, "val_accuracy", false));
    end_line(p);
    if (isfinite(run_data_last(r, "loss", true))) {
        begin_line(p, "step");
        add_number(p, "loss", run_data_last(r, "loss", true));
        add_number(p, "lr", run_data_last(r, "lr", true));
        add_number(p, "gradient norm", run_data_last(r, "grad_norm", true));
        end_line(p);
    }
    if (isfinite(r->best_value) && r->best_epoch > 0) {
        char best[32];
        begin_line(p, "best");
        add_name(p, r->best_metric);
        report_metric(r->best_metric, r->best_value, best);
        text_printf(&p->line, " %s in epoch %.0f", best, r->best_epoch);
        end_line(p);
    }
    add_run_rate(w, p);
    add_sparkline(p, "loss", steps && steps->values > 1 ? steps : run_data_curve(r, "train_loss", false));
    add_sparkline(p, "val. loss", run_data_curve(r, "val_loss", false));
    add_age(w, p);
}

/* ---- a sweep ---- */

static void add_counts(const struct sweep_data *s, struct page_of_lines *p) {
    int64_t total = sweep_data_total(s);
    begin_line(p, "progress");
    if (total > 0) {
        double share = (double)s->run_count / (double)total;
        add_bar(p, sweep_data_is_complete(s) || share > 1 ? 1 : share);
    }
    text_printf(&p->line, "  %zu", s->run_count);
    if (total >= 0) text_printf(&p->line, " of %" PRId64, total);
    text_add(&p->line, sweep_data_repeats(s) > 1 ? " runs:" : " trials:");
    for (int state = TRIAL_COMPLETE; state <= TRIAL_FAILED; state++)
        text_printf(&p->line, "%s %zu %s", state > TRIAL_COMPLETE ? "," : "", s->counts[state], trial_states[state]);
    end_line(p);
}

static void add_sweep_rate(const struct watch *w, struct page_of_lines *p) {
    double watched = w->now - w->started, here = w->done - w->first;
    double total = (double)sweep_data_total(w->sweep);
    if (watched < 1 || here <= 0 || sweep_data_is_complete(w->sweep)) return;
    begin_line(p, "rate");
    text_printf(&p->line, "%.3g %s/s  ", here / watched, sweep_data_repeats(w->sweep) > 1 ? "runs" : "trials");
    if (total >= 0) add_left(p, (total - w->done) * watched / here);
    end_line(p);
}

#define BEST_SHOWN 5

static void add_best(const struct sweep_data *s, struct page_of_lines *p) {
    for (size_t i = 0; i < s->ranked && i < BEST_SHOWN; i++) {
        const struct sweep_data_trial *t = &s->trials[i];
        SCOPED_TEXT words = {0};
        sweep_data_add_words(s, t, "  ", &words);
        begin_line(p, i == 0 ? "best" : "");
        text_printf(&p->line, "trial %04" PRId64 "  ", t->trial);
        sweep_data_add_mean(s, t, "+-", &p->line);
        text_add(&p->line, "  ");
        text_add_value(&p->line, text_string(&words), 400);
        end_line(p);
    }
}

static void add_best_so_far(const struct sweep_data *s, struct page_of_lines *p) {
    const struct sweep_data_trial **ordered = calloc(s->trial_total + 1, sizeof *ordered);
    struct curve curve = {0};
    double best = NAN;
    if (!ordered) status_exit_without_memory();
    for (size_t i = 0; i < s->trial_total; i++) ordered[s->trials[i].order] = &s->trials[i];
    for (size_t i = 0; i < s->trial_total; i++) {
        const struct sweep_data_trial *t = ordered[i];
        if (t->state == TRIAL_COMPLETE && sweep_data_is_better(s, t->mean, best)) best = t->mean;
        if (isfinite(best)) curve_add(&curve, (double)i, best);
    }
    add_sparkline(p, "so far", &curve);
    curve_free(&curve);
    free(ordered);
}

static void add_reason(const struct sweep_data *s, struct page_of_lines *p) {
    const struct sweep_data_reason *max = NULL;
    for (size_t i = 0; i < s->reason_count; i++)
        if (s->reasons[i].count && (!max || s->reasons[i].count > max->count)) max = &s->reasons[i];
    if (!max) return;
    begin_line(p, "failed");
    text_printf(&p->line, "%zu: ", max->count);
    text_add_value(&p->line, max->message, 400);
    end_line(p);
}

static void write_sweep(const struct watch *w, struct page_of_lines *p) {
    const struct sweep_data *s = w->sweep;
    add_name(p, s->path);
    bool is_unknown = !s->is_locked && !s->has_stopped && !sweep_data_is_complete(s) && !is_silent(w);
    text_printf(&p->line, ": %s, ", is_unknown ? state_without_lock(w) : sweep_data_state(s));
    add_name(p, s->method);
    text_printf(&p->line, ", %s of ", s->is_max ? "maximum" : "minimum");
    add_name(p, s->metric);
    end_line(p);
    add_counts(s, p);
    add_sweep_rate(w, p);
    add_best(s, p);
    add_best_so_far(s, p);
    add_reason(s, p);
    add_age(w, p);
    if (!watch_has_ended(w) || sweep_data_is_complete(s)) return;
    begin_line(p, "continue");
    text_add(&p->line, "with the same command");
    end_line(p);
}

void watch_write(const struct watch *watch, size_t width, bool has_blocks, struct text *out) {
    struct page_of_lines p = {.out = out, .width = width, .has_blocks = has_blocks};
    if (watch->run)
        write_run(watch, &p);
    else
        write_sweep(watch, &p);
    text_free(&p.line);
}
