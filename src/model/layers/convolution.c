/* Convolutions of signals, images and volumes and their transposes, as in torch.nn; patch_embedding: a conv2d whose
 * pixels become a sequence. A signal is an image of height 1. The device prepares each convolution once, when memory is
 * allocated. */
#include "model/build.h"
#include "model/init.h"
#include "model/layer.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"

/* The keys of all of them. */
struct convolution_config {
    int64_t out, groups;
    struct int_list kernel_size, stride, padding, dilation;
    bool bias;
    struct int_list output_padding; /* of the transposed ones */
};

#define CONVOLUTION_SIZES(key_, min_, doc_, ...)                                                                       \
    SCHEMA_ROW(INT_LIST, struct convolution_config, key_, .min = min_, .max = 4096, .doc = doc_, __VA_ARGS__)

/* [sizes]: the form of a list, such as " one number, or [height, width]."; [padding_doc]: what padding means for the
 * layer; after it more of its row. */
#define CONVOLUTION_ROWS(sizes, padding_doc, ...)                                                                      \
    SCHEMA_ROW(INT, struct convolution_config, out, .flags = SCHEMA_REQUIRED, .min = 1, .max = 1 << 20,                \
               .doc = "Output channels (PyTorch's out_channels); the number of inputs is inferred."),                  \
        CONVOLUTION_SIZES(kernel_size, 1, "Size of the kernel:" sizes, .flags = SCHEMA_REQUIRED),                      \
        CONVOLUTION_SIZES(stride, 1, "Step of the kernel:" sizes, .fallback = "1"),                                    \
        CONVOLUTION_SIZES(padding, 0, padding_doc, .fallback = "0", __VA_ARGS__),                                      \
        CONVOLUTION_SIZES(dilation, 1, "Distance between kernel elements:" sizes, .fallback = "1"),                    \
        SCHEMA_ROW(INT, struct convolution_config, groups, .fallback = "1", .min = 1, .max = 1 << 20,                  \
                   .doc = "Number of groups of channels; outputs of a group depend on its inputs only. Must divide "   \
                          "the input's and the output's channels."),                                                   \
        SCHEMA_ROW(BOOL, struct convolution_config, bias, .fallback = "true", .doc = "Whether a bias is added.")

enum padding_word { PADDING_NONE, PADDING_SAME, PADDING_VALID };
static const char *const paddings[] = {"same", "valid", NULL};

/* What padding means; [sizes]: one number, or also a list. */
#define PADDING(sizes)                                                                                                 \
    "Zeros around the input: " sizes                                                                                   \
    "; `same`: as many as give the output the input's size, for stride 1, with an odd number one more behind; "        \
    "`valid`: none."

static const struct schema_row rows[] = {
    CONVOLUTION_ROWS(" one number, or [height, width].", PADDING("one number, or [height, width]"),
                     .choices = paddings),
    {0},
};
static const struct schema_row rows1d[] = {
    CONVOLUTION_ROWS(" one number.", PADDING("one number"), .choices = paddings),
    {0},
};

/* As torch.nn.Conv2d. */
static void check_same(const struct convolution_config *c, const struct node *where, const char *path,
                       struct problems *problems) {
    size_t i = 0;
    while (i < c->stride.count && c->stride.items[i] == 1) i++;
    if (i < c->stride.count)
        key_problem(problems, where, path, "padding", "'same' needs a stride of 1, got %lld",
                    (long long)c->stride.items[i]);
}

/* Adds a problem for each list that has more than [max] numbers, and if the groups do not divide the channels. */
static void convolution_check(const struct convolution_config *c, int max, const struct node *where, const char *path,
                              struct problems *problems) {
    sizes_check(&c->kernel_size, "kernel_size", max, where, path, problems);
    sizes_check(&c->stride, "stride", max, where, path, problems);
    sizes_check(&c->padding, "padding", max, where, path, problems);
    sizes_check(&c->dilation, "dilation", max, where, path, problems);
    if (c->padding.word == PADDING_SAME) check_same(c, where, path, problems);
    if (c->out % c->groups != 0)
        key_problem(problems, where, path, "groups", "must divide out (%lld), got %lld", (long long)c->out,
                    (long long)c->groups);
}

CHECK_WITH(check_conv2d, convolution_check, 2)
CHECK_WITH(check_conv1d, convolution_check, 1)

static void check_patches(void *config, const struct node *where, const char *path, struct problems *problems) {
    sizes_check(&((struct convolution_config *)config)->kernel_size, "patch_size", 2, where, path, problems);
}

static const struct schema conv2d_schema =
    SCHEMA("model.layers.conv2d", struct convolution_config, .rows = rows, .check = check_conv2d);
