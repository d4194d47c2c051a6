/* The table of layer types, and the keys that all of them have. */
#include "model/layer.h"

#include "model/layers/layers.h"

static const struct layer_type *const types[] = {
#define X(name) &layer_##name,
    LAYER_TYPES(X)
#undef X
};

const struct layer_type *layer_type_at(size_t index) {
    return index < sizeof types / sizeof *types ? types[index] : NULL;
}

static const struct schema_variant *variant_at(size_t index) {
    const struct layer_type *type = layer_type_at(index);
    return type ? &type->variant : NULL;
}

static const struct schema_row common_rows[] = {
    {.key = "name",
     .type = SCHEMA_STRING,
     .offset = offsetof(struct layer_common, name),
     .fallback = "null",
     .doc = "Replaces the layer's index in the names of its parameters (`fc1.weight` instead of `0.weight`)."},
    {0},
};

static const struct schema common = {.name = "layer", .size = sizeof(struct layer_common), .rows = common_rows};

const struct schema_variants layer_variants = {.what = "layer", .at = variant_at, .common = &common, .is_keyed = true};

size_t shape_elements(const struct shape *shape) {
    size_t elements = 1;
    for (int d = 0; d < shape->dims; d++) elements *= (size_t)shape->size[d];
    return elements;
}

void shape_print(const struct shape *shape, struct text *out) {
    if (shape->dims != 1) text_add(out, "(");
    for (int d = 0; d < shape->dims; d++) text_printf(out, "%s%lld", d ? ", " : "", (long long)shape->size[d]);
    if (shape->dims != 1) text_add(out, ")");
}
