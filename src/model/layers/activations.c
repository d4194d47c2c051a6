/* relu, tanh, sigmoid, gelu, silu, leaky_relu: element-wise functions. */
#include "model/layers/layers.h"

struct gelu_config {
    int approximate; /* index into approximations */
};

static const char *const approximations[] = {"none", "tanh", NULL};

static const struct schema_row gelu_rows[] = {
    {.key = "approximate",
     .type = SCHEMA_CHOICE,
     .offset = offsetof(struct gelu_config, approximate),
     .fallback = "none",
     .choices = approximations,
     .doc = "`none`: x Phi(x) by the error function; `tanh`: the approximation of GPT-2."},
    {0},
};

static const struct schema gelu_schema = {
    .name = "model.layers.gelu", .size = sizeof(struct gelu_config), .rows = gelu_rows};

struct leaky_relu_config {
    double negative_slope;
};

static const struct schema_row leaky_relu_rows[] = {
    {.key = "negative_slope",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct leaky_relu_config, negative_slope),
     .fallback = "0.01",
     .min = -INFINITY,
     .max = INFINITY,
     .doc = "Slope below 0."},
    {0},
};

static const struct schema leaky_relu_schema = {.name = "model.layers.leaky_relu",
                                                .size = sizeof(struct leaky_relu_config),
                                                .rows = leaky_relu_rows,
                                                .shorthand = "negative_slope"};

static enum activation function_of(const struct layer *layer) {
    if (layer->type == &layer_relu) return ACTIVATION_RELU;
    if (layer->type == &layer_tanh) return ACTIVATION_TANH;
    if (layer->type == &layer_sigmoid) return ACTIVATION_SIGMOID;
    if (layer->type == &layer_silu) return ACTIVATION_SILU;
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

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    device_ops(pass->device)->activation_forward(pass->device, function_of(layer), x, y, pass->rows * layer->in_size);
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    if (dx)
        device_ops(pass->device)
            ->activation_backward(pass->device, function_of(layer), x, y, dy, dx, pass->rows * layer->in_size);
}

const struct layer_type layer_relu = {.variant = {"relu", NULL, "max(x, 0) (torch.nn.ReLU)."},
                                      .order = ORDER_ANY,
                                      .relu = RELU_ITSELF,
                                      .plan = plan,
                                      .half = HALF_ALL,
                                      .forward = forward,
                                      .backward = backward};
const struct layer_type layer_tanh = {.variant = {"tanh", NULL, "Hyperbolic tangent (torch.nn.Tanh)."},
                                      .order = ORDER_ANY,
                                      .plan = plan,
                                      .half = HALF_ALL,
                                      .forward = forward,
                                      .backward = backward};
const struct layer_type layer_sigmoid = {.variant = {"sigmoid", NULL, "1 / (1 + exp(-x)) (torch.nn.Sigmoid)."},
                                         .gives_probabilities = true,
                                         .order = ORDER_ANY,
                                         .plan = plan,
                                         .half = HALF_ALL,
                                         .forward = forward,
                                         .backward = backward};
const struct layer_type layer_gelu = {.variant = {"gelu", &gelu_schema, "Gaussian error linear unit (torch.nn.GELU)."},
                                      .order = ORDER_ANY,
                                      .plan = plan,
                                      .half = HALF_ALL,
                                      .forward = forward,
                                      .backward = backward};
const struct layer_type layer_silu = {
    .variant = {"silu", NULL, "x sigmoid(x), also called swish (torch.nn.SiLU)."},
    .order = ORDER_ANY,
    .plan = plan,
    .half = HALF_ALL,
    .forward = forward,
    .backward = backward,
};

static float slope_of(const struct layer *layer) {
    return (float)((const struct leaky_relu_config *)layer->config)->negative_slope;
}

static void leaky_relu_forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    device_ops(pass->device)->leaky_relu_forward(pass->device, slope_of(layer), x, y, pass->rows * layer->in_size);
}

static void leaky_relu_backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                                const float *dy, float *dx) {
    (void)y;
    if (dx)
        device_ops(pass->device)
            ->leaky_relu_backward(pass->device, slope_of(layer), x, dy, dx, pass->rows * layer->in_size);
}

const struct layer_type layer_leaky_relu = {
    .variant = {"leaky_relu", &leaky_relu_schema, "x above 0, negative_slope x below (torch.nn.LeakyReLU)."},
    .order = ORDER_ANY,
    .ignores = IGNORES_Y,
    .plan = plan,
    .half = HALF_ALL,
    .forward = leaky_relu_forward,
    .backward = leaky_relu_backward,
};
