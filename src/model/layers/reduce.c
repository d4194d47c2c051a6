/* mean and max along dimensions (torch.mean, torch.max); a mean over positions leaves out those that are padding. A
 * maximum stores its index for backward. */
#include "model/build.h"
#include "model/layers/images.h"
#include "model/layers/joins.h"
#include "model/layers/layers.h"

struct reduce_config {
    int64_t dim;
    bool keepdim;
};

struct mean_config {
    struct int_list dims;
    bool keepdim;
};

#define KEEPDIM_ROW(type_)                                                                                             \
    SCHEMA_ROW(BOOL, struct type_, keepdim, .fallback = "false", .doc = "Whether the dimension stays, with the size 1.")

static const struct schema_row mean_rows[] = {
    SCHEMA_KEY(INT_LIST, "dim", struct mean_config, dims, .fallback = "1", .min = -MAX_DIMS, .max = MAX_DIMS,
               .doc = "The dimension, or several, as in PyTorch: 0 is the batch, 1 the channels of an image or the "
                      "features of a vector, -1 the last."),
    KEEPDIM_ROW(mean_config),
    {0},
};
static const struct schema_row max_rows[] = {
    DIM_ROW(reduce_config, "The dimension", .flags = SCHEMA_REQUIRED),
    KEEPDIM_ROW(reduce_config),
    {0},
};
static const struct schema mean_schema =
    SCHEMA("model.layers.mean", struct mean_config, .rows = mean_rows, .shorthand = "dim");
static const struct schema max_schema =
    SCHEMA("model.layers.max", struct reduce_config, .rows = max_rows, .shorthand = "dim");

static int dimension_of(const struct layer *layer) {
    return join_dimension(&layer->in, ((const struct reduce_config *)layer->config)->dim);
}

static void remove_dimension(struct shape *shape, int dimension) {
    for (int d = dimension; d + 1 < shape->dims; d++) shape->size[d] = shape->size[d + 1];
    shape->dims--;
    if (dimension == 0 || shape->dims < 2) shape->is_channels_last = false;
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct reduce_config *c = layer->config;
    int dimension = dimension_of(layer);
    TRY(join_check_dimension(&layer->in, c->dim));
    if (layer->in.dims == 1 && !c->keepdim) return status_usage("a row must keep a dimension: add keepdim: true");
    layer->out = layer->in;
    if (c->keepdim)
        layer->out.size[dimension] = 1;
    else
        remove_dimension(&layer->out, dimension);
    return OK;
}

/* In memory, the input is (outer, count, inner). */
static void blocks_of(const struct layer *layer, size_t *outer, size_t *count, size_t *inner) {
    int dimension = dimension_of(layer);
    join_blocks(&layer->in, dimension, outer, inner);
    *count = (size_t)layer->in.size[dimension];
}

/* The lengths of the positions along which it is. */
static const int32_t *lengths_of(const struct layer *layer, const struct pass *pass) {
    return dimension_of(layer) == 0 ? pass_lengths(pass, &layer->in) : NULL;
}

/* ---- in other formats ---- */

/* The lengths of the positions along which it is; 0: all are real. */
static size_t lengths_number(const struct layer *layer) { return dimension_of(layer) == 0 ? layer->in.lengths : 0; }

static void facts(const struct layer *layer, struct layer_facts *to) { to->lengths = lengths_number(layer); }

static const char *reduction_onnx(const struct onnx_call *c, const char *x, const char *type) {
    struct text attributes = {0};
    const int64_t axis = dimension_of(c->layer) + 1;
    onnx_int(&attributes, "keepdims", c->layer->out.dims == c->layer->in.dims);
    return onnx_node(c->g, type, (const char *const[]){x, onnx_numbers(c->g, &axis, 1)}, 2, &attributes);
}

/* [x], whose elements are one for each row of the batch or position of it, with dimensions of 1 behind them. */
static const char *with_dims(const struct onnx_call *c, const char *x, int64_t positions, int dims) {
    int64_t shape[MAX_DIMS] = {positions};
    for (int d = 1; d < dims; d++) shape[d] = 1;
    return onnx_reshape(c->g, x, shape, (size_t)dims);
}

