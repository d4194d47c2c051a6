/* The element-wise functions: the layers of the tables of device/activations.h, and gelu. */
#include <assert.h>

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

static const struct schema gelu_schema = SCHEMA("model.layers.gelu", struct gelu_config, .rows = gelu_rows);

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

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    pass->ops->activation_forward(pass->device, function_of(layer), o.x, o.y, pass->rows * layer->in_size);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    if (o.dx)
        pass->ops->activation_backward(pass->device, function_of(layer), o.x, o.y, o.dy, o.dx,
                                       pass->rows * layer->in_size);
}

static void facts(const struct layer *layer, struct layer_facts *to) {
    to->is_activation = true;
    to->activation = function_of(layer);
}

/* Those that are one operator of ONNX. */
static const char *const onnx_operators[ACTIVATION_COUNT] = {
    [ACTIVATION_RELU] = "Relu",         [ACTIVATION_TANH] = "Tanh",           [ACTIVATION_SIGMOID] = "Sigmoid",
    [ACTIVATION_SELU] = "Selu",         [ACTIVATION_HARDSWISH] = "HardSwish", [ACTIVATION_MISH] = "Mish",
    [ACTIVATION_SOFTSIGN] = "Softsign",
};

static const char *write_onnx(const struct onnx_call *c) {
    enum activation f = function_of(c->layer);
    struct text attributes = {0};
    switch (f) {
    case ACTIVATION_SILU:
        return onnx_node2(c->g, "Mul", c->x, onnx_node1(c->g, "Sigmoid", c->x, NULL));
    case ACTIVATION_RELU6:
        return onnx_node(c->g, "Clip", (const char *const[]){c->x, onnx_scalar(c->g, 0), onnx_scalar(c->g, 6)}, 3,
                         NULL);
    case ACTIVATION_HARDSIGMOID:
        onnx_float(&attributes, "alpha", 1.0f / 6);
        onnx_float(&attributes, "beta", 0.5f);
        return onnx_node1(c->g, "HardSigmoid", c->x, &attributes);
    case ACTIVATION_LOGSIGMOID:
        return onnx_node1(c->g, "Neg", onnx_node1(c->g, "Softplus", onnx_node1(c->g, "Neg", c->x, NULL), NULL), NULL);
    case ACTIVATION_TANHSHRINK:
        return onnx_node2(c->g, "Sub", c->x, onnx_node1(c->g, "Tanh", c->x, NULL));
    case ACTIVATION_GELU:
    case ACTIVATION_GELU_TANH:
        onnx_string(&attributes, "approximate", f == ACTIVATION_GELU ? "none" : "tanh");
        return onnx_node1(c->g, "Gelu", c->x, &attributes);
    default:
        assert(onnx_operators[f]);
        return onnx_node1(c->g, onnx_operators[f], c->x, NULL);
    }
}

static void write_c(const struct c_call *c) {
#define X(id, name, module, properties, doc) #name "_value(",
    static const char *const calls[] = {ACTIVATIONS(X)};
#undef X
    c_each(c->c, calls[function_of(c->layer)], c->x, c->y, c->layer->in_size);
}

#define X(id, name, module, properties, doc)                                                                           \
    const struct layer_type layer_##name = {                                                                           \
        .variant = {#name, NULL, doc},                                                                                 \
        .gives_probabilities = ((properties)&ACTIVATION_IS_PROBABILITY) != 0,                                          \
        .memory_format = FORMAT_PRESERVE,                                                                              \
        .relu = (properties)&ACTIVATION_IS_RELU ? RELU_ITSELF : RELU_NONE,                                             \
        .is_by_position = true,                                                                                        \
        .plan = layer_plan_same,                                                                                       \
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

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "Swish", "silu"),
    VALUE_ALIAS("layer", "logistic", "sigmoid"),
    VALUE_ALIAS("layer", "hard_swish h_swish hswish", "hardswish"),
    VALUE_ALIAS("layer", "hard_sigmoid h_sigmoid", "hardsigmoid"),
    VALUE_ALIAS("layer", "log_sigmoid", "logsigmoid"),
    VALUE_ALIAS("layer", "soft_sign", "softsign"),
    VALUE_ALIAS("layer", "tanh_shrink", "tanhshrink"),
    VALUE_ALIAS("layer", "soft_plus", "softplus"),
    VALUE_ALIAS("layer", "soft_shrink", "softshrink"),
    VALUE_ALIAS("layer", "hard_shrink", "hardshrink"),
    VALUE_ALIAS("layer", "hard_tanh clamp clip", "hardtanh"),
    KEY_ALIAS("layer.leaky_relu", "alpha slope leak", ".negative_slope"),
    KEY_ALIAS("layer.hardtanh", "min min_value", ".min_val"),
    KEY_ALIAS("layer.hardtanh", "max max_value", ".max_val"),
    KEY_ALIAS("layer.softshrink", "lambda lambda_", ".lambd"),
    KEY_ALIAS("layer.hardshrink", "lambda lambda_", ".lambd"),
    CALL_ALIAS("layer", "leaky_relu", "negative_slope"),
    VALUE_ALIAS("layer", "randomized_leaky_relu rleaky_relu", "rrelu"),
    CALL_ALIAS("layer", "rrelu", "lower upper"),
    CALL_ALIAS("layer", "elu", "alpha"),
    CALL_ALIAS("layer", "celu", "alpha"),
    CALL_ALIAS("layer", "softplus", "beta threshold"),
    CALL_ALIAS("layer", "hardtanh", "min_val max_val"),
    CALL_ALIAS("layer", "threshold", "threshold value"),
    CALL_ALIAS("layer", "softshrink", "lambd"),
    CALL_ALIAS("layer", "hardshrink", "lambd"),
    CALL_ALIAS("layer", "relu", "-"),
    CALL_ALIAS("layer", "silu", "-"),
    {0},
};

