/* softmax and log_softmax: over the last dimension (torch.nn.Softmax(dim=-1), LogSoftmax(dim=-1)). */
#include "device/sequence.h"
#include "model/layers/layers.h"

static size_t width(const struct layer *layer) { return (size_t)layer->in.size[layer->in.dims - 1]; }

static status plan(struct layer *layer, struct planning *planning) {
    (void)planning;
    layer->out = layer->in;
    return OK;
}

static void forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    device_ops(pass->device)
        ->sequence->softmax_forward(pass->device, x, y, pass->rows * (layer->in_size / width(layer)), width(layer));
}

static void backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                     const float *dy, float *dx) {
    (void)x;
    if (dx)
        device_ops(pass->device)
            ->sequence->softmax_backward(pass->device, y, dy, dx, pass->rows * (layer->in_size / width(layer)),
                                         width(layer));
}

static void describe(const struct layer *layer, struct operation *to) {
    (void)layer;
    to->kind = OPERATION_SOFTMAX;
}

const struct layer_type layer_softmax = {
    .variant = {"softmax", NULL,
                "exp(x) / sum(exp(x)) over the last dimension (torch.nn.Softmax(dim=-1)); not before cross_entropy, "
                "which applies it itself."},
    .gives_probabilities = true,
    .ignores = IGNORES_X,
    .keeps_positions = true,
    .plan = plan,
    .autocast = AUTOCAST_FLOAT32,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};

static void log_forward(const struct layer *layer, const struct pass *pass, const float *x, float *y) {
    device_ops(pass->device)
        ->sequence->log_softmax_forward(pass->device, x, y, pass->rows * (layer->in_size / width(layer)), width(layer));
}

static void log_backward(const struct layer *layer, const struct pass *pass, const float *x, const float *y,
                         const float *dy, float *dx) {
    (void)x;
    if (dx)
        device_ops(pass->device)
            ->sequence->log_softmax_backward(pass->device, y, dy, dx, pass->rows * (layer->in_size / width(layer)),
                                             width(layer));
}

static void describe_log(const struct layer *layer, struct operation *to) {
    (void)layer;
    to->kind = OPERATION_LOG_SOFTMAX;
}

const struct layer_type layer_log_softmax = {
    .variant = {"log_softmax", NULL,
                "x - log(sum(exp(x))) over the last dimension (torch.nn.LogSoftmax(dim=-1)), for the loss nll."},
    .ignores = IGNORES_X,
    .keeps_positions = true,
    .plan = plan,
    .autocast = AUTOCAST_FLOAT32,
    .forward = log_forward,
    .backward = log_backward,
    .describe = describe_log,
};
