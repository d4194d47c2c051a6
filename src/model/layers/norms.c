/* layer_norm and rms_norm: over the last dimension (torch.nn.LayerNorm, torch.nn.RMSNorm). */
#include "device/norm.h"

#include <float.h>
#include <math.h>

#include "model/layers/layers.h"

struct norm_config {
    double eps; /* NAN: RMSNorm's default, FLT_EPSILON */
    bool elementwise_affine, bias;
};

#define EPS(fallback_, doc_)                                                                                           \
    SCHEMA_ROW(REAL, struct norm_config, eps, .fallback = fallback_, .min = 0, .max = 1, .doc = doc_)
#define AFFINE                                                                                                         \
    SCHEMA_ROW(BOOL, struct norm_config, elementwise_affine, .fallback = "true",                                       \
               .doc = "Whether the result is multiplied by a learned weight.")

static const struct schema_row layer_norm_rows[] = {
    EPS("1e-5", "Added to the variance."),
    AFFINE,
    SCHEMA_ROW(BOOL, struct norm_config, bias, .fallback = "true",
               .doc = "Whether a learned bias is added (requires elementwise_affine)."),
    {0},
};
static const struct schema_row rms_norm_rows[] = {
    EPS("null", "Added to the mean square; null: 1.19e-7, as PyTorch's default."),
    AFFINE,
    {0},
};
static const struct schema layer_norm_schema =
    SCHEMA("model.layers.layer_norm", struct norm_config, .rows = layer_norm_rows);
static const struct schema rms_norm_schema = SCHEMA("model.layers.rms_norm", struct norm_config, .rows = rms_norm_rows);

static const struct norm_config *config_of(const struct layer *layer) { return layer->config; }
static bool has_weight(const struct layer *layer) { return config_of(layer)->elementwise_affine; }
static bool has_bias(const struct layer *layer) {
    return has_weight(layer) && layer->type == &layer_layer_norm && config_of(layer)->bias;
}
static size_t width(const struct layer *layer) { return (size_t)layer->in.size[layer->in.dims - 1]; }

/* Number of vectors (last dimension) in [rows] rows of the batch. */
static size_t vectors(const struct layer *layer, size_t rows) { return rows * (layer->in_size / width(layer)); }

static status plan(struct layer *layer, struct planning *planning) {
    layer->out = layer->in;
    int64_t shape[1] = {(int64_t)width(layer)};
    if (has_weight(layer)) layer_declare(layer, planning, "weight", 1, shape);
    if (has_bias(layer)) layer_declare(layer, planning, "bias", 1, shape);
    layer->saved_size = layer->in_size / width(layer) * (layer->type == &layer_layer_norm ? 2 : 1);
    return OK;
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    (void)rng;
    if (!has_weight(layer)) return;
    for (size_t i = 0; i < width(layer); i++) params_value(params, layer->first_param)[i] = 1;
    if (!has_bias(layer)) return;
    for (size_t i = 0; i < width(layer); i++) params_value(params, layer->first_param + 1)[i] = 0;
}

static void layer_norm_forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                               const struct tensor *y) {
    device_ops(pass->device)
        ->norm_layers->layer_norm_forward(
            pass->device, floats(x), has_weight(layer) ? params_value(pass->params, layer->first_param) : NULL,
            has_bias(layer) ? params_value(pass->params, layer->first_param + 1) : NULL, (float)config_of(layer)->eps,
            y, layer->saved, vectors(layer, pass->rows), width(layer));
}

static bool layer_norm_takes_sum(const struct device_ops *ops) { return ops->norm_layers->add_layer_norm_forward; }

static void layer_norm_of_sum(const struct layer *layer, const struct pass *pass, const struct tensor *a,
                              const struct tensor *b, const struct tensor *x, const struct tensor *y) {
    const struct norm_ops *ops = device_ops(pass->device)->norm_layers;
    ops->add_layer_norm_forward(
        pass->device, a, b, floats(x), has_weight(layer) ? params_value(pass->params, layer->first_param) : NULL,
        has_bias(layer) ? params_value(pass->params, layer->first_param + 1) : NULL, (float)config_of(layer)->eps, y,
        layer->saved, vectors(layer, pass->rows), width(layer));
}

static void layer_norm_backward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                                const struct tensor *y, const struct tensor *dy, const struct tensor *dx) {
    (void)y;
    device_ops(pass->device)
        ->norm_layers->layer_norm_backward(
            pass->device, floats(x), has_weight(layer) ? params_value(pass->params, layer->first_param) : NULL,
            layer->saved, dy, dx, layer->adds_to_dx,
            has_weight(layer) ? params_gradient(pass->params, layer->first_param) : NULL,
            has_bias(layer) ? params_gradient(pass->params, layer->first_param + 1) : NULL, vectors(layer, pass->rows),
            width(layer));
}

static float rms_eps(const struct layer *layer) {
    double eps = config_of(layer)->eps;
    return isnan(eps) ? FLT_EPSILON : (float)eps;
}

static void rms_norm_forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                             const struct tensor *y) {
    device_ops(pass->device)
        ->norm_layers->rms_norm_forward(pass->device, floats(x),
                                        has_weight(layer) ? params_value(pass->params, layer->first_param) : NULL,
                                        rms_eps(layer), y, layer->saved, vectors(layer, pass->rows), width(layer));
}

