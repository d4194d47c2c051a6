/* The values of a row are those of the newest events in metrics.jsonl. */
#include "train/folder/run_list.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "train/folder/run_folder.h"
#include "train/metrics/metrics.h"
#include "train/metrics/report.h"

/* The newest events of a run; NULL: none. */
struct events {
    json_t *step, *epoch;
    json_t *end; /* `end` or `stopped`, if it is the last event */
};

/* NULL for a line that is damaged. */
static json_t *parse(const char *line) { return line ? json_loads(line, 0, NULL) : NULL; }

static status read_events(const char *path, struct events *events) {
    SCOPED_LINES lines = {0};
    TRY(metrics_read(path, &lines));
    bool is_end = metrics_line_is(lines.other, METRICS_END) || metrics_line_is(lines.other, METRICS_STOPPED);
    *events = (struct events){.step = parse(lines.step),
                              .epoch = parse(lines.epoch),
                              .end = is_end && lines.is_other_last ? parse(lines.other) : NULL};
    return OK;
}

static void events_free(struct events *events) {
    json_decref(events->step);
    json_decref(events->epoch);
    json_decref(events->end);
}

/* Adds a column: the number [name] of [event] by [format], or "-". */
static void add_number(const json_t *event, const char *name, const char *format, int width, struct text *out) {
    const json_t *value = json_object_get(event, name);
    char number[64] = "-";
    if (json_is_number(value)) snprintf(number, sizeof number, format, json_number_value(value));
    text_printf(out, "  %*s", width, number);
}

/* "val_accuracy 97.22 % in epoch 9"; runs of earlier versions have no name. */
static void add_best(const json_t *end, struct text *out) {
    char best[TEXT_MAX_NAME + 64] = "-", number[32];
    SCOPED_TEXT name = {0};
    const char *metric = json_string_value(json_object_get(end, "best_metric"));
    if (metric) text_add_value(&name, metric, TEXT_MAX_NAME);
    const json_t *epoch = json_object_get(end, "best_epoch"), *value = json_object_get(end, "best_value");
    if (json_is_integer(epoch) && json_is_number(value)) {
        report_metric(metric ? metric : "", json_number_value(value), number);
        snprintf(best, sizeof best, "%s%s%s in epoch %lld", name.length ? text_string(&name) : "",
                 name.length ? " " : "", number, (long long)json_integer_value(epoch));
    }
    text_printf(out, "  %-32s", best);
}

static void add_time(const json_t *end, struct text *out) {
    char duration[32] = "-";
    const json_t *seconds = json_object_get(end, "seconds");
    if (json_is_number(seconds)) report_duration(json_number_value(seconds), duration);
    text_printf(out, "  %9s", duration);
}

/* Sum of the sizes of the files in [folder]. */
static status add_sizes(const char *folder, uint64_t *bytes) {
    SCOPED_NAMES names = {0};
    struct io_info info;
    TRY(io_stat(folder, &info));
    if (info.is_folder) TRY(io_list(folder, &names));
    for (size_t i = 0; i < names.count; i++) {
        SCOPED_STRING path = text_path(folder, names.items[i]);
        TRY(io_stat(path, &info));
        if (info.is_file) *bytes += info.size;
    }
    return OK;
}

static const char *state_of(const struct events *events, bool is_running) {
    if (is_running) return "running";
    if (!events->end) return "failed";
    const char *event = json_string_value(json_object_get(events->end, "event"));
    return event && strcmp(event, "end") == 0 ? "complete" : "stopped";
}

static void add_name(const char *name, struct text *out) {
    size_t start = out->length;
    text_add_value(out, name, TEXT_MAX_NAME);
    text_pad(out, start, 24);
}

/* The epoch of an event; -1: none that a run can have. */
static json_int_t epoch_of(const json_t *event) {
    const json_t *epoch = json_object_get(event, "epoch");
    json_int_t number = json_is_integer(epoch) ? json_integer_value(epoch) : -1;
    return number >= 0 && number < INT64_MAX ? number : -1;
}

/* Complete epochs: an event counts its own epoch from 0. At the end also a part of an epoch. */
static void add_epochs(const struct events *events, struct text *out) {
    json_int_t complete = epoch_of(events->step), epoch = epoch_of(events->epoch);
    if (epoch >= complete && epoch >= 0) complete = epoch + 1;
    if (events->end)
        add_number(events->end, json_object_get(events->end, "epochs") ? "epochs" : "epoch", "%.10g", 6, out);
    else if (complete < 0)
        text_printf(out, "  %6s", "-");
    else
        text_printf(out, "  %6lld", (long long)complete);
}

static void add_row(const char *name, const struct events *events, bool is_running, uint64_t bytes, struct text *out) {
    add_name(name, out);
    text_printf(out, "  %-8s", state_of(events, is_running));
    add_epochs(events, out);
    add_number(events->end ? events->end : events->step, "step", "%.0f", 9, out);
    add_number(events->epoch, "train_loss", "%.4g", 10, out);
    add_number(events->epoch, "val_loss", "%.4g", 10, out);
    add_best(events->end, out);
    add_time(events->end, out);
    text_printf(out, "  %8.1f MB\n", (double)bytes / 1e6);
}

