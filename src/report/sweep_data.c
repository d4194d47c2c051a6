/* Reads the folder of a sweep: sweep.yaml and the history. Runs are kept in the order of the file; the trials are
 * made of them anew after each reading, sorted by their means.
 */
#include "report/sweep_data.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/schema/schema.h"
#include "base/scoped.h"
#include "base/status.h"
#include "base/text.h"
#include "sweep/sweep_folder.h"
#include "train/metrics/report.h"

#define MAX_REASONS 200
#define MAX_WORDS 1000 /* of a parameter */
#define NUMERIC_LIST 8 /* a list of trials with more different numbers for a key has a numeric axis */

static char *copy(const char *text) { return status_need(strdup(text)); }

/* ---- sweep.yaml ---- */

static const char *scalar(const struct node *node) { return node && node->kind == NODE_SCALAR ? node->text : NULL; }

static bool read_number(const char *text, double *out) {
    char *end = NULL;
    *out = text && *text ? strtod(text, &end) : NAN;
    return end && !*end && isfinite(*out);
}

/* A number from 1 to [max]; [fallback] where there is none. Products of them do not overflow. */
static int64_t count_of(const struct node *node, double max, int64_t fallback) {
    double number;
    return read_number(scalar(node), &number) && number >= 1 && number <= max ? (int64_t)number : fallback;
}

static size_t word_index(struct sweep_data *s, struct sweep_data_parameter *p, const char *word) {
    for (size_t i = 0; i < p->word_count; i++)
        if (strcmp(p->words[i], word) == 0) return i;
    if (p->word_count == MAX_WORDS) return MAX_WORDS;
    if (!p->words) p->words = arena_alloc(s->arena, MAX_WORDS * sizeof *p->words);
    p->words[p->word_count] = arena_copy(s->arena, word);
    return p->word_count++;
}

static struct sweep_data_parameter *parameter_named(struct sweep_data *s, const char *path, bool makes) {
    for (size_t i = 0; i < s->parameter_count; i++)
        if (strcmp(s->parameters[i].path, path) == 0) return &s->parameters[i];
    if (!makes || s->parameter_count == SWEEP_DATA_MAX_PARAMETERS) return NULL;
    struct sweep_data_parameter *p = &s->parameters[s->parameter_count++];
    *p = (struct sweep_data_parameter){.path = arena_copy(s->arena, path)};
    return p;
}

static void add_word(struct sweep_data *s, struct sweep_data_parameter *p, const struct node *node) {
    SCOPED_TEXT word = {0};
    node_write(node, &word);
    word_index(s, p, text_string(&word));
}

static void read_parameter(struct sweep_data *s, const char *path, const struct node *node) {
    struct sweep_data_parameter *p = parameter_named(s, path, true);
    const char *kind = scalar(node_get(node, "distribution"));
    const struct node *values = node_get(node, "values");
    if (!p) return;
    for (size_t i = 0; values && values->kind == NODE_SEQUENCE && i < values->count; i++)
        add_word(s, p, values->items[i]);
    for (int i = PARAMETER_UNIFORM; kind && !values && i <= PARAMETER_INT_LOG_UNIFORM; i++) {
        const struct parameter named = {.kind = i};
        if (strcmp(kind, parameter_kinds[i]) != 0) continue;
        bool is_log = parameter_is_log(&named);
        p->is_int = parameter_is_int(&named);
        p->is_number = read_number(scalar(node_get(node, "min")), &p->low) &&
                       read_number(scalar(node_get(node, "max")), &p->high) && p->low < p->high &&
                       (!is_log || p->low > 0);
        p->is_log = p->is_number && is_log; /* words have no logarithm */
    }
}

/* A key of a list of trials with many different numbers is drawn as numbers. */
static void choose_scale(struct sweep_data_parameter *p) {
    double number;
    p->is_number = p->word_count > NUMERIC_LIST;
    p->low = INFINITY;
    p->high = -INFINITY;
    for (size_t i = 0; i < p->word_count && p->is_number; i++) {
        p->is_number = read_number(p->words[i], &number);
        p->low = fmin(p->low, number);
        p->high = fmax(p->high, number);
    }
    p->is_log = p->is_number && p->low > 0 && p->high / p->low > 100;
}

