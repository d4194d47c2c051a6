/* The last lines of metrics.jsonl say how far a run is, without its checkpoints being read. */
#include "sweep/trial_folder.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "checkpoint/checkpoint.h"
#include "train/metrics/metrics_read.h"

#define EVENTS "events.out.tfevents." /* of TensorBoard */

/* ---- how far its run is ---- */

struct progress {
    bool has_ended;      /* its last event */
    bool is_at_rest;     /* its last event is that of a start or a stop */
    int64_t epochs;      /* complete ones */
    int64_t step_epochs; /* complete epochs before its newest step */
    char state_sha256[65];
};

/* [missing] also for a number that no run can have. */
static int64_t epoch_of(const char *line, int64_t missing) {
    json_t *event = line ? json_loads(line, 0, NULL) : NULL;
    const json_t *epoch = json_object_get(event, "epoch");
    int64_t number = json_is_integer(epoch) ? json_integer_value(epoch) : -1;
    json_decref(event);
    return number >= 0 && number < INT64_MAX ? number : missing;
}

static void read_hash(const char *line, struct progress *out) {
    json_t *event = json_loads(line, 0, NULL);
    const char *hash = json_string_value(json_object_get(event, "state_sha256"));
    if (hash && strlen(hash) < sizeof out->state_sha256) memcpy(out->state_sha256, hash, strlen(hash) + 1);
    json_decref(event);
}

static void read_lines(const struct metrics_lines *lines, struct progress *out) {
    static const enum metrics_event events[] = {METRICS_END, METRICS_STOPPED, METRICS_START, METRICS_RESUME};
    int64_t after = epoch_of(lines->epoch, -1) + 1; /* the line of an epoch has its index */
    *out = (struct progress){.step_epochs = epoch_of(lines->step, 0)};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (!metrics_line_is(lines->other, events[i])) continue;
        out->has_ended = events[i] == METRICS_END && lines->is_other_last;
        out->is_at_rest = events[i] != METRICS_END;
        out->epochs = epoch_of(lines->other, 0);
    }
    if (out->has_ended) read_hash(lines->other, out);
    if (after > out->epochs) out->epochs = after;
}

static status read_metrics(const char *path, struct metrics_lines *out) {
    struct text metrics = {0};
    text_printf(&metrics, "%s/metrics.jsonl", path);
    status s = metrics_read(text_string(&metrics), out);
    text_free(&metrics);
    return s;
}

status trial_folder_value(const char *path, const char *name, double *out) {
    struct metrics_lines lines;
    *out = NAN;
    TRY(read_metrics(path, &lines));
    json_t *end = metrics_line_is(lines.other, METRICS_END) ? json_loads(lines.other, 0, NULL) : NULL;
    const json_t *value = json_object_get(end, name);
    if (json_is_number(value)) *out = json_number_value(value);
    json_decref(end);
    metrics_lines_free(&lines);
    return OK;
}

/* Zeros for a folder without a run. */
static status read_progress(const char *path, struct progress *out) {
    struct metrics_lines lines;
    *out = (struct progress){0};
    TRY(read_metrics(path, &lines));
    read_lines(&lines, out);
    metrics_lines_free(&lines);
    return OK;
}

/* The folder of a complete run may be that of a worker that was lost before: such a run is not as long. A pruned
 * run has stopped at the end of its last epoch. */
status trial_folder_compare(const char *path, const struct trial_run *result, enum trial_folder_state *out) {
    struct progress now;
    bool is_used, is_complete = result->state == TRIAL_COMPLETE;
    *out = TRIAL_FOLDER_AS_LEFT;
    TRY(folder_lock_is_held(path, &is_used));
    TRY(read_progress(path, &now));
    bool is_same = now.has_ended && is_complete && strcmp(now.state_sha256, result->state_sha256) == 0;
    bool is_beyond =
        is_complete && (now.step_epochs >= result->epochs || (now.is_at_rest && now.epochs >= result->epochs));
    bool has_more = (is_complete || result->state == TRIAL_PRUNED) && now.epochs > result->epochs;
    if (is_used || has_more || (now.has_ended && !is_complete) || (!now.has_ended && is_beyond))
        *out = TRIAL_FOLDER_EXTENDED;
    else if (now.has_ended && !is_same)
        *out = TRIAL_FOLDER_DIFFERS;
    return OK;
}

/* ---- what is in it ---- */

static bool is_of_run(const char *name) {
    static const char *const names[] = {
        "config.yaml", "metrics.jsonl", "metrics.jsonl.part", "log.txt",        "log.txt.part",
        "checkpoints", "logs",          "report.html",        FOLDER_LOCK_FILE, ".DS_Store"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return strncmp(name, EVENTS, strlen(EVENTS)) == 0 || strncmp(name, ".nfs", 4) == 0 || io_is_temporary(name);
}

static bool is_of_saver(const char *name) {
    bool is_best = strncmp(name, CHECKPOINT_BEST ".", sizeof CHECKPOINT_BEST) == 0 && checkpoint_has_ending(name);
    return is_best || checkpoint_is_name(name) || io_is_temporary(name);
}

static bool is_of_launcher(const char *name) { return strncmp(name, "rank-", strlen("rank-")) == 0; }

/* [within]: "" or "logs/", before the names in [folder]. */
static status find(const char *folder, const char *within, bool (*is_known)(const char *), struct text *name) {
    struct io_info info;
    struct io_names names;
    TRY(io_stat(folder, &info));
    if (!info.is_folder || name->length) return OK;
    TRY(io_list(folder, &names));
    for (size_t i = 0; i < names.count && !name->length; i++)
        if (!is_known(names.items[i])) text_printf(name, "%s%s", within, names.items[i]);
    io_names_free(&names);
    return OK;
}

status trial_folder_find_other(const char *path, struct text *name) {
    struct text checkpoints = {0}, logs = {0};
    text_printf(&checkpoints, "%s/checkpoints", path);
    text_printf(&logs, "%s/logs", path);
    status s = find(path, "", is_of_run, name);
    if (!s) s = find(text_string(&checkpoints), "checkpoints/", is_of_saver, name);
    if (!s) s = find(text_string(&logs), "logs/", is_of_launcher, name);
    text_free(&checkpoints);
    text_free(&logs);
    return s;
}