static const struct schema conv1d_schema =
    SCHEMA("model.layers.conv1d", struct convolution_config, .rows = rows1d, .check = check_conv1d);

/* Along dimension [d]: 0 the depth, 1 the height, 2 the width. */
struct side {
    size_t kernel, stride, padding, dilation; /* padding: before the input */
};

static struct side side_of(const struct convolution_config *c, int d) {
    struct side s = {.kernel = size_at(&c->kernel_size, d), .dilation = 1};
    s.stride = c->stride.items ? size_at(&c->stride, d) : s.kernel;
    if (c->dilation.items) s.dilation = size_at(&c->dilation, d);
    if (c->padding.items) s.padding = size_at(&c->padding, d);
    if (c->padding.word == PADDING_SAME) s.padding = s.dilation * (s.kernel - 1) / 2;
    return s;
}

/* Of an input of [dims] dimensions, or of one image of a volume. */
static struct window convolution_window(const struct convolution_config *c, int dims) {
    struct window w = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    for (int d = dims == 2 ? 1 : 0; d < 2; d++) {
        struct side s = side_of(c, d + 1);
        w.kernel[d] = s.kernel, w.stride[d] = s.stride, w.padding[d] = s.padding, w.dilation[d] = s.dilation;
    }
    return w;
}

/* The patches are windows without overlap. */
static const struct schema_row patch_rows[] = {
    SCHEMA_KEY(INT, "embed_dim", struct convolution_config, out, .flags = SCHEMA_REQUIRED, .min = 1, .max = 1 << 20,
               .doc = "Features of a patch."),
    SCHEMA_KEY(INT_LIST, "patch_size", struct convolution_config, kernel_size, .flags = SCHEMA_REQUIRED, .min = 1,
               .max = 4096, .doc = "Size of a patch: one number, or [height, width]; must divide the image's."),
    SCHEMA_ROW(BOOL, struct convolution_config, bias, .fallback = "true", .doc = "Whether a bias is added."),
    {0},
};
static const struct schema patch_schema =
    SCHEMA("model.layers.patch_embedding", struct convolution_config, .rows = patch_rows, .check = check_patches);

static const struct convolution_config *config_of(const struct layer *layer) { return layer->config; }

/* conv_transpose*: from the layer's output to its input. */
static bool is_transposed(const struct layer *layer);
static struct convolution transpose_convolution_of(const struct layer *layer);

/* The convolution that the device runs for a layer of any of these types: of a volume for one of its images. */
static struct convolution convolution_of(const struct layer *layer) {
    const struct convolution_config *c = config_of(layer);
    bool is_volume = layer->in.dims == 4;
    if (is_transposed(layer)) return transpose_convolution_of(layer);
    struct convolution v = {.in = is_volume ? volume_image(&layer->in) : image_of(&layer->in),
                            .window = convolution_window(c, layer->in.dims),
                            .groups = c->groups ? (size_t)c->groups : 1,
                            .has_bias = c->bias,
                            .has_relu = layer->has_relu};
    v.out = (struct image_shape){window_output(&v.window, 0, v.in.height), window_output(&v.window, 1, v.in.width),
                                 (size_t)c->out};
    if (c->padding.word == PADDING_SAME) v.out.height = v.in.height, v.out.width = v.in.width;
    return v;
}

/* Inputs of one output element. */
static size_t fan_in(const struct convolution *c) {
    return c->in.channels / c->groups * c->window.kernel[0] * c->window.kernel[1];
}

/* Declares weight, of (size0, size1, kernel), and bias (out). */
static void convolution_declare(struct layer *layer, struct planning *planning, size_t size0, size_t size1) {
    const struct convolution_config *c = config_of(layer);
    int dims = layer->in.dims;
    int64_t shape[5] = {(int64_t)size0, (int64_t)size1};
    for (int d = 1; d < dims; d++) shape[1 + d] = (int64_t)size_at(&c->kernel_size, 3 - dims + d);
    layer_declare(layer, planning, "weight", dims + 1, shape);
    if (c->bias) layer_declare(layer, planning, "bias", 1, &c->out);
}

/* Images whose channels are innermost are sequences of patches. */
static status plan_patches(struct layer *layer, const struct convolution *c, struct planning *planning) {
    const size_t *size = c->window.kernel;
    if (c->in.height % size[0] != 0 || c->in.width % size[1] != 0)
        return status_usage("patch_size must divide the image (%zu x %zu), got %zu x %zu", c->in.height, c->in.width,
                            size[0], size[1]);
    layer->out = (struct shape){.dims = 2, .size = {(int64_t)(c->out.height * c->out.width), (int64_t)c->out.channels}};
    convolution_declare(layer, planning, c->out.channels, c->in.channels / c->groups);
    return OK;
}