static void read_listed(struct sweep_data *s, const struct node *trials) {
    s->trial_count = (int64_t)trials->count;
    for (size_t i = 0; i < trials->count; i++)
        for (size_t k = 0; trials->items[i]->kind == NODE_MAPPING && k < trials->items[i]->count; k++) {
            struct sweep_data_parameter *p = parameter_named(s, trials->items[i]->keys[k], true);
            if (p) add_word(s, p, trials->items[i]->items[k]);
        }
    for (size_t i = 0; i < s->parameter_count; i++) choose_scale(&s->parameters[i]);
}

static const char *text_or(const struct node *node, const char *fallback) {
    const char *text = scalar(node);
    return text ? text : fallback;
}

static const char *quoted_words(struct arena *arena, const struct node *list) {
    SCOPED_TEXT words = {0};
    for (size_t i = 0; list && list->kind == NODE_SEQUENCE && i < list->count; i++) {
        text_add(&words, " ");
        text_add_shell(&words, text_or(list->items[i], ""));
    }
    return arena_copy(arena, text_string(&words));
}

static void read_other_metrics(struct sweep_data *s, const struct node *others) {
    s->other_count = 0;
    for (size_t i = 0; others && others->kind == NODE_MAPPING && i < others->count; i++) {
        if (s->other_count == SWEEP_MAX_OTHER_METRICS) return;
        s->is_other_max[s->other_count] = strcmp(text_or(node_get(others->items[i], "goal"), ""), "maximize") == 0;
        s->others[s->other_count++] = arena_copy(s->arena, others->keys[i]);
    }
}

static void read_sweep(struct sweep_data *s, const struct node *root) {
    const struct node *metric = node_get(root, "metric"), *repeat = node_get(root, "repeat");
    const struct node *trials = node_get(root, "trials"), *parameters = node_get(root, "parameters");
    s->method = arena_copy(s->arena, text_or(node_get(root, "method"), "random"));
    s->metric = arena_copy(s->arena, text_or(node_get(metric, "name"), "val_loss"));
    s->config = arena_copy(s->arena, text_or(node_get(root, "config"), ""));
    s->overrides = quoted_words(s->arena, node_get(root, "overrides"));
    s->early = arena_copy(s->arena, text_or(node_get(node_get(root, "early_terminate"), "type"), "none"));
    s->is_max = strcmp(text_or(node_get(metric, "goal"), "minimize"), "maximize") == 0;
    read_other_metrics(s, node_get(root, "other_metrics"));
    s->seeds = count_of(node_get(repeat, "seeds"), 1e4, 0);
    s->folds = count_of(node_get(repeat, "folds"), 1e4, 0);
    s->trial_count = count_of(trials, 1e9, -1);
    for (size_t i = 0; parameters && parameters->kind == NODE_MAPPING && i < parameters->count; i++)
        read_parameter(s, parameters->keys[i], parameters->items[i]);
    if (trials && trials->kind == NODE_SEQUENCE) read_listed(s, trials);
}

int64_t sweep_data_repeats(const struct sweep_data *s) {
    return (s->seeds > 0 ? s->seeds : 1) * (s->folds > 0 ? s->folds : 1);
}

int64_t sweep_data_total(const struct sweep_data *s) {
    return s->trial_count < 0 ? -1 : s->trial_count * sweep_data_repeats(s);
}

bool sweep_data_is_complete(const struct sweep_data *s) {
    for (size_t i = 0; i < s->trial_total; i++)
        if (s->trials[i].state == TRIAL_PENDING) return false;
    return (int64_t)s->trial_total >= s->trial_count;
}

const char *sweep_data_state(const struct sweep_data *s) {
    return s->is_locked                ? "running"
           : sweep_data_is_complete(s) ? "complete"
           : s->has_stopped            ? "stopped"
                                       : "not complete";
}

/* ---- the values of a trial ---- */

/* The point of trial [trial] of a list. */
static void point_of_list(struct sweep_data *s, const struct node *trials, int64_t trial, double *point) {
    const struct node *node =
        trials && trials->kind == NODE_SEQUENCE && trial < (int64_t)trials->count ? trials->items[trial] : NULL;
    for (size_t k = 0; node && node->kind == NODE_MAPPING && k < node->count; k++) {
        struct sweep_data_parameter *p = parameter_named(s, node->keys[k], false);
        SCOPED_TEXT word = {0};
        if (!p) continue;
        node_write(node->items[k], &word);
        if (!p->is_number || !read_number(text_string(&word), &point[p - s->parameters]))
            point[p - s->parameters] = (double)word_index(s, p, text_string(&word));
    }
}

