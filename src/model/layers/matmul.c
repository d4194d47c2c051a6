/* matmul: the product of two outputs (torch.matmul). Each matrix of the batch is a product of its own, by the operators
 * of linear: they compute x w^T, dy w and dy^T x. */
#include "base/text.h"
#include "model/layers/layers.h"

static status differ(const struct layer *layer, const char *why) {
    return status_usage("%s: input 1 has %s, input 2 has %s", why, shape_text(&layer->ins[0]).s,
                        shape_text(&layer->ins[1]).s);
}

static status plan(struct layer *layer, struct planning *planning) {
    const struct shape *a = layer->ins, *b = layer->ins + 1;
    if (layer->in_count != 2)
        return status_usage("multiplies two outputs, got %zu; use one matmul after another", layer->in_count);
    if (a->dims < 2 || a->dims != b->dims) return differ(layer, "the inputs must be matrices");
    int last = a->dims - 1;
    if (a->size[last] != b->size[last - 1])
        return differ(layer, "the last dimension of the first must be the one before the last of the second");
    for (int d = 0; d < last - 1; d++)
        if (a->size[d] != b->size[d]) return differ(layer, "the dimensions before the last two must be the same");
    layer->out = *a;
    layer->out.size[last] = b->size[last];
    return OK;
}

/* y (m, n) = a (m, k) b (k, n), [count] times for each row */
struct product {
    size_t count, m, k, n;
};

static struct product product_of(const struct layer *layer) {
    const struct shape *a = &layer->in;
    struct product p = {.m = (size_t)a->size[a->dims - 2],
                        .k = (size_t)a->size[a->dims - 1],
                        .n = (size_t)layer->out.size[a->dims - 1]};
    p.count = layer->in_size / (p.m * p.k);
    return p;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    const struct device_ops *ops = pass->ops;
    struct product p = product_of(layer);
    for (size_t i = 0; i < pass->rows * p.count; i++)
        ops->linear_backward_input(pass->device, F32(floats(&o.x[0]) + i * p.m * p.k), floats(&o.x[1]) + i * p.k * p.n,
                                   F32(floats(o.y) + i * p.m * p.n), p.m, p.n, p.k);
}

/* da = dy b^T, db = a^T dy */
static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct product p = product_of(layer);
    if (o.dx[1].data) device_zero(pass->device, floats(&o.dx[1]), pass->rows * p.count * p.k * p.n * sizeof(float));
    for (size_t i = 0; i < pass->rows * p.count; i++) {
        const float *a = floats(&o.x[0]) + i * p.m * p.k, *b = floats(&o.x[1]) + i * p.k * p.n,
                    *slope = floats(o.dy) + i * p.m * p.n;
        if (o.dx[0].data)
            pass->ops->linear_forward(pass->device, F32(slope), b, NULL, false, F32(floats(&o.dx[0]) + i * p.m * p.k),
                                      p.m, p.n, p.k);
        if (o.dx[1].data)
            pass->ops->linear_backward_weight(pass->device, F32(a), F32(slope), floats(&o.dx[1]) + i * p.k * p.n, NULL,
                                              p.m, p.n, p.k);
    }
}

static size_t multiply_adds(const struct layer *layer) {
    struct product p = product_of(layer);
    return p.count * p.m * p.k * p.n;
}

static const char *write_onnx(const struct onnx_call *c) {
    return onnx_node2(c->g, "MatMul", c->inputs[0], c->inputs[1]);
}

/* The second factor is (in, out), as linear takes it. */
static void write_c(const struct c_call *c) {
    const struct shape *a = &c->layer->in, *y = &c->layer->out;
    size_t m = (size_t)a->size[a->dims - 2], k = c_last(a), n = c_last(y), count = c->layer->in_size / (m * k);
    c_begin_images(c, count);
    text_printf(&c->c->body, "    linear(%s, %s, 0, %s, %zu, %zu, %zu);\n", c_at_image(c, c->inputs[0], count, m * k),
                c_at_image(c, c->inputs[1], count, k * n), c_at_image(c, c->y, count, m * n), m, k, n);
    c_end_images(c, count);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "bmm mm", "matmul"),
    {0},
};

const struct layer_type layer_matmul = {
    .aliases = aliases,
    .variant = {"matmul", NULL,
                "The matrix product of the last two dimensions of two outputs: `matmul: {from: [a, b]}` (torch.matmul "
                "of tensors whose other dimensions are the same)."},
    .joins = true,
    .ignores = IGNORES_Y,
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .multiply_adds = multiply_adds,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "{x} @ {x1}",
};