const struct layer_type layer_gelu = {
    .aliases = aliases,
    .variant = {"gelu", &gelu_schema, "Gaussian error linear unit (torch.nn.GELU)."},
    .memory_format = FORMAT_PRESERVE,
    .is_by_position = true,
    .plan = layer_plan_same,
    .half = HALF_ALL,
    .forward = forward,
    .backward = backward,
    .facts = facts,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "nn.GELU({,approximate})",
};

/* ---- functions with keys ---- */

struct keyed_config {
    double a, b; /* those of struct keyed_activation; of celu b follows */
};

#define NUMBER(key_, number_, ...)                                                                                     \
    { .key = key_, .type = SCHEMA_REAL, .offset = offsetof(struct keyed_config, number_), __VA_ARGS__ }
#define ANY .min = -INFINITY, .max = INFINITY
#define POSITIVE .min = 0, .max = INFINITY, .excludes_min = true

static const struct schema_row leaky_relu_rows[] = {
    NUMBER("negative_slope", a, .fallback = "0.01", ANY, .doc = "Slope below 0."), {0}};
static const struct schema_row elu_rows[] = {
    NUMBER("alpha", a, .fallback = "1", .min = 0, .max = INFINITY, .doc = "Minus the limit below 0."), {0}};
static const struct schema_row celu_rows[] = {
    NUMBER("alpha", a, .fallback = "1", POSITIVE, .doc = "Minus the limit below 0."), {0}};
static const struct schema_row softplus_rows[] = {
    NUMBER("beta", a, .fallback = "1", POSITIVE, .doc = "How sharp the bend at 0 is."),
    NUMBER("threshold", b, .fallback = "20", ANY, .doc = "Where beta x is larger, the output is x."),
    {0}};
static const struct schema_row hardtanh_rows[] = {
    NUMBER("min_val", a, .fallback = "-1", ANY, .doc = "The smallest output."),
    NUMBER("max_val", b, .fallback = "1", ANY, .doc = "The largest output."),
    {0}};
static const struct schema_row threshold_rows[] = {
    NUMBER("threshold", a, .flags = SCHEMA_REQUIRED, ANY, .doc = "Inputs up to this are replaced."),
    NUMBER("value", b, .flags = SCHEMA_REQUIRED, ANY, .doc = "What replaces them."),
    {0}};
static const struct schema_row softshrink_rows[] = {
    NUMBER("lambd", a, .fallback = "0.5", .min = 0, .max = INFINITY, .doc = "How far inputs move towards 0."), {0}};
static const struct schema_row hardshrink_rows[] = {
    NUMBER("lambd", a, .fallback = "0.5", .min = 0, .max = INFINITY, .doc = "Inputs within -lambd and lambd become 0."),
    {0}};

static void check_hardtanh(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct keyed_config *c = config;
    if (c->a >= c->b)
        problems_add(problems, where ? where->place : (struct place){0}, path, "min_val must be less than max_val");
}