static void read_point(struct sweep_data *s, const struct json_field *field, double *point) {
    struct json_line values;
    if (!field || field->kind != KIND_NESTED || !json_line_read(field->text, field->length, &values)) return;
    for (size_t i = 0; i < s->parameter_count; i++) {
        struct sweep_data_parameter *p = &s->parameters[i];
        SCOPED_STRING text = json_field_text(json_line_find(&values, p->path));
        if (!text) continue;
        if (p->is_number && !read_number(text, &point[i])) point[i] = NAN;
        if (!p->is_number) {
            size_t index = word_index(s, p, text);
            point[i] = index < MAX_WORDS ? (double)index : NAN;
        }
    }
}

/* ---- history.jsonl ---- */

/* Whether two messages are the same but for their digits. */
static bool is_same_reason(const char *a, const char *b) {
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            while (isdigit((unsigned char)*a)) a++;
            while (isdigit((unsigned char)*b)) b++;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return *a == *b;
}

static int16_t reason_index(struct sweep_data *s, const char *message) {
    for (size_t i = 0; i < s->reason_count; i++)
        if (is_same_reason(s->reasons[i].message, message)) return (int16_t)i;
    if (s->reason_count == MAX_REASONS) return -1;
    s->reasons = status_need(realloc(s->reasons, (s->reason_count + 1) * sizeof *s->reasons));
    s->reasons[s->reason_count] = (struct sweep_data_reason){.message = copy(message)};
    return (int16_t)s->reason_count++;
}

static double *new_run(struct sweep_data *s) {
    size_t n = s->parameter_count;
    if (s->run_count == s->run_capacity) {
        s->run_capacity = s->run_capacity ? 2 * s->run_capacity : 256;
        s->runs = status_need(realloc(s->runs, s->run_capacity * sizeof *s->runs));
        s->points = status_need(realloc(s->points, s->run_capacity * (n ? n : 1) * sizeof *s->points));
        if (s->other_count)
            s->run_others = status_need(realloc(s->run_others, s->run_capacity * s->other_count * sizeof(double)));
    }
    double *point = s->points + s->run_count++ * n;
    for (size_t i = 0; i < n; i++) point[i] = NAN;
    return point;
}

static bool is_count(double number, double max) { return number >= 0 && number <= max && number == floor(number); }

static uint8_t state_of(const struct json_line *line) {
    for (int state = TRIAL_COMPLETE; state <= TRIAL_FAILED; state++)
        if (json_line_is(line, "state", trial_states[state])) return (uint8_t)state;
    return TRIAL_PENDING;
}

/* Of the last run. */
static void read_others(struct sweep_data *s, const struct json_field *field) {
    struct json_line values;
    bool has = field && field->kind == KIND_NESTED && json_line_read(field->text, field->length, &values);
    for (size_t i = 0; i < s->other_count; i++)
        s->run_others[(s->run_count - 1) * s->other_count + i] = has ? json_line_number(&values, s->others[i]) : NAN;
}

static bool read_run(struct sweep_data *s, const struct json_line *line) {
    double trial = json_line_number(line, "trial"), repeat = json_line_number(line, "repeat");
    struct sweep_data_run run = {.state = state_of(line),
                                 .value = json_line_number(line, "value"),
                                 .seconds = json_line_number(line, "seconds"),
                                 .offset = s->file.offset,
                                 .message = -1};
    if (!is_count(trial, INT32_MAX) || !is_count(repeat, INT32_MAX) || run.state == TRIAL_PENDING ||
        s->run_count == SWEEP_DATA_MAX_RUNS)
        return false;
    run.trial = (int32_t)trial;
    run.repeat = (int32_t)repeat;
    if (s->trial_count >= 0 && run.trial >= s->trial_count) return true; /* of a time of more trials */
    SCOPED_STRING message = json_field_text(json_line_find(line, "message"));
    if (message && run.state == TRIAL_FAILED) run.message = reason_index(s, message);
    double *point = new_run(s);
    s->runs[s->run_count - 1] = run;
    read_others(s, json_line_find(line, "metrics"));
    read_point(s, json_line_find(line, "parameters"), point);
    return true;
}

static bool read_line(void *user, const char *bytes, size_t size) {
    struct sweep_data *s = user;
    struct json_line line;
    if (!json_line_read(bytes, size, &line)) return false;
    s->has_stopped = json_line_is(&line, "event", "stopped");
    if (json_line_is(&line, "event", "run")) return read_run(s, &line);
    return s->has_stopped || json_line_is(&line, "event", "epoch");
}

