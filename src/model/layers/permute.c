/* permute, pixel_shuffle, pixel_unshuffle: the same numbers in another order (torch.permute, torch.nn.PixelShuffle). A
 * permutation whose result has the same order in memory, such as that of (height, width, channels) to channels-last
 * (channels, height, width), is a view. */
#include "base/text.h"
#include "model/build.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"

struct permute_config {
    struct int_list dims;
};

struct shuffle_config {
    int64_t factor;
};

static const struct schema_row permute_rows[] = {
    SCHEMA_ROW(INT_LIST, struct permute_config, dims, .flags = SCHEMA_REQUIRED, .min = -MAX_DIMS, .max = MAX_DIMS,
               .doc = "The dimension of the input that each dimension of the output is, as in PyTorch: 0, the batch, "
                      "is the first: `[0, 2, 1]`."),
    {0},
};
#define FACTOR_ROWS(key_, doc_)                                                                                        \
    {                                                                                                                  \
        {.key = key_,                                                                                                  \
         .type = SCHEMA_INT,                                                                                           \
         .offset = offsetof(struct shuffle_config, factor),                                                            \
         .flags = SCHEMA_REQUIRED,                                                                                     \
         .min = 1,                                                                                                     \
         .max = 1024,                                                                                                  \
         .doc = doc_},                                                                                                 \
            {0},                                                                                                       \
    }
static const struct schema_row shuffle_rows[] = FACTOR_ROWS(
    "upscale_factor", "How many times higher and wider the output is; its square must divide the channels.");
static const struct schema_row unshuffle_rows[] = FACTOR_ROWS(
    "downscale_factor", "How many times lower and narrower the output is; must divide the height and the width.");

static const struct schema permute_schema =
    SCHEMA("model.layers.permute", struct permute_config, .rows = permute_rows, .shorthand = "dims");
static const struct schema shuffle_schema =
    SCHEMA("model.layers.pixel_shuffle", struct shuffle_config, .rows = shuffle_rows, .shorthand = "upscale_factor");
static const struct schema unshuffle_schema = SCHEMA("model.layers.pixel_unshuffle", struct shuffle_config,
                                                     .rows = unshuffle_rows, .shorthand = "downscale_factor");

/* ---- permutations of memory ---- */

/* Adds the next dimension of the output; joins it with the one before where the input has them side by side. */
static void add_dimension(struct permutation *p, size_t size, size_t stride) {
    if (size == 1) return;
    if (p->dims > 0 && p->stride[p->dims - 1] == stride * size) {
        p->size[p->dims - 1] *= size;
        p->stride[p->dims - 1] = stride;
        return;
    }
    p->size[p->dims] = size;
    p->stride[p->dims++] = stride;
}

/* A permutation has at least one dimension. */
static struct permutation completed(struct permutation p) {
    if (p.dims == 0) p.dims = 1, p.size[0] = p.stride[0] = 1;
    return p;
}

/* From the output to the input. */
static struct permutation inverse_of(const struct permutation *p) {
    size_t strides[PERMUTATION_DIMS], stride = 1;
    struct permutation inverse = {0};
    bool is_done[PERMUTATION_DIMS] = {false};
    for (int d = p->dims - 1; d >= 0; d--) strides[d] = stride, stride *= p->size[d];
    for (int n = 0; n < p->dims; n++) {
        int largest = -1;
        for (int d = 0; d < p->dims; d++)
            if (!is_done[d] && (largest < 0 || p->stride[d] > p->stride[largest])) largest = d;
        is_done[largest] = true;
        add_dimension(&inverse, p->size[largest], strides[largest]);
    }
    return completed(inverse);
}

/* ---- permute ---- */

/* The dimension of a row that dimension [d] of the output's row is; -1: there is no such one. */
static int source_of(const struct layer *layer, int d) {
    int64_t dim = ((const struct permute_config *)layer->config)->dims.items[d + 1];
    int64_t index = dim < 0 ? dim + layer->in.dims : dim - 1;
    return index >= 0 && index < layer->in.dims ? (int)index : -1;
}

static status check_dims(const struct layer *layer) {
    const struct int_list *dims = &((const struct permute_config *)layer->config)->dims;
    unsigned found = 0;
    bool is_permutation = dims->count == (size_t)layer->in.dims + 1;
    for (int d = 0; is_permutation && d < layer->in.dims; d++) {
        int source = source_of(layer, d);
        is_permutation = source >= 0 && !(found >> source & 1);
        if (is_permutation) found |= 1u << source;
    }
    if (is_permutation && dims->items[0] == 0) return OK;
    return status_usage("dims must be 0, the batch, and then each dimension from 1 to %d once; its input is %s",
                        layer->in.dims, shape_text(&layer->in).s);
}

