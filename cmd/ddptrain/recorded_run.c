/* What can be derived is derived: the best epoch, the waits of early stop and schedule from the evaluations of
 * metrics.jsonl, the steps that have a line from `every`, the hashes from the tensors of the checkpoints. */
#include "recorded_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/files/json_lines.h"
#include "base/files/sealed.h"
#include "base/scoped.h"
#include "optim/schedule.h"
#include "train/weights/weights.h"

static bool is_same(double a, double b) { return isnan(a) ? isnan(b) : !(a < b) && !(a > b); }

static bool is_start(const struct ledger_line *line) {
    return line->event == METRICS_START || line->event == METRICS_RESUME;
}

/* Keeps the first one. Takes OK. */
static void report_late(struct recorded_run *r, status difference) {
    if (r->late)
        status_free(difference);
    else
        r->late = difference;
}

/* ---- the order of the ledger ---- */

static status out_of_order(const struct recorded_run *r, size_t index, const char *why) {
    return status_new(STATUS_DIVERGED, "%s:%zu: %s: lines were added, changed or moved", r->ledger.path, index + 1,
                      why);
}

/* The steps that have a line: multiples of `every` of the start before them. */
struct due {
    int64_t every, next;
};

static struct due due_after(const struct ledger_line *start) {
    int64_t every = ledger_line_int(start, "every");
    return (struct due){every, every > 0 ? (start->step / every + 1) * every : INT64_MAX};
}

/* Resume [index] is later than [saved]: from best.h5, which has no line. The steps before it must have its config. */
static status check_resume(const struct recorded_run *r, size_t index, const struct ledger_line *saved,
                           const struct due *due) {
    const struct ledger_line *line = &r->ledger.lines[index], *start = line - 1;
    while (!is_start(start)) start--; /* the first line is one */
    if (line->step >= due->next)
        return status_data("%s:%zu: it has no lines of steps %lld to %lld; was train.ledger off then?", r->ledger.path,
                           index + 1, (long long)saved->step + 1, (long long)line->step);
    if (ledger_line_equals(line, start, "config_sha256")) return OK;
    return status_data("%s:%zu: the resume has another config than steps %lld to %lld, after which there is no line of "
                       "a checkpoint, so they cannot be repeated",
                       r->ledger.path, index + 1, (long long)saved->step + 1, (long long)line->step);
}

/* Line [index] with [saved], the newest checkpoint before it. */
static status check_line(const struct recorded_run *r, size_t index, const struct ledger_line *saved,
                         const struct due *due) {
    const struct ledger_line *line = &r->ledger.lines[index];
    bool is_last = index + 1 == r->ledger.count, is_end = line->event == METRICS_END || line->event == METRICS_STOPPED;
    if (line->event == METRICS_START) return out_of_order(r, index, "a second start");
    if (is_end && !is_last) return out_of_order(r, index, "an end before other lines");
    if (line->event == METRICS_END && saved && saved->step != line->step)
        return out_of_order(r, index, "the end of the run is at another step than its last checkpoint");
    if (line->step < line[-1].step) return out_of_order(r, index, "a step before that of the line above");
    if (ledger_line_has(&line[-1], "pending") && line->step != line[-1].step)
        return out_of_order(r, index, "no other line of the step of a pending evaluation");
    bool is_state = line->event == METRICS_RESUME || line->event == METRICS_CHECKPOINT;
    if (!is_state || !saved) return OK;
    if (line->event == METRICS_RESUME && line->step > saved->step) return check_resume(r, index, saved, due);
    bool is_same = line->step == saved->step && !ledger_line_has(saved, "pending");
    if (line->event == METRICS_CHECKPOINT) /* after skipped batches a step is that of several states */
        is_same = is_same && ledger_line_equals(line, saved, "epoch") && ledger_line_equals(line, saved, "batch");
    bool has_states = ledger_line_has(line, "state") && ledger_line_has(saved, "state");
    if (is_same && has_states && !ledger_line_equals(line, saved, "state"))
        return out_of_order(r, index, "another state at the step of the checkpoint above");
    return OK;
}

/* Line [index] has none of the steps before it left out, and is itself one that is due. */
static status check_due(const struct recorded_run *r, size_t index, struct due *due) {
    const struct ledger_line *line = &r->ledger.lines[index];
    bool is_step = line->event == METRICS_STEP;
    if (line->step > due->next || (!is_step && line->step == due->next))
        return out_of_order(r, index, arena_printf(r->arena, "no line of step %lld above it", (long long)due->next));
    if (is_step && line->step < due->next) return out_of_order(r, index, "a step that has no line in such a ledger");
    if (is_step) due->next += due->every;
    if (line->event == METRICS_RESUME) *due = due_after(line);
    return OK;
}

/* What every ledger of a run has, so that a line cannot take the place of another. */
static status check_order(const struct recorded_run *r) {
    const struct ledger_line *saved = NULL;
    int64_t step = 0; /* of the newest line of a step */
    struct due due = due_after(&r->ledger.lines[0]);
    for (size_t i = 1; i < r->ledger.count; i++) {
        TRY(check_line(r, i, saved, &due));
        if (r->ledger.lines[i].event == METRICS_STEP) {
            if (r->ledger.lines[i].step <= step) return out_of_order(r, i, "a step that was already there");
            step = r->ledger.lines[i].step;
        }
        TRY(check_due(r, i, &due));
        if (r->ledger.lines[i].event == METRICS_CHECKPOINT) saved = &r->ledger.lines[i];
    }
    return OK;
}

/* ---- the starts and their configs ---- */

/* NULL: no start before [line] has it. */
static const struct recorded_config *find_config(const struct recorded_run *r, const struct ledger_line *start) {
    const char *wanted = ledger_line_word(r->arena, start, "config_sha256");
    for (size_t i = 0; i < r->config_count; i++)
        if (strcmp(r->configs[i].sha256, wanted) == 0) return &r->configs[i];
    return NULL;
}

const char *recorded_config(const struct recorded_run *r, const struct ledger_line *start) {
    return find_config(r, start)->text;
}

static const struct config *recorded_newest_config(const struct recorded_run *r) {
    return config_of(r->configs[0].file);
}

static status add_config(struct recorded_run *r, const char *sha256, const char *text, const char *name) {
    struct recorded_config *added = &r->configs[r->config_count++];
    *added = (struct recorded_config){.sha256 = sha256, .text = text};
    return text ? config_parse(name, text, &added->file) : OK;
}

