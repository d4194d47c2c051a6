/* The file of a sweep as a whole: reading, checks of keys against each other, writing. Keys with fixed types are bound
 * by the schema (sweep_schema.c); `parameters` and the mappings of `trials` have keys of the user's
 * (sweep_parameters.c). */
#include "sweep/sweep_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/find_file.h"
#include "sweep/sweep_config_internal.h"

struct sweep_file {
    struct document *document;
    struct config_file *base, *other; /* other NULL: there is none */
    struct sweep_config sweep;
};

/* ---- the whole file ---- */

/* [root] without the keys that the schema cannot bind. */
static const struct node *fixed_keys(const struct node *root, struct arena *arena) {
    struct node *copy = arena_alloc(arena, sizeof *copy);
    const struct node *trials = node_get(root, "trials");
    *copy = *root;
    copy->items = arena_alloc(arena, (root->count + 1) * sizeof *copy->items);
    copy->keys = arena_alloc(arena, (root->count + 1) * sizeof *copy->keys);
    copy->key_places = arena_alloc(arena, (root->count + 1) * sizeof *copy->key_places);
    copy->count = 0;
    for (size_t i = 0; i < root->count; i++) {
        bool is_list = root->items[i] == trials && trials->kind == NODE_SEQUENCE;
        if (is_list || strcmp(root->keys[i], "parameters") == 0) continue;
        copy->items[copy->count] = root->items[i];
        copy->keys[copy->count] = root->keys[i];
        copy->key_places[copy->count++] = root->key_places[i];
    }
    return copy;
}

static void check_trials(struct sweep_config *sweep, const struct node *root, struct problems *problems) {
    const struct parameter *endless;
    const struct node *node = node_get(root, "trials");
    struct place place = node ? node->place : root->place;
    if (sweep->method == SWEEP_LIST) return;
    if (sweep->method != SWEEP_GRID) {
        if (sweep->trials == SCHEMA_NO_INT)
            problems_add(problems, place, "trials", "method %s needs the number of trials (trials: 100)",
                         sweep_method_name((enum sweep_method)sweep->method));
        return;
    }
    uint64_t size = space_grid_size(&sweep->space, &endless);
    if (endless)
        problems_add(problems, endless->place, endless->path,
                     "a grid needs a list of values, int_uniform, or uniform with a step; else use method: random");
    else if (size == 0 || size > SWEEP_MAX_TRIALS)
        problems_add(problems, place, "parameters", "the grid has more than %d points; use method: random",
                     SWEEP_MAX_TRIALS);
    else if (sweep->trials == SCHEMA_NO_INT || (uint64_t)sweep->trials > size)
        sweep->trials = (int64_t)size;
}

static void check_keep(struct sweep_config *sweep, const struct node *root, struct problems *problems) {
    const struct node *node = node_get(root, "keep");
    const char *runs = sweep->keep.runs ? sweep->keep.runs : "";
    char *end;
    if (strcmp(runs, "all") == 0) {
        sweep->kept = INT64_MAX;
    } else if (strcmp(runs, "none") == 0) {
        sweep->kept = 0;
    } else {
        errno = 0;
        sweep->kept = strncmp(runs, "best ", 5) == 0 ? strtoll(runs + 5, &end, 10) : -1;
        if (sweep->kept < 0 || errno || end == runs + 5 || *end)
            problems_add(problems, node ? node->place : root->place, "keep.runs",
                         "expected all, none or best N (best 10), got '%.40s'", runs);
        if (sweep->kept > sweep->trials) sweep->kept = sweep->trials;
    }
}

