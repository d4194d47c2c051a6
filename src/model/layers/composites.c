/* sequential, repeat, residual: layers that contain layers. They add a level to the names of the inner layers
 * ("h.0.1.weight"); the built model contains only the steps of the inner layers. */
#include "model/build.h"
#include "model/layers/layers.h"

struct sequential_config {
    struct variant_list layers;
};

struct repeat_config {
    struct variant_list layers;
    int64_t times;
};

struct residual_config {
    struct variant_list layers, shortcut;
};

#define LAYERS(type_, doc_)                                                                                            \
    {                                                                                                                  \
        .key = "layers", .type = SCHEMA_VARIANT_LIST, .offset = offsetof(struct type_, layers),                        \
        .flags = SCHEMA_REQUIRED, .variants = &layer_variants, .doc = doc_                                             \
    }

static const struct schema_row sequential_rows[] = {
    LAYERS(sequential_config, "The layers in order."),
    {0},
};
static const struct schema_row repeat_rows[] = {
    {.key = "times",
     .type = SCHEMA_INT,
     .offset = offsetof(struct repeat_config, times),
     .flags = SCHEMA_REQUIRED,
     .min = 1,
     .max = 10000,
     .doc = "Number of copies in sequence, each with its own parameters."},
    LAYERS(repeat_config, "The layers of one copy; copy i of `h` has the names `h.i...`."),
    {0},
};
static const struct schema_row residual_rows[] = {
    LAYERS(residual_config, "The branch f."),
    {.key = "shortcut",
     .type = SCHEMA_VARIANT_LIST,
     .offset = offsetof(struct residual_config, shortcut),
     .fallback = "[]",
     .variants = &layer_variants,
     .doc = "Layers of the skip connection, for branches that change the shape; none: the input itself. Named "
            "`shortcut.0...`."},
    {0},
};

static const struct schema sequential_schema = {.name = "model.layers.sequential",
                                                .size = sizeof(struct sequential_config),
                                                .rows = sequential_rows,
                                                .shorthand = "layers"};
static const struct schema repeat_schema = {
    .name = "model.layers.repeat", .size = sizeof(struct repeat_config), .rows = repeat_rows};
static const struct schema residual_schema = {.name = "model.layers.residual",
                                              .size = sizeof(struct residual_config),
                                              .rows = residual_rows,
                                              .shorthand = "layers"};

/* Prefix of the names of the layers inside [name]; an empty name adds no level. */
static const char *prefix_of(struct arena *arena, const char *name) {
    return *name ? arena_printf(arena, "%s.", name) : "";
}

static status expand_sequential(struct builder *builder, const struct variant *variant, const char *path,
                                const char *name, size_t in, size_t *out) {
    const struct sequential_config *c = variant->config;
    struct arena *arena = builder->model->arena;
    return build_list(builder, &c->layers, arena_printf(arena, "%s.layers", path), prefix_of(arena, name), in, out);
}

static status expand_repeat(struct builder *builder, const struct variant *variant, const char *path, const char *name,
                            size_t in, size_t *out) {
    const struct repeat_config *c = variant->config;
    struct arena *arena = builder->model->arena;
    *out = in;
    for (int64_t i = 0; i < c->times; i++) {
        in = *out;
        TRY(build_list(builder, &c->layers, arena_printf(arena, "%s.layers", path),
                       arena_printf(arena, "%s%lld.", prefix_of(arena, name), (long long)i), in, out));
    }
    return OK;
}

/* y = f(x) + shortcut(x) */
static status expand_residual(struct builder *builder, const struct variant *variant, const char *path,
                              const char *name, size_t in, size_t *out) {
    const struct residual_config *c = variant->config;
    struct arena *arena = builder->model->arena;
    size_t branch, other;
    TRY(build_list(builder, &c->layers, arena_printf(arena, "%s.layers", path), prefix_of(arena, name), in, &branch));
    TRY(build_list(builder, &c->shortcut, arena_printf(arena, "%s.shortcut", path),
                   arena_printf(arena, "%sshortcut.", prefix_of(arena, name)), in, &other));
    return status_prefix(build_sum(builder, branch, other, out), "%s:%d:%d: %s", variant->place.file,
                         variant->place.line, variant->place.column, path);
}

const struct layer_type layer_sequential = {
    .variant = {"sequential", &sequential_schema, "A sequence of layers (torch.nn.Sequential)."},
    .expand = expand_sequential,
};
const struct layer_type layer_repeat = {
    .variant = {"repeat", &repeat_schema, "The same layers several times, each copy with its own parameters."},
    .expand = expand_repeat,
};
const struct layer_type layer_residual = {
    .variant = {"residual", &residual_schema,
                "y = f(x) + x, or f(x) + shortcut(x): the skip connection of ResNets and transformers."},
    .expand = expand_residual,
};