/* The config.yaml of the folder must be that of the newest start. */
static status read_config(struct recorded_run *r) {
    SCOPED_STRING text = NULL;
    char hex[DIGEST_HEX_SIZE];
    const char *path = arena_printf(r->arena, "%s/config.yaml", r->folder);
    struct io_info info;
    TRY(io_read_text(path, 1 << 24, &text, &info));
    if (!text) return status_data("%s: there is no such file", path);
    const struct ledger_line *newest = ledger_start_at(&r->ledger, INT64_MAX);
    const char *wanted = ledger_line_word(r->arena, newest, "config_sha256");
    digest_hex_of(text, strlen(text), hex);
    if (strcmp(hex, wanted) == 0) return add_config(r, wanted, arena_copy(r->arena, text), path);
    return status_new(STATUS_DIVERGED, "%s: not the config of the run: its SHA-256 is %.16s..., and %.16s... in %s:%zu",
                      path, hex, wanted, r->ledger.path, ledger_line_number(&r->ledger, newest));
}

static status start_differs(const struct recorded_run *r, const struct ledger_line *start, const char *key,
                            const char *expected) {
    SCOPED_TEXT why = {0};
    ledger_line_add(start, key, &why);
    return status_new(STATUS_DIVERGED, "%s:%zu: %s is %s, and %s", r->ledger.path,
                      ledger_line_number(&r->ledger, start), key, why.length ? text_string(&why) : "missing", expected);
}

/* The fields of a start that its config has, too. */
static status check_start_config(const struct recorded_run *r, const struct ledger_line *start,
                                 const struct config *config) {
    const struct ledger_config *ledger = &config->train.ledger;
    const struct {
        const char *key;
        int64_t value;
    } fields[] = {{"portable", config->determinism.is_portable},
                  {"elastic", config->determinism.mode == DETERMINISM_ELASTIC},
                  {ledger->every == SCHEMA_NO_INT ? NULL : "every", ledger->every}};
    char expected[64];
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].key || ledger_line_int(start, fields[i].key) == fields[i].value) continue;
        snprintf(expected, sizeof expected, "%lld by its config", (long long)fields[i].value);
        return start_differs(r, start, fields[i].key, expected);
    }
    int64_t every = ledger_line_int(start, "every");
    bool is_power = every > 0 && (every & (every - 1)) == 0;
    if (ledger->every != SCHEMA_NO_INT || is_power) return OK;
    return start_differs(r, start, "every", "a power of two by its config");
}

/* The text of the config in a line must be that of its SHA-256. */
static status check_config_text(const struct recorded_run *r, const struct ledger_line *start) {
    char hex[DIGEST_HEX_SIZE];
    if (!ledger_line_has(start, "config")) return OK;
    const char *text = ledger_line_word(r->arena, start, "config");
    digest_hex_of(text, strlen(text), hex);
    if (strcmp(hex, ledger_line_word(r->arena, start, "config_sha256")) == 0) return OK;
    return status_new(STATUS_DIVERGED, "%s:%zu: its config is not the one of its config_sha256", r->ledger.path,
                      ledger_line_number(&r->ledger, start));
}

/* A run cannot change its data. */
static status check_start_data(const struct recorded_run *r, const struct ledger_line *start) {
    static const char *const keys[] = {"dataset_fingerprint", "sampler_sha256"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!ledger_line_equals(start, &r->ledger.lines[0], keys[i]))
            return start_differs(r, start, keys[i], "another one at the first start");
    return OK;
}

static status check_starts(struct recorded_run *r) {
    r->configs = arena_alloc(r->arena, (r->ledger.count + 1) * sizeof *r->configs);
    TRY(read_config(r));
    for (size_t i = 0; i < r->ledger.count; i++) {
        const struct ledger_line *start = &r->ledger.lines[i];
        if (!is_start(start)) continue;
        TRY(check_config_text(r, start));
        if (!find_config(r, start)) {
            const char *text, *wanted = ledger_line_word(r->arena, start, "config_sha256");
            TRY(ledger_find_config(r->arena, r->folder, &r->ledger, wanted, &text));
            TRY(add_config(r, wanted, text, "the config of an earlier start"));
        }
        const struct recorded_config *config = find_config(r, start);
        if (config->file) TRY(check_start_config(r, start, config_of(config->file)));
        TRY(check_start_data(r, start));
        if (ledger_line_int(start, "world_size") < 1)
            return start_differs(r, start, "world_size", "at least 1 in a run");
    }
    return OK;
}

/* A resume may change few keys of a config: those that all starts have must not differ in another one. */
static status compare_configs(const struct recorded_run *r) {
    for (size_t i = 1; i < r->config_count; i++) {
        SCOPED_TEXT differences = {0};
        if (!r->configs[i].file) continue;
        if (config_diff(config_of(r->configs[i].file), recorded_newest_config(r), &differences))
            return status_new(
                STATUS_DIVERGED,
                "%s: its starts have configs with which no run continues another (earlier -> config.yaml):\n%s",
                r->ledger.path, text_string(&differences));
    }
    return OK;
}

/* ---- names ---- */

