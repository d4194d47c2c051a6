/* Reads the folder of a run: metrics.jsonl, line by line, and config.yaml. Every number of a step or epoch event
 * becomes a curve of its name, so a new metric needs no change here. */
#include "report/run_data.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/document/document.h"
#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/schema/schema.h"
#include "base/scoped.h"
#include "train/folder/run_folder.h"
#include "train/metrics/monitor.h"

const char *const run_states[] = {"empty", "running", "complete", "stopped", "failed"};

static char *copy(const char *text) { return status_need(strdup(text)); }

/* ---- curves ---- */

static const struct run_curve *find_curve(const struct run_data *r, const char *name, size_t length, bool is_of_steps) {
    for (size_t i = 0; i < r->curve_count; i++)
        if (r->curves[i].is_of_steps == is_of_steps && strlen(r->curves[i].name) == length &&
            memcmp(r->curves[i].name, name, length) == 0)
            return &r->curves[i];
    return NULL;
}

const struct curve *run_data_curve(const struct run_data *run, const char *name, bool is_of_steps) {
    const struct run_curve *found = find_curve(run, name, strlen(name), is_of_steps);
    return found ? &found->curve : NULL;
}

double run_data_last(const struct run_data *run, const char *name, bool is_of_steps) {
    const struct curve *curve = run_data_curve(run, name, is_of_steps);
    return curve && curve->values ? curve->last.y : NAN;
}

static void add_value(struct run_data *r, const struct json_field *field, bool is_of_steps, double x) {
    static const char *const left_out[] = {"epoch", "step", "samples", "seconds", "val_rows"};
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strlen(left_out[i]) == field->key_length && memcmp(left_out[i], field->key, field->key_length) == 0) return;
    if (field->kind != KIND_NUMBER && field->kind != KIND_NULL) return;
    struct run_curve *curve = (struct run_curve *)find_curve(r, field->key, field->key_length, is_of_steps);
    if (!curve) {
        bool is_printable = field->key_length > 0 && field->key_length < sizeof curve->name;
        for (size_t i = 0; i < field->key_length; i++)
            is_printable = is_printable && field->key[i] > ' ' && field->key[i] < 0x7f;
        if (!is_printable || r->curve_count == RUN_DATA_MAX_CURVES) return;
        curve = &r->curves[r->curve_count++];
        memcpy(curve->name, field->key, field->key_length);
        curve->is_of_steps = is_of_steps;
    }
    curve_add(&curve->curve, x, field->number);
}

static void add_values(struct run_data *r, const struct json_line *line, bool is_of_steps, double x) {
    for (size_t i = 0; i < line->count; i++) add_value(r, &line->fields[i], is_of_steps, x);
}

/* ---- events ---- */

static void set_text(char **to, const struct json_line *line, const char *key) {
    free(*to);
    *to = json_field_text(json_line_find(line, key));
}

static bool read_start(struct run_data *r, const struct json_line *line) {
    r->has_begun = true;
    set_text(&r->device, line, "device");
    set_text(&r->fingerprint, line, "dataset_fingerprint");
    r->world_size = json_line_number(line, "world_size");
    r->parameters = json_line_number(line, "parameters");
    r->train_rows = json_line_number(line, "train_rows");
    r->val_rows = json_line_number(line, "val_rows");
    r->batch_size = json_line_number(line, "batch_size");
    return true;
}

static bool read_resume(struct run_data *r, const struct json_line *line) {
    r->resumes++;
    return read_start(r, line);
}

static bool read_step(struct run_data *r, const struct json_line *line) {
    double step = json_line_number(line, "step"), samples = json_line_number(line, "samples");
    double seconds = json_line_number(line, "seconds");
    if (isnan(step)) return false;
    r->steps = step;
    if (isfinite(samples)) r->samples = (isnan(r->samples) ? 0 : r->samples) + samples;
    if (isfinite(seconds)) r->seconds = (isnan(r->seconds) ? 0 : r->seconds) + seconds;
    add_values(r, line, true, step);
    return true;
}

/* [[5,0,9],[2,0,12],[0,0,8]] */
static void read_confusion(struct run_data *r, const struct json_field *field) {
    if (!field || field->kind != KIND_NESTED) return;
    json_auto_t *rows = json_loadb(field->text, field->length, 0, NULL);
    size_t n = json_array_size(rows);
    double *values = n > 0 && n <= RUN_DATA_MAX_CLASSES ? calloc(n * n, sizeof *values) : NULL;
    bool is_good = values;
    for (size_t i = 0; is_good && i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        is_good = json_array_size(row) == n;
        for (size_t j = 0; is_good && j < n; j++) {
            values[i * n + j] = json_number_value(json_array_get(row, j));
            is_good = json_is_number(json_array_get(row, j)) && values[i * n + j] >= 0;
        }
    }
    if (is_good) {
        free(r->confusion);
        r->confusion = values;
        r->classes = n;
    } else {
        free(values);
    }
}

