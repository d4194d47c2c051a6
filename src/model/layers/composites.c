/* sequential, repeat, residual, parallel: layers that contain layers. They add a level to the names of the inner layers
 * ("h.0.1.weight"); the built model contains only the nodes of the inner layers. */
#include "model/build.h"
#include "model/layers/joins.h"
#include "model/layers/layers.h"

struct sequential_config {
    struct variant_list layers;
    bool has_layers; /* whether the key was given */
};

struct repeat_config {
    struct variant_list layers;
    int64_t times, start;
};

struct residual_config {
    struct variant_list layers, shortcut;
};

/* One branch; a list of layers in place of the section. */
struct branch_config {
    struct variant_list layers;
};

enum join { JOIN_CONCAT, JOIN_ADD };
static const char *const joins[] = {"concat", "add", NULL};

struct parallel_config {
    struct section_list branches; /* of struct branch_config */
    int join;                     /* enum join */
    struct concat_config concat;
};

#define LAYERS(type_, doc_)                                                                                            \
    SCHEMA_ROW(VARIANT_LIST, struct type_, layers, .flags = SCHEMA_REQUIRED, .variants = &layer_variants, .doc = doc_)

static const struct schema_row sequential_rows[] = {
    SCHEMA_ROW(VARIANT_LIST, struct sequential_config, layers,
               .present_offset = offsetof(struct sequential_config, has_layers), .fallback = "[]",
               .variants = &layer_variants, .doc = "The layers in order. Required, unless it shares those of another."),
    {0},
};
static const struct schema_row repeat_rows[] = {
    SCHEMA_ROW(INT, struct repeat_config, times, .flags = SCHEMA_REQUIRED, .min = 1, .max = 10000,
               .doc = "Number of copies in sequence, each with its own parameters."),
    SCHEMA_ROW(INT, struct repeat_config, start, .fallback = "0", .min = 0, .max = 10000,
               .doc = "The number of the first copy in names."),
    LAYERS(repeat_config, "The layers of one copy; copy i of `h` has the names `h.i...`."),
    {0},
};
static const struct schema_row residual_rows[] = {
    LAYERS(residual_config, "The branch f."),
    SCHEMA_ROW(VARIANT_LIST, struct residual_config, shortcut, .fallback = "[]", .variants = &layer_variants,
               .doc = "Layers of the skip connection, for branches that change the shape; none: the input itself. "
                      "Named `shortcut.0...`."),
    {0},
};

static const struct schema_row branch_rows[] = {
    LAYERS(branch_config, "The layers of a branch; none: the input itself."),
    {0},
};
static const struct schema branch_schema =
    SCHEMA("branch", struct branch_config, .rows = branch_rows, .shorthand = "layers");
static const struct schema_row parallel_rows[] = {
    SCHEMA_ROW(SECTION_LIST, struct parallel_config, branches, .flags = SCHEMA_REQUIRED, .section = &branch_schema,
               .doc = "Lists of layers, all with the same input: `[[{linear: 8}], [relu, {linear: 4}]]`. Branch i has "
                      "the names `i...`."),
    SCHEMA_ROW(CHOICE, struct parallel_config, join, .fallback = "concat", .choices = joins,
               .doc = "How the outputs of the branches become one: `concat` along `dim`, or their sum."),
    CONCAT_DIM_ROW(offsetof(struct parallel_config, concat)),
    {0},
};

static const struct schema sequential_schema =
    SCHEMA("model.layers.sequential", struct sequential_config, .rows = sequential_rows, .shorthand = "layers");
static const struct schema repeat_schema = SCHEMA("model.layers.repeat", struct repeat_config, .rows = repeat_rows);
static const struct schema residual_schema =
    SCHEMA("model.layers.residual", struct residual_config, .rows = residual_rows, .shorthand = "layers");

/* Builds the layers [list] inside an entry, its key [key]; [prefix]: of their names after that of the entry, of which
 * an empty one adds no level. */
