/* The file of a sweep: the schema of its fixed keys, the keys of the user's (`parameters`, the list of `trials`), its
 * checks, and the config of each of its trials. That is the file of the trials with KEY=VALUE words, as a user would
 * give them, so that the config itself checks every value. */
#include "sweep/sweep_config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/find_file.h"
#include "base/scoped.h"
#include "data/sampling/split.h"
#include "sweep/prune.h"

/* The rows of the schema of a sweep: every key but `parameters` and the list of `trials`. */

#define SWEEP_MAX_TRIALS 10000000

static const char *const methods[] = {"grid", "random", "tpe", "list", NULL};
static const char *const goals[] = {"auto", "minimize", "maximize", NULL};
static const char *const prunes[] = {"none", "asha", "median", "hyperband", NULL};

static const struct schema_row metric_rows[] = {
    SCHEMA_ROW(STRING, struct sweep_metric, name, .fallback = "val_loss",
               .doc = "A field of the epoch events of metrics.jsonl; the value of a run is that of its best epoch."),
    SCHEMA_ROW(CHOICE, struct sweep_metric, goal, .fallback = "auto", .choices = goals,
               .doc = "Which values are better; `auto`: as `mode: auto` of checkpoint.best."),
    {0},
};
static const struct schema metric_schema =
    SCHEMA("metric", struct sweep_metric, .rows = metric_rows, .shorthand = "name");

/* The name is that of the mapping. */
static const struct schema_row other_metric_rows[] = {
    SCHEMA_ROW(CHOICE, struct sweep_metric, goal, .fallback = "auto", .choices = goals,
               .doc = "Which values are better; `auto`: as that of metric, and minimize for parameters and seconds."),
    {0},
};
static const struct schema other_metric_schema =
    SCHEMA("other_metrics", struct sweep_metric, .rows = other_metric_rows, .shorthand = "goal");

static const struct schema_row repeat_rows[] = {
    SCHEMA_ROW(INT, struct sweep_repeat, seeds, .fallback = "null", .flags = SCHEMA_EXTENDS, .min = 1, .max = 10000,
               .doc = "Runs of a trial with other seeds: seed and sampler.seed of the config plus 0, 1, 2 ..."),
    SCHEMA_ROW(INT, struct sweep_repeat, folds, .fallback = "null", .min = 2, .max = 10000,
               .doc = "Runs of a trial over the folds of a cross-validation (dataset.split.folds and fold)."),
    {0},
};
static const struct schema repeat_schema = SCHEMA("repeat", struct sweep_repeat, .rows = repeat_rows);

static const struct schema_row prune_rows[] = {
    SCHEMA_ROW(CHOICE, struct prune_config, type, .fallback = "none", .choices = prunes,
               .doc = "`asha`: asynchronous successive halving; `median`: a run is stopped if its best value so far is "
                      "worse than the median of the complete runs at the same epoch; `hyperband`: asha with several "
                      "first rungs, each for a share of the trials."),
    SCHEMA_ROW(
        INT, struct prune_config, min_epochs, .fallback = "1", .min = 1, .max = INFINITY,
        .doc = "No run is stopped before this epoch; the first rung of asha, and of the first bracket of hyperband."),
    SCHEMA_ROW(INT, struct prune_config, max_epochs, .fallback = "null", .min = 1, .max = INFINITY,
               .doc = "hyperband: epochs of a complete run, which with the two other keys say how many brackets there "
                      "are; null: `train.epochs` of the config."),
    SCHEMA_ROW(REAL, struct prune_config, reduction_factor, .fallback = "3", .min = 1, .max = 1000,
               .excludes_min = true,
               .doc = "asha, hyperband: of the runs that have reached a rung the best 1 / reduction_factor continue to "
                      "the next, which is reduction_factor times as many epochs away."),
    SCHEMA_ROW(INT, struct prune_config, startup_trials, .fallback = "5", .min = 1, .max = INFINITY,
               .doc = "median: no run is stopped before this number of runs is complete."),
    {0},
};
static const struct schema prune_schema =
    SCHEMA("early_terminate", struct prune_config, .rows = prune_rows, .shorthand = "type");

static const struct schema_row budget_rows[] = {
    SCHEMA_ROW(REAL, struct sweep_budget, seconds, .fallback = "null", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "The sweep stops after this time; the same command continues it."),
    {0},
};
static const struct schema budget_schema =
    SCHEMA("budget", struct sweep_budget, .rows = budget_rows, .shorthand = "seconds");

static const char *const opponents[] = {"base", "second", NULL};
static const struct schema_row confirm_rows[] = {
    SCHEMA_ROW(INT, struct confirm_config, seeds, .fallback = "null", .flags = SCHEMA_EXTENDS, .min = 2, .max = 10000,
               .doc = "After the sweep the best trial is trained again with this number of seeds that no trial had, "
                      "and compared by paired tests; null: it is not."),
    SCHEMA_ROW(CHOICE, struct confirm_config, against, .fallback = "base", .choices = opponents,
               .flags = SCHEMA_EXTENDS,
               .doc = "With what: `base`, the config without parameters, or `second`, the second best trial."),
    {0},
};
static const struct schema confirm_schema =
    SCHEMA("confirm", struct confirm_config, .rows = confirm_rows, .shorthand = "seeds");

static const struct schema_row keep_rows[] = {
    SCHEMA_ROW(STRING, struct sweep_keep, runs, .fallback = "best 10",
               .doc =
                   "Trials whose run folders are kept: `best N`, `all` or `none`. The table has a row for every run."),
    {0},
};
static const struct schema keep_schema = SCHEMA("keep", struct sweep_keep, .rows = keep_rows, .shorthand = "runs");

#define SECTION(field_, schema_, flags_, doc_)                                                                         \
    {                                                                                                                  \
        .key = #field_, .type = SCHEMA_SECTION, .offset = offsetof(struct sweep_config, field_),                       \
        .section = &(schema_), .flags = (flags_), .doc = doc_                                                          \
    }

