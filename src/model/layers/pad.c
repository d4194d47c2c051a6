/* pad: torch.nn.functional.pad of the last or the last two dimensions (torch.nn.ZeroPad2d, ReflectionPad2d, ...). */
#include "base/text.h"
#include "model/layers/images.h"
#include "model/layers/layers.h"

struct pad_config {
    struct int_list padding;
    int mode;
    double value;
};

static const char *const modes[] = {[PAD_CONSTANT] = "constant",
                                    [PAD_REFLECT] = "reflect",
                                    [PAD_REPLICATE] = "replicate",
                                    [PAD_CIRCULAR] = "circular",
                                    NULL};

static const struct schema_row rows[] = {
    SCHEMA_ROW(INT_LIST, struct pad_config, padding, .flags = SCHEMA_REQUIRED, .min = 0, .max = 1 << 20,
               .doc = "Elements before and after the last dimension, `[left, right]`, and before and after the one "
                      "before it, `[left, right, top, bottom]`; one number: of an image all four, else both."),
    SCHEMA_ROW(CHOICE, struct pad_config, mode, .fallback = "constant", .choices = modes,
               .doc = "What they are: `constant` the value, `reflect` the input reversed, without the element at the "
                      "border, `replicate` the element at the border, `circular` those at the other end."),
    SCHEMA_ROW(REAL, struct pad_config, value, .fallback = "0", .min = -INFINITY, .max = INFINITY,
               .doc = "The value of `constant`."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct pad_config *c = config;
    struct text full = {0};
    size_t count = c->padding.count;
    if (c->padding.items && count != 1 && count != 2 && count != 4) {
        text_printf(&full, "%s.padding", path);
        problems_add(problems, where->place, text_string(&full),
                     "expected one number, two (left, right) or four (left, right, top, bottom), got %zu", count);
    }
    if (c->mode != PAD_CONSTANT && (c->value < 0 || c->value > 0)) {
        text_printf(&full, "%s.value", path);
        problems_add(problems, where->place, text_string(&full), "only with mode: constant");
    }
    text_free(&full);
}

static const struct schema schema = {.name = "model.layers.pad",
                                     .size = sizeof(struct pad_config),
                                     .rows = rows,
                                     .shorthand = "padding",
                                     .check = check};

/* to: left, right, top, bottom */
static void sides_of(const struct layer *layer, size_t to[4]) {
    const struct int_list *padding = &((const struct pad_config *)layer->config)->padding;
    for (size_t i = 0; i < 4; i++) {
        bool is_given = padding->count == 1 ? i < 2 || layer->in.dims > 2 : i < padding->count;
        to[i] = is_given ? (size_t)padding->items[padding->count == 1 ? 0 : i] : 0;
    }
}

/* In memory a row is [outer] times struct pad: the padded dimensions are its last two, before or after the channels. */
static struct pad pad_of(const struct layer *layer, size_t *outer) {
    const struct pad_config *c = layer->config;
    const struct shape *in = &layer->in;
    size_t sides[4], width = (size_t)in->size[in->dims - 1], height = in->dims > 1 ? (size_t)in->size[in->dims - 2] : 1;
    sides_of(layer, sides);
    bool is_swapped = in->is_channels_last && in->dims == 2; /* (length, channels) */
    struct pad p = {.mode = (enum pad_mode)c->mode, .value = (float)c->value};
    p.inner = in->is_channels_last && in->dims > 2 ? (size_t)in->size[0] : 1;
    p.in[is_swapped] = height, p.before[is_swapped] = sides[2], p.after[is_swapped] = sides[3];
    p.in[!is_swapped] = width, p.before[!is_swapped] = sides[0], p.after[!is_swapped] = sides[1];
    *outer = layer->in_size / (width * height * p.inner);
    return p;
}

/* The padding of one dimension that the mode allows. */
static status check_side(const struct layer *layer, int dimension, size_t before, size_t after) {
    const struct pad_config *c = layer->config;
    size_t in = (size_t)layer->in.size[dimension], largest = before > after ? before : after;
    if (c->mode == PAD_REFLECT && largest >= in)
        return status_new(STATUS_USAGE,
                          "mode: reflect: the padding must be smaller than the dimension (%zu), got %zu and %zu", in,
                          before, after);
    if (c->mode == PAD_CIRCULAR && largest > in)
        return status_new(STATUS_USAGE,
                          "mode: circular: the padding must be at most the dimension (%zu), got %zu and %zu", in,
                          before, after);
    return OK;
}

static status plan(struct layer *layer, struct planning *planning) {
    size_t sides[4];
    int last = layer->in.dims - 1;
    (void)planning;
    sides_of(layer, sides);
    if (last == 0 && (sides[2] || sides[3]))
        return status_new(STATUS_USAGE, "four numbers pad two dimensions, but its input has one");
    TRY(check_side(layer, last, sides[0], sides[1]));
    if (last > 0) TRY(check_side(layer, last - 1, sides[2], sides[3]));
    layer->out = layer->in;
    layer->out.size[last] += (int64_t)(sides[0] + sides[1]);
    if (last > 0) layer->out.size[last - 1] += (int64_t)(sides[2] + sides[3]);
    return OK;
}

static void forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                    const struct tensor *y) {
    size_t outer;
    struct pad p = pad_of(layer, &outer);
    device_ops(pass->device)->shapes->pad_forward(pass->device, &p, floats(x), floats(y), pass->rows * outer);
}