/* The reduction of the positions before the end of each row; the others count as [padding]. */
static const char *real_reduction_onnx(const struct onnx_call *c, const char *type, float padding) {
    const struct shape *in = &c->layer->in;
    const char *are_real = onnx_real_positions(c->g, lengths_number(c->layer), in->size[0]);
    const char *other = onnx_scalar(c->g, padding);
    const char *real = onnx_where(c->g, with_dims(c, are_real, in->size[0], in->dims), c->x, other);
    return reduction_onnx(c, real, type);
}

/* ---- mean ---- */

static void mean_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t outer, count, inner;
    blocks_of(layer, &outer, &count, &inner);
    pass->ops->sequence->mean_forward(pass->device, floats(o.x), lengths_of(layer, pass), floats(o.y),
                                      pass->rows * outer, count, inner);
}

static void mean_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t outer, count, inner;
    if (!o.dx) return;
    blocks_of(layer, &outer, &count, &inner);
    pass->ops->sequence->mean_backward(pass->device, floats(o.dy), lengths_of(layer, pass), floats(o.dx),
                                       pass->rows * outer, count, inner);
}

static const char *mean_onnx(const struct onnx_call *c) {
    struct onnx_graph *g = c->g;
    size_t lengths = lengths_number(c->layer);
    if (!lengths) return reduction_onnx(c, c->x, "ReduceMean");
    const char *total = real_reduction_onnx(c, "ReduceSum", 0);
    const char *count = onnx_cast(g, onnx_lengths(g, lengths), ONNX_FLOAT);
    return onnx_node2(g, "Div", total, with_dims(c, count, 1, c->layer->out.dims));
}

static void mean_c(const struct c_call *c) {
    size_t outer, count, inner;
    blocks_of(c->layer, &outer, &count, &inner);
    text_printf(&c->c->body, "    mean(%s, %s, %zu, %s, %zu);\n", c->x, c->y, outer,
                c_length(c, lengths_number(c->layer), count), inner);
}

/* Along one dimension. */
static const struct layer_type mean_along = {
    .variant = {"mean", &max_schema, "The mean along one dimension."},
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan,
    .forward = mean_forward,
    .backward = mean_backward,
    .facts = facts,
    .onnx = mean_onnx,
    .c = mean_c,
    .pytorch = "{x}.mean({dim}{,keepdim})",
    .pytorch_with_lengths = "mean_of_real({x}, {lengths}{,keepdim})",
};

/* The dimensions of the input as a set of bits of its indices. */
static status dimensions_of(const struct mean_config *c, const struct shape *in, unsigned *set) {
    *set = 0;
    for (size_t i = 0; i < c->dims.count; i++) {
        int dimension = join_dimension(in, c->dims.items[i]);
        TRY(join_check_dimension(in, c->dims.items[i]));
        if (*set & 1u << dimension) return status_usage("dim %lld is in the list twice", (long long)c->dims.items[i]);
        *set |= 1u << dimension;
    }
    return *set ? OK : status_usage("dim: the list is empty");
}

/* The dimensions of the set in the order in which they are reduced: the last first, so that the others keep their
 * numbers, but positions of which some are padding before all others, while the input has their lengths. */
static int ordered_dimensions(unsigned set, const struct shape *in, int order[MAX_DIMS]) {
    int count = 0;
    bool is_first = in->lengths && (set & 1);
    if (is_first) order[count++] = 0;
    for (int d = in->dims - 1; d >= is_first; d--)
        if (set >> d & 1) order[count++] = d;
    return count;
}

