/* The element-wise functions: the layers of the table of device/activations.h, gelu, leaky_relu and elu. */
#include "model/layers/layers.h"

struct gelu_config {
    int approximate; /* index into approximations */
};

static const char *const approximations[] = {"none", "tanh", NULL};

static const struct schema_row gelu_rows[] = {
    SCHEMA_ROW(CHOICE, struct gelu_config, approximate, .fallback = "none", .choices = approximations,
               .doc = "`none`: x Phi(x) by the error function; `tanh`: the approximation of GPT-2."),
    {0},
};

static const struct schema gelu_schema = {
    .name = "model.layers.gelu", .size = sizeof(struct gelu_config), .rows = gelu_rows};

struct leaky_relu_config {
    double negative_slope;
};

static const struct schema_row leaky_relu_rows[] = {
    SCHEMA_ROW(REAL, struct leaky_relu_config, negative_slope, .fallback = "0.01", .min = -INFINITY, .max = INFINITY,
               .doc = "Slope below 0."),
    {0},
};

static const struct schema leaky_relu_schema = {.name = "model.layers.leaky_relu",
                                                .size = sizeof(struct leaky_relu_config),
                                                .rows = leaky_relu_rows,
                                                .shorthand = "negative_slope"};

static enum activation function_of(const struct layer *layer) {
#define X(id, name, module, properties, doc)                                                                           \
    if (layer->type == &layer_##name) return id;
    ACTIVATION_LAYERS(X)
#undef X
    return ((const struct gelu_config *)layer->config)->approximate ? ACTIVATION_GELU_TANH : ACTIVATION_GELU;
}

bool layer_is_gelu_tanh(const struct layer *layer) {
    return layer->type == &layer_gelu && function_of(layer) == ACTIVATION_GELU_TANH;
}

static status plan(struct layer *layer, struct planning *planning) {
    (void)planning;
    layer->out = layer->in;
    return OK;
}

static void forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                    const struct tensor *y) {
    device_ops(pass->device)->activation_forward(pass->device, function_of(layer), x, y, pass->rows * layer->in_size);
}

static void backward(const struct layer *layer, const struct pass *pass, const struct tensor *x, const struct tensor *y,
                     const struct tensor *dy, const struct tensor *dx) {
    if (dx)
        device_ops(pass->device)
            ->activation_backward(pass->device, function_of(layer), x, y, dy, dx, pass->rows * layer->in_size);
}

static void facts(const struct layer *layer, struct layer_facts *to) {
    to->is_activation = true;
    to->activation = function_of(layer);
}

static const char *write_onnx(const struct onnx_call *c) {
    struct text attributes = {0};
    switch (function_of(c->layer)) {
    case ACTIVATION_RELU:
        return onnx_node1(c->g, "Relu", c->x, NULL);
    case ACTIVATION_TANH:
        return onnx_node1(c->g, "Tanh", c->x, NULL);
    case ACTIVATION_SIGMOID:
        return onnx_node1(c->g, "Sigmoid", c->x, NULL);
    case ACTIVATION_SILU:
        return onnx_node2(c->g, "Mul", c->x, onnx_node1(c->g, "Sigmoid", c->x, NULL));
    case ACTIVATION_RELU6:
        return onnx_node(c->g, "Clip", (const char *const[]){c->x, onnx_scalar(c->g, 0), onnx_scalar(c->g, 6)}, 3,
                         NULL);
    case ACTIVATION_SELU:
        return onnx_node1(c->g, "Selu", c->x, NULL);
    case ACTIVATION_HARDSWISH:
        return onnx_node1(c->g, "HardSwish", c->x, NULL);
    case ACTIVATION_HARDSIGMOID:
        onnx_float(&attributes, "alpha", 1.0f / 6);
        onnx_float(&attributes, "beta", 0.5f);
        return onnx_node1(c->g, "HardSigmoid", c->x, &attributes);
    case ACTIVATION_MISH:
        return onnx_node1(c->g, "Mish", c->x, NULL);
    case ACTIVATION_SOFTPLUS:
        return onnx_node1(c->g, "Softplus", c->x, NULL);
    case ACTIVATION_ELU:
        return onnx_node1(c->g, "Elu", c->x, NULL);
    case ACTIVATION_GELU:
    case ACTIVATION_GELU_TANH:
        onnx_string(&attributes, "approximate", function_of(c->layer) == ACTIVATION_GELU ? "none" : "tanh");
        break;
    }
    return onnx_node1(c->g, "Gelu", c->x, &attributes);
}

