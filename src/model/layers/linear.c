/* linear: y = x W^T + b, torch.nn.Linear. Applied to the last dimension. */
#include <string.h>

#include "base/scoped.h"
#include "model/init.h"
#include "model/layers/layers.h"

struct linear_config {
    int64_t out;
    bool bias;
    const char *tie; /* name of a parameter; NULL: its own weight */
};

static const struct schema_row rows[] = {
    SCHEMA_ROW(INT, struct linear_config, out, .flags = SCHEMA_REQUIRED, .min = 1, .max = 1 << 24,
               .doc = "Output features (PyTorch's out_features); the number of inputs is inferred."),
    SCHEMA_ROW(BOOL, struct linear_config, bias, .fallback = "true", .doc = "Whether a bias is added."),
    SCHEMA_ROW(STRING, struct linear_config, tie, .fallback = "null",
               .doc =
                   "Use this parameter of an earlier layer (`wte.weight`) as the weight: one tensor, trained by both."),
    {0},
};

static const struct schema schema =
    SCHEMA("model.layers.linear", struct linear_config, .rows = rows, .shorthand = "out");

static int64_t features(const struct layer *layer) { return layer->in.size[layer->in.dims - 1]; }
static const struct linear_config *config_of(const struct layer *layer) { return layer->config; }

/* Rows of the matrix product: a row of the batch may hold several vectors. */
static size_t vectors(const struct layer *layer, size_t rows_of_batch) {
    return rows_of_batch * (layer->in_size / (size_t)features(layer));
}

static size_t weight_of(const struct layer *layer) { return layer->tied_count ? layer->tied : layer->first_param; }
static size_t bias_of(const struct layer *layer) { return layer->first_param + (layer->tied_count ? 0 : 1); }

/* Finds the parameter that is tied as the weight. */
static status tie(struct layer *layer, const struct params *params, const int64_t *shape) {
    const char *name = config_of(layer)->tie;
    size_t i = 0;
    while (i < params->count && strcmp(params->items[i].name, name) != 0) i++;
    if (i == params->count) {
        SCOPED_TEXT what = {0};
        text_printf(&what, "tie: no earlier layer has a parameter '%s'", name);
        return params_no_match(params, text_string(&what));
    }
    const struct param *p = &params->items[i];
    struct shape actual = {.dims = p->dims}, expected = {.dims = 2, .size = {shape[0], shape[1]}};
    memcpy(actual.size, p->shape, sizeof actual.size);
    if (actual.dims != 2 || actual.size[0] != shape[0] || actual.size[1] != shape[1])
        return status_usage("tie: the weight is %s, but '%s' is %s", shape_text(&expected).s, name,
                            shape_text(&actual).s);
    layer->tied = i;
    layer->tied_count = 1;
    return OK;
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct linear_config *c = config_of(layer);
    layer->out = layer->in;
    layer->out.size[layer->out.dims - 1] = c->out;
    int64_t shape[2] = {c->out, features(layer)};
    if (c->tie)
        TRY(tie(layer, planning->params, shape));
    else
        layer_declare(layer, planning, "weight", 2, shape);
    if (c->bias) layer_declare(layer, planning, "bias", 1, shape);
    return OK;
}

/* A tied weight keeps its values. The generator advances anyway, because PyTorch creates the layer before it ties it.
 */
static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    const struct linear_config *c = config_of(layer);
    size_t in = (size_t)features(layer), out = (size_t)c->out;
    if (layer->tied_count)
        rng_uniform(rng, NULL, out * in, 0, 1);
    else
        init_kaiming_uniform(rng, params_drawn(params, layer->first_param), out * in, in);
    if (c->bias) init_fan_in_uniform(rng, params_drawn(params, bias_of(layer)), out, in);
}

static const float *bias_value(const struct layer *layer, const struct pass *pass) {
    return config_of(layer)->bias ? params_value(pass->params, bias_of(layer)) : NULL;
}

static float *bias_gradient(const struct layer *layer, const struct pass *pass) {
    return config_of(layer)->bias ? params_gradient(pass->params, bias_of(layer)) : NULL;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    pass->ops->linear_forward(pass->device, o.x, params_value(pass->params, weight_of(layer)), bias_value(layer, pass),
                              layer->has_relu, o.y, vectors(layer, pass->rows), (size_t)features(layer),
                              (size_t)config_of(layer)->out);
}

/* At most 8 MiB of a gradient are in memory: enough for a fast matrix product. */
#define PART_FLOATS ((size_t)1 << 21)
#define PART_ROWS 48 /* a part is a multiple of it, as the CPU splits products over threads */

static size_t gradient_part(const struct layer *layer) {
    if (layer->tied_count) return 0; /* the first parameter is the bias */
    size_t in = (size_t)features(layer), out = (size_t)config_of(layer)->out;
    size_t rows_of_part = PART_FLOATS / in / PART_ROWS * PART_ROWS;
    if (rows_of_part == 0) rows_of_part = PART_ROWS;
    return rows_of_part < out ? rows_of_part * in : 0;
}

/* The part of the gradient of a weight of [in] columns that is in memory. */
struct gradient_part {
    const struct gradient_receiver *receiver;
    size_t param, in;
    bool is_frozen;
    float *gradient;
};

static void receive_rows(void *user, size_t first, size_t count) {
    const struct gradient_part *part = user;
    if (part->is_frozen) return;
    part->receiver->receive(part->receiver->user, part->param, first * part->in, count * part->in, part->gradient);
}