static void backward(const struct layer *layer, const struct pass *pass, const struct tensor *x, const struct tensor *y,
                     const struct tensor *dy, const struct tensor *dx) {
    size_t outer;
    struct pad p = pad_of(layer, &outer);
    (void)x, (void)y;
    if (dx)
        device_ops(pass->device)->shapes->pad_backward(pass->device, &p, floats(dy), floats(dx), pass->rows * outer);
}

static const char *write_onnx(const struct onnx_call *c) {
    static const char *const words[] = {
        [PAD_CONSTANT] = "constant", [PAD_REFLECT] = "reflect", [PAD_REPLICATE] = "edge", [PAD_CIRCULAR] = "wrap"};
    const struct pad_config *config = c->layer->config;
    size_t sides[4], dims = (size_t)c->layer->in.dims + 1;
    int64_t pads[2 * (MAX_DIMS + 1)] = {0};
    struct text attributes = {0};
    sides_of(c->layer, sides);
    pads[dims - 1] = (int64_t)sides[0], pads[2 * dims - 1] = (int64_t)sides[1];
    if (dims > 2) pads[dims - 2] = (int64_t)sides[2], pads[2 * dims - 2] = (int64_t)sides[3];
    onnx_string(&attributes, "mode", words[config->mode]);
    const char *inputs[3] = {c->x, onnx_numbers(c->g, pads, 2 * dims)};
    bool is_constant = config->mode == PAD_CONSTANT;
    if (is_constant) inputs[2] = onnx_scalar(c->g, (float)config->value);
    return onnx_node(c->g, "Pad", inputs, is_constant ? 3 : 2, &attributes);
}

static void write_c(const struct c_call *c) {
    static const char letters[] = {
        [PAD_CONSTANT] = 'c', [PAD_REFLECT] = 'r', [PAD_REPLICATE] = 'e', [PAD_CIRCULAR] = 'w'};
    size_t outer;
    struct pad p = pad_of(c->layer, &outer);
    const size_t out[2] = {pad_size(&p, 0), pad_size(&p, 1)};
    text_printf(c_use(c, "pad"), "    pad(%s, %s, %zu, %s, %s, %s, %zu, '%c', ", c->x, c->y, outer, c_list(c, p.in, 2),
                c_list(c, p.before, 2), c_list(c, out, 2), p.inner, letters[p.mode]);
    if (isinf(p.value))
        text_printf(&c->c->body, "%sINFINITY);\n", p.value > 0 ? "" : "-");
    else
        text_printf(&c->c->body, "%af);\n", (double)p.value);
}

static bool runs_on(const struct device_ops *ops) { return ops->shapes != NULL; }

/* Names in other programs. */
static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "ZeroPad1d ZeroPad2d ConstantPad1d ConstantPad2d ZeroPadding1D ZeroPadding2D", "pad"),
    VALUE_ALIAS_NOTE("layer", "ReflectionPad1d ReflectionPad2d", "pad", "Write 'mode: reflect'"),
    VALUE_ALIAS_NOTE("layer", "ReplicationPad1d ReplicationPad2d", "pad", "Write 'mode: replicate'"),
    VALUE_ALIAS_NOTE("layer", "CircularPad1d CircularPad2d", "pad", "Write 'mode: circular'"),
    KEY_ALIAS("layer.pad", "pad_width size sizes", ".padding"),
    {0},
};

const struct layer_type layer_pad = {
    .aliases = aliases,
    .variant = {"pad", &schema,
                "More elements around the last one or two dimensions: the pixels of an image, the elements of a signal "
                "(torch.nn.functional.pad, torch.nn.ZeroPad2d, ReflectionPad2d, ReplicationPad2d)."},
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_X_AND_Y,
    .runs_on = runs_on,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "pad({x}, {padding}{,mode}{,value})",
};