static status plan(struct layer *layer, struct planning *planning) {
    TRY(image_check(layer, layer->type == &layer_conv1d ? 2 : 3));
    struct convolution c = convolution_of(layer);
    if (c.in.channels % c.groups != 0)
        return status_usage("groups must divide the input's channels (%zu), got %zu", c.in.channels, c.groups);
    if (layer->type == &layer_patch_embedding) return plan_patches(layer, &c, planning);
    if (c.out.height == 0 || c.out.width == 0)
        return status_usage("the kernel is larger than the padded input (%zu x %zu)",
                            c.in.height + 2 * c.window.padding[0], c.in.width + 2 * c.window.padding[1]);
    layer->out = channels_last_shape(layer->in.dims, c.out.channels, c.out.height, c.out.width);
    convolution_declare(layer, planning, c.out.channels, c.in.channels / c.groups);
    return OK;
}

/* Images of a row, one after another: the depth of a volume, else 1. */
static size_t convolution_images(const struct layer *layer) {
    return layer->in.dims == 4 ? (size_t)layer->in.size[1] : 1;
}

static status alloc(struct layer *layer, struct device *device, size_t batch) {
    struct convolution c = convolution_of(layer);
    return device_ops(device)->convolution->create(device, &c, batch * convolution_images(layer),
                                                   (struct device_convolution **)&layer->runtime);
}

static void convolution_release(struct layer *layer, struct device *device) {
    device_ops(device)->convolution->destroy(layer->runtime);
}

static status convolution_prepare(struct layer *layer, struct device *device, size_t batch, bool is_training) {
    const struct convolution_ops *ops = device_ops(device)->convolution;
    return ops->prepare ? ops->prepare(layer->runtime, batch * convolution_images(layer), is_training) : OK;
}

/* Draws weight and bias as torch.nn.modules.conv._ConvNd does: the fan in is that of the second dimension. */
static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    struct convolution c = convolution_of(layer);
    size_t first = layer->first_param;
    init_kaiming_uniform(rng, params_drawn(params, first), params->items[first].count, fan_in(&c));
    if (config_of(layer)->bias)
        init_fan_in_uniform(rng, params_drawn(params, first + 1), params->items[first + 1].count, fan_in(&c));
}

static void convolution_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t first = layer->first_param, images = pass->rows * convolution_images(layer);
    const float *bias = config_of(layer)->bias ? params_value(pass->params, first + 1) : NULL;
    pass->ops->convolution->forward(layer->runtime, o.x, params_value(pass->params, first), bias, o.y, images);
}

static void convolution_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t first = layer->first_param, images = pass->rows * convolution_images(layer);
    float *dbias = config_of(layer)->bias ? params_gradient(pass->params, first + 1) : NULL;
    pass->ops->convolution->backward(layer->runtime, o.x, params_value(pass->params, first), o.dy, o.dx,
                                     params_gradient(pass->params, first), dbias, images);
}

static size_t multiply_adds(const struct layer *layer) {
    struct convolution c = convolution_of(layer);
    return convolution_images(layer) * c.out.height * c.out.width * c.out.channels * fan_in(&c);
}

/* ---- in other formats ---- */

static size_t bias_of(const struct layer *layer) { return config_of(layer)->bias ? layer->first_param + 1 : NO_PARAM; }

/* A node of a convolution, with [attributes] before those that each has. */
static const char *node_of(const struct onnx_call *c, const char *type, struct text *attributes) {
    const struct convolution_config *config = config_of(c->layer);
    size_t count = (size_t)c->layer->in.dims - 1, kernel[3], stride[3], before[3], after[3], dilation[3];
    for (size_t i = 0; i < count; i++) {
        struct side s = side_of(config, (int)(3 - count + i));
        kernel[i] = s.kernel, stride[i] = s.stride, before[i] = s.padding, dilation[i] = s.dilation;
        after[i] = config->padding.word == PADDING_SAME ? s.dilation * (s.kernel - 1) - s.padding : s.padding;
    }
    onnx_window(attributes, count, kernel, stride, before, after);
    onnx_sizes(attributes, "dilations", dilation, count);
    onnx_int(attributes, "group", config->groups ? config->groups : 1);
    const char *inputs[3] = {c->x, onnx_param(c->g, c->layer->first_param)};
    if (config->bias) inputs[2] = onnx_param(c->g, bias_of(c->layer));
    return onnx_node(c->g, type, inputs, inputs[2] ? 3 : 2, attributes);
}

