/* slice: a part of the input along one dimension (Tensor.narrow). */
#include "model/build.h"
#include "model/layers/joins.h"
#include "model/layers/layers.h"

struct slice_config {
    int64_t dim, start, end;
};

static const struct schema_row rows[] = {
    SCHEMA_ROW(INT, struct slice_config, start, .fallback = "0", .min = 0, .max = INFINITY, .doc = "The first index."),
    SCHEMA_ROW(INT, struct slice_config, end, .flags = SCHEMA_REQUIRED, .min = 1, .max = INFINITY,
               .doc = "The index after the last one."),
    DIM_ROW(slice_config, "The dimension", .fallback = "1"),
    {0},
};
static const struct schema schema = SCHEMA("model.layers.slice", struct slice_config, .rows = rows);

static int dimension_of(const struct layer *layer) {
    return join_dimension(&layer->in, ((const struct slice_config *)layer->config)->dim);
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct slice_config *c = layer->config;
    int dimension = dimension_of(layer);
    TRY(join_check_dimension(&layer->in, c->dim));
    if (c->start >= c->end || c->end > layer->in.size[dimension])
        return status_usage("start %lld and end %lld: the input has %lld elements along dim %lld", (long long)c->start,
                            (long long)c->end, (long long)layer->in.size[dimension], (long long)c->dim);
    layer->out = layer->in;
    layer->out.size[dimension] = c->end - c->start;
    return OK;
}

/* The columns of the slice: from element [at] of every [stride], [width] of them. */
static void columns_of(const struct layer *layer, size_t *outer, size_t *at, size_t *stride, size_t *width) {
    const struct slice_config *c = layer->config;
    int dimension = dimension_of(layer);
    size_t inner;
    join_blocks(&layer->in, dimension, outer, &inner);
    *at = (size_t)c->start * inner;
    *stride = (size_t)layer->in.size[dimension] * inner;
    *width = (size_t)(c->end - c->start) * inner;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t outer, at, stride, width;
    columns_of(layer, &outer, &at, &stride, &width);
    pass->ops->copy_columns(pass->device, floats(o.x) + at, stride, floats(o.y), width, pass->rows * outer, width);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t outer, at, stride, width;
    if (!o.dx) return;
    columns_of(layer, &outer, &at, &stride, &width);
    device_zero(pass->device, floats(o.dx), pass->rows * layer->in_size * sizeof(float));
    pass->ops->copy_columns(pass->device, floats(o.dy), width, floats(o.dx) + at, stride, pass->rows * outer, width);
}

static const char *write_onnx(const struct onnx_call *c) {
    const struct slice_config *config = c->layer->config;
    return onnx_slice(c->g, c->x, dimension_of(c->layer) + 1, config->start, config->end);
}

static void write_c(const struct c_call *c) {
    const struct slice_config *config = c->layer->config;
    int dimension = dimension_of(c->layer);
    size_t outer, inner, start = (size_t)config->start, count = (size_t)config->end - start;
    join_blocks(&c->layer->in, dimension, &outer, &inner);
    c_columns(c, arena_printf(c->c->arena, "%s + %zu", c->x, start * inner),
              (size_t)c->layer->in.size[dimension] * inner, c->y, count * inner, outer, count * inner);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "narrow crop", "slice"),
    VALUE_ALIAS("layer", "tensor_split", "chunk"),
    KEY_ALIAS("layer.slice", "axis", ".dim"),
    KEY_ALIAS("layer.chunk", "axis", ".dim"),
    KEY_ALIAS("layer.chunk", "n sections parts num_chunks", ".chunks"),
    KEY_ALIAS("layer.split", "axis", ".dim"),
    KEY_ALIAS("layer.split", "sizes size split_sizes split_size_or_sections sections", ".split_size"),
    {0},
};

const struct layer_type layer_slice = {
    .aliases = aliases,
    .variant = {"slice", &schema, "The elements start to end - 1 along a dimension (Tensor.narrow)."},
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "part_of({x}, {dim}, {start}, {end})",
};

/* ---- chunk and split ---- */

/* chunk and split: the inverse of concat (torch.chunk, torch.split). Each part is a slice with a name of its own. */

struct parts_config {
    struct string_list names;
    int64_t dim, chunks;
    struct int_list split_size;
};

#define NAMES_ROW                                                                                                      \
    SCHEMA_ROW(STRING_LIST, struct parts_config, names, .flags = SCHEMA_REQUIRED,                                      \
               .doc = "The names of the parts, for `from:`, as many as there are parts. A layer without `from:` "      \
                      "takes the last part.")

