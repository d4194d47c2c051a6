/* The runs are computed once, before the first step. */
#include "optim/optimizer_groups.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

struct group {
    struct string_list match;
    int64_t min_dims, max_dims;
    double lr, lr_factor, weight_decay; /* NAN: the optimizer's */
    struct place place;
};

enum decay { DECAY_ALL, DECAY_MATRICES };

struct common {
    struct section_list groups; /* of struct group */
    int decay;                  /* enum decay */
    bool in_backward;
};

static const char *const decays[] = {"all", "matrices", NULL};

static const struct schema_row group_rows[] = {
    {.key = "match",
     .type = SCHEMA_STRING_LIST,
     .offset = offsetof(struct group, match),
     .fallback = "null",
     .doc = "Names of parameters, as shell patterns (`*.bias`, `h.0.*`); one or a list."},
    {.key = "min_dims",
     .type = SCHEMA_INT,
     .offset = offsetof(struct group, min_dims),
     .fallback = "null",
     .min = 0,
     .max = MAX_DIMS,
     .doc = "Only parameters with at least this many dimensions (2: matrices)."},
    {.key = "max_dims",
     .type = SCHEMA_INT,
     .offset = offsetof(struct group, max_dims),
     .fallback = "null",
     .min = 0,
     .max = MAX_DIMS,
     .doc = "Only parameters with at most this many dimensions (1: biases and norms)."},
    {.key = "lr",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct group, lr),
     .fallback = "null",
     .min = 0,
     .max = INFINITY,
     .doc = "Learning rate of the group; the schedule scales it like that of the optimizer."},
    {.key = "lr_factor",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct group, lr_factor),
     .fallback = "null",
     .min = 0,
     .max = INFINITY,
     .doc = "Instead of `lr`: a factor of the rate of the optimizer."},
    {.key = "weight_decay",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct group, weight_decay),
     .fallback = "null",
     .min = 0,
     .max = INFINITY,
     .doc = "Weight decay of the group."},
    {0},
};

static void check_group(void *config, const struct node *where, const char *path, struct problems *problems) {
    struct group *g = config;
    g->place = where->place;
    if (g->match.count == 0 && g->min_dims == SCHEMA_NO_INT && g->max_dims == SCHEMA_NO_INT)
        problems_add(problems, where->place, path, "needs match, min_dims or max_dims");
    if (!isnan(g->lr) && !isnan(g->lr_factor))
        problems_add(problems, where->place, path, "give lr or lr_factor, not both");
}

static const struct schema group_schema = {
    .name = "optimizer.groups", .size = sizeof(struct group), .rows = group_rows, .check = check_group};

static const struct schema_row common_rows[] = {
    {.key = "decay",
     .type = SCHEMA_CHOICE,
     .offset = offsetof(struct common, decay),
     .fallback = "all",
     .choices = decays,
     .doc = "Parameters that `weight_decay` applies to: all, or `matrices`: those with two or more dimensions, so that "
            "biases and norms do not decay."},
    {.key = "groups",
     .type = SCHEMA_SECTION_LIST,
     .offset = offsetof(struct common, groups),
     .fallback = "[]",
     .section = &group_schema,
     .doc = "Parameters with their own values of lr and weight_decay (PyTorch's parameter groups); the first group "
            "that matches is used."},
    {.key = "in_backward",
     .type = SCHEMA_BOOL,
     .offset = offsetof(struct common, in_backward),
     .fallback = "false",
     .flags = SCHEMA_EXTENDS,
     .doc = "Update each parameter during backward, as soon as its gradient is complete, without storing all gradients "
            "(PyTorch's optimizer step in backward): the same numbers in less memory and time. On the CPU, with one "
            "process; several processes keep their gradients to average them (docs/optimizers.md)."},
    {0},
};

const struct schema optimizer_common = {.name = "optimizer", .size = sizeof(struct common), .rows = common_rows};

bool optimizer_is_in_backward(const struct variant *config) {
    return ((const struct common *)config->common)->in_backward;
}

static bool fits_dims(const struct group *g, const struct param *p) {
    return (g->min_dims == SCHEMA_NO_INT || p->dims >= g->min_dims) &&
           (g->max_dims == SCHEMA_NO_INT || p->dims <= g->max_dims);
}

