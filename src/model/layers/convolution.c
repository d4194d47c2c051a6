/* conv2d, conv1d: torch.nn.Conv2d and Conv1d, zero padding; patch_embedding: a conv2d whose pixels become a sequence. A
 * signal is an image of height 1. The device prepares each convolution once, when memory is allocated. */
#include "model/layers/convolution.h"
#include "model/init.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"

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
    struct text full = {0};
    size_t i = 0;
    while (i < c->stride.count && c->stride.items[i] == 1) i++;
    text_printf(&full, "%s.padding", path);
    if (i < c->stride.count)
        problems_add(problems, where->place, text_string(&full), "'same' needs a stride of 1, got %lld",
                     (long long)c->stride.items[i]);
    text_free(&full);
}

void convolution_check(const struct convolution_config *c, int max, const struct node *where, const char *path,
                       struct problems *problems) {
    pair_check(&c->kernel_size, "kernel_size", max, where, path, problems);
    pair_check(&c->stride, "stride", max, where, path, problems);
    pair_check(&c->padding, "padding", max, where, path, problems);
    pair_check(&c->dilation, "dilation", max, where, path, problems);
    if (c->padding.word == PADDING_SAME) check_same(c, where, path, problems);
    if (c->out % c->groups != 0) {
        struct text full = {0};
        text_printf(&full, "%s.groups", path);
        problems_add(problems, where->place, text_string(&full), "must divide out (%lld), got %lld", (long long)c->out,
                     (long long)c->groups);
        text_free(&full);
    }
}

static void check_conv2d(void *config, const struct node *where, const char *path, struct problems *problems) {
    convolution_check(config, 2, where, path, problems);
}
static void check_conv1d(void *config, const struct node *where, const char *path, struct problems *problems) {
    convolution_check(config, 1, where, path, problems);
}

static void check_patches(void *config, const struct node *where, const char *path, struct problems *problems) {
    pair_check(&((struct convolution_config *)config)->kernel_size, "patch_size", 2, where, path, problems);
}

static const struct schema conv2d_schema = {
    .name = "model.layers.conv2d", .size = sizeof(struct convolution_config), .rows = rows, .check = check_conv2d};
static const struct schema conv1d_schema = {
    .name = "model.layers.conv1d", .size = sizeof(struct convolution_config), .rows = rows1d, .check = check_conv1d};

struct window convolution_window(const struct convolution_config *c, int dims) {
    struct window w = {.padding = {0, 0}, .dilation = {1, 1}};
    pair_of(&c->kernel_size, dims, 1, w.kernel);
    pair_of(c->stride.items ? &c->stride : &c->kernel_size, dims, 1, w.stride);
    if (c->padding.items) pair_of(&c->padding, dims, 0, w.padding);
    if (c->dilation.items) pair_of(&c->dilation, dims, 1, w.dilation);
    for (int d = 0; c->padding.word == PADDING_SAME && d < 2; d++) w.padding[d] = w.dilation[d] * (w.kernel[d] - 1) / 2;
    return w;
}

/* The patches are windows without overlap. */
static const struct schema_row patch_rows[] = {
    {.key = "embed_dim",
     .type = SCHEMA_INT,
     .offset = offsetof(struct convolution_config, out),
     .flags = SCHEMA_REQUIRED,
     .min = 1,
     .max = 1 << 20,
     .doc = "Features of a patch."},
    {.key = "patch_size",
     .type = SCHEMA_INT_LIST,
     .offset = offsetof(struct convolution_config, kernel_size),
     .flags = SCHEMA_REQUIRED,
     .min = 1,
     .max = 4096,
     .doc = "Size of a patch: one number, or [height, width]; must divide the image's."},
    {.key = "bias",
     .type = SCHEMA_BOOL,
     .offset = offsetof(struct convolution_config, bias),
     .fallback = "true",
     .doc = "Whether a bias is added."},
    {0},
};
static const struct schema patch_schema = {.name = "model.layers.patch_embedding",
                                           .size = sizeof(struct convolution_config),
                                           .rows = patch_rows,
                                           .check = check_patches};

static const struct convolution_config *config_of(const struct layer *layer) { return layer->config; }