/* dx first: it needs the weight before the update. */
static void backward_in_parts(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                              const struct tensor *dy, const struct tensor *dx) {
    const struct device_ops *ops = pass->ops;
    const struct param *p = &pass->params->items[weight_of(layer)];
    size_t n = vectors(layer, pass->rows), in = (size_t)features(layer), out = (size_t)config_of(layer)->out;
    float *dw = params_gradient(pass->params, weight_of(layer));
    float *dbias = bias_gradient(layer, pass);
    if (dx) ops->linear_backward_input(pass->device, dy, params_value(pass->params, weight_of(layer)), dx, n, in, out);
    struct gradient_part part = {pass->receiver, weight_of(layer), in, p->is_frozen, dw};
    ops->linear_backward_weight_in_parts(pass->device, floats(dy), floats(x), dw, dbias, n, in, out, p->part / in,
                                         &(struct part_receiver){receive_rows, &part});
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    if (pass->receiver && pass->params->items[weight_of(layer)].part) {
        backward_in_parts(layer, pass, o.x, o.dy, o.dx);
        return;
    }
    const struct linear_config *c = config_of(layer);
    const struct device_ops *ops = pass->ops;
    size_t weight = weight_of(layer), n = vectors(layer, pass->rows), in = (size_t)features(layer);
    ops->linear_backward_weight(pass->device, o.dy, o.x, params_gradient(pass->params, weight),
                                bias_gradient(layer, pass), n, in, (size_t)c->out);
    if (o.dx)
        ops->linear_backward_input(pass->device, o.dy, params_value(pass->params, weight), o.dx, n, in, (size_t)c->out);
}

static void forward_before(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                           const struct tensor *kept, const struct tensor *y) {
    pass->ops->gelu->forward_before(pass->device, x, params_value(pass->params, weight_of(layer)),
                                    bias_value(layer, pass), kept, y, vectors(layer, pass->rows),
                                    (size_t)features(layer), (size_t)config_of(layer)->out);
}

static void forward_after(const struct layer *layer, const struct pass *pass, const struct tensor *y,
                          const struct tensor *to) {
    pass->ops->gelu->forward_after(pass->device, y, params_value(pass->params, weight_of(layer)),
                                   bias_value(layer, pass), layer->has_relu, to, vectors(layer, pass->rows),
                                   (size_t)features(layer), (size_t)config_of(layer)->out);
}

static void backward_after(const struct layer *layer, const struct pass *pass, const struct tensor *y,
                           const struct tensor *kept, const struct tensor *dy, const struct tensor *dkept) {
    size_t weight = weight_of(layer);
    pass->ops->gelu->backward_after(pass->device, dy, y, params_value(pass->params, weight), kept,
                                    params_gradient(pass->params, weight), bias_gradient(layer, pass), dkept,
                                    vectors(layer, pass->rows), (size_t)features(layer), (size_t)config_of(layer)->out);
}

static void backward_before(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                            const struct tensor *dkept, const struct tensor *dx) {
    size_t weight = weight_of(layer);
    pass->ops->gelu->backward_before(pass->device, dkept, x, params_value(pass->params, weight),
                                     params_gradient(pass->params, weight), bias_gradient(layer, pass), dx,
                                     vectors(layer, pass->rows), (size_t)features(layer),
                                     (size_t)config_of(layer)->out);
}

static const struct layer_around_gelu around_gelu = {forward_before, forward_after, backward_after, backward_before};

static size_t multiply_adds(const struct layer *layer) { return layer->in_size * (size_t)config_of(layer)->out; }

/* The bias's index in params, or NO_PARAM. */
static size_t own_bias(const struct layer *layer) { return config_of(layer)->bias ? bias_of(layer) : NO_PARAM; }

static const char *write_onnx(const struct onnx_call *c) {
    return onnx_linear(c->g, c->x, weight_of(c->layer), own_bias(c->layer), c->layer->in.dims);
}

static void write_c(const struct c_call *c) {
    const char *w = c_matrix(c, weight_of(c->layer)), *b = c_plain(c, own_bias(c->layer));
    size_t in = c_last(&c->layer->in), out = c_last(&c->layer->out);
    text_printf(&c->c->body, "    linear(%s, %s, %s, %s, %zu, %zu, %zu);\n", c->x, w, b, c->y, c->layer->in_size / in,
                in, out);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "Dense LazyLinear FullyConnected fc affine lin", "linear"),
    KEY_ALIAS("layer.linear",
              "out_features units features output_dim out_dim output_size size width neurons hidden_size hidden_dim "
              "num_units output outputs n_out dim",
              ".out"),
    KEY_ALIAS("layer.linear", "use_bias with_bias", ".bias"),
    KEY_ALIAS("layer.linear", "weight_tying tie_weights tied", ".tie"),
    CALL_ALIAS("layer", "linear", "~ out bias"),
    CALL_ALIAS("layer", "Dense", "out"),
    CALL_ALIAS("layer", "LazyLinear", "out bias"),
    {0},
};

const struct layer_type layer_linear = {
    .aliases = aliases,
    .variant = {"linear", &schema, "Affine map of the last dimension: y = x W^T + b (torch.nn.Linear)."},
    .uses_last_dimension = true,
    .relu = RELU_AFTER,
    .ignores = IGNORES_Y,
    .is_by_position = true,
    .plan = plan,
    .init = init,
    .forward = forward,
    .backward = backward,
    .gradient_part = gradient_part,
    .half = HALF_ALL,
    .autocast = AUTOCAST_PRODUCT,
    .copies = COPY_ROWS,
    .around_gelu = &around_gelu,
    .multiply_adds = multiply_adds,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "nn.Linear({in}, {out}{,bias})",
};

bool layer_is_linear(const struct layer *layer) { return layer->type == &layer_linear; }