static const struct schema_row chunk_rows[] = {
    SCHEMA_ROW(INT, struct parts_config, chunks, .flags = SCHEMA_REQUIRED, .min = 1, .max = 4096,
               .doc =
                   "The number of parts, of equal sizes; the last one is smaller if they do not divide the dimension."),
    NAMES_ROW,
    DIM_ROW(parts_config, "The dimension", .fallback = "1"),
    {0},
};
static const struct schema_row split_rows[] = {
    SCHEMA_ROW(INT_LIST, struct parts_config, split_size, .flags = SCHEMA_REQUIRED, .min = 1, .max = INFINITY,
               .doc = "The sizes of the parts, or one size of all; then the last one may be smaller."),
    NAMES_ROW,
    DIM_ROW(parts_config, "The dimension", .fallback = "1"),
    {0},
};
static const struct schema chunk_schema = SCHEMA("model.layers.chunk", struct parts_config, .rows = chunk_rows);
static const struct schema split_schema = SCHEMA("model.layers.split", struct parts_config, .rows = split_rows);

/* The size of part [i], of all that [left] elements allow; 0: there is none. */
static int64_t part_size(const struct parts_config *c, size_t i, int64_t size, int64_t left) {
    bool has_sizes = c->split_size.count > 1;
    int64_t wanted = c->chunks > 0 ? (size - 1) / c->chunks + 1 : c->split_size.items[has_sizes ? i : 0];
    return has_sizes || wanted < left ? wanted : left;
}

/* The number of parts; their sizes must be those of the dimension. */
static status count_parts(const struct parts_config *c, const struct shape *in, int dimension, size_t *count) {
    int64_t size = in->size[dimension], left = size;
    if (c->chunks == 0 && c->split_size.count == 0) return status_usage("split_size: the list is empty");
    for (*count = 0; left > 0 && (c->split_size.count < 2 || *count < c->split_size.count); ++*count)
        left -= part_size(c, *count, size, left);
    if (left != 0 || (c->split_size.count > 1 && *count != c->split_size.count))
        return status_usage("split_size: the sizes do not add up to the %lld elements along dim %lld", (long long)size,
                            (long long)c->dim);
    if (*count != c->names.count)
        return status_usage("names: expected %zu, one for each part of the %lld elements along dim %lld, got %zu",
                            *count, (long long)size, (long long)c->dim, c->names.count);
    return OK;
}

static status check(const struct parts_config *c, const struct shape *in, int dimension, size_t *count) {
    TRY(join_check_dimension(in, c->dim));
    TRY(count_parts(c, in, dimension, count));
    for (size_t i = 0; i < *count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(c->names.items[i], c->names.items[k]) == 0)
                return status_usage("names: '%s' is in the list twice", c->names.items[i]);
    for (size_t i = 0; i < *count; i++)
        if (!*c->names.items[i] || strpbrk(c->names.items[i], "./"))
            return status_usage("names: a name must not be empty or contain '.' or '/', got '%s'", c->names.items[i]);
    return OK;
}

static status expand(struct builder *builder, const struct layer_entry *e, size_t *out) {
    const struct parts_config *c = e->variant->config;
    struct arena *arena = builder->model->arena;
    struct shape shape = builder->model->tensors[*e->in].shape;
    int dimension = join_dimension(&shape, c->dim);
    size_t count = 0;
    int64_t start = 0;
    TRY(build_at(e, check(c, &shape, dimension, &count)));
    for (size_t i = 0; i < count; i++) {
        const char *part = arena_copy(arena, c->names.items[i]);
        struct slice_config *slice = arena_alloc(arena, sizeof *slice);
        int64_t size = shape.size[dimension];
        *slice = (struct slice_config){c->dim, start, start + part_size(c, i, size, size - start)};
        start = slice->end;
        struct variant one = {.config = slice, .common = e->variant->common, .place = e->variant->place};
        const char *own = arena_printf(arena, "%s/%s", e->name, part),
                   *path = arena_printf(arena, "%s.%s", e->path, part);
        TRY(build_layer(builder, &layer_slice, &(struct layer_entry){&one, path, own, e->in, 1}, out));
        TRY(build_at(e, build_add_name(builder, part, *out, own, e->variant)));
    }
    return OK;
}

const struct layer_type layer_chunk = {
    .variant = {"chunk", &chunk_schema,
                "Parts of equal size along a dimension, each with a name (torch.chunk): `chunk: {chunks: 3, dim: -1, "
                "names: [q, k, v]}`."},
    .expand = expand,
};
const struct layer_type layer_split = {
    .variant = {"split", &split_schema,
                "Parts of given sizes along a dimension, each with a name (torch.split): `split: {split_size: [8, 4], "
                "names: [a, b]}`. A single part is a slice."},
    .expand = expand,
};
