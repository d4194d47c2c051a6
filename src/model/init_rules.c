/* A rule visits the layers in order, and in each layer its parameters. With `layers:` it is torch's Module.apply: a
 * tied weight is visited again through the layer that ties it (both draws happen, the last one stays). Without
 * `layers:` it is a loop over named_parameters, which visits each once. */

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "model/init.h"

/* Which parameters: keys of every rule. */
struct target {
    struct string_list match, layers;
};

struct normal_config {
    double std, mean;
};
struct uniform_config {
    double from, to;
};
struct xavier_config {
    double gain;
};
struct kaiming_config {
    double a;
    int mode; /* index into modes */
};
struct constant_config {
    double value;
};
struct trunc_normal_config {
    double std, mean, a, b;
};
struct orthogonal_config {
    double gain;
};
struct gpt2_config {
    struct string_list residual;
};

static const char *const modes[] = {"fan_in", "fan_out", NULL};

#define REAL(type_, key_, fallback_, doc_)                                                                             \
    SCHEMA_ROW(REAL, struct type_, key_, .fallback = fallback_, .min = -INFINITY, .max = INFINITY, .doc = doc_)

static const struct schema_row target_rows[] = {
    SCHEMA_ROW(STRING_LIST, struct target, match, .fallback = "null",
               .doc = "Names of parameters, as shell patterns (`*.weight`); null: all."),
    SCHEMA_ROW(STRING_LIST, struct target, layers, .fallback = "null",
               .doc = "Types of layers (`[linear, embedding]`); null: all."),
    {0},
};
static const struct schema_row normal_rows[] = {
    SCHEMA_ROW(REAL, struct normal_config, std, .fallback = "1", .min = 0, .max = INFINITY,
               .doc = "Standard deviation."),
    REAL(normal_config, mean, "0", "Mean."),
    {0},
};
static const struct schema_row uniform_rows[] = {
    REAL(uniform_config, from, "0", "Lower bound (PyTorch's a)."),
    REAL(uniform_config, to, "1", "Upper bound (PyTorch's b)."),
    {0},
};
static const struct schema_row xavier_rows[] = {
    REAL(xavier_config, gain, "1", "Factor."),
    {0},
};
static const struct schema_row kaiming_rows[] = {
    REAL(kaiming_config, a, "0", "Negative slope of the leaky_relu that follows; 0: a relu."),
    SCHEMA_ROW(CHOICE, struct kaiming_config, mode, .fallback = "fan_in", .choices = modes,
               .doc = "Keep the variance forward (`fan_in`) or backward (`fan_out`)."),
    {0},
};
static const struct schema_row constant_rows[] = {
    REAL(constant_config, value, "0", "The value."),
    {0},
};
static const struct schema_row trunc_normal_rows[] = {
    SCHEMA_ROW(REAL, struct trunc_normal_config, std, .fallback = "1", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "Standard deviation of the normal distribution."),
    REAL(trunc_normal_config, mean, "0", "Its mean."),
    REAL(trunc_normal_config, a, "-2", "Minimum value."),
    REAL(trunc_normal_config, b, "2", "Maximum value."),
    {0},
};
static const struct schema_row orthogonal_rows[] = {
    REAL(orthogonal_config, gain, "1", "Factor."),
    {0},
};
static const struct schema_row gpt2_rows[] = {
    SCHEMA_ROW(STRING_LIST, struct gpt2_config, residual, .fallback = "['*c_proj.weight', '*out_proj.weight']",
               .doc =
                   "The last weights of residual branches, drawn with standard deviation 0.02 / sqrt(their number)."),
    {0},
};

static const struct schema target_schema = SCHEMA("model.init", struct target, .rows = target_rows);
static const struct schema normal_schema =
    SCHEMA("model.init.normal", struct normal_config, .rows = normal_rows, .shorthand = "std");
static const struct schema uniform_schema = SCHEMA("model.init.uniform", struct uniform_config, .rows = uniform_rows);
static const struct schema xavier_schema =
    SCHEMA("model.init.xavier", struct xavier_config, .rows = xavier_rows, .shorthand = "gain");
