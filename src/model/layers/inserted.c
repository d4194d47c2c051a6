/* input, outputs, part: the first and last layers of a model with named inputs and several outputs, and the parts of a
 * layer with several outputs; reorder: between channels-first and channels-last memory, where two layers require
 * different formats. Not types of the config: build.c inserts them. */
#include "model/layers/layers.h"
#include "model/model.h"

/* ---- input: one input of a row of all of them ---- */

static status plan_input(struct layer *layer, struct planning *planning) {
    const struct model_input *input = layer->config;
    layer->out = input->shape;
    return OK;
}

static void forward_input(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct model_input *input = layer->config;
    pass->ops->copy_columns(pass->device, floats(o.x) + input->first, layer->in_size, floats(o.y), layer->out_size,
                            pass->rows, layer->out_size);
}

/* No parameter is before it. */
static void backward_input(const struct layer *layer, const struct pass *pass, struct operands o) {}

static void input_c(const struct c_call *c) {
    const struct model_input *input = c->layer->config;
    size_t size = c->layer->out_size;
    c_columns(c, arena_printf(c->c->arena, "%s + %zu", c->x, input->first), size, c->y, size, 1, size);
}

const struct layer_type layer_input = {
    .variant = {"input", NULL, "One of several inputs."},
    .is_input = true,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan_input,
    .forward = forward_input,
    .backward = backward_input,
    .onnx = onnx_same,
    .c = input_c,
    .pytorch = "{x}[:, {first}].reshape(len({x}), {shape})",
};

/* ---- part: of the output of a layer that computes several ---- */

static void backward_part(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct model_input *part = layer->config;
    if (!o.dx) return;
    device_zero(pass->device, floats(o.dx), pass->rows * layer->in_size * sizeof(float));
    pass->ops->copy_columns(pass->device, floats(o.dy), layer->out_size, floats(o.dx) + part->first, layer->in_size,
                            pass->rows, layer->out_size);
}

static const char *part_onnx(const struct onnx_call *c) {
    const struct model_input *part = c->layer->config;
    int64_t first = (int64_t)part->first;
    const char *x = onnx_slice(c->g, c->x, 1, first, first + (int64_t)c->layer->out_size);
    return onnx_reshape(c->g, x, c->layer->out.size, (size_t)c->layer->out.dims);
}

const struct layer_type layer_part = {
    .variant = {"part", NULL, "A part of the output of another layer."},
    .sets_lengths = true,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan_input,
    .forward = forward_input,
    .backward = backward_part,
    .onnx = part_onnx,
    .c = input_c,
    .pytorch = "{x}[:, {first}].reshape(len({x}), {shape})",
};

/* ---- outputs: a row of all outputs ---- */

static status plan_outputs(struct layer *layer, struct planning *planning) {
    layer->out = (struct shape){.dims = 1};
    for (size_t i = 0; i < layer->in_count; i++)
        if (__builtin_add_overflow(layer->out.size[0], (int64_t)shape_elements(&layer->ins[i]), &layer->out.size[0]))
            return status_usage("the outputs are too large");
    return OK;
}

/* Copies each input into the output or, backward, their gradients. */
static void copy_outputs(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t first = 0;
    for (size_t i = 0; i < layer->in_count; i++) {
        size_t size = shape_elements(&layer->ins[i]);
        if (!o.dy)
            pass->ops->copy_columns(pass->device, floats(&o.x[i]), size, floats(o.y) + first, layer->out_size,
                                    pass->rows, size);
        else if (o.dx[i].data)
            pass->ops->copy_columns(pass->device, floats(o.dy) + first, layer->out_size, floats(&o.dx[i]), size,
                                    pass->rows, size);
        first += size;
    }
}

static void outputs_c(const struct c_call *c) {
    size_t at = 0;
    for (size_t i = 0; i < c->layer->in_count; i++) {
        size_t size = shape_elements(&c->layer->ins[i]);
        c_columns(c, c->inputs[i], size, arena_printf(c->c->arena, "%s + %zu", c->y, at), size, 1, size);
        at += size;
    }
}

const struct layer_type layer_outputs = {
    .variant = {"outputs", NULL, "Several outputs one after another."},
    .joins = true,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan_outputs,
    .forward = copy_outputs,
    .backward = copy_outputs,
    .onnx = onnx_same, /* a graph has several outputs itself */
    .c = outputs_c,
    .pytorch = "{x}",
};

/* ---- reorder ---- */

static status plan_reorder(struct layer *layer, struct planning *planning) {
    layer->out = layer->in;
    layer->out.is_channels_last = !layer->in.is_channels_last;
    return OK;
}

/* [is_channels_last]: the order of [source] */
static void transpose(const struct layer *layer, const struct pass *pass, const struct tensor *source,
                      const struct tensor *target, bool is_channels_last) {
    size_t channels = (size_t)layer->in.size[0], positions = layer->in_size / channels;
    pass->ops->image->transpose(pass->device, source, target, pass->rows, is_channels_last ? positions : channels,
                                is_channels_last ? channels : positions);
}

static void reorder(const struct layer *layer, const struct pass *pass, struct operands o) {
    transpose(layer, pass, o.x, o.y, layer->in.is_channels_last);
}

static void reorder_backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    if (o.dx) transpose(layer, pass, o.dy, o.dx, layer->out.is_channels_last);
}

static void reorder_c(const struct c_call *c) {
    size_t channels = (size_t)c->layer->in.size[0], positions = c->layer->in_size / channels;
    bool is_last = c->layer->in.is_channels_last;
    text_printf(&c->c->body, "    transpose(%s, %s, %zu, %zu);\n", c->x, c->y, is_last ? positions : channels,
                is_last ? channels : positions);
}

const struct layer_type layer_reorder = {
    .variant = {"reorder", NULL, "Changes the order in memory."},
    .is_reorder = true,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan_reorder,
    .forward = reorder,
    .backward = reorder_backward,
    .half = HALF_ALL | HALF_BY_ELEMENT,
    .onnx = onnx_same,
    .c = reorder_c,
    .pytorch = "{x}",
};
