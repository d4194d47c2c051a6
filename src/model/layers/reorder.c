/* reorder: converts between channels-first and channels-last memory. Not a type of the config: build.c inserts it
 * between two layers that require different formats. */
#include "model/layers/layers.h"

static status plan(struct layer *layer, struct planning *planning) {
    (void)planning;
    layer->out = layer->in;
    layer->out.is_channels_last = !layer->in.is_channels_last;
    return OK;
}

/* [is_channels_last]: the order of [source] */
static void transpose(const struct layer *layer, const struct pass *pass, const struct tensor *source,
                      const struct tensor *target, bool is_channels_last) {
    size_t channels = (size_t)layer->in.size[0], positions = layer->in_size / channels;
    device_ops(pass->device)
        ->image->transpose(pass->device, source, target, pass->rows, is_channels_last ? positions : channels,
                           is_channels_last ? channels : positions);
}

static void forward(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                    const struct tensor *y) {
    transpose(layer, pass, x, y, layer->in.is_channels_last);
}

static void backward(const struct layer *layer, const struct pass *pass, const struct tensor *x, const struct tensor *y,
                     const struct tensor *dy, const struct tensor *dx) {
    (void)x;
    (void)y;
    if (dx) transpose(layer, pass, dy, dx, layer->out.is_channels_last);
}

static void write_c(const struct c_call *c) {
    size_t channels = (size_t)c->layer->in.size[0], positions = c->layer->in_size / channels;
    bool is_last = c->layer->in.is_channels_last;
    text_printf(c_use(c, "transpose"), "    transpose(%s, %s, %zu, %zu);\n", c->x, c->y, is_last ? positions : channels,
                is_last ? channels : positions);
}

const struct layer_type layer_reorder = {
    .variant = {"reorder", NULL, "Changes the order in memory."},
    .is_reorder = true,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .half = HALF_ALL | HALF_BY_ELEMENT,
    .onnx = onnx_same,
    .c = write_c,
    .pytorch = "{x}",
};
