/* Lines are JSON. Values are written with as many digits as it takes to read the same number. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "sweep/trials_internal.h"

static void add_parameters(const struct trials *t, int64_t trial, struct text *out) {
    struct point point;
    struct text value = {0};
    text_add(out, ",\"parameters\":{");
    trials_point(t, trial, &point);
    for (size_t i = 0; i < t->sweep->space.count; i++) {
        const struct parameter *p = &t->sweep->space.items[i];
        if (i > 0) text_add(out, ",");
        text_add_json(out, p->path);
        text_add(out, ":");
        text_clear(&value);
        parameter_write(p, point.values[i], &value);
        text_add_json(out, text_string(&value));
    }
    text_add(out, "}");
    text_free(&value);
}

/* ---- the data ---- */

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
            return status_new(STATUS_DATA,
                              "%s: its runs were trained on other data (fingerprint %.12s..., now %.12s...); use the "
                              "same dataset, or --fresh to start over",
                              t->history, t->data[i].fingerprint, fingerprint);
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
    for (size_t i = t->data_written; i < t->data_count; i++)
        text_printf(out, "%s\"%s\":\"%s\"", i == t->data_written ? ",\"data\":{" : ",", t->data[i].dataset,
                    t->data[i].fingerprint);
    text_add(out, "}");
    t->data_written = t->data_count;
}

static void read_data(struct trials *t, const json_t *event) {
    const char *dataset;
    json_t *fingerprint;
    json_object_foreach(json_object_get(event, "data"), dataset, fingerprint) if (json_is_string(fingerprint))
        see_data(t, dataset, json_string_value(fingerprint));
    t->data_written = t->data_count;
}

/* ---- lines ---- */

static status append(struct trials *t) {
    text_add(&t->line, "\n");
    return io_write(t->fd, t->history, t->line.data, t->line.length);
}

status trials_add(struct trials *t, int64_t run, const struct trial_run *r) {
    trials_set_run(t, run, r);
    text_clear(&t->line);
    text_printf(&t->line, "{\"event\":\"run\",\"trial\":%" PRId64 ",\"repeat\":%" PRId64 ",\"state\":\"%s\"",
                run / t->sweep->runs, run % t->sweep->runs, trial_states[r->state]);
    add_parameters(t, run / t->sweep->runs, &t->line);
    text_add(&t->line, ",\"value\":");
    text_add_double(&t->line, r->value);
    if (r->state == TRIAL_COMPLETE && !isnan(r->test)) {
        text_add(&t->line, ",\"test\":");
        text_add_double(&t->line, r->test);
    }
    text_printf(&t->line, ",\"best_epoch\":%" PRId64 ",\"epochs\":%" PRId64 ",\"seconds\":", r->best_epoch, r->epochs);
    text_add_double(&t->line, r->seconds);
    text_printf(&t->line, ",\"state_sha256\":\"%s\"", r->state_sha256);
    add_data(t, &t->line);
    if (r->message) {
        text_printf(&t->line, ",\"code\":%d,\"message\":", r->code);
        text_add_json(&t->line, r->message);
    }
    text_add(&t->line, "}");
    return append(t);
}

status trials_add_epoch(struct trials *t, int64_t run, int64_t epoch, double value, bool must_stop) {
    trials_set_epoch(t, run, epoch, value, must_stop);
    text_clear(&t->line);
    text_printf(&t->line,
                "{\"event\":\"epoch\",\"trial\":%" PRId64 ",\"repeat\":%" PRId64 ",\"epoch\":%" PRId64 ",\"value\":",
                run / t->sweep->runs, run % t->sweep->runs, epoch);
    text_add_double(&t->line, value);
    if (must_stop) {
        text_add(&t->line, ",\"must_stop\":true");
        add_parameters(t, run / t->sweep->runs, &t->line); /* of tpe, which another start could not compute */
    }
    text_add(&t->line, "}");
    return append(t);
}

status trials_add_stop(struct trials *t) {
    text_clear(&t->line);
    text_add(&t->line, "{\"event\":\"stopped\"}");
    return append(t);
}

/* A number of an event within its limits. */
static bool get_int(const json_t *event, const char *name, int64_t min, int64_t max, int64_t *out) {
    const json_t *value = json_object_get(event, name);
    *out = json_is_integer(value) ? json_integer_value(value) : min - 1;
    return *out >= min && *out <= max;
}

static bool get_real(const json_t *event, const char *name, double *out) {
    const json_t *value = json_object_get(event, name);
    *out = json_is_number(value) ? json_number_value(value) : NAN;
    return json_is_number(value) || json_is_null(value);
}

/* The number of the run of an event; -1: none of this sweep. */
static int64_t get_run(const struct trials *t, const json_t *event) {
    int64_t trial, repeat;
    bool is_run = get_int(event, "trial", 0, t->sweep->trials - 1, &trial) &&
                  get_int(event, "repeat", 0, t->sweep->runs - 1, &repeat);
    return is_run ? trial * t->sweep->runs + repeat : -1;
}

static bool get_point(struct trials *t, const json_t *event, int64_t trial) {
    const json_t *parameters = json_object_get(event, "parameters");
    struct point point = {0};
    for (size_t i = 0; i < t->sweep->space.count; i++) {
        const struct parameter *p = &t->sweep->space.items[i];
        const char *text = json_string_value(json_object_get(parameters, p->path));
        if (!text || !parameter_read(p, text, &point.values[i])) return false;
    }
    if (t->sweep->method == SWEEP_TPE) trials_set_point(t, trial, &point);
    return json_is_object(parameters);
}

