/* class_token: a learned position before the others, from whose output a vision transformer classifies. */
#include "model/layers/layers.h"

static size_t features(const struct layer *layer) { return (size_t)layer->in.size[1]; }

static status plan(struct layer *layer, struct planning *planning) {
    if (layer->in.dims != 2)
        return status_usage("its input must be (positions, features), but is %s", shape_text(&layer->in).s);
    layer->out = layer->in;
    layer->out.size[0]++;
    layer->saved_size = features(layer);
    layer_declare(layer, planning, "weight", 1, &layer->in.size[1]);
    return OK;
}

static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    memset(params_value(params, layer->first_param), 0, features(layer) * sizeof(float));
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t size = features(layer);
    pass->ops->copy_columns(pass->device, params_value(pass->params, layer->first_param), 0, floats(o.y),
                            layer->out_size, pass->rows, size);
    pass->ops->copy_columns(pass->device, floats(o.x), layer->in_size, floats(o.y) + size, layer->out_size, pass->rows,
                            layer->in_size);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t size = features(layer);
    pass->ops->copy_columns(pass->device, floats(o.dy), layer->out_size, layer->saved, size, pass->rows, size);
    pass->ops->sequence->sum_rows(pass->device, layer->saved, params_gradient(pass->params, layer->first_param),
                                  pass->rows, size);
    if (o.dx)
        pass->ops->copy_columns(pass->device, floats(o.dy) + size, layer->out_size, floats(o.dx), layer->in_size,
                                pass->rows, layer->in_size);
}

/* The token is repeated for each row of the batch. */
static const char *write_onnx(const struct onnx_call *c) {
    struct text first = {0}, axis = {0}, second = {0};
    onnx_int(&first, "start", 0);
    onnx_int(&first, "end", 1);
    onnx_int(&axis, "axis", 0);
    onnx_int(&second, "axis", 1);
    const char *batch = onnx_node1(c->g, "Shape", c->x, &first);
    const char *sizes[] = {batch, onnx_numbers(c->g, (const int64_t[]){1, onnx_last(&c->layer->in)}, 2)};
    const char *shape = onnx_node(c->g, "Concat", sizes, 2, &axis);
    const char *parts[] = {onnx_node2(c->g, "Expand", onnx_param(c->g, c->layer->first_param), shape), c->x};
    return onnx_node(c->g, "Concat", parts, 2, &second);
}

static void write_c(const struct c_call *c) {
    size_t size = c_last(&c->layer->in);
    text_printf(&c->c->body, "    memcpy(%s, %s, %zu * sizeof(float));\n", c->y, c_plain(c, c->layer->first_param),
                size);
    text_printf(&c->c->body, "    memcpy(%s + %zu, %s, %zu * sizeof(float));\n", c->y, size, c->x, c->layer->in_size);
}

const struct layer_type layer_class_token = {
    .variant = {"class_token", NULL,
                "(positions, features) with a learned position before the first, zeros at first (class_token of "
                "torchvision.models.VisionTransformer)."},
    .ignores = IGNORES_X_AND_Y,
    .plan = plan,
    .init = init,
    .forward = forward,
    .backward = backward,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "ClassToken({in})",
};
