/* softmax and log_softmax: over the last dimension (torch.nn.Softmax(dim=-1), LogSoftmax(dim=-1)). */
#include "model/layers/layers.h"

static bool is_log(const struct layer *layer) { return layer->type == &layer_log_softmax; }

static size_t width(const struct layer *layer) { return (size_t)layer->in.size[layer->in.dims - 1]; }

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct sequence_ops *ops = pass->ops->sequence;
    (is_log(layer) ? ops->log_softmax_forward : ops->softmax_forward)(
        pass->device, floats(o.x), floats(o.y), pass->rows * (layer->in_size / width(layer)), width(layer));
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct sequence_ops *ops = pass->ops->sequence;
    if (o.dx)
        (is_log(layer) ? ops->log_softmax_backward
                       : ops->softmax_backward)(pass->device, floats(o.y), floats(o.dy), floats(o.dx),
                                                pass->rows * (layer->in_size / width(layer)), width(layer));
}

static const char *write_onnx(const struct onnx_call *c) {
    struct text attributes = {0};
    if (!is_log(c->layer)) return onnx_softmax(c->g, c->x);
    onnx_int(&attributes, "axis", -1);
    return onnx_node1(c->g, "LogSoftmax", c->x, &attributes);
}

/* Both functions of the exported code have the same arguments. */
static void write_c(const struct c_call *c) {
    size_t size = c_last(&c->layer->in);
    const char *function = is_log(c->layer) ? "log_softmax" : "softmax";
    text_printf(&c->c->body, "    %s(%s, %s, %zu, %zu);\n", function, c->x, c->y, c->layer->in_size / size, size);
}

#define SOFTMAX                                                                                                        \
    .ignores = IGNORES_X, .is_by_position = true, .plan = layer_plan_same, .autocast = AUTOCAST_FLOAT32,               \
    .forward = forward, .backward = backward, .onnx = write_onnx, .c = write_c

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
    SOFTMAX,
    .pytorch = "nn.Softmax(-1)",
};
const struct layer_type layer_log_softmax = {
    .variant = {"log_softmax", NULL,
                "x - log(sum(exp(x))) over the last dimension (torch.nn.LogSoftmax(dim=-1)), for the loss nll."},
    SOFTMAX,
    .pytorch = "nn.LogSoftmax(-1)",
};