static const struct schema kaiming_schema =
    SCHEMA("model.init.kaiming", struct kaiming_config, .rows = kaiming_rows, .shorthand = "a");
static const struct schema constant_schema =
    SCHEMA("model.init.constant", struct constant_config, .rows = constant_rows, .shorthand = "value");
static void check_truncation(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct trunc_normal_config *c = config;
    double distance = fmax(0, fmax(c->a - c->mean, c->mean - c->b)); /* from the mean to the nearest bound */
    if (!(c->a < c->b))
        problems_add(problems, where->place, path, "a must be less than b");
    else if (c->b - c->a > 1000 * c->std * fmin(1, c->std / distance) && (distance > 0 || c->a == c->mean))
        problems_add(problems, where->place, path,
                     "the interval from a to b is too long for this mean and std: nearly every draw would be rejected");
}

static const struct schema trunc_normal_schema =
    SCHEMA("model.init.trunc_normal", struct trunc_normal_config, .rows = trunc_normal_rows, .shorthand = "std",
           .check = check_truncation);
static const struct schema orthogonal_schema =
    SCHEMA("model.init.orthogonal", struct orthogonal_config, .rows = orthogonal_rows, .shorthand = "gain");
static const struct schema gpt2_schema = SCHEMA("model.init.gpt2", struct gpt2_config, .rows = gpt2_rows);

static void fill(struct rng *rng, float value, float *values, size_t count) {
    for (size_t i = 0; values && i < count; i++) values[i] = value;
}

/* torch's _calculate_fan_in_and_fan_out */
static void fans(const struct param *p, double *in, double *out) {
    size_t field = p->count / (size_t)(p->shape[0] * p->shape[1]);
    *in = (double)((size_t)p->shape[1] * field);
    *out = (double)((size_t)p->shape[0] * field);
}

static void normal(const void *config, const struct param *p, float *values, struct rng *rng) {
    const struct normal_config *c = config;
    rng_normal(rng, values, p->count, c->mean, c->std);
}

static void uniform(const void *config, const struct param *p, float *values, struct rng *rng) {
    const struct uniform_config *c = config;
    rng_uniform(rng, values, p->count, c->from, c->to);
}

static double xavier_std(const void *config, const struct param *p) {
    double in, out;
    fans(p, &in, &out);
    return ((const struct xavier_config *)config)->gain * sqrt(2.0 / (in + out));
}

static void xavier_uniform(const void *config, const struct param *p, float *values, struct rng *rng) {
    double bound = sqrt(3.0) * xavier_std(config, p);
    rng_uniform(rng, values, p->count, -bound, bound);
}

static void xavier_normal(const void *config, const struct param *p, float *values, struct rng *rng) {
    rng_normal(rng, values, p->count, 0, xavier_std(config, p));
}

static double kaiming_std(const void *config, const struct param *p) {
    const struct kaiming_config *c = config;
    double in, out;
    fans(p, &in, &out);
    return sqrt(2.0 / (1 + c->a * c->a)) / sqrt(c->mode == 0 ? in : out);
}

static void kaiming_uniform(const void *config, const struct param *p, float *values, struct rng *rng) {
    double bound = sqrt(3.0) * kaiming_std(config, p);
    rng_uniform(rng, values, p->count, -bound, bound);
}

static void kaiming_normal(const void *config, const struct param *p, float *values, struct rng *rng) {
    rng_normal(rng, values, p->count, 0, kaiming_std(config, p));
}

static void trunc_normal(const void *config, const struct param *p, float *values, struct rng *rng) {
    const struct trunc_normal_config *c = config;
    struct init_truncation t = {.mean = c->mean, .std = c->std, .low = c->a, .high = c->b};
    init_trunc_normal(rng, values, p->count, &t);
}

static void orthogonal(const void *config, const struct param *p, float *values, struct rng *rng) {
    size_t rows = (size_t)p->shape[0];
    if (!values)
        rng_normal(rng, NULL, p->count, 0, 1);
    else
        init_orthogonal(rng, values, rows, p->count / rows, ((const struct orthogonal_config *)config)->gain);
}

