/* The table of layer types, and the keys that all of them have. */
#include "model/layer.h"

#include <stdio.h>
#include <string.h>

#include "model/layers/layers.h"

static const void *const types[] = {
#define X(name) &layer_##name,
    LAYER_TYPES(X)
#undef X
};

static struct type_table table = {.own = types, .own_count = sizeof types / sizeof *types};

const struct layer_type *layer_type_at(size_t index) { return type_table_at(&table, index); }

size_t layer_type_count(void) { return table.own_count + table.added_count; }

bool layer_type_add(const struct layer_type *type) { return type_table_add(&table, type); }

static const struct schema_variant *variant_at(size_t index) {
    const struct layer_type *type = layer_type_at(index);
    return type ? &type->variant : NULL;
}

static const struct schema_row common_rows[] = {
    SCHEMA_ROW(STRING, struct layer_common, name, .fallback = "null",
               .doc = "Replaces the layer's index in the names of its parameters (`fc1.weight` instead of `0.weight`). "
                      "Other layers of the same list, and those inside them, take its output by this name (`from`)."),
    SCHEMA_ROW(STRING_LIST, struct layer_common, from, .fallback = "null",
               .doc = "Takes the output of the layer of this `name` instead of the layer before; `input` is the "
                      "model's input. Layers that join, such as add, take a list of names, or one that they join with "
                      "the output of the layer before."),
    SCHEMA_ROW(
        STRING, struct layer_common, share, .fallback = "null",
        .doc = "Uses the parameters and running statistics of the earlier layer of this `name`, of the same type and "
               "shapes (a module that PyTorch's forward calls twice). A `sequential` then has the layers of that one."),
    SCHEMA_ROW(BOOL, struct layer_common, recompute, .fallback = "false", .flags = SCHEMA_EXTENDS,
               .doc = "Training keeps only the input and output of the layer, or of the layers inside it, and computes "
                      "the rest again in backward (torch.utils.checkpoint): less memory, more time, the same bits. Of "
                      "a `repeat` each copy is kept so."),
    {0},
};

static const struct schema common = SCHEMA("layer", struct layer_common, .rows = common_rows);

const struct schema_variants layer_variants = {.what = "layer", .at = variant_at, .common = &common, .is_keyed = true};

bool layer_is_identity(const struct layer *layer) { return layer->type->is_view || layer->type->is_identity; }

struct layer_facts layer_facts_of(const struct layer *layer) {
    struct layer_facts facts = {.padding = -1, .layer_norm_eps = -1, .rms_norm_eps = -1};
    if (layer->type->facts) layer->type->facts(layer, &facts);
    return facts;
}

size_t shape_elements(const struct shape *shape) {
    size_t elements = 1;
    for (int d = 0; d < shape->dims; d++) elements *= (size_t)shape->size[d];
    return elements;
}

bool shape_is_equal(const struct shape *a, const struct shape *b) {
    return a->dims == b->dims && memcmp(a->size, b->size, (size_t)a->dims * sizeof *a->size) == 0;
}

status layer_plan_same(struct layer *layer, struct planning *planning) {
    layer->out = layer->in;
    return OK;
}

void layer_declare(const struct layer *layer, struct planning *planning, const char *name, int dims,
                   const int64_t *shape) {
    params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.%s", layer->name, name), dims,
                   shape);
}

struct shape_text shape_text(const struct shape *shape) {
    struct shape_text out = {.s = "("};
    size_t length = shape->dims != 1;
    for (int d = 0; d < shape->dims; d++)
        length += (size_t)snprintf(out.s + length, 24, "%s%lld", d ? ", " : "", (long long)shape->size[d]);
    if (shape->dims != 1) snprintf(out.s + length, 2, ")");
    return out;
}