static status build_inner(struct builder *builder, const struct layer_entry *e, const struct variant_list *list,
                          const char *key, const char *prefix, size_t in, size_t *out) {
    struct arena *arena = builder->model->arena;
    return build_list(builder, list, arena_printf(arena, "%s.%s", e->path, key),
                      arena_printf(arena, "%s%s%s", e->name, *e->name ? "." : "", prefix), in, out);
}

static status expand_sequential(struct builder *builder, const struct layer_entry *e, size_t *out) {
    const struct sequential_config *c = e->variant->config;
    if (!c->has_layers)
        return status_usage("%s: %s.layers: missing; the layers in order", place_text(e->variant->place).s, e->path);
    return build_inner(builder, e, &c->layers, "layers", "", *e->in, out);
}

static status expand_repeat(struct builder *builder, const struct layer_entry *e, size_t *out) {
    const struct repeat_config *c = e->variant->config;
    const struct layer_common *common = e->variant->common;
    *out = *e->in;
    for (int64_t i = 0; i < c->times; i++) {
        const char *copy = arena_printf(builder->model->arena, "%lld.", (long long)c->start + i);
        size_t first = builder->model->node_count;
        TRY(build_inner(builder, e, &c->layers, "layers", copy, *out, out));
        if (common && common->recompute) build_add_block(builder, first);
    }
    return OK;
}

/* y = f(x) + shortcut(x) */
static status expand_residual(struct builder *builder, const struct layer_entry *e, size_t *out) {
    const struct residual_config *c = e->variant->config;
    size_t sides[2];
    TRY(build_inner(builder, e, &c->layers, "layers", "", *e->in, &sides[0]));
    TRY(build_inner(builder, e, &c->shortcut, "shortcut", "shortcut.", *e->in, &sides[1]));
    return build_at(e, build_sum(builder, sides, 2, out));
}

static const struct schema parallel_schema =
    SCHEMA("model.layers.parallel", struct parallel_config, .rows = parallel_rows);

static status expand_parallel(struct builder *builder, const struct layer_entry *e, size_t *out) {
    const struct parallel_config *c = e->variant->config;
    const struct branch_config *branches = c->branches.items;
    struct arena *arena = builder->model->arena;
    size_t outputs[BUILD_MAX_INPUTS], count = c->branches.count;
    if (count < 1 || count > BUILD_MAX_INPUTS)
        return build_at(e,
                        status_usage("branches: expected 1 to %d lists of layers, got %zu", BUILD_MAX_INPUTS, count));
    for (size_t i = 0; i < count; i++)
        TRY(build_inner(builder, e, &branches[i].layers, arena_printf(arena, "branches.%zu", i),
                        arena_printf(arena, "%zu.", i), *e->in, &outputs[i]));
    if (c->join == JOIN_ADD) return build_at(e, build_sum(builder, outputs, count, out));
    struct variant concat = {.config = (void *)&c->concat, .place = e->variant->place};
    return build_layer(builder, &layer_concat, &(struct layer_entry){&concat, e->path, e->name, outputs, count}, out);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "residual_block skip skip_connection shortcut", "residual"),
    VALUE_ALIAS("layer", "ModuleList block", "sequential"),
    VALUE_ALIAS("layer", "branches inception", "parallel"),
    KEY_ALIAS("layer.parallel", "axis", ".dim"),
    KEY_ALIAS("layer.repeat", "n num count repeats number", ".times"),
    {0},
};

const struct layer_type layer_sequential = {
    .aliases = aliases,
    .variant = {"sequential", &sequential_schema, "A sequence of layers (torch.nn.Sequential)."},
    .expand = expand_sequential,
};
const struct layer_type layer_repeat = {
    .variant = {"repeat", &repeat_schema, "The same layers several times, each copy with its own parameters."},
    .expand = expand_repeat,
    .makes_blocks = true,
};
const struct layer_type layer_residual = {
    .variant = {"residual", &residual_schema,
                "y = f(x) + x, or f(x) + shortcut(x): the skip connection of ResNets and transformers."},
    .expand = expand_residual,
};
const struct layer_type layer_parallel = {
    .variant = {"parallel", &parallel_schema,
                "Several lists of layers with the same input, whose outputs are joined: Inception, and models with two "
                "paths."},
    .expand = expand_parallel,
};