static void constant(const void *config, const struct param *p, float *values, struct rng *rng) {
    fill(rng, (float)((const struct constant_config *)config)->value, values, p->count);
}

static void zeros(const void *config, const struct param *p, float *values, struct rng *rng) {
    fill(rng, 0, values, p->count);
}

static void ones(const void *config, const struct param *p, float *values, struct rng *rng) {
    fill(rng, 1, values, p->count);
}

static const struct rule_type {
    struct schema_variant variant;
    bool wants_matrices; /* two or more dimensions */
    bool needs_values;   /* the number of draws depends on the values: .draw gets memory even if a later draw replaces
                            them */
    /* Fills the parameter's values; with values NULL only the generator advances. NULL: gpt2, which is several rules.
     */
    void (*draw)(const void *config, const struct param *param, float *values, struct rng *rng);
    const char *pytorch; /* the same for a parameter p in PyTorch, a template of schema_fill */
} types[] = {
    {.variant = {"normal", &normal_schema, "Normal distribution (torch.nn.init.normal_)."},
     .draw = normal,
     .pytorch = "nn.init.normal_(p, {mean}, {std})"},
    {.variant = {"uniform", &uniform_schema, "Uniform distribution (uniform_)."},
     .draw = uniform,
     .pytorch = "nn.init.uniform_(p, {from}, {to})"},
    {.variant = {"xavier_uniform", &xavier_schema, "Glorot and Bengio, uniform (xavier_uniform_)."},
     .wants_matrices = true,
     .draw = xavier_uniform,
     .pytorch = "nn.init.xavier_uniform_(p, {gain})"},
    {.variant = {"xavier_normal", &xavier_schema, "Glorot and Bengio, normal (xavier_normal_)."},
     .wants_matrices = true,
     .draw = xavier_normal,
     .pytorch = "nn.init.xavier_normal_(p, {gain})"},
    {.variant = {"kaiming_uniform", &kaiming_schema, "He et al., uniform (kaiming_uniform_)."},
     .wants_matrices = true,
     .draw = kaiming_uniform,
     .pytorch = "nn.init.kaiming_uniform_(p, {a}, {mode})"},
    {.variant = {"kaiming_normal", &kaiming_schema, "He et al., normal (kaiming_normal_)."},
     .wants_matrices = true,
     .draw = kaiming_normal,
     .pytorch = "nn.init.kaiming_normal_(p, {a}, {mode})"},
    {.variant = {"trunc_normal", &trunc_normal_schema, "Normal distribution within two bounds (trunc_normal_)."},
     .needs_values = true,
     .draw = trunc_normal,
     .pytorch = "trunc_normal_(p, {mean}, {std}, {a}, {b})"},
    {.variant = {"orthogonal", &orthogonal_schema,
                 "A matrix with orthogonal rows, or columns if there are fewer (orthogonal_)."},
     .wants_matrices = true,
     .draw = orthogonal,
     .pytorch = "nn.init.orthogonal_(p, {gain})"},
    {.variant = {"constant", &constant_schema, "One value (constant_)."},
     .draw = constant,
     .pytorch = "nn.init.constant_(p, {value})"},
    {.variant = {"zeros", NULL, "0 (zeros_)."}, .draw = zeros, .pytorch = "nn.init.zeros_(p)"},
    {.variant = {"ones", NULL, "1 (ones_)."}, .draw = ones, .pytorch = "nn.init.ones_(p)"},
    {.variant = {"gpt2", &gpt2_schema,
                 "As GPT-2 and nanoGPT: weights of linear, embedding and attention layers normal(0, 0.02), biases 0, "
                 "then the last weights of residual branches again with a smaller standard deviation."}},
};

static const struct schema_variant *variant_at(size_t index) {
    return index < sizeof types / sizeof *types ? &types[index].variant : NULL;
}

const struct schema_variants init_variants = {
    .what = "init", .at = variant_at, .common = &target_schema, .is_keyed = true};

static bool matches(const struct string_list *patterns, const char *name) {
    for (size_t i = 0; i < patterns->count; i++)
        if (fnmatch(patterns->items[i], name, 0) == 0) return true;
    return patterns->count == 0;
}