static status list_run(const char *folder, const char *name, struct text *out) {
    SCOPED_STRING checkpoints = text_path(folder, "checkpoints");
    SCOPED_STRING metrics = text_path(folder, "metrics.jsonl");
    struct events events = {0};
    uint64_t bytes = 0;
    bool is_running;
    TRY(folder_lock_is_held(folder, &is_running));
    TRY(add_sizes(folder, &bytes));
    TRY(add_sizes(checkpoints, &bytes));
    TRY(read_events(metrics, &events));
    add_row(name, &events, is_running, bytes, out);
    events_free(&events);
    return OK;
}

/* The rows of the table. */
struct row {
    char *text;
    double modified; /* when metrics.jsonl was written, in seconds since 1970; 0: there is none */
    size_t index;    /* in the order of the names */
};

struct run_rows {
    struct row *rows; /* (count) */
    size_t count, capacity;
};

/* The one that was written last is at the end, above the prompt of the terminal. */
static int by_time(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    if (x->modified != y->modified) return x->modified < y->modified ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static double time_of(const char *folder) {
    SCOPED_STRING path = text_path(folder, "metrics.jsonl");
    struct io_info info;
    status s = io_stat(path, &info);
    double modified = !s && info.exists ? info.modified : 0;
    status_free(s);
    return modified;
}

/* Takes the text. */
static void table_add(struct run_rows *table, char *text, double modified) {
    if (table->count == table->capacity) {
        table->capacity = table->capacity ? 2 * table->capacity : 64;
        table->rows = status_need(realloc(table->rows, table->capacity * sizeof *table->rows));
    }
    table->rows[table->count] = (struct row){text, modified, table->count};
    table->count++;
}

static void table_free(struct run_rows *table) {
    for (size_t i = 0; i < table->count; i++) free(table->rows[i].text);
    free(table->rows);
}

static void add_head(struct text *out) {
    text_printf(out, "%-24s  %-8s  %6s  %9s  %10s  %10s  %-32s  %9s  %11s\n", "run", "state", "epochs", "steps",
                "train_loss", "val_loss", "best", "time", "size");
}

static void add_table(struct run_rows *table, struct text *out) {
    qsort(table->rows, table->count, sizeof *table->rows, by_time);
    add_head(out);
    for (size_t i = 0; i < table->count; i++) text_add(out, table->rows[i].text);
}

static void add_run(const char *folder, const char *name, struct run_rows *table) {
    struct text row = {0};
    status s = list_run(folder, name, &row);
    if (s) {
        text_clear(&row);
        add_name(name, &row);
        text_printf(&row, "  %s\n", status_message(s));
    }
    table_add(table, row.data, time_of(folder));
    status_free(s);
}

/* Whether [path] is the folder of a sweep, whose runs are in its folder runs. */
static status is_sweep(const char *path, bool *out) {
    SCOPED_STRING file = text_path(path, "sweep.yaml");
    struct io_info info;
    status s = io_stat(file, &info);
    *out = !s && info.is_file;
    return s;
}

static status list_entries(const char *folder, const char *prefix, size_t depth, struct run_rows *table);

/* Adds the run [name] of [folder]; of a folder that is not a run, such as a trial with folds, the runs in it, down to
 * [depth] levels below, and of a sweep all of them. The row of a run that cannot be read contains the reason. */
static void list_entry(const char *folder, const char *name, size_t depth, struct run_rows *table) {
    bool is_run = false, has_sweep = false;
    SCOPED_STRING path = text_path(folder, name);
    status s = run_folder_is_readable(path, &is_run);
    if (s || is_run) {
        add_run(path, name, table);
    } else if (depth > 0 && !(s = is_sweep(path, &has_sweep))) {
        SCOPED_STRING prefix = text_path(name, has_sweep ? "runs/" : "");
        s = list_entries(folder, prefix, has_sweep ? 1 : depth - 1, table);
    }
    status_free(s);
}

/* The entries of [folder]/[prefix], which is "" or ends with a slash; nothing if it is no folder. */
static status list_entries(const char *folder, const char *prefix, size_t depth, struct run_rows *table) {
    struct io_info info;
    SCOPED_NAMES names = {0};
    SCOPED_STRING path = text_path(folder, prefix);
    TRY(io_stat(path, &info));
    if (info.is_folder) TRY(io_list(path, &names));
    for (size_t i = 0; i < names.count; i++) {
        SCOPED_STRING name = text_format("%s%s", prefix, names.items[i]);
        list_entry(folder, name, depth, table);
    }
    return OK;
}

status run_list(const char *folder, struct text *out) {
    struct io_info info;
    bool has_sweep;
    struct run_rows table = {0};
    TRY(io_stat(folder, &info));
    if (!info.is_folder) return status_data("%s: there is no such folder", folder);
    TRY(is_sweep(folder, &has_sweep));
    status s = list_entries(folder, has_sweep ? "runs/" : "", 1, &table);
    size_t count = table.count;
    if (!s && count) add_table(&table, out);
    table_free(&table);
    if (s || count) return s;
    if (has_sweep)
        return status_data("%s: the folder of a sweep that has kept no run (key keep); trials.csv in it has the trials",
                           folder);
    return status_data("%s: there is no run folder in it, nor in its folders; those of a sweep are listed by: ddptrain "
                       "runs sweeps/NAME",
                       folder);
}