static const char *write_onnx(const struct onnx_call *c) {
    struct text attributes = {0};
    const char *y = node_of(c, "Conv", &attributes);
    if (c->layer->out.dims == c->layer->in.dims) return y;
    y = onnx_node2(c->g, "Reshape", y, onnx_numbers(c->g, (const int64_t[]){0, 0, -1}, 3));
    return onnx_transpose(c->g, y, (const int64_t[]){0, 2, 1}, 3); /* patch_embedding: a sequence of pixels */
}

/* The weight (out channels, in channels of a group, taps) as (groups, taps, in channels, out channels). */
static const char *weight_table(const struct c_call *c, const struct convolution *v) {
    const struct param *p = &c->c->m->model->params.items[c->layer->first_param];
    const float *from = c->c->m->params[c->layer->first_param];
    float *table = arena_alloc(c->c->arena, p->count * sizeof *table), *to = table;
    size_t in = v->in.channels / v->groups, out = v->out.channels / v->groups;
    size_t taps = v->window.kernel[0] * v->window.kernel[1];
    for (size_t g = 0; g < v->groups; g++)
        for (size_t t = 0; t < taps; t++)
            for (size_t i = 0; i < in; i++)
                for (size_t o = 0; o < out; o++) *to++ = from[((g * out + o) * in + i) * taps + t];
    return c_table(c, table, p->count, p->name);
}

/* Of [images] images of a row, one after another. */
static void write_images(const struct c_call *c, const struct convolution *v, size_t images) {
    const char *w = weight_table(c, v), *b = c_plain(c, bias_of(c->layer));
    c_begin_images(c, images);
    text_printf(&c->c->body, "    convolution(%s, %s, %s, %s, %s,\n                %s, %s, %zu, %s);\n",
                c_at_image(c, c->x, images, c_image_size(&v->in)), c_image(c, &v->in), w, b,
                c_at_image(c, c->y, images, c_image_size(&v->out)), c_image(c, &v->out), c_window(c, &v->window),
                v->groups, c->scratch[0]);
    c_end_images(c, images);
}

static void write_c(const struct c_call *c) {
    struct convolution v = convolution_of(c->layer);
    write_images(c, &v, convolution_images(c->layer));
}

/* The pixels under the kernel of one group. */
static size_t column_size(const struct convolution *v) {
    return v->window.kernel[0] * v->window.kernel[1] * (v->in.channels / v->groups);
}

static void c_scratch(const struct layer *layer, size_t sizes[2]) {
    struct convolution v = convolution_of(layer);
    sizes[0] = column_size(&v);
}

/* What all three types have. */
#define CONVOLUTION                                                                                                    \
    .memory_format = FORMAT_CHANNELS_LAST, .depends_on_threads = true, .relu = RELU_AFTER, .ignores = IGNORES_Y,       \
    .plan = plan, .alloc = alloc, .release = convolution_release, .prepare = convolution_prepare, .init = init,        \
    .autocast = AUTOCAST_PRODUCT, .forward = convolution_forward, .backward = convolution_backward, .half = HALF_ALL,  \
    .copies = COPY_WITHOUT_GAPS, .multiply_adds = multiply_adds, .onnx = write_onnx, .c = write_c,                     \
    .c_scratch = c_scratch

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "Conv2DTranspose Deconv2d deconv upconv", "conv_transpose2d"),
    VALUE_ALIAS("layer", "Conv LazyConv2d Convolution Convolution2D conv2", "conv2d"),
    VALUE_ALIAS("layer", "Convolution1D", "conv1d"),
    VALUE_ALIAS("layer", "LazyConv3d Convolution3D", "conv3d"),
    VALUE_ALIAS("layer", "Conv3DTranspose Deconv3d LazyConvTranspose3d", "conv_transpose3d"),
    KEY_ALIAS("layer.conv2d",
              "out_channels filters channels num_filters n_filters features out_features output_channels", ".out"),
    KEY_ALIAS("layer.conv1d",
              "out_channels filters channels num_filters n_filters features out_features output_channels", ".out"),
    KEY_ALIAS("layer.conv2d", "kernel kernels filter_size ksize kernel_shape k size window", ".kernel_size"),
    KEY_ALIAS("layer.conv1d", "kernel kernels filter_size ksize kernel_shape k size window", ".kernel_size"),
    KEY_ALIAS("layer.conv2d", "use_bias with_bias", ".bias"),
    KEY_ALIAS("layer.conv1d", "use_bias with_bias", ".bias"),
    KEY_ALIAS("layer.conv3d",
              "out_channels filters channels num_filters n_filters features out_features output_channels", ".out"),
    KEY_ALIAS("layer.conv3d", "kernel kernels filter_size ksize kernel_shape k size window", ".kernel_size"),
    KEY_ALIAS("layer.conv3d", "use_bias with_bias", ".bias"),
    CALL_ALIAS("layer", "LazyConv2d", "out kernel_size stride padding dilation groups bias"),
    VALUE_ALIAS("layer", "Conv1DTranspose Deconv1d LazyConvTranspose1d", "conv_transpose1d"),
    CALL_ALIAS("layer", "conv_transpose1d", "~ out kernel_size stride padding output_padding groups bias dilation"),
    CALL_ALIAS("layer", "conv_transpose2d", "~ out kernel_size stride padding output_padding groups bias dilation"),
    CALL_ALIAS("layer", "conv_transpose3d", "~ out kernel_size stride padding output_padding groups bias dilation"),
    CALL_ALIAS("layer", "conv2d", "~ out kernel_size stride padding dilation groups bias"),
    CALL_ALIAS("layer", "Conv2D", "out kernel_size stride padding"),
    CALL_ALIAS("layer", "conv1d", "~ out kernel_size stride padding dilation groups bias"),
    CALL_ALIAS("layer", "Conv1D", "out kernel_size stride padding"),
    CALL_ALIAS("layer", "conv3d", "~ out kernel_size stride padding dilation groups bias"),
    {0},
};

