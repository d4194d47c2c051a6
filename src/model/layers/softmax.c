/* softmax and log_softmax: over the last dimension (torch.nn.Softmax(dim=-1), LogSoftmax(dim=-1)). */
#include "model/layers/layers.h"

static size_t width(const struct layer *layer) { return (size_t)layer->in.size[layer->in.dims - 1]; }

static void forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                    const struct tensor *y) {
    device_ops(pass->device)
        ->sequence->softmax_forward(pass->device, floats(x), floats(y), pass->rows * (layer->in_size / width(layer)),
                                    width(layer));
}

static void backward(const struct layer *layer, const struct pass *pass, const struct tensor *x, const struct tensor *y,
                     const struct tensor *dy, const struct tensor *dx) {
    (void)x;
    if (dx)
        device_ops(pass->device)
            ->sequence->softmax_backward(pass->device, floats(y), floats(dy), floats(dx),
                                         pass->rows * (layer->in_size / width(layer)), width(layer));
}

static const char *write_onnx(const struct onnx_call *c) { return onnx_softmax(c->g, c->x); }

/* Both functions of the exported code have the same arguments. */
static void write_c_of(const struct c_call *c, const char *function) {
    size_t size = c_last(&c->layer->in);
    text_printf(c_use(c, function), "    %s(%s, %s, %zu, %zu);\n", function, c->x, c->y, c->layer->in_size / size,
                size);
}

static void write_c(const struct c_call *c) { write_c_of(c, "softmax"); }

static const struct schema_alias aliases[] = {
    VALUE_ALIAS_NOTE("layer", "LogSoftmax", "log_softmax", "It is for the loss nll; cross_entropy has its own"),
    KEY_ALIAS_NOTE("layer.softmax", "dim axis", NULL, "softmax is over the last dimension; leave the key out"),
    CALL_ALIAS("layer", "softmax", "dim"),
    {0},
};

const struct layer_type layer_softmax = {
    .aliases = aliases,
    .variant = {"softmax", NULL,
                "exp(x) / sum(exp(x)) over the last dimension (torch.nn.Softmax(dim=-1)); not before cross_entropy, "
                "which applies it itself."},
    .gives_probabilities = true,
    .ignores = IGNORES_X,
    .is_by_position = true,
    .plan = layer_plan_same,
    .autocast = AUTOCAST_FLOAT32,
    .forward = forward,
    .backward = backward,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "nn.Softmax(-1)",
};

static void log_forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                        const struct tensor *y) {
    device_ops(pass->device)
        ->sequence->log_softmax_forward(pass->device, floats(x), floats(y),
                                        pass->rows * (layer->in_size / width(layer)), width(layer));
}

static void log_backward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                         const struct tensor *y, const struct tensor *dy, const struct tensor *dx) {
    (void)x;
    if (dx)
        device_ops(pass->device)
            ->sequence->log_softmax_backward(pass->device, floats(y), floats(dy), floats(dx),
                                             pass->rows * (layer->in_size / width(layer)), width(layer));
}

static const char *log_onnx(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", -1);
    return onnx_node1(c->g, "LogSoftmax", c->x, &attributes);
}

static void log_c(const struct c_call *c) { write_c_of(c, "log_softmax"); }

const struct layer_type layer_log_softmax = {
    .variant = {"log_softmax", NULL,
                "x - log(sum(exp(x))) over the last dimension (torch.nn.LogSoftmax(dim=-1)), for the loss nll."},
    .ignores = IGNORES_X,
    .is_by_position = true,
    .plan = layer_plan_same,
    .autocast = AUTOCAST_FLOAT32,
    .forward = log_forward,
    .backward = log_backward,
    .onnx = log_onnx,
    .c = log_c,
    .pytorch = "nn.LogSoftmax(-1)",
};
