/* The runs are computed once, before the first step. */
#include "optim/optimizer_groups.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

struct group {
    struct string_list match;
    int64_t min_dims, max_dims;
    double lr, lr_factor, weight_decay; /* NAN: the optimizer's */
    double momentum, eps;               /* the same */
    struct real_list betas;             /* count 0: the optimizer's */
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
    {.key = "betas",
     .type = SCHEMA_REAL_LIST,
     .offset = offsetof(struct group, betas),
     .fallback = "null",
     .min = 0,
     .max = 1,
     .excludes_max = true,
     .doc = "Betas of the group, for optimizers that have them."},
    {.key = "momentum",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct group, momentum),
     .fallback = "null",
     .min = 0,
     .max = 1,
     .doc = "Momentum of the group, for optimizers that have one."},
    {.key = "eps",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct group, eps),
     .fallback = "null",
     .min = 0,
     .max = INFINITY,
     .doc = "What the group adds to the denominator, for optimizers that do."},
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
     .doc =
         "Parameters with their own values of lr, weight_decay, betas, momentum and eps (PyTorch's parameter groups); "
         "the first group that matches is used."},
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
    text_printf(&what, "%s: optimizer.groups.%zu: no parameter ", place_text(g->place).s, index);
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

/* The keys of a group that replace those of the optimizer's own struct: their rows in group_rows. */
static const char *const replacing[] = {"betas", "momentum", "eps"};
enum { REPLACING = sizeof replacing / sizeof *replacing };

static const struct schema_row *row_of(const struct schema_row *rows, const char *key) {
    while (rows->key && strcmp(rows->key, key) != 0) rows++;
    return rows->key ? rows : NULL;
}

static size_t value_bytes(const struct schema_row *row) {
    return row->type == SCHEMA_REAL ? sizeof(double) : sizeof(struct real_list);
}

static bool is_given(const struct schema_row *row, const struct group *g) {
    const char *value = (const char *)g + row->offset;
    return row->type == SCHEMA_REAL ? !isnan(*(const double *)value) : ((const struct real_list *)value)->count > 0;
}

static bool replaces_keys(const struct group *g) {
    bool found = false;
    for (size_t i = 0; i < REPLACING; i++) found = found || is_given(row_of(group_rows, replacing[i]), g);
    return found;
}

/* Sets [out] (schema->size bytes) to the optimizer's own struct with the values of the group. */
static status replace_keys(const struct variant *config, const struct group *g, size_t index, void *out) {
    const struct schema *schema = optimizer_type_at((size_t)config->index)->variant.schema;
    memcpy(out, config->config, schema->size);
    for (size_t i = 0; i < REPLACING; i++) {
        const struct schema_row *from = row_of(group_rows, replacing[i]), *to = row_of(schema->rows, replacing[i]);
        if (!is_given(from, g)) continue;
        if (!to)
            return status_new(STATUS_USAGE, "%s: optimizer.groups.%zu: %s has no key '%s'", place_text(g->place).s,
                              index, config->name, replacing[i]);
        memcpy((char *)out + to->offset, (const char *)g + from->offset, value_bytes(from));
    }
    return OK;
}

/* The check of the optimizer's own struct, for that of a group. */
static status check_keys(const struct variant *config, const struct group *g, size_t index, void *own) {
    const struct schema *schema = optimizer_type_at((size_t)config->index)->variant.schema;
    struct node where = {.kind = NODE_MAPPING, .place = g->place};
    struct problems problems = {0};
    struct text path = {0};
    text_printf(&path, "optimizer.groups.%zu", index);
    if (schema->check) schema->check(own, &where, text_string(&path), &problems);
    text_free(&path);
    status s = problems_status(&problems, STATUS_USAGE);
    problems_free(&problems);
    return s;
}