static bool read_epoch(struct run_data *r, const struct json_line *line) {
    double epoch = json_line_number(line, "epoch");
    if (isnan(epoch)) return false;
    r->epochs = epoch + 1;
    r->epoch_updates = r->steps / r->epochs;
    add_values(r, line, false, epoch + 1);
    read_confusion(r, json_line_find(line, "val_confusion_matrix"));
    return true;
}

/* Those that are only counted. */
static bool read_other(struct run_data *r, const struct json_line *line) {
    r->skipped += json_line_is(line, "event", "skipped");
    r->rollbacks += json_line_is(line, "event", "rollback");
    r->failed_checkpoints += json_line_is(line, "event", "checkpoint_failed");
    return true; /* a checkpoint, or of another version */
}

static bool read_end(struct run_data *r, const struct json_line *line) {
    const struct json_field *hash = json_line_find(line, "state_sha256");
    r->has_ended = json_line_is(line, "event", "end");
    r->has_stopped = !r->has_ended;
    r->epochs = json_line_number(line, "epochs"); /* also of a part of an epoch */
    if (isnan(r->epochs)) r->epochs = json_line_number(line, "epoch");
    r->steps = json_line_number(line, "step");
    r->samples = json_line_number(line, "samples");
    r->seconds = json_line_number(line, "seconds");
    r->best_epoch = json_line_number(line, "best_epoch");
    r->best_value = json_line_number(line, "best_value");
    r->test_loss = json_line_number(line, "test_loss");
    r->test_accuracy = json_line_number(line, "test_accuracy");
    r->test_rows = json_line_number(line, "test_rows");
    r->peak_memory = json_line_number(line, "peak_memory_bytes");
    set_text(&r->baseline, line, "baseline");
    r->baseline_loss = json_line_number(line, "baseline_loss");
    r->baseline_accuracy = json_line_number(line, "baseline_accuracy");
    if (hash && hash->kind == KIND_TEXT && hash->length < sizeof r->sha256)
        snprintf(r->sha256, sizeof r->sha256, "%.*s", (int)hash->length, hash->text);
    return true;
}

static bool read_line(void *user, const char *bytes, size_t size) {
    static const struct {
        const char *name;
        bool (*read)(struct run_data *r, const struct json_line *line);
    } events[] = {
        {"step", read_step},     {"epoch", read_epoch}, {"start", read_start},
        {"resume", read_resume}, {"stopped", read_end}, {"end", read_end},
    };
    struct json_line line;
    struct run_data *r = user;
    const struct json_field *event;
    if (!json_line_read(bytes, size, &line) || !(event = json_line_find(&line, "event")) || event->kind != KIND_TEXT)
        return false;
    r->has_ended = r->has_stopped = false;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (json_line_is(&line, "event", events[i].name)) return events[i].read(r, &line);
    return read_other(r, &line);
}

/* ---- config.yaml ---- */

struct keys {
    struct run_key *items;
    size_t count, capacity;
};

static void add_key(struct keys *keys, const char *path, const struct node *node) {
    SCOPED_TEXT value = {0};
    if (keys->count == keys->capacity) {
        keys->capacity = keys->capacity ? 2 * keys->capacity : 128;
        keys->items = status_need(realloc(keys->items, keys->capacity * sizeof *keys->items));
    }
    if (node->kind == NODE_SCALAR)
        text_add(&value, node->text);
    else
        node_write(node, &value);
    keys->items[keys->count++] = (struct run_key){copy(path), copy(text_string(&value))};
}

/* Mappings and lists of mappings become longer paths. */
static void add_keys(struct keys *keys, const char *path, const struct node *node) {
    bool is_list = node->kind == NODE_SEQUENCE && node->count > 0;
    for (size_t i = 0; is_list && i < node->count; i++) is_list = node->items[i]->kind == NODE_MAPPING;
    if (!(is_list || (node->kind == NODE_MAPPING && node->count > 0))) {
        add_key(keys, path, node);
        return;
    }
    for (size_t i = 0; i < node->count; i++) {
        SCOPED_TEXT below = {0};
        text_printf(&below, "%s%s", path, *path ? "." : "");
        if (is_list)
            text_printf(&below, "%zu", i);
        else
            text_add(&below, node->keys[i]);
        add_keys(keys, text_string(&below), node->items[i]);
    }
}

/* The keys and values of the YAML file [path]; none when it is absent or damaged. */
static status run_keys_read(const char *path, struct run_key **out, size_t *count) {
    SCOPED_PROBLEMS problems = {0};
    SCOPED_DOCUMENT document = NULL;
    struct io_info info;
    struct keys keys = {0};
    *out = NULL;
    *count = 0;
    TRY(io_stat(path, &info));
    if (!info.exists) return OK;
    if (!info.is_file) return status_data("%s: not a regular file", path);
    TRY(document_read(path, &problems, &document));
    if (document && problems.count == 0 && document_root(document)->count > 0)
        add_keys(&keys, "", document_root(document));
    *out = keys.items;
    *count = keys.count;
    return OK;
}

static void run_keys_free(struct run_key *keys, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(keys[i].key);
        free(keys[i].value);
    }
    free(keys);
}

const char *run_data_key(const struct run_data *run, const char *key) {
    for (size_t i = 0; i < run->key_count; i++)
        if (strcmp(run->keys[i].key, key) == 0) return run->keys[i].value;
    return NULL;
}