static status plan_permute(struct layer *layer, struct planning *planning) {
    TRY(check_dims(layer));
    layer->out = (struct shape){.dims = layer->in.dims};
    for (int d = 0; d < layer->in.dims; d++) layer->out.size[d] = layer->in.size[source_of(layer, d)];
    return OK;
}

/* Dimension number [n] in memory, from the outermost. */
static int in_memory(const struct shape *shape, bool is_channels_last, int n) {
    return is_channels_last ? (n + 1) % shape->dims : n;
}

/* Whether the output's memory in that order is the input's. */
static bool is_same_memory(const struct layer *layer, bool is_channels_last) {
    bool is_same = true;
    for (int n = 0; n < layer->in.dims; n++)
        is_same = is_same && source_of(layer, in_memory(&layer->in, is_channels_last, n)) ==
                                 in_memory(&layer->in, layer->in.is_channels_last, n);
    return is_same;
}

static status plan_view(struct layer *layer, struct planning *planning) {
    TRY(plan_permute(layer, planning));
    layer->out.is_channels_last = !is_same_memory(layer, false);
    return OK;
}

/* From (height, width, channels, factor, factor), the small image, to (height, factor, width, factor, channels). */
static struct permutation shuffle_of(const struct shape *small, size_t factor) {
    size_t width = (size_t)small->size[2], channels = (size_t)small->size[0] / factor / factor;
    size_t pixel = channels * factor * factor;
    struct permutation p = {0};
    add_dimension(&p, (size_t)small->size[1], width * pixel);
    add_dimension(&p, factor, factor);
    add_dimension(&p, width, pixel);
    add_dimension(&p, factor, 1);
    add_dimension(&p, channels, factor * factor);
    return completed(p);
}

static size_t factor_of(const struct layer *layer) {
    return (size_t)((const struct shuffle_config *)layer->config)->factor;
}

/* From the input to the output, of a layer of any of these types. */
static struct permutation permutation_of(const struct layer *layer) {
    struct permutation p = {0};
    size_t strides[MAX_DIMS], stride = 1;
    if (layer->type == &layer_pixel_shuffle) return shuffle_of(&layer->in, factor_of(layer));
    if (layer->type == &layer_pixel_unshuffle) p = shuffle_of(&layer->out, factor_of(layer));
    if (layer->type == &layer_pixel_unshuffle) return inverse_of(&p);
    for (int n = layer->in.dims - 1; n >= 0; n--) {
        int d = in_memory(&layer->in, layer->in.is_channels_last, n);
        strides[d] = stride;
        stride *= (size_t)layer->in.size[d];
    }
    for (int d = 0; d < layer->in.dims; d++)
        add_dimension(&p, (size_t)layer->out.size[d], strides[source_of(layer, d)]);
    return completed(p);
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct permutation p = permutation_of(layer);
    pass->ops->shapes->permute(pass->device, &p, floats(o.x), floats(o.y), pass->rows);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct permutation p = permutation_of(layer);
    p = inverse_of(&p);
    if (o.dx) pass->ops->shapes->permute(pass->device, &p, floats(o.dy), floats(o.dx), pass->rows);
}

static void write_c(const struct c_call *c) {
    struct permutation p = permutation_of(c->layer);
    text_printf(&c->c->body, "    permute(%s, %s, %d, %s, %s);\n", c->x, c->y, p.dims,
                c_list(c, p.size, (size_t)p.dims), c_list(c, p.stride, (size_t)p.dims));
}

/* What all types have. */
#define PERMUTATION .ignores = IGNORES_X_AND_Y, .forward = forward, .backward = backward, .c = write_c

/* The shape split into [dims] dimensions, these in another order (from 0, without the batch), and joined again. */
static const char *permutation_onnx(const struct onnx_call *c, const int64_t *size, const int64_t *order, int dims) {
    bool is_split = dims != c->layer->in.dims;
    int64_t all[PERMUTATION_DIMS + 1] = {0};
    for (int d = 0; d < dims; d++) all[d + 1] = order[d] + 1;
    const char *x = is_split ? onnx_reshape(c->g, c->x, size, (size_t)dims) : c->x;
    x = onnx_transpose(c->g, x, all, (size_t)dims + 1);
    return is_split ? onnx_reshape(c->g, x, c->layer->out.size, (size_t)c->layer->out.dims) : x;
}

static const char *permute_onnx(const struct onnx_call *c) {
    int64_t order[MAX_DIMS];
    for (int d = 0; d < c->layer->in.dims; d++) order[d] = source_of(c->layer, d);
    return permutation_onnx(c, c->layer->in.size, order, c->layer->in.dims);
}