static int compare_names(const void *a, const void *b) {
    const struct recorded_name *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static void find_names(struct recorded_run *r) {
    r->names = arena_alloc(r->arena, r->ledger.count * sizeof *r->names);
    for (size_t i = 0; i < r->ledger.count; i++)
        if (r->ledger.lines[i].event == METRICS_CHECKPOINT)
            r->names[r->name_count++] =
                (struct recorded_name){ledger_line_word(r->arena, &r->ledger.lines[i], "name"), i};
    if (r->name_count) qsort(r->names, r->name_count, sizeof *r->names, compare_names);
}

/* The number of names that are not after [name] at [line]. */
static size_t count_names(const struct recorded_run *r, const char *name, size_t line) {
    const struct recorded_name wanted = {name, line};
    size_t low = 0, high = r->name_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_names(&r->names[middle], &wanted) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The newest line that a checkpoint [name] was saved at; SIZE_MAX: there is none. */
static size_t line_of_name(const struct recorded_run *r, const char *name) {
    size_t count = count_names(r, name, SIZE_MAX);
    bool is_found = count > 0 && strcmp(r->names[count - 1].name, name) == 0;
    return is_found ? r->names[count - 1].line : SIZE_MAX;
}

const char *recorded_file(const char *path) { return ledger_has_file(path) ? path : NULL; }

const char *recorded_checkpoint(const struct recorded_run *r, size_t index) {
    const char *name = ledger_line_word(r->arena, &r->ledger.lines[index], "name");
    if (line_of_name(r, name) != index) return NULL;
    return recorded_file(arena_printf(r->arena, "%s/checkpoints/%s.h5", r->folder, name));
}

/* ---- metrics.jsonl: its lines ---- */

/* Whether a field has another value each time, or where a run begins with the file of a checkpoint. */
static bool is_own(const char *key) {
    static const char *const keys[] = {"event",           "seconds",          "samples_per_second", "comm_hidden",
                                       "startup_seconds", "best_epoch",       "best_epoch_index",   "best_value",
                                       "early_stop_wait", "peak_memory_bytes"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static bool is_equal(const struct json_field *a, const struct json_field *b) {
    if (a->kind != b->kind) return false;
    bool is_same = a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
    return is_same || (a->kind == KIND_NUMBER && json_field_exact(a) == json_field_exact(b));
}

status recorded_metrics_differ(const struct recorded_run *r, const struct ledger_line *line, const char *why) {
    return status_new(STATUS_DIVERGED, "%s:%zu: %s", r->metrics.path, ledger_line_number(&r->metrics, line), why);
}

status recorded_compare_fields(const struct recorded_run *r, const struct ledger_line *line,
                               const struct ledger_line *other, bool is_whole, const char *where) {
    struct json_line x, y;
    if (!json_line_read(line->text, line->size, &x) || !json_line_read(other->text, other->size, &y))
        return recorded_metrics_differ(r, line, "not a JSON object");
    for (size_t i = 0; i < x.count; i++) {
        const char *key = arena_printf(r->arena, "%.*s", (int)x.fields[i].key_length, x.fields[i].key);
        const struct json_field *field = json_line_find(&y, key);
        bool differs = field ? !is_equal(&x.fields[i], field) : is_whole;
        if (!differs || is_own(key)) continue;
        SCOPED_TEXT why = {0};
        text_printf(&why, "%s is ", key);
        ledger_line_add(line, key, &why);
        if (field) text_add(&why, ", and ");
        if (field) ledger_line_add(other, key, &why);
        text_printf(&why, "%s %s", field ? "" : ", which is not", where);
        return recorded_metrics_differ(r, line, text_string(&why));
    }
    return OK;
}

/* Only a run that ended within an epoch and was extended has two lines of it, before and after the start. */
static status find_epochs(struct recorded_run *r) {
    const struct ledger_file *m = &r->metrics;
    bool has_started = false; /* since the line of the last epoch */
    r->epochs = arena_alloc(r->arena, m->count * sizeof *r->epochs);
    for (size_t i = 0; i < m->count; i++) {
        has_started = has_started || m->lines[i].event == METRICS_RESUME;
        if (m->lines[i].event != METRICS_EPOCH) continue;
        int64_t epoch = ledger_line_int(&m->lines[i], "epoch");
        int64_t before = r->epoch_count ? r->epochs[r->epoch_count - 1].epoch : -1;
        if (epoch < before || (epoch == before && !has_started))
            return recorded_metrics_differ(r, &m->lines[i],
                                           "an epoch that was already there: lines were added or moved");
        r->epochs[r->epoch_count++] = (struct recorded_epoch){.epoch = epoch, .line = &m->lines[i]};
        has_started = false;
    }
    return OK;
}

const struct ledger_line *recorded_find_epoch(const struct recorded_run *r, int64_t epoch) {
    size_t low = 0, high = r->epoch_count; /* the number of lines that are not of a later epoch */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->epochs[middle].epoch <= epoch)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && r->epochs[low - 1].epoch == epoch ? r->epochs[low - 1].line : NULL;
}

const struct ledger_line *recorded_end(const struct ledger_file *file) {
    const struct ledger_line *last = file->count ? &file->lines[file->count - 1] : NULL;
    return last && (last->event == METRICS_END || last->event == METRICS_STOPPED) ? last : NULL;
}

/* metrics.jsonl has no step and no epoch after the end of the ledger. */
static status check_last(const struct recorded_run *r) {
    const struct ledger_line *end = recorded_end(&r->ledger), *saved = ledger_find(&r->ledger, METRICS_CHECKPOINT, -1);
    const struct recorded_epoch *last = r->epoch_count ? &r->epochs[r->epoch_count - 1] : NULL;
    if (!end) return OK;
    int64_t epochs = ledger_line_int(end, "epoch") + (saved && ledger_line_int(saved, "batch") > 0);
    for (size_t i = r->metrics.count; i-- > 0;)
        if (r->metrics.lines[i].step > end->step)
            return recorded_metrics_differ(r, &r->metrics.lines[i],
                                           "a step after the end of the run: lines were added");
    return last && last->epoch >= epochs
               ? recorded_metrics_differ(r, last->line, "an epoch after the end of the run: lines were added")
               : OK;
}

/* A start of metrics.jsonl is one of the ledger, and has the name and the seed of the config. */
static status check_metrics_start(const struct recorded_run *r, const struct ledger_line *line) {
    const struct config *config = recorded_newest_config(r);
    status differs = OK;
    if (strcmp(ledger_line_word(r->arena, line, "name"), config->name) != 0)
        return recorded_metrics_differ(r, line, "name is not the one of the config");
    if (ledger_line_int(line, "seed") != config->seed)
        return recorded_metrics_differ(r, line, "seed is not the one of the config");
    for (size_t i = 0; i < r->ledger.count; i++) {
        if (!is_start(&r->ledger.lines[i]) || r->ledger.lines[i].step != line->step) continue;
        const char *where = arena_printf(r->arena, "in %s:%zu", r->ledger.path, i + 1);
        status s = recorded_compare_fields(r, line, &r->ledger.lines[i], false, where);
        status_free(differs);
        if (!s) return OK;
        differs = s;
    }
    return differs; /* OK: there is none while train.ledger is off */
}

/* Each file has the starts of the other. */
static status check_metrics_starts(const struct recorded_run *r) {
    const struct ledger_file *m = &r->metrics;
    if (m->count == 0) return OK;
    if (!is_start(&m->lines[0]))
        return recorded_metrics_differ(r, &m->lines[0], "no line of a start above it: lines were removed");
    for (size_t i = 0; i < m->count; i++)
        if (is_start(&m->lines[i])) TRY(check_metrics_start(r, &m->lines[i]));
    for (size_t i = 0; i < r->ledger.count; i++) {
        const struct ledger_line *start = &r->ledger.lines[i];
        bool is_there = !is_start(start);
        for (size_t k = 0; k < m->count && !is_there; k++)
            is_there = is_start(&m->lines[k]) && m->lines[k].step == start->step;
        if (!is_there)
            return status_new(STATUS_DIVERGED, "%s: it has no line of the start of %s:%zu", m->path, r->ledger.path,
                              i + 1);
    }
    return OK;
}

/* ---- metrics.jsonl: its evaluations ---- */

static double value_of(const struct json_line *line, const char *metric) {
    const struct json_field *field = metric ? json_line_find(line, metric) : NULL;
    return field && field->kind == KIND_NUMBER ? json_field_exact(field) : NAN;
}

/* The metric of the best epoch: that of checkpoint.best, else as monitor_of_best in train/loop/loop.c. */
static struct monitor find_monitor(const struct recorded_run *r) {
    struct monitor monitor = recorded_newest_config(r)->checkpoint.best;
    if (monitor.metric) return monitor;
    monitor.metric = r->has_validation ? "val_loss" : "train_loss";
    for (size_t i = 0; i < r->epoch_count && r->has_validation; i++) {
        if (!ledger_line_has(r->epochs[i].line, "val_loss")) continue;
        if (ledger_line_has(r->epochs[i].line, "val_accuracy")) monitor.metric = "val_accuracy";
        break;
    }
    return monitor;
}

static void read_evaluations(struct recorded_run *r) {
    const struct config *config = recorded_newest_config(r);
    int mode;
    const char *stop = early_stop_of(&config->train.early_stop).monitor.metric;
    const char *plateau = schedule_monitor(&config->schedule, &mode);
    r->has_validation = r->metrics.count > 0 && ledger_line_int(&r->metrics.lines[0], "val_rows") > 0;
    r->monitor = find_monitor(r);
    for (size_t i = 0; i < r->epoch_count; i++) {
        struct recorded_epoch *e = &r->epochs[i];
        struct json_line line;
        e->best = e->stop = e->plateau = e->train_loss = NAN;
        if (!json_line_read(e->line->text, e->line->size, &line)) continue;
        bool is_evaluated = json_line_find(&line, "val_loss") || !r->has_validation;
        if (is_evaluated) e->best = value_of(&line, r->monitor.metric);
        e->stop = value_of(&line, stop);
        e->plateau = value_of(&line, plateau);
        e->train_loss = value_of(&line, "train_loss");
    }
}

/* The number of epochs whose lines are before [line]. */
static size_t epochs_before(const struct recorded_run *r, const struct ledger_line *line) {
    size_t low = 0, high = r->epoch_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->epochs[middle].line < line)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether the best of epochs [first] to [end] is [epoch], from 1, with [value]; 0 and NAN: none has a value. */
static bool is_best_of(const struct recorded_run *r, size_t first, size_t end, int64_t epoch, double value) {
    const struct recorded_epoch *best = NULL;
    for (size_t i = first; i < end; i++)
        if (monitor_is_better(&r->monitor, r->epochs[i].best, best ? best->best : NAN, 0)) best = &r->epochs[i];
    return best ? best->epoch + 1 == epoch && is_same(best->best, value) : epoch == 0 && isnan(value);
}

/* Whether that is the best epoch before [line] of metrics.jsonl. A resume that did not find best.h5 has begun anew. */
static bool is_best_before(struct recorded_run *r, const struct ledger_line *line, int64_t epoch, double value) {
    size_t end = epochs_before(r, line);
    if (is_best_of(r, 0, end, epoch, value)) return true;
    for (const struct ledger_line *start = r->metrics.lines; start < line; start++)
        if (start->event == METRICS_RESUME && is_best_of(r, epochs_before(r, start), end, epoch, value)) {
            r->best_since = start;
            return true;
        }
    return false;
}

/* The best epoch of the end. */
static status check_best(struct recorded_run *r) {
    const struct ledger_line *end = recorded_end(&r->metrics);
    struct json_line line;
    if (!end || !json_line_read(end->text, end->size, &line)) return OK;
    int64_t epoch = ledger_line_int(end, "best_epoch");
    if (!is_best_before(r, end, epoch, value_of(&line, "best_value")))
        return recorded_metrics_differ(r, end, "best_epoch and best_value are not those of the best of its epochs");
    if (ledger_line_int(end, "best_epoch_index") != (epoch > 0 ? epoch - 1 : -1))
        return recorded_metrics_differ(r, end, "best_epoch_index is not that of best_epoch");
    if (epoch > 0 && !json_line_is(&line, "best_metric", r->monitor.metric))
        return recorded_metrics_differ(r, end, "best_metric is not the one of the config");
    return OK;
}

/* What early stop and the schedule have counted after [end] epochs. */
struct waits {
    double best;
    int64_t wait;
    struct plateau plateau;
};

/* Whether the end of epoch [index] was that of a whole epoch; a run by steps can end within one. */
static bool is_whole(const struct recorded_run *r, size_t index) {
    const struct recorded_epoch *e = &r->epochs[index];
    const struct ledger_line *saved = ledger_find(&r->ledger, METRICS_CHECKPOINT, -1);
    if (index + 1 < r->epoch_count) return e[1].epoch > e->epoch;
    return !saved || saved->step < e->line->step || ledger_line_int(saved, "epoch") > e->epoch;
}

/* As complete_epoch in train/loop/loop.c. */
static struct waits count_waits(const struct recorded_run *r, size_t end) {
    const struct config *config = recorded_newest_config(r);
    struct early_stop stop = early_stop_of(&config->train.early_stop);
    struct monitor plateau = {0};
    struct waits w = {.best = NAN, .plateau.best = NAN};
    int64_t every = config->train.evaluate_every;
    plateau.metric = schedule_monitor(&config->schedule, &plateau.mode);
    for (size_t i = 0; i < end; i++) {
        const struct recorded_epoch *e = &r->epochs[i];
        bool is_evaluated = r->has_validation && every > 0 && (e->epoch + 1) % every == 0;
        if (!is_whole(r, i)) continue;
        if (stop.monitor.metric && (is_evaluated || !r->has_validation)) {
            bool is_better = monitor_is_better(&stop.monitor, e->stop, w.best, stop.min_delta);
            if (is_better) w.best = e->stop;
            w.wait = is_better ? 0 : w.wait + 1;
        }
        if (!plateau.metric || isnan(e->train_loss)) continue;
        if (is_evaluated || !monitor_is_of_validation(plateau.metric))
            schedule_update_plateau(&config->schedule, &w.plateau, e->plateau, monitor_is_maximized(&plateau));
    }
    return w;
}

/* Whether all starts count in the same way, from the beginning. */
static bool has_one_rule(const struct recorded_run *r) {
    const struct train_config *newest = &recorded_newest_config(r)->train;
    bool is_one = r->metrics.count > 0 && r->metrics.lines[0].step == 0;
    for (size_t i = 0; i < r->config_count && is_one; i++) {
        const struct train_config *t = r->configs[i].file ? &config_of(r->configs[i].file)->train : NULL;
        is_one = t && t->evaluate_every == newest->evaluate_every &&
                 is_same(t->early_stop.min_delta, newest->early_stop.min_delta);
    }
    return is_one;
}

/* A checkpoint that metrics.jsonl has is in the ledger, unless that was off. */
static status check_saved(const struct recorded_run *r, const struct ledger_line *line) {
    const char *path = ledger_line_word(r->arena, line, "path"), *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (line->step <= r->ledger.lines[0].step || !checkpoint_is_name(name)) return OK;
    name = arena_printf(r->arena, "%.*s", (int)(strlen(name) - strlen(".h5")), name);
    if (line_of_name(r, name) != SIZE_MAX) return OK;
    return recorded_metrics_differ(r, line, "a checkpoint that is not in the ledger: lines of it were removed");
}

/* What the ledger says of a step, metrics.jsonl says too; each step has one line there, after that of the step before.
 */
static status check_metrics(struct recorded_run *r) {
    const struct ledger_file *l = &r->ledger, *m = &r->metrics;
    int64_t newest = 0;
    size_t at = 0;
    TRY(ledger_file_read_metrics(r->folder, &r->metrics));
    TRY(check_metrics_starts(r));
    TRY(find_epochs(r));
    for (size_t i = 0; i < m->count; i++) {
        const struct ledger_line *line = &m->lines[i];
        if (line->event == METRICS_CHECKPOINT) TRY(check_saved(r, line));
        if (line->event != METRICS_STEP) continue;
        if (line->step <= newest)
            return recorded_metrics_differ(r, line,
                                           "a step that was already there: lines were added, changed or moved");
        newest = line->step;
        while (at < l->count && (l->lines[at].event != METRICS_STEP || l->lines[at].step < newest)) at++;
        if (at == l->count || l->lines[at].step != newest) continue;
        SCOPED_STRING where = text_format("in %s:%zu", l->path, at + 1);
        TRY(recorded_compare_fields(r, line, &l->lines[at], false, where));
    }
    TRY(check_last(r));
    read_evaluations(r);
    report_late(r, check_best(r));
    return OK;
}

/* ---- the counters in checkpoints ---- */

static status file_differs(const char *path, const char *what, double found, double expected, const char *where) {
    return status_new(STATUS_DIVERGED, "%s: %s is %.17g, and %.17g %s", path, what, found, expected, where);
}

struct expected_counter {
    const char *name;
    double found, expected;
};

static status check_all(const char *path, const struct expected_counter *counters, size_t count, const char *where) {
    for (size_t i = 0; i < count; i++)
        if (!is_same(counters[i].found, counters[i].expected))
            return file_differs(path, counters[i].name, counters[i].found, counters[i].expected, where);
    return OK;
}
#define CHECK_ALL(path, counters, where) check_all(path, counters, sizeof(counters) / sizeof *(counters), where)

static double int_of(const struct ledger_line *line, const char *key) { return (double)ledger_line_int(line, key); }

/* The size of [file] at the save, up to the end of [line]. */
static void check_size(struct recorded_run *r, const char *path, const struct ledger_file *file,
                       const struct ledger_line *line, const char *counter, int64_t size) {
    int64_t now = line->text + line->size + 1 - file->text;
    if (now == size) return;
    report_late(r,
                status_new(STATUS_DIVERGED,
                           "%s: it has %lld bytes up to line %zu, and %s of %s is %lld: one of the two was changed",
                           file->path, (long long)now, ledger_line_number(file, line), counter, path, (long long)size));
}

/* Those of the ledger, for the checkpoint of line [index]. */
static status check_with_ledger(struct recorded_run *r, const char *path, const struct counters *c, size_t index) {
    const struct ledger_line *line = &r->ledger.lines[index], *start = line;
    while (start > r->ledger.lines && !is_start(start)) start--;
    const struct expected_counter expected[] = {
        {"state/epoch", (double)c->epoch, int_of(line, "epoch")},
        {"state/batch", (double)c->batch, int_of(line, "batch")},
        {"state/step", (double)c->step, int_of(line, "step")},
        {"state/pending_end", (double)(c->pending_end != 0), ledger_line_has(line, "pending")},
        {"state/world_size", (double)c->world_size, int_of(start, "world_size")}};
    const char *where = arena_printf(r->arena, "by %s:%zu", r->ledger.path, index + 1);
    TRY(CHECK_ALL(path, expected, where));
    check_size(r, path, &r->ledger, line, "state/ledger_bytes", c->ledger_bytes);
    return OK;
}

/* The newest line of metrics.jsonl that says that [name] was saved; NULL: there is none. */
static const struct ledger_line *find_saved(const struct recorded_run *r, const char *name, int64_t step) {
    const char *file = arena_printf(r->arena, "/%s.h5", name);
    for (size_t i = r->metrics.count; i-- > 0;) {
        const struct ledger_line *line = &r->metrics.lines[i];
        if (line->event != METRICS_CHECKPOINT || line->step != step) continue;
        const char *path = ledger_line_word(r->arena, line, "path"), *end = strrchr(path, '/');
        if (end && strcmp(end, file) == 0) return line;
    }
    return NULL;
}

/* The sums of an epoch begin at 0. */
static status check_sums(const char *path, const struct counters *c) {
    const struct expected_counter sums[] = {
        {"state/epoch_loss", c->epoch_loss, 0},       {"state/epoch_count", c->epoch_count, 0},
        {"state/epoch_correct", c->epoch_correct, 0}, {"state/epoch_scored", c->epoch_scored, 0},
        {"state/epoch_samples", c->epoch_samples, 0}, {"state/epoch_seconds", c->epoch_seconds, 0}};
    return c->batch > 0 ? OK : CHECK_ALL(path, sums, "at the beginning of an epoch");
}

/* What early stop and the schedule have counted in the first [epochs]. */
static status check_waits(const struct recorded_run *r, const char *path, const struct counters *c, size_t epochs) {
    struct waits w = count_waits(r, epochs);
    const struct expected_counter waits[] = {
        {"state/early_stop_best", c->early_stop_best, w.best},
        {"state/early_stop_wait", (double)c->early_stop_wait, (double)w.wait},
        {"state/plateau_best", c->plateau.best, w.plateau.best},
        {"state/plateau_bad_epochs", (double)c->plateau.bad_epochs, (double)w.plateau.bad_epochs},
        {"state/plateau_cooldown", (double)c->plateau.cooldown, (double)w.plateau.cooldown},
        {"state/plateau_reductions", (double)c->plateau.reductions, (double)w.plateau.reductions}};
    return CHECK_ALL(path, waits, arena_printf(r->arena, "by the epochs in %s", r->metrics.path));
}

/* Those that follow from the epochs up to [last], the newest line of metrics.jsonl at the save. */
static void check_with_metrics(struct recorded_run *r, const char *path, const struct counters *c,
                               const struct ledger_line *last) {
    if (!is_best_before(r, last + 1, c->best_epoch, c->best_value))
        report_late(r, status_new(STATUS_DIVERGED,
                                  "%s: state/best_epoch is %lld and state/best_value %.17g, which are not those of the "
                                  "best of the epochs in %s before it",
                                  path, (long long)c->best_epoch, c->best_value, r->metrics.path));
    if (has_one_rule(r)) report_late(r, check_waits(r, path, c, epochs_before(r, last + 1)));
    check_size(r, path, &r->metrics, last, "state/metrics_bytes", c->metrics_bytes);
}

/* best.h5 is saved later with the counters after the end of its epoch. */
static status check_best_counters(struct recorded_run *r, const char *path, const struct counters *c) {
    int64_t epoch = c->epoch + (c->batch > 0);
    if (c->best_epoch != epoch)
        return file_differs(path, "state/best_epoch", (double)c->best_epoch, (double)epoch, "by its state/epoch");
    for (size_t i = 0; i < r->epoch_count; i++) {
        const struct recorded_epoch *e = &r->epochs[i];
        int64_t size = e->line->text + e->line->size + 1 - r->metrics.text;
        bool is_last = i + 1 == r->epoch_count || e[1].epoch > e->epoch;
        if (e->epoch + 1 != epoch || (!is_last && size != c->metrics_bytes)) continue;
        check_with_metrics(r, path, c, e->line);
        return OK;
    }
    return r->metrics.count == 0 ? OK
                                 : status_new(STATUS_DIVERGED, "%s: the state after epoch %lld, which is not in %s",
                                              path, (long long)epoch, r->metrics.path);
}

/* The config and the counters in a checkpoint; [index]: its line, SIZE_MAX: best.h5. */
static status check_counters(struct recorded_run *r, const char *path, const struct counters *c, size_t index) {
    TRY(check_sums(path, c));
    if (index == SIZE_MAX) return check_best_counters(r, path, c);
    TRY(check_with_ledger(r, path, c, index));
    if (r->metrics.count == 0) return OK;
    const char *name = ledger_line_word(r->arena, &r->ledger.lines[index], "name");
    const struct ledger_line *saved = find_saved(r, name, c->step);
    if (saved) check_with_metrics(r, path, c, saved);
    if (saved) return OK;
    return status_new(STATUS_DIVERGED, "%s: it has no line of %s, which %s:%zu has", r->metrics.path, path,
                      r->ledger.path, index + 1);
}

/* *config: the one in a checkpoint, which a start had; NULL where it is asked for none. */
static status check_config(const struct recorded_run *r, struct checkpoint *checkpoint, const struct config **config) {
    SCOPED_STRING text = NULL;
    char hex[DIGEST_HEX_SIZE];
    const struct recorded_config *found = NULL;
    status_free(checkpoint_read_text(checkpoint, "config", &text)); /* of another type: none that the run wrote */
    digest_hex_of(text ? text : "", text ? strlen(text) : 0, hex);
    for (size_t i = 0; text && i < r->config_count && !found; i++)
        if (strcmp(r->configs[i].sha256, hex) == 0) found = &r->configs[i];
    if (!found)
        return status_new(STATUS_DIVERGED, "%s: the config in it is not one that the run had, by %s",
                          checkpoint_path(checkpoint), r->ledger.path);
    if (config) *config = config_of(found->file);
    return OK;
}

static status check_constants(const struct recorded_run *r, struct checkpoint *checkpoint) {
    const struct {
        const char *path, *key;
    } texts[] = {{"data/fingerprint", "dataset_fingerprint"}, {"data/sampler", "sampler_sha256"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        SCOPED_STRING text = NULL;
        TRY(checkpoint_read_text(checkpoint, texts[i].path, &text));
        if (strcmp(text ? text : "", ledger_line_word(r->arena, &r->ledger.lines[0], texts[i].key)) != 0)
            return status_new(STATUS_DIVERGED, "%s: %s is not the %s of %s:1", checkpoint_path(checkpoint),
                              texts[i].path, texts[i].key, r->ledger.path);
    }
    return OK;
}

#define NOT_REPEATED "not what the run gives when it is repeated"

static const char *const constants[RECORDED_CONSTANTS] = {
    "scaler/mean",    "scaler/scale",    "data/inputs",      "data/labels",       "data/columns",
    "data/tokenizer", "data/vocabulary", "data/preparation", "data/target_scale", "data/class_weights"};

/* *bytes: of a text or of a vector of float64, malloc'ed; NULL: there is none. */
static status read_constant(struct checkpoint *checkpoint, const char *path, char **bytes, size_t *size) {
    struct entry entry = {.path = path};
    bool exists;
    *bytes = NULL;
    TRY(checkpoint_find(checkpoint, &entry, &exists));
    bool is_vector = exists && entry.type == ENTRY_FLOAT64 && entry.dims == 1;
    if (!is_vector) TRY(checkpoint_read_text(checkpoint, path, bytes));
    *size = *bytes ? strlen(*bytes) : 0;
    if (!is_vector) return OK;
    *size = (size_t)entry.shape[0] * sizeof(double);
    entry.data = *bytes = malloc(*size + 1);
    if (!*bytes) return status_memory("%s", path);
    return checkpoint_read(checkpoint, &entry, 1, NULL);
}

static status read_constants(struct checkpoint *checkpoint, struct recorded_constants *out) {
    for (size_t i = 0; i < RECORDED_CONSTANTS; i++) {
        SCOPED_STRING bytes = NULL;
        size_t size = 0;
        TRY(read_constant(checkpoint, constants[i], &bytes, &size));
        digest_hex_of(bytes ? bytes : "", bytes ? size : 0, out->sha256[i]);
    }
    out->path = checkpoint_path(checkpoint);
    return OK;
}

static status compare_constants(const struct recorded_run *r, const struct recorded_constants *file) {
    for (size_t i = 0; file->path && i < RECORDED_CONSTANTS; i++)
        if (strcmp(file->sha256[i], r->repeated_constants.sha256[i]) != 0)
            return status_new(STATUS_DIVERGED, "%s: " NOT_REPEATED ": %s is another one", file->path, constants[i]);
    return OK;
}

status recorded_compare_constants(struct recorded_run *r, struct checkpoint *repeated) {
    if (r->repeated_constants.path) return OK;
    TRY(read_constants(repeated, &r->repeated_constants));
    r->repeated_constants.path = "";
    TRY(compare_constants(r, &r->newest_constants));
    return compare_constants(r, &r->best_constants);
}

/* Not those of the best epoch and of early stop, which begin anew in the repetition. */
static status compare_counters(const char *path, const struct counters *c, const struct counters *again) {
    const struct expected_counter expected[] = {
        {"state/epoch", (double)c->epoch, (double)again->epoch},
        {"state/batch", (double)c->batch, (double)again->batch},
        {"state/step", (double)c->step, (double)again->step},
        {"state/samples", (double)c->samples, (double)again->samples},
        {"state/skipped", (double)c->skipped, (double)again->skipped},
        {"state/skipped_in_row", (double)c->skipped_in_row, (double)again->skipped_in_row},
        {"state/epoch_loss", c->epoch_loss, again->epoch_loss},
        {"state/epoch_count", c->epoch_count, again->epoch_count},
        {"state/epoch_correct", c->epoch_correct, again->epoch_correct},
        {"state/epoch_scored", c->epoch_scored, again->epoch_scored},
        {"state/epoch_samples", c->epoch_samples, again->epoch_samples},
        {"state/plateau_best", c->plateau.best, again->plateau.best},
        {"state/plateau_bad_epochs", (double)c->plateau.bad_epochs, (double)again->plateau.bad_epochs},
        {"state/plateau_cooldown", (double)c->plateau.cooldown, (double)again->plateau.cooldown},
        {"state/plateau_reductions", (double)c->plateau.reductions, (double)again->plateau.reductions},
        {"state/loss_scale", c->loss_scale.scale, again->loss_scale.scale},
        {"state/loss_scale_growth_tracker", (double)c->loss_scale.growth_tracker,
         (double)again->loss_scale.growth_tracker}};
    return CHECK_ALL(path, expected, "when it is repeated");
}

static status compare_tensors(struct checkpoint *checkpoint, struct checkpoint *repeated) {
    static const char *const groups[] = {"model", "optimizer", "ema", NULL}, *const others[] = {NULL};
    static const char *const names[] = {"the file", "its repetition"};
    struct checkpoint *const files[] = {checkpoint, repeated};
    SCOPED_TEXT difference = {0};
    status s = checkpoint_find_difference(files, groups, others, names, &difference);
    if (!s && difference.length)
        s = status_new(STATUS_DIVERGED, "%s: " NOT_REPEATED ": %s", checkpoint_path(checkpoint),
                       text_string(&difference));
    return s;
}

/* [index]: as in check_counters. */
static status compare_open(struct recorded_run *r, struct checkpoint *checkpoint, size_t index,
                           struct checkpoint *repeated) {
    const char *path = checkpoint_path(checkpoint);
    bool is_newest = strcmp(path, r->newest) == 0, is_known = is_newest || index == SIZE_MAX;
    struct counters counters = is_newest ? r->newest_counters : r->best_counters, again;
    TRY(compare_tensors(checkpoint, repeated));
    if (!is_known) TRY(state_read_counters(checkpoint, &counters));
    TRY(state_read_counters(repeated, &again));
    TRY(compare_counters(path, &counters, &again));
    TRY(recorded_compare_constants(r, repeated));
    if (is_known) return OK;
    struct recorded_constants own;
    TRY(read_constants(checkpoint, &own));
    TRY(compare_constants(r, &own));
    TRY(check_config(r, checkpoint, NULL));
    TRY(check_constants(r, checkpoint));
    return check_counters(r, path, &counters, index);
}

static status compare_file(struct recorded_run *r, const char *path, size_t index, struct checkpoint *repeated) {
    SCOPED_CHECKPOINT checkpoint = NULL;
    TRY(checkpoint_open(path, &checkpoint));
    return compare_open(r, checkpoint, index, repeated);
}

status recorded_compare_checkpoint(struct recorded_run *r, size_t index, struct checkpoint *repeated) {
    const char *path = recorded_checkpoint(r, index);
    if (path) TRY(compare_file(r, path, index, repeated));
    return r->best && r->best_step == r->ledger.lines[index].step ? compare_file(r, r->best, SIZE_MAX, repeated) : OK;
}

/* ---- the files of checkpoints ---- */

/* A file with a name of training has a line with the step of its seal. Another one must not be taken for the newest. */
static status check_file_name(const struct recorded_run *r, const char *folder, const char *name) {
    const struct ledger_line *newest = ledger_find(&r->ledger, METRICS_CHECKPOINT, -1);
    bool is_of_training = checkpoint_is_name(name), is_best = strcmp(name, CHECKPOINT_BEST ".h5") == 0;
    const char *path = arena_printf(r->arena, "%s/%s", folder, name);
    struct seal seal = {0};
    if (!checkpoint_has_ending(name) || is_best) return OK;
    char *saved = arena_printf(r->arena, "%.*s", (int)(strlen(name) - strlen(".h5")), name);
    size_t index = is_of_training ? line_of_name(r, saved) : SIZE_MAX;
    status unread = sealed_read_seal(path, &seal);
    if (unread && is_of_training && index == SIZE_MAX) return unread;
    bool is_read = !unread;
    status_free(unread);
    int64_t order = (int64_t)seal.order, first = r->ledger.lines[0].step;
    if (!is_read) return OK; /* damaged: where it is needed, it is reported */
    if (index != SIZE_MAX && r->ledger.lines[index].step != order)
        return file_differs(path, "the step of its seal", (double)order, (double)r->ledger.lines[index].step,
                            "in the ledger");
    bool is_before = first > 0 && order <= first; /* the ledger was off */
    if (is_of_training && index == SIZE_MAX && !is_before)
        return status_new(STATUS_DIVERGED, "%s: it has no line for %s: lines were removed, or that file was added",
                          r->ledger.path, path);
    if (!is_of_training && newest && order > newest->step)
        return status_new(
            STATUS_DIVERGED,
            "%s: it would be used as the newest checkpoint, and %s has no line for it: the file was added", path,
            r->ledger.path);
    return OK;
}

static status check_file_names(struct recorded_run *r) {
    const char *folder = arena_printf(r->arena, "%s/checkpoints", r->folder);
    SCOPED_NAMES names = {0};
    struct io_info info;
    TRY(io_stat(folder, &info));
    if (!info.exists) return OK;
    TRY(io_list(folder, &names));
    for (size_t i = 0; i < names.count; i++) TRY(check_file_name(r, folder, names.items[i]));
    return OK;
}

static void compare_hash(struct recorded_run *r, const char *path, const struct ledger_line *line, const char *key,
                         const char *found, bool *is_compared) {
    const char *wanted = ledger_line_word(r->arena, line, key);
    if (*wanted) *is_compared = true;
    if (!*wanted || strcmp(found, wanted) == 0) return;
    report_late(r, status_new(STATUS_DIVERGED, "%s: not the state that the run had: its %s is %s, and %s in %s:%zu",
                              path, key, found, wanted, r->ledger.path, ledger_line_number(&r->ledger, line)));
}

/* The tensors of a checkpoint, by the hashes that the ledger has of its step. */
static void check_hashes(struct recorded_run *r, const char *path, const struct saved_state *saved, bool *is_compared) {
    const struct ledger_line *last = &r->ledger.lines[r->ledger.count - 1];
    char state[24], parameters[24];
    snprintf(state, sizeof state, "%016llx", (unsigned long long)saved->state);
    snprintf(parameters, sizeof parameters, "%016llx", (unsigned long long)saved->parameters);
    for (size_t i = r->ledger.count; i-- > 0;) {
        const struct ledger_line *line = &r->ledger.lines[i];
        if (line->step != saved->counters.step) continue;
        bool is_state = line->event == METRICS_CHECKPOINT && ledger_line_int(line, "epoch") == saved->counters.epoch &&
                        ledger_line_int(line, "batch") == saved->counters.batch;
        if (is_state) compare_hash(r, path, line, "state", state, is_compared);
        if (line->event == METRICS_STEP) compare_hash(r, path, line, "parameters", parameters, is_compared);
    }
    if (saved->sha256[0]) compare_hash(r, path, last, "state_sha256", saved->sha256, is_compared);
}

/* The epoch that best.h5 has to be of; while metrics.jsonl has no end, a later one may be saved already. */
static status check_best_epoch(const struct recorded_run *r, const struct counters *c) {
    const struct ledger_line *end = recorded_end(&r->metrics);
    int64_t epoch = c->epoch + (c->batch > 0);
    if (epoch == r->best_epoch || (!end && c->step > r->newest_counters.step)) return OK;
    if (!end)
        return file_differs(r->best, "its epoch", (double)epoch, (double)r->best_epoch,
                            "is the best of the newest checkpoint");
    return status_new(STATUS_DIVERGED, "%s: the state after epoch %lld, and %s:%zu says that epoch %lld is the best",
                      r->best, (long long)epoch, r->metrics.path, ledger_line_number(&r->metrics, end),
                      (long long)r->best_epoch);
}

/* The counts at the end of metrics.jsonl are those of the newest checkpoint. */
static status check_end_counters(const struct recorded_run *r) {
    const struct counters *c = &r->newest_counters;
    const struct ledger_line *end = recorded_end(&r->metrics);
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {{"epoch", c->epoch}, {"samples", c->samples}, {"skipped", c->skipped}};
    for (size_t i = 0; end && end->step == c->step && i < sizeof counts / sizeof *counts; i++)
        if (ledger_line_int(end, counts[i].key) != counts[i].value)
            return recorded_metrics_differ(
                r, end, arena_printf(r->arena, "%s is not that of the newest checkpoint", counts[i].key));
    return OK;
}

static status check_elements(const struct recorded_run *r, size_t elements) {
    for (size_t i = 0; i < r->metrics.count; i++)
        if (is_start(&r->metrics.lines[i]) && ledger_line_int(&r->metrics.lines[i], "parameters") != (int64_t)elements)
            return recorded_metrics_differ(r, &r->metrics.lines[i],
                                           "parameters is not the number of those in the newest checkpoint");
    return OK;
}

/* The config, the counters and the tensors of the newest checkpoint, at line [index], or of best.h5 (SIZE_MAX). */
static status check_state(struct recorded_run *r, const char *path, size_t index, bool *is_compared) {
    const struct ledger_line *last = &r->ledger.lines[r->ledger.count - 1];
    bool is_last =
        index != SIZE_MAX && r->ledger.lines[index].step == last->step && ledger_line_has(last, "state_sha256");
    SCOPED_CHECKPOINT checkpoint = NULL;
    struct saved_state saved;
    TRY(checkpoint_open(path, &checkpoint));
    const struct config *config;
    TRY(check_config(r, checkpoint, &config));
    TRY(check_constants(r, checkpoint));
    TRY(status_prefix(saved_state_read(checkpoint, config, is_last, &saved), "%s", path));
    struct recorded_constants *kept = index == SIZE_MAX ? &r->best_constants : &r->newest_constants;
    TRY(read_constants(checkpoint, kept));
    kept->path = path; /* that of the checkpoint ends with it */
    if (index == SIZE_MAX) TRY(check_best_epoch(r, &saved.counters));
    TRY(check_counters(r, path, &saved.counters, index));
    check_hashes(r, path, &saved, is_compared);
    if (index == SIZE_MAX) {
        r->best_counters = saved.counters;
        r->best_step = saved.counters.step;
        return OK;
    }
    const struct ledger_line *end = recorded_end(&r->metrics);
    r->newest_counters = saved.counters;
    report_late(r, check_end_counters(r));
    r->best_epoch = end ? ledger_line_int(end, "best_epoch") : saved.counters.best_epoch;
    return check_elements(r, saved.elements);
}

/* best.h5 of the time before the ledger, which has neither its config nor a hash of its state. */
static status check_older_best(struct recorded_run *r) {
    SCOPED_CHECKPOINT checkpoint = NULL;
    TRY(checkpoint_open(r->best, &checkpoint));
    TRY(state_read_counters(checkpoint, &r->best_counters));
    r->best_step = r->best_counters.step;
    return check_best_epoch(r, &r->best_counters);
}

/* best.h5 is there exactly if the run keeps it. */
static status check_best_file(struct recorded_run *r, bool *is_compared) {
    const char *path = arena_printf(r->arena, "%s/checkpoints/" CHECKPOINT_BEST ".h5", r->folder);
    bool is_kept = recorded_newest_config(r)->checkpoint.best.metric != NULL;
    int64_t first = r->ledger.lines[0].step;
    struct seal seal = {0};
    r->best = recorded_file(path);
    if (!r->best && is_kept && r->best_epoch > 0)
        return status_new(STATUS_DIVERGED, "%s: it is missing, and epoch %lld is the best", path,
                          (long long)r->best_epoch);
    if (!r->best) return OK;
    if (!is_kept)
        return status_new(STATUS_DIVERGED, "%s: the run keeps no best checkpoint (checkpoint.best): the file was added",
                          path);
    TRY(sealed_read_seal(r->best, &seal));
    bool is_older = first > 0 && (int64_t)seal.order <= first;
    TRY(is_older ? check_older_best(r) : check_state(r, r->best, SIZE_MAX, is_compared));
    if ((int64_t)seal.order == r->best_step) return OK;
    return file_differs(path, "the step of its seal", (double)seal.order, (double)r->best_step, "in it");
}

/* The files that predictions and exports use. */
static status check_files(struct recorded_run *r) {
    const struct ledger_line *line = ledger_find(&r->ledger, METRICS_CHECKPOINT, -1);
    r->best_step = -1;
    if (!line) return OK;
    const char *name = ledger_line_word(r->arena, line, "name");
    r->newest = arena_printf(r->arena, "%s/checkpoints/%s.h5", r->folder, name);
    bool has_ended = r->ledger.lines[r->ledger.count - 1].event == METRICS_END;
    if (!recorded_file(r->newest))
        return status_data("%s: the newest checkpoint of the ledger is missing%s", r->newest,
                           has_ended ? "" : "; if the run was killed while it wrote it, continue the run first");
    bool is_compared = false;
    TRY(check_state(r, r->newest, (size_t)(line - r->ledger.lines), &is_compared));
    is_compared = false;
    TRY(check_best_file(r, &is_compared));
    r->is_best_compared = is_compared;
    return OK;
}

/* The state at the end of metrics.jsonl is that of the last line. */
static status check_end(struct recorded_run *r) {
    const struct ledger_line *last = &r->ledger.lines[r->ledger.count - 1], *end = recorded_end(&r->metrics);
    bool has_end = end && end->event == METRICS_END;
    r->lacks_end = last->event == METRICS_END && !has_end;
    if (!has_end || ledger_line_equals(end, last, "state_sha256")) return OK;
    return status_new(STATUS_DIVERGED,
                      "%s:%zu: the last line is not that of the end of the run, which is in metrics.jsonl: lines were "
                      "removed or changed",
                      r->ledger.path, r->ledger.count);
}

/* ---- all of it ---- */

status recorded_run_read(const char *folder, struct recorded_run *r) {
    *r = (struct recorded_run){.arena = arena_create(), .folder = folder};
    TRY(ledger_file_read(folder, &r->ledger));
    TRY(check_starts(r));
    TRY(check_order(r));
    find_names(r);
    TRY(compare_configs(r));
    TRY(check_file_names(r));
    TRY(check_metrics(r));
    TRY(check_end(r));
    return check_files(r);
}

void recorded_run_close(struct recorded_run *r) {
    for (size_t i = 0; i < r->config_count; i++) config_free(r->configs[i].file);
    ledger_file_close(&r->ledger), ledger_file_close(&r->metrics);
    status_free(r->late);
    if (r->arena) arena_destroy(r->arena);
    *r = (struct recorded_run){0};
}