/* The functions of the exported code have the names of the layers, but those of the C library. */
static void write_c(const struct c_call *c) {
    switch (function_of(c->layer)) {
    case ACTIVATION_TANH:
        c_elementwise(c, "hyperbolic_tangent");
        break;
    case ACTIVATION_GELU_TANH:
        c_elementwise(c, "gelu_tanh");
        break;
    default:
        c_elementwise(c, c->layer->type->variant.name);
    }
}

#define X(id, name, module, properties, doc)                                                                           \
    const struct layer_type layer_##name = {                                                                           \
        .variant = {#name, NULL, doc},                                                                                 \
        .gives_probabilities = ((properties)&ACTIVATION_IS_PROBABILITY) != 0,                                          \
        .memory_format = FORMAT_PRESERVE,                                                                              \
        .relu = (properties)&ACTIVATION_IS_RELU ? RELU_ITSELF : RELU_NONE,                                             \
        .is_by_position = true,                                                                                        \
        .plan = plan,                                                                                                  \
        .half = HALF_ALL,                                                                                              \
        .forward = forward,                                                                                            \
        .backward = backward,                                                                                          \
        .facts = facts,                                                                                                \
        .onnx = write_onnx,                                                                                            \
        .c = write_c,                                                                                                  \
        .pytorch = "nn." #module "()",                                                                                 \
    };
ACTIVATION_LAYERS(X)
#undef X

/* Names in other programs. */
static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "Swish", "silu"),
    VALUE_ALIAS("layer", "logistic", "sigmoid"),
    VALUE_ALIAS("layer", "hard_swish h_swish hswish", "hardswish"),
    VALUE_ALIAS("layer", "hard_sigmoid h_sigmoid", "hardsigmoid"),
    KEY_ALIAS("layer.leaky_relu", "alpha slope leak", ".negative_slope"),
    CALL_ALIAS("layer", "leaky_relu", "negative_slope"),
    CALL_ALIAS("layer", "relu", "-"),
    CALL_ALIAS("layer", "silu", "-"),
    {0},
};

const struct layer_type layer_gelu = {
    .aliases = aliases,
    .variant = {"gelu", &gelu_schema, "Gaussian error linear unit (torch.nn.GELU)."},
    .memory_format = FORMAT_PRESERVE,
    .is_by_position = true,
    .plan = plan,
    .half = HALF_ALL,
    .forward = forward,
    .backward = backward,
    .facts = facts,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "nn.GELU({,approximate})",
};

static float slope_of(const struct layer *layer) {
    return (float)((const struct leaky_relu_config *)layer->config)->negative_slope;
}

static void leaky_relu_forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                               const struct tensor *y) {
    device_ops(pass->device)->leaky_relu_forward(pass->device, slope_of(layer), x, y, pass->rows * layer->in_size);
}

static void leaky_relu_backward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                                const struct tensor *y, const struct tensor *dy, const struct tensor *dx) {
    (void)y;
    if (dx)
        device_ops(pass->device)
            ->leaky_relu_backward(pass->device, slope_of(layer), x, dy, dx, pass->rows * layer->in_size);
}

static const char *write_slope(const struct onnx_call *c, const char *type, float slope) {
    struct text attributes = {0};
    onnx_float(&attributes, "alpha", slope);
    return onnx_node1(c->g, type, c->x, &attributes);
}

