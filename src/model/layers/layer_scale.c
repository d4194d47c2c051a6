/* layer_scale: a learned factor for each feature of a residual branch (Touvron et al., Going deeper with image
 * transformers), timm's LayerScale and LayerScale2d. Its initial value is small, so a block starts near the identity.
 */
#include "model/layers/images.h"
#include "model/layers/layers.h"

struct layer_scale_config {
    double init_values;
};

static const struct schema_row rows[] = {
    SCHEMA_ROW(REAL, struct layer_scale_config, init_values, .fallback = "1e-5", .min = -INFINITY, .max = INFINITY,
               .doc = "Initial factor."),
    {0},
};
static const struct schema features_schema =
    SCHEMA("model.layers.layer_scale", struct layer_scale_config, .rows = rows, .shorthand = "init_values");
static const struct schema channels_schema =
    SCHEMA("model.layers.layer_scale2d", struct layer_scale_config, .rows = rows, .shorthand = "init_values");

/* Features are the last dimension, channels the first; both are innermost in memory. */
static size_t width(const struct layer *layer) {
    return (size_t)layer->in.size[layer->type == &layer_layer_scale ? layer->in.dims - 1 : 0];
}

static status plan(struct layer *layer, struct planning *planning) {
    if (layer->type == &layer_layer_scale2d) TRY(image_check(layer, 3));
    int64_t count = (int64_t)width(layer);
    layer->out = layer->in;
    layer_declare(layer, planning, "gamma", 1, &count);
    return OK;
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    const struct layer_scale_config *c = layer->config;
    float *gamma = params_value(params, layer->first_param);
    (void)rng;
    for (size_t i = 0; i < width(layer); i++) gamma[i] = (float)c->init_values;
}

static void forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                    const struct tensor *y) {
    device_ops(pass->device)
        ->scale_forward(pass->device, floats(x), params_value(pass->params, layer->first_param), width(layer),
                        floats(y), pass->rows * layer->in_size);
}

static void backward(const struct layer *layer, const struct pass *pass, const struct tensor *x, const struct tensor *y,
                     const struct tensor *dy, const struct tensor *dx) {
    (void)y;
    device_ops(pass->device)
        ->scale_backward(pass->device, floats(x), params_value(pass->params, layer->first_param), width(layer),
                         floats(dy), floats(dx), params_gradient(pass->params, layer->first_param),
                         pass->rows * layer->in_size);
}

static const char *write_onnx(const struct onnx_call *c) {
    bool is_last = c->layer->type == &layer_layer_scale || c->layer->in.dims == 1;
    size_t weight = c->layer->first_param;
    return onnx_node2(c->g, "Mul", c->x, is_last ? onnx_param(c->g, weight) : onnx_of_channels(c, weight));
}

static void write_c(const struct c_call *c) {
    size_t count = c->c->m->model->params.items[c->layer->first_param].count;
    text_printf(c_use(c, "scale"), "    scale(%s, %s, %s, %zu, %zu);\n", c->x, c_plain(c, c->layer->first_param), c->y,
                c->layer->in_size, count);
}

#define SCALE                                                                                                          \
    .ignores = IGNORES_Y, .plan = plan, .init = init, .forward = forward, .backward = backward, .onnx = write_onnx,    \
    .c = write_c

static const struct schema_alias aliases[] = {
    KEY_ALIAS("layer.layer_scale", "init_value layer_scale_init_value", ".init_values"),
    {0},
};

const struct layer_type layer_layer_scale = {
    .aliases = aliases,
    .variant = {"layer_scale", &features_schema,
                "x times a learned factor for each element of the last dimension, as the last layer of a residual "
                "branch (timm's LayerScale; its parameter is gamma)."},
    .is_by_position = true,
    SCALE,
    .pytorch = "LayerScale({in}, {init_values})",
};
const struct layer_type layer_layer_scale2d = {
    .variant = {"layer_scale2d", &channels_schema,
                "The same for each channel of (channels, height, width) (timm's LayerScale2d)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    SCALE,
    .pytorch = "LayerScale2d({channels}, {init_values})",
};