typedef void visitor(void *user, const struct param *param, size_t index);

/* Calls [call] with every parameter of the target, in the order of the rule. */
static void visit(const struct model *model, const struct target *target, visitor *call, void *user) {
    const struct params *params = &model->params;
    for (size_t l = 0; l < model->layer_count; l++) {
        const struct layer *layer = &model->layers[l];
        if (layer->is_sharing) continue;
        if (target->layers.count && !string_list_has(&target->layers, layer->type->variant.name)) continue;
        if (target->layers.count && layer->tied_count) {
            struct text own = {0};
            text_printf(&own, "%s.weight", layer->name);
            if (matches(&target->match, text_string(&own))) call(user, &params->items[layer->tied], layer->tied);
            text_free(&own);
        }
        for (size_t i = layer->first_param; i < layer->first_param + layer->param_count; i++)
            if (matches(&target->match, params->items[i].name)) call(user, &params->items[i], i);
    }
}

struct drawing {
    const struct rule_type *type;
    const void *config;
    const struct params *params;
    struct rng *rng; /* NULL: draws are only counted */
    size_t number;   /* of draws so far */
};

/* The address for the next draw, of parameter [index]; NULL if a later draw replaces it. */
static float *next_draw(struct drawing *d, size_t index) {
    struct param *p = &d->params->items[index];
    d->number++;
    if (!d->rng) p->last_draw = d->number;
    bool is_needed = p->last_draw == d->number || d->type->needs_values;
    return d->rng && is_needed ? params_value(d->params, index) : NULL;
}

static void draw(void *user, const struct param *param, size_t index) {
    struct drawing *d = user;
    float *values = next_draw(d, index);
    if (!d->rng) return;
    if (values) params_draw_begin(d->params, index, 1), values = params_value(d->params, index);
    d->type->draw(d->config, param, values, d->rng);
    if (values) params_draw_end(d->params, index, 1);
}

static void count_one(void *user, const struct param *param, size_t index) { ++*(size_t *)user; }

/* GPT-2: matrices are drawn from normal(0, 0.02), vectors (biases) are 0. */
static void gpt2_base(const void *config, const struct param *p, float *values, struct rng *rng) {
    if (p->dims >= 2)
        rng_normal(rng, values, p->count, 0, 0.02);
    else
        fill(rng, 0, values, p->count);
}

static const struct rule_type gpt2_rule = {.draw = gpt2_base};

static const char *gpt2_layers[] = {"linear", "embedding", "positional_embedding", "attention"};

static void apply_gpt2(const struct model *model, const struct gpt2_config *config, struct drawing *d) {
    const struct target base = {.layers = {gpt2_layers, sizeof gpt2_layers / sizeof *gpt2_layers}},
                        ends = {.match = config->residual};
    size_t count = 0;
    d->type = &gpt2_rule;
    visit(model, &base, draw, d);
    if (config->residual.count == 0) return;
    visit(model, &ends, count_one, &count);
    struct normal_config smaller = {.std = 0.02 / sqrt((double)count)};
    d->type = &types[0];
    d->config = &smaller;
    visit(model, &ends, draw, d);
    d->config = config;
}

static void apply(const struct model *model, const struct variant_list *rules, struct rng *rng) {
    struct drawing d = {.params = &model->params, .rng = rng};
    for (size_t i = 0; i < rules->count; i++) {
        const struct variant *rule = &rules->items[i];
        d.type = &types[rule->index];
        d.config = rule->config;
        if (d.type->draw)
            visit(model, rule->common, draw, &d);
        else
            apply_gpt2(model, rule->config, &d);
    }
}

void init_rules_apply(const struct model *model, const struct variant_list *rules, struct rng *rng) {
    apply(model, rules, rng);
}

struct check {
    size_t count;
    const struct param *vector; /* one with fewer than two dimensions; NULL: none */
};

static void check_param(void *user, const struct param *param, size_t index) {
    struct check *c = user;
    c->count++;
    if (param->dims < 2) c->vector = param;
}

