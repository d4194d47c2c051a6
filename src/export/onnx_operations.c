/* What a layer computes as nodes of ONNX; tensors are channels-first, as in PyTorch. A table of each family of
 * operations has their functions. */
#include "export/onnx_operations.h"

int64_t onnx_last(const struct shape *shape) { return shape->size[shape->dims - 1]; }

/* x w^T + b of the last dimension; [dims]: of the rows */
const char *onnx_linear(struct onnx_graph *g, const char *x, size_t w, size_t b, int dims) {
    struct text attributes = {0};
    const char *weight = onnx_param(g, w), *bias = b == OPERATION_NO_PARAM ? NULL : onnx_param(g, b);
    if (dims == 1) {
        onnx_int(&attributes, "transB", 1);
        return onnx_node(g, "Gemm", (const char *const[]){x, weight, bias}, bias ? 3 : 2, &attributes);
    }
    onnx_ints(&attributes, "perm", (const int64_t[]){1, 0}, 2);
    const char *y = onnx_node2(g, "MatMul", x, onnx_node1(g, "Transpose", weight, &attributes));
    return bias ? onnx_node2(g, "Add", y, bias) : y;
}

const char *onnx_gather(struct onnx_graph *g, const char *x, const char *indices, int64_t axis) {
    struct text attributes = {0};
    onnx_int(&attributes, "axis", axis);
    return onnx_node(g, "Gather", (const char *const[]){x, indices}, 2, &attributes);
}

static const char *add_linear(const struct onnx_call *c) {
    return onnx_linear(c->g, c->x, c->op->weight, c->op->bias, c->layer->in.dims);
}

static const char *same(const struct onnx_call *c) { return c->x; }

static const char *at_most_6(struct onnx_graph *g, const char *x) {
    const char *inputs[] = {x, onnx_scalar(g, 0), onnx_scalar(g, 6)};
    return onnx_node(g, "Clip", inputs, 3, NULL);
}

static const char *add_activation(const struct onnx_call *c) {
    struct text attributes = {0};
    switch (c->op->function) {
    case ACTIVATION_RELU:
        return onnx_node1(c->g, "Relu", c->x, NULL);
    case ACTIVATION_TANH:
        return onnx_node1(c->g, "Tanh", c->x, NULL);
    case ACTIVATION_SIGMOID:
        return onnx_node1(c->g, "Sigmoid", c->x, NULL);
    case ACTIVATION_SILU:
        return onnx_node2(c->g, "Mul", c->x, onnx_node1(c->g, "Sigmoid", c->x, NULL));
    case ACTIVATION_RELU6:
        return at_most_6(c->g, c->x);
    case ACTIVATION_SELU:
        return onnx_node1(c->g, "Selu", c->x, NULL);
    case ACTIVATION_HARDSWISH:
        return onnx_node1(c->g, "HardSwish", c->x, NULL);
    case ACTIVATION_HARDSIGMOID:
        onnx_float(&attributes, "alpha", 1.0f / 6);
        onnx_float(&attributes, "beta", 0.5f);
        return onnx_node1(c->g, "HardSigmoid", c->x, &attributes);
    case ACTIVATION_MISH:
        return onnx_node1(c->g, "Mish", c->x, NULL);
    case ACTIVATION_SOFTPLUS:
        return onnx_node1(c->g, "Softplus", c->x, NULL);
    case ACTIVATION_ELU:
        return onnx_node1(c->g, "Elu", c->x, NULL);
    case ACTIVATION_GELU:
    case ACTIVATION_GELU_TANH:
        onnx_string(&attributes, "approximate", c->op->function == ACTIVATION_GELU ? "none" : "tanh");
        break;
    }
    return onnx_node1(c->g, "Gelu", c->x, &attributes);
}

static const char *add_leaky_relu(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_float(&attributes, "alpha", c->op->slope);
    return onnx_node1(c->g, "LeakyRelu", c->x, &attributes);
}

static const char *add_elu(const struct onnx_call *c) {
    struct text attributes = {0};
    onnx_float(&attributes, "alpha", c->op->slope);
    return onnx_node1(c->g, "Elu", c->x, &attributes);
}

static onnx_writer *const elements[OPERATION_KINDS] = {
    [OPERATION_IDENTITY] = same,
    [OPERATION_REORDER] = same,
    [OPERATION_LINEAR] = add_linear,
    [OPERATION_ACTIVATION] = add_activation,
    [OPERATION_LEAKY_RELU] = add_leaky_relu,
    [OPERATION_ELU] = add_elu,
    [OPERATION_UNFOLD_DEPTH] = same,
};

static onnx_writer *const *const families[] = {elements,   onnx_attention, onnx_images,
                                               onnx_norms, onnx_sequences, onnx_shapes};

const char *onnx_operation(struct onnx_graph *g, const struct layer *layer, const struct operation *op,
                           const char *const *inputs) {
    const struct onnx_call call = {g, layer, op, inputs[0], inputs};
    const char *y = NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i][op->kind]) y = families[i][op->kind](&call);
    return op->has_relu ? onnx_node1(g, "Relu", y, NULL) : y;
}
