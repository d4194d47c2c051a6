/* The keys with fixed types are bound by a schema; `parameters` and the mappings of `trials` have keys of the user's
 * and are read here. */
#include "sweep/sweep_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/find_file.h"
#include "sweep/sweep_internal.h"

#define MAX_TRIALS 10000000

static const char *const methods[] = {"grid", "random", "tpe", "list", NULL};
static const char *const goals[] = {"auto", "minimize", "maximize", NULL};
static const char *const prunes[] = {"none", "asha", "median", NULL};

static const struct schema_row metric_rows[] = {
    {.key = "name",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct sweep_metric, name),
     .fallback = "val_loss",
     .doc = "A field of the epoch events of metrics.jsonl; the value of a run is that of its best epoch."},
    {.key = "goal",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct sweep_metric, goal),
     .fallback = "auto",
     .choices = goals,
     .doc = "Which values are better; `auto`: as `mode: auto` of checkpoint.best."},
    {0},
};
static const struct schema metric_schema = {
    .name = "metric", .size = sizeof(struct sweep_metric), .rows = metric_rows, .shorthand = "name"};

static const struct schema_row repeat_rows[] = {
    {.key = "seeds",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_repeat, seeds),
     .fallback = "null",
     .min = 1,
     .max = 10000,
     .doc = "Runs of a trial with other seeds: seed and sampler.seed of the config plus 0, 1, 2 ..."},
    {.key = "folds",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_repeat, folds),
     .fallback = "null",
     .min = 2,
     .max = 10000,
     .doc = "Runs of a trial over the folds of a cross-validation (dataset.split.folds and fold)."},
    {0},
};
static const struct schema repeat_schema = {.name = "repeat", .size = sizeof(struct sweep_repeat), .rows = repeat_rows};

static const struct schema_row prune_rows[] = {
    {.key = "type",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct prune_config, type),
     .fallback = "none",
     .choices = prunes,
     .doc = "`asha`: asynchronous successive halving; `median`: a run is stopped if its best value so far is worse "
            "than the "
            "median of the complete runs at the same epoch."},
    {.key = "min_epochs",
     .type = SCHEMA_INT,
     .offset = FIELD(struct prune_config, min_epochs),
     .fallback = "1",
     .min = 1,
     .max = INFINITY,
     .doc = "No run is stopped before this epoch; the first rung of asha."},
    {.key = "reduction_factor",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct prune_config, reduction_factor),
     .fallback = "3",
     .min = 1,
     .max = 1000,
     .excludes_min = true,
     .doc = "asha: of the runs that have reached a rung the best 1 / reduction_factor continue to the next, which is "
            "reduction_factor times as many epochs away."},
    {.key = "startup_trials",
     .type = SCHEMA_INT,
     .offset = FIELD(struct prune_config, startup_trials),
     .fallback = "5",
     .min = 1,
     .max = INFINITY,
     .doc = "median: no run is stopped before this number of runs is complete."},
    {0},
};
static const struct schema prune_schema = {
    .name = "early_terminate", .size = sizeof(struct prune_config), .rows = prune_rows, .shorthand = "type"};

static const struct schema_row budget_rows[] = {
    {.key = "seconds",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct sweep_budget, seconds),
     .fallback = "null",
     .min = 0,
     .max = INFINITY,
     .excludes_min = true,
     .doc = "The sweep stops after this time; the same command continues it."},
    {0},
};
static const struct schema budget_schema = {
    .name = "budget", .size = sizeof(struct sweep_budget), .rows = budget_rows, .shorthand = "seconds"};

static const struct schema_row keep_rows[] = {
    {.key = "runs",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct sweep_keep, runs),
     .fallback = "best 10",
     .doc = "Trials whose run folders are kept: `best N`, `all` or `none`. The table has a row for every run."},
    {0},
};
static const struct schema keep_schema = {
    .name = "keep", .size = sizeof(struct sweep_keep), .rows = keep_rows, .shorthand = "runs"};

#define SECTION(field_, schema_, flags_, doc_)                                                                         \
    {                                                                                                                  \
        .key = #field_, .type = SCHEMA_SECTION, .offset = offsetof(struct sweep_config, field_),                       \
        .section = &(schema_), .flags = (flags_), .doc = doc_                                                          \
    }