/* Which keys go with which method. */
static void check_method(const struct sweep_config *sweep, const struct node *root, struct problems *problems) {
    const struct node *trials = node_get(root, "trials"), *parameters = node_get(root, "parameters");
    bool has_list = trials && trials->kind == NODE_SEQUENCE;
    if (sweep->method == SWEEP_LIST && (!has_list || trials->count == 0))
        problems_add(problems, trials ? trials->place : root->place, "trials",
                     "method list needs a list of mappings (trials: [{optimizer.lr: 0.1}, {optimizer.lr: 0.01}])");
    if (sweep->method != SWEEP_LIST && has_list)
        problems_add(problems, trials->place, "trials", "a list of trials is for method: list");
    if (sweep->method == SWEEP_LIST && parameters)
        problems_add(problems, parameters->place, "parameters", "method list has its values in trials");
    if (sweep->method != SWEEP_LIST && !parameters)
        problems_add(problems, root->place, "parameters",
                     "missing: the keys of the config to change (parameters: {optimizer.lr: {values: [0.1, 0.01]}})");
}

enum sweep_goal sweep_goal_of(const char *metric) {
    return monitor_is_maximized(&(struct monitor){.metric = metric}) ? SWEEP_MAXIMIZE : SWEEP_MINIMIZE;
}

static void read_root(struct sweep_file *file, struct problems *problems) {
    struct sweep_config *sweep = &file->sweep;
    struct arena *arena = document_arena(file->document);
    const struct node *root = document_root(file->document);
    const struct node *trials = node_get(root, "trials"), *parameters = node_get(root, "parameters");
    schema_bind(&sweep_schema, fixed_keys(root, arena), "", &sweep_schema, sweep, arena, problems);
    if (problems->count) return;
    if (sweep->metric.goal == SWEEP_AUTO) sweep->metric.goal = (int)sweep_goal_of(sweep->metric.name);
    check_method(sweep, root, problems);
    if (parameters && sweep->method != SWEEP_LIST) sweep_read_parameters(parameters, sweep, arena, problems);
    if (trials && trials->kind == NODE_SEQUENCE) sweep_read_list(trials, sweep, arena, problems);
    if (problems->count) return;
    check_trials(sweep, root, problems);
    check_keep(sweep, root, problems);
    int64_t seeds = sweep->repeat.seeds == SCHEMA_NO_INT ? 1 : sweep->repeat.seeds;
    sweep->folds = sweep->repeat.folds == SCHEMA_NO_INT ? 1 : sweep->repeat.folds;
    sweep->runs = seeds * sweep->folds;
}

/* ---- loading ---- */

static bool is_sweep_key(const char *word) {
    size_t length = strcspn(word, ".=");
    if (length == strlen("parameters") && strncmp(word, "parameters", length) == 0) return true;
    for (const struct schema_row *row = sweep_schema.rows; row->key; row++)
        if (strlen(row->key) == length && strncmp(row->key, word, length) == 0) return true;
    return false;
}

/* The words of the sweep change its document; the others, after those of the file, are for the config of the trials. */
static status apply_overrides(struct sweep_file *file, char *const *overrides, size_t count,
                              struct problems *problems) {
    struct arena *arena = document_arena(file->document);
    struct string_list *words = &file->sweep.overrides;
    for (size_t i = 0; i < count; i++)
        if (is_sweep_key(overrides[i])) schema_override(&sweep_schema, file->document, overrides[i], problems);
    read_root(file, problems);
    const char **items = arena_alloc(arena, (words->count + count + 1) * sizeof *items);
    for (size_t i = 0; i < words->count; i++) items[i] = words->items[i];
    for (size_t i = 0; i < count; i++)
        if (!is_sweep_key(overrides[i])) items[words->count++] = arena_copy(arena, overrides[i]);
    words->items = items;
    return problems_status(problems, STATUS_USAGE);
}

static status check_with_config(struct sweep_file *file, struct problems *problems) {
    struct sweep_config *sweep = &file->sweep;
    TRY(config_load(sweep->config, (char *const *)sweep->overrides.items, sweep->overrides.count, &file->base));
    TRY(config_source_open(sweep->config, &sweep->source));
    sweep_check(sweep, document_root(file->document), problems);
    return problems_status(problems, STATUS_USAGE);
}

