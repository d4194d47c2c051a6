/* The table of optimizers, the groups of parameters with their settings, and the state that all optimizers have. */
#include "optim/optimizer.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/scoped.h"
#include "optim/optimizers.h"

static const void *const types[] = {
#define X(name) &optimizer_##name,
    OPTIMIZERS(X)
#undef X
};

static struct type_table table = {.own = types, .own_count = sizeof types / sizeof *types};

const struct optimizer_type *optimizer_type_at(size_t index) { return type_table_at(&table, index); }

size_t optimizer_type_count(void) { return table.own_count + table.added_count; }

bool optimizer_type_add(const struct optimizer_type *type) { return type_table_add(&table, type); }

static const struct schema_variant *variant_at(size_t index) {
    const struct optimizer_type *type = optimizer_type_at(index);
    return type ? &type->variant : NULL;
}

const struct schema_variants optimizer_variants = {.what = "optimizer", .at = variant_at, .common = &optimizer_common};

/* ---- groups, whose runs are computed once, before the first step ---- */

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
    bool maximize, in_backward;
};

static const char *const decays[] = {"all", "matrices", NULL};

static const struct schema_row group_rows[] = {
    SCHEMA_ROW(STRING_LIST, struct group, match, .fallback = "null",
               .doc = "Names of parameters, as shell patterns (`*.bias`, `h.0.*`); one or a list."),
    SCHEMA_ROW(INT, struct group, min_dims, .fallback = "null", .min = 0, .max = MAX_DIMS,
               .doc = "Only parameters with at least this many dimensions (2: matrices)."),
    SCHEMA_ROW(INT, struct group, max_dims, .fallback = "null", .min = 0, .max = MAX_DIMS,
               .doc = "Only parameters with at most this many dimensions (1: biases and norms)."),
    SCHEMA_ROW(REAL, struct group, lr, .fallback = "null", .min = 0, .max = INFINITY,
               .doc = "Learning rate of the group; the schedule scales it like that of the optimizer."),
    SCHEMA_ROW(REAL, struct group, lr_factor, .fallback = "null", .min = 0, .max = INFINITY,
               .doc = "Instead of `lr`: a factor of the rate of the optimizer."),
    SCHEMA_ROW(REAL, struct group, weight_decay, .fallback = "null", .min = 0, .max = INFINITY,
               .doc = "Weight decay of the group."),
    SCHEMA_ROW(REAL_LIST, struct group, betas, .fallback = "null", .min = 0, .max = 1, .excludes_max = true,
               .doc = "Betas of the group, for optimizers that have them."),
    SCHEMA_ROW(REAL, struct group, momentum, .fallback = "null", .min = 0, .max = 1,
               .doc = "Momentum of the group, for optimizers that have one."),
    SCHEMA_ROW(REAL, struct group, eps, .fallback = "null", .min = 0, .max = INFINITY,
               .doc = "What the group adds to the denominator, for optimizers that do."),
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

static const struct schema group_schema =
    SCHEMA("optimizer.groups", struct group, .rows = group_rows, .check = check_group);

static const struct schema_row common_rows[] = {
    SCHEMA_ROW(CHOICE, struct common, decay, .fallback = "all", .choices = decays,
               .doc = "Parameters that `weight_decay` applies to: all, or `matrices`: those with two or more "
                      "dimensions, so that biases and norms do not decay."),
    SCHEMA_ROW(SECTION_LIST, struct common, groups, .fallback = "[]", .section = &group_schema,
               .doc = "Parameters with their own values of lr, weight_decay, betas, momentum and eps (PyTorch's "
                      "parameter groups); the first group that matches is used."),
    SCHEMA_ROW(BOOL, struct common, maximize, .fallback = "false",
               .doc = "Make the loss larger instead of smaller: gradients have the other sign."),
    SCHEMA_ROW(BOOL, struct common, in_backward, .fallback = "false", .flags = SCHEMA_EXTENDS,
               .doc =
                   "Update each parameter during backward, as soon as its gradient is complete, without storing all "
                   "gradients (PyTorch's optimizer step in backward): the same numbers in less memory and time. On the "
                   "CPU; with several processes where they share memory (docs/optimizers.md)."),
    {0},
};

const struct schema optimizer_common = SCHEMA("optimizer", struct common, .rows = common_rows);

bool optimizer_evaluates(const struct variant *config) { return optimizer_type_at((size_t)config->index)->evaluates; }

bool optimizer_needs_whole(const struct variant *config) { return optimizer_type_at((size_t)config->index)->whole; }

bool optimizer_is_in_backward(const struct variant *config) {
    return ((const struct common *)config->common)->in_backward;
}

bool optimizer_maximizes(const struct variant *config) { return ((const struct common *)config->common)->maximize; }

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
    SCOPED_TEXT what = {0};
    text_printf(&what, "%s: optimizer.groups.%zu: no parameter ", place_text(g->place).s, index);
    if (pattern)
        text_printf(&what, "matches '%s'", pattern);
    else
        text_add(&what, "has this name and so many dimensions");
    return params_no_match(params, text_string(&what));
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

/* The value of a key in the optimizer's own struct; NULL: it has none. */
static const void *value_of(const struct schema_row *rows, const char *key, const void *config) {
    const struct schema_row *row = row_of(rows, key);
    return row ? (const char *)config + row->offset : NULL;
}

struct optimizer_settings optimizer_settings_of(const struct optimizer_type *type, const void *config) {
    if (type->settings) return type->settings(config);
    const struct schema_row *rows = type->variant.schema->rows;
    const double *lr = value_of(rows, "lr", config), *decay = value_of(rows, "weight_decay", config);
    const double *momentum = value_of(rows, "momentum", config);
    const struct real_list *betas = value_of(rows, "betas", config);
    return (struct optimizer_settings){.lr = *lr,
                                       .weight_decay = decay ? *decay : 0,
                                       .momentum = betas                        ? betas->items[0]
                                                   : momentum && *momentum != 0 ? *momentum
                                                                                : NAN};
}

struct optimizer_settings optimizer_settings(const struct variant *config) {
    return optimizer_settings_of(optimizer_type_at((size_t)config->index), config->config);
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

static status no_key(const struct variant *config, const struct group *g, size_t index, const char *key) {
    return status_usage("%s: optimizer.groups.%zu: %s has no key '%s'", place_text(g->place).s, index, config->name,
                        key);
}

/* Sets [out] (schema->size bytes) to the optimizer's own struct with the values of the group. */
static status replace_keys(const struct variant *config, const struct group *g, size_t index, void *out) {
    const struct schema *schema = optimizer_type_at((size_t)config->index)->variant.schema;
    memcpy(out, config->config, schema->size);
    for (size_t i = 0; i < REPLACING; i++) {
        const struct schema_row *from = row_of(group_rows, replacing[i]), *to = row_of(schema->rows, replacing[i]);
        if (!is_given(from, g)) continue;
        if (!to) return no_key(config, g, index, replacing[i]);
        memcpy((char *)out + to->offset, (const char *)g + from->offset, value_bytes(from));
    }
    return OK;
}

/* The check of the optimizer's own struct, for that of a group. */
static status check_keys(const struct variant *config, const struct group *g, size_t index, void *own) {
    const struct schema *schema = optimizer_type_at((size_t)config->index)->variant.schema;
    struct node where = {.kind = NODE_MAPPING, .place = g->place};
    SCOPED_PROBLEMS problems = {0};
    struct text path = {0};
    text_printf(&path, "optimizer.groups.%zu", index);
    if (schema->check) schema->check(own, &where, text_string(&path), &problems);
    text_free(&path);
    return problems_status(&problems, STATUS_USAGE);
}

/* The structs of the groups (group_count); NULL: the optimizer's. */
static status create_configs(struct optimizer_plan *plan, const struct variant *config) {
    const struct common *common = config->common;
    const struct group *groups = common->groups.items;
    plan->configs = calloc(common->groups.count + 1, sizeof *plan->configs);
    if (!plan->configs) return status_memory("the groups of the optimizer");
    plan->group_count = common->groups.count;
    for (size_t g = 0; g < plan->group_count; g++) {
        if (!isnan(groups[g].weight_decay) &&
            !row_of(optimizer_type_at((size_t)config->index)->variant.schema->rows, "weight_decay"))
            return no_key(config, &groups[g], g, "weight_decay");
        if (!replaces_keys(&groups[g])) continue;
        plan->configs[g] = malloc(optimizer_type_at((size_t)config->index)->variant.schema->size);
        if (!plan->configs[g]) return status_memory("the groups of the optimizer");
        TRY(replace_keys(config, &groups[g], g, plan->configs[g]));
        TRY(check_keys(config, &groups[g], g, plan->configs[g]));
    }
    return OK;
}

struct optimizer_setting optimizer_plan_setting(const struct optimizer_plan *plan, const struct variant *config,
                                                const struct param *p) {
    const struct common *common = config->common;
    const struct optimizer_whole_rule *whole = optimizer_type_at((size_t)config->index)->whole;
    bool is_other = whole && whole->is_other && whole->is_other(config->config, p);
    struct optimizer_settings own = is_other ? whole->other_settings(config->config) : optimizer_settings(config);
    bool decays_by_default = common->decay == DECAY_ALL || p->dims >= 2;
    struct optimizer_setting setting = {.config = config->config,
                                        .is_other = is_other,
                                        .lr = own.lr,
                                        .weight_decay = decays_by_default ? own.weight_decay : 0};
    const struct group *groups = common->groups.items;
    for (size_t g = 0; g < common->groups.count; g++) {
        if (!matches(&groups[g], p)) continue;
        if (!isnan(groups[g].lr)) setting.lr = groups[g].lr;
        if (!isnan(groups[g].lr_factor)) setting.lr = own.lr * groups[g].lr_factor;
        if (!isnan(groups[g].weight_decay)) setting.weight_decay = groups[g].weight_decay;
        if (plan->configs[g]) setting.config = plan->configs[g];
        break;
    }
    const struct optimizer_type *type = optimizer_type_at((size_t)config->index);
    setting.momentum =
        (is_other ? whole->other_settings(setting.config) : optimizer_settings_of(type, setting.config)).momentum;
    return setting;
}

static size_t find_or_add(struct optimizer_plan *plan, struct optimizer_setting setting) {
    for (size_t i = 0; i < plan->setting_count; i++) {
        const struct optimizer_setting *s = &plan->settings[i];
        if (s->lr == setting.lr && s->weight_decay == setting.weight_decay && s->config == setting.config &&
            s->is_other == setting.is_other)
            return i;
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
static void plan_runs(struct optimizer_plan *plan, const struct variant *config, const struct params *params) {
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        if (p->is_frozen) continue;
        size_t setting = find_or_add(plan, optimizer_plan_setting(plan, config, p));
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

/* An error if no trained parameter is updated as a whole. */
static status check_whole(const struct variant *config, const struct params *params) {
    const struct optimizer_whole_rule *whole = optimizer_type_at((size_t)config->index)->whole;
    if (!whole || !whole->is_other) return OK;
    for (size_t i = 0; i < params->count; i++)
        if (!params->items[i].is_frozen && !whole->is_other(config->config, &params->items[i])) return OK;
    return status_usage("%s: optimizer.type: %s is for %s, and no trained parameter is one",
                        place_text(config->place).s, config->name, whole->what);
}

status optimizer_plan_create(const struct variant *config, const struct params *params, struct optimizer_plan **out) {
    const struct common *common = config->common;
    TRY(check_whole(config, params));
    TRY(check_matches(common, params));
    if (optimizer_evaluates(config) && common->groups.count)
        return status_new(
            STATUS_USAGE,
            "optimizer.groups: lbfgs has the same settings for all parameters, as in PyTorch; remove groups");
    struct optimizer_plan *plan = calloc(1, sizeof *plan);
    if (plan) plan->settings = calloc(params->count + 1, sizeof *plan->settings);
    if (plan) plan->runs = calloc(params->count + 1, sizeof *plan->runs);
    status s = plan && plan->settings && plan->runs ? create_configs(plan, config)
                                                    : status_memory("the groups of the optimizer");
    if (s) {
        optimizer_plan_destroy(plan);
        return s;
    }
    plan_runs(plan, config, params);
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

/* ---- the same in PyTorch ---- */

/* "p.dim() >= 2 and any(fnmatch.fnmatchcase(name, pattern) for pattern in [...])" */
static void write_condition(const struct group *g, struct text *out) {
    const char *and = "";
    if (g->min_dims != SCHEMA_NO_INT) text_printf(out, "p.dim() >= %lld", (long long)g->min_dims), and = " and ";
    if (g->max_dims != SCHEMA_NO_INT) text_printf(out, "%sp.dim() <= %lld", and, (long long)g->max_dims), and = " and ";
    if (g->match.items) {
        text_printf(out, "%sany(fnmatch.fnmatchcase(name, pattern) for pattern in ", and);
        text_add_json_list(out, g->match.items, g->match.count);
        text_add(out, ")");
    } else if (!*and) {
        text_add(out, "True");
    }
}

/* "{"lr": 0.1, "weight_decay": 0}" of a group (NULL: none matches). */
static void write_settings(const struct variant *config, const struct group *g, struct text *out) {
    const struct optimizer_settings own = optimizer_settings(config);
    const struct common *common = config->common;
    double lr = g && !isnan(g->lr) ? g->lr : g && !isnan(g->lr_factor) ? own.lr * g->lr_factor : own.lr;
    text_add(out, "{\"lr\": ");
    text_add_double(out, lr);
    text_add(out, ", \"weight_decay\": ");
    text_add_double(out, g && !isnan(g->weight_decay) ? g->weight_decay : own.weight_decay);
    if (common->decay == DECAY_MATRICES && !(g && !isnan(g->weight_decay))) text_add(out, " if p.dim() > 1 else 0");
    if (g && !isnan(g->momentum)) text_add(out, ", \"momentum\": "), text_add_double(out, g->momentum);
    if (g && !isnan(g->eps)) text_add(out, ", \"eps\": "), text_add_double(out, g->eps);
    if (g && g->betas.count == 2) {
        text_add(out, ", \"betas\": (");
        text_add_double(out, g->betas.items[0]);
        text_add(out, ", ");
        text_add_double(out, g->betas.items[1]);
        text_add(out, ")");
    }
    text_add(out, "}\n");
}

static bool place_groups(void *groups, const char *name, struct text *out) {
    if (strcmp(name, "groups") != 0) return false;
    text_add(out, text_string(groups));
    return true;
}

status optimizer_write_pytorch(const struct variant *config, struct text *out) {
    const struct common *common = config->common;
    const struct group *groups = common->groups.items;
    const struct optimizer_type *type = optimizer_type_at((size_t)config->index);
    bool is_one = common->groups.count == 0 && common->decay == DECAY_ALL;
    if (type->whole && type->whole->write_pytorch) {
        if (is_one && !common->maximize) return type->whole->write_pytorch(config->config, out);
        return status_usage("optimizer %s with groups, decay or maximize cannot be expressed in a PyTorch script",
                            type->variant.name);
    }
    if (!type->pytorch) return status_usage("optimizer %s cannot be expressed in a PyTorch script", type->variant.name);
    SCOPED_TEXT passed = {0};
    text_add(&passed, is_one ? "model.parameters()"
                             : "[{\"params\": [p], **settings(name, p)} for name, p in model.named_parameters()]");
    if (common->maximize) text_add(&passed, ", maximize=True");
    if (!is_one) text_add(out, "def settings(name, p):\n");
    for (size_t g = 0; g < common->groups.count; g++) {
        text_add(out, "    if ");
        write_condition(&groups[g], out);
        text_add(out, ":\n        return ");
        write_settings(config, &groups[g], out);
    }
    if (!is_one) {
        text_add(out, "    return ");
        write_settings(config, NULL, out);
        text_add(out, "\n\n");
    }
    text_add(out, "optimizer = ");
    status s = schema_fill(type->variant.schema, config->config, type->pytorch, place_groups, &passed, out);
    text_add(out, "\n");
    return s;
}

/* ---- an optimizer of a run ---- */

/* Whether the parameters of any setting need buffer [index]. */
static bool uses_buffer(const struct optimizer_type *type, const struct optimizer_plan *plan, size_t index) {
    if (!type->buffers[index] || !type->uses_buffer) return type->buffers[index];
    bool is_used = false;
    for (size_t i = 0; i < plan->setting_count; i++)
        is_used = is_used || type->uses_buffer(plan->settings[i].config, index);
    return is_used;
}

/* ---- the state, of which a type that updates parameters as a whole has its own shapes ---- */

static size_t elements(int dims, const int64_t *shape) {
    size_t count = 1;
    for (int d = 0; d < dims; d++) count *= (size_t)shape[d];
    return count;
}

/* The floats of buffer [index], of those in use, for [params]. */
static size_t state_floats(const struct optimizer_type *type, const void *config, size_t index,
                           const struct params *params) {
    size_t floats = 0;
    int64_t shape[MAX_DIMS];
    if (!type->whole) return params->trained;
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        memcpy(shape, p->shape, sizeof shape);
        if (!p->is_frozen && type->whole->state_shape(config, p, index, shape))
            floats += params_padded(elements(p->dims, shape));
    }
    return floats;
}

size_t optimizer_state_shape(const struct optimizer *optimizer, size_t index, const struct param *param,
                             int64_t *shape) {
    const struct optimizer_whole_rule *whole = optimizer->type->whole;
    memcpy(shape, param->shape, (size_t)param->dims * sizeof *shape);
    if (!whole) return param->count;
    return whole->state_shape(optimizer->config, param, index, shape) ? elements(param->dims, shape) : 0;
}

static size_t work_floats(const struct optimizer_type *type, const struct params *params) {
    size_t most = 0;
    for (size_t i = 0; type->whole && type->whole->work && i < params->count; i++) {
        size_t floats = type->whole->work(&params->items[i]);
        if (floats > most) most = floats;
    }
    return most;
}

size_t optimizer_memory(const struct variant *config, const struct optimizer_plan *plan, const struct params *params) {
    const struct optimizer_type *type = optimizer_type_at((size_t)config->index);
    size_t floats = work_floats(type, params);
    if (type->evaluates) return lbfgs_memory(config->config, params->trained);
    for (size_t i = 0; i < OPTIMIZER_MAX_BUFFERS; i++)
        if (uses_buffer(type, plan, i)) floats += state_floats(type, config->config, i, params);
    return floats * sizeof(float);
}

static status fill(struct device *device, float **buffer, size_t count, float value) {
    TRY(device_map(device, (void **)buffer));
    for (size_t i = 0; i < count; i++) (*buffer)[i] = value;
    return device_unmap(device, (void **)buffer, true);
}

static status allocate(struct optimizer *o, const struct params *params) {
    for (size_t i = 0; i < OPTIMIZER_MAX_BUFFERS; i++) {
        if (!uses_buffer(o->type, o->plan, i)) continue;
        float **buffer = &o->buffers[o->buffer_count];
        size_t total = o->shard ? o->shard->total : state_floats(o->type, o->config, i, params);
        o->buffer_floats[o->buffer_count] = total;
        TRY(device_alloc(o->device, total * sizeof(float), "the optimizer's state", (void **)buffer));
        o->buffer_names[o->buffer_count++] = o->type->buffers[i];
        float start = o->type->start ? o->type->start(o->config) : 0;
        if (start != 0) TRY(fill(o->device, buffer, total, start));
    }
    if (o->type->evaluates) TRY(lbfgs_create(o->config, params->trained, &o->lbfgs));
    if (o->type->whole)
        TRY(buffer_new((work_floats(o->type, params) + 1) * sizeof *o->work, "the optimizer's work",
                       (void **)&o->work));
    o->now = calloc(o->plan->setting_count + 1, sizeof *o->now);
    if (!o->now) return status_memory("the optimizer");
    size_t bytes = o->plan->setting_count * sizeof *o->constants;
    TRY(buffer_new(bytes, "the optimizer's constants", (void **)&o->planned));
    return device_alloc(o->device, bytes, "the optimizer's constants", (void **)&o->constants);
}

/* The runs of each range, whose elements begin at 0. */
static void add_runs_of_range(struct optimizer *o, const struct optimizer_shard_range *range) {
    for (size_t r = 0; r < o->plan->run_count; r++) {
        const struct optimizer_run *run = &o->plan->runs[r];
        size_t begin = range->begin > run->begin ? range->begin : run->begin;
        size_t end = range->end < run->end ? range->end : run->end;
        if (begin >= end) continue;
        o->runs[o->run_count++] = (struct optimizer_run){.begin = begin - range->begin,
                                                         .end = end - range->begin,
                                                         .at = range->at + (begin - range->begin),
                                                         .constants = run->constants};
    }
}

/* Adds the run [begin, end), and before it one that skips the elements since the last run. */
static void add_run(struct optimizer *o, size_t begin, size_t end, size_t at, size_t constants) {
    size_t last_end = o->run_count ? o->runs[o->run_count - 1].end : 0;
    if (last_end < begin) o->runs[o->run_count++] = (struct optimizer_run){last_end, begin, 0, OPTIMIZER_SKIP};
    if (begin < end) o->runs[o->run_count++] = (struct optimizer_run){begin, end, at, constants};
}

/* Adds the runs of the plan, restricted to the ranges of this rank; all other elements are skipped. */
static status add_runs(struct optimizer *o, const struct params *params) {
    const struct optimizer_shard_range all = {0, params->trained, 0};
    const struct optimizer_shard_range *ranges = o->shard ? o->shard->ranges : &all;
    size_t range_count = o->shard ? o->shard->count : 1;
    o->runs = calloc(2 * (o->plan->run_count + range_count) + 1, sizeof *o->runs);
    if (o->shard && o->shard->gradients) o->run_ends = calloc(range_count + 1, sizeof *o->run_ends);
    if (!o->runs || (o->shard && o->shard->gradients && !o->run_ends)) return status_memory("the optimizer");
    for (size_t i = 0; o->run_ends && i < range_count; i++) {
        add_runs_of_range(o, &ranges[i]);
        o->run_ends[i] = o->run_count;
    }
    if (o->run_ends) return OK;
    for (size_t r = 0; r < o->plan->run_count; r++) {
        const struct optimizer_run *run = &o->plan->runs[r];
        for (size_t i = 0; i < range_count; i++) {
            size_t begin = ranges[i].begin > run->begin ? ranges[i].begin : run->begin;
            size_t end = ranges[i].end < run->end ? ranges[i].end : run->end;
            if (begin < end) add_run(o, begin, end, ranges[i].at + (begin - ranges[i].begin), run->constants);
        }
    }
    add_run(o, params->total, params->total, 0, OPTIMIZER_SKIP);
    return OK;
}

status optimizer_create(const struct variant *config, const struct params *params, struct device *device,
                        struct optimizer **out) {
    return optimizer_create_shard(config, params, device, NULL, out);
}

status optimizer_create_shard(const struct variant *config, const struct params *params, struct device *device,
                              const struct optimizer_shard *shard, struct optimizer **out) {
    struct optimizer *o = calloc(1, sizeof *o);
    if (!o) return status_memory("the optimizer");
    o->type = optimizer_type_at((size_t)config->index);
    o->config = config->config;
    o->lr = optimizer_settings(config).lr;
    o->device = device;
    o->shard = shard;
    status s = optimizer_plan_create(config, params, &o->plan);
    if (!s) s = add_runs(o, params);
    if (!s) s = allocate(o, params);
    if (s) optimizer_destroy(o);
    if (!s) *out = o;
    return s;
}

void optimizer_destroy(struct optimizer *optimizer) {
    if (!optimizer) return;
    for (size_t i = 0; i < OPTIMIZER_MAX_BUFFERS; i++) device_free(optimizer->device, optimizer->buffers[i]);
    device_free(optimizer->device, optimizer->constants);
    buffer_free(optimizer->planned);
    buffer_free(optimizer->work);
    free(optimizer->now);
    free(optimizer->runs);
    free(optimizer->run_ends);
    optimizer_plan_destroy(optimizer->plan);
    lbfgs_destroy(optimizer->lbfgs);
    free(optimizer);
}

static void run(struct optimizer *o, struct optimizer_update *update) {
    update->rule = o->type->rule;
    update->constants = o->constants;
    for (size_t i = 0, used = 0; i < OPTIMIZER_MAX_BUFFERS; i++)
        update->states[i] = uses_buffer(o->type, o->plan, i) ? o->buffers[used++] : NULL;
    device_ops(o->device)->optimizers->update(o->device, update);
}

void optimizer_plan_step(struct optimizer *optimizer, int64_t t, const struct variant *schedule,
                         const struct schedule_progress *progress) {
    struct optimizer_plan *plan = optimizer->plan;
    double momentum = schedule ? schedule_momentum(schedule, progress) : NAN;
    for (size_t i = 0; i < plan->setting_count; i++) {
        struct optimizer_setting *setting = &plan->settings[i];
        const struct optimizer_whole_rule *whole = optimizer->type->whole;
        struct optimizer_settings settings = {
            .lr = schedule ? schedule_lr(schedule, setting->lr, progress) : setting->lr,
            .weight_decay = setting->weight_decay,
            .momentum = isnan(momentum) ? setting->momentum : momentum,
            .product = &setting->product,
        };
        optimizer->now[i] = settings;
        if (!whole || setting->is_other) optimizer->planned[i] = optimizer->type->plan(setting->config, &settings, t);
    }
    optimizer->update = t;
    device_upload(optimizer->device, optimizer->constants, optimizer->planned,
                  plan->setting_count * sizeof *optimizer->planned);
}

/* The update of the ranges of a shard with gradients of its own. */
static void run_ranges(struct optimizer *o, struct params *params, const float *clip) {
    for (size_t i = 0, first = 0; i < o->shard->count; first = o->run_ends[i++]) {
        const struct optimizer_shard_range *range = &o->shard->ranges[i];
        run(o,
            &(struct optimizer_update){.clip = clip,
                                       .values = params->own ? params->own + range->at : params->values + range->begin,
                                       .gradients = o->shard->gradients + range->at,
                                       .runs = o->runs + first,
                                       .run_count = o->run_ends[i] - first});
    }
}

/* The update of parameter [index], whose state in each buffer begins at [at]. */
static void update_whole(struct optimizer *o, struct params *params, size_t index, const size_t *at, size_t setting,
                         float clip) {
    const struct param *p = &params->items[index];
    struct optimizer_whole update = {.device = o->device,
                                     .param = p,
                                     .config = o->plan->settings[setting].config,
                                     .settings = &o->now[setting],
                                     .t = o->update,
                                     .values = params_value(params, index),
                                     .gradient = params_gradient(params, index),
                                     .work = o->work};
    int64_t shape[MAX_DIMS];
    for (size_t b = 0; b < o->buffer_count; b++)
        if (optimizer_state_shape(o, b, p, shape)) update.states[b] = o->buffers[b] + at[b];
    for (size_t i = 0; i < p->count; i++) update.gradient[i] *= clip;
    o->type->whole->update(&update);
    memset(update.gradient, 0, p->count * sizeof *update.gradient);
}

/* The same for one that the rule updates. */
static void update_other(struct optimizer *o, struct params *params, size_t index, const size_t *at, size_t setting,
                         const float *clip) {
    struct optimizer_run own = {.end = params->items[index].count, .constants = setting};
    struct optimizer_update update = {.rule = o->type->rule,
                                      .constants = o->constants,
                                      .clip = clip,
                                      .values = params_value(params, index),
                                      .gradients = params_gradient(params, index),
                                      .runs = &own,
                                      .run_count = 1};
    for (size_t b = o->type->whole->other_buffer; b < o->buffer_count; b++)
        update.states[b - o->type->whole->other_buffer] = o->buffers[b] + at[b];
    device_ops(o->device)->optimizers->update(o->device, &update);
}

static void run_wholes(struct optimizer *o, struct params *params, const float *clip) {
    size_t at[OPTIMIZER_MAX_BUFFERS] = {0};
    const struct optimizer_run *run_of = o->plan->runs;
    if (isnan(*clip)) {
        params_zero_gradients(params, o->device);
        return;
    }
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        int64_t shape[MAX_DIMS];
        if (p->is_frozen) continue;
        while (run_of->end <= p->offset) run_of++;
        if (o->plan->settings[run_of->constants].is_other)
            update_other(o, params, i, at, run_of->constants, clip);
        else
            update_whole(o, params, i, at, run_of->constants, *clip);
        for (size_t b = 0; b < o->buffer_count; b++) at[b] += params_padded(optimizer_state_shape(o, b, p, shape));
    }
}

void optimizer_run_step(struct optimizer *optimizer, struct params *params, const float *clip) {
    if (optimizer->type->whole) {
        run_wholes(optimizer, params, clip);
        return;
    }
    if (optimizer->run_ends) {
        run_ranges(optimizer, params, clip);
        return;
    }
    run(optimizer, &(struct optimizer_update){.clip = clip,
                                              .values = params->values,
                                              .gradients = params->gradients,
                                              .runs = optimizer->runs,
                                              .run_count = optimizer->run_count});
}

void optimizer_run_part(struct optimizer *optimizer, struct params *params, size_t begin, size_t end, float *gradients,
                        const float *clip) {
    const struct optimizer_run *run_of = optimizer->plan->runs;
    while (run_of->end <= begin) run_of++; /* a parameter is within one run */
    struct optimizer_run own = {.end = end - begin, .at = begin, .constants = run_of->constants};
    run(optimizer,
        &(struct optimizer_update){
            .clip = clip, .values = params->values + begin, .gradients = gradients, .runs = &own, .run_count = 1});
}

void optimizer_step(struct optimizer *optimizer, struct params *params, int64_t t, const struct variant *schedule,
                    const struct schedule_progress *progress, const float *clip) {
    optimizer_plan_step(optimizer, t, schedule, progress);
    optimizer_run_step(optimizer, params, clip);
}
