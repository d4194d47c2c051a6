/* The results of a sweep: in memory, as the lines of history.jsonl, and as the tables trials.csv and summary.csv. */
#include "sweep/trials.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files/io.h"
#include "base/files/json_lines.h"
#include "base/numbers/statistics.h"
#include "base/scoped.h"
#include "base/status.h"
#include "base/text.h"
#include "data/csv/csv.h"
#include "sweep/sweep_folder.h"

/* ---- the result of a trial ---- */

#define MAX_VALUE 1e150 /* of base/statistics */

const char *const trial_states[] = {"pending", "complete", "pruned", "failed", NULL};

struct trial_summary trial_summary_make(const struct trial_value *runs, size_t count, int64_t repeats) {
    struct trial_summary s = {.mean = NAN, .error = NAN};
    double *values = status_need(calloc(count + 1, sizeof *values));
    bool has[4] = {[TRIAL_PENDING] = (int64_t)count < repeats}, has_all_values = true;
    for (size_t i = 0; i < count; i++) {
        has[runs[i].state] = true;
        if (runs[i].state != TRIAL_COMPLETE) continue;
        has_all_values = has_all_values && fabs(runs[i].value) < MAX_VALUE;
        values[s.complete++] = runs[i].value;
    }
    s.state = has[TRIAL_FAILED]    ? TRIAL_FAILED
              : has[TRIAL_PRUNED]  ? TRIAL_PRUNED
              : has[TRIAL_PENDING] ? TRIAL_PENDING
                                   : TRIAL_COMPLETE;
    if (has_all_values && s.complete) s.mean = statistics_mean(values, (size_t)s.complete);
    if (has_all_values && s.complete > 1) s.error = statistics_standard_error(values, (size_t)s.complete);
    free(values);
    return s;
}

/* ---- several metrics ---- */

struct front_row {
    const double *values; /* (metrics) */
    size_t metrics, index;
};

static int by_values(const void *left, const void *right) {
    const struct front_row *a = left, *b = right;
    size_t i = 0;
    while (i < a->metrics && !(a->values[i] < b->values[i]) && !(a->values[i] > b->values[i])) i++;
    return i == a->metrics ? 0 : a->values[i] < b->values[i] ? -1 : 1;
}

static bool dominates(const double *a, const double *b, size_t metrics) {
    bool is_better = false;
    for (size_t i = 0; i < metrics; i++) {
        if (!(a[i] <= b[i])) return false;
        is_better = is_better || a[i] < b[i];
    }
    return is_better;
}

/* Only rows before it dominate a row of the sorted ones, and if any does, one of the front does. Of two metrics the
 * last row of the front has the smallest second value. */
void pareto_front(const double *values, size_t count, size_t metrics, bool *out) {
    struct front_row *rows = status_need(calloc(count + 1, sizeof *rows));
    size_t n = 0, front = 0;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        out[i] = false;
        while (k < metrics && !isnan(values[i * metrics + k])) k++;
        if (k == metrics) rows[n++] = (struct front_row){values + i * metrics, metrics, i};
    }
    qsort(rows, n, sizeof *rows, by_values);
    for (size_t i = 0; i < n; i++) {
        size_t k = metrics == 2 && front ? front - 1 : 0;
        while (k < front && !dominates(rows[k].values, rows[i].values, metrics)) k++;
        if (k == front) rows[front++] = rows[i];
    }
    for (size_t i = 0; i < front; i++) out[rows[i].index] = true;
    free(rows);
}

/* ---- results in memory ---- */

#define MAX_DATA 256 /* datasets whose fingerprints are compared */

struct data_seen {
    char dataset[DATASET_KEY_SIZE], fingerprint[65];
};

/* What a run without a result has reported; as for a pruner, smaller values are better. */
struct reported {
    int64_t epoch, best_epoch; /* the last one, the best one; 0: none */
    double best;
    bool must_stop; /* after the last one */
};

struct trial_files {
    char *history, *table, *summary;
};

struct trials {
    const struct sweep_config *sweep;
    struct reported *reported;  /* (trials * sweep->runs) */
    struct trial_run *runs;     /* (trials * sweep->runs) */
    struct trial_value *values; /* (sweep->runs): workspace of trials_summary */
    double *points;             /* (trials, parameters) */
    bool *has_point;            /* (trials) */
    int64_t counts[4];          /* by enum trial_state */
    struct trial_files files;
    int fd;                                /* of the history; -1: it is only read */
    char *temporary;                       /* then: for files that are replaced */
    struct trial_files shown;              /* then: of trials_show; NULL */
    struct io_info last;                   /* shown.history at the last look */
    double synced_at, written_at, writing; /* the history, and the tables, which took [writing] seconds */
    struct text line, scratch;
    struct text unwritten;           /* lines of the history */
    struct data_seen data[MAX_DATA]; /* (data_count): the first [data_written] are in the history */
    size_t data_count, data_written;
    status unlike; /* the first line that was read and has other data for a dataset */
};