static const struct schema_row sweep_rows[] = {
    {.key = "config",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct sweep_config, config),
     .flags = SCHEMA_REQUIRED,
     .doc = "The config of the trials; a relative path is searched beside this file, too."},
    {.key = "overrides",
     .type = SCHEMA_STRING_LIST,
     .offset = FIELD(struct sweep_config, overrides),
     .fallback = "[]",
     .doc =
         "KEY=VALUE words for the config of all trials, as on the command line: [train.epochs=5]. Words of the command "
         "line follow them."},
    {.key = "method",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct sweep_config, method),
     .flags = SCHEMA_REQUIRED,
     .choices = methods,
     .doc = "`grid`: every combination; `random`: independent draws; `tpe`: Tree-structured Parzen Estimator, draws "
            "near the best trials so far; `list`: the trials that `trials` lists."},
    SECTION(metric, metric_schema, 0, "The metric by which trials are compared."),
    SECTION(repeat, repeat_schema, 0, "Runs of each trial; its value is their mean."),
    SECTION(early_terminate, prune_schema, 0, "When a run with a bad metric is stopped early."),
    {.key = "trials",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_config, trials),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .min = 1,
     .max = MAX_TRIALS,
     .doc = "Number of trials; null: all points of a grid. With method list: a list of mappings from keys to values."},
    {.key = "nproc_per_trial",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_config, nproc_per_trial),
     .fallback = "1",
     .min = 1,
     .max = 4096,
     .doc = "Processes of each run, which average gradients as those of ddptrain CONFIG --nproc N do; with more than "
            "1, new processes are started for each run."},
    SECTION(budget, budget_schema, SCHEMA_EXTENDS, "Limits of the sweep."),
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = FIELD(struct sweep_config, seed),
     .fallback = "0",
     .doc = "Seed of the draws of random and tpe."},
    SECTION(keep, keep_schema, SCHEMA_EXTENDS, "Which run folders are kept."),
    {.key = "tensorboard",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct sweep_config, tensorboard),
     .fallback = "false",
     .flags = SCHEMA_EXTENDS,
     .doc = "Writes a TensorBoard event file for each run into the folder tensorboard, with its parameters and its "
            "value, for "
            "TensorBoard's HParams."},
    {0},
};
const struct schema sweep_schema = {.name = "sweep", .size = sizeof(struct sweep_config), .rows = sweep_rows};

struct sweep_file {
    struct document *document;
    struct config_file *base, *other; /* other NULL: there is none */
    struct sweep_config sweep;
};

/* Of an entry of `parameters` that is not `values`. */
struct distribution {
    int kind;
    double min, max, step;
};
static const struct schema_row distribution_rows[] = {
    {.key = "distribution",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct distribution, kind),
     .flags = SCHEMA_REQUIRED,
     .choices = parameter_kinds,
     .doc = "how values are drawn"},
    {.key = "min",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct distribution, min),
     .flags = SCHEMA_REQUIRED,
     .doc = "the smallest value"},
    {.key = "max",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct distribution, max),
     .flags = SCHEMA_REQUIRED,
     .doc = "the largest value"},
    {.key = "step",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct distribution, step),
     .fallback = "0",
     .min = 0,
     .max = INFINITY},
    {0},
};
static const struct schema distribution_schema = {
    .name = "parameter", .size = sizeof(struct distribution), .rows = distribution_rows};

/* ---- parameters ---- */

static const char *text_of(const struct node *node, struct arena *arena) {
    struct text text = {0};
    node_write(node, &text);
    const char *copy = arena_copy(arena, text_string(&text));
    text_free(&text);
    return copy;
}

static void read_values(const struct node *values, const char *path, struct arena *arena, struct problems *problems,
                        struct parameter *p) {
    p->kind = PARAMETER_VALUES;
    p->count = values->kind == NODE_SEQUENCE ? values->count : 1;
    if (p->count == 0) problems_add(problems, values->place, path, "the list of values is empty");
    p->texts = arena_alloc(arena, (p->count + 1) * sizeof *p->texts);
    for (size_t i = 0; i < p->count; i++)
        p->texts[i] = text_of(values->kind == NODE_SEQUENCE ? values->items[i] : values, arena);
}