/* X(id, name, key that may stand alone, check of the keys, template of PyTorch, documentation) */
#define KEYED_LAYERS(X)                                                                                                \
    X(KEYED_LEAKY_RELU, leaky_relu, "negative_slope", NULL, "nn.LeakyReLU({negative_slope})",                          \
      "x above 0, negative_slope x below (torch.nn.LeakyReLU).")                                                       \
    X(KEYED_ELU, elu, "alpha", NULL, "nn.ELU({alpha})", "x above 0, alpha (exp(x) - 1) below (torch.nn.ELU).")         \
    X(KEYED_CELU, celu, "alpha", NULL, "nn.CELU({alpha})",                                                             \
      "x above 0, alpha (exp(x / alpha) - 1) below, whose slope has no jump at 0 (torch.nn.CELU).")                    \
    X(KEYED_SOFTPLUS, softplus, "beta", NULL, "nn.Softplus({beta}, {threshold})",                                      \
      "log(1 + exp(beta x)) / beta (torch.nn.Softplus).")                                                              \
    X(KEYED_HARDTANH, hardtanh, NULL, check_hardtanh, "nn.Hardtanh({min_val}, {max_val})",                             \
      "min(max(x, min_val), max_val) (torch.nn.Hardtanh).")                                                            \
    X(KEYED_THRESHOLD, threshold, NULL, NULL, "nn.Threshold({threshold}, {value})",                                    \
      "x above the threshold, else a value (torch.nn.Threshold).")                                                     \
    X(KEYED_SOFTSHRINK, softshrink, "lambd", NULL, "nn.Softshrink({lambd})",                                           \
      "x moved towards 0 by lambd, and 0 where it is nearer (torch.nn.Softshrink).")                                   \
    X(KEYED_HARDSHRINK, hardshrink, "lambd", NULL, "nn.Hardshrink({lambd})",                                           \
      "x, but 0 from -lambd to lambd (torch.nn.Hardshrink).")

static struct keyed_activation keyed_of(const struct layer *layer) {
    const struct keyed_config *c = layer->config;
    struct keyed_activation f = {.a = (float)c->a, .b = (float)c->b};
#define X(id, name, alone, check, pytorch, doc)                                                                        \
    if (layer->type == &layer_##name) f.f = id;
    KEYED_LAYERS(X)
#undef X
    if (f.f == KEYED_CELU) f.b = (float)(1 / c->a);
    return f;
}

static void keyed_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct keyed_activation f = keyed_of(layer);
    pass->ops->keyed_forward(pass->device, &f, o.x, o.y, pass->rows * layer->in_size);
}

static void keyed_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct keyed_activation f = keyed_of(layer);
    if (o.dx) pass->ops->keyed_backward(pass->device, &f, o.x, o.dy, o.dx, pass->rows * layer->in_size);
}

static const char *node_with(const struct onnx_call *c, const char *op, const char *a_name, float a, const char *b_name,
                             float b) {
    struct text attributes = {0};
    onnx_float(&attributes, a_name, a);
    if (b_name) onnx_float(&attributes, b_name, b);
    return onnx_node1(c->g, op, c->x, &attributes);
}

/* Above 20, log(1 + e^z) is z in float32. */
static const char *softplus_onnx(const struct onnx_call *c, struct keyed_activation f) {
    if (f.a == 1 && f.b >= 20) return onnx_node1(c->g, "Softplus", c->x, NULL);
    const char *beta = onnx_scalar(c->g, f.a), *z = onnx_node2(c->g, "Mul", c->x, beta);
    const char *y = onnx_node2(c->g, "Div", onnx_node1(c->g, "Softplus", z, NULL), beta);
    if (f.b >= 20) return y;
    return onnx_where(c->g, onnx_node2(c->g, "Greater", z, onnx_scalar(c->g, f.b)), c->x, y);
}

static const char *keyed_onnx(const struct onnx_call *c) {
    struct keyed_activation f = keyed_of(c->layer);
    const char *limits[3] = {c->x};
    switch (f.f) {
    case KEYED_LEAKY_RELU:
        return node_with(c, "LeakyRelu", "alpha", f.a, NULL, 0);
    case KEYED_ELU:
        return node_with(c, "Elu", "alpha", f.a, NULL, 0);
    case KEYED_CELU:
        return node_with(c, "Celu", "alpha", f.a, NULL, 0);
    case KEYED_SOFTPLUS:
        return softplus_onnx(c, f);
    case KEYED_HARDTANH:
        limits[1] = onnx_scalar(c->g, f.a);
        limits[2] = onnx_scalar(c->g, f.b);
        return onnx_node(c->g, "Clip", limits, 3, NULL);
    case KEYED_THRESHOLD:
        limits[1] = onnx_node2(c->g, "LessOrEqual", c->x, onnx_scalar(c->g, f.a));
        return onnx_where(c->g, limits[1], onnx_scalar(c->g, f.b), c->x);
    case KEYED_SOFTSHRINK:
        return node_with(c, "Shrink", "lambd", f.a, "bias", f.a);
    case KEYED_HARDSHRINK:
    case KEYED_AFFINE:
        break;
    }
    return node_with(c, "Shrink", "lambd", f.a, "bias", 0);
}

