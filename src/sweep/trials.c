/* The results in memory; trials_history.c has the lines of history.jsonl, trials_table.c the tables. */
#include "sweep/trials_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"

static void count(struct trials *t, int64_t run, int by) { t->counts[t->runs[run].state] += by; }

void trials_set_run(struct trials *t, int64_t run, const struct trial_run *result) {
    count(t, run, -1);
    free(t->runs[run].message);
    t->runs[run] = *result;
    count(t, run, 1);
}

void trials_set_epoch(struct trials *t, int64_t run, int64_t epoch, double value, bool must_stop) {
    struct reported *r = &t->reported[run];
    if (!isfinite(value)) value = INFINITY;
    if (epoch <= r->epoch) *r = (struct reported){0}; /* begun anew */
    if (r->best_epoch == 0 || value < r->best) {
        r->best = value;
        r->best_epoch = epoch;
    }
    r->epoch = epoch;
    r->must_stop = must_stop;
}

bool trials_must_stop(const struct trials *t, int64_t run, struct trial_run *out) {
    const struct reported *r = &t->reported[run];
    double value = t->sweep->metric.goal == SWEEP_MAXIMIZE ? -r->best : r->best;
    *out = (struct trial_run){
        .state = TRIAL_PRUNED, .value = isfinite(value) ? value : NAN, .best_epoch = r->best_epoch, .epochs = r->epoch};
    return t->runs[run].state == TRIAL_PENDING && r->must_stop;
}

int64_t trials_retry_lost(struct trials *t) {
    int64_t count = 0;
    for (int64_t run = 0; run < t->sweep->trials * t->sweep->runs; run++) {
        if (t->runs[run].state != TRIAL_FAILED || t->runs[run].code != STATUS_PEER) continue;
        trials_set_run(t, run, &(struct trial_run){.state = TRIAL_PENDING});
        count++;
    }
    return count;
}

const struct trial_run *trials_run(const struct trials *t, int64_t run) { return &t->runs[run]; }

int64_t trials_count(const struct trials *t, int state) { return t->counts[state]; }

bool trials_point(const struct trials *t, int64_t trial, struct point *out) {
    size_t n = t->sweep->space.count;
    *out = (struct point){0};
    if (t->sweep->method == SWEEP_LIST) return true;
    if (!t->has_point[trial] && t->sweep->method == SWEEP_TPE) return false;
    if (t->has_point[trial])
        memcpy(out->values, t->points + (size_t)trial * n, n * sizeof *out->values);
    else
        sweep_point(t->sweep, trial, out);
    return true;
}

void trials_set_point(struct trials *t, int64_t trial, const struct point *point) {
    size_t n = t->sweep->space.count;
    memcpy(t->points + (size_t)trial * n, point->values, n * sizeof *point->values);
    t->has_point[trial] = true;
}

struct trial_summary trials_summary(const struct trials *t, int64_t trial) {
    size_t count = (size_t)t->sweep->runs;
    const struct trial_run *runs = t->runs + (size_t)trial * count;
    for (size_t i = 0; i < count; i++) t->values[i] = (struct trial_value){runs[i].state, runs[i].value};
    return trial_summary_make(t->values, count, t->sweep->runs);
}

double trials_test(const struct trials *t, int64_t trial) {
    size_t count = (size_t)t->sweep->runs;
    const struct trial_run *runs = t->runs + (size_t)trial * count;
    for (size_t i = 0; i < count; i++) t->values[i] = (struct trial_value){runs[i].state, runs[i].test};
    return trial_summary_make(t->values, count, t->sweep->runs).mean;
}

bool trials_is_better(const struct sweep_config *sweep, double a, double b) {
    if (isnan(a) || isnan(b)) return !isnan(a);
    return sweep->metric.goal == SWEEP_MAXIMIZE ? a > b : a < b;
}