static status check_layers(const struct string_list *layers) {
    for (size_t i = 0; i < layers->count; i++) {
        size_t t = 0;
        while (layer_type_at(t) && strcmp(layer_type_at(t)->variant.name, layers->items[i]) != 0) t++;
        if (!layer_type_at(t)) return status_usage("unknown layer type '%s'", layers->items[i]);
    }
    return OK;
}

static status check_rule(const struct model *model, const struct variant *rule) {
    const struct rule_type *type = &types[rule->index];
    struct target target = *(const struct target *)rule->common;
    struct check found = {0};
    if (!type->draw && (target.match.count || target.layers.count))
        return status_usage("gpt2 selects its parameters itself: remove match and layers");
    TRY(check_layers(&target.layers));
    if (!type->draw) target.match = ((const struct gpt2_config *)rule->config)->residual;
    visit(model, &target, check_param, &found);
    if (found.count == 0)
        return params_no_match(&model->params,
                               type->draw ? "it matches no parameter" : "`residual` matches no parameter");
    if (type->wants_matrices && found.vector)
        return status_usage("'%s' has fewer than two dimensions: exclude it with match", found.vector->name);
    return OK;
}

status init_rules_check(const struct model *model, const struct variant_list *rules) {
    for (size_t i = 0; i < rules->count; i++) {
        const struct variant *rule = &rules->items[i];
        TRY(status_prefix(check_rule(model, rule), "%s: model.init.%zu.%s", place_text(rule->place).s, i, rule->name));
    }
    apply(model, rules, NULL);
    return OK;
}

/* ---- in PyTorch ---- */

/* "nn.Linear, nn.Embedding": the modules of those of the types that the model has. */
static void write_modules(struct text *out, const struct model *model, const struct string_list *types_of_layers) {
    for (size_t i = 0; i < types_of_layers->count; i++) {
        const struct layer_type *type = NULL;
        for (size_t l = 0; l < model->layer_count && !type; l++)
            if (strcmp(model->layers[l].type->variant.name, types_of_layers->items[i]) == 0)
                type = model->layers[l].type;
        if (type && type->pytorch) text_printf(out, "%.*s,", (int)strcspn(type->pytorch, "("), type->pytorch);
    }
}

/* "for p in parameters_of(model, (nn.Linear, ), ["*.weight"]):" */
static void write_loop(struct text *out, const struct model *model, const struct target *target) {
    text_add(out, "for p in parameters_of(model, ");
    if (target->layers.count) text_add(out, "(");
    write_modules(out, model, &target->layers);
    text_add(out, target->layers.count ? "), " : "None, ");
    bool is_given = target->match.count > 0;
    text_add_json_list(out, is_given ? target->match.items : (const char *[]){"*"}, is_given ? target->match.count : 1);
    text_add(out, "):\n    ");
}

static void write_gpt2(struct text *out, const struct model *model, const struct gpt2_config *config) {
    const struct target base = {.layers = {gpt2_layers, sizeof gpt2_layers / sizeof *gpt2_layers}};
    write_loop(out, model, &base);
    text_add(out, "nn.init.normal_(p, 0, 0.02) if p.dim() > 1 else nn.init.zeros_(p)\n");
    if (config->residual.count == 0) return;
    text_add(out, "ends = list(parameters_of(model, None, ");
    text_add_json_list(out, config->residual.items, config->residual.count);
    text_add(out, "))\nfor p in ends:\n    nn.init.normal_(p, 0, 0.02 / math.sqrt(len(ends)))\n");
}

status init_rules_write_pytorch(const struct model *model, const struct variant_list *rules, struct text *out) {
    for (size_t i = 0; i < rules->count; i++) {
        const struct variant *rule = &rules->items[i];
        const struct rule_type *type = &types[rule->index];
        if (!type->draw) {
            write_gpt2(out, model, rule->config);
            continue;
        }
        write_loop(out, model, rule->common);
        TRY(schema_fill(type->variant.schema, rule->config, type->pytorch, NULL, NULL, out));
        text_add(out, "\n");
    }
    return OK;
}