static const struct schema_row sweep_rows[] = {
    SCHEMA_ROW(STRING, struct sweep_config, config, .flags = SCHEMA_REQUIRED,
               .doc = "The config of the trials; a relative path is searched beside this file, too."),
    SCHEMA_ROW(STRING_LIST, struct sweep_config, overrides, .fallback = "[]",
               .doc = "KEY=VALUE words for the config of all trials, as on the command line: [train.epochs=5]. Words "
                      "of the command line follow them."),
    SCHEMA_ROW(CHOICE, struct sweep_config, method, .flags = SCHEMA_REQUIRED, .choices = methods,
               .doc = "`grid`: every combination; `random`: independent draws; `tpe`: Tree-structured Parzen "
                      "Estimator, draws near the best trials so far; `list`: the trials that `trials` lists."),
    SECTION(metric, metric_schema, 0, "The metric by which trials are compared."),
    SCHEMA_ROW(SECTION_MAP, struct sweep_config, other_metrics, .section = &other_metric_schema,
               .doc = "Up to 3 more metrics, by name, for a Pareto front: {val_accuracy: auto, parameters: minimize}. "
                      "Fields of the epoch events, of which a run has those of the best epoch of metric; `parameters`, "
                      "the number of weights; `seconds` of training."),
    SECTION(repeat, repeat_schema, 0, "Runs of each trial; its value is their mean."),
    SECTION(early_terminate, prune_schema, 0, "When a run with a bad metric is stopped early."),
    SCHEMA_ROW(
        INT, struct sweep_config, trials, .fallback = "null", .flags = SCHEMA_EXTENDS, .min = 1,
        .max = SWEEP_MAX_TRIALS,
        .doc =
            "Number of trials; null: all points of a grid. With method list: a list of mappings from keys to values."),
    SCHEMA_ROW(INT, struct sweep_config, nproc_per_trial, .fallback = "1", .min = 1, .max = 4096,
               .doc = "Processes of each run, which average gradients as those of ddptrain CONFIG --nproc N do; with "
                      "more than 1, new processes are started for each run."),
    SECTION(budget, budget_schema, SCHEMA_EXTENDS, "Limits of the sweep."),
    SCHEMA_ROW(INT, struct sweep_config, seed, .fallback = "0", .doc = "Seed of the draws of random and tpe."),
    SCHEMA_ROW(STRING_LIST, struct sweep_config, constraints, .fallback = "[]",
               .doc = "Formulas of parameters (docs/expressions.md) that hold in every trial: [width % heads == 0]. "
                      "One with a parameter that a trial does not have says nothing about it."),
    SECTION(confirm, confirm_schema, SCHEMA_EXTENDS, "A test of the best trial, so that the best of many is not luck."),
    SECTION(keep, keep_schema, SCHEMA_EXTENDS, "Which run folders are kept."),
    SCHEMA_ROW(BOOL, struct sweep_config, tensorboard, .fallback = "false", .flags = SCHEMA_EXTENDS,
               .doc = "Writes a TensorBoard event file for each run into the folder tensorboard, with its parameters "
                      "and its value, for TensorBoard's HParams."),
    {0},
};

/* Those of `parameters` and of an entry of the list of `trials`. */
static bool has_path_keys(char *const *steps, size_t count) {
    return (count == 1 && strcmp(steps[0], "parameters") == 0) || (count == 2 && strcmp(steps[0], "trials") == 0);
}

const struct schema sweep_schema =
    SCHEMA("sweep", struct sweep_config, .rows = sweep_rows, .has_path_keys = has_path_keys);

const char *sweep_method_name(enum sweep_method method) { return methods[method]; }

const char *sweep_goal_name(enum sweep_goal goal) { return goals[goal]; }

const struct sweep_metric *sweep_other_metric(const struct sweep_config *sweep, size_t index) {
    return (const struct sweep_metric *)sweep->other_metrics.items + index;
}

/* Not of epochs. */
static bool is_cost(const char *metric) {
    return strcmp(metric, SWEEP_PARAMETERS) == 0 || strcmp(metric, SWEEP_SECONDS) == 0;
}

/* ---- the keys of the user's ---- */

/* The values of a sweep that have keys of the user's: `parameters`, and with method: list the mappings of `trials`. */

/* Of an entry of `parameters` that is not `values`. */
struct distribution {
    int kind;
    double min, max, step;
};
static const struct schema_row distribution_rows[] = {
    SCHEMA_KEY(CHOICE, "distribution", struct distribution, kind, .flags = SCHEMA_REQUIRED, .choices = parameter_kinds,
               .doc = "how values are drawn"),
    SCHEMA_ROW(REAL, struct distribution, min, .flags = SCHEMA_REQUIRED, .doc = "the smallest value"),
    SCHEMA_ROW(REAL, struct distribution, max, .flags = SCHEMA_REQUIRED, .doc = "the largest value"),
    SCHEMA_ROW(REAL, struct distribution, step, .fallback = "0", .min = 0, .max = INFINITY),
    {0},
};
static const struct schema distribution_schema = SCHEMA("parameter", struct distribution, .rows = distribution_rows);

/* ---- the keys of the user's: reading ---- */

static const char *text_of(const struct node *node, struct arena *arena) {
    SCOPED_TEXT text = {0};
    node_write(node, &text);
    return arena_copy(arena, text_string(&text));
}

/* Of the items of a sequence, else of [node]; NULL-terminated. */
static const char **texts_of(const struct node *node, struct arena *arena, size_t *count) {
    *count = node->kind == NODE_SEQUENCE ? node->count : 1;
    const char **texts = arena_alloc(arena, (*count + 1) * sizeof *texts);
    for (size_t i = 0; i < *count; i++) texts[i] = text_of(node->kind == NODE_SEQUENCE ? node->items[i] : node, arena);
    return texts;
}

