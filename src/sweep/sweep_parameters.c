/* The values of a sweep that have keys of the user's: `parameters`, and with method: list the mappings of `trials`. */
#include <string.h>

#include "sweep/sweep_config_internal.h"

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

/* ---- reading ---- */

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

void sweep_read_parameters(const struct node *node, struct sweep_config *sweep, struct arena *arena,
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

void sweep_read_list(const struct node *list, struct sweep_config *sweep, struct arena *arena,
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

void sweep_write_parameters(const struct sweep_config *sweep, struct text *out) {
    if (sweep->space.count) text_add(out, "parameters:\n");
    for (size_t i = 0; i < sweep->space.count; i++) write_parameter(&sweep->space.items[i], out);
}

void sweep_write_list(const struct sweep_config *sweep, struct text *out) {
    if (sweep->list) text_add(out, "trials:\n");
    for (int64_t i = 0; sweep->list && i < sweep->trials; i++) write_trial(sweep->list[i], out);
}
