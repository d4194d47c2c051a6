/* Learned factors of channels or features: layer_scale and layer_scale2d, of a residual branch (Touvron et al., Going
 * deeper with image transformers; timm's LayerScale and LayerScale2d), whose initial value is small, so a block starts
 * near the identity; prelu (torch.nn.PReLU), of what is below 0. */
#include "model/layers/images.h"
#include "model/layers/layers.h"

struct factor_config {
    int64_t num_parameters; /* of prelu */
    double init;
};

static const struct schema_row scale_rows[] = {
    SCHEMA_KEY(REAL, "init_values", struct factor_config, init, .fallback = "1e-5", .min = -INFINITY, .max = INFINITY,
               .doc = "Initial factor."),
    {0},
};
static const struct schema_row prelu_rows[] = {
    SCHEMA_ROW(INT, struct factor_config, num_parameters, .fallback = "1", .min = 1, .max = 1 << 20,
               .doc = "Learned slopes: 1, or one for each channel."),
    SCHEMA_ROW(REAL, struct factor_config, init, .fallback = "0.25", .min = -INFINITY, .max = INFINITY,
               .doc = "Initial slope below 0."),
    {0},
};
static const struct schema features_schema =
    SCHEMA("model.layers.layer_scale", struct factor_config, .rows = scale_rows, .shorthand = "init_values");
static const struct schema channels_schema =
    SCHEMA("model.layers.layer_scale2d", struct factor_config, .rows = scale_rows, .shorthand = "init_values");
static const struct schema prelu_schema =
    SCHEMA("model.layers.prelu", struct factor_config, .rows = prelu_rows, .shorthand = "num_parameters");

static const struct factor_config *config_of(const struct layer *layer) { return layer->config; }

static bool is_prelu(const struct layer *layer) { return layer->type == &layer_prelu; }

/* Features are the last dimension, channels the first; both are innermost in memory. */
static size_t width(const struct layer *layer) {
    if (is_prelu(layer)) return (size_t)config_of(layer)->num_parameters;
    return (size_t)layer->in.size[layer->type == &layer_layer_scale ? layer->in.dims - 1 : 0];
}

static status check_slopes(const struct layer *layer) {
    long long slopes = (long long)config_of(layer)->num_parameters;
    if (layer->cached_positions && slopes != 1)
        return status_usage("num_parameters %lld is a slope for each position: it needs all positions at once", slopes);
    if (slopes == 1 || slopes == layer->in.size[0]) return OK;
    return status_usage("num_parameters must be 1 or the channels (%lld), got %lld", (long long)layer->in.size[0],
                        slopes);
}

static status plan(struct layer *layer, struct planning *planning) {
    if (layer->type == &layer_layer_scale2d) TRY(image_check(layer, 3));
    if (is_prelu(layer)) TRY(check_slopes(layer));
    int64_t count = (int64_t)width(layer);
    layer->out = layer->in;
    layer_declare(layer, planning, is_prelu(layer) ? "weight" : "gamma", 1, &count);
    return OK;
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    float *factors = params_value(params, layer->first_param);
    for (size_t i = 0; i < width(layer); i++) factors[i] = (float)config_of(layer)->init;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    (is_prelu(layer) ? pass->ops->prelu_forward : pass->ops->scale_forward)(
        pass->device, floats(o.x), params_value(pass->params, layer->first_param), width(layer), floats(o.y),
        pass->rows * layer->in_size);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    (is_prelu(layer) ? pass->ops->prelu_backward : pass->ops->scale_backward)(
        pass->device, floats(o.x), params_value(pass->params, layer->first_param), width(layer), floats(o.dy),
        floats(o.dx), params_gradient(pass->params, layer->first_param), pass->rows * layer->in_size);
}

static const char *scale_onnx(const struct onnx_call *c) {
    bool is_last = c->layer->type == &layer_layer_scale || c->layer->in.dims == 1;
    size_t weight = c->layer->first_param;
    return onnx_node2(c->g, "Mul", c->x, is_last ? onnx_param(c->g, weight) : onnx_of_channels(c, weight));
}

/* The slopes of channels get a dimension of 1 for each one after them. */
static const char *prelu_onnx(const struct onnx_call *c) {
    const char *slopes = onnx_param(c->g, c->layer->first_param);
    if (c->layer->in.dims > 1) {
        int64_t shape[MAX_DIMS];
        for (int d = 0; d < c->layer->in.dims; d++) shape[d] = d ? 1 : -1;
        slopes = onnx_node2(c->g, "Reshape", slopes, onnx_numbers(c->g, shape, (size_t)c->layer->in.dims));
    }
    return onnx_node2(c->g, "PRelu", c->x, slopes);
}

static void write_c(const struct c_call *c) {
    const char *function = is_prelu(c->layer) ? "prelu" : "scale";
    text_printf(&c->c->body, "    %s(%s, %s, %s, %zu, %zu);\n", function, c->x, c_plain(c, c->layer->first_param), c->y,
                c->layer->in_size, width(c->layer));
}

#define FACTORS .ignores = IGNORES_Y, .plan = plan, .init = init, .forward = forward, .backward = backward, .c = write_c

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
    FACTORS,
    .onnx = scale_onnx,
    .pytorch = "LayerScale({in}, {init_values})",
};
const struct layer_type layer_layer_scale2d = {
    .variant = {"layer_scale2d", &channels_schema,
                "The same for each channel of (channels, height, width) (timm's LayerScale2d)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    FACTORS,
    .onnx = scale_onnx,
    .pytorch = "LayerScale2d({channels}, {init_values})",
};
const struct layer_type layer_prelu = {
    .variant = {"prelu", &prelu_schema, "x above 0, else x times a learned slope (torch.nn.PReLU)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .is_by_position = true,
    FACTORS,
    .onnx = prelu_onnx,
    .pytorch = "nn.PReLU({num_parameters}, {init})",
};