const struct layer_type layer_conv2d = {
    .aliases = aliases,
    .variant = {"conv2d", &conv2d_schema, "Convolution over (channels, height, width) (torch.nn.Conv2d)."},
    CONVOLUTION,
    .pytorch = "nn.Conv2d({channels}, {out}, {kernel_size}{,stride}{,padding}{,dilation}{,groups}{,bias})",
};
const struct layer_type layer_conv1d = {
    .variant = {"conv1d", &conv1d_schema, "Convolution over (channels, length) (torch.nn.Conv1d)."},
    CONVOLUTION,
    .pytorch = "nn.Conv1d({channels}, {out}, {kernel_size}{,stride}{,padding}{,dilation}{,groups}{,bias})",
};
const struct layer_type layer_patch_embedding = {
    .variant = {"patch_embedding", &patch_schema,
                "(channels, height, width) as (patches, embed_dim), row by row: each patch without overlap through one "
                "linear layer, as in a vision transformer (a torch.nn.Conv2d whose stride is its kernel_size, "
                "flatten(2) and transpose)."},
    CONVOLUTION,
    .pytorch = "PatchEmbedding({channels}, {embed_dim}, {patch_size}{,bias})",
};

/* ---- conv3d ---- */

/* conv3d: torch.nn.Conv3d. A convolution over images of a volume whose channels are those of all images in the window
 * along the depth, (channels, kernel depth): the weight (out, channels, kernel depth, kernel height, kernel width) is
 * then that of a conv2d. So the layer has two nodes: one makes these channels, the other is the convolution. */

#define SIZES " one number, or [depth, height, width]."

static const struct schema_row conv3d_rows[] = {
    CONVOLUTION_ROWS(SIZES, PADDING("one number, or [depth, height, width]"), .choices = paddings), {0}};

CHECK_WITH(check_conv3d, convolution_check, 3)

static const struct schema schema =
    SCHEMA("model.layers.conv3d", struct convolution_config, .rows = conv3d_rows, .check = check_conv3d);

/* Of an input (channels, depth, height, width). */
static struct depth_window depth_of(const struct convolution_config *c, const struct shape *in) {
    struct side s = side_of(c, 0);
    struct depth_window w = {.in = (size_t)in->size[1],
                             .positions = (size_t)(in->size[2] * in->size[3]),
                             .channels = (size_t)in->size[0],
                             .kernel = s.kernel,
                             .stride = s.stride,
                             .padding = s.padding,
                             .dilation = s.dilation};
    size_t padded = w.in + 2 * w.padding, extent = w.dilation * (w.kernel - 1) + 1;
    w.out = padded < extent ? 0 : (padded - extent) / w.stride + 1;
    if (c->padding.word == PADDING_SAME) w.out = w.in;
    return w;
}

/* ---- the images of each window along the depth, as channels ---- */

static status plan_unfold(struct layer *layer, struct planning *planning) {
    const struct convolution_config *c = config_of(layer);
    TRY(image_check(layer, 4));
    struct depth_window w = depth_of(c, &layer->in);
    if (w.channels % (size_t)c->groups != 0)
        return status_usage("groups must divide the input's channels (%zu), got %zu", w.channels, (size_t)c->groups);
    if (w.out == 0) return status_usage("the kernel is deeper than the padded input (%zu)", w.in + 2 * w.padding);
    struct image_shape image = volume_image(&layer->in);
    layer->out = volume_shape(w.channels * w.kernel, w.out, image.height, image.width);
    return OK;
}

static void unfold(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct depth_window w = depth_of(config_of(layer), &layer->in);
    pass->ops->shapes->unfold_depth(pass->device, &w, floats(o.x), floats(o.y), pass->rows);
}