static const char *leaky_relu_onnx(const struct onnx_call *c) {
    return write_slope(c, "LeakyRelu", slope_of(c->layer));
}

static void add_leaky_relu(const struct c_call *c, const char *x, float slope) {
    text_printf(c_use(c, "leaky_relu"), "    leaky_relu(%s, %af, %s, %zu);\n", x, (double)slope, c->y,
                c->layer->in_size);
}

static void leaky_relu_c(const struct c_call *c) { add_leaky_relu(c, c->x, slope_of(c->layer)); }

const struct layer_type layer_leaky_relu = {
    .variant = {"leaky_relu", &leaky_relu_schema, "x above 0, negative_slope x below (torch.nn.LeakyReLU)."},
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_Y,
    .keeps_positions = true,
    .plan = plan,
    .half = HALF_ALL,
    .forward = leaky_relu_forward,
    .backward = leaky_relu_backward,
    .onnx = leaky_relu_onnx,
    .c = leaky_relu_c,
    .pytorch = "nn.LeakyReLU({negative_slope})",
};

/* ---- elu: leaky_relu with the slope alpha, of ELU with alpha 1, which has the same sign ---- */

struct elu_config {
    double alpha;
};

static const struct schema_row elu_rows[] = {
    SCHEMA_ROW(REAL, struct elu_config, alpha, .fallback = "1", .min = 0, .max = INFINITY,
               .doc = "Minus the limit below 0."),
    {0},
};

static const struct schema elu_schema = {
    .name = "model.layers.elu", .size = sizeof(struct elu_config), .rows = elu_rows, .shorthand = "alpha"};

static float alpha_of(const struct layer *layer) { return (float)((const struct elu_config *)layer->config)->alpha; }

/* Where alpha is not 1: ELU with alpha 1, and a gradient. */
static status plan_elu(struct layer *layer, struct planning *planning) {
    layer->saved_size = alpha_of(layer) == 1 ? 0 : 2 * layer->in_size;
    return plan(layer, planning);
}

static void elu_forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                        const struct tensor *y) {
    const struct device_ops *ops = device_ops(pass->device);
    size_t count = pass->rows * layer->in_size;
    ops->activation_forward(pass->device, ACTIVATION_ELU, x, layer->saved ? F32(layer->saved) : y, count);
    if (layer->saved) ops->leaky_relu_forward(pass->device, alpha_of(layer), F32(layer->saved), y, count);
}

static void elu_backward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                         const struct tensor *y, const struct tensor *dy, const struct tensor *dx) {
    const struct device_ops *ops = device_ops(pass->device);
    size_t count = pass->rows * layer->in_size;
    if (!dx) return;
    if (layer->saved) {
        float *scaled = layer->saved + count;
        ops->leaky_relu_backward(pass->device, alpha_of(layer), F32(layer->saved), dy, F32(scaled), count);
        ops->activation_backward(pass->device, ACTIVATION_ELU, x, F32(layer->saved), F32(scaled), dx, count);
    } else {
        ops->activation_backward(pass->device, ACTIVATION_ELU, x, y, dy, dx, count);
    }
}

static const char *elu_onnx(const struct onnx_call *c) { return write_slope(c, "Elu", alpha_of(c->layer)); }

static void elu_c(const struct c_call *c) {
    c_elementwise(c, "elu");
    if (alpha_of(c->layer) != 1) add_leaky_relu(c, c->y, alpha_of(c->layer));
}

const struct layer_type layer_elu = {
    .variant = {"elu", &elu_schema, "x above 0, alpha (exp(x) - 1) below (torch.nn.ELU)."},
    .memory_format = FORMAT_PRESERVE,
    .keeps_positions = true,
    .plan = plan_elu,
    .forward = elu_forward,
    .backward = elu_backward,
    .onnx = elu_onnx,
    .c = elu_c,
    .pytorch = "nn.ELU({alpha})",
};