/* The structs of the groups (group_count); NULL: the optimizer's. */
static status create_configs(struct optimizer_plan *plan, const struct variant *config) {
    const struct common *common = config->common;
    const struct group *groups = common->groups.items;
    plan->configs = calloc(common->groups.count + 1, sizeof *plan->configs);
    if (!plan->configs) return status_memory("the groups of the optimizer");
    plan->group_count = common->groups.count;
    for (size_t g = 0; g < plan->group_count; g++) {
        if (!replaces_keys(&groups[g])) continue;
        plan->configs[g] = malloc(optimizer_type_at((size_t)config->index)->variant.schema->size);
        if (!plan->configs[g]) return status_memory("the groups of the optimizer");
        TRY(replace_keys(config, &groups[g], g, plan->configs[g]));
        TRY(check_keys(config, &groups[g], g, plan->configs[g]));
    }
    return OK;
}

static struct optimizer_setting setting_of(const struct optimizer_plan *plan, const struct variant *config,
                                           const struct param *p) {
    const struct common *common = config->common;
    struct optimizer_settings own = optimizer_settings(config);
    bool decays_by_default = common->decay == DECAY_ALL || p->dims >= 2;
    struct optimizer_setting setting = {
        .config = config->config, .lr = own.lr, .weight_decay = decays_by_default ? own.weight_decay : 0};
    const struct group *groups = common->groups.items;
    for (size_t g = 0; g < common->groups.count; g++) {
        if (!matches(&groups[g], p)) continue;
        if (!isnan(groups[g].lr)) setting.lr = groups[g].lr;
        if (!isnan(groups[g].lr_factor)) setting.lr = own.lr * groups[g].lr_factor;
        if (!isnan(groups[g].weight_decay)) setting.weight_decay = groups[g].weight_decay;
        if (plan->configs[g]) setting.config = plan->configs[g];
        break;
    }
    return setting;
}

static size_t find_or_add(struct optimizer_plan *plan, struct optimizer_setting setting) {
    for (size_t i = 0; i < plan->setting_count; i++) {
        const struct optimizer_setting *s = &plan->settings[i];
        if (s->lr == setting.lr && s->weight_decay == setting.weight_decay && s->config == setting.config) return i;
    }
    plan->settings[plan->setting_count] = setting;
    return plan->setting_count++;
}

static const struct param *next_trained(const struct params *params, size_t index) {
    while (++index < params->count)
        if (!params->items[index].is_frozen) return &params->items[index];
    return NULL;
}

/* A run ends where the next parameter begins; the gap between them is zero and remains zero. */
static void add_runs(struct optimizer_plan *plan, const struct variant *config, const struct params *params) {
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        if (p->is_frozen) continue;
        size_t setting = find_or_add(plan, setting_of(plan, config, p));
        const struct param *next = next_trained(params, i);
        size_t end = next ? next->offset : params->trained;
        plan->settings[setting].tensors++;
        plan->settings[setting].elements += p->count;
        struct optimizer_run *last = plan->run_count ? &plan->runs[plan->run_count - 1] : NULL;
        if (last && last->constants == setting && last->end == p->offset)
            last->end = end;
        else
            plan->runs[plan->run_count++] = (struct optimizer_run){p->offset, end, p->offset, setting};
    }
}

status optimizer_plan_create(const struct variant *config, const struct params *params, struct optimizer_plan **out) {
    TRY(check_matches(config->common, params));
    struct optimizer_plan *plan = calloc(1, sizeof *plan);
    if (plan) plan->settings = calloc(params->count + 1, sizeof *plan->settings);
    if (plan) plan->runs = calloc(params->count + 1, sizeof *plan->runs);
    status s = plan && plan->settings && plan->runs ? create_configs(plan, config)
                                                    : status_memory("the groups of the optimizer");
    if (s) {
        optimizer_plan_destroy(plan);
        return s;
    }
    add_runs(plan, config, params);
    *out = plan;
    return OK;
}

void optimizer_plan_destroy(struct optimizer_plan *plan) {
    if (!plan) return;
    for (size_t g = 0; g < plan->group_count; g++) free(plan->configs[g]);
    free(plan->configs);
    free(plan->settings);
    free(plan->runs);
    free(plan);
}