static void check_range(const struct parameter *p, const char *path, struct problems *problems) {
    bool is_whole = p->min == round(p->min) && p->max == round(p->max) && p->step == round(p->step);
    if (p->min > p->max)
        problems_add(problems, p->place, path, "the range is empty: min %g is above max %g", p->min, p->max);
    if (parameter_is_log(p) && p->min <= 0)
        problems_add(problems, p->place, path, "a logarithmic distribution needs min > 0, got %g", p->min);
    if (parameter_is_int(p) && !is_whole)
        problems_add(problems, p->place, path, "%s needs whole numbers for min, max and step",
                     parameter_kinds[p->kind]);
    if (parameter_is_log(p) && p->step > 0)
        problems_add(problems, p->place, path, "step is for uniform and int_uniform");
    if (fabs(p->min) > 1e15 || fabs(p->max) > 1e15)
        problems_add(problems, p->place, path, "min and max must be between -1e15 and 1e15");
}

static void read_parameter(const struct node *node, struct arena *arena, struct problems *problems,
                           struct parameter *p) {
    const char *path = arena_printf(arena, "parameters.%s", p->path);
    bool is_mapping = node->kind == NODE_MAPPING;
    const struct node *values = is_mapping ? node_get(node, "values") : node->kind == NODE_SEQUENCE ? node : NULL;
    const struct node *value = is_mapping ? node_get(node, "value") : NULL;
    p->place = node->place;
    if (values && values->kind != NODE_SEQUENCE)
        problems_add(problems, values->place, path, "values must be a list, such as [16, 32, 64]");
    if ((values || value) && is_mapping && node->count > 1)
        problems_add(problems, node->place, path, "a list of values goes with no other key");
    if (values || value) {
        read_values(values ? values : value, path, arena, problems, p);
        return;
    }
    if (!is_mapping || (!node_get(node, "distribution") && !node_get(node, "min"))) {
        problems_add(problems, node->place, path,
                     "expected {values: [...]} or {distribution: uniform, min: 0, max: 1}");
        return;
    }
    struct distribution d = {0};
    size_t before = problems->count;
    schema_bind(&distribution_schema, node, path, &distribution_schema, &d, arena, problems);
    p->kind = d.kind;
    p->min = d.min;
    p->max = d.max;
    p->step = d.step;
    if (problems->count == before && d.kind == PARAMETER_VALUES)
        problems_add(problems, node->place, path,
                     "distribution: values needs the list `values` instead of min and max");
    else if (problems->count == before)
        check_range(p, path, problems);
}

static void read_parameters(const struct node *node, struct sweep_config *sweep, struct arena *arena,
                            struct problems *problems) {
    if (node->kind != NODE_MAPPING || node->count == 0 || node->count > SPACE_MAX_PARAMETERS) {
        problems_add(problems, node->place, "parameters", "expected a mapping of 1 to %d keys of the config",
                     SPACE_MAX_PARAMETERS);
        return;
    }
    sweep->space.items = arena_alloc(arena, node->count * sizeof *sweep->space.items);
    sweep->space.count = node->count;
    for (size_t i = 0; i < node->count; i++) {
        sweep->space.items[i].path = node->keys[i];
        read_parameter(node->items[i], arena, problems, &sweep->space.items[i]);
    }
}

/* ---- method: list ---- */

static void read_list(const struct node *list, struct sweep_config *sweep, struct arena *arena,
                      struct problems *problems) {
    const char *const **trials = arena_alloc(arena, (list->count + 1) * sizeof *trials);
    for (size_t i = 0; i < list->count; i++) {
        const struct node *trial = list->items[i];
        bool is_mapping = trial->kind == NODE_MAPPING;
        const char **words = arena_alloc(arena, ((is_mapping ? trial->count : 0) + 1) * sizeof *words);
        trials[i] = words;
        if (!is_mapping)
            problems_add(problems, trial->place, "trials", "expected a mapping such as {optimizer.lr: 0.01}");
        for (size_t k = 0; is_mapping && k < trial->count; k++)
            words[k] = arena_printf(arena, "%s=%s", trial->keys[k], text_of(trial->items[k], arena));
    }
    sweep->list = trials;
    sweep->trials = (int64_t)list->count;
}

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
                         methods[sweep->method]);
        return;
    }
    uint64_t size = space_grid_size(&sweep->space, &endless);
    if (endless)
        problems_add(problems, endless->place, endless->path,
                     "a grid needs a list of values, int_uniform, or uniform with a step; else use method: random");
    else if (size == 0 || size > MAX_TRIALS)
        problems_add(problems, place, "parameters", "the grid has more than %d points; use method: random", MAX_TRIALS);
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