static int state_named(const char *name) {
    for (int i = TRIAL_COMPLETE; name && i <= TRIAL_FAILED; i++)
        if (strcmp(name, trial_states[i]) == 0) return i;
    return TRIAL_PENDING;
}

static bool read_run(struct trials *t, const json_t *event, struct pruner *pruner) {
    int64_t run = get_run(t, event), code = 0;
    const char *hash = json_string_value(json_object_get(event, "state_sha256"));
    const char *message = json_string_value(json_object_get(event, "message"));
    struct trial_run r = {.state = state_named(json_string_value(json_object_get(event, "state")))};
    bool is_good = run >= 0 && r.state != TRIAL_PENDING && hash && strlen(hash) < sizeof r.state_sha256 &&
                   get_real(event, "value", &r.value) && get_real(event, "seconds", &r.seconds) &&
                   get_int(event, "best_epoch", 0, INT64_MAX - 1, &r.best_epoch) &&
                   get_int(event, "epochs", 0, INT64_MAX - 1, &r.epochs) &&
                   (!message || get_int(event, "code", 0, 0xffff, &code)) && get_point(t, event, run / t->sweep->runs);
    if (!is_good) return false;
    get_real(event, "test", &r.test); /* none of runs without test rows */
    r.code = (int)code;
    memcpy(r.state_sha256, hash, strlen(hash) + 1);
    if (message && !(r.message = strdup(message))) status_exit_without_memory();
    trials_set_run(t, run, &r);
    if (pruner && r.state == TRIAL_COMPLETE) pruner_complete(pruner, run);
    return true;
}

static bool read_event(struct trials *t, const json_t *event, struct pruner *pruner) {
    const char *name = json_string_value(json_object_get(event, "event"));
    int64_t run = get_run(t, event), epoch;
    double value;
    read_data(t, event);
    if (get_int(event, "trial", t->sweep->trials, INT64_MAX - 1, &epoch) ||
        get_int(event, "repeat", t->sweep->runs, INT64_MAX - 1, &epoch))
        return true; /* of a time of more trials or seeds */
    if (name && strcmp(name, "stopped") == 0) return true;
    if (name && strcmp(name, "run") == 0) return read_run(t, event, pruner);
    bool is_epoch = name && strcmp(name, "epoch") == 0 && run >= 0 &&
                    get_int(event, "epoch", 1, INT64_MAX - 1, &epoch) && get_real(event, "value", &value);
    if (!is_epoch) return false;
    bool must_stop = json_is_true(json_object_get(event, "must_stop"));
    trials_set_epoch(t, run, epoch, value, must_stop && get_point(t, event, run / t->sweep->runs));
    if (pruner) pruner_report(pruner, run % t->sweep->runs, run, epoch, value);
    return true;
}

static status reject_line(const struct trials *t, size_t number, bool has_zeros) {
    struct text file = {0};
    text_add_shell(&file, t->history);
    status s =
        status_new(STATUS_DATA,
                   "%s:%zu: not a line of this sweep; it was changed or damaged%s. Remove the line to have "
                   "its run done again (sed -i %zud %s), or use --fresh to start over",
                   t->history, number, has_zeros ? " (it has zero bytes, as a crash of the machine may leave)" : "",
                   number, text_string(&file));
    text_free(&file);
    return s;
}

/* The lines of [text] (size); what follows the last line end was not written whole. */
static status read_lines(struct trials *t, const char *text, size_t size, struct pruner *pruner) {
    const char *after = text + size;
    size_t number = 1;
    for (const char *end; (end = memchr(text, '\n', (size_t)(after - text))); text = end + 1, number++) {
        json_t *event = json_loadb(text, (size_t)(end - text), 0, NULL);
        bool is_good = event && read_event(t, event, pruner);
        json_decref(event);
        if (!is_good) return reject_line(t, number, memchr(text, 0, (size_t)(end - text)) != NULL);
    }
    return OK;
}

#define MAX_HISTORY ((uint64_t)16 << 30)

/* Where zero bytes up to the end begin, which a file system may leave after a crash of the machine; else [size]. */
static size_t size_without_zeros(const char *text, size_t size) {
    while (size > 0 && text[size - 1] == 0) size--;
    return size;
}

status trials_read_history(struct trials *t, struct pruner *pruner, struct log *log) {
    struct io_info info;
    char *text;
    TRY(io_read_text(t->history, MAX_HISTORY, &text, &info));
    if (!text) return status_new(STATUS_DATA, "%s: not the history of a sweep", t->history);
    size_t size = size_without_zeros(text, info.size);
    const char *last = memrchr(text, '\n', size);
    size_t whole = last ? (size_t)(last - text) + 1 : 0;
    status s = read_lines(t, text, size, pruner);
    if (!s && size < info.size)
        log_line(log,
                 "%s: dropped %zu zero bytes at its end, as a crash of the machine may leave; what they replaced is "
                 "done again",
                 t->history, (size_t)info.size - size);
    if (!s && whole < info.size) s = io_truncate(t->fd, t->history, whole);
    free(text);
    return s;
}
