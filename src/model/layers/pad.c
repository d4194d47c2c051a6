/* pad: torch.nn.functional.pad of the last one, two or three dimensions (torch.nn.ZeroPad2d, ReflectionPad3d, ...). */
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
               .doc = "Elements before and after the last dimension, `[left, right]`, before and after the one before "
                      "it, `[left, right, top, bottom]`, and of volumes, `[left, right, top, bottom, front, back]`; "
                      "one number: of a volume all six, of an image all four, else both."),
    SCHEMA_ROW(CHOICE, struct pad_config, mode, .fallback = "constant", .choices = modes,
               .doc = "What they are: `constant` the value, `reflect` the input reversed, without the element at the "
                      "border, `replicate` the element at the border, `circular` those at the other end."),
    SCHEMA_ROW(REAL, struct pad_config, value, .fallback = "0", .min = -INFINITY, .max = INFINITY,
               .doc = "The value of `constant`."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct pad_config *c = config;
    size_t count = c->padding.count;
    if (c->padding.items && count != 1 && count != 2 && count != 4 && count != 6)
        key_problem(problems, where, path, "padding",
                    "expected one number, two (left, right), four (left, right, top, bottom) or six (left, right, top, "
                    "bottom, front, back), got %zu",
                    count);
    if (c->mode != PAD_CONSTANT && (c->value < 0 || c->value > 0))
        key_problem(problems, where, path, "value", "only with mode: constant");
}

static const struct schema schema =
    SCHEMA("model.layers.pad", struct pad_config, .rows = rows, .shorthand = "padding", .check = check);

/* to: left, right, top, bottom, front, back */
static void sides_of(const struct layer *layer, size_t to[6]) {
    const struct int_list *padding = &((const struct pad_config *)layer->config)->padding;
    size_t count = padding->count;
    if (count == 1) count = layer->in.dims < 3 ? 2 : layer->in.dims == 3 ? 4 : 6;
    for (size_t i = 0; i < 6; i++) to[i] = i < count ? (size_t)padding->items[padding->count == 1 ? 0 : i] : 0;
}

/* In memory a row is [outer] times struct pad: the padded dimensions are its last three, before or after the channels.
 */
static struct pad pad_of(const struct layer *layer, size_t *outer) {
    const struct pad_config *c = layer->config;
    const struct shape *in = &layer->in;
    bool is_signal = in->is_channels_last && in->dims == 2; /* (length, channels) */
    struct pad p = {.in = {1, 1, 1}, .mode = (enum pad_mode)c->mode, .value = (float)c->value};
    size_t sides[6];
    sides_of(layer, sides);
    p.inner = in->is_channels_last && in->dims > 2 ? (size_t)in->size[0] : 1;
    int dims = in->dims > 3 ? 3 : in->dims < 2 ? 1 : 2; /* that are padded */
    for (int i = 0; i < dims; i++) {
        int d = is_signal ? 1 + i : 2 - i;
        p.in[d] = (size_t)in->size[in->dims - 1 - i], p.before[d] = sides[2 * i], p.after[d] = sides[2 * i + 1];
    }
    *outer = layer->in_size / pad_inputs(&p);
    return p;
}

/* The padding of one dimension that the mode allows. */
static status check_side(const struct layer *layer, int dimension, size_t before, size_t after) {
    const struct pad_config *c = layer->config;
    size_t in = (size_t)layer->in.size[dimension], largest = before > after ? before : after;
    if (c->mode == PAD_REFLECT && largest >= in)
        return status_usage("mode: reflect: the padding must be smaller than the dimension (%zu), got %zu and %zu", in,
                            before, after);
    if (c->mode == PAD_CIRCULAR && largest > in)
        return status_usage("mode: circular: the padding must be at most the dimension (%zu), got %zu and %zu", in,
                            before, after);
    return OK;
}

static status plan(struct layer *layer, struct planning *planning) {
    size_t sides[6];
    int dims = layer->in.dims;
    sides_of(layer, sides);
    if (dims == 1 && (sides[2] || sides[3]))
        return status_usage("four numbers pad two dimensions, but its input has one");
    if (dims < 4 && (sides[4] || sides[5]))
        return status_usage("six numbers pad a volume, (channels, depth, height, width), but its input has %d %s", dims,
                            dims == 1 ? "dimension" : "dimensions");
    layer->out = layer->in;
    for (int d = 0; d < 3 && d < dims; d++) {
        TRY(check_side(layer, dims - 1 - d, sides[2 * d], sides[2 * d + 1]));
        layer->out.size[dims - 1 - d] += (int64_t)(sides[2 * d] + sides[2 * d + 1]);
    }
    return OK;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t outer;
    struct pad p = pad_of(layer, &outer);
    pass->ops->shapes->pad_forward(pass->device, &p, floats(o.x), floats(o.y), pass->rows * outer);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t outer;
    struct pad p = pad_of(layer, &outer);
    if (o.dx) pass->ops->shapes->pad_backward(pass->device, &p, floats(o.dy), floats(o.dx), pass->rows * outer);
}

static const char *write_onnx(const struct onnx_call *c) {
    static const char *const words[] = {
        [PAD_CONSTANT] = "constant", [PAD_REFLECT] = "reflect", [PAD_REPLICATE] = "edge", [PAD_CIRCULAR] = "wrap"};
    const struct pad_config *config = c->layer->config;
    size_t sides[6], dims = (size_t)c->layer->in.dims + 1;
    int64_t pads[2 * (MAX_DIMS + 1)] = {0};
    struct text attributes = {0};
    sides_of(c->layer, sides);
    for (size_t d = 0; d < 3 && d + 1 < dims; d++)
        pads[dims - 1 - d] = (int64_t)sides[2 * d], pads[2 * dims - 1 - d] = (int64_t)sides[2 * d + 1];
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
    const size_t out[3] = {pad_size(&p, 0), pad_size(&p, 1), pad_size(&p, 2)};
    text_printf(&c->c->body, "    pad(%s, %s, %zu, %s, %s, %s, %zu, '%c', ", c->x, c->y, outer, c_list(c, p.in, 3),
                c_list(c, p.before, 3), c_list(c, out, 3), p.inner, letters[p.mode]);
    if (isinf(p.value))
        text_printf(&c->c->body, "%sINFINITY);\n", p.value > 0 ? "" : "-");
    else
        text_printf(&c->c->body, "%af);\n", (double)p.value);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer",
                "ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d ZeroPadding1D ZeroPadding2D "
                "ZeroPadding3D",
                "pad"),
    VALUE_ALIAS_NOTE("layer", "ReflectionPad1d ReflectionPad2d ReflectionPad3d", "pad", "Write 'mode: reflect'"),
    VALUE_ALIAS_NOTE("layer", "ReplicationPad1d ReplicationPad2d ReplicationPad3d", "pad", "Write 'mode: replicate'"),
    VALUE_ALIAS_NOTE("layer", "CircularPad1d CircularPad2d CircularPad3d", "pad", "Write 'mode: circular'"),
    KEY_ALIAS("layer.pad", "pad_width size sizes", ".padding"),
    {0},
};

const struct layer_type layer_pad = {
    .aliases = aliases,
    .variant =
        {"pad", &schema,
         "More elements around the last one, two or three dimensions: the elements of a signal, the pixels of an image "
         "or of a volume (torch.nn.functional.pad, torch.nn.ZeroPad2d, ReflectionPad2d, ReplicationPad3d)."},
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "pad({x}, {padding}{,mode}{,value})",
};
