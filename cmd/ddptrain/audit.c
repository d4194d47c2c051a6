/* audit, certify: verify a run. audit repeats parts of it and compares them with its ledger (train/loop/ledger.h). An
 * interval is what lies between two checkpoints of the ledger. It is repeated by a run of this program that starts from
 * the file of the first one and stops at the second one; the ledgers of both must have the same lines. Where the files
 * of checkpoints were removed, one run repeats the intervals between them. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/files/json_lines.h"
#include "base/files/sealed.h"
#include "base/stop.h"
#include "checkpoint/checkpoint.h"
#include "command.h"
#include "train/folder/run_folder.h"
#include "train/loop/trainer.h"

/* ---- the intervals ---- */

/* A config that starts had. */
struct known_config {
    const char *sha256, *text; /* text NULL: not in the folder */
};

/* The name of a checkpoint, and its line. */
struct saved_name {
    const char *name;
    size_t line;
};

/* A line of an epoch in metrics.jsonl. */
struct epoch_line {
    int64_t epoch;
    const struct ledger_line *line;
};

/* What lies between lines [first] and [last]: a start or a checkpoint, and a checkpoint. */
struct interval {
    size_t first, last;
    const struct ledger_line *start; /* the start or resume that the steps belong to */
    const char *checkpoint;          /* path of the file at [first]; NULL: the beginning of the run, or [is_removed] */
    bool is_removed;
    const char *config; /* the text; NULL: not in the run folder */
    size_t origin;      /* the first interval that must be repeated for it; SIZE_MAX: it cannot be */
    bool is_needed;     /* it is chosen, or one that is chosen starts from its end */
};

struct audit {
    const struct command_line *line;
    struct arena *arena;
    const char *folder;
    struct ledger_file ledger, metrics; /* metrics: of metrics.jsonl; count 0: there is none */
    size_t metrics_at;                  /* the first of its lines that may be of the next interval */
    struct epoch_line *epochs;          /* (epoch_count) in order */
    size_t epoch_count;
    struct known_config *configs; /* (config_count) */
    size_t config_count;
    struct saved_name *names; /* (name_count), in order of names and lines */
    size_t name_count;
    struct interval *intervals;                        /* (interval_count) */
    size_t interval_count, possible, chosen, repeated; /* possible: those that can be repeated */
    size_t compared;                                   /* lines */
    char *temporary;                                   /* the folder of the repeated runs */
    const char *run, *state;                           /* the newest of them, and the checkpoint at its end */
    int64_t best_step;                                 /* of best.h5; -1: there is none */
    bool lacks_end;                                    /* metrics.jsonl has no end of the run, which the ledger has */
};

/* The text of the config of a start; NULL: not in the folder. */
static status find_config(struct audit *a, const struct ledger_line *start, const char **text) {
    const char *wanted = ledger_line_word(a->arena, start, "config_sha256");
    size_t i = 0;
    while (i < a->config_count && strcmp(a->configs[i].sha256, wanted) != 0) i++;
    if (i == a->config_count) {
        TRY(ledger_find_config(a->arena, a->folder, &a->ledger, wanted, text));
        a->configs[a->config_count++] = (struct known_config){wanted, *text};
    }
    *text = a->configs[i].text;
    return OK;
}

/* The config.yaml of the folder must be that of the newest start. */
static status read_config(struct audit *a) {
    char *text = NULL, hex[DIGEST_HEX_SIZE];
    const char *path = arena_printf(a->arena, "%s/config.yaml", a->folder);
    struct io_info info;
    TRY(io_read_text(path, 1 << 24, &text, &info));
    if (!text) return status_new(STATUS_DATA, "%s: there is no such file", path);
    const struct ledger_line *newest = ledger_start_at(&a->ledger, INT64_MAX);
    const char *wanted = ledger_line_word(a->arena, newest, "config_sha256");
    digest_hex_of(text, strlen(text), hex);
    a->configs[a->config_count++] = (struct known_config){arena_copy(a->arena, hex), arena_copy(a->arena, text)};
    free(text);
    if (strcmp(hex, wanted) == 0) return OK;
    return status_new(STATUS_DIVERGED, "%s: not the config of the run: its SHA-256 is %.16s..., and %.16s... in %s:%zu",
                      path, hex, wanted, a->ledger.path, ledger_line_number(&a->ledger, newest));
}