int64_t trials_best(const struct trials *t, int64_t wanted, int64_t *out) {
    int64_t found = 0;
    double *values = calloc((size_t)(wanted > 0 ? wanted : 1), sizeof *values);
    if (!values) status_exit_without_memory();
    for (int64_t trial = 0; wanted > 0 && trial < t->sweep->trials; trial++) {
        struct trial_summary s = trials_summary(t, trial);
        if (s.state != TRIAL_COMPLETE || isnan(s.mean)) continue;
        if (found == wanted && !trials_is_better(t->sweep, s.mean, values[found - 1])) continue;
        int64_t at = found < wanted ? found++ : found - 1;
        for (; at > 0 && trials_is_better(t->sweep, s.mean, values[at - 1]); at--) {
            values[at] = values[at - 1];
            out[at] = out[at - 1];
        }
        values[at] = s.mean;
        out[at] = trial;
    }
    free(values);
    return found;
}

static int64_t runs_without_value(const struct trials *t) {
    int64_t count = 0;
    for (int64_t run = 0; run < t->sweep->trials * t->sweep->runs; run++)
        count += t->runs[run].state == TRIAL_COMPLETE && isnan(t->runs[run].value);
    return count;
}

void trials_explain_values(const struct trials *t, struct text *out) {
    int64_t count = runs_without_value(t), complete = trials_count(t, TRIAL_COMPLETE);
    if (count == 0) return;
    text_printf(out,
                "%s is not a finite number in %" PRId64 " of %" PRId64
                " complete runs; it may not be defined for their validation rows (auc needs rows of two classes, r2 "
                "targets that differ), or the training has diverged",
                t->sweep->metric.name, count, complete);
}

/* ---- start and end ---- */

static char *path_in(const char *folder, const char *name) {
    struct text path = {0};
    text_printf(&path, "%s/%s", folder, name);
    return path.data;
}

static void set_paths(struct trials *t, const char *folder) {
    t->history = path_in(folder, "history.jsonl");
    t->table = path_in(folder, "trials.csv");
    t->summary = path_in(folder, "summary.csv");
}

static void free_paths(struct trials *t) {
    free(t->history);
    free(t->table);
    free(t->summary);
}

void trials_move(struct trials *t, const char *folder) {
    free_paths(t);
    set_paths(t, folder);
}

status trials_open(const char *folder, const struct sweep_config *sweep, struct pruner *pruner, struct log *log,
                   struct trials **out) {
    struct trials *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return status_memory("the table of trials");
    size_t n = (size_t)sweep->trials;
    *t = (struct trials){.sweep = sweep,
                         .runs = calloc(n * (size_t)sweep->runs, sizeof *t->runs),
                         .reported = calloc(n * (size_t)sweep->runs, sizeof *t->reported),
                         .values = calloc((size_t)sweep->runs, sizeof *t->values),
                         .points = calloc(n * sweep->space.count + 1, sizeof *t->points),
                         .has_point = calloc(n, sizeof *t->has_point),
                         .counts = {(int64_t)n * sweep->runs},
                         .fd = -1};
    set_paths(t, folder);
    status s = t->runs && t->reported && t->values && t->points && t->has_point
                   ? OK
                   : status_memory("the table of %zu trials", n);
    if (!s) s = io_open_append(t->history, &t->fd);
    if (!s) s = trials_read_history(t, pruner, log);
    if (s)
        status_free(trials_close(t));
    else
        *out = t;
    return s;
}

status trials_close(struct trials *t) {
    if (!t) return OK;
    status s = t->fd >= 0 ? io_close(t->fd, t->history) : OK;
    for (int64_t i = 0; t->runs && i < t->sweep->trials * t->sweep->runs; i++) free(t->runs[i].message);
    free(t->runs);
    free(t->reported);
    free(t->values);
    free(t->points);
    free(t->has_point);
    free_paths(t);
    text_free(&t->line);
    free(t);
    return s;
}
