/* prelu: torch.nn.PReLU; the first dimension of a row is the channels. */
#include "model/layers/layers.h"

struct prelu_config {
    int64_t num_parameters;
    double init;
};

static const struct schema_row rows[] = {
    SCHEMA_ROW(INT, struct prelu_config, num_parameters, .fallback = "1", .min = 1, .max = 1 << 20,
               .doc = "Learned slopes: 1, or one for each channel."),
    SCHEMA_ROW(REAL, struct prelu_config, init, .fallback = "0.25", .min = -INFINITY, .max = INFINITY,
               .doc = "Initial slope below 0."),
    {0},
};

static const struct schema schema =
    SCHEMA("model.layers.prelu", struct prelu_config, .rows = rows, .shorthand = "num_parameters");

static const struct prelu_config *config_of(const struct layer *layer) { return layer->config; }
static size_t slopes_of(const struct layer *layer) { return (size_t)config_of(layer)->num_parameters; }

static status plan(struct layer *layer, struct planning *planning) {
    const struct prelu_config *c = config_of(layer);
    if (layer->cached_positions && c->num_parameters != 1)
        return status_new(STATUS_USAGE,
                          "num_parameters %lld is a slope for each position: it needs all positions at once",
                          (long long)c->num_parameters);
    if (c->num_parameters != 1 && c->num_parameters != layer->in.size[0])
        return status_new(STATUS_USAGE, "num_parameters must be 1 or the channels (%lld), got %lld",
                          (long long)layer->in.size[0], (long long)c->num_parameters);
    layer->out = layer->in;
    layer_declare(layer, planning, "weight", 1, &c->num_parameters);
    return OK;
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    float *slopes = params_value(params, layer->first_param);
    (void)rng;
    for (size_t i = 0; i < slopes_of(layer); i++) slopes[i] = (float)config_of(layer)->init;
}

static void forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                    const struct tensor *y) {
    device_ops(pass->device)
        ->prelu_forward(pass->device, floats(x), params_value(pass->params, layer->first_param), slopes_of(layer),
                        floats(y), pass->rows * layer->in_size);
}

static void backward(const struct layer *layer, const struct pass *pass, const struct tensor *x, const struct tensor *y,
                     const struct tensor *dy, const struct tensor *dx) {
    (void)y;
    device_ops(pass->device)
        ->prelu_backward(pass->device, floats(x), params_value(pass->params, layer->first_param), slopes_of(layer),
                         floats(dy), floats(dx), params_gradient(pass->params, layer->first_param),
                         pass->rows * layer->in_size);
}

/* The slopes of channels get a dimension of 1 for each one after them. */
static const char *write_onnx(const struct onnx_call *c) {
    const char *slopes = onnx_param(c->g, c->layer->first_param);
    if (c->layer->in.dims > 1) {
        int64_t shape[MAX_DIMS];
        for (int d = 0; d < c->layer->in.dims; d++) shape[d] = d ? 1 : -1;
        slopes = onnx_node2(c->g, "Reshape", slopes, onnx_numbers(c->g, shape, (size_t)c->layer->in.dims));
    }
    return onnx_node2(c->g, "PRelu", c->x, slopes);
}

static void write_c(const struct c_call *c) {
    size_t slopes = c->c->m->model->params.items[c->layer->first_param].count;
    text_printf(c_use(c, "prelu"), "    prelu(%s, %s, %s, %zu, %zu);\n", c->x, c_plain(c, c->layer->first_param), c->y,
                c->layer->in_size, slopes);
}

const struct layer_type layer_prelu = {
    .variant = {"prelu", &schema, "x above 0, else x times a learned slope (torch.nn.PReLU)."},
    .memory_format = FORMAT_CHANNELS_LAST,
    .is_by_position = true,
    .ignores = IGNORES_Y,
    .plan = plan,
    .init = init,
    .forward = forward,
    .backward = backward,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "nn.PReLU({num_parameters}, {init})",
};