static void count(struct trials *t, int64_t run, int by) { t->counts[t->runs[run].state] += by; }

/* The result of run [run] is [result], whose message is taken. */
static void trials_set_run(struct trials *t, int64_t run, const struct trial_run *result) {
    count(t, run, -1);
    free(t->runs[run].message);
    t->runs[run] = *result;
    count(t, run, 1);
}

/* What trials_add_epoch adds to the history. */
static void trials_set_epoch(struct trials *t, int64_t run, int64_t epoch, double value, bool must_stop) {
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

void trials_reset(struct trials *t, int64_t run) {
    trials_set_run(t, run, &(struct trial_run){.state = TRIAL_PENDING});
}

int64_t trials_retry_lost(struct trials *t) {
    int64_t count = 0;
    for (int64_t run = 0; run < t->sweep->trials * t->sweep->runs; run++) {
        if (t->runs[run].state != TRIAL_FAILED || t->runs[run].code != STATUS_PEER) continue;
        trials_reset(t, run);
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

/* Of the number at [offset] in struct trial_run. */
static struct trial_summary summarize(const struct trials *t, int64_t trial, size_t offset) {
    size_t count = (size_t)t->sweep->runs;
    for (size_t i = 0; i < count; i++) {
        const struct trial_run *run = &t->runs[(size_t)trial * count + i];
        t->values[i] = (struct trial_value){run->state, *(const double *)((const char *)run + offset)};
    }
    return trial_summary_make(t->values, count, t->sweep->runs);
}

struct trial_summary trials_summary(const struct trials *t, int64_t trial) {
    return summarize(t, trial, offsetof(struct trial_run, value));
}

double trials_test(const struct trials *t, int64_t trial) {
    return summarize(t, trial, offsetof(struct trial_run, test)).mean;
}

double trials_other(const struct trials *t, int64_t trial, size_t index) {
    return summarize(t, trial, offsetof(struct trial_run, others) + index * sizeof(double)).mean;
}

void trials_metrics(const struct trials *t, int64_t trial, double *out) {
    struct trial_summary s = trials_summary(t, trial);
    double mean = s.state == TRIAL_COMPLETE ? s.mean : NAN;
    *out++ = t->sweep->metric.goal == SWEEP_MAXIMIZE ? -mean : mean;
    for (size_t i = 0; i < t->sweep->other_metrics.count; i++) {
        double value = trials_other(t, trial, i);
        *out++ = sweep_other_metric(t->sweep, i)->goal == SWEEP_MAXIMIZE ? -value : value;
    }
}

int64_t trials_front(const struct trials *t, bool *out) {
    size_t n = (size_t)t->sweep->trials, metrics = 1 + t->sweep->other_metrics.count;
    double *values = status_need(calloc(n * metrics + 1, sizeof *values));
    int64_t front = 0;
    for (size_t i = 0; i < n; i++) trials_metrics(t, (int64_t)i, values + i * metrics);
    pareto_front(values, n, metrics, out);
    for (size_t i = 0; i < n; i++) front += out[i];
    free(values);
    return front;
}

bool trials_dominates(const struct trials *t, int64_t a, int64_t b) {
    double values[2][1 + SWEEP_MAX_OTHER_METRICS];
    trials_metrics(t, a, values[0]);
    trials_metrics(t, b, values[1]);
    return dominates(values[0], values[1], 1 + t->sweep->other_metrics.count);
}

/* (trials) which ones are on the Pareto front, for the caller to free; NULL: there is one metric. */
static bool *make_front(const struct trials *t) {
    if (!t->sweep->other_metrics.count) return NULL;
    bool *front = status_need(calloc((size_t)t->sweep->trials + 1, sizeof *front));
    trials_front(t, front);
    return front;
}

bool trials_is_better(const struct sweep_config *sweep, double a, double b) {
    if (isnan(a) || isnan(b)) return !isnan(a);
    return sweep->metric.goal == SWEEP_MAXIMIZE ? a > b : a < b;
}

struct ranked {
    double value;
    bool is_first; /* on the Pareto front */
};

static bool is_ranked_before(const struct trials *t, struct ranked a, struct ranked b) {
    if (a.is_first != b.is_first) return a.is_first;
    return trials_is_better(t->sweep, a.value, b.value);
}

int64_t trials_best(const struct trials *t, int64_t wanted, int64_t *out) {
    int64_t found = 0;
    bool *front = wanted > 0 ? make_front(t) : NULL;
    struct ranked *values = status_need(calloc((size_t)(wanted > 0 ? wanted : 1), sizeof *values));
    for (int64_t trial = 0; wanted > 0 && trial < t->sweep->trials; trial++) {
        struct trial_summary s = trials_summary(t, trial);
        if (s.state != TRIAL_COMPLETE || isnan(s.mean)) continue;
        struct ranked r = {s.mean, front && front[trial]};
        if (found == wanted && !is_ranked_before(t, r, values[found - 1])) continue;
        int64_t at = found < wanted ? found++ : found - 1;
        for (; at > 0 && is_ranked_before(t, r, values[at - 1]); at--) {
            values[at] = values[at - 1];
            out[at] = out[at - 1];
        }
        values[at] = r;
        out[at] = trial;
    }
    free(values);
    free(front);
    return found;
}

/* [metric]: 0: the metric, then the others. */
static int64_t runs_without_value(const struct trials *t, size_t metric) {
    int64_t count = 0;
    for (int64_t run = 0; run < t->sweep->trials * t->sweep->runs; run++) {
        const struct trial_run *r = &t->runs[run];
        count += r->state == TRIAL_COMPLETE && isnan(metric ? r->others[metric - 1] : r->value);
    }
    return count;
}

void trials_explain_values(const struct trials *t, struct text *out) {
    int64_t complete = trials_count(t, TRIAL_COMPLETE);
    for (size_t i = 0; i <= t->sweep->other_metrics.count; i++) {
        int64_t count = runs_without_value(t, i);
        if (count == 0) continue;
        text_printf(out,
                    "%s%s is not a finite number in %" PRId64 " of %" PRId64
                    " complete runs; it may not be defined for their validation rows (auc needs rows of two classes, "
                    "r2 targets that differ), or the training has diverged",
                    out->length ? "; " : "", i ? sweep_other_metric(t->sweep, i - 1)->name : t->sweep->metric.name,
                    count, complete);
        if (i) text_add(out, ", and such trials are not on the Pareto front");
    }
}

/* ---- history.jsonl ---- */

/* Lines are JSON. Values are written with as many digits as it takes to read the same number. */

static void add_parameters(const struct trials *t, int64_t trial, struct text *out) {
    struct point point;
    SCOPED_TEXT value = {0};
    text_add_name(out, "parameters");
    text_add(out, "{");
    trials_point(t, trial, &point);
    for (size_t i = 0; i < t->sweep->space.count; i++) {
        text_clear(&value);
        space_write(&t->sweep->space, i, &point, &value);
        text_add_member(out, t->sweep->space.items[i].path, text_string(&value));
    }
    text_add(out, "}");
}

/* ---- history.jsonl: the data ---- */

static void see_data(struct trials *t, const char *dataset, const char *fingerprint) {
    struct data_seen *seen = &t->data[t->data_count];
    for (size_t i = 0; i < t->data_count; i++)
        if (strcmp(t->data[i].dataset, dataset) == 0) return;
    if (t->data_count == MAX_DATA || strlen(dataset) >= sizeof seen->dataset ||
        strlen(fingerprint) >= sizeof seen->fingerprint || !*dataset)
        return;
    memcpy(seen->dataset, dataset, strlen(dataset) + 1);
    memcpy(seen->fingerprint, fingerprint, strlen(fingerprint) + 1);
    t->data_count++;
}

status trials_compare_data(const struct trials *t, const char *dataset, const char *fingerprint) {
    for (size_t i = 0; i < t->data_count; i++)
        if (strcmp(t->data[i].dataset, dataset) == 0 && strcmp(t->data[i].fingerprint, fingerprint) != 0)
            return status_data("%s: its runs were trained on other data (fingerprint %.12s..., now %.12s...); use the "
                               "same dataset, or --fresh to start over",
                               t->files.history, t->data[i].fingerprint, fingerprint);
    return OK;
}

status trials_check_data(struct trials *t, const char *dataset, const char *fingerprint) {
    TRY(trials_compare_data(t, dataset, fingerprint));
    see_data(t, dataset, fingerprint);
    return OK;
}

/* What no line has yet. */
static void add_data(struct trials *t, struct text *out) {
    if (t->data_written == t->data_count) return;
    text_add_name(out, "data");
    text_add(out, "{");
    for (; t->data_written < t->data_count; t->data_written++)
        text_add_member(out, t->data[t->data_written].dataset, t->data[t->data_written].fingerprint);
    text_add(out, "}");
}

static void read_data(struct trials *t, const struct json_line *event) {
    const struct json_field *data = json_line_find(event, "data");
    struct json_line pairs;
    if (!data || data->kind != KIND_NESTED || !json_line_read(data->text, data->length, &pairs)) return;
    for (size_t i = 0; i < pairs.count; i++) { /* hexadecimal digits */
        const struct json_field *field = &pairs.fields[i];
        char dataset[DATASET_KEY_SIZE], fingerprint[65];
        if (field->kind != KIND_TEXT || field->key_length >= sizeof dataset || field->length >= sizeof fingerprint)
            continue;
        snprintf(dataset, sizeof dataset, "%.*s", (int)field->key_length, field->key);
        snprintf(fingerprint, sizeof fingerprint, "%.*s", (int)field->length, field->text);
        if (!t->unlike) t->unlike = trials_compare_data(t, dataset, fingerprint);
        see_data(t, dataset, fingerprint);
    }
    t->data_written = t->data_count;
}

/* ---- history.jsonl: lines ---- */

/* Begins the line of an event; of a [run]: >= 0. */
static struct text *begin_event(struct trials *t, const char *event, int64_t run) {
    text_clear(&t->line);
    text_add(&t->line, "{");
    text_add_member(&t->line, "event", event);
    if (run >= 0) text_add_member_int(&t->line, "trial", run / t->sweep->runs);
    if (run >= 0) text_add_member_int(&t->line, "repeat", run % t->sweep->runs);
    return &t->line;
}

static void append_event(struct trials *t) {
    text_add(&t->line, "}\n");
    if (t->fd >= 0) text_add_bytes(&t->unwritten, t->line.data, t->line.length);
}

status trials_flush(struct trials *t) {
    size_t length = t->unwritten.length;
    t->unwritten.length = 0; /* after a failure a part may be there */
    return length ? io_write(t->fd, t->files.history, t->unwritten.data, length) : OK;
}

const struct text *trials_line(const struct trials *t) { return &t->line; }

void trials_repeat_data(struct trials *t) { t->data_written = 0; }

static void add_others(const struct trials *t, const struct trial_run *r, struct text *out) {
    if (!t->sweep->other_metrics.count || r->state != TRIAL_COMPLETE) return;
    text_add_name(out, "metrics");
    text_add(out, "{");
    for (size_t i = 0; i < t->sweep->other_metrics.count; i++)
        text_add_member_double(out, sweep_other_metric(t->sweep, i)->name, r->others[i]);
    text_add(out, "}");
}

/* NAN for what the line does not have. */
static void read_others(const struct trials *t, const struct json_line *event, struct trial_run *out) {
    const struct json_field *others = json_line_find(event, "metrics");
    struct json_line values;
    bool has = others && others->kind == KIND_NESTED && json_line_read(others->text, others->length, &values);
    for (size_t i = 0; i < t->sweep->other_metrics.count; i++)
        out->others[i] = has ? json_field_exact(json_line_find(&values, sweep_other_metric(t->sweep, i)->name)) : NAN;
}

/* The line of run [run], which has ended, up to its last brace. */
static void set_line(struct trials *t, int64_t run) {
    const struct trial_run *r = &t->runs[run];
    struct text *line = begin_event(t, "run", run);
    text_add_member(line, "state", trial_states[r->state]);
    add_parameters(t, run / t->sweep->runs, line);
    text_add_member_double(line, "value", r->value);
    if (r->state == TRIAL_COMPLETE && !isnan(r->test)) text_add_member_double(line, "test", r->test);
    add_others(t, r, line);
    text_add_member_int(line, "best_epoch", r->best_epoch);
    text_add_member_int(line, "epochs", r->epochs);
    text_add_member_double(line, "seconds", r->seconds);
    text_add_member(line, "state_sha256", r->state_sha256);
    add_data(t, line);
    if (r->message) text_add_member_int(line, "code", r->code);
    if (r->message) text_add_member(line, "message", r->message);
}

void trials_add(struct trials *t, int64_t run, const struct trial_run *r) {
    trials_set_run(t, run, r);
    set_line(t, run);
    append_event(t);
}

static status replace(const struct trials *t, const char *path, const struct text *text) {
    return t->fd < 0 ? io_replace_by(t->temporary, path, text_string(text)) : io_replace_text(path, text_string(text));
}

/* All lines, anew. */
static status write_history(struct trials *t, const char *path) {
    SCOPED_TEXT lines = {0};
    size_t written = t->data_written; /* in the lines that are published */
    trials_repeat_data(t);
    for (int64_t run = 0; run < t->sweep->trials * t->sweep->runs; run++) {
        if (t->runs[run].state == TRIAL_PENDING) continue;
        set_line(t, run);
        text_add_bytes(&lines, t->line.data, t->line.length);
        text_add(&lines, "}\n");
    }
    t->data_written = written;
    return replace(t, path, &lines);
}

status trials_add_epoch(struct trials *t, int64_t run, int64_t epoch, double value, bool must_stop) {
    struct text *line = begin_event(t, "epoch", run);
    trials_set_epoch(t, run, epoch, value, must_stop);
    text_add_member_int(line, "epoch", epoch);
    text_add_member_double(line, "value", value);
    if (must_stop) {
        text_add_name(line, "must_stop");
        text_add(line, "true");
        add_parameters(t, run / t->sweep->runs, line); /* of tpe, which another start could not compute */
    }
    append_event(t);
    return trials_flush(t);
}

status trials_add_stop(struct trials *t) {
    begin_event(t, "stopped", -1);
    append_event(t);
    return trials_flush(t);
}

/* A number of an event within its limits. */
static bool get_int(const struct json_line *event, const char *name, int64_t min, int64_t max, int64_t *out) {
    return json_field_int(json_line_find(event, name), min, max, out);
}

/* As many digits are written as it takes to read the same number. */
static bool get_real(const struct json_line *event, const char *name, double *out) {
    const struct json_field *field = json_line_find(event, name);
    *out = json_field_exact(field);
    return field && (field->kind == KIND_NUMBER || field->kind == KIND_NULL);
}

/* The text of a field, until the next call; NULL: it is none. */
static const char *get_text(struct trials *t, const struct json_field *field) {
    if (!field || field->kind != KIND_TEXT) return NULL;
    text_clear(&t->scratch);
    if (memchr(field->text, '\\', field->length)) {
        SCOPED_STRING text = json_field_text(field);
        if (text) text_add(&t->scratch, text);
    } else
        text_add_bytes(&t->scratch, field->text, field->length);
    return text_string(&t->scratch);
}

/* The number of the run of an event; -1: none of this sweep. */
static int64_t get_run(const struct trials *t, const struct json_line *event) {
    int64_t trial, repeat;
    bool is_run = get_int(event, "trial", 0, t->sweep->trials - 1, &trial) &&
                  get_int(event, "repeat", 0, t->sweep->runs - 1, &repeat);
    return is_run ? trial * t->sweep->runs + repeat : -1;
}

static bool get_point(struct trials *t, const struct json_line *event, int64_t trial) {
    const struct json_field *parameters = json_line_find(event, "parameters");
    struct json_line texts;
    struct point point = {0};
    if (!parameters || parameters->kind != KIND_NESTED || !json_line_read(parameters->text, parameters->length, &texts))
        return false;
    for (size_t i = 0; i < t->sweep->space.count; i++) {
        const struct parameter *p = &t->sweep->space.items[i];
        const char *text = get_text(t, json_line_find(&texts, p->path));
        if (!text || !space_read(&t->sweep->space, i, text, &point.values[i])) return false;
    }
    if (t->sweep->method == SWEEP_TPE || t->sweep->method == SWEEP_RANDOM) trials_set_point(t, trial, &point);
    return true;
}

static int get_state(const struct json_line *event) {
    for (int i = TRIAL_COMPLETE; i <= TRIAL_FAILED; i++)
        if (json_line_is(event, "state", trial_states[i])) return i;
    return TRIAL_PENDING;
}

static bool read_run(struct trials *t, const struct json_line *event, struct pruner *pruner) {
    int64_t run = get_run(t, event), code = 0;
    const struct json_field *hash = json_line_find(event, "state_sha256"), *message = json_line_find(event, "message");
    struct trial_run r = {.state = get_state(event)};
    bool is_good = run >= 0 && r.state != TRIAL_PENDING && hash && hash->kind == KIND_TEXT &&
                   hash->length < sizeof r.state_sha256 && get_real(event, "value", &r.value) &&
                   get_real(event, "seconds", &r.seconds) &&
                   get_int(event, "best_epoch", 0, INT64_MAX - 1, &r.best_epoch) &&
                   get_int(event, "epochs", 0, INT64_MAX - 1, &r.epochs) &&
                   (!message || get_int(event, "code", 0, 0xffff, &code)) && get_point(t, event, run / t->sweep->runs);
    if (!is_good) return false;
    get_real(event, "test", &r.test); /* none of runs without test rows */
    read_others(t, event, &r);
    r.code = (int)code;
    memcpy(r.state_sha256, hash->text, hash->length);
    const char *why = get_text(t, message);
    if (why) r.message = status_need(strdup(why));
    trials_set_run(t, run, &r);
    if (pruner && r.state == TRIAL_COMPLETE) pruner_complete(pruner, run);
    return true;
}

static bool read_event(struct trials *t, const struct json_line *event, struct pruner *pruner) {
    int64_t run = get_run(t, event), epoch;
    double value;
    read_data(t, event);
    if (get_int(event, "trial", t->sweep->trials, INT64_MAX - 1, &epoch) ||
        get_int(event, "repeat", t->sweep->runs, INT64_MAX - 1, &epoch))
        return true; /* of a time of more trials or seeds */
    if (json_line_is(event, "event", "stopped")) return true;
    if (json_line_is(event, "event", "run")) return read_run(t, event, pruner);
    bool is_epoch = json_line_is(event, "event", "epoch") && run >= 0 &&
                    get_int(event, "epoch", 1, INT64_MAX - 1, &epoch) && get_real(event, "value", &value);
    if (!is_epoch) return false;
    const struct json_field *stop = json_line_find(event, "must_stop");
    bool must_stop = stop && stop->kind == KIND_BOOL && *stop->text == 't';
    trials_set_epoch(t, run, epoch, value, must_stop && get_point(t, event, run / t->sweep->runs));
    if (pruner) pruner_report(pruner, run, epoch, value);
    return true;
}

static status reject_line(const char *path, size_t number, bool has_zeros) {
    SCOPED_TEXT file = {0};
    text_add_shell(&file, path);
    return status_data("%s:%zu: not a line of this sweep; it was changed or damaged%s. Remove the line to have "
                       "its run done again (sed -i %zud %s), or use --fresh to start over",
                       path, number, has_zeros ? " (it has zero bytes, as a crash of the machine may leave)" : "",
                       number, text_string(&file));
}

/* The lines of [text] (size), from line [number] of [path] on; what follows the last line end was not written whole. */
static status read_lines(struct trials *t, const char *path, size_t number, const char *text, size_t size,
                         struct pruner *pruner) {
    const char *after = text + size;
    struct json_line event;
    for (const char *end; (end = memchr(text, '\n', (size_t)(after - text))); text = end + 1, number++) {
        size_t length = (size_t)(end - text);
        bool is_good =
            json_line_is_clean(text, length) && json_line_read(text, length, &event) && read_event(t, &event, pruner);
        if (!is_good) return reject_line(path, number, memchr(text, 0, (size_t)(end - text)) != NULL);
    }
    return OK;
}

status trials_read(struct trials *t, const char *path, size_t number, const char *lines, size_t size) {
    TRY(read_lines(t, path, number, lines, size, NULL));
    status s = t->unlike;
    t->unlike = OK;
    return s;
}

#define MAX_HISTORY ((uint64_t)16 << 30)

/* Where zero bytes up to the end begin, which a file system may leave after a crash of the machine; else [size]. */
static size_t size_without_zeros(const char *text, size_t size) {
    while (size > 0 && text[size - 1] == 0) size--;
    return size;
}

/* Reads the lines of history.jsonl, and removes a last one that was not written in full, or zero
 * bytes. Reports of epochs go to [pruner] (NULL: none). */
static status trials_read_history(struct trials *t, struct pruner *pruner, struct log *log) {
    struct io_info info;
    SCOPED_STRING text = NULL;
    TRY(io_read_text(t->files.history, MAX_HISTORY, &text, &info));
    if (!text && !info.exists) return OK;
    if (!text) return status_data("%s: not the history of a sweep", t->files.history);
    size_t size = size_without_zeros(text, info.size);
    const char *last = memrchr(text, '\n', size);
    size_t whole = last ? (size_t)(last - text) + 1 : 0;
    TRY(read_lines(t, t->files.history, 1, text, size, pruner));
    if (size < info.size)
        log_line(log,
                 "%s: dropped %zu zero bytes at its end, as a crash of the machine may leave; what they replaced is "
                 "done again",
                 t->files.history, (size_t)info.size - size);
    return whole < info.size && t->fd >= 0 ? io_truncate(t->fd, t->files.history, whole) : OK;
}

/* ---- trials.csv and summary.csv, as RFC 4180 has them ---- */

/* The keys that a list of trials sets, each once, in the order of their first use. */
static struct string_list list_keys(const struct sweep_config *sweep, struct arena *arena) {
    struct string_list keys = {0};
    size_t capacity = 0;
    for (int64_t i = 0; sweep->list && i < sweep->trials; i++)
        for (const char *const *word = sweep->list[i]; *word; word++) {
            size_t length = strcspn(*word, "="), k = 0;
            while (k < keys.count && (strncmp(keys.items[k], *word, length) != 0 || keys.items[k][length])) k++;
            if (k < keys.count) continue;
            if (keys.count == capacity) {
                const char **items = arena_alloc(arena, (capacity * 2 + 16) * sizeof *items);
                for (size_t j = 0; j < keys.count; j++) items[j] = keys.items[j];
                keys.items = items;
                capacity = capacity * 2 + 16;
            }
            keys.items[keys.count++] = arena_printf(arena, "%.*s", (int)length, *word);
        }
    return keys;
}

static void add_list_value(const char *const *words, const char *key, struct text *out) {
    size_t length = strlen(key);
    for (; *words; words++)
        if (strncmp(*words, key, length) == 0 && (*words)[length] == '=') {
            csv_add_field(out, *words + length + 1);
            return;
        }
}

/* The fields of the parameters, each with a comma before it. trial -1: their names. */
static void add_point(const struct trials *t, int64_t trial, const struct string_list *keys, struct text *out) {
    struct point point;
    SCOPED_TEXT value = {0};
    if (trial >= 0) trials_point(t, trial, &point);
    for (size_t i = 0; i < t->sweep->space.count; i++) {
        const struct parameter *p = &t->sweep->space.items[i];
        text_clear(&value);
        if (trial >= 0) space_write(&t->sweep->space, i, &point, &value);
        text_add(out, ",");
        csv_add_field(out, trial < 0 ? p->path : text_string(&value));
    }
    for (size_t i = 0; i < keys->count; i++) {
        text_add(out, ",");
        if (trial < 0)
            csv_add_field(out, keys->items[i]);
        else
            add_list_value(t->sweep->list[trial], keys->items[i], out);
    }
}

static void add_value(struct text *out, double value) {
    text_add(out, ",");
    if (!isnan(value)) text_add_double(out, value);
}

/* Whether a complete run has a value of test rows: only then the tables have a column for them. */
static bool has_test(const struct trials *t) {
    for (int64_t run = 0; run < t->sweep->trials * t->sweep->runs; run++)
        if (t->runs[run].state == TRIAL_COMPLETE && !isnan(t->runs[run].test)) return true;
    return false;
}

static void add_test_name(const struct trials *t, struct text *out) {
    text_add(out, ",");
    sweep_add_test_name(t->sweep, out);
}

/* The fields of the other metrics, each with a comma before it, and whether the trial is on the Pareto front: [front],
 * which is NULL where there are none. trial -1: their names; run -1: means. */
static void add_other_metrics(const struct trials *t, int64_t trial, int64_t run, const bool *front, struct text *out) {
    for (size_t i = 0; i < t->sweep->other_metrics.count; i++) {
        if (trial < 0)
            text_printf(out, ",%s", sweep_other_metric(t->sweep, i)->name);
        else if (run < 0)
            add_value(out, trials_other(t, trial, i));
        else
            add_value(out, t->runs[run].state == TRIAL_COMPLETE ? t->runs[run].others[i] : NAN);
    }
    if (front) text_add(out, trial < 0 ? ",pareto_front" : front[trial] ? ",1" : ",0");
}

static void add_run(const struct trials *t, int64_t run, const struct string_list *keys, bool with_test,
                    const bool *front, struct text *out) {
    const struct trial_run *r = &t->runs[run];
    int64_t trial = run / t->sweep->runs, repeat = run % t->sweep->runs;
    text_printf(out, "%" PRId64 ",%s", trial, trial_states[r->state]);
    add_point(t, trial, keys, out);
    if (sweep_seed_of(t->sweep, repeat) >= 0) text_printf(out, ",%" PRId64, sweep_seed_of(t->sweep, repeat));
    if (sweep_fold_of(t->sweep, repeat) >= 0) text_printf(out, ",%" PRId64, sweep_fold_of(t->sweep, repeat));
    add_value(out, r->value);
    add_other_metrics(t, trial, run, front, out);
    if (with_test) add_value(out, r->state == TRIAL_COMPLETE ? r->test : NAN);
    text_printf(out, ",%" PRId64 ",%" PRId64 ",%s,", r->best_epoch, r->epochs, r->state_sha256);
    csv_add_field(out, r->message ? r->message : "");
    text_add(out, "\n");
}

static void write_table(const struct trials *t, const struct string_list *keys, const bool *front, struct text *out) {
    bool with_test = has_test(t);
    text_add(out, "trial,state");
    add_point(t, -1, keys, out);
    if (t->sweep->repeat.seeds != SCHEMA_NO_INT) text_add(out, ",seed");
    if (t->sweep->repeat.folds != SCHEMA_NO_INT) text_add(out, ",fold");
    text_printf(out, ",%s", t->sweep->metric.name);
    add_other_metrics(t, -1, -1, front, out);
    if (with_test) add_test_name(t, out);
    text_add(out, ",best_epoch,epochs,state_sha256,message\n");
    for (int64_t run = 0; run < t->sweep->trials * t->sweep->runs; run++)
        if (t->runs[run].state != TRIAL_PENDING) add_run(t, run, keys, with_test, front, out);
}

static void write_summary(const struct trials *t, const struct string_list *keys, const bool *front, struct text *out) {
    bool with_test = has_test(t);
    text_add(out, "trial,state");
    add_point(t, -1, keys, out);
    text_printf(out, ",%s,standard_error", t->sweep->metric.name);
    add_other_metrics(t, -1, -1, front, out);
    if (with_test) add_test_name(t, out);
    text_add(out, ",runs\n");
    for (int64_t trial = 0; trial < t->sweep->trials; trial++) {
        struct trial_summary s = trials_summary(t, trial);
        if (s.state == TRIAL_PENDING && s.complete == 0) continue;
        text_printf(out, "%" PRId64 ",%s", trial, trial_states[s.state]);
        add_point(t, trial, keys, out);
        add_value(out, s.mean);
        add_value(out, s.error);
        add_other_metrics(t, trial, -1, front, out);
        if (with_test) add_value(out, trials_test(t, trial));
        text_printf(out, ",%" PRId64 "\n", s.complete);
    }
}

double trials_pause(double seconds) { return fmax(TRIALS_SECONDS, seconds / TRIALS_FRACTION); }

static status write_tables(const struct trials *t, const struct trial_files *files) {
    SCOPED_ARENA arena = arena_create();
    struct string_list keys = list_keys(t->sweep, arena);
    SCOPED_TEXT text = {0};
    bool *front = make_front(t);
    write_table(t, &keys, front, &text);
    status s = replace(t, files->table, &text);
    text_clear(&text);
    if (!s && t->sweep->runs > 1) {
        write_summary(t, &keys, front, &text);
        s = replace(t, files->summary, &text);
    }
    free(front);
    return s;
}

status trials_write(struct trials *t) {
    double start = clock_seconds();
    TRY(trials_flush(t));
    TRY(t->fd < 0 ? write_history(t, t->files.history) : io_sync(t->fd, t->files.history));
    TRY(write_tables(t, &t->files));
    t->written_at = clock_seconds();
    t->writing = t->written_at - start;
    return OK;
}

status trials_write_if_due(struct trials *t) {
    double now = clock_seconds();
    if (t->fd < 0 || now - t->synced_at < TRIALS_SECONDS) return OK;
    t->synced_at = now;
    return now - t->written_at < trials_pause(t->writing) ? io_sync(t->fd, t->files.history) : trials_write(t);
}

/* ---- of a sweep of several processes, while it is running ---- */

status trials_show_is_due(struct trials *t, bool *out) {
    struct io_info info;
    double now = clock_seconds();
    *out = false;
    if (now - t->synced_at < TRIALS_SECONDS) return OK;
    t->synced_at = now;
    TRY(io_stat(t->shown.history, &info));
    bool is_other = info.exists && !(io_is_same(&info, &t->last) && !(info.modified > t->last.modified));
    t->last = info;
    if (is_other) t->written_at = now; /* another process has just done it */
    *out = now - t->written_at >= trials_pause(t->writing);
    return OK;
}

status trials_show(struct trials *t) {
    double start = clock_seconds();
    TRY(write_history(t, t->shown.history));
    TRY(write_tables(t, &t->shown));
    TRY(io_stat(t->shown.history, &t->last));
    io_link_by_name(SWEEP_SHARED "/trials.csv", t->files.table);
    if (t->sweep->runs > 1) io_link_by_name(SWEEP_SHARED "/summary.csv", t->files.summary);
    t->written_at = clock_seconds();
    t->writing = t->written_at - start;
    return OK;
}

/* ---- start and end ---- */

static struct trial_files files_in(const char *folder) {
    return (struct trial_files){text_path(folder, "history.jsonl"), text_path(folder, "trials.csv"),
                                text_path(folder, "summary.csv")};
}

static void free_files(struct trial_files *files) {
    free(files->history);
    free(files->table);
    free(files->summary);
}

void trials_move(struct trials *t, const char *folder) {
    free_files(&t->files);
    t->files = files_in(folder);
    if (!t->temporary) return;
    char *shared = text_path(folder, SWEEP_SHARED);
    free_files(&t->shown);
    t->shown = files_in(shared);
    free(shared);
}

static status open_trials(const char *folder, const struct sweep_config *sweep, struct pruner *pruner,
                          const char *temporary, struct log *log, struct trials **out) {
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
                         .synced_at = clock_seconds(),
                         .written_at = clock_seconds(),
                         .fd = -1};
    t->files = files_in(folder);
    if (temporary) t->temporary = status_need(strdup(temporary));
    status s = t->runs && t->reported && t->values && t->points && t->has_point
                   ? OK
                   : status_memory("the table of %zu trials", n);
    if (!s && !temporary) s = io_open_append(t->files.history, &t->fd);
    if (!s) s = trials_read_history(t, pruner, log);
    if (s) status_free(trials_close(t));
    if (!s) *out = t;
    return s;
}

status trials_open(const char *folder, const struct sweep_config *sweep, struct pruner *pruner, struct log *log,
                   struct trials **out) {
    return open_trials(folder, sweep, pruner, NULL, log, out);
}

status trials_open_shared(const char *folder, const char *by_fd, const struct sweep_config *sweep,
                          const char *temporary, struct log *log, struct trials **out) {
    TRY(open_trials(folder, sweep, NULL, temporary, log, out));
    trials_move(*out, by_fd);
    return OK;
}

status trials_close(struct trials *t) {
    if (!t) return OK;
    status s = trials_flush(t);
    if (t->fd >= 0) s = status_first(s, io_close(t->fd, t->files.history));
    for (int64_t i = 0; t->runs && i < t->sweep->trials * t->sweep->runs; i++) free(t->runs[i].message);
    free(t->runs);
    free(t->reported);
    free(t->values);
    free(t->points);
    free(t->has_point);
    free_files(&t->files);
    free_files(&t->shown);
    free(t->temporary);
    status_free(t->unlike);
    text_free(&t->line);
    text_free(&t->scratch);
    text_free(&t->unwritten);
    free(t);
    return s;
}