static void fold(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct depth_window w = depth_of(config_of(layer), &layer->in);
    if (o.dx) pass->ops->shapes->fold_depth(pass->device, &w, floats(o.dy), floats(o.dx), pass->rows);
}

static void unfold_c(const struct c_call *c) {
    struct depth_window w = depth_of(config_of(c->layer), &c->layer->in);
    text_printf(&c->c->body, "    unfold_depth(%s, %s, %zu, %zu, %zu, %zu, %zu, %zu, %zu);\n", c->x, c->y, w.in, w.out,
                w.positions * w.channels, w.kernel, w.stride, w.padding, w.dilation);
}

static const struct layer_type unfold_depth = {
    .variant = {"conv3d", NULL, "The images of each window along the depth, as channels."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan_unfold,
    .forward = unfold,
    .backward = fold,
    .onnx = onnx_same, /* its convolution is of the volume itself */
    .c = unfold_c,
};

/* ---- the convolution ---- */

static status conv3d_plan(struct layer *layer, struct planning *planning) {
    struct convolution v = convolution_of(layer);
    if (v.out.height == 0 || v.out.width == 0)
        return status_usage("the kernel is larger than the padded input (%zu x %zu)",
                            v.in.height + 2 * v.window.padding[0], v.in.width + 2 * v.window.padding[1]);
    layer->out = volume_shape(v.out.channels, convolution_images(layer), v.out.height, v.out.width);
    size_t channels = v.in.channels / size_at(&config_of(layer)->kernel_size, 0);
    convolution_declare(layer, planning, v.out.channels, channels / v.groups);
    return OK;
}

static const struct layer_type convolution_of_images = {
    .variant = {"conv3d", NULL, "The convolution over images whose channels are those of a window."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .depends_on_threads = true,
    .relu = RELU_AFTER,
    .ignores = IGNORES_Y,
    .plan = conv3d_plan,
    .alloc = alloc,
    .release = convolution_release,
    .prepare = convolution_prepare,
    .init = init,
    .autocast = AUTOCAST_PRODUCT,
    .copies = COPY_WITHOUT_GAPS,
    .forward = convolution_forward,
    .backward = convolution_backward,
    .half = HALF_ALL,
    .multiply_adds = multiply_adds,
    .onnx = write_onnx,
    .c = write_c,
    .c_scratch = c_scratch,
};

static status expand(struct builder *builder, const struct layer_entry *e, size_t *out) {
    struct layer_entry depth = *e, images = *e;
    size_t between;
    depth.name = arena_printf(builder->model->arena, "%s/depth", e->name);
    images.in = &between;
    TRY(build_layer(builder, &unfold_depth, &depth, &between));
    return build_layer(builder, &convolution_of_images, &images, out);
}

const struct layer_type layer_conv3d = {
    .variant = {"conv3d", &schema, "Convolution over (channels, depth, height, width) (torch.nn.Conv3d)."},
    .expand = expand,
    .pytorch = "nn.Conv3d({channels}, {out}, {kernel_size}{,stride}{,padding}{,dilation}{,groups}{,bias})",
};

/* ---- conv_transpose1d, conv_transpose2d and conv_transpose3d ---- */

/* torch.nn.ConvTranspose1d, ConvTranspose2d and ConvTranspose3d: the transpose of a convolution from the layer's output
 * to its input. So the convolution's gradient of its input is the layer's output, and its output is the layer's
 * gradient. That of a volume is the convolution of conv3d over the windows along the depth, which layer->saved holds.
 */

#define TRANSPOSE_ROWS(sizes)                                                                                          \
    CONVOLUTION_ROWS(" " sizes ".",                                                                                    \
                     "dilation * (kernel_size - 1) - padding zeros are around the input: " sizes ".", ),               \
        CONVOLUTION_SIZES(output_padding, 0,                                                                           \
                          "Added to the size of the output, which a stride leaves open: " sizes ". Below stride.",     \
                          .fallback = "0")

static const struct schema_row transpose_rows[] = {TRANSPOSE_ROWS("one number, or [height, width]"), {0}};
static const struct schema_row transpose_rows1d[] = {TRANSPOSE_ROWS("one number"), {0}};
static const struct schema_row transpose_rows3d[] = {TRANSPOSE_ROWS("one number, or [depth, height, width]"), {0}};

static void transpose_check(const struct convolution_config *c, int max, const struct node *where, const char *path,
                            struct problems *problems) {
    convolution_check(c, max, where, path, problems);
    sizes_check(&c->output_padding, "output_padding", max, where, path, problems);
}

CHECK_WITH(transpose_check2d, transpose_check, 2)
CHECK_WITH(transpose_check1d, transpose_check, 1)
CHECK_WITH(transpose_check3d, transpose_check, 3)

static const struct schema transpose_schema = SCHEMA("model.layers.conv_transpose2d", struct convolution_config,
                                                     .rows = transpose_rows, .check = transpose_check2d);
static const struct schema transpose_schema1d = SCHEMA("model.layers.conv_transpose1d", struct convolution_config,
                                                       .rows = transpose_rows1d, .check = transpose_check1d);
static const struct schema transpose_schema3d = SCHEMA("model.layers.conv_transpose3d", struct convolution_config,
                                                       .rows = transpose_rows3d, .check = transpose_check3d);

static bool is_volume(const struct layer *layer) { return layer->type == &layer_conv_transpose3d; }

static bool is_transposed(const struct layer *layer) {
    return is_volume(layer) || layer->type == &layer_conv_transpose2d || layer->type == &layer_conv_transpose1d;
}

/* The windows along the depth of the layer's output. */
static struct depth_window transpose_depth(const struct layer *layer) {
    return depth_of(config_of(layer), &layer->out);
}
static size_t windows_size(const struct depth_window *w) { return w->out * w->positions * w->channels * w->kernel; }

/* The convolution from the layer's output to its input, of a volume from the images of these windows. */
static struct convolution transpose_convolution_of(const struct layer *layer) {
    const struct convolution_config *c = config_of(layer);
    struct convolution v = {.groups = (size_t)c->groups, .window = convolution_window(c, layer->in.dims)};
    if (is_volume(layer)) {
        v.in = volume_image(&layer->out), v.out = volume_image(&layer->in);
        v.in.channels *= size_at(&c->kernel_size, 0);
    } else {
        v.in = image_of(&layer->out), v.out = image_of(&layer->in);
    }
    return v;
}

/* (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1; 0: nothing is left */
static size_t output_size(const struct convolution_config *c, int d, size_t in) {
    struct side s = side_of(c, d);
    size_t size = (in - 1) * s.stride + size_at(&c->output_padding, d) + 1 + s.dilation * (s.kernel - 1);
    return size > 2 * s.padding ? size - 2 * s.padding : 0;
}

static status transpose_plan(struct layer *layer, struct planning *planning) {
    static const char *const words[] = {"images", "rows", "columns"};
    const struct convolution_config *c = config_of(layer);
    int dims = is_volume(layer) ? 4 : layer->type == &layer_conv_transpose1d ? 2 : 3;
    TRY(image_check(layer, dims));
    if (layer->in.size[0] % c->groups != 0)
        return status_usage("groups must divide the input's channels (%lld), got %lld", (long long)layer->in.size[0],
                            (long long)c->groups);
    layer->out = layer->in;
    layer->out.size[0] = c->out;
    for (int i = 1, d = 4 - dims; i < dims; i++, d++) {
        size_t stride = size_at(&c->stride, d), after = size_at(&c->output_padding, d);
        if (after >= stride)
            return status_usage("output_padding must be less than stride (%zu), got %zu", stride, after);
        size_t size = output_size(c, d, (size_t)layer->in.size[i]);
        if (size == 0 || size > INT32_MAX) return status_usage("the output would have %zu %s", size, words[d]);
        layer->out.size[i] = (int64_t)size;
    }
    convolution_declare(layer, planning, (size_t)layer->in.size[0], (size_t)(c->out / c->groups));
    if (dims < 4) return OK;
    struct depth_window w = transpose_depth(layer);
    layer->saved_size = windows_size(&w);
    return OK;
}

/* The convolution runs backward in either case. */
static status prepare(struct layer *layer, struct device *device, size_t batch, bool is_training) {
    return convolution_prepare(layer, device, batch, true);
}

static size_t positions_of(const struct layer *layer) { return layer->out_size / (size_t)layer->out.size[0]; }

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t first = layer->first_param;
    struct tensor product = is_volume(layer) ? *F32(layer->saved) : *o.y;
    if (config_of(layer)->bias) product.copy = NULL; /* it is written again */
    pass->ops->convolution->backward(layer->runtime, NULL, params_value(pass->params, first), o.x, &product, NULL, NULL,
                                     pass->rows * convolution_images(layer));
    if (is_volume(layer)) {
        struct depth_window w = transpose_depth(layer);
        pass->ops->shapes->fold_depth(pass->device, &w, layer->saved, floats(o.y), pass->rows);
    }
    if (config_of(layer)->bias)
        pass->ops->sequence->add_row(pass->device, floats(o.y), params_value(pass->params, first + 1), floats(o.y),
                                     pass->rows * positions_of(layer), (size_t)layer->out.size[0]);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t first = layer->first_param, images = pass->rows * convolution_images(layer);
    const float *w = params_value(pass->params, first);
    struct tensor product = *o.dy;
    if (is_volume(layer)) {
        struct depth_window windows = transpose_depth(layer);
        pass->ops->shapes->unfold_depth(pass->device, &windows, floats(o.dy), layer->saved, pass->rows);
        product = *F32(layer->saved);
    }
    if (config_of(layer)->bias)
        pass->ops->sequence->sum_rows(pass->device, floats(o.dy), params_gradient(pass->params, first + 1),
                                      pass->rows * positions_of(layer), (size_t)layer->out.size[0]);
    pass->ops->convolution->backward(layer->runtime, &product, w, o.x, NULL, params_gradient(pass->params, first), NULL,
                                     images);
    if (o.dx) pass->ops->convolution->forward(layer->runtime, &product, w, NULL, o.dx, images);
}

static const char *transpose_onnx(const struct onnx_call *c) {
    size_t count = (size_t)c->layer->in.dims - 1, after[3];
    struct text attributes = {0};
    for (size_t i = 0; i < count; i++) after[i] = size_at(&config_of(c->layer)->output_padding, (int)(3 - count + i));
    onnx_sizes(&attributes, "output_padding", after, count);
    return node_of(c, "ConvTranspose", &attributes);
}

static void transpose_c(const struct c_call *c) {
    struct convolution v = transpose_convolution_of(c->layer);
    size_t images = convolution_images(c->layer);
    const char *w = weight_table(c, &v), *b = c_plain(c, bias_of(c->layer));
    const char *to = is_volume(c->layer) ? c->scratch[0] : c->y;
    c_begin_images(c, images);
    text_printf(&c->c->body, "    convolution_transpose(%s, %s, %s, %s, %s,\n                %s, %s, %zu);\n",
                c_at_image(c, c->x, images, c_image_size(&v.out)), c_image(c, &v.out), w, is_volume(c->layer) ? "0" : b,
                c_at_image(c, to, images, c_image_size(&v.in)), c_image(c, &v.in), c_window(c, &v.window), v.groups);
    c_end_images(c, images);
    if (!is_volume(c->layer)) return;
    struct depth_window d = transpose_depth(c->layer);
    text_printf(&c->c->body, "    fold_depth(%s, %s, %s, %zu, %zu, %zu, %zu, %zu, %zu, %zu, %zu);\n", to, b, c->y, d.in,
                d.out, d.positions, d.channels, d.kernel, d.stride, d.padding, d.dilation);
}

static void transpose_c_scratch(const struct layer *layer, size_t sizes[2]) {
    if (!is_volume(layer)) return;
    struct depth_window w = transpose_depth(layer);
    sizes[0] = windows_size(&w);
}

#define TRANSPOSE                                                                                                      \
    .memory_format = FORMAT_CHANNELS_LAST, .depends_on_threads = true, .ignores = IGNORES_Y, .plan = transpose_plan,   \
    .alloc = alloc, .release = convolution_release, .prepare = prepare, .init = init, .autocast = AUTOCAST_PRODUCT,    \
    .forward = forward, .backward = backward, .multiply_adds = multiply_adds, .onnx = transpose_onnx,                  \
    .c = transpose_c, .c_scratch = transpose_c_scratch

const struct layer_type layer_conv_transpose2d = {
    .variant = {"conv_transpose2d", &transpose_schema,
                "Transposed convolution over (channels, height, width) (torch.nn.ConvTranspose2d)."},
    .pytorch = "nn.ConvTranspose2d({channels}, {out}, "
               "{kernel_size}{,stride}{,padding}{,output_padding}{,groups}{,bias}{,dilation})",
    .copies = COPY_WITHOUT_GAPS,
    TRANSPOSE,
};
const struct layer_type layer_conv_transpose1d = {
    .variant = {"conv_transpose1d", &transpose_schema1d,
                "Transposed convolution over (channels, length) (torch.nn.ConvTranspose1d)."},
    .pytorch = "nn.ConvTranspose1d({channels}, {out}, "
               "{kernel_size}{,stride}{,padding}{,output_padding}{,groups}{,bias}{,dilation})",
    .copies = COPY_WITHOUT_GAPS,
    TRANSPOSE,
};
const struct layer_type layer_conv_transpose3d = {
    .variant = {"conv_transpose3d", &transpose_schema3d,
                "Transposed convolution over (channels, depth, height, width) (torch.nn.ConvTranspose3d)."},
    .pytorch = "nn.ConvTranspose3d({channels}, {out}, "
               "{kernel_size}{,stride}{,padding}{,output_padding}{,groups}{,bias}{,dilation})",
    TRANSPOSE,
};