static void read_values(const struct node *values, const char *path, struct arena *arena, struct problems *problems,
                        struct parameter *p) {
    p->kind = PARAMETER_VALUES;
    p->texts = texts_of(values, arena, &p->count);
    if (p->count == 0) problems_add(problems, values->place, path, "the list of values is empty");
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

/* ---- the keys of the user's: conditions, several keys, constraints ---- */

/* [node] without the keys [left_out] (NULL-terminated). */
static const struct node *without_keys(const struct node *node, const char *const *left_out, struct arena *arena) {
    struct node *copy = arena_alloc(arena, sizeof *copy);
    *copy = *node;
    copy->items = arena_alloc(arena, (node->count + 1) * sizeof *copy->items);
    copy->keys = arena_alloc(arena, (node->count + 1) * sizeof *copy->keys);
    copy->key_places = arena_alloc(arena, (node->count + 1) * sizeof *copy->key_places);
    copy->count = 0;
    for (size_t i = 0; i < node->count; i++) {
        size_t k = 0;
        while (left_out[k] && strcmp(left_out[k], node->keys[i]) != 0) k++;
        if (left_out[k]) continue;
        copy->items[copy->count] = node->items[i];
        copy->keys[copy->count] = node->keys[i];
        copy->key_places[copy->count++] = node->key_places[i];
    }
    return copy;
}

static void read_keys(const struct node *keys, const char *path, struct arena *arena, struct problems *problems,
                      struct parameter *p) {
    size_t count;
    if (!keys) return;
    if (keys->kind != NODE_SEQUENCE || keys->count == 0)
        problems_add(problems, keys->place, path, "keys must be a list of keys of the config that get the same value");
    else
        p->keys = texts_of(keys, arena, &count);
}

static bool has_any_real(const struct parameter *p) {
    return p->kind != PARAMETER_VALUES && !parameter_is_int(p) && parameter_step(p) <= 0;
}

static bool is_on_step(const struct parameter *p, double value) {
    return p->kind == PARAMETER_VALUES || fabs(parameter_round(p, value) - value) <= 0;
}

/* [before]: the parameters before this one (count), which its conditions may name. */
static void read_conditions(const struct node *when, const char *path, const struct parameter *before, size_t count,
                            struct arena *arena, struct problems *problems, struct parameter *p) {
    if (!when) return;
    if (when->kind != NODE_MAPPING || when->count == 0) {
        problems_add(problems, when->place, path, "when must be a mapping such as {optimizer.type: sgd}");
        return;
    }
    p->conditions = arena_alloc(arena, when->count * sizeof *p->conditions);
    for (size_t i = 0; i < when->count; i++) {
        struct condition c = {0};
        double value;
        while (c.parameter < count && strcmp(before[c.parameter].path, when->keys[i]) != 0) c.parameter++;
        if (c.parameter == count) {
            problems_add(problems, when->key_places[i], path, "when: '%s' is not one of the parameters before this one",
                         when->keys[i]);
            continue;
        }
        const struct parameter *other = &before[c.parameter];
        c.texts = texts_of(when->items[i], arena, &c.count);
        if (c.count == 0)
            problems_add(problems, when->items[i]->place, path, "when: the list of values of '%s' is empty",
                         when->keys[i]);
        if (has_any_real(other)) {
            problems_add(problems, when->items[i]->place, path,
                         "when: '%s' is any real number of its range; when needs values that it has: a list, whole "
                         "numbers or a step",
                         when->keys[i]);
            continue;
        }
        for (size_t k = 0; k < c.count; k++)
            if (!parameter_read(other, c.texts[k], &value) || !is_on_step(other, value))
                problems_add(problems, when->items[i]->place, path, "when: '%s' never is %s", when->keys[i],
                             c.texts[k]);
        p->conditions[p->condition_count++] = c;
    }
}

/* A dotted path is a name in backquotes for the expression. */
static const char *quote_paths(const char *text, struct arena *arena) {
    SCOPED_TEXT out = {0};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char others[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789.";
    while (*text) {
        size_t quoted = *text == '`' ? strcspn(text + 1, "`") + 1 : 0, number = strspn(text, "0123456789.");
        size_t plain = quoted ? quoted + (text[quoted] == '`') : number ? number : strcspn(text, letters);
        if (number && strchr("eE", text[number])) plain++;
        text_add_bytes(&out, text, plain > 0 ? plain : 0);
        text += plain;
        size_t name = plain ? 0 : strspn(text, others);
        bool is_path = name && memchr(text, '.', name);
        if (is_path) text_add(&out, "`");
        text_add_bytes(&out, text, name);
        if (is_path) text_add(&out, "`");
        text += name;
    }
    return arena_copy(arena, text_string(&out));
}

static bool has_numbers(const struct parameter *p) {
    double value;
    char *end;
    for (size_t i = 0; p->kind == PARAMETER_VALUES && i < p->count; i++) {
        value = strtod(p->texts[i], &end);
        if (end == p->texts[i] || *end || !isfinite(value)) return false;
    }
    return true;
}

static void read_constraint(struct space *space, const char *text, const struct node *node, struct arena *arena,
                            struct problems *problems) {
    const char *names[SPACE_MAX_PARAMETERS + 1] = {NULL};
    struct expression *e = arena_alloc(arena, sizeof *e);
    size_t at;
    for (size_t i = 0; i < space->count; i++) names[i] = space->items[i].path;
    struct expression_options options = {.names = names, .is_of_numbers = true};
    status s = expression_parse(quote_paths(text, arena), &options, e, &at, NULL);
    if (s) problems_add(problems, node->place, "constraints", "'%s': %s", text, status_message(s));
    for (size_t i = 0; !s && i < space->count; i++)
        if (expression_uses(e, i) && !has_numbers(&space->items[i]))
            problems_add(problems, node->place, "constraints", "'%s': values of %s are no numbers", text, names[i]);
    if (!s) space->constraints[space->constraint_count++] = e;
    status_free(s);
}

static void read_constraints(struct sweep_config *sweep, const struct node *root, struct arena *arena,
                             struct problems *problems) {
    const struct node *node = node_get(root, "constraints");
    size_t count = sweep->constraints.count;
    if (!node || !count) return;
    if (sweep->method == SWEEP_LIST) {
        problems_add(problems, node->place, "constraints", "method list has no parameters; leave constraints out");
        return;
    }
    sweep->space.constraints = arena_alloc(arena, count * sizeof *sweep->space.constraints);
    for (size_t i = 0; i < count; i++)
        read_constraint(&sweep->space, sweep->constraints.items[i], node, arena, problems);
}

#define CONSTRAINT_DRAWS 10000

/* Constraints that random points do not satisfy, alone or together. */
static void check_constraints(const struct sweep_config *sweep, const struct node *root, struct problems *problems) {
    const struct node *node = node_get(root, "constraints");
    struct space all = sweep->space;
    size_t satisfied = 0, before = problems->count;
    if (!all.constraint_count || sweep->method == SWEEP_GRID) return;
    for (size_t i = 0; i <= sweep->space.constraint_count; i++) {
        struct rng rng;
        bool is_last = i == sweep->space.constraint_count;
        sweep_rng(sweep, -1, &rng);
        all.constraint_count = 0;
        satisfied = 0;
        for (int n = 0; n < CONSTRAINT_DRAWS && !satisfied; n++) {
            struct point point;
            space_draw(&all, &rng, &point);
            satisfied += is_last ? space_is_allowed(&sweep->space, &point) : space_satisfies(&sweep->space, i, &point);
        }
        if (satisfied || (is_last && problems->count > before)) continue;
        problems_add(problems, node->place, "constraints", "none of %d random trials satisfies %s%s%s",
                     CONSTRAINT_DRAWS, is_last ? "all constraints" : "'", is_last ? "" : sweep->constraints.items[i],
                     is_last ? "" : "'");
    }
}

static void read_parameter(const struct node *node, const struct parameter *earlier, size_t count, struct arena *arena,
                           struct problems *problems, struct parameter *p) {
    static const char *const others[] = {"when", "keys", NULL};
    const char *path = arena_printf(arena, "parameters.%s", p->path);
    if (node->kind == NODE_MAPPING) {
        read_keys(node_get(node, "keys"), path, arena, problems, p);
        read_conditions(node_get(node, "when"), path, earlier, count, arena, problems, p);
        node = without_keys(node, others, arena);
    }
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

/* Reads `parameters` into sweep->space, or the list of `trials` into sweep->list and sweep->trials, with memory of
 * [arena]. Adds each problem with its place. */
static void sweep_read_parameters(const struct node *node, struct sweep_config *sweep, struct arena *arena,
                                  struct problems *problems) {
    if (node->kind != NODE_MAPPING || node->count == 0 || node->count > SPACE_MAX_PARAMETERS) {
        problems_add(problems, node->place, "parameters", "expected a mapping of 1 to %d keys of the config",
                     SPACE_MAX_PARAMETERS);
        return;
    }
    sweep->space.items = arena_alloc(arena, node->count * sizeof *sweep->space.items);
    sweep->space.count = node->count;
    for (size_t i = 0; i < node->count; i++) {
        sweep->space.items[i] = (struct parameter){.path = node->keys[i]};
        read_parameter(node->items[i], sweep->space.items, i, arena, problems, &sweep->space.items[i]);
    }
}

static void sweep_read_list(const struct node *list, struct sweep_config *sweep, struct arena *arena,
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

/* ---- the keys of the user's: writing ---- */

static void write_texts(const char *const *texts, size_t count, struct text *out) {
    text_add(out, "[");
    for (size_t i = 0; i < count; i++) text_printf(out, "%s%s", i ? ", " : "", texts[i]);
    text_add(out, "]");
}

static void write_distribution(const struct parameter *p, struct text *out) {
    text_printf(out, "distribution: %s, min: ", parameter_kinds[p->kind]);
    text_add_double(out, p->min);
    text_add(out, ", max: ");
    text_add_double(out, p->max);
    if (p->step > 0) text_add(out, ", step: ");
    if (p->step > 0) text_add_double(out, p->step);
}

static void write_parameter(const struct space *space, const struct parameter *p, struct text *out) {
    size_t keys = 0;
    text_printf(out, "  %s: {", p->path);
    if (p->kind == PARAMETER_VALUES) text_add(out, "values: ");
    if (p->kind == PARAMETER_VALUES)
        write_texts(p->texts, p->count, out);
    else
        write_distribution(p, out);
    while (p->keys && p->keys[keys]) keys++;
    if (keys) text_add(out, ", keys: ");
    if (keys) write_texts(p->keys, keys, out);
    for (size_t i = 0; i < p->condition_count; i++) {
        text_printf(out, "%s%s: ", i ? ", " : ", when: {", space->items[p->conditions[i].parameter].path);
        write_texts(p->conditions[i].texts, p->conditions[i].count, out);
    }
    text_add(out, p->condition_count ? "}}\n" : "}\n");
}

static void write_trial(const char *const *words, struct text *out) {
    text_add(out, "  - {");
    for (size_t i = 0; words[i]; i++) {
        const char *equals = strchr(words[i], '=');
        text_printf(out, "%s%.*s: %s", i ? ", " : "", (int)(equals - words[i]), words[i], equals + 1);
    }
    text_add(out, "}\n");
}

/* Add them as YAML; nothing where there are none. */
static void sweep_write_parameters(const struct sweep_config *sweep, struct text *out) {
    if (sweep->space.count) text_add(out, "parameters:\n");
    for (size_t i = 0; i < sweep->space.count; i++) write_parameter(&sweep->space, &sweep->space.items[i], out);
}

static void sweep_write_list(const struct sweep_config *sweep, struct text *out) {
    if (sweep->list) text_add(out, "trials:\n");
    for (int64_t i = 0; sweep->list && i < sweep->trials; i++) write_trial(sweep->list[i], out);
}

/* ---- the config of a trial ---- */

/* A trial's config is the file of the trials with KEY=VALUE words, as a user would give them. */

int64_t sweep_seed_of(const struct sweep_config *sweep, int64_t repeat) {
    return sweep->repeat.seeds == SCHEMA_NO_INT ? -1 : repeat / sweep->folds;
}

int64_t sweep_fold_of(const struct sweep_config *sweep, int64_t repeat) {
    return sweep->repeat.folds == SCHEMA_NO_INT ? -1 : repeat % sweep->folds;
}

void sweep_add_test_name(const struct sweep_config *sweep, struct text *out) {
    const char *name = sweep->metric.name;
    if (strncmp(name, "val_", strlen("val_")) == 0) text_printf(out, "test_%s", name + strlen("val_"));
}

struct sweep_config sweep_with_other_seeds(const struct sweep_config *sweep) {
    struct sweep_config other = *sweep;
    other.repeat.seeds = sweep->repeat.seeds == SCHEMA_NO_INT ? 1 : SCHEMA_NO_INT;
    other.runs = sweep->folds;
    return other;
}

/* splitmix64, so that neighbouring numbers and seeds give unrelated generators. */
void sweep_rng(const struct sweep_config *sweep, int64_t trial, struct rng *rng) {
    uint64_t z = (uint64_t)sweep->seed * 0x9e3779b97f4a7c15u + (uint64_t)trial + 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    rng_seed(rng, z ^ (z >> 31));
}

void sweep_point(const struct sweep_config *sweep, int64_t trial, struct point *out) {
    struct rng rng;
    if (sweep->method == SWEEP_GRID) {
        space_grid_point(&sweep->space, (uint64_t)trial, out);
        return;
    }
    sweep_rng(sweep, trial, &rng);
    space_draw(&sweep->space, &rng, out);
}

/* KEY=VALUE words, in the order in which they are applied. */
struct words {
    char **items;
    size_t count, capacity;
    struct arena *arena;
};

static void add_word(struct words *words, const char *word) {
    if (words->count == words->capacity) {
        char **items = arena_alloc(words->arena, (2 * words->capacity + 16) * sizeof *items);
        if (words->count) memcpy(items, words->items, words->count * sizeof *items);
        words->items = items;
        words->capacity = 2 * words->capacity + 16;
    }
    words->items[words->count++] = arena_copy(words->arena, word);
}

static void add_point(const struct sweep_config *sweep, int64_t trial, const struct point *point, struct words *words) {
    for (size_t i = 0; sweep->list && sweep->list[trial][i]; i++) add_word(words, sweep->list[trial][i]);
    for (size_t i = 0; i < sweep->space.count; i++) {
        const struct parameter *p = &sweep->space.items[i];
        const char *own[] = {p->path, NULL};
        bool is_active = space_is_active(&sweep->space, i, point);
        for (const char **key = p->keys ? p->keys : own; is_active && *key; key++) {
            SCOPED_TEXT word = {0};
            text_printf(&word, "%s=", *key);
            parameter_write(p, point->values[i], &word);
            add_word(words, text_string(&word));
        }
    }
}

static void add_metric(const struct sweep_config *sweep, struct words *words) {
    add_word(words, arena_printf(words->arena, "checkpoint.best={metric: %s, mode: %s}", sweep->metric.name,
                                 sweep->metric.goal == SWEEP_MAXIMIZE ? "max" : "min"));
}

static status add_seed(const struct config *config, int64_t seed, struct words *words) {
    if (seed <= 0) return OK;
    if (config->seed > INT64_MAX - seed || config->sampler.seed > INT64_MAX - seed)
        return status_usage("repeat.seeds: seed %" PRId64 " or sampler.seed %" PRId64 " plus %" PRId64
                            " is above the largest seed; choose a smaller one",
                            config->seed, config->sampler.seed, seed);
    add_word(words, arena_printf(words->arena, "seed=%" PRId64, config->seed + seed));
    add_word(words, arena_printf(words->arena, "sampler.seed=%" PRId64, config->sampler.seed + seed));
    return OK;
}

/* In place of the config's own split, of which what says how rows are drawn stays. */
static void add_fold(const struct sweep_config *sweep, const struct config *config, int64_t fold, struct words *words) {
    const struct split_config *split = &config->dataset.split;
    SCOPED_TEXT word = {0};
    if (fold < 0) return;
    text_printf(&word,
                "dataset.split={folds: %" PRId64 ", fold: %" PRId64 ", seed: %" PRId64
                ", shuffle: %s, stratify: %s, time_series: %s, group: ",
                sweep->folds, fold, split->seed, split->shuffle ? "true" : "false", split->stratify ? "true" : "false",
                split->time_series ? "true" : "false");
    if (split->group)
        text_add_json(&word, split->group);
    else
        text_add(&word, "null");
    if (split_has_test(split)) text_printf(&word, ", test: %.17g", split->test);
    text_add(&word, "}");
    add_word(words, text_string(&word));
}

static status load(const struct sweep_config *sweep, int64_t trial, const struct words *words,
                   struct config_file **out) {
    struct config_source *source = trial == 1 && sweep->other ? sweep->other_source : sweep->source;
    return config_source_load(source, words->items, words->count, out);
}

/* Adds the seeds and the fold, which depend on what the config has. */
static status add_repeat(const struct sweep_config *sweep, int64_t trial, int64_t repeat, struct words *words) {
    int64_t seed = sweep_seed_of(sweep, repeat), fold = sweep_fold_of(sweep, repeat);
    SCOPED_CONFIG file = NULL;
    if (seed <= 0 && fold < 0) return OK;
    TRY(load(sweep, trial, words, &file));
    status s = add_seed(config_of(file), seed, words);
    add_fold(sweep, config_of(file), fold, words);
    return s;
}

/* A run folder is the sweep's, whose next start continues what is in it: resume: never becomes auto. *out: the config
 * so far, which is loaded again. */
static status allow_resume(const struct sweep_config *sweep, int64_t trial, struct words *words,
                           struct config_file **out) {
    if (strcmp(config_of(*out)->checkpoint.resume, "never") != 0) return OK;
    config_free(*out);
    add_word(words, "checkpoint.resume=auto");
    return load(sweep, trial, words, out);
}

/* The config of trial [trial] with the metric and the first fold, but without values of parameters. */
static status sweep_fixed_config(const struct sweep_config *sweep, int64_t trial, struct config_file **out) {
    return sweep_trial_config(sweep, trial, NULL, 0, out);
}

status sweep_trial_config(const struct sweep_config *sweep, int64_t trial, const struct point *point, int64_t repeat,
                          struct config_file **out) {
    struct words words = {.arena = arena_create()};
    for (size_t i = 0; i < sweep->overrides.count; i++) add_word(&words, sweep->overrides.items[i]);
    if (point) add_point(sweep, trial, point, &words);
    bool has_fold = sweep_fold_of(sweep, repeat) >= 0; /* without it the config may have no validation rows */
    if (!has_fold) add_metric(sweep, &words);          /* so that configs with other seeds differ in these alone */
    status s = add_repeat(sweep, trial, repeat, &words);
    if (has_fold) add_metric(sweep, &words);
    if (!s) s = load(sweep, trial, &words, out);
    if (!s) s = allow_resume(sweep, trial, &words, out);
    arena_destroy(words.arena);
    return s;
}

/* ---- checks with the config of the trials ---- */

/* A value is right if the config of the trials takes it, with the values of the other parameters that it may have. */

#define CONTEXTS 64 /* random points in which a value is tried that the first ones refuse */

/* Whether the config takes value [value] of parameter [index] in one of several points; else the first reason. */
static status try_value(const struct sweep_config *sweep, size_t index, double value) {
    status first = OK;
    struct rng rng;
    sweep_rng(sweep, -1, &rng);
    for (int i = 0; i < CONTEXTS; i++) {
        struct point point = {0};
        SCOPED_CONFIG config = NULL;
        if (i > 0) space_draw(&sweep->space, &rng, &point);
        for (size_t k = 0; i == 0 && k < sweep->space.count; k++)
            if (sweep->space.items[k].kind != PARAMETER_VALUES) point.values[k] = sweep->space.items[k].min;
        space_activate(&sweep->space, index, &point);
        point.values[index] = value;
        status s = sweep_trial_config(sweep, 0, &point, 0, &config);
        if (!s) {
            status_free(first);
            return OK;
        }
        first = status_first(first, s);
    }
    return first;
}

/* The first line of a failure that is about the argument [path]=..., without the argument; NULL: there is none. */
static const char *own_refusal(status failure, const char *path) {
    size_t length = strlen(path);
    for (const char *line = status_message(failure); line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *colon = strstr(line, "': ");
        if (strncmp(line, "argument '", 10) == 0 && colon && strncmp(line + 10, path, length) == 0 &&
            line[10 + length] == '=')
            return colon + 3;
    }
    return NULL;
}

static const char *refusal(status failure, const char *path) {
    const char *own = own_refusal(failure, path);
    return own ? own : status_message(failure);
}

static void add_refusal(struct problems *problems, struct place place, const char *path, status failure) {
    const char *line = refusal(failure, path);
    problems_add(problems, place, NULL, "%.*s", (int)strcspn(line, "\n"), line);
}

#define BEST "checkpoint.best"
#define SPLIT "dataset.split."

/* A run without a value before its end cannot be stopped early. */
static void check_pruning(const struct sweep_config *sweep, const struct config *config, const struct node *root,
                          struct problems *problems) {
    const struct node *rule = node_get(root, "early_terminate");
    if (sweep->early_terminate.type != PRUNE_NONE && config->train.evaluate_every == 0 &&
        dataset_has_validation(&config->dataset))
        problems_add(problems, rule ? rule->place : root->place, "early_terminate",
                     "nothing is evaluated before the last epoch (train.evaluate_every: 0)");
}

/* Whether epochs have sweep->metric, that of [key]: the config's own check says what they have. */
static void check_metric(const struct sweep_config *sweep, const struct node *root, const char *key,
                         struct problems *problems) {
    const struct node *node = node_get(root, key);
    SCOPED_CONFIG config = NULL;
    status s = sweep_fixed_config(sweep, 0, &config);
    const char *line = s ? refusal(s, BEST) : "";
    if (strncmp(line, BEST ": ", strlen(BEST ": ")) == 0) line += strlen(BEST ": ");
    if (s) problems_add(problems, node ? node->place : root->place, key, "%.*s", (int)strcspn(line, "\n"), line);
    if (!s) check_pruning(sweep, config_of(config), root, problems);
    status_free(s);
}

static void check_other_metrics(const struct sweep_config *sweep, const struct node *root, struct problems *problems) {
    for (size_t i = 0; i < sweep->other_metrics.count; i++) {
        struct sweep_config one = *sweep;
        one.metric = *sweep_other_metric(sweep, i);
        if (!is_cost(one.metric.name)) check_metric(&one, root, "other_metrics", problems);
    }
}

static bool is_key(const char *word, const char *key) {
    return strcspn(word, "=") == strlen(key) && strncmp(word, key, strlen(key)) == 0;
}

/* Whether folds replace [key], that of a split: test, too, unless its rows are those of a test at the end of the run.
 */
static bool is_replaced_by_folds(const struct sweep_config *sweep, const char *key) {
    struct config_file *config = NULL;
    if (is_key(key, SPLIT "validation") || is_key(key, SPLIT "train")) return true;
    if (!is_key(key, SPLIT "test")) return strncmp(key, SPLIT "fold", strlen(SPLIT "fold")) == 0;
    status s = sweep_fixed_config(sweep, 0, &config);
    bool has_test = !s && split_has_test(&config_of(config)->dataset.split);
    status_free(s); /* another check reports it */
    config_free(config);
    return !has_test;
}

/* Keys that the sweep sets itself in every run: a parameter of the same would be in the table without effect. */
static void check_is_free(const struct sweep_config *sweep, const char *key, struct place place,
                          struct problems *problems) {
    size_t length = strcspn(key, "=");
    if (strncmp(key, BEST, strlen(BEST)) == 0)
        problems_add(problems, place, NULL, "%.*s: the sweep sets it to its metric; use the key metric", (int)length,
                     key);
    if ((is_key(key, "seed") || is_key(key, "sampler.seed")) && sweep->confirm.seeds != SCHEMA_NO_INT)
        problems_add(problems, place, NULL, "%.*s: confirm sets it; leave one of the two out", (int)length, key);
    if (sweep->repeat.folds != SCHEMA_NO_INT && is_replaced_by_folds(sweep, key))
        problems_add(problems, place, NULL, "%.*s: repeat.folds sets it; leave one of the two out", (int)length, key);
}

/* The first reason against a value of parameter [index]. */
static status try_values(const struct sweep_config *sweep, size_t index) {
    const struct parameter *p = &sweep->space.items[index];
    bool is_listed = p->kind == PARAMETER_VALUES;
    const double ends[] = {p->min, parameter_round(p, p->max)};
    size_t count = is_listed ? p->count : 2;
    status s = OK;
    for (size_t k = 0; !s && k < count; k++) s = try_value(sweep, index, is_listed ? (double)k : ends[k]);
    return s;
}

/* The parameters (bits) on which it depends that parameter [index] exists, and itself. */
static uint64_t ancestors(const struct space *space, size_t index) {
    uint64_t out = (uint64_t)1 << index;
    for (size_t i = index + 1; i-- > 0;)
        for (size_t k = 0; (out >> i & 1) && k < space->items[i].condition_count; k++)
            out |= (uint64_t)1 << space->items[i].conditions[k].parameter;
    return out;
}

static bool are_disjoint(const struct condition *a, const struct condition *b) {
    if (a->parameter != b->parameter) return false;
    for (size_t i = 0; i < a->count; i++)
        for (size_t k = 0; k < b->count; k++)
            if (parameter_is_same_text(a->texts[i], strlen(a->texts[i]), b->texts[k], strlen(b->texts[k])))
                return false;
    return true;
}

/* Whether a condition of one parameter and one of the other never hold in the same trial. */
static bool have_disjoint_conditions(const struct parameter *a, const struct parameter *b) {
    for (size_t i = 0; i < a->condition_count; i++)
        for (size_t k = 0; k < b->condition_count; k++)
            if (are_disjoint(&a->conditions[i], &b->conditions[k])) return true;
    return false;
}

/* Whether no trial has both parameters, by their conditions. */
static bool are_exclusive(const struct space *space, size_t first, size_t second) {
    uint64_t of_first = ancestors(space, first), of_second = ancestors(space, second);
    for (size_t i = 0; i < space->count; i++)
        for (size_t k = 0; (of_first >> i & 1) && k < space->count; k++)
            if ((of_second >> k & 1) && have_disjoint_conditions(&space->items[i], &space->items[k])) return true;
    return false;
}

/* A key of [p] that is [key] or in its section; NULL: none. A later word for a section replaces it as a whole. */
static const char *key_within(const struct parameter *p, const char *key) {
    const char *own[] = {p->path, NULL};
    size_t length = strlen(key);
    for (const char **it = p->keys ? p->keys : own; *it; it++)
        if (strncmp(*it, key, length) == 0 && ((*it)[length] == 0 || (*it)[length] == '.')) return *it;
    return NULL;
}

/* Two parameters that set a key in the same trial: the first one would be in the table without effect. */
static void check_keys_once(const struct sweep_config *sweep, struct problems *problems) {
    const struct space *space = &sweep->space;
    for (size_t i = 0; i < space->count; i++) {
        const struct parameter *p = &space->items[i];
        const char *own[] = {p->path, NULL};
        for (const char **key = p->keys ? p->keys : own; *key; key++)
            for (size_t k = 0; k < i; k++) {
                const char *twice = key_within(&space->items[k], *key);
                if (!twice || are_exclusive(space, k, i)) continue;
                problems_add(problems, p->place, NULL,
                             "parameters.%s sets %s, which parameters.%s before it sets in the same trials; leave one "
                             "of the two out, or give them different 'when'",
                             p->path, twice, space->items[k].path);
                break;
            }
    }
}

/* The tables have a column of the name of each parameter, which [keys] makes free. */
static void check_name(const struct sweep_config *sweep, const struct parameter *p, struct problems *problems) {
    SCOPED_TEXT test = {0};
    sweep_add_test_name(sweep, &test);
    const char *const columns[] = {"trial",
                                   "state",
                                   "best_epoch",
                                   "epochs",
                                   "state_sha256",
                                   "message",
                                   "standard_error",
                                   "runs",
                                   "pareto_front",
                                   sweep->metric.name,
                                   text_string(&test),
                                   sweep->repeat.seeds != SCHEMA_NO_INT ? "seed" : "",
                                   sweep->repeat.folds != SCHEMA_NO_INT ? "fold" : ""};
    bool is_taken = false;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        is_taken = is_taken || strcmp(p->path, columns[i]) == 0;
    for (size_t i = 0; i < sweep->other_metrics.count; i++)
        is_taken = is_taken || strcmp(p->path, sweep_other_metric(sweep, i)->name) == 0;
    bool is_seed = !p->keys && sweep->repeat.seeds != SCHEMA_NO_INT && strcmp(p->path, "seed") == 0;
    if (is_seed)
        problems_add(problems, p->place, NULL,
                     "parameters.seed: with repeat.seeds the tables have another column of this name; write it under "
                     "another one, with keys: [seed]");
    if (p->keys && is_taken)
        problems_add(problems, p->place, NULL,
                     "parameters.%s: the tables have another column of this name; choose another one", p->path);
}

static const char *first_key(const struct parameter *p) { return p->keys ? p->keys[0] : p->path; }

/* A parameter that the config never takes is the reason against every value of the others, too: it is reported once. */
static void check_values(const struct sweep_config *sweep, struct problems *problems) {
    status failures[SPACE_MAX_PARAMETERS];
    bool is_explained = false;
    check_keys_once(sweep, problems);
    for (size_t i = 0; i < sweep->space.count; i++) {
        const struct parameter *p = &sweep->space.items[i];
        const char *own[] = {p->path, NULL};
        for (const char **key = p->keys ? p->keys : own; *key; key++) check_is_free(sweep, *key, p->place, problems);
        check_name(sweep, p, problems);
        failures[i] = try_values(sweep, i);
        if (!failures[i] || !own_refusal(failures[i], first_key(p))) continue;
        add_refusal(problems, p->place, first_key(p), failures[i]);
        is_explained = true;
    }
    for (size_t i = 0; i < sweep->space.count; i++) {
        const struct parameter *p = &sweep->space.items[i];
        if (failures[i] && !is_explained) add_refusal(problems, p->place, first_key(p), failures[i]);
        status_free(failures[i]);
    }
}

/* A trial of a list: each of its words alone. */
static void check_list(const struct sweep_config *sweep, const struct node *list, struct problems *problems) {
    for (int64_t i = 0; sweep->list && i < sweep->trials; i++) {
        SCOPED_CONFIG config = NULL;
        const struct point none = {0};
        status s = sweep_trial_config(sweep, i, &none, 0, &config);
        const char *word = sweep->list[i][0] ? sweep->list[i][0] : "";
        SCOPED_STRING key = text_format("%.*s", (int)strcspn(word, "="), word);
        if (s) add_refusal(problems, list->items[i]->place, key, s);
        for (size_t k = 0; sweep->list[i][k]; k++)
            check_is_free(sweep, sweep->list[i][k], list->items[i]->place, problems);
        status_free(s);
    }
}

/* hyperband's max_epochs is that of the config where it is not given. */
static void set_brackets(struct sweep_config *sweep, const struct config *config, const struct node *root,
                         struct problems *problems) {
    static const char key[] = "early_terminate.max_epochs";
    struct prune_config *rule = &sweep->early_terminate;
    if (rule->type != PRUNE_HYPERBAND) return;
    struct place place = node_get(root, "early_terminate")->place;
    if (rule->max_epochs == SCHEMA_NO_INT) rule->max_epochs = config->train.epochs;
    if (rule->max_epochs == SCHEMA_NO_INT) {
        problems_add(problems, place, key, "missing: hyperband needs it, since the config has no train.epochs");
        return;
    }
    int64_t brackets = hyperband_brackets(rule);
    if (brackets == 1)
        problems_add(problems, place, key,
                     "hyperband needs at least min_epochs times reduction_factor, %g epochs, got %" PRId64,
                     (double)rule->min_epochs * rule->reduction_factor, rule->max_epochs);
    if (brackets > HYPERBAND_MAX_BRACKETS)
        problems_add(problems, place, "early_terminate.reduction_factor",
                     "hyperband would have %" PRId64 " brackets, more than %d; choose a larger one", brackets,
                     HYPERBAND_MAX_BRACKETS);
}

static void sweep_check(const struct sweep_config *sweep, const struct node *root, struct problems *problems) {
    check_metric(sweep, root, "metric", problems);
    if (!problems->count) check_other_metrics(sweep, root, problems);
    if (problems->count) return;
    check_values(sweep, problems);
    if (sweep->list) check_list(sweep, node_get(root, "trials"), problems);
}

struct sweep_file {
    struct document *document;
    struct config_file *base, *other; /* other NULL: there is none */
    struct sweep_config sweep;
};

/* ---- the file as a whole ---- */

/* [root] without the keys that the schema cannot bind. */
static const struct node *fixed_keys(const struct node *root, struct arena *arena) {
    const struct node *trials = node_get(root, "trials");
    bool has_list = trials && trials->kind == NODE_SEQUENCE;
    return without_keys(root, (const char *const[]){"parameters", has_list ? "trials" : NULL, NULL}, arena);
}

static void check_trials(struct sweep_config *sweep, const struct node *root, struct arena *arena,
                         struct problems *problems) {
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
    if (endless || size == 0 || size > SWEEP_MAX_TRIALS) return;
    space_list_grid(&sweep->space, size, arena);
    if (sweep->space.grid) size = sweep->space.grid_count;
    if (size == 0)
        problems_add(problems, node_get(root, "constraints")->place, "constraints",
                     "no point of the grid satisfies the constraints");
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

/* What follows one value goes with one metric only. */
static void set_other_metrics(struct sweep_config *sweep, const struct node *root, struct problems *problems) {
    struct sweep_metric *others = sweep->other_metrics.items;
    const struct {
        bool is_set;
        const char *key, *what;
    } single[] = {
        {sweep->early_terminate.type != PRUNE_NONE, "early_terminate", "runs are stopped early"},
        {sweep->confirm.seeds != SCHEMA_NO_INT, "confirm", "the best trial is tested"},
    };
    if (!sweep->other_metrics.count) return;
    struct place place = node_get(root, "other_metrics")->place;
    if (sweep->other_metrics.count > SWEEP_MAX_OTHER_METRICS)
        problems_add(problems, place, "other_metrics", "at most %d, got %zu", SWEEP_MAX_OTHER_METRICS,
                     sweep->other_metrics.count);
    for (size_t i = 0; i < sweep->other_metrics.count; i++) {
        if (strcmp(others[i].name, sweep->metric.name) == 0)
            problems_add(problems, place, "other_metrics", "%s is the metric already; name others", others[i].name);
        if (others[i].goal == SWEEP_AUTO)
            others[i].goal = is_cost(others[i].name) ? SWEEP_MINIMIZE : (int)sweep_goal_of(others[i].name);
    }
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (single[i].is_set)
            problems_add(problems, node_get(root, single[i].key)->place, single[i].key,
                         "%s by one metric; leave it or other_metrics out", single[i].what);
}

static void read_root(struct sweep_file *file, struct problems *problems) {
    struct sweep_config *sweep = &file->sweep;
    struct arena *arena = document_arena(file->document);
    const struct node *root = document_root(file->document);
    const struct node *trials = node_get(root, "trials"), *parameters = node_get(root, "parameters");
    schema_bind(&sweep_schema, fixed_keys(root, arena), "", &sweep_schema, sweep, arena, problems);
    if (problems->count) return;
    if (sweep->metric.goal == SWEEP_AUTO) sweep->metric.goal = (int)sweep_goal_of(sweep->metric.name);
    set_other_metrics(sweep, root, problems);
    check_method(sweep, root, problems);
    if (sweep->confirm.seeds != SCHEMA_NO_INT && sweep->metric.goal != (int)sweep_goal_of(sweep->metric.name))
        problems_add(problems, node_get(root, "confirm")->place, "confirm",
                     "a comparison knows only the usual goal of %s; leave metric.goal out", sweep->metric.name);
    if (parameters && sweep->method != SWEEP_LIST) sweep_read_parameters(parameters, sweep, arena, problems);
    if (trials && trials->kind == NODE_SEQUENCE) sweep_read_list(trials, sweep, arena, problems);
    if (problems->count) return;
    read_constraints(sweep, root, arena, problems);
    if (problems->count) return;
    check_constraints(sweep, root, problems);
    check_trials(sweep, root, arena, problems);
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
    set_brackets(sweep, config_of(file->base), document_root(file->document), problems);
    sweep_check(sweep, document_root(file->document), problems);
    return problems_status(problems, STATUS_USAGE);
}

status sweep_load(const char *path, char *const *overrides, size_t count, struct sweep_file **out) {
    SCOPED_PROBLEMS problems = {0};
    struct sweep_file *file = calloc(1, sizeof *file);
    *out = NULL;
    if (!file) return status_memory("the sweep");
    status s = document_read(path, &problems, &file->document);
    if (!s && !file->document) s = problems_status(&problems, STATUS_USAGE);
    if (!s) s = apply_overrides(file, overrides, count, &problems);
    if (!s) s = find_file(&file->sweep.config, path, document_arena(file->document));
    if (!s) s = check_with_config(file, &problems);
    if (s) sweep_free(file);
    if (!s) *out = file;
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

/* What the config refuses about the metric is about the option; no user wrote the key. */
static status refuse_metric(const char *path, status failure) {
    const char *line = own_refusal(failure, BEST);
    if (!line) return failure;
    if (strncmp(line, BEST ": ", strlen(BEST ": ")) == 0) line += strlen(BEST ": ");
    status s = status_usage("%s: --metric: %.*s", path, (int)strcspn(line, "\n"), line);
    status_free(failure);
    return s;
}

status sweep_load_comparison(const char *a, const char *b, char *const *overrides, size_t count, int64_t seeds,
                             int64_t processes, const char *metric, struct sweep_file **out) {
    static const char *const no_words[] = {NULL};
    static const char *const *const list[] = {no_words, no_words};
    struct sweep_file *file = calloc(1, sizeof *file);
    *out = NULL;
    if (!file) return status_memory("the comparison");
    file->sweep = (struct sweep_config){
        .config = a,
        .other = b,
        .method = SWEEP_LIST,
        .metric = {metric, (int)sweep_goal_of(metric)},
        .repeat = {.seeds = seeds, .folds = SCHEMA_NO_INT},
        .early_terminate = {.min_epochs = 1, .max_epochs = SCHEMA_NO_INT, .reduction_factor = 3, .startup_trials = 5},
        .confirm = {.seeds = SCHEMA_NO_INT},
        .nproc_per_trial = processes,
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
        SCOPED_CONFIG config = NULL;
        s = refuse_metric(trial ? b : a, sweep_fixed_config(&file->sweep, trial, &config));
    }
    if (s) sweep_free(file);
    if (!s) *out = file;
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
    SCOPED_TEXT keys = {0};
    schema_write_yaml(&sweep_schema, &fixed, &keys);
    const char *trials = sweep->list ? strstr(text_string(&keys), "trials: null\n") : NULL;
    if (trials) {
        text_add_bytes(out, keys.data, (size_t)(trials - keys.data));
        text_add(out, trials + strlen("trials: null\n"));
    } else {
        text_add(out, text_string(&keys));
    }
    if (sweep->other) text_printf(out, "# compared with %s\n", sweep->other);
    sweep_write_parameters(sweep, out);
    sweep_write_list(sweep, out);
}