static struct convolution convolution_of(const struct layer *layer) {
    const struct convolution_config *c = config_of(layer);
    struct convolution v = {.in = image_of(&layer->in),
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

size_t convolution_multiply_adds(const struct convolution *c) {
    return c->out.height * c->out.width * c->out.channels * fan_in(c);
}

void convolution_declare(struct layer *layer, struct planning *planning, const struct convolution *c, size_t biases) {
    int64_t shape[4] = {(int64_t)c->out.channels, (int64_t)(c->in.channels / c->groups), (int64_t)c->window.kernel[0],
                        (int64_t)c->window.kernel[1]};
    int64_t count = (int64_t)biases;
    if (layer->in.dims == 2) shape[2] = shape[3];
    params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.weight", layer->name),
                   layer->in.dims + 1, shape);
    if (config_of(layer)->bias)
        params_declare(planning->params, planning->arena, arena_printf(planning->arena, "%s.bias", layer->name), 1,
                       &count);
}

void convolution_init(const struct layer *layer, const struct params *params, struct rng *rng,
                      const struct convolution *c) {
    size_t first = layer->first_param;
    init_kaiming_uniform(rng, params_drawn(params, first), params->items[first].count, fan_in(c));
    if (config_of(layer)->bias)
        init_fan_in_uniform(rng, params_drawn(params, first + 1), params->items[first + 1].count, fan_in(c));
}

/* Images whose channels are innermost are sequences of patches. */
static status plan_patches(struct layer *layer, const struct convolution *c, struct planning *planning) {
    const size_t *size = c->window.kernel;
    if (c->in.height % size[0] != 0 || c->in.width % size[1] != 0)
        return status_new(STATUS_USAGE, "patch_size must divide the image (%zu x %zu), got %zu x %zu", c->in.height,
                          c->in.width, size[0], size[1]);
    layer->out = (struct shape){.dims = 2, .size = {(int64_t)(c->out.height * c->out.width), (int64_t)c->out.channels}};
    convolution_declare(layer, planning, c, c->out.channels);
    return OK;
}

static status plan(struct layer *layer, struct planning *planning) {
    TRY(image_check(layer, layer->type == &layer_conv1d ? 2 : 3));
    struct convolution c = convolution_of(layer);
    if (c.in.channels % c.groups != 0)
        return status_new(STATUS_USAGE, "groups must divide the input's channels (%zu), got %zu", c.in.channels,
                          c.groups);
    if (layer->type == &layer_patch_embedding) return plan_patches(layer, &c, planning);
    if (c.out.height == 0 || c.out.width == 0)
        return status_new(STATUS_USAGE, "the kernel is larger than the padded input (%zu x %zu)",
                          c.in.height + 2 * c.window.padding[0], c.in.width + 2 * c.window.padding[1]);
    layer->out = channels_last_shape(layer->in.dims, c.out.channels, c.out.height, c.out.width);
    convolution_declare(layer, planning, &c, c.out.channels);
    return OK;
}

size_t convolution_images(const struct layer *layer) { return layer->in.dims == 4 ? (size_t)layer->in.size[1] : 1; }

status convolution_alloc(struct layer *layer, struct device *device, const struct convolution *c, size_t batch) {
    return device_ops(device)->convolution->create(device, c, batch * convolution_images(layer),
                                                   (struct device_convolution **)&layer->runtime);
}

static status alloc(struct layer *layer, struct device *device, size_t batch) {
    struct convolution c = convolution_of(layer);
    return convolution_alloc(layer, device, &c, batch);
}

void convolution_release(struct layer *layer, struct device *device) {
    device_ops(device)->convolution->destroy(layer->runtime);
}

status convolution_prepare(struct layer *layer, struct device *device, size_t batch, bool is_training) {
    const struct convolution_ops *ops = device_ops(device)->convolution;
    return ops->prepare ? ops->prepare(layer->runtime, batch * convolution_images(layer), is_training) : OK;
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    struct convolution c = convolution_of(layer);
    convolution_init(layer, params, rng, &c);
}

void convolution_forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    size_t first = layer->first_param, images = pass->rows * convolution_images(layer);
    const float *bias = config_of(layer)->bias ? params_value(pass->params, first + 1) : NULL;
    device_ops(pass->device)
        ->convolution->forward(layer->runtime, x, params_value(pass->params, first), bias, y, images);
}

void convolution_backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                          const float *dy, float *dx) {
    (void)y;
    size_t first = layer->first_param, images = pass->rows * convolution_images(layer);
    float *dbias = config_of(layer)->bias ? params_gradient(pass->params, first + 1) : NULL;
    device_ops(pass->device)
        ->convolution->backward(layer->runtime, x, params_value(pass->params, first), dy, dx,
                                params_gradient(pass->params, first), dbias, images);
}

static size_t multiply_adds(const struct layer *layer) {
    struct convolution c = convolution_of(layer);
    return convolution_multiply_adds(&c);
}

static void describe(const struct layer *layer, struct operation *to) {
    to->kind = OPERATION_CONVOLUTION;
    to->convolution = convolution_of(layer);
    to->weight = layer->first_param;
    if (config_of(layer)->bias) to->bias = layer->first_param + 1;
}

bool convolution_runs_on(const struct device_ops *ops) { return ops->convolution != NULL; }

/* What all three types have. */
#define CONVOLUTION                                                                                                    \
    .memory_format = FORMAT_CHANNELS_LAST, .depends_on_threads = true, .relu = RELU_AFTER, .ignores = IGNORES_Y,       \
    .runs_on = convolution_runs_on, .plan = plan, .alloc = alloc, .release = convolution_release,                      \
    .prepare = convolution_prepare, .init = init, .autocast = AUTOCAST_PRODUCT, .forward = convolution_forward,        \
    .backward = convolution_backward, .half = HALF_ALL, .copies = COPY_WITHOUT_GAPS, .multiply_adds = multiply_adds,   \
    .describe = describe
const struct layer_type layer_conv2d = {
    .variant = {"conv2d", &conv2d_schema, "Convolution over (channels, height, width) (torch.nn.Conv2d)."},
    CONVOLUTION,
};
const struct layer_type layer_conv1d = {
    .variant = {"conv1d", &conv1d_schema, "Convolution over (channels, length) (torch.nn.Conv1d)."},
    CONVOLUTION,
};
const struct layer_type layer_patch_embedding = {
    .variant = {"patch_embedding", &patch_schema,
                "(channels, height, width) as (patches, embed_dim), row by row: each patch without overlap through one "
                "linear layer, as in a vision transformer (a torch.nn.Conv2d whose stride is its kernel_size, "
                "flatten(2) and transpose)."},
    CONVOLUTION,
};
