/* upsample: an image or a signal of another size (torch.nn.Upsample, torch.nn.functional.interpolate). A signal is an
 * image of height 1. */
#include "model/layers/images.h"
#include "model/layers/layers.h"

enum mode { MODE_NEAREST, MODE_LINEAR, MODE_BILINEAR };

struct upsample_config {
    struct real_list scale_factor; /* items NULL: size */
    struct int_list size;          /* items NULL: scale_factor */
    int mode;
    bool align_corners;
};

static const char *const modes[] = {"nearest", "linear", "bilinear", NULL};

static const struct schema_row rows[] = {
    SCHEMA_ROW(REAL_LIST, struct upsample_config, scale_factor, .fallback = "null", .min = 1e-3, .max = 1024,
               .doc = "The size of the output divided by that of the input: one number, or [height, width]. The "
                      "output's size is rounded down."),
    SCHEMA_ROW(INT_LIST, struct upsample_config, size, .fallback = "null", .min = 1, .max = 1 << 20,
               .doc = "The size of the output instead: one number, or [height, width]."),
    SCHEMA_ROW(CHOICE, struct upsample_config, mode, .fallback = "nearest", .choices = modes,
               .doc = "`nearest` repeats pixels; `bilinear` interpolates between the four nearest pixels of an image, "
                      "`linear` between two elements of a signal (channels, length)."),
    SCHEMA_ROW(BOOL, struct upsample_config, align_corners, .fallback = "false",
               .doc = "Of `linear` and `bilinear`: whether the centres of the corner pixels of the input and the "
                      "output are the same points, instead of the corners of these pixels."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct upsample_config *c = config;
    if (!c->size.items == !c->scale_factor.items)
        key_problem(problems, where, path, "scale_factor", "%s",
                    c->size.items ? "either scale_factor or size, not both" : "missing; either scale_factor or size");
    if (c->mode == MODE_NEAREST && c->align_corners)
        key_problem(problems, where, path, "align_corners", "only with mode: linear or bilinear");
    if (c->scale_factor.items) sizes_check_count(c->scale_factor.count, "scale_factor", 2, where, path, problems);
    sizes_check(&c->size, "size", 2, where, path, problems);
}

static const struct schema schema =
    SCHEMA("model.layers.upsample", struct upsample_config, .rows = rows, .shorthand = "scale_factor", .check = check);

void *upsample_to(struct arena *arena, int64_t height, int64_t width) {
    struct upsample_config *c = arena_alloc(arena, sizeof *c);
    int64_t *size = arena_alloc(arena, 2 * sizeof *size);
    size[0] = height, size[1] = width;
    c->size.items = size;
    c->size.count = 2;
    c->mode = MODE_NEAREST;
    return c;
}

/* Along the height [0] or the width [1], of an input of [in] pixels. PyTorch computes with the scale that is given, not
 * with that of the rounded size. */
static struct resize_side side_of(const struct upsample_config *c, int d, size_t in) {
    struct resize_side s = {.in = in, .out = in};
    const struct real_list *scales = &c->scale_factor;
    double factor = 0;
    if (c->size.items) {
        s.out = (size_t)c->size.items[d == 0 ? 0 : c->size.count - 1];
    } else {
        factor = scales->items[d == 0 ? 0 : scales->count - 1];
        s.out = (size_t)((double)in * factor);
    }
    s.scale = factor > 0 ? (float)(1 / factor) : (float)in / (float)(s.out ? s.out : 1);
    if (c->align_corners) s.scale = s.out > 1 ? (float)(in - 1) / (float)(s.out - 1) : 0;
    return s;
}

/* The exception, for the nearest pixels of a small image whose side stays as large or becomes twice as large
 * (nearest_idx in ATen/native/UpSample.h, which upsample_nearest2d calls where the two sides are at most 128 together).
 */
static void use_size(struct resize_side sides[2]) {
    for (int d = 0; d < 2 && sides[0].out + sides[1].out <= 128; d++)
        if (sides[d].out == sides[d].in || sides[d].out == 2 * sides[d].in)
            sides[d].scale = (float)sides[d].in / (float)sides[d].out;
}

static struct resize resize_of(const struct layer *layer) {
    const struct upsample_config *c = layer->config;
    struct image_shape in = image_of(&layer->in);
    struct resize r = {
        .channels = in.channels, .is_nearest = c->mode == MODE_NEAREST, .align_corners = c->align_corners};
    bool is_image = layer->in.dims > 2;
    r.side[0] = is_image ? side_of(c, 0, in.height) : (struct resize_side){1, 1, 1};
    r.side[1] = side_of(c, 1, in.width);
    if (is_image && r.is_nearest) use_size(r.side);
    return r;
}

/* The dimensions of the input, for the mode. */
static status check_dims(const struct layer *layer) {
    const struct upsample_config *c = layer->config;
    size_t numbers = c->size.items ? c->size.count : c->scale_factor.count;
    if (c->mode == MODE_LINEAR || (c->mode == MODE_NEAREST && layer->in.dims == 2 && numbers == 1))
        return image_check(layer, 2);
    return image_check(layer, 3);
}

static status plan(struct layer *layer, struct planning *planning) {
    TRY(check_dims(layer));
    struct resize r = resize_of(layer);
    const struct resize_side *side = r.side;
    if (side[0].out > INT32_MAX || side[1].out > INT32_MAX || side[0].out == 0 || side[1].out == 0)
        return status_usage("the output would have %zu x %zu pixels", side[0].out, side[1].out);
    layer->out = channels_last_shape(layer->in.dims, r.channels, side[0].out, side[1].out);
    return OK;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct resize r = resize_of(layer);
    pass->ops->shapes->resize_forward(pass->device, &r, floats(o.x), floats(o.y), pass->rows);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct resize r = resize_of(layer);
    if (o.dx) pass->ops->shapes->resize_backward(pass->device, &r, floats(o.dy), floats(o.dx), pass->rows);
}

/* Whether the sizes determine the scale: it was not given, or it was not rounded. */
static bool has_scale_of_sizes(const struct resize_side *s) {
    float scale = (float)s->in / (float)s->out;
    return s->scale >= scale && s->scale <= scale;
}

/* By index, because Resize computes coordinates with other roundings, which select other pixels. */
static const char *nearest_pixels(const struct onnx_call *c, const struct resize *r) {
    const char *x = c->x;
    int64_t axis = c->layer->in.dims; /* the last one is the width */
    for (int d = 1; d >= 0 && axis >= 2; d--, axis--) {
        int64_t *indices = arena_alloc(c->g->arena, r->side[d].out * sizeof *indices);
        for (size_t o = 0; o < r->side[d].out; o++) indices[o] = (int64_t)resize_taps(r, d, o).first;
        x = onnx_gather(c->g, x, onnx_numbers(c->g, indices, r->side[d].out), axis);
    }
    return x;
}

static const char *write_onnx(const struct onnx_call *c) {
    const struct resize resize = resize_of(c->layer), *r = &resize;
    if (r->is_nearest) return nearest_pixels(c, r);
    size_t dims = (size_t)c->layer->in.dims - 1; /* that change */
    const struct resize_side *side = r->side + (2 - dims);
    int64_t axes[2] = {0}, sizes[2] = {0};
    float scales[2] = {0};
    bool has_sizes = true;
    struct text attributes = {0};
    for (size_t d = 0; d < dims; d++) {
        axes[d] = (int64_t)d + 2;
        sizes[d] = (int64_t)side[d].out;
        scales[d] = side[d].in == side[d].out ? 1 : 1 / side[d].scale; /* the same size: a copy */
        has_sizes = has_sizes && (r->align_corners || has_scale_of_sizes(&side[d]));
    }
    onnx_ints(&attributes, "axes", axes, dims);
    onnx_string(&attributes, "mode", "linear");
    onnx_string(&attributes, "coordinate_transformation_mode", r->align_corners ? "align_corners" : "half_pixel");
    const int64_t count = (int64_t)dims;
    const char *inputs[4] = {c->x, ""};
    inputs[2] = has_sizes ? "" : onnx_tensor(c->g, NULL, ONNX_FLOAT, scales, 1, &count);
    if (has_sizes) inputs[3] = onnx_numbers(c->g, sizes, dims);
    return onnx_node(c->g, "Resize", inputs, has_sizes ? 4 : 3, &attributes);
}

static void write_c(const struct c_call *c) {
    const struct resize r = resize_of(c->layer);
    struct image_shape in = {r.side[0].in, r.side[1].in, r.channels};
    struct image_shape out = {r.side[0].out, r.side[1].out, r.channels};
    text_printf(&c->c->body, "    upsample(%s, %s, %s, %s,\n             %af, %af, %d, %d);\n", c->x, c_image(c, &in),
                c->y, c_image(c, &out), (double)r.side[0].scale, (double)r.side[1].scale, r.is_nearest,
                r.align_corners);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "UpSampling1D UpSampling2D UpsamplingNearest2d interpolate resize", "upsample"),
    VALUE_ALIAS_NOTE("layer", "UpsamplingBilinear2d", "upsample", "Write 'mode: bilinear, align_corners: true'"),
    KEY_ALIAS("layer.upsample", "scale factor", ".scale_factor"),
    KEY_ALIAS("layer.upsample", "output_size out", ".size"),
    KEY_ALIAS("layer.upsample", "interpolation method", ".mode"),
    CALL_ALIAS("layer", "Upsample", "size scale_factor mode align_corners"),
    {0},
};

const struct layer_type layer_upsample = {
    .aliases = aliases,
    .variant = {"upsample", &schema,
                "An image or a signal of another size: pixels are repeated or interpolated (torch.nn.Upsample)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "nn.Upsample({,size}{,scale_factor}{,mode}{,align_corners})",
};