static bool rms_norm_takes_sum(const struct device_ops *ops) { return ops->norm_layers->add_rms_norm_forward; }

static void rms_norm_of_sum(const struct layer *layer, const struct pass *pass, const struct tensor *a,
                            const struct tensor *b, const struct tensor *x, const struct tensor *y) {
    const struct norm_ops *ops = device_ops(pass->device)->norm_layers;
    ops->add_rms_norm_forward(pass->device, a, b, floats(x),
                              has_weight(layer) ? params_value(pass->params, layer->first_param) : NULL, rms_eps(layer),
                              y, layer->saved, vectors(layer, pass->rows), width(layer));
}

static void rms_norm_backward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                              const struct tensor *y, const struct tensor *dy, const struct tensor *dx) {
    (void)y;
    device_ops(pass->device)
        ->norm_layers->rms_norm_backward(pass->device, floats(x),
                                         has_weight(layer) ? params_value(pass->params, layer->first_param) : NULL,
                                         layer->saved, dy, dx, layer->adds_to_dx,
                                         has_weight(layer) ? params_gradient(pass->params, layer->first_param) : NULL,
                                         vectors(layer, pass->rows), width(layer));
}

static size_t weight_of(const struct layer *layer) { return has_weight(layer) ? layer->first_param : NO_PARAM; }
static size_t bias_of(const struct layer *layer) { return has_bias(layer) ? layer->first_param + 1 : NO_PARAM; }
static float layer_eps(const struct layer *layer) { return (float)config_of(layer)->eps; }

static void layer_facts(const struct layer *layer, struct layer_facts *to) { to->layer_norm_eps = layer_eps(layer); }
static void rms_facts(const struct layer *layer, struct layer_facts *to) { to->rms_norm_eps = rms_eps(layer); }

static const char *layer_onnx(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    onnx_float(&attributes, "epsilon", layer_eps(c->layer));
    const char *inputs[3] = {c->x, onnx_param_or(c->g, weight_of(c->layer), width(c->layer), 1)};
    if (has_bias(c->layer)) inputs[2] = onnx_param(c->g, bias_of(c->layer));
    return onnx_node(c->g, "LayerNormalization", inputs, inputs[2] ? 3 : 2, &attributes);
}

static const char *rms_onnx(const struct onnx_call *c) {
    const char *y = onnx_over_root_mean_square(c->g, c->x, rms_eps(c->layer));
    return has_weight(c->layer) ? onnx_node2(c->g, "Mul", y, onnx_param(c->g, weight_of(c->layer))) : y;
}

static void layer_c(const struct c_call *c) {
    const char *w = c_plain(c, weight_of(c->layer)), *b = c_plain(c, bias_of(c->layer));
    text_printf(c_use(c, "layer_norm"), "    layer_norm(%s, %s, %s, %af, %s, %zu, %zu);\n", c->x, w, b,
                (double)layer_eps(c->layer), c->y, vectors(c->layer, 1), width(c->layer));
}

static void rms_c(const struct c_call *c) {
    text_printf(c_use(c, "rms_norm"), "    rms_norm(%s, %s, %af, %s, %zu, %zu);\n", c->x,
                c_plain(c, weight_of(c->layer)), (double)rms_eps(c->layer), c->y, vectors(c->layer, 1),
                width(c->layer));
}

/* What both rows have. The input is a residual stream, which stays float32. */
#define NORM                                                                                                           \
    .is_by_position = true, .can_add_to_dx = true, .ignores = IGNORES_Y, .plan = plan, .init = init,                   \
    .half = HALF_Y | HALF_DY, .autocast = AUTOCAST_FLOAT32

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "LayerNormalization ln", "layer_norm"),
    CALL_ALIAS("layer", "layer_norm", "- eps elementwise_affine bias"),
    CALL_ALIAS("layer", "rms_norm", "- eps elementwise_affine"),
    {0},
};

const struct layer_type layer_layer_norm = {
    .aliases = aliases,
    .variant = {"layer_norm", &layer_norm_schema,
                "Mean 0 and variance 1 over the last dimension, then weight and bias (torch.nn.LayerNorm)."},
    .forward = layer_norm_forward,
    .forward_of_sum = layer_norm_of_sum,
    .takes_sum = layer_norm_takes_sum,
    .backward = layer_norm_backward,
    .facts = layer_facts,
    .onnx = layer_onnx,
    .c = layer_c,
    NORM,
    .pytorch = "nn.LayerNorm({in}{,eps}{,elementwise_affine}{,bias})",
};
const struct layer_type layer_rms_norm = {
    .variant = {"rms_norm", &rms_norm_schema,
                "Mean square 1 over the last dimension, then a weight (torch.nn.RMSNorm)."},
    .forward = rms_norm_forward,
    .forward_of_sum = rms_norm_of_sum,
    .takes_sum = rms_norm_takes_sum,
    .backward = rms_norm_backward,
    .facts = rms_facts,
    .onnx = rms_onnx,
    .c = rms_c,
    NORM,
    .pytorch = "RMSNorm({in}, {eps|1.1920929e-07}{,elementwise_affine})",
};