static const struct layer_type permuted_copy = {
    .variant = {"permute", NULL, "The dimensions in another order."},
    .memory_format = FORMAT_PRESERVE,
    PERMUTATION,
    .plan = plan_permute,
    .onnx = permute_onnx,
};

static const struct layer_type permuted_view = {
    .variant = {"permute", NULL, "The dimensions in another order."},
    .is_view = true,
    .memory_format = FORMAT_PRESERVE,
    .plan = plan_view,
};

static status expand_permute(struct builder *builder, const struct layer_entry *e, size_t *out) {
    struct layer layer = {.config = e->variant->config, .in = builder->model->tensors[*e->in].shape};
    status s = check_dims(&layer);
    bool is_view = !s && (is_same_memory(&layer, false) || is_same_memory(&layer, true));
    status_free(s); /* planning reports it */
    return build_layer(builder, is_view ? &permuted_view : &permuted_copy, e, out);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS_NOTE("layer", "transpose swapaxes swapdims movedim", "permute",
                     "It takes the order of all dimensions: 'permute: [0, 2, 1]'"),
    VALUE_ALIAS("layer", "depth_to_space", "pixel_shuffle"),
    KEY_ALIAS("layer.permute", "axes order perm", ".dims"),
    KEY_ALIAS("layer.pixel_shuffle", "factor scale scale_factor r block_size", ".upscale_factor"),
    KEY_ALIAS("layer.pixel_unshuffle", "factor scale scale_factor r block_size", ".downscale_factor"),
    CALL_ALIAS("layer", "PixelShuffle", "upscale_factor"),
    CALL_ALIAS("layer", "PixelUnshuffle", "downscale_factor"),
    {0},
};

const struct layer_type layer_permute = {
    .aliases = aliases,
    .variant = {"permute", &permute_schema, "The dimensions of each row in another order (torch.permute)."},
    .expand = expand_permute,
    .pytorch = "{x}.permute({dims}).contiguous()",
};

/* ---- pixel_shuffle, pixel_unshuffle ---- */

static status plan_shuffle(struct layer *layer, struct planning *planning) {
    size_t factor = factor_of(layer);
    TRY(image_check(layer, 3));
    struct image_shape in = image_of(&layer->in);
    if (in.channels % (factor * factor) != 0)
        return status_usage("the square of upscale_factor (%zu) must divide the channels (%zu)", factor * factor,
                            in.channels);
    if (in.height > INT32_MAX / factor || in.width > INT32_MAX / factor) return status_usage("the output is too large");
    layer->out = channels_last_shape(3, in.channels / factor / factor, in.height * factor, in.width * factor);
    return OK;
}

static status plan_unshuffle(struct layer *layer, struct planning *planning) {
    size_t factor = factor_of(layer);
    TRY(image_check(layer, 3));
    struct image_shape in = image_of(&layer->in);
    if (in.height % factor != 0 || in.width % factor != 0)
        return status_usage("downscale_factor (%zu) must divide the height and the width (%zu x %zu)", factor,
                            in.height, in.width);
    layer->out = channels_last_shape(3, in.channels * factor * factor, in.height / factor, in.width / factor);
    return OK;
}

static const char *shuffle_onnx(const struct onnx_call *c) {
    int64_t f = (int64_t)factor_of(c->layer);
    const int64_t *in = c->layer->in.size, size[] = {in[0] / f / f, f, f, in[1], in[2]};
    return permutation_onnx(c, size, (const int64_t[]){0, 3, 1, 4, 2}, 5);
}

static const char *unshuffle_onnx(const struct onnx_call *c) {
    int64_t f = (int64_t)factor_of(c->layer);
    const int64_t *out = c->layer->out.size, size[] = {c->layer->in.size[0], out[1], f, out[2], f};
    return permutation_onnx(c, size, (const int64_t[]){0, 2, 4, 1, 3}, 5);
}

const struct layer_type layer_pixel_shuffle = {
    .variant = {"pixel_shuffle", &shuffle_schema,
                "(channels, height, width) with r^2 channels as the pixels of one, r times as high and wide "
                "(torch.nn.PixelShuffle)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    PERMUTATION,
    .plan = plan_shuffle,
    .onnx = shuffle_onnx,
    .pytorch = "nn.PixelShuffle({upscale_factor})",
};
const struct layer_type layer_pixel_unshuffle = {
    .variant = {"pixel_unshuffle", &unshuffle_schema, "The inverse of pixel_shuffle (torch.nn.PixelUnshuffle)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    PERMUTATION,
    .plan = plan_unshuffle,
    .onnx = unshuffle_onnx,
    .pytorch = "nn.PixelUnshuffle({downscale_factor})",
};