const char *sweep_method_name(enum sweep_method method) { return methods[method]; }

const char *sweep_goal_name(enum sweep_goal goal) { return goals[goal]; }

static void read_root(struct sweep_file *file, struct problems *problems) {
    struct sweep_config *sweep = &file->sweep;
    struct arena *arena = document_arena(file->document);
    const struct node *root = document_root(file->document);
    const struct node *trials = node_get(root, "trials"), *parameters = node_get(root, "parameters");
    schema_bind(&sweep_schema, fixed_keys(root, arena), "", &sweep_schema, sweep, arena, problems);
    if (problems->count) return;
    if (sweep->metric.goal == SWEEP_AUTO) sweep->metric.goal = (int)sweep_goal_of(sweep->metric.name);
    check_method(sweep, root, problems);
    if (parameters && sweep->method != SWEEP_LIST) read_parameters(parameters, sweep, arena, problems);
    if (trials && trials->kind == NODE_SEQUENCE) read_list(trials, sweep, arena, problems);
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
    for (const struct schema_row *row = sweep_rows; row->key; row++)
        if (strlen(row->key) == length && strncmp(row->key, word, length) == 0) return true;
    return false;
}

/* The words of the sweep change its document; the others, after those of the file, are for the config of the trials. */
static status apply_overrides(struct sweep_file *file, char *const *overrides, size_t count,
                              struct problems *problems) {
    struct arena *arena = document_arena(file->document);
    struct string_list *words = &file->sweep.overrides;
    for (size_t i = 0; i < count; i++)
        if (is_sweep_key(overrides[i])) document_override(file->document, overrides[i], problems);
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

const struct sweep_config *sweep_of(const struct sweep_file *file) { return &file->sweep; }

const struct config *sweep_base(const struct sweep_file *file) { return config_of(file->base); }

const struct config *sweep_other(const struct sweep_file *file) { return file->other ? config_of(file->other) : NULL; }

status sweep_pair(const char *a, const char *b, char *const *overrides, size_t count, int64_t seeds, const char *metric,
                  struct sweep_file **out) {
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
    schema_write_yaml(&config_schema, sweep_base(file), out);
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

static void write_parameter(const struct parameter *p, struct text *out) {
    text_printf(out, "  %s: {", p->path);
    if (p->kind == PARAMETER_VALUES) {
        text_add(out, "values: [");
        for (size_t i = 0; i < p->count; i++) text_printf(out, "%s%s", i ? ", " : "", p->texts[i]);
        text_add(out, "]}\n");
        return;
    }
    text_printf(out, "distribution: %s, min: ", parameter_kinds[p->kind]);
    text_add_double(out, p->min);
    text_add(out, ", max: ");
    text_add_double(out, p->max);
    if (p->step > 0) text_add(out, ", step: ");
    if (p->step > 0) text_add_double(out, p->step);
    text_add(out, "}\n");
}

static void write_trial(const char *const *words, struct text *out) {
    text_add(out, "  - {");
    for (size_t i = 0; words[i]; i++) {
        const char *equals = strchr(words[i], '=');
        text_printf(out, "%s%.*s: %s", i ? ", " : "", (int)(equals - words[i]), words[i], equals + 1);
    }
    text_add(out, "}\n");
}

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
    if (sweep->space.count) text_add(out, "parameters:\n");
    for (size_t i = 0; i < sweep->space.count; i++) write_parameter(&sweep->space.items[i], out);
    if (sweep->list) text_add(out, "trials:\n");
    for (int64_t i = 0; sweep->list && i < sweep->trials; i++) write_trial(sweep->list[i], out);
}
