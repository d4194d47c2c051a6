/* A value is right if the config of the trials takes it, with the values of the other parameters that it may have. */
#include <stdlib.h>
#include <string.h>

#include "sweep/sweep_config_internal.h"

#define CONTEXTS 64 /* random points in which a value is tried that the first ones refuse */

/* Whether the config takes value [value] of parameter [index] in one of several points; else the first reason. */
static status try_value(const struct sweep_config *sweep, size_t index, double value) {
    status first = OK;
    struct rng rng;
    sweep_rng(sweep, -1, &rng);
    for (int i = 0; i < CONTEXTS; i++) {
        struct point point = {0};
        struct config_file *config = NULL;
        if (i > 0) space_draw(&sweep->space, &rng, &point);
        for (size_t k = 0; i == 0 && k < sweep->space.count; k++)
            if (sweep->space.items[k].kind != PARAMETER_VALUES) point.values[k] = sweep->space.items[k].min;
        point.values[index] = value;
        status s = sweep_trial_config(sweep, 0, &point, 0, &config);
        config_free(config);
        if (!s) {
            status_free(first);
            return OK;
        }
        if (first)
            status_free(s);
        else
            first = s;
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
#define FOLD "dataset.split.fold" /* also "folds" */

/* A run without a value before its end cannot be stopped early. */
static void check_pruning(const struct sweep_config *sweep, const struct config *config, const struct node *root,
                          struct problems *problems) {
    const struct node *rule = node_get(root, "early_terminate");
    if (sweep->early_terminate.type != PRUNE_NONE && config->train.evaluate_every == 0 &&
        dataset_has_validation(&config->dataset))
        problems_add(problems, rule ? rule->place : root->place, "early_terminate",
                     "nothing is evaluated before the last epoch (train.evaluate_every: 0)");
}

/* Whether epochs have the metric: the config's own check says what they have. */
static void check_metric(const struct sweep_config *sweep, const struct node *root, struct problems *problems) {
    const struct node *node = node_get(root, "metric");
    struct config_file *config = NULL;
    status s = sweep_fixed_config(sweep, 0, &config);
    const char *line = s ? refusal(s, BEST) : "";
    if (strncmp(line, BEST ": ", strlen(BEST ": ")) == 0) line += strlen(BEST ": ");
    if (s) problems_add(problems, node ? node->place : root->place, "metric", "%.*s", (int)strcspn(line, "\n"), line);
    if (!s) check_pruning(sweep, config_of(config), root, problems);
    status_free(s);
    config_free(config);
}

/* Keys that the sweep sets itself in every run: a parameter of the same would be in the table without effect. */
static void check_is_free(const struct sweep_config *sweep, const char *key, struct place place,
                          struct problems *problems) {
    size_t length = strcspn(key, "=");
    bool is_fold = strncmp(key, FOLD, strlen(FOLD)) == 0;
    if (strncmp(key, BEST, strlen(BEST)) == 0)
        problems_add(problems, place, NULL, "%.*s: the sweep sets it to its metric; use the key metric", (int)length,
                     key);
    if (is_fold && sweep->repeat.folds != SCHEMA_NO_INT)
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

/* A parameter that the config never takes is the reason against every value of the others, too: it is reported once. */
static void check_values(const struct sweep_config *sweep, struct problems *problems) {
    status failures[SPACE_MAX_PARAMETERS];
    bool is_explained = false;
    for (size_t i = 0; i < sweep->space.count; i++) {
        const struct parameter *p = &sweep->space.items[i];
        check_is_free(sweep, p->path, p->place, problems);
        failures[i] = try_values(sweep, i);
        if (!failures[i] || !own_refusal(failures[i], p->path)) continue;
        add_refusal(problems, p->place, p->path, failures[i]);
        is_explained = true;
    }
    for (size_t i = 0; i < sweep->space.count; i++) {
        const struct parameter *p = &sweep->space.items[i];
        if (failures[i] && !is_explained) add_refusal(problems, p->place, p->path, failures[i]);
        status_free(failures[i]);
    }
}

/* A trial of a list: each of its words alone. */
static void check_list(const struct sweep_config *sweep, const struct node *list, struct problems *problems) {
    for (int64_t i = 0; sweep->list && i < sweep->trials; i++) {
        struct config_file *config = NULL;
        const struct point none = {0};
        status s = sweep_trial_config(sweep, i, &none, 0, &config);
        const char *word = sweep->list[i][0] ? sweep->list[i][0] : "";
        char *key = strndup(word, strcspn(word, "="));
        if (s) add_refusal(problems, list->items[i]->place, key ? key : "", s);
        for (size_t k = 0; sweep->list[i][k]; k++)
            check_is_free(sweep, sweep->list[i][k], list->items[i]->place, problems);
        free(key);
        status_free(s);
        config_free(config);
    }
}

void sweep_check(const struct sweep_config *sweep, const struct node *root, struct problems *problems) {
    check_metric(sweep, root, problems);
    if (problems->count) return;
    check_values(sweep, problems);
    if (sweep->list) check_list(sweep, node_get(root, "trials"), problems);
}
