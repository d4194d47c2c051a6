/* add, concat, multiply: layers that take several outputs. */
#include "model/layers/joins.h"

#include "model/build.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"

int join_dimension(const struct shape *shape, int64_t dim) {
    int64_t index = dim > 0 ? dim - 1 : dim < 0 ? shape->dims + dim : -1;
    return index >= 0 && index < shape->dims ? (int)index : -1;
}

status join_check_dimension(const struct shape *shape, int64_t dim) {
    if (join_dimension(shape, dim) >= 0) return OK;
    return status_usage("dim %lld: the input has the dimensions 1 to %d (0 is the batch)", (long long)dim, shape->dims);
}

void join_blocks(const struct shape *shape, int dimension, size_t *outer, size_t *inner) {
    *outer = *inner = 1;
    for (int d = 0; d < shape->dims; d++) {
        /* channels last: dimension 0 is the innermost, the others keep their order */
        bool is_inside = shape->is_channels_last ? dimension != 0 && (d > dimension || d == 0) : d > dimension;
        if (d != dimension) *(is_inside ? inner : outer) *= (size_t)shape->size[d];
    }
}

static status differ(const struct layer *layer, size_t input, const char *why) {
    return status_usage("%s: input 1 has %s, input %zu has %s", why, shape_text(&layer->ins[0]).s, input + 1,
                        shape_text(&layer->ins[input]).s);
}

static bool is_image(const struct shape *shape) {
    return shape->dims == 3 && !shape->is_tokens && shape->size[1] * shape->size[2] > 1;
}

/* *shape: of the first image among the inputs; dims 0: there is none. */
static struct shape find_image(const struct builder *builder, const struct layer_entry *e) {
    const struct planned_tensor *tensors = builder->model->tensors;
    for (size_t i = 0; i < e->count; i++)
        if (is_image(&tensors[e->in[i]].shape)) return tensors[e->in[i]].shape;
    return (struct shape){0};
}

/* Sets [own] (e->count) to the inputs, where one of (channels, 1, 1) becomes an image as large as the others: the
 * factor of each channel in squeeze and excitation. */
static status enlarge(struct builder *builder, const struct layer_entry *e, size_t *own) {
    struct arena *arena = builder->model->arena;
    struct shape image = find_image(builder, e);
    for (size_t i = 0; i < e->count; i++) {
        const struct shape *shape = &builder->model->tensors[e->in[i]].shape;
        own[i] = e->in[i];
        if (image.dims == 0 || shape->dims != 3 || is_image(shape) || shape->size[0] != image.size[0]) continue;
        struct variant of_size = {.config = upsample_to(arena, image.size[1], image.size[2])};
        of_size.place = e->variant->place;
        struct layer_entry larger = {&of_size, e->path, arena_printf(arena, "%s/%zu", e->name, i), &e->in[i], 1};
        TRY(build_layer(builder, &layer_upsample, &larger, &own[i]));
    }
    return OK;
}

/* ---- add ---- */

static status expand_add(struct builder *builder, const struct layer_entry *e, size_t *out) {
    size_t own[BUILD_MAX_INPUTS];
    TRY(enlarge(builder, e, own));
    return build_at(e, build_sum(builder, own, e->count, out));
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "cat Concatenate", "concat"),
    VALUE_ALIAS("layer", "mul", "multiply"),
    VALUE_ALIAS("layer", "sum plus", "add"),
    KEY_ALIAS("layer.concat", "axis", ".dim"),
    {0},
};

const struct layer_type layer_add = {
    .aliases = aliases,
    .variant = {"add", NULL,
                "The sum of several outputs of the same shape: `add: {from: [a, b]}` (a + b). One of (channels, 1, 1) "
                "is added to each pixel of an image."},
    .joins = true,
    .expand = expand_add,
};

/* ---- concat ---- */

static const struct schema_row concat_rows[] = {CONCAT_DIM_ROW(0), {0}};
static const struct schema concat_schema =
    SCHEMA("model.layers.concat", struct concat_config, .rows = concat_rows, .shorthand = "dim");

static int dimension_of(const struct layer *layer) {
    return join_dimension(&layer->in, ((const struct concat_config *)layer->config)->dim);
}

static status plan_concat(struct layer *layer, struct planning *planning) {
    int dimension = dimension_of(layer);
    if (dimension < 0)
        return status_usage("dim %lld: the inputs have the dimensions 1 to %d (0 is the batch)",
                            (long long)((const struct concat_config *)layer->config)->dim, layer->in.dims);
    layer->out = layer->in;
    for (size_t i = 1; i < layer->in_count; i++) {
        const struct shape *shape = &layer->ins[i];
        if (shape->dims != layer->in.dims) return differ(layer, i, "the inputs have another number of dimensions");
        for (int d = 0; d < shape->dims; d++)
            if (d != dimension && shape->size[d] != layer->in.size[d])
                return differ(layer, i, "the inputs may differ only in the dimension along which they are joined");
        if (__builtin_add_overflow(layer->out.size[dimension], shape->size[dimension], &layer->out.size[dimension]))
            return differ(layer, i, "the inputs are too large");
    }
    return OK;
}

