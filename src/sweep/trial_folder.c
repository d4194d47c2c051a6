/* The last lines of metrics.jsonl say how far a run has come, without its checkpoints being read. */
#include "sweep/trial_folder.h"

#include <jansson.h>
#include <string.h>

#include "base/folder_lock.h"
#include "base/io.h"
#include "checkpoint/checkpoint.h"
#include "train/metrics/metrics_read.h"

#define EVENTS "events.out.tfevents." /* of TensorBoard */

/* ---- how far its run has come ---- */

struct progress {
    bool has_ended;
    int64_t epochs;
    char state_sha256[65];
};

static void read_lines(const struct metrics_lines *lines, struct progress *out) {
    bool has_ended = metrics_line_is(lines->other, METRICS_END);
    bool has_epoch = has_ended || metrics_line_is(lines->other, METRICS_STOPPED);
    json_t *last = has_epoch ? json_loads(lines->other, 0, NULL) : NULL;
    json_t *epoch = lines->epoch ? json_loads(lines->epoch, 0, NULL) : NULL;
    const json_t *number = json_object_get(epoch, "epoch");
    const char *hash = json_string_value(json_object_get(last, "state_sha256"));
    *out = (struct progress){.has_ended = has_ended && hash && strlen(hash) < sizeof out->state_sha256,
                             .epochs = json_integer_value(json_object_get(last, "epoch"))};
    if (json_is_integer(number) && json_integer_value(number) >= out->epochs)
        out->epochs = json_integer_value(number) + 1;
    if (out->has_ended) memcpy(out->state_sha256, hash, strlen(hash) + 1);
    json_decref(last);
    json_decref(epoch);
}

/* Zeros for a folder without a run. */
static status read_progress(const char *path, struct progress *out) {
    struct metrics_lines lines;
    struct text metrics = {0};
    *out = (struct progress){0};
    text_printf(&metrics, "%s/metrics.jsonl", path);
    status s = metrics_read(text_string(&metrics), &lines);
    text_free(&metrics);
    if (s) return s;
    read_lines(&lines, out);
    metrics_lines_free(&lines);
    return OK;
}

/* The folder of a complete run may be that of a worker that was lost before: such a run has not come as far. */
status trial_folder_is_extended(const char *path, const struct trial_run *result, bool *out) {
    struct progress now;
    *out = false;
    TRY(read_progress(path, &now));
    if (now.has_ended)
        *out = result->state != TRIAL_COMPLETE || strcmp(now.state_sha256, result->state_sha256) != 0;
    else if (result->state == TRIAL_COMPLETE || result->state == TRIAL_PRUNED)
        *out = now.epochs > result->epochs;
    return OK;
}

/* ---- what is in it ---- */

static bool is_of_run(const char *name) {
    static const char *const names[] = {"config.yaml", "metrics.jsonl", "metrics.jsonl.part", "log.txt", "log.txt.part",
                                        "checkpoints", "logs",          FOLDER_LOCK_FILE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return strncmp(name, EVENTS, strlen(EVENTS)) == 0 || io_is_temporary(name);
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
