/* glu: the gated linear unit, the first half of the input times the sigmoid of the second (torch.nn.GLU). */
#include "model/layers/joins.h"
#include "model/layers/layers.h"

struct glu_config {
    int64_t dim;
};

static const struct schema_row rows[] = {DIM_ROW(glu_config, "The dimension that is halved", .fallback = "-1"), {0}};
static const struct schema schema = SCHEMA("model.layers.glu", struct glu_config, .rows = rows, .shorthand = "dim");

static int64_t dim_of(const struct layer *layer) { return ((const struct glu_config *)layer->config)->dim; }

static status plan(struct layer *layer, struct planning *planning) {
    int dimension = join_dimension(&layer->in, dim_of(layer));
    TRY(join_check_dimension(&layer->in, dim_of(layer)));
    int64_t size = layer->in.size[dimension];
    if (size % 2)
        return status_usage("dim %lld: halves an even number of elements, the input has %lld", (long long)dim_of(layer),
                            (long long)size);
    layer->out = layer->in;
    layer->out.size[dimension] = size / 2;
    layer->saved_size = 3 * (layer->in_size / 2);
    return OK;
}

/* In memory: [outer] times [width] elements of the value, then as many of the gate. */
static size_t width_of(const struct layer *layer, size_t *outer) {
    int dimension = join_dimension(&layer->in, dim_of(layer));
    size_t inner;
    join_blocks(&layer->in, dimension, outer, &inner);
    return (size_t)layer->out.size[dimension] * inner;
}

/* Half [half] of x to y, or from it. */
static void take(const struct layer *layer, const struct pass *pass, const float *x, size_t half, float *y) {
    size_t outer, width = width_of(layer, &outer);
    pass->ops->copy_columns(pass->device, x + half * width, 2 * width, y, width, pass->rows * outer, width);
}

static void put(const struct layer *layer, const struct pass *pass, const float *x, size_t half, float *y) {
    size_t outer, width = width_of(layer, &outer);
    pass->ops->copy_columns(pass->device, x, width, y + half * width, 2 * width, pass->rows * outer, width);
}

/* What is stored: s = sigmoid(gate), and two workspaces. */
static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t count = pass->rows * layer->out_size;
    float *s = layer->saved, *value = s + count, *gate = value + count;
    take(layer, pass, floats(o.x), 0, value);
    take(layer, pass, floats(o.x), 1, gate);
    pass->ops->activation_forward(pass->device, ACTIVATION_SIGMOID, F32(gate), F32(s), count);
    pass->ops->multiply(pass->device, value, s, floats(o.y), count);
}

/* dvalue = dy s;  dgate = dy value s (1 - s) */
static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    size_t count = pass->rows * layer->out_size;
    float *s = layer->saved, *value = s + count, *slope = value + count;
    if (!o.dx) return;
    pass->ops->multiply(pass->device, floats(o.dy), s, slope, count);
    put(layer, pass, slope, 0, floats(o.dx));
    take(layer, pass, floats(o.x), 0, value);
    pass->ops->multiply(pass->device, floats(o.dy), value, value, count);
    pass->ops->activation_backward(pass->device, ACTIVATION_SIGMOID, F32(s), F32(s), F32(value), F32(slope), count);
    put(layer, pass, slope, 1, floats(o.dx));
}

static const char *write_onnx(const struct onnx_call *c) {
    int dimension = join_dimension(&c->layer->in, dim_of(c->layer));
    int64_t half = c->layer->out.size[dimension];
    const char *value = onnx_slice(c->g, c->x, dimension + 1, 0, half);
    const char *gate = onnx_slice(c->g, c->x, dimension + 1, half, 2 * half);
    return onnx_node2(c->g, "Mul", value, onnx_node1(c->g, "Sigmoid", gate, NULL));
}

static void c_scratch(const struct layer *layer, size_t sizes[2]) { sizes[0] = sizes[1] = layer->out_size; }

static void write_c(const struct c_call *c) {
    size_t outer, width = width_of(c->layer, &outer), count = c->layer->out_size;
    const char *value = c->scratch[0], *gate = c->scratch[1];
    c_columns(c, c->x, 2 * width, value, width, outer, width);
    c_columns(c, arena_printf(c->c->arena, "%s + %zu", c->x, width), 2 * width, gate, width, outer, width);
    c_each(c->c, "sigmoid_value(", gate, gate, count);
    text_printf(&c->c->body, "    multiply(%s, %s, %s, %zu);\n", value, gate, c->y, count);
}

const struct layer_type layer_glu = {
    .variant = {"glu", &schema, "The first half along a dimension times the sigmoid of the second (torch.nn.GLU)."},
    .memory_format = FORMAT_PRESERVE,
    .ignores = IGNORES_Y,
    .keeps_positions = true,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .onnx = write_onnx,
    .c = write_c,
    .c_scratch = c_scratch,
    .pytorch = "nn.GLU({dim})",
};