static bool joins_channels(const struct layer *layer) {
    size_t outer, inner;
    join_blocks(&layer->out, dimension_of(layer), &outer, &inner);
    return dimension_of(layer) == 0 && inner == 1;
}

/* Copies the part of each input between it and the output or, backward, their gradients, unless it is there already
 * (model/concat.h). */
static void copy_parts(const struct layer *layer, const struct pass *pass, struct operands o) {
    int dimension = dimension_of(layer);
    size_t outer, inner, at = 0;
    join_blocks(&layer->out, dimension, &outer, &inner);
    const struct tensor *whole = o.dy ? o.dy : o.y;
    size_t stride = whole->stride ? whole->stride : (size_t)layer->out.size[dimension] * inner;
    for (size_t i = 0; i < layer->in_count; i++) {
        const struct tensor *part = o.dy ? &o.dx[i] : &o.x[i];
        size_t width = (size_t)layer->ins[i].size[dimension] * inner;
        size_t part_stride = part->stride ? part->stride : width;
        float *own = floats(part), *in_whole = floats(whole) + at;
        bool is_there = !own || own == in_whole;
        if (o.dy && !is_there)
            pass->ops->copy_columns(pass->device, in_whole, stride, own, part_stride, pass->rows * outer, width);
        else if (!is_there)
            pass->ops->copy_columns(pass->device, own, part_stride, in_whole, stride, pass->rows * outer, width);
        at += width;
    }
}

static const char *concat_onnx(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", dimension_of(c->layer) + 1);
    return onnx_node(c->g, "Concat", c->inputs, c->layer->in_count, &attributes);
}

static void concat_c(const struct c_call *c) {
    const struct layer *layer = c->layer;
    int dimension = dimension_of(layer);
    size_t outer, inner, at = 0;
    join_blocks(&layer->out, dimension, &outer, &inner);
    for (size_t i = 0; i < layer->in_count; i++) {
        size_t width = (size_t)layer->ins[i].size[dimension] * inner;
        c_columns(c, c->inputs[i], width, arena_printf(c->c->arena, "%s + %zu", c->y, at),
                  (size_t)layer->out.size[dimension] * inner, outer, width);
        at += width;
    }
}

const struct layer_type layer_concat = {
    .variant = {"concat", &concat_schema,
                "Several outputs one after another along a dimension: `concat: {from: [a, b], dim: 1}` (torch.cat)."},
    .joins = true,
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_X_AND_Y,
    .is_by_position = true,
    .joins_channels = joins_channels,
    .plan = plan_concat,
    .forward = copy_parts,
    .backward = copy_parts,
    .onnx = concat_onnx,
    .c = concat_c,
    .pytorch = "torch.cat([{xs}], {dim})",
};

/* ---- multiply ---- */

static status plan_multiply(struct layer *layer, struct planning *planning) {
    layer->out = layer->in;
    if (layer->in_count != 2)
        return status_usage("multiplies two outputs, got %zu; use one multiply after another", layer->in_count);
    return shape_is_equal(&layer->ins[0], &layer->ins[1]) ? OK : differ(layer, 1, "the inputs have different shapes");
}

static void multiply_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    pass->ops->multiply(pass->device, floats(&o.x[0]), floats(&o.x[1]), floats(o.y), pass->rows * layer->out_size);
}

static void multiply_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    for (int i = 0; i < 2; i++)
        if (o.dx[i].data)
            pass->ops->multiply(pass->device, floats(o.dy), floats(&o.x[1 - i]), floats(&o.dx[i]),
                                pass->rows * layer->out_size);
}

static const char *multiply_onnx(const struct onnx_call *c) {
    return onnx_node2(c->g, "Mul", c->inputs[0], c->inputs[1]);
}

static void multiply_c(const struct c_call *c) {
    text_printf(&c->c->body, "    multiply(%s, %s, %s, %zu);\n", c->inputs[0], c->inputs[1], c->y, c->layer->out_size);
}

static const struct layer_type product = {
    .variant = {"multiply", NULL, "The product of two outputs of the same shape."},
    .joins = true,
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_Y,
    .is_by_position = true,
    .plan = plan_multiply,
    .forward = multiply_forward,
    .backward = multiply_backward,
    .onnx = multiply_onnx,
    .c = multiply_c,
};

static status expand_multiply(struct builder *builder, const struct layer_entry *e, size_t *out) {
    size_t own[BUILD_MAX_INPUTS];
    TRY(enlarge(builder, e, own));
    return build_layer(builder, &product, &(struct layer_entry){e->variant, e->path, e->name, own, e->count}, out);
}

const struct layer_type layer_multiply = {
    .variant = {"multiply", NULL,
                "The product of two outputs, element by element: `multiply: {from: [gate, value]}` (a * b). One of "
                "(channels, 1, 1) multiplies each pixel of an image."},
    .joins = true,
    .expand = expand_multiply,
    .pytorch = "{x} * {x1}",
};