static bool matches(const struct group *g, const struct param *p) {
    bool fits_name = g->match.count == 0;
    for (size_t i = 0; i < g->match.count; i++) fits_name |= fnmatch(g->match.items[i], p->name, 0) == 0;
    return fits_name && fits_dims(g, p);
}

static status no_match(const struct group *g, size_t index, const struct params *params, const char *pattern) {
    struct text what = {0};
    if (g->place.line > 0) text_printf(&what, "%s:%d:%d: ", g->place.file, g->place.line, g->place.column);
    text_printf(&what, "optimizer.groups.%zu: no parameter ", index);
    if (pattern)
        text_printf(&what, "matches '%s'", pattern);
    else
        text_add(&what, "has this name and so many dimensions");
    status s = params_no_match(params, text_string(&what));
    text_free(&what);
    return s;
}

static status check_matches(const struct common *common, const struct params *params) {
    const struct group *groups = common->groups.items;
    for (size_t g = 0; g < common->groups.count; g++) {
        size_t found = 0;
        for (size_t m = 0; m < groups[g].match.count; m++)
            if (params_match(params, groups[g].match.items[m]) == 0)
                return no_match(&groups[g], g, params, groups[g].match.items[m]);
        for (size_t p = 0; p < params->count; p++) found += matches(&groups[g], &params->items[p]);
        if (found == 0) return no_match(&groups[g], g, params, NULL);
    }
    return OK;
}

static struct optimizer_setting setting_of(const struct common *common, const struct optimizer_settings *own,
                                           const struct param *p) {
    bool decays_by_default = common->decay == DECAY_ALL || p->dims >= 2;
    struct optimizer_setting setting = {.lr = own->lr, .weight_decay = decays_by_default ? own->weight_decay : 0};
    const struct group *groups = common->groups.items;
    for (size_t g = 0; g < common->groups.count; g++) {
        if (!matches(&groups[g], p)) continue;
        if (!isnan(groups[g].lr)) setting.lr = groups[g].lr;
        if (!isnan(groups[g].lr_factor)) setting.lr = own->lr * groups[g].lr_factor;
        if (!isnan(groups[g].weight_decay)) setting.weight_decay = groups[g].weight_decay;
        break;
    }
    return setting;
}

static size_t find_or_add(struct optimizer_plan *plan, struct optimizer_setting setting) {
    for (size_t i = 0; i < plan->setting_count; i++)
        if (plan->settings[i].lr == setting.lr && plan->settings[i].weight_decay == setting.weight_decay) return i;
    plan->settings[plan->setting_count] = setting;
    return plan->setting_count++;
}

static const struct param *next_trained(const struct params *params, size_t index) {
    while (++index < params->count)
        if (!params->items[index].is_frozen) return &params->items[index];
    return NULL;
}

/* A run ends where the next parameter begins; the gap between them is zero and remains zero. */
static void add_runs(struct optimizer_plan *plan, const struct common *common, const struct optimizer_settings *own,
                     const struct params *params) {
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        if (p->is_frozen) continue;
        size_t setting = find_or_add(plan, setting_of(common, own, p));
        const struct param *next = next_trained(params, i);
        size_t end = next ? next->offset : params->trained;
        plan->settings[setting].tensors++;
        plan->settings[setting].elements += p->count;
        struct optimizer_run *last = plan->run_count ? &plan->runs[plan->run_count - 1] : NULL;
        if (last && last->step == setting && last->end == p->offset)
            last->end = end;
        else
            plan->runs[plan->run_count++] = (struct optimizer_run){p->offset, end, p->offset, setting};
    }
}

status optimizer_plan_create(const struct variant *config, const struct params *params, struct optimizer_plan **out) {
    const struct common *common = config->common;
    struct optimizer_settings own = optimizer_settings(config);
    TRY(check_matches(common, params));
    struct optimizer_plan *plan = calloc(1, sizeof *plan);
    if (plan) plan->settings = calloc(params->count + 1, sizeof *plan->settings);
    if (plan) plan->runs = calloc(params->count + 1, sizeof *plan->runs);
    if (!plan || !plan->settings || !plan->runs) {
        optimizer_plan_destroy(plan);
        return status_memory("the groups of the optimizer");
    }
    add_runs(plan, common, &own, params);
    *out = plan;
    return OK;
}

void optimizer_plan_destroy(struct optimizer_plan *plan) {
    if (!plan) return;
    free(plan->settings);
    free(plan->runs);
    free(plan);
}