static int compare_names(const void *a, const void *b) {
    const struct saved_name *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static void find_names(struct audit *a) {
    a->names = arena_alloc(a->arena, a->ledger.count * sizeof *a->names);
    for (size_t i = 0; i < a->ledger.count; i++)
        if (a->ledger.lines[i].event == METRICS_CHECKPOINT)
            a->names[a->name_count++] = (struct saved_name){ledger_line_word(a->arena, &a->ledger.lines[i], "name"), i};
    if (a->name_count) qsort(a->names, a->name_count, sizeof *a->names, compare_names);
}

/* The number of names that are not after [name] at [line]. */
static size_t count_names(const struct audit *a, const char *name, size_t line) {
    const struct saved_name wanted = {name, line};
    size_t low = 0, high = a->name_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_names(&a->names[middle], &wanted) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The newest line that a checkpoint [name] was saved at; SIZE_MAX: there is none. */
static size_t line_of_name(const struct audit *a, const char *name) {
    size_t count = count_names(a, name, SIZE_MAX);
    bool is_found = count > 0 && strcmp(a->names[count - 1].name, name) == 0;
    return is_found ? a->names[count - 1].line : SIZE_MAX;
}

/* [path]; NULL: there is no such file. */
static const char *existing(const char *path) { return ledger_has_file(path) ? path : NULL; }

/* The file of the checkpoint of line [index], unless a later line has the same name; NULL: there is none. */
static const char *find_checkpoint(struct audit *a, size_t index) {
    const char *name = ledger_line_word(a->arena, &a->ledger.lines[index], "name");
    if (line_of_name(a, name) != index) return NULL;
    return existing(arena_printf(a->arena, "%s/checkpoints/%s.h5", a->folder, name));
}

/* The intervals between the start and the checkpoints. A checkpoint at the step of the one before replaces it. */
static void find_intervals(struct audit *a) {
    const struct ledger_file *l = &a->ledger;
    const struct ledger_line *start = &l->lines[0];
    size_t first = 0;
    a->intervals = arena_alloc(a->arena, l->count * sizeof *a->intervals);
    a->configs = arena_alloc(a->arena, (l->count + 1) * sizeof *a->configs);
    for (size_t i = 1; i < l->count; i++) {
        if (l->lines[i].event == METRICS_RESUME) start = &l->lines[i];
        if (l->lines[i].event != METRICS_CHECKPOINT || ledger_line_has(&l->lines[i], "pending")) continue;
        if (l->lines[i].step > l->lines[first].step)
            a->intervals[a->interval_count++] = (struct interval){.first = first, .last = i, .start = start};
        first = i;
    }
}

/* Where each interval can start, and with which config. */
static status find_files(struct audit *a) {
    for (size_t i = 0; i < a->interval_count; i++) {
        struct interval *p = &a->intervals[i];
        int64_t step = a->ledger.lines[p->first].step;
        TRY(find_config(a, p->start, &p->config));
        if (step > a->ledger.lines[0].step) {
            p->checkpoint = find_checkpoint(a, p->first);
            p->is_removed = !p->checkpoint;
        } else if (step > 0) { /* the beginning of the ledger, but not of the run */
            p->checkpoint =
                existing(arena_printf(a->arena, "%s/checkpoints/step-%08lld.h5", a->folder, (long long)step));
        }
    }
    return OK;
}

/* A resume may change few keys of a config: those that all starts have must not differ in another one. */
static status compare_configs(const struct audit *a) {
    for (size_t i = 1; i < a->config_count; i++) {
        struct config_file *before = NULL, *newest = NULL;
        struct text differences = {0};
        if (!a->configs[i].text) continue;
        status s = config_parse("the config of an earlier start", a->configs[i].text, &before);
        if (!s) s = config_parse("config.yaml", a->configs[0].text, &newest);
        if (!s && schema_diff(&config_schema, config_of(before), config_of(newest), &differences))
            s = status_new(
                STATUS_DIVERGED,
                "%s: its starts have configs with which no run continues another (earlier -> config.yaml):\n%s",
                a->ledger.path, text_string(&differences));
        config_free(before), config_free(newest);
        text_free(&differences);
        TRY(s);
    }
    return OK;
}

/* After find_files. An interval that starts from a file that was removed is repeated after the one before it. */
static void find_origins(struct audit *a) {
    for (size_t i = 0; i < a->interval_count; i++) {
        struct interval *p = &a->intervals[i];
        size_t before = i > 0 ? p[-1].origin : SIZE_MAX;
        p->origin = !p->config ? SIZE_MAX : p->is_removed ? before : i;
        a->possible += p->origin != SIZE_MAX;
    }
}

/* ---- metrics.jsonl ---- */

/* Whether a field has another value each time, or where a run begins with the file of a checkpoint. */
static bool is_own(const char *key) {
    static const char *const keys[] = {"seconds",    "samples_per_second", "comm_hidden", "peak_memory_bytes",
                                       "best_epoch", "best_epoch_index",   "best_value",  "early_stop_wait"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static bool is_equal(const struct json_field *a, const struct json_field *b) {
    if (a->kind != b->kind) return false;
    bool is_same = a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
    return is_same || (a->kind == KIND_NUMBER && json_field_exact(a) == json_field_exact(b));
}

static status metrics_differ(const struct audit *a, const struct ledger_line *line, const char *why) {
    return status_new(STATUS_DIVERGED, "%s:%zu: %s", a->metrics.path, ledger_line_number(&a->metrics, line), why);
}

/* STATUS_DIVERGED with the first field of [line], of metrics.jsonl, that [other] has otherwise, or where [is_whole]
 * has not. [where]: what [other] is. */
static status compare_fields(const struct audit *a, const struct ledger_line *line, const struct ledger_line *other,
                             bool is_whole, const char *where) {
    struct json_line x, y;
    if (!json_line_read(line->text, line->size, &x) || !json_line_read(other->text, other->size, &y))
        return metrics_differ(a, line, "not a JSON object");
    for (size_t i = 0; i < x.count; i++) {
        const char *key = arena_printf(a->arena, "%.*s", (int)x.fields[i].key_length, x.fields[i].key);
        const struct json_field *field = json_line_find(&y, key);
        bool differs = field ? !is_equal(&x.fields[i], field) : is_whole;
        if (!differs || is_own(key)) continue;
        struct text why = {0};
        text_printf(&why, "%s is ", key);
        ledger_line_add(line, key, &why);
        if (field) text_add(&why, ", and ");
        if (field) ledger_line_add(other, key, &why);
        text_printf(&why, "%s %s", field ? "" : ", which is not", where);
        status s = metrics_differ(a, line, text_string(&why));
        text_free(&why);
        return s;
    }
    return OK;
}

/* Only a run that ended within an epoch and was extended has two lines of it, before and after the start. */
static status find_epochs(struct audit *a) {
    const struct ledger_file *m = &a->metrics;
    bool has_started = false; /* since the line of the last epoch */
    a->epochs = arena_alloc(a->arena, m->count * sizeof *a->epochs);
    for (size_t i = 0; i < m->count; i++) {
        has_started = has_started || m->lines[i].event == METRICS_RESUME;
        if (m->lines[i].event != METRICS_EPOCH) continue;
        int64_t epoch = ledger_line_int(&m->lines[i], "epoch");
        int64_t before = a->epoch_count ? a->epochs[a->epoch_count - 1].epoch : -1;
        if (epoch < before || (epoch == before && !has_started))
            return metrics_differ(a, &m->lines[i], "an epoch that was already there: lines were added or moved");
        a->epochs[a->epoch_count++] = (struct epoch_line){epoch, &m->lines[i]};
        has_started = false;
    }
    return OK;
}

/* The last line of an epoch; NULL: there is none. */
static const struct ledger_line *find_epoch(const struct audit *a, int64_t epoch) {
    size_t low = 0, high = a->epoch_count; /* the number of lines that are not of a later epoch */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (a->epochs[middle].epoch <= epoch)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && a->epochs[low - 1].epoch == epoch ? a->epochs[low - 1].line : NULL;
}

/* The line of a run that has ended or was stopped; NULL: it has not. */
static const struct ledger_line *end_of(const struct ledger_file *file) {
    const struct ledger_line *last = file->count ? &file->lines[file->count - 1] : NULL;
    return last && (last->event == METRICS_END || last->event == METRICS_STOPPED) ? last : NULL;
}

/* metrics.jsonl has no step and no epoch after the end of the ledger. */
static status check_last(const struct audit *a) {
    const struct ledger_line *end = end_of(&a->ledger), *saved = ledger_find(&a->ledger, METRICS_CHECKPOINT, -1);
    const struct epoch_line *last = a->epoch_count ? &a->epochs[a->epoch_count - 1] : NULL;
    if (!end) return OK;
    int64_t epochs = ledger_line_int(end, "epoch") + (saved && ledger_line_int(saved, "batch") > 0);
    for (size_t i = a->metrics.count; i-- > 0;)
        if (a->metrics.lines[i].step > end->step)
            return metrics_differ(a, &a->metrics.lines[i], "a step after the end of the run: lines were added");
    return last && last->epoch >= epochs
               ? metrics_differ(a, last->line, "an epoch after the end of the run: lines were added")
               : OK;
}

/* The best epoch of the end has the value that its line has. */
static status check_best(const struct audit *a) {
    const struct ledger_line *end = end_of(&a->metrics);
    int64_t best = end ? ledger_line_int(end, "best_epoch") : 0;
    const struct ledger_line *line = best > 0 ? find_epoch(a, best - 1) : NULL;
    struct json_line x, y;
    if (!line || !json_line_read(end->text, end->size, &x) || !json_line_read(line->text, line->size, &y)) return OK;
    const struct json_field *value = json_line_find(&x, "best_value");
    const struct json_field *field = json_line_find(&y, ledger_line_word(a->arena, end, "best_metric"));
    return value && field && !is_equal(value, field)
               ? metrics_differ(a, end, "best_value is not that of its best epoch")
               : OK;
}

/* What the ledger says of a step, metrics.jsonl says too; each step has one line there, after that of the step before.
 */
static status check_metrics(struct audit *a) {
    const struct ledger_file *l = &a->ledger, *m = &a->metrics;
    int64_t newest = 0;
    size_t at = 0;
    TRY(ledger_file_read_metrics(a->folder, &a->metrics));
    TRY(find_epochs(a));
    for (size_t i = 0; i < m->count; i++) {
        const struct ledger_line *line = &m->lines[i];
        if (line->event != METRICS_STEP) continue;
        if (line->step <= newest)
            return metrics_differ(a, line, "a step that was already there: lines were added, changed or moved");
        newest = line->step;
        while (at < l->count && (l->lines[at].event != METRICS_STEP || l->lines[at].step < newest)) at++;
        if (at == l->count || l->lines[at].step != newest) continue;
        struct text where = {0};
        text_printf(&where, "in %s:%zu", l->path, at + 1);
        status s = compare_fields(a, line, &l->lines[at], false, text_string(&where));
        text_free(&where);
        TRY(s);
    }
    TRY(check_last(a));
    return check_best(a);
}

/* ---- whether lines are missing at the end ---- */

/* A checkpoint that the run has saved is in the ledger. */
static status check_checkpoints(struct audit *a) {
    struct text folder = {0};
    struct io_names names = {0};
    struct io_info info;
    text_printf(&folder, "%s/checkpoints", a->folder);
    status s = io_stat(text_string(&folder), &info);
    if (!s && info.exists) s = io_list(text_string(&folder), &names);
    for (size_t i = 0; !s && i < names.count; i++) {
        const char *name = names.items[i];
        if (!checkpoint_is_name(name)) continue;
        char *saved = strndup(name, strlen(name) - strlen(".h5"));
        if (!saved) status_exit_without_memory();
        struct seal seal = {0};
        struct text path = {0};
        text_printf(&path, "%s/%s", text_string(&folder), name);
        bool is_listed = line_of_name(a, saved) != SIZE_MAX;
        if (!is_listed) s = sealed_read_seal(text_string(&path), &seal);
        text_free(&path);
        bool is_before = a->ledger.lines[0].step > 0 && (int64_t)seal.order <= a->ledger.lines[0].step;
        if (!s && !is_listed && !is_before) /* before: the ledger was off */
            s = status_new(STATUS_DIVERGED, "%s: it has no line for %s/%s: lines were removed, or that file was added",
                           a->ledger.path, text_string(&folder), name);
        free(saved);
    }
    io_names_free(&names);
    text_free(&folder);
    return s;
}

/* best.h5; NULL: there is none. */
static const char *best_of(const struct audit *a) {
    return existing(arena_printf(a->arena, "%s/checkpoints/" CHECKPOINT_BEST ".h5", a->folder));
}

/* best.h5 is that of the best epoch at the end, if the run keeps one. */
static status check_best_file(const struct audit *a, const char *best) {
    const struct ledger_line *end = end_of(&a->metrics);
    int64_t best_epoch = end ? ledger_line_int(end, "best_epoch") : 0, epoch = 0, batch = 0;
    struct config_file *file = NULL;
    if (best_epoch <= 0) return OK;
    TRY(config_parse("config.yaml", a->configs[0].text, &file));
    bool is_kept = config_of(file)->checkpoint.best.metric != NULL;
    config_free(file);
    TRY(ledger_read_counter(best, "state/epoch", &epoch));
    TRY(ledger_read_counter(best, "state/batch", &batch));
    if (!is_kept || epoch + (batch > 0) == best_epoch) return OK;
    return status_new(STATUS_DIVERGED, "%s: the state after epoch %lld, and %s:%zu says that epoch %lld is the best",
                      best, (long long)epoch + (batch > 0), a->metrics.path, ledger_line_number(&a->metrics, end),
                      (long long)best_epoch);
}

/* The files that predictions and exports use: the newest checkpoint and the best one are there and as they were saved.
 */
static status verify_newest(struct audit *a) {
    const struct ledger_line *line = ledger_find(&a->ledger, METRICS_CHECKPOINT, -1);
    struct seal seal;
    a->best_step = -1;
    if (!line) return OK;
    const char *name = ledger_line_word(a->arena, line, "name");
    const char *newest = arena_printf(a->arena, "%s/checkpoints/%s.h5", a->folder, name), *best = best_of(a);
    if (!existing(newest)) return status_new(STATUS_DATA, "%s: the newest checkpoint of the ledger is missing", newest);
    TRY(sealed_verify(newest, &seal));
    TRY(ledger_check_config(a->arena, &a->ledger, newest));
    if (!best) return OK;
    TRY(sealed_verify(best, &seal));
    if (a->ledger.lines[0].step == 0) TRY(ledger_check_config(a->arena, &a->ledger, best)); /* else it may be older */
    a->best_step = (int64_t)seal.order;
    return check_best_file(a, best);
}

static status out_of_order(const struct audit *a, size_t index, const char *why) {
    return status_new(STATUS_DIVERGED, "%s:%zu: %s: lines were added, changed or moved", a->ledger.path, index + 1,
                      why);
}

/* Line [index] with [saved], the newest checkpoint before it. */
static status check_line(const struct audit *a, size_t index, const struct ledger_line *saved) {
    const struct ledger_line *line = &a->ledger.lines[index];
    bool is_last = index + 1 == a->ledger.count, is_end = line->event == METRICS_END || line->event == METRICS_STOPPED;
    if (line->event == METRICS_START) return out_of_order(a, index, "a second start");
    if (is_end && !is_last) return out_of_order(a, index, "an end before other lines");
    if (line->event == METRICS_END && saved && saved->step != line->step)
        return out_of_order(a, index, "the end of the run is at another step than its last checkpoint");
    if (line->step < line[-1].step) return out_of_order(a, index, "a step before that of the line above");
    if (ledger_line_has(&line[-1], "pending") && line->step != line[-1].step)
        return out_of_order(a, index, "no other line of the step of a pending evaluation");
    bool is_state = line->event == METRICS_RESUME || line->event == METRICS_CHECKPOINT;
    if (!is_state || !saved) return OK;
    if (line->event == METRICS_RESUME && line->step > saved->step)
        return status_new(STATUS_DATA, "%s:%zu: it has no lines of steps %lld to %lld; was train.ledger off then?",
                          a->ledger.path, index + 1, (long long)saved->step + 1, (long long)line->step);
    bool is_same = line->step == saved->step && !ledger_line_has(saved, "pending");
    bool has_states = ledger_line_has(line, "state") && ledger_line_has(saved, "state");
    if (is_same && has_states && !ledger_line_equals(line, saved, "state"))
        return out_of_order(a, index, "another state at the step of the checkpoint above");
    return OK;
}

/* What every ledger of a run has, so that a line cannot take the place of another. */
static status check_order(const struct audit *a) {
    const struct ledger_line *saved = NULL;
    int64_t step = 0; /* of the newest line of a step */
    for (size_t i = 1; i < a->ledger.count; i++) {
        TRY(check_line(a, i, saved));
        if (a->ledger.lines[i].event == METRICS_STEP) {
            if (a->ledger.lines[i].step <= step) return out_of_order(a, i, "a step that was already there");
            step = a->ledger.lines[i].step;
        }
        if (a->ledger.lines[i].event == METRICS_CHECKPOINT) saved = &a->ledger.lines[i];
    }
    return OK;
}

/* The state at the end of metrics.jsonl is that of the last line. */
static status check_end(struct audit *a) {
    struct text path = {0};
    struct metrics_lines lines;
    const struct ledger_line *last = &a->ledger.lines[a->ledger.count - 1];
    text_printf(&path, "%s/metrics.jsonl", a->folder);
    status s = metrics_read(text_string(&path), &lines);
    text_free(&path);
    TRY(s);
    bool has_end = metrics_line_is(lines.other, METRICS_END);
    struct ledger_line end = {.text = lines.other, .size = has_end ? strcspn(lines.other, "\n") : 0};
    if (has_end && !ledger_line_equals(&end, last, "state_sha256"))
        s = status_new(STATUS_DIVERGED,
                       "%s:%zu: the last line is not that of the end of the run, which is in metrics.jsonl: lines were "
                       "removed or changed",
                       a->ledger.path, a->ledger.count);
    if (!s && last->event == METRICS_END) a->lacks_end = !has_end;
    metrics_lines_free(&lines);
    return s;
}

/* ---- whether this machine can repeat it ---- */

static status count_processes(const struct audit *a, const struct interval *p, int64_t *out) {
    return ledger_processes(a->line, ledger_line_int(p->start, "world_size"), ledger_line_int(p->start, "elastic") == 1,
                            out);
}

static status check_processor(const struct audit *a, const struct interval *p) {
    const char *processor = ledger_line_word(a->arena, p->start, "processor");
    const char *where = ledger_line_word(a->arena, p->start, "device");
    return ledger_check_processor(a->folder, processor, where, ledger_line_int(p->start, "portable") == 1);
}

/* ---- choosing intervals ---- */

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Intervals that can be repeated are chosen with the same probability; they could not be known when the run was made.
 */
static status choose(struct audit *a, uint64_t seed) {
    const struct command_line *line = a->line;
    size_t possible = a->possible, wanted = a->interval_count, left;
    if (a->interval_count == 0)
        return status_new(STATUS_DATA, "%s: the run has no checkpoint yet, so there is nothing to repeat",
                          a->ledger.path);
    if (possible == 0)
        return status_new(STATUS_DATA,
                          "%s: no interval of the run can be repeated: the configs of its starts are not in the folder",
                          a->folder);
    double fraction = line->fraction >= 0 ? line->fraction : 0.1;
    if (line->intervals >= 0)
        wanted = (size_t)line->intervals;
    else if (!line->is_all)
        wanted = (size_t)ceil(fraction * (double)a->interval_count);
    wanted = wanted < 1 ? 1 : wanted > possible ? possible : wanted;
    left = possible;
    for (size_t i = 0; i < a->interval_count; i++) {
        if (a->intervals[i].origin == SIZE_MAX) continue;
        bool is_chosen = left > 0 && next_random(&seed) % left < wanted - a->chosen;
        for (size_t k = i + 1; is_chosen && k-- > a->intervals[i].origin && !a->intervals[k].is_needed;)
            a->intervals[k].is_needed = true;
        a->chosen += is_chosen;
        left--;
    }
    if (possible < a->interval_count)
        printf("%zu of %zu intervals cannot be repeated, since the config of their start is not in the folder\n",
               a->interval_count - possible, a->interval_count);
    return OK;
}

/* ---- repeating an interval ---- */

static int64_t first_step(const struct audit *a, const struct interval *p) {
    return a->ledger.lines[p->first].step + 1;
}
static int64_t last_step(const struct audit *a, const struct interval *p) { return a->ledger.lines[p->last].step; }

/* STATUS_DIVERGED with the fields of line [index] that [other], its repetition, does not have. */
static status compare(const struct audit *a, size_t index, const struct ledger_line *other, const char *const *keys) {
    const struct ledger_line *line = &a->ledger.lines[index];
    struct text differences = {0}, equal = {0};
    ledger_line_compare(line, other, keys, &equal, &differences);
    status s = OK;
    /* data are the same on every processor */
    bool is_portable = ledger_line_int(&a->ledger.lines[0], "portable") == 1 || strcmp(keys[0], "epoch") != 0;
    if (differences.length)
        s = status_new(STATUS_DIVERGED, "%s:%zu: step %lld differs: %s%s%s%s", a->ledger.path, index + 1,
                       (long long)line->step, text_string(&differences), equal.length ? "; equal: " : "",
                       text_string(&equal),
                       is_portable ? "" : " (without determinism.portable, bits may depend on the number of threads)");
    text_free(&differences), text_free(&equal);
    return s;
}

static status compare_line(struct audit *a, size_t index, const struct ledger_line *other, const char *const *keys) {
    if (!other)
        return status_new(STATUS_DIVERGED, "%s:%zu: the repeated run has no such line for step %lld", a->ledger.path,
                          index + 1, (long long)a->ledger.lines[index].step);
    a->compared++;
    return compare(a, index, other, keys);
}

/* The data and the state that the repetition of [p] started from. */
static status compare_start(struct audit *a, const struct interval *p, const struct ledger_file *again) {
    static const char *const of_state[] = {"epoch", "state", NULL};
    const struct ledger_file *l = &a->ledger;
    const struct ledger_line *start = ledger_find(again, METRICS_START, -1);
    bool has_file = ledger_line_has(p->start, "sampler_sha256"); /* of the order of the rows */
    const char *const of_data[] = {"dataset_fingerprint", has_file ? "sampler_sha256" : NULL, NULL};
    TRY(compare_line(a, (size_t)(p->start - l->lines), start, of_data));
    bool have_states = ledger_line_has(start, "state") && ledger_line_has(&l->lines[p->first], "state");
    return have_states ? compare_line(a, p->first, start, of_state) : OK; /* a sharded one is not whole at a start */
}

/* The line of the repetition for the checkpoint of [line]: after skipped batches a step is that of several states. */
static const struct ledger_line *find_saved(const struct ledger_file *again, const struct ledger_line *line) {
    for (size_t i = 0; i < again->count; i++) {
        const struct ledger_line *other = &again->lines[i];
        if (other->event == METRICS_CHECKPOINT && other->step == line->step &&
            ledger_line_equals(other, line, "epoch") && ledger_line_equals(other, line, "batch"))
            return other;
    }
    return ledger_find(again, METRICS_CHECKPOINT, line->step);
}

/* The lines of an interval with those of its repetition. */
static status compare_interval(struct audit *a, const struct interval *p, const struct ledger_file *again) {
    static const char *const of_step[] = {"epoch", "rows", "loss", "grad_norm", "parameters", NULL};
    static const char *const of_state[] = {"epoch", "batch", "state", NULL}, *const of_end[] = {"epoch", "state_sha256",
                                                                                                NULL};
    const struct ledger_file *l = &a->ledger;
    size_t steps = 0, steps_again = 0, at = 0;
    for (size_t i = 0; i < again->count; i++) {
        int64_t step = again->lines[i].step;
        steps_again += again->lines[i].event == METRICS_STEP && step >= first_step(a, p) && step <= last_step(a, p);
    }
    for (size_t i = p->first + 1; i <= p->last; i++) {
        int64_t step = l->lines[i].step;
        if (l->lines[i].event != METRICS_STEP) continue;
        while (at < again->count && (again->lines[at].event != METRICS_STEP || again->lines[at].step < step)) at++;
        bool is_found = at < again->count && again->lines[at].step == step;
        TRY(compare_line(a, i, is_found ? &again->lines[at] : NULL, of_step));
        steps++;
    }
    if (steps != steps_again)
        return status_new(STATUS_DIVERGED, "%s: %zu lines for steps %lld to %lld, and %zu when they are repeated",
                          l->path, steps, (long long)first_step(a, p), (long long)last_step(a, p), steps_again);
    TRY(compare_line(a, p->last, find_saved(again, &l->lines[p->last]), of_state));
    bool has_end = p->last + 1 < l->count && ledger_line_has(&l->lines[p->last + 1], "state_sha256");
    return has_end ? compare_line(a, p->last + 1, &again->lines[again->count - 1], of_end) : OK;
}

/* The first line of a step at or after [from], from line [at] on; count: there is none. */
static size_t next_step(const struct ledger_file *m, size_t at, int64_t from) {
    while (at < m->count && (m->lines[at].event != METRICS_STEP || m->lines[at].step < from)) at++;
    return at;
}

#define REPEATED "when it is repeated"

/* The lines of metrics.jsonl for the steps of [count] intervals, and for the epochs that ended in them, with those of
 * their repetition. */
static status compare_metrics(struct audit *a, const struct interval *p, size_t count,
                              const struct ledger_file *again) {
    const struct ledger_file *m = &a->metrics;
    size_t at = next_step(m, a->metrics_at, first_step(a, p));
    for (size_t i = 0; i < again->count && m->count > 0; i++) {
        const struct ledger_line *other = &again->lines[i], *line = at < m->count ? &m->lines[at] : NULL;
        bool is_step = other->event == METRICS_STEP;
        if (!is_step && other->event != METRICS_EPOCH) continue;
        int64_t number = is_step ? other->step : ledger_line_int(other, "epoch");
        if (!is_step) line = find_epoch(a, number);
        if (is_step && line && line->step < number) return metrics_differ(a, line, "no such line " REPEATED);
        if (!line || (is_step && line->step > number))
            return status_new(STATUS_DIVERGED, "%s: it has no line of %s %lld, which is there " REPEATED, m->path,
                              is_step ? "step" : "epoch", (long long)number);
        TRY(compare_fields(a, line, other, true, REPEATED));
        if (is_step) at = next_step(m, at + 1, 0);
    }
    a->metrics_at = at;
    const struct ledger_line *end = end_of(m), *other_end = end_of(again);
    bool is_end = end && other_end && end->event == other_end->event && end->step == other_end->step;
    if (is_end && ledger_line_equals(end, other_end, "test_checkpoint"))
        TRY(compare_fields(a, end, other_end, false, REPEATED));
    bool is_more = m->count > 0 && at < m->count && m->lines[at].step <= last_step(a, &p[count - 1]);
    return is_more ? metrics_differ(a, &m->lines[at], "no such line " REPEATED) : OK;
}

/* ---- the files of checkpoints ---- */

/* [path], a checkpoint of the run, with [repeated], the one that the repetition has saved at the same step: the state,
 * and what predictions need besides. */
static status compare_files(const char *path, const char *repeated) {
    static const char *const groups[] = {"model", "optimizer", "ema", NULL};
    static const char *const others[] = {
        "state/epoch",       "state/batch", "state/step",   "state/samples",  "scaler/mean",     "scaler/scale",
        "data/inputs",       "data/labels", "data/columns", "data/tokenizer", "data/vocabulary", "data/preparation",
        "data/target_scale", NULL};
    const char *const paths[] = {path, repeated}, *const names[] = {"the file", "its repetition"};
    struct text difference = {0};
    status s = checkpoint_compare(paths, groups, others, names, &difference);
    if (!s && difference.length)
        s = status_new(STATUS_DIVERGED, "%s: not what the run gives when it is repeated: %s", path,
                       text_string(&difference));
    text_free(&difference);
    return s;
}

/* The file of the checkpoint at the end of [p], and that of the best epoch if it has the same step. */
static status compare_checkpoints(struct audit *a, const struct interval *p, const char *repeated) {
    const char *path = find_checkpoint(a, p->last);
    if (path) TRY(compare_files(path, repeated));
    return a->best_step == last_step(a, p) ? compare_files(best_of(a), repeated) : OK;
}

/* Repeats [count] intervals in a new [folder], as one run. */
static status run_intervals(const struct audit *a, const struct interval *p, size_t count, const char *folder) {
    struct text ends = {0}; /* of all but the last one */
    for (size_t i = 0; i + 1 < count; i++) text_printf(&ends, "%s%lld", i ? "," : "", (long long)last_step(a, &p[i]));
    struct repetition r = {.name = a->folder,
                           .config = p->config,
                           .from = p->is_removed ? a->state : p->checkpoint,
                           .folder = folder,
                           .device = ledger_line_word(a->arena, p->start, "device"),
                           .temporary = a->temporary,
                           .save_at = ends.length ? text_string(&ends) : NULL,
                           .first = first_step(a, p),
                           .stop = last_step(a, &p[count - 1]),
                           .every = ledger_line_int(p->start, "every"),
                           .overrides = a->line->overrides,
                           .override_count = a->line->override_count};
    status s = count_processes(a, p, &r.processes);
    if (!s) s = ledger_repeat(&r);
    text_free(&ends);
    return s;
}

/* Repeats [count] intervals from [index] on and compares them. The checkpoint at their end stays for what follows. */
static status repeat(struct audit *a, size_t index, size_t count) {
    const struct interval *p = &a->intervals[index], *last = &p[count - 1];
    struct ledger_file again = {0}, metrics = {0};
    const char *folder = arena_printf(a->arena, "%s/interval-%zu", a->temporary, index);
    double start = clock_seconds();
    size_t before = a->compared;
    status s = run_intervals(a, p, count, folder);
    if (!s) s = ledger_file_read(folder, &again);
    if (!s) s = compare_start(a, p, &again);
    for (size_t i = 0; !s && i < count; i++) s = compare_interval(a, &p[i], &again);
    if (!s) s = ledger_file_read_metrics(folder, &metrics);
    if (!s) s = compare_metrics(a, p, count, &metrics);
    if (!s) {
        const struct ledger_line *end = ledger_find(&again, METRICS_CHECKPOINT, last_step(a, last));
        if (a->run) command_remove_tree(a->run);
        a->run = folder;
        a->state = arena_printf(a->arena, "%s/checkpoints/%s.h5", folder, ledger_line_word(a->arena, end, "name"));
        s = compare_checkpoints(a, last, a->state);
    }
    ledger_file_close(&again), ledger_file_close(&metrics);
    TRY(s);
    a->repeated += count;
    printf("steps %lld to %lld: equal, %zu lines, ", (long long)first_step(a, p), (long long)last_step(a, last),
           a->compared - before);
    if (count > 1) printf("%zu intervals, ", count);
    printf("%.1f s\n", clock_seconds() - start);
    fflush(stdout);
    return OK;
}

/* With 95 % confidence at most this share of all intervals can differ when [chosen] of them, chosen at random, do not:
 * the largest number of which a choice of [chosen] misses all with a probability of 5 %. */
static double largest_share(size_t intervals, size_t chosen) {
    double missed = 1;
    size_t differing = 0;
    while (differing + chosen < intervals) {
        missed *= (double)(intervals - chosen - differing) / (double)(intervals - differing);
        if (missed < 0.05) break;
        differing++;
    }
    return (double)differing / (double)intervals;
}

/* The number of needed intervals from [index] on that one run repeats: none starts from a file, and no file was saved
 * where one ends. At most MAX_SAVE_STEPS, so that a difference is found before the whole run was repeated. */
static size_t count_together(const struct audit *a, size_t index) {
    const struct interval *p = &a->intervals[index];
    size_t count = 1, left = a->interval_count - index;
    while (count < left && count < MAX_SAVE_STEPS && p[count].is_needed && p[count].is_removed &&
           p[count].start == p->start && last_step(a, &p[count - 1]) != a->best_step)
        count++;
    return count;
}

/* The chosen intervals in order, each with those before it that its start needs. */
static status repeat_chosen(struct audit *a) {
    for (size_t i = 0, count; i < a->interval_count; i += count) {
        count = a->intervals[i].is_needed ? count_together(a, i) : 1;
        if (a->intervals[i].is_needed) TRY(repeat(a, i, count));
    }
    return OK;
}

/* ---- statements ---- */

/* An in-toto statement (version 1 of its specification) about a run that has ended: which files it is about, by their
 * SHA-256, and what they were made from. Its text is a function of the run folder, so a statement is proved by making
 * it again. */

#define STATEMENT "https://in-toto.io/Statement/v1"
#define PREDICATE "urn:ddptrain:training:1"

static status file_sha256(const char *path, char hex[DIGEST_HEX_SIZE]) {
    static char bytes[1 << 16];
    struct digest digest;
    uint8_t hash[DIGEST_SIZE];
    size_t got;
    int fd;
    digest_start(&digest);
    TRY(io_open(path, &fd));
    status s = OK;
    do {
        s = io_read(fd, path, bytes, sizeof bytes, &got);
        if (!s) digest_add(&digest, bytes, got);
    } while (!s && got == sizeof bytes);
    digest_finish(&digest, hash);
    digest_hex(hash, hex);
    return status_first(s, io_close(fd, path));
}

static status add_subject(const struct audit *a, const char *name, struct text *out) {
    struct text path = {0};
    char hex[DIGEST_HEX_SIZE];
    text_printf(&path, "%s/%s", a->folder, name);
    status s = file_sha256(text_string(&path), hex);
    text_free(&path);
    TRY(s);
    text_add(out, "    {\"name\": ");
    text_add_json(out, name);
    text_printf(out, ", \"digest\": {\"sha256\": \"%s\"}},\n", hex);
    return OK;
}

/* The newest checkpoint, and the best one if the run kept it. */
static status add_weights(const struct audit *a, struct text *out) {
    const struct ledger_line *newest = ledger_find(&a->ledger, METRICS_CHECKPOINT, -1);
    if (!newest) return status_new(STATUS_DATA, "%s: no checkpoint", a->ledger.path);
    TRY(add_subject(a, arena_printf(a->arena, "checkpoints/%s.h5", ledger_line_word(a->arena, newest, "name")), out));
    return best_of(a) ? add_subject(a, "checkpoints/" CHECKPOINT_BEST ".h5", out) : OK;
}

static void add_copy(const struct ledger_line *line, const char *key, const char *name, const char *after,
                     struct text *out) {
    text_printf(out, "\"%s\": ", name);
    ledger_line_add(line, key, out);
    text_add(out, after);
}

static status write_statement(const struct audit *a, struct text *out) {
    const struct ledger_file *l = &a->ledger;
    const struct ledger_line *start = ledger_start_at(l, INT64_MAX), *end = &l->lines[l->count - 1];
    if (end->event != METRICS_END) return status_new(STATUS_DATA, "%s: the run has not ended", l->path);
    text_add(out, "{\n  \"_type\": \"" STATEMENT "\",\n  \"subject\": [\n");
    TRY(add_weights(a, out));
    TRY(add_subject(a, "config.yaml", out));
    TRY(add_subject(a, "ledger.jsonl", out));
    out->data[out->length -= 2] = 0; /* the comma */
    text_add(out, "\n  ],\n  \"predicateType\": \"" PREDICATE "\",\n  \"predicate\": {\n    ");
    add_copy(start, "program", "program", ", ", out);
    add_copy(start, "world_size", "world_size", ", ", out);
    add_copy(start, "portable", "portable", ", ", out);
    add_copy(start, "elastic", "elastic", ",\n    ", out);
    add_copy(start, "dataset_fingerprint", "dataset_fingerprint", ",\n    ", out);
    text_printf(out, "\"ledger\": {\"lines\": %zu, \"chain\": \"%s\"},\n    ", l->count, l->chain);
    add_copy(end, "epoch", "epoch", ", ", out);
    add_copy(end, "step", "step", ",\n    ", out);
    add_copy(end, "state_sha256", "state_sha256", "\n  }\n}\n", out);
    return OK;
}

/* Whether two values differ; then *a and *b are the first values that do, NULL where there is none, and [path] has
 * where they are: "subject[0].digest". Keys are compared in any order. */
static bool find_difference(const json_t **a, const json_t **b, struct text *path) {
    const json_t *x = *a, *y = *b;
    const char *key;
    json_t *value;
    if (x && y && json_equal(x, y)) return false;
    bool are_objects = json_is_object(x) && json_is_object(y), are_arrays = json_is_array(x) && json_is_array(y);
    size_t count = !are_arrays ? 0 : json_array_size(x) > json_array_size(y) ? json_array_size(x) : json_array_size(y);
    for (int side = 0; side < 2 && are_objects; side++) /* keys of both */
        json_object_foreach((json_t *)(uintptr_t)(side ? y : x), key, value) {
            *a = json_object_get(x, key), *b = json_object_get(y, key);
            size_t before = path->length;
            text_printf(path, "%s%s", before ? "." : "", key);
            if (find_difference(a, b, path)) return true;
            path->data[path->length = before] = 0;
        }
    for (size_t i = 0; i < count; i++) {
        *a = json_array_get(x, i), *b = json_array_get(y, i);
        size_t before = path->length;
        text_printf(path, "[%zu]", i);
        if (find_difference(a, b, path)) return true;
        path->data[path->length = before] = 0;
    }
    *a = x, *b = y;
    return true;
}

static void add_json(const json_t *value, struct text *out) {
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (text)
        text_add_value(out, text, 400);
    else
        text_add(out, "missing");
    free(text);
}

static status statement_differs(const struct audit *a, const json_t *then, const json_t *now) {
    struct text why = {0};
    if (find_difference(&then, &now, &why)) {
        text_add(&why, " is ");
        add_json(then, &why);
        text_add(&why, ", and here it is ");
        add_json(now, &why);
    }
    status s = status_new(STATUS_DIVERGED, "%s: the statement is not about this folder: %s", a->line->statement,
                          text_string(&why));
    text_free(&why);
    return s;
}

/* Values are compared: the tools that sign statements write them in their own way. */
static status compare_statement(const struct audit *a) {
    struct text text = {0};
    char *file = NULL;
    struct io_info info;
    json_error_t error = {0};
    status s = io_read_text(a->line->statement, 1 << 20, &file, &info);
    if (!s && !file) s = status_new(STATUS_IO, "%s: there is no such file", a->line->statement);
    json_t *then = s ? NULL : json_loads(file, JSON_REJECT_DUPLICATES, &error), *now = NULL;
    const char *type = json_string_value(json_object_get(then, "predicateType"));
    if (!s && !(type && strcmp(type, PREDICATE) == 0))
        s = status_new(STATUS_DATA, "%s: not a statement of ddptrain certify%s%s", a->line->statement,
                       error.text[0] ? ": " : "", error.text);
    if (!s) s = write_statement(a, &text);
    if (!s) now = json_loads(text_string(&text), 0, &error);
    if (!s && !json_equal(then, now)) s = statement_differs(a, then, now);
    json_decref(then), json_decref(now);
    free(file);
    text_free(&text);
    if (!s) printf("%s: the statement is about the files of this folder\n", a->line->statement);
    return s;
}

/* ---- the command ---- */

/* What can be checked without repeating anything. */
static status read_run(struct audit *a) {
    TRY(ledger_file_read(a->folder, &a->ledger));
    TRY(check_order(a));
    find_names(a);
    find_intervals(a);
    TRY(read_config(a));
    TRY(check_checkpoints(a));
    TRY(check_metrics(a));
    TRY(check_end(a));
    return verify_newest(a);
}

static status prepare(struct audit *a) {
    const struct ledger_file *l = &a->ledger;
    TRY(read_run(a));
    if (a->line->statement) TRY(compare_statement(a));
    TRY(find_files(a));
    find_origins(a);
    TRY(compare_configs(a));
    for (size_t i = 0; i < a->interval_count; i++) {
        int64_t processes;
        TRY(count_processes(a, &a->intervals[i], &processes));
        TRY(check_processor(a, &a->intervals[i]));
    }
    const struct ledger_line *last = &l->lines[l->count - 1];
    printf("%s: %zu lines, the chain is whole: %s\n", l->path, l->count, l->chain);
    if (l->lines[0].step > 0)
        printf("it begins after step %lld, with the state of checkpoint.resume or of a time without a ledger\n",
               (long long)l->lines[0].step);
    if (last->event == METRICS_END) printf("the run ended after step %lld\n", (long long)last->step);
    return OK;
}

static void print_result(const struct audit *a) {
    size_t impossible = a->interval_count - a->possible;
    double differing = largest_share(a->possible, a->chosen) * (double)a->possible + (double)impossible;
    differing /= (double)a->interval_count;
    printf("\n%zu of %zu interval%s repeated, all equal (%zu lines): ", a->repeated, a->interval_count,
           text_plural(a->interval_count, "s"), a->compared);
    if (a->repeated == a->interval_count)
        printf("the run is as recorded\n");
    else
        printf("with 95 %% confidence at least %.0f %% of its intervals are as recorded\n",
               floor(100 * (1 - differing)));
}

static status check_choice(const struct command_line *line) {
    bool has_fraction = line->fraction >= 0, has_intervals = line->intervals >= 0;
    if (line->is_all + has_fraction + has_intervals > 1)
        return status_new(STATUS_USAGE, "--all, --fraction and --intervals exclude each other; give one of them");
    if (has_fraction && !(line->fraction > 0 && line->fraction <= 1))
        return status_new(STATUS_USAGE, "--fraction: expected a number above 0 and at most 1, got %g", line->fraction);
    return line->intervals == 0 ? status_new(STATUS_USAGE, "--intervals: expected at least 1, got 0") : OK;
}

static status audit(struct audit *a) {
    uint64_t seed = (uint64_t)a->line->seed;
    TRY(check_choice(a->line));
    TRY(ledger_check_ended(a->folder));
    TRY(prepare(a));
    if (a->line->seed < 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return status_new(STATUS_IO, "the system gives no random numbers");
    seed &= INT32_MAX;
    if (!a->line->is_all && a->interval_count > 1)
        printf("intervals are chosen with --seed %llu\n", (unsigned long long)seed);
    TRY(choose(a, seed));
    TRY(command_make_folder(a->line->run_dir, "audit", &a->temporary));
    stop_defer(); /* the folder is removed first */
    TRY(repeat_chosen(a));
    if (a->lacks_end)
        return status_new(STATUS_DIVERGED,
                          "%s/metrics.jsonl: it does not end with the end of the run, which the ledger has: lines were "
                          "removed, or the file was",
                          a->folder);
    print_result(a);
    return OK;
}

/* Only an earlier statement is replaced. */
static status check_out(const char *path) {
    struct io_info info;
    char *text = NULL;
    TRY(io_stat(path, &info));
    if (!info.exists) return OK;
    if (info.is_file) TRY(io_read_text(path, 1 << 20, &text, &info));
    bool is_statement = text && strstr(text, PREDICATE);
    free(text);
    return is_statement ? OK
                        : status_new(STATUS_USAGE, "--out %s: it exists and is no statement; name a new file", path);
}

static status certify(struct audit *a) {
    struct text text = {0};
    status s = read_run(a);
    if (!s) s = write_statement(a, &text);
    if (!s && a->line->out) s = check_out(a->line->out);
    if (!s && a->line->out) s = io_replace_text(a->line->out, text_string(&text));
    if (!s && !a->line->out) fputs(text_string(&text), stdout);
    text_free(&text);
    return s;
}

static status run(const struct command_line *line, status (*work)(struct audit *a)) {
    struct audit a = {.line = line, .folder = line->config, .arena = arena_create()};
    bool is_run;
    status s = run_folder_is_readable(line->config, &is_run);
    if (!s && !is_run) s = status_new(STATUS_USAGE, "%s: not the folder of a run", line->config);
    if (!s) s = work(&a);
    command_remove_folder(a.temporary);
    ledger_file_close(&a.ledger), ledger_file_close(&a.metrics);
    arena_destroy(a.arena);
    return s;
}

static status run_audit(const struct command_line *line) { return run(line, audit); }
static status run_certify(const struct command_line *line) { return run(line, certify); }

const struct subcommand subcommand_audit = {
    .name = "audit",
    .arguments = "RUN [KEY=FILE ...] [options]",
    .help = "repeat parts of a run and compare them with its ledger",
    .run = run_audit,
    .options = OPTION_AUDIT | OPTION_SEED,
    .operand = "folder",
    .takes_overrides = true,
    .override_prefixes = (const char *const[]){FILE_KEYS(""), NULL},
};

const struct subcommand subcommand_certify = {
    .name = "certify",
    .arguments = "RUN [--out FILE]",
    .help = "an in-toto statement about a run that has ended, which audit --statement proves",
    .run = run_certify,
    .options = OPTION_OUT,
    .operand = "folder",
};