static void keyed_c_of(const struct c_call *c, const char *name, struct keyed_activation f) {
    const char *call = arena_printf(c->c->arena, "%s_value(%af, %af, ", name, (double)f.a, (double)f.b);
    c_each(c->c, call, c->x, c->y, c->layer->in_size);
}

static void keyed_c(const struct c_call *c) { keyed_c_of(c, c->layer->type->variant.name, keyed_of(c->layer)); }

#define X(id, kind, alone, check_, pytorch_, doc)                                                                      \
    static const struct schema kind##_schema = {.name = "model.layers." #kind,                                         \
                                                .size = sizeof(struct keyed_config),                                   \
                                                .rows = kind##_rows,                                                   \
                                                .check = check_,                                                       \
                                                .shorthand = alone};                                                   \
    const struct layer_type layer_##kind = {                                                                           \
        .variant = {#kind, &kind##_schema, doc},                                                                       \
        .memory_format = FORMAT_PRESERVE,                                                                              \
        .ignores = IGNORES_Y,                                                                                          \
        .is_by_position = true,                                                                                        \
        .plan = layer_plan_same,                                                                                       \
        .half = HALF_ALL,                                                                                              \
        .forward = keyed_forward,                                                                                      \
        .backward = keyed_backward,                                                                                    \
        .onnx = keyed_onnx,                                                                                            \
        .c = keyed_c,                                                                                                  \
        .pytorch = pytorch_,                                                                                           \
    };
KEYED_LAYERS(X)
#undef X

/* ---- rrelu ---- */

/* torch.nn.RReLU: leaky_relu whose slopes are drawn, as the masks of dropout are (dropout.c). */

static const struct schema_row rrelu_rows[] = {
    NUMBER("lower", a, .fallback = "0.125", ANY, .doc = "The smallest slope below 0; PyTorch's default is 1/8."),
    NUMBER("upper", b, .fallback = "0.3333333333333333", ANY,
           .doc = "The largest slope below 0; PyTorch's default is 1/3."),
    {0}};

static void check_rrelu(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct keyed_config *c = config;
    if (c->a > c->b)
        problems_add(problems, where ? where->place : (struct place){0}, path, "lower must be at most upper");
}

static const struct schema rrelu_schema =
    SCHEMA("model.layers.rrelu", struct keyed_config, .rows = rrelu_rows, .check = check_rrelu);

/* Outside of training: the mean of the slopes. */
static struct keyed_activation mean_of_slopes(const struct layer *layer) {
    const struct keyed_config *c = layer->config;
    return (struct keyed_activation){.f = KEYED_LEAKY_RELU, .a = (float)((c->a + c->b) / 2)};
}

static void draw_slopes(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                        const struct tensor *from, const struct tensor *to) {
    const struct keyed_config *c = layer->config;
    struct draw_key key = pass->draws;
    key.stream = layer->stream;
    pass->ops->rrelu(pass->device, &key, (float)c->a, (float)c->b, floats(x), floats(from), floats(to), pass->rows,
                     layer->in_size);
}

static void rrelu_forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct keyed_activation f = mean_of_slopes(layer);
    if (pass->is_training)
        draw_slopes(layer, pass, o.x, o.x, o.y);
    else
        pass->ops->keyed_forward(pass->device, &f, o.x, o.y, pass->rows * layer->in_size);
}

static void rrelu_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    if (o.dx) draw_slopes(layer, pass, o.x, o.dy, o.dx);
}

static const char *rrelu_onnx(const struct onnx_call *c) {
    return node_with(c, "LeakyRelu", "alpha", mean_of_slopes(c->layer).a, NULL, 0);
}

static void rrelu_c(const struct c_call *c) { keyed_c_of(c, "leaky_relu", mean_of_slopes(c->layer)); }

const struct layer_type layer_rrelu = {
    .variant = {"rrelu", &rrelu_schema,
                "x above 0, a slope times x below: in training each element draws a slope between lower and upper, "
                "else it is their mean (torch.nn.RReLU)."},
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_Y,
    .is_by_position = true,
    .plan = layer_plan_same,
    .forward = rrelu_forward,
    .backward = rrelu_backward,
    .onnx = rrelu_onnx,
    .c = rrelu_c,
    .pytorch = "RReLU({lower}, {upper}, stream={number}{order})",
};