status sweep_load(const char *path, char *const *overrides, size_t count, struct sweep_file **out) {
    struct problems problems = {0};
    struct sweep_file *file = calloc(1, sizeof *file);
    *out = NULL;
    if (!file) return status_memory("the sweep");
    status s = document_read(path, &problems, &file->document);
    if (!s && !file->document) s = problems_status(&problems, STATUS_USAGE);
    if (!s) s = apply_overrides(file, overrides, count, &problems);
    if (!s) s = find_file(&file->sweep.config, path, document_arena(file->document));
    if (!s) s = check_with_config(file, &problems);
    problems_free(&problems);
    if (s)
        sweep_free(file);
    else
        *out = file;
    return s;
}

void sweep_free(struct sweep_file *file) {
    if (!file) return;
    config_free(file->base);
    config_free(file->other);
    config_source_close(file->sweep.source);
    config_source_close(file->sweep.other_source);
    document_destroy(file->document);
    free(file);
}

const struct sweep_config *sweep_file_config(const struct sweep_file *file) { return &file->sweep; }

const struct config *sweep_file_base(const struct sweep_file *file) { return config_of(file->base); }

const struct config *sweep_file_other(const struct sweep_file *file) {
    return file->other ? config_of(file->other) : NULL;
}

status sweep_load_comparison(const char *a, const char *b, char *const *overrides, size_t count, int64_t seeds,
                             const char *metric, struct sweep_file **out) {
    static const char *const no_words[] = {NULL};
    static const char *const *const list[] = {no_words, no_words};
    struct sweep_file *file = calloc(1, sizeof *file);
    *out = NULL;
    if (!file) return status_memory("the comparison");
    file->sweep =
        (struct sweep_config){.config = a,
                              .other = b,
                              .method = SWEEP_LIST,
                              .metric = {metric, (int)sweep_goal_of(metric)},
                              .repeat = {.seeds = seeds, .folds = SCHEMA_NO_INT},
                              .early_terminate = {.min_epochs = 1, .reduction_factor = 3, .startup_trials = 5},
                              .nproc_per_trial = 1,
                              .trials = 2,
                              .budget = {NAN},
                              .keep = {"none"},
                              .list = list,
                              .overrides = {(const char **)overrides, count},
                              .runs = seeds,
                              .folds = 1};
    status s = config_load(a, overrides, count, &file->base);
    if (!s) s = config_load(b, overrides, count, &file->other);
    if (!s) s = config_source_open(a, &file->sweep.source);
    if (!s) s = config_source_open(b, &file->sweep.other_source);
    for (int64_t trial = 0; !s && trial < 2; trial++) { /* with the metric */
        struct config_file *config = NULL;
        s = sweep_fixed_config(&file->sweep, trial, &config);
        config_free(config);
    }
    if (s)
        sweep_free(file);
    else
        *out = file;
    return s;
}

void sweep_write_base(const struct sweep_file *file, struct text *out) {
    schema_write_yaml(&config_schema, sweep_file_base(file), out);
}

bool sweep_write_other(const struct sweep_file *file, struct text *out) {
    if (file->other) schema_write_yaml(&config_schema, config_of(file->other), out);
    return file->other != NULL;
}

void sweep_write_all(const struct sweep_file *file, struct text *out) {
    sweep_write(&file->sweep, out);
    sweep_write_base(file, out);
    sweep_write_other(file, out);
}

/* ---- writing ---- */

void sweep_write(const struct sweep_config *sweep, struct text *out) {
    struct sweep_config fixed = *sweep;
    if (sweep->list) fixed.trials = SCHEMA_NO_INT;
    struct text keys = {0};
    schema_write_yaml(&sweep_schema, &fixed, &keys);
    const char *trials = sweep->list ? strstr(text_string(&keys), "trials: null\n") : NULL;
    if (trials) {
        text_add_bytes(out, keys.data, (size_t)(trials - keys.data));
        text_add(out, trials + strlen("trials: null\n"));
    } else {
        text_add(out, text_string(&keys));
    }
    text_free(&keys);
    if (sweep->other) text_printf(out, "# compared with %s\n", sweep->other);
    sweep_write_parameters(sweep, out);
    sweep_write_list(sweep, out);
}