/* ---- trials ---- */

bool sweep_data_is_better(const struct sweep_data *s, double a, double b) {
    if (isnan(a) || isnan(b)) return !isnan(a);
    return s->is_max ? a > b : a < b;
}

/* Where a run is in runs, for sorting. */
struct run_place {
    int32_t trial, repeat;
    uint32_t index;
};

static int by_run(const void *a, const void *b) {
    const struct run_place *x = a, *y = b;
    if (x->trial != y->trial) return x->trial < y->trial ? -1 : 1;
    if (x->repeat != y->repeat) return x->repeat < y->repeat ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Of the entries (count) of one trial, one for each repeat; returns the index of the run that ended last. */
static size_t add_trial(struct sweep_data *s, const struct run_place *entries, size_t count) {
    struct sweep_data_trial t = {.trial = entries[0].trial, .pruned = NAN, .runs = (uint32_t)count};
    struct trial_value *values = status_need(calloc(count, sizeof *values));
    double sum = 0;
    size_t last = 0, pruned = 0;
    for (size_t i = 0; i < count; i++) {
        const struct sweep_data_run *run = &s->runs[entries[i].index];
        values[i] = (struct trial_value){run->state, run->value};
        s->counts[run->state]++;
        if (run->message >= 0) s->reasons[run->message].count++;
        if (run->state == TRIAL_PRUNED && isfinite(run->value)) sum += run->value, pruned++;
        if (isfinite(run->seconds)) t.seconds += run->seconds;
        if (entries[i].index > last) last = entries[i].index;
    }
    struct trial_summary summary = trial_summary_make(values, count, sweep_data_repeats(s));
    t.state = (uint8_t)summary.state;
    t.mean = summary.mean;
    t.error = summary.error;
    t.complete = (uint32_t)summary.complete;
    for (size_t k = 0; k < s->other_count; k++) {
        for (size_t i = 0; i < count; i++) values[i].value = s->run_others[entries[i].index * s->other_count + k];
        s->others_of[entries[0].index * s->other_count + k] =
            trial_summary_make(values, count, sweep_data_repeats(s)).mean;
    }
    if (pruned) t.pruned = sum / (double)pruned;
    t.first = entries[0].index;
    s->trials[s->trial_total++] = t;
    free(values);
    return last;
}

/* qsort has no argument for it: the sign of the means makes the smaller one the better. */
static int by_mean(const void *a, const void *b) {
    const struct sweep_data_trial *x = a, *y = b;
    bool is_x = x->state == TRIAL_COMPLETE && !isnan(x->mean), is_y = y->state == TRIAL_COMPLETE && !isnan(y->mean);
    if (is_x != is_y) return is_x ? -1 : 1;
    if (is_x && x->mean != y->mean) return x->mean < y->mean ? -1 : 1;
    return x->trial < y->trial ? -1 : x->trial > y->trial;
}

static void sort_trials(struct sweep_data *s) {
    for (size_t i = 0; s->is_max && i < s->trial_total; i++) s->trials[i].mean = -s->trials[i].mean;
    if (s->trial_total) qsort(s->trials, s->trial_total, sizeof *s->trials, by_mean);
    for (size_t i = 0; s->is_max && i < s->trial_total; i++) s->trials[i].mean = -s->trials[i].mean;
    for (s->ranked = 0; s->ranked < s->trial_total; s->ranked++) {
        const struct sweep_data_trial *t = &s->trials[s->ranked];
        if (t->state != TRIAL_COMPLETE || isnan(t->mean)) break;
    }
}

const double *sweep_data_point(const struct sweep_data *s, const struct sweep_data_trial *t) {
    return s->points + t->first * s->parameter_count;
}

double sweep_data_other(const struct sweep_data *s, const struct sweep_data_trial *t, size_t index) {
    return s->others_of[t->first * s->other_count + index];
}

static void find_front(struct sweep_data *s) {
    size_t metrics = 1 + s->other_count;
    SCOPED_ARENA arena = arena_create();
    s->front = 0;
    if (!s->other_count) return;
    double *values = arena_alloc(arena, s->ranked * metrics * sizeof *values);
    bool *front = arena_alloc(arena, s->ranked * sizeof *front);
    for (size_t i = 0; i < s->ranked; i++) {
        const struct sweep_data_trial *t = &s->trials[i];
        values[i * metrics] = s->is_max ? -t->mean : t->mean;
        for (size_t k = 0; k < s->other_count; k++)
            values[i * metrics + 1 + k] = s->is_other_max[k] ? -sweep_data_other(s, t, k) : sweep_data_other(s, t, k);
    }
    pareto_front(values, s->ranked, metrics, front);
    for (size_t i = 0; i < s->ranked; i++) s->front += s->trials[i].is_on_front = front[i];
}

static void rank_trials(struct sweep_data *s) {
    size_t n = s->run_count;
    struct run_place *entries = status_need(calloc(n + 1, sizeof *entries));
    uint32_t *ends =
        status_need(calloc(n + 1, sizeof *ends)); /* of the last run of a trial: its place in trials, + 1 */
    memset(s->counts, 0, sizeof s->counts);
    for (size_t i = 0; i < s->reason_count; i++) s->reasons[i].count = 0;
    free(s->trials);
    s->trials = status_need(calloc(n + 1, sizeof *s->trials));
    free(s->others_of);
    s->others_of = s->other_count ? status_need(calloc(n * s->other_count + 1, sizeof(double))) : NULL;
    s->trial_total = 0;
    for (size_t i = 0; i < n; i++) entries[i] = (struct run_place){s->runs[i].trial, s->runs[i].repeat, (uint32_t)i};
    qsort(entries, n, sizeof *entries, by_run);
    size_t kept = 0; /* of a run that is there twice, the last one */
    for (size_t i = 0; i < n; i++)
        if (i + 1 == n || entries[i].trial != entries[i + 1].trial || entries[i].repeat != entries[i + 1].repeat)
            entries[kept++] = entries[i];
    for (size_t i = 0, count; i < kept; i += count) {
        for (count = 1; i + count < kept && entries[i + count].trial == entries[i].trial; count++) {
        }
        size_t last = add_trial(s, entries + i, count);
        ends[last] = (uint32_t)s->trial_total;
    }
    free(entries);
    uint32_t order = 0;
    for (size_t i = 0; i < n; i++)
        if (ends[i]) s->trials[ends[i] - 1].order = order++;
    free(ends);
    sort_trials(s);
    find_front(s);
}

/* ---- the folder ---- */

static void clear_runs(struct sweep_data *s) {
    for (size_t i = 0; i < s->reason_count; i++) free(s->reasons[i].message);
    free(s->reasons);
    free(s->runs);
    free(s->points);
    free(s->run_others);
    free(s->others_of);
    free(s->trials);
    s->reasons = NULL;
    s->runs = NULL;
    s->points = s->run_others = s->others_of = NULL;
    s->trials = NULL;
    s->reason_count = s->run_count = s->run_capacity = s->trial_total = s->ranked = s->front = 0;
    s->file = (struct line_file){0};
    s->has_stopped = false;
}

static void clear_sweep(struct sweep_data *s) {
    arena_destroy(s->arena);
    s->arena = arena_create();
    s->parameter_count = s->other_count = 0;
    s->other = NULL;
}

/* While processes share a sweep, any of them writes what has ended as a new file in the folder "shared", at its end the
 * last one as history.jsonl: the larger one has more runs (trials_show). */
static status find_history(struct sweep_data *s) {
    char *own = text_path(s->path, "history.jsonl"), *shared = text_path(s->path, SWEEP_SHARED "/history.jsonl");
    struct io_info a, b;
    status r = io_stat(own, &a);
    if (!r) r = io_stat(shared, &b);
    bool is_shared = !r && b.exists && !(a.exists && a.size >= b.size);
    const struct io_info *info = is_shared ? &b : &a;
    double modified = !r && info->exists ? info->modified : NAN;
    bool is_other = !s->history || strcmp(s->history, is_shared ? shared : own) != 0;
    bool is_anew = is_shared && !(s->modified == modified && s->history_size == info->size);
    if (!r && (is_other || is_anew)) clear_runs(s);
    free(s->history);
    s->history = is_shared ? shared : own;
    free(is_shared ? own : shared);
    s->modified = modified;
    s->history_size = r ? 0 : info->size;
    return r;
}

static status read_history(struct sweep_data *s) {
    bool has_restarted;
    TRY(line_file_read(&s->file, s->history, read_line, s, &has_restarted));
    if (!has_restarted) return OK;
    clear_runs(s);
    return line_file_read(&s->file, s->history, read_line, s, &has_restarted);
}

#define MAX_ALIVE 4096
#define SHARED_SILENCE 60 /* seconds after which a process that shares a sweep is not taken for one that runs */

/* Whether a process shares the sweep now, on any host: their files change as long as they run (claims.h). */
static status find_members(struct sweep_data *s) {
    SCOPED_NAMES names = {0};
    struct io_info info;
    SCOPED_STRING members = text_path(s->path, SWEEP_MEMBERS);
    TRY(io_stat(members, &info));
    if (info.is_folder) TRY(io_list(members, &names));
    for (size_t i = 0; !s->is_locked && i < names.count; i++) {
        SCOPED_STRING folder = text_path(members, names.items[i]), *alive = text_path(folder, "alive"), *text = NULL;
        TRY(io_stat(alive, &info));
        bool is_new = info.is_file && clock_unix() - info.modified < SHARED_SILENCE;
        if (is_new) TRY(io_read_text(alive, MAX_ALIVE, &text, &info));
        s->is_locked = text && !strstr(text, "\"has_ended\":1");
    }
    return OK;
}

static status read_yaml(struct sweep_data *s, const char *path, struct document **out) {
    SCOPED_PROBLEMS problems = {0};
    struct io_info info;
    TRY(io_stat(path, &info));
    if (!info.is_file) return status_data("%s: not the folder of a sweep: it has no sweep.yaml", s->path);
    TRY(document_read(path, &problems, out));
    return problems_status(&problems, STATUS_DATA);
}

/* The second config of a comparison is a comment of sweep.yaml. */
static bool read_other(void *user, const char *line, size_t size) {
    static const char start[] = "# compared with ";
    struct sweep_data *s = user;
    if (size < sizeof start || memcmp(line, start, sizeof start - 1) != 0 || s->other) return true;
    s->other = arena_printf(s->arena, "%.*s", (int)(size - (sizeof start - 1)), line + sizeof start - 1);
    return true;
}

static status read_files(struct sweep_data *s, const char *yaml) {
    struct document *document = NULL;
    size_t run_count = s->run_count;
    int64_t repeats = sweep_data_repeats(s);
    size_t parameters = s->parameter_count, others = s->other_count;
    bool is_max = s->is_max;
    TRY(folder_lock_is_held(s->path, &s->is_locked));
    TRY(find_members(s));
    TRY(find_history(s));
    status r = read_yaml(s, yaml, &document);
    if (!r) {
        clear_sweep(s);
        read_sweep(s, document_root(document));
        struct line_file lines = {0};
        bool has_restarted;
        r = line_file_read(&lines, yaml, read_other, s, &has_restarted);
    }
    bool is_other = parameters != s->parameter_count || others != s->other_count;
    if (is_other && s->run_count) clear_runs(s); /* another sweep: points have other columns */
    if (!r) r = read_history(s);
    const struct node *trials = document ? node_get(document_root(document), "trials") : NULL;
    bool is_known = s->trials && s->run_count == run_count && s->is_max == is_max && sweep_data_repeats(s) == repeats;
    bool is_list = !r && !is_known && trials && trials->kind == NODE_SEQUENCE;
    for (size_t i = 0; is_list && i < s->run_count; i++)
        point_of_list(s, trials, s->runs[i].trial, s->points + i * s->parameter_count);
    document_destroy(document);
    if (!r && !is_known) rank_trials(s);
    return r;
}

status sweep_data_update(struct sweep_data *s) {
    SCOPED_STRING yaml = text_path(s->path, "sweep.yaml");
    return read_files(s, yaml);
}

status sweep_data_is_sweep(const char *path, bool *out) {
    struct io_info info;
    SCOPED_STRING yaml = text_path(path, "sweep.yaml");
    status s = io_stat(yaml, &info);
    *out = !s && info.exists;
    return s;
}

status sweep_data_read(const char *path, struct sweep_data **out) {
    struct sweep_data *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return status_memory("the numbers of a sweep");
    s->parameters = status_need(calloc(SWEEP_DATA_MAX_PARAMETERS, sizeof *s->parameters));
    s->path = copy(path);
    s->path[io_length_without_slashes(s->path)] = 0;
    const char *slash = strrchr(s->path, '/');
    s->label = copy(slash && slash[1] ? slash + 1 : s->path);
    status r = sweep_data_update(s);
    if (r)
        sweep_data_free(s);
    else
        *out = s;
    return r;
}

void sweep_data_free(struct sweep_data *s) {
    if (!s) return;
    clear_runs(s);
    arena_destroy(s->arena);
    free(s->parameters);
    free(s->path);
    free(s->label);
    free(s->history);
    free(s);
}

#define MAX_HASH_LINE ((size_t)1 << 16) /* a longer line of a run has none that is shown */

char *sweep_data_hash(const struct sweep_data *s, const struct sweep_data_trial *trial) {
    SCOPED_STRING bytes = status_need(malloc(MAX_HASH_LINE));
    char *text = NULL;
    struct json_line line;
    size_t got = 0;
    int fd;
    status r = io_open(s->history, &fd);
    if (!r) r = io_read_at(fd, s->history, bytes, MAX_HASH_LINE, s->runs[trial->first].offset, &got);
    if (!r) status_free(io_close(fd, s->history));
    status_free(r);
    const char *end = memchr(bytes, '\n', got);
    bool is_read = end && json_line_read(bytes, (size_t)(end - bytes), &line);
    if (is_read && json_line_number(&line, "trial") == (double)trial->trial) /* else the file is a new one */
        text = json_field_text(json_line_find(&line, "state_sha256"));
    return text ? text : copy("");
}

/* ---- words and commands ---- */

void sweep_data_add_mean(const struct sweep_data *s, const struct sweep_data_trial *t, const char *sign,
                         struct text *out) {
    char mean[32], error[32];
    report_metric(s->metric, t->mean, mean);
    report_metric_error(s->metric, t->error, error);
    text_add(out, mean);
    if (isfinite(t->error)) text_printf(out, " %s %s", sign, error);
}

void sweep_data_add_value(const struct sweep_data_parameter *p, double value, struct text *out) {
    if (isnan(value)) return;
    if (p->is_number && p->is_int)
        text_printf(out, "%.0f", value);
    else if (p->is_number)
        text_add_double(out, value);
    else if (value >= 0 && value < (double)p->word_count)
        text_add(out, p->words[(size_t)value]);
}

void sweep_data_add_words(const struct sweep_data *s, const struct sweep_data_trial *trial, const char *separator,
                          struct text *out) {
    bool is_first = true;
    for (size_t i = 0; i < s->parameter_count; i++) {
        SCOPED_TEXT word = {0};
        if (isnan(sweep_data_point(s, trial)[i])) continue;
        text_printf(&word, "%s=", s->parameters[i].path);
        sweep_data_add_value(&s->parameters[i], sweep_data_point(s, trial)[i], &word);
        if (!is_first) text_add(out, separator);
        text_add_shell(out, text_string(&word));
        is_first = false;
    }
}

/* The config of a trial with the arguments that the sweep gives to all. Of a comparison: the resolved config. */
static void add_config(const struct sweep_data *s, int64_t trial, struct text *out) {
    if (!s->other) {
        text_add_shell(out, s->config);
        text_add(out, s->overrides);
        return;
    }
    SCOPED_STRING path = text_path(s->path, trial ? SWEEP_OTHER_CONFIG : SWEEP_BASE_CONFIG);
    text_add_shell(out, path);
}

static double number_at(const struct node *mapping, const char *key) {
    double number;
    return read_number(scalar(node_get(mapping, key)), &number) ? number : 0;
}

/* The fraction of test rows of the config, which the folds of the sweep leave out; 0: it has none. */
static double test_fraction(const struct sweep_data *s) {
    SCOPED_STRING path = text_path(s->path, SWEEP_BASE_CONFIG);
    struct problems problems = {0};
    struct document *document = NULL;
    status_free(document_read(path, &problems, &document));
    const struct node *dataset = document ? node_get(document_root(document), "dataset") : NULL;
    const struct node *split = node_get(dataset, "split");
    bool has = number_at(split, "validation") > 0 || number_at(split, "folds") > 0;
    double test = has ? number_at(split, "test") : 0;
    document_destroy(document);
    problems_free(&problems);
    return test;
}

void sweep_data_add_command(const struct sweep_data *s, const struct sweep_data_trial *trial, struct text *out) {
    SCOPED_STRING path = text_format("runs/%s-%04" PRId64, s->label, trial->trial);
    text_add(out, "ddptrain ");
    add_config(s, trial->trial, out);
    text_add(out, " ");
    if (s->folds > 0) {
        text_add(out, "dataset.split.test=");
        text_add_double(out, test_fraction(s));
        text_printf(out,
                    " dataset.split.validation=0 dataset.split.train=0 dataset.split.folds=%" PRId64
                    " dataset.split.fold=0 ",
                    s->folds);
    }
    sweep_data_add_words(s, trial, " ", out);
    text_add(out, " --run-dir ");
    text_add_shell(out, path);
}

/* ---- how much a parameter explains ---- */

/* Equal values share the mean of their ranks. */

struct ranked {
    double value;
    size_t index;
};

/* NAN is the largest. */
static int by_value(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (isnan(x->value) || isnan(y->value)) return isnan(x->value) - isnan(y->value);
    return x->value < y->value ? -1 : x->value > y->value;
}

static struct ranked *sorted(struct arena *arena, const double *values, size_t count) {
    struct ranked *items = arena_alloc(arena, (count + 1) * sizeof *items);
    for (size_t i = 0; i < count; i++) items[i] = (struct ranked){values[i], i};
    qsort(items, count, sizeof *items, by_value);
    return items;
}

static bool is_equal(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

/* Index behind the values that equal the one at [from]. */
static size_t end_of_equal(const struct ranked *items, size_t count, size_t from) {
    size_t to = from + 1;
    while (to < count && is_equal(items[to].value, items[from].value)) to++;
    return to;
}

static double *ranks_of(struct arena *arena, const double *values, size_t count) {
    struct ranked *items = sorted(arena, values, count);
    double *ranks = arena_alloc(arena, (count + 1) * sizeof *ranks);
    for (size_t i = 0, end; i < count; i = end) {
        end = end_of_equal(items, count, i);
        for (size_t k = i; k < end; k++) ranks[items[k].index] = (double)(i + end - 1) / 2;
    }
    return ranks;
}

/* The group of each value, from 0 without gaps; returns how many there are. */
static size_t group(struct arena *arena, const double *values, size_t count, bool is_number, size_t *groups) {
    struct ranked *items = sorted(arena, values, count);
    size_t wanted = (size_t)sqrt((double)count / 5), found = 0, last = 0;
    wanted = wanted < 2 ? 2 : wanted > 10 ? 10 : wanted;
    for (size_t i = 0, end; i < count; i = end) {
        end = end_of_equal(items, count, i);
        size_t bin = is_number && !isnan(items[i].value) ? i * wanted / count : count + i;
        if (i == 0 || bin != last) found++;
        last = bin;
        for (size_t k = i; k < end; k++) groups[items[k].index] = found - 1;
    }
    return found;
}

static double mean_of(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return sum / (double)count;
}

double importance_share(const double *metric, const double *values, size_t count, bool is_number) {
    if (count < IMPORTANCE_MIN_VALUES) return NAN;
    SCOPED_ARENA arena = arena_create();
    double *ranks = ranks_of(arena, metric, count), mean = mean_of(ranks, count), total = 0, between = 0;
    size_t *groups = arena_alloc(arena, count * sizeof *groups), k = group(arena, values, count, is_number, groups);
    double *sums = arena_alloc(arena, k * sizeof *sums), *sizes = arena_alloc(arena, k * sizeof *sizes);
    for (size_t i = 0; i < count; i++) {
        total += (ranks[i] - mean) * (ranks[i] - mean);
        sums[groups[i]] += ranks[i];
        sizes[groups[i]]++;
    }
    for (size_t i = 0; i < k; i++) between += sizes[i] * (sums[i] / sizes[i] - mean) * (sums[i] / sizes[i] - mean);
    double within = (total - between) / (double)(count - k); /* k < count is asked for below */
    double share = total == 0 || k < 2 || k >= count ? NAN : (between - (double)(k - 1) * within) / total;
    return isnan(share) ? NAN : fmax(0, share);
}

double importance_correlation(const double *metric, const double *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i]) || isnan(metric[i])) return NAN;
    if (count < 2) return NAN;
    SCOPED_ARENA arena = arena_create();
    double *a = ranks_of(arena, metric, count), *b = ranks_of(arena, values, count), mean = (double)(count - 1) / 2;
    double product = 0, of_a = 0, of_b = 0;
    for (size_t i = 0; i < count; i++) {
        product += (a[i] - mean) * (b[i] - mean);
        of_a += (a[i] - mean) * (a[i] - mean);
        of_b += (b[i] - mean) * (b[i] - mean);
    }
    return of_a > 0 && of_b > 0 ? product / sqrt(of_a * of_b) : NAN;
}
