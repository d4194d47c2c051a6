/* reshape: the elements of a row with another shape (torch.nn.Unflatten, Tensor.reshape). Memory is contiguous, so
 * nothing is copied. */
#include "base/text.h"
#include "model/layers/layers.h"

struct reshape_config {
    struct int_list shape;
};

static const struct schema_row rows[] = {
    SCHEMA_ROW(INT_LIST, struct reshape_config, shape, .flags = SCHEMA_REQUIRED, .min = -1, .max = 1 << 30,
               .doc = "Shape of a row, without the batch; one size may be -1: it is inferred."),
    {0},
};
static const struct schema schema =
    SCHEMA("model.layers.reshape", struct reshape_config, .rows = rows, .shorthand = "shape");

static status wrong_shape(const struct layer *layer, const char *what) {
    return status_usage("%s; its input is %s, %zu elements", what, shape_text(&layer->in).s, layer->in_size);
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct int_list *shape = &((const struct reshape_config *)layer->config)->shape;
    if (shape->count < 1 || shape->count > MAX_DIMS) return wrong_shape(layer, "shape must have 1 to 8 sizes");
    size_t known = 1;
    int inferred = -1;
    layer->out = (struct shape){.dims = (int)shape->count, .input = layer->in.input};
    for (int d = 0; d < layer->out.dims; d++) {
        int64_t size = layer->out.size[d] = shape->items[d];
        if (size == 0) return wrong_shape(layer, "a size must not be 0");
        if (size < 0 && inferred >= 0) return wrong_shape(layer, "only one size may be -1");
        if (size < 0)
            inferred = d;
        else if (__builtin_mul_overflow(known, (size_t)size, &known))
            return wrong_shape(layer, "the sizes do not multiply to the input's elements");
    }
    if (inferred >= 0 && layer->in_size % known == 0) {
        layer->out.size[inferred] = (int64_t)(layer->in_size / known);
        known = layer->in_size;
    }
    return known == layer->in_size ? OK : wrong_shape(layer, "the sizes do not multiply to the input's elements");
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "view unflatten", "reshape"),
    KEY_ALIAS("layer.reshape", "size target_shape dims view", ".shape"),
    KEY_ALIAS_NOTE("layer.flatten", "start_dim end_dim", NULL,
                   "flatten joins all dimensions of a row; leave the key out"),
    CALL_ALIAS("layer", "flatten", "start_dim end_dim"),
    {0},
};

const struct layer_type layer_reshape = {
    .aliases = aliases,
    .variant = {"reshape", &schema, "The same elements with another shape (Tensor.reshape of each row)."},
    .is_view = true,
    .plan = plan,
    .pytorch = "{x}.reshape(len({x}), {shape})",
};

/* ---- flatten ---- */

/* flatten: merges all dimensions of a row into one (torch.nn.Flatten). Memory is contiguous, so nothing is copied. */

static status flatten_plan(struct layer *layer, struct planning *planning) {
    layer->out = (struct shape){.dims = 1, .size = {(int64_t)shape_elements(&layer->in)}};
    return OK;
}

const struct layer_type layer_flatten = {
    .variant = {"flatten", NULL, "Merges all dimensions of a row into one (torch.nn.Flatten)."},
    .is_view = true,
    .plan = flatten_plan,
};