double run_data_number(const struct run_data *run, const char *key) {
    const char *value = run_data_key(run, key);
    char *end = NULL;
    double number = value ? strtod(value, &end) : NAN;
    return end && end != value && !*end ? number : NAN;
}

/* ---- the folder ---- */

/* Which metric decides about the best epoch (docs/metrics.md). */
static const char *best_metric(const struct run_data *r, bool *is_max) {
    const char *named = run_data_key(r, "checkpoint.best.metric"), *mode = run_data_key(r, "checkpoint.best.mode");
    bool is_named = named && strcmp(named, "null") != 0;
    const char *metric = is_named                                   ? named
                         : run_data_curve(r, "val_accuracy", false) ? "val_accuracy"
                         : run_data_curve(r, "val_loss", false)     ? "val_loss"
                                                                    : "train_loss";
    bool is_given = is_named && mode && strcmp(mode, "auto") != 0;
    const struct monitor monitor = {.metric = metric, .mode = MONITOR_AUTO};
    *is_max = is_given ? strcmp(mode, "max") == 0 : monitor_is_maximized(&monitor);
    return metric;
}

static void find_best(struct run_data *r) {
    bool is_max;
    r->best_metric = best_metric(r, &is_max);
    r->best_is_max = is_max;
    const struct curve *curve = run_data_curve(r, r->best_metric, false);
    if (r->has_ended || r->has_stopped || !curve || curve->values == 0) return;
    r->best_epoch = is_max ? curve->highest.x : curve->lowest.x;
    r->best_value = is_max ? curve->highest.y : curve->lowest.y;
}

static void clear(struct run_data *r) {
    for (size_t i = 0; r->curves && i < r->curve_count; i++) curve_free(&r->curves[i].curve);
    free(r->curves);
    free(r->device);
    free(r->fingerprint);
    free(r->baseline);
    free(r->confusion);
    run_keys_free(r->keys, r->key_count);
    *r = (struct run_data){.path = r->path, .label = r->label};
    r->curves = status_need(calloc(RUN_DATA_MAX_CURVES, sizeof *r->curves));
    double *const numbers[] = {&r->modified,      &r->world_size,        &r->parameters,    &r->train_rows,
                               &r->val_rows,      &r->batch_size,        &r->epochs,        &r->steps,
                               &r->samples,       &r->seconds,           &r->epoch_updates, &r->best_epoch,
                               &r->best_value,    &r->test_loss,         &r->test_accuracy, &r->test_rows,
                               &r->baseline_loss, &r->baseline_accuracy, &r->peak_memory};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) *numbers[i] = NAN;
}

static status read_files(struct run_data *r, const char *metrics, const char *config) {
    struct io_info info;
    bool has_restarted, is_locked;
    TRY(folder_lock_is_held(r->path, &is_locked)); /* before the lines: a run that ends meanwhile has not failed */
    TRY(line_file_read(&r->file, metrics, read_line, r, &has_restarted));
    if (has_restarted) {
        clear(r);
        TRY(line_file_read(&r->file, metrics, read_line, r, &has_restarted));
    }
    r->is_locked = is_locked;
    TRY(io_stat(metrics, &info));
    r->modified = info.exists ? info.modified : NAN;
    if (!r->keys) TRY(run_keys_read(config, &r->keys, &r->key_count));
    find_best(r);
    return OK;
}

status run_data_update(struct run_data *r) {
    SCOPED_STRING metrics = text_path(r->path, "metrics.jsonl");
    SCOPED_STRING config = text_path(r->path, "config.yaml");
    return read_files(r, metrics, config);
}

static char *last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return copy(slash && slash[1] ? slash + 1 : path);
}

status run_data_read(const char *path, struct run_data **out) {
    struct io_info info;
    bool is_run;
    *out = NULL;
    TRY(io_stat(path, &info));
    if (!info.is_folder) return status_data("%s: there is no such folder", path);
    TRY(run_folder_is_readable(path, &is_run));
    if (!is_run)
        return status_data("%s: not the folder of a run or a sweep: it has neither metrics.jsonl and checkpoints nor "
                           "sweep.yaml; give one such as runs/NAME or sweeps/NAME",
                           path);
    struct run_data *r = calloc(1, sizeof *r);
    if (!r) return status_memory("the numbers of a run");
    r->path = copy(path);
    r->path[io_length_without_slashes(r->path)] = 0;
    r->label = last_name(r->path);
    clear(r);
    status s = run_data_update(r);
    if (s) run_data_free(r);
    if (!s) *out = r;
    return s;
}

void run_data_free(struct run_data *r) {
    if (!r) return;
    clear(r);
    free(r->curves);
    free(r->path);
    free(r->label);
    free(r);
}

enum run_state run_data_state(const struct run_data *r) {
    if (r->is_locked) return RUN_RUNNING;
    if (r->has_ended) return RUN_COMPLETE;
    if (r->has_stopped) return RUN_STOPPED;
    return r->has_begun ? RUN_FAILED : RUN_EMPTY;
}