/* Along several dimensions: one after another. */
static status expand_mean(struct builder *builder, const struct layer_entry *e, size_t *out) {
    const struct mean_config *c = e->variant->config;
    struct arena *arena = builder->model->arena;
    struct shape shape = builder->model->tensors[*e->in].shape;
    unsigned set;
    int order[MAX_DIMS];
    TRY(build_at(e, dimensions_of(c, &shape, &set)));
    int steps = ordered_dimensions(set, &shape, order);
    *out = *e->in;
    for (int i = 0; i < steps; i++) {
        int is_moved = i > 0 && order[0] == 0 && !c->keepdim;
        struct reduce_config *one = arena_alloc(arena, sizeof *one);
        *one = (struct reduce_config){.dim = order[i] + 1 - is_moved, .keepdim = c->keepdim};
        struct variant along = {.config = one, .common = e->variant->common, .place = e->variant->place};
        const char *own = i == steps - 1 ? e->name : arena_printf(arena, "%s/%d", e->name, order[i] + 1);
        TRY(build_layer(builder, &mean_along, &(struct layer_entry){&along, e->path, own, out, 1}, out));
    }
    return OK;
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "GlobalAveragePooling1D mean_pooling mean_pool", "mean"),
    VALUE_ALIAS("layer", "reduce_mean avg average", "mean"),
    VALUE_ALIAS("layer", "amax reduce_max maximum", "max"),
    KEY_ALIAS("layer.mean", "axis axes dims", ".dim"),
    KEY_ALIAS("layer.mean", "keepdims", ".keepdim"),
    KEY_ALIAS("layer.max", "axis", ".dim"),
    KEY_ALIAS("layer.max", "keepdims", ".keepdim"),
    {0},
};

const struct layer_type layer_mean = {
    .aliases = aliases,
    .variant =
        {"mean", &mean_schema,
         "The mean along one or several dimensions (torch.mean); over positions, padding is left out (padding_idx)."},
    .expand = expand_mean,
};

/* ---- max ---- */

static status plan_max(struct layer *layer, struct planning *planning) {
    TRY(plan(layer, planning));
    if (layer->in.size[dimension_of(layer)] > INT32_MAX) return status_usage("the dimension is too large");
    layer->saved_size = shape_elements(&layer->out);
    return OK;
}

static void max_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t outer, count, inner;
    blocks_of(layer, &outer, &count, &inner);
    pass->ops->shapes->max_forward(pass->device, floats(o.x), lengths_of(layer, pass), floats(o.y),
                                   (int32_t *)layer->saved, pass->rows * outer, count, inner);
}

static void max_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t outer, count, inner;
    if (!o.dx) return;
    blocks_of(layer, &outer, &count, &inner);
    pass->ops->shapes->max_backward(pass->device, (const int32_t *)layer->saved, floats(o.dy), floats(o.dx),
                                    pass->rows * outer, count, inner);
}

static const char *max_onnx(const struct onnx_call *c) {
    return lengths_number(c->layer) ? real_reduction_onnx(c, "ReduceMax", -INFINITY)
                                    : reduction_onnx(c, c->x, "ReduceMax");
}

/* The dimension is the window of a pooling. */
static void max_c(const struct c_call *c) {
    size_t outer, count, inner, lengths = lengths_number(c->layer);
    blocks_of(c->layer, &outer, &count, &inner);
    struct pooling p = {.in = {count, 1, inner},
                        .out = {1, 1, inner},
                        .window = {.kernel = {count, 1}, .stride = {count, 1}, .dilation = {1, 1}}};
    const char *in =
        lengths ? arena_printf(c->c->arena, "(struct model_image){%s, 1, %zu}", c_length(c, lengths, count), inner)
                : c_image(c, &p.in);
    c_max_pool(c, &p, c->x, in, lengths ? 1 : outer);
}

const struct layer_type layer_max = {
    .variant = {"max", &max_schema,
                "The maximum along a dimension (the values of torch.max); the gradient goes to the first of several. "
                "Over positions, padding is left out (padding_idx)."},
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan_max,
    .forward = max_forward,
    .backward = max_backward,
    .facts = facts,
    .onnx = max_onnx,
    .c = max_c,
    .pytorch = "{x}.max({dim}{,keepdim})[0]",
    .pytorch_with_lengths = "max_of_real({x}, {lengths}{,keepdim})",
};
